"""Workers that are processes of this machine: they work, they die, they are interrupted."""

import os
import signal
from functools import partial
from pathlib import Path

import pytest

from cluster.fan_out import Died, Finished, Items
from cluster.worker_processes import WorkerProcesses
from tests.support.harness.ray_work import DEADLY, events_of, work

pytestmark = pytest.mark.slow


def wait_for_interrupt(begun: Path, items: Items) -> bytes:
    """Make the file `begun`, and answer when a Ctrl-C comes."""
    try:
        begun.touch()
        signal.pause()
    except KeyboardInterrupt:
        return b"interrupted"
    return b"woken by something else"


def test_processes_answer_and_are_gone_afterwards() -> None:
    """Each is another process than this one, and none outlives the work."""
    with WorkerProcesses(work, size=2) as workers:
        for worker, seed in zip(workers.idle(), (1, 2), strict=True):
            workers.give(worker, (seed,))
        assert workers.idle() == ()
        events = events_of(workers, lambda found: len(found) == 2)
        assert len(workers.idle()) == 2
    pids = {int(event.answer) for event in events if isinstance(event, Finished)}
    assert len(pids) == 2
    assert os.getpid() not in pids
    assert sorted(event.items for event in events) == [(1,), (2,)]
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_worker_that_dies_is_told_with_its_work_and_replaced() -> None:
    """Whoever gave the work has to know which seed it was; the others go on."""
    with WorkerProcesses(work, size=1) as workers:
        (first,) = workers.idle()
        workers.give(first, (DEADLY,))
        (died,) = events_of(workers, lambda found: len(found) == 1)
        (second,) = workers.idle()
        workers.give(second, (1,))
        (finished,) = events_of(workers, lambda found: len(found) == 1)
    assert isinstance(died, Died)
    assert (died.worker, died.items, died.why) == (
        first,
        (DEADLY,),
        "it was ended by signal 9 (SIGKILL)",
    )
    assert isinstance(finished, Finished)
    assert finished.worker == second != first


def test_interrupt_reaches_the_work_and_leaves_the_worker(tmp_path: Path) -> None:
    """A run heals its cluster and answers; its process takes the next work."""
    begun = tmp_path / "begun"
    with WorkerProcesses(partial(wait_for_interrupt, begun), size=1) as workers:
        (worker,) = workers.idle()
        workers.interrupt()  # an idle one has nothing to interrupt
        workers.give(worker, (1,))
        while not begun.exists():
            assert workers.wait(0.05) == []
        workers.interrupt()
        (event,) = events_of(workers, lambda found: len(found) == 1)
        assert isinstance(event, Finished)
        assert event.answer == b"interrupted"
        assert workers.idle() == (worker,)
