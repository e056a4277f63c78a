"""StatusHistory: remembers what earlier status queries have shown, if later queries do not show it.

A run queries the status of its cluster again and again. Sometimes a status lacks things that the
run needs:

- While no controller answers, the status has no partitions. So it does not show their leaders.
- When a member's process is killed and started again, the member counts from 0 again.
"""

from collections.abc import Mapping
from dataclasses import replace

from cluster.runtime import ClusterStatus, MemberStatus, PartitionStatus
from protocol.ids import NodeName, TopicPartition


class StatusHistory:
    """Keeps the last known partitions, and the totals of all members over all their restarts."""

    def __init__(self) -> None:
        self._partitions: dict[TopicPartition, PartitionStatus] = {}
        self._members: dict[NodeName, MemberStatus] = {}
        self._consumed_in_past_lives = 0
        self._acknowledged_in_past_lives = 0

    def observe(self, status: ClusterStatus) -> None:
        """Take the status that a query has returned."""
        if status.partitions:
            self._partitions = status.partitions
        self._add_past_incarnations(status.members)
        self._members.update(status.members)

    def with_last_partitions(self, status: ClusterStatus) -> ClusterStatus:
        """Return `status`, with the last known partitions if no controller answers now.

        With these partitions, faults can be aimed at leaders even while the controller is down. The
        last known leaders are still the leaders, because only the controller moves leaderships.
        """
        return status if status.partitions else replace(status, partitions=self._partitions)

    @property
    def records_consumed(self) -> int:
        """Number of records that all members have processed, including their earlier processes.

        What a process has done after the last query before its death is not included.
        """
        now = sum(member.records_consumed for member in self._members.values())
        return self._consumed_in_past_lives + now

    @property
    def commits_acknowledged(self) -> int:
        """Number of acknowledged commits of all members, including their earlier processes."""
        now = sum(member.commits_acknowledged for member in self._members.values())
        return self._acknowledged_in_past_lives + now

    def _add_past_incarnations(self, members: Mapping[NodeName, MemberStatus]) -> None:
        """If a member's process was restarted, add its earlier process's counts to the totals."""
        for name, member in members.items():
            before = self._members.get(name)
            # A status does not say whether a process was restarted. But if a counter is smaller
            # than before, the process must have been restarted.
            if before is not None and (
                member.records_consumed < before.records_consumed
                or member.commits_acknowledged < before.commits_acknowledged
            ):
                self._consumed_in_past_lives += before.records_consumed
                self._acknowledged_in_past_lives += before.commits_acknowledged
