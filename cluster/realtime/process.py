"""NodeProcess: one operating-system process that hosts one or more nodes.

The process gives each node a RealHost when it starts. Frames (messages) between its own nodes do
not leave the process; frames to other processes go over TCP (`tcp`). The driver, which conducts the
run, tells each process where all nodes are: in its *directory*, each running node has the address
of its process. A connection to a node that is not in the directory is refused, like a connection to
a port at which nobody listens.

This module does not need Ray.
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
"""Number of failures that are kept. Later failures are dropped: a node may fail in a loop."""


class HostedNode(Protocol):
    """The methods of a node that a process calls; `cluster.node_factory.Node` has them."""

    def start(self) -> None:
        """Begin to serve and to send requests, and return without waiting."""

    def shut_down(self, on_done: Callable[[], None]) -> None:
        """Begin to stop, as on SIGTERM; call `on_done` once the node has finished."""

    def report(self, status: ClusterStatus) -> None:
        """Write the node's part of the cluster's state into `status`."""


NodeT = TypeVar("NodeT", bound=HostedNode)


class NodeProcess:
    """The nodes of this process, and their links to other processes, on one asyncio loop.

    If `is_guest` is True, this process does not belong to the run, and its nodes are in no
    directory. The processes of the run learn the address of this process when it
    connects to them.
    """

    def __init__(self, process_id: str, settings: RunSettings, *, is_guest: bool = False) -> None:
        self.process_id = process_id
        self.settings = settings
        self.failures: list[NodeFailure] = []
        """What has failed in this process by a bug of this project, oldest first."""
        self._loop = asyncio.get_running_loop()
        self._hosts: dict[NodeName, RealHost] = {}
        """The hosts of the live nodes in this process, including one that is just starting."""
        self._nodes: dict[NodeName, HostedNode] = {}
        """The nodes that have started."""
        self._shutting_down: dict[NodeName, asyncio.Future[bool]] = {}
        """Node that was asked to stop -> future: True if it has stopped, False if it was killed."""
        self._directory: dict[NodeName, ProcessAddress] = {}
        """The address of the process of each running node of the run."""
        self._homes: dict[NodeName, str] = {}
        """Node -> the id of the process in which it was last known to be."""
        self._guests: dict[NodeName, ProcessAddress] = {}
        """Addresses of the nodes of connected guests."""
        self._rules: tuple[LinkRule, ...] = ()
        """The link rules in force, for nodes that start later."""
        self._listeners: dict[NodeName, WireListener] = {}
        """Listeners for Kafka clients, of the brokers that have one."""
        self._reserved: dict[NodeName, socket.socket] = {}
        """Dead broker -> a socket that keeps its port for the next start."""
        self._unflushed: dict[RealHost, None] = {}
        """The hosts with trace rows that are not in their files yet, as keys."""
        self._failed = asyncio.Event()
        self._transport = Transport(
            process_id=process_id,
            token=settings.token,
            events=TransportEvents(
                on_frame=self._deliver,
                on_peer_lost=self._process_lost,
                on_refused=self._report_refusal,
                before_write=self._flush_traces,
                on_guest=self._note_guest,
            ),
            nodes=self._own_nodes,
            is_guest=is_guest,
        )

    async def listen(self, host: str) -> ProcessAddress:
        """Listen on a free port of `host`; return the address. Raises: OSError."""
        return await self._transport.listen(host)

    def set_directory(self, directory: Mapping[NodeName, ProcessAddress]) -> None:
        """Replace the addresses of all running nodes.

        If a node is in another process than before, its old process is gone. The links to that
        process are closed first. So no message of the dead node arrives after a message of the new
        node.
        """
        # The values mean nothing; a dict keeps the order, and a set would not.
        gone_processes = {
            home: None
            for name, home in self._homes.items()
            if name in directory and directory[name].process_id != home
        }
        for process_id in gone_processes:
            self._transport.drop(process_id)
        self._homes.update((name, address.process_id) for name, address in directory.items())
        self._directory = dict(directory)

    def set_link_rules(self, rules: Sequence[LinkRule]) -> None:
        """Replace the link rules, for present and later nodes of this process."""
        self._rules = tuple(rules)
        for host in self._hosts.values():
            host.set_link_rules(self._rules)
        for listener in self._listeners.values():
            listener.set_rules(self._rules)

    def reset_client_ends(self, reset: LinkReset) -> tuple[ConnectionName, ...]:
        """Close the client ends of connections in this process; return the connections' names.

        Clients are nodes of this process, and Kafka clients of its brokers.
        """
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
        """Close the server ends of connections in this process.

        Returns: the number of closed connections whose clients are silent (stopped).
        """
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
        """Build and start a node, and return it. With `binding` it listens for Kafka clients.

        Raises: SimulationError if the node runs here already; OSError if the listener's address is
            in use; exceptions of `build` and of the node's start.
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
                traced=self._schedule_flush,
                failed=self._record_failure,
                serving=self._start_listener,
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
        """End one node as a kill of its process would: peers see that their connections are reset.

        Raises: SimulationError if the node does not run here.
        """
        host = self._host(name)
        # If a process is killed, its machine's kernel resets its connections, and answers the
        # messages that it has not read. Here the process lives on, so we do both for this node.
        kernel_sends, unread = host.kernel_frames()
        self._remove(host, is_orderly=False)
        for frame in kernel_sends:
            self._send_frame(frame)
        for frame in unread:
            # This also refuses the connections that the node has not accepted yet.
            self._answer_undeliverable(frame)

    def pause_node(self, name: NodeName) -> None:
        """Pause one node, as SIGSTOP does: its connections stay open, but it sends nothing on them.

        Raises: SimulationError if the node does not run here; OSError if its trace cannot be
            written.
        """
        self._host(name).pause()

    def resume_node(self, name: NodeName) -> None:
        """Let a paused node continue; do nothing if it is not paused.

        Raises: SimulationError if the node does not run here.
        """
        self._host(name).resume()

    async def shut_down_node(self, name: NodeName) -> bool:
        """Ask a node to stop, as on SIGTERM, and wait until it has ended.

        Returns: True if it stopped in an orderly way; False if it was killed before.
        Raises: SimulationError if the node does not run here, or is stopping already.
        """
        host = self._host(name)
        if name in self._shutting_down:
            raise SimulationError(f"{name} is shutting down already")
        ended: asyncio.Future[bool] = self._loop.create_future()
        self._shutting_down[name] = ended

        # Called by code of the node, which must return before the node is removed.
        def on_done() -> None:
            self._loop.call_soon(self._shut_down, host)

        host.run_callback(self._nodes[name].shut_down, on_done)
        return await ended

    def status(self) -> ClusterStatus:
        """Return the cluster's state as this process's nodes know it; paused nodes are left out."""
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
        """Return the address of a broker's listener for Kafka clients; None without a listener."""
        listener = self._listeners.get(name)
        return None if listener is None else listener.end_point

    async def next_failures(self, known: int) -> list[NodeFailure]:
        """Wait until there are more than `known` failures; return the new ones."""
        while len(self.failures) <= known:
            self._failed.clear()
            await self._failed.wait()
        return self.failures[known:]

    async def stop(self) -> None:
        """End every node in an orderly way, in the reverse order of starts, and close all links."""
        for host in reversed(list(self._hosts.values())):  # a copy: `_remove` changes the dict
            host.trace(TraceEvent(kind=TraceKind.NODE_STOPPED))
            self._remove(host, is_orderly=True)
        for sock in self._reserved.values():
            sock.close()
        self._reserved.clear()
        await self._transport.close()

    def _host(self, name: NodeName) -> RealHost:
        """Return the host of a live node. Raises: SimulationError if the node does not run here."""
        host = self._hosts.get(name)
        if host is None:
            raise SimulationError(f"{name} is not alive in {self.process_id}")
        return host

    def _shut_down(self, host: RealHost) -> None:
        """Remove a node that has stopped; peers see their connections with it closed."""
        if not host.alive:
            return  # killed before this call of the loop
        host.trace(TraceEvent(kind=TraceKind.NODE_STOPPED))
        host.endpoint.close_all()
        self._remove(host, is_orderly=True)

    def _remove(self, host: RealHost, *, is_orderly: bool) -> None:
        """End a node's incarnation: its host, its listener, and the wait for its shutdown."""
        del self._hosts[host.name]
        self._nodes.pop(host.name, None)
        host.retire()
        self._close_listener(host.name)
        self._unflushed.pop(host, None)  # `retire` has flushed and closed the trace
        waiting = self._shutting_down.pop(host.name, None)
        # The future is done if the call that waits for it was cancelled.
        if waiting is not None and not waiting.done():
            waiting.set_result(is_orderly)

    def _open_listener(
        self, name: NodeName, incarnation: Incarnation, binding: ListenerBinding
    ) -> WireListener:
        """Return the listener of a new incarnation, on the reserved socket if there is one."""
        sock = self._reserved.pop(name, None) or bind(binding.host, binding.port)
        seed = self.settings.seed
        listener = WireListener(
            binding,
            sock,
            loop=self._loop,
            flush=self._flush_traces,
            # For rules that slow frames down by random times.
            rng_for=lambda client, rule_id: stream(seed, "slow", rule_id, client, incarnation),
        )
        listener.set_rules(self._rules)
        return listener

    def _close_listener(self, name: NodeName) -> None:
        """Stop the listener of an ended node, and reserve its port for the next incarnation."""
        listener = self._listeners.pop(name, None)
        if listener is None:
            return
        listener.stop()
        # Clients have this address in their settings, so no other program may take the port until
        # the broker starts again. If this fails here, the next start tries it again, and reports
        # the error.
        with suppress(OSError):
            self._reserved[name] = bind(listener.bound_host, listener.port)

    def _start_listener(self, host: RealHost) -> None:
        """Let Kafka clients connect to a node that is ready, if it has a listener."""
        listener = self._listeners.get(host.name)
        if listener is not None:
            listener.start()

    def _own_nodes(self) -> tuple[tuple[NodeName, Incarnation], ...]:
        """Return the live nodes of this process, for the other end of a new link."""
        return tuple((name, host.incarnation) for name, host in self._hosts.items())

    def _address_of(self, name: NodeName) -> ProcessAddress | None:
        """Return the address of a node's process; None if the node is not known to run."""
        return self._directory.get(name) or self._guests.get(name)

    def _send_frame(self, frame: Frame) -> None:
        """Send a frame of a node of this process; frames of one pair of nodes stay in order."""
        if frame.destination in self._hosts:
            # Delivered in a later call of the loop: a host must not be called back while it sends.
            self._loop.call_soon(self._deliver, frame)
            return
        if is_kafka_client(frame.destination):
            listener = self._listeners.get(frame.source)
            if listener is not None:
                listener.take(frame)
            return
        address = self._address_of(frame.destination)
        # If the address is this process's own, the node has just ended in this process, and the
        # directory is not up to date.
        if address is None or address.process_id == self.process_id:
            self._loop.call_soon(self._answer_undeliverable, frame)
        else:
            self._transport.send(address, frame)

    def _deliver(self, frame: Frame) -> None:
        """Give a received frame to its node."""
        host = self._hosts.get(frame.destination)
        if host is None:
            self._answer_undeliverable(frame)
        else:
            host.receive(frame)

    def _answer_undeliverable(self, frame: Frame) -> None:
        """Answer for a node that does not run here, as the kernel of its machine would.

        A peer may send to a dead node because a cut, which is a fault, delays the news of its
        death.
        """
        match frame:
            case OpenFrame():
                self._answer_with_close(
                    frame, by_client=False, reason="connection refused: no such node is up"
                )
            case RequestFrame():
                self._answer_with_close(frame, by_client=False, reason="its process is gone")
            case OpenedFrame() | ResponseFrame() | NoticeFrame():
                self._answer_with_close(frame, by_client=True, reason="its process is gone")
            case CloseFrame() | ResetFrame():
                pass  # the sender has ended the connection itself

    def _answer_with_close(
        self,
        frame: OpenFrame | OpenedFrame | RequestFrame | ResponseFrame | NoticeFrame,
        *,
        by_client: bool,
        reason: str,
    ) -> None:
        """Answer `frame` with a frame that closes its connection, in the name of its receiver."""
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
        """Send a frame in the name of a node that does not run here.

        The frame is dropped if its receiver does not run either.
        """
        host = self._hosts.get(frame.destination)
        if host is not None:
            host.receive(frame)
            return
        address = self._address_of(frame.destination)
        if address is not None and address.process_id != self.process_id:
            self._transport.send(address, frame)

    def _note_guest(self, address: ProcessAddress, nodes: tuple[NodeName, ...]) -> None:
        """Remember the address of a guest's nodes. An address in the directory has precedence."""
        self._guests.update(dict.fromkeys(nodes, address))

    def _process_lost(self, process_id: str, nodes: tuple[NodeName, ...]) -> None:
        """Inform every node here that another process is gone; `nodes` are its nodes."""
        lost_guests = [
            name for name, address in self._guests.items() if address.process_id == process_id
        ]
        for name in lost_guests:
            del self._guests[name]
        for host in list(self._hosts.values()):
            for name in nodes:
                host.peer_lost(name)

    def _report_refusal(self, caller: str, reason: str) -> None:
        """Log and trace a refused link at the process's first node, if there is a node."""
        # The process itself has no log and no trace, so the first node's are used.
        for host in self._hosts.values():
            host.log(f"refused the link from {caller}: {reason}")
            host.trace(
                TraceEvent(
                    kind=TraceKind.CONNECTION_REFUSED, detail={"reason": reason, "caller": caller}
                )
            )
            return

    def _schedule_flush(self, host: RealHost) -> None:
        """Flush the host's new trace rows in the loop's next turn, with those of other hosts."""
        if not self._unflushed:
            self._loop.call_soon(self._flush_traces)
        self._unflushed[host] = None

    def _flush_traces(self) -> None:
        """Write the traced rows.

        This is also called before frames leave the process. The process may be killed right after
        that, and then the rows about the cause of a frame must not be missing.
        """
        unflushed, self._unflushed = self._unflushed, {}
        for host in unflushed:
            try:
                host.flush()
            except OSError as error:
                self._record_failure(f"{host.name}: its trace cannot be written: {error}", error)

    def _record_failure(self, line: str, error: BaseException) -> None:
        """Record a failure of the tool, and wake `next_failures`."""
        if len(self.failures) < MAX_FAILURES_KEPT:
            trouble = None
            if isinstance(error, OSError) and is_of_the_disk(error):
                trouble = unwritten(self.settings.machine_dir, error)
            self.failures.append(NodeFailure(text=line, disk_trouble=trouble))
            self._failed.set()
