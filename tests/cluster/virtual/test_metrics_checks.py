"""The check of metrics finds nodes whose metrics do not agree with what they did.

A node of the test lab has metrics like those of Kafka, such as `offset-commit-count`. It also
records every commit and every other event in the trace of the run. The check compares the two: the
metric must be the number of commits in the trace.

Each test plants a bug into the metrics: it replaces a method by a wrong one. Then `reason_of` plays
a run in virtual time. The result of the run must be BROKEN, and `reason_of` returns the reason. In
the run the nodes record their metrics every 10 s. The group's coordinator crashes at 12 s, and
another broker loads the group.
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
