"""Heartbeats of a member: their interval, and every error that an answer can have.

Kafka's table of these errors is in docs/kafka/BEHAVIOUR.md 7.4; ids such as CL-17 are cases in that
document. A group's rebalances are numbered. The number of the last one is the group's generation; a
member sends it with each request.

A member can give up its partitions in two ways. A member that still belongs to its group revokes
them, and commits their offsets before that. A member that learns from an error that it no longer
belongs to its group loses them, and cannot commit their offsets.

- `make_lab(n)` makes `lab`, with `n` scripted brokers.
- `lab.coordinator` is the broker that coordinates the group, and `lab.leader` the broker that leads
  all partitions. Both are broker 0 until a test changes them.
- `lab.high_watermark` is the number of records that each partition has.
- `lab.consumer()` starts a consumer with an application that polls. `commit_interval_ms=None`: the
  application never commits, so that no commit is among the requests.
- `broker.answer(Request, a, b)` scripts the broker's next answers to requests of that type; None
  leaves a request unanswered. `broker.host` is the broker's access to the network.
- `lab.of_kind(kind)` returns rows of the trace (the recorded events). `broker.of_type(Request)`
  returns the requests of that type that a broker has received. `member_status(node)` is what the
  member reports of itself.
- `lab.run_for(SECOND)` lets a second of virtual time (a simulated clock) pass. A consumer joins its
  group within the first second.
- A member joins twice: first without an id, and then with the id that it got, `m-1`.
- By default a consumer has `enable.auto.commit=false` and `auto.offset.reset=earliest`. A test with
  settings of its own repeats them.
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

    The join takes less than a second, so there are 10 heartbeats in 31 s. Each has the member's id
    and generation.
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
    """REBALANCE_IN_PROGRESS makes the member revoke its partitions before it joins again.

    The two other errors reset its generation, so it loses its partitions. After UNKNOWN_MEMBER_ID
    the member also drops its id (BEHAVIOUR 7.4, CL-17).
    """
    lab = make_lab(1)
    lab.brokers[0].answer(HeartbeatRequest, heartbeat_error(code))
    node = lab.consumer()
    lab.run_for(5 * SECOND)
    assert member_ids(lab)[2] == next_member_id  # the first two JoinGroups are of the first join
    # One ownership ended, in one of the two ways.
    (ended,) = [*lab.of_kind("partitions_revoked"), *lab.of_kind("partitions_lost")]
    assert ended.kind == end_of_ownership
    assert (ended.member, ended.generation) == ("m-1", 1)
    assert member_status(node).state == "STABLE"


@pytest.mark.parametrize("code", [ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR])
def test_heartbeat_refused_as_not_coordinator_is_repeated_to_the_new_coordinator(
    make_lab: LabMaker, code: ErrorCode
) -> None:
    """The member looks for its coordinator and repeats the heartbeat; it does not join again.

    Source: BEHAVIOUR 7.4.
    """
    lab = make_lab(2)
    lab.brokers[0].answer(HeartbeatRequest, heartbeat_error(code))
    node = lab.consumer(commit_interval_ms=None)
    lab.run_for(2 * SECOND)
    lab.coordinator = 1
    lab.run_for(2 * SECOND)
    # The cause is the name of the error in the answer.
    assert [row.cause for row in lab.of_kind("coordinator_unknown")] == [code.name]
    # The first heartbeat was refused after 3 s, and broker 1 has a heartbeat 1 s later. So the
    # member did not wait for the next interval of 3 s.
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
    """The application gets the error and closes its consumer, which is then in state UNJOINED.

    The lab's consumer node plays the application: it polls, and closes the consumer on an error.
    """
    lab = make_lab(1)
    lab.brokers[0].answer(HeartbeatRequest, heartbeat_error(code))
    node = lab.consumer(commit_interval_ms=None)
    lab.run_for(10 * SECOND)
    assert len(lab.brokers[0].of_type(HeartbeatRequest)) == 1
    assert member_status(node).state == "UNJOINED"


def test_heartbeat_error_for_an_older_generation_is_ignored(make_lab: LabMaker) -> None:
    """A late answer about a generation that has ended must not change the member (CL-07).

    1. The coordinator hangs, with three heartbeats of generation 1 in flight.
    2. The first heartbeat gets ILLEGAL_GENERATION. The member joins again with its id.
    3. The second heartbeat gets UNKNOWN_MEMBER_ID, and the third FENCED_INSTANCE_ID. Both answers
       are about generation 1, which has ended, so the member keeps its id and goes on.
    """
    lab = make_lab(2)
    lab.leader = 1  # so that broker 0 gets only requests about the group, and no Fetch
    broker = lab.brokers[0]
    # None leaves the first heartbeat without an answer; below, the test itself answers it with
    # ILLEGAL_GENERATION. A broker handles the requests of a connection one after the other, so the
    # second and third heartbeat wait behind the first one and then get their scripted answers.
    broker.answer(
        HeartbeatRequest,
        None,
        heartbeat_error(ErrorCode.UNKNOWN_MEMBER_ID),
        heartbeat_error(ErrorCode.FENCED_INSTANCE_ID),
    )

    node = lab.consumer(commit_interval_ms=None)
    lab.run_for(10 * SECOND)

    (parked,) = broker.unanswered  # the first heartbeat; the broker has not read the others yet
    broker.host.reply(parked.request_id, heartbeat_error(ErrorCode.ILLEGAL_GENERATION))
    lab.run_for(SECOND)
    assert member_ids(lab) == ["", "m-1", "m-1"]
    status = member_status(node)
    assert (status.state, status.member_id, status.generation) == ("STABLE", "m-1", 2)


def test_unanswered_heartbeats_make_the_coordinator_unknown_after_the_session(
    make_lab: LabMaker,
) -> None:
    """A member that gets no answer for its session timeout, 10 s, looks for its coordinator again.

    Source: BEHAVIOUR 7.4.
    """
    lab = make_lab(1)
    config = ConsumerConfig(
        enable_auto_commit=False, auto_offset_reset="earliest", session_timeout_ms=10_000
    )
    # The first three heartbeats, at 3, 6 and 9 s, get no answer.
    lab.brokers[0].answer(HeartbeatRequest, *[None] * 3)
    lab.consumer(config, commit_interval_ms=None)
    lab.run_for(12 * SECOND)
    unknown = lab.of_kind("coordinator_unknown")[0]
    assert unknown.cause == "session timed out without receiving a heartbeat response"
    assert 10 * SECOND <= unknown.time_us <= 11 * SECOND


def test_application_that_does_not_poll_leaves_the_group_and_loses_its_partitions(
    make_lab: LabMaker,
) -> None:
    """After max.poll.interval.ms without a poll the member leaves; its next poll joins again.

    The topic has 2 partitions with one record each, and the first poll returns both records. The
    application works 4 s on each record, so it polls again only after 2 * 4 s = 8 s. The interval
    is 5 s (BEHAVIOUR 7.4).
    """
    lab = make_lab(1)
    config = ConsumerConfig(
        enable_auto_commit=False, auto_offset_reset="earliest", max_poll_interval_ms=5_000
    )
    lab.high_watermark = 1  # one record in each partition
    node = lab.consumer(config, process_us=4 * SECOND)
    lab.run_for(6_500 * MS)
    (leave,) = lab.brokers[0].of_type(LeaveGroupRequest)
    assert isinstance(leave, LeaveGroupRequest)
    assert leave.members[0].reason == "consumer poll timeout has expired"
    # The application is still busy, and learns of the loss at its next poll.
    assert lab.of_kind("partitions_lost") == []

    lab.run_for(5 * SECOND)
    assert len(lab.of_kind("partitions_lost")) == 1
    # Both records of the first poll count for the old member, m-1.
    assert {row.member for row in lab.of_kind("records_consumed")[:2]} == {"m-1"}
    assert member_ids(lab)[2:4] == ["", "m-2"]
    assert member_status(node).records_consumed >= 2


def test_application_that_polls_without_records_remains_in_the_group(make_lab: LabMaker) -> None:
    """An idle consumer polls every 50 ms, so max.poll.interval.ms never passes without a poll.

    To save computing, the consumer's node skips polls that would do nothing. The skipped polls must
    count as polls.
    """
    lab = make_lab(1)
    config = ConsumerConfig(
        enable_auto_commit=False, auto_offset_reset="earliest", max_poll_interval_ms=5_000
    )
    lab.consumer(config, commit_interval_ms=None)
    lab.run_for(60 * SECOND)
    assert lab.brokers[0].of_type(LeaveGroupRequest) == []
