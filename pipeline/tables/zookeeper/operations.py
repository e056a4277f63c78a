"""The table `zookeeper_operations`: how many requests each client sent to ZooKeeper, and when.

The report compares these requests with the requests of groups that have a coordinator
(`coordinator_requests`).
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipeline.engine.events import of_kind
from pipeline.table_columns import REQUEST_PERIOD_US
from protocol.api import Api
from protocol.trace import TraceKind

READS = (Api.EXISTS, Api.GET_DATA, Api.GET_CHILDREN)
"""APIs that read ZooKeeper's data."""
WRITES = (Api.CREATE, Api.DELETE, Api.SET_DATA)
"""APIs that change ZooKeeper's data."""
OF_SESSIONS = (Api.CONNECT, Api.CLOSE_SESSION, Api.PING, Api.SET_WATCHES)
"""APIs about the client's session, which is its lasting connection to ZooKeeper."""
_EFFECTS = {"read": READS, "write": WRITES, "session": OF_SESSIONS}
"""Value of the column `effect` -> the APIs whose requests have this value."""


def zookeeper_operations(all_events: DataFrame, zookeeper_consumers: DataFrame) -> DataFrame:
    """Count the requests of ZooKeeper's clients in each tenth of a second.

    `all_events` has one row per event of the whole trace. `zookeeper_consumers` has one row per
    consumer. Output grain: one row per run, client, incarnation, API and tenth of a second in which
    the client sent such a request.
    Columns:
    - `run`, `group`, `consumer` (the client's node), `incarnation` (how often its process had
      started before), `api`;
    - `effect`: `read`, `write`, or `session` for a request about the session itself: connect,
      close, ping, set watches again;
    - `from_us`: the beginning of the tenth of a second, in microseconds on the run's clock;
    - `requests`: how many requests the client sent in it.

    Nulls: `group` if the client never began to rebalance.
    """
    # Null for a request of any other API: such a request went to Kafka, and not to ZooKeeper.
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
            # This rounds the time down to the beginning of its period.
            (F.col("time_us") - F.col("time_us") % REQUEST_PERIOD_US).alias("from_us"),
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
