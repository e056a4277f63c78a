"""A follower: the position of its Fetches, and its use of the answers (BEHAVIOUR 6.1, KIP-595).

After an election a follower may have records that the new leader does not have. Then the two logs
diverge, and the follower truncates its log to the offset up to which the logs agree. The follower
finds this offset with the leader epochs of the batches.

A, B and C are the brokers 0, 1 and 2. `leader()` is broker A as the leader in leader epoch 1, and
`follower()` is broker B, which follows A. By default their logs are empty. `log_of_epochs(0, 0, 2)`
is a log of three records: two of leader epoch 0, and one of epoch 2. Their values are "0@0", "1@0"
and "2@2", the offset and the epoch. `replicate` sends one Fetch of the follower and applies the
leader's answer. `fetch_position(max_bytes)` is the partition's part of the follower's next Fetch.

BEHAVIOUR 6.1 is a section of docs/kafka/BEHAVIOUR.md. "Source" names Kafka's methods.
"""

import pytest
from msgspec.structs import replace

from partition_log.fetching import truncation_offset
from partition_log.invariants import check_agreement
from partition_log.outcomes import FetchResult
from partition_log.replica import Partition
from protocol.effects import ACKS_ALL
from protocol.errors import ErrorCode
from protocol.ids import NO_BROKER
from protocol.messages.log import EpochEndOffset, FetchPartition, PartitionData
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


def answer_to(request: FetchPartition, leading: Partition) -> FetchResult:
    """Return the leader's answer to a Fetch of B, without applying it to B's log."""
    # A replica epoch of -1 names no broker epoch, so the leader does not check it.
    return leading.fetch(request, replica_id=B, replica_epoch=-1, max_bytes=1000, now_us=0)


def test_fetch_position_is_the_log_end_in_the_leaders_epoch() -> None:
    """A Fetch has two epochs: the present leader epoch, and the epoch of the follower's last batch.

    From the present leader epoch the leader sees whether the follower knows the present leader.
    From the epoch of the last batch the leader sees whether the logs diverge.
    """
    position = follower(partition_log=log_of_epochs(0, 2), leader_epoch=5).fetch_position(1000)
    assert position.fetch_offset == 2
    assert position.current_leader_epoch == 5
    assert position.last_fetched_epoch == 2
    assert position.partition_max_bytes == 1000


def test_follower_appends_the_fetched_records_and_takes_the_high_watermark() -> None:
    """The follower learns the high watermark two answers after the records.

    1. The answer to the first Fetch has the two records.
    2. The second Fetch begins at offset 2, which shows that the follower has both records. The
       leader raises its high watermark to 2. But the answer still has the high watermark from
       before the Fetch, 0.
    3. The answer to the third Fetch has the high watermark 2.
    """
    leading = leader(replicas=(A, B), isr=(A, B))
    following = follower()
    leading.append_records(records("a", "b"), required_acks=ACKS_ALL, now_us=0)
    first_outcome = replicate(leading, following)
    assert (first_outcome.appended_batches, following.log_end_offset) == (1, 2)
    assert first_outcome.new_high_watermark is None

    second_outcome = replicate(leading, following)
    assert second_outcome.new_high_watermark is None

    third_outcome = replicate(leading, following)
    assert third_outcome.new_high_watermark == 2
    assert [event.kind for event in third_outcome.trace] == [TraceKind.HIGH_WATERMARK]


def test_high_watermark_of_a_follower_may_fall_to_that_of_a_new_leader() -> None:
    """A new leader begins with the high watermark that it had as a follower.

    Another follower may have a higher high watermark. As in Kafka, this follower takes over the
    lower value of the new leader.
    """
    log = log_of_epochs(0, 0)
    log.update_high_watermark(2)
    following = follower(partition_log=log)
    result = following.handle_fetch_response(
        following.fetch_position(1),
        PartitionData(partition_index=PARTITION.partition, high_watermark=1),
    )
    assert result.new_high_watermark == 1
    assert following.high_watermark == 1


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
    """After an error, the broker's fetch loop tries again later, or waits for metadata.

    So the replica itself changes nothing, even after OFFSET_OUT_OF_RANGE.
    """
    following = follower(partition_log=log_of_epochs(0))
    result = following.handle_fetch_response(
        following.fetch_position(1),
        PartitionData(partition_index=PARTITION.partition, error_code=error),
    )
    assert result.error is error
    assert following.log_end_offset == 1


def test_answer_to_another_leader_epoch_is_ignored() -> None:
    """The follower has a new leader now, which may lack the records of the answer."""
    leading = leader(partition_log=log_of_epochs(0))
    following = follower()
    request = following.fetch_position(1000)
    answer = answer_to(request, leading)
    # Before the answer arrives, C becomes the leader.
    following.make_follower(
        leader_id=C, leader_epoch=2, partition_epoch=2, replicas=REPLICAS, isr=REPLICAS
    )
    result = following.handle_fetch_response(request, answer.data)
    assert result.ignored
    assert following.log_end_offset == 0


def test_answer_that_arrives_twice_is_applied_once() -> None:
    """When the answer comes again, the log no longer ends where the answer's records begin."""
    leading = leader(partition_log=log_of_epochs(0))
    following = follower()
    request = following.fetch_position(1000)
    answer = answer_to(request, leading)
    assert following.handle_fetch_response(request, answer.data).appended_batches == 1
    assert following.handle_fetch_response(request, answer.data).ignored
    assert following.log_end_offset == 1


@pytest.mark.parametrize("leader_id", [NO_BROKER, B])
def test_answer_to_a_replica_that_no_longer_follows_is_ignored(leader_id: int) -> None:
    """While the Fetch waited, the replica became the leader itself, or lost its leader."""
    leading = leader(partition_log=log_of_epochs(0))
    following = follower()
    request = following.fetch_position(1000)
    answer = answer_to(request, leading)
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
    sound_answer = answer_to(request, leading).data
    corrupt_batch = replace(sound_answer.records[0], crc=1)  # 1 is not the checksum of the batch
    corrupt_answer = replace(sound_answer, records=(corrupt_batch,), high_watermark=1)
    result = following.handle_fetch_response(request, corrupt_answer)
    assert result.error is ErrorCode.CORRUPT_MESSAGE
    assert (following.log_end_offset, following.high_watermark) == (0, 0)


# -- divergence --


@pytest.mark.parametrize(
    ("epochs", "diverging", "truncate_to"),
    [
        # Both logs have the epoch, but the epoch may end at different offsets in the two logs. The
        # logs may agree up to the lower offset.
        ((0, 0, 1), (0, 1), 1),  # epoch 0 ends at 1 in the leader's log, at 2 in the follower's
        ((0, 0, 1), (0, 3), 2),  # epoch 0 ends at 3 in the leader's log, at 2 in the follower's
        ((0, 0, 1), (1, 9), 3),  # epoch 1 ends at 9 in the leader's log, at 3 in the follower's
        # The follower lacks epoch 2, and keeps its log up to the end of its next lower epoch, 0.
        ((0, 0, 3), (2, 2), 2),
        # The follower has only older epochs, and keeps its log up to the end that the leader gave.
        ((0, 0), (5, 1), 1),
        # The follower has only newer epochs, so it removes everything.
        ((4, 4), (2, 3), 0),
    ],
)
def test_truncation_offset_is_the_last_one_at_which_the_logs_may_agree(
    epochs: tuple[int, ...], diverging: tuple[int, int], truncate_to: int
) -> None:
    """A follower removes what the answer shows to differ. Its next Fetch compares the rest.

    `epochs` are the leader epochs of the follower's records, from offset 0 on. `diverging` is the
    leader's answer. For example, (0, 1) says that epoch 0 ends at offset 1 in the leader's log.
    Source: AbstractFetcherThread.getOffsetTruncationState.
    """
    epoch, end_offset = diverging
    answer = EpochEndOffset(epoch=epoch, end_offset=end_offset)
    assert truncation_offset(log_of_epochs(*epochs), answer) == truncate_to


def test_diverging_follower_truncates_and_traces_it() -> None:
    """The follower truncates the records that the new leader does not have.

    Such records were never committed. Here both logs have the offsets 0 and 1 of epoch 0. The
    follower also has 2 and 3 of epoch 0, and truncates them.
    """
    leading = leader(B, log_of_epochs(0, 0, 2), leader_epoch=3)
    following = follower(A, log_of_epochs(0, 0, 0, 0), leader_id=B, leader_epoch=3)
    result = replicate(leading, following)
    assert result.truncated_to == 2
    (event,) = result.trace
    assert (event.kind, event.partition) == (TraceKind.LOG_TRUNCATED, str(PARTITION))
    assert (event.leader_epoch, event.offset, event.detail) == (3, 2, {"from_offset": 4})
    replicate(leading, following)
    assert values(leading.log) == ["0@0", "1@0", "2@2"]
    assert values(following.log) == ["0@0", "1@0", "2@2"]


def test_diverging_answer_does_not_move_the_high_watermark_forward() -> None:
    """In a diverging answer, the high watermark is about records that the follower lacks.

    Here the answer has the high watermark 2. But the follower's record at offset 1 differs from the
    leader's record, and is truncated. Only the answer to a later Fetch may move the follower's high
    watermark.
    Source: Kafka processFetchRequest.
    """
    log = log_of_epochs(0, 2)
    log.update_high_watermark(2)
    leading = leader(B, log, leader_epoch=3)
    following = follower(A, log_of_epochs(0, 0), leader_id=B, leader_epoch=3)
    replicate(leading, following)
    assert (following.log_end_offset, following.high_watermark) == (1, 0)


def test_truncation_below_the_high_watermark_lowers_it() -> None:
    """After an unclean election the new leader may lack committed records.

    Then these records are lost, and the trace events show the loss.
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
    # At most one Fetch for each of the follower's epochs 0, 1, 2, 4 and 5, and a last Fetch for the
    # missing records.
    for _ in range(5 + 1):
        replicate(leading, following)
    assert values(following.log) == values(leading.log)
    check_agreement([leading.log, following.log])


def test_former_leader_without_batches_of_its_epoch_does_not_loop() -> None:
    """A follower must forget its newest epoch if it has no batch of this epoch.

    1. A leads in epoch 5. Its table of epochs has an entry for epoch 5, but A appends nothing.
    2. A becomes a follower of B. Its first Fetch names epoch 5 as its newest epoch. B does not know
       this epoch, so the answer says that the logs diverge.
    3. A has no batch to truncate, but must remove the entry of epoch 5. Otherwise each later Fetch
       would get the same answer.
    4. The second Fetch of A names epoch 0, and its answer has the record of epoch 4.
    """
    former_leader = leader(A, log_of_epochs(0, 0), leader_epoch=5)
    leading = leader(B, log_of_epochs(0, 0, 4), leader_epoch=6)
    former_leader.make_follower(
        leader_id=B, leader_epoch=6, partition_epoch=2, replicas=REPLICAS, isr=REPLICAS
    )
    assert replicate(leading, former_leader).truncated_to is None
    assert replicate(leading, former_leader).appended_batches == 1
    assert values(former_leader.log) == values(leading.log)


def test_leader_and_follower_of_different_leader_epochs_do_not_replicate() -> None:
    """A leader refuses a Fetch with another leader epoch than its own (BEHAVIOUR 6.5).

    A leader that gets a Fetch with a newer epoch does not know yet that it was replaced. Such a
    leader is called a zombie. A follower with an older epoch does not know yet that there was an
    election.
    """
    zombie = leader(A, log_of_epochs(0), leader_epoch=1)
    newer_follower = follower(B, log_of_epochs(0), leader_id=C, leader_epoch=2)
    request = newer_follower.fetch_position(1000)
    answer = answer_to(request, zombie)
    assert answer.data.error_code is ErrorCode.UNKNOWN_LEADER_EPOCH

    new_leader = leader(C, log_of_epochs(0), leader_epoch=2)
    older_follower = follower(B, log_of_epochs(0), leader_id=C, leader_epoch=1)
    assert replicate(new_leader, older_follower).error is ErrorCode.FENCED_LEADER_EPOCH
