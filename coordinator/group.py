"""A group: its members, its state, its generation.

A rebalance has two phases. In the join phase (state PreparingRebalance) every member sends
JoinGroup. The coordinator parks these requests: it keeps them without an answer until all members
have joined. Then the next generation begins, and the parked requests are answered. In the sync
phase (CompletingRebalance) every member sends SyncGroup to get its partitions.

This module knows who is in the group, and what the group waits for. It starts no timers, writes no
log and sends no answers. Of a parked request it only keeps what the answer needs. Other modules
change a group's members, counts and state only through the methods here.

Source: Kafka `GroupMetadata` (scala); docs/kafka/BEHAVIOUR.md 4.
"""

import zlib
from dataclasses import dataclass

from coordinator.errors import UnknownServerError
from coordinator.member import Member, ParkedJoin
from coordinator.states import REBALANCE_FROM, VALID_PREVIOUS_STATES, GroupState
from coordinator.storage.offsets import GroupOffsets
from coordinator.vote import most_votes
from protocol.causes import DeletionCause, GroupStateCause, RebalanceCause
from protocol.errors import IllegalTransition
from protocol.ids import RequestId
from protocol.messages.group import JoinGroupRequestProtocol, JoinGroupResponseMember
from protocol.trace import TraceEvent, TraceKind
from protocol.wire.consumer_protocol import (
    ConsumerProtocolError,
    TruncatedConsumerProtocol,
    decode_subscribed_topics,
)

CONSUMER_PROTOCOL_TYPE = "consumer"
STORY_LENGTH_MAX = 16
"""The message of an IllegalTransition lists at most this many earlier states of the group."""


@dataclass(frozen=True, slots=True)
class DelayedJoin:
    """A value of `Group.delayed_join`: the join phase ends as soon as every member has joined.

    The phase also ends when the rebalance timeout is over. Kafka's class has the same name.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class InitialDelayedJoin:
    """A value of `Group.delayed_join`: the join phase ends only when a delay is over.

    The first join phase of an Empty group waits in this way, because the members of a new group
    arrive one after the other. If another member joins during the delay, another delay follows. All
    delays together are bounded by the rebalance timeout.

    `delay_ms` is the length of the running delay, and `remaining_ms` the time that is left for
    further delays. Example: with a delay of 3 s and a rebalance timeout of 10 s, the first delay
    has `delay_ms=3000, remaining_ms=7000`.
    """

    delay_ms: int
    remaining_ms: int


StateCause = RebalanceCause | GroupStateCause | DeletionCause
"""Cause for which a group enters a state."""


class Group:
    """One group of one offsets partition.

    Invariant: `members_awaiting_join` is the number of members whose JoinGroup is parked.
    Invariant: `supported_protocols[name]` is the number of members that support `name`.
    Invariant: every member id in `static_members` is the id of a member with that instance id.
    """

    def __init__(self, group_id: str, partition: int, state: GroupState, now_us: int) -> None:
        self.group_id = group_id
        self.partition = partition  # of __consumer_offsets
        self._state = state
        # These fields survive a change of the coordinator: they are stored in the log, and the next
        # coordinator reads them from it.
        self.generation_id = 0
        self.protocol_type: str | None = None  # None for a group that no member has ever joined
        self.protocol_name: str | None = None  # None before the first generation and when Empty
        self.leader_id: str | None = None  # None if and only if the group has no members
        # None after a load of a record in an old version, which has no timestamp.
        self.current_state_timestamp_ms: int | None = now_us // 1_000
        self.members: dict[str, Member] = {}
        self.offsets = GroupOffsets()
        # The log has no entry for the fields below. The next coordinator starts without them, or
        # computes them from the members.
        self.static_members: dict[str, str] = {}  # group.instance.id -> member id
        # The next two dicts are used as sets. A real set has no fixed order. A dict keeps the order
        # of insertion, so that a repeated run gives the same result.
        # Member ids that clients got with MEMBER_ID_REQUIRED, if the clients have not joined yet.
        self.pending_members: dict[str, None] = {}
        # Members that have not sent SyncGroup in this generation.
        self.pending_sync_members: dict[str, None] = {}
        # Name of a protocol (a way to assign partitions) -> number of members that support it.
        self.supported_protocols: dict[str, int] = {}
        self.members_awaiting_join = 0
        # True if a member has joined in the running delay of an InitialDelayedJoin.
        self.new_member_added = False
        # What the join phase waits for. None outside a join phase, and after an attempt to end the
        # phase has raised an exception.
        self.delayed_join: DelayedJoin | InitialDelayedJoin | None = None
        self.subscribed_topics: frozenset[str] | None = None  # None: unknown
        # The last states, each with its cause, such as "Stable (assignment stored)". The message of
        # an IllegalTransition shows them.
        self._story: list[str] = [state.value]

    # -- state --

    @property
    def state(self) -> GroupState:
        """The group's state; only transition_to writes it."""
        return self._state

    @property
    def can_rebalance(self) -> bool:
        """True if a rebalance may start now."""
        return self._state in REBALANCE_FROM

    def transition_to(
        self,
        target: GroupState,
        *,
        now_us: int,
        cause: StateCause,
        trace: list[TraceEvent],
        cause_text: str | None = None,
    ) -> None:
        """Enter the state `target`, and write a row GROUP_STATE to the trace.

        `cause_text` is a sentence for people, given if `cause` alone says too little.
        Raises: IllegalTransition if VALID_PREVIOUS_STATES forbids this transition. The message
            lists the group's last states.
        """
        allowed = VALID_PREVIOUS_STATES[target]
        if self._state not in allowed:
            names = sorted(state.value for state in allowed)
            raise IllegalTransition(
                f"group {self.group_id} in generation {self.generation_id}: {target.value} is "
                f"entered from {', '.join(names)}, not from {self._state.value}; "
                f"story: {' -> '.join(self._story)}"
            )
        previous, self._state = self._state, target
        self.current_state_timestamp_ms = now_us // 1_000
        self._story = [*self._story[-STORY_LENGTH_MAX:], f"{target.value} ({cause_text or cause})"]
        trace.append(
            TraceEvent(
                kind=TraceKind.GROUP_STATE,
                group=self.group_id,
                generation=self.generation_id,
                cause=cause,
                detail={"from": previous.value, "to": target.value},
                cause_text=cause_text,
            )
        )

    # -- members --

    def add(self, member: Member, parked: ParkedJoin | None = None) -> None:
        """Add a member; the first member sets the protocol type and becomes the leader.

        `parked` is the member's JoinGroup. It is None if the member was read from the log.

        Raises: IllegalTransition if another member has the instance id, or if the group does not
            support the member's protocols. The callers check both before.
        """
        instance = member.group_instance_id
        if instance is not None and instance in self.static_members:
            raise IllegalTransition(
                f"group {self.group_id}: instance {instance} is {self.static_members[instance]}, "
                f"so {member.member_id} cannot be added"
            )
        # A group without members accepts any type: its first member decides about the type.
        protocol_type = self.protocol_type if self.members else member.protocol_type
        if protocol_type != member.protocol_type or not self._fits(member):
            raise IllegalTransition(
                f"group {self.group_id} ({protocol_type}) does not support "
                f"{member.protocol_type} {member.protocol_names()}"
            )

        self.protocol_type = protocol_type
        if instance is not None:
            self.static_members[instance] = member.member_id
        if self.leader_id is None:
            self.leader_id = member.member_id
        # `delayed.heartbeat_key` builds the same key. It is not called here, because `delayed`
        # imports this module.
        member.heartbeat_key = f"heartbeat-{self.group_id}-{member.member_id}"
        self.members[member.member_id] = member
        self._count_protocols(member, 1)
        if parked is not None:
            self.park_join(member, parked)
        # If the client got its id with MEMBER_ID_REQUIRED, the id is in use from now on.
        self.pending_members.pop(member.member_id, None)

    def remove(self, member_id: str) -> Member | None:
        """Remove a member or a pending member id.

        Return the member, or None for a pending id.

        If the leader is removed, another member becomes the leader. In Kafka this may be any
        member. Here it is the first member in the order of `_hash_order`.
        """
        member = self.members.pop(member_id, None)
        if member is not None:
            self._count_protocols(member, -1)
            if member.awaiting_join is not None:
                self.members_awaiting_join -= 1
            if member.group_instance_id is not None:
                self.static_members.pop(member.group_instance_id, None)
        if self.leader_id == member_id:
            self.leader_id = min(self.members, key=_hash_order, default=None)
        self.pending_members.pop(member_id, None)
        self.pending_sync_members.pop(member_id, None)
        return member

    def replace_static_member(self, group_instance_id: str, old_id: str, new_id: str) -> Member:
        """Give the member `old_id` the id `new_id`, because its client has restarted.

        The member keeps everything else. If it was the leader, it stays the leader. The caller has
        answered the parked requests of the old id before. `pending_sync_members` keeps the old id,
        as in Kafka, so the group does not wait for a SyncGroup of the new id.

        Raises: IllegalTransition if `old_id` is no member.
        """
        member = self.members.pop(old_id, None)
        if member is None:
            raise IllegalTransition(f"group {self.group_id}: {old_id} is no member to replace")
        member.member_id = new_id
        member.heartbeat_key = f"heartbeat-{self.group_id}-{new_id}"
        self.members[new_id] = member
        if self.leader_id == old_id:
            self.leader_id = new_id
        self.static_members[group_instance_id] = new_id
        return member

    def update_member(
        self,
        member: Member,
        protocols: tuple[JoinGroupRequestProtocol, ...],
        *,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        parked: ParkedJoin | None,
    ) -> None:
        """Take over the protocols and timeouts of a member's new JoinGroup, and park this request.

        The method also undoes the replacement of a static member whose append has failed. Then the
        arguments are the member's old protocols and timeouts, and `parked` is None, because no
        request of the member may stay parked.
        """
        self._count_protocols(member, -1)
        member.supported_protocols = protocols
        self._count_protocols(member, 1)
        member.rebalance_timeout_ms = rebalance_timeout_ms
        member.session_timeout_ms = session_timeout_ms
        if parked is None:
            self.unpark_join(member)
        else:
            self.park_join(member, parked)

    def park_join(self, member: Member, parked: ParkedJoin) -> None:
        """Park a JoinGroup of the member, in place of an earlier one."""
        # An earlier parked request is never answered, as in Kafka. The client does not wait for the
        # earlier request any more: a client sends one JoinGroup at a time, so it must have given up
        # the earlier one.
        if member.awaiting_join is None:
            self.members_awaiting_join += 1
        member.awaiting_join = parked

    def unpark_join(self, member: Member) -> ParkedJoin | None:
        """Remove and return the member's parked JoinGroup, None if none is parked."""
        parked = member.awaiting_join
        if parked is not None:
            member.awaiting_join = None
            self.members_awaiting_join -= 1
        return parked

    def unpark_sync(self, member: Member) -> RequestId | None:
        """Remove and return the member's parked SyncGroup, None if none is parked."""
        request_id = member.awaiting_sync
        member.awaiting_sync = None
        return request_id

    def add_pending_member(self, member_id: str) -> None:
        """Remember a pending id: a client gets it with MEMBER_ID_REQUIRED, to join again.

        Raises: IllegalTransition if a member has this id already.
        """
        if member_id in self.members:
            raise IllegalTransition(f"group {self.group_id}: {member_id} is a member already")
        self.pending_members[member_id] = None

    def add_pending_sync_member(self, member_id: str) -> None:
        """Wait for a SyncGroup of the member in this generation.

        Raises: IllegalTransition if no member has this id.
        """
        self._check_member(member_id)
        self.pending_sync_members[member_id] = None

    def remove_pending_sync_member(self, member_id: str) -> None:
        """Wait no longer for a SyncGroup of the member.

        Raises: IllegalTransition if no member has this id.
        """
        self._check_member(member_id)
        self.pending_sync_members.pop(member_id, None)

    @property
    def has_all_members_joined(self) -> bool:
        """True if every member's JoinGroup is parked, and no member id is pending."""
        # The client of a pending id is about to join. If the join phase ended without that client,
        # its JoinGroup would begin another rebalance immediately.
        return len(self.members) == self.members_awaiting_join and not self.pending_members

    def is_leader(self, member_id: str) -> bool:
        """Return True if `member_id` leads the group."""
        return self.leader_id == member_id

    @property
    def rebalance_timeout_ms(self) -> int:
        """The largest rebalance timeout of the members, 0 without members."""
        return max((m.rebalance_timeout_ms for m in self.members.values()), default=0)

    def elect_joined_leader(self) -> bool:
        """Make sure that the group's leader is a member that has rejoined, if there is one.

        A leader that has not rejoined is replaced by a member that has rejoined. If no member has
        rejoined, the leader stays the same, and the result is False.

        Source: Kafka `maybeElectNewJoinedLeader`; BEHAVIOUR 3.2.
        """
        if self.leader_id is None:  # the group has no members
            return False
        if self.members[self.leader_id].awaiting_join is not None:
            return True
        joined = (member.member_id for member in self.members.values() if member.awaiting_join)
        successor = min(joined, key=_hash_order, default=None)
        if successor is None:
            return False
        self.leader_id = successor
        return True

    # -- protocols and generations --

    def supports_protocols(self, protocol_type: str, names: tuple[str, ...]) -> bool:
        """Return True if the group accepts a member with this type and these protocols."""
        # An Empty group has no members that could disagree, so it accepts every type and protocol.
        if self._state is GroupState.EMPTY:
            return bool(protocol_type) and bool(names)
        return self.protocol_type == protocol_type and self._is_common(names)

    def select_protocol(self) -> str:
        """Let the members vote for one of the protocols that all of them support.

        Each member votes for the protocol that it prefers most. The protocol with the most votes
        wins.

        Raises: IllegalTransition without members; UnknownServerError if the members have no
            protocol in common.
        """
        if not self.members:
            raise IllegalTransition(f"group {self.group_id} has no members to vote")
        size = len(self.members)
        # Every JoinGroup was checked for a common protocol, so normally there is a candidate. But a
        # member may list the common protocol twice. As in Kafka, the protocol then counts twice, so
        # its count is larger than the number of members, and perhaps no candidate is left. The dict
        # is used as a set, because a set has no fixed order.
        candidates = {n: None for n, count in self.supported_protocols.items() if count == size}
        return most_votes(self._vote(member, candidates) for member in self.members.values())

    def init_next_generation(
        self,
        *,
        now_us: int,
        cause: GroupStateCause,
        trace: list[TraceEvent],
        cause_text: str | None = None,
    ) -> None:
        """Begin the next generation: enter CompletingRebalance, or Empty if no member is left.

        Raises: UnknownServerError if the members have no protocol in common, or if a subscription
            cannot be parsed.
        """
        # The order of these three statements is Kafka's. If the second or third one raises, the
        # generation id has advanced, but the state is still PreparingRebalance (BEHAVIOUR 0.1).
        self.generation_id += 1
        self.protocol_name = self.select_protocol() if self.members else None
        self.subscribed_topics = self.compute_subscribed_topics()
        target = GroupState.COMPLETING_REBALANCE if self.members else GroupState.EMPTY
        self.transition_to(target, now_us=now_us, cause=cause, cause_text=cause_text, trace=trace)
        # The beginning of the rebalance has cleared `pending_sync_members` already. This method
        # clears the dict again, as Kafka does.
        self.pending_sync_members.clear()

    def compute_subscribed_topics(self) -> frozenset[str] | None:
        """Return the topics to which members subscribe, None if these topics are unknown.

        The topics are unknown if the members are no consumers. For example, Kafka Connect uses
        groups, too. They are also unknown if no protocol has been selected yet.

        Raises: UnknownServerError if a subscription is corrupt. A subscription whose bytes only end
            too early raises no error: the topics are unknown then.
        """
        if self.protocol_type != CONSUMER_PROTOCOL_TYPE:
            return None
        # A group without members subscribes to no topic, and this is known. The check must come
        # before the next one, because a group without members has no protocol either.
        if not self.members:
            return frozenset()
        if self.protocol_name is None:
            return None
        try:
            return frozenset(
                topic
                for member in self.members.values()
                for topic in decode_subscribed_topics(member.metadata(self.protocol_name))
            )
        except TruncatedConsumerProtocol:
            return None  # Kafka raises no error for truncated bytes (BEHAVIOUR 0.1)
        except ConsumerProtocolError as error:
            raise UnknownServerError(f"group {self.group_id}: subscription: {error}") from error

    def is_subscribed_to(self, topic: str) -> bool:
        """Return False only if it is known that no member subscribes to `topic`.

        If the subscriptions are unknown, any topic may be among them.
        """
        return self.subscribed_topics is None or topic in self.subscribed_topics

    def current_member_metadata(self) -> tuple[JoinGroupResponseMember, ...]:
        """Return every member with its subscription, for the leader's JoinGroup answer.

        Static members that have not rejoined are included, because they keep their partitions.

        Raises: IllegalTransition if the group is Dead or in a join phase, or has no protocol.
        """
        if (
            self._state in {GroupState.DEAD, GroupState.PREPARING_REBALANCE}
            or self.protocol_name is None
        ):
            raise IllegalTransition(
                f"group {self.group_id} has no members' metadata in {self._state.value}"
            )
        name = self.protocol_name
        return tuple(
            JoinGroupResponseMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                metadata=member.metadata(name),
            )
            for member in self.members.values()
        )

    def _count_protocols(self, member: Member, change: int) -> None:
        # `change` is 1 for a member that comes, and -1 for a member that goes. If a member lists a
        # name twice, the name counts twice, as in Kafka.
        counts = self.supported_protocols
        for name in member.protocol_names():
            count = counts.get(name, 0) + change
            if count:
                counts[name] = count
            else:
                del counts[name]

    def _vote(self, member: Member, candidates: dict[str, None]) -> str:
        name = member.vote(candidates)
        if name is None:
            raise UnknownServerError(
                f"member {member.member_id} supports none of {tuple(candidates)}"
            )
        return name

    def _is_common(self, names: tuple[str, ...]) -> bool:
        """Return True if every member supports one of the protocols `names`."""
        size = len(self.members)
        return any(self.supported_protocols.get(name, 0) == size for name in names)

    def _fits(self, member: Member) -> bool:
        """Return True if the group and the new member have a protocol in common."""
        # As in `supports_protocols`, an Empty group accepts any protocol.
        if self._state is GroupState.EMPTY:
            return bool(member.protocol_type) and bool(member.supported_protocols)
        return self._is_common(member.protocol_names())

    def _check_member(self, member_id: str) -> None:
        if member_id not in self.members:
            raise IllegalTransition(f"group {self.group_id}: {member_id} is no member")


def _hash_order(member_id: str) -> tuple[int, str]:
    """Return a sort key of member ids: the smallest id becomes the leader.

    Kafka takes the first member of a Java hash map, which in practice is any member.
    """
    # Member ids end in a random uuid, so an order by any hash is as arbitrary as the order of
    # Java's map. The order in which members joined is not arbitrary: it would always choose the
    # oldest or the newest member. Python's own hash of a string differs from process to process, so
    # CRC-32 is used.
    return zlib.crc32(member_id.encode()), member_id
