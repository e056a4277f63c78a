"""Members that a coordinator should have removed because their sessions have ended.

A member must send a request within `session.timeout.ms`, or else the coordinator removes it. Its
session is the timer for this. The coordinator restarts the session

- with each request of the member, also with a commit (SESSION_RESTARTED);
- when the coordinator loads the group (GROUP_LOADED);
- when the group enters its next state, because the coordinator then answers the members whose
  requests were waiting.

If the session runs out, the coordinator writes MEMBER_REMOVED. (Section 5.4 of
docs/kafka/BEHAVIOUR.md; Kafka `completeAndScheduleNextHeartbeatExpiration`.)

`SessionEnds.overdue` finds members that are still in the group when their sessions should have
ended. Normally a member must be removed within its session timeout, plus SLACK_US for a busy
broker. This time counts from the last restart of the session. In some cases the removal may come
later:

- While the group is not Stable, a member may be waiting for the answer to a JoinGroup or SyncGroup,
  and its session does not end before the answer. So only Stable groups are judged.
- In a Stable group, too, the answer to a static member (with a `group.instance.id`) may wait for an
  append. So if the member's last request was a JoinGroup or SyncGroup, its session timeout counts
  twice.
- The timers of a paused broker stand still. After a pause, SLACK_US counts from the pause's end.
- While a fault delays the clock or the disk of any broker, no session is judged.

`SessionEnds.restarts_nothing` finds the opposite error: a coordinator that stores a member's
commits but does not restart its session with them.
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
"""Time that a busy broker may take to carry out a timer. Measured times are well below 1 s."""
MAY_BE_PARKED = frozenset({Api.JOIN_GROUP.label, Api.SYNC_GROUP.label})
"""Requests whose answer a coordinator may hold back. Until the answer, the member is parked."""
_STABLE = "Stable"  # the state of a group in which no rebalance is in progress
_ENDS = frozenset({"Empty", "Dead"})  # states of a group without members, so without sessions
_LEAVE_TIMERS_ALONE = frozenset(
    {
        "crash",
        "power_loss",
        "controlled_shutdown",
        # A pause does stop timers, but the rows NODE_PAUSED and NODE_RESUMED show this.
        "pause",
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
        "machine_pause",  # for the same reason as "pause"
        "machine_cut",
    }
)
"""Faults that delay no living broker's clock or disk.

Any other fault counts as a fault that may delay a clock or a disk. So if a new kind of fault is not
added here, the check may miss a violation, but it reports no false violation.
"""

Key = tuple[str, str, str]
"""Broker, group and member id."""


@dataclass(slots=True)
class Session:
    """A member's session at one broker."""

    since: TraceRow  # the row that began or last restarted the session
    length_us: int  # `session.timeout.ms`
    until_us: int  # time at which the session should end
    may_be_parked: bool = False  # True if `since` is about a JoinGroup or SyncGroup
    reported: bool = False  # True once `overdue` has yielded it


class SessionEnds:
    """Follows every session of the experiment's groups."""

    def __init__(
        self, context: CheckContext, coordinators: CoordinatorView, faults: FaultsInForce
    ) -> None:
        self._context = context
        self._coordinators = coordinators
        self._faults = faults
        # (broker, group) -> member id -> session
        self._sessions: dict[tuple[str, str], dict[str, Session]] = {}
        # Heap with an entry (time at which to look at the session, key) for each session. Sessions
        # are restarted all the time, and a change of the heap at each restart would be slow. So an
        # entry keeps its old time. When this time has come, `overdue` looks at the session, and
        # gives the entry its new time.
        self._due: list[tuple[int, Key]] = []
        self._paused: dict[str, None] = {}  # paused brokers
        # Members with an OffsetCommit that restarted the session; for `restarts_nothing`
        self._committing: dict[Key, None] = {}

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
                # The row does not tell each member's own timeout. With the group's longest timeout
                # no session is judged too early.
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

        The row shows this if the coordinator stores a commit of the member, although no
        OffsetCommit has ever restarted the member's session at this coordinator. Three kinds of
        commits show nothing:
        - commits of transactions, which have no `correlation_id`;
        - commits of administrators, who have no session;
        - commits that are stored before any request of the member has restarted the session here.
          The append of such a commit may have begun before this coordinator loaded the group.
        """
        broker_group, member = (row.node, row.group or ""), row.member or ""
        key = (*broker_group, member)
        session = self._sessions.get(broker_group, {}).get(member)
        if session is None or row.correlation_id is None:
            return False
        return session.since.kind == TraceKind.SESSION_RESTARTED and key not in self._committing

    def overdue(self, now_us: int) -> Iterator[tuple[Key, Session]]:
        """Yield each session that should have ended by `now_us`, with its key.

        Each session is yielded only once.
        """
        margin_us = SLACK_US + self._context.clock_error_us
        # The first entry of the heap has the earliest time.
        while self._due and self._due[0][0] + margin_us < now_us:
            _, key = heappop(self._due)
            broker, group_id, member = key
            session = self._sessions.get((broker, group_id), {}).get(member)
            if session is None or session.reported:
                continue
            until_us = self._judged_from_us(key, session, now_us)
            # For a session that may not be judged now, `until_us` is `now_us`. Such a session goes
            # back into the heap, and is looked at again after `margin_us`.
            if until_us + margin_us < now_us:
                session.reported = True
                yield key, session
            else:
                heappush(self._due, (until_us, key))

    def _judged_from_us(self, key: Key, session: Session, now_us: int) -> int:
        """Return the time at which the session should end; `now_us` if it may not be judged now."""
        broker, group_id, _ = key
        state = self._coordinators.state_at(broker, group_id)
        is_stable = state is None or state == _STABLE  # None: the group's state has no row yet
        if not is_stable or broker in self._paused or self._is_delayed(session.since.time_us):
            return now_us
        return session.until_us + (session.length_us if session.may_be_parked else 0)

    def _is_delayed(self, since_us: int) -> bool:
        """Return True if a fault since `since_us` may have delayed a broker's clock or disk."""
        return any(
            # A fault's id is its kind and a number, such as `crash-1`.
            (began.cause or "").rpartition("-")[0] not in _LEAVE_TIMERS_ALONE
            for began in self._faults.since(since_us)
            if began.kind == TraceKind.FAULT_INJECTED
        )

    def _begin(
        self, broker_group: tuple[str, str], member: str, row: TraceRow, length_us: int
    ) -> None:
        """Begin or restart a session. A restarted session keeps its entry in the heap."""
        members = self._sessions.setdefault(broker_group, {})
        until_us = row.time_us + length_us
        known = members.get(member)
        # `overdue` has removed the entry of a reported session.
        if known is None or known.reported:
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
