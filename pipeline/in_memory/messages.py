"""The table `messages` in plain Python."""

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
_BY_THEMSELVES = ("JoinGroup", "SyncGroup", "LeaveGroup")
_KEPT = 400
_SECOND_US = 1_000_000


@dataclass(slots=True)
class _Exchange:
    """A request and its answer. `place` orders requests that begin at one moment."""

    client: str
    server: str
    api: str
    correlation_id: int | None
    place: int
    sent: TraceRow | None = None
    received_us: int | None = None
    answered_us: int | None = None
    ended: TraceRow | None = None
    named: str | None = None

    @property
    def begin_us(self) -> int | None:
        return self.received_us if self.sent is None else self.sent.time_us

    @property
    def last_us(self) -> int:
        sent_us = None if self.sent is None else self.sent.time_us
        ended_us = None if self.ended is None else self.ended.time_us
        moments = (sent_us, self.received_us, self.answered_us, ended_us)
        return max(moment for moment in moments if moment is not None)

    @property
    def like(self) -> tuple[str, str | None, str | None]:
        """The columns, beside the route, in which the exchanges of one row are equal."""
        outcome = "no answer" if self.ended is None else self.ended.error or "NONE"
        member = None if self.sent is None else self.sent.member or None
        return outcome, member, self.named

    @property
    def route(self) -> tuple[str, str, str, str]:
        group = "" if self.sent is None else self.sent.group or ""
        return self.client, self.server, self.api, group


def messages_of(trace: Trace) -> list[TableRow]:
    """Return the messages around each fault."""
    exchanges = _Pairing(trace).exchanges()
    found = []
    for fault, from_us, to_us in _windows(trace):
        within = [
            each
            for each in exchanges
            if each.begin_us is not None and each.begin_us <= to_us and each.last_us >= from_us
        ]
        rows = _collapsed(within, fault["injected_us"])
        found += [{"fault": fault["fault"]} | row for row in _kept(rows)]
    return found


def _windows(trace: Trace) -> list[tuple[TableRow, int, int]]:
    faults = faults_of(trace)
    due = [(row["fault"], row["active_us"]) for row in broker_phases_of(trace)]
    due += [(row["fault"], row["accepted_us"]) for row in client_phases_of(trace)]
    due += [(row["fault"], row["stable_us"]) for row in rebalances_of(trace)]
    found = []
    for fault in faults:
        injected_us = fault["injected_us"]
        to_us = injected_us + 5 * _SECOND_US
        for name, at_us in due:
            if name == fault["fault"] and at_us is not None:
                to_us = max(to_us, at_us + _SECOND_US)
        to_us = min(to_us, injected_us + 120 * _SECOND_US, fault["until_us"])
        found.append((fault, injected_us - _SECOND_US, to_us))
    return found


class _Pairing:
    """Assigns trace rows to requests: first the clients' rows, then the servers'."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._of_pair: dict[tuple[str, str, str, int | None], list[_Exchange]] = {}
        self._unsent: list[_Exchange] = []

    def exchanges(self) -> list[_Exchange]:
        """Return all exchanges that were sent or received."""
        for row in self._trace.of(TraceKind.REQUEST_SENT):
            if _is_listed(row.api, str(row.peer)):
                self._add(row.node, str(row.peer), row).sent = row
        self._take_ends()
        for row in self._trace.of(TraceKind.REQUEST_RECEIVED, TraceKind.RESPONSE_SENT):
            if _is_listed(row.api, row.node):
                self._take_server_row(row)
        return [each for some in self._of_pair.values() for each in some]

    def _add(self, client: str, server: str, row: TraceRow) -> _Exchange:
        pair = (client, server, str(row.api), row.correlation_id)
        known = self._of_pair.setdefault(pair, [])
        known.append(_Exchange(*pair, place=len(known)))
        return known[-1]

    def _take_ends(self) -> None:
        kinds = (
            TraceKind.REQUEST_SENT,
            TraceKind.RESPONSE_RECEIVED,
            TraceKind.REQUEST_FAILED,
            TraceKind.COORDINATOR_FOUND,
        )
        sent = {id(each.sent): each for some in self._of_pair.values() for each in some}
        for _, rows in self._trace.lives(*kinds):
            last: dict[tuple[object, ...], _Exchange] = {}
            looked_up: _Exchange | None = None  # the exchange of the client's last FindCoordinator
            for row in rows:
                connection = (row.peer, row.cause, row.api, row.correlation_id)
                if row.kind == TraceKind.COORDINATOR_FOUND:
                    if looked_up is not None and looked_up.server == row.cause:
                        looked_up.named = row.peer
                    looked_up = None
                elif row.kind == TraceKind.REQUEST_SENT:
                    if id(row) in sent:
                        last[connection] = sent[id(row)]
                    if row.api == "FindCoordinator":
                        looked_up = None
                else:
                    exchange = last.get(connection)
                    is_first = exchange is not None and exchange.ended is None
                    if exchange is not None and is_first:
                        exchange.ended = row
                    if row.api == "FindCoordinator":
                        answered = row.kind == TraceKind.RESPONSE_RECEIVED
                        looked_up = exchange if answered and is_first else None

    def _take_server_row(self, row: TraceRow) -> None:
        pair = (str(row.peer), row.node, str(row.api), row.correlation_id)
        known = self._of_pair.get(pair)
        if known is None:
            known = [self._add(str(row.peer), row.node, row)]
        before = [
            each for each in known if each.sent is not None and each.sent.time_us <= row.time_us
        ]
        exchange = before[-1] if before else known[0]
        if row.kind == TraceKind.REQUEST_RECEIVED:
            if exchange.received_us is None:
                exchange.received_us = row.time_us
        elif exchange.answered_us is None:
            exchange.answered_us = row.time_us


def _is_listed(api: str | None, server: str) -> bool:
    return api in _LISTED or (api == "Fetch" and server.startswith("controller-"))


@dataclass(slots=True)
class _Row:
    """A row of the table: successive equal exchanges."""

    like: tuple[object, ...]
    exchanges: list[_Exchange] = field(default_factory=list)
    firsts: int = 0

    @property
    def order(self) -> tuple[int, str, str, str, int, int]:
        first = self.exchanges[0]
        return (
            first.begin_us or 0,
            first.client,
            first.server,
            first.api,
            -1 if first.correlation_id is None else first.correlation_id,
            first.place,
        )


def _collapsed(exchanges: Sequence[_Exchange], injected_us: int) -> list[_Row]:
    def order(each: _Exchange) -> tuple[tuple[str, str, str, str], int, int, int]:
        return each.route, each.begin_us or 0, each.correlation_id or 0, each.place

    rows: list[_Row] = []
    for _, of_route in groupby(sorted(exchanges, key=order), key=lambda each: each.route):
        current: _Row | None = None
        for each in of_route:
            like = (*each.like, (each.begin_us or 0) < injected_us)
            alone = each.api in _BY_THEMSELVES and each.like[0] == "NONE"
            if current is None or alone or current.like != like:
                current = _Row(like)
                rows.append(current)
            current.exchanges.append(each)
    return rows


def _kept(rows: list[_Row]) -> list[TableRow]:
    """Return the rows that a fault keeps (rule 3 of `tables.messages`)."""
    seen: dict[tuple[object, ...], None] = {}
    firsts: dict[str, int] = {}
    is_first: list[bool] = []
    in_order = sorted(rows, key=lambda row: row.order)
    for row in in_order:
        client, server, api, group = row.exchanges[0].route
        kind = (api, server, group, row.like[0])
        is_first.append(kind not in seen)
        seen[kind] = None
        firsts[client] = firsts.get(client, 0) + is_first[-1]

    def rank(item: tuple[_Row, bool]) -> tuple[object, ...]:
        row, first = item
        client = row.exchanges[0].client
        return not first, -firsts[client], client, row.order

    ranked = sorted(zip(in_order, is_first, strict=True), key=rank)
    return [_table_row(row) for row, _ in ranked[:_KEPT]]


def _table_row(row: _Row) -> TableRow:
    first = row.exchanges[0]
    outcome, member, named = first.like
    ends = [each.ended.time_us for each in row.exchanges if each.ended is not None]
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
