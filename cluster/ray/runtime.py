"""RayRuntime: a cluster of real processes on Ray, in real time.

RayLives starts, stops and kills the nodes, Fleet starts and ends their processes, and
RealtimeRuntime has what all runtimes in real time share. RayRuntime adds what is special to several
machines: each machine has a clock of its own, and may become silent (it does not answer) or lost
(it was given up).
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

from cluster.host.host import Host
from cluster.links.reset import LinkReset
from cluster.links.rules import LinkRule
from cluster.lives import ADMIN_NODE, NodeBuilder
from cluster.node_factory import build_node
from cluster.ray import actors
from cluster.ray.fleet import Fleet
from cluster.ray.layout import plan_processes
from cluster.ray.lives import RayLives
from cluster.ray.machine_watch import Contact, MachineChange, SilenceLimits
from cluster.realtime.runtime import RealtimeRuntime, merge_status
from cluster.runtime import ClusterStartError, ClusterStatus, MachineEvent, RowObserver
from cluster.spec import ClusterSpec
from protocol.ids import NodeName

P = ParamSpec("P")
T = TypeVar("T")


class RayRuntime(RayLives, RealtimeRuntime):
    """A cluster on Ray, for one run.

    If `ray_address` is "local", a Ray is started for the run; otherwise the Ray at this address is
    joined.
    """

    name = "ray"

    def __init__(
        self,
        spec: ClusterSpec,
        *,
        seed: int,
        run_id: str,
        run_dir: Path,
        ray_address: str = actors.LOCAL,
        time_scale: float = 1.0,
        observers: Sequence[RowObserver] = (),
        trace_messages: bool = True,
        build: NodeBuilder = build_node,
        silence: SilenceLimits | None = None,
    ) -> None:
        # RealtimeRuntime comes first, because it sets `_run_dir` and `_clock`, which Fleet needs.
        RealtimeRuntime.__init__(
            self, run_id=run_id, run_dir=run_dir, time_scale=time_scale, observers=observers
        )
        plans = plan_processes(spec)
        fleet = Fleet(
            run_id=run_id,
            seed=seed,
            run_dir=self._run_dir,
            clock=self._clock,
            ray_address=ray_address,
            trace_messages=trace_messages,
            on_failure=self._failed,
            layout=spec.machines,
            on_machine=self._take_machine,
            silence=silence,
        )
        self._machine_events: dict[tuple[str, float], MachineEvent] = {}
        """Machine and time of its last answer -> the event of the silence that followed."""
        RayLives.__init__(
            self, spec, plans, fleet, build=build, trace=self.trace, on_failure=self._failed
        )

    # -- the run ---------------------------------------------------------------------------------

    @property
    def clock_bounds_us(self) -> dict[str, int]:
        """Clock error of each machine, in microseconds of run time.

        The clocks are compared with the clock of the driver, the process that conducts the run.
        """
        return {
            state.machine.address: round(state.clock.bound_ns * self._clock.time_scale / 1000)
            for state in self._fleet.machines.values()
        }

    @property
    def clock_error_us(self) -> int:
        """Largest possible difference between the clocks of two nodes, in microseconds."""
        # The worst case is two nodes on the two machines with the largest errors.
        bounds = sorted(self.clock_bounds_us.values(), reverse=True)
        return sum(bounds[:2]) if len(bounds) > 1 else 0

    @property
    def machine_events(self) -> tuple[MachineEvent, ...]:
        """The times in which machines did not answer, so far."""
        return tuple(self._machine_events.values())

    @property
    def nodes_without_trace(self) -> tuple[NodeName, ...]:
        """Nodes whose trace rows, or some of them, were lost with a machine."""
        return tuple(self._fleet.nodes_without_trace)

    async def settle_contact(self) -> None:
        """Wait until every machine has answered, or is among `machine_events`."""
        await self._fleet.settle_contact()

    def _take_machine(self, change: MachineChange) -> None:
        """Record that a machine is silent, answers again, or is lost.

        Begins to start the nodes of a lost machine on other machines.
        """
        silent_s = asyncio.get_running_loop().time() - change.since_s
        now_us = self._clock.now_us()
        key = (change.machine, change.since_s)
        event = self._machine_events.get(key) or MachineEvent(
            address=self._fleet.machines[change.machine].machine.address,
            # The silence began with the last answer, `silent_s` seconds ago.
            from_us=now_us - round(silent_s * 1e6 * self._clock.time_scale),
            until_us=None,
            nodes=self._fleet.nodes_on(change.machine),
        )
        match change.state:
            case Contact.HEARD:
                event = replace(event, until_us=now_us)
            case Contact.LOST:
                # A run that is ending does not need the nodes any more.
                ends_run = "" if self._is_ending else self.lose_nodes(event.nodes)
                event = replace(event, is_lost=True, ends_run=ends_run)
            case Contact.SILENT:
                pass
        self._machine_events[key] = event

    @property
    def disk_trouble(self) -> str | None:
        """Sentence on the first write that a disk refused; None if no disk has refused a write."""
        return self._fleet.disk_trouble

    def pids(self) -> tuple[int, ...]:
        """Return the pids of the node processes that are up; a pid is valid on its machine only."""
        return tuple(p.listening.process.pid for p in self._fleet.processes if p.is_up)

    # -- lives -----------------------------------------------------------------------------------

    async def start(self, *, apart: bool = False) -> None:
        """Start Ray or join it, then every process, then every node in order.

        `apart` has no effect: the moments of starts are drawn in virtual time only.
        Raises: ClusterStartError, after it has stopped everything that was started.
        """
        try:
            await self._fleet.connect(self._plans)
            for machine in self._fleet.never_up:
                # No agent started on this machine. 0.0, because it has never answered.
                self._machine_events[machine.ray_node_id, 0.0] = MachineEvent(
                    address=machine.address, from_us=0, until_us=None, nodes=(), is_lost=True
                )
            await self.start_all()
        except Exception as error:
            await self.stop()
            if isinstance(error, ClusterStartError):
                raise
            raise ClusterStartError(f"the cluster could not be started: {error!r}") from error

    async def status(self) -> ClusterStatus:
        """Return the cluster's present state; a process that does not answer in 2 s is left out."""
        status = self._status()
        for part in await self._fleet.control.status():
            merge_status(part, into=status)
        return status

    async def set_link_rules(self, rules: Sequence[LinkRule]) -> None:
        """Replace all link rules; return when every live process that is not paused has them."""
        await self._fleet.control.set_rules(tuple(rules))

    async def reset_links(
        self,
        sources: Sequence[NodeName],
        destinations: Sequence[NodeName],
        purposes: Sequence[str] = (),
    ) -> int:
        """Close all connections between the two sets of nodes; return their number."""
        reset = LinkReset(
            sources=tuple(sources), destinations=tuple(destinations), purposes=tuple(purposes)
        )
        return await self._fleet.control.reset_links(reset)

    async def ask_as_admin(
        self,
        question: Callable[Concatenate[Host, ClusterSpec, P], Awaitable[T]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Await `question` in the process of the client admin-0; see Runtime.ask_as_admin."""
        process = self._admin_process()
        return await process.line.result(
            process.handle.ask_as_admin(ADMIN_NODE, question, self._cluster, *args, **kwargs)
        )

    # -- the end ---------------------------------------------------------------------------------

    async def _end_nodes(self) -> dict[str, str]:
        """End every process, clients first, and fetch the run's files from other machines."""
        self._cancel_shutdowns()
        await self._fleet.stop_processes()
        self._end_all_incarnations()
        return await self._fleet.collect()

    def _disconnect(self) -> None:
        self._fleet.disconnect()
