"""Drivers in processes of their own: beside each other, killed, interrupted, on a joined Ray."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import pytest

from cluster.machine_files import start_ticks
from cluster.ray_environment import TOKEN_FILE
from cluster.trace_files import frames_path, read_frames

pytestmark = [pytest.mark.ray, pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[3]
PATIENCE_S = 60.0


@contextmanager
def program(
    *arguments: str, cwd: Path, environment: dict[str, str | None] | None = None
) -> Iterator["subprocess.Popen[str]"]:
    """Run a program in a session of its own, which is ended whatever happens."""
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
        # Only the program itself, which ends what it started: a Ray head whose processes get the
        # signal too takes half a minute to believe it.
        process.terminate()
        try:
            process.wait(20)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def driver_arguments(run_dir: Path, address: str, run_ms: int) -> tuple[str, ...]:
    run_dir.mkdir()
    return ("-m", "tests.support.ray_driver", str(run_dir), address, str(run_ms))


def event(process: "subprocess.Popen[str]", name: str) -> dict[str, Any]:
    """Read the driver's output up to an event; what else it printed explains a failure."""
    output: IO[str] | None = process.stdout
    assert output is not None
    other: list[str] = []
    for line in output:
        if line.startswith("{"):
            found: dict[str, Any] = json.loads(line)
            if found["event"] == name:
                return found
        other.append(line)
    raise AssertionError(f"no {name} event:\n{''.join(other)}")


def wait_gone(pids: list[int]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while any(start_ticks(pid) is not None for pid in pids):
        assert time.monotonic() < deadline, f"still there: {pids}"
        time.sleep(0.05)


def test_two_runs_side_by_side_do_not_touch_each_other(tmp_path: Path) -> None:
    """Each has a Ray of its own; one driver is killed, the other interrupted by Ctrl-C.

    The killed driver's node processes must end by themselves, and its own trace must be there;
    the interrupted one stops its nodes, hands over its trace and leaves nothing behind.
    """
    first, second = tmp_path / "first", tmp_path / "second"
    with (
        program(*driver_arguments(first, "local", 100_000), cwd=tmp_path) as killed,
        program(*driver_arguments(second, "local", 100_000), cwd=tmp_path) as interrupted,
    ):
        killed_pids = event(killed, "up")["pids"]
        interrupted_pids = event(interrupted, "up")["pids"]
        assert len(killed_pids) == len(interrupted_pids) == 3
        killed.kill()
        wait_gone(killed_pids)
        assert all(start_ticks(pid) is not None for pid in interrupted_pids)
        os.killpg(interrupted.pid, signal.SIGINT)
        event(interrupted, "interrupted")
        end = event(interrupted, "stopped")
        assert interrupted.wait(PATIENCE_S) == 0
    wait_gone(interrupted_pids)
    assert end["failures"] == []
    assert end["runs"] == ["second"]
    assert end["acknowledged"] > 0
    assert {row.run for row in read_frames(frames_path(first / "trace", "broker-0", 0)).rows} == {
        "first"
    }


@contextmanager
def ray_head(tmp_path: Path, *, auth_mode: str | None) -> Iterator[str]:
    """Start a Ray head on this machine; yields its address."""
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


@pytest.mark.parametrize("auth_mode", ["token", "disabled"])
def test_run_on_a_ray_that_is_joined_works_with_and_without_a_token(
    tmp_path: Path, auth_mode: str
) -> None:
    """A local Ray leaves a token file that a later `ray start --head` demands.

    With the file there and RAY_AUTH_MODE unset, the driver must show it; a cluster without
    authentication needs the mode said. The head must go on when the run is over.
    """
    if auth_mode == "token" and not TOKEN_FILE.exists():
        pytest.skip("no local Ray has left a token file in the home folder")
    driver_mode = None if auth_mode == "token" else auth_mode
    with ray_head(tmp_path, auth_mode=auth_mode) as address:
        arguments = driver_arguments(tmp_path / "run", address, 500)
        with program(
            *arguments, cwd=tmp_path, environment={"RAY_AUTH_MODE": driver_mode}
        ) as driver:
            pids = event(driver, "up")["pids"]
            end = event(driver, "stopped")
            assert driver.wait(PATIENCE_S) == 0
        wait_gone(pids)
    assert end["failures"] == []
    assert end["acknowledged"] > 0
