"""Invariants that hold between nodes: of a leader, its followers and the controller.

For example, if a leader counts a record as committed although a follower in the ISR does not have
it, no single node can see this. In virtual time all nodes are in one process, so these checks can
look at all of them, between two events. Answers to clients and followers are checked just before
they are sent, because a little later the wrong state may be gone.

A leader and a follower often differ for good reasons: a message is on its way, a node is paused or
cut off, or a broker has lost its disk. So a follower is compared with its leader only if the
follower does not know a later leader epoch, and if the leader knows the follower's broker epoch. A
topic that was ever deleted is not compared, because a new topic of the same name begins with the
same epochs.
"""

from collections.abc import Iterator, Mapping

from cluster.broker.node import BrokerNode
from cluster.broker.replication.fetch_reader import PartitionKey
from cluster.controller.metadata_image import MetadataImage
from cluster.controller.node import ControllerNode
from cluster.spec import ClusterSpec
from cluster.virtual.checks import transaction_checks
from cluster.virtual.checks.cleaning_checks import CleaningChecks
from cluster.virtual.checks.coordinator_checks import CoordinatorChecks
from cluster.virtual.checks.created_topics import check_created, check_topic
from cluster.virtual.checks.member_checks import MemberChecks
from cluster.virtual.checks.sent_batches import SentBatches
from cluster.virtual.checks.truncation_checks import TruncationChecks
from cluster.virtual.host import VirtualHost
from cluster.virtual.lives import VirtualLife
from partition_log.invariants import check_producers
from partition_log.invariants_between_replicas import (
    check_acknowledged,
    check_consumed,
    check_in_sync_follower,
    check_known_end,
    check_out_of_order,
    check_same_batches,
)
from partition_log.replica import CONSUMER, Partition
from protocol.api import AnyRequest, AnyResponse
from protocol.effects import ACKS_ALL, ACKS_NONE
from protocol.errors import ErrorCode, InvariantViolation
from protocol.ids import BrokerId, NodeName, broker_name
from protocol.messages.admin import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from protocol.messages.group import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from protocol.messages.log import (
    READ_COMMITTED,
    FetchRequest,
    FetchResponse,
    ProduceRequest,
    ProduceResponse,
)
from protocol.messages.offset import OffsetCommitRequest, OffsetCommitResponse
from protocol.messages.transaction import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)
from protocol.trace import TraceKind, TraceRow

_CHECKED_REQUESTS = frozenset(
    {
        FetchRequest,
        ProduceRequest,
        HeartbeatRequest,
        JoinGroupRequest,
        SyncGroupRequest,
        OffsetCommitRequest,
        TxnOffsetCommitRequest,
        CreateTopicsRequest,
        DeleteTopicsRequest,
        InitProducerIdRequest,
        AddOffsetsToTxnRequest,
        EndTxnRequest,
    }
)
"""Types of the requests whose answers `ReplicaChecks.answered` checks."""
CHECKED_ROWS = frozenset(
    {
        TraceKind.APPEND_STARTED,
        TraceKind.APPEND_COMPLETED,
        TraceKind.LOG_TRUNCATED,
        TraceKind.LOG_CLEANED,
        TraceKind.GENERATION_STARTED,
    }
)
"""Kinds of the rows that `ReplicaChecks.traced` checks."""


class ReplicaChecks:
    """The checks between the live nodes of a run.

    Raises: InvariantViolation, from each method.
    """

    def __init__(self, lives: Mapping[NodeName, VirtualLife], spec: ClusterSpec) -> None:
        self._lives = lives
        self.cleanings = CleaningChecks(spec)
        self._coordinators = CoordinatorChecks(spec)
        self._members = MemberChecks(spec)
        self._controller: ControllerNode | None = None
        """The live controller at the last check."""
        self._topics = spec.topics
        self._deleted_topics: dict[str, None] = {}
        """The topics that were ever deleted, as the keys of the dict."""
        self._sent = SentBatches()
        self._checked_topics_at: tuple[ControllerNode, int] | None = None
        """The controller and the end of its metadata when the topics were last checked."""
        self._compared: dict[BrokerId, tuple[BrokerNode, int]] = {}
        """Broker -> its node, and the end offset of its metadata, at the last comparison."""
        self._config = spec.broker_config
        self._lag_max_us = spec.broker_config.replica_lag_time_max_ms * 1_000
        self._truncations = TruncationChecks()
        self._lagging_since_us: dict[tuple[Partition, int], int] = {}
        """Leader and partition epoch -> time at which a follower was first seen to lag for too
        long."""

    def check(self, *, thoroughly: bool = False) -> None:
        """Compare the live nodes; if `thoroughly`, their logs, too.

        The rules are:

        - The invariants of `partition_log.invariants_between_replicas`.
        - Each truncation of a log has a row in the trace.
        - At most one broker leads a partition in an epoch.
        - A leader proposes an ISR without the followers that lag.
        - The ISR that the controller has stored is within its leader's maximal ISR.
        - The topics of the cluster's spec have the spec's partitions and settings.
        - A broker that has read the whole metadata log has the controller's metadata.
        """
        brokers = self._find_nodes()
        # (Partition, leader epoch) -> the broker that leads the partition in this epoch.
        leaders: dict[tuple[PartitionKey, int], BrokerId] = {}
        for broker_id, broker in brokers.items():
            host = self._lives[broker_name(broker_id)].host
            for key, partition in broker.partitions.items():
                # Nearly no log was ever truncated, so this test is enough nearly always.
                if partition.log.truncations:
                    self._truncations.check(partition)
                # `key[0]` is the topic.
                if not partition.is_leader or key[0] in self._deleted_topics:
                    continue
                other = leaders.setdefault((key, partition.leader_epoch), broker_id)
                if other != broker_id:
                    raise InvariantViolation(
                        "an epoch has one leader",
                        f"{partition.topic_partition}: {broker_id} and {other} lead in epoch "
                        f"{partition.leader_epoch}",
                    )
                self._check_isr(partition)
                if host is not None and len(partition.isr) > 1:
                    self._check_lag(host, partition)
                for follower, broker_epoch in _followers(broker, key, partition, brokers):
                    _check_follower(partition, follower, broker_epoch, thoroughly=thoroughly)
        self._check_created()
        self._check_metadata(brokers)

    def answered(self, name: NodeName, request: AnyRequest, response: AnyResponse) -> None:
        """Check a broker's answer to a follower or a client, just before it leaves."""
        # The cheapest test comes first: this method sees every answer of every node.
        if type(request) not in _CHECKED_REQUESTS:
            return
        life = self._lives[name]
        node = life.node
        if isinstance(node, ControllerNode):
            match request, response:
                case CreateTopicsRequest(), CreateTopicsResponse():
                    check_created(node.image, self._config, request, response)
                case DeleteTopicsRequest(), DeleteTopicsResponse():
                    # If the topic is created again, the image no longer shows that it was deleted.
                    self._deleted_topics.update(node.image.deleted_topics)
                case _:
                    pass
            return
        if not isinstance(node, BrokerNode):
            return
        match request, response:
            case FetchRequest(), FetchResponse() if request.replica_id != CONSUMER:
                self._follower_answered(node, request, response)
            case FetchRequest(), FetchResponse():
                _consumer_answered(node, request, response)
            case ProduceRequest(), ProduceResponse():
                self._sent.check(request)
                if request.acks != ACKS_NONE:
                    _producer_answered(node, request, response)
            case HeartbeatRequest(), HeartbeatResponse():
                self._members.heartbeat_answered(node, life.clock, request, response)
            case JoinGroupRequest(), JoinGroupResponse():
                self._members.join_answered(node, life.clock, request, response)
            case SyncGroupRequest(), SyncGroupResponse():
                self._members.sync_answered(node, life.clock, request, response)
            case OffsetCommitRequest(), OffsetCommitResponse():
                self._coordinators.commit_answered(node, request, response)
            case TxnOffsetCommitRequest(), TxnOffsetCommitResponse():
                self._coordinators.commit_answered(node, request, response)
            case InitProducerIdRequest(), InitProducerIdResponse():
                transaction_checks.init_answered(node, request, response)
            case AddOffsetsToTxnRequest(), AddOffsetsToTxnResponse():
                transaction_checks.offsets_answered(node, request, response)
            case EndTxnRequest(), EndTxnResponse():
                transaction_checks.end_answered(node, request, response)
            case _:
                pass

    def traced(self, row: TraceRow) -> None:
        """Check what a broker has just done; `row` is of one of `CHECKED_ROWS`."""
        if row.kind == TraceKind.GENERATION_STARTED:
            self._members.generation_started(row)
            return
        life = self._lives.get(NodeName(row.node))
        broker = None if life is None else life.node
        if not isinstance(broker, BrokerNode) or row.partition is None:
            return
        topic, _, index = row.partition.rpartition("-")
        partition = broker.partitions.get((topic, int(index)))
        if row.kind in (TraceKind.APPEND_STARTED, TraceKind.APPEND_COMPLETED):
            self._coordinators.appended(broker, partition, row)
            if row.kind == TraceKind.APPEND_STARTED and life is not None:
                self._members.append_started(broker, life.clock, row)
        elif partition is None or life is None or life.host is None:
            return
        elif row.kind == TraceKind.LOG_TRUNCATED:
            self._truncations.traced(partition, row)
            now_ms = life.host.wall_us() // 1_000
            expired_ms = now_ms - self._config.producer_id_expiration_ms
            check_producers(partition.log, expired_ms=expired_ms)
        elif row.offset is not None:  # LOG_CLEANED
            self.cleanings.cleaned(life.host, partition.log, row.offset)

    # -- leader and follower ------------------------------------------------------------------

    def _follower_answered(
        self, leader: BrokerNode, request: FetchRequest, response: FetchResponse
    ) -> None:
        """Check the follower in each partition for which the answer has records.

        These are the partitions in which the follower was behind when it sent the Fetch.
        """
        life = self._lives.get(broker_name(BrokerId(request.replica_id)))
        broker = None if life is None else life.node
        if not isinstance(broker, BrokerNode):
            return
        asking = {broker.broker_id: broker}
        for topic in response.responses:
            if topic.topic in self._deleted_topics:
                continue
            for data in topic.partitions:
                if data.records:
                    key = (topic.topic, data.partition_index)
                    partition = leader.partitions.get(key)
                    if partition is None:
                        continue
                    for follower, broker_epoch in _followers(leader, key, partition, asking):
                        _check_follower(partition, follower, broker_epoch)

    # -- controller ---------------------------------------------------------------------------

    def _check_isr(self, partition: Partition) -> None:
        """Check that each replica that may be elected counts for the leader's high watermark.

        A leader that proposes a replica for its ISR counts the replica from then on, until it knows
        that the controller has refused or removed it. Source: KIP-497.
        """
        if self._controller is None:
            return
        stored = self._controller.image.partition(partition.topic_partition)
        # If the epochs differ, the leader or this controller does not know the last election yet.
        if stored is None or stored.leader_epoch != partition.leader_epoch:
            return
        maximal = partition.maximal_isr
        # The first test is enough nearly always, and much faster.
        if stored.isr != maximal and not set(stored.isr) <= set(maximal):
            raise InvariantViolation(
                "each member of the stored ISR counts for its leader",
                f"{partition.topic_partition}: the controller has stored the ISR {stored.isr} in "
                f"partition epoch {stored.partition_epoch}; leader {partition.broker_id} in epoch "
                f"{partition.leader_epoch}, partition epoch {partition.partition_epoch}, counts "
                f"{maximal}",
            )

    def _check_lag(self, host: VirtualHost, leader: Partition) -> None:
        """Check that a leader proposes to remove followers that lag from its ISR in time.

        A leader looks for such followers after each half of replica.lag.time.max.ms. So it finds a
        follower at the latest when the follower has lagged for 1.5 times this setting. If the
        controller refuses the proposal, the leader tries again later. Therefore the time is counted
        anew whenever a proposal is in flight, or the partition epoch has changed.
        Source: Kafka ReplicaManager.maybeShrinkIsr, Partition.maybeShrinkIsr.
        """
        key = (leader, leader.partition_epoch)
        now_us = host.now_us()
        behind = leader.isr_members_behind_for(3 * self._lag_max_us // 2, now_us)
        # A paused leader cannot look. Its timers fire when it resumes.
        if not behind or leader.isr_in_flight is not None or host.is_paused:
            self._lagging_since_us.pop(key, None)
            return
        since_us = self._lagging_since_us.setdefault(key, now_us)
        # The leader gets replica.lag.time.max.ms more, from the first sight of the lag.
        if now_us - since_us > self._lag_max_us:
            raise InvariantViolation(
                "a follower that lags leaves the ISR",
                f"{leader.topic_partition}: leader {leader.broker_id} in epoch "
                f"{leader.leader_epoch} keeps {behind} in its ISR {leader.isr}, and has proposed "
                f"no other ISR for {(now_us - since_us) // 1_000} ms",
            )

    def _check_created(self) -> None:
        """Check the topics of the spec in the controller's metadata, once they are created.

        No API of this project changes the number of a topic's partitions, or its settings.
        """
        controller = self._controller
        if controller is None:
            return
        image = controller.image
        # An image with the same end offset has not changed since.
        if self._checked_topics_at == (controller, image.end_offset):
            return
        self._checked_topics_at = (controller, image.end_offset)
        for topic in self._topics:
            if topic.name in image.topics and topic.name not in self._deleted_topics:
                check_topic(image, topic.name, topic.partitions, topic.config)

    def _check_metadata(self, brokers: Mapping[BrokerId, BrokerNode]) -> None:
        """Check that a broker that has read the whole metadata log has the controller's image."""
        if self._controller is None:
            return
        image = self._controller.image
        for broker_id, broker in brokers.items():
            known = broker.metadata.image
            # At different offsets the images may differ. At the same offset they are compared once.
            if known.end_offset != image.end_offset or self._compared.get(broker_id) == (
                broker,
                image.end_offset,
            ):
                continue
            self._compared[broker_id] = (broker, image.end_offset)
            difference = _difference(image, known)
            if difference is not None:
                raise InvariantViolation(
                    "a broker has the controller's metadata",
                    f"{broker_name(broker_id)} at offset {image.end_offset}: {difference}",
                )

    def _find_nodes(self) -> dict[BrokerId, BrokerNode]:
        """Return the live brokers; note the controller, and the topics that are deleted."""
        brokers: dict[BrokerId, BrokerNode] = {}
        self._controller = None
        for life in self._lives.values():
            node = life.node
            if isinstance(node, BrokerNode):
                brokers[node.broker_id] = node
            elif isinstance(node, ControllerNode):
                self._controller = node
                self._deleted_topics.update(node.image.deleted_topics)
        return brokers


def _followers(
    leader: BrokerNode,
    key: PartitionKey,
    partition: Partition,
    brokers: Mapping[BrokerId, BrokerNode],
) -> Iterator[tuple[Partition, int]]:
    """Yield the replica and the broker epoch of each follower that can be compared now.

    Only followers among `brokers` are looked at.
    """
    # When a follower has restarted, the leader's cache knows its new epoch first. The leader's
    # replica gets the ISR without the follower only when the metadata is published.
    known = leader.metadata.image.partition(partition.topic_partition)
    if known is None or known.partition_epoch > partition.partition_epoch:
        return
    eligible = leader.metadata.eligible_brokers  # broker -> its epoch, as the leader knows it
    for member in partition.replicas:
        broker = brokers.get(member)
        if broker is None or broker is leader or eligible.get(member) != broker.broker_epoch:
            continue
        follower = broker.partitions.get(key)
        # A follower in a later epoch may have truncated its log, as the later leader demands.
        if follower is not None and follower.leader_epoch <= partition.leader_epoch:
            yield follower, broker.broker_epoch


def _check_follower(
    leader: Partition, follower: Partition, broker_epoch: int, *, thoroughly: bool = False
) -> None:
    """Check a follower that is in its leader's epoch, or has not heard of that epoch yet."""
    # The leader may know the log end of an earlier incarnation, whose disk may be lost.
    if leader.follower_broker_epoch(follower.broker_id) == broker_epoch:
        check_known_end(leader, follower)
    if follower.leader_epoch == leader.leader_epoch and follower.broker_id in leader.isr:
        check_in_sync_follower(leader, follower)
        if thoroughly:
            # Above the high watermark the two logs may differ.
            up_to = min(leader.high_watermark, follower.log_end_offset)
            check_same_batches(leader.log, follower.log, up_to)


def _consumer_answered(leader: BrokerNode, request: FetchRequest, response: FetchResponse) -> None:
    """Check that a consumer gets committed records only, and the right high watermark."""
    for topic in response.responses:
        for data in topic.partitions:
            partition = leader.partitions.get((topic.topic, data.partition_index))
            if data.error_code is ErrorCode.NONE and partition is not None:
                check_consumed(
                    partition, data, read_committed=request.isolation_level == READ_COMMITTED
                )


def _producer_answered(
    leader: BrokerNode, request: ProduceRequest, response: ProduceResponse
) -> None:
    """Check each batch that the answer reports as written, or as out of order."""
    answers = {
        (topic.name, answer.index): answer
        for topic in response.responses
        for answer in topic.partition_responses
    }
    for topic in request.topic_data:
        for data in topic.partition_data:
            answer = answers[topic.name, data.index]
            partition = leader.partitions.get((topic.name, data.index))
            if partition is None:
                continue
            if answer.error_code is ErrorCode.NONE:
                check_acknowledged(
                    partition,
                    data.records,
                    base_offset=answer.base_offset,
                    needs_all=request.acks == ACKS_ALL,
                    is_alone=len(answers) == 1,  # the request has no other batch
                )
            # An answer about several batches may have waited for one of them. Meanwhile the log may
            # have got the batch that was refused, by another request.
            elif answer.error_code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and len(answers) == 1:
                check_out_of_order(partition, data.records)


def _difference(image: MetadataImage, known: MetadataImage) -> str | None:
    """Return the first difference of two images as text; None if they are equal."""
    for field in ("topics", "topic_configs", "brokers"):
        expected, found = getattr(image, field), getattr(known, field)
        if expected == found:
            continue
        for name in {**expected, **found}:
            if expected.get(name) != found.get(name):
                return f"{field}, {name}: expected {expected.get(name)}, got {found.get(name)}"
    return None
