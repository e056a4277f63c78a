"""SIGKILL of the driver on a Ray that it joined: nobody is left to clean up.

And yet nothing may go on or stay stopped. On a Ray of its own: test_ray_drivers.py.
"""

from pathlib import Path

import pytest

from cluster.machine_files import is_stopped
from tests.support.programs import (
    driver_arguments,
    event,
    left_after,
    processes,
    program,
    ray_head,
)

pytestmark = [pytest.mark.ray, pytest.mark.slow]

PAUSED = "broker-0"


def test_driver_killed_leaves_no_process_on_a_ray_that_it_joined(tmp_path: Path) -> None:
    """There the raylet lives on, and must end the actors of a driver that is gone."""
    with ray_head(tmp_path, auth_mode="disabled") as address:
        arguments = driver_arguments(tmp_path / "run", address, 100_000, PAUSED)
        with program(*arguments, cwd=tmp_path, environment={"RAY_AUTH_MODE": "disabled"}) as driver:
            nodes = processes(event(driver, "up")["pids"])
            assert [is_stopped(ref) for ref in nodes] == [True, False, False]
            driver.kill()
            assert left_after(nodes) == []
