"""Workers as processes of this machine: their work, deaths and interrupts.

The tests' `work` answers with the pid of its process; at the item DEADLY it kills this process.
`events_of(workers, enough)` collects events until `enough` of them is true.
"""

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
    """Create the file `begun`, and answer at a Ctrl-C."""
    try:
        begun.touch()
        signal.pause()
    except KeyboardInterrupt:
        return b"interrupted"
    return b"woken by something else"


def test_worker_processes_answer_and_end_with_the_work() -> None:
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
            os.kill(pid, 0)  # signal 0 only checks that the process exists


def test_worker_that_dies_is_reported_with_its_work_and_replaced() -> None:
    """The caller must know the seed; the other workers continue."""
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


def test_interrupt_reaches_the_work_and_spares_the_worker(tmp_path: Path) -> None:
    """A run heals its cluster and answers; its process takes the next work."""
    begun = tmp_path / "begun"
    with WorkerProcesses(partial(wait_for_interrupt, begun), size=1) as workers:
        (worker,) = workers.idle()
        workers.interrupt()  # an idle worker has nothing to interrupt

        workers.give(worker, (1,))
        while not begun.exists():
            assert workers.wait(0.05) == []
        workers.interrupt()

        (event,) = events_of(workers, lambda found: len(found) == 1)
        assert isinstance(event, Finished)
        assert event.answer == b"interrupted"
        assert workers.idle() == (worker,)
