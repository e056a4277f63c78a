"""OffsetCommit over every state, and what becomes of its append (BEHAVIOUR 2.6, 4.10)."""

import msgspec
import pytest

from coordinator.states import GroupState
from protocol.config import BrokerConfig, Guards
from protocol.errors import ErrorCode
from protocol.ids import TopicPartition
from protocol.messages.offset import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from protocol.records.batch import decode_records
from protocol.records.offsets import OffsetCommitKey, decode_key, decode_offset_commit_value
from protocol.trace import TraceKind
from tests.support.builders.requests import join_group, leave_group, offset_commit
from tests.support.harness.coordinator_harness import EPOCH_US, CoordinatorHarness, commit_errors

TP = ("foo", 0)
ONE = {TP: 5}
TWO = {TP: 5, ("bar", 3): 6}


def test_commit_to_a_partition_that_is_not_here_is_refused_for_each_partition() -> None:
    """The gate's error stands at every partition: the answer has no other place."""
    h = CoordinatorHarness(owned=())
    assert h.commit(offset_commit(TWO)) == [ErrorCode.NOT_COORDINATOR] * 2
    h.coordinator.begin_load(0, 0, h.now_us)
    assert h.commit(offset_commit(TWO)) == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 2


def test_commit_of_nothing_is_answered_with_nothing_before_the_gate() -> None:
    """No partition is left to ask the coordinator for."""
    h = CoordinatorHarness(owned=())
    request_id = h.submit(offset_commit({}))
    assert h.response(request_id) == OffsetCommitResponse()


def test_commit_with_a_topic_that_names_no_partition_stores_the_others() -> None:
    """Only a commit of nothing at all is answered without asking."""
    h = CoordinatorHarness()
    empty = OffsetCommitRequestTopic(name="bar", partitions=())
    body = offset_commit(ONE)
    body = msgspec.structs.replace(body, topics=(empty, *body.topics))
    assert h.commit(body) == [ErrorCode.NONE]
    assert h.offset("foo", 0) == 5


def test_commit_of_a_simple_consumer_creates_its_group() -> None:
    """GC-097: Empty, generation 0, no protocol type; the empty group id is allowed (GC-100)."""
    for group_id in ("simple", ""):
        h = CoordinatorHarness()
        assert h.commit(offset_commit(ONE, group_id=group_id)) == [ErrorCode.NONE]
        group = h.group(group_id)
        assert (group.state, group.generation_id) == (GroupState.EMPTY, 0)
        assert group.protocol_type is None
        assert h.offset("foo", 0, group_id=group_id) == 5


def test_commit_with_generation_to_a_missing_group_is_refused() -> None:
    """GC-096: the group is not created."""
    h = CoordinatorHarness()
    assert h.commit(offset_commit(ONE, "m", 1)) == [ErrorCode.ILLEGAL_GENERATION]
    assert h.coordinator.groups() == ()


@pytest.mark.parametrize(("member_id", "instance"), [("", "i"), ("unknown", None)])
def test_commit_without_generation_to_an_empty_group_ignores_ids(
    member_id: str, instance: str | None
) -> None:
    """GC-114: an admin tool, or a consumer outside of group management."""
    h = CoordinatorHarness()
    assert h.commit(offset_commit(ONE, member_id, instance=instance)) == [ErrorCode.NONE]
    assert h.commit(offset_commit(ONE, member_id, instance=instance)) == [ErrorCode.NONE]


def test_commit_of_a_member_in_stable_is_stored_and_can_go_backwards() -> None:
    """Nobody checks that the member owns the partition."""
    h = CoordinatorHarness()
    ids = h.stable_group()
    assert h.commit(offset_commit({TP: 9}, ids[0], 1)) == [ErrorCode.NONE]
    assert h.commit(offset_commit({TP: 3}, ids[1], 1)) == [ErrorCode.NONE]
    assert h.offset("foo", 0) == 3


def test_commit_with_wrong_ids_to_a_group_with_members_is_refused() -> None:
    """GC-112, GC-113, and an anonymous one: member first, then generation."""
    h = CoordinatorHarness()
    ids = h.stable_group()
    for member_id, generation_id, error in (
        ("", 1, ErrorCode.UNKNOWN_MEMBER_ID),
        ("who", 1, ErrorCode.UNKNOWN_MEMBER_ID),
        ("", -1, ErrorCode.UNKNOWN_MEMBER_ID),
        (ids[0], 2, ErrorCode.ILLEGAL_GENERATION),
        (ids[0], 0, ErrorCode.ILLEGAL_GENERATION),
        (ids[0], -1, ErrorCode.ILLEGAL_GENERATION),
    ):
        assert h.commit(offset_commit(ONE, member_id, generation_id)) == [error]
    assert h.offset("foo", 0) == -1


def test_commit_of_another_generation_without_the_guard_is_stored() -> None:
    """What generation_check prevents: a late commit of the previous owner (recipe g)."""
    h = CoordinatorHarness(guards=Guards(generation_check=False))
    ids = h.stable_group()
    assert h.commit(offset_commit(ONE, ids[0], 0)) == [ErrorCode.NONE]
    assert h.commit(offset_commit(ONE, "who", 0)) == [ErrorCode.UNKNOWN_MEMBER_ID]


def test_commit_in_preparing_with_the_old_generation_is_stored() -> None:
    """So that members can commit what they are about to lose."""
    h = CoordinatorHarness()
    ids = h.stable_group()
    h.submit(join_group(ids[0]))
    assert h.state() is GroupState.PREPARING_REBALANCE
    assert h.commit(offset_commit(ONE, ids[1], 1)) == [ErrorCode.NONE]


def test_commit_in_completing_is_told_to_rejoin() -> None:
    """GC-111."""
    h = CoordinatorHarness()
    ids = h.stable_group()
    for member_id in ids:
        h.submit(join_group(member_id))
    assert h.commit(offset_commit(ONE, ids[0], 2)) == [ErrorCode.REBALANCE_IN_PROGRESS]


def test_commit_into_an_emptied_group() -> None:
    """GC-098: anonymous ones are stored, those of the member that left are not."""
    h = CoordinatorHarness()
    (member_id,) = h.stable_group(1)
    h.leave(leave_group(member_id))
    assert h.commit(offset_commit(ONE)) == [ErrorCode.NONE]
    assert h.commit(offset_commit(ONE, member_id, 2)) == [ErrorCode.UNKNOWN_MEMBER_ID]


def test_commit_keeps_a_member_alive() -> None:
    """GC-075."""
    h = CoordinatorHarness()
    (member_id,) = h.stable_group(1)
    for _ in range(3):
        h.advance(6_000)
        assert h.commit(offset_commit(ONE, member_id, 1)) == [ErrorCode.NONE]


def test_commit_is_one_batch_and_visible_when_the_log_has_it() -> None:
    """MM-37: records in the order of the request, stamped with the time of the commit."""
    h = CoordinatorHarness()
    h.holds_appends = True
    body = offset_commit(TWO, metadata="m", leader_epoch=7)
    request_id = h.submit(body)
    assert (h.response(request_id), h.offset("foo", 0)) == (None, -1)
    (append,) = h.held
    assert append.required_acks == -1
    assert [decode_key(r.key or b"") for r in append.records] == [
        OffsetCommitKey("group", "foo", 0),
        OffsetCommitKey("group", "bar", 3),
    ]
    value = decode_offset_commit_value(append.records[0].value or b"")
    assert (value.offset, value.metadata, value.leader_epoch) == (5, "m", 7)
    assert value.commit_timestamp_ms == append.records[0].timestamp_ms == EPOCH_US // 1_000
    h.complete()
    assert commit_errors(h.response(request_id)) == [ErrorCode.NONE] * 2
    assert h.fetched("foo", 0).metadata == "m"
    stored = h.events(TraceKind.COMMIT_STORED)
    assert [(e.partition, e.offset, e.correlation_id) for e in stored] == [
        ("foo-0", 5, append.append_id),
        ("bar-3", 6, append.append_id),
    ]


@pytest.mark.parametrize(
    ("error", "answer"),
    [
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.REQUEST_TIMED_OUT),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.INVALID_COMMIT_OFFSET_SIZE),
        (ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.INVALID_COMMIT_OFFSET_SIZE),
        (ErrorCode.INVALID_FETCH_SIZE, ErrorCode.INVALID_COMMIT_OFFSET_SIZE),
        (ErrorCode.NETWORK_EXCEPTION, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (ErrorCode.CORRUPT_MESSAGE, ErrorCode.CORRUPT_MESSAGE),
    ],
)
def test_commit_whose_append_fails_is_answered_with_the_mapped_error(
    error: ErrorCode, answer: ErrorCode
) -> None:
    """MM-42: nothing is stored, nothing stays pending."""
    h = CoordinatorHarness()
    h.holds_appends = True
    request_id = h.submit(offset_commit(ONE))
    h.complete(error)
    assert commit_errors(h.response(request_id)) == [answer]
    assert not h.group().offsets.has_offsets
    assert h.events(TraceKind.COMMIT_STORED) == []


def test_commits_in_flight_end_in_the_order_of_the_log() -> None:
    """GM-34 through the API: completions swapped cannot bring back the older offset."""
    h = CoordinatorHarness()
    h.commit(offset_commit({TP: 1}))
    h.holds_appends = True
    h.submit(offset_commit({TP: 10}))
    h.submit(offset_commit({TP: 20}))
    h.complete()
    assert (h.offset("foo", 0), h.group().offsets.is_pending(TopicPartition(*TP))) == (10, True)
    h.complete()
    assert (h.offset("foo", 0), h.group().offsets.is_pending(TopicPartition(*TP))) == (20, False)


def metadata_harness() -> CoordinatorHarness:
    """Return a harness that takes four characters of metadata."""
    return CoordinatorHarness(config=BrokerConfig(offset_metadata_max_bytes=4))


def commit_with(*entries: tuple[int, str]) -> OffsetCommitRequest:
    """Return a commit of topic foo: partition and metadata of each entry."""
    return OffsetCommitRequest(
        group_id="group",
        topics=(
            OffsetCommitRequestTopic(
                name="foo",
                partitions=tuple(
                    OffsetCommitRequestPartition(
                        partition_index=index, committed_offset=1, committed_metadata=metadata
                    )
                    for index, metadata in entries
                ),
            ),
        ),
    )


def test_commit_with_too_large_metadata_is_refused_for_its_partition_only() -> None:
    """MM-43: the other one is stored."""
    h = metadata_harness()
    assert h.commit(commit_with((0, "fits"), (1, "large"))) == [
        ErrorCode.NONE,
        ErrorCode.OFFSET_METADATA_TOO_LARGE,
    ]
    assert (h.offset("foo", 0), h.offset("foo", 1)) == (1, -1)


def test_commit_with_only_too_large_metadata_is_answered_without_an_append() -> None:
    """MM-44: the group is there all the same."""
    h = metadata_harness()
    assert h.commit(commit_with((0, "large"))) == [ErrorCode.OFFSET_METADATA_TOO_LARGE]
    assert h.log == {}
    assert not h.group().offsets.has_offsets


def test_commit_keeps_its_too_large_error_when_the_append_fails() -> None:
    """Each partition has its own outcome."""
    h = metadata_harness()
    h.holds_appends = True
    request_id = h.submit(commit_with((0, "large"), (1, "fits")))
    h.complete(ErrorCode.REQUEST_TIMED_OUT)
    assert commit_errors(h.response(request_id)) == [
        ErrorCode.OFFSET_METADATA_TOO_LARGE,
        ErrorCode.REQUEST_TIMED_OUT,
    ]


def test_metadata_is_measured_as_java_measures_strings() -> None:
    """In UTF-16 units: an emoji counts for two, an umlaut for one."""
    h = metadata_harness()
    assert h.commit(commit_with((0, "äöüß"), (1, "😀😀"), (2, "😀😀x"))) == [
        ErrorCode.NONE,
        ErrorCode.NONE,
        ErrorCode.OFFSET_METADATA_TOO_LARGE,
    ]


def test_commit_with_a_partition_twice_stores_the_last_and_answers_once() -> None:
    """Recording commit-duplicates: Kafka keeps a map of partitions."""
    h = metadata_harness()
    assert h.commit(commit_with((0, "1st"), (0, "2nd"))) == [ErrorCode.NONE]
    assert h.fetched("foo", 0).metadata == "2nd"


@pytest.mark.parametrize(
    ("version", "retention_ms", "expires"),
    [(2, 1_000, True), (4, 1_000, True), (4, -1, False), (5, 1_000, False)],
)
def test_commit_with_retention_expires_where_the_version_has_the_field(
    version: int, retention_ms: int, expires: bool
) -> None:
    """MM-55: v2 to v4, counted from now; -1 is none."""
    h = CoordinatorHarness()
    h.commit(offset_commit(ONE, retention_time_ms=retention_ms), version=version)
    (record,) = decode_records(h.log[0][0].records)
    value = decode_offset_commit_value(record.value or b"")
    assert value.expire_timestamp_ms == (EPOCH_US // 1_000 + 1_000 if expires else -1)
