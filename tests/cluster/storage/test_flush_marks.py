"""The flush mark of a log: the byte up to which the log file is known to be on the disk.

The mark is kept in a small file beside the log. A write to this file may be interrupted or lost in
a crash, and then the former mark must still be readable. Therefore the file has two slots, which
are written in turn. Each has a position, a sequence number and a checksum (CRC). The valid slot
with the higher sequence number counts.
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


def move_mark(path: Path, *positions: int) -> None:
    """Move the mark to each of these positions, one after the other, and sync each."""
    mark = FlushMark(path, Files())
    for position in positions:
        mark.move(position, sync=True)
    mark.close()


def test_mark_that_was_never_moved_is_at_zero(tmp_path: Path) -> None:
    """Without a file, no byte of the log counts as being on the disk."""
    assert read_flush_mark(tmp_path / "m") == 0
    assert FlushMark(tmp_path / "m", Files()).position == 0


def test_last_mark_counts_also_when_it_is_lower(tmp_path: Path) -> None:
    """A log that is truncated lowers its mark, so the higher position need not be the newer one."""
    path = tmp_path / "m"
    for position in (100, 700, 300, 0, 50):
        move_mark(path, position)
        assert read_flush_mark(path) == position
        assert FlushMark(path, Files()).position == position


def test_mark_whose_write_was_interrupted_is_the_one_before(tmp_path: Path) -> None:
    """The mark moves from 200 to 300, and this write is interrupted after any of its bytes.

    The slot of 300 is then invalid, so the slot of 200 counts.
    """
    path = tmp_path / "m"
    move_mark(path, 100, 200)
    file_with_200 = path.read_bytes()
    move_mark(path, 300)
    file_with_300 = path.read_bytes()
    changed = [
        index
        for index, (old_byte, new_byte) in enumerate(zip(file_with_200, file_with_300, strict=True))
        if old_byte != new_byte
    ]
    # The write stops after at least one changed byte, and before the last changed byte.
    for end_of_write in range(changed[0] + 1, changed[-1] + 1):
        path.write_bytes(file_with_300[:end_of_write] + file_with_200[end_of_write:])
        assert read_flush_mark(path) == 200
    path.write_bytes(file_with_300)
    assert read_flush_mark(path) == 300


def test_unsynced_marks_leave_the_synced_one_in_place(tmp_path: Path) -> None:
    """A power loss may remove or destroy what is not synced, but never the synced mark.

    Therefore marks that are not synced are all written into the other slot.
    """
    path = tmp_path / "m"
    mark = FlushMark(path, Files())  # stays open, because opening the file again would sync it
    mark.move(100, sync=True)
    synced_slot = path.read_bytes()
    for position in (200, 300, 400):
        mark.move(position, sync=False)
    assert read_flush_mark(path) == 400
    # The synced slot is the first one in the file, and is unchanged.
    assert path.read_bytes().startswith(synced_slot)


def test_unchanged_mark_causes_no_sync_once_it_is_synced(tmp_path: Path) -> None:
    """A log may be flushed often without new appends. This must not delay the broker by syncs."""
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
