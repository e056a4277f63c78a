"""What a fault is: whom it would hit in a moment, how it is done, and how it is undone."""

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
"""A broker that is still stopping so long after it should be back is killed, as service managers
do."""
BROKER_TARGETS = ("coordinator-of", "leader-of", "follower-of", "broker", "any-broker")
CONTROLLER_TARGETS = ("controller",)
ZOOKEEPER_TARGETS = ("zookeeper", "zookeeper-leader")
MEMBER_TARGETS = ("member", "leader-member-of")
MACHINE_TARGETS = ("machine", "machine-of")
KAFKA_CLIENT_TARGETS = ("kafka-client", "kafka-clients")
SET_TARGETS = ("brokers", "members", "clients", "zookeepers")


class GradualWork(Protocol):
    """What an act that goes on by itself still has to do."""

    async def step(self, runtime: Runtime, status: ClusterStatus) -> int | None:
        """Do what is due; return when to go on, in microseconds of the run's clock; None: never."""

    def progress(self) -> dict[str, object]:
        """Return how far it is, for the journal."""

    @property
    def hangs(self) -> bool:
        """Whether it has stopped without having ended: nothing but the end of the run undoes it."""


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
    """What faults act with.

    Units: `kill_at_us`, of an undoing, is when a node that is still stopping is killed.
    Shape: `lost` are the nodes that never start again, `joined` those that were started beyond the
    members that the experiment begins with; a fault that does either enters it. `under_way` is what
    acts that go on by themselves have left to do, by fault. `dead_machines` has, by fault, the
    nodes of a machine that is lost: another fault that would start one of them again leaves that to
    the fault of the machine. `rng` is the fault's own stream.
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
    """Whom a fault is about to hit, and then has hit.

    Shape: `nodes` is not empty; of links it is the `from` end, and `to_nodes` the other. `process`
    is the single process that the act was done to: None before it, and of other acts.
    """

    nodes: tuple[NodeName, ...]
    to_nodes: tuple[NodeName, ...] = ()
    moves: tuple[LeaderMove, ...] = ()
    blast_radius: BlastRadius
    process: HitNode | None = None
    detail: dict[str, object] = field(default_factory=dict)

    def with_detail(self, **more: object) -> "Aim":
        """Return the aim with what the act showed."""
        return replace(self, detail={**self.detail, **more})


class NoArgs(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A fault that takes no arguments."""


class FaultKind(ABC):
    """One fault. A momentary one is done when it returns: it has no duration and no undoing."""

    name: str
    doc: str
    targets: tuple[str, ...]
    """The roles (`chaos.targets`) that it can be aimed at, or that its ends can be."""
    args_type: type[msgspec.Struct] = NoArgs
    """Each field's string below it in the source says what it is."""
    momentary: bool = False
    spares_members: bool = True
    """Whether members that it does not hit stay in their groups: a rebalance would be needless."""
    is_gradual: bool = False
    """Whether it goes on by itself (`FaultTools.under_way`) until it is done; no duration."""
    has_ends: bool = False
    """Whether it is aimed with `from` and `to` instead of `target`."""

    def check(self, fault: FaultDefinition, experiment: Experiment) -> Iterator[Problem]:
        """Yield what is wrong with a fault whose targets exist and whose arguments have the shape.

        Shape: paths are relative to the fault, e.g. `args.disk`.
        """
        del fault, experiment
        yield from ()

    @abstractmethod
    def aim(self, planned: PlannedFault, situation: Situation) -> Aim | Miss:
        """Return whom it would hit now. Nothing is done yet."""

    @abstractmethod
    async def inject(self, planned: PlannedFault, aim: Aim, tools: FaultTools) -> Aim | Miss:
        """Do it and return what was hit; a Miss says why nothing could be done."""

    def must_wait(self, aim: Aim, status: ClusterStatus) -> bool:
        """Whether it could be undone now only by waiting: for a node that is still stopping."""
        del aim, status
        return False

    async def heal(self, planned: PlannedFault, aim: Aim, tools: FaultTools) -> str | None:
        """Undo it, however far it had come; return what was remarkable about that, if anything."""
        del planned, aim, tools
        return None
