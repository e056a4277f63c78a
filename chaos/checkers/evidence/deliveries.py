"""What each member reads, delivers and commits in one assignment, for the checker `processing`.

A member is a process. Its position in a partition is the offset of the record that it delivers
next to its application. The class `_Place` stands for one partition in one assignment of one
process. Four rules hold for each place. They are judged by the rows of this process alone. These
rows have one clock and one order, so faults, late messages and other nodes cannot make them
contradict a rule.

1. The first position is the committed offset that the process fetched in this assignment. If no
   offset is committed, `auto.offset.reset` gives the first position. Later only
   `auto.offset.reset` may give another one, and only if the leader does not have the position.
2. Records are delivered in order from the position: none twice, none left out. A partition outside
   the assignment has no position, and no record of it is delivered. Records that the process
   fetched before a reset of the position may still be delivered after the reset.
3. The offset of a commit was a position in the generation of the commit. (A generation is numbered
   by the group's rebalances.) One exception is excused as STALE_COMMIT. Kafka's client gives an
   asynchronous commit its generation when it sends the commit
   (`ConsumerCoordinator.commitOffsetsAsync`). If the commit first waits for a lookup of the
   coordinator, a rebalance may come before it is sent. So the offset may be a position of an
   earlier generation, in which the process lost its coordinator.
4. Before a process revokes a partition, it tries to commit the last position, if members of its
   group commit at all. A successful or failed commit (COMMIT_FAILED) shows the attempt. After its
   row, a row about an older commit may come, which had waited for a lookup. An attempt without a
   coordinator or an answer leaves no row. The process then waits for `commit_patience_us` after its
   last record. A partition that the process lost (PARTITIONS_LOST) cannot be committed. One
   exception is excused as LOST_POSITION. If the partition lost data as Kafka allows, the position
   may be beyond the end of the log. From the answer OFFSET_OUT_OF_RANGE until its reset the process
   has no position that it could commit (`SubscriptionState.allConsumed`).

The rules are judged only in virtual time (the simulated clock of a run), where no row is missing.
They are judged only for topics without transactions, because a position also moves past the markers
that end transactions.
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
"""A process's positions are kept for so many generations.

The answer to a commit may come some rebalances later.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class WrongDelivery:
    """A breach of rule number `rule`. The last row of `evidence` breaks the rule."""

    rule: int
    group: str
    partition: str
    summary: str
    evidence: list[TraceRow]


@dataclass(slots=True)
class _Place:
    """One partition in one assignment of one process."""

    assigned: TraceRow
    fetched: TraceRow | None = None  # the row of the last fetched committed offset
    position: int | None = None  # the offset after the last delivered record
    moved_by: TraceRow | None = None  # the row that set `position`
    # The last reset of the position, until a record from the new position is delivered.
    reset: TraceRow | None = None
    # A commit since `position` was set: one that makes `is_tried` True, or else the last one.
    outcome: TraceRow | None = None

    @property
    def has_begun(self) -> bool:
        """True once the place has a position."""
        return self.position is not None or self.reset is not None

    @property
    def is_tried(self) -> bool:
        """True if the process tried to commit the position: a failed commit counts, too."""
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
    """The positions of one partition in one generation of a process: from `least` to `most`."""

    least: int
    most: int


@dataclass(slots=True)
class _Process:
    """One life of a member: its present assignment, and the positions of its last generations.

    Member id and generation number identify a generation. A group that lost its log may use a
    number twice. Then the two generations count as one.
    """

    assigned: TraceRow | None = None
    places: dict[str, _Place] = field(default_factory=dict)  # by partition
    reached: dict[tuple[str, int], dict[str, _Reached]] = field(default_factory=dict)
    worked_us: int = 0  # when it was assigned, or last processed a record
    # The kept generations in which the process lost its coordinator and searched for it.
    searched: dict[tuple[str, int], None] = field(default_factory=dict)

    @property
    def generation(self) -> tuple[str, int]:
        """Member id and generation of the present or last assignment; empty before the first."""
        assigned = self.assigned
        return ("", 0) if assigned is None else (assigned.member or "", assigned.generation or 0)


class Deliveries:
    """Judges the rows of all members of the groups that a coordinator serves."""

    def __init__(self, context: CheckContext, lost_data: LostData | None = None) -> None:
        """Keep the deliveries of a run; `lost_data` is the checkers' (None: nothing is lost)."""
        self._context = context
        self._processes: dict[Owner, _Process] = {}
        self.excused: Counter[str] = Counter()
        self._lost_data = LostData() if lost_data is None else lost_data
        """Numbers of permitted exceptions by name."""

    def observe(self, row: TraceRow) -> Iterator[WrongDelivery]:
        """Take a row of DELIVERY_KINDS, and yield what it breaks."""
        group = row.group or ""
        if group not in self._context.groups or not self._context.in_virtual_time:
            return
        owner = (row.node, row.incarnation)
        process = self._processes.get(owner)
        if process is None:
            if row.kind in (TraceKind.OFFSETS_FETCHED, TraceKind.COORDINATOR_UNKNOWN):
                # Not an assigned member: an administrator, a member that is still joining, or the
                # driver of the run, which reads the committed offsets at its end.
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
                if place is not None and row.cause is None:
                    place.fetched = row
            case TraceKind.COORDINATOR_UNKNOWN:
                if process.places:
                    process.searched[process.generation] = None
            case TraceKind.POSITION_RESET:
                yield from self._judge_reset(process, row)
            case TraceKind.RECORDS_CONSUMED:
                yield from self._judge_delivery(process, row)
            case _:
                yield from self._judge_commit(process, row)

    # -- the assignment -----------------------------------------------------------------------

    @staticmethod
    def _assign(process: _Process, row: TraceRow) -> None:
        process.assigned = row
        process.places = {name: _Place(row) for name in detail_of(row).get("partitions", ())}
        process.worked_us = row.time_us
        key = process.generation
        # Move the generation to the end of the dict, so that the first entry is the oldest.
        process.reached[key] = process.reached.pop(key, {})
        while len(process.reached) > KEPT_GENERATIONS:
            oldest = next(iter(process.reached))
            del process.reached[oldest]
            process.searched.pop(oldest, None)

    def _judge_revocation(self, process: _Process, row: TraceRow) -> Iterator[WrongDelivery]:
        """Report places whose last position the member has not tried to commit."""
        expected = self._context.groups[row.group or ""]
        waited_us = row.time_us - process.worked_us
        if not expected.commits or waited_us >= expected.commit_patience_us:
            return
        for partition, place in process.places.items():
            moved, outcome = place.moved_by, place.outcome
            if moved is None or place.reset is not None:
                continue  # nothing was delivered, or nothing since a reset
            if place.is_tried:
                continue
            if self._lost_data.of(partition):
                self.excused[LOST_POSITION] += 1
                continue
            what = "without a commit" if outcome is None else f"after a commit of {outcome.offset}"
            rows = [*place.rows(), *([] if outcome is None else [outcome]), row]
            what = f"revoked it at position {place.position} {what}"
            yield _wrong(4, row, partition, what, rows)

    # -- positions ----------------------------------------------------------------------------

    def _judge_reset(self, process: _Process, row: TraceRow) -> Iterator[WrongDelivery]:
        """Judge where a place begins, or is reset to."""
        partition = row.partition or ""
        place = process.places.get(partition)
        if place is None:
            yield _not_assigned(process, row, f"set a position, {row.offset}, in it")
            return
        fetched = place.fetched
        if row.cause != PositionCause.COMMITTED:
            # `auto.offset.reset` set this position. At the beginning of a place this is allowed
            # only if the fetch has shown that nothing is committed (offset -1). Later it is always
            # allowed.
            if not place.has_begun and (fetched is None or (fetched.offset or 0) >= 0):
                what = f"began at {row.offset} ({row.cause}), " + (
                    "and had not fetched the committed offset in this assignment"
                    if fetched is None
                    else f"although it had fetched the committed offset {fetched.offset}"
                )
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
        """Judge the first of the delivered records, and move the position past the last one."""
        partition, first = row.partition or "", row.offset or 0
        last = decode_consumed(row.detail or b"").last
        process.worked_us = row.time_us
        place = process.places.get(partition)
        if place is None:
            yield _not_assigned(process, row, f"got records {first} to {last} of it")
            return
        # After a reset, records may continue at the new position (first branch). Records that were
        # fetched before may also continue at the old position (no branch).
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
        """Extend the positions of the present generation."""
        of_generation = process.reached[process.generation]
        reached = of_generation.get(partition)
        if reached is None:
            of_generation[partition] = _Reached(offset, offset)
        else:
            reached.least = min(reached.least, offset)
            reached.most = max(reached.most, offset)

    # -- commits ------------------------------------------------------------------------------

    def _judge_commit(self, process: _Process, row: TraceRow) -> Iterator[WrongDelivery]:
        """Judge the offset of a commit by the positions of its generation."""
        partition, offset = row.partition or "", row.offset or 0
        place = process.places.get(partition)
        if row.kind == TraceKind.COMMIT_FAILED:
            if place is not None and not place.is_tried:
                place.outcome = row
            return
        if place is not None and not place.is_tried and place.assigned.generation == row.generation:
            place.outcome = row
        reached = process.reached.get((row.member or "", row.generation or 0), {}).get(partition)
        if reached is not None and reached.least <= offset <= reached.most:
            return
        # Rule 3 excuses a stale commit, which has a position of an earlier generation.
        for generation in process.searched:
            earlier = process.reached[generation].get(partition)
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
