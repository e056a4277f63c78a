"""GroupCoordinatorTest, last part: offsets outside transactions, LeaveGroup, administrators.

Each test is a scenario of BEHAVIOUR 10.1 or 10.5 with Kafka's numbers; test_offset_commit,
test_offset_fetch, test_leave_group and test_group_admin have the rules one by one.
"""

import pytest

from coordinator.states import GroupState
from protocol.api import AnyResponse, GroupRequest
from protocol.config import BrokerConfig
from protocol.errors import ErrorCode
from protocol.messages.group import LeaveGroupResponse, MemberIdentity
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
from protocol.messages.offset import OffsetFetchResponse, OffsetFetchResponseGroup
from protocol.records.batch import decode_records
from protocol.records.offsets import GroupMetadataKey, decode_key
from protocol.trace import TraceKind
from tests.support.builders.requests import (
    GROUP,
    join_group,
    leave_group,
    offset_commit,
    offset_fetch,
    protocols,
    subscription,
)
from tests.support.harness.coordinator_harness import CoordinatorHarness
from tests.support.harness.kafka_bench import DELAY_MS, OTHER, PARTITION, KafkaBench

NONE, UNKNOWN = ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID
FENCED, ELSEWHERE = ErrorCode.FENCED_INSTANCE_ID, ErrorCode.NOT_COORDINATOR
GONE = ErrorCode.COORDINATOR_NOT_AVAILABLE
FOO, BAR = ("foo", 0), ("bar", 0)


def ask(h: CoordinatorHarness, body: GroupRequest) -> AnyResponse:
    """Return the answer of a request that is answered at once."""
    response = h.response(h.submit(body))
    assert response is not None
    return response


def describe(h: CoordinatorHarness, group_id: str = GROUP) -> DescribedGroup:
    """Return what DescribeGroups says of a group."""
    response = ask(h, DescribeGroupsRequest(groups=(group_id,)))
    assert isinstance(response, DescribeGroupsResponse)
    (group,) = response.groups
    return group


def listed(h: CoordinatorHarness, *states: str, types: tuple[str, ...] = ()) -> list[str]:
    """Return the states of the groups that ListGroups finds."""
    response = ask(h, ListGroupsRequest(states_filter=states, types_filter=types))
    assert isinstance(response, ListGroupsResponse)
    assert response.error_code is NONE
    assert {group.group_type for group in response.groups} <= {"classic"}
    return [group.group_state for group in response.groups]


def delete(h: CoordinatorHarness, group_id: str = GROUP) -> ErrorCode:
    """Return what DeleteGroups says of a group."""
    response = ask(h, DeleteGroupsRequest(groups_names=(group_id,)))
    assert isinstance(response, DeleteGroupsResponse)
    (result,) = response.results
    return result.error_code


def delete_offsets(
    h: CoordinatorHarness, *topics: str, group_id: str = GROUP
) -> OffsetDeleteResponse:
    """Return the answer of an OffsetDelete of partition 0 of topics."""
    body = OffsetDeleteRequest(
        group_id=group_id,
        topics=tuple(
            OffsetDeleteRequestTopic(
                name=topic, partitions=(OffsetDeleteRequestPartition(partition_index=0),)
            )
            for topic in topics
        ),
    )
    response = ask(h, body)
    assert isinstance(response, OffsetDeleteResponse)
    return response


def outcomes(response: OffsetDeleteResponse) -> dict[str, ErrorCode]:
    """Return the outcome of each topic."""
    assert response.error_code is NONE
    return {topic.name: topic.partitions[0].error_code for topic in response.topics}


def identity(member_id: str, instance: str | None = None) -> MemberIdentity:
    """Return who leaves."""
    return MemberIdentity(member_id=member_id, group_instance_id=instance)


def left(h: KafkaBench, *who: MemberIdentity | str) -> list[ErrorCode]:
    """Return the outcome of each of a batch that is not refused as a whole."""
    response = h.leave(leave_group(*who))
    assert response.error_code is NONE
    return [member.error_code for member in response.members]


# -- OffsetCommit and OffsetFetch --


def test_commit_to_a_dead_group() -> None:
    """GC-051: told for each partition."""
    h = KafkaBench()
    member_id = h.stable_member()
    h.force(GroupState.DEAD)
    assert h.commit(offset_commit({FOO: 1, BAR: 2}, member_id, 1)) == [GONE, GONE]
    assert h.commit(offset_commit({FOO: 1})) == [GONE]


def test_commit_to_a_missing_group() -> None:
    """GC-096, GC-097: a member's is refused and makes no group, a simple consumer's makes one."""
    h = KafkaBench()
    for generation_id in (0, 1):
        commit = offset_commit({FOO: 1}, "m", generation_id)
        assert h.commit(commit) == [ErrorCode.ILLEGAL_GENERATION]
    assert h.coordinator.groups() == ()
    assert h.commit(offset_commit({FOO: 1})) == [NONE]
    assert (h.state(), h.generation(), h.offset(*FOO)) == (GroupState.EMPTY, 0, 1)


def test_commit_to_a_group_that_its_member_left() -> None:
    """GC-098: a simple consumer's; what is fetched is what was committed."""
    h = KafkaBench()
    member_id = h.first_member()
    assert left(h, member_id) == [NONE]
    assert h.state() is GroupState.EMPTY
    assert h.commit(offset_commit({FOO: 97})) == [NONE]
    assert h.offset(*FOO) == 97


def test_fetch_of_offset_metadata_and_leader_epoch() -> None:
    """GC-099: and an epoch that was not given is none."""
    h = KafkaBench()
    h.commit(offset_commit({FOO: 97}, metadata="some metadata", leader_epoch=15))
    h.commit(offset_commit({BAR: 98}))
    found = h.fetched(*FOO)
    assert (found.committed_offset, found.committed_leader_epoch, found.metadata) == (
        97,
        15,
        "some metadata",
    )
    found = h.fetched(*BAR)
    assert (found.committed_offset, found.committed_leader_epoch, found.metadata) == (98, -1, "")


def test_offsets_of_the_empty_group_id() -> None:
    """GC-100: legacy tools may commit, fetch, describe and delete them."""
    h = CoordinatorHarness()
    assert h.commit(offset_commit({FOO: 97}, group_id="")) == [NONE]
    assert h.offset(*FOO, group_id="") == 97
    described = describe(h, "")
    assert (described.error_code, described.group_state) == (NONE, "Empty")
    assert delete(h, "") is NONE
    assert h.offset(*FOO, group_id="") == -1


def test_fetch_of_a_partition_without_an_offset() -> None:
    """GC-108: -1, no metadata, no error."""
    h = KafkaBench()
    found = h.fetched(*FOO)
    assert (found.committed_offset, found.metadata, found.error_code) == (-1, "", NONE)


def test_fetch_where_the_partition_is_not_owned() -> None:
    """GC-109: with nothing beside the error."""
    response = KafkaBench().fetch(offset_fetch(FOO, group_id=OTHER))
    assert response == OffsetFetchResponse(
        groups=(OffsetFetchResponseGroup(group_id=OTHER, error_code=ELSEWHERE),)
    )


def test_fetch_of_all_partitions() -> None:
    """GC-110: none at first, then exactly the three that were committed."""
    h = KafkaBench()
    assert h.fetch(offset_fetch()).groups[0].topics == ()
    offsets = {("foo", 0): 97, ("foo", 1): 98, ("bar", 3): 99}
    assert h.commit(offset_commit(offsets)) == [NONE] * 3
    (group,) = h.fetch(offset_fetch()).groups
    assert {
        (topic.name, p.partition_index): p.committed_offset
        for topic in group.topics
        for p in topic.partitions
    } == offsets


def test_commit_of_a_member_while_its_generation_completes() -> None:
    """GC-111, GC-112, GC-113: right ids must rejoin; wrong ones are told what is wrong first."""
    h = KafkaBench()
    member_id = h.first_member()
    for who, generation_id, error in (
        (member_id, 1, ErrorCode.REBALANCE_IN_PROGRESS),
        ("", 1, UNKNOWN),
        (member_id, 2, ErrorCode.ILLEGAL_GENERATION),
    ):
        assert h.commit(offset_commit({FOO: 1}, who, generation_id)) == [error]
    assert h.offset(*FOO) == -1


# -- LeaveGroup --


def test_leave_where_the_partition_is_not_owned() -> None:
    """GC-122, GC-131: one or two, the answer is the same."""
    for who in (["m"], ["m", "n"]):
        assert KafkaBench().leave(leave_group(*who, group_id=OTHER)) == LeaveGroupResponse(
            error_code=ELSEWHERE
        )


def test_leave_of_a_missing_group() -> None:
    """GC-123, GC-132, JC-155: an error of each member, not of the answer."""
    assert left(KafkaBench(), "m") == [UNKNOWN]
    assert left(KafkaBench(), identity("", "L"), identity("", "F")) == [UNKNOWN, UNKNOWN]


def test_leave_of_an_unknown_and_of_a_known_member() -> None:
    """GC-124, GC-127."""
    h = KafkaBench()
    member_id = h.stable_member()
    assert (left(h, "m"), h.state()) == ([UNKNOWN], GroupState.STABLE)
    assert (left(h, member_id), h.state()) == ([NONE], GroupState.EMPTY)


def test_leave_of_a_dead_group() -> None:
    """GC-125, GC-126: one or two; a top-level error without members."""
    h = KafkaBench()
    member_id = h.stable_member()
    h.force(GroupState.DEAD)
    for who in ([member_id], [member_id, "m"]):
        assert h.leave(leave_group(*who)) == LeaveGroupResponse(error_code=GONE)


def test_leave_of_a_static_member() -> None:
    """GC-128, GC-129: with another member id it is fenced; its instance id alone is enough."""
    h = KafkaBench()
    s = h.static_members()
    assert left(h, identity("other", "L")) == [FENCED]
    assert h.members() == {s.leader, s.follower}
    assert left(h, identity("", "L")) == [NONE]
    assert h.members() == {s.follower}


def test_leave_of_both_static_members() -> None:
    """GC-130: by their instance ids; the group is Empty then."""
    h = KafkaBench()
    h.static_members()
    assert left(h, identity("", "L"), identity("", "F")) == [NONE, NONE]
    assert (h.members(), h.state()) == (set(), GroupState.EMPTY)


def test_leave_of_two_of_which_the_second_is_fenced() -> None:
    """GC-133: the first one leaves all the same."""
    h = KafkaBench()
    s = h.static_members()
    assert left(h, identity("", "L"), identity("invalid", "F")) == [NONE, FENCED]
    assert h.members() == {s.follower}


def test_leave_of_two_of_which_the_first_is_unknown() -> None:
    """GC-134."""
    h = KafkaBench()
    s = h.static_members()
    assert left(h, identity("", "unknown"), identity("", "F")) == [UNKNOWN, NONE]
    assert h.members() == {s.leader}


def test_leave_of_an_unknown_instance_and_a_pending_id() -> None:
    """GC-135: the pending id is forgotten, with its timer."""
    h = KafkaBench()
    pending = h.give_id()
    assert left(h, identity("", "unknown"), pending) == [UNKNOWN, NONE]
    assert (list(h.group().pending_members), h.timer_keys()) == ([], [])


@pytest.mark.parametrize("unknown", [False, True])
def test_leave_of_everyone_in_one_batch(unknown: bool) -> None:
    """JC-167, JC-168: leader, follower and a pending id, and one that nobody knows."""
    h = KafkaBench()
    s = h.static_members()
    offers = protocols("range")
    body = join_group(offers=offers, session_timeout_ms=500)
    pending = h.join(body).member_id
    who = [identity(s.leader, "L"), identity(s.follower), identity(pending)]
    who += [identity("unknown")] * unknown
    assert left(h, *who) == [NONE] * 3 + [UNKNOWN] * unknown
    assert (h.members(), h.state(), h.generation()) == (set(), GroupState.EMPTY, 2)
    assert list(h.group().pending_members) == []


# -- ListGroups and DescribeGroups --


def test_list_through_the_states_of_a_group() -> None:
    """GC-136, GC-137, GC-138: each state finds the group while it is in it, and no longer."""
    h = KafkaBench()
    states = ["CompletingRebalance", "Stable", "Empty"]
    member_id = h.first_member()
    assert listed(h) == ["CompletingRebalance"]
    assert [listed(h, state) for state in states] == [["CompletingRebalance"], [], []]
    h.sync_as(member_id, 1, {})
    assert listed(h) == ["Stable"]
    assert [listed(h, state) for state in states] == [[], ["Stable"], []]
    h.leave(leave_group(member_id))
    assert [listed(h, state) for state in states] == [[], [], ["Empty"]]


def test_list_by_type_and_state() -> None:
    """GC-139, JC-146: letters' case does not count; what is no type or state finds nothing."""
    h = KafkaBench()
    h.stable_member()
    for found in ({"types": ()}, {"types": ("classic",)}, {"types": ("Classic",)}):
        assert listed(h, **found) == ["Stable"]
        assert listed(h, "sTaBlE", **found) == ["Stable"]
        assert listed(h, "Empty", **found) == []
    for types in (("consumer",), ("Invalid",)):
        assert listed(h, types=types) == []
        assert listed(h, "Stable", types=types) == []
    assert listed(h, "invalid", types=("classic",)) == []


def test_describe_of_groups_that_are_not_here() -> None:
    """GC-140, GC-141, JC-152: elsewhere, or unknown and called Dead."""
    h = KafkaBench()
    assert describe(h, OTHER) == DescribedGroup(group_id=OTHER, error_code=ELSEWHERE)
    assert describe(h) == DescribedGroup(group_id=GROUP, group_state="Dead")


@pytest.mark.parametrize("instance", [None, "L"], ids=["dynamic", "static"])
def test_describe_of_a_group_before_and_after_its_assignment(instance: str | None) -> None:
    """GC-142, GC-143, GC-144: protocol, metadata and assignment are shown in Stable only."""
    h = KafkaBench()
    join = h.add(instance=instance)
    h.tick(DELAY_MS + 1)
    member_id = h.join_response(join).member_id
    for state, protocol, metadata, assignment in (
        ("CompletingRebalance", "", b"", b""),
        ("Stable", "range", subscription("foo"), b"bytes"),
    ):
        group = describe(h)
        assert (group.error_code, group.group_state) == (NONE, state)
        assert (group.protocol_type, group.protocol_data) == ("consumer", protocol)
        (member,) = group.members
        assert (member.member_id, member.group_instance_id) == (member_id, instance)
        assert (member.client_id, member.client_host) == ("client", "consumer-0")
        assert (member.member_metadata, member.member_assignment) == (metadata, assignment)
        h.sync_as(member_id, 1, {member_id: b"bytes"})


# -- DeleteGroups --


def test_delete_of_a_group_that_is_not_empty_or_not_here() -> None:
    """GC-145, GC-147: and a missing one where it would be."""
    h = KafkaBench()
    assert delete(h, OTHER) is ELSEWHERE
    assert delete(h) is ErrorCode.GROUP_ID_NOT_FOUND
    member_id = h.first_member()
    assert delete(h) is ErrorCode.NON_EMPTY_GROUP
    h.sync_as(member_id, 1, {})
    assert delete(h) is ErrorCode.NON_EMPTY_GROUP
    h.add()
    assert (h.state(), delete(h)) == (GroupState.PREPARING_REBALANCE, ErrorCode.NON_EMPTY_GROUP)
    assert member_id in h.members()
    h.force(GroupState.DEAD)
    assert delete(h) is ErrorCode.GROUP_ID_NOT_FOUND


def test_delete_of_an_empty_group() -> None:
    """GC-148, JC-169: one record, its tombstone."""
    h = KafkaBench()
    h.leave(leave_group(h.first_member()))
    before = len(h.log[PARTITION])
    assert delete(h) is NONE
    assert h.coordinator.groups() == ()
    (batch,) = h.log[PARTITION][before:]
    (record,) = decode_records(batch.records)
    assert (decode_key(record.key or b""), record.value) == (GroupMetadataKey(GROUP), None)


def test_delete_of_an_empty_group_with_offsets() -> None:
    """GC-149: it is described as Dead, and its offsets are gone."""
    h = KafkaBench()
    member_id = h.stable_member()
    h.commit(offset_commit({FOO: 1}, member_id, 1))
    h.leave(leave_group(member_id))
    assert delete(h) is NONE
    assert describe(h).group_state == "Dead"
    assert h.offset(*FOO) == -1
    assert h.log_of_group()[-1] == 2


def test_cleanup_takes_empty_groups_and_no_others() -> None:
    """JC-170: one that rebalances stays, and what is unknown is no matter."""
    h = KafkaBench()
    h.execute(h.coordinator.expire_offsets(h.now_us))
    assert h.log == {}
    member_id = h.stable_member()
    h.add()
    assert h.state() is GroupState.PREPARING_REBALANCE
    before = len(h.log[PARTITION])
    h.execute(h.coordinator.expire_offsets(h.now_us))
    assert (member_id in h.members(), len(h.log[PARTITION])) == (True, before)
    h.leave(leave_group(*h.members()))
    before = len(h.log[PARTITION])
    h.execute(h.coordinator.expire_offsets(h.now_us))
    assert h.coordinator.groups() == ()
    (batch,) = h.log[PARTITION][before:]
    (record,) = decode_records(batch.records)
    assert (decode_key(record.key or b""), record.value) == (GroupMetadataKey(GROUP), None)


def test_retention_of_the_most_minutes_there_can_be() -> None:
    """GC-002: in milliseconds it does not fit 32 bits, where it would be about a minute ago."""
    h = CoordinatorHarness(
        config=BrokerConfig(
            group_initial_rebalance_delay_ms=0, offsets_retention_minutes=2_147_483_647
        )
    )
    h.commit(offset_commit({FOO: 1}))
    h.advance(1_000 * 60 * 60 * 24 * 365)
    h.execute(h.coordinator.expire_offsets(h.now_us))
    assert h.offset(*FOO) == 1


# -- OffsetDelete --


def test_offset_delete_of_a_group_that_is_not_here() -> None:
    """GC-150, GC-154: missing, or Dead."""
    h = KafkaBench()
    not_found = OffsetDeleteResponse(error_code=ErrorCode.GROUP_ID_NOT_FOUND)
    assert delete_offsets(h, "foo") == not_found
    assert delete_offsets(h, "foo", group_id=OTHER) == OffsetDeleteResponse(error_code=ELSEWHERE)
    h.stable_member()
    h.force(GroupState.DEAD)
    assert delete_offsets(h, "foo") == not_found


def test_offset_delete_of_another_protocol_type() -> None:
    """GC-151, GC-152: refused while it has members; when it is Empty, what is named goes."""
    h = KafkaBench()
    body = join_group(protocol_type="connect", session_timeout_ms=500)
    join = h.submit(body, version=3)
    h.tick(DELAY_MS + 1)
    member_id = h.join_response(join).member_id
    h.sync_as(member_id, 1, {})
    h.commit(offset_commit({FOO: 1, BAR: 2}, member_id, 1))
    assert delete_offsets(h, "foo") == OffsetDeleteResponse(error_code=ErrorCode.NON_EMPTY_GROUP)
    assert h.offset(*FOO) == 1
    h.leave(leave_group(member_id))
    assert outcomes(delete_offsets(h, "foo")) == {"foo": NONE}
    assert (h.offset(*FOO), h.offset(*BAR)) == (-1, 2)


def test_offset_delete_of_an_empty_consumer_group() -> None:
    """GC-155: although its members had subscribed to the topic."""
    h = KafkaBench()
    member_id = h.stable_member()
    h.commit(offset_commit({FOO: 1, BAR: 2}, member_id, 1))
    h.leave(leave_group(member_id))
    assert outcomes(delete_offsets(h, "foo")) == {"foo": NONE}
    assert (h.offset(*FOO), h.offset(*BAR)) == (-1, 2)
    assert h.state() is GroupState.EMPTY


@pytest.mark.parametrize(
    ("metadata", "errors"),
    [
        (b"", {"foo": ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC}),
        (subscription("bar"), {"foo": NONE}),
    ],
    ids=["unparsable", "subscribed to bar"],
)
def test_offset_delete_of_a_stable_consumer_group(
    metadata: bytes, errors: dict[str, ErrorCode]
) -> None:
    """GC-153, GC-156: bar is spared in either case."""
    h = KafkaBench()
    join = h.add(offers=protocols("range", metadata=metadata))
    h.tick(DELAY_MS + 1)
    member_id = h.join_response(join).member_id
    h.sync_as(member_id, 1, {})
    h.commit(offset_commit({FOO: 1, BAR: 2}, member_id, 1))
    expected = errors | {"bar": ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC}
    assert outcomes(delete_offsets(h, "foo", "bar")) == expected
    is_deleted = errors["foo"] is NONE
    assert (h.offset(*FOO), h.offset(*BAR)) == (-1 if is_deleted else 1, 2)
    assert h.state() is GroupState.STABLE


def test_completed_rebalance_is_told_once() -> None:
    """JC-173: when its assignment is stored; not when it is asked for again."""
    h = KafkaBench()
    member_id = h.stable_member()
    h.sync_as(member_id, 1, {})
    assert len(h.events(TraceKind.ASSIGNMENT_STORED)) == 1
    h.add(member_id)
    h.sync_as(member_id, 2, {})
    assert [e.generation for e in h.events(TraceKind.ASSIGNMENT_STORED)] == [1, 2]
