"""Shards: the groups that a coordinator has in memory.

Each group belongs to one partition of `__consumer_offsets`, an offsets partition. The broker that
leads this partition coordinates the group. When it becomes the leader, it reads the partition's log
(`coordinator.storage.load`). Then it owns the partition, and a Shard keeps the partition's groups
until the broker loses the leadership. The class Shards keeps the shards of all owned partitions,
and remembers which partitions are being loaded and which loads have failed.

Source: Kafka `GroupMetadataManager` (`ownedPartitions`, `loadingPartitions`,
`groupMetadataCache`); docs/kafka/BEHAVIOUR.md 5.4, 5.5, 5.7.
"""

from collections.abc import Iterator
from typing import NamedTuple

from coordinator.group import Group
from coordinator.states import GroupState
from coordinator.storage.above_high_watermark import AboveHighWatermark
from coordinator.storage.load import Load, LoadReport
from protocol.partitioner import partition_for

PARTITIONS_REMEMBERED_MAX = 65_536
"""Maximum size of the cache of group id -> partition. Without the cache, each request would compute
Java's hash of its group id in Python, character by character, which is slow."""


class Committer(NamedTuple):
    """The member that last committed offsets of a group in a transaction.

    When the transaction ends, the trace, which is the recording of a run, shows the committer. The
    records in the log do not name the member. So both fields are None if the transaction was read
    from the log.
    """

    member_id: str | None = None
    generation_id: int | None = None


NOBODY_KNOWN = Committer()
"""Stands for the committer of a transaction that was read from the log."""


class Shard:
    """The groups of one owned partition of `__consumer_offsets`.

    Invariant: every group's `partition` is the partition of this shard, and no group is Dead.
    Invariant: if a producer's open transaction has offsets of a group, the group is in
    `_groups_of_producers` under the producer's id.
    """

    __slots__ = ("_groups_of_producers", "above_high_watermark", "groups", "partition")

    def __init__(self, partition: int) -> None:
        self.partition = partition
        self.groups: dict[str, Group] = {}
        # Answers that wait until the newest records of the partition are committed.
        self.above_high_watermark = AboveHighWatermark()
        self._groups_of_producers: dict[int, dict[str, Committer]] = {}
        """Producer id -> group id -> the last committer, for each open transaction."""

    def create_group(self, group_id: str, now_us: int) -> Group:
        """Add an Empty group and return it, or return the existing group of this id."""
        return self.add(Group(group_id, self.partition, GroupState.EMPTY, now_us))

    def add(self, group: Group) -> Group:
        """Add a group unless there is a group with its id. Return the group that has the id now.

        Source: Kafka `GroupMetadataManager.addGroup`.
        """
        return self.groups.setdefault(group.group_id, group)

    def remove(self, group: Group) -> bool:
        """Forget this group and return True if it was here.

        The groups are compared by identity, not by id. A caller may hold a group that has meanwhile
        been deleted and created again. Then the new group with the same id stays.

        Source: Kafka `groupMetadataCache.remove(groupId, group)`.
        """
        if self.groups.get(group.group_id) is not group:
            return False
        del self.groups[group.group_id]
        return True

    def add_producer(
        self, producer_id: int, group: Group, committer: Committer = NOBODY_KNOWN
    ) -> None:
        """Remember that a producer's open transaction has offsets of a group.

        The transaction ends with a marker, a record that names the producer but no group. Then
        `take_groups_of` must find the groups.

        Source: Kafka `GroupMetadataManager.openGroupsForProducer`.
        """
        self._groups_of_producers.setdefault(producer_id, {})[group.group_id] = committer

    def knows_producer(self, producer_id: int, group: Group) -> bool:
        """Return True if the producer's open transaction has offsets of the group."""
        return group.group_id in self._groups_of_producers.get(producer_id, {})

    def take_groups_of(self, producer_id: int) -> tuple[tuple[Group, Committer], ...]:
        """Return the groups of a producer's open transaction, and forget the transaction."""
        taken = self._groups_of_producers.pop(producer_id, {})
        # A group that was deleted meanwhile is still in `taken`, but not in `groups`.
        return tuple(
            (self.groups[group_id], committer)
            for group_id, committer in taken.items()
            if group_id in self.groups
        )


class Shards:
    """The offsets partitions that this broker owns or loads.

    Invariant: a partition is in at most one of `owned`, `loading` and `failed`.
    Invariant: the number of partitions never changes. Kafka, too, reads it only once, at its start.
    """

    def __init__(self, num_partitions: int) -> None:
        self._num_partitions = num_partitions
        self._partition_of: dict[str, int] = {}  # cache of `partition_of`
        # Partition -> its groups, and partition -> its unfinished load.
        self.owned: dict[int, Shard] = {}
        self.loading: dict[int, Load] = {}
        self.known_epochs: dict[int, int] = {}
        """Partition -> newest leader epoch of a load or unload. A later load or unload of an older
        epoch has arrived late and is ignored."""
        self.load_reports: dict[int, LoadReport] = {}
        """Outcome of the last load of each partition."""
        self.failed: dict[int, int] = {}
        """Partition -> leader epoch of its failed load. Only the Java coordinator needs this dict
        (switch `failed_load_refuses`), because a failed load is not repeated in the same epoch
        there."""

    def partition_of(self, group_id: str) -> int:
        """Return the offsets partition of a group."""
        partition = self._partition_of.get(group_id)
        if partition is None:
            # A full cache is emptied. The groups that still send requests soon fill it again.
            if len(self._partition_of) >= PARTITIONS_REMEMBERED_MAX:
                self._partition_of.clear()
            partition = partition_for(group_id, self._num_partitions)
            self._partition_of[group_id] = partition
        return partition

    def groups(self) -> Iterator[Group]:
        """Yield every group: partitions in order of their loads, groups in order of creation."""
        for shard in self.owned.values():
            yield from shard.groups.values()
