"""The two ends of replication by Fetch, over a log alone: what to answer, what to do with it.

The leader compares the epoch of the fetcher's last batch with its own history and answers with
the point of divergence instead of records; the follower cuts its log there and fetches again.
Source: Kafka `Partition.readRecords`, `AbstractFetcherThread`.
"""

from partition_log.log import PartitionLog
from partition_log.outcomes import FollowerFetchResult
from partition_log.traces import high_watermark_moved, log_truncated
from protocol.errors import ErrorCode
from protocol.ids import NO_LEADER_EPOCH, LeaderEpoch
from protocol.messages.log import EpochEndOffset, FetchPartition, PartitionData
from protocol.records.batch import RecordBatch


def find_divergence(
    log: PartitionLog, request: FetchPartition
) -> EpochEndOffset | ErrorCode | None:
    """Return where the fetcher's log leaves the leader's `log`, None if it is a prefix of it.

    Returns: OFFSET_OUT_OF_RANGE if the epoch is not known here or the offset is before the log
    start; None also if the fetcher names no epoch (its log is empty, or it does not check).
    """
    if request.last_fetched_epoch == NO_LEADER_EPOCH:
        return None
    epoch, end_offset = log.end_offset_for_epoch(request.last_fetched_epoch)
    if epoch == NO_LEADER_EPOCH or request.fetch_offset < log.log_start_offset:
        return ErrorCode.OFFSET_OUT_OF_RANGE
    if epoch < request.last_fetched_epoch or end_offset < request.fetch_offset:
        return EpochEndOffset(epoch=epoch, end_offset=end_offset)
    return None


def read_for_fetch(
    log: PartitionLog,
    request: FetchPartition,
    *,
    up_to: int,
    max_bytes: int,
    min_one_batch: bool,
) -> tuple[RecordBatch, ...] | ErrorCode:
    """Return the batches asked for, or OFFSET_OUT_OF_RANGE."""
    if not log.log_start_offset <= request.fetch_offset <= log.log_end_offset:
        return ErrorCode.OFFSET_OUT_OF_RANGE
    return log.read(
        request.fetch_offset,
        min(request.partition_max_bytes, max_bytes),
        up_to=up_to,
        min_one_batch=min_one_batch,
    )


def apply_fetched(
    log: PartitionLog, data: PartitionData, *, leader_epoch: LeaderEpoch
) -> FollowerFetchResult:
    """Bring a follower's `log` forward, or cut it, by the leader's answer.

    With a diverging epoch nothing else counts: the high watermark waits for the next Fetch, when
    the logs agree.
    """
    if data.error_code is not ErrorCode.NONE:
        return FollowerFetchResult(error=data.error_code)
    if data.diverging_epoch is not None:
        return _truncate(log, data.diverging_epoch, leader_epoch)
    if data.records:
        error = log.append_as_follower(data.records)
        if error is not ErrorCode.NONE:
            return FollowerFetchResult(error=error)
    moved = log.update_high_watermark(data.high_watermark)
    return FollowerFetchResult(
        appended_batches=len(data.records),
        new_high_watermark=log.high_watermark if moved else None,
        trace=high_watermark_moved(log, leader_epoch) if moved else (),
    )


def truncation_offset(log: PartitionLog, diverging: EpochEndOffset) -> int:
    """Return where a follower's `log` must be cut, given its leader's answer.

    If the follower does not know the epoch that the leader named, it cuts at the end of the
    largest one below it, and the next Fetch asks again with that one: each round goes down an
    epoch, so it ends. Source: Kafka AbstractFetcherThread.getOffsetTruncationState.
    """
    epoch, end_offset = log.end_offset_for_epoch(diverging.epoch)
    if epoch == NO_LEADER_EPOCH:
        # Every epoch here is older than the one that the leader named.
        return min(diverging.end_offset, log.log_end_offset)
    if epoch != diverging.epoch:
        return end_offset
    return min(end_offset, diverging.end_offset)


def _truncate(
    log: PartitionLog, diverging: EpochEndOffset, leader_epoch: LeaderEpoch
) -> FollowerFetchResult:
    from_offset = log.log_end_offset
    previous_high_watermark = log.high_watermark
    log.truncate_to(max(truncation_offset(log, diverging), log.log_start_offset))
    if log.log_end_offset == from_offset:
        return FollowerFetchResult()
    moved = log.high_watermark != previous_high_watermark
    trace = (log_truncated(log, leader_epoch, from_offset),)
    return FollowerFetchResult(
        truncated_to=log.log_end_offset,
        new_high_watermark=log.high_watermark if moved else None,
        trace=trace + high_watermark_moved(log, leader_epoch) if moved else trace,
    )
