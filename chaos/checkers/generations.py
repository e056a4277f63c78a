"""Generations: their numbers grow, only their members commit, and no two members share a partition.

When a member joins a group, it gets a member id and a generation. The member names its id and the
generation in its requests from then on. This checker judges four rules:

1. A coordinator accepts a commit only from a member of the group's current generation.
2. While one broker coordinates a group, the group's generation never decreases, and no generation
   begins twice.
3. No partition is assigned to two members in one generation.
4. A consumer gets partitions under the member id and the generation of its last join. It gives
   these partitions up under the same id and generation.

A generation has a number, but the number alone does not identify the generation. Two coordinators
may use the same number for different generations. This happens in a split brain, in which two
brokers act as the coordinator, and each of them counts on from the generation that it loaded
(BEHAVIOUR 2.2, 4.10; MEASURED_FAILOVER two-lineages). So the checker tells generations apart by
their origin:

- A tenure is the time in which one process of a broker coordinates one partition of
  `__consumer_offsets` in one leader epoch. Rule 2 is about the numbers of one tenure only.
- A lineage says in which tenure a generation began. If the next coordinator loads the generation,
  it is still the same generation and keeps its lineage. When a group is deleted, its generations
  begin again from 0. So a lineage also has the number of these deletions. Rule 3 is about
  generations with the same number and the same lineage.

A commit is judged by the members at the moment at which the coordinator accepted the commit. This
may be some seconds before the commit is stored. Therefore this module keeps former states of each
group, whereas `evidence.coordinators` has only the present states.
"""

from collections import deque
from dataclasses import dataclass, field

from chaos.checkers.base import Checker
from chaos.checkers.context import CheckContext, detail_of
from chaos.checkers.evidence.board import Evidence
from protocol.ids import CONSUMER_OFFSETS, NO_GENERATION
from protocol.trace import TraceKind, TraceRow
from results_schema.results import CheckReport

MAX_STARTED_APPENDS = 4_096
"""Number of appends that are kept for each process of a broker. The oldest are dropped first.

Only unfinished appends are needed. An append ends within 5 s, and in 5 s a broker begins fewer
appends than this number.
"""
MAX_CHANGES = 64
"""Number of states that are kept for a group in one tenure. The oldest are dropped first.

A commit is judged when it is stored, but by the state at its acceptance. Between these two moments
no group changes as often as this.
"""
KEPT_GENERATIONS = 8
"""Number of generations of one lineage for which the owners of partitions are kept.

The oldest are dropped first, because no member gets partitions of a generation that is so old.
"""
KEPT_NAMESAKES = 4
"""Number of generations with the same group, broker and number that are kept.

The oldest are dropped first.
"""
STABLE = "STABLE"
"""State of a member that has joined and got its assignment."""
# States of a group.
DEAD = "Dead"
EMPTY = "Empty"

Life = tuple[str, int]
"""One process of a node: the node's name and its incarnation, the number of its restarts."""
Lineage = tuple[str, int, int, int]
"""Origin of a generation: node, incarnation, leader epoch, number of deletions of the group.

Example: ("broker-1", 0, 4, 0).
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Membership:
    """A state of a group: its generation and its members."""

    since: TraceRow  # the coordinator's row that shows the state
    generation: int
    members: dict[str, None] | None  # None: unknown, because no row has listed them
    joined: TraceRow | None  # the row with which this generation became the current one

    @property
    def is_empty(self) -> bool:
        """True if the group is known to have no members."""
        return self.members is not None and not self.members


@dataclass(slots=True)
class _Group:
    """A group in one tenure: its states, the present one last."""

    epoch: int  # leader epoch of the tenure
    changes: deque[_Membership] = field(default_factory=lambda: deque(maxlen=MAX_CHANGES))
    removed: dict[str, TraceRow] = field(default_factory=dict)  # member -> its removal

    @property
    def now(self) -> _Membership | None:
        """The present state; None before any row of the group."""
        return self.changes[-1] if self.changes else None

    def at(self, seq: int) -> _Membership | None:
        """Return the state when the coordinator wrote its row number `seq`; None if unknown."""
        for change in reversed(self.changes):
            if change.since.seq <= seq:
                return change
        return None


@dataclass(slots=True)
class _Owners:
    """The owners of partitions in one generation of one lineage."""

    # partition -> the owner's id, and the PARTITIONS_ASSIGNED that shows it
    owner_of: dict[str, tuple[str, TraceRow]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Begun:
    """A generation at a broker that began or loaded it."""

    lineage: Lineage
    members: frozenset[str]


class Generations(Checker):
    """Commits come from current members, generations grow, no two members share a partition."""

    name = "generations"
    promise = (
        "commits are accepted only from members of the current generation, generations never go "
        "back within one coordinator's life, no two members own a partition in one generation, and "
        "a member gets and gives up partitions in the generation that it has joined"
    )
    kinds = frozenset(
        {
            TraceKind.LOAD_STARTED,
            TraceKind.UNLOAD_COMPLETED,
            TraceKind.GROUP_LOADED,
            TraceKind.GROUP_STATE,
            TraceKind.GENERATION_STARTED,
            TraceKind.MEMBER_ADDED,
            TraceKind.MEMBER_REMOVED,
            TraceKind.APPEND_STARTED,
            TraceKind.COMMIT_STORED,
            TraceKind.TXN_COMMIT_PENDING,
            TraceKind.PARTITIONS_ASSIGNED,
            TraceKind.PARTITIONS_REVOKED,
            TraceKind.PARTITIONS_LOST,
            TraceKind.MEMBER_STATE,
        }
    )

    def __init__(self, context: CheckContext, evidence: Evidence | None = None) -> None:
        super().__init__(context, evidence)
        # (node, incarnation, offsets partition) -> leader epoch of the present tenure
        self._epochs: dict[tuple[str, int, str], int] = {}
        self._partition_of = {
            group_id: known.offsets_partition for group_id, known in context.groups.items()
        }
        self._groups: dict[Life, dict[str, _Group]] = {}  # groups in present tenures, by group id
        # process of a broker -> append id (`correlation_id`) -> number (`seq`) of the append's row
        # APPEND_STARTED
        self._appends: dict[Life, dict[int, int]] = {}
        self._instances: dict[str, str] = {}  # member id -> group.instance.id
        # (node, group, number) -> the generations with this number that the node began or loaded,
        # the newest last. If a member names this number to the node, it means one of these
        # generations.
        self._begun_at: dict[tuple[str, str, int], list[_Begun]] = {}
        # group -> number of its deletions. After each deletion, generation numbers start again.
        self._deaths: dict[str, int] = {}
        # (group, number) -> leader epoch in which a generation with this number began -> lineage of
        # this generation. From these entries `_inherit` finds which generation a coordinator has
        # loaded.
        self._begun: dict[tuple[str, int], dict[int, Lineage]] = {}
        # (group, lineage) -> generation -> owners of partitions
        self._owners: dict[tuple[str, Lineage], dict[int, _Owners]] = {}
        self._joins: dict[Life, TraceRow] = {}  # consumer -> its last row MEMBER_STATE to STABLE
        self._assigned: dict[Life, TraceRow] = {}  # consumer -> its last PARTITIONS_ASSIGNED
        self._seen = {
            "offsets_judged": 0,
            "offsets_of_simple_consumers": 0,
            "offsets_of_unknown_start": 0,
            "generations": 0,
            "partitions_assigned_in_all_generations": 0,
        }

    def judge(self, row: TraceRow) -> None:
        """Judge a step of a coordinator, a commit, or an assignment, and keep its facts."""
        match row.kind:
            case TraceKind.APPEND_STARTED:
                self._remember_append(row)
            case TraceKind.COMMIT_STORED if row.correlation_id is None:
                pass  # a commit in a transaction: its row TXN_COMMIT_PENDING was judged before
            case TraceKind.COMMIT_STORED | TraceKind.TXN_COMMIT_PENDING:
                self._check_commit(row)
            case TraceKind.LOAD_STARTED:
                # The tenure begins now, and not with LOAD_COMPLETED. The rows GROUP_LOADED come in
                # between, and belong to the tenure.
                self._begin_tenure(row)
            case TraceKind.UNLOAD_COMPLETED:
                self._end_tenure(row)
            case TraceKind.PARTITIONS_ASSIGNED:
                self._check_identity(row, self._joins)
                self._assigned[row.node, row.incarnation] = row
                self._check_owners(row)
            case TraceKind.PARTITIONS_REVOKED | TraceKind.PARTITIONS_LOST:
                self._check_identity(row, self._assigned)
            case TraceKind.MEMBER_STATE:
                if detail_of(row).get("to") == STABLE:
                    self._joins[row.node, row.incarnation] = row
            case _:  # the rows of a coordinator about the state and the members of a group
                if row.group is not None:
                    self._observe_group(row, row.group)

    # -- tenures ------------------------------------------------------------------------------

    def _begin_tenure(self, row: TraceRow) -> None:
        """Begin a tenure. A load in the same epoch as before continues the present one."""
        life = (row.node, row.incarnation)
        key = (*life, row.partition or "")
        if self._epochs.get(key) != row.leader_epoch:
            self._end_tenure(row)
        self._epochs[key] = row.leader_epoch or 0

    def _end_tenure(self, row: TraceRow) -> None:
        """End the tenure of a partition: the broker does not coordinate its groups any more."""
        groups = self._groups.get((row.node, row.incarnation), {})
        of_partition = [name for name in groups if self._partition_of.get(name) == row.partition]
        for group_id in of_partition:
            del groups[group_id]

    def _group(self, row: TraceRow, group_id: str) -> _Group:
        """Return the group in the present tenure of the row's broker; add it if it is new."""
        life = (row.node, row.incarnation)
        groups = self._groups.setdefault(life, {})
        known = groups.get(group_id)
        if known is None:
            epoch = self._epochs.get((*life, self._partition_of.get(group_id, "")), 0)
            known = groups[group_id] = _Group(epoch=epoch)
        return known

    def _observe_group(self, row: TraceRow, group_id: str) -> None:
        """Apply a coordinator's row to its group, and check the generation number (rule 2)."""
        if row.kind == TraceKind.GROUP_LOADED and row.partition is not None:
            self._partition_of.setdefault(group_id, row.partition)
        if row.kind == TraceKind.GROUP_STATE and detail_of(row).get("to") == DEAD:
            # The group was deleted. If it is created again, its generations begin again, too.
            self._groups.get((row.node, row.incarnation), {}).pop(group_id, None)
            self._deaths[group_id] = self._deaths.get(group_id, 0) + 1
            return
        group = self._group(row, group_id)
        before = group.now
        generation = row.generation or 0
        lineage = (row.node, row.incarnation, group.epoch, self._deaths.get(group_id, 0))
        self._check_order(row, group_id, before)
        match row.kind:
            case TraceKind.GROUP_LOADED:
                # If the row has no list of members, the members are unknown. Then no commit is
                # judged.
                members = detail_of(row).get("members")
                known = dict.fromkeys(members) if isinstance(members, list) else None
                self._change(group, row, generation, known)
                self._inherit(row, group_id, generation, lineage)
            case TraceKind.GENERATION_STARTED:
                self._seen["generations"] += 1
                members = detail_of(row).get("members")
                known = dict.fromkeys(members) if isinstance(members, list) else None
                self._change(group, row, generation, known)
                self._remember_begun(row, group_id, generation, lineage)
                self._begun.setdefault((group_id, generation), {})[group.epoch] = lineage
            case TraceKind.MEMBER_ADDED | TraceKind.MEMBER_REMOVED:
                self._change_member(group, row, before)
            case TraceKind.GROUP_STATE if detail_of(row).get("to") == EMPTY:
                self._change(group, row, generation, {})
            case _:
                pass

    @staticmethod
    def _change(
        group: _Group, row: TraceRow, generation: int, members: dict[str, None] | None
    ) -> None:
        """Add a state to a group.

        All states within one generation have the same `joined`, the row with which the coordinator
        began or loaded the generation.
        """
        before = group.now
        joined = row
        if before is not None and before.generation == generation and before.joined is not None:
            joined = before.joined
        group.changes.append(
            _Membership(since=row, generation=generation, members=members, joined=joined)
        )

    def _change_member(self, group: _Group, row: TraceRow, before: _Membership | None) -> None:
        """Add a state with one member more or less than before."""
        member = row.member or ""
        instance = detail_of(row).get("instance")
        if isinstance(instance, str):
            self._instances[member] = instance
        # The other members are those of the state before. If there is no state before, generation 0
        # shows that the group is new, and that this member is its first member. In any other
        # generation the group has members that no row has listed, so `members` stays None.
        born: dict[str, None] | None = {} if row.generation == 0 else None
        members = born if before is None else before.members
        if members is not None:
            members = dict(members)
            if row.kind == TraceKind.MEMBER_ADDED:
                members[member] = None
            else:
                members.pop(member, None)
        if row.kind == TraceKind.MEMBER_REMOVED:
            group.removed[member] = row  # evidence, if a later commit of the member is accepted
        self._change(group, row, row.generation or 0, members)

    def _check_order(self, row: TraceRow, group_id: str, before: _Membership | None) -> None:
        """Report a generation number that decreases, or a generation that begins twice (rule 2)."""
        if before is None or row.generation is None:
            return
        # A generation that this coordinator has loaded may begin again (see `_inherit`). But a
        # generation that the coordinator began itself must not begin again.
        begun_again = (
            row.kind == TraceKind.GENERATION_STARTED
            and row.generation == before.generation
            and before.joined is not None
            and before.joined.kind == TraceKind.GENERATION_STARTED
        )
        if row.generation >= before.generation and not begun_again:
            return
        problem = "began twice" if begun_again else f"follows generation {before.generation}"
        self.report_finding(
            f"{group_id}: generation {row.generation} {problem} at {row.node}, in one life of that "
            "coordinator",
            [step for step in (before.joined, before.since, row) if step is not None],
            group=group_id,
            partition=self._partition_of.get(group_id),
        )

    # -- commits ------------------------------------------------------------------------------

    def _remember_append(self, row: TraceRow) -> None:
        """Remember the row with which the coordinator began an append, which may contain commits.

        The coordinator has accepted the commits of the append when it writes this row. So the
        generation and the member of these commits must be right at this row. The row COMMIT_STORED
        may come 5 s later, when the group may have another generation.
        """
        if row.correlation_id is None or not (row.partition or "").startswith(CONSUMER_OFFSETS):
            return
        started = self._appends.setdefault((row.node, row.incarnation), {})
        if len(started) >= MAX_STARTED_APPENDS:
            del started[next(iter(started))]  # the oldest: a dict keeps the order of insertion
        started[row.correlation_id] = row.seq

    def _check_commit(self, row: TraceRow) -> None:
        """Report a commit whose generation or member was wrong when it was accepted (rule 1)."""
        life = (row.node, row.incarnation)
        seq = self._appends.get(life, {}).get(row.correlation_id or 0)
        if row.group is None or seq is None:
            self._seen["offsets_of_unknown_start"] += 1
            return
        generation = NO_GENERATION if row.generation is None else row.generation
        group = self._groups.get(life, {}).get(row.group)
        state = None if group is None else group.at(seq)
        if generation < 0 and (state is None or state.is_empty):
            # The commit is from an administrator, or from a simple consumer, which commits without
            # joining. Both are allowed while the group has no members.
            self._seen["offsets_of_simple_consumers"] += 1
            return
        if group is None or state is None or state.members is None:
            self._seen["offsets_of_unknown_start"] += 1
            return

        self._seen["offsets_judged"] += 1
        member = row.member or ""
        if generation != state.generation:
            problem = (
                f"in generation {generation} while the group was in generation {state.generation}"
            )
        elif member not in state.members:
            problem = f"in generation {generation}, of which it was no member"
        else:
            return
        self.report_finding(
            f"{row.group}, {row.partition}: {row.node} accepted a commit of {member or 'nobody'} "
            + problem,
            [
                step
                for step in (state.joined, state.since, group.removed.get(member), row)
                if step is not None
            ],
            group=row.group,
            partition=row.partition,
        )

    # -- owners -------------------------------------------------------------------------------

    def _inherit(self, row: TraceRow, group_id: str, generation: int, lineage: Lineage) -> None:
        """Note which generation a coordinator has loaded, with the lineage of this generation.

        The row GROUP_LOADED has only the generation's number, and several tenures may have begun a
        generation with this number. Epochs later than the epoch of the load do not count, because
        the log of a leader has only what its predecessors wrote. Of the other tenures, the one with
        the newest epoch counts. If there is none in the trace, the loading tenure itself counts as
        the generation's origin.

        `lineage` is the lineage of the generations that the loading tenure itself begins.

        A load also reads records above the high watermark (BEHAVIOUR 5.4). So the coordinator may
        load a generation whose record was never acknowledged. Such a generation may begin again
        later. The schedule `generation_begun_again_and_never_acknowledged` of the tests' corpus
        shows this case.
        """
        begun = self._begun.get((group_id, generation), {})
        # lineage[2] is the leader epoch of the loading tenure.
        older = max((epoch for epoch in begun if epoch <= lineage[2]), default=None)
        self._remember_begun(row, group_id, generation, lineage if older is None else begun[older])

    def _remember_begun(
        self, row: TraceRow, group_id: str, generation: int, lineage: Lineage
    ) -> None:
        """Keep a generation that the row's broker began or loaded, for `_lineage_of`."""
        members = detail_of(row).get("members")
        known = self._begun_at.setdefault((row.node, group_id, generation), [])
        names = members if isinstance(members, list) else ()
        known.append(_Begun(lineage=lineage, members=frozenset(names)))
        del known[:-KEPT_NAMESAKES]

    def _lineage_of(self, row: TraceRow) -> Lineage | None:
        """Return the lineage of an assignment's generation; None if the trace does not show it."""
        # In a consumer's row, `peer` is its coordinator.
        begun = self._begun_at.get((row.peer or "", row.group or "", row.generation or 0), ())
        # A broker may have several generations with this number, for example if the group was
        # deleted in between. The consumer means the newest of them of which it is a member.
        with_member = [generation for generation in begun if row.member in generation.members]
        return next((generation.lineage for generation in reversed(with_member or begun)), None)

    def _check_owners(self, row: TraceRow) -> None:
        """Report the partitions of an assignment that another member also got (rule 3).

        Only assignments of the same generation of the same lineage are compared. The partitions of
        this assignment are noted for later comparisons.
        """
        if row.group is None or row.generation is None or row.peer is None:
            return
        lineage = self._lineage_of(row)
        if lineage is None:
            return  # the trace lacks the generation's beginning
        generations = self._owners.setdefault((row.group, lineage), {})
        owners = generations.setdefault(row.generation, _Owners())
        while len(generations) > KEPT_GENERATIONS:
            del generations[min(generations)]
        member = row.member or ""
        # A static member (with a `group.instance.id`) may return with a new member id, and get the
        # same partitions again. So its instance id identifies it.
        owner = self._instances.get(member, member)
        for partition in detail_of(row).get("partitions", ()):
            self._seen["partitions_assigned_in_all_generations"] += 1
            known = owners.owner_of.get(partition)
            if known is not None and known[0] != owner:
                self.report_finding(
                    f"{row.group}, {partition}: {known[1].node} and {row.node} were both given it "
                    f"in generation {row.generation} of {lineage[0]}",
                    [
                        *self._rows_of_beginning(row.group, lineage, row.generation),
                        known[1],
                        row,
                    ],
                    group=row.group,
                    partition=partition,
                )
            owners.owner_of[partition] = (owner, row)

    def _check_identity(self, row: TraceRow, known: dict[Life, TraceRow]) -> None:
        """Report a consumer that names a wrong member id or generation (rule 4).

        `row` says that the consumer gets or gives up partitions. `known` has a row for each
        consumer. The consumer must name the member id and the generation of this row:
        - When a consumer gets partitions, this is the row of its last join. If an answer resets the
          consumer's generation after the join, the consumer does not take the assignment but joins
          again.
        - When a consumer gives partitions up, this is the row of its assignment, because it gives
          them up before its next JoinGroup.
        Source: Kafka AbstractCoordinator.joinGroupIfNeeded.
        """
        before = known.get((row.node, row.incarnation))
        if before is None:
            return  # the trace lacks the beginning of the membership
        if (row.member, row.generation) != (before.member, before.generation):
            did = "gets" if row.kind == TraceKind.PARTITIONS_ASSIGNED else "gives up"
            self.report_finding(
                f"{row.node} {did} partitions as {row.member or 'nobody'} in generation "
                f"{row.generation}, but is {before.member} in generation {before.generation}",
                [before, row],
                group=row.group,
            )

    def _rows_of_beginning(
        self, group_id: str, lineage: Lineage, generation: int
    ) -> list[TraceRow]:
        """Return the GENERATION_STARTED of a generation, if its tenure is still present."""
        group = self._groups.get((lineage[0], lineage[1]), {}).get(group_id)
        if group is None:
            return []
        return [
            change.since
            for change in group.changes
            if change.generation == generation and change.since.kind == TraceKind.GENERATION_STARTED
        ]

    def finish(self) -> CheckReport:
        """Report. Everything has been judged already."""
        judged = self._seen["offsets_judged"] + self._seen["partitions_assigned_in_all_generations"]
        return self.report(
            judged=judged,
            seen=dict(self._seen),
            note="" if judged else "no member committed, and none was given partitions",
        )
