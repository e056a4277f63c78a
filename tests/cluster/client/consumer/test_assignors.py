"""The assignors, which distribute partitions over a group's members, against Kafka's own tests.

Kafka's tests are RangeAssignorTest and RoundRobinAssignorTest. `RANGE.assign(counts, members)` gets
the number of partitions of each topic, and returns the partitions of each member. Kafka's behaviour
is in docs/kafka/BEHAVIOUR.md 7.8.
"""

from hypothesis import given
from hypothesis import strategies as st

from cluster.client.consumer.assignors import ASSIGNORS, MemberSubscription
from protocol.ids import MemberId, TopicPartition

RANGE = ASSIGNORS["range"]
ROUND_ROBIN = ASSIGNORS["roundrobin"]


def member(
    member_id: str, *topics: str, group_instance_id: str | None = None
) -> MemberSubscription:
    """Return a member that reads these topics."""
    return MemberSubscription(
        member_id=MemberId(member_id), topics=topics, group_instance_id=group_instance_id
    )


def partitions(topic: str, *indexes: int) -> tuple[TopicPartition, ...]:
    """Return these partitions of a topic."""
    return tuple(TopicPartition(topic, index) for index in indexes)


def test_range_with_uneven_partitions_gives_the_first_members_one_more() -> None:
    """Each member gets consecutive partitions. Of 7, the 3 members get 3, 2 and 2.

    The members are ordered by their ids.
    """
    assigned = RANGE.assign({"t": 7}, (member("c", "t"), member("a", "t"), member("b", "t")))
    assert assigned == {
        "a": partitions("t", 0, 1, 2),
        "b": partitions("t", 3, 4),
        "c": partitions("t", 5, 6),
    }


def test_range_with_more_members_than_partitions_leaves_the_last_member_idle() -> None:
    """If there are fewer partitions than members, the last members get none.

    Kafka: testTwoConsumersOneTopicOnePartition.
    """
    assigned = RANGE.assign({"t": 1}, (member("a", "t"), member("b", "t")))
    assert assigned == {"a": partitions("t", 0), "b": ()}


def test_range_with_mixed_subscriptions_assigns_each_topic_to_its_subscribers() -> None:
    """Each topic is divided among its own subscribers only.

    Kafka: testMultipleConsumersMixedTopicSubscriptions.
    """
    assigned = RANGE.assign(
        {"t1": 3, "t2": 2}, (member("a", "t1"), member("b", "t1", "t2"), member("c", "t1"))
    )
    assert assigned == {
        "a": partitions("t1", 0),
        "b": partitions("t1", 1) + partitions("t2", 0, 1),
        "c": partitions("t1", 2),
    }


def test_static_members_keep_their_range_when_member_ids_change() -> None:
    """A static member has an instance id in its settings, and keeps it through a restart.

    Range orders members by their ids. But static members come before all others, in the order of
    their instance ids. So a static member keeps its partitions after a restart. Here the first
    static member restarts: its member id changes from z to b, and its instance id stays i1.
    """
    before = RANGE.assign(
        {"t": 3},
        (
            member("z", "t", group_instance_id="i1"),
            member("y", "t", group_instance_id="i2"),
            member("a", "t"),
        ),
    )
    after = RANGE.assign(
        {"t": 3},
        (
            member("b", "t", group_instance_id="i1"),
            member("y", "t", group_instance_id="i2"),
            member("a", "t"),
        ),
    )
    assert before[MemberId("z")] == partitions("t", 0)
    assert after[MemberId("b")] == partitions("t", 0)
    assert before[MemberId("y")] == partitions("t", 1)
    assert after[MemberId("y")] == partitions("t", 1)


def test_range_with_an_unknown_topic_assigns_nothing_of_it() -> None:
    """A topic without metadata has no partitions to assign.

    Kafka: testOneConsumerNonexistentTopic.
    """
    assert RANGE.assign({}, (member("a", "gone"),)) == {"a": ()}


@given(st.dictionaries(st.sampled_from("tuv"), st.integers(0, 20)), st.integers(1, 9))
def test_range_with_equal_subscriptions_is_complete_and_balanced(
    counts: dict[str, int], members: int
) -> None:
    """Each partition has one owner. The shares of a topic differ by at most one partition.

    Source: BEHAVIOUR 7.8.
    """
    group = tuple(member(f"m{i}", *counts) for i in range(members))
    assigned = RANGE.assign(counts, group)
    owned = sorted(partition for share in assigned.values() for partition in share)
    existing = (
        TopicPartition(topic, index) for topic, count in counts.items() for index in range(count)
    )
    assert owned == sorted(existing)
    for topic in counts:
        sizes = [sum(p.topic == topic for p in share) for share in assigned.values()]
        assert max(sizes) - min(sizes) <= 1


def test_round_robin_assigns_all_partitions_in_turn() -> None:
    """The members get one partition in turn: first those of t1, and then those of t2.

    The first partition of t2 goes to the member whose turn it is, not to the first member.

    Kafka: testTwoConsumersTwoTopicsSixPartitions.
    """
    assigned = ROUND_ROBIN.assign(
        {"t2": 3, "t1": 3}, (member("b", "t1", "t2"), member("a", "t1", "t2"))
    )
    assert assigned == {
        "a": partitions("t1", 0, 2) + partitions("t2", 1),
        "b": partitions("t1", 1) + partitions("t2", 0, 2),
    }


def test_round_robin_passes_over_members_without_the_topic() -> None:
    """A member that does not read the topic is skipped. No member reads t3.

    Kafka: testMultipleConsumersMixedTopicSubscriptions.
    """
    assigned = ROUND_ROBIN.assign(
        {"t1": 3, "t2": 2, "t3": 1},
        (member("a", "t1"), member("b", "t1", "t2"), member("c", "t1")),
    )
    assert assigned == {
        "a": partitions("t1", 0),
        "b": partitions("t1", 1) + partitions("t2", 0, 1),
        "c": partitions("t1", 2),
    }


def test_round_robin_begins_with_static_members() -> None:
    """Static members come first, in the order of their instance ids, as with range."""
    assigned = ROUND_ROBIN.assign(
        {"t": 3}, (member("a", "t"), member("z", "t", group_instance_id="i1"))
    )
    assert assigned == {"z": partitions("t", 0, 2), "a": partitions("t", 1)}
