"""What the tables of Kafka's message schemas are written with: fields, their kinds and versions.

Must not know any API: `message_schemas` and `transaction_schemas` have the tables.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

NEWEST = 32_767
"""A version above every one that there is."""

PlainValue = bool | int | str | bytes | list["PlainValue"] | dict[str, "PlainValue"] | None
PlainMessage = dict[str, PlainValue]
"""A message as plain data, under the names that one version of its API has."""


class Kind(Enum):
    """What a field holds."""

    INT = "an integer"
    BOOL = "true or false"
    STRING = "a string"
    BYTES = "bytes"
    STRUCT = "an object"


@dataclass(frozen=True, slots=True, kw_only=True)
class WireField:
    """One field of a message, in the versions `since` to `until`.

    Shape: `fields` are those of a STRUCT. `absent` is what an answer has where our message knows
    no such field. A request's field that `is_unused` changes nothing here and is dropped.
    Units: `bits` is the width of an INT, which bounds what is read from a log.
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
        """Return whether the field is there in this version."""
        return self.since <= version <= self.until


Reshape = Callable[[PlainMessage], PlainMessage]


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiSchema:
    """Kafka's fields of one API's request and answer, each with its versions.

    Below `reshaped_below` a message has another shape than the newest: `lift` brings a request
    into the newest, `lower` an answer out of it.
    """

    request_fields: tuple[WireField, ...]
    response_fields: tuple[WireField, ...]
    reshaped_below: int = 0
    lift: Reshape | None = None
    lower: Reshape | None = None


# -- how the tables are written --


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
    """Return the field of an answer's throttling: there are no quotas here, so it is 0."""
    return int_field("throttle_time_ms", since, absent=0)


def group_instance(since: int) -> WireField:
    """Return the field of a group.instance.id, which may be null."""
    return str_field("group_instance_id", since, nullable=True)


ERROR = int_field("error_code")
GROUP_ID = str_field("group_id")
MEMBER_ID = str_field("member_id")
