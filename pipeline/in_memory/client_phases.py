"""The table `client_phases` in plain Python: how each member found its coordinator after a fault.

A member that loses its coordinator goes through three phases:

1. notice: from the fault until the member gives its coordinator up (marks it unknown);
2. rediscover: until an answer to FindCoordinator names the new coordinator;
3. accept: until the member's first success at the new coordinator.

At the new coordinator, the member may have to join its group again (JoinGroup, SyncGroup). The
table has a row for each fault and member, with the lengths of these phases. docs/TABLES.md has the
exact rules. `pipeline.tables.client_phases` computes the same with Spark.
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
"""Kinds of rows that end a lookup: the client has asked a broker for the coordinator
(FindCoordinator). In a row COORDINATOR_FOUND, `cause` is the broker that was asked, and `peer` is
the broker that the answer named.
"""
_MEMBERSHIP = tuple(kind for kind in MEMBER_KINDS if kind is not TraceKind.RECORDS_CONSUMED)
"""Kinds of rows by which we know that a consumer is a member, and with which member id.
RECORDS_CONSUMED is left out, because the consumer may have fetched the records under another id.
"""
_WITH_MEMBER_ID = (*_LOOKUPS, TraceKind.COORDINATOR_UNKNOWN, *_MEMBERSHIP)
"""Kinds of rows that have the consumer's present member id. Not all of them show that the consumer
is a member: it looks for its coordinator before it joins the group.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    """A row that a consumer wrote.

    `sent_us` is only for a row about an answer or failure: the time at which the request was sent.
    It is None if the trace lacks the request.
    """

    row: TraceRow
    sent_us: int | None = None

    @property
    def at_us(self) -> int:
        """The moment of the row."""
        return self.row.time_us

    def is_answer(self, *apis: str, error: str | None = None) -> bool:
        """Return whether this row ends a request of one of `apis`, by an answer or a failure.

        If `error` is given, the request must have ended with this error; "NONE" means success. If
        `error` is None, every answer and failure counts.
        """
        if self.row.kind not in (TraceKind.RESPONSE_RECEIVED, TraceKind.REQUEST_FAILED):
            return False
        if self.row.api not in apis:
            return False
        error_of_row = self.row.error or "NONE"
        return error is None or error_of_row == error


@once_per_trace
def client_phases_of(trace: Trace) -> list[TableRow]:
    """Return the phases of each member after each fault that affected its group."""
    affected = [failover for failover in failovers_of(trace) if failover.affected]
    table = []
    for (group, consumer), rows in _rows_of_consumers(trace).items():
        steps = _steps(rows)
        requests = [row for row in rows if row.kind == TraceKind.REQUEST_SENT]
        for failover in affected:
            # A consumer that was not yet a member at the fault had no coordinator to lose.
            was_member = any(
                row.kind in _MEMBERSHIP and row.time_us < failover.fault_us for row in rows
            )
            if failover.group != group or not was_member:
                continue
            # What happened after the next fault of the group belongs to the next fault.
            until_us = failover.until_us
            before_next_fault = [step for step in steps if step.at_us < until_us]
            sent = [row for row in requests if failover.fault_us <= row.time_us < until_us]
            table.append(
                {"fault": failover.fault, "group": group, "consumer": consumer}
                | _phases(failover, before_next_fault, sent)
            )
    return table


def _rows_of_consumers(trace: Trace) -> dict[tuple[str, str], list[TraceRow]]:
    """Return the rows that each member wrote, in the order of writing, by group and consumer."""
    members = {(row.group, row.node) for row in trace.of(*MEMBER_KINDS)}
    by_member: dict[tuple[str, str], list[TraceRow]] = {}
    for row in sorted(trace.rows, key=lambda row: (row.node, row.incarnation, row.seq)):
        if row.group is not None and (row.group, row.node) in members:
            by_member.setdefault((row.group, row.node), []).append(row)
    return by_member


def _steps(rows: list[TraceRow]) -> list[_Step]:
    """Return the rows of a consumer that matter for its phases.

    These are the answers to its requests to a coordinator, its lookups, and the rows that have its
    member id.
    """
    steps = []
    sent_us: dict[tuple[object, ...], int] = {}  # when each request was last sent
    for row in rows:
        # An answer belongs to the last request with the same values. In rows about requests, `peer`
        # is the broker, and `cause` the purpose of the connection.
        request = (row.incarnation, row.peer, row.cause, row.api, row.correlation_id)
        if row.kind == TraceKind.REQUEST_SENT:
            sent_us[request] = row.time_us
        elif row.kind in (TraceKind.RESPONSE_RECEIVED, TraceKind.REQUEST_FAILED):
            if row.api in _GROUP_APIS:
                steps.append(_Step(row=row, sent_us=sent_us.get(request)))
        elif row.kind in _WITH_MEMBER_ID:
            steps.append(_Step(row=row))
    return steps


def _phases(failover: Failover, steps: list[_Step], sent: list[TraceRow]) -> TableRow:
    """Return the phases of one consumer after one fault.

    `steps` are the consumer's steps from the beginning of the run to the next fault that affects
    its group. `sent` are the consumer's requests between the two faults.
    """
    fault_us = failover.fault_us
    before = [step for step in steps if step.at_us < fault_us]
    after = [step for step in steps if step.at_us >= fault_us]

    # The three steps that end the phases. Each step is searched for only after the step before it.
    unknown, after_unknown = _first_and_rest(
        after, lambda step: step.row.kind == TraceKind.COORDINATOR_UNKNOWN
    )
    named, after_named = _first_and_rest(
        after_unknown, lambda step: _names_coordinator(failover, step)
    )
    accepted, _ = _first_and_rest(
        after_named, lambda step: _is_success_at_coordinator(failover, step)
    )
    unknown_us = None if unknown is None else unknown.at_us
    named_us = None if named is None else named.at_us
    accepted_us = None if accepted is None else accepted.at_us

    # The lookups of the phase rediscover. A stale answer named a broker that was not the new
    # coordinator. In some stale answers, the broker that was asked (`cause`) named itself.
    rediscover = after_unknown[: len(after_unknown) - len(after_named)]
    lookups = [step for step in rediscover if step.row.kind in _LOOKUPS]
    stale = [
        step
        for step in lookups
        if step.row.kind == TraceKind.COORDINATOR_FOUND and not _names_coordinator(failover, step)
    ]
    named_itself = [step for step in stale if step.row.cause == step.row.peer]

    # How long requests to the old coordinator waited for an answer or failure. Requests that were
    # sent after the member gave this coordinator up do not count.
    old_leader = failover.old_leader
    from_old = [step for step in after if old_leader is not None and step.row.peer == old_leader]
    waits_us = [
        step.at_us - step.sent_us
        for step in from_old
        if step.is_answer("Heartbeat", "OffsetCommit")
        and step.sent_us is not None
        and (unknown_us is None or step.sent_us <= unknown_us)
    ]
    timeouts = [
        step for step in from_old if step.is_answer("OffsetCommit", error="REQUEST_TIMED_OUT")
    ]

    # A member that did not give its coordinator up had no reason for a lookup.
    gave_coordinator_up = unknown_us is not None
    # Before its first join, a member has the id "" and the generation -1. Both count as not known.
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
        "longest_wait_us": max(waits_us, default=None),
        "noticed_by": None if unknown is None else unknown.row.cause,
        "attempts": len(lookups) if gave_coordinator_up else None,
        "stale_answers": len(stale) if gave_coordinator_up else None,
        "self_answers": len(named_itself) if gave_coordinator_up else None,
        "commit_timeouts": len(timeouts),
        "late_heartbeats": _late_heartbeats(failover, from_old),
    }


def _names_coordinator(failover: Failover, step: _Step) -> bool:
    """Return whether this step is an answer that names the coordinator after the fault."""
    row, move = step.row, failover.move
    if row.kind != TraceKind.COORDINATOR_FOUND or row.peer != failover.new_leader:
        return False
    # If the old coordinator was elected again, an answer from before this election was stale. It
    # named the right broker, but meant its old leader epoch.
    if move is not None and failover.new_leader == failover.old_leader:
        return bool(row.time_us >= move["decided_us"])
    return True


def _is_success_at_coordinator(failover: Failover, step: _Step) -> bool:
    """Return whether this step is a success at the coordinator after the fault.

    A new coordinator first has to load its groups. Only successes after the load count.
    """
    # `active_us` is when the load ended. It is None if the load never ended. Then no success
    # counts. A coordinator that did not move has nothing to load.
    loaded_us = failover.fault_us if failover.move is None else failover.move["active_us"]
    if loaded_us is None or step.at_us < loaded_us or step.row.peer != failover.new_leader:
        return False
    # While it loads, a coordinator answers every heartbeat with NONE, although it does not know the
    # member yet. So a heartbeat must have been sent after the load.
    if step.is_answer("Heartbeat", error="NONE"):
        return step.sent_us is not None and step.sent_us >= loaded_us
    is_commit = step.row.kind == TraceKind.OFFSETS_COMMITTED
    return is_commit or step.is_answer(*_GROUP_APIS, error="NONE")


def _late_heartbeats(failover: Failover, from_old: list[_Step]) -> int | None:
    """Count heartbeats that the old coordinator answered with success while a new one was active.

    `from_old` are the answers of the old coordinator. Returns None if no other broker became the
    coordinator.
    """
    if failover.move is None or failover.new_leader == failover.old_leader:
        return None
    active_us: int | None = failover.move["active_us"]
    if active_us is None:  # the new coordinator never became active
        return 0
    late = [step for step in from_old if step.at_us >= active_us]
    return sum(step.is_answer("Heartbeat", error="NONE") for step in late)


def _request_to_success_us(
    api: str, sent: list[TraceRow], after: list[_Step], fault_us: int
) -> int | None:
    """Return the time from the first request of an API after the fault to the API's first success.

    If the first JoinGroup fails, for example, the time includes the retries. `sent` are the
    consumer's requests after the fault, and `after` its steps after the fault.
    """
    requests_us = [row.time_us for row in sent if row.api == api]
    # The first successful answer to a request that was sent after the fault.
    success, _ = _first_and_rest(
        after,
        lambda step: (
            step.is_answer(api, error="NONE")
            and step.sent_us is not None
            and step.sent_us >= fault_us
        ),
    )
    if success is None or success.sent_us is None:
        return None
    # Usually `requests_us` contains at least the request of this success. It can be empty if the
    # times in the trace are not in order.
    return success.at_us - min(requests_us, default=success.sent_us)


def _first_and_rest(
    steps: list[_Step], is_wanted: Callable[[_Step], bool]
) -> tuple[_Step | None, list[_Step]]:
    """Return the first wanted step and the steps after it; None and [] if no step is wanted."""
    for index, step in enumerate(steps):
        if is_wanted(step):
            return step, steps[index + 1 :]
    return None, []


def _last_known(values: Iterable[T | None]) -> T | None:
    """Return the last value that is not None; None if all values are None."""
    known = [value for value in values if value is not None]
    return known[-1] if known else None


def _known_generation(generation: int | None) -> int | None:
    """Return a generation; None if it is -1, which a member has before its first generation."""
    return None if generation is None or generation < 0 else generation


def _duration_us(end_us: int | None, begin_us: int | None) -> int | None:
    """Return the time from `begin_us` to `end_us`; None if one of the two is not known."""
    return None if end_us is None or begin_us is None else end_us - begin_us
