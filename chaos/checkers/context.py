"""CheckContext: facts about an experiment that checkers need and the trace does not have.

The trace is the run's record of events, one row each. It shows what the nodes did, but not what
their settings allowed them to do. For example, the trace shows that a group was without a
coordinator for 40 s. Whether this is too long depends on timeouts that stand in the experiment
file. The function `context_of` (in `registry`) computes a CheckContext from that file.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from cluster.client.consumer.membership import JOIN_GROUP_EXTRA_MS
from protocol.config import BrokerConfig
from protocol.ids import TRANSACTION_STATE
from protocol.trace import TraceRow

COPY_US = 5_000_000
"""Time that a follower needs to copy the records that it missed, with a wide margin.

Clusters in experiments are small, and a follower misses a few minutes of records at most.
"""
HEALED_STAGE = "liveness"
"""Name of the stage of a run that begins when all faults have ended and every broker is reachable.

In this stage the run waits until all groups are live again: stable, and with a new commit.
"""
REQUEST_TIMEOUT_US = 30_000_000
"""Time after which a broker gives up a request to the controller: Kafka's request.timeout.ms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupExpectation:
    """Members, partitions and timeouts of one group.

    Members of a group may have different settings. Where a field does not say otherwise, it has the
    largest value of any member. The default times are Kafka's. Partitions are named as in the
    trace, such as `orders-0`.
    """

    consumers: tuple[str, ...]
    """Node names of the members."""
    offsets_partition: str
    """The partition of `__consumer_offsets` that stores the group."""
    commits: bool
    """True if the members commit offsets."""
    late: tuple[str, ...] = ()
    """Members in `consumers` that the run starts later than the cluster.

    Such a consumer counts as a member only from its row NODE_STARTED on.
    """
    session_timeout_us: int = 45_000_000
    heartbeat_interval_us: int = 3_000_000
    eviction_us: int = 45_000_000
    """Shortest time after which a coordinator may remove a silent member.

    It is the minimum of `session.timeout.ms` and `max.poll.interval.ms` over all members.
    """
    max_poll_interval_us: int = 300_000_000
    """The shortest `max.poll.interval.ms` of any member."""
    request_timeout_us: int = 30_000_000
    retry_backoff_max_us: int = 1_000_000
    application_us: int = 50_000
    """Longest time that a member spends between two polls.

    It is the time in which the application processes a full batch of `max.poll.records` records.
    """
    transaction_partitions: tuple[str, ...] = ()
    """The partitions of `__transaction_state` that store the members' transactional ids.

    Empty if the group does not commit in transactions.
    """
    partitions: tuple[str, ...] = ()
    """The partitions of the group's topics."""
    rebalance_timeout_us: int = 300_000_000
    """The longest `max.poll.interval.ms` of any member.

    Kafka's clients send this setting as their rebalance timeout.
    """
    commit_patience_us: int = 60_000_000
    """Shortest time for which a member waits for its last commit before it revokes partitions.

    It is the minimum of `default.api.timeout.ms` and `max.poll.interval.ms` over all members.
    """
    same_assignors: bool = True
    """True if all members support the same assignors; their order of preference may differ."""
    has_long_metadata: bool = False
    """True if some commits carry more metadata than `offset.metadata.max.bytes` allows."""

    @property
    def coordinator_partitions(self) -> tuple[str, ...]:
        """Partitions whose leaders are the coordinators of the group and of its transactions."""
        return (self.offsets_partition, *self.transaction_partitions)

    @property
    def join_us(self) -> int:
        """Timeout of a member's JoinGroup, unless `request.timeout.ms` is longer."""
        return self.rebalance_timeout_us + JOIN_GROUP_EXTRA_MS * 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ZooKeeperGroupExpectation:
    """Members of a group on ZooKeeper, by node name, and their timeouts.

    The default times are Kafka's.
    """

    consumers: tuple[str, ...]
    session_timeout_us: int = 6_000_000
    """The session timeout that the ensemble grants."""
    brokers: int = 3
    """Number of brokers. A consumer asks one after the other for the leader of a partition."""
    socket_timeout_us: int = 30_000_000
    fetch_wait_us: int = 100_000
    """`fetch.wait.max.ms`, the longest time for which a broker holds a Fetch."""
    commit_interval_us: int | None = 60_000_000
    """`auto.commit.interval.ms`; None if the members do not commit automatically."""
    offsets_partition: str | None = None
    """The partition that stores the group's offsets; None if they are only in ZooKeeper."""
    offsets_timeout_us: int = 10_000_000
    """`offsets.channel.socket.timeout.ms`, the timeout of a request about offsets in Kafka."""
    offsets_backoff_us: int = 5_000_000
    """Sum of the pauses between the retries of a commit to Kafka."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerExpectation:
    """Topic, timing and `acks` of one producer."""

    name: str
    topic: str
    period_us: int
    """Longest time between two of its requests in a healthy cluster.

    The producer makes records at a fixed rate, and may hold each of them back for `linger.ms`. So
    this is the time between two records plus `linger.ms`.
    """
    request_timeout_us: int = 30_000_000
    acks_all: bool = False
    """True for `acks=all`: a record is acknowledged only when every in-sync replica has it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckContext:
    """Settings of an experiment, and the time limits that follow from them, for its checkers."""

    groups: dict[str, GroupExpectation] = field(default_factory=dict)
    """Groups with a coordinator, by name.

    A group that clients from outside have joined is left out, because such members write no rows
    into the trace.
    """
    zookeeper_groups: dict[str, ZooKeeperGroupExpectation] = field(default_factory=dict)
    """Groups on ZooKeeper, by name. They have no coordinator."""
    must_hold: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """For each group, the checks of module `unpromised` that its experiment demands of it."""
    seen_groups: tuple[str, ...] | None = None
    """Groups whose members all write rows into the trace; None if this is so for every group."""
    min_insync_replicas: int = 1
    """`min.insync.replicas` of the topic `__consumer_offsets`."""
    transaction_min_isr: int = 1
    """`min.insync.replicas` of the topic `__transaction_state`."""
    unclean_elections: bool = False
    """True if a replica that is not in sync may be elected, which may lose acknowledged records."""
    liveness_timeout_us: int = 60_000_000
    """Longest time that a group needs to make progress again when all faults have ended."""
    clock_error_us: int = 0
    """Largest difference between the clocks of two nodes."""
    isr_recovery_us: int = 120_000_000
    """Longest time that a living replica stays out of its ISR (see function `isr_recovery_us`)."""
    group_max_size: int = 2_147_483_647
    """`group.max.size`, the largest number of members of a group. The default is Kafka's."""
    leader_balance_us: int | None = None
    """Interval at which the controller elects preferred leaders; None if it never does."""
    start_bound_us: int | None = None
    """Longest time from the start to the steady state.

    None in real time, because a slow machine may need any time for the start.
    """
    in_virtual_time: bool = False
    """True if one process simulates all nodes with a clock of its own.

    The trace then has every row of every node, in the order in which they really happened.
    """
    broker_timeouts_us: dict[str, int] = field(default_factory=dict)
    """Timeouts of the requests that a broker sends, by the purpose of its connection.

    The keys are METADATA (Fetch of metadata from the controller) and REPLICA_FETCHER (Fetch of
    records from a leader). A broker's requests for other purposes have REQUEST_TIMEOUT_US.
    """
    broker_waits_us: dict[str, int] = field(default_factory=dict)
    """Longest time for which a server holds a broker's Fetch back while nothing new is there.

    The keys are the same purposes as in `broker_timeouts_us`.
    """
    producers: tuple[ProducerExpectation, ...] = ()
    recovery_timeout_us: int = 0
    """Longest time for which the run waits for the conditions that `Checker.unsettled` returns.

    The wait begins when all groups have recovered.
    """
    transaction_timeout_us: int = 60_000_000
    """Longest `transaction.timeout.ms` of any member."""
    transaction_cleanup_us: int = 10_000_000
    """Interval at which a coordinator looks for transactions that have exceeded their timeout."""
    settling_us: int = 120_000_000
    """Longest time from the end of a fault to its last consequence."""
    replica_lag_us: int = 30_000_000
    """`replica.lag.time.max.ms`."""
    offsets_retention_us: int = 10_080 * 60_000_000
    """`offsets.retention.minutes`, in microseconds. The default is Kafka's: 10,080 minutes."""

    def without_guests(self, mixed: Collection[str], all_groups: Iterable[str]) -> "CheckContext":
        """Return this context without the groups that guests have joined.

        Guests are clients from outside the experiment, which write no rows into the trace.

        - `mixed`: the groups that have both guests and consumers of the experiment.
        - `all_groups`: all groups of the experiment.
        """
        # `self.groups` would not do in place of `all_groups`, because it lacks the groups on
        # ZooKeeper. They are seen, too.
        return replace(
            self,
            groups={name: group for name, group in self.groups.items() if name not in mixed},
            seen_groups=tuple(name for name in all_groups if name not in mixed),
        )

    def is_seen(self, group: str) -> bool:
        """Return True if all members of a group write rows into the trace."""
        return self.seen_groups is None or group in self.seen_groups

    def least_in_sync(self, partition: str) -> int:
        """Return `min.insync.replicas` of a partition of one of the two topics of coordinators.

        They are `__transaction_state` and `__consumer_offsets`.
        """
        is_of_transactions = partition.startswith(f"{TRANSACTION_STATE}-")
        return self.transaction_min_isr if is_of_transactions else self.min_insync_replicas


def detail_of(row: TraceRow) -> dict[str, Any]:
    """Return a row's decoded JSON detail; `trace_schema` lists its keys for each kind of row."""
    if row.detail is None:
        return {}
    detail: dict[str, Any] = msgspec.json.decode(row.detail)
    return detail


def topic_of(partition: str | None) -> str:
    """Return the topic of a partition's printed name, such as `orders` of `orders-0`."""
    return (partition or "").rpartition("-")[0]


def isr_recovery_us(config: BrokerConfig) -> int:
    """Return the longest time that a living replica stays out of an ISR with a living leader.

    It is the sum of these waits, which may follow one another:

    1. A fetch waits on a connection that died unnoticed: `replica.socket.timeout.ms`.
    2. The follower waits before its next attempt: `replica.fetch.backoff.ms`.
    3. The follower copies the records that it lacks: COPY_US. The leader notices only at the
       follower's next fetch that it has caught up: `replica.fetch.wait.max.ms`.
    4. The leader's AlterPartition gets no answer: REQUEST_TIMEOUT_US. Meanwhile the controller may
       be replaced: twice `controller.quorum.fetch.timeout.ms`.
    5. The leader's high watermark may be held back by another replica of the ISR, which has died.
       That replica must leave the ISR first. The leader removes it when it has lagged for
       `replica.lag.time.max.ms`. It looks for such replicas at an interval of half of that setting,
       so together they take up to 1.5 times the setting.
    """
    return (
        (
            config.replica_socket_timeout_ms
            + config.replica_fetch_backoff_ms
            + config.replica_fetch_wait_max_ms
            + 2 * config.controller_quorum_fetch_timeout_ms
            + config.replica_lag_time_max_ms * 3 // 2
        )
        * 1_000
        + COPY_US
        + REQUEST_TIMEOUT_US
    )
