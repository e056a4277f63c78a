"""The assignors, which distribute the partitions of topics over the members of a group.

The tests follow Kafka's RangeAssignorTest and RoundRobinAssignorTest. A line "Kafka: ..." names the
test in these two classes that a test here follows. Kafka's behaviour is in
docs/kafka/BEHAVIOUR.md 7.8.

In this example the range assignor assigns a topic "t" with three partitions to two members:

    RANGE.assign({"t": 3}, (member("a", "t"), member("b", "t")))
    # -> {"a": (t-0, t-1), "b": (t-2,)}
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
    """Each member gets consecutive partitions. Here three members get 3, 2 and 2 of 7 partitions.

    The members are ordered by their ids, so "a" comes first.
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
    """Each topic is divided among its own subscribers. All three members read t1, only b reads t2.

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
    """A static member keeps its partitions when it restarts, although its member id changes.

    Static members have an instance id, which is a setting. They come before all other members, in
    the order of their instance ids. Here the member with the instance id i1 restarts. Its member
    id changes from z to b.
    """
    before_restart = RANGE.assign(
        {"t": 3},
        (
            member("z", "t", group_instance_id="i1"),
            member("y", "t", group_instance_id="i2"),
            member("a", "t"),
        ),
    )
    after_restart = RANGE.assign(
        {"t": 3},
        (
            member("b", "t", group_instance_id="i1"),
            member("y", "t", group_instance_id="i2"),
            member("a", "t"),
        ),
    )
    assert before_restart[MemberId("z")] == partitions("t", 0)
    assert after_restart[MemberId("b")] == partitions("t", 0)
    assert before_restart[MemberId("y")] == partitions("t", 1)
    assert after_restart[MemberId("y")] == partitions("t", 1)


def test_range_with_an_unknown_topic_assigns_nothing_of_it() -> None:
    """The member reads a topic that does not exist, so there is no partition to assign.

    Kafka: testOneConsumerNonexistentTopic.
    """
    assert RANGE.assign({}, (member("a", "gone"),)) == {"a": ()}


@given(
    partition_counts=st.dictionaries(st.sampled_from("tuv"), st.integers(0, 20)),
    member_count=st.integers(1, 9),
)
def test_range_with_equal_subscriptions_is_complete_and_balanced(
    partition_counts: dict[str, int], member_count: int
) -> None:
    """If all members read all topics, each partition has exactly one owner.

    The numbers of partitions that two members have of one topic differ by at most 1.

    Source: BEHAVIOUR 7.8.
    """
    group = tuple(member(f"m{i}", *partition_counts) for i in range(member_count))
    assigned = RANGE.assign(partition_counts, group)
    owned = sorted(partition for share in assigned.values() for partition in share)
    existing = sorted(
        TopicPartition(topic, index)
        for topic, count in partition_counts.items()
        for index in range(count)
    )
    assert owned == existing
    for topic in partition_counts:
        # The number of partitions of this topic that each member has.
        sizes = [sum(p.topic == topic for p in share) for share in assigned.values()]
        assert max(sizes) - min(sizes) <= 1


def test_round_robin_assigns_all_partitions_in_turn() -> None:
    """The members a and b take turns, first through the partitions of t1, and then through t2.

    The last partition of t1 goes to a. So b is next, and gets the first partition of t2.

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
    """A member that does not read a topic is skipped. No member reads t3, so t3 is not assigned.

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
    """As with the range assignor, static members come first, in the order of their instance ids."""
    assigned = ROUND_ROBIN.assign(
        {"t": 3}, (member("a", "t"), member("z", "t", group_instance_id="i1"))
    )
    assert assigned == {"z": partitions("t", 0, 2), "a": partitions("t", 1)}
