"""The vocabulary of schema tables: fields, their kinds and their versions.

`message_schemas` and `transaction_schemas` have the tables; this module knows no API.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

NEWEST = 32_767
"""Upper bound of all versions: the largest int16."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class WireField:
    """One field of a message or record, present in the versions `since` to `until`.

    fields: the fields of a STRUCT.
    absent: the value in an answer, if our message lacks the field.
    is_unused: the field of a request is dropped, since it changes nothing in the lab.
    bits: width of an INT; a value read from a log must fit.
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

    def is_in(self, version: int) -> bool:
        """Return whether this version has the field."""
        return self.since <= version <= self.until


Reshape = Callable[[PlainMessage], PlainMessage]


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiSchema:
    """The fields of an API's request and answer, with their versions.

    Versions below `reshaped_below` have another structure than the newest, for example one group
    in place of a list: `lift` converts a request into the newest structure, `lower` converts an
    answer from the newest structure.
    """

    request_fields: tuple[WireField, ...]
    response_fields: tuple[WireField, ...]
    reshaped_below: int = 0
    lift: Reshape | None = None
    lower: Reshape | None = None


# -- constructors, which keep the tables short --


def int_field(
    name: str, since: int = 0, until: int = NEWEST, *, absent: PlainValue = None, bits: int = 64
) -> WireField:
    """Return an integer field."""
    return WireField(name=name, kind=Kind.INT, since=since, until=until, absent=absent, bits=bits)


def str_field(
    name: str, since: int = 0, until: int = NEWEST, *, nullable: bool = False
) -> WireField:
    """Return a string field."""
    return WireField(name=name, kind=Kind.STRING, since=since, until=until, is_nullable=nullable)


def bytes_field(name: str) -> WireField:
    """Return a field of bytes."""
    return WireField(name=name, kind=Kind.BYTES)


def bool_field(name: str, since: int = 0, *, unused: bool = False) -> WireField:
    """Return a field that is true or false."""
    return WireField(name=name, kind=Kind.BOOL, since=since, is_unused=unused)


def array_field(kind: Kind, name: str, since: int = 0, until: int = NEWEST) -> WireField:
    """Return a field that is a list of items of one kind."""
    return WireField(name=name, kind=kind, since=since, until=until, is_array=True)


def struct_array(
    name: str, *fields: WireField, since: int = 0, until: int = NEWEST, nullable: bool = False
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
    )


def throttle_time(since: int) -> WireField:
    """Return the field `throttle_time_ms` of an answer; always 0, as the lab has no quotas."""
    return int_field("throttle_time_ms", since, absent=0)


def group_instance(since: int) -> WireField:
    """Return the nullable field `group_instance_id`."""
    return str_field("group_instance_id", since, nullable=True)


ERROR = int_field("error_code")
GROUP_ID = str_field("group_id")
MEMBER_ID = str_field("member_id")
