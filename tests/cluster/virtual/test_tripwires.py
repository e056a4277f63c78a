"""Tripwires: a node that reads the machine's clock or random numbers ends the run with an error.

A run in virtual time must depend on its seed alone, so that it can be repeated. If the code of a
node called `time.time()`, for example, the next run with the same seed could differ.

Therefore such functions are patched during a run. A patched function looks at the module that
calls it. If this is code of a node, it raises `Tripped`, and the error names the call. The tests
here plant a forbidden call into a node, and look at the error.
"""

import os
import random
import threading
import time
import uuid
from collections.abc import Callable
from types import FunctionType

import pytest

from chaos.exploration.play import PlayResult, play
from cluster.runtime import NodeTaskFailed
from cluster.virtual.runtime import VirtualRuntime
from cluster.virtual.tripwires import Tripped, forbidden, tripwires
from protocol.trace import TraceRow
from tests.support.builders.quick_experiment import quick_experiment
from tests.support.determinism import planted
from tests.support.harness.fake_cluster import fake_builder, fake_spec

NODE_MODULE = "cluster.broker.planted"
"""A module name that the tripwires take for code of a node."""
THROUGH_TENACITY = "import tenacity; tenacity.wait_random()(None)"
"""Source that does not call random.random itself: the library tenacity does it."""
CALLS = [
    ("time.time", "import time; time.time()"),
    ("time.monotonic", "import time; time.monotonic()"),
    ("time.perf_counter", "import time; time.perf_counter()"),
    ("time.sleep", "import time; time.sleep(0)"),
    ("random.random", "import random; random.random()"),
    ("random.shuffle", "import random; random.shuffle([])"),
    ("uuid.uuid4", "import uuid; uuid.uuid4()"),
    ("os.urandom", "import os; os.urandom(1)"),
    ("secrets.token_hex", "import secrets; secrets.token_hex()"),
    ("random._urandom", "import random; random.SystemRandom().random()"),
    ("random.random", THROUGH_TENACITY),
    ("threading.Thread.start", "import threading; threading.Thread(target=print).start()"),
    ("threading.Thread.start", "import concurrent.futures as f; f.ThreadPoolExecutor().submit(id)"),
]
"""A forbidden function, as the error names it, and source that calls it directly or indirectly."""


def in_module(name: str, source: str) -> Callable[[], list[str]]:
    """Return a function that executes `source`, as if it were defined in the module `name`.

    The function returns an empty list, because `planted` wants a list of texts for the trace.
    """
    scope: dict[str, object] = {"__name__": name}
    exec(f"def planted():\n    {source}\n    return []", scope)
    function = scope["planted"]
    assert isinstance(function, FunctionType)
    return function


def run_with(source: Callable[[], list[str]], observer: Callable[[TraceRow], None]) -> None:
    """Run a small cluster for a second, in which a node calls `source`.

    `observer` is called for each row of the trace.
    """
    runtime = VirtualRuntime(
        fake_spec(),
        seed=0,
        run_id="tripwires",
        observers=(observer,),
        build=planted(fake_builder(), source),
    )

    async def main() -> None:
        await runtime.start()
        await runtime.sleep(1_000_000)
        await runtime.stop()

    runtime.run(main())


@pytest.mark.parametrize(("function", "source"), CALLS)
def test_node_that_reads_the_machine_fails_and_is_named(function: str, source: str) -> None:
    """The error names the call, its place in the source, and what a node must call instead."""
    with pytest.raises(NodeTaskFailed) as caught:
        run_with(in_module(NODE_MODULE, source), lambda _row: None)

    error = caught.value.__cause__
    assert isinstance(error, Tripped)
    # In the text that `in_module` executes, the source stands in line 2.
    assert f"{NODE_MODULE}.planted (<string>:2) called {function}()" in str(error)
    assert "Host's now_us" in str(error)


def test_library_through_which_a_node_reads_the_machine_is_named() -> None:
    """The node's own source does not contain the forbidden call, so the error names the library."""
    with pytest.raises(NodeTaskFailed, match=r"by way of tenacity\.wait: in virtual time"):
        run_with(in_module(NODE_MODULE, THROUGH_TENACITY), lambda _row: None)


@pytest.mark.parametrize(
    "module", ["chaos.checkers.planted", "coordlab.views.live", "tests.planted"]
)
def test_tool_beside_the_nodes_may_read_the_machine(module: str) -> None:
    """Checkers and displays are no nodes, so they may read clocks and draw ids.

    They observe the trace: whenever a node writes a row, they are called.
    """
    read_machine = in_module(module, "import time, uuid; time.time(); uuid.uuid4()")
    rows = []

    def observe(row: TraceRow) -> None:
        read_machine()
        rows.append(row)

    run_with(lambda: [], observe)
    assert rows


def test_other_threads_continue_during_a_run() -> None:
    """Only the thread of the run is watched. Other threads belong to Ray or to a display."""
    read_clock = in_module(NODE_MODULE, "import time; time.monotonic()")
    results_of_thread: list[list[str]] = []
    with tripwires():
        with pytest.raises(Tripped):
            read_clock()
        thread = threading.Thread(target=lambda: results_of_thread.append(read_clock()))
        thread.start()
        thread.join()
    assert results_of_thread == [[]]  # one call, which has not raised


def test_patched_functions_are_restored_after_the_last_run() -> None:
    """Runs may be nested, and may end with an error. The outermost run restores the functions."""
    functions_before = [getattr(owner, name) for owner, name in forbidden()]
    with pytest.raises(ZeroDivisionError), tripwires(), tripwires():
        raise ZeroDivisionError
    assert [getattr(owner, name) for owner, name in forbidden()] == functions_before
    # Outside of a run the call raises nothing.
    in_module(NODE_MODULE, "import time; time.time()")()


def test_all_drawing_functions_of_random_trip() -> None:
    """All functions of `random` that draw numbers, or read or set the state, are forbidden.

    The test checks some of these functions, and some of `time` and `uuid`.
    """
    names = {name for owner, name in forbidden() if owner in {time, random, uuid, os}}
    assert names >= {"time", "monotonic_ns", "random", "gauss", "seed", "getstate", "uuid1"}


def test_node_that_trips_breaks_an_explored_run_and_is_no_finding(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A run in which a node trips is BROKEN: the lab's code has failed, not Kafka's protocol."""
    read_clock = in_module(NODE_MODULE, "import time; time.time()")
    from cluster.broker.node import BrokerNode

    start = BrokerNode.start

    def start_and_read(self: BrokerNode) -> None:
        start(self)
        read_clock()

    monkeypatch.setattr(BrokerNode, "start", start_and_read)
    played = play(quick_experiment(), seed=0)

    assert played.result is PlayResult.BROKEN
    assert "called time.time()" in played.reasons[0]
