"""Assignors: the computation by which a group's leader distributes partitions to members.

Pure functions of the members' subscriptions and the topics' partition counts. To add an assignor,
write a class of its own and list it in ASSIGNORS. A static member has a configured
`group.instance.id`, a dynamic member does not.
Source: Kafka AbstractPartitionAssignor, RangeAssignor; docs/kafka, BEHAVIOUR 7.8.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from protocol.ids import MemberId, TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSubscription:
    """Subscription of one member. `group_instance_id` is None for a dynamic member."""

    member_id: MemberId
    topics: tuple[str, ...]
    group_instance_id: str | None = None


Assignment = dict[MemberId, tuple[TopicPartition, ...]]
"""Partitions of every member; a member without partitions has an empty tuple."""


class Assignor(Protocol):
    """A way to distribute partitions. Its name is the protocol that members vote for."""

    name: str

    def assign(
        self, partition_counts: Mapping[str, int], members: tuple[MemberSubscription, ...]
    ) -> Assignment:
        """Return every member's partitions.

        A topic missing in `partition_counts` is unknown; none of its partitions is assigned.
        """


class RangeAssignor:
    """Gives each member consecutive partitions of each topic; the first members get the remainder.

    DEVIATION: racks are ignored. Kafka's range assignor prefers replicas in the member's rack, if
    both name racks and the shares stay equal.
    """

    name = "range"

    def assign(
        self, partition_counts: Mapping[str, int], members: tuple[MemberSubscription, ...]
    ) -> Assignment:
        """Return every member's partitions, topic by topic in the order of topic names."""
        ordered = sorted(members, key=_member_order)
        assigned: dict[MemberId, list[TopicPartition]] = {m.member_id: [] for m in ordered}
        for topic in sorted(partition_counts):
            subscribers = [member for member in ordered if topic in member.topics]
            if not subscribers:
                continue
            # Every subscriber gets `share` partitions, the first `remainder` ones one more.
            share, remainder = divmod(partition_counts[topic], len(subscribers))
            start = 0
            for index, member in enumerate(subscribers):
                end = start + share + (1 if index < remainder else 0)
                assigned[member.member_id] += [TopicPartition(topic, p) for p in range(start, end)]
                start = end
        return {member_id: tuple(partitions) for member_id, partitions in assigned.items()}


class RoundRobinAssignor:
    """Gives the partitions of all topics to the members in turn, one partition at a time.

    Source: Kafka RoundRobinAssignor.
    """

    name = "roundrobin"

    def assign(
        self, partition_counts: Mapping[str, int], members: tuple[MemberSubscription, ...]
    ) -> Assignment:
        """Return every member's partitions, all from topics that the member subscribes to."""
        ordered = sorted(members, key=_member_order)
        assigned: dict[MemberId, list[TopicPartition]] = {m.member_id: [] for m in ordered}
        turn = 0  # index of the member that is next
        for topic in sorted(partition_counts):
            if not any(topic in member.topics for member in ordered):
                continue  # no member to assign to: the search below would not end
            for partition in range(partition_counts[topic]):
                while topic not in ordered[turn % len(ordered)].topics:
                    turn += 1
                assigned[ordered[turn % len(ordered)].member_id].append(
                    TopicPartition(topic, partition)
                )
                turn += 1
        return {member_id: tuple(partitions) for member_id, partitions in assigned.items()}


ASSIGNORS: dict[str, Assignor] = {
    assignor.name: assignor for assignor in (RangeAssignor(), RoundRobinAssignor())
}
"""All assignors, by their name in `partition.assignment.strategy`."""


def _member_order(member: MemberSubscription) -> tuple[bool, str]:
    """Return the sort key of a member.

    Static members come first, sorted by instance id. Dynamic members follow, sorted by member id.
    """
    if member.group_instance_id is not None:
        return False, member.group_instance_id
    return True, member.member_id
