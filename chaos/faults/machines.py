"""Faults of machines: all nodes on one die, stand still, or are cut off from the other machines.

A machine is lost on purpose here; one that a Ray cluster loses by itself is `cluster.ray.fleet`'s
business. These faults are made of the acts on single nodes that every runtime has.
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

_ALIVE = frozenset({NodeState.UP, NodeState.STOPPING, NodeState.PAUSED})


class MachineLossArgs(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What becomes of the disks."""

    disk: Literal["same", "empty"] = "same"
    """`same`: the machine comes back with its disks, without what was not flushed; `empty`: its
    disks are gone for good, and its nodes start again on empty ones"""


class MachineCutArgs(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which way."""

    direction: Literal["both_ways", "one_way"] = "both_ways"
    """`one_way`: only what the machine sends is cut"""


class _MachineFault(FaultKind):
    """A fault of all nodes on one machine; those that it finds alive are hit."""

    targets = MACHINE_TARGETS
    hits = _ALIVE
    """The states of the nodes that it can hit."""

    def aim(self, planned: PlannedFault, situation: Situation) -> Aim | Miss:
        """Return the nodes on the machine that are in a state in which they can be hit."""
        hit = resolve_target(planned.target, situation)
        if isinstance(hit, Miss):
            return hit
        states = situation.status.nodes
        nodes = tuple(node for node in hit.nodes if states.get(node) in self.hits)
        if not nodes:
            shown = ", ".join(f"{node} is {situation.state_of(node)}" for node in hit.nodes[:3])
            return Miss(reason=f"no node of machine {hit.detail['machine']} is up: {shown}")
        return Aim(
            nodes=nodes,
            blast_radius=blast_radius_of(nodes, situation.experiment, situation.status),
            detail={**hit.detail, "on_machine": list(hit.nodes)},
        )


class MachineLoss(_MachineFault):
    """A machine that is gone, with everything on it."""

    name = "machine_loss"
    doc = (
        "Loses a whole machine, as in a power failure: all of its nodes end at once, brokers, "
        "controller and clients, their logs lose what was not flushed, and nobody is told: their "
        "connections stay open and silent. After `duration`, or when everything is healed, its "
        "nodes start again, on their disks or, with `disk: empty`, elsewhere on empty ones."
    )
    args_type = MachineLossArgs
    spares_members = False

    def check(self, fault: FaultDefinition, experiment: Experiment) -> Iterator[Problem]:
        """Refuse to lose for good the disk of the only controller."""
        layout = machine_layout(experiment)
        if fault.args.get("disk") != "empty" or layout is None or fault.target is None:
            return
        role, argument = split_target(fault.target) or ("", "")
        controller = controller_name(FIRST_CONTROLLER_ID)
        is_its_machine = argument == "controller" or (
            role == "machine" and controller in layout.machines[int(argument)]
        )
        if is_its_machine and experiment.cluster.controllers == 1:
            yield problem(
                "args.disk",
                f"the machine has {controller}, and the disk of the only controller holds the only "
                "copy of the cluster's metadata: nothing could bring the cluster back",
                expected="`same`, or another machine",
                found="`empty`",
            )

    def aim(self, planned: PlannedFault, situation: Situation) -> Aim | Miss:
        """Return the nodes that die; a role may mean the machine of the only controller."""
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
        """Silence the machine, then end all of its nodes.

        The links are cut first: without power there is no kernel to tell the peers that a process
        is gone. Links between nodes of the machine are left: both ends are about to die.
        """
        on_machine = _on_machine(aim)
        machine = DeadMachine(index=_index(aim), nodes=on_machine)
        tools.dead_machines[planned.fault_id] = machine
        status = await tools.runtime.status()
        others = tuple(name for name in status.nodes if name not in on_machine)
        await tools.links.add(
            planned.fault_id, cut_both_ways(planned.fault_id, nodes=on_machine, others=others)
        )
        for node in aim.nodes:
            machine.returning[node] = None
            # A node that was stopping may have ended a moment before.
            with suppress(UnknownNode):
                await tools.runtime.power_loss(node)
        return aim

    async def heal(self, planned: PlannedFault, aim: Aim, tools: FaultTools) -> str | None:
        """Start the nodes again; then the machine answers what still knows their former lives.

        A node that another lost machine or `node_loss` has taken stays away.
        """
        del aim
        machine = tools.dead_machines.get(planned.fault_id)
        empty_disk = planned.args.get("disk") == "empty"
        try:
            for node in machine.returning if machine is not None else ():
                if node in tools.lost:
                    continue
                again = tools.machine_lost_with(node, besides=planned.fault_id)
                if again is not None:
                    again.returning[node] = None
                    continue
                await bring_back(
                    node, tools.runtime, empty_disk=empty_disk, kill_at_us=tools.kill_at_us
                )
        finally:
            await tools.links.withdraw(planned.fault_id)
        tools.dead_machines.pop(planned.fault_id, None)
        return None


class MachinePause(_MachineFault):
    """A machine that stands still."""

    name = "machine_pause"
    doc = (
        "Stops all nodes of a machine at once, as a frozen virtual machine: their connections stay "
        "open and silent. After `duration` they go on: first their due timers fire, then what "
        "waited is delivered."
    )
    spares_members = False
    hits = frozenset({NodeState.UP, NodeState.STOPPING})

    async def inject(self, planned: PlannedFault, aim: Aim, tools: FaultTools) -> Aim | Miss:
        """Stop the nodes, servers first."""
        del planned
        for node in aim.nodes:
            await tools.runtime.pause(node)
        return aim

    async def heal(self, planned: PlannedFault, aim: Aim, tools: FaultTools) -> str | None:
        """Let those go on that are still paused: another fault may have ended one meanwhile."""
        del planned
        states = (await tools.runtime.status()).nodes
        for node in aim.nodes:
            if states.get(node) is NodeState.PAUSED:
                await tools.runtime.resume(node)
        return None


class MachineCut(_MachineFault):
    """A machine that the others do not reach."""

    name = "machine_cut"
    doc = (
        "Cuts the links between the nodes of a machine and all nodes of the others; on the machine "
        "they go on reaching each other. Bytes on open connections are held, new connections hang. "
        "At healing what was held arrives in order, but on connections that an end has closed "
        "meanwhile only their end does."
    )
    args_type = MachineCutArgs
    spares_members = False

    def aim(self, planned: PlannedFault, situation: Situation) -> Aim | Miss:
        """Return the nodes on the machine, and those on the others."""
        aim = super().aim(planned, situation)
        if isinstance(aim, Miss):
            return aim
        on_machine = _on_machine(aim)
        others = tuple(name for name in situation.status.nodes if name not in on_machine)
        if not others:
            return Miss(reason="there is no other machine to be cut off from")
        return replace(aim, to_nodes=others, detail={**aim.detail, **planned.args})

    async def inject(self, planned: PlannedFault, aim: Aim, tools: FaultTools) -> Aim | Miss:
        """Add the rules. Nodes of the machine that start later are cut off as well."""
        rules = cut_both_ways(planned.fault_id, nodes=_on_machine(aim), others=aim.to_nodes)
        if planned.args.get("direction") == "one_way":
            rules = rules[:1]
        await tools.links.add(planned.fault_id, rules)
        return aim

    async def heal(self, planned: PlannedFault, aim: Aim, tools: FaultTools) -> str | None:
        """Withdraw the fault's rules."""
        del aim
        await tools.links.withdraw(planned.fault_id)
        return None


def _index(aim: Aim) -> int:
    index = aim.detail["machine"]
    if not isinstance(index, int):
        raise TypeError(f"a machine's number is an int, got {index!r}")
    return index


def _on_machine(aim: Aim) -> tuple[NodeName, ...]:
    """Return every node on the machine, those included that are down or start later."""
    nodes = aim.detail["on_machine"]
    return tuple(NodeName(str(node)) for node in nodes) if isinstance(nodes, list) else ()
