"""ProducerStates: epochs and open transactions of the producers that wrote to a log.

The states are rebuilt from the log's batches, so every replica has the same.

A leader also keeps *verification guards* (KIP-890), against this race:
1. A producer's TxnOffsetCommit is delayed on its way.
2. The transaction ends: its marker is appended.
3. The delayed request arrives. Appended, it would open a new transaction in this log, which the
   transaction coordinator does not know and so never ends. So the first batch of a transaction is
   appended only with a guard, a number that `begin_verification` gives out before the broker asks
   the transaction coordinator. A marker makes the guard invalid.
Source: Kafka `ProducerStateManager`, `ProducerAppendInfo`, `VerificationGuard`; KIP-98, KIP-890.
DEVIATION: no sequence numbers (producers here are not idempotent), and producers never expire.
"""

from protocol.errors import ErrorCode
from protocol.ids import NO_PRODUCER_ID
from protocol.records.batch import RecordBatch
from protocol.records.control import EndTransactionMarker, decode_marker

_NO_EPOCH = -1


class _ProducerState:
    """State of one producer; `txn_first_offset` is None while it has no open transaction."""

    __slots__ = ("coordinator_epoch", "producer_epoch", "txn_first_offset")

    def __init__(self) -> None:
        self.producer_epoch = _NO_EPOCH
        self.coordinator_epoch = _NO_EPOCH
        self.txn_first_offset: int | None = None


class ProducerStates:
    """The producers of one log, by producer id."""

    __slots__ = ("_guards", "_last_guard", "_producers")

    def __init__(self) -> None:
        self._producers: dict[int, _ProducerState] = {}
        self._guards: dict[int, int] = {}  # producer id -> its valid guard
        self._last_guard = 0

    def __len__(self) -> int:
        """Return the number of producers."""
        return len(self._producers)

    @property
    def first_unstable_offset(self) -> int | None:
        """First offset of the oldest open transaction, None if no transaction is open."""
        return min(
            (
                state.txn_first_offset
                for state in self._producers.values()
                if state.txn_first_offset is not None
            ),
            default=None,
        )

    def has_ongoing_transaction(self, producer_id: int, producer_epoch: int) -> bool:
        """Return whether the log has batches of an open transaction of this producer."""
        state = self._producers.get(producer_id)
        return (
            state is not None
            and state.txn_first_offset is not None
            and state.producer_epoch == producer_epoch
        )

    def begin_verification(self, producer_id: int, producer_epoch: int) -> int | None:
        """Return the guard for the first batch of a transaction.

        None if the transaction is open in this log already: then no verification is needed.

        Source: Kafka UnifiedLog.maybeStartTransactionVerification.
        """
        if self.has_ongoing_transaction(producer_id, producer_epoch):
            return None
        guard = self._guards.get(producer_id)
        if guard is None:
            self._last_guard += 1
            guard = self._guards[producer_id] = self._last_guard
        return guard

    def check_transactional(
        self, producer_id: int, producer_epoch: int, guard: int | None
    ) -> ErrorCode:
        """Return NONE if a leader may append a transactional batch, else the error.

        Errors: INVALID_PRODUCER_EPOCH if the producer was fenced; INVALID_TXN_STATE if the batch
        would begin a transaction without a valid guard.
        """
        state = self._producers.get(producer_id)
        if state is not None and producer_epoch < state.producer_epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if not self.has_ongoing_transaction(producer_id, producer_epoch) and (
            guard is None or self._guards.get(producer_id) != guard
        ):
            return ErrorCode.INVALID_TXN_STATE
        return ErrorCode.NONE

    def check_marker(
        self, producer_id: int, producer_epoch: int, marker: EndTransactionMarker
    ) -> ErrorCode:
        """Return NONE if a leader may append a marker, else the error.

        Errors: INVALID_PRODUCER_EPOCH if the producer has a newer epoch here;
        TRANSACTION_COORDINATOR_FENCED if a later transaction coordinator has written a marker.
        """
        state = self._producers.get(producer_id)
        if state is None:
            return ErrorCode.NONE
        if producer_epoch < state.producer_epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if marker.coordinator_epoch < state.coordinator_epoch:
            return ErrorCode.TRANSACTION_COORDINATOR_FENCED
        return ErrorCode.NONE

    def appended(self, batch: RecordBatch) -> None:
        """Update the producer's state from a batch that was appended to the log."""
        producer_id = batch.producer_id
        if producer_id == NO_PRODUCER_ID:
            return
        state = self._producers.get(producer_id)
        if state is None:
            state = self._producers[producer_id] = _ProducerState()
        # Without a check: the leader has checked the epoch, and a follower must follow the leader.
        state.producer_epoch = batch.producer_epoch
        if batch.is_control:
            marker = decode_marker(batch)
            if marker is not None:
                state.coordinator_epoch = marker.coordinator_epoch
                state.txn_first_offset = None
                self._guards.pop(producer_id, None)
        elif batch.is_transactional:
            if state.txn_first_offset is None:
                state.txn_first_offset = batch.base_offset
            # The transaction is open: later batches need no guard.
            self._guards.pop(producer_id, None)
