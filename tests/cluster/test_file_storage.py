"""FileStorage: what was appended survives a kill; a torn tail is cut; it behaves as in memory."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cluster.file_storage import FileStorage
from partition_log.memory_storage import MemoryLogStorage
from protocol.errors import SimulationError
from protocol.ids import TopicPartition
from protocol.record_batch import RecordBatch

PARTITION = TopicPartition("__consumer_offsets", 3)


def batch(base_offset: int, *, payload: bytes = b"payload") -> RecordBatch:
    return RecordBatch(
        base_offset=base_offset,
        partition_leader_epoch=4,
        last_offset_delta=0,
        max_timestamp_ms=9,
        records=payload,
    )


def test_file_log_opened_again_has_every_batch(tmp_path: Path) -> None:
    """A killed broker comes back on its disk; nothing is closed or flushed before a kill."""
    log = FileStorage(tmp_path / "disk").log(PARTITION)
    for offset in range(3):
        log.append(batch(offset))
    reopened = FileStorage(tmp_path / "disk")
    assert reopened.partitions() == (PARTITION,)
    again = reopened.log(PARTITION)
    assert [again.batch(i) for i in range(len(again))] == [batch(o) for o in range(3)]
    assert [again.base_offset(i) for i in range(3)] == [0, 1, 2]
    assert reopened.take_recoveries() == ()


def test_file_log_cut_anywhere_loses_only_the_torn_batch(tmp_path: Path) -> None:
    """A write may be cut at any byte; what follows must be appended behind the last whole batch."""
    log = FileStorage(tmp_path).log(PARTITION)
    log.append(batch(0))
    log.append(batch(1))
    path = tmp_path / "__consumer_offsets-3.log"
    content = path.read_bytes()
    size = len(content) // 2
    for cut in range(len(content)):
        path.write_bytes(content[:cut])
        torn = FileStorage(tmp_path).log(PARTITION)
        assert len(torn) == cut // size
        assert torn.torn_bytes == cut % size
        torn.append(batch(7))
        after = FileStorage(tmp_path).log(PARTITION)
        assert after.base_offset(len(after) - 1) == 7


def test_file_log_with_a_flipped_bit_is_cut_there(tmp_path: Path) -> None:
    """The CRC tells a damaged batch from a whole one."""
    log = FileStorage(tmp_path).log(PARTITION)
    log.append(batch(0))
    log.append(batch(1))
    path = tmp_path / "__consumer_offsets-3.log"
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(bytes(content))
    damaged = FileStorage(tmp_path).log(PARTITION)
    assert [damaged.base_offset(i) for i in range(len(damaged))] == [0]


def test_file_log_truncated_below_nothing_is_refused(tmp_path: Path) -> None:
    """A truncation that cannot be carried out is our bug and must not pass."""
    log = FileStorage(tmp_path).log(PARTITION)
    log.append(batch(0))
    with pytest.raises(SimulationError, match="cannot keep 2 batches of 1"):
        log.truncate(2)
    assert len(log) == 1


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    steps=st.lists(
        st.one_of(
            st.binary(max_size=40),
            st.integers(min_value=0, max_value=6),
        ),
        max_size=15,
    )
)
def test_file_log_behaves_as_the_one_in_memory(
    tmp_path_factory: pytest.TempPathFactory, steps: list[bytes | int]
) -> None:
    """One Storage contract, two forms: the virtual and the Ray runtime must not differ by it."""
    directory = tmp_path_factory.mktemp("disk")
    memory = MemoryLogStorage()
    for offset, step in enumerate(steps):
        log = FileStorage(directory).log(PARTITION)
        if isinstance(step, bytes):
            memory.append(batch(offset, payload=step))
            log.append(batch(offset, payload=step))
        else:
            memory.truncate(min(step, len(memory)))
            log.truncate(min(step, len(log)))
        log.close()
    log = FileStorage(directory).log(PARTITION)
    assert [log.batch(i) for i in range(len(log))] == [memory.batch(i) for i in range(len(memory))]


def test_file_storage_checkpoint_is_replaced_and_found_again(tmp_path: Path) -> None:
    """The high watermark checkpoint must be there after a kill."""
    storage = FileStorage(tmp_path / "disk")
    assert storage.read_checkpoint("hw") is None
    assert not (tmp_path / "disk").exists(), "a consumer has no disk to speak of"
    storage.write_checkpoint("hw", b"1")
    storage.write_checkpoint("hw", b"22")
    assert FileStorage(tmp_path / "disk").read_checkpoint("hw") == b"22"
