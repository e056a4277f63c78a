"""The structs that the command `groups` prints as tables or as JSON.

The subcommands make these structs:

- `list`: a GroupList, with a CoordinatedGroup for each group;
- `describe`: a GroupFacts for each group, with its GroupMembers and GroupOffsets;
- `delete`: a DeletedGroup for each group;
- `delete-offsets`: a DeletedOffsets, with a DeletedOffset for each partition;
- `reset-offsets`: an OffsetReset, with a ResetOffset for each partition.

An `error` is None after success. Otherwise it is a text that begins with Kafka's name of the error,
such as `NON_EMPTY_GROUP`. Brokers are given by their ids.
"""

import msgspec

from protocol.ids import TopicPartition

DEAD = "Dead"
"""The state of a group that does not exist."""
EMPTY = "Empty"
"""The state of a group without members."""
STABLE = "Stable"
"""The state of a group whose members all have their assignment."""
WHOLE_TOPIC = -1
"""The value of `partition` in a row that is about a whole topic.

Normally each partition of a topic has its own row. If the user names a topic that does not exist,
it is not known which partitions it has. Then a single row has the error for the whole topic.
"""


class CoordinatedGroup(msgspec.Struct, frozen=True, kw_only=True):
    """A group in the list of its coordinator.

    If two brokers believe that they coordinate the group, each of them has the group in its list.
    """

    group: str
    type: str
    protocol_type: str
    state: str
    coordinator: int


class GroupList(msgspec.Struct, frozen=True, kw_only=True):
    """The groups of all brokers' lists together.

    `failures`: broker id -> why the list of this broker is missing or incomplete.
    """

    groups: tuple[CoordinatedGroup, ...]
    failures: dict[int, str]


class GroupMember(msgspec.Struct, frozen=True, kw_only=True):
    """A member and the partitions assigned to it.

    `group_instance_id`: the configured name of a static member; None if the member is not static.
    """

    member_id: str
    group_instance_id: str | None
    client_id: str
    host: str
    assigned: tuple[TopicPartition, ...]


class GroupOffset(msgspec.Struct, frozen=True, kw_only=True):
    """How far a group has read one partition.

    There is a GroupOffset for each partition that has a committed offset or is assigned to a
    member.

    - `current_offset`: the committed offset; None if nothing is committed.
    - `log_end_offset`: the end of the log; None if it is not known. Then `error` has the reason.
    - `lag`: `log_end_offset` minus `current_offset`; None if either is None.
    - `member_id`, `host`, `client_id`: None if the partition is assigned to no member.
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
    """The description of a group.

    To describe a group takes several requests. If a request fails, `error` says why, and the fields
    that later requests would have filled keep their defaults.

    - `coordinator`: the broker that answered the request about the group.
    - `offsets`: None if the user did not ask for offsets, or if they are not known.
    """

    group: str
    error: str | None = None
    state: str | None = None
    coordinator: int | None = None
    assignment_strategy: str | None = None
    members: tuple[GroupMember, ...] = ()
    offsets: tuple[GroupOffset, ...] | None = None


class DeletedGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Outcome of deleting one group.

    `held_by`: the members of the group, if they were the reason not to delete the group.
    """

    group: str
    error: str | None
    held_by: tuple[GroupMember, ...] = ()


class DeletedOffset(msgspec.Struct, frozen=True, kw_only=True):
    """Outcome of deleting one committed offset."""

    topic: str
    partition: int
    error: str | None


class DeletedOffsets(msgspec.Struct, frozen=True, kw_only=True):
    """Outcome of deleting offsets of one group; if it has an `error`, no offset was deleted."""

    group: str
    error: str | None
    offsets: tuple[DeletedOffset, ...] = ()


class ResetOffset(msgspec.Struct, frozen=True, kw_only=True):
    """The new offset of one partition.

    - `current_offset`: the offset before the reset; None if none was committed.
    - `new_offset`: None if the partition gets no new offset. Then `error` has the reason.
    - `asked_for`: None if `new_offset` is the offset that the user asked for. An offset outside of
      the log cannot be set. If the user asks for such an offset, it is in `asked_for`, and
      `new_offset` is the nearer end of the log.
    """

    topic: str
    partition: int
    current_offset: int | None
    new_offset: int | None
    asked_for: int | None = None
    error: str | None = None


class OffsetReset(msgspec.Struct, frozen=True, kw_only=True):
    """Outcome of resetting the offsets of one group.

    - `executed`: True if the offsets were sent to the coordinator; False if they are only a plan.
    - `error`: why the reset failed as a whole. Then `offsets` is empty. The error of a single
      partition is in its row of `offsets`.
    - `held_by`: the members of the group, if they were the reason not to reset the offsets.
    """

    group: str
    executed: bool
    error: str | None
    state: str | None = None
    held_by: tuple[GroupMember, ...] = ()
    offsets: tuple[ResetOffset, ...] = ()
