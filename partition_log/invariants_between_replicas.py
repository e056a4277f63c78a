"""Invariants between two replicas of one partition, and between a leader and its answers.

The docstring of each check says what must be true, and for which arguments the check may be called.
Otherwise the check raises InvariantViolation with evidence.

The checks in the module `invariants` need only one broker. The checks here must look into several
brokers at the same moment. This is possible only in virtual time, where all brokers run in one
process.
"""

from partition_log.log import PartitionLog
from partition_log.replica import Partition
from protocol.errors import InvariantViolation
from protocol.messages.log import PartitionData
from protocol.records.batch import RecordBatch


def check_in_sync_follower(leader: Partition, follower: Partition) -> None:
    """A member of the ISR has every record below its leader's high watermark.

    The check may be called only if `follower` follows `leader` in the same leader epoch, is in the
    ISR that the controller has stored, and has not restarted since the last Fetch that the leader
    knows. After a restart the follower may have lost records, and the leader may not know this yet.

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
    """A follower's log does not end before the offset at which its leader believes that it ends.

    The check may be called only if `follower` has not restarted since the last Fetch that `leader`
    knows, and does not know a later leader epoch: a later leader may have made the follower
    truncate its log. The follower need not know the leader epoch of `leader` yet.
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
    """A batch that is acknowledged is in the leader's log. With acks=all, it is also committed.

    The check is called when the answer is sent. `base_offset` is the batch's offset in the answer,
    and `needs_all` is True for acks=all.

    `is_alone` is True if the request has no other batch. If the request has other batches, the
    answer may have waited for their partitions. During this wait another leader may have removed
    this batch, and this broker may lead again. So less is checked if `is_alone` is False.

    Source: Kafka Partition.checkEnoughReplicasReachOffset.
    """
    log = partition.log
    if not partition.is_leader or log.is_compacted:
        return  # another broker leads by now, or a compaction may have removed the batch
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
    # If this leader was elected only after the acknowledgement, its high watermark may still be
    # lower.
    in_this_epoch = stored.partition_leader_epoch == partition.leader_epoch
    if needs_all and log.high_watermark < end_offset and (is_alone or in_this_epoch):
        raise InvariantViolation(
            "an acknowledgement of all replicas waits for the high watermark",
            f"{log.topic_partition}: a batch was acknowledged up to {end_offset - 1}, and the high "
            f"watermark of leader {partition.broker_id} is {log.high_watermark}",
        )


def check_out_of_order(partition: Partition, batch: RecordBatch) -> None:
    """A batch that is refused with OUT_OF_ORDER_SEQUENCE_NUMBER is none that the log remembers.

    A log remembers the last five batches of each producer. If the producer sends one of them again,
    the batch is a duplicate, and the answer is the offset that the batch has in the log.

    The check is called when the answer is sent, but only if the log has not changed since the
    append was refused.

    Source: Kafka UnifiedLog.analyzeAndValidateProducerState, ProducerStateEntry.findDuplicateBatch.
    """
    if not partition.is_leader:
        return
    epoch, remembered = partition.log.producers.last_batches().get(batch.producer_id, (-1, ()))
    for known in remembered if epoch == batch.producer_epoch else ():
        if (
            known.first_sequence == batch.base_sequence
            and known.last_offset - known.first_offset == batch.last_offset_delta
        ):
            raise InvariantViolation(
                "a repeated batch is a duplicate",
                f"{partition.topic_partition}: leader {partition.broker_id} refuses the batch of "
                f"producer {batch.producer_id} in epoch {epoch} with sequence "
                f"{batch.base_sequence} as out of order, and its log has the batch at "
                f"{known.first_offset} to {known.last_offset}",
            )


def check_consumed(partition: Partition, data: PartitionData, *, read_committed: bool) -> None:
    """A consumer gets no record above the high watermark, and learns the right high watermark.

    With isolation.level=read_committed, the last stable offset takes the place of the high
    watermark. The last stable offset is the offset at which the oldest open transaction begins, but
    at most the high watermark.

    The check is called when the answer is sent, but only if `data` has no error and the log has not
    changed since the read.

    Source: Kafka Partition.readRecords, UnifiedLog.fetchLastStableOffsetMetadata.
    """
    log = partition.log
    if data.diverging_epoch is not None or data.leader_epoch != partition.leader_epoch:
        return
    # `stable_offset` is the offset below which the consumer may read.
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
    """The logs of a leader (`log`) and a follower (`other`) have the same batches below `up_to`.

    The check may be called only if neither log ends before `up_to`. If the topic is compacted, each
    broker compacts its own replica. Then one log may lack batches that the other log has, and two
    batches at the same offset need only have the same leader epoch.

    Source: Kafka's replication protocol, KIP-101 (log matching).
    """
    # 2**62 bytes is no limit: no log is that large.
    ours = {
        batch.base_offset: batch for batch in log.read(log.log_start_offset, 2**62, up_to=up_to)
    }
    theirs = other.read(other.log_start_offset, 2**62, up_to=up_to)
    is_compacted = log.is_compacted
    # It is enough to go through the batches of `other`. If the log is not compacted, these batches
    # have every offset below `up_to`, so no batch of `log` can be missed.
    for batch in theirs:
        same = ours.get(batch.base_offset)
        if same is None:
            # This is legal if a compaction has removed the batch, or if `log` begins after it.
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
    """Return the batch that contains `offset`, None if `offset` is outside the log."""
    if not log.log_start_offset <= offset < log.log_end_offset:
        return None
    # `read` returns at least one batch. With a limit of 0 bytes, it returns exactly one.
    (batch,) = log.read(offset, 0, up_to=log.log_end_offset)
    return batch


def _is_same(stored: RecordBatch, sent: RecordBatch, uses_log_append_time: bool) -> bool:
    """Return True if the batch `stored` of the log is the batch `sent` of a producer.

    The CRCs need not be equal. With LogAppendTime the leader has changed the timestamps. The leader
    may also have corrected the header of a batch of a real client.
    """
    # Only a real client's batch has a header (`kafka`).
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
