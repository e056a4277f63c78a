"""Which nodes share a process on Ray, and on which machine each process is put."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from cluster.spec import (
    BrokerSpec,
    ClusterSpec,
    ConsumerSpec,
    ControllerSpec,
    NodeSpec,
    ProducerSpec,
    ZooKeeperConsumerSpec,
    ZooKeeperSpec,
    has_disk,
    starts_later,
)
from protocol.ids import NodeName

CONSUMERS_PER_PROCESS = 50
"""One Python process carries about this many consumers at ten messages a second each."""

M = TypeVar("M")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessPlan:
    """One process to start: its name and the nodes it hosts (clients-0 may have none)."""

    name: str
    nodes: tuple[NodeSpec, ...]

    @property
    def is_server(self) -> bool:
        """Whether it hosts a controller or a broker."""
        return any(has_disk(spec) for spec in self.nodes)


def plan_processes(cluster: ClusterSpec) -> tuple[ProcessPlan, ...]:
    """Return the processes of a cluster: servers alone, clients together unless isolated.

    `clients-0` is always there: the runtime's own client lives in it. Producers go to the last of
    the shared client processes, which has room left.
    """
    server_specs: tuple[ControllerSpec | BrokerSpec | ZooKeeperSpec, ...] = (
        *cluster.zookeepers,
        *cluster.controllers,
        *cluster.brokers,
    )
    servers = [ProcessPlan(name=spec.name, nodes=(spec,)) for spec in server_specs]
    members: tuple[ConsumerSpec | ZooKeeperConsumerSpec, ...] = (
        *cluster.consumers,
        *cluster.zookeeper_consumers,
    )
    together = [spec for spec in members if not spec.isolate]
    isolated = [spec for spec in members if spec.isolate]
    shares: list[list[NodeSpec]] = []
    for of_machine in _by_machine(cluster, together, cluster.producers):
        shares += of_machine
    clients = [
        ProcessPlan(name=f"clients-{index}", nodes=tuple(share))
        for index, share in enumerate(shares or [[]])
    ]
    alone = [ProcessPlan(name=spec.name, nodes=(spec,)) for spec in isolated]
    return (*servers, *clients, *alone)


def _by_machine(
    cluster: ClusterSpec,
    members: Sequence[ConsumerSpec | ZooKeeperConsumerSpec],
    producers: Sequence[ProducerSpec],
) -> list[list[list[NodeSpec]]]:
    """Return for each machine the nodes of each of its shared client processes.

    A process never spans two machines of the experiment. One that names none has one machine here.
    """
    machine_of = {name: index for index, names in enumerate(cluster.machines) for name in names}
    shares: dict[int, list[list[NodeSpec]]] = {}
    for spec in members:
        of_machine = shares.setdefault(machine_of.get(spec.name, 0), [[]])
        if len(of_machine[-1]) == CONSUMERS_PER_PROCESS:
            of_machine.append([])
        of_machine[-1].append(spec)
    for producer in producers:
        shares.setdefault(machine_of.get(producer.name, 0), [[]])[-1].append(producer)
    return [shares[index] for index in sorted(shares)]


def place(
    plans: Sequence[ProcessPlan],
    machines: Sequence[M],
    layout: Sequence[Sequence[NodeName]] = (),
) -> dict[str, M]:
    """Put each process on a machine.

    With a `layout` the nodes of its machine i are on `machines[i]`, modulo their number; without,
    processes are spread in turn, brokers first, so that no two share a machine needlessly.
    Raises: ValueError if there is no machine.
    """
    if not machines:
        raise ValueError("no machine to put nodes on")
    if layout:
        machine_of = {name: index for index, names in enumerate(layout) for name in names}
        return {
            plan.name: machines[machine_of[plan.nodes[0].name] % len(machines)]
            if plan.nodes
            else machines[0]
            for plan in plans
        }

    def rank(plan: ProcessPlan) -> int:
        return 0 if plan.nodes and isinstance(plan.nodes[0], BrokerSpec) else 1

    ordered = sorted(plans, key=rank)
    return {plan.name: machines[i % len(machines)] for i, plan in enumerate(ordered)}


def starts_with_the_cluster(plan: ProcessPlan) -> bool:
    """Return whether a process starts with the cluster: not one whose only node starts later.

    Shared processes do, whoever they wait for, so that a late consumer is there at once.
    """
    is_alone = len(plan.nodes) == 1 and plan.nodes[0].name == plan.name
    return not (is_alone and starts_later(plan.nodes[0]))


def node_names(plan: ProcessPlan) -> tuple[NodeName, ...]:
    """Return the names of a process's nodes."""
    return tuple(spec.name for spec in plan.nodes)
