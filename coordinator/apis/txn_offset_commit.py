"""TxnOffsetCommit (28), v0 to v4: stores offsets as part of a producer's transaction.

A commit takes four steps, each with its function here:
1. `handle_txn_offset_commit`: the broker verifies the transaction (KIP-890). It asks the
   transaction coordinator whether this partition of `__consumer_offsets` is part of the
   transaction. Without the verification, a request that arrives late could begin a transaction that
   never ends.
2. `transaction_verified`: the offsets are appended to the log. In memory they are pending.
3. `transactional_offsets_stored`: the client is answered. The offsets stay pending. So an
   OffsetFetch still returns the committed offsets from before the transaction.
4. `complete_transaction`: the producer has ended the transaction, and the marker that says so is in
   the log. If the transaction commits, the pending offsets become the committed ones. If it aborts,
   they are dropped.

Unlike an OffsetCommit, the request does not restart the member's session.

Source: Kafka `GroupCoordinator.handleTxnCommitOffsets`, `doTxnCommitOffsets`,
`GroupMetadataManager.storeOffsets`, `handleTxnCompletion`; docs/kafka/BEHAVIOUR.md 2.8.
"""

from coordinator.errors import offset_append_error
from coordinator.shard import Committer, Shard
from coordinator.states import GroupState
from coordinator.storage.commit_values import partitions_of, values_to_store
from coordinator.storage.offsets import CommittedOffset
from coordinator.storage.store import offset_record
from coordinator.turn import PendingVerification, TransactionalOffsetsAppend, Turn
from coordinator.validation import check_offset_commit
from protocol.effects import AppendCompleted, TransactionVerified
from protocol.errors import ErrorCode, SimulationError
from protocol.ids import RequestId, TopicPartition
from protocol.messages.transaction import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from protocol.trace import TraceEvent, TraceKind

LOAD_IN_PROGRESS_SINCE_VERSION = 2
"""Clients below this version do not handle COORDINATOR_LOAD_IN_PROGRESS in this API."""
ABORTABLE_SINCE_VERSION = 4
"""Clients below this version do not handle TRANSACTION_ABORTABLE."""


def handle_txn_offset_commit(
    turn: Turn,
    shard: Shard | ErrorCode,
    request_id: RequestId,
    request: TxnOffsetCommitRequest,
    api_version: int,
) -> None:
    """Begin the verification of a TxnOffsetCommit's transaction.

    `shard` holds the groups of one partition of `__consumer_offsets`. If this broker does not serve
    the group, `shard` is the error that says why.
    """
    # In Kafka, a request without partitions is answered before it reaches the coordinator
    # (BEHAVIOUR 2.0).
    if not any(topic.partitions for topic in request.topics):
        turn.reply(request_id, TxnOffsetCommitResponse())
        return
    if isinstance(shard, ErrorCode):
        error = shard
        is_old_client = api_version < LOAD_IN_PROGRESS_SINCE_VERSION
        if is_old_client and error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            error = ErrorCode.COORDINATOR_NOT_AVAILABLE
        _refuse(turn, request_id, request, error)
        return
    group = shard.groups.get(request.group_id)
    if group is None:
        # Even if the verification or the append fails later, the new group stays, as in Kafka.
        group = shard.create_group(request.group_id, turn.now_us)
    turn.verify(
        PendingVerification(group=group, shard=shard, request_id=request_id, request=request),
        tells_abortable=api_version >= ABORTABLE_SINCE_VERSION,
    )


def transaction_verified(
    turn: Turn, pending: PendingVerification, verified: TransactionVerified
) -> None:
    """Append the offsets of a verified transaction, or answer with the error."""
    group, request = pending.group, pending.request
    # Nothing was appended yet. But Kafka translates an error of the verification with the same
    # table as an error of the append.
    error = offset_append_error(verified.error, turn.java)
    # The member and the generation are checked after the verification, because the verification
    # takes time: meanwhile the generation may have ended, or the group may have been unloaded (then
    # it is Dead).
    if error is ErrorCode.NONE:
        error = check_offset_commit(
            group,
            generation_id=request.generation_id,
            member_id=request.member_id,
            group_instance_id=request.group_instance_id,
            guards=turn.guards,
            is_transactional=True,
        )
    if error is ErrorCode.NONE:
        _append(turn, pending, verified)
    else:
        _refuse(turn, pending.request_id, request, error)


def transactional_offsets_stored(
    turn: Turn, append: TransactionalOffsetsAppend, completed: AppendCompleted
) -> None:
    """Answer a TxnOffsetCommit whose append has completed.

    After a successful append the offsets stay pending. After a failed append they are removed from
    memory, with one exception for the Java coordinator (see below).

    Raises: SimulationError if an append is acknowledged without an offset.
    """
    group = append.group
    is_dead = group.state is GroupState.DEAD
    error = offset_append_error(completed.error, turn.java)
    if error is ErrorCode.NONE and completed.base_offset is None:
        raise SimulationError(f"append {completed.append_id} acknowledged without offset")
    # There are three cases:
    # - The log never had the offsets, so `base_offset` is None: they are removed from memory.
    # - The append was acknowledged: the offsets stay pending until their marker.
    # - The log has the offsets, but the append failed, for example by a timeout: Kafka's Scala
    #   coordinator removes them. In the Java coordinator they stay pending, because the high
    #   watermark may still pass them.
    # If the group is Dead, nothing is done: it is not in memory any more.
    may_stay_pending = error is ErrorCode.NONE or turn.java.commits_apply_on_append
    for partition, value in append.values.items():
        if not is_dead and completed.base_offset is not None and may_stay_pending:
            group.offsets.transactional_append_succeeded(
                append.producer_id, partition, CommittedOffset(completed.base_offset, value)
            )
        elif not is_dead:
            group.offsets.transactional_append_failed(append.producer_id, partition)
        if error is not ErrorCode.NONE:
            continue  # only an acknowledged commit is traced
        turn.trace(
            TraceEvent(
                kind=TraceKind.TXN_COMMIT_PENDING,
                group=group.group_id,
                member=append.member_id,
                partition=str(partition),
                generation=append.generation_id,
                offset=value.offset,
                correlation_id=completed.append_id,
                detail={"producer_id": append.producer_id},
            )
        )
    turn.reply(
        append.request_id,
        _response(
            {
                partition: ErrorCode.OFFSET_METADATA_TOO_LARGE if too_large else error
                for partition, too_large in append.is_too_large.items()
            }
        ),
    )


def complete_transaction(turn: Turn, shard: Shard, producer_id: int, *, is_commit: bool) -> None:
    """Commit or drop the pending offsets of a transaction, because its marker is in the log.

    Nothing is done if the transaction has no pending offsets in this partition.
    """
    for group, committer in shard.take_groups_of(producer_id):
        # The offsets may be gone, because their append failed or an administrator deleted them.
        if not group.offsets.has_transaction_of(producer_id):
            continue
        # `counted` has the offsets that are committed now. It is empty if the transaction aborts.
        counted = group.offsets.complete(producer_id, is_commit=is_commit)
        turn.trace(
            TraceEvent(
                kind=TraceKind.TRANSACTION_COMPLETED,
                group=group.group_id,
                detail={
                    "producer_id": producer_id,
                    "committed": is_commit,
                    "offsets": len(counted),
                },
            )
        )
        for partition, value in counted.items():
            turn.trace(
                TraceEvent(
                    kind=TraceKind.COMMIT_STORED,
                    group=group.group_id,
                    member=committer.member_id,
                    partition=str(partition),
                    generation=committer.generation_id,
                    offset=value.offset,
                    detail={"producer_id": producer_id},
                    cause_text=f"transaction of producer {producer_id}",
                )
            )


def _append(turn: Turn, pending: PendingVerification, verified: TransactionVerified) -> None:
    """Append the offsets of a verified request, and add them to the open transaction.

    Partitions whose metadata is too large are left out. `verified.guard` is a number that proves to
    the log that the transaction was verified.
    """
    group, request = pending.group, pending.request
    values, is_too_large = values_to_store(turn, request.topics)
    if not values:
        # Nothing can be stored, because the metadata of every partition is too large.
        errors = dict.fromkeys(is_too_large, ErrorCode.OFFSET_METADATA_TOO_LARGE)
        turn.reply(pending.request_id, _response(errors))
        return

    # The marker at the end of the transaction names the producer but no group. So the shard must
    # know which groups have offsets of this producer.
    committer = Committer(request.member_id, request.generation_id)
    pending.shard.add_producer(request.producer_id, group, committer)
    records = []
    for partition, value in values.items():
        group.offsets.prepare_transactional(request.producer_id, partition, value)
        records.append(offset_record(group.group_id, partition, value, turn.now_ms, turn.versions))
    turn.append_transactional(
        tuple(records),
        TransactionalOffsetsAppend(
            group=group,
            member_id=request.member_id,
            generation_id=request.generation_id,
            producer_id=request.producer_id,
            request_id=pending.request_id,
            values=values,
            is_too_large=is_too_large,
        ),
        producer_epoch=request.producer_epoch,
        verification_guard=verified.guard,
    )


def _refuse(
    turn: Turn, request_id: RequestId, request: TxnOffsetCommitRequest, error: ErrorCode
) -> None:
    """Answer with `error` for every partition of the request."""
    turn.reply(request_id, _response(dict.fromkeys(partitions_of(request.topics), error)))


def _response(errors: dict[TopicPartition, ErrorCode]) -> TxnOffsetCommitResponse:
    """Return the answer with one entry for each topic and partition, in the order of `errors`."""
    topics: dict[str, list[TxnOffsetCommitResponsePartition]] = {}
    for (topic, index), error in errors.items():
        topics.setdefault(topic, []).append(
            TxnOffsetCommitResponsePartition(partition_index=index, error_code=error)
        )
    return TxnOffsetCommitResponse(
        topics=tuple(
            TxnOffsetCommitResponseTopic(name=name, partitions=tuple(partitions))
            for name, partitions in topics.items()
        )
    )
