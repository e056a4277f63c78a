"""The check that a transaction ends in a group as the transaction coordinator decided.

Three kinds of rows show the course of a transaction that commits offsets of a group:

1. TXN_COMMIT_PENDING: the group's coordinator has a pending offset of the transaction.
2. TRANSACTION_STATE: the transaction coordinator decides to commit or to abort. Then it writes
   markers, the records that end the transaction in its partitions.
3. TRANSACTION_COMPLETED: the marker has arrived, and the group's coordinator makes the pending
   offsets valid or drops them. We call this the end of the transaction in the group.

The end must agree with the decision. But the three rows have only the producer id in common, and a
marker may arrive when the producer's next transaction is decided already. So an end counts as right
if any decision since the transaction's first pending offset agrees with the end.

**Not judged.** In these cases an end is no violation although no decision agrees with it:
- No decision is known. The transaction coordinator may have died after the decision, before it
  wrote the row TRANSACTION_STATE. The next coordinator loads the decision without such a row.
- The marker may belong to another transaction, because the pending transaction was already over.
  (Its end has no row if a coordinator has loaded the group together with the marker.)
- The log of transactions lost data with its last in-sync replica (`lost_data`), and now has only an
  older decision.

**Late ends.** In Kafka, the effects of a marker may wait behind a load, and take place when the
producer has begun its next transaction. Then the marker also ends this next transaction (case 2 of
`forgotten_commits`). This is no violation here. But commits are forgotten, and the attributes
`late` and `emptied` tell which. There are three variants:

- The late end finds only offsets of the next transaction. Three conditions show such an end:
  1. The producer's previous transaction was decided before the present one committed anything in
     the group, and the end agrees with that decision.
  2. The previous transaction has not ended in the group before.
  3. The group's coordinator has completed a load since that decision.
- The late end of an aborted transaction finds offsets of its own transaction and of the next one,
  and drops all of them. Such an end agrees with its decision. So only the load before the end shows
  that the end is late.
- The late end of a committed transaction makes no offset valid. Before it, the next transaction has
  committed an offset for the same partition, which has replaced the offset of the ended
  transaction, and whose append is in progress. The late end removes this newer offset. So the
  offsets of both transactions are forgotten.

For late ends, a load of a decision counts like the decision itself. When a transaction coordinator
dies after a decision, perhaps before it wrote the row, its successor loads the decision, writes the
markers again and completes the transaction.
"""

from collections import defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass

from chaos.checkers.context import detail_of
from chaos.checkers.evidence.lost_data import LostData
from chaos.checkers.evidence.transactions.pending_offsets import PendingOffsets
from protocol.trace import TraceKind, TraceRow

END_KINDS = frozenset(
    {
        TraceKind.TRANSACTION_STATE,
        TraceKind.TRANSACTIONS_LOADED,
        TraceKind.TXN_COMMIT_PENDING,
        TraceKind.TRANSACTION_COMPLETED,
        TraceKind.LOAD_COMPLETED,
        TraceKind.GROUP_LOADED,
        TraceKind.APPEND_STARTED,
        TraceKind.APPEND_COMPLETED,
    }
)
"""Kinds of rows that TransactionEnds must see."""
MAX_KEPT_DECISIONS = 16
"""Number of a producer's last decisions that are kept."""
_COMMIT, _ABORT = "PrepareCommit", "PrepareAbort"
"""States of a transaction whose outcome is decided: the two decisions."""
_CARRIED_OUT = ("CompleteCommit", "CompleteAbort")
"""States of a transaction whose markers are all written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WrongEnd:
    """A violation: an end that does not agree with the decision, or a wrong producer id.

    A producer id is wrong if it is negative, or if two transactional ids got the same one.
    """

    summary: str
    evidence: list[TraceRow]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Markers:
    """Markers that a transaction coordinator writes because it made or loaded a decision."""

    since_us: int  # time of the decision, or of the load
    state: str  # the decision, PrepareCommit or PrepareAbort


@dataclass(frozen=True, slots=True, kw_only=True)
class _End:
    """The end of a transaction in a group."""

    row: TraceRow  # TRANSACTION_COMPLETED
    pending: list[TraceRow]  # rows of the pending offsets that were ended, the oldest first
    producer_id: int
    ended_us: int  # time of the producer's previous end in the group; -1: there is none
    loaded_us: int  # time of the last load of the broker before the end; -1: it has loaded nothing
    # True if the pending transaction was over before, so that this may be the end of another one
    is_over: bool
    is_replaced: bool  # True if a late end of the third variant has removed a replacing offset

    @property
    def since(self) -> TraceRow:
        """The row of the first pending offset."""
        return self.pending[0]


class TransactionEnds:
    """Follows the decisions about each producer's transactions, and checks every end in a group.

    - `clock_error_us`: the largest difference between the clocks of two nodes.
    - `lost_data`: partitions that lost data. The caller feeds rows to it.
    """

    def __init__(self, clock_error_us: int, lost_data: LostData) -> None:
        self._margin_us = clock_error_us
        self._lost_data = lost_data
        self._decisions: dict[int, deque[TraceRow]] = {}  # by producer id
        self._markers: dict[int, deque[_Markers]] = {}  # by producer id
        # Decisions that a transaction coordinator has loaded, and must still complete. Key:
        # (coordinator, incarnation, leader epoch, transactional id).
        self._to_complete: dict[tuple[str, int, int | None, str], _Markers] = {}
        # producer id -> time at which its last decision had been carried out in all partitions
        self._carried_out_us: dict[int, int] = {}
        # By (group, producer id)
        self._pending: defaultdict[tuple[str, int], PendingOffsets] = defaultdict(PendingOffsets)
        self._ends: deque[_End] = deque()  # not judged yet
        self._loaded_us: dict[str, int] = {}  # broker -> time of its last load
        self._ended_us: dict[tuple[str, int], int] = {}  # (group, producer id) -> last end
        # producer id -> the first TRANSACTION_STATE with it, which shows to whom it was given
        self._given: dict[int, TraceRow] = {}
        self.late: list[tuple[TraceRow, TraceRow]] = []
        """Late ends: the row of the first offset that was ended by mistake, and the end's row."""
        self.emptied: list[tuple[TraceRow, TraceRow]] = []
        """Late ends that removed an offset whose append was in progress: the offset's row, and the
        end's own row."""
        # (group, producer id) -> the last end that came behind a load, and the appends that were in
        # progress then
        self._behind_load: dict[tuple[str, int], tuple[TraceRow, frozenset[int | None]]] = {}
        # (broker, incarnation) -> append ids of the appends in progress
        self._appends: dict[tuple[str, int], dict[int | None, None]] = {}

    def observe(self, row: TraceRow) -> Iterator[WrongEnd]:
        """Take a row of END_KINDS; yield the violations that are certain now."""
        if row.kind == TraceKind.LOAD_COMPLETED:
            self._loaded_us[row.node] = row.time_us
            return
        # In rows of appends, `correlation_id` is the id of the append.
        if row.kind == TraceKind.APPEND_STARTED:
            self._appends.setdefault((row.node, row.incarnation), {})[row.correlation_id] = None
            return
        if row.kind == TraceKind.APPEND_COMPLETED:
            self._appends.get((row.node, row.incarnation), {}).pop(row.correlation_id, None)
            return
        detail = detail_of(row)
        if row.kind == TraceKind.GROUP_LOADED:
            for producer_id in detail.get("pending", ()):
                self._pending[row.group or "", producer_id].held_by(row)
            return
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
            # Everything here depends on the producer id. So it is checked that each id is valid and
            # belongs to only one transactional id.
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
                key = (row.group or "", producer_id)
                pending = self._pending[key]
                if self._has_ended_in_the_log(pending, row, producer_id):
                    pending.offsets.clear()  # `row` is the first offset of the next transaction
                pending.offsets.append(row)
                pending.held_by(row)
                self._take_emptied(key, row)
            case TraceKind.TRANSACTION_COMPLETED:
                key = (row.group or "", producer_id)
                is_behind_load = self._is_behind_load(row, producer_id)
                appends = self._appends.get((row.node, row.incarnation), {})
                if is_behind_load:
                    self._behind_load[key] = (row, frozenset(appends))
                ended = self._take_pending(key, row)
                ended_us = self._ended_us.get(key, -1)
                self._ended_us[key] = row.time_us
                if not ended:
                    return  # no offset was pending, as far as the trace shows
                # `detail` tells whether the end commits, and how many offsets became valid. In the
                # third variant of a late end, it commits and none became valid, while an append was
                # in progress.
                self._ends.append(
                    _End(
                        row=row,
                        pending=ended,
                        producer_id=producer_id,
                        ended_us=ended_us,
                        loaded_us=self._loaded_us.get(row.node, -1),
                        is_over=self._is_over(ended[0], row, producer_id),
                        is_replaced=is_behind_load
                        and bool(appends)
                        and detail["committed"]
                        and not detail["offsets"],
                    )
                )
            case _:
                pass

        # The decision was made before the end, but by another node, whose clock may be ahead. So an
        # end is judged a little later, when the row of its decision must have come.
        yield from self._judge(row.time_us - self._margin_us)

    def finish(self) -> Iterator[WrongEnd]:
        """Yield the violations of the last ends."""
        yield from self._judge(None)

    def _note_markers(self, row: TraceRow, producer_id: int) -> None:
        """Note the markers of a decision, or of a loaded decision that has been carried out."""
        detail = detail_of(row)
        # Markers are kept by producer id. The row of the load lacks this id, but `row` has it.
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

    def _has_ended_in_the_log(self, known: PendingOffsets, row: TraceRow, producer_id: int) -> bool:
        """Return True if the transaction of the offsets in `known` has ended without a row.

        `row` is a later pending offset of the same producer. The result is True if a new
        coordinator wrote `row`, and the transaction of the known offsets had been carried out. Then
        the new coordinator has loaded the group together with the marker, and no row shows an end.
        But if its load found the offsets still pending (`is_at`), the marker came after the load.
        """
        if not known.offsets or known.is_at(row):
            return False
        carried_out_us = self._carried_out_us.get(producer_id, -1)
        return known.offsets[-1].time_us + self._margin_us < carried_out_us

    def _take_pending(self, key: tuple[str, int], end: TraceRow) -> list[TraceRow]:
        """Return the rows of the pending offsets that `end` has ended.

        After a load, a coordinator that was replaced may still end the offsets in its own memory.
        Then they stay in `_pending`, because the next coordinator has loaded them and has not ended
        them yet.
        """
        pending = self._pending.get(key)
        if pending is None:
            return []
        if pending.were_at(end):
            return pending.until_last_of(end)
        del self._pending[key]
        return pending.offsets

    def _take_emptied(self, key: tuple[str, int], pending: TraceRow) -> None:
        """If a late end has removed the offset of `pending`, note it in `emptied`.

        The late end has removed the offset if the append of the offset was in progress at that end.
        """
        end, appends = self._behind_load.get(key, (None, frozenset()))
        if end is None:
            return
        # A broker that restarts counts its append ids anew, so ids can be compared only within one
        # process.
        is_same_life = (pending.node, pending.incarnation) == (end.node, end.incarnation)
        if is_same_life and pending.correlation_id in appends:
            self.emptied.append((pending, end))
        else:
            # This append began after that end, and so do all later appends.
            del self._behind_load[key]

    def _is_behind_load(self, end: TraceRow, producer_id: int) -> bool:
        """Return True if an end came late, because it waited behind a load.

        This is so if the transaction had already been carried out, and the broker completed a load
        between the decision and the end.
        """
        carried_out_us = self._carried_out_us.get(producer_id)
        if carried_out_us is None:
            return False
        # Find the last decision that was carried out. A decision after it may be about the next
        # transaction.
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
        """Return True if the transaction of the pending offset `since` was over before `end`."""
        carried_out_us = self._carried_out_us.get(producer_id, -1)
        return since.time_us + self._margin_us < carried_out_us < end.time_us - self._margin_us

    def _judge(self, until_us: int | None) -> Iterator[WrongEnd]:
        """Judge the ends up to the time `until_us`; None: all of them."""
        while self._ends and (until_us is None or self._ends[0].row.time_us <= until_us):
            end = self._ends.popleft()
            decided = [
                row
                for row in self._decisions.get(end.producer_id, ())
                if row.time_us >= end.since.time_us - self._margin_us
            ]
            # If the end made offsets valid, it was a commit, whatever `committed` in its row says.
            detail = detail_of(end.row)
            is_commit = detail["committed"] or detail["offsets"] > 0
            wanted = _COMMIT if is_commit else _ABORT
            # If the decision about this transaction does not agree with the end, the end may be a
            # late one of the previous transaction. This is so even if a later decision agrees.
            own = self._own_decision(end, decided, wanted)
            if own is None and self._is_late_end_of_previous(end, wanted):
                self.late.append((end.since, end.row))
                continue
            if end.is_replaced:  # third variant
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
            did, decided_to_be = ("counted", "aborted") if is_commit else ("forgot", "committed")
            yield WrongEnd(
                summary=f"{end.row.group}: {end.row.node} {did} the offsets of a transaction of "
                f"producer {end.producer_id}, which was {decided_to_be}",
                evidence=[end.since, *decided, end.row],
            )

    def _own_decision(self, end: _End, decided: list[TraceRow], wanted: str) -> TraceRow | None:
        """Return the decision about the pending transaction, if it agrees with the end.

        This is the first decision after the first pending offset. Because of the clock error, each
        of several decisions may be this first one.
        """
        for row in decided:
            if detail_of(row)["to"] == wanted:
                return row
            if row.time_us > end.since.time_us + self._margin_us:
                return None
        return None

    def _note_removed_with(self, end: _End, own: TraceRow) -> None:
        """If an end is a late one of the second variant, note the first offset that it took.

        `own` is the decision to abort. Pending offsets after it belong to the next transaction.
        """
        if own.time_us > end.loaded_us:
            return
        for pending in end.pending:
            if pending.time_us > own.time_us - self._margin_us:
                self.late.append((pending, end.row))
                return

    def _is_late_end_of_previous(self, end: _End, wanted: str) -> bool:
        """Return True if an end is a late one of the previous transaction (first variant)."""
        since_us = end.since.time_us
        known = self._markers.get(end.producer_id, ())
        before = [markers for markers in known if markers.since_us < since_us]
        if not before:
            return False
        previous = before[-1]
        # The three conditions of the first variant, in their order.
        return (
            previous.state == wanted
            and end.ended_us < previous.since_us
            and previous.since_us <= end.loaded_us
        )

    def _is_lost(self, decision: TraceRow) -> bool:
        """Return True if a decision may have been lost with its partition's last replica."""
        losses = self._lost_data.of(decision.partition or "")
        return bool(losses) and losses[-1].time_us > decision.time_us
