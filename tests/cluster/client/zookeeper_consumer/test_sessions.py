"""Members that lose ZooKeeper, their session, or both, and the offsets that they commit.

Docstrings quote the rules of docs/kafka/ZOOKEEPER_CONSUMER.md with their ids.

- C is the number of consumers.
- A claim is a member's ephemeral node under `owners`, one for each partition.
- A rebalance attempt has the steps R0 to R11: R3 stops the fetchers and commits, R5 releases the
  member's claims.
- `cut_off` cuts member 0 from ZooKeeper for 20 s, so that its session of 6 s ends; it still reaches
  the brokers.
- A zombie is a member that works on after the end of its session.
- `GroupLab(4, 16)` is a group of four members and one topic of 16 partitions; `late_from=3` leaves
  the start of member 3 to the test.
- `lab.joined_us` and `lab.settled_us` are the beginning and the end of a change, as the scenario
  notes them.
"""

import pytest

from cluster.links.rules import Clog, Cut, Slow
from protocol.config import ZooKeeperConsumerConfig
from protocol.trace import TraceKind, TraceRow
from tests.support.harness.zookeeper_group import (
    SECOND,
    GroupLab,
    detail_of,
    member_name,
)

EVERY_SECOND = ZooKeeperConsumerConfig(auto_commit_interval_ms=1_000)
CUT_US = 20 * SECOND
SLOW_WORK_US = 30_000
"""Processing time of a record: a member then has unprocessed records when it loses its session."""


async def cut_off(lab: GroupLab) -> None:
    """Cut only member 0 off from ZooKeeper for 20 s, and wait until the group is settled."""
    lab.joined_us = lab.runtime.now_us()
    await lab.rule(Cut(), [member_name(0)], lab.servers, both_ways=True)
    await lab.runtime.sleep(CUT_US)
    await lab.heal()
    lab.settled_us = lab.runtime.now_us()
    await lab.runtime.sleep(5 * SECOND)
    await lab.settled(lab.names)
    await lab.runtime.sleep(5 * SECOND)


def processed_between(lab: GroupLab, node: str, from_us: int, until_us: int) -> list[TraceRow]:
    """Return the records that a node's application processed between two times."""
    return [row for row in lab.processed(from_us, node) if row.time_us < until_us]


@pytest.mark.slow
def test_member_without_zookeeper_goes_on_processing_what_another_owns() -> None:
    """A consumer without ZooKeeper goes on fetching and processing (ZK-58).

    Session over at the leader, client not told: then two processes work on one partition (ZK-73).
    Double processing begins at the takeover. It ends only after the cut, with the reconnection (0
    to 1 s), the news of the expiry, and the new session's rebalance (ZK-92).
    """
    lab = GroupLab(4, 16, config=EVERY_SECOND).run(cut_off)

    (expired,) = lab.of(TraceKind.ZOOKEEPER_SESSION_EXPIRED, after_us=lab.joined_us)
    # 6 s after the last ping, which may be 2 s before the cut; a server checks in steps.
    assert 4 * SECOND <= expired.time_us - lab.joined_us <= 8 * SECOND
    owned_by_0 = {
        str(row.partition)
        for row in processed_between(lab, member_name(0), lab.joined_us, expired.time_us)
    }
    by_others = [
        row
        for row in lab.processed(expired.time_us)
        if row.node != member_name(0) and row.partition in owned_by_0
    ]
    taken_us = by_others[0].time_us
    assert taken_us - expired.time_us < SECOND // 2
    # Until the end of the cut member 0 still processes all of its partitions.
    still_by_0 = processed_between(lab, member_name(0), taken_us, lab.settled_us)
    assert {str(row.partition) for row in still_by_0} == owned_by_0
    assert still_by_0[-1].time_us > lab.settled_us - SECOND
    (lost,) = lab.of(TraceKind.PARTITIONS_LOST, after_us=lab.joined_us, node=member_name(0))
    assert lab.settled_us <= lost.time_us <= lab.settled_us + 3 * SECOND // 2


def test_returning_member_drops_its_offsets_and_registers_again() -> None:
    """The registry is emptied, fetchers are not stopped, nothing is committed (ZK-55).

    Then the queued "everything changed" events cause one or two more rebalances (ZK-57).
    """
    never = ZooKeeperConsumerConfig(auto_commit_interval_ms=600_000)
    lab = GroupLab(4, 16, config=never).run(cut_off)

    (lost,) = lab.of(TraceKind.PARTITIONS_LOST, after_us=lab.joined_us)
    own_commits = [
        row
        for row in lab.of(
            TraceKind.ZOOKEEPER_OFFSET_COMMITTED, after_us=lab.joined_us, node=member_name(0)
        )
        if row.time_us <= lost.time_us
    ]
    assert own_commits == []
    # `attempt` counts the tries within one rebalance, from 0.
    first_tries = [
        row
        for row in lab.of(
            TraceKind.ZOOKEEPER_ATTEMPT_STARTED, after_us=lab.settled_us, node=member_name(0)
        )
        if detail_of(row)["attempt"] == 0
    ]
    assert 2 <= len(first_tries) <= 3  # one at the return, and one or two more
    states = [
        detail_of(row)["state"]
        for row in lab.of(
            TraceKind.ZOOKEEPER_CLIENT_STATE, after_us=lab.joined_us, node=member_name(0)
        )
    ]
    assert states == ["Disconnected", "Expired", "SyncConnected"]


@pytest.mark.slow
def test_commit_of_the_old_session_sets_the_position_back_in_the_new_one() -> None:
    """A commit begun before or during the cut is carried out in the new session (ZK-66).

    A commit has no compare, no owner, no generation: the last writer wins, whoever it is (ZK-60).
    """
    rewinds = 0
    for seed in range(2):
        lab = GroupLab(4, 16, config=EVERY_SECOND, process_us=SLOW_WORK_US, seed=seed).run(cut_off)

        stored: dict[str, int] = {}
        for row, detail in lab.writes_of("offsets"):
            path = detail["path"]
            if not detail.get("data", "").isdecimal():
                continue
            offset = int(detail["data"])
            # Back in a session, the member stores a lower offset than the one that is stored.
            rewinds += row.time_us >= lab.settled_us and offset < stored.get(path, 0)
            stored[path] = offset
    assert rewinds > 0


@pytest.mark.slow
def test_release_that_goes_on_in_the_next_session_deletes_owners_of_the_living() -> None:
    """A `delete` of R5 removes another's claim (ZK-74).

    1. Member 0 has slow answers and begins to release its partitions, one `delete` after the other.
    2. It is cut off in the middle, for 14 s: its session ends, and others claim the partitions.
    3. Back in a new session, it goes on with the deletes.
    """

    async def scenario(lab: GroupLab) -> None:
        slow = member_name(0)
        lab.joined_us = lab.runtime.now_us()
        await lab.rule(Slow(delay_us=SECOND // 8), lab.servers, [slow])
        await lab.runtime.start_node(member_name(3))
        while not lab.requests(lab.joined_us, slow)["Delete"]:
            await lab.runtime.sleep(SECOND // 10)
        await lab.rule(Cut(), [slow], lab.servers, both_ways=True)
        await lab.runtime.sleep(14 * SECOND)  # the session ends within 8 s; the others claim
        await lab.heal()
        lab.settled_us = lab.runtime.now_us()
        await lab.runtime.sleep(20 * SECOND)

    lab = GroupLab(4, 32, late_from=3, config=EVERY_SECOND).run(scenario)

    owners: dict[str, tuple[str, str]] = {}
    deleted_of_others = 0
    for row, detail in lab.writes_of("owners"):
        path = detail["path"]
        if detail["op"] == "create":
            owners[path] = (detail["session"], detail["data"])
        elif path in owners:
            session, _thread = owners.pop(path)
            # Back in a session, the member deletes a claim of another session.
            deleted_of_others += row.time_us > lab.settled_us and session != detail["session"]
    assert deleted_of_others > 0


def test_kafka_storage_accepts_the_commits_of_a_zombie_during_the_whole_cut() -> None:
    """OffsetCommit goes to the group's offset manager with generation -1 and an empty member id.

    A broker accepts it while the group has no members of the new protocol: also no fencing (ZK-63).
    The zombie's auto-commit goes straight to the broker during the whole cut (ZK-66).
    """
    config = ZooKeeperConsumerConfig(
        auto_commit_interval_ms=1_000, offsets_storage="kafka", dual_commit_enabled=False
    )
    lab = GroupLab(4, 16, config=config, process_us=SLOW_WORK_US).run(cut_off)

    (expired,) = lab.of(TraceKind.ZOOKEEPER_SESSION_EXPIRED, after_us=lab.joined_us)
    zombie = [
        row
        for row in lab.of(
            TraceKind.ZOOKEEPER_OFFSET_COMMITTED,
            after_us=expired.time_us + SECOND,
            node=member_name(0),
        )
        if row.time_us < lab.settled_us
    ]
    assert len(zombie) > 8  # a commit a second, from 9 s after the cut at the latest to 20 s
    assert {detail_of(row)["store"] for row in zombie} == {"kafka"}
    assert lab.writes_of("offsets") == []


def test_dual_commit_stores_in_both_and_fetches_the_maximum() -> None:
    """A commit goes to Kafka first, then the znode; fetching takes the maximum of both (ZK-64)."""

    async def scenario(lab: GroupLab) -> None:
        await lab.runtime.sleep(5 * SECOND)
        await lab.runtime.start_node(member_name(1))
        await lab.runtime.sleep(5 * SECOND)

    config = ZooKeeperConsumerConfig(auto_commit_interval_ms=1_000, offsets_storage="kafka")
    lab = GroupLab(2, 4, late_from=1, config=config).run(scenario)

    stores = [
        (row.partition, row.offset, detail_of(row)["store"])
        for row in lab.of(TraceKind.ZOOKEEPER_OFFSET_COMMITTED)
    ]
    for partition, offset, store in stores:
        if store == "zookeeper":
            assert (partition, offset, "kafka") in stores
    assert {store for _partition, _offset, store in stores} == {"kafka", "zookeeper"}

    positions = [
        row.offset
        for row in lab.of(TraceKind.POSITION_RESET, node=member_name(1))
        if row.cause == "committed"
    ]
    assert len(positions) >= 2
    assert min(offset for offset in positions if offset is not None) > 0


def test_idle_partition_is_not_committed_again() -> None:
    """Each consumer remembers the last value it wrote or read, and skips equal ones (ZK-61)."""

    async def scenario(lab: GroupLab) -> None:
        await lab.runtime.sleep(10 * SECOND)  # ten commits, of five records

    lab = GroupLab(2, 4, config=EVERY_SECOND, records_per_second=0.5).run(scenario)

    written = [(row.partition, row.offset) for row in lab.of(TraceKind.ZOOKEEPER_OFFSET_COMMITTED)]
    assert len(written) == len(set(written))


def test_rebalance_commits_nothing_without_auto_commit() -> None:
    """With `auto.commit.enable=false` R3 does not commit (ZK-62)."""

    async def scenario(lab: GroupLab) -> None:
        await lab.runtime.start_node(member_name(1))
        await lab.runtime.sleep(5 * SECOND)
        await lab.settled(lab.names)

    config = ZooKeeperConsumerConfig(auto_commit_enable=False)
    lab = GroupLab(2, 4, late_from=1, config=config).run(scenario)

    assert lab.of(TraceKind.ZOOKEEPER_OFFSET_COMMITTED) == []


@pytest.mark.slow
@pytest.mark.parametrize("lag_us", [0, 2 * SECOND // 5])
def test_lagging_follower_gives_different_views_while_it_lags(lag_us: int) -> None:
    """A computes with C members, B with C + 1: overlapping and missing claims (ZK-71).

    A and B are members at different ZooKeeper servers; the followers lag behind the leader. So a
    join gives two different member lists among consumers at the same moment. After the lag all
    agree again without any outside help (ZK-95).
    """

    async def scenario(lab: GroupLab) -> None:
        status = (await lab.runtime.status()).zookeepers
        leader = next(name for name, server in status.items() if server.state == "LEADING")
        followers = [name for name in lab.servers if name != leader]
        if lag_us:
            await lab.rule(Slow(delay_us=lag_us), [leader], followers)
        lab.joined_us = lab.runtime.now_us()
        await lab.runtime.start_node(member_name(5))
        await lab.runtime.sleep(20 * SECOND)

    disagreement_us = []
    for seed in range(2):
        lab = GroupLab(6, 16, late_from=5, servers=3, seed=seed).run(scenario)
        # When each member first read a list with the newcomer.
        first_with_six: dict[str, int] = {}
        for row in lab.of(TraceKind.ZOOKEEPER_VIEW, after_us=lab.joined_us):
            if len(detail_of(row)["members"]) == 6:
                first_with_six.setdefault(row.node, row.time_us)
        assert sorted(first_with_six) == list(lab.names)

        learned_us = [first_with_six[name] for name in lab.names[:5]]
        disagreement_us.append(max(learned_us) - min(learned_us))
    longest_us = max(disagreement_us)
    assert (longest_us >= lag_us) if lag_us else (longest_us < 2 * SECOND // 5)


@pytest.mark.slow
def test_member_that_gave_up_owns_nothing_until_an_unrelated_event() -> None:
    """When a release takes longer than 4 back-offs, others give up (ZK-94).

    All whose new share overlaps its old share fail, and after 4 tries give up (ZK-76). Such a
    consumer stays registered, owns nothing, and waits for the next unrelated notification (ZK-38).
    """

    async def scenario(lab: GroupLab) -> None:
        lab.joined_us = lab.runtime.now_us()
        # Member 0 gets no answer to its first delete, later each answer a second late: its release
        # outlasts the 4 tries of the others.
        await lab.rule(Clog(), lab.servers, [member_name(0)], apis=("Delete",))
        await lab.runtime.start_node(member_name(2))
        await lab.runtime.sleep(3 * SECOND)

        await lab.rule(Slow(delay_us=SECOND), lab.servers, [member_name(0)])
        await lab.runtime.sleep(15 * SECOND)
        await lab.heal()
        await lab.runtime.sleep(30 * SECOND)

        status = await lab.status()
        idle.extend(name for name, member in status.items() if member.state != "STABLE")
        # The unrelated event: now member 1 gets partitions again.
        await lab.runtime.shut_down(member_name(2))
        await lab.runtime.sleep(10 * SECOND)
        await lab.settled(lab.names[:2])

    idle: list[str] = []
    lab = GroupLab(3, 32, late_from=2).run(scenario)

    gave_up = [row.node for row in lab.of(TraceKind.ZOOKEEPER_GAVE_UP)]
    assert idle == [member_name(1)]
    assert member_name(1) in gave_up
