"""A TransactionCoordinator with the parts of a broker that it needs: a log, timers, markers.

The coordinator keeps the state of each transaction in a log. Markers are the records that end a
transaction in its partitions. Each call of the coordinator returns a Result: appends, timers,
markers and replies. The harness carries the Result out. By default it acknowledges appends and
writes markers immediately. With `holds_appends` and `holds_markers` they wait until a test decides
their outcome.

A producer has a transactional id, which it keeps through a restart, a producer id, and the producer
epoch, which every new start of the producer increases. The controller gives producer ids to the
coordinator in blocks of `BLOCK`.
"""

import heapq
from itertools import count

from coordinator.transaction.effects import SendMarkers, TransactionResult
from coordinator.transaction.metadata import TransactionMetadata
from coordinator.transaction.states import TransactionState
from coordinator.transaction.transaction_coordinator import TransactionCoordinator
from protocol.api import API_OF_REQUEST, AnyResponse, TransactionRequest
from protocol.config import BrokerConfig
from protocol.effects import Append, AppendCompleted, SetTimer
from protocol.envelope import RequestEnvelope
from protocol.errors import ErrorCode
from protocol.ids import RequestId, TopicPartition, offsets_partition
from protocol.messages.transaction import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from protocol.records.batch import Record, RecordBatch, decode_records, encode_records
from protocol.trace import TraceEvent

EPOCH_US = 1_700_000_000_000_000
"""Wall clock at the start of every test, microseconds since the epoch."""
BLOCK = 10
"""Number of producer ids that the controller allocates at a time."""
TX = "tx"
"""Transactional id of most tests."""
TIMEOUT_MS = 60_000
"""Transaction timeout of most tests."""
OFFSETS = offsets_partition(0)
"""The only offsets partition (partition of `__consumer_offsets`): every group is in it."""


class TransactionHarness:
    """A transaction coordinator with simulated parts of its broker."""

    def __init__(
        self,
        *,
        config: BrokerConfig | None = None,
        log: list[RecordBatch] | None = None,
        epoch: int | None = 0,
        first_producer_id: int = 0,
    ) -> None:
        """Create the coordinator, and load its only partition.

        It becomes the partition's leader in leader epoch `epoch`. If `epoch` is None, it loads
        nothing, and the test calls `load`. `log` is the partition's log, by default an empty one.
        `first_producer_id` is the first id of the first block of producer ids.
        """
        self.config = config or BrokerConfig()
        self.coordinator = TransactionCoordinator(
            config=self.config, num_partitions=1, num_offsets_partitions=1
        )
        self.now_us = EPOCH_US
        self.log: list[RecordBatch] = [] if log is None else log
        self.holds_appends = False
        self.holds_markers = False
        self.gives_producer_ids = True
        """False: a request for a block of producer ids is refused."""
        self.held: list[Append] = []
        """Appends that wait for `complete`, oldest first."""
        self.markers: list[SendMarkers] = []
        """Markers that wait for `answer_markers`, oldest first."""
        self.trace: list[TraceEvent] = []
        self.responses: dict[RequestId, AnyResponse] = {}
        self._next_block = first_producer_id
        self._requests = count(1)
        self._deadlines: dict[str, tuple[int, int]] = {}
        """Deadline and sequence number of each running timer, by its key."""
        self._timer_heap: list[tuple[int, int, str]] = []
        """Deadline, sequence number and key of every timer that was set.

        An entry is outdated if `_deadlines` does not have it: the timer was cancelled or set again.
        """
        self._sequence = count()
        self._acknowledge: list[Append] = []
        """Appends of the current Result that are not held. They succeed, in order, at its end."""
        self.execute(self.coordinator.start(self.now_us))
        self.coordinator.producer_ids_allocated(self._take_block(), BLOCK)
        if epoch is not None:
            self.load(epoch)

    # -- inputs --

    def submit(self, body: TransactionRequest, *, version: int | None = None) -> RequestId:
        """Feed a request and return its id, under which `responses` later has the answer."""
        request_id = RequestId(next(self._requests))
        api = API_OF_REQUEST[type(body)]
        envelope = RequestEnvelope(
            api_key=api,
            api_version=api.latest_version if version is None else version,
            correlation_id=0,
            client_id="producer",
            client_host="producer",
            body=body,
        )
        self.execute(self.coordinator.handle(request_id, envelope, self.now_us))
        return request_id

    def advance(self, delay_ms: int) -> None:
        """Advance virtual time and fire every due timer."""
        end_us = self.now_us + delay_ms * 1_000
        while self._timer_heap and self._timer_heap[0][0] <= end_us:
            deadline_us, sequence, key = heapq.heappop(self._timer_heap)
            if self._deadlines.get(key) != (deadline_us, sequence):
                continue  # the timer was cancelled, or set again
            del self._deadlines[key]
            self.now_us = deadline_us
            self.execute(self.coordinator.timer_fired(key, self.now_us))
        self.now_us = end_us

    def complete(self, error: ErrorCode = ErrorCode.NONE) -> None:
        """Complete the oldest held append, or let it fail with `error`."""
        self._complete(self.held.pop(0), error)

    def answer_markers(self, error: ErrorCode = ErrorCode.NONE) -> None:
        """Let the oldest held request for markers succeed, or fail with `error`.

        The outcome is the same for all partitions of the transaction.
        """
        markers = self.markers.pop(0)
        self.execute(
            self.coordinator.markers_answered(
                markers.transactional_id,
                markers.coordinator_epoch,
                dict.fromkeys(markers.partitions, error),
                self.now_us,
            )
        )

    def load(self, epoch: int) -> None:
        """Load the coordinator's partition from the log, as its leader in leader epoch `epoch`."""
        self.coordinator.begin_load(0, epoch)
        self.coordinator.load_batches(0, tuple(self.log))
        self.execute(self.coordinator.finish_load(0, self.now_us))

    def failover(self, epoch: int = 1) -> "TransactionHarness":
        """Return the harness of another broker that has loaded this one's log."""
        other = TransactionHarness(
            config=self.config,
            log=list(self.log),
            epoch=None,
            first_producer_id=1_000,  # a block that the first broker never gets
        )
        other.now_us = self.now_us
        other.holds_markers = self.holds_markers
        other.load(epoch)
        return other

    # -- requests that must be answered before `submit` returns --

    def init(
        self,
        transactional_id: str | None = TX,
        *,
        timeout_ms: int = TIMEOUT_MS,
        producer_id: int = -1,
        epoch: int = -1,
        version: int | None = None,
    ) -> InitProducerIdResponse:
        """Send an InitProducerId and return its answer.

        By default the client has no producer id and epoch yet (-1), and sends the newest version.
        """
        request = InitProducerIdRequest(
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
            producer_id=producer_id,
            producer_epoch=epoch,
        )
        response = self.responses[self.submit(request, version=version)]
        assert isinstance(response, InitProducerIdResponse)
        return response

    def add_offsets(
        self, producer_id: int, epoch: int = 0, *, transactional_id: str = TX, group: str = "group"
    ) -> ErrorCode:
        """Send an AddOffsetsToTxn and return its answer."""
        request = AddOffsetsToTxnRequest(
            transactional_id=transactional_id,
            producer_id=producer_id,
            producer_epoch=epoch,
            group_id=group,
        )
        response = self.responses[self.submit(request)]
        assert isinstance(response, AddOffsetsToTxnResponse)
        return response.error_code

    def add_partitions(
        self,
        producer_id: int,
        epoch: int = 0,
        *partitions: TopicPartition,
        transactional_id: str = TX,
        verify_only: bool = False,
        version: int | None = None,
    ) -> dict[TopicPartition, ErrorCode]:
        """Send an AddPartitionsToTxn of one transaction and return the error of each partition."""
        topics: dict[str, tuple[int, ...]] = {}
        for topic, index in partitions:
            topics[topic] = (*topics.get(topic, ()), index)
        request = AddPartitionsToTxnRequest(
            transactions=(
                AddPartitionsToTxnTransaction(
                    transactional_id=transactional_id,
                    producer_id=producer_id,
                    producer_epoch=epoch,
                    verify_only=verify_only,
                    topics=tuple(
                        AddPartitionsToTxnTopic(name=name, partitions=indexes)
                        for name, indexes in topics.items()
                    ),
                ),
            )
        )
        response = self.responses[self.submit(request, version=version)]
        assert isinstance(response, AddPartitionsToTxnResponse)
        return {
            TopicPartition(topic.name, partition.partition_index): partition.partition_error_code
            for result in response.results_by_transaction
            for topic in result.topic_results
            for partition in topic.results_by_partition
        }

    def verify(self, producer_id: int, epoch: int = 0, *, transactional_id: str = TX) -> ErrorCode:
        """Ask whether the open transaction includes the partition OFFSETS; return the answer."""
        (error,) = self.add_partitions(
            producer_id, epoch, OFFSETS, transactional_id=transactional_id, verify_only=True
        ).values()
        return error

    def end(
        self,
        producer_id: int,
        epoch: int = 0,
        *,
        is_commit: bool = True,
        transactional_id: str = TX,
        version: int | None = None,
    ) -> ErrorCode:
        """Send an EndTxn and return its answer."""
        request_id = self.submit(
            end_txn(producer_id, epoch, is_commit=is_commit, transactional_id=transactional_id),
            version=version,
        )
        return self.end_error(request_id)

    def end_error(self, request_id: RequestId) -> ErrorCode:
        """Return the error of an answered EndTxn."""
        response = self.responses[request_id]
        assert isinstance(response, EndTxnResponse)
        return response.error_code

    # -- observations --

    def metadata(self, transactional_id: str = TX) -> TransactionMetadata:
        """Return the metadata of a known transactional id."""
        metadata = self.coordinator.metadata(transactional_id)
        assert metadata is not None
        return metadata

    def state(self, transactional_id: str = TX) -> TransactionState:
        """Return the state of a known transactional id."""
        return self.metadata(transactional_id).state

    def states(self) -> list[str]:
        """Return the states that transactions entered, in order, by their names in the trace."""
        return [str((event.detail or {})["to"]) for event in self.trace]

    def deadlines(self) -> list[tuple[str, int]]:
        """Return the keys of the running timers and their times, soonest first."""
        by_deadline = sorted(self._deadlines.items(), key=lambda item: item[1])
        return [(key, deadline_us) for key, (deadline_us, _) in by_deadline]

    def records(self) -> list[Record]:
        """Return the records of the log."""
        return [record for batch in self.log for record in decode_records(batch.records)]

    # -- the broker's part --

    def execute(self, result: TransactionResult) -> None:
        """Carry out a Result, and each Result that follows from it.

        The coordinator returns further Results when appends complete and markers are answered.
        """
        self._carry_out(result)
        while self._acknowledge:
            self._complete(self._acknowledge.pop(0), ErrorCode.NONE)
        while self.markers and not self.holds_markers:
            self.answer_markers()
        self.coordinator.check_invariants()

    def _carry_out(self, result: TransactionResult) -> None:
        for timer in result.timers:
            if isinstance(timer, SetTimer):
                entry = (self.now_us + timer.delay_us, next(self._sequence))
                self._deadlines[timer.key] = entry
                heapq.heappush(self._timer_heap, (*entry, timer.key))
            else:
                self._deadlines.pop(timer.key, None)
        for append in result.appends:
            # A log acknowledges in order, so an append after a held one is held, too.
            waiting = self.held if self.holds_appends or self.held else self._acknowledge
            waiting.append(append)
        self.markers.extend(result.markers)
        for reply in result.replies:
            assert reply.request_id not in self.responses, "answered twice"
            self.responses[reply.request_id] = reply.response
        self.trace.extend(result.trace)
        if result.wants_producer_ids:
            if self.gives_producer_ids:
                self.coordinator.producer_ids_allocated(self._take_block(), BLOCK)
            else:
                self.coordinator.producer_ids_refused()

    def _take_block(self) -> int:
        start = self._next_block
        self._next_block += BLOCK
        return start

    def _complete(self, append: Append, error: ErrorCode) -> None:
        """Write an append to the log unless `error` is set, and report the outcome."""
        base_offset = None
        if error is ErrorCode.NONE:
            base_offset = self.log[-1].next_offset if self.log else 0
            self.write(*append.records)
        completed = AppendCompleted(
            append_id=append.append_id, error=error, base_offset=base_offset
        )
        self.execute(self.coordinator.append_completed(completed, self.now_us))

    def write(self, *records: Record) -> None:
        """Append a batch to the log."""
        self.log.append(
            RecordBatch(
                base_offset=self.log[-1].next_offset if self.log else 0,
                partition_leader_epoch=0,
                last_offset_delta=len(records) - 1,
                max_timestamp_ms=0,
                records=encode_records(records),
            )
        )


def end_txn(
    producer_id: int, epoch: int = 0, *, is_commit: bool = True, transactional_id: str = TX
) -> EndTxnRequest:
    """Return an EndTxn."""
    return EndTxnRequest(
        transactional_id=transactional_id,
        producer_id=producer_id,
        producer_epoch=epoch,
        committed=is_commit,
    )
