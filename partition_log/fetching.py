"""The two ends of replication by Fetch, over a log alone: what to answer, where to truncate.

The leader compares the epoch of the fetcher's last batch with its own history and answers with
the point of divergence instead of records; the follower cuts its log there and fetches again.
Source: Kafka `Partition.readRecords`, `AbstractFetcherThread.getOffsetTruncationState`.
"""

from partition_log.log import PartitionLog
from protocol.errors import ErrorCode
from protocol.ids import NO_LEADER_EPOCH
from protocol.log_messages import EpochEndOffset, FetchPartition
from protocol.record_batch import RecordBatch


def find_divergence(
    log: PartitionLog, request: FetchPartition
) -> EpochEndOffset | ErrorCode | None:
    """Return where the fetcher's log leaves `log`, None if it is a prefix of it.

    Returns: OFFSET_OUT_OF_RANGE if the epoch is not known here or the offset is before the log
    start; None also if the fetcher names no epoch (its log is empty, or it is an old client).
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


def truncation_offset(log: PartitionLog, diverging: EpochEndOffset) -> int:
    """Return where a follower's `log` must be cut, given its leader's answer.

    If the follower does not know the epoch that the leader named, it cuts at the end of the
    largest one below it, and the next Fetch asks again with that one: each round goes down an
    epoch, so it ends.
    """
    _, end_offset = log.end_offset_for_epoch(diverging.epoch)
    known = log.end_offset_for_epoch(diverging.epoch)
    if known.epoch == NO_LEADER_EPOCH:
        # Every epoch here is older than the leader's answer.
        return min(diverging.end_offset, log.log_end_offset)
    if known.epoch != diverging.epoch:
        return min(end_offset, log.log_end_offset)
    return min(end_offset, diverging.end_offset, log.log_end_offset)
