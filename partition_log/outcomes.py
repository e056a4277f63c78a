"""What goes into a replica once, and what it returns: plain values, built once and then read.

Nothing here acts: whoever hosts a Partition sends what a value proposes, wakes what a new high
watermark completes, and hands the trace events to its Host. What every append and Fetch returns is
a msgspec Struct instead of a dataclass: it is built thousands of times a second, and a frozen
dataclass takes ten times as long to build.
"""

from dataclasses import dataclass

import msgspec

from protocol.errors import ErrorCode
from protocol.ids import NO_LEADER_EPOCH, BrokerId, LeaderEpoch, Offset, PartitionEpoch
from protocol.messages.controller import AlterPartitionPartitionData
from protocol.messages.log import PartitionData
from protocol.trace import TraceEvent

NO_OFFSET = Offset(-1)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaConfig:
    """The settings of one partition's replica, under Kafka's names, and its guard."""

    min_insync_replicas: int = 1
    replica_lag_time_max_ms: int = 30_000
    message_max_bytes: int = 1_048_588
    segment_bytes: int = 1_073_741_824
    min_insync_check: bool = True
    """Off: acks=all is taken, and the high watermark advances, below min.insync.replicas."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IsrProposal:
    """An ISR that a leader wants: an AlterPartition to send. Nothing changed until answered.

    Shape: `data` goes into the AlterPartitionRequest as it is; `new_isr` is the ISR it asks for,
    `added` and `removed` say in what it differs from the committed one.
    """

    data: AlterPartitionPartitionData
    new_isr: tuple[BrokerId, ...]
    added: tuple[BrokerId, ...] = ()
    removed: tuple[BrokerId, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LeadershipChange:
    """What make_leader or make_follower did.

    Shape: `stale` means that the partition epoch was older than the known one and nothing
    changed. `is_new_leader_epoch` asks the broker to restart the fetcher, and to load or unload
    an offsets partition. `new_high_watermark` is None if it did not move. `trace` is
    BECAME_LEADER or BECAME_FOLLOWER, only for a new leader epoch, and HIGH_WATERMARK.
    """

    stale: bool = False
    is_new_leader_epoch: bool = False
    new_high_watermark: Offset | None = None
    trace: tuple[TraceEvent, ...] = ()


class AppendInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of an append as leader.

    Shape: with an error nothing was appended and the offsets are -1. The append is acknowledged
    with acks=all once the high watermark reaches `next_offset` (`Partition.check_acknowledged`).
    `new_high_watermark` is None if it did not move (it does at once in an ISR of one).
    """

    error: ErrorCode = ErrorCode.NONE
    base_offset: Offset = NO_OFFSET
    next_offset: Offset = NO_OFFSET
    leader_epoch: LeaderEpoch = NO_LEADER_EPOCH
    new_high_watermark: Offset | None = None
    trace: tuple[TraceEvent, ...] = ()


class FetchResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a leader read for a Fetch, of a follower or of a consumer.

    Shape: `data` is the answer for the partition (error, records, high watermark before this
    Fetch counted, diverging epoch); `size_in_bytes` counts its records. The rest is what the
    follower's progress led to: a high watermark that moved, an ISR to propose.
    """

    data: PartitionData
    size_in_bytes: int = 0
    new_high_watermark: Offset | None = None
    proposal: IsrProposal | None = None
    trace: tuple[TraceEvent, ...] = ()


class FollowerFetchResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a follower did with the leader's answer.

    Shape: `ignored` means that the answer belongs to an older leader epoch or fetch offset.
    `error` NONE: fetch on at once from the new log end. FENCED_LEADER_EPOCH and
    UNKNOWN_SERVER_ERROR: stop until the next leader epoch, as Kafka's markPartitionFailed does.
    Anything else: fetch again after `replica.fetch.backoff.ms`.
    `truncated_to` is set if the log was cut; `trace` then has LOG_TRUNCATED.
    """

    ignored: bool = False
    error: ErrorCode = ErrorCode.NONE
    appended_batches: int = 0
    truncated_to: Offset | None = None
    new_high_watermark: Offset | None = None
    trace: tuple[TraceEvent, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterPartitionResult:
    """What the answer to an IsrProposal led to.

    Shape: `retry` asks to send the same proposal again after a backoff (it is still in flight).
    `committed_isr` is set when the controller's ISR came into force.
    """

    retry: bool = False
    committed_isr: tuple[BrokerId, ...] | None = None
    partition_epoch: PartitionEpoch | None = None
    new_high_watermark: Offset | None = None
    trace: tuple[TraceEvent, ...] = ()
