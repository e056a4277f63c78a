"""Turns aggregates into one summary for each run.

An aggregate is a table of few rows over all runs. Spark (`spark_aggregates`) or plain Python
(`trace_aggregates`) computes it. The summary of a run has, for each fault, percentiles of phases
and gaps, and counts of members.

A disturbance is a time in which a machine did not answer although no fault was injected into it. A
run is in its steady state when its groups have all their members and partitions. Felt figures are
about effects that users of a group notice, such as records that wait.
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

_Pair = TypeVar("_Pair", Coordinators, Owners)
"""Two coordinators of a group at the same time, or two owners of partitions at the same time."""


def summarize_runs(
    aggregates: Aggregates, runs: Sequence[RunFiles], clock_errors_us: Mapping[str, int]
) -> tuple[RunSummary, ...]:
    """Return the summary of each of `runs`, in their order, from the aggregates of all of them.

    A figure is marked as disturbed if its time contains a part of a disturbance. The run's journal
    has the disturbances.
    """
    bad_by_run: dict[str, dict[str, int]] = {}
    for row in aggregates["bad_row_counts"]:
        bad_by_run.setdefault(row["run"], {})[row["reason"]] = row["count"]
    # A run without events has no row here.
    run_rows = {row["run"]: row for row in aggregates["known_runs"]}
    disturbances = {files.run: disturbances_of(files.directory) for files in runs}

    faults = _faults(aggregates, clock_errors_us, disturbances)
    coordinators = coordinators_at_once(aggregates)
    owners = owners_at_once(aggregates)
    processed = processing_of_groups(aggregates)
    errors = commit_errors_by_run(aggregates)
    felt = felt_by_run(aggregates)

    return tuple(
        RunSummary(
            run=files.run,
            directory=files.directory,
            events=run_rows[files.run]["events"] if files.run in run_rows else 0,
            completed=files.run in run_rows and run_rows[files.run]["completed"],
            clock_error_us=clock_errors_us[files.run],
            bad_rows=tuple(sorted(bad_by_run.get(files.run, {}).items())),
            unreadable=files.unreadable,
            faults=tuple(faults.get(files.run, ())),
            coordinators=_marked(coordinators.get(files.run, ()), disturbances[files.run]),
            owners=_marked(owners.get(files.run, ()), disturbances[files.run]),
            processing=processed.get(files.run, ()),
            commit_errors=errors.get(files.run, ()),
            felt=_felt(felt.get(files.run), disturbances[files.run], run_rows.get(files.run)),
            disturbances=disturbances[files.run],
        )
        for files in runs
    )


def _marked(pairs: Sequence[_Pair], disturbances: Sequence[Disturbance]) -> tuple[_Pair, ...]:
    """Return pairs of coordinators or of owners. A pair is marked if its time is disturbed."""
    return tuple(
        replace(pair, disturbed=is_disturbed(disturbances, pair.from_us, pair.to_us))
        for pair in pairs
    )


def _felt(
    felt: Felt | None, disturbances: Sequence[Disturbance], run: AggregateRow | None
) -> Felt | None:
    """Return the felt figures, marked if a disturbance came after the steady state had begun."""
    if felt is None or run is None:
        return felt
    # Felt figures cover the time from the steady state to the run's end. In a run that never became
    # steady, they begin with the run (0).
    return replace(felt, disturbed=is_disturbed(disturbances, run["steady_us"] or 0, None))


def _faults(
    aggregates: Aggregates,
    clock_errors_us: Mapping[str, int],
    disturbances: Mapping[str, Sequence[Disturbance]],
) -> dict[str, list[FaultSummary]]:
    """Return each run's faults in time order."""
    measures_by_fault = _distributions(aggregates["known_figures"], clock_errors_us, disturbances)
    rebalances_by_fault = rebalances_after(aggregates)
    moved_by_fault = {
        (row["run"], row["fault"]): row["moved"] for row in aggregates["moved_partitions"]
    }
    counts_by_fault: dict[FaultKey, list[AggregateRow]] = {}
    for row in aggregates["member_counts"]:
        counts_by_fault.setdefault((row["run"], row["fault"]), []).append(row)

    in_order = sorted(
        aggregates["known_faults"], key=lambda row: (row["run"], row["injected_us"], row["fault"])
    )
    summaries: dict[str, list[FaultSummary]] = {}
    for row in in_order:
        key = (row["run"], row["fault"])
        measures = measures_by_fault.get(key, {})
        counts = counts_by_fault.get(key, ())
        summary = FaultSummary(
            fault=row["fault"],
            kind=row["kind"],
            target=row["target"],
            node=row["node"],
            injected_us=row["injected_us"],
            healed_us=row["healed_us"],
            partitions_moved=moved_by_fault.get(key, 0),
            members=_sum(counts, "members"),
            members_kept=_sum(counts, "kept"),
            members_kept_id=_sum(counts, "kept_id"),
            measures=tuple(
                (measure, measures[measure.name])
                for measure in MEASURES
                if measure.name in measures
            ),
            noticed_by=_noticed(counts),
            left_after=_left_after(counts),
            told_by_old=_sum(counts, "told"),
            rebalances=tuple(
                replace(
                    rebalances,
                    disturbed=is_disturbed(
                        disturbances[row["run"]], rebalances.first_us, _until_us(rebalances)
                    ),
                )
                for rebalances in rebalances_by_fault.get(key, ())
            ),
        )
        summaries.setdefault(row["run"], []).append(summary)
    return summaries


def _sum(counts: Sequence[AggregateRow], column: str) -> int:
    """Return the sum of a column over the member counts of a fault."""
    return sum(row[column] for row in counts)


def _noticed(counts: Sequence[AggregateRow]) -> tuple[tuple[str, int], ...]:
    """Return pairs of a cause by which members noticed a fault, and the number of these members.

    The most frequent cause is first.
    """
    members_by_cause: dict[str, int] = {}
    for row in counts:
        cause = row["noticed_by"]
        if cause is not None:
            members_by_cause[cause] = members_by_cause.get(cause, 0) + row["members"]
    return tuple(sorted(members_by_cause.items(), key=lambda entry: (-entry[1], entry[0])))


def _left_after(counts: Sequence[AggregateRow]) -> tuple[tuple[int, int], ...]:
    """Return pairs of a number of timed-out commits, and the number of members that then left."""
    members_by_timeouts: dict[int, int] = {}
    for row in counts:
        timeouts = row["timeouts"]
        if timeouts:  # not None (the member kept its coordinator), not 0 (no commit timed out)
            members_by_timeouts[timeouts] = members_by_timeouts.get(timeouts, 0) + row["members"]
    return tuple(sorted(members_by_timeouts.items()))


def _until_us(rebalances: Rebalances) -> int | None:
    """Return a moment at which all of these rebalances have ended.

    The last rebalance began at `last_us`. Its own length is not known here, but it is at most
    `longest_us`. Returns None if no rebalance ended with a stored assignment.
    """
    return None if rebalances.longest_us is None else rebalances.last_us + rebalances.longest_us


def _distributions(
    figures: Sequence[AggregateRow],
    clock_errors_us: Mapping[str, int],
    disturbances: Mapping[str, Sequence[Disturbance]],
) -> dict[FaultKey, dict[str, Distribution]]:
    """Return each fault's measures by name."""
    across = {measure.name for measure in MEASURES if measure.across_nodes}
    by_fault: dict[FaultKey, dict[str, Distribution]] = {}
    for row in figures:
        # The error of the clocks matters only for a time that two clocks measured.
        bound_us = clock_errors_us[row["run"]] if row["measure"] in across else 0
        measures = by_fault.setdefault((row["run"], row["fault"]), {})
        disturbed = is_disturbed(disturbances[row["run"]], row["from_us"], row["to_us"])
        measures[row["measure"]] = _distribution(row, bound_us, disturbed=disturbed)
    return by_fault


def _distribution(row: AggregateRow, bound_us: int, *, disturbed: bool) -> Distribution:
    """Return a measure as a Distribution.

    `bound_us` is the error of the clocks. A percentile with too few samples is left out.
    """
    values = {percent: row[f"p{percent}"] for percent in PERCENTS}
    return Distribution(
        samples=row["samples"],
        missing=row["missing"],
        percentiles={percent: value for percent, value in values.items() if value is not None},
        maximum=row["max"],
        bound_us=bound_us,
        disturbed=disturbed,
    )
