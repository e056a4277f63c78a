"""The broker's node: creates the parts of a broker, connects them and starts them.

`BrokerNode.__init__` shows which parts a broker has. The runtime calls the methods below it:
`start`, `shut_down`, `report`, and the checks of invariants.
"""

import uuid
from collections.abc import Callable, Mapping

from cluster.broker.api import BrokerApi
from cluster.broker.channels import BrokerIdentity, ControllerChannel
from cluster.broker.control.metadata_cache import MetadataCache
from cluster.broker.control.metadata_fetcher import MetadataFetcher
from cluster.broker.control.registration import BrokerHeartbeats
from cluster.broker.control.topic_forwarding import TopicForwarding
from cluster.broker.control.zookeeper_registration import ZooKeeperRegistration
from cluster.broker.coordination.coordinator_tasks import CoordinatorTasks
from cluster.broker.coordination.group_coordination import GroupCoordination
from cluster.broker.coordination.preload import preload
from cluster.broker.replication.fetch_reader import PartitionKey
from cluster.broker.replication.replica_manager import ReplicaManager
from cluster.broker.transactions.transaction_coordination import TransactionCoordination
from cluster.broker.transactions.transaction_tasks import TransactionTasks
from cluster.broker.transactions.txn_marker_writer import TxnMarkerWriter
from cluster.host.connection_purposes import (
    ALTER_PARTITION,
    BROKER_HEARTBEAT,
    FORWARDING,
    METADATA,
    PRODUCER_IDS,
)
from cluster.host.host import Host, Timer
from cluster.runtime import ClusterStatus, GroupStatus
from cluster.spec import BrokerSpec, ClusterSpec
from cluster.storage.compression import CODECS, require_codec
from cluster.storage.recovery_report import report_recoveries
from coordinator.coordinator import GroupCoordinator
from coordinator.group import Group
from coordinator.transaction.metadata import TransactionMetadata
from coordinator.transaction.transaction_coordinator import TransactionCoordinator
from coordinator.turn import OffsetsAppend
from partition_log.replica import Partition
from protocol.errors import SimulationError
from protocol.ids import (
    CONSUMER_OFFSETS,
    TRANSACTION_STATE,
    AppendId,
    BrokerEpoch,
    BrokerId,
    TopicPartition,
)

CONTROLLED_SHUTDOWN_TIMEOUT_US = 300_000_000
"""Longest wait for the controller's permission to stop: 5 minutes.

Source: Kafka KafkaBroker.shutdown."""


class BrokerNode:
    """One incarnation of a broker.

    The broker accepts no connection until it has read its own registration from the metadata log.
    From then on it serves as long as it lives, even while the controller has fenced it.
    """

    def __init__(self, host: Host, cluster: ClusterSpec, spec: BrokerSpec) -> None:
        # If the codec is not supported, the broker must fail now and not at its first append.
        require_codec(cluster.broker_config.offsets_topic_compression_codec)
        self._host = host
        self._cluster = cluster
        self._identity = BrokerIdentity(broker_id=BrokerId(spec.broker_id))
        controllers = tuple(controller.name for controller in cluster.controllers)
        num_offsets_partitions = _num_partitions(
            cluster, CONSUMER_OFFSETS, cluster.broker_config.offsets_topic_num_partitions
        )
        num_transaction_partitions = _num_partitions(
            cluster, TRANSACTION_STATE, cluster.broker_config.transaction_state_log_num_partitions
        )
        self._cache = MetadataCache(
            num_offsets_partitions=num_offsets_partitions,
            num_transaction_partitions=num_transaction_partitions,
        )
        self._replicas = ReplicaManager(
            host,
            self._identity,
            cluster,
            self._cache,
            ControllerChannel(host, controllers, ALTER_PARTITION),
        )
        # `guards` are the checks of Kafka that an experiment may switch off. `java` selects
        # behaviours of Kafka's newer coordinator, which is written in Java.
        coordinator = GroupCoordinator(
            config=cluster.broker_config,
            guards=cluster.guards,
            java=cluster.java,
            codecs=CODECS,
            num_offsets_partitions=num_offsets_partitions,
            new_uuid=self._new_uuid,
        )
        self._coordination = GroupCoordination(
            host, cluster, self._replicas, self._cache, coordinator
        )
        self._tasks = CoordinatorTasks(host, cluster, self._replicas, self._coordination)
        self._transactions = TransactionCoordination(
            host,
            self._identity,
            cluster,
            self._replicas,
            self._cache,
            ControllerChannel(host, controllers, PRODUCER_IDS),
            TransactionCoordinator(
                config=cluster.broker_config,
                num_partitions=num_transaction_partitions,
                num_offsets_partitions=num_offsets_partitions,
            ),
        )
        self._transaction_tasks = TransactionTasks(host, cluster, self._transactions)
        self._api = BrokerApi(
            host,
            self._cache,
            self._replicas,
            self._coordination,
            self._transactions,
            TxnMarkerWriter(host, self._replicas, self._tasks.complete_transaction),
            TopicForwarding(
                host,
                ControllerChannel(host, controllers, FORWARDING),
                cluster.broker_config,
            ),
            self._identity.broker_id,
            cluster.broker_config,
        )
        self._metadata = MetadataFetcher(
            host,
            ControllerChannel(host, controllers, METADATA),
            self._identity,
            cluster,
            self._cache,
            self._publish,
        )
        self._heartbeats = BrokerHeartbeats(
            host,
            ControllerChannel(host, controllers, BROKER_HEARTBEAT),
            self._identity,
            spec,
            cluster.broker_config,
            lambda: self._metadata.applied_offset,
            self._caught_up,
        )
        self._zookeeper: ZooKeeperRegistration | None = None
        """The registration in ZooKeeper, by which old consumers find this broker.

        None if the broker does not register in ZooKeeper."""
        # Both conditions are needed: a cluster may have ZooKeeper servers that its brokers ignore.
        if cluster.brokers_register_in_zookeeper and cluster.zookeepers:
            servers = tuple(server.name for server in cluster.zookeepers)
            self._zookeeper = ZooKeeperRegistration(host, self._identity.broker_id, servers)
        self._on_stopped: Callable[[], None] | None = None
        """Called at the end of a controlled shutdown; None before one begins."""
        self._shutdown_limit: Timer | None = None
        """Timer of CONTROLLED_SHUTDOWN_TIMEOUT_US; None before a controlled shutdown."""

    def start(self) -> None:
        """Recover the logs from the disk, register with the controller, and fetch metadata."""
        host = self._host
        report_recoveries(host)  # traces each log that lost data before this start
        # An experiment may demand records that are in the logs from the beginning. They must be on
        # the disk before the replicas read their logs. Incarnation 0 is the first start.
        if host.incarnation == 0:
            preload(host.storage, self._identity.broker_id, self._cluster)
        self._replicas.start()
        self._tasks.start()
        if any(topic.name == TRANSACTION_STATE for topic in self._cluster.topics):
            # A cluster without this topic has no transactions, so it does not need their timers.
            self._transactions.start()
            host.spawn(self._transaction_tasks.run(), name="transaction-tasks")
        host.spawn(self._metadata.run(), name="metadata-fetcher")
        host.spawn(self._heartbeats.run(), name="heartbeats")
        if self._zookeeper is not None:
            self._zookeeper.start()

    def shut_down(self, on_done: Callable[[], None]) -> None:
        """Begin a controlled shutdown: the broker serves until other brokers lead its partitions.

        `on_done` is called when the controller permits the broker to stop. If the permission does
        not come, `on_done` is called after CONTROLLED_SHUTDOWN_TIMEOUT_US, although the broker may
        still lead partitions.

        Raises: SimulationError if a shutdown has begun before.
        Source: Kafka BrokerServer.shutdown.
        """
        if self._on_stopped is not None:
            raise SimulationError(f"{self._host.name} is shutting down already")
        self._on_stopped = on_done
        self._host.log("controlled shutdown begins")
        # The replicas must know of the shutdown before the controller does:
        # 1. The controller gets the heartbeat that asks for the shutdown, and removes this broker
        #    from the ISRs.
        # 2. This broker reads the removals in its metadata.
        # 3. The replicas then stop following. Otherwise they would catch up and ask to be taken
        #    into the ISRs again, which the controller would refuse.
        self._replicas.begin_controlled_shutdown()
        self._shutdown_limit = self._host.after(
            CONTROLLED_SHUTDOWN_TIMEOUT_US, self._give_up_controlled_shutdown
        )
        self._heartbeats.begin_controlled_shutdown(self._stop)

    def report(self, status: ClusterStatus) -> None:
        """Add to `status` that this broker is alive, and which groups it coordinates."""
        broker_id = self._identity.broker_id
        status.brokers_alive[broker_id] = True
        for group in self._coordination.coordinator.groups():
            status.groups.setdefault(group.group_id, []).append(
                GroupStatus(
                    coordinator=broker_id,
                    offsets_partition=group.partition,
                    state=group.state.value,
                    generation=group.generation,
                    members=group.members,
                    leader=group.leader,
                )
            )

    def check_invariants(self, *, thoroughly: bool = False) -> None:
        """Check all invariants of this broker. If `thoroughly`, also check the content of its logs.

        Raises: InvariantViolation.
        """
        self._coordination.check_invariants()
        self._transactions.check_invariants()
        self._replicas.check_invariants(thoroughly=thoroughly)
        self._api.check_invariants()
        # While a change is not published, the cache has newer metadata than the replicas.
        if self._metadata.is_published():
            self._replicas.check_follows_metadata()
            if thoroughly:
                self._replicas.check_logs()

    @property
    def broker_id(self) -> BrokerId:
        """This broker's id."""
        return self._identity.broker_id

    @property
    def broker_epoch(self) -> BrokerEpoch:
        """The epoch of this incarnation, -1 until it is registered."""
        return self._identity.broker_epoch

    @property
    def metadata(self) -> MetadataCache:
        """This broker's copy of the metadata; to read only."""
        return self._cache

    @property
    def partitions(self) -> Mapping[PartitionKey, Partition]:
        """This broker's replicas, for checks that compare brokers; to read only."""
        return self._replicas.partitions

    def group(self, group_id: str) -> Group | None:
        """Return the group that this broker's coordinator has in memory; to read only."""
        return self._coordination.coordinator.group(group_id)

    def commit_in_flight(self, append_id: AppendId) -> OffsetsAppend | None:
        """Return the OffsetCommit that this unfinished append of a group writes; to read only."""
        return self._coordination.coordinator.commit_in_flight(append_id)

    def group_timer(self, key: str) -> Timer | None:
        """Return the pending timer of a group or member with this key; to read only."""
        return self._coordination.timer(key)

    def transaction(self, transactional_id: str) -> TransactionMetadata | None:
        """Return what this broker's coordinator knows of a transactional id; to read only."""
        return self._transactions.coordinator.metadata(transactional_id)

    def _give_up_controlled_shutdown(self) -> None:
        """Stop without the controller's permission, because the time limit has passed."""
        self._host.log("timed out waiting for the controller to approve controlled shutdown")
        self._heartbeats.end()  # else a permission that comes late would call `_stop` again
        self._stop()

    def _stop(self) -> None:
        """Close the replicas cleanly and call `on_done`; the runtime then ends the process."""
        if self._shutdown_limit is not None:
            self._shutdown_limit.cancel()
        self._replicas.shut_down()
        self._host.log("shut down")
        if self._on_stopped is None:  # only for mypy: `shut_down` has set it
            return
        if self._zookeeper is None:
            self._on_stopped()
        else:
            self._zookeeper.close(self._on_stopped)

    async def _caught_up(self) -> None:
        """Let replicas and coordinators act on the metadata read so far, then begin to serve."""
        await self._metadata.publish_first()
        self._host.serve(self._api.handle)

    def _publish(self, changed: list[TopicPartition]) -> None:
        """Apply a change of the metadata to the replicas, and then to the coordinators.

        `changed` are the partitions that the change is about. The change is in the cache already.
        The replicas come first: a coordinator loads a partition only from a replica that leads.

        Source: docs/kafka, BEHAVIOUR 5.5.
        """
        leadership = self._replicas.apply(changed)
        self._tasks.leadership_changed(leadership)
        self._transaction_tasks.leadership_changed(leadership)
        if leadership.deleted:
            self._coordination.partitions_deleted(leadership.deleted)

    def _new_uuid(self) -> str:
        # The uuid becomes a part of a member id. It is made of the host's random numbers, so a run
        # with the same seed has the same ids.
        return str(uuid.UUID(int=self._host.rng.getrandbits(128), version=4))


def _num_partitions(cluster: ClusterSpec, topic: str, default: int) -> int:
    """Return the number of partitions of `topic`, or `default` if the cluster has no such topic."""
    return next((each.partitions for each in cluster.topics if each.name == topic), default)
