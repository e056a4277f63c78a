"""Durable commits: a fetch returns the last acknowledged commit, or a newer one.

"Fetch" means the request OffsetFetch, and a value is a committed offset. Every pair of group and
partition is a register of values. A commit takes effect at an unknown moment of an interval, which
begins at the earliest time at which its member can have sent it, and ends with the answer. A fetch
may return the value of any commit, unless an acknowledged commit certainly replaced that value
before the fetch began. "Newer" means later, not larger: a member that commits a smaller offset
rewinds its group without a loss. Names in backticks below are modules of
`chaos/checkers/evidence`. A group's commits are records of a partition of `__consumer_offsets`; the
leader of this offsets partition is the group's coordinator, and loads the records into memory.

A commit may have been written without an acknowledgement. Either its request failed without a
definite answer, or a coordinator stored it and its member got no answer. A fetch may return the
value of such a commit, but the commit replaces no other. How late it can still take effect depends
on what ended the request:

* The broker answered, perhaps with REQUEST_TIMED_OUT: the broker's log has the record already, or
  will never have it. The record may be replicated much later. But all later appends come after it
  in the log, and a new leader's log either has the record or will never have it. So the commit took
  effect before the answer, or never.
* The client stopped waiting (TIMED_OUT, or DISCONNECTED from a living process). The request may
  wait in the socket of a paused or slow broker, which handles it after newer commits. So the commit
  may take effect at any time.
* DISCONNECTED from a process that was killed: the request ended with the process.

A commit in a transaction is acknowledged when the transaction's outcome is decided. It is stored
when its marker (the record that ends the transaction in the offsets partition) is written. Between
the two moments no member reads the new value or the older one. Members ask for stable offsets only,
so a coordinator refuses to answer while an open transaction may change the offset. An aborted
commit counts as never written, and its group must not use it (`transaction_ends`).

An administrator may delete a value alone, or with its group or topic. The value may then be
missing. A later load of the group may also restore it, as in Kafka, because the deletion does not
wait until the log has the tombstone (a record without a value, which deletes its key). The deletion
of a group or of its offsets also deletes commits whose append or transaction has not ended. They
are acknowledged later all the same, as in Kafka. The trace has a row for them only if their
partition has no stored offset. A transaction counts as open until its marker is written, although
its outcome was acknowledged before. An administrator's commit is judged like a member's. A value
that expired may be missing, too, if its group was Empty (without members) for
`offsets.retention.minutes` (`Expiry` in `coordinators`).

A commit that was lost with the last replica in sync (`lost_data`) counts as one that may have been
written. But no append may be acknowledged while fewer than min.insync.replicas are in sync, even if
nothing is lost (`enough_replicas`).

Four kinds of fetches and commits prove nothing:
* A fetch from a coordinator that another broker had replaced may be stale, as in Kafka: a
  coordinator answers fetches without asking its replicas (BEHAVIOUR 6.5). It is only counted.
* A fetch from a coordinator that lost the leadership in the middle of its load may miss the rest
  of the log (`half_loads`). It is only counted, too.
* A commit that Kafka itself forgets until the next load (`forgotten_commits`) is not expected.
* A fetch of a value that no known commit wrote is a suspicion. It becomes a finding after a request
  timeout, because until then the member that committed the value may wait for its answer.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from chaos.checkers.base import Checker
from chaos.checkers.context import HEALED_STAGE, CheckContext, detail_of
from chaos.checkers.evidence.board import Evidence
from chaos.checkers.evidence.commit_registers import (
    GIVEN_UP_BY_THE_CLIENT,
    Commit,
    Register,
    replaces,
)
from chaos.checkers.evidence.enough_replicas import REPLICAS_KINDS, EnoughReplicas
from chaos.checkers.evidence.lost_data import LOSS_KINDS
from chaos.checkers.evidence.transactions.forgotten_commits import (
    FORGETTING_KINDS,
    ForgottenCommits,
)
from chaos.checkers.evidence.transactions.transaction_ends import (
    END_KINDS,
    TransactionEnds,
    WrongEnd,
)
from protocol.api import Api
from protocol.causes import ORDERED_DELETIONS, DeletionCause, OffsetFetchCause
from protocol.errors import ErrorCode
from protocol.ids import CONSUMER_OFFSETS
from protocol.trace import MESSAGE_KINDS, TraceKind, TraceRow
from results_schema.results import CheckReport

RESIGNING_US = 5_000_000
"""Longest time until a broker that the controller can reach learns that it is no longer leader.

The checker Ownership has the same bound, and the measured time.
"""
KILL_SEEN_US = 1_000_000
"""Longest time from a client's DISCONNECTED to the driver's row of the kill that caused it."""
MAX_KEPT_ASSIGNMENTS = 8
"""Number of a member's assignments that are kept: the most recent ones.

More than one is kept because the answer to a commit may come in a later generation.
"""
VERIFYING_STAGE = "verifying"
"""In this stage the run verifies offsets: a fetch expects every commit acknowledged before it."""

# Names of excuses in the report.
FORGOTTEN = "transactional commit that Kafka forgets until the next load"
LATE_END = "end of a transaction that came behind a load"
_LEADERSHIP = frozenset({TraceKind.BECAME_LEADER, TraceKind.LOAD_COMPLETED})
_NO_OFFSET = -1  # the value that a fetch returns if nothing is committed
_NEVER_SENT = "COMMIT_FAILED"  # an error of the client: it had no generation to commit in
_ABORTED = "TRANSACTION_ABORTED"  # an error of the client: its offsets never count
_DEFINITE_NAMES = frozenset(code.name for code in ErrorCode if code.definite) | {
    _NEVER_SENT,
    _ABORTED,
}
"""Errors of a commit that was certainly not written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Suspicion:
    """A fetch that proves a loss, unless a commit that explains its value becomes known later.

    - `settled`: commits that were acknowledged before the fetch began.
    - `candidates`: known commits of the fetched value, all certainly replaced by `settled` ones.
    - `reported_after_us`: the time after which no commit can become known any more.
    """

    register: Register
    row: TraceRow
    group: str
    partition: str
    candidates: list[Commit]
    settled: list[Commit]
    reported_after_us: int


class DurableCommits(Checker):
    """A fetch returns the last acknowledged commit, or a newer one."""

    name = "durable_commits"
    promise = (
        "an acknowledged commit is what a later fetch returns, or something newer that was "
        "acknowledged or may have been; what a transaction committed counts exactly if it was "
        "decided so; and nothing is acknowledged to a coordinator while fewer replicas than "
        "min.insync.replicas are in sync"
    )
    kinds = frozenset(
        {
            TraceKind.OFFSETS_COMMITTED,
            TraceKind.COMMIT_FAILED,
            TraceKind.ADMIN_COMMIT,
            TraceKind.GROUP_STATE,
            TraceKind.COMMIT_STORED,
            TraceKind.OFFSET_REMOVED,
            TraceKind.PENDING_COMMIT_REMOVED,
            TraceKind.OFFSETS_FETCHED,
            TraceKind.PARTITIONS_ASSIGNED,
            TraceKind.REQUEST_SENT,
            TraceKind.RUN_STAGE,
            *LOSS_KINDS,
            *REPLICAS_KINDS,
            *END_KINDS,
            *FORGETTING_KINDS,
            TraceKind.NODE_STOPPED,
            *_LEADERSHIP,
        }
    )

    def __init__(self, context: CheckContext, evidence: Evidence | None = None) -> None:
        super().__init__(context, evidence)
        self._registers: dict[tuple[str, str], Register] = {}
        # (node, group) -> its last PARTITIONS_ASSIGNED, the newest at the end
        self._assigned: defaultdict[tuple[str, str], deque[TraceRow]] = defaultdict(
            lambda: deque(maxlen=MAX_KEPT_ASSIGNMENTS)
        )
        self._fetch_sent_us: dict[tuple[str, str], int] = {}  # (node, group)
        self._healed_us = 0  # time of the stage in which all faults are healed
        self._verifying_us: int | None = None  # time of the stage "verifying", once it has begun
        self._leaders: dict[str, list[TraceRow]] = {}  # offsets partition -> leadership rows
        # group -> last loss or deletion that may include open transactions
        self._lost_us: dict[str, int] = {}
        self._lost_at: dict[str, TraceRow] = {}  # group -> election with which its data was lost
        self._has_killed_consumer: dict[str, bool] = {}  # by group
        self._ended_us: dict[str, list[int]] = {}  # broker -> the ends of its processes
        self._suspicions: list[_Suspicion] = []
        self._lost_data = self.evidence.lost_data
        self._half_loads = self.evidence.half_loads
        self._expiry = self.evidence.expiry
        self._enough_replicas = EnoughReplicas()
        self._forgotten = ForgottenCommits(context)
        self._excused: Counter[str] = Counter()
        self._transaction_ends = TransactionEnds(context.clock_error_us, self._lost_data)
        # (partition, broker) reported for an append with too few replicas in sync
        self._on_too_few: dict[tuple[str, str], None] = {}
        self._forgiven = 0  # acknowledged commits that data losses made unexpected
        self._consumers = {
            node: group for group, known in context.groups.items() for node in known.consumers
        }
        self._seen = {
            "offsets_acknowledged": 0,
            "offsets_of_unknown_outcome": 0,
            "fetches_judged": 0,
            "fetches_with_no_commit_acknowledged_before": 0,
            "fetches_of_unknown_start": 0,
            "fetches_from_a_replaced_coordinator": 0,
            "fetches_of_a_value_nobody_is_known_to_have_committed": 0,
            "fetches_of_a_value_that_timed_out": 0,
        }

    def judge(self, row: TraceRow) -> None:
        """Judge a fetch, or keep the facts of another row.

        Other rows are commits, and rows that show when commits and fetches can have begun.
        """
        if (
            self._suspicions
            and self._suspicions[0].reported_after_us < row.time_us
            # A finding becomes a row of the trace, after the present row. Some traces lack the rows
            # of messages. A finding must be at the same place in a trace with and without them.
            and row.kind not in MESSAGE_KINDS
        ):
            self._report_suspicions(row.time_us)
        if row.kind in LOSS_KINDS and self._lost_data.is_loss(row):
            self._excuse_losses(row.partition or "", row)
        if row.kind in REPLICAS_KINDS:
            self._check_replicas(row, row.partition or "")
        if row.kind in FORGETTING_KINDS:
            self._forgotten.observe(row)
        if row.kind in END_KINDS:
            self._report_wrong_ends(self._transaction_ends.observe(row))
            if row.kind != TraceKind.LOAD_COMPLETED:
                return  # only a load concerns the cases below, too

        match row.kind:
            case TraceKind.RUN_STAGE:
                stage = detail_of(row).get("stage")
                if stage == HEALED_STAGE:
                    self._healed_us = row.time_us
                elif stage == VERIFYING_STAGE:
                    self._verifying_us = row.time_us
            case TraceKind.REQUEST_SENT:
                if row.api == Api.OFFSET_FETCH.label and row.group is not None:
                    self._fetch_sent_us[row.node, row.group] = row.time_us
            case TraceKind.PARTITIONS_ASSIGNED:
                if row.group is not None:
                    self._assigned[row.node, row.group].append(row)
            case TraceKind.NODE_KILLED | TraceKind.NODE_STOPPED:
                node = row.peer or row.node
                self._ended_us.setdefault(node, []).append(row.time_us)
                group = self._consumers.get(node)
                if group is not None and row.kind == TraceKind.NODE_KILLED:
                    self._has_killed_consumer[group] = True
            case TraceKind.BECAME_LEADER | TraceKind.LOAD_COMPLETED:
                if row.partition is not None and row.partition.startswith(CONSUMER_OFFSETS):
                    self._leaders.setdefault(row.partition, []).append(row)
            # Rows of LOSS_KINDS and REPLICAS_KINDS, which were judged above.
            case TraceKind.FAULT_INJECTED | TraceKind.LEADER_ELECTED | TraceKind.ISR_CHANGED:
                pass
            case TraceKind.APPEND_COMPLETED:
                pass
            case TraceKind.GROUP_STATE:
                # The group's deletion takes the offsets of open transactions, too. No row shows it.
                if row.cause == DeletionCause.DELETED:
                    self._may_lose_transactions(row.group or "", row.time_us)
            case TraceKind.OFFSET_REMOVED | TraceKind.PENDING_COMMIT_REMOVED:
                if row.cause in ORDERED_DELETIONS and row.group and row.partition:
                    self._may_lose_transactions(row.group, row.time_us)
                    self._take_stored(row, row.group, row.partition, _NO_OFFSET)
                elif row.group and row.partition and self._expiry.is_due(row):
                    self._take_stored(row, row.group, row.partition, _NO_OFFSET)
            case _:
                if row.group is not None and row.partition is not None and row.offset is not None:
                    self._observe_offset(row, row.group, row.partition, row.offset)

    def _report_wrong_ends(self, ends: Iterable[WrongEnd]) -> None:
        """Report wrong ends of transactions, and excuse commits that were forgotten by a late end.

        A late end is one that waits behind a load until the producer's next transaction has begun.
        """
        for end in ends:
            self.report_finding(end.summary, end.evidence, group=end.evidence[-1].group)
        for since, late in self._transaction_ends.late:
            # The late end has taken all offsets of the producer since `since`.
            self._forgotten.forget(since.group or "", since.member, since.time_us, late.time_us)
            self._excused[LATE_END] += 1
        self._transaction_ends.late.clear()
        for pending, late_end in self._transaction_ends.emptied:
            # Only a commit that was in progress at the end can be forgotten.
            self._forgotten.forget(
                pending.group or "", pending.member, late_end.time_us, late_end.time_us
            )
        self._transaction_ends.emptied.clear()

    def _check_replicas(self, row: TraceRow, partition: str) -> None:
        """Report an append acknowledged with too few replicas, once for each broker's partition."""
        too_few = self._enough_replicas.observe(row, self.context.min_insync_replicas)
        if too_few is None:
            return
        if (place := (partition, row.node)) in self._on_too_few:
            self.findings_total += 1  # the same violation by another append
            return
        self._on_too_few[place] = None
        self.report_finding(too_few.summary, too_few.evidence, partition=partition)

    def _excuse_losses(self, lost: str, election: TraceRow) -> None:
        """Stop expecting the commits that were in a coordinator's partition when it lost data."""
        held = {
            group_id: None
            for group_id, expected in self.context.groups.items()
            if lost == expected.offsets_partition or lost in expected.transaction_partitions
        }
        for (group, _), register in self._registers.items():
            if group in held:
                self._forgiven += register.forgive()
        for group_id in held:
            self._may_lose_transactions(group_id, election.time_us)
            # Only a leader of this partition acknowledges commits of the group, so `_take_answer`
            # compares such a leader with the elected one.
            if lost == self.context.groups[group_id].offsets_partition:
                self._lost_at[group_id] = election

    def _may_lose_transactions(self, group_id: str, time_us: int) -> None:
        """Stop expecting the commits in transactions of the group that are open now."""
        known = self.context.groups.get(group_id)
        if known is None or not known.transaction_partitions:
            return
        self._lost_us[group_id] = time_us
        for (group, _), register in self._registers.items():
            if group == group_id:
                register.forgive_unstored()

    def _observe_offset(self, row: TraceRow, group: str, partition: str, offset: int) -> None:
        register = self._registers.setdefault((group, partition), Register())
        match row.kind:
            case TraceKind.OFFSETS_COMMITTED:
                self._seen["offsets_acknowledged"] += 1
                self._take_answer(register, row, group, offset, acknowledged=True)
            case TraceKind.ADMIN_COMMIT if row.error == ErrorCode.NONE.name:
                self._seen["offsets_acknowledged"] += 1
                self._take_answer(register, row, group, offset, acknowledged=True)
            case TraceKind.COMMIT_FAILED | TraceKind.ADMIN_COMMIT:
                # Without a peer no coordinator was known, so nothing was sent.
                if row.error not in _DEFINITE_NAMES and row.peer is not None:
                    self._seen["offsets_of_unknown_outcome"] += 1
                    self._take_answer(register, row, group, offset, acknowledged=False)
                # The member sends its next commit only after this failure.
                register.answered_us[row.node] = row.time_us
            case TraceKind.COMMIT_STORED if register.has_answer(row, offset):
                pass  # the register has the commit already, from the row of the member's answer
            case TraceKind.COMMIT_STORED:
                self._take_stored(row, group, partition, offset)
            case TraceKind.OFFSETS_FETCHED:
                if row.error in {None, "NONE"}:
                    self._judge(register, row, group, partition, offset)
            case _:
                pass

    def _take_stored(self, row: TraceRow, group: str, partition: str, offset: int) -> None:
        """Remember that a coordinator stored a value, or deleted one (_NO_OFFSET)."""
        register = self._registers.setdefault((group, partition), Register())
        self._remember(
            register,
            Commit(
                offset=offset,
                node=row.node,
                earliest_us=row.time_us,
                latest_us=row.time_us,
                acknowledged=False,
                row=row,
            ),
        )

    def _take_answer(
        self, register: Register, row: TraceRow, group: str, offset: int, *, acknowledged: bool
    ) -> None:
        """Remember a commit whose member has an answer.

        The commit cannot have been sent
        1. before the answer to the member's previous commit of this partition, because a member
           has only one commit in flight;
        2. before the member got the assignment of the commit's own generation. The answer may come
           in a later generation: a transaction does not end with the membership that began it.

        An acknowledged commit counts as unacknowledged in two cases:
        1. Its transaction may have been open when data was lost or deleted. Its offset may then be
           missing although the transaction was committed.
        2. It may have been sent before a loss, and a broker other than the leader that was elected
           with the loss acknowledges it.
        """
        assigned_us = next(
            (
                assigned.time_us
                for assigned in self._assigned.get((row.node, group), ())
                if (assigned.member, assigned.generation) == (row.member, row.generation)
            ),
            0,
        )
        earliest = max(register.answered_us.get(row.node, 0), assigned_us)
        register.answered_us[row.node] = row.time_us
        if acknowledged:
            register.take_answer(row, offset)
        # Case 1. A group without a loss has -1, because 0 is the `earliest` of a commit whose
        # beginning no row limits.
        acknowledged = acknowledged and earliest > self._lost_us.get(group, -1)
        loss = self._lost_at.get(group)
        # Case 2: a paused, replaced leader may acknowledge a commit that only the lost replica had.
        if loss is not None and earliest <= loss.time_us and row.peer != loss.peer:
            acknowledged = False
        commit = Commit(
            offset=offset,
            node=row.node,
            earliest_us=min(earliest, row.time_us),
            latest_us=row.time_us,
            acknowledged=acknowledged,
            row=row,
        )
        self._remember(register, commit)

    def _remember(self, register: Register, commit: Commit) -> None:
        """Add a commit to its register, and drop the suspicions that it explains."""
        register.remember(commit)
        if self._suspicions:
            self._suspicions = [
                suspicion
                for suspicion in self._suspicions
                if suspicion.register is not register or not self._explains(suspicion, commit)
            ]

    def _explains(self, suspicion: _Suspicion, commit: Commit) -> bool:
        """Return True if a commit that became known only now explains a suspected fetch's value."""
        margin = self.context.clock_error_us
        if (
            commit.offset != suspicion.row.offset
            or commit.earliest_us > suspicion.row.time_us + margin
        ):
            return False
        replaced = any(replaces(newer, commit, margin) for newer in suspicion.settled)
        return not replaced or self._is_pending(commit)

    def _is_pending(self, commit: Commit) -> bool:
        """Return True if the commit may still take effect, because its client stopped waiting.

        The request may have been at the broker when the broker's process ended. Then the request
        ended with the process, and the commit cannot take effect any more.
        """
        if commit.acknowledged or commit.row.error not in GIVEN_UP_BY_THE_CLIENT:
            return False
        margin = self.context.clock_error_us
        until_us = commit.latest_us + margin + KILL_SEEN_US
        return not any(
            commit.earliest_us - margin <= ended_us <= until_us
            for ended_us in self._ended_us.get(commit.row.peer or "", ())
        )

    def _judge(
        self, register: Register, row: TraceRow, group: str, partition: str, offset: int
    ) -> None:
        """Judge a fetch. If no rule explains its value, it becomes a suspicion.

        1. The beginning of the fetch must be known; otherwise nothing can be judged.
        2. A known commit of the value explains it, unless a settled commit replaced that commit.
        3. A commit that its client gave up explains it: it may take effect at any time.
        4. A killed consumer of the group explains it, if no known commit has the value.
        5. A coordinator that was replaced, or that answers from half a log, explains it.
        """
        # Rule 1. The register may have dropped a commit that explains an old fetch.
        began = self._latest_start_us(row, group)
        if began is None or began <= register.forgotten_until_us:
            self._seen["fetches_of_unknown_start"] += 1
            return

        margin = self.context.clock_error_us
        settled = [
            commit
            for commit in register.commits
            if commit.acknowledged and commit.latest_us + margin < began
        ]
        if settled:
            self._seen["fetches_judged"] += 1
        else:
            self._seen["fetches_with_no_commit_acknowledged_before"] += 1
            if offset < 0:
                return  # "no offset" is right while no commit is acknowledged
            # An offset that no commit wrote is a suspicion even now.

        # Rule 2
        candidates = [
            commit
            for commit in register.commits
            if commit.offset == offset and commit.earliest_us <= row.time_us + margin
        ]
        if any(
            not any(replaces(newer, commit, margin) for newer in settled) for commit in candidates
        ):
            return

        # Rules 3 to 5
        if any(
            commit.earliest_us <= row.time_us + margin and self._is_pending(commit)
            for commit in register.pending.get(offset, ())
        ):
            self._seen["fetches_of_a_value_that_timed_out"] += 1
            return
        if not candidates and offset >= 0 and self._has_killed_consumer.get(group):
            # A killed consumer may have lost the last rows of its trace, among them the commit's.
            self._seen["fetches_of_a_value_nobody_is_known_to_have_committed"] += 1
            return
        if self._is_excusably_stale(row, group):
            self._seen["fetches_from_a_replaced_coordinator"] += 1
            return

        expected = self.context.groups.get(group)
        patience_us = 0 if expected is None else expected.request_timeout_us
        self._suspicions.append(
            _Suspicion(
                register=register,
                row=row,
                group=group,
                partition=partition,
                candidates=candidates,
                settled=settled,
                reported_after_us=row.time_us + patience_us + margin,
            )
        )

    def _report_suspicions(self, time_us: int | None) -> None:
        """Report the suspicions that no commit explained in time; None: all suspicions."""
        suspicions, self._suspicions = self._suspicions, []
        for suspicion in suspicions:
            if time_us is None or suspicion.reported_after_us < time_us:
                self._report(suspicion)
            else:
                self._suspicions.append(suspicion)

    def _latest_start_us(self, row: TraceRow, group: str) -> int | None:
        """Return the latest known time before which the fetch cannot have begun, or None.

        Up to three times are known: the node's last OffsetFetch request (only in traces with rows
        of messages), its last assignment, and, for a fetch of the stage "verifying", the beginning
        of this stage.
        """
        assigned = self._assigned.get((row.node, group))
        known = [
            time_us
            for time_us in (
                assigned[-1].time_us if assigned else None,
                self._fetch_sent_us.get((row.node, group)),
                self._verifying_us if row.cause == OffsetFetchCause.VERIFICATION else None,
            )
            if time_us is not None
        ]
        return max(known, default=None)

    def _is_excusably_stale(self, row: TraceRow, group: str) -> bool:
        """Return True if the answer is from a replaced coordinator, or from half of a log.

        - Half of a log: the coordinator lost the leadership in the middle of its load.
        - Replaced: another broker leads. Or the broker leads again after another one, and still has
          the groups of its earlier load, because its new load waits behind others, as in Kafka. In
          the stage "verifying" this is excused only within RESIGNING_US after the later of two
          moments: the newest leadership or load, and the healing of all faults.
        """
        expected = self.context.groups.get(group)
        rows = [] if expected is None else self._leaders.get(expected.offsets_partition, [])
        known = [
            other
            for other in rows
            if other.time_us <= row.time_us + self.context.clock_error_us
            and other.leader_epoch is not None
        ]
        newest = max(known, key=lambda other: other.leader_epoch or 0, default=None)
        if newest is None:
            return False
        if newest.node == row.peer:
            partition = newest.partition or ""
            if self._half_loads.answers_from_half(newest.node, partition):
                return True
            if not _is_of_an_earlier_load(newest, known):
                return False
        learning_since_us = max(newest.time_us, self._healed_us)
        if (
            row.cause == OffsetFetchCause.VERIFICATION
            and learning_since_us < row.time_us - RESIGNING_US
        ):
            return False
        return any(other.node == row.peer for other in known)

    def _report(self, suspicion: _Suspicion) -> None:
        """Report the newest settled commit as lost, once, unless Kafka itself forgets it.

        The evidence is the older commit of the returned value, the stored row of the lost commit,
        its answer, the changes of the coordinator in between, and the fetch.
        """
        register, row = suspicion.register, suspicion.row
        group, partition = suspicion.group, suspicion.partition
        candidates, settled = suspicion.candidates, suspicion.settled
        if not settled:
            self._report_uncommitted_value(suspicion)
            return
        lost = max(settled, key=lambda commit: commit.latest_us)
        if register.reported is lost.row:
            return  # an earlier fetch has proved the same loss
        register.reported = lost.row
        if self._forgotten.has_forgotten(group, lost.row.member, lost.earliest_us, lost.latest_us):
            self._excused[FORGOTTEN] += 1
            return

        expected = self.context.groups.get(group)
        moves = [] if expected is None else self._leaders.get(expected.offsets_partition, [])
        stored = [
            known
            for known in register.stored
            if known.offset == lost.offset and known.time_us <= row.time_us
        ]
        older = [commit.row for commit in candidates if commit.latest_us <= lost.latest_us]
        # The finding shows the coordinator's changes from the first of the two commits on.
        since_us = min([lost.earliest_us, *(commit.time_us for commit in older[-1:])])
        returned = "no offset" if row.offset == -1 else f"offset {row.offset}"
        origin = (
            "" if row.offset == -1 or candidates else ", which nobody is known to have committed"
        )
        self.report_finding(
            f"{group}, {partition}: offset {lost.offset} was acknowledged by {lost.row.peer} to "
            f"{lost.node}, and a later fetch returned {returned}{origin}",
            [
                *older[-1:],
                *stored[-1:],
                lost.row,
                *(move for move in moves if since_us <= move.time_us <= row.time_us),
                row,
            ],
            group=group,
            partition=partition,
        )

    def _report_uncommitted_value(self, suspicion: _Suspicion) -> None:
        """Report a fetch that returned an offset although no known commit wrote one."""
        register, row = suspicion.register, suspicion.row
        if register.reported is not None:
            return
        register.reported = row
        expected = self.context.groups.get(suspicion.group)
        moves = [] if expected is None else self._leaders.get(expected.offsets_partition, [])
        self.report_finding(
            f"{suspicion.group}, {suspicion.partition}: a fetch returned offset {row.offset}, "
            "which nobody is known to have committed",
            [*[move for move in moves if move.time_us <= row.time_us][-2:], row],
            group=suspicion.group,
            partition=suspicion.partition,
        )

    def measured(self) -> dict[str, int]:
        """Return numbers of commits: acknowledged, of unknown outcome, lost in an allowed way."""
        return {
            "offsets_acknowledged": self._seen["offsets_acknowledged"],
            "offsets_of_unknown_outcome": self._seen["offsets_of_unknown_outcome"],
            "commits_lost_with_the_last_replica": self._forgiven,
        }

    def finish(self) -> CheckReport:
        """Report all suspicions that are left, and return the report."""
        self._report_suspicions(None)
        self._report_wrong_ends(self._transaction_ends.finish())
        judged = self._seen["fetches_judged"]
        note = ""
        if not self._seen["offsets_acknowledged"]:
            committing = any(group.commits for group in self.context.groups.values())
            note = (
                "no commit was acknowledged"
                if committing
                else "no member commits offsets in this experiment"
            )
        elif not judged:
            note = "nothing was fetched after a commit was acknowledged"
        return self.report(
            judged=judged, seen=dict(self._seen), note=note, excused=dict(self._excused)
        )


def _is_of_an_earlier_load(newest: TraceRow, known: Sequence[TraceRow]) -> bool:
    """Return True if another broker led after the leader's last load.

    The leader then still answers from this load, which is older than its present leadership.

    - `newest`: the row of the present leadership, or of its load.
    - `known`: all rows of leaderships and loads of the partition until now.
    """
    loaded = [
        row.leader_epoch or 0
        for row in known
        if row.node == newest.node and row.kind == TraceKind.LOAD_COMPLETED
    ]
    if not loaded:
        return False
    return any(row.node != newest.node and max(loaded) < (row.leader_epoch or 0) for row in known)
