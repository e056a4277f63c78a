"""OffsetFetch: from memory, for anybody, in any state (BEHAVIOUR 2.7)."""

from protocol.errors import ErrorCode
from protocol.messages.offset import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
)
from tests.support.builders.requests import join_group, offset_commit, offset_fetch
from tests.support.harness.coordinator_harness import CoordinatorHarness


def test_fetch_of_a_partition_that_is_not_here_is_an_error_of_the_group() -> None:
    """GC-109: and no topics."""
    h = CoordinatorHarness(owned=())
    assert h.fetch(offset_fetch(("foo", 0))) == OffsetFetchResponse(
        groups=(OffsetFetchResponseGroup(group_id="group", error_code=ErrorCode.NOT_COORDINATOR),)
    )
    h.coordinator.begin_load(0, 0, h.now_us)
    (group,) = h.fetch(offset_fetch(("foo", 0))).groups
    assert group.error_code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


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


def test_fetch_of_stable_offsets_refuses_what_is_pending() -> None:
    """A plain commit that is not acknowledged is not stable in [S], either."""
    h = CoordinatorHarness()
    h.commit(offset_commit({("foo", 0): 5}))
    h.holds_appends = True
    h.submit(offset_commit({("foo", 0): 6}))
    pending = h.fetched("foo", 0, require_stable=True)
    assert (pending.committed_offset, pending.error_code) == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    assert h.fetched("foo", 0).committed_offset == 5
    h.complete()
    assert h.fetched("foo", 0, require_stable=True).committed_offset == 6


def test_fetch_below_version_7_cannot_ask_for_stable_offsets() -> None:
    """The field came with KIP-447."""
    h = CoordinatorHarness()
    h.holds_appends = True
    h.submit(offset_commit({("foo", 0): 6}))
    for version, error in ((6, ErrorCode.NONE), (7, ErrorCode.UNSTABLE_OFFSET_COMMIT)):
        response = h.fetch(offset_fetch(("foo", 0), require_stable=True), version=version)
        assert response.groups[0].topics[0].partitions[0].error_code is error


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


def test_fetch_while_a_rebalance_is_prepared_is_answered() -> None:
    """No generation is asked for: anybody may read in any state."""
    h = CoordinatorHarness()
    ids = h.stable_group()
    h.commit(offset_commit({("foo", 0): 5}, ids[0], 1))
    h.submit(join_group(ids[0]))
    assert h.offset("foo", 0) == 5
