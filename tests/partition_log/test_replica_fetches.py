"""Fetches from a leader: fencing, limits, and diverging logs.

A Fetch of a follower from offset 3 says that the follower has the records below 3. Its field
`last_fetched_epoch` is the leader epoch of the last of these records. From this epoch the leader
sees whether the two logs are equal below 3. If they have different batches at an offset, the logs
diverge.

A, B and C are the brokers 0, 1 and 2, with the broker epochs 100, 101 and 102. `leader()` is A as
the leader in leader epoch 1, with the ISR {A, B, C} and min.insync.replicas 2. `fetch_as(leading,
B, offset=1)` is a Fetch of B, whose log ends at offset 1. `log_of_epochs(0, 0, 2)` is a log of
three records: two of leader epoch 0, and one of epoch 2.

The tests mirror Kafka's PartitionTest. BEHAVIOUR 6.1 is a section of docs/kafka/BEHAVIOUR.md.
"""

import pytest

from protocol.effects import ACKS_ALL
from protocol.errors import ErrorCode
from protocol.ids import BrokerEpoch
from protocol.messages.log import EpochEndOffset
from tests.support.builders.partition_logs import (
    EVERYBODY,
    LAG_MAX_US,
    A,
    B,
    C,
    fetch_as,
    fetch_request,
    leader,
    log_of_epochs,
    records,
)

CONSUMER = -1
"""The replica id in a consumer's Fetch."""
UNKNOWN_LOG_END = -1
"""The leader's value for the log end of a follower, until it accepts a Fetch of the follower."""


@pytest.mark.parametrize(
    ("epoch", "error"),
    [
        (3, ErrorCode.FENCED_LEADER_EPOCH),
        (5, ErrorCode.UNKNOWN_LEADER_EPOCH),
        (4, ErrorCode.NONE),
        (-1, ErrorCode.NONE),
    ],
)
@pytest.mark.parametrize("fetcher", [CONSUMER, B])
def test_fetch_in_another_leader_epoch_is_fenced(
    fetcher: int, epoch: int, error: ErrorCode
) -> None:
    """The leader refuses older and newer epochs, but accepts -1, which means no epoch.

    This is Kafka's rule (BEHAVIOUR 6.1).

    Source: PartitionTest.testReadRecordEpochValidationForLeader.
    """
    leading = leader(leader_epoch=4)
    assert fetch_as(leading, fetcher, offset=0, leader_epoch=epoch).data.error_code is error


def test_refused_fetch_tells_the_leader_nothing_about_the_followers_log() -> None:
    """A follower of a newer leader must not move the high watermark of an older leader."""
    leading = leader(leader_epoch=4)
    leading.append_records(records("a"), required_acks=ACKS_ALL, now_us=0)
    fetch_as(leading, B, offset=1, leader_epoch=5)
    assert leading.follower_log_end_offset(B) == UNKNOWN_LOG_END


def test_fetch_of_a_follower_reads_to_the_log_end() -> None:
    """A follower also gets the records above the high watermark, because it must copy them, too.

    Here no other follower has fetched, so the answer still has the high watermark 0.
    """
    leading = leader(partition_log=log_of_epochs(0, 0))
    answer = fetch_as(leading, B, offset=0).data
    assert [batch.base_offset for batch in answer.records] == [0, 1]
    assert (answer.high_watermark, answer.leader_epoch, answer.leader_id) == (0, 1, A)


def test_fetch_of_a_consumer_reads_to_the_high_watermark() -> None:
    """Records above the high watermark may still be truncated, so no consumer may see them."""
    log = log_of_epochs(0, 0, 0)
    log.update_high_watermark(2)
    leading = leader(partition_log=log)
    answer = fetch_as(leading, CONSUMER, offset=0).data
    assert [batch.base_offset for batch in answer.records] == [0, 1]
    above_high_watermark = fetch_as(leading, CONSUMER, offset=3).data
    assert (above_high_watermark.error_code, above_high_watermark.records) == (ErrorCode.NONE, ())


@pytest.mark.parametrize("fetcher", [CONSUMER, B])
@pytest.mark.parametrize("offset", [-1, 3])
def test_fetch_outside_the_log_is_offset_out_of_range(fetcher: int, offset: int) -> None:
    """The log begins at 0 and ends at 2. So the offsets -1 and 3 are outside of the log.

    After the error a consumer resets its position, and a follower waits.
    """
    leading = leader(partition_log=log_of_epochs(0, 0))
    result = fetch_as(leading, fetcher, offset=offset)
    assert result.data.error_code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert result.data.records == ()


def test_fetch_is_limited_by_the_partition_and_by_the_rest_of_the_request() -> None:
    """The smaller limit of the two decides about the number of records."""
    leading = leader(partition_log=log_of_epochs(0, 0, 0))
    size = leading.log.storage.batch(0).size_in_bytes
    limited_by_partition = leading.fetch(
        fetch_request(0, partition_max_bytes=2 * size),
        replica_id=B,
        replica_epoch=-1,  # no broker epoch, so the leader does not check it
        max_bytes=3 * size,
        now_us=0,
    )
    assert limited_by_partition.size_in_bytes == 2 * size
    assert fetch_as(leading, B, offset=0, max_bytes=2 * size).size_in_bytes == 2 * size

    # A request gets at least one batch, even above its limit. `min_one_batch` is False if another
    # partition of the request has returned a batch already.
    limited_by_request = leading.fetch(
        fetch_request(0),
        replica_id=B,
        replica_epoch=-1,
        max_bytes=size - 1,
        min_one_batch=False,
        now_us=0,
    )
    assert limited_by_request.data.records == ()


def test_fetch_of_a_broker_without_a_replica_is_refused() -> None:
    """The leader assumes that the broker has newer metadata, in which it has a replica.

    So the answer is UNKNOWN_LEADER_EPOCH (Kafka: followerReplicaOrThrow).
    """
    leading = leader(replicas=(A, B), isr=(A, B))
    assert fetch_as(leading, C, offset=0).data.error_code is ErrorCode.UNKNOWN_LEADER_EPOCH
    # A request without a leader epoch gets another error.
    without_epoch = fetch_as(leading, C, offset=0, leader_epoch=-1).data
    assert without_epoch.error_code is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_fetch_from_before_the_followers_restart_is_refused() -> None:
    """The follower may have lost its log since it sent this Fetch.

    B has registered again, with broker epoch 500. The Fetch has the earlier epoch, 101.
    Kafka: testFetchFromFollowerWithStaleBrokerEpoch.
    """
    leading = leader(partition_log=log_of_epochs(0))
    leading.update_eligible_brokers({**EVERYBODY, B: BrokerEpoch(500)})
    stale = fetch_as(leading, B, offset=1, last_fetched_epoch=0, replica_epoch=101)
    assert stale.data.error_code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert leading.follower_log_end_offset(B) == UNKNOWN_LOG_END


def test_fetch_with_a_prefix_of_the_leaders_log_does_not_diverge() -> None:
    """A follower whose log is the beginning of the leader's log needs no truncation.

    The follower's only batch, at offset 0, has epoch 0, like the leader's batch at offset 0.
    """
    leading = leader(partition_log=log_of_epochs(0, 0, 2), leader_epoch=3)
    answer = fetch_as(leading, B, offset=1, leader_epoch=3, last_fetched_epoch=0).data
    assert answer.diverging_epoch is None
    assert [batch.base_offset for batch in answer.records] == [1, 2]


@pytest.mark.parametrize(
    ("offset", "last_epoch", "diverging"),
    [
        # The follower has three records of epoch 0. In the leader's log, epoch 0 ends at 2.
        (3, 0, EpochEndOffset(epoch=0, end_offset=2)),
        # Only the follower has epoch 1. The answer is about the leader's next lower epoch, 0.
        (3, 1, EpochEndOffset(epoch=0, end_offset=2)),
        # The follower has two records of epoch 2. In the leader's log, epoch 2 ends at 3.
        (4, 2, EpochEndOffset(epoch=2, end_offset=3)),
    ],
)
def test_fetch_that_diverges_is_answered_with_the_end_of_the_epoch(
    offset: int, last_epoch: int, diverging: EpochEndOffset
) -> None:
    """The follower must truncate its log before it gets records.

    The leader has epoch 0 at the offsets 0 and 1, and epoch 2 at the offset 2.
    Kafka: testReadRecord with a diverging lastFetchedEpoch.
    """
    leading = leader(partition_log=log_of_epochs(0, 0, 2), leader_epoch=3)
    answer = fetch_as(leading, B, offset=offset, leader_epoch=3, last_fetched_epoch=last_epoch).data
    assert answer.error_code is ErrorCode.NONE
    assert answer.diverging_epoch == diverging
    assert answer.records == ()
    assert leading.follower_log_end_offset(B) == UNKNOWN_LOG_END


def test_fetch_with_an_epoch_above_those_of_the_leader_is_out_of_range() -> None:
    """The leader does not know where a higher epoch ends. Kafka answers with the same error."""
    leading = leader(partition_log=log_of_epochs(0), leader_epoch=3)
    answer = fetch_as(leading, B, offset=1, leader_epoch=3, last_fetched_epoch=4).data
    assert answer.error_code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_fetch_that_moves_the_high_watermark_is_answered_with_the_former_one() -> None:
    """The answer has the high watermark from before the Fetch, as in Kafka.

    The follower gets the moved high watermark with its next Fetch.
    """
    leading = leader(replicas=(A, B), isr=(A, B), partition_log=log_of_epochs(0))
    result = fetch_as(leading, B, offset=1, last_fetched_epoch=0)
    assert (result.data.high_watermark, result.new_high_watermark) == (0, 1)
    assert fetch_as(leading, B, offset=1, last_fetched_epoch=0).data.high_watermark == 1


def test_second_read_of_a_waiting_fetch_says_nothing_about_the_follower() -> None:
    """A Fetch for which there are no records waits at the broker, which later reads again.

    The follower may have died meanwhile. So only the first read notes the follower's progress. The
    second read has `update_fetch_state=False`.
    """
    leading = leader(partition_log=log_of_epochs(0))
    result = leading.fetch(
        fetch_request(1, last_fetched_epoch=0),
        replica_id=B,
        replica_epoch=101,
        max_bytes=1,
        now_us=0,
        update_fetch_state=False,
    )
    assert result.data.error_code is ErrorCode.NONE
    assert leading.follower_log_end_offset(B) == UNKNOWN_LOG_END


def test_repeated_fetch_from_the_log_end_keeps_the_follower_caught_up() -> None:
    """Most Fetches find no new record, so the leader handles such Fetches in a shorter way.

    The only effect of such a Fetch is that the follower counts as caught up, and so stays in the
    ISR.
    """
    leading = leader(partition_log=log_of_epochs(0))
    fetch_as(leading, B, offset=1, last_fetched_epoch=0, now_us=0)
    repeated = fetch_as(leading, B, offset=1, last_fetched_epoch=0, now_us=LAG_MAX_US)
    assert repeated.data.records == ()
    assert (repeated.new_high_watermark, repeated.proposal) == (None, None)
    # Now B lacks a record, so the time of B's last Fetch decides. At the check below, the last
    # Fetch of B was LAG_MAX_US (replica.lag.time.max.ms) ago, which is just allowed. C has never
    # fetched.
    leading.append_records(records("a"), required_acks=1, now_us=LAG_MAX_US)
    proposal = leading.maybe_shrink_isr(2 * LAG_MAX_US)
    assert proposal is not None
    assert proposal.removed == (C,)


def test_repeated_fetch_from_the_log_end_returns_new_watermarks_and_leader_epochs() -> None:
    """The leader repeats its last answer only as long as this answer is still true."""
    leading = leader(partition_log=log_of_epochs(0))
    # The first Fetches of B and C move the high watermark from 0 to 1. Their answers still have 0,
    # and only the next answers have 1.
    high_watermarks = [
        fetch_as(leading, broker, offset=1, last_fetched_epoch=0).data.high_watermark
        for broker in (B, C, B, C)
    ]
    assert high_watermarks == [0, 0, 1, 1]
    # A is elected again, in leader epoch 2.
    leading.make_leader(
        leader_epoch=2, partition_epoch=9, replicas=(A, B, C), isr=(A, B, C), now_us=0
    )
    answer = fetch_as(leading, B, offset=1, leader_epoch=2, last_fetched_epoch=0).data
    assert (answer.leader_epoch, answer.error_code) == (2, ErrorCode.NONE)


def test_repeated_fetch_from_before_the_followers_restart_is_refused() -> None:
    """B has registered again, with broker epoch 500. The second Fetch has B's former epoch, 101."""
    leading = leader(partition_log=log_of_epochs(0))
    fetch_as(leading, B, offset=1, last_fetched_epoch=0)
    leading.update_eligible_brokers({**EVERYBODY, B: BrokerEpoch(500)})
    stale = fetch_as(leading, B, offset=1, last_fetched_epoch=0)
    assert stale.data.error_code is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_fetch_from_an_empty_log_is_answered_without_records() -> None:
    """The follower's log is empty, too, so there is nothing that could diverge."""
    leading = leader(leader_epoch=1)
    for _ in range(2):  # a repeated Fetch gets the same answer
        answer = fetch_as(leading, B, offset=0).data
        assert (answer.error_code, answer.records) == (ErrorCode.NONE, ())
