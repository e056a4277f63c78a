"""Two things on which the measured speed of a search ("runs per minute") relies.

A search plays many runs, whose experiments are drawn from a space: a file that says what may vary.
The speed is measured with runs of the space `reference`. The measurement relies on two things:

- Each run has a fixed size and does a minimum of work. Without this, a broken cluster, in which
  nothing happens, would look fast.
- Python's garbage collector is paused during runs, which makes them faster. It is always switched
  on again.
"""

import gc
import weakref

import pytest

from chaos.checkers.registry import CHECKERS
from chaos.exploration.batches import play_seed
from chaos.exploration.draw.draw import draw
from chaos.exploration.gc_pause import (
    LEFT_MAX,
    SELDOM,
    collecting_afterwards,
    collecting_between_runs,
    collecting_seldom,
)
from chaos.exploration.play import PlayedRun, PlayResult
from chaos.exploration.required_work import missing_work
from chaos.exploration.space import load_space
from chaos.exploration.space_definition import Minimum


def test_reference_has_the_sizes_that_its_speed_is_quoted_for() -> None:
    """A smaller cluster would be faster, and its speed could not be compared with earlier ones."""
    space = load_space("reference")
    experiment = draw(space, seed=0)

    assert (experiment.cluster.brokers, experiment.cluster.controllers) == (3, 1)
    assert {name: group.members for name, group in experiment.groups.items()} == {
        "readers": 2,
        "writers": 2,
    }
    assert sum(topic.partitions for topic in experiment.topics.values()) == 12
    assert space.faults.window == "30s"
    assert experiment.run.liveness_timeout == "15s"
    # All checks judge the run. An empty list means all checks.
    assert not experiment.checks or set(experiment.checks) == set(CHECKERS)
    # The space demands a minimum of each kind of work.
    assert min(space.minimum.fetches, space.minimum.commits, space.minimum.faults) > 0


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_reference_run_passes_and_does_its_minimum(seed: int) -> None:
    """`make bench` measures how many such runs are played per minute, so each must do its work."""
    space = load_space("reference")
    played = play_seed(space, seed)

    assert played.result is PlayResult.PASS
    assert missing_work(space.minimum, played) == []
    # Requests are only some of the events, and Fetches are only some of the requests.
    assert played.events > sum(played.requests.values()) > played.requests["Fetch"]


def test_run_below_its_minimum_names_the_missing_work() -> None:
    """A run whose clients or faults do too little is fast, and proves nothing.

    This run has enough fetches, but lacks a commit and a fault.
    """
    played = PlayedRun(
        seed=1, result=PlayResult.PASS, requests={"Fetch": 10, "OffsetCommit": 4}, faults_hit=0
    )

    assert missing_work(Minimum(fetches=10, commits=5, faults=1), played) == [
        "commits: 4 of 5",
        "faults: 0 of 1",
    ]


def test_garbage_collector_is_paused_and_restored() -> None:
    """The collector is off in the block, and on again after it.

    The end of an inner block must not switch the collector on before the outer block ends.
    """
    frozen_before = gc.get_freeze_count()  # number of objects that the collector ignores
    with collecting_afterwards():
        assert not gc.isenabled()
        with collecting_afterwards():
            assert not gc.isenabled()
        assert not gc.isenabled()
        # Leave some garbage: a list that refers to itself.
        cycle: list[object] = []
        cycle.append(cycle)
        del cycle

    assert gc.isenabled()
    assert gc.get_freeze_count() == frozen_before


def test_garbage_collector_that_was_off_stays_off() -> None:
    """The caller has switched the collector off before the block, perhaps for good reasons."""
    gc.disable()
    try:
        with collecting_afterwards():
            assert not gc.isenabled()
        assert not gc.isenabled()
    finally:
        gc.enable()


class Loop:
    """An object that refers to itself: only the collector frees it."""

    def __init__(self) -> None:
        self.me = self


def test_long_run_collects_at_long_intervals() -> None:
    """During one long run the collector works seldom (thresholds SELDOM), but it does work.

    Without the collector the garbage would fill the memory. After the block Python's thresholds are
    restored.
    """
    thresholds_before = gc.get_threshold()
    with collecting_seldom():
        assert gc.get_threshold() == SELDOM
        garbage = weakref.ref(Loop())  # nothing else refers to this Loop
        held = [Loop() for _ in range(2 * LEFT_MAX)]  # enough new objects to cause a collection
        assert garbage() is None
        with collecting_seldom():
            assert gc.get_threshold() == SELDOM
        assert len(held) == 2 * LEFT_MAX  # objects that are in use are not collected

    assert gc.get_threshold() == thresholds_before
    assert gc.get_freeze_count() == 0


def test_cycles_of_many_runs_are_collected_between_runs() -> None:
    """A batch of hundreds of runs must not keep the garbage of all of them.

    At the end of a run the garbage is collected if the runs have left LEFT_MAX objects or more.
    """
    with collecting_between_runs() as run_is_over:
        first_garbage = weakref.ref(Loop())
        run_is_over()
        assert first_garbage() is not None  # too little garbage for a collection
        enough_garbage = [Loop() for _ in range(LEFT_MAX)]
        del enough_garbage
        run_is_over()
        assert first_garbage() is None
        last_garbage = weakref.ref(Loop())
        run_is_over()
        assert last_garbage() is not None

    assert last_garbage() is None  # the end of the block collects the rest
