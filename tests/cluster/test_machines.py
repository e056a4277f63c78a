"""`spread_nodes` decides which node of a cluster runs on which machine.

A real run may use several machines. `spread_nodes` returns a layout: for each machine the names of
its nodes. The user may choose the machine of some nodes.
"""

import pytest

from chaos.experiment.structs import machine_layout, to_cluster_spec
from cluster.machines import MachineLayout, spread_nodes
from protocol.ids import NodeName
from tests.support.builders.experiments import experiment

NODES = tuple(map(NodeName, ("broker-0", "broker-1", "broker-2", "controller-100", "a", "b")))


def test_nodes_are_distributed_in_turn_brokers_first() -> None:
    """The first node goes to machine 0, the second to machine 1, and so on, in rotation.

    Brokers come first, so two brokers share a machine only if every machine already has a broker.
    """
    layout = spread_nodes(NODES, machines=3)

    assert layout.machines == (
        ("broker-0", "controller-100"),
        ("broker-1", "a"),
        ("broker-2", "b"),
    )
    assert layout.index_of(NodeName("a")) == 1
    assert layout.index_of(NodeName("unknown")) is None


def test_placed_nodes_are_on_their_machine() -> None:
    """Here the user places two nodes, b and broker-2, on machine 0.

    The other nodes go to the machines in rotation, as if these two did not exist.
    """
    wanted_on_machine_0 = [NodeName("b"), NodeName("broker-2")]
    wanted_on_machine_1: list[NodeName] = []
    layout = spread_nodes(NODES, machines=2, placed=[wanted_on_machine_0, wanted_on_machine_1])

    # The nodes of each machine have the order of NODES.
    assert layout.machines == (("broker-0", "broker-2", "controller-100", "b"), ("broker-1", "a"))


def test_no_machine_is_refused() -> None:
    """There must be at least one machine."""
    with pytest.raises(ValueError, match="expected at least 1 machine, got 0"):
        spread_nodes(NODES, machines=0)


def test_every_node_of_a_cluster_is_on_one_machine() -> None:
    """The layout can be computed from the file of an experiment, before its cluster is built.

    This layout must be the same as in the cluster, and must contain each node once.
    """
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
    """If an experiment says nothing about machines, its cluster has no layout either."""
    assert machine_layout(experiment()) is None
    assert to_cluster_spec(experiment()).machines == ()
