"""Faults of processes: kill, loss of power, shutdown, and pause.

Each of these faults hits the process of one node. The target is a role, such as
`coordinator-of(readers)`, and `aim` finds the node that has this role now. `inject` kills, stops or
pauses the process, and `heal` starts it again or resumes it.

Healing may find the node in any state, because several faults may overlap. The node may be up,
paused or down. It may also be stopping: a broker that was asked to stop first moves its leaderships
away, which takes a while.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Literal

import msgspec

from chaos.experiment.problems import Problem
from chaos.experiment.rules.semantic_checks import problem
from chaos.experiment.structs import Experiment, FaultDefinition
from chaos.faults.base import (
    BROKER_TARGETS,
    CONTROLLER_TARGETS,
    MEMBER_TARGETS,
    SHUTDOWN_LIMIT_US,
    ZOOKEEPER_TARGETS,
    Aim,
    FaultKind,
    FaultTools,
)
from chaos.run.blast_radius import blast_radius_of
from chaos.run.link_table import cut_both_ways
from chaos.targets.base import Miss, Situation
from chaos.targets.registry import resolve_target, split_target
from cluster.runtime import ClusterStatus, NodeState, Runtime
from protocol.ids import NodeName
from results_schema.manifest import PlannedFault

_POLL_US = 250_000
"""Interval of the status queries while a node is stopping."""


class DiskArgs(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The disk with which the node starts again."""

    disk: Literal["same", "empty"] = "same"
    """the node starts again on its own disk (`same`), or on an empty one (`empty`)"""


class ProcessFault(FaultKind):
    """A fault of one process; its Aim has one node. Healing starts or resumes the process."""

    def aim(self, planned: PlannedFault, situation: Situation) -> Aim | Miss:
        """Return the node that has the target's role, if it is up."""
        hit = resolve_target(planned.target, situation)
        if isinstance(hit, Miss):
            return hit
        node = hit.nodes[0]
        if not situation.is_up(node):
            who = f"{node}, which {hit.because}," if hit.because else node
            return Miss(reason=f"{who} is {situation.state_of(node)}")
        return Aim(
            nodes=(node,),
            blast_radius=blast_radius_of((node,), situation.experiment, situation.status),
            detail=hit.detail,
        )

    async def heal(self, planned: PlannedFault, aim: Aim, tools: FaultTools) -> str | None:
        """Start or resume the node from any state, unless the node or its machine is lost."""
        node = aim.nodes[0]
        if node in tools.lost:  # a NodeLoss or a rollout keeps the node down
            return None
        machine = tools.machine_lost_with(node)
        if machine is not None:
            # Meanwhile another fault has ended the whole machine. When the other fault is healed,
            # it will start this node together with all other nodes of the machine.
            machine.returning[node] = None
            return f"machine {machine.index} is lost: {node} starts again with it"
        empty_disk = planned.args.get("disk") == "empty"
        return await bring_back(
            node, tools.runtime, empty_disk=empty_disk, kill_at_us=tools.kill_at_us
        )

    def must_wait(self, aim: Aim, status: ClusterStatus) -> bool:
        """Return True while the node is stopping, because only a node that is down can start."""
        return status.nodes.get(aim.nodes[0]) is NodeState.STOPPING


class _Kill(ProcessFault):
    """A fault that ends a process at once. `heal` starts it on its own disk or on an empty one."""

    args_type = DiskArgs

    def check(self, fault: FaultDefinition, experiment: Experiment) -> Iterator[Problem]:
        """Report an empty disk for the only controller, or for a member, which has no disk."""
        if fault.args.get("disk") != "empty" or fault.target is None:
            return
        # If the target is malformed, the role is "", and nothing is yielded here, because the check
        # of targets reports the malformed target.
        role, _ = split_target(fault.target) or ("", "")
        if role in CONTROLLER_TARGETS and experiment.cluster.controllers == 1:
            yield problem(
                "args.disk",
                "the disk of the only controller holds the only copy of the cluster's metadata: "
                "nothing could bring the cluster back",
                expected="`same`",
                found="`empty`",
            )
        if role in MEMBER_TARGETS:
            yield problem("args.disk", "a member has no disk to lose", found="`empty`")


class Crash(_Kill):
    """A process is killed, as with `kill -9`."""

    name = "crash"
    doc = (
        "Kills the process as `kill -9` does: its connections end at once, its disk keeps what was "
        "appended. It is started again after `duration`, or when everything is healed. A member "
        "that shares its process with others (no `isolate`) dies alone."
    )
    targets = (*BROKER_TARGETS, *CONTROLLER_TARGETS, *MEMBER_TARGETS, *ZOOKEEPER_TARGETS)

    async def inject(self, planned: PlannedFault, aim: Aim, tools: FaultTools) -> Aim | Miss:
        """Kill the node's process."""
        del planned
        return replace(aim, process=await tools.runtime.crash(aim.nodes[0]))


class PowerLoss(_Kill):
    """The machine loses power."""

    name = "power_loss"
    doc = (
        "Cuts the power: the process ends, and its logs lose unflushed data. Its peers get no "
        "sign: connections stay open and silent until they time out, or until the machine is back "
        "and resets them. The process is started again after `duration`, or when everything is "
        "healed."
    )
    targets = (*BROKER_TARGETS, *CONTROLLER_TARGETS, *ZOOKEEPER_TARGETS)

    async def inject(self, planned: PlannedFault, aim: Aim, tools: FaultTools) -> Aim | Miss:
        """Cut the links of the node, then end its process.

        When a process ends, its kernel closes the connections, and the peers notice. The runtime
        does the same. But a machine without power sends nothing. So the links are cut first. Until
        healing, the cut holds back the messages that close the connections.
        """
        node = aim.nodes[0]
        others = tuple(name for name in (await tools.runtime.status()).nodes if name != node)
        await tools.links.add(
            planned.fault_id, cut_both_ways(planned.fault_id, nodes=(node,), others=others)
        )
        return replace(aim, process=await tools.runtime.power_loss(node))

    async def heal(self, planned: PlannedFault, aim: Aim, tools: FaultTools) -> str | None:
        """Start the node, then remove the cut, so that peers see their old connections end."""
        # The cut is removed even if the start fails, because it must not outlive its fault.
        try:
            return await super().heal(planned, aim, tools)
        finally:
            await tools.links.withdraw(planned.fault_id)


class ControlledShutdown(ProcessFault):
    """A broker stops in order, as after SIGTERM."""

    name = "controlled_shutdown"
    doc = (
        "Asks the broker to stop as SIGTERM does: its leaderships move first, then the process "
        "ends. It is started again after `duration`, or when everything is healed; if it is still "
        f"stopping {SHUTDOWN_LIMIT_US // 1_000_000} s after that, it is killed first."
    )
    targets = BROKER_TARGETS

    async def inject(self, planned: PlannedFault, aim: Aim, tools: FaultTools) -> Aim | Miss:
        """Ask the node to stop."""
        del planned
        return replace(aim, process=await tools.runtime.shut_down(aim.nodes[0]))

    def must_wait(self, aim: Aim, status: ClusterStatus) -> bool:
        """Return True while the node is stopping, even if its machine was paused meanwhile."""
        return status.nodes.get(aim.nodes[0]) in (NodeState.STOPPING, NodeState.PAUSED)


class NodeLoss(ProcessFault):
    """A node is lost for good."""

    name = "node_loss"
    doc = (
        "Kills the process as `kill -9` does, and nothing starts it again, not even at the end: "
        "the cluster, or the group, is smaller from then on. Momentary."
    )
    targets = (*BROKER_TARGETS, *MEMBER_TARGETS)
    momentary = True

    def check(self, fault: FaultDefinition, experiment: Experiment) -> Iterator[Problem]:
        """Report a broker as the target if the cluster has only one."""
        role, _ = split_target(fault.target or "") or ("", "")
        if role in BROKER_TARGETS and experiment.cluster.brokers == 1:
            yield problem(
                "target",
                "is the only broker: nothing would be left",
                expected="a cluster of at least 2 brokers, or a member",
                found=f"`{fault.target}`",
            )

    async def inject(self, planned: PlannedFault, aim: Aim, tools: FaultTools) -> Aim | Miss:
        """Kill the node's process; `lost` keeps every other fault from starting it again."""
        del planned
        tools.lost[aim.nodes[0]] = None
        return replace(aim, process=await tools.runtime.crash(aim.nodes[0]))


class Pause(ProcessFault):
    """A process stops, as with SIGSTOP, and continues later."""

    name = "pause"
    doc = (
        "Stops the process as SIGSTOP does: its connections stay open and silent. After `duration` "
        "it goes on: first its due timers fire, then waiting frames are delivered. A member that "
        "shares its process with others (no `isolate`) is stopped alone."
    )
    targets = (*BROKER_TARGETS, *CONTROLLER_TARGETS, *MEMBER_TARGETS, *ZOOKEEPER_TARGETS)

    async def inject(self, planned: PlannedFault, aim: Aim, tools: FaultTools) -> Aim | Miss:
        """Stop the node."""
        del planned
        return replace(aim, process=await tools.runtime.pause(aim.nodes[0]))


async def bring_back(
    node: NodeName, runtime: Runtime, *, empty_disk: bool = False, kill_at_us: int
) -> str | None:
    """Make sure that a node is up: resume it, start it again, or leave it as it is.

    If the node is still stopping, its end is awaited, but only until `kill_at_us` (in microseconds
    of the run's clock). At this time the node is killed. Return a sentence for the run's journal if
    the node was killed, otherwise None.
    """
    state = (await runtime.status()).nodes.get(node)
    note = None
    if state is NodeState.PAUSED:
        await runtime.resume(node)
        # If the node was stopping when it was paused, it is stopping again now.
        state = (await runtime.status()).nodes.get(node)
    if state is NodeState.STOPPING:
        note = await _end_shutdown(node, runtime, kill_at_us)
        state = NodeState.DOWN
    if state is NodeState.DOWN:
        await runtime.restart(node, empty_disk=empty_disk)
    return note


async def _end_shutdown(node: NodeName, runtime: Runtime, kill_at_us: int) -> str | None:
    """Wait until a stopping node is down; kill the node at `kill_at_us`.

    Return a sentence for the run's journal if the node was killed, otherwise None.
    """
    while runtime.now_us() < kill_at_us:
        await runtime.sleep(_POLL_US)
        if (await runtime.status()).nodes.get(node) is NodeState.DOWN:
            return None
    await runtime.crash(node)
    return f"{node} was still stopping {SHUTDOWN_LIMIT_US // 1_000_000} s later, and was killed"
