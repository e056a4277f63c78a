"""The purposes of connections: the registry has exactly those that nodes use."""

import pytest

from cluster.host.connection_purposes import FORWARDING, KAFKA_CLIENT, PURPOSES
from protocol.trace import TraceKind
from tests.support.builders.experiments import experiment
from tests.support.harness.ensemble import EnsembleRun, run_ensemble
from tests.support.worlds.acceptance import play_virtual


async def session_of_a_client(lab: EnsembleRun) -> None:
    """Write one znode."""
    await lab.zk_client().write("/consumers/g", "")


@pytest.mark.slow
def test_every_purpose_that_nodes_use_is_in_the_registry_and_none_besides() -> None:
    """A fault for an unused purpose would hit no connection."""
    groups = {
        name: {
            "members": 2,
            "topics": ["orders"],
            "commit_interval_ms": 200,
            "transactional": name == "movers",
            "config": {"enable.auto.commit": False},
        }
        for name in ("readers", "movers")
    }
    producers = [{"topic": "orders", "records_per_second": 20}]
    run = play_virtual(experiment(groups=groups, producers=producers), seed=3)

    ensemble = run_ensemble(session_of_a_client, 3)
    used = {
        row.cause
        for row in (*run.rows, *ensemble.rows)
        if row.kind == TraceKind.REQUEST_SENT and row.node != "admin-0"
    }

    # Kafka clients exist only in real time: tests/cluster/wire has both of these purposes.
    assert used == set(PURPOSES) - {FORWARDING, KAFKA_CLIENT}
