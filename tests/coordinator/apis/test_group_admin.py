"""What administrators do with groups: describe, list and delete them, and delete offsets.

BEHAVIOUR 2.9 to 2.12, and the recordings `list-filters`, `delete-groups`, `delete-states`,
`offset-delete-consumer`.
"""

import pytest

from coordinator.states import GroupState
from protocol.api import AnyResponse, GroupRequest
from protocol.errors import ErrorCode
from protocol.ids import RequestId
from protocol.messages.group import SyncGroupRequest, SyncGroupRequestAssignment
from protocol.messages.group_admin import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListGroupsRequest,
    ListGroupsResponse,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from protocol.trace import TraceKind
from tests.support.builders.requests import (
    GROUP,
    join_group,
    leave_group,
    offset_commit,
    protocols,
    subscription,
)
from tests.support.harness.coordinator_harness import CoordinatorHarness

OTHER = "other"


def ask(h: CoordinatorHarness, body: GroupRequest) -> AnyResponse:
    """Return the answer of a request that must be answered at once."""
    response = h.response(h.submit(body))
    assert response is not None
    return response


def describe(h: CoordinatorHarness, group_id: str = GROUP) -> DescribedGroup:
    response = ask(h, DescribeGroupsRequest(groups=(group_id,)))
    assert isinstance(response, DescribeGroupsResponse)
    (group,) = response.groups
    return group


def listed(
    h: CoordinatorHarness, *states: str, types: tuple[str, ...] = ()
) -> list[tuple[str, str, str, str]]:
    response = ask(h, ListGroupsRequest(states_filter=states, types_filter=types))
    assert isinstance(response, ListGroupsResponse)
    assert response.error_code is ErrorCode.NONE
    return [(g.group_id, g.protocol_type, g.group_state, g.group_type) for g in response.groups]


def delete(h: CoordinatorHarness, *group_ids: str) -> list[tuple[str, ErrorCode]]:
    response = ask(h, DeleteGroupsRequest(groups_names=group_ids))
    assert isinstance(response, DeleteGroupsResponse)
    return [(result.group_id, result.error_code) for result in response.results]


def delete_offsets(
    h: CoordinatorHarness, *partitions: tuple[str, int], group_id: str = GROUP
) -> OffsetDeleteResponse:
    response = ask(
        h,
        OffsetDeleteRequest(
            group_id=group_id,
            topics=tuple(
                OffsetDeleteRequestTopic(
                    name=topic, partitions=(OffsetDeleteRequestPartition(partition_index=index),)
                )
                for topic, index in partitions
            ),
        ),
    )
    assert isinstance(response, OffsetDeleteResponse)
    return response


def outcomes(response: OffsetDeleteResponse) -> dict[tuple[str, int], ErrorCode]:
    assert response.error_code is ErrorCode.NONE
    return {
        (topic.name, p.partition_index): p.error_code
        for topic in response.topics
        for p in topic.partitions
    }


def commit(h: CoordinatorHarness, *partitions: tuple[str, int]) -> None:
    """Commit offset 5 of each partition as a simple consumer, into an Empty group."""
    body = offset_commit({each: 5 for each in partitions})
    assert set(h.commit(body)) == {ErrorCode.NONE}


def one_member(
    h: CoordinatorHarness, *, protocol_type: str = "connect", metadata: bytes = b"m"
) -> tuple[str, RequestId]:
    """Return the id of the only member of a group whose join phase is complete, not stored."""
    joined = h.submit(
        join_group(
            instance="i1",
            protocol_type=protocol_type,
            offers=protocols("range", metadata=metadata),
        )
    )
    h.advance(0)
    assert h.state() is GroupState.COMPLETING_REBALANCE
    return h.join_response(joined).member_id, joined


def stabilize(h: CoordinatorHarness, member_id: str) -> None:
    """Let the leader of generation 1 assign, whatever its protocol type."""
    assignment = SyncGroupRequestAssignment(member_id, b"for-" + member_id.encode())
    h.submit(
        SyncGroupRequest(
            group_id=GROUP,
            generation_id=1,
            member_id=member_id,
            protocol_type=h.group().protocol_type,
            protocol_name="range",
            assignments=(assignment,),
        )
    )
    assert h.state() is GroupState.STABLE


def consumers_of(h: CoordinatorHarness, *topics: str) -> str:
    """Bring one consumer of `topics` into a Stable group; return its id."""
    member_id, _ = one_member(h, protocol_type="consumer", metadata=subscription(*topics))
    stabilize(h, member_id)
    return member_id


def empty_group(h: CoordinatorHarness) -> None:
    """Bring a group to Empty, generation 2."""
    (member_id,) = h.stable_group(1)
    h.leave(leave_group(member_id))
    assert h.state() is GroupState.EMPTY


# -- describe --


def test_describe_of_a_group_that_is_not_here_has_the_error_and_no_state() -> None:
    """GC-140."""
    h = CoordinatorHarness(owned=())
    assert describe(h) == DescribedGroup(group_id=GROUP, error_code=ErrorCode.NOT_COORDINATOR)


def test_describe_of_an_unknown_group_says_dead_and_makes_none() -> None:
    """GC-141; the empty id is a group's like any other."""
    h = CoordinatorHarness()
    for group_id in (GROUP, ""):
        assert describe(h, group_id) == DescribedGroup(group_id=group_id, group_state="Dead")
    assert h.coordinator.groups() == ()


def test_describe_of_a_stable_group_has_metadata_and_assignment() -> None:
    """GC-142, GC-143: of the selected protocol, with the instance id."""
    h = CoordinatorHarness()
    member_id, _ = one_member(h)
    stabilize(h, member_id)
    group = describe(h)
    assert (group.group_state, group.protocol_type, group.protocol_data) == (
        "Stable",
        "connect",
        "range",
    )
    assert group.members == (
        DescribedGroupMember(
            member_id=member_id,
            group_instance_id="i1",
            client_id="client",
            client_host=group.members[0].client_host,
            member_metadata=b"m",
            member_assignment=b"for-" + member_id.encode(),
        ),
    )
    assert group.members[0].client_host


def test_describe_outside_stable_has_no_protocol_metadata_or_assignment() -> None:
    """GC-144, and PreparingRebalance with the assignment of before."""
    h = CoordinatorHarness()
    member_id, _ = one_member(h)
    completing = describe(h)
    stabilize(h, member_id)
    h.submit(join_group(protocol_type="connect", instance="i2", offers=protocols("range")))
    preparing = describe(h)
    for group, state in ((completing, "CompletingRebalance"), (preparing, "PreparingRebalance")):
        assert (group.group_state, group.protocol_type, group.protocol_data) == (
            state,
            "connect",
            "",
        )
        member = group.members[0]
        assert (member.member_id, member.member_metadata, member.member_assignment) == (
            member_id,
            b"",
            b"",
        )


def test_describe_answers_in_the_order_of_the_request() -> None:
    """3.9 keeps it, repetitions included."""
    h = CoordinatorHarness()
    response = ask(h, DescribeGroupsRequest(groups=("b", "a", "b")))
    assert isinstance(response, DescribeGroupsResponse)
    assert [group.group_id for group in response.groups] == ["b", "a", "b"]


# -- list --


def test_list_has_every_group_with_type_and_state() -> None:
    """GC-136, GC-137; a simple group has no protocol type."""
    h = CoordinatorHarness()
    one_member(h)
    h.commit(offset_commit({("t0", 0): 1}, group_id=OTHER))
    assert listed(h) == [
        (GROUP, "connect", "CompletingRebalance", "classic"),
        (OTHER, "", "Empty", "classic"),
    ]


@pytest.mark.parametrize(
    ("states", "types", "found"),
    [
        (("Stable",), (), True),
        (("sTABLE", "Empty"), (), True),
        (("Empty",), (), False),
        (("nonsense",), (), False),
        (("",), (), False),
        ((), ("Classic",), True),
        ((), ("classic", "consumer"), True),
        ((), ("consumer",), False),
        ((), ("Invalid",), False),
        ((), ("",), False),
        (("Stable",), ("classic",), True),
        (("Stable",), ("consumer",), False),
    ],
)
def test_list_filters_by_state_and_type_whatever_the_letter_case(
    states: tuple[str, ...], types: tuple[str, ...], found: bool
) -> None:
    """GC-138, GC-139 and recording `list-filters`."""
    h = CoordinatorHarness()
    h.stable_group(1)
    assert bool(listed(h, *states, types=types)) is found


def test_list_follows_a_group_through_its_states() -> None:
    """GC-138."""
    h = CoordinatorHarness()
    member_id, _ = one_member(h)
    states = ("CompletingRebalance", "Stable", "Empty")
    seen = [[state for state in states if listed(h, state)]]
    stabilize(h, member_id)
    seen.append([state for state in states if listed(h, state)])
    h.leave(leave_group(member_id))
    seen.append([state for state in states if listed(h, state)])
    assert seen == [["CompletingRebalance"], ["Stable"], ["Empty"]]


def test_list_while_a_partition_loads_says_so_beside_the_known_groups() -> None:
    """BEHAVIOUR 2.12: an administrator must not take it for all."""
    h = CoordinatorHarness(num_partitions=2, owned=(0,))
    group_id = next(f"g{n}" for n in range(9) if h.coordinator.partition_of(f"g{n}") == 0)
    h.commit(offset_commit({("t0", 0): 1}, group_id=group_id))
    h.coordinator.begin_load(1, 0, h.now_us)
    response = ask(h, ListGroupsRequest())
    assert isinstance(response, ListGroupsResponse)
    assert response.error_code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert [group.group_id for group in response.groups] == [group_id]


def test_list_after_shut_down_is_not_available() -> None:
    """BEHAVIOUR 2.12."""
    h = CoordinatorHarness()
    h.stable_group(1)
    h.coordinator.shut_down()
    assert ask(h, ListGroupsRequest()) == ListGroupsResponse(
        error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE
    )


# -- delete groups --


def test_delete_of_a_group_with_members_is_refused_and_changes_nothing() -> None:
    """GC-145, in every state with members."""
    h = CoordinatorHarness()
    member_id, _ = one_member(h)
    assert delete(h, GROUP) == [(GROUP, ErrorCode.NON_EMPTY_GROUP)]
    stabilize(h, member_id)
    assert delete(h, GROUP) == [(GROUP, ErrorCode.NON_EMPTY_GROUP)]
    h.submit(join_group(protocol_type="connect", instance="i2", offers=protocols("range")))
    assert delete(h, GROUP) == [(GROUP, ErrorCode.NON_EMPTY_GROUP)]
    assert h.state() is GroupState.PREPARING_REBALANCE
    assert next(iter(h.summary().members)) == member_id


def test_delete_of_what_is_not_here_is_not_found_or_elsewhere() -> None:
    """GC-147, and a missing group where it would be."""
    assert delete(CoordinatorHarness(owned=()), GROUP) == [(GROUP, ErrorCode.NOT_COORDINATOR)]
    assert delete(CoordinatorHarness(), GROUP, "") == [
        (GROUP, ErrorCode.GROUP_ID_NOT_FOUND),
        ("", ErrorCode.GROUP_ID_NOT_FOUND),
    ]


def test_deleted_group_and_its_offsets_stay_away_after_a_failover() -> None:
    """GC-148, GC-149: tombstones of both, so that a load does not bring them back."""
    h = CoordinatorHarness()
    empty_group(h)
    commit(h, ("t0", 0), ("t1", 3))
    assert delete(h, GROUP) == [(GROUP, ErrorCode.NONE)]
    assert describe(h).group_state == "Dead"
    assert h.offset("t0", 0) == -1
    assert h.failover().coordinator.groups() == ()
    assert h.events(TraceKind.GROUP_STATE)[-1].cause == "deleted by an administrator"


def test_group_without_a_generation_needs_no_tombstone_of_its_own() -> None:
    """BEHAVIOUR 5.6: the log has no record of a simple group."""
    h = CoordinatorHarness()
    commit(h, ("t0", 0))
    before = len(h.log[0])
    assert delete(h, GROUP) == [(GROUP, ErrorCode.NONE)]
    (batch,) = h.log[0][before:]
    assert batch.last_offset_delta == 0
    assert h.failover().coordinator.groups() == ()


def test_group_that_is_named_twice_is_deleted_once() -> None:
    """Recording `delete-groups`."""
    h = CoordinatorHarness()
    commit(h, ("t0", 0))
    assert delete(h, GROUP, "missing", GROUP) == [
        (GROUP, ErrorCode.NONE),
        ("missing", ErrorCode.GROUP_ID_NOT_FOUND),
    ]


def test_delete_of_a_group_with_ids_alone_takes_them_along() -> None:
    """Recording `delete-states`: the id that was given out is unknown then; its timer is gone."""
    h = CoordinatorHarness()
    member_id = h.new_member_id()
    assert delete(h, GROUP) == [(GROUP, ErrorCode.NONE)]
    assert h.timer_keys() == []
    answer = h.join(join_group(member_id))
    assert answer.error_code is ErrorCode.UNKNOWN_MEMBER_ID


def test_commit_in_flight_of_a_deleted_group_is_answered_and_forgotten() -> None:
    """The group is Dead when its append completes: nothing may come back into memory."""
    h = CoordinatorHarness()
    h.holds_appends = True
    parked = h.submit(offset_commit({("t0", 0): 5}))
    assert delete(h, GROUP) == [(GROUP, ErrorCode.NONE)]
    h.complete()
    assert h.response(parked) is not None
    assert h.coordinator.groups() == ()


# -- delete offsets --


def test_offset_delete_of_a_missing_group_is_not_found() -> None:
    """GC-150."""
    h = CoordinatorHarness()
    assert delete_offsets(h, ("t0", 0)) == OffsetDeleteResponse(
        error_code=ErrorCode.GROUP_ID_NOT_FOUND
    )
    away = CoordinatorHarness(owned=())
    assert delete_offsets(away, ("t0", 0)).error_code is ErrorCode.NOT_COORDINATOR
    assert delete_offsets(h, ("t0", 0), group_id="").error_code is ErrorCode.INVALID_GROUP_ID


def test_offset_delete_of_another_protocols_members_is_an_error_of_the_group() -> None:
    """GC-151."""
    h = CoordinatorHarness()
    one_member(h)
    assert delete_offsets(h, ("t0", 0)) == OffsetDeleteResponse(
        error_code=ErrorCode.NON_EMPTY_GROUP
    )


def test_offset_delete_in_an_empty_group_takes_what_is_named() -> None:
    """GC-152, GC-155; one without an offset is deleted as well."""
    h = CoordinatorHarness()
    empty_group(h)
    commit(h, ("t0", 0), ("t1", 0))
    assert outcomes(delete_offsets(h, ("t0", 0), ("t2", 0))) == {
        ("t0", 0): ErrorCode.NONE,
        ("t2", 0): ErrorCode.NONE,
    }
    for each in (h, h.failover()):
        assert (each.offset("t0", 0), each.offset("t1", 0)) == (-1, 5)


def test_offset_delete_of_unparsable_subscriptions_takes_nothing() -> None:
    """GC-153: what is unknown counts as subscribed."""
    h = CoordinatorHarness()
    member_id, _ = one_member(h, protocol_type="consumer", metadata=b"")
    stabilize(h, member_id)
    assert outcomes(delete_offsets(h, ("t0", 0))) == {
        ("t0", 0): ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    }


def test_offset_delete_of_a_consumer_group_spares_what_it_subscribes_to() -> None:
    """GC-156."""
    h = CoordinatorHarness()
    member_id = consumers_of(h, "bar")
    h.commit(offset_commit({("foo", 0): 5, ("bar", 0): 5}, member_id, 1))
    assert outcomes(delete_offsets(h, ("foo", 0), ("bar", 0))) == {
        ("foo", 0): ErrorCode.NONE,
        ("bar", 0): ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
    }
    assert (h.offset("foo", 0), h.offset("bar", 0)) == (-1, 5)
    assert h.state() is GroupState.STABLE


def test_empty_group_goes_with_its_last_offset() -> None:
    """GC-154: it is Dead then, and not found; a load does not bring it back."""
    h = CoordinatorHarness()
    empty_group(h)
    commit(h, ("t0", 0))
    delete_offsets(h, ("t0", 0))
    assert describe(h).group_state == "Dead"
    assert delete_offsets(h, ("t0", 0)).error_code is ErrorCode.GROUP_ID_NOT_FOUND
    assert h.failover().coordinator.groups() == ()


def test_offset_delete_of_a_group_with_ids_alone_loses_them() -> None:
    """BEHAVIOUR 0.1: the same routine reaps the group."""
    h = CoordinatorHarness()
    member_id = h.new_member_id()
    assert outcomes(delete_offsets(h, ("t0", 0))) == {("t0", 0): ErrorCode.NONE}
    assert h.join(join_group(member_id)).error_code is ErrorCode.UNKNOWN_MEMBER_ID


def test_offset_delete_drops_commits_in_flight_too() -> None:
    """BEHAVIOUR 2.9: the append that completes later finds nothing to store."""
    h = CoordinatorHarness()
    empty_group(h)
    commit(h, ("t1", 0))
    h.holds_appends = True
    h.submit(offset_commit({("t0", 0): 9}))
    delete_offsets(h, ("t0", 0))
    h.complete()
    assert h.offset("t0", 0) == -1
