"""The checks of a run on a terminal: outcome, what each check saw, and its findings.

The figures of a check are the numbers of the things that it saw, such as records. A finding is a
violation that a check reports.
"""

from collections.abc import Iterator

from rich.console import Console
from rich.table import Table
from rich.text import Text

from coordlab.console import print_lines, print_table
from pipeline.summary.story import check_figures
from results_schema.evidence_text import describe_row
from results_schema.results import CheckOutcome, CheckReport

_CHECK_STYLES = {
    CheckOutcome.PASS: "green",
    CheckOutcome.VIOLATED: "red",
    CheckOutcome.INCONCLUSIVE: "yellow",
    CheckOutcome.NOTHING_SEEN: "dim",
}
_MAX_STORY_LINES = 12
"""Limit of the events that are printed to prove a violation."""
_MAX_FINDINGS = 5
"""Limit of the findings that are printed for each check."""
_NARROW = 70
"""Least width of a terminal for the table. On a narrower terminal, a cell of the table would have
room for only one word in each line."""


def print_checks(console: Console, checks: tuple[CheckReport, ...]) -> None:
    """Print one row per check, then the findings. The first finding of each check has its story."""
    if not checks:
        return
    console.print()
    if console.width < _NARROW:
        for check in checks:
            print_lines(console, _lines_of(check), style=_CHECK_STYLES[check.outcome])
    else:
        print_table(console, _table_of(checks))
    for check in checks:
        _print_findings(console, check)


def _table_of(checks: tuple[CheckReport, ...]) -> Table:
    """Return a table with a row for each check."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("check", "outcome", "seen"):
        table.add_column(heading)
    for check in checks:
        table.add_row(
            _words(check.check),
            Text(check.outcome.words, style=_CHECK_STYLES[check.outcome]),
            Text("\n".join(_seen(check))),
        )
    return table


def _lines_of(check: CheckReport) -> Iterator[str]:
    """Yield the cells of a check's row as lines, for a narrow terminal."""
    yield f"{_words(check.check)}: {check.outcome.words}"
    yield from (f"  {text}" for text in _seen(check))


def _seen(check: CheckReport) -> Iterator[str]:
    """Yield the figures of a check as one text, then its note, if the check has them."""
    figures = "; ".join(check_figures(check))
    if figures:
        yield figures
    if check.note:
        yield check.note


def _print_findings(console: Console, check: CheckReport) -> None:
    """Print the first findings of a check. Only the first of them is printed with its events.

    The `story` of a finding has the events that prove the violation; `led_to` has earlier events,
    which are the cause. A check keeps only its first findings, in `findings` and in results.json;
    `findings_total` counts all of them.
    """
    for index, finding in enumerate(check.findings[:_MAX_FINDINGS]):
        print_lines(console, [f"{check.check}: {finding.summary}"], style="red")
        # All findings of a check are of the same kind, so the events of one explain them all.
        if index > 0:
            continue
        if finding.led_to:
            print_lines(console, ["  what led to it:"], style="dim")
            print_lines(console, (f"  {describe_row(row)}" for row in finding.led_to))
            print_lines(console, ["  what proves it:"], style="dim")
        story = finding.story[:_MAX_STORY_LINES]
        print_lines(console, (f"  {line}" for line in story))
        more = len(finding.story) - len(story)
        if more > 0:
            print_lines(console, [f"  and {more} more events: results.json"])
    printed = min(len(check.findings), _MAX_FINDINGS)
    hidden = check.findings_total - printed
    if hidden > 0:
        print_lines(console, [f"{check.check}: {hidden:,} more findings of the same kind"])
    if len(check.findings) > 1:
        print_lines(console, ["  their stories: report.html, results.json"], style="dim")


def _words(name: str) -> str:
    """Return the name of a check as words."""
    return name.replace("_", " ")
