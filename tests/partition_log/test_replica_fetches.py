"""Fetches from a leader: fencing, limits, and diverging logs. Mirrors Kafka's PartitionTest.

A leader epoch counts a partition's leaders; a request with another epoch is fenced, that is,
refused. Two logs diverge where they have batches of different epochs at one offset. The high
watermark is the offset below which all in-sync replicas (the ISR) have the records.

- A, B and C are the brokers 0, 1 and 2. EVERYBODY has their registrations, with the broker epochs
  100, 101 and 102.
- `leader` makes A the leader in leader epoch 1, with the ISR {A, B, C} and min.insync.replicas 2.
- `fetch_as(leading, B, offset=1)` fetches as broker B, whose log ends at offset 1;
  `last_fetched_epoch` is the leader epoch of B's last batch.
- `log_of_epochs(0, 0, 2)` returns a log with one record per number: two of leader epoch 0, then one
  of epoch 2.
- LAG_MAX_US is replica.lag.time.max.ms, 30 s.

BEHAVIOUR 6.1 is a section of docs/kafka/BEHAVIOUR.md, which quotes Kafka's rules.
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
"""Replica id in a consumer's Fetch."""
NO_PROGRESS = -1
"""The log end offset that the leader has of a follower before its first accepted Fetch."""


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
    """The leader refuses older and newer epochs. -1 means no epoch and is accepted (BEHAVIOUR 6.1).

    Source: PartitionTest.testReadRecordEpochValidationForLeader.
    """
    leading = leader(leader_epoch=4)
    assert fetch_as(leading, fetcher, offset=0, leader_epoch=epoch).data.error_code is error


def test_fetch_that_is_refused_does_not_count_as_progress() -> None:
    """A follower of a newer leader must not move the high watermark of an earlier leader."""
    leading = leader(leader_epoch=4)
    leading.append_records(records("a"), required_acks=ACKS_ALL, now_us=0)
    fetch_as(leading, B, offset=1, leader_epoch=5)
    assert leading.follower_log_end_offset(B) == NO_PROGRESS


def test_fetch_of_a_follower_reads_to_the_log_end() -> None:
    """A follower gets records above the high watermark, because its Fetches must advance it.

    No other follower has fetched, so the answer still has the high watermark 0.
    """
    leading = leader(partition_log=log_of_epochs(0, 0))
    answer = fetch_as(leading, B, offset=0).data
    assert [batch.base_offset for batch in answer.records] == [0, 1]
    assert (answer.high_watermark, answer.leader_epoch, answer.leader_id) == (0, 1, A)


def test_fetch_of_a_consumer_reads_to_the_high_watermark() -> None:
    """A consumer gets no record above the high watermark, because it may still be truncated."""
    log = log_of_epochs(0, 0, 0)
    log.update_high_watermark(2)
    leading = leader(partition_log=log)
    assert [b.base_offset for b in fetch_as(leading, CONSUMER, offset=0).data.records] == [0, 1]
    above = fetch_as(leading, CONSUMER, offset=3).data
    assert (above.error_code, above.records) == (ErrorCode.NONE, ())


@pytest.mark.parametrize("fetcher", [CONSUMER, B])
@pytest.mark.parametrize("offset", [-1, 3])
def test_fetch_outside_the_log_is_offset_out_of_range(fetcher: int, offset: int) -> None:
    """The log ends at 2. A consumer then resets its position, and a follower waits."""
    leading = leader(partition_log=log_of_epochs(0, 0))
    result = fetch_as(leading, fetcher, offset=offset)
    assert result.data.error_code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert result.data.records == ()


def test_fetch_is_limited_by_the_partition_and_by_the_rest_of_the_request() -> None:
    """The smaller of the two limits decides.

    `min_one_batch` is False once another partition of the request has returned a batch.
    """
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

    limited_by_request = leading.fetch(
        fetch_request(0),
        replica_id=B,
        replica_epoch=-1,
        max_bytes=size - 1,
        min_one_batch=False,
        now_us=0,
    )
    assert limited_by_request.data.records == ()


def test_fetch_of_a_broker_that_is_no_replica_is_unknown_leader_epoch() -> None:
    """The broker may have newer metadata than this leader (Kafka: followerReplicaOrThrow)."""
    leading = leader(replicas=(A, B), isr=(A, B))
    assert fetch_as(leading, C, offset=0).data.error_code is ErrorCode.UNKNOWN_LEADER_EPOCH
    # A request without an epoch cannot show that its metadata is newer.
    without_epoch = fetch_as(leading, C, offset=0, leader_epoch=-1).data
    assert without_epoch.error_code is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_fetch_of_a_followers_earlier_incarnation_does_not_count() -> None:
    """The follower may have lost its log since its earlier start, so an old Fetch proves nothing.

    B has registered again, with broker epoch 500. The Fetch has the earlier epoch, 101.
    Kafka: testFetchFromFollowerWithStaleBrokerEpoch.
    """
    leading = leader(partition_log=log_of_epochs(0))
    leading.update_eligible_brokers({**EVERYBODY, B: BrokerEpoch(500)})
    stale = fetch_as(leading, B, offset=1, last_fetched_epoch=0, replica_epoch=101)
    assert stale.data.error_code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert leading.follower_log_end_offset(B) == NO_PROGRESS


def test_fetch_with_a_prefix_of_the_leaders_log_does_not_diverge() -> None:
    """A follower whose log is a beginning of the leader's log needs no truncation.

    Its last batch, at offset 0, is of epoch 0. The leader has epoch 0 at the offsets 0 and 1.
    """
    leading = leader(partition_log=log_of_epochs(0, 0, 2), leader_epoch=3)
    answer = fetch_as(leading, B, offset=1, leader_epoch=3, last_fetched_epoch=0).data
    assert answer.diverging_epoch is None
    assert [batch.base_offset for batch in answer.records] == [1, 2]


@pytest.mark.parametrize(
    ("offset", "last_epoch", "diverging"),
    [
        # The follower has three records of epoch 0. At the leader epoch 0 ends at 2.
        (3, 0, EpochEndOffset(epoch=0, end_offset=2)),
        # Only the follower has epoch 1. The answer has the largest epoch of the leader below it, 0.
        (3, 1, EpochEndOffset(epoch=0, end_offset=2)),
        # The follower has two records of epoch 2. At the leader epoch 2 ends at the log end, 3.
        (4, 2, EpochEndOffset(epoch=2, end_offset=3)),
    ],
)
def test_fetch_that_diverges_is_answered_with_the_end_of_the_epoch(
    offset: int, last_epoch: int, diverging: EpochEndOffset
) -> None:
    """The follower must truncate to that end before it gets records, so the Fetch is no progress.

    The leader has epoch 0 at the offsets 0 and 1, and epoch 2 at the offset 2.
    Kafka: testReadRecord with a diverging lastFetchedEpoch.
    """
    leading = leader(partition_log=log_of_epochs(0, 0, 2), leader_epoch=3)
    answer = fetch_as(leading, B, offset=offset, leader_epoch=3, last_fetched_epoch=last_epoch).data
    assert answer.error_code is ErrorCode.NONE
    assert answer.diverging_epoch == diverging
    assert answer.records == ()
    assert leading.follower_log_end_offset(B) == NO_PROGRESS


def test_fetch_with_an_epoch_after_all_known_is_out_of_range() -> None:
    """The leader cannot find the end of an unknown epoch. It returns the error of Kafka."""
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


def test_second_read_of_a_parked_fetch_counts_no_progress() -> None:
    """The Fetch counted when it arrived. At its second read the follower may be dead.

    A parked Fetch waits at the broker until there are records. Then the broker reads again, with
    `update_fetch_state=False`.
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
    assert leading.follower_log_end_offset(B) == NO_PROGRESS


def test_repeated_fetch_from_the_log_end_keeps_the_follower_caught_up() -> None:
    """Most Fetches are of this kind, so the leader handles them in a shorter way.

    The only effect is that the follower counts as caught up, so it stays in the ISR.
    """
    leading = leader(partition_log=log_of_epochs(0))
    fetch_as(leading, B, offset=1, last_fetched_epoch=0, now_us=0)
    again = fetch_as(leading, B, offset=1, last_fetched_epoch=0, now_us=LAG_MAX_US)
    assert (again.data.records, again.new_high_watermark, again.proposal) == ((), None, None)
    # B is behind the new record, so the time of its last Fetch decides. The Fetch is LAG_MAX_US
    # old, which is not too old yet. C has never fetched.
    leading.append_records(records("a"), required_acks=1, now_us=LAG_MAX_US)
    proposal = leading.maybe_shrink_isr(2 * LAG_MAX_US)
    assert proposal is not None
    assert proposal.removed == (C,)


def test_repeated_fetch_from_the_log_end_returns_new_watermarks_and_leader_epochs() -> None:
    """The leader reuses its last answer to such a Fetch only while this answer is still right.

    The first Fetches of B and C move the high watermark from 0 to 1. The answers to these
    Fetches still have 0, and only the next answers have 1.
    """
    leading = leader(partition_log=log_of_epochs(0))
    high_watermarks = [
        fetch_as(leading, broker, offset=1, last_fetched_epoch=0).data.high_watermark
        for broker in (B, C, B, C)
    ]
    assert high_watermarks == [0, 0, 1, 1]
    # A is elected again. The partition epoch counts the changes of the partition's metadata.
    leading.make_leader(
        leader_epoch=2, partition_epoch=9, replicas=(A, B, C), isr=(A, B, C), now_us=0
    )
    answer = fetch_as(leading, B, offset=1, leader_epoch=2, last_fetched_epoch=0).data
    assert (answer.leader_epoch, answer.error_code) == (2, ErrorCode.NONE)


def test_repeated_fetch_from_the_log_end_by_a_replaced_incarnation_is_refused() -> None:
    """B has registered again, with broker epoch 500. This Fetch has B's former epoch, 101."""
    leading = leader(partition_log=log_of_epochs(0))
    fetch_as(leading, B, offset=1, last_fetched_epoch=0)
    leading.update_eligible_brokers({**EVERYBODY, B: BrokerEpoch(500)})
    stale = fetch_as(leading, B, offset=1, last_fetched_epoch=0)
    assert stale.data.error_code is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_fetch_from_the_end_of_an_empty_log_is_answered_empty() -> None:
    """A follower without records has no last epoch that could diverge.

    The second Fetch, which repeats the first, gets the same answer.
    """
    leading = leader(leader_epoch=1)
    for _ in range(2):
        answer = fetch_as(leading, B, offset=0).data
        assert (answer.error_code, answer.records) == (ErrorCode.NONE, ())
