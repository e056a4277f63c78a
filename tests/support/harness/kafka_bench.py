"""Our coordinator in the setting of Kafka's own GroupCoordinatorTest.

docs/kafka/BEHAVIOUR.md (10.1) describes the tests of this class as scenarios, with ids such as
GC-010. This harness is for our tests of these scenarios. It has the settings and timeouts of
Kafka's class, and methods that make the groups from which many of the tests start. Time must pass
as in Kafka's tests, too: use `tick`, which works as Kafka's mock timer does.

Source: BEHAVIOUR 10.0.
"""

from dataclasses import dataclass

from coordinator.states import GroupState
from protocol.causes import GroupStateCause
from protocol.config import BrokerConfig
from protocol.errors import ErrorCode
from protocol.ids import RequestId
from protocol.messages.group import JoinGroupRequestProtocol
from tests.support.builders.requests import join_group, protocols, sync_group
from tests.support.harness.coordinator_harness import CoordinatorHarness

# The values of these constants are those of Kafka's class.
SESSION_MS = 500
"""The session timeout of most members."""
# The coordinator accepts session timeouts from SESSION_MIN_MS to SESSION_MAX_MS.
SESSION_MIN_MS = 10
SESSION_MAX_MS = 600_000
REBALANCE_MS = 500
"""The rebalance timeout of most members."""
DELAY_MS = 50
"""The initial rebalance delay: how long the first rebalance of a group waits for more members."""
MAX_SIZE = 4
"""The largest number of members of a group."""
DYNAMIC_PROTOCOLS = protocols("range")
"""The protocols (assignors) of a dynamic member."""
STATIC_PROTOCOLS = protocols("range", "roundrobin")
"""The protocols of a static member."""
PARTITION = 1
"""The offsets partition that GROUP belongs to.

There are two offsets partitions, and the coordinator has loaded only this partition.
"""
NO_ID_REQUIRED, ID_REQUIRED = 3, 9
"""Versions of JoinGroup.

With version 3 a client without a member id becomes a member at once. With version 9 it only gets an
id, with which it must join again.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Statics:
    """The member ids of a Stable group of two static members."""

    # The id of the group's leader, whose instance id is "L".
    leader: str
    # The id of the other member, whose instance id is "F".
    follower: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Awaited:
    """A join phase that waits only for a third client, which has an id but has not joined yet."""

    # The id of the third client, which Kafka calls a pending member.
    pending: str
    # The ids of the two members, and the ids of their JoinGroups, which have no answer yet.
    members: tuple[str, str]
    joins: tuple[RequestId, RequestId]


class KafkaBench(CoordinatorHarness):
    """A coordinator with the settings of Kafka's own tests."""

    def __init__(self) -> None:
        super().__init__(
            config=BrokerConfig(
                group_min_session_timeout_ms=SESSION_MIN_MS,
                group_max_session_timeout_ms=SESSION_MAX_MS,
                group_initial_rebalance_delay_ms=DELAY_MS,
                group_max_size=MAX_SIZE,
            ),
            num_partitions=2,
            owned=(PARTITION,),
        )

    def add(
        self,
        member_id: str = "",
        *,
        instance: str | None = None,
        offers: tuple[JoinGroupRequestProtocol, ...] | None = None,
        session_timeout_ms: int = SESSION_MS,
        rebalance_timeout_ms: int = REBALANCE_MS,
        version: int | None = None,
        client_id: str = "client",
    ) -> RequestId:
        """Send a JoinGroup with the defaults of Kafka's tests.

        A static member offers STATIC_PROTOCOLS, and a dynamic member offers DYNAMIC_PROTOCOLS. A
        new dynamic client sends the version NO_ID_REQUIRED, because with this version the client is
        a member at once.
        """
        is_new = not member_id and instance is None
        if offers is None:
            offers = DYNAMIC_PROTOCOLS if instance is None else STATIC_PROTOCOLS
        body = join_group(
            member_id,
            instance=instance,
            offers=offers,
            session_timeout_ms=session_timeout_ms,
            rebalance_timeout_ms=rebalance_timeout_ms,
        )
        if version is None:
            version = NO_ID_REQUIRED if is_new else ID_REQUIRED
        return self.submit(body, version=version, client_id=client_id)

    def give_id(self, *, session_timeout_ms: int = SESSION_MS) -> str:
        """Let a new client ask to join, and return the id with which it must join again."""
        request_id = self.add(version=ID_REQUIRED, session_timeout_ms=session_timeout_ms)
        response = self.join_response(request_id)
        assert response.error_code is ErrorCode.MEMBER_ID_REQUIRED
        return response.member_id

    def join_error(self, request_id: RequestId) -> ErrorCode:
        """Return the error of an answered JoinGroup."""
        return self.join_response(request_id).error_code

    def sync_as(
        self,
        member_id: str,
        generation_id: int,
        assignments: dict[str, bytes] | None = None,
        *,
        instance: str | None = None,
    ) -> RequestId:
        """Send a SyncGroup that names no protocol, as Kafka's tests do."""
        body = sync_group(
            member_id,
            generation_id,
            assignments,
            instance=instance,
            protocol_type=None,
            protocol_name=None,
        )
        # Only from version 5 on a SyncGroup has fields that name a protocol.
        return self.submit(body, version=4)

    def first_member(
        self, *, session_timeout_ms: int = SESSION_MS, rebalance_timeout_ms: int = REBALANCE_MS
    ) -> str:
        """Make a group of one member that has joined and not synced; return the member's id.

        The group is in CompletingRebalance, in generation 1.
        """
        join = self.add(
            session_timeout_ms=session_timeout_ms, rebalance_timeout_ms=rebalance_timeout_ms
        )
        # One millisecond more, because `tick` does not fire a timer that is due exactly at its end.
        self.tick(DELAY_MS + 1)
        assert self.join_error(join) is ErrorCode.NONE
        assert self.state() is GroupState.COMPLETING_REBALANCE
        return self.join_response(join).member_id

    def stable_member(
        self, *, session_timeout_ms: int = SESSION_MS, rebalance_timeout_ms: int = REBALANCE_MS
    ) -> str:
        """Make a Stable group of one member, in generation 1; return the member's id."""
        member_id = self.first_member(
            session_timeout_ms=session_timeout_ms, rebalance_timeout_ms=rebalance_timeout_ms
        )
        self.sync_as(member_id, 1, {member_id: b"one"})
        assert self.state() is GroupState.STABLE
        return member_id

    def static_members(
        self, *, session_timeout_ms: int = SESSION_MS, rebalance_timeout_ms: int = REBALANCE_MS
    ) -> Statics:
        """Make a Stable group of the static members L and F, in generation 1; L is the leader."""
        joins = [
            self.add(
                instance=instance,
                session_timeout_ms=session_timeout_ms,
                rebalance_timeout_ms=rebalance_timeout_ms,
            )
            for instance in ("L", "F")
        ]
        self.tick(DELAY_MS + 1)
        # F joined during the initial delay (DELAY_MS). So the coordinator waits once more, but no
        # longer than REBALANCE_MS.
        self.tick(REBALANCE_MS + 1)
        leading, following = (self.join_response(join) for join in joins)
        assert (leading.error_code, leading.generation_id) == (ErrorCode.NONE, 1)
        assert (following.error_code, following.generation_id) == (ErrorCode.NONE, 1)
        assert leading.leader == following.leader == leading.member_id
        statics = Statics(leader=leading.member_id, follower=following.member_id)
        assert {member.member_id for member in leading.members} == {
            statics.leader,
            statics.follower,
        }
        self.sync_as(statics.leader, 1, {statics.leader: b"for L", statics.follower: b"for F"})
        follower = self.sync_response(self.sync_as(statics.follower, 1))
        assert follower.assignment == b"for F"
        assert self.state() is GroupState.STABLE
        return statics

    def awaiting_pending(self) -> Awaited:
        """Make a group whose join phase waits only for a third client. See Awaited."""
        joins = [self.add() for _ in range(2)]
        self.tick(DELAY_MS + 1)
        # The second client joined during the initial delay. So the coordinator waits for as long
        # again.
        self.tick(DELAY_MS + 1)
        ids = [self.join_response(join).member_id for join in joins]
        self.sync_as(ids[0], 1, {ids[0]: b"a", ids[1]: b"b"})
        self.sync_as(ids[1], 1)
        assert self.state() is GroupState.STABLE
        # The first member joins again, which begins a join phase. The third client gets its id
        # before the second member has joined again. So the join phase must wait for the third
        # client, too.
        first = self.add(ids[0])
        assert self.state() is GroupState.PREPARING_REBALANCE
        # The third client has a shorter session timeout than the members, so it can expire alone.
        pending = self.give_id(session_timeout_ms=100)
        second = self.add(ids[1])
        assert self.state() is GroupState.PREPARING_REBALANCE
        assert list(self.group().pending_members) == [pending]
        return Awaited(pending=pending, members=(ids[0], ids[1]), joins=(first, second))

    def force(self, *states: GroupState) -> None:
        """Put the group into these states, one after the other, without their usual effects."""
        # Normally the invariants are checked after every input. A forced state may violate them.
        self.checks_invariants = False
        for state in states:
            # A change of state must have a cause. Any cause will do.
            self.group().transition_to(
                state, now_us=self.now_us, cause=GroupStateCause.UNLOADED, trace=[]
            )
