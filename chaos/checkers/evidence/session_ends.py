"""Sessions of members at their coordinators: finds sessions that should have ended.

A session is the time of `session.timeout.ms` in which the coordinator must hear from a member. The
coordinator restarts it in three cases: with each request of the member (SESSION_RESTARTED); when it
loads the group into memory (GROUP_LOADED); and when the group enters its next state, because then
the waiting members get their answers. If the time passes without another request, the coordinator
removes the member (MEMBER_REMOVED). (Section 5.4 of docs/kafka/BEHAVIOUR.md; Kafka
`completeAndScheduleNextHeartbeatExpiration`.)

Sessions are judged only while the group is Stable (no rebalance is in progress), for two reasons.
In other states a member may be parked: it waits for the answer to its JoinGroup or SyncGroup, and
its session does not end before that answer. And the JoinGroup of a member that rejoins has no row
of its own.

An accepted commit restarts the session, too. If a coordinator stores commits of a member
(COMMIT_STORED), an OffsetCommit must have restarted the member's session.

A member must be removed within a limit. The time counts from the last row that restarted its
session. The limit is the sum of
- the length of the member's session;
- the same length again if the member's last request was a JoinGroup or SyncGroup: the answer to a
  static member (one with a configured `group.instance.id`) may wait for an append, also in a Stable
  group;
- SLACK_US. After a pause of the broker, SLACK_US counts from the end of the pause.
A broker is not judged while a fault delays its clock or disk.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heappop, heappush

from chaos.checkers.context import CheckContext, detail_of
from chaos.checkers.evidence.coordinators import CoordinatorView
from chaos.checkers.evidence.faults_in_force import FaultsInForce
from protocol.api import Api
from protocol.trace import TraceKind, TraceRow

SESSION_KINDS = frozenset(
    {
        TraceKind.SESSION_RESTARTED,
        TraceKind.COMMIT_STORED,
        TraceKind.GROUP_LOADED,
        TraceKind.GROUP_STATE,
        TraceKind.GENERATION_STARTED,
        TraceKind.MEMBER_REMOVED,
        TraceKind.LOAD_STARTED,
        TraceKind.UNLOAD_COMPLETED,
        TraceKind.NODE_KILLED,
        TraceKind.NODE_STOPPED,
        TraceKind.NODE_STOPPING,
        TraceKind.NODE_PAUSED,
        TraceKind.NODE_RESUMED,
    }
)
"""Kinds of rows that SessionEnds must see."""
SLACK_US = 5_000_000
"""Time that a busy broker takes to carry out a timer; measured well below 1 s."""
MAY_BE_PARKED = frozenset({Api.JOIN_GROUP.label, Api.SYNC_GROUP.label})
"""Requests whose answer a coordinator may hold back."""
_STABLE = "Stable"  # a group's state
_ENDS = frozenset({"Empty", "Dead"})  # states of a group without members, so without sessions
_LEAVE_TIMERS_ALONE = frozenset(
    {
        "crash",
        "power_loss",
        "controlled_shutdown",
        "pause",  # by NODE_PAUSED and NODE_RESUMED
        "leadership_move",
        "preferred_leader_election",
        "remove_members",
        "delete_group",
        "delete_offsets",
        "reset_offsets",
        "create_topic",
        "delete_topic",
        "cut",
        "clog",
        "slow",
        "reset",
        "response_loss",
        "node_loss",
        "rollout",
        "scale",
        "machine_loss",
        "machine_pause",  # by NODE_PAUSED and NODE_RESUMED
        "machine_cut",
    }
)
"""Faults that delay no living broker's clock or disk.

Any other fault counts as one that delays them. So a new kind of fault that is not in this list may
hide violations, but never causes a false finding.
"""

Key = tuple[str, str, str]
"""Broker, group and member id."""


@dataclass(slots=True)
class Session:
    """A member's session at one broker.

    - `since`: the row that began or last restarted the session.
    - `until_us`: the time at which the session should end.
    - `may_be_parked`: True if `since` is a row of a JoinGroup or SyncGroup.
    """

    since: TraceRow
    length_us: int
    until_us: int
    may_be_parked: bool = False
    reported: bool = False


class SessionEnds:
    """Follows every session of the experiment's groups."""

    def __init__(
        self, context: CheckContext, coordinators: CoordinatorView, faults: FaultsInForce
    ) -> None:
        self._context = context
        self._coordinators = coordinators
        self._faults = faults
        self._sessions: dict[tuple[str, str], dict[str, Session]] = {}  # (broker, group) -> members
        # Heap of (time, key) of the sessions' ends. If the end of a session moves to a later time,
        # its entry keeps the old time. When the old time comes, the entry gets the new one.
        self._due: list[tuple[int, Key]] = []
        self._paused: dict[str, None] = {}  # paused brokers
        self._committing: dict[Key, None] = {}  # sessions that an OffsetCommit has restarted

    def observe(self, row: TraceRow) -> None:
        """Take a row of SESSION_KINDS."""
        broker_group = (row.node, row.group or "")
        if row.kind == TraceKind.SESSION_RESTARTED and row.api == Api.OFFSET_COMMIT.label:
            self._committing[(*broker_group, row.member or "")] = None
        match row.kind:
            case TraceKind.SESSION_RESTARTED if row.group in self._context.groups:
                length_us = detail_of(row).get("session_timeout_ms", 0) * 1_000
                self._begin(broker_group, row.member or "", row, length_us)
            case TraceKind.GROUP_LOADED if row.group in self._context.groups:
                self._sessions.pop(broker_group, None)
                # The row lacks the members' own timeouts, so each gets the longest of any member.
                length_us = self._context.groups[row.group].session_timeout_us
                members = detail_of(row).get("members")
                for member in members if isinstance(members, list) else ():
                    self._begin(broker_group, member, row, length_us)
            case TraceKind.GROUP_STATE if detail_of(row).get("to") in _ENDS:
                self._sessions.pop(broker_group, None)
            case TraceKind.GROUP_STATE | TraceKind.GENERATION_STARTED:
                # With the new state the coordinator answers the waiting members. Each answer
                # restarts the session of its member.
                for session in self._sessions.get(broker_group, {}).values():
                    session.since = row
                    self._postpone(session, row.time_us + session.length_us)
            case TraceKind.MEMBER_REMOVED:
                self._sessions.get(broker_group, {}).pop(row.member or "", None)
            case TraceKind.LOAD_STARTED | TraceKind.UNLOAD_COMPLETED:
                for group_id, expected in self._context.groups.items():
                    if expected.offsets_partition == row.partition:
                        self._sessions.pop((row.node, group_id), None)
            case TraceKind.NODE_PAUSED:
                self._paused[row.peer or ""] = None
            case TraceKind.NODE_RESUMED:
                self._paused.pop(row.peer or "", None)
                self._postpone_after_pause(row)
            case TraceKind.NODE_KILLED | TraceKind.NODE_STOPPED | TraceKind.NODE_STOPPING:
                gone = row.peer or row.node
                self._paused.pop(gone, None)
                of_broker = [key for key in self._sessions if key[0] == gone]
                for key in of_broker:
                    del self._sessions[key]
            case _:
                pass

    def restarts_nothing(self, row: TraceRow) -> bool:
        """Return True if a COMMIT_STORED shows that the member's commits restart no session.

        This is judged only after a request of the member to this coordinator. Before that request,
        COMMIT_STORED may come from an append that began before the coordinator loaded the group.
        Commits in transactions (without `correlation_id`) and commits of administrators (without a
        member) are not judged.
        """
        key = (row.node, row.group or "", row.member or "")
        session = self._sessions.get(key[:2], {}).get(key[2])
        if session is None or row.correlation_id is None:
            return False
        return session.since.kind == TraceKind.SESSION_RESTARTED and key not in self._committing

    def overdue(self, now_us: int) -> Iterator[tuple[Key, Session]]:
        """Yield each session that should have ended by `now_us`, with its key, only once."""
        margin_us = SLACK_US + self._context.clock_error_us
        while self._due and self._due[0][0] + margin_us < now_us:
            _, key = heappop(self._due)
            session = self._sessions.get(key[:2], {}).get(key[2])
            if session is None or session.reported:
                continue
            until_us = self._judged_from_us(key, session, now_us)
            # A session that is not judged now has the end `now_us`, so it is looked at again after
            # `margin_us`.
            if until_us + margin_us < now_us:
                session.reported = True
                yield key, session
            else:
                heappush(self._due, (until_us, key))

    def _judged_from_us(self, key: Key, session: Session, now_us: int) -> int:
        """Return the time at which the session should end; `now_us` while it is not judged."""
        broker, group_id, _ = key
        state = self._coordinators.state_at(broker, group_id)
        is_stable = state is None or state == _STABLE  # None: the group's state has no row yet
        if not is_stable or broker in self._paused or self._is_delayed(session.since.time_us):
            return now_us
        return session.until_us + (session.length_us if session.may_be_parked else 0)

    def _is_delayed(self, since_us: int) -> bool:
        """Return True if a fault since then may have delayed a broker's clock or disk."""
        return any(
            # A fault's id is its kind and a number, such as `crash-1`.
            (began.cause or "").rpartition("-")[0] not in _LEAVE_TIMERS_ALONE
            for began in self._faults.since(since_us)
            if began.kind == TraceKind.FAULT_INJECTED
        )

    def _begin(
        self, broker_group: tuple[str, str], member: str, row: TraceRow, length_us: int
    ) -> None:
        """Begin or restart a session. An existing one keeps its entry in the heap."""
        members = self._sessions.setdefault(broker_group, {})
        until_us = row.time_us + length_us
        if member not in members:
            heappush(self._due, (until_us, (*broker_group, member)))
        members[member] = Session(
            since=row,
            length_us=length_us,
            until_us=until_us,
            may_be_parked=row.api in MAY_BE_PARKED,
        )

    def _postpone(self, session: Session, until_us: int) -> None:
        session.until_us = max(session.until_us, until_us)

    def _postpone_after_pause(self, row: TraceRow) -> None:
        """Postpone the ends of a resumed broker's sessions, because its timers fire only now."""
        for (broker, _), members in self._sessions.items():
            if broker == row.peer:
                for session in members.values():
                    self._postpone(session, row.time_us)
