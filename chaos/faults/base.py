"""The interface of faults: aim, inject, heal; and the tools that faults share.

The plan of a run says at which times which faults happen, for example a crash of
`leader-of(orders-0)` at 60 s for 20 s. The plan does not say which broker leads orders-0, because
this is known only at 60 s. The run carries such a fault out in three steps:

1. `aim` finds the nodes that the fault will hit, by the cluster's status at this moment (the
   `situation`), and changes nothing. The result is an Aim. If there is no node to hit, the result
   is a Miss with the reason, such as `broker-1, which leads orders-0, is down`.
2. `inject` does the harm.
3. `heal` undoes the harm, at 80 s.

The run writes what happened to each fault into its journal.
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
"""Time after the planned end of a fault at which a broker that is still stopping is killed.

A service manager does the same with a process that does not stop.
"""

# The target of a fault is a role with an argument, such as `leader-of(orders-0)`. The tuples below
# have all roles, by the sort of node that has the role. Roles of SET_TARGETS stand for several
# nodes. Each kind of fault lists the roles that it accepts.
BROKER_TARGETS = ("coordinator-of", "leader-of", "follower-of", "broker", "any-broker")
CONTROLLER_TARGETS = ("controller",)
ZOOKEEPER_TARGETS = ("zookeeper", "zookeeper-leader")
MEMBER_TARGETS = ("member", "leader-member-of")
MACHINE_TARGETS = ("machine", "machine-of")
KAFKA_CLIENT_TARGETS = ("kafka-client", "kafka-clients")
SET_TARGETS = ("brokers", "members", "clients", "zookeepers")


class GradualWork(Protocol):
    """The work of a gradual fault, such as a rollout, which goes on for a while after `inject`.

    The run calls `step` again and again.
    """

    async def step(self, runtime: Runtime, status: ClusterStatus) -> int | None:
        """Take one step; return the time of the next step, or None after the last step.

        The time is in microseconds of the run's clock.
        """

    def progress(self) -> dict[str, object]:
        """Return what was done so far, for the journal."""

    @property
    def hangs(self) -> bool:
        """True if the work got stuck. The fault is then healed when the run heals all faults."""


@dataclass(slots=True, kw_only=True)
class DeadMachine:
    """A machine that a fault has ended, and the nodes on it."""

    index: int
    nodes: tuple[NodeName, ...]
    returning: dict[NodeName, None] = field(default_factory=dict)
    """Nodes that start again when the machine comes back, used as an ordered set.

    These are the nodes that died with the machine. Another fault may have killed a node before. If
    the other fault is healed while the machine is lost, its `heal` cannot start this node, and adds
    the node here.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultTools:
    """What a fault needs to act on the cluster, and the records that all faults of a run share."""

    runtime: Runtime
    links: LinkTable
    rng: random.Random = field(default_factory=random.Random)
    """The random numbers of this fault."""
    kill_at_us: int = 0
    """Time on the run's clock at which `heal` kills a node that is still stopping."""
    lost: dict[NodeName, None] = field(default_factory=dict)
    """Nodes that must not be started again. A fault that ends a node for good adds it here."""
    deleted_topics: dict[str, None] = field(default_factory=dict)
    """Topics that a fault has deleted, or may have deleted."""
    joined: dict[NodeName, None] = field(default_factory=dict)
    """Members that a fault has added to those that the experiment names."""
    under_way: dict[str, GradualWork] = field(default_factory=dict)
    """The work of gradual faults, by fault id."""
    dead_machines: dict[str, DeadMachine] = field(default_factory=dict)
    """Lost machines, by the id of the fault that will bring them back."""

    def machine_lost_with(self, node: NodeName, *, besides: str = "") -> DeadMachine | None:
        """Return the lost machine that a node is on; None if the node is on no lost machine.

        `besides` is the id of a fault whose own machine is left out of the search.
        """
        for fault_id, machine in self.dead_machines.items():
            if fault_id != besides and node in machine.nodes:
                return machine
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Aim:
    """What a fault will hit, or has hit."""

    nodes: tuple[NodeName, ...]
    """The nodes, at least one. For a fault of links these are the nodes of the `from` end."""
    to_nodes: tuple[NodeName, ...] = ()
    """For a fault of links, the nodes of the `to` end."""
    moves: tuple[LeaderMove, ...] = ()
    """For a fault of leadership, the partitions with their old and new leaders."""
    blast_radius: BlastRadius
    """The groups and partitions that the fault affects."""
    process: HitNode | None = None
    """The process that was hit, if the fault hits exactly one. None before the injection."""
    detail: dict[str, object] = field(default_factory=dict)
    """Facts for the journal, such as the reason why the nodes have the target's role."""

    def with_detail(self, **more: object) -> "Aim":
        """Return the aim with additional detail."""
        return replace(self, detail={**self.detail, **more})


class NoArgs(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A fault that takes no arguments."""


class FaultKind(ABC):
    """One kind of fault, such as `crash`. The subclasses' `name` and `doc` appear in the docs."""

    name: str
    doc: str
    targets: tuple[str, ...]
    """Roles that the target of the fault may have (see `chaos.targets`)."""
    args_type: type[msgspec.Struct] = NoArgs
    """The arguments. The generated pages show the docstring of each field of this struct."""
    momentary: bool = False
    """True if the fault is done when it is injected. Then it has no duration and is not healed."""
    spares_members: bool = True
    """True if the fault gives members no reason to rebalance, except members that it hits itself.

    If a group rebalances all the same, the checker `needless_rebalance` reports this.
    """
    is_gradual: bool = False
    """True if the fault works in steps (`FaultTools.under_way`), and ends with the last step.

    A gradual fault has no duration, just as a momentary fault.
    """
    has_ends: bool = False
    """True if the fault is about links, and so has two targets, `from` and `to`."""

    def check(self, fault: FaultDefinition, experiment: Experiment) -> Iterator[Problem]:
        """Yield what is wrong with a fault in an experiment's file, by the rules of this kind.

        The caller has already checked that the targets exist, and that the arguments have the shape
        of `args_type`. The path of a problem is relative to the fault, such as `args.disk`.
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
        """Return True if `heal` would have to wait for a node that is still stopping.

        The run then does other things first, and heals the fault later.
        """
        del aim, status
        return False

    async def heal(self, planned: PlannedFault, aim: Aim, tools: FaultTools) -> str | None:
        """Undo the fault; return a note for the journal, or None.

        This must also work if `inject` failed halfway.
        """
        del planned, aim, tools
        return None
