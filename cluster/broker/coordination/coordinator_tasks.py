"""Tasks of the group coordinator, mainly loads and unloads, in the order of their scheduling.

When a broker becomes the leader of an *offsets partition* (a partition of `__consumer_offsets`), it
becomes the coordinator of the groups in this partition. It *loads* the groups: it reads the log of
the partition from beginning to end. When another broker becomes the leader, the old leader
*unloads* the groups, which means that it forgets them. There are two more kinds of tasks, the
completion of a transaction and the removal of expired offsets.

As in Kafka, the tasks are carried out one after the other, so a load may have to wait for an
earlier task. But a broker goes on to handle requests during a load. For this, a load reads the log
in turns of bounded size, and other events happen between two turns. In virtual time,
ClusterSpec.costs determines how long a load takes.

Source: Kafka `GroupMetadataManager.scheduleLoadGroupAndOffsets` and `removeGroupsForPartition` (one
scheduler thread, KAFKA-10614); docs/kafka, BEHAVIOUR 5.4 and 5.5.
"""

from asyncio import Future
from collections import deque
from dataclasses import dataclass

from cluster.broker.coordination.group_coordination import GroupCoordination
from cluster.broker.coordination.log_loading import LOAD_TURN_BYTES, read_log
from cluster.broker.replication.replica_manager import LocalLeadership, ReplicaManager
from cluster.host.host import Host
from cluster.spec import ClusterSpec
from coordinator.coordinator import LoadIgnored
from partition_log.replica import Partition
from protocol.ids import CONSUMER_OFFSETS, TopicPartition
from protocol.records.batch import RecordBatch
from protocol.trace import TraceEvent, TraceKind

LATE_PERCENT = (10, 40, 100)
"""Times at which loads and unloads are repeated, in percent of `late_notices_us`.

If an experiment sets `late_notices_us`, each load and unload is queued four times in all: once
immediately, and again after each of these times.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Load:
    """Load of a partition that this broker has begun to lead."""

    partition: Partition
    leader_epoch: int
    """The leader epoch of the partition when the load was scheduled. It may be higher by now."""
    scheduled_us: int
    """Time at which the load was scheduled, on the host's clock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Unload:
    """Unload of a partition that this broker no longer leads."""

    name: TopicPartition
    leader_epoch: int | None
    """Epoch in which another broker leads; None if the partition was deleted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Completion:
    """A producer's transaction has ended, and its marker is in these offsets partitions."""

    producer_id: int
    partitions: tuple[int, ...]
    is_commit: bool


@dataclass(frozen=True, slots=True)
class _Expiry:
    """Removal of offsets whose retention time is over."""


class CoordinatorTasks:
    """The tasks that wait in one broker, and the coroutine that carries them out."""

    def __init__(
        self,
        host: Host,
        cluster: ClusterSpec,
        replicas: ReplicaManager,
        coordination: GroupCoordination,
    ) -> None:
        self._host = host
        self._costs = cluster.costs
        self._replicas = replicas
        self._coordination = coordination
        self._turn_bytes = min(LOAD_TURN_BYTES, cluster.broker_config.offsets_load_buffer_size)
        self._late_notices_us = cluster.late_notices_us
        self._check_interval_us = cluster.broker_config.offsets_retention_check_interval_ms * 1_000
        self._queue: deque[_Load | _Unload | _Completion | _Expiry] = deque()
        """Tasks that wait, in the order of their scheduling."""
        self._wakeup: Future[None] | None = None
        """The future with which `run` waits for a task; None while it does not wait."""

    def start(self) -> None:
        """Begin to carry out tasks, and to remove expired offsets periodically.

        As in Kafka, the first removal comes after one interval: at the start no group is loaded.
        """
        self._host.after(self._check_interval_us, self._expire_later)
        self._coordination.metrics.start()
        self._host.spawn(self.run(), name="coordinator-tasks")

    def leadership_changed(self, leadership: LocalLeadership) -> None:
        """Schedule a load of each offsets partition that this broker leads now, and the unloads.

        A partition is unloaded if another broker became its leader, or if its topic was deleted.
        The coordinator ignores the unload of a partition that it has not loaded.
        """
        # The deletions come first: if a topic was deleted and created again, the old partition must
        # be unloaded before the new one is loaded.
        for name in leadership.deleted:
            if name.topic == CONSUMER_OFFSETS:
                self._schedule(_Unload(name=name, leader_epoch=None))
                self._trace(TraceKind.UNLOAD_SCHEDULED, name, None)
        for partition in leadership.became_leader:
            if partition.topic_partition.topic == CONSUMER_OFFSETS:
                self._schedule(
                    _Load(
                        partition=partition,
                        leader_epoch=partition.leader_epoch,
                        scheduled_us=self._host.now_us(),
                    )
                )
                self._trace(
                    TraceKind.LOAD_SCHEDULED, partition.topic_partition, partition.leader_epoch
                )
        for partition in leadership.became_follower:
            if partition.topic_partition.topic == CONSUMER_OFFSETS:
                self._schedule(
                    _Unload(name=partition.topic_partition, leader_epoch=partition.leader_epoch)
                )
                self._trace(
                    TraceKind.UNLOAD_SCHEDULED, partition.topic_partition, partition.leader_epoch
                )

    def complete_transaction(
        self, producer_id: int, partitions: tuple[int, ...], is_commit: bool
    ) -> None:
        """Schedule the completion of a transaction: its offsets become valid, or are dropped.

        Source: Kafka `GroupMetadataManager.scheduleHandleTxnCompletion`.
        """
        self._enqueue(
            _Completion(producer_id=producer_id, partitions=partitions, is_commit=is_commit)
        )

    def _schedule(self, task: _Load | _Unload) -> None:
        """Queue a load or unload; if `late_notices_us` is set, queue it again later.

        So an experiment can test what happens if a broker learns of a change of leadership late or
        twice. The coordinator must recognise a late task by its leader epoch, and ignore it.
        """
        self._enqueue(task)
        if self._late_notices_us:
            for percent in LATE_PERCENT:
                self._host.after(self._late_notices_us * percent // 100, self._enqueue, task)

    def _expire_later(self) -> None:
        """Queue a removal of expired offsets now, and again after each interval."""
        self._enqueue(_Expiry())
        self._host.after(self._check_interval_us, self._expire_later)

    def _enqueue(self, task: _Load | _Unload | _Completion | _Expiry) -> None:
        self._queue.append(task)
        if self._wakeup is not None and not self._wakeup.done():
            self._wakeup.set_result(None)

    async def run(self) -> None:
        """Carry out one task after the other, without end."""
        while True:
            if not self._queue:
                self._wakeup = self._host.create_future()
                await self._wakeup
                self._wakeup = None
                continue
            match self._queue.popleft():
                case _Load() as load:
                    await self._load(load)
                case _Unload() as unload:
                    self._unload(unload)
                case _Completion() as completion:
                    self._complete(completion)
                case _Expiry():
                    self._coordination.expire_offsets()

    async def _load(self, load: _Load) -> None:
        """Load a partition.

        1. The coordinator accepts the load, or ignores it if it is outdated or repeated.
        2. The log is read in turns. Meanwhile requests for the partition's groups are answered with
           COORDINATOR_LOAD_IN_PROGRESS.
        3. The coordinator makes the groups, and serves the partition.
        """
        host = self._host
        coordinator = self._coordination.coordinator
        name = load.partition.topic_partition
        begun = coordinator.begin_load(name.partition, load.leader_epoch, host.wall_us())
        if isinstance(begun, LoadIgnored):
            self._trace_ignored(TraceKind.LOAD_IGNORED, name, load.leader_epoch, begun)
            return
        self._trace(
            TraceKind.LOAD_STARTED,
            name,
            load.leader_epoch,
            detail={"wait_us": host.now_us() - load.scheduled_us},
        )
        self._coordination.carry_out(begun)

        def take(batches: tuple[RecordBatch, ...]) -> None:
            self._coordination.carry_out(coordinator.load_batches(name.partition, batches))

        read = await read_log(host, self._costs, load.partition, take, turn_bytes=self._turn_bytes)
        # If this broker stopped leading meanwhile, `read_log` has not read the whole log.
        stopped = None if load.partition.is_leader else "NOT_LEADER_OR_FOLLOWER"
        self._coordination.carry_out(
            coordinator.finish_load(name.partition, host.wall_us(), stopped=stopped)
        )
        # During the load, the coordinator was not informed of the growth of the log. `loaded` now
        # informs the coordinator of the log's end.
        self._coordination.loaded(load.partition)
        detail: dict[str, object] = {"records": read.records, "bytes": read.size_in_bytes}
        self._finished(load, read.position, detail)

    def _finished(self, load: _Load, position: int, detail: dict[str, object]) -> None:
        """Report how a load ended. `detail` has the records and bytes that were read."""
        coordinator = self._coordination.coordinator
        name = load.partition.topic_partition
        # `finish_load` has stored the report. The tests of `report` for None are only for mypy.
        report = coordinator.load_report(name.partition)
        error = None if report is None else report.error
        if error is not None:
            self._host.log(f"load of {name} stopped early: {error}")
        if report is not None and report.unknown_records:
            detail["ignored"] = report.unknown_records
            self._host.log(f"load of {name} ignored {report.unknown_records} records: unknown keys")
        if coordinator.is_owned(name.partition):  # the coordinator serves the partition now
            detail["groups"] = self._group_count(name.partition)
            kind = TraceKind.LOAD_COMPLETED
            self._coordination.metrics.loaded(self._host.now_us() - load.scheduled_us)
        else:
            kind = TraceKind.LOAD_FAILED
        self._trace(kind, name, load.leader_epoch, offset=position, cause_text=error, detail=detail)

    def _unload(self, unload: _Unload) -> None:
        """Unload a partition, unless the coordinator ignores an outdated or repeated task."""
        name = unload.name
        groups = self._group_count(name.partition)  # before the unload, which removes them
        result = self._coordination.coordinator.unload(
            name.partition, unload.leader_epoch, self._host.wall_us()
        )
        # LoadIgnored is the result for an ignored unload, too.
        if isinstance(result, LoadIgnored):
            self._trace_ignored(TraceKind.UNLOAD_IGNORED, name, unload.leader_epoch, result)
            return
        self._coordination.carry_out(result)
        self._trace(
            TraceKind.UNLOAD_COMPLETED, name, unload.leader_epoch, detail={"groups": groups}
        )

    def _complete(self, completion: _Completion) -> None:
        """Complete a producer's transaction: its offsets become valid, or are dropped."""
        result = self._coordination.coordinator.transaction_completed(
            completion.producer_id,
            completion.partitions,
            is_commit=completion.is_commit,
            now_us=self._host.wall_us(),
        )
        self._coordination.carry_out(result)

    def _group_count(self, partition: int) -> int:
        """Return the number of groups in memory that belong to an offsets partition."""
        groups = self._coordination.coordinator.groups()
        return sum(group.partition == partition for group in groups)

    def _trace_ignored(
        self, kind: TraceKind, name: TopicPartition, leader_epoch: int | None, ignored: LoadIgnored
    ) -> None:
        """Trace a task that the coordinator ignored, with the reason."""
        self._host.trace(
            TraceEvent(
                kind=kind,
                partition=str(name),
                leader_epoch=leader_epoch,
                cause=ignored.reason,
                detail={"known_epoch": ignored.known_epoch},
            )
        )

    def _trace(
        self,
        kind: TraceKind,
        name: TopicPartition,
        leader_epoch: int | None,
        *,
        offset: int | None = None,
        cause_text: str | None = None,
        detail: dict[str, object] | None = None,
    ) -> None:
        self._host.trace(
            TraceEvent(
                kind=kind,
                partition=str(name),
                leader_epoch=leader_epoch,
                offset=offset,
                detail=detail,
                cause_text=cause_text,
            )
        )
