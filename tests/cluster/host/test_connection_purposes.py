"""The purposes of connections (what they are used for), of which the project keeps a registry."""

import pytest

from cluster.host.connection_purposes import FORWARDING, KAFKA_CLIENT, PURPOSES
from protocol.trace import TraceKind
from tests.support.builders.experiments import experiment
from tests.support.harness.ensemble import EnsembleRun, run_ensemble
from tests.support.worlds.acceptance import play_virtual


async def session_of_a_client(lab: EnsembleRun) -> None:
    """Write one znode, an entry in ZooKeeper."""
    await lab.zk_client().write("/consumers/g", "")


@pytest.mark.slow
def test_every_purpose_that_nodes_use_is_in_the_registry_and_none_besides() -> None:
    """A fault may be for one purpose. If no node used the purpose, it would hit no connection."""
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

    # These two purposes belong to Kafka clients, which exist only in real time. They are tested in
    # tests/cluster/wire.
    assert used == set(PURPOSES) - {FORWARDING, KAFKA_CLIENT}
