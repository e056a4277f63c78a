"""The stopwatch of the benchmark `invariants_cost` times the checks of a run.

The run itself stays the same.
"""

from benchmarks.invariants_cost import OF_MESSAGES, OF_NODES, Stopwatch, stopwatch
from chaos.exploration.play import play
from cluster.virtual.runtime import VirtualRuntime
from tests.support.worlds.planted import small


def test_time_of_nested_functions_counts_once() -> None:
    """The inner function runs while the outer one is timed, so it adds nothing of its own."""
    watch = Stopwatch()
    totals_inside = []

    def inner() -> str:
        return "answer"

    def outer() -> str:
        answer = watch.timed(inner)()
        totals_inside.append(watch.total_s)
        return answer

    assert watch.timed(outer)() == "answer"
    assert totals_inside == [0.0]
    assert watch.total_s > 0


def test_timed_run_has_the_digest_of_any_run() -> None:
    """Both stopwatches count time, and the methods are the original ones afterwards."""
    experiment = small()
    untimed = play(experiment, seed=1, invariants_every=100)
    methods = [vars(VirtualRuntime)[name] for name in (*OF_NODES, *OF_MESSAGES)]
    with stopwatch(OF_NODES) as of_nodes, stopwatch(OF_MESSAGES) as of_messages:
        timed = play(experiment, seed=1, invariants_every=100)
    assert timed.digest == untimed.digest
    assert of_nodes.total_s > 0
    assert of_messages.total_s > 0
    assert [vars(VirtualRuntime)[name] for name in (*OF_NODES, *OF_MESSAGES)] == methods
