"""Targets of faults that are machines: all nodes of one machine of the cluster.

The target names the machine by its number, or by a node on the machine. An experiment may place its
nodes on machines (`cluster.machines`). Then a fault can hit all nodes of a machine together, as it
happens when a real machine dies.
"""

from collections.abc import Callable

from chaos.experiment.structs import Experiment, machine_layout
from chaos.targets.base import Hit, Miss, Situation, TargetKind, Unknown

_NO_MACHINES = Unknown(
    message="the file names no machines",
    expected="`machines` in `cluster`: how many, or the nodes of each",
)
_SETS = ("brokers", "members", "clients", "zookeepers", "all-topic-partitions")
"""Names of targets that mean several nodes, so that they do not name a single machine."""


class MachineTarget(TargetKind):
    """One machine, named by its number."""

    name = "machine"
    syntax = "machine(<number>)"
    doc = "all nodes on the machine with this number; numbers count from 0 (`cluster.machines`)"

    def check(self, argument: str, experiment: Experiment) -> Unknown | None:
        """Return an error if the file has no machines, or if the machine has no nodes."""
        layout = machine_layout(experiment)
        if layout is None:
            return _NO_MACHINES
        count = len(layout.machines)
        # `isascii` is needed, because `isdecimal` alone also accepts the digits of other scripts.
        if not (argument.isascii() and argument.isdecimal() and int(argument) < count):
            return Unknown(
                message=f"there is no machine `{argument}`" if argument else "names no machine",
                expected=f"a number from 0 to {count - 1}",
            )
        if not layout.machines[int(argument)]:
            return Unknown(message=f"no node is on machine {argument}")
        return None

    def resolve(self, argument: str, situation: Situation) -> Hit | Miss:
        """Return the nodes of the machine."""
        return _nodes_on(int(argument), situation)


class MachineOf(TargetKind):
    """The machine of a node.

    The argument is itself a target, the inner target, which names the node. The functions that
    check and resolve any target are in `registry`, which imports this module. So this module cannot
    import `registry`, and `registry` passes the two functions to `__init__`.
    """

    name = "machine-of"
    syntax = "machine-of(<target>)"
    doc = (
        "all nodes on the machine of the node that the inner target means, e.g. "
        "`machine-of(coordinator-of(readers))`"
    )

    def __init__(
        self,
        *,
        check: Callable[[str, Experiment], Unknown | None],
        resolve: Callable[[str, Situation], Hit | Miss],
    ) -> None:
        self._check = check
        self._resolve = resolve

    def check(self, argument: str, experiment: Experiment) -> Unknown | None:
        """Return an error if the file has no machines, or if the inner target is no single node."""
        if machine_layout(experiment) is None:
            return _NO_MACHINES
        role = argument.partition("(")[0].strip()  # the role of the inner target
        # The inner target may not be a machine: a machine is no single node.
        if not argument or role in (*_SETS, MachineTarget.name, MachineOf.name):
            return Unknown(
                message=f"`{argument}` is not a single node" if argument else "names no node",
                expected="the target of a node, such as `machine-of(broker(0))`",
            )
        return self._check(argument, experiment)

    def resolve(self, argument: str, situation: Situation) -> Hit | Miss:
        """Return all nodes of the machine on which the node of the inner target is."""
        hit = self._resolve(argument, situation)
        if isinstance(hit, Miss):
            return hit
        node = hit.nodes[0]  # `check` accepts only inner targets with a single node
        layout = machine_layout(situation.experiment)
        index = None if layout is None else layout.index_of(node)
        if index is None:  # no machine of the layout has the node
            return Miss(reason=f"{node} is on no machine")
        on_machine = _nodes_on(index, situation)
        detail = {**hit.detail, **on_machine.detail, "machine_of": node}
        # For example, "has broker-0, which leads orders-3".
        node_text = f"{node}, which {hit.because}" if hit.because else node
        return Hit(
            nodes=on_machine.nodes,
            partitions=hit.partitions,  # those that the inner target names, if it names any
            because=f"has {node_text}",
            detail=detail,
        )


def _nodes_on(index: int, situation: Situation) -> Hit:
    """Return all nodes of the machine with the number `index`."""
    layout = machine_layout(situation.experiment)
    if layout is None:
        raise ValueError("the experiment names no machines")
    return Hit(nodes=layout.machines[index], detail={"machine": index})
