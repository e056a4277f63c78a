"""OffsetFetch (9), v1 to v9: returns the committed offsets of groups to any client that asks.

From v7 on, a client may send require_stable. Such a stable fetch gets an error for a partition that
has an unfinished commit, so that it does not read an offset that is about to change. From v8 on, a
request may name several groups.

By default the answer is built from memory alone. A coordinator that is cut off from the cluster may
have been replaced without knowing it. Such a coordinator answers with stale offsets. A stable fetch
at Kafka's Java coordinator is safer (switch `commits_apply_on_append`). The fetch returns the
offsets that were written last. The answer for a group is held until the high watermark has reached
the offset at which the log ended when the fetch arrived. At a coordinator that is cut off, the high
watermark may never reach this offset. Then no stale offsets are returned.

Source: Kafka `GroupCoordinator.handleFetchOffsets`, `GroupMetadataManager.getOffsets`, Java
`GroupCoordinatorService.fetchOffsets`, `OffsetMetadataManager.fetchOffsets`;
docs/kafka/BEHAVIOUR.md 2.7.
"""

from collections.abc import Callable

from coordinator.group import Group
from coordinator.shard import Shard
from coordinator.states import GroupState
from coordinator.storage.above_high_watermark import HeldFetch, ParkedFetch
from coordinator.storage.held_writes import answer_if_complete, hold
from coordinator.turn import Turn
from protocol.errors import ErrorCode
from protocol.ids import RequestId, TopicPartition
from protocol.messages.offset import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopics,
)

REQUIRE_STABLE_VERSION = 7
"""First version of OffsetFetch with the field `require_stable`."""


def handle_offset_fetch(
    turn: Turn,
    gate: Callable[[str], Shard | ErrorCode],
    request_id: RequestId,
    request: OffsetFetchRequest,
    api_version: int,
) -> None:
    """Answer an OffsetFetch. Like Kafka, never answer a request that names no group.

    A shard holds the groups of one partition of `__consumer_offsets`. `gate` returns the shard of a
    group, or the error that says why this broker does not serve the group. See
    docs/kafka/BEHAVIOUR.md 0.1 on requests without groups.
    """
    if not request.groups:
        return
    require_stable = request.require_stable and api_version >= REQUIRE_STABLE_VERSION
    if require_stable and turn.java.commits_apply_on_append:
        _fetch_when_committed(turn, gate, request_id, request)
        return
    turn.reply(
        request_id,
        OffsetFetchResponse(
            groups=tuple(
                _fetch(gate(group.group_id), group, require_stable=require_stable)
                for group in request.groups
            )
        ),
    )


def _fetch_when_committed(
    turn: Turn,
    gate: Callable[[str], Shard | ErrorCode],
    request_id: RequestId,
    request: OffsetFetchRequest,
) -> None:
    """Read every group now, and answer when all records whose offsets were read are committed.

    The groups may belong to different partitions of `__consumer_offsets`, which have different high
    watermarks. So the part of each group waits on its own.
    """
    # `fetch` collects the parts of the answer. A HeldFetch is one part that must still wait.
    fetch = ParkedFetch(request_id=request_id, groups=[])
    for index, asked in enumerate(request.groups):
        shard = gate(asked.group_id)
        group = _fetch(shard, asked, require_stable=True)  # the group's part of the answer
        if isinstance(shard, ErrorCode) or shard.above_high_watermark.is_empty:
            fetch.groups.append(group)
        else:
            # None keeps the group's place in the answer. It is replaced by `group` when the high
            # watermark has gone far enough.
            fetch.groups.append(None)
            hold(turn, shard, HeldFetch(fetch=fetch, index=index, group=group))
    answer_if_complete(turn, fetch)


def _fetch(
    shard: Shard | ErrorCode, asked: OffsetFetchRequestGroup, *, require_stable: bool
) -> OffsetFetchResponseGroup:
    """Return one group's part of the answer."""
    if isinstance(shard, ErrorCode):
        return OffsetFetchResponseGroup(group_id=asked.group_id, error_code=shard)
    group = shard.groups.get(asked.group_id)
    if group is not None and group.state is GroupState.DEAD:
        group = None  # a Dead group is treated as if it did not exist
    topics: dict[str, list[OffsetFetchResponsePartition]] = {}
    for partition in _partitions(group, asked, require_stable=require_stable):
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


def _partitions(
    group: Group | None, asked: OffsetFetchRequestGroup, *, require_stable: bool
) -> tuple[TopicPartition, ...]:
    """Return the partitions that the answer has, without duplicates.

    These are the partitions that the request names. If `asked.topics` is None, the request names no
    partitions, and the answer has all partitions with an offset.
    """
    if asked.topics is None:
        if group is None:
            return ()
        offsets = group.offsets
        # With `commits_apply_on_append`, `latest_partitions` also returns the partitions whose
        # offset is written but not committed yet. Without this switch, both methods return the
        # same.
        return offsets.latest_partitions() if require_stable else offsets.partitions()
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
    """Return a partition's part of the answer: its offset, or -1 if it has none.

    A stable fetch of a partition with an unfinished commit gets an error instead.
    """
    index = partition.partition
    if group is None:
        return OffsetFetchResponsePartition(partition_index=index)
    if require_stable and group.offsets.is_unstable(partition):
        return OffsetFetchResponsePartition(
            partition_index=index, error_code=ErrorCode.UNSTABLE_OFFSET_COMMIT
        )
    offsets = group.offsets
    # `latest` returns another offset than `get` only with `commits_apply_on_append`. Then the
    # answer is held until this offset is committed.
    value = offsets.latest(partition) if require_stable else offsets.get(partition)
    if value is None:
        return OffsetFetchResponsePartition(partition_index=index)
    return OffsetFetchResponsePartition(
        partition_index=index,
        committed_offset=value.offset,
        committed_leader_epoch=value.leader_epoch,
        metadata=value.metadata,
    )
