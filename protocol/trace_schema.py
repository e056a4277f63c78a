"""The schema of the trace: meaning, columns and detail of each kind of row.

The trace is the recording of a run: a table with one row for each event. All rows have the same
columns, but a kind of row fills only some of them. For example, a row GROUP_STATE fills `group`,
`generation`, `cause` and others. Its column `detail`, a JSON object, has `from` and `to`.

The table `TRACE_SECTIONS` at the end says which columns each kind fills, what these columns mean,
and which fields the detail has. The `...Detail` classes before the table define these fields.
`nonconformity` checks a row against the table, a page of the documentation prints the table, and
`pipeline` takes the types of the details from the table.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from operator import attrgetter

import msgspec

from protocol.causes import (
    CoordinatorUnknownCause,
    DeletionCause,
    FencingCause,
    GroupStateCause,
    IgnoredCause,
    KillCause,
    MemberStateCause,
    OffsetFetchCause,
    PositionCause,
    RebalanceCause,
    RecoveryCause,
    RemovalCause,
    TransactionCause,
)
from protocol.trace import TraceKind, TraceRow

STAMP = ("run", "time_us", "node_time_us", "seq", "node", "incarnation", "kind")
"""Columns that every row fills."""
COLUMN_MEANINGS = {
    "run": "id of the run",
    "time_us": "run's clock, microseconds since the run began",
    "node_time_us": "node's own monotonic clock, microseconds",
    "seq": "number of the row in its incarnation, from 0",
    "node": "node that wrote the row",
    "incarnation": "life of the node, from 0",
    "kind": "one of the kinds below",
    "peer": "node at the other end, or node that the row is about",
    "group": "group id",
    "member": "member id",
    "partition": "topic and index, as Kafka prints them",
    "generation": "generation of the group",
    "leader_epoch": "leader epoch of the partition",
    "offset": "offset in the partition",
    "api": "API of a request, such as `JoinGroup`",
    "error": "name of a Kafka error, `NONE`, or a client's own: `DISCONNECTED`, `TIMED_OUT`",
    "correlation_id": "number of a request on its connection, or of an append",
    "cause": "a closed value, or a name",
    "detail": "JSON object with the fields of the kind",
    "cause_text": "sentence for people; no program reads it",
}
"""What each column means. For some kinds of rows, TRACE_SECTIONS has a more exact meaning."""


class Detail(msgspec.Struct, forbid_unknown_fields=True):
    """Base class of the details. A field without a default is in every row of the kind."""


# -- the run and its faults -----------------------------------------------------------------------


class RunStageDetail(Detail):
    """Detail of RUN_STAGE."""

    stage: str
    """starting, steady, faults, healing, liveness, recovery, verifying or stopping."""
    timeout_us: int | None = None
    """Longest duration of the stage, microseconds."""


class FaultDetail(Detail):
    """Detail of FAULT_IN_FORCE."""

    fault: str
    """Kind of fault, such as `crash`."""


class FaultInjectedDetail(FaultDetail, rename={"from_": "from"}):
    """Detail of FAULT_INJECTED."""

    target: str | None = None
    """Target of the fault, such as `coordinator-of(group-1)`."""
    nodes: tuple[str, ...] = ()
    """Names of all nodes hit."""
    groups: tuple[str, ...] = ()
    """Groups that the fault concerns."""
    partitions: tuple[str, ...] = ()
    """Partitions that the fault concerns."""
    members_survive: bool | None = None
    """True if no member is hit or out of reach."""
    momentary: bool | None = None
    """True if the fault lasts no time, so that it is never healed."""
    from_: tuple[str, ...] = ()
    """Senders of the links hit, or brokers that leaderships move away from."""
    to: tuple[str, ...] = ()
    """Receivers of the links hit, or brokers that leaderships move to."""
    disk: str | None = None
    """Disk with which the node starts again: `same` or `empty`."""
    machine: int | None = None
    """Number of the machine whose nodes are hit."""
    topic: str | None = None
    """Topic whose creation is ordered; `partitions` then has the partitions that it is to have."""
    replication_factor: int | None = None
    """Number of replicas that each partition of `topic` is to have."""
    pid: int | None = None
    """Process id of the node hit, on Ray."""


class FaultMissedDetail(FaultDetail):
    """Detail of FAULT_MISSED."""

    reason: str
    """Reason of the miss, for people."""
    target: str | None = None
    """Target of the fault, for which there was no node, or which could not be hit."""
    errors: tuple[str, ...] = ()
    """Names of Kafka's errors, if the fault is an order about a group that was refused or got no
    answer."""


class FaultHealedDetail(FaultDetail):
    """Detail of FAULT_HEALED."""

    in_force_until_us: int | None = None
    """Time just before the healing began, microseconds on the run's clock."""


class SteadyStateMissedDetail(Detail):
    """Detail of STEADY_STATE_MISSED."""

    waited_us: int
    """Time for which the run has waited, microseconds."""
    missing: tuple[str, ...]
    """Conditions of the steady state that do not hold, for people."""


class RequestWaitingDetail(Detail):
    """Detail of REQUEST_WAITING."""

    consumer: str
    """Node that waits."""
    waited_us: int
    """Time for which the node has waited, microseconds."""


# -- nodes ----------------------------------------------------------------------------------------


class NodeStartedDetail(Detail):
    """Detail of NODE_STARTED."""

    role: str
    """broker, controller, consumer, producer or admin."""
    pid: int | None = None
    """Process id, on Ray."""


class LogRecoveredDetail(Detail):
    """Detail of LOG_RECOVERED."""

    cut_bytes: int
    """Bytes that were cut off."""
    cut_batches: int | None
    """Whole batches among the bytes; null if their number is not known."""


class TaskFailedDetail(Detail):
    """Detail of TASK_FAILED."""

    exception: str
    """The traceback, or its end."""


class ConnectionRefusedDetail(Detail):
    """Detail of CONNECTION_REFUSED."""

    reason: str
    """Reason of the refusal, for people."""
    caller: str | None = None
    """Process that wanted to connect, on Ray."""


# -- controller -----------------------------------------------------------------------------------


class BrokerRegisteredDetail(Detail):
    """Detail of BROKER_REGISTERED."""

    broker_epoch: int
    """Broker epoch of the registration."""


class BrokerFencedDetail(Detail):
    """Detail of BROKER_FENCED."""

    reason: FencingCause
    """Cause of the fencing."""
    silent_ms: int | None
    """Milliseconds since the broker's last heartbeat; null if it never sent one."""


class LeaderElectedDetail(Detail):
    """Detail of LEADER_ELECTED."""

    isr: tuple[int, ...]
    """In-sync replicas, broker ids."""
    reason: str
    """Event that led to the election, for people, such as a new topic or a fenced broker."""
    unclean: bool | None = None
    """True if the leader was not in the ISR; absent otherwise."""


class IsrChangedDetail(Detail):
    """Detail of ISR_CHANGED."""

    isr: tuple[int, ...]
    """In-sync replicas, broker ids."""
    partition_epoch: int
    """Partition epoch after the change."""


class TopicDeletedDetail(Detail):
    """Detail of TOPIC_DELETED."""

    topic: str
    """Name of the topic."""
    partitions: int
    """Number of the topic's partitions."""


# -- broker ---------------------------------------------------------------------------------------


class LogTruncatedDetail(Detail):
    """Detail of LOG_TRUNCATED."""

    from_offset: int
    """Log end offset before the truncation."""


class LogCleanedDetail(Detail):
    """Detail of LOG_CLEANED."""

    records: int
    """Records left below the offset."""
    bytes: int
    """Bytes left below the offset."""
    removed_records: int
    """Records removed."""
    removed_bytes: int
    """Bytes removed."""


class AppendDetail(Detail):
    """Detail of APPEND_STARTED."""

    records: int
    """Records in the batch."""
    epoch_start_offset: int | None = None
    """First offset of the leader epoch."""


class AppendCompletedDetail(AppendDetail):
    """Detail of APPEND_COMPLETED."""

    isr: tuple[int, ...] = ()
    """Maximal ISR at the acknowledgement: the in-sync replicas that the leader knew, and those that
    it was adding."""


class LoadStartedDetail(Detail):
    """Detail of LOAD_STARTED."""

    wait_us: int
    """Microseconds that the load waited for earlier tasks."""


class LoadFailedDetail(Detail):
    """Detail of LOAD_FAILED."""

    records: int
    """Records read."""
    bytes: int
    """Bytes read."""
    ignored: int | None = None
    """Records of unknown kinds; absent if none."""


class LoadCompletedDetail(LoadFailedDetail, kw_only=True):
    """Detail of LOAD_COMPLETED."""

    groups: int
    """Groups of the partition."""


class IgnoredDetail(Detail):
    """Detail of LOAD_IGNORED and UNLOAD_IGNORED."""

    known_epoch: int
    """Leader epoch that the coordinator knows."""


class UnloadCompletedDetail(Detail):
    """Detail of UNLOAD_COMPLETED."""

    groups: int
    """Groups that were unloaded."""


# -- ZooKeeper ------------------------------------------------------------------------------------


class ZooKeeperStateDetail(Detail):
    """Detail of ZOOKEEPER_STATE."""

    state: str
    """LOOKING, FOLLOWING or LEADING."""


class ZooKeeperTxnDetail(Detail):
    """Detail of ZOOKEEPER_TXN_APPLIED."""

    session: str
    """Session that wrote, as ZooKeeper prints it."""
    op: str
    """create, delete, setData, createSession, closeSession, or error for a refused write."""
    path: str | None = None
    """Path of the znode; absent for sessions and errors."""
    data: str | None = None
    """New data of the znode."""
    ephemeral: bool | None = None
    """True if the session's end removes the znode; only for create."""


class ZooKeeperWatchDetail(Detail):
    """Detail of ZOOKEEPER_WATCH_FIRED and ZOOKEEPER_EVENT_RECEIVED."""

    type: str
    """NodeCreated, NodeDeleted, NodeDataChanged or NodeChildrenChanged."""
    path: str
    """Path of the watch."""


class ZooKeeperSessionDetail(Detail):
    """Detail of ZOOKEEPER_SESSION_EXPIRED."""

    session: str
    """Session, as ZooKeeper prints it."""


class ZooKeeperClientDetail(ZooKeeperSessionDetail):
    """Detail of ZOOKEEPER_CLIENT_STATE."""

    state: str
    """SyncConnected, Disconnected or Expired."""


class ZooKeeperAttemptDetail(Detail):
    """Detail of ZOOKEEPER_ATTEMPT_STARTED."""

    attempt: int
    """Number of the attempt in its rebalance, from 0."""


class ZooKeeperViewDetail(Detail):
    """Detail of ZOOKEEPER_VIEW."""

    members: tuple[str, ...]
    """Consumer ids that the consumer has read, sorted."""
    partitions: tuple[str, ...]
    """Partitions that the consumer computes as its own share."""


class ZooKeeperConflictDetail(Detail):
    """Detail of ZOOKEEPER_CLAIM_CONFLICT."""

    owner: str | None
    """Thread id in the owner's znode; null if the znode did not exist any more."""


class ZooKeeperAttemptEndedDetail(ZooKeeperAttemptDetail):
    """Detail of ZOOKEEPER_ATTEMPT_ENDED."""

    done: bool
    """True if the consumer owns its computed share."""
    conflicts: int
    """Number of partitions that another consumer owned."""


class ZooKeeperOffsetDetail(Detail):
    """Detail of ZOOKEEPER_OFFSET_COMMITTED."""

    store: str
    """zookeeper or kafka."""
    begun_us: int
    """Time on the node's clock at which the commit took its snapshot of consumed offsets."""


class ZooKeeperGaveUpDetail(Detail):
    """Detail of ZOOKEEPER_GAVE_UP."""

    attempts: int
    """Number of failed attempts."""
    during: str
    """starting (thrown to the program), running or new session (logged only)."""


# -- coordinators ---------------------------------------------------------------------------------


class GroupLoadedDetail(Detail):
    """Detail of GROUP_LOADED."""

    state: str
    """State in which the group was loaded."""
    members: tuple[str, ...]
    """Member ids."""
    offsets: int
    """Number of committed offsets."""
    pending: tuple[int, ...] = ()
    """Producer ids of open transactions that commit offsets."""


class TransitionDetail(Detail, rename={"from_": "from"}):
    """Detail of GROUP_STATE and MEMBER_STATE."""

    from_: str
    """State before."""
    to: str
    """State now."""


class RebalanceStartedDetail(Detail):
    """Detail of REBALANCE_STARTED; the row has no detail if both fields are absent."""

    client_reason: str | None = None
    """Reason in the member's request; absent if the request has none."""
    silent_members: tuple[str, ...] = ()
    """Member ids whose SyncGroup was missing at the deadline."""


class GenerationStartedDetail(Detail):
    """Detail of GENERATION_STARTED."""

    members: tuple[str, ...]
    """Member ids."""
    leader: str
    """Member id of the leader."""
    protocol: str | None = None
    """Protocol that was selected."""


class MemberDetail(Detail):
    """Detail of MEMBER_ADDED, and of MEMBER_REMOVED where a static member was replaced."""

    client_id: str
    """`client.id` of the member."""
    instance: str | None
    """`group.instance.id`; null for a dynamic member."""


class SessionRestartedDetail(Detail):
    """Detail of SESSION_RESTARTED."""

    session_timeout_ms: int
    """Session timeout of the member, milliseconds."""


class ProducerDetail(Detail):
    """Detail of TXN_COMMIT_PENDING, and of COMMIT_STORED in a transaction."""

    producer_id: int
    """Producer that committed."""


class TransactionCompletedDetail(ProducerDetail):
    """Detail of TRANSACTION_COMPLETED."""

    committed: bool
    """True for a commit; False for an abort, which drops the offsets."""
    offsets: int
    """Number of offsets that the transaction has committed."""


class TransactionsLoadedDetail(Detail):
    """Detail of TRANSACTIONS_LOADED."""

    records: int
    """Records read."""
    transactional_ids: int
    """Transactional ids of the partition."""
    open: dict[str, str] = {}
    """State of each transactional id whose transaction is open, or waits for markers."""


class TransactionStateDetail(TransitionDetail):
    """Detail of TRANSACTION_STATE."""

    transactional_id: str
    """`transactional.id`."""
    producer_id: int
    """Producer id of the transactional id."""
    producer_epoch: int
    """Producer epoch of the transactional id."""


# -- clients and checkers -------------------------------------------------------------------------


class PartitionsDetail(Detail):
    """Detail of PARTITIONS_ASSIGNED, PARTITIONS_REVOKED and PARTITIONS_LOST."""

    partitions: tuple[str, ...]
    """All partitions that the member has, or had before it lost them."""


class CountDetail(Detail):
    """Detail of RECORDS_PRODUCED and PRODUCE_FAILED."""

    count: int
    """Number of records."""


class RecordsConsumedDetail(CountDetail):
    """Detail of RECORDS_CONSUMED."""

    last: int
    """Offset of the last record."""
    work_us: int | None = None
    """Microseconds of work on these records, and on earlier records of the same poll; absent if the
    application does no work."""


class ViolationDetail(Detail):
    """Detail of VIOLATION."""

    summary: str
    """Summary of the finding, for people."""
    found_at_us: int
    """Time of the finding, microseconds on the run's clock."""


# -- the table ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class KindSchema:
    """The schema of one kind of row.

    summary: what has happened, in a sentence.
    columns: column -> its meaning in this kind of row, or "" for the meaning in COLUMN_MEANINGS. A
        row may fill these columns and the columns in STAMP, and no other columns.
    causes: the enums whose values the column `cause` may have.
    has_named_cause: True if the cause may also be a name that is in no enum, such as a fault's id.
    detail: the class of the detail, or a dict type if the detail may have any field. None if rows
        of this kind have no detail.
    """

    summary: str
    columns: Mapping[str, str]
    causes: tuple[type[StrEnum], ...]
    has_named_cause: bool
    detail: type[Detail] | type[dict[str, float | None]] | None


def _kind(
    summary: str,
    *columns: str,
    causes: tuple[type[StrEnum], ...] = (),
    detail: type[Detail] | type[dict[str, float | None]] | None = None,
    **meanings: str,
) -> KindSchema:
    """Return the KindSchema of a kind.

    `columns` are columns with their usual meaning, and `meanings` are columns with a meaning of
    their own in this kind. For example, `_kind("...", "group", offset="base offset")` is a kind
    that fills `group` and `offset`. If there are `causes` and also a meaning for `cause`, the cause
    may be a value of these enums or a name.
    """
    filled = dict.fromkeys(columns, "") | meanings
    if causes:
        filled.setdefault("cause", "")
    if detail is not None:
        filled["detail"] = ""
    return KindSchema(
        summary=summary,
        columns=filled,
        causes=causes,
        # If there are no enums, every cause is a name. If there are enums, a name is allowed only
        # if `cause` has a meaning of its own.
        has_named_cause="cause" in filled and (not causes or bool(filled["cause"])),
        detail=detail,
    )


_CLIENT_MESSAGE = ("peer", "api", "correlation_id", "group", "member", "generation")
_PURPOSE = "purpose of the connection"
_COMMIT = ("group", "member", "generation", "partition", "offset")

TRACE_SECTIONS: Mapping[str, Mapping[TraceKind, KindSchema]] = {
    'the run (node "driver")': {
        TraceKind.RUN_STAGE: _kind("The run enters a stage.", detail=RunStageDetail),
        TraceKind.FAULT_INJECTED: _kind(
            "A fault hits a node. Written just before the fault is injected.",
            peer="first node hit",
            cause="fault id",
            detail=FaultInjectedDetail,
        ),
        TraceKind.FAULT_IN_FORCE: _kind(
            "All affected nodes have the fault, after the injection at each of them.",
            peer="first node hit",
            cause="fault id",
            detail=FaultDetail,
        ),
        TraceKind.FAULT_MISSED: _kind(
            "A fault hit no node; there may be a FAULT_INJECTED before.",
            cause="fault id",
            detail=FaultMissedDetail,
        ),
        TraceKind.FAULT_HEALED: _kind(
            "A fault is healed.",
            peer="first node hit",
            cause="fault id",
            detail=FaultHealedDetail,
        ),
        TraceKind.STEADY_STATE_MISSED: _kind(
            "The steady state was not reached in time, before any fault.",
            detail=SteadyStateMissedDetail,
        ),
        TraceKind.OFFSETS_UNREADABLE: _kind(
            "The run could not read a group's committed offset of a partition at its end.",
            "group",
            "partition",
            "cause_text",
        ),
        TraceKind.REQUEST_WAITING: _kind(
            "A member's request has no answer when the run stops waiting for its group.",
            "group",
            "member",
            "api",
            peer="server of the request",
            detail=RequestWaitingDetail,
        ),
    },
    "a node's life": {
        TraceKind.NODE_STARTED: _kind("A process starts.", detail=NodeStartedDetail),
        TraceKind.NODE_STOPPED: _kind("The run stops a process in an orderly way."),
        TraceKind.NODE_KILLED: _kind(
            'The runtime kills a process (node: "driver").', causes=(KillCause,), peer="node killed"
        ),
        TraceKind.NODE_STOPPING: _kind(
            'The runtime requests a controlled shutdown (node: "driver").', peer="node to stop"
        ),
        TraceKind.NODE_PAUSED: _kind(
            'The runtime stops a process with SIGSTOP (node: "driver").', peer="node paused"
        ),
        TraceKind.NODE_RESUMED: _kind(
            'The runtime resumes a paused process (node: "driver").', peer="node resumed"
        ),
        TraceKind.LOG_RECOVERED: _kind(
            "A starting broker finds that a log lacks records that were written.",
            "partition",
            causes=(RecoveryCause,),
            offset="log end",
            detail=LogRecoveredDetail,
        ),
    },
    "messages on connections": {
        TraceKind.REQUEST_SENT: _kind(
            "A client sends a request.", *_CLIENT_MESSAGE, cause=_PURPOSE
        ),
        TraceKind.RESPONSE_RECEIVED: _kind(
            "A client receives an answer.", *_CLIENT_MESSAGE, "error", cause=_PURPOSE
        ),
        TraceKind.REQUEST_FAILED: _kind(
            "A client stops waiting for an answer.",
            *_CLIENT_MESSAGE,
            error="DISCONNECTED or TIMED_OUT",
            cause=_PURPOSE,
        ),
        TraceKind.REQUEST_RECEIVED: _kind(
            "A server receives a request.", "api", "correlation_id", peer="the client"
        ),
        TraceKind.RESPONSE_SENT: _kind(
            "A server sends an answer.", "api", "correlation_id", "error", peer="the client"
        ),
        TraceKind.RESPONSE_LOST: _kind(
            "A fault resets a connection instead of delivering a response. The server has carried "
            "the request out.",
            "api",
            "correlation_id",
            "error",
            peer="the client",
        ),
        TraceKind.CONNECTION_REFUSED: _kind(
            "A server refuses a connection, or a process refuses a link.",
            peer="the client, if it is a node",
            detail=ConnectionRefusedDetail,
        ),
    },
    "controller": {
        TraceKind.BROKER_REGISTERED: _kind(
            "A broker registers.", peer="the broker", detail=BrokerRegisteredDetail
        ),
        TraceKind.BROKER_FENCED: _kind(
            "A broker is fenced.", peer="the broker", detail=BrokerFencedDetail
        ),
        TraceKind.BROKER_UNFENCED: _kind("A broker is unfenced.", peer="the broker"),
        TraceKind.LEADER_ELECTED: _kind(
            "A partition has a new leader epoch.",
            "partition",
            "leader_epoch",
            peer='the leader, "" for none',
            detail=LeaderElectedDetail,
        ),
        TraceKind.ISR_CHANGED: _kind(
            "A partition has other in-sync replicas.",
            "partition",
            "leader_epoch",
            detail=IsrChangedDetail,
        ),
        TraceKind.TOPIC_DELETED: _kind("A topic is deleted.", detail=TopicDeletedDetail),
    },
    "broker: leadership and log": {
        TraceKind.BECAME_LEADER: _kind(
            "A replica leads its partition, in a new epoch.",
            "partition",
            "leader_epoch",
            offset="log end",
        ),
        TraceKind.BECAME_FOLLOWER: _kind(
            "A replica follows.", "partition", "leader_epoch", peer='the leader, "" for none'
        ),
        TraceKind.LOG_TRUNCATED: _kind(
            "A follower cuts its log.",
            "partition",
            "leader_epoch",
            offset="new log end",
            detail=LogTruncatedDetail,
        ),
        TraceKind.LOG_CLEANED: _kind(
            "A log is compacted.",
            "partition",
            offset="end of what is clean",
            detail=LogCleanedDetail,
        ),
        TraceKind.APPEND_STARTED: _kind(
            "A coordinator's batch is in its leader's log.",
            "partition",
            leader_epoch="epoch of the log",
            offset="base offset",
            correlation_id="append id",
            detail=AppendDetail,
        ),
        TraceKind.APPEND_COMPLETED: _kind(
            "A coordinator's batch is acknowledged, or has failed.",
            "partition",
            "error",
            leader_epoch="epoch of the log, null if never appended",
            offset="base offset, null if never appended",
            correlation_id="append id",
            detail=AppendCompletedDetail,
        ),
        TraceKind.HIGH_WATERMARK: _kind(
            "The high watermark of an offsets partition moves.",
            "partition",
            "leader_epoch",
            offset="high watermark",
        ),
    },
    "ZooKeeper": {
        TraceKind.ZOOKEEPER_STATE: _kind(
            "A server looks for a leader, follows or leads.",
            leader_epoch="epoch of the ensemble, null while it looks",
            detail=ZooKeeperStateDetail,
        ),
        TraceKind.ZOOKEEPER_TXN_APPLIED: _kind(
            "A server applies a transaction.",
            offset="zxid",
            error="error of a refused write, else null",
            detail=ZooKeeperTxnDetail,
        ),
        TraceKind.ZOOKEEPER_WATCH_FIRED: _kind(
            "A server sends a watch event to a client.",
            peer="the client",
            offset="zxid that the server has applied",
            detail=ZooKeeperWatchDetail,
        ),
        TraceKind.ZOOKEEPER_EVENT_RECEIVED: _kind(
            "A client receives a watch event.",
            peer="the server",
            offset="newest zxid that an answer has shown it",
            detail=ZooKeeperWatchDetail,
        ),
        TraceKind.ZOOKEEPER_SESSION_EXPIRED: _kind(
            "The leader ends a session that was silent for too long.",
            detail=ZooKeeperSessionDetail,
        ),
        TraceKind.ZOOKEEPER_CLIENT_STATE: _kind(
            "A client notices a change of its connection, or the end of its session.",
            peer="the server",
            offset="newest zxid that an answer has shown it",
            detail=ZooKeeperClientDetail,
        ),
    },
    "consumer on ZooKeeper": {
        TraceKind.ZOOKEEPER_ATTEMPT_STARTED: _kind(
            "A consumer begins an attempt of a rebalance.",
            "group",
            member="consumer id",
            offset="newest zxid that an answer has shown it",
            detail=ZooKeeperAttemptDetail,
        ),
        TraceKind.ZOOKEEPER_VIEW: _kind(
            "A consumer has computed the assignment from the members that it has read.",
            "group",
            member="consumer id",
            offset="newest zxid that an answer has shown it",
            detail=ZooKeeperViewDetail,
        ),
        TraceKind.ZOOKEEPER_CLAIM_CONFLICT: _kind(
            "A consumer claims a partition that has an owner.",
            "group",
            "partition",
            member="consumer id",
            offset="zxid of the answer that showed the owner",
            detail=ZooKeeperConflictDetail,
        ),
        TraceKind.ZOOKEEPER_ATTEMPT_ENDED: _kind(
            "An attempt of a rebalance ends.",
            "group",
            member="consumer id",
            cause_text="exception that ended it, if any",
            detail=ZooKeeperAttemptEndedDetail,
        ),
        TraceKind.ZOOKEEPER_GAVE_UP: _kind(
            "A rebalance ends with ConsumerRebalanceFailedException.",
            "group",
            member="consumer id",
            detail=ZooKeeperGaveUpDetail,
        ),
        TraceKind.ZOOKEEPER_OFFSET_COMMITTED: _kind(
            "A consumer's offset is stored, perhaps after the consumer has lost the partition.",
            "group",
            "partition",
            "offset",
            member="consumer id",
            detail=ZooKeeperOffsetDetail,
        ),
    },
    "broker: coordinator tasks": {
        TraceKind.LOAD_SCHEDULED: _kind(
            "A load waits for earlier tasks.", "partition", "leader_epoch"
        ),
        TraceKind.LOAD_STARTED: _kind(
            "A load begins.", "partition", "leader_epoch", detail=LoadStartedDetail
        ),
        TraceKind.LOAD_COMPLETED: _kind(
            "A load ends; from here on, the coordinator serves the partition.",
            "partition",
            "leader_epoch",
            offset="end of the records read",
            cause_text="reason if the load stopped early",
            detail=LoadCompletedDetail,
        ),
        TraceKind.LOAD_FAILED: _kind(
            "The coordinator refuses the partition (java switch failed_load_refuses).",
            "partition",
            "leader_epoch",
            offset="end of the records read",
            cause_text="reason why the load stopped early",
            detail=LoadFailedDetail,
        ),
        TraceKind.LOAD_IGNORED: _kind(
            "A load is not carried out.",
            "partition",
            "leader_epoch",
            causes=(IgnoredCause,),
            detail=IgnoredDetail,
        ),
        TraceKind.UNLOAD_SCHEDULED: _kind(
            "An unload waits for earlier tasks.", "partition", "leader_epoch"
        ),
        TraceKind.UNLOAD_COMPLETED: _kind(
            "An unload ends; the coordinator no longer serves the partition.",
            "partition",
            "leader_epoch",
            detail=UnloadCompletedDetail,
        ),
        TraceKind.UNLOAD_IGNORED: _kind(
            "An unload is not carried out.",
            "partition",
            "leader_epoch",
            causes=(IgnoredCause,),
            detail=IgnoredDetail,
        ),
        TraceKind.METRICS: _kind(
            "Metrics of a broker's coordinator, of its replicas, or of a controller, by Kafka's "
            "names.",
            detail=dict[str, float | None],
        ),
    },
    "coordinator": {
        TraceKind.GROUP_LOADED: _kind(
            "A group is read from the log.",
            "group",
            "generation",
            partition="the offsets partition",
            detail=GroupLoadedDetail,
        ),
        TraceKind.GROUP_STATE: _kind(
            "A group enters a state.",
            "group",
            "generation",
            "cause_text",
            causes=(RebalanceCause, GroupStateCause, DeletionCause),
            detail=TransitionDetail,
        ),
        TraceKind.REBALANCE_STARTED: _kind(
            "A rebalance begins.",
            "group",
            "cause_text",
            causes=(RebalanceCause,),
            member="member that caused it, null without a single one",
            generation="generation that ends",
            error="error of the append of the assignment",
            detail=RebalanceStartedDetail,
        ),
        TraceKind.GENERATION_STARTED: _kind(
            "All members have joined.", "group", "generation", detail=GenerationStartedDetail
        ),
        TraceKind.ASSIGNMENT_STORED: _kind(
            "The log has a generation's assignment.",
            "group",
            "generation",
            correlation_id="append id",
        ),
        TraceKind.MEMBER_ADDED: _kind(
            "A member id joins the group.",
            "group",
            "member",
            "generation",
            "cause_text",
            causes=(RemovalCause,),
            detail=MemberDetail,
        ),
        TraceKind.MEMBER_REMOVED: _kind(
            "A member id leaves the group.",
            "group",
            "member",
            "generation",
            "cause_text",
            causes=(RemovalCause,),
            detail=MemberDetail,
        ),
        TraceKind.SESSION_RESTARTED: _kind(
            "A member's session timer starts anew.",
            "group",
            "member",
            "generation",
            api="request of the member that restarts it",
            detail=SessionRestartedDetail,
        ),
        TraceKind.COMMIT_STORED: _kind(
            "An offset is committed. An offset of a transaction is committed with its marker; its "
            "row has no correlation_id, and neither member nor generation if the group was loaded "
            "meanwhile.",
            "group",
            "member",
            "generation",
            "offset",
            partition="consumed partition",
            correlation_id="append id; APPEND_STARTED has leader epoch and base offset",
            cause_text="the transaction",
            detail=ProducerDetail,
        ),
        TraceKind.OFFSET_REMOVED: _kind(
            "A committed offset is deleted.",
            "group",
            causes=(DeletionCause,),
            partition="consumed partition",
        ),
        TraceKind.PENDING_COMMIT_REMOVED: _kind(
            "A deletion removes a commit whose append or transaction has not ended, of a "
            "partition without a committed offset. The commit is still acknowledged.",
            "group",
            causes=(DeletionCause,),
            partition="consumed partition",
        ),
        TraceKind.TXN_COMMIT_PENDING: _kind(
            "The log has an offset of an open transaction, which waits for its marker.",
            "group",
            "member",
            "generation",
            "offset",
            partition="consumed partition",
            correlation_id="append id",
            detail=ProducerDetail,
        ),
        TraceKind.TRANSACTION_COMPLETED: _kind(
            "A transaction ends: its offsets are committed, or dropped.",
            "group",
            detail=TransactionCompletedDetail,
        ),
    },
    "transaction coordinator": {
        TraceKind.TRANSACTIONS_LOADED: _kind(
            "A partition of `__transaction_state` is read.",
            "partition",
            "leader_epoch",
            offset="end of the records read",
            detail=TransactionsLoadedDetail,
        ),
        TraceKind.TRANSACTION_STATE: _kind(
            "A transactional id enters a state.",
            "leader_epoch",
            causes=(TransactionCause,),
            partition="partition of `__transaction_state`",
            detail=TransactionStateDetail,
        ),
    },
    "consumer": {
        TraceKind.COORDINATOR_UNKNOWN: _kind(
            "A client gives up its coordinator, and will look it up again.",
            "group",
            "member",
            causes=(CoordinatorUnknownCause,),
            peer="the old coordinator",
            cause="closed value, or name of an error",
        ),
        TraceKind.COORDINATOR_FOUND: _kind(
            "A client has found its coordinator.",
            "group",
            "member",
            peer="the coordinator in the answer",
            cause="broker that answered",
        ),
        TraceKind.COORDINATOR_LOOKUP_FAILED: _kind(
            "A client has not found its coordinator.",
            "group",
            "member",
            "error",
            peer="broker of the request",
        ),
        TraceKind.MEMBER_STATE: _kind(
            "A member enters a state.",
            "group",
            "member",
            "generation",
            "cause_text",
            causes=(MemberStateCause,),
            api="request whose answer ended the generation",
            error="error of that answer, or error that ended the application",
            detail=TransitionDetail,
        ),
        TraceKind.PARTITIONS_ASSIGNED: _kind(
            "A member has its assignment.",
            "group",
            "member",
            "generation",
            peer="coordinator that assigned",
            detail=PartitionsDetail,
        ),
        TraceKind.PARTITIONS_REVOKED: _kind(
            "A member gives up partitions while it still owns them.",
            "group",
            "member",
            "generation",
            detail=PartitionsDetail,
        ),
        TraceKind.PARTITIONS_LOST: _kind(
            "A member learns that it has lost its partitions.",
            "group",
            "member",
            "generation",
            detail=PartitionsDetail,
        ),
        TraceKind.POSITION_RESET: _kind(
            "A consumer sets its position in a partition.",
            "group",
            "member",
            "partition",
            "offset",
            causes=(PositionCause,),
        ),
        TraceKind.RECORDS_CONSUMED: _kind(
            "An application has processed records.",
            "group",
            "member",
            "partition",
            offset="offset of the first record",
            detail=RecordsConsumedDetail,
        ),
        TraceKind.OFFSETS_COMMITTED: _kind(
            "A commit is acknowledged. One row for each partition.",
            *_COMMIT,
            peer="coordinator that acknowledged",
        ),
        TraceKind.COMMIT_FAILED: _kind(
            "A commit has failed. One row for each partition.",
            *_COMMIT,
            "error",
            peer="coordinator that answered",
            cause_text="reason why a transaction was aborted",
        ),
        TraceKind.ADMIN_COMMIT: _kind(
            "An administrator's commit has ended. After TIMED_OUT or DISCONNECTED, the offset may "
            "be committed.",
            *_COMMIT,
            "error",
            peer="broker of the request",
        ),
        TraceKind.OFFSETS_FETCHED: _kind(
            "A committed offset is fetched. One row for each partition.",
            "group",
            "member",
            "partition",
            causes=(OffsetFetchCause,),
            offset="committed offset, -1 for none",
            peer="coordinator that answered",
        ),
    },
    "producer": {
        TraceKind.RECORDS_PRODUCED: _kind(
            "Records are acknowledged.", "partition", offset="base offset", detail=CountDetail
        ),
        TraceKind.PRODUCE_FAILED: _kind(
            "Records have failed for good.", "partition", "error", detail=CountDetail
        ),
    },
    "checkers": {
        TraceKind.VIOLATION: _kind(
            "A checker has found a violation. Written at the run's next status query.",
            "group",
            "partition",
            cause="the checker",
            detail=ViolationDetail,
        ),
    },
    "broken tool": {
        TraceKind.TASK_FAILED: _kind(
            "A node's task has ended with an exception: a bug of this project.",
            cause="name of the task",
            detail=TaskFailedDetail,
        ),
    },
}
"""The schemas of all kinds, in sections: one section for each writer of rows."""

TRACE_KINDS: Mapping[TraceKind, KindSchema] = {
    kind: schema for kinds in TRACE_SECTIONS.values() for kind, schema in kinds.items()
}
"""The schema of each kind."""

_CLOSED_CAUSES = {
    kind.value: frozenset(value for causes in schema.causes for value in causes)
    for kind, schema in TRACE_KINDS.items()
    if schema.causes and not schema.has_named_cause
}
_UNDECLARED = {
    kind.value: tuple(name for name in COLUMN_MEANINGS if name not in (*STAMP, *schema.columns))
    for kind, schema in TRACE_KINDS.items()
}
_UNDECLARED_OF = {
    kind: (attrgetter(*names), (None,) * len(names)) for kind, names in _UNDECLARED.items()
}
"""Kind -> (a function that reads all columns which rows of the kind must not fill, its expected
result: a tuple of Nones).

`nonconformity` runs for every row of a test, so it must be fast: one call reads all these columns.
"""
_DECODERS = {
    kind.value: msgspec.json.Decoder(schema.detail)
    for kind, schema in TRACE_KINDS.items()
    if schema.detail is not None
}


def nonconformity(row: TraceRow) -> str | None:
    """Return the first thing that is wrong with a row, None if the row fits its kind's schema.

    Example: "group_state fills offset (7), expected null".
    """
    kind = row.kind
    undeclared, nothing = _UNDECLARED_OF[kind]
    if undeclared(row) != nothing:
        name = next(name for name in _UNDECLARED[kind] if getattr(row, name) is not None)
        return f"{kind} fills {name} ({getattr(row, name)!r}), expected null"
    # A kind that is not in _CLOSED_CAUSES accepts any cause. For such a kind the default of `get`
    # has the row's own cause, so the test accepts this cause.
    if row.cause is not None and row.cause not in _CLOSED_CAUSES.get(kind, (row.cause,)):
        expected = ", ".join(sorted(_CLOSED_CAUSES[kind]))
        return f"{kind} has cause {row.cause!r}, expected one of {expected}"
    if row.detail is not None:
        # _DECODERS has every kind with a detail. A row of a kind without a detail must not fill
        # this column, and was found above.
        try:
            _DECODERS[kind].decode(row.detail)
        except msgspec.ValidationError as error:
            return f"{kind} has detail {row.detail}: {error}"
    return None
