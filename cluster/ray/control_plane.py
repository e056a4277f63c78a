"""ControlPlane: the driver's calls to all live node processes, which no fault disturbs.

The driver, which conducts the run, tells all node processes where the nodes are and which link
rules apply. These two together are the ControlState; only its newest version counts. The driver
also asks the processes for their status, and orders them to reset connections. All these calls go
over Ray, and not over the nodes' own network.

A process may be stopped (SIGSTOP), or its machine may be *silent*: it does not answer. The control
plane does not wait for such a process. A stopped process gets the newest state, and the resets that
it has missed, before its nodes continue.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from cluster.links.reset import ConnectionName, LinkReset
from cluster.links.rules import LinkRule
from cluster.ray.actors import ActorGone, AgentHandle, Machine, MachineLost, ProcessHandle
from cluster.ray.layout import ProcessPlan, node_names
from cluster.realtime.services import ControlState, ListeningProcess
from cluster.realtime.tcp import ProcessAddress
from cluster.runtime import ClusterStatus
from protocol.ids import NodeName

T = TypeVar("T")

CALL_TIMEOUT_S = 10.0
"""Limit of a call to a process."""
STATUS_TIMEOUT_S = 2.0
"""Limit of a status query: short, because a run asks often, and an answer may be missing."""


@dataclass(slots=True)
class MachineLine:
    """The driver's contact with a machine. `silence` is done while the machine is silent."""

    silence: asyncio.Future[None] = field(default_factory=asyncio.Future)

    @property
    def is_silent(self) -> bool:
        """True while the machine does not answer; no call to it is awaited then."""
        return self.silence.done()

    def set_silent(self, *, silent: bool) -> None:
        """Record that the machine has stopped answering, or answers again."""
        if silent and not self.silence.done():
            self.silence.set_result(None)
        elif not silent and self.silence.done():
            self.silence = asyncio.Future()

    async def result(self, call: Coroutine[Any, Any, T]) -> T:
        """Wait for a call to the machine.

        Raises: MachineLost as soon as the machine is silent.
        """
        task = asyncio.ensure_future(call)
        try:
            await asyncio.wait((task, self.silence), return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                raise MachineLost("its machine does not answer")
            return task.result()
        finally:
            task.cancel()


@dataclass(slots=True, kw_only=True)
class FleetProcess:
    """A node process that listens.

    `is_up` is False if the process is gone, or was given up. `is_expected_to_end` is True when the
    run itself ends the process. The future `stopped` is done from SIGSTOP to SIGCONT, and
    `missed_resets` are the resets that were ordered in this time.
    """

    process_id: str
    plan: ProcessPlan
    machine: Machine
    agent: AgentHandle
    """The agent of its machine."""
    handle: ProcessHandle
    listening: ListeningProcess
    line: MachineLine = field(default_factory=MachineLine)
    stopped: asyncio.Future[None] = field(default_factory=asyncio.Future)
    missed_resets: list[LinkReset] = field(default_factory=list)
    is_up: bool = True
    is_expected_to_end: bool = False

    @property
    def is_stopped(self) -> bool:
        """True from SIGSTOP to SIGCONT."""
        return self.stopped.done()


class ControlPlane:
    """Calls to all live processes in `processes`. The list's owner adds processes to it later.

    `on_failure` gets a line for each failure of this tool, such as a process that does not answer.
    """

    def __init__(
        self, processes: Sequence[FleetProcess], *, on_failure: Callable[[str], None]
    ) -> None:
        self.state = ControlState(version=0, directory={}, rules=())
        """The newest state; stopped processes get it when they continue."""
        self._processes = processes
        self._on_failure = on_failure

    async def set_directory(self, directory: Mapping[NodeName, ProcessAddress]) -> None:
        """Send the addresses of all live nodes to every process."""
        await self._push(replace(self.state, directory=dict(directory)))

    async def set_rules(self, rules: tuple[LinkRule, ...]) -> None:
        """Send the link rules to every process."""
        await self._push(replace(self.state, rules=rules))

    async def catch_up(self, processes: Iterable[FleetProcess]) -> None:
        """Send the newest state to `processes`, whose machine answers again."""
        await side_by_side(self._control_process(each, self.state) for each in processes)

    async def reset_links(self, reset: LinkReset) -> int:
        """Close connections at both ends; return their number.

        Stopped processes close their ends when they continue.
        """
        live = [process for process in self._processes if process.is_up]
        # First the processes of the clients close the clients' ends, and return the names of these
        # connections. Then the servers close only the connections with these names, so that newer
        # connections survive.
        ended = await side_by_side(self._reset_client_ends(p, reset) for p in live)
        names = tuple(name for names_of_process in ended for name in names_of_process)
        # A stopped process cannot return names, so the servers close and count all connections of
        # its clients. (These clients are called silent; the word says nothing about machines here.)
        silent_clients = tuple(name for p in live if p.is_stopped for name in node_names(p.plan))
        counts_of_silent_clients = await side_by_side(
            self._reset_server_ends(p, reset, names, silent_clients) for p in live
        )
        return len(names) + sum(counts_of_silent_clients)

    async def _reset_client_ends(
        self, process: FleetProcess, reset: LinkReset
    ) -> tuple[ConnectionName, ...]:
        """Close the client ends in one process; a stopped process closes them when it continues."""
        if process.is_stopped:
            process.missed_resets.append(reset)
        # For a stopped process `_unless_stopped` makes no call, and returns None.
        call = process.handle.reset_client_ends(reset, CALL_TIMEOUT_S)
        try:
            return await _unless_stopped(process, call) or ()
        except ActorGone:
            return ()

    async def _reset_server_ends(
        self,
        process: FleetProcess,
        reset: LinkReset,
        names: tuple[ConnectionName, ...],
        silent_clients: tuple[NodeName, ...],
    ) -> int:
        """Close the server ends in one process; count the connections of silent clients."""
        call = process.handle.reset_server_ends(reset, names, silent_clients, CALL_TIMEOUT_S)
        try:
            return await _unless_stopped(process, call) or 0
        except ActorGone:
            return 0

    async def status(self) -> list[ClusterStatus]:
        """Query every process; a process that is stopped or answers too late is left out."""
        return await side_by_side(self._status_of(p) for p in self._processes if p.is_up)

    async def _push(self, state: ControlState) -> None:
        """Make `state` the newest state, and send it to every process."""
        self.state = replace(state, version=self.state.version + 1)
        await side_by_side(self._control_process(p, self.state) for p in self._processes)

    async def _control_process(self, process: FleetProcess, state: ControlState) -> None:
        """Send the state to one process, unless it is stopped or silent."""
        if not process.is_up:
            return
        try:
            await _unless_stopped(process, process.handle.control(state, CALL_TIMEOUT_S))
        except ActorGone:
            process.is_up = False  # the task that watches the process reports unexpected ends
        except TimeoutError:
            self._on_failure(f"{process.process_id} did not take the control plane's state in time")

    async def _status_of(self, process: FleetProcess) -> ClusterStatus:
        """Query one process; an empty status stands for no answer."""
        try:
            status = await _unless_stopped(process, process.handle.status(STATUS_TIMEOUT_S))
        except (ActorGone, TimeoutError):
            status = None
        return status or ClusterStatus()


async def _unless_stopped(process: FleetProcess, call: Coroutine[Any, Any, T]) -> T | None:
    """Wait for a call to a process, and return its result.

    Returns None as soon as the process is stopped or its machine is silent.
    """
    if process.is_stopped or process.line.is_silent:
        call.close()  # Python warns of a coroutine that is neither awaited nor closed
        return None
    task = asyncio.ensure_future(call)
    try:
        await asyncio.wait(
            (task, process.stopped, process.line.silence), return_when=asyncio.FIRST_COMPLETED
        )
        return task.result() if task.done() else None
    finally:
        task.cancel()


async def side_by_side(coroutines: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Run coroutines concurrently and return their results; the first error cancels the rest.

    Raises: the first error. (A TaskGroup would raise a group of errors instead.)
    """
    tasks = [asyncio.ensure_future(coroutine) for coroutine in coroutines]
    try:
        return await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        # All tasks must have ended before the caller undoes what they did.
        await asyncio.gather(*tasks, return_exceptions=True)
        raise
