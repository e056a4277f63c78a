"""The table `zookeeper_sessions`: each session, when it was over, when its client knew."""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from pipeline.engine.events import detail, of_kind
from protocol.trace import TraceKind
from protocol.trace_schema import ZooKeeperClientDetail, ZooKeeperSessionDetail


def zookeeper_sessions(
    events: DataFrame, zookeeper_txns: DataFrame, zookeeper_consumers: DataFrame
) -> DataFrame:
    """Follow each session of the ensemble from its opening to its end.

    Input grain: one row per event; one row per transaction; one row per consumer. Output grain: one
    row per run and session that the ensemble has opened.
    Columns: `run`, `session` as ZooKeeper prints it; `group`, `consumer` (its node), `incarnation`
    of its client; `opened_us`: the first server applied the opening; `connected_us`: the client
    heard of it; `connections`, `servers`: how often the client was connected, and to which servers;
    `disconnections`: how often it noticed the loss of a connection; `silent_us`: the leader let the
    session expire; `ended_us`: the first server applied the end, its ephemeral znodes vanish;
    `end`: `expired` or `closed`; `learned_us`: the client heard of the expiry; all in microseconds
    on the run's clock. `created`, `deleted`: znodes that the session has created and deleted, and
    `deleted_of_others`: of these, ephemeral znodes of another session.
    Nulls: `consumer`, `incarnation`, `connected_us` if the client never heard that it was open;
    `group` if its client never began to rebalance; `silent_us`, `ended_us`, `end`, `learned_us` if
    that never came.
    """
    opened = zookeeper_txns.where(F.col("op") == "createSession").select(
        "run", "session", F.col("applied_us").alias("opened_us")
    )
    ended = (
        zookeeper_txns.where(F.col("op") == "closeSession")
        .groupBy("run", "session")
        .agg(F.min("applied_us").alias("ended_us"))
    )
    key = ["run", "session"]
    return (
        opened.join(_clients(events), key, "left")
        .join(_expirations(events), key, "left")
        .join(ended, key, "left")
        .join(_writes(zookeeper_txns), key, "left")
        .join(F.broadcast(zookeeper_consumers), ["run", "consumer"], "left")
        .select(
            "run",
            "session",
            F.col("consumer_group").alias("group"),
            "consumer",
            "incarnation",
            "opened_us",
            "connected_us",
            F.coalesce("connections", F.lit(0)).alias("connections"),
            F.coalesce("servers", F.array().cast("array<string>")).alias("servers"),
            F.coalesce("disconnections", F.lit(0)).alias("disconnections"),
            "silent_us",
            "ended_us",
            F.when(
                F.col("ended_us").isNotNull(),
                F.when(F.col("silent_us").isNotNull(), "expired").otherwise("closed"),
            ).alias("end"),
            "learned_us",
            *(
                F.coalesce(name, F.lit(0)).alias(name)
                for name in ("created", "deleted", "deleted_of_others")
            ),
        )
    )


def _clients(events: DataFrame) -> DataFrame:
    """One row per session that a client has heard of: what it heard of it, and when."""
    state = F.col("said.state")
    connected = state == "SyncConnected"
    return (
        of_kind(events, TraceKind.ZOOKEEPER_CLIENT_STATE)
        .withColumn("said", detail("session", "state", of=ZooKeeperClientDetail))
        .groupBy("run", F.col("said.session").alias("session"))
        .agg(
            F.min("node").alias("consumer"),
            F.min("incarnation").alias("incarnation"),
            F.min(F.when(connected, F.col("time_us"))).alias("connected_us"),
            F.count_if(connected).alias("connections"),
            F.sort_array(F.collect_set(F.when(connected, F.col("peer")))).alias("servers"),
            F.count_if(state == "Disconnected").alias("disconnections"),
            F.min(F.when(state == "Expired", F.col("time_us"))).alias("learned_us"),
        )
    )


def _expirations(events: DataFrame) -> DataFrame:
    """One row per session that a leader let expire."""
    said = detail("session", of=ZooKeeperSessionDetail)
    return (
        of_kind(events, TraceKind.ZOOKEEPER_SESSION_EXPIRED)
        .withColumn("said", said)
        .groupBy("run", F.col("said.session").alias("session"))
        .agg(F.min("time_us").alias("silent_us"))
    )


def _writes(txns: DataFrame) -> DataFrame:
    """One row per session that created or deleted a znode."""
    # Before a delete of a path there is always its creation: deletes of nothing are refused.
    of_path = Window.partitionBy("run", "path").orderBy("zxid")
    of_another = F.col("before.ephemeral") & (F.col("before.session") != F.col("session"))
    deletes = F.col("op") == "delete"
    return (
        txns.where(F.col("op").isin("create", "delete"))
        .withColumn("before", F.lag(F.struct("session", "ephemeral")).over(of_path))
        .groupBy("run", "session")
        .agg(
            F.count_if(F.col("op") == "create").alias("created"),
            F.count_if(deletes).alias("deleted"),
            F.count_if(deletes & of_another).alias("deleted_of_others"),
        )
    )
