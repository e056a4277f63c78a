"""VirtualLoop against a bare heapq loop, on the same workload, interleaved in one process.

The workload is that of heartbeats: 100 clients send a request over a link to a server, which
re-arms their session timer and answers; the client arms a request timeout with each request and
cancels it with the answer. The baseline is the least code that can run it: a heap of tuples, pushed
to and popped from in place, without classes, methods, cancellation (a flag in a list) or limits. An
event is a delivery or a timer that fires.
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
HEARTBEAT_US = 3_000_000
REQUEST_TIMEOUT_US = 30_000_000
SESSION_TIMEOUT_US = 45_000_000


def _latencies() -> list[int]:
    rng = random.Random(1)
    return [rng.randrange(150, 4_000) for _ in range(4_096)]


def bare_heap() -> float:
    """Return events per CPU second of the bare loop."""
    latencies = _latencies()
    heap: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
    now_us = sequence = events = 0
    sessions: list[list[bool]] = [[False] for _ in range(CLIENTS)]

    def expire(cancelled: list[bool]) -> None:
        if not cancelled[0]:
            raise RuntimeError("nobody times out here")

    def send(client: int) -> None:
        nonlocal sequence, events
        events += 1
        timeout = [False]
        sequence += 2
        heappush(heap, (now_us + REQUEST_TIMEOUT_US, sequence - 1, expire, (timeout,)))
        arrival_us = now_us + latencies[events & 4_095]
        heappush(heap, (arrival_us, sequence, serve, (client, timeout)))

    def serve(client: int, timeout: list[bool]) -> None:
        nonlocal sequence, events
        events += 1
        sessions[client][0] = True
        sessions[client] = session = [False]
        sequence += 2
        heappush(heap, (now_us + SESSION_TIMEOUT_US, sequence - 1, expire, (session,)))
        arrival_us = now_us + latencies[events & 4_095]
        heappush(heap, (arrival_us, sequence, answered, (client, timeout)))

    def answered(client: int, timeout: list[bool]) -> None:
        nonlocal sequence, events
        events += 1
        timeout[0] = True
        sequence += 1
        heappush(heap, (now_us + HEARTBEAT_US, sequence, send, (client,)))

    for client in range(CLIENTS):
        sequence += 1
        heappush(heap, (client, sequence, send, (client,)))
    started = time.process_time()
    while events < EVENTS:
        now_us, _, callback, args = heappop(heap)
        callback(*args)
    return events / (time.process_time() - started)


def virtual_callbacks() -> float:
    """Return events per CPU second of VirtualLoop's lean path."""
    latencies = _latencies()
    loop = VirtualLoop()
    events = 0

    def expire() -> None:
        raise RuntimeError("nobody times out here")

    sessions = [loop.call_at_us(SESSION_TIMEOUT_US, expire) for _ in range(CLIENTS)]

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
        raise RuntimeError("nobody times out here")

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
    loop.run_until_us(loop.now_us())
    return speed


def run() -> tuple[Measurement, ...]:
    """Measure all three, interleaved; ratios are medians over the rounds."""
    rounds = [(bare_heap(), virtual_callbacks(), virtual_coroutines()) for _ in range(ROUNDS)]
    bare = statistics.median(r[0] for r in rounds)
    callbacks_ratio = median_ratio([r[1] for r in rounds], [r[0] for r in rounds])
    return (
        Measurement(
            name="virtual loop, callbacks",
            value=statistics.median(r[1] for r in rounds),
            baseline=bare,
            unit="events/s",
            baseline_name="bare heapq loop",
            ratio=callbacks_ratio,
            goal="at least 0.6",
            met=callbacks_ratio >= 0.6,
        ),
        Measurement(
            name="virtual loop, coroutines",
            value=statistics.median(r[2] for r in rounds),
            baseline=bare,
            unit="events/s",
            baseline_name="bare heapq loop",
            ratio=median_ratio([r[2] for r in rounds], [r[0] for r in rounds]),
        ),
    )


def main() -> None:
    """Print the figures and the machine."""
    print(machine())
    for measurement in run():
        print(measurement.line())


if __name__ == "__main__":
    main()
