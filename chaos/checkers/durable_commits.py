"""Durable commits: a fetch returns the last acknowledged commit, or a newer one.

A "fetch" is an OffsetFetch here, and its "value" is the offset that it returns. Suppose that the
commit of offset 20 is acknowledged at 5 s. A fetch that begins at 6 s may return 20. It may also
return another offset that was committed later, even a smaller one, because "newer" means later and
not larger. If it returns 10, which was committed and acknowledged before 20 was sent, then the
commit of 20 is lost.

In general the checker does not know when exactly a commit took effect. It knows an interval, from
the earliest time at which the member can have sent the commit to the time of the answer. A fetch
may return the value of any commit, unless another, acknowledged commit certainly replaced that
value before the fetch began. Names in backticks below are modules of `chaos/checkers/evidence`.

**Commits without an acknowledgement.** A fetch may return the value of such a commit, because the
commit may have been written. But the commit does not count as the replacement of another commit,
because it may also be lost. How late it can still be written depends on the end of its request:

* The broker answered with an error such as REQUEST_TIMED_OUT. Then the broker's log either has the
  record already, or will never get it. Later commits come behind it in the log. So the commit took
  effect before the answer, or never.
* The client stopped waiting (TIMED_OUT, or DISCONNECTED from a living process). The request may
  wait in the socket of a paused or slow broker, which handles it after newer commits. So the commit
  may take effect at any time.
* The process of the broker was killed (DISCONNECTED). The request ended with the process.

**Transactions.** A commit in a transaction is acknowledged when the transaction's outcome is
decided, and stored when its marker is written to the offsets partition. In between nobody reads the
offset: members ask for stable offsets only, and the coordinator refuses to answer. An aborted
commit counts as never written, and its group must not use it (`transaction_ends`).

**Deletions.** If an administrator deletes an offset, alone or with its group or topic, a fetch may
find nothing. It may also find the old value after a later load, as in Kafka, because the deletion
does not wait until the log has its tombstone. The deletion of a group or of its offsets also
deletes commits that are still in progress: their append has not ended, or the marker of their
transaction is not written. Such a commit is acknowledged later all the same, as in Kafka. An offset
may also be missing because it expired: its group had been Empty for `offsets.retention.minutes`
(`Expiry` in `coordinators`).

**Losses.** When a partition loses data with its last replica in sync (`lost_data`), its commits so
far count as not acknowledged. But no append may be acknowledged while fewer than
`min.insync.replicas` are in sync, whether it is lost or not (`enough_replicas`).

**No proof.** Some fetches look like a loss and do not prove one:
* A fetch from a coordinator that had been replaced may be stale, as in Kafka, because a coordinator
  answers fetches without asking its replicas (BEHAVIOUR 6.5). Such a fetch is only counted.
* A fetch from a coordinator that lost the leadership in the middle of its load may miss the rest of
  the log (`half_loads`). Such a fetch is only counted, too.
* Kafka itself forgets some commits in transactions until the next load (`forgotten_commits`).
* The member that committed a fetched value may still wait for its answer, so that the trace does
  not show the commit yet. Therefore an unexplained fetch is at first only a suspicion. It becomes a
  finding after a request timeout.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Sequence
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
from chaos.checkers.evidence.transactions.forgotten_commits import FORGETTING_KINDS, FORGOTTEN
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
"""Longest time from a client's DISCONNECTED to the row in which the driver tells of the kill.

The driver writes NODE_KILLED after it has killed the process, so the client may be faster.
"""
MAX_KEPT_ASSIGNMENTS = 8
"""Number of a member's last assignments that are kept.

A single assignment would not do, because the answer to a commit may come in a later generation.
"""
VERIFYING_STAGE = "verifying"
"""Stage of the run in which the driver itself fetches all committed offsets, at the end."""

# Names of excuses in the report.
LATE_END = "end of a transaction that came behind a load"
# Rows that show which broker coordinates the groups of an offsets partition
_LEADERSHIP = frozenset({TraceKind.BECAME_LEADER, TraceKind.LOAD_COMPLETED})
_NO_OFFSET = -1  # the value that a fetch returns if nothing is committed
_NEVER_SENT = "COMMIT_FAILED"  # an error of the client, which had no generation to commit in
_ABORTED = "TRANSACTION_ABORTED"  # an error of the client, whose offsets then never count
_DEFINITE_NAMES = frozenset(code.name for code in ErrorCode if code.definite) | {
    _NEVER_SENT,
    _ABORTED,
}
"""Errors of a commit that was certainly not written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Suspicion:
    """A fetch that proves a loss, unless a commit that explains its value becomes known later."""

    register: Register
    row: TraceRow  # OFFSETS_FETCHED
    group: str
    partition: str
    # Commits of the fetched value. Each was certainly replaced by one of `settled`.
    candidates: list[Commit]
    settled: list[Commit]  # commits that were acknowledged before the fetch began
    reported_after_us: int  # after this time no more commit can become known


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
        self._fetch_sent_us: dict[tuple[str, str], int] = {}  # (node, group) -> last OffsetFetch
        self._healed_us = 0  # when the stage began in which all faults are healed
        self._verifying_us: int | None = None  # when the stage "verifying" began
        # offsets partition -> its rows of _LEADERSHIP
        self._leaders: dict[str, list[TraceRow]] = {}
        # group -> time of the last loss or deletion, which may have taken open transactions with it
        self._lost_us: dict[str, int] = {}
        # group -> the last election with which its offsets partition lost data
        self._lost_at: dict[str, TraceRow] = {}
        self._has_killed_consumer: dict[str, bool] = {}  # by group
        self._ended_us: dict[str, list[int]] = {}  # broker -> the ends of its processes
        self._suspicions: list[_Suspicion] = []
        self._lost_data = self.evidence.lost_data
        self._half_loads = self.evidence.half_loads
        self._expiry = self.evidence.expiry
        self._enough_replicas = EnoughReplicas()
        self._forgotten = self.evidence.forgotten_commits
        self._excused: Counter[str] = Counter()
        # (partition, broker) for which an append with too few replicas in sync was reported
        self._on_too_few: dict[tuple[str, str], None] = {}
        self._forgiven = 0  # acknowledged commits that need not be there after a loss of data
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
        """Judge a fetch, or keep what another row tells about commits, leaders and deletions.

        A suspicion is reported at the first row after its `reported_after_us` that is not a row of
        a message. Some traces lack rows of messages. The finding must be at the same place in all
        traces, because the run writes a row VIOLATION there.
        """
        if (
            self._suspicions
            and self._suspicions[0].reported_after_us < row.time_us
            and row.kind not in MESSAGE_KINDS
        ):
            self._report_suspicions(row.time_us)
        if row.kind in LOSS_KINDS and self._lost_data.is_loss(row):
            self._excuse_losses(row.partition or "", row)
        if row.kind in REPLICAS_KINDS:
            self._check_replicas(row, row.partition or "")
        if row.kind in FORGETTING_KINDS:
            self._report_wrong_ends()
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
            case TraceKind.FAULT_INJECTED | TraceKind.LEADER_ELECTED | TraceKind.ISR_CHANGED:
                pass  # judged above: LOSS_KINDS and REPLICAS_KINDS
            case TraceKind.APPEND_COMPLETED:
                pass  # judged above: REPLICAS_KINDS
            case TraceKind.GROUP_STATE:
                # When a group is deleted, the offsets of its open transactions are deleted, too. No
                # row of their own shows this.
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

    def _report_wrong_ends(self) -> None:
        """Report wrong ends of transactions, and count the late ones.

        The end of a transaction is late if it waits behind a load until the producer has begun its
        next transaction. It then also ends offsets of that next transaction.
        """
        for end in self._forgotten.wrong_ends:
            self.report_finding(end.summary, end.evidence, group=end.evidence[-1].group)
        self._forgotten.wrong_ends.clear()
        if self._forgotten.late_ends:
            self._excused[LATE_END] += len(self._forgotten.late_ends)
            self._forgotten.late_ends.clear()

    def _check_replicas(self, row: TraceRow, partition: str) -> None:
        """Report an append that was acknowledged with too few replicas in sync.

        Such an append is reported once for each partition and broker.
        """
        too_few = self._enough_replicas.observe(row, self.context.min_insync_replicas)
        if too_few is None:
            return
        if (place := (partition, row.node)) in self._on_too_few:
            self.findings_total += 1  # the same violation by another append
            return
        self._on_too_few[place] = None
        self.report_finding(too_few.summary, too_few.evidence, partition=partition)

    def _excuse_losses(self, lost: str, election: TraceRow) -> None:
        """Stop expecting the commits that a partition of coordinators held when it lost data.

        `lost` is the partition, and `election` the row of the election with which it lost data.
        """
        held = {  # the groups that store offsets or transactions there
            group_id: None
            for group_id, expected in self.context.groups.items()
            if lost == expected.offsets_partition or lost in expected.transaction_partitions
        }
        for (group, _), register in self._registers.items():
            if group in held:
                self._forgiven += register.forgive()
        for group_id in held:
            self._may_lose_transactions(group_id, election.time_us)
            # A former leader of the offsets partition may still acknowledge a commit that is lost.
            # `_take_answer` recognizes it by this election.
            if lost == self.context.groups[group_id].offsets_partition:
                self._lost_at[group_id] = election

    def _may_lose_transactions(self, group_id: str, time_us: int) -> None:
        """Stop expecting the commits of those transactions of the group that are open now."""
        known = self.context.groups.get(group_id)
        if known is None or not known.transaction_partitions:
            return
        self._lost_us[group_id] = time_us
        for (group, _), register in self._registers.items():
            if group == group_id:
                register.forgive_unstored()

    def _observe_offset(self, row: TraceRow, group: str, partition: str, offset: int) -> None:
        """Judge a fetched offset; remember an offset that was committed or stored."""
        register = self._registers.setdefault((group, partition), Register())
        match row.kind:
            case TraceKind.OFFSETS_COMMITTED:
                self._seen["offsets_acknowledged"] += 1
                self._take_answer(register, row, group, offset, acknowledged=True)
            case TraceKind.ADMIN_COMMIT if row.error == ErrorCode.NONE.name:
                self._seen["offsets_acknowledged"] += 1
                self._take_answer(register, row, group, offset, acknowledged=True)
            case TraceKind.COMMIT_FAILED | TraceKind.ADMIN_COMMIT:
                # A row without a peer is about a commit that was not sent: the member knew no
                # coordinator.
                if row.error not in _DEFINITE_NAMES and row.peer is not None:
                    self._seen["offsets_of_unknown_outcome"] += 1
                    self._take_answer(register, row, group, offset, acknowledged=False)
                # A member has one commit in flight, so it sends its next one only after this row.
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
        """Remember that a coordinator stored an offset, or deleted the stored one (_NO_OFFSET)."""
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
        """Remember a commit from the client's row about its answer or its failure."""
        # When can the commit have been sent, at the earliest?
        # - Not before the answer to the member's previous commit of this partition, because a
        #   member has only one commit in flight.
        # - Not before the member got the assignment of the commit's own generation. This need not
        #   be its last assignment: a transaction may end in a later generation.
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
        # If data was lost or deleted at `earliest` or later, the commit's transaction may have been
        # open at the loss. The offset may then be missing although the transaction was committed
        # later. A group without a loss has -1, which is less than every `earliest`.
        acknowledged = acknowledged and earliest > self._lost_us.get(group, -1)
        # A leader that was paused and replaced may acknowledge a commit that only the lost replica
        # had. Such a commit was sent before the loss, and its answer is not from the leader that
        # was elected at the loss (`loss.peer`).
        loss = self._lost_at.get(group)
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
        """Return True if a commit that has become known only now explains a suspected fetch."""
        margin = self.context.clock_error_us
        if (
            commit.offset != suspicion.row.offset
            or commit.earliest_us > suspicion.row.time_us + margin
        ):
            return False
        replaced = any(replaces(newer, commit, margin) for newer in suspicion.settled)
        return not replaced or self._is_pending(commit)

    def _is_pending(self, commit: Commit) -> bool:
        """Return True if a commit may still take effect, because its client stopped waiting.

        If the broker's process ended between the earliest time of the request and the time at which
        the client gave up, the request ended with the process, and the result is False.
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
        """Judge a fetch. If nothing explains its value, it becomes a suspicion."""
        # Nothing can be judged if it is not known when the fetch began, or if it began so long ago
        # that the register may have dropped the commit that explains it.
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
            # But an offset that nobody has committed would be wrong even now.

        # Explanation 1: a known commit has this value, and no settled commit has replaced it.
        candidates = [
            commit
            for commit in register.commits
            if commit.offset == offset and commit.earliest_us <= row.time_us + margin
        ]
        if any(
            not any(replaces(newer, commit, margin) for newer in settled) for commit in candidates
        ):
            return

        # Explanation 2: a commit with this value was given up by its client, and may take effect at
        # any time.
        if any(
            commit.earliest_us <= row.time_us + margin and self._is_pending(commit)
            for commit in register.pending.get(offset, ())
        ):
            self._seen["fetches_of_a_value_that_timed_out"] += 1
            return
        if not candidates and offset >= 0 and self._has_killed_consumer.get(group):
            # Explanation 3: a consumer was killed, and with it the last rows of its trace, one of
            # which may have been about a commit with this value.
            self._seen["fetches_of_a_value_nobody_is_known_to_have_committed"] += 1
            return
        # Explanation 4: the coordinator had been replaced, or had loaded only half of its log.
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
        """Report the suspicions whose time was over at `time_us`; None: report all of them."""
        suspicions, self._suspicions = self._suspicions, []
        for suspicion in suspicions:
            if time_us is None or suspicion.reported_after_us < time_us:
                self._report(suspicion)
            else:
                self._suspicions.append(suspicion)

    def _latest_start_us(self, row: TraceRow, group: str) -> int | None:
        """Return the latest time before which the fetch certainly did not begin; None if unknown.

        It did not begin before any of these times:
        - the node's last assignment, after which a member fetches its offsets;
        - the node's last request OffsetFetch, in traces that have rows of messages;
        - the beginning of the stage "verifying", for a fetch of this stage.
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
        """Return True if the coordinator that answered may have had an old state of the group.

        There are three cases:
        - Another broker had replaced this coordinator.
        - The coordinator had been replaced, and was elected again. It still answered from its
          earlier load, because the new load was waiting behind other loads, as in Kafka.
        - The coordinator lost the leadership in the middle of its load, so it has only half of the
          log.

        In the stage "verifying" the first two cases are excused only for a short time, RESIGNING_US
        after the newest leadership and after the healing of all faults. Then every broker should
        know who leads.
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
            # The broker that answered leads now. So only the second or the third case may excuse
            # the answer.
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
        # A broker that never led the partition is not excused.
        return any(other.node == row.peer for other in known)

    def _report(self, suspicion: _Suspicion) -> None:
        """Report a suspicion: the newest settled commit is lost, unless Kafka itself forgets it.

        The evidence tells the story: the older commit with the returned value, the lost commit, its
        answer, each change of the coordinator since then, and the fetch.
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
        # Show the changes of the coordinator from the first of the two commits on.
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
        """Return how many commits were acknowledged, had no certain outcome, or could be lost."""
        return {
            "offsets_acknowledged": self._seen["offsets_acknowledged"],
            "offsets_of_unknown_outcome": self._seen["offsets_of_unknown_outcome"],
            "commits_lost_with_the_last_replica": self._forgiven,
        }

    def finish(self) -> CheckReport:
        """Report all suspicions that are left, and return the report."""
        self._report_suspicions(None)
        self._forgotten.finish()
        self._report_wrong_ends()
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
    """Return True if the present leader's last load is from an earlier time as leader.

    Another broker has led in between, so what the leader loaded then is out of date.

    - `newest`: the row that shows the present leader.
    - `known`: all rows of the partition about leaders and loads until now.
    """
    loaded = [
        row.leader_epoch or 0
        for row in known
        if row.node == newest.node and row.kind == TraceKind.LOAD_COMPLETED
    ]
    if not loaded:
        return False
    return any(row.node != newest.node and max(loaded) < (row.leader_epoch or 0) for row in known)
