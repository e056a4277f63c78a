"""Sending of transaction markers to the leaders of partitions.

A marker is a control record that commits or aborts a producer's transaction in one partition. When
a transaction ends, the transaction coordinator asks for a marker in each partition of the
transaction. The MarkerSender sends the markers to the brokers that lead these partitions, and
reports the outcome of each partition: ErrorCode.NONE if the marker is written, or if the partition
was deleted and needs none. After any other error the coordinator asks for the marker again.

DEVIATION: each request carries the markers of one transaction; Kafka's requests carry the markers
of many.
Source: Kafka `TransactionMarkerChannelManager`.
"""

from collections.abc import Callable
from functools import partial

from cluster.broker.channels import BrokerChannels
from cluster.broker.control.metadata_cache import MetadataCache
from cluster.host.connection_purposes import TRANSACTION_MARKERS
from cluster.host.host import Disconnected, Host, RequestTimedOut
from coordinator.transaction.effects import SendMarkers
from protocol.api import AnyResponse
from protocol.errors import ErrorCode, SimulationError
from protocol.ids import BrokerId, TopicPartition
from protocol.messages.transaction import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

RETRY_US = 100_000
"""Wait before markers are sent again: retry.backoff.ms of a broker's clients."""

Errors = dict[TopicPartition, ErrorCode]
"""Outcome of each partition: NONE if the partition has its marker or needs none."""
OnAnswered = Callable[[SendMarkers, Errors], None]
"""Called with a SendMarkers and the outcomes of some of its partitions.

It may be called several times for one SendMarkers, but only once about each partition."""


class MarkerSender:
    """Sends markers; calls `on_answered` with the outcomes, never before `send` returns."""

    def __init__(self, host: Host, cache: MetadataCache, on_answered: OnAnswered) -> None:
        self._host = host
        self._cache = cache
        self._on_answered = on_answered
        self._channels = BrokerChannels(host, TRANSACTION_MARKERS)

    def send(self, markers: SendMarkers) -> None:
        """Send the markers to the leaders of all partitions; a retry waits for RETRY_US first.

        Even the first attempt begins in a later event, so that `on_answered` is never called before
        this method returns.
        """
        self._host.after(RETRY_US if markers.is_retry else 0, self._send, markers)

    def _send(self, markers: SendMarkers) -> None:
        """Send one request to each broker that leads some of the partitions.

        Partitions without a request get their outcomes at the end of this method.
        """
        by_broker: dict[BrokerId, list[TopicPartition]] = {}
        errors_known_now: Errors = {}
        for name in markers.partitions:
            if not self._cache.contains(name.topic, name.partition):
                errors_known_now[name] = ErrorCode.NONE  # A deleted partition needs no marker.
                continue
            leader = self._cache.live_leader(name)
            if leader is None:
                errors_known_now[name] = ErrorCode.LEADER_NOT_AVAILABLE
            else:
                by_broker.setdefault(leader, []).append(name)
        for broker, names in by_broker.items():
            self._channels.send(
                broker, _request(markers, names), partial(self._answered, markers, names)
            )
        if errors_known_now:
            self._on_answered(markers, errors_known_now)

    def _answered(
        self,
        markers: SendMarkers,
        names: list[TopicPartition],
        outcome: AnyResponse | Disconnected | RequestTimedOut,
    ) -> None:
        """Report the errors of the partitions `names`, which were in one request."""
        if isinstance(outcome, Disconnected | RequestTimedOut):
            # The markers may have been written. Writing them again has no further effect.
            self._on_answered(markers, dict.fromkeys(names, ErrorCode.NETWORK_EXCEPTION))
            return
        if not isinstance(outcome, WriteTxnMarkersResponse):
            raise SimulationError(f"WriteTxnMarkers was answered by {outcome}")
        # The request had one marker, so the answer has the errors of one marker.
        self._on_answered(
            markers,
            {
                TopicPartition(topic.name, entry.partition_index): entry.error_code
                for marker in outcome.markers
                for topic in marker.topics
                for entry in topic.partitions
            },
        )


def _request(markers: SendMarkers, names: list[TopicPartition]) -> WriteTxnMarkersRequest:
    """Return the request with the markers for `names`, all led by one broker."""
    by_topic: dict[str, tuple[int, ...]] = {}  # topic -> the indexes of its partitions
    for topic, index in names:
        by_topic[topic] = (*by_topic.get(topic, ()), index)
    return WriteTxnMarkersRequest(
        markers=(
            WritableTxnMarker(
                producer_id=markers.producer_id,
                producer_epoch=markers.producer_epoch,
                transaction_result=markers.is_commit,  # Kafka's name: False is an abort
                topics=tuple(
                    WritableTxnMarkerTopic(name=topic, partition_indexes=indexes)
                    for topic, indexes in by_topic.items()
                ),
                coordinator_epoch=markers.coordinator_epoch,
            ),
        )
    )
