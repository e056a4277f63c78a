"""Produce: appends the batches of producers, and answers once every batch is acknowledged.

A request may have batches for several partitions. With acks=all it is answered when each append is
acknowledged or has failed.

Source: Kafka `ReplicaManager.appendRecords`, `DelayedProduce`.
DEVIATION: a request with acks=0 is answered, too, because a connection serves its next request only
after an answer.
"""

from functools import partial

from cluster.broker.replication.delayed_appends import DelayedAppend
from cluster.broker.replication.replica_manager import ReplicaManager
from cluster.host.host import Host, Timer
from partition_log.replica import Partition
from protocol.effects import ACKS_ALL, ACKS_LEADER, ACKS_NONE
from protocol.errors import ErrorCode
from protocol.ids import CONSUMER_OFFSETS, TRANSACTION_STATE, RequestId, TopicPartition
from protocol.messages.log import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from protocol.records.batch import RecordBatch

INTERNAL_TOPICS = (CONSUMER_OFFSETS, TRANSACTION_STATE)
"""Topics to which only coordinators write. Source: Kafka `Topic.isInternal`."""
ADMIN_CLIENT_ID = "__admin_client"
"""The client id that may write to INTERNAL_TOPICS. Source: Kafka `AdminUtils.ADMIN_CLIENT_ID`."""
VALID_ACKS = (ACKS_ALL, ACKS_NONE, ACKS_LEADER)
"""The legal values of acks. A producer waits for all in-sync replicas (ACKS_ALL), for nothing
(ACKS_NONE), or for the leader alone (ACKS_LEADER)."""


class _DelayedProduce:
    """A Produce, which waits while one of its appends has no outcome.

    `waiting` has the appends that have no outcome yet. `answers` has an answer for every partition
    of the request. An append that still waits has the answer for success there, and this answer is
    replaced if the append fails.
    """

    __slots__ = ("answers", "request_id", "timer", "waiting")

    def __init__(self, request_id: RequestId) -> None:
        self.request_id = request_id
        self.answers: dict[TopicPartition, PartitionProduceResponse] = {}
        self.waiting: dict[TopicPartition, DelayedAppend] = {}
        self.timer: Timer | None = None
        """Timer of the request's timeout; None if the request does not wait."""


class ProduceApi:
    """Appends the batches of producers, and answers their requests."""

    def __init__(self, host: Host, replicas: ReplicaManager) -> None:
        self._host = host
        self._replicas = replicas
        self._waiting: set[RequestId] = set()
        """The requests that wait for acknowledgements."""

    def waiting(self) -> frozenset[RequestId]:
        """Return the requests that wait for the acknowledgement of an append."""
        return frozenset(self._waiting)

    def handle(self, request_id: RequestId, request: ProduceRequest, client_id: str) -> None:
        """Append each batch; answer now or, with acks=all, when all appends have an outcome."""
        produce = _DelayedProduce(request_id)
        # The topics to which this client may not write.
        refused = () if client_id == ADMIN_CLIENT_ID else INTERNAL_TOPICS
        # If the acks are illegal, even a partition of an internal topic gets the error about the
        # acks, by `_append`.
        for name, batch in _batches(request).items():
            if name.topic in refused and request.acks in VALID_ACKS:
                produce.answers[name] = PartitionProduceResponse(
                    index=name.partition, error_code=ErrorCode.INVALID_TOPIC_EXCEPTION
                )
            else:
                self._append(produce, name, batch, request.acks)
        # The wait and its timer are set first, because `complete_delayed` may end the wait at once.
        if produce.waiting:
            self._waiting.add(request_id)
            produce.timer = self._host.after(request.timeout_ms * 1_000, self._timed_out, produce)
        else:
            self._reply(produce)
        self._replicas.complete_delayed()

    def _append(
        self, produce: _DelayedProduce, name: TopicPartition, batch: RecordBatch, acks: int
    ) -> None:
        """Append one batch, or note the error if the acks are illegal or there is no replica."""
        partition = self._replicas.partition(name)
        if acks not in VALID_ACKS:
            error = ErrorCode.INVALID_REQUIRED_ACKS
        elif partition is None:
            error = self._replicas.absence(name.topic, name.partition)
        else:
            self._append_to(partition, produce, batch, acks)
            return
        produce.answers[name] = PartitionProduceResponse(index=name.partition, error_code=error)

    def _append_to(
        self, partition: Partition, produce: _DelayedProduce, batch: RecordBatch, acks: int
    ) -> None:
        """Append a batch to a replica; note the answer and, with acks=all, wait for its outcome."""
        name = partition.topic_partition
        info = self._replicas.append_batch(partition, batch, required_acks=acks)
        error, known_outcome = info.error, None
        if error is ErrorCode.NONE and acks == ACKS_ALL and info.is_duplicate:
            # The log has this batch already. If the batch is acknowledged, no later event would end
            # a wait. So the outcome is looked up now. None means that there is no outcome yet; the
            # append then waits like a new one.
            known_outcome = partition.check_acknowledged(info.next_offset)
            error = known_outcome or ErrorCode.NONE
        if error is not ErrorCode.NONE:
            produce.answers[name] = PartitionProduceResponse(
                index=name.partition,
                error_code=error,
                record_errors=info.record_errors,
                error_message=info.error_message,
            )
            return
        # This answer is sent if the wait for the acknowledgement ends without an error.
        produce.answers[name] = PartitionProduceResponse(
            index=name.partition,
            base_offset=info.base_offset,
            log_append_time_ms=info.log_append_time_ms,
            log_start_offset=info.log_start_offset,
        )
        if acks == ACKS_ALL and known_outcome is None:
            produce.waiting[name] = self._replicas.await_acknowledgement(
                partition, info, partial(self._acknowledged, produce, name)
            )

    def _acknowledged(
        self, produce: _DelayedProduce, name: TopicPartition, error: ErrorCode
    ) -> None:
        """Take the outcome of one append; after the last append, answer the request."""
        del produce.waiting[name]
        if error is not ErrorCode.NONE:
            produce.answers[name] = PartitionProduceResponse(index=name.partition, error_code=error)
        if not produce.waiting:
            if produce.timer is not None:
                produce.timer.cancel()
            self._reply(produce)

    def _timed_out(self, produce: _DelayedProduce) -> None:
        """End the wait for all appends without an outcome, after the request's timeout."""
        # `give_up` calls `_acknowledged`, which answers the request after the last append. It also
        # removes each append from `waiting`, so the loop runs over a copy.
        for delayed in list(produce.waiting.values()):
            self._replicas.give_up(delayed)

    def _reply(self, produce: _DelayedProduce) -> None:
        """Answer a request, with its answers grouped by topic."""
        self._waiting.discard(produce.request_id)
        by_topic: dict[str, list[PartitionProduceResponse]] = {}
        for name, answer in produce.answers.items():
            by_topic.setdefault(name.topic, []).append(answer)
        self._host.reply(
            produce.request_id,
            ProduceResponse(
                responses=tuple(
                    TopicProduceResponse(name=topic, partition_responses=tuple(answers))
                    for topic, answers in by_topic.items()
                )
            ),
        )


def _batches(request: ProduceRequest) -> dict[TopicPartition, RecordBatch]:
    """Return the batch of each partition; if a partition occurs twice, the last batch counts.

    Source: Kafka `KafkaApis.handleProduceRequest`, which collects the batches in a map.
    """
    return {
        TopicPartition(topic.name, data.index): data.records
        for topic in request.topic_data
        for data in topic.partition_data
    }
