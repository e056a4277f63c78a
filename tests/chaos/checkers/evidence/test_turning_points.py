"""Turning points of a finding: earlier rows that explain how it came about."""

from chaos.checkers.evidence.turning_points import MOST_FAULTS, MOST_OTHERS, TurningPoints
from chaos.experiment.loader import load_experiment
from chaos.exploration.play import play
from protocol.trace import TraceKind, TraceRow
from results_schema.results import Finding
from tests.support.builders.trace_rows import trace_row as row

OFFSETS = "__consumer_offsets-0"


CUT = row(10, "driver", TraceKind.FAULT_INJECTED, cause="cut-0")
FENCED = row(20, "controller-100", TraceKind.BROKER_FENCED, peer="broker-0")
ELECTED = row(21, "controller-100", TraceKind.LEADER_ELECTED, partition=OFFSETS)
APPENDED = row(30, "broker-0", TraceKind.APPEND_COMPLETED, partition=OFFSETS)


def led_to(rows: list[TraceRow], *evidence: TraceRow) -> tuple[TraceRow, ...]:
    points = TurningPoints()
    for each in rows:
        points.observe(each)
    return points.led_to(evidence, partitions={OFFSETS}, groups={"readers"}, faults=[CUT])


def test_fault_and_its_effects_on_the_partition_are_turning_points() -> None:
    """In time order, from the fault to the last row of the evidence."""
    before = row(5, "controller-100", TraceKind.LEADER_ELECTED, partition=OFFSETS)
    after = row(31, "controller-100", TraceKind.LEADER_ELECTED, partition=OFFSETS)

    assert led_to([before, CUT, FENCED, ELECTED, after], APPENDED) == (CUT, FENCED, ELECTED)


def test_rows_of_other_partitions_and_groups_are_no_turning_points() -> None:
    """Rows that the evidence already has are not repeated."""
    elsewhere = row(22, "controller-100", TraceKind.LEADER_ELECTED, partition="orders-0")
    other = row(23, "broker-1", TraceKind.REBALANCE_STARTED, group="writers")
    own = row(24, "broker-1", TraceKind.REBALANCE_STARTED, group="readers")

    assert led_to([CUT, elsewhere, other, own, ELECTED], ELECTED, APPENDED) == (CUT, own)


def test_request_without_answer_is_a_turning_point_if_sent_to_the_controller() -> None:
    """It explains why a broker did not learn of its successor; clients have other brokers."""
    beat = row(15, "broker-0", TraceKind.REQUEST_FAILED, peer="controller-100", api="Fetch")
    asked = row(16, "consumer-a-0", TraceKind.REQUEST_FAILED, peer="broker-0", api="Heartbeat")

    assert led_to([CUT, beat, asked], APPENDED) == (CUT, beat)


def test_of_repeated_steps_only_the_last_is_kept() -> None:
    """A repetition is the same step of the same node for the same partition."""
    moves = [
        row(11 + place, f"broker-{place % 2}", TraceKind.BECAME_FOLLOWER, partition=OFFSETS)
        for place in range(6)
    ]

    assert led_to([CUT, *moves], APPENDED) == (CUT, *moves[-2:])


def test_only_the_last_rows_are_kept_beside_the_faults() -> None:
    """Faults come first, and the limit of the other rows does not remove them."""
    faults = [row(11, "driver", TraceKind.FAULT_INJECTED, cause=f"cut-{n}") for n in range(1, 9)]
    moves = [
        row(12 + place, f"broker-{place}", TraceKind.BECAME_FOLLOWER, partition=OFFSETS)
        for place in range(15)
    ]
    found = led_to([CUT, *faults, *moves], APPENDED)

    assert [each.cause for each in found[:MOST_FAULTS]] == ["cut-5", "cut-6", "cut-7", "cut-8"]
    assert found[MOST_FAULTS:] == tuple(moves[-MOST_OTHERS:])


def test_violation_of_a_run_names_the_fault_the_silence_and_the_election() -> None:
    """The coordinator is cut off from the controller, so it could acknowledge the lost commit."""
    findings: list[Finding] = []
    schedule = load_experiment("tests/corpus/two_coordinators_after_a_cut_from_the_controller.yaml")
    play(schedule.experiment, 1, on_finding=findings.append)
    kinds = [(each.kind, each.api) for each in findings[0].led_to]

    assert kinds[0] == ("fault_injected", None)
    assert ("request_failed", "BrokerHeartbeat") in kinds
    assert ("broker_fenced", None) in kinds
    assert ("leader_elected", None) in kinds


def test_finding_without_evidence_has_no_turning_points() -> None:
    """No row gives the time to search backwards from."""
    assert led_to([CUT, ELECTED]) == ()
