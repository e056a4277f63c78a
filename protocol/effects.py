"""Effects: actions that a controller or coordinator asks of the node on which it runs.

The controller and the coordinator are *cores*. A core is a state machine without clock and I/O. The
node, such as a broker, calls its core for each input, for example for a request. The core returns a
Result with effects: appends, replies, timers and so on. The node carries the effects out in this
order: timers, appends, sends, verifications, replies. Some effects have an outcome, namely
AppendCompleted or TransactionVerified, which the node passes to the core as a later input.

The Result also has trace events, which the node writes to the trace, the recording of the run.
"""

from dataclasses import dataclass, field

from protocol.api import AnyRequest, AnyResponse
from protocol.errors import ErrorCode
from protocol.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, AppendId, NodeName, RequestId
from protocol.records.batch import Record
from protocol.trace import TraceEvent

# The values of `acks` in Kafka's Produce: which replicas must have a batch before it is
# acknowledged. With ACKS_ALL these are all in-sync replicas. With ACKS_NONE nothing is
# acknowledged.
ACKS_ALL = -1
ACKS_NONE = 0
ACKS_LEADER = 1
"""The leader's log must have the batch. Kafka's Java coordinator appends in this way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Append:
    """Request to append `records` as one batch to a partition of the coordinator's topic.

    partition: index in `__consumer_offsets`, or in `__transaction_state` for the transaction
        coordinator.
    records: non-empty.
    required_acks: says when the AppendCompleted follows.
        ACKS_ALL: when the high watermark has passed the batch. If this does not happen within
        `timeout_ms`, or the broker loses the leadership, an AppendCompleted with an error follows.
        ACKS_LEADER: when the leader's log has the batch, whatever min.insync.replicas is.
        ACKS_NONE: never.
    timeout_ms: the time limit of ACKS_ALL. None stands for `offsets.commit.timeout.ms`.
    """

    append_id: AppendId
    partition: int
    records: tuple[Record, ...]
    required_acks: int = ACKS_ALL
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH
    is_transactional: bool = False
    verification_guard: int | None = None
    """The `guard` of the TransactionVerified that came before a transactional append."""
    timeout_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendCompleted:
    """The outcome of an Append, which is a later input of the core.

    `base_offset` is the batch's offset in the leader's log, None if the log never had the batch. An
    outcome with an error and a `base_offset` means that the log got the batch, but the batch was
    not acknowledged in time.
    """

    append_id: AppendId
    error: ErrorCode = ErrorCode.NONE
    base_offset: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyTransaction:
    """Request to verify that a partition of `__consumer_offsets` is part of an open transaction.

    If the partition's log already has batches of the transaction, the broker knows the answer.
    Otherwise the broker asks the transaction coordinator (KIP-890). In both cases exactly one
    TransactionVerified follows.
    `tells_abortable` is True if the client knows the error TRANSACTION_ABORTABLE, so that the
    answer may have this error.
    """

    verification_id: int
    partition: int
    transactional_id: str
    producer_id: int
    producer_epoch: int
    tells_abortable: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionVerified:
    """The outcome of a VerifyTransaction, which is a later input of the core.

    `guard` must be passed on to the Append, because the log accepts the transaction's first batch
    only with this number. `guard` is None after an error. It is also None if the log already has
    batches of the transaction.
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
    """Request to send a message to another node. The answer comes to the core as a later input."""

    destination: NodeName
    request: AnyRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class SetTimer:
    """Request for a timer that fires after `delay_us`.

    If a timer with the same key runs, the new timer replaces it.
    """

    key: str
    delay_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelTimer:
    """Request to cancel the timer `key`, if it runs."""

    key: str


@dataclass(slots=True)
class Result:
    """The effects of one input, and the events for the trace.

    The functions that handle the input append to these lists. After that, the lists are only read.
    The node carries out the effects of a list in the order of the list.
    """

    appends: list[Append] = field(default_factory=list)
    replies: list[Reply] = field(default_factory=list)
    sends: list[Send] = field(default_factory=list)
    timers: list[SetTimer | CancelTimer] = field(default_factory=list)
    trace: list[TraceEvent] = field(default_factory=list)
    verifications: list[VerifyTransaction] = field(default_factory=list)
