"""Tripwires: while a run is on in virtual time, node code may not read the machine.

Clocks, the global random generator, fresh uuids, the kernel's entropy and threads are the ways in
which the same seed gives another run. While a run is on they raise `Tripped` where node code calls
them, itself or through a library; the tool beside it (checkers, displays, tests, other threads)
calls them as ever. What lint rules see in our own sources, this sees in what those call.

Cost: a handful of assignments when a run begins and ends; nothing on the way.
"""

import os
import random
import secrets
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

from protocol.errors import SimulationError

NODE_CODE = ("protocol", "partition_log", "coordinator", "cluster")
"""The packages whose code runs in nodes, and in the virtual runtime itself."""
TOOL_CODE = ("cluster.trace.", "cluster.ray.", "cluster.virtual.loop")
"""What in them does not: it watches runs, or is about real time; the loop logs for asyncio."""
OWN_CODE = (*NODE_CODE, "results_schema", "chaos", "coordlab", "pipeline", "tests", "benchmarks")
INSTEAD = "node code has its Host's now_us, wall_us, sleep, rng and spawn"

_TIMES = (
    *("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns"),
    *("process_time", "process_time_ns", "thread_time", "thread_time_ns"),
    *("localtime", "gmtime", "ctime", "asctime", "sleep"),
)
_SECRETS = ("token_bytes", "token_hex", "token_urlsafe", "randbelow", "randbits", "choice")

_lock = threading.Lock()
_runs: dict[int, int] = {}
"""How many runs are on in a thread, by its identity; tripwires are laid while there is any."""
_originals: list[tuple[object, str, object]] = []


class Tripped(SimulationError):
    """Node code called what would make the run another one each time; says who called what."""


@contextmanager
def tripwires() -> Iterator[None]:
    """Lay the tripwires for what this thread does inside; may be nested.

    Inside, what is forbidden raises Tripped when node code of this thread calls it.
    """
    thread = threading.get_ident()
    with _lock:
        if not _runs:
            _lay()
        _runs[thread] = _runs.get(thread, 0) + 1
    try:
        yield
    finally:
        with _lock:
            _runs[thread] -= 1
            if not _runs[thread]:
                del _runs[thread]
            if not _runs:
                _take_up()


def forbidden() -> tuple[tuple[object, str], ...]:
    """Return every (module or class, name) that trips."""
    generator = random._inst  # all of the module's functions are its methods
    drawn = sorted(n for n, f in vars(random).items() if getattr(f, "__self__", None) is generator)
    return (
        *((time, name) for name in _TIMES),
        *((random, name) for name in drawn),
        *((uuid, name) for name in ("uuid1", "uuid4")),
        *((secrets, name) for name in _SECRETS),
        *((os, name) for name in ("urandom", "getrandom") if hasattr(os, name)),
        (random, "_urandom"),  # what SystemRandom took from os before
        (threading.Thread, "start"),
    )


def _lay() -> None:
    for owner, name in forbidden():
        original = getattr(owner, name)
        _originals.append((owner, name, original))
        setattr(owner, name, _wire(f"{_name_of(owner)}.{name}", original))


def _take_up() -> None:
    while _originals:
        owner, name, original = _originals.pop()
        setattr(owner, name, original)


def _wire(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    def wire(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - whatever the original takes
        if threading.get_ident() in _runs:
            _check(name, sys._getframe(1))
        return original(*args, **kwargs)

    wire.__wrapped__ = original  # type: ignore[attr-defined]
    return wire


def _check(name: str, caller: FrameType) -> None:
    """Raise Tripped if the nearest frame of our own is node code."""
    frame: FrameType | None = caller
    through: list[str] = []
    while frame is not None:
        module = str(frame.f_globals.get("__name__", ""))
        package = module.partition(".")[0]
        if package in OWN_CODE and module != __name__:  # one wire may lie behind another
            if package in NODE_CODE and not module.startswith(TOOL_CODE):
                raise Tripped(_told(name, module, frame, through))
            return
        if module not in {*through, "", __name__}:
            through.append(module)
        frame = frame.f_back


def _told(name: str, module: str, frame: FrameType, through: list[str]) -> str:
    by_way_of = f", by way of {', '.join(reversed(through))}" if through else ""
    place = f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
    return (
        f"{module}.{frame.f_code.co_qualname} ({place}) called {name}(){by_way_of}: in virtual "
        f"time that would be another run each time; {INSTEAD}"
    )


def _name_of(owner: object) -> str:
    if isinstance(owner, type):
        return f"{owner.__module__}.{owner.__qualname__}"
    return owner.__name__ if isinstance(owner, ModuleType) else str(owner)
