"""Exchange: one request of a Kafka client as a RequestEnvelope, and its answer as bytes.

Nodes of the cluster send their requests as RequestEnvelopes. This module turns the bytes of a Kafka
client's request into a RequestEnvelope, and the answer into bytes. So the broker handles requests
of nodes and of Kafka clients in the same way.

The fields of each message are listed in the tables of `protocol.wire`. Old versions of an API also
differ in other ways, for example in defaults, or in the place of the error. These differences are
handled here.
"""

from dataclasses import dataclass, field

import msgspec

from cluster.wire.codec import Cursor, MalformedRequest, decode_request, encode_response
from cluster.wire.headers import SASL_AUTHENTICATE, SASL_HANDSHAKE, RequestHeader, read_header
from protocol.api import AnyRequest, AnyResponse, Api, error_of
from protocol.effects import ACKS_NONE
from protocol.envelope import RequestEnvelope
from protocol.errors import ErrorCode
from protocol.messages.discovery import ApiVersionsRequest, MetadataRequest, MetadataResponse
from protocol.messages.log import (
    READ_COMMITTED,
    FetchRequest,
    FetchResponse,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from protocol.messages.offset import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopics,
)
from protocol.records.batch import RecordBatch
from protocol.records.kafka_format import InvalidBatch, decode_batches
from protocol.wire.listener_versions import OFFERED, OLDEST_ANSWERED_PRODUCE

SIZE_BYTES = 4
"""Each request and answer begins with its size, a number of this many bytes."""
LISTENER_NAME = "PLAINTEXT"
"""Name of the listener, as in Kafka's default of `listeners`."""
METADATA_SAYS_AUTO_CREATION_SINCE = 4
"""First version of Metadata in which a client says whether topics may be created for it.

Older versions always allow it."""
OFFSET_FETCH_HAS_ERROR_SINCE = 2
"""First version of OffsetFetch whose answer has a field for the group's error."""


class UnsupportedRequest(Exception):
    """A request for an API or version that the broker does not offer; the text says which one."""


@dataclass(slots=True, kw_only=True)
class Exchange:
    """A request for the broker, and the data for encoding its answer.

    `answer_version` is the version in which the answer is encoded. If a Produce has invalid
    batches, the broker does not get these batches. `refused_batches` has the outcomes for their
    partitions, by topic.
    """

    header: RequestHeader
    api: Api
    answer_version: int
    body: AnyRequest
    refused_batches: dict[str, list[PartitionProduceResponse]] = field(default_factory=dict)

    @property
    def expects_answer(self) -> bool:
        """True if the client waits for an answer; False for a Produce with acks=0."""
        return not (isinstance(self.body, ProduceRequest) and self.body.acks == ACKS_NONE)

    def envelope(self, client_host: str) -> RequestEnvelope:
        """Return the request in the envelope that a node with a Host would send."""
        return RequestEnvelope(
            api_key=self.api,
            api_version=self.header.api_version,
            correlation_id=self.header.correlation_id,
            client_id=self.header.client_id,
            client_host=client_host,
            body=self.body,
            listener_name=LISTENER_NAME,
        )

    def answer_bytes(self, response: AnyResponse, cluster_id: str) -> bytes:
        """Return the frame of an answer: size, correlation id, message.

        The correlation id is the number by which the client finds the request of an answer. The
        broker's answer lacks the cluster id and the parts that only Kafka clients need; this method
        adds them.
        """
        if isinstance(response, MetadataResponse):
            response = msgspec.structs.replace(response, cluster_id=cluster_id)
        elif isinstance(response, ProduceResponse):
            response = self.with_refused_batches(response)
        elif isinstance(response, FetchResponse):
            response = self._with_aborted_transactions(response)
        elif isinstance(response, OffsetFetchResponse):
            response = self._with_error_in_partitions(response)
        out = bytearray(SIZE_BYTES)  # the size is known, and written, at the end
        out += self.header.correlation_id.to_bytes(4, "big", signed=True)  # an int32
        encode_response(self.api, self.answer_version, response, out)
        out[:SIZE_BYTES] = (len(out) - SIZE_BYTES).to_bytes(SIZE_BYTES, "big")
        return bytes(out)

    def is_refused(self, response: AnyResponse) -> bool:
        """Return True if the broker's answer has an error, or `read_exchange` refused a batch."""
        return bool(self.refused_batches) or error_of(response) != ErrorCode.NONE.name

    def with_refused_batches(self, response: ProduceResponse) -> ProduceResponse:
        """Return the broker's answer with the outcomes of the refused batches."""
        if not self.refused_batches:
            return response
        outcomes_by_topic = {
            name: list(outcomes) for name, outcomes in self.refused_batches.items()
        }
        for topic in response.responses:
            outcomes_by_topic.setdefault(topic.name, []).extend(topic.partition_responses)
        return ProduceResponse(
            responses=tuple(
                TopicProduceResponse(name=name, partition_responses=tuple(outcomes))
                for name, outcomes in outcomes_by_topic.items()
            )
        )

    def _with_aborted_transactions(self, response: FetchResponse) -> FetchResponse:
        """Return the answer, with an empty list added if the Fetch is read_committed.

        A consumer that reads only committed records (read_committed) expects a list of aborted
        transactions. The list is empty because no transaction writes to topics of clients. A
        consumer that also reads uncommitted records gets null instead of a list.
        """
        if not isinstance(self.body, FetchRequest) or self.body.isolation_level != READ_COMMITTED:
            return response
        return msgspec.structs.replace(
            response,
            responses=tuple(
                msgspec.structs.replace(
                    topic,
                    partitions=tuple(
                        msgspec.structs.replace(data, aborted_transactions=())
                        for data in topic.partitions
                    ),
                )
                for topic in response.responses
            ),
        )

    def _with_error_in_partitions(self, response: OffsetFetchResponse) -> OffsetFetchResponse:
        """Return the answer with the group's error copied into each partition, for v0 and v1.

        Answers of these versions have no field for the group's error (KAFKA-19246).
        """
        if self.answer_version >= OFFSET_FETCH_HAS_ERROR_SINCE:
            return response
        group = response.groups[0]  # requests of v0 and v1 name exactly one group
        if group.error_code is ErrorCode.NONE or not isinstance(self.body, OffsetFetchRequest):
            return response
        # `topics` is None if all topics are requested. This is possible only in later versions.
        topics = tuple(
            OffsetFetchResponseTopics(
                name=topic.name,
                partitions=tuple(
                    OffsetFetchResponsePartition(partition_index=index, error_code=group.error_code)
                    for index in topic.partition_indexes
                ),
            )
            for topic in self.body.groups[0].topics or ()
        )
        return OffsetFetchResponse(groups=(msgspec.structs.replace(group, topics=topics),))


def read_exchange(payload: bytes) -> Exchange:
    """Return the exchange for the bytes of a request.

    Raises: UnsupportedRequest, MalformedRequest. Kafka closes the connection after such a request.
    """
    cursor = Cursor(payload)
    header = read_header(cursor)
    api = header.api
    offered = None if api is None else OFFERED.get(api)
    version = header.api_version
    if api is None or offered is None:
        raise UnsupportedRequest(_unknown_api(header))
    if not offered.oldest <= version <= offered.newest:
        if api is Api.API_VERSIONS:
            # KIP-511: the broker answers UNSUPPORTED_VERSION to a version that it does not know.
            # The answer is encoded as v0, because the client may know no other version.
            return Exchange(header=header, api=api, answer_version=0, body=ApiVersionsRequest())
        raise UnsupportedRequest(
            f"expected {api.label} v{offered.oldest} to v{offered.newest}, got v{version}"
        )
    body = decode_request(api, version, cursor)
    exchange = Exchange(header=header, api=api, answer_version=version, body=body)
    if isinstance(body, ProduceRequest):
        exchange.body = _with_batches(body, version, exchange.refused_batches)
    elif isinstance(body, MetadataRequest):
        exchange.body = _whole_metadata_request(body, version)
    elif isinstance(body, FetchRequest) and body.replica_id >= 0:
        # The broker would treat this request as the Fetch of a follower, which moves the high
        # watermark (the offset below which every in-sync replica has the records).
        raise MalformedRequest(
            f"expected the Fetch of a consumer (replica_id -1), got replica_id {body.replica_id}"
        )
    return exchange


def _unknown_api(header: RequestHeader) -> str:
    """Return the message about an API that the broker does not offer, with the reason for SASL."""
    if header.api_key in (SASL_HANDSHAKE, SASL_AUTHENTICATE):
        return "a SASL handshake: the listener is PLAINTEXT (security.protocol=PLAINTEXT)"
    name = "API" if header.api is None else header.api.label
    return f"expected an API that ApiVersions offers, got {name} ({header.api_key})"


def _whole_metadata_request(request: MetadataRequest, version: int) -> MetadataRequest:
    """Return a Metadata request in which the defaults of its version are explicit.

    An empty list of topics means all topics (None) in v0, and no topic in later versions.
    """
    topics = None if version == 0 and not request.topics else request.topics
    allows = version < METADATA_SAYS_AUTO_CREATION_SINCE or request.allow_auto_topic_creation
    return MetadataRequest(topics=topics, allow_auto_topic_creation=allows)


def _with_batches(
    request: ProduceRequest, version: int, refused: dict[str, list[PartitionProduceResponse]]
) -> ProduceRequest:
    """Return a Produce request with decoded batches.

    A partition whose bytes are not one valid batch is added to `refused`, and left out.
    Source: Kafka KafkaApis.handleProduceRequest, ProduceRequest.validateRecords.
    """
    topics = []
    for topic in request.topic_data:
        batches = []
        for data in topic.partition_data:
            outcome = _batch_of(data, version)
            if isinstance(outcome, ErrorCode):
                refused.setdefault(topic.name, []).append(
                    PartitionProduceResponse(index=data.index, error_code=outcome)
                )
            else:
                batches.append(PartitionProduceData(index=data.index, records=outcome))
        if batches:
            topics.append(TopicProduceData(name=topic.name, partition_data=tuple(batches)))
    return ProduceRequest(
        acks=request.acks, timeout_ms=request.timeout_ms, topic_data=tuple(topics)
    )


def _batch_of(data: PartitionProduceData, version: int) -> RecordBatch | ErrorCode:
    """Return the one batch of a partition's bytes, or the error that refuses it.

    Kafka accepts exactly one batch per partition. The listener also offers versions below
    OLDEST_ANSWERED_PRODUCE, but refuses each batch in them.
    """
    if version < OLDEST_ANSWERED_PRODUCE:
        return ErrorCode.UNSUPPORTED_VERSION
    payload = data.records
    # The codec leaves records as bytes. It decodes null as None, which counts as no batch.
    try:
        batches = decode_batches(payload if isinstance(payload, bytes) else b"")
    except InvalidBatch as error:
        return error.error_code
    return batches[0] if len(batches) == 1 else ErrorCode.INVALID_RECORD
