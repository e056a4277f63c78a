"""The offsets that a group has committed, and those that wait for the log.

All of it is hard state: it changes when an append is acknowledged or a load replays the log; only
what is pending is soft. Must not know groups, members or requests.
Source: Kafka `GroupMetadata` (scala), offsets part; BEHAVIOUR 4.10.
"""

from collections.abc import Iterable

import msgspec

from protocol.ids import TopicPartition
from protocol.offsets_records import OffsetCommitValue


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


class GroupOffsets:
    """Committed and pending offsets of one group, by partition."""

    def __init__(self) -> None:
        self._committed: dict[TopicPartition, CommittedOffset] = {}
        # One slot a partition: a second commit in flight overwrites the first, as in Kafka.
        self._pending: dict[TopicPartition, OffsetCommitValue] = {}

    def __len__(self) -> int:
        """Return the number of partitions with a committed offset."""
        return len(self._committed)

    @property
    def has_offsets(self) -> bool:
        """Whether anything is committed or pending: such a group is not reaped."""
        return bool(self._committed) or bool(self._pending)

    def committed(self) -> dict[TopicPartition, CommittedOffset]:
        """Return a copy of everything committed, in the order of first commits."""
        return dict(self._committed)

    def get(self, partition: TopicPartition) -> OffsetCommitValue | None:
        """Return the committed offset of `partition`, None if there is none."""
        stored = self._committed.get(partition)
        return None if stored is None else stored.value

    def partitions(self) -> tuple[TopicPartition, ...]:
        """Return the partitions with a committed offset."""
        return tuple(self._committed)

    def is_pending(self, partition: TopicPartition) -> bool:
        """Return whether a commit of `partition` waits for the log."""
        return partition in self._pending

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

    def all_partitions(self) -> tuple[TopicPartition, ...]:
        """Return the partitions with an offset that is committed or pending."""
        return tuple(dict.fromkeys((*self._committed, *self._pending)))

    def remove(self, partitions: Iterable[TopicPartition]) -> tuple[TopicPartition, ...]:
        """Forget what is committed and pending of `partitions`; return which had been committed."""
        removed = []
        for partition in partitions:
            self._pending.pop(partition, None)
            if self._committed.pop(partition, None) is not None:
                removed.append(partition)
        return tuple(removed)

    def load(self, partition: TopicPartition, stored: CommittedOffset) -> None:
        """Take what a load read: the last write of the partition."""
        self._committed[partition] = stored
