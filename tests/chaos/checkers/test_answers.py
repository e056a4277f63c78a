"""The answers checker finds requests without an answer in a healthy cluster.

A request that timed out is a finding if the cluster had been healthy for more than twice the
request's timeout, because such a request was sent while nothing was broken. A connection of a
broker has a purpose (such as "metadata"), which decides the timeout of its requests. The ISR are
the in-sync replicas of a partition. "Planted bug" in a docstring names a bug that the test would
find.
"""

import pytest

from chaos.checkers.answers import Answers
from chaos.checkers.context import CheckContext, GroupExpectation
from protocol.trace import TraceKind
from results_schema.results import CheckOutcome, CheckReport
from tests.support.builders.rows import OFFSETS_0, Rows

C0 = "consumer-g-0"


def check(rows: Rows, *, in_virtual_time: bool = True) -> CheckReport:
    """Return the report of a run with these timeouts of the member C0 and of brokers.

    `broker_waits_us` is how long a server may hold a broker's request, by the connection's purpose.
    """
    checker = Answers(
        CheckContext(
            groups={
                "g": GroupExpectation(
                    consumers=(C0,),
                    offsets_partition=OFFSETS_0,
                    commits=True,
                    request_timeout_us=5_000_000,
                    rebalance_timeout_us=20_000_000,
                )
            },
            isr_recovery_us=30_000_000,
            in_virtual_time=in_virtual_time,
            broker_timeouts_us={"metadata": 2_000_000, "replica-fetcher": 900_000},
            broker_waits_us={"metadata": 500_000, "replica-fetcher": 500_000},
        )
    )
    for row in rows.rows:
        checker.observe(row)
    return checker.finish()


def after_a_fault() -> Rows:
    """Return rows in which a link is cut at 20 s and healed at 30 s."""
    rows = Rows()
    rows.stage(10, "steady")
    rows.fault(20, "broker-0", fault="cut", nodes=["broker-0"])
    rows.healed(30, "broker-0", fault="cut")
    return rows


def timed_out(
    rows: Rows, time_s: float, api: str, *, node: str = C0, cause: str | None = None
) -> None:
    """Let a request to broker-0 time out; `cause` is the purpose of a broker's connection."""
    rows.add(
        time_s,
        node,
        TraceKind.REQUEST_FAILED,
        peer="broker-0",
        api=api,
        correlation_id=1,
        cause=cause,
        group="g",
        error="TIMED_OUT",
    )


# `bound_s` is twice the request's timeout: 2 * 5 s, and for JoinGroup 2 * (5 + 20) s, because it
# waits for the rebalance timeout, too. A request that appends to the log also waits for the ISR,
# which may need 30 s to recover.
@pytest.mark.parametrize(
    ("api", "bound_s"),
    [("Heartbeat", 10), ("Fetch", 10), ("OffsetCommit", 10 + 30), ("JoinGroup", 50 + 30)],
)
def test_request_that_times_out_in_a_healthy_cluster_is_found(api: str, bound_s: float) -> None:
    """Planted bug: a request that is parked and never answered."""
    late, in_time = after_a_fault(), after_a_fault()
    timed_out(late, 30 + bound_s + 0.1, api)
    timed_out(in_time, 30 + bound_s - 0.1, api)

    assert f"broker-0 has not answered {api} of {C0}" in check(late).findings[0].summary
    assert check(in_time).outcome is CheckOutcome.PASS
    # In real time a machine may be slow.
    assert check(late, in_virtual_time=False).outcome is CheckOutcome.PASS


def test_request_may_time_out_during_a_fault() -> None:
    """No answer is promised while a fault is in force."""
    rows = after_a_fault()
    rows.fault(60, "broker-1", fault="crash", nodes=["broker-1"])
    timed_out(rows, 200, "Heartbeat")

    report = check(rows)

    assert report.outcome is CheckOutcome.PASS
    assert report.seen == {"requests_timed_out": 1}


@pytest.mark.parametrize(
    ("purpose", "after_s", "is_found"),
    [
        ("metadata", 3.9, False),
        ("metadata", 4.1, True),
        ("replica-fetcher", 3.9, False),
        ("replica-fetcher", 100, False),
        ("heartbeat", 3.9, False),
        ("heartbeat", 60.1, True),
    ],
)
def test_request_of_a_broker_is_judged_by_its_purpose(
    purpose: str, after_s: float, *, is_found: bool
) -> None:
    """Planted bug: a Fetch of metadata that is parked and forgotten.

    A request times out `after_s` after the healing. This is a finding after twice the timeout of
    the purpose. The timeout is 2 s for metadata, and 30 s for a purpose without a setting. It is
    0.9 s for a replica fetcher. This is less than twice the 0.5 s for which the leader may hold a
    Fetch, and so too short to prove anything.
    """
    rows = after_a_fault()
    timed_out(rows, 30 + after_s, "Fetch", node="broker-1", cause=purpose)

    assert bool(check(rows).findings) is is_found


def test_requests_of_other_clients_are_not_judged() -> None:
    """The checker's context has the timeouts of members and brokers only."""
    rows = after_a_fault()
    timed_out(rows, 200, "Fetch", node="producer-0")

    assert not check(rows).findings


def test_answer_with_an_unknown_server_error_is_found() -> None:
    """Planted bug: a handler that throws.

    Two answers are counted, and one is reported, because one finding for each server and API is
    enough.
    """
    rows = Rows()
    for time_s, error in ((1, "NONE"), (2, "UNKNOWN_SERVER_ERROR"), (3, "UNKNOWN_SERVER_ERROR")):
        rows.add(
            time_s,
            "broker-0",
            TraceKind.RESPONSE_SENT,
            api="Fetch",
            correlation_id=time_s,
            peer=C0,
            error=error,
        )

    report = check(rows)

    assert [finding.summary for finding in report.findings] == [
        "broker-0 answers Fetch with UNKNOWN_SERVER_ERROR"
    ]
    assert report.findings_total == 2
