"""VirtualLoop, an asyncio event loop with a simulated clock.

If the loop has nothing to do now, its time jumps to the next timer. So a day of virtual time can
pass in a moment. The time is counted in whole microseconds. Callbacks that are due in the same
microsecond, the same instant, run in the order in which they were scheduled. A callback that raises
ends the run. Sockets, threads and processes are refused, because their results do not depend on the
seed of a run.

`post` schedules a callback for now, and `post_at` for a given time. `call_at_us` and asyncio's own
methods also schedule a callback, and return a timer that can be cancelled.
"""

import asyncio
import contextvars
import socket

import pytest

from cluster.virtual.loop import COMPACT_ABOVE, Deadlock, InstantNeverEnds, VirtualLoop
from cluster.virtual.loop_timer import LoopTimer


def test_time_jumps_to_the_next_timer_and_is_counted_in_microseconds() -> None:
    """A day passes without waiting, and times that differ by one microsecond keep their order."""
    loop = VirtualLoop()
    calls: list[tuple[str, int]] = []

    def record_call(label: str) -> None:
        calls.append((label, loop.now_us()))

    day_us = 86_400_000_000
    for label, when_us in (("day", day_us), ("two", 2), ("one", 1)):
        loop.post_at(when_us, record_call, label)
    loop.run_until_us(day_us)
    assert calls == [("one", 1), ("two", 2), ("day", day_us)]
    assert loop.time() == 86_400.0


def test_equal_times_run_first_in_first_out_for_timers_and_callbacks() -> None:
    """Callbacks for the same time run in the order of scheduling.

    It does not matter which of the three methods has scheduled a callback.

    Asyncio's own loop does not keep this order: its heap compares only the times of timers, so
    timers with equal times come out in any order.
    """
    loop = VirtualLoop()
    calls: list[int] = []
    for i in range(30):
        match i % 3:
            case 0:
                loop.post_at(1_000, calls.append, i)
            case 1:
                loop.call_at_us(1_000, calls.append, i)
            case _:
                loop.call_later(0.001, calls.append, i)  # in seconds: 1,000 us, too
    loop.run_until_us(1_000)
    assert calls == list(range(30))


def test_callbacks_added_within_an_instant_run_after_those_that_were_due() -> None:
    """A callback scheduled for now, or for the past, runs after those that are due already."""
    loop = VirtualLoop()
    calls: list[str] = []

    def first() -> None:
        calls.append("first")
        loop.post(calls.append, "posted")
        loop.post_at(loop.now_us(), calls.append, "posted at now")
        loop.call_soon(calls.append, "called soon")
        loop.post_at(loop.now_us() - 5, calls.append, "posted at a time in the past")

    loop.post_at(10, first)
    loop.post_at(10, calls.append, "second")
    loop.run_until_us(10)
    assert calls == [
        "first",
        "second",
        "posted",
        "posted at now",
        "called soon",
        "posted at a time in the past",
    ]


def test_a_cancelled_timer_does_not_run_and_does_not_move_the_clock() -> None:
    """A loop that has only cancelled timers has nothing to do, so its clock stays at 0.

    A future that nothing can complete is then a deadlock at once, at 0 us.
    """
    loop = VirtualLoop()
    calls: list[str] = []
    loop.call_at_us(50, calls.append, "a timer of the loop").cancel()
    loop.call_later(0.00005, calls.append, "a timer of asyncio").cancel()
    with pytest.raises(Deadlock, match="at 0 us"):
        loop.run_until_complete(loop.create_future())
    assert calls == []


def test_a_timer_cancelled_at_its_own_instant_does_not_run() -> None:
    """An answer and the timeout of its request are due in the same microsecond.

    The callback that was scheduled first runs first. Here this is the answer, which cancels the
    timeout.
    """
    loop = VirtualLoop()
    calls: list[str] = []
    timers: list[LoopTimer] = []

    def answer_arrives() -> None:
        timers[0].cancel()

    loop.post_at(5, answer_arrives)
    timers.append(loop.call_at_us(5, calls.append, "timeout"))
    loop.run_until_us(5)
    assert calls == []


def test_waiting_for_an_event_that_cannot_happen_is_a_deadlock() -> None:
    """Nothing is scheduled, so nobody can ever complete the future. The loop raises an error."""
    loop = VirtualLoop()
    with pytest.raises(Deadlock):
        loop.run_until_complete(loop.create_future())


def test_an_instant_that_never_ends_is_an_error_naming_the_callback() -> None:
    """Callbacks that schedule each other without delay would never let time pass.

    So the loop allows only a limited number of callbacks in an instant, here 100.
    """
    loop = VirtualLoop(max_events_per_instant=100)

    def again() -> None:
        loop.post(again)

    loop.post_at(7, again)
    with pytest.raises(InstantNeverEnds, match=r"at 7 us.*again"):
        loop.run_until_us(10)


def test_the_limit_counts_per_instant_not_per_run() -> None:
    """The limit is 10 callbacks in each instant. A run of many instants may have 501 callbacks."""
    loop = VirtualLoop(max_events_per_instant=10)
    count = 0

    def tick() -> None:
        nonlocal count
        count += 1
        loop.post_at(loop.now_us() + 1, tick)

    loop.post(tick)
    loop.run_until_us(500)
    assert count == 501  # at 0, 1, ... 500 us


def test_an_exception_leaves_the_run_and_the_loop_can_run_on() -> None:
    """The caller of the run gets the exception of the callback.

    The caller can then run the loop again, for instance to undo faults and to stop the nodes.
    """
    loop = VirtualLoop()
    calls: list[str] = []

    def fail() -> None:
        raise ValueError("broken")

    loop.post_at(1, fail)
    loop.post_at(1, calls.append, "after")
    with pytest.raises(ValueError, match="broken"):
        loop.run_until_us(10)
    # The second run goes on with the next callback of the same instant.
    loop.run_until_us(10)
    assert calls == ["after"]


def test_run_until_complete_can_be_called_again_after_an_interrupt() -> None:
    """Ctrl-C stops the loop between two callbacks.

    Then the runtime runs the same loop again, to undo the faults of the run. In this test
    `loop.interrupt()` takes the place of Ctrl-C.
    """
    loop = VirtualLoop()
    calls: list[str] = []

    async def main() -> None:
        await asyncio.sleep(1)
        loop.interrupt()
        calls.append("the callback that was running ends")
        await asyncio.sleep(1)
        calls.append("main ends")

    task = loop.create_task(main())
    with pytest.raises(KeyboardInterrupt):
        loop.run_until_complete(task)
    assert calls == ["the callback that was running ends"]
    loop.run_until_complete(task)
    assert calls[-1] == "main ends"
    assert loop.now_us() == 2_000_000


def test_run_until_complete_returns_or_raises_the_futures_result() -> None:
    """The caller gets the result or the exception, as with asyncio's own loop."""

    async def answer() -> int:
        await asyncio.sleep(0.5)
        return 42

    async def fail() -> None:
        await asyncio.sleep(0.5)
        raise LookupError("no")

    loop = VirtualLoop()
    assert loop.run_until_complete(answer()) == 42
    with pytest.raises(LookupError):
        loop.run_until_complete(fail())


def test_the_standard_library_runs_on_the_loop() -> None:
    """Experiments and libraries may use asyncio's timeouts, queues and events."""
    loop = VirtualLoop()

    async def main() -> list[object]:
        queue: asyncio.Queue[int] = asyncio.Queue(1)
        event = asyncio.Event()

        async def producer() -> None:
            for number in range(3):
                await queue.put(number)
                await asyncio.sleep(1)
            event.set()

        task = asyncio.create_task(producer())
        results: list[object] = [await queue.get() for _ in range(3)]
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.25):
                await event.wait()

        results.append(round(loop.time(), 6))  # rounded to whole microseconds

        await event.wait()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(loop.create_future(), 2)

        results.append(await asyncio.gather(asyncio.sleep(1, "a"), asyncio.sleep(0, "b")))

        await task
        results.append(loop.time())
        return results

    # The numbers are put at 0, 1 and 2 s. The timeout of 0.25 s ends at 2.25 s. The event is set at
    # 3 s. `wait_for` takes until 5 s, and `gather` until 6 s.
    assert loop.run_until_complete(main()) == [0, 1, 2, 2.25, ["a", "b"], 6.0]


def test_sockets_threads_and_processes_are_refused() -> None:
    """Their results depend on the machine, but a run must depend on its seed alone."""
    loop = VirtualLoop()

    async def main() -> None:
        with pytest.raises(NotImplementedError):
            await asyncio.to_thread(print)
        with pytest.raises(NotImplementedError):
            await asyncio.open_connection("localhost", 80)
        with pytest.raises(NotImplementedError):
            await asyncio.create_subprocess_exec("true")
        with socket.socket() as sock, pytest.raises(NotImplementedError):
            await loop.sock_recv(sock, 1)

    loop.run_until_complete(main())


def test_discard_removes_only_what_is_ready_in_one_context() -> None:
    """A crashed node must not run on, even if some of its tasks are ready to run.

    All tasks of a node have the same context. `discard` removes everything that is ready to run in
    the context of the crashed node. Other nodes go on.
    """
    loop = VirtualLoop()
    dead, alive = contextvars.Context(), contextvars.Context()
    calls: list[str] = []

    async def sleep_and_clean_up(label: str) -> None:
        try:
            await asyncio.sleep(1)
            calls.append(label)
        finally:
            calls.append(f"{label} cleaned up")

    task_of_dead = loop.create_task(sleep_and_clean_up("dead"), context=dead)
    task_of_alive = loop.create_task(sleep_and_clean_up("alive"), context=alive)
    loop.run_until_us(1)  # both tasks sleep

    # Both tasks are now ready to run their `finally` blocks.
    task_of_dead.cancel()
    task_of_alive.cancel()

    loop.discard(dead)
    loop.run_until_us(2_000_000)
    assert calls == ["alive cleaned up"]
    # The discarded task never ends. This keeps asyncio from warning about it.
    task_of_dead._log_destroy_pending = False  # type: ignore[attr-defined]


def test_a_loop_refuses_to_run_inside_another_or_after_close() -> None:
    """As with asyncio's own loop, both attempts raise a RuntimeError."""
    outer, inner = VirtualLoop(), VirtualLoop()

    async def main() -> None:
        inner.run_until_us(1)

    with pytest.raises(RuntimeError, match="another event loop"):
        outer.run_until_complete(main())
    outer.close()
    with pytest.raises(RuntimeError, match="closed"):
        outer.run_until_us(1)


def test_cancelled_timers_are_removed_and_the_others_keep_their_order() -> None:
    """From time to time the loop removes the cancelled timers from its heap, to keep it small.

    The removal must not change the order of the other timers. The test makes these timers, and
    cancels all but the first of each hundred:

    - The timers 0 to 99 are due at 1,000 us. The test cancels 1 to 99.
    - The timers 100 to 199 are due at 1,001 us. The test cancels 101 to 199.
    - The timers 200 to 299 are due at 1,000 us again, and so on.
    """
    loop = VirtualLoop()
    calls: list[int] = []
    count = 10 * COMPACT_ABOVE
    for number in range(count):
        hundred = number // 100
        timer = loop.call_at_us(1_000 + hundred % 2, calls.append, number)
        if number % 100 != 0:
            timer.cancel()
            timer.cancel()  # a second call has no effect
    assert len(loop._heap) <= 2 * COMPACT_ABOVE
    loop.run_until_us(2_000)
    due_at_1_000 = range(0, count, 200)  # 0, 200, 400, ...
    due_at_1_001 = range(100, count, 200)  # 100, 300, 500, ...
    assert calls == [*due_at_1_000, *due_at_1_001]


def test_exception_of_the_awaited_task_stops_no_later_run() -> None:
    """A stop that was meant for an interrupted run must not stop the next one.

    1. The task that `run_until_complete` waits for ends. This schedules a callback that stops the
       loop.
    2. A KeyboardInterrupt leaves the loop before the callback runs.
    3. The callback runs in the next run, here that of `heal`, which must go on.
    """
    loop = VirtualLoop()
    healed: list[str] = []

    async def interrupted() -> None:
        raise KeyboardInterrupt

    async def heal() -> None:
        await asyncio.sleep(1)
        healed.append("everything")

    with pytest.raises(KeyboardInterrupt):
        loop.run_until_complete(interrupted())
    loop.run_until_complete(heal())

    assert healed == ["everything"]
