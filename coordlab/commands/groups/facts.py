"""Results of the command `groups` as data: its JSON documents, and the rows of its tables.

The documents are GroupList, GroupFacts, DeletedGroup, DeletedOffsets and OffsetReset; the other
structs are rows in them.

- Brokers are named by their ids. The coordinator of a group is the broker that answered the request
  about the group.
- An `error` is Kafka's name of the error, and for some errors an explanation; None means success.
- The log end offset is the offset that the next record of a partition will get. The lag is the
  difference between the log end offset and the group's committed offset.
- A static member has a `group_instance_id`, and keeps its place in the group when its process
  restarts.
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
"""Value of `partition` for an error of a whole topic, if its partitions are unknown."""


class CoordinatedGroup(msgspec.Struct, frozen=True, kw_only=True):
    """A group as one broker lists it.

    If two brokers act as the coordinator of a group, each of them lists it.
    """

    group: str
    type: str
    protocol_type: str
    state: str
    coordinator: int


class GroupList(msgspec.Struct, frozen=True, kw_only=True):
    """The groups in the lists of all brokers.

    `failures`: the brokers whose lists are missing or incomplete, each with the reason.
    """

    groups: tuple[CoordinatedGroup, ...]
    failures: dict[int, str]


class GroupMember(msgspec.Struct, frozen=True, kw_only=True):
    """A member and the partitions assigned to it.

    `group_instance_id`: None for a member that is not static.
    """

    member_id: str
    group_instance_id: str | None
    client_id: str
    host: str
    assigned: tuple[TopicPartition, ...]


class GroupOffset(msgspec.Struct, frozen=True, kw_only=True):
    """A partition of which a group has committed an offset, or which is assigned to a member.

    - `current_offset`: None if no offset is committed.
    - `log_end_offset`: None if it is not known; `error` then has the reason.
    - `lag`: None if `current_offset` or `log_end_offset` is None.
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
    """A group. If it has an `error`, only the fields that were answered before the error are set.

    `offsets`: None if the command line did not ask for offsets.
    """

    group: str
    error: str | None = None
    state: str | None = None
    coordinator: int | None = None
    assignment_strategy: str | None = None
    members: tuple[GroupMember, ...] = ()
    offsets: tuple[GroupOffset, ...] | None = None


class DeletedGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Outcome of deleting one group; `held_by` has the members that prevent the deletion."""

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
    """One row of an OffsetReset: the offset that the reset gives to one partition.

    - `current_offset`: None if no offset was committed.
    - `new_offset`: None if the partition gets no new offset; `error` then has the reason.
    - `asked_for`: the requested offset if it is outside of the log; `new_offset` is then the nearer
      end of the log. None if the requested offset is in the log.
    """

    topic: str
    partition: int
    current_offset: int | None
    new_offset: int | None
    asked_for: int | None = None
    error: str | None = None


class OffsetReset(msgspec.Struct, frozen=True, kw_only=True):
    """Outcome of resetting the offsets of one group.

    - `executed`: True if the offsets were sent to be committed. If False, `offsets` is only a plan.
    - `error`: the reason if no offset of the group could be reset. Each row of `offsets` can have
      an error of its own.
    - `held_by`: the group's members, which prevent the reset.
    """

    group: str
    executed: bool
    error: str | None
    state: str | None = None
    held_by: tuple[GroupMember, ...] = ()
    offsets: tuple[ResetOffset, ...] = ()
