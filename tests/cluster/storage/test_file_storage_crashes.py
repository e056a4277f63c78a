"""A broker's files survive a crash at any moment, and planted mistakes are found.

A broker of the test lab may keep its logs and checkpoints in files. Beside each log there is a
small file with its flush mark: the position up to which the log is known to be synced.

`check_crash_points` writes to such files, and stops at a random point, as in a crash. Then one of
three things happens:

- The process dies. The operating system still has all writes.
- The machine loses power. Any write that was not synced may be lost.
- An experiment simulates a power loss. It cuts each log to its flush mark.

Then the storage is opened again. It must have all writes up to some point, and no later ones.

The second half of the module shows that this check is worth something. Each function there plants
a mistake in the storage, as a programmer could make it, and the check must find it.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from cluster.storage import file_storage
from cluster.storage.file_storage import FileLogStorage
from cluster.storage.flush_marks import FlushMark
from cluster.storage.log_file import LogContent, parse_log
from protocol.records.batch import RecordBatch
from tests.support.harness.crashing_files import CrashingFiles
from tests.support.random_worlds.storage_crashes import End, Step, check_crash_points

POINTS = 300
"""The number of crash points that the test checks; `make soak` checks ten times as many."""
POINTS_TO_FIND_A_MISTAKE = 1_500
"""The number of crash points within which each planted mistake must be found."""

Mistake = Callable[[pytest.MonkeyPatch], None]
"""A function that plants a mistake. Its name describes the mistake. A "mark" is a flush mark."""


@pytest.mark.slow
def test_crash_points_leave_a_prefix_and_a_disk_that_can_be_written(tmp_path: Path) -> None:
    """After each crash the storage has a prefix of the writes, and new writes are possible.

    `check_crash_points` raises an exception otherwise.
    """
    first_seed = 0
    report = check_crash_points(POINTS, first_seed, tmp_path)
    assert report.points == POINTS
    # Each way to crash and each kind of write must have occurred, or the check would have gaps.
    assert all(report.ends[end] for end in End)
    assert all(report.steps[step] for step in Step)
    assert report.torn_tails > 0
    assert report.batches_lost > 0


def mark_moves_before_its_data(patch: pytest.MonkeyPatch) -> None:
    """Move the mark without a sync of the data below it."""

    def flush(log: FileLogStorage) -> None:
        # The real method syncs the data first.
        log._mark.move(log._positions[-1], sync=True)
        log._flushed_length = len(log)

    patch.setattr(FileLogStorage, "flush", flush)


def mark_is_not_synced(patch: pytest.MonkeyPatch) -> None:
    """Move the mark without a sync of its file."""
    move = FlushMark.move
    patch.setattr(
        FlushMark, "move", lambda mark, position, *, sync: move(mark, position, sync=False)
    )


def mark_stays_when_the_log_is_cut(patch: pytest.MonkeyPatch) -> None:
    """Shorten the log without lowering the mark, which then points behind the end of the log."""

    def cut(log: FileLogStorage, size: int) -> None:
        log._files.ftruncate(log._file, size)
        log._files.fdatasync(log._file)

    patch.setattr(FileLogStorage, "_cut", cut)


def cut_is_not_synced(patch: pytest.MonkeyPatch) -> None:
    """Lower the mark and shorten the log, without a sync of the log."""

    def cut(log: FileLogStorage, size: int) -> None:
        if log._mark.position > size:
            log._mark.move(size, sync=True)
        log._files.ftruncate(log._file, size)

    patch.setattr(FileLogStorage, "_cut", cut)


def names_are_not_synced(patch: pytest.MonkeyPatch) -> None:
    """Do not sync the directory, so that the names of new files may be lost."""
    patch.setattr(CrashingFiles, "sync_directory", lambda files, directory: None)


def torn_tail_is_kept(patch: pytest.MonkeyPatch) -> None:
    """Keep a batch that was written only in part, and append the next batch behind it."""

    def read_all(content: bytes) -> LogContent:
        log = parse_log(content)
        log.positions[-1] = len(content)  # the end of the log, as if every byte were good
        return log

    patch.setattr(file_storage, "parse_log", read_all)


def damaged_batches_are_skipped(patch: pytest.MonkeyPatch) -> None:
    """Skip a damaged batch, and read on from the next good batch."""

    def read_on(content: bytes) -> LogContent:
        log = parse_log(content)
        # The next good batch may begin at any later byte, so try each.
        for start in range(log.end + 1, len(content)):
            rest = parse_log(content[start:])
            if rest.batches:
                log.batches += rest.batches
                log.positions += [start + position for position in rest.positions[1:]]
                break
        return log

    patch.setattr(file_storage, "parse_log", read_on)


def cleaned_file_gets_the_name_before_it_is_synced(patch: pytest.MonkeyPatch) -> None:
    """Do not sync the file with which a cleaning replaces a log."""
    replace_prefix = FileLogStorage.replace_prefix

    def replace_unsynced(log: FileLogStorage, length: int, batches: Sequence[RecordBatch]) -> None:
        files = log._files
        sync = files.fdatasync

        def skip_once(file: int) -> None:
            files.fdatasync = sync  # type: ignore[method-assign]  # of this object alone

        # The first sync of `replace_prefix` is for the new file. Skip this sync.
        files.fdatasync = skip_once  # type: ignore[method-assign]
        replace_prefix(log, length, batches)

    patch.setattr(FileLogStorage, "replace_prefix", replace_unsynced)


def checkpoint_is_written_in_place(patch: pytest.MonkeyPatch) -> None:
    """Overwrite the checkpoint. The real function writes another file, and renames it."""

    def write(path: Path, content: bytes, files: CrashingFiles) -> None:
        file = files.open(path)
        files.ftruncate(file, 0)
        files.write(file, content, 0)
        files.close(file)

    patch.setattr(file_storage, "write_checkpoint_file", write)
    patch.setattr(
        file_storage,
        "read_checkpoint_file",
        lambda path: path.read_bytes() if path.exists() else None,
    )


@pytest.mark.parametrize(
    "mistake",
    [
        mark_moves_before_its_data,
        mark_is_not_synced,
        mark_stays_when_the_log_is_cut,
        cut_is_not_synced,
        names_are_not_synced,
        torn_tail_is_kept,
        damaged_batches_are_skipped,
        cleaned_file_gets_the_name_before_it_is_synced,
        checkpoint_is_written_in_place,
    ],
)
def test_crash_points_find_a_planted_mistake(
    mistake: Mistake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check must fail at some crash point. The error names the seed, to repeat the failure."""
    mistake(monkeypatch)
    with pytest.raises(AssertionError, match="seed"):
        check_crash_points(POINTS_TO_FIND_A_MISTAKE, 0, tmp_path)
