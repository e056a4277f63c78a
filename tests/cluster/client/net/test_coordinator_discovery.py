"""Finding the coordinator, also while brokers still name a dead one.

- `make_lab(n)` makes `lab`, with `n` scripted brokers. At first broker 0 is the coordinator, which
  every broker names (`lab.coordinator`), and the leader of all partitions (`lab.leader`).
- `broker.answer(Request, a, b)` sets the answers to the next requests of this type. The answer None
  leaves a request unanswered. A request without a scripted answer gets a healthy broker's answer.
- The consumer commits every 200 ms and sends a heartbeat every 3 s.
- A lookup is a FindCoordinator request.

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
"""Default of retry.backoff.max.ms and of reconnect.backoff.max.ms."""
LOOKUPS_PER_SECOND_MAX = 25
"""The shortest wait is reconnect.backoff.ms, 50 ms, less 20 % jitter: 40 ms."""


def test_discovery_traces_the_coordinator_and_the_broker_that_named_it(
    make_lab: LabMaker,
) -> None:
    """COORDINATOR_FOUND: peer is the coordinator, cause the broker that answered."""
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
    """The two errors are temporary, for example until __consumer_offsets exists (CL-01)."""
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
    """GROUP_AUTHORIZATION_FAILED ends the application, so no further request is sent (CL-01)."""
    lab = make_lab(1)
    lab.brokers[0].answer(
        FindCoordinatorRequest, no_coordinator(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    )
    lab.consumer()
    lab.run_for(5 * SECOND)
    assert len(lab.brokers[0].of_type(FindCoordinatorRequest)) == 1
    assert lab.brokers[0].of_type(JoinGroupRequest) == []


def test_concurrent_lookups_share_one_request(make_lab: LabMaker) -> None:
    """Commits, heartbeats and poll() all need the coordinator, and share one lookup (CL-01)."""
    lab = make_lab(1)
    lab.consumer(commit_interval_ms=20)  # so that commits need the coordinator, too
    lab.run_for(2 * SECOND)
    broker = lab.brokers[0]
    before = len(broker.of_type(FindCoordinatorRequest))
    broker.answer(FindCoordinatorRequest, None)  # so that the lookup stays in flight
    broker.answer(HeartbeatRequest, HeartbeatResponse(error_code=ErrorCode.NOT_COORDINATOR))
    lab.run_for(4 * SECOND)  # includes a heartbeat
    assert len(lab.of_kind("commit_failed")) == 0  # commits wait for the lookup
    assert len(broker.of_type(FindCoordinatorRequest)) == before + 1


def test_dead_coordinator_is_noticed_at_once_and_named_until_metadata_changes(
    make_lab: LabMaker,
) -> None:
    """After a kill, stale answers name the dead broker until the metadata changes.

    A member believes a stale answer, until its connection to the named broker is refused, or is
    held back by the backoff of reconnects. It then looks the coordinator up again. It keeps member
    id and generation, and sends no JoinGroup.
    """
    lab = make_lab(3)
    lab.coordinator = 2
    node = lab.consumer()
    lab.run_for(2 * SECOND)
    before = member_status(node)

    lab.brokers[2].host.crash()
    killed_us = lab.hosts.loop.now_us()
    dead_s = 8
    lab.run_for(dead_s * SECOND)

    unknown = [row for row in lab.of_kind("coordinator_unknown") if row.time_us > killed_us]
    assert unknown[0].time_us - killed_us < 50 * MS

    found = [row for row in lab.of_kind("coordinator_found") if row.time_us > killed_us]
    assert {row.peer for row in found} == {"broker-2"}
    assert "broker-2" not in {row.cause for row in found}
    # At least one lookup per longest backoff, which is a second.
    assert dead_s <= len(found) <= dead_s * LOOKUPS_PER_SECOND_MAX
    # Which of both causes occur depends on when the connection fails.
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
    """A member's ownership does not expire at the client; only its commits fail (BEHAVIOUR 7.4)."""
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
    """NOT_COORDINATOR makes the coordinator unknown; the second lookup's answer names the new one.

    The answer to the first lookup is stale: it names the old coordinator again, which refuses.
    """
    lab = make_lab(2)
    node = lab.consumer()
    lab.run_for(2 * SECOND)

    lab.coordinator = 1
    not_coordinator = HeartbeatResponse(error_code=ErrorCode.NOT_COORDINATOR)
    lab.brokers[0].answer(HeartbeatRequest, not_coordinator)
    lab.brokers[0].answer(FindCoordinatorRequest, coordinator_is(0))
    lab.run_for(5 * SECOND)

    causes = [row.cause for row in lab.of_kind("coordinator_unknown")]
    assert causes[0] == "NOT_COORDINATOR"
    assert member_status(node).coordinator == 1
    assert len(lab.brokers[1].of_type(HeartbeatRequest)) >= 1


def test_coordinator_marked_unknown_by_the_client_causes_no_metadata_request(
    make_lab: LabMaker,
) -> None:
    """Only a connection that the peer closes causes a metadata request, as in Kafka.

    Here the client itself closes its connection to the coordinator. A metadata request in flight
    would also make its broker a busier node, so that the lookup would go to a node that Kafka would
    not ask.
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
    """A lookup that gets no answer is given up long before its request timeout, which is 30 s.

    The broker is stopped, not killed, so its connections stay open and no error ends the lookup.

    1. The member has fetched from broker 1, which no longer leads. Its connection is open and idle,
       so broker 1 is the least loaded node.
    2. Broker 1 is stopped.
    3. The coordinator becomes unknown, and broker 1 gets the lookup.
    4. Kafka's heartbeat thread clears that lookup after retry.backoff.ms and begins another: broker
       1 now has as much in flight as broker 0, and soon more.
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
    _, found, *_ = lab.of_kind("coordinator_found")  # the first one belongs to the start
    assert found.cause == "broker-0"
    assert found.time_us - marked_unknown.time_us < SECOND
