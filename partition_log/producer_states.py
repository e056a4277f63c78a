"""What a log knows of transactional producers: their epochs, and which transactions are open.

Rebuilt from the log's batches, so every replica knows the same. Owns also which producers a leader
is verifying: a batch that begins a transaction is taken only with the guard of a verification that
began before it and that no end of a transaction has outdated since. That is what keeps a commit
that was held up for long from opening a transaction that nobody would ever end.
Source: Kafka `ProducerStateManager`, `ProducerAppendInfo`, `VerificationGuard`; KIP-98, KIP-890.
DEVIATION: no sequence numbers (producers here are not idempotent), and producers never expire.
"""

from protocol.errors import ErrorCode
from protocol.ids import NO_PRODUCER_ID
from protocol.records.batch import RecordBatch
from protocol.records.control import EndTransactionMarker, decode_marker

_NO_EPOCH = -1


class _ProducerState:
    """One producer. `txn_first_offset` is None while none of its transactions is open."""

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
        self._guards: dict[int, int] = {}  # producer id -> guard of a verification that counts
        self._last_guard = 0

    def __len__(self) -> int:
        """Return the number of producers."""
        return len(self._producers)

    @property
    def first_unstable_offset(self) -> int | None:
        """Offset at which the oldest open transaction begins, None where none is open."""
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
        """Return the guard to append with once the transaction is verified; None: it is open here.

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
        """Return whether a leader takes a transactional batch.

        Errors: INVALID_PRODUCER_EPOCH for one that was fenced here; INVALID_TXN_STATE for one that
        would begin a transaction without a verification that still counts.
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
        """Return whether a leader takes a marker.

        Errors: INVALID_PRODUCER_EPOCH; TRANSACTION_COORDINATOR_FENCED for one of a coordinator
        that another has followed.
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
        """Take in a batch that now stands in the log, whoever wrote it."""
        producer_id = batch.producer_id
        if producer_id == NO_PRODUCER_ID:
            return
        state = self._producers.get(producer_id)
        if state is None:
            state = self._producers[producer_id] = _ProducerState()
        # A replica takes what the leader has, whatever epoch it shows.
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
            # It is open: what follows needs no verification, and what was under way is outdated.
            self._guards.pop(producer_id, None)
