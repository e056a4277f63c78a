"""Fencing: the new coordinator has everything that was acknowledged to an old coordinator.

A coordinator leads a partition of `__consumer_offsets`, and stores commits and assignments by
appends to this partition. When another broker is elected as leader, the old coordinator may not
notice for a while, and append more. These later appends must fail. We say that the old coordinator
is fenced. This checker judges five rules for each partition of `__consumer_offsets`:

1. A later epoch has all appends that were acknowledged in an older epoch. A leader notes the end of
   its log when it takes over. For example, if the leader of epoch 4 took over with 100 records, no
   append of a record with offset 100 or more may be acknowledged in epoch 3 (BEHAVIOUR 6.5).
2. When a later epoch has acknowledged its first append, no append that begins afterwards is
   acknowledged in an older epoch.
3. A broker that truncates an append from its own log (the code calls this a cut) never acknowledges
   the append. Rule 1 would not find such an acknowledgement, because the next append gets the same
   offsets.
4. A broker does not load or unload a partition for an older epoch than the newest epoch of which it
   has heard (`late_notices`).
5. A broker leads a partition only in an epoch that the controller gave it, and only after the
   controller has unfenced the broker. This is judged only in virtual time (the run's own simulated
   clock), where no row is missing.

Rule 1 compares epochs and offsets, and not the order of rows. It has to allow for two cases:

- An append counts for the epoch in which it is acknowledged. While an append waits for replicas,
  its broker may lose the leadership and get it again. Then the append is acknowledged in the new
  epoch. Kafka does the same, because its DelayedProduce checks only the high watermark.
- Acknowledged appends may be lost in a way that Kafka allows, together with the last replica in
  sync (`lost_data`). After the election with which they were lost, no epoch is expected to have
  these appends.

A run proves something about fencing only if an old coordinator attempted an append. This means that
one of its appends began, or still waited for replicas, after the controller had elected another
leader. Without such an attempt the outcome is that nothing was seen.
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
"""Largest number of lost appends whose rows a finding shows. The summary tells the real number."""
MAX_KEPT_APPENDS = 10_000
"""Number of acknowledged appends that are kept for an epoch, to bound the memory of long runs.

The oldest are dropped first, because the newest are enough. A new leader's log may lack only the
end of the old leader's log. So if any append was lost, the newest append was lost, too.
"""
MAX_KEPT_CUTS = 100
"""Number of truncations that are kept for a partition. They explain findings."""
NOT_TESTED = (
    "fencing was not put to the test: no leader attempted an append after another had been elected"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Acknowledged:
    """An append that succeeded; its records have the offsets from `base` to `end - 1`."""

    base: int
    end: int
    started: TraceRow
    completed: TraceRow


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cut:
    """A truncation."""

    row: TraceRow  # LOG_TRUNCATED
    in_sync: TraceRow | None  # the controller's last row before the truncation that shows the ISR


_Life = tuple[str, int, str]
"""A process and a partition: node, incarnation (the number of the node's restarts), partition.

Example: ("broker-1", 0, "__consumer_offsets-3").
"""
_Append = tuple[str, int, str, int | None]
"""An append: the three parts of a `_Life`, and the id of the append (`correlation_id`)."""


@dataclass(slots=True)
class _Epoch:
    """What is known about one leader epoch of one partition."""

    # First offset of this epoch. The log of the epoch's leader ended at this offset when the leader
    # took over.
    start_offset: int | None = None
    start_row: TraceRow | None = None  # the row that shows `start_offset`
    leader: str | None = None
    leader_row: TraceRow | None = None  # BECAME_LEADER
    acknowledged: deque[_Acknowledged] = field(
        default_factory=lambda: deque(maxlen=MAX_KEPT_APPENDS)
    )
    first_acknowledged: TraceRow | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Violation:
    """A violation of rule 1 or 2."""

    summary: str
    evidence: list[TraceRow]
    # Rows that show how the appends were lost; empty if this is not known
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
        self._epochs: dict[str, dict[int, _Epoch]] = {}  # partition -> leader epoch
        self._started: dict[_Append, TraceRow] = {}  # APPEND_STARTED of unfinished appends
        self._acknowledged = 0
        self._failed = 0
        # (partition, older epoch, newer epoch) of violations that were announced before the end
        self._announced: dict[tuple[str, int, int], None] = {}
        self._elections: dict[str, list[TraceRow]] = {}  # partition -> elections of a leader
        self._leads: dict[_Life, int] = {}  # the newest epoch in which the process became leader
        self._lost_data = self.evidence.lost_data
        self._late_notices = LateNotices()
        self._unfenced: dict[str, None] = {}  # brokers that have been unfenced at some time
        self._attempts: dict[_Append, None] = {}  # appends of leaders that had been replaced
        # unfinished append -> the truncation that removed it
        self._cut: dict[_Append, TraceRow] = {}
        self._cuts: dict[str, deque[_Cut]] = {}  # partition -> truncations, the newest last
        self._isr: dict[str, TraceRow] = {}  # partition -> the controller's last row with its ISR

    def judge(self, row: TraceRow) -> None:
        """Judge a load, an unload, a new leader or an append of a partition of the topic.

        Truncations, elections and ISRs are kept for later judgements and for findings.
        """
        if row.kind in NOTICE_KINDS:
            self._check_notice(row)
            return
        if row.kind == TraceKind.BROKER_UNFENCED:
            self._unfenced[row.peer or ""] = None
            return
        if row.partition is None or not row.partition.startswith(f"{CONSUMER_OFFSETS}-"):
            return
        if row.kind in (TraceKind.LEADER_ELECTED, TraceKind.ISR_CHANGED):
            self._isr[row.partition] = row
        # Nothing is judged at a change of the ISR. The row is only kept (in `_isr`), because it may
        # explain a later loss.
        if row.leader_epoch is None or row.kind == TraceKind.ISR_CHANGED:
            return
        if row.kind == TraceKind.LOG_TRUNCATED:
            self._observe_truncation(row, row.partition)
            return
        if row.kind == TraceKind.LEADER_ELECTED:
            if row.peer:  # without a peer, the partition has no leader from now on
                self._elections.setdefault(row.partition, []).append(row)
            return

        epoch = self._epochs.setdefault(row.partition, {}).setdefault(row.leader_epoch, _Epoch())
        life = (row.node, row.incarnation, row.partition)
        if row.kind == TraceKind.BECAME_LEADER:
            if self.context.in_virtual_time:
                self._check_election(row, row.partition)
            self._leads[life] = row.leader_epoch
            self._check_single_leader(epoch, row)
            self._announce(row.partition, of_epoch=row.leader_epoch)
            return

        # From here on the row is about an append: APPEND_STARTED or APPEND_COMPLETED.
        append = (*life, row.correlation_id)
        if self._is_deposed(row, row.partition, row.leader_epoch):
            self._attempts[append] = None
        if row.kind == TraceKind.APPEND_STARTED:
            self._started[append] = row
            # The row's detail tells the offset at which the leader's epoch began. If it does not
            # tell this, the epoch began at the latest with this append.
            self._lower_start(epoch, row, detail_of(row).get("epoch_start_offset", row.offset))
        else:
            started, cut = self._started.pop(append, None), self._cut.pop(append, None)
            if row.error not in {None, "NONE"}:
                self._failed += 1
            elif started is not None and cut is not None:
                self._acknowledged += 1
                self._report_truncated_append(started, cut, row)
            elif started is not None and started.offset is not None:
                # The row names the epoch in which the append began. If the broker has become leader
                # in a newer epoch since then, it acknowledges the append in that epoch.
                acknowledged_epoch = max(row.leader_epoch, self._leads.get(life, row.leader_epoch))
                epochs = self._epochs[row.partition]
                self._remember_acknowledged(
                    epochs.setdefault(acknowledged_epoch, _Epoch()), started, row
                )
                if len(epochs) > 1:
                    self._announce(row.partition, of_epoch=acknowledged_epoch)

    def _check_election(self, row: TraceRow, partition: str) -> None:
        """Report a leader that the controller never unfenced, or never elected (rule 5)."""
        elections = self._elections.get(partition, [])
        if row.node not in self._unfenced:
            self.report_finding(
                f"{partition}: {row.node} leads it, which the controller has never unfenced",
                [*elections[-1:], row],
                partition=partition,
            )
        elif not any(
            (election.peer, election.leader_epoch) == (row.node, row.leader_epoch)
            for election in elections
        ):
            self.report_finding(
                f"{partition}: {row.node} leads it in epoch {row.leader_epoch}, which the "
                "controller did not give it",
                [*elections[-1:], row],
                partition=partition,
            )

    def _check_notice(self, row: TraceRow) -> None:
        """Report a load or unload for an older epoch than the broker had heard of (rule 4)."""
        overtaken = self._late_notices.observe(row)
        if overtaken is not None:
            self.report_finding(overtaken.summary, overtaken.evidence, partition=row.partition)

    def _observe_truncation(self, row: TraceRow, partition: str) -> None:
        """Remember a truncation, and the unfinished appends of the same process that it removes.

        The order of the rows is enough to see this, because one process wrote them all.
        """
        cuts = self._cuts.setdefault(partition, deque(maxlen=MAX_KEPT_CUTS))
        cuts.append(_Cut(row=row, in_sync=self._isr.get(partition)))
        log_end = row.offset or 0
        for append, started in self._started.items():
            if append[:3] == (row.node, row.incarnation, partition) and _end_of(started) > log_end:
                self._cut[append] = row

    def _report_truncated_append(
        self, started: TraceRow, cut: TraceRow, completed: TraceRow
    ) -> None:
        partition = completed.partition or ""
        self.report_finding(
            f"{partition}: {completed.node} acknowledged an append of epoch {started.leader_epoch} "
            f"at offset {started.offset} after it had truncated its log to {cut.offset} in epoch "
            f"{cut.leader_epoch}",
            [started, cut, completed],
            partition=partition,
            # The last of these rows is `cut`. It is left out because it is in the evidence above.
            causes=self._explain_cut(cut, partition)[:-1],
        )

    def _explain_cut(self, cut: TraceRow, partition: str) -> list[TraceRow]:
        """Return the rows that explain the truncation in the row `cut`.

        These rows show the ISR before the truncation, and the leader that the broker followed when
        it truncated its log. The last row is always `cut` itself.
        """
        epoch = self._epochs.get(partition, {}).get(cut.leader_epoch or 0)
        leader = None if epoch is None else epoch.leader_row
        # The ISR in `_isr` may have changed since the truncation. So the ISR that was kept together
        # with the truncation is used.
        known_cut = next(
            (known for known in self._cuts.get(partition, ()) if known.row is cut), None
        )
        in_sync = None if known_cut is None else known_cut.in_sync
        return [row for row in (in_sync, leader, cut) if row is not None]

    def _explain_loss(self, partition: str, lost: list[_Acknowledged]) -> list[TraceRow]:
        """Return the rows that explain the truncation that removed the first of the lost appends.

        The list is empty if no kept truncation removed this append.
        """
        first = lost[0]
        for cut in self._cuts.get(partition, ()):
            former_end = detail_of(cut.row).get("from_offset", 0)
            # The truncation removed the append if the append's last record was in the log before
            # the truncation, and was not in the log after it.
            if (
                cut.row.time_us >= first.started.time_us
                and (cut.row.offset or 0) < first.end <= former_end
            ):
                return self._explain_cut(cut.row, partition)
        return []

    def _is_deposed(self, row: TraceRow, partition: str, leader_epoch: int) -> bool:
        """Return True if the controller had already replaced the leader that wrote `row`.

        The controller had replaced it if another node was elected in a newer epoch, and if this
        election was earlier than the row by more than the clock error.
        """
        until_us = row.time_us - self.context.clock_error_us
        for elected in reversed(self._elections.get(partition, ())):
            if (elected.leader_epoch or 0) <= leader_epoch:
                return False  # the elections before this one have even lower epochs
            if elected.peer != row.node and elected.time_us <= until_us:
                return True
        return False

    def _check_single_leader(self, epoch: _Epoch, row: TraceRow) -> None:
        """Note the epoch's leader and start, and report a second leader of the same epoch."""
        if epoch.leader is None:
            epoch.leader, epoch.leader_row = row.node, row
        elif epoch.leader != row.node and epoch.leader_row is not None:
            self.report_finding(
                f"{row.partition} has two leaders in epoch {row.leader_epoch}: {epoch.leader} and "
                f"{row.node}",
                [epoch.leader_row, row],
                partition=row.partition,
            )
        self._lower_start(epoch, row, row.offset)

    def _lower_start(self, epoch: _Epoch, row: TraceRow, offset: int | None) -> None:
        """Set the epoch's start to `offset`, unless a lower start is known already.

        Several rows may tell the start: the takeover itself, and each append of the epoch.
        """
        if offset is not None and (epoch.start_offset is None or offset < epoch.start_offset):
            epoch.start_offset, epoch.start_row = offset, row

    def _remember_acknowledged(self, epoch: _Epoch, started: TraceRow, completed: TraceRow) -> None:
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
        """Compare each epoch with each later epoch, and report the appends that were lost."""
        overtaken = 0  # number of comparisons of an append with a later epoch
        for partition, epochs in sorted(self._epochs.items()):
            numbers = sorted(epochs)
            for position, older in enumerate(numbers):
                # An append may be lost at any later takeover, not only at the next one.
                for newer in numbers[position + 1 :]:
                    overtaken += len(epochs[older].acknowledged)
                    violation = self._compare(partition, older, newer, epochs[older].acknowledged)
                    if violation is not None:
                        # A finding that was announced during the run is not announced again.
                        is_announced = (partition, older, newer) in self._announced
                        self._record(violation, partition, is_announced=is_announced)
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
        """Announce that appends of an epoch are lost, once for each pair of epochs.

        The number of lost appends is known only at the end of the run. But a run that is to stop at
        its first finding must learn of the loss now. To see that something is lost, it is enough to
        look at the newest append, because if any append was lost, the newest append was lost, too.
        """
        epochs = self._epochs[partition]
        for other in sorted(epochs):
            older, newer = min(other, of_epoch), max(other, of_epoch)
            if older == newer or (partition, older, newer) in self._announced:
                continue
            acknowledged = epochs[older].acknowledged
            newest = [acknowledged[-1]] if acknowledged else []
            violation = self._compare(partition, older, newer, newest)
            if violation is not None:
                self._announced[partition, older, newer] = None
                self.announce_finding(
                    violation.summary,
                    violation.evidence,
                    partition=partition,
                    causes=violation.causes,
                )

    def _record(self, violation: _Violation, partition: str, *, is_announced: bool) -> None:
        """Report a violation, but do not call `on_finding` again if it was announced before."""
        # `report_finding` calls `on_finding`, so the receiver is removed during the call.
        on_finding = self.on_finding
        if is_announced:
            self.on_finding = None
        self.report_finding(
            violation.summary, violation.evidence, partition=partition, causes=violation.causes
        )
        self.on_finding = on_finding

    def _compare(
        self, partition: str, older: int, newer: int, appends: Iterable[_Acknowledged]
    ) -> _Violation | None:
        """Judge appends that were acknowledged in epoch `older` by rules 1 and 2.

        Return the violation, or None.
        """
        new = self._epochs[partition][newer]
        # If data was lost in an allowed way between the two epochs, rule 1 does not apply.
        was_lost = any(
            older < (loss.leader_epoch or 0) <= newer for loss in self._lost_data.of(partition)
        )
        if new.start_offset is not None and new.start_row is not None and not was_lost:
            start = new.start_offset
            lost = [append for append in appends if append.end > start]
            if lost:
                return _Violation(
                    summary=f"{partition}: {_counted_appends(len(lost))} acknowledged in epoch "
                    f"{older} from offset {lost[0].base} {'is' if len(lost) == 1 else 'are'} "
                    f"missing from the log of epoch {newer}, which begins at {start}",
                    evidence=[*_rows_of(lost), new.start_row],
                    causes=self._explain_loss(partition, lost),
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
        return _Violation(
            summary=f"{partition}: {_counted_appends(len(late))} begun after epoch {newer} had "
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


def _counted_appends(count: int) -> str:
    return "1 append" if count == 1 else f"{count:,} appends"
