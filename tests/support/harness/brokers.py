"""A cluster of a controller and brokers in virtual time, with a client that sends single requests.

A test writes a story: a coroutine function that gets a BrokerLab, sends requests with its client,
lets time pass, and crashes brokers. Afterwards the test looks at the rows of the trace.

Usually the cluster is made by `broker_cluster`: it has brokers 0, 1 and 2, and the topic `orders`
with three partitions. At first broker n leads partition n.
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
"""The node of the test's client.

A ClusterSpec has no place for such a client. So it lists a producer with this name, and BrokerLab
builds a TestClient instead.
"""
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
    """Return a cluster of three brokers, with three replicas of `orders` and `__consumer_offsets`.

    preload: committed offsets that are already in `__consumer_offsets` when the run begins.
    guards: safety rules of Kafka, which a test can switch off.
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
        # BrokerLab builds a TestClient instead of this producer.
        producers=(ProducerSpec(name=CLIENT, topic=ORDERS, records_per_second=1),),
    )


class TestClient:
    """A node that sends the requests of a test, on one connection to each broker."""

    # Otherwise pytest would take this class for tests, because its name begins with Test.
    __test__ = False

    def __init__(self, host: Host) -> None:
        self.host = host
        self._connections: dict[int, Connection] = {}

    def start(self) -> None:
        """Do nothing, because the test decides when requests are sent."""

    def shut_down(self, on_done: Callable[[], None]) -> None:
        """Stop immediately."""
        on_done()

    def report(self, status: ClusterStatus) -> None:
        """Report nothing."""

    async def call(
        self,
        broker_id: int,
        request: AnyRequest,
        *,
        timeout_us: int = TIMEOUT_US,
        api_version: int | None = None,
    ) -> AnyResponse:
        """Send a request to a broker, and return the answer.

        By default the request is sent in the newest version of its API.
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
        """Produce a batch with these values, and return the broker's answer for the partition.

        With the default, acks=all (-1), the broker answers when all in-sync replicas have the
        batch.
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
        """Produce a batch, and return the broker's answer for the partition."""
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
        """Fetch from a partition as a consumer does, and return the answer for the partition."""
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
        """Ask a broker which broker coordinates a group."""
        response = await self.call(broker_id, FindCoordinatorRequest(coordinator_keys=(group_id,)))
        assert isinstance(response, FindCoordinatorResponse)
        return response.coordinators[0]

    async def commit(
        self, broker_id: int, group_id: str, offset: int, *, partitions: tuple[int, ...] = (0,)
    ) -> OffsetCommitResponse:
        """Commit an offset for each of the partitions.

        The request has no member and no generation. A consumer that is no member of the group
        commits in this way.
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
    """Return the values of the records in an answer to `fetch`."""
    return [record.value for batch in data.records for _, record in records_of(batch, CODECS)]


class BrokerLab:
    """A cluster in virtual time, with a client.

    `rows` has the rows of the trace, in which all events of the cluster are recorded.
    """

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
        # The disk of each node, as the node got it at its last start.
        self.storages: dict[NodeName, Storage] = {}
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
        """Start the cluster, carry out `story`, stop the cluster, and return the story's result."""

        async def main() -> T:
            await self.start()
            try:
                return await story(self)
            finally:
                await self.runtime.stop()

        result = self.runtime.run(main())
        # The story may crash nodes, but no node may have failed because of a bug.
        assert self.runtime.failures() == ()
        return result

    async def start(self) -> None:
        """Start the cluster, and wait until all brokers know the leaders of the partitions."""
        await self.runtime.start()
        await self.until(self._has_partitions)
        # Within a second, every broker reads from the metadata log what the controller decided.
        await self.seconds(1)

    async def seconds(self, duration_s: float) -> None:
        """Let virtual time pass: `await lab.seconds(1.5)`."""
        await self.runtime.sleep(round(duration_s * SECOND_US))

    async def until(
        self, condition: Callable[[ClusterStatus], bool], *, at_most_s: float = 30
    ) -> ClusterStatus:
        """Wait until the status of the cluster fulfils `condition`, and return this status.

        The condition is checked every 20 ms.

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
        """Start a crashed broker again, on its old disk."""
        await self.runtime.restart(broker_name(broker_id))

    @property
    def controller(self) -> NodeName:
        """The node of the controller."""
        return controller_name(CONTROLLER)

    def events(self, kind: TraceKind, node: str | None = None) -> list[TraceRow]:
        """Return the rows of this kind, of one node or of all nodes."""
        return [
            row
            for row in self.rows
            if row.kind == kind.value and (node is None or row.node == node)
        ]

    def _has_partitions(self, status: ClusterStatus) -> bool:
        """Return True if the controller has created the partitions, with their first leaders."""
        return len(status.partitions) > 0

    def _build(self, spec: NodeSpec, cluster: ClusterSpec, host: Host) -> Node:
        """Build a node, and keep its disk. Instead of the producer, build a TestClient."""
        self.storages[host.name] = host.storage
        if isinstance(spec, ProducerSpec):
            self.client = TestClient(host)
            return self.client
        return build_node(spec, cluster, host)
