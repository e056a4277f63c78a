"""Settings and results of a replica (`replica.Partition`), as plain values.

The broker acts on a result: it sends a proposed AlterPartition, completes the requests that waited
for a new high watermark, and writes the trace events. Results of appends and fetches are msgspec
Structs instead of dataclasses: they are built thousands of times a second, and building a frozen
dataclass takes ten times as long.

- ISR: the set of in-sync replicas. Only the controller changes it; a leader proposes a change with
  the request AlterPartition.
- High watermark: the offset below which all in-sync replicas have the records.
- Leader epoch: the number of a partition's leadership.
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
    """The settings of a replica, with Kafka's names and defaults, and a guard.

    A guard is a check of Kafka's; an experiment switches it off to show what it prevents.
    """

    min_insync_replicas: int = 1
    replica_lag_time_max_ms: int = 30_000
    message_max_bytes: int = 1_048_588
    segment_bytes: int = 1_073_741_824
    uses_log_append_time: bool = False
    """True if message.timestamp.type is LogAppendTime."""
    min_insync_check: bool = True
    """The guard. If it is False and fewer replicas than min.insync.replicas are in sync, appends
    with acks=all are accepted nevertheless, and the high watermark advances."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IsrProposal:
    """A change of the ISR that a leader proposes to the controller.

    data: this partition's part of the AlterPartitionRequest.
    new_isr: the proposed ISR.
    added, removed: the brokers by which `new_isr` differs from the committed ISR, the one that the
        controller has stored.
    """

    data: AlterPartitionPartitionData
    new_isr: tuple[BrokerId, ...]
    added: tuple[BrokerId, ...] = ()
    removed: tuple[BrokerId, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LeadershipChange:
    """Result of make_leader or make_follower.

    stale: the call had an older partition epoch than the replica, and nothing changed.
    is_new_leader_epoch: the leader epoch has changed. The broker must restart the partition's
        fetcher. If it is a partition of `__consumer_offsets`, the broker must also load it into the
        group coordinator, or unload it.
    new_high_watermark: None if the high watermark did not move.
    trace: BECAME_LEADER or BECAME_FOLLOWER for a new leader epoch; HIGH_WATERMARK if the high
        watermark moved.
    """

    stale: bool = False
    is_new_leader_epoch: bool = False
    new_high_watermark: Offset | None = None
    trace: tuple[TraceEvent, ...] = ()


class AppendInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Result of an append as leader.

    With an error nothing was appended and the offsets are -1.
    next_offset: offset after the batch. With acks=all the append is acknowledged once the high
        watermark reaches this offset (`Partition.check_acknowledged`).
    new_high_watermark: None if the high watermark did not move. An append moves it only if the
        leader is alone in the ISR.
    is_duplicate: no batch was appended, because the log has this batch of the producer already, at
        these offsets.
    log_append_time_ms: -1 if records keep their producer's timestamps. For a duplicate it is the
        timestamp of the first batch, as in Kafka.
    error_message, record_errors: why a client's records are invalid.
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

    data: the answer for the partition. As in Kafka, its high watermark is the one before this
        Fetch. If the Fetch moves the high watermark, the follower learns of it with its next Fetch.
    size_in_bytes: size of the records in `data`.
    new_high_watermark: set if the Fetch moved the high watermark. A follower's Fetch can do this,
        because it tells the leader which records the follower has.
    proposal: set if the follower may join the ISR now.
    """

    data: PartitionData
    size_in_bytes: int = 0
    new_high_watermark: Offset | None = None
    proposal: IsrProposal | None = None
    trace: tuple[TraceEvent, ...] = ()


class FollowerFetchResult(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a follower's handling of the leader's answer.

    ignored: the answer belongs to an older leader epoch, or the log end has moved since the Fetch.
    error: says what the broker does next.
        NONE: fetch again immediately, from the new log end.
        FENCED_LEADER_EPOCH, UNKNOWN_SERVER_ERROR: stop until the next leader epoch, as Kafka's
        markPartitionFailed does.
        Any other error: fetch again after `replica.fetch.backoff.ms`.
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
    """Result of the controller's answer to an IsrProposal.

    retry: the broker must send the same proposal again after a backoff. Until then the proposal
        counts as in flight, so the replica makes no new proposal.
    committed_isr: the new ISR if the controller has committed one, else None.
    """

    retry: bool = False
    committed_isr: tuple[BrokerId, ...] | None = None
    partition_epoch: PartitionEpoch | None = None
    new_high_watermark: Offset | None = None
    trace: tuple[TraceEvent, ...] = ()
