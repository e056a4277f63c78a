"""Effects: the requests of a core (controller, coordinator) to its host, returned in a `Result`.

A core is a state machine without clock and I/O. It never calls out. It returns one Result for each
input. The node that hosts the core carries the effects out, in this order: timers, appends, sends,
verifications, replies. The node passes the trace events (rows of the run's recording) to its Host,
which adds time, node, incarnation (the number of the node's life) and sequence number. The Host is
the node's only access to the outside: clock, timers, connections, storage, trace.

Some effects have an outcome (AppendCompleted, TransactionVerified), which the node feeds back into
the core as a later input.
"""

from dataclasses import dataclass, field

from protocol.api import AnyRequest, AnyResponse
from protocol.errors import ErrorCode
from protocol.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, AppendId, NodeName, RequestId
from protocol.records.batch import Record
from protocol.trace import TraceEvent

# The values of `acks` in Kafka's Produce: the replicas that must have a batch before it is
# acknowledged. ACKS_ALL: every in-sync replica.
ACKS_ALL = -1
ACKS_NONE = 0
ACKS_LEADER = 1
"""The append completes when the leader's log has the batch, as in Kafka's Java coordinator."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Append:
    """Request to append `records` as one batch to a partition of the coordinator's topic.

    partition: index in `__consumer_offsets`, or in `__transaction_state` for the transaction
        coordinator.
    records: non-empty.
    required_acks: with ACKS_ALL (-1) an AppendCompleted follows when the high watermark has passed
        the batch (every in-sync replica has it then), after `timeout_ms`, or when leadership is
        lost. With ACKS_LEADER (1) it follows when the leader's log has the batch. With ACKS_NONE
        (0) none follows. ACKS_LEADER ignores min.insync.replicas.
    timeout_ms: None stands for `offsets.commit.timeout.ms`.
    """

    append_id: AppendId
    partition: int
    records: tuple[Record, ...]
    required_acks: int = ACKS_ALL
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH
    is_transactional: bool = False
    verification_guard: int | None = None
    """For a transactional append: the guard from the TransactionVerified."""
    timeout_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendCompleted:
    """The outcome of an Append: a later input of the core.

    `base_offset` is the batch's offset in the log, None if the log never had the batch. An
    error with a `base_offset` means that the log has the batch, but it was not acknowledged in
    time.
    """

    append_id: AppendId
    error: ErrorCode = ErrorCode.NONE
    base_offset: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyTransaction:
    """Request to verify that a partition of `__consumer_offsets` is part of an open transaction.

    If the log has batches of the transaction, it is verified without a request; otherwise the
    broker asks the transaction coordinator (KIP-890). Exactly one TransactionVerified follows.
    `tells_abortable` is True for a client that knows the error TRANSACTION_ABORTABLE.
    """

    verification_id: int
    partition: int
    transactional_id: str
    producer_id: int
    producer_epoch: int
    tells_abortable: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionVerified:
    """The outcome of a VerifyTransaction: a later input of the core.

    `guard` must be passed on to the Append, because the log accepts the transaction's first batch
    only with it. It is None with an error, and if the log has batches of the transaction already.
    """

    verification_id: int
    error: ErrorCode = ErrorCode.NONE
    guard: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """The answer to the request `request_id`, which may have arrived long before."""

    request_id: RequestId
    response: AnyResponse


@dataclass(frozen=True, slots=True, kw_only=True)
class Send:
    """Request to send a message to another node; the answer is a later input."""

    destination: NodeName
    request: AnyRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class SetTimer:
    """Request for a timer that fires after `delay_us`; it replaces a timer with the same key."""

    key: str
    delay_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelTimer:
    """Request to cancel the timer `key`, if it runs."""

    key: str


@dataclass(slots=True)
class Result:
    """The effects of one input. Handlers of the input fill it; after that it is only read.

    Each list has its effects in the order in which they are carried out.
    """

    appends: list[Append] = field(default_factory=list)
    replies: list[Reply] = field(default_factory=list)
    sends: list[Send] = field(default_factory=list)
    timers: list[SetTimer | CancelTimer] = field(default_factory=list)
    trace: list[TraceEvent] = field(default_factory=list)
    verifications: list[VerifyTransaction] = field(default_factory=list)
