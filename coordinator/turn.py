"""The group coordinator's Turn: the context of one input, and the types of its continuations.

Each handler gets a Turn, changes groups, and requests replies, appends and timers through it. The
dataclasses here are continuations: data that says how the coordinator continues when a timer fires
(`...Timer`) or when an append has completed (`...Append`).

- Shard: the groups of one partition of `__consumer_offsets`. Their records go to this partition.
- High watermark: the offset below which every in-sync replica of a partition has the records.
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
    """Deadline for the SyncGroup of every member of one generation."""

    group: Group
    generation_id: int


@dataclass(frozen=True, slots=True)
class SessionTimer:
    """End of a member's session timeout, or of the time for a new member's first join phase."""

    group: Group
    member_id: str


@dataclass(frozen=True, slots=True)
class PendingMemberTimer:
    """Deadline for the second JoinGroup of a client that was answered MEMBER_ID_REQUIRED.

    The member id is pending: the coordinator has generated it, and no member uses it yet.
    """

    group: Group
    member_id: str


GroupTimer = JoinTimer | SyncTimer | SessionTimer | PendingMemberTimer


@dataclass(frozen=True, slots=True)
class HeldWriteTimer:
    """Deadline of an answer that waits for the high watermark, as in Kafka's Java coordinator.

    Kafka's Java coordinator calls a request that may change memory a write.
    """

    shard: Shard


CoordinatorTimer = GroupTimer | HeldWriteTimer


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignmentAppend:
    """The leader's assignment is being appended; the keys of `assignments` are member ids."""

    group: Group
    generation_id: int
    member_id: str  # the group's leader, which sent the assignment
    assignments: dict[str, bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class EmptyGroupAppend:
    """The record of a group that became Empty is being appended; no client waits for it."""

    group: Group


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticMemberAppend:
    """The new member id of a restarted static member is being appended.

    A static member has a configured `group.instance.id`, and keeps its place in the group through a
    restart; only its member id is new. The group has the new id already, because Kafka's Scala
    coordinator changes memory before it appends. If the append fails, the `old_...` fields restore
    the member. `parked` is the JoinGroup that waits for the append.
    Units: timeouts in milliseconds.
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

    With each offset the client may send metadata, a string of its own. `is_too_large` maps every
    partition of the request, in the request's order, to True if its metadata is too large to store.
    `values` has only the partitions that are stored.
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

    A TxnOffsetCommit commits offsets as a part of a producer's transaction. `values` and
    `is_too_large` are the same as in OffsetsAppend.
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
    """State that outlives a turn: settings, switches, continuations and open verifications.

    The keys of `verifications` are ids that `Turn.verify` numbers from 1.
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
        """Kafka's protections, each of which an experiment may switch off."""
        return self._shared.guards

    @property
    def java(self) -> JavaSwitches:
        """Switches, all off by default, for behaviours of Kafka's Java coordinator."""
        return self._shared.java

    @property
    def acks_of_commits(self) -> int:
        """The acks of the append that stores committed offsets: the replicas that it waits for."""
        # With the switch `commits_apply_on_append` the append waits for the leader only, as in
        # Kafka's Java coordinator. The answer to the client still waits for the high watermark.
        return ACKS_LEADER if self._shared.java.commits_apply_on_append else ACKS_ALL

    @property
    def versions(self) -> ValueVersions:
        """Versions of the records that are written to the log."""
        return self._shared.versions

    def new_uuid(self) -> str:
        """Return a fresh uuid for a member id."""
        return self._shared.new_uuid()

    def append_unacknowledged(self, group: Group, records: tuple[Record, ...]) -> None:
        """Append a batch to the group's partition; its outcome is not reported (acks=0)."""
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
        """Append a batch to the group's partition; `pending` is the append's continuation."""
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

        `verification_guard`: the number that the log gave out when the transaction's verification
        began. The log accepts the transaction's first batch only with this number.
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

        The broker's answer arrives as another input, `GroupCoordinator.transaction_verified`.
        `tells_abortable`: the verification may end with the error TRANSACTION_ABORTABLE, because
        the version of the request shows that the client knows this error.
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
