"""Generations: only their members commit, their numbers grow, no two members share a partition.

A generation is one completed rebalance of a group, and has a number. A member gets a member id and
the generation when it joins, and names both in its requests. In the rows about its partitions, a
member must name the id and the generation of its last join. It must give up partitions under the
same id and generation under which it got them.

A tenure is the time in which one broker incarnation (one life of its process) coordinates one
partition of `__consumer_offsets` in one leader epoch (the number of the partition's leadership).
Two tenures may use the same generation numbers. In a split brain (two brokers act as the
coordinator) each coordinator continues to count from the state that it loaded (BEHAVIOUR 2.2, 4.10;
MEASURED_FAILOVER two-lineages). So numbers of different tenures are not compared. There is one
exception: a generation that a coordinator loads is the same generation as before.

A lineage is the origin of a generation: the tenure that began it, and the number of times that the
group had been deleted. A loaded generation keeps its lineage.

A commit is judged by the members that the group had when the coordinator accepted the commit.
Therefore this module keeps former members; `evidence.coordinators` has only the present ones.
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
"""Kept appends per broker incarnation. An append ends within 5 s, and fewer begin in this time."""
MAX_CHANGES = 64
"""Kept states of a group in one tenure.

A commit is judged when it is stored, but by the state at the earlier time of its acceptance.
"""
KEPT_GENERATIONS = 8
"""Kept generations of a lineage, with the owners of partitions. No member is so far behind."""
KEPT_NAMESAKES = 4
"""Kept generations that have the same group, broker and number: the newest ones."""
STABLE = "STABLE"
"""State of a member from the end of its join on."""
# States of a group.
DEAD = "Dead"
EMPTY = "Empty"

Life = tuple[str, int]  # node, incarnation
Lineage = tuple[str, int, int, int]
"""Origin of a generation: node, incarnation, leader epoch, and how often the group had died."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Membership:
    """The members of a group from one row of its coordinator to the next change.

    `members` is None if they are unknown, because the trace lacks the beginning of the tenure.
    """

    since: TraceRow
    generation: int
    members: dict[str, None] | None
    joined: TraceRow | None  # the row that made this generation the current one

    @property
    def is_empty(self) -> bool:
        """True if the group is known to have no members."""
        return self.members is not None and not self.members


@dataclass(slots=True)
class _Group:
    """A group in one tenure: its present and its former members and generations."""

    epoch: int
    changes: deque[_Membership] = field(default_factory=lambda: deque(maxlen=MAX_CHANGES))
    removed: dict[str, TraceRow] = field(default_factory=dict)  # member -> its removal

    @property
    def now(self) -> _Membership | None:
        """The present state; None before any row of the group."""
        return self.changes[-1] if self.changes else None

    def at(self, seq: int) -> _Membership | None:
        """Return the state at row `seq` of its coordinator, None if it is unknown."""
        for change in reversed(self.changes):
            if change.since.seq <= seq:
                return change
        return None


@dataclass(slots=True)
class _Owners:
    """The owners of partitions in one generation of one lineage."""

    owner_of: dict[str, tuple[str, TraceRow]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Begun:
    """A generation that a broker began or loaded: its origin and its members."""

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
        self._epochs: dict[tuple[str, int, str], int] = {}  # life and offsets partition -> epoch
        self._partition_of = {
            group_id: known.offsets_partition for group_id, known in context.groups.items()
        }
        self._groups: dict[Life, dict[str, _Group]] = {}  # groups in present tenures, by group id
        # append id (`correlation_id`) -> number (`seq`) of its APPEND_STARTED row
        self._appends: dict[Life, dict[int, int]] = {}
        self._instances: dict[str, str] = {}  # member id -> group.instance.id
        # (node, group, generation) -> the generations of this number at the node, newest last
        self._begun_at: dict[tuple[str, str, int], list[_Begun]] = {}
        # group -> number of its deaths; after a death, generation numbers start again
        self._deaths: dict[str, int] = {}
        # (group, generation) -> leader epoch in which the generation began -> its lineage
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
            # The rows of the loaded groups come before LOAD_COMPLETED, so a tenure begins here.
            case TraceKind.LOAD_STARTED:
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
            case _:
                if row.group is not None:
                    self._observe_group(row, row.group)

    # -- tenures ------------------------------------------------------------------------------

    def _begin_tenure(self, row: TraceRow) -> None:
        """Begin a tenure, and forget the groups of the former tenure if that had another epoch."""
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
        """Apply a coordinator's row to its group, and check the generation number."""
        if row.kind == TraceKind.GROUP_LOADED and row.partition is not None:
            self._partition_of.setdefault(group_id, row.partition)
        if row.kind == TraceKind.GROUP_STATE and detail_of(row).get("to") == DEAD:
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
                # If the row lists no members, they count as unknown, and no commit is judged by
                # them.
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
        """Append a state to a group's changes.

        All changes within one generation have the same `joined`, the row that began the generation.
        """
        before = group.now
        joined = row
        if before is not None and before.generation == generation and before.joined is not None:
            joined = before.joined
        group.changes.append(
            _Membership(since=row, generation=generation, members=members, joined=joined)
        )

    def _change_member(self, group: _Group, row: TraceRow, before: _Membership | None) -> None:
        """Append a state with one member more or less."""
        member = row.member or ""
        instance = detail_of(row).get("instance")
        if isinstance(instance, str):
            self._instances[member] = instance
        # Without an earlier state, this is the first member if the generation is 0: the group is
        # new. In a later generation the group has other members, which the trace does not show.
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
        """Report a generation number that decreases, or a generation that begins twice."""
        if before is None or row.generation is None:
            return
        # A loaded generation may begin again (see `_inherit`), but not one that began here.
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
        """Remember the row at which the coordinator accepted the commits of an append.

        The generation and the member of a commit must be right at this row. The commit's row
        COMMIT_STORED may come 5 s later, when the group may have another generation.
        """
        if row.correlation_id is None or not (row.partition or "").startswith(CONSUMER_OFFSETS):
            return
        started = self._appends.setdefault((row.node, row.incarnation), {})
        if len(started) >= MAX_STARTED_APPENDS:
            del started[next(iter(started))]  # the oldest: a dict keeps the order of insertion
        started[row.correlation_id] = row.seq

    def _check_commit(self, row: TraceRow) -> None:
        """Report a commit whose generation or member was not the group's when it was accepted."""
        life = (row.node, row.incarnation)
        seq = self._appends.get(life, {}).get(row.correlation_id or 0)
        if row.group is None or seq is None:
            self._seen["offsets_of_unknown_start"] += 1
            return
        generation = NO_GENERATION if row.generation is None else row.generation
        group = self._groups.get(life, {}).get(row.group)
        state = None if group is None else group.at(seq)
        if generation < 0 and (state is None or state.is_empty):
            # The commit is from a consumer that does not join, or from an administrator. In an
            # empty group this is allowed.
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
        """Give a loaded generation the lineage of the tenure that began it.

        If several tenures began a generation with this number, tenures with a newer epoch than the
        load's are left out, and the newest of the others counts. If there is none, the loading
        tenure counts.

        A load also reads records above the high watermark (the offset below which every in-sync
        replica has the records; BEHAVIOUR 5.4). So it may find a generation that was never
        acknowledged. In the corpus (schedules that the tests play),
        `generation_begun_again_and_never_acknowledged` shows this case.
        """
        begun = self._begun.get((group_id, generation), {})
        # lineage[2]: the leader epoch of the loading tenure
        older = max((epoch for epoch in begun if epoch <= lineage[2]), default=None)
        self._remember_begun(row, group_id, generation, lineage if older is None else begun[older])

    def _remember_begun(
        self, row: TraceRow, group_id: str, generation: int, lineage: Lineage
    ) -> None:
        """Keep a generation that the row's broker began or loaded."""
        members = detail_of(row).get("members")
        known = self._begun_at.setdefault((row.node, group_id, generation), [])
        names = members if isinstance(members, list) else ()
        known.append(_Begun(lineage=lineage, members=frozenset(names)))
        del known[:-KEPT_NAMESAKES]

    def _lineage_of(self, row: TraceRow) -> Lineage | None:
        """Return the lineage of an assignment's generation; None if the trace does not show it."""
        # In a consumer's row, the peer is its coordinator.
        begun = self._begun_at.get((row.peer or "", row.group or "", row.generation or 0), ())
        # If the group was deleted in between, one broker may have begun this number twice. The
        # member of the row shows which of the generations is meant.
        with_member = [generation for generation in begun if row.member in generation.members]
        return next((generation.lineage for generation in reversed(with_member or begun)), None)

    def _check_owners(self, row: TraceRow) -> None:
        """Note an assignment's partitions; report those that another member got, too.

        Only assignments of the same generation of the same lineage are compared.
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
        # A static member (with a `group.instance.id`) that returned with a new member id owns what
        # it owned under its old one. So the instance id identifies the owner.
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
        """Report a consumer that gets or gives up partitions under a wrong member id or generation.

        `known` has one row for each consumer: the row in which the consumer got the member id and
        the generation that it must name now. A consumer takes an assignment only if no answer has
        reset its generation since the join. It gives its partitions up before the next JoinGroup.
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
        """Report; everything has been judged already."""
        judged = self._seen["offsets_judged"] + self._seen["partitions_assigned_in_all_generations"]
        return self.report(
            judged=judged,
            seen=dict(self._seen),
            note="" if judged else "no member committed, and none was given partitions",
        )
