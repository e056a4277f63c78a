"""CheckContext: facts about an experiment that checkers need and the trace does not have.

The trace is the run's record of events, one row each. It shows what the nodes did. It does not show
the members, timeouts and limits in the experiment file. ISR means the in-sync replicas of a
partition.
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
"""Time in which a follower copies what a small cluster wrote in a few minutes, with a margin."""
HEALED_STAGE = "liveness"
"""The run's stage in which all faults are healed; it begins once every broker is reachable."""
REQUEST_TIMEOUT_US = 30_000_000
"""Time after which a broker gives up a request to the controller: Kafka's request.timeout.ms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupExpectation:
    """Members, partitions and timeouts of one group. The default times are Kafka's.

    - `consumers`: node names of the members.
    - `late`: names of the late members among them. The run starts a late member at a time of its
      plan. A late member counts as a member only after its row NODE_STARTED.
    - `offsets_partition`: the partition of `__consumer_offsets` that stores the group.
    - `commits`: True if the members commit offsets.
    - `transaction_partitions`: the partitions of `__transaction_state` that store the members'
      transactional ids; empty if the group does not commit in transactions.
    - `partitions`: the partitions of the group's topics.
    - `max_poll_interval_us`: the shortest `max.poll.interval.ms` of any member.
    - `rebalance_timeout_us`: the longest `max.poll.interval.ms` of any member.
    - `eviction_us`: the shortest time after which a coordinator may remove a silent member; the
      minimum of `session.timeout.ms` and `max.poll.interval.ms` over all members.
    - `has_long_metadata`: True if some commits carry more than `offset.metadata.max.bytes`.
    - `same_assignors`: True if each member supports the same assignors, in whatever order.
    - `application_us`: the longest time between two polls of a member, if the first poll returns a
      full batch (`max.poll.records` records) to process.
    - `commit_patience_us`: before a member gives up partitions in a rebalance, it waits for its
      commit. This is the shortest such wait of any member: the minimum of `default.api.timeout.ms`
      and `max.poll.interval.ms`.
    - Every other time is the maximum over all members.

    Partitions are named as in the trace.
    """

    consumers: tuple[str, ...]
    offsets_partition: str
    commits: bool
    late: tuple[str, ...] = ()
    session_timeout_us: int = 45_000_000
    heartbeat_interval_us: int = 3_000_000
    eviction_us: int = 45_000_000
    max_poll_interval_us: int = 300_000_000
    request_timeout_us: int = 30_000_000
    retry_backoff_max_us: int = 1_000_000
    application_us: int = 50_000
    transaction_partitions: tuple[str, ...] = ()
    partitions: tuple[str, ...] = ()
    rebalance_timeout_us: int = 300_000_000
    commit_patience_us: int = 60_000_000
    same_assignors: bool = True
    has_long_metadata: bool = False

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
    """Members of a group on ZooKeeper, by node name, and the timeout that the ensemble grants."""

    consumers: tuple[str, ...]
    session_timeout_us: int = 6_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerExpectation:
    """Topic, timing and `acks` of one producer.

    `period_us` is the longest time between two of its requests in a healthy cluster: the time
    between two records, plus linger.ms. `acks_all`: True if its records count as acknowledged only
    when every in-sync replica has them.
    """

    name: str
    topic: str
    period_us: int
    request_timeout_us: int = 30_000_000
    acks_all: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckContext:
    """Settings and bounds of an experiment, for its checkers.

    Groups:
    - `groups`: groups with a coordinator. A group that clients from outside have joined is left
      out, because such members write no trace rows.
    - `zookeeper_groups`: groups on ZooKeeper, which have no coordinator.
    - `seen_groups`: names of the groups whose members all write trace rows; None: all groups.
    - `must_hold`: by group, the names of the checks that this group demands although neither
      Kafka's coordinator nor ZooKeeper promises them (module `unpromised`).

    Cluster:
    - `group_max_size`: `group.max.size`, the largest number of members of a group.
    - `min_insync_replicas`: `min.insync.replicas` of the topic `__consumer_offsets`, the number of
      in-sync replicas without which an append fails.
    - `transaction_min_isr`: `min.insync.replicas` of the topic `__transaction_state`.
    - `unclean_elections`: True if a replica that is not in sync may be elected. Acknowledged
      records may then be lost.

    Times:
    - `in_virtual_time`: True if the trace has every row of every node, in the order of the run.
    - `clock_error_us`: largest difference between the clocks of two nodes.
    - `start_bound_us`: longest time from the start to the steady state; None in real time, where a
      machine may be slow.
    - `settling_us`: longest time from the end of a fault to its last consequence.
    - `isr_recovery_us`: longest time that a living replica stays out of its ISR (see the function
      `isr_recovery_us`).
    - `replica_lag_us`: `replica.lag.time.max.ms`.
    - `offsets_retention_us`: `offsets.retention.minutes`.
    - `leader_balance_us`: interval in which preferred leaders are elected; None: never.
    - `liveness_timeout_us`: longest time from the healing of all faults until a group is live.
    - `recovery_timeout_us`: longest time that the run waits, after its groups have recovered, for
      the conditions of `Checker.unsettled`.
    - `transaction_timeout_us`: longest transaction timeout of any member.
    - `transaction_cleanup_us`: interval at which a coordinator aborts transactions beyond their
      timeout.
    - `broker_timeouts_us`: timeouts of a broker's requests, by the purpose of the connection.
      Requests for other purposes have REQUEST_TIMEOUT_US.
    - `broker_waits_us`: by purpose, the longest time that a server holds a broker's request back
      before it answers.
    """

    groups: dict[str, GroupExpectation] = field(default_factory=dict)
    zookeeper_groups: dict[str, ZooKeeperGroupExpectation] = field(default_factory=dict)
    must_hold: dict[str, tuple[str, ...]] = field(default_factory=dict)
    seen_groups: tuple[str, ...] | None = None
    min_insync_replicas: int = 1
    transaction_min_isr: int = 1
    unclean_elections: bool = False
    liveness_timeout_us: int = 60_000_000
    clock_error_us: int = 0
    isr_recovery_us: int = 120_000_000
    group_max_size: int = 2_147_483_647
    leader_balance_us: int | None = None
    start_bound_us: int | None = None
    in_virtual_time: bool = False
    broker_timeouts_us: dict[str, int] = field(default_factory=dict)
    broker_waits_us: dict[str, int] = field(default_factory=dict)
    producers: tuple[ProducerExpectation, ...] = ()
    recovery_timeout_us: int = 0
    transaction_timeout_us: int = 60_000_000
    transaction_cleanup_us: int = 10_000_000
    settling_us: int = 120_000_000
    replica_lag_us: int = 30_000_000
    offsets_retention_us: int = 10_080 * 60_000_000

    def without_guests(self, mixed: Collection[str], all_groups: Iterable[str]) -> "CheckContext":
        """Return this context without the groups that clients from outside have joined.

        `all_groups`: the experiment's groups. `mixed`: the groups that such clients have joined.
        """
        # `all_groups` is needed because `groups` lacks the groups on ZooKeeper.
        return replace(
            self,
            groups={name: group for name, group in self.groups.items() if name not in mixed},
            seen_groups=tuple(name for name in all_groups if name not in mixed),
        )

    def is_seen(self, group: str) -> bool:
        """Return True if all members of a group write rows into the trace."""
        return self.seen_groups is None or group in self.seen_groups

    def least_in_sync(self, partition: str) -> int:
        """Return min.insync.replicas of a partition that a coordinator writes to."""
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
    5. A follower rejoins the ISR only when it has all records below the high watermark (the offset
       below which every in-sync replica has the records). The high watermark may wait for another
       replica, which is dead. That replica must leave the ISR first: 1.5 times
       `replica.lag.time.max.ms`, because the leader checks for such replicas at an interval of half
       of that setting.
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
