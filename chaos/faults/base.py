"""The interface of faults: aim, inject, heal; and the tools that faults share.

A planned fault has a target, such as `coordinator-of(readers)`: a role and its argument. When the
fault's time has come, it is aimed: `aim` finds the nodes that have the role now. It reads the
`situation`, the cluster's status at this moment. The result is an Aim, or a Miss with the reason
why there is no such node. Then the fault is injected, and later healed, which undoes it.

The blast radius is the groups and partitions that a fault affects. A node that is lost for good
never starts again. The journal is the list of all faults with their outcomes.
"""

import random
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Protocol

import msgspec

from chaos.experiment.problems import Problem
from chaos.experiment.structs import Experiment, FaultDefinition
from chaos.run.link_table import LinkTable
from chaos.targets.base import Miss, Situation
from cluster.runtime import ClusterStatus, HitNode, Runtime
from protocol.ids import NodeName
from results_schema.journal import BlastRadius, LeaderMove
from results_schema.manifest import PlannedFault

SHUTDOWN_LIMIT_US = 30_000_000
"""Time from the end of a fault until a broker that is still stopping is killed.

A service manager does the same with a process that does not stop.
"""
# Roles of targets, by the nodes that they stand for. Each fault lists the roles that it accepts.
BROKER_TARGETS = ("coordinator-of", "leader-of", "follower-of", "broker", "any-broker")
CONTROLLER_TARGETS = ("controller",)
ZOOKEEPER_TARGETS = ("zookeeper", "zookeeper-leader")
MEMBER_TARGETS = ("member", "leader-member-of")
MACHINE_TARGETS = ("machine", "machine-of")
KAFKA_CLIENT_TARGETS = ("kafka-client", "kafka-clients")
SET_TARGETS = ("brokers", "members", "clients", "zookeepers")


class GradualWork(Protocol):
    """The remaining work of a gradual fault, which goes on in steps after its injection."""

    async def step(self, runtime: Runtime, status: ClusterStatus) -> int | None:
        """Take one step; return the time of the next step, or None after the last step.

        Units: microseconds of the run's clock.
        """

    def progress(self) -> dict[str, object]:
        """Return the progress, for the journal."""

    @property
    def hangs(self) -> bool:
        """True if the work stopped before its end. Only the end of the run then heals the fault."""


@dataclass(slots=True, kw_only=True)
class DeadMachine:
    """A machine that a fault has ended, and the nodes on it.

    `returning` has the nodes that start again with the machine. These are
    - nodes that died with the machine;
    - nodes that another fault had ended before the loss. When that fault was healed, they stayed
      down, because their machine was lost.
    """

    index: int
    nodes: tuple[NodeName, ...]
    returning: dict[NodeName, None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultTools:
    """The tools of faults, and the records that all faults of a run share.

    - `rng`: the random stream of this fault.
    - `kill_at_us`: the time after which healing kills a node that is still stopping.
    - `lost`: nodes that never start again. A fault that loses a node for good enters it here.
    - `deleted_topics`: topics that a fault has deleted, or may have deleted.
    - `joined`: members that a fault added to those of the experiment.
    - `under_way`: the remaining work of gradual faults, by fault id.
    - `dead_machines`: lost machines, by fault id. Only the fault that lost a machine starts its
      nodes again.
    """

    runtime: Runtime
    links: LinkTable
    rng: random.Random = field(default_factory=random.Random)
    kill_at_us: int = 0
    lost: dict[NodeName, None] = field(default_factory=dict)
    deleted_topics: dict[str, None] = field(default_factory=dict)
    joined: dict[NodeName, None] = field(default_factory=dict)
    under_way: dict[str, GradualWork] = field(default_factory=dict)
    dead_machines: dict[str, DeadMachine] = field(default_factory=dict)

    def machine_lost_with(self, node: NodeName, *, besides: str = "") -> DeadMachine | None:
        """Return the lost machine that a node is on, or None.

        `besides` is the id of a fault. The machine that this fault has lost is ignored.
        """
        for fault_id, machine in self.dead_machines.items():
            if fault_id != besides and node in machine.nodes:
                return machine
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Aim:
    """The nodes that a fault will hit, or has hit.

    - `nodes`: the nodes, at least one. For a fault of links these are the nodes of the `from` end.
    - `to_nodes`: for a fault of links, the nodes of the other end.
    - `moves`: for a fault of leadership, the leaderships that move.
    - `process`: the process that was hit. It is None before the injection, and for every fault that
      does not hit exactly one process.
    - `detail`: facts for the journal, such as the reason why the nodes have the target's role.
    """

    nodes: tuple[NodeName, ...]
    to_nodes: tuple[NodeName, ...] = ()
    moves: tuple[LeaderMove, ...] = ()
    blast_radius: BlastRadius
    process: HitNode | None = None
    detail: dict[str, object] = field(default_factory=dict)

    def with_detail(self, **more: object) -> "Aim":
        """Return the aim with additional detail."""
        return replace(self, detail={**self.detail, **more})


class NoArgs(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A fault that takes no arguments."""


class FaultKind(ABC):
    """One kind of fault. A momentary fault has no duration and is never undone."""

    name: str
    doc: str
    targets: tuple[str, ...]
    """The roles (`chaos.targets`) that the fault's target may have, or the targets of its ends."""
    args_type: type[msgspec.Struct] = NoArgs
    """The arguments. The generated pages show the string below each field of the struct."""
    momentary: bool = False
    spares_members: bool = True
    """True if members that the fault does not hit have no reason to leave their group.

    A checker then reports a rebalance (all members rejoin, and get new partitions) as needless.
    """
    is_gradual: bool = False
    """True if the fault has no duration: its work (`FaultTools.under_way`) takes its own time."""
    has_ends: bool = False
    """True if the definition has `from` and `to` instead of `target`."""

    def check(self, fault: FaultDefinition, experiment: Experiment) -> Iterator[Problem]:
        """Yield the problems that only this kind of fault can have.

        The caller has checked before that the targets exist, and that the arguments have the shape
        of `args_type`. The paths of the problems are relative to the fault, e.g. `args.disk`.
        """
        del fault, experiment
        yield from ()

    @abstractmethod
    def aim(self, planned: PlannedFault, situation: Situation) -> Aim | Miss:
        """Return the nodes that the fault would hit now, or a Miss; change nothing."""

    @abstractmethod
    async def inject(self, planned: PlannedFault, aim: Aim, tools: FaultTools) -> Aim | Miss:
        """Inject the fault; return the nodes that were hit, or a Miss if nothing could be done."""

    def must_wait(self, aim: Aim, status: ClusterStatus) -> bool:
        """Return True if healing would now have to wait for a node that is still stopping."""
        del aim, status
        return False

    async def heal(self, planned: PlannedFault, aim: Aim, tools: FaultTools) -> str | None:
        """Undo the fault, even if it was injected only in part; return a note for the journal."""
        del planned, aim, tools
        return None
