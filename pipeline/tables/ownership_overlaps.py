"""The table `ownership_overlaps`: times in which two members owned the same partition.

The table `ownership` has the intervals in which members believed that they owned a partition. Here,
a row is a pair of two members' intervals that overlap.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipeline.tables.faults import with_latest_fault


def ownership_overlaps(processed_by_both: DataFrame, faults: DataFrame) -> DataFrame:
    """Pair the intervals in which two members owned one partition at the same time.

    `processed_by_both` is the result of the function of this name in `intermediate.repeats`.
    Suppose that two intervals overlap, and that both members processed the offsets 7 and 8 in the
    overlap. Then this pair of intervals has two rows, with the offsets 7 and 8. If the members
    processed no record in common, their pair has one row, and its offset is null.

    `faults` is the table `faults`. Output grain: one row per run, group, data partition and pair of
    overlapping intervals of two different members.

    Columns:
    - `run`, `group`, `partition`;
    - `from_us`, `to_us` in microseconds on the run's clock;
    - `length_us`: the length of the overlap; up to the run's end if it still lasted then;
    - `first_consumer`, `first_member`, `first_generation`: the member whose interval began first;
    - `first_coordinator`, `first_epoch`: the broker that had assigned the partition to this member,
      and the leader epoch in which it did so;
    - `second_consumer`, `second_member`, `second_generation`, `second_coordinator`, `second_epoch`:
      the same about the other member;
    - `records_both`: number of records that both processed during the overlap;
    - `fault`: the latest fault before the overlap began;
    - `healed_us`: a time at which a fault was healed, in microseconds on the run's clock. It is the
      latest such time before the overlap ended. If no fault was healed before the end, it is the
      earliest such time after the end.

    Nulls: `to_us` if the overlap still lasted when the run ended; coordinators and epochs as in
    `ownership`; `fault` if none came before; `healed_us` if no fault was healed.
    """
    # `first` and `second` are structs about the two intervals. `to_us` is the overlap's end, and
    # null if the overlap lasted until the run ended. `ends_us` is then the time of the run's end,
    # and otherwise the same as `to_us`.
    pair = ("run", "group", "partition", "from_us", "ends_us", "to_us", "first", "second")
    # `count` leaves out the null offset of a pair that processed no record in common.
    overlaps = processed_by_both.groupBy(*pair).agg(F.count("offset").alias("records_both"))
    # `healed_us` is null for a fault that was not healed. `collect_list` leaves out nulls.
    healings = faults.groupBy("run").agg(
        F.sort_array(F.collect_list("healed_us")).alias("healings")
    )
    before = F.filter("healings", lambda healed_us: healed_us <= F.col("ends_us"))
    after = F.filter("healings", lambda healed_us: healed_us > F.col("ends_us"))
    return (
        with_latest_fault(overlaps, faults, "from_us")
        .join(F.broadcast(healings), "run", "left")
        .select(
            "run",
            "group",
            "partition",
            "from_us",
            "to_us",
            (F.col("ends_us") - F.col("from_us")).alias("length_us"),
            F.col("first.consumer").alias("first_consumer"),
            F.col("first.member").alias("first_member"),
            F.col("first.generation").alias("first_generation"),
            F.col("first.coordinator").alias("first_coordinator"),
            F.col("first.leader_epoch").alias("first_epoch"),
            F.col("second.consumer").alias("second_consumer"),
            F.col("second.member").alias("second_member"),
            F.col("second.generation").alias("second_generation"),
            F.col("second.coordinator").alias("second_coordinator"),
            F.col("second.leader_epoch").alias("second_epoch"),
            "records_both",
            "fault",
            # Index -1 is the last element of an array, and index 1 the first.
            F.coalesce(
                F.try_element_at(before, F.lit(-1)), F.try_element_at(after, F.lit(1))
            ).alias("healed_us"),
        )
    )
