"""One input being handled: its time, the Result it builds, and what outlives it.

Owns the two registries that tie a later input to what it is about: timers by key, appends in
flight by id. Handlers take a Turn, change groups, and say what the broker shall do through it.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from coordinator.group import Group
from coordinator.member import Member, ParkedJoin
from coordinator.shard import Shard
from protocol.api import AnyResponse
from protocol.config import BrokerConfig, Guards, JavaSwitches
from protocol.effects import (
    ACKS_ALL,
    ACKS_LEADER,
    ACKS_NONE,
    Append,
    CancelTimer,
    Reply,
    Result,
    SetTimer,
    VerifyTransaction,
)
from protocol.ids import AppendId, RequestId, TopicPartition
from protocol.messages.transaction import TxnOffsetCommitRequest
from protocol.metadata_version import ValueVersions
from protocol.records.batch import Record
from protocol.records.offsets import OffsetCommitValue
from protocol.trace import TraceEvent


@dataclass(frozen=True, slots=True)
class JoinTimer:
    """The join phase of `group` has lasted long enough."""

    group: Group


@dataclass(frozen=True, slots=True)
class SyncTimer:
    """The members of this generation had their time to send SyncGroup."""

    group: Group
    generation_id: int


@dataclass(frozen=True, slots=True)
class SessionTimer:
    """A member has not been heard of: its session, or its first join phase, is over."""

    group: Group
    member_id: str


@dataclass(frozen=True, slots=True)
class PendingMemberTimer:
    """An id that was given out with MEMBER_ID_REQUIRED has not come back."""

    group: Group
    member_id: str


GroupTimer = JoinTimer | SyncTimer | SessionTimer | PendingMemberTimer


@dataclass(frozen=True, slots=True)
class HeldWriteTimer:
    """An answer has waited long enough for the high watermark of its partition ([J])."""

    shard: Shard


CoordinatorTimer = GroupTimer | HeldWriteTimer


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignmentAppend:
    """The leader's assignment is on its way to the log; `assignments` by member id."""

    group: Group
    generation_id: int
    member_id: str  # the leader that sent it
    assignments: dict[str, bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class EmptyGroupAppend:
    """The record of a group that became Empty is on its way; nobody waits for it."""

    group: Group


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticMemberAppend:
    """The new id of a replaced static member is on its way to the log.

    Holds what a failure brings back. Units: timeouts in milliseconds.
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
    """A commit is on its way to the log.

    Shape: `is_too_large` has every partition of the request, in its order, and whether its
    metadata was refused; `values` has the others, which are being appended.
    """

    group: Group
    member_id: str
    generation_id: int
    request_id: RequestId
    values: dict[TopicPartition, OffsetCommitValue]
    is_too_large: dict[TopicPartition, bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionalOffsetsAppend:
    """What a transaction commits is on its way to the log. Shape: as OffsetsAppend."""

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
    """A TxnOffsetCommit whose transaction is being verified."""

    group: Group
    shard: Shard
    request_id: RequestId
    request: TxnOffsetCommitRequest


@dataclass(slots=True, kw_only=True)
class Shared:
    """What all turns of one coordinator share."""

    config: BrokerConfig
    guards: Guards
    new_uuid: Callable[[], str]
    java: JavaSwitches
    versions: ValueVersions
    timers: dict[str, CoordinatorTimer] = field(default_factory=dict)
    appends: dict[AppendId, PendingAppend] = field(default_factory=dict)
    last_append_id: int = 0
    verifications: dict[int, PendingVerification] = field(default_factory=dict)
    last_verification_id: int = 0


class Turn:
    """One input being handled."""

    __slots__ = ("_shared", "config", "guards", "now_us", "result")

    def __init__(self, shared: Shared, now_us: int) -> None:
        self._shared = shared
        self.config = shared.config
        self.guards = shared.guards
        self.now_us = now_us  # wall clock, microseconds since the epoch
        self.result = Result()

    @property
    def now_ms(self) -> int:
        """Milliseconds since the epoch, as records and group states are stamped."""
        return self.now_us // 1_000

    @property
    def java(self) -> JavaSwitches:
        """What is done as by Kafka's Java coordinator."""
        return self._shared.java

    @property
    def acks_of_commits(self) -> int:
        """Which acks a commit is appended with."""
        return ACKS_LEADER if self._shared.java.commits_apply_on_append else ACKS_ALL

    @property
    def versions(self) -> ValueVersions:
        """In which versions values are written to the log."""
        return self._shared.versions

    def new_uuid(self) -> str:
        """Return a fresh uuid for a member id."""
        return self._shared.new_uuid()

    def reply(self, request_id: RequestId, response: AnyResponse) -> None:
        """Answer a request."""
        self.result.replies.append(Reply(request_id=request_id, response=response))

    def trace(self, event: TraceEvent) -> None:
        """Let the trace see something."""
        self.result.trace.append(event)

    def set_timer(self, key: str, timer: CoordinatorTimer, delay_ms: int) -> None:
        """Start a timer, replacing the one with the same key; a negative delay is none."""
        self._shared.timers[key] = timer
        self.result.timers.append(SetTimer(key=key, delay_us=max(delay_ms, 0) * 1_000))

    def has_timer(self, key: str) -> bool:
        """Return whether a timer with this key runs."""
        return key in self._shared.timers

    def cancel_timer(self, key: str) -> None:
        """Stop a timer, if it runs."""
        if self._shared.timers.pop(key, None) is not None:
            self.result.timers.append(CancelTimer(key=key))

    def append_unacknowledged(self, group: Group, records: tuple[Record, ...]) -> None:
        """Append a batch to the group's partition, and hear no more of it (acks=0)."""
        shared = self._shared
        shared.last_append_id += 1
        self.result.appends.append(
            Append(
                append_id=AppendId(shared.last_append_id),
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
        """Append a batch to the group's partition; `pending` says what its outcome is about."""
        append_id = self._new_append_id(pending)
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
        """Append a batch of a producer's transaction to the group's partition."""
        self.result.appends.append(
            Append(
                append_id=self._new_append_id(pending),
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
        """Ask whether the group's partition is part of the request's transaction."""
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

    def _new_append_id(self, pending: PendingAppend) -> AppendId:
        shared = self._shared
        shared.last_append_id += 1
        append_id = AppendId(shared.last_append_id)
        shared.appends[append_id] = pending
        return append_id
