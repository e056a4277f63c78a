"""A consumer is excused if it knows only brokers that are lost for good, and only then.

We call such a consumer stranded. It asks the brokers of its last metadata for its coordinator, and
none of these brokers will ever answer. So the consumer makes no progress. But Kafka's consumer
works like this, so the checkers do not accuse it. Metadata does not list fenced brokers, so a
consumer may know a single broker of three. This happens in the trace of most tests (times in
seconds):

- 1: group `g` has the members C0 and C1, which own t-0 and t-1.
- 15: broker-0 and broker-1 are fenced, so metadata lists only broker-2.
- 20: broker-2 is lost for good.
- 22 to 119: C0, which has the metadata of 15 s, asks broker-2 again and again. C1 goes on.
- 30: broker-0 and broker-1 are unfenced. Both could answer C0, but C0 does not know them.
- 40: all faults are healed, and the stage "liveness" begins.
- 120: the run ends.
"""

import pytest

from chaos.checkers.base import Checker
from chaos.checkers.context import CheckContext, GroupExpectation
from chaos.checkers.liveness import Liveness
from chaos.checkers.readers import Readers
from protocol.trace import TraceKind
from results_schema.results import CheckOutcome, CheckReport
from tests.support.builders.rows import OFFSETS_0, Rows

C0, C1 = "consumer-g-0", "consumer-g-1"
CONTROLLER = "controller-100"
STRANDED = "knows only brokers that are lost for good"
CONTEXT = CheckContext(
    groups={
        "g": GroupExpectation(
            consumers=(C0, C1),
            offsets_partition=OFFSETS_0,
            commits=True,
            partitions=("t-0", "t-1"),
            session_timeout_us=10_000_000,
            request_timeout_us=5_000_000,
            max_poll_interval_us=20_000_000,
            application_us=1_000_000,  # longest time between two polls
        )
    },
    liveness_timeout_us=60_000_000,
)


def steady_group() -> Rows:
    """Return rows of a group with two members that are Stable, and of three unfenced brokers."""
    rows = Rows()
    for broker in ("broker-0", "broker-1", "broker-2"):
        rows.add(0.5, CONTROLLER, TraceKind.BROKER_UNFENCED, peer=broker)
    rows.group_state(1, "broker-0", "CompletingRebalance", "Stable")
    rows.member_state(1, C0, "STABLE")
    rows.member_state(1, C1, "STABLE")
    rows.assigned(1, C0, names=["t-0"])
    rows.assigned(1, C1, names=["t-1"])
    rows.stage(10, "steady")
    return rows


def fence(rows: Rows, time_s: float, *brokers: str) -> None:
    """Let the controller fence the brokers."""
    for broker in brokers:
        rows.add(time_s, CONTROLLER, TraceKind.BROKER_FENCED, peer=broker)


def lookup_failed(rows: Rows, time_s: float, asked: str | None) -> None:
    """Let C0 ask the broker `asked` for its coordinator, without success.

    None means that C0 has no broker to ask, because it waits a while after each failure.
    """
    error = "NO_BROKER_AVAILABLE" if asked is None else "DISCONNECTED"
    rows.add(time_s, C0, TraceKind.COORDINATOR_LOOKUP_FAILED, group="g", peer=asked, error=error)


def stranded_member(
    *,
    fenced_brokers: tuple[str, ...] = ("broker-0", "broker-1"),
    asked: str = "broker-2",
    returns_s: float | None = None,
    found_s: float | None = None,
    last_lookup_s: int = 119,
) -> Rows:
    """Return the trace of this file's docstring, or a variant of it.

    - `fenced_brokers` are fenced at 15 s, and unfenced at 30 s.
    - `asked` is the broker that C0 asks for its coordinator.
    - `returns_s` is the time at which broker-2 starts again, or None for never.
    - `found_s` is the time at which C0 finds its coordinator after all, or None for never.
    - `last_lookup_s` is the time of C0's last lookup. C0 makes one lookup each second.
    """
    rows = steady_group()
    fence(rows, 15, *fenced_brokers)
    rows.add(20, "driver", TraceKind.NODE_KILLED, peer="broker-2", cause="node loss")
    fence(rows, 21, "broker-2")
    for broker in fenced_brokers:
        rows.add(30, CONTROLLER, TraceKind.BROKER_UNFENCED, peer=broker)
    rows.stage(40, "liveness")
    # C0 owns t-0, but does not read this record, because it has no coordinator.
    rows.add(
        41, "producer-0", TraceKind.RECORDS_PRODUCED, partition="t-0", offset=0, detail={"count": 1}
    )
    rows.committed(42, C1, offset=1)
    for time_s in range(22, last_lookup_s + 1):
        if time_s == returns_s:
            rows.add(time_s, "driver", TraceKind.NODE_STARTED, peer="broker-2")
        if time_s == found_s:
            rows.add(time_s, C0, TraceKind.COORDINATOR_FOUND, group="g", peer="broker-0")
        # After each failure C0 waits for a second. So every second lookup has no broker to ask.
        is_waiting = time_s % 2 == 0
        lookup_failed(rows, time_s, asked=None if is_waiting else asked)
    rows.stage(120, "stopping")
    return rows


def check(checker: Checker, rows: Rows) -> CheckReport:
    """Let the checker observe the rows in the order of time, and return its report."""
    for row in sorted(rows.rows, key=lambda row: row.time_us):
        checker.observe(row)
    return checker.finish()


def test_reader_that_knows_only_a_lost_broker_is_excused() -> None:
    """No member reads the record of t-0. But C0, which owns t-0, is excused."""
    report = check(Readers(CONTEXT), stranded_member())

    assert report.outcome is CheckOutcome.PASS
    assert report.excused == {STRANDED: 1}
    assert report.note == f"excused: {C0} {STRANDED}: broker-2"


def test_member_that_finds_its_coordinator_again_is_not_excused() -> None:
    """C0 finds its coordinator at 80 s, so it is not stranded any more.

    The checker judges partitions when the last member leaves the group. So both members leave here,
    C1 at 43 s, and C0 shortly before the end.
    """
    rows = stranded_member(found_s=80)
    rows.member_state(43, C1, "UNJOINED", cause="left")
    rows.member_state(119.5, C0, "UNJOINED", cause="left")

    report = check(Readers(CONTEXT), rows)

    assert report.outcome is CheckOutcome.VIOLATED
    assert report.excused == {}


def test_group_is_excused_if_it_is_live_without_its_stranded_member() -> None:
    """A group is live if each member has committed since the faults were healed, at 40 s.

    C1 has committed at 42 s, so only a commit of C0 is missing.
    """
    report = check(Liveness(CONTEXT), stranded_member())

    assert report.outcome is CheckOutcome.INCONCLUSIVE
    assert report.excused == {STRANDED: 1}
    assert f"g is not live: {C0} {STRANDED}: broker-2" in report.note


def test_group_is_not_excused_if_another_member_makes_no_progress() -> None:
    """C1 can reach the cluster, but waits in a rebalance until the end of the run."""
    rows = stranded_member()
    rows.member_state(119.5, C1, "PREPARING_REBALANCE")

    report = check(Liveness(CONTEXT), rows)

    assert report.outcome is CheckOutcome.VIOLATED
    assert f"{C1} is PREPARING_REBALANCE" in report.findings[0].summary


@pytest.mark.parametrize("checker", [Readers, Liveness])
@pytest.mark.parametrize(
    "rows",
    [
        pytest.param(
            stranded_member(fenced_brokers=("broker-0",)),
            id="C0 knows broker-1, too, which was never fenced",
        ),
        pytest.param(stranded_member(asked="broker-1"), id="C0 asks broker-1, which lives"),
        pytest.param(stranded_member(returns_s=60), id="broker-2 returns"),
        pytest.param(stranded_member(found_s=80), id="C0 finds its coordinator for a moment"),
        pytest.param(stranded_member(last_lookup_s=70), id="C0 stops looking for its coordinator"),
    ],
)
def test_consumer_that_can_reach_the_cluster_has_to_go_on(
    checker: type[Readers] | type[Liveness], rows: Rows
) -> None:
    """Each variant of the trace lacks one part of the evidence that C0 is stranded.

    So the partition without a reader, and the group that is not live, are findings.
    """
    report = check(checker(CONTEXT), rows)

    assert report.outcome is CheckOutcome.VIOLATED
    assert STRANDED not in report.excused
