"""A client from outside: an administrator in another process on a machine of a running cluster.

With this module, a command can act on the cluster of a run in progress, as Kafka's command-line
tools do; an example is the deletion of a group. The run keeps a listeners file in its directory,
from which the client reads
- the directory: the address of each running node,
- the token: the run's secret, without which its processes accept no connection, and
- the run's clock.
Once the client has read the file, it is a node like any client. It writes its own trace file in the
run's directory, so that the run's trace contains its requests. It reads the listeners file again
every FOLLOW_S seconds, to find nodes that were restarted.
"""

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from cluster.client.admin.admin_client import AdminNode
from cluster.host.host import Host
from cluster.realtime.host import RunSettings
from cluster.realtime.listeners_file import Listeners, NoListeners, read_listeners
from cluster.realtime.process import NodeProcess
from cluster.realtime.tcp import LINK_VERSION
from partition_log.memory_storage import MemoryStorage
from protocol.errors import SimulationError
from protocol.ids import Incarnation, NodeName

T = TypeVar("T")

FOLLOW_S = 0.1
"""Interval in which the listeners file is read again, in seconds."""
ROLE = "admin"
"""Role of the client's node in the trace, and the beginning of the node's name."""


class NotReachable(Exception):
    """A cluster cannot be reached, or stopped before its answer; the message has the reason."""


def ask_as_guest(run_dir: Path, question: Callable[[Host], Awaitable[T]]) -> T:
    """Join the run in `run_dir` as a client, run `question`, leave, and return the result.

    The client writes a trace file and a log file of its own into the run's directory.

    Raises: NotReachable if no node listens, or the run stops before the answer; SimulationError if
    a task of the client's process dies; the exceptions of `question`.
    """
    try:
        listeners = read_listeners(run_dir)
    except NoListeners as error:
        raise NotReachable(str(error)) from error
    if listeners.link_version != LINK_VERSION:
        raise NotReachable(
            f"expected nodes with link version {LINK_VERSION}, got version "
            f"{listeners.link_version}: use the coordlab that runs the cluster"
        )
    return asyncio.run(_ask(run_dir, listeners, question))


async def _ask(run_dir: Path, listeners: Listeners, question: Callable[[Host], Awaitable[T]]) -> T:
    """Start a process with one client node, run `question`, and stop the process."""
    name = NodeName(f"{ROLE}-{os.getpid()}")
    settings = RunSettings(
        run_id=listeners.run_id,
        seed=listeners.seed,
        token=listeners.token,
        clock=listeners.clock,
        machine_dir=run_dir,
        trace_messages=listeners.trace_messages,
    )
    process = NodeProcess(name, settings, is_guest=True)
    # The answers come on links that the run's processes open (see `cluster.realtime.tcp`), so this
    # process must listen.
    await process.listen(_own_address(listeners))
    process.set_directory(listeners.directory)
    try:
        node = process.start_node(
            name, Incarnation(0), AdminNode, storage=MemoryStorage(), role=ROLE
        )
        return await _await_answer(
            asyncio.ensure_future(question(node.host)),
            asyncio.ensure_future(_follow_listeners(run_dir, process)),
            asyncio.ensure_future(_raise_failures(process)),
        )
    finally:
        await process.stop()


async def _await_answer(
    asked: "asyncio.Future[T]", lost: "asyncio.Future[None]", failed: "asyncio.Future[None]"
) -> T:
    """Return the result of `asked`; raise the exception of `lost` or `failed` if it comes first.

    `lost` raises an exception when the run stops, `failed` when a task of the client's own process
    dies. All three are cancelled at the end.
    """
    try:
        await asyncio.wait((asked, lost, failed), return_when=asyncio.FIRST_COMPLETED)
        # If `lost` or `failed` is done, it has raised an exception, and `result` raises it here.
        # But if an answer came at the same moment, the answer counts.
        for watch in (lost, failed):
            if watch.done() and not asked.done():
                watch.result()
        return await asked
    finally:
        asked.cancel()
        lost.cancel()
        failed.cancel()
        await asyncio.gather(asked, lost, failed, return_exceptions=True)


async def _follow_listeners(run_dir: Path, process: NodeProcess) -> None:
    """Keep the addresses of the nodes up to date. Raises: NotReachable if the run stops."""
    while True:
        await asyncio.sleep(FOLLOW_S)
        try:
            process.set_directory(read_listeners(run_dir).directory)
        except NoListeners as error:
            raise NotReachable("the run stopped before there was an answer") from error


async def _raise_failures(process: NodeProcess) -> None:
    """Wait for the first failure of the client's process, and raise it as SimulationError."""
    # This process has just begun, so the number of known failures is 0.
    raise SimulationError("; ".join(each.text for each in await process.next_failures(0)))


def _own_address(listeners: Listeners) -> str:
    """Return the address of this machine at which the run's machines reach it.

    Raises: NotReachable if no node is up.
    """
    any_node = next(iter(listeners.directory.values()), None)
    if any_node is None:
        raise NotReachable("none of its nodes is up")
    # `connect` sends nothing here, because this is a datagram socket. It makes the system choose
    # the address from which it would send.
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as route:
        route.connect((any_node.host, any_node.port))
        address: str = route.getsockname()[0]
    return address
