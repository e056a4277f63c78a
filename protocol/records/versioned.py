"""Encoding of the keys and values of records, by version.

A key or value consists of its version (two bytes, big-endian) and a body. For each kind of value,
for example committed offsets, there is a table of its fields, which says in which versions each
field exists. A ValueCodec gets this table, and can then write and read all versions. To add a field
or a version, change the table. The tables have the same form as the tables of messages
(`protocol.wire.fields`).

DEVIATION: the body is a MessagePack array of Kafka's fields in Kafka's order, instead of Kafka's
own schema encoding. The fields, the versions and the choice of the written version are Kafka's.
"""

import typing
from collections.abc import Callable
from operator import attrgetter
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from protocol.errors import SimulationError
from protocol.wire.fields import Kind, WireField

_S = typing.TypeVar("_S", bound=msgspec.Struct)

_Write = Callable[[Any], tuple[object, ...]]
"""A function that takes a value and returns its fields, in the order of one version."""

VERSION_SIZE = 2
"""Bytes of the version, in front of the body."""

encode_body = msgspec.msgpack.Encoder().encode


class CorruptRecord(ValueError):
    """A key or value cannot be read.

    Its version is unknown, or its body lacks fields or has values of wrong types.
    """


def record_version(data: bytes) -> int:
    """Return the version at the beginning of `data`, a key or a value.

    Raises: CorruptRecord if `data` has fewer than two bytes.
    """
    if len(data) < VERSION_SIZE:
        raise CorruptRecord(f"expected a version of {VERSION_SIZE} bytes, got {len(data)} bytes")
    return int.from_bytes(data[:VERSION_SIZE], "big", signed=True)


def version_prefix(version: int) -> bytes:
    """Return the first two bytes of a key or value in this version."""
    return version.to_bytes(VERSION_SIZE, "big")


class ValueCodec(typing.Generic[_S]):
    """Writes and reads the values of one kind of record.

    noun: name of the kind in errors, such as "offset".
    struct: the class of the values. It has every field of the table. A field that some version
        does not have needs a default.
    readable, writable: the versions that can be read, and the versions that can be written.
    """

    def __init__(
        self,
        noun: str,
        struct: type[_S],
        fields: tuple[WireField, ...],
        *,
        readable: range,
        writable: range,
    ) -> None:
        self._noun = noun
        # The functions that write and read a version are built only once, because a load decodes
        # very many values.
        self._writers = {
            version: (version_prefix(version), _writer(fields, version)) for version in writable
        }
        self._readers = {
            version: (
                msgspec.msgpack.Decoder(_layout(struct, fields, version)).decode,
                _reader(struct, fields, version),
            )
            for version in readable
        }

    def encode(self, value: _S, version: int) -> bytes:
        """Return `value` in this version, without the fields that the version does not have.

        Raises: SimulationError for a version that is not written.
        """
        writer = self._writers.get(version)
        if writer is None:
            raise SimulationError(f"{self._noun}s are not written in version {version}")
        prefix, write = writer
        return prefix + encode_body(write(value))

    def decode(self, data: bytes) -> _S:
        """Return the value in `data`. Fields that its version does not have get their defaults.

        Raises: CorruptRecord if the version is not readable or the body does not fit.
        """
        version = record_version(data)
        reader = self._readers.get(version)
        if reader is None:
            raise CorruptRecord(f"unknown {self._noun} value version {version}")
        decode_layout, read = reader
        try:
            return read(decode_layout(data[VERSION_SIZE:]))
        except msgspec.MsgspecError as error:
            raise CorruptRecord(f"{self._noun} value of version {version}: {error}") from error


def _writer(fields: tuple[WireField, ...], version: int) -> _Write:
    """Return the function that turns a value into the tuple of its fields in one version.

    If a field is a list of structs, the function also converts each struct in the list.
    """
    present = [field for field in fields if field.is_in(version)]
    values_of = _values_of([field.name for field in present])
    # Index of a field that is a list of structs -> the function that writes one of the structs.
    item_writers = {
        place: _writer(field.fields, version)
        for place, field in enumerate(present)
        if field.kind is Kind.STRUCT
    }
    if not item_writers:
        return values_of

    def write(value: object) -> tuple[object, ...]:
        values: list[Any] = list(values_of(value))
        for place, write_item in item_writers.items():
            values[place] = [write_item(item) for item in values[place]]
        return tuple(values)

    return write


def _values_of(names: list[str]) -> _Write:
    """Return a function that reads these attributes of a value, as a tuple."""
    getter = attrgetter(*names)
    # attrgetter returns a tuple for several names, but the bare value for a single one.
    return getter if len(names) > 1 else lambda value: (getter(value),)


def _reader(struct: type[_S], fields: tuple[WireField, ...], version: int) -> Callable[[Any], _S]:
    """Return a function that makes a value from a decoded body.

    The decoded body is a struct of the class that `_layout` returns for the version. The value is
    a `struct`, in which the fields of other versions have their defaults.
    """
    asdict = msgspec.structs.asdict
    item_readers = [
        (field.name, _reader(_item_struct(struct, field), field.fields, version))
        for field in fields
        if field.kind is Kind.STRUCT and field.is_in(version)
    ]
    if not item_readers:
        return lambda body: struct(**asdict(body))

    def read(body: msgspec.Struct) -> _S:
        values = asdict(body)
        for name, read_item in item_readers:
            values[name] = tuple(read_item(item) for item in values[name])
        return struct(**values)

    return read


def _layout(
    struct: type[msgspec.Struct], fields: tuple[WireField, ...], version: int
) -> type[msgspec.Struct]:
    """Return a struct class with exactly the fields of one version, to decode bodies.

    A body may be longer than the class has fields. For example, Kafka's version 4 ends with tagged
    fields. msgspec ignores what follows the last field of the class.
    """
    present = [field for field in fields if field.is_in(version)]
    # With `gc=False` the garbage collector ignores a struct, which saves time. This is safe for a
    # struct without a list of structs, because such a struct cannot be part of a cycle of
    # references.
    return msgspec.defstruct(
        f"{struct.__name__}V{version}",
        [(field.name, _annotation(struct, field, version)) for field in present],
        frozen=True,
        array_like=True,
        gc=any(field.kind is Kind.STRUCT for field in present),
    )


def _annotation(struct: type[msgspec.Struct], field: WireField, version: int) -> Any:  # noqa: ANN401
    """Return the type of a field in the struct of a version, for msgspec."""
    annotation: Any = _scalar_annotation(struct, field, version)
    if field.is_array:
        annotation = tuple[annotation, ...]
    return annotation | None if field.is_nullable else annotation


def _scalar_annotation(struct: type[msgspec.Struct], field: WireField, version: int) -> object:
    """Return the type of a field's value, or of its items if the field is a list."""
    match field.kind:
        case Kind.INT:
            # The signed integers of this width are -limit to limit - 1.
            limit = 1 << field.bits - 1
            return Annotated[int, Meta(ge=-limit, le=limit - 1)]
        case Kind.STRING:
            return str
        case Kind.BYTES | Kind.RECORDS:
            return bytes
        case Kind.BOOL:
            return bool
        case Kind.STRUCT:
            return _layout(_item_struct(struct, field), field.fields, version)


def _item_struct(struct: type[msgspec.Struct], field: WireField) -> type[msgspec.Struct]:
    """Return the struct class of a list's items, from the annotation of the field.

    The annotation is `tuple[Item, ...]`; its first argument is the class.
    """
    item: type[msgspec.Struct] = typing.get_args(typing.get_type_hints(struct)[field.name])[0]
    return item
