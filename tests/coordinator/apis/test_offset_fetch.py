"""OffsetFetch of missing groups, of several groups and of no group.

The file scenarios/offset_fetch.txt has the other cases. Kafka's behaviour is in
docs/kafka/BEHAVIOUR.md 2.7. `h` is a CoordinatorHarness, a coordinator of all groups. `h.fetch`
returns the whole answer to a request, and `h.fetched("foo", 0)` the part about foo-0.
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
    assert partition.error_code is ErrorCode.NONE
    assert partition.committed_offset == -1
    assert partition.committed_leader_epoch == -1
    assert partition.metadata == ""

    # A request without partitions asks for all offsets of the group.
    assert h.fetch(offset_fetch()).groups[0].topics == ()
    assert h.coordinator.groups() == ()


def test_fetch_of_several_groups_answers_each() -> None:
    """Since version 8 a request can name several groups. The answer has an error for each group.

    Here group "a" has an offset of one topic. The second group has an empty id, and the third group
    does not exist. For Kafka neither is an error: such a group simply has no offsets.
    """
    h = CoordinatorHarness()
    h.commit(offset_commit({("foo", 0): 5}, group_id="a"))
    ids = ["a", "", "missing"]
    groups = tuple(OffsetFetchRequestGroup(group_id=group_id) for group_id in ids)
    response = h.fetch(OffsetFetchRequest(groups=groups))
    assert [group.group_id for group in response.groups] == ids
    assert [group.error_code for group in response.groups] == [ErrorCode.NONE] * 3
    assert [len(group.topics) for group in response.groups] == [1, 0, 0]


def test_fetch_of_no_group_is_never_answered() -> None:
    """A real Kafka 3.9.1 never answers a request without a group (BEHAVIOUR 0.1)."""
    h = CoordinatorHarness()
    request_id = h.submit(OffsetFetchRequest(groups=()))
    h.advance(60_000)
    assert h.response(request_id) is None
