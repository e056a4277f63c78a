"""RayLives: starts, kills, pauses, shuts down and restarts the nodes of a run on Ray.

The nodes live in processes. A ProcessPlan says which process has which nodes. Each server (broker,
controller, ZooKeeper server) has a process of its own; most clients share processes. Fleet
(`fleet`) starts and ends the processes, on the machines of the Ray cluster. When a node has started
or ended, RayLives sends the new list of addresses to all processes.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

from cluster.lives import ADMIN_NODE, LifeAct, NodeBuilder, NodeLife, NodeLives
from cluster.ray.actors import ActorGone
from cluster.ray.control_plane import CALL_TIMEOUT_S, FleetProcess, side_by_side
from cluster.ray.fleet import KILL_TIMEOUT_S, START_TIMEOUT_S, Fleet
from cluster.ray.layout import ProcessPlan, starts_with_the_cluster
from cluster.realtime.listening import listener_binding
from cluster.realtime.tcp import ProcessAddress
from cluster.runtime import ClusterStartError, HitNode, NodeState, UnknownNode
from cluster.spec import (
    ClusterSpec,
    ControllerSpec,
    NodeSpec,
    ZooKeeperSpec,
    has_disk,
    role_of,
    starts_later,
)
from cluster.wire.listener import address_text
from protocol.causes import KillCause
from protocol.errors import SimulationError
from protocol.ids import Incarnation, NodeName
from protocol.records.metadata import BrokerEndpoint
from protocol.trace import TraceEvent

ADMIN_PROCESS = "clients-0"
"""The process in which the administrator runs, among other clients."""


class RayLife(NodeLife):
    """A node with its process. `process` is None while no incarnation lives."""

    def __init__(self, spec: NodeSpec, plan: ProcessPlan) -> None:
        super().__init__(spec.name, spec)
        self.plan = plan
        self.process: FleetProcess | None = None
        self.is_paused = False
        self.end_point: BrokerEndpoint | None = None
        """Address of the listener for Kafka clients of the present or last incarnation."""
        self.shutting_down: asyncio.Task[None] | None = None
        """The task that waits for the end of a controlled shutdown."""

    @property
    def live_state(self) -> NodeState | None:
        """UP, STOPPING or PAUSED; None while no incarnation lives.

        A node that was paused during a shutdown is PAUSED.
        """
        if self.process is None:
            return None
        if self.is_paused:
            return NodeState.PAUSED
        return NodeState.UP if self.shutting_down is None else NodeState.STOPPING

    def live_process(self) -> FleetProcess:
        """Return the process of a node that is not down."""
        if self.process is None:
            raise SimulationError(f"{self.name} has no process")
        return self.process

    @property
    def has_own_process(self) -> bool:
        """True if the node's process hosts no other node."""
        return self.plan.name == self.name

    def hit(self) -> HitNode:
        """Return the live incarnation as a HitNode.

        It has a pid only if the node has its own process.
        """
        own_process = self.process if self.has_own_process else None
        return HitNode(
            node=self.name,
            incarnation=self.incarnations - 1,
            pid=None if own_process is None else own_process.listening.process.pid,
        )


class RayLives(NodeLives[RayLife]):
    """All nodes of one run. Calls for different nodes may run concurrently.

    `trace` writes an event of the run itself. `on_failure` gets a line for each failure that is a
    bug of this program. The methods that start, kill or pause a node raise UnknownNode if there is
    no such node, or if it is in a wrong state.
    """

    def __init__(
        self,
        cluster: ClusterSpec,
        plans: Sequence[ProcessPlan],
        fleet: Fleet,
        *,
        build: NodeBuilder,
        trace: Callable[[TraceEvent], None],
        on_failure: Callable[[str], None],
    ) -> None:
        lives = (RayLife(spec, plan) for plan in plans for spec in plan.nodes)
        super().__init__(cluster, lives, build=build, trace=trace)
        self._plans = plans
        self._fleet = fleet
        self._on_failure = on_failure
        self._moving: asyncio.Task[None] | None = None
        """The task that starts the nodes of a lost machine on other machines."""

    async def start_all(self) -> None:
        """Start every node that starts with the cluster: all processes first, then the nodes.

        Raises: ClusterStartError.
        """
        plans = [plan for plan in self._plans if starts_with_the_cluster(plan)]
        started = await side_by_side(self._fleet.start_process(plan) for plan in plans)
        processes = {process.plan.name: process for process in started}
        first_lives = [life for life in self._lives.values() if not starts_later(life.spec)]
        for life in first_lives:
            life.process = processes[life.plan.name]
        # The processes get the addresses before the nodes start, because nodes send requests
        # immediately.
        await self._push_directory()
        for life in first_lives:
            await self._start_in_process(life)

    async def start_node(self, node: NodeName) -> None:
        """Start a node whose spec says `starts_later`, and its process if that is not up."""
        await self._bring_up(self._begin(node, LifeAct.START))

    async def restart(self, node: NodeName, *, empty_disk: bool = False) -> None:
        """Start a dead node again on the machine that holds its disk, as a new incarnation.

        Raises: ClusterStartError.
        """
        life = self._begin(node, LifeAct.RESTART)
        if empty_disk:
            await self._fleet.remove_disk(life.plan.name, node)
        await self._bring_up(life)

    async def crash(self, node: NodeName, *, cause: KillCause | None = None) -> HitNode:
        """`kill -9` the node's process; if the process is shared, end only this node in it.

        Returns: the ended incarnation, with a pid only if its process was killed.
        """
        # `_begin` traces NODE_KILLED, before other nodes can trace effects of the death.
        life = self._begin(node, LifeAct.KILL, cause=cause)
        process = life.live_process()
        hit = life.hit()
        is_stopping = life.shutting_down is not None
        self._end_incarnation(life)  # also cancels the task that waits for a shutdown
        try:
            if life.has_own_process:
                process.is_expected_to_end = True
                await process.agent.kill(process.listening.process, KILL_TIMEOUT_S)
                process.is_up = False
            else:
                await process.handle.crash_node(node, CALL_TIMEOUT_S)
        except (ProcessLookupError, SimulationError, ActorGone):
            if not is_stopping:
                raise
            # The node was shutting down, and its process ended before the kill. So the node is
            # down, as it should be.
        await self._push_directory()
        return hit

    async def power_loss(self, node: NodeName) -> HitNode:
        """Kill the node's process, and remove from its logs all bytes that were not flushed."""
        hit = await self.crash(node, cause=KillCause.POWER_LOSS)
        life = self._life(node)
        if has_disk(life.spec):
            await self._fleet.cut_disk(life.plan.name, node)
        return hit

    async def shut_down(self, node: NodeName) -> HitNode:
        """Ask the node to stop, as SIGTERM does, and return without waiting for its end."""
        life = self._begin(node, LifeAct.SHUT_DOWN)
        life.shutting_down = asyncio.create_task(
            self._await_shut_down(life, life.live_process()), name=f"shut down {node}"
        )
        return life.hit()

    async def pause(self, node: NodeName) -> HitNode:
        """SIGSTOP the node's process, even during a shutdown.

        In a shared process only this node is paused, without a signal.
        Returns: the paused incarnation, with a pid only if its process was stopped.
        """
        life = self._begin(node, LifeAct.PAUSE)
        hit = life.hit()
        # `is_paused` is set before the wait. If a Ctrl-C interrupts the wait, `resume` must be
        # legal, to undo the pause.
        life.is_paused = True
        try:
            await self._fleet.pause(life.live_process(), node)
        except (SimulationError, ProcessLookupError, ActorGone) as error:
            life.is_paused = False
            raise UnknownNode(f"{node} ended before it could be paused: {error}") from error
        return hit

    async def resume(self, node: NodeName) -> None:
        """Let a paused node continue."""
        life = self._begin(node, LifeAct.RESUME)
        # If this call fails, the node still counts as paused, and `resume` is still legal.
        await self._fleet.resume(life.live_process(), node)
        life.is_paused = False

    def bootstrap_servers(self) -> tuple[str, ...]:
        """Return "host:port" of the listener of each broker that is up."""
        return tuple(
            address_text(life.end_point)
            for life in self._lives.values()
            if life.process is not None and life.end_point is not None
        )

    def lose_nodes(self, nodes: Sequence[NodeName]) -> str:
        """Record that nodes died with their machine, and begin to start them on other machines.

        Brokers start with an empty disk and replicate; clients join as new members. If a controller
        or a ZooKeeper server was lost, no node is started, because the run will end.
        Returns: the reason why the cluster cannot continue without the nodes; "" if it can.
        """
        # Without the nodes that are down, which a shared process of the machine may have, too.
        lives = [life for name in nodes if (life := self._lives[name]).process is not None]
        for life in lives:
            self._begin(life.name, LifeAct.KILL, cause=KillCause.MACHINE_LOST)
            self._end_incarnation(life)
        for life in lives:
            if isinstance(life.spec, ControllerSpec | ZooKeeperSpec):
                return f"{life.name} was on it, whose disk held the only copy of what it knew"
        self._moving = asyncio.create_task(self._start_elsewhere(lives), name="lost nodes")
        return ""

    async def _start_elsewhere(self, lives: Sequence[RayLife]) -> None:
        """Start the nodes of a lost machine on other machines, one after the other."""
        try:
            for life in lives:
                # From now on the fleet uses the new machine for this process.
                self._fleet.choose_machine(life.plan)
                if has_disk(life.spec):
                    # If the machines share a file system, the old disk is still there.
                    await self._fleet.remove_disk(life.plan.name, life.name)
                if life.state is NodeState.DOWN:  # the end of a fault may have started it already
                    await self._bring_up(life)
            # If the administrator's process was lost and had no other node, it has not been started
            # yet.
            if self._process_named(ADMIN_PROCESS) is None:
                # Exactly one plan has this name.
                (plan,) = (plan for plan in self._plans if plan.name == ADMIN_PROCESS)
                await self._fleet.start_process(plan)
                await self._push_directory()
        except Exception as error:  # no caller awaits this task, so the error is reported here
            self._on_failure(f"nodes of a lost machine could not be started elsewhere: {error!r}")

    # -- inside ----------------------------------------------------------------------------------

    def _admin_process(self) -> FleetProcess:
        """Return the process of the runtime's own client.

        Raises: UnknownNode if the process is not up.
        """
        process = self._process_named(ADMIN_PROCESS)
        if process is None:
            raise UnknownNode(f"{ADMIN_NODE}'s process is not running")
        return process

    def _end_all_incarnations(self) -> None:
        """Release each life's process and shutdown task, after all processes have ended."""
        for life in self._lives.values():
            self._end_incarnation(life)

    def _cancel_shutdowns(self) -> None:
        """Cancel the tasks that start or shut down nodes; the caller ends all nodes next."""
        if self._moving is not None:
            self._moving.cancel()
        for life in self._lives.values():
            if life.shutting_down is not None:
                life.shutting_down.cancel()
                life.shutting_down = None

    async def _await_shut_down(self, life: RayLife, process: FleetProcess) -> None:
        """Wait until a node has stopped, and end its process unless it is shared.

        A kill in the meantime cancels this task.
        """
        try:
            await process.handle.shut_down_node(life.name)
            if life.has_own_process:
                await self._fleet.end(process)
            life.shutting_down = None  # this task itself: `_end_incarnation` must not cancel it
            self._end_incarnation(life)
            await self._push_directory()
        except ActorGone:
            return  # the process died; the fleet's watcher reports it unless the run killed it
        except Exception as error:  # no caller awaits this task, so the error is reported here
            self._on_failure(f"{life.name} could not be shut down: {error!r}")

    async def _bring_up(self, life: RayLife) -> None:
        """Start a node; if its process is not up, start the process first.

        Raises: ClusterStartError.
        """
        process = self._process_named(life.plan.name)
        if process is None:
            process = await self._fleet.start_process(life.plan)
        life.process = process
        try:
            await self._push_directory()
            await self._start_in_process(life)
        except BaseException:
            life.process = None  # the node is down, and can be started again
            if life.has_own_process:
                # The call that starts the node may still arrive in this process. If the process
                # lived on, the node would then use its disk together with its next incarnation,
                # which starts in another process.
                self._fleet.give_up(process)
            raise

    async def _start_in_process(self, life: RayLife) -> None:
        """Start the next incarnation of a node in its running process."""
        process = life.process
        if process is None:
            raise ClusterStartError(f"{life.name} has no process")
        # The number is used up even if the start fails: the call may still arrive in the process,
        # and start a node with this number.
        incarnation = Incarnation(life.incarnations)
        life.incarnations += 1
        try:
            life.end_point = await process.line.result(
                process.handle.start_node(
                    life.name,
                    incarnation,
                    partial(self._build, life.spec, self._cluster),
                    role=role_of(life.spec),
                    has_disk=has_disk(life.spec),
                    binding=listener_binding(
                        self._cluster,
                        life.spec,
                        incarnation,
                        run_id=self._fleet.run_id,
                        default_host=process.listening.address.host,
                        # A restart keeps the earlier port, so that Kafka clients find the broker.
                        port=None if life.end_point is None else life.end_point.port,
                    ),
                    timeout_s=START_TIMEOUT_S,
                )
            )
        except Exception as error:
            raise ClusterStartError(f"{life.name} could not be started: {error!r}") from error

    async def _push_directory(self) -> None:
        """Publish the addresses of all live nodes, and of the runtime's own client."""
        directory: dict[NodeName, ProcessAddress] = {
            name: life.process.listening.address
            for name, life in self._lives.items()
            if life.process is not None
        }
        admin = self._process_named(ADMIN_PROCESS)
        if admin is not None:
            directory[ADMIN_NODE] = admin.listening.address
        await self._fleet.publish(directory)

    def _process_named(self, name: str) -> FleetProcess | None:
        """Return the process of the plan `name`; None if it is not up or the run ends it."""
        return next(
            (
                p
                for p in self._fleet.processes
                if p.is_up and not p.is_expected_to_end and p.plan.name == name
            ),
            None,
        )

    def _end_incarnation(self, life: RayLife) -> None:
        """Note that an incarnation has ended; the caller ends the node or its process."""
        life.process = None
        life.is_paused = False
        if life.shutting_down is not None:
            life.shutting_down.cancel()
            life.shutting_down = None
