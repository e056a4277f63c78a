"""Orders about a group, carried out on real brokers and consumers in virtual time.

An administrator can give these orders about a group: remove its members, delete the group, reset
its offsets, or delete its offsets. An experiment can have orders in its schedule, among the faults.
An order returns an answer for each member or partition: "NONE" for a success, or the name of an
error.

`lab` is a running cluster of three brokers, and a group of two consumers. `ask_as_admin(function,
...)` lets an administrator call the function.
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
from cluster.runtime import ClusterStatus
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

    def is_stable(status: ClusterStatus) -> bool:
        return any(
            group.state == "Stable" and len(group.members) == members
            for group in status.groups.get(GROUP, [])
        )

    return lab.until(is_stable)


def with_members(story: Story) -> BrokerLab:
    """Play `story` on a cluster with a group of two consumers, and return the lab afterwards."""
    lab = BrokerLab(real_spec(consumers=2))

    async def play(lab: BrokerLab) -> None:
        await until_stable(lab)
        await lab.seconds(1)  # the members begin to read
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

    async def story(lab: BrokerLab) -> None:
        old_ids = (await lab.runtime.status()).groups[GROUP][0].members
        answers = await lab.runtime.ask_as_admin(partial(remove_members, group_id=GROUP))
        assert answers == dict.fromkeys(old_ids, "NONE")

        await until_stable(lab)
        new_ids = (await lab.runtime.status()).groups[GROUP][0].members
        assert set(old_ids).isdisjoint(new_ids)

    lab = with_members(story)

    # The rows of the coordinator say why each rebalance began, with the reason of the client.
    causes_and_reasons = [
        (row.cause, json.loads(row.detail or "{}").get("client_reason"))
        for row in lab.rows
        if row.kind == TraceKind.REBALANCE_STARTED
    ]
    assert (RebalanceCause.LEAVE, "member was removed by an admin") in causes_and_reasons


def test_group_with_members_is_not_deleted() -> None:
    """The order to delete a group with members fails with NON_EMPTY_GROUP."""

    async def story(lab: BrokerLab) -> None:
        with pytest.raises(GroupOrderRefused, match=f"{GROUP}: NON_EMPTY_GROUP") as refused:
            await lab.runtime.ask_as_admin(partial(delete_group, group_id=GROUP))
        # On Ray the exception comes from another process, so it must survive pickling.
        assert pickle.loads(pickle.dumps(refused.value)).error == "NON_EMPTY_GROUP"

    with_members(story)


def test_offsets_of_an_empty_group_are_reset_and_deleted_and_then_the_group() -> None:
    """A reset is a commit of the administrator. It has no member, and the generation -1."""

    async def story(lab: BrokerLab) -> None:
        await all_members_leave(lab)
        reset = partial(reset_offsets, group_id=GROUP, topics=(TOPIC,))
        delete = partial(delete_offsets, group_id=GROUP, topics=(TOPIC,))

        answers_to_reset = await lab.runtime.ask_as_admin(partial(reset, to="latest"))
        assert set(answers_to_reset.values()) == {"NONE"}
        committed = await lab.runtime.ask_as_admin(fetch_committed_offsets, GROUP)
        assert {str(partition) for partition in committed} == set(answers_to_reset)

        answers_to_delete = await lab.runtime.ask_as_admin(delete)
        assert answers_to_delete == answers_to_reset  # NONE for the same partitions
        assert await lab.runtime.ask_as_admin(fetch_committed_offsets, GROUP) == {}

        await lab.runtime.ask_as_admin(partial(reset, to="latest"))
        # With `unknown_partitions` the request also has a partition that does not exist. If this
        # partition gets the right error, UNKNOWN_TOPIC_OR_PARTITION, it is not among the answers.
        with_unknown = partial(delete, unknown_partitions=True)
        assert await lab.runtime.ask_as_admin(with_unknown) == answers_to_delete
        assert await lab.runtime.ask_as_admin(fetch_committed_offsets, GROUP) == {}

        await lab.runtime.ask_as_admin(partial(reset, to="earliest"))
        assert await lab.runtime.ask_as_admin(partial(delete_group, group_id=GROUP)) == {}
        assert GROUP not in (await lab.runtime.status()).groups

    lab = with_members(story)

    commits = [row for row in lab.rows if row.kind == TraceKind.ADMIN_COMMIT]
    assert {(row.peer, row.error, row.member, row.generation) for row in commits} == {
        (COORDINATOR, "NONE", "", -1)
    }
    assert 0 in {row.offset for row in commits}  # the reset to the earliest offset


def test_unanswered_order_is_given_up() -> None:
    """All brokers are paused, so nobody answers the order.

    After 2 s (GROUP_ORDER_TIMEOUT_MS) the order ends with an error. A longer wait would delay the
    next faults of the experiment.
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
    """A paused coordinator gets a commit. When it is resumed, it may still handle the commit.

    By then the administrator has given up. Checkers compare the offsets of a group with the commits
    in the trace, so they must know of this commit, too. The trace has a row for it, with the error
    TIMED_OUT.
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
