"""LocalRuntime: a cluster in this process, in real time.

All nodes are in one NodeProcess of this operating-system process. LocalLives starts and ends them,
and RealtimeRuntime has what all runtimes in real time share. LocalRuntime adds the rest of the
Runtime interface. Clients from outside find the nodes by the listeners file.
"""

import asyncio
import gc
import secrets
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

from cluster.client.admin.admin_client import AdminNode
from cluster.host.host import Host
from cluster.links.reset import LinkReset
from cluster.links.rules import LinkRule
from cluster.lives import ADMIN_NODE, NodeBuilder
from cluster.local.lives import LOOPBACK, LocalLives
from cluster.node_factory import build_node
from cluster.realtime import machine_processes
from cluster.realtime.host import RunSettings
from cluster.realtime.listeners_file import Listeners, remove_listeners, write_listeners
from cluster.realtime.process import NodeProcess
from cluster.realtime.runtime import RealtimeRuntime, merge_status
from cluster.realtime.tcp import ProcessAddress
from cluster.runtime import ClusterStartError, ClusterStatus, RowObserver
from cluster.spec import ClusterSpec
from cluster.wire.listener import address_text
from partition_log.memory_storage import MemoryStorage
from protocol.ids import Incarnation, NodeName

P = ParamSpec("P")
T = TypeVar("T")

_PROCESS_ID = "local#0"
"""Id of the NodeProcess, in the form of Ray's process ids: name and number of the start."""


class LocalRuntime(LocalLives, RealtimeRuntime):
    """A cluster in this process, for one run.

    Messages between nodes stay within the loop. Clients from outside connect to a port of the
    loopback address, which the listeners file contains.
    """

    name = "local"

    def __init__(
        self,
        spec: ClusterSpec,
        *,
        seed: int,
        run_id: str,
        run_dir: Path,
        time_scale: float = 1.0,
        observers: Sequence[RowObserver] = (),
        trace_messages: bool = True,
        build: NodeBuilder = build_node,
    ) -> None:
        # The calls are explicit, because the order matters: RealtimeRuntime sets `_run_dir`, which
        # LocalLives needs.
        RealtimeRuntime.__init__(
            self, run_id=run_id, run_dir=run_dir, time_scale=time_scale, observers=observers
        )
        LocalLives.__init__(
            self,
            spec,
            self._run_dir,
            build=build,
            trace=self.trace,
            on_failure=self._failed,
            on_moved=self._publish,
        )
        self._settings = RunSettings(
            run_id=run_id,
            seed=seed,
            token=secrets.token_hex(16),
            clock=self._clock,
            machine_dir=self._run_dir,
            trace_messages=trace_messages,
        )
        self._address: ProcessAddress | None = None
        """Address at which clients from outside reach the process; None before `start`."""
        self._admin: AdminNode | None = None
        """The client for `ask_as_admin`; None before its first use."""
        self._watcher: asyncio.Task[None] | None = None
        """The task that records the process's failures."""
        self._disk_trouble: str | None = None

    @property
    def disk_trouble(self) -> str | None:
        """Sentence on the first write that a node's disk refused; None if no write was refused."""
        return self._disk_trouble

    # -- lives -----------------------------------------------------------------------------------

    async def start(self, *, apart: bool = False) -> None:
        """Start every node in order.

        `apart` is part of the interface of runtimes, and has no effect here.
        Raises: ClusterStartError, after it has stopped the started nodes.
        """
        try:
            process = NodeProcess(_PROCESS_ID, self._settings)
            self._watcher = asyncio.create_task(self._watch(process), name=_PROCESS_ID)
            self._address = await process.listen(LOOPBACK)
            # A garbage collection delays all nodes. `freeze` makes it shorter, by leaving out the
            # many objects that exist by now and stay for the whole run.
            gc.collect()
            gc.freeze()
            self.start_all(process)
        except Exception as error:
            await self.stop()
            if isinstance(error, ClusterStartError):
                raise
            raise ClusterStartError(f"the cluster could not be started: {error!r}") from error

    async def status(self) -> ClusterStatus:
        """Return the cluster's present state."""
        status = self._status()
        if self._process is not None:
            merge_status(self._process.status(), into=status)
        return status

    def bootstrap_servers(self) -> tuple[str, ...]:
        """Return "host:port" of each running broker's listener."""
        if self._process is None:
            return ()
        addresses = (self._process.listener_address(name) for name in self.names_up())
        return tuple(address_text(each) for each in addresses if each is not None)

    async def set_link_rules(self, rules: Sequence[LinkRule]) -> None:
        """Replace all link rules immediately, also for nodes that start later."""
        self._set_rules(tuple(rules))

    async def reset_links(
        self,
        sources: Sequence[NodeName],
        destinations: Sequence[NodeName],
        purposes: Sequence[str] = (),
    ) -> int:
        """Close the connections between the two sets of nodes; return their number."""
        reset = LinkReset(
            sources=tuple(sources), destinations=tuple(destinations), purposes=tuple(purposes)
        )
        process = self._hosting()
        # The first call closes and counts the clients' ends. The second call closes the servers'
        # ends. (It counts only the connections of clients in stopped processes, which do not exist
        # here.)
        names = process.reset_client_ends(reset)
        return len(names) + process.reset_server_ends(reset, set(names), ())

    async def ask_as_admin(
        self,
        question: Callable[Concatenate[Host, ClusterSpec, P], Awaitable[T]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Run `question` as the client admin-0; see Runtime."""
        if self._admin is None:
            self._admin = self._hosting().start_node(
                ADMIN_NODE, Incarnation(0), AdminNode, storage=MemoryStorage(), role="admin"
            )
        return await question(self._admin.host, self._cluster, *args, **kwargs)

    # -- the end ---------------------------------------------------------------------------------

    async def _end_nodes(self) -> dict[str, str]:
        """Remove the listeners file, end every node (the last started first), remove the disks."""
        try:
            remove_listeners(self._run_dir)
        except OSError as error:
            self._failures.append(f"the listeners file could not be removed: {error}")
        if self._watcher is not None:
            self._watcher.cancel()
            self._watcher = None
        if self._process is not None:
            await self._process.stop()
        self._end_all_incarnations()
        gc.unfreeze()
        machine_processes.remove_disks(self._run_dir)
        return {}  # no machine is lost: every node was in this process

    async def _watch(self, process: NodeProcess) -> None:
        """Record the failures of the process until the run ends."""
        known_failures = 0
        while True:
            new_failures = await process.next_failures(known_failures)
            known_failures += len(new_failures)
            for failure in new_failures:
                self._disk_trouble = self._disk_trouble or failure.disk_trouble  # keeps the first
                self._failed(failure.text)

    def _publish(self) -> None:
        """Write the addresses of the nodes into the listeners file, for clients from outside."""
        if self._address is None:
            return
        # The administrator may start later, and then the file is not written again. So the file
        # always lists the administrator.
        names = (*self.names_up(), ADMIN_NODE)
        listeners = Listeners(
            run_id=self._settings.run_id,
            seed=self._settings.seed,
            token=self._settings.token,
            clock=self._clock,
            trace_messages=self._settings.trace_messages,
            directory=dict.fromkeys(names, self._address),
        )
        try:
            write_listeners(self._run_dir, listeners)
        except OSError as error:
            self._failed(f"the listeners file could not be written: {error}")
