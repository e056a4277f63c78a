"""Evidence: the facts of one run that several checkers need, each computed once.

Many checkers need the same facts, such as which broker coordinates a group, or which faults are in
force. Evidence has an attribute for each of these facts. The value of an attribute is an object
that follows the rows of the trace. Such an object is called a part. A part follows the rows from
the moment at which its attribute is read for the first time. Therefore a checker reads the
attributes that it needs in its constructor, before the first row. A fact that no checker reads
costs nothing.

A fact that only one checker needs has no attribute here. For example, only the checker of durable
commits has to know which commits were acknowledged. So it keeps this record of commits itself.

The same Evidence also serves coverage marks. A coverage mark notes that a rare situation occurred
in a run. For each row of the trace,

1. coverage marks read the facts as they were before the row;
2. CheckSuite (in `registry`), which has all checkers of a run, feeds the row to the Evidence;
3. the checkers judge the row, with the facts as they are after it.
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
from chaos.checkers.evidence.transactions.forgotten_commits import (
    FORGETTING_KINDS,
    ForgottenCommits,
)
from chaos.checkers.evidence.transactions.open_transactions import OPEN_KINDS, OpenTransactions
from chaos.checkers.evidence.turning_points import TURNING_KINDS, TurningPoints
from chaos.checkers.evidence.undisturbed import DISTURBING_KINDS, Undisturbed
from chaos.checkers.evidence.zookeeper_tree import TREE_KINDS, ZooKeeperTree
from protocol.trace import TraceKind, TraceRow


class _Part(Protocol):
    """What all parts have in common: they follow the rows of some kinds."""

    def observe(self, row: TraceRow) -> None:
        """Take a row of one of the part's kinds."""


P = TypeVar("P", bound=_Part)


class Evidence:
    """The facts of one run, one attribute for each."""

    def __init__(self, context: CheckContext) -> None:
        self._context = context
        # kind of row -> the method `observe` of each part that takes such rows. The key type is
        # str because a TraceKind is a str.
        self._observers: dict[str, list[Callable[[TraceRow], None]]] = {}
        self.kinds_read: frozenset[TraceKind] = frozenset()
        """Kinds of rows on which the facts that were read so far depend.

        If rows of one of these kinds are lost, verdicts may be wrong. CheckSuite then says so. A
        fact that only illustrates findings adds no kinds here, because no verdict depends on it.
        """

    def observe(self, row: TraceRow) -> None:
        """Take the next row of the trace."""
        for observe in self._observers.get(row.kind, ()):
            observe(row)

    @cached_property
    def coordinators(self) -> CoordinatorView:
        """The coordinator of each group, and what the brokers have of groups in memory."""
        return self._follow(CoordinatorView(self._context), COORDINATOR_KINDS)

    @cached_property
    def presence(self) -> Presence:
        """Living consumers, and their states."""
        return self._follow(Presence(self._context), PRESENCE_KINDS)

    @cached_property
    def fenced_members(self) -> FencedMembers:
        """Static members that a coordinator fenced, because a failover lost their member ids."""
        members = FencedMembers(self._context, self.coordinators, self.lost_data)
        return self._follow(members, FENCING_KINDS)

    @cached_property
    def open_transactions(self) -> OpenTransactions:
        """Transactions without an end, and offsets that wait for the end of a transaction."""
        return self._follow(OpenTransactions(self._context), OPEN_KINDS)

    @cached_property
    def forgotten_commits(self) -> ForgottenCommits:
        """Transactional commits that Kafka itself forgets."""
        forgotten = ForgottenCommits(self._context, self.lost_data)
        return self._follow(forgotten, FORGETTING_KINDS)

    @cached_property
    def owners(self) -> Owners:
        """Owners of partitions."""
        return self._follow(Owners(), OWNER_KINDS)

    @cached_property
    def faults(self) -> FaultsInForce:
        """Faults that are in force, and faults that are over."""
        return self._follow(FaultsInForce(self._context), FAULT_KINDS)

    @cached_property
    def expiry(self) -> Expiry:
        """The time since which each group has had no members.

        Offsets of a group may expire when the group has had no members for long enough.
        """
        return self._follow(Expiry(self._context), EXPIRY_KINDS)

    @cached_property
    def half_loads(self) -> HalfLoads:
        """Coordinators that stopped loading halfway, because they no longer led the partition."""
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
        # `_feed` and not `_follow`, because these events only illustrate findings.
        return self._feed(TurningPoints(), TURNING_KINDS)

    @cached_property
    def undisturbed(self) -> Undisturbed:
        """The time since which nothing has disturbed a group."""
        undisturbed = Undisturbed(self._context, self.faults, self.replicas)
        return self._follow(undisturbed, DISTURBING_KINDS)

    @cached_property
    def zookeeper_tree(self) -> ZooKeeperTree:
        """Znodes and sessions of the ZooKeeper ensemble."""
        return self._follow(ZooKeeperTree(), TREE_KINDS)

    def _follow(self, part: P, kinds: frozenset[TraceKind]) -> P:
        """Register a part on which verdicts depend."""
        self.kinds_read |= kinds
        return self._feed(part, kinds)

    def _feed(self, part: P, kinds: frozenset[TraceKind]) -> P:
        """Register a part for its kinds of rows, from the next row on."""
        # The order of a set differs between processes. The kinds are sorted, so that
        # `_observers` has the same order in every process.
        for kind in sorted(kinds):
            self._observers.setdefault(kind, []).append(part.observe)
        return part
