"""Groups and offsets in compressed records: written, replicated, cleaned and loaded.

The setting is offsets.topic.compression.codec. `lab` is a cluster of three brokers in virtual time.
A preload is commit records that are in an offsets partition (one of `__consumer_offsets`) before
the run. `ask_as_admin(move_leader, ...)` makes another broker the leader of a partition. That
broker then loads the partition's groups, in less than the second for which the test waits.
"""

import json

import msgspec
import pytest

from cluster.client.admin.orders import move_leader
from cluster.spec import PreloadSpec
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

COORDINATOR = partition_for(GROUP, 3)
"""The group's offsets partition, and also the broker that leads it: partition n is on broker n."""
PARTITION = offsets_partition(COORDINATOR)
NEXT = BrokerId((COORDINATOR + 1) % 3)
# The first of 99 names whose offsets partition is COORDINATOR. A third of them has this partition.
OTHER = next(
    name
    for name in (f"other-{number}" for number in range(99))
    if partition_for(name, 3) == COORDINATOR
)
"""A second group in the offsets partition of GROUP."""


@pytest.mark.parametrize("codec", list(CompressionType))
def test_groups_and_offsets_survive_a_failover_in_every_codec(codec: CompressionType) -> None:
    """The next coordinator loads records that the first one wrote, from a log that was cleaned.

    A cleaning removes each record whose key has a newer record. Two groups share the partition:
    GROUP has a member with an assignment, OTHER commits offsets.
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
    cluster = msgspec.structs.replace(
        base,
        topics=tuple(
            msgspec.structs.replace(
                topic, config=msgspec.structs.replace(topic.config, cleanup_policy="compact")
            )
            if topic.name == CONSUMER_OFFSETS
            else topic
            for topic in base.topics
        ),
    )

    async def story(lab: BrokerLab) -> None:
        # The first JoinGroup returns a member id. The second one joins with this id (KIP-394).
        first = await lab.client.call(COORDINATOR, join_group())
        assert isinstance(first, JoinGroupResponse)
        joined = await lab.client.call(COORDINATOR, join_group(first.member_id))
        assert isinstance(joined, JoinGroupResponse)
        assignment = sync_group(
            first.member_id, generation_id=1, assignments={first.member_id: b"mine"}
        )
        assert isinstance(await lab.client.call(COORDINATOR, assignment), SyncGroupResponse)

        for offset in range(1, 60):
            answer = await lab.client.commit(COORDINATOR, OTHER, offset, partitions=(0, 1, 2))
            assert answer.topics[0].partitions[0].error_code is ErrorCode.NONE
        await lab.seconds(2)  # the cleaner runs every 0.5 s

        log = lab.storages[broker_name(NEXT)].log(PARTITION)
        assert {log.batch(index).compression for index in range(len(log))} == {codec}
        assert lab.events(TraceKind.LOG_CLEANED, broker_name(NEXT))

        await lab.runtime.ask_as_admin(move_leader, PARTITION, NEXT)
        await lab.seconds(1)
        fetched = await lab.client.call(NEXT, offset_fetch((ORDERS, 1), group_id=OTHER))
        assert isinstance(fetched, OffsetFetchResponse)
        assert fetched.groups[0].topics[0].partitions[0].committed_offset == 59
        synced = await lab.client.call(NEXT, sync_group(first.member_id, generation_id=1))
        assert isinstance(synced, SyncGroupResponse)
        assert (synced.error_code, synced.assignment) == (ErrorCode.NONE, b"mine")

    BrokerLab(cluster).run(story)


def test_preloaded_log_is_compressed_and_a_load_reads_fewer_bytes() -> None:
    """A load of a compressed log reads fewer bytes, but as many records and groups.

    The time of a load depends on its records and its bytes.
    """
    details_by_codec = {}
    for codec in (CompressionType.NONE, CompressionType.GZIP):
        config = msgspec.structs.replace(NO_BALANCING, offsets_topic_compression_codec=codec)
        preload = PreloadSpec(partition=COORDINATOR, commit_records=5_000)

        async def story(lab: BrokerLab) -> dict[str, int]:
            (row,) = [
                row
                for row in lab.events(TraceKind.LOAD_COMPLETED)
                if row.partition == str(PARTITION)
            ]
            detail: dict[str, int] = json.loads(row.detail or "{}")
            return detail

        lab = BrokerLab(broker_cluster(config=config, preload=(preload,)))
        details_by_codec[codec] = lab.run(story)
    plain = details_by_codec[CompressionType.NONE]
    compressed = details_by_codec[CompressionType.GZIP]
    assert (compressed["records"], compressed["groups"]) == (plain["records"], plain["groups"])
    assert compressed["bytes"] < plain["bytes"] / 3
