"""Answers: while nothing is broken, a server answers a request before its timeout.

This checker judges requests of group members and of brokers that end with TIMED_OUT. Their
timeouts are:
- JoinGroup of a member: its `max.poll.interval.ms` plus JOIN_GROUP_EXTRA_MS;
- any other request of a member: `request.timeout.ms`;
- Fetch of metadata, from a broker to the controller: `controller.quorum.fetch.timeout.ms`;
- Fetch of records, from a follower to its leader: `replica.socket.timeout.ms`;
- any other request of a broker: REQUEST_TIMEOUT_US.

Servers are brokers and controllers. In a row of a request, `node` is the client, `peer` the server,
and `cause` the purpose of the connection. A request that timed out is a violation if no fault has
been in force for more than twice its timeout. The reason:
1. During the first timeout, every request that a fault has hit times out, and its connection is
   closed.
2. A request that times out at the end of the second timeout was therefore sent while nothing was
   broken, over an intact connection.
If the answer waits for an append (APPENDING), the replicas also need time to rejoin the ISR, the
set of in-sync replicas (`isr_recovery_us`).

A server holds a Fetch back while it has no new records. If the timeout of a broker's Fetch is less
than twice the longest time for which a server holds it back, the Fetch is not judged: it may time
out for this reason alone.

Timeouts are judged only in virtual time (the run's own simulated clock). In real time a busy
machine can delay any process beyond a timeout, which proves nothing about Kafka.

A server must never answer UNKNOWN_SERVER_ERROR: this error only says that a handler failed. (A run
may leave rows of messages out of its trace, the record of its events, but never these answers.)
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
"""Requests whose answer may wait until the in-sync replicas have copied an append."""


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
        # (server, API) of each reported UNKNOWN_SERVER_ERROR
        self._failed: dict[tuple[str, str], None] = {}
        self._timed_out = 0
        self._stages = 0  # rows of the run's stages: without them nothing was judged

    def judge(self, row: TraceRow) -> None:
        """Judge a request that timed out, and an answer UNKNOWN_SERVER_ERROR."""
        if row.kind == TraceKind.RUN_STAGE:
            self._stages += 1
            return
        if row.kind == TraceKind.RESPONSE_SENT:
            if row.error == UNKNOWN_SERVER_ERROR:
                self._report_unknown_error(row)
            return
        if row.kind != TraceKind.REQUEST_FAILED or row.error != TIMED_OUT:
            return
        group_id = self._group_of.get(row.node)
        if group_id is not None:
            timeout_us = _timeout_us(self.context.groups[group_id], row.api)
        elif row.node.startswith("broker-"):
            # `row.cause` is the purpose of the connection.
            timeout_us = self.context.broker_timeouts_us.get(row.cause or "", REQUEST_TIMEOUT_US)
            # The server may hold the request back for so long that it times out without a fault.
            if timeout_us < 2 * self.context.broker_waits_us.get(row.cause or "", 0):
                return
        else:
            return  # the timeouts of other nodes, such as producers, are not known here

        self._timed_out += 1
        if not self.context.in_virtual_time:
            return
        quiet_since_us = self._faults.quiet_since_us
        if quiet_since_us is None:  # a fault is in force
            return
        # The module docstring says why two timeouts, and why appends need more.
        needed_us = 2 * timeout_us + self.context.clock_error_us
        if row.api in APPENDING:
            needed_us += self.context.isr_recovery_us
        if row.time_us - quiet_since_us <= needed_us:
            return
        self.report_finding(
            f"{row.peer} has not answered {row.api} of {row.node} within {seconds(timeout_us)}, "
            f"although nothing has been broken for {seconds(row.time_us - quiet_since_us)}",
            [row],
            group=group_id,
            partition=None if group_id is None else self.context.groups[group_id].offsets_partition,
        )

    def _report_unknown_error(self, row: TraceRow) -> None:
        """Report an UNKNOWN_SERVER_ERROR, once per server and API."""
        if (case := (row.node, row.api or "")) in self._failed:
            self.findings_total += 1  # the same violation again
            return
        self._failed[case] = None
        self.report_finding(f"{row.node} answers {row.api} with {UNKNOWN_SERVER_ERROR}", [row])

    def finish(self) -> CheckReport:
        """Report; a run without stages in its trace proves nothing."""
        return self.report(judged=self._stages, seen={"requests_timed_out": self._timed_out})


def _timeout_us(expected: GroupExpectation, api: str | None) -> int:
    """Return the time that a member waits for an answer.

    For JoinGroup it is the longer of `request.timeout.ms` and the join's own timeout.
    """
    if api == Api.JOIN_GROUP.label:
        return max(expected.request_timeout_us, expected.join_us)
    return expected.request_timeout_us
