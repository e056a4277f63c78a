"""LocalLives: incarnation (life from a start to its end) and state of each node of a local run.

A local run is in real time, and all its nodes are in one process, a NodeProcess. LocalLives starts,
kills, pauses, shuts down and restarts nodes there. LocalLives also has the directories of the
nodes' disks, which stay when a node is killed and started again.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path

from cluster.links.rules import LinkRule
from cluster.lives import LifeAct, NodeBuilder, NodeLife, NodeLives
from cluster.local.disks import LocalDisk
from cluster.node_factory import node_specs
from cluster.realtime import machine_processes
from cluster.realtime.listening import listener_binding
from cluster.realtime.process import NodeProcess
from cluster.runtime import ClusterStartError, HitNode, NodeState
from cluster.spec import ClusterSpec, NodeSpec, has_disk, role_of, starts_later
from cluster.storage.file_storage import cut_to_flush_marks
from partition_log.memory_storage import MemoryStorage
from protocol.causes import KillCause
from protocol.errors import SimulationError
from protocol.ids import Incarnation, NodeName
from protocol.trace import TraceEvent

LOOPBACK = "127.0.0.1"
"""Address at which clients on this machine reach the nodes."""


class LocalLife(NodeLife):
    """A node of the run, with the disk and the state of its live incarnation."""

    def __init__(self, spec: NodeSpec) -> None:
        super().__init__(spec.name, spec)
        self.is_up = False
        self.is_paused = False
        self.disk: LocalDisk | None = None
        """The disk while the node is up; None for a node without a disk."""
        self.shutting_down: asyncio.Task[None] | None = None
        """The task that waits for the end of a controlled shutdown."""

    @property
    def live_state(self) -> NodeState | None:
        """UP, STOPPING or PAUSED; None while no incarnation lives.

        A node that was paused during a shutdown is PAUSED.
        """
        if not self.is_up:
            return None
        if self.is_paused:
            return NodeState.PAUSED
        return NodeState.UP if self.shutting_down is None else NodeState.STOPPING

    def hit(self) -> HitNode:
        """Return the live incarnation as a HitNode, which the journal of faults gets.

        `pid` is None, because the node has no process of its own.
        """
        # Incarnations are numbered from 0.
        return HitNode(node=self.name, incarnation=self.incarnations - 1, pid=None)

    def end_incarnation(self) -> None:
        """Release the disk and the shutdown task of an incarnation that has ended."""
        self.is_up = False
        self.is_paused = False
        if self.disk is not None:
            self.disk.close()
            self.disk = None
        if self.shutting_down is not None:
            self.shutting_down.cancel()
            self.shutting_down = None


class LocalLives(NodeLives[LocalLife]):
    """All nodes of one run. Calls for different nodes may run concurrently.

    `trace` writes an event of the run itself. `on_failure` gets a line for each failure that is a
    bug of this program. `on_moved` is called after nodes have started or ended. The methods that
    start, kill or pause a node raise UnknownNode if there is no such node, or if it is in a wrong
    state.
    """

    def __init__(
        self,
        cluster: ClusterSpec,
        run_dir: Path,
        *,
        build: NodeBuilder,
        trace: Callable[[TraceEvent], None],
        on_failure: Callable[[str], None],
        on_moved: Callable[[], None],
    ) -> None:
        lives = (LocalLife(spec) for spec in node_specs(cluster))
        super().__init__(cluster, lives, build=build, trace=trace)
        self._directory_of_run = run_dir
        self._on_failure = on_failure
        self._on_moved = on_moved
        self._process: NodeProcess | None = None
        """The process with all nodes; None before `start_all`."""

    def names_up(self) -> tuple[NodeName, ...]:
        """Return the running nodes, including paused ones."""
        return tuple(name for name, life in self._lives.items() if life.is_up)

    def start_all(self, process: NodeProcess) -> None:
        """Start every node that starts with the cluster, in `process`.

        Raises: ClusterStartError.
        """
        self._process = process
        for life in self._lives.values():
            if not starts_later(life.spec):
                self._bring_up(life)
        self._on_moved()

    async def start_node(self, node: NodeName) -> None:
        """Start a node whose spec says `starts_later`."""
        self._bring_up(self._begin(node, LifeAct.START))
        self._on_moved()

    async def restart(self, node: NodeName, *, empty_disk: bool = False) -> None:
        """Start a dead node again, on its disk or on an empty one, as a new incarnation.

        Raises: ClusterStartError.
        """
        life = self._begin(node, LifeAct.RESTART)
        if empty_disk:
            machine_processes.remove_disk(self._directory_of_run, node)
        self._bring_up(life)
        self._on_moved()

    async def crash(self, node: NodeName) -> HitNode:
        """End the node as a kill of its process would; its disk keeps what was appended."""
        return self._crash(node)

    async def power_loss(self, node: NodeName) -> HitNode:
        """End the node, and remove from its logs all bytes that were not flushed.

        The node ends first. Otherwise it could append after the bytes were removed.
        """
        hit = self._crash(node, cause=KillCause.POWER_LOSS)
        if has_disk(self._life(node).spec):
            cut_to_flush_marks(self._disk_of(node))
        return hit

    async def shut_down(self, node: NodeName) -> HitNode:
        """Ask the node to stop, as SIGTERM does; returns before the node has stopped."""
        life = self._begin(node, LifeAct.SHUT_DOWN)
        life.shutting_down = asyncio.create_task(
            self._await_shut_down(life), name=f"shut down {node}"
        )
        return life.hit()

    async def pause(self, node: NodeName) -> HitNode:
        """Pause the node, as SIGSTOP does, even during a shutdown."""
        life = self._begin(node, LifeAct.PAUSE)
        self._hosting().pause_node(node)
        life.is_paused = True
        return life.hit()

    async def resume(self, node: NodeName) -> None:
        """Let a paused node continue: first its due timers fire, then it gets queued messages."""
        life = self._begin(node, LifeAct.RESUME)
        life.is_paused = False
        self._hosting().resume_node(node)

    # -- inside ----------------------------------------------------------------------------------

    def _hosting(self) -> NodeProcess:
        if self._process is None:
            raise SimulationError("no node was started yet")
        return self._process

    def _disk_of(self, node: NodeName) -> Path:
        return machine_processes.disk_of(self._directory_of_run, node)

    def _crash(self, node: NodeName, *, cause: KillCause | None = None) -> HitNode:
        """End a node as a kill would, and publish the nodes that are left."""
        # `_begin` comes first, because it traces NODE_KILLED: in the trace, every effect of the
        # death on other nodes must come after this row.
        life = self._begin(node, LifeAct.KILL, cause=cause)
        hit = life.hit()
        self._hosting().crash_node(node)
        life.end_incarnation()
        self._on_moved()
        return hit

    async def _await_shut_down(self, life: LocalLife) -> None:
        """Wait until a node has stopped. A kill in the meantime cancels this task."""
        try:
            await self._hosting().shut_down_node(life.name)
        except Exception as error:  # no caller awaits this task, so the error is reported here
            self._on_failure(f"{life.name} could not be shut down: {error!r}")
            return
        life.shutting_down = None  # this task itself: `end_incarnation` must not cancel it
        life.end_incarnation()
        self._on_moved()

    def _bring_up(self, life: LocalLife) -> None:
        """Start the next incarnation of a node.

        Raises: ClusterStartError.
        """
        # A start that fails is counted, too: the node is then DOWN, and may be restarted.
        incarnation = Incarnation(life.incarnations)
        life.incarnations += 1
        try:
            # Clients have no disk. They get a storage in memory, which stays empty.
            if has_disk(life.spec):
                life.disk = LocalDisk(self._disk_of(life.name), f"{life.name}-{incarnation}")
            self._hosting().start_node(
                life.name,
                incarnation,
                partial(self._build, life.spec, self._cluster),
                storage=MemoryStorage() if life.disk is None else life.disk.storage,
                role=role_of(life.spec),
                binding=listener_binding(
                    self._cluster,
                    life.spec,
                    incarnation,
                    run_id=self._hosting().settings.run_id,
                    default_host=LOOPBACK,
                ),
            )
        except Exception as error:
            life.end_incarnation()
            raise ClusterStartError(f"{life.name} could not be started: {error!r}") from error
        life.is_up = True

    def _end_all_incarnations(self) -> None:
        """Release the disks and shutdown tasks of all nodes, after the nodes have ended."""
        for life in self._lives.values():
            life.end_incarnation()

    def _set_rules(self, rules: tuple[LinkRule, ...]) -> None:
        self._hosting().set_link_rules(rules)
