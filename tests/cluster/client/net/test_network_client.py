"""NetworkClient: the choice of the least loaded node, and the backoff of connections.

Some requests, for example a request for metadata, can be answered by any broker. Kafka's clients
send them to the least loaded node, which is the broker that is likely to answer soonest. If a
connection fails, a client waits for some time, the backoff, before it connects to the same broker
again.

The tests use a `lab` with hosts on one network, in which a message takes 100 us. The client knows
three servers, s0, s1 and s2. A server that a test starts is an EchoServer, which answers heartbeats
at once. With `parked_groups=("parked",)` it never answers a heartbeat of the group `parked`. A
server that a test does not start refuses connections.
"""

from collections.abc import Callable
from itertools import pairwise

from cluster.client.net.errors import DISCONNECTED, TIMED_OUT
from cluster.client.net.futures import RequestFuture
from cluster.client.net.network_client import KnownNode, NetworkClient
from cluster.host.connection_purposes import GENERAL
from cluster.host.host import WaitingRequest
from protocol.config import ConsumerConfig
from protocol.ids import NodeName
from protocol.messages.group import HeartbeatResponse
from tests.support.harness.virtual_hosts import EchoServer, HostLab, heartbeat

SERVERS = tuple(NodeName(f"s{i}") for i in range(3))
KNOWN = tuple(KnownNode(name, GENERAL) for name in SERVERS)


def client(lab: HostLab, on_disconnect: Callable[[], None] = lambda: None) -> NetworkClient:
    """Return a client of the three servers. It calls `on_disconnect` at a lost connection."""
    return NetworkClient(
        lab.host("c"), ConsumerConfig(), known_nodes=lambda: KNOWN, on_disconnect=on_disconnect
    )


def ask(
    network: NetworkClient, node: NodeName, group: str = "g", *, timeout_us: int = 1_000_000
) -> RequestFuture[HeartbeatResponse]:
    """Send a heartbeat of `group` to a node. The future gets the answer or an error."""
    return network.send(node, GENERAL, heartbeat(group), HeartbeatResponse, timeout_us=timeout_us)


def least_loaded_nodes(network: NetworkClient, times: int = 60) -> list[str]:
    """Ask many times for the least loaded node, and return each node that was an answer.

    The client looks at the nodes in turn, and begins at a random node. So if two nodes are equally
    good, both are among 60 answers.
    """
    chosen = [network.least_loaded_node() for _ in range(times)]
    return sorted({node.name for node in chosen if node is not None})


def test_least_loaded_node_without_connections_is_any_node_from_a_random_start() -> None:
    """Each node can be the answer, so the requests of many clients are spread over the brokers.

    Source: case CL-01 of docs/kafka/BEHAVIOUR.md.
    """
    assert least_loaded_nodes(client(HostLab())) == list(SERVERS)


def test_least_loaded_node_prefers_connected_and_idle_over_busy_and_unconnected() -> None:
    """The best choice is a connected node without a request in flight.

    s0 has a request in flight, s1 has answered its request, and s2 has no connection.
    Source: Kafka NetworkClient.leastLoadedNode.
    """
    lab = HostLab()
    for name in SERVERS:
        EchoServer(lab.host(name), parked_groups=("parked",))
    network = client(lab)
    ask(network, SERVERS[0], "parked")
    ask(network, SERVERS[1])
    lab.run_for(10_000)  # enough for the answer of s1; s0 does not answer
    assert least_loaded_nodes(network) == [SERVERS[1]]


def test_unanswered_requests_are_listed() -> None:
    """`waiting` returns the node, the API and the age of each request without an answer.

    If a run hangs, this list is shown in its report.
    """
    lab = HostLab()
    for name in SERVERS:
        EchoServer(lab.host(name), parked_groups=("parked",))
    network = client(lab)
    ask(network, SERVERS[0], "parked")
    ask(network, SERVERS[1])
    lab.run_for(10_000)

    # s1 has answered its request, so only the request to s0 is waiting.
    assert network.waiting() == (WaitingRequest(SERVERS[0], "Heartbeat", 10_000),)


def test_least_loaded_node_prefers_fewest_in_flight_over_an_unconnected_one() -> None:
    """Kafka's client prefers a busy connection to a node to which it would have to connect first.

    s0 has one request in flight, s1 has two, and s2 has no connection.
    """
    lab = HostLab()
    for name in SERVERS:
        EchoServer(lab.host(name), parked_groups=("parked",))
    network = client(lab)
    ask(network, SERVERS[0], "parked")
    ask(network, SERVERS[1], "parked")
    ask(network, SERVERS[1], "parked")
    lab.run_for(10_000)
    assert least_loaded_nodes(network) == [SERVERS[0]]


def test_least_loaded_node_prefers_a_connection_in_progress() -> None:
    """Kafka's client prefers a node to which a connection is being opened to a new connection."""
    lab = HostLab()
    network = client(lab)
    network.try_connect(SERVERS[2], GENERAL)
    assert least_loaded_nodes(network) == [SERVERS[2]]


def test_least_loaded_node_skips_nodes_that_back_off() -> None:
    """A node that refused a connection is not chosen during its backoff.

    Here s0 and s2 refuse connections, and only s1 accepts them.
    """
    lab = HostLab()
    EchoServer(lab.host(SERVERS[1]))
    network = client(lab)
    refused = ask(network, SERVERS[0])
    ask(network, SERVERS[2])
    lab.run_for(1_000)
    assert refused.error is not None
    assert refused.error.name == DISCONNECTED
    assert least_loaded_nodes(network) == [SERVERS[1]]


def test_reconnect_backoff_of_a_refusing_node_grows_to_its_maximum() -> None:
    """The waits are 50 ms (reconnect.backoff.ms), 100 ms, 200 ms, ... and at most 1 s.

    The maximum of 1 s is reconnect.backoff.max.ms. Each wait is varied at random by up to 20 %, but
    is never longer than the maximum. The test looks only every 5 ms, so a wait may seem up to 5 ms
    longer than it is.
    """
    lab = HostLab()
    network = client(lab)
    attempts_us: list[int] = []
    for _ in range(3_000):  # 15 s
        if not network.is_unavailable(SERVERS[0], GENERAL):
            attempts_us.append(lab.loop.now_us())
            network.try_connect(SERVERS[0], GENERAL)
        lab.run_for(5_000)

    waits_us = [later - earlier for earlier, later in pairwise(attempts_us)]
    assert 40_000 <= waits_us[0] <= 65_000  # 50 ms -20 % to 50 ms +20 % +5 ms
    assert 80_000 <= waits_us[1] <= 125_000  # 100 ms -20 % to 100 ms +20 % +5 ms
    # From the sixth wait on, the waits would be longer than 1 s without the maximum.
    assert all(800_000 <= wait_us <= 1_005_000 for wait_us in waits_us[5:])
    assert len(waits_us) > 15


def test_reconnect_backoff_is_reset_by_an_open_connection() -> None:
    """After a successful connection the backoff begins again at 50 ms, as in Kafka.

    1. Four attempts fail, because s0 has not started. The backoff grows.
    2. s0 starts, and the client connects.
    3. s0 dies. The next backoff is 50 ms again, plus or minus 20 %.
    """
    lab = HostLab()
    network = client(lab)
    for _ in range(4):
        lab.run_for(1_100_000)  # longer than the longest backoff, 1 s
        network.try_connect(SERVERS[0], GENERAL)
    lab.run_for(1_100_000)

    server = lab.host(SERVERS[0])
    EchoServer(server)
    assert ask(network, SERVERS[0]).error is None
    lab.run_for(10_000)

    server.crash()
    lab.run_for(200)  # the end of the connection arrives
    assert network.is_unavailable(SERVERS[0], GENERAL)
    lab.run_for(60_000)  # the longest first backoff: 50 ms plus 20 %
    assert not network.is_unavailable(SERVERS[0], GENERAL)


def test_send_to_a_node_that_backs_off_fails_without_a_connection() -> None:
    """During the backoff a request fails at once, and the client does not even try to connect."""
    lab = HostLab()
    network = client(lab)
    ask(network, SERVERS[0])  # is refused, so the backoff of s0 begins
    lab.run_for(1_000)
    frames_before = len(lab.frames)
    second = ask(network, SERVERS[0])
    assert not second.is_done
    lab.run_for(1)  # the failure comes in the next turn of the loop, not inside `send`
    assert second.error is not None
    assert second.error.name == DISCONNECTED
    assert len(lab.frames) == frames_before


def test_send_without_an_answer_times_out_and_closes_the_connection() -> None:
    """After a request timeout the client closes the connection, as Kafka's client does.

    The request fails, and `on_disconnect` is called. A backoff begins, so the node is unavailable.
    """
    lab = HostLab()
    EchoServer(lab.host(SERVERS[0]), parked_groups=("parked",))
    disconnected_at_us: list[int] = []
    network = client(lab, on_disconnect=lambda: disconnected_at_us.append(lab.loop.now_us()))
    request = ask(network, SERVERS[0], "parked", timeout_us=50_000)
    lab.run_for(60_000)
    assert request.error is not None
    assert request.error.name == TIMED_OUT
    assert disconnected_at_us == [50_000]
    assert network.is_unavailable(SERVERS[0], GENERAL)


def test_connection_closed_by_the_client_is_no_sign_of_stale_metadata() -> None:
    """`on_disconnect` is not called if the client itself has closed the connection.

    If a broker closes a connection, Kafka's client requests new metadata, because the broker may
    have died. Kafka's client does not request metadata if it has closed the connection itself, by
    NetworkClient.disconnect. In our client `on_disconnect` requests the metadata.
    """
    lab = HostLab()
    EchoServer(lab.host(SERVERS[0]), parked_groups=("parked",))
    disconnected_at_us: list[int] = []
    network = client(lab, on_disconnect=lambda: disconnected_at_us.append(lab.loop.now_us()))
    request = ask(network, SERVERS[0], "parked")
    lab.run_for(10_000)

    network.disconnect(SERVERS[0], GENERAL)
    assert network.is_unavailable(SERVERS[0], GENERAL)
    assert not request.is_done
    lab.run_for(0)
    assert request.error is not None
    assert request.error.name == DISCONNECTED
    assert disconnected_at_us == []
