"""JoinGroup: Kafka's checks, and the answers that scenarios/join_group.txt does not have.

In a rebalance the members of a group join, and then get their assignments. The generation counts
the rebalances. In the join phase the coordinator parks each JoinGroup: it holds the answer until
all members have joined. A static member has a configured `group.instance.id`. A pending id was
assigned to a client that has not joined with it yet.

`h` is a CoordinatorHarness: a coordinator with a log and a clock. The topic `__consumer_offsets`
has one partition, number 0, which the coordinator owns; with `owned=()` it owns none.

- `h.join` returns an answer that must come in the same turn, without waiting.
- `h.submit` returns a request's id. `h.response` returns its answer, or None while it is parked.
- `h.stable_group(n)` returns the ids of `n` members of a Stable group. The leader is the first.
- `CoordinatorHarness(log=h.log)` is another coordinator, which has loaded the log of `h`.

Kafka's checks are in docs/kafka/BEHAVIOUR.md 2.2, its answers by state in 2.14. That page also
lists the cases of Kafka's tests; GC-013 and GC-009 are ids of such cases.
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
    """Return a harness with this initial rebalance delay; the default is Kafka's.

    With 0 the first join phase of a group takes no time.
    """
    return CoordinatorHarness(config=BrokerConfig(group_initial_rebalance_delay_ms=delay_ms))


def refused(response: JoinGroupResponse, error: ErrorCode, member_id: str) -> bool:
    """Return True if the answer has this error and member id, and Kafka's defaults otherwise."""
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
    """NOT_COORDINATOR makes the client look for its coordinator again."""
    h = CoordinatorHarness(owned=())
    assert refused(h.join(join_group(member_id)), ErrorCode.NOT_COORDINATOR, member_id)


def test_join_while_loading_is_refused() -> None:
    """The error is retriable: the client asks this coordinator again."""
    h = CoordinatorHarness(owned=())
    h.coordinator.begin_load(0, leader_epoch=0, now_us=h.now_us)
    assert refused(h.join(join_group()), ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "")


def test_join_after_shut_down_is_refused() -> None:
    """The check of the coordinator's state precedes the check of the partition."""
    h = CoordinatorHarness(owned=())
    h.coordinator.shut_down()
    assert refused(h.join(join_group()), ErrorCode.COORDINATOR_NOT_AVAILABLE, "")


@pytest.mark.parametrize("session_timeout_ms", [5_999, 1_800_001])
def test_join_with_session_timeout_out_of_bounds_is_refused(session_timeout_ms: int) -> None:
    """Kafka allows 6 s to 30 min; both values are 1 ms outside. No group is created."""
    h = harness()
    response = h.join(join_group(session_timeout_ms=session_timeout_ms))
    assert refused(response, ErrorCode.INVALID_SESSION_TIMEOUT, "")
    assert h.coordinator.groups() == ()


@pytest.mark.parametrize("session_timeout_ms", [6_000, 1_800_000])
def test_join_with_session_timeout_on_the_bounds_is_accepted(session_timeout_ms: int) -> None:
    """Kafka allows 6 s to 30 min; both bounds are allowed."""
    response = harness().join(join_group(session_timeout_ms=session_timeout_ms))
    assert response.error_code is ErrorCode.MEMBER_ID_REQUIRED


@pytest.mark.parametrize("instance", [None, "i"])
def test_join_with_member_id_to_a_missing_group_is_refused(instance: str | None) -> None:
    """A member id is refused if its group does not exist, and the group is not created."""
    h = harness()
    response = h.join(join_group("m", instance=instance))
    assert refused(response, ErrorCode.UNKNOWN_MEMBER_ID, "m")
    assert h.coordinator.groups() == ()


def test_refused_join_below_version_7_has_an_empty_protocol_name() -> None:
    """The field cannot be null before version 7, so the older versions have an empty name."""
    h = harness()
    assert h.join(join_group("m"), version=6).protocol_name == ""
    assert h.join(join_group("m"), version=7).protocol_name is None


# -- member ids --


@pytest.mark.parametrize(("version", "is_given_an_id"), [(3, False), (4, True)])
def test_join_without_id_is_answered_at_once_with_a_new_id_from_version_4_on(
    version: int, is_given_an_id: bool
) -> None:
    """KIP-394: the client must join again with this id, which is pending until then.

    A client of an older version becomes a member at once, and its JoinGroup is parked.
    """
    h = harness()
    request_id = h.submit(join_group(), version=version)
    assert (h.response(request_id) is not None) == is_given_an_id
    assert len(h.group().pending_members) == (1 if is_given_an_id else 0)


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

    A request finds a Dead group only if it has read the group before the unload.
    """
    h = harness(delay_ms=0)
    ids = h.stable_group()
    h.group().transition_to(GroupState.DEAD, now_us=0, cause=GroupStateCause.UNLOADED, trace=[])
    for member_id in ("", ids[0]):
        # The harness is bypassed, because its invariants reject a Dead group among the loaded ones.
        request = envelope(join_group(member_id))
        # 999 is no id that the harness has given to a request.
        (reply,) = h.coordinator.handle(RequestId(999), request, h.now_us).replies
        assert isinstance(reply.response, JoinGroupResponse)
        assert refused(reply.response, ErrorCode.COORDINATOR_NOT_AVAILABLE, member_id)


# -- known members, state by state --


def test_join_of_the_leader_in_stable_rebalances() -> None:
    """The leader rejoins to have the assignment computed again, for example for new partitions."""
    h = harness(delay_ms=0)
    ids = h.stable_group()
    leader = h.submit(join_group(ids[0], reason="new partitions"))
    follower = h.submit(join_group(ids[1]))
    assert h.join_response(leader).generation_id == 2
    assert h.join_response(follower).generation_id == 2
    started = h.events(TraceKind.REBALANCE_STARTED)[-1]
    # The event of a rebalance's start has the generation that ends with it.
    assert (started.member, started.generation) == (ids[0], 1)
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
    # A coordinator with a lower limit loads the group of three.
    small = CoordinatorHarness(
        config=BrokerConfig(group_initial_rebalance_delay_ms=0, group_max_size=2), log=h.log
    )
    assert small.state() is GroupState.PREPARING_REBALANCE
    # The members rejoin in reversed order: joins[2] is the request of ids[0].
    joins = [small.submit(join_group(member_id)) for member_id in reversed(ids)]

    assert refused(small.join_response(joins[2]), ErrorCode.GROUP_MAX_SIZE_REACHED, "")
    assert small.join_response(joins[0]).generation_id == 2
    assert set(small.summary().members) == {ids[1], ids[2]}


# -- a case that a property test found, which Kafka's tests do not have --


def test_join_that_finds_no_room_and_completes_an_unreadable_phase_is_answered_once() -> None:
    """The refused member gets one answer, although its removal completes a join phase that fails.

    1. The group was loaded with two members, but may have one, so the second member is refused.
    2. The removal of this member completes the join phase: the other member has joined already.
    3. The end of the phase increments the generation. Then it fails, because the other member's
       subscription is unreadable.
    """
    h = harness(delay_ms=0)
    ids = h.stable_group(size=2)
    small = CoordinatorHarness(
        config=BrokerConfig(group_initial_rebalance_delay_ms=0, group_max_size=1), log=h.log
    )
    # The parser of subscriptions raises for these bytes.
    parked = small.submit(join_group(ids[0], offers=protocols(metadata=b"meta-c1")))
    response = small.join(join_group(ids[1]))
    assert refused(response, ErrorCode.GROUP_MAX_SIZE_REACHED, "")
    assert small.response(parked) is None
    assert (small.state(), small.summary().generation) == (GroupState.PREPARING_REBALANCE, 2)
