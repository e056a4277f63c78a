"""The table `zookeeper_sessions`: when each session began and ended, and when its client knew.

A session is a client's lasting connection to ZooKeeper's servers (the ensemble). The servers store
a tree, whose nodes are called znodes. A consumer registers itself as a member of its group by an
ephemeral znode: a znode that is deleted when the session of its creator ends.

If a client is silent for too long, the leader of the ensemble expires the client's session. The
client learns only later that its session has expired. So the table has both moments.
"""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from pipeline.engine.events import detail, of_kind
from protocol.trace import TraceKind
from protocol.trace_schema import ZooKeeperClientDetail, ZooKeeperSessionDetail


def zookeeper_sessions(
    events: DataFrame, zookeeper_txns: DataFrame, zookeeper_consumers: DataFrame
) -> DataFrame:
    """List the sessions that the ensemble opened.

    `events` has one row per event, `zookeeper_txns` one row per transaction, and
    `zookeeper_consumers` one row per consumer. Output grain: one row per run and session that the
    ensemble opened.
    Columns:
    - `run`; `session`: the session's number as ZooKeeper prints it; `group`, `consumer` (the node)
      and `incarnation` of the session's client;
    - `opened_us`: when the first server applied the opening;
    - `connected_us`: when the client got the answer to the opening;
    - `silent_us`: when the leader expired the session, because its client had been silent for too
      long;
    - `ended_us`: when the first server applied the session's end, which deletes the session's
      ephemeral znodes;
    - `learned_us`: when the client learned that its session had expired;
    - `end`: `expired`, or `closed` by the client;
    - `connections`, `servers`: how often the client connected, and to which servers;
      `disconnections`: how often the client noticed that it had lost the connection;
    - `created`, `deleted`: how many znodes the session created and deleted; `deleted_of_others`:
      how many of the deleted znodes were ephemeral znodes of another session.

    Moments are microseconds on the run's clock.
    Nulls: `consumer`, `incarnation`, `connected_us` if the client never got the answer; `group` if
    the client never began to rebalance; `silent_us` if no leader expired the session; `ended_us`,
    `end` if the session did not end; `learned_us` if the client did not learn of an expiry.
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
    """One row per session that a client knew: what the client wrote about it."""
    state = F.col("decoded.state")
    connected = state == "SyncConnected"
    return (
        of_kind(events, TraceKind.ZOOKEEPER_CLIENT_STATE)
        .withColumn("decoded", detail("session", "state", of=ZooKeeperClientDetail))
        .groupBy("run", F.col("decoded.session").alias("session"))
        .agg(
            # All rows about a session are of the same client. `min` picks its node and incarnation.
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
    """One row per session that a leader expired."""
    decoded = detail("session", of=ZooKeeperSessionDetail)
    return (
        of_kind(events, TraceKind.ZOOKEEPER_SESSION_EXPIRED)
        .withColumn("decoded", decoded)
        .groupBy("run", F.col("decoded.session").alias("session"))
        .agg(F.min("time_us").alias("silent_us"))
    )


def _writes(txns: DataFrame) -> DataFrame:
    """One row per session that created or deleted a znode: how many it created and deleted."""
    # `before` is the previous create or delete of the same path. Before a delete, this is always
    # the create of the znode that is deleted, because ZooKeeper refuses to delete a missing znode.
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
