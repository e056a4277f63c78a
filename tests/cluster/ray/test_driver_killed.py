"""SIGKILL of the driver: nobody is left to clean up, and yet nothing may go on or stay stopped."""

import time
from pathlib import Path

import pytest

from cluster.machine_files import ProcessRef, is_alive, is_stopped, start_ticks
from cluster.trace_files import frames_path, read_frames
from protocol.trace import TraceKind
from tests.support.programs import driver_arguments, event, program, ray_head

pytestmark = [pytest.mark.ray, pytest.mark.slow]

LEAVES_WITHIN_S = 10.0
"""A laptop's user kills a run and starts the next one."""
PAUSED = "broker-0"


def processes(pids: list[int]) -> list[ProcessRef]:
    return [ProcessRef(pid=pid, start_ticks=start_ticks(pid) or 0) for pid in pids]


def rays_own(session: int) -> list[ProcessRef]:
    """Return the gcs_server and the raylet of a driver that leads a session.

    Source: proc(5), fields 2 (comm) and 6 (session) of /proc/<pid>/stat.
    """
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, _, rest = path.read_text().partition("(")[2].rpartition(")")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(rest.split()[3]) == session and name in ("gcs_server", "raylet"):
            found.append(int(path.parent.name))
    return processes(found)


def left_after(refs: list[ProcessRef], seconds: float) -> list[ProcessRef]:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if not any(is_alive(ref) for ref in refs):
            return []
        time.sleep(0.05)
    return [ref for ref in refs if is_alive(ref)]


def test_driver_killed_leaves_no_process_of_a_local_ray(tmp_path: Path) -> None:
    """Also not the broker that it had stopped, which can see no connection end."""
    run_dir = tmp_path / "run"
    arguments = driver_arguments(run_dir, "local", 100_000, PAUSED)
    with program(*arguments, cwd=tmp_path) as driver:
        nodes = processes(event(driver, "up")["pids"])
        ray = rays_own(driver.pid)
        assert len(ray) == 2
        assert [is_stopped(ref) for ref in nodes] == [True, False, False]
        driver.kill()
        assert left_after([*nodes, *ray], LEAVES_WITHIN_S) == []
    kinds = [row.kind for row in read_frames(frames_path(run_dir / "trace", "driver", 0)).rows]
    assert kinds[-1] == TraceKind.NODE_PAUSED


def test_driver_killed_leaves_no_process_on_a_ray_that_it_joined(tmp_path: Path) -> None:
    """There the raylet lives on, and must end the actors of a driver that is gone."""
    with ray_head(tmp_path, auth_mode="disabled") as address:
        arguments = driver_arguments(tmp_path / "run", address, 100_000, PAUSED)
        with program(*arguments, cwd=tmp_path, environment={"RAY_AUTH_MODE": "disabled"}) as driver:
            nodes = processes(event(driver, "up")["pids"])
            assert [is_stopped(ref) for ref in nodes] == [True, False, False]
            driver.kill()
            assert left_after(nodes, LEAVES_WITHIN_S) == []
