"""Liveness: after healing, every group is Stable and commits within a bound.

Healing ends all faults. A group is Stable if its rebalance is complete and its members have their
partitions. It is live if it is Stable with every expected member, and each of these members that
commits has had a commit acknowledged since healing. Names in brackets are modules of
`chaos/checkers/evidence`, or definitions in this folder.

The watch is the time from healing to the end of the run's wait for its groups. A group that is not
live at the end of the watch may have an excuse; then the outcome is inconclusive. The excuses:
- the group's partition of `__consumer_offsets` has no leader, and no in-sync replica that may lead;
- too few replicas of that partition are in sync, and too few brokers with a replica have lived for
  `isr_recovery_us`, the time in which an ISR (the in-sync replicas) becomes whole again;
- a partition of a member has no leader, and no in-sync replica that may lead;
- the application is too slow for its own settings;
- the session of a dead member (the time after which its coordinator removes it) has not ended, or
  ended too late: other members had no time left to read and commit its partitions (`_settling_us`);
- every member is dead;
- the group commits in transactions, and a partition of `__transaction_state` has no leader or too
  few replicas in sync;
- the group commits in transactions and lacks only commits, and its partition or one of
  `__transaction_state` lost data with the last in-sync replica (`lost_data`). Then a transaction
  may never end. Its offsets stay unstable (no member can read or replace them), as in Kafka, until
  an administrator aborts the transaction;
- members know only brokers that are lost for good (`stranded_clients`), and without these members
  the group would be live.

The report counts excuses by name (`excused`), and its note describes each.

A member that the run starts later is expected after its start. A member that was killed and not
started again is not expected: its group must be Stable without it. A static member (one with a
configured `group.instance.id`) is not expected if its application ended because a failover had lost
its member id (`fenced_members`).

At any time, even during faults, the coordinator of a Stable group must remove a member that was
silent for a session timeout (`session_ends`). While a dead member stays in its group, no other
member gets its partitions.

In virtual time (the run's own simulated clock), a cluster in which nothing was broken must also
reach its steady state within a bound (`start_bound_us`): every group Stable, every partition with a
leader and all its replicas in sync. After a group is live again, an administrator must be able to
read its offsets.

If an error ends a consumer's application, this is a finding of its own, even before the steady
state. In Kafka such an error stops a program for good. Four errors are no finding: the lost member
id above, and three that follow from settings:
- The group has more consumers than `group.max.size`.
- A consumer with `auto.offset.reset=none` has no committed offset.
- A consumer is refused (INCONSISTENT_GROUP_PROTOCOL) in a group whose consumers support different
  assignors (algorithms that distribute the partitions). One assignor in common is not enough. As in
  Kafka (`GroupMetadataManager.readGroupMessageValue`), a coordinator that has loaded a group knows
  only one assignor of each member: the one that the group had chosen.
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
"""A finding shows only requests that have waited so long: twice the wait of an empty Fetch."""
MAX_BLOCKING = 12
"""Limit of the rows that show why a group is blocked; a reader cannot use more."""
CARRIED_OUT = frozenset({"CompleteCommit", "CompleteAbort"})
"""States of a transaction whose markers are all written."""
NO_COMMIT = "has no commit acknowledged since healing"
"""End of a reason why a group is not live. One excuse holds only if all reasons end so."""


@dataclass(slots=True)
class _Group:
    """Facts about one group so far."""

    # consumer -> the first acknowledged commit of its present process since healing
    committed: dict[str, TraceRow] = field(default_factory=dict)
    assigned: dict[str, tuple[str, ...]] = field(default_factory=dict)  # consumer -> partitions
    last_death_us: int = 0  # last kill or stop of one of its consumers
    # time of the last expiry since healing of a member id that no living consumer has
    last_expiry_us: int = 0
    live_us: int | None = None  # time at which the group was first live after healing
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
    """A reason that excuses a group that is not live. The report counts `name` and notes `case`."""

    name: str
    case: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Judgement:
    """The result at the end of the watch.

    - `notes`: the excuses of groups.
    - `absent`: why consumers are not expected.
    - `excused`: by name, the numbers of excused groups and of absent consumers.
    - `seen`: the numbers of the report.
    """

    not_live: tuple[_NotLive, ...]
    notes: tuple[str, ...]
    absent: tuple[str, ...]
    excused: dict[str, int]
    seen: dict[str, int]


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
        self._waited_until_us: int | None = None
        self._judgement: _Judgement | None = None  # set when the watch ends
        self._over = False  # from the stage "stopping" on, the driver stops every node
        self._last_us = 0
        # reported members, whose stored commits did not restart their session
        self._without_restart: dict[str, None] = {}
        self._ended: dict[str, TraceRow] = {}  # consumer -> the error that ended its application
        # consumer -> the error that ended its application as its settings demand
        self._ended_by_settings: dict[str, str] = {}

    def judge(self, row: TraceRow) -> None:
        """Take a row: keep its facts, and report what can be judged before the end of the watch."""
        if self._over:
            return
        self._last_us = row.time_us
        if row.kind in SESSION_KINDS:
            self._session_ends.observe(row)
        if row.kind == TraceKind.COMMIT_STORED:
            self._check_restart(row)
            return
        # No row marks the time at which a session should have ended. So the sessions are checked at
        # every row.
        for (broker, group_id, member), session in self._session_ends.overdue(row.time_us):
            self._report_kept_member(broker, group_id, member, session)

        group = None if row.group is None else self._groups.get(row.group)
        match row.kind:
            case TraceKind.RUN_STAGE:
                self._observe_stage(row)
            case TraceKind.NODE_STARTED | TraceKind.NODE_KILLED | TraceKind.NODE_STOPPED:
                self._observe_node(row)
            case TraceKind.MEMBER_STATE if group is not None and row.error is not None:
                # If a failover lost the member's id, the end is excused; `_judge_groups` counts it.
                if row.cause == MemberStateCause.LEFT and not self._fenced.stopped(row.node):
                    self._check_application_end(row)
            case TraceKind.MEMBER_REMOVED if group is not None:
                is_expiry = self._healed is not None and row.cause == RemovalCause.SESSION_EXPIRY
                # If no living consumer has the id, it is the id of a dead member.
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
        """Note the time at which the group is live again, if this row made it live."""
        group = self._groups.get(group_id)
        if group is None or self._healed is None or group.live_us is not None:
            return
        if not self._missing(group_id):
            group.live_us = row.time_us

    def _check_application_end(self, row: TraceRow) -> None:
        """Note that an error ended a consumer's application; report an end that no setting allows.

        From now on the consumer is not expected in its group.
        """
        self._ended[row.node] = row
        group_id = row.group or ""
        expected = self.context.groups[group_id]
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
        # What prevents a group from being live may also prevent the administrator from reading.
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
        """Drop what a consumer's former process did, and note the time of a death."""
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
        """Return the group's consumers whose application is running."""
        present = self._presence.present(group_id)
        return [
            consumer
            for consumer in present
            if consumer not in self._ended and not self._fenced.stopped(consumer)
        ]

    def _missing(self, group_id: str, *, without: Collection[str] = ()) -> list[str]:
        """Return the reasons why the group is not live, in words; none if it is live.

        Consumers in `without` are not expected.
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
        """Judge every group by when it was live again; if it never was, by its present state."""
        healed_us = healed.time_us
        # The clock error is added because two clocks are compared. The row that made a group live
        # has a consumer's or a coordinator's clock, the row of the healing the driver's.
        deadline = healed_us + self.context.liveness_timeout_us + self.context.clock_error_us
        # A run that was cut short has none of the later stages. Its watch ends with its last row.
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
        # Such an application misses its polls, or cannot commit within the bound.
        if expected.application_us >= min(
            expected.max_poll_interval_us, self.context.liveness_timeout_us
        ):
            return _Excuse(
                name="application slower than its settings",
                case=f"its application may take {seconds(expected.application_us)} between two "
                f"polls, max.poll.interval.ms is {seconds(expected.max_poll_interval_us)}",
            )

        # The session of a dead member: it ended too late, or it has not ended. A `last_expiry_us`
        # of 0 means that no such session has ended since healing.
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
        """Return the excuse given by members that know only brokers which are lost for good.

        The group must be live without these members. If all its members are stranded, there is no
        such condition.
        """
        healed_us = 0 if self._healed is None else self._healed.time_us
        present = self._present(group_id)
        # A lookup takes time to fail: the first failure may come some time after healing, and the
        # last one some time before the end of the watch.
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
        """Return the excuse given by partitions of the group's coordinators or members."""
        assigned = self._groups[group_id].assigned
        of_members = [
            name for consumer in self._present(group_id) for name in assigned.get(consumer, ())
        ]
        coordinators = expected.coordinator_partitions
        for partition in (*coordinators, *of_members):
            known = self._replicas.of(partition)
            # A partition without a row counts as led: nothing shows that it is the obstacle.
            if known is None or known.leader:
                continue
            if self._replicas.may_be_led(known):
                return None  # the controller only has to elect a leader
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
        """Return the number of brokers with a replica that lived long enough to join its ISR."""
        healed_us = 0 if self._healed is None else self._healed.time_us
        latest_us = now_us - self.context.isr_recovery_us
        known = self._replicas.of(partition)
        return sum(
            max(since_us, healed_us) <= latest_us
            for broker, since_us in self._replicas.may_lead.items()
            if known is not None and broker in known.replicas
        )

    def _sessions_end_us(self, group_id: str) -> int:
        """Return the time at which the sessions of dead members have ended; 0 if there are none.

        A consumer that restarts has a new member id, and its group waits until the session of the
        old id ends. That session began with the last heartbeat before the death, or with the load
        of a new coordinator. The time of that heartbeat is not known, so the time of the group's
        last death is taken, which is later.
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
        """Return the longest time from a new generation until every member has committed.

        Members learn of the generation (the number of the group's rebalance) by a heartbeat. After
        that, two polls may each return a full batch to process.
        """
        return expected.heartbeat_interval_us + 2 * expected.application_us + SETTLING_SLACK_US

    def _describe_not_live(self, group_id: str, healed: TraceRow) -> _NotLive:
        missing = self._missing(group_id) or ["it came back, but too late"]
        seen = self._coordinators.state(group_id)
        # At most six reasons and six members: more would be hard to read.
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
        """Return the rows that may show why a group is blocked.

        - Requests of its members without an answer for a long time.
        - The controller's last row of each partition without a leader or with an incomplete ISR.
        - Two rows of each transaction that has offsets of the group and was not carried out: its
          first offset and its last state. The state shows whether it was carried out. The row of
          its marker (the record that ends it) does not always show it, because a coordinator that
          loaded the marker from its log writes no such row.
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
