"""JoinGroup: Kafka's checks, and the answers that scenarios/join_group.txt does not have.

A JoinGroup is refused at once, or it is parked: its answer waits until all members of the group
have joined. A new member first gets a member id as an answer, and then joins with this id. In
between, the id is pending.

In these tests `h` is a CoordinatorHarness: a coordinator with its log and timers. The coordinator
owns the only partition of `__consumer_offsets`. With `owned=()` it owns no partition.

- `h.join` sends a JoinGroup that must be answered at once, and returns the answer.
- `h.submit` sends any request, and returns its id. `h.response` returns the answer, or None while
  the request is parked.
- `h.stable_group(n)` gives the coordinator a Stable group, and returns the ids of its `n` members.
  The first member is the leader.
- `CoordinatorHarness(log=h.log)` is another coordinator, which has loaded the log of `h`.

Kafka's checks are in docs/kafka/BEHAVIOUR.md 2.2, and its answers by state are in 2.14. Ids such as
GC-013 are cases of Kafka's tests, which this page lists.
"""

import pytest

from coordinator.states import GroupState
from protocol.causes import GroupStateCause, RebalanceCause
from protocol.config import BrokerConfig
from protocol.errors import ErrorCode
from protocol.ids import RequestId
from protocol.messages.group import JoinGroupResponse
from protocol.trace import TraceKind
from tests.support.builders.requests import (
    envelope,
    join_group,
    protocols,
)
from tests.support.harness.coordinator_harness import CoordinatorHarness


def harness(*, delay_ms: int = 3_000) -> CoordinatorHarness:
    """Return a harness with this initial rebalance delay. The default is Kafka's default.

    After the first JoinGroup of a group, the coordinator waits for further members for this time.
    """
    return CoordinatorHarness(config=BrokerConfig(group_initial_rebalance_delay_ms=delay_ms))


def refused(response: JoinGroupResponse, error: ErrorCode, member_id: str) -> bool:
    """Return True if the answer has this error and member id, and defaults in all other fields."""
    return response == JoinGroupResponse(error_code=error, member_id=member_id)


# -- the first checks: the coordinator's state, the partition, the session timeout --


def test_join_with_empty_group_id_is_refused() -> None:
    """The answer has the member id of the request.

    GC-013: JoinGroup with the empty group id
    """
    h = harness()
    assert refused(h.join(join_group("m", group_id="")), ErrorCode.INVALID_GROUP_ID, "m")


@pytest.mark.parametrize("member_id", ["", "m"])
def test_join_to_a_partition_of_another_coordinator_is_refused(member_id: str) -> None:
    """After the error NOT_COORDINATOR a client looks for its coordinator again."""
    h = CoordinatorHarness(owned=())
    assert refused(h.join(join_group(member_id)), ErrorCode.NOT_COORDINATOR, member_id)


def test_join_while_loading_is_refused() -> None:
    """The error is retriable: the client asks this coordinator again."""
    h = CoordinatorHarness(owned=())
    h.coordinator.begin_load(0, leader_epoch=0, now_us=h.now_us)
    assert refused(h.join(join_group()), ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "")


def test_join_after_shut_down_is_refused() -> None:
    """A coordinator that is shut down refuses every request, whatever the partition is."""
    h = CoordinatorHarness(owned=())
    h.coordinator.shut_down()
    assert refused(h.join(join_group()), ErrorCode.COORDINATOR_NOT_AVAILABLE, "")


@pytest.mark.parametrize("session_timeout_ms", [5_999, 1_800_001])
def test_join_with_session_timeout_out_of_bounds_is_refused(session_timeout_ms: int) -> None:
    """Kafka allows 6 s to 30 min. Both values here are out of these bounds by 1 ms.

    No group is created.
    """
    h = harness()
    response = h.join(join_group(session_timeout_ms=session_timeout_ms))
    assert refused(response, ErrorCode.INVALID_SESSION_TIMEOUT, "")
    assert h.coordinator.groups() == ()


@pytest.mark.parametrize("session_timeout_ms", [6_000, 1_800_000])
def test_join_with_session_timeout_on_the_bounds_is_accepted(session_timeout_ms: int) -> None:
    """Kafka allows exactly 6 s and exactly 30 min. The client gets a member id."""
    response = harness().join(join_group(session_timeout_ms=session_timeout_ms))
    assert response.error_code is ErrorCode.MEMBER_ID_REQUIRED


@pytest.mark.parametrize("instance", [None, "i"])
def test_join_with_member_id_to_a_missing_group_is_refused(instance: str | None) -> None:
    """A group that does not exist cannot have assigned the id. No group is created either."""
    h = harness()
    response = h.join(join_group("m", instance=instance))
    assert refused(response, ErrorCode.UNKNOWN_MEMBER_ID, "m")
    assert h.coordinator.groups() == ()


def test_refused_join_below_version_7_has_an_empty_protocol_name() -> None:
    """The protocol name cannot be null before version 7, so it is empty in the older versions."""
    h = harness()
    assert h.join(join_group("m"), version=6).protocol_name == ""
    assert h.join(join_group("m"), version=7).protocol_name is None


# -- member ids --


def test_join_without_id_is_answered_at_once_with_a_new_id_from_version_4_on() -> None:
    """KIP-394: the client must join again with this id, which is pending until then."""
    h = harness()
    request_id = h.submit(join_group(), version=4)
    assert h.response(request_id) is not None
    assert len(h.group().pending_members) == 1


def test_join_without_id_is_parked_up_to_version_3() -> None:
    """A client of an old version becomes a member with its first JoinGroup."""
    h = harness()
    request_id = h.submit(join_group(), version=3)
    assert h.response(request_id) is None
    assert len(h.group().pending_members) == 0


def test_join_of_version_0_has_the_session_timeout_as_rebalance_timeout() -> None:
    """Version 0 has no field for the rebalance timeout (-1 here), so the session timeout counts."""
    h = harness()
    h.submit(join_group(session_timeout_ms=7_000, rebalance_timeout_ms=-1), version=0)
    assert h.group().rebalance_timeout_ms == 7_000


def test_join_with_pending_id_and_instance_is_a_server_error() -> None:
    """Only dynamic members get pending ids, so Kafka throws IllegalState."""
    h = harness()
    member_id = h.new_member_id()
    response = h.join(join_group(member_id, instance="i"))
    assert refused(response, ErrorCode.UNKNOWN_SERVER_ERROR, "")


def test_join_to_a_dead_group_is_refused() -> None:
    """A group is Dead after the unload of its partition. The client must find the new coordinator.

    In Kafka a request can still find a Dead group if the unload happens while the request is
    handled.
    """
    h = harness(delay_ms=0)
    ids = h.stable_group()
    h.group().transition_to(GroupState.DEAD, now_us=0, cause=GroupStateCause.UNLOADED, trace=[])
    for member_id in ("", ids[0]):
        # Give the request to the coordinator directly, because `h.submit` would also check the
        # invariants, and a Dead group breaks one of them. 999 is any id of a request.
        request = envelope(join_group(member_id))
        (reply,) = h.coordinator.handle(RequestId(999), request, h.now_us).replies
        assert isinstance(reply.response, JoinGroupResponse)
        assert refused(reply.response, ErrorCode.COORDINATOR_NOT_AVAILABLE, member_id)


# -- known members, state by state --


def test_join_of_the_leader_in_stable_rebalances() -> None:
    """The leader rejoins because it wants a new assignment, for example for new partitions."""
    h = harness(delay_ms=0)
    ids = h.stable_group()
    leader = h.submit(join_group(ids[0], reason="new partitions"))
    follower = h.submit(join_group(ids[1]))
    assert h.join_response(leader).generation_id == 2
    assert h.join_response(follower).generation_id == 2
    started = h.events(TraceKind.REBALANCE_STARTED)[-1]
    assert started.member == ids[0]
    assert started.generation == 1  # the generation that ends with the rebalance
    assert started.cause is RebalanceCause.REJOIN
    assert started.detail == {"client_reason": "new partitions"}
    assert started.cause_text == f"member {ids[0]} (leader) rejoined; client reason: new partitions"


# -- group.max.size --


def test_rebalance_of_an_oversized_group_keeps_the_first_to_rejoin() -> None:
    """With a limit of two, the member that rejoins last is removed.

    GC-009: oversized Stable group rebalances: the first to rejoin stay, the rest is removed
    """
    h = harness(delay_ms=0)
    ids = h.stable_group(size=3)
    # Another coordinator, whose groups may have only two members, loads the group of three.
    with_limit = CoordinatorHarness(
        config=BrokerConfig(group_initial_rebalance_delay_ms=0, group_max_size=2), log=h.log
    )
    assert with_limit.state() is GroupState.PREPARING_REBALANCE
    # The members rejoin in reversed order, so ids[0] rejoins last.
    joins = {member_id: with_limit.submit(join_group(member_id)) for member_id in reversed(ids)}

    refusal = with_limit.join_response(joins[ids[0]])
    assert refused(refusal, ErrorCode.GROUP_MAX_SIZE_REACHED, "")
    assert with_limit.join_response(joins[ids[2]]).generation_id == 2
    assert set(with_limit.summary().members) == {ids[1], ids[2]}


# -- a case that a property test found, which Kafka's tests do not have --


def test_join_that_is_refused_for_the_size_and_ends_a_join_phase_is_answered_once() -> None:
    """The refused member gets one answer, although its refusal also ends a join phase that fails.

    1. The coordinator has loaded a group of two members, but allows only one member.
    2. The first member joins. Its subscription is unreadable.
    3. The second member joins, and is refused and removed.
    4. Now all members have joined, so the join phase ends. The end of the phase increments the
       generation, and then fails because of the unreadable subscription.
    """
    h = harness(delay_ms=0)
    ids = h.stable_group(size=2)
    with_limit = CoordinatorHarness(
        config=BrokerConfig(group_initial_rebalance_delay_ms=0, group_max_size=1), log=h.log
    )
    unreadable = protocols(metadata=b"meta-c1")
    first_join = with_limit.submit(join_group(ids[0], offers=unreadable))
    refusal = with_limit.join(join_group(ids[1]))
    assert refused(refusal, ErrorCode.GROUP_MAX_SIZE_REACHED, "")
    assert with_limit.response(first_join) is None  # still parked
    assert with_limit.state() is GroupState.PREPARING_REBALANCE
    assert with_limit.summary().generation == 2
