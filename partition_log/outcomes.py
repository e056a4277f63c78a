"""Settings and results of a replica (`replica.Partition`), as plain values.

Each method of a Partition that changes something returns one of these results, and the broker acts
on the result. For a `proposal`, the broker sends an AlterPartition, which is the request for
another ISR. For a `new_high_watermark`, it answers the requests that waited for this offset. It
writes the events in `trace` to the trace, the recording of the run.

Results of appends and fetches are msgspec Structs, because they are built thousands of times a
second, and building a frozen dataclass takes ten times as long.
"""

from dataclasses import dataclass

import msgspec

from protocol.errors import ErrorCode
from protocol.ids import NO_LEADER_EPOCH, BrokerId, LeaderEpoch, Offset, PartitionEpoch
from protocol.messages.controller import AlterPartitionPartitionData
from protocol.messages.log import BatchIndexAndErrorMessage, PartitionData
from protocol.trace import TraceEvent

NO_OFFSET = Offset(-1)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaConfig:
    """The settings of a replica, with Kafka's names and defaults."""

    min_insync_replicas: int = 1
    replica_lag_time_max_ms: int = 30_000
    message_max_bytes: int = 1_048_588
    segment_bytes: int = 1_073_741_824
    uses_log_append_time: bool = False
    """True if message.timestamp.type is LogAppendTime."""
    min_insync_check: bool = True
    """True if the leader checks `min_insync_replicas`. An experiment may switch off this check, to
    show what the check prevents. Then appends with acks=all are accepted, and the high watermark
    advances, even if fewer replicas than min.insync.replicas are in sync."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IsrProposal:
    """A change of the ISR that a leader proposes to the controller.

    data: this partition's part of the AlterPartitionRequest.
    new_isr: the proposed ISR.
    added, removed: how `new_isr` differs from the ISR that the controller has stored.
    """

    data: AlterPartitionPartitionData
    new_isr: tuple[BrokerId, ...]
    added: tuple[BrokerId, ...] = ()
    removed: tuple[BrokerId, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LeadershipChange:
    """Result of make_leader or make_follower.

    stale: True if the metadata was older than what the replica knows. Then nothing has changed.
    is_new_leader_epoch: True if the leader epoch has changed. The broker must restart the fetches
        of the partition. If it is a partition of `__consumer_offsets`, the broker must also load it
        into the group coordinator, or unload it.
    new_high_watermark: None if the high watermark did not move.
    trace: BECAME_LEADER or BECAME_FOLLOWER for a new leader epoch, and HIGH_WATERMARK if the high
        watermark moved.
    """

    stale: bool = False
    is_new_leader_epoch: bool = False
    new_high_watermark: Offset | None = None
    trace: tuple[TraceEvent, ...] = ()


class AppendInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Result of an append as leader.

    If there is an error, nothing was appended, and the offsets are -1.

    next_offset: offset after the batch. With acks=all, the append is acknowledged when the high
        watermark reaches this offset (`Partition.check_acknowledged`).
    new_high_watermark: None if the high watermark did not move. An append moves it only if the
        leader is alone in the ISR.
    is_duplicate: True if nothing was appended, because the log has the batch already. Then the
        offsets are the offsets of the batch in the log.
    log_append_time_ms: the time that the leader has given to the records, -1 if the records keep
        their producer's timestamps. For a duplicate this is the timestamp of the batch in the log,
        as in Kafka.
    error_message, record_errors: what is wrong with a client's records.
    """

    error: ErrorCode = ErrorCode.NONE
    base_offset: Offset = NO_OFFSET
    next_offset: Offset = NO_OFFSET
    leader_epoch: LeaderEpoch = NO_LEADER_EPOCH
    new_high_watermark: Offset | None = None
    trace: tuple[TraceEvent, ...] = ()
    is_duplicate: bool = False
    log_append_time_ms: int = -1
    log_start_offset: Offset = NO_OFFSET
    error_message: str | None = None
    record_errors: tuple[BatchIndexAndErrorMessage, ...] = ()


class FetchResult(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a leader's read for a Fetch of a follower or consumer.

    data: the answer for the partition. As in Kafka, the answer has the high watermark from before
        this Fetch. If the Fetch moves the high watermark, the follower learns of this from its next
        Fetch.
    size_in_bytes: size of the batches in `data`.
    new_high_watermark: None if the high watermark did not move. A follower's Fetch may move it,
        because it shows the leader which records the follower has.
    proposal: the new ISR to propose, if the follower may join the ISR now.
    """

    data: PartitionData
    size_in_bytes: int = 0
    new_high_watermark: Offset | None = None
    proposal: IsrProposal | None = None
    trace: tuple[TraceEvent, ...] = ()


class FollowerFetchResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a follower has done with the leader's answer to its Fetch.

    ignored: True if the answer belongs to an older leader epoch, or if the end of the log has moved
        since the Fetch. Then nothing was done.
    error: the error of the answer or of the append. It decides what the broker does next.
        NONE: it fetches again immediately, from the new log end.
        FENCED_LEADER_EPOCH, UNKNOWN_SERVER_ERROR: it fetches no more until the next leader epoch,
        like Kafka's markPartitionFailed.
        Any other error: it fetches again after `replica.fetch.backoff.ms`.
    truncated_to: the new log end if the log was truncated, else None.
    """

    ignored: bool = False
    error: ErrorCode = ErrorCode.NONE
    appended_batches: int = 0
    truncated_to: Offset | None = None
    new_high_watermark: Offset | None = None
    trace: tuple[TraceEvent, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterPartitionResult:
    """What follows from the controller's answer to an IsrProposal.

    retry: True if the broker must send the same proposal again after a pause. Until then the
        proposal counts as in flight, so the replica makes no other proposal.
    committed_isr: the new ISR if the controller has stored a new ISR, else None.
    """

    retry: bool = False
    committed_isr: tuple[BrokerId, ...] | None = None
    partition_epoch: PartitionEpoch | None = None
    new_high_watermark: Offset | None = None
    trace: tuple[TraceEvent, ...] = ()
