"""The experiment file: its structs, and the cluster that it describes.

Owns the vocabulary of an experiment: what is built, what is asked, what is broken and when. It
knows nothing of YAML, lines or near misses (`loader`), nor of what a fault does (`faults`).
Kafka's settings keep Kafka's names, defaults and bounds: their structs are `protocol.config`'s.
"""

import re
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from chaos.results.replay_stamp import ReplayStamp
from cluster.machines import MachineLayout, spread_nodes
from cluster.spec import (
    BrokerSpec,
    ClusterSpec,
    ConsumerSpec,
    ControllerSpec,
    CostModel,
    LinkModel,
    PreloadSpec,
    ProducerSpec,
    StorageModel,
    TopicFilterSpec,
    TopicSpec,
    ZooKeeperConsumerSpec,
    ZooKeeperSpec,
)
from protocol.config import (
    BrokerConfig,
    ConsumerConfig,
    Guards,
    JavaSwitches,
    ProducerConfig,
    TopicConfig,
    ZooKeeperConfig,
    ZooKeeperConsumerConfig,
    kafka_name,
)
from protocol.ids import (
    CONSUMER_OFFSETS,
    TRANSACTION_STATE,
    NodeName,
    broker_name,
    controller_name,
    zookeeper_name,
)
from protocol.partitioner import partition_for

FORMAT_VERSION = 1
MEMBER_INDEX = "{index}"
"""Stands for the member's index in a group's `group.instance.id`, which no two may share."""
MAX_REPEATS = 1_000
MAX_MEMBERS = 10_000
MAX_PARTITIONS = 10_000
MAX_MACHINES = 100
MAX_RECORDS_PER_SECOND = 1_000_000
"""What is beyond these is a slip, and would fill the memory before anything is seen of it."""
FIRST_CONTROLLER_ID = 100
"""Brokers are numbered from 0, controllers from here, so that a bare id names one node."""

_DURATION = re.compile(r"([0-9]{1,9})(us|ms|s|m|h)")
_UNIT_US = {"us": 1, "ms": 1_000, "s": 1_000_000, "m": 60_000_000, "h": 3_600_000_000}

Duration = Annotated[
    str,
    Meta(
        pattern=r"^[0-9]{1,9}(us|ms|s|m|h)(?!\n)$",
        description="a whole number and its unit: us, ms, s, m or h",
        examples=["5s", "250ms"],
    ),
]
"""A length of time as people write it; `microseconds` reads it."""
Name = Annotated[
    str,
    Meta(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*(?!\n)$",
        max_length=100,
        description="letters, digits, `-` and `_`: it becomes the name of a folder",
    ),
]
KafkaName = Annotated[
    str,
    Meta(
        pattern=r"^[A-Za-z0-9._-]+(?!\n)$",
        min_length=1,
        max_length=249,
        description="letters, digits, `.`, `_` and `-`, as Kafka's topics have them",
    ),
]
Count = Annotated[int, Meta(ge=1)]
NotNegative = Annotated[int, Meta(ge=0)]
# Not `tuple[NotNegative, NotNegative]`: msgspec 0.22 crashes on the union of a bounded int and a
# tuple of fixed length, when the garbage collector visits it.
TwoNumbers = Annotated[tuple[NotNegative, ...], Meta(min_length=2, max_length=2)]
MachineCount = Annotated[int, Meta(ge=0, le=MAX_MACHINES)]
OneOrMany = str | tuple[str, ...]
"""A word, or a list of words."""


def microseconds(duration: str) -> int:
    """Return the length of `duration`, such as `5s` or `250ms`, in microseconds.

    Raises: ValueError if it is not a whole number followed by us, ms, s, m or h.
    """
    match = _DURATION.fullmatch(duration)
    if match is None:
        raise ValueError(f"not a duration such as `5s` or `250ms`: {duration!r}")
    return int(match[1]) * _UNIT_US[match[2]]


def duration_of(time_us: int) -> str:
    """Return a length of time as a file has it: in the largest unit that fits, up to seconds."""
    for unit in ("s", "ms"):
        if time_us % _UNIT_US[unit] == 0:
            return f"{time_us // _UNIT_US[unit]}{unit}"
    return f"{time_us}us"


class ZooKeeperDefinition(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The ZooKeeper ensemble; it is there if a group asks for it."""

    servers: Annotated[int, Meta(ge=1, le=9)] = 1
    """How many servers it has: `zookeeper-1`, `zookeeper-2` and so on."""
    config: ZooKeeperConfig = ZooKeeperConfig()
    """ZooKeeper's settings of its servers."""
    brokers_register: bool = False
    """Whether each broker keeps a session and an ephemeral znode, as brokers of Kafka 0.8 to 1.1
    did: then members on ZooKeeper see a broker vanish 4 to 8 s after its death. Off: the znodes of
    all brokers stand there for the whole run."""


class ClusterDefinition(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The servers, and what they run on."""

    brokers: Annotated[int, Meta(ge=1, le=FIRST_CONTROLLER_ID)] = 3
    """How many brokers there are: `broker-0`, `broker-1` and so on."""
    controllers: Annotated[int, Meta(ge=1, le=1)] = 1
    """How many controllers there are."""
    config: BrokerConfig = BrokerConfig()
    """Kafka's settings of brokers and controllers."""
    guards: Guards = Guards()
    """Kafka's safety checks as switches, all on: off shows what each prevents."""
    java_coordinator: JavaSwitches = JavaSwitches()
    """What the coordinator does as Kafka's Java one does, switch by switch; all off."""
    zookeeper: ZooKeeperDefinition = ZooKeeperDefinition()
    """The ZooKeeper ensemble; it is there if a group asks for it."""
    links: LinkModel = LinkModel()
    """The latency of the network in virtual time."""
    starts: Literal["apart", "together"] = "apart"
    """When nodes start in virtual time: `apart`, at moments that the seed draws, or `together`, all
    at once, with every timer in phase; then it is the plan alone that decides what meets what."""
    costs: CostModel = CostModel()
    """What loading a coordinator's log, and acting on metadata, takes in virtual time."""
    storage: StorageModel = StorageModel()
    """What a power loss leaves of the disks."""
    machines: MachineCount | Annotated[tuple[tuple[str, ...], ...], Meta(min_length=1)] = 0
    """The machines that the nodes are on: how many, or for each the names of its nodes, such as
    `[[broker-0, controller-100], [broker-1, consumer-readers-0], [broker-2]]`. Nodes that are not
    named are spread in turn, brokers first. 0: no fault of a machine can be planned."""
    late_notices: Duration = "0s"
    """For how long each broker is told again of every leadership that it gained or lost, as by
    ZooKeeper's controllers, whose requests could come late (KAFKA-10614); 0: it is told once."""
    metrics_interval: Duration = "10s"
    """How often brokers and controllers write their metrics into the trace; 0: never."""


class TopicDefinition(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename=kafka_name
):
    """One topic; its replicas are spread evenly, the preferred leader of partition p is p mod n."""

    partitions: Annotated[int, Meta(ge=1, le=MAX_PARTITIONS)]
    """How many partitions it has: `orders-0`, `orders-1` and so on."""
    replication_factor: Count
    """On how many brokers each partition lies."""
    config: TopicConfig = TopicConfig()
    """Kafka's settings of the topic; what is not said is the brokers'."""


class LateMembersDefinition(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Members that join while the run goes on."""

    at: Duration
    """When they are started, from the steady state on."""
    members: Annotated[int, Meta(ge=1, le=MAX_MEMBERS)]
    """How many they are."""
    config: ConsumerConfig | None = None
    """Their settings; what is not said is the group's."""


class GroupDefinition(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One consumer group: its members are alike."""

    members: Annotated[int, Meta(ge=0, le=MAX_MEMBERS)]
    """How many members it has from the start; their indices count from 0."""
    coordination: Literal["coordinator", "zookeeper"] = "coordinator"
    """Who decides which member reads what: the group coordinator, or, as before it, each member for
    itself, from what it reads in ZooKeeper (Kafka 0.8.2 to 1.1)."""
    topics: Annotated[tuple[str, ...], Meta(min_length=1)]
    """The topics that its members subscribe to."""
    config: ConsumerConfig = ConsumerConfig()
    """Kafka's settings of its members."""
    zookeeper: ZooKeeperConsumerConfig = ZooKeeperConsumerConfig()
    """Kafka's settings of members on ZooKeeper, beside `coordination: zookeeper`."""
    topic_filter: Literal["none", "white_list", "black_list"] = "none"
    """How members on ZooKeeper subscribe to `topics`: each by its name, by a filter that names them
    all, or by one that names all others. Members with a filter read the list of topics, too."""
    must_hold: tuple[Literal["one_owner_processes", "positions_never_go_back"], ...] = ()
    """Checks of what neither design promises, to be judged for this group; otherwise each is only
    measured, and only where a group lives on ZooKeeper or asks for it."""
    late_members: tuple[LateMembersDefinition, ...] = ()
    """Members that join later, beside those; their indices follow."""
    spare_members: Annotated[int, Meta(ge=0, le=MAX_MEMBERS)] = 0
    """How many places it has beyond its members, for those that a `scale` starts or that a
    `rollout` has too many for a while; their indices come last."""
    poll_timeout_ms: Count = 50
    """How long each poll of the application waits for records, in milliseconds."""
    process_us: NotNegative | TwoNumbers = 0
    """What the application takes for each record, in microseconds; of two numbers, evenly drawn
    between them for each. A member rejoins only when the batch of its last poll is processed."""
    commit_interval_ms: Count | None = None
    """How often the application commits (commitAsync), in milliseconds; not set: it never does."""
    transactional: bool = False
    """Whether members commit in transactions, each with a producer of its own (KIP-447)."""
    transaction_timeout_ms: Count = 60_000
    """transaction.timeout.ms of these producers: a transaction left open is aborted after it, and
    until then nobody may read the offsets that it committed."""
    isolate: bool = False
    """Whether every member has a process of its own on Ray."""

    @property
    def commits(self) -> bool:
        """Whether members commit to the coordinator, by themselves or by Kafka's auto-commit."""
        if self.is_on_zookeeper:
            return False
        return self.commit_interval_ms is not None or self.config.enable_auto_commit

    @property
    def process_bounds_us(self) -> tuple[int, int]:
        """The least and the most that the application takes for a record, in microseconds."""
        cost = self.process_us
        return (cost[0], cost[1]) if isinstance(cost, tuple) else (cost, cost)

    @property
    def is_on_zookeeper(self) -> bool:
        """Whether its members compute the assignment for themselves."""
        return self.coordination == "zookeeper"

    @property
    def places_total(self) -> int:
        """The number of its members and of its spare places."""
        return self.members_total + self.spare_members

    @property
    def members_total(self) -> int:
        """The number of its members, those included that join late."""
        return self.members + sum(late.members for late in self.late_members)

    def settings_of_places(self) -> tuple[tuple[ConsumerConfig, bool], ...]:
        """Return each place's settings, and whether somebody starts it during the run, by index."""
        spare = ((self.config, True),) * self.spare_members
        members = ((config, at_us is not None) for config, at_us in self.settings_of_members())
        return tuple(
            (_with_index(config, index), starts_later)
            for index, (config, starts_later) in enumerate((*members, *spare))
        )

    def settings_of_members(self) -> tuple[tuple[ConsumerConfig, int | None], ...]:
        """Return each member's settings and when it joins, by index.

        Units: microseconds from the steady state; None for one that is there from the start.
        """
        first = ((self.config, None),) * self.members
        late = tuple(
            (each.config or self.config, microseconds(each.at))
            for each in self.late_members
            for _ in range(each.members)
        )
        return tuple(
            (_with_index(config, index), at_us)
            for index, (config, at_us) in enumerate((*first, *late))
        )


class ProducerDefinition(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One producer: numbered records at a steady rate, round robin over the partitions."""

    topic: str
    """The topic that it writes to."""
    records_per_second: Annotated[float, Meta(gt=0, le=MAX_RECORDS_PER_SECOND)]
    """How many records it writes to the whole topic."""
    config: ProducerConfig = ProducerConfig()
    """Kafka's settings of the producer."""


class PreloadDefinition(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Commit records that stand in the offsets partition of a group before the run begins."""

    group: str
    """The group whose partition of `__consumer_offsets` it is."""
    commit_records: Count
    """How many records a new coordinator has to load beside the group's own."""
    deleted: bool = False
    """Whether they are offsets of this very group, of its topics, that were deleted again: after
    them each has a tombstone."""
    unreadable: bool = False
    """Whether behind them stands a record that no coordinator can read: its load fails, and it
    serves the partition without any group, or not at all (failed_load_refuses)."""


class FaultDefinition(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    rename={"from_": "from"},
):
    """One line of the plan: a fault and its undoing.

    Shape: faults of links have `from` and `to`, all others `target`.
    """

    at: Duration
    """When it is injected, from the steady state on."""
    fault: Annotated[str, Meta(description="the name of a fault", examples=["crash"])]
    """What is done."""
    target: str | None = None
    """Whom it hits: a role, resolved when the fault fires."""
    from_: OneOrMany | None = None
    """Of a fault of links: what it is about, one target or a list."""
    to: OneOrMany | None = None
    """Of a fault of links: what that is kept from, one target or a list."""
    duration: Duration | None = None
    """How long it lasts; not set: until everything is healed at the end."""
    every: Duration | None = None
    """How far apart repetitions are; beside `repeat`."""
    repeat: Annotated[int, Meta(ge=1, le=MAX_REPEATS)] | None = None
    """How often it is injected in all; beside `every`."""
    args: dict[str, Any] = {}  # the fault's own struct says what it may hold (`faults`)
    """What the fault takes beside."""


class RunDefinition(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How long the stages of a run may take."""

    steady_state_timeout: Duration = "60s"
    """How long all groups may take to become Stable, or the run proves nothing."""
    after_faults: Duration = "10s"
    """How long the cluster is watched after the last fault was injected or undone."""
    liveness_timeout: Duration = "60s"
    """How long all groups may take to be Stable again after everything was healed."""
    recovery_timeout: Duration = "0s"
    """How long the run then goes on, at most, until every ISR is whole, preferred leaders lead, no
    transaction waits for its end and every partition is read again; 0s: it ends with the groups."""
    machine_silent_after: Duration = "3s"
    """On Ray: silence after which the run names a machine and no longer waits for its answers."""
    machine_lost_after: Duration = "20s"
    """On Ray: silence after which a machine is lost, and its nodes start on others."""


class Experiment(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A whole experiment file."""

    version: Annotated[int, Meta(ge=FORMAT_VERSION, le=FORMAT_VERSION)]
    """The version of this format."""
    name: Name
    """The experiment's name; its runs lie in a folder of that name."""
    question: str
    """What one wants to know, in a sentence."""
    expect: str
    """What one expects, and why: read it again beside the report."""
    cluster: ClusterDefinition = ClusterDefinition()
    """The servers, and what they run on."""
    topics: dict[KafkaName, TopicDefinition]
    """The topics, by name; `__consumer_offsets` is there anyway."""
    groups: dict[KafkaName, GroupDefinition]
    """The consumer groups, by name."""
    producers: tuple[ProducerDefinition, ...] = ()
    """The producers."""
    offsets_log: tuple[PreloadDefinition, ...] = ()
    """What stands in `__consumer_offsets` before the run: a load then takes longer."""
    faults: tuple[FaultDefinition, ...] = ()
    """The plan: what is broken, when, and for how long."""
    run: RunDefinition = RunDefinition()
    """How long the stages of the run may take."""
    checks: tuple[str, ...] = ()
    """The promises that are checked; none means all."""
    links: dict[str, str] = {}
    """Where to read more: a title and its address."""
    replay: ReplayStamp | None = None
    """The run that this file was written from; `run` takes its seed from here."""


def machine_layout(experiment: Experiment) -> MachineLayout | None:
    """Return which nodes share a machine; None if the file names no machines.

    Names that are no node's, and those of a node that has its machine, are passed over: the file's
    rules refuse them (`rules.cluster`).
    """
    asked = experiment.cluster.machines
    if not asked:
        return None
    nodes = placing_order(experiment)
    if isinstance(asked, int):
        return spread_nodes(nodes, asked)
    free = dict.fromkeys(nodes)
    placed: list[list[NodeName]] = [[] for _ in asked]
    for index, names in enumerate(asked):
        for name in map(NodeName, names):
            if name in free:
                del free[name]
                placed[index].append(name)
    return spread_nodes(nodes, len(asked), placed)


def placing_order(experiment: Experiment) -> tuple[NodeName, ...]:
    """Return the name of every node in the order in which they are put on machines."""
    cluster = experiment.cluster
    return (
        *(broker_name(index) for index in range(cluster.brokers)),
        *(zookeeper_name(server_id) for server_id in zookeeper_ids(experiment)),
        *(controller_name(FIRST_CONTROLLER_ID + index) for index in range(cluster.controllers)),
        *(
            consumer_name(group_id, index)
            for group_id, group in experiment.groups.items()
            for index in range(group.places_total)
        ),
        *(producer_name(index) for index in range(len(experiment.producers))),
    )


def zookeeper_groups(experiment: Experiment) -> dict[str, GroupDefinition]:
    """Return the groups that live on ZooKeeper."""
    return {
        group_id: group for group_id, group in experiment.groups.items() if group.is_on_zookeeper
    }


def coordinated_groups(experiment: Experiment) -> dict[str, GroupDefinition]:
    """Return the groups that have a coordinator."""
    return {
        group_id: group
        for group_id, group in experiment.groups.items()
        if not group.is_on_zookeeper
    }


def zookeeper_ids(experiment: Experiment) -> tuple[int, ...]:
    """Return the numbers of the ensemble's servers, from 1; none if no group asks for it."""
    servers = experiment.cluster.zookeeper.servers if zookeeper_groups(experiment) else 0
    return tuple(range(1, servers + 1))


def consumer_name(group_id: str, index: int) -> NodeName:
    """Return the node name of member `index` of `group_id`."""
    return NodeName(f"consumer-{group_id}-{index}")


def producer_name(index: int) -> NodeName:
    """Return the node name of the producer that stands at `index` in the file."""
    return NodeName(f"producer-{index}")


def group_partition(experiment: Experiment, group_id: str) -> int:
    """Return the index of the offsets partition that `group_id` belongs to."""
    return partition_for(group_id, experiment.cluster.config.offsets_topic_num_partitions)


def internal_topics(experiment: Experiment) -> dict[str, tuple[int, int]]:
    """Return Kafka's own topics that the experiment needs: partitions and replication factor."""
    config = experiment.cluster.config
    topics = {
        CONSUMER_OFFSETS: (
            config.offsets_topic_num_partitions,
            config.offsets_topic_replication_factor,
        )
    }
    if any(group.transactional for group in experiment.groups.values()):
        topics[TRANSACTION_STATE] = (
            config.transaction_state_log_num_partitions,
            config.transaction_state_log_replication_factor,
        )
    return topics


def _topic_filter(group: GroupDefinition, experiment: Experiment) -> TopicFilterSpec | None:
    """Return the filter by which a group's members find `topics`; None: they name each."""
    match group.topic_filter:
        case "none":
            return None
        case "white_list":
            named = sorted(group.topics)
        case "black_list":
            named = sorted(set(experiment.topics) - set(group.topics))
    regex = "|".join(name.replace(".", "[.]") for name in named)
    return TopicFilterSpec(pattern=group.topic_filter, regex=regex)


def to_cluster_spec(experiment: Experiment) -> ClusterSpec:
    """Return the cluster that `experiment` describes, as both runtimes build it."""
    cluster = experiment.cluster
    config = cluster.config
    layout = machine_layout(experiment)
    settings = {
        CONSUMER_OFFSETS: TopicConfig(cleanup_policy="compact"),
        TRANSACTION_STATE: TopicConfig(
            cleanup_policy="compact",
            min_insync_replicas=config.transaction_state_log_min_isr,
            unclean_leader_election_enable=False,
        ),
    }
    return ClusterSpec(
        controllers=tuple(
            ControllerSpec(node_id=FIRST_CONTROLLER_ID + index)
            for index in range(cluster.controllers)
        ),
        brokers=tuple(BrokerSpec(broker_id=index) for index in range(cluster.brokers)),
        topics=(
            *(
                TopicSpec(
                    name=name,
                    partitions=partitions,
                    replication_factor=replication_factor,
                    config=settings[name],
                )
                for name, (partitions, replication_factor) in internal_topics(experiment).items()
            ),
            *(
                TopicSpec(
                    name=name,
                    partitions=topic.partitions,
                    replication_factor=topic.replication_factor,
                    config=topic.config,
                )
                for name, topic in experiment.topics.items()
            ),
        ),
        consumers=tuple(
            _consumer(group_id, index, group, config, starts_later=starts_later)
            for group_id, group in coordinated_groups(experiment).items()
            for index, (config, starts_later) in enumerate(group.settings_of_places())
        ),
        zookeeper_consumers=tuple(
            ZooKeeperConsumerSpec(
                name=consumer_name(group_id, index),
                group_id=group_id,
                index=index,
                topics=group.topics,
                config=group.zookeeper,
                topic_filter=_topic_filter(group, experiment),
                process_us=group.process_bounds_us[0],
                process_spread_us=group.process_bounds_us[1] - group.process_bounds_us[0],
                isolate=group.isolate,
                starts_later=starts_later,
            )
            for group_id, group in zookeeper_groups(experiment).items()
            for index, (_config, starts_later) in enumerate(group.settings_of_places())
        ),
        zookeepers=tuple(
            ZooKeeperSpec(server_id=server_id) for server_id in zookeeper_ids(experiment)
        ),
        zookeeper_config=cluster.zookeeper.config,
        brokers_register_in_zookeeper=cluster.zookeeper.brokers_register,
        producers=tuple(
            ProducerSpec(
                name=producer_name(index),
                topic=producer.topic,
                records_per_second=producer.records_per_second,
                config=producer.config,
            )
            for index, producer in enumerate(experiment.producers)
        ),
        broker_config=config,
        guards=cluster.guards,
        java=cluster.java_coordinator,
        preload=tuple(
            PreloadSpec(
                partition=group_partition(experiment, preload.group),
                commit_records=preload.commit_records,
                deleted=_deleted_offsets(experiment, preload.group) if preload.deleted else (),
                unreadable=preload.unreadable,
            )
            for preload in experiment.offsets_log
        ),
        links=cluster.links,
        costs=cluster.costs,
        storage=cluster.storage,
        late_notices_us=microseconds(cluster.late_notices),
        metrics_interval_us=microseconds(cluster.metrics_interval),
        machines=() if layout is None else layout.machines,
    )


def _deleted_offsets(experiment: Experiment, group_id: str) -> tuple[tuple[str, str, int], ...]:
    """Return every partition that the group reads, with the group's name."""
    return tuple(
        (group_id, topic, partition)
        for topic in experiment.groups[group_id].topics
        for partition in range(experiment.topics[topic].partitions)
    )


def _consumer(
    group_id: str,
    index: int,
    group: GroupDefinition,
    config: ConsumerConfig,
    *,
    starts_later: bool,
) -> ConsumerSpec:
    return ConsumerSpec(
        name=consumer_name(group_id, index),
        group_id=group_id,
        index=index,
        topics=group.topics,
        config=config,
        poll_timeout_ms=group.poll_timeout_ms,
        process_us=group.process_bounds_us[0],
        process_spread_us=group.process_bounds_us[1] - group.process_bounds_us[0],
        commit_interval_ms=group.commit_interval_ms,
        transactional=group.transactional,
        transaction_timeout_ms=group.transaction_timeout_ms,
        isolate=group.isolate,
        starts_later=starts_later,
    )


def _with_index(config: ConsumerConfig, index: int) -> ConsumerConfig:
    instance = config.group_instance_id
    if instance is None or MEMBER_INDEX not in instance:
        return config
    return msgspec.structs.replace(
        config, group_instance_id=instance.replace(MEMBER_INDEX, str(index))
    )
