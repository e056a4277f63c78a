"""Promises of a ZooKeeper ensemble to its clients, which also hold during faults.

In groups of the old design, consumers coordinate through ZooKeeper. ZooKeeper stores a tree of
znodes, which have paths like those of files. To own a partition, a consumer creates a znode for it,
the owner node. An owner node is ephemeral: it is removed when the consumer's session ends. Every
change of the tree is a transaction, and has a number, its zxid. Later transactions have higher
zxids. Four rules are judged:

1. All servers apply the same transactions in the same order, without a gap (ZK-02). Each
   transaction must be legal. It must not create a znode that exists, so a partition has at most one
   owner node (ZK-45). And it must come from a session that is open (ZK-12).
2. A client never reads an older state than before. So when a client changes its server, the new
   server accepts the session only after it has applied every transaction that the client has seen
   (ZK-05).
3. A client that wants to learn of a change sets a watch. It receives the event of the watch before
   any answer that shows the change (ZK-19).
4. A read returns the tree as it was at the zxid of the answer. This is judged in one case: a
   consumer tries to own a partition, reads that another consumer owns it, and writes the row
   ZOOKEEPER_CLAIM_CONFLICT. The other consumer's owner node must have existed at the zxid of the
   read.

Rows of different nodes have times of different clocks. So a rule about two nodes allows for the
clock error. Rule 2 is not judged in real time for a server that died. The last rows of such a
server may be lost, so the trace may lack transactions that the server applied.

In this module the `offset` of a row is a zxid. It is the zxid of the applied transaction, or of the
newest transaction that the client has seen. Ids such as ZK-02 name the rules in
docs/kafka/ZOOKEEPER_CONSUMER.md.
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
    """Transactions that one incarnation of a server has applied."""

    applied: int = 0  # zxid of the newest transaction
    # Number of transactions. The server's next transaction has this index in the ensemble's
    # sequence.
    place: int = 0
    died: bool = False
    # Rows of clients whose sessions this server accepted although, by its rows so far, it lacked a
    # transaction that the client had seen. This may be an illusion. If the client's clock is
    # behind, the client's row may come before the row of the transaction. So each of these rows is
    # judged only when the server applies its next transaction.
    awaited: list[TraceRow] = field(default_factory=list)


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
        """Return True if the run has a ZooKeeper ensemble."""
        return bool(context.zookeeper_groups)

    def __init__(self, context: CheckContext, evidence: Evidence | None = None) -> None:
        super().__init__(context, evidence)
        self._tree = self.evidence.zookeeper_tree
        self._servers: dict[str, _Server] = {}
        # Transactions of the ensemble: zxid and content (`detail` of the row)
        self._sequence: list[tuple[int, str | None]] = []
        # (server, client) -> watches that fired, and whose events the client has not yet received
        self._fired: dict[tuple[str, str], deque[TraceRow]] = {}
        # (server, client) -> events whose rows came before the rows of their watches. This happens
        # only in real time, if the server's clock is behind the client's.
        self._early_events: dict[tuple[str, str], deque[TraceRow]] = {}
        # In real time, rows ZOOKEEPER_CLAIM_CONFLICT, which are judged at the end of the run
        self._conflicts: list[TraceRow] = []
        self._seen = {
            "transactions": 0,
            "transactions_applied": 0,
            "events": 0,
            "sessions_taken_up": 0,
            "owners_met": 0,
        }

    def judge(self, row: TraceRow) -> None:
        """Judge a transaction, an event, an accepted session or a read of an owner node."""
        match row.kind:
            case TraceKind.ZOOKEEPER_TXN_APPLIED:
                self._judge_transaction(row)
            case TraceKind.ZOOKEEPER_WATCH_FIRED:
                self._observe_fired(row)
            case TraceKind.ZOOKEEPER_EVENT_RECEIVED:
                self._judge_event(row)
            case TraceKind.ZOOKEEPER_CLIENT_STATE:
                self._observe_client_state(row)
            case TraceKind.ZOOKEEPER_CLAIM_CONFLICT:
                self._seen["owners_met"] += 1
                if self.context.in_virtual_time:
                    self._judge_conflict(row)
                else:
                    self._conflicts.append(row)
            case TraceKind.NODE_STARTED:
                # A server that starts again applies the whole sequence from its beginning.
                self._servers.pop(row.node, None)
                self._forget_events(row.node)
            case _:  # NODE_KILLED
                server = self._servers.get(row.peer or "")
                if server is not None:
                    server.died = True
                self._forget_events(row.peer or "")

    # -- one sequence -------------------------------------------------------------------------

    def _judge_transaction(self, row: TraceRow) -> None:
        """Judge a transaction that a server applied (rule 1)."""
        self._seen["transactions_applied"] += 1
        zxid = row.offset or 0
        server = self._servers.setdefault(row.node, _Server())
        txn = (zxid, row.detail)
        # The first server that applies a transaction adds it to the sequence, if its zxid is higher
        # than the last zxid there. All other servers must then apply the same transaction at the
        # same place.
        if server.place == len(self._sequence) and (
            not self._sequence or zxid > self._sequence[-1][0]
        ):
            self._sequence.append(txn)
            self._seen["transactions"] += 1
        # If this server was the first, but the zxid was not higher than the last zxid of the
        # sequence, the transaction was not added above. Then `place` is beyond the end of the
        # sequence.
        if server.place >= len(self._sequence) or self._sequence[server.place] != txn:
            self.report_finding(f"{row.node} applied {zxid:#x} out of the ensemble's order", [row])
        elif self._tree.is_news and self._tree.problem is not None:
            self.report_finding(f"a transaction that may not be: {self._tree.problem}", [row])
        server.applied = max(server.applied, zxid)
        server.place += 1
        self._judge_awaited(row.node, server, row)

    # -- accepted sessions --------------------------------------------------------------------

    def _observe_client_state(self, row: TraceRow) -> None:
        """Note that a client has lost its server, or that a server has accepted the client.

        If the accepting server seems to be behind the client (rule 2), the row is kept in
        `awaited`.
        """
        detail = detail_of(row)
        # Events of the previous connection never arrive.
        self._forget_events(row.node)
        if detail["state"] != "SyncConnected" or row.peer is None:
            return
        self._seen["sessions_taken_up"] += 1
        server = self._servers.setdefault(row.peer, _Server())
        if (row.offset or 0) > server.applied:
            server.awaited.append(row)

    def _judge_awaited(self, name: str, server: _Server, row: TraceRow | None) -> None:
        """Judge the sessions in `server.awaited`, whose clients had seen more than the server.

        `row` is a transaction that the server `name` has now applied; None at the end of the run.
        If `row` is later than the acceptance of a session by no more than the clock error, the
        server may really have applied the transaction before. Then the server may be right.
        """
        if not server.awaited or (server.died and not self.context.in_virtual_time):
            return
        still_awaited = []  # acceptances that a later transaction may still justify
        for accepted in server.awaited:
            if row is not None and row.time_us <= accepted.time_us + self.context.clock_error_us:
                if (accepted.offset or 0) > server.applied:
                    still_awaited.append(accepted)
                continue
            self.report_finding(
                f"{name} took up the session of {accepted.node}, which had seen more than it",
                [accepted, *([] if row is None else [row])],
            )
        server.awaited = still_awaited

    # -- events -------------------------------------------------------------------------------

    def _observe_fired(self, row: TraceRow) -> None:
        """Match a watch that fired with its event, which follows it or has come early."""
        pair = (row.node, row.peer or "")
        early_events = self._early_events.get(pair)
        if early_events:
            self._judge_pair(row, early_events.popleft())
        else:
            self._fired.setdefault(pair, deque()).append(row)

    def _judge_event(self, row: TraceRow) -> None:
        """Judge an event that a client received (rule 3)."""
        self._seen["events"] += 1
        pair = (row.peer or "", row.node)
        fired = self._fired.get(pair)
        if fired:
            # Events come in the order in which their watches fired.
            self._judge_pair(fired.popleft(), row)
        else:
            self._early_events.setdefault(pair, deque()).append(row)

    def _judge_pair(self, fired: TraceRow, event: TraceRow) -> None:
        # `event.offset` is the newest zxid that the client had seen when the event came.
        # `fired.offset` is the zxid of the change. If the client had already seen this zxid, an
        # answer has shown the change too early.
        if (event.offset or 0) >= (fired.offset or 0):
            self.report_finding(
                f"{event.node} had an answer that shows the change before the event on "
                f"{detail_of(event)['path']}",
                [fired, event],
            )

    def _forget_events(self, node: str) -> None:
        # A process that has ended sends and receives no more events. `node` may be a server or a
        # client.
        for rows_by_pair in (self._fired, self._early_events):
            for pair in [pair for pair in rows_by_pair if node in pair]:
                del rows_by_pair[pair]

    # -- reads of owner nodes -----------------------------------------------------------------

    def _judge_conflict(self, row: TraceRow) -> None:
        """Judge a consumer that read the owner node of another consumer (rule 4).

        The owner in the row must be the owner in the tree at the zxid of the row. If the consumer
        found no owner (None in the row), the tree must have no owner node.
        """
        path = owner_path(row.group or "", row.partition or "")
        znode = self._tree.at(path, row.offset or 0)
        owner = detail_of(row)["owner"]
        if owner == (None if znode is None else znode.data):
            return
        self.report_finding(
            f"{row.node} met an owner node of {row.partition} that was not there: "
            f"{'none' if owner is None else 'of a session that was over'}",
            [row, *([] if znode is None else [znode.row])],
            group=row.group,
            partition=row.partition,
        )

    def finish(self) -> CheckReport:
        """Judge the sessions and owner nodes that wait for rows of other nodes, and report.

        In real time, owner nodes are judged only now. The row of a claim may come before the row of
        the transaction that created the owner node, because the clocks of their nodes differ.
        """
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
