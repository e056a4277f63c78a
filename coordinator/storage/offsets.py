"""The offsets that a group has committed, and those that wait: for the log, or for a marker.

All of it is hard state: it changes when an append is acknowledged or a load replays the log; only
what waits for the log is soft. What a transaction committed waits until its marker says whether it
counts. With the switch `commits_apply_on_append` a commit is not prepared but written: seen from
there by whoever reads what was written last, and committed when the high watermark passes it.
Must not know groups, members or requests.
Source: Kafka `GroupMetadata` (scala), offsets part; BEHAVIOUR 4.10, 2.8.
"""

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from protocol.ids import AppendId, TopicPartition
from protocol.records.offsets import OffsetCommitValue


class CommittedOffset(msgspec.Struct, frozen=True, gc=False):
    """A stored offset and where the log has it.

    `appended_batch_offset` is the base offset of the batch that carried it: the order in the log
    decides which of two commits is newer.
    """

    appended_batch_offset: int
    value: OffsetCommitValue

    def is_older_than(self, other: "CommittedOffset") -> bool:
        """Return whether the log has this one before `other`."""
        return self.appended_batch_offset < other.appended_batch_offset


class _TransactionalOffset(NamedTuple):
    """An offset that a transaction committed. The offset is None until the log has its batch."""

    appended_batch_offset: int | None
    value: OffsetCommitValue


class _Written(NamedTuple):
    """An offset that is above the high watermark, and the append that wrote it."""

    append_id: AppendId
    value: OffsetCommitValue


class GroupOffsets:
    """Committed and pending offsets of one group, by partition."""

    def __init__(self) -> None:
        self._committed: dict[TopicPartition, CommittedOffset] = {}
        # One slot a partition: a second commit in flight overwrites the first, as in Kafka.
        self._pending: dict[TopicPartition, OffsetCommitValue] = {}
        # [J]: what is above the high watermark, oldest first; nothing pending then.
        self._written: dict[TopicPartition, list[_Written]] = {}
        # By producer id: what its open transaction committed, one slot a partition again.
        self._transactional: dict[int, dict[TopicPartition, _TransactionalOffset]] = {}

    def __len__(self) -> int:
        """Return the number of partitions with a committed offset."""
        return len(self._committed)

    @property
    def has_offsets(self) -> bool:
        """Whether anything is committed or pending: such a group is not reaped."""
        if self._written:
            return True
        return bool(self._committed) or bool(self._pending) or bool(self._transactional)

    def committed(self) -> dict[TopicPartition, CommittedOffset]:
        """Return a copy of everything committed, in the order of first commits."""
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
        """Return whether a commit of `partition` outside of transactions waits for the log."""
        return partition in self._pending or partition in self._written

    def is_unstable(self, partition: TopicPartition) -> bool:
        """Return whether a commit of `partition` waits, for the log or for a marker."""
        if partition in self._pending:
            return True
        return any(partition in pending for pending in self._transactional.values())

    def being_appended(self) -> tuple[TopicPartition, ...]:
        """Return the partitions of which a commit outside of transactions was prepared."""
        return tuple(self._pending)

    def being_appended_in_transactions(self) -> tuple[tuple[int, TopicPartition], ...]:
        """Return (producer id, partition) of commits that the log does not have yet."""
        return tuple(
            (producer_id, partition)
            for producer_id, pending in self._transactional.items()
            for partition, offset in pending.items()
            if offset.appended_batch_offset is None
        )

    def prepare(self, partition: TopicPartition, value: OffsetCommitValue) -> None:
        """Remember that `value` is being appended."""
        self._pending[partition] = value

    def append_succeeded(self, partition: TopicPartition, stored: CommittedOffset) -> bool:
        """Store what the log acknowledged and return whether it is now the committed offset.

        Nothing happens if no commit of the partition is pending (it was deleted meanwhile). Of two
        commits in flight the first leaves the second one's slot alone, and completions out of
        order cannot bring back the older value.
        """
        pending = self._pending.get(partition)
        if pending is None:
            return False
        current = self._committed.get(partition)
        newer = current is None or current.is_older_than(stored)
        if newer:
            self._committed[partition] = stored
        if pending == stored.value:
            del self._pending[partition]
        return newer

    def append_failed(self, partition: TopicPartition, value: OffsetCommitValue) -> None:
        """Forget the pending commit of `value`, unless a later one took its slot."""
        if self._pending.get(partition) == value:
            del self._pending[partition]

    # -- applied when appended --

    def write(
        self, partition: TopicPartition, append_id: AppendId, value: OffsetCommitValue
    ) -> None:
        """Take what an append writes: the newest, and not committed."""
        self._written.setdefault(partition, []).append(_Written(append_id, value))

    def write_committed(
        self, partition: TopicPartition, append_id: AppendId, base_offset: int
    ) -> None:
        """Commit what an append wrote at `base_offset`, unless something newer is committed.

        Nothing happens if it was deleted meanwhile.
        """
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
        """Forget what an append was to write; return it, None if it is not there."""
        written = self._written.get(partition, [])
        for index, each in enumerate(written):
            if each.append_id == append_id:
                del written[index]
                if not written:
                    del self._written[partition]
                return each.value
        return None

    # -- of transactions --

    def prepare_transactional(
        self, producer_id: int, partition: TopicPartition, value: OffsetCommitValue
    ) -> None:
        """Remember that `value` is being appended for the open transaction of a producer."""
        pending = self._transactional.setdefault(producer_id, {})
        pending[partition] = _TransactionalOffset(None, value)

    def transactional_append_succeeded(
        self, producer_id: int, partition: TopicPartition, stored: CommittedOffset
    ) -> None:
        """Remember where the log has what a transaction committed; from here it may be completed.

        Nothing happens if it is not pending any more, or another value took its slot.
        """
        pending = self._transactional.get(producer_id, {})
        waiting = pending.get(partition)
        if waiting is not None and waiting.value == stored.value:
            pending[partition] = _TransactionalOffset(stored.appended_batch_offset, stored.value)

    def transactional_append_failed(self, producer_id: int, partition: TopicPartition) -> None:
        """Forget what a transaction was to commit for a partition, whatever is in its slot."""
        pending = self._transactional.get(producer_id)
        if pending is not None:
            pending.pop(partition, None)
            if not pending:
                del self._transactional[producer_id]

    def has_transaction_of(self, producer_id: int) -> bool:
        """Return whether an open transaction of this producer committed anything here."""
        return producer_id in self._transactional

    def producers(self) -> tuple[int, ...]:
        """Return the producers whose open transactions committed anything here."""
        return tuple(self._transactional)

    def complete(
        self, producer_id: int, *, is_commit: bool
    ) -> dict[TopicPartition, OffsetCommitValue]:
        """End a producer's transaction as its marker says; return the offsets that count from here.

        The order in the log of what was committed decides, not that of the marker: a later commit
        outside of the transaction stays. A marker of a producer without a transaction here does
        nothing. Kafka fails where the log does not have a commit yet, and forgets it and those
        behind it: so do we.
        Source: Kafka GroupMetadata.completePendingTxnOffsetCommit.
        """
        pending = self._transactional.pop(producer_id, {})
        counted: dict[TopicPartition, OffsetCommitValue] = {}
        if not is_commit:
            return counted
        for partition, waiting in pending.items():
            if waiting.appended_batch_offset is None:
                break
            stored = CommittedOffset(waiting.appended_batch_offset, waiting.value)
            current = self._committed.get(partition)
            if current is None or current.is_older_than(stored):
                self._committed[partition] = stored
                counted[partition] = waiting.value
        return counted

    # -- removal and loading --

    def all_partitions(self) -> tuple[TopicPartition, ...]:
        """Return the partitions with an offset that is committed, written or pending."""
        pending = (name for each in self._transactional.values() for name in each)
        names = (*self._committed, *self._pending, *self._written, *pending)
        return tuple(dict.fromkeys(names))

    def expire(self, partitions: Iterable[TopicPartition]) -> tuple[TopicPartition, ...]:
        """Forget what is committed of `partitions`, and nothing that is pending; return which."""
        return tuple(name for name in partitions if self._committed.pop(name, None) is not None)

    def remove(self, partitions: Iterable[TopicPartition]) -> tuple[TopicPartition, ...]:
        """Forget what is committed and pending of `partitions`; return which had been committed.

        What is written counts as committed: a deletion stands behind it in the log.
        A transaction of which nothing is left stays open until its marker, as in Kafka.
        """
        removed = []
        for partition in partitions:
            self._pending.pop(partition, None)
            was_written = self._written.pop(partition, None) is not None
            for pending in self._transactional.values():
                pending.pop(partition, None)
            if self._committed.pop(partition, None) is not None or was_written:
                removed.append(partition)
        return tuple(removed)

    def load(self, partition: TopicPartition, stored: CommittedOffset) -> None:
        """Take what a load read: the last write of the partition."""
        self._committed[partition] = stored

    def load_transactional(
        self, producer_id: int, partition: TopicPartition, stored: CommittedOffset
    ) -> None:
        """Take what a load read of a transaction that has no marker yet."""
        pending = self._transactional.setdefault(producer_id, {})
        pending[partition] = _TransactionalOffset(stored.appended_batch_offset, stored.value)
