"""OffsetFetch (9), v1 to v9: anybody reads the committed offsets of groups.

v7 may ask for stable offsets only; v8 asks for several groups.
Answered from memory, without the log: an isolated old coordinator answers with stale offsets.
Source: Kafka `GroupCoordinator.handleFetchOffsets`, `GroupMetadataManager.getOffsets`;
BEHAVIOUR 2.7.
"""

from collections.abc import Callable

from coordinator.group import Group
from coordinator.shard import Shard
from coordinator.states import GroupState
from coordinator.turn import Turn
from protocol.errors import ErrorCode
from protocol.ids import RequestId, TopicPartition
from protocol.offset_messages import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopics,
)

REQUIRE_STABLE_VERSION = 7


def handle_offset_fetch(
    turn: Turn,
    gate: Callable[[str], Shard | ErrorCode],
    request_id: RequestId,
    request: OffsetFetchRequest,
    api_version: int,
) -> None:
    """Answer an OffsetFetch; `gate` says for each group where it is.

    A request without groups is never answered (BEHAVIOUR 0.1).
    """
    if not request.groups:
        return
    require_stable = request.require_stable and api_version >= REQUIRE_STABLE_VERSION
    turn.reply(
        request_id,
        OffsetFetchResponse(
            groups=tuple(
                _fetch(gate(group.group_id), group, require_stable=require_stable)
                for group in request.groups
            )
        ),
    )


def _fetch(
    shard: Shard | ErrorCode, asked: OffsetFetchRequestGroup, *, require_stable: bool
) -> OffsetFetchResponseGroup:
    if isinstance(shard, ErrorCode):
        return OffsetFetchResponseGroup(group_id=asked.group_id, error_code=shard)
    group = shard.groups.get(asked.group_id)
    if group is not None and group.state is GroupState.DEAD:
        group = None
    topics: dict[str, list[OffsetFetchResponsePartition]] = {}
    for partition in _partitions(group, asked):
        topics.setdefault(partition.topic, []).append(
            _fetch_partition(group, partition, require_stable=require_stable)
        )
    return OffsetFetchResponseGroup(
        group_id=asked.group_id,
        topics=tuple(
            OffsetFetchResponseTopics(name=name, partitions=tuple(partitions))
            for name, partitions in topics.items()
        ),
    )


def _partitions(group: Group | None, asked: OffsetFetchRequestGroup) -> tuple[TopicPartition, ...]:
    """Return the partitions to answer, each once; None asked means all with an offset."""
    if asked.topics is None:
        return () if group is None else group.offsets.partitions()
    return tuple(
        dict.fromkeys(
            TopicPartition(topic.name, index)
            for topic in asked.topics
            for index in topic.partition_indexes
        )
    )


def _fetch_partition(
    group: Group | None, partition: TopicPartition, *, require_stable: bool
) -> OffsetFetchResponsePartition:
    index = partition.partition
    if group is None:
        return OffsetFetchResponsePartition(partition_index=index)
    if require_stable and group.offsets.is_unstable(partition):
        return OffsetFetchResponsePartition(
            partition_index=index, error_code=ErrorCode.UNSTABLE_OFFSET_COMMIT
        )
    value = group.offsets.get(partition)
    if value is None:
        return OffsetFetchResponsePartition(partition_index=index)
    return OffsetFetchResponsePartition(
        partition_index=index,
        committed_offset=value.offset,
        committed_leader_epoch=value.leader_epoch,
        metadata=value.metadata,
    )
