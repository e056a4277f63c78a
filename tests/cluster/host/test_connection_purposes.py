"""The list of the purposes for which nodes open connections, such as "fetch".

An experiment may disturb only the connections of one purpose, so the list of purposes must be
complete, and must have none that is never used.
"""

import pytest

from cluster.host.connection_purposes import FORWARDING, KAFKA_CLIENT, PURPOSES
from protocol.trace import TraceKind
from tests.support.builders.experiments import experiment
from tests.support.harness.ensemble import EnsembleRun, run_ensemble
from tests.support.worlds.acceptance import play_virtual


async def session_of_a_client(lab: EnsembleRun) -> None:
    """Write one znode (an entry in ZooKeeper), so that a connection to ZooKeeper is opened."""
    await lab.zk_client().write("/consumers/g", "")


@pytest.mark.slow
def test_every_purpose_that_nodes_use_is_in_the_registry_and_none_besides() -> None:
    """Two runs, one with brokers and one with ZooKeeper, use every purpose of a virtual run.

    If a purpose were never used, a fault for its connections would do nothing.
    """
    # The group "movers" commits offsets in transactions, which use a connection of their own.
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

    ensemble = run_ensemble(session_of_a_client, servers=3)
    # When a request is sent, the recorded event has the purpose of the connection as its cause.
    # admin-0 is left out: this administrator of the run is no part of the cluster.
    used = {
        row.cause
        for row in (*run.rows, *ensemble.rows)
        if row.kind == TraceKind.REQUEST_SENT and row.node != "admin-0"
    }

    # FORWARDING and KAFKA_CLIENT are for real Kafka clients, which cannot take part in a run in
    # virtual time. The tests in tests/cluster/wire use them.
    assert used == set(PURPOSES) - {FORWARDING, KAFKA_CLIENT}
