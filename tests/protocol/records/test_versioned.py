"""The codec of stored values: a table of fields, written and read in every version.

The value of a stored record is its version in two bytes, followed by its fields as an array in
MessagePack (a compact binary JSON). For each kind of record there is a ValueCodec with a table of
the fields. A field that is new in version 1 has `since=1` in this table.

The tests use a made-up kind of record, "record". Its codec writes the versions 0 to 2, and also
reads version 3.
"""

import msgspec
import pytest

from protocol.errors import SimulationError
from protocol.records.versioned import CorruptRecord, ValueCodec, record_version
from protocol.wire.fields import bytes_field, int_field, str_field, struct_array


class Item(msgspec.Struct, frozen=True, kw_only=True):
    """An element of the items in Value."""

    name: str
    rank: int = -1


class Value(msgspec.Struct, frozen=True, kw_only=True):
    """A stored value. Old versions lack some of its fields.

    - Version 0 has `number` and `data`.
    - Version 1 also has `note`, which comes first, and `items`, each of which has a name.
    - Version 2 also has the rank of each item.
    """

    number: int
    note: str | None = None
    data: bytes
    items: tuple[Item, ...] = ()


CODEC = ValueCodec(
    "record",
    Value,
    (
        str_field("note", since=1, nullable=True),
        int_field("number", bits=16),
        bytes_field("data"),
        struct_array("items", str_field("name"), int_field("rank", since=2, bits=32), since=1),
    ),
    readable=range(4),
    writable=range(3),
)
VALUE = Value(number=7, note="n", data=b"d", items=(Item(name="a", rank=3), Item(name="b", rank=4)))


def fields_of(data: bytes) -> object:
    """Return the fields of an encoded value. They come after the version, which has two bytes."""
    return msgspec.msgpack.decode(data[2:])


@pytest.mark.parametrize(
    ("version", "fields"),
    [
        (0, [7, b"d"]),
        (1, ["n", 7, b"d", [["a"], ["b"]]]),
        (2, ["n", 7, b"d", [["a", 3], ["b", 4]]]),
    ],
)
def test_value_has_the_fields_of_its_version_in_the_order_of_the_table(
    version: int, fields: list[object]
) -> None:
    """The array has no names of fields, so a reader depends on their order."""
    data = CODEC.encode(VALUE, version)
    assert record_version(data) == version
    assert fields_of(data) == fields


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        (0, Value(number=7, data=b"d")),
        (1, Value(number=7, note="n", data=b"d", items=(Item(name="a"), Item(name="b")))),
        (2, VALUE),
    ],
)
def test_field_that_a_version_lacks_is_read_as_its_default(version: int, expected: Value) -> None:
    """This holds for the fields of the value, and for the fields of its items."""
    assert CODEC.decode(CODEC.encode(VALUE, version)) == expected


def test_version_that_is_only_read_has_the_fields_of_version_2_and_tagged_ones() -> None:
    """Only a newer broker writes version 3. It has tagged fields, which a reader ignores.

    Tagged fields are a map at the end of a value, or of an item. The map may be empty or missing.
    """
    tagged_fields = {0: b""}
    items = [["a", 3, {}], ["b", 4]]  # the first item has an empty map, the second has none
    data = b"\0\3" + msgspec.msgpack.encode(["n", 7, b"d", items, tagged_fields])
    assert CODEC.decode(data) == VALUE
    with pytest.raises(SimulationError, match="records are not written in version 3"):
        CODEC.encode(VALUE, 3)


@pytest.mark.parametrize(("number", "fits"), [(-32_768, True), (32_767, True), (32_768, False)])
def test_integer_wider_than_its_field_is_corrupt(number: int, *, fits: bool) -> None:
    """The field `number` has 16 bits, so Kafka cannot have written a larger value."""
    data = b"\0\0" + msgspec.msgpack.encode([number, b"d"])
    if fits:
        assert CODEC.decode(data).number == number
    else:
        with pytest.raises(CorruptRecord, match="record value of version 0"):
            CODEC.decode(data)


def test_version_that_is_not_readable_is_named_in_the_error() -> None:
    """The error has the unknown version, or says that there are too few bytes for a version."""
    version_4_without_fields = b"\0\4\x90"
    with pytest.raises(CorruptRecord, match="unknown record value version 4"):
        CODEC.decode(version_4_without_fields)
    with pytest.raises(CorruptRecord, match="expected a version of 2 bytes, got 1 bytes"):
        CODEC.decode(b"\0")
