"""The table `client_phases` in plain Python: how each member found its coordinator after a fault.

A member that loses its coordinator goes through three phases:

1. notice: from the fault until the member marks its coordinator unknown;
2. rediscover: until an answer names the new coordinator;
3. accept: until the member's first success at the new coordinator.

The member then rejoins its group: it joins (JoinGroup), then asks for its partitions (SyncGroup).
docs/TABLES.md has the exact rules; `pipeline.tables.client_phases` computes the same with Spark.

A `Failover` is a pair of a fault and a group. Its `move` is the row of `broker_phases` about the
move of the group's coordinator, None if the fault did not move the coordinator. `old_leader` and
`new_leader` are the coordinators before and after the move.

The columns `cause` and `peer` of a trace row depend on its kind. In a row COORDINATOR_FOUND,
`cause` is the broker that was asked, and `peer` the broker that its answer named. In a client's
rows about requests, `peer` is the broker to which the request went, and `cause` the purpose of the
connection.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from pipeline.in_memory.failovers import Failover, failovers_of
from pipeline.in_memory.trace import MEMBER_KINDS, TableRow, Trace, once_per_trace
from protocol.trace import TraceKind, TraceRow

T = TypeVar("T")

_GROUP_APIS = ("JoinGroup", "SyncGroup", "Heartbeat", "OffsetCommit", "OffsetFetch")
"""Requests that a member sends to its coordinator."""
_LOOKUPS = (TraceKind.COORDINATOR_FOUND, TraceKind.COORDINATOR_LOOKUP_FAILED)
"""Kinds of rows that end a lookup, the search for the group's coordinator (FindCoordinator)."""
_MEMBERSHIP = tuple(kind for kind in MEMBER_KINDS if kind is not TraceKind.RECORDS_CONSUMED)
"""Kinds of rows that a consumer writes only while it is a member, with its current member id.
RECORDS_CONSUMED is left out, because the consumer may have fetched the records under another id.
"""
_WITH_MEMBER_ID = (*_LOOKUPS, TraceKind.COORDINATOR_UNKNOWN, *_MEMBERSHIP)
"""Kinds of rows that have the consumer's current member id. A consumer can write rows of _LOOKUPS
and COORDINATOR_UNKNOWN before it is a member, so only those of _MEMBERSHIP prove that it is one.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    """A row of a consumer. If the row is an answer, `sent_us` is when its request was sent."""

    row: TraceRow
    sent_us: int | None = None

    @property
    def at_us(self) -> int:
        """The moment of the row."""
        return self.row.time_us

    def is_answer(self, *apis: str, error: str | None = None) -> bool:
        """Return whether this row ends a request of one of `apis`, by an answer or a failure.

        With `error`, the request must also have ended with this error; "NONE" means success.
        """
        if self.row.kind not in (TraceKind.RESPONSE_RECEIVED, TraceKind.REQUEST_FAILED):
            return False
        # A row without an error is a success. If `error` is None, every end of the request counts.
        own_error = self.row.error or "NONE"
        return self.row.api in apis and (error is None or error == own_error)


@once_per_trace
def client_phases_of(trace: Trace) -> list[TableRow]:
    """Return the phases of each fault's failover, for each consumer of each affected group."""
    failovers = [failover for failover in failovers_of(trace) if failover.affected]
    table = []
    for (group, consumer), rows in _rows_of_consumers(trace).items():
        steps = _steps(rows)
        requests = [row for row in rows if row.kind == TraceKind.REQUEST_SENT]
        for failover in failovers:
            # A consumer that was no member yet had no coordinator that the fault could take away.
            was_member = any(
                row.kind in _MEMBERSHIP and row.time_us < failover.fault_us for row in rows
            )
            if failover.group == group and was_member:
                # Steps after the next fault of the group belong to that fault.
                until_us = failover.until_us
                before_next_fault = [step for step in steps if step.at_us < until_us]
                sent = [row for row in requests if failover.fault_us <= row.time_us < until_us]
                table.append(
                    {"fault": failover.fault, "group": group, "consumer": consumer}
                    | _phases(failover, before_next_fault, sent)
                )
    return table


def _rows_of_consumers(trace: Trace) -> dict[tuple[str, str], list[TraceRow]]:
    """Return the rows of each member in the order in which it wrote them, by group and consumer."""
    members = {(row.group, row.node) for row in trace.of(*MEMBER_KINDS)}
    by_member: dict[tuple[str, str], list[TraceRow]] = {}
    for row in sorted(trace.rows, key=lambda row: (row.node, row.incarnation, row.seq)):
        if row.group is not None and (row.group, row.node) in members:
            by_member.setdefault((row.group, row.node), []).append(row)
    return by_member


def _steps(rows: list[TraceRow]) -> list[_Step]:
    """Return a consumer's steps: its answers, lookups and rows with its member id.

    An answer belongs to the last request before it that has the same broker, purpose, API and
    correlation id.
    """
    steps = []
    sent: dict[tuple[object, ...], int] = {}
    for row in rows:
        request = (row.incarnation, row.peer, row.cause, row.api, row.correlation_id)
        if row.kind == TraceKind.REQUEST_SENT:
            sent[request] = row.time_us
        elif row.kind in (TraceKind.RESPONSE_RECEIVED, TraceKind.REQUEST_FAILED):
            if row.api in _GROUP_APIS:
                steps.append(_Step(row=row, sent_us=sent.get(request)))
        elif row.kind in _WITH_MEMBER_ID:
            steps.append(_Step(row=row))
    return steps


def _phases(failover: Failover, steps: list[_Step], sent: list[TraceRow]) -> TableRow:
    """Return the phases of one consumer after one fault.

    `steps` are its steps in the run, until the next fault that affects its group. `sent` are its
    requests between the fault and that next fault.
    """
    fault_us = failover.fault_us
    before = [step for step in steps if step.at_us < fault_us]
    after = [step for step in steps if step.at_us >= fault_us]

    # `unknown`, `named` and `accepted` end the phases notice, rediscover and accept. Each phase is
    # searched in the steps after the end of the phase before: `unknown` is an index in `after`,
    # `named` an index in `after_unknown`, and `accepted` a step of `after_named`.
    unknown = _index_of_first(after, lambda step: step.row.kind == TraceKind.COORDINATOR_UNKNOWN)
    after_unknown = [] if unknown is None else after[unknown + 1 :]
    named = _index_of_first(after_unknown, lambda step: _is_named(failover, step))
    after_named = [] if named is None else after_unknown[named + 1 :]
    accepted = _first_step(after_named, lambda step: _is_accepted(failover, step))
    unknown_us = None if unknown is None else after[unknown].at_us
    named_us = None if named is None else after_unknown[named].at_us
    accepted_us = None if accepted is None else accepted.at_us

    # `lookups` are the ends of lookups in the phase rediscover. The answers in `stale` named a
    # broker that is not the coordinator.
    until_named = after_unknown if named is None else after_unknown[: named + 1]
    lookups = [step for step in until_named if step.row.kind in _LOOKUPS]
    stale = [
        step
        for step in lookups
        if step.row.kind == TraceKind.COORDINATOR_FOUND and not _is_named(failover, step)
    ]
    # Of the stale answers, those in which the broker that was asked (`cause`) named itself.
    named_itself = [step for step in stale if step.row.cause == step.row.peer]

    # Answers and failures of requests to the old leader. A wait counts only if its request was sent
    # before the member gave the coordinator up.
    old_leader = failover.old_leader
    from_old = [step for step in after if old_leader is not None and step.row.peer == old_leader]
    waits = [
        step.at_us - step.sent_us
        for step in from_old
        if step.is_answer("Heartbeat", "OffsetCommit")
        and step.sent_us is not None
        and (unknown_us is None or step.sent_us <= unknown_us)
    ]
    timeouts = [
        step for step in from_old if step.is_answer("OffsetCommit", error="REQUEST_TIMED_OUT")
    ]

    # A consumer that did not mark its coordinator unknown had no reason for a lookup.
    has_lost_coordinator = unknown_us is not None
    # Before its first join, a member has the id "" and the generation -1. Both count as unknown.
    return {
        "member_id": _last_known(step.row.member or None for step in before),
        "member_id_after": _last_known(step.row.member or None for step in after),
        "generation": _last_known(_known_generation(step.row.generation) for step in before),
        "generation_after": _last_known(_known_generation(step.row.generation) for step in after),
        "fault_us": fault_us,
        "unknown_us": unknown_us,
        "named_us": named_us,
        "accepted_us": accepted_us,
        "notice_us": _duration_us(unknown_us, fault_us),
        "rediscover_us": _duration_us(named_us, unknown_us),
        "accept_us": _duration_us(accepted_us, named_us),
        "join_us": _request_to_success_us("JoinGroup", sent, after, fault_us),
        "sync_us": _request_to_success_us("SyncGroup", sent, after, fault_us),
        "longest_wait_us": max(waits, default=None),
        "noticed_by": None if unknown is None else after[unknown].row.cause,
        "attempts": len(lookups) if has_lost_coordinator else None,
        "stale_answers": len(stale) if has_lost_coordinator else None,
        "self_answers": len(named_itself) if has_lost_coordinator else None,
        "commit_timeouts": len(timeouts),
        "late_heartbeats": _late_heartbeats(failover, from_old),
    }


def _is_named(failover: Failover, step: _Step) -> bool:
    """Return whether this step's answer names the coordinator of the newest leader epoch.

    The leader epoch is the number of a partition's leadership.
    """
    row, move = step.row, failover.move
    if row.kind != TraceKind.COORDINATOR_FOUND or row.peer != failover.new_leader:
        return False
    # If the old leader was elected again, an answer from before this election is still stale.
    if move is not None and failover.new_leader == failover.old_leader:
        return bool(row.time_us >= move["decided_us"])
    return True


def _is_accepted(failover: Failover, step: _Step) -> bool:
    """Return whether this step is a success at the newest epoch's coordinator, after its load.

    The load is the time in which the new coordinator reads its groups into memory.
    """
    # A coordinator that did not move has nothing to load, so every success after the fault counts.
    # A coordinator whose load the trace lacks (None) accepts nobody.
    loaded_us = failover.fault_us if failover.move is None else failover.move["active_us"]
    if loaded_us is None or step.at_us < loaded_us or step.row.peer != failover.new_leader:
        return False
    # While it loads, a coordinator answers every heartbeat with NONE, without a check of the
    # member. So a heartbeat counts only if it was sent after the load.
    if step.is_answer("Heartbeat", error="NONE"):
        return step.sent_us is not None and step.sent_us >= loaded_us
    is_commit = step.row.kind == TraceKind.OFFSETS_COMMITTED
    return is_commit or step.is_answer(*_GROUP_APIS, error="NONE")


def _late_heartbeats(failover: Failover, from_old: list[_Step]) -> int | None:
    """Count heartbeats that the old coordinator answered with success while a new one was active.

    Returns None if no other broker became coordinator.
    """
    if failover.move is None or failover.new_leader == failover.old_leader:
        return None
    active_us: int | None = failover.move["active_us"]
    if active_us is None:  # the new coordinator never became active, so no answer was late
        return 0
    late = [step for step in from_old if step.at_us >= active_us]
    return sum(step.is_answer("Heartbeat", error="NONE") for step in late)


def _request_to_success_us(
    api: str, sent: list[TraceRow], after: list[_Step], fault_us: int
) -> int | None:
    """Return the time from the first request of an API after the fault to the API's first success.

    The first request counts even if it failed, so that the time includes the retries. `sent` are
    the consumer's requests after the fault, `after` its steps after the fault.
    """
    requests_us = [row.time_us for row in sent if row.api == api]
    success = _first_step(
        after,
        lambda step: (
            step.is_answer(api, error="NONE")
            and step.sent_us is not None
            and step.sent_us >= fault_us
        ),
    )
    if success is None or success.sent_us is None:
        return None
    # `requests_us` has the request of this success. The default is for a trace whose times are not
    # in order.
    return success.at_us - min(requests_us, default=success.sent_us)


def _index_of_first(steps: list[_Step], wanted: Callable[[_Step], bool]) -> int | None:
    """Return the index of the first wanted step; None if no step is wanted."""
    return next((index for index, step in enumerate(steps) if wanted(step)), None)


def _first_step(steps: list[_Step], wanted: Callable[[_Step], bool]) -> _Step | None:
    """Return the first wanted step; None if no step is wanted."""
    return next((step for step in steps if wanted(step)), None)


def _last_known(values: Iterable[T | None]) -> T | None:
    """Return the last value that is not None; None if all values are None."""
    known = [value for value in values if value is not None]
    return known[-1] if known else None


def _known_generation(generation: int | None) -> int | None:
    """Return a generation; None if it is -1, Kafka's value before a member's first generation.

    A generation is the number of a group's rebalance.
    """
    return None if generation is None or generation < 0 else generation


def _duration_us(end_us: int | None, begin_us: int | None) -> int | None:
    """Return the time from `begin_us` to `end_us`; None if one of the two is unknown."""
    return None if end_us is None or begin_us is None else end_us - begin_us
