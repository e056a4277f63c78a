"""The trace of a crash with so many messages that the report's message diagram cannot show all."""

from protocol.trace import TraceKind, TraceRow
from tests.support.builders.rows import Rows

CLIENTS = 150
PER_CLIENT = 4
"""Requests of each client: a failed Heartbeat, a FindCoordinator, a JoinGroup, a Heartbeat."""


def crowd() -> list[TraceRow]:
    """Return the trace of 150 members that all lose their coordinator at 10 s.

    Only member c-077 has two more requests: a refused JoinGroup, and a LeaveGroup.
    """
    rows = Rows()
    rows.stage(0, "steady")
    rows.fault(10, "broker-1")
    for index in range(CLIENTS):
        client = f"c-{index:03}"
        at = 10 + index / 1_000  # each client a millisecond after the one before it
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
    """Add the rows of one request and of its end, 10 ms later."""
    failed = error == "DISCONNECTED"
    ended = TraceKind.REQUEST_FAILED if failed else TraceKind.RESPONSE_RECEIVED
    for time_s, kind, outcome in ((at, TraceKind.REQUEST_SENT, None), (at + 0.01, ended, error)):
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
