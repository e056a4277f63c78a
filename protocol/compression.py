"""Compression of batches: Kafka's ids of codecs, and the interface of a set of codecs.

A codec is a compression algorithm, such as gzip. The coordinators and the log do not import the
libraries with the algorithms. The broker passes them an object that implements `Codecs`.

Source: Kafka `CompressionType`.
"""

from enum import IntEnum
from typing import Protocol


class CompressionType(IntEnum):
    """Kafka's ids of codecs, in `offsets.topic.compression.codec` and in a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class Codecs(Protocol):
    """A set of codecs, which compress and decompress payloads."""

    def compress(self, compression: int, payload: bytes) -> bytes:
        """Return `payload` compressed with the codec of id `compression`."""

    def decompress(self, compression: int, payload: bytes) -> bytes:
        """Return the payload from which `payload` was compressed.

        Raises: ValueError if `payload` is not in the format of the codec.
        """


class _NoCodecs:
    """A set without any codec."""

    def compress(self, compression: int, payload: bytes) -> bytes:
        """Raise ValueError, since the set has no codec."""
        raise ValueError(f"no codec {compression} to compress with")

    def decompress(self, compression: int, payload: bytes) -> bytes:
        """Raise ValueError, since the set has no codec."""
        raise ValueError(f"no codec {compression} to decompress with")


NO_CODECS: Codecs = _NoCodecs()
"""The set of codecs for logs without compressed batches."""
