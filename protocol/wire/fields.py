"""The types of which schema tables consist: fields, their kinds and their versions.

A schema table lists the fields of a message in Kafka's encoding, and the versions in which each
field exists. For example, `str_field("reason", 8, nullable=True)` is a string that may be null, in
version 8 and later. `message_schemas`, `listener_schemas` and `transaction_schemas` have the
tables; this module knows no API.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import partial

NEWEST = 32_767
"""Value of `until` for a field that the newest version still has: the largest int16."""

PlainValue = bool | int | str | bytes | list["PlainValue"] | dict[str, "PlainValue"] | None
PlainMessage = dict[str, PlainValue]
"""A message as plain data, with the field names of one version of its API."""


class Kind(Enum):
    """Type of a field; the value names the type in errors."""

    INT = "an integer"
    BOOL = "true or false"
    STRING = "a string"
    BYTES = "bytes"
    STRUCT = "an object"
    RECORDS = "record batches"


@dataclass(frozen=True, slots=True, kw_only=True)
class WireField:
    """One field of a message or record, present in the versions `since` to `until`.

    fields: the fields of a STRUCT.
    absent: the value of this field in an answer, if the message class does not have the field.
    is_unused: True for a field of a request that has no effect on this project's broker, and so is
        dropped.
    bits: width of an INT. A value that is read from a log must fit into this width.
    nullable_since: first version in which a nullable field may be null. In an older version, "" is
        sent to a client in place of null.
    """

    name: str
    kind: Kind
    since: int = 0
    until: int = NEWEST
    is_array: bool = False
    is_nullable: bool = False
    fields: tuple["WireField", ...] = ()
    absent: PlainValue = None
    is_unused: bool = False
    bits: int = 64
    nullable_since: int = 0

    def is_in(self, version: int) -> bool:
        """Return True if this version has the field."""
        return self.since <= version <= self.until


Reshape = Callable[[PlainMessage], PlainMessage]
"""Function that converts a message between the structures of two versions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiSchema:
    """The fields of an API's request and answer, with their versions.

    In versions below `reshaped_below`, messages have another structure than in the newest version.
    For example, they have one group, and the newest version has a list of groups. `lift` converts a
    request from the old structure into the newest structure. `lower` converts an answer from the
    newest structure into the old structure.
    """

    request_fields: tuple[WireField, ...]
    response_fields: tuple[WireField, ...]
    reshaped_below: int = 0
    lift: Reshape | None = None
    lower: Reshape | None = None


# -- functions that build fields, which keep the tables short --


def int_field(
    name: str,
    since: int = 0,
    until: int = NEWEST,
    *,
    bits: int,
    absent: PlainValue = None,
    unused: bool = False,
) -> WireField:
    """Return an integer field of `bits` bits."""
    return WireField(
        name=name,
        kind=Kind.INT,
        since=since,
        until=until,
        absent=absent,
        is_unused=unused,
        bits=bits,
    )


int8_field = partial(int_field, bits=8)
int16_field = partial(int_field, bits=16)
int32_field = partial(int_field, bits=32)
int64_field = partial(int_field, bits=64)


def str_field(
    name: str,
    since: int = 0,
    until: int = NEWEST,
    *,
    nullable: bool = False,
    nullable_since: int = 0,
    unused: bool = False,
) -> WireField:
    """Return a string field.

    If `nullable_since` is given, the field may be null from this version on.
    """
    return WireField(
        name=name,
        kind=Kind.STRING,
        since=since,
        until=until,
        is_nullable=nullable or nullable_since > 0,
        nullable_since=nullable_since,
        is_unused=unused,
    )


def bytes_field(name: str) -> WireField:
    """Return a field of bytes."""
    return WireField(name=name, kind=Kind.BYTES)


def records_field(name: str) -> WireField:
    """Return a nullable field of record batches, as bytes."""
    return WireField(name=name, kind=Kind.RECORDS, is_nullable=True)


def bool_field(
    name: str, since: int = 0, until: int = NEWEST, *, unused: bool = False
) -> WireField:
    """Return a field that is true or false."""
    return WireField(name=name, kind=Kind.BOOL, since=since, until=until, is_unused=unused)


def array_field(
    kind: Kind,
    name: str,
    since: int = 0,
    until: int = NEWEST,
    *,
    bits: int = 32,
    nullable: bool = False,
) -> WireField:
    """Return a field that is a list of items of one kind. `bits` is the width of integers."""
    return WireField(
        name=name,
        kind=kind,
        since=since,
        until=until,
        is_array=True,
        is_nullable=nullable,
        bits=bits,
    )


def struct_array(
    name: str,
    *fields: WireField,
    since: int = 0,
    until: int = NEWEST,
    nullable: bool = False,
    absent: PlainValue = None,
    unused: bool = False,
) -> WireField:
    """Return a field that is a list of objects with these fields."""
    return WireField(
        name=name,
        kind=Kind.STRUCT,
        since=since,
        until=until,
        is_array=True,
        is_nullable=nullable,
        fields=fields,
        absent=absent,
        is_unused=unused,
    )


def throttle_time(since: int) -> WireField:
    """Return the field `throttle_time_ms` of an answer. It is always 0, as there are no quotas."""
    return int32_field("throttle_time_ms", since, absent=0)


def group_instance(since: int) -> WireField:
    """Return the nullable field `group_instance_id`."""
    return str_field("group_instance_id", since, nullable=True)


# Fields that many APIs have.
ERROR = int16_field("error_code")
GROUP_ID = str_field("group_id")
MEMBER_ID = str_field("member_id")
