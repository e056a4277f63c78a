"""GroupOffsets: the committed offsets of a group, and the commits that are not finished yet.

By default a commit is handled as in Kafka's Scala coordinator. It is *pending* while its append is
in flight (`prepare`), and becomes *committed* when the log acknowledges it (`append_succeeded`).
A fetch returns committed offsets.

With the switch `commits_apply_on_append`, a commit is handled as in Kafka's Java coordinator. It is
*written* as soon as its append begins (`write`), and a stable fetch already reads it. It becomes
committed when the high watermark has passed its record (`write_committed`). No commit is pending
then.

A commit in a producer's transaction is *transactional* (`prepare_transactional`) until the marker
arrives, the record that ends the transaction. The marker makes it committed, or drops it
(`complete`).

A load rebuilds the committed and transactional offsets from the log. This class must not know
groups, members or requests.

Source: Kafka `GroupMetadata` (scala), offsets part; docs/kafka/BEHAVIOUR.md 4.10, 2.8.
"""

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from protocol.ids import AppendId, TopicPartition
from protocol.records.offsets import OffsetCommitValue


class CommittedOffset(msgspec.Struct, frozen=True, gc=False):
    """A committed offset and its place in the log.

    `appended_batch_offset` is the base offset of the batch that has the commit's record. If there
    are two commits of a partition, the commit that is later in the log is the newer one. The order
    in which the appends completed says nothing.
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
    """A written offset (see the module), and the append that writes it to the log."""

    append_id: AppendId
    value: OffsetCommitValue


class RemovedOffsets(NamedTuple):
    """Partitions whose offsets a deletion has removed from memory.

    - `removed`: partitions with a committed or written offset. The log has these offsets, so the
      caller must append tombstones for them.
    - `only_pending`: partitions with only a pending or transactional offset. As in Kafka, no
      tombstone is appended, and the client's commit is answered without an error. The offset is
      missing until the next load, which reads the commit's record from the log.
    """

    removed: tuple[TopicPartition, ...]
    only_pending: tuple[TopicPartition, ...] = ()


class GroupOffsets:
    """Committed offsets and unfinished commits of one group, by partition.

    The module's docstring explains the words committed, pending, written and transactional.
    """

    def __init__(self) -> None:
        self._committed: dict[TopicPartition, CommittedOffset] = {}
        # If a partition has two commits in flight, the dict has only the second commit, as in
        # Kafka.
        self._pending: dict[TopicPartition, OffsetCommitValue] = {}
        # The written offsets of each partition, oldest first.
        self._written: dict[TopicPartition, list[_Written]] = {}
        # Producer id -> the offsets of its open transaction. A later commit of a partition in the
        # same transaction replaces the earlier one.
        self._transactional: dict[int, dict[TopicPartition, _TransactionalOffset]] = {}

    def __len__(self) -> int:
        """Return the number of partitions with a committed offset."""
        return len(self._committed)

    @property
    def has_offsets(self) -> bool:
        """True if the group has any offset: committed, pending, written or transactional.

        A group that has neither members nor offsets is removed.
        """
        if self._written:
            return True
        return bool(self._committed) or bool(self._pending) or bool(self._transactional)

    def committed(self) -> dict[TopicPartition, CommittedOffset]:
        """Return a copy of the committed offsets, in the order of each partition's first commit."""
        return dict(self._committed)

    def get(self, partition: TopicPartition) -> OffsetCommitValue | None:
        """Return the committed offset of `partition`, None if there is none."""
        stored = self._committed.get(partition)
        return None if stored is None else stored.value

    def latest(self, partition: TopicPartition) -> OffsetCommitValue | None:
        """Return the newest offset of `partition` that is written or committed."""
        written = self._written.get(partition)
        return written[-1].value if written else self.get(partition)

    def partitions(self) -> tuple[TopicPartition, ...]:
        """Return the partitions with a committed offset."""
        return tuple(self._committed)

    def latest_partitions(self) -> tuple[TopicPartition, ...]:
        """Return the partitions with an offset that is committed or written."""
        return tuple(dict.fromkeys((*self._committed, *self._written)))

    def is_pending(self, partition: TopicPartition) -> bool:
        """Return True if `partition` has a pending or written offset.

        Transactional offsets do not count.
        """
        return partition in self._pending or partition in self._written

    def is_unstable(self, partition: TopicPartition) -> bool:
        """Return True if `partition` has a pending or transactional offset.

        A fetch with `require_stable` then gets an error. A written offset needs no error: the fetch
        returns it, and its answer is held until the high watermark has passed the record.
        """
        if partition in self._pending:
            return True
        return any(partition in pending for pending in self._transactional.values())

    def being_appended(self) -> tuple[TopicPartition, ...]:
        """Return the partitions with a pending offset. Only the check of invariants calls this."""
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
        """Make `value` the pending offset of the partition, because its append begins."""
        self._pending[partition] = value

    def append_succeeded(self, partition: TopicPartition, stored: CommittedOffset) -> bool:
        """Finish a pending commit whose append was acknowledged.

        Return True if the offset is now the committed one. The result is False if the offset was
        deleted meanwhile, or if a newer offset is committed already.
        """
        pending = self._pending.get(partition)
        if pending is None:
            return False  # the offset was deleted while its append was in flight
        current = self._committed.get(partition)
        # The order in which appends complete may differ from the order of their batches in the log.
        # An older offset must not replace a newer one.
        newer = current is None or current.is_older_than(stored)
        if newer:
            self._committed[partition] = stored
        # If a second commit of the partition is in flight, the pending offset is the offset of the
        # second commit. Then the pending offset stays.
        if pending == stored.value:
            del self._pending[partition]
        return newer

    def append_failed(self, partition: TopicPartition, value: OffsetCommitValue) -> None:
        """Forget the pending offset `value`. The pending offset of a later commit stays."""
        if self._pending.get(partition) == value:
            del self._pending[partition]

    # -- written offsets: applied when appended, as in Kafka's Java coordinator --

    def write(
        self, partition: TopicPartition, append_id: AppendId, value: OffsetCommitValue
    ) -> None:
        """Add an offset whose append begins."""
        self._written.setdefault(partition, []).append(_Written(append_id, value))

    def write_committed(
        self, partition: TopicPartition, append_id: AppendId, base_offset: int
    ) -> None:
        """Commit a written offset, because the high watermark has passed its batch.

        If a newer offset is committed already, the written offset is dropped. If the written offset
        was deleted meanwhile, nothing is done. `base_offset` is the base offset of the batch.
        """
        # The write has not failed. `write_failed` is called because it does what is needed here,
        # too: it removes and returns the written offset.
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
        """Remove and return the written offset of an append, None if it was deleted meanwhile."""
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
        """Add an offset to a producer's open transaction, because its append begins."""
        pending = self._transactional.setdefault(producer_id, {})
        pending[partition] = _TransactionalOffset(None, value)

    def transactional_append_succeeded(
        self, producer_id: int, partition: TopicPartition, stored: CommittedOffset
    ) -> None:
        """Note at which place the log has a transactional offset. Now a marker can commit it.

        Does nothing if the offset was removed, or replaced by a later commit of the transaction.
        """
        pending = self._transactional.get(producer_id, {})
        waiting = pending.get(partition)
        if waiting is not None and waiting.value == stored.value:
            pending[partition] = _TransactionalOffset(stored.appended_batch_offset, stored.value)

    def transactional_append_failed(self, producer_id: int, partition: TopicPartition) -> None:
        """Remove a partition's offset from an open transaction, because its append has failed.

        If a later commit of the transaction has replaced this offset, the offset of the later
        commit is removed, as in Kafka.
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
        """End a producer's transaction, because its marker has arrived.

        If the transaction commits, return the offsets that became committed by it. There are none
        if the transaction aborts, or if the producer has no open transaction here.

        Source: Kafka GroupMetadata.completePendingTxnOffsetCommit.
        """
        pending = self._transactional.pop(producer_id, {})
        counted: dict[TopicPartition, OffsetCommitValue] = {}  # the result
        if not is_commit:
            return counted
        for partition, waiting in pending.items():
            if waiting.appended_batch_offset is None:
                # The append of this offset is still in flight. Kafka throws an exception here: the
                # offsets before this one stay committed. This offset and the offsets after it are
                # lost.
                break
            stored = CommittedOffset(waiting.appended_batch_offset, waiting.value)
            current = self._committed.get(partition)
            # A commit outside the transaction may be later in the log. Then it is newer than this
            # offset, and stays.
            if current is None or current.is_older_than(stored):
                self._committed[partition] = stored
                counted[partition] = waiting.value
        return counted

    # -- removal and loading --

    def all_partitions(self) -> tuple[TopicPartition, ...]:
        """Return the partitions with any offset: committed, pending, written or transactional."""
        # Here `pending` has the partitions of open transactions.
        pending = (name for each in self._transactional.values() for name in each)
        names = (*self._committed, *self._pending, *self._written, *pending)
        return tuple(dict.fromkeys(names))

    def expire(self, partitions: Iterable[TopicPartition]) -> RemovedOffsets:
        """Remove the committed offsets of `partitions`. All other offsets stay."""
        return RemovedOffsets(
            tuple(name for name in partitions if self._committed.pop(name, None) is not None)
        )

    def remove(self, partitions: Iterable[TopicPartition]) -> RemovedOffsets:
        """Remove all offsets of `partitions`, also those of unfinished commits.

        An open transaction stays registered until its marker arrives, as in Kafka, even if all its
        offsets are removed.
        """
        removed, only_pending = [], []
        for partition in partitions:
            was_pending = self._pending.pop(partition, None) is not None
            was_written = self._written.pop(partition, None) is not None
            for pending in self._transactional.values():
                # `pop` stands first, because it must run even if `was_pending` is True already.
                was_pending = pending.pop(partition, None) is not None or was_pending
            # The log has the record of a written offset. So a written offset needs a tombstone,
            # like a committed offset.
            if self._committed.pop(partition, None) is not None or was_written:
                removed.append(partition)
            elif was_pending:
                only_pending.append(partition)
        return RemovedOffsets(tuple(removed), tuple(only_pending))

    def load(self, partition: TopicPartition, stored: CommittedOffset) -> None:
        """Add a committed offset that a load has read from the log."""
        self._committed[partition] = stored

    def load_transactional(
        self, producer_id: int, partition: TopicPartition, stored: CommittedOffset
    ) -> None:
        """Add an offset that a load has read from a transaction whose marker is still missing."""
        pending = self._transactional.setdefault(producer_id, {})
        pending[partition] = _TransactionalOffset(stored.appended_batch_offset, stored.value)
