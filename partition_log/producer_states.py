"""ProducerStates: what a log remembers about its producers.

A log remembers the epoch of each producer, the producer's last batches, and whether the producer
has an open transaction. All this is computed from the batches of the log. So all replicas with the
same batches remember the same, also after a restart or a truncation.

An idempotent producer numbers its records in each partition from 0, and sends a batch again until
it gets an answer. The base sequence of a batch is the number of its first record. If the leader
remembers the batch, it does not append the batch a second time, but answers with the offset that
the batch has in the log. The leader refuses a batch whose base sequence is not the next number. So
each batch is appended exactly once, and in order (KIP-98, KIP-185). For example, the log has the
batches with the records 0 to 4 and 5 to 9. If the producer sends the batch 5 to 9 again, it is a
duplicate. A batch that begins with 10 is appended, and a batch that begins with 15 is refused.

A leader also protects the log against transactions that never end (KIP-890):
1. A producer's TxnOffsetCommit is delayed on its way.
2. The transaction ends: its marker is appended.
3. The delayed request arrives. If it were appended, it would begin a transaction in this log that
   the transaction coordinator does not know, and so never ends.
So before the first batch of a transaction is appended, the broker asks the transaction coordinator
whether the transaction is open. Before the broker asks, `begin_verification` returns a number, the
guard. The batch is appended only with this guard. A marker makes the guard invalid, and so stops
the delayed request.

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
"""Number of batches of each producer that are remembered. A client never has more batches in
flight.

Source: Kafka ProducerStateEntry.NUM_BATCHES_TO_RETAIN.
"""
_NO_EPOCH = -1
_SEQUENCES = 1 << 31
"""Number of sequence numbers: after the last one, a producer begins at 0 again."""


class AppendedBatch(NamedTuple):
    """A remembered batch of a producer.

    The sequences are the numbers of the batch's first and last record. They are -1 if the batch
    comes from a TxnOffsetCommit of the producer: the broker builds such a batch, and does not
    number the records.
    """

    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    timestamp_ms: int


class _ProducerState:
    """What is remembered about one producer.

    `txn_first_offset` is the offset at which the producer's open transaction begins, None if no
    transaction is open. `coordinator_epoch` is the epoch of the transaction coordinator that wrote
    the producer's last marker.
    """

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
        """The number of the producer's last record in its epoch, -1 if the epoch has no batch."""
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE


class ProducerStates:
    """The producers of one log, by producer id."""

    __slots__ = ("_guards", "_last_guard", "_producers", "had_any")

    def __init__(self) -> None:
        self.had_any = False
        """True if the log has a batch of any producer, even of one that was forgotten.

        If `had_any` is False, the batches need not be read to look for producers.
        """
        self._producers: dict[int, _ProducerState] = {}
        self._guards: dict[int, int] = {}  # producer id -> its valid guard
        self._last_guard = 0  # guards are numbered from 1

    def __len__(self) -> int:
        """Return the number of producers."""
        return len(self._producers)

    @property
    def first_unstable_offset(self) -> int | None:
        """Offset at which the oldest open transaction begins, None if no transaction is open."""
        return min(
            (
                state.txn_first_offset
                for state in self._producers.values()
                if state.txn_first_offset is not None
            ),
            default=None,
        )

    def last_batches(self) -> dict[int, tuple[int, tuple[AppendedBatch, ...]]]:
        """Return, for each producer id, the producer's epoch and the remembered batches."""
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
        """Return the guard with which the first batch of a transaction may be appended.

        The result is None if the log has a batch of the transaction already, because then no guard
        is needed. A second call returns the same guard. The guard becomes invalid when the batch,
        or a marker of the producer, is appended.

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
        """Return NONE if a leader may append the offsets of a TxnOffsetCommit, otherwise the error.

        Errors: INVALID_PRODUCER_EPOCH if a newer producer has taken over the producer id;
        INVALID_TXN_STATE if the batch would begin a transaction, and has no valid guard.
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
        """Return the remembered batch that `batch` repeats, None if `batch` is new.

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
        """Return NONE if a leader may append a batch that a producer sent, otherwise the error.

        `batch` has a producer id, and is no duplicate (see `find_duplicate`). A producer that this
        log does not know may begin with any number, because its earlier batches may be gone.

        Errors, in the order of the checks:
        - INVALID_TXN_STATE: the batch would begin a transaction in this log. For this it would need
          a guard, which only a TxnOffsetCommit has here (`check_transactional`).
        - INVALID_PRODUCER_EPOCH: a newer producer has taken over the producer id.
        - OUT_OF_ORDER_SEQUENCE_NUMBER: the batch does not follow the producer's last batch. In a
          new epoch, the first batch must begin with number 0.
        - INVALID_TXN_STATE: the batch is not transactional, but the producer has an open
          transaction.

        Source: Kafka UnifiedLog.analyzeAndValidateProducerState, ProducerAppendInfo.checkSequence.
        """
        producer_id, epoch = batch.producer_id, batch.producer_epoch
        if batch.is_transactional and not self.has_ongoing_transaction(producer_id, epoch):
            return ErrorCode.INVALID_TXN_STATE
        state = self._producers.get(producer_id)
        # There is nothing to compare with if the log does not know the producer, or if the
        # producer's batches have no epoch. Then nothing more is checked, as in Kafka.
        if state is None or state.producer_epoch == _NO_EPOCH:
            return ErrorCode.NONE
        if epoch < state.producer_epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH

        # The expected number is `last_sequence` + 1. In a new epoch this is 0, because NO_SEQUENCE
        # is -1. This check also refuses a repeated batch that is too old to be remembered. Brokers
        # before 1.1 had a separate error for this, DUPLICATE_SEQUENCE_NUMBER, which clients still
        # know.
        last_sequence = state.last_sequence if epoch == state.producer_epoch else NO_SEQUENCE
        if batch.base_sequence != (last_sequence + 1) % _SEQUENCES:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        if state.txn_first_offset is not None and not batch.is_transactional:
            return ErrorCode.INVALID_TXN_STATE
        return ErrorCode.NONE

    def remove_expired(self, now_ms: int, expiration_ms: int) -> None:
        """Forget producers that have written nothing for `expiration_ms`.

        A producer with an open transaction is not forgotten. `now_ms` is in milliseconds since the
        epoch. The time of a producer's last write is the max timestamp of its last batch.

        Source: Kafka ProducerStateManager.removeExpiredProducers.
        """
        for producer_id, state in list(self._producers.items()):
            is_expired = now_ms - state.last_timestamp_ms >= expiration_ms
            # The log must know the producer as long as the producer's transaction is open.
            if is_expired and state.txn_first_offset is None:
                del self._producers[producer_id]

    def check_marker(
        self, producer_id: int, producer_epoch: int, marker: EndTransactionMarker
    ) -> ErrorCode:
        """Return NONE if a leader may append a transaction's marker, otherwise the error.

        Errors: INVALID_PRODUCER_EPOCH if the log has a newer epoch of the producer;
        TRANSACTION_COORDINATOR_FENCED if the log has a marker of a later transaction coordinator.
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
        """Remember a batch that was appended to the log. A batch without a producer is ignored."""
        producer_id = batch.producer_id
        if producer_id == NO_PRODUCER_ID:
            return
        self.had_any = True
        state = self._producers.get(producer_id)
        if state is None:
            state = self._producers[producer_id] = _ProducerState()
        # The epoch is not checked here. A leader has checked it before, and a follower must take
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
            # The transaction has begun, so its further batches need no guard.
            self._guards.pop(producer_id, None)


def last_sequence_of(batch: RecordBatch) -> int:
    """Return the sequence of a batch's last record, -1 if it has no sequences.

    Source: Kafka DefaultRecordBatch.incrementSequence.
    """
    if batch.base_sequence == NO_SEQUENCE:
        return NO_SEQUENCE
    return (batch.base_sequence + batch.last_offset_delta) % _SEQUENCES
