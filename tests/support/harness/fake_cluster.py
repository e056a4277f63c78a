"""A small cluster of fake nodes on the virtual runtime: consumers send, brokers answer.

The fake cluster is for tests of the runtime itself. A host is a node's access to clock, network,
disk and randomness.

Tests compare the traces (recorded events) of two runs with equal seeds. The traces must be equal.
So every random value here is drawn from the host's generator, which follows from the seed. Two
kinds of consumers break this rule on purpose. A test shows that the comparison finds them.
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

MS = 1_000  # in microseconds


def fake_spec(brokers: int = 3, consumers: int = 4) -> ClusterSpec:
    """Return a cluster of one (silent) controller, `brokers` and `consumers`."""
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
    """Answers heartbeats after a drawn delay, and appends a batch for each to its disk."""

    def __init__(self, host: Host, spec: BrokerSpec) -> None:
        self.host = host
        self.spec = spec
        self.log = host.storage.log(offsets_partition(0))

    def start(self) -> None:
        """Serve."""
        self.host.serve(self.handle)

    def handle(self, request: IncomingRequest) -> None:
        """Append a batch to the disk, and answer up to 2 ms later."""
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
        """Report the number of batches on the disk, in the field of a group's generation."""
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
    """Sends heartbeats to one broker after another, with a longer pause after a failed heartbeat.

    After five heartbeats on a connection, or a failed one, the consumer goes on to the next broker.
    """

    request_timeout_us = 50 * MS

    def __init__(self, host: Host, cluster: ClusterSpec, spec: ConsumerSpec) -> None:
        self.host = host
        self.cluster = cluster
        self.spec = spec
        self.acknowledged = 0

    def start(self) -> None:
        """Begin to send requests."""
        self.host.spawn(self.run(), name="heartbeats")

    async def run(self) -> None:
        """Send requests for ever."""
        turn = self.spec.index  # consumers begin with different brokers
        while True:
            broker = self.cluster.brokers[turn % len(self.cluster.brokers)]
            turn += 1
            connection = self.host.connect(broker.name, "coordinator", setup_timeout_us=100 * MS)
            try:
                for _ in range(5):
                    await self.host.sleep(10 * MS + self.host.rng.randrange(10 * MS))
                    request = HeartbeatRequest(
                        group_id=self.spec.group_id,
                        # The number of answers so far, so that the requests differ.
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
        """Report the number of answers, in the field of acknowledged commits."""
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
    """Planted nondeterminism: the order of a set of strings decides which broker it connects to."""

    async def run(self) -> None:
        """Connect to every broker, in the order of a set."""
        while True:
            for name in {broker.name for broker in self.cluster.brokers}:
                await self.host.sleep(10 * MS)
                connection = self.host.connect(name, "coordinator", setup_timeout_us=100 * MS)
                connection.close()


class GlobalRandomConsumer(FakeConsumer):
    """Planted nondeterminism: waits are drawn from the process's own generator."""

    async def run(self) -> None:
        """Connect to one broker after random waits."""
        while True:
            await self.host.sleep(random.randrange(20 * MS))
            name = self.cluster.brokers[0].name
            self.host.connect(name, "coordinator", setup_timeout_us=100 * MS).close()


def fake_builder(
    consumer: Callable[[Host, ClusterSpec, ConsumerSpec], Node] = FakeConsumer,
    broker: Callable[[Host, BrokerSpec], Node] = FakeBroker,
) -> Callable[[NodeSpec, ClusterSpec, Host], Node]:
    """Return a builder of fake nodes, with consumers and brokers of the given kinds."""

    def build(spec: NodeSpec, cluster: ClusterSpec, host: Host) -> Node:
        match spec:
            case BrokerSpec():
                return broker(host, spec)
            case ConsumerSpec():
                return consumer(host, cluster, spec)
            case _:
                return FakeController(host)

    return build
