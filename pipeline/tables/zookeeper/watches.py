"""The table `zookeeper_watches`: how fast a consumer on ZooKeeper hears of a change.

ZooKeeper stores a tree, whose nodes are called znodes. With a watch, a client asks a server to
notify it of the next change of a znode. Such a change can be a new member of the client's group.
When the change comes, the server sends an event to the client, and the client tries to get its new
share of the partitions (an attempt). The table has a row for each such event. Each change of the
tree is a transaction with a number, the zxid.
"""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from pipeline.engine.events import detail, of_kind
from protocol.trace import TraceKind
from protocol.trace_schema import ZooKeeperWatchDetail


def zookeeper_watches(
    events: DataFrame, zookeeper_txns: DataFrame, zookeeper_consumers: DataFrame
) -> DataFrame:
    """List the events of watches that servers sent to clients.

    `events` has one row per event of the trace, `zookeeper_txns` one row per transaction, and
    `zookeeper_consumers` one row per consumer. Output grain: one row per run and event of a watch
    that a server sent to a client.
    Columns:
    - `run`, `server`, `incarnation` (of the server), `group`, `consumer` (the client's node);
    - `type`: ZooKeeper's name for the type of the event; `path`: the watched path;
    - `zxid`: the transaction that caused the event. It is the last transaction that the server had
      applied before;
    - `changed_us`: when the first server applied this transaction;
    - `fired_us`: when this server sent the event;
    - `attempt_us`: when the consumer began its next attempt;
    - `lag_us`: the time from `changed_us` to `fired_us`.

    Moments are microseconds on the run's clock.
    Nulls: `group` if the client never began to rebalance; `changed_us`, `lag_us` if the transaction
    is not in the trace; `attempt_us` if no attempt followed.
    """
    return (
        _with_attempts(events)
        .join(zookeeper_txns.select("run", "zxid", "applied_us"), ["run", "zxid"], "left")
        .join(F.broadcast(zookeeper_consumers), ["run", "consumer"], "left")
        .select(
            "run",
            "server",
            "incarnation",
            F.col("consumer_group").alias("group"),
            "consumer",
            "type",
            "path",
            "zxid",
            F.col("applied_us").alias("changed_us"),
            "fired_us",
            (F.col("fired_us") - F.col("applied_us")).alias("lag_us"),
            "attempt_us",
        )
    )


def _with_attempts(events: DataFrame) -> DataFrame:
    """One row per event of a watch, with the beginning of its consumer's next attempt."""
    fires = F.col("kind") == TraceKind.ZOOKEEPER_WATCH_FIRED.value
    attempted_us = F.when(~fires, F.col("time_us"))
    from_here = Window.partitionBy("run", "consumer").orderBy("time_us")
    return (
        of_kind(events, TraceKind.ZOOKEEPER_WATCH_FIRED, TraceKind.ZOOKEEPER_ATTEMPT_STARTED)
        # A server writes the row about its event, with the client as `peer`. A consumer writes the
        # row about its attempt.
        .withColumn("consumer", F.when(fires, F.col("peer")).otherwise(F.col("node")))
        .withColumn(
            "attempt_us",
            # The range begins at 0, so an attempt in the same microsecond as the event counts, too.
            F.min(attempted_us).over(from_here.rangeBetween(0, Window.unboundedFollowing)),
        )
        .where(fires)
        .withColumn("watch", detail("type", "path", of=ZooKeeperWatchDetail))
        .select(
            "run",
            F.col("node").alias("server"),
            "incarnation",
            "consumer",
            "watch.type",
            "watch.path",
            F.col("offset").alias("zxid"),
            F.col("time_us").alias("fired_us"),
            "attempt_us",
        )
    )
