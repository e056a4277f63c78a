"""Consumers of Kafka 0.8, on ZooKeeper, compute the assignment of partitions for themselves.

Such a group has no coordinator. Each member reads the members of the group and the partitions of
the topics from ZooKeeper. This is its view. From the view it computes which partitions are its own.
Two members with the same view come to the same result:

    group = view({"a": {"t": 1}, "b": {"t": 1}}, {"t": 3})  # a and b read topic t, of 3 partitions
    assign("range", group, "a")  # -> t-0 and t-1

In the view, `{"t": 1}` says that a member has one stream of topic t. A member has a thread for each
stream, and partitions are assigned to threads. All members here have one stream of a topic, so each
member has one thread for it.

Docstrings quote rules of docs/kafka/ZOOKEEPER_CONSUMER.md; ids such as ZK-51 name the rules.
"""

from hypothesis import given
from hypothesis import strategies as st

from cluster.client.zookeeper_consumer.assignment import GroupView, assign, java_hash
from cluster.client.zookeeper_consumer.paths import partitions_in_znode, registration, streams_of
from protocol.ids import TopicPartition


def view(members: dict[str, dict[str, int]], partitions: dict[str, int]) -> GroupView:
    """Return a view. `partitions` has the number of partitions of each topic."""
    return GroupView(
        streams=members,
        partitions={
            topic: tuple(TopicPartition(topic, number) for number in range(count))
            for topic, count in partitions.items()
        },
    )


def shares(strategy: str, group: GroupView) -> dict[str, list[str]]:
    """Return the partitions that each member computes for itself."""
    return {
        member: [str(partition) for partition in assign(strategy, group, member)]
        for member in group.streams
    }


def test_range_assigns_consecutive_partitions_and_one_more_to_the_first_threads() -> None:
    """Per topic: n = P div threads, the first P mod threads get one more (ZK-51).

    Here P, the number of partitions, is 7, and n is 2. Three threads get 3, 2 and 2.
    """
    group = view({"a": {"t": 1}, "b": {"t": 1}, "c": {"t": 1}}, {"t": 7})

    assert shares("range", group) == {
        "a": ["t-0", "t-1", "t-2"],
        "b": ["t-3", "t-4"],
        "c": ["t-5", "t-6"],
    }


def test_threads_are_sorted_as_text() -> None:
    """The assignment goes through the threads in text order of the thread id (ZK-51).

    So `c10` comes before `c2`.
    """
    group = view({"c2": {"t": 1}, "c10": {"t": 1}}, {"t": 2})

    assert shares("range", group) == {"c2": ["t-1"], "c10": ["t-0"]}


def test_round_robin_sorts_by_the_java_hash_and_skips_threads_of_other_topics() -> None:
    """Partitions are sorted by the Java hash of their text; threads take one each, in turn (ZK-52).

    Threads that do not consume the topic are skipped: `a` does not consume `u`, so `b` gets both of
    `u`.
    """
    # Java's `hashCode` returns these values. The second is the lowest number of 32 bits.
    assert java_hash("hello") == 99_162_322
    assert java_hash("polygenelubricants") == -2_147_483_648
    assert java_hash("") == 0

    group = view({"a": {"t": 1}, "b": {"t": 1, "u": 1}}, {"t": 2, "u": 2})

    assert shares("roundrobin", group) == {"a": ["t-0"], "b": ["t-1", "u-0", "u-1"]}


def test_more_threads_than_partitions_leave_some_threads_idle() -> None:
    """An assignment of nothing (C > P) is a success (ZK-47): three consumers, two partitions."""
    group = view({"a": {"t": 1}, "b": {"t": 1}, "c": {"t": 1}}, {"t": 2})

    assert shares("range", group) == {"a": ["t-0"], "b": ["t-1"], "c": []}


def test_one_more_member_moves_the_bounds_of_all_ranges() -> None:
    """The assignment is not sticky: a change of one member moves borders of all ranges (ZK-54)."""
    names = [f"c{index}" for index in range(9)]
    eight_members = view({name: {"t": 1} for name in names[:8]}, {"t": 64})
    nine_members = view({name: {"t": 1} for name in names}, {"t": 64})
    shares_of_eight = shares("range", eight_members)
    shares_of_nine = shares("range", nine_members)

    # Eight members have 8 of 64 partitions each. Of nine, the first has 8 and the others have 7.
    unchanged = [name for name in names[:8] if shares_of_eight[name] == shares_of_nine[name]]
    assert unchanged == ["c0"]


@given(
    st.sampled_from(("range", "roundrobin")),
    # Member -> its topics, some of t, u and v, with one stream of each.
    st.dictionaries(
        st.text("abc", min_size=1, max_size=4),
        st.dictionaries(st.sampled_from("tuv"), st.just(1), min_size=1),
        min_size=1,
        max_size=6,
    ),
    st.integers(1, 12),
)
def test_equal_views_give_every_partition_one_reader_of_its_topic(
    strategy: str, members: dict[str, dict[str, int]], partitions: int
) -> None:
    """Consumers with equal views agree; only different views conflict (ZK-45).

    `partitions` is the number of partitions of each topic.
    """
    topics = {topic: partitions for streams in members.values() for topic in streams}
    group = view(members, topics)
    owners = [
        (partition, member) for member in members for partition in assign(strategy, group, member)
    ]

    assigned = sorted(partition for partition, _member in owners)
    existing = sorted(
        partition for of_one_topic in group.partitions.values() for partition in of_one_topic
    )
    assert assigned == existing
    assert all(partition.topic in members[member] for partition, member in owners)


def test_registration_and_partition_map_are_read_back() -> None:
    """`{"version":1,"subscription":{"t":1},"pattern":"static","timestamp":"..."}` (section 2).

    A member writes this text into its znode, its entry in ZooKeeper. The subscription has the
    number of the member's streams of each topic. The znode of a topic has the replicas of each
    partition, with the partitions in any order.
    """
    assert registration({"t": 1}, timestamp_ms=1_795_353_795_563) == (
        '{"version":1,"subscription":{"t":1},"pattern":"static","timestamp":"1795353795563"}'
    )
    assert streams_of(registration({"t": 2}, timestamp_ms=0)) == {"t": 2}
    assert partitions_in_znode("t", '{"version":1,"partitions":{"1":[0],"0":[0]}}') == (
        TopicPartition("t", 0),
        TopicPartition("t", 1),
    )
