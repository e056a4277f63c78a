"""A load of a compacted log gives the same groups as a load of the whole log.

A coordinator loads its groups and committed offsets from the log of an offsets partition. This log
is compacted: from time to time a cleaner removes records that a newer record of the same key has
replaced. The cleaner also removes tombstones. A tombstone stays for a day after the first cleaning
that has read it, and is removed by the next cleaning after this day. A load must give the same
groups before and after each cleaning.

Hypothesis draws a list of steps: commits, deletions, transactions, and cleanings. Every batch is
written to two logs, of which only one is cleaned. After every step both logs are loaded and
compared.
"""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coordinator.group import Group
from coordinator.storage.load import Load
from partition_log.compaction import Compaction
from partition_log.invariants import check_log
from partition_log.log import PartitionLog
from partition_log.memory_storage import MemoryLogStorage
from partition_log.transaction_index import TransactionIndex
from protocol.ids import TopicPartition, offsets_partition
from protocol.records.batch import Record
from protocol.records.control import EndTransactionMarker, encode_marker
from protocol.records.offsets import (
    GroupMetadataValue,
    OffsetCommitValue,
    encode_group_metadata_key,
    encode_group_metadata_value,
    encode_offset_commit_key,
    encode_offset_commit_value,
)

NOW_MS = 1_700_000_000_000
DAY_MS = 86_400_000
# The kinds of steps. A kind that stands here twice is drawn twice as often.
KINDS = ("commit", "commit", "commit", "delete", "group", "transaction", "end", "clean", "clean")
PRODUCERS = (7, 8)
GROUPS = ("g", "h")
KEYS = tuple((group, partition) for group in GROUPS for partition in range(3))
"""The keys of all offsets that may be committed: two groups, and three partitions of a topic."""

Key = tuple[str, int]
"""The group and the partition of a committed offset, such as ("g", 2)."""


def commit(key: Key, offset: int | None) -> Record:
    """Return the record of a committed offset. Without an offset, return a tombstone."""
    group, partition = key
    value = None
    if offset is not None:
        value = encode_offset_commit_value(
            OffsetCommitValue(offset=offset, commit_timestamp_ms=NOW_MS)
        )
    return Record(encode_offset_commit_key(group, TopicPartition("t", partition)), value, NOW_MS)


def group_record(group_id: str, generation: int | None) -> Record:
    """Return the record of an Empty group. Without a generation, return a tombstone."""
    value = None
    if generation is not None:
        value = encode_group_metadata_value(
            GroupMetadataValue(
                protocol_type="consumer", generation=generation, protocol=None, leader=None
            )
        )
    return Record(encode_group_metadata_key(group_id), value, NOW_MS)


class Logs:
    """Two logs with the same batches. One of them is cleaned from time to time."""

    def __init__(self, data: st.DataObject) -> None:
        self.whole = PartitionLog(offsets_partition(0), MemoryLogStorage())
        self.cleaned = PartitionLog(offsets_partition(0), MemoryLogStorage())
        self.cleaned.is_compacted = True
        self._draw = data.draw
        self._first_dirty = 0
        """The first dirty offset, as Kafka calls it: the cleaner has read the log up to here."""
        self._now_ms = NOW_MS
        self._open_transactions: dict[int, set[Key]] = {}
        """Producer -> the keys that its open transaction has written."""
        self._step_number = 0
        """The number of the step. The records that a step writes have this number as offset or
        generation."""

    def step(self) -> None:
        """Write a batch to both logs, or clean the compacted log."""
        self._step_number += 1
        match self._draw(st.sampled_from(KINDS)):
            case "commit":
                keys = self._draw(st.lists(st.sampled_from(KEYS), min_size=1, max_size=3))
                self._append(tuple(commit(key, self._step_number) for key in keys))
            case "delete":
                self._delete(self._draw(st.sampled_from(KEYS)))
            case "group":
                group_id = self._draw(st.sampled_from(GROUPS))
                # One time in three this is None, for a tombstone.
                generation = self._draw(
                    st.sampled_from((None, self._step_number, self._step_number))
                )
                self._append((group_record(group_id, generation),))
            case "transaction":
                producer = self._draw(st.sampled_from(PRODUCERS))
                key = self._draw(st.sampled_from(KEYS))
                self._open_transactions.setdefault(producer, set()).add(key)
                self._append((commit(key, self._step_number),), producer=producer)
            case "end":
                self._end(self._draw(st.sampled_from(PRODUCERS)))
            case _:  # "clean"
                self._clean()

    def _delete(self, key: Key) -> None:
        """Write a tombstone for a committed offset, unless an open transaction has written `key`.

        With such a transaction the two loads would differ, although nothing is wrong:

        1. The log has a commit of the transaction, then the tombstone, then the marker.
        2. A load of the whole log applies the commit at the marker, so the offset exists.
        3. The cleaner removes the commit, because the tombstone is the newer record of the key. So
           a load of the compacted log has nothing to apply at the marker.
        """
        if all(key not in keys for keys in self._open_transactions.values()):
            self._append((commit(key, None),))

    def _end(self, producer: int) -> None:
        """End the producer's transaction, if it has one, by commit or abort."""
        if self._open_transactions.pop(producer, None) is not None:
            marker = EndTransactionMarker(is_commit=self._draw(st.booleans()), coordinator_epoch=0)
            self._append((encode_marker(marker, NOW_MS),), producer=producer, is_control=True)

    def _append(
        self, records: tuple[Record, ...], *, producer: int = -1, is_control: bool = False
    ) -> None:
        """Append a batch to both logs.

        If there is a producer, the batch is part of the producer's transaction.
        """
        # One append in ten begins a new leader epoch, as if another broker became leader.
        is_new_epoch = self._draw(st.integers(0, 9)) == 0
        # The high watermark may lag behind the log end by some records.
        lag = self._draw(st.sampled_from((0, 0, 1, 4)))
        for log in (self.whole, self.cleaned):
            present_epoch = max(log.latest_epoch, 0)  # the latest epoch of an empty log is -1
            log.append_as_leader(
                records,
                leader_epoch=present_epoch + 1 if is_new_epoch else present_epoch,
                producer_id=producer,
                producer_epoch=0 if producer >= 0 else -1,
                is_transactional=producer >= 0,
                is_control=is_control,
            )
            log.update_high_watermark(max(log.high_watermark, log.log_end_offset - lag))

    def _clean(self) -> None:
        """Let some time pass, and clean the compacted log up to a drawn offset."""
        # The time since the last cleaning: none, less than the retention of tombstones, or more.
        self._now_ms += self._draw(st.sampled_from((0, DAY_MS // 2, 2 * DAY_MS)))
        log = self.cleaned
        transactions = TransactionIndex(log)
        stable = transactions.last_stable_offset
        compaction = Compaction(
            log,
            transactions,
            first_dirty_offset=self._first_dirty,
            # The cleaner must not go beyond the last stable offset, where open transactions begin.
            # The first dirty offset is normally not beyond it; `min` keeps the range legal in any
            # case.
            end_offset=self._draw(st.integers(min(self._first_dirty, stable), stable)),
            now_ms=self._now_ms,
            delete_retention_ms=DAY_MS,
        )
        is_done = False
        while not is_done:
            is_done = compaction.step(200)  # read 200 bytes, which are a few batches
        result = compaction.apply()
        assert result is not None
        self._first_dirty = result.end_offset
        check_log(log)


def groups_of(log: PartitionLog) -> dict[str, object]:
    """Return the groups that a load of a log creates."""
    load = Load(0, 1)  # partition, leader epoch
    more_bytes_than_any_log = 2**62
    load.read(log.read(log.log_start_offset, more_bytes_than_any_log, up_to=log.log_end_offset))
    groups = load.finish(now_us=0)
    assert load.error is None
    return {group.group_id: visible_state(group) for group in groups}


def visible_state(group: Group) -> object:
    """Return the parts of a group that clients can observe."""
    return (
        group.state,
        group.generation_id,
        group.protocol_type,
        group.offsets.committed(),
        {partition: group.offsets.is_unstable(partition) for partition in _partitions()},
    )


def _partitions() -> list[TopicPartition]:
    return [TopicPartition("t", partition) for partition in range(3)]


@pytest.mark.slow
@settings(
    max_examples=100,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(st.data())
def test_load_of_a_compacted_log_gives_the_groups_of_the_whole_one(data: st.DataObject) -> None:
    """The two logs also have the same end and the same leader epochs."""
    logs = Logs(data)
    for _ in range(data.draw(st.integers(1, 40))):
        logs.step()
        assert groups_of(logs.cleaned) == groups_of(logs.whole)
        assert logs.cleaned.log_end_offset == logs.whole.log_end_offset
        assert logs.cleaned.epochs.entries() == logs.whole.epochs.entries()
    # End and epochs must still be equal when the compacted log is opened again from its storage.
    reopened = PartitionLog(offsets_partition(0), logs.cleaned.storage)
    assert reopened.epochs.entries() == logs.whole.epochs.entries()
    assert reopened.log_end_offset == logs.whole.log_end_offset
