"""Checks that several APIs share, in Kafka's order.

A check changes nothing. It returns the error with which the request must be answered, or NONE. An
exception is `check_group_status`, the first check of a request on a group. If the request passes,
`check_group_status` returns the group's shard: the groups of one partition of `__consumer_offsets`
that this broker serves.

Source: Kafka `GroupCoordinator.validateGroupStatus`, `validateCurrentMember`,
`validateOffsetCommit`; docs/kafka/BEHAVIOUR.md 2.0, 2.0.1, 2.6.
"""

from coordinator.group import Group
from coordinator.shard import Shard, Shards
from coordinator.states import GroupState
from protocol.config import Guards
from protocol.errors import ErrorCode


def check_group_status(
    shards: Shards, group_id: str, *, is_active: bool, allow_empty_id: bool = False
) -> Shard | ErrorCode:
    """Return the shard of a group, or the error that says why it is not served here.

    `is_active` is False after the coordinator has shut down. `allow_empty_id` is True in the APIs
    that accept the empty group id, under which old clients may store offsets without joining.
    """
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
    """Check that the member is in the group, and has the instance id that its request names."""
    # The instance id is checked before the member id, for the sake of a static member that was
    # replaced. The old process must get FENCED_INSTANCE_ID, which ends it. After UNKNOWN_MEMBER_ID,
    # the old process would join again and fence its successor.
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
    """Check that the generation is the current generation of the group.

    An experiment may switch off this check, to see what it prevents (`guards.generation_check`).
    """
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
    """Check that the sender of a commit may commit offsets of the group now.

    The sender may be a member, a producer (`is_transactional`), an admin tool, or a consumer that
    assigns partitions to itself.
    """
    if group.state is GroupState.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if generation_id < 0 and group.state is GroupState.EMPTY:
        # The sender is no member, but an admin tool or a consumer that assigns partitions to
        # itself. Its member id and instance id are not checked.
        return ErrorCode.NONE
    if generation_id >= 0 or member_id or group_instance_id is not None:
        # The request names a member, which must be in the group and know its generation. NONE has
        # the value 0, so `error.value` is true for every other code.
        error = check_current_member(group, member_id, group_instance_id)
        return error if error.value else check_generation(group, generation_id, guards)
    # The request names no member, but the group has members. Only a producer may do this, because
    # producers older than KIP-447 do not name a member. If another producer has replaced this one,
    # the log will refuse the append.
    return ErrorCode.NONE if is_transactional else ErrorCode.UNKNOWN_MEMBER_ID
