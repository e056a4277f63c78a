"""WriteTxnMarkers: appends transaction markers to the partitions that this broker leads.

A marker is the record that ends a transaction in a partition: it commits or aborts. The request has
several markers, each for several partitions. It is answered when every marker is acknowledged (all
in-sync replicas have it) or has failed in each of its partitions.

Markers in offsets partitions (those of `__consumer_offsets`) also concern the group coordinator,
which gets them through its task queue. A load reads the groups of a partition into memory, and the
markers may have to wait in this queue behind a load. So, as in Kafka, the group coordinator may
learn of markers after the request is answered.
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
"""Takes a marker that was written: the producer's id, the numbers of the offsets partitions that
have the marker, and True if the marker commits (False if it aborts)."""


class _Answer:
    """Outcomes of one request's markers so far."""

    def __init__(self, request_id: RequestId, request: WriteTxnMarkersRequest) -> None:
        self.request_id = request_id
        self.request = request
        self.errors: list[dict[TopicPartition, ErrorCode]] = [{} for _ in request.markers]
        """Outcomes of each marker by partition, in the order of the request. The outcome of a
        success is ErrorCode.NONE."""
        self.markers_missing = sum(1 for marker in request.markers if _partitions(marker))
        """Number of markers with a partition that has no outcome yet; the answer is sent at 0."""


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
        # A request whose markers name no partition is answered here. Otherwise `_ended` answers it,
        # at the last outcome.
        if not answer.markers_missing:
            self._reply(answer)
        for index, marker in enumerate(request.markers):
            for name in _partitions(marker):
                self._append(answer, index, marker, name)
        # An append waits until the partition's high watermark (the offset below which every in-sync
        # replica has the records) passes it. If the leader is the only in-sync replica, the append
        # above has moved the high watermark itself, and `complete_delayed` ends the wait now.
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
            # `await_acknowledgement` never calls this before it returns, so `timer` exists (below).
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
        # Each partition of a marker has one outcome, so counting shows whether all are there.
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
