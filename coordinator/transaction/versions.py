"""Error answers of the transaction APIs, by API version.

PRODUCER_FENCED tells a producer that another producer has taken its transactional id. Older clients
do not know this error and get INVALID_PRODUCER_EPOCH instead.
Source: Kafka `KafkaApis`.
"""

from protocol.errors import ErrorCode
from protocol.ids import NO_PRODUCER_EPOCH
from protocol.messages.transaction import (
    AddOffsetsToTxnResponse,
    EndTxnResponse,
    InitProducerIdResponse,
)

INIT_KNOWS_FENCED_SINCE = 4
"""First version of InitProducerId whose clients know PRODUCER_FENCED."""
KNOWS_FENCED_SINCE = 2
"""First version of AddPartitionsToTxn, AddOffsetsToTxn and EndTxn whose clients know
PRODUCER_FENCED."""


def init_producer_id_error(error: ErrorCode, api_version: int) -> InitProducerIdResponse:
    """Return the answer to an InitProducerId that fails."""
    return InitProducerIdResponse(
        error_code=error_for_version(error, api_version, since=INIT_KNOWS_FENCED_SINCE),
        producer_epoch=NO_PRODUCER_EPOCH,
    )


def add_offsets_answer(error: ErrorCode, api_version: int) -> AddOffsetsToTxnResponse:
    """Return the answer to an AddOffsetsToTxn."""
    return AddOffsetsToTxnResponse(error_code=error_for_version(error, api_version))


def end_txn_answer(error: ErrorCode, api_version: int) -> EndTxnResponse:
    """Return the answer to an EndTxn."""
    return EndTxnResponse(error_code=error_for_version(error, api_version))


def error_for_version(
    error: ErrorCode, api_version: int, *, since: int = KNOWS_FENCED_SINCE
) -> ErrorCode:
    """Return `error`, or INVALID_PRODUCER_EPOCH for a client that does not know PRODUCER_FENCED.

    `since` is the first version whose clients know PRODUCER_FENCED.
    """
    if error is ErrorCode.PRODUCER_FENCED and api_version < since:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error
