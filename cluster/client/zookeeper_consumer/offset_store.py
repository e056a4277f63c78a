"""OffsetStore: stores a consumer's offsets in ZooKeeper, in Kafka, or in both.

In ZooKeeper the offset of a partition is the content of a znode. Neither ZooKeeper nor Kafka checks
whether the consumer that commits is the partition's owner, so the last writer wins (ZK-60, ZK-63).
A value that has not changed since this consumer wrote or read it is not written to ZooKeeper again
(ZK-61). Ids such as ZK-61 are rules in docs/kafka/ZOOKEEPER_CONSUMER.md.

Source: Kafka 1.1 `ZookeeperConsumerConnector.commitOffsets`, `fetchOffsets`.
"""

from collections.abc import Mapping, Sequence

from cluster.client.zookeeper_consumer.member import ZooKeeperMember
from cluster.client.zookeeper_consumer.mutex import Mutex
from cluster.client.zookeeper_consumer.offset_manager import OffsetManagerChannel
from cluster.client.zookeeper_consumer.streams import INVALID_OFFSET
from cluster.zookeeper.client import KeeperException
from protocol.causes import PositionCause
from protocol.ids import TopicPartition
from protocol.messages.zookeeper import KeeperError
from protocol.trace import TraceKind


class OffsetStore:
    """Commits and fetches of one connector. Commits run one after the other."""

    def __init__(
        self, member: ZooKeeperMember, offset_manager: OffsetManagerChannel | None
    ) -> None:
        """Store in ZooKeeper, or through `offset_manager` in Kafka."""
        self.acknowledged = 0
        """Number of stored offsets; a commit of three partitions counts as three."""
        self._member = member
        self._offset_manager = offset_manager
        self._lock = Mutex(member.host)
        # What this consumer last wrote to, or read from, the offset znode of each partition.
        self._checkpointed: dict[TopicPartition, int] = {}

    async def commit(self, offsets: Mapping[TopicPartition, int], *, retries: int) -> None:
        """Store `offsets`. A failed request to Kafka is repeated up to `retries` times.

        If the last request fails, too, the method returns without an error. The method may take so
        long that meanwhile other consumers own the partitions (ZK-66).
        """
        if not offsets:
            return
        # For the trace row. The wait for the lock is part of the commit's duration.
        begun_us = self._member.host.now_us()
        async with self._lock:
            if self._offset_manager is None:
                for partition, offset in offsets.items():
                    await self._write(partition, offset, begun_us)
                return
            for attempt in range(1 + retries):
                if attempt > 0:  # as in Kafka, there is no wait after the last attempt
                    await self._member.host.sleep(
                        self._member.config.offsets_channel_backoff_ms * 1_000
                    )
                stored = await self._offset_manager.commit(offsets)
                for partition in stored:
                    self._committed(partition, offsets[partition], "kafka", begun_us)
                    if self._member.config.commits_to_both:
                        await self._write(partition, offsets[partition], begun_us)
                if len(stored) == len(offsets):
                    return

    async def fetch(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the stored offset of each partition; INVALID_OFFSET if none is stored."""
        offsets: dict[TopicPartition, int] = {}
        if self._offset_manager is not None:
            offsets = await self._offset_manager.fetch(partitions)
        if self._offset_manager is None or self._member.config.commits_to_both:
            for partition in partitions:
                stored = await self._read(partition)
                # Kafka takes the larger one of the offsets in ZooKeeper and in Kafka. So a reset of
                # only one of these offsets to an earlier value has no effect (ZK-64).
                offsets[partition] = max(stored, offsets.get(partition, INVALID_OFFSET))
        for partition, offset in offsets.items():
            if offset != INVALID_OFFSET:
                self._member.trace_position(partition, offset, PositionCause.COMMITTED)
        return offsets

    async def _write(self, partition: TopicPartition, offset: int, begun_us: int) -> None:
        """Store an offset in ZooKeeper unless it is unchanged; a failure is logged."""
        if self._checkpointed.get(partition) == offset:
            return
        try:
            await self._member.zk.write(self._member.paths.offset(partition), str(offset))
        except KeeperException as error:
            self._member.host.log(f"commit of {partition} failed: {error}")
            return
        self._checkpointed[partition] = offset
        self._committed(partition, offset, "zookeeper", begun_us)

    async def _read(self, partition: TopicPartition) -> int:
        """Return the offset in ZooKeeper, or INVALID_OFFSET if the znode does not exist."""
        try:
            answer = await self._member.zk.read(self._member.paths.offset(partition))
        except KeeperException as error:
            if error.code is not KeeperError.NoNode:
                raise
            return INVALID_OFFSET
        self._checkpointed[partition] = int(answer.data)
        return int(answer.data)

    def _committed(self, partition: TopicPartition, offset: int, store: str, begun_us: int) -> None:
        """Count and trace one stored offset."""
        self.acknowledged += 1
        self._member.trace(
            TraceKind.ZOOKEEPER_OFFSET_COMMITTED,
            {"store": store, "begun_us": begun_us},
            partition=partition,
            offset=offset,
        )
