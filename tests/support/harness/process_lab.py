"""Node processes on one asyncio loop, without Ray, with nodes that answer heartbeats.

A NodeProcess hosts nodes, and uses TCP to reach nodes of other NodeProcesses. In a real run each
NodeProcess has a process of the operating system for itself; here all of them share one process. An
incarnation is the number of a node's restarts.
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
        self.on_done: Callable[[], None] | None = None
        """What to call when the node has stopped; None until it is asked to shut down."""

    def start(self) -> None:
        """Serve."""
        self.host.serve(self.handle)

    def shut_down(self, on_done: Callable[[], None]) -> None:
        """Keep `on_done`; the test calls it when the node may stop."""
        self.on_done = on_done

    def report(self, status: ClusterStatus) -> None:
        """Add the number of served requests to `records_produced`.

        An EchoNode produces no records, so the test can read the number there.
        """
        status.records_produced += len(self.served)

    def handle(self, request: IncomingRequest) -> None:
        """Answer, and keep the number of the heartbeat (its generation)."""
        body = request.envelope.body
        assert isinstance(body, HeartbeatRequest)
        self.served.append(body.generation_id)
        self.host.reply(request.request_id, HeartbeatResponse())


@dataclass
class Lab:
    """Node processes of one run.

    - `addresses`: the address of each process, by its id.
    - `directory`: the address of each node's process; every process must know all of them.
    """

    run_dir: Path
    processes: dict[str, NodeProcess] = field(default_factory=dict)
    addresses: dict[str, ProcessAddress] = field(default_factory=dict)
    directory: dict[NodeName, ProcessAddress] = field(default_factory=dict)

    async def start_process(self, process_id: str, *, token: str = "secret") -> NodeProcess:
        """Start a node process.

        The process shows `token` to other processes. They refuse its connection if their own token
        differs.
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
        """Start an EchoNode and send its address to every process."""
        node = self.processes[process_id].start_node(
            name, Incarnation(incarnation), EchoNode, storage=MemoryStorage(), role="echo"
        )
        self.directory[name] = self.addresses[process_id]
        self.push()
        return node

    def push(self) -> None:
        """Send the addresses of all nodes to every process."""
        for process in self.processes.values():
            process.set_directory(self.directory)

    def set_rules(self, rules: Sequence[LinkRule]) -> None:
        """Send the link rules to every process."""
        for process in self.processes.values():
            process.set_link_rules(rules)

    def rows(self, name: NodeName, incarnation: int = 0) -> tuple[TraceRow, ...]:
        """Return the rows of an incarnation."""
        return read_frames(frames_path(self.run_dir / "trace", name, incarnation)).rows

    def kinds(self, name: NodeName, incarnation: int = 0) -> list[str]:
        """Return the kinds of an incarnation's rows."""
        return [row.kind for row in self.rows(name, incarnation)]


def in_lab(tmp_path: Path, body: Callable[[Lab], Awaitable[None]]) -> None:
    """Run `body` in a lab of its own, which is stopped in any case."""

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
    """Connect to a node."""
    return node.host.connect(peer, "test", setup_timeout_us=10 * SECOND_US)


async def beat(connection: Connection, number: int = 0) -> AnyResponse:
    """Send a heartbeat and wait for its answer."""
    request = HeartbeatRequest(group_id="g", generation_id=number, member_id="m")
    return await connection.call(request, timeout_us=10 * SECOND_US)


async def closed(connection: Connection) -> None:
    """Wait for the end of a connection."""
    future = asyncio.get_running_loop().create_future()
    connection.on_close(lambda: future.set_result(None))
    await future


async def settle() -> None:
    """Wait 50 ms, so that messages arrive and timers of a few milliseconds fire."""
    await asyncio.sleep(0.05)
