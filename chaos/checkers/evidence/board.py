"""Evidence: the facts of one run that several checkers and coverage marks need, each kept once.

A checker judges one promise of the cluster. A coverage mark notes that a rare situation occurred.
Each row of the trace is processed in this order:

1. coverage marks read the facts as they were before the row;
2. CheckSuite feeds the row to the Evidence;
3. the checkers judge the row by the facts after it.

Evidence consists of parts, one per fact. Each part is an attribute. The first read of the attribute
makes the part, which collects rows from then on. So each checker reads the attributes that it needs
in its constructor, before the first row. A part that no checker reads costs nothing. A fact that
only one checker needs is no part of Evidence: the checker itself keeps it. For example, the checker
of durable commits keeps its registers of commits.
"""

from collections.abc import Callable
from functools import cached_property
from typing import Protocol, TypeVar

from chaos.checkers.context import CheckContext
from chaos.checkers.evidence.coordinators import (
    COORDINATOR_KINDS,
    EXPIRY_KINDS,
    CoordinatorView,
    Expiry,
)
from chaos.checkers.evidence.faults_in_force import FAULT_KINDS, FaultsInForce
from chaos.checkers.evidence.fenced_members import FENCING_KINDS, FencedMembers
from chaos.checkers.evidence.half_loads import HALF_LOAD_KINDS, HalfLoads
from chaos.checkers.evidence.living_members import PRESENCE_KINDS, Presence
from chaos.checkers.evidence.lost_data import LOSS_KINDS, LostData
from chaos.checkers.evidence.owners import OWNER_KINDS, Owners
from chaos.checkers.evidence.replicas import REPLICA_KINDS, Replicas
from chaos.checkers.evidence.stranded_clients import STRANDING_KINDS, StrandedClients
from chaos.checkers.evidence.transactions.open_transactions import OPEN_KINDS, OpenTransactions
from chaos.checkers.evidence.turning_points import TURNING_KINDS, TurningPoints
from chaos.checkers.evidence.undisturbed import DISTURBING_KINDS, Undisturbed
from chaos.checkers.evidence.zookeeper_tree import TREE_KINDS, ZooKeeperTree
from protocol.trace import TraceKind, TraceRow


class _Part(Protocol):
    """One fact, kept up to date by the rows of some kinds."""

    def observe(self, row: TraceRow) -> None:
        """Take a row of one of the part's kinds."""


P = TypeVar("P", bound=_Part)


class Evidence:
    """The facts of one run: one attribute per fact, made by its first read."""

    def __init__(self, context: CheckContext) -> None:
        self._context = context
        # kind of row -> the method `observe` of each part that takes such rows. The key type is
        # str because a TraceKind is a str.
        self._observers: dict[str, list[Callable[[TraceRow], None]]] = {}
        self.kinds_read: frozenset[TraceKind] = frozenset()
        """Kinds of rows that the parts made so far take, except parts that affect no verdict.

        CheckSuite reads these kinds, to see which verdicts are unsafe if rows of a node are lost.
        """

    def observe(self, row: TraceRow) -> None:
        """Take the next row of the trace."""
        for observe in self._observers.get(row.kind, ()):
            observe(row)

    @cached_property
    def coordinators(self) -> CoordinatorView:
        """Coordinators of groups, and the groups' states in their memories."""
        return self._follow(CoordinatorView(self._context), COORDINATOR_KINDS)

    @cached_property
    def presence(self) -> Presence:
        """Living consumers, and their states."""
        return self._follow(Presence(self._context), PRESENCE_KINDS)

    @cached_property
    def fenced_members(self) -> FencedMembers:
        """Static members that a coordinator fenced, because a failover lost their member ids.

        A static member has a configured `group.instance.id`. To fence it means to refuse its
        requests, because the coordinator knows another member id for this instance id.
        """
        members = FencedMembers(self._context, self.coordinators, self.lost_data)
        return self._follow(members, FENCING_KINDS)

    @cached_property
    def open_transactions(self) -> OpenTransactions:
        """Transactions without an end, and offsets that wait for the end of a transaction."""
        return self._follow(OpenTransactions(self._context), OPEN_KINDS)

    @cached_property
    def owners(self) -> Owners:
        """Owners of partitions."""
        return self._follow(Owners(), OWNER_KINDS)

    @cached_property
    def faults(self) -> FaultsInForce:
        """Faults in force, and those that are over."""
        return self._follow(FaultsInForce(self._context), FAULT_KINDS)

    @cached_property
    def expiry(self) -> Expiry:
        """Times at which groups lost their last member. Offsets expire some time after that."""
        return self._follow(Expiry(self._context), EXPIRY_KINDS)

    @cached_property
    def half_loads(self) -> HalfLoads:
        """Coordinators whose load ended halfway, because they no longer led the partition."""
        return self._follow(HalfLoads(), HALF_LOAD_KINDS)

    @cached_property
    def lost_data(self) -> LostData:
        """Elections whose new leaders may lack acknowledged data."""
        return self._follow(LostData(), LOSS_KINDS)

    @cached_property
    def replicas(self) -> Replicas:
        """Leaders and in-sync replicas of partitions, and the brokers that may lead."""
        return self._follow(Replicas(), REPLICA_KINDS)

    @cached_property
    def stranded_clients(self) -> StrandedClients:
        """Consumers that know only brokers which are lost for good."""
        return self._follow(StrandedClients(), STRANDING_KINDS)

    @cached_property
    def turning_points(self) -> TurningPoints:
        """Events that may have led to a finding."""
        # Their kinds are not added to `kinds_read`: they only illustrate findings.
        return self._feed(TurningPoints(), TURNING_KINDS)

    @cached_property
    def undisturbed(self) -> Undisturbed:
        """Times since which nothing disturbs a group."""
        undisturbed = Undisturbed(self._context, self.faults, self.replicas)
        return self._follow(undisturbed, DISTURBING_KINDS)

    @cached_property
    def zookeeper_tree(self) -> ZooKeeperTree:
        """Znodes and sessions of the ZooKeeper ensemble."""
        return self._follow(ZooKeeperTree(), TREE_KINDS)

    def _follow(self, part: P, kinds: frozenset[TraceKind]) -> P:
        """Register a part that verdicts depend on."""
        self.kinds_read |= kinds
        return self._feed(part, kinds)

    def _feed(self, part: P, kinds: frozenset[TraceKind]) -> P:
        """Register a part for its kinds of rows, from the next row on."""
        for kind in sorted(kinds):  # the order of a set differs between processes
            self._observers.setdefault(kind, []).append(part.observe)
        return part
