"""Members that lose ZooKeeper, their session, or both, and the offsets that they commit.

Before Kafka had coordinators, the consumers of a group coordinated themselves through ZooKeeper,
where each fact is a small file, a znode. A member owns a partition by creating a znode for it, its
claim. The znode is ephemeral: ZooKeeper removes it when the member's session ends. If ZooKeeper
does not hear from a member for 6 s, ZooKeeper ends the session, and the other members take the
partitions over. But a member that is only cut off does not notice the end of its session. It goes
on working as a zombie, on partitions that others own now.

When a member joins or leaves, each member rebalances, in steps which the rules call R0 to R11. R3
stops the fetchers and commits. R5 releases the member's claims. A member makes four attempts, and
waits 2 s (the back-off) after each failed attempt. A member's registry is the set of partitions
that the member fetches and commits.

Docstrings quote rules of docs/kafka/ZOOKEEPER_CONSUMER.md; ids such as ZK-58 name the rules.

Each test runs a scenario in a GroupLab, a cluster with a group of such members in virtual time:

- `GroupLab(members=4, partitions=16)` is a group with one topic. With `late_from=3` the scenario
  itself starts member 3.
- Most tests use the scenario `cut_off`, which cuts member 0 off from ZooKeeper for 20 s. Member 0
  can still reach the brokers.
- `lab.change_began_us` and `lab.change_ended_us` are the times at which the cut began and ended.
- `lab.of(kind)` returns rows of the trace, and `detail_of` the detail of a row. `lab.processed`
  returns the rows of processed records. `lab.writes_of("owners")` returns the writes to ZooKeeper
  below /consumers/g/owners, with their details.
- `lab.settled(names)` waits until each of these members owns its share. `lab.names` has the names
  of all members, and `lab.servers` those of the ZooKeeper servers.
- `lab.rule(effect, sources, destinations)` disturbs the network: Slow delays messages, while Cut
  and Clog hold them back until `lab.heal()`.
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

COMMIT_EVERY_SECOND = ZooKeeperConsumerConfig(auto_commit_interval_ms=1_000)
CUT_US = 20 * SECOND
LAG_US = 2 * SECOND // 5  # 0.4 s
"""The time by which the followers of the ensemble (the ZooKeeper servers) lag behind its leader."""
SLOW_WORK_US = 30_000
"""Processing time of a record. At this rate a member still has work when its session ends."""


async def cut_off(lab: GroupLab) -> None:
    """Cut member 0 off from ZooKeeper for 20 s, and wait until all members are settled again."""
    lab.change_began_us = lab.runtime.now_us()
    await lab.rule(Cut(), [member_name(0)], lab.servers, both_ways=True)
    await lab.runtime.sleep(CUT_US)
    await lab.heal()
    lab.change_ended_us = lab.runtime.now_us()
    await lab.runtime.sleep(5 * SECOND)  # member 0 connects again, and a rebalance begins
    await lab.settled(lab.names)
    await lab.runtime.sleep(5 * SECOND)


def processed_between(lab: GroupLab, node: str, from_us: int, until_us: int) -> list[TraceRow]:
    """Return the rows of the records that a node has processed between two times."""
    return [row for row in lab.processed(from_us, node) if row.time_us < until_us]


@pytest.mark.slow
def test_member_without_zookeeper_goes_on_processing_what_another_owns() -> None:
    """A consumer without ZooKeeper goes on fetching and processing (ZK-58).

    The session is over at ZooKeeper's leader, and member 0 does not know it: two processes work on
    one partition (ZK-73). Double processing begins at the takeover. It ends after the cut, when
    member 0 has reconnected (within 1 s) and rebalances in a new session (ZK-92).
    """
    lab = GroupLab(members=4, partitions=16, config=COMMIT_EVERY_SECOND).run(cut_off)

    (expired,) = lab.of(TraceKind.ZOOKEEPER_SESSION_EXPIRED, after_us=lab.change_began_us)
    # The session ends 6 s after the last ping, which was up to 2 s before the cut. ZooKeeper's
    # leader checks every 2 s.
    assert 4 * SECOND <= expired.time_us - lab.change_began_us <= 8 * SECOND
    # Before the expiry member 0 processes exactly the partitions that it owns.
    owned_by_0 = {
        str(row.partition)
        for row in processed_between(lab, member_name(0), lab.change_began_us, expired.time_us)
    }
    # Soon after the expiry others process records of these partitions.
    processed_by_others = [
        row
        for row in lab.processed(expired.time_us)
        if row.node != member_name(0) and row.partition in owned_by_0
    ]
    takeover_us = processed_by_others[0].time_us
    assert takeover_us - expired.time_us < SECOND // 2
    # Member 0 goes on with all its partitions to the end of the cut.
    still_processed_by_0 = processed_between(lab, member_name(0), takeover_us, lab.change_ended_us)
    assert {str(row.partition) for row in still_processed_by_0} == owned_by_0
    assert still_processed_by_0[-1].time_us > lab.change_ended_us - SECOND
    (lost,) = lab.of(TraceKind.PARTITIONS_LOST, after_us=lab.change_began_us, node=member_name(0))
    assert lab.change_ended_us <= lost.time_us <= lab.change_ended_us + 3 * SECOND // 2


def test_returning_member_drops_its_offsets_and_registers_again() -> None:
    """In the new session the registry is emptied, fetchers are not stopped (ZK-55).

    So the member commits none of the offsets that it has consumed. Then the queued "everything
    changed" events cause one or two more rebalances (ZK-57).
    """
    # The commit interval is longer than the test, so only the steps of a rebalance could commit.
    rare_commits = ZooKeeperConsumerConfig(auto_commit_interval_ms=600_000)
    lab = GroupLab(members=4, partitions=16, config=rare_commits).run(cut_off)

    (lost,) = lab.of(TraceKind.PARTITIONS_LOST, after_us=lab.change_began_us)
    commits_before_loss = [
        row
        for row in lab.of(
            TraceKind.ZOOKEEPER_OFFSET_COMMITTED, after_us=lab.change_began_us, node=member_name(0)
        )
        if row.time_us <= lost.time_us
    ]
    assert commits_before_loss == []
    # Each rebalance has one row with attempt 0, so these rows count the rebalances.
    first_attempts = [
        row
        for row in lab.of(
            TraceKind.ZOOKEEPER_ATTEMPT_STARTED, after_us=lab.change_ended_us, node=member_name(0)
        )
        if detail_of(row)["attempt"] == 0
    ]
    assert 2 <= len(first_attempts) <= 3  # one for the new session, and one or two more
    states = [
        detail_of(row)["state"]
        for row in lab.of(
            TraceKind.ZOOKEEPER_CLIENT_STATE, after_us=lab.change_began_us, node=member_name(0)
        )
    ]
    assert states == ["Disconnected", "Expired", "SyncConnected"]


@pytest.mark.slow
def test_commit_of_the_old_session_sets_the_position_back_in_the_new_one() -> None:
    """A commit begun before or during the cut is carried out in the new session (ZK-66).

    A commit has no compare, no owner, no generation: the last writer wins, whoever it is (ZK-60).
    So an old commit may replace a newer one, and the stored offset falls. This does not happen in
    every run, so the test makes two runs.
    """
    fallen_offsets = 0
    for seed in range(2):
        lab = GroupLab(
            members=4, partitions=16, config=COMMIT_EVERY_SECOND, process_us=SLOW_WORK_US, seed=seed
        ).run(cut_off)

        stored_offsets: dict[str, int] = {}  # path of a znode -> its offset
        for row, detail in lab.writes_of("offsets"):
            path = detail["path"]
            if not detail.get("data", "").isdecimal():
                continue  # this znode has no offset, it is a parent of others
            offset = int(detail["data"])
            is_lower = offset < stored_offsets.get(path, 0)
            if is_lower and row.time_us >= lab.change_ended_us:
                fallen_offsets += 1
            stored_offsets[path] = offset
    assert fallen_offsets > 0


@pytest.mark.slow
def test_release_that_goes_on_in_the_next_session_deletes_owners_of_the_living() -> None:
    """A `delete` of R5 removes another's claim (ZK-74): an operation may run in the next session.

    1. Member 0 has slow answers and begins to release its partitions, one `delete` after the other.
    2. A cut of 14 s interrupts the deletes: the session of member 0 ends, and others claim the
       partitions.
    3. Back in a new session, member 0 goes on with the deletes.
    """

    async def scenario(lab: GroupLab) -> None:
        slow = member_name(0)
        lab.change_began_us = lab.runtime.now_us()
        # Each answer to member 0 takes 1/8 s. The start of member 3 causes a rebalance. As soon as
        # member 0 has sent its first delete, the cut begins.
        await lab.rule(Slow(delay_us=SECOND // 8), lab.servers, [slow])
        await lab.runtime.start_node(member_name(3))
        while not lab.requests(lab.change_began_us, slow)["Delete"]:
            await lab.runtime.sleep(SECOND // 10)
        await lab.rule(Cut(), [slow], lab.servers, both_ways=True)
        # Within 8 s the session ends. Then the others claim the partitions of member 0.
        await lab.runtime.sleep(14 * SECOND)
        await lab.heal()
        lab.change_ended_us = lab.runtime.now_us()
        await lab.runtime.sleep(20 * SECOND)

    lab = GroupLab(members=4, partitions=32, late_from=3, config=COMMIT_EVERY_SECOND).run(scenario)

    creators: dict[str, str] = {}  # path of a claim -> session that created it
    deleted_by_another_session = 0
    for row, detail in lab.writes_of("owners"):
        path, session = detail["path"], detail["session"]
        if detail["op"] == "create":
            creators[path] = session
        elif path in creators:  # the write deletes the claim
            creator = creators.pop(path)
            if creator != session and row.time_us > lab.change_ended_us:
                deleted_by_another_session += 1
    assert deleted_by_another_session > 0


def test_kafka_storage_accepts_the_commits_of_a_zombie_during_the_whole_cut() -> None:
    """OffsetCommit goes to the group's offset manager with generation -1 and an empty member id.

    A broker accepts it while the group has no members of the new protocol. So there is no fencing
    (ZK-63), and the zombie's auto-commit goes straight to the broker during the whole cut (ZK-66).
    """
    config = ZooKeeperConsumerConfig(
        auto_commit_interval_ms=1_000, offsets_storage="kafka", dual_commit_enabled=False
    )
    lab = GroupLab(members=4, partitions=16, config=config, process_us=SLOW_WORK_US).run(cut_off)

    (expired,) = lab.of(TraceKind.ZOOKEEPER_SESSION_EXPIRED, after_us=lab.change_began_us)
    commits_of_zombie = [
        row
        for row in lab.of(
            TraceKind.ZOOKEEPER_OFFSET_COMMITTED,
            after_us=expired.time_us + SECOND,
            node=member_name(0),
        )
        if row.time_us < lab.change_ended_us
    ]
    # The session ends up to 8 s after the beginning of the cut, and the rows count from 1 s later
    # on. From then to the end of the cut there are at least 20 s - (8 s + 1 s) = 11 s. Member 0
    # commits each second, so there are about eleven commits or more.
    assert len(commits_of_zombie) > 8
    assert {detail_of(row)["store"] for row in commits_of_zombie} == {"kafka"}
    assert lab.writes_of("offsets") == []


def test_dual_commit_stores_in_both_and_fetches_the_maximum() -> None:
    """A commit goes to Kafka first, then the znode; fetching takes the maximum of both (ZK-64).

    In this test both stores have the same offsets, so the maximum is not tested. Member 1 joins
    later, and begins at a stored offset.
    """

    async def scenario(lab: GroupLab) -> None:
        await lab.runtime.sleep(5 * SECOND)
        await lab.runtime.start_node(member_name(1))
        await lab.runtime.sleep(5 * SECOND)

    config = ZooKeeperConsumerConfig(auto_commit_interval_ms=1_000, offsets_storage="kafka")
    lab = GroupLab(members=2, partitions=4, late_from=1, config=config).run(scenario)

    commits = [
        (row.partition, row.offset, detail_of(row)["store"])
        for row in lab.of(TraceKind.ZOOKEEPER_OFFSET_COMMITTED)
    ]
    for partition, offset, store in commits:
        if store == "zookeeper":
            assert (partition, offset, "kafka") in commits
    assert {store for _partition, _offset, store in commits} == {"kafka", "zookeeper"}

    first_positions = [
        row.offset
        for row in lab.of(TraceKind.POSITION_RESET, node=member_name(1))
        if row.cause == "committed"
    ]
    # Member 1 gets half of the four partitions, and begins each one at the committed offset.
    assert len(first_positions) >= 2
    assert min(offset for offset in first_positions if offset is not None) > 0


def test_idle_partition_is_not_committed_again() -> None:
    """Each consumer remembers the last value it wrote or read, and skips equal ones (ZK-61)."""

    async def scenario(lab: GroupLab) -> None:
        # In 10 s there are ten commit intervals, but the topic gets only 10 * 0.5 = 5 records.
        await lab.runtime.sleep(10 * SECOND)

    lab = GroupLab(members=2, partitions=4, config=COMMIT_EVERY_SECOND, records_per_second=0.5).run(
        scenario
    )

    commits = [(row.partition, row.offset) for row in lab.of(TraceKind.ZOOKEEPER_OFFSET_COMMITTED)]
    assert len(commits) == len(set(commits))  # none of them occurs twice


def test_rebalance_commits_nothing_without_auto_commit() -> None:
    """With `auto.commit.enable=false` R3 does not commit (ZK-62)."""

    async def scenario(lab: GroupLab) -> None:
        await lab.runtime.start_node(member_name(1))
        await lab.runtime.sleep(5 * SECOND)
        await lab.settled(lab.names)

    config = ZooKeeperConsumerConfig(auto_commit_enable=False)
    lab = GroupLab(members=2, partitions=4, late_from=1, config=config).run(scenario)

    assert lab.of(TraceKind.ZOOKEEPER_OFFSET_COMMITTED) == []


@pytest.mark.slow
@pytest.mark.parametrize("lag_us", [0, LAG_US])
def test_lagging_follower_gives_different_views_while_it_lags(lag_us: int) -> None:
    """A computes with C members, B with C + 1: overlapping and missing claims (ZK-71).

    In this rule C is the number of members before a join, here 5. A and B are members that are
    connected to different ZooKeeper servers. The server of A lags behind the server of B, so A does
    not see the new member yet. After the lag all agree again without any outside help (ZK-95).

    Here both followers get each message of the leader LAG_US later, or without a delay if `lag_us`
    is 0.
    """

    async def scenario(lab: GroupLab) -> None:
        status = (await lab.runtime.status()).zookeepers
        leader = next(name for name, server in status.items() if server.state == "LEADING")
        followers = [name for name in lab.servers if name != leader]
        if lag_us:
            await lab.rule(Slow(delay_us=lag_us), [leader], followers)
        lab.change_began_us = lab.runtime.now_us()
        await lab.runtime.start_node(member_name(5))
        await lab.runtime.sleep(20 * SECOND)

    # Member 5 joins. The disagreement begins when the first old member has read a list with member
    # 5, and ends when the last old member has read such a list.
    disagreements_us = []
    for seed in range(2):
        lab = GroupLab(members=6, partitions=16, late_from=5, servers=3, seed=seed).run(scenario)
        # Member -> the time at which it first read a list of six members.
        learned_at_us: dict[str, int] = {}
        for row in lab.of(TraceKind.ZOOKEEPER_VIEW, after_us=lab.change_began_us):
            if len(detail_of(row)["members"]) == 6:
                learned_at_us.setdefault(row.node, row.time_us)
        assert sorted(learned_at_us) == list(lab.names)

        old_members_us = [learned_at_us[name] for name in lab.names[:5]]
        disagreements_us.append(max(old_members_us) - min(old_members_us))
    longest_us = max(disagreements_us)
    if lag_us:
        assert longest_us >= lag_us
    else:
        assert longest_us < LAG_US  # without the lag the lists differ for a shorter time


@pytest.mark.slow
def test_member_that_gave_up_owns_nothing_until_an_unrelated_event() -> None:
    """Member 0 releases its claims slowly, and member 1 gives up.

    The rules say about this:

    - When its release takes longer than 4 back-offs, others give up (ZK-94).
    - All whose new share overlaps its old share fail, and after 4 tries give up (ZK-76).
    - Such a consumer stays registered, owns nothing, and waits for the next unrelated notification
      (ZK-38).
    """
    not_settled: list[str] = []

    async def scenario(lab: GroupLab) -> None:
        lab.change_began_us = lab.runtime.now_us()
        # The start of member 2 causes a rebalance, in which member 0 deletes its claims. For 3 s
        # the answers to these deletes are held back. Afterwards each answer comes 1 s late. So
        # member 0 still deletes claims after the last of the four tries of the others.
        await lab.rule(Clog(), lab.servers, [member_name(0)], apis=("Delete",))
        await lab.runtime.start_node(member_name(2))
        await lab.runtime.sleep(3 * SECOND)

        await lab.rule(Slow(delay_us=SECOND), lab.servers, [member_name(0)])
        await lab.runtime.sleep(15 * SECOND)
        await lab.heal()
        await lab.runtime.sleep(30 * SECOND)

        status = await lab.status()
        not_settled.extend(name for name, member in status.items() if member.state != "STABLE")
        # The unrelated event is the end of member 2. When member 1 is notified of it, member 1
        # rebalances, and gets partitions.
        await lab.runtime.shut_down(member_name(2))
        await lab.runtime.sleep(10 * SECOND)
        await lab.settled(lab.names[:2])

    lab = GroupLab(members=3, partitions=32, late_from=2).run(scenario)

    gave_up = [row.node for row in lab.of(TraceKind.ZOOKEEPER_GAVE_UP)]
    assert not_settled == [member_name(1)]
    assert member_name(1) in gave_up
