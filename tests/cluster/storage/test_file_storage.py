"""FileStorage keeps appends through a kill, removes torn tails, and behaves like logs in memory.

In real time a broker has its logs in files. If its process is killed, all its writes survive, but
the last one may be torn: the file ends with a part of a batch. Such a torn tail is removed when the
log is opened again.

A power loss of a machine is only simulated. For this each log has a flush mark, in a file beside
the log. The mark is the position up to which the data count as written to the disk.

- `flush` moves the mark to the end of the log.
- `write_back` also moves the mark to the end of the log. It stands for the kernel, which from time
  to time writes the data to the disk by itself.
- `flushed_length` is the number of batches up to the mark.
- `cut_to_flush_marks` is the power loss: it cuts each log at its mark.
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
    batches = [batch(base_offset=offset) for offset in range(3)]
    for appended in batches:
        log.append(appended)

    opened_storage = FileStorage(tmp_path / "disk")
    assert opened_storage.partitions() == (PARTITION,)
    opened_log = opened_storage.log(PARTITION)
    assert [opened_log.batch(index) for index in range(len(opened_log))] == batches
    assert [opened_log.base_offset(index) for index in range(3)] == [0, 1, 2]
    assert opened_storage.take_recoveries() == ()  # nothing had to be removed


def test_file_log_cut_anywhere_loses_only_the_torn_batch_and_reports_it(tmp_path: Path) -> None:
    """A kill may stop a write at any byte. Later appends must follow the last whole batch."""
    log = FileStorage(tmp_path).log(PARTITION)
    log.append(batch(base_offset=0))
    log.append(batch(base_offset=1))
    content = (tmp_path / LOG).read_bytes()
    batch_size = len(content) // 2  # both batches have the same size in the file
    for cut in range(len(content)):
        (tmp_path / LOG).write_bytes(content[:cut])
        storage = FileStorage(tmp_path)
        torn = storage.log(PARTITION)
        whole_batches, torn_bytes = divmod(cut, batch_size)
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
    """When a log is opened, a damaged batch is removed, and with it all later batches.

    The flush mark must go back, too. Otherwise new batches in the places of the removed ones would
    count as flushed.
    """
    log = FileStorage(tmp_path).log(PARTITION)
    for offset in range(3):
        log.append(batch(base_offset=offset))
    log.flush()

    content = bytearray((tmp_path / LOG).read_bytes())
    content[len(content) // 2] ^= 1  # change a bit of the second of the three batches
    (tmp_path / LOG).write_bytes(bytes(content))

    damaged = FileStorage(tmp_path).log(PARTITION)
    assert len(damaged) == 1
    assert damaged.flushed_length == 1
    damaged.append(batch(base_offset=1))
    # Nothing has flushed the new batch, so a power loss removes it.
    assert cut_to_flush_marks(tmp_path)[0].cut_batches == 1
    assert len(FileStorage(tmp_path).log(PARTITION)) == 1


def test_file_log_shorter_than_its_flush_mark_lowers_the_mark(tmp_path: Path) -> None:
    """`write_back` moves the mark, but does not really write the log to the disk.

    So if the real machine loses its power, the file may lack a batch that the mark counts as
    flushed. When the log is opened again, the mark must go back to the end of the file.
    """
    log = FileStorage(tmp_path).log(PARTITION)
    log.append(batch(base_offset=0))
    size_of_one_batch = (tmp_path / LOG).stat().st_size
    log.append(batch(base_offset=1))
    log.write_back()

    with (tmp_path / LOG).open("r+b") as file:
        file.truncate(size_of_one_batch)

    shorter = FileStorage(tmp_path).log(PARTITION)
    assert shorter.flushed_length == 1
    shorter.append(batch("new", base_offset=1))
    assert FileStorage(tmp_path).log(PARTITION).flushed_length == 1


class FullDisk(Files):
    """A disk with a limited number of free bytes."""

    free_bytes = 10_000  # enough for all batches of the test

    def write(self, file: int, content: bytes, position: int) -> int:
        """Write as many bytes as there is space for. Raise OSError if there is no space at all."""
        if self.free_bytes == 0:
            raise OSError(ENOSPC, "No space left on device")
        written = super().write(file, content[: self.free_bytes], position)
        self.free_bytes -= written
        return written


def test_file_log_on_a_full_disk_keeps_its_whole_batches(tmp_path: Path) -> None:
    """A batch that is only partly written is removed, so the next append follows a whole batch."""
    disk = FullDisk()
    log = FileStorage(tmp_path, disk).log(PARTITION)
    log.append(batch(base_offset=0))

    disk.free_bytes = 20  # less than a batch needs
    with pytest.raises(OSError, match="No space left"):
        log.append(batch(base_offset=1))

    disk.free_bytes = 10_000
    log.append(batch("smaller", base_offset=1))
    storage = FileStorage(tmp_path)
    assert storage.log(PARTITION).batch(1) == batch("smaller", base_offset=1)
    assert storage.take_recoveries() == ()


def test_unflushed_logs_cause_no_sync(tmp_path: Path) -> None:
    """By default no append and no write-back waits for the disk, because that would take long."""

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
    """`truncate(2)` means to keep the first two batches. The log has only one, so this is a bug.

    The log stays as it is.
    """
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
    """A log in a file must behave like a log in memory, because runtimes use both kinds.

    Both logs get the same random steps. A step is a text or a number. A text is appended as a
    batch. A number is the length to which the logs are truncated.
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
    batches_in_file = [log.batch(index) for index in range(len(log))]
    assert batches_in_file == [memory.batch(index) for index in range(len(memory))]


def test_file_storage_checkpoint_is_replaced_and_found_again(tmp_path: Path) -> None:
    """A restarted broker reads its high watermarks from a checkpoint, even after a kill.

    The first write creates the directory of the storage. Some nodes, such as consumers, never write
    anything, and so have no directory.
    """
    storage = FileStorage(tmp_path / "disk")
    assert storage.read_checkpoint("hw") is None
    assert not (tmp_path / "disk").exists()
    storage.write_checkpoint("hw", b"1")
    storage.write_checkpoint("hw", b"22")
    assert FileStorage(tmp_path / "disk").read_checkpoint("hw") == b"22"


@pytest.mark.parametrize(
    "damaged",
    [
        pytest.param(b"", id="empty file"),
        pytest.param(b"\0" * 4, id="four zeros"),
        pytest.param(b"\0" * 30, id="many zeros"),
        pytest.param(b"\1\2\3\4 1", id="wrong checksum"),
    ],
)
def test_damaged_checkpoint_reads_as_absent(tmp_path: Path, damaged: bytes) -> None:
    """A checkpoint is not synced, so a power loss of the real machine may damage the file.

    The first four bytes of a checkpoint are the checksum of its content.
    """
    (tmp_path / "hw").write_bytes(damaged)
    assert FileStorage(tmp_path).read_checkpoint("hw") is None
