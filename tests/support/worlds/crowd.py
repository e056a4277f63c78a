"""The trace of a crash with more messages than the report's diagram of messages can show."""

from protocol.trace import TraceKind, TraceRow
from tests.support.builders.rows import Rows

CLIENTS = 150
PER_CLIENT = 4
"""The number of requests of each client.

First comes a Heartbeat, which fails. Then come a FindCoordinator, a JoinGroup and another
Heartbeat.
"""


def crowd() -> list[TraceRow]:
    """Return the trace of 150 members that all lose their coordinator at 10 s.

    Only member c-077 sends two more requests: a JoinGroup that is refused, and a LeaveGroup. So the
    diagram must show this member, although 77 members with equal requests come before it.
    """
    rows = Rows()
    rows.stage(0, "steady")
    rows.fault(10, "broker-1")
    for index in range(CLIENTS):
        client = f"c-{index:03}"
        # Each client sends its requests a millisecond after the client before it.
        at = 10 + index / 1_000
        _ask(rows, at, client, "Heartbeat", "broker-1", "DISCONNECTED")
        _ask(rows, at + 0.2, client, "FindCoordinator", "broker-2", "NONE")
        if index == 77:
            _ask(rows, at + 0.3, client, "JoinGroup", "broker-0", "NOT_COORDINATOR")
        _ask(rows, at + 0.4, client, "JoinGroup", "broker-0", "NONE")
        _ask(rows, at + 1, client, "Heartbeat", "broker-0", "NONE")
        if index == 77:
            _ask(rows, at + 2, client, "LeaveGroup", "broker-0", "NONE")
    rows.stage(20, "stopping")
    return rows.rows


def _ask(rows: Rows, at: float, client: str, api: str, broker: str, error: str) -> None:
    """Add two rows: a client sends a request, and 10 ms later it gets an answer or an error.

    With the error DISCONNECTED there is no answer, because the connection has ended.
    """
    is_failed = error == "DISCONNECTED"
    end = TraceKind.REQUEST_FAILED if is_failed else TraceKind.RESPONSE_RECEIVED
    for time_s, kind, outcome in ((at, TraceKind.REQUEST_SENT, None), (at + 0.01, end, error)):
        rows.add(
            time_s,
            client,
            kind,
            peer=broker,
            group="g",
            member=f"{client}-id",
            api=api,
            correlation_id=round(at * 1_000),
            cause="coordinator",
            error=outcome,
        )
