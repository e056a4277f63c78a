"""Two coordinators serve one group (MEASURED_FAILOVER two-owners, BEHAVIOUR 6.4).

A group of six members that do not commit; its coordinator is cut from the controller and the other
brokers at 0, its clients stay; at 15 s two consumers join; at 80 s the cut heals. Which side each
joiner reaches is whom it asks first, here its bootstrap servers.
"""

import itertools

import msgspec
import pytest

from cluster.links.rules import Cut, LinkRule, Selector
from cluster.runtime import ClusterStatus
from cluster.spec import ClusterSpec, ConsumerSpec
from cluster.virtual.runtime import VirtualRuntime
from protocol.causes import RebalanceCause
from protocol.config import ConsumerConfig
from protocol.ids import NodeName, controller_name
from protocol.trace import TraceRow
from tests.support.worlds.measured_cluster import SECOND, cluster

pytestmark = pytest.mark.slow

OLD = NodeName("broker-1")
"""Coordinates the group before the cut."""
OTHERS = (NodeName("broker-0"), NodeName("broker-2"))
JOIN_S = 15
HEAL_S = 80


def consumer(index: int, servers: tuple[str, ...] = ()) -> ConsumerSpec:
    """Return a member that never commits; one with `servers` joins later, through them."""
    return ConsumerSpec(
        name=NodeName(f"consumer-g-{index}"),
        group_id="g",
        index=index,
        topics=("t",),
        config=ConsumerConfig(
            enable_auto_commit=False, auto_offset_reset="earliest", bootstrap_servers=servers
        ),
        commit_interval_ms=None,
        starts_later=bool(servers),
    )


def play(*servers: tuple[str, ...]) -> tuple[list[TraceRow], ClusterStatus]:
    """Tell the story with one joiner for each of `servers`; times count from the cut."""
    joiners = [consumer(6 + index, named) for index, named in enumerate(servers)]
    spec: ClusterSpec = msgspec.structs.replace(
        cluster(0), consumers=(*(consumer(index) for index in range(6)), *joiners)
    )
    rows: list[TraceRow] = []
    runtime = VirtualRuntime(
        spec, seed=1, run_id="test", observers=(rows.append,), trace_messages=False
    )
    far = (*OTHERS, controller_name(100))

    async def main() -> tuple[int, ClusterStatus]:
        await runtime.start()
        await runtime.sleep(15 * SECOND)
        (group,) = (await runtime.status()).groups["g"]
        assert group.coordinator == 1
        cut_us = runtime.now_us()
        await runtime.set_link_rules(
            [
                LinkRule(
                    rule_id="out",
                    selector=Selector(sources=(OLD,), destinations=far),
                    effect=Cut(),
                ),
                LinkRule(
                    rule_id="in",
                    selector=Selector(sources=far, destinations=(OLD,)),
                    effect=Cut(),
                ),
            ]
        )
        await runtime.sleep(JOIN_S * SECOND)
        for joiner in joiners:
            await runtime.start_node(joiner.name)
        await runtime.sleep((HEAL_S - JOIN_S) * SECOND)
        await runtime.set_link_rules([])
        await runtime.sleep(8 * SECOND)
        status = await runtime.status()
        await runtime.stop()
        return cut_us, status

    cut_us, status = runtime.run(main())
    assert runtime.failures() == ()
    return [
        msgspec.structs.replace(row, time_us=row.time_us - cut_us)
        for row in rows
        if row.time_us >= cut_us
    ], status


def at_s(
    rows: list[TraceRow], kind: str, node: NodeName, generation: int | None = None
) -> list[float]:
    """Return when a node traced a kind, in seconds after the cut."""
    return [
        row.time_us / SECOND
        for row in rows
        if row.kind == kind
        and row.node == node
        and (generation is None or row.generation == generation)
    ]


def test_one_joiner_on_each_side_makes_two_lineages_of_generations() -> None:
    """The old side starts a rebalance every 5 s and never hands out an assignment.

    Its SyncGroups wait for an append that no follower acknowledges; after
    offsets.commit.timeout.ms all are answered REBALANCE_IN_PROGRESS and the members join again.
    """
    rows, status = play((OLD,), OTHERS)
    old = at_s(rows, "generation_started", OLD)
    assert JOIN_S < old[0] < JOIN_S + 1.5
    gaps = [later - earlier for earlier, later in itertools.pairwise(old)]
    assert len(old) >= 13
    assert all(5.0 <= gap < 5.2 for gap in gaps)
    assert at_s(rows, "assignment_stored", OLD) == []
    started = [row for row in rows if row.kind == "rebalance_started" and row.node == OLD]
    assert (RebalanceCause.ASSIGNMENT_NOT_STORED, "REQUEST_TIMED_OUT") in {
        (row.cause, row.error) for row in started
    }
    # The other side waits for the six that it loaded, until their sessions end 45 s later.
    (loaded,) = at_s(rows, "group_loaded", OTHERS[1])
    second, third = at_s(rows, "generation_started", OTHERS[1])
    assert 45.0 <= second - loaded < 45.1
    (group,) = status.groups["g"]
    assert (group.generation, len(group.members), group.state) == (3, 8, "Stable")
    assert HEAL_S < third < HEAL_S + 5
    truncated = [
        row
        for row in rows
        if row.kind == "log_truncated" and row.partition == "__consumer_offsets-1"
    ]
    assert [row.offset for row in truncated] == [1]


def test_joiners_on_the_new_side_own_what_the_old_members_still_process() -> None:
    """Every partition has two owners from the end of the old sessions until the cut heals."""
    rows, status = play(OTHERS, OTHERS)
    assert at_s(rows, "generation_started", OLD) == []
    (loaded,) = at_s(rows, "group_loaded", OTHERS[1])
    second, third = at_s(rows, "generation_started", OTHERS[1])
    assert 45.0 <= second - loaded < 45.1
    assert HEAL_S < third < HEAL_S + 6
    old_members = [NodeName(f"consumer-g-{index}") for index in range(6)]
    # No partition is taken from them by a rebalance: they lose it when they hear of it.
    for member in old_members:
        assert at_s(rows, "partitions_revoked", member) == []
        (lost,) = at_s(rows, "partitions_lost", member)
        assert HEAL_S < lost < HEAL_S + 3.5
    both = [
        row.partition
        for row in rows
        if row.kind == "records_consumed"
        and row.node in old_members
        and second * SECOND < row.time_us < HEAL_S * SECOND
    ]
    assert len(dict.fromkeys(both)) >= 8, "those that the cut broker does not lead"
    (group,) = status.groups["g"]
    assert (group.generation, len(group.members), group.state) == (3, 8, "Stable")
