"""Crash points in the writes of a broker's disk, and planted mistakes that they must find.

A disk has logs and checkpoints. Each log has a flush mark, the length up to which it is synced. At
a crash point, which is drawn at random, the writes stop. Then one of three things happens:

- The process dies.
- The machine loses power, which may remove any write that is not synced.
- An experiment's simulated power loss cuts each log to its mark.

Then the storage is opened again. It must have all writes up to some point, and no later writes.
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
"""The number of crash points within which each planted mistake must make a check fail."""

Mistake = Callable[[pytest.MonkeyPatch], None]
"""A function that plants a mistake, which its name describes. "mark" stands for the flush mark."""


@pytest.mark.slow
def test_crash_points_leave_a_prefix_and_a_disk_that_can_be_written(tmp_path: Path) -> None:
    """The disk that is opened after the crash has a prefix of the writes, and nothing else.

    `check_crash_points` raises an exception otherwise.
    """
    report = check_crash_points(POINTS, 0, tmp_path)  # 0 is the first seed
    assert report.points == POINTS
    # Every kind of end and of step must have occurred, or the check would have gaps.
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
    """Cut the log, and leave the mark behind the end of the log."""

    def cut(log: FileLogStorage, size: int) -> None:
        log._files.ftruncate(log._file, size)
        log._files.fdatasync(log._file)

    patch.setattr(FileLogStorage, "_cut", cut)


def cut_is_not_synced(patch: pytest.MonkeyPatch) -> None:
    """Lower the mark and cut the log, without a sync of the log."""

    def cut(log: FileLogStorage, size: int) -> None:
        if log._mark.position > size:
            log._mark.move(size, sync=True)
        log._files.ftruncate(log._file, size)

    patch.setattr(FileLogStorage, "_cut", cut)


def names_are_not_synced(patch: pytest.MonkeyPatch) -> None:
    """Do not sync the directory, so that the names of new files may be lost."""
    patch.setattr(CrashingFiles, "sync_directory", lambda files, directory: None)


def torn_tail_is_kept(patch: pytest.MonkeyPatch) -> None:
    """Let the next append follow the torn tail."""

    def read_all(content: bytes) -> LogContent:
        log = parse_log(content)
        log.positions[-1] = len(content)  # so that no byte counts as torn
        return log

    patch.setattr(file_storage, "parse_log", read_all)


def damaged_batches_are_skipped(patch: pytest.MonkeyPatch) -> None:
    """Skip a damaged batch, and read on from the next good one."""

    def read_on(content: bytes) -> LogContent:
        log = parse_log(content)
        # A frame is a batch in the file. A good frame may begin at any later byte, so try each.
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

        # `replace_prefix` first syncs the new file.
        files.fdatasync = skip_once  # type: ignore[method-assign]
        replace_prefix(log, length, batches)

    patch.setattr(FileLogStorage, "replace_prefix", replace_unsynced)


def checkpoint_is_written_in_place(patch: pytest.MonkeyPatch) -> None:
    """Overwrite the checkpoint; the real function writes another file and renames it."""

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
    """Some crash point must show the mistake. The error names the seed that draws its disk."""
    mistake(monkeypatch)
    with pytest.raises(AssertionError, match="seed"):
        check_crash_points(POINTS_TO_FIND_A_MISTAKE, 0, tmp_path)
