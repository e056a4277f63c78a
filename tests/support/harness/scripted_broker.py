"""Fake brokers for tests of the clients: a test says how they answer.

By default a fake broker answers like a healthy broker that coordinates a group with a single
member. A test may script other answers to the next requests: `broker.answer(HeartbeatRequest,
...)`. Each broker keeps the requests that it got.

All brokers of a ClientLab share one state, from which they answer: who is leader, what is
committed, how many records there are. The clients under test and the brokers are on one network in
virtual time (a simulated clock).
"""

from collections import deque
from typing import Protocol

from cluster.client.consumer.node import ConsumerNode
from cluster.client.producer.node import ProducerNode
from cluster.host.incoming_request import IncomingRequest
from cluster.runtime import ClusterStatus, MemberStatus
from cluster.spec import BrokerSpec, ClusterSpec, ConsumerSpec, ControllerSpec, ProducerSpec
from cluster.virtual.host import VirtualHost
from partition_log.batches import build_batch
from protocol.api import AnyRequest, AnyResponse
from protocol.config import ConsumerConfig, ProducerConfig
from protocol.errors import ErrorCode
from protocol.ids import NodeName, RequestId, broker_name
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
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
    LeaveGroupRequest,
    LeaveGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from protocol.messages.log import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
    PartitionData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from protocol.messages.offset import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopics,
)
from protocol.messages.transaction import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from protocol.records.batch import Record, RecordBatch
from protocol.trace import TraceRow
from tests.support.harness.virtual_hosts import HostLab

# One millisecond and one second, in microseconds.
MS = 1_000
SECOND = 1_000_000
TOPIC = "t"
GROUP = "g"


class LabMaker(Protocol):
    """The type of a fixture that creates labs, and disposes of them when the test ends."""

    def __call__(self, brokers: int = 2, *, partitions: int = 2) -> "ClientLab":
        """Return a new lab."""


class ScriptedBroker:
    """One fake broker."""

    def __init__(self, lab: "ClientLab", broker_id: int) -> None:
        self.broker_id = broker_id
        # Type of request -> the answers to the next requests of this type. None instead of an
        # answer means that the request gets no answer.
        self.script: dict[type, deque[AnyResponse | None]] = {}
        # All requests so far, and the requests that got no answer because of the script.
        self.requests: list[AnyRequest] = []
        self.unanswered: list[IncomingRequest] = []
        self._lab = lab
        # The number of member ids that this broker has given away.
        self._member_id_count = 0
        self._generation = 0
        # The last producer epoch that this broker has given away.
        self._producer_epoch = -1
        self.restart()

    def restart(self) -> None:
        """Begin to serve on a new host, as after a restart of the broker's process."""
        self.host = self._lab.hosts.host(
            broker_name(self.broker_id), self._lab.next_incarnation(), traced=False
        )
        self.host.serve(self._handle)

    def answer(self, request_type: type, *answers: AnyResponse | None) -> None:
        """Script the answers to the next requests of a type; None means that there is no answer."""
        self.script.setdefault(request_type, deque()).extend(answers)

    def of_type(self, request_type: type) -> list[AnyRequest]:
        """Return the requests of this type so far, in the order in which they arrived."""
        return [request for request in self.requests if isinstance(request, request_type)]

    def _handle(self, incoming: IncomingRequest) -> None:
        """Keep a request, and answer it as scripted or as a healthy broker does."""
        body = incoming.envelope.body
        self.requests.append(body)
        scripted = self.script.get(type(body))
        if scripted:
            answer = scripted.popleft()
            if answer is None:
                self.unanswered.append(incoming)
            else:
                self.host.reply(incoming.request_id, answer)
        elif isinstance(body, FetchRequest) and not self._has_records(body):
            # A Fetch that finds no records is answered only after `max_wait_ms`.
            self.host.after(body.max_wait_ms * MS, self._reply_to_fetch, incoming.request_id, body)
        else:
            self.host.reply(incoming.request_id, self._healthy_answer(body))

    def _reply_to_fetch(self, request_id: RequestId, body: FetchRequest) -> None:
        self.host.reply(request_id, self._fetch(body))

    def _healthy_answer(self, body: AnyRequest) -> AnyResponse:
        """Return the answer of a healthy broker.

        A commit changes the committed offsets of the lab. Within a transaction, a commit changes
        them only when an EndTxn commits the transaction.
        """
        lab = self._lab
        match body:
            case MetadataRequest():
                return lab.metadata()
            case FindCoordinatorRequest():
                return coordinator_is(lab.coordinator)
            case JoinGroupRequest():
                return self._join(body)
            case SyncGroupRequest():
                # Only the leader of a group sends assignments. So here only the leader gets its
                # assignment, and any other member gets an empty assignment.
                assignments = {entry.member_id: entry.assignment for entry in body.assignments}
                return SyncGroupResponse(
                    protocol_type="consumer",
                    protocol_name="range",
                    assignment=assignments.get(body.member_id, b""),
                )
            case HeartbeatRequest():
                return HeartbeatResponse()
            case LeaveGroupRequest():
                return LeaveGroupResponse()
            case OffsetCommitRequest():
                for topic in body.topics:
                    for entry in topic.partitions:
                        lab.committed[entry.partition_index] = entry.committed_offset
                return committed(body, ErrorCode.NONE)
            case InitProducerIdRequest():
                self._producer_epoch += 1
                return InitProducerIdResponse(producer_id=7, producer_epoch=self._producer_epoch)
            case AddOffsetsToTxnRequest():
                return AddOffsetsToTxnResponse()
            case TxnOffsetCommitRequest():
                for topic in body.topics:
                    for entry in topic.partitions:
                        lab.pending[entry.partition_index] = entry.committed_offset
                return txn_commit_error(ErrorCode.NONE)
            case EndTxnRequest():
                if body.committed:
                    lab.committed.update(lab.pending)
                lab.pending.clear()
                return EndTxnResponse()
            case OffsetFetchRequest():
                return lab.fetched_offsets(range(lab.partitions))
            case FetchRequest():
                return self._fetch(body)
            case ListOffsetsRequest():
                return listed(body, lab.high_watermark)
            case ProduceRequest():
                return produced(body, ErrorCode.NONE)
            case _:
                raise AssertionError(f"no answer for {body}")

    def _join(self, body: JoinGroupRequest) -> JoinGroupResponse:
        """Begin a new generation. A client without a member id only gets an id."""
        if not body.member_id:
            self._member_id_count += 1
            return JoinGroupResponse(
                error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id=f"m-{self._member_id_count}"
            )
        self._generation += 1
        return joined(body, self._generation)

    def _has_records(self, body: FetchRequest) -> bool:
        """Return True if a Fetch begins below the high watermark: then it finds records."""
        return any(
            entry.fetch_offset < self._lab.high_watermark
            for topic in body.topics
            for entry in topic.partitions
        )

    def _fetch(self, body: FetchRequest) -> FetchResponse:
        """Return all records from the requested offset to the high watermark, as one batch."""
        high_watermark = self._lab.high_watermark

        def batches(fetch_offset: int) -> tuple[RecordBatch, ...]:
            if fetch_offset >= high_watermark:
                return ()
            records = (Record(None, b"r"),) * (high_watermark - fetch_offset)
            return (build_batch(records, base_offset=fetch_offset, leader_epoch=0),)

        return FetchResponse(
            responses=tuple(
                FetchableTopicResponse(
                    topic=topic.topic,
                    partitions=tuple(
                        PartitionData(
                            partition_index=entry.partition,
                            high_watermark=high_watermark,
                            records=batches(entry.fetch_offset),
                        )
                        for entry in topic.partitions
                    ),
                )
                for topic in body.topics
            )
        )


class ClientLab:
    """Fake brokers, their common state, and the clients under test."""

    def __init__(self, brokers: int = 2, *, partitions: int = 2) -> None:
        self.hosts = HostLab()
        self.partitions = partitions
        # The broker that coordinates the group.
        self.coordinator = 0
        # The broker that leads all partitions of the topic, and its leader epoch.
        self.leader = 0
        self.leader_epoch = 0
        # The number of records in each partition. All these records are committed.
        self.high_watermark = 0
        # Partition -> committed offset. `pending` has the commits of the open transaction.
        self.committed: dict[int, int] = {}
        self.pending: dict[int, int] = {}
        # The brokers that an answer to Metadata names.
        self.live = tuple(range(brokers))
        self._incarnations = 0
        self.clients: list[VirtualHost] = []
        self.cluster = ClusterSpec(
            controllers=(ControllerSpec(node_id=100),),
            brokers=tuple(BrokerSpec(broker_id=index) for index in range(brokers)),
            topics=(),
        )
        # The brokers come last, because a ScriptedBroker needs the fields above.
        self.brokers = [ScriptedBroker(self, index) for index in range(brokers)]

    @property
    def rows(self) -> list[TraceRow]:
        """The rows of the trace so far."""
        return self.hosts.rows

    def of_kind(self, kind: str) -> list[TraceRow]:
        """Return the rows of this kind."""
        return [row for row in self.rows if row.kind == kind]

    def next_incarnation(self) -> int:
        """Return the incarnation of a broker that starts; each call returns another number."""
        self._incarnations += 1
        return self._incarnations

    def run_for(self, duration_us: int) -> None:
        """Let virtual time pass. The test fails if a task of a node has failed."""
        self.hosts.run_for(duration_us)
        assert not self.hosts.failures, self.hosts.failures

    def client_host(self, name: str) -> VirtualHost:
        """Return a host for a client."""
        host = self.hosts.host(name)
        self.clients.append(host)
        return host

    def dispose(self) -> None:
        """End the tasks of the clients, because Python warns about tasks that never end."""
        for host in self.clients:
            host.retire()
            host.dispose()

    def consumer(
        self,
        config: ConsumerConfig | None = None,
        *,
        commit_interval_ms: int | None = 200,
        commit_metadata: tuple[str, ...] = (),
        process_us: int = 0,
        process_spread_us: int = 0,
        transaction_timeout_ms: int | None = None,
    ) -> ConsumerNode:
        """Start a consumer of the topic.

        The consumer needs `process_us` for each record, and in addition a random time up to
        `process_spread_us`. If `transaction_timeout_ms` is given, the consumer commits in
        transactions.
        """
        spec = ConsumerSpec(
            name=NodeName("consumer-g-0"),
            group_id=GROUP,
            index=0,
            topics=(TOPIC,),
            config=config or ConsumerConfig(enable_auto_commit=False, auto_offset_reset="earliest"),
            commit_interval_ms=commit_interval_ms,
            commit_metadata=commit_metadata,
            process_us=process_us,
            process_spread_us=process_spread_us,
            transactional=transaction_timeout_ms is not None,
            # A consumer without transactions does not use this timeout.
            transaction_timeout_ms=transaction_timeout_ms or 60_000,
        )
        node = ConsumerNode(self.client_host(spec.name), self.cluster, spec)
        node.start()
        return node

    def producer(self, rate: float, config: ProducerConfig | None = None) -> ProducerNode:
        """Start a producer that writes `rate` records a second to the topic."""
        spec = ProducerSpec(
            name=NodeName("producer-0"),
            topic=TOPIC,
            records_per_second=rate,
            config=config or ProducerConfig(),
        )
        node = ProducerNode(self.client_host(spec.name), self.cluster, spec)
        node.start()
        return node

    def metadata(self) -> MetadataResponse:
        """Return the answer to a Metadata request."""
        return MetadataResponse(
            brokers=tuple(
                MetadataResponseBroker(node_id=index, host=broker_name(index), port=9092)
                for index in self.live
            ),
            topics=(
                MetadataResponseTopic(
                    name=TOPIC,
                    partitions=tuple(
                        MetadataResponsePartition(
                            partition_index=index,
                            leader_id=self.leader,
                            leader_epoch=self.leader_epoch,
                        )
                        for index in range(self.partitions)
                    ),
                ),
            ),
        )

    def fetched_offsets(
        self, partitions: range, error: ErrorCode = ErrorCode.NONE
    ) -> OffsetFetchResponse:
        """Return the answer to an OffsetFetch, with this error code for each partition."""
        return OffsetFetchResponse(
            groups=(
                OffsetFetchResponseGroup(
                    group_id=GROUP,
                    topics=(
                        OffsetFetchResponseTopics(
                            name=TOPIC,
                            partitions=tuple(
                                OffsetFetchResponsePartition(
                                    partition_index=index,
                                    # If nothing is committed, a broker answers -1.
                                    committed_offset=self.committed.get(index, -1),
                                    error_code=error,
                                )
                                for index in partitions
                            ),
                        ),
                    ),
                ),
            )
        )


def member_status(node: ConsumerNode) -> MemberStatus:
    """Return what a consumer reports about itself."""
    status = ClusterStatus()
    node.report(status)
    return next(iter(status.members.values()))


def coordinator_is(broker_id: int) -> FindCoordinatorResponse:
    """Return an answer to FindCoordinator that names a broker."""
    return FindCoordinatorResponse(
        coordinators=(
            Coordinator(key=GROUP, node_id=broker_id, host=broker_name(broker_id), port=9092),
        )
    )


def no_coordinator(error: ErrorCode) -> FindCoordinatorResponse:
    """Return an answer to FindCoordinator that has an error code instead of a broker."""
    return FindCoordinatorResponse(coordinators=(Coordinator(key=GROUP, error_code=error),))


def joined(body: JoinGroupRequest, generation: int, *, leader: str = "") -> JoinGroupResponse:
    """Return a successful answer to a JoinGroup.

    The member is the leader of its group, unless `leader` names another member.
    """
    is_leader = not leader
    members = (
        JoinGroupResponseMember(member_id=body.member_id, metadata=body.protocols[0].metadata),
    )
    return JoinGroupResponse(
        generation_id=generation,
        protocol_type="consumer",
        protocol_name="range",
        leader=leader or body.member_id,
        member_id=body.member_id,
        members=members if is_leader else (),
    )


def committed(body: OffsetCommitRequest, error: ErrorCode) -> OffsetCommitResponse:
    """Return the answer to an OffsetCommit, with this error code for each of its partitions."""
    return OffsetCommitResponse(
        topics=tuple(
            OffsetCommitResponseTopic(
                name=topic.name,
                partitions=tuple(
                    OffsetCommitResponsePartition(
                        partition_index=entry.partition_index, error_code=error
                    )
                    for entry in topic.partitions
                ),
            )
            for topic in body.topics
        )
    )


def commit_error(error: ErrorCode, partitions: int = 2) -> OffsetCommitResponse:
    """Answer an OffsetCommit with this error code for the first `partitions` partitions."""
    return OffsetCommitResponse(
        topics=(
            OffsetCommitResponseTopic(
                name=TOPIC,
                partitions=tuple(
                    OffsetCommitResponsePartition(partition_index=index, error_code=error)
                    for index in range(partitions)
                ),
            ),
        )
    )


def txn_commit_error(error: ErrorCode, partitions: int = 2) -> TxnOffsetCommitResponse:
    """Answer a TxnOffsetCommit with this error code for the first `partitions` partitions."""
    return TxnOffsetCommitResponse(
        topics=(
            TxnOffsetCommitResponseTopic(
                name=TOPIC,
                partitions=tuple(
                    TxnOffsetCommitResponsePartition(partition_index=index, error_code=error)
                    for index in range(partitions)
                ),
            ),
        )
    )


def fetch_error(error: ErrorCode, partitions: int = 2, *, leader_id: int = -1) -> FetchResponse:
    """Answer a Fetch with this error code for the first `partitions` partitions."""
    return FetchResponse(
        responses=(
            FetchableTopicResponse(
                topic=TOPIC,
                partitions=tuple(
                    PartitionData(partition_index=index, error_code=error, leader_id=leader_id)
                    for index in range(partitions)
                ),
            ),
        )
    )


def listed(body: ListOffsetsRequest, latest: int) -> ListOffsetsResponse:
    """Return the answer to a ListOffsets: the earliest offset is 0, and the latest is `latest`."""
    earliest_timestamp = -2
    return ListOffsetsResponse(
        topics=tuple(
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=tuple(
                    ListOffsetsPartitionResponse(
                        partition_index=entry.partition_index,
                        offset=0 if entry.timestamp == earliest_timestamp else latest,
                        leader_epoch=0,
                    )
                    for entry in topic.partitions
                ),
            )
            for topic in body.topics
        )
    )


def produced(body: ProduceRequest, error: ErrorCode, base_offset: int = 0) -> ProduceResponse:
    """Return the answer to a Produce, with this error code for each of its partitions."""
    return ProduceResponse(
        responses=tuple(
            TopicProduceResponse(
                name=topic.name,
                partition_responses=tuple(
                    PartitionProduceResponse(
                        index=data.index,
                        error_code=error,
                        base_offset=base_offset if error is ErrorCode.NONE else -1,
                    )
                    for data in topic.partition_data
                ),
            )
            for topic in body.topic_data
        )
    )
