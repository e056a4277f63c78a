"""The rebalance of one consumer on ZooKeeper, which it repeats until an attempt succeeds.

There is no group coordinator. In an attempt, the consumer:

1. gives up all its partitions and stops fetching,
2. reads which consumers and topics the group has (its *view*),
3. computes its share of the partitions from this view,
4. reads the committed offsets of its share,
5. claims each partition by creating its owner znode. If another consumer has claimed one of the
   partitions, this consumer deletes all its new znodes, and the attempt has failed.

All this consists of single operations of ZooKeeper. Other consumers may act between two operations.
The document docs/kafka/ZOOKEEPER_CONSUMER.md describes the steps in more detail; names such as R3
and ZK-33 in this module are steps and rules there.

The *registry* has the partitions that the consumer believes it owns.

Source: Kafka 1.1 `ZookeeperConsumerConnector.ZKRebalancerListener`; ZK-38 to ZK-50.
"""

from collections.abc import Callable
from zlib import crc32

from cluster.client.zookeeper_consumer.assignment import GroupView, assign
from cluster.client.zookeeper_consumer.fetchers import FetcherManager
from cluster.client.zookeeper_consumer.member import ZooKeeperMember
from cluster.client.zookeeper_consumer.mutex import Mutex
from cluster.client.zookeeper_consumer.offset_store import OffsetStore
from cluster.client.zookeeper_consumer.paths import (
    has_filter,
    partitions_in_znode,
    streams_of,
    topic_path,
)
from cluster.client.zookeeper_consumer.streams import ChunkQueue, PartitionTopicInfo
from cluster.zookeeper.bootstrap import BROKER_TOPICS
from cluster.zookeeper.client import KeeperException
from cluster.zookeeper.zk_client import ListenerFailed
from protocol.ids import TopicPartition
from protocol.messages.zookeeper import KeeperError
from protocol.trace import TraceKind

_MS = 1_000  # microseconds in a millisecond


class ConsumerRebalanceFailedException(ListenerFailed):
    """No attempt of a rebalance succeeded (ZK-38)."""


class Rebalancer:
    """Claims a consumer's share of the partitions, and knows which partitions the consumer owns.

    `queue_of` returns the queue for a thread id and a topic, and `queues` returns all queues. Once
    `is_shutting_down` returns True, no further attempt begins.
    """

    def __init__(
        self,
        member: ZooKeeperMember,
        fetchers: FetcherManager,
        offsets: OffsetStore,
        lock: Mutex,
        *,
        queue_of: Callable[[str, str], ChunkQueue],
        queues: Callable[[], tuple[ChunkQueue, ...]],
        is_shutting_down: Callable[[], bool],
    ) -> None:
        self.registry: dict[TopicPartition, PartitionTopicInfo] = {}
        """The partitions that the consumer believes it owns.

        In ZooKeeper another consumer may be their owner (ZK-33)."""
        self.is_settled = False
        """True if the last attempt has succeeded."""
        self.finds_no_broker = False
        """True if the last attempt has found no broker."""
        self._member = member
        self._fetchers = fetchers
        self._offsets = offsets
        self._lock = lock
        self._queue_of = queue_of
        self._queues = queues
        self._is_shutting_down = is_shutting_down
        self._reading: tuple[TopicPartition, ...] = ()
        """The partitions that are fetched: normally the partitions in the registry.

        When the session has expired, the registry is empty, but the fetchers go on until the next
        attempt stops them."""
        # Number of partitions in the present attempt that another consumer owned.
        self._conflicts = 0

    @property
    def reading(self) -> tuple[TopicPartition, ...]:
        """Partitions that are fetched and processed."""
        return self._reading

    def reset_state(self) -> None:
        """Empty the registry, because the session has expired; the fetchers go on (ZK-55)."""
        self.registry = {}

    async def synced_rebalance(self, during: str) -> None:
        """Try to own this consumer's share, `rebalance.max.retries` times.

        `during` is "starting", "running" or "new session", for the trace (the run's record of
        events).

        Raises: ConsumerRebalanceFailedException after the last attempt.
        """
        config = self._member.config
        async with self._lock:
            for attempt in range(config.rebalance_max_retries):
                if self._is_shutting_down():
                    return
                if await self._attempt(attempt):
                    return
                # Normally the attempt has closed the fetchers already. As in Kafka (section 6),
                # they are closed again.
                await self.close_fetchers()
                await self._member.host.sleep(config.backoff_ms * _MS)
        self._member.trace(
            TraceKind.ZOOKEEPER_GAVE_UP,
            {"attempts": config.rebalance_max_retries, "during": during},
        )
        raise ConsumerRebalanceFailedException(
            f"{self._member.consumer_id} can't rebalance after {config.rebalance_max_retries} "
            "retries"
        )

    async def close_fetchers(self) -> None:
        """Stop fetchers, clear the queues, commit what was consumed (R3)."""
        await self._fetchers.stop()
        for queue in self._queues():
            queue.clear()
        if self._reading:
            # An empty registry means that the session has expired. Then the partitions are lost.
            lost = not self.registry
            kind = TraceKind.PARTITIONS_LOST if lost else TraceKind.PARTITIONS_REVOKED
            self._member.trace(kind, {"partitions": [str(each) for each in self._reading]})
            self._reading = ()
        if self._member.config.auto_commit_enable:
            await self.commit(retries=0)

    async def commit(self, *, retries: int) -> None:
        """Commit the offset that each partition in the registry has reached.

        A partition with the offset -1 is left out: nothing of it was read, and no offset was
        stored.
        """
        consumed = {
            partition: info.consumed_offset
            for partition, info in self.registry.items()
            if info.consumed_offset >= 0
        }
        await self._offsets.commit(consumed, retries=retries)

    async def _attempt(self, attempt: int) -> bool:
        """Make one attempt and return True if it succeeded. A KeeperException is only logged."""
        member = self._member
        # In the rows of an attempt, the column `offset` has the last zxid that the client has seen.
        member.trace(
            TraceKind.ZOOKEEPER_ATTEMPT_STARTED,
            {"attempt": attempt},
            offset=member.zk.last_zxid,
        )
        self._conflicts = 0
        self.is_settled = False
        failure: str | None = None
        try:
            await member.read_brokers()  # R0
            done = await self._rebalance()
        except KeeperException as error:
            member.host.log(f"exception during rebalance: {error}")
            failure = str(error)
            done = False
        self.is_settled = done
        member.trace(
            TraceKind.ZOOKEEPER_ATTEMPT_ENDED,
            {"attempt": attempt, "done": done, "conflicts": self._conflicts},
            cause_text=failure,
        )
        return done

    async def _rebalance(self) -> bool:
        """Do the steps R1 to R11 of an attempt; return True if it succeeded."""
        member = self._member
        await self._read_streams(member.consumer_id)  # R1: fails if the registration is gone
        self.finds_no_broker = not await member.read_brokers()  # R2
        if self.finds_no_broker:
            return True  # as in Kafka: a success that changes nothing (ZK-40)
        await self.close_fetchers()  # R3
        await self._release()  # R5 (R4 is a callback, which this application does not have)
        view = await self._read_view()  # R6
        # R7.
        assigned = assign(member.config.partition_assignment_strategy, view, member.consumer_id)
        member.trace(
            TraceKind.ZOOKEEPER_VIEW,
            {
                "members": sorted(view.streams),
                "partitions": [str(partition) for partition in assigned],
            },
            offset=member.zk.last_zxid,
        )
        # R8. As in Kafka, the offsets are read before the claim. So this may happen (ZK-44):
        # 1. This consumer reads the offset.
        # 2. The old owner commits a later offset, and releases the partition.
        # 3. This consumer claims the partition, and begins at the older offset: it processes
        #    records again.
        offsets = await self._offsets.fetch(tuple(assigned))
        # The shutdown waits for this rebalance and then closes the session, which deletes every
        # claim.
        if self._is_shutting_down():
            return False
        if not await self._claim(assigned):  # R9, R10
            return False

        self.registry = {
            partition: PartitionTopicInfo(
                partition,
                self._queue_of(thread, partition.topic),
                consumed_offset=offsets[partition],
                fetched_offset=offsets[partition],
            )
            for partition, thread in assigned.items()
        }
        self._reading = tuple(self.registry)
        member.trace(
            TraceKind.PARTITIONS_ASSIGNED,
            {"partitions": [str(partition) for partition in self._reading]},
        )
        self._fetchers.start(tuple(self.registry.values()))  # R11
        return True

    async def _release(self) -> None:
        """Delete the owner znode of each partition in the registry.

        The znode is deleted even if another consumer has created it. Rules: ZK-08, ZK-74.
        """
        for partition in tuple(self.registry):
            await self._member.zk.delete(self._member.paths.owner(partition))
        self.registry = {}

    async def _read_view(self) -> GroupView:
        """Read all registrations and topics, one after the other.

        The group may change between two reads. So the view may be a state that the group never had
        (ZK-42).

        Source: Kafka 1.1 `AssignmentContext`, which reads the consumer's own registration twice and
        lists the consumers once more at its end.
        """
        member = self._member
        zk, paths = member.zk, member.paths
        await self._read_streams(member.consumer_id)  # as in Kafka; the result is not used
        streams: dict[str, dict[str, int]] = {}
        for consumer_id in await zk.children(paths.ids):
            streams[consumer_id] = await self._read_streams(consumer_id)
        # Sorted, because the order of a set of strings differs between runs.
        topics = sorted({topic for each in streams.values() for topic in each})
        partitions = {
            topic: partitions_in_znode(topic, (await zk.read(topic_path(topic))).data)
            for topic in topics
        }
        await zk.children(paths.ids)  # as in Kafka; the result is not used
        return GroupView(streams=streams, partitions=partitions)

    async def _read_streams(self, consumer_id: str) -> dict[str, int]:
        """Read a consumer's registration, and return its number of streams for each topic."""
        zk = self._member.zk
        registered = (await zk.read(self._member.paths.member(consumer_id))).data
        topics = await zk.children(BROKER_TOPICS) if has_filter(registered) else ()
        return streams_of(registered, topics)

    async def _claim(self, assigned: dict[TopicPartition, str]) -> bool:
        """Create the owner znode of every partition; return True if there was no conflict.

        After a conflict the znodes that were created are deleted.
        """
        zk, paths = self._member.zk, self._member.paths
        created: list[TopicPartition] = []
        for partition in sorted(assigned, key=self._claim_order):
            thread = assigned[partition]
            path = paths.owner(partition)
            try:
                await zk.create_with_parents(path, thread, ephemeral=True)
            except KeeperException as error:
                if error.code is not KeeperError.NodeExists:
                    raise
                owner = await self._owner(path)
                if owner != thread:
                    self._conflicts += 1
                    self._member.trace(
                        TraceKind.ZOOKEEPER_CLAIM_CONFLICT,
                        {"owner": owner},
                        partition=partition,
                        offset=zk.last_zxid,
                    )
                    continue  # as in Kafka, claim the remaining partitions too
            created.append(partition)
        if not self._conflicts:
            return True
        for partition in created:
            await zk.delete(paths.owner(partition))
        return False

    async def _owner(self, path: str) -> str | None:
        """Return the thread id in an owner znode; None if the znode was deleted meanwhile.

        As in Kafka, the caller takes a znode with its own thread id for its own, even if another
        session has created it (ZK-46).
        """
        try:
            return (await self._member.zk.read(path)).data
        except KeeperException as error:
            if error.code is not KeeperError.NoNode:
                raise
            return None

    def _claim_order(self, partition: TopicPartition) -> int:
        """Return a sort key for the order in which this consumer claims its partitions (ZK-48).

        In Kafka this is the order of a hash map, which differs between consumers. So if two
        consumers claim the same partitions, each consumer may be the first at some partitions.
        """
        return crc32(f"{self._member.consumer_id} {partition}".encode())
