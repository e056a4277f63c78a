"""What checkers and their evidence know of an experiment beside its trace, and a row's detail."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from cluster.client.consumer.membership import JOIN_GROUP_EXTRA_MS
from protocol.config import BrokerConfig
from protocol.ids import TRANSACTION_STATE
from protocol.trace import TraceRow

COPY_US = 5_000_000
"""A follower copies what a few minutes of a small cluster wrote well within this time."""
HEALED_STAGE = "liveness"
"""The stage from which on everything is healed, and every broker can be reached again."""
REQUEST_TIMEOUT_US = 30_000_000
"""Time in which a broker gives up a request to the controller: Kafka's request.timeout.ms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupExpectation:
    """What a checker may expect of one group. The defaults are Kafka's.

    Shape: `consumers` are node names, `late` those of them that the run starts itself: they count
    from their NODE_STARTED on. `offsets_partition` is printed as in the trace, and so are
    `transaction_partitions`, those of its members' transactional ids, if they commit in
    transactions; `partitions` are those of its topics.
    Units: the longest of any member, but for `max_poll_interval_us`, the shortest (the longest is
    `rebalance_timeout_us`), and for `eviction_us`: the shortest time after which a coordinator may
    drop a silent member, of session.timeout.ms and max.poll.interval.ms. `application_us` is what
    the application takes between two polls, if the first returns as many records as it may.
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

    @property
    def join_us(self) -> int:
        """How long a member waits for the answer to a JoinGroup, request.timeout.ms aside."""
        return self.rebalance_timeout_us + JOIN_GROUP_EXTRA_MS * 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ZooKeeperGroupExpectation:
    """What a checker may expect of a group on ZooKeeper.

    Shape: `consumers` are node names. Units: `session_timeout_us` is the one that the ensemble
    grants.
    """

    consumers: tuple[str, ...]
    session_timeout_us: int = 6_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerExpectation:
    """What a checker may expect of one producer.

    Units: `period_us` is the time between two records, with linger.ms.
    """

    name: str
    topic: str
    period_us: int
    request_timeout_us: int = 30_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckContext:
    """What the checkers know of the experiment beside its trace.

    Units: `clock_error_us` bounds how far the clocks of two nodes are apart. `isr_recovery_us` is
    the time in which a replica whose broker lives gets into its ISR, see `isr_recovery_us`;
    `leader_balance_us` the interval in which preferred leaders are elected, None for never;
    `recovery_timeout_us` how long the run waits for what recovers after the groups do. The timeout
    of a transaction is the longest of any member. `start_bound_us` is the time in which a cluster
    comes to its steady state, None where time is real: a machine may be slow. `broker_timeouts_us`
    are those of a broker's requests by the purpose of their connection, where another than
    REQUEST_TIMEOUT_US, `broker_waits_us` how long such a request lets its server wait.
    `settling_us` is the time in which the last consequence of a fault that is over shows,
    `replica_lag_us` that of `replica.lag.time.max.ms`.
    Shape: `in_virtual_time` every row of every node is there, and in the order of the run. Where
    clients from outside may come, `groups` are those that only the lab's members have joined, and
    `seen_groups` are they and those on ZooKeeper: of other groups the members write no rows.
    `groups` have a coordinator, `zookeeper_groups` none; `must_hold` names, by group, the checks of
    what nobody promises that are judged all the same.
    """

    groups: dict[str, GroupExpectation] = field(default_factory=dict)
    zookeeper_groups: dict[str, ZooKeeperGroupExpectation] = field(default_factory=dict)
    must_hold: dict[str, tuple[str, ...]] = field(default_factory=dict)
    seen_groups: tuple[str, ...] | None = None  # None: there are no others
    min_insync_replicas: int = 1
    transaction_min_isr: int = 1
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

    def without_guests(self, mixed: Collection[str], all_groups: Iterable[str]) -> "CheckContext":
        """Return the context of a run to which clients from outside may come.

        Shape: `all_groups` are those of the experiment, `mixed` those of them that such clients
        have joined.
        """
        return replace(
            self,
            groups={name: group for name, group in self.groups.items() if name not in mixed},
            seen_groups=tuple(name for name in all_groups if name not in mixed),
        )

    def is_seen(self, group: str) -> bool:
        """Return whether the trace has the rows of a group's members."""
        return self.seen_groups is None or group in self.seen_groups

    def least_in_sync(self, partition: str) -> int:
        """Return min.insync.replicas of a partition that a coordinator writes to."""
        is_of_transactions = partition.startswith(f"{TRANSACTION_STATE}-")
        return self.transaction_min_isr if is_of_transactions else self.min_insync_replicas


def detail_of(row: TraceRow) -> dict[str, Any]:
    """Return the decoded detail of a row; values are whatever its kind's JSON holds."""
    if row.detail is None:
        return {}
    detail: dict[str, Any] = msgspec.json.decode(row.detail)
    return detail


def isr_recovery_us(config: BrokerConfig) -> int:
    """Return the longest time that a living replica stays out of an ISR with a living leader.

    1. A fetch that waits on a connection which died unnoticed: `replica.socket.timeout.ms`.
    2. The next attempt: `replica.fetch.backoff.ms`.
    3. The copy of what it lacks: COPY_US; then the fetch whose answer shows that it caught up:
       `replica.fetch.wait.max.ms`.
    4. An AlterPartition that no controller answers: REQUEST_TIMEOUT_US, and once more while the
       controller is replaced, twice `controller.quorum.fetch.timeout.ms`.
    5. A dead replica beside it must leave the ISR first where the high watermark waits for it:
       1.5 times `replica.lag.time.max.ms`, for it is looked at every half of that.
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
