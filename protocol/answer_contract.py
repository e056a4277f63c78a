"""Checks that an answer fits its request.

In a run in virtual time, every answer of every node is checked. The nodes are programs of this
project, so a violation shows a bug of this project, not of Kafka. There are two rules:
1. An answer is about each topic, partition, group or key that its request names, and no other.
2. An answer without an error has values that a client can use. For example, a member that has
   joined gets an id.

The checks look only at the two messages. They do not use the state of a node.

Source: Kafka 3.9 `clients/src/main/resources/common/message/*.json`, and Kafka's clients, which use
these messages.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from protocol.api import AnyRequest, AnyResponse
from protocol.errors import ErrorCode, InvariantViolation
from protocol.ids import CONSUMER_OFFSETS, TRANSACTION_STATE
from protocol.messages.admin import (
    AlterPartitionReassignmentsRequest,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DescribeConfigsRequest,
    ElectLeadersRequest,
    ElectLeadersResponse,
)
from protocol.messages.controller import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
)
from protocol.messages.discovery import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    MetadataRequest,
    MetadataResponse,
)
from protocol.messages.group import (
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
)
from protocol.messages.group_admin import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    OffsetDeleteRequest,
)
from protocol.messages.log import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    ListOffsetsRequest,
    OffsetForLeaderEpochRequest,
    PartitionData,
    ProduceRequest,
    ProduceResponse,
)
from protocol.messages.offset import OffsetCommitRequest, OffsetFetchRequest, OffsetFetchResponse
from protocol.messages.transaction import (
    AddPartitionsToTxnRequest,
    InitProducerIdRequest,
    InitProducerIdResponse,
    TxnOffsetCommitRequest,
    WriteTxnMarkersRequest,
)

_CONSUMER = -1
"""`replica_id` in a Fetch request of a consumer. A follower sends its broker id instead."""

_INTERNAL_TOPICS = frozenset({CONSUMER_OFFSETS, TRANSACTION_STATE})
"""Source: Kafka `Topic.isInternal`."""

_SHOWN_CHARACTERS = 600
"""The error of a violation shows at most this many characters of a message, because a message with
records can be very long."""

_Path = tuple[str | None, ...]
"""Place of names in a message, as pairs of a list and the field that names the items of the list.

Example: `("topics", "name", "partitions", "partition_index")` consists of two pairs. The message
has a list `topics`, whose items have a field `name`. Each item of `topics` has a list `partitions`,
whose items have a field `partition_index`. None instead of a field means that the items are the
names themselves.
"""

_TOPICS: _Path = ("topics", "name", "partitions", "partition_index")

_NAMED: dict[type, tuple[_Path, _Path]] = {
    ProduceRequest: (
        ("topic_data", "name", "partition_data", "index"),
        ("responses", "name", "partition_responses", "index"),
    ),
    ListOffsetsRequest: (_TOPICS, _TOPICS),
    OffsetCommitRequest: (_TOPICS, _TOPICS),
    TxnOffsetCommitRequest: (_TOPICS, _TOPICS),
    OffsetDeleteRequest: (_TOPICS, _TOPICS),
    AddPartitionsToTxnRequest: (
        ("transactions", "transactional_id", "topics", "name", "partitions", None),
        (
            "results_by_transaction",
            "transactional_id",
            "topic_results",
            "name",
            "results_by_partition",
            "partition_index",
        ),
    ),
    WriteTxnMarkersRequest: (
        ("markers", "producer_id", "topics", "name", "partition_indexes", None),
        ("markers", "producer_id", "topics", "name", "partitions", "partition_index"),
    ),
    AlterPartitionRequest: (
        ("topics", "topic_name", "partitions", "partition_index"),
        ("topics", "topic_name", "partitions", "partition_index"),
    ),
    AlterPartitionReassignmentsRequest: (
        _TOPICS,
        ("responses", "name", "partitions", "partition_index"),
    ),
    DeleteTopicsRequest: (("topic_names", None), ("responses", "name")),
    DescribeConfigsRequest: (("resources", "resource_name"), ("results", "resource_name")),
    OffsetForLeaderEpochRequest: (
        ("topics", "topic", "partitions", "partition"),
        ("topics", "topic", "partitions", "partition"),
    ),
    DescribeGroupsRequest: (("groups", None), ("groups", "group_id")),
    DeleteGroupsRequest: (("groups_names", None), ("results", "group_id")),
    OffsetFetchRequest: (("groups", "group_id"), ("groups", "group_id")),
    FindCoordinatorRequest: (("coordinator_keys", None), ("coordinators", "key")),
    LeaveGroupRequest: (("members", "member_id"), ("members", "member_id")),
}
"""Request type -> (path of the names in the request, path of the names in its answer).

Some requests have names in a place that no path describes. Their answers have a check of their own
in `_CHECKS`.
"""


def check_answer(request: AnyRequest, response: AnyResponse) -> None:
    """Check an answer against its request.

    An answer with an error for the whole request is not checked, because its other fields are
    empty.

    Raises: InvariantViolation. Its text has the request, the answer and the problem.
    """
    if getattr(response, "error_code", ErrorCode.NONE) is not ErrorCode.NONE:
        return
    paths = _NAMED.get(type(request))
    if paths is not None:
        _check_names(request, response, *paths)
    check = _CHECKS.get(type(request))
    if check is not None:
        # The first problem ends the check. `check` is a generator, so later problems are not even
        # looked for.
        for problem in check(request, response):
            raise _violation(request, response, problem)


def _check_names(
    request: AnyRequest, response: AnyResponse, request_path: _Path, response_path: _Path
) -> None:
    """Check that the answer has each name as often as the request, and no other name."""
    names, answers = _names(request, request_path), _names(response, response_path)
    # Usually even the order is the same. To compare the lists is much faster than to count names.
    if names == answers:
        return
    requested, answered = Counter(names), Counter(answers)
    if requested == answered:
        return
    missing, unrequested = requested - answered, answered - requested
    raise _violation(
        request,
        response,
        f"expected an answer about each name in the request, got none about "
        f"{sorted(missing, key=repr)} and one about {sorted(unrequested, key=repr)}",
    )


def _names(message: object, path: _Path) -> list[tuple[object, ...]]:
    """Return the names at a path, for example ("topic-a", 3) for a partition of a topic.

    Each tuple has one name for each list on the path.
    """
    items, name = path[:2]
    elements = getattr(message, str(items)) or ()
    if len(path) == 2:
        return [(item if name is None else getattr(item, name),) for item in elements]
    return [
        (item if name is None else getattr(item, name), *inner)
        for item in elements
        for inner in _names(item, path[2:])
    ]


def _violation(request: AnyRequest, response: AnyResponse, problem: str) -> InvariantViolation:
    """Return the exception about a problem, with the beginnings of both messages."""
    return InvariantViolation(
        "an answer fits its request",
        f"{problem}; request {_beginning(request)}, response {_beginning(response)}",
    )


def _beginning(message: AnyRequest | AnyResponse) -> str:
    text = repr(message)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."


def _produced(request: ProduceRequest, response: ProduceResponse) -> Iterator[str]:
    """Yield the partitions whose answer has neither an error nor an offset."""
    for topic in response.responses:
        for partition in topic.partition_responses:
            if partition.error_code is ErrorCode.NONE and partition.base_offset < 0:
                yield f"{topic.name}-{partition.index} was appended at no offset"


def _fetched(request: FetchRequest, response: FetchResponse) -> Iterator[str]:
    """Yield the problems of each fetched partition.

    The batches must not be larger than the limits that the request sets. The first batch of the
    whole answer is an exception: it may be larger than the limits if no other batch follows for
    its partition. Otherwise a client would never get past a large batch (KIP-74).
    """
    requested: dict[tuple[str, int], FetchPartition] | None = None
    is_consumer = request.replica_id == _CONSUMER
    bytes_before = 0
    for topic_index, answered in enumerate(response.responses):
        in_order = _requested_at(request, topic_index, answered)
        for index, data in enumerate(answered.partitions):
            # An answer nearly always has the order of the request. Then the requested partition is
            # at the same place in the request. A dict of all requested partitions is built only if
            # the order differs.
            partition = in_order[index] if index < len(in_order) else None
            if partition is None or partition.partition != data.partition_index:
                if requested is None:
                    requested = _by_partition(request)
                partition = requested.get((answered.topic, data.partition_index))
            if partition is None:
                yield f"{answered.topic}-{data.partition_index} was not requested"
                continue
            # To save time, `_read` is called only if it can find a problem. If there are no
            # records, only the high watermark can be wrong.
            if data.error_code is ErrorCode.NONE and (data.records or data.high_watermark < 0):
                for problem in _read(partition, data, is_consumer=is_consumer):
                    yield f"{answered.topic}-{data.partition_index}: {problem}"
            if data.records:
                size_in_bytes = data.records[0].size_in_bytes
                for batch in data.records[1:]:
                    size_in_bytes += batch.size_in_bytes
                limit = min(partition.partition_max_bytes, request.max_bytes - bytes_before)
                # The first batch of the answer may be too large if it is alone, see the docstring.
                if size_in_bytes > limit and (bytes_before or len(data.records) > 1):
                    yield (
                        f"{answered.topic}-{data.partition_index}: expected at most {limit} bytes, "
                        f"got {size_in_bytes} in {len(data.records)} batches"
                    )
                bytes_before += size_in_bytes


def _requested_at(
    request: FetchRequest, topic_index: int, answered: FetchableTopicResponse
) -> Sequence[FetchPartition]:
    """Return the requested partitions of the topic `answered`.

    `topic_index` is the place of this topic in the answer. The result is empty if the request has
    another topic at this place.
    """
    if topic_index < len(request.topics) and request.topics[topic_index].topic == answered.topic:
        return request.topics[topic_index].partitions
    return ()


def _by_partition(request: FetchRequest) -> dict[tuple[str, int], FetchPartition]:
    """Return the requested partitions by topic and number."""
    return {
        (topic.topic, partition.partition): partition
        for topic in request.topics
        for partition in topic.partitions
    }


def _read(asked: FetchPartition, data: PartitionData, *, is_consumer: bool) -> Iterator[str]:
    """Yield the problems of one partition's records, offsets and high watermark."""
    if data.diverging_epoch is not None:
        if data.records:
            yield "records come with the epoch at which the logs diverge"
        return  # the follower truncates its log, and ignores everything else
    if data.high_watermark < 0:
        yield f"the high watermark is {data.high_watermark}"
    next_offset = asked.fetch_offset
    for batch in data.records:
        # There may be a gap before the batch, because a compaction may have removed batches. But
        # the batch must not end before `next_offset`, because the client already has the records
        # before this offset.
        if batch.next_offset <= next_offset:
            yield f"expected records from {next_offset}, got {batch.base_offset} on"
        next_offset = batch.next_offset
    if is_consumer and data.records and next_offset > data.high_watermark:
        yield (
            f"a consumer gets records up to {next_offset - 1}, above the high watermark "
            f"{data.high_watermark}"
        )


def _joined(request: JoinGroupRequest, response: JoinGroupResponse) -> Iterator[str]:
    """Yield the problems of an answer that lets a member into a generation."""
    if not response.member_id:
        yield "the member has no id"
    # The first completed join phase of a group begins generation 1.
    if response.generation_id < 1:
        yield f"expected a generation from 1, got {response.generation_id}"
    if response.protocol_type != request.protocol_type:
        yield f"the type of the protocol is {response.protocol_type}"
    if response.protocol_name not in {protocol.name for protocol in request.protocols}:
        yield f"the member does not support the protocol {response.protocol_name}"
    if response.members:
        ids = [member.member_id for member in response.members]
        if response.leader != response.member_id or response.member_id not in ids:
            yield "the members are for their leader alone"
        if len(set(ids)) != len(ids):
            yield "a member is listed twice"


def _initialized(request: InitProducerIdRequest, response: InitProducerIdResponse) -> Iterator[str]:
    """Yield a problem if a producer got no id or no epoch."""
    if response.producer_id < 0 or response.producer_epoch < 0:
        yield "the producer has no id or no epoch"


def _allocated(
    request: AllocateProducerIdsRequest, response: AllocateProducerIdsResponse
) -> Iterator[str]:
    """Yield a problem if the block of producer ids for a broker is empty."""
    if response.producer_id_start < 0 or response.producer_id_len <= 0:
        yield "the block of producer ids is empty"


def _isr_altered(request: AlterPartitionRequest, response: AlterPartitionResponse) -> Iterator[str]:
    """Yield the problems of the epochs and ISRs that the controller answers.

    The leader of a partition proposes an ISR. `check_answer` has called `_check_names` before this
    function, so each partition in the answer is one for which the request has a proposal.
    """
    proposals = {
        (topic.topic_name, data.partition_index): data
        for topic in request.topics
        for data in topic.partitions
    }
    for answered in response.topics:
        for data in answered.partitions:
            proposed = proposals[answered.topic_name, data.partition_index]
            place = f"{answered.topic_name}-{data.partition_index}"
            if data.error_code is not ErrorCode.NONE:
                continue
            # A change of the ISR raises the partition epoch by 1. If the partition already has the
            # proposed ISR, the controller changes nothing, and the epoch stays the same.
            if data.partition_epoch < proposed.partition_epoch:
                yield (
                    f"the epoch of {place} falls from {proposed.partition_epoch} to "
                    f"{data.partition_epoch}"
                )
            # If the epoch has risen by more than 1, there was also another change of the partition,
            # which the leader did not know. Then the controller must refuse the proposal.
            if data.partition_epoch > proposed.partition_epoch + 1:
                yield (
                    f"the ISR of {place} was proposed for epoch {proposed.partition_epoch}, and is "
                    f"stored in {data.partition_epoch}"
                )
            # A change of the ISR does not change the leader epoch, and leaves at least the leader.
            if data.leader_epoch != proposed.leader_epoch or not data.isr:
                yield f"{place} has ISR {data.isr} in epoch {data.leader_epoch} by a change of ISR"


def _registered(
    request: BrokerRegistrationRequest, response: BrokerRegistrationResponse
) -> Iterator[str]:
    """Yield a problem if a registered broker has no epoch."""
    if response.broker_epoch < 0:
        yield "the broker has no epoch"


def _found(request: FindCoordinatorRequest, response: FindCoordinatorResponse) -> Iterator[str]:
    """Yield the keys whose answer has both a node and an error, or neither of the two."""
    for found in response.coordinators:
        # An answer without an error must have a node, and an answer with an error must not.
        if (found.error_code is ErrorCode.NONE) != (found.node_id >= 0):
            yield (
                f"the coordinator of {found.key!r} is {found.node_id} with {found.error_code.name}"
            )


def _described(request: MetadataRequest, response: MetadataResponse) -> Iterator[str]:
    """Yield topics, leaders and replicas that contradict each other, and a wrong `is_internal`."""
    # If `request.topics` is None, the request asked for all topics.
    names = Counter(topic.name for topic in response.topics)
    if request.topics is not None and names != Counter(request.topics):
        yield f"expected the topics {sorted(request.topics)}, got {sorted(names)}"
    brokers = {broker.node_id for broker in response.brokers}
    for topic in response.topics:
        if topic.is_internal != (topic.name in _INTERNAL_TOPICS):
            yield f"{topic.name} has is_internal {topic.is_internal}"
        for partition in topic.partitions:
            place = f"{topic.name}-{partition.partition_index}"
            leader = partition.leader_id
            if partition.error_code is ErrorCode.NONE and leader not in brokers:
                yield f"{place} is led by {leader}, which is none of the brokers {sorted(brokers)}"
            if not set(partition.isr_nodes) <= set(partition.replica_nodes):
                yield f"{place} has an in-sync replica that is none of its replicas"


def _offsets_fetched(request: OffsetFetchRequest, response: OffsetFetchResponse) -> Iterator[str]:
    """Yield the groups whose answer is not about exactly the requested partitions.

    If `topics` of a group is None, all of its offsets were requested, and any partitions fit.
    `check_answer` has called `_check_names` before this function, so each group has an answer.
    """
    answers = {answer.group_id: answer for answer in response.groups}
    for group in request.groups:
        answer = answers[group.group_id]
        if answer.error_code is not ErrorCode.NONE or group.topics is None:
            continue
        asked = Counter(_names(group, ("topics", "name", "partition_indexes", None)))
        given = Counter(_names(answer, _TOPICS))
        if asked != given:
            yield (
                f"group {group.group_id}: expected the offsets of {sorted(asked, key=repr)}, got "
                f"those of {sorted(given, key=repr)}"
            )


def _elected(request: ElectLeadersRequest, response: ElectLeadersResponse) -> Iterator[str]:
    """Yield a problem if the answer is not about exactly the requested partitions.

    A request whose `topic_partitions` is None asks for all partitions. Then any partitions fit.
    """
    if request.topic_partitions is None:
        return
    asked = Counter(_names(request, ("topic_partitions", "topic", "partitions", None)))
    answered = Counter(
        _names(response, ("replica_election_results", "topic", "partition_result", "partition_id"))
    )
    if asked != answered:
        yield f"expected an answer about each of {sorted(asked, key=repr)}"


def _topics_created(request: CreateTopicsRequest, response: CreateTopicsResponse) -> Iterator[str]:
    """Yield a problem if the answer does not have each requested topic once.

    A topic that the request names twice is refused, by one entry of the answer.
    """
    requested = sorted({topic.name for topic in request.topics})
    answered = sorted(topic.name for topic in response.topics)
    if requested != answered:
        yield f"expected an answer about each of {requested} once, got {answered}"


_CHECKS: dict[type, Callable[[Any, Any], Iterator[str]]] = {
    ProduceRequest: _produced,
    FetchRequest: _fetched,
    JoinGroupRequest: _joined,
    InitProducerIdRequest: _initialized,
    AllocateProducerIdsRequest: _allocated,
    AlterPartitionRequest: _isr_altered,
    BrokerRegistrationRequest: _registered,
    FindCoordinatorRequest: _found,
    MetadataRequest: _described,
    OffsetFetchRequest: _offsets_fetched,
    ElectLeadersRequest: _elected,
    CreateTopicsRequest: _topics_created,
}
