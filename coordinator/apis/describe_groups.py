"""DescribeGroups (15), v0 to v5: returns the state and the members of groups.

An administrator's tool sends this request, which names the groups.

Source: Kafka `GroupCoordinator.handleDescribeGroup`, `GroupMetadata.summary`;
docs/kafka/BEHAVIOUR.md 2.11.
"""

from collections.abc import Callable

from coordinator.group import Group
from coordinator.member import Member
from coordinator.shard import Shard
from coordinator.states import GroupState
from coordinator.turn import Turn
from protocol.errors import ErrorCode
from protocol.ids import RequestId
from protocol.messages.group_admin import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)


def handle_describe_groups(
    turn: Turn,
    gate: Callable[[str], Shard | ErrorCode],
    request_id: RequestId,
    request: DescribeGroupsRequest,
) -> None:
    """Answer a DescribeGroups, with one entry for each group that the request names.

    A shard holds the groups of one partition of `__consumer_offsets`. `gate` returns the shard of a
    group, or the error that says why this broker does not serve the group.
    """
    turn.reply(
        request_id,
        DescribeGroupsResponse(
            groups=tuple(_describe(gate(group_id), group_id) for group_id in request.groups)
        ),
    )


def _describe(shard: Shard | ErrorCode, group_id: str) -> DescribedGroup:
    """Return the answer's entry for a group.

    As in Kafka, a group that does not exist is answered with the state Dead, without an error.
    """
    if isinstance(shard, ErrorCode):
        return DescribedGroup(group_id=group_id, error_code=shard)
    group = shard.groups.get(group_id)
    if group is None:
        return DescribedGroup(group_id=group_id, group_state=GroupState.DEAD.value)
    # The answer has the protocol, the subscriptions and the assignments only in the state Stable.
    # During a rebalance the assignments of the last generation are not valid any more.
    protocol_name = group.protocol_name if group.state is GroupState.STABLE else None
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",  # None if the group never had members
        protocol_data=protocol_name or "",  # Kafka's field has this name, but it is for the name
        members=_members(group, protocol_name),
    )


def _members(group: Group, protocol_name: str | None) -> tuple[DescribedGroupMember, ...]:
    return tuple(_member(member, protocol_name) for member in group.members.values())


def _member(member: Member, protocol_name: str | None) -> DescribedGroupMember:
    """Return the answer's entry for a member.

    If `protocol_name` is None, subscription and assignment are empty in the entry.
    """
    return DescribedGroupMember(
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        member_metadata=b"" if protocol_name is None else member.metadata(protocol_name),
        member_assignment=b"" if protocol_name is None else member.assignment,
    )
