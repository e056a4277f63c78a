"""The checks of a run: what each concluded and saw, and the story of each finding."""

from collections.abc import Iterator

from rich.console import Console
from rich.table import Table
from rich.text import Text

from chaos.checkers.fencing import ATTEMPTS
from coordlab.console import print_lines, seconds
from pipeline.summary.figures import duration_text
from results_schema.results import CheckOutcome, CheckReport

_CHECK_STYLES = {
    CheckOutcome.PASS: "green",
    CheckOutcome.VIOLATED: "red",
    CheckOutcome.INCONCLUSIVE: "yellow",
    CheckOutcome.NOTHING_SEEN: "dim",
}
_MAX_STORY_LINES = 12
_MAX_FINDINGS = 5
_NARROW = 70
"""Below it a check is told in lines: beside two columns its figures would stand word by word."""
_SAID_IF_ZERO = frozenset(
    {"needless_rebalances", "gaps", "overlaps", "commits_acknowledged", ATTEMPTS}
)
"""Counts that say something by being zero; of all others a zero is left out."""


def print_checks(console: Console, checks: tuple[CheckReport, ...]) -> None:
    """Print one row per check, then the findings: the first of each check with its story."""
    if not checks:
        return
    console.print()
    if console.width < _NARROW:
        for check in checks:
            print_lines(console, _lines_of(check), style=_CHECK_STYLES[check.outcome])
    else:
        console.print(_table_of(checks))
    for check in checks:
        _print_findings(console, check)


def _table_of(checks: tuple[CheckReport, ...]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("check", "outcome", "seen"):
        table.add_column(heading)
    for check in checks:
        table.add_row(
            _words(check.check),
            Text(_words(check.outcome), style=_CHECK_STYLES[check.outcome]),
            Text("\n".join(filter(None, ("; ".join(figures_of(check)), check.note)))),
        )
    return table


def _lines_of(check: CheckReport) -> Iterator[str]:
    yield f"{_words(check.check)}: {_words(check.outcome)}"
    yield from (f"  {said}" for said in ("; ".join(figures_of(check)), check.note) if said)


def _print_findings(console: Console, check: CheckReport) -> None:
    for place, finding in enumerate(check.findings[:_MAX_FINDINGS]):
        print_lines(console, [f"{check.check}: {finding.summary}"], style="red")
        if place > 0:  # they are of one kind: the first story explains the others
            continue
        story = finding.story[:_MAX_STORY_LINES]
        print_lines(console, (f"  {line}" for line in story))
        more = len(finding.story) - len(story)
        if more > 0:
            print_lines(console, [f"  and {more} more events: results.json"])
    hidden = check.findings_total - min(len(check.findings), _MAX_FINDINGS)
    if hidden > 0:
        print_lines(console, [f"{check.check}: {hidden:,} more findings of the same kind"])
    if len(check.findings) > 1:
        print_lines(console, ["  their stories: report.html, results.json"], style="dim")


def _words(name: str) -> str:
    return name.replace("_", " ")


def figures_of(check: CheckReport) -> list[str]:
    """Return what a check counted and measured, in words.

    A time at which something happened is told elsewhere; how long it lasted is said here. A check
    that had nothing to judge has no zero to be proud of.
    """
    judged = check.outcome is not CheckOutcome.NOTHING_SEEN
    durations = {
        what: value
        for what, value in check.measured.items()
        if what not in check.seen and what.endswith("_ms")
    }
    return [
        _figure(what, value)
        for what, value in (check.seen | durations).items()
        if value or (judged and what in _SAID_IF_ZERO)
    ]


def _figure(what: str, value: int) -> str:
    """Return a figure in words; a name that ends in a unit is a time."""
    name, _, unit = what.rpartition("_")
    words = what.replace("_", " ")
    if unit == "us":
        return f"{name.replace('_', ' ')} {seconds(value)}"
    if unit == "ms":
        return f"{name.replace('_', ' ')} {duration_text(value * 1_000)}"
    return f"{value:,} {words if value != 1 else _singular(words)}"


def _singular(words: str) -> str:
    """Return `leader epochs` as `leader epoch`: the first plural loses its ending."""
    first, *others = words.split(" ")
    if not first.endswith("s") or first.endswith("ss"):
        return " ".join((first, _singular(" ".join(others)))) if others else first
    return " ".join((first.removesuffix("es" if first.endswith("ches") else "s"), *others))
