"""The machines of a cluster: which nodes share one, computed in one place for every runtime.

Nodes on one machine die, stand still and are cut off together. Data flow: names of the nodes in
placing order, and what the experiment asks for -> `MachineLayout`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from protocol.ids import NodeName


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineLayout:
    """Which node is on which machine. Machine i is `machines[i]`; each node is on exactly one."""

    machines: tuple[tuple[NodeName, ...], ...]

    def index_of(self, node: NodeName) -> int | None:
        """Return the number of a node's machine, None for a node that is on none of them."""
        for index, nodes in enumerate(self.machines):
            if node in nodes:
                return index
        return None


def spread_nodes(
    nodes: Sequence[NodeName], machines: int, placed: Sequence[Sequence[NodeName]] = ()
) -> MachineLayout:
    """Put each node on a machine: the placed ones as asked, the others in turn.

    Shape: `nodes` are in placing order, brokers first, so that no two brokers share a machine
    while another has none. `placed[i]` are nodes that machine i has in any case. Brokers, servers
    and clients go on in one turn: machine 0 of three has broker-0, broker-3, the first client ...
    Raises: ValueError if there is no machine.
    """
    if machines < 1:
        raise ValueError("no machine to put nodes on")
    chosen: list[list[NodeName]] = [[] for _ in range(machines)]
    for index, names in enumerate(placed):
        chosen[index].extend(names)
    taken = {name for names in chosen for name in names}
    rest = [name for name in nodes if name not in taken]
    for turn, name in enumerate(rest):
        chosen[turn % machines].append(name)
    order = {name: place for place, name in enumerate(nodes)}
    return MachineLayout(
        machines=tuple(tuple(sorted(names, key=order.__getitem__)) for names in chosen)
    )
