"""What the tables about ZooKeeper share: its transactions, and the group of each consumer.

Consumers of the old kind coordinate themselves through ZooKeeper. Each change of ZooKeeper's data,
such as a new node in its tree, is a transaction with a number (zxid). All servers of ZooKeeper
apply the same transactions in the same order.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipeline.engine.events import detail, of_kind
from protocol.trace import TraceKind
from protocol.trace_schema import ZooKeeperTxnDetail


def zookeeper_txns(events: DataFrame) -> DataFrame:
    """List the transactions that any server of ZooKeeper has applied, each once.

    `events` has one row per event. Output grain: one row per run and zxid.
    Columns:
    - `run`, `zxid`;
    - `applied_us`: when the first server applied the transaction, in microseconds on the run's
      clock;
    - `session`: the session of the client that made the change;
    - `op`: what was done, such as create;
    - `path`, `data`: the node of ZooKeeper's tree that was changed, and its new content;
    - `ephemeral`: whether this node is deleted when the session ends.

    Nulls: `path`, `data`, `ephemeral` of a transaction that has no such part.
    """
    txn = detail("session", "op", "path", "data", "ephemeral", of=ZooKeeperTxnDetail)
    return (
        of_kind(events, TraceKind.ZOOKEEPER_TXN_APPLIED)
        # In these rows, `offset` is the zxid.
        .where(F.col("offset").isNotNull())
        .withColumn("txn", txn)
        .groupBy("run", F.col("offset").alias("zxid"))
        # All servers apply the same transactions. So these values are equal in the rows of all
        # servers, and `min` just picks one of them.
        .agg(
            F.min("time_us").alias("applied_us"),
            *(
                F.min(f"txn.{name}").alias(name)
                for name in ("session", "op", "path", "data", "ephemeral")
            ),
        )
    )


def zookeeper_consumers(events: DataFrame) -> DataFrame:
    """Name the group of each consumer on ZooKeeper.

    Such a consumer gets its partitions in attempts: in each attempt, it tries once to own its share
    of the partitions. Only consumers that began an attempt are listed.
    `events` has one row per event. Output grain: one row per run and consumer.
    Columns: `run`, `consumer` (its node), `consumer_group`. Nulls: none.
    """
    return (
        of_kind(events, TraceKind.ZOOKEEPER_ATTEMPT_STARTED)
        .where(F.col("group").isNotNull())
        .groupBy("run", F.col("node").alias("consumer"))
        .agg(F.min("group").alias("consumer_group"))
    )
