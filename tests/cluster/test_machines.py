"""`spread_nodes` distributes nodes over machines, and keeps the places that are given."""

import pytest

from chaos.experiment.structs import machine_layout, to_cluster_spec
from cluster.machines import MachineLayout, spread_nodes
from protocol.ids import NodeName
from tests.support.builders.experiments import experiment

NODES = tuple(map(NodeName, ("broker-0", "broker-1", "broker-2", "controller-100", "a", "b")))


def test_nodes_are_distributed_in_turn_brokers_first() -> None:
    """Two brokers share a machine only if every machine has a broker."""
    layout = spread_nodes(NODES, 3)

    assert layout.machines == (
        ("broker-0", "controller-100"),
        ("broker-1", "a"),
        ("broker-2", "b"),
    )
    assert layout.index_of(NodeName("a")) == 1
    assert layout.index_of(NodeName("unknown")) is None


def test_placed_nodes_are_on_their_machine() -> None:
    """The third argument has the nodes with a given place, by machine.

    The other nodes are placed in turn, as if those with a given place did not exist.
    """
    layout = spread_nodes(NODES, 2, [[NodeName("b"), NodeName("broker-2")], []])

    assert layout.machines == (("broker-0", "broker-2", "controller-100", "b"), ("broker-1", "a"))


def test_no_machine_is_refused() -> None:
    """Each node needs a machine, so the number of machines is at least 1."""
    with pytest.raises(ValueError, match="expected at least 1 machine, got 0"):
        spread_nodes(NODES, 0)


def test_every_node_of_a_cluster_is_on_one_machine() -> None:
    """An experiment's file gives the same layout as the cluster that is built from the file."""
    two_machines = experiment(
        cluster={"brokers": 3, "machines": 2},
        producers=[{"topic": "orders", "records_per_second": 5}],
    )

    machines = to_cluster_spec(two_machines).machines

    assert machine_layout(two_machines) == MachineLayout(machines=machines)
    assert sorted(name for names in machines for name in names) == [
        "broker-0",
        "broker-1",
        "broker-2",
        "consumer-readers-0",
        "consumer-readers-1",
        "controller-100",
        "producer-0",
    ]


def test_file_without_machines_has_no_layout() -> None:
    """The cluster that is built from such a file has no machines either."""
    assert machine_layout(experiment()) is None
    assert to_cluster_spec(experiment()).machines == ()
