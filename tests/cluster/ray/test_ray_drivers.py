"""Drivers on a Ray that they join; tests/acceptance/test_ray_run.py has Rays of their own."""

from pathlib import Path

import pytest

from cluster.ray.environment import TOKEN_FILE
from cluster.realtime.machine_processes import is_stopped
from tests.support.harness.programs import (
    PATIENCE_S,
    driver_arguments,
    event,
    left_after,
    processes,
    program,
    ray_head,
    wait_gone,
)

pytestmark = [pytest.mark.ray, pytest.mark.slow]

PAUSED = "broker-0"


def test_run_on_a_joined_ray_presents_its_token(tmp_path: Path) -> None:
    """A local Ray leaves a token file that a later `ray start --head` demands.

    With the file there and RAY_AUTH_MODE unset, the driver must present the token.
    """
    if not TOKEN_FILE.exists():
        pytest.skip("no local Ray has left a token file in the home folder")
    with ray_head(tmp_path, auth_mode="token") as address:
        check_run(tmp_path, address, auth_mode=None)


def test_joined_ray_continues_after_runs_that_ended_and_that_were_killed(
    tmp_path: Path,
) -> None:
    """A cluster without authentication needs the mode to be set.

    After a SIGKILL of the driver no code of ours cleans up, and the raylet lives on: it must end
    the actors, also the stopped broker, which sees no connection end.
    """
    with ray_head(tmp_path, auth_mode="disabled") as address:
        check_run(tmp_path, address, auth_mode="disabled")
        # A run of 100 s, in which PAUSED is stopped.
        arguments = driver_arguments(tmp_path / "killed", address, 100_000, PAUSED)
        with program(*arguments, cwd=tmp_path, environment={"RAY_AUTH_MODE": "disabled"}) as driver:
            nodes = processes(event(driver, "up")["pids"])
            # PAUSED, the first, stands still.
            assert [is_stopped(ref) for ref in nodes] == [True, False, False]
            driver.kill()
            assert left_after(nodes) == []


def check_run(folder: Path, address: str, *, auth_mode: str | None) -> None:
    """Play one run on the Ray at `address`, and check that the nodes' processes end with it."""
    arguments = driver_arguments(folder / "run", address, run_ms=500)
    with program(*arguments, cwd=folder, environment={"RAY_AUTH_MODE": auth_mode}) as driver:
        pids = event(driver, "up")["pids"]
        end = event(driver, "stopped")
        assert driver.wait(PATIENCE_S) == 0
    wait_gone(pids)
    assert end["failures"] == []
    assert end["acknowledged"] > 0
