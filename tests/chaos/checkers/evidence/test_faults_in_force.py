"""The faults in force: which parts of the cluster they disturb, and when they end.

A fault is in force until it is healed (undone). The controller fences a broker that it considers
dead, and unfences the broker when it is back. A fenced broker leads no partition.

- `quiet_since_us` is the time since which no fault is in force. It is None while a fault is in
  force.
- `cluster_quiet_since_us` is the time since which no fault disturbs a server. It is None while a
  fault disturbs a server.

The time 0 is the beginning of the run.
"""

from chaos.checkers.context import CheckContext, GroupExpectation
from chaos.checkers.evidence.faults_in_force import FAULT_KINDS, FaultsInForce
from protocol.trace import TraceKind
from tests.support.builders.rows import OFFSETS_0, Rows

C0 = "consumer-g-0"


def faults_after(rows: Rows) -> FaultsInForce:
    """Return the faults in force after the last row."""
    faults = FaultsInForce(
        CheckContext(
            groups={
                "g": GroupExpectation(consumers=(C0,), offsets_partition=OFFSETS_0, commits=True)
            }
        )
    )
    for row in rows.rows:
        if row.kind in FAULT_KINDS:
            faults.observe(row)
    return faults


def killed(time_s: float, node: str) -> Rows:
    """Return rows of a fault that kills `node`.

    Before the fault, the controller unfences broker-1. By this row FaultsInForce knows that
    broker-1 is a broker.
    """
    rows = Rows()
    rows.add(1, "controller-100", TraceKind.BROKER_UNFENCED, peer="broker-1")
    rows.fault(time_s, node, nodes=[node])
    rows.add(time_s, "driver", TraceKind.NODE_KILLED, peer=node, cause="crash")
    return rows


def test_end_of_a_member_disturbs_only_its_group() -> None:
    """The death of a member is a fault in force, but it does not disturb the servers."""
    rows = killed(20, C0)
    assert faults_after(rows).quiet_since_us is None  # a fault is in force
    assert faults_after(rows).cluster_quiet_since_us == 0

    rows.healed(30, C0)
    assert faults_after(rows).quiet_since_us == 30_000_000
    assert faults_after(rows).cluster_quiet_since_us == 0


def test_dead_broker_disturbs_until_it_is_fenced_and_again_after_its_restart() -> None:
    """Once the broker is fenced, the other nodes know that it is down, and go on without it.

    Its restart disturbs the cluster again, until the broker is unfenced.
    """
    rows = killed(20, "broker-1")
    assert faults_after(rows).cluster_quiet_since_us is None

    rows.add(29, "controller-100", TraceKind.BROKER_FENCED, peer="broker-1")
    assert faults_after(rows).cluster_quiet_since_us == 29_000_000
    assert faults_after(rows).quiet_since_us is None  # the broker is still dead

    rows.healed(40, "broker-1")
    rows.add(40, "broker-1", TraceKind.NODE_STARTED, incarnation=1, detail={})
    rows.add(41, "controller-100", TraceKind.BROKER_REGISTERED, peer="broker-1")
    assert faults_after(rows).cluster_quiet_since_us is None  # the controller still fences it
    rows.add(42, "controller-100", TraceKind.BROKER_UNFENCED, peer="broker-1")
    assert faults_after(rows).cluster_quiet_since_us == 42_000_000


def test_paused_broker_disturbs_even_when_it_is_fenced() -> None:
    """A paused broker is not dead: when it resumes, it still considers itself a leader.

    So the fencing of a paused broker does not end the disturbance.
    """
    rows = Rows()
    rows.add(20, "driver", TraceKind.NODE_PAUSED, peer="broker-1")
    rows.add(29, "controller-100", TraceKind.BROKER_FENCED, peer="broker-1")

    assert faults_after(rows).cluster_quiet_since_us is None


def test_fault_of_links_disturbs_all_nodes_that_it_hits() -> None:
    """A link connects two nodes, so a cut at a consumer also disturbs the servers."""
    rows = Rows()
    rows.fault(20, C0, fault="cut", nodes=[C0])

    assert faults_after(rows).cluster_quiet_since_us is None
