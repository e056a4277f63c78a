"""From aggregates to summaries: each fault's phases and gaps with percentiles, and its members.

Spark (`spark_aggregates`) or plain Python (`trace_aggregates`) computes the aggregates, which are
tables of few rows over all runs. This module turns them into a summary, in the same way for both. A
disturbance is a time in which a machine was away by accident. The steady state of a run is the
state with all groups, members and partitions complete.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

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
from pipeline.summary.outcomes import Rebalances


def summarize_runs(
    aggregates: Aggregates, runs: Sequence[RunFiles], clock_errors_us: Mapping[str, int]
) -> tuple[RunSummary, ...]:
    """Return the summary of each of `runs`, in their order, from the aggregates of all of them.

    A figure is marked if a machine was away in its time, according to the run's journal.
    """
    bad: dict[str, dict[str, int]] = {}
    for row in aggregates["bad_row_counts"]:
        bad.setdefault(row["run"], {})[row["reason"]] = row["count"]
    known = {row["run"]: row for row in aggregates["known_runs"]}
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
            events=known[files.run]["events"] if files.run in known else 0,
            completed=files.run in known and known[files.run]["completed"],
            clock_error_us=clock_errors_us[files.run],
            bad_rows=tuple(sorted(bad.get(files.run, {}).items())),
            unreadable=files.unreadable,
            faults=tuple(faults.get(files.run, ())),
            coordinators=tuple(
                replace(both, disturbed=is_disturbed(away, both.from_us, both.to_us))
                for both in coordinators.get(files.run, ())
            ),
            owners=tuple(
                replace(both, disturbed=is_disturbed(away, both.from_us, both.to_us))
                for both in owners.get(files.run, ())
            ),
            processing=processed.get(files.run, ()),
            commit_errors=errors.get(files.run, ()),
            felt=_felt(felt.get(files.run), away, known.get(files.run)),
            disturbances=away,
        )
        # The second `for` only names the disturbances of the run: `away`.
        for files in runs
        for away in (disturbances[files.run],)
    )


def _felt(
    felt: Felt | None, disturbances: Sequence[Disturbance], run: AggregateRow | None
) -> Felt | None:
    """Return the felt figures, marked if a machine was away after the steady state."""
    if felt is None or run is None:
        return felt
    return replace(felt, disturbed=is_disturbed(disturbances, run["steady_us"] or 0, None))


def _faults(
    aggregates: Aggregates,
    clock_errors_us: Mapping[str, int],
    disturbances: Mapping[str, Sequence[Disturbance]],
) -> dict[str, list[FaultSummary]]:
    """Return each run's faults in time order."""
    measured = _distributions(aggregates["known_figures"], clock_errors_us, disturbances)
    rebalanced = rebalances_after(aggregates)
    moved = {(row["run"], row["fault"]): row["moved"] for row in aggregates["moved_partitions"]}
    members: dict[FaultKey, list[AggregateRow]] = {}
    for row in aggregates["member_counts"]:
        members.setdefault((row["run"], row["fault"]), []).append(row)

    in_order = sorted(
        aggregates["known_faults"], key=lambda row: (row["run"], row["injected_us"], row["fault"])
    )
    summaries: dict[str, list[FaultSummary]] = {}
    for row in in_order:
        key = (row["run"], row["fault"])
        measures = measured.get(key, {})
        counts = members.get(key, ())
        away = disturbances[row["run"]]
        summary = FaultSummary(
            fault=row["fault"],
            kind=row["kind"],
            target=row["target"],
            node=row["node"],
            injected_us=row["injected_us"],
            healed_us=row["healed_us"],
            partitions_moved=moved.get(key, 0),
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
                    disturbed=is_disturbed(away, rebalances.first_us, _until_us(rebalances)),
                )
                for rebalances in rebalanced.get(key, ())
            ),
        )
        summaries.setdefault(row["run"], []).append(summary)
    return summaries


def _sum(counts: Sequence[AggregateRow], column: str) -> int:
    return sum(row[column] for row in counts)


def _noticed(counts: Sequence[AggregateRow]) -> tuple[tuple[str, int], ...]:
    """Return the causes by which members noticed a fault, the most frequent first, with numbers."""
    members: dict[str, int] = {}
    for row in counts:
        cause = row["noticed_by"]
        if cause is not None:
            members[cause] = members.get(cause, 0) + row["members"]
    return tuple(sorted(members.items(), key=lambda entry: (-entry[1], entry[0])))


def _left_after(counts: Sequence[AggregateRow]) -> tuple[tuple[int, int], ...]:
    """Return pairs: a number of commits that timed out, and how many members left after them."""
    members: dict[int, int] = {}
    for row in counts:
        timeouts = row["timeouts"]
        if timeouts:
            members[timeouts] = members.get(timeouts, 0) + row["members"]
    return tuple(sorted(members.items()))


def _until_us(rebalances: Rebalances) -> int | None:
    """Return the latest moment at which the last of these rebalances can have been stable.

    This is the start of the last rebalance plus the length of the longest one. Returns None if no
    rebalance had a stored assignment.
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
        # The error between two clocks matters only for a time that two clocks measured.
        bound_us = clock_errors_us[row["run"]] if row["measure"] in across else 0
        measures = by_fault.setdefault((row["run"], row["fault"]), {})
        disturbed = is_disturbed(disturbances[row["run"]], row["from_us"], row["to_us"])
        measures[row["measure"]] = _distribution(row, bound_us, disturbed=disturbed)
    return by_fault


def _distribution(row: AggregateRow, bound_us: int, *, disturbed: bool) -> Distribution:
    """Return a measure as a Distribution; a percentile with too few samples is left out."""
    given = {percent: row[f"p{percent}"] for percent in PERCENTS}
    return Distribution(
        samples=row["samples"],
        missing=row["missing"],
        percentiles={percent: value for percent, value in given.items() if value is not None},
        maximum=row["max"],
        bound_us=bound_us,
        disturbed=disturbed,
    )
