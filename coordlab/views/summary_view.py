"""The closing summary of a run on a terminal: verdict, faults, phases of both chains, gaps.

After a fault, the recovery of a cluster has phases (lengths of time), which form two chains. The
broker chain ends when the new coordinator (the broker that manages a group's members) serves. The
client chain ends when the new coordinator has accepted the member. A gap is a time in which a
member, a partition or a group had no service. A phase or a gap is called a measure; it has a
distribution over members, partitions or groups.
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
"""Up to this number of faults, each fault has tables of its own. If there are more faults, each has
one line."""
_MAX_FAULTS_LISTED = 20
"""Limit of the faults that have a line."""
MAX_BLOCKS = 6
"""Limit of the printed pairs of coordinators, and of owners, that overlapped. Spark's tables have
all of them."""
_NARROW = 60
"""Least width of a terminal for all columns of a table of phases. A narrower terminal has only the
columns _NARROW_CELLS."""
_NARROW_FAULTS = 75
"""Least width of a terminal for the table of many faults. A narrower terminal has a line for each
fault."""
_NARROW_CELLS = ("p50", "max")
"""Columns of a table of phases on a narrow terminal."""
_FAULT_COLUMNS = {
    "detect": "detect",
    "notice": "notice",
    "no coord.": "no coordinator",
    "commit gap": "commit gap",
}
"""Headings of the table of many faults, and the measures in it."""
_GAPS = ("commit gap", "processing gap")
"""Measures of gaps. One gap can last through several faults; each of them then has this gap."""
_SUBJECTS = {"member": "per member", "partition": "per partition", "group": "per group"}
"""Texts for the kinds of subjects over which a measure is distributed."""


def print_summary(
    console: Console, manifest: Manifest, results: Results, phases: RunSummary | None
) -> None:
    """Print the whole summary.

    `phases`: the summary of the trace (the run's recorded events), which has the phases and all
    other figures. None: the trace has not been summed up yet.
    """
    print_verdict(console, manifest, results, phases)
    print_figures(console, manifest, results, phases)


def print_verdict(
    console: Console, manifest: Manifest, results: Results, phases: RunSummary | None
) -> None:
    """Print the verdict of the run and the outcomes of its faults.

    If the run passed and `phases` is not None, the verdict's line also lists caveats. A caveat is
    an effect that clients felt although no promise was violated.
    """
    console.print()
    _print_verdict(console, manifest, results, caveats_of(phases))
    _print_faults(console, results.faults)


def print_figures(
    console: Console, manifest: Manifest, results: Results, phases: RunSummary | None
) -> None:
    """Print the phases and outcomes, if `phases` is not None, and then the checks."""
    if phases is not None:
        print_phases(console, phases)
        # A deploy is the replacement of the members of a group, one after another.
        deploys = deploys_of(results.faults, phases.felt)
        print_lines(console, map(deploy_text, deploys))
        print_notes(console, _notes(manifest))
    print_checks(console, results.checks)


def print_notes(console: Console, notes: Sequence[str]) -> None:
    """Print the notes: facts that a reader of the figures must know about the experiment."""
    print_lines(console, (f"note: {note}" for note in notes), style="cyan")


def _notes(manifest: Manifest) -> tuple[str, ...]:
    """Return the notes on the run's experiment; none if this version cannot read it."""
    try:
        return notes_of(experiment_of(manifest))
    except msgspec.ValidationError:
        # Another version of coordlab wrote the experiment.
        return ()


def print_phases(console: Console, summary: RunSummary) -> None:
    """Print the phases and outcomes of each fault, then the figures of the whole run."""
    if len(summary.faults) > _MAX_FAULTS_IN_FULL:
        _print_fault_table(console, summary.faults)
    # If there are few faults, each is printed in full. If there are many, the table above has their
    # figures, and only their rebalances are printed here.
    for fault in summary.faults[:_MAX_FAULTS_LISTED]:
        if len(summary.faults) <= _MAX_FAULTS_IN_FULL:
            _print_phases_of(console, fault)
        elif fault.rebalances:
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
    for reason, count in summary.bad_rows:
        console.print(Text(f"{count} rows were set aside: {reason}", style="yellow"))
    for file in summary.unreadable:
        console.print(Text(f"set aside: {file}", style="yellow"))


def _print_phases_of(console: Console, fault: FaultSummary) -> None:
    """Print the phases after a fault, then what members and groups did."""
    console.print()
    console.print(
        Text(f"{fault.fault}", style="bold").append(
            f"  {fault.node or 'no node'} at {clock_seconds(fault.injected_us)}", style=""
        )
    )
    narrow = console.width < _NARROW
    # There is a third chain, "gap". `_print_felt` prints it, with the other effects on clients.
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
    """Print one line per fault with its longest phases and gaps."""
    console.print()
    if console.width < _NARROW_FAULTS:
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

    It tells the reader not to add up the gaps of these faults.
    """
    for measure in _GAPS:
        later_by_first: dict[str, list[str]] = {}
        for fault, first in same_gaps(faults, measure).items():
            later_by_first.setdefault(first, []).append(fault)
        for first, later in later_by_first.items():
            yield f"the {measure} after {listed(later)} is the one after {first}"


def _fault_line(fault: FaultSummary) -> str:
    """Return one line for a row of the table of faults, for a narrow terminal."""
    measured = {name: fault.distribution(name) for name in _FAULT_COLUMNS.values()}
    texts = [
        f"{name} {figures.longest_text}"
        for name, figures in measured.items()
        if figures is not None
    ]
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
        measured = [fault.distribution(measure) for measure in _FAULT_COLUMNS.values()]
        table.add_row(
            clock_seconds(fault.injected_us),
            fault.node or "-",
            *("" if figures is None else figures.longest_text for figures in measured),
            str(fault.rebalance_count),
            f"{fault.members_kept}/{fault.members}" if fault.members else "",
        )
    return table


def _phase_table(fault: FaultSummary, chain: Chain, heading: str, *, narrow: bool) -> Group:
    """Return the figures of one chain under a heading, without empty columns.

    A row of `fault.rows` begins with the name of a measure; a cell for each column of HEADER
    follows. The name ends with MARK if a machine was away by accident (lost or silent without a
    planned fault) in that time, which disturbs the figure.
    """
    rows = fault.rows(chain)
    # A text such as ", per member" for each measure that is distributed over subjects.
    subjects = {
        measure.name: f", {_SUBJECTS[measure.subject_kind]}"
        for measure, _ in fault.measures
        if measure.subject_kind is not None
    }
    shown_places = [
        place
        for place, column in enumerate(HEADER)
        # + 1, because a row begins with its name.
        if any(row[place + 1] for row in rows) and (not narrow or column in _NARROW_CELLS)
    ]
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("", no_wrap=True)
    for place in shown_places:
        table.add_column(HEADER[place], justify="right")
    for name, *cells in rows:
        # The kind of subject is inserted between the name and its MARK.
        measure = name.removesuffix(MARK)
        mark = MARK if name.endswith(MARK) else ""
        label = f"{measure}{subjects.get(measure, '')}{mark}"
        table.add_row(label, *(cells[place] for place in shown_places))
    return Group(Text(heading, style="underline"), table)


def _print_felt(console: Console, summary: RunSummary) -> None:
    """Print the effects that clients felt: after each fault, and over the whole run.

    With more than _MAX_FAULTS_IN_FULL faults, `_print_fault_table` has already printed the effects
    after each fault.
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
    headings = [heading for heading in wanted if any(cells[heading] for _, cells in rows)]
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
    # A partition counts as missing if its lag did not become usual again.
    if lag is not None and lag.missing:
        late = counted(lag.missing, "partition")
        print_lines(console, [f"{late} had not come back to the usual lag when the run ended"])
    shown = list(felt.groups.items())[:MAX_BLOCKS]
    print_lines(console, (felt_text(group, counts) for group, counts in shown))
    if len(felt.groups) > len(shown):
        more = len(felt.groups) - len(shown)
        print_lines(console, [f"and {more} more groups: table felt_groups"])


def verdict_text(results: Results) -> Text:
    """Return one or two words on how a run ended: its verdict, if it was completed."""
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
    """Print the verdict with its reasons, and the counts of records and commits."""
    word = verdict_text(results)
    run_text = (
        f"{manifest.experiment} on {manifest.runtime}, seed {manifest.seed}, "
        f"{clock_seconds(results.ended_at_us)} of the run's clock"
    )
    # A caveat restricts the verdict PASS, so the two are printed as one sentence.
    if caveats and results.outcome is RunOutcome.COMPLETED and results.verdict is Verdict.PASS:
        print_lines(console, [pass_text(word.plain, caveats)], style=str(word.style))
        print_lines(console, [run_text])
    else:
        console.print(Text.assemble(word, f"  {run_text}"), highlight=False, soft_wrap=True)
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
    """Print the outcomes of the faults.

    If there are many faults, print only the outcomes of the first _MAX_FAULTS_LISTED and of later
    ones that failed. The other faults are counted.
    """
    candidates = [
        fault
        for place, fault in enumerate(faults)
        if place < _MAX_FAULTS_LISTED or fault.outcome is FaultOutcome.FAILED
    ]
    # Perhaps every fault has failed, so the number of these needs a limit too.
    shown = candidates[: 2 * _MAX_FAULTS_LISTED]
    for fault in shown:
        _print_fault(console, fault)
    hidden = len(faults) - len(shown)
    if hidden > 0:
        outcomes = Counter(fault.outcome.value for fault in faults)
        counts = ", ".join(f"{count:,} {outcome}" for outcome, count in outcomes.items())
        line = f"and {hidden:,} more faults: journal.json; of all {len(faults):,}: {counts}"
        print_lines(console, [line])


def _print_fault(console: Console, fault: JournalEntry) -> None:
    """Print the outcome of a fault, and its blast radius: the groups and partitions it touched."""
    print_lines(console, [f"{fault.fault} {fault.target}: {_outcome_text(fault)}"])
    radius = fault.blast_radius
    if radius.groups or radius.partitions:
        groups, partitions = listed(radius.groups) or "none", listed(radius.partitions) or "none"
        line = f"  blast radius: groups {groups}; partitions {partitions}"
        print_lines(console, [line], style="dim")


def _outcome_text(fault: JournalEntry) -> str:
    """Return what became of a fault: never injected, hit nothing, failed, or hit a node."""
    match fault.outcome:
        case FaultOutcome.PLANNED:
            return "never injected"
        case FaultOutcome.MISSED:
            return f"hit nothing at {clock_seconds(fault.fired_at_us)}: {fault.error}"
        case FaultOutcome.FAILED:
            return f"failed at {clock_seconds(fault.fired_at_us)}: {fault.error}"
        case FaultOutcome.HIT:
            # A node in virtual time has no process.
            pid = "" if fault.pid is None else f" (pid {fault.pid})"
            healed = ""
            if fault.healed_at_us is not None:
                healed = f", healed at {clock_seconds(fault.healed_at_us)}"
            if fault.note is not None:
                healed += f": {fault.note}"
            return f"hit {fault.hit}{pid} at {clock_seconds(fault.fired_at_us)}{healed}"


def fault_rebalance_lines(fault: FaultSummary) -> Iterator[str]:
    """Yield lines on the rebalances after a fault, and on members without a rebalance.

    The last line has the number of members that kept their id and generation. The generation of a
    group grows with each rebalance.
    """
    if not fault.rebalances:
        yield "no rebalance"
    for rebalances in fault.rebalances:
        yield from _statement_lines(rebalances_statement(rebalances, fault))
    kept = kept_text(fault)
    if kept is not None:
        yield kept


def outcome_lines(summary: RunSummary) -> Iterator[str]:
    """Yield lines on overlaps of coordinators and of owners, repeated records and failed commits.

    An overlap is a time in which a group had two coordinators, or a partition two owners.
    """
    for coordinators in summary.coordinators[:MAX_BLOCKS]:
        yield from _statement_lines(coordinators_statement(coordinators))
    yield from _left_out(len(summary.coordinators), "coordinators", "tenure_overlaps")
    # An overlap that is shorter than the error of the machines' clocks may not have happened.
    long_enough = [
        owners for owners in summary.owners if owners.longest_us >= summary.clock_error_us
    ]
    for owners in long_enough[:MAX_BLOCKS]:
        yield from _statement_lines(owners_statement(owners))
    yield from _left_out(len(long_enough), "owners", "ownership_overlaps")
    for processing in summary.processing:
        if processing.repeated:
            yield repeated_text(processing)
    if summary.commit_errors:
        yield errors_text(summary.commit_errors)


def _left_out(number: int, what: str, table: str) -> Iterator[str]:
    """Yield a line with the number of overlaps that were not printed, if there are any.

    `number`: how many overlaps there are. `table`: the name of the table that has all of them.
    """
    if number > MAX_BLOCKS:
        yield f"and {number - MAX_BLOCKS} more times with two {what} at once: table {table}"


def _statement_lines(statement: Statement) -> Iterator[str]:
    """Yield the headline of a statement, then its details, indented."""
    yield statement.headline
    yield from (f"  {line}" for line in statement.particulars)
