"""Recovery: after healing, the cluster is in order again within the time that the settings allow.

When all faults of a run have ended (the healing), this checker expects five conditions to become
true, each within a time limit, its bound:

1. A partition has a leader, and all replicas on unfenced brokers are in its ISR. Such a partition
   is called whole. The bound is `isr_recovery_us` of the context. It begins with the healing, and
   again when another broker is elected or a replica's broker is unfenced.
2. The preferred leader leads, if it is in the ISR and `auto.leader.rebalance.enable` is set. The
   bound is twice `leader.imbalance.check.interval.seconds`, plus ANSWER_US. The interval counts
   twice because a new controller restarts it. The condition is judged only if this bound is within
   the run's `recovery_timeout`.
3. A transaction ends. If its producer does not end it, the coordinator aborts the transaction after
   `transaction.timeout.ms`. The coordinator looks for such transactions at an interval
   (`transaction.abort.timed.out.transaction.cleanup.interval.ms`). The interval counts twice,
   because a new coordinator restarts it. Then a marker is written to each partition of the
   transaction. The marker may take twice ANSWER_US, because one request may be lost on a connection
   that died unnoticed. The bound is the sum of these times.
4. Unstable offsets, which were committed in a transaction, become valid or are discarded when the
   transaction has ended. This happens when the transaction's marker arrives, so the bound is again
   twice ANSWER_US.
5. A producer has at least one record acknowledged. The bound is the sum of the time between two of
   the producer's requests, two request timeouts, and SLACK_US. This condition is judged if all
   replicas of the producer's topic are in sync.

Transactions and producers depend on partitions, so there are exceptions:
- Conditions 3, 4 and 5 are judged only while every partition is whole.
- Some brokers may stay away. If all missing replicas of a partition are on such brokers, the
  partition counts as whole, but may have no leader, or too few replicas for an append. A
  transaction needs two partitions: the partition that stores the transaction, and the partition
  that gets its marker. While one of these two takes no appends, conditions 3 and 4 are not judged.
- Conditions 3 and 4 are not judged for a partition that lost data with its last replica
  (`lost_data`), because the end of a transaction may be among the lost records.

A wait, in the code, is a time in which a condition does not hold. If the run ends during a wait
whose bound has not passed yet, the wait is not judged. To avoid this, a run with a
`recovery_timeout` continues until no wait is left, or until that timeout has passed.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from chaos.checkers.base import Checker
from chaos.checkers.context import (
    HEALED_STAGE,
    REQUEST_TIMEOUT_US,
    CheckContext,
    detail_of,
    topic_of,
)
from chaos.checkers.evidence.board import Evidence
from chaos.checkers.evidence.replicas import REPLICA_KINDS, SeenPartition
from chaos.checkers.evidence.transactions.open_transactions import ONGOING, OpenTransaction
from protocol.trace import TraceKind, TraceRow
from results_schema.evidence_text import seconds
from results_schema.results import CheckReport

ANSWER_US = REQUEST_TIMEOUT_US + 5_000_000
"""Longest time until a request between servers is answered, or is given up and sent again."""
SLACK_US = 10_000_000
"""Time for lookups, retries and new connections in a healthy cluster."""


@dataclass(slots=True)
class _Wait:
    """A wait of a partition for condition 1 or 2."""

    row: TraceRow  # the row with which the bound begins
    leader: str  # the partition's leader at that row


@dataclass(frozen=True, slots=True, kw_only=True)
class _Open:
    """A wait for any of the five conditions that has not ended."""

    until_us: int
    """Time at which the bound of the wait has passed."""
    name: str
    """Sentence for the display of the running run, such as `orders-0 is not whole`."""
    what: str
    """Longer sentence for the finding, if the bound passes."""
    evidence: tuple[TraceRow, ...]
    group: str | None = None
    partition: str | None = None
    is_new: bool = False
    """True for a transaction that began after healing. The run does not continue because of it."""


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
        # transactional.id (here the consumer's name) -> the partition that gets its markers
        self._marker_partitions = {
            consumer: expected.offsets_partition
            for expected in context.groups.values()
            for consumer in expected.consumers
        }
        self._healed: TraceRow | None = None
        self._over = False
        self._whole_since_us = 0  # time at which the last partition became whole
        # Unfinished waits for condition 1, by partition: the partitions that are not whole
        self._lacking: dict[str, _Wait] = {}
        # Unfinished waits for condition 2: partitions that another broker leads
        self._elsewhere: dict[str, _Wait] = {}
        # Unfinished waits for condition 5: producers without an acknowledged record since healing
        self._silent = {producer.name: producer for producer in context.producers}
        self._judged = 0
        self._not_watched = 0  # waits that the run's end cut short before their bound had passed
        self._slowest_us = 0  # longest time from healing until a partition was whole
        self._last_us = 0

    def judge(self, row: TraceRow) -> None:
        """Judge a row of the controller, a coordinator, or a producer."""
        self._last_us = row.time_us
        if self._over:
            return
        if row.kind == TraceKind.RUN_STAGE:
            stage = detail_of(row).get("stage")
            if stage == HEALED_STAGE:
                self._healed = row
                # Every wait that is open now counts from this row.
                for partition in self._replicas.partitions:
                    self._update_waits(partition, row)
            elif stage == "stopping":
                self._report_overdue(row.time_us)
        elif row.kind == TraceKind.RECORDS_PRODUCED:
            if self._healed is not None:
                self._silent.pop(row.node, None)  # condition 5 asks for one record only
        elif self._healed is not None and row.kind in REPLICA_KINDS:
            if row.partition is not None:
                self._update_waits(row.partition, row)
            else:
                # A broker was fenced or unfenced. This concerns all partitions of which the broker
                # has a replica.
                for partition, known in self._replicas.partitions.items():
                    if row.peer in known.replicas:
                        self._update_waits(partition, row)

    # -- partitions ---------------------------------------------------------------------------

    def _update_waits(self, partition: str, row: TraceRow) -> None:
        """Begin, continue or end the two waits of a partition (conditions 1 and 2)."""
        known = self._replicas.of(partition)
        if known is None or self._healed is None:
            return
        # Condition 1. A replica needs the whole time to join the ISR of another leader, and so does
        # a replica that has just come back. In both cases the bound begins anew.
        begins_anew = row.kind == TraceKind.BROKER_UNFENCED or (
            partition in self._lacking and self._lacking[partition].leader != known.leader
        )
        is_incomplete = bool(self._missing(known))
        self._update_wait(
            self._lacking, partition, row, known, waits=is_incomplete, begins_anew=begins_anew
        )
        # Condition 2. The wait lasts while another broker leads although the preferred leader could
        # lead. After a leadership move the trace may not show which of several brokers is the
        # preferred leader. Then each of them is accepted as leader.
        is_elsewhere = (
            self.context.leader_balance_us is not None
            and known.leader != ""
            and known.leader not in known.possibly_preferred
            and known.preferred in known.in_sync
            and known.preferred in self._replicas.may_lead
        )
        begins_anew = row.kind in (TraceKind.BROKER_UNFENCED, TraceKind.LEADER_ELECTED)
        self._update_wait(
            self._elsewhere, partition, row, known, waits=is_elsewhere, begins_anew=begins_anew
        )

    def _update_wait(
        self,
        open_waits: dict[str, _Wait],
        partition: str,
        row: TraceRow,
        known: SeenPartition,
        *,
        waits: bool,
        begins_anew: bool,
    ) -> None:
        """Begin, restart or end the wait of a partition in `open_waits`.

        - `waits`: True if the condition does not hold after the row.
        - `begins_anew`: True if the row restarts the bound of a wait that has begun already.
        """
        wait = open_waits.get(partition)
        if waits and (wait is None or begins_anew):
            open_waits[partition] = _Wait(row=row, leader=known.leader)
        elif not waits and wait is not None:
            del open_waits[partition]
            self._judge_wait(partition, wait, row, known, is_isr=open_waits is self._lacking)

    def _judge_wait(
        self, partition: str, wait: _Wait, row: TraceRow, known: SeenPartition, *, is_isr: bool
    ) -> None:
        """Judge a wait that ended: for condition 1 if `is_isr`, otherwise for condition 2."""
        if is_isr and not self._lacking:  # this was the last partition that was not whole
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
            self.report_finding(
                f"{partition} {what} for {seconds(took_us)}, and may take {seconds(bound_us)}",
                [wait.row, row],
                partition=partition,
            )

    def _missing(self, known: SeenPartition) -> tuple[str, ...]:
        """Return the brokers that keep a partition from being whole.

        - If the partition has no leader: the brokers in the ISR that could be elected.
        - If it has a leader: the brokers with a replica that could be in the ISR, and is not.

        Brokers that are fenced or stopping are left out. If nothing else is missing, the result is
        empty.
        """
        if not known.leader:
            return tuple(broker for broker in known.in_sync if broker in self._replicas.may_lead)
        return tuple(
            broker
            for broker in known.replicas
            if broker not in known.in_sync and broker in self._replicas.may_lead
        )

    def _balance_bound_us(self) -> int | None:
        """Return the longest time until the preferred leader leads; None if it is not judged."""
        interval_us = self.context.leader_balance_us
        if interval_us is None:
            return None
        bound_us = 2 * interval_us + ANSWER_US
        # A run waits no longer than its `recovery_timeout`, so it would cut the wait short.
        return bound_us if bound_us <= self.context.recovery_timeout_us else None

    # -- unfinished waits ---------------------------------------------------------------------

    def unsettled(self, now_us: int) -> tuple[str, ...]:
        """Return the name of each wait that the run must still wait for."""
        if self._healed is None or self._over:
            return ()
        return tuple(
            wait.name for wait in self._open_waits() if now_us <= wait.until_us and not wait.is_new
        )

    def _open_waits(self) -> Iterator[_Open]:
        """Yield each unfinished wait."""
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
        # Conditions 3, 4 and 5 are judged only while every partition is whole.
        if not self._lacking:
            yield from self._unfinished_transactions()
            yield from self._unstable_offsets()
            yield from self._silent_producers()

    def _earliest_us(self, *rows: TraceRow | None) -> int:
        """Return the time from which the bound of a wait for condition 3, 4 or 5 counts.

        This is the latest of the healing, the moment at which the last partition became whole, and
        the times of `rows`.
        """
        healed_us = 0 if self._healed is None else self._healed.time_us
        return max(healed_us, self._whole_since_us, *(row.time_us for row in rows if row))

    def _unfinished_transactions(self) -> Iterator[_Open]:
        """Yield the waits for condition 3: transactions without an end."""
        for transaction in self._transactions.open.values():
            if self._cannot_end_transactions(transaction.partition):
                continue
            # When the outcome is decided, the next step is the marker in the group's partition.
            if transaction.state != ONGOING and self._takes_no_records(
                self._marker_partitions.get(transaction.transactional_id, "")
            ):
                continue
            since = transaction.since
            yield _Open(
                until_us=self._earliest_us(since) + self._transaction_bound_us(transaction),
                name=f"the transaction of {transaction.transactional_id} is {transaction.state}",
                what=f"{transaction.transactional_id}: its transaction is {transaction.state}",
                evidence=(since,),
                partition=transaction.partition,
                # Producers begin transactions all the time. A run that waited for each of them
                # would never end.
                is_new=transaction.state == ONGOING and since.time_us > self._earliest_us(),
            )

    def _cannot_end_transactions(self, partition: str) -> bool:
        """Return True if no coordinator can end the transactions of `partition`."""
        return bool(self._lost_data.of(partition)) or self._takes_no_records(partition)

    def _takes_no_records(self, partition: str) -> bool:
        """Return True if no record can be appended to a partition, because brokers stay away.

        The caller has made sure that every partition is whole. So if this partition has no leader,
        or too few replicas in sync, living brokers are not to blame.
        """
        known = self._replicas.partitions.get(partition)
        if known is None:
            return False
        return not known.leader or len(known.in_sync) < self.context.least_in_sync(partition)

    def _transaction_bound_us(self, transaction: OpenTransaction) -> int:
        """Return the bound of condition 3. If the outcome is decided, only markers are missing."""
        if transaction.state != ONGOING:
            return 2 * ANSWER_US
        return (
            self.context.transaction_timeout_us
            + 2 * self.context.transaction_cleanup_us
            + 2 * ANSWER_US
        )

    def _unstable_offsets(self) -> Iterator[_Open]:
        """Yield the waits for condition 4: offsets of transactions that have no marker yet."""
        for (group_id, producer_id), row in self._transactions.unstable.items():
            expected = self.context.groups.get(group_id)
            state = self._transactions.last_state(producer_id)
            if expected is None or state is None:
                continue
            # While the transaction is open, only condition 3 is judged, because the offsets must
            # wait for the end of their transaction.
            if detail_of(state).get("transactional_id") in self._transactions.open:
                continue
            partitions = expected.coordinator_partitions
            if any(self._cannot_end_transactions(partition) for partition in partitions):
                continue
            yield _Open(
                until_us=self._earliest_us(row, state) + 2 * ANSWER_US,
                name=f"offsets of {group_id} wait for a marker",
                what=f"{group_id} has offsets of producer {producer_id} that are not stable, "
                f"although their transaction is {detail_of(state).get('to')}",
                evidence=(row, state),
                group=group_id,
                partition=expected.offsets_partition,
            )

    def _silent_producers(self) -> Iterator[_Open]:
        """Yield the waits for condition 5: producers with no record acknowledged since healing."""
        if self._healed is None:
            return
        for producer in self._silent.values():
            topic_partitions = [
                partition
                for name, partition in self._replicas.partitions.items()
                if topic_of(name) == producer.topic
            ]
            if any(
                len(partition.in_sync) < len(partition.replicas) for partition in topic_partitions
            ):
                continue
            bound_us = producer.period_us + 2 * producer.request_timeout_us + SLACK_US
            yield _Open(
                until_us=self._earliest_us() + bound_us,
                name=f"{producer.name} has had nothing acknowledged since healing",
                what=f"{producer.name} has had no record of {producer.topic} acknowledged",
                evidence=(),  # no row shows a silence; the finding has the healing
            )

    # -- the end ------------------------------------------------------------------------------

    def _report_overdue(self, now_us: int) -> None:
        """Report every wait whose bound has passed. Called before the driver stops all nodes."""
        self._over = True
        if self._healed is None:
            return
        for wait in list(self._open_waits()):
            if now_us <= wait.until_us + self.context.clock_error_us:
                if not wait.is_new:
                    self._not_watched += 1
                continue
            self._judged += 1
            self.report_finding(
                f"{wait.what}, {seconds(now_us - self._healed.time_us)} after healing",
                [self._healed, *wait.evidence],
                group=wait.group,
                partition=wait.partition,
            )

    def finish(self) -> CheckReport:
        """Report the findings, and figures of all waits."""
        if not self._over:
            self._report_overdue(self._last_us)
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
