"""Fetches of followers: one coroutine for each broker from which this broker follows partitions.

The coroutine sends one Fetch after the other to its *source*, the broker that leads the partitions.
Each Fetch is for all partitions that this broker follows from that source. The source answers when
there are new records, or after replica.fetch.wait.max.ms.

Most partitions have nothing new in most answers. This is the busiest code of a broker, so it saves
work for these partitions. The part of a request about one partition (its *position*: fetch offset
and leader epoch) is created once and used until it moves. An answer is compared by identity with
the previous one: in virtual time messages are passed by reference, and a leader that has nothing
new for a partition sends the same object again. An answer for a partition has *news* if the answer
has records, an error, a diverging epoch (which makes the follower truncate its log), or another
high watermark than the follower.

Source: Kafka `ReplicaFetcherThread`, `AbstractFetcherThread`, `ReplicaFetcherManager`
(num.replica.fetchers 1).
DEVIATION: each request names all partitions; there are no fetch sessions.
"""

from asyncio import Future
from collections.abc import Callable

from cluster.broker.channels import SETUP_TIMEOUT_US, BrokerIdentity
from cluster.host.connection_purposes import REPLICA_FETCHER
from cluster.host.host import Connection, Disconnected, Host, RequestTimedOut
from partition_log.outcomes import FollowerFetchResult
from partition_log.replica import Partition
from protocol.config import BrokerConfig
from protocol.errors import ErrorCode, SimulationError
from protocol.ids import BrokerId, TopicPartition, broker_name
from protocol.messages.log import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)

_STOPS_FETCHING = (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_SERVER_ERROR)
"""Errors after which the follower stops fetching, because it would get them again and again."""

FetchResultHandler = Callable[[Partition, FollowerFetchResult], None]
"""Called with the Partition of an answer that has news, and with the effects of the answer."""


class ReplicaFetchers:
    """The fetchers of a broker, one for each source. `on_result` gets their results."""

    def __init__(
        self,
        host: Host,
        identity: BrokerIdentity,
        config: BrokerConfig,
        on_result: FetchResultHandler,
    ) -> None:
        self._host = host
        self._identity = identity
        self._config = config
        self._on_result = on_result
        self._fetchers: dict[BrokerId, ReplicaFetcher] = {}
        """Source broker -> its fetcher, which stays even while it has no partition to fetch."""
        self._sources: dict[TopicPartition, ReplicaFetcher] = {}
        """The fetcher of each followed partition."""

    def follow(self, partition: Partition) -> None:
        """Begin to fetch `partition` from the broker that leads it in the replica's leader epoch.

        The first Fetch begins at the end of the replica's log.
        """
        self.stop(partition.topic_partition)  # the previous leader may be another source
        source = partition.leader_id
        fetcher = self._fetchers.get(source)
        if fetcher is None:
            fetcher = ReplicaFetcher(
                self._host, self._identity, self._config, source, self._on_result
            )
            self._fetchers[source] = fetcher
            self._host.spawn(fetcher.run(), name=f"replica-fetcher-{source}")
        self._sources[partition.topic_partition] = fetcher
        fetcher.add(partition)

    def stop(self, partition: TopicPartition) -> None:
        """Stop fetching `partition`; an answer for it that is in flight will be ignored."""
        fetcher = self._sources.pop(partition, None)
        if fetcher is not None:
            fetcher.remove(partition)

    def source_of(self, partition: TopicPartition) -> BrokerId | None:
        """Return the broker from which `partition` is fetched; None if it is not fetched."""
        fetcher = self._sources.get(partition)
        return None if fetcher is None else fetcher.source


class ReplicaFetcher:
    """Fetches from one broker, `source`, until this broker stops.

    The docstring of the module describes how.
    """

    def __init__(
        self,
        host: Host,
        identity: BrokerIdentity,
        config: BrokerConfig,
        source: BrokerId,
        on_result: FetchResultHandler,
    ) -> None:
        self._host = host
        self._identity = identity
        self._config = config
        self.source = source
        self._on_result = on_result
        self._backoff_us = config.replica_fetch_backoff_ms * 1_000
        self._timeout_us = config.replica_socket_timeout_ms * 1_000
        self._topics: dict[str, dict[int, Partition]] = {}
        """The partitions to fetch, by topic and partition index."""
        self._positions: dict[str, FetchTopic] = {}
        """Topic -> its part of the request, until one of its positions moves."""
        self._known: dict[str, dict[int, FetchPartition]] = {}
        """Topic and partition -> the position, until it moves.

        When a topic's part of the request must be built anew, these positions are used again."""
        self._seen: dict[str, tuple[PartitionData | None, ...]] = {}
        """Topic -> the last answer of each partition, with None in place of an answer with news."""
        self._delayed_until_us: dict[TopicPartition, int] = {}
        """Partition that is not fetched after an error -> the time at which it is fetched again."""
        self._connection: Connection | None = None
        self._wakeup: Future[None] | None = None
        """The future with which `run` waits; None while it does not wait."""

    def add(self, partition: Partition) -> None:
        """Fetch `partition` with the next request; a request in flight is not interrupted."""
        topic, index = partition.topic_partition
        self._topics.setdefault(topic, {})[index] = partition
        self._ask_anew(topic)
        self._delayed_until_us.pop(partition.topic_partition, None)
        if self._wakeup is not None:
            _wake(self._wakeup)

    def remove(self, partition: TopicPartition) -> None:
        """Leave `partition` out of all later requests."""
        partitions = self._topics.get(partition.topic)
        if partitions is not None and partitions.pop(partition.partition, None) is not None:
            self._ask_anew(partition.topic)
            self._delayed_until_us.pop(partition, None)
            if not partitions:
                del self._topics[partition.topic]

    async def run(self) -> None:
        """Fetch without end; a failed request delays all partitions by replica.fetch.backoff.ms."""
        while True:
            topics = self._next_topics()
            if not topics:
                await self._wait()
                continue
            try:
                response = await self._fetch(topics)
            except (Disconnected, RequestTimedOut):
                self._delay_all()
                continue
            self._handle(topics, response.responses)

    async def _wait(self) -> None:
        """Wait until a delay ends or a partition is added.

        Source: Kafka AbstractFetcherThread.maybeFetch, whose wait addPartitions ends.
        """
        host = self._host
        self._wakeup = host.create_future()
        timer = None
        if self._delayed_until_us:
            delay_us = min(self._delayed_until_us.values()) - host.now_us()
            timer = host.after(delay_us, _wake, self._wakeup)
        await self._wakeup
        self._wakeup = None
        if timer is not None:
            timer.cancel()

    def _delay_all(self) -> None:
        """Leave out all followed partitions until the backoff ends.

        A partition that is left out already keeps the end of its own backoff.
        Source: Kafka AbstractFetcherThread.processFetchRequest, when the request itself failed.
        """
        until_us = self._host.now_us() + self._backoff_us
        for partitions in self._topics.values():
            for partition in partitions.values():
                self._delayed_until_us.setdefault(partition.topic_partition, until_us)
        for topic in self._topics:
            self._ask_anew(topic)

    async def _fetch(self, topics: tuple[FetchTopic, ...]) -> FetchResponse:
        """Send one Fetch, and wait for the answer. Raises: Disconnected, RequestTimedOut."""
        config = self._config
        request = FetchRequest(
            replica_id=self._identity.broker_id,
            replica_epoch=self._identity.broker_epoch,
            max_wait_ms=config.replica_fetch_wait_max_ms,
            topics=topics,
        )
        # Connecting needs no backoff, because after a failure `_delay_all` delays the partitions.
        if self._connection is None or self._connection.is_closed:
            self._connection = self._host.connect(
                broker_name(self.source), REPLICA_FETCHER, setup_timeout_us=SETUP_TIMEOUT_US
            )
        response = await self._connection.call(request, timeout_us=self._timeout_us)
        if not isinstance(response, FetchResponse):
            raise SimulationError(f"Fetch was answered by {response}")
        return response

    def _next_topics(self) -> tuple[FetchTopic, ...]:
        """Return the topics of the next request; only positions that moved are built anew."""
        if self._delayed_until_us:
            self._end_delays()
        positions = self._positions
        max_bytes = self._config.replica_fetch_max_bytes
        for topic, partitions in self._topics.items():
            if topic not in positions:
                delayed = self._delayed_until_us
                known = self._known.setdefault(topic, {})
                requested = []
                for index, partition in partitions.items():
                    if delayed and partition.topic_partition in delayed:
                        continue
                    position = known.get(index)
                    if position is None:
                        position = known[index] = partition.fetch_position(max_bytes)
                    requested.append(position)
                positions[topic] = FetchTopic(topic=topic, partitions=tuple(requested))
        # A topic is left out while all its partitions are delayed.
        return tuple(positions[topic] for topic in self._topics if positions[topic].partitions)

    def _ask_anew(self, topic: str) -> None:
        """Forget the positions and the answers of `topic`.

        The next request then has new positions. The answers to it are handled even if they are the
        same objects as earlier answers.
        """
        self._positions.pop(topic, None)
        self._known.pop(topic, None)
        self._seen.pop(topic, None)

    def _end_delays(self) -> None:
        """Request again the partitions whose pause after an error is over."""
        now_us = self._host.now_us()
        ended = [name for name, until_us in self._delayed_until_us.items() if until_us <= now_us]
        for name in ended:
            del self._delayed_until_us[name]
            self._ask_anew(name.topic)

    def _handle(
        self, sent: tuple[FetchTopic, ...], answered: tuple[FetchableTopicResponse, ...]
    ) -> None:
        """Pass each answer with news to its Partition. Answers are in the order of the request."""
        for sent_topic, answer in zip(sent, answered, strict=True):
            topic = sent_topic.topic
            partitions = self._topics.get(topic)
            if partitions is None:
                continue  # no partition of this topic is followed any more
            all_data = answer.partitions
            seen = self._seen.get(topic)
            if seen is all_data:
                continue  # the leader sent the same object again: no partition has news
            # Without earlier answers to compare with, every answer is looked at. The lengths differ
            # if a partition was added or removed since the earlier request.
            if seen is None or len(seen) != len(all_data):
                seen = (None,) * len(all_data)
            news: list[int] = []
            for index, (data, before) in enumerate(zip(all_data, seen, strict=True)):
                if data is before:
                    continue  # handled before, and without news
                position = sent_topic.partitions[index]
                partition = partitions.get(position.partition)
                if partition is None:
                    continue  # not followed any more
                if (
                    not data.records
                    and data.error_code is ErrorCode.NONE
                    and data.diverging_epoch is None
                    and data.high_watermark == partition.log.high_watermark
                ):
                    continue  # another object, and still nothing new
                news.append(index)
                if data.diverging_epoch is not None:
                    # The position must be created anew even if no batch is truncated: the log may
                    # drop an epoch in which this broker led without an append, so the epoch in the
                    # position changes.
                    self._ask_anew(topic)
                self._take(partition, position, partition.handle_fetch_response(position, data))
            # This comes after the loop, in which `_ask_anew` may have dropped the earlier answers.
            self._remember(topic, all_data, news)

    def _remember(self, topic: str, answered: tuple[PartitionData, ...], news: list[int]) -> None:
        """Keep the answers of `topic` that had no news.

        `news` has the indices of the answers that had news. An answer with news must be handled
        again if the same object comes again, so None takes its place.
        """
        if not news:
            self._seen[topic] = answered
            return
        quiet: list[PartitionData | None] = list(answered)
        for index in news:
            quiet[index] = None
        self._seen[topic] = tuple(quiet)

    def _take(
        self, partition: Partition, position: FetchPartition, result: FollowerFetchResult
    ) -> None:
        """Forget the position, react to an error in the result, and report the result."""
        name = partition.topic_partition
        # The position in the next request depends on the end of the log. If only the high watermark
        # has moved, the topic's part of the request stays as it is.
        if result.appended_batches or result.truncated_to is not None:
            self._positions.pop(name.topic, None)
        # A position that has not moved is dropped, too. This does no harm: when the topic's part of
        # the request is built anew, an equal position is created.
        self._known.get(name.topic, {}).pop(name.partition, None)
        if result.error in _STOPS_FETCHING:
            self._host.log(
                f"stops fetching {name} from {self.source} at {position.fetch_offset} "
                f"in epoch {position.current_leader_epoch}: {result.error.name}"
            )
            self.remove(name)
        elif result.error is not ErrorCode.NONE:
            self._delayed_until_us[name] = self._host.now_us() + self._backoff_us
            self._ask_anew(name.topic)
        self._on_result(partition, result)


def _wake(wakeup: "Future[None]") -> None:
    if not wakeup.done():
        wakeup.set_result(None)
