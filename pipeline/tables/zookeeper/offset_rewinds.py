"""The table `offset_rewinds`: commits that set a group's committed offset back.

After such a commit, a new owner of the partition would read records again that the group has
already processed. The offsets are stored in Kafka, or in ZooKeeper for a group whose consumers get
their partitions there.
"""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from pipeline.engine.events import detail, of_kind
from protocol.trace import TraceKind
from protocol.trace_schema import ZooKeeperClientDetail

_OFFSET_PATH = r"^/consumers/([^/]+)/offsets/([^/]+)/([0-9]+)$"
"""The path of a committed offset in ZooKeeper's tree: it names the group, the topic and the
partition.
"""


def offset_rewinds(
    events: DataFrame, zookeeper_txns: DataFrame, member_names: DataFrame
) -> DataFrame:
    """List the commits whose offset is lower than the offset of the previous commit.

    The previous commit is the last commit before of the same group and partition, to the same
    store. A group on ZooKeeper can commit to both stores, Kafka and ZooKeeper. The commits of the
    two stores are not compared with each other.

    `events` has one row per event, `zookeeper_txns` one row per transaction of ZooKeeper, and
    `member_names` one row per member id. Output grain: one row per run, group, partition, store and
    commit that set the offset back.
    Columns:
    - `run`, `group`, `partition`;
    - `store`: `kafka` or `zookeeper`;
    - `at_us`: when the commit was stored, in microseconds on the run's clock;
    - `consumer`: the node that committed;
    - `offset_before`, `offset_after`;
    - `records`: the number of records between the two offsets, which a new owner of the partition
      would read again.

    Nulls: `consumer` if the commit names no member: an administrator made the commit, or a consumer
    on ZooKeeper made it and stored it in Kafka.
    """
    commits = _in_kafka(events, member_names).unionByName(_in_zookeeper(events, zookeeper_txns))
    in_order = Window.partitionBy("run", "group", "partition", "store").orderBy("commit_order")
    return (
        commits.withColumn("offset_before", F.lag("offset_after").over(in_order))
        .where(F.col("offset_after") < F.col("offset_before"))
        .select(
            "run",
            "group",
            "partition",
            "store",
            "at_us",
            "consumer",
            "offset_before",
            "offset_after",
            (F.col("offset_before") - F.col("offset_after")).alias("records"),
        )
    )


def _in_kafka(events: DataFrame, member_names: DataFrame) -> DataFrame:
    """One row per committed offset that a coordinator stored."""
    return (
        of_kind(events, TraceKind.COMMIT_STORED)
        .where(
            F.col("group").isNotNull()
            & F.col("partition").isNotNull()
            & F.col("offset").isNotNull()
        )
        .join(F.broadcast(member_names), ["run", "group", "member"], "left")
        .select(
            "run",
            "group",
            "partition",
            F.lit("kafka").alias("store"),
            F.struct("time_us", "node", "incarnation", "seq").alias("commit_order"),
            F.col("time_us").alias("at_us"),
            "consumer",
            F.col("offset").alias("offset_after"),
        )
    )


def _in_zookeeper(events: DataFrame, txns: DataFrame) -> DataFrame:
    """One row per committed offset that a consumer wrote to ZooKeeper."""
    group = F.regexp_extract("path", _OFFSET_PATH, 1)
    topic = F.regexp_extract("path", _OFFSET_PATH, 2)
    index = F.regexp_extract("path", _OFFSET_PATH, 3)
    # The node of the client of each session.
    clients = (
        of_kind(events, TraceKind.ZOOKEEPER_CLIENT_STATE)
        .groupBy("run", detail("session", of=ZooKeeperClientDetail).session.alias("session"))
        .agg(F.min("node").alias("consumer"))
    )
    return (
        txns.where(F.col("path").rlike(_OFFSET_PATH) & F.col("op").isin("create", "setData"))
        .join(F.broadcast(clients), ["run", "session"], "left")
        .select(
            "run",
            group.alias("group"),
            F.concat_ws("-", topic, index).alias("partition"),
            F.lit("zookeeper").alias("store"),
            # Transactions are ordered by their number (zxid). The struct must have the same fields
            # as in `_in_kafka`, because both structs are in one column. So the zxid stands in the
            # first field, `time_us`, and all other fields are empty.
            F.struct(
                F.col("zxid").alias("time_us"),
                F.lit("").alias("node"),
                F.lit(0).alias("incarnation"),
                F.lit(0).cast("bigint").alias("seq"),
            ).alias("commit_order"),
            F.col("applied_us").alias("at_us"),
            "consumer",
            F.col("data").cast("bigint").alias("offset_after"),
        )
    )
