"""NodeProcess: one operating-system process that hosts one or more nodes, testable without Ray.

It gives each incarnation a RealHost, carries frames between its own nodes within the loop and to
other processes over TCP, and keeps the files: traces, logs, disks. Where other nodes live comes
from the control plane, as a directory; who is not in it refuses connections, as a machine does
where nobody listens. It knows nothing of Ray, faults or experiments.
"""

import asyncio
import os
from collections.abc import Callable, Mapping
from typing import Protocol, TypeVar

from cluster.frames import CloseFrame, Frame, OpenFrame, RequestFrame, ResetFrame
from cluster.host import Host
from cluster.real_host import HostCallbacks, RealHost, RunSettings
from cluster.runtime import ClusterStatus
from cluster.tcp import ProcessAddress, Transport, TransportEvents
from partition_log.storage import Storage
from protocol.errors import SimulationError
from protocol.ids import Incarnation, NodeName
from protocol.trace import TraceEvent, TraceKind

MAX_FAILURES_KEPT = 1_000
"""A node that fails in a loop must not fill the memory with what it says about it."""


class HostedNode(Protocol):
    """What a process needs of a node; `cluster.nodes.Node` has it."""

    def start(self) -> None:
        """Begin to serve and to call others; returns at once."""

    def report(self, status: ClusterStatus) -> None:
        """Write what this node knows of the cluster into `status`."""


NodeT = TypeVar("NodeT", bound=HostedNode)


class NodeProcess:
    """The nodes of this process and what joins them to the rest. Lives on one asyncio loop."""

    def __init__(self, process_id: str, settings: RunSettings) -> None:
        self.process_id = process_id
        self.settings = settings
        self.failures: list[str] = []
        """The tool's own failures in this process, oldest first."""
        self._loop = asyncio.get_running_loop()
        self._hosts: dict[NodeName, RealHost] = {}
        self._nodes: dict[NodeName, HostedNode] = {}
        self._directory: dict[NodeName, ProcessAddress] = {}
        self._unflushed: dict[RealHost, None] = {}
        self._failed = asyncio.Event()
        self._transport = Transport(
            process_id=process_id,
            token=settings.token,
            events=TransportEvents(
                on_frame=self._deliver,
                on_peer_lost=self._process_lost,
                on_refused=self._refused,
                before_write=self._flush_traces,
            ),
            nodes=self._own_nodes,
        )

    async def listen(self, host: str) -> ProcessAddress:
        """Listen on a free port of `host`; return where. Raises: OSError."""
        return await self._transport.listen(host)

    def set_directory(self, directory: Mapping[NodeName, ProcessAddress]) -> None:
        """Take where every live node is to be found; it replaces what was known.

        A node that moved to another process has left the old one for good: links with that are
        ended first, so that nothing of the old incarnation arrives after it met the new one.
        """
        moved = [
            old.process_id
            for name, old in self._directory.items()
            if name in directory and directory[name].process_id != old.process_id
        ]
        for process_id in dict.fromkeys(moved):
            self._transport.drop(process_id)
        self._directory = dict(directory)

    def start_node(
        self,
        name: NodeName,
        incarnation: Incarnation,
        build: Callable[[Host], NodeT],
        *,
        storage: Storage,
        role: str,
    ) -> NodeT:
        """Build and start a node; return it.

        Raises: SimulationError if it is alive here already; what `build` or its start raises.
        """
        if name in self._hosts:
            raise SimulationError(f"{name} is alive in {self.process_id}")
        host = RealHost(
            name,
            incarnation,
            settings=self.settings,
            storage=storage,
            callbacks=HostCallbacks(
                send_frame=self._send_frame, traced=self._traced, failed=self._node_failed
            ),
        )
        host.trace(
            TraceEvent(kind=TraceKind.NODE_STARTED, detail={"pid": os.getpid(), "role": role})
        )
        self._hosts[name] = host
        try:
            node = build(host)
            node.start()
        except BaseException:
            del self._hosts[name]
            host.end()
            raise
        self._nodes[name] = node
        return node

    def crash_node(self, name: NodeName) -> None:
        """End one node as a kill of its process would: its peers see their connections reset.

        Raises: SimulationError if it is not alive here.
        """
        host = self._hosts.pop(name, None)
        if host is None:
            raise SimulationError(f"{name} is not alive in {self.process_id}")
        del self._nodes[name]
        peers = host.endpoint.peers()
        host.end()
        self._unflushed.pop(host, None)
        for peer in peers:
            self._send_frame(
                ResetFrame(source=name, destination=peer, source_incarnation=host.incarnation)
            )

    def status(self) -> ClusterStatus:
        """Return what this process's nodes know of the cluster."""
        status = ClusterStatus()
        for node in self._nodes.values():
            node.report(status)
        return status

    async def next_failures(self, known: int) -> list[str]:
        """Return the failures behind the first `known`; waits until there is one."""
        while len(self.failures) <= known:
            self._failed.clear()
            await self._failed.wait()
        return self.failures[known:]

    async def stop(self) -> None:
        """End every node in an orderly way, the last started first, and leave the network."""
        self._nodes.clear()
        for name in reversed(list(self._hosts)):
            host = self._hosts.pop(name)
            host.trace(TraceEvent(kind=TraceKind.NODE_STOPPED))
            host.end()
        self._unflushed.clear()
        await self._transport.close()

    def _own_nodes(self) -> tuple[tuple[NodeName, Incarnation], ...]:
        return tuple((name, host.incarnation) for name, host in self._hosts.items())

    def _send_frame(self, frame: Frame) -> None:
        """Carry a frame of an own node; frames of one source and destination stay in order."""
        if frame.destination in self._hosts:
            self._loop.call_soon(self._deliver, frame)
            return
        address = self._directory.get(frame.destination)
        if address is None or address.process_id == self.process_id:
            self._loop.call_soon(self._undeliverable, frame)
        else:
            self._transport.send(address, frame)

    def _deliver(self, frame: Frame) -> None:
        host = self._hosts.get(frame.destination)
        if host is None:
            self._undeliverable(frame)
        else:
            host.deliver(frame)

    def _undeliverable(self, frame: Frame) -> None:
        """Answer a client whose server is not there as a kernel does: connection refused."""
        if isinstance(frame, OpenFrame | RequestFrame):
            self._route_answer(
                CloseFrame(
                    source=frame.destination,
                    destination=frame.source,
                    connection_id=frame.connection_id,
                    by_client=False,
                    reason="connection refused: no such node is up",
                )
            )

    def _route_answer(self, frame: CloseFrame) -> None:
        host = self._hosts.get(frame.destination)
        if host is not None:
            host.deliver(frame)
            return
        address = self._directory.get(frame.destination)
        if address is not None and address.process_id != self.process_id:
            self._transport.send(address, frame)

    def _process_lost(self, process_id: str, nodes: tuple[NodeName, ...]) -> None:
        """Tell every node that a process is gone, and with it all connections to its nodes."""
        for host in list(self._hosts.values()):
            for name in nodes:
                host.peer_lost(name)

    def _refused(self, caller: str, reason: str) -> None:
        """Log and trace, on the process's first node, that a caller was turned away."""
        for host in self._hosts.values():
            host.log(f"refused the link from {caller}: {reason}")
            host.trace(
                TraceEvent(
                    kind=TraceKind.CONNECTION_REFUSED, detail={"reason": reason, "caller": caller}
                )
            )
            return

    def _traced(self, host: RealHost) -> None:
        if not self._unflushed:
            self._loop.call_soon(self._flush_traces)
        self._unflushed[host] = None

    def _flush_traces(self) -> None:
        """Write what was traced; also called before bytes leave, so that causes are on disk."""
        unflushed, self._unflushed = self._unflushed, {}
        for host in unflushed:
            try:
                host.flush()
            except OSError as error:
                self._node_failed(f"{host.name}: its trace cannot be written: {error}")

    def _node_failed(self, line: str) -> None:
        if len(self.failures) < MAX_FAILURES_KEPT:
            self.failures.append(line)
            self._failed.set()
