"""A client's metadata: the brokers of the cluster, and the leader of each partition.

The client sends a Metadata request when one of its parts asks for an update (`request_update`), and
at the latest after `metadata.max.age.ms`. Between two requests the cache may be stale. A broker's
metadata may be stale, too, so an answer never replaces a partition's leader by a leader with an
older epoch.

Before the first answer the client knows only the bootstrap servers of its configuration.

Source: Kafka Metadata, NetworkClient.DefaultMetadataUpdater.
"""

from collections.abc import Callable
from dataclasses import dataclass

from cluster.client.net.futures import RequestFuture
from cluster.client.net.network_client import KnownNode, NetworkClient
from cluster.client.net.retries import MS, retry_backoff
from cluster.host.connection_purposes import BOOTSTRAP, GENERAL
from cluster.host.host import Host, Timer
from cluster.spec import ClusterSpec
from protocol.config import ConsumerConfig, ProducerConfig
from protocol.errors import ErrorCode
from protocol.ids import (
    NO_BROKER,
    NO_LEADER_EPOCH,
    BrokerId,
    LeaderEpoch,
    NodeName,
    TopicPartition,
    broker_name,
)
from protocol.messages.discovery import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderAndEpoch:
    """The last known leader of a partition, or NO_BROKER if the partition had no leader."""

    leader: BrokerId
    leader_epoch: LeaderEpoch


NO_LEADER_OR_EPOCH = LeaderAndEpoch(leader=NO_BROKER, leader_epoch=NO_LEADER_EPOCH)
"""Stands for a leader that the client does not know; its epoch is older than every real epoch."""


class Metadata:
    """A client's metadata cache, and the requests that keep it up to date."""

    def __init__(
        self,
        host: Host,
        cluster: ClusterSpec,
        config: ConsumerConfig | ProducerConfig,
        topics: tuple[str, ...],
        *,
        on_update: Callable[[], None],
    ) -> None:
        """Create a cache that knows only the bootstrap servers.

        These are the `bootstrap.servers` of `config` or, if it has none, all brokers of the
        cluster. `on_update` is called each time that an answer has changed or confirmed the cache.
        """
        self.version = 0
        """Number of answers stored so far. Code that waits for an update compares this number."""
        self._host = host
        self._topics = topics
        self._on_update = on_update
        # Sends the requests; None before `start` and after `close`.
        self._network: NetworkClient | None = None
        servers = config.bootstrap_servers or tuple(broker.name for broker in cluster.brokers)
        self._nodes = tuple(KnownNode(_host_of(server), BOOTSTRAP) for server in servers)
        self._live: dict[int, None] = {}
        """Ids of the brokers in the last answer, in the answer's order, as the keys of the dict."""
        # The number of partitions of each known topic.
        self._partition_counts: dict[str, int] = {}
        # The last known leader of each partition, which need not be alive.
        self._leaders: dict[TopicPartition, LeaderAndEpoch] = {}
        self._request_timeout_us = config.request_timeout_ms * MS
        self._reconnect_backoff_us = config.reconnect_backoff_ms * MS
        self._max_age_us = config.metadata_max_age_ms * MS
        self._backoff = retry_backoff(host, config)
        self._update_wanted = False
        self._is_asking = False
        self._failures = 0  # failed requests in a row
        # Number of answers in a row that changed nothing in the cache. From the second of them on,
        # each one makes the backoff before the next request longer.
        self._equal_answers = 0
        # End of the backoff, before which no request is sent.
        self._allowed_at_us = 0
        self._timer: Timer | None = None  # the next call of `_ask`
        self._age_timer: Timer | None = None  # the next call of `_refresh_aged`

    def start(self, network: NetworkClient) -> None:
        """Begin to send requests through `network`."""
        self._network = network
        self.request_update()

    def close(self) -> None:
        """Send no more requests."""
        self._network = None
        for timer in (self._timer, self._age_timer):
            if timer is not None:
                timer.cancel()
        self._timer = self._age_timer = None

    def nodes(self) -> tuple[KnownNode, ...]:
        """Return the brokers or, before the first answer, the bootstrap servers."""
        return self._nodes

    def partition_count(self, topic: str) -> int | None:
        """Return the number of partitions of `topic`, None if the topic is not known."""
        return self._partition_counts.get(topic)

    def leader(self, partition: TopicPartition) -> LeaderAndEpoch:
        """Return the leader of `partition`; NO_LEADER_OR_EPOCH if that broker is not alive."""
        known = self._leaders.get(partition, NO_LEADER_OR_EPOCH)
        return known if known.leader in self._live else NO_LEADER_OR_EPOCH

    def learn_leader(self, partition: TopicPartition, leader: LeaderAndEpoch) -> None:
        """Store a newer leader that the answer to a Fetch or Produce named (KIP-951)."""
        known = self._leaders.get(partition, NO_LEADER_OR_EPOCH)
        if leader.leader_epoch > known.leader_epoch:
            self._leaders[partition] = leader

    def add_topics(self, topics: tuple[str, ...]) -> None:
        """Ask for `topics`, too, in all later requests."""
        missing = tuple(topic for topic in topics if topic not in self._topics)
        if missing:
            self._topics += missing
            self.request_update()

    def request_update(self) -> None:
        """Send a request as soon as the backoff allows."""
        self._update_wanted = True
        if not self._is_asking and self._network is not None:
            self._schedule(self._allowed_at_us - self._host.now_us())

    def _schedule(self, delay_us: int) -> None:
        """Call `_ask` after `delay_us`, unless a call is scheduled already."""
        if self._timer is None:
            self._timer = self._host.after(max(0, delay_us), self._ask)

    def _ask(self) -> None:
        """Send a request to the least loaded node, if an update is still wanted."""
        self._timer = None
        if self._network is None or not self._update_wanted:
            return
        node = self._network.least_loaded_node()
        if node is None:  # every node is in its reconnect backoff, so try again about at its end
            self._schedule(self._reconnect_backoff_us)
            return
        self._is_asking = True
        self._update_wanted = False
        self._network.send(
            node.name,
            node.purpose,
            MetadataRequest(topics=self._topics),
            MetadataResponse,
            timeout_us=self._request_timeout_us,
        ).add_listener(self._answered)

    def _answered(self, future: RequestFuture[MetadataResponse]) -> None:
        """Apply the answer, and set the time before which no further request is sent."""
        self._is_asking = False
        if self._network is None:
            return
        now_us = self._host.now_us()
        # Kafka ignores an answer without brokers, because it comes from a broker that has no
        # metadata yet.
        if future.error is not None or not future.value.brokers:
            self._allowed_at_us = now_us + self._backoff.delay_us(self._failures)
            self._failures += 1
            self.request_update()
            return

        self._failures = 0
        changed = self._apply(future.value)
        # `version` is 0 at the first answer, because it is increased only below.
        if self.version == 0:
            self._connect_for_telemetry(self._network)
        self._equal_answers = 0 if changed else self._equal_answers + 1
        self._allowed_at_us = now_us + self._backoff.delay_us(max(0, self._equal_answers - 1))
        if self._age_timer is not None:
            self._age_timer.cancel()
        self._age_timer = self._host.after(self._max_age_us, self._refresh_aged)
        if self._update_wanted:
            # `_apply` found a topic or a partition without a usable answer, or an update was
            # requested while this request was in flight.
            self.request_update()
        self.version += 1
        self._on_update()

    def _connect_for_telemetry(self, network: NetworkClient) -> None:
        """Open a connection to a broker as soon as brokers are known, and leave it idle.

        Kafka's client connects to some broker to ask for telemetry subscriptions (KIP-714), learns
        that the broker offers none, and never asks again. But the connection stays open and idle,
        so this broker is the least loaded node from then on. Therefore most FindCoordinator
        requests go to this broker, and do not wait behind a Fetch.
        Source: NetworkClient.TelemetrySender; seen in every start of a 3.9.1 consumer.
        """
        node = network.least_loaded_node()
        if node is not None:
            network.try_connect(node.name, node.purpose)

    def _refresh_aged(self) -> None:
        """Request an update of metadata that is `metadata.max.age.ms` old."""
        self._age_timer = None
        self._equal_answers = 0  # earlier equal answers no longer lengthen the backoff
        self.request_update()

    def _apply(self, response: MetadataResponse) -> bool:
        """Store an answer, except leaders with an older epoch; return True if the cache changed."""
        nodes = tuple(
            KnownNode(broker_name(broker.node_id), GENERAL) for broker in response.brokers
        )
        changed = nodes != self._nodes
        self._nodes = nodes
        self._live = dict.fromkeys(broker.node_id for broker in response.brokers)
        for topic in response.topics:
            # `changed` is on the right side of `or`, so that the call is never skipped.
            changed = self._apply_topic(topic) or changed
        return changed

    def _apply_topic(self, topic: MetadataResponseTopic) -> bool:
        """Store a topic of an answer; return True if it changed anything."""
        if topic.error_code is not ErrorCode.NONE:
            # The broker may have stale metadata about a new or deleted topic: ask again.
            self._update_wanted = True
            return self._forget_topic(topic)
        changed = self._partition_counts.get(topic.name) != len(topic.partitions)
        self._partition_counts[topic.name] = len(topic.partitions)
        for partition in topic.partitions:
            changed = self._apply_partition(topic.name, partition) or changed
        return changed

    def _forget_topic(self, topic: MetadataResponseTopic) -> bool:
        """Forget a topic that a broker does not know; return True if it was known.

        The group's leader notices by this that the topic was deleted, and starts a rebalance.
        Source: Kafka `Metadata.handleMetadataResponse`: only entries of the answer are kept.
        """
        count = self._partition_counts.pop(topic.name, 0)
        for index in range(count):
            self._leaders.pop(TopicPartition(topic.name, index), None)
        return count > 0

    def _apply_partition(self, topic: str, partition: MetadataResponsePartition) -> bool:
        """Store a partition's leader unless its epoch is older; return True if it changed."""
        key = TopicPartition(topic, partition.partition_index)
        known = self._leaders.get(key, NO_LEADER_OR_EPOCH)
        if partition.leader_epoch < known.leader_epoch:
            return False
        if partition.error_code is not ErrorCode.NONE or partition.leader_id == NO_BROKER:
            self._update_wanted = True
        reported = LeaderAndEpoch(
            leader=BrokerId(partition.leader_id),
            leader_epoch=LeaderEpoch(partition.leader_epoch),
        )
        self._leaders[key] = reported
        return reported != known


def _host_of(server: str) -> NodeName:
    """Return the host of a bootstrap server: "broker-0" for both "broker-0:9092" and "broker-0"."""
    return NodeName(server.partition(":")[0])
