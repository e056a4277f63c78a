"""Assignors: how a group's leader deals the partitions out to the members.

Pure functions of the members' subscriptions and the topics' partition counts. Another assignor is
another class in ASSIGNORS. Source: Kafka AbstractPartitionAssignor, RangeAssignor; BEHAVIOUR 7.8.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from protocol.ids import MemberId, TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSubscription:
    """What one member asks for. `group_instance_id` is None for a dynamic member."""

    member_id: MemberId
    topics: tuple[str, ...]
    group_instance_id: str | None = None


Assignment = dict[MemberId, tuple[TopicPartition, ...]]
"""Every member's partitions; members that get none have an empty tuple."""


class Assignor(Protocol):
    """One way to deal partitions out. Its name is the protocol that members vote for."""

    name: str

    def assign(
        self, partition_counts: Mapping[str, int], members: tuple[MemberSubscription, ...]
    ) -> Assignment:
        """Return every member's partitions.

        Shape: topics missing in `partition_counts` are unknown and deal nothing out.
        """


class RangeAssignor:
    """Per topic: consecutive partitions, the first members getting one more where it must be.

    DEVIATION: racks are not looked at; Kafka's range assignor prefers replicas in the member's rack
    where sizes stay equal, and only when both name racks.
    """

    name = "range"

    def assign(
        self, partition_counts: Mapping[str, int], members: tuple[MemberSubscription, ...]
    ) -> Assignment:
        """Return every member's partitions, topic by topic in the topics' order by name."""
        ordered = sorted(members, key=_member_order)
        dealt: dict[MemberId, list[TopicPartition]] = {m.member_id: [] for m in ordered}
        for topic in sorted(partition_counts):
            subscribers = [member for member in ordered if topic in member.topics]
            if not subscribers:
                continue
            each, with_one_more = divmod(partition_counts[topic], len(subscribers))
            start = 0
            for index, member in enumerate(subscribers):
                end = start + each + (1 if index < with_one_more else 0)
                dealt[member.member_id] += [TopicPartition(topic, p) for p in range(start, end)]
                start = end
        return {member_id: tuple(partitions) for member_id, partitions in dealt.items()}


ASSIGNORS: dict[str, Assignor] = {RangeAssignor.name: RangeAssignor()}
"""Every assignor by the name that `partition.assignment.strategy` uses."""


def _member_order(member: MemberSubscription) -> tuple[bool, str]:
    """Static members first, by instance id; then dynamic ones, by member id."""
    if member.group_instance_id is not None:
        return False, member.group_instance_id
    return True, member.member_id
