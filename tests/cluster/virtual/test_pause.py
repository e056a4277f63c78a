"""A paused host: its connections stay open, and at the resume it catches up in a fixed order.

A node is a simulated process. Its host gives it clock and network. The pause of a host stops its
node as SIGSTOP stops a process. A frame is one message on a connection.

`lab` has hosts on one network, with a latency of LATENCY_US in each direction. `lab.run_for(0)`
runs what is due now. An EchoServer answers each heartbeat at once. It keeps the heartbeats of its
`parked_groups` unanswered until `release` is called.
"""

import asyncio

import pytest

from cluster.host.host import Connection, Disconnected, RequestTimedOut
from cluster.links.rules import Cut
from cluster.virtual.host import VirtualHost
from protocol.api import AnyResponse
from protocol.ids import NodeName
from protocol.trace import TraceEvent, TraceKind
from tests.support.builders.link_frames import rule
from tests.support.harness.virtual_hosts import LATENCY_US, EchoServer, HostLab, heartbeat

SERVER = NodeName("broker-0")
CLIENT = NodeName("client")
SETUP_US = 10_000
"""Timeout of opening a connection."""
TIMEOUT_US = 50_000
"""Timeout of a request."""


class Calls:
    """A client's connection and the outcomes of its requests.

    `outcomes` has triples: the request's group, the time, and the class name of the outcome.
    """

    def __init__(self, lab: HostLab, client: VirtualHost, purpose: str = "coordinator") -> None:
        self.lab = lab
        self.connection: Connection = client.connect(SERVER, purpose, setup_timeout_us=SETUP_US)
        self.outcomes: list[tuple[str, int, str]] = []

    def send(self, group: str) -> None:
        """Send a heartbeat of `group`."""

        def on_response(outcome: AnyResponse | Disconnected | RequestTimedOut) -> None:
            self.outcomes.append((group, self.lab.loop.now_us(), type(outcome).__name__))

        self.connection.send(heartbeat(group), timeout_us=TIMEOUT_US, on_response=on_response)


def test_a_paused_host_is_silent_and_its_connections_stay_open() -> None:
    """A stopped process neither answers nor closes its connections.

    So a client waits for its own timeout, or until the process is resumed.
    """
    lab = HostLab()
    server, client = EchoServer(lab.host(SERVER)), lab.host(CLIENT)
    # Two connections, because on one connection "b" would wait for the answer to "a".
    calls, late = Calls(lab, client), Calls(lab, client)
    lab.run_for(2 * LATENCY_US)  # both connections are open

    server.host.pause()
    assert server.host.is_paused
    calls.send("a")
    lab.run_for(TIMEOUT_US - 1)
    assert calls.outcomes == []
    assert calls.connection.is_open

    # "b" is sent one microsecond before the timeout of "a", so its own timeout is after the resume.
    late.send("b")
    lab.run_for(1)
    assert [(group, what) for group, _, what in calls.outcomes] == [("a", "RequestTimedOut")]

    lab.run_for(LATENCY_US)  # request "b" reaches the paused server

    server.host.resume()
    lab.run_for(LATENCY_US)
    assert not server.host.is_paused
    # The server also serves "a", because it cannot know that the client has given up.
    assert server.served_groups == ["a", "b"]
    assert late.outcomes == [("b", lab.loop.now_us(), "HeartbeatResponse")]
    assert late.connection.is_open


def test_an_open_to_a_paused_host_hangs_until_a_timeout_or_the_resume() -> None:
    """The kernel accepts a connection to a stopped process, but the process does not answer.

    The client opens two connections. The first one is closed by its setup timeout. The second one
    is begun later, so the resume comes before its timeout, and it opens.
    """
    lab = HostLab()
    server, client = EchoServer(lab.host(SERVER)), lab.host(CLIENT)
    server.host.pause()
    first = Calls(lab, client)
    lab.run_for(SETUP_US - 1)
    assert not first.connection.is_closed

    second = Calls(lab, client)
    lab.run_for(1)
    assert first.connection.is_closed
    lab.run_for(LATENCY_US)  # the second attempt to open reaches the paused server

    server.host.resume()
    lab.run_for(LATENCY_US)
    assert second.connection.is_open


def test_on_resume_due_timers_fire_first_in_due_order_then_frames_in_arrival_order() -> None:
    """A resumed node first acts on its old state, and then learns of later events, as in Kafka.

    So a resumed coordinator may act once more before it learns that it was replaced.
    """
    lab = HostLab()
    host, client = lab.host(SERVER), lab.host(CLIENT)
    seen: list[str] = []
    host.serve(lambda request: seen.append(f"request {request.envelope.correlation_id}"))

    # The purposes of the two connections, x and y, have no effect here.
    connections = [Calls(lab, client, purpose) for purpose in ("x", "y")]
    lab.run_for(2 * LATENCY_US)

    async def sleeper() -> None:
        await host.sleep(200)
        seen.append("sleeper")

    # The number in a timer's name is its delay. `first` is the timer with the shortest delay. It
    # cancels another timer that is due, and sets two new ones.
    def first() -> None:
        seen.append("timer 100")
        doomed.cancel()
        host.after(0, seen.append, "made for now")
        host.after(5, seen.append, "made for later")

    host.spawn(sleeper(), name="sleeper")
    lab.run_for(1)  # the sleeper begins to sleep
    host.after(300, seen.append, "timer 300")
    doomed = host.after(250, seen.append, "cancelled by the timer at 100")
    host.after(100, first)
    host.after(5_000, seen.append, "timer 5000")  # not due at the resume
    connections[1].send("g")  # it arrives first and has the correlation id 0
    lab.run_for(10)
    connections[0].send("g")

    host.pause()
    lab.run_for(3_000)
    assert seen == []

    host.resume()
    lab.run_for(0)

    # Timers come first, in the order of their due times. "timer 5000" and "made for later" are not
    # due yet. The sleeper's timer, due at 200, only makes its task ready to run. The task takes its
    # step after the other timers. The requests come last, in the order of their arrival.
    assert seen == [
        "timer 100",
        "timer 300",
        "made for now",
        "sleeper",
        "request 0",
        "request 1",
    ]
    assert host.now_us() == lab.loop.now_us()
    seen.clear()
    lab.run_for(4)
    assert seen == []
    lab.run_for(1)
    assert seen == ["made for later"]
    # "timer 5000" was set 3,010 us before the resume, and 5 us have passed since the resume. Wait
    # until one microsecond is left.
    lab.run_for(5_000 - 3_010 - 5 - 1)
    assert seen == ["made for later"]
    lab.run_for(1)
    assert seen == ["made for later", "timer 5000"]


def test_a_step_that_was_ready_waits_for_the_resume() -> None:
    """One callback sets the event that a task waits for, and pauses the task's host.

    The task is then ready to run, but a paused process runs nothing until the resume.
    """
    lab = HostLab()
    host = lab.host(SERVER)
    event = asyncio.Event()
    seen: list[int] = []

    async def waiter() -> None:
        await event.wait()
        seen.append(host.now_us())
        # Like most tasks of nodes, the task also uses its host. No assertion needs this row.
        host.trace(TraceEvent(kind=TraceKind.RUN_STAGE))

    def wake_and_stop() -> None:
        event.set()
        host.pause()

    host.spawn(waiter(), name="waiter")
    lab.loop.post_at(100, wake_and_stop)
    lab.run_for(500)
    assert seen == []
    host.resume()
    lab.run_for(0)
    assert seen == [500]  # the time of the resume


def test_a_host_paused_again_in_the_instant_of_its_resume_has_done_nothing() -> None:
    """A host that is paused before its first step after a resume has not acted in between.

    The timers and frames wait for the next resume, in the same order.
    """
    lab = HostLab()
    host, client = lab.host(SERVER), lab.host(CLIENT)
    server = EchoServer(host)
    calls = Calls(lab, client)
    lab.run_for(2 * LATENCY_US)
    fired: list[int] = []
    host.after(10, lambda: fired.append(host.now_us()))

    host.pause()
    calls.send("a")
    lab.run_for(1_000)
    # Resume and pause in the same instant.
    host.resume()
    host.pause()
    lab.run_for(1_000)

    assert fired == []
    assert server.served == []

    host.resume()
    lab.run_for(0)
    assert fired == [lab.loop.now_us()]
    assert server.served_groups == ["a"]
    host.resume()  # no effect, because the node runs
    lab.run_for(1_000)
    assert server.served_groups == ["a"]


def test_a_paused_host_can_be_killed() -> None:
    """The kernel then resets the host's connections, also those that the host has not accepted."""
    lab = HostLab()
    server, client = EchoServer(lab.host(SERVER)), lab.host(CLIENT)
    calls = Calls(lab, client)
    lab.run_for(2 * LATENCY_US)
    fired: list[str] = []
    server.host.after(50, fired.append, "timer")
    server.host.pause()
    calls.send("a")
    waiting = Calls(lab, client)  # a connection that the paused host cannot accept

    lab.run_for(500)
    server.host.crash()
    assert not server.host.is_paused
    lab.run_for(LATENCY_US)
    assert calls.connection.is_closed
    assert waiting.connection.is_closed
    assert [what for _, _, what in calls.outcomes] == ["Disconnected"]
    # A resume of the dead host has no effect.
    server.host.resume()
    lab.run_for(1_000)
    assert fired == []
    assert server.served == []
    assert lab.failures == []


def test_a_paused_host_has_the_link_rules_when_it_resumes() -> None:
    """Rules that change during a pause are in force before any timer of the resumed host fires.

    So no frame leaves under the old rules.
    """
    lab = HostLab()
    server, client = EchoServer(lab.host(SERVER), parked_groups=("p",)), lab.host(CLIENT)
    calls = Calls(lab, client)
    calls.send("p")
    # The connection opens within two latencies, and the request arrives one latency later.
    lab.run_for(4 * LATENCY_US)
    # During the pause the timer that answers "p" becomes due, and the rules change.
    server.host.after(10, server.release)
    server.host.pause()
    lab.set_rules(rule(Cut(), sources=(SERVER,), destinations=(CLIENT,)))
    lab.run_for(1_000)
    server.host.resume()
    lab.run_for(1_000)
    # The timer has fired, and the cut holds the answer back.
    assert server.parked == []
    assert calls.outcomes == []

    server.host.pause()
    lab.set_rules()
    lab.run_for(1_000)
    assert calls.outcomes == []  # the answer waits in the stopped process

    server.host.resume()
    lab.run_for(LATENCY_US)
    assert [what for _, _, what in calls.outcomes] == ["HeartbeatResponse"]


def test_frames_held_by_a_cut_follow_the_due_timers_of_a_resumed_host() -> None:
    """A cut is healed during a pause. The held frames then wait as if they had just arrived.

    So at the resume the timers that are due come before these frames.
    """
    lab = HostLab()
    host, client = lab.host(SERVER), lab.host(CLIENT)
    seen: list[str] = []
    # This server answers nothing.
    host.serve(lambda request: seen.append(f"request {request.envelope.correlation_id}"))
    calls = Calls(lab, client)
    lab.run_for(2 * LATENCY_US)

    async def sleeper() -> None:
        await host.sleep(500)
        seen.append("sleeper")

    host.spawn(sleeper(), name="sleeper")
    # This server does not read the group, so the group only says what the request is for.
    calls.send("on its way when the cut begins")
    lab.run_for(LATENCY_US // 2)  # the request has gone half of its way
    lab.set_rules(rule(Cut(), sources=(CLIENT,), destinations=(SERVER,)))
    lab.run_for(LATENCY_US)

    host.pause()
    lab.set_rules()
    calls.send("after the cut")
    lab.run_for(1_000)
    host.resume()
    lab.run_for(0)

    # Request 1 waits, because request 0 of the same connection has no answer yet.
    assert seen == ["sleeper", "request 0"]

    host.crash()
    lab.run_for(LATENCY_US)
    # The crash ends both requests: neither has had an answer.
    assert [what for _, _, what in calls.outcomes] == ["Disconnected"] * 2


@pytest.mark.parametrize("paused", [SERVER, CLIENT])
def test_a_reset_of_links_reaches_a_paused_end_when_it_resumes(paused: NodeName) -> None:
    """The kernel ends the connection without delay. A paused process learns of it at its resume."""
    lab = HostLab()
    server, client = EchoServer(lab.host(SERVER)), lab.host(CLIENT)
    hosts = {SERVER: server.host, CLIENT: client}
    calls = Calls(lab, client)
    lab.run_for(2 * LATENCY_US)
    calls.send("a")

    hosts[paused].pause()
    lab.run_for(3 * LATENCY_US)  # longer than the way of the request and of its answer

    # `reset_links` returns a frame for each connection that it resets. Its second argument limits
    # the reset to some purposes of connections; empty means all.
    assert len(client.reset_links((SERVER,), ())) == 1
    assert len(server.host.reset_links((CLIENT,), ())) == 1
    lab.run_for(LATENCY_US)
    # A client that is not paused knows of the reset already.
    client_runs = paused == SERVER
    assert calls.connection.is_closed is client_runs
    hosts[paused].resume()
    lab.run_for(LATENCY_US)
    assert calls.connection.is_closed
    assert [what for _, _, what in calls.outcomes] == ["Disconnected"]
    # The request waited at a paused server, and is lost. A running server has served it already.
    assert len(server.served) == (0 if paused == SERVER else 1)
