"""Each invariant between replicas finds the damage that it is for, and nothing in sound replicas.

The high watermark is the offset below which all replicas of the ISR (the in-sync replicas) have the
records; these records are committed. Broker A leads, with B and C in its ISR.

`leader_and_follower(end=...)` returns the replica of A, whose log has the records 0 and 1, and the
replica of B, whose log ends at `end`. A knows that B and C have fetched up to offset 2, so the high
watermark is 2. So the log of B is damaged if it ends at 1.
"""

import pytest
from msgspec.structs import replace

from partition_log.invariants_between_replicas import (
    check_acknowledged,
    check_consumed,
    check_in_sync_follower,
    check_known_end,
    check_same_batches,
)
from partition_log.replica import Partition
from protocol.effects import ACKS_ALL
from protocol.errors import InvariantViolation
from protocol.ids import Offset
from protocol.messages.log import PartitionData
from protocol.records.batch import RecordBatch
from tests.support.builders.client_batches import client_batch
from tests.support.builders.partition_logs import (
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
    leading = leader()
    for value in ("0", "1"):
        leading.append_records(records(value), required_acks=ACKS_ALL, now_us=0)
    copy = log()
    # 2**62 is more bytes than the log has: one read gives all batches below `end`.
    copy.append_as_follower(leading.log.read(0, 2**62, up_to=end))
    for broker in (B, C):
        fetch_as(leading, broker, offset=2)
    assert leading.high_watermark == 2
    return leading, follower(B, copy)


def test_in_sync_follower_must_reach_the_high_watermark() -> None:
    check_in_sync_follower(*leader_and_follower())
    with pytest.raises(InvariantViolation, match=r"and the log of 1, .* ends at 1"):
        check_in_sync_follower(*leader_and_follower(end=1))


def test_follower_must_have_what_its_leader_knows_it_to_have() -> None:
    check_known_end(*leader_and_follower())
    with pytest.raises(InvariantViolation, match="to end at 2; it ends at 1"):
        check_known_end(*leader_and_follower(end=1))


def test_leader_that_missed_an_epoch_forgets_what_it_knew_of_followers() -> None:
    """In epoch 2 another broker led, and the followers may have truncated their logs meanwhile."""
    leading, behind = leader_and_follower(end=1)
    leading.make_leader(leader_epoch=3, partition_epoch=3, replicas=(A, B, C), isr=(A, B), now_us=0)
    check_known_end(leading, behind)


def produced(*values: str, sequence: int = 0) -> RecordBatch:
    return client_batch(*values, producer_id=7, base_sequence=sequence)


def written(*, high_watermark: int) -> tuple[Partition, RecordBatch]:
    """Return a leader whose log has one batch of two records, and this batch."""
    leading, batch = leader(), produced("a", "b")
    leading.append_batch(batch, required_acks=ACKS_ALL, now_us=0)
    leading.log.update_high_watermark(Offset(high_watermark))
    return leading, batch


def check(
    leading: Partition, batch: RecordBatch, *, acks_all: bool = True, alone: bool = True
) -> None:
    """Check the leader's acknowledgement of the batch at offset 0.

    `alone` is True if no other partition of the request delayed the answer.
    """
    check_acknowledged(leading, batch, base_offset=0, needs_all=acks_all, is_alone=alone)


def test_batch_below_the_high_watermark_may_be_acknowledged() -> None:
    # The batch ends at 2, so a high watermark of 2 is enough.
    check(*written(high_watermark=2))


@pytest.mark.parametrize("alone", [True, False])
def test_batch_above_the_high_watermark_may_not_be_acknowledged_with_acks_all(alone: bool) -> None:
    """The rule holds for a delayed answer, too: in one leader epoch the high watermark never falls.

    With acks=1 an answer need not wait.
    """
    with pytest.raises(InvariantViolation, match="waits for the high watermark"):
        check(*written(high_watermark=1), alone=alone)
    check(*written(high_watermark=1), acks_all=False)


def test_late_answer_is_not_judged_in_another_epoch() -> None:
    """Before a late answer the leader may have changed, and the new high watermark may be lower."""
    leading, batch = written(high_watermark=1)
    leading.make_leader(leader_epoch=2, partition_epoch=2, replicas=(A, B), isr=(A, B), now_us=0)
    check(leading, batch, alone=False)
    with pytest.raises(InvariantViolation, match="waits for the high watermark"):
        # By default the answer has no delay, so no other leader can have come between.
        check(leading, batch)


@pytest.mark.parametrize(
    "other",
    [produced("a"), produced("a", "c"), produced("a", "b", sequence=2)],
    ids=["fewer records", "other records", "another sequence"],
)
def test_another_batch_at_the_answered_offset_is_found(other: RecordBatch) -> None:
    """If the leader mistakes a batch for a duplicate of another one, its records are lost."""
    leading, _ = written(high_watermark=2)
    with pytest.raises(InvariantViolation, match="an acknowledged batch is in the log"):
        check(leading, other)
    # After a delay the batch may have been truncated, so it is not looked for.
    check(leading, other, alone=False)


def test_acknowledgement_beyond_the_log_is_found() -> None:
    # The log is empty, so nothing can be acknowledged at offset 0.
    with pytest.raises(InvariantViolation, match="has there nothing"):
        check(leader(), produced("a"))


def test_former_leader_is_not_judged() -> None:
    # The batch is above the high watermark, but the broker is a follower now.
    leading, batch = written(high_watermark=0)
    leading.make_follower(leader_id=B, leader_epoch=2, partition_epoch=2, replicas=(A, B), isr=(B,))
    check(leading, batch)


def test_logs_with_another_batch_at_an_offset_are_found() -> None:
    """The third argument is the offset below which the two logs must agree.

    The records behind it are not committed and may differ.
    """
    first, second = log_of_epochs(0, 0, 1), log_of_epochs(0, 0, 2)
    check_same_batches(first, second, 2)
    with pytest.raises(InvariantViolation, match="at 2: the leader has 1 records of epoch 1"):
        check_same_batches(first, second, 3)


def test_logs_with_other_records_in_the_same_epoch_are_found() -> None:
    first, second = log_of_epochs(0), log()
    second.append_as_leader(records("different"), leader_epoch=0)
    with pytest.raises(InvariantViolation, match="have the same batches"):
        check_same_batches(first, second, 1)


def test_compacted_logs_may_lack_batches_and_records_but_not_change_epochs() -> None:
    """Each broker cleans its own replica at its own times, so batches and records may be missing.

    A cleaning keeps the leader epochs.
    """
    first, second = log_of_epochs(0, 0, 1), log_of_epochs(0, 0, 1)
    first.is_compacted = second.is_compacted = True
    cleaned = replace(first.storage.batch(0), crc=1)  # another checksum, as if records were removed
    first.replace_prefix(2, (cleaned,))
    check_same_batches(first, second, 3)
    third = log_of_epochs(0, 0, 2)
    third.is_compacted = True
    with pytest.raises(InvariantViolation, match="have the same batches"):
        check_same_batches(first, third, 3)


def read(*batches: RecordBatch, high_watermark: int = 2) -> PartitionData:
    """Return an answer of A to a consumer with these records and this high watermark."""
    return PartitionData(
        partition_index=0, high_watermark=high_watermark, leader_epoch=1, records=batches
    )


def test_consumer_must_get_no_record_above_the_high_watermark() -> None:
    leading, _ = leader_and_follower()
    leading.append_records(records("2"), required_acks=ACKS_ALL, now_us=0)
    batches = leading.log.read(0, 2**62, up_to=3)
    check_consumed(leading, read(*batches[:2]), read_committed=False)
    with pytest.raises(InvariantViolation, match=r"records up to 2 .* high watermark .* is 2"):
        check_consumed(leading, read(*batches), read_committed=False)


def test_consumer_that_reads_committed_must_get_no_record_of_an_open_transaction() -> None:
    """The transaction of producer 7 begins at 0, so the last stable offset is 0.

    A consumer that reads committed records only gets records below this offset.
    """
    leading, _ = leader_and_follower()
    batches = leading.log.read(0, 2**62, up_to=2)
    leading.log.producers.appended(replace(batches[0], producer_id=7, is_transactional=True))
    check_consumed(leading, read(*batches), read_committed=False)
    with pytest.raises(InvariantViolation, match=r"last stable offset of leader 0 is 0"):
        check_consumed(leading, read(*batches), read_committed=True)


def test_consumer_must_be_told_the_high_watermark() -> None:
    leading, _ = leader_and_follower()
    with pytest.raises(InvariantViolation, match="1 and 1 are told, leader 0 has 2 and 2"):
        check_consumed(leading, read(high_watermark=1), read_committed=False)
