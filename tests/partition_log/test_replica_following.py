"""A follower: where it fetches from, and how it handles the answers (BEHAVIOUR 6.1, KIP-595).

A leader epoch counts a partition's leaders. The high watermark is the offset below which all
in-sync replicas (the ISR) have the records. If the follower's log has other batches than the
leader's (they diverge), the follower truncates its log to where they agree.

- A, B and C are the brokers 0, 1 and 2.
- `log_of_epochs(0, 0, 2)` returns a log with one record per number: two of leader epoch 0, then one
  of epoch 2. A record's value is its offset and its epoch, such as "2@2".
- `leader` makes A a leader in leader epoch 1, `follower` makes B a follower of A. Both have empty
  logs unless a test gives one.
- `replicate` sends one Fetch of the follower and applies the leader's answer.
- The partition is __consumer_offsets-3, so partition indexes are 3.
- The argument of `fetch_position` is the largest number of bytes of the answer.

BEHAVIOUR 6.1 is a section of docs/kafka/BEHAVIOUR.md; "Source" names Kafka's methods.
"""

import pytest
from msgspec.structs import replace

from partition_log.fetching import truncation_offset
from partition_log.invariants import check_agreement
from protocol.effects import ACKS_ALL
from protocol.errors import ErrorCode
from protocol.ids import NO_BROKER
from protocol.messages.log import EpochEndOffset, PartitionData
from protocol.trace import TraceKind
from tests.support.builders.partition_logs import (
    PARTITION,
    REPLICAS,
    A,
    B,
    C,
    follower,
    leader,
    log_of_epochs,
    records,
    replicate,
    values,
)


def test_fetch_position_is_the_log_end_in_the_leaders_epoch() -> None:
    """The leader checks the epoch, and finds divergence by the epoch of the last fetched batch."""
    position = follower(partition_log=log_of_epochs(0, 2), leader_epoch=5).fetch_position(1000)
    assert position.fetch_offset == 2
    assert position.current_leader_epoch == 5
    assert position.last_fetched_epoch == 2
    assert position.partition_max_bytes == 1000


def test_follower_appends_the_fetched_records_and_takes_the_high_watermark() -> None:
    """The first Fetch gets the records. The second one moves the leader's high watermark.

    The leader reads the high watermark before it counts a Fetch, so only the third answer has 2.
    """
    leading = leader(replicas=(A, B), isr=(A, B))
    following = follower()
    leading.append_records(records("a", "b"), required_acks=ACKS_ALL, now_us=0)
    first = replicate(leading, following)
    assert (first.appended_batches, following.log_end_offset) == (1, 2)
    assert first.new_high_watermark is None
    assert replicate(leading, following).new_high_watermark is None

    third = replicate(leading, following)
    assert third.new_high_watermark == 2
    assert [event.kind for event in third.trace] == [TraceKind.HIGH_WATERMARK]


def test_followers_high_watermark_may_fall_to_a_new_leaders() -> None:
    """A new leader begins with the high watermark that it had as a follower.

    This may be lower than another follower's. Kafka's follower takes over the lower value, too.
    """
    log = log_of_epochs(0, 0)
    log.update_high_watermark(2)
    following = follower(partition_log=log)
    result = following.handle_fetch_response(
        following.fetch_position(1), PartitionData(partition_index=3, high_watermark=1)
    )
    assert result.new_high_watermark == following.high_watermark == 1


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_OUT_OF_RANGE,
    ],
)
def test_answer_with_an_error_changes_nothing(error: ErrorCode) -> None:
    """The fetcher then waits some time, or waits for newer metadata; the log does not change."""
    following = follower(partition_log=log_of_epochs(0))
    result = following.handle_fetch_response(
        following.fetch_position(1), PartitionData(partition_index=3, error_code=error)
    )
    assert result.error is error
    assert following.log_end_offset == 1


def test_answer_to_another_leader_epoch_is_ignored() -> None:
    """The follower got another leader while the Fetch waited; the records may be of the old one."""
    leading = leader(partition_log=log_of_epochs(0))
    following = follower()
    request = following.fetch_position(1000)
    answer = leading.fetch(request, replica_id=B, replica_epoch=-1, max_bytes=1000, now_us=0)
    # Before the answer arrives, C becomes the leader.
    following.make_follower(
        leader_id=C, leader_epoch=2, partition_epoch=2, replicas=REPLICAS, isr=REPLICAS
    )
    result = following.handle_fetch_response(request, answer.data)
    assert result.ignored
    assert following.log_end_offset == 0


def test_answer_to_an_earlier_position_is_ignored() -> None:
    """The same answer arrives twice.

    If its batches were appended twice, the log would be broken.
    """
    leading = leader(partition_log=log_of_epochs(0))
    following = follower()
    request = following.fetch_position(1000)
    answer = leading.fetch(request, replica_id=B, replica_epoch=-1, max_bytes=1000, now_us=0)
    assert following.handle_fetch_response(request, answer.data).appended_batches == 1
    assert following.handle_fetch_response(request, answer.data).ignored
    assert following.log_end_offset == 1


@pytest.mark.parametrize("leader_id", [NO_BROKER, B])
def test_answer_to_a_replica_that_no_longer_follows_is_ignored(leader_id: int) -> None:
    """While the Fetch waited, the replica became the leader (B), or lost its leader."""
    leading = leader(partition_log=log_of_epochs(0))
    following = follower()
    request = following.fetch_position(1000)
    answer = leading.fetch(request, replica_id=B, replica_epoch=-1, max_bytes=1000, now_us=0)
    if leader_id == B:
        following.make_leader(
            leader_epoch=2, partition_epoch=2, replicas=REPLICAS, isr=REPLICAS, now_us=0
        )
    else:
        following.make_follower(
            leader_id=NO_BROKER, leader_epoch=1, partition_epoch=2, replicas=REPLICAS, isr=()
        )
    assert following.handle_fetch_response(request, answer.data).ignored
    assert following.log_end_offset == 0


def test_corrupt_records_are_not_appended() -> None:
    """The follower fetches the records again, and ignores the high watermark of the answer, 1."""
    leading = leader(partition_log=log_of_epochs(0))
    following = follower()
    request = following.fetch_position(1000)
    data = leading.fetch(request, replica_id=B, replica_epoch=-1, max_bytes=1000, now_us=0).data
    # `crc=1` is a wrong checksum.
    broken = replace(data, records=(replace(data.records[0], crc=1),), high_watermark=1)
    result = following.handle_fetch_response(request, broken)
    assert result.error is ErrorCode.CORRUPT_MESSAGE
    assert (following.log_end_offset, following.high_watermark) == (0, 0)


# -- divergence --


# `epochs` are those of the follower's records. `diverging` is the leader's answer: an epoch, and
# the offset at which it ends in the leader's log. `offset` is where the follower truncates to.
@pytest.mark.parametrize(
    ("epochs", "diverging", "offset"),
    [
        ((0, 0, 1), (0, 1), 1),  # both have epoch 0, and the leader's ends earlier
        ((0, 0, 1), (0, 3), 2),  # both have epoch 0, and the follower's ends earlier
        ((0, 0, 3), (2, 2), 2),  # the follower lacks epoch 2: the end of its next lower epoch
        ((0, 0, 1), (1, 9), 3),  # the follower's log ends before the leader's epoch
        ((0, 0), (5, 1), 1),  # all epochs of the follower are older
        ((4, 4), (2, 3), 0),  # all epochs of the follower are newer
    ],
)
def test_truncation_offset_is_the_lower_end_of_the_epoch_that_both_logs_have(
    epochs: tuple[int, ...], diverging: tuple[int, int], offset: int
) -> None:
    """A follower truncates to the last offset at which both logs may still agree.

    Source: AbstractFetcherThread.getOffsetTruncationState.
    """
    epoch, end_offset = diverging
    answer = EpochEndOffset(epoch=epoch, end_offset=end_offset)
    assert truncation_offset(log_of_epochs(*epochs), answer) == offset


def test_diverging_follower_truncates_and_traces_it() -> None:
    """Records that the new leader does not have were never committed, so they may be truncated.

    Both logs have the offsets 0 and 1 of epoch 0. The follower also has 2 and 3 of epoch 0.
    """
    leading = leader(B, log_of_epochs(0, 0, 2), leader_epoch=3)
    following = follower(A, log_of_epochs(0, 0, 0, 0), leader_id=B, leader_epoch=3)
    result = replicate(leading, following)
    assert result.truncated_to == 2
    assert [(e.kind, e.leader_epoch, e.offset, e.detail) for e in result.trace] == [
        (TraceKind.LOG_TRUNCATED, 3, 2, {"from_offset": 4})
    ]
    assert result.trace[0].partition == str(PARTITION)
    replicate(leading, following)
    assert values(following.log) == values(leading.log) == ["0@0", "1@0", "2@2"]


def test_diverging_answer_does_not_move_the_high_watermark_forward() -> None:
    """Only after the truncation do the logs agree, so only the next Fetch moves it.

    Source: Kafka processFetchRequest.
    """
    log = log_of_epochs(0, 2)
    log.update_high_watermark(2)
    leading = leader(B, log, leader_epoch=3)
    following = follower(A, log_of_epochs(0, 0), leader_id=B, leader_epoch=3)
    replicate(leading, following)
    # The leader's high watermark of 2 is not taken over.
    assert (following.log_end_offset, following.high_watermark) == (1, 0)


def test_truncation_below_the_high_watermark_lowers_it() -> None:
    """After an unclean election (of a replica that was not in sync) committed records are lost.

    The trace, the run's recorded rows of events, shows the loss.
    """
    log = log_of_epochs(0, 0, 0)
    log.update_high_watermark(3)
    leading = leader(B, log_of_epochs(0), leader_epoch=3)
    following = follower(A, log, leader_id=B, leader_epoch=3)
    result = replicate(leading, following)
    assert (result.truncated_to, result.new_high_watermark) == (1, 1)
    assert [event.kind for event in result.trace] == [
        TraceKind.LOG_TRUNCATED,
        TraceKind.HIGH_WATERMARK,
    ]


def test_divergence_over_several_epochs_terminates() -> None:
    """Each Fetch compares an older epoch, until the logs agree (KIP-279)."""
    leading = leader(B, log_of_epochs(0, 0, 3, 3, 6, 6), leader_epoch=7)
    following = follower(A, log_of_epochs(0, 0, 1, 2, 2, 4, 4, 5), leader_id=B, leader_epoch=7)
    # Six Fetches are enough: the follower's log has six epochs.
    for _ in range(6):
        replicate(leading, following)
    assert values(following.log) == values(leading.log)
    check_agreement([leading.log, following.log])


def test_former_leader_without_batches_of_its_epoch_does_not_loop() -> None:
    """A follower must forget its newest epoch if it has no batch of it.

    1. The former leader has an entry for epoch 5 at its log end, and no batch of this epoch.
    2. Its first Fetch as a follower names epoch 5. The new leader does not know this epoch, so its
       answer says that the logs diverge.
    3. The follower has no batch to truncate, but must remove the entry. Otherwise each later Fetch
       would get the same answer.
    4. The second Fetch names epoch 0, and its answer has the record of epoch 4.
    """
    resigned = leader(A, log_of_epochs(0, 0), leader_epoch=5)
    leading = leader(B, log_of_epochs(0, 0, 4), leader_epoch=6)
    resigned.make_follower(
        leader_id=B, leader_epoch=6, partition_epoch=2, replicas=REPLICAS, isr=REPLICAS
    )
    assert replicate(leading, resigned).truncated_to is None
    assert replicate(leading, resigned).appended_batches == 1
    assert values(resigned.log) == values(leading.log)


def test_leader_and_follower_of_different_leader_epochs_do_not_replicate() -> None:
    """A replaced leader (a zombie) must see no progress of a follower that has a newer leader.

    A follower that does not know its leader's new epoch yet is refused, too (BEHAVIOUR 6.5).
    """
    zombie = leader(A, log_of_epochs(0), leader_epoch=1)
    newer_follower = follower(B, log_of_epochs(0), leader_id=C, leader_epoch=2)
    request = newer_follower.fetch_position(1000)
    answer = zombie.fetch(request, replica_id=B, replica_epoch=-1, max_bytes=1000, now_us=0)
    assert answer.data.error_code is ErrorCode.UNKNOWN_LEADER_EPOCH

    new_leader = leader(C, log_of_epochs(0), leader_epoch=2)
    older_follower = follower(B, log_of_epochs(0), leader_id=C, leader_epoch=1)
    assert replicate(new_leader, older_follower).error is ErrorCode.FENCED_LEADER_EPOCH
