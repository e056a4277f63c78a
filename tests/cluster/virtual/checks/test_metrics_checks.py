"""The checks of metrics and of the status find figures that do not agree with what nodes did.

A node of the test lab has metrics like those of Kafka, such as `offset-commit-count`. It also
records every commit and every other event in the trace of the run. The check compares the two: the
metric must be the number of commits in the trace.

The status of the cluster has figures, too, such as the number of records that were acknowledged to
producers. They are compared with the trace and with the controller's metadata, when the run ends.

Each test plants a bug into these figures: it replaces a method by a wrong one. Then `reason_of`
plays a run in virtual time, which must end as BROKEN, and returns the reason. In the run the nodes
record their metrics every 10 s. The group's coordinator crashes at 12 s, and another broker loads
the group.
"""

from collections.abc import Callable

import pytest

from chaos.exploration.play import PlayedRun, PlayResult, play
from cluster.broker.coordination.coordinator_metrics import CoordinatorMetrics
from cluster.client.consumer.node import ConsumerNode
from cluster.client.producer.node import ProducerNode
from cluster.controller.controller_metrics import ControllerMetrics
from cluster.controller.node import ControllerNode
from cluster.runtime import ClusterStatus
from protocol.trace import TraceEvent, TraceKind
from tests.support.worlds.planted import readers, small

CRASH: dict[str, object] = {
    "at": "12s",
    "fault": "crash",
    "target": "coordinator-of(readers)",
    "duration": "12s",
}


def played_run() -> PlayedRun:
    """Play the run. The only member of the group commits the offsets of two partitions at once."""
    return play(small(CRASH, group=readers(members=1)), seed=1)


def reason_of() -> str:
    """Play the run, which must break an invariant, and return the reason."""
    played = played_run()
    assert played.result is PlayResult.BROKEN, played.reasons
    return played.reasons[0]


def test_sound_run_has_no_violation() -> None:
    """Without a planted bug the check must find nothing."""
    played = played_run()
    assert played.result is PlayResult.PASS, played.reasons


def without(kind: TraceKind) -> Callable[[CoordinatorMetrics, TraceEvent], None]:
    """Return a method in place of `observe`, which ignores the events of one kind.

    The metrics of a coordinator count the events that are given to `observe`.
    """
    observe = CoordinatorMetrics.observe

    def observe_others(self: CoordinatorMetrics, event: TraceEvent) -> None:
        if event.kind is not kind:
            observe(self, event)

    return observe_others


@pytest.mark.parametrize(
    ("kind", "metric"),
    [
        (TraceKind.COMMIT_STORED, "offset-commit-count"),
        (TraceKind.ASSIGNMENT_STORED, "group-completed-rebalance-count"),
    ],
)
def test_event_that_is_not_counted_is_found(
    monkeypatch: pytest.MonkeyPatch, kind: TraceKind, metric: str
) -> None:
    """Planted bug: the coordinator's metrics ignore the events of one kind."""
    monkeypatch.setattr(CoordinatorMetrics, "observe", without(kind))
    reason = reason_of()
    assert "metrics agree with the rows of their node" in reason
    assert f"{metric}: expected" in reason


def test_commit_that_counts_once_for_each_offset_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted bug: a commit of two offsets counts twice, as in Kafka's new coordinator.

    Such a commit must count once here. There is an event for each offset, and the metrics remember
    in `_last_commit` which commit they have counted. The bug makes them forget this commit.
    """
    observe = CoordinatorMetrics.observe

    def observe_each(self: CoordinatorMetrics, event: TraceEvent) -> None:
        self._last_commit = None
        observe(self, event)

    monkeypatch.setattr(CoordinatorMetrics, "observe", observe_each)
    assert "offset-commit-count: expected" in reason_of()


@pytest.mark.parametrize("factor", [0, 2])
def test_load_that_is_not_timed_or_timed_wrongly_is_found(
    monkeypatch: pytest.MonkeyPatch, factor: int
) -> None:
    """Planted bug: the metric of load times ignores a load (factor 0), or doubles its time."""
    loaded = CoordinatorMetrics.loaded

    def loaded_in_another_time(self: CoordinatorMetrics, took_us: int) -> None:
        if factor:
            loaded(self, factor * took_us)

    monkeypatch.setattr(CoordinatorMetrics, "loaded", loaded_in_another_time)
    assert "partition-load-time-max: " in reason_of()


def test_meter_with_a_wrong_clock_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted bug: the controller's meters get a wrong time.

    To get milliseconds, the bug multiplies microseconds by 1,000 in place of dividing them.
    """
    monkeypatch.setattr(ControllerMetrics, "_now_ms", lambda self: self._host.now_us() * 1_000)
    assert "LeaderElectionRateAndTimeMs.MeanRate: expected" in reason_of()


def test_election_that_is_not_counted_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted bug: the controller's meters count nothing."""
    monkeypatch.setattr(ControllerMetrics, "observe", lambda _self, _event: None)
    assert "LeaderElectionRateAndTimeMs.Count: expected" in reason_of()


# -- the status --


def test_status_of_a_restarted_member_is_no_violation() -> None:
    """The counts of a member begin with 0 when it starts again."""
    crash: dict[str, object] = {
        "at": "3s",
        "fault": "crash",
        "target": "member(readers, 0)",
        "duration": "2s",
    }
    played = play(small(crash), seed=1)
    assert played.result is PlayResult.PASS, played.reasons


def test_producer_that_reports_too_little_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted bug: the producer adds nothing to the status."""
    monkeypatch.setattr(ProducerNode, "report", lambda _self, _status: None)
    assert "at the end: " in (reason := reason_of())
    assert "0 records acknowledged to producers, and the rows" in reason


def test_member_that_reports_too_much_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted bug: a member's figure is higher by one than what it has consumed."""
    report = ConsumerNode.report

    def report_one_more(self: ConsumerNode, status: ClusterStatus) -> None:
        self._records_consumed += 1
        report(self, status)

    monkeypatch.setattr(ConsumerNode, "report", report_one_more)
    assert "consumer-readers-0 has consumed" in reason_of()


def test_controller_that_reports_an_active_broker_as_fenced_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Planted bug: the status shows each fenced broker as active, and the others as fenced."""
    report = ControllerNode.report

    def report_inverted(self: ControllerNode, status: ClusterStatus) -> None:
        report(self, status)
        status.brokers_fenced = {
            broker_id: not is_fenced for broker_id, is_fenced in status.brokers_fenced.items()
        }

    monkeypatch.setattr(ControllerNode, "report", report_inverted)
    assert "fenced brokers {" in reason_of()


def test_controller_that_reports_old_partitions_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted bug: after the first report, the controller reports the same partitions for ever.

    The leader has changed since then, and so have the in-sync replicas.
    """
    report = ControllerNode.report

    def report_old(self: ControllerNode, status: ClusterStatus) -> None:
        if self._partitions_as_of > 0:
            self._partitions_as_of = self.image.end_offset
        report(self, status)

    monkeypatch.setattr(ControllerNode, "report", report_old)
    assert ", and in the metadata PartitionRegistration" in reason_of()
