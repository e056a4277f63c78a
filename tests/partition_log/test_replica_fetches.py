"""Fetches from a leader: fencing, limits, divergence. Mirrors Kafka's PartitionTest.

- A, B and C are the brokers 0, 1 and 2, registered with the broker epochs 100, 101 and 102
  (EVERYBODY).
- `leader` makes A the leader in leader epoch 1, with the ISR {A, B, C} and min.insync.replicas 2.
- `fetch_as(leading, B, offset=1)` fetches as broker B, whose log ends at offset 1;
  `last_fetched_epoch` is the leader epoch of B's last batch.
- `log_of_epochs(0, 0, 2)` is a log with one record per number: two of leader epoch 0, one of 2.
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
"""Replica id of a consumer's Fetch."""
NO_PROGRESS = -1
"""Log end offset of a follower none of whose Fetches has counted."""


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
    """The leader refuses older and newer epochs; -1, no epoch, is accepted (BEHAVIOUR 6.1).

    Source: PartitionTest.testReadRecordEpochValidationForLeader.
    """
    leading = leader(leader_epoch=4)
    assert fetch_as(leading, fetcher, offset=0, leader_epoch=epoch).data.error_code is error


def test_fetch_that_is_refused_does_not_count_as_progress() -> None:
    """A follower of a newer leader must not move the high watermark of the replaced one."""
    leading = leader(leader_epoch=4)
    leading.append_records(records("a"), required_acks=ACKS_ALL, now_us=0)
    fetch_as(leading, B, offset=1, leader_epoch=5)
    assert leading.follower_log_end_offset(B) == NO_PROGRESS


def test_fetch_of_a_follower_reads_to_the_log_end() -> None:
    """Followers must fetch above the high watermark, because their Fetches advance it.

    No other follower has fetched, so the high watermark in the answer is still 0.
    """
    leading = leader(partition_log=log_of_epochs(0, 0))
    answer = fetch_as(leading, B, offset=0).data
    assert [batch.base_offset for batch in answer.records] == [0, 1]
    assert (answer.high_watermark, answer.leader_epoch, answer.leader_id) == (0, 1, A)


def test_fetch_of_a_consumer_reads_to_the_high_watermark() -> None:
    """A record above the high watermark may still be truncated."""
    log = log_of_epochs(0, 0, 0)
    log.update_high_watermark(2)
    leading = leader(partition_log=log)
    assert [b.base_offset for b in fetch_as(leading, CONSUMER, offset=0).data.records] == [0, 1]
    above = fetch_as(leading, CONSUMER, offset=3).data
    assert (above.error_code, above.records) == (ErrorCode.NONE, ())


@pytest.mark.parametrize("fetcher", [CONSUMER, B])
@pytest.mark.parametrize("offset", [-1, 3])
def test_fetch_outside_the_log_is_offset_out_of_range(fetcher: int, offset: int) -> None:
    """The log has the offsets 0 to 2: a consumer then resets its position, a follower backs off."""
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
        replica_epoch=-1,  # no broker epoch, which the leader then does not check
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
    """The broker's metadata may be newer than this leader's (Kafka followerReplicaOrThrow)."""
    leading = leader(replicas=(A, B), isr=(A, B))
    assert fetch_as(leading, C, offset=0).data.error_code is ErrorCode.UNKNOWN_LEADER_EPOCH
    # Without an epoch the request cannot show that its metadata is newer.
    without_epoch = fetch_as(leading, C, offset=0, leader_epoch=-1).data
    assert without_epoch.error_code is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_fetch_of_a_followers_earlier_incarnation_does_not_count() -> None:
    """The follower may have lost its log since that incarnation, so the old Fetch proves nothing.

    B has registered again, with broker epoch 500; the Fetch names the earlier epoch, 101.
    Kafka: testFetchFromFollowerWithStaleBrokerEpoch.
    """
    leading = leader(partition_log=log_of_epochs(0))
    leading.update_eligible_brokers({**EVERYBODY, B: BrokerEpoch(500)})
    stale = fetch_as(leading, B, offset=1, last_fetched_epoch=0, replica_epoch=101)
    assert stale.data.error_code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert leading.follower_log_end_offset(B) == NO_PROGRESS


def test_fetch_with_a_prefix_of_the_leaders_log_does_not_diverge() -> None:
    """Such a follower needs no truncation.

    Its last batch, at offset 0, is of epoch 0. The leader has epoch 0 at the offsets 0 and 1.
    """
    leading = leader(partition_log=log_of_epochs(0, 0, 2), leader_epoch=3)
    answer = fetch_as(leading, B, offset=1, leader_epoch=3, last_fetched_epoch=0).data
    assert answer.diverging_epoch is None
    assert [batch.base_offset for batch in answer.records] == [1, 2]


@pytest.mark.parametrize(
    ("offset", "last_epoch", "diverging"),
    [
        # The follower has three records of epoch 0: at the leader epoch 0 ends at 2.
        (3, 0, EpochEndOffset(epoch=0, end_offset=2)),
        # Only the follower has epoch 1: the answer names the epoch below it, 0.
        (3, 1, EpochEndOffset(epoch=0, end_offset=2)),
        # The follower has more of epoch 2, which at the leader ends at the log end, 3.
        (4, 2, EpochEndOffset(epoch=2, end_offset=3)),
    ],
)
def test_fetch_that_diverges_is_answered_with_the_end_of_the_epoch(
    offset: int, last_epoch: int, diverging: EpochEndOffset
) -> None:
    """The follower truncates to that end before it gets records, so the Fetch is no progress.

    Kafka: testReadRecord with a diverging lastFetchedEpoch. The leader has epoch 0 at 0 and 1, and
    epoch 2 at 2.
    """
    leading = leader(partition_log=log_of_epochs(0, 0, 2), leader_epoch=3)
    answer = fetch_as(leading, B, offset=offset, leader_epoch=3, last_fetched_epoch=last_epoch).data
    assert answer.error_code is ErrorCode.NONE
    assert answer.diverging_epoch == diverging
    assert answer.records == ()
    assert leading.follower_log_end_offset(B) == NO_PROGRESS


def test_fetch_with_an_epoch_after_all_known_is_out_of_range() -> None:
    """The leader cannot determine the end offset of an epoch that it does not know, as in Kafka."""
    leading = leader(partition_log=log_of_epochs(0), leader_epoch=3)
    answer = fetch_as(leading, B, offset=1, leader_epoch=3, last_fetched_epoch=4).data
    assert answer.error_code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_fetch_that_moves_the_high_watermark_is_answered_with_the_former_one() -> None:
    """The follower gets the moved high watermark with its next Fetch, as in Kafka."""
    leading = leader(replicas=(A, B), isr=(A, B), partition_log=log_of_epochs(0))
    result = fetch_as(leading, B, offset=1, last_fetched_epoch=0)
    assert (result.data.high_watermark, result.new_high_watermark) == (0, 1)
    assert fetch_as(leading, B, offset=1, last_fetched_epoch=0).data.high_watermark == 1


def test_second_read_of_a_parked_fetch_counts_no_progress() -> None:
    """The Fetch counted when it arrived; at its second read the follower may be dead.

    A parked Fetch waits at the broker for records, and is then read again, with
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
    """Most Fetches are of this kind, and the leader handles them by a shorter path.

    Their one effect is that the follower counts as caught up, so that it remains in the ISR.
    """
    leading = leader(partition_log=log_of_epochs(0))
    fetch_as(leading, B, offset=1, last_fetched_epoch=0, now_us=0)
    again = fetch_as(leading, B, offset=1, last_fetched_epoch=0, now_us=LAG_MAX_US)
    assert (again.data.records, again.new_high_watermark, again.proposal) == ((), None, None)
    # B is no longer at the log end, so the time of its last Fetch decides. C has never fetched.
    leading.append_records(records("a"), required_acks=1, now_us=LAG_MAX_US)
    proposal = leading.maybe_shrink_isr(2 * LAG_MAX_US)
    assert proposal is not None
    assert proposal.removed == (C,)


def test_repeated_fetch_from_the_log_end_returns_new_watermarks_and_leader_epochs() -> None:
    """The leader reuses its last answer to such a Fetch only while this answer is still correct.

    The first Fetches of B and C move the high watermark from 0 to 1, but their answers still have
    0; only the next answers have 1.
    """
    leading = leader(partition_log=log_of_epochs(0))
    high_watermarks = [
        fetch_as(leading, broker, offset=1, last_fetched_epoch=0).data.high_watermark
        for broker in (B, C, B, C)
    ]
    assert high_watermarks == [0, 0, 1, 1]
    # Newer metadata: A is elected again. The partition epoch counts changes of the metadata.
    leading.make_leader(
        leader_epoch=2, partition_epoch=9, replicas=(A, B, C), isr=(A, B, C), now_us=0
    )
    answer = fetch_as(leading, B, offset=1, leader_epoch=2, last_fetched_epoch=0).data
    assert (answer.leader_epoch, answer.error_code) == (2, ErrorCode.NONE)


def test_repeated_fetch_from_the_log_end_by_a_replaced_incarnation_is_refused() -> None:
    """B has registered again since, with broker epoch 500, but this Fetch has the epoch 101."""
    leading = leader(partition_log=log_of_epochs(0))
    fetch_as(leading, B, offset=1, last_fetched_epoch=0)
    leading.update_eligible_brokers({**EVERYBODY, B: BrokerEpoch(500)})
    stale = fetch_as(leading, B, offset=1, last_fetched_epoch=0)
    assert stale.data.error_code is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_fetch_from_the_end_of_an_empty_log_is_answered_empty() -> None:
    """The follower has no last epoch, so nothing can diverge; the second Fetch gets the same."""
    leading = leader(leader_epoch=1)
    for _ in range(2):
        answer = fetch_as(leading, B, offset=0).data
        assert (answer.error_code, answer.records) == (ErrorCode.NONE, ())
