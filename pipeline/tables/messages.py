"""The table `messages`: requests and answers between nodes around each fault.

The report draws the messages as a diagram of who asked whom during a failover. So the table has
requests for group coordination and for the control of the cluster. Requests that carry records
(Produce, and Fetch from a broker) are left out.

An *exchange* is a request with its answer. There can be thousands of exchanges around one fault.
Therefore equal exchanges that follow one another, such as 40 heartbeats with success, become one
row with a count, and each fault keeps at most MESSAGES_PER_FAULT rows.
"""

from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as F

from pipeline.engine.events import of_kind
from pipeline.intermediate.telling_rows import MESSAGE_KINDS, by_server, is_listed
from protocol.api import Api
from protocol.trace import TraceKind

MESSAGES_PER_FAULT = 400
"""Maximum number of rows of a fault. This is enough for a failover of some 30 members."""
BEFORE_US = 1_000_000
"""The window of a fault, in which messages are listed, begins this long before the fault."""
AFTER_US = 1_000_000
"""The window ends this long after the last effect of the fault, within the next two limits."""
AT_LEAST_US = 5_000_000
"""The window ends at least this long after the fault."""
AT_MOST_US = 120_000_000
"""The window ends at most this long after the fault, even if an effect of the fault comes later."""

NO_ANSWER = "no answer"
"""The `outcome` of an exchange without an answer or a failure in the trace."""
_TURNING_POINTS = [api.label for api in (Api.JOIN_GROUP, Api.SYNC_GROUP, Api.LEAVE_GROUP)]
"""APIs whose requests change the group. Each successful request of these APIs has a row of its own,
because a reader wants to see each change.
"""
_REQUEST = ("run", "from_node", "to_node", "api", "correlation_id")
"""The columns that name a request. Correlation ids repeat, so several requests can have the same
values. `_exchanges` numbers such requests.
"""
_FAULT = ("run", "fault")
"""The columns that name a fault."""
_ROUTE = (*_FAULT, "from_node", "to_node", "api", "group")
"""The columns that name a route of requests in the window of a fault. All exchanges that become one
row have the same route.
"""


def messages(
    events: DataFrame,
    faults: DataFrame,
    broker_phases: DataFrame,
    client_phases: DataFrame,
    rebalances: DataFrame,
) -> DataFrame:
    """List the requests of coordination and control around each fault.

    Three rules:

    1. An exchange is listed if it overlaps the window of the fault. This window begins one second
       before the fault. It ends one second after the fault's last effect, which is one of these: a
       new coordinator became active, the new coordinator accepted a member, or a rebalance was
       complete. The end is at least 5 s and at most 120 s after the fault, and never after the next
       fault or the run's end.
    2. Exchanges that follow one another on one route (api, from, to, group) become one row if they
       have the same outcome, member and named coordinator. They must all have begun before the
       fault, or all after it. Successes of JoinGroup, SyncGroup and LeaveGroup stay single rows.
    3. Each fault keeps at most 400 rows, the most telling ones:
       - First, the earliest row of each kind. Rows are of the same kind if they have the same API,
         server, group and outcome. If many members do the same, the earliest row tells the story.
       - Then all other rows, client by client. The client with the greatest number of earliest rows
         comes first. Clients with the same number come in the order of their names.

    `events` has one row per event; the other inputs are the tables of these names.
    Output grain: one row per run, fault and sequence of equal exchanges.
    Columns:
    - `run`, `fault`; `api`, `purpose` (of the connection), `from_node` (the client), `to_node`,
      `group`, `member`, `correlation_id`;
    - moments of the row's first exchange in microseconds on the run's clock: `sent_us` (by the
      client), `received_us` and `answered_us` (by the server), `ended_us` (the client had the
      answer, or gave up);
    - `outcome`: NONE for success, Kafka's error, DISCONNECTED, TIMED_OUT, or `no answer`;
    - `named`: the coordinator that the answer to a FindCoordinator named;
    - `repeats`: the number of exchanges in the row; `last_ended_us`: the latest `ended_us` of these
      exchanges.

    Nulls:
    - a moment that the trace does not hold, or that did not come;
    - `group`, `member` if the request names none;
    - `purpose`, `group`, `member` if the trace has only the server's rows;
    - `named`, unless the exchange is a FindCoordinator that was answered.

    A trace without messages gives no rows.
    """
    windows = _windows(faults, broker_phases, client_phases, rebalances)
    exchanges = _exchanges(events).join(F.broadcast(windows), "run")
    # An exchange lasts from `begin_us` to `last_us`, a window from `from_us` to `to_us`.
    overlaps = (F.col("begin_us") <= F.col("to_us")) & (F.col("last_us") >= F.col("from_us"))
    in_window = exchanges.where(overlaps)
    return _keep_most_telling(_collapse_equal(in_window)).select(
        "run",
        "fault",
        "api",
        "purpose",
        "from_node",
        "to_node",
        "group",
        "member",
        "correlation_id",
        "sent_us",
        "received_us",
        "answered_us",
        "ended_us",
        "outcome",
        "named",
        "repeats",
        "last_ended_us",
    )


def _windows(
    faults: DataFrame, broker_phases: DataFrame, client_phases: DataFrame, rebalances: DataFrame
) -> DataFrame:
    """One row per fault: the beginning and the end of its window (rule 1 of `messages`)."""
    last_effects = (
        broker_phases.select(*_FAULT, F.col("active_us").alias("at_us"))
        .unionByName(client_phases.select(*_FAULT, F.col("accepted_us").alias("at_us")))
        .unionByName(rebalances.select(*_FAULT, F.col("stable_us").alias("at_us")))
        .groupBy(*_FAULT)
        .agg(F.max("at_us").alias("last_effect_us"))
    )
    injected_us = F.col("injected_us")
    return faults.join(F.broadcast(last_effects), list(_FAULT), "left").select(
        *_FAULT,
        "injected_us",
        (injected_us - BEFORE_US).alias("from_us"),
        F.least(
            F.greatest(injected_us + AT_LEAST_US, F.col("last_effect_us") + AFTER_US),
            injected_us + AT_MOST_US,
            "until_us",
        ).alias("to_us"),
    )


def _exchanges(events: DataFrame) -> DataFrame:
    """One row per exchange: a request of coordination or control, and what became of it.

    A trace has up to four rows about a request: the client sends it, the server receives it, the
    server answers it, and the client gets the answer or gives up. All four have the correlation id
    of the request. But different requests can have the same correlation id, for example on
    different connections. These rules decide which request a row is about:

    1. A client's row about an answer belongs to the last request that was sent with this
       correlation id on the same connection.
    2. A server's row does not name the connection. The row belongs to the last request with this
       correlation id that the client had sent to the server. If the client had sent none, the row
       belongs to the first request with this id afterwards: the clocks of the two nodes can differ,
       so that a request seems to arrive before it was sent.
    3. If a request has several rows of one kind, the first row counts.

    The result has the columns of the table, and `begin_us` and `last_us`: the first and the last
    known moment of the exchange.
    """
    # Requests with the same values in _REQUEST are numbered from 1.
    # - `sent_so_far` is the number of the last request up to a row, on any connection.
    # - `sent_on_connection` is the number of the last request up to a row on the row's connection.
    # - `exchange` is the number of the request that a row is about. For a client's row it is
    #   `sent_on_connection`, or 0 if there is none. For a server's row it is `sent_so_far`, or 1 if
    #   there is none.
    connection = Window.partitionBy(*_REQUEST, "node", "incarnation", "purpose").orderBy("seq")
    # Of several rows at the same time, the client's rows come first: a client sends a request
    # before the server receives it.
    request = Window.partitionBy(*_REQUEST).orderBy(
        "time_us", "is_server", "node", "incarnation", "seq"
    )
    is_sent = _is(TraceKind.REQUEST_SENT)
    is_server = F.col("is_server")
    sent_so_far = F.count(F.when(is_sent, 1)).over(_up_to_here(request))
    last_sent = F.last(F.when(is_sent, F.col("sent_so_far")), ignorenulls=True)
    numbered = (
        _with_named(_message_rows(events))
        .where(~_is(TraceKind.COORDINATOR_FOUND))
        .withColumn("sent_so_far", sent_so_far)
        .withColumn("sent_on_connection", last_sent.over(_up_to_here(connection)))
        .withColumn(
            "exchange",
            F.when(is_server, F.greatest("sent_so_far", F.lit(1))).otherwise(
                F.coalesce("sent_on_connection", F.lit(0))
            ),
        )
    )
    # The client's row about the answer or failure. `min` compares `seq` first, so it picks the
    # first such row.
    ended = F.struct("seq", "time_us", F.coalesce("error", F.lit("NONE")).alias("error"), "named")
    exchanges = numbered.groupBy(*_REQUEST, "exchange").agg(
        # The server's rows do not have these three columns, and `max` ignores their nulls.
        *(F.max(column).alias(column) for column in ("purpose", "group", "member")),
        _first_us(TraceKind.REQUEST_SENT).alias("sent_us"),
        _first_us(TraceKind.REQUEST_RECEIVED).alias("received_us"),
        _first_us(TraceKind.RESPONSE_SENT).alias("answered_us"),
        F.min(F.when(~is_sent & ~is_server, ended)).alias("ended"),
    )
    moments = ("sent_us", "received_us", "answered_us", "ended.time_us")
    # A request of which the trace has only the answer or the failure is left out.
    return exchanges.where(F.coalesce("sent_us", "received_us").isNotNull()).select(
        *_REQUEST,
        "exchange",
        "purpose",
        "group",
        "member",
        "sent_us",
        "received_us",
        "answered_us",
        F.col("ended.time_us").alias("ended_us"),
        F.coalesce("ended.error", F.lit(NO_ANSWER)).alias("outcome"),
        F.col("ended.named").alias("named"),
        F.coalesce("sent_us", "received_us").alias("begin_us"),
        F.greatest(*moments).alias("last_us"),
    )


def _message_rows(events: DataFrame) -> DataFrame:
    """One row per row of the trace about a listed request.

    `from_node` is the client and `to_node` is the server, both in the client's rows and in the
    server's rows. After the answer to a FindCoordinator, a client also writes a row
    COORDINATOR_FOUND. In this row, `found` is the broker that the answer named.
    """
    # A client's row about a request has the server as `peer`, and the purpose of the connection as
    # `cause`. In a COORDINATOR_FOUND, `cause` is the server, and `peer` the broker that it named.
    is_server = by_server()
    is_found = _is(TraceKind.COORDINATOR_FOUND)
    api = F.when(is_found, F.lit(Api.FIND_COORDINATOR.label)).otherwise(F.col("api"))
    server = F.when(is_found, F.col("cause")).otherwise(F.col("peer"))
    return (
        of_kind(events, *MESSAGE_KINDS, TraceKind.COORDINATOR_FOUND)
        .where(is_found | is_listed())
        .select(
            "run",
            F.when(is_server, F.col("peer")).otherwise(F.col("node")).alias("from_node"),
            F.when(is_server, F.col("node")).otherwise(server).alias("to_node"),
            api.alias("api"),
            "correlation_id",
            F.when(~is_server & ~is_found, F.col("cause")).alias("purpose"),
            "group",
            F.nullif("member", F.lit("")).alias("member"),
            "kind",
            "error",
            F.when(is_found, F.col("peer")).alias("found"),
            is_server.alias("is_server"),
            "node",
            "incarnation",
            "seq",
            "time_us",
        )
    )


def _with_named(message_rows: DataFrame) -> DataFrame:
    """Add to the answer of a FindCoordinator the coordinator that it named.

    A client writes COORDINATOR_FOUND directly after the row about the answer.
    """
    # In the row about the answer and in COORDINATOR_FOUND, `to_node` is the broker that was asked.
    in_order = Window.partitionBy("run", "from_node", "api", "node", "incarnation").orderBy("seq")
    next_has_same_server = F.lead("to_node").over(in_order) == F.col("to_node")
    is_answer = _is(TraceKind.RESPONSE_RECEIVED)
    return message_rows.withColumn(
        "named", F.when(is_answer & next_has_same_server, F.lead("found").over(in_order))
    )


def _collapse_equal(exchanges: DataFrame) -> DataFrame:
    """Make one row of equal exchanges that follow one another (rule 2 of `messages`)."""
    in_order = Window.partitionBy(*_ROUTE).orderBy("begin_us", "correlation_id", "exchange")
    # `in_common` is what all exchanges of one row have in common. `new` is 1 for an exchange that
    # begins a row, and 0 for all other exchanges. So the sum of `new` up to an exchange is the
    # number of its row.
    began_before_fault = F.col("begin_us") < F.col("injected_us")
    in_common = F.struct("outcome", "member", "named", began_before_fault)
    has_own_row = F.col("api").isin(_TURNING_POINTS) & (F.col("outcome") == "NONE")
    # For the first exchange of a route, `lag` is null. This null is not equal to any struct, so the
    # exchange begins a row.
    differs_from_last = ~in_common.eqNullSafe(F.lag(in_common).over(in_order))
    new = (has_own_row | differs_from_last).cast("int")
    # The earliest exchange of a row: `min` compares `begin_us` first.
    first = F.min(
        F.struct(
            "begin_us",
            "correlation_id",
            "exchange",
            "purpose",
            "sent_us",
            "received_us",
            "answered_us",
            "ended_us",
        )
    )
    return (
        exchanges.withColumn("new", new)
        .withColumn("nth", F.sum("new").over(_up_to_here(in_order)))
        .groupBy(*_ROUTE, "nth", "outcome", "member", "named")
        .agg(
            first.alias("first"),
            F.count("*").alias("repeats"),
            F.max("ended_us").alias("last_ended_us"),
        )
        .select(*_ROUTE, "outcome", "member", "named", "repeats", "last_ended_us", "first.*")
    )


def _keep_most_telling(rows: DataFrame) -> DataFrame:
    """Keep MESSAGES_PER_FAULT rows of each fault (rule 3 of `messages`).

    The column `is_first` is true for the earliest row of a kind. The column `firsts` is the number
    of such rows that a client has.
    """
    # `begin_us` decides. If rows begin at the same moment, the other columns decide, so that the
    # choice is the same in every computation.
    by_time = ("begin_us", "from_node", "to_node", "api", "correlation_id", "exchange")
    of_same_kind = Window.partitionBy(*_FAULT, "api", "to_node", "group", "outcome").orderBy(
        *by_time
    )
    of_client = Window.partitionBy(*_FAULT, "from_node")
    by_interest = (F.desc("is_first"), F.desc("firsts"), "from_node", *by_time)
    of_fault = Window.partitionBy(*_FAULT).orderBy(*by_interest)
    return (
        rows.withColumn("is_first", F.row_number().over(of_same_kind) == 1)
        .withColumn("firsts", F.count_if("is_first").over(of_client))
        .withColumn("rank", F.row_number().over(of_fault))
        .where(F.col("rank") <= MESSAGES_PER_FAULT)
    )


def _first_us(kind: TraceKind) -> Column:
    """Return the time of the first row of a kind."""
    return F.min(F.when(_is(kind), F.col("time_us")))


def _up_to_here(window: WindowSpec) -> WindowSpec:
    """Return the window with the rows up to the current row."""
    return window.rowsBetween(Window.unboundedPreceding, Window.currentRow)


def _is(kind: TraceKind) -> Column:
    """Return whether a row is of a kind."""
    return F.col("kind") == kind.value
