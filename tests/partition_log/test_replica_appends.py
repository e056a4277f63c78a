"""Appends to a leader: the refusals, and when an append with acks=all is acknowledged.

An append with acks=all waits until the high watermark has reached the end of the appended batch.
The tests call `leading.check_acknowledged(end)`. The result is None while the append waits, and
after that the outcome of the append.

`leader()` is the replica of broker A, which leads in leader epoch 1. Unless a test says otherwise,
its log is empty, its ISR is {A, B, C}, and min.insync.replicas is 2.
`fetch_as(leading, B, offset=1)` is a Fetch of B, whose log ends at offset 1. BEHAVIOUR 6.1 is a
section of docs/kafka/BEHAVIOUR.md.
"""

import pytest
from msgspec.structs import replace

from partition_log.log import PartitionLog
from partition_log.memory_storage import MemoryLogStorage
from protocol.effects import ACKS_ALL
from protocol.errors import ErrorCode
from protocol.ids import TopicPartition
from protocol.trace import TraceKind
from tests.support.builders.partition_logs import (
    REPLICAS,
    SECOND,
    A,
    B,
    C,
    batch,
    fetch_as,
    follower,
    leader,
    records,
    values,
)


def test_append_returns_its_offset_and_epoch() -> None:
    """`base_offset` is the offset of the first record. `next_offset` follows the last record."""
    leading = leader(leader_epoch=4)
    leading.append_records(records("a", "b"), required_acks=ACKS_ALL, now_us=0)
    info = leading.append_records(records("c"), required_acks=ACKS_ALL, now_us=0)
    assert info.error is ErrorCode.NONE
    # "a" and "b" have the offsets 0 and 1, so "c" has the offset 2.
    assert (info.base_offset, info.next_offset, info.leader_epoch) == (2, 3, 4)
    # The high watermark has not moved, because no follower has fetched the records yet.
    assert info.new_high_watermark is None


def test_append_of_a_producers_batch_sets_offset_and_epoch() -> None:
    """A producer does not know offset and epoch, so the leader replaces its values, 77 and 9."""
    leading = leader(leader_epoch=4)
    leading.append_batch(batch("a", base_offset=77, leader_epoch=9), required_acks=1, now_us=0)
    stored = leading.log.storage.batch(0)
    assert (stored.base_offset, stored.partition_leader_epoch) == (0, 4)


def test_append_of_a_corrupt_batch_changes_nothing() -> None:
    """The answer is CORRUPT_MESSAGE, as in Kafka. A producer then sends the batch again."""
    leading = leader()
    # 1 is not the checksum of the batch, so the batch is corrupt.
    info = leading.append_batch(replace(batch("a"), crc=1), required_acks=1, now_us=0)
    assert info.error is ErrorCode.CORRUPT_MESSAGE
    assert leading.log_end_offset == 0


def test_append_of_a_batch_to_a_follower_changes_nothing() -> None:
    """A producer sends to a follower if its metadata is outdated.

    The checksum is wrong, too, but the leadership is checked first.
    """
    following = follower()
    info = following.append_batch(replace(batch("a"), crc=1), required_acks=1, now_us=0)
    assert info.error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert following.log_end_offset == 0


def test_high_watermark_of_a_data_partition_is_not_traced() -> None:
    """Only high watermarks of partitions of __consumer_offsets are traced.

    The high watermark of a data partition moves with every produced record, so the events would
    fill the trace.
    """
    log_of_orders = PartitionLog(TopicPartition("orders", 0), MemoryLogStorage())
    # With A as the only member of the ISR, the append itself moves the high watermark.
    leading = leader(partition_log=log_of_orders, isr=(A,), min_insync_replicas=1)
    info = leading.append_records(records("a"), required_acks=ACKS_ALL, now_us=0)
    assert info.new_high_watermark == 1
    assert info.trace == ()


def test_append_over_message_max_bytes_changes_nothing() -> None:
    """message.max.bytes, here 100, limits the batches of clients and of the coordinator."""
    leading = leader(message_max_bytes=100)
    assert leading.append_records(records("a"), required_acks=1, now_us=0).error is ErrorCode.NONE
    large = leading.append_records(records("x" * 100), required_acks=1, now_us=0)
    assert large.error is ErrorCode.MESSAGE_TOO_LARGE
    assert leading.log_end_offset == 1


@pytest.mark.parametrize(
    ("acks", "error"),
    [(ACKS_ALL, ErrorCode.NOT_ENOUGH_REPLICAS), (1, ErrorCode.NONE), (0, ErrorCode.NONE)],
)
def test_append_below_min_insync_replicas_is_refused_for_acks_all(
    acks: int, error: ErrorCode
) -> None:
    """Only acks=all requires the ISR to be large enough (BEHAVIOUR 6.1).

    Here the ISR has one member, and min.insync.replicas is 2.
    """
    leading = leader(isr=(A,))
    info = leading.append_records(records("a"), required_acks=acks, now_us=0)
    assert info.error is error
    assert leading.log_end_offset == (1 if error is ErrorCode.NONE else 0)


def test_append_below_min_insync_replicas_is_committed_without_the_check() -> None:
    """An experiment can switch off `min_insync_check`, to show what the check prevents.

    Then the leader acknowledges the record alone. If the leader is lost, the record is lost.
    """
    leading = leader(isr=(A,), min_insync_check=False)
    info = leading.append_records(records("a"), required_acks=ACKS_ALL, now_us=0)
    assert info.error is ErrorCode.NONE
    assert info.new_high_watermark == 1
    assert leading.check_acknowledged(1) is ErrorCode.NONE


def test_min_insync_replicas_is_limited_to_the_number_of_replicas() -> None:
    """A topic with only one replica must be writable, although min.insync.replicas is 2."""
    leading = leader(replicas=(A,), isr=(A,))
    info = leading.append_records(records("a"), required_acks=ACKS_ALL, now_us=0)
    assert (info.error, info.new_high_watermark) == (ErrorCode.NONE, 1)


def test_append_is_acknowledged_when_every_replica_in_sync_has_fetched_it() -> None:
    """The append waits for C, although B has fetched the record."""
    leading = leader()
    info = leading.append_records(records("a"), required_acks=ACKS_ALL, now_us=0)
    fetch_as(leading, B, offset=1, last_fetched_epoch=1)
    assert leading.check_acknowledged(info.next_offset) is None

    last_fetch = fetch_as(leading, C, offset=1, last_fetched_epoch=1)
    assert last_fetch.new_high_watermark == 1
    (event,) = last_fetch.trace
    assert (event.kind, event.offset) == (TraceKind.HIGH_WATERMARK, 1)
    assert leading.check_acknowledged(info.next_offset) is ErrorCode.NONE


def test_append_whose_isr_has_become_too_small_is_not_enough_replicas_after_append() -> None:
    """The record stays in the log, but the error says that it may get lost (BEHAVIOUR 6.1)."""
    leading = leader()
    info = leading.append_records(records("a"), required_acks=ACKS_ALL, now_us=0)
    for broker in (B, C):
        fetch_as(leading, broker, offset=1, last_fetched_epoch=1)
    # Newer metadata have an ISR of A alone, fewer than min.insync.replicas.
    leading.make_leader(
        leader_epoch=1,
        partition_epoch=2,
        replicas=REPLICAS,
        isr=(A,),
        now_us=SECOND,
    )
    outcome = leading.check_acknowledged(info.next_offset)
    assert outcome is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    assert values(leading.log) == ["a"]


def test_high_watermark_does_not_move_below_min_insync_replicas() -> None:
    """While the ISR is smaller than min.insync.replicas, no record is committed.

    A record with acks=1 is appended without an error, but is not committed either.
    """
    leading = leader()
    info = leading.append_records(records("a"), required_acks=ACKS_ALL, now_us=0)
    # B and C have not fetched "a" yet when metadata shrinks the ISR to A.
    change = leading.make_leader(
        leader_epoch=1,
        partition_epoch=2,
        replicas=REPLICAS,
        isr=(A,),
        now_us=SECOND,
    )
    assert change.new_high_watermark is None
    assert leading.check_acknowledged(info.next_offset) is None
    assert leading.append_records(records("b"), required_acks=1, now_us=0).error is ErrorCode.NONE
    assert leading.high_watermark == 0
