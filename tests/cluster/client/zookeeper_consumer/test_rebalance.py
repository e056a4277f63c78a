"""Rebalances of a group of consumers on ZooKeeper: their cost, conflicts, and failures.

Before Kafka had coordinators, the consumers of a group coordinated themselves through ZooKeeper,
where each fact is a small file, a znode. The members of the group are znodes, and a member owns a
partition by creating a znode for it. These znodes are ephemeral: they vanish when the session of
their creator ends. A member sets watches, and ZooKeeper notifies it once if a watched znode
changes.

If the members change, each member rebalances. It makes an attempt to own its share of the
partitions, in steps which the rules call R3 to R9:

- R3: stop the fetchers; R5: release all partitions;
- R6: read the view, which is all members and partitions;
- R8: read the offsets of its share; R9: claim its share, by creating one znode per partition.

If another member still holds one of these partitions, the claim is a conflict and the attempt has
failed. Then the member sleeps for 2 s (the back-off), and makes another attempt.

Docstrings quote rules of docs/kafka/ZOOKEEPER_CONSUMER.md; ids such as ZK-90 name the rules.
Section 13 of that page has formulas for the number of requests to ZooKeeper, in which C, T, B and P
are the numbers of consumers, topics, brokers and partitions.

Each test runs a scenario in a GroupLab, a cluster with a group of such members in virtual time:

- With `GroupLab(..., late_from=n)` the members from `n` on are started by the scenario. The others
  are settled when the scenario begins.
- `lab.change_began_us` and `lab.change_ended_us` are the times between which the scenario changed
  the group. The tests look only at what happened after the beginning.
- `lab.of(kind)` returns rows of the trace, and `detail_of` the detail of a row. `lab.reads` and
  `lab.requests` count requests to ZooKeeper, and `lab.attempts` returns the attempts that ended.
- `lab.settled(names)` waits until each of these members owns its share.
- `lab.rule(effect, sources, destinations)` disturbs the network: Slow delays messages, and Clog
  holds them back until `lab.heal()`.
"""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from cluster.client.zookeeper_consumer.node import ZooKeeperConsumerNode
from cluster.links.rules import Clog, Slow
from protocol.config import ZooKeeperConsumerConfig
from protocol.trace import TraceKind
from tests.support.harness.zookeeper_group import (
    GROUP,
    SECOND,
    GroupLab,
    detail_of,
    member_name,
)

Scenario = Callable[[GroupLab], Awaitable[None]]
FIDELITY = Path(__file__).parents[4] / "docs" / "FIDELITY.md"
LARGE = 17
"""The test of a join is marked as slow for groups of this size or more."""


def newcomer_that_waits(members: int) -> Scenario:
    """Return a scenario in which the last member joins, without a conflict.

    The newcomer's claims are slowed down, so that they come after the releases of the others.
    """

    async def scenario(lab: GroupLab) -> None:
        newcomer = member_name(members - 1)
        lab.change_began_us = lab.runtime.now_us()
        await lab.rule(Slow(delay_us=SECOND // 4), [newcomer], lab.servers, apis=("Create",))
        await lab.runtime.start_node(newcomer)
        # In this second the others learn of the newcomer. Before that they are STABLE with their
        # old shares, so `settled` would return too early.
        await lab.runtime.sleep(SECOND)
        await lab.settled(lab.names)
        # A needless read or notification would come in this second.
        await lab.runtime.sleep(SECOND)

    return scenario


def rows_of_fidelity() -> list[Any]:
    """Return the rows of a table in docs/FIDELITY.md, which shows what a join costs.

    A row has the columns C, T, B, P, reads and notifications.
    """
    text = FIDELITY.read_text(encoding="utf-8")
    after_heading = text.split("| C | T | B | P | reads | notifications |\n")[1]
    table = after_heading.split("\n\n")[0]
    params = []
    for line in table.splitlines()[1:]:  # the first line is the ruler below the heading: |---|---|
        cells = [int(cell.replace(",", "")) for cell in line.strip("| ").split("|")]
        marks = [pytest.mark.slow] if cells[0] >= LARGE else []
        params.append(pytest.param(*cells, marks=marks, id="-".join(map(str, cells[:4]))))
    return params


@pytest.mark.parametrize(
    ("members", "topics", "brokers", "partitions", "reads", "notifications"), rows_of_fidelity()
)
def test_reads_of_an_undisturbed_join_equal_the_formula(
    members: int, topics: int, brokers: int, partitions: int, reads: int, notifications: int
) -> None:
    """Reads of an undisturbed join equal the formula of section 13 exactly (ZK-90).

    The formula: C(C + T + 3B + 9) + P reads, and 1 + T for the newcomer's own start. Each member
    without a partition reads 1 + B less, because it need not find leaders. There are C - 1
    notifications: every consumer wakes for every change (ZK-29).

    The test compares three numbers of reads: the one in docs/FIDELITY.md, the one of the formula,
    and the one that the lab has counted.
    """
    lab = GroupLab(
        members=members,
        partitions=partitions // topics,  # this argument counts the partitions of each topic
        late_from=members - 1,
        topics=topics,
        brokers=brokers,
    ).run(newcomer_that_waits(members))

    c, t, b = members, topics, brokers
    views = lab.of(TraceKind.ZOOKEEPER_VIEW, after_us=lab.change_began_us)
    without_partition = sum(not detail_of(row)["partitions"] for row in views)
    assert without_partition == max(0, members - partitions)
    assert reads == c * (c + t + 3 * b + 9) + partitions + 1 + t - without_partition * (1 + b)
    # Each member needed only one attempt.
    assert [attempt["done"] for attempt in lab.attempts(lab.change_began_us)] == [True] * members
    assert lab.reads(lab.change_began_us) == reads
    fired = lab.of(TraceKind.ZOOKEEPER_WATCH_FIRED, after_us=lab.change_began_us)
    assert notifications == members - 1
    assert len(fired) == notifications


@pytest.mark.parametrize("seed", range(3))
def test_newcomer_of_a_small_group_conflicts_and_pays_a_back_off(seed: int) -> None:
    """On a join a conflict is most likely for small C: the newcomer waits for no one (ZK-81).

    The failed attempt adds C + T + 2B + 6 + a reads + 1 per conflict (section 13). Here a is the
    number of claims in the attempt.

    The newcomer does not wait until the other member has released its partitions. So all its claims
    are conflicts, and it sleeps for 2 s before the second attempt.
    """

    async def scenario(lab: GroupLab) -> None:
        lab.change_began_us = lab.runtime.now_us()
        await lab.runtime.start_node(member_name(1))
        await lab.runtime.sleep(SECOND)
        await lab.settled(lab.names)
        lab.change_ended_us = lab.runtime.now_us()
        await lab.runtime.sleep(SECOND)

    lab = GroupLab(members=2, partitions=64, late_from=1, seed=seed).run(scenario)

    # The newcomer claims half of the 64 partitions, and all of them are still held.
    failed = [attempt for attempt in lab.attempts(lab.change_began_us) if not attempt["done"]]
    assert failed == [{"attempt": 0, "conflicts": 32, "done": False}]
    c, t, b, p = 2, 1, 1, 64
    claims = conflicts_of_attempt = 32
    reads_undisturbed = c * (c + t + 3 * b + 9) + p
    reads_of_start = 1 + t
    reads_of_failed_attempt = c + t + 2 * b + 6 + claims + conflicts_of_attempt
    assert lab.reads(lab.change_began_us) == (
        reads_undisturbed + reads_of_start + reads_of_failed_attempt
    )
    # The join takes the sleep of 2 s, and at most half a second for everything else.
    duration_us = lab.change_ended_us - lab.change_began_us
    assert 2 * SECOND <= duration_us <= 2 * SECOND + SECOND // 2
    # The newcomer loses all conflicts. During the sleep the loser's whole share is unowned, not
    # only the disputed one (ZK-49).
    conflicts = lab.of(TraceKind.ZOOKEEPER_CLAIM_CONFLICT, after_us=lab.change_began_us)
    assert {row.node for row in conflicts} == {member_name(1)}


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_failed_attempt_adds_the_reads_of_the_formula(seed: int) -> None:
    """A failed attempt adds C + T + 2B + 6 + a reads + 1 per conflict (section 13).

    Here a is the number of claims in the attempt. Claims without a conflict are undone, by one
    delete each: a consumer that waits for a slow owner deletes its own fresh claims (ZK-49).
    """

    async def scenario(lab: GroupLab) -> None:
        lab.change_began_us = lab.runtime.now_us()
        # The newcomer's share belongs to member 2, which releases it slowly.
        await lab.rule(Slow(delay_us=SECOND // 100), [member_name(2)], lab.servers)
        await lab.runtime.start_node(member_name(3))
        await lab.runtime.sleep(SECOND)
        await lab.settled(lab.names)
        await lab.runtime.sleep(SECOND)

    lab = GroupLab(members=4, partitions=64, late_from=3, seed=seed).run(scenario)

    attempts = lab.attempts(lab.change_began_us)
    failed = [attempt for attempt in attempts if not attempt["done"]]
    c, t, b, p = 4, 1, 1, 64
    share = p // c
    reads_undisturbed = c * (c + t + 3 * b + 9) + p + 1 + t
    reads_of_failed = sum(c + t + 2 * b + 6 + share + attempt["conflicts"] for attempt in failed)
    assert failed != []
    assert len(attempts) == c + len(failed)
    assert lab.reads(lab.change_began_us) == reads_undisturbed + reads_of_failed

    requests = lab.requests(lab.change_began_us)
    # The deletes release each partition once, and undo the claims without a conflict.
    claims_undone = sum(share - attempt["conflicts"] for attempt in failed)
    assert requests["Delete"] == p + claims_undone
    # The creates are the newcomer's registration, the claims that succeeded in the end (one for
    # each partition), and the claims of the failed attempts.
    assert requests["Create"] >= 1 + p + share * len(failed)


@pytest.mark.slow
def test_dead_member_is_noticed_by_all_others_with_one_notification_each() -> None:
    """Nothing happens for 4 to 8 s; then all others get one notification, in one step (ZK-91).

    This is how long it takes until the session of the dead member ends.
    """

    async def scenario(lab: GroupLab) -> None:
        await lab.runtime.sleep(4 * SECOND)
        lab.change_began_us = lab.runtime.now_us()
        await lab.runtime.crash(member_name(3))
        await lab.runtime.sleep(12 * SECOND)  # the session ends within 8 s; the others rebalance
        await lab.settled(lab.names[:3])

    for seed in range(3):
        lab = GroupLab(members=4, partitions=16, seed=seed).run(scenario)
        # The peer of the row is the member that gets the notification.
        fired = lab.of(TraceKind.ZOOKEEPER_WATCH_FIRED, after_us=lab.change_began_us)
        assert sorted(str(row.peer) for row in fired) == list(lab.names[:3])
        assert 4 * SECOND <= fired[0].time_us - lab.change_began_us <= 8 * SECOND
        assert len({row.time_us for row in fired}) == 1  # all at the same time
        started = lab.of(TraceKind.ZOOKEEPER_ATTEMPT_STARTED, after_us=lab.change_began_us)
        assert min(row.time_us for row in started) > fired[0].time_us


def test_all_partitions_are_released_before_the_view_is_read() -> None:
    """Everything is given up in R5 before anything is known of the view, in R6 (ZK-41)."""
    lab = GroupLab(members=4, partitions=16, late_from=3).run(newcomer_that_waits(4))

    for name in lab.names[:3]:
        (view,) = lab.of(TraceKind.ZOOKEEPER_VIEW, after_us=lab.change_began_us, node=name)
        (revoked,) = lab.of(TraceKind.PARTITIONS_REVOKED, after_us=lab.change_began_us, node=name)
        deletes = [
            row
            for row in lab.of(TraceKind.REQUEST_SENT, after_us=lab.change_began_us, node=name)
            if row.api == "Delete"
        ]
        # The three old members had 5 or 6 of the 16 partitions each. They delete all these claims.
        assert len(deletes) == len(detail_of(revoked)["partitions"])
        assert len(deletes) > 4
        assert revoked.time_us < deletes[0].time_us
        assert deletes[-1].time_us < view.time_us
        assert len(detail_of(view)["members"]) == 4


def test_offsets_are_read_before_the_claim() -> None:
    """Offsets are read (R8) before the claim (R9) (ZK-44)."""
    lab = GroupLab(members=2, partitions=8, late_from=1).run(newcomer_that_waits(2))

    # The newcomer reads an offset with GetData, and claims a partition with Create.
    sent = [
        row.api
        for row in lab.of(TraceKind.REQUEST_SENT, after_us=lab.change_began_us, node=member_name(1))
        if row.api in ("GetData", "Create")
    ]
    share = 4  # the newcomer gets half of the 8 partitions
    # Its last four creates are the claims. The requests before them must read the four offsets.
    # `sent` is searched from its end for the last Create.
    after_last_create = len(sent) - sent[::-1].index("Create")
    first_claim = after_last_create - share
    assert sent[first_claim:after_last_create] == ["Create"] * share
    assert sent[first_claim - share : first_claim] == ["GetData"] * share


def test_notifications_during_a_rebalance_cause_one_further_rebalance() -> None:
    """While a rebalance runs, any number of notifications fall into one further one (ZK-30).

    Member 0 is slow. Four other members join, one each second, which is faster than it can
    rebalance.
    """

    async def scenario(lab: GroupLab) -> None:
        lab.change_began_us = lab.runtime.now_us()
        await lab.rule(Slow(delay_us=SECOND // 5), [member_name(0)], lab.servers)
        for index in range(1, 5):
            await lab.runtime.start_node(member_name(index))
            await lab.runtime.sleep(SECOND)
        await lab.heal()
        await lab.settled(lab.names)

    lab = GroupLab(members=5, partitions=8, late_from=1).run(scenario)

    notifications = [
        row
        for row in lab.of(TraceKind.ZOOKEEPER_WATCH_FIRED, after_us=lab.change_began_us)
        if row.peer == member_name(0)
    ]
    rebalances = [
        row
        for row in lab.of(
            TraceKind.ZOOKEEPER_ATTEMPT_STARTED, after_us=lab.change_began_us, node=member_name(0)
        )
        if detail_of(row)["attempt"] == 0  # the first attempt of a rebalance
    ]
    assert 1 < len(rebalances) < 4  # fewer rebalances than joins
    assert len(notifications) >= len(rebalances)


def test_owner_that_never_releases_makes_a_starting_newcomer_give_up() -> None:
    """The exception ends in the caller of createMessageStreams (ZK-38).

    A program starts a consumer by calling `createMessageStreams` of an object, the connector. If
    the call fails, the program gets no streams, but the registration, the watches and the executor
    thread remain until the program closes the connector (ZK-37). A member gives up after four
    attempts: patience is about 4 x (2 s + attempt) (ZK-50).
    """
    gave_up: list[tuple[int, dict[str, Any]]] = []

    async def scenario(lab: GroupLab) -> None:
        lab.change_began_us = lab.runtime.now_us()
        # The owner's deletes never arrive, so it keeps the partitions that the newcomer claims.
        await lab.rule(Clog(), [member_name(0)], lab.servers, apis=("Delete", "SetData"))
        await lab.runtime.start_node(member_name(1))
        # In this time the newcomer makes four attempts. (The pings of the owner are stuck behind
        # its deletes. It opens a new connection, and so keeps its session.)
        await lab.runtime.sleep(11 * SECOND)
        gave_up.extend((row.time_us, detail_of(row)) for row in lab.of(TraceKind.ZOOKEEPER_GAVE_UP))
        await lab.heal()
        await lab.runtime.sleep(10 * SECOND)  # the newcomer starts again, and gets its share
        await lab.settled(lab.names)

    lab = GroupLab(members=2, partitions=8, late_from=1).run(scenario)

    ((at_us, detail),) = gave_up
    assert detail == {"attempts": 4, "during": "starting"}
    # The back-offs take 4 * 2 s, and the attempts less than a second.
    assert 8 * SECOND <= at_us - lab.change_began_us <= 9 * SECOND
    # The program closed its connector and opened another one, so there are two consumer ids.
    consumer_ids = {
        row.member for row in lab.of(TraceKind.ZOOKEEPER_ATTEMPT_STARTED, node=member_name(1))
    }
    assert len(consumer_ids) == 2


def test_two_strategies_in_one_group_conflict_until_members_give_up() -> None:
    """The strategy is a private setting: two in one group conflict for ever (ZK-53).

    The result: endless conflicts, ConsumerRebalanceFailedException, until configured away (ZK-75).
    In a running member the exception is only logged, and the member owns nothing (ZK-38).
    Here member 0 uses range, and member 1 roundrobin.
    """

    async def scenario(lab: GroupLab) -> None:
        await lab.runtime.start_node(member_name(1))
        # In this time a member makes several rounds of four attempts, of about 2 s each.
        await lab.runtime.sleep(30 * SECOND)

    roundrobin = ZooKeeperConsumerConfig(partition_assignment_strategy="roundrobin")
    lab = GroupLab(members=2, partitions=8, late_from=1, configs={1: roundrobin}).run(scenario)

    # For each member that gave up: what it was doing, "starting" or rebalancing.
    during = [detail_of(row)["during"] for row in lab.of(TraceKind.ZOOKEEPER_GAVE_UP)]
    assert during.count("starting") >= 1
    assert len(lab.of(TraceKind.ZOOKEEPER_CLAIM_CONFLICT)) > 8  # more than one for each partition


def test_claim_is_exclusive_during_the_session_of_its_holder() -> None:
    """No invariant "at most one owner znode" is ever broken by claims (ZK-45, ZK-96).

    Four members join and leave within a short time.
    """

    async def scenario(lab: GroupLab) -> None:
        for index in (2, 3):
            await lab.runtime.start_node(member_name(index))
        await lab.runtime.sleep(SECOND // 2)
        await lab.runtime.crash(member_name(0))
        await lab.runtime.sleep(20 * SECOND)  # the session ends within 8 s; the others rebalance
        await lab.settled(lab.names[1:])

    lab = GroupLab(members=4, partitions=16, late_from=2).run(scenario)

    # Go through all claims and releases. The key is the path of a claim, such as
    # /consumers/g/owners/t0/3, and the value is the consumer id of its owner.
    owners: dict[str, str] = {}
    for _row, detail in lab.writes_of("owners"):
        path = detail["path"]
        if path.count("/") < 5:
            continue  # /consumers/g/owners/t0 is only the parent of a topic's claims
        if detail["op"] == "create":
            # No other member may own the partition. Only the claims of the crashed member are still
            # in `owners`: these claims ended with its session, without a delete.
            assert path not in owners or member_name(0) in owners[path]
            owners[path] = detail["data"]
        else:
            del owners[path]
    assert len(owners) <= 16
    assert all(consumer_id.startswith(f"{GROUP}_") for consumer_id in owners.values())


def test_shutdown_commits_and_removes_all_ephemerals_in_one_step() -> None:
    """A shutdown stops the fetchers, commits, and closes the session.

    All ephemerals vanish in one step, so the others are notified at once (ZK-59).
    """

    async def scenario(lab: GroupLab) -> None:
        lab.change_began_us = lab.runtime.now_us()
        await lab.runtime.shut_down(member_name(1))
        await lab.runtime.sleep(5 * SECOND)
        await lab.settled(lab.names[:1])

    lab = GroupLab(members=2, partitions=8).run(scenario)

    commits = lab.of(
        TraceKind.ZOOKEEPER_OFFSET_COMMITTED, after_us=lab.change_began_us, node=member_name(1)
    )
    fired = lab.of(TraceKind.ZOOKEEPER_WATCH_FIRED, after_us=lab.change_began_us)
    assert len(commits) == 4  # member 1 had four of the partitions
    # The other member is notified once, after the commits and soon after the shutdown began.
    assert [row.peer for row in fired if row.peer != member_name(1)] == [member_name(0)]
    assert commits[-1].time_us < fired[0].time_us < lab.change_began_us + SECOND // 2
    closing = [
        row
        for row in lab.of(TraceKind.ZOOKEEPER_TXN_APPLIED, after_us=lab.change_began_us)
        if detail_of(row)["op"] == "closeSession"
    ]
    assert len(closing) == 1


@pytest.mark.slow
def test_member_that_vanishes_between_two_reads_fails_the_attempt_of_another() -> None:
    """R6 is not a snapshot: one read follows the other (ZK-42).

    A member that vanishes between `getChildren` and its `getData` raises NoNode, which costs one
    back-off (ZK-72: R6 not a snapshot, NoNode exception, one back-off).

    Member 2 reads the view slowly: first the list of members, and then each of them. Member 1 is
    shut down meanwhile. Each of twelve runs does this at another time, and at least one must hit
    the moment between the two reads.
    """
    causes: list[str | None] = []
    for seed in range(12):

        async def scenario(lab: GroupLab, seed: int = seed) -> None:
            await lab.rule(Slow(delay_us=SECOND // 20), [member_name(2)], lab.servers)
            await lab.runtime.start_node(member_name(2))
            await lab.runtime.sleep(SECOND // 2 + seed * SECOND // 20)
            await lab.runtime.shut_down(member_name(1))
            await lab.runtime.sleep(10 * SECOND)

        lab = GroupLab(members=3, partitions=4, late_from=2, seed=seed).run(scenario)
        ended = lab.of(TraceKind.ZOOKEEPER_ATTEMPT_ENDED)
        causes += [row.cause_text for row in ended if row.cause_text is not None]
    assert any("NoNode" in str(cause) for cause in causes)


def test_members_without_a_partition_are_settled() -> None:
    """An assignment of nothing (C > P) is a success (ZK-47).

    Three members share two partitions.
    """

    async def scenario(lab: GroupLab) -> None:
        status = await lab.status()
        assert sorted(len(member.assigned) for member in status.values()) == [0, 1, 1]

    # `run` begins the scenario only when each member is settled.
    GroupLab(members=3, partitions=2).run(scenario)


def test_members_in_conflict_sleep_the_same_time() -> None:
    """No randomness in the back-off: consumers that collided sleep the same 2000 ms (ZK-39)."""

    async def scenario(lab: GroupLab) -> None:
        await lab.runtime.start_node(member_name(1))
        await lab.runtime.sleep(15 * SECOND)  # enough for four attempts, of about 2 s each

    # With two strategies in one group, its members conflict again and again.
    roundrobin = ZooKeeperConsumerConfig(partition_assignment_strategy="roundrobin")

    pauses_us: set[int] = set()
    for seed in range(2):
        group_lab = GroupLab(
            members=2, partitions=8, late_from=1, configs={1: roundrobin}, seed=seed
        )
        lab = group_lab.run(scenario)
        for name in lab.names:
            # A pause is the time from the end of an attempt to the next one of the same rebalance.
            # The attempts of a rebalance are numbered from 0, so attempt 0 ends no pause.
            ended_us = 0
            for row in lab.rows:
                if row.node != name:
                    continue
                if row.kind == TraceKind.ZOOKEEPER_ATTEMPT_ENDED:
                    ended_us = row.time_us
                elif (
                    row.kind == TraceKind.ZOOKEEPER_ATTEMPT_STARTED
                    and detail_of(row)["attempt"] > 0
                ):
                    pauses_us.add(row.time_us - ended_us)
    assert pauses_us == {2 * SECOND}


def test_member_may_finish_before_another_has_begun() -> None:
    """There is no barrier: a consumer may finish while another has not begun (ZK-43).

    The child list used for the assignment is that of R6; nothing later re-checks it.
    """

    async def scenario(lab: GroupLab) -> None:
        lab.change_began_us = lab.runtime.now_us()
        # Nothing from ZooKeeper reaches member 1, so it does not learn that member 2 has died.
        await lab.rule(Clog(), lab.servers, [member_name(1)])
        await lab.runtime.crash(member_name(2))
        await lab.runtime.sleep(9 * SECOND)  # the session of member 2 ends within 8 s

    lab = GroupLab(members=3, partitions=9).run(scenario)

    began = [
        row
        for row in lab.of(TraceKind.ZOOKEEPER_ATTEMPT_STARTED, after_us=lab.change_began_us)
        if row.node == member_name(1)
    ]
    views = lab.of(TraceKind.ZOOKEEPER_VIEW, after_us=lab.change_began_us, node=member_name(0))
    assert began == []
    assert len(views) >= 1


def test_each_member_claims_in_another_order() -> None:
    """Order of R9 inside one consumer is that of a hash map, not of partition numbers (ZK-48).

    Two consumers do not claim in the same order.
    """

    async def scenario(lab: GroupLab) -> None:
        lab.change_began_us = lab.runtime.now_us()
        await lab.runtime.shut_down(member_name(1))
        await lab.runtime.sleep(3 * SECOND)
        await lab.settled(lab.names[:1])
        await lab.runtime.start_node(member_name(2))
        await lab.runtime.sleep(SECOND)
        await lab.runtime.shut_down(member_name(0))
        await lab.runtime.sleep(5 * SECOND)

    lab = GroupLab(members=3, partitions=16, late_from=2).run(scenario)

    # Consumer id -> the numbers of its partitions, in the order in which it first claimed them.
    claimed_by: dict[str, list[int]] = {}
    for _row, detail in lab.writes_of("owners", lab.change_began_us):
        owner = detail.get("data")  # only a create with data is a claim
        if detail["op"] == "create" and owner:
            number = int(detail["path"].rpartition("/")[2])
            claimed = claimed_by.setdefault(owner, [])
            if number not in claimed:
                claimed.append(number)
    # Each of the members 0 and 2 owns all partitions at some time.
    in_order = list(range(16))
    orders_of_all = [claimed for claimed in claimed_by.values() if sorted(claimed) == in_order]
    assert len(orders_of_all) == 2
    assert orders_of_all[0] != orders_of_all[1]
    assert in_order not in orders_of_all


def test_automatic_commit_does_not_wait_for_a_rebalance() -> None:
    """`rebalanceLock` serialises rebalances and shutdown; auto-commit does not take it (ZK-32).

    A member has a registry of the partitions that it fetches and commits. The registry is replaced
    only by a successful attempt and emptied by the release (ZK-33). So auto-commit goes on with the
    partitions in the registry until the release is complete. Here the release hangs for 4 s.
    """
    # The clog that lets the release hang would also hold back commits to ZooKeeper. So the commits
    # go to Kafka.
    config = ZooKeeperConsumerConfig(
        auto_commit_interval_ms=1_000, offsets_storage="kafka", dual_commit_enabled=False
    )

    async def scenario(lab: GroupLab) -> None:
        lab.change_began_us = lab.runtime.now_us()
        await lab.rule(Clog(), [member_name(0)], lab.servers, apis=("Delete",))
        await lab.runtime.start_node(member_name(1))
        await lab.runtime.sleep(4 * SECOND)
        lab.change_ended_us = lab.runtime.now_us()
        node = lab.nodes[member_name(0)]
        assert isinstance(node, ZooKeeperConsumerNode)
        assert node.connector is not None
        registry_sizes.append(len(node.connector.rebalancer.registry))
        await lab.heal()
        await lab.runtime.sleep(5 * SECOND)

    registry_sizes: list[int] = []
    lab = GroupLab(members=2, partitions=4, late_from=1, config=config).run(scenario)

    (started, *_) = lab.of(
        TraceKind.ZOOKEEPER_ATTEMPT_STARTED, after_us=lab.change_began_us, node=member_name(0)
    )
    times_of_commits_us = {
        row.time_us
        for row in lab.of(
            TraceKind.ZOOKEEPER_OFFSET_COMMITTED, after_us=started.time_us, node=member_name(0)
        )
        if started.time_us + SECOND < row.time_us < lab.change_ended_us
    }
    assert registry_sizes == [4]  # all partitions: nothing has been released
    assert len(times_of_commits_us) >= 2


def test_member_that_is_notified_late_still_holds_partitions_that_others_claim() -> None:
    """Members notified early claim partitions that late ones still hold: conflicts (ZK-70).

    Here member 3 joins, and member 0 is notified a second later than the others.
    """

    async def scenario(lab: GroupLab) -> None:
        lab.change_began_us = lab.runtime.now_us()
        await lab.rule(Slow(delay_us=SECOND), lab.servers, [member_name(0)])
        await lab.runtime.start_node(member_name(3))
        await lab.runtime.sleep(2 * SECOND)
        await lab.heal()
        await lab.runtime.sleep(10 * SECOND)
        await lab.settled(lab.names)

    lab = GroupLab(members=4, partitions=16, late_from=3).run(scenario)

    first_attempt_of_late_member = lab.of(
        TraceKind.ZOOKEEPER_ATTEMPT_STARTED, after_us=lab.change_began_us, node=member_name(0)
    )[0]
    conflicts = lab.of(TraceKind.ZOOKEEPER_CLAIM_CONFLICT, after_us=lab.change_began_us)
    assert conflicts != []
    assert conflicts[0].time_us < first_attempt_of_late_member.time_us
    assert member_name(0) in str(detail_of(conflicts[0])["owner"])


def test_sync_time_is_only_the_default_of_the_back_off() -> None:
    """`zookeeper.sync.time.ms` sends nothing to ZooKeeper (ZK-07).

    The old consumer never calls `sync`; its only use is as the default of `rebalance.backoff.ms`.
    """
    assert ZooKeeperConsumerConfig(zookeeper_sync_time_ms=500).backoff_ms == 500
    with_own_backoff = ZooKeeperConsumerConfig(zookeeper_sync_time_ms=500, rebalance_backoff_ms=900)
    assert with_own_backoff.backoff_ms == 900

    async def scenario(lab: GroupLab) -> None:
        await lab.runtime.start_node(member_name(1))
        await lab.runtime.sleep(5 * SECOND)

    # `sync` brings a server that lags behind the others up to date, so there are three servers
    # here. The members must send no `sync`.
    lab = GroupLab(members=2, partitions=4, late_from=1, servers=3).run(scenario)
    sent_by_members = {
        str(row.api)
        for row in lab.of(TraceKind.REQUEST_SENT)
        if row.peer in lab.servers and row.node in lab.names
    }
    assert sent_by_members == {
        "Connect",
        "Ping",
        "Exists",
        "GetData",
        "GetChildren",
        "Create",
        "Delete",
        "SetData",
    }
