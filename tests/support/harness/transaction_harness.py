"""A TransactionCoordinator for tests, with simple parts in place of its broker.

The coordinator does no I/O. Most of its methods return a Result, which says what shall be done:

- timers to set or to cancel,
- replies to requests,
- appends to the log in which the coordinator keeps the states of transactions,
- markers to write, which end a transaction in each of its partitions.

The harness does what a Result says. By default appends and markers succeed at once. After a test
has set `holds_appends`, an append waits until the test calls `complete`. After the test has set
`holds_markers`, markers wait until the test calls `answer_markers`. With an argument of `complete`
or `answer_markers` the test lets the append or the markers fail.
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
"""The time at which every test begins, in microseconds since 1970."""
BLOCK = 10
"""The number of producer ids that the coordinator gets from the controller at a time."""
TX = "tx"
"""The transactional id of most tests."""
TIMEOUT_MS = 60_000
"""The transaction timeout of most tests."""
OFFSETS = offsets_partition(0)
"""The only partition of `__consumer_offsets`. So every group belongs to this partition."""


class TransactionHarness:
    """A transaction coordinator, and the parts of a broker that it needs."""

    def __init__(
        self,
        *,
        config: BrokerConfig | None = None,
        log: list[RecordBatch] | None = None,
        epoch: int | None = 0,
        first_producer_id: int = 0,
    ) -> None:
        """Create the coordinator, and load its only partition from `log`, by default an empty log.

        The coordinator leads this partition in the leader epoch `epoch`. If `epoch` is None, the
        coordinator loads nothing, and the test calls `load` later. The producer ids begin with
        `first_producer_id`.
        """
        self.config = config or BrokerConfig()
        self.coordinator = TransactionCoordinator(
            config=self.config, num_partitions=1, num_offsets_partitions=1
        )
        self.now_us = EPOCH_US
        self.log: list[RecordBatch] = [] if log is None else log
        self.holds_appends = False
        self.holds_markers = False
        # If False, the coordinator gets no more producer ids.
        self.gives_producer_ids = True
        # Appends that wait for `complete`, oldest first.
        self.held: list[Append] = []
        # Markers that wait for `answer_markers`, oldest first.
        self.markers: list[SendMarkers] = []
        self.trace: list[TraceEvent] = []
        self.responses: dict[RequestId, AnyResponse] = {}
        self._next_block = first_producer_id
        self._request_ids = count(1)
        # Key of each running timer -> the time at which it fires, and a number. If two timers have
        # equal times, the timer that was set first has the smaller number, and fires first.
        self._deadlines: dict[str, tuple[int, int]] = {}
        # Time, number and key of each timer that was ever set and did not fire yet. A timer that
        # was cancelled or set again stays here, but its time and number are not in `_deadlines`.
        self._timer_heap: list[tuple[int, int, str]] = []
        self._timer_numbers = count()
        # Appends that are not held. They succeed, in this order, when the rest of the Result has
        # been carried out.
        self._to_acknowledge: list[Append] = []
        self.execute(self.coordinator.start(self.now_us))
        self.coordinator.producer_ids_allocated(self._take_block(), BLOCK)
        if epoch is not None:
            self.load(epoch)

    # -- inputs --

    def submit(self, body: TransactionRequest, *, version: int | None = None) -> RequestId:
        """Send a request and return its id.

        The answer appears in `responses` under this id, at once or later.
        """
        request_id = RequestId(next(self._request_ids))
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
        """Let time pass, and fire the timers that become due, each at its own time."""
        end_us = self.now_us + delay_ms * 1_000
        while self._timer_heap and self._timer_heap[0][0] <= end_us:
            deadline_us, number, key = heapq.heappop(self._timer_heap)
            if self._deadlines.get(key) != (deadline_us, number):
                # The timer was cancelled, or set again.
                continue
            del self._deadlines[key]
            self.now_us = deadline_us
            self.execute(self.coordinator.timer_fired(key, self.now_us))
        self.now_us = end_us

    def complete(self, error: ErrorCode = ErrorCode.NONE) -> None:
        """Let the oldest held append succeed, or fail with `error`."""
        self._complete(self.held.pop(0), error)

    def answer_markers(self, error: ErrorCode = ErrorCode.NONE) -> None:
        """Let the oldest held markers be written, or fail with `error`.

        The outcome is the same in all partitions of the transaction.
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
        """Load the coordinator's partition from the log, as its leader in this leader epoch."""
        self.coordinator.begin_load(0, epoch)
        self.coordinator.load_batches(0, tuple(self.log))
        self.execute(self.coordinator.finish_load(0, self.now_us))

    def failover(self, epoch: int = 1) -> "TransactionHarness":
        """Return the harness of another coordinator, which has loaded a copy of this log."""
        other = TransactionHarness(
            config=self.config,
            log=list(self.log),
            epoch=None,
            # The controller gives no producer id twice. So the ids of the other coordinator begin
            # far above all ids of this coordinator.
            first_producer_id=1_000,
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

        By default the producer has no id and no epoch yet, and sends -1 instead of them.
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
        """Send an AddOffsetsToTxn and return its error code."""
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
        """Send an AddPartitionsToTxn, and return the error code of each partition."""
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
        """Ask whether the open transaction includes the partition OFFSETS; return the error code.

        A broker asks so before it takes a commit in a transaction.
        """
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
        """Send an EndTxn and return its error code."""
        request_id = self.submit(
            end_txn(producer_id, epoch, is_commit=is_commit, transactional_id=transactional_id),
            version=version,
        )
        return self.end_error(request_id)

    def end_error(self, request_id: RequestId) -> ErrorCode:
        """Return the error code of an EndTxn that was answered."""
        response = self.responses[request_id]
        assert isinstance(response, EndTxnResponse)
        return response.error_code

    # -- observations --

    def metadata(self, transactional_id: str = TX) -> TransactionMetadata:
        """Return what the coordinator knows about a transactional id."""
        metadata = self.coordinator.metadata(transactional_id)
        assert metadata is not None
        return metadata

    def state(self, transactional_id: str = TX) -> TransactionState:
        """Return the state of a transactional id."""
        return self.metadata(transactional_id).state

    def states(self) -> list[str]:
        """Return the names of the states that transactions have entered, in their order."""
        # Every trace event of the coordinator is a change of state. Its detail has the new state.
        return [str((event.detail or {})["to"]) for event in self.trace]

    def deadlines(self) -> list[tuple[str, int]]:
        """Return key and time of each running timer, in the order in which they fire."""
        by_deadline = sorted(self._deadlines.items(), key=lambda item: item[1])
        return [(key, deadline_us) for key, (deadline_us, _) in by_deadline]

    def records(self) -> list[Record]:
        """Return all records of the log."""
        return [record for batch in self.log for record in decode_records(batch.records)]

    # -- the broker's part --

    def execute(self, result: TransactionResult) -> None:
        """Carry out a Result, and all Results that follow from it.

        When an append ends or markers are answered, the coordinator returns another Result.
        """
        self._carry_out(result)
        while self._to_acknowledge:
            self._complete(self._to_acknowledge.pop(0), ErrorCode.NONE)
        while self.markers and not self.holds_markers:
            self.answer_markers()
        self.coordinator.check_invariants()

    def _carry_out(self, result: TransactionResult) -> None:
        """Set timers, hold or note appends and markers, and keep replies and trace events."""
        for timer in result.timers:
            if isinstance(timer, SetTimer):
                deadline = (self.now_us + timer.delay_us, next(self._timer_numbers))
                self._deadlines[timer.key] = deadline
                heapq.heappush(self._timer_heap, (*deadline, timer.key))
            else:
                self._deadlines.pop(timer.key, None)
        for append in result.appends:
            # A log acknowledges appends in their order. So an append is also held if an earlier
            # append is still held.
            if self.holds_appends or self.held:
                self.held.append(append)
            else:
                self._to_acknowledge.append(append)
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
        """Return the first id of a new block of producer ids."""
        first = self._next_block
        self._next_block += BLOCK
        return first

    def _complete(self, append: Append, error: ErrorCode) -> None:
        """Write an append to the log, unless it fails, and tell the coordinator how it ended."""
        base_offset = None
        if error is ErrorCode.NONE:
            base_offset = self.log[-1].next_offset if self.log else 0
            self.write(*append.records)
        completed = AppendCompleted(
            append_id=append.append_id, error=error, base_offset=base_offset
        )
        self.execute(self.coordinator.append_completed(completed, self.now_us))

    def write(self, *records: Record) -> None:
        """Append records to the log as one batch."""
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
