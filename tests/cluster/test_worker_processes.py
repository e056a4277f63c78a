"""Workers are processes of this machine: their work, their deaths and their interrupts.

- `workers.give(worker, items)` gives a worker its next items. An event says how this work ended:
  Finished, with the answer of the worker, or Died.
- In these tests `work` answers with the pid (the number) of its process. At the item DEADLY it
  kills this process.
- `events_of(workers, enough)` collects events until `enough(events)` is true.
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
    """Create the file `begun`, and wait for a signal. Answer whether it was a Ctrl-C."""
    try:
        begun.touch()
        signal.pause()
    except KeyboardInterrupt:
        return b"interrupted"
    return b"woken by something else"


def test_worker_processes_answer_and_end_with_the_work() -> None:
    """Each worker is a process of its own, and none of them is left after the work."""
    with WorkerProcesses(work, size=2) as workers:
        for worker, item in zip(workers.idle(), (1, 2), strict=True):
            workers.give(worker, (item,))
        assert workers.idle() == ()
        events = events_of(workers, lambda found: len(found) == 2)
        assert len(workers.idle()) == 2

    pids = {int(event.answer) for event in events if isinstance(event, Finished)}
    assert len(pids) == 2
    assert os.getpid() not in pids
    assert sorted(event.items for event in events) == [(1,), (2,)]
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)  # signal 0 only checks whether the process exists


def test_worker_that_dies_is_reported_with_its_work_and_replaced() -> None:
    """The caller must know the item of the dead worker. A new worker takes its place."""
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
    assert finished.worker == second
    assert second != first


def test_interrupt_reaches_the_work_and_spares_the_worker(tmp_path: Path) -> None:
    """An interrupt ends the work, not the worker, whose process then does the next work.

    So the work can clean up at a Ctrl-C and still answer.
    """
    begun = tmp_path / "begun"
    with WorkerProcesses(partial(wait_for_interrupt, begun), size=1) as workers:
        (worker,) = workers.idle()
        workers.interrupt()  # an idle worker has nothing that could be interrupted

        workers.give(worker, (1,))
        while not begun.exists():
            assert workers.wait(0.05) == []
        workers.interrupt()

        (event,) = events_of(workers, lambda found: len(found) == 1)
        assert isinstance(event, Finished)
        assert event.answer == b"interrupted"
        assert workers.idle() == (worker,)
