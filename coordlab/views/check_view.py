"""Prints the checks of a run: the outcome of each, what the check has seen, and the violations.

    check          outcome   seen
    one owner      violated  1,204 ownerships of 6 partitions
    one_owner: orders-0 has two owners
      31.402 s consumer-readers-0 ...

Each check watches over one promise. A finding is a violation that a check reports.
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
"""The largest number of events that are printed to prove a violation."""
_MAX_FINDINGS = 5
"""The largest number of findings that are printed for a check."""
_MIN_WIDTH_FOR_TABLE = 70
"""On a narrower terminal, the cells of a table would be too narrow. So lines are printed."""


def print_checks(console: Console, checks: tuple[CheckReport, ...]) -> None:
    """Print a row for each check, then the findings of each check."""
    if not checks:
        return
    console.print()
    if console.width < _MIN_WIDTH_FOR_TABLE:
        for check in checks:
            print_lines(console, _lines_about(check), style=_CHECK_STYLES[check.outcome])
    else:
        print_table(console, _checks_table(checks))
    for check in checks:
        _print_findings(console, check)


def _checks_table(checks: tuple[CheckReport, ...]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("check", "outcome", "seen"):
        table.add_column(heading)
    for check in checks:
        table.add_row(
            _check_name(check.check),
            Text(check.outcome.words, style=_CHECK_STYLES[check.outcome]),
            Text("\n".join(_what_was_seen(check))),
        )
    return table


def _lines_about(check: CheckReport) -> Iterator[str]:
    """Yield the row of a check as lines, for a narrow terminal."""
    yield f"{_check_name(check.check)}: {check.outcome.words}"
    yield from (f"  {text}" for text in _what_was_seen(check))


def _what_was_seen(check: CheckReport) -> Iterator[str]:
    """Yield the numbers of things that a check has seen, such as records, and then its note."""
    figures = "; ".join(check_figures(check))
    if figures:
        yield figures
    if check.note:
        yield check.note


def _print_findings(console: Console, check: CheckReport) -> None:
    """Print the first findings of a check.

    All findings of a check are of the same kind. So only the first finding is printed with its
    events: those that have caused the violation (`led_to`), and those that prove it (`story`).
    """
    for index, finding in enumerate(check.findings[:_MAX_FINDINGS]):
        print_lines(console, [f"{check.check}: {finding.summary}"], style="red")
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
    # The results keep only the first findings of a check, but count all findings.
    hidden = check.findings_total - printed
    if hidden > 0:
        print_lines(console, [f"{check.check}: {hidden:,} more findings of the same kind"])
    if len(check.findings) > 1:
        print_lines(console, ["  their stories: report.html, results.json"], style="dim")


def _check_name(name: str) -> str:
    """Return the name of a check for a person: "one owner" for "one_owner"."""
    return name.replace("_", " ")
