"""JoinGroup, SyncGroup and LeaveGroup of a member: their order, and all errors of their answers.

In these tests a real consumer talks to scripted brokers, which give the answers that the test has
prepared. docs/kafka/BEHAVIOUR.md 7.3 has tables of what Kafka's consumer does after each error.
Ids such as CL-03 are cases on that page.

`make_lab(n)` makes a `lab` with `n` scripted brokers. By default the brokers answer without errors:

- A consumer joins twice. The first JoinGroup has no member id, and its answer gives the consumer
  the id `m-1`. The second JoinGroup has this id. The consumer is the only member of its group, so
  it gets both partitions of the topic `t`.
- Broker 0 is the coordinator of the group and the leader of the partitions. A test can assign
  another broker to `lab.coordinator` or `lab.leader`.
- `lab.high_watermark` is the number of records in each partition. The consumer reads them from the
  beginning, and its application commits every 200 ms. With `commit_interval_ms` it commits at this
  interval, or never if the interval is None. A test that passes its own ConsumerConfig repeats the
  usual settings, `enable_auto_commit=False` and `auto_offset_reset="earliest"`.

The tests use these calls:

- `broker.answer(Request, a, b)` scripts the next answers of the broker to requests of this type.
  An answer None leaves the request unanswered.
- `broker.of_type(Request)` returns the requests of this type that the broker has received.
- `lab.of_kind(kind)` returns the rows of the trace that have this kind. The trace is the list of
  the events that the nodes have recorded.
- `member_status(node)` returns what the consumer reports about itself.
- `lab.run_for(SECOND)` lets a second of virtual time pass. In this second a consumer can join its
  group.
"""

from collections.abc import Iterable

import pytest

from cluster.client.consumer.membership import truncate_reason
from protocol.config import ConsumerConfig
from protocol.errors import ErrorCode
from protocol.messages.discovery import FindCoordinatorRequest, MetadataRequest, MetadataResponse
from protocol.messages.group import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    SyncGroupRequest,
    SyncGroupResponse,
)
from protocol.messages.offset import OffsetCommitRequest
from tests.support.harness.scripted_broker import MS, SECOND, LabMaker, member_status

# The errors of a JoinGroup or a SyncGroup that are fatal: the consumer does not retry. The
# application gets the error, and closes the consumer.
JOIN_FATAL = [
    ErrorCode.FENCED_INSTANCE_ID,
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
    ErrorCode.INVALID_SESSION_TIMEOUT,
    ErrorCode.INVALID_GROUP_ID,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_MAX_SIZE_REACHED,
    ErrorCode.UNSUPPORTED_VERSION,
    ErrorCode.UNKNOWN_SERVER_ERROR,
]
SYNC_FATAL = [
    ErrorCode.FENCED_INSTANCE_ID,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.UNKNOWN_SERVER_ERROR,
]


def join_error(code: ErrorCode) -> JoinGroupResponse:
    """Return an answer to a JoinGroup with an error."""
    return JoinGroupResponse(error_code=code)


def joins_of(requests: Iterable[object]) -> list[JoinGroupRequest]:
    """Return the JoinGroups among these requests, in order."""
    return [request for request in requests if isinstance(request, JoinGroupRequest)]


def last_position(requests: Iterable[object], kind: type) -> int:
    """Return the position of the last request of a kind among these requests."""
    return max(index for index, request in enumerate(requests) if isinstance(request, kind))


def test_second_join_sends_the_member_id_of_the_first_answer(
    make_lab: LabMaker,
) -> None:
    """The answer to the first join is MEMBER_ID_REQUIRED, and has the id (CL-03, KIP-394).

    The member sends the second join without a backoff.
    """
    lab = make_lab(1)
    node = lab.consumer()
    lab.run_for(SECOND)
    first, second = joins_of(lab.brokers[0].requests)
    assert first.member_id == ""
    assert second.member_id == "m-1"
    assert first.rebalance_timeout_ms == ConsumerConfig().max_poll_interval_ms
    assert first.protocols == second.protocols
    status = member_status(node)
    assert status.state == "STABLE"
    assert status.member_id == "m-1"
    assert status.generation == 1
    assert [str(partition) for partition in status.assigned] == ["t-0", "t-1"]


def test_member_states_are_traced_in_kafkas_order(make_lab: LabMaker) -> None:
    """A member goes from UNJOINED through the two phases of a rebalance to STABLE.

    Source: BEHAVIOUR 7.1.
    """
    lab = make_lab(1)
    lab.consumer()
    lab.run_for(SECOND)
    assert [row.detail for row in lab.of_kind("member_state")] == [
        '{"from":"UNJOINED","to":"PREPARING_REBALANCE"}',
        '{"from":"PREPARING_REBALANCE","to":"COMPLETING_REBALANCE"}',
        '{"from":"COMPLETING_REBALANCE","to":"STABLE"}',
    ]


@pytest.mark.parametrize(
    ("code", "next_member_id", "looks_for_coordinator"),
    [
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "m-1", False),
        (ErrorCode.REBALANCE_IN_PROGRESS, "m-1", False),
        (ErrorCode.UNKNOWN_MEMBER_ID, "", False),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, "m-1", True),
        (ErrorCode.NOT_COORDINATOR, "m-1", True),
    ],
)
def test_join_group_error_is_retried_as_in_the_table(
    make_lab: LabMaker, code: ErrorCode, next_member_id: str, looks_for_coordinator: bool
) -> None:
    """After each of these errors the member joins again.

    Kafka's table (BEHAVIOUR 7.3) says after which errors the member loses its id, and after which
    errors it looks for its coordinator. The second JoinGroup gets the error. The third JoinGroup
    shows whether the member still has its id.
    """
    lab = make_lab(1)
    broker = lab.brokers[0]
    with_id = JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id="m-1")
    broker.answer(JoinGroupRequest, with_id, join_error(code))
    node = lab.consumer()
    lab.run_for(2 * SECOND)
    assert joins_of(broker.requests)[2].member_id == next_member_id
    causes = [row.cause for row in lab.of_kind("coordinator_unknown")]
    if looks_for_coordinator:
        assert causes[0] == code.name
    else:
        assert causes == []
    assert member_status(node).state == "STABLE"


@pytest.mark.parametrize("code", JOIN_FATAL)
def test_join_group_fatal_error_ends_the_application(make_lab: LabMaker, code: ErrorCode) -> None:
    """The application gets the error and closes its consumer (BEHAVIOUR 7.3)."""
    lab = make_lab(1)
    lab.brokers[0].answer(JoinGroupRequest, join_error(code))
    node = lab.consumer()
    # A member that joined again would do so within these 10 s.
    lab.run_for(10 * SECOND)
    assert len(joins_of(lab.brokers[0].requests)) == 1
    assert member_status(node).state == "UNJOINED"


def test_join_group_times_out_later_than_other_requests(make_lab: LabMaker) -> None:
    """A JoinGroup waits for the rebalance, so its timeout is the rebalance timeout plus 5 s.

    The rebalance timeout is max.poll.interval.ms, here 40 s (CL-02). After the 45 s the connection
    is closed, and the member looks for its coordinator.
    """
    lab = make_lab(1)
    config = ConsumerConfig(
        enable_auto_commit=False, auto_offset_reset="earliest", max_poll_interval_ms=40_000
    )
    lab.brokers[0].answer(JoinGroupRequest, None)
    lab.consumer(config)
    lab.run_for(44 * SECOND)
    assert len(joins_of(lab.brokers[0].requests)) == 1
    lab.run_for(2 * SECOND)
    (failed,) = lab.of_kind("request_failed")
    assert failed.api == "JoinGroup"
    assert failed.error == "TIMED_OUT"
    assert lab.of_kind("coordinator_unknown")[0].cause == "TIMED_OUT"
    assert len(joins_of(lab.brokers[0].requests)) > 1


def test_join_group_after_a_lost_connection_keeps_the_member_id(make_lab: LabMaker) -> None:
    """The coordinator dies while the second JoinGroup waits. The third keeps the id (CL-04)."""
    lab = make_lab(2)
    with_id = JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id="m-7")
    lab.brokers[0].answer(JoinGroupRequest, with_id, None)
    lab.leader = 1  # broker 0 will die, so another broker must lead the partitions
    lab.consumer()
    lab.run_for(SECOND)
    lab.coordinator = 1
    lab.brokers[0].host.crash()
    lab.run_for(2 * SECOND)
    assert [request.member_id for request in joins_of(lab.brokers[1].requests)] == ["m-7"]


@pytest.mark.parametrize(
    ("code", "next_member_id", "looks_for_coordinator"),
    [
        (ErrorCode.REBALANCE_IN_PROGRESS, "m-1", False),
        (ErrorCode.UNKNOWN_MEMBER_ID, "", False),
        (ErrorCode.ILLEGAL_GENERATION, "m-1", False),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, "m-1", True),
        (ErrorCode.NOT_COORDINATOR, "m-1", True),
    ],
)
def test_sync_group_error_leads_to_the_next_join_as_in_the_table(
    make_lab: LabMaker, code: ErrorCode, next_member_id: str, looks_for_coordinator: bool
) -> None:
    """After each error the member joins again. Only after UNKNOWN_MEMBER_ID it has lost its id.

    Source: BEHAVIOUR 7.3, SyncGroup.
    """
    lab = make_lab(1)
    broker = lab.brokers[0]
    broker.answer(SyncGroupRequest, SyncGroupResponse(error_code=code))
    node = lab.consumer()
    lab.run_for(2 * SECOND)
    # Two JoinGroups came before the SyncGroup, so the third one is the member's reaction.
    assert joins_of(broker.requests)[2].member_id == next_member_id
    causes = [row.cause for row in lab.of_kind("coordinator_unknown")]
    if looks_for_coordinator:
        assert causes[0] == code.name
    else:
        assert causes == []
    assert member_status(node).state == "STABLE"


@pytest.mark.parametrize("code", SYNC_FATAL)
def test_sync_group_fatal_error_ends_the_application(make_lab: LabMaker, code: ErrorCode) -> None:
    """After a fatal error the application closes, so no third JoinGroup is sent (BEHAVIOUR 7.3).

    COORDINATOR_LOAD_IN_PROGRESS is fatal here, although it only means that the coordinator is not
    ready yet. For this reason a real broker does not answer a SyncGroup with this error.
    """
    lab = make_lab(1)
    lab.brokers[0].answer(SyncGroupRequest, SyncGroupResponse(error_code=code))
    lab.consumer()
    lab.run_for(5 * SECOND)
    assert len(lab.brokers[0].of_type(SyncGroupRequest)) == 1
    assert len(joins_of(lab.brokers[0].requests)) == 2


def test_sync_group_answer_with_another_protocol_is_inconsistent(make_lab: LabMaker) -> None:
    """The answer must have the protocol that the group has selected.

    An answer with another protocol is a fatal error (CL-06). Here the group has selected range, and
    the answer says sticky.
    """
    lab = make_lab(1)
    lab.brokers[0].answer(
        SyncGroupRequest, SyncGroupResponse(protocol_type="consumer", protocol_name="sticky")
    )
    lab.consumer()
    lab.run_for(3 * SECOND)
    assert len(lab.brokers[0].of_type(SyncGroupRequest)) == 1
    assert lab.of_kind("partitions_assigned") == []


def test_sync_group_and_heartbeat_that_fail_together_cause_one_rejoin(make_lab: LabMaker) -> None:
    """Each of the two errors makes a member join again. The member must join only once (CL-08).

    1. The member's SyncGroup waits for its answer.
    2. After 3 s the member sends a heartbeat. The heartbeat waits behind the SyncGroup, because a
       broker answers the requests of a connection in order.
    3. The broker answers the SyncGroup with an error, and then the heartbeat with another error.
    """
    lab = make_lab(2)
    lab.leader = 1  # so that broker 0 gets only requests about the group, and no Fetch
    broker = lab.brokers[0]
    broker.answer(SyncGroupRequest, None)
    broker.answer(HeartbeatRequest, HeartbeatResponse(error_code=ErrorCode.ILLEGAL_GENERATION))
    lab.consumer()
    lab.run_for(4 * SECOND)
    (sync_group,) = broker.unanswered
    broker.host.reply(
        sync_group.request_id, SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
    )

    lab.run_for(2 * SECOND)
    assert len(broker.of_type(HeartbeatRequest)) == 1
    assert [join.member_id for join in joins_of(broker.requests)] == ["", "m-1", "m-1"]
    assert len(lab.of_kind("partitions_assigned")) == 1


def test_assignment_of_a_topic_that_is_not_subscribed_makes_the_member_rejoin(
    make_lab: LabMaker,
) -> None:
    """A member does not use an assignment that was made for an older subscription (CL-14).

    Here the member is subscribed to `t`, but the answer assigns a partition of `u`. So the member
    joins a third time.
    """
    lab = make_lab(1)
    # The bytes: version 0, one topic `u` with one partition 0, and no user data.
    assignment_of_u = (
        b"\x00\x00\x00\x00\x00\x01\x00\x01u\x00\x00\x00\x01\x00\x00\x00\x00\xff\xff\xff\xff"
    )
    lab.brokers[0].answer(SyncGroupRequest, SyncGroupResponse(assignment=assignment_of_u))
    node = lab.consumer()
    lab.run_for(SECOND)
    assert len(joins_of(lab.brokers[0].requests)) == 3
    assert [str(partition) for partition in member_status(node).assigned] == ["t-0", "t-1"]


def test_leader_without_metadata_waits_for_it_before_it_assigns(make_lab: LabMaker) -> None:
    """The leader of a group must know how many partitions a topic has, to assign them.

    Here the first two Metadata answers lack the topic. The leader waits for the third answer.

    Source: CL-12.
    """
    lab = make_lab(1)
    lab.brokers[0].answer(MetadataRequest, MetadataResponse(), MetadataResponse())
    node = lab.consumer()
    lab.run_for(2 * SECOND)
    assert len(member_status(node).assigned) == 2


def test_leader_that_sees_new_partitions_rejoins_and_assigns_them(make_lab: LabMaker) -> None:
    """The leader joins again if a topic has more partitions than at its last assignment.

    Here the leader refreshes its metadata every second (CL-13, BEHAVIOUR 7.7).
    """
    lab = make_lab(1)
    config = ConsumerConfig(
        enable_auto_commit=False, auto_offset_reset="earliest", metadata_max_age_ms=1_000
    )
    node = lab.consumer(config)
    lab.run_for(3 * SECOND)
    lab.partitions = 3
    lab.run_for(3 * SECOND)
    assert [str(partition) for partition in member_status(node).assigned] == ["t-0", "t-1", "t-2"]
    # The reasons for which the member began to join again.
    causes = [row.cause_text for row in lab.of_kind("member_state") if row.cause == "rebalance"]
    assert "cached metadata has changed" in causes
    lab.run_for(3 * SECOND)
    # There were two assignments: the first one, and the one with the new partition. The leader does
    # not rejoin once more, because it has assigned all partitions that it knows.
    assert len(lab.of_kind("partitions_assigned")) == 2


def test_revoked_partitions_are_committed_synchronously_before_the_join(
    make_lab: LabMaker,
) -> None:
    """In the eager protocol a member gives up all partitions before it joins again.

    Before the member gives up its partitions, it commits what it has processed, and waits for the
    answer (BEHAVIOUR 7.6). The commit interval is longer than the test, so no other commit is sent.
    """
    lab = make_lab(1)
    broker = lab.brokers[0]
    lab.consumer(commit_interval_ms=60_000)
    lab.run_for(SECOND)
    lab.high_watermark = 5
    lab.run_for(SECOND)

    broker.answer(HeartbeatRequest, HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
    lab.run_for(3 * SECOND)
    assert lab.committed == {0: 5, 1: 5}
    last_commit = last_position(broker.requests, OffsetCommitRequest)
    assert last_commit < last_position(broker.requests, JoinGroupRequest)

    (revoked,) = lab.of_kind("partitions_revoked")
    assert revoked.member == "m-1"
    assert revoked.generation == 1
    rejoined = joins_of(broker.requests)[-1]
    assert rejoined.member_id == "m-1"
    assert rejoined.reason == "group is already rebalancing"


def test_closing_a_dynamic_member_commits_and_leaves_the_group(make_lab: LabMaker) -> None:
    """A dynamic member, which has no group.instance.id, leaves its group when it is closed.

    So the group need not wait for the end of the member's session. Before the member leaves, it
    commits what it has processed.

    Source: CL-09, CL-22.
    """
    lab = make_lab(1)
    node = lab.consumer(commit_interval_ms=60_000)
    lab.run_for(SECOND)
    lab.high_watermark = 3
    lab.run_for(SECOND)

    node.close()
    lab.run_for(5 * SECOND)
    (leave,) = lab.brokers[0].of_type(LeaveGroupRequest)
    assert isinstance(leave, LeaveGroupRequest)
    assert [member.member_id for member in leave.members] == ["m-1"]
    assert lab.committed == {0: 3, 1: 3}
    assert member_status(node).assigned == ()

    requests_after_close = len(lab.brokers[0].requests)
    lab.run_for(10 * SECOND)
    assert len(lab.brokers[0].requests) == requests_after_close


def test_closing_a_static_member_sends_no_leave_group(make_lab: LabMaker) -> None:
    """A static member, which has a group.instance.id, does not leave its group (CL-09).

    If the member returns before its session ends, it gets the same partitions.
    """
    lab = make_lab(1)
    config = ConsumerConfig(
        enable_auto_commit=False, auto_offset_reset="earliest", group_instance_id="i"
    )
    node = lab.consumer(config)
    lab.run_for(SECOND)
    node.close()
    lab.run_for(SECOND)
    assert lab.brokers[0].of_type(LeaveGroupRequest) == []
    assert member_status(node).state == "UNJOINED"


def test_closing_without_a_coordinator_returns(make_lab: LabMaker) -> None:
    """Without a coordinator a member cannot leave its group, but its close() returns.

    Source: CL-22.
    """
    lab = make_lab(2)
    lab.coordinator = 1
    node = lab.consumer(commit_interval_ms=None)
    lab.run_for(SECOND)

    lab.brokers[1].host.crash()
    lab.run_for(10 * MS)  # the client has noticed the end of its connection
    node.close()
    lab.run_for(SECOND)
    assert member_status(node).assigned == ()

    # A consumer that is closed no longer looks for its coordinator.
    lookups = len(lab.brokers[0].of_type(FindCoordinatorRequest))
    lab.run_for(5 * SECOND)
    assert len(lab.brokers[0].of_type(FindCoordinatorRequest)) == lookups


def test_reason_is_truncated_to_255_bytes_between_characters() -> None:
    """A reason has at most 255 bytes, and no character is cut in two (CL-05).

    127 letters of two bytes have 254 bytes, and the 128th does not fit.
    """
    assert truncate_reason("x" * 300) == "x" * 255
    assert truncate_reason("é" * 200) == "é" * 127
