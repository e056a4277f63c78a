"""Members that subscribe by a topic filter (a regular expression): registration, reads, watches.

Sections, such as ZOOKEEPER_CONSUMER 2, are of docs/kafka/ZOOKEEPER_CONSUMER.md. A registration is
an entry of a member in ZooKeeper. A watch is a request for one notification when an entry changes.

- In `GroupLab(members=2, partitions=4)` each of the topics `t0`, `t1`, ... has four partitions.
  With `late_from=2` the test itself starts member 2.
- A *visitor* is a client of ZooKeeper that is no member.
- A scenario stores times in `lab.change_began_us` and `lab.change_ended_us`.
- `lab.reads` counts the reads that the members sent to ZooKeeper after a time, and `lab.attempts`
  returns their attempts to rebalance. `lab.processed` has the rows of processed records.
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
    """The field `pattern` is `static`, `white_list` or `black_list` (ZOOKEEPER_CONSUMER 2)."""
    # The arguments are the streams by regular expression, the time in ms, and the pattern.
    content = registration({"t[01]": 1}, 1_795_353_795_563, WHITE_LIST)

    assert json.loads(content) == {
        "version": 1,
        "subscription": {"t[01]": 1},
        "pattern": "white_list",
        "timestamp": "1795353795563",
    }
    assert has_filter(content)
    assert not has_filter(registration({"t0": 1}, 0, STATIC))
    assert streams_of(content, ["t0", "t1", "t11", "x"]) == {"t0": 1, "t1": 1}


@pytest.mark.parametrize(
    ("pattern", "expected"), [(WHITE_LIST, ["a.b", "c"]), (BLACK_LIST, ["ab", "aab"])]
)
def test_filter_matches_whole_names(pattern: str, expected: list[str]) -> None:
    """A white list allows the topics whose whole name matches. A black list allows all others."""
    allowed = allowed_topics(pattern, "a[.]b|c", ["c", "ab", "a.b", "aab"])
    assert allowed == sorted(expected)


@pytest.mark.parametrize(("chosen", "topics"), [(T0_AND_T1, {"t0", "t1"}), (NOT_T0, {"t1", "t2"})])
def test_members_with_a_filter_read_the_matching_topics(
    chosen: TopicFilterSpec, topics: set[str]
) -> None:
    """All partitions of the matching topics have an owner, and no others have."""

    async def scenario(lab: GroupLab) -> None:
        await lab.runtime.sleep(2 * SECOND)
        status = await lab.status()
        owned.extend(partition for member in status.values() for partition in member.assigned)

    owned: list[object] = []
    lab = GroupLab(members=2, partitions=4, topics=3, topic_filter=chosen).run(scenario)

    assert sorted(map(str, owned)) == sorted(f"{topic}-{n}" for topic in topics for n in range(4))
    processed = {str(row.partition).rpartition("-")[0] for row in lab.processed()}
    assert processed == topics


def test_filter_costs_two_watches_a_member_and_a_read_of_all_topics_a_registration() -> None:
    """Each member of a group with a filter has two more watches, both on `/brokers/topics`.

    Without a filter a group has C x (2 + T) watches. C is the number of members, T the number of
    topics. In an attempt a member reads its own registration twice, and the registration of each
    member once. Each of these 2 + C times it also reads the list of all topics.
    """
    members = 3

    async def scenario(lab: GroupLab) -> None:
        newcomer = member_name(members - 1)
        lab.change_began_us = lab.runtime.now_us()
        # The newcomer claims late, when the others have released, so that every attempt succeeds.
        await lab.rule(Slow(delay_us=SECOND // 4), [newcomer], lab.servers, apis=("Create",))
        await lab.runtime.start_node(newcomer)
        await lab.runtime.sleep(SECOND)
        await lab.settled(lab.names)
        await lab.runtime.sleep(SECOND)
        node = lab.nodes[lab.servers[0]]
        assert isinstance(node, ZooKeeperNode)
        standing.append(len(node.core.clients.watches))

    standing: list[int] = []
    lab = GroupLab(
        members=members, partitions=4, late_from=members - 1, topics=2, topic_filter=T0_AND_T1
    ).run(scenario)

    # c, t, b and p count members, topics, brokers and partitions. `static` is the number of reads
    # of a join without a filter.
    c, t, b, p = members, 2, 1, 8
    static = c * (c + t + 3 * b + 9) + p + 1 + t
    # Each member reads the list of all topics 2 + C times.
    for_topic_lists = c * (2 + c)
    # At its start the newcomer reads the topics (one read), registers, and sets the watch on the
    # topics (two reads).
    of_start = 1 + 2
    assert [attempt["done"] for attempt in lab.attempts(lab.change_began_us)] == [True] * members
    assert lab.reads(lab.change_began_us) == static + for_topic_lists + of_start
    assert standing == [c * (2 + t) + c * 2]


def test_new_topic_starts_a_rebalance_if_the_filter_matches() -> None:
    """A change of the set of matching topics starts a rebalance (ZOOKEEPER_CONSUMER 3)."""

    async def scenario(lab: GroupLab) -> None:
        visitor = lab.visitor()
        lab.change_began_us = lab.runtime.now_us()
        # The first new topic does not match the filter, the second one, t1, does.
        await visitor.create("/brokers/topics/other", '{"version":1,"partitions":{"0":[0]}}')
        await lab.runtime.sleep(3 * SECOND)
        lab.change_ended_us = lab.runtime.now_us()
        await visitor.create("/brokers/topics/t1", '{"version":1,"partitions":{"0":[0]}}')
        await lab.runtime.sleep(6 * SECOND)

    lab = GroupLab(members=2, partitions=4, topic_filter=T0_AND_T1, has_visitor=True).run(scenario)

    started = lab.of(TraceKind.ZOOKEEPER_ATTEMPT_STARTED, after_us=lab.change_began_us)
    assert {row.node for row in started} == set(lab.names)
    assert min(row.time_us for row in started) > lab.change_ended_us
    views = lab.of(TraceKind.ZOOKEEPER_VIEW, after_us=lab.change_ended_us)
    planned = {partition for row in views for partition in detail_of(row)["partitions"]}
    assert "t1-0" in planned
    assert not any(partition.startswith("other") for partition in planned)
