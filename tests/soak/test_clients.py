"""Real clients lose no record while faults hit their cluster.

The cluster runs in real time, and a program with a real client library writes and reads. One of
these libraries is Kafka's own Java client. Meanwhile `survive_faults` injects faults. At the end it
checks the records of the program.
"""

import signal
import subprocess
import time
from pathlib import Path

import pytest

from results_schema.results import EXIT_PASS
from tests.support.harness.client_programs import JAVA_CLASSES, PROGRAMS
from tests.support.harness.command_line import CommandLine
from tests.support.soak import say
from tests.support.worlds.broken_under_clients import (
    CLUSTER,
    bootstrap_in,
    java_is_built,
    survive_faults,
)

pytestmark = [pytest.mark.soak, pytest.mark.timeout(600)]


@pytest.fixture(scope="module", autouse=True)
def java_program() -> None:
    """Build the Java program with Maven, unless it is built already."""
    if not java_is_built(JAVA_CLASSES):
        pom = JAVA_CLASSES.parents[1] / "pom.xml"
        subprocess.run(["mvn", "-q", "-B", "-f", str(pom), "package"], check=True)


@pytest.mark.parametrize("runtime", ["local", "ray"])
@pytest.mark.parametrize("family", [*PROGRAMS, "java"])
def test_clients_lose_no_record_and_store_none_twice(
    family: str, runtime: str, tmp_path: Path
) -> None:
    """Each client is tried on a cluster in one process (local), and in many processes (ray).

    tests/acceptance/test_real_clients.py does the same without the Java client and without Ray.
    """
    command_line = CommandLine(tmp_path)
    began_s = time.monotonic()
    with command_line.started("up", "--runtime", runtime, *CLUSTER) as cluster:
        assert cluster.stdout is not None
        line = next(line for line in cluster.stdout if "bootstrap servers: " in line)
        survive_faults(family, bootstrap_in(line), command_line)
        cluster.send_signal(signal.SIGTERM)
        output, errors = cluster.communicate(timeout=120)
    assert cluster.returncode == EXIT_PASS, output + errors
    assert command_line.processes() == []
    say(
        f"{family} on {runtime}: every acknowledged record read where it was stored, none stored "
        f"twice, verdict pass ({time.monotonic() - began_s:.0f} s)"
    )
