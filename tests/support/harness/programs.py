"""Programs in sessions of their own, for tests of drivers: their start, output and end.

A driver is the process that conducts a run. It starts the nodes; when the driver is killed, the
nodes must end. A ProcessRef is a pid with the start time of its process: a later process with the
same pid has another start time. A Ray head is the set of Ray's own processes on a machine.
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
"""Time within which a killed run must end, so that a user can start the next one."""
PATIENCE_S = 60.0  # longest wait on a busy machine


@contextmanager
def program(
    *arguments: str, cwd: Path, environment: dict[str, str | None] | None = None
) -> Iterator["subprocess.Popen[str]"]:
    """Run a program in a session of its own, which is ended in any case.

    `environment` changes variables; None removes one.
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
        # Only the program gets the signal, not its whole session; it ends the processes that it
        # started. If the processes of a Ray head got the signal, too, the head would need half a
        # minute to notice.
        process.terminate()
        try:
            process.wait(20)
        finally:
            with suppress(ProcessLookupError):  # no process of the session is left
                os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def driver_arguments(run_dir: Path, address: str, run_ms: int, *more: str) -> tuple[str, ...]:
    """Return the command line of `ray_driver`; create the run directory."""
    run_dir.mkdir()
    return ("-m", "tests.support.harness.ray_driver", str(run_dir), address, str(run_ms), *more)


def event(process: "subprocess.Popen[str]", name: str) -> dict[str, Any]:
    """Read the driver's output up to the event `name`, and return the event.

    Each event is one line of JSON. If the output ends before the event, the error shows all other
    lines.
    """
    output: IO[str] | None = process.stdout
    assert output is not None
    other: list[str] = []
    for line in output:
        if line.startswith("{"):
            printed: dict[str, Any] = json.loads(line)
            if printed["event"] == name:
                return printed
        other.append(line)
    raise AssertionError(f"no {name} event:\n{''.join(other)}")


def wait_gone(pids: Sequence[int]) -> None:
    """Wait until no process has one of these pids."""
    deadline_s = time.monotonic() + PATIENCE_S
    # A pid without a start time belongs to no process.
    while any(start_ticks(pid) is not None for pid in pids):
        assert time.monotonic() < deadline_s, f"still there: {pids}"
        time.sleep(0.05)


def processes(pids: Iterable[int]) -> list[ProcessRef]:
    """Return these pids with the start times of their processes.

    A process that has ended gets the start time 0, which no process has.
    """
    return [ProcessRef(pid=pid, start_ticks=start_ticks(pid) or 0) for pid in pids]


def rays_own(session: int) -> list[ProcessRef]:
    """Return Ray's own processes (gcs_server and raylet) in the session of a driver.

    `session` is the pid of the driver, which began the session. Source: proc(5), fields 2 (comm)
    and 6 (session) of /proc/<pid>/stat.
    """
    pids = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, _, rest = path.read_text().partition("(")[2].rpartition(")")
        except (FileNotFoundError, ProcessLookupError):  # the process has ended meanwhile
            continue
        # `rest` begins with field 3, so that field 6 has index 3.
        if int(rest.split()[3]) == session and name in ("gcs_server", "raylet"):
            pids.append(int(path.parent.name))
    return processes(pids)


def left_after(refs: Sequence[ProcessRef]) -> list[ProcessRef]:
    """Wait up to LEAVES_WITHIN_S until all processes have ended; return those that have not."""
    deadline = time.monotonic() + LEAVES_WITHIN_S
    while time.monotonic() < deadline:
        if not any(is_alive(ref) for ref in refs):
            return []
        time.sleep(0.05)
    return [ref for ref in refs if is_alive(ref)]


@contextmanager
def ray_head(tmp_path: Path, *, auth_mode: str | None) -> Iterator[str]:
    """Start a Ray head on this machine; yields its address."""
    # The system chooses a free port. Ray can use it when this socket is closed.
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
        # 0: the system chooses the ports of workers.
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
    pid = os.spawnlp(os.P_NOWAIT, "true", "true")
    os.waitpid(pid, 0)
    return pid
