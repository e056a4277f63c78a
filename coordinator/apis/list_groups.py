"""ListGroups (16), v0 to v5: returns the groups that this broker coordinates.

v4 adds a filter by state, and v5 a filter by type. Both filters ignore letter case.

Source: Kafka `GroupCoordinator.handleListGroups`; docs/kafka/BEHAVIOUR.md 2.12.
"""

from coordinator.group import Group
from coordinator.shard import Shards
from coordinator.turn import Turn
from protocol.errors import ErrorCode
from protocol.ids import RequestId
from protocol.messages.group_admin import ListedGroup, ListGroupsRequest, ListGroupsResponse

CLASSIC = "classic"
"""The type of every group of this coordinator. The other type, `consumer`, is for groups that use
the new protocol of KIP-848. This coordinator does not have that protocol."""


def handle_list_groups(
    turn: Turn,
    shards: Shards,
    request_id: RequestId,
    request: ListGroupsRequest,
    *,
    is_active: bool,
) -> None:
    """Answer a ListGroups with all groups that pass the filters.

    The groups of a partition that is still loading are not known yet. If there is such a partition,
    the answer has the known groups together with the error COORDINATOR_LOAD_IN_PROGRESS.
    `is_active` is False after the coordinator has shut down.
    """
    if not is_active:
        turn.reply(request_id, ListGroupsResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE))
        return
    # An empty filter lets every group pass.
    states = _folded(request.states_filter)
    types = _folded(request.types_filter)
    groups = tuple(
        _listed(group)
        for group in shards.groups()
        if (not states or group.state.value.lower() in states) and (not types or CLASSIC in types)
    )
    error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if shards.loading else ErrorCode.NONE
    turn.reply(request_id, ListGroupsResponse(error_code=error, groups=groups))


def _folded(names: tuple[str, ...]) -> frozenset[str]:
    """Return the names of a filter in lower case."""
    return frozenset(name.lower() for name in names)


def _listed(group: Group) -> ListedGroup:
    return ListedGroup(
        group_id=group.group_id,
        protocol_type=group.protocol_type or "",  # None if the group never had members
        group_state=group.state.value,
        group_type=CLASSIC,
    )
