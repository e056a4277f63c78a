"""The structs of an experiment file, and the cluster that a file describes.

The docstring of a field is shown to users, in the JSON Schema and in the reference page. The
structs only say what a file may contain. `loader` reads the YAML, finds line numbers, and suggests
corrections. The package `chaos.faults` has the behaviour of faults. The structs of Kafka's settings
come from `protocol.config`, so these settings have Kafka's names, defaults and bounds.

All times in the plan of faults count from the steady state, which is the moment when all groups are
Stable for the first time.
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
    CLUSTER_METADATA,
    CONSUMER_OFFSETS,
    TRANSACTION_STATE,
    NodeName,
    broker_name,
    controller_name,
    zookeeper_name,
)
from protocol.partitioner import partition_for

FORMAT_VERSION = 1
"""Version of the format of experiment files."""
MEMBER_INDEX = "{index}"
"""Placeholder of the member's index in a `group.instance.id`, so that all ids are different."""
MAX_REPEATS = 1_000
MAX_MEMBERS = 10_000
MAX_PARTITIONS = 10_000
MAX_MACHINES = 100
MAX_RECORDS_PER_SECOND = 1_000_000
"""Upper bounds of numbers in a file. A larger number is probably a mistake.

It would also fill the memory.
"""
FIRST_CONTROLLER_ID = 100
"""Id of the first controller. All ids of brokers are smaller, so an id alone identifies a node."""

# The patterns below end with `(?!\n)$`. In Python `$` alone would also match before a line break at
# the end of the text.
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
"""A length of time, such as `5s`. `microseconds` returns its value."""
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
# This is not written as `tuple[NotNegative, NotNegative]`, because of a bug in msgspec 0.22. It
# crashes when the garbage collector visits the union of a bounded int and a tuple of fixed length.
TwoNumbers = Annotated[tuple[NotNegative, ...], Meta(min_length=2, max_length=2)]
MachineCount = Annotated[int, Meta(ge=0, le=MAX_MACHINES)]
OneOrMany = str | tuple[str, ...]
"""A single word, or a list of words."""


def microseconds(duration: str) -> int:
    """Return the length of `duration`, such as `5s` or `250ms`, in microseconds.

    Raises: ValueError if `duration` is not a whole number followed by us, ms, s, m or h.
    """
    match = _DURATION.fullmatch(duration)
    if match is None:
        raise ValueError(f"not a duration such as `5s` or `250ms`: {duration!r}")
    return int(match[1]) * _UNIT_US[match[2]]


def duration_of(time_us: int) -> str:
    """Return a length of time as a file has it, such as `5s`.

    Of the units s, ms and us, the largest is used in which the length is a whole number.
    """
    for unit in ("s", "ms"):
        if time_us % _UNIT_US[unit] == 0:
            return f"{time_us // _UNIT_US[unit]}{unit}"
    return f"{time_us}us"


class ZooKeeperDefinition(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The ZooKeeper ensemble; it is started if a group is on ZooKeeper."""

    servers: Annotated[int, Meta(ge=1, le=9)] = 1
    """Number of servers of the ensemble: `zookeeper-1`, `zookeeper-2` and so on."""
    config: ZooKeeperConfig = ZooKeeperConfig()
    """ZooKeeper's settings of the servers."""
    brokers_register: bool = False
    """True: each broker keeps a session and an ephemeral znode, as brokers of Kafka 0.8 to 1.1 did.
    Members on ZooKeeper then see the znode of a dead broker vanish after 4 to 8 s. False: the
    znodes of all brokers exist for the whole run."""


class ClusterDefinition(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The servers, their network, disks and machines."""

    brokers: Annotated[int, Meta(ge=1, le=FIRST_CONTROLLER_ID)] = 3
    """Number of brokers: `broker-0`, `broker-1` and so on."""
    controllers: Annotated[int, Meta(ge=1, le=1)] = 1
    """Number of controllers."""
    config: BrokerConfig = BrokerConfig()
    """Kafka's settings of brokers and controllers."""
    guards: Guards = Guards()
    """Switches of Kafka's safety checks, all on; switching one off shows what it prevents."""
    java_coordinator: JavaSwitches = JavaSwitches()
    """Switches for behaviour of Kafka's Java coordinator, all off."""
    zookeeper: ZooKeeperDefinition = ZooKeeperDefinition()
    """The ZooKeeper ensemble; it is started if a group is on ZooKeeper."""
    links: LinkModel = LinkModel()
    """The latency of the network in virtual time."""
    starts: Literal["apart", "together"] = "apart"
    """Start of the nodes in virtual time. `apart`: at moments that the seed draws. `together`: all
    at once, with every timer in phase, so that only the plan decides which events coincide."""
    costs: CostModel = CostModel()
    """Time that a load of a coordinator's log, and a change of metadata, take in virtual time."""
    storage: StorageModel = StorageModel()
    """Model of the disks: what remains on them after a power loss."""
    machines: MachineCount | Annotated[tuple[tuple[str, ...], ...], Meta(min_length=1)] = 0
    """Machines of the nodes: their number, or for each the names of its nodes, such as
    `[[broker-0, controller-100], [broker-1, consumer-readers-0], [broker-2]]`. Nodes that are not
    named are spread in turn, brokers first. 0: no fault of a machine can be planned."""
    late_notices: Duration = "0s"
    """Time for which each broker gets repeated notices of a leadership that it gained or lost, as
    from ZooKeeper's controllers, whose requests could arrive late (KAFKA-10614). 0: no repetition.
    """
    metrics_interval: Duration = "10s"
    """Interval at which brokers and controllers write their metrics into the trace. 0: never."""


class TopicDefinition(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename=kafka_name
):
    """One topic, spread evenly: of n brokers, p mod n is the preferred leader of partition p."""

    partitions: Annotated[int, Meta(ge=1, le=MAX_PARTITIONS)]
    """Number of partitions: `orders-0`, `orders-1` and so on."""
    replication_factor: Count
    """Number of replicas of each partition, each on another broker."""
    config: TopicConfig = TopicConfig()
    """Kafka's settings of the topic; a missing setting has the brokers' value."""


class LateMembersDefinition(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Members that join during the run."""

    at: Duration
    """Time of the start of these members, from the steady state on."""
    members: Annotated[int, Meta(ge=1, le=MAX_MEMBERS)]
    """Number of these members."""
    config: ConsumerConfig | None = None
    """Kafka's settings of these members; a missing setting has the group's value."""


class GroupDefinition(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One consumer group; all members have the same settings, except late members."""

    members: Annotated[int, Meta(ge=0, le=MAX_MEMBERS)]
    """Number of members from the start; their indices count from 0."""
    coordination: Literal["coordinator", "zookeeper"] = "coordinator"
    """Design of the assignment. `coordinator`: through the group coordinator. `zookeeper`: each
    member computes its own share from znodes, as in Kafka 0.8.2 to 1.1."""
    topics: Annotated[tuple[str, ...], Meta(min_length=1)]
    """Topics to which the members subscribe."""
    config: ConsumerConfig = ConsumerConfig()
    """Kafka's settings of the members."""
    zookeeper: ZooKeeperConsumerConfig = ZooKeeperConsumerConfig()
    """Kafka's settings of members on ZooKeeper, beside `coordination: zookeeper`."""
    topic_filter: Literal["none", "white_list", "black_list"] = "none"
    """Subscription of members on ZooKeeper. `none`: each topic by its name. `white_list`: a filter
    that names all `topics`. `black_list`: a filter that names all others. Members with a filter
    also read the list of topics."""
    must_hold: tuple[Literal["one_owner_processes", "positions_never_go_back"], ...] = ()
    """Checks to judge for this group although neither design of a group promises them. For other
    groups such a check only measures, and only if a group is on ZooKeeper or names the check."""
    late_members: tuple[LateMembersDefinition, ...] = ()
    """Members that join during the run; their indices follow those of `members`."""
    spare_members: Annotated[int, Meta(ge=0, le=MAX_MEMBERS)] = 0
    """Number of places for further members: a `scale` may start members there, and a `rollout` with
    surge runs successors there for a while. The indices of these places come last."""
    poll_timeout_ms: Count = 50
    """Longest time that a poll of the application waits for records, in milliseconds."""
    process_us: NotNegative | TwoNumbers = 0
    """Time that the application takes for each record, in microseconds. If two numbers are given,
    the time of each record is drawn evenly between them. A member rejoins only after processing the
    batch of its last poll."""
    commit_interval_ms: Count | None = None
    """Interval of the application's commits (commitAsync), in milliseconds; without this setting
    the application never commits."""
    commit_metadata: tuple[str, ...] = ()
    """Texts that these commits store beside each offset, in turn. The brokers refuse a text longer
    than `offset.metadata.max.bytes`, with the whole commit."""
    transactional: bool = False
    """True: members commit in transactions, each with a producer of its own (KIP-447)."""
    transaction_timeout_ms: Count = 60_000
    """transaction.timeout.ms of these producers: a transaction that stays open is aborted after
    this time, and until then its committed offsets cannot be read."""
    isolate: bool = False
    """True: on Ray every member has a process of its own."""

    @property
    def commits(self) -> bool:
        """True if members commit to a coordinator, by the application or by auto-commit."""
        if self.is_on_zookeeper:
            return False
        return self.commit_interval_ms is not None or self.config.enable_auto_commit

    @property
    def metadata_lengths(self) -> tuple[int, ...]:
        """Length of each text of `commit_metadata`, in UTF-16 units, as Kafka's limit counts it."""
        texts = self.commit_metadata
        return tuple(len(text.encode("utf-16-le", "surrogatepass")) // 2 for text in texts)

    @property
    def process_bounds_us(self) -> tuple[int, int]:
        """The shortest and the longest time for a record, in microseconds."""
        cost = self.process_us
        return (cost[0], cost[1]) if isinstance(cost, tuple) else (cost, cost)

    @property
    def is_on_zookeeper(self) -> bool:
        """True if each member computes its own share from ZooKeeper."""
        return self.coordination == "zookeeper"

    @property
    def places_total(self) -> int:
        """Number of the group's members, including late members, and of its spare places."""
        return self.members_total + self.spare_members

    @property
    def members_total(self) -> int:
        """Number of the group's members, including late members."""
        return self.members + sum(late.members for late in self.late_members)

    def settings_of_places(self) -> tuple[tuple[ConsumerConfig, bool], ...]:
        """Return the settings of each place, in the order of the indices.

        A place is a member or a spare place for a further member. The second value is True if the
        cluster does not start this member at first.
        """
        spare = ((self.config, True),) * self.spare_members
        members = ((config, at_us is not None) for config, at_us in self.settings_of_members())
        return tuple(
            (_with_index(config, index), starts_later)
            for index, (config, starts_later) in enumerate((*members, *spare))
        )

    def settings_of_members(self) -> tuple[tuple[ConsumerConfig, int | None], ...]:
        """Return the settings and the start time of each member, in the order of the indices.

        The time is in microseconds from the steady state. It is None for members that start with
        the cluster.
        """
        first = ((self.config, None),) * self.members
        late = tuple(
            (batch.config or self.config, microseconds(batch.at))
            for batch in self.late_members
            for _ in range(batch.members)
        )
        return tuple(
            (_with_index(config, index), at_us)
            for index, (config, at_us) in enumerate((*first, *late))
        )


class ProducerDefinition(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One producer: numbered records at a steady rate, round robin over the partitions."""

    topic: str
    """Topic of the producer's records."""
    records_per_second: Annotated[float, Meta(gt=0, le=MAX_RECORDS_PER_SECOND)]
    """Records per second to the whole topic."""
    config: ProducerConfig = ProducerConfig()
    """Kafka's settings of the producer."""


class PreloadDefinition(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Commit records in the offsets partition of a group before the run begins."""

    group: str
    """Group whose partition of `__consumer_offsets` gets the records."""
    commit_records: Count
    """Number of records that a new coordinator must load, in addition to the group's own."""
    deleted: bool = False
    """True: the records are offsets of this group and its topics, each followed by a tombstone, as
    after a deletion."""
    unreadable: bool = False
    """True: a further record follows, which no coordinator can read. A coordinator's load fails
    there. Then the coordinator serves the partition without any group, or not at all
    (failed_load_refuses)."""


class FaultDefinition(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    rename={"from_": "from"},
):
    """One line of the plan: a fault and its undoing.

    Faults of links have `from` and `to`, all others `target`.
    """

    at: Duration
    """Time of the injection, from the steady state on."""
    fault: Annotated[str, Meta(description="the name of a fault", examples=["crash"])]
    """Name of the fault."""
    target: str | None = None
    """Target of the fault: a role, which is resolved at the injection."""
    from_: OneOrMany | None = None
    """Targets at one end of the links that the fault hits: one, or a list. A one-way fault hits
    only the messages that these targets send."""
    to: OneOrMany | None = None
    """Targets at the other end of the links that the fault hits: one, or a list."""
    duration: Duration | None = None
    """Duration of the fault. A fault without a duration lasts until all faults are healed at the
    end."""
    every: Duration | None = None
    """Time between repetitions of the fault; needs `repeat`."""
    repeat: Annotated[int, Meta(ge=1, le=MAX_REPEATS)] | None = None
    """Number of injections of the fault, including the first; needs `every`."""
    args: dict[str, Any] = {}  # the fault's own struct declares the keys (`faults`)
    """Arguments of the fault."""


class RunDefinition(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Time limits of the stages of a run."""

    steady_state_timeout: Duration = "60s"
    """Longest time until all groups are Stable; after it the run proves nothing."""
    after_faults: Duration = "10s"
    """Time that the run goes on after the last fault was injected or healed."""
    liveness_timeout: Duration = "60s"
    """Longest time until all groups are Stable again after all faults were healed."""
    recovery_timeout: Duration = "0s"
    """Longest time from Stable groups until every ISR is complete, preferred leaders lead, no
    transaction is open and every partition is processed again. 0s: the run does not wait."""
    machine_silent_after: Duration = "3s"
    """On Ray: silence after which the run names a machine and no longer waits for its answers."""
    machine_lost_after: Duration = "20s"
    """On Ray: silence after which a machine is lost, and its nodes start on others."""


class Experiment(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A whole experiment file."""

    version: Annotated[int, Meta(ge=FORMAT_VERSION, le=FORMAT_VERSION)]
    """The version of this format."""
    name: Name
    """Name of the experiment, and of the folder of its runs."""
    question: str
    """Question that the experiment answers, in a sentence."""
    expect: str
    """Expected result, and the reason for it; the report shows it beside the result."""
    cluster: ClusterDefinition = ClusterDefinition()
    """The servers, their network, disks and machines."""
    topics: dict[KafkaName, TopicDefinition]
    """The topics, by name; `__consumer_offsets` always exists."""
    groups: dict[KafkaName, GroupDefinition]
    """The consumer groups, by name."""
    producers: tuple[ProducerDefinition, ...] = ()
    """The producers."""
    offsets_log: tuple[PreloadDefinition, ...] = ()
    """Records in `__consumer_offsets` before the run, which make loads take longer."""
    faults: tuple[FaultDefinition, ...] = ()
    """The plan: the faults, with their times and durations."""
    run: RunDefinition = RunDefinition()
    """Time limits of the stages of the run."""
    checks: tuple[str, ...] = ()
    """Promises to check; an empty list means all."""
    links: dict[str, str] = {}
    """Pages to read on: titles and addresses."""
    replay: ReplayStamp | None = None
    """The run from which this file was written; `run` takes its seed from here."""


def machine_layout(experiment: Experiment) -> MachineLayout | None:
    """Return the nodes of each machine; None if the file has no machines.

    This function ignores unknown names and repeated names, because the rules of the file refuse
    them (`rules.cluster`).
    """
    machines = experiment.cluster.machines
    if not machines:
        return None
    nodes = placing_order(experiment)
    if isinstance(machines, int):
        return spread_nodes(nodes, machines)
    free = dict.fromkeys(nodes)
    placed: list[list[NodeName]] = [[] for _ in machines]
    for index, names in enumerate(machines):
        for name in map(NodeName, names):
            if name in free:
                del free[name]
                placed[index].append(name)
    return spread_nodes(nodes, len(machines), placed)


def placing_order(experiment: Experiment) -> tuple[NodeName, ...]:
    """Return the name of every node, in the order in which nodes are placed on machines."""
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


def topics_with_clients(experiment: Experiment) -> set[str]:
    """Return the topics that a group reads or a producer writes."""
    read = {topic for group in experiment.groups.values() for topic in group.topics}
    return read | {producer.topic for producer in experiment.producers}


def zookeeper_groups(experiment: Experiment) -> dict[str, GroupDefinition]:
    """Return the groups on ZooKeeper."""
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
    """Return the ids of the ensemble's servers, from 1; empty if no group is on ZooKeeper."""
    servers = experiment.cluster.zookeeper.servers if zookeeper_groups(experiment) else 0
    return tuple(range(1, servers + 1))


def consumer_name(group_id: str, index: int) -> NodeName:
    """Return the node name of member `index` of `group_id`."""
    return NodeName(f"consumer-{group_id}-{index}")


def producer_name(index: int) -> NodeName:
    """Return the node name of the producer at `index` in the file's list."""
    return NodeName(f"producer-{index}")


def group_partition(experiment: Experiment, group_id: str) -> int:
    """Return the index of the offsets partition that stores `group_id`."""
    return partition_for(group_id, experiment.cluster.config.offsets_topic_num_partitions)


KAFKAS_TOPICS = frozenset({CONSUMER_OFFSETS, TRANSACTION_STATE, CLUSTER_METADATA})
"""Names of Kafka's own topics. No topic of an experiment may have such a name."""


def internal_topics(experiment: Experiment) -> dict[str, tuple[int, int]]:
    """Return (number of partitions, number of replicas) of each of Kafka's own topics.

    `__transaction_state` exists only if a group commits in transactions.
    """
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
    """Return the filter with which a group's members subscribe; None if they name the topics."""
    match group.topic_filter:
        case "none":
            return None
        case "white_list":
            named = sorted(group.topics)
        case "black_list":
            named = sorted(set(experiment.topics) - set(group.topics))
    # In a regular expression a dot matches every character. So the dots of names are put in
    # brackets.
    regex = "|".join(name.replace(".", "[.]") for name in named)
    return TopicFilterSpec(pattern=group.topic_filter, regex=regex)


def to_cluster_spec(experiment: Experiment) -> ClusterSpec:
    """Return the cluster that `experiment` describes. Every runtime builds its nodes from this."""
    cluster = experiment.cluster
    config = cluster.config
    layout = machine_layout(experiment)
    # The settings with which Kafka creates its own topics.
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
    """Return (group, topic, partition) of every partition that the group reads."""
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
        commit_metadata=group.commit_metadata,
        transactional=group.transactional,
        transaction_timeout_ms=group.transaction_timeout_ms,
        isolate=group.isolate,
        starts_later=starts_later,
    )


def _with_index(config: ConsumerConfig, index: int) -> ConsumerConfig:
    """Return `config` with the member's index in place of MEMBER_INDEX in `group.instance.id`."""
    instance = config.group_instance_id
    if instance is None or MEMBER_INDEX not in instance:
        return config
    return msgspec.structs.replace(
        config, group_instance_id=instance.replace(MEMBER_INDEX, str(index))
    )
