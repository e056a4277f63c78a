"""Fetchers, one per broker, and the leader finder that gives them their partitions.

After each rebalance the *leader finder* asks a broker for the leaders of the consumer's partitions,
and passes each partition to the fetcher of its leader. The fetcher sends one Fetch after the other,
and puts the records into the partition's queue; if the queue is full, it waits. When a broker does
not answer or is not the leader, its fetcher passes partitions back to the leader finder.

A partition is passed around as its PartitionTopicInfo (called `info` below). If
`info.fetched_offset` is INVALID_OFFSET, the fetcher first asks for the beginning or the end of the
log, as `auto.offset.reset` says.

Source: Kafka 1.1 `ConsumerFetcherManager`, `ConsumerFetcherThread`, `AbstractFetcherThread`; rules
ZK-31 and ZK-34 of docs/kafka/ZOOKEEPER_CONSUMER.md.
DEVIATION: one request asks for the first offsets of all partitions that need one; Kafka sends one
request for each partition.
"""

from collections.abc import Sequence

from cluster.client.net.futures import Wakeup
from cluster.client.net.retries import MS
from cluster.client.zookeeper_consumer.broker_channel import BrokerChannel
from cluster.client.zookeeper_consumer.member import ZooKeeperMember
from cluster.client.zookeeper_consumer.streams import (
    INVALID_OFFSET,
    Chunk,
    Interrupt,
    PartitionTopicInfo,
)
from cluster.zookeeper.client import KeeperException
from protocol.causes import PositionCause
from protocol.config import ZooKeeperConsumerConfig
from protocol.errors import ErrorCode
from protocol.ids import BrokerId, TopicPartition
from protocol.messages.discovery import MetadataRequest, MetadataResponse
from protocol.messages.log import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    PartitionData,
)

_Infos = dict[TopicPartition, PartitionTopicInfo]
"""Some of the consumer's partitions, each with its info."""


class FetcherManager:
    """The fetchers of one connector. Each rebalance stops and starts them."""

    def __init__(self, member: ZooKeeperMember) -> None:
        self._member = member
        self._run: _FetchRun | None = None

    def start(self, infos: Sequence[PartitionTopicInfo]) -> None:
        """Begin to fetch the partitions of `infos`. The leader finder first finds their leaders."""
        self._run = _FetchRun(self._member, infos)

    async def stop(self) -> None:
        """Stop every fetcher; open requests are given up."""
        run, self._run = self._run, None
        if run is not None:
            await run.stop()


class _FetchRun:
    """The leader finder and the fetchers, from one start to the next stop."""

    def __init__(self, member: ZooKeeperMember, infos: Sequence[PartitionTopicInfo]) -> None:
        self.member = member
        self.config: ZooKeeperConsumerConfig = member.config
        self.interrupt = Interrupt()
        """Set by `stop`; ends the leader finder."""
        # Partitions for which the leader finder has no fetcher yet.
        self._no_leader: _Infos = {info.partition: info for info in infos}
        # Wakes the leader finder while `_no_leader` is empty.
        self._found = Wakeup(member.host)
        self._fetchers: dict[BrokerId, _Fetcher] = {}
        member.host.spawn(self._find_leaders(), name="leader-finder-thread")

    def has_no_leader(self, info: PartitionTopicInfo) -> None:
        """Pass a partition back to the leader finder, which looks for its leader again."""
        self._no_leader[info.partition] = info
        self._found.set()

    async def stop(self) -> None:
        """Interrupt everything, and wait until every fetcher has ended."""
        self.interrupt.set()
        self._found.set()
        for fetcher in self._fetchers.values():
            fetcher.interrupt()
        for fetcher in self._fetchers.values():
            await fetcher.ended()

    async def _find_leaders(self) -> None:
        """Give each partition to the fetcher of its leader. This coroutine is the leader finder."""
        host = self.member.host
        while not self.interrupt.is_set:
            if not self._no_leader:
                await self._found.wait(None)
                continue
            leaders = await self._leaders()
            if self.interrupt.is_set:
                return
            for partition, leader in leaders.items():
                info = self._no_leader.pop(partition, None)
                if info is not None:
                    self._fetcher(leader).add(info)
            # As in Kafka a pause follows, even after success. If `stop` is called, the interrupt
            # sets `wakes`, which ends the pause.
            self.interrupt.wakes = wakeup = Wakeup(host)
            await wakeup.wait(host.now_us() + self.config.refresh_leader_backoff_ms * MS)
            self.interrupt.wakes = None

    async def _leaders(self) -> dict[TopicPartition, BrokerId]:
        """Return the leaders of the partitions that have no fetcher.

        The brokers are asked in random order, until one answers.
        """
        try:
            brokers = await self.member.read_brokers()
        except KeeperException as error:
            self.member.host.log(f"Failed to find leader: {error}")
            return {}
        self.member.host.rng.shuffle(brokers)
        topics = tuple(dict.fromkeys(partition.topic for partition in self._no_leader))
        for broker in brokers:
            channel = BrokerChannel(self.member.host, broker, self.config.socket_timeout_ms * MS)
            answer = await channel.ask(MetadataRequest(topics=topics), MetadataResponse)
            channel.close()
            # An answer without brokers comes from a broker that has no metadata yet.
            if answer is not None and answer.brokers:
                live = [each.node_id for each in answer.brokers]
                # Partition -> leader, for the partitions that still wait for a fetcher and have a
                # live leader.
                return {
                    partition: BrokerId(entry.leader_id)
                    for topic in answer.topics
                    for entry in topic.partitions
                    if entry.leader_id in live
                    and (partition := TopicPartition(topic.name, entry.partition_index))
                    in self._no_leader
                }
        return {}

    def _fetcher(self, broker: BrokerId) -> "_Fetcher":
        """Return the fetcher of a broker; start one if there is none."""
        fetcher = self._fetchers.get(broker)
        if fetcher is None:
            fetcher = self._fetchers[broker] = _Fetcher(self, broker)
        return fetcher


class _Fetcher:
    """Fetches the partitions that one broker leads, one request after the other."""

    def __init__(self, run: _FetchRun, broker: BrokerId) -> None:
        member = run.member
        self._run = run
        self._host = member.host
        self._config = run.config
        self._infos: _Infos = {}
        self._channel = BrokerChannel(member.host, broker, run.config.socket_timeout_ms * MS)
        self._added = Wakeup(member.host)
        self._interrupt = Interrupt()
        self._has_ended = False
        self._ended = Wakeup(member.host)
        member.host.spawn(self._fetch_all(), name=f"ConsumerFetcherThread-{broker}")

    def add(self, info: PartitionTopicInfo) -> None:
        """Fetch one more partition."""
        self._infos[info.partition] = info
        self._added.set()

    def interrupt(self) -> None:
        """Make the fetcher end at once, and give up its request in flight.

        If the fetcher waited for the answer, the member's rebalance would be late by a random time
        of up to fetch.wait.max.ms. With eight members, claims of partitions would then conflict
        whenever a member joins. When we measured Kafka's consumer, only one join of three had a
        conflict.
        """
        self._interrupt.set()
        self._added.set()
        self._channel.close()

    async def ended(self) -> None:
        """Wait until the fetcher has ended."""
        while not self._has_ended:
            await self._ended.wait(None)

    async def _fetch_all(self) -> None:
        """Fetch until interrupted. If the broker does not answer, give its partitions back."""
        while not self._interrupt.is_set:
            if not self._infos:
                await self._added.wait(None)
                continue
            missing = [
                info for info in self._infos.values() if info.fetched_offset == INVALID_OFFSET
            ]
            if missing:
                await self._reset(missing)
            elif not await self._fetch() and not self._interrupt.is_set:
                self._give_back(list(self._infos.values()))  # a copy: `_give_back` shrinks `_infos`
        self._channel.close()
        self._has_ended = True
        self._ended.set()

    async def _fetch(self) -> bool:
        """Fetch once and put the records into the queues; False if the broker did not answer."""
        by_topic: dict[str, list[FetchPartition]] = {}
        for partition, info in self._infos.items():
            by_topic.setdefault(partition.topic, []).append(
                FetchPartition(
                    partition=partition.partition,
                    fetch_offset=info.fetched_offset,
                    partition_max_bytes=self._config.fetch_message_max_bytes,
                )
            )
        answer = await self._channel.ask(
            FetchRequest(
                max_wait_ms=self._config.fetch_wait_max_ms,
                min_bytes=self._config.fetch_min_bytes,
                topics=tuple(
                    FetchTopic(topic=topic, partitions=tuple(entries))
                    for topic, entries in by_topic.items()
                ),
            ),
            FetchResponse,
        )
        if answer is None or answer.error_code is not ErrorCode.NONE:
            return False
        for topic in answer.responses:
            for data in topic.partitions:
                fetched = self._infos.get(TopicPartition(topic.topic, data.partition_index))
                if fetched is not None and not self._interrupt.is_set:
                    await self._take(fetched, data)
        return True

    async def _take(self, info: PartitionTopicInfo, data: PartitionData) -> None:
        """Put a partition's records into its queue, or react to its error."""
        match data.error_code:
            case ErrorCode.NONE:
                # A broker returns whole batches, so there may be batches, or records in the first
                # batch, before the fetched offset.
                new_batches = [
                    batch for batch in data.records if batch.last_offset >= info.fetched_offset
                ]
                if new_batches:
                    first = max(new_batches[0].base_offset, info.fetched_offset)
                    chunk = Chunk(info, first, new_batches[-1].last_offset)
                    # False if the fetcher was interrupted while the queue was full.
                    if await info.queue.put(chunk, self._interrupt):
                        info.fetched_offset = chunk.last + 1
            case ErrorCode.OFFSET_OUT_OF_RANGE:
                info.fetched_offset = INVALID_OFFSET
            case _:
                self._give_back([info])

    async def _reset(self, infos: Sequence[PartitionTopicInfo]) -> None:
        """Set each position to the offset that `auto.offset.reset` demands.

        Source: Kafka 1.1 `handleOffsetOutOfRange`.
        """
        is_smallest = self._config.auto_offset_reset == "smallest"
        timestamp = EARLIEST_TIMESTAMP if is_smallest else LATEST_TIMESTAMP
        by_topic: dict[str, list[ListOffsetsPartition]] = {}
        for info in infos:
            by_topic.setdefault(info.partition.topic, []).append(
                ListOffsetsPartition(partition_index=info.partition.partition, timestamp=timestamp)
            )
        answer = await self._channel.ask(
            ListOffsetsRequest(
                topics=tuple(
                    ListOffsetsTopic(name=topic, partitions=tuple(entries))
                    for topic, entries in by_topic.items()
                )
            ),
            ListOffsetsResponse,
        )
        offset_by_partition: dict[TopicPartition, int] = {}
        if answer is not None:
            offset_by_partition = {
                TopicPartition(topic.name, entry.partition_index): entry.offset
                for topic in answer.topics
                for entry in topic.partitions
                if entry.error_code is ErrorCode.NONE
            }
        cause = PositionCause.EARLIEST if is_smallest else PositionCause.LATEST
        for info in infos:
            offset = offset_by_partition.get(info.partition)
            if offset is None:
                self._give_back([info])
            else:
                info.fetched_offset = info.consumed_offset = offset
                self._run.member.trace_position(info.partition, offset, cause)

    def _give_back(self, infos: Sequence[PartitionTopicInfo]) -> None:
        """Return partitions to the leader finder.

        This broker does not lead these partitions, or does not answer.
        """
        for info in infos:
            if self._infos.pop(info.partition, None) is not None:
                self._run.has_no_leader(info)
