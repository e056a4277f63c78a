"""The group coordinator's Turn, and the values that say how to continue in a later turn.

A turn is the handling of one input: a request, a fired timer, a completed append. Each handler gets
a Turn. Through the methods of the Turn it asks for replies, appends and timers.

When a handler starts a timer or an append, it must say what to do later. There are no callbacks.
The handler stores one of the dataclasses below instead: a `...Timer` says what to do when the timer
fires, an `...Append` what to do when the append has completed. For example, when a leader sends its
assignment, the handler appends the group's record together with an AssignmentAppend. When the log
has the record, the coordinator finds the AssignmentAppend and sends each member its partitions.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from coordinator.base_turn import BaseTurn, InFlight
from coordinator.group import Group
from coordinator.member import Member, ParkedJoin
from coordinator.shard import Shard
from protocol.config import BrokerConfig, Guards, JavaSwitches
from protocol.effects import (
    ACKS_ALL,
    ACKS_LEADER,
    ACKS_NONE,
    Append,
    Result,
    VerifyTransaction,
)
from protocol.ids import AppendId, RequestId, TopicPartition
from protocol.messages.transaction import TxnOffsetCommitRequest
from protocol.metadata_version import ValueVersions
from protocol.records.batch import Record
from protocol.records.offsets import OffsetCommitValue


@dataclass(frozen=True, slots=True)
class JoinTimer:
    """Deadline of the group's join phase."""

    group: Group


@dataclass(frozen=True, slots=True)
class SyncTimer:
    """Deadline by which every member must have sent SyncGroup in generation `generation_id`."""

    group: Group
    generation_id: int


@dataclass(frozen=True, slots=True)
class SessionTimer:
    """Deadline of a member's session: the member has been silent for its session timeout.

    While a new member waits in its first join phase, five minutes take the place of the session
    timeout.
    """

    group: Group
    member_id: str


@dataclass(frozen=True, slots=True)
class PendingMemberTimer:
    """Deadline for the second JoinGroup of a client that was answered MEMBER_ID_REQUIRED.

    `member_id` is the id that the answer gave to the client. No member has it yet.
    """

    group: Group
    member_id: str


GroupTimer = JoinTimer | SyncTimer | SessionTimer | PendingMemberTimer


@dataclass(frozen=True, slots=True)
class HeldWriteTimer:
    """Deadline of an answer that waits for the high watermark, as in Kafka's Java coordinator.

    The name is from the Java coordinator. There, a request that may change memory is called a
    write. `shard` keeps the answer under the key of this timer.
    """

    shard: Shard


CoordinatorTimer = GroupTimer | HeldWriteTimer


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignmentAppend:
    """The leader's assignment is being appended.

    `assignments` maps the id of each member to its part.
    """

    group: Group
    generation_id: int
    member_id: str  # the group's leader, which sent the assignment
    assignments: dict[str, bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class EmptyGroupAppend:
    """The record of a group that became Empty is being appended. No client waits for the append."""

    group: Group


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticMemberAppend:
    """The new member id of a restarted static member is being appended.

    A static member, one with a `group.instance.id`, keeps its place in the group when it restarts,
    but gets a new member id. As in Kafka, the group in memory has the new id before the append
    begins. If the append fails, the `old_...` fields are used to restore the member.
    `parked` is the JoinGroup of the restarted process, which is answered after the append.
    """

    group: Group
    member: Member
    parked: ParkedJoin
    group_instance_id: str
    old_member_id: str
    new_member_id: str
    old_leader_id: str | None
    old_rebalance_timeout_ms: int
    old_session_timeout_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetsAppend:
    """The offsets of an OffsetCommit are being appended.

    A client may send a string of its own, the metadata, with each offset. An offset with too large
    metadata is not stored. So `values` has the partitions that are being appended, and
    `is_too_large` has every partition of the request, in the request's order. For example, a
    request has offsets for partitions 0 and 1 of the topic t, and the metadata for 1 is too large:

        values = {t-0: ...}
        is_too_large = {t-0: False, t-1: True}
    """

    group: Group
    member_id: str
    generation_id: int
    request_id: RequestId
    values: dict[TopicPartition, OffsetCommitValue]
    is_too_large: dict[TopicPartition, bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionalOffsetsAppend:
    """The offsets of a TxnOffsetCommit are being appended.

    `values` and `is_too_large` have the same meaning as in OffsetsAppend.
    """

    group: Group
    member_id: str
    generation_id: int
    producer_id: int
    request_id: RequestId
    values: dict[TopicPartition, OffsetCommitValue]
    is_too_large: dict[TopicPartition, bool]


PendingAppend = (
    AssignmentAppend
    | EmptyGroupAppend
    | StaticMemberAppend
    | OffsetsAppend
    | TransactionalOffsetsAppend
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingVerification:
    """A TxnOffsetCommit that waits until the broker has verified its transaction."""

    group: Group
    shard: Shard
    request_id: RequestId
    request: TxnOffsetCommitRequest


@dataclass(slots=True, kw_only=True)
class Shared:
    """What all turns share: the coordinator's settings, and what it must continue later.

    - `in_flight`: running timers and unfinished appends, each with the value that says how to
      continue.
    - `verifications`: id of a verification -> the request whose transaction the broker is
      verifying.
    - `versions`: the format versions in which group and offset records are written.
    """

    config: BrokerConfig
    guards: Guards
    new_uuid: Callable[[], str]
    java: JavaSwitches
    versions: ValueVersions
    in_flight: InFlight[CoordinatorTimer, PendingAppend] = field(default_factory=InFlight)
    verifications: dict[int, PendingVerification] = field(default_factory=dict)
    last_verification_id: int = 0


class Turn(BaseTurn[CoordinatorTimer, PendingAppend, Result]):
    """The context of one input of the group coordinator."""

    __slots__ = ("_shared",)

    def __init__(self, shared: Shared, now_us: int) -> None:
        super().__init__(shared.config, shared.in_flight, Result(), now_us)
        self._shared = shared

    @property
    def guards(self) -> Guards:
        """Checks of Kafka that an experiment can switch off, to see what they prevent."""
        return self._shared.guards

    @property
    def java(self) -> JavaSwitches:
        """Switches, all off by default, for behaviours of Kafka's Java coordinator."""
        return self._shared.java

    @property
    def acks_of_commits(self) -> int:
        """The acks with which committed offsets are appended."""
        # With the switch `commits_apply_on_append`, the append completes when the leader's log has
        # the records, as in Kafka's Java coordinator. Even so, the client does not get its answer
        # earlier: the answer is held until the high watermark has passed the records.
        return ACKS_LEADER if self._shared.java.commits_apply_on_append else ACKS_ALL

    @property
    def versions(self) -> ValueVersions:
        """The format versions in which records are written to the log."""
        return self._shared.versions

    def new_uuid(self) -> str:
        """Return a fresh uuid for a member id."""
        return self._shared.new_uuid()

    def append_unacknowledged(self, group: Group, records: tuple[Record, ...]) -> None:
        """Append a batch to the group's partition without waiting for the outcome (acks=0)."""
        self.result.appends.append(
            Append(
                append_id=self._in_flight.new_append_id(),
                partition=group.partition,
                records=records,
                required_acks=ACKS_NONE,
            )
        )

    def append(
        self,
        group: Group,
        records: tuple[Record, ...],
        pending: PendingAppend,
        *,
        required_acks: int = ACKS_ALL,
    ) -> AppendId:
        """Append a batch to the group's partition.

        When the append has completed, `pending` says how to continue.
        """
        append_id = self._in_flight.add_append(pending)
        self.result.appends.append(
            Append(
                append_id=append_id,
                partition=group.partition,
                records=records,
                required_acks=required_acks,
            )
        )
        return append_id

    def append_transactional(
        self,
        records: tuple[Record, ...],
        pending: TransactionalOffsetsAppend,
        *,
        producer_epoch: int,
        verification_guard: int | None,
    ) -> None:
        """Append a batch of a producer's transaction to the group's partition.

        The transaction was verified before its first batch. When the verification began, the log
        gave out a number, `verification_guard`. The log accepts the first batch only with this
        number. `verification_guard` is None if the log already has batches of the transaction. The
        word is Kafka's, and the number has nothing to do with `guards`.
        """
        self.result.appends.append(
            Append(
                append_id=self._in_flight.add_append(pending),
                partition=pending.group.partition,
                records=records,
                required_acks=self.acks_of_commits,
                producer_id=pending.producer_id,
                producer_epoch=producer_epoch,
                is_transactional=True,
                verification_guard=verification_guard,
            )
        )

    def verify(self, pending: PendingVerification, *, tells_abortable: bool) -> None:
        """Ask the broker whether the group's partition is part of the request's transaction.

        The broker reports the answer by a call of `GroupCoordinator.transaction_verified`.
        If `tells_abortable` is True, the answer may be the error TRANSACTION_ABORTABLE, because the
        request has a version whose clients know this error.
        """
        shared = self._shared
        shared.last_verification_id += 1
        shared.verifications[shared.last_verification_id] = pending
        request = pending.request
        self.result.verifications.append(
            VerifyTransaction(
                verification_id=shared.last_verification_id,
                partition=pending.group.partition,
                transactional_id=request.transactional_id,
                producer_id=request.producer_id,
                producer_epoch=request.producer_epoch,
                tells_abortable=tells_abortable,
            )
        )
