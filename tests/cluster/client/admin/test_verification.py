"""The verification at the end of a run: it reads the committed offsets of a group.

A checker compares these offsets with the commits that were acknowledged during the run.

- `make_lab(n)` makes `lab`, with `n` scripted brokers.
- `lab.coordinator` is the broker that coordinates the group, at first broker 0.
- `lab.committed` has the committed offsets, by partition number. The topic `t` has two partitions.
- `broker.answer(Request, a, b)` scripts the broker's next answers to requests of that type.
- `lab.of_kind(kind)` returns rows of the trace (the recorded events). `broker.of_type(Request)`
  returns the requests of that type that a broker has received.
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
    """A partition without an offset is not in the result; its row in the trace has -1.

    `require_stable` is set, so that no offset of an open transaction is read.
    """
    lab = make_lab(2)
    lab.coordinator = 1
    lab.committed = {0: 11}
    assert ask(lab) == {TopicPartition("t", 0): 11}
    (request,) = lab.brokers[1].of_type(OffsetFetchRequest)
    assert isinstance(request, OffsetFetchRequest)
    assert request.require_stable
    assert request.groups[0].topics is None  # None asks for all topics
    assert [
        (row.partition, row.offset, row.cause, row.peer) for row in lab.of_kind("offsets_fetched")
    ] == [
        ("t-0", 11, "verification", "broker-1"),
        ("t-1", -1, "verification", "broker-1"),
    ]


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
    """A retriable error leads to another request: loading, another coordinator, unstable offsets.

    Five answers have errors, and the sixth has the offsets.
    """
    lab = make_lab(1)
    lab.committed = {0: 1}
    lab.brokers[0].answer(
        OffsetFetchRequest,
        *[group_error(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)] * 3,
        group_error(ErrorCode.NOT_COORDINATOR),
        lab.fetched_offsets(range(2), ErrorCode.UNSTABLE_OFFSET_COMMIT),
    )
    assert ask(lab) == {TopicPartition("t", 0): 1}
    assert len(lab.brokers[0].of_type(OffsetFetchRequest)) == 6


def test_committed_offsets_without_any_broker_time_out_after_a_minute(make_lab: LabMaker) -> None:
    """After default.api.timeout.ms the fetch raises, and the checker's verdict is UNKNOWN.

    A missing answer does not prove that a commit is lost.
    """
    lab = make_lab(2)
    for broker in lab.brokers:
        broker.host.crash()
    with pytest.raises(TimeoutError, match="g in 60000 ms"):
        ask(lab)
    assert 60 * SECOND <= lab.hosts.loop.now_us() < 61 * SECOND


def test_committed_offsets_without_authorization_are_an_error_at_once(make_lab: LabMaker) -> None:
    """A retry cannot help without authorization, so the fetch raises at once."""
    lab = make_lab(1)
    lab.brokers[0].answer(OffsetFetchRequest, group_error(ErrorCode.GROUP_AUTHORIZATION_FAILED))
    with pytest.raises(ClientError, match="GROUP_AUTHORIZATION_FAILED"):
        ask(lab)


def test_committed_offsets_can_be_requested_twice_on_one_host(make_lab: LabMaker) -> None:
    """All calls share one host, `admin-0`, so each call must close its connections.

    `run_for` raises if a task of the host fails in the 400 s after the calls.
    """
    lab = make_lab(1)
    lab.committed = {0: 1}
    host = lab.client_host("admin-0")
    for _ in range(2):
        answer = lab.hosts.run(fetch_committed_offsets(host, lab.cluster, GROUP))
        assert answer == {TopicPartition("t", 0): 1}
    lab.run_for(400 * SECOND)
