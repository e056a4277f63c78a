"""Checks of the controller's answers: sessions, shutdowns, elections, reassignments, metadata.

The checks do not use the controller's code. They apply Kafka's rules once more, to the requests
that the controller got, to its metadata before and after a request, and to what the brokers
themselves know. The checks can see all of this, because in virtual time all nodes of a run are in
one process.

In a controlled shutdown, a broker asks the controller in its heartbeats for permission to stop. The
controller first moves the broker's leaderships to other brokers. The broker may stop when all other
*active* brokers (unfenced brokers that are not shutting down) know the new leaders. To find out,
the controller remembers the metadata offset of its last record about the shutdown, the *shutdown
offset*. It waits until each active broker has reported at least this offset in a heartbeat.

A *fenced* broker is registered, but the controller does not consider it alive. It leads nothing, so
it may stop at once. An unfenced broker has a *session*, which lasts for broker.session.timeout.ms
after each heartbeat. While the session lasts, the broker id cannot be registered by another
incarnation (the process after a restart).

Source: Kafka `BrokerHeartbeatManager`, `ClusterControlManager.registerBroker`,
`ReplicationControlManager`, `KafkaRaftClient` (Fetch).
"""

from collections.abc import Iterator, Mapping

from cluster.broker.node import BrokerNode
from cluster.controller.metadata_image import MetadataImage, PartitionRegistration
from cluster.controller.node import ControllerNode
from cluster.virtual.lives import VirtualLife
from protocol.api import AnyRequest, AnyResponse
from protocol.errors import ErrorCode, InvariantViolation
from protocol.ids import (
    METADATA_PARTITION,
    BrokerEpoch,
    BrokerId,
    NodeName,
    TopicPartition,
    broker_name,
)
from protocol.messages.admin import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ElectionType,
    ElectLeadersRequest,
    ElectLeadersResponse,
)
from protocol.messages.controller import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
)
from protocol.messages.log import FetchRequest, FetchResponse

_RECEIVED = frozenset({BrokerHeartbeatRequest, BrokerRegistrationRequest, ElectLeadersRequest})
"""Types of requests before which the checks look at the metadata."""
_ANSWERED = _RECEIVED | {AlterPartitionReassignmentsRequest}
"""Types of requests whose answers are checked, in addition to FetchRequest."""
_UNKNOWN_OFFSET = -1
"""Stands for the offset of a broker that has sent no heartbeat to this controller yet."""


class ControllerChecks:
    """The checks of the answers of a run's controllers.

    Call `received` with each request before the controller handles it, and `answered` with each
    answer before it leaves.
    """

    def __init__(self, lives: Mapping[NodeName, VirtualLife], session_timeout_us: int) -> None:
        """Create the checks. `session_timeout_us` is broker.session.timeout.ms in microseconds."""
        self._lives = lives
        self._session_timeout_us = session_timeout_us
        self._node: ControllerNode | None = None
        """The controller to which the next two fields belong."""
        self._reported: dict[BrokerId, int] = {}
        """Broker -> the metadata offset in its last heartbeat."""
        self._shutdowns: dict[tuple[BrokerId, BrokerEpoch], int] = {}
        """Broker and its epoch -> the shutdown offset, if its controlled shutdown has begun."""
        self._contacts: dict[BrokerId, int] = {}
        """Unfenced broker -> the time of its last heartbeat, by the controller's clock."""
        self._was_fenced = False
        """True if the sender of the present heartbeat or registration was fenced before it."""
        self._incarnation: int | None = None
        """Id of the incarnation that had the broker id before the present registration."""
        self._led_before = False
        """True if the sender of the present heartbeat led a partition before the heartbeat."""
        self._partitions_before: dict[TopicPartition, PartitionRegistration] = {}
        """All partitions before the present ElectLeaders."""

    def received(self, name: NodeName, request: AnyRequest) -> None:
        """Note what the metadata says before a controller handles a request."""
        # Most requests are Fetches. This cheap test skips them first.
        if type(request) not in _RECEIVED:
            return
        node = self._lives[name].node
        if not isinstance(node, ControllerNode):
            return
        # A controller that is seen for the first time has just started. No broker has reported an
        # offset to it yet, and it knows of no shutdown. So the checks forget what its predecessor
        # knew.
        if node is not self._node:
            self._node = node
            self._reported.clear()
            self._shutdowns.clear()
            self._contacts.clear()
        match request:
            case BrokerHeartbeatRequest() | BrokerRegistrationRequest():
                broker_id = BrokerId(request.broker_id)
                broker = node.image.brokers.get(broker_id)
                # (A heartbeat of an unregistered broker gets an error, which is not checked.)
                self._was_fenced = broker is None or broker.fenced
                self._incarnation = None if broker is None else broker.incarnation_id
                if isinstance(request, BrokerHeartbeatRequest) and request.want_shut_down:
                    self._led_before = any(_led_by(broker_id, node.image))
            case ElectLeadersRequest():
                self._partitions_before = dict(node.image.partitions())
            case _:
                pass

    def answered(self, name: NodeName, request: AnyRequest, response: AnyResponse) -> None:
        """Check an answer of a controller. Raises: InvariantViolation."""
        # As in `received`, a cheap test skips the other requests first.
        kind = type(request)
        is_fetch = kind is FetchRequest and _is_of_metadata(request)
        if not is_fetch and kind not in _ANSWERED:
            return
        life = self._lives[name]
        node = life.node
        if not isinstance(node, ControllerNode):
            return
        match request, response:
            case FetchRequest(), FetchResponse():
                _check_fetched(node.image, request, response)
            case BrokerHeartbeatRequest(), BrokerHeartbeatResponse():
                if response.error_code is ErrorCode.NONE:
                    self._check_unfenced(request, response)
                    self._note_contact(request, response, life.live_host().now_us())
                    self._heartbeat_answered(node.image, request, response)
            case BrokerRegistrationRequest(), BrokerRegistrationResponse():
                self._check_registered(request, response, life.live_host().now_us())
            case ElectLeadersRequest(), ElectLeadersResponse():
                if response.error_code is ErrorCode.NONE:
                    self._election_answered(node.image, request, response)
            case AlterPartitionReassignmentsRequest(), AlterPartitionReassignmentsResponse():
                if response.error_code is ErrorCode.NONE:
                    _check_reassigned(node.image, request, response)
            case _:
                pass

    # -- sessions -----------------------------------------------------------------------------

    def _check_unfenced(
        self, request: BrokerHeartbeatRequest, response: BrokerHeartbeatResponse
    ) -> None:
        """Check whether a fenced broker is unfenced by its heartbeat.

        It is unfenced if it has read its registration in the metadata log, and wants neither to
        stay fenced nor to shut down. The offset of the registration is the broker epoch.
        """
        if not self._was_fenced:
            return
        is_ready = (
            request.current_metadata_offset >= request.broker_epoch
            and not request.want_fence
            and not request.want_shut_down
        )
        if response.is_fenced == is_ready:
            raise InvariantViolation(
                "a fenced broker is unfenced when it has read its registration",
                f"{broker_name(BrokerId(request.broker_id))} was fenced, and is "
                f"{'fenced' if response.is_fenced else 'unfenced'} after {request}",
            )

    def _note_contact(
        self, request: BrokerHeartbeatRequest, response: BrokerHeartbeatResponse, now_us: int
    ) -> None:
        """Note the time from which the session of an unfenced broker counts."""
        broker_id = BrokerId(request.broker_id)
        if response.is_fenced:
            self._contacts.pop(broker_id, None)
        else:
            self._contacts[broker_id] = now_us

    def _check_registered(
        self,
        request: BrokerRegistrationRequest,
        response: BrokerRegistrationResponse,
        now_us: int,
    ) -> None:
        """Check that exactly a broker whose predecessor has a session is refused.

        The predecessor is the incarnation that was registered before. A fenced broker has no
        session. A controller that has just started gives a session to each unfenced broker; before
        the next heartbeat, the check does not know how long this session lasts.
        """
        broker_id = BrokerId(request.broker_id)
        contact_us = self._contacts.get(broker_id)
        is_known = self._incarnation in (None, request.incarnation_id)
        if is_known or self._was_fenced:
            may_be_refused = must_be_refused = False
        elif contact_us is None:
            may_be_refused, must_be_refused = True, False
        else:
            may_be_refused = must_be_refused = now_us - contact_us < self._session_timeout_us
        is_refused = response.error_code is ErrorCode.DUPLICATE_BROKER_REGISTRATION
        if (is_refused and not may_be_refused) or (must_be_refused and not is_refused):
            raise InvariantViolation(
                "a broker id with a session cannot be registered anew, any other can",
                f"{broker_name(broker_id)}: {response.error_code.name}; it was "
                f"{'fenced' if self._was_fenced else 'unfenced'} before, and its last heartbeat "
                + ("is not known" if contact_us is None else f"came {now_us - contact_us} us ago"),
            )

    # -- controlled shutdowns -----------------------------------------------------------------

    def _heartbeat_answered(
        self,
        image: MetadataImage,
        request: BrokerHeartbeatRequest,
        response: BrokerHeartbeatResponse,
    ) -> None:
        """Note the reported offset; check the answer to a broker that wants to stop."""
        broker_id = BrokerId(request.broker_id)
        self._reported[broker_id] = request.current_metadata_offset
        if not request.want_shut_down:
            return
        life = (broker_id, BrokerEpoch(request.broker_epoch))
        # A fenced broker may stop at once, even if its controlled shutdown began before; so it has
        # no shutdown offset here. Any other broker has one once its shutdown has begun.
        shutdown_offset = None if self._was_fenced else self._shutdowns.get(life)
        for partition in _led_by(broker_id, image):  # any partition is a violation
            raise InvariantViolation(
                "a broker that wants to stop leads nothing",
                f"{broker_name(broker_id)} still leads {partition} in the controller's metadata "
                f"after a heartbeat that asks for a controlled shutdown",
            )
        # An *ignorant* broker, if there is one: an active broker that has not reported the shutdown
        # offset, so that the stopping broker must wait. (Without a shutdown offset this value is
        # not used.)
        ignorant = (
            None
            if shutdown_offset is None
            else self._find_ignorant_broker(image, broker_id, shutdown_offset)
        )
        if response.should_shut_down:
            if shutdown_offset is not None:
                self._check_learnt(image, broker_id, shutdown_offset, ignorant)
            # There is no shutdown offset: the broker was fenced, or this is its first request to
            # stop. As in Kafka, it may stop at once if it was fenced, if it asks now to be fenced,
            # or if it led nothing.
            elif self._led_before and not (self._was_fenced or request.want_fence):
                raise InvariantViolation(
                    "a leader begins a controlled shutdown before it may stop",
                    f"{broker_name(broker_id)} may stop at its first request, in which it still "
                    "led partitions",
                )
            self._shutdowns.pop(life, None)
        elif shutdown_offset is not None:
            # The answer says that the broker must wait. This answer is right only while some active
            # broker is ignorant.
            if ignorant is None:
                raise InvariantViolation(
                    "a controlled shutdown ends once all active brokers have learnt of it",
                    f"{broker_name(broker_id)} may not stop, although it leads nothing and each "
                    f"active broker has reported offset {shutdown_offset}: {self._reported}",
                )
        # From here on, the answer says that the broker must wait, and there is no shutdown offset.
        elif self._was_fenced or not self._led_before:
            raise InvariantViolation(
                "a broker without leaderships may stop at once",
                f"{broker_name(broker_id)} may not stop, although it was fenced or led nothing",
            )
        else:
            # The broker led partitions until this request, so its shutdown begins now. It must wait
            # until all active brokers know the metadata up to the last record so far.
            self._shutdowns[life] = image.end_offset - 1

    def _find_ignorant_broker(
        self, image: MetadataImage, stopping: BrokerId, shutdown_offset: int
    ) -> BrokerId | None:
        """Return an active broker that has not reported the shutdown offset.

        Returns None if each active broker has reported it.
        """
        return next(
            (
                broker_id
                for broker_id in self._active_brokers(image)
                if broker_id != stopping
                and self._reported.get(broker_id, _UNKNOWN_OFFSET) < shutdown_offset
            ),
            None,
        )

    def _active_brokers(self, image: MetadataImage) -> Iterator[BrokerId]:
        """Yield the brokers that the controller treats as active."""
        # A controller that has restarted during a shutdown learns of the shutdown from the next
        # heartbeat of the stopping broker. Until then it treats that broker as active. So do we:
        # `received` clears `_shutdowns` when the controller has restarted.
        for broker_id, broker in image.brokers.items():
            if not broker.fenced and (broker_id, broker.broker_epoch) not in self._shutdowns:
                yield broker_id

    def _check_learnt(
        self,
        image: MetadataImage,
        stopping: BrokerId,
        shutdown_offset: int,
        ignorant: BrokerId | None,
    ) -> None:
        """Check that the other active brokers know that the stopping broker leads nothing.

        The check has two parts: what the brokers have reported to the controller (`ignorant` is a
        broker that has not reported the shutdown offset), and what the brokers really know.
        """
        name = "a broker stops once all active brokers know its new leaders"
        if ignorant is not None:
            raise InvariantViolation(
                name,
                f"{broker_name(stopping)} may stop, but {broker_name(ignorant)} has reported "
                f"offset {self._reported.get(ignorant, _UNKNOWN_OFFSET)} of {shutdown_offset}",
            )
        for broker_id in self._active_brokers(image):
            life = self._lives.get(broker_name(broker_id))
            broker = None if life is None else life.node
            if (
                broker_id == stopping
                or not isinstance(broker, BrokerNode)
                # The broker has restarted, and its new incarnation (the process after the restart)
                # is not registered yet. Until then it serves no client.
                or broker.broker_epoch != image.brokers[broker_id].broker_epoch
            ):
                continue
            for partition, _ in image.partitions():
                known = broker.metadata.image.partition(partition)
                replica = broker.partitions.get((partition.topic, partition.partition))
                # Two places name a leader: the broker's copy of the metadata, and its replica of
                # the partition, which is updated after the metadata.
                if (known is not None and known.leader == stopping) or (
                    replica is not None and replica.leader_id == stopping
                ):
                    raise InvariantViolation(
                        name,
                        f"{broker_name(stopping)} may stop, but {broker_name(broker_id)} still "
                        f"has it as the leader of {partition}",
                    )

    # -- elections ----------------------------------------------------------------------------

    def _election_answered(
        self, image: MetadataImage, request: ElectLeadersRequest, response: ElectLeadersResponse
    ) -> None:
        """Check each partition's answer against its leader before and after the request.

        A preferred election makes the first broker in a partition's list of replicas its leader.
        """
        if request.election_type != ElectionType.PREFERRED:
            raise InvariantViolation(
                "only preferred elections are held", f"{request} was answered without an error"
            )
        answers = {
            TopicPartition(topic.topic, result.partition_id): result.error_code
            for topic in response.replica_election_results
            for result in topic.partition_result
        }
        before, self._partitions_before = self._partitions_before, {}
        if request.topic_partitions is None:
            # The request was for all partitions. The answer leaves out each partition whose
            # preferred replica led already. These partitions are added here.
            answers = dict.fromkeys(before, ErrorCode.ELECTION_NOT_NEEDED) | answers
        for partition, error in answers.items():
            expected = _expected_answer(image, before.get(partition))
            if error is not expected:
                raise InvariantViolation(
                    "an election's answer fits the metadata",
                    f"{partition}: expected {expected.name}, got {error.name}; before the request "
                    f"{before.get(partition)}",
                )
            if error is ErrorCode.NONE or error is ErrorCode.ELECTION_NOT_NEEDED:
                _check_elected(partition, before[partition], image.partition(partition), error)


def _is_of_metadata(request: AnyRequest) -> bool:
    """Return True if a Fetch is one of the metadata log."""
    return (
        isinstance(request, FetchRequest)
        and len(request.topics) == 1
        and request.topics[0].topic == METADATA_PARTITION.topic
    )


def _check_fetched(image: MetadataImage, request: FetchRequest, response: FetchResponse) -> None:
    """Check that a Fetch of the metadata log is refused only beyond the end of the log.

    The image contains every record of the log, and the log begins at offset 0.
    """
    for topic in response.responses:
        for answer in topic.partitions:
            fetch_offset = request.topics[0].partitions[0].fetch_offset
            is_in_log = 0 <= fetch_offset <= image.end_offset
            if is_in_log == (answer.error_code is ErrorCode.OFFSET_OUT_OF_RANGE):
                raise InvariantViolation(
                    "a Fetch within the metadata log is not out of range, any other is",
                    f"a Fetch at {fetch_offset} is answered {answer.error_code.name}; the log ends "
                    f"at {image.end_offset}",
                )


def _expected_answer(image: MetadataImage, before: PartitionRegistration | None) -> ErrorCode:
    """Return the error code that a preferred election in a partition must answer.

    `before` is the partition's state before the request. `image` is the metadata after the request.
    Only the states of brokers are read from it, and an election does not change these.
    """
    if before is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    preferred = before.replicas[0]
    if before.leader == preferred:
        return ErrorCode.ELECTION_NOT_NEEDED
    broker = image.brokers.get(preferred)
    may_lead = (
        preferred in before.isr
        and broker is not None
        and not broker.fenced
        and not broker.in_controlled_shutdown
    )
    return ErrorCode.NONE if may_lead else ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE


def _check_elected(
    partition: TopicPartition,
    before: PartitionRegistration,
    after: PartitionRegistration | None,
    error: ErrorCode,
) -> None:
    """Check that the preferred replica leads, in a new epoch if it was elected just now.

    `error` is NONE if it was elected by this request, else ELECTION_NOT_NEEDED.
    """
    # An election adds 1 to the leader epoch. The comparison is True (1) if there was an election.
    epoch = before.leader_epoch + (error is ErrorCode.NONE)
    if after is None or after.leader != before.replicas[0] or after.leader_epoch != epoch:
        raise InvariantViolation(
            "an election's answer fits the metadata",
            f"{partition}: {error.name}, expected leader {before.replicas[0]} in epoch {epoch}, "
            f"got {after}",
        )


def _check_reassigned(
    image: MetadataImage,
    request: AlterPartitionReassignmentsRequest,
    response: AlterPartitionReassignmentsResponse,
) -> None:
    """Check that each partition has the replicas that the controller has agreed to."""
    errors = {
        TopicPartition(topic.name, answer.partition_index): answer.error_code
        for topic in response.responses
        for answer in topic.partitions
    }
    for topic in request.topics:
        for target in topic.partitions:
            partition = TopicPartition(topic.name, target.partition_index)
            stored = image.partition(partition)
            if errors[partition] is ErrorCode.NONE and (
                stored is None or stored.replicas != target.replicas
            ):
                raise InvariantViolation(
                    "an agreed reassignment is in the metadata",
                    f"{partition}: expected the replicas {target.replicas}, got {stored}",
                )


def _led_by(broker_id: BrokerId, image: MetadataImage) -> Iterator[TopicPartition]:
    """Yield the partitions that a broker leads."""
    for partition, registration in image.partitions():
        if registration.leader == broker_id:
            yield partition
