"""A follower: where it fetches from, and how it handles the answers (BEHAVIOUR 6.1, KIP-595).

Each election of a leader gives the partition the next leader epoch (a number). Each batch of a log
has the epoch of the leader that appended it. The high watermark is the offset below which all
in-sync replicas (the ISR) have the records. Two logs diverge if they have different batches at an
offset; the follower then truncates its log to where the logs agree.

- A, B and C are the brokers 0, 1 and 2.
- `log_of_epochs(0, 0, 2)` returns a log with one record per number: two of leader epoch 0, then one
  of epoch 2. A record's value is its offset and its epoch, such as "2@2".
- `leader()` is broker A as leader in leader epoch 1. `follower()` is broker B that follows A. Their
  logs are empty by default.
- `replicate` sends one Fetch of the follower and applies the leader's answer.
- `fetch_position(max_bytes)` is what the follower's next Fetch asks for.
- The partition is __consumer_offsets-3, so its index is 3.

BEHAVIOUR 6.1 is a section of docs/kafka/BEHAVIOUR.md; "Source" names Kafka's methods.
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
    """Return the leader's answer to a Fetch of B, which does not change B's log."""
    # A replica epoch of -1 names no broker epoch, so the leader does not check it.
    return leading.fetch(request, replica_id=B, replica_epoch=-1, max_bytes=1000, now_us=0)


def test_fetch_position_is_the_log_end_in_the_leaders_epoch() -> None:
    """The Fetch names two epochs: the follower's leader epoch, and that of its log's last batch.

    A leader refuses a Fetch with another leader epoch than its own. From the epoch of the last
    batch it sees whether the logs diverge.
    """
    position = follower(partition_log=log_of_epochs(0, 2), leader_epoch=5).fetch_position(1000)
    assert position.fetch_offset == 2
    assert position.current_leader_epoch == 5
    assert position.last_fetched_epoch == 2
    assert position.partition_max_bytes == 1000


def test_follower_appends_the_fetched_records_and_takes_the_high_watermark() -> None:
    """The follower learns the high watermark two answers after the records.

    1. The answer to the first Fetch has the two records.
    2. The second Fetch begins at offset 2, so the follower has both records. The leader raises its
       high watermark to 2, but has read the old one for the answer before.
    3. The answer to the third Fetch has the high watermark 2.
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
    """The log stays as it is, also on OFFSET_OUT_OF_RANGE: the fetcher decides what follows.

    It tries again later, or waits for newer metadata.
    """
    following = follower(partition_log=log_of_epochs(0))
    result = following.handle_fetch_response(
        following.fetch_position(1), PartitionData(partition_index=3, error_code=error)
    )
    assert result.error is error
    assert following.log_end_offset == 1


def test_answer_to_another_leader_epoch_is_ignored() -> None:
    """While the Fetch waited, the follower got a new leader, which may lack the records."""
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


def test_answer_to_an_earlier_position_is_ignored() -> None:
    """The same answer arrives twice, and the follower must append its batches once."""
    leading = leader(partition_log=log_of_epochs(0))
    following = follower()
    request = following.fetch_position(1000)
    answer = answer_to(request, leading)
    assert following.handle_fetch_response(request, answer.data).appended_batches == 1
    assert following.handle_fetch_response(request, answer.data).ignored
    assert following.log_end_offset == 1


@pytest.mark.parametrize("leader_id", [NO_BROKER, B])
def test_answer_to_a_replica_that_no_longer_follows_is_ignored(leader_id: int) -> None:
    """While the Fetch waited, the replica became the leader (B), or lost its leader."""
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
    data = answer_to(request, leading).data
    # `crc=1` is a wrong checksum.
    broken = replace(data, records=(replace(data.records[0], crc=1),), high_watermark=1)
    result = following.handle_fetch_response(request, broken)
    assert result.error is ErrorCode.CORRUPT_MESSAGE
    assert (following.log_end_offset, following.high_watermark) == (0, 0)


# -- divergence --


# - `epochs`: those of the follower's records, at the offsets 0, 1 and 2.
# - `diverging`: the leader's answer, an epoch of its log and the offset at which it ends there.
# - `offset`: where the follower truncates to.
@pytest.mark.parametrize(
    ("epochs", "diverging", "offset"),
    [
        # Both logs have the epoch, so the logs may agree up to the lower one of its two ends.
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
    epochs: tuple[int, ...], diverging: tuple[int, int], offset: int
) -> None:
    """A follower removes what the answer shows to differ; its next Fetch compares the rest.

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
    assert values(leading.log) == ["0@0", "1@0", "2@2"]
    assert values(following.log) == ["0@0", "1@0", "2@2"]


def test_diverging_answer_does_not_move_the_high_watermark_forward() -> None:
    """The answer's high watermark, 2, is an offset of the leader's log, which still differs.

    The follower truncates offset 1, where it has epoch 0 and the leader epoch 2. Only an answer to
    a later Fetch may move its high watermark.
    Source: Kafka processFetchRequest.
    """
    log = log_of_epochs(0, 2)
    log.update_high_watermark(2)
    leading = leader(B, log, leader_epoch=3)
    following = follower(A, log_of_epochs(0, 0), leader_id=B, leader_epoch=3)
    replicate(leading, following)
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
    # At most one Fetch for each of the follower's five epochs, and one for the missing records.
    for _ in range(5 + 1):
        replicate(leading, following)
    assert values(following.log) == values(leading.log)
    check_agreement([leading.log, following.log])


def test_former_leader_without_batches_of_its_epoch_does_not_loop() -> None:
    """A follower must forget its newest epoch if it has no batch of it.

    A replica has a table of the epochs that it knows, each with the offset at which it begins.
    1. The former leader appended nothing, so epoch 5 has an entry in its table, but no batch.
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
    """A leader refuses a Fetch that names another leader epoch than its own (BEHAVIOUR 6.5).

    A newer epoch is unknown to a leader that has been replaced without knowing it (a zombie). An
    older epoch is fenced: the follower does not know yet that there was an election.
    """
    zombie = leader(A, log_of_epochs(0), leader_epoch=1)
    newer_follower = follower(B, log_of_epochs(0), leader_id=C, leader_epoch=2)
    request = newer_follower.fetch_position(1000)
    answer = answer_to(request, zombie)
    assert answer.data.error_code is ErrorCode.UNKNOWN_LEADER_EPOCH

    new_leader = leader(C, log_of_epochs(0), leader_epoch=2)
    older_follower = follower(B, log_of_epochs(0), leader_id=C, leader_epoch=1)
    assert replicate(new_leader, older_follower).error is ErrorCode.FENCED_LEADER_EPOCH
