"""Steps: the batches that members processed, and the records that a group repeated.

A record is *repeated* if members of one group processed it more than once. Each step computes a
DataFrame from which several tables are computed; no run directory holds it.

The column `span` of an event about a batch holds three fields of the event's `detail`:

- `count`: number of records in the batch;
- `last`: offset of its last record;
- `work_us`: time of the work on it.
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from pipeline.engine.events import of_kind
from protocol.trace import TraceKind

_PARTITION = ("run", "group", "partition")
"""Columns that name a partition in one group."""


def batches(events: DataFrame) -> DataFrame:
    """List the batches that members processed.

    Output grain: one row per run, group, partition and batch processed by any member.
    Columns:
    - `run`, `group`, `partition`, `consumer` (node);
    - `first`, `last` (offsets), `records` (the number of records);
    - `begun_us`, `at_us`: work on the batch began and ended, microseconds on the run's clock;
    - `incarnation` and `seq` of the event, which order events of one node at one moment.

    Nulls: none.
    """
    # A batch without `last` counts as a batch of one record.
    last = F.coalesce("span.last", "offset")
    return (
        of_kind(events, TraceKind.RECORDS_CONSUMED)
        .where(F.col("partition").isNotNull() & F.col("offset").isNotNull())
        .select(
            *_PARTITION,
            F.col("node").alias("consumer"),
            F.col("offset").alias("first"),
            last.alias("last"),
            F.coalesce("span.count", last - F.col("offset") + 1).alias("records"),
            begun_us().alias("begun_us"),
            F.col("time_us").alias("at_us"),
            "incarnation",
            "seq",
        )
    )


def begun_us() -> Column:
    """Return when the work on a batch began.

    A member writes the row about the batch when the work ends, so the row's time is the end.
    """
    # A row has no `work_us` if the experiment's records take no time to process.
    return F.col("time_us") - F.coalesce("span.work_us", F.lit(0))


def repeated_records(events: DataFrame) -> DataFrame:
    """List every processing of each record that its group processed more than once.

    `events` has one row per event. Output grain: one row per run, group, partition, offset and
    processing. Offsets that the group processed once have no rows.
    Columns: `run`, `group`, `partition`, `offset`, `consumer`, `at_us` (microseconds on the run's
    clock), `nth` (1: the first time that the group processed the record).
    Nulls: none.
    """
    # A run has millions of records, of which few are repeated. So:
    # 1. Sort the batches of a partition by offset, and divide them into *islands*: a new island
    #    begins at a batch whose first offset is above all offsets of the batches before. A record
    #    can be repeated only within one island.
    # 2. Keep the islands of two batches or more.
    # 3. Split those batches into records, and count how often each record occurs.
    by_offset = Window.partitionBy(*_PARTITION).orderBy("first", "last", "at_us", "consumer", "seq")
    highest_before = F.max("last").over(by_offset.rowsBetween(Window.unboundedPreceding, -1))
    so_far = by_offset.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    # The first batch of a partition always begins an island: there the comparison is null.
    begins_island = F.coalesce(F.col("first") > highest_before, F.lit(True))
    of_island = Window.partitionBy(*_PARTITION, "island")
    touching = (
        batches(events)
        .withColumn("begins_island", begins_island.cast("int"))
        # The number of the island: how many islands have begun up to this batch.
        .withColumn("island", F.sum("begins_island").over(so_far))
        .withColumn("batches_of_island", F.count("*").over(of_island))
        .where(F.col("batches_of_island") > 1)
    )
    record = (*_PARTITION, "offset")
    by_time = Window.partitionBy(*record).orderBy("at_us", "consumer", "incarnation", "seq")
    # `sequence` lists all offsets of a batch. If a damaged row had a `last` below `first`,
    # `sequence` would count down; `greatest` prevents this.
    return (
        touching.withColumn("offset", F.explode(F.sequence("first", F.greatest("first", "last"))))
        .withColumn("nth", F.row_number().over(by_time))
        .withColumn("times", F.count("*").over(Window.partitionBy(*record)))
        .where(F.col("times") > 1)
        .select(*record, "consumer", "at_us", "nth")
    )


def processed_by_both(ownership: DataFrame, runs: DataFrame, repeats: DataFrame) -> DataFrame:
    """Pair overlapping intervals of two owners, with the offsets that both owners processed.

    A member owns a partition while it may process the partition's records. `ownership` and `runs`
    are the tables; `repeats` has one row per processing of a repeated record (`repeated_records`).
    Output grain: one row per pair of overlapping intervals and offset that both members processed
    during the overlap. A pair without a common offset has one row with a null offset.
    Columns:
    - `run`, `group`, `partition`, `offset`;
    - `from_us`, `to_us`: beginning and end of the overlap; `ends_us`: the same as `to_us`, or the
      run's end where `to_us` is null;
    - `first`, `second`: structs of the two intervals, in the order of their beginnings.

    Nulls: `to_us` if both members still owned the partition when the run ended; `offset` if the two
    members processed no record in common.
    """
    run_ends = F.broadcast(runs.select("run", F.col("end_us").alias("run_end_us")))
    # Each interval becomes a struct. The join below pairs the struct of one interval, as `first`,
    # with the struct of another interval, as `second`.
    intervals = ownership.join(run_ends, "run").select(
        *_PARTITION,
        "run_end_us",
        F.struct(
            # Not named `from_us`: in the output, `from_us` is the overlap's beginning.
            F.col("from_us").alias("at_us"),
            "consumer",
            "incarnation",
            F.coalesce("to_us", "run_end_us").alias("until_us"),
            "to_us",
            "member",
            "generation",
            "coordinator",
            "leader_epoch",
        ).alias("first"),
    )
    second = intervals.drop("run_end_us").withColumnRenamed("first", "second")
    # Of two intervals, `first` is the one that began first. Spark compares structs field by field,
    # so of intervals that began at the same moment, the consumers' names decide.
    in_order = F.struct("first.at_us", "first.consumer") < F.struct(
        "second.at_us", "second.consumer"
    )
    pairs = (
        intervals.join(second, list(_PARTITION))
        .where(in_order & (F.col("first.consumer") != F.col("second.consumer")))
        .withColumn("from_us", F.col("second.at_us"))
        .withColumn("ends_us", F.least("first.until_us", "second.until_us"))
        # `least` ignores nulls, so `to_us` is null only if both members owned until the run's end.
        .withColumn("to_us", F.least("first.to_us", "second.to_us"))
        .where(F.col("from_us") < F.col("ends_us"))
        .drop("run_end_us")
    )
    key = [*_PARTITION, "from_us", "ends_us"]
    common_offsets = (
        _processed(pairs, repeats, "first")
        .join(
            _processed(pairs, repeats, "second"),
            [*key, "first_consumer", "second_consumer", "offset"],
        )
        .select(*key, "first_consumer", "second_consumer", "offset")
    )
    return (
        pairs.withColumns(
            {
                "first_consumer": F.col("first.consumer"),
                "second_consumer": F.col("second.consumer"),
            }
        )
        .join(common_offsets, [*key, "first_consumer", "second_consumer"], "left")
        .select(*key, "to_us", "first", "second", "offset")
    )


def _processed(pairs: DataFrame, repeats: DataFrame, side: str) -> DataFrame:
    """List the offsets that one member of each pair processed during the overlap.

    `side` says which member: `first` or `second`. Output grain: one row per pair and offset.
    """
    is_in_overlap = (F.col("at_us") >= F.col("from_us")) & (F.col("at_us") <= F.col("ends_us"))
    sides = pairs.select(
        *_PARTITION,
        "from_us",
        "ends_us",
        F.col("first.consumer").alias("first_consumer"),
        F.col("second.consumer").alias("second_consumer"),
    ).withColumn("consumer", F.col(f"{side}_consumer"))
    return (
        repeats.join(F.broadcast(sides), [*_PARTITION, "consumer"])
        .where(is_in_overlap)
        .select(*_PARTITION, "from_us", "ends_us", "first_consumer", "second_consumer", "offset")
        .distinct()
    )
