"""Results of the command `groups` as data: its JSON documents, and the rows of its tables.

A broker is named by its id. An error is Kafka's name of it, for some errors with an explanation.
"""

import msgspec

from protocol.ids import TopicPartition

DEAD = "Dead"
"""The state of a group that does not exist."""
EMPTY = "Empty"
STABLE = "Stable"
WHOLE_TOPIC = -1
"""Value of `partition` for an error of a whole topic whose partitions are unknown."""


class CoordinatedGroup(msgspec.Struct, frozen=True, kw_only=True):
    """A group as one broker lists it; two brokers that both act as its coordinator list it each."""

    group: str
    type: str
    protocol_type: str
    state: str
    coordinator: int


class GroupList(msgspec.Struct, frozen=True, kw_only=True):
    """Every listed group. `failures`: why a broker's list is missing or incomplete, by its id."""

    groups: tuple[CoordinatedGroup, ...]
    failures: dict[int, str]


class GroupMember(msgspec.Struct, frozen=True, kw_only=True):
    """A member and what it is assigned. `group_instance_id` None: it is not static."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    host: str
    assigned: tuple[TopicPartition, ...]


class GroupOffset(msgspec.Struct, frozen=True, kw_only=True):
    """A partition of which a group has committed an offset, or which is assigned to a member.

    `current_offset` None: no offset is committed; `log_end_offset` None: it is not known, and
    `error` has the reason; `lag` None: one of the two is None. `member_id`, `host`, `client_id`
    None: the partition is assigned to no member.
    """

    topic: str
    partition: int
    current_offset: int | None
    log_end_offset: int | None
    lag: int | None
    member_id: str | None
    host: str | None
    client_id: str | None
    error: str | None = None


class GroupFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A group. With an `error` only the fields answered before the error are set.

    `offsets` None: the command was not asked for them.
    """

    group: str
    error: str | None = None
    state: str | None = None
    coordinator: int | None = None
    assignment_strategy: str | None = None
    members: tuple[GroupMember, ...] = ()
    offsets: tuple[GroupOffset, ...] | None = None


class DeletedGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Outcome of deleting one group. `held_by`: the members because of which the group stays."""

    group: str
    error: str | None
    held_by: tuple[GroupMember, ...] = ()


class DeletedOffset(msgspec.Struct, frozen=True, kw_only=True):
    """Outcome of deleting one committed offset."""

    topic: str
    partition: int
    error: str | None


class DeletedOffsets(msgspec.Struct, frozen=True, kw_only=True):
    """Outcome of deleting offsets of one group. With an `error` no offset was deleted."""

    group: str
    error: str | None
    offsets: tuple[DeletedOffset, ...] = ()


class ResetOffset(msgspec.Struct, frozen=True, kw_only=True):
    """Offset that a reset gives to one partition.

    `current_offset` None: no offset was committed; `asked_for` is the requested offset if it lies
    outside of the log, None if `new_offset` is the requested one; `new_offset` None: there is none,
    and `error` has the reason.
    """

    topic: str
    partition: int
    current_offset: int | None
    new_offset: int | None
    asked_for: int | None = None
    error: str | None = None


class OffsetReset(msgspec.Struct, frozen=True, kw_only=True):
    """A reset, planned or done (`executed`). With an `error` here no offset was changed."""

    group: str
    executed: bool
    error: str | None
    state: str | None = None
    held_by: tuple[GroupMember, ...] = ()
    offsets: tuple[ResetOffset, ...] = ()
