"""Several NodeProcesses in one process, for tests of how they reach each other over TCP.

A NodeProcess hosts nodes. In a real run on Ray, each NodeProcess is alone in a process of the
operating system, and reaches the nodes of other NodeProcesses over TCP. Here all NodeProcesses
share one process and one asyncio loop, but still talk over TCP. Their nodes only answer heartbeats.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cluster.host.host import Connection, Host
from cluster.host.incoming_request import IncomingRequest
from cluster.links.rules import LinkRule
from cluster.realtime.clock import RunClock
from cluster.realtime.host import RunSettings
from cluster.realtime.process import NodeProcess
from cluster.realtime.tcp import ProcessAddress
from cluster.runtime import ClusterStatus
from cluster.trace.files import frames_path, read_frames
from partition_log.memory_storage import MemoryStorage
from protocol.api import AnyResponse
from protocol.ids import Incarnation, NodeName
from protocol.messages.group import HeartbeatRequest, HeartbeatResponse
from protocol.trace import TraceRow

SERVER, CLIENT, OTHER = NodeName("broker-0"), NodeName("consumer-0"), NodeName("consumer-1")
LOOPBACK = "127.0.0.1"
SECOND_US = 1_000_000


class EchoNode:
    """Answers heartbeats, and gives the test access to its host."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.served: list[int] = []
        # The function that must be called when the node has stopped. It is None until the node is
        # asked to shut down.
        self.on_done: Callable[[], None] | None = None

    def start(self) -> None:
        """Serve."""
        self.host.serve(self.handle)

    def shut_down(self, on_done: Callable[[], None]) -> None:
        """Keep `on_done`, which the test calls when the node may stop."""
        self.on_done = on_done

    def report(self, status: ClusterStatus) -> None:
        """Report how many requests the node has served.

        A status has no field for this number, so the field `records_produced` is used.
        """
        status.records_produced += len(self.served)

    def handle(self, request: IncomingRequest) -> None:
        """Answer a heartbeat, and keep its number, which the function `beat` has sent in it."""
        body = request.envelope.body
        assert isinstance(body, HeartbeatRequest)
        self.served.append(body.generation_id)
        self.host.reply(request.request_id, HeartbeatResponse())


@dataclass
class Lab:
    """The NodeProcesses of one run."""

    run_dir: Path
    # Id of a process -> the process, and its address.
    processes: dict[str, NodeProcess] = field(default_factory=dict)
    addresses: dict[str, ProcessAddress] = field(default_factory=dict)
    # Node -> the address of its process. Every process must know this whole directory.
    directory: dict[NodeName, ProcessAddress] = field(default_factory=dict)

    async def start_process(self, process_id: str, *, token: str = "secret") -> NodeProcess:
        """Start a NodeProcess without nodes.

        When a NodeProcess connects to another, it shows its token. The other NodeProcess refuses
        the connection if its own token is different.
        """
        settings = RunSettings(
            run_id="run",
            seed=1,
            token=token,
            clock=RunClock.starting_now(),
            machine_dir=self.run_dir,
            trace_messages=True,
        )
        process = NodeProcess(process_id, settings)
        self.addresses[process_id] = await process.listen(LOOPBACK)
        self.processes[process_id] = process
        return process

    def node(self, process_id: str, name: NodeName, incarnation: int = 0) -> EchoNode:
        """Start an EchoNode in a process, and tell every process where this node is."""
        node = self.processes[process_id].start_node(
            name, Incarnation(incarnation), EchoNode, storage=MemoryStorage(), role="echo"
        )
        self.directory[name] = self.addresses[process_id]
        self.push()
        return node

    def push(self) -> None:
        """Tell every process where all nodes are."""
        for process in self.processes.values():
            process.set_directory(self.directory)

    def set_rules(self, rules: Sequence[LinkRule]) -> None:
        """Give these link rules to every process."""
        for process in self.processes.values():
            process.set_link_rules(rules)

    def rows(self, name: NodeName, incarnation: int = 0) -> tuple[TraceRow, ...]:
        """Return the rows that a node wrote in one incarnation (its life between restarts)."""
        return read_frames(frames_path(self.run_dir / "trace", name, incarnation)).rows

    def kinds(self, name: NodeName, incarnation: int = 0) -> list[str]:
        """Return the kinds of the rows that a node wrote in one incarnation."""
        return [row.kind for row in self.rows(name, incarnation)]


def in_lab(tmp_path: Path, body: Callable[[Lab], Awaitable[None]]) -> None:
    """Run `body` with a new Lab, and stop all processes of the lab, even after an error."""

    async def main() -> None:
        lab = Lab(tmp_path)
        try:
            async with asyncio.timeout(20):
                await body(lab)
        finally:
            for process in lab.processes.values():
                await process.stop()

    asyncio.run(main())


def connect(node: EchoNode, peer: NodeName = SERVER) -> Connection:
    """Open a connection from `node` to `peer`, by default to SERVER."""
    return node.host.connect(peer, "test", setup_timeout_us=10 * SECOND_US)


async def beat(connection: Connection, number: int = 0) -> AnyResponse:
    """Send a heartbeat with this number as its generation, and wait for the answer."""
    request = HeartbeatRequest(group_id="g", generation_id=number, member_id="m")
    return await connection.call(request, timeout_us=10 * SECOND_US)


async def closed(connection: Connection) -> None:
    """Wait until a connection has ended."""
    future = asyncio.get_running_loop().create_future()
    connection.on_close(lambda: future.set_result(None))
    await future


async def settle() -> None:
    """Wait 50 ms, so that messages arrive and timers of a few milliseconds fire."""
    await asyncio.sleep(0.05)
