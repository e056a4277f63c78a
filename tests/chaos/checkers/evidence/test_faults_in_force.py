"""The faults in force at a time, which may explain what a checker sees.

A fault is in force from its injection until the lab heals it, that is, undoes it. Some promises
hold only without faults, so their checkers need to know since when it has been quiet:

- `quiet_since_us` is the end of the last fault. While a fault is in force, it is None.
- `cluster_quiet_since_us` is the end of the last disturbance of a broker or controller. It is None
  while a broker or a controller is disturbed. If none was ever disturbed, it is 0, the beginning of
  the run.

The first argument of each row function, such as `rows.add` and `rows.healed`, is the time in
seconds.
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


def rows_of_a_kill(time_s: float, node: str) -> Rows:
    """Return rows of a fault that kills `node`."""
    rows = Rows()
    # FaultsInForce learns from this row that broker-1 is a broker.
    rows.add(1, "controller-100", TraceKind.BROKER_UNFENCED, peer="broker-1")
    rows.fault(time_s, node, nodes=[node])
    rows.add(time_s, "driver", TraceKind.NODE_KILLED, peer=node, cause="crash")
    return rows


def test_end_of_a_member_disturbs_only_its_group() -> None:
    """A member is killed at 20 s and healed at 30 s, and the brokers are quiet all the time."""
    rows = rows_of_a_kill(20, C0)
    assert faults_after(rows).quiet_since_us is None
    assert faults_after(rows).cluster_quiet_since_us == 0

    rows.healed(30, C0)
    assert faults_after(rows).quiet_since_us == 30_000_000
    assert faults_after(rows).cluster_quiet_since_us == 0


def test_dead_broker_disturbs_until_it_is_fenced_and_again_after_its_restart() -> None:
    """broker-1 disturbs the cluster twice.

    1. At 20 s it is killed. From 29 s on it is fenced, and the other nodes go on without it.
    2. At 40 s it starts again. From 42 s on it is unfenced, and so back in the cluster.
    """
    rows = rows_of_a_kill(20, "broker-1")
    assert faults_after(rows).cluster_quiet_since_us is None

    rows.add(29, "controller-100", TraceKind.BROKER_FENCED, peer="broker-1")
    assert faults_after(rows).cluster_quiet_since_us == 29_000_000
    assert faults_after(rows).quiet_since_us is None  # the broker is still dead

    rows.healed(40, "broker-1")
    rows.add(40, "broker-1", TraceKind.NODE_STARTED, incarnation=1, detail={})
    rows.add(41, "controller-100", TraceKind.BROKER_REGISTERED, peer="broker-1")
    assert faults_after(rows).cluster_quiet_since_us is None  # the broker is still fenced
    rows.add(42, "controller-100", TraceKind.BROKER_UNFENCED, peer="broker-1")
    assert faults_after(rows).cluster_quiet_since_us == 42_000_000


def test_paused_broker_disturbs_even_when_it_is_fenced() -> None:
    """A paused broker can resume at any time, and then it still considers itself a leader.

    So the disturbance does not end when the controller fences the broker.
    """
    rows = Rows()
    rows.add(20, "driver", TraceKind.NODE_PAUSED, peer="broker-1")
    rows.add(29, "controller-100", TraceKind.BROKER_FENCED, peer="broker-1")

    assert faults_after(rows).cluster_quiet_since_us is None


def test_fault_of_links_disturbs_all_nodes_that_it_hits() -> None:
    """The links of a consumer lead to brokers, so a cut of the links disturbs brokers, too."""
    rows = Rows()
    rows.fault(20, C0, fault="cut", nodes=[C0])

    assert faults_after(rows).cluster_quiet_since_us is None
