"""Loads and unloads of the transaction coordinator: loads one at a time, unloads immediately.

When this broker becomes the leader of a partition of `__transaction_state`, it loads the partition:
it reads the log into the coordinator's memory. It reads in turns, so that other tasks run in
between. When another broker becomes the leader, this broker unloads the partition: it drops the
partition from memory. As in Kafka, an unload does not wait for anything. If a partition is unloaded
during its load, the load has no effect. The leader epoch shows that the load is out of date.

The group coordinator loads its partitions in a queue of its own (`coordinator_tasks`), because in
Kafka the group coordinator has a thread of its own.

Source: Kafka `TransactionStateManager.loadTransactionsForTxnTopicPartition`,
`removeTransactionsForTxnTopicPartition`.
"""

from asyncio import Future
from collections import deque

from cluster.broker.coordination.log_loading import LOAD_TURN_BYTES, read_log
from cluster.broker.replication.replica_manager import LocalLeadership
from cluster.broker.transactions.transaction_coordination import TransactionCoordination
from cluster.host.host import Host
from cluster.spec import ClusterSpec
from partition_log.replica import Partition
from protocol.ids import TRANSACTION_STATE
from protocol.records.batch import RecordBatch
from protocol.trace import TraceEvent, TraceKind


class TransactionTasks:
    """The loads that wait in one broker, and the coroutine that carries them out."""

    def __init__(
        self, host: Host, cluster: ClusterSpec, coordination: TransactionCoordination
    ) -> None:
        self._host = host
        self._costs = cluster.costs  # the times that the reading of a log takes in virtual time
        self._coordination = coordination
        self._queue: deque[Partition] = deque()
        """Partitions that wait for the reading of their logs."""
        self._wakeup: Future[None] | None = None
        """The future for which `run` waits while the queue is empty. Otherwise None."""

    def leadership_changed(self, leadership: LocalLeadership) -> None:
        """Unload the partitions that this broker lost, and queue loads of its new partitions."""
        coordinator = self._coordination.coordinator
        # A partition is lost if another broker became its leader, or if its topic was deleted. The
        # unload of a partition that is not in memory changes nothing.
        for partition in leadership.became_follower:
            name = partition.topic_partition
            if name.topic == TRANSACTION_STATE:
                coordinator.unload(name.partition)
        for name in leadership.deleted:
            if name.topic == TRANSACTION_STATE:
                coordinator.unload(name.partition)
        for partition in leadership.became_leader:
            name = partition.topic_partition
            if name.topic == TRANSACTION_STATE:
                # For the coordinator, the load begins now, although the reading may have to wait in
                # the queue. Until the load ends, requests are answered
                # COORDINATOR_LOAD_IN_PROGRESS.
                coordinator.begin_load(name.partition, partition.leader_epoch)
                self._queue.append(partition)
        if self._queue and self._wakeup is not None and not self._wakeup.done():
            self._wakeup.set_result(None)

    async def run(self) -> None:
        """Carry out one load after the other, without end."""
        while True:
            if self._queue:
                await self._load(self._queue.popleft())
                continue
            self._wakeup = self._host.create_future()
            await self._wakeup
            self._wakeup = None

    async def _load(self, partition: Partition) -> None:
        """Read a partition's log, and let the coordinator serve the partition."""
        coordinator = self._coordination.coordinator
        index = partition.topic_partition.partition
        epoch = partition.leader_epoch

        def is_current() -> bool:
            """Return True until the partition is unloaded, or loaded in a newer epoch."""
            return coordinator.loading_epoch(index) == epoch

        def take(batches: tuple[RecordBatch, ...]) -> None:
            """Pass batches to the coordinator, unless the load is out of date."""
            if is_current():
                coordinator.load_batches(index, batches)

        if not is_current():
            return  # the partition was unloaded while the load waited in the queue
        read = await read_log(self._host, self._costs, partition, take, turn_bytes=LOAD_TURN_BYTES)
        if not is_current() or partition.leader_epoch != epoch:
            return  # The partition was unloaded meanwhile, or queued again in a newer epoch.
        error = coordinator.load_error(index)
        if error is not None:
            self._host.log(f"load of {partition.topic_partition} stopped early: {error}")
        self._coordination.carry_out(coordinator.finish_load(index, self._host.wall_us()))
        detail: dict[str, object] = {
            "records": read.records,
            "transactional_ids": coordinator.count(index),
        }
        open_transactions = coordinator.open_transactions(index)
        if open_transactions:
            # transactional id -> the state of the id's open transaction
            detail["open"] = {name: state.value for name, state in open_transactions.items()}
        self._host.trace(
            TraceEvent(
                kind=TraceKind.TRANSACTIONS_LOADED,
                partition=str(partition.topic_partition),
                leader_epoch=epoch,
                offset=read.position,
                detail=detail,
            )
        )
