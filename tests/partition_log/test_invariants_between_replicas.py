"""Each check of an invariant between replicas finds the damage that it is meant to find.

In most tests broker A leads, with B and C in its ISR. The log of A has the records 0 and 1. A knows
that B and C have fetched up to offset 2, so the high watermark is 2. `leader_and_follower()`
returns the replicas of A and B in this state. `leader_and_follower(end=1)` returns them with the
damage that B's log ends at 1.
"""

import pytest
from msgspec.structs import replace

from partition_log.invariants_between_replicas import (
    check_acknowledged,
    check_consumed,
    check_in_sync_follower,
    check_known_end,
    check_out_of_order,
    check_same_batches,
)
from partition_log.replica import Partition
from protocol.effects import ACKS_ALL
from protocol.errors import ErrorCode, InvariantViolation
from protocol.ids import Offset
from protocol.messages.log import PartitionData
from protocol.records.batch import RecordBatch
from tests.support.builders.client_batches import client_batch
from tests.support.builders.partition_logs import (
    NO_LIMIT,
    A,
    B,
    C,
    fetch_as,
    follower,
    leader,
    log,
    log_of_epochs,
    records,
)


def leader_and_follower(*, end: int = 2) -> tuple[Partition, Partition]:
    """Return the replicas of A and B. The log of B ends at `end`."""
    leading = leader()
    for value in ("0", "1"):
        leading.append_records(records(value), required_acks=ACKS_ALL, now_us=0)
    copy = log()
    copy.append_as_follower(leading.log.read(0, NO_LIMIT, up_to=end))
    for broker in (B, C):
        fetch_as(leading, broker, offset=2)
    assert leading.high_watermark == 2
    return leading, follower(B, copy)


def test_in_sync_follower_must_reach_the_high_watermark() -> None:
    """If a follower without committed records became the leader, the records would be lost."""
    check_in_sync_follower(*leader_and_follower())
    with pytest.raises(InvariantViolation, match=r"and the log of 1, .* ends at 1"):
        check_in_sync_follower(*leader_and_follower(end=1))


def test_follower_must_have_what_its_leader_believes_it_to_have() -> None:
    """From the Fetch of B the leader believes that the log of B ends at 2."""
    check_known_end(*leader_and_follower())
    with pytest.raises(InvariantViolation, match="to end at 2; it ends at 1"):
        check_known_end(*leader_and_follower(end=1))


def test_leader_that_missed_an_epoch_forgets_what_it_knew_of_followers() -> None:
    """In epoch 2 another broker led, and the followers may have truncated their logs meanwhile."""
    leading, shorter_follower = leader_and_follower(end=1)
    leading.make_leader(leader_epoch=3, partition_epoch=3, replicas=(A, B, C), isr=(A, B), now_us=0)
    check_known_end(leading, shorter_follower)


def numbered_batch(*values: str, sequence: int = 0) -> RecordBatch:
    """Return a batch of producer 7. Its first record has this sequence number."""
    return client_batch(*values, producer_id=7, base_sequence=sequence)


def leader_with_batch(*, high_watermark: int) -> tuple[Partition, RecordBatch]:
    """Return a leader and a batch of two records, the only batch in the leader's log."""
    leading, batch = leader(), numbered_batch("a", "b")
    leading.append_batch(batch, required_acks=ACKS_ALL, now_us=0)
    leading.log.update_high_watermark(Offset(high_watermark))
    return leading, batch


def check(
    leading: Partition, batch: RecordBatch, *, acks_all: bool = True, is_delayed: bool = False
) -> None:
    """Check that the leader may now acknowledge the batch with the offset 0.

    `is_delayed` is True if the request had other partitions, for which the answer had to wait.
    """
    check_acknowledged(leading, batch, base_offset=0, needs_all=acks_all, is_alone=not is_delayed)


def test_batch_below_the_high_watermark_may_be_acknowledged() -> None:
    """The batch ends at 2, so a high watermark of 2 is enough."""
    check(*leader_with_batch(high_watermark=2))


@pytest.mark.parametrize("is_delayed", [False, True])
def test_batch_above_the_high_watermark_may_not_be_acknowledged_with_acks_all(
    is_delayed: bool,
) -> None:
    """With acks=1 the answer need not wait for the high watermark.

    A delay makes no difference, because in one leader epoch the high watermark never falls.
    """
    with pytest.raises(InvariantViolation, match="waits for the high watermark"):
        check(*leader_with_batch(high_watermark=1), is_delayed=is_delayed)
    check(*leader_with_batch(high_watermark=1), acks_all=False)


def test_delayed_answer_is_not_checked_in_another_leader_epoch() -> None:
    """During the delay the leader epoch has changed, and the high watermark may have fallen."""
    leading, batch = leader_with_batch(high_watermark=1)
    leading.make_leader(leader_epoch=2, partition_epoch=2, replicas=(A, B), isr=(A, B), now_us=0)
    check(leading, batch, is_delayed=True)
    with pytest.raises(InvariantViolation, match="waits for the high watermark"):
        check(leading, batch, is_delayed=False)


@pytest.mark.parametrize(
    "other_batch",
    [numbered_batch("a"), numbered_batch("a", "c"), numbered_batch("a", "b", sequence=2)],
    ids=["fewer records", "other records", "another sequence"],
)
def test_another_batch_at_the_offset_of_the_answer_is_found(other_batch: RecordBatch) -> None:
    """If the leader takes a new batch for a repetition, the records of the new batch are lost."""
    leading, _ = leader_with_batch(high_watermark=2)
    with pytest.raises(InvariantViolation, match="an acknowledged batch is in the log"):
        check(leading, other_batch)
    # During a delay the batch may have been truncated, so the check does not look for it.
    check(leading, other_batch, is_delayed=True)


def test_acknowledgement_beyond_the_log_is_found() -> None:
    """The leader's log is empty, so it can acknowledge nothing at offset 0."""
    with pytest.raises(InvariantViolation, match="has there nothing"):
        check(leader(), numbered_batch("a"))


def test_answer_of_a_former_leader_is_not_checked() -> None:
    """The batch is above the high watermark, but the broker is a follower now."""
    leading, batch = leader_with_batch(high_watermark=0)
    leading.make_follower(leader_id=B, leader_epoch=2, partition_epoch=2, replicas=(A, B), isr=(B,))
    check(leading, batch)


def test_batch_that_the_log_remembers_is_not_out_of_order() -> None:
    """The answer to a repeated batch is the offset that the batch has in the log.

    The log has seven batches of one record, and remembers the last five of them.
    """
    leading = leader()
    for sequence in range(7):
        batch = numbered_batch("a", sequence=sequence)
        leading.append_batch(batch, required_acks=ACKS_ALL, now_us=0)
    for repeated in range(2, 7):
        with pytest.raises(InvariantViolation, match=f"has the batch at {repeated} to {repeated}"):
            check_out_of_order(leading, numbered_batch("a", sequence=repeated))

    refused = [
        numbered_batch("a", sequence=1),  # too old
        numbered_batch("a", "b", sequence=6),  # repeats one record of two
        numbered_batch("a", sequence=8),  # the number 7 is missing
        client_batch("a", producer_id=7, producer_epoch=1, base_sequence=6),  # another epoch
    ]
    for batch in refused:
        info = leading.append_batch(batch, required_acks=ACKS_ALL, now_us=0)
        assert info.error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        check_out_of_order(leading, batch)


def test_logs_with_another_batch_at_an_offset_are_found() -> None:
    """Only committed records must be equal. The two logs here differ at offset 2."""
    leaders_log, followers_log = log_of_epochs(0, 0, 1), log_of_epochs(0, 0, 2)
    # `up_to` is the end of the committed records.
    check_same_batches(leaders_log, followers_log, up_to=2)
    with pytest.raises(InvariantViolation, match="at 2: the leader has 1 records of epoch 1"):
        check_same_batches(leaders_log, followers_log, up_to=3)


def test_logs_with_other_records_in_the_same_epoch_are_found() -> None:
    """Batches with equal leader epochs must also be equal. Here both batches have epoch 0."""
    leaders_log, followers_log = log_of_epochs(0), log()
    followers_log.append_as_leader(records("different"), leader_epoch=0)
    with pytest.raises(InvariantViolation, match="have the same batches"):
        check_same_batches(leaders_log, followers_log, up_to=1)


def test_compacted_logs_may_lack_batches_and_records_but_not_change_epochs() -> None:
    """Each broker cleans its own replica, so one log may lack what another log has.

    But a cleaning does not change the leader epoch of a batch.
    """
    leaders_log, followers_log = log_of_epochs(0, 0, 1), log_of_epochs(0, 0, 1)
    leaders_log.is_compacted = followers_log.is_compacted = True
    # The leader cleans its log: one of the first two batches remains. The checksum of this batch
    # has changed, as if the cleaning had removed records from the batch.
    cleaned = replace(leaders_log.storage.batch(0), crc=1)
    leaders_log.replace_prefix(2, (cleaned,))
    check_same_batches(leaders_log, followers_log, up_to=3)
    of_another_epoch = log_of_epochs(0, 0, 2)
    of_another_epoch.is_compacted = True
    with pytest.raises(InvariantViolation, match="have the same batches"):
        check_same_batches(leaders_log, of_another_epoch, up_to=3)


def fetched(*batches: RecordBatch, high_watermark: int = 2) -> PartitionData:
    """Return an answer of A to a consumer with these records and this high watermark."""
    return PartitionData(
        partition_index=0, high_watermark=high_watermark, leader_epoch=1, records=batches
    )


def test_consumer_must_get_no_record_above_the_high_watermark() -> None:
    """A record above the high watermark, here the record at offset 2, may still be truncated."""
    leading, _ = leader_and_follower()
    leading.append_records(records("2"), required_acks=ACKS_ALL, now_us=0)
    batches = leading.log.read(0, NO_LIMIT, up_to=3)
    check_consumed(leading, fetched(*batches[:2]), read_committed=False)
    with pytest.raises(InvariantViolation, match=r"records up to 2 .* high watermark .* is 2"):
        check_consumed(leading, fetched(*batches), read_committed=False)


def test_consumer_that_reads_committed_must_get_no_record_of_an_open_transaction() -> None:
    """With read_committed a consumer gets only records below the oldest open transaction.

    Here a transaction of producer 7 is open. It begins at offset 0.
    """
    leading, _ = leader_and_follower()
    batches = leading.log.read(0, NO_LIMIT, up_to=2)
    leading.log.producers.appended(replace(batches[0], producer_id=7, is_transactional=True))
    check_consumed(leading, fetched(*batches), read_committed=False)
    with pytest.raises(InvariantViolation, match=r"last stable offset of leader 0 is 0"):
        check_consumed(leading, fetched(*batches), read_committed=True)


def test_consumer_must_be_told_the_high_watermark() -> None:
    """The answer has the high watermark 1, but the leader has 2. So the consumer's lag is wrong."""
    leading, _ = leader_and_follower()
    with pytest.raises(InvariantViolation, match="1 and 1 are told, leader 0 has 2 and 2"):
        check_consumed(leading, fetched(high_watermark=1), read_committed=False)
