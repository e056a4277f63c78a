"""The stability checker finds losses in a healthy cluster.

A loss is a row of one of the kinds that `lose` adds. Servers lose a broker (it is fenced), a
leader, a replica (out of sync) or a part of a log. Clients lose their coordinator, a connection, a
record or a commit. A fault explains losses until SETTLING_S after its end. The ISR are the in-sync
replicas of a partition. The preferred leader is the first of its replicas. A fenced broker is one
that the controller considers dead. "Planted bug" in a docstring names a bug that the test would
find.

`steady_cluster()` has the rows of brokers 0 to 2 in a steady state from 10 s on. broker-0 is the
preferred leader of OFFSETS_0, and leads it.
"""

import pytest

from chaos.checkers.context import CheckContext, GroupExpectation, ProducerExpectation
from chaos.checkers.stability import Stability
from protocol.trace import TraceKind
from results_schema.results import CheckOutcome, CheckReport
from tests.support.builders.rows import OFFSETS_0, Rows, steady_cluster

C0 = "consumer-g-0"
SETTLING_S = 60


def check(
    rows: Rows, *, in_virtual_time: bool = True, has_long_metadata: bool = False
) -> CheckReport:
    """Return the report of a trace, whose rows the checker observes in the order of time."""
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
    """Let `isr` be the ISR of OFFSETS_0 from now on."""
    rows.add(time_s, "controller", TraceKind.ISR_CHANGED, partition=OFFSETS_0, detail={"isr": isr})


def after_a_fault() -> Rows:
    """Return rows of a link that is cut from 20 to 30 s. Effects may last until 30 + SETTLING_S."""
    rows = steady_cluster()
    rows.fault(20, "broker-0", fault="cut", nodes=["broker-0"])
    rows.healed(30, "broker-0", fault="cut")
    return rows


def lose(rows: Rows, time_s: float, loss: str) -> None:
    """Add a loss of one of the kinds in SERVER_LOSSES and CLIENT_LOSSES."""
    match loss:
        case "broker":
            rows.add(time_s, "controller", TraceKind.BROKER_FENCED, peer="broker-2", detail={})
        case "leader":
            rows.elected(time_s, "broker-1", isr=[0, 1, 2])
        case "no leader":
            rows.elected(time_s, "", isr=[0])
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
        case _:
            rows.add(time_s, C0, TraceKind.COMMIT_FAILED, group="g", error="NOT_COORDINATOR")


SERVER_LOSSES = ("broker", "leader", "no leader", "replica", "log")
CLIENT_LOSSES = ("coordinator", "lookup", "connection", "record", "commit")


@pytest.mark.parametrize("loss", [*SERVER_LOSSES, *CLIENT_LOSSES])
def test_loss_before_the_first_fault_is_found(loss: str) -> None:
    """Planted bugs: a healthy cluster loses something without a cause."""
    rows = steady_cluster()
    lose(rows, 15, loss)

    report = check(rows)

    assert report.outcome is CheckOutcome.VIOLATED
    assert "before the first fault" in report.findings[0].summary


@pytest.mark.parametrize("loss", [*SERVER_LOSSES, *CLIENT_LOSSES])
def test_loss_long_after_a_fault_is_found(loss: str) -> None:
    """After the settling time no effect of the fault is left."""
    rows = after_a_fault()
    lose(rows, 30 + SETTLING_S + 5, loss)

    assert "nothing has been broken for 5 s" in check(rows).findings[0].summary


@pytest.mark.parametrize("loss", [*SERVER_LOSSES, *CLIENT_LOSSES])
@pytest.mark.parametrize("time_s", [25, 30 + SETTLING_S - 1])
def test_loss_that_a_fault_may_explain_is_no_violation(loss: str, time_s: float) -> None:
    """The times are in the middle of the fault, and just before the end of the settling time."""
    rows = after_a_fault()
    lose(rows, time_s, loss)

    assert check(rows).outcome is CheckOutcome.PASS


@pytest.mark.parametrize("loss", CLIENT_LOSSES)
def test_client_losses_before_the_steady_state_are_no_violation(loss: str) -> None:
    """While the cluster starts, brokers register and load groups, so requests may fail."""
    rows = Rows()
    lose(rows, 5, loss)
    rows.stage(10, "steady")

    assert check(rows).outcome is CheckOutcome.PASS


@pytest.mark.parametrize(("isr", "is_found"), [([2], False), ([1], True)])
def test_clients_of_a_partition_that_no_broker_may_lead_are_not_judged(
    isr: list[int], is_found: bool
) -> None:
    """OFFSETS_0 has no leader from 25 s on, so C0 cannot find its coordinator.

    - If only broker-2 is in the ISR, no broker may lead, because broker-2 is lost for good. C0 is
      excused.
    - If broker-1, which lives, is in the ISR, the controller should have elected it.
    """
    rows = steady_cluster()
    rows.fault(20, "broker-2", fault="node_loss", nodes=["broker-2"], momentary=True)
    rows.add(25, "controller", TraceKind.BROKER_FENCED, peer="broker-2", detail={})
    rows.elected(25, "", isr=isr)
    lose(rows, 100, "lookup")

    assert bool(check(rows).findings) is is_found


def test_preferred_leader_may_lead_again() -> None:
    """The controller moves leadership back by itself, which is no loss.

    For the settling time the move also explains losses.
    """
    rows = after_a_fault()
    rows.elected(40, "broker-1", isr=[0, 1, 2])
    # The fault's settling time has ended at 90 s. broker-0 is the preferred leader.
    rows.elected(120, "broker-0", isr=[0, 1, 2])
    lose(rows, 121, "coordinator")

    assert check(rows).outcome is CheckOutcome.PASS


@pytest.mark.parametrize("leader", ["broker-0", "broker-1", "broker-2"])
@pytest.mark.parametrize("is_elected", [True, False])
def test_preferred_leader_is_the_one_that_an_administrator_put_first(
    leader: str, *, is_elected: bool
) -> None:
    """`leadership_move` puts broker-2 first. Later the controller elects `leader` by itself.

    If broker-2 was elected because it is the preferred leader, broker-0 is not preferred any more.
    Without this election the order of the replicas may be the old one or the new one.
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
    # broker-3 stands for any other broker, so that each of the three elections changes the leader.
    rows.elected(45, "broker-3", isr=[0, 1, 2])
    rows.elected(200, leader, isr=[0, 1, 2])

    preferred = {"broker-2"} if is_elected else {"broker-0", "broker-2"}
    assert bool(check(rows).findings) is (leader not in preferred)


@pytest.mark.parametrize(
    "error", ["REBALANCE_IN_PROGRESS", "UNKNOWN_MEMBER_ID", "TRANSACTION_ABORTED"]
)
def test_commit_may_fail_because_of_a_rebalance(error: str) -> None:
    """The commit failed because a member joined or left, which is no loss."""
    rows = steady_cluster()
    rows.add(15, C0, TraceKind.COMMIT_FAILED, group="g", error=error)

    assert check(rows).outcome is CheckOutcome.PASS


@pytest.mark.parametrize("has_long_metadata", [True, False])
def test_commit_with_too_much_metadata_may_fail(has_long_metadata: bool) -> None:
    """A consumer may add metadata (a text) to its commits; too long a text is rightly refused.

    If no member has such a text, the refusal is a finding.
    """
    rows = steady_cluster()
    rows.commit_failed(15, C0, offset=1, error="OFFSET_METADATA_TOO_LARGE")

    report = check(rows, has_long_metadata=has_long_metadata)

    assert report.findings_total == (0 if has_long_metadata else 1)


def test_member_that_has_left_ends_its_connections() -> None:
    """The requests of a member that has left end with DISCONNECTED, which is no loss.

    The requests of a member that joins again must not end so.
    """
    rows = steady_cluster()
    rows.member_state(15, C0, "UNJOINED", before="STABLE", cause="left")
    lose(rows, 15, "connection")
    assert check(rows).findings_total == 0

    rows.member_state(16, C0, "PREPARING_REBALANCE", before="UNJOINED", cause="join")
    lose(rows, 17, "connection")
    assert check(rows).findings_total == 1


def test_replica_that_returns_is_no_loss() -> None:
    """broker-2 returns to the ISR. A second election of the same leader is no loss either."""
    rows = after_a_fault()
    change_isr(rows, 25, [0, 1])  # during the fault
    rows.elected(140, "broker-0", isr=[0, 1])
    change_isr(rows, 150, [0, 1, 2])

    assert check(rows).outcome is CheckOutcome.PASS


def test_timed_out_requests_are_left_to_another_check() -> None:
    """The check *answers* judges timeouts, because it knows how long each request may take."""
    rows = steady_cluster()
    rows.add(15, C0, TraceKind.REQUEST_FAILED, error="TIMED_OUT", peer="broker-0")

    assert check(rows).outcome is CheckOutcome.PASS


def test_one_loss_of_each_kind_and_node_is_reported() -> None:
    """The second lost coordinator of the same client is only counted: 2 findings of 3 losses."""
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


@pytest.mark.parametrize(("after_s", "is_right"), [(14, False), (16, True)])
def test_replica_keeps_its_lag_time_after_an_election(after_s: int, is_right: bool) -> None:
    """Planted bug: a new leader removes each follower as lagging. A fault does not excuse this.

    A leader must give a follower `replica.lag.time.max.ms` (30 s). Because clocks drift, the
    checker demands only half of it, 15 s. broker-2 leaves the ISR `after_s` after the election.
    """
    rows = steady_cluster()
    rows.fault(20, "broker-0", fault="cut", nodes=["broker-0"])
    rows.elected(22, "broker-1", isr=[0, 1, 2])
    change_isr(rows, 22 + after_s, [0, 1])

    findings = check(rows).findings

    assert [finding.summary for finding in findings] == (
        []
        if is_right
        else [f"broker-2 left the ISR of {OFFSETS_0}, 14 s after its leader was elected"]
    )


def test_replica_whose_broker_is_fenced_may_leave_at_once() -> None:
    """The rule of the test above holds only for replicas that are in the ISR at the election.

    A replica that joined the ISR later may leave at any time. So may a replica whose broker is
    fenced.
    """
    rows = steady_cluster()
    rows.fault(20, "broker-0", fault="cut", nodes=["broker-0"])
    rows.elected(22, "broker-1", isr=[1, 2])
    lose(rows, 23, "broker")  # broker-2 is fenced
    change_isr(rows, 23, [1])
    change_isr(rows, 24, [0, 1])  # broker-0 was in no ISR at the election
    change_isr(rows, 25, [1])

    assert check(rows).outcome is CheckOutcome.PASS


@pytest.mark.parametrize("has_ended", [False, True])
def test_replica_whose_broker_is_stopping_may_leave_at_once(has_ended: bool) -> None:
    """The controller takes a stopping broker out of the ISR, also if the broker is unfenced again.

    A paused controller fences the broker when it resumes, and unfences it for a heartbeat that the
    broker sent before its shutdown. If the shutdown has ended, an unfenced broker is not stopping.
    """
    rows = steady_cluster()
    rows.add(20, "driver", TraceKind.NODE_STOPPING, peer="broker-2")
    rows.fault(20, "controller", fault="pause", nodes=["controller"])
    if has_ended:
        rows.add(21, "broker-2", TraceKind.NODE_STOPPED)
    lose(rows, 22, "broker")  # broker-2 is fenced
    rows.add(22.5, "controller", TraceKind.BROKER_UNFENCED, peer="broker-2")
    rows.elected(23, "broker-1", isr=[0, 1, 2])
    change_isr(rows, 24, [0, 1])

    findings = check(rows).findings

    assert [finding.summary for finding in findings] == (
        [f"broker-2 left the ISR of {OFFSETS_0}, 1 s after its leader was elected"]
        if has_ended
        else []
    )


def test_consumer_on_zookeeper_may_close_its_connections() -> None:
    """A consumer that ZooKeeper coordinates ends its open Fetch at every rebalance."""
    rows = steady_cluster()
    rows.add(15, "consumer-old-0", TraceKind.REQUEST_FAILED, error="DISCONNECTED")

    assert check(rows).outcome is CheckOutcome.PASS
