"""Format of `replication-offset-checkpoint`, the file with the high watermarks of a broker.

The file is text, as in Kafka: a line with the version, a line with the number of entries, and a
line for each entry. An entry has a topic, a partition and its high watermark. Example:

    0
    2
    __consumer_offsets 7 120
    orders 0 3542

Source: Kafka `OffsetCheckpointFile`.
"""

from collections.abc import Iterable

from protocol.errors import SimulationError
from protocol.ids import Offset, TopicPartition

REPLICATION_OFFSET_CHECKPOINT = "replication-offset-checkpoint"
_VERSION = "0"
_HEADER_LINES = 2


def encode_offset_checkpoint(offsets: Iterable[tuple[TopicPartition, Offset]]) -> bytes:
    """Return the content of a checkpoint file, with the partitions in the given order."""
    lines = [f"{topic} {partition} {offset}" for (topic, partition), offset in offsets]
    return "\n".join([_VERSION, str(len(lines)), *lines, ""]).encode()


def decode_offset_checkpoint(content: bytes) -> dict[TopicPartition, Offset]:
    """Return the offsets in a checkpoint file.

    Raises: SimulationError if the content is no checkpoint of this version, or if lines are
        missing. The file is replaced atomically, so only a bug can cause this.
    """
    lines = content.decode().splitlines()
    # The second line must be the number of the lines that follow it.
    if len(lines) < _HEADER_LINES or lines[0] != _VERSION or lines[1] != str(len(lines) - 2):
        raise SimulationError(f"no offset checkpoint: {content[:80]!r}")
    offsets = {}
    for line in lines[_HEADER_LINES:]:
        topic, partition, offset = line.rsplit(" ", 2)  # from the right: a topic may have spaces
        offsets[TopicPartition(topic, int(partition))] = Offset(int(offset))
    return offsets
