"""A paused host: its connections stay open, and at the resume it catches up in a fixed order.

In virtual time a node is a simulated process. Its host gives it a clock, timers and connections. If
the host is paused, the node stands still, as a process after SIGSTOP: its tasks do not run, its
timers do not fire, and the frames (messages) that arrive for it wait. At the resume the host makes
up for what was held back: first the timers that are due, then the tasks, then the frames.

`lab` has hosts on one network, in which a frame takes LATENCY_US. `lab.run_for(n)` advances the
clock by n microseconds; `run_for(0)` runs what is due now. A connection is open after two
latencies: the request to open it arrives at the server, and the server's answer comes back. An
EchoServer answers each heartbeat at once. Only the heartbeats of its `parked_groups` wait until the
test calls `release`.
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
    """A client's connection, and the outcomes of the requests that were sent on it."""

    def __init__(self, lab: HostLab, client: VirtualHost, purpose: str = "coordinator") -> None:
        self.lab = lab
        self.connection: Connection = client.connect(SERVER, purpose, setup_timeout_us=SETUP_US)
        self.outcomes: list[tuple[str, int, str]] = []
        """For each request that has ended: its group, the time, and the class of its outcome.

        Example: `("a", 50_200, "RequestTimedOut")`.
        """

    def send(self, group: str) -> None:
        """Send a heartbeat of `group`. In most tests the group is only a name of the request."""

        def on_response(outcome: AnyResponse | Disconnected | RequestTimedOut) -> None:
            self.outcomes.append((group, self.lab.loop.now_us(), type(outcome).__name__))

        self.connection.send(heartbeat(group), timeout_us=TIMEOUT_US, on_response=on_response)


def test_a_paused_host_is_silent_and_its_connections_stay_open() -> None:
    """A stopped process neither answers nor closes its connections.

    So a client waits for its own timeout, or until the process is resumed.
    """
    lab = HostLab()
    server, client = EchoServer(lab.host(SERVER)), lab.host(CLIENT)
    # Request "b" has a connection of its own, because the timeout of "a" also ends the connection.
    for_a = Calls(lab, client)
    for_b = Calls(lab, client)
    lab.run_for(2 * LATENCY_US)  # both connections are open

    server.host.pause()
    assert server.host.is_paused
    for_a.send("a")
    lab.run_for(TIMEOUT_US - 1)
    assert for_a.outcomes == []
    assert for_a.connection.is_open

    # "b" is sent just before "a" times out, so the timeout of "b" comes long after the resume.
    for_b.send("b")
    lab.run_for(1)
    assert [(group, what) for group, _, what in for_a.outcomes] == [("a", "RequestTimedOut")]

    lab.run_for(LATENCY_US)  # request "b" reaches the paused server

    server.host.resume()
    lab.run_for(LATENCY_US)
    assert not server.host.is_paused
    # The server also serves "a", because it cannot know that the client has given up.
    assert server.served_groups == ["a", "b"]
    assert for_b.outcomes == [("b", lab.loop.now_us(), "HeartbeatResponse")]
    assert for_b.connection.is_open


def test_an_open_to_a_paused_host_hangs_until_a_timeout_or_the_resume() -> None:
    """A stopped process does not answer the open of a connection.

    The client opens two connections. Its first try ends with a timeout. The second try begins just
    before this timeout, so its own timeout is far away when the host resumes. Then the second
    connection opens.
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
    """A resumed node first acts on its old state. Then it learns of later events, as in Kafka.

    For example, a resumed coordinator may act once more before it learns that it was replaced.

    During the pause the timers with the delays 100, 250 and 300 become due, and the sleep of a task
    ends. Two requests arrive. The timer 100 itself cancels the timer 250 and sets two new timers.
    """
    lab = HostLab()
    host, client = lab.host(SERVER), lab.host(CLIENT)
    seen: list[str] = []
    host.serve(lambda request: seen.append(f"request {request.envelope.correlation_id}"))

    first_connection, second_connection = Calls(lab, client, "x"), Calls(lab, client, "y")
    lab.run_for(2 * LATENCY_US)

    async def sleeper() -> None:
        await host.sleep(200)
        seen.append("sleeper")

    def timer_100() -> None:
        seen.append("timer 100")
        timer_250.cancel()
        host.after(0, seen.append, "made for now")
        host.after(5, seen.append, "made for later")

    host.spawn(sleeper(), name="sleeper")
    lab.run_for(1)  # the sleeper begins to sleep
    host.after(300, seen.append, "timer 300")
    timer_250 = host.after(250, seen.append, "timer 250")
    host.after(100, timer_100)
    host.after(5_000, seen.append, "timer 5000")  # not due at the resume
    # The request on the second connection is sent first, so it is request 0.
    second_connection.send("g")
    lab.run_for(10)
    first_connection.send("g")

    host.pause()
    lab.run_for(3_000)
    assert seen == []

    host.resume()
    lab.run_for(0)

    # The timers come first, in the order of their times. The timer of the sleeper fires between
    # them, but the task itself runs only after them. The requests come last, in the order of their
    # arrival. "timer 5000" and "made for later" are not due yet.
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
    # "timer 5000" was set 10 + 3,000 us before the resume. 4 + 1 us have passed since the resume.
    # Wait until one microsecond is left.
    lab.run_for(5_000 - (10 + 3_000) - (4 + 1) - 1)
    assert seen == ["made for later"]
    lab.run_for(1)
    assert seen == ["made for later", "timer 5000"]


def test_a_task_that_was_ready_to_run_waits_for_the_resume() -> None:
    """One callback sets the event that a task waits for, and pauses the task's host.

    The task is then ready to run, but a paused process runs nothing until the resume.
    """
    lab = HostLab()
    host = lab.host(SERVER)
    event = asyncio.Event()
    woken_at_us: list[int] = []

    async def waiter() -> None:
        await event.wait()
        woken_at_us.append(host.now_us())
        host.trace(TraceEvent(kind=TraceKind.RUN_STAGE))  # would raise if the host were paused

    def wake_and_pause() -> None:
        event.set()
        host.pause()

    host.spawn(waiter(), name="waiter")
    lab.loop.post_at(100, wake_and_pause)
    lab.run_for(500)
    assert woken_at_us == []
    host.resume()
    lab.run_for(0)
    assert woken_at_us == [500]  # the time of the resume


def test_a_host_paused_again_in_the_instant_of_its_resume_has_done_nothing() -> None:
    """A resume and a second pause follow each other directly. The host has no time to act.

    Its timers and frames wait for the next resume, in the same order.
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
    host.resume()
    host.pause()
    lab.run_for(1_000)

    assert fired == []
    assert server.served == []

    host.resume()
    lab.run_for(0)
    assert fired == [lab.loop.now_us()]
    assert server.served_groups == ["a"]
    host.resume()  # no effect, because the host is not paused
    lab.run_for(1_000)
    assert server.served_groups == ["a"]


def test_a_paused_host_can_be_killed() -> None:
    """The kernel then resets the host's connections, even those that the host has not accepted."""
    lab = HostLab()
    server, client = EchoServer(lab.host(SERVER)), lab.host(CLIENT)
    calls = Calls(lab, client)
    lab.run_for(2 * LATENCY_US)
    fired: list[str] = []
    server.host.after(50, fired.append, "timer")
    server.host.pause()
    calls.send("a")
    not_accepted = Calls(lab, client)  # the paused host cannot accept this connection

    lab.run_for(500)
    server.host.crash()
    assert not server.host.is_paused
    lab.run_for(LATENCY_US)
    assert calls.connection.is_closed
    assert not_accepted.connection.is_closed
    assert [what for _, _, what in calls.outcomes] == ["Disconnected"]
    # A resume of the dead host has no effect.
    server.host.resume()
    lab.run_for(1_000)
    assert fired == []
    assert server.served == []
    assert lab.failures == []


def test_a_paused_host_has_the_link_rules_when_it_resumes() -> None:
    """Rules that change during a pause are in force before any timer of the resumed host fires.

    1. During a pause a cut begins, and the timer that answers the request "p" becomes due. At the
       resume the timer fires, and the cut holds the answer back.
    2. During a second pause the cut is healed. The answer leaves only at the resume.
    """
    lab = HostLab()
    server, client = EchoServer(lab.host(SERVER), parked_groups=("p",)), lab.host(CLIENT)
    calls = Calls(lab, client)
    calls.send("p")
    # The connection opens within two latencies, and the request arrives one latency later. So the
    # server has parked the request after four latencies.
    lab.run_for(4 * LATENCY_US)
    server.host.after(10, server.release)
    server.host.pause()
    lab.set_rules(rule(Cut(), sources=(SERVER,), destinations=(CLIENT,)))
    lab.run_for(1_000)
    server.host.resume()
    lab.run_for(1_000)
    assert server.parked == []  # the server has answered
    assert calls.outcomes == []

    server.host.pause()
    lab.set_rules()
    lab.run_for(1_000)
    assert calls.outcomes == []

    server.host.resume()
    lab.run_for(LATENCY_US)
    assert [what for _, _, what in calls.outcomes] == ["HeartbeatResponse"]


def test_frames_held_by_a_cut_follow_the_due_timers_of_a_resumed_host() -> None:
    """A cut holds frames back. If the cut is healed while their receiver is paused, they arrive.

    Like all frames that arrive during a pause, these frames come after the due timers at the
    resume. In this test the server answers no request.
    """
    lab = HostLab()
    host, client = lab.host(SERVER), lab.host(CLIENT)
    seen: list[str] = []
    host.serve(lambda request: seen.append(f"request {request.envelope.correlation_id}"))
    calls = Calls(lab, client)
    lab.run_for(2 * LATENCY_US)

    async def sleeper() -> None:
        await host.sleep(500)
        seen.append("sleeper")

    host.spawn(sleeper(), name="sleeper")
    calls.send("request 0, on its way when the cut begins")
    lab.run_for(LATENCY_US // 2)
    lab.set_rules(rule(Cut(), sources=(CLIENT,), destinations=(SERVER,)))
    lab.run_for(LATENCY_US)

    host.pause()
    lab.set_rules()
    calls.send("request 1, after the cut")
    lab.run_for(1_000)
    host.resume()
    lab.run_for(0)

    # A server handles one request of a connection at a time, and request 0 has no answer yet.
    assert seen == ["sleeper", "request 0"]

    host.crash()
    lab.run_for(LATENCY_US)
    assert [what for _, _, what in calls.outcomes] == ["Disconnected"] * 2


@pytest.mark.parametrize("paused", [SERVER, CLIENT])
def test_a_reset_of_links_reaches_a_paused_end_when_it_resumes(paused: NodeName) -> None:
    """A reset ends a connection at both ends. A paused process learns of it only at its resume."""
    lab = HostLab()
    server, client = EchoServer(lab.host(SERVER)), lab.host(CLIENT)
    hosts = {SERVER: server.host, CLIENT: client}
    calls = Calls(lab, client)
    lab.run_for(2 * LATENCY_US)
    calls.send("a")

    hosts[paused].pause()
    lab.run_for(3 * LATENCY_US)  # longer than the way of the request and of its answer

    # The second argument of `reset_links` could limit the reset to some purposes of connections.
    # The result has a frame for each connection that is reset.
    assert len(client.reset_links((SERVER,), ())) == 1
    assert len(server.host.reset_links((CLIENT,), ())) == 1
    lab.run_for(LATENCY_US)
    # A paused client does not know of the reset yet.
    assert calls.connection.is_closed == (paused == SERVER)
    hosts[paused].resume()
    lab.run_for(LATENCY_US)
    assert calls.connection.is_closed
    assert [what for _, _, what in calls.outcomes] == ["Disconnected"]
    # A running server served the request before the reset. At a paused server the request waited,
    # and was lost.
    assert len(server.served) == (0 if paused == SERVER else 1)
