"""The table `zookeeper_operations`: numbers of requests from each client to ZooKeeper over time.

An incarnation is one life of a client's process, counted from 0.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipeline.engine.events import of_kind
from protocol.api import Api
from protocol.trace import TraceKind

STEP_US = 100_000
"""Requests are counted in steps of this length, a tenth of a second."""
READS = (Api.EXISTS, Api.GET_DATA, Api.GET_CHILDREN)
"""APIs that read ZooKeeper's data."""
WRITES = (Api.CREATE, Api.DELETE, Api.SET_DATA)
"""APIs that change ZooKeeper's data."""
OF_SESSIONS = (Api.CONNECT, Api.CLOSE_SESSION, Api.PING, Api.SET_WATCHES)
"""APIs about the client's session (its lasting connection to ZooKeeper)."""
_EFFECTS = {"read": READS, "write": WRITES, "session": OF_SESSIONS}
"""The APIs of each value of the column `effect`."""


def zookeeper_operations(all_events: DataFrame, zookeeper_consumers: DataFrame) -> DataFrame:
    """Return the numbers of requests of ZooKeeper's clients per tenth of a second.

    `all_events` has one row per event, and includes the events about all messages.
    `zookeeper_consumers` has one row per consumer. Output grain: one row per run, client,
    incarnation, API and tenth of a second in which the client sent such a request.
    Columns:
    - `run`, `group`, `consumer` (the client's node), `incarnation`, `api`;
    - `effect`: `read`, `write`, or `session` for a request about the session itself: connect,
      close, ping, set watches again;
    - `from_us`: beginning of the tenth of a second, microseconds of the run's clock;
    - `requests`: number of requests in the tenth of a second.

    Nulls: `group` if the client never began to rebalance.
    """
    # The lists hold all APIs of ZooKeeper's clients. A request of another API went to Kafka, not to
    # ZooKeeper: its effect is null.
    effect = F.coalesce(
        *(
            F.when(F.col("api").isin([api.label for api in apis]), name)
            for name, apis in _EFFECTS.items()
        )
    )
    return (
        of_kind(all_events, TraceKind.REQUEST_SENT)
        .withColumn("effect", effect)
        .where(F.col("effect").isNotNull())
        .groupBy(
            "run",
            F.col("node").alias("consumer"),
            "incarnation",
            "api",
            "effect",
            # Round down to the beginning of the tenth of a second.
            (F.col("time_us") - F.col("time_us") % STEP_US).alias("from_us"),
        )
        .agg(F.count("*").alias("requests"))
        .join(F.broadcast(zookeeper_consumers), ["run", "consumer"], "left")
        .select(
            "run",
            F.col("consumer_group").alias("group"),
            "consumer",
            "incarnation",
            "api",
            "effect",
            "from_us",
            "requests",
        )
    )
