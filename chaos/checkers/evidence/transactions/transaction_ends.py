"""Check that a transaction ends in a group as its coordinator decided.

If the decision is to commit, the group must count the transaction's offsets. If the decision is to
abort, the group must forget them. The decision is a TRANSACTION_STATE row of the transaction
coordinator. The group's coordinator gets the transaction's marker (the record that ends the
transaction in a partition) later. Its row TRANSACTION_COMPLETED is the end in the group. Sometimes
the marker arrives after the next decision for the same producer. So any decision since the
transaction's first offset in the group may match its end. Sometimes no decision matches, or only a
decision that is later than the transaction's own. Then the end may still be a late end (see the
last list below).

An end is not judged in three cases:
- No decision is known. The transaction coordinator may have died after its decision and before its
  row, and a coordinator that loads this decision writes no such row.
- The marker may belong to another transaction, because the decision on this transaction had been
  carried out everywhere before. (If a coordinator loads a group together with the marker, no row
  shows the end.)
- The log of transactions lost data with its last in-sync replica (`lost_data`), and has only an
  older decision now.

As in Kafka, the end of the producer's previous transaction may come late (`forgotten_commits`), and
then end the present transaction, too. An end counts as such a late end if three conditions hold:
1. The previous transaction was decided before the present one committed anything in the group, and
   this decision is the one that the end shows.
2. The previous transaction has not ended in the group before.
3. The group's coordinator has completed a load since that decision.

The late end of an aborted transaction may find offsets of its own transaction and of the next one,
and remove them together. Then condition 3 is enough, because the end shows its own decision.

The late end of a committed transaction may count no offset. In this case it found an offset of the
next transaction in the same partition, whose append was in progress, and removed it. That offset
had replaced the offsets of the ended transactions, so these are forgotten, too.

A transaction coordinator may load the decision of a coordinator that died, perhaps before it wrote
the row of the decision. The new coordinator then writes the markers (again) and completes the
transaction. So for a late end, this load counts as a decision of the transaction, too.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from chaos.checkers.context import detail_of
from chaos.checkers.evidence.lost_data import LostData
from protocol.trace import TraceKind, TraceRow

END_KINDS = frozenset(
    {
        TraceKind.TRANSACTION_STATE,
        TraceKind.TRANSACTIONS_LOADED,
        TraceKind.TXN_COMMIT_PENDING,
        TraceKind.TRANSACTION_COMPLETED,
        TraceKind.LOAD_COMPLETED,
        TraceKind.APPEND_STARTED,
        TraceKind.APPEND_COMPLETED,
    }
)
"""Kinds of rows that TransactionEnds must see."""
MAX_KEPT_DECISIONS = 16
"""Number of a producer's decisions that are kept: the most recent ones."""
_COMMIT, _ABORT = "PrepareCommit", "PrepareAbort"
"""States of a transaction whose outcome is decided: the two decisions."""
_CARRIED_OUT = ("CompleteCommit", "CompleteAbort")
"""States of a transaction whose markers are all written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WrongEnd:
    """A group acted against the decision, or two transactional ids got one producer id.

    `evidence` has the rows of the decisions and of the end, or the rows with the producer id.
    """

    summary: str
    evidence: list[TraceRow]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Markers:
    """Markers that a transaction coordinator writes after it made or loaded a decision.

    - `since_us`: time of the decision, or of the load.
    - `state`: the decision, PrepareCommit or PrepareAbort.
    """

    since_us: int
    state: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _End:
    """The end of a transaction in a group.

    - `row`: the TRANSACTION_COMPLETED.
    - `pending`: the rows of the producer's offsets that this end ended, the oldest first.
    - `ended_us`: time of the previous end of the same producer in the group; -1: this is the first.
    - `loaded_us`: time of the broker's last load of a partition before the end; -1: it has loaded
      none.
    - `is_over`: True if the transaction of `since` had been carried out before. Then the end may
      belong to another transaction.
    - `is_replaced`: True if an append was in progress whose offset can have replaced the pending
      ones. It is True only if the end came behind a load, and counted no offset although it
      commits.
    """

    row: TraceRow
    pending: list[TraceRow]
    producer_id: int
    ended_us: int
    loaded_us: int
    is_over: bool
    is_replaced: bool

    @property
    def since(self) -> TraceRow:
        """The row of the first pending offset."""
        return self.pending[0]


class TransactionEnds:
    """Follows the decisions for each producer, and checks every end in a group.

    `clock_error_us` is the largest difference between the clocks of two nodes. The caller keeps
    `lost_data` up to date.
    """

    def __init__(self, clock_error_us: int, lost_data: LostData) -> None:
        self._margin_us = clock_error_us
        self._lost_data = lost_data
        self._decisions: dict[int, deque[TraceRow]] = {}  # by producer id
        self._markers: dict[int, deque[_Markers]] = {}  # by producer id
        # (transaction coordinator, incarnation, leader epoch, transactional id) -> the markers of a
        # decision that the coordinator has loaded, until the id's first change of state
        self._to_complete: dict[tuple[str, int, int | None, str], _Markers] = {}
        # producer id -> time at which its last decision had been carried out in all partitions
        self._carried_out_us: dict[int, int] = {}
        # (group, producer id) -> the rows of the producer's offsets since its last end
        self._pending: dict[tuple[str, int], list[TraceRow]] = {}
        self._ends: deque[_End] = deque()  # not judged yet
        self._loaded_us: dict[str, int] = {}  # broker -> its last load
        self._ended_us: dict[tuple[str, int], int] = {}  # (group, producer id): the last end
        # producer id -> the first TRANSACTION_STATE with it
        self._given: dict[int, TraceRow] = {}
        self.late: list[tuple[TraceRow, TraceRow]] = []
        """Pairs: the first offset that a late end ended by mistake, and the late end."""
        self.emptied: list[tuple[TraceRow, TraceRow]] = []
        """Pairs: an offset whose append was in progress when an end behind a load removed it, and
        this end."""
        # (group, producer id) -> an end that came behind a load, and the appends in progress then
        self._behind_load: dict[tuple[str, int], tuple[TraceRow, frozenset[int | None]]] = {}
        # (broker, incarnation) -> append ids of the appends in progress
        self._appends: dict[tuple[str, int], dict[int | None, None]] = {}

    def observe(self, row: TraceRow) -> Iterator[WrongEnd]:
        """Take a row of END_KINDS; yield the violations that are certain now."""
        if row.kind == TraceKind.LOAD_COMPLETED:
            self._loaded_us[row.node] = row.time_us
            return
        # The append id is in the column `correlation_id`.
        if row.kind == TraceKind.APPEND_STARTED:
            self._appends.setdefault((row.node, row.incarnation), {})[row.correlation_id] = None
            return
        if row.kind == TraceKind.APPEND_COMPLETED:
            self._appends.get((row.node, row.incarnation), {}).pop(row.correlation_id, None)
            return
        detail = detail_of(row)
        if row.kind == TraceKind.TRANSACTIONS_LOADED:
            for name, state in detail.get("open", {}).items():
                if state in (_COMMIT, _ABORT):
                    self._to_complete[row.node, row.incarnation, row.leader_epoch, name] = _Markers(
                        since_us=row.time_us, state=state
                    )
            return
        producer_id = detail["producer_id"]
        if row.kind == TraceKind.TRANSACTION_STATE:
            self._note_markers(row, producer_id)
            # Decisions and ends are matched by producer id. So an id must be valid, and belong to
            # one transactional id only.
            first = self._given.setdefault(producer_id, row)
            if first is row and producer_id < 0:
                yield WrongEnd(
                    summary=f"{detail['transactional_id']} has the producer id {producer_id}, "
                    "but valid ids begin at 0",
                    evidence=[row],
                )
            if detail_of(first)["transactional_id"] != detail["transactional_id"]:
                self._given[producer_id] = row
                yield WrongEnd(
                    summary=f"producer id {producer_id} was given to two transactional ids, so it "
                    "does not identify the transaction that ends",
                    evidence=[first, row],
                )

        match row.kind:
            case TraceKind.TRANSACTION_STATE if detail["to"] in (_COMMIT, _ABORT):
                known = self._decisions.setdefault(producer_id, deque(maxlen=MAX_KEPT_DECISIONS))
                known.append(row)
            case TraceKind.TRANSACTION_STATE if detail["to"] in _CARRIED_OUT:
                self._carried_out_us[producer_id] = row.time_us
            case TraceKind.TXN_COMMIT_PENDING:
                offsets = self._pending.setdefault((row.group or "", producer_id), [])
                if offsets and self._has_ended_in_the_log(offsets[-1], row, producer_id):
                    offsets.clear()
                offsets.append(row)
                self._take_emptied((row.group or "", producer_id), row)
            case TraceKind.TRANSACTION_COMPLETED:
                key = (row.group or "", producer_id)
                is_behind_load = self._is_behind_load(row, producer_id)
                appends = self._appends.get((row.node, row.incarnation), {})
                if is_behind_load:
                    self._behind_load[key] = (row, frozenset(appends))
                pending = self._pending.pop(key, None)
                ended_us = self._ended_us.get(key, -1)
                self._ended_us[key] = row.time_us
                if pending is None:
                    return  # without its first offset, its decision cannot be found
                self._ends.append(
                    _End(
                        row=row,
                        pending=pending,
                        producer_id=producer_id,
                        ended_us=ended_us,
                        loaded_us=self._loaded_us.get(row.node, -1),
                        is_over=self._is_over(pending[0], row, producer_id),
                        is_replaced=is_behind_load
                        and bool(appends)
                        and detail["committed"]
                        and not detail["offsets"],
                    )
                )
            case _:
                pass

        # Another node wrote the decision. It came before the end, but may have a later time by that
        # node's clock. So an end is judged only when rows within the clock error can no longer
        # come.
        yield from self._judge(row.time_us - self._margin_us)

    def finish(self) -> Iterator[WrongEnd]:
        """Yield the violations of the last ends."""
        yield from self._judge(None)

    def _note_markers(self, row: TraceRow, producer_id: int) -> None:
        """Note the markers of a decision, or those of a loaded decision that is carried out now."""
        detail = detail_of(row)
        # The row of the load has no producer id, so its markers are noted at this row.
        loaded = self._to_complete.pop(
            (row.node, row.incarnation, row.leader_epoch, detail["transactional_id"]), None
        )
        if detail["to"] in (_COMMIT, _ABORT):
            markers = _Markers(since_us=row.time_us, state=detail["to"])
        elif loaded is not None and detail["to"] in _CARRIED_OUT:
            markers = loaded
        else:
            return
        self._markers.setdefault(producer_id, deque(maxlen=MAX_KEPT_DECISIONS)).append(markers)

    def _has_ended_in_the_log(self, known: TraceRow, row: TraceRow, producer_id: int) -> bool:
        """Return True if `known` was at another coordinator than `row`, and has ended since.

        The coordinator of `row` has loaded the group together with the marker, so no row shows the
        end.
        """
        is_same_life = (known.node, known.incarnation) == (row.node, row.incarnation)
        carried_out_us = self._carried_out_us.get(producer_id, -1)
        return not is_same_life and known.time_us + self._margin_us < carried_out_us

    def _take_emptied(self, key: tuple[str, int], pending: TraceRow) -> None:
        """Note that a late end has removed `pending`, whose append was in progress at that end."""
        end, appends = self._behind_load.get(key, (None, frozenset()))
        if end is None:
            return
        # Each incarnation of a broker counts its append ids anew.
        is_same_life = (pending.node, pending.incarnation) == (end.node, end.incarnation)
        if is_same_life and pending.correlation_id in appends:
            self.emptied.append((pending, end))
        else:
            del self._behind_load[key]  # this append began after the end, and so did all later ones

    def _is_behind_load(self, end: TraceRow, producer_id: int) -> bool:
        """Return True if a load delayed an end until its transaction had been carried out.

        The load was completed between the decision on the transaction and the end.
        """
        carried_out_us = self._carried_out_us.get(producer_id)
        if carried_out_us is None:
            return False
        # The next transaction may be decided before the end, too, so this is the last decision that
        # was carried out.
        known = self._markers.get(producer_id, ())
        decided_us = max(
            (markers.since_us for markers in known if markers.since_us <= carried_out_us),
            default=None,
        )
        loaded_us = self._loaded_us.get(end.node, -1)
        return (
            decided_us is not None
            and decided_us <= loaded_us + self._margin_us
            and carried_out_us <= end.time_us + self._margin_us
        )

    def _is_over(self, since: TraceRow, end: TraceRow, producer_id: int) -> bool:
        """Return True if the transaction of `since` was carried out before `end`'s marker came."""
        carried_out_us = self._carried_out_us.get(producer_id, -1)
        return since.time_us + self._margin_us < carried_out_us < end.time_us - self._margin_us

    def _judge(self, until_us: int | None) -> Iterator[WrongEnd]:
        """Judge the ends up to `until_us`, or all ends if `until_us` is None."""
        while self._ends and (until_us is None or self._ends[0].row.time_us <= until_us):
            end = self._ends.popleft()
            decided = [
                row
                for row in self._decisions.get(end.producer_id, ())
                if row.time_us >= end.since.time_us - self._margin_us
            ]
            # If the group counted offsets, it has committed them, whatever the marker says.
            detail = detail_of(end.row)
            is_commit = detail["committed"] or detail["offsets"] > 0
            wanted = _COMMIT if is_commit else _ABORT
            # If the present transaction's own decision does not fit, the end may belong to the
            # previous transaction. This holds even if a later decision fits, and even if the
            # present transaction is not decided yet.
            own = self._own_decision(end, decided, wanted)
            if own is None and self._is_late_end_of_previous(end, wanted):
                self.late.append((end.since, end.row))
                continue
            if end.is_replaced:
                self.late.append((end.since, end.row))
            if not decided:
                continue  # no decision is known
            if own is not None and wanted == _ABORT:
                self._note_removed_with(end, own)
            if any(detail_of(row)["to"] == wanted for row in decided):
                continue
            if any(self._is_lost(row) for row in decided):
                continue
            if end.is_over:
                continue  # the marker may belong to another transaction
            did, should = ("counted", "aborted") if is_commit else ("forgot", "committed")
            yield WrongEnd(
                summary=f"{end.row.group}: {end.row.node} {did} the offsets of a transaction of "
                f"producer {end.producer_id}, which was {should}",
                evidence=[end.since, *decided, end.row],
            )

    def _own_decision(self, end: _End, decided: list[TraceRow], wanted: str) -> TraceRow | None:
        """Return the decision about the transaction of `end.since` that fits its end, if any.

        The possible ones are the first decision that certainly came after `end.since`, and the
        decisions before it that are within the clock error.
        """
        for row in decided:
            if detail_of(row)["to"] == wanted:
                return row
            if row.time_us > end.since.time_us + self._margin_us:
                return None
        return None

    def _note_removed_with(self, end: _End, own: TraceRow) -> None:
        """Note offsets of the next transaction, if the late end of an aborted one removed them.

        `own` is the decision to abort. Offsets that came after it belong to the next transaction.
        """
        if own.time_us > end.loaded_us:
            return
        for pending in end.pending:
            if pending.time_us > own.time_us - self._margin_us:
                self.late.append((pending, end.row))
                return

    def _is_late_end_of_previous(self, end: _End, wanted: str) -> bool:
        """Return True if an end belongs to the previous transaction and comes late."""
        since_us = end.since.time_us
        known = self._markers.get(end.producer_id, ())
        before = [markers for markers in known if markers.since_us < since_us]
        if not before:
            return False
        previous = before[-1]
        # The three conditions of the module's docstring, in their order.
        return (
            previous.state == wanted
            and end.ended_us < previous.since_us
            and previous.since_us <= end.loaded_us
        )

    def _is_lost(self, decision: TraceRow) -> bool:
        """Return True if a decision may be lost. The log then has only an older decision."""
        losses = self._lost_data.of(decision.partition or "")
        return bool(losses) and losses[-1].time_us > decision.time_us
