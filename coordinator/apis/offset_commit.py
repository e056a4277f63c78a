"""OffsetCommit (8), v2 to v9: a member, a simple consumer or an admin tool stores offsets.

A simple consumer assigns partitions to itself, without joining a group. If a request does name a
member, the coordinator checks that the member is in the group and knows the current generation. The
coordinator does not check that the member owns the partitions. It also accepts an offset that is
lower than the committed offset. In v2 to v4 the client may say how long its offsets are kept.

`handle_offset_commit` appends the offsets to `__consumer_offsets`, and `offsets_stored` answers the
request when the append has completed. A switch decides from when on a fetch returns the offsets:

- By default a fetch returns them when the append is acknowledged, as in Kafka's Scala coordinator.
- With the switch `commits_apply_on_append`, a fetch with `require_stable` returns them immediately,
  as in Kafka's Java coordinator. The client that commits must still wait until the high watermark
  has passed the records, at most for offsets.commit.timeout.ms. After this time the client gets an
  error, although the log has the records. Such a commit is called late. Its offsets become the
  committed ones when the high watermark passes the records after all.

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
"""Versions in which the client may say how long its offsets are kept. A client that leaves this to
the broker's setting sends -1."""


def handle_offset_commit(
    turn: Turn,
    shard: Shard | ErrorCode,
    request_id: RequestId,
    request: OffsetCommitRequest,
    api_version: int,
) -> None:
    """Append the offsets of an OffsetCommit, or answer with an error if it fails a check.

    `shard` holds the groups of one partition of `__consumer_offsets`. If this broker does not serve
    the group, `shard` is the error that says why.
    """
    # In Kafka, a request without partitions is answered before it reaches the coordinator
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
    """Answer an OffsetCommit, because its append has completed.

    - The append was acknowledged: the offsets are now the committed ones.
    - The append failed, but `completed.base_offset` is not None: the log has the commit, but the
      commit was not acknowledged in time. With `commits_apply_on_append` the commit is late.
      Without this switch it is dropped.
    - The append failed, and `completed.base_offset` is None: the log does not have the commit, so
      it is dropped.

    `shard` is None if the partition was unloaded meanwhile. The client still gets its answer.

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
                # The high watermark has passed this commit, so it has passed every commit that is
                # earlier in the log. If an earlier commit is late, its offsets must become the
                # committed ones first. Normally `GroupCoordinator.log_moved` does this, but the
                # broker may not have called `log_moved` yet.
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
    """Commit the offsets of late commits whose records are below `high_watermark`."""
    for commit in shard.above_high_watermark.take_late(high_watermark):
        _committed(turn, commit)


def _committed(turn: Turn, commit: WrittenCommit) -> None:
    """Make the offsets of a commit the committed ones of its group, and trace them.

    If the group was deleted or unloaded meanwhile, it is Dead and keeps no offsets. The commit is
    still traced, because it is in the log.
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
        return  # the group was deleted or unloaded meanwhile, so it has nothing to forget
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
    """Append the commit and return NONE, or return the error with which to answer."""
    generation_id = request.generation_id_or_member_epoch
    group = shard.groups.get(request.group_id)
    if group is None:
        if generation_id >= 0:
            return ErrorCode.ILLEGAL_GENERATION
        # The client is no member. It only stores offsets, in a group without members.
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
            pass  # the request is not from a member, so there is no session to restart
        case GroupState.STABLE | GroupState.PREPARING_REBALANCE:
            # In a join phase members may still commit: it may be their last chance before another
            # member gets the partitions.
            member = group.members[request.member_id]
            restart_session(turn, group, member, Api.OFFSET_COMMIT)
        case GroupState.COMPLETING_REBALANCE:
            # The member is in the new generation, and waits for its assignment. It has no
            # partitions yet whose offsets it could commit.
            return ErrorCode.REBALANCE_IN_PROGRESS
        case GroupState.DEAD:
            # Not reached: `check_offset_commit` has refused the request. Kafka lists this state.
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
    """Append the offsets, except those with too large metadata.

    If no offset is left, the request is answered immediately.
    """
    values, too_large = values_to_store(
        turn,
        request.topics,
        expire_timestamp_ms=_expire_timestamp_ms(turn, request, api_version),
    )
    if not values:
        # The metadata of every partition is too large. `too_large` has all partitions as keys.
        turn.reply(
            request_id, _response(dict.fromkeys(too_large, ErrorCode.OFFSET_METADATA_TOO_LARGE))
        )
        return

    now_ms, versions = turn.now_ms, turn.versions
    # In the Scala coordinator, the offsets are pending from now until the append completes
    # (`prepare`). In the Java coordinator, a fetch with `require_stable` returns them from now on
    # (`write`). `write` is called only after `turn.append`, because it needs the append's id.
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
    """Return the time at which the offsets expire, if the client says how long they are kept.

    Otherwise return NO_EXPIRE_TIMESTAMP: the broker's setting applies.
    """
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
