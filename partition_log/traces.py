"""The events that a replica writes to the trace, the recording of a run.

Each function builds the event of one kind.
"""

from partition_log.log import PartitionLog
from protocol.ids import CONSUMER_OFFSETS, NO_BROKER, BrokerId, LeaderEpoch, Offset, broker_name
from protocol.trace import TraceEvent, TraceKind


def became_leader(log: PartitionLog, leader_epoch: LeaderEpoch) -> TraceEvent:
    """Return BECAME_LEADER, because the metadata has made this replica leader in a new epoch."""
    return TraceEvent(
        kind=TraceKind.BECAME_LEADER,
        partition=str(log.topic_partition),
        leader_epoch=leader_epoch,
        offset=log.log_end_offset,
    )


def became_follower(
    log: PartitionLog, leader_epoch: LeaderEpoch, leader_id: BrokerId
) -> TraceEvent:
    """Return BECAME_FOLLOWER; the column `peer` is empty if the partition has no leader."""
    return TraceEvent(
        kind=TraceKind.BECAME_FOLLOWER,
        partition=str(log.topic_partition),
        leader_epoch=leader_epoch,
        peer="" if leader_id == NO_BROKER else broker_name(leader_id),
    )


def log_truncated(log: PartitionLog, leader_epoch: LeaderEpoch, from_offset: Offset) -> TraceEvent:
    """Return LOG_TRUNCATED. The log ended at `from_offset` before, and ends at `offset` now."""
    return TraceEvent(
        kind=TraceKind.LOG_TRUNCATED,
        partition=str(log.topic_partition),
        leader_epoch=leader_epoch,
        offset=log.log_end_offset,
        detail={"from_offset": from_offset},
    )


def high_watermark_moved(log: PartitionLog, leader_epoch: LeaderEpoch) -> tuple[TraceEvent, ...]:
    """Return HIGH_WATERMARK, but only for a partition of `__consumer_offsets`.

    In a data partition the high watermark moves with every batch, which would be too many rows.
    """
    if log.topic_partition.topic != CONSUMER_OFFSETS:
        return ()
    event = TraceEvent(
        kind=TraceKind.HIGH_WATERMARK,
        partition=str(log.topic_partition),
        leader_epoch=leader_epoch,
        offset=log.high_watermark,
    )
    return (event,)
