"""How a member finds its coordinator, even while brokers still name a dead broker.

A consumer that does not know the coordinator of its group sends FindCoordinator to any broker. This
is called a lookup here. After a failover the answer may be stale for some seconds: it names a
broker that is no longer the coordinator.

In these tests a real consumer talks to scripted brokers, which give the answers that the test has
prepared. `make_lab(n)` makes a `lab` with `n` scripted brokers. By default they answer without
errors. Every broker answers a lookup with `lab.coordinator`, and `lab.leader` leads all partitions.
At first `lab.coordinator` and `lab.leader` are broker 0.

- `broker.answer(Request, a, b)` scripts the next answers of the broker to requests of this type. An
  answer None leaves the request unanswered.
- `broker.of_type(Request)` returns the requests of this type that the broker has received.
- `lab.of_kind(kind)` returns the rows of the trace that have this kind. The trace is the list of
  the events that the nodes have recorded.
- `member_status(node)` returns what the consumer reports about itself.
- `lab.run_for(SECOND)` lets a second of virtual time pass. In this second a consumer can join its
  group.
- `lab.consumer()` starts a consumer, which sends a heartbeat every 3 s and commits every 200 ms.
  With `commit_interval_ms` it commits at this interval, or never if the interval is None.

CL-01 is a case in docs/kafka/BEHAVIOUR.md, and "BEHAVIOUR 7.4" is a section of this page.
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
"""At least 40 ms pass between two lookups: reconnect.backoff.ms is 50 ms, less 20 % of jitter."""


def test_discovery_traces_the_coordinator_and_the_broker_that_answered(
    make_lab: LabMaker,
) -> None:
    """The trace gets a row when a member has found its coordinator.

    The peer of the row is the coordinator. The cause of the row is the broker that answered the
    lookup. Here both are broker 0.
    """
    lab = make_lab(1)
    node = lab.consumer()
    lab.run_for(SECOND)
    (found,) = lab.of_kind("coordinator_found")
    assert found.peer == "broker-0"
    assert found.cause == "broker-0"
    assert found.group == "g"
    assert member_status(node).coordinator == 0


@pytest.mark.parametrize(
    "error", [ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
)
def test_discovery_with_a_retriable_error_asks_again_after_a_backoff(
    make_lab: LabMaker, error: ErrorCode
) -> None:
    """Both errors are temporary. For example, __consumer_offsets may not exist yet (CL-01).

    Here three lookups fail, and the fourth succeeds.
    """
    lab = make_lab(1)
    lab.brokers[0].answer(FindCoordinatorRequest, *[no_coordinator(error)] * 3)
    node = lab.consumer()
    lab.run_for(SECOND)
    failures = [row.error for row in lab.of_kind("coordinator_lookup_failed")]
    assert failures == [error.name] * 3
    assert len(lab.brokers[0].of_type(FindCoordinatorRequest)) == 4
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
    """Commits, heartbeats and poll() need the coordinator, and all wait for one lookup (CL-01).

    A heartbeat gets NOT_COORDINATOR, so the member looks for its coordinator. This lookup gets no
    answer. While the lookup waits, the application begins a commit every 20 ms.
    """
    lab = make_lab(1)
    lab.consumer(commit_interval_ms=20)
    lab.run_for(2 * SECOND)
    broker = lab.brokers[0]
    lookups_before = len(broker.of_type(FindCoordinatorRequest))
    broker.answer(FindCoordinatorRequest, None)
    broker.answer(HeartbeatRequest, HeartbeatResponse(error_code=ErrorCode.NOT_COORDINATOR))
    lab.run_for(4 * SECOND)  # longer than the heartbeat interval, so that a heartbeat is sent
    assert len(lab.of_kind("commit_failed")) == 0  # the commits wait
    assert len(broker.of_type(FindCoordinatorRequest)) == lookups_before + 1


def test_member_asks_again_and_again_until_the_answer_is_not_the_dead_coordinator(
    make_lab: LabMaker,
) -> None:
    """After a kill, brokers name the dead coordinator until their metadata change.

    1. The member notices at once that the connection to its coordinator has ended.
    2. The member looks for its coordinator, and the answer is the dead broker. The member cannot
       connect to this broker, so it asks again. This goes on for 8 s here.
    3. The brokers answer with a new coordinator. The member continues with this coordinator, and
       keeps its id and its generation. It sends no JoinGroup.
    """
    lab = make_lab(3)
    lab.coordinator = 2
    node = lab.consumer()
    lab.run_for(2 * SECOND)
    before_crash = member_status(node)

    lab.brokers[2].host.crash()
    killed_us = lab.hosts.loop.now_us()
    stale_s = 8
    lab.run_for(stale_s * SECOND)

    unknown = [row for row in lab.of_kind("coordinator_unknown") if row.time_us > killed_us]
    assert unknown[0].time_us - killed_us < 50 * MS

    found = [row for row in lab.of_kind("coordinator_found") if row.time_us > killed_us]
    assert {row.peer for row in found} == {"broker-2"}
    assert "broker-2" not in {row.cause for row in found}  # the dead broker answers no lookup
    # The longest backoff is a second. So there is at least one lookup in each second.
    assert stale_s <= len(found) <= stale_s * LOOKUPS_PER_SECOND_MAX
    # The cause is "DISCONNECTED" if the member is waiting for an answer when the connection ends.
    # Otherwise the cause is "coordinator unavailable".
    assert {row.cause for row in unknown} <= {"coordinator unavailable", "DISCONNECTED"}

    lab.coordinator = 1
    moved_us = lab.hosts.loop.now_us()
    lab.run_for(2 * SECOND)
    after_move = member_status(node)
    assert after_move.coordinator == 1
    assert after_move.state == "STABLE"
    assert after_move.member_id == before_crash.member_id
    assert after_move.generation == before_crash.generation
    first_commit = next(row for row in lab.of_kind("offsets_committed") if row.time_us > moved_us)
    assert first_commit.time_us - moved_us < (BACKOFF_MAX_MS + COMMIT_INTERVAL_MS) * MS
    assert first_commit.peer == "broker-1"
    assert lab.brokers[1].of_type(JoinGroupRequest) == []


def test_consumer_without_a_coordinator_continues_to_fetch_and_process(make_lab: LabMaker) -> None:
    """Without a coordinator a member cannot commit, but it goes on reading (BEHAVIOUR 7.4).

    A member keeps its partitions as long as no answer of a coordinator takes them away. Here each
    of the two partitions gets a new record every 200 ms, 20 times.
    """
    lab = make_lab(2)
    lab.coordinator = 1
    node = lab.consumer()
    lab.run_for(2 * SECOND)

    lab.brokers[1].host.crash()
    lab.run_for(100 * MS)
    consumed_before = member_status(node).records_consumed
    for _ in range(20):
        lab.high_watermark += 1
        lab.run_for(200 * MS)
    lab.run_for(SECOND)

    assert member_status(node).records_consumed == consumed_before + 2 * 20
    assert {row.error for row in lab.of_kind("commit_failed")} <= {
        "COORDINATOR_NOT_AVAILABLE",
        "DISCONNECTED",
    }


def test_member_that_gets_a_stale_answer_asks_again(make_lab: LabMaker) -> None:
    """After NOT_COORDINATOR the member looks for its coordinator.

    The answer to the first lookup is stale: it names the old coordinator, which refuses the member
    again. The answer to the second lookup names the new coordinator.
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


def test_connection_that_the_client_closes_itself_causes_no_metadata_request(
    make_lab: LabMaker,
) -> None:
    """As in Kafka, only a connection that the broker closes causes a metadata request.

    After NOT_COORDINATOR the client itself closes the connection to its coordinator, and then
    looks for its coordinator. A lookup goes to the broker with the fewest requests in flight. With
    a metadata request in flight this would be another broker than in Kafka's client.
    """
    lab = make_lab(2)
    lab.consumer()
    lab.run_for(2 * SECOND)

    def metadata_requests() -> int:
        return sum(len(broker.of_type(MetadataRequest)) for broker in lab.brokers)

    metadata_requests_before = metadata_requests()
    not_coordinator = HeartbeatResponse(error_code=ErrorCode.NOT_COORDINATOR)
    lab.brokers[0].answer(HeartbeatRequest, not_coordinator)
    lab.run_for(5 * SECOND)
    causes = [row.cause for row in lab.of_kind("coordinator_unknown")]
    assert causes[0] == "NOT_COORDINATOR"
    assert metadata_requests() == metadata_requests_before


def test_lookup_sent_to_a_silent_broker_is_given_up(make_lab: LabMaker) -> None:
    """A lookup without an answer is given up long before its request timeout of 30 s.

    1. The member has fetched from broker 1, which no longer leads. The connection to broker 1 is
       still open and idle, so broker 1 has the fewest requests in flight.
    2. Broker 1 is paused. Its connections stay open, so no error will end a lookup there.
    3. The member must look for its coordinator. The lookup goes to broker 1.
    4. After retry.backoff.ms the member gives up this lookup and begins another. Kafka's heartbeat
       thread does the same. Broker 1 answers nothing, so it soon has more requests in flight than
       broker 0, and the member asks broker 0.
    """
    lab = make_lab(2)
    lab.leader = 1
    lab.consumer(commit_interval_ms=None)
    lab.run_for(2 * SECOND)

    lab.leader = 0
    lab.leader_epoch = 1
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
    _at_start, found, *_ = lab.of_kind("coordinator_found")
    assert found.cause == "broker-0"
    assert found.time_us - marked_unknown.time_us < SECOND
