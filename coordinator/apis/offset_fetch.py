"""OffsetFetch (9), v1 to v9: returns the committed offsets of groups. Any client may ask.

v7 adds require_stable, which refuses offsets with an unfinished commit; v8 adds several groups.

By default the answer comes from memory, without the log. So an old coordinator that is cut off from
the cluster answers with stale offsets. The switch `commits_apply_on_append` (of the Java
coordinator) changes this for a stable fetch, that is, a fetch with require_stable. A stable fetch
then returns the offsets written last, and each group's part of the answer waits until the records
of these offsets are committed.

- Unstable offset: an offset with an unfinished commit. With the switch, only an offset in an open
  transaction is unstable.
- Turn: the handling of one input; replies go through it. `turn.java` has the switches.
- Shard: the groups of one partition of `__consumer_offsets`, while this broker coordinates them.
- Held: of a part of an answer, waiting for the high watermark (below it, every in-sync replica has
  the records: they are committed).
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


def handle_offset_fetch(
    turn: Turn,
    gate: Callable[[str], Shard | ErrorCode],
    request_id: RequestId,
    request: OffsetFetchRequest,
    api_version: int,
) -> None:
    """Answer an OffsetFetch.

    `gate` returns the shard of a group, or the error that says why this broker does not serve it.
    As in Kafka, a request without groups gets no answer (docs/kafka/BEHAVIOUR.md 0.1).
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
    """Read every group now, and answer once all records that were read are committed."""
    fetch = ParkedFetch(request_id=request_id, groups=[])
    for index, asked in enumerate(request.groups):
        shard = gate(asked.group_id)
        group = _fetch(shard, asked, require_stable=True)
        if isinstance(shard, ErrorCode) or shard.above_high_watermark.is_empty:
            fetch.groups.append(group)
        else:
            # None keeps the group's place in the answer; it is replaced when the high watermark
            # passes.
            fetch.groups.append(None)
            hold(turn, shard, HeldFetch(fetch=fetch, index=index, group=group))
    answer_if_complete(turn, fetch)


def _fetch(
    shard: Shard | ErrorCode, asked: OffsetFetchRequestGroup, *, require_stable: bool
) -> OffsetFetchResponseGroup:
    """Return the answer's part for one group."""
    if isinstance(shard, ErrorCode):
        return OffsetFetchResponseGroup(group_id=asked.group_id, error_code=shard)
    group = shard.groups.get(asked.group_id)
    if group is not None and group.state is GroupState.DEAD:
        group = None  # answered as if the group did not exist
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
    """Return the partitions of the answer, each once.

    If `asked.topics` is None, the request names no topics, and the answer has all partitions with
    an offset. Otherwise the answer has the partitions that the request names.
    """
    if asked.topics is None:
        if group is None:
            return ()
        offsets = group.offsets
        # "Latest" includes offsets that are written to the log and not committed yet.
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
    """Return the offset of a partition, -1 without an offset; or an error if it is unstable."""
    index = partition.partition
    if group is None:
        return OffsetFetchResponsePartition(partition_index=index)
    if require_stable and group.offsets.is_unstable(partition):
        return OffsetFetchResponsePartition(
            partition_index=index, error_code=ErrorCode.UNSTABLE_OFFSET_COMMIT
        )
    offsets = group.offsets
    # Only with `commits_apply_on_append` can `latest` differ from `get`. The answer then waits
    # until the offset is committed.
    value = offsets.latest(partition) if require_stable else offsets.get(partition)
    if value is None:
        return OffsetFetchResponsePartition(partition_index=index)
    return OffsetFetchResponsePartition(
        partition_index=index,
        committed_offset=value.offset,
        committed_leader_epoch=value.leader_epoch,
        metadata=value.metadata,
    )
