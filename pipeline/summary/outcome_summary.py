"""Makes the structs of the module `outcomes` from aggregates.

An aggregate is a small table about all analysed runs, such as the rebalances of each kind after
each fault. Spark computes it from the tables of many runs (`spark_aggregates`), or Python from the
trace of one (`trace_aggregates`). Each function here takes all aggregates by name, and returns one
kind of outcome, by run or by fault.
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

AggregateRow = Mapping[str, Any]  # Any: a cell's type is its column's
Aggregates = Mapping[str, Sequence[AggregateRow]]
"""The rows of each aggregate, by its name."""
LINEAGES = ("first_coordinator", "first_epoch", "second_coordinator", "second_epoch")
"""Columns of the aggregate `owner_sets`. They tell by whom the first owners of partitions, and the
second owners of the same partitions, were assigned them: the coordinator and its leader epoch.
"""
FaultKey = tuple[str, str]
"""Run and fault."""
ONE_BY_ONE_MAX = 3
"""The aggregate `rebalances_by_kind` has a row for each rebalance, if a group had at most so many
of one kind after a fault. More of a kind share one row.
"""


def rebalances_after(aggregates: Aggregates) -> dict[FaultKey, tuple[Rebalances, ...]]:
    """Return the rebalances after each fault, in time order."""
    injected = {
        (row["run"], row["fault"]): row["injected_us"] for row in aggregates["known_faults"]
    }
    order = ("run", "fault", "first_us", "group", "broker", "leader_epoch", "reason")
    after: dict[FaultKey, list[Rebalances]] = {}
    for row in _in_order(aggregates["rebalances_by_kind"], *order):
        key = (row["run"], row["fault"])
        after.setdefault(key, []).append(_rebalances(row, injected[key]))
    return {key: tuple(values) for key, values in after.items()}


def _rebalances(row: AggregateRow, injected_us: int) -> Rebalances:
    """Return the rebalances of one row; `injected_us` is the moment of their fault."""
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
    """Return each run's pairs of coordinators that served a group together, in time order."""
    order = ("run", "from_us", "partition", "older_epoch", "newer_epoch")
    pairs: dict[str, list[Coordinators]] = {}
    for row in _in_order(aggregates["coordinator_pairs"], *order):
        pairs.setdefault(row["run"], []).append(
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
    return {run: tuple(values) for run, values in pairs.items()}


def _overlapping_tenure(row: AggregateRow, side: str) -> OverlappingTenure:
    """Return one of the two tenures of a row; `side` is "older" or "newer"."""
    return OverlappingTenure(
        broker=row[f"{side}_broker"],
        leader_epoch=row[f"{side}_epoch"],
        heartbeats=row[f"{side}_heartbeats"],
        commits=row[f"{side}_commits"],
        commits_in_all=row[f"{side}_commits_in_all"],
    )


def owners_at_once(aggregates: Aggregates) -> dict[str, tuple[Owners, ...]]:
    """Return the partitions of each run that had two owners at the same time, in time order."""
    owners: dict[str, list[Owners]] = {}
    for row in _in_order(aggregates["owner_sets"], "run", "from_us", "group", *LINEAGES):
        owners.setdefault(row["run"], []).append(
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
    return {run: tuple(values) for run, values in owners.items()}


def processing_of_groups(aggregates: Aggregates) -> dict[str, tuple[GroupProcessing, ...]]:
    """Return what each run's groups processed, by run; the groups are sorted by name."""
    groups: dict[str, list[GroupProcessing]] = {}
    for row in _in_order(aggregates["processed"], "run", "group"):
        groups.setdefault(row["run"], []).append(
            GroupProcessing(group=row["group"], records=row["records"], repeated=row["repeated"])
        )
    return {run: tuple(values) for run, values in groups.items()}


def commit_errors_by_run(aggregates: Aggregates) -> dict[str, tuple[CommitErrors, ...]]:
    """Return the errors of each run's commits after its first fault, the most frequent first."""
    errors: dict[str, list[CommitErrors]] = {}
    for row in sorted(aggregates["commit_errors"], key=lambda row: (-row["commits"], row["error"])):
        errors.setdefault(row["run"], []).append(
            CommitErrors(error=row["error"], commits=row["commits"], members=row["members"])
        )
    return {run: tuple(values) for run, values in errors.items()}


def _in_order(rows: Sequence[AggregateRow], *columns: str) -> list[AggregateRow]:
    """Sort rows by columns as Spark does: nulls first."""
    return sorted(rows, key=lambda row: tuple(_nulls_first(row[column]) for column in columns))


def _nulls_first(value: str | int | None) -> tuple[bool, str | int]:
    """Return a sort key by which None comes first."""
    # The 0 is never compared with a value, because the first elements differ already.
    return (value is not None, 0 if value is None else value)
