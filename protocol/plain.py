"""Conversion between messages and plain data: dicts, lists, numbers.

The project has recordings of requests to a real Kafka broker, and of the broker's answers. The
recordings have messages as plain data, with the fields that a message has in its version. For
example, a Heartbeat v0 is {"group_id": "g", "generation_id": 1, "member_id": "m"}. Tests replay the
recorded requests, and compare the answers of this project's broker with the recorded answers.

A message class describes only the newest version of an API; a schema (see `protocol.wire.fields`)
describes all versions. In an old version, a message may even have another structure, for example
one group where the newest version has a list of groups. Then the schema's function `lift` converts
a request into the newest structure, and `lower` converts an answer into the old structure.

In the functions below, `api` is the name of an API, such as `JoinGroup`. `row` is this API's row in
the table of all APIs (`protocol.api.Api`), which names the versions, the messages and the schema.
"""

import types
import typing
from collections.abc import Mapping

import msgspec

from protocol.api import API_BY_LABEL, AnyRequest, AnyResponse, Api
from protocol.errors import SimulationError
from protocol.wire.fields import ApiSchema, Kind, PlainMessage, PlainValue, WireField

_PYTHON_TYPES: dict[Kind, type] = {
    Kind.INT: int,
    Kind.BOOL: bool,
    Kind.STRING: str,
    Kind.BYTES: bytes,
    Kind.STRUCT: dict,
    Kind.RECORDS: bytes,
}


class NotAMessage(Exception):
    """Plain data does not have the form of a message in its version.

    The text names the field that is wrong, and says what was expected.
    """


def is_known(api: str, version: int) -> bool:
    """Return True if this project has a schema of the API, with this version."""
    row = API_BY_LABEL.get(api)
    return row is not None and row.schema is not None and version in row.versions


def check_request(api: str, version: int, plain: PlainMessage) -> None:
    """Check that a request has exactly the fields of its version.

    A request of an API without a schema is not checked.
    Raises: NotAMessage if it has other fields, or values of wrong types.
    """
    row = API_BY_LABEL.get(api)
    if row is not None and row.schema is not None:
        _check(row.schema.request_fields, version, plain, "request")


def request_from_plain(api: str, version: int, plain: PlainMessage) -> AnyRequest:
    """Return the request that `plain` describes. `plain` must have exactly the version's fields.

    Raises: NotAMessage if it has other fields; SimulationError if the version is not known.
    """
    row, schema = _row_and_schema(api, version)
    _check(schema.request_fields, version, plain, "request")
    # Versions below `reshaped_below` have another structure than the newest version.
    if schema.lift is not None and version < schema.reshaped_below:
        plain = schema.lift(plain)
    # Some fields have no effect on this project's broker. The message class does not have them.
    unused = {field.name for field in schema.request_fields if field.is_unused}
    used = {name: value for name, value in plain.items() if name not in unused}
    request = _build(row.request, used)
    return typing.cast(AnyRequest, request)  # every `Api.request` is a member of this union


def response_to_plain(api: str, version: int, response: AnyResponse) -> PlainMessage:
    """Return an answer as plain data, with the fields of the version in the schema's order.

    Raises: SimulationError if the version is not known, or the answer is of another API.
    """
    row, schema = _row_and_schema(api, version)
    if not isinstance(response, row.response):
        raise SimulationError(f"{api} is answered with a {type(response).__name__}")
    plain = _flatten(response)
    if schema.lower is not None and version < schema.reshaped_below:
        plain = schema.lower(plain)
    return _select(schema.response_fields, version, plain)


def _row_and_schema(api: str, version: int) -> tuple[Api, ApiSchema]:
    row = API_BY_LABEL.get(api)
    if row is None or row.schema is None or version not in row.versions:
        raise SimulationError(f"there is no {api} v{version} here")
    return row, row.schema


def _check(fields: tuple[WireField, ...], version: int, plain: PlainMessage, path: str) -> None:
    """Check the fields of an object in a message.

    `path` is the place of the object in the message, for example "request.topics[2]". Errors show
    this place.
    Raises: NotAMessage.
    """
    expected = {field.name: field for field in fields if field.is_in(version)}
    for name in plain:
        if name not in expected:
            raise NotAMessage(f"{path}.{name}: there is no such field in v{version}")
    for name, field in expected.items():
        if name not in plain:
            raise NotAMessage(f"{path}.{name}: missing, v{version} has it")
        _check_value(field, version, plain[name], f"{path}.{name}")


def _check_value(field: WireField, version: int, value: PlainValue, path: str) -> None:
    if value is None and field.is_nullable:
        return
    if not field.is_array:
        _check_one(field, version, value, path)
        return
    if not isinstance(value, list):
        raise NotAMessage(f"{path}: expected a list, got {value!r}")
    for index, item in enumerate(value):
        _check_one(field, version, item, f"{path}[{index}]")


def _check_one(field: WireField, version: int, value: PlainValue, path: str) -> None:
    expected = _PYTHON_TYPES[field.kind]
    is_bool = isinstance(value, bool)  # a bool is also an int in Python, but not in a message
    if not isinstance(value, expected) or (is_bool and field.kind is not Kind.BOOL):
        raise NotAMessage(f"{path}: expected {field.kind.value}, got {value!r}")
    if isinstance(value, dict):
        _check(field.fields, version, value, path)


def _build(struct: type[msgspec.Struct], plain: Mapping[str, PlainValue]) -> msgspec.Struct:
    """Return a `struct` whose fields have the values of `plain`. Other fields get their defaults.

    Raises: SimulationError if `struct` lacks a field of `plain`. The schema is wrong then, because
        `_check` has compared `plain` with the schema.
    """
    known = {field.name: field.type for field in msgspec.structs.fields(struct)}
    unknown = [name for name in plain if name not in known]
    if unknown:
        raise SimulationError(f"{struct.__name__} has no {', '.join(unknown)}: a schema is wrong")
    return struct(**{name: _convert(known[name], value) for name, value in plain.items()})


def _convert(wanted: typing.Any, value: PlainValue) -> object:  # noqa: ANN401 (a type annotation)
    """Return `value` in the form of a field whose type is `wanted`.

    A list becomes a tuple, and a dict becomes a Struct.
    """
    if isinstance(value, list):
        # The type of the field is `tuple[X, ...]`, or a union with it, such as
        # `tuple[X, ...] | None`. X is the type of the items. The statement takes the one tuple
        # among the members of the union, and the first argument of this tuple.
        (item,) = (
            typing.get_args(option)[0]
            for option in _options(wanted)
            if typing.get_origin(option) is tuple
        )
        return tuple(_convert(item, element) for element in value)
    if isinstance(value, dict):
        return _build(wanted, value)
    return value


def _options(wanted: typing.Any) -> tuple[typing.Any, ...]:  # noqa: ANN401 (a type annotation)
    """Return the member types of a type such as `X | None`. For a plain type X, return (X,)."""
    is_union = typing.get_origin(wanted) in (typing.Union, types.UnionType)
    return typing.get_args(wanted) if is_union else (wanted,)


def _flatten(struct: msgspec.Struct) -> PlainMessage:
    """Return a Struct as plain data, with all fields of its newest version."""
    return {name: _plain(getattr(struct, name)) for name in struct.__struct_fields__}


def _plain(value: object) -> PlainValue:
    if isinstance(value, msgspec.Struct):
        return _flatten(value)
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    if value is None or isinstance(value, bool | str | bytes):
        return value
    if isinstance(value, int):
        return int(value)  # turns an IntEnum, such as ErrorCode, into its plain number
    raise SimulationError(f"a message holds a {type(value).__name__}: {value!r}")


def _select(fields: tuple[WireField, ...], version: int, plain: PlainMessage) -> PlainMessage:
    """Return the fields of one version, from `plain`.

    Some fields of old versions are not in `plain`, which has the newest fields. Such a field gets
    the value `absent` of its WireField.
    """
    return {
        field.name: _select_value(field, version, plain.get(field.name, field.absent))
        for field in fields
        if field.is_in(version)
    }


def _select_value(field: WireField, version: int, value: PlainValue) -> PlainValue:
    if isinstance(value, dict):
        return _select(field.fields, version, value)
    if isinstance(value, list):
        return [_select_value(field, version, item) for item in value]
    return value
