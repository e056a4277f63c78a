"""Requests of administrators: describe, list and delete groups, and delete offsets.

In these tests `h` is a CoordinatorHarness: a coordinator with its log and timers. The coordinator
coordinates every group, or with `owned=()` no group. `h.stable_group(n)` gives it a Stable group of
`n` members, in generation 1. `h.failover()` returns another coordinator, which has loaded a copy of
the log.

Kafka's behaviour is in docs/kafka/BEHAVIOUR.md 2.9 to 2.12, and in the recordings of a real Kafka
`list-filters`, `delete-groups`, `delete-states` and `offset-delete-consumer`.
"""

import pytest

from coordinator.states import GroupState
from protocol.api import AnyResponse, GroupRequest
from protocol.errors import ErrorCode
from protocol.messages.group_admin import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListGroupsRequest,
    ListGroupsResponse,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from tests.support.builders.requests import (
    GROUP,
    leave_group,
    offset_commit,
)
from tests.support.harness.coordinator_harness import CoordinatorHarness


def ask(h: CoordinatorHarness, body: GroupRequest) -> AnyResponse:
    """Send a request that must be answered at once, and return the answer."""
    response = h.response(h.submit(body))
    assert response is not None
    return response


def describe(h: CoordinatorHarness, group_id: str = GROUP) -> DescribedGroup:
    """Return the description of one group."""
    response = ask(h, DescribeGroupsRequest(groups=(group_id,)))
    assert isinstance(response, DescribeGroupsResponse)
    (group,) = response.groups
    return group


def listed(
    h: CoordinatorHarness, *states: str, types: tuple[str, ...] = ()
) -> list[tuple[str, str, str, str]]:
    """Return id, protocol type, state and group type of each listed group."""
    response = ask(h, ListGroupsRequest(states_filter=states, types_filter=types))
    assert isinstance(response, ListGroupsResponse)
    assert response.error_code is ErrorCode.NONE
    return [
        (group.group_id, group.protocol_type, group.group_state, group.group_type)
        for group in response.groups
    ]


def delete(h: CoordinatorHarness, *group_ids: str) -> list[tuple[str, ErrorCode]]:
    """Delete groups, and return the error of each group."""
    response = ask(h, DeleteGroupsRequest(groups_names=group_ids))
    assert isinstance(response, DeleteGroupsResponse)
    return [(result.group_id, result.error_code) for result in response.results]


def delete_offsets(
    h: CoordinatorHarness, *partitions: tuple[str, int], group_id: str = GROUP
) -> OffsetDeleteResponse:
    """Delete the offsets of these partitions, and return the answer."""
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


def error_by_partition(response: OffsetDeleteResponse) -> dict[tuple[str, int], ErrorCode]:
    """Return the error of each partition. The answer as a whole must have no error."""
    assert response.error_code is ErrorCode.NONE
    return {
        (topic.name, partition.partition_index): partition.error_code
        for topic in response.topics
        for partition in topic.partitions
    }


def commit(h: CoordinatorHarness, *partitions: tuple[str, int]) -> None:
    """Commit offset 5 of each partition, as a client that is no member of the group."""
    body = offset_commit(dict.fromkeys(partitions, 5))
    assert set(h.commit(body)) == {ErrorCode.NONE}


def make_empty_group(h: CoordinatorHarness) -> None:
    """Create a group without members: its only member joins and leaves."""
    (member_id,) = h.stable_group(size=1)
    h.leave(leave_group(member_id))
    assert h.state() is GroupState.EMPTY


# -- describe --


def test_describe_of_a_group_of_another_coordinator_has_the_error_and_no_state() -> None:
    """Only the coordinator of the group knows whether the group exists."""
    h = CoordinatorHarness(owned=())
    assert describe(h) == DescribedGroup(group_id=GROUP, error_code=ErrorCode.NOT_COORDINATOR)


def test_describe_of_an_unknown_group_returns_dead_and_creates_no_group() -> None:
    """Kafka describes a group that does not exist as Dead, even one with an empty id."""
    h = CoordinatorHarness()
    for group_id in (GROUP, ""):
        assert describe(h, group_id) == DescribedGroup(group_id=group_id, group_state="Dead")
    assert h.coordinator.groups() == ()


def test_describe_answers_in_the_order_of_the_request() -> None:
    """Kafka 3.9 keeps the order of the request, repetitions included."""
    h = CoordinatorHarness()
    response = ask(h, DescribeGroupsRequest(groups=("b", "a", "b")))
    assert isinstance(response, DescribeGroupsResponse)
    assert [group.group_id for group in response.groups] == ["b", "a", "b"]


# -- list --


@pytest.mark.parametrize(
    ("states", "types", "is_listed"),
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
    states: tuple[str, ...], types: tuple[str, ...], is_listed: bool
) -> None:
    """The group is Stable and of type classic. Kafka's answers are in recording `list-filters`."""
    h = CoordinatorHarness()
    h.stable_group(size=1)
    assert bool(listed(h, *states, types=types)) is is_listed


# -- delete groups --


def test_delete_distinguishes_a_missing_group_from_a_group_of_another_coordinator() -> None:
    """Only the coordinator of a group knows that the group is missing: GROUP_ID_NOT_FOUND.

    Any other broker answers NOT_COORDINATOR.
    """
    other_broker = CoordinatorHarness(owned=())
    assert delete(other_broker, GROUP) == [(GROUP, ErrorCode.NOT_COORDINATOR)]
    coordinator = CoordinatorHarness()
    assert delete(coordinator, GROUP, "") == [
        (GROUP, ErrorCode.GROUP_ID_NOT_FOUND),
        ("", ErrorCode.GROUP_ID_NOT_FOUND),
    ]


def test_group_that_is_named_twice_is_deleted_once() -> None:
    """The answer lists the group at its first place in the request (recording `delete-groups`)."""
    h = CoordinatorHarness()
    commit(h, ("t0", 0))  # creates the group
    assert delete(h, GROUP, "missing", GROUP) == [
        (GROUP, ErrorCode.NONE),
        ("missing", ErrorCode.GROUP_ID_NOT_FOUND),
    ]


# -- delete offsets --


def test_offset_delete_is_refused_if_the_broker_does_not_have_the_group() -> None:
    """The answer has one error for the whole request, and lists no partition.

    The error says why: the group does not exist, another broker is its coordinator, or the id is
    empty.
    """
    coordinator = CoordinatorHarness()
    missing_group = delete_offsets(coordinator, ("t0", 0))
    assert missing_group == OffsetDeleteResponse(error_code=ErrorCode.GROUP_ID_NOT_FOUND)

    other_broker = CoordinatorHarness(owned=())
    group_of_another_broker = delete_offsets(other_broker, ("t0", 0))
    assert group_of_another_broker.error_code is ErrorCode.NOT_COORDINATOR

    empty_id = delete_offsets(coordinator, ("t0", 0), group_id="")
    assert empty_id.error_code is ErrorCode.INVALID_GROUP_ID


def test_offset_delete_in_an_empty_group_deletes_the_named_partitions() -> None:
    """The deletion succeeds for t0-0, which has an offset, and for t2-0, which has no offset.

    The deletion is also in the log, so the next coordinator does not have the offset either.
    """
    h = CoordinatorHarness()
    make_empty_group(h)
    commit(h, ("t0", 0), ("t1", 0))
    assert error_by_partition(delete_offsets(h, ("t0", 0), ("t2", 0))) == {
        ("t0", 0): ErrorCode.NONE,
        ("t2", 0): ErrorCode.NONE,
    }
    for coordinator in (h, h.failover()):
        assert coordinator.offset("t0", 0) == -1  # no offset
        assert coordinator.offset("t1", 0) == 5
