"""The processes of a cluster on Ray: the nodes and the machine of each process.

Each server (broker, controller, ZooKeeper server) has a process of its own, so that a fault can
kill a single server. Clients share processes, which is cheaper. But a client whose spec says
`isolate` has a process of its own, too. The administrator, which is the runtime's own client, is in
the first of the shared processes, `clients-0`.
"""

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
"""Number of consumers that a process can run, if each gets about ten messages a second."""

# The caller's type of a machine.
M = TypeVar("M")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessPlan:
    """One process: its name and its nodes.

    The process `clients-0` also has the administrator, which is not in `nodes`, so its `nodes` may
    be empty.
    """

    name: str
    nodes: tuple[NodeSpec, ...]

    @property
    def is_server(self) -> bool:
        """True if one of its nodes has a disk: a broker, a controller or a ZooKeeper server."""
        return any(has_disk(spec) for spec in self.nodes)


def plan_processes(cluster: ClusterSpec) -> tuple[ProcessPlan, ...]:
    """Return the processes of a cluster: servers alone, clients together unless isolated.

    There is always a process `clients-0`, because the administrator runs in it. Producers go to the
    last shared process of their machine, because all earlier processes are full of consumers.
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
    shares: list[list[NodeSpec]] = []  # the nodes of each shared client process
    for shares_of_machine in _shares_by_machine(cluster, together, cluster.producers):
        shares += shares_of_machine
    clients = [
        ProcessPlan(name=f"clients-{index}", nodes=tuple(share))
        # Without clients, there is one process without nodes, for the administrator.
        for index, share in enumerate(shares or [[]])
    ]
    alone = [ProcessPlan(name=spec.name, nodes=(spec,)) for spec in isolated]
    return (*servers, *clients, *alone)


def _shares_by_machine(
    cluster: ClusterSpec,
    members: Sequence[ConsumerSpec | ZooKeeperConsumerSpec],
    producers: Sequence[ProducerSpec],
) -> list[list[list[NodeSpec]]]:
    """Return the shares of clients on each machine of the experiment; each share is one process.

    No share has clients of two machines. An experiment without machines counts as one machine.
    """
    # The number of each node's machine in the experiment.
    machine_of = {name: index for index, names in enumerate(cluster.machines) for name in names}
    shares_by_machine: dict[int, list[list[NodeSpec]]] = {}
    for spec in members:
        # A client that is on no machine of the experiment goes to the processes of machine 0.
        shares = shares_by_machine.setdefault(machine_of.get(spec.name, 0), [[]])
        if len(shares[-1]) == CONSUMERS_PER_PROCESS:
            shares.append([])
        shares[-1].append(spec)
    for producer in producers:
        shares = shares_by_machine.setdefault(machine_of.get(producer.name, 0), [[]])
        shares[-1].append(producer)
    return [shares_by_machine[index] for index in sorted(shares_by_machine)]


def place(
    plans: Sequence[ProcessPlan],
    machines: Sequence[M],
    layout: Sequence[Sequence[NodeName]] = (),
) -> dict[str, M]:
    """Return the machine of each process.

    - A `layout` has the experiment's machines, each as the names of its nodes. The nodes of
      `layout[i]` go to `machines[i]`. If `machines` are fewer than the experiment's machines, the
      count begins again with the first machine.
    - Without a layout, processes go to the machines in rotation. Brokers come first, so that two
      brokers share a machine only if there are more brokers than machines.
    Raises: ValueError if there is no machine.
    """
    if not machines:
        raise ValueError("no machine to put nodes on")
    if layout:
        # The number of each node's machine in the layout.
        machine_of = {name: index for index, names in enumerate(layout) for name in names}
        # All nodes of a process belong to one machine (`_shares_by_machine`), so the first node
        # tells the machine.
        return {
            plan.name: machines[machine_of[plan.nodes[0].name] % len(machines)]
            if plan.nodes
            else machines[0]  # only the runtime's own client runs in it
            for plan in plans
        }

    def rank(plan: ProcessPlan) -> int:
        return 0 if plan.nodes and isinstance(plan.nodes[0], BrokerSpec) else 1

    ordered = sorted(plans, key=rank)
    return {plan.name: machines[i % len(machines)] for i, plan in enumerate(ordered)}


def starts_with_the_cluster(plan: ProcessPlan) -> bool:
    """Return False for a process whose only node starts later.

    A shared process starts with the cluster even if all of its nodes start later, so that a late
    consumer needs no new process.
    """
    # A process for a single node has the node's name; a shared one is named `clients-<number>`.
    is_alone = len(plan.nodes) == 1 and plan.nodes[0].name == plan.name
    return not (is_alone and starts_later(plan.nodes[0]))


def node_names(plan: ProcessPlan) -> tuple[NodeName, ...]:
    """Return the names of a process's nodes."""
    return tuple(spec.name for spec in plan.nodes)
