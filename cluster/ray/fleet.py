"""The fleet: every node process of a run, and the Ray machines of these processes.

A run on Ray has several processes, each with one or more nodes, on one or more machines. The fleet
is a part of the driver, the process that conducts the run. It starts, watches and ends the node
processes; `lives` knows which node is where. On each machine it also starts an *agent*, a small
process that sends signals, reads the clock and reads files there.

Every second the fleet sends each agent a query, called a beat. If a machine does not answer for
some time, it is *silent*; calls to it are not awaited then. If it stays silent for longer, it is
*lost*, and its processes are given up.
"""

import asyncio
import secrets
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_attempt, wait_exponential

from cluster.ray import actors
from cluster.ray.actors import ActorGone, AgentHandle, Machine, ProcessHandle
from cluster.ray.control_plane import (
    CALL_TIMEOUT_S,
    ControlPlane,
    FleetProcess,
    MachineLine,
    side_by_side,
)
from cluster.ray.layout import ProcessPlan, node_names, place
from cluster.ray.machine_watch import (
    BEAT_S,
    Contact,
    MachineChange,
    MachineWatch,
    SilenceLimits,
)
from cluster.realtime import machine_processes
from cluster.realtime.clock import ClockOffset, RunClock, measure_offset
from cluster.realtime.host import RunSettings
from cluster.realtime.listeners_file import Listeners, remove_listeners, write_listeners
from cluster.realtime.machine_processes import ProcessStillAlive
from cluster.realtime.tcp import ProcessAddress
from cluster.runtime import ClusterStartError
from protocol.ids import NodeName

START_ATTEMPTS = 3
"""Number of attempts to start a process."""
START_TIMEOUT_S = 60.0
"""Longest start of a process. On a busy machine the import of Ray alone takes seconds."""
AGENT_DELAY_S = 25.0
"""When the first agent has started, the other agents must start within this time."""
KILL_TIMEOUT_S = 5.0
"""Time within which a killed or ended process must be gone."""
SIGNAL_TIMEOUT_S = 5.0
"""Time within which SIGSTOP must stop a process."""
STOP_TIMEOUT_S = 5.0
"""Limit of the orderly end of a process's nodes."""
COLLECT_TIMEOUT_S = 60.0
"""Limit of one call that copies or deletes files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineState:
    """A machine, its agent, the run's folder on it, and the offset of its clock.

    The driver waits for calls to the machine by `line.result`, which ends the wait if the machine
    becomes silent.
    """

    machine: Machine
    agent: AgentHandle
    machine_dir: Path
    clock: ClockOffset
    line: MachineLine = field(default_factory=MachineLine)


class Fleet:
    """The processes of one run.

    `on_failure` gets a line for each failure that is a bug of this program. `on_machine` is called
    when a machine becomes silent, answers again, or is lost. `layout` has the nodes of each
    machine, if the experiment says so.
    """

    def __init__(
        self,
        *,
        run_id: str,
        seed: int,
        run_dir: Path,
        clock: RunClock,
        ray_address: str,
        trace_messages: bool,
        on_failure: Callable[[str], None],
        layout: Sequence[Sequence[NodeName]] = (),
        on_machine: Callable[[MachineChange], None] = lambda change: None,
        silence: SilenceLimits | None = None,
    ) -> None:
        self.processes: list[FleetProcess] = []
        """Every process that has started, in order, including processes that have ended."""
        self.machines: dict[str, MachineState] = {}
        """Machines by Ray's id, including lost ones."""
        self.nodes_without_trace: dict[NodeName, None] = {}
        """Nodes with lost trace rows, because their machine did not answer at the end."""
        self.never_up: tuple[Machine, ...] = ()
        """Machines of the cluster on which no agent started."""
        self.disk_trouble: str | None = None
        """Sentence on the first write that a disk refused; None if no disk has refused a write."""
        self.control = ControlPlane(self.processes, on_failure=on_failure)
        self.run_id = run_id
        self._seed = seed
        self._run_dir = run_dir
        self._clock = clock
        self._ray_address = ray_address
        self._trace_messages = trace_messages
        self._on_failure = on_failure
        self._layout = layout
        self._on_machine = on_machine
        self._silence = silence or SilenceLimits()
        self._contacts = MachineWatch(self._silence)
        self._beats: list[asyncio.Task[None]] = []
        """The tasks that query the agents, and one that looks for silent machines."""
        self._token = secrets.token_hex(16)
        """Secret by which the run's processes recognise each other."""
        self._places: dict[str, Machine] = {}
        """Name of a process's plan -> its machine."""
        self._agents: list[AgentHandle] = []
        """Every agent whose start was tried; `disconnect` ends them."""
        self._starts: dict[str, int] = {}
        """Name of a process's plan -> the number of its last attempt to start, counted from 0."""
        self._watchers: list[asyncio.Task[None]] = []
        """One task for each process, which records the process's failures."""
        self._owns_ray = False
        """True if `connect` has connected this process to Ray, so that `disconnect` leaves Ray."""
        self._pause_orders = 0
        """Number of pauses and resumes so far. By this number a process recognises a late order."""

    async def connect(self, plans: Sequence[ProcessPlan]) -> None:
        """Start Ray or join it, start an agent on each machine, and choose each process's machine.

        Raises: RayUnavailable, TimeoutError.
        """
        self._owns_ray = actors.connect_ray(self._ray_address)
        # An agent that finds this file shares the driver's file system (AgentService.prepare).
        marker = f".run-{self._token}"
        (self._run_dir / marker).touch()
        try:
            await self._start_agents(actors.machines(), marker)
        except ActorGone as error:
            raise actors.RayUnavailable(
                f"Ray at {self._ray_address!r} starts no actors: {error}\nIf that cluster runs"
                " without token authentication, set RAY_AUTH_MODE=disabled here."
            ) from error
        finally:
            (self._run_dir / marker).unlink()
        self._beats += [
            asyncio.create_task(
                self._query_machine(ray_node_id, state), name=f"beats of {state.machine.address}"
            )
            for ray_node_id, state in self.machines.items()
        ]
        self._beats.append(
            asyncio.create_task(self._find_silent_machines(), name="silent machines")
        )
        self._places = place(
            plans, [state.machine for state in self.machines.values()], self._layout
        )

    async def publish(self, directory: Mapping[NodeName, ProcessAddress]) -> None:
        """Send the addresses of all nodes to every process, and write them to the listeners file.

        Clients from outside read that file.
        """
        await self.control.set_directory(directory)
        listeners = Listeners(
            run_id=self.run_id,
            seed=self._seed,
            token=self._token,
            clock=self._clock,
            trace_messages=self._trace_messages,
            directory=directory,
        )
        try:
            write_listeners(self._run_dir, listeners)
        except OSError as error:
            # Only clients from outside need the file, so the run continues without it.
            self._on_failure(f"the listeners file could not be written: {error}")

    async def start_process(self, plan: ProcessPlan) -> FleetProcess:
        """Start a process on its machine, or on another machine if its own is lost.

        Raises: ClusterStartError.
        """
        # After ActorGone or TimeoutError the machine may be lost. The next attempt then chooses
        # another machine (`choose_machine`).
        retrying = AsyncRetrying(
            stop=stop_after_attempt(START_ATTEMPTS),
            wait=wait_exponential(multiplier=0.2, max=2.0),  # begins at 0.2 s, and doubles
            retry=retry_if_exception_type((ActorGone, TimeoutError)),
            reraise=True,
        )
        try:
            return await retrying(self._try_start, plan)
        except Exception as error:
            # The process of the runtime's own client may have no other node, so its name is shown.
            names = ", ".join(node_names(plan)) or plan.name
            address = self._places[plan.name].address
            raise ClusterStartError(
                f"{names} could not be started on {address}: {error!r}"
            ) from error

    async def pause(self, process: FleetProcess, node: NodeName) -> None:
        """Pause a node; if its process hosts no other node, stop the process with SIGSTOP.

        1. A call pauses the node's host, which fires no timers and delivers no messages from then
           on.
        2. About a millisecond later SIGSTOP stops the process. Because of step 1, it is not stopped
           in the middle of an event.
        3. Later, `resume` lets the process run (SIGCONT), and sends it the newest state by a call.
           Because of step 1, the node does nothing before it has this state.
        Raises: SimulationError if the node is not alive; ProcessLookupError, ActorGone,
            TimeoutError, ProcessNotStopped.
        """
        order = self._next_pause_order()
        await process.handle.pause_node(node, order, CALL_TIMEOUT_S)
        if process.plan.name == node:  # a process with a node's name hosts no other node
            # This comes before the signal, because from now on no call to the process may be
            # awaited. (It is set already if an earlier pause has failed after this step.)
            if not process.is_stopped:
                process.stopped.set_result(None)
            await process.agent.stop(process.listening.process, SIGNAL_TIMEOUT_S)

    async def resume(self, process: FleetProcess, node: NodeName) -> None:
        """Let a paused node continue; send it the control plane's state and the missed resets.

        Raises: SimulationError if the node is not alive; ProcessLookupError, ActorGone,
            TimeoutError.
        """
        order = self._next_pause_order()
        await self._continue_process(process)
        resets, process.missed_resets = tuple(process.missed_resets), []
        await process.handle.resume_node(node, order, self.control.state, resets, CALL_TIMEOUT_S)

    async def end(self, process: FleetProcess) -> None:
        """End a process whose node has stopped, and wait until the process is gone.

        The process flushes and closes its files before it ends.
        """
        await self._stop_nodes(process)
        process.is_up = False
        process.handle.end()
        await self._wait_gone(self.machines[process.machine.ray_node_id], [process])

    def give_up(self, process: FleetProcess) -> None:
        """Kill a process, and do not wait until it is gone."""
        process.is_expected_to_end = True
        process.is_up = False
        process.handle.end()

    async def remove_disk(self, process_name: str, node: NodeName) -> None:
        """Delete the disk of a node that is down; do nothing if its machine does not answer.

        Raises: ActorGone, TimeoutError, OSError.
        """
        agent = self._agent_with_disk(process_name)
        if agent is not None:
            await agent.remove_disk(node, COLLECT_TIMEOUT_S)

    async def cut_disk(self, process_name: str, node: NodeName) -> None:
        """Remove from the logs of a node that is down all bytes that were not flushed.

        Does nothing if the node's machine does not answer.
        Raises: ActorGone, TimeoutError, OSError.
        """
        agent = self._agent_with_disk(process_name)
        if agent is not None:
            await agent.cut_disk(node, COLLECT_TIMEOUT_S)

    def _remove_listeners_file(self) -> None:
        """Remove the listeners file, so that no client from outside connects from now on."""
        try:
            remove_listeners(self._run_dir)
        except OSError as error:
            self._on_failure(f"the listeners file could not be removed: {error}")

    def _agent_with_disk(self, process_name: str) -> AgentHandle | None:
        """Return the agent of a process's machine; None if the machine does not answer."""
        ray_node_id = self._places[process_name].ray_node_id
        state = self.machines[ray_node_id]
        # A machine that is gone may disappear from Ray's list before it counts as silent, or later.
        is_alive = any(machine.ray_node_id == ray_node_id for machine in actors.machines())
        return state.agent if is_alive and not state.line.is_silent else None

    async def stop_processes(self) -> None:
        """End all nodes, then all processes, and wait until the processes are gone.

        Clients end before servers, so that no client sees a server end. A process that does not end
        is reported as a failure.
        """
        self._remove_listeners_file()
        for watcher in self._watchers:
            watcher.cancel()
        self._watchers.clear()
        # Processes of silent machines are not waited for, because they may never answer.
        for process in self.processes:
            if process.is_up and process.line.is_silent:
                self.give_up(process)
        live = [p for p in self.processes if p.is_up]
        # Stopped processes must run to be able to end. Their nodes stay paused.
        await side_by_side(self._try_continue(p) for p in self.processes if p.is_stopped)
        await side_by_side(self._stop_nodes(p) for p in live if not p.plan.is_server)
        await side_by_side(self._stop_nodes(p) for p in live if p.plan.is_server)
        for process in live:
            process.is_up = False
            process.handle.end()
        # Processes that were given up are included, because `give_up` does not wait until a process
        # is gone.
        await side_by_side(
            self._wait_gone(
                state,
                [p for p in self.processes if p.machine.ray_node_id == ray_node_id],
            )
            for ray_node_id, state in self.machines.items()
            if not state.line.is_silent
        )

    async def collect(self) -> dict[str, str]:
        """Fetch the run's files from other machines, and delete the disks.

        Returns: the machines whose files are lost, with the reasons.
        """
        lost: dict[str, str] = {}
        for state in self.machines.values():
            try:
                await state.line.result(state.agent.fetch_files(self._run_dir, COLLECT_TIMEOUT_S))
                await state.line.result(state.agent.clean_up(COLLECT_TIMEOUT_S))
            except (ActorGone, TimeoutError, OSError) as error:
                if state.machine_dir == self._run_dir:
                    # The machine shares the driver's file system, so no file is lost.
                    machine_processes.remove_disks(self._run_dir)
                    continue
                # Only the first line is kept, because Ray's errors have many lines.
                lost[state.machine.address] = str(error).partition("\n")[0]
                self.nodes_without_trace |= dict.fromkeys(self._nodes_ever_on(state.machine))
        return lost

    def disconnect(self) -> None:
        """End the agents, and Ray if this run started it. May be called twice."""
        for beat in self._beats:
            beat.cancel()
        self._beats.clear()
        agents, self._agents = self._agents, []
        for agent in agents:
            agent.end()
        if self._owns_ray:
            self._owns_ray = False
            actors.disconnect_ray()

    async def _start_agents(self, machines: Sequence[Machine], marker: str) -> None:
        """Start an agent on each machine; put machines on which no agent started into `never_up`.

        Raises: if no agent started at all, the exception of the first failed start (such as
            ActorGone), or TimeoutError.
        """
        starts = {
            machine: asyncio.create_task(self._start_agent(machine, marker)) for machine in machines
        }
        try:
            # A machine that has died is in Ray's list for a while, and its agent never starts. So
            # when the first agent is there, we wait only a little longer for the other agents.
            await asyncio.wait(
                starts.values(), timeout=START_TIMEOUT_S, return_when=asyncio.FIRST_COMPLETED
            )
            await asyncio.wait(starts.values(), timeout=AGENT_DELAY_S)
        finally:
            for start in starts.values():
                start.cancel()
            ends = await asyncio.gather(*starts.values(), return_exceptions=True)
        if not self.machines:
            raise next((end for end in ends if isinstance(end, Exception)), TimeoutError())
        self.never_up = tuple(
            machine for machine in starts if machine.ray_node_id not in self.machines
        )

    async def _start_agent(self, machine: Machine, marker: str) -> None:
        """Start a machine's agent; the machine is in `machines` once it has answered."""
        agent = AgentHandle.start(self.run_id, machine)
        self._agents.append(agent)
        self.machines[machine.ray_node_id] = MachineState(
            machine=machine,
            agent=agent,
            machine_dir=await agent.prepare(self._run_dir, marker, START_TIMEOUT_S),
            clock=await measure_offset(agent.read_clock),
        )

    async def _try_start(self, plan: ProcessPlan) -> FleetProcess:
        """Try once to start a process.

        Raises: ActorGone, TimeoutError, ClusterStartError.
        """
        await self._await_decision(plan)
        machine = self.choose_machine(plan)
        attempt = self._starts[plan.name] = self._starts.get(plan.name, -1) + 1
        state = self.machines[machine.ray_node_id]
        settings = RunSettings(
            run_id=self.run_id,
            seed=self._seed,
            token=self._token,
            clock=self._clock.on_machine(state.clock.offset_ns),
            machine_dir=state.machine_dir,
            trace_messages=self._trace_messages,
        )
        process_id = f"{plan.name}#{attempt}"
        # All processes of a local Ray are on this machine, so no other machine needs to reach them.
        is_local = self._ray_address == actors.LOCAL
        handle = ProcessHandle.start(
            process_id,
            settings,
            machine,
            bind_address=actors.LOOPBACK if is_local else machine.address,
        )
        try:
            listening = await state.line.result(handle.listen(START_TIMEOUT_S))
        except BaseException:
            handle.end()  # a process that starts too late must not stay beside the next attempt
            raise
        process = FleetProcess(
            process_id=process_id,
            plan=plan,
            machine=machine,
            agent=state.agent,
            handle=handle,
            listening=listening,
            line=state.line,
        )
        self.processes.append(process)
        self._watchers.append(asyncio.create_task(self._watch(process), name=process_id))
        return process

    def choose_machine(self, plan: ProcessPlan) -> Machine:
        """Return a process's machine; if this machine is lost, choose another and keep the choice.

        Raises: ClusterStartError if no machine is left.
        """
        alive = {
            machine.ray_node_id
            for machine in actors.machines()
            if self._contacts.state_of(machine.ray_node_id) is not Contact.LOST
        }
        chosen = self._places[plan.name]
        if chosen.ray_node_id in alive:
            return chosen
        for ray_node_id, state in self.machines.items():
            if ray_node_id in alive:
                self._places[plan.name] = state.machine
                return state.machine
        raise ClusterStartError(f"no machine is left for {plan.name}")

    async def _watch(self, process: FleetProcess) -> None:
        """Record the failures in a process until it ends, and its end if the run did not cause it.

        If a process is gone, there are three cases:

        1. The run itself has ended the process (`is_expected_to_end`). This is read again after the
           query below, because the run may end the process during the query.
        2. The machine is gone, too, so the agent does not answer. `_find_silent_machines` reports
           this.
        3. Otherwise the process has died by itself, which is a failure.
        """
        known_failures = 0
        while True:
            try:
                new_failures = await process.handle.next_failures(known_failures)
            except ActorGone as error:
                process.is_up = False
                if process.is_expected_to_end or not await self._machine_answers(process):
                    return
                if not process.is_expected_to_end:
                    self._on_failure(f"process {process.process_id} died by itself: {error}")
                return
            known_failures += len(new_failures)
            for failure in new_failures:
                # The first trouble is kept, because later troubles usually have the same cause.
                self.disk_trouble = self.disk_trouble or failure.disk_trouble
                self._on_failure(failure.text)

    async def _machine_answers(self, process: FleetProcess) -> bool:
        """Query the agent of a process's machine; return True if it answers."""
        try:
            await process.line.result(process.agent.beat(self._silence.silent_after_s))
        except (ActorGone, TimeoutError):
            return False
        return True

    async def _await_decision(self, plan: ProcessPlan) -> None:
        """Wait while the machine of a process is silent, until it answers or is lost."""
        ray_node_id = self._places[plan.name].ray_node_id
        while self._contacts.state_of(ray_node_id) is Contact.SILENT:
            await asyncio.sleep(BEAT_S / 2)

    async def settle_contact(self) -> None:
        """Wait until every machine has answered, or counts as silent."""

        async def answers(state: MachineState) -> bool:
            try:
                await state.line.result(state.agent.beat(self._silence.silent_after_s))
            except (ActorGone, TimeoutError):
                return False
            return True

        if not all(await side_by_side(answers(state) for state in self.machines.values())):
            # After this time `_find_silent_machines` has found each machine that did not answer.
            await asyncio.sleep(self._silence.silent_after_s + BEAT_S)

    async def _query_machine(self, ray_node_id: str, state: MachineState) -> None:
        """Query the agent of a machine every second, for as long as the run lasts."""
        loop = asyncio.get_running_loop()
        # The agent has just answered `prepare`; MachineWatch must know of a first answer.
        self._contacts.record_answer(ray_node_id, loop.time())
        while True:
            with suppress(ActorGone, TimeoutError):
                await state.agent.beat(self._silence.silent_after_s)
                change = self._contacts.record_answer(ray_node_id, loop.time())
                if change is not None:
                    await self._take_change(change)
            await asyncio.sleep(BEAT_S)

    async def _find_silent_machines(self) -> None:
        """Find machines that have become silent or lost, for as long as the run lasts."""
        loop = asyncio.get_running_loop()
        last_check_s = loop.time()
        while True:
            # This is half of the interval of the queries, so that a change is found soon.
            await asyncio.sleep(BEAT_S / 2)
            now_s = loop.time()
            # If the last check was long ago, the driver itself did not run, and the machines are
            # not to blame.
            if now_s - last_check_s > self._silence.silent_after_s:
                self._contacts.excuse_driver(now_s)
            last_check_s = now_s
            for change in self._contacts.find_changes(now_s):
                await self._take_change(change)

    async def _take_change(self, change: MachineChange) -> None:
        """Inform the runtime of a machine's change of contact, and act on its processes.

        If the machine answers again, its processes get the control plane's newest state. If the
        machine is lost, its processes are given up.
        """
        state = self.machines[change.machine]
        live_processes = [
            p for p in self.processes if p.machine.ray_node_id == change.machine and p.is_up
        ]
        state.line.set_silent(silent=change.state is not Contact.HEARD)
        # This comes before the processes are given up, because the runtime asks which nodes the
        # processes have (`nodes_on`).
        self._on_machine(change)
        if change.state is Contact.HEARD:
            await self.control.catch_up(live_processes)
        elif change.state is Contact.LOST:
            # If the machine answers later, these processes must not act beside the new incarnations
            # of their nodes.
            for process in live_processes:
                self.give_up(process)

    def nodes_on(self, ray_node_id: str) -> tuple[NodeName, ...]:
        """Return the nodes whose processes are on a machine now."""
        return tuple(
            name
            for process in self.processes
            if process.is_up and process.machine.ray_node_id == ray_node_id
            for name in node_names(process.plan)
        )

    def _nodes_ever_on(self, machine: Machine) -> tuple[NodeName, ...]:
        """Return the nodes of every process that was on a machine during the run."""
        return tuple(
            name
            for process in self.processes
            if process.machine.ray_node_id == machine.ray_node_id
            for name in node_names(process.plan)
        )

    async def _continue_process(self, process: FleetProcess) -> None:
        """Send SIGCONT to a process; do nothing if it is not stopped."""
        if process.is_stopped:
            await process.agent.send_signal(process.listening.process, signal.SIGCONT)
            process.stopped = asyncio.Future()

    async def _try_continue(self, process: FleetProcess) -> None:
        """Send SIGCONT to a process if it still exists."""
        try:
            await self._continue_process(process)
        except (ProcessLookupError, ActorGone, TimeoutError):
            return  # the process or its machine is gone; `_wait_gone` kills a process that is left

    def _next_pause_order(self) -> int:
        self._pause_orders += 1
        return self._pause_orders

    async def _stop_nodes(self, process: FleetProcess) -> None:
        """End the nodes of a process in an orderly way; a failure is reported, not raised."""
        process.is_expected_to_end = True
        try:
            await process.handle.stop(STOP_TIMEOUT_S)
        except Exception as error:  # any error, because the other processes must still be ended
            self._on_failure(f"{process.process_id} did not stop in an orderly way: {error!r}")

    async def _wait_gone(self, state: MachineState, processes: list[FleetProcess]) -> None:
        """Wait until processes of a machine are gone, and kill those that stay."""
        refs = [process.listening.process for process in processes]
        try:
            for left in await state.agent.wait_gone(refs, KILL_TIMEOUT_S):
                with suppress(ProcessLookupError):
                    await state.agent.kill(left, KILL_TIMEOUT_S)
        except ProcessStillAlive as error:
            self._on_failure(f"on {state.machine.address}: {error}")
        except (ActorGone, TimeoutError):
            return  # the machine is lost, and its processes with it
