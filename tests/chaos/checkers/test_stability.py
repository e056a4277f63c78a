"""The stability checker finds losses that nothing explains.

While nothing is broken, a cluster should lose nothing: no broker is fenced, no partition changes
its leader, no client loses its connection or its commit, and so on. The function `lose` has an
example of each kind of loss. A fault explains losses as long as the fault lasts, and for SETTLING_S
after its end, because a cluster needs time to recover. A loss at any other time is a violation.

Each test writes a trace by hand, that is, the rows (events) that a run of a cluster records.
Most traces begin with `steady_cluster()`: three brokers, of which broker-0 leads OFFSETS_0 and is
its preferred leader. OFFSETS_0 is the partition with the committed offsets of the group g, so the
leader of OFFSETS_0 is the coordinator of g. At 10 s the start of the cluster is over, and the stage
"steady" of the run begins.
"""

import pytest

from chaos.checkers.context import CheckContext, GroupExpectation, ProducerExpectation
from chaos.checkers.stability import Stability
from protocol.trace import TraceKind
from results_schema.results import CheckOutcome, CheckReport
from tests.support.builders.rows import OFFSETS_0, Rows, steady_cluster

C0 = "consumer-g-0"
SETTLING_S = 60
"""A fault explains losses until this time after its end."""


def check(
    rows: Rows, *, in_virtual_time: bool = True, has_long_metadata: bool = False
) -> CheckReport:
    """Let the checker observe the rows in the order of time, and return its report.

    has_long_metadata: True if the members of g send a text with each commit (the metadata) that is
        longer than Kafka allows.
    """
    checker = Stability(
        CheckContext(
            groups={
                "g": GroupExpectation(
                    consumers=(C0,),
                    offsets_partition=OFFSETS_0,
                    commits=True,
                    has_long_metadata=has_long_metadata,
                )
            },
            producers=(ProducerExpectation(name="producer-0", topic="orders", period_us=250_000),),
            settling_us=SETTLING_S * 1_000_000,
            in_virtual_time=in_virtual_time,
        )
    )
    for row in sorted(rows.rows, key=lambda row: row.time_us):
        checker.observe(row)
    return checker.finish()


def change_isr(rows: Rows, time_s: float, isr: list[int]) -> None:
    """Change the ISR of OFFSETS_0 to the brokers `isr`, given by their numbers."""
    rows.add(time_s, "controller", TraceKind.ISR_CHANGED, partition=OFFSETS_0, detail={"isr": isr})


def after_a_fault() -> Rows:
    """Return rows of a fault, a cut that lasts from 20 s to 30 s.

    The cut explains losses until 90 s (30 + SETTLING_S).
    """
    rows = steady_cluster()
    rows.fault(20, "broker-0", fault="cut", nodes=["broker-0"])
    rows.healed(30, "broker-0", fault="cut")
    return rows


def lose(rows: Rows, time_s: float, loss: str) -> None:
    """Add the row of a loss. `loss` is one of SERVER_LOSSES or CLIENT_LOSSES."""
    match loss:
        case "broker":
            rows.add(time_s, "controller", TraceKind.BROKER_FENCED, peer="broker-2", detail={})
        case "leader":
            rows.elected(time_s, "broker-1", isr=[0, 1, 2])
        case "no leader":
            rows.elected(time_s, "", isr=[0])  # "": there is no leader
        case "replica":
            change_isr(rows, time_s, [0, 1])
        case "log":
            rows.add(time_s, "broker-1", TraceKind.LOG_TRUNCATED, partition=OFFSETS_0, offset=3)
        case "coordinator":
            rows.add(time_s, C0, TraceKind.COORDINATOR_UNKNOWN, group="g", cause="TIMED_OUT")
        case "lookup":
            rows.add(time_s, C0, TraceKind.COORDINATOR_LOOKUP_FAILED, error="TIMED_OUT")
        case "connection":
            rows.add(time_s, C0, TraceKind.REQUEST_FAILED, error="DISCONNECTED", peer="broker-0")
        case "record":
            rows.add(time_s, "producer-0", TraceKind.PRODUCE_FAILED, error="NOT_LEADER_OR_FOLLOWER")
        case "commit":
            rows.add(time_s, C0, TraceKind.COMMIT_FAILED, group="g", error="NOT_COORDINATOR")
        case _:
            raise AssertionError(f"no such loss: {loss}")


SERVER_LOSSES = ("broker", "leader", "no leader", "replica", "log")
CLIENT_LOSSES = ("coordinator", "lookup", "connection", "record", "commit")


@pytest.mark.parametrize("loss", [*SERVER_LOSSES, *CLIENT_LOSSES])
def test_loss_before_the_first_fault_is_found(loss: str) -> None:
    """The loss is at 15 s. No fault was injected before, so nothing explains the loss."""
    rows = steady_cluster()
    lose(rows, 15, loss)

    report = check(rows)

    assert report.outcome is CheckOutcome.VIOLATED
    assert "before the first fault" in report.findings[0].summary


@pytest.mark.parametrize("loss", [*SERVER_LOSSES, *CLIENT_LOSSES])
def test_loss_long_after_a_fault_is_found(loss: str) -> None:
    """The loss comes 5 s after the end of the settling time."""
    rows = after_a_fault()
    lose(rows, 30 + SETTLING_S + 5, loss)

    assert "nothing has been broken for 5 s" in check(rows).findings[0].summary


@pytest.mark.parametrize("loss", [*SERVER_LOSSES, *CLIENT_LOSSES])
@pytest.mark.parametrize("time_s", [25, 30 + SETTLING_S - 1])
def test_loss_that_a_fault_may_explain_is_no_violation(loss: str, time_s: float) -> None:
    """The loss comes in the middle of the fault, or just before the end of the settling time."""
    rows = after_a_fault()
    lose(rows, time_s, loss)

    assert check(rows).outcome is CheckOutcome.PASS


@pytest.mark.parametrize("loss", CLIENT_LOSSES)
def test_client_losses_before_the_steady_state_are_no_violation(loss: str) -> None:
    """At 5 s the cluster is still starting. Brokers register and load groups, so requests may fail.

    The other tests begin with `steady_cluster()`. This test does not, because the loss must come
    before the stage "steady".
    """
    rows = Rows()
    lose(rows, 5, loss)
    rows.stage(10, "steady")

    assert check(rows).outcome is CheckOutcome.PASS


@pytest.mark.parametrize(("isr", "is_found"), [([2], False), ([1], True)])
def test_clients_of_a_partition_that_no_broker_may_lead_are_not_judged(
    isr: list[int], is_found: bool
) -> None:
    """OFFSETS_0 has no leader from 25 s on, so C0 cannot find its coordinator.

    - If only broker-2 is in the ISR, no broker can lead, because broker-2 is lost for good. So the
      failed lookup of C0 is excused.
    - If broker-1 is in the ISR, the controller should have elected broker-1, which is up. So the
      failed lookup of C0 is a finding.
    """
    rows = steady_cluster()
    # A node loss is never undone, so this fault has no end in the trace: it is "momentary".
    rows.fault(20, "broker-2", fault="node_loss", nodes=["broker-2"], momentary=True)
    rows.add(25, "controller", TraceKind.BROKER_FENCED, peer="broker-2", detail={})
    rows.elected(25, "", isr=isr)
    lose(rows, 100, "lookup")

    assert bool(check(rows).findings) is is_found


def test_preferred_leader_may_lead_again() -> None:
    """The controller gives the leadership back to the preferred leader by itself.

    This happens at 120 s here. The settling time has ended at 90 s, so a loss would be a finding.
    But the return of the preferred leader is no loss. The return also moves the coordinator of g,
    so C0 may lose its coordinator.
    """
    rows = after_a_fault()
    rows.elected(40, "broker-1", isr=[0, 1, 2])
    rows.elected(120, "broker-0", isr=[0, 1, 2])
    lose(rows, 121, "coordinator")

    assert check(rows).outcome is CheckOutcome.PASS


@pytest.mark.parametrize("leader", ["broker-0", "broker-1", "broker-2"])
@pytest.mark.parametrize("is_elected", [True, False])
def test_preferred_leader_is_the_one_that_an_administrator_put_first(
    leader: str, *, is_elected: bool
) -> None:
    """An administrator orders that broker-2 becomes the preferred leader in place of broker-0.

    At 200 s the controller elects `leader` without an order. This is right only if `leader` is the
    preferred leader.

    - With `is_elected`, broker-2 is elected at 41 s as the preferred leader. So the administrator's
      order was carried out.
    - Without this election the checker cannot tell whether the order was carried out. So both
      broker-0 and broker-2 may be the preferred leader.
    """
    rows = after_a_fault()
    rows.fault(
        40,
        "broker-0",
        fault="leadership_move",
        partitions=[OFFSETS_0],
        to=["broker-2"],
        momentary=True,
    )
    if is_elected:
        rows.add(
            41,
            "controller",
            TraceKind.LEADER_ELECTED,
            partition=OFFSETS_0,
            peer="broker-2",
            detail={"isr": [0, 1, 2], "reason": "preferred leader requested"},
        )
    # The election at 200 s must change the leader, even if it elects broker-0 or broker-2. So a
    # fourth broker, broker-3, leads before this election.
    rows.elected(45, "broker-3", isr=[0, 1, 2])
    rows.elected(200, leader, isr=[0, 1, 2])

    may_be_preferred = {"broker-2"} if is_elected else {"broker-0", "broker-2"}
    assert bool(check(rows).findings) is (leader not in may_be_preferred)


@pytest.mark.parametrize(
    "error", ["REBALANCE_IN_PROGRESS", "UNKNOWN_MEMBER_ID", "TRANSACTION_ABORTED"]
)
def test_commit_may_fail_because_of_a_rebalance(error: str) -> None:
    """In a rebalance commits fail with these errors, and a rebalance can happen without a fault."""
    rows = steady_cluster()
    rows.add(15, C0, TraceKind.COMMIT_FAILED, group="g", error=error)

    assert check(rows).outcome is CheckOutcome.PASS


@pytest.mark.parametrize("has_long_metadata", [True, False])
def test_commit_with_too_much_metadata_may_fail(has_long_metadata: bool) -> None:
    """A consumer may add a text to its commits, the metadata. Kafka refuses too long a text.

    With `has_long_metadata` the experiment gives the members a text that is too long, so the
    refusal is right. Otherwise the refusal is a finding.
    """
    rows = steady_cluster()
    rows.commit_failed(15, C0, offset=1, error="OFFSET_METADATA_TOO_LARGE")

    report = check(rows, has_long_metadata=has_long_metadata)

    assert report.findings_total == (0 if has_long_metadata else 1)


def test_member_that_has_left_may_end_its_connections() -> None:
    """The requests of a member fail when it leaves its group, because it closes its connections.

    After the member has joined the group again, a lost connection is a finding.
    """
    rows = steady_cluster()
    rows.member_state(15, C0, "UNJOINED", before="STABLE", cause="left")
    lose(rows, 15, "connection")
    assert check(rows).findings_total == 0

    rows.member_state(16, C0, "PREPARING_REBALANCE", before="UNJOINED", cause="join")
    lose(rows, 17, "connection")
    assert check(rows).findings_total == 1


def test_replica_that_returns_is_no_loss() -> None:
    """Two changes long after the fault are no losses.

    - At 140 s the controller elects broker-0, which leads already.
    - At 150 s broker-2 returns to the ISR. It had left the ISR during the fault.
    """
    rows = after_a_fault()
    change_isr(rows, 25, [0, 1])
    rows.elected(140, "broker-0", isr=[0, 1])
    change_isr(rows, 150, [0, 1, 2])

    assert check(rows).outcome is CheckOutcome.PASS


def test_timed_out_requests_are_left_to_another_check() -> None:
    """The check *answers* judges timeouts, because it knows how long each request may take."""
    rows = steady_cluster()
    rows.add(15, C0, TraceKind.REQUEST_FAILED, error="TIMED_OUT", peer="broker-0")

    assert check(rows).outcome is CheckOutcome.PASS


def test_one_loss_of_each_kind_and_node_is_reported() -> None:
    """There are three losses: C0 loses its coordinator twice, and OFFSETS_0 loses a replica.

    All three are counted in `findings_total`. But the report shows only one finding for the two
    losses of the coordinator.
    """
    rows = steady_cluster()
    lose(rows, 15, "coordinator")
    lose(rows, 16, "coordinator")
    lose(rows, 17, "replica")

    report = check(rows)

    assert (len(report.findings), report.findings_total) == (2, 3)


def test_no_loss_is_judged_in_real_time() -> None:
    """In real time, on a busy machine, any node may miss its heartbeats and so lose its session."""
    rows = steady_cluster()
    lose(rows, 15, "broker")

    report = check(rows, in_virtual_time=False)

    assert report.outcome is CheckOutcome.NOTHING_SEEN
    assert report.note == "judged in virtual time only"


def summaries(rows: Rows) -> list[str]:
    """Return the summaries of the findings."""
    return [finding.summary for finding in check(rows).findings]


@pytest.mark.parametrize(
    ("after_s", "expected"),
    [
        (14, [f"broker-2 left the ISR of {OFFSETS_0}, 14 s after its leader was elected"]),
        (16, []),
    ],
)
def test_replica_keeps_its_lag_time_after_an_election(after_s: int, expected: list[str]) -> None:
    """Planted bug: a new leader removes its followers from the ISR too soon.

    A leader must give a follower the time `replica.lag.time.max.ms` (30 s) to catch up. Clocks may
    drift, so the checker demands only half of this time (15 s).

    No fault excuses a shorter time. So in this trace a cut is still going on when the replica
    leaves, and the checker has a finding all the same.
    """
    rows = steady_cluster()
    rows.fault(20, "broker-0", fault="cut", nodes=["broker-0"])
    rows.elected(22, "broker-1", isr=[0, 1, 2])
    change_isr(rows, 22 + after_s, [0, 1])

    assert summaries(rows) == expected


def test_replica_whose_broker_is_fenced_may_leave_at_once() -> None:
    """Two kinds of replicas may leave the ISR before half of the lag time is over.

    - A replica whose broker is fenced: in this trace, the replica of broker-2.
    - A replica that was not in the ISR at the election: in this trace, the replica of broker-0. It
      joins the ISR only at 24 s.
    """
    rows = steady_cluster()
    rows.fault(20, "broker-0", fault="cut", nodes=["broker-0"])
    rows.elected(22, "broker-1", isr=[1, 2])
    lose(rows, 23, "broker")  # broker-2 is fenced
    change_isr(rows, 23, [1])
    change_isr(rows, 24, [0, 1])
    change_isr(rows, 25, [1])

    assert check(rows).outcome is CheckOutcome.PASS


@pytest.mark.parametrize(
    ("has_stopped", "expected"),
    [
        (False, []),
        (True, [f"broker-2 left the ISR of {OFFSETS_0}, 1 s after its leader was elected"]),
    ],
)
def test_replica_whose_broker_is_stopping_may_leave_at_once(
    has_stopped: bool, expected: list[str]
) -> None:
    """The controller takes a stopping broker out of the ISR, even if the broker is not fenced.

    1. broker-2 begins to stop, and the controller is paused.
    2. The controller resumes. It has heard nothing of broker-2 for too long, so it fences broker-2.
    3. The controller reads a heartbeat that broker-2 sent during the pause. So it unfences
       broker-2.
    4. The controller takes broker-2 out of the ISR, because broker-2 is stopping.

    With `has_stopped` the shutdown is over before step 2. So broker-2 is not stopping in step 4.
    """
    rows = steady_cluster()
    rows.add(20, "driver", TraceKind.NODE_STOPPING, peer="broker-2")
    rows.fault(20, "controller", fault="pause", nodes=["controller"])
    if has_stopped:
        rows.add(21, "broker-2", TraceKind.NODE_STOPPED)
    lose(rows, 22, "broker")  # broker-2 is fenced
    rows.add(22.5, "controller", TraceKind.BROKER_UNFENCED, peer="broker-2")
    rows.elected(23, "broker-1", isr=[0, 1, 2])
    change_isr(rows, 24, [0, 1])

    assert summaries(rows) == expected


def test_consumer_on_zookeeper_may_close_its_connections() -> None:
    """A consumer that ZooKeeper coordinates closes its connections at every rebalance.

    So its open Fetch ends with DISCONNECTED, which is no loss. From its context the checker knows
    the consumers of all groups with a coordinator. consumer-old-0 is not one of them, so the
    checker takes it for a consumer on ZooKeeper.
    """
    rows = steady_cluster()
    rows.add(15, "consumer-old-0", TraceKind.REQUEST_FAILED, error="DISCONNECTED")

    assert check(rows).outcome is CheckOutcome.PASS
