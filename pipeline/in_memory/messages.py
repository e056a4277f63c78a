"""The table `messages` in plain Python: requests and answers around each fault.

The report draws the messages as arrows between the nodes. The table is computed in three steps:

1. `_Pairing` makes an *exchange* of each request and its answer. A trace has up to four rows about
   an exchange: the client sends the request, the server receives it, the server answers, and the
   client gets the answer, or gives up.
2. `_collapse` joins equal exchanges that follow one another, such as 40 heartbeats with success, to
   one row of the table.
3. `_keep_most_interesting` picks at most 400 rows for each fault.

Only requests about coordination and control are listed. Requests that carry records (Produce, and
Fetch from a broker) are left out. docs/TABLES.md has the rules. `pipeline.tables.messages` computes
the same with Spark.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import NamedTuple

from pipeline.in_memory.broker_phases import broker_phases_of
from pipeline.in_memory.client_phases import client_phases_of
from pipeline.in_memory.faults import faults_of
from pipeline.in_memory.rebalances import rebalances_of
from pipeline.in_memory.trace import TableRow, Trace
from protocol.trace import TraceKind, TraceRow

_LISTED = (
    "FindCoordinator",
    "JoinGroup",
    "SyncGroup",
    "Heartbeat",
    "LeaveGroup",
    "OffsetCommit",
    "OffsetFetch",
    "InitProducerId",
    "AddOffsetsToTxn",
    "TxnOffsetCommit",
    "EndTxn",
    "WriteTxnMarkers",
    "ElectLeaders",
    "AlterPartitionReassignments",
    "AlterPartition",
    "BrokerRegistration",
    "BrokerHeartbeat",
)
"""APIs that the table lists. The table also lists the Fetch requests by which brokers get metadata
from a controller (`_is_listed`).
"""
_NOT_COLLAPSED = ("JoinGroup", "SyncGroup", "LeaveGroup")
"""APIs that change the group. Each successful request of these APIs has a row of its own, because a
reader wants to see each change.
"""
_MAX_ROWS = 400
"""Maximum number of rows of one fault. This is enough for a failover of some 30 members."""
_SECOND_US = 1_000_000
_AT_LEAST_US = 5 * _SECOND_US
_AT_MOST_US = 120 * _SECOND_US
"""Limits of the time from a fault to the end of the fault's window."""


@dataclass(slots=True)
class _Exchange:
    """A request and its answer.

    - `index`: the number of the exchange among the exchanges with the same client, server, API and
      correlation id, from 0. There can be several, because a client that starts again also starts
      its correlation ids again.
    - `sent`: the client's row about the request; None if the trace lacks it.
    - `received_us`, `answered_us`: when the server got the request, and when it answered it.
    - `ended`: the client's row about the answer, or about the failure of the request; None if the
      trace lacks it, or if no answer came.
    - `named`: the coordinator that the answer to a FindCoordinator named.
    """

    client: str
    server: str
    api: str
    correlation_id: int | None
    index: int
    sent: TraceRow | None = None
    received_us: int | None = None
    answered_us: int | None = None
    ended: TraceRow | None = None
    named: str | None = None

    @property
    def begin_us(self) -> int | None:
        """When the request was sent; if this is not known, when the request was received."""
        return self.received_us if self.sent is None else self.sent.time_us

    @property
    def last_us(self) -> int:
        """The last known moment of the exchange."""
        sent_us = None if self.sent is None else self.sent.time_us
        ended_us = None if self.ended is None else self.ended.time_us
        moments = (sent_us, self.received_us, self.answered_us, ended_us)
        return max(moment for moment in moments if moment is not None)

    @property
    def outcome(self) -> str:
        """The error of the answer or failure; "NONE" means success."""
        if self.ended is None:
            return "no answer"
        return self.ended.error or "NONE"

    @property
    def member(self) -> str | None:
        """The member id that the client sent; None if it sent no id, or if this is not known."""
        if self.sent is None:
            return None
        return self.sent.member or None  # a client that is not a member yet sends ""

    @property
    def route(self) -> tuple[str, str, str, str]:
        """Client, server, API and group; the group is "" if the request is about no group."""
        group = ""
        if self.sent is not None and self.sent.group is not None:
            group = self.sent.group
        return self.client, self.server, self.api, group


def messages_of(trace: Trace) -> list[TableRow]:
    """Return the messages around each fault."""
    exchanges = _Pairing(trace).exchanges()
    table = []
    for window in _windows(trace):
        in_window = [
            exchange
            for exchange in exchanges
            if exchange.begin_us is not None
            and exchange.begin_us <= window.to_us
            and exchange.last_us >= window.from_us
        ]
        rows = _collapse(in_window, window.injected_us)
        table += [{"fault": window.fault} | row for row in _keep_most_interesting(rows)]
    return table


class _Window(NamedTuple):
    """The time around a fault in which its messages are listed."""

    fault: str
    injected_us: int
    from_us: int
    to_us: int


def _windows(trace: Trace) -> list[_Window]:
    """Return the window of each fault.

    A window begins one second before the fault. It ends one second after the fault's last effect: a
    new coordinator became active, it accepted a member, or a rebalance was complete. But the window
    lasts at least 5 s and at most 120 s after the fault, and not beyond the next fault.
    """
    faults = faults_of(trace)
    effects = [(row["fault"], row["active_us"]) for row in broker_phases_of(trace)]
    effects += [(row["fault"], row["accepted_us"]) for row in client_phases_of(trace)]
    effects += [(row["fault"], row["stable_us"]) for row in rebalances_of(trace)]

    windows = []
    for fault in faults:
        injected_us = fault["injected_us"]
        to_us = injected_us + _AT_LEAST_US
        for fault_of_effect, effect_us in effects:
            if fault_of_effect == fault["fault"] and effect_us is not None:
                to_us = max(to_us, effect_us + _SECOND_US)
        to_us = min(to_us, injected_us + _AT_MOST_US, fault["until_us"])
        windows.append(
            _Window(fault["fault"], injected_us, from_us=injected_us - _SECOND_US, to_us=to_us)
        )
    return windows


class _Pairing:
    """Builds the exchanges, first from the clients' rows, then from the servers' rows."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        # The exchanges by client, server, API and correlation id. There can be several with the
        # same key (see `_Exchange.index`).
        self._by_request: dict[tuple[str, str, str, int | None], list[_Exchange]] = {}

    def exchanges(self) -> list[_Exchange]:
        """Return all exchanges of listed APIs."""
        for row in self._trace.of(TraceKind.REQUEST_SENT):
            if _is_listed(row.api, str(row.peer)):
                self._add(row.node, str(row.peer), row).sent = row
        self._add_ends()
        for row in self._trace.of(TraceKind.REQUEST_RECEIVED, TraceKind.RESPONSE_SENT):
            if _is_listed(row.api, row.node):
                self._add_server_row(row)
        return self._all()

    def _all(self) -> list[_Exchange]:
        """Return the exchanges that have begun so far."""
        return [exchange for same_request in self._by_request.values() for exchange in same_request]

    def _add(self, client: str, server: str, row: TraceRow) -> _Exchange:
        """Add an exchange that begins with `row`, and return it."""
        api = str(row.api)
        request = (client, server, api, row.correlation_id)
        same_request = self._by_request.setdefault(request, [])
        exchange = _Exchange(
            client=client,
            server=server,
            api=api,
            correlation_id=row.correlation_id,
            index=len(same_request),
        )
        same_request.append(exchange)
        return exchange

    def _add_ends(self) -> None:
        """Add to each exchange its end, and the coordinator that the answer named.

        The row about the answer to a FindCoordinator does not tell which coordinator it named. The
        client writes this in a row COORDINATOR_FOUND after the answer, and before it sends its next
        FindCoordinator.
        """
        kinds = (
            TraceKind.REQUEST_SENT,
            TraceKind.RESPONSE_RECEIVED,
            TraceKind.REQUEST_FAILED,
            TraceKind.COORDINATOR_FOUND,
        )
        # The exchange that began with each row. The key is the identity of the row, which is the
        # same object in every list of the trace.
        by_sent_row = {id(exchange.sent): exchange for exchange in self._all()}
        for _, rows in self._trace.lives(*kinds):
            last_by_request: dict[tuple[object, ...], _Exchange] = {}
            # The last FindCoordinator, if it was answered and no COORDINATOR_FOUND followed yet.
            answered_lookup: _Exchange | None = None
            for row in rows:
                # In rows about requests, `peer` is the server, and `cause` the purpose of the
                # connection.
                request = (row.peer, row.cause, row.api, row.correlation_id)
                if row.kind == TraceKind.COORDINATOR_FOUND:
                    # In this row, `cause` is the broker that was asked, and `peer` the broker that
                    # it named.
                    if answered_lookup is not None and answered_lookup.server == row.cause:
                        answered_lookup.named = row.peer
                    answered_lookup = None
                elif row.kind == TraceKind.REQUEST_SENT:
                    if id(row) in by_sent_row:  # otherwise its API is not listed
                        last_by_request[request] = by_sent_row[id(row)]
                    # If a client sends another FindCoordinator, the answer before named no
                    # coordinator.
                    if row.api == "FindCoordinator":
                        answered_lookup = None
                else:
                    # The row is an answer or a failure. Only the first one of a request counts.
                    exchange = last_by_request.get(request)
                    is_first_end = exchange is not None and exchange.ended is None
                    if exchange is not None and is_first_end:
                        exchange.ended = row
                    if row.api == "FindCoordinator":
                        is_answer = row.kind == TraceKind.RESPONSE_RECEIVED
                        answered_lookup = exchange if is_answer and is_first_end else None

    def _add_server_row(self, row: TraceRow) -> None:
        """Add the time of a server's row to the exchange that the row is about.

        This is the last exchange with the same client, server, API and correlation id that began
        before the row.
        """
        request = (str(row.peer), row.node, str(row.api), row.correlation_id)
        same_request = self._by_request.get(request)
        if same_request is None:
            # The trace lacks the client's rows, so this exchange has no `sent`.
            same_request = [self._add(str(row.peer), row.node, row)]
        sent_before = [
            exchange
            for exchange in same_request
            if exchange.sent is not None and exchange.sent.time_us <= row.time_us
        ]
        # The clocks of two nodes can differ, so a server can seem to receive a request before the
        # client sent it. Then the row belongs to the first exchange.
        exchange = sent_before[-1] if sent_before else same_request[0]
        if row.kind == TraceKind.REQUEST_RECEIVED:
            if exchange.received_us is None:
                exchange.received_us = row.time_us
        elif exchange.answered_us is None:
            exchange.answered_us = row.time_us


def _is_listed(api: str | None, server: str) -> bool:
    """Return whether the table lists exchanges of this API with this server."""
    return api in _LISTED or (api == "Fetch" and server.startswith("controller-"))


@dataclass(slots=True)
class _Row:
    """A row of the table: equal exchanges that follow one another.

    `common` has the values that are the same in all these exchanges.
    """

    common: tuple[object, ...]
    exchanges: list[_Exchange] = field(default_factory=list)

    @property
    def order(self) -> tuple[int, str, str, str, int, int]:
        """A sort key: when the first exchange began. If times are equal, other values decide."""
        first = self.exchanges[0]
        return (
            first.begin_us or 0,  # `messages_of` keeps only exchanges that have a beginning
            first.client,
            first.server,
            first.api,
            # An exchange without a correlation id comes before all others.
            -1 if first.correlation_id is None else first.correlation_id,
            first.index,
        )


def _collapse(exchanges: Sequence[_Exchange], injected_us: int) -> list[_Row]:
    """Return a row for each sequence of equal exchanges between the same two nodes.

    For example, a member sends 40 heartbeats that succeed, and then a heartbeat that fails with
    NOT_COORDINATOR. These are two rows. The exchanges of a row must have the same route (client,
    server, API and group). They must all have begun before the fault was injected (`injected_us`),
    or all after it.
    """

    def by_route_and_time(exchange: _Exchange) -> tuple[tuple[str, str, str, str], int, int, int]:
        """Return a sort key."""
        # `begin_us` is never None here. An exchange without a correlation id is sorted like id 0.
        begin_us = exchange.begin_us or 0
        correlation_id = exchange.correlation_id or 0
        return exchange.route, begin_us, correlation_id, exchange.index

    rows: list[_Row] = []
    in_order = sorted(exchanges, key=by_route_and_time)
    for _, of_route in groupby(in_order, key=lambda exchange: exchange.route):
        current: _Row | None = None
        for exchange in of_route:
            begins_before_fault = (exchange.begin_us or 0) < injected_us
            common = (exchange.outcome, exchange.member, exchange.named, begins_before_fault)
            has_own_row = exchange.api in _NOT_COLLAPSED and exchange.outcome == "NONE"
            if current is None or has_own_row or current.common != common:
                current = _Row(common)
                rows.append(current)
            current.exchanges.append(exchange)
    return rows


def _keep_most_interesting(rows: list[_Row]) -> list[TableRow]:
    """Return the _MAX_ROWS most interesting rows of a fault; all rows if there are not more.

    Of many members that do the same, one member tells the story. So the rows that are the first of
    their kind are kept before all other rows. Rows are of the same kind if they have the same API,
    server, group and outcome. Then the rows of one client are kept together. The client with the
    most first rows comes first. (This is rule 3 of `tables.messages`.)
    """
    kinds_so_far: set[tuple[object, ...]] = set()
    firsts_by_client: dict[str, int] = {}
    are_first_of_kind: list[bool] = []
    in_order = sorted(rows, key=lambda row: row.order)
    for row in in_order:
        first = row.exchanges[0]
        client, server, api, group = first.route
        kind = (api, server, group, first.outcome)
        is_new_kind = kind not in kinds_so_far
        are_first_of_kind.append(is_new_kind)
        kinds_so_far.add(kind)
        firsts_by_client[client] = firsts_by_client.get(client, 0) + int(is_new_kind)

    def by_interest(row_and_is_first: tuple[_Row, bool]) -> tuple[object, ...]:
        """Return a sort key."""
        row, is_first_of_kind = row_and_is_first
        client = row.exchanges[0].client
        # False sorts before True, so rows that are the first of their kind come first.
        return not is_first_of_kind, -firsts_by_client[client], client, row.order

    ranked = sorted(zip(in_order, are_first_of_kind, strict=True), key=by_interest)
    return [_table_row(row) for row, _ in ranked[:_MAX_ROWS]]


def _table_row(row: _Row) -> TableRow:
    """Return the columns of a row. The times are those of the row's first exchange."""
    first = row.exchanges[0]
    _client, _server, _api, group = first.route
    ends = [exchange.ended.time_us for exchange in row.exchanges if exchange.ended is not None]
    return {
        "api": first.api,
        "purpose": None if first.sent is None else first.sent.cause,
        "from_node": first.client,
        "to_node": first.server,
        "group": group or None,
        "member": first.member,
        "correlation_id": first.correlation_id,
        "sent_us": None if first.sent is None else first.sent.time_us,
        "received_us": first.received_us,
        "answered_us": first.answered_us,
        "ended_us": None if first.ended is None else first.ended.time_us,
        "outcome": first.outcome,
        "named": first.named,
        "repeats": len(row.exchanges),
        "last_ended_us": max(ends, default=None),
    }
