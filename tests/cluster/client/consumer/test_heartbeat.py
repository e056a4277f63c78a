"""Heartbeats of a member: their interval, and every error that an answer can have.

In these tests a real consumer talks to scripted brokers, which give the answers that the test has
prepared. docs/kafka/BEHAVIOUR.md 7.4 has a table of what Kafka's consumer does after each error.
Ids such as CL-17 are cases on that page.

`make_lab(n)` makes a `lab` with `n` scripted brokers. By default the brokers answer without errors:

- A consumer joins twice. The first JoinGroup has no member id, and its answer gives the consumer
  the id `m-1`. The second JoinGroup has this id.
- Broker 0 is the coordinator of the group and the leader of the partitions. A test can assign
  another broker to `lab.coordinator` or `lab.leader`.
- `lab.high_watermark` is the number of records in each of the two partitions.
- `lab.consumer()` starts a consumer with an application that polls. With `commit_interval_ms=None`
  the application never commits. The consumers of this lab have `enable.auto.commit=false` and
  `auto.offset.reset=earliest`. A test that passes its own ConsumerConfig repeats these settings.

The tests use these calls:

- `broker.answer(Request, a, b)` scripts the next answers of the broker to requests of this type. An
  answer None leaves the request unanswered.
- `broker.of_type(Request)` returns the requests of this type that the broker has received.
- `lab.of_kind(kind)` returns the rows of the trace that have this kind. The trace is the list of
  the events that the nodes have recorded.
- `member_status(node)` returns what the consumer reports about itself.
- `lab.run_for(SECOND)` lets a second of virtual time pass. In this second a consumer can join its
  group.

Before a member joins again, it commits its offsets and gives up its partitions. The trace gets a
row `partitions_revoked`. A member that the group has fenced (its id or its generation is no longer
valid) can commit nothing. Then the row is `partitions_lost`.
"""

import pytest

from protocol.config import ConsumerConfig
from protocol.errors import ErrorCode
from protocol.messages.group import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    LeaveGroupRequest,
)
from tests.support.harness.scripted_broker import MS, SECOND, ClientLab, LabMaker, member_status


def heartbeat_error(code: ErrorCode) -> HeartbeatResponse:
    """Return an answer to a heartbeat with an error."""
    return HeartbeatResponse(error_code=code)


def member_ids(lab: ClientLab, broker: int = 0) -> list[str]:
    """Return the member ids in the JoinGroups that a broker has received, in order."""
    requests = lab.brokers[broker].of_type(JoinGroupRequest)
    return [request.member_id for request in requests if isinstance(request, JoinGroupRequest)]


def test_heartbeats_are_sent_every_interval_with_the_generation(make_lab: LabMaker) -> None:
    """After the join a heartbeat follows every 3 s (heartbeat.interval.ms).

    The join takes less than a second, so there are 10 heartbeats in 31 s.
    """
    lab = make_lab(1)
    lab.consumer(commit_interval_ms=None)
    lab.run_for(31 * SECOND)
    beats = lab.brokers[0].of_type(HeartbeatRequest)
    assert len(beats) == 10
    assert {
        (beat.member_id, beat.generation_id) for beat in beats if isinstance(beat, HeartbeatRequest)
    } == {("m-1", 1)}


@pytest.mark.parametrize(
    ("code", "next_member_id", "end_of_ownership"),
    [
        (ErrorCode.REBALANCE_IN_PROGRESS, "m-1", "partitions_revoked"),
        (ErrorCode.ILLEGAL_GENERATION, "m-1", "partitions_lost"),
        (ErrorCode.UNKNOWN_MEMBER_ID, "", "partitions_lost"),
    ],
)
def test_heartbeat_error_makes_the_member_rejoin_as_in_the_table(
    make_lab: LabMaker, code: ErrorCode, next_member_id: str, end_of_ownership: str
) -> None:
    """At REBALANCE_IN_PROGRESS the member still belongs to its group, and can commit its offsets.

    At ILLEGAL_GENERATION or UNKNOWN_MEMBER_ID the member can no longer commit. So it loses its
    partitions. At UNKNOWN_MEMBER_ID it also forgets its member id, and joins without an id
    (BEHAVIOUR 7.4, CL-17).
    """
    lab = make_lab(1)
    lab.brokers[0].answer(HeartbeatRequest, heartbeat_error(code))
    node = lab.consumer()
    lab.run_for(5 * SECOND)
    assert member_ids(lab)[2] == next_member_id  # the first two JoinGroups are those of the start
    (ended,) = [*lab.of_kind("partitions_revoked"), *lab.of_kind("partitions_lost")]
    assert ended.kind == end_of_ownership
    assert ended.member == "m-1"
    assert ended.generation == 1
    assert member_status(node).state == "STABLE"


@pytest.mark.parametrize("code", [ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR])
def test_heartbeat_refused_as_not_coordinator_is_repeated_to_the_new_coordinator(
    make_lab: LabMaker, code: ErrorCode
) -> None:
    """The member looks for its coordinator and repeats the heartbeat. It does not join again.

    The member sends its first heartbeat to broker 0 after 3 s, and broker 0 refuses it. Broker 1
    has become the coordinator, and gets a heartbeat within the next second. So the member does not
    wait for the next interval of 3 s.

    Source: BEHAVIOUR 7.4.
    """
    lab = make_lab(2)
    lab.brokers[0].answer(HeartbeatRequest, heartbeat_error(code))
    node = lab.consumer(commit_interval_ms=None)
    lab.run_for(2 * SECOND)
    lab.coordinator = 1
    lab.run_for(2 * SECOND)
    assert [row.cause for row in lab.of_kind("coordinator_unknown")] == [code.name]
    assert len(lab.brokers[1].of_type(HeartbeatRequest)) == 1
    assert member_ids(lab) == ["", "m-1"]
    assert member_status(node).generation == 1


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ],
)
def test_fatal_heartbeat_error_is_raised_by_the_next_poll(
    make_lab: LabMaker, code: ErrorCode
) -> None:
    """The application gets the error at its next poll, and then closes its consumer.

    A closed consumer sends no heartbeats. So the broker gets only the heartbeat that it refused.
    """
    lab = make_lab(1)
    lab.brokers[0].answer(HeartbeatRequest, heartbeat_error(code))
    node = lab.consumer(commit_interval_ms=None)
    lab.run_for(10 * SECOND)
    assert len(lab.brokers[0].of_type(HeartbeatRequest)) == 1
    assert member_status(node).state == "UNJOINED"


def test_heartbeat_error_for_an_older_generation_is_ignored(make_lab: LabMaker) -> None:
    """A late answer about a generation that has ended must not change the member (CL-07).

    1. The member sends three heartbeats in generation 1. The first one gets no answer, and the
       others wait behind it, because a broker answers the requests of a connection in order.
    2. The first heartbeat gets ILLEGAL_GENERATION. The member joins again with its id.
    3. The second heartbeat gets UNKNOWN_MEMBER_ID, and the third FENCED_INSTANCE_ID. Both answers
       are about generation 1, which has ended, so the member keeps its id and goes on.
    """
    lab = make_lab(2)
    lab.leader = 1  # so that broker 0 gets only requests about the group, and no Fetch
    broker = lab.brokers[0]
    broker.answer(
        HeartbeatRequest,
        None,
        heartbeat_error(ErrorCode.UNKNOWN_MEMBER_ID),
        heartbeat_error(ErrorCode.FENCED_INSTANCE_ID),
    )

    node = lab.consumer(commit_interval_ms=None)
    lab.run_for(10 * SECOND)

    (first_heartbeat,) = broker.unanswered  # the broker has not read the other heartbeats yet
    broker.host.reply(first_heartbeat.request_id, heartbeat_error(ErrorCode.ILLEGAL_GENERATION))
    lab.run_for(SECOND)
    assert member_ids(lab) == ["", "m-1", "m-1"]
    status = member_status(node)
    assert status.state == "STABLE"
    assert status.member_id == "m-1"
    assert status.generation == 2


def test_unanswered_heartbeats_make_the_coordinator_unknown_after_the_session(
    make_lab: LabMaker,
) -> None:
    """A member may get no answer to its heartbeats for the whole session timeout.

    Then it looks for its coordinator. Here the session timeout is 10 s, and the heartbeats at 3, 6
    and 9 s get no answer.

    Source: BEHAVIOUR 7.4.
    """
    lab = make_lab(1)
    config = ConsumerConfig(
        enable_auto_commit=False, auto_offset_reset="earliest", session_timeout_ms=10_000
    )
    lab.brokers[0].answer(HeartbeatRequest, *[None] * 3)
    lab.consumer(config, commit_interval_ms=None)
    lab.run_for(12 * SECOND)
    unknown = lab.of_kind("coordinator_unknown")[0]
    assert unknown.cause == "session timed out without receiving a heartbeat response"
    assert 10 * SECOND <= unknown.time_us <= 11 * SECOND


def test_application_that_does_not_poll_leaves_the_group_and_loses_its_partitions(
    make_lab: LabMaker,
) -> None:
    """After max.poll.interval.ms without a poll, here 5 s, the member leaves its group.

    Each of the two partitions has a record, and the first poll returns both records. The
    application works for 4 s on each record, so it polls again only after 2 * 4 s = 8 s. At this
    second poll the member joins again (BEHAVIOUR 7.4).
    """
    lab = make_lab(1)
    config = ConsumerConfig(
        enable_auto_commit=False, auto_offset_reset="earliest", max_poll_interval_ms=5_000
    )
    lab.high_watermark = 1  # one record in each partition
    node = lab.consumer(config, process_us=4 * SECOND)
    lab.run_for(6_500 * MS)  # longer than 5 s since the first poll, and shorter than 8 s
    (leave,) = lab.brokers[0].of_type(LeaveGroupRequest)
    assert isinstance(leave, LeaveGroupRequest)
    assert leave.members[0].reason == "consumer poll timeout has expired"
    # The application is still busy, and learns of the loss at its next poll.
    assert lab.of_kind("partitions_lost") == []

    lab.run_for(5 * SECOND)
    assert len(lab.of_kind("partitions_lost")) == 1
    # Both records of the first poll were consumed by the old member, m-1.
    assert {row.member for row in lab.of_kind("records_consumed")[:2]} == {"m-1"}
    assert member_ids(lab)[2:4] == ["", "m-2"]
    assert member_status(node).records_consumed >= 2


def test_application_that_polls_without_records_remains_in_the_group(make_lab: LabMaker) -> None:
    """An idle application polls every 50 ms, so max.poll.interval.ms never passes without a poll.

    The simulation skips polls that would do nothing, to save time. A skipped poll must count as a
    poll.
    """
    lab = make_lab(1)
    config = ConsumerConfig(
        enable_auto_commit=False, auto_offset_reset="earliest", max_poll_interval_ms=5_000
    )
    lab.consumer(config, commit_interval_ms=None)
    lab.run_for(60 * SECOND)
    assert lab.brokers[0].of_type(LeaveGroupRequest) == []
