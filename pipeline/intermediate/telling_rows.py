"""Keeps the rows of a trace that tell tables something: the telling rows, a third of all rows.

Most rows of a trace are about Produce and Fetch requests, which no table needs. This module drops
them once, so no table has to read them. Two sorts of rows are dropped: requests and answers of
other APIs than LISTED_APIS, and rows of the kinds in NO_TABLES_KINDS. Bad rows, which lack a
required value or are of an unknown kind, are kept, because the table `bad_rows` lists them.

A few tables need all rows, and read the whole trace: the table `runs`, which counts events, and the
tables that count requests.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipeline.engine.events import detail
from protocol.api import Api
from protocol.ids import controller_name
from protocol.trace import TraceKind
from protocol.trace_schema import RecordsConsumedDetail

LISTED_APIS = tuple(
    api.label
    for api in (
        Api.FIND_COORDINATOR,
        Api.JOIN_GROUP,
        Api.SYNC_GROUP,
        Api.HEARTBEAT,
        Api.LEAVE_GROUP,
        Api.OFFSET_COMMIT,
        Api.OFFSET_FETCH,
        Api.INIT_PRODUCER_ID,
        Api.ADD_OFFSETS_TO_TXN,
        Api.TXN_OFFSET_COMMIT,
        Api.END_TXN,
        Api.WRITE_TXN_MARKERS,
        Api.ELECT_LEADERS,
        Api.ALTER_PARTITION_REASSIGNMENTS,
        Api.ALTER_PARTITION,
        Api.BROKER_REGISTRATION,
        Api.BROKER_HEARTBEAT,
    )
)
"""APIs of coordination and control. Fetch is not listed, because most Fetch requests get records.
But a Fetch request to a controller gets metadata, and `is_listed` adds such requests.
"""
_CONTROLLER_PREFIX = controller_name(0).removesuffix("0")
"""The beginning of the names of all controllers, such as `controller-`."""
_SERVER_KINDS = (TraceKind.REQUEST_RECEIVED, TraceKind.RESPONSE_SENT)
"""Kinds of rows that the server of a request writes. The client writes the other MESSAGE_KINDS."""
MESSAGE_KINDS = (
    TraceKind.REQUEST_SENT,
    TraceKind.RESPONSE_RECEIVED,
    TraceKind.REQUEST_FAILED,
    *_SERVER_KINDS,
)
"""Kinds of rows about requests and answers. They are two thirds of a trace."""
NO_TABLES_KINDS = (
    TraceKind.HIGH_WATERMARK,
    TraceKind.SESSION_RESTARTED,
    TraceKind.APPEND_STARTED,
)
"""Kinds with many rows that no table reads. If a new table needs rows of a kind, remove the kind
from this list.
"""
_SPAN_KINDS = (TraceKind.RECORDS_CONSUMED, TraceKind.RECORDS_PRODUCED)
"""Kinds of rows about a batch of records. Only these have a value in the column `span`."""


def by_server() -> Column:
    """Return whether the server of a request wrote the row; otherwise its client did."""
    return _is_any_of(_SERVER_KINDS)


def is_listed() -> Column:
    """Return whether a row of MESSAGE_KINDS is about coordination or control."""
    # A row of the server is written by the server; a row of the client names the server as `peer`.
    server = F.when(by_server(), F.col("node")).otherwise(F.col("peer"))
    fetches_metadata = (F.col("api") == Api.FETCH.label) & server.startswith(_CONTROLLER_PREFIX)
    return F.col("api").isin(list(LISTED_APIS)) | fetches_metadata


def telling_rows(rows: DataFrame) -> DataFrame:
    """Keep the bad rows of a trace, and the good rows that tables read.

    Input grain: one row per traced event, bad rows included (`events.read_events`). Output grain:
    one row per event that is kept. Columns: those of the input, and `span`. In a row about a batch
    of records, `span` holds three fields of `detail`:
    - `count`: the number of records;
    - `last`: the offset of the last record;
    - `work_us`: the time that the application worked on them.

    Nulls: `span` of rows about anything else; fields that `detail` lacks.
    """
    # `is_listed` is null if the row lacks `api` or `peer`. Such a row is dropped.
    is_unlisted_message = _is_any_of(MESSAGE_KINDS) & ~_certainly(is_listed())
    is_dropped = _is_any_of(NO_TABLES_KINDS) | is_unlisted_message
    # A row RECORDS_PRODUCED has only `count`. The fields `last` and `work_us` become null.
    fields = detail("count", "last", "work_us", of=RecordsConsumedDetail)
    span = F.when(_is_any_of(_SPAN_KINDS), fields)
    return rows.where(F.col("bad").isNotNull() | ~is_dropped).withColumn("span", span)


def _is_any_of(kinds: tuple[TraceKind, ...]) -> Column:
    """Return whether a row is of one of the kinds."""
    return F.col("kind").isin([kind.value for kind in kinds])


def _certainly(condition: Column) -> Column:
    """Return the condition, or false if the condition is null."""
    return F.coalesce(condition, F.lit(False))
