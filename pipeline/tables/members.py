"""A step: the consumer of each member id."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipeline.engine.events import detail, of_kind
from pipeline.intermediate.groups import MEMBER_KINDS
from protocol.trace import TraceKind
from protocol.trace_schema import MemberDetail


def member_names(events: DataFrame) -> DataFrame:
    """Name the consumer of each member id.

    A row of the consumer itself names its node; without such a row, the coordinator's rows name its
    client id.
    Input grain: one row per event. Output grain: one row per run, group and member id.
    Columns: `run`, `group`, `member`, `consumer` (its node, or its client id). Nulls: none.
    """
    consumer_rows = of_kind(events, *MEMBER_KINDS).select("run", "group", "member", "node")
    client_id = detail("client_id", of=MemberDetail).getField("client_id")
    added = of_kind(events, TraceKind.MEMBER_ADDED).select(
        "run", "group", "member", client_id.alias("node")
    )
    known = consumer_rows.unionByName(added).where(
        F.col("group").isNotNull() & (F.col("member") != "") & F.col("node").isNotNull()
    )
    return known.groupBy("run", "group", "member").agg(F.min("node").alias("consumer"))
