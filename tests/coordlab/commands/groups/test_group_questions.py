"""The questions that the command `groups` asks a cluster, and the facts that the answers give.

Each test starts a cluster of one controller and three brokers, which runs in this process on a
simulated clock. The test has a function `ask` with its requests and checks, and passes this
function to one of two helpers:

- `with_tool` starts a cluster with a group that has offsets but no members.
- `with_members` starts a cluster with a group of two consumers.
"""

from collections.abc import Awaitable, Callable
from typing import NamedTuple, TypeVar

from cluster.client.admin.admin_client import AdminClient
from cluster.client.admin.offset_reset import ShiftBy, ToEarliest, ToLatest, ToOffset
from coordlab.commands.groups.facts import WHOLE_TOPIC, OffsetReset
from coordlab.commands.groups.questions import (
    ChosenTopic,
    delete_group_offsets,
    delete_groups,
    describe_groups,
    list_groups,
    reset_group_offsets,
)
from protocol.ids import NodeName, TopicPartition, broker_name
from protocol.partitioner import partition_for
from tests.support.harness.brokers import ORDERS, BrokerLab, broker_cluster
from tests.support.harness.real_cluster import GROUP, real_spec

T = TypeVar("T")

TOOL = "tool"
"""A group without members, whose offsets an administrator's tool committed."""
COORDINATOR_OF_TOOL = partition_for(TOOL, 3)
"""The number of the broker that coordinates `tool`.

The name of the group decides in which of the three offsets partitions the group is stored. Broker n
leads partition n.
"""
ALL_PARTITIONS = (ChosenTopic(topic=ORDERS, partitions=None),)
PARTITION_0 = (ChosenTopic(topic=ORDERS, partitions=(0,)),)


class PlannedReset(NamedTuple):
    """The change that a reset would make to one partition.

    - `committed`: the offset that is committed before the reset; None if none is committed.
    - `new`: the offset that the reset would commit; None if the partition gets no new offset.
    """

    partition: int
    committed: int | None
    new: int | None


def with_tool(ask: Callable[[AdminClient, BrokerLab], Awaitable[T]]) -> T:
    """Run `ask` on a cluster with the group `tool`.

    The topic has three partitions. Partition 0 has nine records, and the group has committed offset
    5 there. The other two partitions are empty.
    """

    async def scenario(lab: BrokerLab) -> T:
        for _ in range(9):
            # Produce to broker 0, because it leads partition 0.
            await lab.client.produce(0, b"record")
        await lab.client.commit(COORDINATOR_OF_TOOL, TOOL, offset=5)
        with AdminClient(lab.runtime.admin_host(), lab.cluster, timeout_ms=15_000) as admin:
            return await ask(admin, lab)

    return BrokerLab(broker_cluster()).run(scenario)


def with_members(ask: Callable[[AdminClient, BrokerLab], Awaitable[T]]) -> T:
    """Run `ask` on a cluster with a group of two consumers, once the group is stable.

    The topic has twelve partitions, which are all empty.
    """

    async def scenario(lab: BrokerLab) -> T:
        await lab.until(
            lambda status: any(
                group.state == "Stable" and len(group.members) == 2
                for group in status.groups.get(GROUP, [])
            )
        )
        with AdminClient(lab.runtime.admin_host(), lab.cluster, timeout_ms=15_000) as admin:
            return await ask(admin, lab)

    return BrokerLab(real_spec(consumers=2)).run(scenario)


def planned(reset: OffsetReset) -> list[PlannedReset]:
    """Return the change that the reset would make to each partition.

    For example, `(0, 5, 3)` says that partition 0 would go from the committed offset 5 back to 3.
    """
    return [
        PlannedReset(offset.partition, offset.current_offset, offset.new_offset)
        for offset in reset.offsets
    ]


def test_described_group_has_its_committed_offset_and_its_lag() -> None:
    """The lag is the end of the log minus the committed offset. No member owns the partition."""

    async def ask(admin: AdminClient, _lab: BrokerLab) -> None:
        # A group that is named twice is described once.
        (group,) = await describe_groups(admin, (TOOL, TOOL), with_offsets=True)
        assert (group.state, group.error, group.members) == ("Empty", None, ())
        (offset,) = group.offsets or ()
        assert (offset.topic, offset.partition) == (ORDERS, 0)
        assert (offset.current_offset, offset.log_end_offset, offset.lag) == (5, 9, 4)
        assert (offset.member_id, offset.error) == (None, None)

    with_tool(ask)


def test_described_partition_that_is_assigned_and_not_committed_has_its_owner() -> None:
    """Nothing is committed, so the offset and the lag are None (Kafka's own tool prints a dash).

    The two members own the twelve partitions, and each partition names its owner.
    """

    async def ask(admin: AdminClient, _lab: BrokerLab) -> None:
        (group,) = await describe_groups(admin, (GROUP,), with_offsets=True)
        offsets = group.offsets or ()
        assert [offset.partition for offset in offsets] == list(range(12))
        assert {offset.client_id for offset in offsets} == {
            f"consumer-{GROUP}-{index}" for index in range(2)
        }
        assert {offset.current_offset for offset in offsets} == {None}, "nothing was committed"
        assert {offset.lag for offset in offsets} == {None}
        assert group.assignment_strategy == "range"

    with_members(ask)


def test_offset_of_a_log_without_an_answering_leader_has_no_lag() -> None:
    """The answer has the committed offset, and the reason why the end of the log is unknown.

    The leader of partition `silent` is paused; the coordinator, another broker, answers.
    """
    silent = (COORDINATOR_OF_TOOL + 1) % 3

    async def scenario(lab: BrokerLab) -> None:
        await lab.client.commit(COORDINATOR_OF_TOOL, TOOL, offset=0, partitions=(silent,))
        await lab.runtime.pause(broker_name(silent))
        with AdminClient(lab.runtime.admin_host(), lab.cluster, timeout_ms=1_500) as admin:
            (group,) = await describe_groups(admin, (TOOL,), with_offsets=True)
        (offset,) = group.offsets or ()
        assert (offset.current_offset, offset.log_end_offset, offset.lag) == (0, None, None)
        assert offset.error is not None
        # The request was repeated until the timeout of 1,500 ms was over, that is, for 1.x seconds.
        assert offset.error.startswith("TIMED_OUT, still after 1.")
        await lab.runtime.resume(broker_name(silent))

    BrokerLab(broker_cluster()).run(scenario)


def test_missing_group_is_reported_with_kafkas_error_name() -> None:
    """The coordinator describes a missing group as Dead. Then its offsets are not requested."""

    async def ask(admin: AdminClient, _lab: BrokerLab) -> None:
        missing, tool = await describe_groups(admin, ("nobody", TOOL), with_offsets=True)
        assert (missing.error, missing.offsets) == ("GROUP_ID_NOT_FOUND", None)
        assert tool.error is None

    with_tool(ask)


def test_refused_deletion_of_a_group_names_its_members() -> None:
    """The error NON_EMPTY_GROUP alone does not say which members must be stopped.

    A group that does not exist has another error, and no members to name.
    """

    async def ask(admin: AdminClient, _lab: BrokerLab) -> None:
        refused, missing = await delete_groups(admin, (GROUP, "nobody"))
        assert refused.error == "NON_EMPTY_GROUP"
        assert sorted(member.client_id for member in refused.held_by) == [
            f"consumer-{GROUP}-{index}" for index in range(2)
        ]
        assert (missing.error, missing.held_by) == ("GROUP_ID_NOT_FOUND", ())

    with_members(ask)


def test_offsets_of_a_whole_topic_are_deleted_and_an_unknown_topic_is_reported() -> None:
    """As in Kafka, a partition without an offset counts as deleted, too."""

    async def ask(admin: AdminClient, _lab: BrokerLab) -> None:
        chosen = (
            *ALL_PARTITIONS,
            ChosenTopic(topic=ORDERS, partitions=(7,)),  # there is no partition 7
            ChosenTopic(topic="no", partitions=None),  # and no topic "no"
        )
        deleted = await delete_group_offsets(admin, TOOL, chosen)
        assert deleted.error is None
        assert [(offset.topic, offset.partition, offset.error) for offset in deleted.offsets] == [
            *((ORDERS, index, None) for index in range(3)),
            (ORDERS, 7, "UNKNOWN_TOPIC_OR_PARTITION"),
            ("no", WHOLE_TOPIC, "UNKNOWN_TOPIC_OR_PARTITION"),
        ]
        assert (await list_groups(admin)).groups == (), "a group without members or offsets is gone"
        # The group is gone. So a second deletion reports it as missing.
        again = await delete_group_offsets(admin, TOOL, ALL_PARTITIONS)
        assert (again.error, again.offsets) == ("GROUP_ID_NOT_FOUND", ())

    with_tool(ask)


def test_reset_without_execute_is_only_shown() -> None:
    """As in Kafka, a reset without --execute is only planned: the committed offset stays 5."""

    async def ask(admin: AdminClient, _lab: BrokerLab) -> None:
        # None in place of topics means all partitions with committed offsets: partition 0.
        shown = await reset_group_offsets(admin, TOOL, None, ToEarliest(), execute=False)
        assert (planned(shown), shown.executed) == ([(0, 5, 0)], False)
        assert (await admin.list_consumer_group_offsets((TOOL,)))[TOOL] == {(ORDERS, 0): 5}
        done = await reset_group_offsets(admin, TOOL, None, ToEarliest(), execute=True)
        assert (planned(done), done.executed) == ([(0, 5, 0)], True)
        assert (await admin.list_consumer_group_offsets((TOOL,)))[TOOL] == {(ORDERS, 0): 0}

    with_tool(ask)


def test_reset_of_a_whole_topic_sets_an_offset_for_every_partition() -> None:
    """A reset may create the group, which then has offsets but no members: Empty.

    The reset asks for offset 4. Partition 0 has records up to 9, so it gets 4. Partitions 1 and 2
    have no records, so they get 0, their only offset.
    """

    async def ask(admin: AdminClient, _lab: BrokerLab) -> None:
        done = await reset_group_offsets(
            admin, "new", ALL_PARTITIONS, ToOffset(offset=4), execute=True
        )
        assert done.state == "Dead"  # before the reset, when the group did not exist
        assert planned(done) == [(0, None, 4), (1, None, 0), (2, None, 0)]
        # `asked_for` is the requested offset if the log does not have it.
        assert [offset.asked_for for offset in done.offsets] == [None, 4, 4]
        listed = await list_groups(admin)
        assert [(group.group, group.state) for group in listed.groups] == [
            ("new", "Empty"),
            (TOOL, "Empty"),
        ]

    with_tool(ask)


def test_partly_impossible_reset_changes_nothing() -> None:
    """One impossible partition prevents the whole reset: nothing is executed.

    1. A shift by -2 of all partitions is impossible: partitions 1 and 2 have no committed offset
       that could be shifted.
    2. A reset of partitions 0 and 9 is impossible: partition 9 does not exist.
    3. A shift of partition 0 alone is possible, and is executed.
    """

    async def ask(admin: AdminClient, _lab: BrokerLab) -> None:
        shifted = await reset_group_offsets(
            admin, TOOL, ALL_PARTITIONS, ShiftBy(records=-2), execute=True
        )
        assert not shifted.executed
        assert planned(shifted) == [(0, 5, 3), (1, None, None), (2, None, None)]
        missing = "nothing is committed to shift from"
        assert [offset.error for offset in shifted.offsets] == [None, missing, missing]
        zero_and_nine = (*PARTITION_0, ChosenTopic(topic=ORDERS, partitions=(9,)))
        partly = await reset_group_offsets(admin, TOOL, zero_and_nine, ToLatest(), execute=True)
        assert not partly.executed
        assert planned(partly) == [(0, 5, 9), (9, None, None)]
        assert (await admin.list_consumer_group_offsets((TOOL,)))[TOOL] == {(ORDERS, 0): 5}
        done = await reset_group_offsets(
            admin, TOOL, PARTITION_0, ShiftBy(records=-2), execute=True
        )
        assert (planned(done), done.executed) == ([(0, 5, 3)], True)

    with_tool(ask)


def test_reset_of_a_group_with_members_is_refused_and_names_them() -> None:
    """As in Kafka's tool, a reset must wait until the members have left."""

    async def ask(admin: AdminClient, lab: BrokerLab) -> None:
        refused = await reset_group_offsets(admin, GROUP, None, ToEarliest(), execute=True)
        assert (refused.error, refused.state, refused.executed) == (
            "NON_EMPTY_GROUP",
            "Stable",
            False,
        )
        assert len(refused.held_by) == 2
        for index in range(2):
            await lab.runtime.shut_down(NodeName(f"consumer-{GROUP}-{index}"))
        await lab.seconds(1)  # the consumers leave the group while they shut down
        empty = await reset_group_offsets(admin, GROUP, None, ToEarliest(), execute=True)
        assert (empty.error, empty.state, empty.executed) == (None, "Empty", True)

    with_members(ask)


def test_timed_out_reset_is_reported_for_each_partition() -> None:
    """A reset is a commit of other offsets. If no follower acknowledges it, it times out.

    The error is REQUEST_TIMED_OUT, and it is not known whether the offset was reset.
    """

    async def ask(admin: AdminClient, lab: BrokerLab) -> None:
        others = [broker_name(broker) for broker in range(3) if broker != COORDINATOR_OF_TOOL]
        for name in others:
            await lab.runtime.pause(name)
        done = await admin.alter_consumer_group_offsets(TOOL, {TopicPartition(ORDERS, 0): 1})
        assert {code.name for code in done.values()} == {"REQUEST_TIMED_OUT"}
        for name in others:
            await lab.runtime.resume(name)

    with_tool(ask)
