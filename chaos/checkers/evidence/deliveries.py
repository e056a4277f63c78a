"""What each member reads, delivers and commits in one assignment, for the checker `processing`.

While a partition is assigned to a member, the member has a position in it: the offset of the record
that it will deliver next to its application. Four rules say how a position may move and be
committed. They are judged by rows of the member's own process only. A process writes its rows in
one order and with one clock. So, however bad the faults and the network are, a correct member
breaks none of these rules.

1. The first position in an assignment is the committed offset that the member has fetched in this
   assignment. If nothing is committed, `auto.offset.reset` gives the first position. Later, too,
   `auto.offset.reset` may move the position, if the leader's log no longer has a record there.
2. Records are delivered in order from the position on: none twice, none left out. No record is
   delivered of a partition that is not assigned. After a reset of the position, the member may
   still deliver records that it fetched before the reset.
3. If a member commits an offset in some generation, the offset was its position at some time in
   that generation.
4. Before a member revokes a partition in a rebalance, it tries to commit its last position, if
   members of this group commit at all. It cannot commit a partition that it lost (PARTITIONS_LOST).

Rule 3 has one exception, which is excused as STALE_COMMIT. An asynchronous commit gets its
generation only when the client sends it (Kafka `ConsumerCoordinator.commitOffsetsAsync`):

1. The member wants to commit position 40 in generation 5. It has lost its coordinator, so the
   commit waits until the coordinator is found.
2. A rebalance begins generation 6.
3. The commit of position 40 is sent with generation 6, in which the member never was at 40.

For rule 4, a row about a commit shows the attempt, even if the commit failed (COMMIT_FAILED).
- An attempt may leave no row, if there is no coordinator or no answer. The member then waits for
  `commit_patience_us` before it gives up, so a revocation after such a wait is not judged.
- A row about an older commit, which had waited for a lookup of the coordinator, may come after the
  last attempt. Such a row does not undo the attempt.
- One exception is excused as LOST_POSITION. If the partition lost data in a way that Kafka allows,
  the position may be beyond the end of the log. From the answer OFFSET_OUT_OF_RANGE until the reset
  the member has no position that it could commit (`SubscriptionState.allConsumed`).

The rules are judged only in virtual time (the simulated clock of a run), where no row is missing.
They are judged only for topics without transactions. Where producers write in transactions, a
position also moves past the markers that end the transactions, and no row shows this.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from chaos.checkers.consumed import decode_consumed
from chaos.checkers.context import CheckContext, detail_of
from chaos.checkers.evidence.lost_data import LostData
from chaos.checkers.evidence.owners import Owner
from protocol.causes import PositionCause
from protocol.trace import TraceKind, TraceRow

DELIVERY_KINDS = frozenset(
    {
        TraceKind.PARTITIONS_ASSIGNED,
        TraceKind.PARTITIONS_REVOKED,
        TraceKind.PARTITIONS_LOST,
        TraceKind.OFFSETS_FETCHED,
        TraceKind.POSITION_RESET,
        TraceKind.RECORDS_CONSUMED,
        TraceKind.OFFSETS_COMMITTED,
        TraceKind.COMMIT_FAILED,
        TraceKind.COORDINATOR_UNKNOWN,
    }
)
"""Kinds of rows that Deliveries must see."""
STALE_COMMIT = "commit of an earlier generation that waited for the coordinator"
"""Name of the excuse in rule 3."""
LOST_POSITION = "revoked without a commit after a loss of the partition's data"
"""Name of the excuse in rule 4."""
KEPT_GENERATIONS = 8
"""Number of a process's last generations for which its positions are kept.

One generation would not do, because the answer to a commit may come some rebalances later.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class WrongDelivery:
    """A breach of one of the four rules; `rule` is its number.

    The last row of `evidence` is the row that breaks the rule.
    """

    rule: int
    group: str
    partition: str
    summary: str
    evidence: list[TraceRow]


@dataclass(slots=True)
class _Place:
    """One partition in one assignment of one process; the code calls this a place."""

    assigned: TraceRow  # PARTITIONS_ASSIGNED
    fetched: TraceRow | None = None  # the last OFFSETS_FETCHED: the committed offset
    position: int | None = None  # the offset after the last delivered record
    moved_by: TraceRow | None = None  # the last RECORDS_CONSUMED
    # The row that set the position other than by a delivery: POSITION_RESET. None again when a
    # record from the new position has been delivered.
    reset: TraceRow | None = None
    # The first row since the last delivery that proves an attempt to commit `position` (see
    # `is_tried`). Before that row comes, `outcome` is the last row about any commit.
    outcome: TraceRow | None = None

    @property
    def has_begun(self) -> bool:
        """True once the place has a position."""
        return self.position is not None or self.reset is not None

    @property
    def is_tried(self) -> bool:
        """True if the process has tried to commit the position, even without success."""
        outcome = self.outcome
        return outcome is not None and (
            outcome.kind == TraceKind.COMMIT_FAILED or outcome.offset == self.position
        )

    def rows(self) -> list[TraceRow]:
        """Return the rows that show how the place came to its position."""
        return [
            row
            for row in (self.assigned, self.fetched, self.moved_by, self.reset)
            if row is not None
        ]


@dataclass(slots=True)
class _Reached:
    """The lowest and the highest position of a process in one partition and one generation."""

    least: int
    most: int


@dataclass(slots=True)
class _Process:
    """One life of a member: its present assignment, and the positions of its last generations.

    A generation is identified by the member id and the generation number. A group that lost its log
    may count from the beginning again, so that a number occurs twice. The two generations then
    count as one.
    """

    assigned: TraceRow | None = None  # the last PARTITIONS_ASSIGNED
    places: dict[str, _Place] = field(default_factory=dict)  # by partition
    # generation -> partition -> its positions in that generation
    reached: dict[tuple[str, int], dict[str, _Reached]] = field(default_factory=dict)
    worked_us: int = 0  # time of the last assignment or of the last delivery, whichever is later
    # The generations in which the process lost its coordinator and had to search for it.
    searched: dict[tuple[str, int], None] = field(default_factory=dict)

    @property
    def generation(self) -> tuple[str, int]:
        """Member id and generation of the present or last assignment; empty before the first."""
        assigned = self.assigned
        return ("", 0) if assigned is None else (assigned.member or "", assigned.generation or 0)


class Deliveries:
    """Judges the rows of all members of the groups that a coordinator serves."""

    def __init__(self, context: CheckContext, lost_data: LostData | None = None) -> None:
        """Make an object that has seen no row.

        `lost_data` tells which partitions have lost data. If it is None, no partition counts as
        having lost data.
        """
        self._context = context
        self._processes: dict[Owner, _Process] = {}
        self.excused: Counter[str] = Counter()
        """How often each excuse (STALE_COMMIT, LOST_POSITION) was used."""
        self._lost_data = LostData() if lost_data is None else lost_data

    def observe(self, row: TraceRow) -> Iterator[WrongDelivery]:
        """Take a row of DELIVERY_KINDS, and yield each breach of a rule that it shows."""
        group = row.group or ""
        if group not in self._context.groups or not self._context.in_virtual_time:
            return
        owner = (row.node, row.incarnation)
        process = self._processes.get(owner)
        if process is None:
            if row.kind in (TraceKind.OFFSETS_FETCHED, TraceKind.COORDINATOR_UNKNOWN):
                # Such rows also come from an administrator, from a member that is still joining,
                # and from the driver of the run, which reads the committed offsets at the end. None
                # of them has an assignment, so there is nothing to judge.
                return
            process = self._processes[owner] = _Process()
        match row.kind:
            case TraceKind.PARTITIONS_ASSIGNED:
                self._assign(process, row)
            case TraceKind.PARTITIONS_REVOKED:
                yield from self._judge_revocation(process, row)
                process.places = {}
            case TraceKind.PARTITIONS_LOST:
                process.places = {}
            case TraceKind.OFFSETS_FETCHED:
                place = process.places.get(row.partition or "")
                # A row with a cause is about a fetch by the driver, and not by this member.
                if place is not None and row.cause is None:
                    place.fetched = row
            case TraceKind.COORDINATOR_UNKNOWN:
                # From now on a commit may have to wait for a lookup (STALE_COMMIT).
                if process.places:
                    process.searched[process.generation] = None
            case TraceKind.POSITION_RESET:
                yield from self._judge_reset(process, row)
            case TraceKind.RECORDS_CONSUMED:
                yield from self._judge_delivery(process, row)
            case _:  # OFFSETS_COMMITTED or COMMIT_FAILED
                yield from self._judge_commit(process, row)

    # -- the assignment -----------------------------------------------------------------------

    @staticmethod
    def _assign(process: _Process, row: TraceRow) -> None:
        process.assigned = row
        partitions = detail_of(row).get("partitions", ())
        process.places = {partition: _Place(assigned=row) for partition in partitions}
        process.worked_us = row.time_us
        key = process.generation
        # Move the generation to the end of the dict, so that the first entry is the oldest.
        process.reached[key] = process.reached.pop(key, {})
        while len(process.reached) > KEPT_GENERATIONS:
            oldest = next(iter(process.reached))
            del process.reached[oldest]
            process.searched.pop(oldest, None)

    def _judge_revocation(self, process: _Process, row: TraceRow) -> Iterator[WrongDelivery]:
        """Report partitions whose last position the member has not tried to commit (rule 4)."""
        expected = self._context.groups[row.group or ""]
        waited_us = row.time_us - process.worked_us
        if not expected.commits or waited_us >= expected.commit_patience_us:
            return  # in the second case, an attempt to commit may have left no row
        for partition, place in process.places.items():
            moved, outcome = place.moved_by, place.outcome
            if moved is None or place.reset is not None:
                continue  # nothing was delivered, or nothing since a reset
            if place.is_tried:
                continue
            if self._lost_data.of(partition):
                self.excused[LOST_POSITION] += 1
                continue
            if outcome is None:
                last_commit, rows = "without a commit", [*place.rows(), row]
            else:
                last_commit = f"after a commit of {outcome.offset}"
                rows = [*place.rows(), outcome, row]
            what = f"revoked it at position {place.position} {last_commit}"
            yield _wrong(4, row, partition, what, rows)

    # -- positions ----------------------------------------------------------------------------

    def _judge_reset(self, process: _Process, row: TraceRow) -> Iterator[WrongDelivery]:
        """Judge the first position of an assignment, or a later reset of the position (rule 1)."""
        partition = row.partition or ""
        place = process.places.get(partition)
        if place is None:
            yield _not_assigned(process, row, f"set a position, {row.offset}, in it")
            return
        fetched = place.fetched
        if row.cause != PositionCause.COMMITTED:
            # `auto.offset.reset` gave this position. As the first position it is allowed only if
            # the member has fetched the committed offset and found none (offset -1). Later it is
            # always allowed.
            if not place.has_begun and (fetched is None or (fetched.offset or 0) >= 0):
                known = (
                    "and had not fetched the committed offset in this assignment"
                    if fetched is None
                    else f"although it had fetched the committed offset {fetched.offset}"
                )
                what = f"began at {row.offset} ({row.cause}), {known}"
                yield _wrong(1, row, partition, what, [*place.rows(), row])
        elif place.has_begun:
            what = f"went from {place.position} to a committed offset, {row.offset}"
            yield _wrong(1, row, partition, what, [*place.rows(), row])
        elif fetched is None or fetched.offset != row.offset:
            known = "it fetched none" if fetched is None else f"it fetched {fetched.offset}"
            what = f"began at the committed offset {row.offset}, but {known} in this assignment"
            yield _wrong(1, row, partition, what, [*place.rows(), row])
        place.reset = row
        self._note_position(process, partition, row.offset or 0)

    def _judge_delivery(self, process: _Process, row: TraceRow) -> Iterator[WrongDelivery]:
        """Judge the first of the delivered records (rule 2); move the position past the last."""
        partition, first = row.partition or "", row.offset or 0
        last = decode_consumed(row.detail or b"").last
        process.worked_us = row.time_us
        place = process.places.get(partition)
        if place is None:
            yield _not_assigned(process, row, f"got records {first} to {last} of it")
            return
        # After a reset there are two legal cases. The records begin at the new position, and the
        # reset is over. Or they were fetched before the reset and continue at the old position:
        # then none of the two conditions below is true, and the reset is not over.
        if place.reset is not None and first == place.reset.offset:
            place.reset = None
        elif place.position is None or first != place.position:
            expected = place.position if place.reset is None else place.reset.offset
            what = f"got records {first} to {last} while its position was {expected}"
            yield _wrong(2, row, partition, what, [*place.rows(), row])
            place.reset = None
        place.position, place.moved_by, place.outcome = last + 1, row, None
        self._note_position(process, partition, last + 1)

    @staticmethod
    def _note_position(process: _Process, partition: str, offset: int) -> None:
        """Note a position among those that the process has had in its present generation."""
        of_generation = process.reached[process.generation]
        reached = of_generation.get(partition)
        if reached is None:
            of_generation[partition] = _Reached(least=offset, most=offset)
        else:
            reached.least = min(reached.least, offset)
            reached.most = max(reached.most, offset)

    # -- commits ------------------------------------------------------------------------------

    def _judge_commit(self, process: _Process, row: TraceRow) -> Iterator[WrongDelivery]:
        """Judge the offset of a commit by the positions of its generation (rule 3)."""
        partition, offset = row.partition or "", row.offset or 0
        place = process.places.get(partition)
        # First note the attempt for rule 4, unless an earlier row has already proved one.
        if row.kind == TraceKind.COMMIT_FAILED:
            if place is not None and not place.is_tried:
                place.outcome = row
            return
        if place is not None and not place.is_tried and place.assigned.generation == row.generation:
            place.outcome = row
        generation = (row.member or "", row.generation or 0)
        reached = process.reached.get(generation, {}).get(partition)
        if reached is not None and reached.least <= offset <= reached.most:
            return
        # The commit may have waited for a lookup of the coordinator (STALE_COMMIT). Then its offset
        # was a position in an earlier generation in which the member searched for its coordinator.
        for searched in process.searched:
            earlier = process.reached[searched].get(partition)
            if earlier is not None and earlier.least <= offset <= earlier.most:
                self.excused[STALE_COMMIT] += 1
                return
        rows = [row] if place is None else [*place.rows(), row]
        if reached is None:
            what = f"committed {offset} in generation {row.generation}, in which it had no position"
        else:
            what = (
                f"committed {offset} in generation {row.generation}, in which its positions were "
                f"{reached.least} to {reached.most}"
            )
        yield _wrong(3, row, partition, what, rows)


def _wrong(
    rule: int, row: TraceRow, partition: str, what: str, evidence: list[TraceRow]
) -> WrongDelivery:
    """Return a breach of the rule with this number.

    An example of its summary is `g, orders-0: consumer-a-1 began at 7 (...)`.
    """
    group = row.group or ""
    return WrongDelivery(
        rule=rule,
        group=group,
        partition=partition,
        summary=f"{group}, {partition}: {row.node} {what}",
        evidence=evidence,
    )


def _not_assigned(process: _Process, row: TraceRow, what: str) -> WrongDelivery:
    """Return the WrongDelivery for a row about a partition outside the present assignment."""
    rows = [row] if process.assigned is None else [process.assigned, row]
    return _wrong(2, row, row.partition or "", f"{what}, which was not assigned to it", rows)
