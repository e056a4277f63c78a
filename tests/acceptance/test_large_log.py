"""A failover with 200,000 commit records in the group's offsets partition, on both runtimes.

After the crash of a coordinator, its successor reads the groups from the offsets partition, and
here this takes visibly long. Meanwhile the successor must go on as a broker: it must send
heartbeats to the controller, and answer requests for the partitions that it led before. Kafka can
do both, because it loads on another thread. A broker of coordlab has a single event loop, so it
reads a few records at a time, and does its other work in between. These tests fail if the successor
reads too many records at a time.

The two runtimes are virtual time, where the clock is simulated, and Ray, with real processes.
"""

from dataclasses import dataclass

import msgspec
import pytest

from chaos.experiment.structs import Experiment, group_partition, to_cluster_spec
from cluster.spec import CostModel
from protocol.ids import offsets_partition
from protocol.trace import TraceKind, TraceRow
from results_schema.results import Results, Verdict
from tests.support.builders.experiments import experiment
from tests.support.worlds.acceptance import (
    CoordinatorFailover,
    coordinator_failover,
    lost_commits,
    play_ray,
    play_virtual,
)

pytestmark = pytest.mark.slow

RECORDS = 200_000
"""Number of old commits in the large log."""
READERS, BYSTANDERS = "orders-readers", "others"
"""The group whose log is large, and a second group.

Their offsets partitions are 2 and 3 of six. After the crash, the coordinator of BYSTANDERS becomes
the coordinator of READERS, too.
"""
SMALL_PARTITION = "__consumer_offsets-5"
"""An empty partition with the same leader as the large one, before and after the failover."""
SLOW = CostModel(load_ns_per_record=60_000)
"""A disk so slow that the load outlasts broker.session.timeout.ms: 12 s for 200,000 records."""


def large_log(
    *, records: int, broker_config: dict[str, object] | None = None, after_faults: str
) -> Experiment:
    """Return an experiment in which the coordinator of READERS crashes.

    The log of the group already has `records` old commits when the run begins.
    """
    group = {
        "members": 2,
        "commit_interval_ms": 20,
        "config": {"enable.auto.commit": False, "auto.offset.reset": "earliest"},
    }
    return experiment(
        name="large_log",
        cluster={
            "brokers": 3,
            "config": {
                "offsets.topic.num.partitions": 6,
                "min.insync.replicas": 2,
                # Leadership stays where the failover has put it.
                "auto.leader.rebalance.enable": False,
                "group.initial.rebalance.delay.ms": 500,
                **(broker_config or {}),
            },
        },
        topics={
            "orders": {"partitions": 3, "replication.factor": 3},
            "invoices": {"partitions": 3, "replication.factor": 3},
        },
        groups={
            READERS: {**group, "topics": ["orders"]},
            BYSTANDERS: {**group, "topics": ["invoices"]},
        },
        producers=[
            {"topic": "orders", "records_per_second": 60},
            {"topic": "invoices", "records_per_second": 240},
        ],
        offsets_log=[{"group": READERS, "commit_records": records}] if records else [],
        faults=[{"at": "2s", "fault": "crash", "target": f"coordinator-of({READERS})"}],
        run={"after_faults": after_faults},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayedCrash:
    """A run in which the coordinator was killed.

    `failover` tells what happened: which broker was killed (the victim), which one became the next
    coordinator (the successor), and when each phase of the failover ended.
    """

    experiment: Experiment
    results: Results
    rows: list[TraceRow]
    failover: CoordinatorFailover

    def small_load_us(self) -> int:
        """Return how long the load of SMALL_PARTITION took in the same failover."""
        started_us = self._first_after_kill_us(TraceKind.LOAD_STARTED)
        completed_us = self._first_after_kill_us(TraceKind.LOAD_COMPLETED)
        return completed_us - started_us

    def _first_after_kill_us(self, kind: TraceKind) -> int:
        """Return the time of the first row of this kind about SMALL_PARTITION after the kill."""
        return next(
            row.time_us
            for row in self.rows
            if row.kind == kind
            and row.partition == SMALL_PARTITION
            and row.time_us > self.failover.killed_us
        )

    def during_load(self) -> list[TraceRow]:
        """Return the rows of all nodes from the beginning to the end of the successor's load."""
        return [
            row
            for row in self.rows
            if self.failover.load_started_us < row.time_us < self.failover.loaded_us
        ]


def played_crash(experiment: Experiment, results: Results, rows: list[TraceRow]) -> PlayedCrash:
    """Return a run together with the failover that its rows show."""
    return PlayedCrash(
        experiment=experiment,
        results=results,
        rows=rows,
        failover=coordinator_failover(rows, experiment, READERS),
    )


def play_in_virtual_time(*, records: int, costs: CostModel | None = None) -> PlayedCrash:
    """Play the crash in virtual time. `costs` replaces the measured costs of a load."""
    # The run must last until the load has ended. The controller needs up to 9 s to fence the
    # victim, and a slow load takes 12 s more.
    after_faults = "11s" if costs is None else "24s"
    definition = large_log(records=records, after_faults=after_faults)
    spec = to_cluster_spec(definition)
    if costs is not None:
        spec = msgspec.structs.replace(spec, costs=costs)
    run = play_virtual(definition, seed=7, spec=spec)
    return played_crash(definition, run.results, run.rows)


@pytest.fixture(scope="module")
def slow_virtual() -> PlayedCrash:
    """Play a load of 12 s in virtual time, with Kafka's default broker session of 9 s."""
    return play_in_virtual_time(records=RECORDS, costs=SLOW)


@pytest.fixture(scope="module")
def on_ray(local_ray: None, tmp_path_factory: pytest.TempPathFactory) -> PlayedCrash:
    """Play the crash on Ray. The broker session is only 3 s, to make the run short."""
    del local_ray  # the fixture has started a Ray, and has no value
    definition = large_log(
        records=RECORDS,
        # A load takes 50 ms or more. With a heartbeat every 10 ms, several fall into it.
        broker_config={"broker.session.timeout.ms": 3_000, "broker.heartbeat.interval.ms": 10},
        after_faults="5s",
    )
    rows: list[TraceRow] = []
    results = play_ray(
        definition, tmp_path_factory.mktemp("large_log"), seed=7, observers=[rows.append]
    )
    return played_crash(definition, results, rows)


def check_loaded_everything(run: PlayedCrash) -> None:
    """Check that the run passes, and that the load read the run's commits after the old records."""
    assert run.results.reasons == ()
    assert run.results.verdict is Verdict.PASS
    assert run.failover.records_loaded > RECORDS
    assert run.failover.rebalances == 0
    assert lost_commits(run.rows, run.experiment, READERS) == []


def check_successor_heartbeats(run: PlayedCrash, at_least: int) -> None:
    """Check that the controller answers heartbeats during the load, and fences only the victim.

    Without heartbeats, the controller would fence the successor, too.
    """
    successor = run.failover.successor
    rows = [
        row for row in run.during_load() if row.node == successor and row.api == "BrokerHeartbeat"
    ]
    ids_sent = {row.correlation_id for row in rows if row.kind == TraceKind.REQUEST_SENT}
    answers_by_id = {
        row.correlation_id: row.error for row in rows if row.kind == TraceKind.RESPONSE_RECEIVED
    }
    assert len(ids_sent & answers_by_id.keys()) >= at_least
    assert set(answers_by_id.values()) == {"NONE"}
    fenced = {row.peer for row in run.rows if row.kind == TraceKind.BROKER_FENCED}
    assert fenced == {run.failover.victim}


def check_successor_serves_others(run: PlayedCrash, at_least: int) -> None:
    """Check that the successor serves the second group's records and commits during the load.

    It leads partitions of the topic `invoices`, which the second group reads, and coordinates this
    group.
    """
    successor = run.failover.successor
    led_before_crash = {
        row.partition
        for row in run.rows
        if row.kind == TraceKind.BECAME_LEADER
        and row.node == successor
        and row.time_us < run.failover.killed_us
    }
    others_partition = str(offsets_partition(group_partition(run.experiment, BYSTANDERS)))
    assert others_partition in led_before_crash
    invoices = {
        name for name in led_before_crash if name is not None and name.startswith("invoices-")
    }
    assert invoices
    rows = run.during_load()
    produced = [
        row for row in rows if row.kind == TraceKind.RECORDS_PRODUCED and row.partition in invoices
    ]
    consumed = [
        row for row in rows if row.kind == TraceKind.RECORDS_CONSUMED and row.partition in invoices
    ]
    committed = [
        row
        for row in rows
        if row.kind == TraceKind.OFFSETS_COMMITTED
        and row.group == BYSTANDERS
        and row.peer == successor
    ]
    assert min(len(produced), len(consumed), len(committed)) >= at_least


def check_group_waits_for_its_load(run: PlayedCrash) -> None:
    """Check that the group's commits fail with COORDINATOR_LOAD_IN_PROGRESS during the load."""
    rows = run.during_load()
    assert not [
        row for row in rows if row.kind == TraceKind.OFFSETS_COMMITTED and row.group == READERS
    ]
    refused = {
        row.error
        for row in rows
        if row.kind == TraceKind.RESPONSE_SENT
        and row.node == run.failover.successor
        and row.api == "OffsetCommit"
        and row.error != "NONE"
    }
    assert refused == {"COORDINATOR_LOAD_IN_PROGRESS"}


def test_load_of_a_large_log_is_visibly_longer_in_virtual_time() -> None:
    """At the measured rate 1,000,000 records take 0.5 s, so 200,000 take 0.1 s."""
    small = play_in_virtual_time(records=0)
    large = play_in_virtual_time(records=RECORDS)
    check_loaded_everything(large)
    assert small.failover.records_loaded < 1_000  # only the commits of the run itself
    assert large.failover.load_us > 10 * small.failover.load_us
    assert large.failover.load_us > 10 * large.small_load_us()
    # The load may take 0.05 to 0.3 s instead of 0.1 s.
    assert 50_000 < large.failover.load_us < 300_000


def test_long_load_in_virtual_time_outlasts_the_session(slow_virtual: PlayedCrash) -> None:
    """The load takes longer than the broker session of 9 s.

    So a successor that sent no heartbeats during the load would be fenced. The next two tests rely
    on this.
    """
    check_loaded_everything(slow_virtual)
    assert slow_virtual.failover.load_us > 10_000_000


def test_loading_broker_sends_heartbeats_in_virtual_time(slow_virtual: PlayedCrash) -> None:
    """A heartbeat is due every 2 s, so at least five fall into a load of 12 s."""
    check_successor_heartbeats(slow_virtual, at_least=5)


def test_loading_broker_serves_its_other_partitions_in_virtual_time(
    slow_virtual: PlayedCrash,
) -> None:
    """The second group commits every 20 ms, so at least 100 commits fall into 12 s."""
    check_successor_serves_others(slow_virtual, at_least=100)
    check_group_waits_for_its_load(slow_virtual)


@pytest.mark.ray
def test_load_of_a_large_log_is_visibly_longer_on_ray(on_ray: PlayedCrash) -> None:
    """On Ray we measured 50 to 120 ms for this load, and less than 1 ms for an empty partition."""
    check_loaded_everything(on_ray)
    assert on_ray.failover.load_us > 10 * on_ray.small_load_us()


@pytest.mark.ray
def test_loading_broker_sends_heartbeats_on_ray(on_ray: PlayedCrash) -> None:
    """A heartbeat is due every 10 ms: a load of 50 ms that does not block sends at least one."""
    check_successor_heartbeats(on_ray, at_least=1)


@pytest.mark.ray
def test_loading_broker_serves_its_other_partitions_on_ray(on_ray: PlayedCrash) -> None:
    """During the load, at least one record and one commit of the second group pass."""
    check_successor_serves_others(on_ray, at_least=1)
