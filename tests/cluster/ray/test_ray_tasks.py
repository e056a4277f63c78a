"""RayWorkers, which distributes the work of a search over processes of Ray.

A search plays many runs at random, one for each seed. `workers.give(name, items)` gives a worker
process its next items; in a search these are seeds. `workers.wait` returns events: Finished with
the answer of a worker, or Died.

Most tests give their workers the function `work` instead of a search. `work` answers with the pid
of its worker. At the item DEADLY it kills the worker, and at the item FAILING it raises an
exception.
"""

import os
from functools import partial

import pytest

from chaos.exploration.batches import check_code, decode_runs, play_seeds
from chaos.exploration.play import PlayedRun
from chaos.exploration.running_totals import Tally
from chaos.exploration.search import Limits, Search, Stop
from chaos.exploration.space import load_space
from chaos.exploration.store import ExplorationRecord, PlayedSeeds
from cluster.fan_out import Died, Finished, ThisProcess, Workers, WorkersFailed
from cluster.ray.actors import LOCAL
from cluster.ray.tasks import RayWorkers
from tests.support.harness.ray_work import DEADLY, FAILING, events_of, wait_idle, work

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.usefixtures("local_ray")]


def test_each_worker_is_a_process_whose_name_has_its_number() -> None:
    """A name ends with the pid, so that a user can find the worker's process."""
    with RayWorkers(LOCAL, work, size=2) as workers:
        wait_idle(workers, 2)
        names = workers.idle()
        for name in names:
            workers.give(name, (1,))
        assert workers.idle() == ()
        events = events_of(workers, lambda events: len(events) == 2)
    pids = {event.worker: event.answer.decode() for event in events if isinstance(event, Finished)}
    assert {str(name).rpartition(":")[2] for name in names} == set(pids.values())
    assert len(set(pids.values())) == 2
    assert str(os.getpid()) not in pids.values()


@pytest.mark.parametrize("number", [DEADLY, FAILING])
def test_worker_that_ends_is_reported_with_its_work_and_replaced(number: int) -> None:
    """A worker ends if its work raises an exception, or if the system kills its process.

    The caller learns which items are lost, and another worker takes its place.
    """
    with RayWorkers(LOCAL, work, size=1) as workers:
        wait_idle(workers, 1)
        (first,) = workers.idle()
        workers.give(first, (1, number))
        (death,) = events_of(workers, bool)  # waits for the first event
        assert isinstance(death, Died)
        assert (death.worker, death.items) == (first, (1, number))
        # "no 14" is the exception that `work` raises at FAILING, which is 14.
        assert ("no 14" in death.why) is (number == FAILING)

        wait_idle(workers, 1)
        (second,) = workers.idle()
        assert second != first
        workers.give(second, (1,))
        (event,) = events_of(workers, bool)
        assert isinstance(event, Finished)


def test_search_whose_workers_all_die_is_given_up() -> None:
    """After several deaths in a row the next worker would probably die, too."""
    with RayWorkers(LOCAL, work, size=1) as workers:

        def give_deadly_work() -> None:
            while True:
                wait_idle(workers, 1)
                workers.give(workers.idle()[0], (DEADLY,))

        with pytest.raises(WorkersFailed, match="workers died one after another"):
            give_deadly_work()


def test_process_with_other_code_is_refused_as_a_worker() -> None:
    """A worker with other code would play other runs for the same seeds."""
    digest_at_start = "0123456789abcdef"  # the code of the worker has another digest
    check = partial(check_code, digest_at_start)
    with (
        RayWorkers(LOCAL, work, size=1, check=check) as workers,
        pytest.raises(WorkersFailed, match=r"code changed .* it began with 0123456789abcdef"),
    ):
        wait_idle(workers, 1)


def test_worker_that_does_not_answer_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that never ends must not stop the search, so its worker is given up after 600 s."""
    clock = [0.0]  # the time in seconds, which the test sets
    with RayWorkers(LOCAL, work, size=1, clock=lambda: clock[0]) as workers:
        wait_idle(workers, 1)
        (first,) = workers.idle()
        workers.give(first, (1,))
        clock[0] = 10_000.0  # far more than 600 s later
        # `ray.wait` returns two lists: the calls that have an answer, and the calls that wait. From
        # now on no call has an answer.
        monkeypatch.setattr("cluster.ray.tasks.ray.wait", lambda calls, **_: ([], calls))
        (death,) = workers.wait(timeout_s=0.0)
    assert isinstance(death, Died)
    assert "no answer for 600 s" in death.why


def test_worker_that_finds_no_free_core_is_awaited_for_100_s() -> None:
    """`coming()` is the number of workers that may still start. Each of them needs a free core.

    A search waits for them only 100 s, and then goes on with the workers that it has.
    """
    clock = [0.0]  # the time in seconds, which the test sets
    with RayWorkers(LOCAL, work, size=2, clock=lambda: clock[0]) as workers:
        assert workers.coming() == 2
        clock[0] = 100.0
        assert workers.coming() == 0
        # When both workers have started, none is still to come, even before the 100 s are over.
        wait_idle(workers, 2)
        clock[0] = 0.0
        assert workers.coming() == 0


def test_two_workers_on_ray_have_the_results_of_this_process() -> None:
    """A seed must give the same run everywhere. The runs are drawn from the space "reference".

    The first search plays four seeds in this process, and the second search plays them with two
    workers. In both searches two of the seeds are played a second time. With two workers, this is
    done by the worker that did not play the seed first. All results must be equal.
    """
    by_this_process, _ = search_four_seeds(
        ThisProcess(partial(play_seeds, load_space("reference")))
    )
    by_two_workers, tally = search_four_seeds(
        RayWorkers(LOCAL, partial(play_seeds, load_space("reference")), size=2)
    )
    assert by_this_process == by_two_workers
    assert len(by_two_workers) == 4
    assert len({run.digest for run in by_two_workers.values()}) == 4
    assert (tally.rechecked, tally.rechecked_elsewhere, tally.differences) == (2, 2, [])


def search_four_seeds(workers: Workers) -> tuple[dict[int, PlayedRun], Tally]:
    """Play four seeds, two of them twice. Return the run of each seed, and the tally.

    The tally counts the seeds that were played again, and lists differences between their runs.
    """
    tally = Tally(50)  # 50 % of the seeds are played twice
    written: list[ExplorationRecord] = []
    with workers:
        search = Search(
            tally, workers, Limits(count=4, batch=1), clock=lambda: 0.0, write=written.append
        )
        assert search.run() is Stop.COUNT
    runs = [run for record in written if isinstance(record, PlayedSeeds) for run in record.runs]
    return {run.seed: run for run in runs}, tally


def test_answers_are_runs_of_the_seeds_in_order() -> None:
    """An answer has a run for each seed, in the order of the request, here 3 and then 1."""
    answer = play_seeds(load_space("reference"), (3, 1))
    assert [run.seed for run in decode_runs(answer)] == [3, 1]
