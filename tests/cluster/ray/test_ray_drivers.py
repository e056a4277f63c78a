"""A driver, the main process of a run, can join a Ray that another program has started.

`ray_head` starts a Ray. `program(*driver_arguments(...))` starts a driver that joins this Ray. The
driver prints a line of JSON when its nodes run ("up"), and another line at its end ("stopped").
`event` waits for such a line. For drivers that start their own Ray see
tests/acceptance/test_ray_run.py.
"""

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
"""The node that the driver pauses in the second test."""


def test_run_on_a_joined_ray_presents_its_token(tmp_path: Path) -> None:
    """A driver must send Ray's token even if RAY_AUTH_MODE is not set, as here.

    An earlier run, which started its own Ray, has left TOKEN_FILE in the home folder. A Ray that is
    started by `ray start --head` demands the token of this file.
    """
    if not TOKEN_FILE.exists():
        pytest.skip("no local Ray has left a token file in the home folder")
    with ray_head(tmp_path, auth_mode="token") as address:
        check_run(tmp_path, address, auth_mode=None)


def test_joined_ray_continues_after_runs_that_ended_and_that_were_killed(
    tmp_path: Path,
) -> None:
    """A driver that is killed by SIGKILL cannot clean up, so Ray must end the run's processes.

    This includes the process of a paused broker, which cannot notice by itself that the driver is
    gone. Ray has no authentication here, so RAY_AUTH_MODE must be "disabled".
    """
    with ray_head(tmp_path, auth_mode="disabled") as address:
        check_run(tmp_path, address, auth_mode="disabled")
        # This run would take 100 s. It pauses the broker PAUSED before the driver prints "up".
        run_ms = 100_000
        arguments = driver_arguments(tmp_path / "killed", address, run_ms, PAUSED)
        with program(*arguments, cwd=tmp_path, environment={"RAY_AUTH_MODE": "disabled"}) as driver:
            nodes = processes(event(driver, "up")["pids"])
            # The pause has stopped the first of these processes, in which PAUSED runs.
            assert [is_stopped(process) for process in nodes] == [True, False, False]
            driver.kill()
            assert left_after(nodes) == []  # after some time, no process is left


def check_run(folder: Path, address: str, *, auth_mode: str | None) -> None:
    """Play one run on the Ray at `address`, and check that its processes end with it."""
    arguments = driver_arguments(folder / "run", address, run_ms=500)
    with program(*arguments, cwd=folder, environment={"RAY_AUTH_MODE": auth_mode}) as driver:
        pids = event(driver, "up")["pids"]
        end = event(driver, "stopped")
        assert driver.wait(PATIENCE_S) == 0
    wait_gone(pids)
    assert end["failures"] == []
    assert end["acknowledged"] > 0
