"""How offsets and groups go: tombstones in the log, and a group that holds nothing more.

Memory changes first, and the append is not waited for: it may fail, and a load then brings back
what was deleted, as in Kafka. Source: Kafka `GroupMetadataManager.cleanupGroupMetadata`;
BEHAVIOUR 5.6.
"""

from collections.abc import Iterable

from coordinator.delayed import cancel_all
from coordinator.group import Group
from coordinator.shard import Shard
from coordinator.states import GroupState
from coordinator.storage.store import group_tombstone, offset_tombstone
from coordinator.turn import Turn
from protocol.causes import DeletionCause
from protocol.ids import TopicPartition
from protocol.trace import TraceEvent, TraceKind


def clean_up(
    turn: Turn,
    shard: Shard,
    group: Group,
    partitions: Iterable[TopicPartition],
    *,
    cause: DeletionCause,
) -> None:
    """Delete the committed and pending offsets of `partitions`, and the group if it is empty then.

    A group that is Empty without an offset becomes Dead and is forgotten, with the ids that were
    given out and not used yet; a tombstone of it is written if it ever had a generation.
    """
    offsets = group.offsets
    # What a transaction committed does not expire with what was there before (BEHAVIOUR 4.11).
    is_expiry = cause is DeletionCause.EXPIRED
    removed = offsets.expire(partitions) if is_expiry else offsets.remove(partitions)
    for partition in removed:
        turn.trace(
            TraceEvent(
                kind=TraceKind.OFFSET_REMOVED,
                group=group.group_id,
                partition=str(partition),
                cause=cause,
            )
        )
    if group.state is GroupState.EMPTY and not group.offsets.has_offsets:
        kill_group(turn, group, cause=cause)
    records = [offset_tombstone(group.group_id, partition, turn.now_ms) for partition in removed]
    if group.state is GroupState.DEAD and shard.remove(group) and group.generation_id > 0:
        records.append(group_tombstone(group.group_id, turn.now_ms))
    if records:
        turn.append_unacknowledged(group, tuple(records))


def kill_group(turn: Turn, group: Group, *, cause: DeletionCause) -> None:
    """Let a group become Dead, and stop its timers. Its shard still has it."""
    group.transition_to(GroupState.DEAD, now_us=turn.now_us, cause=cause, trace=turn.result.trace)
    cancel_all(turn, group)
