"""What a Fetch does: the leader reads its log, and the follower appends to its log or truncates it.

After an election, a follower's log may have records that the new leader does not have. The Fetches
themselves make both logs equal (KIP-595):
1. The follower's Fetch names the end of its log, and the leader epoch of its last batch. For
   example, the log ends at 12, in epoch 4.
2. The leader looks up where this epoch ends in its own log. In the example, epoch 4 ends at 10 in
   the leader's log, so the logs diverge. The leader answers with the diverging epoch (epoch 4,
   offset 10), and without records.
3. The follower truncates its log to 10, and fetches again.
A follower with an empty log names no epoch (-1).

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
    """Compare a follower's or consumer's log, as its Fetch describes it, with the leader's `log`.

    Returns:
    - the diverging epoch, if the logs diverge;
    - None if the logs agree, or if the Fetch names no epoch, as the Fetches of most consumers;
    - OFFSET_OUT_OF_RANGE if the leader does not know the epoch, or its log begins after the offset.
    """
    if request.last_fetched_epoch == NO_LEADER_EPOCH:
        return None
    epoch, end_offset = log.end_offset_for_epoch(request.last_fetched_epoch)
    if epoch == NO_LEADER_EPOCH or request.fetch_offset < log.log_start_offset:
        return ErrorCode.OFFSET_OUT_OF_RANGE
    # The logs diverge if the leader's log does not have the epoch, or if the epoch ends earlier in
    # the leader's log.
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

    up_to: only records below this offset may be read. For a consumer this is the high watermark.
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
    """Change a follower's `log` as the leader's answer says.

    Either truncate the log where it diverges from the leader's log. Or append the records, and take
    over the leader's high watermark, as far as the follower's log reaches.
    """
    if data.error_code is not ErrorCode.NONE:
        return FollowerFetchResult(error=data.error_code)
    # An answer with a diverging epoch has a high watermark, too. This high watermark is ignored,
    # because the logs do not agree before the next Fetch.
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
    """Return the offset to which a follower must truncate `log`.

    `diverging` is the leader's answer: an epoch, and the offset at which it ends in the leader's
    log.

    Source: Kafka AbstractFetcherThread.getOffsetTruncationState.
    """
    # The largest epoch of this log up to the diverging epoch, and its end in this log.
    epoch, end_offset = log.end_offset_for_epoch(diverging.epoch)
    if epoch == NO_LEADER_EPOCH:
        # This log has no epochs, or only older ones than the diverging epoch. So only the leader's
        # offset counts.
        return min(diverging.end_offset, log.log_end_offset)
    if epoch != diverging.epoch:
        # This log does not have the diverging epoch. It is cut where the next older epoch ends, and
        # the next Fetch will name that epoch. Each Fetch goes back by at least one epoch, so the
        # logs agree in the end.
        return end_offset
    return min(end_offset, diverging.end_offset)


def _truncate(
    log: PartitionLog, diverging: EpochEndOffset, leader_epoch: LeaderEpoch
) -> FollowerFetchResult:
    """Truncate a follower's log where it diverges from its leader's."""
    from_offset = log.log_end_offset
    previous_high_watermark = log.high_watermark
    # The leader's offset may be before the start of this log, but the log cannot end there.
    log.truncate_to(max(truncation_offset(log, diverging), log.log_start_offset))
    if log.log_end_offset == from_offset:
        # No batch was removed. But `truncate_to` may have removed an epoch without batches, so that
        # the next Fetch names an older epoch.
        return FollowerFetchResult()
    moved = log.high_watermark != previous_high_watermark
    trace = (log_truncated(log, leader_epoch, from_offset),)
    return FollowerFetchResult(
        truncated_to=log.log_end_offset,
        new_high_watermark=log.high_watermark if moved else None,
        trace=trace + high_watermark_moved(log, leader_epoch) if moved else trace,
    )
