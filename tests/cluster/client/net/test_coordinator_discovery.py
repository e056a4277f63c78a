"""How a member finds its coordinator, also while brokers still name a dead one.

- `make_lab(n)` makes `lab`, with `n` scripted brokers. Every broker names `lab.coordinator` as the
  coordinator, and `lab.leader` leads all partitions. Both are broker 0 at first.
- `broker.answer(Request, a, b)` scripts the broker's next answers to requests of that type; None
  leaves a request unanswered. Without a script a broker answers as a healthy broker does.
- `lab.of_kind(kind)` returns rows of the trace (the recorded events). `broker.of_type(Request)`
  returns the requests of that type that a broker has received. `member_status(node)` is what the
  member reports of itself.
- `lab.run_for(SECOND)` lets a second of virtual time (a simulated clock) pass. A consumer joins its
  group within the first second.
- The consumer sends a heartbeat every 3 s. It commits every 200 ms; with `commit_interval_ms=None`
  it never commits.
- A lookup is the request FindCoordinator. An answer that names a broker which is no longer the
  coordinator is stale.

CL-01 is a case and BEHAVIOUR 7.4 a section of docs/kafka/BEHAVIOUR.md.
"""

import pytest

from protocol.errors import ErrorCode
from protocol.messages.discovery import FindCoordinatorRequest, MetadataRequest
from protocol.messages.group import HeartbeatRequest, HeartbeatResponse, JoinGroupRequest
from protocol.messages.log import FetchRequest
from tests.support.harness.scripted_broker import (
    MS,
    SECOND,
    LabMaker,
    coordinator_is,
    fetch_error,
    member_status,
    no_coordinator,
)

COMMIT_INTERVAL_MS = 200
BACKOFF_MAX_MS = 1_000
"""The default of retry.backoff.max.ms and of reconnect.backoff.max.ms."""
LOOKUPS_PER_SECOND_MAX = 25
"""At least 40 ms pass between two lookups, because reconnect.backoff.ms is 50 ms +- 20 %."""


def test_discovery_traces_the_coordinator_and_the_broker_that_named_it(
    make_lab: LabMaker,
) -> None:
    """In the trace row the peer is the coordinator, and the cause is the broker that answered."""
    lab = make_lab(1)
    node = lab.consumer()
    lab.run_for(SECOND)
    (found,) = lab.of_kind("coordinator_found")
    assert (found.peer, found.cause, found.group) == ("broker-0", "broker-0", "g")
    assert member_status(node).coordinator == 0


@pytest.mark.parametrize(
    "error", [ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
)
def test_discovery_with_a_retriable_error_asks_again_after_a_backoff(
    make_lab: LabMaker, error: ErrorCode
) -> None:
    """Both errors are temporary; for example, __consumer_offsets may not exist yet (CL-01)."""
    failures = 3
    lab = make_lab(1)
    lab.brokers[0].answer(FindCoordinatorRequest, *[no_coordinator(error)] * failures)
    node = lab.consumer()
    lab.run_for(SECOND)
    assert [row.error for row in lab.of_kind("coordinator_lookup_failed")] == [
        error.name
    ] * failures
    assert len(lab.brokers[0].of_type(FindCoordinatorRequest)) == failures + 1
    assert member_status(node).state == "STABLE"


def test_discovery_with_a_fatal_error_stops_the_application(make_lab: LabMaker) -> None:
    """GROUP_AUTHORIZATION_FAILED ends the application, so no other request is sent (CL-01)."""
    lab = make_lab(1)
    lab.brokers[0].answer(
        FindCoordinatorRequest, no_coordinator(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    )
    lab.consumer()
    lab.run_for(5 * SECOND)
    assert len(lab.brokers[0].of_type(FindCoordinatorRequest)) == 1
    assert lab.brokers[0].of_type(JoinGroupRequest) == []


def test_concurrent_lookups_share_one_request(make_lab: LabMaker) -> None:
    """Commits, heartbeats and poll() all need the coordinator. They wait for one lookup (CL-01).

    A heartbeat is refused, so the coordinator is unknown from then on.
    """
    lab = make_lab(1)
    lab.consumer(commit_interval_ms=20)  # so that commits need the coordinator, too
    lab.run_for(2 * SECOND)
    broker = lab.brokers[0]
    lookups_before = len(broker.of_type(FindCoordinatorRequest))
    broker.answer(FindCoordinatorRequest, None)  # so that the lookup stays in flight
    broker.answer(HeartbeatRequest, HeartbeatResponse(error_code=ErrorCode.NOT_COORDINATOR))
    lab.run_for(4 * SECOND)  # longer than the heartbeat interval, so that a heartbeat is sent
    assert len(lab.of_kind("commit_failed")) == 0  # commits wait for the lookup
    assert len(broker.of_type(FindCoordinatorRequest)) == lookups_before + 1


def test_dead_coordinator_is_noticed_at_once_and_named_until_metadata_changes(
    make_lab: LabMaker,
) -> None:
    """After a kill, brokers name the dead coordinator until their metadata change.

    The member believes such an answer until its connection to the named broker is refused, or is
    delayed by the backoff after earlier refusals. Then the member looks the coordinator up again.
    The member keeps its id and its generation, and sends no JoinGroup.
    """
    lab = make_lab(3)
    lab.coordinator = 2
    node = lab.consumer()
    lab.run_for(2 * SECOND)
    before = member_status(node)

    lab.brokers[2].host.crash()
    killed_us = lab.hosts.loop.now_us()
    dead_s = 8  # the time until the brokers name another coordinator
    lab.run_for(dead_s * SECOND)

    unknown = [row for row in lab.of_kind("coordinator_unknown") if row.time_us > killed_us]
    assert unknown[0].time_us - killed_us < 50 * MS

    found = [row for row in lab.of_kind("coordinator_found") if row.time_us > killed_us]
    assert {row.peer for row in found} == {"broker-2"}
    assert "broker-2" not in {row.cause for row in found}  # the dead broker answers no lookup
    # The longest backoff is a second. So there is at least one lookup in each second.
    assert dead_s <= len(found) <= dead_s * LOOKUPS_PER_SECOND_MAX
    # The member may notice a failed connection before or after it sends a request. Each of the two
    # cases has its own cause.
    assert {row.cause for row in unknown} <= {"coordinator unavailable", "DISCONNECTED"}

    lab.coordinator = 1
    moved_us = lab.hosts.loop.now_us()
    lab.run_for(2 * SECOND)
    after = member_status(node)
    assert (after.member_id, after.generation, after.state, after.coordinator) == (
        before.member_id,
        before.generation,
        "STABLE",
        1,
    )
    first = next(row for row in lab.of_kind("offsets_committed") if row.time_us > moved_us)
    assert first.time_us - moved_us < (BACKOFF_MAX_MS + COMMIT_INTERVAL_MS) * MS
    assert first.peer == "broker-1"
    assert lab.brokers[1].of_type(JoinGroupRequest) == []


def test_consumer_without_a_coordinator_continues_to_fetch_and_process(make_lab: LabMaker) -> None:
    """A client keeps its partitions for as long as it has no answer that takes them away.

    Without a coordinator only its commits fail (BEHAVIOUR 7.4).
    """
    lab = make_lab(2)
    lab.coordinator = 1
    node = lab.consumer()
    lab.run_for(2 * SECOND)

    lab.brokers[1].host.crash()
    lab.run_for(100 * MS)
    consumed = member_status(node).records_consumed
    # A new record in each partition, every 200 ms.
    for _ in range(20):
        lab.high_watermark += 1
        lab.run_for(200 * MS)
    lab.run_for(SECOND)

    assert member_status(node).records_consumed == consumed + 40  # 20 in each of two partitions
    assert {row.error for row in lab.of_kind("commit_failed")} <= {
        "COORDINATOR_NOT_AVAILABLE",
        "DISCONNECTED",
    }


def test_stale_coordinator_that_refuses_is_replaced_by_the_named_one(make_lab: LabMaker) -> None:
    """After NOT_COORDINATOR the member no longer knows its coordinator, and looks for it.

    The answer to the first lookup is stale: it names the old coordinator, which refuses again. The
    second answer names the new coordinator.
    """
    lab = make_lab(2)
    node = lab.consumer()
    lab.run_for(2 * SECOND)

    lab.coordinator = 1
    not_coordinator = HeartbeatResponse(error_code=ErrorCode.NOT_COORDINATOR)
    lab.brokers[0].answer(HeartbeatRequest, not_coordinator)
    lab.brokers[0].answer(FindCoordinatorRequest, coordinator_is(0))  # the stale answer
    lab.run_for(5 * SECOND)

    causes = [row.cause for row in lab.of_kind("coordinator_unknown")]
    assert causes[0] == "NOT_COORDINATOR"
    assert member_status(node).coordinator == 1
    assert len(lab.brokers[1].of_type(HeartbeatRequest)) >= 1


def test_coordinator_marked_unknown_by_the_client_causes_no_metadata_request(
    make_lab: LabMaker,
) -> None:
    """As in Kafka, only a connection that the peer closes causes a metadata request.

    Here the client itself closes the connection to its coordinator. A lookup goes to the broker
    with the fewest requests in flight. So a metadata request that Kafka's client does not send
    could change the broker that is asked.
    """
    lab = make_lab(2)
    lab.consumer()
    lab.run_for(2 * SECOND)
    metadata_requests = sum(len(broker.of_type(MetadataRequest)) for broker in lab.brokers)
    not_coordinator = HeartbeatResponse(error_code=ErrorCode.NOT_COORDINATOR)
    lab.brokers[0].answer(HeartbeatRequest, not_coordinator)
    lab.run_for(5 * SECOND)
    causes = [row.cause for row in lab.of_kind("coordinator_unknown")]
    assert causes[0] == "NOT_COORDINATOR"
    assert sum(len(broker.of_type(MetadataRequest)) for broker in lab.brokers) == metadata_requests


def test_lookup_sent_to_a_silent_broker_is_cleared(make_lab: LabMaker) -> None:
    """A lookup without an answer is given up long before its request timeout of 30 s.

    The broker is paused, not killed, so its connections stay open and no error ends the lookup.

    1. The member has fetched from broker 1, which no longer leads. The connection to it is open and
       idle, so broker 1 is the broker with the fewest requests in flight.
    2. Broker 1 is paused.
    3. The coordinator becomes unknown, and the lookup goes to broker 1.
    4. Kafka's heartbeat thread gives this lookup up after retry.backoff.ms and begins another. Now
       broker 1 has as many requests in flight as broker 0, and soon more, so broker 0 is asked.
    """
    lab = make_lab(2)
    lab.leader = 1
    lab.consumer(commit_interval_ms=None)
    lab.run_for(2 * SECOND)

    lab.leader, lab.leader_epoch = 0, 1
    lab.brokers[1].answer(FetchRequest, fetch_error(ErrorCode.NOT_LEADER_OR_FOLLOWER))
    lab.run_for(2 * SECOND)

    lab.brokers[1].host.pause()
    not_coordinator = HeartbeatResponse(error_code=ErrorCode.NOT_COORDINATOR)
    lab.brokers[0].answer(HeartbeatRequest, not_coordinator)
    lab.run_for(5 * SECOND)

    (marked_unknown,) = lab.of_kind("coordinator_unknown")
    lookup = next(
        row
        for row in lab.of_kind("request_sent")
        if row.api == "FindCoordinator" and row.time_us >= marked_unknown.time_us
    )
    assert lookup.peer == "broker-1"
    _, found, *_ = lab.of_kind("coordinator_found")  # the first row is from the start of the member
    assert found.cause == "broker-0"
    assert found.time_us - marked_unknown.time_us < SECOND
