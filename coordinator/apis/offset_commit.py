"""OffsetCommit (8), v2 to v9: a member, a simple consumer or an admin tool stores offsets.

A commit stores an offset for each partition: the position from which the group continues to read.
If the request names a member, the coordinator checks that the member is in the group, and that its
generation (the number of the group's rebalance) is the current one. It does not check that the
member owns the partition, and accepts an offset below the committed offset. v2 to v4 may carry a
retention time.

By default, as in Kafka's Scala coordinator, memory changes when the append is acknowledged; a
failed append changes nothing. With the switch `commits_apply_on_append`, as in Kafka's Java
coordinator, memory changes when the append is requested, before any follower has the record. The
answer still waits until the high watermark passes the record: every in-sync replica has it then.
The wait takes at most offsets.commit.timeout.ms. After that time the client gets an error, although
the log has the record. Such a commit is called late. It becomes the committed offset once the high
watermark passes it.

- Turn: the handling of one input; replies and appends go through it. `turn.java` has the switches,
  `turn.guards` Kafka's checks that an experiment can switch off.
- Shard: the groups of one partition of `__consumer_offsets`, while this broker coordinates them.
- `OffsetsAppend`: what to do when the append completes (`offsets_stored`). Its `is_too_large` maps
  every partition of the request to True if the partition's metadata is too large to be stored.
Source: Kafka `GroupCoordinator.handleCommitOffsets`, `doCommitOffsets`,
`GroupMetadataManager.storeOffsets`, Java `CoordinatorContext.append`, `OffsetMetadataManager`;
docs/kafka/BEHAVIOUR.md 2.6, 4.10, 5.3.
"""

from coordinator.delayed import restart_session
from coordinator.errors import offset_append_error
from coordinator.group import Group
from coordinator.shard import Shard
from coordinator.states import GroupState
from coordinator.storage.above_high_watermark import WrittenCommit
from coordinator.storage.commit_values import partitions_of, values_to_store
from coordinator.storage.offsets import CommittedOffset
from coordinator.storage.store import offset_record
from coordinator.turn import OffsetsAppend, Turn
from coordinator.validation import check_offset_commit
from protocol.api import Api
from protocol.effects import AppendCompleted
from protocol.errors import ErrorCode, SimulationError
from protocol.ids import RequestId, TopicPartition
from protocol.messages.offset import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from protocol.records.offsets import NO_EXPIRE_TIMESTAMP
from protocol.trace import TraceEvent, TraceKind

RETENTION_VERSIONS = range(2, 5)
"""Versions in which the client sends the time for which its offsets are kept; -1 means that the
broker's setting applies."""


def handle_offset_commit(
    turn: Turn,
    shard: Shard | ErrorCode,
    request_id: RequestId,
    request: OffsetCommitRequest,
    api_version: int,
) -> None:
    """Answer an OffsetCommit immediately if it fails a check, else when its append has completed.

    `shard`: the group's shard, or the error why it is not served here.
    """
    # Kafka's API layer answers a request without partitions, and the coordinator does not see it
    # (BEHAVIOUR 2.0).
    if not any(topic.partitions for topic in request.topics):
        turn.reply(request_id, OffsetCommitResponse())
        return
    if isinstance(shard, ErrorCode):
        error = shard
    else:
        error = _store(turn, shard, request_id, request, api_version)
    if error is not ErrorCode.NONE:
        turn.reply(request_id, _response(dict.fromkeys(partitions_of(request.topics), error)))


def offsets_stored(
    turn: Turn, shard: Shard | None, append: OffsetsAppend, completed: AppendCompleted
) -> None:
    """Continue after the append of a commit: update memory, and answer the request.

    The commit becomes the committed offset or a late commit, or it is dropped.
    `shard` is the group's shard. It is None if the partition was unloaded meanwhile; the client
    still gets an answer. `completed.base_offset` is the offset of the commit's record in the log,
    None if the log never had the record. If it is not None and there is an error, the log has the
    commit, but the append was not acknowledged in time.

    Raises: SimulationError if an append is acknowledged without an offset.
    """
    error = offset_append_error(completed.error, turn.java)
    if completed.base_offset is None:
        if error is ErrorCode.NONE:
            raise SimulationError(f"append {completed.append_id} acknowledged without offset")
        _drop(turn, append, completed)
    else:
        commit = WrittenCommit(
            group=append.group,
            member_id=append.member_id,
            generation_id=append.generation_id,
            append_id=completed.append_id,
            base_offset=completed.base_offset,
            values=append.values,
        )
        if error is ErrorCode.NONE:
            if shard is not None:
                # The append is acknowledged, so the high watermark has passed this batch and all
                # batches before it. Late commits in those batches become committed offsets first,
                # because they are earlier in the log. Normally `log_moved` handles late commits,
                # but the broker may not have called it yet.
                late_commits_committed(turn, shard, completed.base_offset)
            _committed(turn, commit)
        elif shard is not None and turn.java.commits_apply_on_append:
            shard.above_high_watermark.keep_late(commit)
        else:
            _drop(turn, append, completed)
    turn.reply(
        append.request_id,
        _response(
            {
                partition: ErrorCode.OFFSET_METADATA_TOO_LARGE if too_large else error
                for partition, too_large in append.is_too_large.items()
            }
        ),
    )


def late_commits_committed(turn: Turn, shard: Shard, high_watermark: int) -> None:
    """Make the late commits whose records are below `high_watermark` the committed offsets."""
    for commit in shard.above_high_watermark.take_late(high_watermark):
        _committed(turn, commit)


def _committed(turn: Turn, commit: WrittenCommit) -> None:
    """Make a commit in the log the committed offsets of its group, and trace it.

    If the group was deleted or unloaded since, it is Dead. Then only the trace row is written,
    because the log has the commit all the same.
    """
    group, offsets = commit.group, commit.group.offsets
    for partition, value in commit.values.items():
        if group.state is not GroupState.DEAD:
            if turn.java.commits_apply_on_append:
                offsets.write_committed(partition, commit.append_id, commit.base_offset)
            else:
                offsets.append_succeeded(partition, CommittedOffset(commit.base_offset, value))
        turn.trace(
            TraceEvent(
                kind=TraceKind.COMMIT_STORED,
                group=group.group_id,
                member=commit.member_id,
                partition=str(partition),
                generation=commit.generation_id,
                offset=value.offset,
                correlation_id=commit.append_id,
            )
        )


def _drop(turn: Turn, append: OffsetsAppend, completed: AppendCompleted) -> None:
    """Forget a commit whose append has failed."""
    if append.group.state is GroupState.DEAD:
        return  # deleted or unloaded since: nobody will read its offsets
    for partition, value in append.values.items():
        if turn.java.commits_apply_on_append:
            append.group.offsets.write_failed(partition, completed.append_id)
        else:
            append.group.offsets.append_failed(partition, value)


def _store(
    turn: Turn,
    shard: Shard,
    request_id: RequestId,
    request: OffsetCommitRequest,
    api_version: int,
) -> ErrorCode:
    """Append the commit and return NONE, or return the error that every partition gets."""
    generation_id = request.generation_id_or_member_epoch
    group = shard.groups.get(request.group_id)
    if group is None:
        if generation_id >= 0:
            return ErrorCode.ILLEGAL_GENERATION
        # A simple group: its consumers assign partitions by hand and only store offsets here.
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
            pass  # no member has sent the request, so there is no session to restart
        case GroupState.STABLE | GroupState.PREPARING_REBALANCE:
            # In a join phase members may still commit, because they may be about to lose the
            # partitions.
            member = group.members[request.member_id]
            restart_session(turn, group, member, Api.OFFSET_COMMIT)
        case GroupState.COMPLETING_REBALANCE:
            # The member is in the new generation, and waits for its assignment. It has no
            # partitions yet whose offsets it could commit.
            return ErrorCode.REBALANCE_IN_PROGRESS
        case GroupState.DEAD:
            # Refused by check_offset_commit already; listed here as in Kafka.
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
    """Append the offsets whose metadata is not too large; if no offset is left, answer now."""
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
    # In the Scala coordinator the offset is pending from here until the append completes. In the
    # Java coordinator the offset is written as soon as the append is requested: stable fetches
    # return it. `write` needs the append's id, so it is called after the request of the append.
    applies_at_once = turn.java.commits_apply_on_append
    records = []
    for partition, value in values.items():
        if not applies_at_once:
            group.offsets.prepare(partition, value)
        records.append(offset_record(group.group_id, partition, value, now_ms, versions))
    append_id = turn.append(
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
        required_acks=turn.acks_of_commits,
    )
    if applies_at_once:
        for partition, value in values.items():
            group.offsets.write(partition, append_id, value)


def _expire_timestamp_ms(turn: Turn, request: OffsetCommitRequest, api_version: int) -> int:
    """Return the time at which the offsets expire, if the request limits their retention."""
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
