"""Switch `commits_apply_on_append`: commits as in Kafka's Java coordinator.

Our coordinator behaves like Kafka's Scala coordinator. Each switch replaces a part of its behaviour
by that of Kafka's Java coordinator. The high watermark is the offset in a log below which all
in-sync replicas have the records.

- The Scala coordinator applies a commit of offsets when the high watermark has passed its record.
- The Java coordinator applies it earlier, when its record is appended. So it keeps two values of an
  offset: the value written last, and the last value whose record is below the high watermark. A
  fetch of stable offsets (`require_stable`) waits until the record of the value written last is
  below the high watermark.

`h` is a CoordinatorHarness: a coordinator with a log. While `h.holds_appends` is True, the record
of a new commit is in the log, but above the high watermark. `h.commit_everything` moves the high
watermark past all records.

Kafka's behaviour is in docs/kafka/BEHAVIOUR.md 2.7, 2.8 and 5.3. RT-3 is a case of Kafka's tests,
listed there. More stories are in scenarios/commits_apply.txt.
"""

from protocol.config import JavaSwitches
from protocol.errors import ErrorCode
from protocol.messages.offset import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from tests.support.builders.requests import offset_commit
from tests.support.harness.coordinator_harness import CoordinatorHarness

JAVA = JavaSwitches(commits_apply_on_append=True)
FOO = ("foo", 0)


def test_stable_fetch_of_several_groups_waits_for_each() -> None:
    """The answer waits for the slowest group, even if other groups are refused or need no wait."""
    h = CoordinatorHarness(java=JAVA, num_partitions=3, owned=(0, 1))
    # Find one group for each partition. A group's partition follows from the hash of its name. Each
    # of the three partitions has at least one of twenty names; the dictionary keeps its last one.
    by_partition = {h.coordinator.partition_of(f"g{i}"): f"g{i}" for i in range(20)}
    # The coordinator owns partitions 0 and 1, so the group of partition 2 is refused below.
    for partition in (0, 1):
        h.commit(offset_commit({FOO: 5}, group_id=by_partition[partition]))

    # The record of offset 6 is above the high watermark, so the fetch has to wait for this group.
    h.holds_appends = True
    h.submit(offset_commit({FOO: 6}, group_id=by_partition[1]))

    fetch = h.submit(
        OffsetFetchRequest(
            groups=tuple(
                OffsetFetchRequestGroup(
                    group_id=by_partition[partition],
                    topics=(OffsetFetchRequestTopics(name="foo", partition_indexes=(0,)),),
                )
                for partition in (2, 1, 0)
            ),
            require_stable=True,
        )
    )

    assert h.response(fetch) is None

    h.commit_everything(partition=1)
    response = h.response(fetch)
    assert isinstance(response, OffsetFetchResponse)
    # The answer has the groups in the order of the request: those of partitions 2, 1 and 0.
    assert [group.error_code for group in response.groups] == [
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NONE,
        ErrorCode.NONE,
    ]
    # 6 is the offset of partition 1's group, 5 that of partition 0's. The group of partition 2 was
    # refused, so it has no offset here.
    assert [
        p.committed_offset for g in response.groups for topic in g.topics for p in topic.partitions
    ] == [6, 5]


def test_stable_fetch_with_nothing_uncommitted_is_answered_at_once() -> None:
    """The commit of offset 5 is below the high watermark, so the fetch need not wait (RT-3)."""
    h = CoordinatorHarness(java=JAVA)
    assert h.commit(offset_commit({FOO: 5})) == [ErrorCode.NONE]
    stored = h.fetched(*FOO, require_stable=True)
    assert (stored.committed_offset, stored.error_code) == (5, ErrorCode.NONE)
