"""Which offsets partitions are here, and the groups of each.

Owns the sets of owned and loading partitions and the leader epoch known of each. A shard is the
groups of one owned partition. Must not know what loading is made of.
Source: Kafka `GroupMetadataManager` (`ownedPartitions`, `loadingPartitions`,
`groupMetadataCache`); BEHAVIOUR 5.4, 5.5, 5.7.
"""

from collections.abc import Iterator
from typing import NamedTuple

from coordinator.group import Group
from coordinator.states import GroupState
from coordinator.storage.above_high_watermark import AboveHighWatermark
from coordinator.storage.load import Load, LoadReport
from protocol.partitioner import partition_for

PARTITIONS_REMEMBERED_MAX = 65_536
"""How many group ids keep their computed partition: the hash reads every letter of an id."""


class Committer(NamedTuple):
    """Who committed last in a transaction, for the trace; nobody knows after a load."""

    member_id: str | None = None
    generation_id: int | None = None


NOBODY_KNOWN = Committer()


class Shard:
    """The groups of one owned partition of `__consumer_offsets`.

    Invariant: every group's `partition` is this one, and none is Dead.
    Invariant: a group in which a producer's open transaction committed is known of the producer.
    """

    __slots__ = ("_groups_of_producers", "above_high_watermark", "groups", "partition")

    def __init__(self, partition: int) -> None:
        self.partition = partition
        self.groups: dict[str, Group] = {}
        self.above_high_watermark = AboveHighWatermark()
        self._groups_of_producers: dict[int, dict[str, Committer]] = {}

    def create_group(self, group_id: str, now_us: int) -> Group:
        """Return a new Empty group, which is now one of the shard's; or the one that is there."""
        return self.add(Group(group_id, self.partition, GroupState.EMPTY, now_us))

    def add(self, group: Group) -> Group:
        """Take in a group unless there is one of its id; return the one that is there then.

        Source: Kafka `GroupMetadataManager.addGroup`.
        """
        return self.groups.setdefault(group.group_id, group)

    def remove(self, group: Group) -> bool:
        """Forget this very group and return whether it was there: not a later one of its id.

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

        Source: Kafka `GroupMetadataManager.openGroupsForProducer`.
        """
        self._groups_of_producers.setdefault(producer_id, {})[group.group_id] = committer

    def knows_producer(self, producer_id: int, group: Group) -> bool:
        """Return whether a marker of the producer would reach the group."""
        return group.group_id in self._groups_of_producers.get(producer_id, {})

    def take_groups_of(self, producer_id: int) -> tuple[tuple[Group, Committer], ...]:
        """Return the groups here in which a producer's transaction committed, and forget which."""
        taken = self._groups_of_producers.pop(producer_id, {})
        return tuple(
            (self.groups[group_id], committer)
            for group_id, committer in taken.items()
            if group_id in self.groups
        )


class Shards:
    """The offsets partitions of this broker.

    Invariant: no partition is owned, loading or failed at once.
    Invariant: the number of partitions never changes, as Kafka reads it once at start.
    """

    def __init__(self, num_partitions: int) -> None:
        self._num_partitions = num_partitions
        self._partition_of: dict[str, int] = {}
        self.owned: dict[int, Shard] = {}
        self.loading: dict[int, Load] = {}
        self.known_epochs: dict[int, int] = {}
        self.load_reports: dict[int, LoadReport] = {}
        """What became of the last load of each partition."""
        self.failed: dict[int, int] = {}
        """Partitions whose load failed and that are not served, with the epoch it had ([J])."""

    def partition_of(self, group_id: str) -> int:
        """Return the offsets partition of a group."""
        partition = self._partition_of.get(group_id)
        if partition is None:
            if len(self._partition_of) >= PARTITIONS_REMEMBERED_MAX:
                self._partition_of.clear()
            partition = partition_for(group_id, self._num_partitions)
            self._partition_of[group_id] = partition
        return partition

    def groups(self) -> Iterator[Group]:
        """Return every cached group: by partition as owned, then as created or loaded."""
        for shard in self.owned.values():
            yield from shard.groups.values()
