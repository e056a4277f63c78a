"""The APIs and versions that a broker offers to real Kafka clients, and its ApiVersions answer.

A client asks with ApiVersions which versions it may use. The broker must be able to decode and
encode all versions that its answer names. It offers no flexible versions (KIP-482), which have
compact lengths and tagged fields. It also offers no versions that need an old format of record
batches (before magic 2).
"""

from dataclasses import dataclass

from protocol.api import Api
from protocol.errors import ErrorCode
from protocol.messages.discovery import ApiVersion, ApiVersionsResponse
from protocol.wire import listener_schemas, message_schemas, transaction_schemas
from protocol.wire.fields import ApiSchema

OLDEST_ANSWERED_PRODUCE = 3
"""The oldest version of Produce that really works. Older versions have old formats of batches. A
request in such a version is answered with UNSUPPORTED_VERSION.

Nevertheless ApiVersions names the older versions, as in Kafka 4. If ApiVersions did not name v0,
librdkafka before 2.11 would believe that the broker has version 0.9 of Kafka.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferedApi:
    """An API with its oldest and newest version on the listener, and its fields."""

    oldest: int
    newest: int
    schema: ApiSchema


OFFERED: dict[Api, OfferedApi] = {
    api: OfferedApi(oldest=oldest, newest=newest, schema=schema)
    for api, oldest, newest, schema in (
        (Api.PRODUCE, 0, 8, listener_schemas.PRODUCE),
        (Api.FETCH, 4, 11, listener_schemas.FETCH),
        (Api.LIST_OFFSETS, 1, 5, listener_schemas.LIST_OFFSETS),
        (Api.METADATA, 0, 8, listener_schemas.METADATA),
        (Api.OFFSET_COMMIT, 2, 7, message_schemas.OFFSET_COMMIT),
        (Api.OFFSET_FETCH, 1, 5, message_schemas.OFFSET_FETCH),
        (Api.FIND_COORDINATOR, 0, 2, message_schemas.FIND_COORDINATOR),
        (Api.JOIN_GROUP, 0, 5, message_schemas.JOIN_GROUP),
        (Api.HEARTBEAT, 0, 3, message_schemas.HEARTBEAT),
        (Api.LEAVE_GROUP, 0, 3, message_schemas.LEAVE_GROUP),
        (Api.SYNC_GROUP, 0, 3, message_schemas.SYNC_GROUP),
        (Api.DESCRIBE_GROUPS, 0, 4, message_schemas.DESCRIBE_GROUPS),
        (Api.LIST_GROUPS, 0, 2, message_schemas.LIST_GROUPS),
        (Api.API_VERSIONS, 0, 2, listener_schemas.API_VERSIONS),
        (Api.CREATE_TOPICS, 0, 4, listener_schemas.CREATE_TOPICS),
        (Api.DELETE_TOPICS, 0, 3, listener_schemas.DELETE_TOPICS),
        (Api.INIT_PRODUCER_ID, 0, 1, transaction_schemas.INIT_PRODUCER_ID),
        (Api.OFFSET_FOR_LEADER_EPOCH, 0, 3, listener_schemas.OFFSET_FOR_LEADER_EPOCH),
        (Api.DESCRIBE_CONFIGS, 0, 3, listener_schemas.DESCRIBE_CONFIGS),
        (Api.DELETE_GROUPS, 0, 1, message_schemas.DELETE_GROUPS),
        (Api.OFFSET_DELETE, 0, 0, message_schemas.OFFSET_DELETE),
    )
}


def api_versions(asked_version: int) -> ApiVersionsResponse:
    """Answer ApiVersions.

    If the version of the client's request is too new, the answer is UNSUPPORTED_VERSION, and has
    only the entry of ApiVersions (KIP-511). The client then asks again in a version that this entry
    offers.
    """
    offered = OFFERED[Api.API_VERSIONS]
    if asked_version > offered.newest:
        return ApiVersionsResponse(
            error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=(_row(Api.API_VERSIONS, offered),)
        )
    return ApiVersionsResponse(api_keys=tuple(_row(api, row) for api, row in OFFERED.items()))


def _row(api: Api, offered: OfferedApi) -> ApiVersion:
    return ApiVersion(api_key=api.value, min_version=offered.oldest, max_version=offered.newest)
