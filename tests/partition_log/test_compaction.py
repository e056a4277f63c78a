"""Compaction: the records, tombstones and transactions that remain after a cleaning.

A cleaning keeps the last record of each key. For example, of the records a=1, b=1, a=2, at the
offsets 0, 1 and 2, a cleaning keeps b=1 and a=2. A tombstone is a record without a value, and
deletes its key. The tombstone itself remains for `delete_retention_ms`, here a day, and is removed
after that. A marker, which ends a transaction, also remains for this time. A cleaning stops where
the oldest open transaction begins.

In the tests `write("a=1", "b=")` appends a batch with the record a=1 and a tombstone of b.
`remaining()` returns the records in the log with their offsets, such as `["0 a=1", "1 b="]`.
"""

import pytest

from cluster.storage.compression import CODECS
from partition_log.batches import build_batch, check_batch
from partition_log.compaction import Compaction, CompactionResult
from partition_log.invariants import check_agreement, check_log, last_records
from partition_log.invariants_of_cleaning import check_cleaning
from partition_log.log import PartitionLog
from partition_log.memory_storage import MemoryLogStorage
from partition_log.transaction_index import TransactionIndex
from protocol.compression import NO_CODECS
from protocol.errors import ErrorCode
from protocol.records.batch import Record, RecordBatch, payload_of, records_of
from protocol.records.control import EndTransactionMarker, encode_marker
from protocol.records.kafka_format import decode_batches, encode_batch
from tests.support.builders.client_batches import client_batch
from tests.support.builders.partition_logs import PARTITION

DAY_MS = 86_400_000
NOW_MS = 1_700_000_000_000
PRODUCER = 7
OTHER_PRODUCER = 8
"""The ids of two producers that write in transactions."""
WHOLE_LOG_BYTES = 2**40
"""A step of a cleaning that may read this number of bytes reads the whole log."""


class CleanedLog:
    """A compacted log, with methods that append records to the log and clean the log."""

    def __init__(self) -> None:
        self.log = PartitionLog(PARTITION, MemoryLogStorage())
        self.log.is_compacted = True
        self.now_ms = NOW_MS
        self.first_dirty = 0  # the first offset that no cleaning has read yet
        self.leader_epoch = 0  # the leader epoch of the next append
        self.codecs = NO_CODECS  # most tests have no compressed batch

    def write(self, *keys_and_values: str, producer: int = -1) -> None:
        """Append a batch of `key=value` records. `key=` is a tombstone.

        If `producer` is the id of a producer, the batch belongs to a transaction of this producer.
        The default, -1, means that the batch has no producer id and is in no transaction.
        """
        records = []
        for key_and_value in keys_and_values:
            key, _, value = key_and_value.partition("=")
            records.append(Record(key.encode(), value.encode() or None, self.now_ms))
        self.log.append_as_leader(
            tuple(records),
            leader_epoch=self.leader_epoch,
            producer_id=producer,
            producer_epoch=0 if producer >= 0 else -1,
            is_transactional=producer >= 0,
        )
        self.commit_all()

    def append_marker(self, *, is_commit: bool, producer: int = PRODUCER) -> None:
        """Append the marker of a producer's transaction."""
        marker = EndTransactionMarker(is_commit=is_commit, coordinator_epoch=0)
        self.log.append_as_leader(
            (encode_marker(marker, self.now_ms),),
            leader_epoch=self.leader_epoch,
            producer_id=producer,
            producer_epoch=0,
            is_transactional=True,
            is_control=True,
        )
        self.commit_all()

    def commit_all(self) -> None:
        """Advance the high watermark to the log end."""
        self.log.update_high_watermark(self.log.log_end_offset)

    def clean(
        self, end: int | None = None, *, step_bytes: int = WHOLE_LOG_BYTES
    ) -> CompactionResult:
        """Clean up to the last stable offset, or to `end`, and check the result.

        The last stable offset is the offset at which the oldest open transaction begins. A cleaning
        has one or more steps, each of which reads up to `step_bytes`. By default one step reads the
        whole log.
        """
        batches_before = self.batches()
        last_records_before = last_records(self.log, self.log.log_end_offset, self.codecs)
        transactions = TransactionIndex(self.log)
        compaction = Compaction(
            self.log,
            transactions,
            first_dirty_offset=self.first_dirty,
            end_offset=transactions.last_stable_offset if end is None else end,
            now_ms=self.now_ms,
            delete_retention_ms=DAY_MS,
            codecs=self.codecs,
        )
        while not compaction.step(step_bytes):
            pass
        result = compaction.apply()
        assert result is not None
        self.first_dirty = result.end_offset
        check_log(self.log)
        cleaned_count = sum(batch.next_offset <= result.end_offset for batch in batches_before)
        check_cleaning(
            PARTITION,
            batches_before,
            cleaned_count,
            [batch for batch in self.batches() if batch.next_offset <= result.end_offset],
            now_ms=self.now_ms,
            delete_retention_ms=DAY_MS,
            codecs=self.codecs,
        )
        # The last record of each key is still there.
        last_records_after = last_records(self.log, self.log.log_end_offset, self.codecs)
        assert last_records_after == last_records_before
        return result

    def batches(self) -> list[RecordBatch]:
        """Return all batches of the log."""
        return [self.log.storage.batch(index) for index in range(len(self.log.storage))]

    def remaining(self) -> list[str]:
        """Return the log's records, such as "3 c=1" at offset 3, and its markers, "4 marker"."""
        remaining = []
        for batch in self.batches():
            assert check_batch(batch) is ErrorCode.NONE
            for offset, record in records_of(batch, self.codecs):
                if batch.is_control:
                    remaining.append(f"{offset} marker")
                else:
                    key = record.key or b""
                    value = record.value or b""
                    remaining.append(f"{offset} {key.decode()}={value.decode()}")
        return remaining

    def reopened(self) -> PartitionLog:
        """Return the log as a restarted broker opens it."""
        return PartitionLog(PARTITION, self.log.storage, high_watermark=self.log.high_watermark)


def test_last_record_of_each_key_keeps_its_offset() -> None:
    """A cleaning does not change offsets. The removed records leave holes."""
    cleaned = CleanedLog()
    cleaned.write("a=1", "b=1")
    cleaned.write("a=2", "c=1", "a=3")
    cleaned.write("b=2")
    end_before = cleaned.log.log_end_offset
    result = cleaned.clean()
    assert cleaned.remaining() == ["3 c=1", "4 a=3", "5 b=2"]
    assert (cleaned.log.log_start_offset, cleaned.log.log_end_offset) == (0, end_before)
    assert (result.records_before, result.records_after, result.end_offset) == (6, 3, 6)
    assert result.bytes_after < result.bytes_before


def test_cleaning_up_to_an_offset_keeps_the_records_behind_it() -> None:
    """A cleaning up to offset 2 does not read a=3, so a=3 does not replace a=2 yet.

    In Kafka a cleaning also has such an end: it stops before the active segment, which is the file
    to which records are still appended.
    """
    cleaned = CleanedLog()
    cleaned.write("a=1")
    cleaned.write("a=2")
    cleaned.write("a=3")
    cleaned.clean(end=2)
    assert cleaned.remaining() == ["1 a=2", "2 a=3"]
    cleaned.clean(end=3)
    assert cleaned.remaining() == ["2 a=3"]


def test_later_cleaning_also_reads_the_cleaned_part() -> None:
    """The records a=1 and b=1 survive the first cleaning. The second cleaning removes them.

    Between the cleanings, later records of the keys a and b are written.
    """
    cleaned = CleanedLog()
    cleaned.write("a=1", "b=1", "c=1")
    cleaned.clean()
    cleaned.write("b=2")
    cleaned.write("a=2", "d=1")
    cleaned.clean()
    assert cleaned.remaining() == ["2 c=1", "3 b=2", "4 a=2", "5 d=1"]
    # A third cleaning, without any write since the second, has nothing to remove.
    cleaned.clean()
    assert cleaned.remaining() == ["2 c=1", "3 b=2", "4 a=2", "5 d=1"]


def test_tombstone_is_kept_for_the_retention_after_the_first_cleaning() -> None:
    """The tombstone of a stays for a day after the first cleaning that has read it (KIP-534).

    During this day every reader of the log can learn from the tombstone that a was deleted.
    """
    cleaned = CleanedLog()
    cleaned.write("a=1", "b=1")
    cleaned.write("a=")
    cleaned.clean()
    assert cleaned.remaining() == ["1 b=1", "2 a="]

    cleaned.now_ms += DAY_MS - 1
    cleaned.write("c=1")
    cleaned.clean()
    assert cleaned.remaining() == ["1 b=1", "2 a=", "3 c=1"]

    cleaned.now_ms += 1
    cleaned.write("d=1")
    cleaned.clean()
    assert cleaned.remaining() == ["1 b=1", "3 c=1", "4 d=1"]


def test_key_that_was_deleted_and_written_again_is_kept() -> None:
    """The later record replaces the tombstone, so the tombstone is removed before its day ends."""
    cleaned = CleanedLog()
    cleaned.write("a=1")
    cleaned.write("a=")
    cleaned.write("a=2")
    cleaned.clean()
    assert cleaned.remaining() == ["2 a=2"]


def test_record_without_key_is_removed() -> None:
    """A compacted topic should have no record without a key. Kafka's cleaner removes such records.

    The record at offset 0 has no key here.
    """
    cleaned = CleanedLog()
    cleaned.log.append_as_leader((Record(None, b"v", NOW_MS),), leader_epoch=0)
    cleaned.write("a=1")
    cleaned.clean()
    assert cleaned.remaining() == ["1 a=1"]


def test_first_batch_of_each_leader_epoch_is_kept_without_records() -> None:
    """A restarted replica learns from its batches where the log and each leader epoch begin.

    So a cleaning may remove the records of an epoch's first batch, but the empty batch remains.
    """
    cleaned = CleanedLog()
    # The epochs 0, 2 and 5 begin at the offsets 0, 2 and 4.
    for epoch in (0, 2, 5):
        cleaned.leader_epoch = epoch
        cleaned.write("a=1")
        cleaned.write("a=2")
    epochs = cleaned.log.epochs.entries()
    cleaned.clean()
    assert cleaned.remaining() == ["5 a=2"]

    offsets_and_counts = [(batch.base_offset, batch.record_count) for batch in cleaned.batches()]
    assert offsets_and_counts == [(0, 0), (2, 0), (4, 0), (5, 1)]

    reopened = cleaned.reopened()
    assert reopened.epochs.entries() == epochs
    assert (reopened.log_start_offset, reopened.log_end_offset) == (0, 6)

    cleaned.write("b=1")
    cleaned.clean()
    assert cleaned.remaining() == ["5 a=2", "6 b=1"]


def test_aborted_transaction_is_removed_and_replaces_no_record() -> None:
    """A record of an aborted transaction does not replace an earlier record, so a=1 stays.

    The marker of the aborted transaction stays for some time, which the comments below explain.
    """
    cleaned = CleanedLog()
    cleaned.write("a=1")
    cleaned.write("a=aborted", "b=aborted", producer=PRODUCER)
    cleaned.append_marker(is_commit=False)
    cleaned.write("c=1")
    cleaned.clean()
    # The marker stays. The day after which the marker is removed has not begun yet. This day begins
    # only when a cleaning finds no batch of the marker's transaction.
    assert cleaned.remaining() == ["0 a=1", "3 marker", "4 c=1"]

    # The batch of the transaction is still in the log, although it has no records any more: as the
    # last batch of its producer, it shows the producer's epoch. So the marker remains until the
    # producer has written another batch.
    cleaned.now_ms += 10 * DAY_MS  # long after the retention
    cleaned.write("d=txn", producer=PRODUCER)
    cleaned.append_marker(is_commit=True)
    cleaned.write("c=2")
    cleaned.clean()
    assert cleaned.remaining() == ["0 a=1", "3 marker", "5 d=txn", "6 marker", "7 c=2"]

    # This cleaning finds no batch of the marker's transaction any more, so the day begins.
    cleaned.write("c=3")
    cleaned.clean()
    assert "3 marker" in cleaned.remaining()

    cleaned.now_ms += DAY_MS
    cleaned.write("c=4")
    cleaned.clean()
    assert cleaned.remaining() == ["0 a=1", "5 d=txn", "6 marker", "9 c=4"]


def test_committed_transaction_is_ordered_by_the_offsets_of_its_records() -> None:
    """The last record of a key is the record with the largest offset.

    The offset of the marker does not matter. So a=plain, at 2, is later than a=txn, at 0, although
    the marker commits the transaction of a=txn only at 3.
    """
    cleaned = CleanedLog()
    cleaned.write("a=txn", "b=txn", producer=PRODUCER)
    cleaned.write("a=plain")
    cleaned.append_marker(is_commit=True)
    cleaned.write("d=1")
    cleaned.clean()
    assert cleaned.remaining() == ["1 b=txn", "2 a=plain", "3 marker", "4 d=1"]


def test_marker_is_kept_while_its_transaction_has_records() -> None:
    """If the marker were removed before the records, a reader would see an open transaction."""
    cleaned = CleanedLog()
    cleaned.write("a=txn", producer=PRODUCER)
    cleaned.append_marker(is_commit=True)
    cleaned.write("b=1")
    cleaned.clean()
    cleaned.now_ms += 10 * DAY_MS
    cleaned.write("c=1")
    cleaned.clean()
    assert cleaned.remaining() == ["0 a=txn", "1 marker", "2 b=1", "3 c=1"]


def test_marker_is_kept_with_the_empty_last_batch_of_its_producer() -> None:
    """The last batch of a producer stays without records, because it has the producer's epoch.

    The marker of the batch's transaction stays, too, even for longer than a day. So a log that is
    opened again knows the producer.
    """
    cleaned = CleanedLog()
    cleaned.write("first=1")
    cleaned.write("a=txn", producer=PRODUCER)
    cleaned.append_marker(is_commit=True)
    cleaned.write("a=plain")
    cleaned.clean()
    assert cleaned.remaining() == ["0 first=1", "2 marker", "3 a=plain"]
    assert len(cleaned.reopened().producers) == 1

    for _ in range(3):
        cleaned.now_ms += DAY_MS
        cleaned.write("b=1")
        cleaned.clean()
    assert "2 marker" in cleaned.remaining()
    assert len(cleaned.reopened().producers) == 1


def test_open_transaction_limits_the_cleaning() -> None:
    """An open transaction may still commit or abort, so its records are not cleaned yet.

    The first cleaning ends at 2, where the open transaction of PRODUCER begins.
    """
    cleaned = CleanedLog()
    cleaned.write("a=1")
    cleaned.write("a=2")
    cleaned.write("a=open", producer=PRODUCER)
    cleaned.write("a=other", producer=OTHER_PRODUCER)
    cleaned.append_marker(is_commit=False, producer=OTHER_PRODUCER)
    cleaned.write("a=3")
    assert TransactionIndex(cleaned.log).last_stable_offset == 2
    cleaned.clean()
    assert cleaned.remaining() == ["1 a=2", "2 a=open", "3 a=other", "4 marker", "5 a=3"]

    cleaned.append_marker(is_commit=True)
    cleaned.write("z=1")
    assert TransactionIndex(cleaned.log).last_stable_offset == cleaned.log.log_end_offset
    cleaned.clean()
    assert cleaned.remaining() == ["4 marker", "5 a=3", "6 marker", "7 z=1"]


def test_transaction_whose_marker_is_not_committed_counts_as_open() -> None:
    """A marker above the high watermark may still be truncated, so the transaction is not over."""
    cleaned = CleanedLog()
    cleaned.write("a=1")
    cleaned.write("a=txn", producer=PRODUCER)
    cleaned.append_marker(is_commit=False)
    cleaned.log.update_high_watermark(2)
    index = TransactionIndex(cleaned.log)
    assert index.last_stable_offset == 1
    assert index.counts(cleaned.log.storage.batch(1)) is None  # neither committed nor aborted yet

    cleaned.commit_all()
    index = TransactionIndex(cleaned.log)
    assert index.last_stable_offset == 3
    assert index.is_aborted(cleaned.log.storage.batch(1))


def test_aborted_record_is_removed_even_if_its_marker_is_behind_the_cleaned_part() -> None:
    """The cleaning ends at 2, where an open transaction begins.

    The cleaning removes the aborted record at 1, because it also looks at the marker at 3.
    """
    cleaned = CleanedLog()
    cleaned.write("a=1")
    cleaned.write("a=aborted", producer=PRODUCER)
    cleaned.write("b=open", producer=OTHER_PRODUCER)
    cleaned.append_marker(is_commit=False)
    assert TransactionIndex(cleaned.log).last_stable_offset == 2
    cleaned.clean()
    assert cleaned.remaining() == ["0 a=1", "2 b=open", "3 marker"]


@pytest.mark.parametrize("step_bytes", [1, 100, 1_000])
def test_cleaning_in_steps_has_the_result_of_one_cleaning(step_bytes: int) -> None:
    """A broker cleans in steps of some bytes, so that it can serve requests between the steps."""
    at_once, in_steps = CleanedLog(), CleanedLog()
    for cleaned in (at_once, in_steps):
        for number in range(30):
            # Values for the keys k0 to k6 in turn, and tombstones of x0 to x2 in turn.
            cleaned.write(f"k{number % 7}={number}", f"x{number % 3}=")
        cleaned.write("a=aborted", producer=PRODUCER)
        cleaned.append_marker(is_commit=False)
    assert at_once.clean() == in_steps.clean(step_bytes=step_bytes)
    assert at_once.remaining() == in_steps.remaining()


def test_cleaning_of_a_log_that_was_truncated_during_it_changes_nothing() -> None:
    """The cleaning has read batches that are no longer in the log, so it must give up."""
    cleaned = CleanedLog()
    cleaned.write("a=1")
    cleaned.write("a=2")
    compaction = Compaction(
        cleaned.log,
        TransactionIndex(cleaned.log),
        first_dirty_offset=0,
        end_offset=2,
        now_ms=NOW_MS,
        delete_retention_ms=DAY_MS,
    )
    assert compaction.step(WHOLE_LOG_BYTES)

    cleaned.log.truncate_to(1)
    assert compaction.apply() is None
    # Now the log has its former length again, but another batch at 1.
    cleaned.write("a=other")
    assert compaction.apply() is None
    assert cleaned.remaining() == ["0 a=1", "1 a=other"]


def test_cleaning_without_cleanable_batches_changes_nothing() -> None:
    """A log that has only its active segment is cleaned up to 0, that is, not at all."""
    cleaned = CleanedLog()
    cleaned.write("a=1")
    result = cleaned.clean(end=0)
    assert (result.records_before, result.end_offset) == (0, 0)
    assert cleaned.remaining() == ["0 a=1"]


def test_replicas_that_were_cleaned_at_different_times_agree() -> None:
    """Each broker cleans its own replica.

    All replicas must have the same last record of each key.
    """
    cleaned_to_the_end, cleaned_to_1 = CleanedLog(), CleanedLog()
    for cleaned in (cleaned_to_the_end, cleaned_to_1):
        cleaned.write("a=1", "b=1")
        cleaned.write("a=2", "c=")
        cleaned.write("a=aborted", producer=PRODUCER)
        cleaned.append_marker(is_commit=False)
        cleaned.write("b=3")
    cleaned_to_the_end.clean()
    cleaned_to_1.clean(end=1)
    check_agreement((cleaned_to_the_end.log, cleaned_to_1.log))
    # The second log still has older records of some keys, which do not count.
    assert cleaned_to_the_end.remaining() != cleaned_to_1.remaining()


@pytest.mark.parametrize("compression", [0, 1, 4], ids=["none", "gzip", "zstd"])
def test_batches_of_real_clients_are_cleaned_record_by_record(compression: int) -> None:
    """A real client's batch is in Kafka's own format, and may be compressed.

    Here the log has such a batch between batches in our format. A record that stays keeps its
    bytes.
    """
    cleaned = CleanedLog()
    cleaned.write("a=1", "k0=old")

    records = tuple(Record(b"k%d" % number, b"v%d" % number, NOW_MS) for number in range(3))
    in_our_format = build_batch(records, compression=compression, codecs=CODECS)
    # Encoding and decoding turn the batch into a batch in Kafka's format, as a client sends it.
    (sent,) = decode_batches(encode_batch(in_our_format, CODECS))
    placed = cleaned.log.append_batch_as_leader(sent, leader_epoch=0)
    cleaned.write("k1=new")
    cleaned.write("end=1")

    cleaned.codecs = CODECS
    result = cleaned.clean(end=6)
    assert cleaned.remaining() == ["0 a=1", "2 k0=v0", "4 k2=v2", "5 k1=new", "6 end=1"]
    assert result.records_after == 4  # the cleaning did not reach the record at 6

    kept = cleaned.log.storage.batch(1)
    assert (kept.base_offset, kept.last_offset, kept.record_count) == (2, 4, 2)
    (read,) = decode_batches(encode_batch(kept))
    assert records_of(read, CODECS) == [(2, records[0]), (4, records[2])]
    # Two of the three records stay. All records have the same length, so each half of the new
    # payload is one record. Its bytes were also in the old payload.
    payload_before = payload_of(placed, CODECS)
    payload_after = payload_of(kept, CODECS)
    assert len(payload_before) - len(payload_after) == len(payload_before) // 3
    middle = len(payload_after) // 2
    assert payload_after[:middle] in payload_before
    assert payload_after[middle:] in payload_before


def test_cleaned_batch_of_an_idempotent_producer_keeps_its_sequences() -> None:
    """A restarted leader learns each producer's last sequence number from the batches (KIP-98).

    So the producer's last batch, at 2, stays without its record.
    """
    cleaned = CleanedLog()
    for sequence in range(3):
        cleaned.log.append_batch_as_leader(
            client_batch("same", producer_id=PRODUCER, base_sequence=sequence), leader_epoch=0
        )
    cleaned.commit_all()
    cleaned.write("same=last")
    cleaned.write("end=1")
    cleaned.clean(end=4)

    # The batch at 1 is gone. The batch at 0 stays, because it is the first batch of its leader
    # epoch.
    offsets_and_counts = [(batch.base_offset, batch.record_count) for batch in cleaned.batches()]
    assert offsets_and_counts == [(0, 0), (2, 0), (3, 1), (4, 1)]

    producers = cleaned.reopened().producers
    repeated = client_batch("same", producer_id=PRODUCER, base_sequence=2)
    duplicate = producers.find_duplicate(repeated)
    assert duplicate is not None
    assert duplicate.first_offset == 2
    following = client_batch("next", producer_id=PRODUCER, base_sequence=3)
    assert producers.check_produced(following) is ErrorCode.NONE


def test_aborted_records_of_an_expired_producer_do_not_count() -> None:
    """The log forgets the producer's state, but still has the marker of the abort."""
    cleaned = CleanedLog()
    cleaned.write("a=1")
    cleaned.write("a=2", producer=PRODUCER)
    cleaned.append_marker(is_commit=False)
    cleaned.log.producers.remove_expired(now_ms=NOW_MS + DAY_MS, expiration_ms=1)
    assert len(cleaned.log.producers) == 0
    _offset, last_record = last_records(cleaned.log, cleaned.log.log_end_offset)[b"a"]
    assert last_record.value == b"1"
