"""The step `exchanges`: requests of the group APIs with their answers, from the clients' rows.

A step computes a DataFrame that tables read. A correlation id is the number by which a client
matches an answer to its request. An incarnation is one life of a node's process; `seq` numbers the
rows of an incarnation.
"""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from pipeline.engine.events import of_kind
from protocol.api import Api
from protocol.trace import TraceKind

GROUP_APIS = tuple(
    key.label
    for key in (
        Api.JOIN_GROUP,
        Api.SYNC_GROUP,
        Api.HEARTBEAT,
        Api.OFFSET_COMMIT,
        Api.OFFSET_FETCH,
    )
)
"""APIs whose successful answers show that a member takes part in its group. An answer to LeaveGroup
shows the contrary, so LeaveGroup is left out.
"""


def exchanges(events: DataFrame) -> DataFrame:
    """Pair each answer (or failure) of a group API with the request that it ends.

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
    # `cause` is the purpose of the connection. Two nodes can have several connections with
    # different purposes.
    request = ("run", "node", "incarnation", "peer", "cause", "api", "correlation_id")
    # For each row, the rows with the same key up to this row; the last REQUEST_SENT among them is
    # the request.
    so_far = (
        Window.partitionBy(*request)
        .orderBy("seq")
        .rowsBetween(Window.unboundedPreceding, Window.currentRow)
    )
    return (
        of_kind(events, *kinds)
        .where(F.col("api").isin(list(GROUP_APIS)) & F.col("group").isNotNull())
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
