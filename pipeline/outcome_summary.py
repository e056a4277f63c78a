"""Sum tables up: rebalances by reason, double coordinators and owners, duplicates, commit errors.

Only aggregates reach the driver: their number depends on faults, groups and epochs, not on events.
"""

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame, Row, Window
from pyspark.sql import functions as F

from pipeline.commits import ACKNOWLEDGED
from pipeline.outcomes import (
    CommitErrors,
    Coordinators,
    Office,
    Owners,
    Processing,
    Rebalances,
    in_number_order,
)

Tables = Mapping[str, DataFrame]
FaultKey = tuple[str, str]
"""Run and fault."""
_TOLD_ONE_BY_ONE = 3
"""Up to so many rebalances of a kind after one fault are not summed up."""


def rebalances_after(tables: Tables) -> dict[FaultKey, tuple[Rebalances, ...]]:
    """Return the rebalances after each fault, by group, coordinator and reason, in time order.

    A few are told one by one, many of one kind together.
    """
    injected = F.broadcast(tables["faults"].select("run", "fault", "injected_us"))
    kind = ("run", "fault", "group", "broker", "leader_epoch", "reason")
    of_its_kind = F.count("*").over(Window.partitionBy(*kind))
    rows = (
        tables["rebalances"]
        .where(F.col("fault").isNotNull())
        .join(injected, ["run", "fault"])
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
            F.min(F.col("started_us") - F.col("injected_us")).alias("after_us"),
            F.max("length_us").alias("longest_us"),
        )
        .orderBy("run", "fault", "first_us", "group", "broker", "leader_epoch", "reason")
    )
    found: dict[FaultKey, list[Rebalances]] = {}
    for row in rows.collect():
        found.setdefault((row["run"], row["fault"]), []).append(_rebalances(row))
    return {key: tuple(values) for key, values in found.items()}


def _rebalances(row: Row) -> Rebalances:
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
        after_us=row["after_us"],
        longest_us=row["longest_us"],
    )


def coordinators_at_once(tables: Tables) -> dict[str, tuple[Coordinators, ...]]:
    """Return each run's pairs of coordinators that served a group at once, in time order."""
    rows = (
        tables["tenure_overlaps"]
        .where(F.size("groups") > 0)
        .orderBy("run", "from_us", "partition", "older_epoch", "newer_epoch")
    )
    found: dict[str, list[Coordinators]] = {}
    for row in rows.collect():
        found.setdefault(row["run"], []).append(
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
    return {run: tuple(values) for run, values in found.items()}


def _office(row: Row, side: str) -> Office:
    return Office(
        broker=row[f"{side}_broker"],
        leader_epoch=row[f"{side}_epoch"],
        heartbeats=row[f"{side}_heartbeats"],
        commits=row[f"{side}_commits"],
        commits_in_all=row[f"{side}_commits_in_all"],
    )


def owners_at_once(tables: Tables) -> dict[str, tuple[Owners, ...]]:
    """Return each run's sets of members that owned partitions at once, in time order."""
    lineages = ("first_coordinator", "first_epoch", "second_coordinator", "second_epoch")
    still = F.max(F.col("to_us").isNull())
    rows = (
        tables["ownership_overlaps"]
        .groupBy("run", "group", "fault", *lineages)
        .agg(
            F.count_distinct("partition").alias("partitions"),
            _set("first_consumer").alias("first_consumers"),
            _set("second_consumer").alias("second_consumers"),
            F.min("from_us").alias("from_us"),
            F.when(~still, F.max("to_us")).alias("to_us"),
            F.max("length_us").alias("longest_us"),
            F.sum("records_both").alias("records_both"),
            F.max("healed_us").alias("healed_us"),
        )
        .orderBy("run", "from_us", "group", *lineages)
    )
    found: dict[str, list[Owners]] = {}
    for row in rows.collect():
        found.setdefault(row["run"], []).append(
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
    return {run: tuple(values) for run, values in found.items()}


def processing_of_groups(tables: Tables) -> dict[str, tuple[Processing, ...]]:
    """Return what each run's groups processed, by name."""
    rows = (
        tables["processing"]
        .groupBy("run", "group")
        .agg(F.sum("records").alias("records"), F.sum("repeated").alias("repeated"))
        .orderBy("run", "group")
    )
    found: dict[str, list[Processing]] = {}
    for row in rows.collect():
        found.setdefault(row["run"], []).append(
            Processing(group=row["group"], records=row["records"], repeated=row["repeated"])
        )
    return {run: tuple(values) for run, values in found.items()}


def commit_errors(tables: Tables) -> dict[str, tuple[CommitErrors, ...]]:
    """Return the errors that each run's commits met after its first fault."""
    rows = (
        tables["commits"]
        .where(F.col("fault").isNotNull() & (F.col("error") != ACKNOWLEDGED))
        .groupBy("run", "error")
        .agg(F.sum("commits").alias("commits"), F.count_distinct("consumer").alias("members"))
        .orderBy("run", F.desc("commits"), "error")
    )
    found: dict[str, list[CommitErrors]] = {}
    for row in rows.collect():
        found.setdefault(row["run"], []).append(
            CommitErrors(error=row["error"], commits=row["commits"], members=row["members"])
        )
    return {run: tuple(values) for run, values in found.items()}


def _set(column: str) -> Column:
    """Return the distinct values, sorted."""
    return F.sort_array(F.collect_set(column))


def _union(column: str) -> Column:
    """Return the distinct elements of a column of lists, sorted."""
    return F.sort_array(F.array_distinct(F.flatten(F.collect_list(column))))
