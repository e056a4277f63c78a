"""An administrator lists, describes, changes and deletes groups.

The brokers and consumers are the real ones, but they run in virtual time: a simulated clock. `lab`
is a running cluster of one controller and the brokers 0, 1 and 2. `lab.client` sends single
requests to the broker that is its first argument.

Most tests use the group `tool` (SIMPLE), which has committed offsets and no members. Tests that use
`with_members` also have the group `readers` (GROUP), which has two members.
"""

from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest

from cluster.client.admin.admin_client import AdminClient, OffsetSpec
from cluster.client.admin.admin_driver import GaveUp
from cluster.client.admin.outcomes import GroupDescription
from cluster.client.net.errors import ClientError
from cluster.runtime import ClusterStatus
from protocol.errors import ErrorCode
from protocol.ids import BrokerId, TopicPartition, broker_name
from protocol.partitioner import partition_for
from tests.support.harness.brokers import ORDERS, BrokerLab, broker_cluster
from tests.support.harness.real_cluster import GROUP, TOPIC, real_spec

T = TypeVar("T")

SIMPLE = "tool"
"""A group without members, in which a client commits offsets without joining the group."""
COORDINATOR = partition_for(SIMPLE, 3)
"""The coordinator of `tool`: broker i leads partition i of the three offsets partitions."""
P0, P1, P2 = (TopicPartition(ORDERS, index) for index in range(3))
FIRST_BACKOFF_US = 100_000
"""How long an administrator waits before its first retry (retry.backoff.ms, without jitter)."""


def admin_of(
    lab: BrokerLab, timeout_ms: int = 15_000, broker: BrokerId | None = None
) -> AdminClient:
    """Return an administrator for a `with` block, which closes the connections at its end."""
    return AdminClient(lab.runtime.admin_host(), lab.cluster, timeout_ms=timeout_ms, broker=broker)


def with_simple_group(ask: Callable[[AdminClient, BrokerLab], Awaitable[T]]) -> T:
    """Run `ask` on a cluster in which `tool` has committed offset 5 for orders-0 and orders-1.

    orders-0 has nine records, the other partitions have none.
    """

    async def story(lab: BrokerLab) -> T:
        for _ in range(9):
            await lab.client.produce(0, b"record")
        await lab.client.commit(COORDINATOR, SIMPLE, offset=5, partitions=(0, 1))
        with admin_of(lab) as admin:
            return await ask(admin, lab)

    return BrokerLab(broker_cluster()).run(story)


def with_members(ask: Callable[[AdminClient, BrokerLab], Awaitable[T]]) -> T:
    """Run `ask` on a cluster in which `readers` has two members.

    The group `tool` has committed offset 0 for orders-0.
    """

    def both_members_are_in_the_group(status: ClusterStatus) -> bool:
        return any(
            group.state == "Stable" and len(group.members) == 2
            for group in status.groups.get(GROUP, [])
        )

    async def story(lab: BrokerLab) -> T:
        await lab.until(both_members_are_in_the_group)
        await lab.client.commit(COORDINATOR, SIMPLE, offset=0)
        with admin_of(lab) as admin:
            return await ask(admin, lab)

    return BrokerLab(real_spec(consumers=2)).run(story)


def test_groups_of_every_broker_are_listed_with_their_state_and_broker() -> None:
    """A broker lists only the groups that it coordinates, so the administrator asks every broker.

    The filter by state ignores the case of letters. The filter by type finds no group here: all are
    "classic", while "consumer" is the type of the newer groups (KIP-848).
    """

    async def ask(admin: AdminClient, _lab: BrokerLab) -> None:
        listings = await admin.list_groups()
        assert listings.failures == {}
        assert [
            (group.group_id, group.state, group.group_type, group.protocol_type, group.broker)
            for group in listings.groups
        ] == [
            (GROUP, "Stable", "classic", "consumer", partition_for(GROUP, 3)),
            (SIMPLE, "Empty", "classic", "", COORDINATOR),
        ]
        empty = await admin.list_groups(states=("empty", "Dead"))
        assert [group.group_id for group in empty.groups] == [SIMPLE]
        assert (await admin.list_groups(types=("consumer",))).groups == ()

    with_members(ask)


def test_broker_that_does_not_answer_is_named_beside_the_groups_of_the_others() -> None:
    """One broker is paused. The administrator returns the groups of the others, and an error.

    The controller fences a broker that is silent for 9 s: it counts the broker as dead. An
    administrator does not ask a dead broker. So the timeout in this test is much shorter: 0.9 s.
    """

    async def story(lab: BrokerLab) -> None:
        await lab.client.commit(COORDINATOR, SIMPLE, 5)
        silent = (COORDINATOR + 1) % 3
        await lab.runtime.pause(broker_name(silent))
        with admin_of(lab, timeout_ms=900) as admin:
            listings = await admin.list_groups()
        assert [group.group_id for group in listings.groups] == [SIMPLE]
        # The failures have an error for each broker that gave no list.
        ((broker, error),) = listings.failures.items()
        assert broker == silent
        assert isinstance(error, GaveUp)
        assert error.name == "TIMED_OUT"
        await lab.runtime.resume(broker_name(silent))

    BrokerLab(broker_cluster()).run(story)


def test_described_group_has_coordinator_protocol_and_assignments() -> None:
    """The administrator decodes the members' assignments, which arrive as bytes.

    In Kafka's AdminClient the class DescribeConsumerGroupsHandler decodes them.
    """

    async def ask(admin: AdminClient, _lab: BrokerLab) -> None:
        group, missing = (await admin.describe_groups((GROUP, "missing"))).values()
        assert isinstance(group, GroupDescription)
        assert group.coordinator == partition_for(GROUP, 3)
        assert group.state == "Stable"
        assert group.protocol_type == "consumer"
        assert group.protocol_name == "range"
        assert sorted(member.client_id for member in group.members) == [
            f"consumer-{GROUP}-{index}" for index in range(2)
        ]
        owned = sorted(partition for member in group.members for partition in member.assigned)
        assert owned == [TopicPartition(TOPIC, index) for index in range(12)]  # all partitions
        # Kafka describes a group that does not exist as Dead, without an error.
        assert isinstance(missing, GroupDescription)
        assert missing.state == "Dead"
        assert missing.members == ()

    with_members(ask)


def test_committed_offsets_and_log_ends_are_read_for_the_lag() -> None:
    """The lag is the log end minus the committed offset.

    The administrator fetches the offsets of all partitions from the coordinator, and lists the log
    ends at the leaders.
    """

    async def ask(admin: AdminClient, _lab: BrokerLab) -> None:
        assert await admin.list_consumer_group_offsets((SIMPLE, "missing")) == {
            SIMPLE: {P0: 5, P1: 5},
            "missing": {},
        }
        assert await admin.list_offsets((P0, P1), OffsetSpec.LATEST) == {P0: 9, P1: 0}
        assert await admin.list_offsets((P0,), OffsetSpec.EARLIEST) == {P0: 0}
        (topic,) = (await admin.describe_topics((ORDERS,))).values()
        assert topic == {0: (0, 1, 2), 1: (1, 2, 0), 2: (2, 0, 1)}  # replicas of each partition

    with_simple_group(ask)


def test_missing_topic_or_group_is_answered_at_once() -> None:
    """A request about a missing topic or group is not repeated, because a user waits."""

    async def ask(admin: AdminClient, lab: BrokerLab) -> None:
        began_us = lab.runtime.now_us()
        missing = (TopicPartition(ORDERS, 7), TopicPartition("no", 0))
        ends = await admin.list_offsets(missing, OffsetSpec.LATEST)
        topics = await admin.describe_topics(("no",))
        for error in (*ends.values(), *topics.values()):
            assert isinstance(error, ClientError)
            assert error.name == "UNKNOWN_TOPIC_OR_PARTITION"
        # All answers took less time than the first backoff, so there was no retry.
        assert lab.runtime.now_us() - began_us < FIRST_BACKOFF_US

    with_simple_group(ask)


def test_only_a_group_without_members_is_deleted_and_loses_its_offsets() -> None:
    """DeleteGroups has an outcome for each group: an error, or None if the group is deleted."""

    async def ask(admin: AdminClient, _lab: BrokerLab) -> None:
        outcomes = await admin.delete_groups((GROUP, SIMPLE, "missing"))
        error_names = {
            group: None if error is None else error.name for group, error in outcomes.items()
        }
        assert error_names == {
            GROUP: "NON_EMPTY_GROUP",
            SIMPLE: None,
            "missing": "GROUP_ID_NOT_FOUND",
        }
        assert [group.group_id for group in (await admin.list_groups()).groups] == [GROUP]
        assert await admin.list_consumer_group_offsets((SIMPLE,)) == {SIMPLE: {}}

    with_members(ask)


def test_offsets_of_a_topic_that_a_group_reads_are_not_deleted() -> None:
    """Each partition of the request gets its own error.

    P0 belongs to the topic that the members of GROUP read. The other partition does not exist.
    """

    async def ask(admin: AdminClient, _lab: BrokerLab) -> None:
        nowhere = TopicPartition("no", 3)
        assert await admin.delete_consumer_group_offsets(GROUP, (P0, nowhere)) == {
            P0: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
            nowhere: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }
        with pytest.raises(ClientError, match="GROUP_ID_NOT_FOUND"):
            await admin.delete_consumer_group_offsets("missing", (P0,))

    with_members(ask)


def test_offset_of_a_group_without_members_is_deleted() -> None:
    """The offset of orders-0 is deleted, and orders-1 keeps its offset."""

    async def ask(admin: AdminClient, _lab: BrokerLab) -> None:
        assert await admin.delete_consumer_group_offsets(SIMPLE, (P0,)) == {P0: ErrorCode.NONE}
        assert await admin.list_consumer_group_offsets((SIMPLE,)) == {SIMPLE: {P1: 5}}

    with_simple_group(ask)


def test_offsets_of_a_group_without_members_are_set_and_survive_a_load() -> None:
    """An administrator commits without being a member. A commit for a new group creates the group.

    Then the coordinator shuts down. Another broker loads the groups from its log, and answers.
    """

    async def ask(admin: AdminClient, lab: BrokerLab) -> None:
        assert await admin.alter_consumer_group_offsets(SIMPLE, {P0: 2, P2: 1}) == {
            P0: ErrorCode.NONE,
            P2: ErrorCode.NONE,
        }
        assert await admin.alter_consumer_group_offsets("new", {P0: 3}) == {P0: ErrorCode.NONE}
        await lab.runtime.shut_down(broker_name(COORDINATOR))
        await lab.seconds(6)  # the shutdown ends
        assert await admin.list_consumer_group_offsets((SIMPLE, "new")) == {
            SIMPLE: {P0: 2, P1: 5, P2: 1},
            "new": {P0: 3},
        }

    with_simple_group(ask)


def test_offsets_of_a_group_with_members_are_refused_by_its_coordinator() -> None:
    """In a group with members, a commit without a member id gets UNKNOWN_MEMBER_ID."""

    async def ask(admin: AdminClient, _lab: BrokerLab) -> None:
        assert await admin.alter_consumer_group_offsets(GROUP, {P0: 0}) == {
            P0: ErrorCode.UNKNOWN_MEMBER_ID
        }

    with_members(ask)


def test_request_is_repeated_after_the_death_of_the_coordinator() -> None:
    """The administrator repeats its request until the next coordinator has loaded the group."""

    async def story(lab: BrokerLab) -> None:
        await lab.client.commit(COORDINATOR, SIMPLE, 5)
        await lab.kill(COORDINATOR)
        with admin_of(lab, timeout_ms=60_000) as admin:
            (group,) = (await admin.describe_groups((SIMPLE,))).values()
        assert isinstance(group, GroupDescription)
        assert group.coordinator != COORDINATOR
        assert group.state == "Empty"

    BrokerLab(broker_cluster()).run(story)


def test_request_that_times_out_names_the_last_error() -> None:
    """An administrator that gives up reports the error of its last try.

    The administrator asks the brokers which of them coordinates the group. The coordinator is dead,
    but the other brokers still name the dead broker until the controller fences it, after 9 s. The
    administrator gives up earlier, after 2 s. In its last try it was not able to connect to the
    dead broker.
    """

    async def story(lab: BrokerLab) -> None:
        await lab.client.commit(COORDINATOR, SIMPLE, 5)
        await lab.kill(COORDINATOR)
        began_us = lab.runtime.now_us()
        with admin_of(lab, timeout_ms=2_000) as admin:
            (error,) = (await admin.describe_groups((SIMPLE,))).values()
        assert isinstance(error, GaveUp)
        assert error.name == "DISCONNECTED"
        assert error.waited_us == 2_000_000
        assert lab.runtime.now_us() - began_us == 2_000_000

    BrokerLab(broker_cluster()).run(story)


def test_request_to_a_given_broker_is_not_redirected() -> None:
    """A user who names a broker wants to know what this broker knows.

    So the administrator asks no other broker. It returns NOT_COORDINATOR, and does not retry.
    """

    async def story(lab: BrokerLab) -> None:
        await lab.client.commit(COORDINATOR, SIMPLE, 5)
        began_us = lab.runtime.now_us()
        with admin_of(lab, broker=BrokerId((COORDINATOR + 1) % 3)) as admin:
            assert (await admin.list_groups()).groups == ()
            (refused,) = (await admin.describe_groups((SIMPLE,))).values()
            assert isinstance(refused, ClientError)
            assert refused.name == "NOT_COORDINATOR"
            assert not refused.retriable
            with pytest.raises(ClientError, match="NOT_COORDINATOR"):
                await admin.delete_consumer_group_offsets(SIMPLE, (P0,))

        with admin_of(lab, broker=BrokerId(COORDINATOR)) as admin:
            assert [group.group_id for group in (await admin.list_groups()).groups] == [SIMPLE]
            assert await admin.list_consumer_group_offsets((SIMPLE,)) == {SIMPLE: {P0: 5}}

        # All answers took less time than the first backoff, so there was no retry.
        assert lab.runtime.now_us() - began_us < FIRST_BACKOFF_US

    BrokerLab(broker_cluster()).run(story)
