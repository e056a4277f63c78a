"""Idempotent producers at a leader: each batch once and in order (KIP-98), whatever is repeated."""

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
from tests.support.builders.partition_logs import B, follower, leader, log, records, replicate

PRODUCER = 7
LAST = 2**31 - 1
"""The last sequence number before 0."""


def produced(*values: str, sequence: int = 0, epoch: int = 0) -> RecordBatch:
    """Return a batch of the producer."""
    return client_batch(*values, producer_id=PRODUCER, producer_epoch=epoch, base_sequence=sequence)


def append(place: Partition, batch: RecordBatch) -> AppendInfo:
    """Append with acks=1."""
    return place.append_batch(batch, required_acks=1, now_us=0, codecs=CODECS)


def outcome(place: Partition, *values: str, sequence: int = 0, epoch: int = 0) -> ErrorCode | int:
    """Append a batch; return the error, else the offset where it stands."""
    before = place.log_end_offset
    info = append(place, produced(*values, sequence=sequence, epoch=epoch))
    if info.error is not ErrorCode.NONE or info.is_duplicate:
        assert place.log_end_offset == before
    return info.base_offset if info.error is ErrorCode.NONE else info.error


def with_batches(place: Partition, *sequences: int, epoch: int = 0) -> Partition:
    """Append a batch of two records for each sequence."""
    for sequence in sequences:
        assert isinstance(outcome(place, "a", "b", sequence=sequence, epoch=epoch), int)
    return place


def test_batches_in_sequence_are_appended() -> None:
    """The next batch begins with the number behind the last one's last record."""
    place = leader()
    assert outcome(place, "a", "b", sequence=0) == 0
    assert outcome(place, "c", sequence=2) == 2
    assert outcome(place, "d", sequence=3) == 3


def test_duplicate_is_answered_with_the_first_ones_offsets() -> None:
    """Success: the client learns the offset that its lost answer had named."""
    place = with_batches(leader(), 0, 2, 4)
    place.append_records(records("another"), required_acks=1, now_us=0)
    info = append(place, produced("a", "b", sequence=2))
    assert (info.error, info.is_duplicate) == (ErrorCode.NONE, True)
    assert (info.base_offset, info.next_offset) == (2, 4)
    assert (info.log_append_time_ms, info.log_start_offset) == (7, 0)
    assert place.log_end_offset == 7


def test_only_the_last_five_batches_are_known_as_duplicates() -> None:
    """An older one is out of order, as in Kafka 3.9: a client never has so many under way."""
    place = with_batches(leader(), *range(0, 12, 2))
    assert outcome(place, "a", "b", sequence=0) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    for sequence in range(2, 12, 2):
        assert outcome(place, "a", "b", sequence=sequence) == sequence
    assert BATCHES_TO_RETAIN == 5


@pytest.mark.parametrize(("values", "sequence"), [(("a",), 2), (("a", "b", "c"), 2), (("b",), 3)])
def test_batch_that_overlaps_others_is_no_duplicate(values: tuple[str, ...], sequence: int) -> None:
    """The whole range must be that of one batch."""
    place = with_batches(leader(), 0, 2)
    assert outcome(place, *values, sequence=sequence) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


@pytest.mark.parametrize("sequence", [1, 3, 5, LAST])
def test_batch_that_leaves_out_a_number_is_refused(sequence: int) -> None:
    """An earlier batch of the producer is still on its way, or lost."""
    place = with_batches(leader(), 0, 2)
    assert outcome(place, "x", sequence=sequence) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


@pytest.mark.parametrize("sequence", [0, 41, LAST])
def test_producer_without_state_may_begin_anywhere(sequence: int) -> None:
    """Its records may have been deleted; Source: Kafka ProducerAppendInfo.checkSequence."""
    assert outcome(leader(), "a", sequence=sequence) == 0


def test_new_epoch_begins_at_zero_and_fences_the_old_one() -> None:
    """A producer raises its epoch after an error, and numbers anew."""
    place = with_batches(leader(), 0, 2)
    assert outcome(place, "x", sequence=4, epoch=1) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert outcome(place, "x", sequence=0, epoch=1) == 4
    assert outcome(place, "x", sequence=4, epoch=0) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert outcome(place, "a", "b", sequence=2, epoch=0) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert outcome(place, "x", sequence=0, epoch=1) == 4


def test_sequences_begin_at_zero_again_behind_the_last() -> None:
    """Within a batch and between two."""
    place = leader()
    assert outcome(place, "a", "b", "c", sequence=LAST - 1) == 0
    assert last_sequence_of(produced("a", "b", "c", sequence=LAST - 1)) == 0
    assert outcome(place, "d", sequence=1) == 3
    assert outcome(place, "a", "b", "c", sequence=LAST - 1) == 0
    other = with_batches(leader(), LAST - 1)
    assert outcome(other, "x", sequence=1) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert outcome(other, "x", sequence=0) == 2


def test_transactional_batch_of_a_client_needs_an_open_transaction() -> None:
    """Nothing would end what it opens: its partition was never verified."""
    place = leader()
    batch = client_batch("a", producer_id=PRODUCER, is_transactional=True)
    assert append(place, batch).error is ErrorCode.INVALID_TXN_STATE
    assert (place.log_end_offset, len(place.log.producers)) == (0, 0)


def test_batch_outside_the_producers_open_transaction_is_refused() -> None:
    """And taken once the marker has ended it; a marker of a new epoch resets the sequences."""
    place = leader()
    guard = place.log.producers.begin_verification(PRODUCER, 0)
    opened = place.append_records(
        records("t"),
        required_acks=1,
        now_us=0,
        producer_id=PRODUCER,
        producer_epoch=0,
        is_transactional=True,
        verification_guard=guard,
    )
    assert opened.error is ErrorCode.NONE
    assert outcome(place, "x", sequence=0) is ErrorCode.INVALID_TXN_STATE
    place.append_marker(
        EndTransactionMarker(is_commit=False, coordinator_epoch=0),
        producer_id=PRODUCER,
        producer_epoch=1,
        timestamp_ms=0,
        now_us=0,
    )
    assert outcome(place, "x", sequence=5, epoch=1) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert outcome(place, "x", sequence=0, epoch=1) == 2


def test_state_travels_with_the_log_to_the_next_leader() -> None:
    """A retry across a change of leaders is neither doubled nor lost."""
    leading, following = with_batches(leader(), 0, 2), follower()
    replicate(leading, following)
    following.make_leader(
        leader_epoch=2, partition_epoch=2, replicas=leading.replicas, isr=leading.isr, now_us=0
    )
    assert outcome(following, "a", "b", sequence=2) == 2
    assert outcome(following, "x", sequence=5) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert outcome(following, "x", sequence=4) == 4


def test_truncated_batches_are_forgotten() -> None:
    """What a follower cuts off was not acknowledged: the producer sends it again, in sequence."""
    place = with_batches(leader(), 0, 2, 4)
    place.log.truncate_to(2)
    assert outcome(place, "a", "b", sequence=4) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert outcome(place, "a", "b", sequence=0) == 0
    assert outcome(place, "a", "b", sequence=2) == 2
    place.log.truncate_to(0)
    assert outcome(place, "x", sequence=77) == 0


def test_state_is_read_from_the_disk_after_a_restart(tmp_path: Path) -> None:
    """From the batches: there is no snapshot file that could be older."""
    storage = FileStorage(tmp_path)
    name = log().topic_partition
    with_batches(leader(B, PartitionLog(name, storage.log(name))), 0, 2, 4)
    storage.close()
    opened = FileStorage(tmp_path)
    again = leader(B, PartitionLog(name, opened.log(name)), leader_epoch=2)
    assert outcome(again, "a", "b", sequence=0) == 0
    assert outcome(again, "x", sequence=5) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert outcome(again, "x", sequence=6) == 6
    opened.close()


def test_producer_that_wrote_nothing_for_long_is_forgotten() -> None:
    """producer.id.expiration.ms; then it may go on anywhere, and who is in a transaction stays."""
    place = with_batches(leader(), 0)
    place.log.producers.remove_expired(now_ms=7 + 999, expiration_ms=1_000)
    assert len(place.log.producers) == 1
    place.log.producers.remove_expired(now_ms=7 + 1_000, expiration_ms=1_000)
    assert len(place.log.producers) == 0
    assert outcome(place, "x", sequence=50) == 2
    guard = place.log.producers.begin_verification(8, 0)
    place.append_records(
        records("t"),
        required_acks=1,
        now_us=0,
        producer_id=8,
        producer_epoch=0,
        is_transactional=True,
        verification_guard=guard,
    )
    place.log.producers.remove_expired(now_ms=10**9, expiration_ms=1_000)
    assert place.log.producers.has_ongoing_transaction(8, 0)
    assert len(place.log.producers) == 1
