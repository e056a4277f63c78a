"""Answers: while nothing is broken, a server answers before who asked gives up.

Judged are requests of the members of groups and of brokers that end with TIMED_OUT. A JoinGroup may
take the member's `max.poll.interval.ms` and JOIN_GROUP_EXTRA_MS, any other request of a member
`request.timeout.ms`; a broker's Fetch of metadata `controller.quorum.fetch.timeout.ms`, that of a
follower `replica.socket.timeout.ms`, any other request of it REQUEST_TIMEOUT_US. Such a request was
sent while nothing was broken, over a connection that no fault had broken, if the time without a
fault is at least twice as long: whatever was lost before it had timed out by then, and its
connection was closed. A Fetch of a broker whose timeout is not twice its wait is not judged: it may
time out where nothing is new. Where the answer waits for an append (APPENDING), every replica must
have had the time to get into its ISR again besides (`isr_recovery_us`).

Timeouts are judged in virtual time alone: where time is real, a machine that is busy may hold up
any process for as long, and that says nothing of Kafka.

Nor does a server answer UNKNOWN_SERVER_ERROR, at any time: it says that a handler failed, and no
more. (Such an answer is in every trace, also where messages are left out.)
"""

from chaos.checkers.base import Checker
from chaos.checkers.context import REQUEST_TIMEOUT_US, CheckContext, GroupExpectation
from chaos.checkers.evidence.board import Evidence
from chaos.checkers.evidence.faults_in_force import FAULT_KINDS
from protocol.api import Api
from protocol.errors import ErrorCode
from protocol.trace import TraceKind, TraceRow
from results_schema.evidence_text import seconds
from results_schema.results import CheckReport

TIMED_OUT = "TIMED_OUT"
UNKNOWN_SERVER_ERROR = ErrorCode.UNKNOWN_SERVER_ERROR.name
APPENDING = frozenset(
    api.label
    for api in (
        Api.JOIN_GROUP,
        Api.SYNC_GROUP,
        Api.OFFSET_COMMIT,
        Api.TXN_OFFSET_COMMIT,
        Api.INIT_PRODUCER_ID,
        Api.ADD_OFFSETS_TO_TXN,
        Api.END_TXN,
    )
)
"""Requests whose answer may wait for an append that the ISR has to copy."""


class Answers(Checker):
    """No request of a member or a broker times out while nothing is broken."""

    name = "answers"
    promise = (
        "a request that a member or a broker sends while nothing is broken is answered before its "
        "timeout (judged in virtual time), and no server answers UNKNOWN_SERVER_ERROR"
    )
    kinds = frozenset(
        {
            TraceKind.REQUEST_FAILED,
            TraceKind.RESPONSE_SENT,
            TraceKind.RUN_STAGE,
            *FAULT_KINDS,
        }
    )

    def __init__(self, context: CheckContext, evidence: Evidence | None = None) -> None:
        super().__init__(context, evidence)
        self._group_of = {
            consumer: group_id
            for group_id, expected in context.groups.items()
            for consumer in expected.consumers
        }
        self._failed: dict[tuple[str, str], None] = {}  # server and API, told once
        self._timed_out = 0
        self._stages = 0

    def judge(self, row: TraceRow) -> None:
        """Judge a request that timed out."""
        if row.kind == TraceKind.RUN_STAGE:
            self._stages += 1
            return
        if row.kind == TraceKind.RESPONSE_SENT:
            if row.error == UNKNOWN_SERVER_ERROR:
                self._does_not_know(row)
            return
        if row.kind != TraceKind.REQUEST_FAILED or row.error != TIMED_OUT:
            return
        group_id = self._group_of.get(row.node)
        if group_id is not None:
            timeout_us = _timeout_us(self.context.groups[group_id], row.api)
        elif row.node.startswith("broker-"):
            timeout_us = self.context.broker_timeouts_us.get(row.cause or "", REQUEST_TIMEOUT_US)
            if timeout_us < 2 * self.context.broker_waits_us.get(row.cause or "", 0):
                return
        else:
            return
        self._timed_out += 1
        if not self.context.in_virtual_time:
            return
        quiet_since_us = self._faults.quiet_since_us
        if quiet_since_us is None:
            return
        needed_us = 2 * timeout_us + self.context.clock_error_us
        if row.api in APPENDING:
            needed_us += self.context.isr_recovery_us
        if row.time_us - quiet_since_us <= needed_us:
            return
        self.found(
            f"{row.peer} has not answered {row.api} of {row.node} within {seconds(timeout_us)}, "
            f"although nothing has been broken for {seconds(row.time_us - quiet_since_us)}",
            [row],
            group=group_id,
            partition=None if group_id is None else self.context.groups[group_id].offsets_partition,
        )

    def _does_not_know(self, row: TraceRow) -> None:
        """Report an answer that says nothing but that the server failed; one of each kind."""
        if (case := (row.node, row.api or "")) in self._failed:
            self.findings_total += 1
            return
        self._failed[case] = None
        self.found(f"{row.node} answers {row.api} with {UNKNOWN_SERVER_ERROR}", [row])

    def finish(self) -> CheckReport:
        """Report. A run of which nothing was seen is no proof."""
        return self.report(judged=self._stages, seen={"requests_timed_out": self._timed_out})


def _timeout_us(expected: GroupExpectation, api: str | None) -> int:
    """Return how long a member waits for an answer."""
    if api == Api.JOIN_GROUP.label:
        return max(expected.request_timeout_us, expected.join_us)
    return expected.request_timeout_us
