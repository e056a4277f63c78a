"""Real Kafka clients use a cluster that `coordlab up` keeps running, while it has faults."""

import signal

import pytest

from results_schema.results import EXIT_PASS
from tests.support.harness.command_line import CommandLine
from tests.support.worlds.broken_under_clients import CLUSTER, bootstrap_in, survive_faults

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]


@pytest.mark.parametrize("family", ["librdkafka", "kafka-python"])
def test_clients_lose_no_record_and_store_none_twice(
    command_line: CommandLine, family: str
) -> None:
    """While records flow, the coordinator crashes, a leader moves, and the controller crashes."""
    with command_line.started("up", *CLUSTER) as cluster:
        assert cluster.stdout is not None
        line = next(line for line in cluster.stdout if "bootstrap servers: " in line)
        survive_faults(family, bootstrap_in(line), command_line)
        cluster.send_signal(signal.SIGTERM)
        output, errors = cluster.communicate(timeout=60)
    assert cluster.returncode == EXIT_PASS, output + errors
    assert "Traceback" not in output + errors
