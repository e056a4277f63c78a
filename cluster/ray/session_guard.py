"""SessionGuard: kills the remaining processes of a local Ray whose driver was killed.

A local Ray has a folder (its session) and several processes: the raylet, which is Ray's daemon,
workers, and helper processes called agents. If the driver, the process that has started Ray, is
killed, the raylet and the workers end by themselves, but the agents do not. So the driver also
starts a *guard*: a process that runs this file as a script, with the standard library only. The
guard reads from a pipe that the driver keeps open.

1. If the driver ends its Ray, it sends a byte, and the guard exits.
2. If the driver is killed, the pipe ends without a byte. The guard kills each of Ray's processes
   that has a file of the session open, and removes the folder.

A process is Ray's if it has a title such as `ray::DashboardAgent`, or an environment variable from
its raylet. Both are checked, because a process has no title at its start, and an agent that
sets its title may overwrite its environment. The guard finds processes by /proc, so it works only
on Linux. On other systems the next start of this program removes the folder.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

_CLOSED = b"."
"""The byte by which the driver reports that it has ended its Ray."""
_TITLE = b"ray::"
"""Beginning of the titles of Ray's agents and workers."""
_STARTED_BY_RAYLET = b"RAY_RAYLET_PID="
"""An environment variable that a raylet gives to each agent and worker."""
_PATIENCE_S, _POLL_S = 10.0, 0.1
"""Seconds after which `end_session` gives up, and the interval of its checks."""


class SessionGuard:
    """A guard over the session `folder` of the Ray that this process started."""

    def __init__(self, folder: Path) -> None:
        """Start the guard. Raises: OSError."""
        self._process = subprocess.Popen(
            # -I -S: isolated from the environment, and without site packages.
            [sys.executable, "-I", "-S", __file__, str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # so that a Ctrl-C reaches the driver only
        )

    def close(self) -> None:
        """End the guard without killing processes, because the driver has ended its Ray itself."""
        try:
            self._process.communicate(_CLOSED)
        except BrokenPipeError:  # the guard has ended already
            self._process.wait()


def processes_of(folder: Path, proc: Path = Path("/proc")) -> list[int]:
    """Return Ray's agents and workers that have a file below `folder` open."""
    if not proc.is_dir():
        return []
    # The links in /proc/<pid>/fd have resolved targets, so the folder is resolved, too.
    return [
        int(entry.name)
        for entry in proc.iterdir()
        if entry.name.isdecimal() and _belongs_to(entry, folder.resolve())
    ]


def _belongs_to(process: Path, folder: Path) -> bool:
    """Return True if a process is an agent or a worker of Ray, and has a file in `folder` open."""
    try:
        titled = (process / "cmdline").read_bytes().startswith(_TITLE)
        if not titled and _STARTED_BY_RAYLET not in (process / "environ").read_bytes():
            return False
        opened = list((process / "fd").iterdir())
    except OSError:  # it has ended, or belongs to another user
        return False
    return any(_is_open_below(folder, descriptor) for descriptor in opened)


def _is_open_below(folder: Path, descriptor: Path) -> bool:
    """Return True if a file descriptor is of a file below `folder`."""
    try:
        return descriptor.readlink().is_relative_to(folder)
    except OSError:  # closed meanwhile
        return False


def end_session(folder: Path) -> None:
    """Kill the processes of a session and remove its folder; give up after ten seconds."""
    deadline = time.monotonic() + _PATIENCE_S
    # The loop looks again, because a killed process exists for a moment, and Ray may just be
    # starting another process.
    while (left := processes_of(folder)) and time.monotonic() < deadline:
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                continue  # the process has ended, and its pid may belong to another user now
        time.sleep(_POLL_S)
    shutil.rmtree(folder, ignore_errors=True)


def wait_for_driver(folder: Path) -> None:
    """Wait until the driver ends; if the driver was killed, end its session."""
    if not sys.stdin.buffer.read(len(_CLOSED)):
        end_session(folder)


if __name__ == "__main__":
    wait_for_driver(Path(sys.argv[1]))
