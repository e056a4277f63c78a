"""The high watermark checkpoint: the file in which a broker keeps its high watermarks on disk.

The file is in Kafka's text form: the version 0, the number of lines that follow, and a line for
each partition with its topic, its index and its high watermark.
"""

import pytest

from partition_log.checkpoints import decode_offset_checkpoint, encode_offset_checkpoint
from protocol.errors import SimulationError
from protocol.ids import Offset, TopicPartition

OFFSETS = {TopicPartition("__consumer_offsets", 3): Offset(7), TopicPartition("a b", 0): Offset(0)}


def test_checkpoint_is_written_in_kafkas_format() -> None:
    """Kafka's tools can read the file. A space in a topic's name is not escaped."""
    assert encode_offset_checkpoint(OFFSETS.items()) == b"0\n2\n__consumer_offsets 3 7\na b 0 0\n"


@pytest.mark.parametrize("offsets", [{}, OFFSETS])
def test_decoded_checkpoint_has_what_was_encoded(offsets: dict[TopicPartition, Offset]) -> None:
    """In this way a restarted broker gets its high watermarks back."""
    assert decode_offset_checkpoint(encode_offset_checkpoint(offsets.items())) == offsets


@pytest.mark.parametrize(
    "content",
    [b"", b"0\n", b"1\n0\n", b"0\n2\na 0 1\n"],
    ids=["empty", "without a number of lines", "another version", "one line of two"],
)
def test_damaged_checkpoint_raises_an_exception(content: bytes) -> None:
    """A broker always replaces the whole file, so only a bug can leave a damaged file."""
    with pytest.raises(SimulationError):
        decode_offset_checkpoint(content)
