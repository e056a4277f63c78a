"""The answers checker finds requests without an answer in a healthy cluster.

A request may time out because of a fault. But suppose that the last fault ends at 30 s, and that a
request with a timeout of 5 s times out at 41 s. The request was sent at 36 s, when nothing was
broken, so the server has forgotten it. This is a finding. To be on the safe side, the checker
ignores all timeouts until the last fault has been over for twice the timeout, here until 40 s.

The tests write the rows of a trace by hand. "Planted bug" in a docstring names a bug of a server
that would lead to such rows.
"""

import pytest

from chaos.checkers.answers import Answers
from chaos.checkers.context import CheckContext, GroupExpectation
from protocol.trace import TraceKind
from results_schema.results import CheckOutcome, CheckReport
from tests.support.builders.rows import OFFSETS_0, Rows

C0 = "consumer-g-0"


def check(rows: Rows, *, in_virtual_time: bool = True) -> CheckReport:
    """Return the report of a run in which the member C0 and the brokers have these timeouts.

    Brokers send requests, too. A broker opens a connection for each purpose, such as "metadata",
    and each purpose has its own timeout (`broker_timeouts_us`). For example, a broker fetches new
    metadata from the controller. If there are none, the controller waits for some before it
    answers, for up to the time in `broker_waits_us`.
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
    rows: Rows, time_s: float, api: str, *, node: str = C0, purpose: str | None = None
) -> None:
    """Let a request of `node` to broker-0 time out.

    If `node` is a broker, `purpose` is the purpose of its connection.
    """
    rows.add(
        time_s,
        node,
        TraceKind.REQUEST_FAILED,
        peer="broker-0",
        api=api,
        correlation_id=1,
        cause=purpose,
        group="g",
        error="TIMED_OUT",
    )


@pytest.mark.parametrize(
    ("api", "bound_s"),
    [
        ("Heartbeat", 2 * 5),
        ("Fetch", 2 * 5),
        ("OffsetCommit", 2 * 5 + 30),
        ("JoinGroup", 2 * (5 + 20) + 30),
    ],
)
def test_request_that_times_out_in_a_healthy_cluster_is_found(api: str, bound_s: float) -> None:
    """Planted bug: a request that is parked and never answered.

    A timeout is a finding if the last fault has been over for more than `bound_s` seconds. This
    bound has two terms:

    - Twice the time for which the client waits for the answer. This time is 5 s. For a JoinGroup it
      is 5 + 20 s, because the coordinator waits for the other members before it answers, for up to
      the rebalance timeout of 20 s.
    - 30 s for OffsetCommit and JoinGroup, which append to the log. An append needs enough replicas
      in the ISR, and the ISR may need 30 s to recover after the last fault.
    """
    late, in_time = after_a_fault(), after_a_fault()
    timed_out(late, 30 + bound_s + 0.1, api)
    timed_out(in_time, 30 + bound_s - 0.1, api)

    assert f"broker-0 has not answered {api} of {C0}" in check(late).findings[0].summary
    assert check(in_time).outcome is CheckOutcome.PASS
    # In real time a slow machine may be the reason, so the checker judges runs in virtual time
    # only.
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

    The request times out `after_s` seconds after the last fault.

    - metadata: the timeout is 2 s, so the request is a finding after 4 s.
    - heartbeat: `check` sets no timeout for this purpose, so the default of 30 s applies. The
      request is a finding after 60 s.
    - replica-fetcher: the leader may wait for new records for 0.5 s before it answers a Fetch. So
      little is left of the timeout of 0.9 s that the Fetch may time out without a bug. The rule of
      the checker: a request whose timeout is less than twice the wait is never a finding.
    """
    rows = after_a_fault()
    timed_out(rows, 30 + after_s, "Fetch", node="broker-1", purpose=purpose)

    assert bool(check(rows).findings) is is_found


def test_requests_of_other_clients_are_not_judged() -> None:
    """The checker knows the timeouts of members and brokers, but not those of producers."""
    rows = after_a_fault()
    timed_out(rows, 200, "Fetch", node="producer-0")

    assert not check(rows).findings


def test_answer_with_an_unknown_server_error_is_found() -> None:
    """Planted bug: a handler that throws.

    The handler throws twice. Both answers count in `findings_total`, but the report has only one
    finding for each server and API.
    """
    rows = Rows()
    errors = ("NONE", "UNKNOWN_SERVER_ERROR", "UNKNOWN_SERVER_ERROR")
    for number, error in enumerate(errors, start=1):
        rows.add(
            number,
            "broker-0",
            TraceKind.RESPONSE_SENT,
            api="Fetch",
            correlation_id=number,
            peer=C0,
            error=error,
        )

    report = check(rows)

    assert [finding.summary for finding in report.findings] == [
        "broker-0 answers Fetch with UNKNOWN_SERVER_ERROR"
    ]
    assert report.findings_total == 2
