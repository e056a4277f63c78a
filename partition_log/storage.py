"""Storage: where a broker's partition logs keep their batches.

An interface with an in-memory form; the file form lives in `cluster`. It knows batches and small
checkpoints, nothing of leaders or followers. Appended means written to the page cache: a crash of
the process keeps it, a power loss cuts back to the flush mark. A checkpoint survives both: Kafka
syncs those files.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence

import msgspec

from protocol.causes import RecoveryCause
from protocol.ids import Offset, TopicPartition
from protocol.records.batch import RecordBatch


class LogRecovery(msgspec.Struct, frozen=True, kw_only=True):
    """What opening a log after a crash found missing.

    Units: `log_end_offset` is the offset behind the last batch that is left, 0 where none is;
    `cut_bytes` counts the bytes that the lost part had on this form of storage.
    """

    partition: TopicPartition
    log_end_offset: Offset
    cut_bytes: int
    cut_batches: int | None
    """None for a torn tail: nobody can say what it was."""
    cause: RecoveryCause


class LogStorage(ABC):
    """The batches of one partition, in offset order, and a mark up to where they are flushed.

    Invariant: batches are in order: none begins before the one in front of it ends.
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
        """Write `batch` behind the last one, unflushed."""

    @abstractmethod
    def truncate(self, length: int) -> None:
        """Keep the first `length` batches; the cut itself survives a power loss.

        The flush mark falls with the cut, and never rises by it.
        Raises: SimulationError if there are fewer than `length`.
        """

    @abstractmethod
    def replace_prefix(self, length: int, batches: Sequence[RecordBatch]) -> None:
        """Put `batches` in the place of the first `length`, all at once.

        They survive a power loss; the flush mark covers them, and of what stands behind them what
        it covered before, at least.
        Raises: SimulationError if there are fewer than `length`.
        """

    @property
    @abstractmethod
    def flushed_length(self) -> int:
        """Number of batches that survive a power loss: the flush mark."""

    @abstractmethod
    def flush(self) -> None:
        """Move the flush mark to the end, once the disk has everything. Waits for the disk."""

    @abstractmethod
    def write_back(self) -> None:
        """Move the flush mark to the end because the operating system wrote it; waits for nothing.

        It does so on its own, behind the broker's back: whoever models it says when.
        """


class Storage(ABC):
    """A broker's disk: one log per partition, and small named checkpoints."""

    @abstractmethod
    def log(self, partition: TopicPartition) -> LogStorage:
        """Return the log of `partition`, made empty if there was none."""

    @abstractmethod
    def partitions(self) -> tuple[TopicPartition, ...]:
        """Return the partitions that have a log, by topic and partition number."""

    @abstractmethod
    def delete(self, partition: TopicPartition) -> None:
        """Forget the log of `partition`, at once and for good; nothing happens if there is none."""

    @abstractmethod
    def write_checkpoint(self, name: str, content: bytes) -> None:
        """Replace a small file atomically, e.g. `replication-offset-checkpoint`."""

    @abstractmethod
    def read_checkpoint(self, name: str) -> bytes | None:
        """Return a checkpoint's content, None if there is none that can be read."""

    @abstractmethod
    def take_recoveries(self) -> tuple[LogRecovery, ...]:
        """Return what was lost since the disk's last life, by partition; once, then nothing."""
