"""The experiment `coordinator_crash` in virtual time, with and without bugs in our code.

The experiment kills the broker that coordinates a group of 12 members. Another broker becomes
leader of the group's partition of `__consumer_offsets`, and loads the group from the log. If all is
well, no acknowledged commit is lost, and the members need not rebalance.

The first test plays a run in which all is well. Most other tests break something, to see that one
of the run's checks finds it. Some tests switch off a guard, which is a safety check that Kafka
always makes. Here the guard is `high_watermark_gate`: a broker acknowledges an append only when
every in-sync replica has the record. Other tests plant a bug: they replace a method of our code by
a wrong one.

A run in virtual time has a simulated clock. References such as (BEHAVIOUR 6.6 f) name a file of
docs/kafka and a section of this file.
"""

from collections.abc import Callable

import pytest

from chaos.checkers.registry import CheckSuite, context_of
from chaos.experiment.loader import load_experiment
from chaos.experiment.structs import to_cluster_spec
from chaos.run.plan import plan_of
from chaos.run.runner import ExperimentRun
from cluster.virtual.runtime import VirtualRuntime
from coordinator.coordinator import GroupCoordinator
from coordinator.storage.offsets import CommittedOffset, GroupOffsets
from protocol.effects import Result
from protocol.ids import NodeName, TopicPartition
from protocol.records.batch import RecordBatch
from protocol.trace import TraceKind, TraceRow
from results_schema.journal import FaultOutcome
from results_schema.results import CheckOutcome, CheckReport, Results, Verdict

# Overrides of the experiment file, for quick runs.
SMALL = (
    "groups.orders-readers.members=3",
    "topics.orders.partitions=3",
    "producers[0].records_per_second=20",
)
COMMITTED_US = 12_000_000
"""By this time of a run each member has committed something."""


class Played:
    """One run of the experiment in virtual time, with its trace and its checks.

    `rows` has all rows of the trace. If a test sets `on_row`, it is called with each new row.
    """

    def __init__(self, *overrides: str, seed: int = 7) -> None:
        self.experiment = load_experiment("coordinator_crash", overrides).experiment
        self.suite = CheckSuite(
            context_of(self.experiment, in_virtual_time=True), self.experiment.checks
        )
        self.rows: list[TraceRow] = []
        self.on_row: Callable[[TraceRow], None] | None = None
        self.runtime = VirtualRuntime(
            to_cluster_spec(self.experiment),
            seed=seed,
            run_id="test",
            observers=[self._observe],
            trace_messages=False,
        )

    def _observe(self, row: TraceRow) -> None:
        self.rows.append(row)
        self.suite.observe(row)
        if self.on_row is not None:
            self.on_row(row)

    def play(self) -> Results:
        """Play the run, and return its results."""
        return ExperimentRun(
            self.experiment, plan_of(self.experiment), self.runtime, self.suite
        ).execute()

    def of_kind(self, kind: TraceKind, after_us: int = 0) -> list[TraceRow]:
        """Return the rows of a kind that are later than `after_us`."""
        return [row for row in self.rows if row.kind == kind and row.time_us > after_us]


def kill_at_the_first_acknowledgement(played: Played) -> list[str]:
    """Kill the first broker that acknowledges an append after COMMITTED_US.

    The returned list is empty at first. When the broker is killed, its name is added to the list.
    """
    killed: list[str] = []

    def kill_on_acknowledgement(row: TraceRow) -> None:
        is_acknowledgement = row.kind == TraceKind.APPEND_COMPLETED and row.error in {None, "NONE"}
        if row.time_us > COMMITTED_US and is_acknowledgement and not killed:
            killed.append(row.node)
            played.runtime.crash_now(NodeName(row.node))

    played.on_row = kill_on_acknowledgement
    return killed


def report_of(results: Results, check: str) -> CheckReport:
    """Return the report of one check."""
    return next(report for report in results.checks if report.check == check)


@pytest.mark.slow
def test_coordinator_crash_with_seed_7_passes_and_judges_every_check_that_applies() -> None:
    """The kill is detected after 7 to 9 s (MEASURED_FAILOVER kill).

    The kill leads to no rebalance, and no commit is lost.
    """
    played = Played()

    results = played.play()

    assert (results.verdict, results.exit_code, results.reasons) == (Verdict.PASS, 0, ())
    # Three checks had nothing to judge. This casts no doubt on the verdict:
    # - fencing: the old leader is dead, so it appends nothing in an ended epoch;
    # - recovery: all replicas are in sync before the faults are healed;
    # - administration: no administrator gives an order.
    assert {
        report.check for report in results.checks if report.outcome is not CheckOutcome.PASS
    } == {"administration", "fencing", "recovery"}
    (fault,) = results.faults
    assert fault.outcome is FaultOutcome.HIT
    fired_us = fault.fired_at_us or 0
    fenced = played.of_kind(TraceKind.BROKER_FENCED, fired_us)[0]
    # The controller fences a broker 9 s after its last heartbeat. This heartbeat was up to 2 s old
    # when the broker was killed.
    assert 7_000_000 <= fenced.time_us - fired_us <= 9_500_000
    assert played.of_kind(TraceKind.REBALANCE_STARTED, fired_us) == []
    # The check `fencing` had no append to judge. But it has compared the acknowledged appends with
    # the log of the next leader.
    assert report_of(results, "fencing").seen["acknowledged_before_a_later_epoch"] > 50
    # At its end the run fetches the committed offset of each of the 12 partitions.
    assert report_of(results, "durable_commits").seen["fetches_judged"] >= 12


def test_acknowledgement_before_replication_is_found_by_fencing() -> None:
    """Without the guard a leader acknowledges a record that only its own log has, and then dies.

    The test kills the leader when it writes the row of an acknowledgement. So the experiment has no
    faults of its own (`faults=[]`).
    """
    played = Played(*SMALL, "cluster.guards.high_watermark_gate=false", "faults=[]")
    killed = kill_at_the_first_acknowledgement(played)

    results = played.play()

    assert killed
    assert results.verdict is Verdict.VIOLATED
    fencing = report_of(results, "fencing")
    assert fencing.outcome is CheckOutcome.VIOLATED
    assert "missing from the log of epoch 1" in fencing.findings[0].summary
    assert fencing.findings[0].evidence[-1].kind == TraceKind.BECAME_LEADER


def test_death_at_the_acknowledgement_loses_nothing_with_the_guard() -> None:
    """The leader is killed at an acknowledgement, and the guard is on.

    So when the leader acknowledges a record, the followers in sync have the record, too.
    """
    played = Played(*SMALL, "faults=[]")
    killed = kill_at_the_first_acknowledgement(played)

    results = played.play()

    assert killed
    assert (results.verdict, results.reasons) == (Verdict.PASS, ())
    assert report_of(results, "fencing").findings == ()


def test_acknowledged_commit_that_is_forgotten_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted bug: the coordinator acknowledges a commit, but keeps the older offset.

    The bug affects only the partition orders-0, and the finding must name it.
    """
    remember = GroupOffsets.append_succeeded

    def forget(self: GroupOffsets, partition: TopicPartition, stored: CommittedOffset) -> bool:
        # Only later commits are forgotten, so that an older offset is there to be kept.
        if partition == TopicPartition("orders", 0) and stored.value.offset > 20:
            self.append_failed(partition, stored.value)
            return False
        return remember(self, partition, stored)

    monkeypatch.setattr(GroupOffsets, "append_succeeded", forget)

    results = Played(*SMALL).play()

    assert results.verdict is Verdict.VIOLATED
    durable = report_of(results, "durable_commits")
    assert [finding.partition for finding in durable.findings] == ["orders-0"]
    assert "was acknowledged by" in durable.findings[0].summary


def test_load_without_records_is_found_by_two_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted bug: the new coordinator reads nothing from the log (BEHAVIOUR 6.6 f).

    So the coordinator does not know the members. The members must rejoin, which the check
    `needless_rebalance` finds. Nor does the coordinator know the committed offsets, which the check
    `durable_commits` finds.
    """

    def load_nothing(
        self: GroupCoordinator, partition: int, batches: tuple[RecordBatch, ...]
    ) -> Result:
        del self, partition, batches
        return Result()

    monkeypatch.setattr(GroupCoordinator, "load_batches", load_nothing)

    results = Played(*SMALL).play()

    assert results.verdict is Verdict.VIOLATED
    assert report_of(results, "needless_rebalance").outcome is CheckOutcome.VIOLATED
    assert report_of(results, "durable_commits").outcome is CheckOutcome.VIOLATED


def test_group_without_members_ends_unknown() -> None:
    """A group without members never becomes steady.

    Faults are injected only into a steady cluster. So no fault is injected, and the run proves
    nothing: its verdict is unknown, with exit code 2.
    """
    played = Played(
        "groups.orders-readers.members=0",
        "run.steady_state_timeout=5s",
        "topics.orders.partitions=3",
    )

    results = played.play()

    assert results.exit_code == 2
    assert "group orders-readers: its coordinator does not know it" in results.reasons[0]
    assert played.of_kind(TraceKind.FAULT_INJECTED) == []
