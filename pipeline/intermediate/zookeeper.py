"""Steps for the tables of ZooKeeper: its transactions, and the group of each consumer.

A transaction is a change of ZooKeeper's data; its zxid is its number in the order of all changes.
The ensemble is the set of ZooKeeper's servers. A consumer on ZooKeeper gets its share of the
partitions in attempts: in each, it tries once to own them.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipeline.engine.events import detail, of_kind
from protocol.trace import TraceKind
from protocol.trace_schema import ZooKeeperTxnDetail


def zookeeper_txns(events: DataFrame) -> DataFrame:
    """List the transactions that any server of the ensemble has applied, each once.

    `events` has one row per event. Output grain: one row per run and zxid.
    Columns:
    - `run`, `zxid`;
    - `applied_us`: when the first server applied the transaction, in microseconds on the run's
      clock;
    - `session`: the client's session that made the change; `op`: the sort of change, such as
      create;
    - `path`, `data`: the changed node of ZooKeeper's tree, and its new content; `ephemeral`:
      whether the node is deleted when the session ends.

    Nulls: `path`, `data`, `ephemeral` of a transaction that has no such part.
    """
    txn = detail("session", "op", "path", "data", "ephemeral", of=ZooKeeperTxnDetail)
    return (
        of_kind(events, TraceKind.ZOOKEEPER_TXN_APPLIED)
        # In these rows, `offset` is the zxid.
        .where(F.col("offset").isNotNull())
        .withColumn("txn", txn)
        .groupBy("run", F.col("offset").alias("zxid"))
        # All servers apply the same transactions: the columns are equal in the rows of all servers,
        # and `min` returns the value of any of them.
        .agg(
            F.min("time_us").alias("applied_us"),
            *(
                F.min(f"txn.{name}").alias(name)
                for name in ("session", "op", "path", "data", "ephemeral")
            ),
        )
    )


def zookeeper_consumers(events: DataFrame) -> DataFrame:
    """Name the group of each consumer that has begun an attempt of a rebalance.

    `events` has one row per event. Output grain: one row per run and consumer.
    Columns: `run`, `consumer` (its node), `consumer_group`. Nulls: none.
    """
    return (
        of_kind(events, TraceKind.ZOOKEEPER_ATTEMPT_STARTED)
        .where(F.col("group").isNotNull())
        .groupBy("run", F.col("node").alias("consumer"))
        .agg(F.min("group").alias("consumer_group"))
    )
