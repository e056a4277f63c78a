"""Makes the structs of the module `outcomes` from aggregates.

An aggregate is a small table about all analysed runs. `owner_sets`, for example, has a row for each
time in which members of one coordinator owned the same partitions as members of another
coordinator. The aggregates are computed with Spark from the tables of many runs
(`spark_aggregates`), or in plain Python from the trace of one run (`trace_aggregates`). Each public
function here gets all aggregates, picks the one that it needs, and returns a dict from each run or
fault to its structs.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from pipeline.summary.outcomes import (
    CommitErrors,
    Coordinators,
    GroupProcessing,
    OverlappingTenure,
    Owners,
    Rebalances,
    in_number_order,
)

AggregateRow = Mapping[str, Any]  # from a column to its value, whose type depends on the column
Aggregates = Mapping[str, Sequence[AggregateRow]]
"""The rows of each aggregate, by its name."""
LINEAGES = ("first_coordinator", "first_epoch", "second_coordinator", "second_epoch")
"""Columns of the aggregate `owner_sets`: the coordinator that assigned the partitions to their
first owners, and its leader epoch; then the same about the second owners.
"""
FaultKey = tuple[str, str]
"""The names of a run and of one of its faults."""
ONE_BY_ONE_MAX = 3
"""Maximum number of rebalances of a kind that get a row each. After a fault, a coordinator can
begin several rebalances of a group for the same reason, such as three expired sessions. The
aggregate `rebalances_by_kind` then has a row for each rebalance. If there are more than this
number, they share one row with their count. Otherwise a text could tell the same thing forty times.
"""


def rebalances_after(aggregates: Aggregates) -> dict[FaultKey, tuple[Rebalances, ...]]:
    """Return the rebalances after each fault, in time order."""
    injected_us = {
        (row["run"], row["fault"]): row["injected_us"] for row in aggregates["known_faults"]
    }
    order = ("run", "fault", "first_us", "group", "broker", "leader_epoch", "reason")
    rebalances_by_fault: dict[FaultKey, list[Rebalances]] = {}
    for row in _sorted_by(aggregates["rebalances_by_kind"], *order):
        fault = (row["run"], row["fault"])
        rebalances_by_fault.setdefault(fault, []).append(_rebalances(row, injected_us[fault]))
    return {fault: tuple(rebalances) for fault, rebalances in rebalances_by_fault.items()}


def _rebalances(row: AggregateRow, injected_us: int) -> Rebalances:
    """Return the rebalances of one row; `injected_us` is when their fault was injected."""
    return Rebalances(
        group=row["group"],
        broker=row["broker"],
        leader_epoch=row["leader_epoch"],
        reason=row["reason"],
        count=row["count"],
        consumers=in_number_order(row["consumers"]),
        removed=in_number_order(row["removed"]),
        removed_because=tuple(row["removed_because"]),
        added=in_number_order(row["added"]),
        generations=(row["first_generation"], row["last_generation"]),
        not_stored=row["not_stored"],
        store_errors=tuple(row["store_errors"]),
        first_us=row["first_us"],
        last_us=row["last_us"],
        after_us=row["first_us"] - injected_us,
        longest_us=row["longest_us"],
    )


def coordinators_at_once(aggregates: Aggregates) -> dict[str, tuple[Coordinators, ...]]:
    """Return, for each run, the times in which a group had two coordinators, in time order."""
    order = ("run", "from_us", "partition", "older_epoch", "newer_epoch")
    pairs_by_run: dict[str, list[Coordinators]] = {}
    for row in _sorted_by(aggregates["coordinator_pairs"], *order):
        pairs_by_run.setdefault(row["run"], []).append(
            Coordinators(
                groups=tuple(row["groups"]),
                partition=row["partition"],
                older=_overlapping_tenure(row, "older"),
                newer=_overlapping_tenure(row, "newer"),
                from_us=row["from_us"],
                to_us=row["to_us"],
                older_end=row["older_end"],
                older_paused_us=row["older_paused_us"],
                older_cut_us=row["older_cut_us"],
                older_last_commit_us=row["older_last_commit_us"],
                newer_first_commit_us=row["newer_first_commit_us"],
            )
        )
    return {run: tuple(pairs) for run, pairs in pairs_by_run.items()}


def _overlapping_tenure(row: AggregateRow, side: str) -> OverlappingTenure:
    """Return the tenure of one of the two coordinators of a row; `side` is "older" or "newer"."""
    return OverlappingTenure(
        broker=row[f"{side}_broker"],
        leader_epoch=row[f"{side}_epoch"],
        heartbeats=row[f"{side}_heartbeats"],
        commits=row[f"{side}_commits"],
        commits_in_all=row[f"{side}_commits_in_all"],
    )


def owners_at_once(aggregates: Aggregates) -> dict[str, tuple[Owners, ...]]:
    """Return, for each run, the times in which partitions had two owners, in time order."""
    owners_by_run: dict[str, list[Owners]] = {}
    for row in _sorted_by(aggregates["owner_sets"], "run", "from_us", "group", *LINEAGES):
        owners_by_run.setdefault(row["run"], []).append(
            Owners(
                group=row["group"],
                partitions=row["partitions"],
                first_coordinator=(row["first_coordinator"], row["first_epoch"]),
                first_consumers=in_number_order(row["first_consumers"]),
                second_coordinator=(row["second_coordinator"], row["second_epoch"]),
                second_consumers=in_number_order(row["second_consumers"]),
                from_us=row["from_us"],
                to_us=row["to_us"],
                longest_us=row["longest_us"],
                records_both=row["records_both"],
                healed_us=row["healed_us"],
            )
        )
    return {run: tuple(owners) for run, owners in owners_by_run.items()}


def processing_of_groups(aggregates: Aggregates) -> dict[str, tuple[GroupProcessing, ...]]:
    """Return, for each run, how many records its groups processed; groups are sorted by name."""
    groups_by_run: dict[str, list[GroupProcessing]] = {}
    for row in _sorted_by(aggregates["processed"], "run", "group"):
        groups_by_run.setdefault(row["run"], []).append(
            GroupProcessing(group=row["group"], records=row["records"], repeated=row["repeated"])
        )
    return {run: tuple(groups) for run, groups in groups_by_run.items()}


def commit_errors_by_run(aggregates: Aggregates) -> dict[str, tuple[CommitErrors, ...]]:
    """Return, for each run, the errors of commits after its first fault, most frequent first."""
    errors_by_run: dict[str, list[CommitErrors]] = {}
    for row in sorted(aggregates["commit_errors"], key=lambda row: (-row["commits"], row["error"])):
        errors_by_run.setdefault(row["run"], []).append(
            CommitErrors(error=row["error"], commits=row["commits"], members=row["members"])
        )
    return {run: tuple(errors) for run, errors in errors_by_run.items()}


def _sorted_by(rows: Sequence[AggregateRow], *columns: str) -> list[AggregateRow]:
    """Sort rows by columns. A null comes before all values, as when Spark sorts."""
    return sorted(rows, key=lambda row: tuple(_nulls_first(row[column]) for column in columns))


def _nulls_first(value: str | int | None) -> tuple[bool, str | int]:
    """Return a sort key: a pair that is lower for None than for any value."""
    if value is None:
        # The 0 is never compared with a text, because False already differs from True.
        return False, 0
    return True, value
