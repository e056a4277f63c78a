"""OffsetDelete (47), v0: deletes committed offsets of topics to which no member subscribes.

Source: Kafka `GroupCoordinator.handleDeleteOffsets`; docs/kafka/BEHAVIOUR.md 2.9.
"""

from coordinator.group import CONSUMER_PROTOCOL_TYPE, Group
from coordinator.shard import Shard
from coordinator.states import GroupState
from coordinator.storage.tombstones import clean_up
from coordinator.turn import Turn
from protocol.causes import DeletionCause
from protocol.errors import ErrorCode
from protocol.ids import RequestId, TopicPartition
from protocol.messages.group_admin import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)


def handle_offset_delete(
    turn: Turn, shard: Shard | ErrorCode, request_id: RequestId, request: OffsetDeleteRequest
) -> None:
    """Answer an OffsetDelete of an administrator.

    `shard` holds the groups of one partition of `__consumer_offsets`. If this broker does not serve
    the group, `shard` is the error that says why.
    """
    turn.reply(request_id, _delete(turn, shard, request))


def _delete(
    turn: Turn, shard: Shard | ErrorCode, request: OffsetDeleteRequest
) -> OffsetDeleteResponse:
    """Delete the offsets that certainly no member uses, and return the answer."""
    if isinstance(shard, ErrorCode):
        return OffsetDeleteResponse(error_code=shard)
    group = shard.groups.get(request.group_id)
    if group is None:
        return OffsetDeleteResponse(error_code=ErrorCode.GROUP_ID_NOT_FOUND)
    asked = [
        TopicPartition(topic.name, entry.partition_index)
        for topic in request.topics
        for entry in topic.partitions
    ]
    match group.state:
        case GroupState.DEAD:
            return OffsetDeleteResponse(error_code=ErrorCode.GROUP_ID_NOT_FOUND)
        case GroupState.EMPTY:
            errors = dict.fromkeys(asked, ErrorCode.NONE)
        case GroupState.PREPARING_REBALANCE | GroupState.COMPLETING_REBALANCE | GroupState.STABLE:
            # Only the subscriptions of consumers can be read. In a group of other clients, any
            # offset may be in use.
            if group.protocol_type != CONSUMER_PROTOCOL_TYPE:
                return OffsetDeleteResponse(error_code=ErrorCode.NON_EMPTY_GROUP)
            errors = {partition: _error(group, partition) for partition in asked}

    # `clean_up` also deletes the group itself, if it is Empty and has no offset left.
    deleted = [partition for partition, error in errors.items() if error is ErrorCode.NONE]
    clean_up(turn, shard, group, deleted, cause=DeletionCause.DELETED)
    return _response(errors)


def _error(group: Group, partition: TopicPartition) -> ErrorCode:
    """Return an error if a member may be using the partition's offset, else NONE."""
    if group.is_subscribed_to(partition.topic):
        return ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    return ErrorCode.NONE


def _response(errors: dict[TopicPartition, ErrorCode]) -> OffsetDeleteResponse:
    topics: dict[str, list[OffsetDeleteResponsePartition]] = {}
    for (topic, index), error in errors.items():
        topics.setdefault(topic, []).append(
            OffsetDeleteResponsePartition(partition_index=index, error_code=error)
        )
    return OffsetDeleteResponse(
        topics=tuple(
            OffsetDeleteResponseTopic(name=name, partitions=tuple(partitions))
            for name, partitions in topics.items()
        )
    )
