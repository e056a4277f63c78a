"""WorkerProcesses, which lets other processes of this machine do work, and reports how it ended.

The work is a function. Its argument is a tuple of items, which are numbers.

    with WorkerProcesses(work, size=2) as workers:       # two processes, which call `work`
        worker, other_worker = workers.idle()
        workers.give(worker, (1,))                       # let a worker do the item 1
        (event,) = events_of(workers, lambda events: len(events) == 1)  # wait for an event

The event is Finished, with the answer of the worker, or Died. In these tests `work` answers with
the number (pid) of its process. At the item DEADLY it kills this process.
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
    """Create the file `begun`, and wait for a signal. Answer "interrupted" if it was a Ctrl-C."""
    try:
        begun.touch()
        signal.pause()
    except KeyboardInterrupt:
        return b"interrupted"
    return b"woken by something else"


def test_worker_processes_answer_and_end_with_the_work() -> None:
    """Two workers do one item each, in two processes. Afterwards no process is left."""
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
    """The event Died has the items that the worker was given. A new worker takes its place."""
    with WorkerProcesses(work, size=1) as workers:
        (dying_worker,) = workers.idle()
        workers.give(dying_worker, (DEADLY,))
        (died,) = events_of(workers, lambda found: len(found) == 1)

        (new_worker,) = workers.idle()
        workers.give(new_worker, (1,))
        (finished,) = events_of(workers, lambda found: len(found) == 1)

    assert isinstance(died, Died)
    assert died.worker == dying_worker
    assert died.items == (DEADLY,)
    assert died.why == "it was ended by signal 9 (SIGKILL)"
    assert isinstance(finished, Finished)
    assert finished.worker == new_worker
    assert new_worker != dying_worker


def test_interrupt_reaches_the_work_and_spares_the_worker(tmp_path: Path) -> None:
    """At a Ctrl-C the work can clean up and still answer. The process of the worker lives on."""
    begun = tmp_path / "begun"
    with WorkerProcesses(partial(wait_for_interrupt, begun), size=1) as workers:
        (worker,) = workers.idle()
        workers.interrupt()  # an idle worker has nothing that could be interrupted

        workers.give(worker, (1,))
        while not begun.exists():  # the work waits for its signal once this file exists
            assert workers.wait(timeout_s=0.05) == []
        workers.interrupt()

        (event,) = events_of(workers, lambda found: len(found) == 1)
        assert isinstance(event, Finished)
        assert event.answer == b"interrupted"
        assert workers.idle() == (worker,)
