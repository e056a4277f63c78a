"""Encodes and decodes messages in one version of an API, by the tables of `protocol.wire`.

The tables list the fields of each message (`WireField`), and for each field the versions that have
it. For each message and version, a reader and a writer are put together once, from a function for
each field.

In some old versions of an API, the messages are nested in another way than in the newest one. These
versions, all below the table's `reshaped_below`, are called *reshaped*. So messages are handled in
two ways ("plain" data are dicts and lists):
- Requests of a version that is not reshaped become messages (Structs) directly, by a "typed"
  reader. Responses of this version are written directly.
- Requests of a reshaped version become plain data first, which `protocol.plain` turns into
  messages. Responses of this version become plain data before they are written.

Numbers are big-endian. Strings have an int16 length, arrays and bytes an int32 length; a length of
-1 means null. None of the versions is flexible (KIP-482: a denser encoding), so there are no tagged
fields (optional fields, which only flexible versions may append).

Source: Kafka's protocol guide, "Protocol Primitive Types".
"""

import struct
import types
import typing
from collections.abc import Callable
from functools import cache
from operator import attrgetter, itemgetter
from typing import Any

import msgspec

from cluster.storage.compression import CODECS
from protocol.api import AnyRequest, AnyResponse, Api
from protocol.errors import SimulationError
from protocol.plain import request_from_plain, response_to_plain
from protocol.records.batch import RecordBatch
from protocol.records.kafka_format import encode_batch
from protocol.wire.fields import Kind, WireField
from protocol.wire.listener_versions import OFFERED

STRING_BYTES_MAX = 32_767
"""Largest int16, the type of a string's length.

A longer string has no encoding. Only its first bytes are written, even if the cut is inside a
character."""


class MalformedRequest(Exception):
    """Bytes that are no request of their API and version; the text says what was expected."""


class Cursor:
    """Bytes, and the position up to which they have been read."""

    __slots__ = ("data", "position")

    def __init__(self, data: bytes, position: int = 0) -> None:
        self.data = data
        self.position = position

    def take(self, size: int) -> bytes:
        """Return the next `size` bytes. Raises: MalformedRequest."""
        start = self.position
        end = self.position = start + size
        if end > len(self.data):
            raise MalformedRequest(
                f"expected {size} bytes at {start}, got {len(self.data) - start}"
            )
        return self.data[start:end]


Reader = Callable[[Cursor], Any]
"""Reads one value at the cursor and moves the cursor to its end. Raises: MalformedRequest."""
Writer = Callable[[bytearray, Any], None]
"""Appends the bytes of one value."""

# -- primitive types ----------------------------------------------------------------------------

_FORMATS = {8: struct.Struct(">b"), 16: struct.Struct(">h"), 32: struct.Struct(">i")}
_FORMATS[64] = struct.Struct(">q")
"""The format of an integer by its number of bits. Integers are signed and big-endian."""


def _int_reader(bits: int) -> Reader:
    """Return a reader of integers. Unlike `Cursor.take`, the reader does not copy the bytes."""
    unpack, size = _FORMATS[bits].unpack_from, bits // 8

    def read(cursor: Cursor) -> int:
        try:
            (value,) = unpack(cursor.data, cursor.position)
        except struct.error:
            raise MalformedRequest(
                f"expected {size} bytes at {cursor.position}, "
                f"got {max(0, len(cursor.data) - cursor.position)}"
            ) from None
        cursor.position += size
        return int(value)

    return read


def _int_writer(bits: int) -> Writer:
    """Return a writer of signed integers."""
    pack = _FORMATS[bits].pack

    def write(out: bytearray, value: int) -> None:
        out += pack(value)

    return write


_read_int8, _read_int16, _read_int32 = _int_reader(8), _int_reader(16), _int_reader(32)
_pack_int16, _pack_int32 = _FORMATS[16].pack, _FORMATS[32].pack


def _read_bool(cursor: Cursor) -> bool:
    return bool(_read_int8(cursor))


def _write_bool(out: bytearray, value: bool) -> None:
    out.append(1 if value else 0)


def read_nullable_string(cursor: Cursor) -> str | None:
    """Read a string, None for null. Raises: MalformedRequest."""
    size = _read_int16(cursor)
    if size < 0:
        return None
    try:
        return cursor.take(size).decode()
    except UnicodeDecodeError as error:
        # Here and below, the cursor is at the end of the value already, so the texts say "before".
        raise MalformedRequest(f"expected UTF-8 before {cursor.position}: {error}") from None


def _read_string(cursor: Cursor) -> str:
    value = read_nullable_string(cursor)
    if value is None:
        raise MalformedRequest(f"expected a string before {cursor.position}, got null")
    return value


def _write_string(out: bytearray, value: str | None) -> None:
    """Append a string, cut to STRING_BYTES_MAX bytes, or null for None."""
    if value is None:
        out += b"\xff\xff"  # length -1
        return
    encoded = value.encode()
    if len(encoded) > STRING_BYTES_MAX:
        encoded = encoded[:STRING_BYTES_MAX]
    out += _pack_int16(len(encoded))
    out += encoded


def _write_string_or_empty(out: bytearray, value: str | None) -> None:
    _write_string(out, value or "")


def _read_nullable_bytes(cursor: Cursor) -> bytes | None:
    size = _read_int32(cursor)
    return None if size < 0 else cursor.take(size)


def _read_bytes(cursor: Cursor) -> bytes:
    value = _read_nullable_bytes(cursor)
    if value is None:
        raise MalformedRequest(f"expected bytes before {cursor.position}, got null")
    return value


def _write_bytes(out: bytearray, value: bytes | None) -> None:
    if value is None:
        out += b"\xff\xff\xff\xff"  # length -1
        return
    out += _pack_int32(len(value))
    out += value


def _write_batches(out: bytearray, batches: tuple[RecordBatch, ...]) -> None:
    # Without a batch the length is 0, not -1 (null): librdkafka rejects -1 as invalid.
    _write_bytes(out, b"".join([encode_batch(batch, CODECS) for batch in batches]))


# -- arrays and structures ----------------------------------------------------------------------


def _array_reader(read_item: Reader, *, nullable: bool) -> Reader:
    """Return a reader of lists whose items `read_item` reads."""

    def read(cursor: Cursor) -> list[Any] | None:
        count = _read_int32(cursor)
        if count < 0:
            if nullable:
                return None
            raise MalformedRequest(f"expected a list before {cursor.position}, got null")
        if count > len(cursor.data) - cursor.position:
            # Each item has at least one byte, so this count is invalid. A list of this length could
            # fill the memory.
            raise MalformedRequest(f"expected {count} items at {cursor.position}, got fewer bytes")
        return [read_item(cursor) for _ in range(count)]

    return read


def _array_writer(write_item: Writer) -> Writer:
    """Return a writer of sequences whose items `write_item` writes."""

    def write(out: bytearray, items: Any) -> None:  # noqa: ANN401 (a sequence of any values)
        if items is None:
            out += b"\xff\xff\xff\xff"  # length -1
            return
        out += _pack_int32(len(items))
        for item in items:
            write_item(out, item)

    return write


def _present(fields: tuple[WireField, ...], version: int) -> tuple[WireField, ...]:
    """Return the fields that messages of `version` have, in the order of their bytes."""
    return tuple(field for field in fields if field.is_in(version))


def _scalar_reader(field: WireField) -> Reader:
    """Return a reader of an integer, a bool, a string or bytes."""
    match field.kind:
        case Kind.INT:
            return _int_reader(field.bits)
        case Kind.BOOL:
            return _read_bool
        case Kind.STRING:
            return read_nullable_string if field.is_nullable else _read_string
        case Kind.BYTES | Kind.RECORDS:
            return _read_nullable_bytes if field.is_nullable else _read_bytes
        case Kind.STRUCT:
            raise SimulationError(f"{field.name} is no scalar")


def _plain_reader(field: WireField, version: int) -> Reader:
    """Return a reader of plain data: dicts and lists."""
    if field.kind is Kind.STRUCT:
        item = _dict_reader(field.fields, version)
    else:
        # `field` describes the whole array; `_item_of` describes one item.
        item = _scalar_reader(_item_of(field) if field.is_array else field)
    return _array_reader(item, nullable=field.is_nullable) if field.is_array else item


def _dict_reader(fields: tuple[WireField, ...], version: int) -> Reader:
    """Return a reader of a structure as a dict."""
    readers = [(each.name, _plain_reader(each, version)) for each in _present(fields, version)]
    return lambda cursor: {name: read(cursor) for name, read in readers}


def _typed_reader(field: WireField, version: int, annotation: object) -> Reader:
    """Return a reader of a field's value; `annotation` is the type of the message's field."""
    if field.kind is not Kind.STRUCT:
        # An array may be null, but its items may not.
        item = _scalar_reader(_item_of(field) if field.is_array else field)
    else:
        item = _struct_reader(_struct_in(annotation), field.fields, version)
    if not field.is_array:
        return item
    read_list = _array_reader(item, nullable=field.is_nullable)

    def read(cursor: Cursor) -> tuple[Any, ...] | None:
        items = read_list(cursor)
        return None if items is None else tuple(items)

    return read


def _item_of(field: WireField) -> WireField:
    """Return the field of one item of an array; no item may be null."""
    return WireField(name=field.name, kind=field.kind, bits=field.bits)


def _struct_reader(
    message: type[msgspec.Struct], fields: tuple[WireField, ...], version: int
) -> Reader:
    """Return a reader of a structure as `message`."""
    annotations = {field.name: field.type for field in msgspec.structs.fields(message)}
    readers: list[tuple[str | None, Reader]] = []
    for field in _present(fields, version):
        if field.is_unused:
            # This project's message has no such field: its bytes are read and dropped.
            readers.append((None, _plain_reader(field, version)))
        else:
            readers.append((field.name, _typed_reader(field, version, annotations[field.name])))

    def read(cursor: Cursor) -> msgspec.Struct:
        values = {}
        for name, read_field in readers:
            value = read_field(cursor)
            if name is not None:
                values[name] = value
        return message(**values)

    return read


def _struct_in(annotation: object) -> type[msgspec.Struct]:
    """Return the Struct in an annotation such as `tuple[X, ...] | None`."""
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        return annotation
    for option in typing.get_args(annotation):
        if option not in (Ellipsis, types.NoneType):
            return _struct_in(option)
    raise SimulationError(f"{annotation!r} names no message")


def _value_writer(field: WireField, version: int, *, plain: bool) -> Writer:
    """Return a writer of a field's value. With `plain`, structures are dicts instead of Structs.

    `item` writes one value. If the field is an array, it writes each item.
    """
    match field.kind:
        case Kind.INT:
            item = _int_writer(field.bits)
        case Kind.BOOL:
            item = _write_bool
        case Kind.STRING:
            # Versions before `nullable_since` have "" in place of null. A field that is not
            # nullable never holds None, so `_write_string` is right for it, too.
            is_null_legal = not field.is_nullable or version >= field.nullable_since
            item = _write_string if is_null_legal else _write_string_or_empty
        case Kind.BYTES:
            item = _write_bytes
        case Kind.RECORDS:
            item = _write_batches
        case Kind.STRUCT:
            item = _fields_writer(field.fields, version, plain=plain)
    return _array_writer(item) if field.is_array else item


def _fields_writer(fields: tuple[WireField, ...], version: int, *, plain: bool) -> Writer:
    """Return a writer of a message: of a dict if `plain`, otherwise of a Struct.

    If a Struct lacks a field, the default in the table is written (see `_getter`).
    """
    writers = []
    for field in _present(fields, version):
        getter = itemgetter(field.name) if plain else _getter(field)
        writers.append((getter, _value_writer(field, version, plain=plain)))

    def write(out: bytearray, message: Any) -> None:  # noqa: ANN401 (a Struct or a dict)
        for get, write_field in writers:
            write_field(out, get(message))

    return write


def _getter(field: WireField) -> Callable[[Any], Any]:
    """Return a function that reads a field of a Struct, with a default if the Struct may lack it.

    A Struct may lack a field that is nullable, or to which the table gives an `absent` value. The
    default is this value, or None if the table gives no value. A default makes the read slower, so
    other fields are read without a default.
    """
    get, absent, name = attrgetter(field.name), field.absent, field.name
    if absent is None and not field.is_nullable:
        return get
    return lambda message: getattr(message, name, absent)


# -- messages -----------------------------------------------------------------------------------


@cache
def _request_reader(api: Api, version: int) -> Reader:
    """Return the reader of an API's requests, which reads plain data if the version is reshaped.

    `schema.lift` converts requests of reshaped versions into the newest structure. It is None if no
    request is reshaped.
    """
    schema = OFFERED[api].schema
    if schema.lift is not None and version < schema.reshaped_below:
        read_plain = _dict_reader(schema.request_fields, version)
        return lambda cursor: request_from_plain(api.label, version, read_plain(cursor))
    return _struct_reader(api.request, schema.request_fields, version)


@cache
def _response_writer(api: Api, version: int) -> Writer:
    """Return the writer of an API's responses, which writes plain data if the version is reshaped.

    `schema.lower` converts responses into the structure of reshaped versions. It is None if no
    response is reshaped.
    """
    schema = OFFERED[api].schema
    if schema.lower is not None and version < schema.reshaped_below:
        write_plain = _fields_writer(schema.response_fields, version, plain=True)

        def write(out: bytearray, response: AnyResponse) -> None:
            write_plain(out, response_to_plain(api.label, version, response))

        return write
    return _fields_writer(schema.response_fields, version, plain=False)


def decode_request(api: Api, version: int, cursor: Cursor) -> AnyRequest:
    """Return the request at the cursor. Bytes after it are ignored, as in Kafka.

    Record batches stay bytes; `cluster.wire.exchange` decodes them. Raises: MalformedRequest.
    """
    request = _request_reader(api, version)(cursor)
    # Every `Api.request` is a member of the union AnyRequest.
    return typing.cast(AnyRequest, request)


def encode_response(api: Api, version: int, response: AnyResponse, out: bytearray) -> None:
    """Append the bytes of `response` to `out`."""
    _response_writer(api, version)(out, response)
