"""Operations on one machine: signals to processes, and the files that they have left.

A machine's directory has the traces, the logs and the disks of the nodes that ran on the machine.
At its end, a run collects traces and logs from other machines, in pieces.

A process is identified by its pid and its start time, because the system may give the pid of an
ended process to a new process. The module does not need Ray.
"""

import asyncio
import ctypes
import os
import shutil
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

READ_CHUNK_BYTES = 4 * 1024 * 1024
"""Size of the pieces in which files are fetched from other machines."""
COLLECTED = ("trace", "logs")
"""Folders in a machine's directory that a run collects."""
_POLL_S = 0.002
"""Interval of the checks whether a process is gone or stopped."""
_PR_SET_PDEATHSIG = 1
"""Number of the option of prctl that `die_with_parent` sets. Source: linux/prctl.h."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessRef:
    """Identifies a process: its pid, and its start time in the kernel's clock ticks."""

    pid: int
    start_ticks: int


class ProcessStillAlive(Exception):
    """A process still exists although it was sent SIGKILL."""


class ProcessNotStopped(Exception):
    """A process still runs although it was sent SIGSTOP."""


def start_ticks(pid: int) -> int | None:
    """Return the start time of process `pid`; None if the process is gone or a zombie.

    Source: proc(5), fields 3 (state) and 22 (starttime) of /proc/<pid>/stat.
    """
    state, ticks = _state_and_start(pid)
    # Z: zombie, X: dead. A zombie counts as gone, because it runs no code and has no open files.
    return None if state in "ZX" else ticks


def _state_and_start(pid: int) -> tuple[str, int]:
    """Return a process's state letter (X if there is no process) and its start time."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return "X", 0
    # The name in field 2 may contain spaces and brackets, so fields are counted after its end.
    fields_from_3 = stat.rpartition(")")[2].split()
    return fields_from_3[0], int(fields_from_3[22 - 3])  # state, starttime: see `start_ticks`


def own_process() -> ProcessRef:
    """Return the calling process."""
    pid = os.getpid()
    # On a system without /proc the start time is not known, and 0 stands for it.
    return ProcessRef(pid=pid, start_ticks=start_ticks(pid) or 0)


def is_alive(process: ProcessRef) -> bool:
    """Return True if the process still exists and its pid was not given to another process."""
    return start_ticks(process.pid) == process.start_ticks


def send_signal(process: ProcessRef, signal_number: signal.Signals) -> None:
    """Send a signal. Raises: ProcessLookupError if the process is gone."""
    if not is_alive(process):
        raise ProcessLookupError(f"process {process.pid} is gone")
    os.kill(process.pid, signal_number)


async def wait_gone(processes: Sequence[ProcessRef], timeout_s: float) -> tuple[ProcessRef, ...]:
    """Wait until all processes are gone, for `timeout_s` at most; return those that still exist."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_s
    while True:
        alive = tuple(process for process in processes if is_alive(process))
        if not alive or loop.time() > deadline:
            return alive
        await asyncio.sleep(_POLL_S)


async def kill(process: ProcessRef, timeout_s: float) -> None:
    """`kill -9` a process and wait until it is gone.

    Raises: ProcessLookupError if the process was gone before; ProcessStillAlive.
    """
    send_signal(process, signal.SIGKILL)
    if await wait_gone([process], timeout_s):
        raise ProcessStillAlive(f"process {process.pid} exists {timeout_s} s after SIGKILL")


async def stop(process: ProcessRef, timeout_s: float) -> None:
    """SIGSTOP a process and wait until it is stopped.

    Raises: ProcessLookupError if the process is gone; ProcessNotStopped.
    """
    send_signal(process, signal.SIGSTOP)
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_s
    while not is_stopped(process):
        if loop.time() > deadline:
            raise ProcessNotStopped(f"process {process.pid} runs {timeout_s} s after SIGSTOP")
        await asyncio.sleep(_POLL_S)


def is_stopped(process: ProcessRef) -> bool:
    """Return True if a process is stopped by a signal. Raises: ProcessLookupError."""
    state, ticks = _state_and_start(process.pid)
    if state in "ZX" or ticks != process.start_ticks:
        raise ProcessLookupError(f"process {process.pid} is gone")
    return state == "T"  # Source: proc(5), "stopped on a signal"


def die_with_parent() -> None:
    """Make the kernel kill this process when its parent ends, even if this process is stopped.

    On systems other than Linux the function does nothing.
    Raises: OSError.
    Source: prctl(2), PR_SET_PDEATHSIG.
    """
    if not sys.platform.startswith("linux"):
        return
    libc = ctypes.CDLL(None, use_errno=True)  # None: the C library that this process uses
    if libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")


def collected_files(machine_dir: Path) -> tuple[tuple[str, int], ...]:
    """Return the files that a run collects: path below `machine_dir`, size in bytes."""
    paths = [
        path
        for folder in COLLECTED
        for path in sorted((machine_dir / folder).glob("*"))
        if path.is_file()
    ]
    return tuple((str(path.relative_to(machine_dir)), path.stat().st_size) for path in paths)


def read_piece(machine_dir: Path, relative_path: str, offset: int) -> bytes:
    """Return up to READ_CHUNK_BYTES of a collected file. Raises: ValueError, OSError."""
    path = (machine_dir / relative_path).resolve()
    # The path comes over the network. It must not lead to other files of the machine, by `..` or by
    # a link.
    if not path.is_relative_to(machine_dir.resolve()):
        raise ValueError(f"{relative_path} is outside of the run")
    with path.open("rb") as file:
        file.seek(offset)
        return file.read(READ_CHUNK_BYTES)


def disk_of(machine_dir: Path, node: str) -> Path:
    """Return the directory for the disk of `node`."""
    return machine_dir / "disks" / node


def remove_disk(machine_dir: Path, node: str) -> None:
    """Delete the disk of a dead node, if it has one. Raises: OSError."""
    disk = disk_of(machine_dir, node)
    if disk.exists():
        shutil.rmtree(disk)


def remove_disks(machine_dir: Path) -> None:
    """Delete the nodes' disks of a finished run; files that cannot be deleted stay."""
    shutil.rmtree(machine_dir / "disks", ignore_errors=True)


def remove_machine_dir(machine_dir: Path) -> None:
    """Delete a finished run's directory on a machine that does not share the driver's files."""
    shutil.rmtree(machine_dir, ignore_errors=True)
