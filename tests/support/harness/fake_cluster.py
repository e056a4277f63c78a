"""A small cluster of fake nodes, for tests of the runtimes: consumers send heartbeats to brokers.

Two runs with the same seed must have equal traces (recorded events). For this, a node must do
nothing that the seed does not determine. Its random values come from the random generator of its
host, which gives a node access to clock, network, disk and randomness. Two kinds of consumers
break this rule on purpose. With them a test shows that a comparison of traces notices the breach.
"""

import random
from collections.abc import Callable

from cluster.host.host import Disconnected, Host, RequestTimedOut
from cluster.host.incoming_request import IncomingRequest
from cluster.node_factory import Node
from cluster.runtime import ClusterStatus, GroupStatus, MemberStatus
from cluster.spec import BrokerSpec, ClusterSpec, ConsumerSpec, ControllerSpec, NodeSpec
from protocol.ids import BrokerId, NodeName, offsets_partition
from protocol.messages.group import HeartbeatRequest, HeartbeatResponse
from protocol.records.batch import RecordBatch
from protocol.trace import TraceEvent, TraceKind

MS = 1_000
"""One millisecond in microseconds."""


def fake_spec(brokers: int = 3, consumers: int = 4) -> ClusterSpec:
    """Return a cluster of one controller, some brokers and some consumers."""
    return ClusterSpec(
        controllers=(ControllerSpec(node_id=100),),
        brokers=tuple(BrokerSpec(broker_id=index) for index in range(brokers)),
        topics=(),
        consumers=tuple(
            ConsumerSpec(name=NodeName(f"consumer-{index}"), group_id="g", index=index, topics=())
            for index in range(consumers)
        ),
    )


class FakeController:
    """A controller that neither sends nor answers anything."""

    def __init__(self, host: Host) -> None:
        self.host = host

    def start(self) -> None:
        """Start without any work."""

    def shut_down(self, on_done: Callable[[], None]) -> None:
        """Stop immediately."""
        on_done()

    def report(self, status: ClusterStatus) -> None:
        """Report nothing."""


class FakeBroker:
    """Answers heartbeats after a random delay. For each heartbeat it appends a batch to a log."""

    def __init__(self, host: Host, spec: BrokerSpec) -> None:
        self.host = host
        self.spec = spec
        self.log = host.storage.log(offsets_partition(0))

    def start(self) -> None:
        """Serve."""
        self.host.serve(self.handle)

    def handle(self, request: IncomingRequest) -> None:
        """Append a batch to the log on the disk, and answer within 2 ms."""
        offset = len(self.log)
        self.log.append(
            RecordBatch(
                base_offset=offset,
                partition_leader_epoch=0,
                last_offset_delta=0,
                max_timestamp_ms=self.host.wall_us() // MS,
                records=b"",
            )
        )
        self.host.trace(TraceEvent(kind=TraceKind.APPEND_STARTED, offset=offset))
        delay_us = self.host.rng.randrange(2 * MS)
        self.host.after(delay_us, self.host.reply, request.request_id, HeartbeatResponse())

    def shut_down(self, on_done: Callable[[], None]) -> None:
        """Stop immediately."""
        on_done()

    def report(self, status: ClusterStatus) -> None:
        """Report how many batches are on the disk.

        A status has no field for that, so the generation of a group is used.
        """
        status.groups.setdefault("g", []).append(
            GroupStatus(
                coordinator=BrokerId(self.spec.broker_id),
                offsets_partition=0,
                state="Stable",
                generation=len(self.log),
                members=(),
            )
        )


class FakeConsumer:
    """Sends five heartbeats to each broker in turn, over and over.

    After a heartbeat without an answer, the consumer waits 20 ms and goes on to the next broker.
    """

    request_timeout_us = 50 * MS

    def __init__(self, host: Host, cluster: ClusterSpec, spec: ConsumerSpec) -> None:
        self.host = host
        self.cluster = cluster
        self.spec = spec
        self.acknowledged = 0

    def start(self) -> None:
        """Begin to send heartbeats."""
        self.host.spawn(self.run(), name="heartbeats")

    async def run(self) -> None:
        """Send heartbeats for ever."""
        # The consumers begin with different brokers.
        turn = self.spec.index
        while True:
            broker = self.cluster.brokers[turn % len(self.cluster.brokers)]
            turn += 1
            connection = self.host.connect(broker.name, "coordinator", setup_timeout_us=100 * MS)
            try:
                for _ in range(5):
                    await self.host.sleep(10 * MS + self.host.rng.randrange(10 * MS))
                    request = HeartbeatRequest(
                        group_id=self.spec.group_id,
                        # No two requests of a consumer shall be equal. So send a number that grows
                        # with each answer.
                        generation_id=self.acknowledged,
                        member_id=self.spec.name,
                    )
                    await connection.call(request, timeout_us=self.request_timeout_us)
                    self.acknowledged += 1
            except (Disconnected, RequestTimedOut):
                await self.host.sleep(20 * MS)
            connection.close()

    def shut_down(self, on_done: Callable[[], None]) -> None:
        """Stop immediately."""
        on_done()

    def report(self, status: ClusterStatus) -> None:
        """Report how many heartbeats were answered.

        A status has no field for that, so the number of acknowledged commits is used.
        """
        status.members[self.host.name] = MemberStatus(
            group_id=self.spec.group_id,
            member_id=self.spec.name,
            generation=0,
            state="stable",
            coordinator=None,
            assigned=(),
            records_consumed=0,
            commits_acknowledged=self.acknowledged,
        )


class SetIteratingConsumer(FakeConsumer):
    """Breaks the rule: it takes its brokers in the order of a set.

    The order of a set of strings differs between processes, even with the same seed.
    """

    async def run(self) -> None:
        """Connect to every broker, over and over."""
        while True:
            for name in {broker.name for broker in self.cluster.brokers}:
                await self.host.sleep(10 * MS)
                connection = self.host.connect(name, "coordinator", setup_timeout_us=100 * MS)
                connection.close()


class GlobalRandomConsumer(FakeConsumer):
    """Breaks the rule: its waits come from Python's global generator instead of the host's."""

    async def run(self) -> None:
        """Connect to one broker over and over, after random waits."""
        while True:
            await self.host.sleep(random.randrange(20 * MS))
            name = self.cluster.brokers[0].name
            self.host.connect(name, "coordinator", setup_timeout_us=100 * MS).close()


def fake_builder(
    consumer: Callable[[Host, ClusterSpec, ConsumerSpec], Node] = FakeConsumer,
    broker: Callable[[Host, BrokerSpec], Node] = FakeBroker,
) -> Callable[[NodeSpec, ClusterSpec, Host], Node]:
    """Return a function that builds fake nodes. A runtime can use it instead of `build_node`.

    A test may pass other classes of consumers and brokers.
    """

    def build(spec: NodeSpec, cluster: ClusterSpec, host: Host) -> Node:
        match spec:
            case BrokerSpec():
                return broker(host, spec)
            case ConsumerSpec():
                return consumer(host, cluster, spec)
            case _:
                return FakeController(host)

    return build
