"""The closing summary of a run: verdict, faults, phases of both chains, gaps, where it lies."""

import textwrap
from collections.abc import Iterable, Sequence

from rich.columns import Columns
from rich.console import Console, Group
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from chaos.checkers.base import CheckOutcome, CheckReport
from chaos.journal import JournalEntry
from chaos.manifest import Manifest
from chaos.verdict import Results, RunOutcome, Verdict
from coordlab.live import seconds
from coordlab.outcome_view import outcome_lines, rebalance_lines
from pipeline.figures import HEADER, Chain, FaultSummary, RunSummary

_VERDICT_STYLES = {
    Verdict.PASS: "bold green",
    Verdict.VIOLATED: "bold red",
    Verdict.UNKNOWN: "bold yellow",
}
_CHECK_STYLES = {
    CheckOutcome.PASS: "green",
    CheckOutcome.VIOLATED: "red",
    CheckOutcome.INCONCLUSIVE: "yellow",
    CheckOutcome.NOTHING_SEEN: "dim",
}
_MAX_FAULTS_IN_FULL = 2
_FAULT_COLUMNS = {
    "detect": "detect",
    "notice": "notice",
    "no coord.": "no coordinator",
    "commit gap": "commit gap",
}
"""Headings of the table of many faults, and the measures in it."""
_MAX_STORY_LINES = 12
_MAX_LISTED = 8
HEADINGS: dict[Chain, str] = {
    "broker": "broker chain, per offsets partition",
    "client": "client chain, per member",
    "gap": "what was felt",
}


def print_summary(
    console: Console, manifest: Manifest, results: Results, phases: RunSummary | None
) -> None:
    """Print everything that a run has to say when it ends."""
    console.print()
    _print_verdict(console, manifest, results)
    for fault in results.faults:
        _print_fault(console, fault)
    if phases is not None:
        print_phases(console, phases)
    _print_checks(console, results.checks)


def print_phases(console: Console, summary: RunSummary) -> None:
    """Print the phases and outcomes of each fault, then what the run did to its groups as a whole.

    Up to `_MAX_FAULTS_IN_FULL` faults have both chains in full, more of them a line each.
    """
    if len(summary.faults) > _MAX_FAULTS_IN_FULL:
        _print_fault_table(console, summary.faults)
    for fault in summary.faults:
        if len(summary.faults) <= _MAX_FAULTS_IN_FULL:
            _print_phases_of(console, fault)
        elif fault.rebalances:
            _print_lines(console, f"{fault.fault}:", rebalance_lines(fault))
    outcomes = list(outcome_lines(summary))
    if outcomes:
        console.print()
        _print_lines(console, None, outcomes)
    if not summary.completed:
        console.print(Text("the trace ends early: this run is incomplete", style="yellow"))
    for reason, count in summary.bad_rows:
        console.print(Text(f"{count} rows were set aside: {reason}", style="yellow"))
    for file in summary.unreadable:
        console.print(Text(f"set aside: {file}", style="yellow"))


def _print_phases_of(console: Console, fault: FaultSummary) -> None:
    console.print()
    console.print(
        Text(f"{fault.fault}", style="bold").append(
            f"  {fault.node or 'nobody'} at {seconds(fault.injected_us)}", style=""
        )
    )
    tables = [_phase_table(fault, chain) for chain in HEADINGS if fault.rows(chain)]
    if tables:
        console.print(Columns(tables, padding=(0, 4)))
    if not fault.partitions_moved:
        console.print("no coordinator moved")
    if fault.noticed_by:
        causes = ", ".join(f"{cause} {count}" for cause, count in fault.noticed_by)
        _print_lines(console, None, [f"members noticed by: {causes}"])
    _print_lines(console, None, rebalance_lines(fault))


def _print_lines(console: Console, heading: str | None, lines: Iterable[str]) -> None:
    """Print lines of plain text; one that begins with spaces belongs to the one before."""
    if heading is not None:
        console.print(Text(heading, style="bold"))
    for line in lines:
        text = line.lstrip()
        indent = len(line) - len(text) + (0 if heading is None else 2)
        # What does not fit goes on under its beginning, two columns in.
        wrapped = textwrap.wrap(
            text,
            max(20, console.width - indent),
            subsequent_indent="  ",
            break_long_words=False,
            break_on_hyphens=False,
        )
        for part in wrapped:
            console.print(Text(" " * indent + part), soft_wrap=True)


def _print_fault_table(console: Console, faults: Sequence[FaultSummary]) -> None:
    """Print one line per fault with its longest phases and gaps."""
    console.print()
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("fault")
    table.add_column("node")
    for heading in (*_FAULT_COLUMNS, "rebalances", "kept"):
        table.add_column(heading, justify="right")
    for fault in faults:
        found = [fault.distribution(measure) for measure in _FAULT_COLUMNS.values()]
        table.add_row(
            fault.fault,
            fault.node or "-",
            *("" if each is None else each.longest_text for each in found),
            str(fault.rebalance_count),
            f"{fault.members_kept}/{fault.members}" if fault.members else "",
        )
    console.print(table)
    console.print(
        Text("longest of each; kept: members with the same id and generation after it", style="dim")
    )


def _phase_table(fault: FaultSummary, chain: Chain) -> Group:
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("")
    for heading in HEADER:
        table.add_column(heading, justify="right")
    for row in fault.rows(chain):
        table.add_row(*row)
    return Group(Text(HEADINGS[chain], style="underline"), table)


def _print_verdict(console: Console, manifest: Manifest, results: Results) -> None:
    match results.outcome:
        case RunOutcome.COMPLETED:
            word = Text(results.verdict.upper(), style=_VERDICT_STYLES[results.verdict])
        case RunOutcome.INTERRUPTED:
            word = Text("INTERRUPTED", style="bold yellow")
        case RunOutcome.INTERNAL_ERROR:
            word = Text("INTERNAL ERROR", style="bold red")
    line = Text.assemble(
        word,
        f"  {manifest.experiment} on {manifest.runtime}, seed {manifest.seed}, "
        f"{seconds(results.ended_at_us)} of the run's clock",
    )
    console.print(line, highlight=False)
    if results.outcome is RunOutcome.INTERNAL_ERROR:
        console.print("coordlab itself failed; this says nothing about Kafka:")
    for reason in results.reasons:
        console.print(Padding(escape(reason), (0, 0, 0, 2)), highlight=False)
    console.print(
        f"records acknowledged to producers {results.records_produced:,}, consumed "
        f"{results.records_consumed:,}; commits acknowledged {results.commits_acknowledged:,}",
        highlight=False,
        style="dim",
    )


def _print_fault(console: Console, fault: JournalEntry) -> None:
    where = fault.node or "nobody"
    pid = "" if fault.pid is None else f" (pid {fault.pid})"
    healed = "" if fault.healed_at_us is None else f", healed at {seconds(fault.healed_at_us)}"
    console.print(
        Text.assemble(
            (fault.fault, "bold"),
            f" {fault.target} -> {where}{pid} at {seconds(fault.fired_at_us)}{healed}",
        ),
        highlight=False,
    )
    radius = fault.blast_radius
    if radius.groups or radius.partitions:
        console.print(
            Padding(
                f"blast radius: groups {_listed(radius.groups)}; led {_listed(radius.partitions)}",
                (0, 0, 0, 2),
            ),
            highlight=False,
            style="dim",
        )


def _seen(what: str, count: int) -> str:
    """Return what a check counted, in words; a name that ends in `_us` is a time."""
    words = what.removesuffix("_us").replace("_", " ")
    return f"{words} {seconds(count)}" if what.endswith("_us") else f"{count:,} {words}"


def _listed(names: tuple[str, ...]) -> str:
    if not names:
        return "none"
    shown = ", ".join(names[:_MAX_LISTED])
    more = len(names) - _MAX_LISTED
    return f"{shown} and {more} more" if more > 0 else shown


def _print_checks(console: Console, checks: tuple[CheckReport, ...]) -> None:
    if not checks:
        return
    console.print()
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("check", "outcome", "seen"):
        table.add_column(heading)
    for check in checks:
        seen = "\n".join(_seen(what, count) for what, count in check.seen.items())
        table.add_row(
            check.check.replace("_", " "),
            Text(check.outcome.replace("_", " "), style=_CHECK_STYLES[check.outcome]),
            "\n".join(filter(None, (seen, check.note))),
        )
    console.print(table)
    for check in checks:
        for finding in check.findings:
            console.print(Text(f"{check.check}: {finding.summary}", style="red"))
            for line in finding.story[:_MAX_STORY_LINES]:
                console.print(Padding(escape(line), (0, 0, 0, 2)), highlight=False)
        hidden = check.findings_total - len(check.findings)
        if hidden > 0:
            console.print(f"{check.check}: {hidden} more findings of the same kind")
