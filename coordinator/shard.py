"""Shards: the groups in memory, by offsets partition, and the state of each offsets partition.

An offsets partition is a partition of `__consumer_offsets`; its leader coordinates the groups in
it. A load reads a partition's log into memory; an unload drops the result. A broker owns a
partition from the end of its load to its unload. A shard holds the groups of one owned partition.
This module only remembers which partitions are being loaded; `coordinator.storage` reads their
logs.
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
"""Maximum number of entries in the cache of group id -> partition. Without the cache, each request
of a group would compute Java's hash of the group id in Python, character by character, which is
slow."""


class Committer(NamedTuple):
    """The member that last committed offsets in a transaction.

    Only the rows of the trace, the lab's recording of a run, need it. The records in the log do not
    name the member, so after a load both fields are None.
    """

    member_id: str | None = None
    generation_id: int | None = None


NOBODY_KNOWN = Committer()
"""The committer of a transaction whose last commit request is not known."""


class Shard:
    """The groups of one owned partition of `__consumer_offsets`.

    Invariant: every group's `partition` is this shard's, and no group is Dead.
    Invariant: if a producer's open transaction commits offsets of a group, `_groups_of_producers`
    has the group.
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
        """Add a group unless its id exists; return the group that has the id now.

        Source: Kafka `GroupMetadataManager.addGroup`.
        """
        return self.groups.setdefault(group.group_id, group)

    def remove(self, group: Group) -> bool:
        """Forget this group and return True if it was here.

        The check is by identity, not by id. A caller may hold a group that has meanwhile been
        deleted and created again: then the new group of the same id stays.

        Source: Kafka `groupMetadataCache.remove(groupId, group)`.
        """
        if self.groups.get(group.group_id) is not group:
            return False
        del self.groups[group.group_id]
        return True

    def add_producer(
        self, producer_id: int, group: Group, committer: Committer = NOBODY_KNOWN
    ) -> None:
        """Remember that a producer's open transaction commits offsets of a group.

        A transaction ends with a marker, a record that names the producer but no group.
        `take_groups_of` then finds the groups.

        Source: Kafka `GroupMetadataManager.openGroupsForProducer`.
        """
        self._groups_of_producers.setdefault(producer_id, {})[group.group_id] = committer

    def knows_producer(self, producer_id: int, group: Group) -> bool:
        """Return True if the producer's open transaction commits offsets of the group."""
        return group.group_id in self._groups_of_producers.get(producer_id, {})

    def take_groups_of(self, producer_id: int) -> tuple[tuple[Group, Committer], ...]:
        """Remove and return the groups in which a producer's open transaction committed."""
        taken = self._groups_of_producers.pop(producer_id, {})
        # A group may have been deleted since; its id stays in the map until the marker comes.
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
        self._partition_of: dict[str, int] = {}
        self.owned: dict[int, Shard] = {}
        self.loading: dict[int, Load] = {}
        self.known_epochs: dict[int, int] = {}
        """Partition -> newest leader epoch that a load or unload named. The leader epoch numbers a
        partition's leaderships; each election increases it. The coordinator ignores a load or
        unload of an older epoch: it arrived late."""
        self.load_reports: dict[int, LoadReport] = {}
        """Outcome of the last load of each partition."""
        self.failed: dict[int, int] = {}
        """Partition -> leader epoch of its failed load. Filled only if the lab is set to behave as
        Kafka's Java coordinator, which refuses a second load in the same epoch."""

    def partition_of(self, group_id: str) -> int:
        """Return the offsets partition of a group."""
        partition = self._partition_of.get(group_id)
        if partition is None:
            # A full cache is emptied. It fills again with the groups that still send requests.
            if len(self._partition_of) >= PARTITIONS_REMEMBERED_MAX:
                self._partition_of.clear()
            partition = partition_for(group_id, self._num_partitions)
            self._partition_of[group_id] = partition
        return partition

    def groups(self) -> Iterator[Group]:
        """Yield every group: partitions in order of their loads, groups in order of creation."""
        for shard in self.owned.values():
            yield from shard.groups.values()
