"""What the synchronous state machines return: one `Result` for every input.

Controller, coordinator and partition log never call out. Whoever hosts them carries out what a
Result asks for, in this order: timers, appends, sends, verifications, replies; and hands its trace
events to the Host, which stamps them with time, node, incarnation and sequence.
"""

from dataclasses import dataclass, field

from protocol.api import AnyRequest, AnyResponse
from protocol.errors import ErrorCode
from protocol.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, AppendId, NodeName, RequestId
from protocol.records.batch import Record
from protocol.trace import TraceEvent

ACKS_ALL = -1
ACKS_NONE = 0
ACKS_LEADER = 1
"""How Kafka's Java coordinator appends: into the local log, whoever is in sync."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Append:
    """Asks the broker to append `records` as one batch to a partition of the coordinator's topic.

    Shape: `partition` is the index in `__consumer_offsets`, or in `__transaction_state` for the
    transaction coordinator; `records` is non-empty.
    `required_acks` -1 asks for an AppendCompleted once the high watermark passed the batch, after
    `timeout_ms` (None: `offsets.commit.timeout.ms`), or when leadership was lost; 1 asks for the
    same, and min.insync.replicas does not matter; 0 asks for none.
    """

    append_id: AppendId
    partition: int
    records: tuple[Record, ...]
    required_acks: int = ACKS_ALL
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH
    is_transactional: bool = False
    verification_guard: int | None = None
    """Of a transactional append: what its VerifyTransaction brought."""
    timeout_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendCompleted:
    """The outcome of an Append, fed back as an input.

    Shape: `base_offset` is the batch's offset in the log and None if it was never appended; it is
    set with an error when the batch stands in the log but was not acknowledged in time.
    """

    append_id: AppendId
    error: ErrorCode = ErrorCode.NONE
    base_offset: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyTransaction:
    """Asks the broker whether a partition of `__consumer_offsets` is part of an open transaction.

    It is known where the log has batches of the transaction; otherwise the transaction coordinator
    is asked (KIP-890). Exactly one TransactionVerified follows.
    Shape: `tells_abortable` is set for clients that know TRANSACTION_ABORTABLE.
    """

    verification_id: int
    partition: int
    transactional_id: str
    producer_id: int
    producer_epoch: int
    tells_abortable: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionVerified:
    """The outcome of a VerifyTransaction, fed back as an input.

    Shape: `guard` goes into the append; None with an error, and where the transaction was known.
    """

    verification_id: int
    error: ErrorCode = ErrorCode.NONE
    guard: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """Answers the request `request_id`, now or long after it came."""

    request_id: RequestId
    response: AnyResponse


@dataclass(frozen=True, slots=True, kw_only=True)
class Send:
    """Sends a request to another node; its answer comes back as an input."""

    destination: NodeName
    request: AnyRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class SetTimer:
    """Fires the input TimerFired(key) after `delay_us`; a timer with the same key is replaced."""

    key: str
    delay_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelTimer:
    """Forgets the timer `key`, if there is one."""

    key: str


@dataclass(slots=True)
class Result:
    """Everything that one input asks for. Built by one handler, then only read."""

    appends: list[Append] = field(default_factory=list)
    replies: list[Reply] = field(default_factory=list)
    sends: list[Send] = field(default_factory=list)
    timers: list[SetTimer | CancelTimer] = field(default_factory=list)
    trace: list[TraceEvent] = field(default_factory=list)
    verifications: list[VerifyTransaction] = field(default_factory=list)
