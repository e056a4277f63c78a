"""Drivers in processes of their own: beside each other, killed, interrupted, on a joined Ray."""

import os
import signal
from pathlib import Path

import pytest

from cluster.machine_files import is_stopped, start_ticks
from cluster.ray_environment import TOKEN_FILE
from cluster.trace_files import frames_path, read_frames
from protocol.trace import TraceKind
from tests.support.programs import (
    PATIENCE_S,
    driver_arguments,
    event,
    left_after,
    processes,
    program,
    ray_head,
    rays_own,
    wait_gone,
)

pytestmark = [pytest.mark.ray, pytest.mark.slow]

PAUSED = "broker-0"


def test_two_runs_side_by_side_do_not_touch_each_other(tmp_path: Path) -> None:
    """Each has a Ray of its own; one driver is killed, the other interrupted by Ctrl-C.

    The killed driver's node processes and its Ray must end by themselves, also the broker that it
    had stopped, which can see no connection end; its own trace must be there. The interrupted one
    stops its nodes, hands over its trace and leaves nothing behind, although one was paused.
    """
    first, second = tmp_path / "first", tmp_path / "second"
    with (
        program(*driver_arguments(first, "local", 100_000, PAUSED), cwd=tmp_path) as killed,
        program(*driver_arguments(second, "local", 100_000, PAUSED), cwd=tmp_path) as interrupted,
    ):
        nodes = processes(event(killed, "up")["pids"])
        interrupted_pids = event(interrupted, "up")["pids"]
        assert len(nodes) == len(interrupted_pids) == 3
        assert [is_stopped(ref) for ref in nodes] == [True, False, False]
        ray = rays_own(killed.pid)
        assert len(ray) == 2
        killed.kill()
        assert left_after([*nodes, *ray]) == []
        assert all(start_ticks(pid) is not None for pid in interrupted_pids)
        os.killpg(interrupted.pid, signal.SIGINT)
        event(interrupted, "interrupted")
        end = event(interrupted, "stopped")
        assert interrupted.wait(PATIENCE_S) == 0
    wait_gone(interrupted_pids)
    assert end["failures"] == []
    assert end["runs"] == ["second"]
    assert end["acknowledged"] > 0
    assert {row.run for row in read_frames(frames_path(first / "trace", PAUSED, 0)).rows} == {
        "first"
    }
    kinds = [row.kind for row in read_frames(frames_path(first / "trace", "driver", 0)).rows]
    assert kinds[-1] == TraceKind.NODE_PAUSED


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
