"""The check of metrics in virtual time finds planted bugs in counts, times and rates.

A node writes samples of its metrics into the trace (the run's recorded rows of events). A sample
must agree with the rows that the node has written since its start. The run has samples every 10 s.
The coordinator crashes at 12 s, and another broker loads the group. A test plants a bug: it
replaces a method by a wrong one.
"""

from collections.abc import Callable

import pytest

from chaos.exploration.play import PlayedRun, PlayResult, play
from cluster.broker.coordination.coordinator_metrics import CoordinatorMetrics
from cluster.controller.controller_metrics import ControllerMetrics
from protocol.trace import TraceEvent, TraceKind
from tests.support.worlds.planted import readers, small

CRASH: dict[str, object] = {
    "at": "12s",
    "fault": "crash",
    "target": "coordinator-of(readers)",
    "duration": "12s",
}


def played_run() -> PlayedRun:
    """Play a group of one member, whose commits have the offsets of two partitions each."""
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
    """Return an `observe` of the metrics that ignores the events of one kind."""
    observe = CoordinatorMetrics.observe

    def overlook(self: CoordinatorMetrics, event: TraceEvent) -> None:
        if event.kind is not kind:
            observe(self, event)

    return overlook


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


def test_offset_counted_in_place_of_its_append_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted bug: a commit counts once for each of its offsets, as in Kafka's new coordinator.

    The coordinator of these runs must count a commit once. It remembers the commit that it has
    counted last in `_last_commit`. The bug forgets this commit before each offset.
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
    """Planted bug: the metric ignores a load (factor 0), or doubles its time (factor 2)."""
    loaded = CoordinatorMetrics.loaded

    def load(self: CoordinatorMetrics, took_us: int) -> None:
        if factor:
            loaded(self, factor * took_us)

    monkeypatch.setattr(CoordinatorMetrics, "loaded", load)
    assert "partition-load-time-max: " in reason_of()


def test_meter_with_a_wrong_clock_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted bug: the clock of the controller's meters runs a million times too fast.

    The bug multiplies microseconds by 1,000 in place of dividing them.
    """
    monkeypatch.setattr(ControllerMetrics, "_now_ms", lambda self: self._host.now_us() * 1_000)
    assert "LeaderElectionRateAndTimeMs.MeanRate: expected" in reason_of()


def test_election_that_is_not_counted_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted bug: the controller's meters count nothing."""
    monkeypatch.setattr(ControllerMetrics, "observe", lambda *_: None)
    assert "LeaderElectionRateAndTimeMs.Count: expected" in reason_of()
