"""Our codec of Kafka's protocol, compared with kafka-python's, in every offered API and version.

A broker's listener reads the requests of real Kafka clients, and writes answers for them. Its codec
is our own. kafka-python is an independent implementation, made from Kafka's schemas. So the tests
let kafka-python write a request, and our codec read it. In the other direction our codec writes an
answer, and kafka-python reads it. Each field has a different value, so that two confused fields are
noticed.

A message occurs in three forms:

- One of our own structs.
- An object of kafka-python ("theirs" in names).
- A plain message, which has the same fields as the bytes, in dicts, lists and simple values.

A table of WireFields says which fields a version of an API has.

Some old versions of an API have other fields than our struct, for example a single group in place
of a list of groups. These are the versions below `reshaped_below`. For these versions a function
`lift` converts a plain request into our struct, and a function `lower` converts our answer into a
plain answer.
"""

from collections.abc import Iterator
from itertools import count
from typing import Any

import msgspec
import pytest
from kafka.protocol import admin, consumer, metadata, producer

from cluster.wire.codec import Cursor, MalformedRequest, decode_request, encode_response
from protocol.api import Api
from protocol.errors import ErrorCode
from protocol.messages.group import JoinGroupRequest, JoinGroupResponse
from protocol.plain import request_from_plain, response_to_plain
from protocol.records.batch import RecordBatch
from protocol.records.kafka_format import decode_batches
from protocol.wire.fields import Kind, PlainMessage, PlainValue, WireField
from protocol.wire.listener_versions import OFFERED
from tests.support.builders.client_batches import client_batch

VERSIONS = [
    pytest.param(api, version, id=f"{api.label}-v{version}")
    for api, offered in OFFERED.items()
    for version in range(offered.oldest, offered.newest + 1)
]
"""Every version of every API that the listener offers.

The listener also offers Produce before v3. The broker refuses the record formats of these versions,
but it must be able to read the request: the refusal names the partitions of the request.
"""


def their_class(api: Api, suffix: str) -> Any:  # noqa: ANN401 (kafka-python has no types)
    """Return the class of kafka-python for the Request or Response of an API."""
    name = api.label + suffix
    for module in (producer, consumer, metadata, admin):
        message_class = getattr(module, name, None)
        if message_class is not None:
            return message_class
    raise AssertionError(f"kafka-python has no {name}")


class Values:
    """Makes values for the fields of a message, a different one each time."""

    def __init__(self) -> None:
        self._numbers = count(1)

    def value(self, field: WireField, version: int) -> Any:  # noqa: ANN401 (a field's value)
        """Return a value of the field's type. An array has two items."""
        if not field.is_array:
            return self._item(field, version)
        return [self._item(field, version), self._item(field, version)]

    def message(self, fields: tuple[WireField, ...], version: int) -> dict[str, Any]:
        """Return a plain message with the fields that a version has."""
        return {field.name: self.value(field, version) for field in fields if field.is_in(version)}

    def _item(self, field: WireField, version: int) -> Any:  # noqa: ANN401 (a field's value)
        number = next(self._numbers)
        match field.kind:
            case Kind.INT:
                # The value is so large that a codec fails if it reads a narrower field. A third of
                # the values are negative.
                value = number + (1 << (field.bits - 2))
                return -value if number % 3 == 0 else value
            case Kind.BOOL:
                return number % 2 == 0
            case Kind.STRING:
                return f"{field.name}-{number}-é"
            case Kind.BYTES:
                return b"bytes-%d" % number
            case Kind.RECORDS:
                return b"records-%d" % number
            case Kind.STRUCT:
                return self.message(field.fields, version)


def their_message(
    cls: Any,  # noqa: ANN401 (kafka-python has no types)
    fields: tuple[WireField, ...],
    plain: dict[str, Any],
    version: int,
) -> Any:  # noqa: ANN401
    """Return the plain message as an object of kafka-python.

    kafka-python and our table of fields must know the same fields for this version.
    """
    their_fields = cls.fields
    values = {}
    for field in fields:
        if not field.is_in(version):
            continue
        assert field.name in their_fields, f"{cls.__name__} has no {field.name}"
        value = plain[field.name]
        if field.kind is Kind.STRUCT:
            data_class = their_fields[field.name].data_class
            value = [their_message(data_class, field.fields, item, version) for item in value]
        values[field.name] = value

    unknown_to_us = [
        name
        for name, field in their_fields.items()
        if field.for_version_q(version) and name not in values
    ]
    assert not unknown_to_us, f"the table lacks {unknown_to_us} of {cls.__name__} v{version}"
    return cls(version=version, **values)


def without_unused(fields: tuple[WireField, ...], plain: dict[str, Any]) -> dict[str, Any]:
    """Return a plain message without the fields that the listener ignores."""
    used: dict[str, Any] = {}
    for field in fields:
        if field.name in plain and not field.is_unused:
            value = plain[field.name]
            if field.kind is Kind.STRUCT:
                value = [without_unused(field.fields, item) for item in value]
            used[field.name] = value
    return used


def plain_of(value: object) -> Any:  # noqa: ANN401 (a field's value)
    """Return a struct of ours, or the value of a field, as dicts, lists and simple values."""
    if isinstance(value, msgspec.Struct):
        return {name: plain_of(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, tuple | list):
        return [plain_of(item) for item in value]
    return value


def contains(whole: Any, part: Any) -> bool:  # noqa: ANN401 (fields' values)
    """Return True if `whole` has all values of `part`. A dict may have further entries."""
    if isinstance(part, dict):
        return all(name in whole and contains(whole[name], part[name]) for name in part)
    if isinstance(part, list):
        return len(whole) == len(part) and all(map(contains, whole, part))
    return bool(whole == part)


@pytest.mark.parametrize(("api", "version"), VERSIONS)
def test_request_of_kafka_python_is_read_field_by_field(api: Api, version: int) -> None:
    """Our codec must read each field that kafka-python has written.

    If it read a field in the wrong width or at the wrong place, all fields after it would be wrong.
    """
    schema = OFFERED[api].schema
    fields = schema.request_fields
    plain = Values().message(fields, version)
    theirs = their_message(their_class(api, "Request"), fields, plain, version)
    data = bytes(theirs.encode(version=version))
    cursor = Cursor(data)

    request = decode_request(api, version, cursor)

    assert cursor.position == len(data)  # all bytes have been read
    used = without_unused(fields, plain)
    is_reshaped = schema.lift is not None and version < schema.reshaped_below
    if is_reshaped:
        assert request == request_from_plain(api.label, version, used)
    else:
        assert contains(plain_of(request), used)


def some_value(annotation: Any, numbers: Iterator[int]) -> Any:  # noqa: ANN401 (a field's value)
    """Return a value for a field of one of our answers, given the annotation of its type."""
    if annotation is ErrorCode:
        return list(ErrorCode)[next(numbers) % len(ErrorCode)]
    if isinstance(annotation, type):
        if issubclass(annotation, RecordBatch):
            return client_batch(str(next(numbers)))
        if issubclass(annotation, msgspec.Struct):
            return some_message(annotation, numbers)
        number = next(numbers)
        value_by_type = {
            bool: number % 2 == 0,
            int: number,
            str: f"s{number}",
            bytes: b"%d" % number,
        }
        return value_by_type[annotation]

    # The annotation is `T | None` or `tuple[T, ...]`. A tuple gets two items.
    (item_type, *_) = [arg for arg in annotation.__args__ if arg not in (type(None), Ellipsis)]
    if getattr(annotation, "__origin__", None) is tuple:
        return (some_value(item_type, numbers), some_value(item_type, numbers))
    return some_value(item_type, numbers)


def some_message(cls: type[msgspec.Struct], numbers: Iterator[int]) -> msgspec.Struct:
    """Return an answer of this class, with a different value in each field."""
    return cls(
        **{field.name: some_value(field.type, numbers) for field in msgspec.structs.fields(cls)}
    )


def expected_of(fields: tuple[WireField, ...], message: Any, version: int) -> dict[str, Any]:  # noqa: ANN401
    """Return what a client of this version must read from an answer, as a plain message.

    `message` is a struct of ours or a plain message.
    """
    expected: dict[str, Any] = {}
    for field in fields:
        if not field.is_in(version):
            continue
        # kafka-python reads authorized operations as sets of names, and our codec writes numbers.
        # So these fields are not compared.
        if field.name.endswith("authorized_operations"):
            continue
        value: Any
        if isinstance(message, dict):
            value = message[field.name]
        else:
            # If our struct has no such field, the codec writes the field's default, `absent`.
            value = getattr(message, field.name, field.absent)
        if field.kind is Kind.STRUCT:
            value = [expected_of(field.fields, item, version) for item in value]
        elif field.is_array:
            value = list(value)
        expected[field.name] = value
    return expected


def plain_of_theirs(message: Any, expected: PlainValue) -> Any:  # noqa: ANN401 (no types)
    """Return an object of kafka-python as a plain message, with the fields that `expected` has."""
    if isinstance(expected, dict):
        return {
            name: plain_of_theirs(getattr(message, name), value) for name, value in expected.items()
        }
    if isinstance(expected, list):
        return [plain_of_theirs(item, value) for item, value in zip(message, expected, strict=True)]
    return message


def with_one_item(response: msgspec.Struct) -> msgspec.Struct:
    """Return an answer of a reshaped version: its list may have only one item.

    Some old versions have a single group or key in place of a list. Our struct has a tuple for the
    list, and no other field of it is a tuple.
    """
    ((name, items),) = [
        (name, value)
        for name in response.__struct_fields__
        if isinstance(value := getattr(response, name), tuple)
    ]
    return msgspec.structs.replace(response, **{name: items[:1]})


@pytest.mark.parametrize(("api", "version"), VERSIONS)
def test_answer_is_read_by_kafka_python_field_by_field(api: Api, version: int) -> None:
    """A client must read each value that our answer has.

    kafka-python does not decode the record batches of a Fetch, so the test does this itself.
    """
    schema = OFFERED[api].schema
    response: Any = some_message(api.response, count(1))
    is_reshaped = schema.lower is not None and version < schema.reshaped_below
    if is_reshaped:
        response = with_one_item(response)
    out = bytearray()

    encode_response(api, version, response, out)

    cls = their_class(api, "Response")
    theirs = cls.decode(bytes(out), version=version)
    ours: PlainMessage | msgspec.Struct = response
    if is_reshaped:
        ours = response_to_plain(api.label, version, response)
    expected = expected_of(schema.response_fields, ours, version)

    if api is Api.FETCH:
        for topic, their_topic in zip(expected["responses"], theirs.responses, strict=True):
            partitions = zip(topic["partitions"], their_topic.partitions, strict=True)
            for partition, their_partition in partitions:
                batches = partition.pop("records")
                assert decode_batches(bytes(their_partition.records)) == batches
    assert plain_of_theirs(theirs, expected) == expected
    # kafka-python must write the same bytes. Without a header it writes only the body.
    theirs._header = None
    assert bytes(theirs.encode(version=version)) == bytes(out)


def test_join_group_answer_before_v7_has_an_empty_protocol_name_for_none() -> None:
    """The field `protocol_name` can be null from v7 on. An older client would fail at a null.

    So in an older version the codec writes an empty text for None.
    """
    response = JoinGroupResponse(error_code=ErrorCode.NOT_COORDINATOR, protocol_name=None)
    out = bytearray()
    encode_response(Api.JOIN_GROUP, 5, response, out)
    assert consumer.JoinGroupResponse.decode(bytes(out), version=5).protocol_name == ""


@pytest.mark.parametrize("remaining_bytes", range(4, 40, 3))
def test_truncated_request_is_malformed(remaining_bytes: int) -> None:
    """A request that ends too early is malformed, wherever it ends.

    The request has about 30 bytes. The test keeps the first `remaining_bytes` of them, but always
    cuts off at least the last byte.
    """
    request = consumer.JoinGroupRequest(
        version=5,
        group_id="g",
        session_timeout_ms=1,
        rebalance_timeout_ms=2,
        member_id="m",
        group_instance_id=None,
        protocol_type="consumer",
        protocols=[],
    )
    data = bytes(request.encode(version=5))
    assert isinstance(decode_request(Api.JOIN_GROUP, 5, Cursor(data)), JoinGroupRequest)
    truncated = data[: min(remaining_bytes, len(data) - 1)]
    with pytest.raises(MalformedRequest):
        decode_request(Api.JOIN_GROUP, 5, Cursor(truncated))


def test_list_with_a_count_of_billions_is_malformed_at_once() -> None:
    """The codec must not reserve memory for the number of items that a request claims to have."""
    data = b"\x7f\xff\xff\xff"  # the number of groups: 2**31 - 1
    with pytest.raises(MalformedRequest, match="2147483647 items"):
        decode_request(Api.DESCRIBE_GROUPS, 0, Cursor(data))
