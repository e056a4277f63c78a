"""The old consumer as a whole: it registers in ZooKeeper, watches its group and commits.

A consumer registers in ZooKeeper by an ephemeral znode, which vanishes when the consumer's session
ends. The consumer also subscribes to changes of the group's members and topics. When something
changes, ZooKeeper notifies a listener. The listener only sets a flag; one thread, the *watcher
executor*, sees the flag and rebalances. So if ten notifications come during a rebalance, only one
more rebalance follows (ZK-30). In a rebalance (module `rebalance`) the consumer gives up its
partitions, reads who is in the group, computes its share of the partitions and claims this share.

Fetchers (`fetchers`) put the fetched records into queues, one for each topic, from which the
application takes them (`streams`).

Ids such as ZK-30 are rules in docs/kafka/ZOOKEEPER_CONSUMER.md.

Source: Kafka 1.1 `ZookeeperConsumerConnector`; sections 4, 5 and 9 of that document.
"""

from collections.abc import Callable

from cluster.client.net.futures import Wakeup
from cluster.client.zookeeper_consumer.fetchers import FetcherManager
from cluster.client.zookeeper_consumer.member import ZooKeeperMember
from cluster.client.zookeeper_consumer.mutex import Mutex
from cluster.client.zookeeper_consumer.offset_manager import OffsetManagerChannel
from cluster.client.zookeeper_consumer.offset_store import OffsetStore
from cluster.client.zookeeper_consumer.paths import (
    STATIC,
    allowed_topics,
    registration,
    topic_path,
)
from cluster.client.zookeeper_consumer.rebalance import (
    ConsumerRebalanceFailedException,
    Rebalancer,
)
from cluster.client.zookeeper_consumer.streams import ChunkQueue
from cluster.host.host import Host
from cluster.spec import TopicFilterSpec, ZooKeeperConsumerSpec
from cluster.zookeeper.bootstrap import BROKER_IDS, BROKER_TOPICS
from cluster.zookeeper.client import KeeperException
from cluster.zookeeper.zk_client import ListenerFailed, ZkClient
from protocol.ids import NodeName
from protocol.messages.zookeeper import KeeperError

STREAMS_PER_TOPIC = 1  # the application (`node`) has one thread for each topic or filter
_MS = 1_000  # microseconds in a millisecond


class ZooKeeperConsumerConnector:
    """One consumer of a group, until it is shut down."""

    def __init__(
        self,
        host: Host,
        spec: ZooKeeperConsumerSpec,
        servers: tuple[NodeName, ...],
        *,
        start_us: int,
    ) -> None:
        """Begin to connect to the ZooKeeper servers.

        `start_us` is the time for which the consumer waits after its registration, before it
        subscribes to changes. It stands for the time in which a real consumer loads classes and
        starts threads. In real time nothing is simulated, so `start_us` is 0.
        """
        self._start_us = start_us
        self._host = host
        self._spec = spec
        self._zk = ZkClient(host, servers, spec.config.zookeeper_session_timeout_ms)
        self.member = ZooKeeperMember(host, spec, self._zk)
        topic_filter = spec.topic_filter
        subscribed = spec.topics if topic_filter is None else (topic_filter.regex,)
        self.queues = {
            name: ChunkQueue(host, spec.config.queued_max_message_chunks) for name in subscribed
        }
        """The queue of each topic. With a topic filter there is one queue, under its expression."""
        self._topics: list[str] = list(spec.topics) if topic_filter is None else []
        """The topics that the consumer reads. With a filter it finds them in `start`."""

        is_kafka = spec.config.offsets_storage == "kafka"
        self.offsets = OffsetStore(
            self.member, OffsetManagerChannel(self.member) if is_kafka else None
        )
        self._lock = Mutex(host)
        """Kafka's `rebalanceLock`, held by a rebalance and by the shutdown.

        A periodic commit does not take the lock (ZK-32)."""
        self._fetchers = FetcherManager(self.member)
        self.rebalancer = Rebalancer(
            self.member,
            self._fetchers,
            self.offsets,
            self._lock,
            # With a filter, one queue takes the records of all topics.
            queue_of=lambda _thread, topic: self.queues[
                topic if topic_filter is None else topic_filter.regex
            ],
            queues=lambda: tuple(self.queues.values()),
            is_shutting_down=lambda: self._is_shutting_down,
        )
        self._is_shutting_down = False
        self._watcher_triggered = False
        """The flag that listeners set and the watcher executor clears."""
        self._watcher_wakeup = Wakeup(host)
        self._watches_brokers = False

    @property
    def is_connected(self) -> bool:
        """True if the session has a connection."""
        return self._zk.is_connected

    async def start(self) -> None:
        """Register, subscribe to changes, and rebalance for the first time (ZK-36).

        Raises: ConsumerRebalanceFailedException. The registration then stays until the shutdown, so
        other consumers still leave a share of the partitions to this consumer (ZK-37).
        """
        await self._zk.exists("/")  # returns once a session is open
        if self._spec.config.auto_commit_enable:
            self._host.spawn(self._commit_periodically(), name="kafka-consumer-scheduler")

        if self._spec.topic_filter is not None:
            self._topics = await self._allowed_topics(self._spec.topic_filter)
        await self._register()
        self._host.spawn(self._watch(), name="watcher_executor")
        if self._start_us:
            await self._host.sleep(self._start_us)

        # Subscribe before the rebalance. Otherwise, a change between the reads of the rebalance and
        # the subscription would not be noticed.
        self._zk.on_new_session = self._new_session
        await self._zk.subscribe_child_changes(self.member.paths.ids, self._changed)
        for topic in self._topics:
            await self._zk.subscribe_data_changes(topic_path(topic), self._changed)
        await self.rebalancer.synced_rebalance("starting")
        await self._watch_brokers_if_none()
        # As in Kafka, the list of all topics is watched only after the first rebalance. A topic
        # that is created before is noticed at the next change of the list.
        if self._spec.topic_filter is not None:
            await self._zk.subscribe_child_changes(BROKER_TOPICS, self._topics_changed)

    async def shut_down(self, on_closed: Callable[[], None]) -> None:
        """Stop fetchers, wake the streams, commit, close the session (ZK-59)."""
        self._is_shutting_down = True
        self._watcher_wakeup.set()
        # The lock makes the shutdown wait for the end of a rebalance.
        async with self._lock:
            await self._fetchers.stop()
            for queue in self.queues.values():
                queue.close()
            await self.rebalancer.close_fetchers()  # also commits, if commits are automatic
            self._zk.close(on_closed)

    # -- registration and sessions ---------------------------------------------------------------

    async def _register(self) -> None:
        """Create the registration.

        Raises: KeeperException; with NodeExists if another session has created it (ZK-36).
        """
        streams = dict.fromkeys(self.queues, STREAMS_PER_TOPIC)
        topic_filter = self._spec.topic_filter
        pattern = STATIC if topic_filter is None else topic_filter.pattern
        content = registration(streams, self._host.wall_us() // _MS, pattern)
        path = self.member.paths.member(self.member.consumer_id)
        try:
            await self._zk.create_with_parents(path, content, ephemeral=True)
        except KeeperException as error:
            if error.code is not KeeperError.NodeExists:
                raise
            # ZkClient repeats a create whose answer was lost. If the first request has created the
            # znode, the znode belongs to this session, and the consumer is registered.
            stat = (await self._zk.read(path)).stat
            if stat is None or stat.ephemeral_owner != self._zk.session_id:
                raise

    async def _new_session(self) -> None:
        """Register again and rebalance, because the old session has expired (ZK-55)."""
        # The text is Kafka's, with its misspelling.
        self._host.log(
            "ZK expired; release old broker parition ownership; re-register consumer "
            f"{self.member.consumer_id}"
        )
        self.rebalancer.reset_state()
        await self._register()
        await self.rebalancer.synced_rebalance("new session")
        await self._watch_brokers_if_none()

    # -- listeners and the watcher's thread ------------------------------------------------------

    async def _changed(self, _path: str) -> None:
        """Make the watcher executor rebalance; several calls may cause one rebalance (ZK-30)."""
        self._watcher_triggered = True
        self._watcher_wakeup.set()

    async def _topics_changed(self, _path: str) -> None:
        """Rebalance if the filter now allows other topics than before.

        Unlike after other changes, the rebalance runs here, in the thread that calls listeners.
        Source: Kafka 1.1 `WildcardStreamsHandler.handleTopicEvent`.
        """
        topic_filter = self._spec.topic_filter
        if topic_filter is None:
            return  # never reached: only a consumer with a filter has this listener
        before, self._topics = self._topics, await self._allowed_topics(topic_filter)
        if self._topics == before:
            return
        for topic in self._topics:
            if topic not in before:
                await self._zk.subscribe_data_changes(topic_path(topic), self._changed)
        await self.rebalancer.synced_rebalance("running")

    async def _allowed_topics(self, topic_filter: TopicFilterSpec) -> list[str]:
        """Read all topics, and return the topics that the filter allows."""
        topics = await self._zk.children(BROKER_TOPICS)
        return allowed_topics(topic_filter.pattern, topic_filter.regex, topics)

    async def _watch(self) -> None:
        """Rebalance whenever a listener has set the flag. This loop is the watcher executor."""
        while not self._is_shutting_down:
            if not self._watcher_triggered:
                await self._watcher_wakeup.wait(None)
                continue
            # As in Kafka, the flag is cleared before the rebalance. If it were cleared after the
            # rebalance, a change could be missed:
            # 1. The rebalance reads the group.
            # 2. The group changes, and the listener sets the flag.
            # 3. The rebalance ends and clears the flag.
            self._watcher_triggered = False
            try:
                await self.rebalancer.synced_rebalance("running")
                await self._watch_brokers_if_none()
            except (ConsumerRebalanceFailedException, KeeperException) as error:
                self._host.log(f"error during syncedRebalance: {error}")

    async def _watch_brokers_if_none(self) -> None:
        """Watch the list of brokers, if a rebalance has found no broker (ZK-40)."""
        if self.rebalancer.finds_no_broker and not self._watches_brokers:
            self._watches_brokers = True
            await self._zk.subscribe_child_changes(BROKER_IDS, self._changed)

    # -- periodic commits ------------------------------------------------------------------------

    async def _commit_periodically(self) -> None:
        """Commit every `auto.commit.interval.ms`; an error is logged."""
        config = self._spec.config
        while not self._is_shutting_down:
            await self._host.sleep(config.auto_commit_interval_ms * _MS)
            if self._is_shutting_down:
                return
            try:
                await self.rebalancer.commit(retries=config.offsets_commit_max_retries)
            except (KeeperException, ListenerFailed) as error:
                self._host.log(f"exception during autoCommit: {error}")
