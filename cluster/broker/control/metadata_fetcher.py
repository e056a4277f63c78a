"""Fetching of the metadata log from the controller, and publication of its changes.

The controller answers a fetch as soon as there are new records. New records take effect in two
steps:

1. They are applied to the MetadataCache, from which the broker answers clients.
2. They are *published*: the replicas and coordinators of this broker act on them. On a real broker
   this takes some time, in which the cache is already newer. In virtual time the broker therefore
   sleeps before it publishes. `cluster.costs` has the length of this sleep.

Source: KRaft's `KafkaRaftClient` as observer, `MetadataLoader`, `BrokerMetadataPublisher`.
DEVIATION: a broker keeps no copy of the metadata log. It reads the log from offset 0 when it
starts.
"""

from collections.abc import Callable

from cluster.broker.channels import BrokerIdentity, ControllerChannel
from cluster.broker.control.metadata_cache import MetadataCache
from cluster.host.host import Disconnected, Host, RequestTimedOut
from cluster.spec import ClusterSpec
from protocol.errors import ErrorCode, SimulationError
from protocol.ids import METADATA_PARTITION, TopicPartition
from protocol.messages.log import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from protocol.records.batch import RecordBatch, decode_records
from protocol.records.metadata import decode_metadata_record

MAX_WAIT_MS = 500
"""KRaft's MAX_FETCH_WAIT_MS."""
BACKOFF_US_MIN = 50_000
"""reconnect.backoff.ms"""
BACKOFF_US_MAX = 1_000_000
"""reconnect.backoff.max.ms"""


class MetadataFetcher:
    """Keeps the metadata cache up to date, and calls `publish` with the changed partitions.

    Nothing is published until `publish_first` is called, when the broker has read its own
    registration in the log. The records before the registration are old. For example, they may
    say that this broker leads partitions, because it did so before its restart. The broker must
    not act on such records. Kafka, too, installs its publishers only when the broker has caught up.
    """

    def __init__(
        self,
        host: Host,
        channel: ControllerChannel,
        identity: BrokerIdentity,
        cluster: ClusterSpec,
        cache: MetadataCache,
        publish: Callable[[list[TopicPartition]], None],
    ) -> None:
        self._host = host
        self._channel = channel
        self._identity = identity
        self._cache = cache
        self._publish = publish
        self._timeout_us = cluster.broker_config.controller_quorum_fetch_timeout_ms * 1_000
        self._max_bytes = cluster.broker_config.replica_fetch_max_bytes
        self._publish_us = cluster.costs.publish_us if host.simulates_costs else 0
        self._publish_jitter_us = cluster.costs.publish_jitter_us if host.simulates_costs else 0
        self._changed: dict[TopicPartition, None] = {}
        """The partitions that changed since the last publication, as the keys of the dict."""
        self._may_publish = False
        """True from `publish_first` on."""
        self._is_publishing = False
        """True while `_publish_changes` runs."""
        self._published_offset = -1
        """Offset of the newest published record."""

    @property
    def applied_offset(self) -> int:
        """Offset of the newest metadata record that this broker acts on; -1 if there is none.

        Once the broker has started, this is the offset of the newest published record. Before
        `publish_first`, it is the offset of the last record in the cache. Otherwise the broker
        could never report that it has caught up, and `publish_first` would never be called.

        Source: Kafka MetadataLoader.lastAppliedOffset, which brokers report in their heartbeats.
        """
        # During a publication, and between a change and its publication, the cache has records
        # that are not published yet.
        if self._is_publishing or (self._changed and self._may_publish):
            return self._published_offset
        return self._cache.last_applied_offset

    def is_published(self) -> bool:
        """Return True if this broker acts on everything that its cache contains."""
        return self._may_publish and not self._is_publishing and not self._changed

    async def run(self) -> None:
        """Fetch without end, from the first record on."""
        backoff_us = BACKOFF_US_MIN
        while True:
            try:
                batches = await self._fetch()
            except (Disconnected, RequestTimedOut):
                batches = None
            # This wait is not in the `except` block: there, code compiled by mypyc would keep the
            # exception alive during the wait, with everything that its traceback refers to.
            if batches is None:
                await self._host.sleep(backoff_us)
                backoff_us = min(2 * backoff_us, BACKOFF_US_MAX)
                continue
            backoff_us = BACKOFF_US_MIN
            if batches:
                if not self._is_publishing:
                    # Every record that is in the cache by now is published, or needs no publication
                    # because it changed no partition. (Before `publish_first` this is not so, but
                    # then `_published_offset` is not read.)
                    self._published_offset = self._cache.last_applied_offset
                self._apply(batches)
                if self._changed and self._may_publish and not self._is_publishing:
                    # In a separate task, so that the next records are fetched meanwhile.
                    self._is_publishing = True
                    self._host.spawn(self._publish_changes(), name="metadata-publisher")

    async def publish_first(self) -> None:
        """Publish the whole cache now, and from then on each change."""
        # `_is_publishing` is set before `_publish_changes` waits. Otherwise records that arrive
        # during the wait would make `run` begin a second publication.
        self._may_publish = self._is_publishing = True
        await self._publish_changes()

    async def _fetch(self) -> tuple[RecordBatch, ...]:
        """Send one Fetch that begins where the cache's records end; return the new batches, if any.

        Raises: Disconnected, also for an answer with an error; RequestTimedOut.
        """
        position = FetchPartition(
            partition=METADATA_PARTITION.partition,
            fetch_offset=self._cache.image.end_offset,
            partition_max_bytes=self._max_bytes,
        )
        request = FetchRequest(
            replica_id=self._identity.broker_id,
            replica_epoch=self._identity.broker_epoch,
            max_wait_ms=MAX_WAIT_MS,
            topics=(FetchTopic(topic=METADATA_PARTITION.topic, partitions=(position,)),),
        )
        response = await self._channel.connection().call(request, timeout_us=self._timeout_us)
        if not isinstance(response, FetchResponse):
            raise SimulationError(f"Fetch was answered by {response}")
        data = response.responses[0].partitions[0]  # the request names one partition
        if data.error_code != ErrorCode.NONE:
            self._host.log(f"metadata fetch was answered {data.error_code.name}")
            self._channel.try_next_controller()
            # `run` then waits for the backoff, as after the loss of a connection.
            raise Disconnected(data.error_code.name)
        return data.records

    def _apply(self, batches: tuple[RecordBatch, ...]) -> None:
        """Apply fetched records to the cache, and note the partitions that they change."""
        for batch in batches:
            # The first batch may begin before the fetch offset. Then the cache's image (the state
            # after all records so far) contains the first `skip` records of the batch already.
            skip = self._cache.image.end_offset - batch.base_offset
            records = [decode_metadata_record(r) for r in decode_records(batch.records)[skip:]]
            for partition in self._cache.apply(records):
                self._changed[partition] = None

    async def _publish_changes(self) -> None:
        """Sleep for the time that a publication takes, and publish all changes."""
        while True:
            # The time is `_publish_us`, plus a random time of up to `_publish_jitter_us`.
            delay_us = self._publish_us
            if self._publish_jitter_us:
                delay_us += self._host.rng.randrange(self._publish_jitter_us + 1)
            if delay_us:
                await self._host.sleep(delay_us)
            # Changes that arrived during the sleep are published, too.
            changed, self._changed = list(self._changed), {}
            self._published_offset = self._cache.last_applied_offset
            self._publish(changed)
            # `_publish` does not wait, so `run` has added no changes meanwhile. The loop is only a
            # precaution.
            if not self._changed:
                break
        self._is_publishing = False
