"""Prints the closing summary of a run: its verdict, its faults, and how long the recovery took.

After a fault the summary shows two kinds of times:

- Phases, such as "detect" and "load", show where the time went. On the brokers' side, the phases
  lead from the fault to a new coordinator that serves its groups. On the clients' side, they lead
  from the fault to members that the new coordinator has accepted.
- Gaps, such as "commit gap", show how long a member or partition had no service.

Each of these times is measured for every group, member or partition. So a row of a table has the
median (p50) and the longest time, for example:

                            p50     max
    commit gap, per member  3.10 s  9.42 s
"""

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
"""If a run has more faults than this, each fault gets one line instead of tables of its own."""
_MAX_FAULTS_LISTED = 20
"""The largest number of faults that get a line."""
_MAX_OVERLAPS = 6
"""The largest number of overlaps of two coordinators, or of two owners, that are printed.

Spark's tables have all overlaps.
"""
_MAX_GROUPS = 6
"""The largest number of groups that get a line about the effects on their clients."""
_MIN_WIDTH_FOR_ALL_PHASES = 60
"""On a narrower terminal, a table of phases has only the columns _COLUMNS_IF_NARROW."""
_MIN_WIDTH_FOR_FAULT_TABLE = 75
"""On a narrower terminal, many faults are printed as lines and not as a table."""
_COLUMNS_IF_NARROW = ("p50", "max")
_FAULT_COLUMNS = {
    "detect": "detect",
    "notice": "notice",
    "no coord.": "no coordinator",
    "commit gap": "commit gap",
}
"""The columns with times in the table of many faults: heading -> name of the measure."""
_GAP_MEASURES = ("commit gap", "processing gap")
"""The kinds of gaps that can last so long that two faults share a gap."""
_PER_SUBJECT = {"member": "per member", "partition": "per partition", "group": "per group"}
"""Kind of subject -> the words after the name of a measure that has a value for each subject."""


def print_summary(
    console: Console, manifest: Manifest, results: Results, summary: RunSummary | None
) -> None:
    """Print the whole summary.

    `summary`: the phases and all other figures; None if they have not been computed yet.
    """
    print_verdict(console, manifest, results, summary)
    print_figures(console, manifest, results, summary)


def print_verdict(
    console: Console, manifest: Manifest, results: Results, summary: RunSummary | None
) -> None:
    """Print the verdict of the run, and the fate of each fault.

    If the run passed, its caveats follow: effects that clients felt although no promise was
    violated. The caveats come from the summary.
    """
    console.print()
    _print_verdict(console, manifest, results, caveats_of(summary))
    _print_faults(console, results.faults)


def print_figures(
    console: Console, manifest: Manifest, results: Results, summary: RunSummary | None
) -> None:
    """Print all figures of the run, as far as they are known, and then its checks."""
    if summary is not None:
        print_phases(console, summary)
        # A deploy is a fault in which all members of a group are replaced, one after the other.
        deploys = deploys_of(results.faults, summary.felt)
        print_lines(console, map(deploy_text, deploys))
        print_notes(console, _notes_on_experiment(manifest))
    print_checks(console, results.checks)


def print_notes(console: Console, notes: Sequence[str]) -> None:
    """Print notes on the experiment that a reader needs to understand the figures."""
    print_lines(console, (f"note: {note}" for note in notes), style="cyan")


def _notes_on_experiment(manifest: Manifest) -> tuple[str, ...]:
    try:
        return notes_of(experiment_of(manifest))
    except msgspec.ValidationError:
        # The run is of another version of coordlab. This version cannot read its experiment.
        return ()


def print_phases(console: Console, summary: RunSummary) -> None:
    """Print the figures after each fault, and then the figures of the whole run."""
    if len(summary.faults) <= _MAX_FAULTS_IN_FULL:
        for fault in summary.faults:
            _print_phases_after(console, fault)
    else:
        _print_fault_table(console, summary.faults)
        # The table has no room for the reasons of the rebalances. So the reasons follow it.
        for fault in summary.faults[:_MAX_FAULTS_LISTED]:
            if fault.rebalances:
                print_lines(console, [f"{fault.fault}: {fault.node or 'no node'}"], style="bold")
                print_lines(console, (f"  {line}" for line in fault_rebalance_lines(fault)))
    _print_felt(console, summary)
    outcomes = list(outcome_lines(summary))
    if outcomes:
        console.print()
        print_lines(console, outcomes)
    print_lines(console, disturbance_texts(summary), style="yellow")
    if not summary.completed:
        console.print(Text("the trace ends early: this run is incomplete", style="yellow"))
    # The following lines are about rows and files of the trace that could not be read.
    for reason, count in summary.bad_rows:
        console.print(Text(f"{count} rows were set aside: {reason}", style="yellow"))
    for file in summary.unreadable:
        console.print(Text(f"set aside: {file}", style="yellow"))


def _print_phases_after(console: Console, fault: FaultSummary) -> None:
    """Print the phases after a fault, and the reactions of members and groups."""
    console.print()
    hit = f"{fault.node or 'no node'} at {clock_seconds(fault.injected_us)}"
    console.print(Text(f"{fault.fault}  {hit}", style="bold"))
    narrow = console.width < _MIN_WIDTH_FOR_ALL_PHASES
    # The gaps are printed later, by `_print_felt`, with the other effects on clients.
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
    if noticed is not None:
        print_lines(console, [noticed])
    print_lines(console, leaving_texts(fault))
    print_lines(console, fault_rebalance_lines(fault))


def _print_fault_table(console: Console, faults: Sequence[FaultSummary]) -> None:
    """Print a line for each fault, with its longest phases and gaps."""
    console.print()
    if console.width < _MIN_WIDTH_FOR_FAULT_TABLE:
        for fault in faults[:_MAX_FAULTS_LISTED]:
            print_lines(console, [_fault_line(fault)])
    else:
        print_table(console, _fault_table(faults[:_MAX_FAULTS_LISTED]))
    legend = "longest of each; kept: members with the same id and generation after it"
    print_lines(console, [legend], style="dim")
    print_lines(console, _same_gap_lines(faults[:_MAX_FAULTS_LISTED]))
    if len(faults) > _MAX_FAULTS_LISTED:
        print_lines(console, [f"and {len(faults) - _MAX_FAULTS_LISTED:,} more: table figures"])


def _same_gap_lines(faults: Sequence[FaultSummary]) -> Iterator[str]:
    """Yield a sentence for each gap that several faults share.

    A long gap may still last when the next fault comes. Then it is the longest gap after both
    faults. A sentence such as `the commit gap after cut-1 and cut-2 is the one after crash-0` tells
    the reader not to add the gaps up.
    """
    for measure in _GAP_MEASURES:
        later_by_first: dict[str, list[str]] = {}  # {"crash-0": ["cut-1", "cut-2"]}
        for later_fault, first in same_gaps(faults, measure).items():
            later_by_first.setdefault(first, []).append(later_fault)
        for first, later in later_by_first.items():
            yield f"the {measure} after {listed(later)} is the one after {first}"


def _fault_line(fault: FaultSummary) -> str:
    """Return the row of a fault as one line, for a narrow terminal."""
    texts = []
    for measure in _FAULT_COLUMNS.values():
        distribution = fault.distribution(measure)
        if distribution is not None:
            texts.append(f"{measure} {distribution.longest_text}")
    texts.append(f"rebalances {fault.rebalance_count}")
    # If the affected groups had no members, "kept 0 of 0" would say nothing.
    if fault.members:
        texts.append(f"kept {fault.members_kept} of {fault.members}")
    return f"{clock_seconds(fault.injected_us)} {fault.node or '-'}: {', '.join(texts)}"


def _fault_table(faults: Sequence[FaultSummary]) -> Table:
    """Return a table with a row for each fault."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("at", justify="right")
    table.add_column("hit")
    for heading in (*_FAULT_COLUMNS, "rebalances", "kept"):
        table.add_column(heading, justify="right")
    for fault in faults:
        distributions = [fault.distribution(measure) for measure in _FAULT_COLUMNS.values()]
        longest = ["" if values is None else values.longest_text for values in distributions]
        table.add_row(
            clock_seconds(fault.injected_us),
            fault.node or "-",
            *longest,
            str(fault.rebalance_count),
            f"{fault.members_kept}/{fault.members}" if fault.members else "",
        )
    return table


def _phase_table(fault: FaultSummary, chain: Chain, heading: str, *, narrow: bool) -> Group:
    """Return the times of one chain of phases as a table under a heading, without empty columns.

    The first cell of a row is the name of a measure, such as `commit gap, per member`. The name
    ends with MARK if the times were disturbed: a machine was away, without a fault of the plan.
    """
    rows = fault.rows(chain)
    per_subject = {
        measure.name: f", {_PER_SUBJECT[measure.subject_kind]}"
        for measure, _ in fault.measures
        if measure.subject_kind is not None
    }
    # A row has a name, and then cells in the order of HEADER.
    shown_columns = [
        index
        for index, column in enumerate(HEADER)
        if any(cells[index] for _name, *cells in rows)
        and (not narrow or column in _COLUMNS_IF_NARROW)
    ]
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("", no_wrap=True)
    for index in shown_columns:
        table.add_column(HEADER[index], justify="right")
    for name, *cells in rows:
        # `commit gap*` becomes `commit gap, per member*`.
        measure = name.removesuffix(MARK)
        mark = MARK if name.endswith(MARK) else ""
        label = f"{measure}{per_subject.get(measure, '')}{mark}"
        table.add_row(label, *(cells[index] for index in shown_columns))
    return Group(Text(heading, style="underline"), table)


def _print_felt(console: Console, summary: RunSummary) -> None:
    """Print the effects on clients: the gaps after each fault, then figures of the whole run."""
    faults_with_gaps: list[FaultSummary] = []
    if len(summary.faults) <= _MAX_FAULTS_IN_FULL:  # the table of many faults has their gaps
        faults_with_gaps = [fault for fault in summary.faults if fault.rows("gap")]
    if not faults_with_gaps and summary.felt is None:
        return
    console.print()
    console.print(Text(FELT, style="bold"))
    for fault in faults_with_gaps:
        narrow = console.width < _MIN_WIDTH_FOR_ALL_PHASES
        print_table(console, _phase_table(fault, "gap", felt_after(fault), narrow=narrow))
    print_lines(console, _same_gap_lines(faults_with_gaps))
    if summary.felt is not None:
        _print_felt_in_all(console, summary.felt)


def _print_felt_in_all(console: Console, felt: Felt) -> None:
    """Print the effects on the clients of all groups as a table, then a line for each group."""
    narrow = console.width < _MIN_WIDTH_FOR_ALL_PHASES
    rows = felt_rows(felt.in_all)
    columns = ("max", "sum") if narrow else ("partitions", "p50", "p90", "max", "sum")
    columns_with_values = [column for column in columns if any(cells[column] for _, cells in rows)]
    heading = f"{FELT_IN_ALL}{MARK}" if felt.disturbed else FELT_IN_ALL
    console.print(Text(heading, style="underline"))
    if rows:
        table = Table(box=None, pad_edge=False, header_style="dim")
        table.add_column("", no_wrap=True)
        for column in columns_with_values:
            table.add_column(column, justify="right")
        for name, cells in rows:
            table.add_row(name, *(cells[column] for column in columns_with_values))
        print_table(console, table)
    else:
        print_lines(console, [NOTHING_FELT])
    lag = felt.in_all.spreads.get(LAG_OVER)
    # LAG_OVER is the time until the lag of a partition is as usual again. The time is missing if
    # the run ended while the lag was still longer.
    if lag is not None and lag.missing:
        still_behind = counted(lag.missing, "partition")
        print_lines(
            console, [f"{still_behind} had not come back to the usual lag when the run ended"]
        )
    shown = list(felt.groups.items())[:_MAX_GROUPS]
    print_lines(console, (felt_text(group, counts) for group, counts in shown))
    if len(felt.groups) > len(shown):
        more = len(felt.groups) - len(shown)
        print_lines(console, [f"and {more} more groups: table felt_groups"])


def verdict_text(results: Results) -> Text:
    """Return the end of a run in words: its verdict, or `INTERRUPTED`, or `INTERNAL ERROR`."""
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
    """Print the verdict with its reasons, and then the numbers of records and commits."""
    verdict = verdict_text(results)
    run_text = (
        f"{manifest.experiment} on {manifest.runtime}, seed {manifest.seed}, "
        f"{clock_seconds(results.ended_at_us)} of the run's clock"
    )
    passed = results.outcome is RunOutcome.COMPLETED and results.verdict is Verdict.PASS
    if passed and caveats:
        # Print the verdict and the caveats as one sentence, because PASS alone would say too much.
        print_lines(console, [pass_text(verdict.plain, caveats)], style=str(verdict.style))
        print_lines(console, [run_text])
    else:
        console.print(Text.assemble(verdict, f"  {run_text}"), highlight=False, soft_wrap=True)
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
    """Print the fate of each fault.

    If there are many faults, only the first faults are printed, and later faults that failed. The
    others are counted.
    """
    first, later = faults[:_MAX_FAULTS_LISTED], faults[_MAX_FAULTS_LISTED:]
    later_failures = [fault for fault in later if fault.outcome is FaultOutcome.FAILED]
    shown = [*first, *later_failures[:_MAX_FAULTS_LISTED]]
    for fault in shown:
        _print_fault(console, fault)
    hidden = len(faults) - len(shown)
    if hidden > 0:
        outcomes = Counter(fault.outcome.value for fault in faults)
        counts = ", ".join(f"{count:,} {outcome}" for outcome, count in outcomes.items())
        line = f"and {hidden:,} more faults: journal.json; of all {len(faults):,}: {counts}"
        print_lines(console, [line])


def _print_fault(console: Console, fault: JournalEntry) -> None:
    """Print the fate of a fault, and the groups and partitions that it affected."""
    print_lines(console, [f"{fault.fault} {fault.target}: {_what_became_of(fault)}"])
    radius = fault.blast_radius
    if radius.groups or radius.partitions:
        groups = listed(radius.groups) or "none"
        partitions = listed(radius.partitions) or "none"
        line = f"  blast radius: groups {groups}; partitions {partitions}"
        print_lines(console, [line], style="dim")


def _what_became_of(fault: JournalEntry) -> str:
    """Return the fate of a fault, such as `hit broker-1 at 30.000 s, healed at 50.000 s`."""
    match fault.outcome:
        case FaultOutcome.PLANNED:
            return "never injected"
        case FaultOutcome.MISSED:
            return f"hit nothing at {clock_seconds(fault.fired_at_us)}: {fault.error}"
        case FaultOutcome.FAILED:
            return f"failed at {clock_seconds(fault.fired_at_us)}: {fault.error}"
        case FaultOutcome.HIT:
            text = f"hit {fault.hit}"
            if fault.pid is not None:  # in virtual time a node has no process of its own
                text += f" (pid {fault.pid})"
            text += f" at {clock_seconds(fault.fired_at_us)}"
            if fault.healed_at_us is not None:
                text += f", healed at {clock_seconds(fault.healed_at_us)}"
            if fault.note is not None:
                text += f": {fault.note}"
            return text


def fault_rebalance_lines(fault: FaultSummary) -> Iterator[str]:
    """Yield lines about the rebalances after a fault, and a line about members without a rebalance.

    A member without a rebalance has kept its id and its generation.
    """
    if not fault.rebalances:
        yield "no rebalance"
    for rebalances in fault.rebalances:
        yield from _statement_lines(rebalances_statement(rebalances, fault))
    kept = kept_text(fault)
    if kept is not None:
        yield kept


def outcome_lines(summary: RunSummary) -> Iterator[str]:
    """Yield lines about effects that clients can notice, over the whole run.

    First come the times in which a group had two coordinators or a partition had two owners. Then
    come records that were processed again, and commits that failed.
    """
    for coordinators in summary.coordinators[:_MAX_OVERLAPS]:
        yield from _statement_lines(coordinators_statement(coordinators))
    yield from _line_on_overlaps_left_out(
        len(summary.coordinators), "coordinators", "tenure_overlaps"
    )
    # The clocks of two machines differ a little. An overlap that is shorter than this difference
    # may be no overlap at all.
    long_enough = [
        owners for owners in summary.owners if owners.longest_us >= summary.clock_error_us
    ]
    for owners in long_enough[:_MAX_OVERLAPS]:
        yield from _statement_lines(owners_statement(owners))
    yield from _line_on_overlaps_left_out(len(long_enough), "owners", "ownership_overlaps")
    for processing in summary.processing:
        if processing.repeated:
            yield repeated_text(processing)
    if summary.commit_errors:
        yield errors_text(summary.commit_errors)


def _line_on_overlaps_left_out(number: int, what: str, table: str) -> Iterator[str]:
    """Yield a line about the overlaps that were not printed, if there are any.

    - `number`: the number of all overlaps.
    - `what`: the word for the things that overlap, such as "owners".
    - `table`: the table that has all overlaps.
    """
    if number > _MAX_OVERLAPS:
        yield f"and {number - _MAX_OVERLAPS} more times with two {what} at once: table {table}"


def _statement_lines(statement: Statement) -> Iterator[str]:
    """Yield the headline of a statement, and below it the details, indented."""
    yield statement.headline
    yield from (f"  {line}" for line in statement.particulars)
