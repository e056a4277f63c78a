"""MachineLayout: the nodes of each machine of a cluster, computed in one way for every runtime.

All nodes of a machine die, pause and are cut off together. An experiment may say on which machines
some nodes are. All other nodes are distributed in rotation.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from protocol.ids import NodeName


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineLayout:
    """`machines[i]` has the nodes of machine i. A node is on one machine at most."""

    machines: tuple[tuple[NodeName, ...], ...]

    def index_of(self, node: NodeName) -> int | None:
        """Return the number of a node's machine; None if the node is on no machine."""
        for index, nodes in enumerate(self.machines):
            if node in nodes:
                return index
        return None


def spread_nodes(
    nodes: Sequence[NodeName], machines: int, placed: Sequence[Sequence[NodeName]] = ()
) -> MachineLayout:
    """Distribute nodes over machines: `placed[i]` go to machine i, all other nodes in rotation.

    `nodes` have brokers first, so that no two brokers share a machine while another machine has no
    broker. The other nodes continue the rotation where the brokers have ended it. For example, with
    three machines and four brokers, machine 0 gets broker-0 and broker-3, and machine 1 gets the
    first node after the brokers.
    Raises: ValueError if there is no machine.
    """
    if machines < 1:
        raise ValueError(f"expected at least 1 machine, got {machines}")
    chosen: list[list[NodeName]] = [[] for _ in range(machines)]
    for index, names in enumerate(placed):
        chosen[index].extend(names)
    placed_names = {name for names in chosen for name in names}
    free_nodes = [name for name in nodes if name not in placed_names]
    for turn, name in enumerate(free_nodes):
        chosen[turn % machines].append(name)
    # On each machine, the placed nodes and the other nodes are in the order of `nodes`.
    order = {name: index for index, name in enumerate(nodes)}
    return MachineLayout(
        machines=tuple(tuple(sorted(names, key=order.__getitem__)) for names in chosen)
    )
