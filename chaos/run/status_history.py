"""What a run remembers of its looks at the cluster, where the next one cannot say it any more."""

from collections.abc import Mapping
from dataclasses import replace

from cluster.runtime import ClusterStatus, MemberStatus, PartitionStatus
from protocol.ids import NodeName, TopicPartition


class Looks:
    """Takes in every look; knows what the controller said last, and what dead members did."""

    def __init__(self) -> None:
        self._partitions: dict[TopicPartition, PartitionStatus] = {}
        self._members: dict[NodeName, MemberStatus] = {}
        self._consumed_in_past_lives = 0
        self._acknowledged_in_past_lives = 0

    def observe(self, status: ClusterStatus) -> None:
        """Take in a look."""
        if status.partitions:
            self._partitions = status.partitions
        self._end_lives(status.members)
        self._members.update(status.members)

    def as_known(self, status: ClusterStatus) -> ClusterStatus:
        """Return `status` with the leaders that the controller named last, if none answers now.

        They still hold: nobody else moves leadership. A fault can be aimed at them.
        """
        return status if status.partitions else replace(status, partitions=self._partitions)

    @property
    def records_consumed(self) -> int:
        """What all members processed, in all their lives as far as they were looked at."""
        now = sum(member.records_consumed for member in self._members.values())
        return self._consumed_in_past_lives + now

    @property
    def commits_acknowledged(self) -> int:
        """The commits of all members that were acknowledged, in all their lives."""
        now = sum(member.commits_acknowledged for member in self._members.values())
        return self._acknowledged_in_past_lives + now

    def _end_lives(self, members: Mapping[NodeName, MemberStatus]) -> None:
        """Keep what was counted by members that count from 0 again."""
        for name, member in members.items():
            before = self._members.get(name)
            if before is not None and (
                member.records_consumed < before.records_consumed
                or member.commits_acknowledged < before.commits_acknowledged
            ):
                self._consumed_in_past_lives += before.records_consumed
                self._acknowledged_in_past_lives += before.commits_acknowledged
