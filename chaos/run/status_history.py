"""StatusHistory: remembers what earlier status queries have shown and later ones do not.

A status lacks two things that a run needs:

- While no controller answers, it has no partitions, so nobody knows who leads them.
- When a member's process is killed and started again, its counters begin at 0 again.
"""

from collections.abc import Mapping
from dataclasses import replace

from cluster.runtime import ClusterStatus, MemberStatus, PartitionStatus
from protocol.ids import NodeName, TopicPartition


class StatusHistory:
    """Observes every status; keeps the last known partitions, and totals over all restarts."""

    def __init__(self) -> None:
        self._partitions: dict[TopicPartition, PartitionStatus] = {}
        self._members: dict[NodeName, MemberStatus] = {}
        self._consumed_in_past_lives = 0
        self._acknowledged_in_past_lives = 0

    def observe(self, status: ClusterStatus) -> None:
        """Take the status of a query."""
        if status.partitions:
            self._partitions = status.partitions
        self._add_past_incarnations(status.members)
        self._members.update(status.members)

    def with_last_partitions(self, status: ClusterStatus) -> ClusterStatus:
        """Return `status` with the last known partitions, if no controller answers now.

        So faults can be aimed at leaders even while the controller is down. The last known leaders
        are still the leaders, because only the controller moves leaderships.
        """
        return status if status.partitions else replace(status, partitions=self._partitions)

    @property
    def records_consumed(self) -> int:
        """Records processed by all members over all incarnations, as far as queries showed."""
        now = sum(member.records_consumed for member in self._members.values())
        return self._consumed_in_past_lives + now

    @property
    def commits_acknowledged(self) -> int:
        """Acknowledged commits of all members, over all incarnations."""
        now = sum(member.commits_acknowledged for member in self._members.values())
        return self._acknowledged_in_past_lives + now

    def _add_past_incarnations(self, members: Mapping[NodeName, MemberStatus]) -> None:
        """Add the counts of members whose counters have restarted from 0."""
        for name, member in members.items():
            before = self._members.get(name)
            # A status does not say whether the process was restarted. It was if a counter is
            # smaller than before; then the counts that it had reached are added to the totals.
            if before is not None and (
                member.records_consumed < before.records_consumed
                or member.commits_acknowledged < before.commits_acknowledged
            ):
                self._consumed_in_past_lives += before.records_consumed
                self._acknowledged_in_past_lives += before.commits_acknowledged
