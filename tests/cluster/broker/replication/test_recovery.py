"""Brokers that lose power: the data that are lost, the data that remain, and the restart.

A power loss keeps the data that Kafka has flushed to the disk, and the data that the operating
system has written back by itself. All other records are lost. The checkpoint, a small file with the
high watermark of each partition, survives.

`lab` is a cluster of three brokers in virtual time, and `lab.storages` has their disks.
"""

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from cluster.spec import ClusterSpec, PreloadSpec, TopicSpec
from cluster.storage.file_storage import FileStorage
from cluster.storage.recovery_report import report_recoveries
from partition_log.checkpoints import (
    REPLICATION_OFFSET_CHECKPOINT,
    decode_offset_checkpoint,
)
from protocol.config import BrokerConfig, TopicConfig
from protocol.errors import ErrorCode
from protocol.ids import NO_BROKER, TopicPartition, broker_name, offsets_partition
from protocol.trace import TraceKind
from tests.support.builders.partition_logs import batch
from tests.support.harness.brokers import ORDERS, BrokerLab, broker_cluster, values_of
from tests.support.harness.controllers import NO_BALANCING
from tests.support.harness.virtual_hosts import HostLab

P0 = TopicPartition(ORDERS, 0)
ALL_BROKERS = {0, 1, 2}


async def lose_power(lab: BrokerLab, broker_id: int) -> None:
    """End a broker by a power loss, which removes its unflushed data."""
    await lab.runtime.power_loss(broker_name(broker_id))


def single_replica_cluster(
    config: BrokerConfig, *, flush_messages: int | None = None
) -> ClusterSpec:
    """Return a cluster in which each partition of orders has one replica: partition n on broker n.

    `config` has the settings of the brokers, and `flush_messages` is the topic's setting
    flush.messages.
    """
    orders = TopicSpec(
        name=ORDERS,
        partitions=3,
        replication_factor=1,
        config=TopicConfig(flush_messages=flush_messages),
    )
    return replace(broker_cluster(config=config), topics=(orders,))


@pytest.mark.parametrize(
    ("config", "flush_messages", "surviving_values"),
    [
        # NO_BALANCING is the default configuration, except that leaders stay where they are.
        (NO_BALANCING, None, []),
        (
            BrokerConfig(auto_leader_rebalance_enable=False, log_flush_interval_messages=1),
            None,
            [b"a", b"b"],
        ),
        (NO_BALANCING, 1, [b"a", b"b"]),
        (NO_BALANCING, 2, [b"a", b"b"]),
    ],
    ids=["default", "log.flush.interval.messages=1", "flush.messages=1", "flush.messages=2"],
)
def test_flushed_records_of_a_single_replica_survive_a_power_loss(
    config: BrokerConfig, flush_messages: int | None, surviving_values: list[bytes]
) -> None:
    """By default a broker does not flush its records, so a power loss loses "a" and "b".

    No other replica has "a" and "b" here. So they survive only if a setting has caused a flush.
    With flush.messages=2 the second record causes a flush of both records.
    """

    async def story(lab: BrokerLab) -> None:
        for value in (b"a", b"b"):
            assert (await lab.client.produce(0, value)).error_code is ErrorCode.NONE

        await lose_power(lab, 0)
        await lab.until(lambda status: status.partitions[P0].leader == NO_BROKER)
        await lab.restart(0)
        await lab.until(lambda status: status.partitions[P0].leader == 0)
        await lab.seconds(1)  # broker 0 learns of its election

        assert values_of(await lab.client.fetch(0)) == surviving_values
        assert (await lab.client.produce(0, b"new")).base_offset == len(surviving_values)

    BrokerLab(single_replica_cluster(config, flush_messages=flush_messages)).run(story)


def test_written_back_records_of_a_single_replica_survive_a_power_loss() -> None:
    """Linux writes data to the disk after 30 s. A power loss destroys only younger records."""

    async def story(lab: BrokerLab) -> None:
        await lab.client.produce(0, b"old")
        await lab.seconds(36)  # longer than 30 s and the 5 s between two checks of the system
        await lab.client.produce(0, b"young")
        await lose_power(lab, 0)
        await lab.seconds(10)  # the broker's session of 9 s ends
        await lab.restart(0)
        await lab.until(lambda status: status.partitions[P0].leader == 0)
        await lab.seconds(1)  # broker 0 learns of its election
        assert values_of(await lab.client.fetch(0)) == [b"old"]
        (recovered,) = lab.events(TraceKind.LOG_RECOVERED)
        assert recovered.offset == 1  # the log end after the loss of the second record

    BrokerLab(single_replica_cluster(NO_BALANCING)).run(story)


def test_high_watermark_checkpoint_beyond_the_log_end_is_lowered() -> None:
    """The checkpoint survives the power loss, but the records below its high watermark do not.

    When the broker follows the new leader, it gets the records and the high watermark again.
    """

    async def story(lab: BrokerLab) -> None:
        await lab.client.produce(0, b"a", b"b")
        await lab.seconds(6)  # longer than the interval of the checkpoint, 5 s
        await lose_power(lab, 0)
        await lab.restart(0)
        disk = lab.storages[broker_name(0)]
        content = disk.read_checkpoint(REPLICATION_OFFSET_CHECKPOINT) or b""
        assert decode_offset_checkpoint(content)[P0] == 2
        assert len(disk.log(P0)) == 0

        # In these 6 s the broker writes the checkpoint again, with the log end 0 as high watermark.
        # It does not follow a leader yet, because it can register again only when its old session
        # of 9 s has ended.
        await lab.seconds(6)
        content = disk.read_checkpoint(REPLICATION_OFFSET_CHECKPOINT) or b""
        assert decode_offset_checkpoint(content)[P0] == 0

        await lab.until(lambda status: status.partitions[P0].leader == 1)
        await lab.until(lambda status: set(status.partitions[P0].isr) == ALL_BROKERS)
        await lab.seconds(6)
        content = disk.read_checkpoint(REPLICATION_OFFSET_CHECKPOINT) or b""
        assert decode_offset_checkpoint(content)[P0] == 2

    BrokerLab(broker_cluster()).run(story)


def test_preloaded_commits_are_flushed_from_the_start() -> None:
    """Preloaded records are on the disks before the run, so an early power loss keeps them."""

    async def story(lab: BrokerLab) -> None:
        await lose_power(lab, 1)
        await lab.restart(1)
        # 2,000 records in batches of 500 are four batches.
        assert len(lab.storages[broker_name(1)].log(offsets_partition(1))) == 4
        assert lab.events(TraceKind.LOG_RECOVERED, "broker-1") == []

    preload = PreloadSpec(partition=1, commit_records=2_000)
    BrokerLab(broker_cluster(preload=(preload,))).run(story)


def test_torn_tail_of_a_file_is_traced_and_logged(tmp_path: Path) -> None:
    """A kill in the middle of a write may leave a part of a batch at the end of a file.

    When the broker starts again, it removes this torn tail and reports its number of bytes.
    """
    FileStorage(tmp_path).log(P0).append(batch("a"))
    path = tmp_path / f"{P0}.log"
    path.write_bytes(path.read_bytes() + b"torn")

    lab = HostLab()
    host = lab.host("broker-0", incarnation=1)
    host.storage = FileStorage(tmp_path)
    report_recoveries(host)
    (row,) = lab.rows
    assert (row.kind, row.partition, row.offset) == (TraceKind.LOG_RECOVERED, "orders-0", 1)
    assert (row.cause, json.loads(row.detail or "{}")) == (
        "torn tail",
        {"cut_bytes": 4, "cut_batches": None},
    )
