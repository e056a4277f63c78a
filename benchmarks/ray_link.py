"""The speed of the TCP connections between nodes on Ray, compared with calls of Ray's actors.

On Ray, each node runs in an actor: a process whose methods other processes can call. Nodes could
send each message as such a call. But they have TCP connections of their own (the link), and this
benchmark shows why.

Two actors run on one machine. The first actor sends heartbeats, and the second actor answers. They
use both ways in turn: the link, and calls of the actor. Two figures are measured for each way: the
round trip of a request if each request waits for the answer to the last, and the requests a second
with many requests in flight.
"""

import asyncio
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import ray

from benchmarks.measurement import Measurement, machine, median_ratio
from cluster.host.host import Disconnected, Host, RequestTimedOut
from cluster.host.incoming_request import IncomingRequest
from cluster.ray.actors import LOCAL, LOOPBACK, connect_ray, disconnect_ray
from cluster.realtime.clock import RunClock
from cluster.realtime.host import RunSettings
from cluster.realtime.process import NodeProcess
from cluster.realtime.tcp import ProcessAddress
from cluster.runtime import ClusterStatus
from partition_log.memory_storage import MemoryStorage
from protocol.api import AnyResponse
from protocol.ids import Incarnation, NodeName
from protocol.messages.group import HeartbeatRequest, HeartbeatResponse

ROUNDS = 5
SEQUENTIAL_REQUESTS = 300
"""Number of requests, one after the other, whose round trips are measured in each round."""
LINK_REQUESTS = 40_000
"""Number of requests over the link in each measurement of requests per second."""
ACTOR_REQUESTS = 2_000
"""Number of actor calls in each measurement of requests per second. It is smaller, because a call
takes about 20 times as long as a request over the link."""
CONNECTIONS = 64
IN_FLIGHT = 512
"""Number of requests, or actor calls, that are in flight at the same time. The requests over the
link are spread over CONNECTIONS connections."""
GOAL_RATE = 20
"""Goal: the least ratio of the requests per second over the link to the actor calls per second."""
GOAL_ROUND_TRIP = 0.25
"""Goal: the largest ratio of a round trip over the link to the round trip of an actor call."""
TIMEOUT_US = 60_000_000  # so long that no request here times out
SERVER, CLIENT = NodeName("server"), NodeName("client")
REQUEST = HeartbeatRequest(group_id="orders-readers", generation_id=7, member_id="m" * 50)
"""The heartbeat that is sent. Its member id is as long as a real one: a client id and a UUID."""


class Responder:
    """A node that answers every heartbeat immediately."""

    def __init__(self, host: Host) -> None:
        self.host = host

    def start(self) -> None:
        """Begin to serve requests."""
        self.host.serve(self.handle)

    def handle(self, request: IncomingRequest) -> None:
        """Answer a heartbeat."""
        self.host.reply(request.request_id, HeartbeatResponse())

    def shut_down(self, on_done: Callable[[], None]) -> None:
        """Stop immediately."""
        on_done()

    def report(self, status: ClusterStatus) -> None:
        """Report nothing."""


class LinkEnd:
    """The class of both actors: a process with one node."""

    def __init__(self, name: NodeName, run_dir: str) -> None:
        self._name = name
        self._settings = RunSettings(
            run_id="bench",
            seed=1,
            token="bench",
            clock=RunClock.starting_now(),
            machine_dir=Path(run_dir),
            trace_messages=False,
        )

    async def listen(self) -> ProcessAddress:
        """Start the process's listener and its node."""
        # A process has one listener for all of its nodes. Here it has one node, of the same name.
        self._process = NodeProcess(self._name, self._settings)
        address = await self._process.listen(LOOPBACK)
        self._node = self._process.start_node(
            self._name, Incarnation(0), Responder, storage=MemoryStorage(), role="bench"
        )
        return address

    async def set_directory(self, directory: dict[NodeName, ProcessAddress]) -> None:
        """Set the addresses of the nodes."""
        self._process.set_directory(directory)

    async def answer(self, request: HeartbeatRequest) -> HeartbeatResponse:
        """Answer a heartbeat that came as a call of the actor."""
        return HeartbeatResponse()

    async def link_round_trips(self) -> float:
        """Return the median seconds of requests over the link that follow one another."""
        connection = self._node.host.connect(SERVER, "bench", setup_timeout_us=TIMEOUT_US)
        median = await _median_seconds(lambda: connection.call(REQUEST, timeout_us=TIMEOUT_US))
        connection.close()
        return median

    async def actor_round_trips(self, server: Any) -> float:  # noqa: ANN401 - an actor handle
        """Return the median seconds of actor calls that follow one another."""

        async def call() -> None:
            await server.answer.remote(REQUEST)

        return await _median_seconds(call)

    async def link_rate(self) -> float:
        """Return requests per second over the link with IN_FLIGHT requests in flight."""
        host = self._node.host
        connections = [
            host.connect(SERVER, f"bench-{number}", setup_timeout_us=TIMEOUT_US)
            for number in range(CONNECTIONS)
        ]
        # Send a first request on each connection, so that opening connections is not measured.
        await asyncio.gather(
            *(connection.call(REQUEST, timeout_us=TIMEOUT_US) for connection in connections)
        )
        done = asyncio.get_running_loop().create_future()
        sent = answered = 0

        def send(number: int) -> None:
            """Send a request on connection `number`, and a further one after each answer."""
            nonlocal sent
            sent += 1

            def on_response(outcome: AnyResponse | Disconnected | RequestTimedOut) -> None:
                nonlocal answered
                answered += 1
                if isinstance(outcome, Disconnected | RequestTimedOut):
                    done.set_exception(outcome)
                elif answered == LINK_REQUESTS:
                    done.set_result(None)
                elif sent < LINK_REQUESTS:
                    send(number)  # each answer makes room for one more request

            connections[number].send(REQUEST, timeout_us=TIMEOUT_US, on_response=on_response)

        started = time.perf_counter()
        for number in range(IN_FLIGHT):
            send(number % CONNECTIONS)
        await done
        seconds = time.perf_counter() - started
        for connection in connections:
            connection.close()
        return LINK_REQUESTS / seconds

    async def actor_rate(self, server: Any) -> float:  # noqa: ANN401 - an actor handle
        """Return actor calls per second with IN_FLIGHT calls in flight."""
        left = ACTOR_REQUESTS

        async def call_repeatedly() -> None:
            """Make calls, one after the other, until ACTOR_REQUESTS calls have begun in all."""
            nonlocal left
            while left > 0:
                left -= 1
                await server.answer.remote(REQUEST)

        started = time.perf_counter()
        await asyncio.gather(*(call_repeatedly() for _ in range(IN_FLIGHT)))
        return ACTOR_REQUESTS / (time.perf_counter() - started)


async def _median_seconds(call: Callable[[], Awaitable[object]]) -> float:
    """Make SEQUENTIAL_REQUESTS calls, one after the other, and return the median time of a call."""
    samples = []
    for _ in range(SEQUENTIAL_REQUESTS):
        started = time.perf_counter()
        await call()
        samples.append(time.perf_counter() - started)
    return statistics.median(samples)


def _measure(run_dir: str) -> tuple[Measurement, ...]:
    """Start both actors, measure both ways in turn, and return the two figures."""
    # With `num_cpus=0`, the actors need no free CPU to start. `max_concurrency` is the number of
    # calls that an actor handles at the same time. It is larger than IN_FLIGHT, so that no call
    # waits for another.
    actor_class = ray.remote(num_cpus=0, max_concurrency=2 * IN_FLIGHT)(LinkEnd)
    server, client = actor_class.remote(SERVER, run_dir), actor_class.remote(CLIENT, run_dir)
    addresses = ray.get([server.listen.remote(), client.listen.remote()])
    directory = dict(zip((SERVER, CLIENT), addresses, strict=True))
    ray.get([end.set_directory.remote(directory) for end in (server, client)])

    def interleaved(calls: tuple[Callable[[], Any], Callable[[], Any]]) -> list[list[float]]:
        """Call two functions in turn, ROUNDS times; return one list of values for each of them."""
        samples: list[list[float]] = [[], []]
        for round_number in range(ROUNDS + 1):
            for values, call in zip(samples, calls, strict=True):
                value = ray.get(call())
                if round_number > 0:  # the first round fills caches and is not measured
                    values.append(value)
        return samples

    link_s, actor_s = interleaved(
        (client.link_round_trips.remote, lambda: client.actor_round_trips.remote(server))
    )
    link_rate, actor_rate = interleaved(
        (client.link_rate.remote, lambda: client.actor_rate.remote(server))
    )
    trip_ratio, rate_ratio = median_ratio(link_s, actor_s), median_ratio(link_rate, actor_rate)
    return (
        Measurement(
            name="link: requests per second, in flight",
            value=statistics.median(link_rate),
            baseline=statistics.median(actor_rate),
            unit="1/s",
            baseline_name="raw actor calls",
            ratio=rate_ratio,
            goal=f"at least {GOAL_RATE}",
            met=rate_ratio >= GOAL_RATE,
            note=f"{IN_FLIGHT} in flight; two processes of one machine",
        ),
        Measurement(
            name="link: round trip, one after the other",
            value=statistics.median(link_s) * 1e6,
            baseline=statistics.median(actor_s) * 1e6,
            unit="us",
            baseline_name="raw actor call",
            ratio=trip_ratio,
            goal=f"at most {GOAL_ROUND_TRIP}",
            met=trip_ratio <= GOAL_ROUND_TRIP,
            note=f"medians of {SEQUENTIAL_REQUESTS} requests a round",
        ),
    )


def run() -> tuple[Measurement, ...]:
    """Start a local Ray, measure on it, and end it."""
    connect_ray(LOCAL)
    try:
        with tempfile.TemporaryDirectory() as run_dir:
            return _measure(run_dir)
    finally:
        disconnect_ray()


if __name__ == "__main__":
    print(machine())
    for measurement in run():
        print(measurement.line())
