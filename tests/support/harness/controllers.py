"""ControllerLab runs the core of a controller, with a clock and without a network.

The controller registers the brokers and elects the leader of each partition. ControllerCore is its
state machine: requests and fired timers go in; replies, timers and trace events come out. A test
sends the requests that brokers would send. ControllerLab keeps what comes out.

Terms:

- A broker epoch is the number of a broker's registration; the broker names it in its requests.
- A fenced broker is registered, but may not lead partitions. A broker is fenced from its
  registration until a heartbeat shows that it has read its registration in the metadata log. It is
  fenced again when its heartbeats stop.
- The metadata log has every decision of the controller as a record. The metadata image is the state
  after all these records.
- The ISR are the in-sync replicas of a partition. Its leader epoch counts its leaders, its
  partition epoch counts the changes of its leader or ISR.
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

CONTROLLER = BrokerId(100)  # node id of the controller; brokers count from 0
NO_BALANCING = BrokerConfig(auto_leader_rebalance_enable=False)
"""Settings with which the controller does not move leaderships back to preferred replicas."""


def cluster_of(
    *topics: TopicSpec, brokers: int = 3, config: BrokerConfig = NO_BALANCING
) -> ClusterSpec:
    """Return a cluster of one controller and `brokers` brokers, from 0."""
    return ClusterSpec(
        controllers=(ControllerSpec(node_id=CONTROLLER),),
        brokers=tuple(BrokerSpec(broker_id=broker_id) for broker_id in range(brokers)),
        topics=topics,
        broker_config=config,
    )


def topic(
    name: str = "orders", partitions: int = 3, replication_factor: int = 3, **more: object
) -> TopicSpec:
    """Return the specification of a topic; `more` are other fields of TopicSpec."""
    return TopicSpec(
        name=name,
        partitions=partitions,
        replication_factor=replication_factor,
        **more,  # type: ignore[arg-type]
    )


class ControllerLab:
    """A controller with its log and the time, and all trace events and replies so far."""

    def __init__(self, cluster: ClusterSpec, storage: MemoryLogStorage | None = None) -> None:
        self.now_us = 0
        self.storage = MemoryLogStorage() if storage is None else storage
        self.log = PartitionLog(METADATA_PARTITION, self.storage)
        self.core = ControllerCore(controller_id=CONTROLLER, cluster=cluster, log=self.log)
        self.trace: list[TraceEvent] = []
        self.replies: dict[RequestId, AnyResponse] = {}
        self.timers: dict[str, int] = {}
        """Time at which each pending timer fires."""
        self.broker_epochs: dict[int, int] = {}
        self._next_request_id = 0
        self._take(self.core.start(self.now_us))

    @property
    def image(self) -> MetadataImage:
        """The controller's metadata image."""
        return self.core.image

    # -- requests --

    def send(self, request: AnyRequest, *, host: str = "broker-0") -> RequestId:
        """Pass a request of the node `host` to the controller, and return the request's id.

        The reply is put in `replies` under this id, before `send` returns or later.
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
        """Register a broker and keep its broker epoch.

        `incarnation_id` identifies the broker's process: another one means a restart.
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

        offset: how far the broker has read the metadata log; None: it has read the last record.
        epoch: the broker epoch that the request names; None: the one from the registration.
        want_fence, want_shut_down: the broker asks to be fenced, or to be allowed to stop.
        """
        response = self.replies[
            self.send(
                BrokerHeartbeatRequest(
                    broker_id=broker_id,
                    broker_epoch=(
                        # A broker that was never registered has the epoch -1.
                        self.broker_epochs.get(broker_id, -1) if epoch is None else epoch
                    ),
                    current_metadata_offset=(
                        self.log.log_end_offset - 1 if offset is None else offset
                    ),
                    want_fence=want_fence,
                    want_shut_down=want_shut_down,
                )
            )
        ]
        if not isinstance(response, BrokerHeartbeatResponse):
            raise TypeError(response)
        return response

    def start_brokers(self, *broker_ids: int) -> None:
        """Register brokers, and send a heartbeat of each, after which it is no longer fenced."""
        for broker_id in broker_ids:
            self.register(broker_id)
        for broker_id in broker_ids:
            self.heartbeat(broker_id)

    def fetch(self, offset: int, *, max_wait_ms: int = 500) -> RequestId:
        """Fetch the metadata log from `offset`, as broker 0.

        If there is no new record, the controller answers when one comes, or after `max_wait_ms`.
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
        """Let broker `by`, the partition's leader, propose an ISR.

        By default the request names the partition's present leader epoch and partition epoch.
        `broker_epochs` has the broker epochs that the request names for the members of the ISR. For
        a member without an entry it names -1, as a leader does that does not know the epoch.
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
        """Request elections as an administrator; without `partitions`, for every partition.

        election_type: 0 elects the preferred leader (the first replica). 1 is unclean: it may elect
        a replica that is not in the ISR.
        """
        topics = tuple(ElectLeadersTopic(topic, (index,)) for topic, index in partitions)
        response = self.replies[
            self.send(
                ElectLeadersRequest(
                    election_type=election_type,
                    # None stands for every partition.
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
        """Request other replicas of one partition; None cancels the reassignment."""
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
        """Advance the time, and fire each timer that becomes due, in the order of their times.

        A timer that fires may set others. They also fire if they become due within this time.
        """
        end_us = self.now_us + duration_ms * 1_000
        while True:
            next_timer = min(self.timers.items(), key=lambda item: item[1], default=None)
            if next_timer is None or next_timer[1] > end_us:
                break
            key, self.now_us = next_timer
            del self.timers[key]
            self._take(self.core.timer_fired(key, self.now_us))
        self.now_us = end_us

    # -- results --

    def partition(self, name: TopicPartition) -> PartitionRegistration:
        """Return the registration of an existing partition."""
        registration = self.image.partition(name)
        if registration is None:
            raise KeyError(name)
        return registration

    def broker(self, broker_id: int) -> BrokerRegistration:
        """Return the registration of a broker."""
        return self.image.brokers[BrokerId(broker_id)]

    def events(self, kind: TraceKind) -> list[TraceEvent]:
        """Return the events of one kind, in order."""
        return [event for event in self.trace if event.kind is kind]

    def records(self) -> list[MetadataRecord]:
        """Return every record of the metadata log."""
        return [
            decode_metadata_record(record)
            for index in range(len(self.storage))
            for record in decode_records(self.storage.batch(index).records)
        ]

    def _take(self, result: Result) -> None:
        """Keep the results of an input: trace events, timers and replies."""
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
