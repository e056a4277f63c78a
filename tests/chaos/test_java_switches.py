"""Effects of the Java coordinator's switches on whole runs in virtual time.

The coordinator follows Kafka's Scala coordinator; a switch gives it one trait of Kafka's Java
coordinator. CUT isolates the coordinator of the group readers from the cluster for 30 s, but not
from the members. Sections such as 6.4 [J] are those of docs/kafka/BEHAVIOUR.md; [J] marks the Java
coordinator.
"""

import pytest

from chaos.experiment.structs import Experiment
from protocol.trace import TraceKind
from results_schema.results import Verdict
from tests.support.builders.experiments import experiment
from tests.support.worlds.planted import CUT, Played, play, readers

CUT_S = 30
SECOND_US = 1_000_000


def split(faults: list[object] | None = None, **java: bool) -> Experiment:
    """Return the plan of split_brain_ownership, smaller, and a second group that commits.

    Both groups are in the one partition of `__consumer_offsets`. Readers only send heartbeats; a
    third one joins on the other side of the cut.
    """
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
            "java_coordinator": java,
        },
        groups={
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


def gone_s(played: Played) -> dict[str, float]:
    """Return the time after the cut at which each reader of the old coordinator left it."""
    gone: dict[str, float] = {}
    for row in played.rows:
        if row.kind == TraceKind.COORDINATOR_UNKNOWN and row.group == "readers":
            after_us = row.time_us - cut_us(played)
            if after_us > 0 and row.peer == "broker-0":
                gone.setdefault(row.node, after_us / SECOND_US)
    return gone


@pytest.mark.slow
def test_members_leave_a_cut_coordinator_once_it_has_uncommitted_writes() -> None:
    """Their heartbeats wait for another group's commit, so no partition has two owners (6.4 [J]).

    Without the switch they are answered from memory during the whole cut, and every partition has
    two owners.
    """
    scala, java = play(split()), play(split(heartbeats_wait_for_writes=True))
    assert (scala.violated, java.violated) == ([], [])
    assert java.results.verdict is Verdict.PASS
    assert all(CUT_S < after_s < CUT_S + 3 for after_s in gone_s(scala).values())
    # The topic has two partitions.
    assert scala.report("ownership").measured["overlapping_partitions"] == 2
    # A heartbeat interval of 2 s, and 5 s of waiting.
    assert sorted(gone_s(java)) == ["consumer-readers-0", "consumer-readers-1"]
    assert all(5 <= after_s <= 8 for after_s in gone_s(java).values())
    assert java.report("ownership").measured["overlaps"] == 0


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["crash", "cut", "pause", "leadership_move"])
def test_no_check_has_a_finding_with_every_switch_on(fault: str) -> None:
    """A commit that is applied after its timeout is neither lost nor of another generation.

    The cuts and pauses are shorter or longer than an election.
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
        split(
            faults=faults[fault],
            append_errors=True,
            failed_load_refuses=True,
            heartbeats_wait_for_writes=True,
            commits_apply_on_append=True,
        )
    )
    assert (played.results.reasons, played.violated) == ((), [])
    assert played.results.verdict is Verdict.PASS
