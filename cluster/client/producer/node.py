"""The producer node: numbered records at a fixed rate, spread round robin over the partitions.

The values of the records are "0", "1", "2" and so on. ProducerNode collects them into batches, with
a queue of batches for each partition. To *drain* the queues means to send the first batch of each
queue, if it is ready. At most one batch of a partition is in flight, so that retries keep the
order.

If the answer to a batch is lost, the producer sends the batch again, and the log may have it twice.
With enable.idempotence the partition's leader recognises the batch by its identity (see
`producer_identity`), and appends it only once.

Source: Kafka RecordAccumulator, Sender.
DEVIATION: with acks=0 the producer waits for an answer and ignores its error; Kafka's broker sends
no answer.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from cluster.client.net.errors import TIMED_OUT, ClientError, error_from_code
from cluster.client.net.futures import RequestFuture, Wakeup
from cluster.client.net.metadata import Metadata
from cluster.client.net.network_client import NetworkClient
from cluster.client.net.retries import MS, retry_backoff
from cluster.client.producer.producer_identity import BatchIdentity, ProducerIdentity
from cluster.host.connection_purposes import GENERAL
from cluster.host.host import Host, Timer
from cluster.runtime import ClusterStatus
from cluster.spec import ClusterSpec, ProducerSpec
from partition_log.batches import build_batch
from protocol.errors import ErrorCode
from protocol.ids import NO_BROKER, NO_PRODUCER_ID, NodeName, TopicPartition, broker_name
from protocol.messages.log import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from protocol.messages.transaction import InitProducerIdRequest, InitProducerIdResponse
from protocol.records.batch import Record, RecordBatch
from protocol.trace import TraceEvent, TraceKind

BATCH_RECORDS_MAX = 500
"""Largest number of records in a batch; takes the place of Kafka's setting `batch.size`."""
BUFFERED_RECORDS_MAX = 100_000
"""Number of buffered records at which the application waits; takes the place of `buffer.memory`."""
MAX_IN_FLIGHT_PER_NODE = 5
"""Largest number of unanswered requests to a broker.

Source: `max.in.flight.requests.per.connection`."""

NO_TIMEOUT_MS = (1 << 31) - 1
"""Transaction timeout in the InitProducerId of a producer without transactions.

Source: Kafka TransactionManager."""

_SECOND_US = 1_000_000
_ACKS = {"all": -1, "1": 1, "0": 0}
"""The setting `acks` as the number in a Produce request."""


@dataclass(slots=True, eq=False)
class _Batch:
    """Records of one partition, to be sent not before `ready_at_us`.

    If the batch is not acknowledged by `expires_at_us`, the producer gives it up.
    """

    partition: TopicPartition
    ready_at_us: int
    expires_at_us: int
    records: list[Record] = field(default_factory=list)
    attempts: int = 0
    identity: BatchIdentity | None = None
    """None before the batch is first sent, and always if the producer is not idempotent."""


class ProducerNode:
    """One producer and its application."""

    def __init__(self, host: Host, cluster: ClusterSpec, spec: ProducerSpec) -> None:
        self._host = host
        self._spec = spec
        self._config = spec.config
        self._wakeup = Wakeup(host)
        self._metadata = Metadata(
            host, cluster, spec.config, (spec.topic,), on_update=self._metadata_updated
        )
        self._network = NetworkClient(
            host,
            spec.config,
            known_nodes=self._metadata.nodes,
            on_disconnect=self._metadata.request_update,
        )
        self._backoff = retry_backoff(host, spec.config)
        # Batches that are not in flight, oldest first.
        self._queues: dict[TopicPartition, deque[_Batch]] = {}
        # The partitions with a batch in flight, as the keys of the dict.
        self._in_flight: dict[TopicPartition, None] = {}
        # Number of unanswered requests to each broker.
        self._requests_in_flight: dict[NodeName, int] = {}
        # Number of records that are neither acknowledged nor given up.
        self._buffered = 0
        self._acknowledged = 0
        self._drain_timer: Timer | None = None
        self._drain_at_us = 0
        """Time at which `_drain_timer` fires; without a timer it has no meaning."""
        self._identity = ProducerIdentity() if spec.config.enable_idempotence else None
        self._is_asking_for_id = False
        self._id_failures = 0

    def start(self) -> None:
        """Begin to produce as soon as the topic's partitions are known."""
        self._metadata.start(self._network)
        if self._spec.records_per_second > 0:
            self._host.spawn(self._run(), name="application")

    def shut_down(self, on_done: Callable[[], None]) -> None:
        """Stop at once. Unsent batches are lost, as if the application did not call `close`.

        `on_done` makes the runtime end the node and its tasks.
        """
        on_done()

    def report(self, status: ClusterStatus) -> None:
        """Add the number of acknowledged records."""
        status.records_produced += self._acknowledged

    async def _run(self) -> None:
        """Append records at the fixed rate.

        While the topic is unknown or the buffer is full, no record is appended, because Kafka's
        `send` blocks then.
        """
        # At least 1 us, the unit of the host's clock.
        interval_us = max(1, round(_SECOND_US / self._spec.records_per_second))
        number = 0
        due_us = self._host.now_us()
        while True:
            partitions = self._metadata.partition_count(self._spec.topic)
            if not partitions or self._buffered >= BUFFERED_RECORDS_MAX:
                await self._wakeup.wait(None)
                # The records that would have been due during the wait are left out.
                due_us = self._host.now_us()
                continue
            self._append(TopicPartition(self._spec.topic, number % partitions), number)
            number += 1
            # From the last due time and not from now, so that a delay does not lower the rate.
            due_us += interval_us
            await self._host.sleep(max(0, due_us - self._host.now_us()))

    def _append(self, partition: TopicPartition, number: int) -> None:
        """Add a record to the last unsent batch of its partition, or to a new batch."""
        record = Record(
            key=None, value=str(number).encode(), timestamp_ms=self._host.wall_us() // MS
        )
        self._buffered += 1
        queue = self._queues.setdefault(partition, deque())
        # A batch with attempts > 0 was sent before, and must not change, because the log may have
        # it.
        if queue and queue[-1].attempts == 0 and len(queue[-1].records) < BATCH_RECORDS_MAX:
            queue[-1].records.append(record)
            return
        now_us = self._host.now_us()
        # A full batch waits for linger.ms, too; Kafka's producer would send it now.
        batch = _Batch(
            partition=partition,
            ready_at_us=now_us + self._config.linger_ms * MS,
            expires_at_us=now_us + self._config.delivery_timeout_ms * MS,
            records=[record],
        )
        queue.append(batch)
        self._drain_at(batch.ready_at_us)

    # -- sending ------------------------------------------------------------------------------

    def _drain_at(self, at_us: int) -> None:
        """Call `_drain` at `at_us`, or earlier if an earlier call is scheduled already."""
        if self._drain_timer is not None:
            if self._drain_at_us <= at_us:
                return
            self._drain_timer.cancel()
        self._drain_at_us = at_us
        self._drain_timer = self._host.after(max(0, at_us - self._host.now_us()), self._drain)

    def _drain(self) -> None:
        """Send every batch that is ready, if its partition's leader can take it."""
        if self._drain_timer is not None:
            self._drain_timer.cancel()
            self._drain_timer = None
        now_us = self._host.now_us()

        # An idempotent producer without an id cannot send, so it first requests an id.
        if self._identity is not None and self._identity.producer_id == NO_PRODUCER_ID:
            for queue in self._queues.values():
                self._expire(queue, now_us)
            self._ask_for_id()
            return

        by_node: dict[NodeName, list[_Batch]] = {}
        for partition, queue in self._queues.items():
            if not queue:
                continue
            self._expire(queue, now_us)
            if not queue or partition in self._in_flight:
                continue  # `_answered` drains again
            batch = queue[0]
            if now_us < batch.ready_at_us:
                self._drain_at(batch.ready_at_us)
                continue
            leader = self._metadata.leader(partition).leader
            if leader == NO_BROKER:
                # New metadata drains again. If none comes, the batch must be given up at its end.
                self._metadata.request_update()
                self._drain_at(batch.expires_at_us)
                continue
            node = broker_name(leader)
            if self._network.is_unavailable(node, GENERAL):
                self._drain_at(now_us + self._config.reconnect_backoff_ms * MS)
                continue
            if self._requests_in_flight.get(node, 0) >= MAX_IN_FLIGHT_PER_NODE:
                continue  # each answer drains again
            by_node.setdefault(node, []).append(batch)
        for node, batches in by_node.items():
            self._send(node, batches)

    def _build(self, batch: _Batch) -> RecordBatch:
        """Return the batch to send, with its identity. The first call assigns the identity."""
        records = tuple(batch.records)
        if self._identity is None:
            return build_batch(records)
        if batch.identity is None:
            batch.identity = self._identity.identify(batch.partition, len(records))
        producer_id, producer_epoch, base_sequence = batch.identity
        return build_batch(
            records,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
        )

    def _ask_for_id(self) -> None:
        """Request a producer id from any broker, unless a request is in flight.

        Source: Kafka Sender.
        """
        if self._is_asking_for_id:
            return
        node = self._network.least_loaded_node()
        if node is None:
            self._drain_at(self._host.now_us() + self._config.reconnect_backoff_ms * MS)
            return
        self._is_asking_for_id = True
        self._network.send(
            node.name,
            node.purpose,
            InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=NO_TIMEOUT_MS),
            InitProducerIdResponse,
            timeout_us=self._config.request_timeout_ms * MS,
        ).add_listener(self._id_answered)

    def _id_answered(self, answer: RequestFuture[InitProducerIdResponse]) -> None:
        """Take the producer id and send what waited for it, or request an id again later."""
        self._is_asking_for_id = False
        if answer.error is None and answer.value.error_code is ErrorCode.NONE:
            self._id_failures = 0
            # Always true, because only an idempotent producer requests an id. This is for mypy.
            if self._identity is not None:
                self._identity.begin(answer.value.producer_id, answer.value.producer_epoch)
            self._drain()
            return
        # Any error is retried. The usual one is COORDINATOR_LOAD_IN_PROGRESS, which a broker
        # answers until the controller has given the broker a block of ids.
        self._drain_at(self._host.now_us() + self._backoff.delay_us(self._id_failures))
        self._id_failures += 1

    def _expire(self, queue: deque[_Batch], now_us: int) -> None:
        """Give up the batches at the front of `queue` whose time is over."""
        while queue and now_us >= queue[0].expires_at_us:
            self._give_up(queue.popleft(), TIMED_OUT)

    def _send(self, node: NodeName, batches: list[_Batch]) -> None:
        """Send the batches of partitions that one broker leads, in one request."""
        by_partition: dict[TopicPartition, _Batch] = {}
        for batch in batches:
            self._queues[batch.partition].popleft()  # this is `batch`
            self._in_flight[batch.partition] = None
            by_partition[batch.partition] = batch
        self._requests_in_flight[node] = self._requests_in_flight.get(node, 0) + 1
        request = ProduceRequest(
            acks=_ACKS[self._config.acks],
            timeout_ms=self._config.request_timeout_ms,
            topic_data=(
                TopicProduceData(
                    name=self._spec.topic,
                    partition_data=tuple(
                        PartitionProduceData(
                            index=batch.partition.partition,
                            records=self._build(batch),
                        )
                        for batch in batches
                    ),
                ),
            ),
        )
        self._network.send(
            node,
            GENERAL,
            request,
            ProduceResponse,
            timeout_us=self._config.request_timeout_ms * MS,
        ).add_listener(lambda answer: self._answered(answer, node, by_partition))

    def _answered(
        self,
        answer: RequestFuture[ProduceResponse],
        node: NodeName,
        batches: dict[TopicPartition, _Batch],
    ) -> None:
        """Process the outcome of each batch, and send the next batches."""
        self._requests_in_flight[node] -= 1
        outcomes: dict[TopicPartition, PartitionProduceResponse] = {}
        if answer.error is None:
            outcomes = {
                TopicPartition(topic.name, entry.index): entry
                for topic in answer.value.responses
                for entry in topic.partition_responses
            }
        for partition, batch in batches.items():
            del self._in_flight[partition]
            if answer.error is not None:
                self._retry_or_give_up(batch, answer.error)
                continue
            outcome = outcomes[partition]
            # With acks=0 Kafka's producer gets no answer, so an error must have no effect.
            if outcome.error_code is ErrorCode.NONE or self._config.acks == "0":
                self._succeeded(batch, outcome.base_offset)
            else:
                self._retry_or_give_up(batch, error_from_code(outcome.error_code))
        self._drain()
        self._wakeup.set()

    # -- outcomes -----------------------------------------------------------------------------

    def _succeeded(self, batch: _Batch, base_offset: int) -> None:
        """Count and trace the records of an acknowledged batch."""
        count = len(batch.records)
        self._buffered -= count
        self._acknowledged += count
        self._host.trace(
            TraceEvent(
                kind=TraceKind.RECORDS_PRODUCED,
                partition=str(batch.partition),
                offset=base_offset,
                detail={"count": count},
            )
        )

    def _retry_or_give_up(self, batch: _Batch, error: ClientError) -> None:
        """Put the batch back to the front of its queue, or give it up."""
        now_us = self._host.now_us()
        if not error.retriable or now_us >= batch.expires_at_us:
            self._give_up(batch, error.name)
            return
        batch.ready_at_us = now_us + self._backoff.delay_us(batch.attempts)
        batch.attempts += 1
        self._queues[batch.partition].appendleft(batch)
        self._metadata.request_update()  # the partition may have another leader by now

    def _give_up(self, batch: _Batch, error: str) -> None:
        """Drop a batch, and trace the failure."""
        if self._identity is not None and batch.identity is not None:
            # The batch was sent, but the log may not have it. Then the leader would see a gap in
            # the sequence numbers and refuse the next batch. A new epoch begins at number 0.
            self._identity.raise_epoch()
        self._buffered -= len(batch.records)
        self._host.trace(
            TraceEvent(
                kind=TraceKind.PRODUCE_FAILED,
                partition=str(batch.partition),
                error=error,
                detail={"count": len(batch.records)},
            )
        )

    def _metadata_updated(self) -> None:
        """Wake `_run`, which may wait for the topic; send batches that waited for a leader."""
        self._wakeup.set()
        self._drain()
