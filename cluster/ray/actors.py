"""Ray's part, and the only module that imports ray for nodes: the cluster, actors, their handles.

What the actors do is in `services`; a handle wraps each actor in typed calls, so that nobody
else meets an ObjectRef. Nothing is ever restarted or retried by Ray: a restart is the runtime's
act. Nodes themselves talk TCP; only the control plane and the files go through here.
"""

import asyncio
import logging
import os
import signal
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from cluster.ray import environment as ray_environment  # noqa: F401 - must be imported before ray

# isort: split

import ray
from ray.exceptions import RayActorError, RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
from tenacity import retry, retry_if_exception_type, stop_after_attempt, wait_exponential

from cluster.checkout import PACKAGE_ROOT
from cluster.host.host import Host
from cluster.links.reset import ConnectionName, LinkReset
from cluster.ray.leavings import mark_as_owned, remove_abandoned, remove_session
from cluster.ray.session_guard import SessionGuard
from cluster.realtime.clock import ClockReading
from cluster.realtime.failures import NodeFailure
from cluster.realtime.host import RunSettings
from cluster.realtime.machine_processes import ProcessRef, die_with_parent
from cluster.realtime.services import (
    AgentService,
    ControlState,
    HostedNodeBuilder,
    ListeningProcess,
    NodeService,
)
from cluster.runtime import ClusterStatus
from cluster.wire.listener import ListenerBinding
from protocol.ids import Incarnation, NodeName
from protocol.records.metadata import BrokerEndpoint

P = ParamSpec("P")
T = TypeVar("T")

PACKAGES = (
    "protocol",
    "partition_log",
    "coordinator",
    "cluster",
    "results_schema",
    "chaos",
    "pipeline",
    "coordlab",
)
"""Our top-level packages: what a Ray cluster's workers are sent."""
LOCAL = "local"
LOOPBACK = "127.0.0.1"
REACH_ATTEMPTS = 3
REACH_TIMEOUT_S = 5.0
OBJECT_STORE_BYTES = 128 * 1024 * 1024
"""Nothing big goes through a local Ray's object store; its default is a third of the memory."""

_ACTOR_OPTIONS = {"num_cpus": 0, "max_restarts": 0, "max_task_retries": 0}


class ActorGone(Exception):
    """The actor's process is dead, or its machine is."""


class MachineLost(ActorGone):
    """The actor's machine is silent, and nobody waits for it any more."""


class RayUnavailable(Exception):
    """Ray could not be started, or the cluster at the address not be reached."""


# -- the cluster -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A Ray machine (Ray calls it a node). `ray_node_id` is unique; `address` its IP."""

    ray_node_id: str
    address: str


_own_sessions: list[tuple[Path, SessionGuard]] = []
"""The folder of the local Ray that this process started, and its guard; empty: there is none."""


def connect_ray(address: str) -> bool:
    """Start a local Ray ("local") or join the one at `address`; return whether this call did it.

    A process that has joined a Ray already goes on with that one. A Ray that merely runs on this
    machine is never joined unless it is named.
    Raises: RayUnavailable.
    """
    if ray.is_initialized():
        return False
    quiet = {"log_to_driver": False, "logging_level": logging.ERROR}
    try:
        with _keeping_sigterm():
            if address == LOCAL:
                ray.init(
                    address=LOCAL,
                    include_dashboard=False,
                    object_store_memory=OBJECT_STORE_BYTES,
                    # Workers must find our packages wherever the driver was started.
                    runtime_env={"env_vars": {"PYTHONPATH": _python_path()}},
                    **quiet,
                )
                _own_session()
            else:
                check_reachable(address)
                modules = [str(PACKAGE_ROOT / package) for package in PACKAGES]
                ray.init(
                    address=address,
                    runtime_env={"py_modules": modules, "excludes": ["__pycache__"]},
                    **quiet,
                )
    except (RayError, ConnectionError, ValueError, RuntimeError, OSError) as error:
        cause = f": {error.__cause__}" if error.__cause__ else ""
        raise RayUnavailable(f"Ray at {address!r}: {error}{cause}") from error
    return True


@contextmanager
def _keeping_sigterm() -> Iterator[None]:
    """Let the process's own handler of SIGTERM, if it has one, outlive the start of Ray.

    Ray puts its own in place, which exits on the spot, in the middle of a run.
    """
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if callable(before) and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)


def disconnect_ray() -> None:
    """Leave Ray; a Ray that this process started ends with all its processes and its folder."""
    own = _own_sessions.pop() if _own_sessions else None
    ray.shutdown()
    if own is not None:
        session, guard = own
        guard.close()
        remove_session(session)


def _own_session() -> None:
    """Note the folder of the Ray that was just started, guard it, remove what dead ones left."""
    context = ray.get_runtime_context()
    session = Path(context.get_temp_dir()) / context.get_session_name()
    _own_sessions.append((session, SessionGuard(session)))
    mark_as_owned(session)
    remove_abandoned(session.parent, "session_*")


def check_reachable(address: str) -> None:
    """Check that somebody listens at `host:port`; Ray itself would try for minutes.

    Raises: OSError if nobody does; ValueError if it is no such address.
    """
    if address == "auto":
        return
    host, separator, port = address.rpartition(":")
    if "://" in address or not separator or not port.isdecimal():
        raise ValueError("expected `local`, `auto` or `host:port` of the cluster's head")
    connect = retry(
        retry=retry_if_exception_type(OSError),
        stop=stop_after_attempt(REACH_ATTEMPTS),
        wait=wait_exponential(multiplier=0.2),
        reraise=True,
    )(socket.create_connection)
    connect((host, int(port)), timeout=REACH_TIMEOUT_S).close()


def machines() -> tuple[Machine, ...]:
    """Return the machines that are alive, the driver's own first."""
    own = ray.get_runtime_context().get_node_id()
    alive = [
        Machine(ray_node_id=node["NodeID"], address=node["NodeManagerAddress"])
        for node in ray.nodes()
        if node["Alive"]
    ]
    return tuple(sorted(alive, key=lambda m: (m.ray_node_id != own, m.address, m.ray_node_id)))


def _python_path() -> str:
    inherited = os.environ.get("PYTHONPATH")
    return f"{PACKAGE_ROOT}{os.pathsep}{inherited}" if inherited else str(PACKAGE_ROOT)


# -- actors -------------------------------------------------------------------------------------


class _NodeActor(NodeService):
    """A node process as Ray runs it: it never outlives its raylet, also not while it is stopped."""

    def __init__(self, process_id: str, settings: RunSettings, *, bind_address: str) -> None:
        die_with_parent()
        super().__init__(process_id, settings, bind_address=bind_address)


class _AgentActor(AgentService):
    """An agent as Ray runs it."""

    def __init__(self, run_id: str) -> None:
        die_with_parent()
        super().__init__(run_id)


# -- handles -----------------------------------------------------------------------------------


class _ActorHandle:
    """Typed access to one actor. Ray's handle is untyped: `Any` stays inside this class."""

    def __init__(self, actor: Any) -> None:  # noqa: ANN401 - ray.actor.ActorHandle is untyped
        self._actor = actor

    def end(self) -> None:
        """End the actor's process at once."""
        ray.kill(self._actor, no_restart=True)

    async def _result(self, reference: Awaitable[T], timeout_s: float | None) -> T:
        """Wait for a call. Raises: ActorGone, TimeoutError, and what the actor raised."""
        try:
            return await asyncio.wait_for(_await(reference), timeout_s)
        except RayActorError as error:
            raise ActorGone(str(error)) from error


async def _await(reference: Awaitable[T]) -> T:
    return await reference


class ProcessHandle(_ActorHandle):
    """Calls to one NodeService. Units: seconds, real ones."""

    @classmethod
    def start(
        cls, process_id: str, settings: RunSettings, machine: Machine, *, bind_address: str
    ) -> "ProcessHandle":
        """Start a node process on `machine`; listen() says when it is up."""
        actor = ray.remote(**_ACTOR_OPTIONS)(_NodeActor)
        return cls(
            actor.options(scheduling_strategy=_on(machine)).remote(
                process_id, settings, bind_address=bind_address
            )
        )

    async def listen(self, timeout_s: float) -> ListeningProcess:
        """Wait until the process is up."""
        return await self._result(self._actor.listen.remote(), timeout_s)

    async def control(self, state: ControlState, timeout_s: float) -> None:
        """Tell it where every live node is, and the link rules."""
        await self._result(self._actor.control.remote(state), timeout_s)

    async def start_node(
        self,
        name: NodeName,
        incarnation: Incarnation,
        build: HostedNodeBuilder,
        *,
        role: str,
        has_disk: bool,
        binding: ListenerBinding | None,
        timeout_s: float,
    ) -> BrokerEndpoint | None:
        """Start a node in it; return where Kafka clients reach it, if they can."""
        return await self._result(
            self._actor.start_node.remote(
                name, incarnation, build, role=role, has_disk=has_disk, binding=binding
            ),
            timeout_s,
        )

    async def crash_node(self, name: NodeName, timeout_s: float) -> None:
        """End one of its nodes."""
        await self._result(self._actor.crash_node.remote(name), timeout_s)

    async def pause_node(self, name: NodeName, order: int, timeout_s: float) -> None:
        """Hold one of its nodes."""
        await self._result(self._actor.pause_node.remote(name, order), timeout_s)

    async def resume_node(
        self,
        name: NodeName,
        order: int,
        state: ControlState,
        resets: tuple[LinkReset, ...],
        timeout_s: float,
    ) -> None:
        """Let one of its nodes go on."""
        await self._result(self._actor.resume_node.remote(name, order, state, resets), timeout_s)

    async def reset_client_ends(
        self, reset: LinkReset, timeout_s: float
    ) -> tuple[ConnectionName, ...]:
        """End the connections of its clients; return their names."""
        return await self._result(self._actor.reset_client_ends.remote(reset), timeout_s)

    async def reset_server_ends(
        self,
        reset: LinkReset,
        names: tuple[ConnectionName, ...],
        silent_clients: tuple[NodeName, ...],
        timeout_s: float,
    ) -> int:
        """End the connections of its servers; return how many silent clients had."""
        call = self._actor.reset_server_ends.remote(reset, names, silent_clients)
        return await self._result(call, timeout_s)

    async def shut_down_node(self, name: NodeName) -> bool:
        """Ask one of its nodes to stop; returns when it has, whether in an orderly way."""
        return await self._result(self._actor.shut_down_node.remote(name), None)

    async def status(self, timeout_s: float) -> ClusterStatus:
        """Ask what its nodes know."""
        return await self._result(self._actor.status.remote(), timeout_s)

    async def next_failures(self, known: int) -> list[NodeFailure]:
        """Wait for failures behind the first `known`."""
        return await self._result(self._actor.next_failures.remote(known), None)

    async def ask_as_admin(
        self,
        name: NodeName,
        question: Callable[Concatenate[Host, P], Awaitable[T]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Ask the cluster something through a client node in it."""
        call = self._actor.ask_as_admin.remote(name, question, *args, **kwargs)
        return await self._result(call, None)

    async def stop(self, timeout_s: float) -> None:
        """End its nodes in an orderly way."""
        await self._result(self._actor.stop.remote(), timeout_s)


class AgentHandle(_ActorHandle):
    """Calls to one AgentService. Units: seconds, real ones."""

    @classmethod
    def start(cls, run_id: str, machine: Machine) -> "AgentHandle":
        """Start the agent of `machine`."""
        actor = ray.remote(**_ACTOR_OPTIONS)(_AgentActor)
        return cls(actor.options(scheduling_strategy=_on(machine)).remote(run_id))

    async def prepare(self, run_dir: Path, marker: str, timeout_s: float) -> Path:
        """Return the machine's directory for this run."""
        return Path(await self._result(self._actor.prepare.remote(str(run_dir), marker), timeout_s))

    async def beat(self, timeout_s: float) -> None:
        """Hear whether the machine is there."""
        await self._result(self._actor.beat.remote(), timeout_s)

    async def read_clock(self) -> ClockReading:
        """Read the machine's clock."""
        return await self._result(self._actor.read_clock.remote(), 10.0)

    async def kill(self, process: ProcessRef, timeout_s: float) -> None:
        """`kill -9` a process of that machine and wait until it is gone."""
        await self._result(self._actor.kill.remote(process, timeout_s), timeout_s + 5.0)

    async def stop(self, process: ProcessRef, timeout_s: float) -> None:
        """SIGSTOP a process of that machine and wait until it stands still."""
        await self._result(self._actor.stop.remote(process, timeout_s), timeout_s + 5.0)

    async def cut_disk(self, node: NodeName, timeout_s: float) -> None:
        """Cut the logs of a node that is down back to what was flushed."""
        await self._result(self._actor.cut_disk.remote(node), timeout_s)

    async def remove_disk(self, node: NodeName, timeout_s: float) -> None:
        """Delete the disk of a node that is down."""
        await self._result(self._actor.remove_disk.remote(node), timeout_s)

    async def send_signal(self, process: ProcessRef, signal_number: signal.Signals) -> None:
        """Send any other signal."""
        await self._result(self._actor.send_signal.remote(process, int(signal_number)), 10.0)

    async def wait_gone(
        self, processes: list[ProcessRef], timeout_s: float
    ) -> tuple[ProcessRef, ...]:
        """Wait until processes are gone; return who is still there."""
        return await self._result(
            self._actor.wait_gone.remote(processes, timeout_s), timeout_s + 5.0
        )

    async def fetch_files(self, run_dir: Path, timeout_s: float) -> None:
        """Copy the machine's files of the run to `run_dir`, where it does not share them."""
        files = await self._result(self._actor.files_to_fetch.remote(), timeout_s)
        for relative_path, size in files:
            target = run_dir / relative_path
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("wb") as file:
                while file.tell() < size:
                    call = self._actor.read_piece.remote(relative_path, file.tell())
                    piece = await self._result(call, timeout_s)
                    if not piece:
                        raise OSError(f"{relative_path} shrank while it was collected")
                    file.write(piece)

    async def clean_up(self, timeout_s: float) -> None:
        """Delete what the run no longer needs on the machine."""
        await self._result(self._actor.clean_up.remote(), timeout_s)


def _on(machine: Machine) -> NodeAffinitySchedulingStrategy:
    return NodeAffinitySchedulingStrategy(node_id=machine.ray_node_id, soft=False)
