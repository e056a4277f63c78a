"""NetworkClient: the choice of the least loaded node, and the backoff of connections.

The least loaded node is the broker to which a request goes that any broker can answer.

- `lab` has hosts on one network, with a constant latency of 100 us in each direction. Its times are
  in microseconds.
- An EchoServer answers heartbeats without delay, but never those of the group `parked`.
- A host that a test does not create refuses connections.
- A connection has a purpose, because a client may have several connections to a broker. Here all
  have the purpose GENERAL.
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
    """Return a client that knows the three servers; a lost connection calls `on_disconnect`."""
    return NetworkClient(
        lab.host("c"), ConsumerConfig(), known_nodes=lambda: KNOWN, on_disconnect=on_disconnect
    )


def ask(
    network: NetworkClient, node: NodeName, group: str = "g", *, timeout_us: int = 1_000_000
) -> RequestFuture[HeartbeatResponse]:
    """Send a heartbeat of `group` to a node; the future gets the answer or an error."""
    return network.send(node, GENERAL, heartbeat(group), HeartbeatResponse, timeout_us=timeout_us)


def picks(network: NetworkClient, times: int = 60) -> list[str]:
    """Return the least loaded nodes of many searches; each search begins at a random node."""
    chosen = [network.least_loaded_node() for _ in range(times)]
    return sorted({node.name for node in chosen if node is not None})


def test_least_loaded_node_without_connections_is_any_node_from_a_random_start() -> None:
    """The search begins at a random node, so that the first lookups of members are spread.

    Source: case CL-01 of docs/kafka/BEHAVIOUR.md.
    """
    assert picks(client(HostLab())) == list(SERVERS)


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
    assert picks(network) == [SERVERS[1]]


def test_unanswered_requests_are_listed() -> None:
    """`waiting` has node, API and age of each unanswered request, to explain a run that hangs."""
    lab = HostLab()
    for name in SERVERS:
        EchoServer(lab.host(name), parked_groups=("parked",))
    network = client(lab)
    ask(network, SERVERS[0], "parked")
    ask(network, SERVERS[1])
    lab.run_for(10_000)

    assert network.waiting() == (WaitingRequest(SERVERS[0], "Heartbeat", 10_000),)


def test_least_loaded_node_prefers_fewest_in_flight_over_an_unconnected_one() -> None:
    """Kafka's client prefers an open connection, even if a request waits there behind a Fetch.

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
    assert picks(network) == [SERVERS[0]]


def test_least_loaded_node_prefers_a_connection_in_progress() -> None:
    """Kafka's client prefers a connection that is being opened to opening another one."""
    lab = HostLab()
    network = client(lab)
    network.try_connect(SERVERS[2], GENERAL)
    assert picks(network) == [SERVERS[2]]


def test_least_loaded_node_skips_nodes_that_back_off() -> None:
    """A node whose connection was refused is not tried again for some time (the backoff).

    Only s1 has a server.
    """
    lab = HostLab()
    EchoServer(lab.host(SERVERS[1]))
    network = client(lab)
    refused = ask(network, SERVERS[0])
    ask(network, SERVERS[2])
    lab.run_for(1_000)
    assert refused.error is not None
    assert refused.error.name == DISCONNECTED
    assert picks(network) == [SERVERS[1]]


def test_reconnect_backoff_of_a_refusing_node_grows_to_its_maximum() -> None:
    """The wait doubles from reconnect.backoff.ms, 50, up to reconnect.backoff.max.ms, 1000.

    Each wait varies by 20 %. The test looks every 5 ms, so a wait may seem up to 5 ms longer.
    """
    lab = HostLab()
    network = client(lab)
    times: list[int] = []
    for _ in range(3_000):
        if not network.is_unavailable(SERVERS[0], GENERAL):
            times.append(lab.loop.now_us())
            network.try_connect(SERVERS[0], GENERAL)
        lab.run_for(5_000)

    waits = [later - earlier for earlier, later in pairwise(times)]
    assert 40_000 <= waits[0] <= 65_000
    assert 80_000 <= waits[1] <= 125_000
    assert all(800_000 <= wait <= 1_005_000 for wait in waits[5:])
    assert len(waits) > 15  # the test runs for 15 s, which are 3,000 steps of 5 ms


def test_reconnect_backoff_is_reset_by_an_open_connection() -> None:
    """After a successful connection the backoff begins again at its first value, as in Kafka."""
    lab = HostLab()
    network = client(lab)
    # There is no server, so four attempts fail, and the backoff grows to several times 50 ms.
    for _ in range(4):
        lab.run_for(1_100_000)
        network.try_connect(SERVERS[0], GENERAL)
    lab.run_for(1_100_000)

    server = lab.host(SERVERS[0])
    EchoServer(server)
    assert ask(network, SERVERS[0]).error is None
    lab.run_for(10_000)

    server.crash()
    lab.run_for(200)  # the end of the connection arrives
    assert network.is_unavailable(SERVERS[0], GENERAL)
    lab.run_for(60_000)  # the first backoff: 50 ms and a fifth more
    assert not network.is_unavailable(SERVERS[0], GENERAL)


def test_send_to_a_node_that_backs_off_fails_without_a_connection() -> None:
    """Kafka fails requests that wait for a connection to such a node."""
    lab = HostLab()
    network = client(lab)
    ask(network, SERVERS[0])
    lab.run_for(1_000)
    frames_before = len(lab.frames)
    second = ask(network, SERVERS[0])
    assert not second.is_done
    lab.run_for(1)  # the failure is delivered by the next event, not inside `send`
    assert second.error is not None
    assert second.error.name == DISCONNECTED
    assert len(lab.frames) == frames_before


def test_send_without_an_answer_times_out_and_closes_the_connection() -> None:
    """After a request timeout Kafka's client closes the connection. The next request opens one."""
    lab = HostLab()
    EchoServer(lab.host(SERVERS[0]), parked_groups=("parked",))
    ended: list[int] = []
    network = client(lab, on_disconnect=lambda: ended.append(lab.loop.now_us()))
    request = ask(network, SERVERS[0], "parked", timeout_us=50_000)
    lab.run_for(60_000)
    assert request.error is not None
    assert request.error.name == TIMED_OUT
    assert ended == [50_000]
    assert network.is_unavailable(SERVERS[0], GENERAL)


def test_connection_closed_by_the_client_is_no_sign_of_stale_metadata() -> None:
    """Kafka requests metadata after a close by the peer, but not after NetworkClient.disconnect.

    `on_disconnect` requests the metadata, so it must not be called here.
    """
    lab = HostLab()
    EchoServer(lab.host(SERVERS[0]), parked_groups=("parked",))
    ended: list[int] = []
    network = client(lab, on_disconnect=lambda: ended.append(lab.loop.now_us()))
    request = ask(network, SERVERS[0], "parked")
    lab.run_for(10_000)

    network.disconnect(SERVERS[0], GENERAL)
    assert network.is_unavailable(SERVERS[0], GENERAL)
    assert not request.is_done
    lab.run_for(0)
    assert request.error is not None
    assert request.error.name == DISCONNECTED
    assert ended == []
