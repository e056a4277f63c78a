"""TransactionCoordinator: the class through which a broker uses the transaction coordinator.

The coordinator does no I/O and reads no clock. The broker calls one of its methods whenever
something happens, and gets a Result: the replies, appends, markers and timers that it must now
carry out. The handling of one such input is called a turn.

For example, a producer commits a transaction:
1. `handle` gets the EndTxn. The Result asks for an append of the decision.
2. `append_completed`: the decision is in the log. The Result has the reply to the producer. It also
   asks for the markers, the records that end the transaction in each of its partitions.
3. `markers_answered`: all markers are written. The Result asks for an append that says so.
4. `append_completed`: the transaction is complete.

Each of these appends is a step: a change of one transactional id. The coordinator keeps the step
together with a purpose, which says how to continue when the append has completed.

A broker serves the transactional ids of those partitions of `__transaction_state` that it leads.
When it becomes the leader of such a partition, a load reads the partition's log into memory. From
then on the broker owns the partition. The partition's leader epoch is called the coordinator epoch.

Source: Kafka `TransactionCoordinator`, `TransactionStateManager`.
"""

from coordinator.transaction.add_partitions import (
    handle_add_offsets,
    handle_add_partitions,
    partitions_added,
)
from coordinator.transaction.effects import TransactionResult
from coordinator.transaction.end_transaction import abort_timed_out, end_decided, handle_end_txn
from coordinator.transaction.expiration import expire_transactional_ids
from coordinator.transaction.init_producer_id import handle_init_producer_id, new_epoch_written
from coordinator.transaction.invariants import check_transactions
from coordinator.transaction.load import TransactionLoad
from coordinator.transaction.markers import (
    begin_markers,
    completion_written,
    markers_answered,
    write_completion_again,
)
from coordinator.transaction.metadata import TransactionMetadata
from coordinator.transaction.states import PREPARED, TransactionState
from coordinator.transaction.transaction_turn import (
    AbortTimer,
    Completed,
    CompletionTimer,
    EndDecided,
    ExpirationTimer,
    Expired,
    NewProducerEpoch,
    OwnedPartition,
    PartitionsAdded,
    PendingStep,
    TransactionShared,
    TransactionTurn,
)
from protocol.api import TransactionRequest
from protocol.causes import TransactionCause
from protocol.config import BrokerConfig
from protocol.effects import AppendCompleted
from protocol.envelope import RequestEnvelope
from protocol.errors import ErrorCode, SimulationError
from protocol.ids import RequestId, TopicPartition
from protocol.messages.transaction import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
)
from protocol.partitioner import partition_for
from protocol.records.batch import RecordBatch

_APPEND_ERRORS: dict[ErrorCode, ErrorCode] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}
"""Error of a failed append -> error that the client gets. Any other error is passed on unchanged.

Source: Kafka TransactionStateManager.appendTransactionToLog."""


class TransactionCoordinator:
    """The transaction coordinator of one broker process."""

    def __init__(
        self, *, config: BrokerConfig, num_partitions: int, num_offsets_partitions: int
    ) -> None:
        self._shared = TransactionShared(
            config=config,
            num_partitions=num_partitions,
            num_offsets_partitions=num_offsets_partitions,
        )

    def start(self, now_us: int) -> TransactionResult:
        """Start the periodic checks for abandoned transactions and expired transactional ids."""
        turn = TransactionTurn(self._shared, now_us)
        _schedule_abort(turn)
        _schedule_expiration(turn)
        return turn.result

    def handle(
        self, request_id: RequestId, envelope: RequestEnvelope, now_us: int
    ) -> TransactionResult:
        """Handle a request.

        If the request needs an append, it is answered in the Result of `append_completed`.

        Raises: SimulationError if another API's request is in the envelope.
        """
        turn = TransactionTurn(self._shared, now_us)
        version = envelope.api_version
        body = envelope.body
        if not isinstance(body, TransactionRequest):
            raise SimulationError(f"{envelope.api_key.label} is not the transaction coordinator's")
        match body:
            case InitProducerIdRequest():
                handle_init_producer_id(turn, request_id, body, version)
            case AddPartitionsToTxnRequest():
                handle_add_partitions(turn, request_id, body, version)
            case AddOffsetsToTxnRequest():
                handle_add_offsets(turn, request_id, body, version)
            case EndTxnRequest():
                handle_end_txn(turn, request_id, body, version)
        return turn.result

    def append_completed(self, completed: AppendCompleted, now_us: int) -> TransactionResult:
        """Continue after an append that an earlier Result requested.

        Raises: SimulationError if no such append is in flight.
        """
        turn = TransactionTurn(self._shared, now_us)
        pending = self._shared.in_flight.take_append(completed.append_id)
        error = _finish_step(turn, pending, _APPEND_ERRORS.get(completed.error, completed.error))
        match pending.purpose:
            case NewProducerEpoch() as purpose:
                new_epoch_written(turn, purpose, pending, error)
            case PartitionsAdded() as purpose:
                partitions_added(turn, purpose, pending.transactional_id, error)
            case EndDecided() as purpose:
                end_decided(turn, purpose, pending, error)
            case Completed():
                completion_written(turn, pending, error)
            case Expired():
                pass  # `_finish_step` has removed the transactional id already
        return turn.result

    def markers_answered(
        self,
        transactional_id: str,
        coordinator_epoch: int,
        errors: dict[TopicPartition, ErrorCode],
        now_us: int,
    ) -> TransactionResult:
        """Handle the outcome of some or all markers that an earlier Result requested.

        A failed marker is sent again. The coordinator gives up only after INVALID_PRODUCER_EPOCH
        and TRANSACTION_COORDINATOR_FENCED, because these errors show that a later coordinator has
        taken over.
        """
        turn = TransactionTurn(self._shared, now_us)
        markers_answered(turn, transactional_id, coordinator_epoch, errors)
        return turn.result

    def timer_fired(self, key: str, now_us: int) -> TransactionResult:
        """Do the work for which the timer `key` was set.

        Raises: SimulationError if no such timer was set.
        """
        turn = TransactionTurn(self._shared, now_us)
        match self._shared.in_flight.take_timer(key):
            case AbortTimer():
                abort_timed_out(turn)
                _schedule_abort(turn)
            case ExpirationTimer():
                expire_transactional_ids(turn)
                _schedule_expiration(turn)
            case CompletionTimer() as timer:
                write_completion_again(turn, timer.transactional_id)
            case None:
                # This coordinator never cancels a timer, so a fired timer cannot be unknown.
                raise SimulationError(f"the transaction coordinator never set a timer {key!r}")
        return turn.result

    def producer_ids_allocated(self, start: int, length: int) -> None:
        """Add a block of producer ids from the controller."""
        self._shared.producer_ids.allocated(start, length)

    def producer_ids_refused(self) -> None:
        """Note that the controller refused a block of producer ids. A later request asks again."""
        self._shared.producer_ids.refused()

    # -- load and unload --

    def begin_load(self, partition: int, coordinator_epoch: int) -> None:
        """Begin a load.

        Until the load ends, requests on the partition's transactional ids are answered with
        COORDINATOR_LOAD_IN_PROGRESS. The coordinator forgets what it knows of the partition from an
        earlier leader epoch.
        """
        self._forget(partition)
        self._shared.loading[partition] = TransactionLoad(partition, coordinator_epoch)

    def load_batches(self, partition: int, batches: tuple[RecordBatch, ...]) -> None:
        """Read the next batches of the log into the running load of `partition`.

        The broker passes the log in chunks, in the order of offsets.

        Raises: SimulationError if the partition is not loading.
        """
        self._loading(partition).read(batches)

    def finish_load(self, partition: int, now_us: int) -> TransactionResult:
        """Serve the transactional ids that the log has, and finish their decided transactions.

        A transaction whose end is decided gets its markers. The earlier coordinator may have sent
        some of these markers already, but a second marker in a partition does no harm.

        Raises: SimulationError if the partition is not loading.
        """
        turn = TransactionTurn(self._shared, now_us)
        load = self._loading(partition)
        owned = OwnedPartition(partition, load.coordinator_epoch, load.finish())
        del self._shared.loading[partition]
        self._shared.owned[partition] = owned
        for metadata in owned.transactions.values():
            if metadata.state in PREPARED:
                begin_markers(turn, owned, metadata)
        return turn.result

    def load_error(self, partition: int) -> str | None:
        """Return why the running load stopped reading before the end of the log, or None."""
        return self._loading(partition).error

    def unload(self, partition: int) -> None:
        """Forget a partition that this broker no longer leads."""
        self._forget(partition)

    # -- queries: nothing below changes the coordinator --

    def is_owned(self, partition: int) -> bool:
        """Return True if this broker serves the transactional ids of `partition`."""
        return partition in self._shared.owned

    def loading_epoch(self, partition: int) -> int | None:
        """Return the leader epoch of the partition's unfinished load, None if none runs."""
        load = self._shared.loading.get(partition)
        return None if load is None else load.coordinator_epoch

    def count(self, partition: int) -> int:
        """Return the number of transactional ids of `partition`, 0 if it is not owned."""
        owned = self._shared.owned.get(partition)
        return 0 if owned is None else len(owned.transactions)

    def open_transactions(self, partition: int) -> dict[str, TransactionState]:
        """Return the state of each transactional id of `partition` whose transaction has not ended.

        A transaction whose end is decided has not ended before all its markers are written.
        """
        owned = self._shared.owned.get(partition)
        known = {} if owned is None else owned.transactions
        return {
            transactional_id: metadata.state
            for transactional_id, metadata in known.items()
            if metadata.state is TransactionState.ONGOING or metadata.state in PREPARED
        }

    def partition_of(self, transactional_id: str) -> int:
        """Return the partition of a transactional id."""
        return partition_for(transactional_id, self._shared.num_partitions)

    def metadata(self, transactional_id: str) -> TransactionMetadata | None:
        """Return the metadata of a transactional id, for reading only, or None if it is unknown."""
        owned = self._shared.owned.get(self.partition_of(transactional_id))
        return None if owned is None else owned.transactions.get(transactional_id)

    def check_invariants(self) -> None:
        """Check all invariants of transactional ids, steps and timers.

        Raises: InvariantViolation.
        """
        check_transactions(self._shared)

    def waiting(self) -> set[RequestId]:
        """Return the requests that will be answered when an append has completed."""
        requests: set[RequestId] = set()
        for pending in self._shared.in_flight.appends.values():
            match pending.purpose:
                case NewProducerEpoch(request_id=request_id):
                    requests.add(request_id)
                case PartitionsAdded(answer=answer):
                    requests.add(answer.request_id)
                case EndDecided(request_id=ending_id) if ending_id is not None:
                    requests.add(ending_id)
                case _:
                    pass  # the other steps answer no request
        return requests

    def timers(self) -> frozenset[str]:
        """Return the keys of the running timers."""
        return frozenset(self._shared.in_flight.timers)

    # -- helpers --

    def _forget(self, partition: int) -> None:
        """Forget all that this coordinator knows about a partition.

        Appends may still be in flight. They change nothing when they complete (`_finish_step`).
        """
        shared = self._shared
        shared.loading.pop(partition, None)
        shared.owned.pop(partition, None)
        for name, pending in list(shared.completions.items()):
            if pending.partition == partition:
                del shared.completions[name]

    def _loading(self, partition: int) -> TransactionLoad:
        load = self._shared.loading.get(partition)
        if load is None:
            raise SimulationError(f"partition {partition} is not loading")
        return load


def _schedule_abort(turn: TransactionTurn) -> None:
    turn.set_timer(
        "transaction-abort",
        AbortTimer(),
        turn.config.transaction_abort_timed_out_transaction_cleanup_interval_ms,
    )


def _schedule_expiration(turn: TransactionTurn) -> None:
    turn.set_timer(
        "transactional-id-expiration",
        ExpirationTimer(),
        turn.config.transaction_remove_expired_transaction_cleanup_interval_ms,
    )


def _finish_step(turn: TransactionTurn, pending: PendingStep, error: ErrorCode) -> ErrorCode:
    """Make a step's change in memory, because its append has completed; return the client's error.

    `error` is the error of the append, already translated for the client. If the append failed, the
    step is cancelled. If the step was appended in an earlier leader epoch of the partition, nothing
    is changed, and the client gets NOT_COORDINATOR.
    """
    owned = turn.owned_partition(pending.partition)
    if isinstance(owned, ErrorCode):
        # This broker does not serve the partition any more. `owned` is the error that says so. The
        # client gets this error, unless the append itself had an error.
        return owned if error is ErrorCode.NONE else error
    if owned.coordinator_epoch != pending.coordinator_epoch:
        return ErrorCode.NOT_COORDINATOR
    metadata = owned.transactions.get(pending.transactional_id)
    if metadata is None:
        return ErrorCode.NOT_COORDINATOR

    if error is not ErrorCode.NONE:
        # After COORDINATOR_NOT_AVAILABLE, the completion of a transaction is appended again later
        # (see `completion_written`). The completion stays pending until then, so that no other step
        # begins.
        is_tried_again = error is ErrorCode.COORDINATOR_NOT_AVAILABLE
        if not (isinstance(pending.purpose, Completed) and is_tried_again):
            metadata.pending_state = None
        return error

    previous = metadata.state
    metadata.complete_transition_to(pending.step)
    turn.trace_state(pending, previous, _cause(pending))
    if metadata.state is TransactionState.DEAD:
        del owned.transactions[pending.transactional_id]
    return ErrorCode.NONE


def _cause(pending: PendingStep) -> TransactionCause:
    """Return the cause of a transactional id's new state, for the trace."""
    match pending.purpose:
        case NewProducerEpoch():
            return TransactionCause.PRODUCER_BEGAN
        case PartitionsAdded():
            return TransactionCause.PARTITIONS_ADDED
        case EndDecided(is_epoch_fence=True, is_init=True):
            return TransactionCause.NEW_PRODUCER
        case EndDecided(is_epoch_fence=True):
            return TransactionCause.TIMED_OUT
        case EndDecided():
            return TransactionCause.ENDED
        case Completed():
            return TransactionCause.MARKERS_WRITTEN
        case Expired():
            return TransactionCause.EXPIRED
