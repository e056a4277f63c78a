"""Turning points of a finding: earlier rows that explain how it came about.

A checker reports a finding with its evidence: the trace rows that prove that something went wrong.
The evidence seldom shows why it went wrong. So the finding also lists turning points, in its field
`led_to`. These are earlier rows, for example those of the fault, of the fencing of a broker, and of
the election of another leader.

The first argument of `row` is the time in microseconds.
"""

from chaos.checkers.evidence.turning_points import MOST_FAULTS, MOST_OTHERS, TurningPoints
from chaos.experiment.loader import load_experiment
from chaos.exploration.play import play
from protocol.trace import TraceKind, TraceRow
from results_schema.results import Finding
from tests.support.builders.trace_rows import trace_row as row

OFFSETS = "__consumer_offsets-0"

# Four rows of a failover: a cut separates broker-0 from the controller, the controller fences
# broker-0 and elects another leader, and broker-0 appends all the same. APPENDED is the evidence of
# a finding, and the three rows before APPENDED led to this finding.
CUT = row(10, "driver", TraceKind.FAULT_INJECTED, cause="cut-0")
FENCED = row(20, "controller-100", TraceKind.BROKER_FENCED, peer="broker-0")
ELECTED = row(21, "controller-100", TraceKind.LEADER_ELECTED, partition=OFFSETS)
APPENDED = row(30, "broker-0", TraceKind.APPEND_COMPLETED, partition=OFFSETS)


def led_to(rows: list[TraceRow], *evidence: TraceRow) -> tuple[TraceRow, ...]:
    """Return the turning points that `rows` contain for a finding with this evidence.

    The finding is about the partition OFFSETS, the group `readers` and the fault CUT.
    """
    points = TurningPoints()
    for observed in rows:
        points.observe(observed)
    return points.led_to(evidence, partitions={OFFSETS}, groups={"readers"}, faults=[CUT])


def test_fault_and_its_effects_on_the_partition_are_turning_points() -> None:
    """The turning points lie between the fault (10 µs) and the evidence (30 µs), in time order.

    The elections at 5 µs and at 31 µs are too early and too late.
    """
    too_early = row(5, "controller-100", TraceKind.LEADER_ELECTED, partition=OFFSETS)
    too_late = row(31, "controller-100", TraceKind.LEADER_ELECTED, partition=OFFSETS)

    assert led_to([too_early, CUT, FENCED, ELECTED, too_late], APPENDED) == (CUT, FENCED, ELECTED)


def test_rows_of_other_partitions_and_groups_are_no_turning_points() -> None:
    """The finding is about the partition OFFSETS and the group `readers`.

    ELECTED is a row of OFFSETS, too. But this test gives ELECTED as evidence, and rows of the
    evidence are not listed again.
    """
    other_partition = row(22, "controller-100", TraceKind.LEADER_ELECTED, partition="orders-0")
    other_group = row(23, "broker-1", TraceKind.REBALANCE_STARTED, group="writers")
    same_group = row(24, "broker-1", TraceKind.REBALANCE_STARTED, group="readers")
    rows = [CUT, other_partition, other_group, same_group, ELECTED]

    assert led_to(rows, ELECTED, APPENDED) == (CUT, same_group)


def test_request_without_answer_is_a_turning_point_if_sent_to_the_controller() -> None:
    """A broker that gets no answer from the controller does not learn that it was replaced.

    So this failed request is a turning point. A failed request to a broker explains nothing,
    because the client then asks another broker.
    """
    to_controller = row(
        15, "broker-0", TraceKind.REQUEST_FAILED, peer="controller-100", api="Fetch"
    )
    to_broker = row(16, "consumer-a-0", TraceKind.REQUEST_FAILED, peer="broker-0", api="Heartbeat")

    assert led_to([CUT, to_controller, to_broker], APPENDED) == (CUT, to_controller)


def test_of_repeated_steps_only_the_last_is_kept() -> None:
    """A row repeats an earlier row if both have the same kind, node and partition.

    Here broker-0 and broker-1 become followers in turn, three times each.
    """
    became_follower = [
        row(11 + index, f"broker-{index % 2}", TraceKind.BECAME_FOLLOWER, partition=OFFSETS)
        for index in range(6)
    ]
    last_of_each_broker = became_follower[-2:]

    assert led_to([CUT, *became_follower], APPENDED) == (CUT, *last_of_each_broker)


def test_only_the_last_rows_are_kept_beside_the_faults() -> None:
    """There is one limit for faults and one for other rows, so that other rows displace no fault.

    At most MOST_FAULTS (4) faults and MOST_OTHERS (8) other rows are kept.
    """
    faults = [
        row(11, "driver", TraceKind.FAULT_INJECTED, cause=f"cut-{number}") for number in range(1, 9)
    ]
    became_follower = [
        row(12 + index, f"broker-{index}", TraceKind.BECAME_FOLLOWER, partition=OFFSETS)
        for index in range(15)
    ]
    points = led_to([CUT, *faults, *became_follower], APPENDED)

    # CUT and cut-1 to cut-4 are dropped.
    last_faults = [point.cause for point in points[:MOST_FAULTS]]
    assert last_faults == ["cut-5", "cut-6", "cut-7", "cut-8"]
    assert points[MOST_FAULTS:] == tuple(became_follower[-MOST_OTHERS:])


def test_violation_of_a_run_names_the_fault_the_silence_and_the_election() -> None:
    """In a run of the simulator, the coordinator is cut off from the controller.

    The controller elects another coordinator, and a commit is lost. The turning points are the cut,
    the heartbeats to the controller that got no answer, the fencing, and the election.
    """
    findings: list[Finding] = []
    schedule = load_experiment("tests/corpus/two_coordinators_after_a_cut_from_the_controller.yaml")
    play(schedule.experiment, seed=1, on_finding=findings.append)
    kinds = [(point.kind, point.api) for point in findings[0].led_to]

    assert kinds[0] == ("fault_injected", None)
    assert ("request_failed", "BrokerHeartbeat") in kinds
    assert ("broker_fenced", None) in kinds
    assert ("leader_elected", None) in kinds


def test_finding_without_evidence_has_no_turning_points() -> None:
    """Turning points are rows before the evidence. So without evidence there are none."""
    assert led_to([CUT, ELECTED]) == ()
