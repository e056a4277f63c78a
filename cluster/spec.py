"""ClusterSpec: the plain data from which every runtime builds the same nodes.

An experiment describes its cluster by a ClusterSpec. It has a spec for each node (broker, consumer
and so on), the topics, the settings of Kafka, and models of what a run in virtual time (on a
simulated clock) must imitate: the latency of the network, the duration of work, and the operating
system's writing to disks.

Some fields exist because this project tests Kafka:

- `guards` can switch off single checks of Kafka, to see what goes wrong without them.
- `java` chooses between Kafka's two group coordinators. The nodes behave like the older
  coordinator, which is written in Scala. Each of the JavaSwitches turns on one behaviour of the
  newer coordinator, which is written in Java.
- `zookeeper_consumers` are Kafka's old consumers. They have no group coordinator, but divide the
  partitions of their group by znodes in ZooKeeper.

Below, an *offsets partition* is a partition of `__consumer_offsets`, the topic in which Kafka
stores the commits of groups. A *load* reads such a partition into the memory of a coordinator.
"""

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
    """One topic. `__consumer_offsets` is a topic, too.

    `assignments` has the brokers with a replica of each partition, preferred leader first. If it is
    empty, the controller chooses, as in Kafka without racks: of n brokers, number (p + k) mod n
    gets replica k of partition p.
    """

    name: str
    partitions: int
    replication_factor: int
    config: TopicConfig = TopicConfig()
    assignments: tuple[tuple[int, ...], ...] = ()


class PreloadSpec(msgspec.Struct, frozen=True, kw_only=True):
    """Records that are in the offsets partition `partition` before the run, as on an old cluster.

    - `commit_records`: number of commit records. They were written by `groups` different groups
      without members, in batches of `records_per_batch`. The records are equal on every replica,
      and have the leader epoch of the partition's first leader, 0.
    - `deleted`: the keys (group, topic, partition) of deleted offsets. If `deleted` is empty, no
      commit is deleted. Otherwise `groups` has no effect: the commits use only the keys in
      `deleted`, in turn. After the commits, each of these keys gets a tombstone (a record without
      a value, which deletes its key).
    - `unreadable`: True if the log ends with a record in a format that no coordinator can read, so
      that a load of the partition fails at this record.
    """

    partition: int
    commit_records: int
    groups: int = 20
    records_per_batch: int = 500
    deleted: tuple[tuple[str, str, int], ...] = ()  # group, topic, partition
    unreadable: bool = False


def longest_between_polls_us(
    config: ConsumerConfig, *, poll_timeout_ms: int, record_us: int
) -> int:
    """Return the longest time between the beginnings of two successive polls of an application.

    In the worst case the records arrive at the end of the first poll's timeout, and the poll
    returns as many as it can: `max.poll.records`. The application then needs `record_us` for each.
    """
    return 1_000 * poll_timeout_ms + config.max_poll_records * record_us


class ConsumerSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One consumer of a group, and the behaviour of its application.

    - `index`: number of the consumer in its group.
    - `poll_timeout_ms`: timeout of each poll.
    - `process_us`: time for processing one record, plus a random time below `process_spread_us`.
    - `commit_interval_ms`: interval of the asynchronous commits; None: the application never
      commits. Only one commit is in flight at a time.
    - `commit_metadata`: texts that the asynchronous commits carry, in turn; after the last text
      comes the first one again. Before a partition is revoked (taken from the member by a
      rebalance), the application commits once more, with the text of its latest asynchronous
      commit. Automatic commits carry no text.
    - `transactional`: the application also has a producer, and each commit is a transaction of
      this producer. A transaction that is open for longer than `transaction_timeout_ms` is aborted.
    - `start_after_ms`: time from the start of the node to the consumer's first step.
    - `isolate`: on Ray, the consumer gets its own process.
    - `starts_later`: the node is not started with the cluster (Runtime.start), but later in the run
      (Runtime.start_node).
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
    commit_metadata: tuple[str, ...] = ()
    transactional: bool = False
    transaction_timeout_ms: int = 60_000
    start_after_ms: int = 0
    isolate: bool = False
    starts_later: bool = False

    @property
    def longest_between_polls_us(self) -> int:
        """The longest time between two polls, if each record takes the longest possible time."""
        return longest_between_polls_us(
            self.config,
            poll_timeout_ms=self.poll_timeout_ms,
            record_us=self.process_us + self.process_spread_us,
        )


class TopicFilterSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A topic filter that a consumer on ZooKeeper registers.

    `regex` must match a whole topic name. `pattern` says what a match means: a `white_list` reads
    the matching topics, a `black_list` all others. Both words are Kafka's.
    """

    pattern: Literal["white_list", "black_list"]
    regex: str


class ZooKeeperConsumerSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One member of a group on ZooKeeper, and the behaviour of its application.

    - `index`: number of the member in its group; its consumer id contains it.
    - `topics`: its topics, if it has no `topic_filter`.
    - `process_us`: time for processing one record, plus a random time below `process_spread_us`.
    - `restart_ms`: pause after a failed start. A member starts a connector (Kafka's name for the
      object that joins the group); if that fails, it starts a new one after this pause.
    - `isolate`, `starts_later`: as in ConsumerSpec.
    """

    name: NodeName
    group_id: str
    index: int
    topics: tuple[str, ...]
    config: ZooKeeperConsumerConfig = ZooKeeperConsumerConfig()
    topic_filter: TopicFilterSpec | None = None  # None if the member reads `topics`
    process_us: int = 0
    process_spread_us: int = 0
    restart_ms: int = 1_000
    isolate: bool = False
    starts_later: bool = False


class ProducerSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One producer, which sends numbered records to the topic's partitions in turn.

    `records_per_second` is its rate over all partitions.
    """

    name: NodeName
    topic: str
    records_per_second: float
    config: ProducerConfig = ProducerConfig()


class ZooKeeperSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One server of the ZooKeeper ensemble."""

    server_id: int

    @property
    def name(self) -> NodeName:
        """Host name of the node."""
        return zookeeper_name(self.server_id)


class LinkModel(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One-way latency of the virtual network; runtimes in real time use the real network only.

    A frame is one message between two nodes. Units: microseconds.
    """

    base_us: NotNegative = 150
    """Smallest latency of a frame, in microseconds."""
    jitter_us: NotNegative = 150
    """Largest random addition to every frame's latency, in microseconds."""
    tail_us: NotNegative = 4_000
    """Largest random addition to the latency of a slow frame, besides the jitter, in
    microseconds."""
    tail_one_in: NotNegative = 100
    """One frame in this number of frames is slow, on average; 0 means that no frame is slow."""
    cross_rack_us: NotNegative = 0
    """Addition to the latency of a frame between two racks, in microseconds."""


class CostModel(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Duration of work in virtual time; in real time work takes its real time.

    A broker loads one offsets partition at a time, so each load delays the loads behind it. The
    defaults are measured on Kafka 3.9.1 (docs/kafka/MEASURED_FAILOVER.md, "Load rate"). The load of
    a partition of 1,000,000 commits, 45 MB, took 0.48 to 0.67 s, and publishing metadata took tens
    of milliseconds. Kafka 4.1.0's Java coordinator took 1.24 to 1.56 s to load the same log. To
    imitate it, set `load_ns_per_record` to 1200.
    """

    load_ns_per_record: NotNegative = 300
    """Duration of a load for each record that it reads, in nanoseconds."""
    load_ns_per_byte: NotNegative = 4
    """Further duration of a load for each byte that it reads, in nanoseconds."""
    load_fixed_us: NotNegative = 5_000
    """Fixed duration of every load, in microseconds."""
    publish_us: NotNegative = 30_000
    """Time from a broker's read of a metadata change to its effect there, in microseconds."""
    publish_jitter_us: NotNegative = 0
    """Largest random addition to `publish_us`, in microseconds; each broker draws it for each
    change. So brokers learn of a change at different times. If a follower learns of a new leader
    before that leader itself, the leader refuses the follower's first request, and the follower
    waits `replica.fetch.backoff.ms`."""
    consumer_start_us: NotNegative = 0
    """Time from a consumer's creation to its first request, in microseconds. A consumer of Kafka
    starts threads and creates objects in this time."""
    consumer_start_jitter_us: NotNegative = 0
    """Largest random addition to `consumer_start_us`, in microseconds; drawn for each start."""
    zookeeper_request_us: NotNegative = 250
    """Duration of a client's request at a ZooKeeper server, in microseconds; requests are carried
    out one after the other. Measured: 1782 requests of 32 members took 0.5 s, so one
    took at most 280 us."""
    zookeeper_sync_us: NotNegative = 300
    """Further duration of a write at a ZooKeeper server, which flushes it, in microseconds."""
    zookeeper_consumer_start_us: NotNegative = 40_000
    """Time from the registration of a consumer on ZooKeeper to its subscriptions, in microseconds:
    it creates queues and threads. A member claims a partition by creating the partition's znode. A
    claim conflicts if the earlier owner has not removed its own znode yet. The default reproduces a
    measurement: there are conflicts when 4 members join together, but seldom when 8 do, because
    with more members a new one is slower to claim."""


class StorageModel(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Write-back: the operating system's own writing of data that no node flushed.

    Units: milliseconds; the defaults are Linux's vm.dirty_expire_centisecs (3000) and
    vm.dirty_writeback_centisecs (500).
    Source: the kernel's Documentation/admin-guide/sysctl/vm.rst.
    """

    write_back_ms: NotNegative = 30_000
    """Age of unflushed data, in milliseconds. A periodic check looks for logs that have
    unflushed data of this age, and writes back all data of such a log."""
    write_back_check_ms: Annotated[int, Meta(ge=1)] = 5_000
    """Interval of the checks for old unflushed data, in milliseconds."""


class ListenerSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Each broker's listener for Kafka clients, which speaks Kafka's wire protocol in PLAINTEXT.

    Only runtimes in real time open it. Broker i listens on port `first_port` + i, or on a free port
    if `first_port` is 0. A restarted broker listens on the same port as before.
    """

    host: str | None = None
    """Address to bind. None: loopback; on a Ray cluster of several machines, the address of the
    broker's own machine."""
    first_port: Annotated[int, Meta(ge=0, le=65_535)] = 0
    """Port of the first broker; 0: free ports."""
    advertised_host: str | None = None
    """Host in the address that brokers give to clients; None: the address that is bound."""


class ClusterSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A whole cluster.

    - `late_notices_us`: a broker gives its group coordinator a notice when it gains or loses the
      leadership of an offsets partition. If this number is above 0, the broker repeats each notice
      a few times within this number of microseconds. The coordinator must ignore repetitions.
    - `metrics_interval_us`: interval in which brokers and controllers write their metrics into the
      trace (the run's recorded rows of events); 0 means never.
    - `machines`: the nodes of each machine, every node once; empty if the experiment does not say
      which nodes share a machine.
    - `brokers_register_in_zookeeper`: True if each broker creates a znode for itself, as in Kafka's
      versions on ZooKeeper; ZooKeeper removes it after the broker's death. If False, the znodes of
      all brokers exist from the beginning, and stay.
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
    listener: ListenerSpec | None = None  # None if brokers only accept nodes of the cluster


NodeSpec = (
    ControllerSpec
    | BrokerSpec
    | ConsumerSpec
    | ProducerSpec
    | ZooKeeperSpec
    | ZooKeeperConsumerSpec
)


def starts_later(spec: NodeSpec) -> bool:
    """Return True if the run starts a node later, not together with the cluster."""
    return isinstance(spec, ConsumerSpec | ZooKeeperConsumerSpec) and spec.starts_later


def has_disk(spec: NodeSpec) -> bool:
    """Return True if a node has files that must outlive its process."""
    return isinstance(spec, ControllerSpec | BrokerSpec | ZooKeeperSpec)


def role_of(spec: NodeSpec) -> str:
    """Return the role of a node in its NODE_STARTED row in the trace."""
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
