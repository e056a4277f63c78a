"""What runs inside Ray's actors, as plain classes that know nothing of Ray.

NodeService wraps one NodeProcess; AgentService acts on one machine (signals, clocks, files).
`ray_nodes` makes actors of them and offers typed handles.
"""

import gc
import signal
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from cluster import machine_files
from cluster.clock import ClockReading, read_clock
from cluster.file_storage import FileStorage
from cluster.host import Host
from cluster.machine_files import ProcessRef
from cluster.process import HostedNode, NodeProcess
from cluster.real_host import RunSettings
from cluster.runtime import ClusterStatus
from cluster.tcp import ProcessAddress
from partition_log.memory_storage import MemoryStorage
from protocol.ids import Incarnation, NodeName, Offset, TopicPartition

NodeBuilder = Callable[[Host], HostedNode]
AdminQuestion = Callable[[Host], Awaitable[dict[TopicPartition, Offset]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ListeningProcess:
    """A node process that is up: which process it is and where it listens."""

    process: ProcessRef
    address: ProcessAddress


class _AdminNode:
    """Serves nobody: a client whose host asks the runtime's own questions."""

    def __init__(self, host: Host) -> None:
        self.host = host

    def start(self) -> None:
        """Do nothing until asked."""

    def report(self, status: ClusterStatus) -> None:
        """Know nothing."""


class NodeService:
    """The actor around a NodeProcess; it listens on `bind_address`, one of its machine's."""

    def __init__(self, process_id: str, settings: RunSettings, *, bind_address: str) -> None:
        self._process_id = process_id
        self._settings = settings
        self._bind_address = bind_address
        self._process: NodeProcess | None = None
        self._admin: _AdminNode | None = None

    async def listen(self) -> ListeningProcess:
        """Open the process's port. Raises: OSError."""
        self._process = NodeProcess(self._process_id, self._settings)
        address = await self._process.listen(self._bind_address)
        # What Ray and the imports made lives as long as the process: collections need not look
        # at it, each of which would hold up the nodes for tens of milliseconds.
        gc.collect()
        gc.freeze()
        return ListeningProcess(process=machine_files.own_process(), address=address)

    async def set_directory(self, directory: Mapping[NodeName, ProcessAddress]) -> None:
        """Take where every live node is."""
        self._alive().set_directory(directory)

    async def start_node(
        self,
        name: NodeName,
        incarnation: Incarnation,
        build: NodeBuilder,
        *,
        role: str,
        has_disk: bool,
    ) -> None:
        """Start a node; with a disk it finds what its earlier incarnations left there."""
        directory = self._settings.machine_dir / "disks" / name
        storage = FileStorage(directory) if has_disk else MemoryStorage()
        self._alive().start_node(name, incarnation, build, storage=storage, role=role)

    async def crash_node(self, name: NodeName) -> None:
        """End one node of several."""
        self._alive().crash_node(name)

    async def status(self) -> ClusterStatus:
        """Return what the process's nodes know."""
        return self._alive().status()

    async def next_failures(self, known: int) -> list[str]:
        """Return the failures behind the first `known`; waits until there is one."""
        return await self._alive().next_failures(known)

    async def ask_as_admin(
        self, name: NodeName, question: AdminQuestion
    ) -> dict[TopicPartition, Offset]:
        """Ask the cluster something as client `name`, which is started if it is not there."""
        process = self._alive()
        if self._admin is None:
            self._admin = process.start_node(
                name, Incarnation(0), _AdminNode, storage=MemoryStorage(), role="admin"
            )
        return await question(self._admin.host)

    async def stop(self) -> None:
        """End every node in an orderly way."""
        await self._alive().stop()

    def _alive(self) -> NodeProcess:
        if self._process is None:
            raise RuntimeError(f"{self._process_id} was not told to listen")
        return self._process


class AgentService:
    """The actor that acts on one machine for the runtime."""

    def __init__(self, run_id: str) -> None:
        self._run_id = run_id
        self._machine_dir = Path()
        self._shares_files = False

    async def prepare(self, run_dir: str, marker: str) -> str:
        """Return the directory for this machine's files: the run's own where it can be seen.

        `marker` is a file that the driver has just written into `run_dir`.
        """
        self._shares_files = (Path(run_dir) / marker).exists()
        if self._shares_files:
            self._machine_dir = Path(run_dir)
        else:
            prefix = f"coordlab-{self._run_id.replace('/', '-')}-"
            self._machine_dir = Path(tempfile.mkdtemp(prefix=prefix))
        return str(self._machine_dir)

    async def read_clock(self) -> ClockReading:
        """Return the machine's clock."""
        return read_clock()

    async def kill(self, process: ProcessRef, timeout_s: float) -> None:
        """`kill -9` a process and wait until it is gone."""
        await machine_files.kill(process, timeout_s)

    async def send_signal(self, process: ProcessRef, signal_number: int) -> None:
        """Send any other signal."""
        machine_files.send_signal(process, signal.Signals(signal_number))

    async def wait_gone(
        self, processes: list[ProcessRef], timeout_s: float
    ) -> tuple[ProcessRef, ...]:
        """Wait until processes are gone; return who is still there."""
        return await machine_files.wait_gone(processes, timeout_s)

    async def files_to_fetch(self) -> tuple[tuple[str, int], ...]:
        """Return the files that the driver cannot see: relative path, size in bytes."""
        return () if self._shares_files else machine_files.collected_files(self._machine_dir)

    async def read_piece(self, relative_path: str, offset: int) -> bytes:
        """Return a piece of a file."""
        return machine_files.read_piece(self._machine_dir, relative_path, offset)

    async def clean_up(self) -> None:
        """Delete the disks, and everything on a machine that is not the driver's."""
        if self._shares_files:
            machine_files.remove_disks(self._machine_dir)
        else:
            machine_files.remove_machine_dir(self._machine_dir)
