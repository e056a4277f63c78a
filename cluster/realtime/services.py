"""NodeService controls one node process, AgentService one machine (signals, clock, files).

The driver, the process that conducts the run, calls their methods over Ray: `cluster.ray.actors`
makes Ray actors of them. An actor is an object in a process of its own. Ray may carry out the calls
of one actor in another order than the driver has made them. So some methods get a number, by which
they recognise an outdated call. The classes here do not need Ray, so that tests can use them
directly.

To *reset* a link means to close connections between certain nodes. Each of the two processes of a
connection closes its own end. A process that is stopped (SIGSTOP) cannot do so. The clients in a
stopped process are called *silent clients*.
"""

import gc
import signal
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

from cluster.client.admin.admin_client import AdminNode
from cluster.host.host import Host
from cluster.links.reset import ConnectionName, LinkReset
from cluster.links.rules import LinkRule
from cluster.realtime import machine_processes
from cluster.realtime.clock import ClockReading, read_clock
from cluster.realtime.failures import NodeFailure
from cluster.realtime.host import RunSettings
from cluster.realtime.machine_processes import ProcessRef
from cluster.realtime.process import HostedNode, NodeProcess
from cluster.realtime.tcp import ProcessAddress
from cluster.runtime import ClusterStatus
from cluster.storage.file_storage import FileStorage, cut_to_flush_marks
from cluster.wire.listener import ListenerBinding
from partition_log.memory_storage import MemoryStorage
from protocol.ids import Incarnation, NodeName
from protocol.records.metadata import BrokerEndpoint

P = ParamSpec("P")
T = TypeVar("T")

HostedNodeBuilder = Callable[[Host], HostedNode]
"""Creates a node on a Host."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListeningProcess:
    """A running node process, and the address at which it listens."""

    process: ProcessRef
    address: ProcessAddress


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlState:
    """The knowledge that every process needs: where all nodes are, and the link rules.

    The state with the highest `version` counts.
    """

    version: int
    directory: Mapping[NodeName, ProcessAddress]
    rules: tuple[LinkRule, ...]


class NodeService:
    """The actor around a NodeProcess that listens on `bind_address`, an address of its machine."""

    def __init__(self, process_id: str, settings: RunSettings, *, bind_address: str) -> None:
        self._process_id = process_id
        self._settings = settings
        self._bind_address = bind_address
        self._process: NodeProcess | None = None
        """The process's nodes; None before `listen`."""
        self._admin: AdminNode | None = None
        """The client for `ask_as_admin`; None before its first use."""
        self._control_version = -1
        """Version of the newest ControlState that was applied; -1 before the first state."""
        self._last_pause_orders: dict[NodeName, int] = {}
        """Node -> the number of the last pause or resume that was carried out."""

    async def listen(self) -> ListeningProcess:
        """Open the process's port. Raises: OSError."""
        # Made here and not in `__init__`, because a NodeProcess needs the running loop.
        self._process = NodeProcess(self._process_id, self._settings)
        address = await self._process.listen(self._bind_address)
        # The many objects that exist by now (of Ray, for example) stay until the process ends.
        # `freeze` takes them out of garbage collections, which would otherwise delay the nodes by
        # tens of milliseconds.
        gc.collect()
        gc.freeze()
        return ListeningProcess(process=machine_processes.own_process(), address=address)

    async def control(self, state: ControlState) -> None:
        """Apply the control plane's state, unless a newer state came first."""
        if state.version <= self._control_version:
            return
        self._control_version = state.version
        process = self._alive()
        # The rules come first, because `set_directory` reports dead peers, and a new cut must hide
        # this from the nodes.
        process.set_link_rules(state.rules)
        process.set_directory(state.directory)

    async def start_node(
        self,
        name: NodeName,
        incarnation: Incarnation,
        build: HostedNodeBuilder,
        *,
        role: str,
        has_disk: bool,
        binding: ListenerBinding | None = None,
    ) -> BrokerEndpoint | None:
        """Start a node; a node with a disk gets the files of its earlier incarnations.

        Returns: the address of the node's listener for Kafka clients; None without a `binding`.
        """
        directory = machine_processes.disk_of(self._settings.machine_dir, name)
        storage = FileStorage(directory) if has_disk else MemoryStorage()
        process = self._alive()
        process.start_node(name, incarnation, build, storage=storage, role=role, binding=binding)
        return process.listener_address(name)

    async def crash_node(self, name: NodeName) -> None:
        """End a node that shares its process with others, as if its own process were killed."""
        self._alive().crash_node(name)

    async def pause_node(self, name: NodeName, order: int) -> None:
        """Pause one node.

        `order` grows with each pause and resume of the run. Calls may arrive in the wrong order; a
        pause that arrives after its resume is ignored.
        """
        if self._accept_order(name, order):
            self._alive().pause_node(name)

    async def resume_node(
        self, name: NodeName, order: int, state: ControlState, resets: tuple[LinkReset, ...]
    ) -> None:
        """Resume one node, after applying the newest state and the resets that were missed.

        This process was stopped when `resets` were ordered, and has not run until now. So it has
        opened no connection after a reset, and can close every connection that a reset selects.
        """
        await self.control(state)
        process = self._alive()
        for reset in resets:
            process.reset_client_ends(reset)
            # No connection is named here. Instead all nodes of the reset count as silent clients,
            # so all selected server ends close.
            process.reset_server_ends(reset, (), (*reset.sources, *reset.destinations))
        if self._accept_order(name, order):
            self._alive().resume_node(name)

    def _accept_order(self, name: NodeName, order: int) -> bool:
        """Note a pause or resume of a node; return False if a newer order has arrived already."""
        if order <= self._last_pause_orders.get(name, -1):
            return False
        self._last_pause_orders[name] = order
        return True

    async def shut_down_node(self, name: NodeName) -> bool:
        """Ask one node to stop, and wait for it; return True if it stopped in an orderly way."""
        return await self._alive().shut_down_node(name)

    async def reset_client_ends(self, reset: LinkReset) -> tuple[ConnectionName, ...]:
        """Close the client ends of the reset's connections in this process; return their names."""
        return self._alive().reset_client_ends(reset)

    async def reset_server_ends(
        self,
        reset: LinkReset,
        names: tuple[ConnectionName, ...],
        silent_clients: tuple[NodeName, ...],
    ) -> int:
        """Close the server ends of the connections `names`, and of all silent clients.

        Returns: the number of the silent clients' connections. All other connections were counted
        when their client ends were closed.
        """
        return self._alive().reset_server_ends(reset, set(names), silent_clients)

    async def status(self) -> ClusterStatus:
        """Return the part of the cluster's state that the process's nodes know."""
        return self._alive().status()

    async def next_failures(self, known: int) -> list[NodeFailure]:
        """Wait until there are more than `known` failures; return the new ones."""
        return await self._alive().next_failures(known)

    async def ask_as_admin(
        self,
        name: NodeName,
        question: Callable[Concatenate[Host, P], Awaitable[T]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Run `question` as the client `name`, which is started at the first call and then kept."""
        process = self._alive()
        if self._admin is None:
            self._admin = process.start_node(
                name, Incarnation(0), AdminNode, storage=MemoryStorage(), role="admin"
            )
        return await question(self._admin.host, *args, **kwargs)

    async def stop(self) -> None:
        """End every node in an orderly way."""
        await self._alive().stop()

    def _alive(self) -> NodeProcess:
        """Return the process that `listen` has made."""
        if self._process is None:
            raise RuntimeError(f"expected listen() before any other call of {self._process_id}")
        return self._process


class AgentService:
    """The actor that acts on one machine for the runtime."""

    def __init__(self, run_id: str) -> None:
        self._run_id = run_id
        self._machine_dir = Path()
        """Folder of this machine's files; set by `prepare`."""
        self._shares_files = False
        """True if the driver sees these files without fetching them."""

    async def prepare(self, run_dir: str, marker: str) -> str:
        """Return the directory for this machine's files.

        `marker` is a file that the driver has just written into `run_dir`. If it is visible here,
        the machines share the file system, and `run_dir` itself is used. Otherwise a new directory
        is made.
        """
        self._shares_files = (Path(run_dir) / marker).exists()
        if self._shares_files:
            self._machine_dir = Path(run_dir)
        else:
            # A slash in the run's id would make the prefix a path.
            prefix = f"coordlab-{self._run_id.replace('/', '-')}-"
            self._machine_dir = Path(tempfile.mkdtemp(prefix=prefix))
        return str(self._machine_dir)

    async def beat(self) -> None:
        """Do nothing. The answer to this call shows that the machine is alive."""

    async def read_clock(self) -> ClockReading:
        """Return a reading of the machine's clock."""
        return read_clock()

    async def kill(self, process: ProcessRef, timeout_s: float) -> None:
        """`kill -9` a process and wait until it is gone."""
        await machine_processes.kill(process, timeout_s)

    async def stop(self, process: ProcessRef, timeout_s: float) -> None:
        """SIGSTOP a process and wait until it is stopped."""
        await machine_processes.stop(process, timeout_s)

    async def send_signal(self, process: ProcessRef, signal_number: int) -> None:
        """Send a signal; for SIGKILL and SIGSTOP there are `kill` and `stop`, which also wait."""
        machine_processes.send_signal(process, signal.Signals(signal_number))

    async def wait_gone(
        self, processes: list[ProcessRef], timeout_s: float
    ) -> tuple[ProcessRef, ...]:
        """Wait until processes are gone; return those that still exist."""
        return await machine_processes.wait_gone(processes, timeout_s)

    async def cut_disk(self, node: str) -> None:
        """Remove from the logs of a dead node all bytes that were not flushed."""
        cut_to_flush_marks(machine_processes.disk_of(self._machine_dir, node))

    async def remove_disk(self, node: str) -> None:
        """Delete the disk of a dead node."""
        machine_processes.remove_disk(self._machine_dir, node)

    async def files_to_fetch(self) -> tuple[tuple[str, int], ...]:
        """Return the files that the driver must fetch: relative path, size in bytes."""
        return () if self._shares_files else machine_processes.collected_files(self._machine_dir)

    async def read_piece(self, relative_path: str, offset: int) -> bytes:
        """Return a piece of a file, from byte `offset` on."""
        return machine_processes.read_piece(self._machine_dir, relative_path, offset)

    async def clean_up(self) -> None:
        """Delete the disks; delete the whole directory if the driver does not share it."""
        if self._shares_files:
            machine_processes.remove_disks(self._machine_dir)
        else:
            machine_processes.remove_machine_dir(self._machine_dir)
