"""Kafka's encoding of the records in a batch of magic 2.

The payload of a batch is the bytes of its records, without the batch header and after
decompression. A record consists of its length, attributes (unused), timestamp delta, offset delta,
key, value and headers. The lengths and deltas are zigzag varints.

A varint has seven bits of a number in each byte, the lowest bits first. If the highest bit of a
byte is set, another byte follows. For example, 300 is the bytes AC 02. A zigzag varint has the sign
in the lowest bit, so that small negative numbers are short, too: 0, -1, 1, -2 are coded as 0, 1, 2,
3. To decode `raw`, compute `(raw >> 1) ^ -(raw & 1)`. A null key or value has the length -1, which
is the byte 1.

The functions that read a payload raise ValueError if a record in it is incomplete or malformed.
They do not compare each position with the payload's length. A read beyond the payload's end raises
IndexError, which they catch and replace by the ValueError.

Source: Kafka `DefaultRecord`, `ByteUtils.readVarint`; KIP-98.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

_INT32_MAX = (1 << 31) - 1
_INT64_MAX = (1 << 63) - 1
# The largest numbers of bytes of a 32-bit and of a 64-bit varint. Each byte holds seven bits.
_VARINT_BYTES = 5
_VARLONG_BYTES = 10


class KafkaRecord(NamedTuple):
    """One record of a payload.

    The record's bytes are `payload[start:end]`. They begin with the varint of the record's length.
    The deltas are distances from the batch's base offset and base timestamp. The headers are not
    kept.
    """

    offset_delta: int
    timestamp_delta_ms: int
    key: bytes | None
    value: bytes | None
    start: int
    end: int


def parse_records(payload: bytes, count: int) -> list[KafkaRecord]:
    """Return the `count` records of a payload.

    Raises: ValueError if the payload does not consist of exactly this many whole records.
    """
    records = list(_parse(payload, count))
    if records and records[-1].end != len(payload):
        raise ValueError(
            f"{len(payload) - records[-1].end} bytes follow the last of {count} records"
        )
    if not records and payload:
        raise ValueError(f"{len(payload)} bytes in a batch without records")
    return records


def _parse(payload: bytes, count: int) -> Iterator[KafkaRecord]:
    """Yield the records of a payload one by one. Raises: ValueError."""
    # Most varints have one byte, which is below 0x80. Varints of one byte are decoded in this
    # function, because a call of `_read_varint` for each of them would take most of the time. For
    # this purpose the first byte of a varint is read under the name of the number.
    end = 0
    for index in range(count):
        start = end
        try:
            length, position = _read_varint(payload, start)
            end = position + length
            if length < 0 or end > len(payload):
                raise ValueError(f"the length of record {index} is {length}")

            position += 1  # attributes
            timestamp_delta_ms = payload[position]
            if timestamp_delta_ms < 0x80:
                timestamp_delta_ms = (timestamp_delta_ms >> 1) ^ -(timestamp_delta_ms & 1)
                position += 1
            else:
                timestamp_delta_ms, position = _read_varint(
                    payload, position, _INT64_MAX, _VARLONG_BYTES
                )

            offset_delta = payload[position]
            if offset_delta < 0x80:
                offset_delta = (offset_delta >> 1) ^ -(offset_delta & 1)
                position += 1
            else:
                offset_delta, position = _read_varint(payload, position)

            key, position = _read_bytes(payload, position, end)
            value, position = _read_bytes(payload, position, end)
            header_count = payload[position]
            # The byte 0 is the varint of the number 0. If the byte is another one, the number may
            # have more bytes, so `_skip_headers` reads the varint from its first byte on.
            if header_count:
                position = _skip_headers(payload, position, end)
            else:
                position += 1
        except IndexError as error:
            raise ValueError(f"record {index} of {count} is cut short") from error
        if position != end:
            raise ValueError(f"record {index} has another length than its fields")
        yield KafkaRecord(offset_delta, timestamp_delta_ms, key, value, start, end)


class RecordScan(NamedTuple):
    """What a leader needs to know about the records of a payload."""

    max_timestamp_delta_ms: int
    keyless: tuple[int, ...]
    """Indexes of the records without a key."""


def scan_records(payload: bytes, count: int) -> RecordScan:  # noqa: PLR0915 - no calls, for speed
    """Check the `count` records of a payload without building a KafkaRecord for each.

    A leader scans every record of a client. This function takes less than half the time of
    `parse_records`.
    Raises: ValueError if the payload does not consist of exactly this many whole records, or if
        the offset deltas are not 0, 1, 2 and so on.
    """
    # Varints of one byte, and lengths of two bytes, are decoded in this function, because a call of
    # `_read_varint` for each of them would take most of the time. For this purpose the first byte
    # of a varint is read under the name of the number, for example `length`. If a second byte
    # follows, the raw number is `(length & 0x7F) | (second << 7)`.
    # The length of a key or value is not compared with the record's end. A key or value that is too
    # long moves `position` behind `end`. Nothing moves `position` back, so the test
    # `position != end` fails.
    end = max_timestamp_delta_ms = 0
    keyless: list[int] = []
    for index in range(count):
        try:
            # A whole record has at least seven bytes, one for each of its fields. So the second
            # byte of the record exists, even if it does not belong to the length.
            length, second = payload[end], payload[end + 1]
            if length < 0x80:
                position = end + 1
                length = (length >> 1) ^ -(length & 1)
            elif second < 0x80:
                position = end + 2
                length = length & 0x7F | second << 7
                length = (length >> 1) ^ -(length & 1)
            else:
                length, position = _read_varint(payload, end)
            end = position + length
            if length < 0 or end > len(payload):
                raise ValueError(f"the length of record {index} is {length}")

            position += 1  # attributes
            delta = payload[position]
            if delta < 0x80:
                position += 1
                delta = (delta >> 1) ^ -(delta & 1)
            else:
                delta, position = _read_varint(payload, position, _INT64_MAX, _VARLONG_BYTES)
            # The first delta is the maximum so far, even if it is negative.
            if delta > max_timestamp_delta_ms or not index:
                max_timestamp_delta_ms = delta

            offset_delta = payload[position]
            if offset_delta < 0x80:
                position += 1
                offset_delta = (offset_delta >> 1) ^ -(offset_delta & 1)
            else:
                offset_delta, position = _read_varint(payload, position)
            if offset_delta != index:
                raise ValueError(
                    f"record {index} has the offset delta {offset_delta}, expected {index}"
                )

            key_length = payload[position]
            if key_length < 0x80:
                position += 1
                key_length = (key_length >> 1) ^ -(key_length & 1)
            else:
                key_length, position = _read_varint(payload, position)
            if key_length < 0:
                keyless.append(index)
            else:
                position += key_length

            # A whole record has at least two more bytes from `position` on: the value's length, and
            # the number of headers. So `second` exists, even if it does not belong to the length.
            value_length, second = payload[position], payload[position + 1]
            if value_length < 0x80:
                position += 1
                value_length = (value_length >> 1) ^ -(value_length & 1)
            elif second < 0x80:
                position += 2
                value_length = value_length & 0x7F | second << 7
                value_length = (value_length >> 1) ^ -(value_length & 1)
            else:
                value_length, position = _read_varint(payload, position)
            if value_length > 0:
                position += value_length

            if payload[position]:  # the number of headers is not 0
                position = _skip_headers(payload, position, end)
            else:
                position += 1
        except IndexError as error:
            raise ValueError(f"record {index} of {count} is cut short") from error
        if position != end:
            raise ValueError(f"record {index} has another length than its fields")
    if end != len(payload):
        raise ValueError(f"{len(payload) - end} bytes follow the last of {count} records")
    return RecordScan(max_timestamp_delta_ms, tuple(keyless))


def encode_kafka_records(
    records: Iterable[tuple[int, int, bytes | None, bytes | None]],
) -> bytes:
    """Return the payload with these records.

    Each record is given as (offset delta, timestamp delta in ms, key, value).
    """
    parts: list[bytes] = []
    for offset_delta, timestamp_delta_ms, key, value in records:
        body = b"".join(
            (
                b"\0",  # attributes
                write_varint(timestamp_delta_ms),
                write_varint(offset_delta),
                # The byte 1 is the varint of the length -1, which stands for null.
                b"\1" if key is None else write_varint(len(key)) + key,
                b"\1" if value is None else write_varint(len(value)) + value,
                b"\0",  # number of headers
            )
        )
        parts.append(write_varint(len(body)))
        parts.append(body)
    return b"".join(parts)


def write_varint(number: int) -> bytes:
    """Return a zigzag varint. `number` is a signed integer of at most 64 bits."""
    rest = (number << 1) ^ (number >> 63)  # the zigzag: the sign becomes the lowest bit
    if rest < 0x80:
        return bytes((rest,))
    parts = bytearray()
    while rest >= 0x80:
        parts.append(rest & 0x7F | 0x80)
        rest >>= 7
    parts.append(rest)
    return bytes(parts)


def _read_varint(
    payload: bytes, position: int, limit: int = _INT32_MAX, max_bytes: int = _VARINT_BYTES
) -> tuple[int, int]:
    """Return the number whose varint begins at `position`, and the position after the varint.

    Raises: IndexError if the payload ends within the varint; ValueError if the number is greater
        than `limit` or less than `-limit - 1`, or if the varint has more than `max_bytes` bytes.
    """
    raw = shift = 0
    for place in range(max_bytes):
        byte = payload[position + place]
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            number = (raw >> 1) ^ -(raw & 1)
            # `max_bytes` bytes hold a few more bits than a number within the limits has. For
            # example, five bytes hold 35 bits. A number that needs the additional bits is refused
            # like a longer varint, with the error below the loop.
            if not -limit - 1 <= number <= limit:
                break
            return number, position + place + 1
        shift += 7
    raise ValueError(f"a number at byte {position} is longer than {max_bytes} bytes allow")


def _read_bytes(payload: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    """Return the key or value at `position`, and the position after it.

    The varint of the length comes first. A negative length stands for None. `end` is the end of
    the record.
    """
    length = payload[position]
    if length < 0x80:
        length = (length >> 1) ^ -(length & 1)
        position += 1
    else:
        length, position = _read_varint(payload, position)
    if length < 0:
        return None, position
    if position + length > end:
        raise ValueError(f"a key or value of {length} bytes is longer than its record")
    return payload[position : position + length], position + length


def _skip_headers(payload: bytes, position: int, end: int) -> int:
    """Return the position after a record's headers, which are checked but not kept."""
    count, position = _read_varint(payload, position)
    # Each header takes at least one byte, so there cannot be more headers than bytes. This bounds
    # the loop if the count is wrong.
    if not 0 <= count <= end - position:
        raise ValueError(f"a record has {count} headers")
    for _ in range(count):
        key, position = _read_bytes(payload, position, end)
        if key is None:
            raise ValueError("a header has no key")
        _, position = _read_bytes(payload, position, end)
    return position
