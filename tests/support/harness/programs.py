"""Start programs in sessions of their own, read their output, and see which processes they leave.

The tests of drivers need this. A driver is the process that conducts a run on Ray, and that starts
the nodes of the run. If the driver is killed, all its nodes must end.

A process is identified by a ProcessRef, which has the pid and the start time of the process. A pid
alone is not enough, because a later process may get the same pid. A Ray head is the set of
processes that Ray itself runs on a machine.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from cluster.realtime.machine_processes import ProcessRef, is_alive, start_ticks

ROOT = Path(__file__).resolve().parents[3]
LEAVES_WITHIN_S = 10.0
"""After this time, all processes of a killed run must have ended.

A user may start the next run so soon after the kill.
"""
PATIENCE_S = 60.0
"""The longest wait. It is long, because the machine may be busy."""


@contextmanager
def program(
    *arguments: str, cwd: Path, environment: dict[str, str | None] | None = None
) -> Iterator["subprocess.Popen[str]"]:
    """Run a Python program in a session of its own, and end the session at the end of the block.

    `environment` sets variables, or removes those whose value is None.
    """
    env = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    for name, value in (environment or {}).items():
        env.pop(name, None)
        if value is not None:
            env[name] = value
    process = subprocess.Popen(
        [sys.executable, "-u", *arguments],
        cwd=cwd,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        # First only the program gets a signal, not its whole session. The program then ends the
        # processes that it has started. If the processes of a Ray head got the signal, too, the
        # head would need half a minute to notice that they have ended.
        process.terminate()
        try:
            process.wait(20)
        finally:
            # The error means that no process of the session is left.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def driver_arguments(run_dir: Path, address: str, run_ms: int, *more: str) -> tuple[str, ...]:
    """Return the command line of `ray_driver`, and create the directory of its run."""
    run_dir.mkdir()
    return ("-m", "tests.support.harness.ray_driver", str(run_dir), address, str(run_ms), *more)


def event(process: "subprocess.Popen[str]", name: str) -> dict[str, Any]:
    """Read a driver's output up to the event `name`, and return this event.

    An event is a line of JSON.

    Raises: AssertionError with the lines of the output, if it ends without the event.
    """
    output: IO[str] | None = process.stdout
    assert output is not None
    other_lines: list[str] = []
    for line in output:
        if line.startswith("{"):
            printed: dict[str, Any] = json.loads(line)
            if printed["event"] == name:
                return printed
        other_lines.append(line)
    raise AssertionError(f"no {name} event:\n{''.join(other_lines)}")


def wait_gone(pids: Sequence[int]) -> None:
    """Wait until no process has one of these pids."""
    deadline_s = time.monotonic() + PATIENCE_S
    # A pid without a start time belongs to no process.
    while any(start_ticks(pid) is not None for pid in pids):
        assert time.monotonic() < deadline_s, f"still there: {pids}"
        time.sleep(0.05)


def processes(pids: Iterable[int]) -> list[ProcessRef]:
    """Return the processes with these pids.

    For a process that has ended, the start time is 0. No living process has this start time.
    """
    return [ProcessRef(pid=pid, start_ticks=start_ticks(pid) or 0) for pid in pids]


def rays_own(session: int) -> list[ProcessRef]:
    """Return the processes of Ray itself (gcs_server and raylet) that a driver has started.

    These processes are in the session of the driver. The number of a session is the pid of its
    first process, which is the driver.

    Source: proc(5), fields 2 (comm) and 6 (session) of /proc/<pid>/stat.
    """
    pids = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            # A file has a line such as "4711 (raylet) S 1 4711 4711 ...". The name of the process,
            # here "raylet", may contain spaces and brackets.
            name, _, rest = path.read_text().partition("(")[2].rpartition(")")
        except (FileNotFoundError, ProcessLookupError):
            # The process has ended meanwhile.
            continue
        # `rest` begins with field 3, so field 6 has the index 3.
        if int(rest.split()[3]) == session and name in ("gcs_server", "raylet"):
            pids.append(int(path.parent.name))
    return processes(pids)


def left_after(refs: Sequence[ProcessRef]) -> list[ProcessRef]:
    """Wait until all processes have ended, at most for LEAVES_WITHIN_S.

    Return the processes that are left then.
    """
    deadline = time.monotonic() + LEAVES_WITHIN_S
    while time.monotonic() < deadline:
        if not any(is_alive(ref) for ref in refs):
            return []
        time.sleep(0.05)
    return [ref for ref in refs if is_alive(ref)]


@contextmanager
def ray_head(tmp_path: Path, *, auth_mode: str | None) -> Iterator[str]:
    """Start a Ray head on this machine, and yield its address."""
    # The system chooses a free port. Then the socket is closed, so that Ray can use the port.
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    arguments = (
        "-m",
        "ray.scripts.scripts",
        "start",
        "--head",
        "--block",
        "--node-ip-address=127.0.0.1",
        f"--port={port}",
        "--include-dashboard=false",
        "--disable-usage-stats",
        f"--object-store-memory={100 * 1024 * 1024}",
        # With 0 the system chooses the ports of the workers.
        "--min-worker-port=0",
        "--max-worker-port=0",
    )
    with program(*arguments, cwd=tmp_path, environment={"RAY_AUTH_MODE": auth_mode}) as head:
        output = head.stdout
        assert output is not None
        printed: list[str] = []
        for line in output:
            printed.append(line)
            if "Ray runtime started" in line:
                break
        else:
            raise AssertionError(f"the head did not start:\n{''.join(printed)}")
        yield f"127.0.0.1:{port}"


def pid_of_ended_process() -> int:
    """Return the id of a process that has ended."""
    # The program `true` ends at once. After `waitpid` its pid belongs to no process.
    pid = os.spawnlp(os.P_NOWAIT, "true", "true")
    os.waitpid(pid, 0)
    return pid
