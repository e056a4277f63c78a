"""Recovery: what was broken is whole again, within the time that the settings allow.

Judged from healing on. Each wait runs from the last row that begins it anew, and has a bound:

1. A partition has a leader, and every replica whose broker is unfenced is in its ISR:
   `isr_recovery_us` of the context, from healing, the election of another leader, or the unfencing
   of a replica's broker, whichever came last.
2. The preferred leader leads again, where `auto.leader.rebalance.enable` asks for it and it is in
   the ISR: twice `leader.imbalance.check.interval.seconds` (another controller begins its interval
   anew) and ANSWER_US. Judged only where a run may wait for so long.
3. A transaction that nobody ends is aborted: the longest `transaction.timeout.ms`, then the
   interval of `transaction.abort.timed.out.transaction.cleanup.interval.ms`, twice for the same
   reason. Once it is decided, its markers are written everywhere: ANSWER_US, twice, for one may be
   lost on a connection that nobody knows to be dead.
4. An offset that a transaction committed is stable, or forgotten, in the same time after the
   transaction's end was decided.
5. A producer has a record acknowledged: in the time between two records, two of its requests and
   SLACK_US, where every partition of its topic has all of its replicas in sync.

3, 4 and 5 are judged while every partition is whole, as 1 means it, and not of a partition that
lost data with its last replica (`lost_data`): a transaction may have lost its end with it. Nothing
is judged that the end of the run cuts short; a run with a `recovery_timeout` goes on until nothing
is left to wait for.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from chaos.checkers.base import Checker
from chaos.checkers.context import HEALED_STAGE, REQUEST_TIMEOUT_US, CheckContext, detail_of
from chaos.checkers.evidence.board import Evidence
from chaos.checkers.evidence.open_transactions import ONGOING, OpenTransaction
from chaos.checkers.evidence.replicas import REPLICA_KINDS, SeenPartition
from protocol.trace import TraceKind, TraceRow
from results_schema.evidence_text import seconds
from results_schema.results import CheckReport

ANSWER_US = REQUEST_TIMEOUT_US + 5_000_000
"""Time in which a request between servers is answered, or given up and sent again."""
SLACK_US = 10_000_000
"""Lookups, retries and new connections in a healthy cluster."""


@dataclass(slots=True)
class _Wait:
    """Something that is not as it should be. Shape: `row` began the wait, under `leader`."""

    row: TraceRow
    leader: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Open:
    """What a run may still wait for: a wait, its bound's end, and what is said if it passes."""

    until_us: int
    name: str
    what: str
    evidence: tuple[TraceRow, ...]
    group: str | None = None
    partition: str | None = None
    is_new: bool = False  # it began after healing: no run waits for it


class Recovery(Checker):
    """After healing, partitions, leaders, transactions and unstable offsets are in order again."""

    name = "recovery"
    promise = (
        "after healing, every partition has a leader and every living replica in its ISR, "
        "preferred leaders lead where they are asked to, and no transaction and no offset of one "
        "waits for its end, and producers have records acknowledged, each within the time that "
        "the settings allow"
    )
    kinds = frozenset(
        {
            TraceKind.RUN_STAGE,
            TraceKind.RECORDS_PRODUCED,
            *REPLICA_KINDS,
        }
    )

    def __init__(self, context: CheckContext, evidence: Evidence | None = None) -> None:
        super().__init__(context, evidence)
        self._replicas = self.evidence.replicas
        self._transactions = self.evidence.open_transactions
        self._lost_data = self.evidence.lost_data
        self._healed: TraceRow | None = None
        self._over = False
        self._whole_since_us = 0  # when the last partition became whole
        self._lacking: dict[str, _Wait] = {}  # partitions that are not whole
        self._elsewhere: dict[str, _Wait] = {}  # partitions that the preferred leader does not lead
        self._silent = {each.name: each for each in context.producers}  # since healing
        self._judged = 0
        self._not_watched = 0
        self._slowest_us = 0
        self._last_us = 0

    def judge(self, row: TraceRow) -> None:
        """Take in what the controller or a coordinator says."""
        self._last_us = row.time_us
        if self._over:
            return
        if row.kind == TraceKind.RUN_STAGE:
            stage = detail_of(row).get("stage")
            if stage == HEALED_STAGE:
                self._healed = row
                for partition in self._replicas.partitions:
                    self._look(partition, row)
            elif stage == "stopping":
                self._end(row.time_us)
        elif row.kind == TraceKind.RECORDS_PRODUCED:
            if self._healed is not None:
                self._silent.pop(row.node, None)
        elif self._healed is not None and row.kind in REPLICA_KINDS:
            if row.partition is not None:
                self._look(row.partition, row)
            else:
                for partition, known in self._replicas.partitions.items():
                    if row.peer in known.replicas:
                        self._look(partition, row)

    # -- partitions ---------------------------------------------------------------------------

    def _look(self, partition: str, row: TraceRow) -> None:
        """Begin, go on with or end the waits of a partition."""
        known = self._replicas.of(partition)
        if known is None or self._healed is None:
            return
        begins_anew = row.kind == TraceKind.BROKER_UNFENCED or (
            partition in self._lacking and self._lacking[partition].leader != known.leader
        )
        lacks = bool(self._missing(known))
        self._follow(self._lacking, partition, row, known, lacks=lacks, begins_anew=begins_anew)
        is_elsewhere = (
            self.context.leader_balance_us is not None
            and known.leader not in ("", known.preferred)
            and known.preferred in known.in_sync
            and known.preferred in self._replicas.may_lead
        )
        anew = row.kind in (TraceKind.BROKER_UNFENCED, TraceKind.LEADER_ELECTED)
        self._follow(self._elsewhere, partition, row, known, lacks=is_elsewhere, begins_anew=anew)

    def _follow(
        self,
        waits: dict[str, _Wait],
        partition: str,
        row: TraceRow,
        known: SeenPartition,
        *,
        lacks: bool,
        begins_anew: bool,
    ) -> None:
        wait = waits.get(partition)
        if lacks and (wait is None or begins_anew):
            waits[partition] = _Wait(row=row, leader=known.leader)
        elif not lacks and wait is not None:
            del waits[partition]
            self._ended(partition, wait, row, known, is_isr=waits is self._lacking)

    def _ended(
        self, partition: str, wait: _Wait, row: TraceRow, known: SeenPartition, *, is_isr: bool
    ) -> None:
        """A wait is over: was it in time."""
        if is_isr and not self._lacking:
            self._whole_since_us = row.time_us
        bound_us = self.context.isr_recovery_us if is_isr else self._balance_bound_us()
        if bound_us is None:
            return
        self._judged += 1
        took_us = row.time_us - wait.row.time_us
        if is_isr and self._healed is not None:
            self._slowest_us = max(self._slowest_us, row.time_us - self._healed.time_us)
        if took_us > bound_us + self.context.clock_error_us:
            what = "was not whole" if is_isr else f"was not led by {known.preferred}"
            self.found(
                f"{partition} {what} for {seconds(took_us)}, and may take {seconds(bound_us)}",
                [wait.row, row],
                partition=partition,
            )

    def _missing(self, known: SeenPartition) -> tuple[str, ...]:
        """Return the unfenced brokers that keep a partition from being whole."""
        if not known.leader:
            return tuple(each for each in known.in_sync if each in self._replicas.may_lead)
        return tuple(
            each
            for each in known.replicas
            if each not in known.in_sync and each in self._replicas.may_lead
        )

    def _balance_bound_us(self) -> int | None:
        """Return how long another leader than the preferred one may lead; None: not judged."""
        interval_us = self.context.leader_balance_us
        if interval_us is None:
            return None
        bound_us = 2 * interval_us + ANSWER_US
        return bound_us if bound_us <= self.context.recovery_timeout_us else None

    # -- what is left -------------------------------------------------------------------------

    def unsettled(self, now_us: int) -> tuple[str, ...]:
        """Return what the run may still wait for: everything whose bound is not over."""
        if self._healed is None or self._over:
            return ()
        return tuple(
            each.name for each in self._open() if now_us <= each.until_us and not each.is_new
        )

    def _open(self) -> Iterator[_Open]:
        """Yield each wait that has not ended."""
        for partition, wait in self._lacking.items():
            known = self._replicas.partitions[partition]
            missing = self._missing(known)
            what = (
                f"{' and '.join(missing)} could be in sync, and is not"
                if known.leader
                else f"it has no leader, although {' and '.join(missing)} could lead"
            )
            yield _Open(
                until_us=wait.row.time_us + self.context.isr_recovery_us,
                name=f"{partition} is not whole",
                what=f"{partition} is not whole: {what}",
                evidence=(wait.row, known.row),
                partition=partition,
            )
        balance_us = self._balance_bound_us()
        if balance_us is not None:
            for partition, wait in self._elsewhere.items():
                known = self._replicas.partitions[partition]
                yield _Open(
                    until_us=wait.row.time_us + balance_us,
                    name=f"{partition} is not led by its preferred leader",
                    what=f"{partition} is led by {known.leader}, and its preferred leader "
                    f"{known.preferred} is in sync",
                    evidence=(wait.row, known.row),
                    partition=partition,
                )
        if not self._lacking:
            yield from self._unended()
            yield from self._unstable_offsets()
            yield from self._silent_producers()

    def _from_us(self, *rows: TraceRow | None) -> int:
        """Return since when something could end: all is healed and whole, and the rows are past."""
        healed_us = 0 if self._healed is None else self._healed.time_us
        return max(healed_us, self._whole_since_us, *(row.time_us for row in rows if row))

    def _unended(self) -> Iterator[_Open]:
        for each in self._transactions.open.values():
            if self._ends_nothing(each.partition):
                continue
            yield _Open(
                until_us=self._from_us(each.since) + self._transaction_bound_us(each),
                name=f"the transaction of {each.transactional_id} is {each.state}",
                what=f"{each.transactional_id}: its transaction is {each.state}",
                evidence=(each.since,),
                partition=each.partition,
                is_new=each.state == ONGOING and each.since.time_us > self._from_us(),
            )

    def _ends_nothing(self, partition: str) -> bool:
        """Return whether no coordinator can end the transactions of `partition` as it should.

        Its data is lost, or it has no leader because its last in-sync replica stays away. That
        another replica could lead it is another finding: see `_lacking`.
        """
        known = self._replicas.partitions.get(partition)
        return bool(self._lost_data.of(partition)) or (known is not None and not known.leader)

    def _transaction_bound_us(self, transaction: OpenTransaction) -> int:
        if transaction.state != ONGOING:
            return 2 * ANSWER_US
        return (
            self.context.transaction_timeout_us
            + 2 * self.context.transaction_cleanup_us
            + 2 * ANSWER_US
        )

    def _unstable_offsets(self) -> Iterator[_Open]:
        for (group_id, producer_id), row in self._transactions.unstable.items():
            expected = self.context.groups.get(group_id)
            state = self._transactions.last_state(producer_id)
            if expected is None or state is None:
                continue
            if detail_of(state).get("transactional_id") in self._transactions.open:
                continue
            of = (expected.offsets_partition, *expected.transaction_partitions)
            if any(self._ends_nothing(each) for each in of):
                continue
            yield _Open(
                until_us=self._from_us(row, state) + 2 * ANSWER_US,
                name=f"offsets of {group_id} wait for a marker",
                what=f"{group_id} has offsets of producer {producer_id} that are not stable, "
                f"although their transaction is {detail_of(state).get('to')}",
                evidence=(row, state),
                group=group_id,
                partition=expected.offsets_partition,
            )

    def _silent_producers(self) -> Iterator[_Open]:
        if self._healed is None:
            return
        for each in self._silent.values():
            of_topic = [
                known
                for name, known in self._replicas.partitions.items()
                if name.rpartition("-")[0] == each.topic
            ]
            if any(len(known.in_sync) < len(known.replicas) for known in of_topic):
                continue
            bound_us = each.period_us + 2 * each.request_timeout_us + SLACK_US
            yield _Open(
                until_us=self._from_us() + bound_us,
                name=f"{each.name} has had nothing acknowledged since healing",
                what=f"{each.name} has had no record of {each.topic} acknowledged",
                evidence=(),
            )

    # -- the end ------------------------------------------------------------------------------

    def _end(self, now_us: int) -> None:
        """Report what is over its bound: the driver stops every node next."""
        self._over = True
        if self._healed is None:
            return
        for each in list(self._open()):
            if now_us <= each.until_us + self.context.clock_error_us:
                self._not_watched += not each.is_new
                continue
            self._judged += 1
            self.found(
                f"{each.what}, {seconds(now_us - self._healed.time_us)} after healing",
                [self._healed, *each.evidence],
                group=each.group,
                partition=each.partition,
            )

    def finish(self) -> CheckReport:
        """Report."""
        if not self._over:
            self._end(self._last_us)
        note = ""
        if self._healed is None:
            note = "the run was over before it could be judged after healing"
        elif self._not_watched:
            note = f"{self._not_watched} not whole at the end of the run, within their time"
        elif not self._judged:
            note = "all was whole when everything was healed"
        return self.report(
            judged=self._judged,
            seen={
                "recovered": self._judged,
                "slowest_isr_after_healing_us": self._slowest_us,
                "not_watched": self._not_watched,
            },
            note=note,
        )
