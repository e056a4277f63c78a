"""The switch `commits_apply_on_append`: commits as in Kafka's Java coordinator.

Kafka has an older coordinator, in Scala, and a newer coordinator, in Java. Our coordinator behaves
like the Scala coordinator. A switch gives our coordinator one part of the behaviour of the Java
coordinator. This switch is about the time at which a commit of offsets counts:

- In the Scala coordinator a commit counts when its record is replicated. This means that the high
  watermark of the log has passed the record.
- In the Java coordinator a commit counts as soon as its record is appended. If a client fetches
  stable offsets (`require_stable`), the answer waits for the high watermark.

`h` is a CoordinatorHarness: a coordinator with a log. While `h.holds_appends` is True, the high
watermark does not pass the records of new commits. `h.commit_everything` moves the high watermark
past all records.

Kafka's behaviour is in docs/kafka/BEHAVIOUR.md 2.7, 2.8 and 5.3. RT-3 is a case of Kafka's tests,
which that page lists. More stories are in scenarios/commits_apply.txt.
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
    """A fetch of three groups is answered when all three groups can be answered.

    1. The first group is refused, because this coordinator does not own its partition.
    2. The second group has a commit of offset 6 that is not replicated yet.
    3. The third group has a commit of offset 5 that is replicated.
    """
    h = CoordinatorHarness(java=JAVA, num_partitions=3, owned=(0, 1))
    # The partition of a group follows from its id. Find a group for each of the three partitions.
    # If several groups are in the same partition, the dictionary keeps the last group.
    group_of_partition = {h.coordinator.partition_of(f"g{i}"): f"g{i}" for i in range(20)}
    for partition in (0, 1):
        h.commit(offset_commit({FOO: 5}, group_id=group_of_partition[partition]))

    h.holds_appends = True
    h.submit(offset_commit({FOO: 6}, group_id=group_of_partition[1]))

    fetch = h.submit(
        OffsetFetchRequest(
            groups=tuple(
                OffsetFetchRequestGroup(
                    group_id=group_of_partition[partition],
                    topics=(OffsetFetchRequestTopics(name="foo", partition_indexes=(0,)),),
                )
                for partition in (2, 1, 0)
            ),
            require_stable=True,
        )
    )

    assert h.response(fetch) is None  # the answer waits for the second group

    h.commit_everything(partition=1)
    response = h.response(fetch)
    assert isinstance(response, OffsetFetchResponse)
    # The answer has the groups in the order of the request.
    assert [group.error_code for group in response.groups] == [
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NONE,
        ErrorCode.NONE,
    ]
    # A group that is refused has no offsets.
    offsets = [
        partition.committed_offset
        for group in response.groups
        for topic in group.topics
        for partition in topic.partitions
    ]
    assert offsets == [6, 5]


def test_stable_fetch_with_nothing_uncommitted_is_answered_at_once() -> None:
    """If all commits of a group are replicated, a fetch of stable offsets need not wait (RT-3)."""
    h = CoordinatorHarness(java=JAVA)
    assert h.commit(offset_commit({FOO: 5})) == [ErrorCode.NONE]
    fetched = h.fetched(*FOO, require_stable=True)
    assert fetched.error_code is ErrorCode.NONE
    assert fetched.committed_offset == 5
