"""OffsetCommit (8), v2 to v9: a member, a simple consumer or an admin tool stores offsets.

Fencing is by generation only: nobody checks that the member owns the partition, and an offset
may go backwards. v2 to v4 may carry a retention.
Source: Kafka `GroupCoordinator.handleCommitOffsets`, `doCommitOffsets`,
`GroupMetadataManager.storeOffsets`; BEHAVIOUR 2.6, 4.10.
"""

from coordinator.commit_values import NO_EXPIRE_TIMESTAMP, partitions_of, values_to_store
from coordinator.delayed import restart_session_timer
from coordinator.errors import offset_append_error
from coordinator.group import Group
from coordinator.offsets import CommittedOffset
from coordinator.shard import Shard
from coordinator.states import GroupState
from coordinator.store import offset_record
from coordinator.turn import OffsetsAppend, Turn
from coordinator.validation import check_offset_commit
from protocol.effects import AppendCompleted
from protocol.errors import ErrorCode, SimulationError
from protocol.ids import RequestId, TopicPartition
from protocol.offset_messages import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from protocol.trace import TraceEvent, TraceKind

RETENTION_VERSIONS = range(2, 5)
"""The versions whose retention time sets an explicit expiry; -1 sets none."""


def handle_offset_commit(
    turn: Turn,
    shard: Shard | ErrorCode,
    request_id: RequestId,
    request: OffsetCommitRequest,
    api_version: int,
) -> None:
    """Answer an OffsetCommit, or park it until the log has it. `shard` is what the gate said."""
    if not any(topic.partitions for topic in request.topics):
        turn.reply(request_id, OffsetCommitResponse())
        return
    if isinstance(shard, ErrorCode):
        error = shard
    else:
        error = _store(turn, shard, request_id, request, api_version)
    if error is not ErrorCode.NONE:
        turn.reply(request_id, _response(dict.fromkeys(partitions_of(request.topics), error)))


def offsets_stored(turn: Turn, append: OffsetsAppend, completed: AppendCompleted) -> None:
    """Make the commit visible, or drop it, and answer its request.

    The answer goes out even if the group was unloaded meanwhile: the log has the commit.

    Raises: SimulationError if an append is acknowledged without an offset.
    """
    group = append.group
    is_dead = group.state is GroupState.DEAD
    error = offset_append_error(completed.error, turn.java)
    for partition, value in append.values.items():
        if error is ErrorCode.NONE:
            if completed.base_offset is None:
                raise SimulationError(f"append {completed.append_id} acknowledged without offset")
            if not is_dead:
                group.offsets.append_succeeded(
                    partition, CommittedOffset(completed.base_offset, value)
                )
            turn.trace(
                TraceEvent(
                    kind=TraceKind.COMMIT_STORED,
                    group=group.group_id,
                    member=append.member_id,
                    partition=str(partition),
                    generation=append.generation_id,
                    offset=value.offset,
                    correlation_id=completed.append_id,
                )
            )
        elif not is_dead:
            group.offsets.append_failed(partition, value)
    turn.reply(
        append.request_id,
        _response(
            {
                partition: ErrorCode.OFFSET_METADATA_TOO_LARGE if too_large else error
                for partition, too_large in append.is_too_large.items()
            }
        ),
    )


def _store(
    turn: Turn,
    shard: Shard,
    request_id: RequestId,
    request: OffsetCommitRequest,
    api_version: int,
) -> ErrorCode:
    """Append the commit and return NONE, or return the error of every partition."""
    generation_id = request.generation_id_or_member_epoch
    group = shard.groups.get(request.group_id)
    if group is None:
        if generation_id >= 0:
            return ErrorCode.ILLEGAL_GENERATION
        # Someone stores offsets here without being in a group: a simple group.
        group = shard.create_group(request.group_id, turn.now_us)
    error = check_offset_commit(
        group,
        generation_id=generation_id,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        guards=turn.guards,
    )
    if error is not ErrorCode.NONE:
        return error
    match group.state:
        case GroupState.EMPTY:
            pass
        case GroupState.STABLE | GroupState.PREPARING_REBALANCE:
            # While a rebalance is prepared members still commit what they are about to lose.
            restart_session_timer(turn, group, group.members[request.member_id])
        case GroupState.COMPLETING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        case GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
    _append(turn, group, request_id, request, api_version)
    return ErrorCode.NONE


def _append(
    turn: Turn,
    group: Group,
    request_id: RequestId,
    request: OffsetCommitRequest,
    api_version: int,
) -> None:
    values, too_large = values_to_store(
        turn,
        request.topics,
        expire_timestamp_ms=_expire_timestamp_ms(turn, request, api_version),
    )
    if not values:
        turn.reply(
            request_id, _response(dict.fromkeys(too_large, ErrorCode.OFFSET_METADATA_TOO_LARGE))
        )
        return
    now_ms, versions = turn.now_ms, turn.versions
    records = []
    for partition, value in values.items():
        group.offsets.prepare(partition, value)
        records.append(offset_record(group.group_id, partition, value, now_ms, versions))
    turn.append(
        group,
        tuple(records),
        OffsetsAppend(
            group=group,
            member_id=request.member_id,
            generation_id=request.generation_id_or_member_epoch,
            request_id=request_id,
            values=values,
            is_too_large=too_large,
        ),
    )


def _expire_timestamp_ms(turn: Turn, request: OffsetCommitRequest, api_version: int) -> int:
    if api_version in RETENTION_VERSIONS and request.retention_time_ms != -1:
        return turn.now_ms + request.retention_time_ms
    return NO_EXPIRE_TIMESTAMP


def _response(errors: dict[TopicPartition, ErrorCode]) -> OffsetCommitResponse:
    """Return the answer with one entry for each topic and partition, in the order of `errors`."""
    topics: dict[str, list[OffsetCommitResponsePartition]] = {}
    for (topic, index), error in errors.items():
        topics.setdefault(topic, []).append(
            OffsetCommitResponsePartition(partition_index=index, error_code=error)
        )
    return OffsetCommitResponse(
        topics=tuple(
            OffsetCommitResponseTopic(name=name, partitions=tuple(partitions))
            for name, partitions in topics.items()
        )
    )
