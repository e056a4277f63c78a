"""NodeProcess: one operating-system process that hosts one or more nodes, testable without Ray.

It gives each incarnation a RealHost, carries frames between its own nodes within the loop and to
other processes over TCP, and keeps the files: traces, logs, disks. Where other nodes live comes
from the control plane, as a directory; who is not in it refuses connections, as a machine does
where nobody listens. It knows nothing of Ray, faults or experiments.
"""

import asyncio
import os
import socket
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import Protocol, TypeVar

from cluster.disk_errors import is_of_the_disk, unwritten
from cluster.host.frames import (
    CloseFrame,
    Frame,
    NoticeFrame,
    OpenedFrame,
    OpenFrame,
    RequestFrame,
    ResetFrame,
    ResponseFrame,
)
from cluster.host.host import Host
from cluster.host.randomness import stream
from cluster.links.reset import (
    ConnectionName,
    LinkReset,
    reset_client_ends,
    reset_server_ends,
)
from cluster.links.rules import LinkRule
from cluster.realtime.failures import NodeFailure
from cluster.realtime.host import HostCallbacks, RealHost, RunSettings
from cluster.realtime.tcp import ProcessAddress, Transport, TransportEvents
from cluster.runtime import ClusterStatus
from cluster.wire.listener import ListenerBinding, WireListener, bind, is_kafka_client
from partition_log.storage import Storage
from protocol.errors import SimulationError
from protocol.ids import Incarnation, NodeName
from protocol.records.metadata import BrokerEndpoint
from protocol.trace import TraceEvent, TraceKind

MAX_FAILURES_KEPT = 1_000
"""A node that fails in a loop must not fill the memory with what it says about it."""


class HostedNode(Protocol):
    """What a process needs of a node; `cluster.node_factory.Node` has it."""

    def start(self) -> None:
        """Begin to serve and to call others; returns at once."""

    def shut_down(self, on_done: Callable[[], None]) -> None:
        """Begin to stop as on SIGTERM; `on_done` is called when nothing is left to do."""

    def report(self, status: ClusterStatus) -> None:
        """Write what this node knows of the cluster into `status`."""


NodeT = TypeVar("NodeT", bound=HostedNode)


class NodeProcess:
    """The nodes of this process and what joins them to the rest. Lives on one asyncio loop.

    A guest is no process of the run: the others learn of its nodes when it calls them.
    """

    def __init__(self, process_id: str, settings: RunSettings, *, is_guest: bool = False) -> None:
        self.process_id = process_id
        self.settings = settings
        self.failures: list[NodeFailure] = []
        """The tool's own failures in this process, oldest first."""
        self._loop = asyncio.get_running_loop()
        self._hosts: dict[NodeName, RealHost] = {}
        self._nodes: dict[NodeName, HostedNode] = {}
        self._shutting_down: dict[NodeName, asyncio.Future[bool]] = {}
        """Nodes that were asked to stop: whether they did so in an orderly way."""
        self._directory: dict[NodeName, ProcessAddress] = {}
        self._homes: dict[NodeName, str] = {}
        """The process of each node that was ever in the directory: where it is, or was last."""
        self._guests: dict[NodeName, ProcessAddress] = {}
        """Nodes of guests that have called: where they listen."""
        self._rules: tuple[LinkRule, ...] = ()
        self._listeners: dict[NodeName, WireListener] = {}
        """Listeners for Kafka clients, of the brokers that have one."""
        self._reserved: dict[NodeName, socket.socket] = {}
        """Bound sockets that keep the ports of brokers that are down."""
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
                on_guest=self._guest_called,
            ),
            nodes=self._own_nodes,
            is_guest=is_guest,
        )

    async def listen(self, host: str) -> ProcessAddress:
        """Listen on a free port of `host`; return where. Raises: OSError."""
        return await self._transport.listen(host)

    def set_directory(self, directory: Mapping[NodeName, ProcessAddress]) -> None:
        """Take where every live node is to be found; it replaces what was known.

        A node that moved to another process has left the old one for good: links with that are
        ended first, so that nothing of the old incarnation arrives after it met the new one.
        """
        left = {
            home: None
            for name, home in self._homes.items()
            if name in directory and directory[name].process_id != home
        }
        for process_id in left:
            self._transport.drop(process_id)
        self._homes.update((name, address.process_id) for name, address in directory.items())
        self._directory = dict(directory)

    def set_link_rules(self, rules: Sequence[LinkRule]) -> None:
        """Replace the link rules, for the nodes that are here and those that come."""
        self._rules = tuple(rules)
        for host in self._hosts.values():
            host.set_link_rules(self._rules)
        for listener in self._listeners.values():
            listener.set_rules(self._rules)

    def reset_client_ends(self, reset: LinkReset) -> tuple[ConnectionName, ...]:
        """End the connections of own clients, and of Kafka clients; return their names."""
        names = reset_client_ends(tuple(self._hosts.values()), reset)
        for listener in self._listeners.values():
            names += listener.reset(reset)
        return names

    def reset_server_ends(
        self,
        reset: LinkReset,
        names: Collection[ConnectionName],
        silent_clients: Sequence[NodeName],
    ) -> int:
        """End the connections of own servers; return how many silent clients had."""
        hosts = tuple(self._hosts.values())
        return reset_server_ends(hosts, reset, names=names, silent_clients=silent_clients)

    def start_node(
        self,
        name: NodeName,
        incarnation: Incarnation,
        build: Callable[[Host], NodeT],
        *,
        storage: Storage,
        role: str,
        binding: ListenerBinding | None = None,
    ) -> NodeT:
        """Build and start a node; return it. With `binding` it listens for Kafka clients.

        Raises: SimulationError if it is alive here already; OSError if the listener's address is
            taken; what `build` or its start raises.
        """
        if name in self._hosts:
            raise SimulationError(f"{name} is alive in {self.process_id}")
        listener = None if binding is None else self._open_listener(name, incarnation, binding)
        host = RealHost(
            name,
            incarnation,
            settings=self.settings,
            storage=storage,
            callbacks=HostCallbacks(
                send_frame=self._send_frame,
                traced=self._traced,
                failed=self._node_failed,
                serving=self._serving,
            ),
            listeners=() if listener is None else (listener.end_point,),
        )
        if listener is not None:
            listener.attach(host)
            self._listeners[name] = listener
        host.trace(
            TraceEvent(kind=TraceKind.NODE_STARTED, detail={"pid": os.getpid(), "role": role})
        )
        host.set_link_rules(self._rules)
        self._hosts[name] = host
        try:
            node = build(host)
            node.start()
        except BaseException:
            del self._hosts[name]
            self._close_listener(name)
            host.retire()
            raise
        self._nodes[name] = node
        return node

    def crash_node(self, name: NodeName) -> None:
        """End one node as a kill of its process would: its peers see their connections reset.

        Raises: SimulationError if it is not alive here.
        """
        host = self._host(name)
        sent, unread = host.kernel_frames()
        self._remove(host, is_orderly=False)
        for frame in sent:
            self._send_frame(frame)
        for frame in unread:
            # Connections that nobody accepted: a dead process's kernel resets those too.
            self._undeliverable(frame)

    def pause_node(self, name: NodeName) -> None:
        """Stop one node as SIGSTOP does: its connections stay open and silent.

        Raises: SimulationError if it is not alive here; OSError if its trace cannot be written.
        """
        self._host(name).pause()

    def resume_node(self, name: NodeName) -> None:
        """Let a paused node go on; nothing happens to one that is not paused.

        Raises: SimulationError if it is not alive here.
        """
        self._host(name).resume()

    async def shut_down_node(self, name: NodeName) -> bool:
        """Ask a node to stop as on SIGTERM, and wait until it has.

        Returns: whether it ended so; False if it was killed before it was done.
        Raises: SimulationError if it is not alive here, or asked already.
        """
        host = self._host(name)
        if name in self._shutting_down:
            raise SimulationError(f"{name} is shutting down already")
        ended: asyncio.Future[bool] = self._loop.create_future()
        self._shutting_down[name] = ended

        # Later, because the node is in the middle of saying that it is done.
        def on_done() -> None:
            self._loop.call_soon(self._shut_down, host)

        host.run_callback(self._nodes[name].shut_down, on_done)
        return await ended

    def status(self) -> ClusterStatus:
        """Return what this process's nodes know of the cluster; a paused one does not answer."""
        status = ClusterStatus()
        for name, node in self._nodes.items():
            if not self._hosts[name].is_paused:
                node.report(status)
        for name, listener in self._listeners.items():
            for client, count in listener.connection_counts().items():
                status.kafka_clients[client] = status.kafka_clients.get(client, 0) + count
            for reason, count in listener.refusals.items():
                status.refused_clients[f"{name}: {reason}"] = count
        return status

    def listener_address(self, name: NodeName) -> BrokerEndpoint | None:
        """Return where Kafka clients reach an own broker, None if it does not listen for them."""
        listener = self._listeners.get(name)
        return None if listener is None else listener.end_point

    async def next_failures(self, known: int) -> list[NodeFailure]:
        """Return the failures behind the first `known`; waits until there is one."""
        while len(self.failures) <= known:
            self._failed.clear()
            await self._failed.wait()
        return self.failures[known:]

    async def stop(self) -> None:
        """End every node in an orderly way, the last started first, and leave the network."""
        for host in reversed(list(self._hosts.values())):
            host.trace(TraceEvent(kind=TraceKind.NODE_STOPPED))
            self._remove(host, is_orderly=True)
        for sock in self._reserved.values():
            sock.close()
        self._reserved.clear()
        await self._transport.close()

    def _host(self, name: NodeName) -> RealHost:
        host = self._hosts.get(name)
        if host is None:
            raise SimulationError(f"{name} is not alive in {self.process_id}")
        return host

    def _shut_down(self, host: RealHost) -> None:
        """Take that a node has stopped: its peers see their connections closed."""
        if not host.alive:
            return
        host.trace(TraceEvent(kind=TraceKind.NODE_STOPPED))
        host.endpoint.close_all()
        self._remove(host, is_orderly=True)

    def _remove(self, host: RealHost, *, is_orderly: bool) -> None:
        del self._hosts[host.name]
        self._nodes.pop(host.name, None)
        host.retire()
        self._close_listener(host.name)
        self._unflushed.pop(host, None)
        waiting = self._shutting_down.pop(host.name, None)
        if waiting is not None and not waiting.done():
            waiting.set_result(is_orderly)

    def _open_listener(
        self, name: NodeName, incarnation: Incarnation, binding: ListenerBinding
    ) -> WireListener:
        sock = self._reserved.pop(name, None) or bind(binding.host, binding.port)
        seed = self.settings.seed
        listener = WireListener(
            binding,
            sock,
            loop=self._loop,
            flush=self._flush_traces,
            rng_for=lambda client, rule_id: stream(seed, "slow", rule_id, client, incarnation),
        )
        listener.set_rules(self._rules)
        return listener

    def _close_listener(self, name: NodeName) -> None:
        """End the listener of a node that is gone, and keep its port for the next incarnation."""
        listener = self._listeners.pop(name, None)
        if listener is None:
            return
        listener.stop()
        with suppress(OSError):  # without the reservation the next incarnation binds it itself
            self._reserved[name] = bind(listener.bound_host, listener.port)

    def _serving(self, host: RealHost) -> None:
        listener = self._listeners.get(host.name)
        if listener is not None:
            listener.start()

    def _own_nodes(self) -> tuple[tuple[NodeName, Incarnation], ...]:
        return tuple((name, host.incarnation) for name, host in self._hosts.items())

    def _address_of(self, name: NodeName) -> ProcessAddress | None:
        return self._directory.get(name) or self._guests.get(name)

    def _send_frame(self, frame: Frame) -> None:
        """Carry a frame of an own node; frames of one source and destination stay in order."""
        if frame.destination in self._hosts:
            self._loop.call_soon(self._deliver, frame)
            return
        if is_kafka_client(frame.destination):
            listener = self._listeners.get(frame.source)
            if listener is not None:
                listener.take(frame)
            return
        address = self._address_of(frame.destination)
        if address is None or address.process_id == self.process_id:
            self._loop.call_soon(self._undeliverable, frame)
        else:
            self._transport.send(address, frame)

    def _deliver(self, frame: Frame) -> None:
        host = self._hosts.get(frame.destination)
        if host is None:
            self._undeliverable(frame)
        else:
            host.receive(frame)

    def _undeliverable(self, frame: Frame) -> None:
        """Answer for a node that is not there as its machine's kernel does.

        Connections end when their process dies, but its peers may hear of that late (a cut) and go
        on using them.
        """
        match frame:
            case OpenFrame():
                self._refuse(
                    frame, by_client=False, reason="connection refused: no such node is up"
                )
            case RequestFrame():
                self._refuse(frame, by_client=False, reason="its process is gone")
            case OpenedFrame() | ResponseFrame() | NoticeFrame():
                self._refuse(frame, by_client=True, reason="its process is gone")
            case CloseFrame() | ResetFrame():
                pass

    def _refuse(
        self,
        frame: OpenFrame | OpenedFrame | RequestFrame | ResponseFrame | NoticeFrame,
        *,
        by_client: bool,
        reason: str,
    ) -> None:
        self._route_answer(
            CloseFrame(
                source=frame.destination,
                destination=frame.source,
                connection_id=frame.connection_id,
                by_client=by_client,
                reason=reason,
            )
        )

    def _route_answer(self, frame: CloseFrame) -> None:
        host = self._hosts.get(frame.destination)
        if host is not None:
            host.receive(frame)
            return
        address = self._address_of(frame.destination)
        if address is not None and address.process_id != self.process_id:
            self._transport.send(address, frame)

    def _guest_called(self, address: ProcessAddress, nodes: tuple[NodeName, ...]) -> None:
        """Take where the nodes of a guest are; nobody takes the name of one of the run's."""
        self._guests.update(dict.fromkeys(nodes, address))

    def _process_lost(self, process_id: str, nodes: tuple[NodeName, ...]) -> None:
        """Tell every node that a process is gone, and with it all connections to its nodes."""
        for name in [n for n, at in self._guests.items() if at.process_id == process_id]:
            del self._guests[name]
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
                self._node_failed(f"{host.name}: its trace cannot be written: {error}", error)

    def _node_failed(self, line: str, error: BaseException) -> None:
        if len(self.failures) < MAX_FAILURES_KEPT:
            trouble = None
            if isinstance(error, OSError) and is_of_the_disk(error):
                trouble = unwritten(self.settings.machine_dir, error)
            self.failures.append(NodeFailure(text=line, disk_trouble=trouble))
            self._failed.set()
