"""Whole runs in which our coordinator has traits of Kafka's newer coordinator, written in Java.

Our coordinator behaves like Kafka's older coordinator, which is written in Scala. The setting
`java_coordinator` of an experiment has switches. Each switch gives our coordinator one trait of the
Java coordinator.

Most runs have the fault CUT. For 30 s it separates the coordinator of the group `readers` from the
controller and the other brokers, but not from the group's members. Another broker then becomes
coordinator, and the separated broker does not know this.

Numbers such as 6.4 [J] are sections of docs/kafka/BEHAVIOUR.md. [J] marks the Java coordinator.
"""

import pytest

from chaos.experiment.structs import Experiment
from protocol.trace import TraceKind
from results_schema.results import Verdict
from tests.support.builders.experiments import experiment
from tests.support.worlds.planted import CUT, Played, play, readers

CUT_S = 30
"""Duration of CUT in seconds."""
SECOND_US = 1_000_000


def two_groups(faults: list[object] | None = None, **java_switches: bool) -> Experiment:
    """Return an experiment with the groups `readers` and `writers`, and with CUT or other faults.

    - Both groups have the same coordinator, since `__consumer_offsets` has only one partition.
    - The members of `readers` only send heartbeats. The members of `writers` also commit.
    - At 12 s, which is during CUT, a third reader joins the new coordinator.
    """
    # The reader that joins late knows only the brokers on the other side of the cut.
    other_side = {
        "at": "12s",
        "members": 1,
        "config": {
            "bootstrap.servers": ["broker-1", "broker-2"],
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "session.timeout.ms": 10_000,
            "heartbeat.interval.ms": 2_000,
        },
    }
    return experiment(
        cluster={
            "brokers": 3,
            "starts": "together",
            "config": {
                "offsets.topic.num.partitions": 1,
                "min.insync.replicas": 2,
                "group.initial.rebalance.delay.ms": 500,
                "auto.leader.rebalance.enable": False,
            },
            "java_coordinator": java_switches,
        },
        groups={
            # None: these members never commit.
            "readers": readers(commit_interval_ms=None, late_members=[other_side]),
            "writers": readers(members=1),
        },
        producers=[{"topic": "orders", "records_per_second": 20}],
        faults=faults or [CUT],
        run={"after_faults": "8s", "liveness_timeout": "20s"},
    )


def cut_us(played: Played) -> int:
    """Return the time of the cut, the first fault."""
    return next(row.time_us for row in played.rows if row.kind == TraceKind.FAULT_INJECTED)


def left_after_s(played: Played) -> dict[str, float]:
    """Return when each reader gave up the old coordinator, in seconds since the cut.

    For example {"consumer-readers-0": 6.2, "consumer-readers-1": 7.0}.
    """
    left: dict[str, float] = {}
    for row in played.rows:
        if row.kind == TraceKind.COORDINATOR_UNKNOWN and row.group == "readers":
            after_us = row.time_us - cut_us(played)
            if after_us > 0 and row.peer == "broker-0":  # the old coordinator
                left.setdefault(row.node, after_us / SECOND_US)
    return left


@pytest.mark.slow
def test_members_leave_a_cut_coordinator_once_it_has_uncommitted_writes() -> None:
    """The switch `heartbeats_wait_for_writes` prevents two owners of a partition (6.4 [J]).

    Without the switch, the cut coordinator answers heartbeats from its memory during the whole cut.
    So the two readers keep their partitions, while the new coordinator gives the same partitions to
    the third reader.

    With the switch, the heartbeats of the readers wait for a commit of the writers in the same log.
    This commit fails, because the cut coordinator reaches no follower. So the two readers leave the
    cut coordinator before the new coordinator gives their partitions to the third reader.
    """
    scala, java = play(two_groups()), play(two_groups(heartbeats_wait_for_writes=True))
    assert (scala.violated, java.violated) == ([], [])
    assert java.results.verdict is Verdict.PASS

    # Without the switch the readers stay until the cut ends, and leave at most 3 s later. Both
    # partitions of the topic have two owners for a while.
    assert all(CUT_S < after_s < CUT_S + 3 for after_s in left_after_s(scala).values())
    assert scala.report("ownership").measured["overlapping_partitions"] == 2

    # With the switch, a reader sends its next heartbeat within 2 s, and waits 5 s for the answer.
    assert sorted(left_after_s(java)) == ["consumer-readers-0", "consumer-readers-1"]
    assert all(5 <= after_s <= 8 for after_s in left_after_s(java).values())
    assert java.report("ownership").measured["overlaps"] == 0


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["crash", "cut", "pause", "leadership_move"])
def test_no_check_has_a_finding_with_every_switch_on(fault: str) -> None:
    """With the switches, a coordinator may apply a commit after the commit's request has timed out.

    The checks must not report this commit as lost, nor as a commit of another generation.

    The controller fences a broker that has sent no heartbeat for 9 s. There are two cuts (or
    pauses). The first one lasts 7 s, and ends before the coordinator is fenced. The second one
    lasts 15 s, and ends after the coordinator was fenced.
    """
    base: dict[str, object] = {
        "at": "2s",
        "fault": fault,
        "target": "coordinator-of(writers)",
    }
    faults: dict[str, list[object]] = {
        "crash": [{**base, "duration": "15s"}],
        "cut": [{**CUT, "duration": "7s"}, {**CUT, "at": "22s", "duration": "15s"}],
        "pause": [{**base, "duration": "7s"}, {**base, "at": "22s", "duration": "15s"}],
        "leadership_move": [base],
    }
    played = play(
        two_groups(
            faults=faults[fault],
            append_errors=True,
            failed_load_refuses=True,
            heartbeats_wait_for_writes=True,
            commits_apply_on_append=True,
        )
    )
    assert (played.results.reasons, played.violated) == ((), [])
    assert played.results.verdict is Verdict.PASS
