"""Processing: every record at least once, from the group's first committed position on.

A group that never commits is held to its first position instead. Judged by the offsets that
consumers say they have processed, up to what the group has reached: a hole is what somebody jumped
over and nobody came back to, so it is judged at the end. Duplicates are no violation (delivery is
at least once); they are counted, by who processed the record before.

A group that finds no committed offset and starts from the latest skips records as it was told to;
where it had committed before, the commit was lost, and the hole is a violation that says so. An
administrator may skip records: by a commit for a group without members, or by deleting committed
offsets. Where records or commits were lost with the last replica in sync (`lost_data`) nothing is
judged.
"""

from dataclasses import dataclass, field

from chaos.checkers.base import Checker
from chaos.checkers.consumed import decode_consumed
from chaos.checkers.context import CheckContext
from chaos.checkers.evidence.board import Evidence
from chaos.checkers.evidence.commit_registers import GIVEN_UP_BY_THE_CLIENT
from chaos.checkers.evidence.intervals import IntervalSet
from chaos.checkers.evidence.owners import OWNER_KINDS, Owner
from protocol.causes import ORDERED_DELETIONS, PositionCause
from protocol.errors import ErrorCode
from protocol.trace import TraceKind, TraceRow
from results_schema.results import CheckReport

MAX_JUMPS = 256
"""Positions beyond what was processed, kept for each partition to explain its holes."""
MAX_KEPT_COMMITS = 4_096
"""Commits beyond what was processed, kept for each partition: there are none in a sound group."""

IN_HAND = "skipped_by_a_commit_of_a_record_in_hand"
_TIMED_OUT = ErrorCode.REQUEST_TIMED_OUT.name  # the record may stand in the log all the same


@dataclass(frozen=True, slots=True, kw_only=True)
class _Jump:
    """Where somebody went on beyond what the group had processed."""

    row: TraceRow  # a POSITION_RESET, or the RECORDS_CONSUMED that follows nothing
    before: TraceRow | None  # the last records processed until then
    was_deleted: bool = False  # an administrator had deleted what was committed


@dataclass(slots=True)
class _Partition:
    """What one group has processed of one partition."""

    processed: IntervalSet = field(default_factory=IntervalSet)
    by_owner: dict[Owner, IntervalSet] = field(default_factory=dict)
    first_position: TraceRow | None = None
    first_commit: TraceRow | None = None
    last_commit: TraceRow | None = None  # the largest offset acknowledged
    deleted_us: int | None = None  # when an administrator deleted what was committed
    beyond: dict[int, TraceRow] = field(default_factory=dict)  # commits of what nobody processed
    positions: dict[Owner, int] = field(default_factory=dict)  # where each owner goes on
    jumps: list[_Jump] = field(default_factory=list)
    last_row: TraceRow | None = None


class Processing(Checker):
    """Every record is processed at least once, from the first committed position on."""

    name = "processing"
    promise = (
        "from the group's first committed position on (its first position, if it never commits), "
        "every record is processed at least once, up to what the group has reached"
    )
    kinds = frozenset(
        {
            TraceKind.RECORDS_CONSUMED,
            TraceKind.POSITION_RESET,
            TraceKind.OFFSETS_COMMITTED,
            TraceKind.COMMIT_STORED,
            TraceKind.ADMIN_COMMIT,
            TraceKind.OFFSET_REMOVED,
            TraceKind.ZOOKEEPER_OFFSET_COMMITTED,
            *OWNER_KINDS,
        }
    )

    def __init__(self, context: CheckContext, evidence: Evidence | None = None) -> None:
        super().__init__(context, evidence)
        self._partitions: dict[tuple[str, str], _Partition] = {}
        self._owners = self.evidence.owners
        self._members: dict[str, Owner] = {}  # member id -> who has it
        self._assigned_us: dict[str, int] = {}  # member id -> its last assignment
        self._killed: dict[str, TraceRow] = {}  # node -> its last death
        self._ended_lives: dict[str, int] = {}  # node -> how many of its lives are over
        self._duplicates = {
            "processed_again_by_the_same_member": 0,
            "processed_again_by_another_member": 0,
            "processed_again_while_two_owned_it": 0,
        }
        self._lost_data = self.evidence.lost_data
        self._skipped = {
            "skipped_by_reset_to_latest": 0,
            "skipped_by_a_member_that_died": 0,
            "skipped_by_an_administrator": 0,
            "skipped_where_data_was_lost_with_the_last_replica": 0,
        }
        if context.zookeeper_groups:
            self._skipped[IN_HAND] = 0

    def judge(self, row: TraceRow) -> None:
        """Take in what was processed, committed or assigned."""
        match row.kind:
            case TraceKind.RECORDS_CONSUMED:
                self._consumed(row)
            case (
                TraceKind.COMMIT_STORED
                | TraceKind.OFFSETS_COMMITTED
                | TraceKind.ZOOKEEPER_OFFSET_COMMITTED
            ):
                self._committed(row)
            case TraceKind.ADMIN_COMMIT:
                if row.error in GIVEN_UP_BY_THE_CLIENT or row.error == _TIMED_OUT:
                    self._remember_beyond(self._partition(row), row)
            case TraceKind.OFFSET_REMOVED:
                if row.cause in ORDERED_DELETIONS:
                    self._partition(row).deleted_us = row.time_us
            case TraceKind.POSITION_RESET:
                self._position_reset(row)
            case TraceKind.NODE_KILLED:
                self._killed[row.peer or ""] = row
                self._count_end(row.peer or "")
            case TraceKind.NODE_STOPPED:
                self._count_end(row.node)
            case TraceKind.PARTITIONS_ASSIGNED if row.member is not None:
                self._members[row.member] = (row.node, row.incarnation)
                self._assigned_us[row.member] = row.time_us
            case _:
                pass
        if row.kind in OWNER_KINDS:
            for group, partition, owner in self._owners.ended:
                known = self._partitions.get((group, partition))
                if known is not None:
                    known.positions.pop(owner, None)

    def _count_end(self, node: str) -> None:
        self._ended_lives[node] = self._ended_lives.get(node, 0) + 1

    def _since_us(self, member: str | None) -> int:
        """Return since when a member has what it has; -1 for who has nothing."""
        return self._assigned_us.get(member or "", -1)

    # -- what was processed -------------------------------------------------------------------

    def _partition(self, row: TraceRow) -> _Partition:
        key = (row.group or "", row.partition or "")
        known = self._partitions.get(key)
        if known is None:
            known = self._partitions[key] = _Partition()
        return known

    def _consumed(self, row: TraceRow) -> None:
        if row.offset is None or row.detail is None:
            return
        known = self._partition(row)
        owner = (row.node, row.incarnation)
        start, end = row.offset, decode_consumed(row.detail).last + 1
        processed = known.processed
        reached = processed.end
        if reached is not None and start < reached:
            self._count_again(known, owner, row, start, end)
        elif known.positions.get(owner, start) < start:
            self._remember_jump(known, row)  # it followed nothing: what it had fetched is gone
        processed.add(start, end)
        mine = known.by_owner.get(owner)
        if mine is None:
            mine = known.by_owner[owner] = IntervalSet()
        mine.add(start, end)
        known.positions[owner] = end
        known.last_row = row

    def _count_again(
        self, known: _Partition, owner: Owner, row: TraceRow, start: int, end: int
    ) -> None:
        again = known.processed.covered(start, end)
        if not again:
            return
        by_itself = known.by_owner[owner].covered(start, end) if owner in known.by_owner else 0
        self._duplicates["processed_again_by_the_same_member"] += by_itself
        self._duplicates["processed_again_by_another_member"] += again - by_itself
        if len(self._owners.of(row.group or "", row.partition or "")) > 1:
            self._duplicates["processed_again_while_two_owned_it"] += again

    def _position_reset(self, row: TraceRow) -> None:
        if row.offset is None:
            return
        known = self._partition(row)
        known.positions[row.node, row.incarnation] = row.offset
        if known.first_position is None:
            known.first_position = row
        reached = known.processed.end
        start = known.first_position.offset if reached is None else reached
        if start is not None and row.offset > start:
            self._remember_jump(known, row)

    @staticmethod
    def _remember_jump(known: _Partition, row: TraceRow) -> None:
        known.jumps.append(
            _Jump(row=row, before=known.last_row, was_deleted=known.deleted_us is not None)
        )
        del known.jumps[:-MAX_JUMPS]

    def _committed(self, row: TraceRow) -> None:
        if row.offset is None or row.group is None or row.partition is None:
            return
        known = self._partition(row)
        if known.deleted_us is not None and self._since_us(row.member) > known.deleted_us:
            known.deleted_us = None  # what members commit who came later is there
        if known.first_commit is None and not _is_administrators(row):
            known.first_commit = row  # what the group itself has reached
        last = known.last_commit
        if last is None or row.offset > (last.offset or 0):
            known.last_commit = row
        self._remember_beyond(known, row)

    @staticmethod
    def _remember_beyond(known: _Partition, row: TraceRow) -> None:
        """Keep a commit, or one that may count, of what nobody has processed."""
        reached, offset = known.processed.end, row.offset or 0
        if (reached is not None and offset <= reached) or len(known.beyond) >= MAX_KEPT_COMMITS:
            return
        before = known.beyond.get(offset)
        if before is None or not _is_administrators(before):
            # The client's own row, which comes second, says more than the broker's. A member that
            # begins where an administrator said commits the same again.
            known.beyond[offset] = row

    # -- the end ------------------------------------------------------------------------------

    def measured(self) -> dict[str, int]:
        """Return the duplicates and the allowed holes so far."""
        again = (
            self._duplicates["processed_again_by_the_same_member"]
            + self._duplicates["processed_again_by_another_member"]
        )
        return {
            "records_processed": sum(known.processed.total for known in self._partitions.values()),
            "processed_again": again,
            **self._duplicates,
            **self._skipped,
        }

    def finish(self) -> CheckReport:
        """Look for holes."""
        judged = gaps = 0
        for (group, partition), known in self._partitions.items():
            begin = known.first_commit or known.first_position
            if begin is None or begin.offset is None or not self.context.is_seen(group):
                continue
            committed = known.last_commit.offset if known.last_commit is not None else None
            end = max(known.processed.end or 0, committed or 0)
            judged += max(0, end - begin.offset)
            for gap in known.processed.missing(begin.offset, end):
                gaps += 1
                self._judge_gap(group, partition, known, gap)
        figures = self.measured()
        return self.report(
            judged=judged,
            seen={
                "partitions": len(self._partitions),
                "records_due": judged,
                "records_processed": figures["records_processed"],
                "gaps": gaps,
            },
            note="" if judged else "no record was due",
        )

    def _judge_gap(
        self, group: str, partition: str, known: _Partition, gap: tuple[int, int]
    ) -> None:
        start, end = gap
        expected = self.context.groups.get(group)
        sources = [partition]
        if expected is not None:
            sources += [expected.offsets_partition, *expected.transaction_partitions]
        if any(self._lost_data.of(source) for source in sources):
            self._skipped["skipped_where_data_was_lost_with_the_last_replica"] += end - start
            return
        if group in self.context.zookeeper_groups and self._was_in_hand(group, start, end):
            self._skipped[IN_HAND] += end - start
            return
        jump = _jump_over(known.jumps, start, end)
        commit = known.beyond.get(end) or known.last_commit
        if commit is not None and (commit.offset or 0) <= start:
            commit = None
        cause = None if jump is None else jump.row.cause
        if jump is not None and cause == PositionCause.LATEST:
            if known.first_commit is None:
                self._skipped["skipped_by_reset_to_latest"] += end - start
                return
            if jump.was_deleted:
                self._skipped["skipped_by_an_administrator"] += end - start
                return
            why = (
                f"{jump.row.node} found no committed offset it could use, although "
                f"{known.first_commit.offset} and more had been committed, and started from the "
                "latest (auto.offset.reset)"
            )
            commit = None
        elif commit is not None and self._died_before_telling(commit):
            self._skipped["skipped_by_a_member_that_died"] += end - start
            return
        elif commit is not None and commit.offset == end and _is_administrators(commit):
            self._skipped["skipped_by_an_administrator"] += end - start
            return
        elif commit is not None and (jump is None or cause == PositionCause.COMMITTED):
            why = f"{_committer(commit)} had committed {commit.offset}"
        elif jump is not None and cause is None:
            why = f"{jump.row.node} went on at {jump.row.offset} without them"
        elif jump is not None:
            why = f"{jump.row.node} began at {jump.row.offset} ({cause})"
        else:
            why = "the group went on without them"
        self.found(
            f"{group}, {partition}: records {start} to {end - 1} were never processed: {why}",
            [
                row
                for row in (
                    known.first_commit or known.first_position,
                    None if jump is None else jump.before,
                    known.last_row if jump is None else jump.row,
                    commit,
                )
                if row is not None
            ],
            group=group,
            partition=partition,
        )

    def _was_in_hand(self, group: str, start: int, end: int) -> bool:
        """Whether a consumer on ZooKeeper may have died with these records in hand.

        Its position moves before the application has the record (ZK-35): a commit may cover one
        for each life of a consumer that ended.
        """
        expected = self.context.zookeeper_groups[group]
        return end - start <= sum(self._ended_lives.get(name, 0) for name in expected.consumers)

    def _died_before_telling(self, commit: TraceRow) -> bool:
        """Whether the committer was killed before it wrote down the answer.

        Of a process that dies, the last rows may be lost with it, also those of what it processed
        before that commit.
        """
        if commit.kind != TraceKind.COMMIT_STORED:
            return False
        owner = self._members.get(commit.member or "")
        return owner is not None and owner[0] in self._killed


def _jump_over(jumps: list[_Jump], start: int, end: int) -> _Jump | None:
    """Return what first went on at the end of the hole, or beyond its beginning."""
    exact = [jump for jump in jumps if jump.row.offset == end]
    beyond = [jump for jump in jumps if (jump.row.offset or 0) > start]
    return next(iter(exact or beyond), None)


def _is_administrators(commit: TraceRow) -> bool:
    """Whether somebody committed who is no member: a coordinator takes that of an empty group."""
    return commit.kind != TraceKind.OFFSETS_COMMITTED and not commit.member


def _committer(commit: TraceRow) -> str:
    if commit.kind == TraceKind.OFFSETS_COMMITTED:
        return f"{commit.node} (acknowledged by {commit.peer})"
    return commit.member or "a consumer without a member id"
