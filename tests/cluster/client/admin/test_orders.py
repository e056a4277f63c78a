"""Orders about a group, carried out on real brokers and consumers in virtual time.

An order is an administrator's change of a group, such as to remove its members, to delete it, or to
reset its offsets. The schedule of faults of an experiment may contain orders.
`ask_as_admin(function, ...)` calls the function on an administrator's host. In each answer "NONE"
stands for success; other names are errors.
"""

import json
import pickle
from collections.abc import Awaitable, Callable
from functools import partial

import pytest

from cluster.client.admin.admin_client import AdminClient
from cluster.client.admin.admin_driver import GaveUp
from cluster.client.admin.orders import (
    GROUP_ORDER_TIMEOUT_MS,
    GroupOrderRefused,
    GroupOrderUnanswered,
    delete_group,
    delete_offsets,
    fetch_committed_offsets,
    remove_members,
    reset_offsets,
)
from protocol.causes import RebalanceCause
from protocol.ids import BrokerId, TopicPartition, broker_name
from protocol.partitioner import partition_for
from protocol.trace import TraceKind
from tests.support.harness.brokers import BrokerLab
from tests.support.harness.real_cluster import GROUP, TOPIC, real_spec

# Broker i leads partition i of the three offsets partitions, and so coordinates its groups.
COORDINATOR_ID = BrokerId(partition_for(GROUP, 3))
COORDINATOR = broker_name(COORDINATOR_ID)
Story = Callable[[BrokerLab], Awaitable[None]]


def until_stable(lab: BrokerLab, members: int = 2) -> Awaitable[object]:
    """Wait until the group is Stable with `members` members."""
    return lab.until(
        lambda status: any(
            group.state == "Stable" and len(group.members) == members
            for group in status.groups.get(GROUP, [])
        )
    )


def with_members(story: Story) -> BrokerLab:
    """Play `story` on a cluster with two consumers in a group; return the lab afterwards."""
    lab = BrokerLab(real_spec(consumers=2))

    async def play(lab: BrokerLab) -> None:
        await until_stable(lab)
        await lab.seconds(1)
        await story(lab)

    lab.run(play)
    return lab


async def all_members_leave(lab: BrokerLab) -> None:
    """Stop both consumers, and wait until the group is Empty."""
    for node in (await lab.runtime.status()).members:
        await lab.runtime.shut_down(node)
    await lab.until(
        lambda status: any(group.state == "Empty" for group in status.groups.get(GROUP, []))
    )


def test_removed_members_get_unknown_member_id_and_join_again() -> None:
    """The administrator removes both members with one request. The members join again.

    Each member learns of its removal from the answer to its next heartbeat, and gets a new id.
    """
    before: list[str] = []

    async def story(lab: BrokerLab) -> None:
        before.extend((await lab.runtime.status()).groups[GROUP][0].members)
        answers = await lab.runtime.ask_as_admin(partial(remove_members, group_id=GROUP))
        assert answers == dict.fromkeys(before, "NONE")

        await until_stable(lab)
        after = (await lab.runtime.status()).groups[GROUP][0].members
        assert not set(before) & set(after)

    lab = with_members(story)

    # The coordinator's rows say why a rebalance began, with the reason that the client gave.
    started = [row for row in lab.rows if row.kind == TraceKind.REBALANCE_STARTED]
    reasons = [json.loads(row.detail or "{}").get("client_reason") for row in started]
    assert (RebalanceCause.LEAVE, "member was removed by an admin") in [
        (row.cause, reason) for row, reason in zip(started, reasons, strict=True)
    ]


def test_group_with_members_is_not_deleted() -> None:
    """NON_EMPTY_GROUP is a final answer, so the request is not repeated."""

    async def story(lab: BrokerLab) -> None:
        with pytest.raises(GroupOrderRefused, match=f"{GROUP}: NON_EMPTY_GROUP") as refused:
            await lab.runtime.ask_as_admin(partial(delete_group, group_id=GROUP))
        # On Ray the exception comes from another process, so it must survive pickling.
        assert pickle.loads(pickle.dumps(refused.value)).error == "NON_EMPTY_GROUP"

    with_members(story)


def test_empty_group_can_be_reset_then_deleted() -> None:
    """An Empty group accepts a reset, a deletion of its offsets, and its own deletion.

    The trace (the recorded events) has the administrator's commits, without a member and with
    generation -1.
    """

    async def story(lab: BrokerLab) -> None:
        await all_members_leave(lab)
        reset = partial(reset_offsets, group_id=GROUP, topics=(TOPIC,))
        delete = partial(delete_offsets, group_id=GROUP, topics=(TOPIC,))

        moved = await lab.runtime.ask_as_admin(partial(reset, to="latest"))
        assert set(moved.values()) == {"NONE"}
        committed = await lab.runtime.ask_as_admin(fetch_committed_offsets, GROUP)
        # The answers of an order are by partition.
        assert {str(partition) for partition in committed} == set(moved)

        deleted = await lab.runtime.ask_as_admin(delete)
        assert deleted == moved
        assert await lab.runtime.ask_as_admin(fetch_committed_offsets, GROUP) == {}

        await lab.runtime.ask_as_admin(partial(reset, to="latest"))
        # `unknown_partitions` adds a partition that does not exist. The answers leave this one
        # out if its error is UNKNOWN_TOPIC_OR_PARTITION.
        with_unknown = partial(delete, unknown_partitions=True)
        assert await lab.runtime.ask_as_admin(with_unknown) == deleted
        assert await lab.runtime.ask_as_admin(fetch_committed_offsets, GROUP) == {}

        await lab.runtime.ask_as_admin(partial(reset, to="earliest"))
        assert await lab.runtime.ask_as_admin(partial(delete_group, group_id=GROUP)) == {}
        assert GROUP not in (await lab.runtime.status()).groups

    lab = with_members(story)

    commits = [row for row in lab.rows if row.kind == TraceKind.ADMIN_COMMIT]
    assert {(row.peer, row.error, row.member, row.generation) for row in commits} == {
        (COORDINATOR, "NONE", "", -1)
    }
    assert 0 in {row.offset for row in commits}  # the earliest offset, to which the last reset goes


def test_unanswered_order_is_given_up() -> None:
    """An order without an answer is given up, because it must not delay the faults of a run.

    All brokers are paused. The order ends with an error after GROUP_ORDER_TIMEOUT_MS, 2 s.
    """

    async def story(lab: BrokerLab) -> None:
        for broker in lab.cluster.brokers:
            await lab.runtime.pause(broker.name)
        began_us = lab.runtime.now_us()
        with pytest.raises(GroupOrderUnanswered, match=GROUP):
            await lab.runtime.ask_as_admin(partial(delete_group, group_id=GROUP))
        assert lab.runtime.now_us() - began_us == GROUP_ORDER_TIMEOUT_MS * 1_000

    with_members(story)


def test_commit_of_an_order_that_was_given_up_may_still_be_applied() -> None:
    """The coordinator may handle the request after its pause.

    Checkers compare the offsets of a group with its commits, so they must know also this commit.
    So the trace has a row with the error TIMED_OUT for a commit without an answer.
    """
    new_offsets = {TopicPartition(TOPIC, 0): 3}

    async def story(lab: BrokerLab) -> None:
        await all_members_leave(lab)
        await lab.runtime.pause(COORDINATOR)
        host = lab.runtime.admin_host()
        with (
            pytest.raises(GaveUp),
            AdminClient(host, lab.cluster, timeout_ms=3_000, broker=COORDINATOR_ID) as admin,
        ):
            await admin.alter_consumer_group_offsets(GROUP, new_offsets)

    lab = with_members(story)

    commits = [row for row in lab.rows if row.kind == TraceKind.ADMIN_COMMIT]
    assert {(row.partition, row.offset, row.peer, row.error) for row in commits} == {
        (f"{TOPIC}-0", 3, COORDINATOR, "TIMED_OUT")
    }
