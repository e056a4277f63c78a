"""The setting `bootstrap.servers`: the brokers that a client knows when it starts.

A consumer that starts must look up the coordinator of its group (by FindCoordinator), and it must
get the metadata of the cluster. Any broker can answer these requests. The tests check which broker
the consumer asks. They use a cluster of scripted brokers, which are fakes, in these calls:

    lab = make_lab(3)                       # the scripted brokers 0, 1 and 2, and a simulated clock
    lab.coordinator = 2                     # broker 2 coordinates the group; at first 0 does
    lab.leader = 1                          # broker 1 leads all partitions; at first 0 does
    node = lab.consumer(only("broker-1"))   # start a consumer with this bootstrap server
    lab.run_for(SECOND)                     # within a second it joins its group
    lab.of_kind("coordinator_found")        # the recorded events of the lookups that succeeded

In such an event, `cause` is the broker that has answered the lookup.
"""

import pytest

from cluster.host.connection_purposes import GENERAL
from cluster.host.frames import OpenFrame
from protocol.config import ConsumerConfig
from protocol.errors import ErrorCode
from protocol.messages.discovery import FindCoordinatorRequest, MetadataRequest
from protocol.messages.group import HeartbeatRequest, HeartbeatResponse, JoinGroupRequest
from tests.support.harness.scripted_broker import MS, SECOND, LabMaker, member_status


def only(*servers: str) -> ConsumerConfig:
    """Return settings of a consumer that has only these bootstrap servers."""
    return ConsumerConfig(
        enable_auto_commit=False, auto_offset_reset="earliest", bootstrap_servers=servers
    )


@pytest.mark.parametrize("server", ["broker-1", "broker-1:9092"])
def test_first_lookup_goes_to_a_bootstrap_server(make_lab: LabMaker, server: str) -> None:
    """A client that starts knows no brokers except its bootstrap servers, so it asks one of these.

    This matters for experiments that split the network into two sides. A member that starts during
    the split finds the coordinator of the side to which its bootstrap server belongs.
    """
    lab = make_lab(3)
    lab.coordinator = 2
    node = lab.consumer(only(server))
    lab.run_for(SECOND)
    assert {event.cause for event in lab.of_kind("coordinator_found")} == {"broker-1"}
    assert [len(broker.of_type(FindCoordinatorRequest)) for broker in lab.brokers] == [0, 1, 0]
    assert [len(broker.of_type(MetadataRequest)) for broker in lab.brokers] == [0, 1, 0]
    assert member_status(node).state == "STABLE"


def test_all_brokers_are_known_after_the_first_metadata(make_lab: LabMaker) -> None:
    """The metadata of the cluster names all brokers, so later the client may ask any of them.

    When the bootstrap server (broker 1) and the coordinator (broker 2) have crashed, the client
    asks broker 0 for the new coordinator.
    """
    lab = make_lab(3)
    lab.coordinator = 2
    lab.leader = 0
    lab.consumer(only("broker-1"))
    lab.run_for(2 * SECOND)
    assert len(lab.brokers[2].of_type(JoinGroupRequest)) >= 1

    lab.brokers[1].host.crash()
    lab.brokers[2].host.crash()
    lab.coordinator = 0
    lab.run_for(5 * SECOND)
    assert lab.of_kind("coordinator_found")[-1].cause == "broker-0"


def test_client_keeps_an_idle_connection_to_a_broker_from_the_first_metadata_on(
    make_lab: LabMaker,
) -> None:
    """A client that knows the brokers opens an idle connection to one, which a later lookup uses.

    Kafka's client opens this connection for its telemetry, and leaves it idle, so ours does the
    same. Without the idle connection a lookup would go to the leader from which the member
    fetches. There it would wait behind a Fetch, for up to fetch.max.wait.ms.
    """
    lab = make_lab(3)
    lab.leader = 1
    lab.consumer(only("broker-2"))
    lab.run_for(2 * SECOND)
    # Connections to the coordinator have a purpose of their own, and are left out here.
    connected = [
        frame.destination
        for frame in lab.hosts.frames
        if isinstance(frame, OpenFrame) and frame.purpose == GENERAL
    ]
    idle_broker, leader = connected
    assert idle_broker == "broker-2"
    assert leader == "broker-1"

    # Make the member look up its coordinator again.
    not_coordinator = HeartbeatResponse(error_code=ErrorCode.NOT_COORDINATOR)
    lab.brokers[0].answer(HeartbeatRequest, not_coordinator)
    lab.run_for(5 * SECOND)

    marked_unknown = lab.of_kind("coordinator_unknown")[0]
    _found_at_start, found_again = lab.of_kind("coordinator_found")[:2]
    assert found_again.cause == idle_broker
    assert found_again.time_us - marked_unknown.time_us < MS  # it did not wait behind a Fetch


def test_client_whose_bootstrap_server_is_down_joins_when_it_returns(make_lab: LabMaker) -> None:
    """The client can ask no broker as long as the only broker that it knows is down."""
    lab = make_lab(3)
    lab.brokers[1].host.crash()
    node = lab.consumer(only("broker-1:9092"))
    lab.run_for(5 * SECOND)
    assert [broker.requests for broker in lab.brokers] == [[], [], []]
    assert member_status(node).state == "UNJOINED"
    lab.brokers[1].restart()
    lab.run_for(3 * SECOND)
    assert member_status(node).state == "STABLE"
