"""The only module that imports ray for nodes: joining a Ray, actors, and their handles.

The nodes of a run on Ray live in actors: objects in processes of their own, which Ray starts. What
the actors do is in `cluster.realtime.services`. The driver, which is the process that conducts the
run, calls their methods through a *handle*, which gives Ray's untyped calls types.

Only the driver's calls go through Ray; nodes send their messages over TCP. Ray is told to restart
and retry nothing, because the runtime itself decides when a node starts again.
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
"""This project's top-level packages, which are sent to the workers of a Ray cluster."""
LOCAL = "local"
"""Address of a Ray that this process starts itself."""
LOOPBACK = "127.0.0.1"
REACH_ATTEMPTS = 3
"""Number of attempts to connect to a cluster's head."""
REACH_TIMEOUT_S = 5.0
"""Time limit of one attempt to connect to a cluster's head."""
OBJECT_STORE_BYTES = 128 * 1024 * 1024
"""Size of a local Ray's object store, which is hardly used here.

Ray's default is a third of the memory."""

# num_cpus is 0, so that a machine can have more node processes than processors.
_ACTOR_OPTIONS = {"num_cpus": 0, "max_restarts": 0, "max_task_retries": 0}


class ActorGone(Exception):
    """The actor's process has ended, or its machine has."""


class MachineLost(ActorGone):
    """The actor's machine does not answer, so the call is given up."""


class RayUnavailable(Exception):
    """Ray could not be started, or the cluster at the address could not be reached."""


# -- the cluster -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A machine of the Ray cluster, which Ray calls a node.

    `ray_node_id` is unique; `address` is the machine's IP address.
    """

    ray_node_id: str
    address: str


_own_sessions: list[tuple[Path, SessionGuard]] = []
"""If this process has started a local Ray: the folder of its session, and the folder's guard."""


def connect_ray(address: str) -> bool:
    """Start a local Ray if `address` is "local"; otherwise join the Ray at `address`.

    A Ray that already runs on this machine may belong to another program, so it is joined only if
    `address` names it.
    Returns: True if this call has connected the process; False if it was connected before.
    Raises: RayUnavailable.
    """
    if ray.is_initialized():
        return False
    quiet = {"log_to_driver": False, "logging_level": logging.ERROR}
    try:
        with _keep_sigterm_handler():
            if address == LOCAL:
                ray.init(
                    address=LOCAL,
                    include_dashboard=False,
                    object_store_memory=OBJECT_STORE_BYTES,
                    # Workers must find this project's packages, whatever the driver's working
                    # directory is.
                    runtime_env={"env_vars": {"PYTHONPATH": _python_path()}},
                    **quiet,
                )
                _guard_own_session()
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
def _keep_sigterm_handler() -> Iterator[None]:
    """Keep the process's handler of SIGTERM, if it has one, over the start of Ray.

    `ray.init` installs a handler that ends the process immediately, in the middle of a run.
    """
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        # Only the main thread can set handlers, so only there Ray has changed it.
        if callable(before) and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)


def disconnect_ray() -> None:
    """Leave Ray; a Ray that this process started ends with all its processes and its folder."""
    own_session = _own_sessions.pop() if _own_sessions else None
    # The guard goes on during the shutdown: if this process is killed now, it kills the rest of
    # Ray.
    ray.shutdown()
    if own_session is not None:
        session, guard = own_session
        guard.close()
        remove_session(session)


def _guard_own_session() -> None:
    """Guard the Ray that was just started, mark its folder, and remove folders of dead drivers."""
    context = ray.get_runtime_context()
    session = Path(context.get_temp_dir()) / context.get_session_name()
    _own_sessions.append((session, SessionGuard(session)))
    mark_as_owned(session)
    remove_abandoned(session.parent, "session_*")


def check_reachable(address: str) -> None:
    """Check that a process listens at `address`, which has the form `host:port`.

    Without this check Ray itself would try for minutes.
    Raises: OSError if none listens; ValueError if `address` has another form.
    """
    if address == "auto":
        return  # Ray finds the address of a cluster on this machine
    host, separator, port = address.rpartition(":")
    if "://" in address or not separator or not port.isdecimal():
        raise ValueError("expected `local`, `auto` or `host:port` of the cluster's head")
    connect = retry(
        retry=retry_if_exception_type(OSError),
        stop=stop_after_attempt(REACH_ATTEMPTS),
        wait=wait_exponential(multiplier=0.2),  # begins at 0.2 s, and doubles
        reraise=True,
    )(socket.create_connection)
    connect((host, int(port)), timeout=REACH_TIMEOUT_S).close()


def machines() -> tuple[Machine, ...]:
    """Return the machines that are alive, the driver's own first."""
    drivers_id = ray.get_runtime_context().get_node_id()
    alive = [
        Machine(ray_node_id=node["NodeID"], address=node["NodeManagerAddress"])
        for node in ray.nodes()
        if node["Alive"]
    ]
    # False sorts before True, so the driver's machine is the first.
    return tuple(
        sorted(alive, key=lambda m: (m.ray_node_id != drivers_id, m.address, m.ray_node_id))
    )


def _python_path() -> str:
    inherited = os.environ.get("PYTHONPATH")
    return f"{PACKAGE_ROOT}{os.pathsep}{inherited}" if inherited else str(PACKAGE_ROOT)


# -- actors -------------------------------------------------------------------------------------


class _NodeActor(NodeService):
    """A node process as a Ray actor.

    It ends when Ray's own process on the machine ends, even if it is stopped by SIGSTOP.
    """

    def __init__(self, process_id: str, settings: RunSettings, *, bind_address: str) -> None:
        die_with_parent()
        super().__init__(process_id, settings, bind_address=bind_address)


class _AgentActor(AgentService):
    """An agent as a Ray actor."""

    def __init__(self, run_id: str) -> None:
        die_with_parent()
        super().__init__(run_id)


# -- handles -----------------------------------------------------------------------------------


class _ActorHandle:
    """Typed access to one actor. Ray's handle is untyped: `Any` stays inside this class."""

    def __init__(self, actor: Any) -> None:  # noqa: ANN401 - ray.actor.ActorHandle is untyped
        self._actor = actor

    def end(self) -> None:
        """End the actor's process immediately."""
        ray.kill(self._actor, no_restart=True)

    async def _result(self, reference: Awaitable[T], timeout_s: float | None) -> T:
        """Wait for the result of a call.

        Raises: ActorGone, TimeoutError, and the exceptions of the actor's method.
        """
        try:
            return await asyncio.wait_for(_await(reference), timeout_s)
        except RayActorError as error:
            raise ActorGone(str(error)) from error


async def _await(reference: Awaitable[T]) -> T:
    """Await Ray's ObjectRef inside a coroutine, which `asyncio.wait_for` can cancel."""
    return await reference


class ProcessHandle(_ActorHandle):
    """Calls the methods of one NodeService (see there). Timeouts are in seconds."""

    @classmethod
    def start(
        cls, process_id: str, settings: RunSettings, machine: Machine, *, bind_address: str
    ) -> "ProcessHandle":
        """Start a node process on `machine`; `listen` waits until it is up."""
        # With options, `ray.remote` returns a decorator, which makes an actor class.
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
        """Send the addresses of all live nodes, and the link rules."""
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
        """Start a node in the process; return the address of its listener for Kafka clients.

        None if the node has no such listener.
        """
        return await self._result(
            self._actor.start_node.remote(
                name, incarnation, build, role=role, has_disk=has_disk, binding=binding
            ),
            timeout_s,
        )

    async def crash_node(self, name: NodeName, timeout_s: float) -> None:
        """End one of the process's nodes, as a kill would."""
        await self._result(self._actor.crash_node.remote(name), timeout_s)

    async def pause_node(self, name: NodeName, order: int, timeout_s: float) -> None:
        """Pause one of the process's nodes."""
        await self._result(self._actor.pause_node.remote(name, order), timeout_s)

    async def resume_node(
        self,
        name: NodeName,
        order: int,
        state: ControlState,
        resets: tuple[LinkReset, ...],
        timeout_s: float,
    ) -> None:
        """Resume one of the process's nodes."""
        await self._result(self._actor.resume_node.remote(name, order, state, resets), timeout_s)

    async def reset_client_ends(
        self, reset: LinkReset, timeout_s: float
    ) -> tuple[ConnectionName, ...]:
        """Close the client ends of the process's connections; return the connections' names."""
        return await self._result(self._actor.reset_client_ends.remote(reset), timeout_s)

    async def reset_server_ends(
        self,
        reset: LinkReset,
        names: tuple[ConnectionName, ...],
        silent_clients: tuple[NodeName, ...],
        timeout_s: float,
    ) -> int:
        """Close the server ends of the process's connections.

        Returns: the number of closed connections whose clients are among `silent_clients`.
        """
        call = self._actor.reset_server_ends.remote(reset, names, silent_clients)
        return await self._result(call, timeout_s)

    async def shut_down_node(self, name: NodeName) -> bool:
        """Ask one of the process's nodes to stop, and wait until the node has stopped.

        Returns: True if it stopped in an orderly way; False if it was killed before.
        """
        return await self._result(self._actor.shut_down_node.remote(name), None)

    async def status(self, timeout_s: float) -> ClusterStatus:
        """Return the part of the cluster's state that the process's nodes know."""
        return await self._result(self._actor.status.remote(), timeout_s)

    async def next_failures(self, known: int) -> list[NodeFailure]:
        """Wait until there are more than `known` failures; return the new ones."""
        return await self._result(self._actor.next_failures.remote(known), None)

    async def ask_as_admin(
        self,
        name: NodeName,
        question: Callable[Concatenate[Host, P], Awaitable[T]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Run `question` as the client node `name` in the process."""
        call = self._actor.ask_as_admin.remote(name, question, *args, **kwargs)
        return await self._result(call, None)

    async def stop(self, timeout_s: float) -> None:
        """End all nodes of the process in an orderly way."""
        await self._result(self._actor.stop.remote(), timeout_s)


class AgentHandle(_ActorHandle):
    """Calls the methods of one AgentService (see there). Timeouts are in seconds.

    `kill`, `stop` and `wait_gone` wait on the machine for up to `timeout_s`; the driver waits 5 s
    longer for their answers. For calls that take no time, the driver waits 10 s.
    """

    @classmethod
    def start(cls, run_id: str, machine: Machine) -> "AgentHandle":
        """Start the agent of `machine`."""
        actor = ray.remote(**_ACTOR_OPTIONS)(_AgentActor)
        return cls(actor.options(scheduling_strategy=_on(machine)).remote(run_id))

    async def prepare(self, run_dir: Path, marker: str, timeout_s: float) -> Path:
        """Return the machine's directory for this run."""
        return Path(await self._result(self._actor.prepare.remote(str(run_dir), marker), timeout_s))

    async def beat(self, timeout_s: float) -> None:
        """Wait for an answer, which shows that the machine is alive."""
        await self._result(self._actor.beat.remote(), timeout_s)

    async def read_clock(self) -> ClockReading:
        """Return a reading of the machine's clock."""
        return await self._result(self._actor.read_clock.remote(), 10.0)

    async def kill(self, process: ProcessRef, timeout_s: float) -> None:
        """`kill -9` a process of that machine and wait until it is gone."""
        await self._result(self._actor.kill.remote(process, timeout_s), timeout_s + 5.0)

    async def stop(self, process: ProcessRef, timeout_s: float) -> None:
        """SIGSTOP a process of that machine and wait until it is stopped."""
        await self._result(self._actor.stop.remote(process, timeout_s), timeout_s + 5.0)

    async def cut_disk(self, node: NodeName, timeout_s: float) -> None:
        """Remove from the logs of a node that is down all bytes that were not flushed."""
        await self._result(self._actor.cut_disk.remote(node), timeout_s)

    async def remove_disk(self, node: NodeName, timeout_s: float) -> None:
        """Delete the disk of a node that is down."""
        await self._result(self._actor.remove_disk.remote(node), timeout_s)

    async def send_signal(self, process: ProcessRef, signal_number: signal.Signals) -> None:
        """Send a signal; for SIGKILL and SIGSTOP there are `kill` and `stop`, which also wait."""
        await self._result(self._actor.send_signal.remote(process, int(signal_number)), 10.0)

    async def wait_gone(
        self, processes: list[ProcessRef], timeout_s: float
    ) -> tuple[ProcessRef, ...]:
        """Wait until processes are gone; return those that still exist."""
        return await self._result(
            self._actor.wait_gone.remote(processes, timeout_s), timeout_s + 5.0
        )

    async def fetch_files(self, run_dir: Path, timeout_s: float) -> None:
        """Copy the machine's files of the run to `run_dir`, in pieces.

        The agent names no files if the machine shares the driver's file system.
        Raises: OSError if a file became shorter meanwhile.
        """
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
        """Delete the run's disks on the machine, and the run's directory there unless shared."""
        await self._result(self._actor.clean_up.remote(), timeout_s)


def _on(machine: Machine) -> NodeAffinitySchedulingStrategy:
    # With soft=True, Ray would choose another machine if this one is gone.
    return NodeAffinitySchedulingStrategy(node_id=machine.ray_node_id, soft=False)
