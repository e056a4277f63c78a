"""What led to a finding: rows of the time before it that tell why it could happen."""

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


def test_fault_and_what_it_did_to_the_partition_led_to_the_finding() -> None:
    """In time order, from the fault to the last row of the evidence."""
    before = row(5, "controller-100", TraceKind.LEADER_ELECTED, partition=OFFSETS)
    after = row(31, "controller-100", TraceKind.LEADER_ELECTED, partition=OFFSETS)

    assert led_to([before, CUT, FENCED, ELECTED, after], APPENDED) == (CUT, FENCED, ELECTED)


def test_other_partitions_and_groups_led_to_nothing() -> None:
    """Nor does what the evidence has already."""
    elsewhere = row(22, "controller-100", TraceKind.LEADER_ELECTED, partition="orders-0")
    other = row(23, "broker-1", TraceKind.REBALANCE_STARTED, group="writers")
    own = row(24, "broker-1", TraceKind.REBALANCE_STARTED, group="readers")

    assert led_to([CUT, elsewhere, other, own, ELECTED], ELECTED, APPENDED) == (CUT, own)


def test_request_without_answer_counts_where_the_controller_was_asked() -> None:
    """A broker that does not hear of its successor asked in vain; clients always ask somebody."""
    beat = row(15, "broker-0", TraceKind.REQUEST_FAILED, peer="controller-100", api="Fetch")
    asked = row(16, "consumer-a-0", TraceKind.REQUEST_FAILED, peer="broker-0", api="Heartbeat")

    assert led_to([CUT, beat, asked], APPENDED) == (CUT, beat)


def test_of_repetitions_the_last_one_stays() -> None:
    """The same node takes the same step for the same partition."""
    moves = [
        row(11 + place, f"broker-{place % 2}", TraceKind.BECAME_FOLLOWER, partition=OFFSETS)
        for place in range(6)
    ]

    assert led_to([CUT, *moves], APPENDED) == (CUT, *moves[-2:])


def test_last_rows_stay_where_there_are_many() -> None:
    """Faults have a place of their own: they come first, and would be crowded out."""
    faults = [row(11, "driver", TraceKind.FAULT_INJECTED, cause=f"cut-{n}") for n in range(1, 9)]
    moves = [
        row(12 + place, f"broker-{place}", TraceKind.BECAME_FOLLOWER, partition=OFFSETS)
        for place in range(15)
    ]
    found = led_to([CUT, *faults, *moves], APPENDED)

    assert [each.cause for each in found[:MOST_FAULTS]] == ["cut-5", "cut-6", "cut-7", "cut-8"]
    assert found[MOST_FAULTS:] == tuple(moves[-MOST_OTHERS:])


def test_violation_of_a_run_names_the_fault_the_silence_and_the_election() -> None:
    """A coordinator cut off from the controller: why it could acknowledge what was lost."""
    findings: list[Finding] = []
    schedule = load_experiment("tests/corpus/two_coordinators_after_a_cut_from_the_controller.yaml")
    play(schedule.experiment, 1, on_finding=findings.append)
    kinds = [(each.kind, each.api) for each in findings[0].led_to]

    assert kinds[0] == ("fault_injected", None)
    assert ("request_failed", "BrokerHeartbeat") in kinds
    assert ("broker_fenced", None) in kinds
    assert ("leader_elected", None) in kinds


def test_finding_without_evidence_has_nothing_that_led_to_it() -> None:
    """There is no moment to look back from."""
    assert led_to([CUT, ELECTED]) == ()
