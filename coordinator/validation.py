"""The checks that several APIs share, in Kafka's order.

A check returns the error to answer, NONE if there is none, and changes nothing.
Source: Kafka `GroupCoordinator.validateGroupStatus`, `validateCurrentMember`,
`validateOffsetCommit`; BEHAVIOUR 2.0, 2.0.1, 2.6.
"""

from coordinator.group import Group
from coordinator.shard import Shard, Shards
from coordinator.states import GroupState
from protocol.config import Guards
from protocol.errors import ErrorCode


def check_group_status(
    shards: Shards, group_id: str, *, is_active: bool, allow_empty_id: bool = False
) -> Shard | ErrorCode:
    """Return the shard of a group, or why it cannot be served here: the gate of every API."""
    if not group_id and not allow_empty_id:
        return ErrorCode.INVALID_GROUP_ID
    if not is_active:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    partition = shards.partition_of(group_id)
    shard = shards.owned.get(partition)
    if shard is not None:
        return shard
    if partition in shards.loading:
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    return ErrorCode.NOT_COORDINATOR


def check_current_member(group: Group, member_id: str, group_instance_id: str | None) -> ErrorCode:
    """Return whether the member is in the group, under the instance id that it claims."""
    if group_instance_id is not None:
        current = group.static_members.get(group_instance_id)
        if current is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if current != member_id:
            return ErrorCode.FENCED_INSTANCE_ID
    if member_id not in group.members:
        return ErrorCode.UNKNOWN_MEMBER_ID
    return ErrorCode.NONE


def check_generation(group: Group, generation_id: int, guards: Guards) -> ErrorCode:
    """Return whether the generation is the current one; the guard can be switched off."""
    if guards.generation_check and generation_id != group.generation_id:
        return ErrorCode.ILLEGAL_GENERATION
    return ErrorCode.NONE


def check_offset_commit(
    group: Group,
    *,
    generation_id: int,
    member_id: str,
    group_instance_id: str | None,
    guards: Guards,
    is_transactional: bool = False,
) -> ErrorCode:
    """Return whether this caller may commit offsets of the group now.

    A producer that names no member may always: its transaction is what fences it (below KIP-447).
    """
    if group.state is GroupState.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if generation_id < 0 and group.state is GroupState.EMPTY:
        # An admin tool or a simple consumer: its ids are not looked at.
        return ErrorCode.NONE
    if generation_id >= 0 or member_id or group_instance_id is not None:
        error = check_current_member(group, member_id, group_instance_id)
        return error if error.value else check_generation(group, generation_id, guards)
    return ErrorCode.NONE if is_transactional else ErrorCode.UNKNOWN_MEMBER_ID
