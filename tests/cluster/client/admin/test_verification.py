"""An administrator's reading of the committed offsets of a group, by `fetch_committed_offsets`.

At the end of an experiment a check compares the committed offsets of each group with the commits
that were acknowledged during the experiment. In these tests the administrator talks to scripted
brokers, which are fakes:

    lab = make_lab(2)             # two brokers, and a topic "t" with two partitions
    lab.coordinator = 1           # broker 1 coordinates the group; at first broker 0 does
    lab.committed = {0: 11}       # the group has committed offset 11 of t-0
    ask(lab)                      # read the committed offsets
    lab.brokers[0].answer(OffsetFetchRequest, a, b)  # broker 0's next two answers are a and b
    lab.brokers[1].of_type(OffsetFetchRequest)       # the requests that broker 1 has received
    lab.of_kind("offsets_fetched")                   # the recorded events of this kind
"""

import pytest

from cluster.client.admin.orders import fetch_committed_offsets
from cluster.client.net.errors import ClientError
from protocol.errors import ErrorCode
from protocol.ids import TopicPartition
from protocol.messages.offset import (
    OffsetFetchRequest,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
)
from tests.support.harness.scripted_broker import GROUP, SECOND, ClientLab, LabMaker


def ask(lab: ClientLab) -> dict[TopicPartition, int]:
    """Return the committed offsets that an administrator reads, by partition."""
    host = lab.client_host("admin-0")
    return dict(lab.hosts.run(fetch_committed_offsets(host, lab.cluster, GROUP)))


def group_error(code: ErrorCode) -> OffsetFetchResponse:
    """Return an answer with an error for the group as a whole."""
    return OffsetFetchResponse(groups=(OffsetFetchResponseGroup(group_id=GROUP, error_code=code),))


def test_committed_offsets_are_read_stable_and_traced_as_verification(make_lab: LabMaker) -> None:
    """A partition without a committed offset is not in the result. Its event has the offset -1.

    The request has `require_stable`, so that no offset of an open transaction is read.
    """
    lab = make_lab(2)
    lab.coordinator = 1
    lab.committed = {0: 11}
    assert ask(lab) == {TopicPartition("t", 0): 11}
    (request,) = lab.brokers[1].of_type(OffsetFetchRequest)
    assert isinstance(request, OffsetFetchRequest)
    assert request.require_stable
    assert request.groups[0].topics is None  # None asks for all topics
    events = lab.of_kind("offsets_fetched")
    assert [(event.partition, event.offset) for event in events] == [("t-0", 11), ("t-1", -1)]
    assert {event.cause for event in events} == {"verification"}
    assert {event.peer for event in events} == {"broker-1"}


def test_named_partitions_are_fetched_by_name(make_lab: LabMaker) -> None:
    """If the caller names partitions, the request asks only for these partitions."""
    lab = make_lab(2)
    lab.coordinator = 1
    host = lab.client_host("admin-0")
    partitions = [TopicPartition("t", 0), TopicPartition("t", 1)]
    lab.committed = {0: 11}
    answer = lab.hosts.run(fetch_committed_offsets(host, lab.cluster, GROUP, partitions))
    assert answer == {TopicPartition("t", 0): 11}
    (request,) = lab.brokers[1].of_type(OffsetFetchRequest)
    assert isinstance(request, OffsetFetchRequest)
    assert request.groups[0].topics == (
        OffsetFetchRequestTopics(name="t", partition_indexes=(0, 1)),
    )


def test_committed_offsets_are_requested_until_the_coordinator_has_loaded(
    make_lab: LabMaker,
) -> None:
    """After a temporary error the administrator asks again.

    Five answers have such errors: the coordinator still loads the group (three times), the group
    has another coordinator, and a transaction is still open. The sixth answer has the offsets.
    """
    lab = make_lab(1)
    lab.committed = {0: 1}
    lab.brokers[0].answer(
        OffsetFetchRequest,
        *[group_error(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)] * 3,
        group_error(ErrorCode.NOT_COORDINATOR),
        # An error for each of the partitions 0 and 1.
        lab.fetched_offsets(range(2), ErrorCode.UNSTABLE_OFFSET_COMMIT),
    )
    assert ask(lab) == {TopicPartition("t", 0): 1}
    assert len(lab.brokers[0].of_type(OffsetFetchRequest)) == 6


def test_committed_offsets_without_any_broker_time_out_after_a_minute(make_lab: LabMaker) -> None:
    """The administrator gives up after a minute (default.api.timeout.ms).

    The check of the experiment then has the result UNKNOWN, because a missing answer does not prove
    that a commit is lost.
    """
    lab = make_lab(2)
    for broker in lab.brokers:
        broker.host.crash()
    with pytest.raises(TimeoutError, match="g in 60000 ms"):
        ask(lab)
    assert 60 * SECOND <= lab.hosts.loop.now_us() < 61 * SECOND


def test_committed_offsets_without_authorization_are_an_error_at_once(make_lab: LabMaker) -> None:
    """Without authorization the administrator does not ask again."""
    lab = make_lab(1)
    lab.brokers[0].answer(OffsetFetchRequest, group_error(ErrorCode.GROUP_AUTHORIZATION_FAILED))
    with pytest.raises(ClientError, match="GROUP_AUTHORIZATION_FAILED"):
        ask(lab)


def test_committed_offsets_can_be_requested_twice_on_one_host(make_lab: LabMaker) -> None:
    """An administrator may be used more than once, so a call must close its connections.

    If a connection stayed open, a task of the host would fail within 400 s after the calls, and
    `run_for` would raise the error.
    """
    lab = make_lab(1)
    lab.committed = {0: 1}
    host = lab.client_host("admin-0")
    for _ in range(2):
        answer = lab.hosts.run(fetch_committed_offsets(host, lab.cluster, GROUP))
        assert answer == {TopicPartition("t", 0): 1}
    lab.run_for(400 * SECOND)
