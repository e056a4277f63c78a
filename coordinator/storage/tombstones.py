"""Deletion of offsets and groups: from memory first, then by tombstones in the log.

A tombstone is a record without a value, which deletes its key. As in Kafka, the coordinator does
not wait for the append of the tombstones (acks=0). If the append fails, the next load of the
partition brings back what was deleted.

Source: Kafka `GroupMetadataManager.cleanupGroupMetadata`; docs/kafka/BEHAVIOUR.md 5.6.
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
    """Delete the offsets of `partitions`, and the group if it is Empty and has no offset left.

    Pending member ids of a deleted group are lost, too. These are ids that clients got with
    MEMBER_ID_REQUIRED, before they join again.
    """
    offsets = group.offsets
    # `expire` leaves unfinished commits alone, such as those of open transactions (BEHAVIOUR 4.11).
    # `remove` removes them, too.
    is_expiry = cause is DeletionCause.EXPIRED
    removed, only_pending = offsets.expire(partitions) if is_expiry else offsets.remove(partitions)
    for kind, of_kind in (
        (TraceKind.OFFSET_REMOVED, removed),
        (TraceKind.PENDING_COMMIT_REMOVED, only_pending),
    ):
        for partition in of_kind:
            turn.trace(
                TraceEvent(kind=kind, group=group.group_id, partition=str(partition), cause=cause)
            )

    if group.state is GroupState.EMPTY and not group.offsets.has_offsets:
        kill_group(turn, group, cause=cause)

    records = [offset_tombstone(group.group_id, partition, turn.now_ms) for partition in removed]
    # The group may be Dead because of `kill_group` above, or because the caller has killed it.
    # `shard.remove` returns False if the group was removed before. A group that never had a
    # generation has no record in the log, so it needs no tombstone.
    if group.state is GroupState.DEAD and shard.remove(group) and group.generation_id > 0:
        records.append(group_tombstone(group.group_id, turn.now_ms))
    if records:
        turn.append_unacknowledged(group, tuple(records))


def kill_group(turn: Turn, group: Group, *, cause: DeletionCause) -> None:
    """Make a group Dead and stop its timers. The caller removes the group from its shard."""
    group.transition_to(GroupState.DEAD, now_us=turn.now_us, cause=cause, trace=turn.result.trace)
    cancel_all(turn, group)
