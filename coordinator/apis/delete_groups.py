"""DeleteGroups (42), v0 to v2: deletes groups without members, with their offsets.

Source: Kafka `GroupCoordinator.handleDeleteGroups`; docs/kafka/BEHAVIOUR.md 2.10.
"""

from collections.abc import Callable

from coordinator.shard import Shard
from coordinator.states import GroupState
from coordinator.storage.tombstones import clean_up, kill_group
from coordinator.turn import Turn
from protocol.causes import DeletionCause
from protocol.errors import ErrorCode
from protocol.ids import RequestId
from protocol.messages.group_admin import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)


def handle_delete_groups(
    turn: Turn,
    gate: Callable[[str], Shard | ErrorCode],
    request_id: RequestId,
    request: DeleteGroupsRequest,
) -> None:
    """Answer a DeleteGroups, with one result for each group that the request names.

    A shard holds the groups of one partition of `__consumer_offsets`. `gate` returns the shard of a
    group, or the error that says why this broker does not serve the group.
    """
    turn.reply(
        request_id,
        DeleteGroupsResponse(
            results=tuple(
                DeletableGroupResult(
                    group_id=group_id, error_code=_delete(turn, gate(group_id), group_id)
                )
                # A group that the request names twice gets one result.
                for group_id in dict.fromkeys(request.groups_names)
            )
        ),
    )


def _delete(turn: Turn, shard: Shard | ErrorCode, group_id: str) -> ErrorCode:
    """Delete a group if it is Empty. Return the error for the answer."""
    if isinstance(shard, ErrorCode):
        return shard
    group = shard.groups.get(group_id)
    if group is None:
        return ErrorCode.GROUP_ID_NOT_FOUND
    match group.state:
        case GroupState.DEAD:
            return ErrorCode.GROUP_ID_NOT_FOUND
        case GroupState.EMPTY:
            # The order matters: `clean_up` removes the group from the shard, and writes a tombstone
            # for it, only if it is Dead.
            kill_group(turn, group, cause=DeletionCause.DELETED)
            clean_up(
                turn, shard, group, group.offsets.all_partitions(), cause=DeletionCause.DELETED
            )
            return ErrorCode.NONE
        case GroupState.PREPARING_REBALANCE | GroupState.COMPLETING_REBALANCE | GroupState.STABLE:
            return ErrorCode.NON_EMPTY_GROUP
