"""Two coordinators serve one group at the same time, as was measured on Kafka 3.9.1.

1. A group has six members that do not commit. Broker 1 is its coordinator.
2. Broker 1 is cut off from the controller and from the other brokers, but not from the members.
   Broker 1 is called the old side here, and the other brokers are the new side. The controller
   elects a new coordinator on the new side, broker 2. The members do not notice this election, and
   stay with broker 1.
3. 15 s after the cut (JOIN_S) two more consumers start, the joiners. Each joiner knows only brokers
   of one side, and joins the group on this side.
4. 80 s after the cut (HEAL_S) the network heals.

Sources: docs/kafka/MEASURED_FAILOVER.md (two owners) and docs/kafka/BEHAVIOUR.md 6.4. The bounds in
seconds come from MEASURED_FAILOVER.md and from the settings of the brokers.
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
"""The broker that coordinates the group before the cut."""
OTHERS = (NodeName("broker-0"), NodeName("broker-2"))
"""The brokers of the new side."""
NEW = NodeName("broker-2")
"""The broker of the new side that becomes the coordinator.

The coordinator of a group is the leader of the group's partition of `__consumer_offsets`. Broker 2
has the next replica of this partition, so it is elected leader.
"""
STEADY_S = 15
"""Time after which the group of a new cluster is stable."""
JOIN_S = 15
"""Time from the cut to the start of the joiners."""
HEAL_S = 80
"""Time from the cut to the healing."""
AFTER_S = 8
"""Length of the wait after the healing.

In this time the old members learn that the new side has removed them, and join the group again.
"""
SESSION_S = 45
"""The default session.timeout.ms, after which the new side removes the old members."""


def consumer(index: int, servers: tuple[str, ...] = ()) -> ConsumerSpec:
    """Return a consumer that never commits.

    With `servers` the consumer is a joiner: the test starts it later, and `servers` are the only
    brokers that it knows at first.
    """
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
    """Run the steps 1 to 4. Each argument has the bootstrap servers of one joiner.

    Return the events that the nodes have recorded since the cut (the rows of the trace), and the
    status of the cluster at the end. The times in the rows count from the cut.
    """
    joiners = [
        consumer(6 + index, servers_of_joiner) for index, servers_of_joiner in enumerate(servers)
    ]
    spec: ClusterSpec = msgspec.structs.replace(
        cluster(members=0), consumers=(*(consumer(index) for index in range(6)), *joiners)
    )
    rows: list[TraceRow] = []
    # No test here reads rows about messages, and a run without these rows is faster.
    runtime = VirtualRuntime(
        spec, seed=1, run_id="test", observers=(rows.append,), trace_messages=False
    )
    new_side = (*OTHERS, controller_name(100))

    async def main() -> tuple[int, ClusterStatus]:
        await runtime.start()
        await runtime.sleep(STEADY_S * SECOND)
        (group,) = (await runtime.status()).groups["g"]
        assert group.coordinator == 1
        cut_us = runtime.now_us()
        await runtime.set_link_rules(
            [
                LinkRule(
                    rule_id="out",
                    selector=Selector(sources=(OLD,), destinations=new_side),
                    effect=Cut(),
                ),
                LinkRule(
                    rule_id="in",
                    selector=Selector(sources=new_side, destinations=(OLD,)),
                    effect=Cut(),
                ),
            ]
        )

        await runtime.sleep(JOIN_S * SECOND)
        for joiner in joiners:
            await runtime.start_node(joiner.name)
        await runtime.sleep((HEAL_S - JOIN_S) * SECOND)

        await runtime.set_link_rules([])
        await runtime.sleep(AFTER_S * SECOND)
        status = await runtime.status()
        await runtime.stop()
        return cut_us, status

    cut_us, status = runtime.run(main())
    assert runtime.failures() == ()
    rows_since_cut = [
        msgspec.structs.replace(row, time_us=row.time_us - cut_us)
        for row in rows
        if row.time_us >= cut_us
    ]
    return rows_since_cut, status


def times_s(
    rows: list[TraceRow], kind: str, node: NodeName, generation: int | None = None
) -> list[float]:
    """Return the times, in seconds after the cut, of a node's rows of one kind.

    With `generation`, only rows of this generation count.
    """
    return [
        row.time_us / SECOND
        for row in rows
        if row.kind == kind
        and row.node == node
        and (generation is None or row.generation == generation)
    ]


def test_one_joiner_on_each_side_causes_two_sequences_of_generations() -> None:
    """The old side begins a generation every 5 s, and never stores its assignment.

    The joiner on the old side makes the group rebalance. At the end of a rebalance the coordinator
    must append the assignment to the log, and the followers must acknowledge the append. They are
    cut off, so after 5 s (offsets.commit.timeout.ms) the coordinator gives up. The members join
    again, and so on.

    The new side loads the group of six members. The new coordinator gets no heartbeats of these
    members, so it removes them when their sessions end. Then only the joiner of the new side is
    left in the group.
    """
    rows, status = play((OLD,), OTHERS)

    # The old side.
    generations_s = times_s(rows, "generation_started", OLD)
    assert JOIN_S < generations_s[0] < JOIN_S + 1.5
    gaps_s = [later - earlier for earlier, later in itertools.pairwise(generations_s)]
    assert len(generations_s) >= 13  # one every 5 s, in the 65 s from JOIN_S to HEAL_S
    assert all(5.0 <= gap_s < 5.2 for gap_s in gaps_s)
    assert times_s(rows, "assignment_stored", OLD) == []
    causes_and_errors = {
        (row.cause, row.error)
        for row in rows
        if row.kind == "rebalance_started" and row.node == OLD
    }
    assert (RebalanceCause.ASSIGNMENT_NOT_STORED, "REQUEST_TIMED_OUT") in causes_and_errors

    # The new side.
    (loaded_s,) = times_s(rows, "group_loaded", NEW)
    without_old_members_s, after_healing_s = times_s(rows, "generation_started", NEW)
    assert SESSION_S <= without_old_members_s - loaded_s < SESSION_S + 0.1

    # - Generation 1 was the generation before the cut.
    # - Generation 2 had only the joiner of the new side.
    # - Generation 3 is after the healing. It has eight members: six old members and two joiners.
    assert HEAL_S < after_healing_s < HEAL_S + 5
    (group,) = status.groups["g"]
    assert group.generation == 3
    assert len(group.members) == 8
    assert group.state == "Stable"

    # After the healing broker 1 follows broker 2, so it truncates its log at offset 1. The record
    # at offset 0 is the assignment from before the cut. All later records of the old side are lost.
    truncated = [
        row
        for row in rows
        if row.kind == "log_truncated" and row.partition == "__consumer_offsets-1"
    ]
    assert [row.offset for row in truncated] == [1]


def test_joiners_on_the_new_side_own_partitions_that_old_members_still_process() -> None:
    """Both joiners join on the new side, so nothing happens on the old side.

    When the sessions of the old members end on the new side, the joiners get all partitions. But
    the old members still process these partitions. So until the healing each partition has two
    owners.
    """
    rows, status = play(OTHERS, OTHERS)
    assert times_s(rows, "generation_started", OLD) == []
    (loaded_s,) = times_s(rows, "group_loaded", NEW)
    without_old_members_s, after_healing_s = times_s(rows, "generation_started", NEW)
    assert SESSION_S <= without_old_members_s - loaded_s < SESSION_S + 0.1
    assert HEAL_S < after_healing_s < HEAL_S + 6

    old_members = [NodeName(f"consumer-g-{index}") for index in range(6)]
    # The old members lose their partitions only after the healing. Then they reach the new side,
    # which does not know them.
    for member in old_members:
        assert times_s(rows, "partitions_revoked", member) == []
        (lost,) = times_s(rows, "partitions_lost", member)
        assert HEAL_S < lost < HEAL_S + 3.5

    # Broker 1, which is cut off, leads 4 of the 12 partitions. The old members still read the
    # other 8.
    read_by_old_members = {
        row.partition
        for row in rows
        if row.kind == "records_consumed"
        and row.node in old_members
        and without_old_members_s * SECOND < row.time_us < HEAL_S * SECOND
    }
    assert len(read_by_old_members) >= 8

    (group,) = status.groups["g"]
    assert group.generation == 3
    assert len(group.members) == 8
    assert group.state == "Stable"
