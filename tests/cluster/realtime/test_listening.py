"""The addresses at which brokers of the test lab listen for real Kafka clients.

Real clients, such as Java's, are programs outside of the lab. They can connect if the description
of the cluster (ClusterSpec) contains a listener. Then `listener_binding` says at which host and
port each broker listens. In the tests the cluster has two brokers, whose ids are 3 and 7.

A broker that restarts begins another incarnation. All connections of a run are numbered, and no
number may occur twice. Therefore each incarnation of each broker has its own range of numbers,
which begins at `first_number`.
"""

import pytest

from cluster.realtime.listening import cluster_id, listener_binding
from cluster.spec import BrokerSpec, ClusterSpec, ControllerSpec, ListenerSpec
from cluster.wire.listener import (
    ListenerBinding,
    address_text,
    advertised_host,
    bind,
    client_node,
    is_kafka_client,
)
from protocol.ids import Incarnation, NodeName, broker_name
from protocol.records.metadata import BrokerEndpoint

BROKERS = (BrokerSpec(broker_id=3), BrokerSpec(broker_id=7))
FIRST, SECOND = Incarnation(0), Incarnation(1)


def cluster(listener: ListenerSpec | None) -> ClusterSpec:
    """Return a cluster with two brokers and this listener."""
    return ClusterSpec(
        controllers=(ControllerSpec(node_id=100),), brokers=BROKERS, topics=(), listener=listener
    )


def binding_of(
    listener: ListenerSpec | None,
    broker: BrokerSpec = BROKERS[1],
    incarnation: Incarnation = FIRST,
    port: int | None = None,
) -> ListenerBinding | None:
    """Return the binding of a broker, by default of broker 7.

    `port` is the port at which the broker listened in its former incarnation.
    """
    return listener_binding(
        cluster(listener), broker, incarnation, run_id="r", default_host="10.0.0.1", port=port
    )


def test_ports_follow_the_brokers_order_and_not_their_ids() -> None:
    """Broker 7 is the second broker of the cluster, so it listens at the port after the first one.

    The port 0 stands for any port that is free. If the first port is 0, each broker has 0.
    """
    binding = binding_of(ListenerSpec(first_port=9_092))
    assert binding is not None
    assert binding.port == 9_093

    binding = binding_of(ListenerSpec(first_port=0))
    assert binding is not None
    assert binding.port == 0


def test_later_incarnation_has_the_port_of_the_former_and_its_own_numbers() -> None:
    """Clients find a restarted broker at its old port, even if the system had chosen this port.

    The range of connection numbers begins at another number for each incarnation and broker.
    """
    first_life = binding_of(ListenerSpec())
    second_life = binding_of(ListenerSpec(), incarnation=SECOND, port=41_000)
    other_broker = binding_of(ListenerSpec(), broker=BROKERS[0])
    assert first_life is not None
    assert second_life is not None
    assert other_broker is not None
    assert second_life.port == 41_000
    bindings = (first_life, second_life, other_broker)
    assert len({binding.first_number for binding in bindings}) == 3


def test_host_is_the_runtimes_unless_the_spec_names_one() -> None:
    """`listener_binding` gets a default host, the address of the broker's machine for example."""
    default = binding_of(ListenerSpec())
    assert default is not None
    assert default.host == "10.0.0.1"

    configured = binding_of(ListenerSpec(host="127.0.0.2"))
    assert configured is not None
    assert configured.host == "127.0.0.2"


def test_no_node_listens_without_a_listener_in_the_spec_and_no_controller_does() -> None:
    """Kafka clients can connect only to brokers, and only if the spec has a listener."""
    assert binding_of(None) is None
    spec = cluster(ListenerSpec())
    controller = spec.controllers[0]
    assert listener_binding(spec, controller, FIRST, run_id="r", default_host="h") is None


def test_cluster_id_has_kafkas_form_and_is_constant_in_a_run() -> None:
    """The id of a Kafka cluster has 22 characters: a UUID of 128 bits in base64.

    Here it is computed from the id of the run, so it does not change when a broker restarts.
    """
    assert len(cluster_id("one")) == 22
    assert cluster_id("one") == cluster_id("one")
    assert cluster_id("one") != cluster_id("two")


def test_wildcard_address_is_advertised_as_the_machines_name() -> None:
    """A client cannot connect to 0.0.0.0, which only says that a server listens everywhere."""
    assert advertised_host("127.0.0.1") == "127.0.0.1"
    # The name of the machine is another one wherever the test runs.
    assert advertised_host("0.0.0.0") not in ("0.0.0.0", "")


def test_address_of_ipv6_has_brackets() -> None:
    """An IPv6 address contains colons, so without brackets the port would not be recognisable."""
    assert address_text(BrokerEndpoint(name="P", host="::1", port=1)) == "[::1]:1"
    assert address_text(BrokerEndpoint(name="P", host="h", port=1)) == "h:1"


def test_occupied_port_is_named_in_the_error() -> None:
    """If another program uses the port, the user must learn which port this is."""
    any_free_port = 0
    with bind("127.0.0.1", any_free_port) as other_socket:
        other_socket.listen()
        port = other_socket.getsockname()[1]
        with pytest.raises(OSError, match=rf"Kafka clients at 127\.0\.0\.1:{port}: "):
            bind("127.0.0.1", port)


def test_name_of_a_client_never_equals_that_of_a_node() -> None:
    """A client may call itself "broker-0". Its name gets a prefix, and a long name is cut."""
    assert client_node("broker-0") == NodeName("client:broker-0")
    assert is_kafka_client(client_node(""))
    assert not is_kafka_client(broker_name(0))
    assert len(client_node("x" * 30_000)) < 200
