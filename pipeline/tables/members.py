"""Finds the consumer of each member id.

A coordinator knows members by their ids. If a consumer joins again, the coordinator may give it a
new id. So one consumer can have several ids in a run. The tables name a consumer by its node, such
as `consumer-readers-0`, because the name of the node stays the same.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipeline.engine.events import detail, of_kind
from pipeline.intermediate.groups import MEMBER_KINDS
from protocol.trace import TraceKind
from protocol.trace_schema import MemberDetail


def member_names(events: DataFrame) -> DataFrame:
    """Name the consumer of each member id.

    The rows that a consumer wrote itself tell its node and its member id. If the trace lacks these
    rows, the coordinator's row about the new member (MEMBER_ADDED) tells the client id of the
    consumer. A consumer of coordlab uses the name of its node as its client id.

    `events` has one row per event. Output grain: one row per run, group and member id.
    Columns: `run`, `group`, `member`, `consumer` (the node, or the client id). Nulls: none.
    """
    consumer_rows = of_kind(events, *MEMBER_KINDS).select("run", "group", "member", "node")
    client_id = detail("client_id", of=MemberDetail).getField("client_id")
    added = of_kind(events, TraceKind.MEMBER_ADDED).select(
        "run", "group", "member", client_id.alias("node")
    )
    named = consumer_rows.unionByName(added).where(
        F.col("group").isNotNull() & (F.col("member") != "") & F.col("node").isNotNull()
    )
    return named.groupBy("run", "group", "member").agg(F.min("node").alias("consumer"))
