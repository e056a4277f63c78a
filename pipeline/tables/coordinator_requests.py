"""The table `coordinator_requests`: how many requests of group coordination each client sent.

The report compares groups that have a coordinator with groups that coordinate through ZooKeeper.
When the members of a group change, a group with a coordinator pays with requests such as JoinGroup
and SyncGroup. The table counts these requests.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipeline.engine.events import of_kind
from pipeline.table_columns import REQUEST_PERIOD_US
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

    `all_events` has one row per event of the whole trace. Output grain: one row per run, group,
    client, incarnation, API and tenth of a second in which the client sent such a request.
    Columns:
    - `run`, `group`, `consumer` (the client's node), `incarnation`, `api`;
    - `from_us`: the beginning of the tenth of a second, in microseconds on the run's clock;
    - `requests`: how many requests the client sent in it.

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
            # This rounds the time down to the beginning of its period.
            (F.col("time_us") - F.col("time_us") % REQUEST_PERIOD_US).alias("from_us"),
        )
        .agg(F.count("*").alias("requests"))
    )
