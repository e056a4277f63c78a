"""Consumers of Kafka 0.8 that subscribe by a topic filter, such as the regular expression `t[01]`.

Such a consumer coordinates its group through ZooKeeper. It has an entry there, its registration,
with its subscription. It also watches the list of topics. When a topic appears that matches the
filter, the group rebalances. docs/kafka/ZOOKEEPER_CONSUMER.md describes all this;
"ZOOKEEPER_CONSUMER 2" is its section 2.

The tests run a small cluster with a group:

    lab = GroupLab(members=2, partitions=4, topics=3, topic_filter=T0_AND_T1).run(scenario)

Each of the topics `t0`, `t1` and `t2` has four partitions here. `scenario` is a function that does
something while the group runs. For example, it may create a topic by `lab.visitor()`, a client of
ZooKeeper that is no member of the group. Afterwards the test looks at what was recorded:

- `lab.attempts(time_us)` returns the attempts to rebalance that members made since `time_us`;
- `lab.reads(time_us)` returns the number of reads that members sent to ZooKeeper since `time_us`;
- `lab.processed()` returns an event for each record that a member has processed.
"""

import json

import pytest

from cluster.client.zookeeper_consumer.paths import (
    BLACK_LIST,
    STATIC,
    WHITE_LIST,
    allowed_topics,
    has_filter,
    registration,
    streams_of,
)
from cluster.links.rules import Slow
from cluster.spec import TopicFilterSpec
from cluster.zookeeper.node import ZooKeeperNode
from protocol.trace import TraceKind
from tests.support.harness.zookeeper_group import (
    SECOND,
    GroupLab,
    detail_of,
    member_name,
)

T0_AND_T1 = TopicFilterSpec(pattern="white_list", regex="t[01]")
NOT_T0 = TopicFilterSpec(pattern="black_list", regex="t0")


def test_registration_of_a_filter_has_the_regular_expression_as_its_only_key() -> None:
    """A member with a filter registers the regular expression in place of the names of topics.

    The field `pattern` shows whether a member has a filter. The value is `white_list` or
    `black_list` for a filter, and `static` for a list of names (ZOOKEEPER_CONSUMER 2). The 1 in the
    subscription is the number of the member's streams.
    """
    content = registration({"t[01]": 1}, 1_795_353_795_563, WHITE_LIST)

    assert json.loads(content) == {
        "version": 1,
        "subscription": {"t[01]": 1},
        "pattern": "white_list",
        "timestamp": "1795353795563",
    }
    assert has_filter(content)
    assert not has_filter(registration({"t0": 1}, 0, STATIC))
    # Of these four topics the member reads two, each in one stream.
    assert streams_of(content, ["t0", "t1", "t11", "x"]) == {"t0": 1, "t1": 1}


@pytest.mark.parametrize(
    ("pattern", "expected"), [(WHITE_LIST, ["a.b", "c"]), (BLACK_LIST, ["ab", "aab"])]
)
def test_filter_matches_whole_names(pattern: str, expected: list[str]) -> None:
    """A white list allows the topics whose whole name matches. A black list allows all others."""
    allowed = allowed_topics(pattern, "a[.]b|c", ["c", "ab", "a.b", "aab"])
    assert allowed == sorted(expected)


@pytest.mark.parametrize(
    ("topic_filter", "topics"), [(T0_AND_T1, {"t0", "t1"}), (NOT_T0, {"t1", "t2"})]
)
def test_members_with_a_filter_read_the_matching_topics(
    topic_filter: TopicFilterSpec, topics: set[str]
) -> None:
    """Each partition of a matching topic has an owner. No other partition has an owner."""
    owned: list[str] = []

    async def scenario(lab: GroupLab) -> None:
        await lab.runtime.sleep(2 * SECOND)
        status = await lab.status()
        for member in status.values():
            owned.extend(str(partition) for partition in member.assigned)

    lab = GroupLab(members=2, partitions=4, topics=3, topic_filter=topic_filter).run(scenario)

    matching = [f"{topic}-{number}" for topic in topics for number in range(4)]
    assert sorted(owned) == sorted(matching)
    topics_read = {str(row.partition).rpartition("-")[0] for row in lab.processed()}
    assert topics_read == topics


def test_filter_costs_two_watches_a_member_and_a_read_of_all_topics_a_registration() -> None:
    """A filter makes a rebalance more expensive for ZooKeeper.

    - Watches (requests to be told about one change): a member with a filter has two watches more
      than a member without a filter. Both are on the list of topics, `/brokers/topics`.
    - Reads: whenever a member reads a registration with a filter, it also reads the list of topics
      to see which topics match. In an attempt to rebalance, each of the C members reads its own
      registration twice, and the registrations of all C members once. So there are 2 + C more
      reads.

    The test counts the watches and the reads when a third member joins a group of two.
    """
    members = 3
    watches: list[int] = []

    async def scenario(lab: GroupLab) -> None:
        newcomer = member_name(members - 1)
        lab.change_began_us = lab.runtime.now_us()
        # The newcomer is slow to claim partitions. By the time it claims them, the other members
        # have released them, so every attempt succeeds.
        await lab.rule(Slow(delay_us=SECOND // 4), [newcomer], lab.servers, apis=("Create",))
        await lab.runtime.start_node(newcomer)
        await lab.runtime.sleep(SECOND)
        await lab.settled(lab.names)
        await lab.runtime.sleep(SECOND)
        node = lab.nodes[lab.servers[0]]
        assert isinstance(node, ZooKeeperNode)
        watches.append(len(node.core.clients.watches))

    # With `late_from`, the lab starts only the first two members. The scenario starts the third.
    lab = GroupLab(
        members=members, partitions=4, late_from=members - 1, topics=2, topic_filter=T0_AND_T1
    ).run(scenario)
    assert [attempt["done"] for attempt in lab.attempts(lab.change_began_us)] == [True] * members

    # The numbers of members (consumers), topics, brokers and partitions.
    c, t, b, p = members, 2, 1, 8
    reads_without_filter = c * (c + t + 3 * b + 9) + p + 1 + t
    reads_of_topic_lists = c * (2 + c)
    # At its start the newcomer reads the topics (one read), registers, and sets the watch on the
    # topics (two reads).
    reads_of_start = 1 + 2
    expected_reads = reads_without_filter + reads_of_topic_lists + reads_of_start
    assert lab.reads(lab.change_began_us) == expected_reads

    watches_without_filter = c * (2 + t)
    watches_of_topic_lists = c * 2
    assert watches == [watches_without_filter + watches_of_topic_lists]


def test_new_topic_starts_a_rebalance_if_the_filter_matches() -> None:
    """A new topic that does not match changes nothing (ZOOKEEPER_CONSUMER 3).

    The test creates the topic "other", which does not match, and 3 s later the topic t1, which
    matches. The rebalances must begin only after the creation of t1.
    """

    async def scenario(lab: GroupLab) -> None:
        visitor = lab.visitor()
        lab.change_began_us = lab.runtime.now_us()
        await visitor.create("/brokers/topics/other", '{"version":1,"partitions":{"0":[0]}}')
        await lab.runtime.sleep(3 * SECOND)
        lab.change_ended_us = lab.runtime.now_us()
        await visitor.create("/brokers/topics/t1", '{"version":1,"partitions":{"0":[0]}}')
        await lab.runtime.sleep(6 * SECOND)

    lab = GroupLab(members=2, partitions=4, topic_filter=T0_AND_T1, has_visitor=True).run(scenario)

    started = lab.of(TraceKind.ZOOKEEPER_ATTEMPT_STARTED, after_us=lab.change_began_us)
    assert {row.node for row in started} == set(lab.names)
    assert min(row.time_us for row in started) > lab.change_ended_us
    # A view is what a member has read before it plans who owns which partition.
    views = lab.of(TraceKind.ZOOKEEPER_VIEW, after_us=lab.change_ended_us)
    planned = {partition for row in views for partition in detail_of(row)["partitions"]}
    assert "t1-0" in planned
    assert not any(partition.startswith("other") for partition in planned)
