"""The table `coordinator_requests`: how many requests of each type a client sent for its group.

The comparison with groups on ZooKeeper uses it: a group with a coordinator pays for a change of its
members with JoinGroup, SyncGroup and the like.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipeline.engine.events import of_kind
from pipeline.tables.zookeeper.operations import STEP_US
from protocol.api import Api
from protocol.trace import TraceKind

OF_COORDINATION = (
    Api.FIND_COORDINATOR,
    Api.JOIN_GROUP,
    Api.SYNC_GROUP,
    Api.HEARTBEAT,
    Api.LEAVE_GROUP,
    Api.OFFSET_COMMIT,
    Api.OFFSET_FETCH,
)
"""APIs of group coordination."""


def coordinator_requests(all_events: DataFrame) -> DataFrame:
    """Count the requests of group coordination in each tenth of a second.

    `all_events` has one row per event, and includes the events about all messages. Output grain:
    one row per run, group, client, incarnation, API and tenth of a second in which the client sent
    a request of the API.
    Columns:
    - `run`, `group`, `consumer` (the client's node), `incarnation`, `api`;
    - `from_us`: the beginning of the tenth of a second, microseconds on the run's clock;
    - `requests`: the number of requests in the tenth of a second.

    Nulls: none.
    """
    return (
        of_kind(all_events, TraceKind.REQUEST_SENT)
        .where(F.col("api").isin([api.label for api in OF_COORDINATION]))
        .where(F.col("group").isNotNull())
        .groupBy(
            "run",
            "group",
            F.col("node").alias("consumer"),
            "incarnation",
            "api",
            # Round down to the beginning of the tenth of a second (STEP_US).
            (F.col("time_us") - F.col("time_us") % STEP_US).alias("from_us"),
        )
        .agg(F.count("*").alias("requests"))
    )
