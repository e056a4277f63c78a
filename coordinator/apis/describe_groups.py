"""DescribeGroups (API key 15), versions 0 to 5: state and members of groups, for administrators.

The request changes nothing. A turn is the handling of one input; replies go through it. A shard has
the groups of one partition of `__consumer_offsets` that this broker coordinates.
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

    `gate` looks up the shard of a group. It returns an error if this broker cannot serve the group.
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
    # During a rebalance the last generation's protocol and assignments are no longer valid.
    protocol_name = group.protocol_name if group.state is GroupState.STABLE else None
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",  # a simple group has no type
        protocol_data=protocol_name or "",  # Kafka's name for the protocol's name
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
