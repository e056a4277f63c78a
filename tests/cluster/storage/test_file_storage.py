"""FileStorage keeps appends through a kill, removes torn tails, and behaves like logs in memory.

- A torn tail is a part of a batch at the end of a file, whose write was interrupted.
- A flush mark is the position up to which a log counts as on the disk. The mark is in a file beside
  the log.
- `cut_to_flush_marks` is a simulated power loss: it cuts every log to its mark.
- `write_back` moves the mark without a sync, as if the kernel had written the data by itself.
- `flushed_length` is the number of batches up to the mark.
"""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cluster.storage.file_storage import FileStorage, cut_to_flush_marks
from cluster.storage.files import Files
from partition_log.memory_storage import MemoryLogStorage
from partition_log.storage import LogRecovery
from protocol.causes import RecoveryCause
from protocol.errors import SimulationError
from protocol.ids import Offset, TopicPartition
from tests.support.builders.partition_logs import batch

PARTITION = TopicPartition("__consumer_offsets", 3)
LOG = "__consumer_offsets-3.log"
ENOSPC = 28
"""The error number of the operating system for a full disk."""


def test_file_log_opened_again_has_every_batch(tmp_path: Path) -> None:
    """The first log is neither closed nor flushed, as if its process was killed."""
    log = FileStorage(tmp_path / "disk").log(PARTITION)
    for offset in range(3):
        log.append(batch(base_offset=offset))
    reopened = FileStorage(tmp_path / "disk")
    assert reopened.partitions() == (PARTITION,)
    again = reopened.log(PARTITION)
    assert [again.batch(i) for i in range(len(again))] == [batch(base_offset=o) for o in range(3)]
    assert [again.base_offset(i) for i in range(3)] == [0, 1, 2]
    assert reopened.take_recoveries() == ()


def test_file_log_cut_anywhere_loses_only_the_torn_batch_and_reports_it(tmp_path: Path) -> None:
    """A kill may stop a write at any byte. Later appends must follow the last whole batch."""
    log = FileStorage(tmp_path).log(PARTITION)
    log.append(batch(base_offset=0))
    log.append(batch(base_offset=1))
    content = (tmp_path / LOG).read_bytes()
    # A frame is a batch in the file. Both frames have the same length.
    frame_size = len(content) // 2
    for cut in range(len(content)):
        (tmp_path / LOG).write_bytes(content[:cut])
        storage = FileStorage(tmp_path)
        torn = storage.log(PARTITION)
        whole_batches, torn_bytes = divmod(cut, frame_size)
        assert len(torn) == whole_batches

        expected = LogRecovery(
            partition=PARTITION,
            log_end_offset=Offset(whole_batches),
            cut_bytes=torn_bytes,
            cut_batches=None,  # batches are counted only after a power loss
            cause=RecoveryCause.TORN_TAIL,
        )
        assert storage.take_recoveries() == ((expected,) if torn_bytes else ())

        torn.append(batch("new", base_offset=whole_batches))
        storage.close()

        reopened = FileStorage(tmp_path)
        assert reopened.log(PARTITION).batch(whole_batches) == batch(
            "new", base_offset=whole_batches
        )
        assert reopened.take_recoveries() == ()


def test_file_log_damaged_below_its_flush_mark_lowers_the_mark(tmp_path: Path) -> None:
    """A damaged batch and all batches after it are removed when the log is opened.

    If the flush mark stayed behind them, new batches in their places would count as flushed.
    """
    log = FileStorage(tmp_path).log(PARTITION)
    for offset in range(3):
        log.append(batch(base_offset=offset))
    log.flush()

    content = bytearray((tmp_path / LOG).read_bytes())
    content[len(content) // 2] ^= 1  # change a bit of the second of the three batches
    (tmp_path / LOG).write_bytes(bytes(content))

    damaged = FileStorage(tmp_path).log(PARTITION)
    assert (len(damaged), damaged.flushed_length) == (1, 1)
    damaged.append(batch(base_offset=1))
    # Nothing has flushed the new batch, so a power loss removes it.
    assert cut_to_flush_marks(tmp_path)[0].cut_batches == 1
    assert len(FileStorage(tmp_path).log(PARTITION)) == 1


def test_file_log_shorter_than_its_flush_mark_lowers_the_mark(tmp_path: Path) -> None:
    """A write-back moves the mark without a sync, and then the real machine loses power.

    The file then lacks a batch that the mark counts. The mark must go back to the end of the file.
    """
    log = FileStorage(tmp_path).log(PARTITION)
    log.append(batch(base_offset=0))
    size = (tmp_path / LOG).stat().st_size
    log.append(batch(base_offset=1))
    log.write_back()

    with (tmp_path / LOG).open("r+b") as file:
        file.truncate(size)

    shorter = FileStorage(tmp_path).log(PARTITION)
    assert shorter.flushed_length == 1
    shorter.append(batch("new", base_offset=1))
    assert FileStorage(tmp_path).log(PARTITION).flushed_length == 1


class FullDisk(Files):
    """A disk with room for `room` more bytes."""

    room = 10_000  # enough for all batches of the test

    def write(self, file: int, content: bytes, position: int) -> int:
        """Write as many bytes as there is room for; raise OSError if there is no room."""
        if self.room == 0:
            raise OSError(ENOSPC, "No space left on device")
        written = super().write(file, content[: self.room], position)
        self.room -= written
        return written


def test_file_log_on_a_full_disk_keeps_its_whole_batches(tmp_path: Path) -> None:
    """A batch that is only partly written is removed, so the next append follows a whole batch."""
    disk = FullDisk()
    log = FileStorage(tmp_path, disk).log(PARTITION)
    log.append(batch(base_offset=0))

    disk.room = 20  # less than a batch needs
    with pytest.raises(OSError, match="No space left"):
        log.append(batch(base_offset=1))

    disk.room = 10_000
    log.append(batch("smaller", base_offset=1))
    storage = FileStorage(tmp_path)
    assert storage.log(PARTITION).batch(1) == batch("smaller", base_offset=1)
    assert storage.take_recoveries() == ()


def test_unflushed_logs_cause_no_sync(tmp_path: Path) -> None:
    """By default nothing waits for the disk, so appends and write-backs are as fast as memory."""

    class NoSync(Files):
        def fdatasync(self, file: int) -> None:
            """Fail, because no call is expected."""
            raise AssertionError(file)

        def sync_directory(self, directory: Path) -> None:
            """Fail, because no call is expected."""
            raise AssertionError(directory)

    log = FileStorage(tmp_path, NoSync()).log(PARTITION)
    for offset in range(5):
        log.append(batch(base_offset=offset))
        log.write_back()
    assert cut_to_flush_marks(tmp_path) == ()


def test_file_log_cannot_keep_more_batches_than_it_has(tmp_path: Path) -> None:
    """A caller that wants to keep 2 batches of 1 has a bug. The log raises and keeps its batch."""
    log = FileStorage(tmp_path).log(PARTITION)
    log.append(batch(base_offset=0))
    with pytest.raises(SimulationError, match="cannot keep 2 batches of 1"):
        log.truncate(2)
    assert len(log) == 1


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    steps=st.lists(
        st.one_of(
            st.text(max_size=40),
            st.integers(min_value=0, max_value=6),
        ),
        max_size=15,
    )
)
def test_file_log_equals_the_log_in_memory(
    tmp_path_factory: pytest.TempPathFactory, steps: list[str | int]
) -> None:
    """Both kinds of logs must behave in the same way, because runtimes use one or the other.

    A step is a text, which is appended as a batch, or a length, to which the logs are truncated.
    """
    directory = tmp_path_factory.mktemp("disk")
    memory = MemoryLogStorage()
    for step in steps:
        log = FileStorage(directory).log(PARTITION)
        if isinstance(step, str):
            memory.append(batch(step, base_offset=len(memory)))
            log.append(batch(step, base_offset=len(log)))
        else:
            memory.truncate(min(step, len(memory)))
            log.truncate(min(step, len(log)))
        log.close()  # so that each step opens the log again

    log = FileStorage(directory).log(PARTITION)
    assert [log.batch(i) for i in range(len(log))] == [memory.batch(i) for i in range(len(memory))]


def test_file_storage_checkpoint_is_replaced_and_found_again(tmp_path: Path) -> None:
    """A restarted broker reads its high watermarks from a checkpoint, also after a kill."""
    storage = FileStorage(tmp_path / "disk")
    assert storage.read_checkpoint("hw") is None
    # The directory is created by the first write, because a consumer, for example, never writes.
    assert not (tmp_path / "disk").exists()
    storage.write_checkpoint("hw", b"1")
    storage.write_checkpoint("hw", b"22")
    assert FileStorage(tmp_path / "disk").read_checkpoint("hw") == b"22"


# Three kinds of damage: an empty file, zeros in place of a lost page, and a CRC that does not fit
# the content. The CRC (checksum) is the first four bytes.
@pytest.mark.parametrize("left", [b"", b"\0" * 4, b"\0" * 30, b"\1\2\3\4 1"])
def test_damaged_checkpoint_reads_as_absent(tmp_path: Path, left: bytes) -> None:
    """A checkpoint is not synced, so a power loss of the real machine may leave an empty file."""
    (tmp_path / "hw").write_bytes(left)
    assert FileStorage(tmp_path).read_checkpoint("hw") is None
