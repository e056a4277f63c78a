"""Why a coordinator may not have heard a living member for a session, though nobody cut them off.

A member is expired when no heartbeat of it was answered for a session. What keeps heartbeats away
while member and coordinator live, and no fault of links stands between them:

* a commit waits for a replica in sync that is silent: a connection carries one request at a time,
  and heartbeats wait behind it, up to offsets.commit.timeout.ms for each commit;
* the member looks for its coordinator, and a server that is stopped, cut off or without power does
  not answer, or names the one that was; or it knows dead brokers only, as a Kafka client may that
  last asked when the others were fenced (until KIP-899's rebootstrap, off by default in 3.9). It
  may find the right one just before its session ends;
* it was told of a coordinator that was replaced, by a broker that had not heard, and a session has
  no time for two heartbeats, each of them after a backoff;
* the coordinator itself was stopped, and due timers fire before heartbeats are read.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from chaos.checkers.base import GroupExpectation, detail_of
from chaos.checkers.evidence.faults_in_force import FaultsInForce, is_momentary
from protocol.causes import KillCause
from protocol.errors import ErrorCode
from protocol.trace import TraceKind, TraceRow
from results_schema.evidence_text import seconds

HEARING_KINDS = frozenset(
    {
        TraceKind.COORDINATOR_UNKNOWN,
        TraceKind.COORDINATOR_FOUND,
        TraceKind.COORDINATOR_LOOKUP_FAILED,
        TraceKind.APPEND_STARTED,
        TraceKind.APPEND_COMPLETED,
        TraceKind.NODE_PAUSED,
        TraceKind.NODE_RESUMED,
    }
)
"""The rows that Hearing must see."""
MAX_LEARNT = 256
"""Steps of a search kept of each member: some ten a second."""
MAX_WAITING = 4_096
MAX_WAITED = 256
"""Appends kept of each broker: that wait, and that have waited long."""
TRIES_OF_A_MISLED_MEMBER = 2
LONG_US = 100_000
"""What waited for less is the ordinary course of things."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wait:
    """An append that its followers were long in fetching. `timed_out`: until it was given up."""

    began_us: int
    ended_us: int
    timed_out: bool


@dataclass(slots=True)
class _Pause:
    """A time in which a node was stopped. `ended_us` None: it still is."""

    began_us: int
    ended_us: int | None = None


class Hearing:
    """Follows what stands between members and their coordinators."""

    def __init__(self, faults: FaultsInForce) -> None:
        """`faults` is fed by its owner."""
        self._faults = faults
        self._learnt: dict[str, deque[TraceRow]] = {}  # member -> its steps of searching
        self._in_vain: dict[str, TraceRow] = {}  # member -> its last lookup that failed
        self._waiting: dict[tuple[str, str], dict[int, int]] = {}  # (broker, partition): since
        self._waited: dict[tuple[str, str], deque[_Wait]] = {}
        self._pauses: dict[str, _Pause] = {}  # server -> its last pause

    def observe(self, row: TraceRow) -> None:
        """Take in a row of HEARING_KINDS."""
        match row.kind:
            case TraceKind.COORDINATOR_LOOKUP_FAILED:
                self._in_vain[row.member or ""] = row
            case TraceKind.COORDINATOR_UNKNOWN | TraceKind.COORDINATOR_FOUND:
                steps = self._learnt.setdefault(row.member or "", deque(maxlen=MAX_LEARNT))
                steps.append(row)
            case TraceKind.APPEND_STARTED | TraceKind.APPEND_COMPLETED:
                self._append(row, (row.node, row.partition or ""), row.correlation_id or 0)
            case TraceKind.NODE_PAUSED:
                before = self._pauses.get(row.peer or "")
                if before is not None and row.time_us - (before.ended_us or 0) < LONG_US:
                    before.ended_us = None  # it has done nothing in between
                else:
                    self._pauses[row.peer or ""] = _Pause(row.time_us)
            case TraceKind.NODE_RESUMED:
                pause = self._pauses.get(row.peer or "")
                if pause is not None:
                    pause.ended_us = row.time_us
            case _:
                pass

    def _append(self, row: TraceRow, place: tuple[str, str], append_id: int) -> None:
        waiting = self._waiting.setdefault(place, {})
        if row.kind == TraceKind.APPEND_STARTED:
            if len(waiting) >= MAX_WAITING:
                del waiting[next(iter(waiting))]
            waiting[append_id] = row.time_us
            return
        timed_out = row.error == ErrorCode.REQUEST_TIMED_OUT.name
        began_us = waiting.pop(append_id, row.time_us)
        if timed_out or row.time_us - began_us >= LONG_US:
            waited = self._waited.setdefault(place, deque(maxlen=MAX_WAITED))
            waited.append(_Wait(began_us=began_us, ended_us=row.time_us, timed_out=timed_out))

    def explain(
        self, expired: TraceRow, coordinator: str, expected: GroupExpectation, clock_error_us: int
    ) -> str | None:
        """Say why `coordinator` could not hear the member that it has `expired`; None: it could."""
        return (
            self._explain_wait(expired, coordinator, expected, clock_error_us)
            or self._explain_search(expired, coordinator, expected)
            or self._explain_pause(expired, coordinator, expected, clock_error_us)
        )

    def _explain_wait(
        self,
        expired: TraceRow,
        coordinator: str,
        expected: GroupExpectation,
        clock_error_us: int,
    ) -> str | None:
        since_us = expired.time_us - expected.session_timeout_us
        place = (coordinator, expected.offsets_partition)
        waits = [wait for wait in self._waited.get(place, ()) if wait.ended_us > since_us]
        waits += [
            _Wait(began_us=began_us, ended_us=expired.time_us, timed_out=False)
            for began_us in self._waiting.get(place, {}).values()
        ]
        if any(wait.timed_out for wait in waits):
            last_us = max(wait.ended_us for wait in waits if wait.timed_out)
            return (
                f"appends of {coordinator} timed out, last at {seconds(last_us)}: heartbeats "
                "waited behind commits, and those for a replica that is in sync and silent"
            )
        longest = max(waits, key=lambda wait: wait.ended_us - wait.began_us, default=None)
        if longest is None:
            return None
        length_us = longest.ended_us - longest.began_us
        if length_us < _silence_us(expected) - clock_error_us:
            return None
        return (
            f"an append of {coordinator} waited for {seconds(length_us)} from "
            f"{seconds(longest.began_us)} on: heartbeats waited behind it"
        )

    def _explain_search(
        self, expired: TraceRow, coordinator: str, expected: GroupExpectation
    ) -> str | None:
        """The member did not know the coordinator for long enough to send it a heartbeat."""
        since_us = expired.time_us - expected.session_timeout_us
        steps = self._learnt.get(expired.member or "")
        if not steps:
            return None
        in_vain = self._in_vain.get(expired.member or "")
        asks = in_vain is not None and in_vain.time_us > since_us
        misled = _is_short(expected) and _knew_another(steps, coordinator, since_us)
        silent = any(_makes_silent(fault) for fault in self._faults.since(since_us))
        if not (asks or misled or silent):
            return None
        longest_us = known_since_us = 0
        knows = False
        for step in steps:
            was, knows = knows, _knows(step, coordinator)
            if was and not knows:
                longest_us = max(longest_us, step.time_us - max(known_since_us, since_us))
            elif knows and not was:
                known_since_us = step.time_us
        if knows:
            longest_us = max(longest_us, expired.time_us - max(known_since_us, since_us))
        heard_us = expected.heartbeat_interval_us + expected.retry_backoff_max_us
        if longest_us >= min(heard_us, expected.session_timeout_us):
            return None
        learnt = steps[-1]
        if knows:
            what = f"found its coordinator only at {seconds(learnt.time_us)}"
        elif learnt.kind == TraceKind.COORDINATOR_FOUND:
            what = f"had been told by {learnt.cause} that {learnt.peer} is its coordinator"
        else:
            what = f"had not found its coordinator since {seconds(learnt.time_us)}"
        why = "while a server was silent"
        if asks:
            why = "asking brokers that are gone"
        elif not silent:
            why = "sent to one that had been replaced, and back to it after a backoff"
        return f"{expired.member} {what}, {why}"

    def _explain_pause(
        self,
        expired: TraceRow,
        coordinator: str,
        expected: GroupExpectation,
        clock_error_us: int,
    ) -> str | None:
        pause = self._pauses.get(coordinator)
        if pause is None:
            return None
        ended_us = expired.time_us if pause.ended_us is None else pause.ended_us
        heard_us = 2 * expected.heartbeat_interval_us  # the last heartbeat, and one on its way
        length_us = ended_us - pause.began_us
        if ended_us <= expired.time_us - expected.session_timeout_us:
            return None
        if length_us < expected.eviction_us - heard_us - clock_error_us:
            return None
        return f"{coordinator} was stopped for {seconds(length_us)}, and found its members expired"


def _silence_us(expected: GroupExpectation) -> int:
    """Return how long heartbeats must be held up for a session to end.

    One may have been due when it began, and the next is on its way when it ends. Where a session
    has hardly more than one heartbeat, half of what is left of it is enough.
    """
    session_us, interval_us = expected.eviction_us, expected.heartbeat_interval_us
    return max(session_us - 2 * interval_us, (session_us - interval_us) // 2)


def _is_short(expected: GroupExpectation) -> bool:
    """Whether a session may end between two heartbeats, each after a heartbeat's backoff."""
    heard_us = expected.heartbeat_interval_us + expected.retry_backoff_max_us
    return expected.session_timeout_us < TRIES_OF_A_MISLED_MEMBER * heard_us


def _knew_another(steps: Iterable[TraceRow], coordinator: str, since_us: int) -> bool:
    """Whether a member took another broker for its coordinator, some time after `since_us`."""
    ends = [*(step.time_us for step in steps), None][1:]
    return any(
        step.kind == TraceKind.COORDINATOR_FOUND
        and step.peer != coordinator
        and (ended_us is None or ended_us > since_us)
        for step, ended_us in zip(steps, ends, strict=True)
    )


def _knows(step: TraceRow, coordinator: str) -> bool:
    return step.kind == TraceKind.COORDINATOR_FOUND and step.peer == coordinator


def _makes_silent(fault: TraceRow) -> bool:
    """Whether a fault leaves connections to a server open and silent: no end, no answer.

    A stopped process, a machine without power, a cut link do; a killed process does not.
    """
    if fault.kind == TraceKind.NODE_KILLED:
        return fault.cause == KillCause.POWER_LOSS
    if fault.kind == TraceKind.NODE_PAUSED:
        return True
    detail = detail_of(fault)
    return not is_momentary(fault) and (
        "to" in detail or detail.get("fault") in {"pause", "power_loss"}
    )
