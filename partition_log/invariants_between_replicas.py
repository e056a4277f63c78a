"""Invariants between two replicas of one partition, and between a leader and an acknowledgement.

They hold at every moment between two inputs, as long as both replicas agree on the leader epoch.
The docstring of each check states what holds. If it does not hold, the check raises
InvariantViolation with the evidence. `invariants` has the checks of one replica, which a broker
makes by itself. The checks here need to see several brokers, as a run in virtual time does.
"""

from partition_log.log import PartitionLog
from partition_log.replica import Partition
from protocol.errors import InvariantViolation
from protocol.messages.log import PartitionData
from protocol.records.batch import RecordBatch


def check_in_sync_follower(leader: Partition, follower: Partition) -> None:
    """A member of the ISR has every record below its leader's high watermark.

    Shape of the arguments: `follower` follows `leader` in the same leader epoch, is in the
    committed ISR, and runs in the broker epoch that the leader knows. A restarted broker has a new
    broker epoch, and may have lost records; the leader may not have heard of this yet.
    Source: Kafka Partition.maybeIncrementLeaderHW, KIP-497.
    """
    if follower.log_end_offset < leader.high_watermark:
        raise InvariantViolation(
            "an in-sync replica has what is committed",
            f"{leader.topic_partition}: the high watermark of leader {leader.broker_id} in epoch "
            f"{leader.leader_epoch} is {leader.high_watermark}, and the log of "
            f"{follower.broker_id}, of its ISR {leader.isr}, ends at "
            f"{follower.log_end_offset}",
        )


def check_known_end(leader: Partition, follower: Partition) -> None:
    """A follower's log does not end before the offset that its leader knows as its end.

    Shape of the arguments: the last Fetch of `follower` that `leader` knows has the present broker
    epoch of `follower`. `follower` has not heard of a later leader epoch, because a later leader
    may make it truncate its log. It need not have heard of this leader's epoch yet.
    """
    known_end = leader.follower_log_end_offset(follower.broker_id)
    if follower.log_end_offset < known_end:
        raise InvariantViolation(
            "a follower has what its leader knows it to have",
            f"{leader.topic_partition}: leader {leader.broker_id} in epoch {leader.leader_epoch} "
            f"takes the log of {follower.broker_id} to end at {known_end}; it ends at "
            f"{follower.log_end_offset}, in epoch {follower.leader_epoch}",
        )


def check_acknowledged(
    partition: Partition,
    batch: RecordBatch,
    *,
    base_offset: int,
    needs_all: bool,
    is_alone: bool,
) -> None:
    """A batch that was acknowledged is in the leader's log.

    If it was sent with acks=all, it is below the high watermark.

    Called when the answer is sent. `base_offset` is the offset of the batch in the answer.
    `needs_all`: the batch was sent with acks=all. `is_alone`: the request has no other batch, so
    the batch was acknowledged just now. Otherwise the answer may have waited for other partitions.
    Meanwhile another leader may have removed this batch, and this leader may be elected again.
    Source: Kafka Partition.checkEnoughReplicasReachOffset.
    """
    log = partition.log
    if not partition.is_leader or log.is_compacted:
        return  # another broker leads by now, or a cleaning may have removed the batch
    end_offset = base_offset + batch.last_offset_delta + 1
    stored = _batch_at(log, base_offset)
    if stored is None or not _is_same(stored, batch, partition.uses_log_append_time):
        if is_alone:
            raise InvariantViolation(
                "an acknowledged batch is in the log",
                f"{log.topic_partition}: the batch of producer {batch.producer_id} with sequence "
                f"{batch.base_sequence} was acknowledged at {base_offset} to {end_offset - 1}; the "
                f"log ends at {log.log_end_offset} and has there "
                f"{'nothing' if stored is None else _identity(stored)}",
            )
        return  # another leader has removed the batch meanwhile
    # The high watermark of a leader that was elected after the acknowledgement may still be lower.
    in_this_epoch = stored.partition_leader_epoch == partition.leader_epoch
    if needs_all and log.high_watermark < end_offset and (is_alone or in_this_epoch):
        raise InvariantViolation(
            "an acknowledgement of all replicas waits for the high watermark",
            f"{log.topic_partition}: a batch was acknowledged up to {end_offset - 1}, and the high "
            f"watermark of leader {partition.broker_id} is {log.high_watermark}",
        )


def check_consumed(partition: Partition, data: PartitionData, *, read_committed: bool) -> None:
    """A consumer gets no record above the high watermark, and the answer names that offset.

    With isolation.level=read_committed no record is above the last stable offset: the high
    watermark, or the first offset of the oldest open transaction if that is lower.

    Shape of the arguments: `data` has no error. Called when the answer is sent. The log has not
    changed since `data` was read from it.
    Source: Kafka Partition.readRecords, UnifiedLog.fetchLastStableOffsetMetadata.
    """
    log = partition.log
    if data.diverging_epoch is not None or data.leader_epoch != partition.leader_epoch:
        return
    stable_offset: int = log.high_watermark
    if read_committed:
        unstable = log.producers.first_unstable_offset
        stable_offset = stable_offset if unstable is None else min(stable_offset, unstable)
    if data.records and data.records[-1].next_offset > stable_offset:
        raise InvariantViolation(
            "a consumer reads what is committed",
            f"{log.topic_partition}: records up to {data.records[-1].last_offset} go to a "
            f"consumer, the {'last stable offset' if read_committed else 'high watermark'} of "
            f"leader {partition.broker_id} is {stable_offset}",
        )
    if data.high_watermark != log.high_watermark or (
        read_committed and data.last_stable_offset != stable_offset
    ):
        raise InvariantViolation(
            "a consumer is told the high watermark and the last stable offset",
            f"{log.topic_partition}: {data.high_watermark} and {data.last_stable_offset} are told, "
            f"leader {partition.broker_id} has {log.high_watermark} and {stable_offset}",
        )


def check_same_batches(log: PartitionLog, other: PartitionLog, up_to: int) -> None:
    """The logs of a leader and a follower have the same batches below `up_to`.

    `log` is the leader's log, `other` the follower's. Neither ends before `up_to`.
    Each broker cleans its own replica of a compacted log. So one log may lack batches that the
    other has, and batches at the same offset need only have the same leader epoch.
    Source: Kafka's replication protocol, KIP-101 (log matching).
    """
    # `read` gets a limit of 2**62 bytes, which no log has.
    ours = {
        batch.base_offset: batch for batch in log.read(log.log_start_offset, 2**62, up_to=up_to)
    }
    theirs = other.read(other.log_start_offset, 2**62, up_to=up_to)
    is_compacted = log.is_compacted
    # It suffices to look at each batch of `other`. If the log is not compacted, these batches have
    # every offset below `up_to`.
    for batch in theirs:
        same = ours.get(batch.base_offset)
        if same is None:
            # Legal: a cleaning has removed the batch, or this log begins after it.
            if is_compacted or batch.base_offset < log.log_start_offset:
                continue
        elif same is batch or (
            same.partition_leader_epoch == batch.partition_leader_epoch
            and (is_compacted or same.crc == batch.crc)
        ):
            continue
        expected = "no batch" if same is None else _identity(same)
        raise InvariantViolation(
            "in-sync replicas have the same batches",
            f"{log.topic_partition} at {batch.base_offset}: the leader has {expected}; its "
            f"follower has {_identity(batch)}",
        )


def _batch_at(log: PartitionLog, offset: int) -> RecordBatch | None:
    """Return the batch that contains `offset`, None if the log has none."""
    if not log.log_start_offset <= offset < log.log_end_offset:
        return None
    # With a limit of 0 bytes, `read` returns exactly one batch.
    (batch,) = log.read(offset, 0, up_to=log.log_end_offset)
    return batch


def _is_same(stored: RecordBatch, sent: RecordBatch, uses_log_append_time: bool) -> bool:
    """Return True if a batch of the log has the records of a batch that was sent.

    With LogAppendTime the leader has changed the timestamps, and so the CRC. It may also have
    corrected the header of a real client's batch.
    """
    was_corrected = sent.kafka is not None and (
        (stored.kafka, stored.max_timestamp_ms) != (sent.kafka, sent.max_timestamp_ms)
    )
    return (
        stored.last_offset_delta == sent.last_offset_delta
        and stored.producer_id == sent.producer_id
        and stored.base_sequence == sent.base_sequence
        and (stored.crc == sent.crc or uses_log_append_time or was_corrected)
    )


def _identity(batch: RecordBatch) -> str:
    return (
        f"{batch.last_offset_delta + 1} records of epoch {batch.partition_leader_epoch}, producer "
        f"{batch.producer_id} and sequence {batch.base_sequence}, CRC {batch.crc}"
    )
