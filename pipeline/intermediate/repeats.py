"""Which records did a group process more than once, and which did two owners both process?

A member writes a row into the trace for each batch of records that it has processed. These rows
have a column `span` with the number of the batch's records (`count`), the offset of its last record
(`last`), and the time of the work on it (`work_us`).
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from pipeline.engine.events import of_kind
from protocol.trace import TraceKind

_PARTITION = ("run", "group", "partition")
"""The columns that name a data partition of a group."""


def batches(events: DataFrame) -> DataFrame:
    """List the batches that members processed.

    Output grain: one row per run, group, partition and batch processed by any member.
    Columns:
    - `run`, `group`, `partition`, `consumer` (node);
    - `first`, `last` (offsets), `records` (the number of records);
    - `begun_us`, `at_us`: when the work on the batch began and ended, in microseconds on the run's
      clock;
    - `incarnation`, `seq`: the order in which one node wrote events of the same moment.

    Nulls: none.
    """
    # If the trace does not tell the last offset, the batch counts as one record.
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
    """Return when a member began to work on a batch.

    The member writes the row about the batch when the work ends. `work_us` tells how long the work
    took. It is missing if the records of the experiment take no time to process.
    """
    return F.col("time_us") - F.coalesce("span.work_us", F.lit(0))


def repeated_records(events: DataFrame) -> DataFrame:
    """List every processing of each record that its group processed more than once.

    `events` has one row per event. Output grain: one row per run, group, partition, offset and
    processing. Offsets that the group processed once have no rows.
    Columns: `run`, `group`, `partition`, `offset`, `consumer`, `at_us` (microseconds on the run's
    clock), `nth` (1: the first time that the group processed the record).
    Nulls: none.
    """
    # A run has millions of records, of which few are repeated. It would take long to list all
    # records. So only batches that overlap other batches are looked at:
    # 1. Sort the batches of a partition by offset, and divide them into *islands* of batches that
    #    overlap. For example, the batches with the offsets 0 to 9 and 5 to 14 are one island, and a
    #    batch with the offsets 15 to 24 is the next island. A record can be repeated only within an
    #    island.
    # 2. Drop the islands of a single batch.
    # 3. Split the other batches into records, and count how often each record occurs.
    by_offset = Window.partitionBy(*_PARTITION).orderBy("first", "last", "at_us", "consumer", "seq")
    highest_before = F.max("last").over(by_offset.rowsBetween(Window.unboundedPreceding, -1))
    so_far = by_offset.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    # The first batch of a partition begins an island. Its comparison is null, because there is no
    # batch before it, and `coalesce` turns the null into true.
    begins_island = F.coalesce(F.col("first") > highest_before, F.lit(True))
    of_island = Window.partitionBy(*_PARTITION, "island")
    touching = (
        batches(events)
        .withColumn("begins_island", begins_island.cast("int"))
        # The number of an island counts how many islands have begun.
        .withColumn("island", F.sum("begins_island").over(so_far))
        .withColumn("batches_of_island", F.count("*").over(of_island))
        .where(F.col("batches_of_island") > 1)
    )
    record = (*_PARTITION, "offset")
    by_time = Window.partitionBy(*record).orderBy("at_us", "consumer", "incarnation", "seq")
    # `sequence` lists all offsets of a batch. In a damaged row, `last` can be below `first`, and
    # `sequence` would count down. `greatest` prevents this.
    return (
        touching.withColumn("offset", F.explode(F.sequence("first", F.greatest("first", "last"))))
        .withColumn("nth", F.row_number().over(by_time))
        .withColumn("times", F.count("*").over(Window.partitionBy(*record)))
        .where(F.col("times") > 1)
        .select(*record, "consumer", "at_us", "nth")
    )


def processed_by_both(ownership: DataFrame, runs: DataFrame, repeats: DataFrame) -> DataFrame:
    """Pair the overlapping intervals of two owners, with the records that both of them processed.

    Example: consumer-a-0 owned a partition from 10 to 20 s, and consumer-a-1 from 15 s on. If both
    processed the offsets 7 and 8 between 15 and 20 s, this pair has two rows. `ownership` and
    `runs` are the tables; `repeats` has one row per processing of a repeated record
    (`repeated_records`). Output grain: one row per pair of overlapping intervals and offset that
    both members processed during the overlap. A pair without a common offset has one row with a
    null offset.
    Columns:
    - `run`, `group`, `partition`, `offset`;
    - `from_us`, `to_us`: beginning and end of the overlap; `ends_us`: the same as `to_us`, or the
      run's end where `to_us` is null;
    - `first`, `second`: structs of the two intervals, in the order of their beginnings.

    Nulls: `to_us` if both members still owned the partition when the run ended; `offset` if the two
    members processed no record in common.
    """
    run_ends = F.broadcast(runs.select("run", F.col("end_us").alias("run_end_us")))
    # The join below pairs each interval with other intervals of the same partition. So each
    # interval is put into a struct. The struct is called `first` on one side of the join, and
    # `second` on the other side.
    intervals = ownership.join(run_ends, "run").select(
        *_PARTITION,
        "run_end_us",
        F.struct(
            # In the output, `from_us` is the beginning of the overlap. So the beginning of the
            # interval has another name.
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
    # Each pair is joined in both orders. Keep the order in which `first` began first. Structs are
    # compared field by field. So if both began at the same moment, the names decide.
    in_order = F.struct("first.at_us", "first.consumer") < F.struct(
        "second.at_us", "second.consumer"
    )
    pairs = (
        intervals.join(second, list(_PARTITION))
        .where(in_order & (F.col("first.consumer") != F.col("second.consumer")))
        .withColumn("from_us", F.col("second.at_us"))
        .withColumn("ends_us", F.least("first.until_us", "second.until_us"))
        # `least` ignores nulls. So `to_us` is null only if both members still owned the partition
        # when the run ended.
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
    """List the offsets that one owner of each pair processed during the overlap.

    `side` tells which owner: `first` or `second`. Output grain: one row per pair and offset.
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
