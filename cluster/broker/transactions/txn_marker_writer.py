"""WriteTxnMarkers: appends transaction markers to the partitions that this broker leads.

A marker is the record that commits or aborts a transaction in a partition. A request has several
markers, each for several partitions. It is answered when each of these appends is acknowledged or
has failed.

A marker in a partition of `__consumer_offsets` also makes offsets valid, or drops them. So a task
in the group coordinator's queue (`coordinator_tasks`) passes the marker to the group coordinator.
As in Kafka, the task may have to wait for a load. Then the request is answered before the group
coordinator gets the marker.

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
"""Called when a marker was written to partitions of `__consumer_offsets`.

The arguments are the producer's id, the numbers of these partitions, and True if the marker
commits."""


class _Answer:
    """Outcomes of one request's markers so far."""

    def __init__(self, request_id: RequestId, request: WriteTxnMarkersRequest) -> None:
        self.request_id = request_id
        self.request = request
        self.errors: list[dict[TopicPartition, ErrorCode]] = [{} for _ in request.markers]
        """For each marker of the request, its outcome in each partition; NONE is success."""
        # A marker without partitions has no appends, so it misses no outcome.
        self.markers_missing = sum(1 for marker in request.markers if _partitions(marker))
        """Number of markers that still miss an outcome. At 0, the request is answered."""


class TxnMarkerWriter:
    """Writes markers, and answers the request once all are acknowledged or have failed."""

    def __init__(self, host: Host, replicas: ReplicaManager, on_completed: OnCompleted) -> None:
        self._host = host
        self._replicas = replicas
        self._on_completed = on_completed
        self._waiting: set[RequestId] = set()
        """Requests with a marker that has no outcome yet."""

    def waiting(self) -> frozenset[RequestId]:
        """Return the requests with a marker that has no outcome yet."""
        return frozenset(self._waiting)

    def handle(self, request_id: RequestId, request: WriteTxnMarkersRequest) -> None:
        """Append every marker of the request."""
        answer = _Answer(request_id, request)
        self._waiting.add(request_id)
        # Normally `_ended` answers the request. Without any partition, `_ended` is never called.
        if not answer.markers_missing:
            self._reply(answer)
        for index, marker in enumerate(request.markers):
            for name in _partitions(marker):
                self._append(answer, index, marker, name)
        # An append waits for the high watermark. If the leader is the only in-sync replica, the
        # append itself has moved the high watermark, and the wait ends now.
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
        # `transaction_result` is Kafka's name: True for a commit, False for an abort.
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
        """Call `on_end` with the outcome of an append.

        If there is no outcome until the timeout, the outcome is REQUEST_TIMED_OUT.
        """

        def acknowledged(error: ErrorCode) -> None:
            # `timer` is set: `acknowledged` is never called before `_await` has returned.
            timer.cancel()
            on_end(error)

        delayed = self._replicas.await_acknowledgement(partition, info, acknowledged)
        # `give_up` ends the wait: it calls `acknowledged` with REQUEST_TIMED_OUT.
        timer = self._host.after(REQUEST_TIMEOUT_US, self._replicas.give_up, delayed)

    def _ended(self, answer: _Answer, index: int, name: TopicPartition, error: ErrorCode) -> None:
        """Take the outcome of marker number `index` in one partition.

        After the last outcome of a marker, the group coordinator gets the marker. After the last
        outcome of the request, the request is answered.
        """
        marker = answer.request.markers[index]
        errors = answer.errors[index]
        errors[name] = error
        if len(errors) < len(_partitions(marker)):
            return  # other partitions of this marker have no outcome yet
        offsets_partitions = tuple(
            written.partition
            for written, outcome in errors.items()
            # A partition without the marker (its append failed) is not reported.
            if written.topic == CONSUMER_OFFSETS and outcome is ErrorCode.NONE
        )
        if offsets_partitions:
            self._on_completed(marker.producer_id, offsets_partitions, marker.transaction_result)
        answer.markers_missing -= 1
        if not answer.markers_missing:
            self._reply(answer)

    def _reply(self, answer: _Answer) -> None:
        self._waiting.discard(answer.request_id)
        self._host.reply(answer.request_id, _response(answer))


def _partitions(marker: WritableTxnMarker) -> tuple[TopicPartition, ...]:
    """Return the partitions of a marker, each of them once."""
    names = (
        TopicPartition(topic.name, index)
        for topic in marker.topics
        for index in topic.partition_indexes
    )
    return tuple(dict.fromkeys(names))


def _response(answer: _Answer) -> WriteTxnMarkersResponse:
    """Return the answer to a request, with the outcome of each marker in each partition."""
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
