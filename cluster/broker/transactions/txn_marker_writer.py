"""WriteTxnMarkers: writes markers, the ends of transactions, into the logs that this broker leads.

The request is answered when every marker is acknowledged or has failed. Markers in offsets
partitions (those of `__consumer_offsets`) also concern the group coordinator, which gets them
through its task queue. As in Kafka, loads in that queue may come first, so the group coordinator
may learn of the markers after the answer.
Source: Kafka `KafkaApis.handleWriteTxnMarkersRequest`.
"""

from collections.abc import Callable
from functools import partial

from cluster.broker.channels import REQUEST_TIMEOUT_US
from cluster.broker.replication.replica_manager import ReplicaManager
from cluster.host.host import Host
from partition_log.outcomes import AppendInfo
from partition_log.replica import Partition
from protocol.errors import ErrorCode
from protocol.ids import CONSUMER_OFFSETS, RequestId, TopicPartition
from protocol.messages.transaction import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from protocol.records.control import EndTransactionMarker

OnCompleted = Callable[[int, tuple[int, ...], bool], None]
"""Takes a producer id, the offsets partitions with its marker, and True if the marker commits."""


class _Answer:
    """Outcomes of one request's markers so far."""

    def __init__(self, request_id: RequestId, request: WriteTxnMarkersRequest) -> None:
        self.request_id = request_id
        self.request = request
        self.errors: list[dict[TopicPartition, ErrorCode]] = [{} for _ in request.markers]
        """Outcomes of each marker, in the order of the request, by partition."""
        self.markers_missing = len(request.markers)
        """Number of markers of which some partition has no outcome yet."""


class TxnMarkerWriter:
    """Writes markers, and answers the request once all are acknowledged or have failed."""

    def __init__(self, host: Host, replicas: ReplicaManager, on_completed: OnCompleted) -> None:
        self._host = host
        self._replicas = replicas
        self._on_completed = on_completed

    def handle(self, request_id: RequestId, request: WriteTxnMarkersRequest) -> None:
        """Append every marker of the request."""
        answer = _Answer(request_id, request)
        if not request.markers:  # otherwise the last outcome answers (`_ended`)
            self._host.reply(request_id, WriteTxnMarkersResponse())
        for index, marker in enumerate(request.markers):
            for name in _partitions(marker):
                self._append(answer, index, marker, name)
        # Called after all waits are parked: the appends may have moved a high watermark, which ends
        # some of the waits.
        self._replicas.complete_delayed()

    def _append(
        self, answer: _Answer, index: int, marker: WritableTxnMarker, name: TopicPartition
    ) -> None:
        """Append marker number `index` of the request to one partition; `_ended` gets its outcome.

        If the append fails immediately, `_ended` is called before this returns.
        """
        partition = self._replicas.partition(name)
        if partition is None:
            self._ended(answer, index, name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            return
        info = self._replicas.append_marker(
            partition,
            EndTransactionMarker(
                is_commit=marker.transaction_result, coordinator_epoch=marker.coordinator_epoch
            ),
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
        )
        if info.error is ErrorCode.NONE:
            self._await(partition, info, partial(self._ended, answer, index, name))
        else:
            self._ended(answer, index, name, info.error)

    def _await(
        self, partition: Partition, info: AppendInfo, on_end: Callable[[ErrorCode], None]
    ) -> None:
        """Call `on_end` with the outcome of an append, REQUEST_TIMED_OUT after the timeout."""

        def acknowledged(error: ErrorCode) -> None:
            # Called only after `await_acknowledgement` has returned, so `timer` is set (below).
            timer.cancel()
            on_end(error)

        delayed = self._replicas.await_acknowledgement(partition, info, acknowledged)
        timer = self._host.after(REQUEST_TIMEOUT_US, self._replicas.give_up, delayed)

    def _ended(self, answer: _Answer, index: int, name: TopicPartition, error: ErrorCode) -> None:
        """Take the outcome of a marker in one partition; answer once all outcomes are there."""
        marker = answer.request.markers[index]
        errors = answer.errors[index]
        errors[name] = error
        if len(errors) < len(_partitions(marker)):
            return  # other partitions of this marker have no outcome yet
        offsets_partitions = tuple(
            written.partition
            for written, outcome in errors.items()
            if written.topic == CONSUMER_OFFSETS and outcome is ErrorCode.NONE
        )
        if offsets_partitions:
            self._on_completed(marker.producer_id, offsets_partitions, marker.transaction_result)
        answer.markers_missing -= 1
        if not answer.markers_missing:
            self._host.reply(answer.request_id, _response(answer))


def _partitions(marker: WritableTxnMarker) -> tuple[TopicPartition, ...]:
    return tuple(
        TopicPartition(topic.name, index)
        for topic in marker.topics
        for index in topic.partition_indexes
    )


def _response(answer: _Answer) -> WriteTxnMarkersResponse:
    return WriteTxnMarkersResponse(
        markers=tuple(
            WritableTxnMarkerResult(
                producer_id=marker.producer_id,
                topics=tuple(
                    WritableTxnMarkerTopicResult(
                        name=topic.name,
                        partitions=tuple(
                            WritableTxnMarkerPartitionResult(
                                partition_index=index,
                                error_code=errors[TopicPartition(topic.name, index)],
                            )
                            for index in topic.partition_indexes
                        ),
                    )
                    for topic in marker.topics
                ),
            )
            for marker, errors in zip(answer.request.markers, answer.errors, strict=True)
        )
    )
