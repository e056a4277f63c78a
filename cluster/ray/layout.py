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
    shares: list[list[NodeSpec]] = [
        list(together[start : start + CONSUMERS_PER_PROCESS])
        for start in range(0, len(together), CONSUMERS_PER_PROCESS)
    ] or [[]]
    shares[-1].extend(cluster.producers)
    clients = [
        ProcessPlan(name=f"clients-{index}", nodes=tuple(share))
        for index, share in enumerate(shares)
    ]
    alone = [ProcessPlan(name=spec.name, nodes=(spec,)) for spec in isolated]
    return (*servers, *clients, *alone)


def place(plans: Sequence[ProcessPlan], machines: Sequence[M]) -> dict[str, M]:
    """Spread the processes over the machines: brokers first, so that no two share one needlessly.

    Raises: ValueError if there is no machine.
    """
    if not machines:
        raise ValueError("no machine to put nodes on")

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
