"""Processing: a group processes every record at least once, from its first committed offset on.

Rows RECORDS_CONSUMED show which records the members of a group have processed. Suppose that a group
first committed offset 10 of a partition, and has reached offset 100. Then records 10 to 99 must all
have been processed. If no member has processed records 40 to 49, this is a gap. (If a group never
commits, the records count from the group's first position on.) Gaps are judged at the end of the
run, because until then a member may come back and process the missing records. A record may be
processed twice, because Kafka promises delivery at least once. Such duplicates are only counted.

A gap is permitted if

1. a member found no committed offset and began at the end of the log, as `auto.offset.reset` says.
   (But if the group had committed before, the commit was lost, and the gap is not permitted);
2. an administrator skipped the records, either by a commit for a group without members, or by the
   deletion of committed offsets;
3. the member that committed beyond the gap was killed, so that its last rows RECORDS_CONSUMED may
   be lost;
4. a consumer on ZooKeeper died between the fetch of a record and its processing
   (`_may_have_been_in_hand`);
5. records or commits were lost with the last in-sync replica (`lost_data`);
6. Kafka itself has forgotten the group's only commit, and the next member began at the end of the
   log (`forgotten_commits`).

Two more things are violations:

- A record that was acknowledged to a producer with acks=all is missing from the log of a later
  leader, or another record is acknowledged at the same offset (`acknowledged_records`). This is no
  violation if the partition lost data with its last in-sync replica.
- Within one assignment a member does not read, deliver and commit in order (`deliveries`).
"""

from dataclasses import dataclass, field

from chaos.checkers.base import Checker
from chaos.checkers.consumed import decode_consumed
from chaos.checkers.context import CheckContext
from chaos.checkers.evidence.acknowledged_records import (
    ACKNOWLEDGEMENT_KINDS,
    AcknowledgedRecords,
)
from chaos.checkers.evidence.board import Evidence
from chaos.checkers.evidence.commit_registers import GIVEN_UP_BY_THE_CLIENT
from chaos.checkers.evidence.deliveries import DELIVERY_KINDS, Deliveries
from chaos.checkers.evidence.intervals import IntervalSet
from chaos.checkers.evidence.lost_data import LOSS_KINDS
from chaos.checkers.evidence.owners import OWNER_KINDS, Owner
from chaos.checkers.evidence.transactions.forgotten_commits import FORGOTTEN
from protocol.causes import ORDERED_DELETIONS, PositionCause
from protocol.errors import ErrorCode
from protocol.trace import TraceKind, TraceRow
from results_schema.results import CheckReport

MAX_JUMPS = 256
"""Number of jumps that are kept for a partition. If there are more, the oldest are dropped.

A jump (see `_Jump`) may explain a gap.
"""
MAX_KEPT_COMMITS = 4_096
"""Largest number of commits in `_Partition.beyond`. A run without bugs has hardly any of them."""

IN_HAND = "skipped_by_a_commit_of_a_record_in_hand"
"""Name of a figure in the report: how many records are in gaps that reason 4 permits."""
_TIMED_OUT = ErrorCode.REQUEST_TIMED_OUT.name  # a commit with this error may be in the log


@dataclass(frozen=True, slots=True, kw_only=True)
class _Jump:
    """A member's step to a position beyond all records that the group had processed."""

    row: TraceRow  # POSITION_RESET, or RECORDS_CONSUMED that begins beyond the member's position
    before: TraceRow | None  # the group's last RECORDS_CONSUMED before the jump
    was_deleted: bool = False  # an administrator had deleted the committed offset
    # The last acknowledged commit, if no coordinator had stored any commit; otherwise None. A
    # commit that is acknowledged but not stored belongs to a transaction, because all other commits
    # are stored before they are acknowledged.
    unstored: TraceRow | None = None


@dataclass(slots=True)
class _Partition:
    """What one group has done with one partition."""

    processed: IntervalSet = field(default_factory=IntervalSet)  # offsets of processed records
    by_owner: dict[Owner, IntervalSet] = field(default_factory=dict)  # the same for each owner
    first_position: TraceRow | None = None
    first_commit: TraceRow | None = None  # the first commit of a member
    last_commit: TraceRow | None = None  # the commit with the largest acknowledged offset
    # Time at which an administrator deleted the committed offset, or at which the offset expired.
    # After the next commit this is None again.
    deleted_us: int | None = None
    answer: TraceRow | None = None  # OFFSETS_COMMITTED of the commit that was acknowledged last
    # Offset of the commit that a coordinator stored last. After a deletion this is None again.
    stored: int | None = None
    # offset -> a commit of this offset that was made when the group had not processed all records
    # below the offset. Such a commit may explain a gap, because the next member begins at this
    # offset.
    beyond: dict[int, TraceRow] = field(default_factory=dict)
    positions: dict[Owner, int] = field(default_factory=dict)  # each owner's next offset
    jumps: list[_Jump] = field(default_factory=list)
    last_row: TraceRow | None = None  # the last RECORDS_CONSUMED

    def remove(self, row: TraceRow) -> None:
        """Note that `row` shows the removal of the committed offset."""
        self.deleted_us = row.time_us
        self.stored = None


class Processing(Checker):
    """Every record is processed at least once, from the first committed position on."""

    name = "processing"
    promise = (
        "from the group's first committed position on (its first position, if it never commits), "
        "every record is processed at least once, up to what the group has reached; and the log of "
        "each new leader has every record that was acknowledged before with acks=all, and no two "
        "records are acknowledged so at one offset; in virtual time also: a member begins each "
        "partition at the committed offset that it fetched in the assignment, or where "
        "auto.offset.reset says, gets the records from there in order, commits only positions that "
        "it had, and tries to do so before it revokes the partition"
    )
    kinds = frozenset(
        {
            TraceKind.RECORDS_CONSUMED,
            TraceKind.POSITION_RESET,
            TraceKind.OFFSETS_COMMITTED,
            TraceKind.COMMIT_STORED,
            TraceKind.ADMIN_COMMIT,
            TraceKind.OFFSET_REMOVED,
            TraceKind.PENDING_COMMIT_REMOVED,
            TraceKind.ZOOKEEPER_OFFSET_COMMITTED,
            *OWNER_KINDS,
            *LOSS_KINDS,
            *ACKNOWLEDGEMENT_KINDS,
            *DELIVERY_KINDS,
        }
    )

    def __init__(self, context: CheckContext, evidence: Evidence | None = None) -> None:
        super().__init__(context, evidence)
        self._partitions: dict[tuple[str, str], _Partition] = {}
        self._owners = self.evidence.owners
        self._members: dict[str, Owner] = {}  # member id -> its process
        self._assigned_us: dict[str, int] = {}  # member id -> time of its last assignment
        self._killed: dict[str, TraceRow] = {}  # node -> its last NODE_KILLED
        self._ended_lives: dict[str, int] = {}  # node -> number of its processes that have ended
        self._duplicates = {
            "processed_again_by_the_same_member": 0,
            "processed_again_by_another_member": 0,
            "processed_again_while_two_owned_it": 0,
        }
        self._lost_data = self.evidence.lost_data
        self._expiry = self.evidence.expiry
        self._forgotten = self.evidence.forgotten_commits
        self._gaps_after_forgotten_commits = 0
        self._acknowledged = AcknowledgedRecords(context)
        self._deliveries = Deliveries(context, self._lost_data)
        self._broken_rules: dict[tuple[str, int], None] = {}  # (node, rule of `deliveries`)
        self._skipped = {
            "skipped_by_reset_to_latest": 0,
            "skipped_by_a_member_that_died": 0,
            "skipped_by_an_administrator": 0,
            "skipped_where_data_was_lost_with_the_last_replica": 0,
        }
        if context.zookeeper_groups:
            self._skipped[IN_HAND] = 0

    def judge(self, row: TraceRow) -> None:
        """Judge logs and deliveries, and remember for `finish` what members process and commit."""
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
                # If the administrator got an answer, the commit was refused, or also has a row
                # COMMIT_STORED. So only a commit without a certain answer is remembered here,
                # because it may be in the log although the row says that it failed.
                if row.error in GIVEN_UP_BY_THE_CLIENT or row.error == _TIMED_OUT:
                    self._remember_beyond(self._partition(row), row)
            case TraceKind.OFFSET_REMOVED | TraceKind.PENDING_COMMIT_REMOVED:
                if row.cause in ORDERED_DELETIONS:
                    self._offset_removed(row)
                elif self._expiry.is_due(row):
                    self._partition(row).remove(row)
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
        if row.kind in ACKNOWLEDGEMENT_KINDS:
            self._judge_log(row)
        if row.kind in DELIVERY_KINDS:
            self._judge_deliveries(row)
        if row.kind in OWNER_KINDS:
            for group, partition, owner in self._owners.ended:
                # A member that no longer owns a partition has no position in this partition.
                known = self._partitions.get((group, partition))
                if known is not None:
                    known.positions.pop(owner, None)

    def _judge_log(self, row: TraceRow) -> None:
        """Report acknowledged records that the log of a new leader lacks."""
        lost = self._acknowledged.observe(row)
        if lost is None or self._lost_data.of(lost.partition):
            return
        self.report_finding(
            f"{lost.partition}: record {lost.last} was acknowledged to {lost.acknowledged.node}, "
            f"and the log with which {row.node} leads epoch {row.leader_epoch} ends at "
            f"{row.offset}",
            [lost.acknowledged, row],
            partition=lost.partition,
        )

    def _judge_deliveries(self, row: TraceRow) -> None:
        """Report wrong reads and commits of a member, once for each node and rule."""
        for wrong in self._deliveries.observe(row):
            if (key := (row.node, wrong.rule)) in self._broken_rules:
                self.findings_total += 1  # the same violation again
                continue
            self._broken_rules[key] = None
            self.report_finding(
                wrong.summary, wrong.evidence, group=wrong.group, partition=wrong.partition
            )

    def _count_end(self, node: str) -> None:
        """Count the end of a process."""
        self._ended_lives[node] = self._ended_lives.get(node, 0) + 1

    def _offset_removed(self, row: TraceRow) -> None:
        """Note that an administrator has deleted a committed offset.

        The deletion also removes all offsets of the group that wait for the marker of a
        transaction. No row shows this. Such offsets were acknowledged, but are not stored yet.
        """
        self._partition(row).remove(row)
        expected = self.context.groups.get(row.group or "")
        if expected is None or not expected.transaction_partitions:
            return
        for (group, _), known in self._partitions.items():
            answered = None if known.answer is None else known.answer.offset
            if group == row.group and answered != known.stored:
                known.deleted_us = row.time_us

    # -- processed records --------------------------------------------------------------------

    def _partition(self, row: TraceRow) -> _Partition:
        key = (row.group or "", row.partition or "")
        known = self._partitions.get(key)
        if known is None:
            known = self._partitions[key] = _Partition()
        return known

    def _consumed(self, row: TraceRow) -> None:
        """Note the records from `row.offset` on that a member has processed."""
        if row.offset is None or row.detail is None:
            return
        known = self._partition(row)
        owner = (row.node, row.incarnation)
        start, end = row.offset, decode_consumed(row.detail).last + 1
        processed = known.processed
        reached = processed.end
        if reached is not None and start < reached:
            # Some of these records may have been processed before.
            self._count_again(known, owner, row, start, end)
        elif known.positions.get(owner, start) < start:
            # The member's position was before `start`, and it has left out the records in between.
            self._remember_jump(known, row)
        processed.add(start, end)
        processed_by_owner = known.by_owner.get(owner)
        if processed_by_owner is None:
            processed_by_owner = known.by_owner[owner] = IntervalSet()
        processed_by_owner.add(start, end)
        known.positions[owner] = end
        known.last_row = row

    def _count_again(
        self, known: _Partition, owner: Owner, row: TraceRow, start: int, end: int
    ) -> None:
        """Count the records from `start` to `end - 1` that the group has processed before."""
        again = known.processed.covered(start, end)
        if not again:
            return
        by_itself = known.by_owner[owner].covered(start, end) if owner in known.by_owner else 0
        self._duplicates["processed_again_by_the_same_member"] += by_itself
        self._duplicates["processed_again_by_another_member"] += again - by_itself
        if len(self._owners.of(row.group or "", row.partition or "")) > 1:
            self._duplicates["processed_again_while_two_owned_it"] += again

    def _position_reset(self, row: TraceRow) -> None:
        """Note that a member begins, or goes on, at another position."""
        if row.offset is None:
            return
        known = self._partition(row)
        known.positions[row.node, row.incarnation] = row.offset
        if known.first_position is None:
            known.first_position = row
        # If the position is beyond the processed records, the records in between are skipped.
        reached = known.processed.end
        start = known.first_position.offset if reached is None else reached
        if start is not None and row.offset > start:
            self._remember_jump(known, row)

    @staticmethod
    def _remember_jump(known: _Partition, row: TraceRow) -> None:
        """Keep a row with which records were skipped, to explain a gap at the end of the run."""
        known.jumps.append(
            _Jump(
                row=row,
                before=known.last_row,
                was_deleted=known.deleted_us is not None,
                unstored=known.answer if known.stored is None else None,
            )
        )
        del known.jumps[:-MAX_JUMPS]

    def _committed(self, row: TraceRow) -> None:
        """Note a committed offset, from the row of the client or of the broker."""
        if row.offset is None or row.group is None or row.partition is None:
            return
        known = self._partition(row)
        assigned_us = self._assigned_us.get(row.member or "", -1)
        if known.deleted_us is not None and assigned_us > known.deleted_us:
            # The member got its assignment after the deletion. So its commit also came after the
            # deletion, and now there is a committed offset again.
            known.deleted_us = None
        if row.kind == TraceKind.OFFSETS_COMMITTED:
            known.answer = row
        else:
            known.stored = row.offset
        if known.first_commit is None and not _is_of_administrator(row):
            known.first_commit = row
        last = known.last_commit
        if last is None or row.offset > (last.offset or 0):
            known.last_commit = row
        self._remember_beyond(known, row)

    @staticmethod
    def _remember_beyond(known: _Partition, row: TraceRow) -> None:
        """Keep a commit if it is beyond the processed records, even if its outcome is unknown."""
        reached, offset = known.processed.end, row.offset or 0
        if (reached is not None and offset <= reached) or len(known.beyond) >= MAX_KEPT_COMMITS:
            return
        before = known.beyond.get(offset)
        if before is None or not _is_of_administrator(before):
            # There may be two rows about a commit of this offset. A member's commit has a row of
            # the broker, and then a row of the client. The client's row is kept, because it names
            # the node. But an administrator's commit is not replaced. The next member begins at the
            # administrator's offset and commits the same offset again. The row of this second
            # commit would hide that the administrator skipped the records.
            known.beyond[offset] = row

    # -- the end ------------------------------------------------------------------------------

    def measured(self) -> dict[str, int]:
        """Return the numbers of duplicates and of records in permitted gaps so far."""
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
        """Judge the gaps of every partition, and report."""
        # A doubt is about two acknowledgements at the same offset. It is no violation if the
        # partition lost data in an allowed way. Only now it is known which partitions lost data.
        for doubt in self._acknowledged.doubts:
            if not self._lost_data.of(doubt.partition):
                self.report_finding(
                    f"{doubt.partition}: {doubt.claim}", doubt.rows, partition=doubt.partition
                )
        judged = gaps = 0
        for (group, partition), known in self._partitions.items():
            begin = known.first_commit or known.first_position
            # If clients from outside are members of a group, the trace does not show which records
            # these clients have processed.
            if begin is None or begin.offset is None or not self.context.is_seen(group):
                continue
            committed = known.last_commit.offset if known.last_commit is not None else None
            end = max(known.processed.end or 0, committed or 0)
            # `end` may be smaller than `begin.offset`, if the group has done nothing since `begin`.
            judged += max(0, end - begin.offset)
            for gap in known.processed.missing(begin.offset, end):
                gaps += 1
                self._judge_gap(group, partition, known, gap)
        figures = self.measured()
        excused = dict(self._deliveries.excused)
        if self._gaps_after_forgotten_commits:
            excused[FORGOTTEN] = self._gaps_after_forgotten_commits
        return self.report(
            judged=judged,
            seen={
                "partitions": len(self._partitions),
                "records_due": judged,
                "records_processed": figures["records_processed"],
                "gaps": gaps,
            },
            note="" if judged else "no record was due",
            excused=excused,
        )

    def _judge_gap(
        self, group: str, partition: str, known: _Partition, gap: tuple[int, int]
    ) -> None:
        """Count a permitted gap, or report the gap with the jump or commit that explains it.

        `gap` has the offset of the first missing record, and the offset after the last one.
        """
        start, end = gap
        expected = self.context.groups.get(group)
        sources = [partition]
        if expected is not None:
            sources += expected.coordinator_partitions
        if any(self._lost_data.of(source) for source in sources):  # reason 5
            self._skipped["skipped_where_data_was_lost_with_the_last_replica"] += end - start
            return
        if group in self.context.zookeeper_groups and self._may_have_been_in_hand(
            group, start, end
        ):  # reason 4
            self._skipped[IN_HAND] += end - start
            return
        jump = _jump_over(known.jumps, start, end)
        commit = known.beyond.get(end) or known.last_commit
        if commit is not None and (commit.offset or 0) <= start:
            commit = None  # a commit before the gap has skipped nothing
        # Reasons 1 to 3 and 6 depend on the jump over the gap and on the commit beyond the gap. If
        # none of these reasons permits the gap, `why` says how the gap came about, for the finding.
        # A jump has a cause only if its row is POSITION_RESET.
        cause = None if jump is None else jump.row.cause
        if jump is not None and cause == PositionCause.LATEST:
            if known.first_commit is None:  # reason 1
                self._skipped["skipped_by_reset_to_latest"] += end - start
                return
            if jump.was_deleted:  # reason 2
                self._skipped["skipped_by_an_administrator"] += end - start
                return
            if self._was_forgotten(group, known, jump):  # reason 6
                self._gaps_after_forgotten_commits += 1
                return
            why = (
                f"{jump.row.node} found no committed offset it could use, although "
                f"{known.first_commit.offset} and more had been committed, and started from the "
                "latest (auto.offset.reset)"
            )
            commit = None  # the reset skipped the records, not the commit
        elif commit is not None and self._has_lost_last_rows(commit):  # reason 3
            self._skipped["skipped_by_a_member_that_died"] += end - start
            return
        # This is reason 2 if an administrator skipped the records by a commit.
        elif commit is not None and commit.offset == end and _is_of_administrator(commit):
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
        self.report_finding(
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

    def _was_forgotten(self, group: str, known: _Partition, jump: _Jump) -> bool:
        """Return True if Kafka itself had forgotten the commit that the jump should have found."""
        commit, begun = jump.unstored, known.first_position
        if commit is None or begun is None:
            return False
        return self._forgotten.has_forgotten(group, commit.member, begun.time_us, jump.row.time_us)

    def _may_have_been_in_hand(self, group: str, start: int, end: int) -> bool:
        """Return True if consumers on ZooKeeper may have died with the records of a gap in hand.

        Such a consumer moves its position past a record first, and then passes the record to the
        application (ZK-35). If it commits between the two steps, and its process then ends, one
        record is committed and never processed. So a gap may have as many records as processes of
        the group's consumers have ended.
        """
        expected = self.context.zookeeper_groups[group]
        return end - start <= sum(self._ended_lives.get(name, 0) for name in expected.consumers)

    def _has_lost_last_rows(self, commit: TraceRow) -> bool:
        """Return True if the member of this commit was killed, and its last rows were lost.

        Rows were lost if the commit is known only from the broker's row, and not from the member's
        own row about the answer. Then rows RECORDS_CONSUMED of records that the member processed
        before the commit may also be lost.
        """
        if commit.kind != TraceKind.COMMIT_STORED:
            return False
        owner = self._members.get(commit.member or "")
        return owner is not None and owner[0] in self._killed


def _jump_over(jumps: list[_Jump], start: int, end: int) -> _Jump | None:
    """Return the jump that skipped the records from `start` to `end - 1`; None if there is none.

    A jump to exactly `end` is preferred to other jumps beyond `start`.
    """
    exact = [jump for jump in jumps if jump.row.offset == end]
    beyond = [jump for jump in jumps if (jump.row.offset or 0) > start]
    return next(iter(exact or beyond), None)


def _is_of_administrator(commit: TraceRow) -> bool:
    """Return True if a commit has no member, because an administrator made it."""
    return commit.kind != TraceKind.OFFSETS_COMMITTED and not commit.member


def _committer(commit: TraceRow) -> str:
    """Return who made a commit, for a finding."""
    if commit.kind == TraceKind.OFFSETS_COMMITTED:
        return f"{commit.node} (acknowledged by {commit.peer})"
    return commit.member or "a consumer without a member id"
