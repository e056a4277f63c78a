"""FileStorage: a broker's disk as real files, for node processes that can really be killed.

One append-only file per partition. Each batch is a frame of length, CRC-32C and MessagePack,
written to the page cache before `append` returns: `kill -9` loses nothing but a torn last frame,
which opening the file cuts off. Batches are kept in memory too, as the page cache would.
"""

import os
import struct
from pathlib import Path

import google_crc32c
import msgspec

from partition_log.storage import LogStorage, Storage
from protocol.errors import SimulationError
from protocol.ids import TopicPartition
from protocol.record_batch import RecordBatch

_HEADER = struct.Struct(">II")
_LOG_SUFFIX = ".log"


class FileLogStorage(LogStorage):
    """The batches of one partition in one file, which it keeps open.

    Invariant: the file holds exactly the frames of `_batches`; frame i begins at `_positions[i]`
    and the last position is the file's size.
    """

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        self._encoder = msgspec.msgpack.Encoder()
        self._batches: list[RecordBatch] = []
        self._positions: list[int] = [0]
        self.torn_bytes = self._recover(path.read_bytes())
        """Bytes behind the last whole frame that were cut off when the file was opened."""

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
        payload = self._encoder.encode(batch)
        frame = _HEADER.pack(len(payload), google_crc32c.value(payload)) + payload
        try:
            written = 0
            while written < len(frame):
                written += os.write(self._file, frame[written:])
        except OSError:
            os.ftruncate(self._file, self._positions[-1])
            raise
        self._batches.append(batch)
        self._positions.append(self._positions[-1] + len(frame))

    def truncate(self, length: int) -> None:
        """Keep the first `length` batches.

        Raises: SimulationError if there are fewer.
        """
        if not 0 <= length <= len(self._batches):
            raise SimulationError(f"cannot keep {length} batches of {len(self._batches)}")
        os.ftruncate(self._file, self._positions[length])
        del self._batches[length:]
        del self._positions[length + 1 :]

    def flush(self) -> None:
        """Make what was appended survive a power loss (fdatasync)."""
        os.fdatasync(self._file)

    def close(self) -> None:
        """Close the file; nothing may be appended any more."""
        os.close(self._file)

    def _recover(self, content: bytes) -> int:
        """Take the whole frames of `content`, cut the file behind them; return what was cut."""
        decoder = msgspec.msgpack.Decoder(RecordBatch)
        end = 0
        while len(content) - end >= _HEADER.size:
            length, crc = _HEADER.unpack_from(content, end)
            payload = content[end + _HEADER.size : end + _HEADER.size + length]
            if len(payload) < length or google_crc32c.value(payload) != crc:
                break
            self._batches.append(decoder.decode(payload))
            end += _HEADER.size + length
            self._positions.append(end)
        torn_bytes = len(content) - end
        if torn_bytes:
            os.ftruncate(self._file, end)
        return torn_bytes


class FileStorage(Storage):
    """A broker's disk as a directory, made when something is first written to it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._logs: dict[TopicPartition, FileLogStorage] = {}
        for path in sorted(directory.glob(f"*{_LOG_SUFFIX}")):
            topic, _, partition = path.name.removesuffix(_LOG_SUFFIX).rpartition("-")
            self.log(TopicPartition(topic, int(partition)))

    def log(self, partition: TopicPartition) -> FileLogStorage:
        """Return the log of `partition`, made empty if there was none. Raises: OSError."""
        found = self._logs.get(partition)
        if found is None:
            self.directory.mkdir(parents=True, exist_ok=True)
            found = FileLogStorage(self.directory / f"{partition}{_LOG_SUFFIX}")
            self._logs[partition] = found
        return found

    def partitions(self) -> tuple[TopicPartition, ...]:
        """Return the partitions that have a log, by topic and partition number."""
        return tuple(sorted(self._logs))

    def write_checkpoint(self, name: str, content: bytes) -> None:
        """Replace a small file atomically: a kill leaves the old content or the new.

        DEVIATION: Kafka also syncs it, on a thread of its own; here that would hold up the node.
        """
        self.directory.mkdir(parents=True, exist_ok=True)
        unfinished = self.directory / f"{name}.unfinished"
        unfinished.write_bytes(content)
        unfinished.replace(self.directory / name)

    def read_checkpoint(self, name: str) -> bytes | None:
        """Return a checkpoint's content, None if it was never written."""
        path = self.directory / name
        return path.read_bytes() if path.exists() else None

    def close(self) -> None:
        """Close every file."""
        for log in self._logs.values():
            log.close()
        self._logs.clear()
