"""Turns aggregates into one summary for each run.

An aggregate is a small table about all analysed runs. `member_counts`, for example, tells for each
run and fault how many members noticed the fault by which error. The aggregates are computed with
Spark (`spark_aggregates`) or in plain Python (`trace_aggregates`). From them, `summarize_runs`
makes a RunSummary of each run. The command line prints the summary, and the report shows it.

A machine can be lost or fall silent by accident while a run goes on (a disturbance). The figures of
this time then show the accident, and not Kafka. So this module marks a figure as disturbed if a
machine was away while the figure was measured.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from pipeline.engine.run_files import RunFiles
from pipeline.summary.disturbances import Disturbance, disturbances_of, is_disturbed
from pipeline.summary.felt import Felt, felt_by_run
from pipeline.summary.figures import (
    MEASURES,
    PERCENTS,
    Distribution,
    FaultSummary,
    RunSummary,
)
from pipeline.summary.outcome_summary import (
    AggregateRow,
    Aggregates,
    FaultKey,
    commit_errors_by_run,
    coordinators_at_once,
    owners_at_once,
    processing_of_groups,
    rebalances_after,
)
from pipeline.summary.outcomes import Coordinators, Owners, Rebalances

_TwoAtOnce = TypeVar("_TwoAtOnce", Coordinators, Owners)
"""Two coordinators of a group at the same time, or two owners of partitions at the same time."""


def summarize_runs(
    aggregates: Aggregates, runs: Sequence[RunFiles], clock_errors_us: Mapping[str, int]
) -> tuple[RunSummary, ...]:
    """Return the summary of each of `runs`, in their order, from the aggregates of all of them.

    `clock_errors_us` tells for each run how far the clocks of its machines were apart. The
    disturbances are read from the journals in the runs' directories.
    """
    bad_rows_by_run: dict[str, dict[str, int]] = {}
    for row in aggregates["bad_row_counts"]:
        bad_rows_by_run.setdefault(row["run"], {})[row["reason"]] = row["count"]
    # A run without events has no row in this aggregate.
    run_rows = {row["run"]: row for row in aggregates["known_runs"]}
    disturbances = {files.run: disturbances_of(files.directory) for files in runs}

    # Each of these is a dict with the name of the run as its key.
    faults = _faults_by_run(aggregates, clock_errors_us, disturbances)
    coordinators = coordinators_at_once(aggregates)
    owners = owners_at_once(aggregates)
    processing = processing_of_groups(aggregates)
    commit_errors = commit_errors_by_run(aggregates)
    felt = felt_by_run(aggregates)

    return tuple(
        RunSummary(
            run=files.run,
            directory=files.directory,
            events=run_rows[files.run]["events"] if files.run in run_rows else 0,
            completed=files.run in run_rows and run_rows[files.run]["completed"],
            clock_error_us=clock_errors_us[files.run],
            bad_rows=tuple(sorted(bad_rows_by_run.get(files.run, {}).items())),
            unreadable=files.unreadable,
            faults=tuple(faults.get(files.run, ())),
            coordinators=_marked(coordinators.get(files.run, ()), disturbances[files.run]),
            owners=_marked(owners.get(files.run, ()), disturbances[files.run]),
            processing=processing.get(files.run, ()),
            commit_errors=commit_errors.get(files.run, ()),
            felt=_marked_felt(
                felt.get(files.run), disturbances[files.run], run_rows.get(files.run)
            ),
            disturbances=disturbances[files.run],
        )
        for files in runs
    )


def _marked(
    pairs: Sequence[_TwoAtOnce], disturbances: Sequence[Disturbance]
) -> tuple[_TwoAtOnce, ...]:
    """Return the same pairs, each marked as disturbed if a machine was away in its time."""
    return tuple(
        replace(pair, disturbed=is_disturbed(disturbances, pair.from_us, pair.to_us))
        for pair in pairs
    )


def _marked_felt(
    felt: Felt | None, disturbances: Sequence[Disturbance], run_row: AggregateRow | None
) -> Felt | None:
    """Return the felt figures, marked as disturbed if a machine was away in their time.

    Felt figures cover the time from the moment at which the groups had all their members and
    partitions (`steady_us`) to the end of the run. In a run in which this moment never came, they
    cover the whole run.
    """
    if felt is None or run_row is None:
        return felt
    from_us = 0 if run_row["steady_us"] is None else run_row["steady_us"]
    return replace(felt, disturbed=is_disturbed(disturbances, from_us, until_us=None))


def _faults_by_run(
    aggregates: Aggregates,
    clock_errors_us: Mapping[str, int],
    disturbances: Mapping[str, Sequence[Disturbance]],
) -> dict[str, list[FaultSummary]]:
    """Return each run's faults in time order."""
    measures_by_fault = _measures_by_fault(
        aggregates["known_figures"], clock_errors_us, disturbances
    )
    rebalances_by_fault = rebalances_after(aggregates)
    moved_by_fault = {
        (row["run"], row["fault"]): row["moved"] for row in aggregates["moved_partitions"]
    }
    # Each row of this aggregate counts members that noticed a fault in the same way. For example,
    # one row is about 4 members that noticed it by NOT_COORDINATOR, and the next row is about 2
    # members that noticed it by REQUEST_TIMED_OUT.
    member_counts_by_fault: dict[FaultKey, list[AggregateRow]] = {}
    for row in aggregates["member_counts"]:
        member_counts_by_fault.setdefault((row["run"], row["fault"]), []).append(row)

    in_order = sorted(
        aggregates["known_faults"], key=lambda row: (row["run"], row["injected_us"], row["fault"])
    )
    summaries: dict[str, list[FaultSummary]] = {}
    for row in in_order:
        fault = (row["run"], row["fault"])
        measures = measures_by_fault.get(fault, {})
        member_counts = member_counts_by_fault.get(fault, ())
        summary = FaultSummary(
            fault=row["fault"],
            kind=row["kind"],
            target=row["target"],
            node=row["node"],
            injected_us=row["injected_us"],
            healed_us=row["healed_us"],
            partitions_moved=moved_by_fault.get(fault, 0),
            members=_sum(member_counts, "members"),
            members_kept=_sum(member_counts, "kept"),
            members_kept_id=_sum(member_counts, "kept_id"),
            measures=tuple(
                (measure, measures[measure.name])
                for measure in MEASURES
                if measure.name in measures
            ),
            noticed_by=_members_by_cause(member_counts),
            left_after=_members_by_timeouts(member_counts),
            told_by_old=_sum(member_counts, "told"),
            rebalances=tuple(
                _marked_rebalances(rebalances, disturbances[row["run"]])
                for rebalances in rebalances_by_fault.get(fault, ())
            ),
        )
        summaries.setdefault(row["run"], []).append(summary)
    return summaries


def _sum(member_counts: Sequence[AggregateRow], column: str) -> int:
    """Return the sum of a column over the rows of one fault."""
    return sum(row[column] for row in member_counts)


def _members_by_cause(member_counts: Sequence[AggregateRow]) -> tuple[tuple[str, int], ...]:
    """Return how many members noticed a fault by each cause, the most frequent cause first.

    Example: `(("NOT_COORDINATOR", 4), ("REQUEST_TIMED_OUT", 2))`. Members that kept their
    coordinator noticed nothing, and are not counted.
    """
    members_by_cause: dict[str, int] = {}
    for row in member_counts:
        cause = row["noticed_by"]
        if cause is not None:
            members_by_cause[cause] = members_by_cause.get(cause, 0) + row["members"]
    return tuple(sorted(members_by_cause.items(), key=_most_members_first))


def _most_members_first(cause_and_members: tuple[str, int]) -> tuple[int, str]:
    """Return a sort key: the greatest number of members is first, then causes are in name order."""
    cause, members = cause_and_members
    return -members, cause


def _members_by_timeouts(member_counts: Sequence[AggregateRow]) -> tuple[tuple[int, int], ...]:
    """Return after how many timed-out commits the members left their old coordinator.

    Example: `((1, 5), (2, 3))`. 5 members left it after one commit that timed out there, and 3
    members left it after two.
    """
    members_by_timeouts: dict[int, int] = {}
    for row in member_counts:
        timeouts = row["timeouts"]
        # `timeouts` is None for members that kept their coordinator, and 0 for members that left it
        # although no commit had timed out. Both are not counted.
        if timeouts:
            members_by_timeouts[timeouts] = members_by_timeouts.get(timeouts, 0) + row["members"]
    return tuple(sorted(members_by_timeouts.items()))


def _marked_rebalances(rebalances: Rebalances, disturbances: Sequence[Disturbance]) -> Rebalances:
    """Return the rebalances, marked as disturbed if a machine was away while they went on."""
    until_us = None
    if rebalances.longest_us is not None:  # None if no rebalance came to its end
        # The last rebalance began at `last_us`. Its length is not known here, but the longest
        # rebalance is at least as long.
        until_us = rebalances.last_us + rebalances.longest_us
    disturbed = is_disturbed(disturbances, rebalances.first_us, until_us)
    return replace(rebalances, disturbed=disturbed)


def _measures_by_fault(
    figures: Sequence[AggregateRow],
    clock_errors_us: Mapping[str, int],
    disturbances: Mapping[str, Sequence[Disturbance]],
) -> dict[FaultKey, dict[str, Distribution]]:
    """Return the measures of each fault, by the measure's name such as `commit gap`."""
    measured_by_two_clocks = {measure.name for measure in MEASURES if measure.across_nodes}
    by_fault: dict[FaultKey, dict[str, Distribution]] = {}
    for row in figures:
        # The clocks of two nodes can differ, so a time that they measured together has an error. A
        # time that begins and ends on the same clock has no such error.
        bound_us = 0
        if row["measure"] in measured_by_two_clocks:
            bound_us = clock_errors_us[row["run"]]
        measures = by_fault.setdefault((row["run"], row["fault"]), {})
        disturbed = is_disturbed(disturbances[row["run"]], row["from_us"], row["to_us"])
        measures[row["measure"]] = _distribution(row, bound_us, disturbed=disturbed)
    return by_fault


def _distribution(row: AggregateRow, bound_us: int, *, disturbed: bool) -> Distribution:
    """Return the measure of one row.

    `bound_us` is how far the clocks that measured the values were apart. A percentile for which
    there are too few samples is None in the row, and is left out.
    """
    percentiles = {percent: row[f"p{percent}"] for percent in PERCENTS}
    return Distribution(
        samples=row["samples"],
        missing=row["missing"],
        percentiles={percent: value for percent, value in percentiles.items() if value is not None},
        maximum=row["max"],
        bound_us=bound_us,
        disturbed=disturbed,
    )
