"""Faults of machines: all nodes of one machine die, stop, or are cut off from other machines.

A machine of an experiment is only a set of nodes, which the experiment's file defines
(`machine_layout`). These faults hit each node of the set at the same time. So they work in every
runtime, even if all nodes really run on one computer.

(When nodes run on a Ray cluster, a real machine may be lost. This is no fault of the plan, and
`cluster.ray.fleet` handles it.)
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Literal

import msgspec

from chaos.experiment.problems import Problem
from chaos.experiment.rules.semantic_checks import problem
from chaos.experiment.structs import (
    FIRST_CONTROLLER_ID,
    Experiment,
    FaultDefinition,
    machine_layout,
)
from chaos.faults.base import MACHINE_TARGETS, Aim, DeadMachine, FaultKind, FaultTools
from chaos.faults.processes import bring_back
from chaos.run.blast_radius import blast_radius_of
from chaos.run.link_table import cut_both_ways
from chaos.targets.base import Miss, Situation
from chaos.targets.registry import resolve_target, split_target
from cluster.runtime import NodeState, UnknownNode
from protocol.ids import NodeName, controller_name
from results_schema.manifest import PlannedFault

# States of nodes that have a process.
_ALIVE = frozenset({NodeState.UP, NodeState.STOPPING, NodeState.PAUSED})


class MachineLossArgs(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The disks after the loss."""

    disk: Literal["same", "empty"] = "same"
    """`same`: the machine comes back with its disks, without unflushed data; `empty`: the disks are
    lost for good, and the machine's nodes start again on empty ones"""


class MachineCutArgs(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The direction of the cut."""

    direction: Literal["both_ways", "one_way"] = "both_ways"
    """`one_way`: only frames that the machine sends are cut"""


class _MachineFault(FaultKind):
    """A fault that hits all nodes of one machine, as far as their states allow it."""

    targets = MACHINE_TARGETS
    hits = _ALIVE
    """States in which the fault can hit a node."""

    def aim(self, planned: PlannedFault, situation: Situation) -> Aim | Miss:
        """Return the nodes of the machine that the fault can hit now.

        The Aim's detail has the number of the machine (`machine`) and all nodes on it, including
        those that are down (`on_machine`).
        """
        hit = resolve_target(planned.target, situation)
        if isinstance(hit, Miss):
            return hit
        states = situation.status.nodes
        nodes = tuple(node for node in hit.nodes if states.get(node) in self.hits)
        if not nodes:
            # The message shows at most three nodes.
            shown = ", ".join(f"{node} is {situation.state_of(node)}" for node in hit.nodes[:3])
            return Miss(reason=f"no node of machine {hit.detail['machine']} is up: {shown}")
        return Aim(
            nodes=nodes,
            blast_radius=blast_radius_of(nodes, situation.experiment, situation.status),
            detail={**hit.detail, "on_machine": list(hit.nodes)},
        )


class MachineLoss(_MachineFault):
    """A machine is lost, with everything on it."""

    name = "machine_loss"
    doc = (
        "Loses a whole machine, as in a power failure: all of its nodes end at once (brokers, "
        "controller and clients), and their logs lose unflushed data. Their peers get no sign: "
        "connections stay open and silent. After `duration`, or when everything is healed, the "
        "nodes start again, on their disks or, with `disk: empty`, elsewhere on empty ones."
    )
    args_type = MachineLossArgs
    spares_members = False  # a machine may host members

    def check(self, fault: FaultDefinition, experiment: Experiment) -> Iterator[Problem]:
        """Report an empty disk for the only controller: no other node has the metadata."""
        layout = machine_layout(experiment)
        if fault.args.get("disk") != "empty" or layout is None or fault.target is None:
            return
        role, argument = split_target(fault.target) or ("", "")
        controller = controller_name(FIRST_CONTROLLER_ID)
        # True for `machine-of(controller)`, and for `machine(<number>)` of the controller's machine
        hits_controller = argument == "controller" or (
            role == "machine" and controller in layout.machines[int(argument)]
        )
        if hits_controller and experiment.cluster.controllers == 1:
            yield problem(
                "args.disk",
                f"the machine has {controller}, and the disk of the only controller holds the only "
                "copy of the cluster's metadata: nothing could bring the cluster back",
                expected="`same`, or another machine",
                found="`empty`",
            )

    def aim(self, planned: PlannedFault, situation: Situation) -> Aim | Miss:
        """Return the nodes that die, or a Miss if the only controller would lose its disk.

        `check` cannot report this for a target such as `machine-of(leader-of(orders-0))`, because
        only now it is known which node has the role.
        """
        aim = super().aim(planned, situation)
        if isinstance(aim, Miss) or planned.args.get("disk") != "empty":
            return aim
        if situation.experiment.cluster.controllers > 1:
            return aim
        controller = controller_name(FIRST_CONTROLLER_ID)
        if controller in _on_machine(aim):
            return Miss(
                reason=f"machine {aim.detail['machine']} has {controller}, whose disk holds the "
                "only copy of the cluster's metadata"
            )
        return aim

    async def inject(self, planned: PlannedFault, aim: Aim, tools: FaultTools) -> Aim | Miss:
        """Cut the machine's links, then end all of its nodes.

        The links are cut first, because other nodes must not see how the processes end. Normally
        the kernel closes the connections of a dead process, but a machine without power has no
        kernel. Links within the machine are not cut, because both of their ends die.
        """
        on_machine = _on_machine(aim)
        machine = DeadMachine(index=_index(aim), nodes=on_machine)
        # The machine is noted first, so that `heal` finds it even if a later step fails.
        tools.dead_machines[planned.fault_id] = machine
        status = await tools.runtime.status()
        others = tuple(name for name in status.nodes if name not in on_machine)
        await tools.links.add(
            planned.fault_id, cut_both_ways(planned.fault_id, nodes=on_machine, others=others)
        )
        for node in aim.nodes:
            # The node is noted before the power loss. So healing starts the node even if the power
            # loss fails.
            machine.returning[node] = None
            # A node that was stopping may just have ended by itself. The runtime then raises
            # UnknownNode.
            with suppress(UnknownNode):
                await tools.runtime.power_loss(node)
        return aim

    async def heal(self, planned: PlannedFault, aim: Aim, tools: FaultTools) -> str | None:
        """Start the nodes, then remove the cut, so that peers see their old connections reset.

        A node that is lost for good stays down. If another fault has lost the node's machine, too,
        the node starts when the other fault is healed.
        """
        del aim
        # None if the machine is not noted as lost (any more). Then no node has to start.
        machine = tools.dead_machines.get(planned.fault_id)
        empty_disk = planned.args.get("disk") == "empty"
        # The cut is removed even if a start fails, because it must not outlive its fault.
        try:
            for node in machine.returning if machine is not None else ():
                if node in tools.lost:
                    continue
                other_loss = tools.machine_lost_with(node, besides=planned.fault_id)
                if other_loss is not None:
                    other_loss.returning[node] = None
                    continue
                await bring_back(
                    node, tools.runtime, empty_disk=empty_disk, kill_at_us=tools.kill_at_us
                )
        finally:
            await tools.links.withdraw(planned.fault_id)
        tools.dead_machines.pop(planned.fault_id, None)
        return None


class MachinePause(_MachineFault):
    """All nodes of a machine stop, as with SIGSTOP, and continue later."""

    name = "machine_pause"
    doc = (
        "Stops all nodes of a machine at once, as a frozen virtual machine: their connections stay "
        "open and silent. After `duration` they go on: first their due timers fire, then waiting "
        "frames are delivered."
    )
    spares_members = False
    # PAUSED is missing here. Such a node was paused by another fault, which will resume it.
    hits = frozenset({NodeState.UP, NodeState.STOPPING})

    async def inject(self, planned: PlannedFault, aim: Aim, tools: FaultTools) -> Aim | Miss:
        """Stop the nodes, in the order of the aim."""
        del planned
        for node in aim.nodes:
            await tools.runtime.pause(node)
        return aim

    async def heal(self, planned: PlannedFault, aim: Aim, tools: FaultTools) -> str | None:
        """Resume the nodes that are still paused; another fault may have ended some nodes."""
        del planned
        states = (await tools.runtime.status()).nodes
        for node in aim.nodes:
            if states.get(node) is NodeState.PAUSED:
                await tools.runtime.resume(node)
        return None


class MachineCut(_MachineFault):
    """A machine's links to all other machines are cut."""

    name = "machine_cut"
    doc = (
        "Cuts the links between the nodes of a machine and all nodes of the other machines. Links "
        "within the machine stay. Bytes on open connections are held, new connections hang. At "
        "healing held bytes arrive in order; on a connection that one end has closed meanwhile, "
        "only the close arrives."
    )
    args_type = MachineCutArgs
    spares_members = False

    def aim(self, planned: PlannedFault, situation: Situation) -> Aim | Miss:
        """Return the nodes on the machine, and the nodes on all other machines."""
        aim = super().aim(planned, situation)
        if isinstance(aim, Miss):
            return aim
        on_machine = _on_machine(aim)
        others = tuple(name for name in situation.status.nodes if name not in on_machine)
        if not others:
            return Miss(reason="there is no other machine to be cut off from")
        return replace(aim, to_nodes=others, detail={**aim.detail, **planned.args})

    async def inject(self, planned: PlannedFault, aim: Aim, tools: FaultTools) -> Aim | Miss:
        """Add the rules. They also cut off nodes of the machine that start later."""
        rules = cut_both_ways(planned.fault_id, nodes=_on_machine(aim), others=aim.to_nodes)
        if planned.args.get("direction") == "one_way":
            rules = rules[:1]  # only the first rule, which is for frames from the machine
        await tools.links.add(planned.fault_id, rules)
        return aim

    async def heal(self, planned: PlannedFault, aim: Aim, tools: FaultTools) -> str | None:
        """Withdraw the fault's rules."""
        del aim
        await tools.links.withdraw(planned.fault_id)
        return None


def _index(aim: Aim) -> int:
    """Return the machine's number, from 0."""
    index = aim.detail["machine"]
    if not isinstance(index, int):
        raise TypeError(f"a machine's number is an int, got {index!r}")
    return index


def _on_machine(aim: Aim) -> tuple[NodeName, ...]:
    """Return every node on the machine, including nodes that are down or start later."""
    nodes = aim.detail["on_machine"]
    # The values of `detail` have the type object, so mypy needs the test.
    return tuple(NodeName(str(node)) for node in nodes) if isinstance(nodes, list) else ()
