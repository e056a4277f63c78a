"""Promises that each consumer on ZooKeeper keeps alone, without the rest of its group.

No consumer promises that the members of a group agree, nor that every partition is read. An attempt
is one try of a consumer to own its share of the partitions. It has four steps: release the old
partitions; read a view of the group's members; compute the own share; claim each partition by
creating its owner node, an ephemeral znode (a node of ZooKeeper's tree that ends with its creator's
session). A zxid is the number of a transaction of ZooKeeper; it is the `offset` of a row. Rule ids
(ZK-...) are those of docs/kafka/ZOOKEEPER_CONSUMER.md.

1. An attempt computes from a view that the consumer has read in this attempt (ZK-43). A view has
   the children of `ids`, the znode below which members register, at one zxid. This zxid is no older
   than the newest one that the consumer had seen when the attempt began.
2. An attempt releases the partitions of the last assignment before it computes (ZK-41).
3. No change of the members is missed forever (ZK-18, ZK-20). The rule is judged if the members of a
   group have not changed for NOTICE_US plus a session timeout. Then each consumer must have begun
   an attempt since the last change, or its last view must have the present members.
4. After its session has expired, a consumer commits no partition that it lost with the session
   (ZK-55). A commit that began before the loss may end after it (ZK-66).
"""

from dataclasses import dataclass, field

from chaos.checkers.base import Checker
from chaos.checkers.context import HEALED_STAGE, CheckContext, detail_of
from chaos.checkers.evidence.board import Evidence
from chaos.checkers.evidence.zookeeper_tree import Znode, owner_path
from protocol.trace import TraceKind, TraceRow
from results_schema.evidence_text import seconds
from results_schema.results import CheckReport

NOTICE_US = 10_000_000
"""Longest time in which healed servers elect a leader and follow it, and a client connects.

Measured: below 3 s.
"""


@dataclass(slots=True)
class _Consumer:
    """State of the present incarnation of a consumer."""

    group: str
    session: str | None = None  # id of the session of the last connection; None after an expiry
    since: TraceRow | None = None  # the row of the first connection in `session`
    attempt: TraceRow | None = None  # ZOOKEEPER_ATTEMPT_STARTED of the last attempt
    view: TraceRow | None = None  # the last ZOOKEEPER_VIEW
    # PARTITIONS_ASSIGNED whose owner nodes the next attempt must release; None: nothing is due
    release_due: TraceRow | None = None
    lost: TraceRow | None = None  # the last PARTITIONS_LOST, until the next assignment
    is_alive: bool = True
    member: str = ""  # the consumer's id, which is the name of its znode below `ids`
    reported: dict[str, None] = field(default_factory=dict)  # kinds of findings, each once


class ZooKeeperConsumers(Checker):
    """Each consumer on ZooKeeper reads before it computes, and releases before it claims."""

    name = "zookeeper_consumers"
    promise = (
        "a consumer on ZooKeeper computes from the members that it has read in the same attempt, "
        "releases before it claims, begins an attempt after each change of its group, and commits "
        "nothing that an expired session has taken from it"
    )
    kinds = frozenset(
        {
            TraceKind.RUN_STAGE,
            TraceKind.NODE_STARTED,
            TraceKind.NODE_KILLED,
            TraceKind.NODE_STOPPED,
            TraceKind.ZOOKEEPER_TXN_APPLIED,
            TraceKind.ZOOKEEPER_CLIENT_STATE,
            TraceKind.ZOOKEEPER_ATTEMPT_STARTED,
            TraceKind.ZOOKEEPER_VIEW,
            TraceKind.ZOOKEEPER_ATTEMPT_ENDED,
            TraceKind.ZOOKEEPER_OFFSET_COMMITTED,
            TraceKind.PARTITIONS_ASSIGNED,
            TraceKind.PARTITIONS_LOST,
        }
    )

    @classmethod
    def concerns(cls, context: CheckContext) -> bool:
        """Return True if the run has consumers on ZooKeeper."""
        return bool(context.zookeeper_groups)

    def __init__(self, context: CheckContext, evidence: Evidence | None = None) -> None:
        super().__init__(context, evidence)
        self._tree = self.evidence.zookeeper_tree
        self._consumers: dict[str, _Consumer] = {
            name: _Consumer(group)
            for group, expected in context.zookeeper_groups.items()
            for name in expected.consumers
        }
        self._changed: dict[str, TraceRow] = {}  # group -> the last change of its members
        self._healed_us: int | None = None
        # In real time only: (start of the attempt, view), judged at the end.
        self._views: list[tuple[TraceRow, TraceRow]] = []
        self._last_us = 0
        self._over = False
        self._seen = {"attempts": 0, "views": 0, "commits": 0, "changes_of_members": 0}

    def judge(self, row: TraceRow) -> None:
        """Judge a step of a consumer; remember the changes of its group's members."""
        if self._over:
            return
        self._last_us = row.time_us
        if row.kind == TraceKind.RUN_STAGE:
            self._observe_stage(row)
        elif row.kind == TraceKind.ZOOKEEPER_TXN_APPLIED:
            self._observe_transaction(row)
        else:
            # A row about a killed node is written by another node; the killed one is its `peer`.
            node = row.peer or "" if row.kind == TraceKind.NODE_KILLED else row.node
            consumer = self._consumers.get(node)
            if consumer is not None:
                self._observe_consumer(consumer, row)

    def _observe_stage(self, row: TraceRow) -> None:
        """Note when the faults are healed, and stop judging when the run stops its nodes."""
        match detail_of(row).get("stage"):
            case "stopping":
                self._over = True
            case stage if stage == HEALED_STAGE:
                self._healed_us = row.time_us
            case _:
                pass

    def _observe_transaction(self, row: TraceRow) -> None:
        """Note a change of a group's members: a znode below `ids` that was created or removed."""
        # Every server applies each transaction, but only its first row changes the tree.
        if not self._tree.is_news:
            return
        detail = detail_of(row)
        if detail["op"] == "closeSession":
            # The znode below `ids` is ephemeral: it is removed with its session. `node` is the
            # consumer whose session was closed.
            node = self._tree.clients.get(detail["session"])
            consumer = None if node is None else self._consumers.get(node)
            if consumer is not None:
                self._note_change(consumer.group, row)
        elif detail["op"] in ("create", "delete"):
            # A path such as /consumers/GROUP/ids/MEMBER.
            group, _, rest = str(detail.get("path")).removeprefix("/consumers/").partition("/")
            if rest.startswith("ids/"):
                self._note_change(group, row)

    def _note_change(self, group: str, row: TraceRow) -> None:
        self._changed[group] = row
        self._seen["changes_of_members"] += 1

    def _observe_consumer(self, consumer: _Consumer, row: TraceRow) -> None:
        """Follow the steps of one consumer, and judge its views and commits."""
        match row.kind:
            case TraceKind.NODE_STARTED:
                self._consumers[row.node] = _Consumer(consumer.group)
            case TraceKind.NODE_KILLED | TraceKind.NODE_STOPPED:
                consumer.is_alive = False
            case TraceKind.ZOOKEEPER_CLIENT_STATE:
                self._observe_client_state(consumer, row)
            case TraceKind.ZOOKEEPER_ATTEMPT_STARTED:
                self._seen["attempts"] += 1
                consumer.attempt, consumer.member = row, row.member or ""
            case TraceKind.ZOOKEEPER_VIEW:
                self._observe_view(consumer, row)
            case TraceKind.ZOOKEEPER_ATTEMPT_ENDED:
                if row.cause_text is not None:
                    # The attempt failed at another consumer's owner node. It keeps the owner nodes
                    # that it claimed before.
                    consumer.release_due = None
            case TraceKind.PARTITIONS_ASSIGNED:
                consumer.lost = None
                # Rule 2 is judged for an assignment that was made within one session.
                began = consumer.attempt
                if began is not None and consumer.since is not None:
                    in_one_session = consumer.since.time_us <= began.time_us
                    consumer.release_due = row if in_one_session else None
            case TraceKind.PARTITIONS_LOST:
                # The consumer's listener for new sessions takes no lock (ZK-32, ZK-55). So an
                # attempt in the new session may have claimed partitions before PARTITIONS_LOST is
                # traced. The listener then forgets these partitions, and no attempt releases their
                # owner nodes.
                consumer.lost, consumer.release_due = row, None
            # The only kind that is left is ZOOKEEPER_OFFSET_COMMITTED.
            case _:
                self._judge_commit(consumer, row)

    def _observe_client_state(self, consumer: _Consumer, row: TraceRow) -> None:
        """Note the end of a consumer's session, or its first connection in a new session."""
        detail = detail_of(row)
        if detail["state"] == "Expired":
            consumer.session = consumer.since = consumer.release_due = None
        elif detail["state"] == "SyncConnected" and detail["session"] != consumer.session:
            consumer.session, consumer.since = detail["session"], row
            consumer.release_due = None

    # -- views and releases -------------------------------------------------------------------

    def _observe_view(self, consumer: _Consumer, row: TraceRow) -> None:
        """Judge a view by rules 1 and 2; in real time by rule 1 only, at the end of the run."""
        self._seen["views"] += 1
        consumer.view = row
        began, since = consumer.attempt, consumer.since
        if began is None or since is None or since.time_us > began.time_us:
            # The session began within the attempt, perhaps on another server, whose tree is older
            # than the tree with which the attempt began. Rules 1 and 2 do not apply then.
            return
        if not self.context.in_virtual_time:
            self._views.append((began, row))
            return
        self._judge_view(began, row)
        self._judge_release(consumer, row)

    def _judge_view(self, began: TraceRow, row: TraceRow) -> None:
        """Report a view that does not equal the members at any zxid since the attempt began."""
        group, members = row.group or "", tuple(detail_of(row)["members"])
        ids = f"/consumers/{group}/ids"
        # Zxids: the newest one that the consumer had seen at the attempt's start, and the view's.
        after, until = began.offset or 0, row.offset or 0
        moments = [after, *self._tree.changes_of(ids, after, until)]
        if any(self._tree.children(ids, zxid) == members for zxid in moments):
            return
        self.report_finding(
            f"{row.node} computed from members of {group} that it cannot have read in this attempt",
            [began, row],
            group=group,
        )

    def _judge_release(self, consumer: _Consumer, row: TraceRow) -> None:
        """Report owner nodes of the last assignment that still exist when a share is computed."""
        due, consumer.release_due = consumer.release_due, None
        if due is None or consumer.session is None:
            return
        # Only the last assignment is judged. A node of an earlier one may stay: the listener for
        # new sessions takes no lock, and may empty the registry of owned partitions before a
        # running attempt releases them (ZK-32).
        owned = self._tree.owned_by(consumer.session)
        due_paths = [
            owner_path(consumer.group, partition) for partition in detail_of(due)["partitions"]
        ]
        unreleased = [path for path in due_paths if path in owned]
        if unreleased:
            self.report_finding(
                f"{row.node} computed a new share while it still owned partitions of the last one",
                [due, self._row_of(unreleased[0]), row],
                group=consumer.group,
            )

    def _row_of(self, path: str) -> TraceRow:
        """Return the row that created the znode at `path`."""
        znode: Znode | None = self._tree.now(path)
        if znode is None:
            raise ValueError(f"no znode {path}")
        return znode.row

    # -- commits ------------------------------------------------------------------------------

    def _judge_commit(self, consumer: _Consumer, row: TraceRow) -> None:
        """Report a commit that began after its partition was lost with the session (rule 4)."""
        self._seen["commits"] += 1
        lost = consumer.lost
        if lost is None or detail_of(row)["begun_us"] < lost.node_time_us:
            return
        if row.partition in detail_of(lost)["partitions"] and "commit" not in consumer.reported:
            consumer.reported["commit"] = None
            self.report_finding(
                f"{row.node} committed a partition that it had lost with its session",
                [lost, row],
                group=row.group,
                partition=row.partition,
            )

    # -- the end ------------------------------------------------------------------------------

    def finish(self) -> CheckReport:
        """Judge views in real time, then consumers that missed the last change of their group.

        In real time the row of a view may come before the row of a transaction that it shows.
        """
        for began, view in self._views:
            self._judge_view(began, view)
        for node, consumer in self._consumers.items():
            self._judge_notice(node, consumer)
        return self.report(
            judged=self._seen["attempts"],
            seen=self._seen,
            note="" if self._seen["attempts"] else "no consumer began a rebalance",
        )

    def _judge_notice(self, node: str, consumer: _Consumer) -> None:
        """Report a consumer that has missed the last change of its group's members (rule 3)."""
        changed, view = self._changed.get(consumer.group), consumer.view
        if changed is None or view is None or not consumer.is_alive or self._healed_us is None:
            return
        ids = f"/consumers/{consumer.group}/ids"
        registered = self._tree.now(f"{ids}/{consumer.member}")
        if registered is None or registered.session != consumer.session:
            return  # a consumer that is not registered sets no watch on the members (ZK-56)
        bound_us = NOTICE_US + self.context.zookeeper_groups[consumer.group].session_timeout_us
        # The time since both the change and the healing of all faults.
        waited_us = self._last_us - max(changed.time_us, self._healed_us)
        if waited_us <= bound_us:
            return
        began = consumer.attempt
        # It has begun an attempt since the change.
        if began is not None and began.time_us >= changed.time_us:
            return
        # Its last view has the members that the group has now.
        if self._tree.children(ids, self._tree.last_zxid) == tuple(detail_of(view)["members"]):
            return
        self.report_finding(
            f"{node} never heard of the last change of {consumer.group}, within "
            f"{seconds(waited_us)} in which nothing was broken",
            [view, changed],
            group=consumer.group,
        )
