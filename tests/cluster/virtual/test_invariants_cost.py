"""The stopwatch with which the benchmark `invariants_cost` measures the checks of a run.

OF_NODES are the names of the methods of VirtualRuntime that check nodes. `with stopwatch(OF_NODES)`
wraps these methods and measures how long they take altogether. OF_MESSAGES are the methods that
check messages. A run must have the same events with a stopwatch as without.
"""

from benchmarks.invariants_cost import OF_MESSAGES, OF_NODES, Stopwatch, stopwatch
from chaos.exploration.play import play
from cluster.virtual.runtime import VirtualRuntime
from tests.support.worlds.planted import small

CHECK_EVERY_EVENTS = 100
"""The run checks its nodes each time after about this many events."""


def test_time_of_nested_functions_counts_once() -> None:
    """If a check calls another check, the time of the inner check must not be counted twice.

    The stopwatch counts only the outer call, whose time contains that of the inner call. It adds
    this time when the outer call ends. So just after the inner call the total is still 0.
    """
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
    """The stopwatches do not change the digest of a run, which is a hash of all its events.

    Both stopwatches measure a time. Afterwards the methods of the runtime are the original ones.
    """
    experiment = small()
    untimed = play(experiment, seed=1, invariants_every=CHECK_EVERY_EVENTS)
    original_methods = [vars(VirtualRuntime)[name] for name in (*OF_NODES, *OF_MESSAGES)]
    with stopwatch(OF_NODES) as of_nodes, stopwatch(OF_MESSAGES) as of_messages:
        timed = play(experiment, seed=1, invariants_every=CHECK_EVERY_EVENTS)
    assert timed.digest == untimed.digest
    assert of_nodes.total_s > 0
    assert of_messages.total_s > 0
    methods = [vars(VirtualRuntime)[name] for name in (*OF_NODES, *OF_MESSAGES)]
    assert methods == original_methods
