"""ProducerStates: the last batches, epochs and open transactions of the producers of a log.

The states are computed from the log's batches. So replicas with the same batches have the same
states, also after a restart or a truncation.

An *idempotent* producer numbers its records in each partition from 0, and sends a batch again until
it gets an answer. A batch's base sequence is the number of its first record. The leader knows the
producer's last BATCHES_TO_RETAIN batches. If the log has a batch already, the leader does not
append it, and answers with the batch's offset in the log. It refuses a batch whose base sequence is
not the next number. So each batch is appended exactly once, in order (KIP-98, KIP-185).

A producer is fenced when its epoch is raised: batches with the old epoch are refused. A marker is
the record that ends a transaction in a log. A leader also keeps *verification guards* (KIP-890).
They prevent this sequence of events:
1. A producer's TxnOffsetCommit is delayed on its way.
2. The transaction ends: its marker is appended.
3. The delayed request arrives. If it were appended, it would open a new transaction in this log,
   which the transaction coordinator does not know and so never ends.
Therefore the first batch of a transaction is appended only with a guard, a number that
`begin_verification` returns before the broker asks the transaction coordinator. A marker makes the
guard invalid.
Source: Kafka `ProducerStateManager`, `ProducerStateEntry`, `ProducerAppendInfo`,
`VerificationGuard`.
"""

from collections import deque
from typing import NamedTuple

from protocol.errors import ErrorCode
from protocol.ids import NO_PRODUCER_ID, NO_SEQUENCE
from protocol.records.batch import RecordBatch
from protocol.records.control import EndTransactionMarker, decode_marker

BATCHES_TO_RETAIN = 5
"""Number of batches that are remembered per producer. A client has at most this many in flight.

Source: Kafka ProducerStateEntry.NUM_BATCHES_TO_RETAIN.
"""
_NO_EPOCH = -1
_SEQUENCES = 1 << 31
"""Number of sequence numbers: after the last one, a producer begins at 0 again."""


class AppendedBatch(NamedTuple):
    """A batch of a producer in the log.

    Both sequences are -1 if the leader itself has built the batch, from the offsets that the
    producer committed in a transaction.
    """

    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    timestamp_ms: int


class _ProducerState:
    """State of one producer; `txn_first_offset` is None while it has no open transaction."""

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "last_timestamp_ms",
        "producer_epoch",
        "txn_first_offset",
    )

    def __init__(self) -> None:
        self.producer_epoch = _NO_EPOCH
        self.coordinator_epoch = _NO_EPOCH
        self.txn_first_offset: int | None = None
        self.last_timestamp_ms = -1
        # The last batches of `producer_epoch`, the newest last.
        self.batches: deque[AppendedBatch] = deque(maxlen=BATCHES_TO_RETAIN)

    @property
    def last_sequence(self) -> int:
        """Sequence of the last record in this epoch, -1 if the epoch has no batch."""
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE


class ProducerStates:
    """The producers of one log, by producer id."""

    __slots__ = ("_guards", "_last_guard", "_producers", "had_any")

    def __init__(self) -> None:
        self.had_any = False
        """True if the log has a batch of any producer, even of a producer that has expired.

        While False, `log` and `transaction_index` need not read the batches to find producers.
        """
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

    def last_batches(self) -> dict[int, tuple[int, tuple[AppendedBatch, ...]]]:
        """Return, by producer id, the producer's epoch and the batches that are remembered."""
        return {
            producer_id: (state.producer_epoch, tuple(state.batches))
            for producer_id, state in self._producers.items()
        }

    def has_ongoing_transaction(self, producer_id: int, producer_epoch: int) -> bool:
        """Return True if the log has batches of an open transaction of this producer."""
        state = self._producers.get(producer_id)
        return (
            state is not None
            and state.txn_first_offset is not None
            and state.producer_epoch == producer_epoch
        )

    def begin_verification(self, producer_id: int, producer_epoch: int) -> int | None:
        """Return the guard for the first batch of a transaction.

        If the transaction has a batch in this log already, no verification is needed, and the
        result is None. A repeated call returns the same guard. The guard becomes invalid when the
        producer's first transactional batch, or a marker, is appended.

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
        """Return NONE if a leader may append the offsets of a TxnOffsetCommit, else the error.

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

    def find_duplicate(self, batch: RecordBatch) -> AppendedBatch | None:
        """Return the batch in the log that `batch` repeats, None if `batch` is new.

        Source: Kafka ProducerStateEntry.findDuplicateBatch.
        """
        state = self._producers.get(batch.producer_id)
        if state is None or batch.producer_epoch != state.producer_epoch:
            return None
        first, last = batch.base_sequence, last_sequence_of(batch)
        for appended in state.batches:
            if appended.first_sequence == first and appended.last_sequence == last:
                return appended
        return None

    def check_produced(self, batch: RecordBatch) -> ErrorCode:
        """Return NONE if a leader may append a batch that a producer sent, else the error.

        `batch` has a producer id and is no duplicate (`find_duplicate`).
        Errors, in this order:
        - INVALID_TXN_STATE: the batch would begin a transaction in this log. For that it would need
          a guard, and a produced batch has none: only a TxnOffsetCommit may begin a transaction
          (`check_transactional`).
        - INVALID_PRODUCER_EPOCH: the producer was fenced.
        - OUT_OF_ORDER_SEQUENCE_NUMBER: the batch neither follows the producer's last batch, nor
          begins a new epoch with sequence 0.
        - INVALID_TXN_STATE: the batch is not transactional, but the producer has an open
          transaction.
        A producer that this log does not know may begin with any sequence, because its earlier
        batches may have been deleted.
        Source: Kafka UnifiedLog.analyzeAndValidateProducerState, ProducerAppendInfo.checkSequence.
        """
        producer_id, epoch = batch.producer_id, batch.producer_epoch
        if batch.is_transactional and not self.has_ongoing_transaction(producer_id, epoch):
            return ErrorCode.INVALID_TXN_STATE
        state = self._producers.get(producer_id)
        # Without an epoch to compare with there is no check, as in Kafka. This is the case if the
        # producer is unknown here, or if its batches have a producer id but no epoch.
        if state is None or state.producer_epoch == _NO_EPOCH:
            return ErrorCode.NONE
        if epoch < state.producer_epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH

        # A new epoch begins with sequence 0, which is NO_SEQUENCE + 1. `find_duplicate` does not
        # find a repeated batch that is older than all remembered batches. The check refuses it
        # here. Brokers before 1.1 answered such a batch with DUPLICATE_SEQUENCE_NUMBER, which
        # clients still know.
        last_sequence = state.last_sequence if epoch == state.producer_epoch else NO_SEQUENCE
        if batch.base_sequence != (last_sequence + 1) % _SEQUENCES:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        if state.txn_first_offset is not None and not batch.is_transactional:
            return ErrorCode.INVALID_TXN_STATE
        return ErrorCode.NONE

    def remove_expired(self, now_ms: int, expiration_ms: int) -> None:
        """Forget producers without an open transaction that wrote nothing for `expiration_ms`.

        Units: `now_ms` is in milliseconds since the epoch. The time of a producer's last write is
        the max timestamp of its last batch.
        Source: Kafka ProducerStateManager.removeExpiredProducers.
        """
        for producer_id, state in list(self._producers.items()):
            is_expired = now_ms - state.last_timestamp_ms >= expiration_ms
            # Without its producer, an open transaction would no longer be known as open.
            if is_expired and state.txn_first_offset is None:
                del self._producers[producer_id]

    def check_marker(
        self, producer_id: int, producer_epoch: int, marker: EndTransactionMarker
    ) -> ErrorCode:
        """Return NONE if a leader may append a marker, the end of a transaction, else the error.

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
        """Update the producer's state from a batch that was appended to the log.

        A batch without a producer is ignored.
        """
        producer_id = batch.producer_id
        if producer_id == NO_PRODUCER_ID:
            return
        self.had_any = True
        state = self._producers.get(producer_id)
        if state is None:
            state = self._producers[producer_id] = _ProducerState()
        # The epoch is not checked here: a leader has checked it before, and a follower must accept
        # every batch of its leader.
        if state.producer_epoch != batch.producer_epoch:
            state.producer_epoch = batch.producer_epoch
            state.batches.clear()
        state.last_timestamp_ms = batch.max_timestamp_ms

        if batch.is_control:
            marker = decode_marker(batch)
            if marker is not None:
                state.coordinator_epoch = marker.coordinator_epoch
                state.txn_first_offset = None
                self._guards.pop(producer_id, None)
            return

        state.batches.append(
            AppendedBatch(
                batch.base_sequence,
                last_sequence_of(batch),
                batch.base_offset,
                batch.last_offset,
                batch.max_timestamp_ms,
            )
        )
        if batch.is_transactional:
            if state.txn_first_offset is None:
                state.txn_first_offset = batch.base_offset
            # The transaction is open: later batches need no guard.
            self._guards.pop(producer_id, None)


def last_sequence_of(batch: RecordBatch) -> int:
    """Return the sequence of a batch's last record, -1 if it has no sequences.

    Source: Kafka DefaultRecordBatch.incrementSequence.
    """
    if batch.base_sequence == NO_SEQUENCE:
        return NO_SEQUENCE
    return (batch.base_sequence + batch.last_offset_delta) % _SEQUENCES
