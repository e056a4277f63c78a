"""The file of a flush mark, and which mark counts after a write that was interrupted or lost.

A flush mark is the position in a log file, in bytes, up to which the log counts as flushed to the
disk. The mark has a file of its own, with two slots, which are written in turn. Each slot has a
position, a sequence number and a CRC (checksum).
"""

from pathlib import Path

from cluster.storage.files import Files
from cluster.storage.flush_marks import FlushMark, read_flush_mark


class CountingFiles(Files):
    """Real files that count their syncs."""

    def __init__(self) -> None:
        self.syncs = 0

    def fdatasync(self, file: int) -> None:
        """Count the sync, and do it."""
        self.syncs += 1
        super().fdatasync(file)


def move_mark(path: Path, *positions: int, sync: bool = True) -> None:
    """Open the file of the mark, move the mark to each position in turn, and close the file."""
    mark = FlushMark(path, Files())
    for position in positions:
        mark.move(position, sync=sync)
    mark.close()


def test_mark_that_was_never_moved_is_at_zero(tmp_path: Path) -> None:
    """Without a mark, no byte of the log counts as flushed."""
    assert read_flush_mark(tmp_path / "m") == 0
    assert FlushMark(tmp_path / "m", Files()).position == 0


def test_last_mark_counts_also_when_it_is_lower(tmp_path: Path) -> None:
    """A truncation lowers the mark.

    So the newest slot is the one with the higher sequence number.
    """
    path = tmp_path / "m"
    for position in (100, 700, 300, 0, 50):
        move_mark(path, position)
        assert read_flush_mark(path) == position
        assert FlushMark(path, Files()).position == position


def test_mark_whose_write_was_interrupted_is_the_one_before(tmp_path: Path) -> None:
    """A slot that is only partly written is invalid. Then the other slot counts."""
    path = tmp_path / "m"
    move_mark(path, 100, 200)
    before = path.read_bytes()
    move_mark(path, 300)
    after = path.read_bytes()
    changed = [
        index for index, (old, new) in enumerate(zip(before, after, strict=True)) if old != new
    ]
    # Let the write of 300 end after each of the changed bytes except the last one.
    for end_of_write in range(changed[0] + 1, changed[-1] + 1):
        path.write_bytes(after[:end_of_write] + before[end_of_write:])
        assert read_flush_mark(path) == 200
    path.write_bytes(after)
    assert read_flush_mark(path) == 300


def test_unsynced_marks_leave_the_synced_one_in_place(tmp_path: Path) -> None:
    """A power loss may remove marks that are not synced. The synced mark must stay valid."""
    path = tmp_path / "m"
    mark = FlushMark(path, Files())  # stays open, because opening the file again would sync it
    mark.move(100, sync=True)
    synced = path.read_bytes()
    for position in (200, 300, 400):
        mark.move(position, sync=False)
    unsynced = path.read_bytes()
    assert read_flush_mark(path) == 400
    # The synced slot is the first one in the file, and is unchanged; the other slot comes after it.
    assert unsynced.startswith(synced)


def test_unchanged_mark_causes_no_sync_once_it_is_synced(tmp_path: Path) -> None:
    """A log that is flushed often without new appends must not delay the broker by syncs."""
    files = CountingFiles()
    mark = FlushMark(tmp_path / "m", files)
    mark.move(100, sync=True)
    syncs_before = files.syncs
    mark.move(100, sync=True)
    assert files.syncs == syncs_before
    mark.move(200, sync=False)
    assert files.syncs == syncs_before
    mark.move(200, sync=True)  # the position is the same, but was not synced yet
    assert files.syncs == syncs_before + 1
