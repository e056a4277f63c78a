"""Storage: the interface of a broker's disk, with a log per partition and small checkpoint files.

`memory_storage` implements it in memory, `cluster.storage` with files. An appended batch is in the
page cache (the operating system's memory): it survives a crash of the process, and is lost by a
power loss unless it was flushed. The *flush mark* is the number of batches of a log that are
flushed. A checkpoint survives a crash and a power loss, because Kafka writes these files to the
disk immediately.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence

import msgspec

from protocol.causes import RecoveryCause
from protocol.ids import Offset, TopicPartition
from protocol.records.batch import RecordBatch


class LogRecovery(msgspec.Struct, frozen=True, kw_only=True):
    """The loss of the last batches of a log, found when the log was opened after a crash.

    Units: `log_end_offset` is the end of the last batch that is left, 0 for an empty log.
    `cut_bytes` is the size of the lost part in the storage, that is, in memory or in a file.
    """

    partition: TopicPartition
    log_end_offset: Offset
    cut_bytes: int
    cut_batches: int | None
    """None for a torn tail: the crash left the file's end half written, so that the batches there
    cannot be read and counted."""
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
        """Return the base offset of batch `index` without reading it."""

    @abstractmethod
    def append(self, batch: RecordBatch) -> None:
        """Write `batch` after the last one, to the page cache only."""

    @abstractmethod
    def truncate(self, length: int) -> None:
        """Remove all but the first `length` batches; the removal survives a power loss.

        A flush mark above `length` falls to `length`.
        Raises: SimulationError if the log has fewer than `length` batches.
        """

    @abstractmethod
    def replace_prefix(self, length: int, batches: Sequence[RecordBatch]) -> None:
        """Replace the first `length` batches by `batches`, atomically.

        The new batches are flushed. A batch after them is flushed if it was flushed before.
        Raises: SimulationError if the log has fewer than `length` batches.
        """

    @property
    @abstractmethod
    def flushed_length(self) -> int:
        """Number of batches that survive a power loss: the flush mark."""

    @abstractmethod
    def flush(self) -> None:
        """Write all batches to the disk and move the flush mark to the end. Waits for the disk."""

    @abstractmethod
    def write_back(self) -> None:
        """Move the flush mark to the end without waiting for the disk.

        An operating system also writes its page cache to the disk by itself after some time. The
        simulation of the operating system calls this method then.
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
        """Delete the log of `partition` immediately; does nothing if it has none."""

    @abstractmethod
    def write_checkpoint(self, name: str, content: bytes) -> None:
        """Replace a small file atomically, e.g. `replication-offset-checkpoint`."""

    @abstractmethod
    def read_checkpoint(self, name: str) -> bytes | None:
        """Return a checkpoint's content, None if it was never written or cannot be read."""

    @abstractmethod
    def take_recoveries(self) -> tuple[LogRecovery, ...]:
        """Return the losses found when the disk was opened, sorted by partition.

        A later call does not return them again.
        """
