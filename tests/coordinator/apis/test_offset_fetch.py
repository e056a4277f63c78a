"""OffsetFetch: from memory, for anybody, in any state (BEHAVIOUR 2.7)."""

from protocol.errors import ErrorCode
from protocol.messages.offset import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
)
from tests.support.builders.requests import offset_commit, offset_fetch
from tests.support.harness.coordinator_harness import CoordinatorHarness


def test_fetch_of_a_missing_group_has_no_offsets_and_no_error() -> None:
    """Nobody creates a group by asking."""
    h = CoordinatorHarness()
    partition = h.fetched("foo", 0)
    assert (partition.committed_offset, partition.committed_leader_epoch) == (-1, -1)
    assert (partition.metadata, partition.error_code) == ("", ErrorCode.NONE)
    assert h.fetch(offset_fetch()).groups[0].topics == ()
    assert h.coordinator.groups() == ()


def test_fetch_returns_what_was_committed() -> None:
    """GC-099."""
    h = CoordinatorHarness()
    h.commit(offset_commit({("foo", 0): 5}, metadata="m", leader_epoch=3))
    partition = h.fetched("foo", 0)
    assert (partition.committed_offset, partition.committed_leader_epoch) == (5, 3)
    assert partition.metadata == "m"


def test_fetch_of_a_partition_without_offset_says_so() -> None:
    """GC-108."""
    h = CoordinatorHarness()
    h.commit(offset_commit({("foo", 0): 5}))
    partition = h.fetched("foo", 1)
    assert (partition.committed_offset, partition.error_code) == (-1, ErrorCode.NONE)


def test_fetch_of_all_returns_exactly_what_was_committed() -> None:
    """GC-110."""
    h = CoordinatorHarness()
    h.commit(offset_commit({("foo", 0): 5, ("bar", 1): 6, ("foo", 2): 7}))
    (group,) = h.fetch(offset_fetch()).groups
    assert [
        (t.name, p.partition_index, p.committed_offset) for t in group.topics for p in t.partitions
    ] == [("foo", 0, 5), ("foo", 2, 7), ("bar", 1, 6)]


def test_fetch_of_several_groups_answers_each() -> None:
    """v8: each group with its own error."""
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
    """BEHAVIOUR 0.1: a real 3.9.1 does not answer."""
    h = CoordinatorHarness()
    request_id = h.submit(OffsetFetchRequest(groups=()))
    h.advance(60_000)
    assert h.response(request_id) is None
