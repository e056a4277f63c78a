"""Pairs the requests that members sent to their coordinators with the answers.

A client writes a row into the trace when it sends a request, and another row when the answer comes
or the request fails. Both rows have the request's correlation id. Several tables need to know how
long a member waited for an answer. So the two rows are joined here.
"""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from pipeline.engine.events import of_kind
from protocol.api import Api
from protocol.trace import TraceKind

GROUP_APIS = tuple(
    api.label
    for api in (
        Api.JOIN_GROUP,
        Api.SYNC_GROUP,
        Api.HEARTBEAT,
        Api.OFFSET_COMMIT,
        Api.OFFSET_FETCH,
    )
)
"""APIs whose successful answers show that a member takes part in its group. LeaveGroup is not
listed, because its answer shows the contrary.
"""


def exchanges(events: DataFrame) -> DataFrame:
    """Pair each answer (or failure) of a group API with its request.

    Correlation ids may start again with each connection, so an answer belongs to the last request
    before it that has the same id.
    `events` has one row per event. Output grain: one row per request that was answered or failed.
    Columns: `run`, `group`, `node` (the client), `incarnation`, `seq`, `peer` (the broker),
    `member`, `generation`, `api`, `error` (NONE: success), `sent_us`, `answered_us` in microseconds
    on the run's clock.
    Nulls: `sent_us` if the trace lacks the request; `member`, `generation` before the first join.
    """
    kinds = (TraceKind.REQUEST_SENT, TraceKind.RESPONSE_RECEIVED, TraceKind.REQUEST_FAILED)
    sent = F.when(F.col("kind") == TraceKind.REQUEST_SENT.value, F.col("time_us"))
    # Two nodes can have several connections. `cause` is the purpose of the connection.
    request = ("run", "node", "incarnation", "peer", "cause", "api", "correlation_id")
    # The rows with the same values up to the current row. `seq` is the order of the rows.
    so_far = (
        Window.partitionBy(*request)
        .orderBy("seq")
        .rowsBetween(Window.unboundedPreceding, Window.currentRow)
    )
    return (
        of_kind(events, *kinds)
        .where(F.col("api").isin(list(GROUP_APIS)) & F.col("group").isNotNull())
        # In the row of an answer, `sent_us` is the time of the last request before the answer.
        .withColumn("sent_us", F.last(sent, ignorenulls=True).over(so_far))
        .where(F.col("kind") != TraceKind.REQUEST_SENT.value)
        .select(
            "run",
            "group",
            "node",
            "incarnation",
            "seq",
            "peer",
            "member",
            "generation",
            "api",
            F.coalesce("error", F.lit("NONE")).alias("error"),
            "sent_us",
            F.col("time_us").alias("answered_us"),
        )
    )
