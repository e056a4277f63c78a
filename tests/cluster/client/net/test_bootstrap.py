"""The setting `bootstrap.servers`: the first brokers that a client asks.

- `make_lab(3)` makes `lab`, with the scripted brokers 0, 1 and 2, whose metadata name all of them.
- `lab.coordinator` coordinates the group, and `lab.leader` leads all partitions: broker 0 at first.
- `lab.run_for(SECOND)` lets a second of virtual time (a simulated clock) pass. A consumer joins its
  group within the first second.
- A lookup is the request FindCoordinator, which any broker can answer. In a row COORDINATOR_FOUND
  of the trace (the recorded events), `cause` is the broker that has answered the lookup.
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
    """At its first lookup a client knows no brokers but its bootstrap servers.

    So a member that joins while the network is split finds the coordinator of the side on which its
    bootstrap server is.
    """
    lab = make_lab(3)
    lab.coordinator = 2
    node = lab.consumer(only(server))
    lab.run_for(SECOND)
    assert {row.cause for row in lab.of_kind("coordinator_found")} == {"broker-1"}
    assert [len(broker.of_type(FindCoordinatorRequest)) for broker in lab.brokers] == [0, 1, 0]
    assert [len(broker.of_type(MetadataRequest)) for broker in lab.brokers] == [0, 1, 0]
    assert member_status(node).state == "STABLE"


def test_all_brokers_are_known_after_the_first_metadata(make_lab: LabMaker) -> None:
    """The list of bootstrap servers is only for the start. Later the client asks any broker.

    Both the broker of the list and the coordinator crash. Broker 0 then answers the lookup.
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
    """Kafka's client opens a connection for telemetry, which is idle. Only lookups use it later.

    Without the idle connection a lookup would go to the leader from which the member fetches. There
    the lookup would wait behind a Fetch, up to fetch.max.wait.ms.
    """
    lab = make_lab(3)
    lab.leader = 1
    lab.consumer(only("broker-2"))
    lab.run_for(2 * SECOND)
    # The brokers to which the client has opened connections of the general purpose, in order.
    opened = [
        frame.destination
        for frame in lab.hosts.frames
        if isinstance(frame, OpenFrame) and frame.purpose == GENERAL
    ]
    idle, leader = opened
    assert (idle, leader) == ("broker-2", "broker-1")

    not_coordinator = HeartbeatResponse(error_code=ErrorCode.NOT_COORDINATOR)
    lab.brokers[0].answer(HeartbeatRequest, not_coordinator)
    lab.run_for(5 * SECOND)

    marked_unknown = lab.of_kind("coordinator_unknown")[0]
    found = lab.of_kind("coordinator_found")[1]  # the first row is from the start of the member
    assert found.cause == idle
    assert found.time_us - marked_unknown.time_us < MS


def test_client_whose_bootstrap_server_is_down_joins_when_it_returns(make_lab: LabMaker) -> None:
    """A client that knows only one broker, which is down, sends nothing until the broker is up."""
    lab = make_lab(3)
    lab.brokers[1].host.crash()
    node = lab.consumer(only("broker-1:9092"))
    lab.run_for(5 * SECOND)
    assert [broker.requests for broker in lab.brokers] == [[], [], []]
    assert member_status(node).state == "UNJOINED"
    lab.brokers[1].restart()
    lab.run_for(3 * SECOND)
    assert member_status(node).state == "STABLE"
