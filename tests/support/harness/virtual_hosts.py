"""A few hosts on one virtual network, without nodes, for tests of connections and hosts.

A host is all that a node may use of the outside world: a clock, timers, connections, a disk, and
the trace, in which events are recorded. A frame is one message on a connection, as it travels
through the network.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from cluster.host.frames import Frame
from cluster.host.incoming_request import IncomingRequest
from cluster.links.rules import LinkRule
from cluster.spec import LinkModel
from cluster.virtual.clock import NodeClock
from cluster.virtual.host import VirtualHost
from cluster.virtual.loop import VirtualLoop
from cluster.virtual.network import VirtualNetwork
from partition_log.memory_storage import MemoryStorage
from protocol.api import AnyRequest
from protocol.ids import Incarnation, NodeName
from protocol.messages.group import HeartbeatRequest, HeartbeatResponse
from protocol.trace import TraceRow

T = TypeVar("T")

LATENCY_US = 100
"""Every frame takes exactly this time from one host to another."""
CONSTANT_LATENCY = LinkModel(base_us=LATENCY_US, jitter_us=0, tail_us=0)


class HostLab:
    """Hosts on one network and in one virtual time.

    The lab records all rows of the trace in `rows`, and all frames in `frames`. A test can replace
    the function `lose`: a frame for which `lose` returns True never arrives. With `copy_messages`
    each message is encoded and decoded on its way, as on a real network.
    """

    def __init__(self, model: LinkModel = CONSTANT_LATENCY, *, copy_messages: bool = False) -> None:
        self.loop = VirtualLoop()
        self.rows: list[TraceRow] = []
        self.frames: list[Frame] = []
        self.failures: list[tuple[str, BaseException]] = []
        self.hosts: list[VirtualHost] = []
        self.lose: Callable[[Frame], bool] = lambda _frame: False
        # The method `transmit` below needs the lab, but its `self` is the network.
        lab = self

        class WatchedNetwork(VirtualNetwork):
            """Keeps each frame in the lab, and loses those that `lab.lose` chooses."""

            def transmit(self, frame: Frame) -> None:
                lab.frames.append(frame)
                if not lab.lose(frame):
                    super().transmit(frame)

        self.network = WatchedNetwork(
            self.loop, seed=1, model=model, racks={}, copy_messages=copy_messages
        )

    def host(
        self,
        name: str,
        incarnation: int = 0,
        *,
        traced: bool = True,
        clock: NodeClock | None = None,
    ) -> VirtualHost:
        """Return a new host, which is alive and attached to the network.

        `incarnation` says how often the node of this host was restarted before. If `traced` is
        False, the host writes no rows about messages.
        """
        host = VirtualHost(
            name=NodeName(name),
            incarnation=Incarnation(incarnation),
            run_id="test",
            loop=self.loop,
            network=self.network,
            clock=clock or NodeClock(self.loop),
            seed=1,
            storage=MemoryStorage(),
            observers=(self.rows.append,),
            traces_messages=traced,
            on_failure=self._failed,
            log=None,
        )
        self.network.attach(host)
        self.hosts.append(host)
        return host

    def set_rules(self, *rules: LinkRule) -> None:
        """Give these link rules to every host that is alive, as a runtime does."""
        for host in self.hosts:
            if host.alive:
                host.set_link_rules(rules)

    def kinds(self, node: str) -> list[str]:
        """Return the kinds of the rows that `node` wrote, in their order."""
        return [row.kind for row in self.rows if row.node == node]

    def run_for(self, duration_us: int) -> None:
        """Let the virtual time go on by `duration_us`."""
        self.loop.run_until_us(self.loop.now_us() + duration_us)

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end, and return its result."""
        return self.loop.run_until_complete(main)

    def _failed(self, host: VirtualHost, what: str, error: BaseException) -> None:
        self.failures.append((f"{host.name}: {what}", error))


class EchoServer:
    """Answers every heartbeat at once, except the heartbeats of `parked_groups`.

    These heartbeats wait until the test calls `release`.
    """

    def __init__(self, host: VirtualHost, *, parked_groups: tuple[str, ...] = ()) -> None:
        self.host = host
        self.parked_groups = parked_groups
        self.served: list[IncomingRequest] = []
        self.parked: list[IncomingRequest] = []
        host.serve(self.handle)

    def handle(self, request: IncomingRequest) -> None:
        """Serve one request."""
        self.served.append(request)
        body = request.envelope.body
        if isinstance(body, HeartbeatRequest) and body.group_id in self.parked_groups:
            self.parked.append(request)
        else:
            self.host.reply(request.request_id, HeartbeatResponse())

    def release(self) -> None:
        """Answer the parked requests."""
        parked, self.parked = self.parked, []
        for request in parked:
            self.host.reply(request.request_id, HeartbeatResponse())

    @property
    def served_groups(self) -> list[str]:
        """The group of each request that arrived so far, in their order."""
        return [group_of(request.envelope.body) for request in self.served]


def heartbeat(group: str = "g") -> HeartbeatRequest:
    """Return a heartbeat of a member of `group`."""
    # EchoServer reads only the group. The generation and the member id have no effect.
    return HeartbeatRequest(group_id=group, generation_id=3, member_id="m")


def group_of(request: AnyRequest) -> str:
    """Return the group that a heartbeat names."""
    if not isinstance(request, HeartbeatRequest):
        raise TypeError(f"not a heartbeat: {request}")
    return request.group_id


async def forever() -> None:
    """Wait for ever, until the task is cancelled."""
    await asyncio.get_running_loop().create_future()
