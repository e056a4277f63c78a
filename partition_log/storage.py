"""Storage: where a broker's partition logs keep their batches.

An interface with an in-memory form; the file form lives in `cluster`. It knows batches and small
checkpoints, nothing of leaders or followers. Appended means written to the page cache: a crash of
the process keeps it, a power loss cuts back to what was flushed. A checkpoint survives both: Kafka
syncs those files.
"""

from abc import ABC, abstractmethod

from protocol.ids import TopicPartition
from protocol.record_batch import RecordBatch


class LogStorage(ABC):
    """The batches of one partition, in offset order.

    Invariant: batches are contiguous: each base offset is the next offset of the one before.
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
        """Write `batch` behind the last one."""

    @abstractmethod
    def truncate(self, length: int) -> None:
        """Keep the first `length` batches; the cut itself survives a power loss.

        Raises: SimulationError if there are fewer than `length`.
        """

    @abstractmethod
    def flush(self) -> None:
        """Make everything appended so far survive a power loss."""


class Storage(ABC):
    """A broker's disk: one log per partition, and small named checkpoints."""

    @abstractmethod
    def log(self, partition: TopicPartition) -> LogStorage:
        """Return the log of `partition`, made empty if there was none."""

    @abstractmethod
    def partitions(self) -> tuple[TopicPartition, ...]:
        """Return the partitions that have a log, by topic and partition number."""

    @abstractmethod
    def write_checkpoint(self, name: str, content: bytes) -> None:
        """Replace a small file atomically, e.g. `replication-offset-checkpoint`."""

    @abstractmethod
    def read_checkpoint(self, name: str) -> bytes | None:
        """Return a checkpoint's content, None if it was never written."""
