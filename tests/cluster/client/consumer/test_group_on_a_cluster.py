"""Groups of real consumers on real brokers in virtual time: a killed coordinator, a killed member.

The bounds in these tests come from measurements of a real Kafka cluster
(docs/kafka/MEASURED_FAILOVER.md). Like that cluster, ours has three brokers and the topic `t`, with
12 partitions of three replicas. The controller fences a broker (counts it as dead) when it has had
no heartbeat for 9 s.

There are two runs, `coordinator_kill` and `member_crash`. Each test looks at one of these runs.
"BEHAVIOUR 3.6" is a section of docs/kafka/BEHAVIOUR.md, and "MEASURED_FAILOVER kill" is a section
of docs/kafka/MEASURED_FAILOVER.md.
"""

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

import pytest

from cluster.client.admin.orders import fetch_committed_offsets
from cluster.runtime import ClusterStatus, MemberStatus
from cluster.spec import ClusterSpec
from cluster.virtual.runtime import VirtualRuntime
from protocol.ids import CONSUMER_OFFSETS, Offset, TopicPartition, broker_name
from protocol.trace import TraceRow
from tests.support.worlds.measured_cluster import MS, SECOND, cluster


@dataclass
class Story:
    """The results of a run in which one node was killed."""

    rows: list[TraceRow] = field(default_factory=list)
    """The trace of the run, oldest row first."""
    before: ClusterStatus = field(default_factory=ClusterStatus)
    """The status of the cluster just before the kill."""
    after: ClusterStatus = field(default_factory=ClusterStatus)
    """The status at the end of the run."""
    committed: dict[TopicPartition, Offset] = field(default_factory=dict)
    """The committed offsets of the group at the end of the run."""
    killed_at_us: int = 0

    def since_kill(self, kind: str) -> list[TraceRow]:
        """Return the rows of a kind since the kill."""
        return [row for row in self.rows if row.kind == kind and row.time_us >= self.killed_at_us]


ALL_PARTITIONS = [TopicPartition("t", index) for index in range(12)]


def partitions_of(members: Iterable[MemberStatus]) -> list[TopicPartition]:
    """Return the sorted partitions of these members. A partition with two owners is there twice."""
    return sorted(partition for member in members for partition in member.assigned)


def play(spec: ClusterSpec, *, crash_coordinator: bool, after_us: int) -> Story:
    """Run a cluster, kill a node when the group is stable, and return the story.

    The run ends `after_us` after the kill.

    With `crash_coordinator` the killed node is the coordinator. Without `crash_coordinator` it is
    the member that leads the group in generation 1.
    """
    story = Story()
    # No test here reads rows about messages, and a run without these rows is faster.
    runtime = VirtualRuntime(
        spec, seed=7, run_id="test", observers=(story.rows.append,), trace_messages=False
    )

    async def main() -> None:
        await runtime.start()
        await runtime.sleep(15 * SECOND)  # the group becomes stable
        story.before = await runtime.status()
        # A group has one entry for each broker that has loaded the group: here one broker.
        (group,) = story.before.groups["g"]
        if crash_coordinator:
            victim = broker_name(group.coordinator)
        else:
            generation = next(row for row in story.rows if row.kind == "generation_started")
            leader = json.loads(generation.detail or "")["leader"]
            victim = next(
                name for name, member in story.before.members.items() if member.member_id == leader
            )

        story.killed_at_us = runtime.now_us()
        await runtime.crash(victim)
        await runtime.sleep(after_us)
        story.after = await runtime.status()
        story.committed = await runtime.ask_as_admin(fetch_committed_offsets, "g")
        await runtime.stop()

    runtime.run(main())
    assert runtime.failures() == ()
    return story


@pytest.fixture(scope="module")
def coordinator_kill() -> Story:
    """Kill the coordinator of a group of 12 members."""
    return play(cluster(members=12), crash_coordinator=True, after_us=15 * SECOND)


@pytest.fixture(scope="module")
def member_crash() -> Story:
    """Kill the leading member of a group of 4 members, whose sessions last 10 s."""
    spec = cluster(members=4, session_timeout_ms=10_000)
    return play(spec, crash_coordinator=False, after_us=25 * SECOND)


def test_group_of_twelve_becomes_stable_in_one_generation(coordinator_kill: Story) -> None:
    """The coordinator delays the first rebalance of a group so that all members can join it.

    So one generation is enough. Each of the 12 members gets one of the 12 partitions.
    """
    # The status has one entry of a group for each broker that has loaded the group: here one.
    (group,) = coordinator_kill.before.groups["g"]
    assert group.state == "Stable"
    assert group.generation == 1
    assert len(group.members) == 12
    members = coordinator_kill.before.members.values()
    assert {member.state for member in members} == {"STABLE"}
    assert partitions_of(members) == ALL_PARTITIONS
    assert all(member.records_consumed > 0 for member in members)
    assert all(member.commits_acknowledged > 10 for member in members)


def test_every_member_notices_the_killed_coordinator_within_tens_of_ms(
    coordinator_kill: Story,
) -> None:
    """A kill closes the connections of the coordinator, so members notice without a timeout.

    Half of the real members noticed the kill within 27 ms, and all within 58 ms (MEASURED_FAILOVER
    kill).
    """
    noticed_after_us: dict[str, int] = {}  # member -> the time from the kill to its first notice
    for row in coordinator_kill.since_kill("coordinator_unknown"):
        noticed_after_us.setdefault(row.node, row.time_us - coordinator_kill.killed_at_us)
    assert len(noticed_after_us) == 12
    assert max(noticed_after_us.values()) < 60 * MS


def test_killed_coordinator_is_named_until_it_is_fenced(coordinator_kill: Story) -> None:
    """A member asks any broker for its coordinator, and the answer still names the dead broker.

    The other brokers learn of the death only when the controller fences the dead broker, 7 to 9 s
    after the kill. Until then a member asks again about once a second.
    """
    (fenced,) = coordinator_kill.since_kill("broker_fenced")
    found_before_fencing = [
        row
        for row in coordinator_kill.since_kill("coordinator_found")
        if row.time_us < fenced.time_us
    ]
    assert {row.peer for row in found_before_fencing} == {fenced.peer}  # the dead broker
    lookups_by_member = Counter(row.node for row in found_before_fencing)
    assert len(lookups_by_member) == 12
    # About one lookup a second for at least 7 s, with a margin.
    assert min(lookups_by_member.values()) >= 5


def test_every_member_commits_again_soon_after_the_load(coordinator_kill: Story) -> None:
    """A broker that has loaded the group is the new coordinator, and members commit there.

    Half of the real members committed within 124 ms after the load, and all within 251 ms
    (MEASURED_FAILOVER kill). The bound here is longer, 1.5 s, because a member may have to wait for
    its backoff first.
    """
    (group,) = coordinator_kill.after.groups["g"]
    loaded = next(
        row
        for row in coordinator_kill.since_kill("load_completed")
        if row.partition == f"{CONSUMER_OFFSETS}-{group.offsets_partition}"
    )
    committed_after_us: dict[str, int] = {}  # member -> the time from the load to its first commit
    for row in coordinator_kill.since_kill("offsets_committed"):
        if row.time_us >= loaded.time_us:
            committed_after_us.setdefault(row.node, row.time_us - loaded.time_us)
            assert row.peer == loaded.node  # `peer` is the broker that stored the commit
    assert len(committed_after_us) == 12
    assert max(committed_after_us.values()) < 1_500 * MS


def test_killed_coordinator_causes_no_rebalance(coordinator_kill: Story) -> None:
    """The members keep their ids, their generation and their partitions."""
    for name, before in coordinator_kill.before.members.items():
        after = coordinator_kill.after.members[name]
        assert after.state == "STABLE"
        assert after.member_id == before.member_id
        assert after.generation == before.generation
        assert after.assigned == before.assigned
    # A row `member_state` is a change of a member's state, such as from STABLE to another state.
    assert coordinator_kill.since_kill("member_state") == []
    assert coordinator_kill.since_kill("partitions_revoked") == []
    assert coordinator_kill.since_kill("partitions_lost") == []


def test_no_acknowledged_commit_is_lost_with_the_coordinator(coordinator_kill: Story) -> None:
    """At the end no committed offset is lower than the last commit that was acknowledged."""
    acknowledged: dict[str, int] = {}
    for row in coordinator_kill.rows:
        if row.kind == "offsets_committed" and row.partition is not None:
            acknowledged[row.partition] = max(acknowledged.get(row.partition, 0), row.offset or 0)
    assert len(acknowledged) == 12
    for partition, offset in coordinator_kill.committed.items():
        assert offset >= acknowledged[str(partition)]


def test_members_continue_processing_without_a_coordinator(coordinator_kill: Story) -> None:
    """Members go on reading and processing although they cannot commit.

    The partitions that the dead broker led get new leaders. No record is read twice or left out.
    Members still process records 10 s after the kill.
    """
    consumed = [row for row in coordinator_kill.rows if row.kind == "records_consumed"]
    next_offset: dict[str | None, int] = {}
    for row in consumed:
        assert row.offset == next_offset.get(row.partition, 0)  # no gap, and no duplicate
        count = json.loads(row.detail or "")["count"]
        next_offset[row.partition] = (row.offset or 0) + count
    assert len(next_offset) == 12
    assert any(row.time_us > coordinator_kill.killed_at_us + 10 * SECOND for row in consumed)


@pytest.mark.slow
def test_crash_of_the_leading_member_causes_one_rebalance(member_crash: Story) -> None:
    """The dead member is removed when its session ends. Then the other members rebalance.

    The next generation begins at most 10 s + 3 s + 1 s = 14 s after the crash (BEHAVIOUR 3.6):

    - A member sends a heartbeat every 3 s, so the dead member's last heartbeat is up to 3 s old at
      the crash. Its session of 10 s therefore ends 7 to 10 s after the crash.
    - The other members learn of the rebalance from the answers to their next heartbeats, within
      3 s.
    - One second is enough for the members to join.
    """
    (generation,) = member_crash.since_kill("generation_started")
    waited_us = generation.time_us - member_crash.killed_at_us
    assert 7 * SECOND <= waited_us <= 14 * SECOND
    members = member_crash.after.members.values()
    assert {(member.state, member.generation) for member in members} == {("STABLE", 2)}
    assert partitions_of(members) == ALL_PARTITIONS


def test_survivors_of_a_rebalance_keep_their_ids_and_revoke_first(member_crash: Story) -> None:
    """In the eager protocol each member gives up all its partitions before it joins again.

    So a member revokes its partitions in generation 1, and gets new partitions in generation 2. If
    a member had to give up partitions without a commit, the trace would have `partitions_lost`.
    """
    revoked = member_crash.since_kill("partitions_revoked")
    assigned = member_crash.since_kill("partitions_assigned")
    assert {row.generation for row in revoked} == {1}
    assert {row.generation for row in assigned} == {2}
    ids_at_revocation = sorted(row.member or "" for row in revoked)
    ids_at_assignment = sorted(row.member or "" for row in assigned)
    assert ids_at_revocation == ids_at_assignment
    assert member_crash.since_kill("partitions_lost") == []


def test_positions_after_the_rejoin_are_the_committed_offsets(member_crash: Story) -> None:
    """Each partition continues at its last acknowledged commit, so no record is skipped.

    Survivors commit before they revoke, so their partitions continue exactly after the last
    processed record. In the dead member's partitions, records after its last commit may be
    processed twice.
    """
    # A row `position_reset` says where a member begins to read a partition. Its cause `committed`
    # says that the member begins at the committed offset.
    resets = member_crash.since_kill("position_reset")
    assert {row.cause for row in resets} == {"committed"}
    assert len(resets) == 12

    (dead_name,) = set(member_crash.before.members) - set(member_crash.after.members)
    dead_member = member_crash.before.members[dead_name]
    owned_by_the_dead = {str(partition) for partition in dead_member.assigned}

    # The rows are in the order of time. So when the loop comes to a reset, both dicts have the
    # offsets from just before the reset.
    committed: dict[str | None, int] = {}  # partition -> the last committed offset
    processed: dict[str | None, int] = {}  # partition -> the offset after the last processed record
    for row in member_crash.rows:
        if row.kind == "offsets_committed":
            committed[row.partition] = row.offset or 0
        elif row.kind == "records_consumed":
            count = json.loads(row.detail or "")["count"]
            processed[row.partition] = (row.offset or 0) + count
        elif row in resets:
            assert row.offset == committed[row.partition]
            if row.partition not in owned_by_the_dead:
                assert row.offset == processed[row.partition]
