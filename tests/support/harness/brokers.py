"""A cluster of controller and brokers in virtual time, and a client for single requests.

Virtual time is the run's own simulated clock. BrokerLab has the cluster and its trace, that is, the
recorded events. A test gives the lab a story: a coroutine function that gets the lab, sends
requests, waits, and changes the cluster. The cluster has brokers 0, 1 and 2, and the topic `orders`
of three partitions. At first broker n leads partition n.
"""

from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from cluster.host.host import Connection, Host
from cluster.node_factory import Node, build_node
from cluster.runtime import ClusterStatus
from cluster.spec import ClusterSpec, NodeSpec, PreloadSpec, ProducerSpec, TopicSpec
from cluster.storage.compression import CODECS
from cluster.virtual.host import LogSink
from cluster.virtual.runtime import VirtualRuntime
from partition_log.batches import build_batch
from partition_log.storage import Storage
from protocol.api import AnyRequest, AnyResponse
from protocol.config import BrokerConfig, Guards, TopicConfig
from protocol.ids import CONSUMER_OFFSETS, NodeName, broker_name, controller_name
from protocol.messages.discovery import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from protocol.messages.log import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from protocol.messages.offset import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from protocol.records.batch import Record, RecordBatch, records_of
from protocol.trace import TraceKind, TraceRow
from tests.support.harness.controllers import CONTROLLER, NO_BALANCING, cluster_of

T = TypeVar("T")

CLIENT = NodeName("client-0")
"""Node of the test's client. The specification of a cluster must list it, and lists it as a
producer."""
ORDERS = "orders"
SECOND_US = 1_000_000
TIMEOUT_US = 30 * SECOND_US


def broker_cluster(
    *,
    config: BrokerConfig = NO_BALANCING,
    offsets_partitions: int = 3,
    min_insync_replicas: int = 2,
    preload: tuple[PreloadSpec, ...] = (),
    guards: Guards | None = None,
) -> ClusterSpec:
    """Return three brokers and the topics `orders` and `__consumer_offsets` with three replicas.

    preload: records of committed offsets that are in `__consumer_offsets` before the run.
    guards: Kafka's checks, which a test can switch off.
    """
    settings = TopicConfig(min_insync_replicas=min_insync_replicas)
    base = cluster_of(
        TopicSpec(
            name=CONSUMER_OFFSETS,
            partitions=offsets_partitions,
            replication_factor=3,
            config=settings,
        ),
        TopicSpec(name=ORDERS, partitions=3, replication_factor=3, config=settings),
        config=config,
    )
    return ClusterSpec(
        controllers=base.controllers,
        brokers=base.brokers,
        topics=base.topics,
        broker_config=config,
        guards=guards or Guards(),
        preload=preload,
        # In the place of this producer BrokerLab builds a TestClient.
        producers=(ProducerSpec(name=CLIENT, topic=ORDERS, records_per_second=1),),
    )


class TestClient:
    """A node that keeps one connection to each broker and sends a test's requests."""

    __test__ = False  # pytest collects classes whose names begin with Test

    def __init__(self, host: Host) -> None:
        self.host = host
        self._connections: dict[int, Connection] = {}

    def start(self) -> None:
        """Do nothing: the node acts only when a test calls one of its methods."""

    def shut_down(self, on_done: Callable[[], None]) -> None:
        """Stop immediately."""
        on_done()

    def report(self, status: ClusterStatus) -> None:
        """Report nothing: a client has no status."""

    async def call(
        self,
        broker_id: int,
        request: AnyRequest,
        *,
        timeout_us: int = TIMEOUT_US,
        api_version: int | None = None,
    ) -> AnyResponse:
        """Send `request` to a broker, and return the answer.

        The client first connects to the broker if it has no open connection. By default the request
        has the newest version of its API.
        """
        connection = self._connections.get(broker_id)
        if connection is None or connection.is_closed:
            connection = self._connections[broker_id] = self.host.connect(
                broker_name(broker_id), "test", setup_timeout_us=SECOND_US
            )
        return await connection.call(request, timeout_us=timeout_us, api_version=api_version)

    async def produce(
        self,
        broker_id: int,
        *values: bytes,
        partition: int = 0,
        acks: int = -1,
        timeout_ms: int = 10_000,
        topic: str = ORDERS,
    ) -> PartitionProduceResponse:
        """Send one batch to a broker and return the broker's answer for the partition.

        With `acks` -1 the broker answers when all in-sync replicas have the batch.
        """
        return await self.produce_batch(
            broker_id,
            build_batch(tuple(Record(None, value) for value in values)),
            partition=partition,
            acks=acks,
            timeout_ms=timeout_ms,
            topic=topic,
        )

    async def produce_batch(
        self,
        broker_id: int,
        batch: RecordBatch,
        *,
        partition: int = 0,
        acks: int = -1,
        timeout_ms: int = 10_000,
        topic: str = ORDERS,
    ) -> PartitionProduceResponse:
        """Produce a prepared batch and return the answer for its partition."""
        response = await self.call(
            broker_id,
            ProduceRequest(
                acks=acks,
                timeout_ms=timeout_ms,
                topic_data=(
                    TopicProduceData(
                        name=topic,
                        partition_data=(PartitionProduceData(index=partition, records=batch),),
                    ),
                ),
            ),
        )
        assert isinstance(response, ProduceResponse)
        return response.responses[0].partition_responses[0]

    async def fetch(
        self,
        broker_id: int,
        offset: int = 0,
        *,
        partition: int = 0,
        max_wait_ms: int = 0,
        min_bytes: int = 1,
        topic: str = ORDERS,
    ) -> PartitionData:
        """Fetch from one partition as a consumer does, and return the answer for the partition."""
        position = FetchPartition(partition=partition, fetch_offset=offset)
        response = await self.call(
            broker_id,
            FetchRequest(
                max_wait_ms=max_wait_ms,
                min_bytes=min_bytes,
                topics=(FetchTopic(topic=topic, partitions=(position,)),),
            ),
        )
        assert isinstance(response, FetchResponse)
        return response.responses[0].partitions[0]

    async def find_coordinator(self, broker_id: int, group_id: str) -> Coordinator:
        """Ask a broker for the coordinator of a group."""
        response = await self.call(broker_id, FindCoordinatorRequest(coordinator_keys=(group_id,)))
        assert isinstance(response, FindCoordinatorResponse)
        return response.coordinators[0]

    async def commit(
        self, broker_id: int, group_id: str, offset: int, *, partitions: tuple[int, ...] = (0,)
    ) -> OffsetCommitResponse:
        """Commit the same offset for each of `partitions`.

        The request names no member and no generation, like that of a consumer outside the group.
        """
        response = await self.call(
            broker_id,
            OffsetCommitRequest(
                group_id=group_id,
                topics=(
                    OffsetCommitRequestTopic(
                        name=ORDERS,
                        partitions=tuple(
                            OffsetCommitRequestPartition(
                                partition_index=partition, committed_offset=offset
                            )
                            for partition in partitions
                        ),
                    ),
                ),
            ),
        )
        assert isinstance(response, OffsetCommitResponse)
        return response


def values_of(data: PartitionData) -> list[bytes | None]:
    """Return the values of the fetched records."""
    return [record.value for batch in data.records for _, record in records_of(batch, CODECS)]


class BrokerLab:
    """A virtual cluster that has started, its trace, and a client."""

    def __init__(
        self,
        cluster: ClusterSpec,
        *,
        seed: int = 7,
        copy_messages: bool = False,
        log: LogSink | None = None,
    ) -> None:
        self.cluster = cluster
        self.rows: list[TraceRow] = []
        self.storages: dict[NodeName, Storage] = {}
        """The disk of each node since its last start."""
        self.client: TestClient
        self.runtime = VirtualRuntime(
            cluster,
            seed=seed,
            run_id="test",
            observers=(self.rows.append,),
            copy_messages=copy_messages,
            log=log,
            build=self._build,
        )

    def run(self, story: Callable[["BrokerLab"], Coroutine[Any, Any, T]]) -> T:
        """Start the cluster, wait until partitions have leaders, play `story`, and stop."""

        async def main() -> T:
            await self.start()
            try:
                return await story(self)
            finally:
                await self.runtime.stop()

        result = self.runtime.run(main())
        # The story may crash nodes, but no node may have failed by a bug.
        assert self.runtime.failures() == ()
        return result

    async def start(self) -> None:
        """Start the cluster and wait until partitions have leaders."""
        await self.runtime.start()
        await self.until(self._has_started)
        await self.seconds(1)  # long enough for every broker to apply the metadata

    async def seconds(self, duration_s: float) -> None:
        """Advance the time."""
        await self.runtime.sleep(round(duration_s * SECOND_US))

    async def until(
        self, condition: Callable[[ClusterStatus], bool], *, at_most_s: float = 30
    ) -> ClusterStatus:
        """Check `condition` every 20 ms, and return the first status for which it holds.

        Raises: TimeoutError after `at_most_s` of virtual time.
        """
        deadline_us = self.runtime.now_us() + round(at_most_s * SECOND_US)
        while True:
            status = await self.runtime.status()
            if condition(status):
                return status
            if self.runtime.now_us() > deadline_us:
                raise TimeoutError(f"not within {at_most_s} s; {status}")
            await self.runtime.sleep(20_000)

    async def kill(self, broker_id: int) -> None:
        """Crash a broker."""
        await self.runtime.crash(broker_name(broker_id))

    async def restart(self, broker_id: int) -> None:
        """Start a broker again on its disk."""
        await self.runtime.restart(broker_name(broker_id))

    @property
    def controller(self) -> NodeName:
        """Name of the controller."""
        return controller_name(CONTROLLER)

    def events(self, kind: TraceKind, node: str | None = None) -> list[TraceRow]:
        """Return the rows of one kind, of all nodes or of `node` alone."""
        return [
            row
            for row in self.rows
            if row.kind == kind.value and (node is None or row.node == node)
        ]

    def _has_started(self, status: ClusterStatus) -> bool:
        """Return True once the controller has published partitions."""
        return len(status.partitions) > 0

    def _build(self, spec: NodeSpec, cluster: ClusterSpec, host: Host) -> Node:
        """Build a node as in any run, but a TestClient for a producer. Keep the node's disk."""
        self.storages[host.name] = host.storage
        if isinstance(spec, ProducerSpec):
            self.client = TestClient(host)
            return self.client
        return build_node(spec, cluster, host)
