"""MemoryStorage: a Storage that keeps everything in memory, for virtual time and tests.

A crash of a broker's process loses nothing: the broker's next process gets the same object. If the
code of the dead process might still write to the object, the next process gets a copy. A power loss
loses every batch that was not flushed, because a real machine loses its page cache. `power_loss`
simulates this. For this purpose each log keeps its flush mark, which is the number of its flushed
batches.
"""

from collections.abc import Callable, Sequence
from functools import partial

from partition_log.storage import LogRecovery, LogStorage, Storage
from protocol.causes import RecoveryCause
from protocol.errors import SimulationError
from protocol.ids import Offset, TopicPartition
from protocol.records.batch import RecordBatch

OnReplace = Callable[[TopicPartition, Sequence[RecordBatch], int, Sequence[RecordBatch]], None]
"""A function that is called after each `replace_prefix`. Its arguments are the partition, all
batches that the log had before, and the two arguments of `replace_prefix`."""


class MemoryLogStorage(LogStorage):
    """The batches of one partition in a list. The first `_flushed_length` batches are flushed.

    If `on_replace` is not None, it is called at the end of each `replace_prefix`.
    """

    __slots__ = ("_batches", "_flushed_length", "on_replace")

    def __init__(self) -> None:
        self._batches: list[RecordBatch] = []
        self._flushed_length = 0
        self.on_replace: (
            Callable[[Sequence[RecordBatch], int, Sequence[RecordBatch]], None] | None
        ) = None

    def __len__(self) -> int:
        return len(self._batches)

    def batch(self, index: int) -> RecordBatch:
        """Return batch `index`, counted from 0."""
        return self._batches[index]

    def base_offset(self, index: int) -> int:
        """Return the base offset of batch `index`."""
        return self._batches[index].base_offset

    def append(self, batch: RecordBatch) -> None:
        """Write `batch` after the last batch. The new batch is not flushed yet."""
        self._batches.append(batch)

    def truncate(self, length: int) -> None:
        """Keep the first `length` batches. A power loss does not bring back the removed batches.

        Raises: SimulationError if there are fewer than `length`.
        """
        if not 0 <= length <= len(self._batches):
            raise SimulationError(f"cannot keep {length} batches of {len(self._batches)}")
        del self._batches[length:]
        self._flushed_length = min(self._flushed_length, length)

    def replace_prefix(self, length: int, batches: Sequence[RecordBatch]) -> None:
        """Replace the first `length` batches by `batches`.

        Raises: SimulationError if there are fewer than `length`.
        """
        if not 0 <= length <= len(self._batches):
            raise SimulationError(f"cannot replace {length} batches of {len(self._batches)}")
        # Only `on_replace` needs the batches from before the replacement.
        before = () if self.on_replace is None else tuple(self._batches)
        self._batches[:length] = batches
        # The new batches are flushed. The batches behind the new ones stay flushed or not flushed.
        self._flushed_length = len(batches) + max(0, self._flushed_length - length)
        if self.on_replace is not None:
            self.on_replace(before, length, batches)

    @property
    def flushed_length(self) -> int:
        """Number of batches that survive a power loss."""
        return self._flushed_length

    def flush(self) -> None:
        """Move the flush mark to the end: now every batch survives a power loss."""
        self._flushed_length = len(self._batches)

    def write_back(self) -> None:
        """Move the flush mark to the end, because the operating system has written the data.

        In memory this is the same as `flush`, which need not wait for a disk.
        """
        self._flushed_length = len(self._batches)

    def copy(self) -> "MemoryLogStorage":
        """Return a log with the same (immutable) batches and the same flush mark."""
        twin = MemoryLogStorage()
        twin._batches = list(self._batches)
        twin._flushed_length = self._flushed_length
        return twin

    def power_loss(self) -> tuple[RecordBatch, ...]:
        """Remove and return the batches that were not flushed."""
        lost = tuple(self._batches[self._flushed_length :])
        del self._batches[self._flushed_length :]
        return lost


class MemoryStorage(Storage):
    """A broker's disk in memory.

    Checkpoints survive a power loss, because Kafka syncs these files when it writes them. The owner
    may set `on_replace`. This function is called for logs that are opened after it was set.
    """

    def __init__(self) -> None:
        self.on_replace: OnReplace | None = None
        self._logs: dict[TopicPartition, MemoryLogStorage] = {}
        self._checkpoints: dict[str, bytes] = {}
        self._recoveries: list[LogRecovery] = []

    def log(self, partition: TopicPartition) -> MemoryLogStorage:
        """Return the log of `partition`. If it has no log yet, an empty log is created."""
        found = self._logs.get(partition)
        if found is None:
            found = self._logs[partition] = MemoryLogStorage()
        found.on_replace = None if self.on_replace is None else partial(self.on_replace, partition)
        return found

    def partitions(self) -> tuple[TopicPartition, ...]:
        """Return the partitions that have a log, by topic and partition number."""
        return tuple(sorted(self._logs))

    def delete(self, partition: TopicPartition) -> None:
        """Forget the log of `partition`."""
        self._logs.pop(partition, None)

    def write_checkpoint(self, name: str, content: bytes) -> None:
        """Replace the checkpoint `name`."""
        self._checkpoints[name] = content

    def read_checkpoint(self, name: str) -> bytes | None:
        """Return a checkpoint's content, None if it was never written."""
        return self._checkpoints.get(name)

    def take_recoveries(self) -> tuple[LogRecovery, ...]:
        """Return what logs have lost by power losses since the last call, sorted by partition."""
        taken = tuple(sorted(self._recoveries, key=lambda recovery: recovery.partition))
        self._recoveries.clear()
        return taken

    def copy(self) -> "MemoryStorage":
        """Return an independent disk with the same content."""
        twin = MemoryStorage()
        twin._logs = {partition: log.copy() for partition, log in self._logs.items()}
        twin._checkpoints = dict(self._checkpoints)
        twin._recoveries = list(self._recoveries)
        return twin

    def power_loss(self) -> None:
        """Remove every batch that was not flushed, and record the losses as recoveries."""
        for partition, log in self._logs.items():
            lost = log.power_loss()
            if lost:
                self._recoveries.append(
                    LogRecovery(
                        partition=partition,
                        log_end_offset=Offset(
                            log.batch(len(log) - 1).next_offset if len(log) else 0
                        ),
                        cut_bytes=sum(batch.size_in_bytes for batch in lost),
                        cut_batches=len(lost),
                        cause=RecoveryCause.POWER_LOSS,
                    )
                )
