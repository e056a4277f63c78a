"""Fencing: an old coordinator cannot get anything acknowledged that the new one does not know.

Judged by epochs and offsets of `__consumer_offsets`, not by the order of rows: the later epoch's
log begins where its leader's log ended when it took over, and whatever an older epoch had
acknowledged must lie below. Source: BEHAVIOUR 6.5.

An append is acknowledged under the epoch in which its leader acknowledges it. One that waited while
its broker missed elections, and leads again, is acknowledged under the new epoch, as in Kafka:
DelayedProduce asks for the high watermark alone. What others led meanwhile, nobody acknowledged.

What was acknowledged may be lost with the last replica in sync (`lost_data`): what stands before an
election with which a partition lost data as it may is not looked for behind it.

What a broker has cut off its own log is gone there, whatever its later epochs hold: an append whose
offsets the same process truncated is never acknowledged. By epochs alone the next append, which
takes the offsets again, would hide the loss.

Nor does a broker load or unload a partition as of an older epoch than it knew (`late_notices`), nor
lead one in an epoch that the controller did not give it, or before it was unfenced. (The latter two
in virtual time alone, where no row is missing.)

A run in which no old leader tried to append has not put fencing to the test, and does not pass the
check. So attempts are counted: appends of an older epoch that were begun, or still waited for their
replicas, when the controller had elected another leader in a newer one.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from chaos.checkers.base import Checker
from chaos.checkers.context import CheckContext, detail_of
from chaos.checkers.evidence.board import Evidence
from chaos.checkers.evidence.late_notices import NOTICE_KINDS, LateNotices
from protocol.ids import CONSUMER_OFFSETS
from protocol.trace import TraceKind, TraceRow
from results_schema.results import OLD_EPOCH_ATTEMPTS, CheckReport

MAX_EVIDENCE_APPENDS = 3
MAX_KEPT_APPENDS = 10_000
"""Of each epoch the newest appends are kept: offsets grow, so what a later epoch lost is among
them, and a long run does not fill the memory."""
MAX_KEPT_CUTS = 100
"""Truncations of each partition: a story needs the one that cost the append."""
NOT_TESTED = (
    "fencing was not put to the test: no leader attempted an append after another had been elected"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Acknowledged:
    """An append that completed well: [base, end) in the log of its epoch."""

    base: int
    end: int
    started: TraceRow
    completed: TraceRow


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cut:
    """A truncation. Shape: `in_sync` is the controller's last row of the ISR by then."""

    row: TraceRow
    in_sync: TraceRow | None


@dataclass(slots=True)
class _Epoch:
    """What was seen of one leader epoch of one partition."""

    start_offset: int | None = None  # where its leader's log ended when it took over
    start_row: TraceRow | None = None
    leader: str | None = None
    leader_row: TraceRow | None = None
    acknowledged: deque[_Acknowledged] = field(
        default_factory=lambda: deque(maxlen=MAX_KEPT_APPENDS)
    )
    first_acknowledged: TraceRow | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Broken:
    """How the promise was broken between two epochs. `causes` tell how the append was lost."""

    summary: str
    evidence: list[TraceRow]
    causes: list[TraceRow] = field(default_factory=list)


class Fencing(Checker):
    """No append acknowledged under an older leader epoch is missing from a later epoch's log."""

    name = "fencing"
    promise = (
        "no append acknowledged under an older leader epoch is missing from the later epoch's "
        "log, and none begun after the later epoch's first acknowledged append is acknowledged "
        "under the older one; no broker acknowledges an append whose offsets it truncated; this "
        "fences appends to __consumer_offsets, that is commits and "
        "assignments: what members process is never fenced; and no broker loads or unloads a "
        "partition of it as of an older epoch than it knew, or leads one in an epoch that the "
        "controller did not give it"
    )
    kinds = frozenset(
        {
            *NOTICE_KINDS,
            TraceKind.BROKER_UNFENCED,
            TraceKind.LEADER_ELECTED,
            TraceKind.ISR_CHANGED,
            TraceKind.BECAME_LEADER,
            TraceKind.LOG_TRUNCATED,
            TraceKind.APPEND_STARTED,
            TraceKind.APPEND_COMPLETED,
        }
    )

    def __init__(self, context: CheckContext, evidence: Evidence | None = None) -> None:
        super().__init__(context, evidence)
        self._epochs: dict[str, dict[int, _Epoch]] = {}
        self._started: dict[tuple[str, int, str, int | None], TraceRow] = {}
        self._acknowledged = 0
        self._failed = 0
        self._announced: dict[tuple[str, int, int], None] = {}
        self._elections: dict[str, list[TraceRow]] = {}  # partition -> elections of a leader
        self._leads: dict[tuple[str, int, str], int] = {}  # life and partition -> newest epoch
        self._lost_data = self.evidence.lost_data
        self._late_notices = LateNotices()
        self._unfenced: dict[str, None] = {}  # brokers that were, at any time
        self._attempts: dict[tuple[str, int, str, int | None], None] = {}  # by a deposed leader
        self._cut: dict[tuple[str, int, str, int | None], TraceRow] = {}  # begun, truncated since
        self._cuts: dict[str, deque[_Cut]] = {}  # partition -> truncations, the newest last
        self._isr: dict[str, TraceRow] = {}  # partition -> the controller's last row of its ISR

    def judge(self, row: TraceRow) -> None:
        """Take in an election, a leadership change or an append of an offsets partition."""
        if row.kind in NOTICE_KINDS:
            self._noticed(row)
            return
        if row.kind == TraceKind.BROKER_UNFENCED:
            self._unfenced[row.peer or ""] = None
            return
        if row.partition is None or not row.partition.startswith(f"{CONSUMER_OFFSETS}-"):
            return
        if row.kind in (TraceKind.LEADER_ELECTED, TraceKind.ISR_CHANGED):
            self._isr[row.partition] = row
        if row.leader_epoch is None or row.kind == TraceKind.ISR_CHANGED:
            return
        if row.kind == TraceKind.LOG_TRUNCATED:
            self._truncated(row, row.partition)
            return
        if row.kind == TraceKind.LEADER_ELECTED:
            if row.peer:
                self._elections.setdefault(row.partition, []).append(row)
            return
        epoch = self._epochs.setdefault(row.partition, {}).setdefault(row.leader_epoch, _Epoch())
        append = (row.node, row.incarnation, row.partition, row.correlation_id)
        life = (row.node, row.incarnation, row.partition)
        if row.kind == TraceKind.BECAME_LEADER and self.context.in_virtual_time:
            self._was_elected(row, row.partition)
        if row.kind == TraceKind.BECAME_LEADER:
            self._leads[life] = row.leader_epoch
            self._became_leader(epoch, row)
            self._announce(row.partition, of_epoch=row.leader_epoch)
            return
        if self._is_deposed(row, row.partition, row.leader_epoch):
            self._attempts[append] = None
        if row.kind == TraceKind.APPEND_STARTED:
            self._started[append] = row
            self._log_begins(epoch, row, detail_of(row).get("epoch_start_offset", row.offset))
        else:
            started, cut = self._started.pop(append, None), self._cut.pop(append, None)
            if row.error not in {None, "NONE"}:
                self._failed += 1
            elif started is not None and cut is not None:
                self._acknowledged += 1
                self._acknowledged_after_its_cut(started, cut, row)
            elif started is not None and started.offset is not None:
                under = max(row.leader_epoch, self._leads.get(life, row.leader_epoch))
                epochs = self._epochs[row.partition]
                self._append_acknowledged(epochs.setdefault(under, _Epoch()), started, row)
                if len(epochs) > 1:
                    self._announce(row.partition, of_epoch=under)

    def _was_elected(self, row: TraceRow, partition: str) -> None:
        """Report a leader that the controller never elected."""
        elections = self._elections.get(partition, [])
        if row.node not in self._unfenced:
            self.found(
                f"{partition}: {row.node} leads it, which the controller has never unfenced",
                [*elections[-1:], row],
                partition=partition,
            )
        elif not any((e.peer, e.leader_epoch) == (row.node, row.leader_epoch) for e in elections):
            self.found(
                f"{partition}: {row.node} leads it in epoch {row.leader_epoch}, which the "
                "controller did not give it",
                [*elections[-1:], row],
                partition=partition,
            )

    def _noticed(self, row: TraceRow) -> None:
        overtaken = self._late_notices.observe(row)
        if overtaken is not None:
            self.found(overtaken.summary, overtaken.evidence, partition=row.partition)

    def _truncated(self, row: TraceRow, partition: str) -> None:
        """Note a truncation, and the appends of the same process that it cuts off.

        Rows of one node are in the order of its own steps, so no clock error counts here.
        """
        cuts = self._cuts.setdefault(partition, deque(maxlen=MAX_KEPT_CUTS))
        cuts.append(_Cut(row=row, in_sync=self._isr.get(partition)))
        log_end = row.offset or 0
        for append, started in self._started.items():
            if append[:3] == (row.node, row.incarnation, partition) and _end_of(started) > log_end:
                self._cut[append] = row

    def _acknowledged_after_its_cut(
        self, started: TraceRow, cut: TraceRow, completed: TraceRow
    ) -> None:
        partition = completed.partition or ""
        self.found(
            f"{partition}: {completed.node} acknowledged an append of epoch {started.leader_epoch} "
            f"at offset {started.offset} after it had truncated its log to {cut.offset} in epoch "
            f"{cut.leader_epoch}",
            [started, cut, completed],
            partition=partition,
            causes=self._explain_cut(cut, partition)[:-1],
        )

    def _explain_cut(self, cut: TraceRow, partition: str) -> list[TraceRow]:
        """Return a truncation with the leader whose epoch demanded it and the ISR of that time."""
        ordered_by = self._epochs.get(partition, {}).get(cut.leader_epoch or 0)
        leader = None if ordered_by is None else ordered_by.leader_row
        known = next((each for each in self._cuts.get(partition, ()) if each.row is cut), None)
        in_sync = None if known is None else known.in_sync
        return [row for row in (in_sync, leader, cut) if row is not None]

    def _cuts_of(self, partition: str, lost: list[_Acknowledged]) -> list[TraceRow]:
        """Return what tells who truncated the first of the appends that a log has lost."""
        first = lost[0]
        for cut in self._cuts.get(partition, ()):
            former_end = detail_of(cut.row).get("from_offset", 0)
            if (
                cut.row.time_us >= first.started.time_us
                and (cut.row.offset or 0) < first.end <= former_end
            ):
                return self._explain_cut(cut.row, partition)
        return []

    def _is_deposed(self, row: TraceRow, partition: str, leader_epoch: int) -> bool:
        """Whether another leader than the row's node had been elected in a newer epoch by then."""
        until_us = row.time_us - self.context.clock_error_us
        for elected in reversed(self._elections.get(partition, ())):
            if (elected.leader_epoch or 0) <= leader_epoch:
                return False  # epochs rise: all before it are older, too
            if elected.peer != row.node and elected.time_us <= until_us:
                return True
        return False

    def _became_leader(self, epoch: _Epoch, row: TraceRow) -> None:
        if epoch.leader is None:
            epoch.leader, epoch.leader_row = row.node, row
        elif epoch.leader != row.node and epoch.leader_row is not None:
            self.found(
                f"{row.partition} has two leaders in epoch {row.leader_epoch}: {epoch.leader} and "
                f"{row.node}",
                [epoch.leader_row, row],
                partition=row.partition,
            )
        self._log_begins(epoch, row, row.offset)

    def _log_begins(self, epoch: _Epoch, row: TraceRow, offset: int | None) -> None:
        if offset is not None and (epoch.start_offset is None or offset < epoch.start_offset):
            epoch.start_offset, epoch.start_row = offset, row

    def _append_acknowledged(self, epoch: _Epoch, started: TraceRow, completed: TraceRow) -> None:
        self._acknowledged += 1
        if epoch.first_acknowledged is None:
            epoch.first_acknowledged = completed
        epoch.acknowledged.append(
            _Acknowledged(
                base=started.offset or 0,
                end=_end_of(started),
                started=started,
                completed=completed,
            )
        )

    def finish(self) -> CheckReport:
        """Compare every epoch with every later one, and say how much of it was lost."""
        overtaken = 0
        for partition, epochs in sorted(self._epochs.items()):
            numbers = sorted(epochs)
            for position, older in enumerate(numbers):
                for newer in numbers[position + 1 :]:
                    overtaken += len(epochs[older].acknowledged)
                    broken = self._compare(partition, older, newer, epochs[older].acknowledged)
                    if broken is not None:
                        # Who was told when it began needs no second word about it.
                        silently = (partition, older, newer) in self._announced
                        self._record(broken, partition, silently=silently)
        note = "" if self._attempts or self.findings_total else NOT_TESTED
        return self.report(
            judged=overtaken if self._attempts else 0,
            seen={
                "appends_acknowledged": self._acknowledged,
                "appends_failed": self._failed,
                "leader_epochs": sum(len(epochs) for epochs in self._epochs.values()),
                "acknowledged_before_a_later_epoch": overtaken,
                OLD_EPOCH_ATTEMPTS: len(self._attempts),
            },
            note=note if overtaken else "no append was followed by a later leader epoch",
        )

    def _announce(self, partition: str, *, of_epoch: int) -> None:
        """Tell, once for each pair of epochs, that the newest appends of one broke the promise."""
        epochs = self._epochs[partition]
        for other in sorted(epochs):
            older, newer = min(other, of_epoch), max(other, of_epoch)
            if older == newer or (partition, older, newer) in self._announced:
                continue
            acknowledged = epochs[older].acknowledged
            newest = [acknowledged[-1]] if acknowledged else []
            broken = self._compare(partition, older, newer, newest)
            if broken is not None:
                self._announced[partition, older, newer] = None
                self.announce(
                    broken.summary, broken.evidence, partition=partition, causes=broken.causes
                )

    def _record(self, broken: _Broken, partition: str, *, silently: bool) -> None:
        on_finding = self.on_finding
        if silently:
            self.on_finding = None
        self.found(broken.summary, broken.evidence, partition=partition, causes=broken.causes)
        self.on_finding = on_finding

    def _compare(
        self, partition: str, older: int, newer: int, appends: Iterable[_Acknowledged]
    ) -> _Broken | None:
        """Return what is wrong with `appends`, acknowledged in epoch `older`, seen from `newer`."""
        new = self._epochs[partition][newer]
        was_lost = any(
            older < (loss.leader_epoch or 0) <= newer for loss in self._lost_data.of(partition)
        )
        if new.start_offset is not None and new.start_row is not None and not was_lost:
            start = new.start_offset
            lost = [append for append in appends if append.end > start]
            if lost:
                return _Broken(
                    summary=f"{partition}: {_appends(len(lost))} acknowledged in epoch {older} "
                    f"from offset {lost[0].base} {'is' if len(lost) == 1 else 'are'} missing from "
                    f"the log of epoch {newer}, which begins at {start}",
                    evidence=[*_rows_of(lost), new.start_row],
                    causes=self._cuts_of(partition, lost),
                )
        first = new.first_acknowledged
        if first is None:
            return None
        late = [
            append
            for append in appends
            if append.started.time_us > first.time_us + self.context.clock_error_us
        ]
        if not late:
            return None
        return _Broken(
            summary=f"{partition}: {_appends(len(late))} begun after epoch {newer} had "
            f"acknowledged its first {'was' if len(late) == 1 else 'were'} acknowledged in epoch "
            f"{older}",
            evidence=[first, *_rows_of(late)],
        )


def _rows_of(appends: list[_Acknowledged]) -> list[TraceRow]:
    return [
        row
        for append in appends[:MAX_EVIDENCE_APPENDS]
        for row in (append.started, append.completed)
    ]


def _end_of(started: TraceRow) -> int:
    """Return the offset after the last record of an append."""
    records: int = detail_of(started).get("records", 1)
    return (started.offset or 0) + records


def _appends(count: int) -> str:
    return "1 append" if count == 1 else f"{count:,} appends"
