"""Answers of `groups` as data: its JSON documents, and the rows of its tables.

A broker is named by its id. An error is Kafka's name of it, with more where there is more to say.
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
    """A group as one broker lists it; in a split brain two list it."""

    group: str
    type: str
    protocol_type: str
    state: str
    coordinator: int


class GroupList(msgspec.Struct, frozen=True, kw_only=True):
    """Every listed group. `failures`: why a broker's list is missing, or not whole, by its id."""

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
    """A partition that a group has committed, or a member is assigned.

    `current_offset` None: nothing is committed; `log_end_offset` None: `error` says why; `lag` None
    without both. `member_id`, `host`, `client_id` None: no member is assigned the partition.
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
    """A group. With an `error` there is nothing else but what its coordinator had said before.

    `offsets` None: they were not asked for.
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

    `current_offset` None: nothing was committed; `asked_for` is what lay outside of the log, None
    where `new_offset` is it; `new_offset` None: `error` says why.
    """

    topic: str
    partition: int
    current_offset: int | None
    new_offset: int | None
    asked_for: int | None = None
    error: str | None = None


class OffsetReset(msgspec.Struct, frozen=True, kw_only=True):
    """A reset: planned, or done (`executed`). With an `error` of the whole nothing was changed."""

    group: str
    executed: bool
    error: str | None
    state: str | None = None
    held_by: tuple[GroupMember, ...] = ()
    offsets: tuple[ResetOffset, ...] = ()
