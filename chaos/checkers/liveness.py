"""Liveness: when all faults are over, every group works again within a time limit.

At some point a run ends all its faults, which we call the healing. Then it waits until its groups
are live. A group is live when it is Stable with every expected member, and each member that commits
has had a commit acknowledged since the healing. Not every member is expected:

- A member that was killed and not started again is not expected. The group must be Stable without
  it.
- A member that the run starts later is expected only from its start on.
- A static member is not expected if its application ended because a failover had lost its member id
  (`fenced_members`).

A group that is not live in time is a finding, unless one of the excuses holds. With an excuse the
outcome of the check is inconclusive. Names in backticks are modules of `chaos/checkers/evidence`.

1. All members are dead.
2. The application is slower than its settings allow.
3. A dead member is still in the group, because its session has not ended. Or the session ended so
   late that the other members had no time to read and commit its partitions (`_settling_us`).
4. A partition is missing, because brokers stay away. The group's partition of `__consumer_offsets`,
   its partitions of `__transaction_state`, or a partition of a member has no leader and no replica
   that could lead. Or a partition of one of these two topics has too few replicas in sync for an
   append.
5. Only commits in transactions are missing, and a partition of the group's coordinators lost data
   with its last in-sync replica (`lost_data`). The lost data may include the end of a transaction.
   As in Kafka, the offsets of this transaction then stay unstable (nobody may use them) until an
   administrator aborts it.
6. Some members know only brokers that are lost for good (`stranded_clients`), and the group would
   be live without these members.

Besides, four things are findings of their own:

- A coordinator keeps a member in a Stable group although it has heard nothing from the member for a
  session timeout (`session_ends`). As long as the member is kept, no other member gets its
  partitions. This is judged at any time, even during faults.
- A cluster in which nothing was broken does not reach its steady state in time (`start_bound_us`):
  every group Stable, every partition with a leader and all its replicas in sync. This is judged
  only in virtual time (the run's own simulated clock).
- An administrator cannot read the offsets of a group that is live again.
- An error ends a consumer's application. In Kafka such an error stops a program for good. There are
  exceptions: the lost member id above, and three errors that follow from settings.
  1. The group has more consumers than `group.max.size`.
  2. A consumer with `auto.offset.reset=none` finds no committed offset.
  3. A consumer is refused (INCONSISTENT_GROUP_PROTOCOL) in a group whose consumers do not all
     support the same assignors. Even consumers with one assignor in common may be refused, because
     a coordinator that has loaded the group knows only the assignor that the group had chosen
     (Kafka `GroupMetadataManager.readGroupMessageValue`).
"""

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field

from chaos.checkers.base import Checker
from chaos.checkers.context import CheckContext, GroupExpectation, detail_of
from chaos.checkers.evidence.board import Evidence
from chaos.checkers.evidence.coordinators import COORDINATOR_KINDS
from chaos.checkers.evidence.fenced_members import FENCING_KINDS
from chaos.checkers.evidence.living_members import PRESENCE_KINDS
from chaos.checkers.evidence.lost_data import LOSS_KINDS, LOST_TRANSACTION
from chaos.checkers.evidence.replicas import REPLICA_KINDS
from chaos.checkers.evidence.session_ends import SESSION_KINDS, Session, SessionEnds
from chaos.checkers.evidence.stranded_clients import STRANDED, STRANDING_KINDS
from chaos.checkers.evidence.transactions.open_transactions import OPEN_KINDS
from protocol.causes import MemberStateCause, RemovalCause
from protocol.errors import ErrorCode
from protocol.trace import TraceKind, TraceRow
from results_schema.evidence_text import seconds
from results_schema.results import CheckReport

STABLE = "Stable"  # a group's state
# Names of excuses in the report.
ID_NEVER_STORED = "member id that was never stored"
ENDED_BY_SETTINGS = "application that its settings end"
SHORT_WATCH = "not watched for the whole bound"
NO_OFFSET = "NO_OFFSET_FOR_PARTITION"
"""Error of a consumer whose `auto.offset.reset` is `none`."""
GROUP_FULL = ErrorCode.GROUP_MAX_SIZE_REACHED.name
NO_COMMON_ASSIGNOR = ErrorCode.INCONSISTENT_GROUP_PROTOCOL.name
SETTLING_SLACK_US = 10_000_000
"""Time for the requests of a rebalance and of the commits after it."""
WAITS_LONG_US = 1_000_000
"""Time after which a finding shows a request that still waits for its answer.

A Fetch without new records waits for half of this time, which is no reason for suspicion.
"""
MAX_BLOCKING = 12
"""Largest number of rows in a finding that may explain why a group is blocked."""
CARRIED_OUT = frozenset({"CompleteCommit", "CompleteAbort"})
"""States of a transaction whose markers are all written."""
NO_COMMIT = "has no commit acknowledged since healing"
"""End of one kind of reason in `_missing`, such as `consumer-a-1 has no commit ...`.

Excuse 5 holds only if all reasons are of this kind.
"""


@dataclass(slots=True)
class _Group:
    """What the trace has shown of one group so far."""

    # consumer -> the first acknowledged commit of its present process since healing
    committed: dict[str, TraceRow] = field(default_factory=dict)
    assigned: dict[str, tuple[str, ...]] = field(default_factory=dict)  # consumer -> partitions
    last_death_us: int = 0  # when one of its consumers was last killed or stopped
    last_expiry_us: int = 0  # when the session of a dead member last ended after healing; 0: never
    live_us: int | None = None  # when the group was live again after healing
    waiting: list[TraceRow] = field(default_factory=list)  # unanswered requests of its members


@dataclass(frozen=True, slots=True, kw_only=True)
class _NotLive:
    """A group that is not live again."""

    group_id: str
    summary: str
    evidence: list[TraceRow]
    causes: list[TraceRow]  # why it is blocked: requests, partitions, transactions


@dataclass(frozen=True, slots=True, kw_only=True)
class _Excuse:
    """An excuse for a group that is not live."""

    name: str
    """Kind of the excuse, under which the report counts it: `no replica that may lead`."""
    case: str
    """The case in hand, for the note of the report: `__consumer_offsets-3 has no leader`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Judgement:
    """The result of the wait for live groups."""

    not_live: tuple[_NotLive, ...]
    notes: tuple[str, ...]  # a sentence for each excused group
    absent: tuple[str, ...]  # a sentence for each consumer that was not expected
    excused: dict[str, int]  # name of an excuse -> how many groups or consumers have it
    seen: dict[str, int]  # figures for the report


class Liveness(Checker):
    """Within the bound after healing every group is Stable, and every member commits."""

    name = "liveness"
    promise = (
        "after healing, every group is Stable with all its members within the bound, and every "
        "member that commits has a commit acknowledged; a Stable group loses a member that is "
        "not heard of for its session; no error ends a consumer's application; and a cluster that "
        "nobody has broken comes to its steady state"
    )
    kinds = frozenset(
        {
            TraceKind.RUN_STAGE,
            *COORDINATOR_KINDS,
            TraceKind.OFFSETS_COMMITTED,
            TraceKind.PARTITIONS_ASSIGNED,
            *PRESENCE_KINDS,
            *FENCING_KINDS,
            *LOSS_KINDS,
            *REPLICA_KINDS,
            *SESSION_KINDS,
            *OPEN_KINDS,
            *STRANDING_KINDS,
            TraceKind.REQUEST_WAITING,
            TraceKind.STEADY_STATE_MISSED,
            TraceKind.OFFSETS_UNREADABLE,
        }
    )

    def __init__(self, context: CheckContext, evidence: Evidence | None = None) -> None:
        super().__init__(context, evidence)
        self._groups = {group_id: _Group() for group_id in context.groups}
        self._presence = self.evidence.presence
        self._coordinators = self.evidence.coordinators
        self._fenced = self.evidence.fenced_members
        self._lost_data = self.evidence.lost_data
        self._replicas = self.evidence.replicas
        self._transactions = self.evidence.open_transactions
        self._stranded = self.evidence.stranded_clients
        self._session_ends = SessionEnds(context, self._coordinators, self._faults)
        self._healed: TraceRow | None = None
        self._waited_until_us: int | None = None  # when the run's wait for its groups ended
        self._judgement: _Judgement | None = None  # None until the driver stops the nodes
        self._over = False  # from the stage "stopping" on, the driver stops every node
        self._last_us = 0
        # members that were reported because their stored commits did not restart their session
        self._without_restart: dict[str, None] = {}
        self._ended: dict[str, TraceRow] = {}  # consumer -> the error that ended its application
        # consumer -> name of an error that ended its application and follows from settings
        self._ended_by_settings: dict[str, str] = {}

    def judge(self, row: TraceRow) -> None:
        """Keep what the row shows, and report what can be judged already."""
        if self._over:
            return
        self._last_us = row.time_us
        if row.kind in SESSION_KINDS:
            self._session_ends.observe(row)
        if row.kind == TraceKind.COMMIT_STORED:
            self._check_restart(row)
            return
        # When a session should have ended and has not, there is no row about it. So the sessions
        # are checked at every row.
        for (broker, group_id, member), session in self._session_ends.overdue(row.time_us):
            self._report_kept_member(broker, group_id, member, session)

        group = None if row.group is None else self._groups.get(row.group)
        match row.kind:
            case TraceKind.RUN_STAGE:
                self._observe_stage(row)
            case TraceKind.NODE_STARTED | TraceKind.NODE_KILLED | TraceKind.NODE_STOPPED:
                self._observe_node(row)
            case TraceKind.MEMBER_STATE if group is not None and row.error is not None:
                # The member has left because of an error: it ended the application. (If a failover
                # had lost the member's id, this is excused, and `_judge_groups` counts it.)
                if row.cause == MemberStateCause.LEFT and not self._fenced.stopped(row.node):
                    self._check_application_end(row)
            case TraceKind.MEMBER_REMOVED if group is not None:
                is_expiry = self._healed is not None and row.cause == RemovalCause.SESSION_EXPIRY
                # If no living consumer has this member id, it is the id of a dead consumer.
                if is_expiry and row.member not in self._own_ids(row.group or ""):
                    group.last_expiry_us = row.time_us
            case TraceKind.PARTITIONS_ASSIGNED if group is not None:
                group.assigned[row.node] = tuple(detail_of(row).get("partitions", ()))
            case TraceKind.STEADY_STATE_MISSED:
                self._check_start(row)
            case TraceKind.OFFSETS_UNREADABLE if group is not None:
                self._check_readable(row)
            case TraceKind.REQUEST_WAITING if group is not None:
                if detail_of(row).get("waited_us", 0) >= WAITS_LONG_US:
                    group.waiting.append(row)
            case TraceKind.OFFSETS_COMMITTED if group is not None:
                if self._healed is not None:
                    group.committed.setdefault(row.node, row)
            case _:
                pass
        if row.group is not None:
            self._note_if_live(row.group, row)

    def _note_if_live(self, group_id: str, row: TraceRow) -> None:
        """Note the time at which the group became live again, if it was with this row."""
        group = self._groups.get(group_id)
        if group is None or self._healed is None or group.live_us is not None:
            return
        if not self._missing(group_id):
            group.live_us = row.time_us

    def _check_application_end(self, row: TraceRow) -> None:
        """Report an error that ended a consumer's application, unless it follows from settings.

        In any case the consumer is no longer expected in its group.
        """
        self._ended[row.node] = row
        group_id = row.group or ""
        expected = self.context.groups[group_id]
        # Is it one of the three errors that follow from settings?
        is_full = len(expected.consumers) > self.context.group_max_size
        is_foreign = row.error == NO_COMMON_ASSIGNOR and not expected.same_assignors
        if row.error == NO_OFFSET or (row.error == GROUP_FULL and is_full) or is_foreign:
            self._ended_by_settings[row.node] = row.error or ""
            return
        seen = self._coordinators.state(group_id)
        self.report_finding(
            f"{row.node} of {group_id} has stopped for good: {row.error} ended its application",
            [row] if seen is None else [seen.row, row],
            group=group_id,
            partition=expected.offsets_partition,
        )

    def _check_start(self, row: TraceRow) -> None:
        """Report a cluster that does not reach its steady state although nothing was broken."""
        detail, bound_us = detail_of(row), self.context.start_bound_us
        waited_us = detail.get("waited_us", 0)
        if bound_us is None or waited_us < bound_us:
            return
        self.report_finding(
            f"no steady state {seconds(waited_us)} after the start, although nothing was broken: "
            + "; ".join(detail.get("missing", ())[:6]),
            [row],
        )

    def _check_readable(self, row: TraceRow) -> None:
        """Report an offset of a live group that an administrator cannot read."""
        group_id = row.group or ""
        expected = self.context.groups[group_id]
        # If the group is not live, or has an excuse, the administrator may have the same trouble.
        if self._healed is None or self._groups[group_id].live_us is None:
            return
        if self._excuse_of_partitions(group_id, expected, row.time_us) is not None:
            return
        self.report_finding(
            f"no administrator can read the committed offset of {group_id} for {row.partition}, "
            "though the group is live again",
            [self._healed, row],
            group=group_id,
            partition=expected.offsets_partition,
        )

    def _check_restart(self, row: TraceRow) -> None:
        """Report, once per member, that its stored commits do not restart its session."""
        member = row.member or ""
        if member in self._without_restart or not self._session_ends.restarts_nothing(row):
            return
        self._without_restart[member] = None
        self.report_finding(
            f"{row.node} stores commits of {member} in {row.group}, and none has restarted its "
            "session",
            [row],
            group=row.group,
            partition=self.context.groups[row.group or ""].offsets_partition,
        )

    def _report_kept_member(
        self, broker: str, group_id: str, member: str, session: Session
    ) -> None:
        """Report a member that its coordinator keeps after the session should have ended."""
        self.report_finding(
            f"{broker} keeps {member} in {group_id}, of whom it has not heard for longer than its "
            f"session of {seconds(session.length_us)}",
            [session.since],
            group=group_id,
            partition=self.context.groups[group_id].offsets_partition,
        )

    def _observe_node(self, row: TraceRow) -> None:
        """Note that a consumer has started, stopped or died; forget what its process did before."""
        group_id = self._presence.group_of(row.peer or row.node)
        if group_id is None:
            return
        group, node = self._groups[group_id], row.peer or row.node
        if row.kind != TraceKind.NODE_STARTED:
            group.last_death_us = row.time_us
        # A new process has committed nothing and owns nothing.
        self._ended.pop(node, None)
        group.committed.pop(node, None)
        group.assigned.pop(node, None)
        # A group may be live without a member that has died.
        self._note_if_live(group_id, row)

    def _observe_stage(self, row: TraceRow) -> None:
        """Note the healing (the stage "liveness") and the end of the wait; judge at "stopping"."""
        match detail_of(row).get("stage"):
            case "liveness":
                self._healed = row
                for group_id in self._groups:
                    self._note_if_live(group_id, row)
            case "verifying":
                self._waited_until_us = row.time_us
            case "stopping":
                self._over = True
                if self._waited_until_us is None:
                    self._waited_until_us = row.time_us
                if self._healed is not None:
                    # Judged now, because the driver stops all nodes next.
                    self._judgement = self._judge_groups(self._healed)
            case _:
                pass

    def _present(self, group_id: str) -> list[str]:
        """Return the group's consumers whose applications are running."""
        present = self._presence.present(group_id)
        return [
            consumer
            for consumer in present
            if consumer not in self._ended and not self._fenced.stopped(consumer)
        ]

    def _missing(self, group_id: str, *, without: Collection[str] = ()) -> list[str]:
        """Return the reasons why the group is not live, such as `consumer-a-1 is UNJOINED`.

        The list is empty if the group is live. Consumers in `without` are not expected.
        """
        group, expected = self._groups[group_id], self.context.groups[group_id]
        missing = []
        seen = self._coordinators.state(group_id)
        if seen is None or seen.state != STABLE:
            missing.append(f"its coordinator has it {'not loaded' if seen is None else seen.state}")
        present = [consumer for consumer in self._present(group_id) if consumer not in without]
        if expected.consumers and not present:
            missing.append("all its members are dead")
        known_ids = self._coordinators.members(group_id)
        for consumer in present:
            row = self._presence.state_row(consumer)
            if not self._presence.is_stable(consumer):
                missing.append(f"{consumer} is {self._presence.state(consumer) or 'never seen'}")
            elif known_ids is not None and row is not None and row.member not in known_ids:
                missing.append(f"{consumer} is {row.member}, whom its coordinator does not know")
            # A member without partitions has nothing to commit.
            elif (
                expected.commits
                and group.assigned.get(consumer)
                and consumer not in group.committed
            ):
                missing.append(f"{consumer} {NO_COMMIT}")
        return missing

    def finish(self) -> CheckReport:
        """Report the groups that should be live again, and are not."""
        if self._healed is None:
            return self.report(
                judged=0,
                seen={"groups": 0},
                note="the run was over before it could be judged after healing",
                inconclusive=True,
            )
        judgement = self._judgement or self._judge_groups(self._healed)
        for group in judgement.not_live:
            expected = self.context.groups[group.group_id]
            self.report_finding(
                group.summary,
                group.evidence,
                group=group.group_id,
                partition=expected.offsets_partition,
                causes=group.causes,
            )
        return self.report(
            judged=len(self.context.groups),
            seen=judgement.seen,
            note="; ".join((*judgement.notes, *judgement.absent)),
            inconclusive=bool(judgement.notes),
            excused=judgement.excused,
        )

    def _judge_groups(self, healed: TraceRow) -> _Judgement:
        """Judge for every group whether it was live again in time, or has an excuse."""
        healed_us = healed.time_us
        # The row of the healing has the time of the driver's clock. The row with which a group
        # became live has the time of a consumer's or a broker's clock. So the clock error is added.
        deadline = healed_us + self.context.liveness_timeout_us + self.context.clock_error_us
        # A run that was cut short has no later stages, and was watched until its last row.
        watched_until = self._waited_until_us or self._last_us
        notes = []
        not_live = []
        excused: Counter[str] = Counter()
        slowest = 0
        absent = self._fenced_consumers()
        if self._ended_by_settings:
            excused[ENDED_BY_SETTINGS] = len(self._ended_by_settings)
        if absent:
            excused[ID_NEVER_STORED] = len(absent)

        for group_id, expected in self.context.groups.items():
            group = self._groups[group_id]
            if group.live_us is not None and group.live_us <= deadline:
                slowest = max(slowest, group.live_us - healed_us)
                continue
            excuse = self._excuse(group_id, expected, watched_until)
            if excuse is not None:
                notes.append(f"excused: {group_id} is not live: {excuse.case}")
                excused[excuse.name] += 1
            elif group.live_us is None and watched_until < deadline:
                notes.append(f"excused: {group_id} was not watched for the whole bound")
                excused[SHORT_WATCH] += 1
            else:
                not_live.append(self._describe_not_live(group_id, healed))

        return _Judgement(
            not_live=tuple(not_live),
            notes=tuple(notes),
            absent=(
                *(
                    f"excused: {consumer} stopped: a failover lost its member id, which was not "
                    "stored"
                    for consumer in absent
                ),
                *(
                    f"excused: {consumer} stopped: its settings ask for {error}"
                    for consumer, error in self._ended_by_settings.items()
                ),
            ),
            excused=dict(excused),
            seen={
                "groups": len(self.context.groups),
                "slowest_after_healing_us": slowest,
                "members_absent": self._presence.absent_total,
            },
        )

    def _fenced_consumers(self) -> list[str]:
        """Return static members whose application ended because a failover lost their id."""
        return [
            consumer
            for group_id in self.context.groups
            for consumer in self._presence.present(group_id)
            if self._fenced.stopped(consumer)
        ]

    def _excuse(
        self, group_id: str, expected: GroupExpectation, watched_until_us: int
    ) -> _Excuse | None:
        """Return the excuse for a group that is not live, or None if it has none."""
        if expected.consumers and not self._present(group_id):
            return _Excuse(name="all members are dead", case="all its members are dead")
        # An application that is so slow misses its polls, or cannot commit in time.
        if expected.application_us >= min(
            expected.max_poll_interval_us, self.context.liveness_timeout_us
        ):
            return _Excuse(
                name="application slower than its settings",
                case=f"its application may take {seconds(expected.application_us)} between two "
                f"polls, max.poll.interval.ms is {seconds(expected.max_poll_interval_us)}",
            )

        # The session of a dead member may have ended shortly before the end of the wait (first
        # case), or may not have ended at all (second case).
        waits_until_us = self._sessions_end_us(group_id)
        settled_us = self._groups[group_id].last_expiry_us + self._settling_us(expected)
        if self._groups[group_id].last_expiry_us and watched_until_us < settled_us:
            return _Excuse(
                name="session of a dead member",
                case="the session of a member that is no more has only just ended, and its "
                "partitions may be read and committed by " + seconds(settled_us),
            )
        if watched_until_us < waits_until_us:
            return _Excuse(
                name="session of a dead member",
                case="its coordinator waits for a member that is no more, whose session may end "
                "at " + seconds(waits_until_us),
            )
        return self._excuse_of_partitions(
            group_id, expected, watched_until_us
        ) or self._excuse_of_stranded(group_id, watched_until_us)

    def _excuse_of_stranded(self, group_id: str, watched_until_us: int) -> _Excuse | None:
        """Return excuse 6, for members that know only brokers which are lost for good.

        The excuse holds if the group is live apart from these members, or if the group has no other
        members.
        """
        healed_us = 0 if self._healed is None else self._healed.time_us
        present = self._present(group_id)
        # All lookups of a stranded member fail. The first failure may come a while after healing,
        # and the last failure a while before the end. So SETTLING_SLACK_US is cut off at both ends
        # of the time in which all lookups must have failed.
        known = {
            consumer: self._stranded.lost_brokers(
                consumer,
                since_us=healed_us + SETTLING_SLACK_US,
                until_us=watched_until_us - SETTLING_SLACK_US,
            )
            for consumer in present
        }
        stranded = {consumer: brokers for consumer, brokers in known.items() if brokers}
        if not stranded:
            return None
        if len(stranded) < len(present) and self._missing(group_id, without=stranded):
            return None
        return _Excuse(
            name=STRANDED,
            case="; ".join(
                f"{consumer} {STRANDED}: {', '.join(sorted(brokers))}"
                for consumer, brokers in stranded.items()
            ),
        )

    def _excuse_of_partitions(
        self, group_id: str, expected: GroupExpectation, watched_until_us: int
    ) -> _Excuse | None:
        """Return excuse 4 or 5, about partitions of the group's coordinators and members."""
        assigned = self._groups[group_id].assigned
        of_members = [
            name for consumer in self._present(group_id) for name in assigned.get(consumer, ())
        ]
        coordinators = expected.coordinator_partitions
        for partition in (*coordinators, *of_members):
            known = self._replicas.of(partition)
            # If no row is about the partition, nothing shows that it has no leader.
            if known is None or known.leader:
                continue
            if self._replicas.may_be_led(known):
                return None  # no excuse: the controller only has to elect a leader
            return _Excuse(name="no replica that may lead", case=f"{partition} has no leader")

        for partition in coordinators:
            needed = self.context.least_in_sync(partition)
            known = self._replicas.of(partition)
            if known is None or len(known.in_sync) >= needed:
                continue
            if self._could_be_in_sync(partition, watched_until_us) < needed:
                return _Excuse(
                    name="too few replicas in sync",
                    case=f"{partition} has {len(known.in_sync)} replica(s) in sync, under "
                    f"min.insync.replicas {needed}",
                )

        lacks_commits = all(reason.endswith(NO_COMMIT) for reason in self._missing(group_id))
        if expected.transaction_partitions and lacks_commits:
            for partition in coordinators:
                if self._lost_data.of(partition):
                    return _Excuse(
                        name=LOST_TRANSACTION,
                        case=f"{partition} lost data: it may have left a transaction without its "
                        "end",
                    )
        return None

    def _could_be_in_sync(self, partition: str, now_us: int) -> int:
        """Return how many brokers with a replica have lived long enough to be in the ISR."""
        healed_us = 0 if self._healed is None else self._healed.time_us
        # A broker that came back later than this may still be copying records.
        latest_us = now_us - self.context.isr_recovery_us
        known = self._replicas.of(partition)
        return sum(
            max(since_us, healed_us) <= latest_us
            for broker, since_us in self._replicas.may_lead.items()
            if known is not None and broker in known.replicas
        )

    def _sessions_end_us(self, group_id: str) -> int:
        """Return the time at which the sessions of dead members have ended; 0 if there are none.

        The process of a dead member may have started again. Then it has a new member id, and the
        group still waits until the session of the old id ends. The session of a dead member was
        last restarted by its last heartbeat, which was before its death, or by the load of a new
        coordinator. So the session ends at the latest one session timeout (and a heartbeat
        interval) after the last death or the load.
        """
        known_ids = self._coordinators.members(group_id)
        group = self._groups[group_id]
        living_ids = self._own_ids(group_id)
        if known_ids is None or all(member in living_ids for member in known_ids):
            return 0
        coordinator = self._coordinators.coordinator(group_id)
        load = None if coordinator is None else self._coordinators.load_of(group_id, coordinator)
        began_us = max(group.last_death_us, 0 if load is None else load.time_us)
        expected = self.context.groups[group_id]
        return began_us + expected.session_timeout_us + expected.heartbeat_interval_us

    def _own_ids(self, group_id: str) -> set[str | None]:
        """Return the member ids of the group's living consumers."""
        return {
            row.member
            for consumer in self.context.groups[group_id].consumers
            if (row := self._presence.state_row(consumer)) is not None
        }

    @staticmethod
    def _settling_us(expected: GroupExpectation) -> int:
        """Return the longest time from a rebalance until every member has committed.

        Members learn of the rebalance by a heartbeat. But a member may have to process the batch of
        its last poll before it can join, and then the batch of its next poll before it commits.
        """
        return expected.heartbeat_interval_us + 2 * expected.application_us + SETTLING_SLACK_US

    def _describe_not_live(self, group_id: str, healed: TraceRow) -> _NotLive:
        """Return the finding for a group, with at most six reasons and six members."""
        missing = self._missing(group_id) or ["it came back, but too late"]
        seen = self._coordinators.state(group_id)
        evidence = [healed] if seen is None else [healed, seen.row]
        evidence += [
            row
            for consumer in self._present(group_id)[:6]
            if (row := self._presence.state_row(consumer)) is not None
        ]
        return _NotLive(
            group_id=group_id,
            summary=f"{group_id} is not live {self.context.liveness_timeout_us / 1e6:g} s after "
            "healing: " + "; ".join(missing[:6]),
            evidence=evidence,
            causes=self._blocking_rows(group_id),
        )

    def _blocking_rows(self, group_id: str) -> list[TraceRow]:
        """Return rows that may show why a group is blocked.

        - Requests of its members that have not been answered for a long time.
        - For each partition without a leader or with an incomplete ISR, the controller's last row.
        - For each transaction that has offsets of the group and was not carried out, the rows of
          its first offset and of its last state. The state shows whether a transaction was carried
          out. A row about its marker would not do, because a coordinator that has loaded the marker
          from its log writes no such row.
        """
        expected, assigned = self.context.groups[group_id], self._groups[group_id].assigned
        partitions = dict.fromkeys(expected.coordinator_partitions)
        for consumer in self._present(group_id):
            partitions.update(dict.fromkeys(assigned.get(consumer, ())))
        rows = []
        for partition in partitions:
            known = self._replicas.of(partition)
            if known is not None and (not known.leader or len(known.in_sync) < len(known.replicas)):
                rows.append(known.row)
        for (of_group, producer_id), pending in self._transactions.unstable.items():
            state = self._transactions.last_state(producer_id)
            carried_out = (
                state is not None
                and state.time_us > pending.time_us
                and (detail_of(state).get("to") in CARRIED_OUT)
            )
            if of_group == group_id and not carried_out:
                rows += [pending] if state is None else [pending, state]
        return [*self._groups[group_id].waiting, *rows][:MAX_BLOCKING]
