"""OffsetFetch of missing groups, of several groups and of no group.

The other cases are in scenarios/offset_fetch.txt.

Kafka's behaviour is in docs/kafka/BEHAVIOUR.md 2.7. `h` is a CoordinatorHarness: a coordinator that
owns the only offsets partition, so every group is its own. `h.fetched` returns the answer for one
partition.
"""

from protocol.errors import ErrorCode
from protocol.messages.offset import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
)
from tests.support.builders.requests import offset_commit, offset_fetch
from tests.support.harness.coordinator_harness import CoordinatorHarness


def test_fetch_of_a_missing_group_has_no_offsets_and_no_error() -> None:
    """The answer has -1 for each missing offset, and the fetch creates no group."""
    h = CoordinatorHarness()
    partition = h.fetched("foo", 0)
    assert (partition.committed_offset, partition.committed_leader_epoch) == (-1, -1)
    assert (partition.metadata, partition.error_code) == ("", ErrorCode.NONE)
    # A request without partitions asks for all offsets of the group.
    assert h.fetch(offset_fetch()).groups[0].topics == ()
    assert h.coordinator.groups() == ()


def test_fetch_of_several_groups_answers_each() -> None:
    """Version 8 of the request can name several groups, and its answer has an error for each."""
    h = CoordinatorHarness()
    h.commit(offset_commit({("foo", 0): 5}, group_id="a"))
    groups = tuple(OffsetFetchRequestGroup(group_id=g) for g in ("a", "", "missing"))
    response = h.fetch(OffsetFetchRequest(groups=groups))
    assert [(g.group_id, g.error_code, len(g.topics)) for g in response.groups] == [
        ("a", ErrorCode.NONE, 1),
        ("", ErrorCode.NONE, 0),
        ("missing", ErrorCode.NONE, 0),
    ]


def test_fetch_of_no_group_is_never_answered() -> None:
    """A real Kafka 3.9.1 does not answer (BEHAVIOUR 0.1), not even after a timeout."""
    h = CoordinatorHarness()
    request_id = h.submit(OffsetFetchRequest(groups=()))
    h.advance(60_000)
    assert h.response(request_id) is None
