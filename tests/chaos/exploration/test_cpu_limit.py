"""A run that never ends is stopped, so that a search can go on with its next seed.

A search plays thousands of runs in worker processes. If a bug of ours lets one run loop for ever,
the worker must not hang. So `limited_cpu` sets a timer of the operating system (ITIMER_PROF), which
counts the CPU time of the run. At the limit the operating system sends the signal SIGPROF, whose
handler raises RunNeverEnds in the main thread. The seed of the run is then reported as broken,
which means that the lab failed, and not Kafka.
"""

import signal
import threading

import pytest

from chaos.exploration import batches
from chaos.exploration.cpu_limit import RunNeverEnds, limited_cpu
from chaos.exploration.play import PlayedRun, PlayResult
from tests.support.builders.packaged_spaces import packaged_space


def never_ends() -> None:
    """Run for ever, and catch every Exception, as the code of a careless node might."""
    while True:
        try:
            sum(range(1_000))
        except Exception:
            continue


def test_endless_run_is_ended() -> None:
    """RunNeverEnds does not inherit from Exception, so `except Exception` does not catch it.

    Afterwards the signal handler and the timer are as before.
    """
    handler_before = signal.getsignal(signal.SIGPROF)
    with pytest.raises(RunNeverEnds, match=r"not ended after 0\.05 s of CPU"), limited_cpu(0.05):
        never_ends()

    assert signal.getsignal(signal.SIGPROF) == handler_before
    assert signal.getitimer(signal.ITIMER_PROF) == (0.0, 0.0)


def test_seed_of_an_endless_run_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    """`play_seed` raises no error, but returns a result. So the worker can play the next seed."""

    def play(*_args: object, **_options: object) -> PlayedRun:
        never_ends()
        raise AssertionError  # never reached, because the loop ends only by RunNeverEnds

    monkeypatch.setattr(batches, "play", play)
    # The default limit, 300 s of CPU time, would be too long for a test.
    monkeypatch.setattr(batches, "limited_cpu", lambda: limited_cpu(0.05))

    # The space and the seed do not matter, because `play` is replaced.
    run = batches.play_seed(packaged_space("standard"), 7)

    assert (run.seed, run.result) == (7, PlayResult.BROKEN)
    assert run.reasons == ("RunNeverEnds: it has not ended after 0.05 s of CPU",)


def test_other_threads_have_no_limit() -> None:
    """In another thread `limited_cpu` sets no timer, so that no signal interrupts the work.

    Python runs signal handlers in the main thread only, so a signal could not end this thread.
    """
    results = []

    def work() -> None:
        with limited_cpu(0.01):
            results.append(sum(range(1_000_000)))  # takes more than 0.01 s

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()

    assert results
