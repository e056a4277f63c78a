"""AllocateProducerIds: assigns blocks of producer ids to brokers, each id only once.

Source: Kafka `ProducerIdControlManager`.
"""

from cluster.controller.decision import Decision
from cluster.controller.metadata_image import MetadataImage
from protocol.errors import ErrorCode
from protocol.ids import BrokerId
from protocol.messages.controller import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from protocol.records.metadata import ProducerIdsRecord

BLOCK_SIZE = 1_000
"""Number of producer ids that a broker gets at a time. Source: Kafka ProducerIdsBlock."""


def allocate_producer_ids(
    image: MetadataImage, request: AllocateProducerIdsRequest
) -> Decision[AllocateProducerIdsResponse]:
    """Give a registered broker the next block of ids."""
    broker = image.brokers.get(BrokerId(request.broker_id))
    if broker is None:
        return Decision(AllocateProducerIdsResponse(error_code=ErrorCode.BROKER_ID_NOT_REGISTERED))
    if broker.broker_epoch != request.broker_epoch:
        return Decision(AllocateProducerIdsResponse(error_code=ErrorCode.STALE_BROKER_EPOCH))
    start = image.next_producer_id
    record = ProducerIdsRecord(
        broker_id=request.broker_id,
        broker_epoch=request.broker_epoch,
        next_producer_id=start + BLOCK_SIZE,
    )
    return Decision(
        AllocateProducerIdsResponse(producer_id_start=start, producer_id_len=BLOCK_SIZE),
        records=[record],
        reason="producer ids allocated",
    )
