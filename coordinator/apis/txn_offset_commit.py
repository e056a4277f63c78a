"""TxnOffsetCommit (28), v0 to v4: stores offsets as part of a producer's transaction.

A commit takes four steps:
1. The broker verifies the transaction (KIP-890): it asks the transaction coordinator whether the
   offsets partition is part of the transaction. Without this step, a request that arrives late
   could begin a transaction that never ends.
2. The offsets are appended to the log. Until step 4 they are kept in memory as pending offsets of
   the transaction.
3. The client is answered. Readers still see the offsets from before.
4. The producer ends the transaction. The transaction coordinator has a marker written to the log, a
   record that ends the transaction. A commit marker makes the pending offsets the committed ones;
   an abort marker drops them.

- Turn: the handling of one input; replies, verifications and appends go through it. `turn.java` has
  switches for the ways in which Kafka's Java coordinator differs. `turn.guards` says which of
  Kafka's checks an experiment has switched off.
- Shard: the groups of one partition of `__consumer_offsets`, while this broker coordinates them.
- `append.is_too_large`: maps every partition of the request to True if the partition's metadata is
  too large to be stored; `append.values` has the other partitions.

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

    `shard`: the group's shard, or the error with which the request is refused.
    """
    # Kafka's API layer answers a request without partitions, and the coordinator does not see it
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
        # As in Kafka, the group stays even if the verification or the append fails.
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
    # Kafka translates an error of the verification like an error of the append.
    error = offset_append_error(verified.error, turn.java)
    # Member and generation are checked only now: during the verification the generation may have
    # ended, or the group may have been unloaded (it is Dead then).
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
    """Answer a TxnOffsetCommit whose append has completed; the offsets stay pending.

    Raises: SimulationError if an append is acknowledged without an offset.
    """
    group = append.group
    is_dead = group.state is GroupState.DEAD
    error = offset_append_error(completed.error, turn.java)
    if error is ErrorCode.NONE and completed.base_offset is None:
        raise SimulationError(f"append {completed.append_id} acknowledged without offset")
    # The offsets stay pending until their marker if both of these conditions hold. Otherwise they
    # are removed.
    # 1. The leader has written them. Then `base_offset` is known, even if the append failed later,
    #    for example by a timeout.
    # 2. The append was acknowledged. Kafka's Java coordinator does not require this, because the
    #    high watermark may still pass the record after a failure.
    # A Dead group is no longer in memory, so its offsets are not touched.
    may_stay_pending = error is ErrorCode.NONE or turn.java.commits_apply_on_append
    for partition, value in append.values.items():
        if not is_dead and completed.base_offset is not None and may_stay_pending:
            group.offsets.transactional_append_succeeded(
                append.producer_id, partition, CommittedOffset(completed.base_offset, value)
            )
        elif not is_dead:
            group.offsets.transactional_append_failed(append.producer_id, partition)
        if error is not ErrorCode.NONE:
            continue  # only an acknowledged commit gets the row TXN_COMMIT_PENDING
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
    """Make the pending offsets of a producer's transaction committed offsets, or drop them.

    Called when the transaction's marker is in the log. Does nothing if the transaction has no
    pending offsets in this partition.
    """
    for group, committer in shard.take_groups_of(producer_id):
        # A failed append or a deletion may have removed the offsets since the request.
        if not group.offsets.has_transaction_of(producer_id):
            continue
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

    Partitions whose metadata is too large are left out. `verified.guard` is a number by which the
    log knows that the transaction was verified. It has nothing to do with `turn.guards`.
    """
    group, request = pending.group, pending.request
    values, is_too_large = values_to_store(turn, request.topics)
    if not values:
        # Without a value to store, the metadata of every partition of the request is too large.
        errors = dict.fromkeys(is_too_large, ErrorCode.OFFSET_METADATA_TOO_LARGE)
        turn.reply(pending.request_id, _response(errors))
        return

    # The marker will name the producer, not the group. So the shard remembers the group by the
    # producer's id.
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
