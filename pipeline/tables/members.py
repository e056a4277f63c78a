"""Which consumer is behind a member id. No table of its own."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipeline.engine.events import detail, of_kind
from pipeline.intermediate.groups import MEMBER_KINDS
from protocol.trace import TraceKind
from protocol.trace_schema import MemberDetail


def member_names(events: DataFrame) -> DataFrame:
    """Name the consumer of each member id, by what it said itself or its coordinator.

    Input grain: one row per event. Output grain: one row per run, group and member id.
    Columns: `run`, `group`, `member`, `consumer` (its node, or its client id). Nulls: none.
    """
    own = of_kind(events, *MEMBER_KINDS).select("run", "group", "member", "node")
    client_id = detail("client_id", of=MemberDetail).getField("client_id")
    added = of_kind(events, TraceKind.MEMBER_ADDED).select(
        "run", "group", "member", client_id.alias("node")
    )
    known = own.unionByName(added).where(
        F.col("group").isNotNull() & (F.col("member") != "") & F.col("node").isNotNull()
    )
    return known.groupBy("run", "group", "member").agg(F.min("node").alias("consumer"))
