"""The layout of a cluster on Ray: which nodes share a process, and on which machine it runs.

`plan_processes(cluster)` returns a plan for each process: its name and its nodes.
`place(plans, ["a", "b"])` distributes the processes over the machines of Ray, for example
`{"controller-100": "a", "broker-0": "a", "broker-1": "b", ...}`.
"""

import pytest
from msgspec import structs

from cluster.ray.layout import (
    CONSUMERS_PER_PROCESS,
    node_names,
    place,
    plan_processes,
    starts_with_the_cluster,
)
from cluster.spec import BrokerSpec, ClusterSpec, ConsumerSpec, ControllerSpec, ProducerSpec
from protocol.ids import NodeName


def consumer(index: int, *, isolate: bool = False, starts_later: bool = False) -> ConsumerSpec:
    """Return a consumer; with `isolate` it gets a process of its own.

    With `starts_later` it starts during the run.
    """
    return ConsumerSpec(
        name=NodeName(f"consumer-{index}"),
        group_id="g",
        index=index,
        topics=(),
        isolate=isolate,
        starts_later=starts_later,
    )


def spec(*consumers: ConsumerSpec, brokers: int = 3, producers: int = 1) -> ClusterSpec:
    """Return a cluster with one controller and these nodes."""
    return ClusterSpec(
        controllers=(ControllerSpec(node_id=100),),
        brokers=tuple(BrokerSpec(broker_id=i) for i in range(brokers)),
        topics=(),
        consumers=consumers,
        producers=tuple(
            ProducerSpec(name=NodeName(f"producer-{i}"), topic="t", records_per_second=1)
            for i in range(producers)
        ),
    )


def test_plan_gives_every_server_a_process_and_clients_one_together() -> None:
    """Each controller and broker has a process of its own, so a kill of it hits no other node.

    Clients share a process, so a hundred consumers need only a few processes.
    """
    plans = {plan.name: plan for plan in plan_processes(spec(consumer(0), consumer(1)))}
    assert list(plans) == ["controller-100", "broker-0", "broker-1", "broker-2", "clients-0"]
    assert node_names(plans["broker-1"]) == ("broker-1",)
    assert node_names(plans["clients-0"]) == ("consumer-0", "consumer-1", "producer-0")
    servers = [name for name, plan in plans.items() if plan.is_server]
    assert servers == ["controller-100", "broker-0", "broker-1", "broker-2"]


def test_plan_isolates_the_marked_consumers_and_distributes_the_others() -> None:
    """With `isolate` a consumer has a process of its own, which can be killed or stopped alone."""
    count = CONSUMERS_PER_PROCESS + 2
    consumers = [consumer(index, isolate=index == 1) for index in range(count)]
    plans = {plan.name: plan for plan in plan_processes(spec(*consumers))}
    assert node_names(plans["consumer-1"]) == ("consumer-1",)
    # One consumer is isolated, and the first shared process is full. So one consumer is left, for
    # the second shared process.
    assert len(plans["clients-0"].nodes) == CONSUMERS_PER_PROCESS
    assert node_names(plans["clients-1"]) == (f"consumer-{count - 1}", "producer-0")


def test_plan_starts_the_process_of_a_late_isolated_consumer_late() -> None:
    """The process of an isolated consumer starts together with the consumer.

    A consumer that is not isolated is in a shared process, which runs from the beginning.
    """
    consumers = (
        consumer(0, starts_later=True),
        consumer(1, isolate=True),
        consumer(2, isolate=True, starts_later=True),
    )
    late_processes = [
        plan.name
        for plan in plan_processes(spec(*consumers, producers=0))
        if not starts_with_the_cluster(plan)
    ]
    assert late_processes == ["consumer-2"]


def test_plan_without_clients_has_a_process_for_the_administrator() -> None:
    """The run's administrator, which reads committed offsets, needs a process in any case."""
    plans = plan_processes(spec(producers=0))
    assert plans[-1].name == "clients-0"
    assert plans[-1].nodes == ()
    assert not plans[-1].is_server


@pytest.mark.parametrize("machine_count", [1, 2, 3, 5])
def test_place_spreads_brokers_before_anything_else(machine_count: int) -> None:
    """No machine may have two brokers while another has none, because a machine can be lost."""
    machines = [f"m{number}" for number in range(machine_count)]
    placed = place(plan_processes(spec(consumer(0))), machines)
    machines_of_brokers = {placed[f"broker-{broker_id}"] for broker_id in range(3)}
    assert len(machines_of_brokers) == min(machine_count, 3)
    assert len(placed) == 5  # the controller, three brokers, and the process of the clients


def test_place_without_a_machine_is_refused() -> None:
    """Ray may have lost its last machine."""
    with pytest.raises(ValueError, match="no machine"):
        place(plan_processes(spec()), [])


def test_machines_of_the_experiment_keep_their_nodes_together() -> None:
    """An experiment can say which nodes are on the same machine.

    Here the experiment has three machines, and Ray has two, a and b. So the nodes of the first and
    of the third machine are on a. Clients of different machines of the experiment never share a
    process.
    """
    nodes_by_machine = (
        ("broker-0", "controller-100", "consumer-1"),
        ("broker-1", "consumer-0", "consumer-2"),
        ("broker-2", "producer-0"),
    )
    machines = tuple(tuple(map(NodeName, nodes)) for nodes in nodes_by_machine)
    cluster = structs.replace(spec(consumer(0), consumer(1), consumer(2)), machines=machines)

    plans = plan_processes(cluster)
    placed_processes = place(plans, ["a", "b"], cluster.machines)

    # Node -> the machine of Ray on which its process runs.
    machine_of = {node: placed_processes[plan.name] for plan in plans for node in node_names(plan)}
    assert [{machine_of[node] for node in nodes} for nodes in machines] == [{"a"}, {"b"}, {"a"}]
