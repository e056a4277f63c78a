"""Ends what is left of a local Ray whose driver was killed: Ray's own agents outlive their raylet.

The guard is a process of its own, in a session of its own, that runs this file as a script: it
imports nothing but the standard library. It reads from a pipe that the driver holds open.

1. The driver ends its Ray and closes the guard: a byte arrives, and the guard only exits.
2. The driver is killed: the pipe ends without a byte. The raylet and the workers end by
   themselves; the guard kills each process that Ray started for that raylet and that has a file of
   the session open, and removes the session's folder.

Only Linux has /proc; elsewhere the guard finds no process, and the folder stays for the next start.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

_CLOSED = b"."
_STARTED_BY_RAYLET = b"RAY_RAYLET_PID="
"""An environment variable of each process that a raylet starts: agents and workers."""
_PATIENCE_S, _POLL_S = 10.0, 0.1


class SessionGuard:
    """A guard over the session `folder` of the Ray that this process started."""

    def __init__(self, folder: Path) -> None:
        """Start the guard. Raises: OSError."""
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", __file__, str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is for the driver
        )

    def close(self) -> None:
        """End the guard; the session has ended, or is left to others."""
        try:
            self._process.communicate(_CLOSED)
        except BrokenPipeError:
            self._process.wait()


def processes_of(folder: Path, proc: Path = Path("/proc")) -> list[int]:
    """Return the processes that a raylet started and that have a file below `folder` open."""
    if not proc.is_dir():
        return []
    return [
        int(entry.name)
        for entry in proc.iterdir()
        if entry.name.isdecimal() and _is_of(entry, folder.resolve())
    ]


def _is_of(process: Path, folder: Path) -> bool:
    try:
        if _STARTED_BY_RAYLET not in (process / "environ").read_bytes():
            return False
        opened = list((process / "fd").iterdir())
    except OSError:  # it has ended, or belongs to another user
        return False
    return any(_lies_below(folder, descriptor) for descriptor in opened)


def _lies_below(folder: Path, descriptor: Path) -> bool:
    try:
        return descriptor.readlink().is_relative_to(folder)
    except OSError:  # closed meanwhile
        return False


def end_session(folder: Path) -> None:
    """Kill the processes of a session and remove its folder; give up after ten seconds."""
    deadline = time.monotonic() + _PATIENCE_S
    while (left := processes_of(folder)) and time.monotonic() < deadline:
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                continue
        time.sleep(_POLL_S)
    shutil.rmtree(folder, ignore_errors=True)


def wait_for_driver(folder: Path) -> None:
    """Wait until the driver ends, and end its session if it was killed."""
    if not sys.stdin.buffer.read(len(_CLOSED)):
        end_session(folder)


if __name__ == "__main__":
    wait_for_driver(Path(sys.argv[1]))
