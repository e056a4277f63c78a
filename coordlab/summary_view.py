"""The closing summary of a run: verdict, faults, phases of both chains, gaps, where it lies."""

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
    """Print the phases and gaps of each fault, both chains side by side."""
    for fault in summary.faults:
        console.print()
        console.print(
            Text(f"{fault.fault}", style="bold").append(
                f"  {fault.node or 'nobody'} at {seconds(fault.injected_us)}", style=""
            )
        )
        tables = [_phase_table(fault, chain) for chain in HEADINGS if fault.rows(chain)]
        if tables:
            console.print(Columns(tables, padding=(0, 4)))
        else:
            console.print(Padding("no coordinator moved", (0, 2)))
        console.print(_outcome_line(fault))
    if not summary.completed:
        console.print(Text("the trace ends early: this run is incomplete", style="yellow"))
    for reason, count in summary.bad_rows:
        console.print(Text(f"{count} rows were set aside: {reason}", style="yellow"))
    for file in summary.unreadable:
        console.print(Text(f"set aside: {file}", style="yellow"))


def _outcome_line(fault: FaultSummary) -> Text:
    line = Text("rebalances ")
    line.append(str(fault.rebalance_count), style="bold")
    if fault.rebalances:
        line.append(" (" + ", ".join(f"{count} x {why}" for why, count in fault.rebalances) + ")")
    if fault.members:
        line.append(
            f"; {fault.members_kept} of {fault.members} members kept member id and generation"
        )
    return line


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
