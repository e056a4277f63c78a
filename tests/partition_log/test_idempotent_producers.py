"""Idempotent producers at a leader: repeated batches are written once and in order (KIP-98).

A producer numbers its records, and a batch has the sequence number of its first record. From these
numbers the leader recognises a batch that is sent again. The leader also notices if a batch is
missing before the next batch. When a producer has raised its epoch, batches of the old epoch are
refused.

`leader()` and `follower()` are replicas of a partition with an empty log.
`with_batches(leader(), 0, 2)` is a leader with two batches of two records each, whose sequence
numbers begin at 0 and 2. `outcome(leading, "a", sequence=4)` appends a batch, and returns the
batch's offset or the error.
"""

from pathlib import Path

import pytest

from cluster.storage.compression import CODECS
from cluster.storage.file_storage import FileStorage
from partition_log.log import PartitionLog
from partition_log.outcomes import AppendInfo
from partition_log.producer_states import BATCHES_TO_RETAIN, last_sequence_of
from partition_log.replica import Partition
from protocol.errors import ErrorCode
from protocol.records.batch import RecordBatch
from protocol.records.control import EndTransactionMarker
from tests.support.builders.client_batches import client_batch
from tests.support.builders.partition_logs import (
    PARTITION,
    follower,
    leader,
    records,
    replicate,
)

PRODUCER = 7
LAST = 2**31 - 1
"""The last sequence number. After it comes 0 again."""


def numbered_batch(*values: str, sequence: int = 0, epoch: int = 0) -> RecordBatch:
    """Return a batch of the producer. Its first record has the number `sequence`."""
    return client_batch(*values, producer_id=PRODUCER, producer_epoch=epoch, base_sequence=sequence)


def append(leading: Partition, batch: RecordBatch) -> AppendInfo:
    """Append with acks=1, so that the answer does not wait for followers."""
    return leading.append_batch(batch, required_acks=1, now_us=0, codecs=CODECS)


def outcome(leading: Partition, *values: str, sequence: int = 0, epoch: int = 0) -> ErrorCode | int:
    """Append a batch, and return its offset, or the error of a refused batch."""
    log_end_before = leading.log_end_offset
    info = append(leading, numbered_batch(*values, sequence=sequence, epoch=epoch))
    if info.error is not ErrorCode.NONE:
        assert leading.log_end_offset == log_end_before
        return info.error
    if info.is_duplicate:
        assert leading.log_end_offset == log_end_before
    return info.base_offset


def with_batches(leading: Partition, *sequences: int) -> Partition:
    """Append a batch of two records for each of the sequence numbers, and return the leader."""
    for sequence in sequences:
        assert isinstance(outcome(leading, "a", "b", sequence=sequence), int)
    return leading


def test_batches_in_sequence_are_appended() -> None:
    """The next batch begins with the sequence number after that of the last record."""
    leading = leader()
    assert outcome(leading, "a", "b", sequence=0) == 0
    assert outcome(leading, "c", sequence=2) == 2
    assert outcome(leading, "d", sequence=3) == 3


def test_duplicate_is_answered_with_the_offsets_of_the_original_batch() -> None:
    """If the answer to the original batch is lost, the client sends the batch again.

    From the answer to this duplicate, the client learns the offset of the original batch.
    """
    leading = with_batches(leader(), 0, 2, 4)
    leading.append_records(records("another"), required_acks=1, now_us=0)
    info = append(leading, numbered_batch("a", "b", sequence=2))  # the second batch again
    assert (info.error, info.is_duplicate) == (ErrorCode.NONE, True)
    assert (info.base_offset, info.next_offset) == (2, 4)
    # As in Kafka, `log_append_time_ms` of a duplicate is the timestamp of the original batch: 7,
    # the default of `client_batch`.
    assert (info.log_append_time_ms, info.log_start_offset) == (7, 0)
    assert leading.log_end_offset == 7  # three batches of two records, and the other record


def test_only_the_last_five_batches_are_recognised_as_duplicates() -> None:
    """A client has at most five batches in flight, so the leader remembers five, as Kafka 3.9 does.

    An older batch counts as out of order.
    """
    # Of these six batches the leader has forgotten the first.
    leading = with_batches(leader(), 0, 2, 4, 6, 8, 10)
    assert outcome(leading, "a", "b", sequence=0) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    for sequence in (2, 4, 6, 8, 10):
        assert outcome(leading, "a", "b", sequence=sequence) == sequence
    assert BATCHES_TO_RETAIN == 5


@pytest.mark.parametrize(
    ("values", "sequence"),
    [
        pytest.param(("a",), 2, id="first record of the last batch"),
        pytest.param(("b",), 3, id="second record of the last batch"),
        pytest.param(("a", "b", "c"), 2, id="last batch and one more record"),
    ],
)
def test_batch_that_overlaps_others_is_no_duplicate(values: tuple[str, ...], sequence: int) -> None:
    """A batch is a duplicate only if it has exactly the sequence numbers of one earlier batch.

    The leader has two batches: one with the numbers 0 and 1, and one with the numbers 2 and 3.
    """
    leading = with_batches(leader(), 0, 2)
    assert outcome(leading, *values, sequence=sequence) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


@pytest.mark.parametrize("sequence", [1, 3, 5, LAST])
def test_batch_with_another_sequence_than_the_next_is_refused(sequence: int) -> None:
    """The log has the sequence numbers 0 to 3, so only 4 may follow."""
    leading = with_batches(leader(), 0, 2)
    assert outcome(leading, "x", sequence=sequence) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


@pytest.mark.parametrize("sequence", [0, 41, LAST])
def test_producer_without_state_may_begin_with_any_sequence(sequence: int) -> None:
    """The leader may have deleted the earlier records. Source: ProducerAppendInfo.checkSequence."""
    assert outcome(leader(), "a", sequence=sequence) == 0


def test_new_epoch_begins_at_zero_and_fences_the_old_one() -> None:
    """A producer raises its epoch after an error, and numbers its records from 0 again."""
    leading = with_batches(leader(), 0, 2)
    assert outcome(leading, "x", sequence=4, epoch=1) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert outcome(leading, "x", sequence=0, epoch=1) == 4
    # Neither the next batch nor a duplicate of the old epoch is accepted.
    assert outcome(leading, "x", sequence=4, epoch=0) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert outcome(leading, "a", "b", sequence=2, epoch=0) is ErrorCode.INVALID_PRODUCER_EPOCH
    # The batch of the new epoch is a duplicate, so its answer is its offset, 4.
    assert outcome(leading, "x", sequence=0, epoch=1) == 4


def test_sequences_wrap_to_zero() -> None:
    """The wrap to 0 may be within a batch or between two batches."""
    leading = leader()
    # The three records of the first batch have the sequence numbers LAST - 1, LAST and 0.
    assert outcome(leading, "a", "b", "c", sequence=LAST - 1) == 0
    assert last_sequence_of(numbered_batch("a", "b", "c", sequence=LAST - 1)) == 0
    assert outcome(leading, "d", sequence=1) == 3
    # The first batch is recognised as a duplicate.
    assert outcome(leading, "a", "b", "c", sequence=LAST - 1) == 0

    # Here the two records have the numbers LAST - 1 and LAST, so the next batch begins with 0.
    leading = with_batches(leader(), LAST - 1)
    assert outcome(leading, "x", sequence=1) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert outcome(leading, "x", sequence=0) == 2


def test_transactional_batch_of_a_client_needs_an_open_transaction() -> None:
    """The leader refuses a client's batch if its transaction was not verified at the coordinator.

    Without this check, the coordinator might not know that this partition is part of the
    transaction. Then the coordinator would never end the transaction here.
    """
    leading = leader()
    batch = client_batch("a", producer_id=PRODUCER, is_transactional=True)
    assert append(leading, batch).error is ErrorCode.INVALID_TXN_STATE
    assert (leading.log_end_offset, len(leading.log.producers)) == (0, 0)


def test_batch_outside_the_producers_open_transaction_is_refused() -> None:
    """While a transaction is open, its producer may write no batch outside of it.

    The transaction began in producer epoch 0, and its coordinator aborts it. A coordinator that
    aborts a transaction raises the epoch, so that late batches of the producer are fenced.
    Therefore the marker, which ends the transaction, has epoch 1. The next batch must have epoch 1,
    too, and begin with sequence number 0 again.
    """
    leading = leader()
    # The verification of a transaction returns a guard. The first batch must have this guard.
    guard = leading.log.producers.begin_verification(PRODUCER, producer_epoch=0)
    opened = leading.append_records(
        records("t"),
        required_acks=1,
        now_us=0,
        producer_id=PRODUCER,
        producer_epoch=0,
        is_transactional=True,
        verification_guard=guard,
    )
    assert opened.error is ErrorCode.NONE

    assert outcome(leading, "x", sequence=0) is ErrorCode.INVALID_TXN_STATE
    leading.append_marker(
        EndTransactionMarker(is_commit=False, coordinator_epoch=0),
        producer_id=PRODUCER,
        producer_epoch=1,
        timestamp_ms=0,
        now_us=0,
    )

    assert outcome(leading, "x", sequence=5, epoch=1) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    # The record of the transaction has the offset 0, and the marker has 1.
    assert outcome(leading, "x", sequence=0, epoch=1) == 2


def test_producer_state_is_replicated_to_the_next_leader() -> None:
    """A batch that is repeated at the next leader is neither written twice nor lost."""
    leading, following = with_batches(leader(), 0, 2), follower()
    replicate(leading, following)
    following.make_leader(
        leader_epoch=2, partition_epoch=2, replicas=leading.replicas, isr=leading.isr, now_us=0
    )
    assert outcome(following, "a", "b", sequence=2) == 2
    assert outcome(following, "x", sequence=5) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert outcome(following, "x", sequence=4) == 4


def test_truncated_batches_are_no_duplicates() -> None:
    """A truncated batch was not acknowledged, so the producer sends it again."""
    leading = with_batches(leader(), 0, 2, 4)
    leading.log.truncate_to(2)  # only the first batch is left
    assert outcome(leading, "a", "b", sequence=4) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert outcome(leading, "a", "b", sequence=0) == 0
    assert outcome(leading, "a", "b", sequence=2) == 2
    leading.log.truncate_to(0)  # the leader has forgotten the producer
    assert outcome(leading, "x", sequence=77) == 0


def test_producer_state_is_rebuilt_from_the_log_after_a_restart(tmp_path: Path) -> None:
    """The state is not kept in a separate file, because such a file could be outdated."""
    storage = FileStorage(tmp_path)
    partition_log = PartitionLog(PARTITION, storage.log(PARTITION))
    with_batches(leader(partition_log=partition_log), 0, 2, 4)
    storage.close()

    reopened_storage = FileStorage(tmp_path)
    reopened_log = PartitionLog(PARTITION, reopened_storage.log(PARTITION))
    restarted = leader(partition_log=reopened_log, leader_epoch=2)
    assert outcome(restarted, "a", "b", sequence=0) == 0
    assert outcome(restarted, "x", sequence=5) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert outcome(restarted, "x", sequence=6) == 6
    reopened_storage.close()


def test_idle_producer_is_forgotten() -> None:
    """The state of a producer expires after producer.id.expiration.ms without a batch.

    A producer with an open transaction does not expire.
    """
    leading = with_batches(leader(), 0)
    # The time counts from the timestamp of the producer's last batch.
    last_write_ms = 7  # the default of `client_batch`
    leading.log.producers.remove_expired(now_ms=last_write_ms + 999, expiration_ms=1_000)
    assert len(leading.log.producers) == 1
    leading.log.producers.remove_expired(now_ms=last_write_ms + 1_000, expiration_ms=1_000)
    assert len(leading.log.producers) == 0
    assert outcome(leading, "x", sequence=50) == 2

    transactional_producer = 8
    guard = leading.log.producers.begin_verification(transactional_producer, producer_epoch=0)
    leading.append_records(
        records("t"),
        required_acks=1,
        now_us=0,
        producer_id=transactional_producer,
        producer_epoch=0,
        is_transactional=True,
        verification_guard=guard,
    )
    long_after_ms = 10**9
    leading.log.producers.remove_expired(now_ms=long_after_ms, expiration_ms=1_000)
    assert leading.log.producers.has_ongoing_transaction(transactional_producer, producer_epoch=0)
    assert len(leading.log.producers) == 1  # PRODUCER, which has written "x", has expired again
