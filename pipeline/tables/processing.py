"""The table `processing`: how many records of each partition each member processed.

The table also has two other counts of these records:

- *repeated*: records that any member of the group had processed before;
- *shared*: records that two members processed while both of them owned the partition.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipeline.intermediate.repeats import batches

_MEMBER = ("run", "group", "partition", "consumer")
"""The columns that name a member and a partition of its group."""


def processing(events: DataFrame, repeats: DataFrame, processed_by_both: DataFrame) -> DataFrame:
    """Count the records that each member processed of each partition.

    `events` has one row per event. `repeats` has one row for each time that a repeated record was
    processed (`repeats.repeated_records`). `processed_by_both` has one row per pair of overlapping
    owners and offset that both processed (`repeats.processed_by_both`). Output grain: one row per
    run, group, data partition and member that processed a record of the partition.
    Columns:
    - `run`, `group`, `partition`, `consumer` (the member's node);
    - `records`: number of processed records; a record that was processed twice counts twice;
    - `first_offset`, `last_offset`: lowest and highest offset of these records;
    - `first_us`, `last_us`: the member's first and last batch, in microseconds on the run's clock;
    - `repeated`: number of the records in `records` that a member of the group had processed
      before;
    - `shared`: number of distinct records that this member and another one processed while both
      owned the partition.

    Nulls: none.
    """
    processed = (
        batches(events)
        .groupBy(*_MEMBER)
        .agg(
            F.sum("records").alias("records"),
            F.min("first").alias("first_offset"),
            F.max("last").alias("last_offset"),
            F.min("at_us").alias("first_us"),
            F.max("at_us").alias("last_us"),
        )
    )
    # `nth` is 1 when the group processes a record for the first time, 2 when it processes the
    # record again, and so on.
    repeated = repeats.where(F.col("nth") > 1).groupBy(*_MEMBER).agg(F.count("*").alias("repeated"))
    # Each row about a pair of owners becomes two rows, one for each owner. A pair that processed no
    # record in common has a row with a null offset.
    shared = (
        processed_by_both.where(F.col("offset").isNotNull())
        .withColumn("consumer", F.explode(F.array("first.consumer", "second.consumer")))
        .select(*_MEMBER, "offset")
        .distinct()
        .groupBy(*_MEMBER)
        .agg(F.count("*").alias("shared"))
    )
    return (
        processed.join(repeated, list(_MEMBER), "left")
        .join(shared, list(_MEMBER), "left")
        .select(
            *_MEMBER,
            "records",
            "first_offset",
            "last_offset",
            "first_us",
            "last_us",
            F.coalesce("repeated", F.lit(0)).alias("repeated"),
            F.coalesce("shared", F.lit(0)).alias("shared"),
        )
    )
