"""The in-memory form of Storage: what virtual time uses, and every test.

It survives a crash of its broker because the broker's successor is given the same object, or a copy
where the dead one could still write to it, and it can lose power: everything that was not flushed
is then gone, as a page cache is.
"""

from partition_log.storage import LogStorage, Storage
from protocol.errors import SimulationError
from protocol.ids import TopicPartition
from protocol.record_batch import RecordBatch


class MemoryLogStorage(LogStorage):
    """The batches of one partition in a list, with a mark up to where they are flushed.

    Invariant: 0 <= flushed_length <= len(self).
    """

    __slots__ = ("_batches", "_flushed_length")

    def __init__(self) -> None:
        self._batches: list[RecordBatch] = []
        self._flushed_length = 0

    def __len__(self) -> int:
        return len(self._batches)

    @property
    def flushed_length(self) -> int:
        """Number of batches that survive a power loss."""
        return self._flushed_length

    def batch(self, index: int) -> RecordBatch:
        """Return batch `index`, counted from 0."""
        return self._batches[index]

    def base_offset(self, index: int) -> int:
        """Return the base offset of batch `index`."""
        return self._batches[index].base_offset

    def append(self, batch: RecordBatch) -> None:
        """Write `batch` behind the last one, unflushed."""
        self._batches.append(batch)

    def truncate(self, length: int) -> None:
        """Keep the first `length` batches; the cut itself survives a power loss.

        Raises: SimulationError if there are fewer than `length`.
        """
        if not 0 <= length <= len(self._batches):
            raise SimulationError(f"cannot keep {length} batches of {len(self._batches)}")
        del self._batches[length:]
        self._flushed_length = min(self._flushed_length, length)

    def flush(self) -> None:
        """Move the flush mark to the end."""
        self._flushed_length = len(self._batches)

    def copy(self) -> "MemoryLogStorage":
        """Return a log with the same (immutable) batches and the same flush mark."""
        twin = MemoryLogStorage()
        twin._batches = list(self._batches)
        twin._flushed_length = self._flushed_length
        return twin

    def power_loss(self) -> None:
        """Forget what was not flushed."""
        del self._batches[self._flushed_length :]


class MemoryStorage(Storage):
    """A broker's disk in memory. Checkpoints survive a power loss: Kafka syncs those files."""

    def __init__(self) -> None:
        self._logs: dict[TopicPartition, MemoryLogStorage] = {}
        self._checkpoints: dict[str, bytes] = {}

    def log(self, partition: TopicPartition) -> MemoryLogStorage:
        """Return the log of `partition`, made empty if there was none."""
        found = self._logs.get(partition)
        if found is None:
            found = self._logs[partition] = MemoryLogStorage()
        return found

    def partitions(self) -> tuple[TopicPartition, ...]:
        """Return the partitions that have a log, by topic and partition number."""
        return tuple(sorted(self._logs))

    def write_checkpoint(self, name: str, content: bytes) -> None:
        """Replace the checkpoint `name`."""
        self._checkpoints[name] = content

    def read_checkpoint(self, name: str) -> bytes | None:
        """Return a checkpoint's content, None if it was never written."""
        return self._checkpoints.get(name)

    def copy(self) -> "MemoryStorage":
        """Return a disk with the same content; neither sees what is written to the other."""
        twin = MemoryStorage()
        twin._logs = {partition: log.copy() for partition, log in self._logs.items()}
        twin._checkpoints = dict(self._checkpoints)
        return twin

    def power_loss(self) -> None:
        """Cut every log back to what was flushed. A crash of the process needs no call."""
        for log in self._logs.values():
            log.power_loss()
