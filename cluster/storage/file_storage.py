"""FileStorage: a broker's disk as real files, for node processes that can really be killed.

Each partition has one append-only file, in the format of the module `log_file`. `append` returns
when the batch is in the page cache. This is memory of the operating system, and a `kill -9` of the
process does not touch it. So after a `kill -9` at most the last batch is torn (written in part).
When the file is opened again, the torn bytes are cut off, and a LogRecovery reports the cut.

A power loss takes everything that was not flushed to the disk. We simulate it after a kill:
`cut_to_flush_marks` cuts each log at its *flush mark*, the position up to which the log was flushed
(see the module `flush_marks`).

All batches are also kept in memory. The files are read only when they are opened.
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
"""Suffix of a partition's log file."""
_MARK_SUFFIX = ".flushed"
"""Suffix of the file with the log's flush mark."""
_CLEANED_SUFFIX = ".cleaned"
"""Suffix of a file that a cleaning (log compaction) is writing. A file that a crash has left is
overwritten by the next cleaning."""
_CUTS = "cut-by-power-loss"
"""File in which `cut_to_flush_marks` notes its cuts, for the broker's next start."""


class FileLogStorage(LogStorage):
    """The log of one partition, in one file, which stays open.

    The file has exactly the batches in `_batches`. Batch i begins at byte `_positions[i]`; the last
    position is the size of the file.
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
        self._flushed_length = log.batch_count_at(self._mark.position)
        """Number of batches that survive a power loss, because they are below the flush mark."""
        self._synced_length = 0
        """Number of batches that this process has really synced to the disk.

        The number may be lower than `_flushed_length`, because `write_back` moves the flush mark
        without a sync.
        """
        self._is_named_on_disk = False
        """True once this process has synced the directory.

        Without that sync, a power loss could take the names of the log's files, and so the files.
        """
        self.recovery: LogRecovery | None = None
        """Report of the cut when the file was opened; None if the file was undamaged."""
        torn_bytes = len(content) - log.end
        # `_cut` also lowers a flush mark that is above the end of the log. Otherwise batches that
        # are appended later would count as flushed.
        if torn_bytes or self._mark.position > log.end:
            self._cut(log.end)
        if torn_bytes:
            self.recovery = LogRecovery(
                partition=_partition_of(path),
                log_end_offset=log.end_offset(len(self._batches)),
                cut_bytes=torn_bytes,
                cut_batches=None,  # the torn bytes are not parsed into batches
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
        """Write `batch` after the last batch, into the page cache.

        Raises: OSError; a partly written frame is cut off again.
        """
        frame = encode_frame(batch)
        end = self._positions[-1]
        try:
            write_all(self._files, self._file, frame, at=end)
        except OSError:  # most often a full disk
            self._files.ftruncate(self._file, end)
            raise
        self._batches.append(batch)
        self._positions.append(end + len(frame))

    def truncate(self, length: int) -> None:
        """Keep the first `length` batches; returns once the disk has the cut.

        Raises: SimulationError if there are fewer than `length` batches, which is a bug of the
        caller; OSError.
        """
        if not 0 <= length <= len(self._batches):
            raise SimulationError(f"cannot keep {length} batches of {len(self._batches)}")
        if length < len(self._batches):
            self._cut(self._positions[length])
            del self._batches[length:]
            del self._positions[length + 1 :]  # `+ 1` keeps the position of the new end
            self._flushed_length = min(self._flushed_length, length)
            self._synced_length = length  # `_cut` has synced the whole file

    def replace_prefix(self, length: int, batches: Sequence[RecordBatch]) -> None:
        """Replace the first `length` batches by `batches`, which a cleaning (log compaction) left.

        1. A new file is written and synced.
        2. The new file takes the name of the old file.
        3. The flush mark moves to the end of the new file.

        If the process dies before step 3, the flush mark still has the position from the old file.
        This does no harm. A cleaning only makes a log shorter, so a batch that was below the mark
        in the old file is below the mark in the new file, too.
        Raises: SimulationError if there are fewer than `length` batches; OSError. The error may
        come before any change, or after step 2.
        """
        if not 0 <= length <= len(self._batches):
            raise SimulationError(f"cannot replace {length} batches of {len(self._batches)}")
        new_batches = [*batches, *self._batches[length:]]
        frames = [encode_frame(batch) for batch in new_batches]
        temporary = self._path.with_suffix(_CLEANED_SUFFIX)
        file = self._files.open(temporary)
        try:
            self._files.ftruncate(file, 0)  # a crash may have left an unfinished file
            write_all(self._files, file, b"".join(frames), at=0)
            self._files.fdatasync(file)
            # `open` creates the mark's file if it is missing. The file must exist before
            # `sync_directory` below, which syncs the names of all files.
            self._mark.open()
            self._files.replace(temporary, self._path)
        except OSError:
            self._files.close(file)
            raise
        old_file, self._file = self._file, file
        self._batches = new_batches
        # The running sum of the frames' lengths, from 0 to the size of the file.
        self._positions = list(accumulate(map(len, frames), initial=0))
        self._files.close(old_file)
        self._files.sync_directory(self._path.parent)
        self._is_named_on_disk = True
        self._mark.move(self._positions[-1], sync=True)
        self._synced_length = self._flushed_length = len(new_batches)

    @property
    def flushed_length(self) -> int:
        """Number of batches that survive a power loss."""
        return self._flushed_length

    def flush(self) -> None:
        """Sync the appended batches, then move the flush mark to the end. Raises: OSError."""
        if self._synced_length < len(self._batches):
            self._files.fdatasync(self._file)
            self._synced_length = len(self._batches)
        if not self._is_named_on_disk:
            # `open` creates the mark's file if it is missing. The file must exist before
            # `sync_directory`, which syncs the names of all files.
            self._mark.open()
            self._files.sync_directory(self._path.parent)
            self._is_named_on_disk = True
        self._mark.move(self._positions[-1], sync=True)
        self._flushed_length = len(self._batches)

    def write_back(self) -> None:
        """Move the flush mark to the end, without a sync.

        LogFlusher calls this when the operating system would have written the page cache to the
        disk.
        Raises: OSError.
        DEVIATION from a real disk: a process cannot see what the operating system has written, so
        `LogFlusher` computes it with the cluster's StorageModel. The mark only matters for
        simulated power losses.
        """
        self._mark.move(self._positions[-1], sync=False)
        self._flushed_length = len(self._batches)

    def close(self) -> None:
        """Close the files; no further appends are possible."""
        self._files.close(self._file)
        self._mark.close()

    def delete(self) -> None:
        """Delete the files, which must be closed. Raises: OSError."""
        self._files.unlink(self._path)
        mark = _mark_path(self._path)
        if mark.exists():
            self._files.unlink(mark)

    def _cut(self, size: int) -> None:
        """Lower the flush mark to `size` bytes, then cut the file to that size; sync both.

        Without the sync, a real power loss could bring the cut bytes back, in the middle of batches
        that were appended later.
        """
        if self._mark.position > size:
            self._mark.move(size, sync=True)
        self._files.ftruncate(self._file, size)
        self._files.fdatasync(self._file)


class FileStorage(Storage):
    """A broker's disk as a directory, which is created at the first write."""

    def __init__(self, directory: Path, files: Files | None = None) -> None:
        self.directory = directory
        self._files = files or Files()
        self._logs: dict[TopicPartition, FileLogStorage] = {}
        """The open log of each partition."""
        # Open every log now, so that damage is cut off and reported before the broker starts.
        for path in _log_paths(directory):
            self.log(_partition_of(path))

    def log(self, partition: TopicPartition) -> FileLogStorage:
        """Return the log of `partition`; create an empty log if it has none. Raises: OSError."""
        log = self._logs.get(partition)
        if log is None:
            self.directory.mkdir(parents=True, exist_ok=True)
            log = FileLogStorage(self.directory / f"{partition}{_LOG_SUFFIX}", self._files)
            self._logs[partition] = log
        return log

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
        """Replace a checkpoint file atomically. Raises: OSError."""
        self.directory.mkdir(parents=True, exist_ok=True)
        write_checkpoint_file(self.directory / name, content, self._files)

    def read_checkpoint(self, name: str) -> bytes | None:
        """Return a checkpoint's content, None if the file is missing or damaged."""
        return read_checkpoint_file(self.directory / name)

    def take_recoveries(self) -> tuple[LogRecovery, ...]:
        """Return the cuts since the last call, by power losses and of torn bytes."""
        recoveries = list(_read_cuts(self.directory))
        if recoveries:
            self._files.unlink(self.directory / _CUTS)
        for log in self._logs.values():
            if log.recovery is not None:
                recoveries.append(log.recovery)
                log.recovery = None
        return tuple(sorted(recoveries, key=lambda recovery: recovery.partition))

    def close(self) -> None:
        """Close every file."""
        for log in self._logs.values():
            log.close()
        self._logs.clear()


def cut_to_flush_marks(directory: Path, files: Files | None = None) -> tuple[LogRecovery, ...]:
    """Cut every log of a dead broker's disk back to its flush mark, as a power loss does.

    The broker's process must be gone. Checkpoint files stay as they are. If the directory does not
    exist, there is nothing to cut.
    Returns: the cuts, sorted by partition. The broker gets the same cuts at its next start from
    `take_recoveries`.
    Raises: OSError.
    """
    files = files or Files()
    cuts = [_cut_to_flush_mark(path, files) for path in _log_paths(directory)]
    lost = tuple(cut for cut in cuts if cut is not None)
    if lost:
        # The file may have cuts of an earlier power loss. If the broker has not started since, it
        # has not taken them yet, so they stay.
        content = msgspec.json.encode((*_read_cuts(directory), *lost))
        write_checkpoint_file(directory / _CUTS, content, files)
    return lost


def _cut_to_flush_mark(path: Path, files: Files) -> LogRecovery | None:
    """Cut one log back to its flush mark; return the cut, None if all of the file is flushed."""
    content = path.read_bytes()
    log = parse_log(content)
    batch_count = log.batch_count_at(read_flush_mark(_mark_path(path)))
    size = log.positions[batch_count]
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
        log_end_offset=log.end_offset(batch_count),
        cut_bytes=len(content) - size,
        cut_batches=len(log.batches) - batch_count,
        cause=RecoveryCause.POWER_LOSS,
    )


def _read_cuts(directory: Path) -> tuple[LogRecovery, ...]:
    """Return the cuts by power losses that the broker has not taken yet with a start."""
    content = read_checkpoint_file(directory / _CUTS)
    return () if content is None else msgspec.json.decode(content, type=tuple[LogRecovery, ...])


def _log_paths(directory: Path) -> list[Path]:
    return sorted(directory.glob(f"*{_LOG_SUFFIX}"))


def _mark_path(log_path: Path) -> Path:
    return log_path.with_suffix(_MARK_SUFFIX)


def _partition_of(path: Path) -> TopicPartition:
    """Return the partition of a log file, which is named `<topic>-<partition>.log`."""
    # The last hyphen counts, because the name of a topic may have hyphens, too.
    topic, _, partition = path.name.removesuffix(_LOG_SUFFIX).rpartition("-")
    return TopicPartition(topic, int(partition))
