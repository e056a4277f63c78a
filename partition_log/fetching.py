"""What a Fetch does: the leader reads its log, and the follower appends to its log or truncates it.

The leader epoch is the number of a partition's leadership. After an election, the follower's log
may have records that the new leader lacks. Fetches themselves make both logs equal (KIP-595):
1. The follower's Fetch names the follower's log end offset, which is the offset of its next record,
   and the epoch of its last batch.
2. The leader finds the offset where this epoch ends in the leader's log. If the follower's log ends
   later, the leader answers with the epoch and this offset (the diverging epoch), without records.
3. The follower truncates its log to this offset, and fetches again.
A follower whose log is empty names no epoch (-1).
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
    """Compare the fetcher's log, as its request describes it, with the leader's `log`.

    Returns:
    - the diverging epoch, if the logs differ;
    - None if they agree, or if the request names no epoch. A follower with an empty log names no
      epoch, and neither does a consumer that does not check for divergence;
    - OFFSET_OUT_OF_RANGE if the leader does not know the epoch, or if the request's offset is
      before the log start.
    """
    if request.last_fetched_epoch == NO_LEADER_EPOCH:
        return None
    epoch, end_offset = log.end_offset_for_epoch(request.last_fetched_epoch)
    if epoch == NO_LEADER_EPOCH or request.fetch_offset < log.log_start_offset:
        return ErrorCode.OFFSET_OUT_OF_RANGE
    # The logs differ if the leader's log lacks the fetcher's last epoch, or if this epoch ends
    # earlier in the leader's log than in the fetcher's.
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
    """Return the batches for a Fetch, or OFFSET_OUT_OF_RANGE.

    up_to: end (exclusive) of what may be read: for a consumer the high watermark, below which every
        in-sync replica has the records.
    max_bytes: number of bytes that still fit into the answer to the whole Fetch.
    min_one_batch: return one batch even if it is larger than `max_bytes`.
    """
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
    """Append the records of the leader's answer to a follower's `log`, or truncate the log.

    Then adopt the leader's high watermark, limited to the end of this log.
    """
    if data.error_code is not ErrorCode.NONE:
        return FollowerFetchResult(error=data.error_code)
    # The high watermark in an answer with a diverging epoch is ignored: it is an offset of the
    # leader's log, and the two logs agree only from the next Fetch on.
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
    """Return the offset to which a follower must truncate `log`, given the leader's answer.

    Source: Kafka AbstractFetcherThread.getOffsetTruncationState.
    """
    # `epoch`: the largest epoch of this log that is not above the diverging epoch. `end_offset`:
    # the offset where it ends in this log.
    epoch, end_offset = log.end_offset_for_epoch(diverging.epoch)
    if epoch == NO_LEADER_EPOCH:
        # This log has no epochs, or only epochs older than the diverging epoch. So its own epochs
        # do not limit the offset.
        return min(diverging.end_offset, log.log_end_offset)
    if epoch != diverging.epoch:
        # This log lacks the diverging epoch. It is cut at the end of the largest older epoch, which
        # the next Fetch names. Each round goes back by at least one epoch, so the rounds end.
        return end_offset
    return min(end_offset, diverging.end_offset)


def _truncate(
    log: PartitionLog, diverging: EpochEndOffset, leader_epoch: LeaderEpoch
) -> FollowerFetchResult:
    """Truncate a follower's log where it diverges from its leader's."""
    from_offset = log.log_end_offset
    previous_high_watermark = log.high_watermark
    # A log cannot end before its start. The end of an epoch in the leader's log may be lower.
    log.truncate_to(max(truncation_offset(log, diverging), log.log_start_offset))
    if log.log_end_offset == from_offset:
        # No batch was removed, but the log may have forgotten an epoch (`truncate_to`). Then the
        # next Fetch names an older epoch.
        return FollowerFetchResult()
    moved = log.high_watermark != previous_high_watermark
    trace = (log_truncated(log, leader_epoch, from_offset),)
    return FollowerFetchResult(
        truncated_to=log.log_end_offset,
        new_high_watermark=log.high_watermark if moved else None,
        trace=trace + high_watermark_moved(log, leader_epoch) if moved else trace,
    )
