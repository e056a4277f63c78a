"""The closing summary of a run: verdict, faults, phases of both chains, gaps, where it lies."""

from collections import Counter
from collections.abc import Iterator, Sequence

import msgspec
from rich.columns import Columns
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from chaos.experiment.notes import notes_of
from chaos.results.manifest import experiment_of
from coordlab.console import clock_seconds, print_lines, print_table
from coordlab.views.check_view import print_checks
from pipeline.summary.caveats import caveats_of, pass_text
from pipeline.summary.deploys import deploy_text, deploys_of
from pipeline.summary.felt import LAG_OVER, Felt
from pipeline.summary.figures import HEADER, MARK, Chain, FaultSummary, RunSummary, same_gaps
from pipeline.summary.outcomes import listed
from pipeline.summary.story import (
    CHAIN_HEADINGS,
    FELT,
    FELT_IN_ALL,
    NOTHING_FELT,
    Statement,
    coordinators_statement,
    counted,
    disturbance_texts,
    errors_text,
    felt_after,
    felt_rows,
    felt_text,
    kept_text,
    leaving_texts,
    noticed_text,
    owners_statement,
    rebalances_statement,
    repeated_text,
)
from results_schema.journal import FaultOutcome, JournalEntry
from results_schema.manifest import Manifest
from results_schema.results import Results, RunOutcome, Verdict

_VERDICT_STYLES = {
    Verdict.PASS: "bold green",
    Verdict.VIOLATED: "bold red",
    Verdict.UNKNOWN: "bold yellow",
}
_MAX_FAULTS_IN_FULL = 2
_MAX_FAULTS_TOLD = 20
MAX_BLOCKS = 6
"""Pairs of coordinators, or of owners, that are printed; the tables have them all."""
_NARROW = 60
"""Least width for all columns of a table of phases; a narrower one keeps two."""
_NARROW_FAULTS = 75
"""Least width for the table of many faults; in a narrower one each fault is a line."""
_NARROW_CELLS = ("p50", "max")
_FAULT_COLUMNS = {
    "detect": "detect",
    "notice": "notice",
    "no coord.": "no coordinator",
    "commit gap": "commit gap",
}
"""Headings of the table of many faults, and the measures in it."""
_GAPS = ("commit gap", "processing gap")
"""Gaps into which several faults may fall."""
_SUBJECTS = {"member": "per member", "partition": "per partition", "group": "per group"}
"""Whose a gap is."""


def print_summary(
    console: Console, manifest: Manifest, results: Results, phases: RunSummary | None
) -> None:
    """Print everything that a run has to say when it ends."""
    print_verdict(console, manifest, results, phases)
    print_figures(console, manifest, results, phases)


def print_verdict(
    console: Console, manifest: Manifest, results: Results, phases: RunSummary | None
) -> None:
    """Print how the run ended, and what became of its faults.

    A PASS says in the same breath what was felt all the same, as far as `phases` are known.
    """
    console.print()
    _print_verdict(console, manifest, results, caveats_of(phases))
    _print_faults(console, results.faults)


def print_figures(
    console: Console, manifest: Manifest, results: Results, phases: RunSummary | None
) -> None:
    """Print the phases and outcomes, if they are known, and what the checks saw."""
    if phases is not None:
        print_phases(console, phases)
        deploys = deploys_of(results.faults, phases.felt)
        print_lines(console, map(deploy_text, deploys))
        print_notes(console, _notes(manifest))
    print_checks(console, results.checks)


def print_notes(console: Console, notes: Sequence[str]) -> None:
    """Print what one has to know to read the figures."""
    print_lines(console, (f"note: {note}" for note in notes), style="cyan")


def _notes(manifest: Manifest) -> tuple[str, ...]:
    try:
        return notes_of(experiment_of(manifest))
    except msgspec.ValidationError:  # another version's
        return ()


def print_phases(console: Console, summary: RunSummary) -> None:
    """Print the phases and outcomes of each fault, then what the run did to its groups as a whole.

    Up to `_MAX_FAULTS_IN_FULL` faults have both chains in full, more of them a line each.
    """
    if len(summary.faults) > _MAX_FAULTS_IN_FULL:
        _print_fault_table(console, summary.faults)
    for fault in summary.faults[:_MAX_FAULTS_TOLD]:
        if len(summary.faults) <= _MAX_FAULTS_IN_FULL:
            _print_phases_of(console, fault)
        elif fault.rebalances:
            print_lines(console, [f"{fault.fault}: {fault.node or 'nobody'}"], style="bold")
            print_lines(console, (f"  {line}" for line in fault_rebalance_lines(fault)))
    _print_felt(console, summary)
    outcomes = list(outcome_lines(summary))
    if outcomes:
        console.print()
        print_lines(console, outcomes)
    print_lines(console, disturbance_texts(summary), style="yellow")
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
            f"  {fault.node or 'nobody'} at {clock_seconds(fault.injected_us)}", style=""
        )
    )
    narrow = console.width < _NARROW
    chains: tuple[Chain, ...] = ("broker", "client")
    tables = [
        _phase_table(fault, chain, CHAIN_HEADINGS[chain], narrow=narrow)
        for chain in chains
        if fault.rows(chain)
    ]
    if tables:
        print_table(console, Columns(tables, padding=(0, 4)))
    if not fault.partitions_moved:
        console.print("no coordinator moved")
    noticed = noticed_text(fault)
    print_lines(console, [] if noticed is None else [noticed])
    print_lines(console, leaving_texts(fault))
    print_lines(console, fault_rebalance_lines(fault))


def _print_fault_table(console: Console, faults: Sequence[FaultSummary]) -> None:
    """Print one line per fault with its longest phases and gaps."""
    console.print()
    if console.width < _NARROW_FAULTS:
        for fault in faults[:_MAX_FAULTS_TOLD]:
            print_lines(console, [_fault_line(fault)])
    else:
        print_table(console, _fault_table(faults[:_MAX_FAULTS_TOLD]))
    said = "longest of each; kept: members with the same id and generation after it"
    print_lines(console, [said], style="dim")
    print_lines(console, _same_gap_lines(faults[:_MAX_FAULTS_TOLD]))
    if len(faults) > _MAX_FAULTS_TOLD:
        print_lines(console, [f"and {len(faults) - _MAX_FAULTS_TOLD:,} more: table figures"])


def _same_gap_lines(faults: Sequence[FaultSummary]) -> Iterator[str]:
    """Yield which faults fell into a gap that an earlier one's figures show already."""
    for measure in _GAPS:
        by_first: dict[str, list[str]] = {}
        for fault, first in same_gaps(faults, measure).items():
            by_first.setdefault(first, []).append(fault)
        for first, later in by_first.items():
            yield f"the {measure} after {listed(later)} is the one after {first}"


def _fault_line(fault: FaultSummary) -> str:
    found = {name: fault.distribution(name) for name in _FAULT_COLUMNS.values()}
    said = [f"{name} {each.longest_text}" for name, each in found.items() if each is not None]
    said.append(f"rebalances {fault.rebalance_count}")
    said += [f"kept {fault.members_kept} of {fault.members}"] if fault.members else []
    return f"{clock_seconds(fault.injected_us)} {fault.node or '-'}: {', '.join(said)}"


def _fault_table(faults: Sequence[FaultSummary]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("at", justify="right")
    table.add_column("hit")
    for heading in (*_FAULT_COLUMNS, "rebalances", "kept"):
        table.add_column(heading, justify="right")
    for fault in faults:
        found = [fault.distribution(measure) for measure in _FAULT_COLUMNS.values()]
        table.add_row(
            clock_seconds(fault.injected_us),
            fault.node or "-",
            *("" if each is None else each.longest_text for each in found),
            str(fault.rebalance_count),
            f"{fault.members_kept}/{fault.members}" if fault.members else "",
        )
    return table


def _phase_table(fault: FaultSummary, chain: Chain, heading: str, *, narrow: bool) -> Group:
    rows = fault.rows(chain)
    subjects = {
        measure.name: f", {_SUBJECTS[measure.subject_kind]}"
        for measure, _ in fault.measures
        if measure.subject_kind is not None
    }
    said = [
        place
        for place, heading in enumerate(HEADER)
        if any(row[place + 1] for row in rows) and (not narrow or heading in _NARROW_CELLS)
    ]
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("", no_wrap=True)
    for place in said:
        table.add_column(HEADER[place], justify="right")
    for name, *cells in rows:
        measure = name.removesuffix(MARK)
        mark = name.removeprefix(measure)
        shown = f"{measure}{subjects.get(measure, '')}{mark}"
        table.add_row(shown, *(cells[place] for place in said))
    return Group(Text(heading, style="underline"), table)


def _print_felt(console: Console, summary: RunSummary) -> None:
    """Print what was felt, in two parts: after each fault, and over the whole run.

    A table lists the first of many faults.
    """
    faults = [fault for fault in summary.faults if fault.rows("gap")]
    in_full = faults if len(summary.faults) <= _MAX_FAULTS_IN_FULL else []
    if not in_full and summary.felt is None:
        return
    console.print()
    console.print(Text(FELT, style="bold"))
    for fault in in_full:
        narrow = console.width < _NARROW
        print_table(console, _phase_table(fault, "gap", felt_after(fault), narrow=narrow))
    print_lines(console, _same_gap_lines(in_full))
    if summary.felt is not None:
        _print_felt_in_all(console, summary.felt)


def _print_felt_in_all(console: Console, felt: Felt) -> None:
    """Print a table over the partitions of all groups, then a line for each group."""
    narrow = console.width < _NARROW
    rows = felt_rows(felt.in_all)
    wanted = ("max", "sum") if narrow else ("partitions", "p50", "p90", "max", "sum")
    headings = [each for each in wanted if any(cells[each] for _, cells in rows)]
    console.print(Text(f"{FELT_IN_ALL}{MARK if felt.disturbed else ''}", style="underline"))
    if rows:
        table = Table(box=None, pad_edge=False, header_style="dim")
        table.add_column("", no_wrap=True)
        for heading in headings:
            table.add_column(heading, justify="right")
        for name, cells in rows:
            table.add_row(name, *(cells[heading] for heading in headings))
        print_table(console, table)
    else:
        print_lines(console, [NOTHING_FELT])
    lag = felt.in_all.spreads.get(LAG_OVER)
    if lag is not None and lag.missing:
        late = counted(lag.missing, "partition")
        print_lines(console, [f"{late} had not come back to the usual lag when the run ended"])
    shown = list(felt.groups.items())[:MAX_BLOCKS]
    print_lines(console, (felt_text(group, counts) for group, counts in shown))
    if len(felt.groups) > len(shown):
        more = len(felt.groups) - len(shown)
        print_lines(console, [f"and {more} more groups: table felt_groups"])


def verdict_text(results: Results) -> Text:
    """Return how a run ended in a word."""
    match results.outcome:
        case RunOutcome.COMPLETED:
            return Text(results.verdict.upper(), style=_VERDICT_STYLES[results.verdict])
        case RunOutcome.INTERRUPTED:
            return Text("INTERRUPTED", style="bold yellow")
        case RunOutcome.INTERNAL_ERROR:
            return Text("INTERNAL ERROR", style="bold red")


def _print_verdict(
    console: Console, manifest: Manifest, results: Results, caveats: Sequence[str]
) -> None:
    word = verdict_text(results)
    whose = (
        f"{manifest.experiment} on {manifest.runtime}, seed {manifest.seed}, "
        f"{clock_seconds(results.ended_at_us)} of the run's clock"
    )
    if caveats and results.outcome is RunOutcome.COMPLETED and results.verdict is Verdict.PASS:
        print_lines(console, [pass_text(word.plain, caveats)], style=str(word.style))
        print_lines(console, [whose])
    else:
        console.print(Text.assemble(word, f"  {whose}"), highlight=False, soft_wrap=True)
    if results.outcome is RunOutcome.INTERNAL_ERROR:
        console.print("coordlab itself failed; this says nothing about Kafka:")
    print_lines(console, (f"  {reason}" for reason in results.reasons))
    counts = (
        f"records acknowledged to producers {results.records_produced:,}, consumed "
        f"{results.records_consumed:,}; OffsetCommits acknowledged to members "
        f"{results.commits_acknowledged:,}"
    )
    print_lines(console, [counts], style="dim")


def _print_faults(console: Console, faults: Sequence[JournalEntry]) -> None:
    """Print the outcome of each fault; of very many, of the first ones and of those that failed."""
    told = [
        fault
        for place, fault in enumerate(faults)
        if place < _MAX_FAULTS_TOLD or fault.outcome is FaultOutcome.FAILED
    ]
    for fault in told[: 2 * _MAX_FAULTS_TOLD]:
        _print_fault(console, fault)
    hidden = len(faults) - min(len(told), 2 * _MAX_FAULTS_TOLD)
    if hidden > 0:
        outcomes = Counter(fault.outcome.value for fault in faults)
        counts = ", ".join(f"{count:,} {outcome}" for outcome, count in outcomes.items())
        line = f"and {hidden:,} more faults: journal.json; of all {len(faults):,}: {counts}"
        print_lines(console, [line])


def _print_fault(console: Console, fault: JournalEntry) -> None:
    print_lines(console, [f"{fault.fault} {fault.target}: {_what_became_of(fault)}"])
    radius = fault.blast_radius
    if radius.groups or radius.partitions:
        groups, partitions = listed(radius.groups) or "none", listed(radius.partitions) or "none"
        line = f"  blast radius: groups {groups}; partitions {partitions}"
        print_lines(console, [line], style="dim")


def _what_became_of(fault: JournalEntry) -> str:
    match fault.outcome:
        case FaultOutcome.PLANNED:
            return "never injected"
        case FaultOutcome.MISSED:
            return f"hit nothing at {clock_seconds(fault.fired_at_us)}: {fault.error}"
        case FaultOutcome.FAILED:
            return f"failed at {clock_seconds(fault.fired_at_us)}: {fault.error}"
        case FaultOutcome.HIT:
            pid = "" if fault.pid is None else f" (pid {fault.pid})"
            healed = ""
            if fault.healed_at_us is not None:
                healed = f", healed at {clock_seconds(fault.healed_at_us)}"
            if fault.note is not None:
                healed += f": {fault.note}"
            return f"hit {fault.hit}{pid} at {clock_seconds(fault.fired_at_us)}{healed}"


def fault_rebalance_lines(fault: FaultSummary) -> Iterator[str]:
    """Yield the rebalances after a fault, and the number of members that kept their place."""
    if not fault.rebalances:
        yield "no rebalance"
    for rebalances in fault.rebalances:
        yield from _statement_lines(rebalances_statement(rebalances, fault))
    kept = kept_text(fault)
    if kept is not None:
        yield kept


def outcome_lines(summary: RunSummary) -> Iterator[str]:
    """Yield coordinators and owners that overlapped, repeated records and failed commits."""
    for coordinators in summary.coordinators[:MAX_BLOCKS]:
        yield from _statement_lines(coordinators_statement(coordinators))
    yield from _left_out(len(summary.coordinators), "coordinators", "tenure_overlaps")
    long_enough = [each for each in summary.owners if each.longest_us >= summary.clock_error_us]
    for owners in long_enough[:MAX_BLOCKS]:
        yield from _statement_lines(owners_statement(owners))
    yield from _left_out(len(long_enough), "owners", "ownership_overlaps")
    for processing in summary.processing:
        if processing.repeated:
            yield repeated_text(processing)
    if summary.commit_errors:
        yield errors_text(summary.commit_errors)


def _left_out(number: int, what: str, table: str) -> Iterator[str]:
    if number > MAX_BLOCKS:
        yield f"and {number - MAX_BLOCKS} more times with two {what} at once: table {table}"


def _statement_lines(told: Statement) -> Iterator[str]:
    yield told.headline
    yield from (f"  {line}" for line in told.particulars)
