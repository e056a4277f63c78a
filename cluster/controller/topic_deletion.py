"""DeleteTopics: deletes topics with all their partitions.

Source: Kafka `ControllerApis.deleteTopics`, `ReplicationControlManager.deleteTopics`.
DEVIATION: topics have no id, only a name; delete.topic.enable is always true.
"""

from cluster.controller.decision import Decision
from cluster.controller.metadata_image import MetadataImage
from protocol.errors import ErrorCode
from protocol.messages.admin import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from protocol.records.metadata import RemoveTopicRecord
from protocol.trace import TraceEvent, TraceKind


def handle_delete_topics(
    image: MetadataImage, request: DeleteTopicsRequest
) -> Decision[DeleteTopicsResponse]:
    """Delete each topic that `request` names.

    A topic that does not exist gets UNKNOWN_TOPIC_OR_PARTITION. A name that the request contains
    twice gets INVALID_REQUEST.
    """
    # The response is replaced at the end, when the results are known.
    decision = Decision(DeleteTopicsResponse())
    results = []
    for name in dict.fromkeys(request.topic_names):  # the dict has each name once
        partitions = image.topics.get(name)
        if request.topic_names.count(name) > 1:
            error = ErrorCode.INVALID_REQUEST
        elif partitions is None:
            error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        else:
            error = ErrorCode.NONE
            decision.records.append(RemoveTopicRecord(name=name))
            decision.trace.append(
                TraceEvent(
                    kind=TraceKind.TOPIC_DELETED,
                    detail={"topic": name, "partitions": len(partitions)},
                )
            )
        results.append(DeletableTopicResult(name=name, error_code=error))
    decision.response = DeleteTopicsResponse(responses=tuple(results))
    return decision
