"""OffsetCommit: member ids, metadata, and append errors.

The file scenarios/offset_commit.txt has the answers to commits in each state of a group. The tests
here are about the other rules.

`h` is a CoordinatorHarness: a coordinator with a log and a clock, but without a network. The
coordinator coordinates all groups, because it owns the only partition of `__consumer_offsets`.

    h = CoordinatorHarness()
    h.commit(offset_commit({("foo", 0): 5}))  # commit offset 5 of foo-0: [ErrorCode.NONE]
    h.offset("foo", 0)                        # the committed offset: 5, or -1 if there is none

    h.holds_appends = True                    # the log does not answer an append any more ...
    request_id = h.submit(offset_commit(...))
    h.complete(error)                         # ... until the test does, here with an error
    h.response(request_id)

A commit "without generation" has generation -1: its sender is not a member of the group.

Kafka's behaviour is in docs/kafka/BEHAVIOUR.md 2.6 and 4.10. That page also lists the cases of
Kafka's own tests. A line such as "GC-114: ..." says which case a test repeats.
"""

import msgspec
import pytest

from protocol.config import BrokerConfig
from protocol.errors import ErrorCode
from protocol.messages.offset import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from protocol.records.batch import decode_records
from protocol.records.offsets import decode_offset_commit_value
from protocol.trace import TraceKind
from tests.support.builders.requests import offset_commit
from tests.support.harness.coordinator_harness import EPOCH_US, CoordinatorHarness, commit_errors

FOO_0_AT_5 = {("foo", 0): 5}
"""The offsets of a commit: offset 5 of partition foo-0."""


def test_commit_without_topics_is_answered_by_any_coordinator() -> None:
    """A commit without topics is accepted even by a broker that does not coordinate the group.

    With `owned=()` this coordinator coordinates no group. It would refuse a commit with topics.
    """
    h = CoordinatorHarness(owned=())
    request_id = h.submit(offset_commit({}))
    assert h.response(request_id) == OffsetCommitResponse()


def test_commit_with_a_topic_that_names_no_partition_stores_the_others() -> None:
    """The topic without partitions is skipped."""
    h = CoordinatorHarness()
    without_partitions = OffsetCommitRequestTopic(name="bar", partitions=())
    body = offset_commit(FOO_0_AT_5)
    body = msgspec.structs.replace(body, topics=(without_partitions, *body.topics))
    assert h.commit(body) == [ErrorCode.NONE]
    assert h.offset("foo", 0) == 5


@pytest.mark.parametrize(("member_id", "instance"), [("", "i"), ("unknown", None)])
def test_commit_without_generation_to_an_empty_group_ignores_ids(
    member_id: str, instance: str | None
) -> None:
    """Admin tools and simple consumers commit without a generation. No id is checked then.

    GC-114: commit without generation to an Empty group: ids are not looked at
    """
    h = CoordinatorHarness()
    for _ in range(2):
        body = offset_commit(FOO_0_AT_5, member_id, instance=instance)
        assert h.commit(body) == [ErrorCode.NONE]


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
    """The client gets an error that it understands, which is not always the error of the log.

    No offset is stored. The offset was pending while its append was in flight, and is not pending
    any more.
    """
    h = CoordinatorHarness()
    h.holds_appends = True
    request_id = h.submit(offset_commit(FOO_0_AT_5))
    h.complete(error)
    assert commit_errors(h.response(request_id)) == [answer]
    # `has_offsets` would be True for a pending offset, too.
    assert not h.group().offsets.has_offsets
    assert h.events(TraceKind.COMMIT_STORED) == []


def metadata_harness() -> CoordinatorHarness:
    """Return a harness with a limit of four characters of metadata.

    Kafka counts characters, although its setting is called offset.metadata.max.bytes.
    """
    return CoordinatorHarness(config=BrokerConfig(offset_metadata_max_bytes=4))


def commit_with(*entries: tuple[int, str]) -> OffsetCommitRequest:
    """Return a commit of topic foo. An entry is a partition and its metadata, such as (0, "x")."""
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
    """The limit is four characters; "large" has five. The offset of the other partition is stored.

    MM-43: one of two with metadata too large
    """
    h = metadata_harness()
    assert h.commit(commit_with((0, "fits"), (1, "large"))) == [
        ErrorCode.NONE,
        ErrorCode.OFFSET_METADATA_TOO_LARGE,
    ]
    assert h.offset("foo", 0) == 1
    assert h.offset("foo", 1) == -1


def test_commit_with_only_too_large_metadata_is_answered_without_an_append() -> None:
    """The group is created although no offset is stored.

    MM-44: metadata too large only
    """
    h = metadata_harness()
    assert h.commit(commit_with((0, "large"))) == [ErrorCode.OFFSET_METADATA_TOO_LARGE]
    assert h.log == {}
    assert not h.group().offsets.has_offsets


def test_commit_keeps_its_too_large_error_when_the_append_fails() -> None:
    """A partition with too large metadata is not part of the append, so it keeps its error."""
    h = metadata_harness()
    h.holds_appends = True
    request_id = h.submit(commit_with((0, "large"), (1, "fits")))
    h.complete(ErrorCode.REQUEST_TIMED_OUT)
    assert commit_errors(h.response(request_id)) == [
        ErrorCode.OFFSET_METADATA_TOO_LARGE,
        ErrorCode.REQUEST_TIMED_OUT,
    ]


def test_metadata_is_measured_as_java_measures_strings() -> None:
    """Java counts UTF-16 code units: an emoji counts as two, an umlaut as one. The limit is 4."""
    h = metadata_harness()
    assert h.commit(commit_with((0, "äöüß"), (1, "😀😀"), (2, "😀😀x"))) == [
        ErrorCode.NONE,
        ErrorCode.NONE,
        ErrorCode.OFFSET_METADATA_TOO_LARGE,
    ]


def test_commit_with_a_partition_twice_stores_the_last_and_answers_once() -> None:
    """Kafka puts the partitions into a map, so the second entry replaces the first.

    `commit-duplicates`, a recorded conversation with a real Kafka, shows this.
    """
    h = metadata_harness()
    assert h.commit(commit_with((0, "1st"), (0, "2nd"))) == [ErrorCode.NONE]
    assert h.fetched("foo", 0).metadata == "2nd"


@pytest.mark.parametrize(
    ("version", "retention_ms", "is_stored"),
    [(2, 1_000, True), (4, 1_000, True), (4, -1, False), (5, 1_000, False)],
)
def test_commit_with_retention_expires_where_the_version_has_the_field(
    version: int, retention_ms: int, is_stored: bool
) -> None:
    """A commit can say for how long its offset is kept, in the field `retention_time_ms`.

    Only versions 2 to 4 of OffsetCommit have this field. The value -1 means that the commit sets no
    time. The stored record has the time at which the offset expires, or -1.

    MM-55: commit with retention, current version: expiry is loaded
    """
    h = CoordinatorHarness()
    h.commit(offset_commit(FOO_0_AT_5, retention_time_ms=retention_ms), version=version)
    (record,) = decode_records(h.log[0][0].records)  # the first batch of partition 0
    value = decode_offset_commit_value(record.value or b"")
    committed_ms = EPOCH_US // 1_000  # the clock of the harness stands at `EPOCH_US`
    expires_ms = committed_ms + 1_000
    assert value.expire_timestamp_ms == (expires_ms if is_stored else -1)
