"""FileStorage: a broker's disk as real files, for node processes that can really be killed.

One append-only file per partition (`log_file`), written to the page cache before `append` returns:
`kill -9` loses nothing but a torn last frame, which opening the file cuts off. A power loss keeps
what the log's flush mark (`flush_marks`) covers; `cut_to_flush_marks` makes one out of a kill.
Batches are kept in memory too, as the page cache would.
"""

from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path

import msgspec

from cluster.storage.checkpoint_files import read_checkpoint_file, write_checkpoint_file
from cluster.storage.files import Files, write_all
from cluster.storage.flush_marks import FlushMark, read_flush_mark
from cluster.storage.log_file import encode_frame, parse_log
from partition_log.storage import LogRecovery, LogStorage, Storage
from protocol.causes import RecoveryCause
from protocol.errors import SimulationError
from protocol.ids import TopicPartition
from protocol.records.batch import RecordBatch

_LOG_SUFFIX = ".log"
_MARK_SUFFIX = ".flushed"
_CLEANED_SUFFIX = ".cleaned"
"""Of a file that is being written by a cleaning. One that a crash left is written over."""
_CUTS = "cut-by-power-loss"
"""Name of the file in which `cut_to_flush_marks` tells the broker's next life what it cut."""


class FileLogStorage(LogStorage):
    """The batches of one partition in one file, which it keeps open.

    Invariant: the file holds exactly the frames of `_batches`; frame i begins at `_positions[i]`
    and the last position is the file's size.
    """

    def __init__(self, path: Path, files: Files) -> None:
        self._path = path
        self._files = files
        self._file = files.open(path)
        self._mark = FlushMark(_mark_path(path), files)
        content = path.read_bytes()
        log = parse_log(content)
        self._batches = log.batches
        self._positions = log.positions
        self._flushed_length = log.length_at(self._mark.position)
        self._synced_length = 0
        """Number of batches that this process knows to be on the disk."""
        self._is_named_on_disk = False
        """Whether the disk has the names of the two files, beside what is in them."""
        self.recovery: LogRecovery | None = None
        """What was cut off when the file was opened; None if it was whole."""
        torn_bytes = len(content) - log.end
        if torn_bytes or self._mark.position > log.end:
            self._cut(log.end)
        if torn_bytes:
            self.recovery = LogRecovery(
                partition=_partition_of(path),
                log_end_offset=log.end_offset(len(self._batches)),
                cut_bytes=torn_bytes,
                cut_batches=None,
                cause=RecoveryCause.TORN_TAIL,
            )

    def __len__(self) -> int:
        return len(self._batches)

    def batch(self, index: int) -> RecordBatch:
        """Return batch `index`, counted from 0."""
        return self._batches[index]

    def base_offset(self, index: int) -> int:
        """Return the base offset of batch `index`."""
        return self._batches[index].base_offset

    def append(self, batch: RecordBatch) -> None:
        """Write `batch` behind the last one, into the page cache.

        Raises: OSError; what was written of the frame is then cut off again.
        """
        frame = encode_frame(batch)
        end = self._positions[-1]
        try:
            write_all(self._files, self._file, frame, at=end)
        except OSError:
            self._files.ftruncate(self._file, end)
            raise
        self._batches.append(batch)
        self._positions.append(end + len(frame))

    def truncate(self, length: int) -> None:
        """Keep the first `length` batches; returns once the disk has the cut.

        Raises: SimulationError if there are fewer; OSError.
        """
        if not 0 <= length <= len(self._batches):
            raise SimulationError(f"cannot keep {length} batches of {len(self._batches)}")
        if length < len(self._batches):
            self._cut(self._positions[length])
            del self._batches[length:]
            del self._positions[length + 1 :]
            self._flushed_length = min(self._flushed_length, length)
            self._synced_length = length

    def replace_prefix(self, length: int, batches: Sequence[RecordBatch]) -> None:
        """Put `batches` in the place of the first `length`: a new file takes this one's name.

        The new file is on the disk, whole, before it gets the name. A flush mark that is left from
        the old one, because the process dies in between, covers no less than it did: what stands
        before it only gets shorter.
        Raises: SimulationError if there are fewer than `length`; OSError, before anything changed
        or when the new file has the name.
        """
        if not 0 <= length <= len(self._batches):
            raise SimulationError(f"cannot replace {length} batches of {len(self._batches)}")
        left = [*batches, *self._batches[length:]]
        frames = [encode_frame(batch) for batch in left]
        temporary = self._path.with_suffix(_CLEANED_SUFFIX)
        file = self._files.open(temporary)
        try:
            self._files.ftruncate(file, 0)
            write_all(self._files, file, b"".join(frames), at=0)
            self._files.fdatasync(file)
            self._mark.open()
            self._files.replace(temporary, self._path)
        except OSError:
            self._files.close(file)
            raise
        old, self._file = self._file, file
        self._batches = left
        self._positions = list(accumulate(map(len, frames), initial=0))
        self._files.close(old)
        self._files.sync_directory(self._path.parent)
        self._is_named_on_disk = True
        self._mark.move(self._positions[-1], sync=True)
        self._synced_length = self._flushed_length = len(left)

    @property
    def flushed_length(self) -> int:
        """Number of batches that survive a power loss."""
        return self._flushed_length

    def flush(self) -> None:
        """Sync what was appended, then move the flush mark to the end. Raises: OSError."""
        if self._synced_length < len(self._batches):
            self._files.fdatasync(self._file)
            self._synced_length = len(self._batches)
        if not self._is_named_on_disk:
            self._mark.open()
            self._files.sync_directory(self._path.parent)
            self._is_named_on_disk = True
        self._mark.move(self._positions[-1], sync=True)
        self._flushed_length = len(self._batches)

    def write_back(self) -> None:
        """Move the flush mark to the end, without a sync. Raises: OSError.

        DEVIATION: what the kernel wrote back cannot be seen, so the caller's model decides what
        counts as written; only a power loss of the experiment's making asks for the mark.
        """
        self._mark.move(self._positions[-1], sync=False)
        self._flushed_length = len(self._batches)

    def close(self) -> None:
        """Close the files; nothing may be appended any more."""
        self._files.close(self._file)
        self._mark.close()

    def delete(self) -> None:
        """Delete the files, which must be closed. Raises: OSError."""
        self._files.unlink(self._path)
        mark = _mark_path(self._path)
        if mark.exists():
            self._files.unlink(mark)

    def _cut(self, size: int) -> None:
        """Cut the file to `size` bytes, the flush mark before it, both on the disk.

        Unsynced, a power loss could bring back what was cut, in between what is appended next.
        """
        if self._mark.position > size:
            self._mark.move(size, sync=True)
        self._files.ftruncate(self._file, size)
        self._files.fdatasync(self._file)


class FileStorage(Storage):
    """A broker's disk as a directory, made when something is first written to it."""

    def __init__(self, directory: Path, files: Files | None = None) -> None:
        self.directory = directory
        self._files = files or Files()
        self._logs: dict[TopicPartition, FileLogStorage] = {}
        for path in _log_paths(directory):
            self.log(_partition_of(path))

    def log(self, partition: TopicPartition) -> FileLogStorage:
        """Return the log of `partition`, made empty if there was none. Raises: OSError."""
        found = self._logs.get(partition)
        if found is None:
            self.directory.mkdir(parents=True, exist_ok=True)
            found = FileLogStorage(self.directory / f"{partition}{_LOG_SUFFIX}", self._files)
            self._logs[partition] = found
        return found

    def partitions(self) -> tuple[TopicPartition, ...]:
        """Return the partitions that have a log, by topic and partition number."""
        return tuple(sorted(self._logs))

    def delete(self, partition: TopicPartition) -> None:
        """Delete the files of `partition`. Raises: OSError.

        DEVIATION: Kafka renames them and deletes them after file.delete.delay.ms.
        """
        log = self._logs.pop(partition, None)
        if log is not None:
            log.close()
            log.delete()
            self._files.sync_directory(self.directory)

    def write_checkpoint(self, name: str, content: bytes) -> None:
        """Replace a small file atomically. Raises: OSError."""
        self.directory.mkdir(parents=True, exist_ok=True)
        write_checkpoint_file(self.directory / name, content, self._files)

    def read_checkpoint(self, name: str) -> bytes | None:
        """Return a checkpoint's content, None if there is none that can be read."""
        return read_checkpoint_file(self.directory / name)

    def take_recoveries(self) -> tuple[LogRecovery, ...]:
        """Return what a power loss, or opening the disk after a kill, cut off; once."""
        found = list(_read_cuts(self.directory))
        if found:
            self._files.unlink(self.directory / _CUTS)
        for log in self._logs.values():
            if log.recovery is not None:
                found.append(log.recovery)
                log.recovery = None
        return tuple(sorted(found, key=lambda recovery: recovery.partition))

    def close(self) -> None:
        """Close every file."""
        for log in self._logs.values():
            log.close()
        self._logs.clear()


def cut_to_flush_marks(directory: Path, files: Files | None = None) -> tuple[LogRecovery, ...]:
    """Cut every log of a dead broker's disk back to its flush mark, as a power loss does.

    The broker's process must be gone. Checkpoints stay. Returns what was cut, by partition; the
    broker's next life is told too (`take_recoveries`). A directory that was never made, because
    nothing was written, has nothing to lose.
    Raises: OSError.
    """
    files = files or Files()
    cuts = [_cut_to_flush_mark(path, files) for path in _log_paths(directory)]
    lost = tuple(cut for cut in cuts if cut is not None)
    if lost:
        content = msgspec.json.encode((*_read_cuts(directory), *lost))
        write_checkpoint_file(directory / _CUTS, content, files)
    return lost


def _cut_to_flush_mark(path: Path, files: Files) -> LogRecovery | None:
    content = path.read_bytes()
    log = parse_log(content)
    length = log.length_at(read_flush_mark(_mark_path(path)))
    size = log.positions[length]
    if size == len(content):
        return None
    file = files.open(path)
    try:
        files.ftruncate(file, size)
        files.fdatasync(file)
    finally:
        files.close(file)
    return LogRecovery(
        partition=_partition_of(path),
        log_end_offset=log.end_offset(length),
        cut_bytes=len(content) - size,
        cut_batches=len(log.batches) - length,
        cause=RecoveryCause.POWER_LOSS,
    )


def _read_cuts(directory: Path) -> tuple[LogRecovery, ...]:
    content = read_checkpoint_file(directory / _CUTS)
    return () if content is None else msgspec.json.decode(content, type=tuple[LogRecovery, ...])


def _log_paths(directory: Path) -> list[Path]:
    return sorted(directory.glob(f"*{_LOG_SUFFIX}"))


def _mark_path(log_path: Path) -> Path:
    return log_path.with_suffix(_MARK_SUFFIX)


def _partition_of(path: Path) -> TopicPartition:
    topic, _, partition = path.name.removesuffix(_LOG_SUFFIX).rpartition("-")
    return TopicPartition(topic, int(partition))
