"""Assignors: how a group's leader distributes the partitions over the members.

The result depends only on the members' subscriptions and the numbers of partitions. To add an
assignor, write a class for it and add it to ASSIGNORS.

Source: Kafka AbstractPartitionAssignor, RangeAssignor; docs/kafka, BEHAVIOUR 7.8.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from protocol.ids import MemberId, TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSubscription:
    """The topics of one member. `group_instance_id` is None if the member is not static."""

    member_id: MemberId
    topics: tuple[str, ...]
    group_instance_id: str | None = None


Assignment = dict[MemberId, tuple[TopicPartition, ...]]
"""The partitions of every member, even of members that get no partition."""


class Assignor(Protocol):
    """A way to distribute partitions, with its name in `partition.assignment.strategy`."""

    name: str

    def assign(
        self, partition_counts: Mapping[str, int], members: tuple[MemberSubscription, ...]
    ) -> Assignment:
        """Return every member's partitions.

        A topic that is not in `partition_counts` is unknown, so its partitions are not assigned.
        """


class RangeAssignor:
    """Gives each member consecutive partitions of each topic.

    For example, if a topic has 7 partitions and three members, the first member gets the partitions
    0, 1 and 2, the second member gets 3 and 4, and the third member gets 5 and 6.

    DEVIATION: racks are ignored. Kafka's range assignor prefers replicas in the member's rack, if
    members and replicas have racks and the shares stay equal.
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
            # Every subscriber gets `share` partitions, and the first `remainder` subscribers get
            # one partition more.
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
        turn = 0  # the member that is next is `ordered[turn % len(ordered)]`
        for topic in sorted(partition_counts):
            if not any(topic in member.topics for member in ordered):
                continue  # no member to assign to: the search below would not end
            for partition in range(partition_counts[topic]):
                # Skip members that do not subscribe to the topic.
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
    """Return the key by which an assignor sorts members.

    Static members come first (False sorts before True), sorted by instance id. Other members
    follow, sorted by member id.
    """
    if member.group_instance_id is not None:
        return False, member.group_instance_id
    return True, member.member_id
