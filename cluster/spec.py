"""What a cluster is made of: the plain data from which both runtimes build the same nodes."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from protocol.config import (
    BrokerConfig,
    ConsumerConfig,
    Guards,
    JavaSwitches,
    ProducerConfig,
    TopicConfig,
    ZooKeeperConfig,
    ZooKeeperConsumerConfig,
)
from protocol.ids import NodeName, broker_name, controller_name, zookeeper_name

NotNegative = Annotated[int, Meta(ge=0)]


class ControllerSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One controller."""

    node_id: int

    @property
    def name(self) -> NodeName:
        """Host name of the node."""
        return controller_name(self.node_id)


class BrokerSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One broker."""

    broker_id: int
    rack: str | None = None

    @property
    def name(self) -> NodeName:
        """Host name of the node."""
        return broker_name(self.broker_id)


class TopicSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One topic, `__consumer_offsets` included.

    Shape: `assignments` names the replicas of each partition, preferred leader first; empty lets
    the controller spread them: partition p gets brokers (p + k) mod n, as Kafka without racks.
    """

    name: str
    partitions: int
    replication_factor: int
    config: TopicConfig = TopicConfig()
    assignments: tuple[tuple[int, ...], ...] = ()


class PreloadSpec(msgspec.Struct, frozen=True, kw_only=True):
    """Commit records that stand in an offsets partition before the run, as on an old cluster.

    Units: `commit_records` counts records; they are written by `groups` simple groups in batches of
    `records_per_batch`, and are equal on every replica, in leader epoch 0.
    Shape: `deleted` names offsets of a group that were committed in turn, and then deleted: each
    has a tombstone at the end. Empty: the records stay in force. With `unreadable` the last record
    is one that no coordinator can read: whoever loads it stops there.
    """

    partition: int
    commit_records: int
    groups: int = 20
    records_per_batch: int = 500
    deleted: tuple[tuple[str, str, int], ...] = ()  # group, topic, partition
    unreadable: bool = False


class ConsumerSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One consumer of a group and what its application does.

    Units: the application polls with `poll_timeout_ms`; each record costs `process_us` and up to
    `process_spread_us` more, evenly drawn; offsets are committed asynchronously every
    `commit_interval_ms` (None: never; one commit in flight), in transactions of a producer of its
    own if it is `transactional`. `isolate` gives it a process of its own on Ray. One that
    `starts_later` is started by the run (Runtime.start_node), not with the cluster.
    """

    name: NodeName
    group_id: str
    index: int
    topics: tuple[str, ...]
    config: ConsumerConfig = ConsumerConfig()
    poll_timeout_ms: int = 50
    process_us: int = 0
    process_spread_us: int = 0
    commit_interval_ms: int | None = 200
    transactional: bool = False
    transaction_timeout_ms: int = 60_000
    start_after_ms: int = 0
    isolate: bool = False
    starts_later: bool = False


class TopicFilterSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A filter of topics, as a consumer on ZooKeeper registers it.

    `regex` matches whole names: those that it reads (`white_list`) or does not (`black_list`).
    """

    pattern: Literal["white_list", "black_list"]
    regex: str


class ZooKeeperConsumerSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One member of a group that lives on ZooKeeper, and what its application does.

    `topics` are its topics, unless it has a `topic_filter`; then it reads what the filter allows.
    Units: each record costs `process_us` and up to `process_spread_us` more. A member whose start
    fails closes its connector and starts another one after `restart_ms`. `isolate` and
    `starts_later` are ConsumerSpec's.
    """

    name: NodeName
    group_id: str
    index: int
    topics: tuple[str, ...]
    config: ZooKeeperConsumerConfig = ZooKeeperConsumerConfig()
    topic_filter: TopicFilterSpec | None = None  # None: the subscription is static
    process_us: int = 0
    process_spread_us: int = 0
    restart_ms: int = 1_000
    isolate: bool = False
    starts_later: bool = False


class ProducerSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One producer: `records_per_second` numbered records, round robin over the partitions."""

    name: NodeName
    topic: str
    records_per_second: float
    config: ProducerConfig = ProducerConfig()


class ZooKeeperSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One server of the ZooKeeper ensemble; its number is `server_id`."""

    server_id: int

    @property
    def name(self) -> NodeName:
        """Host name of the node."""
        return zookeeper_name(self.server_id)


class LinkModel(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Latency of the virtual network, one way; Ray's is real and adds nothing.

    Units: microseconds.
    """

    base_us: NotNegative = 150
    """What every frame takes."""
    jitter_us: NotNegative = 150
    """Up to so much more, drawn evenly."""
    tail_us: NotNegative = 4_000
    """Up to so much more for one frame in `tail_one_in`."""
    tail_one_in: NotNegative = 100
    """One frame in so many is a slow one; 0: none is."""
    cross_rack_us: NotNegative = 0
    """What a frame between racks takes beside."""


class CostModel(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What work costs in virtual time; on Ray it costs what it costs.

    A broker loads one offsets partition at a time, so what one costs the next ones wait for. The
    defaults are measured on Kafka 3.9.1 (MEASURED_FAILOVER load-rate): a partition of 1,000,000
    commits, 45 MB, was loaded in 0.48 to 0.67 s, and publishing metadata took tens of milliseconds.
    Kafka 4.1.0's Java coordinator took 1.24 to 1.56 s for the same log: `load_ns_per_record` 1200.
    """

    load_ns_per_record: NotNegative = 300
    """What a load takes for each record that it reads, in nanoseconds."""
    load_ns_per_byte: NotNegative = 4
    """What it takes beside for each byte, in nanoseconds."""
    load_fixed_us: NotNegative = 5_000
    """What every load takes, in microseconds."""
    publish_us: NotNegative = 30_000
    """How long a broker takes to act on metadata that it has read, in microseconds."""
    publish_jitter_us: NotNegative = 0
    """Up to so much more, drawn evenly by each broker for each change: with it a follower may hear
    of a new leader before that does, and then waits replica.fetch.backoff.ms for it."""
    consumer_start_us: NotNegative = 0
    """What a consumer takes from its creation to its first request, in microseconds: a JVM makes
    its objects and threads."""
    consumer_start_jitter_us: NotNegative = 0
    """Up to so much more, drawn evenly for each start."""
    zookeeper_request_us: NotNegative = 250
    """What a ZooKeeper server takes for each request of a client, one after the other, in
    microseconds: 32 members made 1782 requests in 0.5 s."""
    zookeeper_sync_us: NotNegative = 300
    """What it takes beside for a write, which it flushes, in microseconds."""
    zookeeper_consumer_start_us: NotNegative = 40_000
    """What a consumer on ZooKeeper takes from its registration to its subscriptions, in
    microseconds: it makes its queues and threads. With it a join of 4 members conflicts, and one of
    8 seldom does, as measured."""


class StorageModel(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When the operating system writes to the disk what nobody flushed, on both runtimes.

    Units: milliseconds; the defaults are Linux's vm.dirty_expire_centisecs (3000) and
    vm.dirty_writeback_centisecs (500).
    Source: the kernel's Documentation/admin-guide/sysctl/vm.rst.
    """

    write_back_ms: NotNegative = 30_000
    """A log is written back, whole, at the first check so long after it became dirty."""
    write_back_check_ms: Annotated[int, Meta(ge=1)] = 5_000
    """How often is checked."""


class ListenerSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The listener of each broker for Kafka clients: Kafka's wire protocol, PLAINTEXT.

    Runtimes in real time open it. Shape: broker number i listens on port `first_port` + i, or on a
    free port if `first_port` is 0; a new incarnation listens on the port of the one before.
    """

    host: str | None = None
    """Address to bind; None: loopback, or the machine's own on a Ray cluster of machines."""
    first_port: Annotated[int, Meta(ge=0, le=65_535)] = 0
    """Port of the first broker; 0: free ports."""
    advertised_host: str | None = None
    """Host that clients are told to connect to; None: the address that is bound."""


class ClusterSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A whole cluster.

    Units: with `late_notices_us` above 0 a broker's coordinator is told again of every leadership
    gained or lost, for the last time so many microseconds later. Every `metrics_interval_us`
    brokers and controllers write their metrics into the trace; 0: never.
    Shape: `machines` has every node once, by machine; empty: the experiment names no machines.
    """

    controllers: tuple[ControllerSpec, ...]
    brokers: tuple[BrokerSpec, ...]
    topics: tuple[TopicSpec, ...]
    consumers: tuple[ConsumerSpec, ...] = ()
    producers: tuple[ProducerSpec, ...] = ()
    broker_config: BrokerConfig = BrokerConfig()
    guards: Guards = Guards()
    java: JavaSwitches = JavaSwitches()
    preload: tuple[PreloadSpec, ...] = ()
    links: LinkModel = LinkModel()
    costs: CostModel = CostModel()
    storage: StorageModel = StorageModel()
    late_notices_us: int = 0
    metrics_interval_us: int = 0
    zookeepers: tuple[ZooKeeperSpec, ...] = ()
    zookeeper_consumers: tuple[ZooKeeperConsumerSpec, ...] = ()
    zookeeper_config: ZooKeeperConfig = ZooKeeperConfig()
    machines: tuple[tuple[NodeName, ...], ...] = ()
    brokers_register_in_zookeeper: bool = False
    listener: ListenerSpec | None = None  # None: brokers listen to nodes of the lab alone


NodeSpec = (
    ControllerSpec
    | BrokerSpec
    | ConsumerSpec
    | ProducerSpec
    | ZooKeeperSpec
    | ZooKeeperConsumerSpec
)


def starts_later(spec: NodeSpec) -> bool:
    """Return whether a node is started by the run, not with the cluster."""
    return isinstance(spec, ConsumerSpec | ZooKeeperConsumerSpec) and spec.starts_later


def has_disk(spec: NodeSpec) -> bool:
    """Return whether a node keeps logs that must outlive its process."""
    return isinstance(spec, ControllerSpec | BrokerSpec | ZooKeeperSpec)


def role_of(spec: NodeSpec) -> str:
    """Return the role that NODE_STARTED names."""
    match spec:
        case ControllerSpec():
            return "controller"
        case BrokerSpec():
            return "broker"
        case ConsumerSpec() | ZooKeeperConsumerSpec():
            return "consumer"
        case ProducerSpec():
            return "producer"
        case ZooKeeperSpec():
            return "zookeeper"
