"""Events a second of VirtualLoop, compared with a bare heapq loop that does the same work.

VirtualLoop is the event loop of runs in virtual time, which have a simulated clock. Here 100
clients send heartbeats to a server:

1. A client sends a request to the server, and sets a request timeout.
2. The server restarts the client's session timer, and answers.
3. The client cancels the request timeout, and sends the next request after 3 s.

No timeout ever expires. An event is a message that arrives, or a request that is sent.

This work is written three times: with plain callbacks on VirtualLoop, with coroutines on
VirtualLoop, and with the least code that can do it at all. The third version is the baseline: a
heap of tuples, without classes, methods or limits.
"""

import random
import statistics
import time
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

from benchmarks.measurement import Measurement, machine, median_ratio
from cluster.virtual.loop import VirtualLoop
from cluster.virtual.loop_timer import LoopTimer

CLIENTS = 100
EVENTS = 60_000
ROUNDS = 9
# This time and the two timeouts are the defaults of Kafka's consumer.
HEARTBEAT_US = 3_000_000
"""The time between two heartbeats."""
REQUEST_TIMEOUT_US = 30_000_000
SESSION_TIMEOUT_US = 45_000_000
CALLBACKS_GOAL = 0.6
"""Least ratio of VirtualLoop's events a second to those of the bare loop."""


def _latencies() -> list[int]:
    """Return 4,096 latencies in microseconds. Event number n has the latency n modulo 4,096."""
    rng = random.Random(1)
    return [rng.randrange(150, 4_000) for _ in range(4_096)]


def bare_heap() -> float:
    """Return events per CPU second of the bare loop."""
    latencies = _latencies()
    # An entry is a time, a sequence number, a callback and its arguments. Because of the sequence
    # number, entries with the same time are never compared by their callbacks.
    heap: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
    now_us = sequence = events = 0
    # The session timer of each client. Here a timer is only a list with one flag, which becomes
    # True when the timer is cancelled.
    sessions: list[list[bool]] = [[False] for _ in range(CLIENTS)]

    def expire(cancelled: list[bool]) -> None:
        if not cancelled[0]:
            raise RuntimeError("a timer fired that should have been cancelled")

    def send(client: int) -> None:
        """Send a request, and set its timeout (step 1)."""
        nonlocal sequence, events
        events += 1
        timeout = [False]
        sequence += 2  # `sequence - 1` and `sequence` are the numbers of the two entries below
        heappush(heap, (now_us + REQUEST_TIMEOUT_US, sequence - 1, expire, (timeout,)))
        # `& 4_095` is the event's number modulo 4,096, the number of latencies.
        arrival_us = now_us + latencies[events & 4_095]
        heappush(heap, (arrival_us, sequence, serve, (client, timeout)))

    def serve(client: int, timeout: list[bool]) -> None:
        """Restart the client's session timer, and answer (step 2)."""
        nonlocal sequence, events
        events += 1
        sessions[client][0] = True
        session = [False]
        sessions[client] = session
        sequence += 2
        heappush(heap, (now_us + SESSION_TIMEOUT_US, sequence - 1, expire, (session,)))
        arrival_us = now_us + latencies[events & 4_095]
        heappush(heap, (arrival_us, sequence, answered, (client, timeout)))

    def answered(client: int, timeout: list[bool]) -> None:
        """Cancel the request timeout, and plan the next request (step 3)."""
        nonlocal sequence, events
        events += 1
        timeout[0] = True
        sequence += 1
        heappush(heap, (now_us + HEARTBEAT_US, sequence, send, (client,)))

    for client in range(CLIENTS):
        sequence += 1
        # The clients start one microsecond apart.
        heappush(heap, (client, sequence, send, (client,)))
    started = time.process_time()
    while events < EVENTS:
        now_us, _, callback, args = heappop(heap)
        callback(*args)
    return events / (time.process_time() - started)


def virtual_callbacks() -> float:
    """Return events per CPU second of VirtualLoop with plain callbacks, as nodes use it."""
    latencies = _latencies()
    loop = VirtualLoop()
    events = 0

    def expire() -> None:
        raise RuntimeError("a timer fired that should have been cancelled")

    sessions = [loop.call_at_us(SESSION_TIMEOUT_US, expire) for _ in range(CLIENTS)]

    # The next three functions do the steps 1, 2 and 3, as in `bare_heap`.
    def send(client: int) -> None:
        nonlocal events
        events += 1
        now_us = loop.now_us()
        timeout = loop.call_at_us(now_us + REQUEST_TIMEOUT_US, expire)
        loop.post_at(now_us + latencies[events & 4_095], serve, client, timeout)

    def serve(client: int, timeout: LoopTimer) -> None:
        nonlocal events
        events += 1
        now_us = loop.now_us()
        sessions[client].cancel()
        sessions[client] = loop.call_at_us(now_us + SESSION_TIMEOUT_US, expire)
        loop.post_at(now_us + latencies[events & 4_095], answered, client, timeout)

    def answered(client: int, timeout: LoopTimer) -> None:
        nonlocal events
        events += 1
        timeout.cancel()
        loop.post_at(loop.now_us() + HEARTBEAT_US, send, client)
        if events >= EVENTS:
            loop.stop()

    for client in range(CLIENTS):
        loop.post_at(client, send, client)
    started = time.process_time()
    loop.run_forever()
    return events / (time.process_time() - started)


def virtual_coroutines() -> float:
    """Return events per CPU second with the clients as coroutines that await futures."""
    latencies = _latencies()
    loop = VirtualLoop()
    events = 0
    done = loop.create_future()

    def expire() -> None:
        raise RuntimeError("a timer fired that should have been cancelled")

    sessions = [loop.call_at_us(SESSION_TIMEOUT_US, expire) for _ in range(CLIENTS)]

    def serve(client: int, future: Any) -> None:  # noqa: ANN401  # a Future of nothing
        nonlocal events
        events += 1
        now_us = loop.now_us()
        sessions[client].cancel()
        sessions[client] = loop.call_at_us(now_us + SESSION_TIMEOUT_US, expire)
        loop.post_at(now_us + latencies[events & 4_095], future.set_result, None)

    async def run_client(client: int) -> None:
        nonlocal events
        while True:
            future = loop.create_future()
            now_us = loop.now_us()
            timeout = loop.call_at_us(now_us + REQUEST_TIMEOUT_US, expire)
            loop.post_at(now_us + latencies[events & 4_095], serve, client, future)
            await future
            timeout.cancel()
            # The request that was sent, and the answer. `serve` has counted the request's arrival.
            events += 2
            if events >= EVENTS and not done.done():
                done.set_result(None)
            woken = loop.create_future()
            loop.post_at(loop.now_us() + HEARTBEAT_US, woken.set_result, None)
            await woken

    tasks = [loop.create_task(run_client(client)) for client in range(CLIENTS)]
    started = time.process_time()
    loop.run_until_complete(done)
    speed = events / (time.process_time() - started)
    for task in tasks:
        task.cancel()
    loop.run_until_us(loop.now_us())  # the cancelled tasks end in this call
    return speed


def run() -> tuple[Measurement, ...]:
    """Measure the three programs in turn; ratios are medians over the rounds."""
    bare, callbacks, coroutines = [], [], []
    for _ in range(ROUNDS):
        bare.append(bare_heap())
        callbacks.append(virtual_callbacks())
        coroutines.append(virtual_coroutines())
    callbacks_ratio = median_ratio(callbacks, bare)
    return (
        Measurement(
            name="virtual loop, callbacks",
            value=statistics.median(callbacks),
            baseline=statistics.median(bare),
            unit="events/s",
            baseline_name="bare heapq loop",
            ratio=callbacks_ratio,
            goal=f"at least {CALLBACKS_GOAL}",
            met=callbacks_ratio >= CALLBACKS_GOAL,
        ),
        Measurement(
            name="virtual loop, coroutines",
            value=statistics.median(coroutines),
            baseline=statistics.median(bare),
            unit="events/s",
            baseline_name="bare heapq loop",
            ratio=median_ratio(coroutines, bare),
        ),
    )


def main() -> None:
    """Print the figures and the machine."""
    print(machine())
    for measurement in run():
        print(measurement.line())


if __name__ == "__main__":
    main()
