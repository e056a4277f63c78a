"""`check_answer` accepts an answer that fits its request, and says why another does not fit.

An answer does not fit if a client could not have got it from a correct broker. For example, an
OffsetCommit for the partitions 0 and 1 must get an answer about exactly these partitions. The
answer to a Fetch from offset 10 must not have a batch that ends before offset 10.

The tests are tables of requests and answers. For each API the file first has a request, such as
`_COMMIT`, and then a function that builds answers to this request: `_committed(0, 1)` is an answer
about the partitions 0 and 1. Three requests and answers need an explanation:

- `_fetch()` is a consumer's Fetch of orders-0 from offset 10. With `replica_id=1` the Fetch is sent
  by a follower, broker 1, which copies the leader's records.
- `_fetched(_batch(9, count=2))` is an answer to `_fetch()` with a batch of two records, at the
  offsets 9 and 10. By default the high watermark is 12.
- `_ALTER` proposes another ISR to the controller. The leader has made the proposal for partition
  epoch 5. The answer `_altered(partition_epoch=6)` says that the controller has stored the ISR in
  epoch 6.
"""

import msgspec
import pytest

from protocol.answer_contract import check_answer
from protocol.api import AnyRequest, AnyResponse
from protocol.errors import ErrorCode, InvariantViolation
from protocol.messages.admin import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ElectLeadersTopic,
    PartitionResult,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopic,
    ReassignableTopicResponse,
    ReplicaElectionResult,
)
from protocol.messages.controller import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
    AlterPartitionPartitionData,
    AlterPartitionPartitionResponse,
    AlterPartitionRequest,
    AlterPartitionResponse,
    AlterPartitionTopicData,
    AlterPartitionTopicResponse,
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    IsrBrokerState,
)
from protocol.messages.discovery import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from protocol.messages.group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    JoinGroupResponseMember,
)
from protocol.messages.group_admin import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from protocol.messages.log import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderPartitionResult,
    OffsetForLeaderTopic,
    OffsetForLeaderTopicResult,
    PartitionData,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from protocol.messages.offset import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopics,
)
from protocol.messages.transaction import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
    InitProducerIdRequest,
    InitProducerIdResponse,
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopic,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from protocol.records.batch import RecordBatch


def _batch(base_offset: int, count: int = 1) -> RecordBatch:
    """Return a batch of `count` records, whose first offset is `base_offset`."""
    return RecordBatch(
        base_offset=base_offset,
        partition_leader_epoch=0,
        last_offset_delta=count - 1,
        max_timestamp_ms=0,
        records=b"",
    )


_COMMIT = OffsetCommitRequest(
    group_id="payments",
    topics=(
        OffsetCommitRequestTopic(
            name="orders",
            partitions=tuple(
                OffsetCommitRequestPartition(partition_index=index, committed_offset=5)
                for index in (0, 1)
            ),
        ),
    ),
)


def _committed(*partitions: int) -> OffsetCommitResponse:
    return OffsetCommitResponse(
        topics=(
            OffsetCommitResponseTopic(
                name="orders",
                partitions=tuple(
                    OffsetCommitResponsePartition(partition_index=index) for index in partitions
                ),
            ),
        )
    )


def _fetch(replica_id: int = -1) -> FetchRequest:
    return FetchRequest(
        replica_id=replica_id,
        max_wait_ms=500,
        topics=(
            FetchTopic(
                topic="orders",
                partitions=(FetchPartition(partition=0, fetch_offset=10),),
            ),
        ),
    )


def _fetched(
    *records: RecordBatch,
    partition: int = 0,
    error_code: ErrorCode = ErrorCode.NONE,
    high_watermark: int = 12,
    diverging_epoch: EpochEndOffset | None = None,
) -> FetchResponse:
    data = PartitionData(
        partition_index=partition,
        error_code=error_code,
        high_watermark=high_watermark,
        diverging_epoch=diverging_epoch,
        records=records,
    )
    return FetchResponse(responses=(FetchableTopicResponse(topic="orders", partitions=(data,)),))


def _fetch_of_two(max_bytes: int, partition_max_bytes: int = 1_000) -> FetchRequest:
    """Return a consumer's Fetch of orders-0 and orders-1 from offset 10, with limits in bytes."""
    positions = tuple(
        FetchPartition(partition=index, fetch_offset=10, partition_max_bytes=partition_max_bytes)
        for index in (0, 1)
    )
    return FetchRequest(
        max_wait_ms=500,
        max_bytes=max_bytes,
        topics=(FetchTopic(topic="orders", partitions=positions),),
    )


def _fetched_two(first: int, second: int) -> FetchResponse:
    """Return an answer with `first` batches of orders-0 and `second` batches of orders-1."""
    partitions = tuple(
        PartitionData(
            partition_index=index,
            high_watermark=20,
            records=tuple(_batch(10 + number) for number in range(count)),
        )
        for index, count in enumerate((first, second))
    )
    return FetchResponse(responses=(FetchableTopicResponse(topic="orders", partitions=partitions),))


def _in_reverse(response: FetchResponse) -> FetchResponse:
    """Return an answer for one topic with its partitions in reverse order."""
    (topic,) = response.responses
    partitions = topic.partitions[::-1]
    return FetchResponse(
        responses=(FetchableTopicResponse(topic=topic.topic, partitions=partitions),)
    )


_PRODUCE = ProduceRequest(
    acks=-1,
    timeout_ms=1000,
    topic_data=(
        TopicProduceData(
            name="orders", partition_data=(PartitionProduceData(index=0, records=_batch(0)),)
        ),
    ),
)


def _produced(index: int, base_offset: int) -> ProduceResponse:
    return ProduceResponse(
        responses=(
            TopicProduceResponse(
                name="orders",
                partition_responses=(
                    PartitionProduceResponse(index=index, base_offset=base_offset),
                ),
            ),
        )
    )


_JOIN = JoinGroupRequest(
    group_id="payments",
    session_timeout_ms=45_000,
    protocols=(JoinGroupRequestProtocol("range", b""),),
)
_JOINED = JoinGroupResponse(
    generation_id=1,
    protocol_type="consumer",
    protocol_name="range",
    leader="a",
    member_id="a",
    members=(JoinGroupResponseMember(member_id="a"), JoinGroupResponseMember(member_id="b")),
)
_FETCH_OFFSETS = OffsetFetchRequest(
    groups=(
        OffsetFetchRequestGroup(
            group_id="payments",
            topics=(OffsetFetchRequestTopics(name="orders", partition_indexes=(0, 1)),),
        ),
    )
)


def _offsets(*partitions: int) -> OffsetFetchResponse:
    return OffsetFetchResponse(
        groups=(
            OffsetFetchResponseGroup(
                group_id="payments",
                topics=(
                    OffsetFetchResponseTopics(
                        name="orders",
                        partitions=tuple(
                            OffsetFetchResponsePartition(partition_index=index)
                            for index in partitions
                        ),
                    ),
                ),
            ),
        )
    )


_ADD = AddPartitionsToTxnRequest(
    transactions=(
        AddPartitionsToTxnTransaction(
            transactional_id="t",
            producer_id=1,
            producer_epoch=0,
            topics=(AddPartitionsToTxnTopic(name="orders", partitions=(0,)),),
        ),
    )
)


def _added(partition: int) -> AddPartitionsToTxnResponse:
    return AddPartitionsToTxnResponse(
        results_by_transaction=(
            AddPartitionsToTxnResult(
                transactional_id="t",
                topic_results=(
                    AddPartitionsToTxnTopicResult(
                        name="orders",
                        results_by_partition=(
                            AddPartitionsToTxnPartitionResult(partition_index=partition),
                        ),
                    ),
                ),
            ),
        )
    )


_MARKERS = WriteTxnMarkersRequest(
    markers=(
        WritableTxnMarker(
            producer_id=1,
            producer_epoch=0,
            transaction_result=True,
            topics=(WritableTxnMarkerTopic(name="orders", partition_indexes=(0,)),),
            coordinator_epoch=0,
        ),
    )
)


def _marked(producer_id: int) -> WriteTxnMarkersResponse:
    return WriteTxnMarkersResponse(
        markers=(
            WritableTxnMarkerResult(
                producer_id=producer_id,
                topics=(
                    WritableTxnMarkerTopicResult(
                        name="orders",
                        partitions=(WritableTxnMarkerPartitionResult(partition_index=0),),
                    ),
                ),
            ),
        )
    )


_ELECT = ElectLeadersRequest(topic_partitions=(ElectLeadersTopic("orders", (0,)),))


def _elected(partition: int) -> ElectLeadersResponse:
    return ElectLeadersResponse(
        replica_election_results=(
            ReplicaElectionResult(
                topic="orders", partition_result=(PartitionResult(partition_id=partition),)
            ),
        )
    )


_REASSIGN = AlterPartitionReassignmentsRequest(
    topics=(
        ReassignableTopic(
            name="orders", partitions=(ReassignablePartition(partition_index=0, replicas=(0,)),)
        ),
    )
)
_REASSIGNED = AlterPartitionReassignmentsResponse(
    responses=(
        ReassignableTopicResponse(
            name="orders", partitions=(ReassignablePartitionResponse(partition_index=0),)
        ),
    )
)


_METADATA = MetadataRequest(topics=("orders",))


def _metadata(leader: int, isr: tuple[int, ...] = (0,), topic: str = "orders") -> MetadataResponse:
    return MetadataResponse(
        brokers=(MetadataResponseBroker(node_id=0, host="h", port=1),),
        topics=(
            MetadataResponseTopic(
                name=topic,
                partitions=(
                    MetadataResponsePartition(
                        partition_index=0, leader_id=leader, replica_nodes=(0,), isr_nodes=isr
                    ),
                ),
            ),
        ),
    )


def _found(node_id: int, error_code: ErrorCode = ErrorCode.NONE) -> FindCoordinatorResponse:
    return FindCoordinatorResponse(
        coordinators=(Coordinator(key="payments", node_id=node_id, error_code=error_code),)
    )


_FIND = FindCoordinatorRequest(coordinator_keys=("payments",))
_INIT = InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=1000)
_REGISTER = BrokerRegistrationRequest(broker_id=0, incarnation_id=0, host="h", port=1)
_ALLOCATE = AllocateProducerIdsRequest(broker_id=0, broker_epoch=1)


_ALTER = AlterPartitionRequest(
    broker_id=0,
    broker_epoch=1,
    topics=(
        AlterPartitionTopicData(
            topic_name="orders",
            partitions=(
                AlterPartitionPartitionData(
                    partition_index=0,
                    leader_epoch=3,
                    partition_epoch=5,
                    new_isr_with_epochs=(IsrBrokerState(0),),
                ),
            ),
        ),
    ),
)


def _altered(
    partition_epoch: int,
    leader_epoch: int = 3,
    isr: tuple[int, ...] = (0,),
    error_code: ErrorCode = ErrorCode.NONE,
) -> AlterPartitionResponse:
    answer = AlterPartitionPartitionResponse(
        partition_index=0,
        error_code=error_code,
        leader_epoch=leader_epoch,
        isr=isr,
        partition_epoch=partition_epoch,
    )
    return AlterPartitionResponse(
        topics=(AlterPartitionTopicResponse(topic_name="orders", partitions=(answer,)),)
    )


_CREATE = CreateTopicsRequest(
    topics=tuple(
        CreatableTopic(name=name, num_partitions=1, replication_factor=1)
        for name in ("a", "b", "b")
    ),
    timeout_ms=1_000,
)
"""A request that names topic b twice. The answer has one entry, the refusal, for b."""


def _created(*names: str) -> CreateTopicsResponse:
    """Return the answer about these topics."""
    return CreateTopicsResponse(topics=tuple(CreatableTopicResult(name=name) for name in names))


_OFFSETS_OF_EPOCHS = OffsetForLeaderEpochRequest(
    topics=(
        OffsetForLeaderTopic(
            topic="orders", partitions=(OffsetForLeaderPartition(partition=0, leader_epoch=3),)
        ),
    )
)


def _ends_of_epochs(partition: int) -> OffsetForLeaderEpochResponse:
    """Return the answer about one partition of orders."""
    result = OffsetForLeaderPartitionResult(partition=partition, leader_epoch=3, end_offset=9)
    return OffsetForLeaderEpochResponse(
        topics=(OffsetForLeaderTopicResult(topic="orders", partitions=(result,)),)
    )


_TOPIC_RESOURCE = 2
"""Kafka's number for resources that are topics."""
_CONFIGS = DescribeConfigsRequest(
    resources=(DescribeConfigsResource(resource_type=_TOPIC_RESOURCE, resource_name="orders"),)
)


def _configs(name: str) -> DescribeConfigsResponse:
    """Return the answer about the settings of one topic."""
    return DescribeConfigsResponse(
        results=(DescribeConfigsResult(resource_type=_TOPIC_RESOURCE, resource_name=name),)
    )


@pytest.mark.parametrize(
    ("request_", "response"),
    [
        (_COMMIT, _committed(0, 1)),
        (_COMMIT, _committed(1, 0)),  # the order does not matter
        (_PRODUCE, _produced(0, base_offset=7)),
        (_fetch(), _fetched()),
        # The first batch may begin before the requested offset, here 10.
        (_fetch(), _fetched(_batch(9, count=2), _batch(11))),
        # A follower may read above the high watermark, here 12. It may also get a batch after a
        # gap, which a cleaning of the log has left.
        (_fetch(replica_id=1), _fetched(_batch(10, count=5))),
        (_fetch(replica_id=1), _fetched(_batch(14, count=5))),
        # A follower whose log differs learns the offset at which an epoch ends in the leader's log.
        (_fetch(replica_id=1), _fetched(diverging_epoch=EpochEndOffset(epoch=1, end_offset=3))),
        # The answer to a refused Fetch has no high watermark, or has no partition at all.
        (_fetch(), _fetched(error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER, high_watermark=-1)),
        (_fetch(), FetchResponse()),
        # An answer to a Fetch may have its partitions in another order, or may lack some of them.
        (_fetch_of_two(max_bytes=1_000), _in_reverse(_fetched_two(1, 1))),
        (_fetch_of_two(max_bytes=1_000), _fetched(partition=1)),
        (_JOIN, _JOINED),
        (_JOIN, JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id="a")),
        (_FETCH_OFFSETS, _offsets(0, 1)),
        (_ADD, _added(0)),
        (_MARKERS, _marked(1)),
        (_ELECT, _elected(0)),
        (_REASSIGN, _REASSIGNED),
        (
            DeleteTopicsRequest(topic_names=("a",)),
            DeleteTopicsResponse(responses=(DeletableTopicResult(name="a"),)),
        ),
        (_CREATE, _created("a", "b")),
        (_OFFSETS_OF_EPOCHS, _ends_of_epochs(0)),
        (_CONFIGS, _configs("orders")),
        (_METADATA, _metadata(leader=0)),
        (MetadataRequest(), _metadata(leader=0)),
        (_FIND, _found(node_id=2)),
        (_FIND, _found(node_id=-1, error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)),
        (_INIT, InitProducerIdResponse(producer_id=3)),
        (_REGISTER, BrokerRegistrationResponse(broker_epoch=4)),
        (_ALTER, _altered(partition_epoch=5)),  # the controller had already stored this ISR
        (_ALTER, _altered(partition_epoch=6)),  # the controller has just stored it
        # A refusal has no epochs and no ISR.
        (
            _ALTER,
            _altered(
                partition_epoch=-1,
                leader_epoch=-1,
                isr=(),
                error_code=ErrorCode.INVALID_UPDATE_VERSION,
            ),
        ),
        (_ALLOCATE, AllocateProducerIdsResponse(producer_id_start=0, producer_id_len=1000)),
    ],
)
def test_answer_that_fits_is_accepted(request_: AnyRequest, response: AnyResponse) -> None:
    """`check_answer` raises no exception."""
    check_answer(request_, response)


@pytest.mark.parametrize(
    ("request_", "response", "problem"),
    [
        (_COMMIT, _committed(0), r"none about \[\('orders', 1\)\]"),
        (_COMMIT, _committed(0, 1, 1), r"and one about \[\('orders', 1\)\]"),  # one too many
        (_PRODUCE, _produced(1, base_offset=7), r"none about \[\('orders', 0\)\]"),
        (_PRODUCE, _produced(0, base_offset=-1), "orders-0 was appended at no offset"),
        (_fetch(), _fetched(partition=4), "orders-4 was not requested"),
        (
            _fetch_of_two(max_bytes=1_000),
            _fetched(partition=4),
            "orders-4 was not requested",
        ),
        (_fetch(), _fetched(high_watermark=-1), "the high watermark is -1"),
        (_fetch(), _fetched(_batch(9)), "expected records from 10, got 9 on"),
        (_fetch(), _fetched(_batch(10), _batch(10)), "expected records from 11"),
        # The batch has the records 10, 11 and 12. A consumer may read only below 12.
        (_fetch(), _fetched(_batch(10, count=3)), "above the high watermark 12"),
        (
            _fetch(replica_id=1),
            _fetched(_batch(10), diverging_epoch=EpochEndOffset(epoch=1, end_offset=3)),
            "records come with the epoch",
        ),
        (_JOIN, msgspec.structs.replace(_JOINED, member_id=""), "the member has no id"),
        (_JOIN, msgspec.structs.replace(_JOINED, generation_id=0), "expected a generation from 1"),
        (_JOIN, msgspec.structs.replace(_JOINED, protocol_name="sticky"), "protocol sticky"),
        (_JOIN, msgspec.structs.replace(_JOINED, protocol_type="connect"), "connect"),
        # The answer to member a has the list of members, which only the leader gets.
        (_JOIN, msgspec.structs.replace(_JOINED, leader="b"), "for their leader alone"),
        (
            _JOIN,
            msgspec.structs.replace(_JOINED, members=(*_JOINED.members, _JOINED.members[0])),
            "listed twice",
        ),
        (_FETCH_OFFSETS, _offsets(0), "group payments: expected the offsets of"),
        (_FETCH_OFFSETS, OffsetFetchResponse(), r"none about \[\('payments',\)\]"),
        (_ADD, _added(1), r"none about \[\('t', 'orders', 0\)\]"),
        (_MARKERS, _marked(2), r"none about \[\(1, 'orders', 0\)\]"),
        (_ELECT, _elected(1), "expected an answer about each"),
        (_REASSIGN, AlterPartitionReassignmentsResponse(), r"\('orders', 0\)"),
        (DeleteTopicsRequest(topic_names=("a",)), DeleteTopicsResponse(), r"\('a',\)"),
        (
            DeleteGroupsRequest(groups_names=("a",)),
            DeleteGroupsResponse(results=(DeletableGroupResult(group_id="b"),)),
            r"\('a',\)",
        ),
        (_CREATE, _created("a"), r"each of \['a', 'b'\] once, got \['a'\]"),
        (_CREATE, _created("a", "b", "b"), r"got \['a', 'b', 'b'\]"),
        (_OFFSETS_OF_EPOCHS, _ends_of_epochs(1), r"none about \[\('orders', 0\)\]"),
        (_CONFIGS, _configs("0"), r"none about \[\('orders',\)\]"),
        # Broker 0 is the only replica.
        (_METADATA, _metadata(leader=3), "led by 3"),
        (_METADATA, _metadata(leader=0, isr=(0, 1)), "none of its replicas"),
        (_METADATA, _metadata(leader=0, topic="b"), "expected the topics"),
        (
            MetadataRequest(topics=("__consumer_offsets",)),
            _metadata(leader=0, topic="__consumer_offsets"),
            "__consumer_offsets has is_internal False",
        ),
        # Neither a coordinator nor an error, and then both.
        (_FIND, _found(node_id=-1), "with NONE"),
        (
            _FIND,
            _found(node_id=2, error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE),
            "COORDINATOR_NOT_AVAILABLE",
        ),
        (_INIT, InitProducerIdResponse(producer_id=-1), "no id"),
        (_REGISTER, BrokerRegistrationResponse(), "no epoch"),
        (_ALLOCATE, AllocateProducerIdsResponse(), "is empty"),
        # The proposal was made in partition epoch 5 and leader epoch 3.
        (_ALTER, _altered(partition_epoch=4), "orders-0 falls from 5 to 4"),
        (_ALTER, _altered(partition_epoch=7), "proposed for epoch 5, and is stored in 7"),
        (_ALTER, _altered(partition_epoch=6, leader_epoch=4), "in epoch 4"),
        (_ALTER, _altered(partition_epoch=6, isr=()), r"has ISR \(\)"),
    ],
)
def test_answer_that_does_not_fit_is_a_violation(
    request_: AnyRequest, response: AnyResponse, problem: str
) -> None:
    """The error says which part of the answer does not fit."""
    with pytest.raises(InvariantViolation, match=problem):
        check_answer(request_, response)


_SIZE = _batch(0).size_in_bytes
"""Size of each batch in an answer of `_fetched_two`."""


@pytest.mark.parametrize(
    ("request_", "first", "second"),
    [
        (_fetch_of_two(max_bytes=3 * _SIZE), 2, 1),
        # A single batch may be larger than the limit.
        (_fetch_of_two(max_bytes=1), 1, 0),
        (_fetch_of_two(max_bytes=1), 0, 1),
        (_fetch_of_two(max_bytes=3 * _SIZE, partition_max_bytes=_SIZE), 1, 1),
    ],
)
def test_fetch_within_its_limits_is_no_violation(
    request_: FetchRequest, first: int, second: int
) -> None:
    """The answer has `first` batches of partition 0, and `second` batches of partition 1.

    The first batch of an answer is sent even if it is larger than the limit (KIP-74), so that the
    client can go on.
    """
    check_answer(request_, _fetched_two(first, second))


@pytest.mark.parametrize(
    ("request_", "first", "second"),
    [
        (_fetch_of_two(max_bytes=3 * _SIZE - 1), 2, 1),
        # Only the first batch may be larger than the limit.
        (_fetch_of_two(max_bytes=1), 2, 0),
        (_fetch_of_two(max_bytes=1), 1, 1),
        (_fetch_of_two(max_bytes=3 * _SIZE, partition_max_bytes=_SIZE), 2, 0),
        (_fetch_of_two(max_bytes=4 * _SIZE, partition_max_bytes=_SIZE - 1), 1, 1),
    ],
)
def test_fetch_beyond_its_limits_is_a_violation(
    request_: FetchRequest, first: int, second: int
) -> None:
    """The limits are `max_bytes` of the whole answer, and `partition_max_bytes` of a partition."""
    with pytest.raises(InvariantViolation, match="expected at most"):
        check_answer(request_, _fetched_two(first, second))
