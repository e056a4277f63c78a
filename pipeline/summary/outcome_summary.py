"""Sum tables up: rebalances by reason, double coordinators and owners, duplicates, commit errors.

Only aggregates reach the driver: their number depends on faults, groups and epochs, not on events.
"""

from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame, Row, Window
from pyspark.sql import functions as F

from pipeline.engine.step import rows
from pipeline.summary.outcomes import (
    CommitErrors,
    Coordinators,
    GroupProcessing,
    Office,
    Owners,
    Rebalances,
    in_number_order,
)
from pipeline.tables.commits import ACKNOWLEDGED

Rows = Mapping[str, Sequence[Row]]
"""What was summed up, by the name of its step."""
FaultKey = tuple[str, str]
"""Run and fault."""
_TOLD_ONE_BY_ONE = 3
"""Up to so many rebalances of a kind after one fault are not summed up."""


def _rebalances_by_kind(rebalances: DataFrame) -> DataFrame:
    """One row per run, fault, group, coordinator and reason, or per rebalance if they are few."""
    kind = ("run", "fault", "group", "broker", "leader_epoch", "reason")
    of_its_kind = F.count("*").over(Window.partitionBy(*kind))
    return (
        rebalances.where(F.col("fault").isNotNull())
        .withColumn("one", F.when(of_its_kind <= _TOLD_ONE_BY_ONE, F.col("started_us")))
        .groupBy(*kind, "one")
        .agg(
            F.count("*").alias("count"),
            _set("consumer").alias("consumers"),
            _union("removed").alias("removed"),
            _union("removed_because").alias("removed_because"),
            _union("added").alias("added"),
            F.min("generation").alias("first_generation"),
            F.max("new_generation").alias("last_generation"),
            F.count("store_error").alias("not_stored"),
            _set("store_error").alias("store_errors"),
            F.min("started_us").alias("first_us"),
            F.max("started_us").alias("last_us"),
            F.max("length_us").alias("longest_us"),
        )
    )


def _coordinator_pairs(tenure_overlaps: DataFrame) -> DataFrame:
    """One row per overlap of two coordinators of the same groups."""
    return tenure_overlaps.where(F.size("groups") > 0)


def _owner_sets(ownership_overlaps: DataFrame) -> DataFrame:
    """One row per run, group, fault and pair of coordinators whose members owned at once."""
    still = F.max(F.col("to_us").isNull())
    return ownership_overlaps.groupBy("run", "group", "fault", *_LINEAGES).agg(
        F.count_distinct("partition").alias("partitions"),
        _set("first_consumer").alias("first_consumers"),
        _set("second_consumer").alias("second_consumers"),
        F.min("from_us").alias("from_us"),
        F.when(~still, F.max("to_us")).alias("to_us"),
        F.max("length_us").alias("longest_us"),
        F.sum("records_both").alias("records_both"),
        F.max("healed_us").alias("healed_us"),
    )


def _processed(processing: DataFrame) -> DataFrame:
    """One row per run and group."""
    return processing.groupBy("run", "group").agg(
        F.sum("records").alias("records"), F.sum("repeated").alias("repeated")
    )


def _errors(commits: DataFrame) -> DataFrame:
    """One row per run and error that a commit met after the first fault."""
    return (
        commits.where(F.col("fault").isNotNull() & (F.col("error") != ACKNOWLEDGED))
        .groupBy("run", "error")
        .agg(F.sum("commits").alias("commits"), F.count_distinct("consumer").alias("members"))
    )


_LINEAGES = ("first_coordinator", "first_epoch", "second_coordinator", "second_epoch")

OUTCOMES = (
    rows("rebalances_by_kind", _rebalances_by_kind, "rebalances"),
    rows("coordinator_pairs", _coordinator_pairs, "tenure_overlaps"),
    rows("owner_sets", _owner_sets, "ownership_overlaps"),
    rows("processed", _processed, "processing"),
    rows("commit_errors", _errors, "commits"),
)
"""What the functions below need, computed from tables."""


def rebalances_after(found: Rows) -> dict[FaultKey, tuple[Rebalances, ...]]:
    """Return the rebalances after each fault, by group, coordinator and reason, in time order.

    A few are told one by one, many of one kind together.
    """
    injected = {(row["run"], row["fault"]): row["injected_us"] for row in found["known_faults"]}
    order = ("run", "fault", "first_us", "group", "broker", "leader_epoch", "reason")
    after: dict[FaultKey, list[Rebalances]] = {}
    for row in _in_order(found["rebalances_by_kind"], *order):
        key = (row["run"], row["fault"])
        after.setdefault(key, []).append(_rebalances(row, injected[key]))
    return {key: tuple(values) for key, values in after.items()}


def _rebalances(row: Row, injected_us: int) -> Rebalances:
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


def coordinators_at_once(found: Rows) -> dict[str, tuple[Coordinators, ...]]:
    """Return each run's pairs of coordinators that served a group at once, in time order."""
    order = ("run", "from_us", "partition", "older_epoch", "newer_epoch")
    pairs: dict[str, list[Coordinators]] = {}
    for row in _in_order(found["coordinator_pairs"], *order):
        pairs.setdefault(row["run"], []).append(
            Coordinators(
                groups=tuple(row["groups"]),
                partition=row["partition"],
                older=_office(row, "older"),
                newer=_office(row, "newer"),
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


def _office(row: Row, side: str) -> Office:
    return Office(
        broker=row[f"{side}_broker"],
        leader_epoch=row[f"{side}_epoch"],
        heartbeats=row[f"{side}_heartbeats"],
        commits=row[f"{side}_commits"],
        commits_in_all=row[f"{side}_commits_in_all"],
    )


def owners_at_once(found: Rows) -> dict[str, tuple[Owners, ...]]:
    """Return each run's sets of members that owned partitions at once, in time order."""
    owners: dict[str, list[Owners]] = {}
    for row in _in_order(found["owner_sets"], "run", "from_us", "group", *_LINEAGES):
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


def processing_of_groups(found: Rows) -> dict[str, tuple[GroupProcessing, ...]]:
    """Return what each run's groups processed, by name."""
    groups: dict[str, list[GroupProcessing]] = {}
    for row in _in_order(found["processed"], "run", "group"):
        groups.setdefault(row["run"], []).append(
            GroupProcessing(group=row["group"], records=row["records"], repeated=row["repeated"])
        )
    return {run: tuple(values) for run, values in groups.items()}


def commit_errors_by_run(found: Rows) -> dict[str, tuple[CommitErrors, ...]]:
    """Return the errors of each run's commits after its first fault, the most frequent first."""
    errors: dict[str, list[CommitErrors]] = {}
    for row in sorted(found["commit_errors"], key=lambda row: (-row["commits"], row["error"])):
        errors.setdefault(row["run"], []).append(
            CommitErrors(error=row["error"], commits=row["commits"], members=row["members"])
        )
    return {run: tuple(values) for run, values in errors.items()}


def _in_order(rows: Sequence[Row], *columns: str) -> list[Row]:
    """Sort rows by columns as Spark does: nulls first."""
    return sorted(rows, key=lambda row: tuple(_nulls_first(row[column]) for column in columns))


def _nulls_first(value: str | int | None) -> tuple[bool, str | int]:
    return (value is not None, 0 if value is None else value)


def _set(column: str) -> Column:
    """Return the distinct values, sorted."""
    return F.sort_array(F.collect_set(column))


def _union(column: str) -> Column:
    """Return the distinct elements of a column of lists, sorted."""
    return F.sort_array(F.array_distinct(F.flatten(F.collect_list(column))))
