"""What a ZooKeeper ensemble promises to its clients, whatever its servers and links suffer.

* All servers apply one sequence of transactions, without a gap (ZK-02). A znode is created where
  none is, so a partition has one owner node at most (ZK-45); only an open session writes, and its
  ephemerals end with it (ZK-12).
* A client never goes back in time: a server takes a session up only once it has applied what the
  client has seen (ZK-05).
* An event comes before any answer that shows the change (ZK-19).
* What a client reads stood there at the zxid of the answer: an owner node that it meets is none
  of a session that was over by then.

Rows of different nodes come in the order of their clocks. What two of them say together is judged
beyond the clock error, and where time is real not of servers that died: their last rows may be
lost.
"""

from collections import deque
from dataclasses import dataclass, field

from chaos.checkers.base import Checker
from chaos.checkers.context import CheckContext, detail_of
from chaos.checkers.evidence.board import Evidence
from chaos.checkers.evidence.zookeeper_tree import owner_path
from protocol.trace import TraceKind, TraceRow
from results_schema.results import CheckReport


@dataclass(slots=True)
class _Server:
    """What one life of a server has applied."""

    applied: int = 0  # zxid
    place: int = 0  # how many transactions of the sequence
    died: bool = False
    awaited: list[TraceRow] = field(default_factory=list)  # clients that saw more than is applied


class ZooKeeper(Checker):
    """The ensemble keeps its order, its sessions and its watches."""

    name = "zookeeper"
    promise = (
        "the servers of a ZooKeeper ensemble apply the same transactions in one order; a znode is "
        "created once, an ephemeral one ends with its session, a client never sees an older state "
        "than before, and an event comes before any answer that shows its change"
    )
    kinds = frozenset(
        {
            TraceKind.ZOOKEEPER_TXN_APPLIED,
            TraceKind.ZOOKEEPER_WATCH_FIRED,
            TraceKind.ZOOKEEPER_EVENT_RECEIVED,
            TraceKind.ZOOKEEPER_CLIENT_STATE,
            TraceKind.ZOOKEEPER_CLAIM_CONFLICT,
            TraceKind.NODE_STARTED,
            TraceKind.NODE_KILLED,
        }
    )

    @classmethod
    def concerns(cls, context: CheckContext) -> bool:
        """Whether there is an ensemble."""
        return bool(context.zookeeper_groups)

    def __init__(self, context: CheckContext, evidence: Evidence | None = None) -> None:
        super().__init__(context, evidence)
        self._tree = self.evidence.zookeeper_tree
        self._servers: dict[str, _Server] = {}
        self._sequence: list[tuple[int, str | None]] = []  # zxid, detail
        self._fired: dict[tuple[str, str], deque[TraceRow]] = {}  # (server, client)
        self._conflicts: list[TraceRow] = []
        self._seen = {
            "transactions": 0,
            "transactions_applied": 0,
            "events": 0,
            "sessions_taken_up": 0,
            "owners_met": 0,
        }

    def judge(self, row: TraceRow) -> None:
        """Judge a transaction, an event, or what a client has read."""
        match row.kind:
            case TraceKind.ZOOKEEPER_TXN_APPLIED:
                self._applied(row)
            case TraceKind.ZOOKEEPER_WATCH_FIRED:
                self._fired.setdefault((row.node, row.peer or ""), deque()).append(row)
            case TraceKind.ZOOKEEPER_EVENT_RECEIVED:
                self._received(row)
            case TraceKind.ZOOKEEPER_CLIENT_STATE:
                self._client_state(row)
            case TraceKind.ZOOKEEPER_CLAIM_CONFLICT:
                self._seen["owners_met"] += 1
                if self.context.in_virtual_time:
                    self._judge_conflict(row)
                else:
                    self._conflicts.append(row)
            case TraceKind.NODE_STARTED:
                self._servers.pop(row.node, None)
                self._forget_events(row.node)
            case _:
                server = self._servers.get(row.peer or "")
                if server is not None:
                    server.died = True
                self._forget_events(row.peer or "")

    # -- one sequence -------------------------------------------------------------------------

    def _applied(self, row: TraceRow) -> None:
        self._seen["transactions_applied"] += 1
        zxid = row.offset or 0
        server = self._servers.setdefault(row.node, _Server())
        txn = (zxid, row.detail)
        if server.place == len(self._sequence) and (
            not self._sequence or zxid > self._sequence[-1][0]
        ):
            self._sequence.append(txn)
            self._seen["transactions"] += 1
        if server.place >= len(self._sequence) or self._sequence[server.place] != txn:
            self.found(f"{row.node} applied {zxid:#x} out of the ensemble's order", [row])
        elif self._tree.is_news and self._tree.problem is not None:
            self.found(f"a transaction that may not be: {self._tree.problem}", [row])
        server.applied = max(server.applied, zxid)
        server.place += 1
        self._judge_awaited(row.node, server, row)

    # -- no way back --------------------------------------------------------------------------

    def _client_state(self, row: TraceRow) -> None:
        detail = detail_of(row)
        for pair in [pair for pair in self._fired if pair[1] == row.node]:
            del self._fired[pair]  # of a connection that is over
        if detail["state"] != "SyncConnected" or row.peer is None:
            return
        self._seen["sessions_taken_up"] += 1
        server = self._servers.setdefault(row.peer, _Server())
        if (row.offset or 0) > server.applied:
            server.awaited.append(row)

    def _judge_awaited(self, name: str, server: _Server, row: TraceRow | None) -> None:
        """Judge who was taken up by a server that applied only now, or never, what it had seen."""
        if not server.awaited or (server.died and not self.context.in_virtual_time):
            return
        left = []
        for taken_up in server.awaited:
            if row is not None and row.time_us <= taken_up.time_us + self.context.clock_error_us:
                if (taken_up.offset or 0) > server.applied:
                    left.append(taken_up)
                continue
            self.found(
                f"{name} took up the session of {taken_up.node}, which had seen more than it",
                [taken_up, *([] if row is None else [row])],
            )
        server.awaited = left

    # -- events -------------------------------------------------------------------------------

    def _received(self, row: TraceRow) -> None:
        self._seen["events"] += 1
        fired = self._fired.get((row.peer or "", row.node))
        if not fired:
            return  # its row comes later, by the other node's clock
        cause = fired.popleft()
        if (row.offset or 0) >= (cause.offset or 0):
            self.found(
                f"{row.node} had an answer that shows the change before the event on "
                f"{detail_of(row)['path']}",
                [cause, row],
            )

    def _forget_events(self, node: str) -> None:
        for pair in [pair for pair in self._fired if node in pair]:
            del self._fired[pair]

    # -- what is read -------------------------------------------------------------------------

    def _judge_conflict(self, row: TraceRow) -> None:
        path = owner_path(row.group or "", row.partition or "")
        znode = self._tree.at(path, row.offset or 0)
        owner = detail_of(row)["owner"]
        if owner == (None if znode is None else znode.data):
            return
        self.found(
            f"{row.node} met an owner node of {row.partition} that was not there: "
            f"{'none' if owner is None else 'of a session that was over'}",
            [row, *([] if znode is None else [znode.row])],
            group=row.group,
            partition=row.partition,
        )

    def finish(self) -> CheckReport:
        """Judge what real time has left for the end."""
        for name, server in self._servers.items():
            self._judge_awaited(name, server, None)
        for row in self._conflicts:
            self._judge_conflict(row)
        judged = self._seen["transactions_applied"]
        return self.report(
            judged=judged,
            seen=self._seen,
            note="" if judged else "no transaction was applied",
        )
