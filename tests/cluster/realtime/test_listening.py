"""Addresses at which brokers listen for Kafka clients, as the cluster's spec says.

Kafka clients are programs outside of the run. A binding has the host and the port at which a broker
listens for them, and the number of the first connection. The other connections have the numbers
after it. Without a listener in the spec there is no binding. The brokers have the ids 3 and 7 here.
An incarnation is one life of a broker.
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
    """Return the binding of a broker; `port` is the port of its former incarnation."""
    return listener_binding(
        cluster(listener), broker, incarnation, run_id="r", default_host="10.0.0.1", port=port
    )


def test_ports_follow_the_brokers_order_and_not_their_ids() -> None:
    """The broker at place i listens at first_port + i. With first_port 0 each gets a free port."""
    ports = []
    for first_port in (9_092, 0):
        binding = binding_of(ListenerSpec(first_port=first_port))
        assert binding is not None
        ports.append(binding.port)
    assert ports == [9_093, 0]


def test_later_incarnation_has_the_port_of_the_former_and_its_own_numbers() -> None:
    """Clients find a restarted broker at its old port, also if the system has chosen that port.

    Connections are numbered from `first_number` on. A number occurs only once in a run.
    """
    before = binding_of(ListenerSpec())
    # 41,000 stands for the port of the first incarnation.
    after = binding_of(ListenerSpec(), incarnation=SECOND, port=41_000)
    other_broker = binding_of(ListenerSpec(), broker=BROKERS[0])
    assert before is not None
    assert after is not None
    assert other_broker is not None
    assert after.port == 41_000
    assert len({before.first_number, after.first_number, other_broker.first_number}) == 3


def test_host_is_the_runtimes_unless_the_spec_names_one() -> None:
    """The default host of a runtime is the loopback address, or the address of a machine."""
    default, named = binding_of(ListenerSpec()), binding_of(ListenerSpec(host="127.0.0.2"))
    assert default is not None
    assert named is not None
    assert (default.host, named.host) == ("10.0.0.1", "127.0.0.2")


def test_no_node_listens_without_a_listener_in_the_spec_and_no_controller_does() -> None:
    """Kafka clients can connect only to brokers, and only if the spec has a listener."""
    assert binding_of(None) is None
    spec = cluster(ListenerSpec())
    controller = spec.controllers[0]
    assert listener_binding(spec, controller, FIRST, run_id="r", default_host="h") is None


def test_cluster_id_has_kafkas_form_and_is_constant_in_a_run() -> None:
    """The cluster id of Kafka is a UUID of 128 bits in base64, which has 22 characters.

    Here it follows from the id of the run, the argument.
    """
    assert len(cluster_id("one")) == 22
    assert cluster_id("one") == cluster_id("one")
    assert cluster_id("one") != cluster_id("two")


def test_wildcard_address_is_advertised_as_the_machines_name() -> None:
    """A client cannot connect to 0.0.0.0, which only says that a server listens everywhere."""
    assert advertised_host("127.0.0.1") == "127.0.0.1"
    assert advertised_host("0.0.0.0") not in ("0.0.0.0", "")


def test_address_of_ipv6_has_brackets() -> None:
    """An IPv6 address contains colons, so without brackets the port would not be clear."""
    assert address_text(BrokerEndpoint(name="P", host="::1", port=1)) == "[::1]:1"
    assert address_text(BrokerEndpoint(name="P", host="h", port=1)) == "h:1"


def test_occupied_port_is_named_in_the_error() -> None:
    """The error message has the whole address."""
    with bind("127.0.0.1", 0) as taken:
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match=rf"Kafka clients at 127\.0\.0\.1:{port}: "):
            bind("127.0.0.1", port)


def test_name_of_a_client_never_equals_that_of_a_node() -> None:
    """A client that calls itself broker-0 gets another name. A long name is cut."""
    assert client_node("broker-0") == NodeName("client:broker-0")
    assert is_kafka_client(client_node(""))
    assert not is_kafka_client(broker_name(0))
    assert len(client_node("x" * 30_000)) < 200
