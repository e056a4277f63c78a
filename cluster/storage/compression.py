"""The codecs that batches of `__consumer_offsets` are compressed with, from libraries.

gzip is the standard library's; snappy, lz4 and zstd are pyarrow's, as far as it was built with
them. It is imported only for those, and before a run begins.
DEVIATION: in front of the compressed bytes stands the length of the others, four bytes, instead of
the frames of snappy-java; levels are Kafka's.
"""

import struct
import zlib
from functools import lru_cache
from typing import Any

from protocol.compression import CompressionType
from protocol.errors import SimulationError

_LENGTH = struct.Struct(">I")
_GZIP_WINDOW = 31
"""zlib's word for a gzip header and trailer around it; the header has no time in it."""
_GZIP_LEVEL = 6
_LEVELS = {CompressionType.ZSTD: 3, CompressionType.LZ4: 9}
"""Kafka's default levels of the codecs that have any."""


class PayloadCodecs:
    """Compresses and decompresses payloads. See `protocol.compression.Codecs`."""

    def compress(self, compression: int, payload: bytes) -> bytes:
        """Return `payload` compressed with a codec. Raises: SimulationError: not supported."""
        if compression == CompressionType.GZIP:
            packer = zlib.compressobj(_GZIP_LEVEL, zlib.DEFLATED, _GZIP_WINDOW)
            compressed = packer.compress(payload) + packer.flush()
        else:
            compressed = _codec(compression).compress(payload, asbytes=True)
        return _LENGTH.pack(len(payload)) + compressed

    def decompress(self, compression: int, payload: bytes) -> bytes:
        """Return what was compressed.

        Raises: ValueError for bytes that are no such thing; SimulationError: not supported.
        """
        if len(payload) < _LENGTH.size:
            raise ValueError(f"{len(payload)} bytes are no compressed payload")
        (length,) = _LENGTH.unpack_from(payload)
        content = payload[_LENGTH.size :]
        try:
            if compression == CompressionType.GZIP:
                plain = zlib.decompress(content, _GZIP_WINDOW)
            else:
                plain = _codec(compression).decompress(content, length, asbytes=True)
        except (zlib.error, OSError, ValueError) as error:
            raise ValueError(f"codec {compression}: {error}") from error
        if len(plain) != length:
            raise ValueError(f"codec {compression}: {len(plain)} bytes instead of {length}")
        return plain


CODECS = PayloadCodecs()
"""The codecs of this process."""


def supported_codecs() -> tuple[CompressionType, ...]:
    """Return the codecs that there are libraries for here. Imports pyarrow."""
    return tuple(each for each in CompressionType if is_supported(each))


def is_supported(compression: int) -> bool:
    """Return whether there is a library for a codec here. Imports pyarrow for its codecs."""
    if compression in (CompressionType.NONE, CompressionType.GZIP):
        return True
    try:
        _codec(compression)
    except SimulationError:
        return False
    return True


def require_codec(compression: int) -> None:
    """See that a codec can be used, and what it needs is imported.

    Raises: SimulationError, naming those that can.
    """
    if not is_supported(compression):
        names = ", ".join(f"{each.value} ({each.name.lower()})" for each in supported_codecs())
        raise SimulationError(
            f"offsets.topic.compression.codec {compression}: there is no library for it here; "
            f"supported are {names}"
        )


@lru_cache
def _codec(compression: int) -> Any:  # noqa: ANN401 - a pyarrow.Codec, which has no types
    """Return pyarrow's codec. Raises: SimulationError if it has none."""
    try:
        import pyarrow  # noqa: PLC0415 - a large import, for those who ask for these codecs
    except ImportError as error:
        raise SimulationError(f"codec {compression} needs pyarrow") from error
    known = CompressionType(compression)
    name = known.name.lower()
    if known in (CompressionType.NONE, CompressionType.GZIP) or not pyarrow.Codec.is_available(
        name
    ):
        raise SimulationError(f"pyarrow has no codec {name}")
    return pyarrow.Codec(name, compression_level=_LEVELS.get(known))
