"""The node of a consumer on ZooKeeper: its connector, and an application with a stream per topic.

A connector is the old consumer itself. It fetches records, and puts chunks (ranges of records of
one partition) into the queue of each stream. The application takes the chunks from the queues and
processes their records. The application commits nothing; the connector commits periodically.

If a connector cannot start, the application closes it and starts another connector. The programs
with which we measured Kafka's old consumer did the same (docs/kafka/MEASURED_ZOOKEEPER.md). Ids
such as ZK-35 are rules in docs/kafka/ZOOKEEPER_CONSUMER.md.
"""

from collections.abc import Callable

from cluster.client.record_work import RecordWork
from cluster.client.zookeeper_consumer.connector import ZooKeeperConsumerConnector
from cluster.client.zookeeper_consumer.rebalance import ConsumerRebalanceFailedException
from cluster.client.zookeeper_consumer.streams import Chunk, ChunkQueue
from cluster.host.host import Host
from cluster.runtime import ClusterStatus, MemberStatus
from cluster.spec import ClusterSpec, ZooKeeperConsumerSpec
from cluster.zookeeper.client import KeeperException
from protocol.ids import NO_GENERATION
from protocol.trace import TraceKind

STABLE = "STABLE"
"""State of a member that has claimed its partitions and is connected to ZooKeeper."""
REBALANCING = "REBALANCING"
"""State of a member that is not STABLE."""
_MS = 1_000  # microseconds in a millisecond


class ZooKeeperConsumerNode:
    """One member of a group on ZooKeeper."""

    def __init__(self, host: Host, cluster: ClusterSpec, spec: ZooKeeperConsumerSpec) -> None:
        self._host = host
        self._spec = spec
        # Only a host on a simulated clock simulates the time that the start takes. In real time,
        # the start of the real process takes time anyway, so 0 is added.
        self._start_us = cluster.costs.zookeeper_consumer_start_us if host.simulates_costs else 0
        self._work = RecordWork(host, spec.process_us, spec.process_spread_us)
        self._servers = tuple(server.name for server in cluster.zookeepers)
        self._connector: ZooKeeperConsumerConnector | None = None
        """The present connector; None before the first connector and between two connectors."""
        self._is_stopping = False
        self._records_consumed = 0
        self._commits_before = 0
        """Number of offsets that earlier connectors committed."""

    @property
    def connector(self) -> ZooKeeperConsumerConnector | None:
        """The present connector, for tests and inspection; None between two connectors."""
        return self._connector

    def start(self) -> None:
        """Begin to consume."""
        self._host.spawn(self._run(), name="application")

    def shut_down(self, on_done: Callable[[], None]) -> None:
        """Shut the connector down (it commits, and closes its session), then call `on_done`."""
        self._is_stopping = True
        if self._connector is None:
            on_done()
        else:
            self._host.spawn(self._connector.shut_down(on_done), name="shutdown")

    def report(self, status: ClusterStatus) -> None:
        """Add an entry to `status` with this member's own view of its state."""
        connector = self._connector
        if connector is None:
            return
        rebalancer = connector.rebalancer
        status.members[self._host.name] = MemberStatus(
            group_id=self._spec.group_id,
            member_id=connector.member.consumer_id,
            generation=NO_GENERATION,
            state=STABLE if rebalancer.is_settled and connector.is_connected else REBALANCING,
            coordinator=None,
            assigned=rebalancer.reading,
            records_consumed=self._records_consumed,
            commits_acknowledged=self._commits_before + connector.offsets.acknowledged,
        )

    async def _run(self) -> None:
        """Start connectors until one has started, or the node stops."""
        while not self._is_stopping:
            connector = self._connector = ZooKeeperConsumerConnector(
                self._host, self._spec, self._servers, start_us=self._start_us
            )
            for topic, queue in connector.queues.items():
                self._host.spawn(self._process(connector, queue), name=f"stream-{topic}")
            try:
                await connector.start()
            except (ConsumerRebalanceFailedException, KeeperException) as error:
                # A KeeperException means, for example, that the registration of an earlier session
                # with the same consumer id still exists (ZK-36).
                # The text names Kafka's method that starts a consumer.
                self._host.log(f"createMessageStreams: {error}")
                if self._is_stopping:
                    # `shut_down` was called while this coroutine waited for the start above, and
                    # closes the connector itself.
                    return
                await self._close(connector)
                await self._host.sleep(self._spec.restart_ms * _MS)
            else:
                return

    async def _close(self, connector: ZooKeeperConsumerConnector) -> None:
        """Shut a connector down, and wait until its session is closed."""
        closed = self._host.create_future()
        await connector.shut_down(lambda: closed.set_result(None))
        await closed
        self._commits_before += connector.offsets.acknowledged
        self._connector = None

    async def _process(self, connector: ZooKeeperConsumerConnector, queue: ChunkQueue) -> None:
        """Process the records of one stream, until the connector is shut down."""
        while (chunk := await queue.take()) is not None:
            # If the work on a record takes no time, a whole chunk is processed in one step.
            if not self._work.costs_time:
                chunk.info.consumed_offset = chunk.last + 1
                self._processed(connector, chunk, chunk.first, chunk.last)
                continue
            for offset in range(chunk.first, chunk.last + 1):
                if queue.current is not chunk:
                    break  # a rebalance has cleared the queue, and the rest of this chunk
                # Kafka advances the offset before the application has processed the record, so a
                # commit may include a record that is still being processed (ZK-35).
                chunk.info.consumed_offset = offset + 1
                work_us = self._work.draw_us(1)  # time to process this one record
                await self._host.sleep(work_us)
                self._processed(connector, chunk, offset, offset, work_us)

    def _processed(
        self,
        connector: ZooKeeperConsumerConnector,
        chunk: Chunk,
        first: int,
        last: int,
        work_us: int = 0,
    ) -> None:
        """Count and trace the records `first` to `last` of a chunk."""
        count = last - first + 1
        self._records_consumed += count
        detail: dict[str, object] = {"count": count, "last": last}
        if self._work.costs_time:
            detail["work_us"] = work_us
        connector.member.trace(
            TraceKind.RECORDS_CONSUMED, detail, partition=chunk.info.partition, offset=first
        )
