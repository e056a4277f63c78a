"""Registration of a consumer on ZooKeeper: its id, its znode, its watches, and who is notified.

Before Kafka had coordinators, the consumers of a group coordinated themselves through ZooKeeper,
where each fact is a small file, a znode. A consumer registers by creating a znode for its consumer
id, below `ids`. In a rebalance, whose steps the rules call R0 to R11, it claims each of its
partitions by creating a znode below `owners`. All these znodes are ephemeral: ZooKeeper removes
them when their creator's session ends, 6 s after the creator's last ping. A consumer sets watches.
When a watched znode changes, ZooKeeper notifies the consumer once.

Docstrings quote rules of docs/kafka/ZOOKEEPER_CONSUMER.md; ids such as ZK-25 name the rules. In
their formulas C is the number of consumers, and T the number of topics.

Each test runs a scenario in a GroupLab, a cluster with a group of such members in virtual time:

- `GroupLab(members=2, partitions=4)` is a group `g` with a topic `t0`, on one ZooKeeper server.
  With `late_from=1` the scenario itself starts member 1.
- With `has_visitor=True` the lab also has a visitor, a client of ZooKeeper that is no consumer.
- `lab.change_began_us` and `lab.change_ended_us` are the times between which the scenario changed
  something. The tests look only at what happened after the beginning.
- `lab.of(kind)` returns rows of the trace, and `detail_of` the detail of a row.
  `lab.writes_of("ids")` returns the writes to ZooKeeper below /consumers/g/ids, with their details.
"""

import json
import re

import pytest

from cluster.links.rules import Cut
from cluster.zookeeper.node import ZooKeeperNode
from protocol.api import Api
from protocol.config import ZooKeeperConsumerConfig
from protocol.trace import TraceKind
from tests.support.harness.zookeeper_group import (
    GROUP,
    SECOND,
    GroupLab,
    detail_of,
    member_name,
)

NAMED = ZooKeeperConsumerConfig(consumer_id="c{index}")
"""Consumers with fixed ids: g_c0 for member 0, g_c1 for member 1."""


async def start_member_1(lab: GroupLab) -> None:
    """Start member 1, and wait until every member has an assignment."""
    lab.change_began_us = lab.runtime.now_us()
    await lab.runtime.start_node(member_name(1))
    await lab.runtime.sleep(SECOND)
    await lab.settled(lab.names)


def test_consumer_id_has_the_group_the_host_the_time_and_eight_hex_digits() -> None:
    """The consumer id is `[group]_[host]-[ms time]-[first 8 hex digits of a UUID]` (ZK-25).

    With the setting `consumer.id`, which is for tests, the id is `[group]_[consumer.id]`. The
    owner of a partition is a thread of the consumer. Its name is the consumer id and `-[n]`, and
    this name is the content of the claim.
    """

    def owners_of_claims(config: ZooKeeperConsumerConfig | None) -> set[str]:
        lab = GroupLab(members=2, partitions=4, late_from=1, config=config).run(start_member_1)
        return {detail["data"] for _row, detail in lab.writes_of("owners") if detail.get("data")}

    assert owners_of_claims(NAMED) == {"g_c0-0", "g_c1-0"}

    owners = owners_of_claims(None)
    # The group `g`, the host `consumer-g-0` or `consumer-g-1`, the time in ms, the hex digits, and
    # the thread 0.
    pattern = re.compile(r"g_consumer-g-\d-\d{13}-[0-9a-f]{8}-0")
    assert len(owners) == 2
    assert all(pattern.fullmatch(owner) for owner in owners)


def test_start_registers_then_subscribes_then_rebalances() -> None:
    """A member creates `ids/[c]`, subscribes, then begins its first rebalance (ZK-36).

    It subscribes to session state, child watch on `ids`, data watch per topic.
    """
    lab = GroupLab(members=2, partitions=4, late_from=1, topics=2).run(start_member_1)

    only_for_session = (Api.PING.label, Api.CONNECT.label)
    sent = [
        (row.api, row.time_us)
        for row in lab.of(TraceKind.REQUEST_SENT, after_us=lab.change_began_us, node=member_name(1))
        if row.peer in lab.servers and row.api not in only_for_session
    ]
    (first_attempt, *_) = lab.of(
        TraceKind.ZOOKEEPER_ATTEMPT_STARTED, after_us=lab.change_began_us, node=member_name(1)
    )
    apis_before = [api for api, time_us in sent if time_us < first_attempt.time_us]
    # - Exists asks whether ZooKeeper answers.
    # - Create is the registration.
    # - Exists and GetChildren set the watch on `ids`.
    # - Each of the last two Exists sets the watch on a topic.
    assert apis_before == ["Exists", "Create", "Exists", "GetChildren", "Exists", "Exists"]


def test_registration_of_another_session_fails_the_start_and_the_program_starts_again() -> None:
    """On NodeExists a starting member compares `ephemeralOwner` with its own session (ZK-36).

    If the node is another session's, the start fails. So if a consumer with a fixed id is killed,
    it cannot start again before its old session ends.
    """

    async def scenario(lab: GroupLab) -> None:
        await lab.runtime.sleep(3 * SECOND)
        lab.change_began_us = lab.runtime.now_us()
        await lab.runtime.crash(member_name(1))
        await lab.runtime.restart(member_name(1))
        await lab.runtime.sleep(12 * SECOND)  # the session of the killed consumer ends after 6 s
        await lab.settled(lab.names)

    lab = GroupLab(members=2, partitions=4, config=NAMED).run(scenario)

    (expired,) = lab.of(TraceKind.ZOOKEEPER_SESSION_EXPIRED, after_us=lab.change_began_us)
    registered = [
        row.time_us
        for row, detail in lab.writes_of("ids", lab.change_began_us)
        if detail["op"] == "create" and detail["path"].endswith("/g_c1")
    ]
    assert len(registered) == 1
    assert expired.time_us < registered[0] < expired.time_us + 2 * SECOND
    attempts = lab.of(
        TraceKind.ZOOKEEPER_ATTEMPT_STARTED, after_us=lab.change_began_us, node=member_name(1)
    )
    # The program rebalances only after the start that has succeeded.
    assert attempts[0].time_us > registered[0]


@pytest.mark.parametrize(("members", "topics"), [(3, 1), (2, 3)])
def test_group_with_static_subscriptions_has_two_watches_a_member_and_one_a_topic(
    members: int, topics: int
) -> None:
    """Standing watches of a group with static subscription: C x (2 + T) (ZK-28)."""

    async def scenario(lab: GroupLab) -> None:
        server = lab.nodes[lab.servers[0]]
        assert isinstance(server, ZooKeeperNode)
        watch_counts.append(len(server.core.clients.watches))

    watch_counts: list[int] = []
    GroupLab(members=members, partitions=4, topics=topics).run(scenario)
    assert watch_counts == [members * (2 + topics)]


def test_release_of_a_claim_notifies_no_consumer() -> None:
    """A release or the vanishing of a claim wakes no consumer: `owners` has no watch (ZK-26).

    So a consumer that waits for a release can only sleep. Here the visitor deletes a claim.
    """

    async def scenario(lab: GroupLab) -> None:
        visitor = lab.visitor()
        lab.change_began_us = lab.runtime.now_us()
        assert await visitor.delete(f"/consumers/{GROUP}/owners/t0/0")
        await lab.runtime.sleep(5 * SECOND)

    lab = GroupLab(members=2, partitions=4, has_visitor=True).run(scenario)

    operations = [detail["op"] for _row, detail in lab.writes_of("owners", lab.change_began_us)]
    assert operations == ["delete"]
    assert lab.of(TraceKind.ZOOKEEPER_WATCH_FIRED, after_us=lab.change_began_us) == []
    assert lab.of(TraceKind.ZOOKEEPER_ATTEMPT_STARTED, after_us=lab.change_began_us) == []


def test_owner_node_with_the_same_text_counts_as_the_consumers_own() -> None:
    """R9's "equal content is mine" compares the text only, not the session (ZK-46).

    1. A consumer with a fixed id has died, but its session has not ended yet, so its claim exists.
    2. Another consumer starts with the same id, and takes the claim for its own.
    3. The session of the dead consumer ends, and the claim vanishes. No event tells the living
       consumer, which now owns a partition without a claim.

    Here the visitor makes the claim, in place of the dead consumer.
    """
    claimed = f"/consumers/{GROUP}/owners/t0/3"

    async def scenario(lab: GroupLab) -> None:
        visitor = lab.visitor()
        await lab.runtime.shut_down(member_name(0))
        await lab.runtime.sleep(3 * SECOND)
        await visitor.create(claimed, "g_c1-0", ephemeral=True)

        lab.change_began_us = lab.runtime.now_us()
        await lab.runtime.start_node(member_name(1))
        await lab.runtime.sleep(3 * SECOND)

        closed: list[str] = []
        visitor.close(lambda: closed.append("visitor"))
        await lab.runtime.sleep(3 * SECOND)
        assert closed == ["visitor"]
        status = (await lab.status())[member_name(1)]
        assigned.extend(str(partition) for partition in status.assigned)

    assigned: list[str] = []
    lab = GroupLab(members=2, partitions=4, late_from=1, config=NAMED, has_visitor=True).run(
        scenario
    )

    # The consumer needed only one attempt to own its partitions.
    (attempt,) = lab.attempts(lab.change_began_us, member_name(1))
    assert attempt["done"] is True
    assert "t0-3" in assigned
    (session_end,) = [
        row
        for row in lab.of(TraceKind.ZOOKEEPER_TXN_APPLIED, after_us=lab.change_began_us)
        if detail_of(row)["op"] == "closeSession"
    ]
    # After the end of the visitor's session the consumer still processes the partition, and no
    # event makes it rebalance.
    processed = [row for row in lab.processed(session_end.time_us) if row.partition == "t0-3"]
    assert processed[-1].time_us > session_end.time_us + 2 * SECOND
    assert lab.attempts(session_end.time_us) == []


def test_member_that_cannot_register_continues_until_queued_events_rebalance() -> None:
    """In a new session the consumer's `handleNewSession` registers it again, as its step (2).

    If step (2) throws, fetchers run on without registration (ZK-56), but not for ever. Behind
    `handleNewSession`, zkclient (the library for ZooKeeper) has queued events. They start a
    rebalance, and step R3 of the rebalance stops the fetchers.

    Here step (2) throws because the visitor has taken the consumer's id.
    """

    async def scenario(lab: GroupLab) -> None:
        lab.change_began_us = lab.runtime.now_us()
        await lab.rule(Cut(), [member_name(1)], lab.servers, both_ways=True)
        await lab.runtime.sleep(10 * SECOND)  # the member's session ends within 8 s
        visitor = lab.visitor()
        content = json.dumps({"version": 1, "subscription": {}, "pattern": "static"})
        await visitor.create("/consumers/g/ids/g_c1", content, ephemeral=True)

        await lab.heal()
        lab.change_ended_us = lab.runtime.now_us()
        await lab.runtime.sleep(30 * SECOND)

    lab = GroupLab(members=2, partitions=4, config=NAMED, has_visitor=True).run(scenario)

    (expired, *_) = lab.of(
        TraceKind.ZOOKEEPER_CLIENT_STATE, after_us=lab.change_ended_us, node=member_name(1)
    )
    attempts = lab.of(
        TraceKind.ZOOKEEPER_ATTEMPT_STARTED, after_us=lab.change_ended_us, node=member_name(1)
    )
    assert detail_of(expired)["state"] == "Expired"
    # In the last second of the cut the member has no session any more, and still processes. It
    # stops when its first attempt begins.
    processed = lab.processed(lab.change_ended_us - SECOND, member_name(1))
    assert processed != []
    assert processed[-1].time_us <= attempts[0].time_us + SECOND // 10
    registered = [
        detail
        for _row, detail in lab.writes_of("ids", lab.change_ended_us)
        if detail["op"] == "create" and detail["path"].endswith("/g_c1")
    ]
    assert registered == []
