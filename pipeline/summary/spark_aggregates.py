"""The aggregates from which `summary` makes summaries, computed from tables with Spark.

An aggregate is a small table about all analysed runs, such as the number of records that each group
processed. It stays small even for a long run, because it has rows for faults and groups, and not
for events. So the driver (the Python process of the analysis) can collect it, and needs no other
data. `trace_aggregates` computes the same aggregates in plain Python, from the trace of one run.

Each function here computes one aggregate from the table that it gets. AGGREGATE_STEPS at the end
lists all functions with their tables.
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
    """One row per run and fault: the number of offsets partitions that the fault moved."""
    return broker_phases.groupBy("run", "fault").agg(F.count("*").alias("moved"))


def _member_counts(client_phases: DataFrame) -> DataFrame:
    """One row per run, fault and way in which members noticed the fault: numbers of these members.

    A member notices a fault when it gives its coordinator up. Two columns describe the way:

    - `noticed_by`: why the member gave its coordinator up, such as `NOT_COORDINATOR`.
    - `timeouts`: how many commits of the member had timed out until then.

    Both are null for members that kept their coordinator.
    """
    # An id or generation that is not known is null. Its comparison is null, too, and `count_if`
    # counts only what is true.
    kept_id = F.col("member_id") == F.col("member_id_after")
    kept_generation = F.col("generation") == F.col("generation_after")
    has_left_coordinator = F.col("unknown_us").isNotNull()
    timeouts = F.when(has_left_coordinator, F.col("commit_timeouts"))
    return client_phases.groupBy("run", "fault", "noticed_by", timeouts.alias("timeouts")).agg(
        F.count("*").alias("members"),
        F.count_if(kept_id & kept_generation).alias("kept"),
        F.count_if(kept_id).alias("kept_id"),
        # `told` counts members that asked the old coordinator for their coordinator, and were told
        # that it was the old one itself.
        F.count_if(F.col("self_answers") > 0).alias("told"),
    )


def _rebalances_by_kind(rebalances: DataFrame) -> DataFrame:
    """One row for each rebalance, or one for all rebalances of a kind if these are many.

    Rebalances are of the same kind if they came after the same fault, and if the same coordinator
    began them for the same reason.
    """
    kind = ("run", "fault", "group", "broker", "leader_epoch", "reason")
    count_of_kind = F.count("*").over(Window.partitionBy(*kind))
    # If a kind has few rebalances, the moment at which they began tells them apart, and each gets a
    # row of its own. If a kind has many rebalances, the column is null, and they share one row.
    told_apart_by = F.when(count_of_kind <= ONE_BY_ONE_MAX, F.col("started_us"))
    return (
        rebalances.where(F.col("fault").isNotNull())
        .withColumn("told_apart_by", told_apart_by)
        .groupBy(*kind, "told_apart_by")
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
    """One row per time in which groups had two coordinators.

    Two brokers can also lead an offsets partition that stores no group. Such a time does not count.
    """
    return tenure_overlaps.where(F.size("groups") > 0)


def _owner_sets(ownership_overlaps: DataFrame) -> DataFrame:
    """One row per run, group and fault, for times in which two members owned the same partition.

    A run, group and fault have several rows if different coordinators had assigned the partitions.
    For example, one row is about partitions that broker-0 had assigned to the first owners, and
    broker-1 to the second owners. Another row is about partitions that broker-1 and broker-2 had
    assigned.
    """
    # True if some partition still had two owners when the run ended. The maximum of booleans is
    # true if one of them is true.
    still_lasts = F.max(F.col("to_us").isNull())
    return ownership_overlaps.groupBy("run", "group", "fault", *LINEAGES).agg(
        F.count_distinct("partition").alias("partitions"),
        _set("first_consumer").alias("first_consumers"),
        _set("second_consumer").alias("second_consumers"),
        F.min("from_us").alias("from_us"),
        F.when(~still_lasts, F.max("to_us")).alias("to_us"),
        F.max("length_us").alias("longest_us"),
        F.sum("records_both").alias("records_both"),
        F.max("healed_us").alias("healed_us"),
    )


def _processed(processing: DataFrame) -> DataFrame:
    """One row per run and group: how many records were processed, and how many of them again."""
    return processing.groupBy("run", "group").agg(
        F.sum("records").alias("records"), F.sum("repeated").alias("repeated")
    )


def _errors(commits: DataFrame) -> DataFrame:
    """One row per run and error with which commits failed after the first fault.

    Before the first fault, commits fail only because the groups are still starting.
    """
    return (
        commits.where(F.col("fault").isNotNull() & (F.col("error") != ACKNOWLEDGED))
        .groupBy("run", "error")
        .agg(F.sum("commits").alias("commits"), F.count_distinct("consumer").alias("members"))
    )


def _set(column: str) -> Column:
    """Return the distinct values of a column in a group of rows, as a sorted array."""
    return F.sort_array(F.collect_set(column))


def _union(column: str) -> Column:
    """Return the distinct elements of a column of arrays in a group of rows, as a sorted array."""
    return F.sort_array(F.array_distinct(F.flatten(F.collect_list(column))))


def _felt_spreads(felt_partitions: DataFrame) -> DataFrame:
    """One row per run, group and felt measure: its distribution over the group's partitions.

    The felt measures are effects of faults that the users of a group notice, such as the time in
    which a partition has no owner. Rows in which the group is null are about the partitions of all
    groups of the run together.
    """
    # A row of `felt_partitions` has a column for each measure. `explode` makes one row for each of
    # these columns, with the name of the measure in `measure` and its value in `value`.
    measures = F.array(
        *(
            F.struct(
                F.lit(measure.name).alias("measure"),
                F.col(measure.column).cast("long").alias("value"),
            )
            for measure in FELT_MEASURES
        )
    )
    of_groups = felt_partitions.select("run", "group", F.explode(measures).alias("measured"))
    # The same rows again with a null group, so that they count for all groups together, too.
    of_all_groups = of_groups.withColumn("group", F.lit(None).cast("string"))
    fractions = F.array(*(F.lit(percent / 100) for percent in FELT_PERCENTS))
    return (
        of_groups.unionByName(of_all_groups)
        .select("run", "group", "measured.*")
        .groupBy("run", "group", "measure")
        .agg(
            F.count("value").alias("samples"),
            F.count_if(F.col("value").isNull()).alias("missing"),
            # Spark's `percentile` would interpolate between values. This function returns values
            # that occurred (nearest rank), in the order of FELT_PERCENTS.
            F.percentile_approx("value", fractions).alias("percentiles"),
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
                F.when(
                    F.col("samples") >= samples_needed(percent), F.col("percentiles")[index]
                ).alias(f"p{percent}")
                for index, percent in enumerate(FELT_PERCENTS)
            ),
            "max",
            "total",
        )
    )


def _felt_counts(felt_groups: DataFrame) -> DataFrame:
    """One row per run and group: the table `felt_groups` itself, which has few rows."""
    return felt_groups


AGGREGATE_STEPS = (
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
"""The steps that compute the aggregates: the name of each, its function, and the table that the
function gets.
"""
