"""SeenCluster: the state of the cluster as the rows of a trace have shown it so far.

The coverage marks (rare situations of a run) need this state, because most situations do not show
in one row alone. For example, to see that "a member expired while it was paused", one needs the row
about the expiry, and must know which nodes are paused. The condition of a mark is checked with each
row first. Then the row is added to the state.

The checkers of a run collect some of these facts, too. Their collection is called the evidence.
Four attributes of SeenCluster refer to parts of the evidence: `coordinators`, `presence`, `owners`
and `zookeeper_tree`.

Of all partitions, only those of `__consumer_offsets` are followed. They are called offsets
partitions here.
"""

from collections import deque
from collections.abc import Callable
from typing import TypeVar

import msgspec

from chaos.checkers.context import CheckContext
from chaos.checkers.evidence.board import Evidence
from chaos.exploration.marks.seen_zookeeper import SeenZooKeeper
from protocol.causes import DeletionCause
from protocol.trace import TraceKind, TraceRow

V = TypeVar("V")

SUCCEEDED = (None, "NONE")
"""Values that the column `error` has in the row of a success."""
INDEFINITE = ("REQUEST_TIMED_OUT", "TIMED_OUT", "DISCONNECTED")
"""Errors of a commit after which its member does not know whether the commit was stored."""
DECIDED = ("PrepareCommit", "PrepareAbort")
"""States of a transaction whose outcome is decided, but whose markers are not all written.

A marker is the record that ends a transaction in a partition.
"""
_OPERATIONS = ("rollout", "scale")
"""Faults that replace, add or remove members of a group, and go on after their injection."""
_CREATION = "create_topic"
"""Fault in which an administrator creates a topic."""
MAX_KEPT_APPENDS = 256
"""Maximum number of failed appends that are remembered for one log. The oldest are dropped."""
MAX_KEPT_ELECTIONS = 3
"""Maximum number of elections that are remembered for one partition. The oldest are dropped."""


class _Detail(msgspec.Struct, rename={"before": "from"}):
    """The keys that marks use in the details of rows.

    A detail is a JSON object, and its keys depend on the kind of row. The key `from` is called
    `before` here, because `from` is a keyword of Python.
    """

    isr: tuple[int, ...] = ()
    to: str = ""
    state: str = ""
    members: tuple[str, ...] = ()
    leader: str | None = None
    partitions: tuple[str, ...] = ()
    before: str | tuple[str, ...] = ""  # a state, or one end of a cut
    transactional_id: str = ""
    producer_id: int = -1
    committed: bool = False
    client_reason: str | None = None
    reason: str = ""


_decode = msgspec.json.Decoder(_Detail).decode
_NO_DETAIL = _Detail()


class _Fault(msgspec.Struct):
    """The keys that marks use in the detail of a FAULT_INJECTED row.

    - `fault`: the kind of fault.
    - `groups`: the groups of its targets.
    - `topic`: the topic that the fault `create_topic` is to create.
    """

    fault: str = ""
    groups: tuple[str, ...] = ()
    topic: str = ""


class _DeletedTopic(msgspec.Struct):
    """The key that marks use in the detail of a TOPIC_DELETED row.

    `_Detail` cannot decode such a detail, because its `partitions` is a number, not a list.
    """

    topic: str


def operation_of(row: TraceRow) -> tuple[str, ...]:
    """Return the groups whose members are replaced, added or removed by a fault.

    `row` is a FAULT_INJECTED row. If its fault is neither a rollout nor a scaling, the result is
    empty.
    """
    fault = msgspec.json.decode(row.detail or "{}", type=_Fault)
    return fault.groups if fault.fault in _OPERATIONS else ()


def created_topic_of(row: TraceRow) -> str | None:
    """Return the topic that a fault is to create; None if the fault creates no topic.

    `row` is a FAULT_INJECTED row. It is written before the controller answers, so the creation may
    still be refused.
    """
    fault = msgspec.json.decode(row.detail or "{}", type=_Fault)
    return fault.topic if fault.fault == _CREATION else None


def detail_of(row: TraceRow) -> _Detail:
    """Return the keys of the row's detail that marks use; a missing key has its default."""
    return _NO_DETAIL if row.detail is None else _decode(row.detail)


class SeenCluster:
    """The state of the cluster so far, in one run.

    The conditions of marks read the attributes, and do not change them. In the comments below, a
    place is a pair (node, offsets partition). It stands for one broker's replica of the partition.
    """

    def __init__(self, context: CheckContext, evidence: Evidence) -> None:
        self.context = context
        self.coordinators = evidence.coordinators
        self.presence = evidence.presence
        self.owners = evidence.owners
        self.zookeeper_tree = evidence.zookeeper_tree
        # The ZooKeeper ensemble, and the consumers that use it.
        self.on_zookeeper = SeenZooKeeper()
        # Offsets partition -> the groups that it stores.
        self.groups_in: dict[str, list[str]] = {}
        for group, expected in context.groups.items():
            self.groups_in.setdefault(expected.offsets_partition, []).append(group)
        # Node that was killed or has stopped -> time at which this happened.
        self.killed: dict[str, int] = {}
        # Paused node -> time at which its pause began.
        self.paused: dict[str, int] = {}
        # Node -> (begin, end) of its last pause that is over.
        self.pauses: dict[str, tuple[int, int]] = {}
        # The keys are the fenced brokers.
        self.fenced: dict[str, None] = {}
        # Partition -> its newest elections, at most MAX_KEPT_ELECTIONS, newest last.
        self.elections: dict[str, deque[TraceRow]] = {}
        # Place -> the leader epoch in which the broker itself believes that it leads.
        self.believes: dict[tuple[str, str], int] = {}
        # Partition -> its in-sync replicas.
        self.isr: dict[str, tuple[int, ...]] = {}
        # Place -> the row with which the load that is in progress began.
        self.loading: dict[tuple[str, str], TraceRow] = {}
        # Place -> id of an append without a result -> the row with which the append began.
        self.in_flight: dict[tuple[str, str], dict[int, TraceRow]] = {}
        # The appends that a broker began although another leader had been elected already. The keys
        # are (node, incarnation, id of the append). An incarnation is one process of a node.
        self.attempts: dict[tuple[str, int, int], None] = {}
        # Place -> base offsets of appends that failed after they had been written to the log.
        self.unacknowledged: dict[tuple[str, str], deque[int]] = {}
        # Place -> end offset of the last load.
        self.loaded_to: dict[tuple[str, str], int] = {}
        # Place -> the high watermark that the node knows.
        self.high_watermarks: dict[tuple[str, str], int] = {}
        # Group -> number of a generation -> (node, incarnation) that began this generation first.
        self.generations: dict[str, dict[int, tuple[str, int]]] = {}
        # Group -> member id of the leader of its newest generation.
        self.leaders: dict[str, str] = {}
        # Member id -> node of the consumer with this member id.
        self.nodes: dict[str, str] = {}
        # The keys (group, partition, offset) are commits with an unknown outcome: they failed with
        # one of the errors INDEFINITE.
        self.indefinite: dict[tuple[str, str, int], None] = {}
        # Transactional id -> coordinator that decided the outcome of the open transaction.
        self.decided: dict[str, str] = {}
        # (group, producer id) of an open transaction -> coordinator that last took its offsets.
        self.transactions: dict[tuple[str, int], str] = {}
        # The keys are the groups that an administrator has deleted.
        self.deleted: dict[str, None] = {}
        # The keys are the topics that were deleted.
        self.deleted_topics: dict[str, None] = {}
        # Id of an unfinished rollout or scaling -> its groups.
        self.operations: dict[str, tuple[str, ...]] = {}
        self.updates: dict[str, Callable[[TraceRow], object]] = {
            TraceKind.NODE_STARTED: self._started,
            TraceKind.NODE_KILLED: self._ended,
            TraceKind.NODE_STOPPED: self._ended,
            TraceKind.NODE_PAUSED: self._paused,
            TraceKind.NODE_RESUMED: self._resumed,
            TraceKind.BROKER_FENCED: self._fenced,
            TraceKind.BROKER_UNFENCED: self._unfenced,
            TraceKind.LEADER_ELECTED: self._elected,
            TraceKind.ISR_CHANGED: self._isr_changed,
            TraceKind.BECAME_LEADER: self._became_leader,
            TraceKind.BECAME_FOLLOWER: self._became_follower,
            TraceKind.APPEND_STARTED: self._append_started,
            TraceKind.APPEND_COMPLETED: self._append_completed,
            TraceKind.HIGH_WATERMARK: self._high_watermark,
            TraceKind.LOAD_STARTED: self._load_started,
            TraceKind.LOAD_COMPLETED: self._load_completed,
            TraceKind.UNLOAD_COMPLETED: self._unload_completed,
            TraceKind.GROUP_STATE: self._group_state,
            TraceKind.GENERATION_STARTED: self._generation_started,
            TraceKind.MEMBER_STATE: self._member_state,
            TraceKind.COMMIT_FAILED: self._commit_failed,
            TraceKind.COMMIT_STORED: self._commit_stored,
            TraceKind.TRANSACTION_STATE: self._transaction_state,
            TraceKind.TXN_COMMIT_PENDING: self._transaction_open,
            TraceKind.TRANSACTION_COMPLETED: self._transaction_completed,
            TraceKind.TOPIC_DELETED: self._topic_deleted,
            TraceKind.FAULT_INJECTED: self._injected,
            TraceKind.FAULT_HEALED: self._healed,
        }
        """The method to call with a row, by the row's kind."""

    # -- questions ----------------------------------------------------------------------------

    def partition_of(self, group: str | None) -> str:
        """Return the offsets partition of a group; "" for an unknown group."""
        expected = self.context.groups.get(group or "")
        return "" if expected is None else expected.offsets_partition

    def is_operated_on(self, group: str | None) -> bool:
        """Return True while a rollout or a scaling of this group goes on."""
        return any(group in groups for groups in self.operations.values())

    def session_us(self, partition: str | None) -> int:
        """Return the longest session timeout of the groups in a partition; 0 without a group."""
        groups = self.groups_in.get(partition or "", ())
        return max((self.context.groups[each].session_timeout_us for each in groups), default=0)

    def election(self, partition: str | None) -> TraceRow | None:
        """Return the row of the newest election of a partition's leader; None before the first."""
        elections = self.elections.get(partition or "")
        return elections[-1] if elections else None

    def is_deposed(self, node: str, partition: str | None, epoch: int | None) -> bool:
        """Return True if `node` led in the leader epoch `epoch`, and has been replaced since.

        If the newest election gave the partition no leader at all, the node counts as replaced,
        too. If `epoch` is None, the node does not lead the partition, and the result is False.
        """
        newest = self.election(partition)
        return (
            newest is not None
            and epoch is not None
            and (newest.leader_epoch or 0) > epoch
            and newest.peer != node
        )

    def is_out(self, node: str | None) -> bool:
        """Return True if a node is killed, stopped or paused."""
        return node in self.killed or node in self.paused

    def groups_with(self, node: str | None, partition: str | None, state: str) -> bool:
        """Return True if, at the coordinator `node`, a group of the partition is in `state`."""
        return any(
            self.coordinators.state_at(node or "", group) == state
            for group in self.groups_in.get(partition or "", ())
        )

    # -- nodes --------------------------------------------------------------------------------
    # The driver is the process that injects faults. In rows that the driver or the controller has
    # written, `row.peer` is the node that the row is about.

    def _injected(self, row: TraceRow) -> None:
        groups = operation_of(row)
        if groups:
            self.operations[row.cause or ""] = groups  # `cause` is the fault's id

    def _healed(self, row: TraceRow) -> None:
        self.operations.pop(row.cause or "", None)

    def _started(self, row: TraceRow) -> None:
        self.killed.pop(row.node, None)
        self.paused.pop(row.node, None)

    def _ended(self, row: TraceRow) -> None:
        # The driver writes NODE_KILLED, with the killed node in `peer`. But NODE_STOPPED is written
        # by the node that stops.
        node = row.peer or row.node
        self.killed[node] = row.time_us
        self.paused.pop(node, None)
        _drop_node(self.believes, node)
        _drop_node(self.loading, node)
        _drop_node(self.in_flight, node)
        _drop_node(self.high_watermarks, node)

    def _paused(self, row: TraceRow) -> None:
        self.paused[row.peer or ""] = row.time_us

    def _resumed(self, row: TraceRow) -> None:
        node = row.peer or ""
        self.pauses[node] = (self.paused.pop(node, row.time_us), row.time_us)

    def _fenced(self, row: TraceRow) -> None:
        self.fenced[row.peer or ""] = None

    def _unfenced(self, row: TraceRow) -> None:
        self.fenced.pop(row.peer or "", None)

    # -- leadership and log -------------------------------------------------------------------

    def _elected(self, row: TraceRow) -> None:
        if row.partition in self.groups_in:
            kept = self.elections.setdefault(row.partition, deque(maxlen=MAX_KEPT_ELECTIONS))
            kept.append(row)
            self.isr[row.partition] = detail_of(row).isr

    def _isr_changed(self, row: TraceRow) -> None:
        if row.partition in self.groups_in:
            self.isr[row.partition] = detail_of(row).isr

    def _became_leader(self, row: TraceRow) -> None:
        if row.partition in self.groups_in:
            self.believes[row.node, row.partition] = row.leader_epoch or 0

    def _became_follower(self, row: TraceRow) -> None:
        self.believes.pop((row.node, row.partition or ""), None)

    def _append_started(self, row: TraceRow) -> None:
        append_id = row.correlation_id or 0
        self.in_flight.setdefault((row.node, row.partition or ""), {})[append_id] = row
        if self.is_deposed(row.node, row.partition, row.leader_epoch):
            self.attempts[row.node, row.incarnation, append_id] = None

    def _append_completed(self, row: TraceRow) -> None:
        place = (row.node, row.partition or "")
        self.in_flight.get(place, {}).pop(row.correlation_id or 0, None)
        # If a failed append has no offset, it was refused before it reached the log.
        if row.error not in SUCCEEDED and row.offset is not None:
            kept = self.unacknowledged.setdefault(place, deque(maxlen=MAX_KEPT_APPENDS))
            kept.append(row.offset)

    def _high_watermark(self, row: TraceRow) -> None:
        self.high_watermarks[row.node, row.partition or ""] = row.offset or 0

    # -- coordinators -------------------------------------------------------------------------

    def _load_started(self, row: TraceRow) -> None:
        self.loading[row.node, row.partition or ""] = row

    def _load_completed(self, row: TraceRow) -> None:
        place = (row.node, row.partition or "")
        self.loading.pop(place, None)
        self.loaded_to[place] = row.offset or 0

    def _unload_completed(self, row: TraceRow) -> None:
        self.loading.pop((row.node, row.partition or ""), None)

    def _group_state(self, row: TraceRow) -> None:
        if row.cause == DeletionCause.DELETED:
            self.deleted[row.group or ""] = None

    def _generation_started(self, row: TraceRow) -> None:
        begun = self.generations.setdefault(row.group or "", {})
        begun.setdefault(row.generation or 0, (row.node, row.incarnation))
        self.leaders[row.group or ""] = detail_of(row).leader or ""

    # -- topics -------------------------------------------------------------------------------

    def _topic_deleted(self, row: TraceRow) -> None:
        deleted = msgspec.json.decode(row.detail or "{}", type=_DeletedTopic)
        self.deleted_topics[deleted.topic] = None

    # -- members ------------------------------------------------------------------------------

    def _member_state(self, row: TraceRow) -> None:
        if row.member is not None:
            self.nodes[row.member] = row.node

    def _commit_failed(self, row: TraceRow) -> None:
        if row.error in INDEFINITE and row.offset is not None:
            self.indefinite[row.group or "", row.partition or "", row.offset] = None

    def _commit_stored(self, row: TraceRow) -> None:
        if self.indefinite and row.offset is not None:
            # A commit with an unknown outcome may have the same offset as this commit, which was
            # stored. A later fetch of this offset then no longer shows that the other commit was
            # stored.
            self.indefinite.pop((row.group or "", row.partition or "", row.offset), None)

    # -- transactions -------------------------------------------------------------------------

    def _transaction_state(self, row: TraceRow) -> None:
        detail = detail_of(row)
        if detail.to in DECIDED:
            self.decided[detail.transactional_id] = row.node
        else:
            self.decided.pop(detail.transactional_id, None)

    def _transaction_open(self, row: TraceRow) -> None:
        self.transactions[row.group or "", detail_of(row).producer_id] = row.node

    def _transaction_completed(self, row: TraceRow) -> None:
        self.transactions.pop((row.group or "", detail_of(row).producer_id), None)


def _drop_node(places: dict[tuple[str, str], V], node: str) -> None:
    """Drop the entries of a node whose process has ended."""
    for place in [place for place in places if place[0] == node]:
        del places[place]
