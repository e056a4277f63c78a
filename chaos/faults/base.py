"""The interface of faults: what a fault would hit now, how it is injected, and how it is undone."""

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
"""A broker that is still stopping this long after its fault's end is killed, as by a service
manager."""
BROKER_TARGETS = ("coordinator-of", "leader-of", "follower-of", "broker", "any-broker")
CONTROLLER_TARGETS = ("controller",)
ZOOKEEPER_TARGETS = ("zookeeper", "zookeeper-leader")
MEMBER_TARGETS = ("member", "leader-member-of")
MACHINE_TARGETS = ("machine", "machine-of")
KAFKA_CLIENT_TARGETS = ("kafka-client", "kafka-clients")
SET_TARGETS = ("brokers", "members", "clients", "zookeepers")


class GradualWork(Protocol):
    """The remaining work of a gradual fault."""

    async def step(self, runtime: Runtime, status: ClusterStatus) -> int | None:
        """Do what is due; return the time of the next step, in microseconds of the run's clock.

        None: there is no next step.
        """

    def progress(self) -> dict[str, object]:
        """Return the progress, for the journal."""

    @property
    def hangs(self) -> bool:
        """Whether it stopped before its end; only the end of the run undoes this."""


@dataclass(slots=True, kw_only=True)
class DeadMachine:
    """A machine that is lost, and the nodes on it.

    Shape: `returning` are those of `nodes` that start again with the machine: the nodes that died
    with it, and those that another fault had down and would have started meanwhile.
    """

    index: int
    nodes: tuple[NodeName, ...]
    returning: dict[NodeName, None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultTools:
    """The tools and shared records of faults.

    Units: `kill_at_us` is the time after which healing kills a node that is still stopping.
    Shape: `lost` are the nodes that never start again; `joined` are started members that the
    experiment did not begin with; faults that lose or add nodes enter them here. `under_way` has
    the remaining work of gradual faults, by fault id. `dead_machines` has the lost machines, by
    fault id: the fault of a machine starts its nodes again, and other faults leave them to it.
    `rng` is the fault's own stream.
    """

    runtime: Runtime
    links: LinkTable
    rng: random.Random = field(default_factory=random.Random)
    kill_at_us: int = 0
    lost: dict[NodeName, None] = field(default_factory=dict)
    joined: dict[NodeName, None] = field(default_factory=dict)
    under_way: dict[str, GradualWork] = field(default_factory=dict)
    dead_machines: dict[str, DeadMachine] = field(default_factory=dict)

    def machine_lost_with(self, node: NodeName, *, besides: str = "") -> DeadMachine | None:
        """Return the lost machine that a node is on, but for what fault `besides` has lost."""
        for fault_id, machine in self.dead_machines.items():
            if fault_id != besides and node in machine.nodes:
                return machine
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Aim:
    """The nodes that a fault will hit, or has hit.

    Shape: `nodes` is not empty; for links it is the `from` end, and `to_nodes` the other end.
    `process` is the one process that was hit: None before the injection, and for other faults.
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
    """The roles (`chaos.targets`) allowed for its target, or for both its ends."""
    args_type: type[msgspec.Struct] = NoArgs
    """The string below each field in the source describes it."""
    momentary: bool = False
    spares_members: bool = True
    """Whether members stay in their groups if they are not hit: a rebalance would be needless."""
    is_gradual: bool = False
    """Whether it continues by itself (`FaultTools.under_way`) until it is done; no duration."""
    has_ends: bool = False
    """Whether its definition has `from` and `to` instead of `target`."""

    def check(self, fault: FaultDefinition, experiment: Experiment) -> Iterator[Problem]:
        """Yield the problems of a definition with existing targets and well-shaped arguments.

        Shape: paths are relative to the fault, e.g. `args.disk`.
        """
        del fault, experiment
        yield from ()

    @abstractmethod
    def aim(self, planned: PlannedFault, situation: Situation) -> Aim | Miss:
        """Return what the fault would hit now; nothing is changed."""

    @abstractmethod
    async def inject(self, planned: PlannedFault, aim: Aim, tools: FaultTools) -> Aim | Miss:
        """Inject the fault; return what was hit, or a Miss if nothing could be done."""

    def must_wait(self, aim: Aim, status: ClusterStatus) -> bool:
        """Whether healing would now have to wait for a node that is still stopping."""
        del aim, status
        return False

    async def heal(self, planned: PlannedFault, aim: Aim, tools: FaultTools) -> str | None:
        """Undo the fault, even if partly injected; return a note, or None."""
        del planned, aim, tools
        return None
