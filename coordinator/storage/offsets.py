"""GroupOffsets: the committed offsets of a group, and the unfinished commits.

A commit of a partition's offset is in one of four places:
- committed: the log has acknowledged it; a fetch returns it.
- pending (as in Kafka's Scala coordinator, [S]): its append is in flight.
- written (as in Kafka's Java coordinator, [J], with the switch `commits_apply_on_append`): its
  append has begun, and some in-sync replica may lack it. It is committed when the high watermark,
  the offset below which every in-sync replica has the records, has passed it.
- transactional: part of a producer's open transaction. It counts once a marker (the record that
  ends the transaction) commits the transaction.

Committed and transactional offsets are hard state: a load rebuilds them from the log. The methods
`prepare` and `append_...` change the pending offsets, `write` and `write_...` the written offsets,
and `...transactional...` and `complete` the offsets of open transactions.
This class must not know groups, members or requests.
Source: Kafka `GroupMetadata` (scala), offsets part; docs/kafka/BEHAVIOUR.md 4.10, 2.8.
"""

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from protocol.ids import AppendId, TopicPartition
from protocol.records.offsets import OffsetCommitValue


class CommittedOffset(msgspec.Struct, frozen=True, gc=False):
    """A committed offset and its place in the log.

    `appended_batch_offset` is the base offset of the batch with the commit. Of two commits the one
    that is later in the log is newer, even if its append completed first.
    """

    appended_batch_offset: int
    value: OffsetCommitValue

    def is_older_than(self, other: "CommittedOffset") -> bool:
        """Return True if this commit comes before `other` in the log."""
        return self.appended_batch_offset < other.appended_batch_offset


class _TransactionalOffset(NamedTuple):
    """An offset of an open transaction.

    `appended_batch_offset` is None while the append is in flight.
    """

    appended_batch_offset: int | None
    value: OffsetCommitValue


class _Written(NamedTuple):
    """An offset in the log above the high watermark, and the append that wrote it."""

    append_id: AppendId
    value: OffsetCommitValue


class RemovedOffsets(NamedTuple):
    """Partitions whose offsets a deletion has removed.

    - `removed`: they had a committed or written offset, and so need a tombstone.
    - `only_pending`: they had only commits that were pending or in an open transaction. As in
      Kafka, such a commit is still acknowledged, and gets no tombstone. So its offset is missing
      until the next load reads its record.
    """

    removed: tuple[TopicPartition, ...]
    only_pending: tuple[TopicPartition, ...] = ()


class GroupOffsets:
    """Committed offsets and unfinished commits of one group, by partition."""

    def __init__(self) -> None:
        self._committed: dict[TopicPartition, CommittedOffset] = {}
        # One value per partition: as in Kafka, a second commit in flight overwrites the first.
        self._pending: dict[TopicPartition, OffsetCommitValue] = {}
        # With [J] only: the written offsets of each partition, oldest first. `_pending` stays empty
        # then.
        self._written: dict[TopicPartition, list[_Written]] = {}
        # Offsets of open transactions, by producer id; one value per partition here, too.
        self._transactional: dict[int, dict[TopicPartition, _TransactionalOffset]] = {}

    def __len__(self) -> int:
        """Return the number of partitions with a committed offset."""
        return len(self._committed)

    @property
    def has_offsets(self) -> bool:
        """True if the group has any offset, finished or not.

        A group without members and without offsets is removed.
        """
        if self._written:
            return True
        return bool(self._committed) or bool(self._pending) or bool(self._transactional)

    def committed(self) -> dict[TopicPartition, CommittedOffset]:
        """Return a copy of the committed offsets, in the order of first commits."""
        return dict(self._committed)

    def get(self, partition: TopicPartition) -> OffsetCommitValue | None:
        """Return the committed offset of `partition`, None if there is none."""
        stored = self._committed.get(partition)
        return None if stored is None else stored.value

    def latest(self, partition: TopicPartition) -> OffsetCommitValue | None:
        """Return the offset of `partition` that was written last, committed or not."""
        written = self._written.get(partition)
        return written[-1].value if written else self.get(partition)

    def partitions(self) -> tuple[TopicPartition, ...]:
        """Return the partitions with a committed offset."""
        return tuple(self._committed)

    def latest_partitions(self) -> tuple[TopicPartition, ...]:
        """Return the partitions with an offset that is committed or written."""
        return tuple(dict.fromkeys((*self._committed, *self._written)))

    def is_pending(self, partition: TopicPartition) -> bool:
        """Return True if `partition` has a pending or written offset. Transactions do not count."""
        return partition in self._pending or partition in self._written

    def is_unstable(self, partition: TopicPartition) -> bool:
        """Return True if a commit of `partition` is pending, or in an open transaction.

        A fetch with `require_stable` then gets an error. A written offset does not count: with
        [J] the fetch itself waits for the high watermark.
        """
        if partition in self._pending:
            return True
        return any(partition in pending for pending in self._transactional.values())

    def being_appended(self) -> tuple[TopicPartition, ...]:
        """Return the partitions with a pending commit; used by the check of invariants."""
        return tuple(self._pending)

    def being_appended_in_transactions(self) -> tuple[tuple[int, TopicPartition], ...]:
        """Return (producer id, partition) of transactional offsets whose append is in flight."""
        return tuple(
            (producer_id, partition)
            for producer_id, pending in self._transactional.items()
            for partition, offset in pending.items()
            if offset.appended_batch_offset is None
        )

    def prepare(self, partition: TopicPartition, value: OffsetCommitValue) -> None:
        """Make `value` the pending commit of the partition: its append begins."""
        self._pending[partition] = value

    def append_succeeded(self, partition: TopicPartition, stored: CommittedOffset) -> bool:
        """Commit an acknowledged offset; return whether it is now the committed offset."""
        pending = self._pending.get(partition)
        if pending is None:
            return False  # the offset was deleted while its append was in flight
        current = self._committed.get(partition)
        # Appends may complete out of order: the older value must not replace the newer one.
        newer = current is None or current.is_older_than(stored)
        if newer:
            self._committed[partition] = stored
        # The pending value differs if a second commit has replaced it. That commit is still in
        # flight, so it stays.
        if pending == stored.value:
            del self._pending[partition]
        return newer

    def append_failed(self, partition: TopicPartition, value: OffsetCommitValue) -> None:
        """Forget the pending commit of `value`, unless a later commit has replaced it."""
        if self._pending.get(partition) == value:
            del self._pending[partition]

    # -- written offsets: applied when appended, as in Kafka's Java coordinator --

    def write(
        self, partition: TopicPartition, append_id: AppendId, value: OffsetCommitValue
    ) -> None:
        """Add an offset whose append has begun. It is the newest, and not committed yet."""
        self._written.setdefault(partition, []).append(_Written(append_id, value))

    def write_committed(
        self, partition: TopicPartition, append_id: AppendId, base_offset: int
    ) -> None:
        """Commit the offset that an append wrote at `base_offset`, unless a newer one is committed.

        Does nothing if the offset was deleted meanwhile.
        """
        # No write has failed here. `write_failed` is called because it removes the written offset.
        value = self.write_failed(partition, append_id)
        if value is None:
            return
        stored = CommittedOffset(base_offset, value)
        current = self._committed.get(partition)
        if current is None or current.is_older_than(stored):
            self._committed[partition] = stored

    def write_failed(
        self, partition: TopicPartition, append_id: AppendId
    ) -> OffsetCommitValue | None:
        """Remove and return the offset that an append had written, None if it was deleted.

        Called for a failed append, and by `write_committed` for a committed one.
        """
        written = self._written.get(partition, [])
        for index, each in enumerate(written):
            if each.append_id == append_id:
                del written[index]
                if not written:
                    del self._written[partition]
                return each.value
        return None

    # -- transactions --

    def prepare_transactional(
        self, producer_id: int, partition: TopicPartition, value: OffsetCommitValue
    ) -> None:
        """Add `value` to a producer's open transaction: its append begins."""
        pending = self._transactional.setdefault(producer_id, {})
        pending[partition] = _TransactionalOffset(None, value)

    def transactional_append_succeeded(
        self, producer_id: int, partition: TopicPartition, stored: CommittedOffset
    ) -> None:
        """Remember where the log has a transactional offset, so that a marker can complete it.

        Does nothing if the offset was removed, or replaced by a later commit of the transaction.
        """
        pending = self._transactional.get(producer_id, {})
        waiting = pending.get(partition)
        if waiting is not None and waiting.value == stored.value:
            pending[partition] = _TransactionalOffset(stored.appended_batch_offset, stored.value)

    def transactional_append_failed(self, producer_id: int, partition: TopicPartition) -> None:
        """Remove a partition's offset from an open transaction.

        As in Kafka, this removes the offset of a later commit, too, if one has replaced it.
        """
        pending = self._transactional.get(producer_id)
        if pending is not None:
            pending.pop(partition, None)
            if not pending:
                del self._transactional[producer_id]

    def has_transaction_of(self, producer_id: int) -> bool:
        """Return True if an open transaction of this producer has offsets of the group."""
        return producer_id in self._transactional

    def producers(self) -> tuple[int, ...]:
        """Return the producers whose open transactions have offsets of the group."""
        return tuple(self._transactional)

    def complete(
        self, producer_id: int, *, is_commit: bool
    ) -> dict[TopicPartition, OffsetCommitValue]:
        """End a producer's transaction by its marker; return the offsets that are now committed.

        Does nothing for a producer without an open transaction.
        Source: Kafka GroupMetadata.completePendingTxnOffsetCommit.
        """
        pending = self._transactional.pop(producer_id, {})
        counted: dict[TopicPartition, OffsetCommitValue] = {}  # the offsets that become committed
        if not is_commit:
            return counted
        for partition, waiting in pending.items():
            if waiting.appended_batch_offset is None:
                # The append is still in flight. Kafka throws here, which drops this offset and all
                # that follow it in the transaction. The offsets before it are committed.
                break
            stored = CommittedOffset(waiting.appended_batch_offset, waiting.value)
            current = self._committed.get(partition)
            # A commit outside the transaction, later in the log than this one, stays.
            if current is None or current.is_older_than(stored):
                self._committed[partition] = stored
                counted[partition] = waiting.value
        return counted

    # -- removal and loading --

    def all_partitions(self) -> tuple[TopicPartition, ...]:
        """Return the partitions with an offset in any of the four places."""
        pending = (name for each in self._transactional.values() for name in each)
        names = (*self._committed, *self._pending, *self._written, *pending)
        return tuple(dict.fromkeys(names))

    def expire(self, partitions: Iterable[TopicPartition]) -> RemovedOffsets:
        """Remove the committed offsets of `partitions`.

        Commits that are pending, written or in an open transaction stay.
        """
        return RemovedOffsets(
            tuple(name for name in partitions if self._committed.pop(name, None) is not None)
        )

    def remove(self, partitions: Iterable[TopicPartition]) -> RemovedOffsets:
        """Remove all offsets of `partitions`, also those of unfinished commits.

        As in Kafka, an open transaction stays here until its marker, even without any offset.
        """
        removed, only_pending = [], []
        for partition in partitions:
            was_pending = self._pending.pop(partition, None) is not None
            was_written = self._written.pop(partition, None) is not None
            for pending in self._transactional.values():
                was_pending = pending.pop(partition, None) is not None or was_pending
            # A written offset needs a tombstone like a committed one: the log has its record.
            if self._committed.pop(partition, None) is not None or was_written:
                removed.append(partition)
            elif was_pending:
                only_pending.append(partition)
        return RemovedOffsets(tuple(removed), tuple(only_pending))

    def load(self, partition: TopicPartition, stored: CommittedOffset) -> None:
        """Commit an offset that a load has read."""
        self._committed[partition] = stored

    def load_transactional(
        self, producer_id: int, partition: TopicPartition, stored: CommittedOffset
    ) -> None:
        """Add an offset that a load has read to a transaction without a marker."""
        pending = self._transactional.setdefault(producer_id, {})
        pending[partition] = _TransactionalOffset(stored.appended_batch_offset, stored.value)
