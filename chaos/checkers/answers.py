"""Answers: while nothing is broken, a server answers a request before its timeout.

This checker looks at every request of a group member or a broker that ends with TIMED_OUT. Such a
request is a violation if faults cannot explain it. Faults explain a request that times out while a
fault is in force, or within twice the request's timeout after the last fault has ended. Take a
timeout of 30 s, and a fault that ends at 100 s:

1. The fault may have broken connections without the clients' knowledge. The requests on them time
   out, and their connections are closed. At 130 s the last of these connections is gone.
2. A request that is sent after 130 s goes over an intact connection, and must be answered. If no
   answer comes, the request times out after 160 s. So every request that times out after 160 s is a
   violation.

Some answers wait until an append is replicated (APPENDING). After a fault, replicas need
`isr_recovery_us` to rejoin the ISR, so this time is added for such requests.

The timeouts are:
- JoinGroup of a member: its `max.poll.interval.ms` plus JOIN_GROUP_EXTRA_MS, or its
  `request.timeout.ms` if that is longer;
- any other request of a member: `request.timeout.ms`;
- Fetch of metadata, from a broker to the controller: `controller.quorum.fetch.timeout.ms`;
- Fetch of records, from a follower to its leader: `replica.socket.timeout.ms`;
- any other request of a broker: REQUEST_TIMEOUT_US.

While a server has nothing new to return, it holds a broker's Fetch back for a certain time. If the
timeout of the Fetch is less than twice this time, the Fetch may time out even in a healthy cluster.
Such a Fetch is not judged.

Timeouts are judged only in virtual time (the run's own simulated clock). In real time a busy
machine can delay any process beyond a timeout, which proves nothing about Kafka.

The checker also reports every answer UNKNOWN_SERVER_ERROR, because it means that the handler of the
request failed with an unexpected exception.
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
        # (server, API) of each UNKNOWN_SERVER_ERROR that was reported
        self._failed: dict[tuple[str, str], None] = {}
        self._timed_out = 0
        # Number of rows about the run's stages. Every whole trace of a run has some. If this one
        # has none, it is only a part of a trace, from which nothing can be concluded.
        self._stages = 0

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
        # In this row, `node` is the client, `peer` the server, `cause` the connection's purpose.
        group_id = self._group_of.get(row.node)
        if group_id is not None:
            timeout_us = _timeout_us(self.context.groups[group_id], row.api)
        elif row.node.startswith("broker-"):
            timeout_us = self.context.broker_timeouts_us.get(row.cause or "", REQUEST_TIMEOUT_US)
            # The server may hold the request back for so long that it times out without a fault.
            held_back_us = self.context.broker_waits_us.get(row.cause or "", 0)
            if timeout_us < 2 * held_back_us:
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
        """Report an UNKNOWN_SERVER_ERROR, once per server and API; later ones are only counted."""
        case = (row.node, row.api or "")
        if case in self._failed:
            self.findings_total += 1  # the same violation again
            return
        self._failed[case] = None
        self.report_finding(f"{row.node} answers {row.api} with {UNKNOWN_SERVER_ERROR}", [row])

    def finish(self) -> CheckReport:
        """Report the findings and the number of requests that timed out."""
        return self.report(judged=self._stages, seen={"requests_timed_out": self._timed_out})


def _timeout_us(expected: GroupExpectation, api: str | None) -> int:
    """Return the time that a member waits for an answer.

    For JoinGroup it is the longer of `request.timeout.ms` and the join's own timeout.
    """
    if api == Api.JOIN_GROUP.label:
        return max(expected.request_timeout_us, expected.join_us)
    return expected.request_timeout_us
