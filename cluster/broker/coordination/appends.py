"""Appends of a coordinator to this broker's log, and the reports of their outcomes.

An append succeeds when the high watermark has passed its records. If this takes longer than
offsets.commit.timeout.ms, the append has failed for the coordinator. The records stay in the log
nevertheless, and may be committed later.

A *guard* is a check of Kafka that an experiment may switch off, to show what the check prevents.
The wait for the high watermark is a guard (`high_watermark_gate`).

Source: Kafka `GroupMetadataManager.appendForGroup`, `DelayedProduce`; Java `CoordinatorRuntime` for
appends with acks=1; docs/kafka, BEHAVIOUR 5.3.
"""

from collections.abc import Callable

from cluster.broker.replication.replica_manager import ReplicaManager
from cluster.host.host import Host
from cluster.spec import ClusterSpec
from partition_log.outcomes import AppendInfo
from partition_log.replica import Partition
from protocol.effects import ACKS_NONE, Append, AppendCompleted
from protocol.errors import ErrorCode
from protocol.ids import CONSUMER_OFFSETS, AppendId, TopicPartition, offsets_partition
from protocol.trace import TraceEvent, TraceKind


class CoordinatorAppends:
    """Carries out the appends of a coordinator.

    `on_completed` is called with the outcome of each append, unless the append has acks=0. It may
    be called before `append` returns.
    """

    def __init__(
        self,
        host: Host,
        cluster: ClusterSpec,
        replicas: ReplicaManager,
        on_completed: Callable[[AppendCompleted], None],
        *,
        topic: str = CONSUMER_OFFSETS,
    ) -> None:
        """Append to the partitions of `topic`; only appends to `__consumer_offsets` are traced."""
        self._topic = topic
        self._host = host
        self._replicas = replicas
        self._on_completed = on_completed
        self._timeout_us = cluster.broker_config.offsets_commit_timeout_ms * 1_000
        self._waits_for_high_watermark = cluster.guards.high_watermark_gate

    def append(self, append: Append) -> None:
        """Append to the local log if this broker leads it; report the outcome when it is known."""
        partition = self._replicas.partition(TopicPartition(self._topic, append.partition))
        if partition is None:
            # The two None: nothing was appended, so there is neither an AppendInfo nor a detail.
            self._complete(append, ErrorCode.NOT_LEADER_OR_FOLLOWER, None, None)
            return
        info = self._replicas.append_for_coordinator(partition, append)
        if info.error is not ErrorCode.NONE:
            self._complete(append, info.error, None, None)
            return
        detail: dict[str, object] = {
            "records": len(append.records),
            "epoch_start_offset": partition.leader_epoch_start_offset,
        }
        self._trace(TraceKind.APPEND_STARTED, append, info, detail, error=None)
        if append.required_acks == ACKS_NONE:
            pass  # the coordinator expects no outcome
        elif self._waits_for_high_watermark:
            self._await(append, partition, info, detail)
        else:
            # The guard is off. So the append succeeds at once, although perhaps no follower has the
            # record.
            self._complete(append, ErrorCode.NONE, info, _acknowledged_on(partition, detail))
        self._replicas.complete_delayed()  # answers the Fetches that wait for the new records

    def _await(
        self, append: Append, partition: Partition, info: AppendInfo, detail: dict[str, object]
    ) -> None:
        """Report the outcome when the append is acknowledged, has failed, or has timed out."""

        # The callback for all three outcomes; `error` is NONE only for the first of them.
        def acknowledged(error: ErrorCode) -> None:
            # `timer`, which is assigned at the end of `_await`, has a value by now: this function
            # is never called before `_await` has returned.
            timer.cancel()
            detail_with_isr = (
                _acknowledged_on(partition, detail) if error is ErrorCode.NONE else detail
            )
            self._complete(append, error, info, detail_with_isr)

        delayed = self._replicas.await_acknowledgement(partition, info, acknowledged)
        timeout_us = self._timeout_us if append.timeout_ms is None else append.timeout_ms * 1_000
        timer = self._host.after(timeout_us, self._replicas.give_up, delayed)

    def _complete(
        self,
        append: Append,
        error: ErrorCode,
        info: AppendInfo | None,
        detail: dict[str, object] | None,
    ) -> None:
        """Trace the outcome of an append and report it.

        An append with acks=0 has no outcome for the coordinator, even if it failed.
        """
        if append.required_acks == ACKS_NONE:
            return
        self._trace(TraceKind.APPEND_COMPLETED, append, info, detail, error=error)
        self._on_completed(
            AppendCompleted(
                append_id=AppendId(append.append_id),
                error=error,
                base_offset=None if info is None else info.base_offset,
            )
        )

    def _trace(
        self,
        kind: TraceKind,
        append: Append,
        info: AppendInfo | None,
        detail: dict[str, object] | None,
        *,
        error: ErrorCode | None,
    ) -> None:
        """Trace an append to `__consumer_offsets`.

        `info` and `detail` are None if nothing was appended.
        """
        if self._topic != CONSUMER_OFFSETS:
            return
        self._host.trace(
            TraceEvent(
                kind=kind,
                partition=str(offsets_partition(append.partition)),
                leader_epoch=None if info is None else info.leader_epoch,
                offset=None if info is None else info.base_offset,
                correlation_id=append.append_id,
                error=None if error is None else error.name,
                detail=detail,
            )
        )


def _acknowledged_on(partition: Partition, detail: dict[str, object]) -> dict[str, object]:
    """Return `detail` with the partition's present ISR, including replicas that it may get."""
    return {**detail, "isr": list(partition.maximal_isr)}
