"""Which codecs a batch may be compressed with, and what whoever reads and writes batches is given.

Owns Kafka's ids; the codecs themselves are libraries, which cores do not know: `Codecs` is handed
in. Source: Kafka `CompressionType`.
"""

from enum import IntEnum
from typing import Protocol


class CompressionType(IntEnum):
    """Kafka's ids, as in `offsets.topic.compression.codec` and in a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class Codecs(Protocol):
    """What compresses and decompresses payloads."""

    def compress(self, compression: int, payload: bytes) -> bytes:
        """Return `payload` compressed with a codec, by its id."""

    def decompress(self, compression: int, payload: bytes) -> bytes:
        """Return what was compressed. Raises: ValueError for bytes that are no such thing."""


class _NoCodecs:
    """Knows no codec but none."""

    def compress(self, compression: int, payload: bytes) -> bytes:
        """Raises: ValueError."""
        raise ValueError(f"no codec {compression} to compress with")

    def decompress(self, compression: int, payload: bytes) -> bytes:
        """Raises: ValueError."""
        raise ValueError(f"no codec {compression} to decompress with")


NO_CODECS: Codecs = _NoCodecs()
"""For logs that nothing is compressed in."""
