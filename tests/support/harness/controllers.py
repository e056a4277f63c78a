"""A controller for tests, with a clock and without a network and brokers.

The logic of a controller is a state machine (ControllerCore). Requests and fired timers go in;
replies, timers and trace events come out. ControllerLab gives the state machine a log and a clock,
and keeps everything that comes out. The test sends the requests that brokers would send.

A broker first registers, and gets a broker epoch, which it must name in its later requests. At
first the broker is fenced: it may not lead partitions. It is unfenced by a heartbeat that shows
that the broker has read its own registration in the metadata log. When the heartbeats of the broker
stop, it is fenced again.
"""

from cluster.controller.core import ControllerCore
from cluster.controller.metadata_image import (
    BrokerRegistration,
    MetadataImage,
    PartitionRegistration,
)
from cluster.spec import BrokerSpec, ClusterSpec, ControllerSpec, TopicSpec
from partition_log.log import PartitionLog
from partition_log.memory_storage import MemoryLogStorage
from protocol.api import API_OF_REQUEST, AnyRequest, AnyResponse
from protocol.config import BrokerConfig
from protocol.effects import CancelTimer, Result, SetTimer
from protocol.envelope import RequestEnvelope
from protocol.ids import METADATA_PARTITION, BrokerId, RequestId, TopicPartition
from protocol.messages.admin import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ElectLeadersTopic,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopic,
)
from protocol.messages.controller import (
    AlterPartitionPartitionData,
    AlterPartitionPartitionResponse,
    AlterPartitionRequest,
    AlterPartitionResponse,
    AlterPartitionTopicData,
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    IsrBrokerState,
)
from protocol.messages.log import FetchPartition, FetchRequest, FetchTopic
from protocol.records.batch import decode_records
from protocol.records.metadata import MetadataRecord, decode_metadata_record
from protocol.trace import TraceEvent, TraceKind

CONTROLLER = BrokerId(100)
"""The node id of the controller. The brokers have the node ids 0, 1, 2 and so on."""
NO_BALANCING = BrokerConfig(auto_leader_rebalance_enable=False)
"""With these settings the controller never moves a leadership back to the preferred replica.

Most tests use these settings. Then leaders change only if the test changes something.
"""


def cluster_of(
    *topics: TopicSpec, brokers: int = 3, config: BrokerConfig = NO_BALANCING
) -> ClusterSpec:
    """Return a cluster of one controller, some brokers and these topics."""
    return ClusterSpec(
        controllers=(ControllerSpec(node_id=CONTROLLER),),
        brokers=tuple(BrokerSpec(broker_id=broker_id) for broker_id in range(brokers)),
        topics=topics,
        broker_config=config,
    )


def topic(
    name: str = "orders", partitions: int = 3, replication_factor: int = 3, **more: object
) -> TopicSpec:
    """Return the specification of a topic. `more` are other fields of TopicSpec."""
    return TopicSpec(
        name=name,
        partitions=partitions,
        replication_factor=replication_factor,
        **more,  # type: ignore[arg-type]
    )


class ControllerLab:
    """A controller, with its log and a clock. It keeps all replies and trace events."""

    def __init__(self, cluster: ClusterSpec, storage: MemoryLogStorage | None = None) -> None:
        self.now_us = 0
        self.storage = MemoryLogStorage() if storage is None else storage
        self.log = PartitionLog(METADATA_PARTITION, self.storage)
        self.core = ControllerCore(controller_id=CONTROLLER, cluster=cluster, log=self.log)
        self.trace: list[TraceEvent] = []
        self.replies: dict[RequestId, AnyResponse] = {}
        # Key of each pending timer -> the time at which it fires.
        self.timers: dict[str, int] = {}
        # Broker id -> the broker epoch of its latest registration.
        self.broker_epochs: dict[int, int] = {}
        self._next_request_id = 0
        self._take(self.core.start(self.now_us))

    @property
    def image(self) -> MetadataImage:
        """The state of the cluster that results from the records of the metadata log."""
        return self.core.image

    # -- requests --

    def send(self, request: AnyRequest, *, host: str = "broker-0") -> RequestId:
        """Send a request of the node `host`, and return the request's id.

        The reply appears in `replies` under this id, at once or later.
        """
        request_id = RequestId(self._next_request_id)
        self._next_request_id += 1
        envelope = RequestEnvelope(
            api_key=API_OF_REQUEST[type(request)],
            api_version=0,
            correlation_id=request_id,
            client_id=host,
            client_host=host,
            body=request,
        )
        self._take(self.core.handle(request_id, envelope, self.now_us))
        return request_id

    def register(self, broker_id: int, incarnation_id: int = 0) -> BrokerRegistrationResponse:
        """Register a broker, and keep its broker epoch.

        After a restart a broker registers with another `incarnation_id`.
        """
        response = self.replies[
            self.send(
                BrokerRegistrationRequest(
                    broker_id=broker_id,
                    incarnation_id=incarnation_id,
                    host=f"broker-{broker_id}",
                    port=9092,
                )
            )
        ]
        if not isinstance(response, BrokerRegistrationResponse):
            raise TypeError(response)
        # The answer to a refused registration has the broker epoch -1.
        if response.broker_epoch >= 0:
            self.broker_epochs[broker_id] = response.broker_epoch
        return response

    def heartbeat(
        self,
        broker_id: int,
        *,
        offset: int | None = None,
        epoch: int | None = None,
        want_fence: bool = False,
        want_shut_down: bool = False,
    ) -> BrokerHeartbeatResponse:
        """Send a heartbeat of a broker.

        offset: the last offset of the metadata log that the broker has read, by default the offset
            of the last record.
        epoch: the broker epoch in the request, by default the epoch of the last registration.
        want_fence, want_shut_down: the broker asks to be fenced, or to be allowed to stop.
        """
        if epoch is None:
            # A broker that was never registered has the epoch -1.
            epoch = self.broker_epochs.get(broker_id, -1)
        if offset is None:
            offset = self.log.log_end_offset - 1
        response = self.replies[
            self.send(
                BrokerHeartbeatRequest(
                    broker_id=broker_id,
                    broker_epoch=epoch,
                    current_metadata_offset=offset,
                    want_fence=want_fence,
                    want_shut_down=want_shut_down,
                )
            )
        ]
        if not isinstance(response, BrokerHeartbeatResponse):
            raise TypeError(response)
        return response

    def start_brokers(self, *broker_ids: int) -> None:
        """Register brokers, and unfence each of them by a heartbeat."""
        for broker_id in broker_ids:
            self.register(broker_id)
        for broker_id in broker_ids:
            self.heartbeat(broker_id)

    def fetch(self, offset: int, *, max_wait_ms: int = 500) -> RequestId:
        """Let broker 0 fetch the metadata log from `offset` on, and return the request's id.

        If there is no record yet, the controller answers when a record comes, or after
        `max_wait_ms`.
        """
        position = FetchPartition(partition=0, fetch_offset=offset)
        return self.send(
            FetchRequest(
                replica_id=0,
                max_wait_ms=max_wait_ms,
                topics=(FetchTopic(topic=METADATA_PARTITION.topic, partitions=(position,)),),
            )
        )

    def alter_partition(
        self,
        name: TopicPartition,
        new_isr: tuple[int, ...],
        *,
        by: int,
        leader_epoch: int | None = None,
        partition_epoch: int | None = None,
        broker_epochs: dict[int, int] | None = None,
    ) -> AlterPartitionPartitionResponse:
        """Let the broker `by`, as the partition's leader, propose a new ISR.

        By default the request has the partition's present leader epoch and partition epoch. It also
        names a broker epoch for each replica in the new ISR. A replica that is not in
        `broker_epochs` gets the epoch -1, which means that the leader does not know the broker
        epoch of this replica.
        """
        present = self.image.partition(name)
        if leader_epoch is None:
            leader_epoch = present.leader_epoch if present else 0
        if partition_epoch is None:
            partition_epoch = present.partition_epoch if present else 0
        data = AlterPartitionPartitionData(
            partition_index=name.partition,
            leader_epoch=leader_epoch,
            partition_epoch=partition_epoch,
            new_isr_with_epochs=tuple(
                IsrBrokerState(member, (broker_epochs or {}).get(member, -1)) for member in new_isr
            ),
        )
        response = self.replies[
            self.send(
                AlterPartitionRequest(
                    broker_id=by,
                    broker_epoch=self.broker_epochs[by],
                    topics=(AlterPartitionTopicData(topic_name=name.topic, partitions=(data,)),),
                )
            )
        ]
        if not isinstance(response, AlterPartitionResponse):
            raise TypeError(response)
        return response.topics[0].partitions[0]

    def elect_leaders(
        self, *partitions: TopicPartition, election_type: int = 0
    ) -> ElectLeadersResponse:
        """Let an administrator ask for elections of leaders.

        Without `partitions`, the request is about all partitions. With the `election_type` 0 the
        controller elects the preferred leader, which is the first replica. With 1 the election is
        unclean: the controller may elect a replica that is not in the ISR.
        """
        topics = tuple(ElectLeadersTopic(topic, (index,)) for topic, index in partitions)
        response = self.replies[
            self.send(
                ElectLeadersRequest(
                    election_type=election_type,
                    # In the request, None means all partitions.
                    topic_partitions=topics or None,
                ),
                host="admin-0",
            )
        ]
        if not isinstance(response, ElectLeadersResponse):
            raise TypeError(response)
        return response

    def reassign(
        self, name: TopicPartition, replicas: tuple[int, ...] | None
    ) -> ReassignablePartitionResponse:
        """Ask for other replicas of a partition; None cancels a reassignment that is going on."""
        target = ReassignablePartition(partition_index=name.partition, replicas=replicas)
        response = self.replies[
            self.send(
                AlterPartitionReassignmentsRequest(
                    topics=(ReassignableTopic(name=name.topic, partitions=(target,)),)
                ),
                host="admin-0",
            )
        ]
        if not isinstance(response, AlterPartitionReassignmentsResponse):
            raise TypeError(response)
        return response.responses[0].partitions[0]

    # -- time --

    def advance_ms(self, duration_ms: int) -> None:
        """Let time pass, and fire the timers that become due, each at its own time.

        A timer that fires may set another timer, which is fired too if it becomes due.
        """
        end_us = self.now_us + duration_ms * 1_000
        while self.timers:
            next_key = min(self.timers, key=lambda key: self.timers[key])
            if self.timers[next_key] > end_us:
                break
            self.now_us = self.timers.pop(next_key)
            self._take(self.core.timer_fired(next_key, self.now_us))
        self.now_us = end_us

    # -- results --

    def partition(self, name: TopicPartition) -> PartitionRegistration:
        """Return what the controller knows about an existing partition."""
        registration = self.image.partition(name)
        if registration is None:
            raise KeyError(name)
        return registration

    def broker(self, broker_id: int) -> BrokerRegistration:
        """Return what the controller knows about a registered broker."""
        return self.image.brokers[BrokerId(broker_id)]

    def events(self, kind: TraceKind) -> list[TraceEvent]:
        """Return the trace events of this kind, in their order."""
        return [event for event in self.trace if event.kind is kind]

    def records(self) -> list[MetadataRecord]:
        """Return all records of the metadata log."""
        return [
            decode_metadata_record(record)
            for index in range(len(self.storage))
            for record in decode_records(self.storage.batch(index).records)
        ]

    def _take(self, result: Result) -> None:
        """Keep what came out after an input: trace events, timers and replies."""
        self.core.check_invariants()
        self.trace.extend(result.trace)
        for timer in result.timers:
            match timer:
                case SetTimer(key=key, delay_us=delay_us):
                    self.timers[key] = self.now_us + delay_us
                case CancelTimer(key=key):
                    self.timers.pop(key, None)
        for reply in result.replies:
            if reply.request_id in self.replies:
                raise AssertionError(f"request {reply.request_id} was answered twice")
            self.replies[reply.request_id] = reply.response
