"""Expiry of committed offsets. The functions here find the expired offsets, and delete nothing.

An offset is never expired while a member of its group subscribes to its topic. Otherwise the offset
is kept for `offsets.retention.minutes`. This time begins at one of these events:

- If the group is Empty, because its members have gone: when the group became Empty.
- If the group has members, but no member subscribes to the topic: when the offset was committed.
- If the group never had members (it has no protocol type): when the offset was committed.

Source: Kafka `GroupMetadata.removeExpiredOffsets`; KIP-211; docs/kafka/BEHAVIOUR.md 4.11.
"""

from coordinator.group import CONSUMER_PROTOCOL_TYPE, Group
from coordinator.states import GroupState
from coordinator.storage.offsets import CommittedOffset
from protocol.ids import TopicPartition
from protocol.records.offsets import NO_EXPIRE_TIMESTAMP

MS_PER_MINUTE = 60_000


def expired_offsets(group: Group, *, now_ms: int, retention_ms: int) -> tuple[TopicPartition, ...]:
    """Return the partitions whose committed offset has expired, in the order of first commits.

    No offset expires while the group rebalances, or while its subscriptions are unknown. An offset
    of a partition with a commit in flight does not expire either.
    """
    spared: frozenset[str] = frozenset()  # topics to which members subscribe
    empty_since_ms: int | None = None
    if group.protocol_type is not None:
        if group.state is GroupState.EMPTY:
            # None if the group was loaded from an old record, which has no timestamp. Then the time
            # of each offset begins at its commit.
            empty_since_ms = group.current_state_timestamp_ms
        elif (
            group.state is GroupState.STABLE
            and group.protocol_type == CONSUMER_PROTOCOL_TYPE
            and group.subscribed_topics is not None
        ):
            spared = group.subscribed_topics
        else:
            # The group rebalances, or its subscriptions are unknown: any offset may be in use.
            return ()
    return tuple(
        partition
        for partition, stored in group.offsets.committed().items()
        if partition.topic not in spared
        and not group.offsets.is_pending(partition)
        and _is_expired(stored, empty_since_ms, now_ms=now_ms, retention_ms=retention_ms)
    )


def _is_expired(
    stored: CommittedOffset, empty_since_ms: int | None, *, now_ms: int, retention_ms: int
) -> bool:
    """Return True if an offset has expired.

    The retention time begins at `empty_since_ms`, or at the commit if `empty_since_ms` is None.
    Old clients could say in a commit how long the offset is kept. Then the offset has an expiry
    time of its own, and `retention_ms` does not matter.
    """
    value = stored.value
    if value.expire_timestamp_ms != NO_EXPIRE_TIMESTAMP:
        return now_ms >= value.expire_timestamp_ms
    since_ms = value.commit_timestamp_ms if empty_since_ms is None else empty_since_ms
    return now_ms - since_ms >= retention_ms
