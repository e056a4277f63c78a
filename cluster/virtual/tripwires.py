"""Tripwires: in virtual time, the code of nodes must not read real clocks or real randomness.

If a node called `time.time()`, `random.random()` or `uuid.uuid4()`, or started a thread, two runs
of one seed would differ. So during a run, each such function is replaced by a *tripwire*, which
raises `Tripped` if the code of a node has called it, directly or through a library. Other code of
this project, and other threads, may call the functions as usual. (Lint rules could find such calls
only in our own sources, and not in libraries.)
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
"""The packages with the code of nodes and of the virtual runtime."""
TOOL_CODE = ("cluster.trace.", "cluster.ray.", "cluster.virtual.loop")
"""Beginnings of the names of modules that are in NODE_CODE, but may call every function.

No node runs these modules. The loop is one of them because it logs for asyncio, and a log record
has a time.
"""
OWN_CODE = (*NODE_CODE, "results_schema", "chaos", "coordlab", "pipeline", "tests", "benchmarks")
"""All packages of this project.

The caller of a function is the innermost frame of the stack that belongs to one of them."""
INSTEAD = "node code has its Host's now_us, wall_us, sleep, rng and spawn"
"""End of the message of Tripped."""

_TIMES = (
    *("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns"),
    *("process_time", "process_time_ns", "thread_time", "thread_time_ns"),
    *("localtime", "gmtime", "ctime", "asctime", "sleep"),
)
"""Functions of `time` that read a real clock or wait for it."""
_SECRETS = ("token_bytes", "token_hex", "token_urlsafe", "randbelow", "randbits", "choice")
"""Functions of `secrets` that draw from the kernel's entropy."""

# Several threads may have runs at the same time; the lock protects what follows.
_lock = threading.Lock()
_runs: dict[int, int] = {}
"""Thread id -> its number of runs. Tripwires are installed while any thread has a run."""
_originals: list[tuple[object, str, object]] = []
"""(module or class, name, function) of each replaced function, to put back at the end."""


class Tripped(SimulationError):
    """Node code called a function whose result differs from run to run.

    The message names the caller and the function.
    """


@contextmanager
def tripwires() -> Iterator[None]:
    """Install the tripwires for this thread; may be nested.

    Inside, a forbidden function raises Tripped when node code of this thread calls it.
    """
    thread = threading.get_ident()
    with _lock:
        if not _runs:
            _install()
        _runs[thread] = _runs.get(thread, 0) + 1
    try:
        yield
    finally:
        with _lock:
            _runs[thread] -= 1
            if not _runs[thread]:
                del _runs[thread]
            if not _runs:
                _remove()


def forbidden() -> tuple[tuple[object, str], ...]:
    """Return each forbidden function as (its module or class, its name)."""
    # The drawing functions of `random` (random, randint, shuffle, ...) are methods of one instance.
    generator = random._inst
    drawing_functions = sorted(
        name
        for name, function in vars(random).items()
        if getattr(function, "__self__", None) is generator
    )
    return (
        *((time, name) for name in _TIMES),
        *((random, name) for name in drawing_functions),
        *((uuid, name) for name in ("uuid1", "uuid4")),
        *((secrets, name) for name in _SECRETS),
        *((os, name) for name in ("urandom", "getrandom") if hasattr(os, name)),
        (random, "_urandom"),  # SystemRandom holds its own reference to os.urandom
        (threading.Thread, "start"),
    )


def _install() -> None:
    for owner, name in forbidden():
        original = getattr(owner, name)
        _originals.append((owner, name, original))
        setattr(owner, name, _guard(f"{_name_of(owner)}.{name}", original))


def _remove() -> None:
    while _originals:
        owner, name, original = _originals.pop()
        setattr(owner, name, original)


def _guard(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    """Return the tripwire that replaces `original`."""

    def guarded(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - the original's arguments
        if threading.get_ident() in _runs:
            _check(name, sys._getframe(1))  # 1: the frame of the caller
        return original(*args, **kwargs)

    guarded.__wrapped__ = original  # type: ignore[attr-defined]
    return guarded


def _check(name: str, caller: FrameType) -> None:
    """Raise Tripped if the innermost stack frame of this project belongs to node code."""
    frame: FrameType | None = caller
    libraries: list[str] = []
    while frame is not None:
        module = str(frame.f_globals.get("__name__", ""))
        package = module.partition(".")[0]
        # Frames of this module are tripwires: one may call another, as random calls urandom.
        if package in OWN_CODE and module != __name__:
            if package in NODE_CODE and not module.startswith(TOOL_CODE):
                raise Tripped(_trip_message(name, module, frame, libraries))
            return
        if module not in {*libraries, "", __name__}:
            libraries.append(module)
        frame = frame.f_back


def _trip_message(name: str, module: str, frame: FrameType, libraries: list[str]) -> str:
    """Return the message of Tripped.

    `libraries` are the modules between the caller and the function, innermost first.
    """
    by_way_of = f", by way of {', '.join(reversed(libraries))}" if libraries else ""
    place = f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
    return (
        f"{module}.{frame.f_code.co_qualname} ({place}) called {name}(){by_way_of}: in virtual "
        f"time that would be another run each time; {INSTEAD}"
    )


def _name_of(owner: object) -> str:
    if isinstance(owner, type):
        return f"{owner.__module__}.{owner.__qualname__}"
    return owner.__name__ if isinstance(owner, ModuleType) else str(owner)
