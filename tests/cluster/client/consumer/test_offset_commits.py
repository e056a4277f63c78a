"""OffsetCommit and OffsetFetch of a member: their contents, and all errors of their answers.

In these tests a real consumer talks to scripted brokers, which give the answers that the test has
prepared. docs/kafka/BEHAVIOUR.md 7.5 has tables of what Kafka's consumer does after each error.
Ids such as CL-19 are cases on that page.

`make_lab(n)` makes a `lab` with `n` scripted brokers. By default the brokers answer without errors:

- Broker 0 is the coordinator of the group. The consumer is the only member, so it gets both
  partitions of the topic `t`.
- `lab.high_watermark` is the number of records in each partition, and `lab.committed` has the
  committed offsets, such as `{0: 4, 1: 4}`.
- The application of the consumer commits every 200 ms. With `commit_interval_ms` it commits at this
  interval, or never if the interval is None.

The tests use these calls:

- `broker.answer(Request, a, b)` scripts the next answers of the broker to requests of this type.
  An answer None leaves the request unanswered.
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
from protocol.messages.discovery import FindCoordinatorRequest
from protocol.messages.group import HeartbeatRequest, HeartbeatResponse, JoinGroupRequest
from protocol.messages.offset import (
    OffsetCommitRequest,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
)
from tests.support.harness.scripted_broker import (
    GROUP,
    MS,
    SECOND,
    ClientLab,
    LabMaker,
    commit_error,
    member_status,
)


def last_join(lab: ClientLab) -> JoinGroupRequest:
    """Return the last JoinGroup that broker 0 has received."""
    request = lab.brokers[0].of_type(JoinGroupRequest)[-1]
    assert isinstance(request, JoinGroupRequest)
    return request


def test_commit_carries_generation_and_every_position(make_lab: LabMaker) -> None:
    """A commit has the offsets of all partitions, and the member's id and generation.

    When the commit is acknowledged, the consumer writes a row OFFSETS_COMMITTED for each partition.
    The `peer` of the row is the coordinator that has acknowledged the commit.
    """
    lab = make_lab(1)
    lab.high_watermark = 4
    node = lab.consumer()
    lab.run_for(SECOND)
    assert lab.committed == {0: 4, 1: 4}
    rows = lab.of_kind("offsets_committed")[-2:]  # the rows of the last commit
    assert [(row.partition, row.offset, row.peer, row.member, row.generation) for row in rows] == [
        ("t-0", 4, "broker-0", "m-1", 1),
        ("t-1", 4, "broker-0", "m-1", 1),
    ]
    # The status counts requests. The trace has two rows for each request: one for each partition.
    assert member_status(node).commits_acknowledged == len(lab.of_kind("offsets_committed")) // 2


def test_commits_carry_the_texts_of_the_application_in_turn(make_lab: LabMaker) -> None:
    """A commit can have a text: the metadata of its offsets. The application takes texts in turn.

    Here the application has two texts: an empty one, and an owl, which is one character of four
    bytes. The broker refuses one commit because of its text. The next commit has the next text even
    after a refusal.
    """
    lab = make_lab(1)
    lab.consumer(commit_metadata=("", "\U0001f989"))
    lab.run_for(SECOND)
    lab.brokers[0].answer(OffsetCommitRequest, commit_error(ErrorCode.OFFSET_METADATA_TOO_LARGE))
    lab.run_for(SECOND)
    # The texts of each commit, as a set: all partitions of a commit have the same text.
    texts = [
        {partition.committed_metadata for topic in request.topics for partition in topic.partitions}
        for request in lab.brokers[0].of_type(OffsetCommitRequest)
        if isinstance(request, OffsetCommitRequest)
    ]
    assert texts[:4] == [{""}, {"\U0001f989"}] * 2
    assert {row.error for row in lab.of_kind("commit_failed")} == {"OFFSET_METADATA_TOO_LARGE"}
    last_success = lab.of_kind("offsets_committed")[-1]
    last_failure = lab.of_kind("commit_failed")[-1]
    assert last_success.time_us > last_failure.time_us


def test_application_has_one_commit_in_flight(make_lab: LabMaker) -> None:
    """The application sends its next commit only after the answer to its last commit.

    The application that we used to measure a real Kafka cluster did the same
    (docs/kafka/MEASURED_FAILOVER.md, set-up).
    """
    lab = make_lab(1)
    broker = lab.brokers[0]
    lab.consumer()
    lab.run_for(SECOND)
    commits_before = len(broker.of_type(OffsetCommitRequest))
    # One commit gets no answer, and has not timed out after 5 s. If the application did not wait
    # for the answer, it would send 25 commits in these 5 s: one every 200 ms.
    broker.answer(OffsetCommitRequest, None)
    lab.run_for(5 * SECOND)
    assert len(broker.of_type(OffsetCommitRequest)) == commits_before + 1


@pytest.mark.parametrize(
    ("code", "looks_for_coordinator"),
    [
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, False),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, False),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, True),
        (ErrorCode.NOT_COORDINATOR, True),
        (ErrorCode.REQUEST_TIMED_OUT, True),
    ],
)
def test_commit_with_a_retriable_error_fails_once_and_the_next_one_succeeds(
    make_lab: LabMaker, code: ErrorCode, looks_for_coordinator: bool
) -> None:
    """An asynchronous commit is never repeated, but the application's next commit succeeds.

    The member stays in its generation. After some of the errors it must look for its coordinator.
    """
    lab = make_lab(1)
    lab.brokers[0].answer(OffsetCommitRequest, commit_error(code))
    node = lab.consumer()
    lab.run_for(2 * SECOND)
    # While the member looks for its coordinator, its commits fail without being sent. The rows of
    # such commits have no peer, and are left out here.
    failed = [row for row in lab.of_kind("commit_failed") if row.peer is not None]
    assert [(row.error, row.partition) for row in failed] == [
        (code.name, "t-0"),
        (code.name, "t-1"),
    ]
    causes = [row.cause for row in lab.of_kind("coordinator_unknown")]
    if looks_for_coordinator:
        assert causes[0] == code.name
    else:
        assert causes == []
    assert lab.of_kind("offsets_committed")
    assert member_status(node).generation == 1


@pytest.mark.parametrize(
    ("code", "next_member_id", "end_of_ownership"),
    [
        (ErrorCode.REBALANCE_IN_PROGRESS, "m-1", "partitions_revoked"),
        (ErrorCode.ILLEGAL_GENERATION, "m-1", "partitions_lost"),
        (ErrorCode.UNKNOWN_MEMBER_ID, "", "partitions_lost"),
    ],
)
def test_commit_error_about_the_membership_makes_the_member_rejoin(
    make_lab: LabMaker, code: ErrorCode, next_member_id: str, end_of_ownership: str
) -> None:
    """The member joins again with its id m-1. After UNKNOWN_MEMBER_ID it has no id (CL-19)."""
    lab = make_lab(1)
    lab.brokers[0].answer(OffsetCommitRequest, commit_error(code))
    lab.consumer()
    lab.run_for(SECOND)
    # The member has sent two JoinGroups at its start: one to get an id, and one with this id.
    join_after_failure = lab.brokers[0].of_type(JoinGroupRequest)[2]
    assert isinstance(join_after_failure, JoinGroupRequest)
    assert join_after_failure.member_id == next_member_id
    assert len(lab.of_kind(end_of_ownership)) == 1


def test_commit_while_rebalancing_fails_without_being_sent(make_lab: LabMaker) -> None:
    """During a rebalance a member has no generation to commit in, so it sends no commit.

    Source: BEHAVIOUR 7.5.
    """
    lab = make_lab(1)
    broker = lab.brokers[0]
    node = lab.consumer(
        ConsumerConfig(
            enable_auto_commit=True,
            auto_commit_interval_ms=100,
            auto_offset_reset="earliest",
        ),
        commit_interval_ms=None,
    )
    lab.run_for(SECOND)
    # The member learns of a rebalance from the answer to its next Heartbeat, within 3 s. The
    # JoinGroup that it then sends gets no answer, so the rebalance does not end.
    broker.answer(HeartbeatRequest, HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
    broker.answer(JoinGroupRequest, None)
    lab.run_for(4 * SECOND)

    commits_before = len(broker.of_type(OffsetCommitRequest))
    assert member_status(node).state == "PREPARING_REBALANCE"
    lab.run_for(SECOND)  # ten intervals of the automatic commit
    assert len(broker.of_type(OffsetCommitRequest)) == commits_before


def test_sync_commit_before_revocation_is_retried_until_it_is_acknowledged(
    make_lab: LabMaker,
) -> None:
    """Before a member joins again, it commits its offsets, and waits for the answer (CL-18).

    After a retriable error the member repeats this synchronous commit. Here there are four such
    errors. The member gives up its partitions only when the commit is acknowledged. The commit
    interval is longer than the test, so there is no other commit.
    """
    lab = make_lab(1)
    broker = lab.brokers[0]
    lab.consumer(commit_interval_ms=60_000)
    lab.run_for(SECOND)
    lab.high_watermark = 2
    lab.run_for(SECOND)

    broker.answer(HeartbeatRequest, HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
    broker.answer(
        OffsetCommitRequest,
        *[commit_error(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)] * 3,
        commit_error(ErrorCode.NOT_COORDINATOR),
    )
    lab.run_for(4 * SECOND)

    assert len(lab.of_kind("commit_failed")) == 4 * 2  # four failures, each of two partitions
    assert lab.committed == {0: 2, 1: 2}
    (revoked,) = lab.of_kind("partitions_revoked")
    acknowledged = [row.time_us for row in lab.of_kind("offsets_committed") if row.offset == 2]
    assert acknowledged[0] <= revoked.time_us


def test_fenced_sync_commit_does_not_delay_the_rejoin(make_lab: LabMaker) -> None:
    """The commit before a rejoin is not repeated if it can never succeed (CL-15)."""
    lab = make_lab(1)
    broker = lab.brokers[0]
    lab.consumer(commit_interval_ms=60_000)
    lab.run_for(SECOND)
    broker.answer(HeartbeatRequest, HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
    broker.answer(OffsetCommitRequest, commit_error(ErrorCode.UNKNOWN_MEMBER_ID))
    lab.run_for(4 * SECOND)

    joins = broker.of_type(JoinGroupRequest)
    member_ids = [join.member_id for join in joins if isinstance(join, JoinGroupRequest)]
    # The member has sent the first two JoinGroups at its start. After UNKNOWN_MEMBER_ID it has no
    # id. It sends one JoinGroup to get the new id, m-2, and another JoinGroup with this id.
    assert member_ids[2:] == ["", "m-2"]


def test_auto_commit_is_sent_every_interval(make_lab: LabMaker) -> None:
    """poll() commits after each auto.commit.interval.ms, even if there is no new record (CL-20).

    enable.auto.commit is true by default.
    """
    lab = make_lab(1)
    lab.high_watermark = 1
    config = ConsumerConfig(auto_offset_reset="earliest", auto_commit_interval_ms=1_000)
    lab.consumer(config, commit_interval_ms=None)
    lab.run_for(10_500 * MS)
    # The member commits every second. It begins when it has joined, within the first second.
    assert 9 <= len(lab.brokers[0].of_type(OffsetCommitRequest)) <= 10
    assert lab.committed == {0: 1, 1: 1}


def test_auto_commit_after_a_retriable_failure_is_repeated_soon(make_lab: LabMaker) -> None:
    """A failed commit is repeated after retry.backoff.ms, not after the interval of 3 s (CL-20)."""
    lab = make_lab(1)
    config = ConsumerConfig(auto_offset_reset="earliest", auto_commit_interval_ms=3_000)
    lab.brokers[0].answer(OffsetCommitRequest, commit_error(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
    lab.consumer(config, commit_interval_ms=None)
    lab.run_for(4 * SECOND)
    failed = lab.of_kind("commit_failed")[0]
    acknowledged = lab.of_kind("offsets_committed")[0]
    # retry.backoff.ms is 100 ms by default.
    assert acknowledged.time_us - failed.time_us < 200 * MS


# -- OffsetFetch ------------------------------------------------------------------------------


def test_position_is_the_committed_offset(make_lab: LabMaker) -> None:
    """A member begins to read at the committed offset. The trace has this as a row POSITION_RESET.

    The member asks for the offset with an OffsetFetch that has requireStable. If an open
    transaction has a newer offset of a partition, the coordinator does not answer with the old
    offset, but with an error.
    """
    lab = make_lab(1)
    lab.committed = {0: 7, 1: 9}
    lab.high_watermark = 20
    node = lab.consumer()
    lab.run_for(SECOND)
    assert [(row.partition, row.offset, row.cause) for row in lab.of_kind("position_reset")] == [
        ("t-0", 7, "committed"),
        ("t-1", 9, "committed"),
    ]
    (request,) = lab.brokers[0].of_type(OffsetFetchRequest)
    assert isinstance(request, OffsetFetchRequest)
    assert request.require_stable
    assert member_status(node).records_consumed == (20 - 7) + (20 - 9)


def group_error(code: ErrorCode) -> OffsetFetchResponse:
    """Return an answer to an OffsetFetch. It has an error for the group, and no partitions."""
    return OffsetFetchResponse(groups=(OffsetFetchResponseGroup(group_id=GROUP, error_code=code),))


@pytest.mark.parametrize(
    ("code", "looks_for_coordinator"),
    [
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, False),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, True),
        (ErrorCode.NOT_COORDINATOR, True),
    ],
)
def test_offset_fetch_with_a_retriable_error_is_repeated(
    make_lab: LabMaker, code: ErrorCode, looks_for_coordinator: bool
) -> None:
    """The member repeats the OffsetFetch (CL-21).

    If the coordinator is loading, the member asks the same coordinator again. After the other two
    errors the member first looks for its coordinator with a FindCoordinator.
    """
    lab = make_lab(1)
    lab.brokers[0].answer(OffsetFetchRequest, group_error(code), group_error(code))
    lab.committed = {0: 1, 1: 1}
    lab.consumer(commit_interval_ms=None)
    lab.run_for(2 * SECOND)
    # Two requests fail and the third succeeds. Then each of the two partitions has a position.
    assert len(lab.brokers[0].of_type(OffsetFetchRequest)) == 3
    assert len(lab.of_kind("position_reset")) == 2
    # The first lookup was at the start.
    lookups = len(lab.brokers[0].of_type(FindCoordinatorRequest))
    if looks_for_coordinator:
        assert lookups > 1
    else:
        assert lookups == 1


def test_offset_fetch_of_unstable_offsets_waits_for_them(make_lab: LabMaker) -> None:
    """An offset that a transaction has committed is unstable until the transaction ends.

    If any partition has UNSTABLE_OFFSET_COMMIT, the member repeats the request for all partitions
    (CL-21). Here three requests fail and the fourth succeeds.
    """
    lab = make_lab(1)
    unstable = lab.fetched_offsets(range(2), ErrorCode.UNSTABLE_OFFSET_COMMIT)
    lab.brokers[0].answer(OffsetFetchRequest, *[unstable] * 3)
    lab.consumer(commit_interval_ms=None)
    lab.run_for(2 * SECOND)
    assert len(lab.brokers[0].of_type(OffsetFetchRequest)) == 4
    assert len(lab.of_kind("position_reset")) == 2


def test_offset_fetch_of_an_unknown_topic_ends_the_application(make_lab: LabMaker) -> None:
    """UNKNOWN_TOPIC_OR_PARTITION is fatal as the answer to an OffsetFetch.

    The application gets the error and closes its consumer. In answers to other requests, for
    example to an OffsetCommit, this error is retriable.

    Source: BEHAVIOUR 7.5.
    """
    lab = make_lab(1)
    unknown = lab.fetched_offsets(range(2), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    lab.brokers[0].answer(OffsetFetchRequest, unknown)
    node = lab.consumer()
    lab.run_for(2 * SECOND)
    assert member_status(node).state == "UNJOINED"  # the closed consumer has left its group
    # The consumer has not joined again: this is still the second JoinGroup of the start.
    assert last_join(lab).member_id == "m-1"
