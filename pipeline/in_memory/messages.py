"""The table `messages` in plain Python: requests and answers around each fault.

An exchange is a request and its answer. A trace has up to four rows about an exchange. The client
writes a row when it sends the request, and a row when the answer comes or the request fails. The
server writes a row when it receives the request, and a row when it answers.

The table lists exchanges about coordination and control. Requests that carry records (Produce, and
Fetch from a broker) are left out. Brokers fetch metadata from a controller, and these Fetch
requests are listed. Equal exchanges that follow one another share one row of the table. If a fault
has more than _MAX_ROWS rows, `_keep_most_interesting` chooses among them. docs/TABLES.md has the
rules; `pipeline.tables.messages` computes the same with Spark.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby

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
"""APIs whose exchanges the table lists."""
_NOT_COLLAPSED = ("JoinGroup", "SyncGroup", "LeaveGroup")
"""APIs that change the group. So each successful request has a row of its own, even if several are
equal.
"""
_MAX_ROWS = 400
"""Maximum number of rows of one fault. It is enough for a failover of some 30 members."""
_SECOND_US = 1_000_000


@dataclass(slots=True)
class _Exchange:
    """A request and its answer.

    - `sent`, `ended`: the client's rows about the request, and about its answer or failure. None if
      the trace lacks the row, or if no answer came.
    - `index`: index among the exchanges with the same client, server, API and correlation id (the
      client's number of the request).
    - `named`: for a FindCoordinator, the coordinator that the answer named.
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
        """The time at which the request was sent, or, if that is unknown, received."""
        return self.received_us if self.sent is None else self.sent.time_us

    @property
    def last_us(self) -> int:
        """The last known moment of the exchange."""
        sent_us = None if self.sent is None else self.sent.time_us
        ended_us = None if self.ended is None else self.ended.time_us
        moments = (sent_us, self.received_us, self.answered_us, ended_us)
        return max(moment for moment in moments if moment is not None)

    @property
    def result(self) -> tuple[str, str | None, str | None]:
        """Outcome, member and named coordinator; equal for all exchanges of one row."""
        outcome = "no answer" if self.ended is None else self.ended.error or "NONE"
        member = None if self.sent is None else self.sent.member or None
        return outcome, member, self.named

    @property
    def route(self) -> tuple[str, str, str, str]:
        """Client, server, API and group."""
        group = "" if self.sent is None else self.sent.group or ""
        return self.client, self.server, self.api, group


def messages_of(trace: Trace) -> list[TableRow]:
    """Return the messages around each fault."""
    exchanges = _Pairing(trace).exchanges()
    table = []
    for fault, from_us, to_us in _windows(trace):
        in_window = [
            exchange
            for exchange in exchanges
            if exchange.begin_us is not None
            and exchange.begin_us <= to_us
            and exchange.last_us >= from_us
        ]
        rows = _collapse(in_window, fault["injected_us"])
        table += [{"fault": fault["fault"]} | row for row in _keep_most_interesting(rows)]
    return table


def _windows(trace: Trace) -> list[tuple[TableRow, int, int]]:
    """Return each fault with the beginning and the end of the time around it.

    The time begins one second before the fault, and ends one second after the last effect of the
    fault. Three effects count: a new coordinator becomes active, it accepts a member, a rebalance
    completes. The time after the fault lasts at least 5 s. It lasts at most 120 s, even if an
    effect comes later, and it does not last beyond the next fault.
    """
    faults = faults_of(trace)
    effects = [(row["fault"], row["active_us"]) for row in broker_phases_of(trace)]
    effects += [(row["fault"], row["accepted_us"]) for row in client_phases_of(trace)]
    effects += [(row["fault"], row["stable_us"]) for row in rebalances_of(trace)]

    windows = []
    for fault in faults:
        injected_us = fault["injected_us"]
        to_us = injected_us + 5 * _SECOND_US
        for name, effect_us in effects:
            if name == fault["fault"] and effect_us is not None:
                to_us = max(to_us, effect_us + _SECOND_US)
        to_us = min(to_us, injected_us + 120 * _SECOND_US, fault["until_us"])
        windows.append((fault, injected_us - _SECOND_US, to_us))
    return windows


class _Pairing:
    """Builds the exchanges from rows of the trace.

    It reads first the rows of the clients, then the rows of the servers.
    """

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        # By client, server, API and correlation id. One key can have several exchanges, because
        # correlation ids start again with each life (each process) of a client.
        self._by_request: dict[tuple[str, str, str, int | None], list[_Exchange]] = {}

    def exchanges(self) -> list[_Exchange]:
        """Return all listed exchanges whose request was sent or received."""
        for row in self._trace.of(TraceKind.REQUEST_SENT):
            if _is_listed(row.api, str(row.peer)):
                self._add(row.node, str(row.peer), row).sent = row
        self._take_ends()
        for row in self._trace.of(TraceKind.REQUEST_RECEIVED, TraceKind.RESPONSE_SENT):
            if _is_listed(row.api, row.node):
                self._take_server_row(row)
        return self._all()

    def _all(self) -> list[_Exchange]:
        """Return the exchanges that have begun so far."""
        return [exchange for same_request in self._by_request.values() for exchange in same_request]

    def _add(self, client: str, server: str, row: TraceRow) -> _Exchange:
        """Add an exchange that begins with `row`, and return it."""
        request = (client, server, str(row.api), row.correlation_id)
        same_request = self._by_request.setdefault(request, [])
        same_request.append(_Exchange(*request, index=len(same_request)))
        return same_request[-1]

    def _take_ends(self) -> None:
        """Add to each exchange the client's row about its end, and the coordinator that it named.

        A client writes COORDINATOR_FOUND after the answer that named the coordinator, and before it
        sends its next FindCoordinator.
        """
        kinds = (
            TraceKind.REQUEST_SENT,
            TraceKind.RESPONSE_RECEIVED,
            TraceKind.REQUEST_FAILED,
            TraceKind.COORDINATOR_FOUND,
        )
        # Exchanges by the identity of the row that began them. This works because a row is the same
        # object in every list of the trace.
        by_sent_row = {id(exchange.sent): exchange for exchange in self._all()}
        for _, rows in self._trace.lives(*kinds):
            last_by_request: dict[tuple[object, ...], _Exchange] = {}
            # The last FindCoordinator, if it was answered and no COORDINATOR_FOUND followed yet.
            answered_lookup: _Exchange | None = None
            for row in rows:
                # `cause` is the purpose of the connection, except in a row COORDINATOR_FOUND: there
                # `cause` is the broker that was asked, and `peer` the broker that it named.
                request = (row.peer, row.cause, row.api, row.correlation_id)
                if row.kind == TraceKind.COORDINATOR_FOUND:
                    if answered_lookup is not None and answered_lookup.server == row.cause:
                        answered_lookup.named = row.peer
                    answered_lookup = None
                elif row.kind == TraceKind.REQUEST_SENT:
                    # A request that is not listed has no exchange.
                    if id(row) in by_sent_row:
                        last_by_request[request] = by_sent_row[id(row)]
                    # If the answer to the previous FindCoordinator still waits for its
                    # COORDINATOR_FOUND, it named no coordinator.
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

    def _take_server_row(self, row: TraceRow) -> None:
        """Assign a server's row to the last exchange of the same request that began before it."""
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
        # The clocks of two nodes differ, so a server can seem to receive a request before the
        # client sent it. Such a row belongs to the first exchange.
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
    """A row of the table, which stands for successive equal exchanges.

    `common` is what makes them equal: their result, and whether they began before the fault.
    """

    common: tuple[object, ...]
    exchanges: list[_Exchange] = field(default_factory=list)

    @property
    def order(self) -> tuple[int, str, str, str, int, int]:
        """The sort key of the row: the beginning of its first exchange, then the other fields."""
        first = self.exchanges[0]
        return (
            # `or 0` only satisfies the type checker. `messages_of` drops exchanges without a begin.
            first.begin_us or 0,
            first.client,
            first.server,
            first.api,
            # An exchange without a correlation id comes before the others.
            -1 if first.correlation_id is None else first.correlation_id,
            first.index,
        )


def _collapse(exchanges: Sequence[_Exchange], injected_us: int) -> list[_Row]:
    """Return one row for each sequence of equal exchanges on one route.

    The exchanges of a route are in the order of their beginnings. A sequence ends where the next
    exchange of the route is different.
    """

    def order(exchange: _Exchange) -> tuple[tuple[str, str, str, str], int, int, int]:
        begin_us, correlation_id = exchange.begin_us or 0, exchange.correlation_id or 0
        return exchange.route, begin_us, correlation_id, exchange.index

    rows: list[_Row] = []
    in_order = sorted(exchanges, key=order)
    for _, of_route in groupby(in_order, key=lambda exchange: exchange.route):
        current: _Row | None = None
        for exchange in of_route:
            begins_before_fault = (exchange.begin_us or 0) < injected_us
            common = (*exchange.result, begins_before_fault)
            # A success of these APIs is always a row of its own.
            has_own_row = exchange.api in _NOT_COLLAPSED and exchange.result[0] == "NONE"
            if current is None or has_own_row or current.common != common:
                current = _Row(common)
                rows.append(current)
            current.exchanges.append(exchange)
    return rows


def _keep_most_interesting(rows: list[_Row]) -> list[TableRow]:
    """Return the rows to keep for one fault, at most _MAX_ROWS (rule 3 of `tables.messages`).

    Rows are of one kind if they have the same API, server, group and outcome. The rows that are the
    first of their kind come before all other rows. Within these two parts, the client with the most
    such first rows comes first.
    """
    kinds_so_far: set[tuple[object, ...]] = set()
    firsts_by_client: dict[str, int] = {}
    is_first: list[bool] = []
    in_order = sorted(rows, key=lambda row: row.order)
    for row in in_order:
        client, server, api, group = row.exchanges[0].route
        kind = (api, server, group, row.common[0])
        is_new_kind = kind not in kinds_so_far
        is_first.append(is_new_kind)
        kinds_so_far.add(kind)
        firsts_by_client[client] = firsts_by_client.get(client, 0) + int(is_new_kind)

    def rank(item: tuple[_Row, bool]) -> tuple[object, ...]:
        row, is_first_of_kind = item
        client = row.exchanges[0].client
        # False sorts before True, so first rows come before others.
        return not is_first_of_kind, -firsts_by_client[client], client, row.order

    ranked = sorted(zip(in_order, is_first, strict=True), key=rank)
    return [_table_row(row) for row, _ in ranked[:_MAX_ROWS]]


def _table_row(row: _Row) -> TableRow:
    """Return the table's row for equal exchanges; its times are those of the first exchange."""
    first = row.exchanges[0]
    outcome, member, named = first.result
    ends = [exchange.ended.time_us for exchange in row.exchanges if exchange.ended is not None]
    return {
        "api": first.api,
        "purpose": None if first.sent is None else first.sent.cause,
        "from_node": first.client,
        "to_node": first.server,
        "group": first.route[3] or None,
        "member": member,
        "correlation_id": first.correlation_id,
        "sent_us": None if first.sent is None else first.sent.time_us,
        "received_us": first.received_us,
        "answered_us": first.answered_us,
        "ended_us": None if first.ended is None else first.ended.time_us,
        "outcome": outcome,
        "named": named,
        "repeats": len(row.exchanges),
        "last_ended_us": max(ends, default=None),
    }
