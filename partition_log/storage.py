"""Storage: the interface of a broker's disk, with a log per partition and small checkpoint files.

`memory_storage` implements this interface in memory, `cluster.storage` with files.

An appended batch is first in the page cache, which is memory of the operating system. In the page
cache the batch survives a crash of the process, but not a power loss. A batch that was flushed to
the disk survives a power loss, too. The flush mark of a log is the number of its flushed batches. A
checkpoint survives a power loss in any case, because Kafka writes these files to the disk
immediately.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence

import msgspec

from protocol.causes import RecoveryCause
from protocol.ids import Offset, TopicPartition
from protocol.records.batch import RecordBatch


class LogRecovery(msgspec.Struct, frozen=True, kw_only=True):
    """A loss of the last batches of a log, which was found when the log was opened after a crash.

    `log_end_offset` is the end of the last batch that is left, 0 if none is left. `cut_bytes` is
    the size that the lost part had in the storage.
    """

    partition: TopicPartition
    log_end_offset: Offset
    cut_bytes: int
    cut_batches: int | None
    """Number of lost batches. None if the end of the file was half written, so that the batches
    cannot be counted."""
    cause: RecoveryCause


class LogStorage(ABC):
    """The batches of one partition in offset order, and the flush mark.

    Invariant: no batch begins before the end of its predecessor.
    Invariant: 0 <= flushed_length <= len(self).
    """

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of batches."""

    @abstractmethod
    def batch(self, index: int) -> RecordBatch:
        """Return batch `index`, counted from 0."""

    @abstractmethod
    def base_offset(self, index: int) -> int:
        """Return the base offset of batch `index` without reading the batch."""

    @abstractmethod
    def append(self, batch: RecordBatch) -> None:
        """Write `batch` after the last batch, to the page cache only."""

    @abstractmethod
    def truncate(self, length: int) -> None:
        """Remove all but the first `length` batches. The removal survives a power loss.

        The flush mark falls to `length` if it was higher.

        Raises: SimulationError if the log has fewer than `length` batches.
        """

    @abstractmethod
    def replace_prefix(self, length: int, batches: Sequence[RecordBatch]) -> None:
        """Replace the first `length` batches by `batches`, atomically.

        The new batches are flushed. A batch behind the new batches stays flushed or not flushed.

        Raises: SimulationError if the log has fewer than `length` batches.
        """

    @property
    @abstractmethod
    def flushed_length(self) -> int:
        """Number of batches that survive a power loss: the flush mark."""

    @abstractmethod
    def flush(self) -> None:
        """Write all batches to the disk, wait for the disk, and move the flush mark to the end."""

    @abstractmethod
    def write_back(self) -> None:
        """Move the flush mark to the end without waiting for the disk.

        An operating system writes its page cache to the disk by itself after some time. This method
        simulates that write.
        """


class Storage(ABC):
    """A broker's disk: one log per partition, and small named checkpoints."""

    @abstractmethod
    def log(self, partition: TopicPartition) -> LogStorage:
        """Return the log of `partition`. If it has no log yet, an empty log is created."""

    @abstractmethod
    def partitions(self) -> tuple[TopicPartition, ...]:
        """Return the partitions that have a log, by topic and partition number."""

    @abstractmethod
    def delete(self, partition: TopicPartition) -> None:
        """Delete the log of `partition` immediately, if there is such a log."""

    @abstractmethod
    def write_checkpoint(self, name: str, content: bytes) -> None:
        """Replace a small file atomically, e.g. `replication-offset-checkpoint`."""

    @abstractmethod
    def read_checkpoint(self, name: str) -> bytes | None:
        """Return a checkpoint's content, None if it was never written or cannot be read."""

    @abstractmethod
    def take_recoveries(self) -> tuple[LogRecovery, ...]:
        """Return the losses that were found since the last call, sorted by partition."""
