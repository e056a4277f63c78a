"""Promises of each single consumer on ZooKeeper.

In groups on ZooKeeper each member computes by itself which partitions it should own. No server
makes sure that the members come to the same result, so a group as a whole promises little. But each
consumer promises how it proceeds. To get its share of the partitions, it makes an attempt:

- it releases its old partitions;
- it reads which members the group has. These are the children of the znode `ids`, and the list of
  them is called a view;
- it computes its share;
- it claims each partition of its share by creating an owner node for the partition. An owner node
  is an ephemeral znode, which ends with the consumer's session.

Four rules are judged. In these rules, a zxid is the number of a change of ZooKeeper's tree. The
trace has it as `offset` of a row. Ids such as ZK-43 name the rules in
docs/kafka/ZOOKEEPER_CONSUMER.md.

1. An attempt computes from a view that was read in this attempt (ZK-43). The view must show the
   members as they were at one zxid, and not earlier than what the consumer had seen when the
   attempt began.
2. An attempt releases the partitions of the last assignment before it computes (ZK-41).
3. A consumer does not miss a change of the members for ever (ZK-18, ZK-20). When the members have
   not changed for NOTICE_US plus a session timeout, the consumer must have begun an attempt since
   the last change, or its last view must show the present members.
4. When a consumer has lost partitions with its session, it does not commit offsets of these
   partitions any more (ZK-55). But a commit that began before the loss may end after it (ZK-66).
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
"""Longest time from the end of all faults until servers have a leader and clients are connected.

Measured: below 3 s.
"""


@dataclass(slots=True)
class _Consumer:
    """What is known of the present process of a consumer."""

    group: str
    session: str | None = None  # id of its session; None before the first, and after an expiry
    since: TraceRow | None = None  # the row of the first connection in this session
    attempt: TraceRow | None = None  # ZOOKEEPER_ATTEMPT_STARTED of the last attempt
    view: TraceRow | None = None  # the last ZOOKEEPER_VIEW
    # PARTITIONS_ASSIGNED of the partitions that the next attempt must release. None if it need not
    # release any.
    release_due: TraceRow | None = None
    lost: TraceRow | None = None  # the last PARTITIONS_LOST, until the next assignment
    is_alive: bool = True
    member: str = ""  # the consumer's member id, which is the name of its znode below `ids`
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
        # In real time: (ZOOKEEPER_ATTEMPT_STARTED, ZOOKEEPER_VIEW), to be judged at the end.
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
            # The driver of the run writes NODE_KILLED. The killed node is the row's `peer`.
            node = (row.peer or "") if row.kind == TraceKind.NODE_KILLED else row.node
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
        # Each server writes a row when it applies the transaction. Only the first row is news.
        if not self._tree.is_news:
            return
        detail = detail_of(row)
        if detail["op"] == "closeSession":
            # The consumer's znode below `ids` is ephemeral: it is removed with the session.
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
        """Note the last change of a group's members."""
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
                consumer.attempt = row
                consumer.member = row.member or ""
            case TraceKind.ZOOKEEPER_VIEW:
                self._observe_view(consumer, row)
            case TraceKind.ZOOKEEPER_ATTEMPT_ENDED:
                if row.cause_text is not None:
                    # The attempt met another consumer's owner node, and failed. The owner nodes
                    # that it had created before stay, and no rule says when they go.
                    consumer.release_due = None
            case TraceKind.PARTITIONS_ASSIGNED:
                consumer.lost = None
                # Rule 2 is judged only for an attempt that was made within one session.
                began = consumer.attempt
                if began is not None and consumer.since is not None:
                    in_one_session = consumer.since.time_us <= began.time_us
                    consumer.release_due = row if in_one_session else None
            case TraceKind.PARTITIONS_LOST:
                # The consumer writes this row when it learns of its new session. Meanwhile an
                # attempt may already have claimed partitions in that session, because the attempt
                # and the handler of the new session take no lock (ZK-32, ZK-55). The consumer then
                # forgets these partitions, and no attempt releases them.
                consumer.lost, consumer.release_due = row, None
            case _:  # ZOOKEEPER_OFFSET_COMMITTED
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
        """Judge a view by rules 1 and 2. In real time rule 1 is judged at the end, rule 2 never."""
        self._seen["views"] += 1
        consumer.view = row
        began, since = consumer.attempt, consumer.since
        if began is None or since is None or since.time_us > began.time_us:
            # The consumer has got a new session during the attempt, perhaps on another server,
            # which may have an older tree. Neither rule applies.
            return
        if not self.context.in_virtual_time:
            self._views.append((began, row))
            return
        self._judge_view(began, row)
        self._judge_release(consumer, row)

    def _judge_view(self, began: TraceRow, row: TraceRow) -> None:
        """Report a view that shows the members at no zxid since the attempt began (rule 1)."""
        group, members = row.group or "", tuple(detail_of(row)["members"])
        ids = f"/consumers/{group}/ids"
        # The members may be those at the zxid that the consumer had seen when the attempt began, or
        # after any of their changes up to the zxid of the view.
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
        """Report owner nodes of the last assignment that still exist at the view (rule 2)."""
        due = consumer.release_due
        consumer.release_due = None  # each assignment is judged once
        if due is None or consumer.session is None:
            return
        # Owner nodes of earlier assignments are not judged. Some may stay, because a consumer that
        # learns of a new session forgets its partitions, perhaps before a running attempt has
        # released them (ZK-32).
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
        # Both times come from the consumer's own clock.
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
        # The length of the last part of the run, in which nothing was broken and the members did
        # not change
        waited_us = self._last_us - max(changed.time_us, self._healed_us)
        if waited_us <= bound_us:
            return
        began = consumer.attempt
        # The consumer noticed the change if it has begun an attempt since then.
        if began is not None and began.time_us >= changed.time_us:
            return
        # The consumer did not need to notice the change if its last view shows the present members.
        if self._tree.children(ids, self._tree.last_zxid) == tuple(detail_of(view)["members"]):
            return
        self.report_finding(
            f"{node} never heard of the last change of {consumer.group}, within "
            f"{seconds(waited_us)} in which nothing was broken",
            [view, changed],
            group=consumer.group,
        )
