"""The aggregates from which `summary` makes summaries, computed from tables with Spark.

An aggregate is a table of few rows over all runs. The number of its rows grows with the faults and
groups of a run, not with its events. Only the rows of aggregates reach the driver (the Python
process of the analysis). `trace_aggregates` computes the same aggregates from a trace in memory.

A member notices a fault when it gives its coordinator up. The lineage of an owner of a partition is
the coordinator that assigned the partition, with its leader epoch (the number of its leadership).
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from pipeline.engine.step import rows
from pipeline.summary.felt import FELT_MEASURES
from pipeline.summary.felt import PERCENTS as FELT_PERCENTS
from pipeline.summary.figures import PERCENTS, samples_needed
from pipeline.summary.outcome_summary import LINEAGES, ONE_BY_ONE_MAX
from pipeline.tables.commits import ACKNOWLEDGED


def _bad_row_counts(bad_rows: DataFrame) -> DataFrame:
    """One row per run and reason for which rows were unusable, with the number of these rows."""
    return bad_rows.groupBy("run", "reason").count()


def _known_runs(runs: DataFrame) -> DataFrame:
    """One row per run that has events."""
    return runs.select("run", "events", "steady_us", "completed")


def _known_faults(faults: DataFrame) -> DataFrame:
    """One row per run and fault."""
    return faults.select("run", "fault", "kind", "target", "node", "injected_us", "healed_us")


def _known_figures(figures: DataFrame) -> DataFrame:
    """One row per run, fault and measure."""
    return figures.select(
        "run",
        "fault",
        "measure",
        "samples",
        "missing",
        *(f"p{percent}" for percent in PERCENTS),
        "max",
        "from_us",
        "to_us",
    )


def _moved_partitions(broker_phases: DataFrame) -> DataFrame:
    """One row per run and fault that moved partitions."""
    return broker_phases.groupBy("run", "fault").agg(F.count("*").alias("moved"))


def _member_counts(client_phases: DataFrame) -> DataFrame:
    """One row per run, fault, `noticed_by` and `timeouts`.

    - `noticed_by`: the cause by which members noticed the fault; null if no cause is known.
    - `timeouts`: how many commits of a member had timed out when it noticed the fault; null for
      members that kept their coordinator.
    """
    # Unknown ids and generations are null. Then the comparison is null, and `count_if` skips it.
    kept_id = F.col("member_id") == F.col("member_id_after")
    kept_generation = F.col("generation") == F.col("generation_after")
    has_left_coordinator = F.col("unknown_us").isNotNull()
    timeouts = F.when(has_left_coordinator, F.col("commit_timeouts"))
    return client_phases.groupBy("run", "fault", "noticed_by", timeouts.alias("timeouts")).agg(
        F.count("*").alias("members"),
        F.count_if(kept_id & kept_generation).alias("kept"),
        F.count_if(kept_id).alias("kept_id"),
        # Count the members which the old coordinator told that it still was their coordinator.
        F.count_if(F.col("self_answers") > 0).alias("told"),
    )


def _rebalances_by_kind(rebalances: DataFrame) -> DataFrame:
    """One row per kind of rebalances; if a kind has few rebalances, one row for each of them.

    Rebalances of a kind have the same run, fault, group, coordinator and reason.
    """
    kind = ("run", "fault", "group", "broker", "leader_epoch", "reason")
    count_of_kind = F.count("*").over(Window.partitionBy(*kind))
    return (
        rebalances.where(F.col("fault").isNotNull())
        # `separate` is a column of the key. In a kind with few rebalances it is their start, so
        # each start gets a row of its own. In a kind with many rebalances it is null, so all of
        # them share one row.
        .withColumn("separate", F.when(count_of_kind <= ONE_BY_ONE_MAX, F.col("started_us")))
        .groupBy(*kind, "separate")
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
    """One row per time in which two coordinators served the same groups."""
    # If an offsets partition has no groups, nobody asks its coordinators.
    return tenure_overlaps.where(F.size("groups") > 0)


def _owner_sets(ownership_overlaps: DataFrame) -> DataFrame:
    """One row per run, group, fault and pair of lineages.

    A row sums up the times in which members of the two lineages owned the same partitions.
    """
    # True if a partition still had two owners when the run ended. For booleans, `max` is "any".
    is_open = F.max(F.col("to_us").isNull())
    return ownership_overlaps.groupBy("run", "group", "fault", *LINEAGES).agg(
        F.count_distinct("partition").alias("partitions"),
        _set("first_consumer").alias("first_consumers"),
        _set("second_consumer").alias("second_consumers"),
        F.min("from_us").alias("from_us"),
        F.when(~is_open, F.max("to_us")).alias("to_us"),
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
    """One row per run and error with which a commit failed after the first fault."""
    # Errors before the first fault belong to the start of the groups.
    return (
        commits.where(F.col("fault").isNotNull() & (F.col("error") != ACKNOWLEDGED))
        .groupBy("run", "error")
        .agg(F.sum("commits").alias("commits"), F.count_distinct("consumer").alias("members"))
    )


def _set(column: str) -> Column:
    """Return the distinct values of a column, sorted, as an aggregate."""
    return F.sort_array(F.collect_set(column))


def _union(column: str) -> Column:
    """Return the distinct elements of a column of lists, sorted, as an aggregate."""
    return F.sort_array(F.array_distinct(F.flatten(F.collect_list(column))))


def _felt_spreads(felt_partitions: DataFrame) -> DataFrame:
    """One row per run, group and felt measure, and one per run and measure with a null group.

    A felt measure is an effect of faults that users of a group notice. The rows with a null group
    are about the partitions of all groups together.
    """
    # An array with one struct for each measure, so that `explode` makes a row of each.
    entries = F.array(
        *(
            F.struct(
                F.lit(measure.name).alias("measure"),
                F.col(measure.column).cast("long").alias("value"),
            )
            for measure in FELT_MEASURES
        )
    )
    of_groups = felt_partitions.select("run", "group", F.explode(entries).alias("entry"))
    # Each row once more, with a null group, for the figures of all groups together.
    of_all_groups = of_groups.withColumn("group", F.lit(None).cast("string"))
    fractions = F.array(*(F.lit(percent / 100) for percent in FELT_PERCENTS))
    return (
        of_groups.unionByName(of_all_groups)
        .select("run", "group", "entry.*")
        .groupBy("run", "group", "measure")
        .agg(
            F.count("value").alias("samples"),
            F.count_if(F.col("value").isNull()).alias("missing"),
            # In contrast to `percentile`, this returns values that occurred (nearest rank).
            F.percentile_approx("value", fractions).alias("ranks"),
            F.max("value").alias("max"),
            F.sum("value").alias("total"),
        )
        .select(
            "run",
            "group",
            "measure",
            "samples",
            "missing",
            *(
                F.when(F.col("samples") >= samples_needed(percent), F.col("ranks")[index]).alias(
                    f"p{percent}"
                )
                for index, percent in enumerate(FELT_PERCENTS)
            ),
            "max",
            "total",
        )
    )


def _felt_counts(felt_groups: DataFrame) -> DataFrame:
    """One row per run and group: the table `felt_groups` itself, which has few rows."""
    return felt_groups


SUMMED_UP = (
    rows("bad_row_counts", _bad_row_counts, "bad_rows"),
    rows("known_runs", _known_runs, "runs"),
    rows("known_faults", _known_faults, "faults"),
    rows("known_figures", _known_figures, "figures"),
    rows("moved_partitions", _moved_partitions, "broker_phases"),
    rows("member_counts", _member_counts, "client_phases"),
    rows("rebalances_by_kind", _rebalances_by_kind, "rebalances"),
    rows("coordinator_pairs", _coordinator_pairs, "tenure_overlaps"),
    rows("owner_sets", _owner_sets, "ownership_overlaps"),
    rows("processed", _processed, "processing"),
    rows("commit_errors", _errors, "commits"),
    rows("felt_spreads", _felt_spreads, "felt_partitions"),
    rows("felt_counts", _felt_counts, "felt_groups"),
)
"""The steps that compute the aggregates. A step has a name, a function, and the table that the
function gets.
"""
