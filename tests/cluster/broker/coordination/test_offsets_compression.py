"""Groups and offsets in compressed records: written, replicated, cleaned and loaded.

The setting offsets.topic.compression.codec makes coordinators compress the records that they write
to their offsets partitions. `lab` is a cluster of three brokers in virtual time.
"""

import json

import msgspec
import pytest

from cluster.client.admin.orders import move_leader
from cluster.spec import PreloadSpec, TopicSpec
from protocol.compression import CompressionType
from protocol.errors import ErrorCode
from protocol.ids import CONSUMER_OFFSETS, BrokerId, broker_name, offsets_partition
from protocol.messages.group import JoinGroupResponse, SyncGroupResponse
from protocol.messages.offset import OffsetFetchResponse
from protocol.partitioner import partition_for
from protocol.trace import TraceKind
from tests.support.builders.requests import GROUP, join_group, offset_fetch, sync_group
from tests.support.harness.brokers import ORDERS, BrokerLab, broker_cluster
from tests.support.harness.controllers import NO_BALANCING

BROKERS = 3
"""The number of brokers, and also the number of offsets partitions: broker n leads partition n."""
COORDINATOR = partition_for(GROUP, BROKERS)
"""The broker that coordinates the group, and also the number of the group's offsets partition."""
PARTITION = offsets_partition(COORDINATOR)
NEXT_COORDINATOR = BrokerId((COORDINATOR + 1) % BROKERS)
"""The broker to which the test moves the partition, and so the groups."""
OTHER_GROUP = next(
    name
    for name in (f"other-{number}" for number in range(99))  # about a third has this partition
    if partition_for(name, BROKERS) == COORDINATOR
)
"""A second group in the offsets partition of GROUP."""
LAST_OFFSET = 59
"""The last offset that OTHER_GROUP commits, one after the other from 1 on."""


def compacted(topic: TopicSpec) -> TopicSpec:
    """Return the topic with the setting cleanup.policy=compact."""
    return msgspec.structs.replace(
        topic, config=msgspec.structs.replace(topic.config, cleanup_policy="compact")
    )


@pytest.mark.parametrize("codec", list(CompressionType))
def test_groups_and_offsets_survive_a_failover_in_every_codec(codec: CompressionType) -> None:
    """The next coordinator loads what the first coordinator wrote and the log cleaner has left.

    Two groups share the offsets partition: GROUP has a member with an assignment, and OTHER_GROUP
    commits offsets.
    """
    # Small segments and frequent cleanings, so that the log is cleaned within the test.
    config = msgspec.structs.replace(
        NO_BALANCING,
        offsets_topic_compression_codec=codec,
        offsets_topic_segment_bytes=1_500,
        log_cleaner_backoff_ms=500,
        group_initial_rebalance_delay_ms=0,  # the member joins without a wait
    )
    base = broker_cluster(config=config)
    topics = tuple(
        compacted(topic) if topic.name == CONSUMER_OFFSETS else topic for topic in base.topics
    )
    cluster = msgspec.structs.replace(base, topics=topics)

    async def story(lab: BrokerLab) -> None:
        # The first JoinGroup returns a member id. The second JoinGroup has this id (KIP-394).
        with_member_id = await lab.client.call(COORDINATOR, join_group())
        assert isinstance(with_member_id, JoinGroupResponse)
        member_id = with_member_id.member_id
        joined = await lab.client.call(COORDINATOR, join_group(member_id))
        assert isinstance(joined, JoinGroupResponse)
        assignment = sync_group(member_id, generation_id=1, assignments={member_id: b"mine"})
        assert isinstance(await lab.client.call(COORDINATOR, assignment), SyncGroupResponse)

        for offset in range(1, LAST_OFFSET + 1):
            answer = await lab.client.commit(COORDINATOR, OTHER_GROUP, offset, partitions=(0, 1, 2))
            assert answer.topics[0].partitions[0].error_code is ErrorCode.NONE
        await lab.seconds(2)  # the cleaner runs every 0.5 s

        log = lab.storages[broker_name(NEXT_COORDINATOR)].log(PARTITION)
        assert {log.batch(index).compression for index in range(len(log))} == {codec}
        assert lab.events(TraceKind.LOG_CLEANED, broker_name(NEXT_COORDINATOR))

        await lab.runtime.ask_as_admin(move_leader, PARTITION, NEXT_COORDINATOR)
        await lab.seconds(1)  # the next coordinator loads the groups
        fetched = await lab.client.call(
            NEXT_COORDINATOR, offset_fetch((ORDERS, 1), group_id=OTHER_GROUP)
        )
        assert isinstance(fetched, OffsetFetchResponse)
        assert fetched.groups[0].topics[0].partitions[0].committed_offset == LAST_OFFSET
        synced = await lab.client.call(NEXT_COORDINATOR, sync_group(member_id, generation_id=1))
        assert isinstance(synced, SyncGroupResponse)
        assert (synced.error_code, synced.assignment) == (ErrorCode.NONE, b"mine")

    BrokerLab(cluster).run(story)


def test_preloaded_log_is_compressed_and_a_load_reads_fewer_bytes() -> None:
    """A load of a compressed log reads the same records and groups, but fewer bytes.

    So the load takes less time, because this time depends on the numbers of records and bytes.
    """

    async def story(lab: BrokerLab) -> dict[str, int]:
        (row,) = [
            row for row in lab.events(TraceKind.LOAD_COMPLETED) if row.partition == str(PARTITION)
        ]
        detail: dict[str, int] = json.loads(row.detail or "{}")
        return detail

    def load(codec: CompressionType) -> dict[str, int]:
        """Return what a load reads, such as `{"records": 5_000, "groups": 20, "bytes": ...}`."""
        config = msgspec.structs.replace(NO_BALANCING, offsets_topic_compression_codec=codec)
        preload = PreloadSpec(partition=COORDINATOR, commit_records=5_000)
        return BrokerLab(broker_cluster(config=config, preload=(preload,))).run(story)

    plain, compressed = load(CompressionType.NONE), load(CompressionType.GZIP)
    assert compressed["records"] == plain["records"]
    assert compressed["groups"] == plain["groups"]
    assert compressed["bytes"] < plain["bytes"] / 3
