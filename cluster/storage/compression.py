"""Codecs for record batches, in the formats of Kafka's clients.

gzip is in the standard library. snappy, lz4 and zstd are taken from pyarrow. This module imports
pyarrow only if one of these three codecs is used.

There are two formats of snappy. Java's clients use the library snappy-java, which writes a header
and then a stream of blocks. Other clients write one block without a header. This module reads both
formats, and writes the format of snappy-java.

Source: Kafka `GzipCompression`, `SnappyCompression`, `Lz4Compression`, `ZstdCompression`.
DEVIATION: a payload that decompresses to more than MAX_PAYLOAD_BYTES is refused.
"""

import struct
import zlib
from functools import lru_cache
from typing import Any

from protocol.compression import CompressionType
from protocol.errors import SimulationError

MAX_PAYLOAD_BYTES = 1 << 28
"""Largest decompressed size of a batch: 256 MiB. Without this limit, a few compressed kilobytes
could fill the memory."""
_GZIP_WINDOW = 16 + zlib.MAX_WBITS
"""zlib's `wbits` value for its largest window (15), plus 16 for gzip's header and trailer.

A gzip header has a field for the time of the compression. zlib leaves this field empty. Therefore
the same payload always gives the same compressed bytes, as a replay of a run requires.
"""
_GZIP_LEVEL = 6
"""The default level of zlib and of Kafka."""
_LEVELS = {CompressionType.ZSTD: 3, CompressionType.LZ4: 9}
"""Kafka's default levels, for the codecs of pyarrow that have levels."""
_XERIAL_MAGIC = b"\x82SNAPPY\x00"
"""First bytes of snappy-java's stream. Xerial is the project that makes snappy-java."""
_XERIAL_HEADER = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
"""The header of snappy-java's stream: magic, version, oldest compatible version."""
_XERIAL_LENGTH = struct.Struct(">i")
"""The length of a block, in front of the block."""
_XERIAL_BLOCK_BYTES = 32 * 1024
"""Number of uncompressed bytes in a block: snappy-java's default."""
_MAX_VARINT_BYTES = 5
"""Number of bytes in the longest varint of a 32-bit number: each byte holds 7 bits."""


class PayloadCodecs:
    """Compresses and decompresses payloads; implements `protocol.compression.Codecs`."""

    def compress(self, compression: int, payload: bytes) -> bytes:
        """Return `payload` compressed with a codec.

        Raises: SimulationError if the codec is not supported.
        """
        if compression == CompressionType.GZIP:
            packer = zlib.compressobj(_GZIP_LEVEL, zlib.DEFLATED, _GZIP_WINDOW)
            return packer.compress(payload) + packer.flush()
        if compression == CompressionType.SNAPPY:
            return _compress_snappy(payload)
        compressed: bytes = _codec(compression).compress(payload, asbytes=True)
        return compressed

    def decompress(self, compression: int, payload: bytes) -> bytes:
        """Return the decompressed payload.

        Raises: ValueError if `payload` is invalid or decompresses to too many bytes;
        SimulationError if the codec is not supported.
        """
        try:
            if compression == CompressionType.GZIP:
                plain = _decompress_gzip(payload)
            elif compression == CompressionType.SNAPPY:
                plain = _decompress_snappy(payload)
            else:
                plain = _decompress_stream(compression, payload)
        # zlib raises zlib.error for a broken payload, pyarrow raises OSError.
        except (zlib.error, struct.error, OSError, ValueError) as error:
            raise ValueError(f"codec {compression}: {error}") from error
        if len(plain) > MAX_PAYLOAD_BYTES:
            raise ValueError(
                f"codec {compression}: decompresses to more than {MAX_PAYLOAD_BYTES} bytes"
            )
        return plain


CODECS = PayloadCodecs()
"""The codecs of this process."""


def supported_codecs() -> tuple[CompressionType, ...]:
    """Return the codecs whose libraries are installed. Imports pyarrow."""
    return tuple(codec for codec in CompressionType if is_supported(codec))


def is_supported(compression: int) -> bool:
    """Return True if the library of a codec is installed.

    To find this out for snappy, lz4 and zstd, pyarrow is imported.
    """
    if compression in (CompressionType.NONE, CompressionType.GZIP):
        return True
    try:
        _codec(compression)
    except SimulationError:
        return False
    return True


def require_codec(compression: int) -> None:
    """Check that the codec of `__consumer_offsets` is supported, and import its library.

    Raises: SimulationError if it is not. The message names the setting that chooses this codec,
    `offsets.topic.compression.codec`, and lists the supported codecs.
    """
    if not is_supported(compression):
        names = ", ".join(f"{codec.value} ({codec.name.lower()})" for codec in supported_codecs())
        raise SimulationError(
            f"offsets.topic.compression.codec: expected one of {names}, got {compression}, whose "
            "library is not installed"
        )


@lru_cache
def _codec(compression: int) -> Any:  # noqa: ANN401 - a pyarrow.Codec, which has no types
    """Return pyarrow's codec. Raises: SimulationError if pyarrow or the codec is missing."""
    try:
        import pyarrow  # noqa: PLC0415 - a large import, needed for these codecs only
    except ImportError as error:
        raise SimulationError(f"codec {compression} needs pyarrow") from error
    codec = CompressionType(compression)
    name = codec.name.lower()
    # NONE is no codec, and this module compresses gzip with zlib, never with pyarrow.
    if codec in (CompressionType.NONE, CompressionType.GZIP) or not pyarrow.Codec.is_available(
        name
    ):
        raise SimulationError(f"pyarrow has no codec {name}")
    return pyarrow.Codec(name, compression_level=_LEVELS.get(codec))


def _decompress_gzip(payload: bytes) -> bytes:
    """Return the content of gzip data.

    The data may consist of several *members*, each with a header of its own. Their contents are
    concatenated.
    """
    plain: list[bytes] = []
    rest = payload
    # One byte more than is allowed, so that `decompress` sees that a payload is too large.
    bytes_left = MAX_PAYLOAD_BYTES + 1
    while bytes_left > 0:
        unpacker = zlib.decompressobj(_GZIP_WINDOW)
        plain.append(unpacker.decompress(rest, bytes_left))
        bytes_left -= len(plain[-1])
        # `eof` is True if the member was decompressed to its end. If not, there are two possible
        # reasons: the size limit was reached, or the compressed data is too short.
        if not unpacker.eof and bytes_left > 0:
            raise ValueError(f"{len(payload)} bytes end in the middle")
        rest = unpacker.unused_data  # the bytes after this member
        if not rest:
            break
    return b"".join(plain)


def _compress_snappy(payload: bytes) -> bytes:
    """Return `payload` as snappy-java's stream: a header, and blocks with their lengths."""
    codec = _codec(CompressionType.SNAPPY)
    parts = [_XERIAL_HEADER]
    for start in range(0, len(payload), _XERIAL_BLOCK_BYTES):
        block = codec.compress(payload[start : start + _XERIAL_BLOCK_BYTES], asbytes=True)
        parts += (_XERIAL_LENGTH.pack(len(block)), block)
    return b"".join(parts)


def _decompress_snappy(payload: bytes) -> bytes:
    """Return the content of snappy-java's stream, or of one bare block."""
    if not payload.startswith(_XERIAL_MAGIC):
        return _decompress_snappy_block(payload, MAX_PAYLOAD_BYTES)
    if len(payload) < len(_XERIAL_HEADER):
        raise ValueError(f"{len(payload)} bytes are no header of snappy-java")
    plain: list[bytes] = []
    bytes_left = MAX_PAYLOAD_BYTES
    position = len(_XERIAL_HEADER)
    while position < len(payload):
        (length,) = _XERIAL_LENGTH.unpack_from(payload, position)
        position += _XERIAL_LENGTH.size
        if not 0 < length <= len(payload) - position:
            raise ValueError(f"a block of {length} bytes, {len(payload) - position} are left")
        plain.append(_decompress_snappy_block(payload[position : position + length], bytes_left))
        bytes_left -= len(plain[-1])
        position += length
    return b"".join(plain)


def _decompress_snappy_block(block: bytes, max_bytes: int) -> bytes:
    """Return the content of a block, which begins with the content's length as a varint.

    Source: snappy's format description.
    """
    size = shift = 0
    for byte in block[:_MAX_VARINT_BYTES]:
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:  # the highest bit is 0 only in the last byte of a varint
            break
    else:  # no byte was the last byte of a varint
        raise ValueError(f"{len(block)} bytes are no block of snappy")
    if size > max_bytes:
        raise ValueError(f"a block decompresses to {size} bytes, at most {max_bytes} are allowed")
    plain: bytes = _codec(CompressionType.SNAPPY).decompress(block, size, asbytes=True)
    return plain


def _decompress_stream(compression: int, payload: bytes) -> bytes:
    """Return the content of lz4 or zstd frames.

    A frame need not contain the length of its content, so the content is read as a stream.
    """
    _codec(compression)  # raises SimulationError if the codec is not supported
    import pyarrow  # noqa: PLC0415 - a large import, needed for these codecs only

    if not payload:  # pyarrow would return an empty content without an error
        raise ValueError("0 bytes are no frame")
    name = CompressionType(compression).name.lower()
    with pyarrow.CompressedInputStream(pyarrow.BufferReader(payload), name) as stream:
        # One byte more than is allowed, so that `decompress` sees that a payload is too large.
        plain: bytes = stream.read(MAX_PAYLOAD_BYTES + 1)
    return plain
