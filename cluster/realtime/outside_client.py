"""A client from outside: asks a cluster that is running on Ray, from any process of its machine.

It needs nothing of Ray. The run's `listeners_file` says where the nodes are, with which token and
by which clock; the outside client is then a node like any client, and writes a trace of its own
beside theirs, so that the run's trace tells who came and what was changed. It follows the file:
nodes that are started again meanwhile are found where they are then.
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
"""How often the file is looked at."""
ROLE = "admin"


class NotReachable(Exception):
    """A cluster that cannot be asked, or not any more; says why."""


def ask_as_guest(run_dir: Path, question: Callable[[Host], Awaitable[T]]) -> T:
    """Join the run in `run_dir` as a client, ask, leave, and return the answer.

    Effects: a file in the run's `trace` and `logs`; whatever the question changes.
    Raises: NotReachable if nobody listens there, or the run stops meanwhile; SimulationError if
    something of ours died; what the question raises.
    """
    try:
        listeners = read_listeners(run_dir)
    except NoListeners as error:
        raise NotReachable(str(error)) from error
    if listeners.link_version != LINK_VERSION:
        raise NotReachable(
            f"its nodes speak version {listeners.link_version} of the links, this is "
            f"{LINK_VERSION}: ask with the coordlab that runs it"
        )
    return asyncio.run(_ask(run_dir, listeners, question))


async def _ask(run_dir: Path, listeners: Listeners, question: Callable[[Host], Awaitable[T]]) -> T:
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
    await process.listen(_own_address(listeners))
    process.set_directory(listeners.directory)
    try:
        node = process.start_node(
            name, Incarnation(0), AdminNode, storage=MemoryStorage(), role=ROLE
        )
        return await _first(
            asyncio.ensure_future(question(node.host)),
            asyncio.ensure_future(_follow(run_dir, process)),
            asyncio.ensure_future(_fail(process)),
        )
    finally:
        await process.stop()


async def _first(
    asked: "asyncio.Future[T]", lost: "asyncio.Future[None]", failed: "asyncio.Future[None]"
) -> T:
    """Wait for the answer, or for the first thing that makes it impossible, and end the rest."""
    try:
        await asyncio.wait((asked, lost, failed), return_when=asyncio.FIRST_COMPLETED)
        for impossible in (lost, failed):
            if impossible.done() and not asked.done():
                impossible.result()
        return await asked
    finally:
        asked.cancel()
        lost.cancel()
        failed.cancel()
        await asyncio.gather(asked, lost, failed, return_exceptions=True)


async def _follow(run_dir: Path, process: NodeProcess) -> None:
    """Tell the process where the nodes are, as often as that changes. Raises: NotReachable."""
    while True:
        await asyncio.sleep(FOLLOW_S)
        try:
            process.set_directory(read_listeners(run_dir).directory)
        except NoListeners as error:
            raise NotReachable("the run stopped before there was an answer") from error


async def _fail(process: NodeProcess) -> None:
    """Raise SimulationError as soon as something of ours fails in the process."""
    raise SimulationError("; ".join(each.text for each in await process.next_failures(0)))


def _own_address(listeners: Listeners) -> str:
    """Return the address of this machine by which the run's machines reach it."""
    somebody = next(iter(listeners.directory.values()), None)
    if somebody is None:
        raise NotReachable("none of its nodes is up")
    # Nothing is sent: the system only says by which of its addresses it would.
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as route:
        route.connect((somebody.host, somebody.port))
        address: str = route.getsockname()[0]
    return address
