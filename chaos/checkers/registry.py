"""Every checker by name, and the suite that feeds them one trace.

A new checker is one module and one line in `CHECKERS`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from chaos.checkers.administration import Administration
from chaos.checkers.answers import Answers
from chaos.checkers.base import Checker, FindingSink
from chaos.checkers.context import (
    CheckContext,
    GroupExpectation,
    ProducerExpectation,
    ZooKeeperGroupExpectation,
    isr_recovery_us,
)
from chaos.checkers.durable_commits import DurableCommits
from chaos.checkers.evidence.board import Evidence
from chaos.checkers.fencing import Fencing
from chaos.checkers.generations import Generations
from chaos.checkers.liveness import Liveness
from chaos.checkers.needless_rebalance import NeedlessRebalance
from chaos.checkers.ownership import Ownership
from chaos.checkers.processing import Processing
from chaos.checkers.readers import Readers
from chaos.checkers.recovery import Recovery
from chaos.checkers.stability import Stability
from chaos.checkers.unpromised import OneOwnerProcesses, PositionsNeverGoBack
from chaos.checkers.zookeeper import ZooKeeper
from chaos.checkers.zookeeper_consumers import ZooKeeperConsumers
from chaos.experiment.structs import (
    Experiment,
    coordinated_groups,
    group_partition,
    microseconds,
    to_cluster_spec,
    zookeeper_groups,
)
from cluster.broker.control.metadata_fetcher import MAX_WAIT_MS as METADATA_WAIT_MS
from cluster.host.connection_purposes import METADATA, REPLICA_FETCHER
from cluster.spec import ClusterSpec, ConsumerSpec
from protocol.ids import offsets_partition, transaction_partition
from protocol.partitioner import partition_for
from protocol.trace import TraceKind, TraceRow
from results_schema.results import CheckReport

MS = 1_000
START_US = 20_000_000
"""What a cluster takes to its steady state with no latency and no loads; measured below 8 s."""
SETTLING_US = 10_000_000
"""Elections, lookups, retries and new connections of a cluster in which nothing is broken."""
ROUND_TRIPS = 50
RECORD_BYTES = 64
"""Bytes of a commit in the log, rounded up."""

CHECKERS: dict[str, type[Checker]] = {
    checker.name: checker
    for checker in (
        Fencing,
        DurableCommits,
        Generations,
        Ownership,
        Liveness,
        Recovery,
        Readers,
        Answers,
        Administration,
        Stability,
        NeedlessRebalance,
        Processing,
        ZooKeeper,
        ZooKeeperConsumers,
        OneOwnerProcesses,
        PositionsNeverGoBack,
    )
}


class CheckSuite:
    """The checkers of one run: `observe` takes its rows in order, `finish` ends it.

    `observe` is a RowObserver: the virtual runtime may call it while the run goes on, and a merged
    trace may be fed to it afterwards. `on_finding` gets each finding at the row that proves it; it
    may trace a VIOLATION, which no checker looks at.
    """

    def __init__(
        self,
        context: CheckContext,
        names: Sequence[str] = (),
        *,
        on_finding: FindingSink | None = None,
    ) -> None:
        chosen = names or tuple(
            name for name, checker in CHECKERS.items() if checker.concerns(context)
        )
        self.evidence = Evidence(context)
        """What the checkers share. Whoever else reads it sees each row before the suite does."""
        self.checkers = tuple(CHECKERS[name](context, self.evidence) for name in chosen)
        self.rows_seen = 0
        self._by_kind: dict[str, list[Checker]] = {}
        for checker in self.checkers:
            for kind in sorted(checker.kinds):
                self._by_kind.setdefault(kind, []).append(checker)
        self.report_findings_to(on_finding)

    def report_findings_to(self, on_finding: FindingSink | None) -> None:
        """Give each finding from now on to `on_finding` too; None: to nobody."""
        for checker in self.checkers:
            checker.on_finding = on_finding

    def allow_clock_error(self, clock_error_us: int) -> None:
        """Judge by time only beyond `clock_error_us`, which is known once the cluster is up."""
        for checker in self.checkers:
            checker.context = replace(checker.context, clock_error_us=clock_error_us)

    def observe(self, row: TraceRow) -> None:
        """Hand `row` to the evidence, then to the checkers that want its kind."""
        self.rows_seen += 1
        self.evidence.observe(row)
        for checker in self._by_kind.get(row.kind, ()):
            checker.judge(row)

    def observe_all(self, rows: Iterable[TraceRow]) -> None:
        """Hand over a whole trace, in the order of the run's clock."""
        for row in rows:
            self.observe(row)

    def kinds_read(self) -> dict[str, frozenset[TraceKind]]:
        """Return the kinds of rows that each checker's verdict depends on, by its name."""
        return {
            checker.name: checker.kinds
            | type(checker)(checker.context, Evidence(checker.context)).evidence.kinds_read
            for checker in self.checkers
        }

    def violations(self) -> int:
        """Return the number of findings so far."""
        return sum(checker.findings_total for checker in self.checkers)

    def unsettled(self, now_us: int) -> list[str]:
        """Return what the promises still wait for, in words."""
        return [what for checker in self.checkers for what in checker.unsettled(now_us)]

    def measured(self) -> dict[str, dict[str, int]]:
        """Return what each checker has measured so far, by its name; see CheckReport."""
        return {
            checker.name: figures for checker in self.checkers if (figures := checker.measured())
        }

    def finish(self) -> tuple[CheckReport, ...]:
        """End every check and return the reports."""
        return tuple(checker.finish() for checker in self.checkers)


def context_of(
    experiment: Experiment, *, clock_error_us: int = 0, in_virtual_time: bool = False
) -> CheckContext:
    """Return what the checkers may know of `experiment`."""
    config = experiment.cluster.config
    consumers: dict[str, list[ConsumerSpec]] = {group_id: [] for group_id in experiment.groups}
    spec = to_cluster_spec(experiment)
    for consumer in spec.consumers:
        consumers[consumer.group_id].append(consumer)
    return CheckContext(
        settling_us=settling_us(spec),
        replica_lag_us=config.replica_lag_time_max_ms * MS,
        groups={
            group_id: _expectation(
                consumers[group_id],
                str(offsets_partition(group_partition(experiment, group_id))),
                commits=group.commits,
                partitions=tuple(
                    f"{topic}-{index}"
                    for topic in group.topics
                    for index in range(experiment.topics[topic].partitions)
                ),
                transaction_partitions=_transaction_partitions(
                    experiment, consumers[group_id] if group.transactional else ()
                ),
            )
            for group_id, group in coordinated_groups(experiment).items()
        },
        zookeeper_groups=_zookeeper_expectations(experiment, spec),
        must_hold={
            group_id: group.must_hold
            for group_id, group in experiment.groups.items()
            if group.must_hold
        },
        min_insync_replicas=config.min_insync_replicas,
        transaction_min_isr=config.transaction_state_log_min_isr,
        liveness_timeout_us=microseconds(experiment.run.liveness_timeout),
        clock_error_us=clock_error_us,
        start_bound_us=start_bound_us(experiment) if in_virtual_time else None,
        in_virtual_time=in_virtual_time,
        broker_timeouts_us={
            METADATA: config.controller_quorum_fetch_timeout_ms * MS,
            REPLICA_FETCHER: config.replica_socket_timeout_ms * MS,
        },
        broker_waits_us={
            METADATA: METADATA_WAIT_MS * MS,
            REPLICA_FETCHER: config.replica_fetch_wait_max_ms * MS,
        },
        producers=tuple(
            ProducerExpectation(
                name=producer.name,
                topic=producer.topic,
                period_us=round((1_000 * MS) / producer.records_per_second)
                + producer.config.linger_ms * MS,
                request_timeout_us=producer.config.request_timeout_ms * MS,
            )
            for producer in spec.producers
        ),
        isr_recovery_us=isr_recovery_us(config),
        group_max_size=config.group_max_size,
        leader_balance_us=config.leader_imbalance_check_interval_seconds * 1_000_000
        if config.auto_leader_rebalance_enable
        else None,
        recovery_timeout_us=microseconds(experiment.run.recovery_timeout),
        transaction_timeout_us=max(
            (group.transaction_timeout_ms * MS for group in experiment.groups.values()), default=0
        ),
        transaction_cleanup_us=(
            config.transaction_abort_timed_out_transaction_cleanup_interval_ms * MS
        ),
    )


def _zookeeper_expectations(
    experiment: Experiment, spec: ClusterSpec
) -> dict[str, ZooKeeperGroupExpectation]:
    """Return what to expect of each group on ZooKeeper."""
    return {
        group_id: ZooKeeperGroupExpectation(
            consumers=tuple(
                consumer.name
                for consumer in spec.zookeeper_consumers
                if consumer.group_id == group_id
            ),
            session_timeout_us=spec.zookeeper_config.negotiated_timeout_ms(
                group.zookeeper.zookeeper_session_timeout_ms
            )
            * MS,
        )
        for group_id, group in zookeeper_groups(experiment).items()
    }


def start_bound_us(experiment: Experiment) -> int | None:
    """Return the longest time in virtual time from the start to the steady state.

    None: it need not come, because a partition of `__consumer_offsets` cannot be loaded.

    1. Registration, elections, lookups and appends, with their first attempts in vain: START_US,
       and as many times the longest way of a message as there may be round trips one after another.
    2. The loads of one broker after another, and of every record that stands in the log.
    3. `group.initial.rebalance.delay.ms`, and three rebalances of members that come apart: each is
       learnt with a heartbeat, and begun at the next poll.
    """
    if any(each.unreadable for each in experiment.offsets_log):
        return None
    cluster = experiment.cluster
    costs, config = cluster.costs, cluster.config
    partitions = config.offsets_topic_num_partitions + config.transaction_state_log_num_partitions
    record_ns = costs.load_ns_per_record + RECORD_BYTES * costs.load_ns_per_byte
    records = sum(each.commit_records for each in experiment.offsets_log)
    consumers = to_cluster_spec(experiment).consumers
    return (
        START_US
        + ROUND_TRIPS * (cluster.links.base_us + cluster.links.jitter_us + cluster.links.tail_us)
        + partitions * costs.load_fixed_us
        + records * record_ns // 1_000
        + config.group_initial_rebalance_delay_ms * MS
        + 3 * max((_learnt_and_begun_us(each) for each in consumers), default=0)
    )


def settling_us(spec: ClusterSpec) -> int:
    """Return the longest time from the end of a fault to its last consequence.

    What a fault breaks is noticed when the longest of these is over: the session of a broker, twice
    `controller.quorum.fetch.timeout.ms` later where the controller is another one; 1.5 times
    `replica.lag.time.max.ms`, in which a replica leaves the ISR; the timeout of a request on a
    connection that died unnoticed, of a follower, a member or a producer. Then others learn of it:
    metadata is published and partitions are loaded, and a member asks with its next heartbeat.
    """
    config, costs = spec.broker_config, spec.costs
    of_consumers = [consumer.config.request_timeout_ms for consumer in spec.consumers]
    of_producers = [producer.config.request_timeout_ms for producer in spec.producers]
    partitions = config.offsets_topic_num_partitions + config.transaction_state_log_num_partitions
    noticed_ms = max(
        config.broker_session_timeout_ms + 2 * config.controller_quorum_fetch_timeout_ms,
        config.replica_lag_time_max_ms * 3 // 2,
        config.replica_socket_timeout_ms + config.replica_fetch_backoff_ms,
        *of_consumers,
        *of_producers,
    )
    heartbeat_ms = max((each.config.heartbeat_interval_ms for each in spec.consumers), default=0)
    return (
        (noticed_ms + heartbeat_ms) * MS
        + costs.publish_us
        + costs.publish_jitter_us
        + partitions * costs.load_fixed_us
        + SETTLING_US
    )


def _learnt_and_begun_us(consumer: ConsumerSpec) -> int:
    return consumer.config.heartbeat_interval_ms * MS + _application_us(consumer)


def _application_us(consumer: ConsumerSpec) -> int:
    """Return what the application takes between two polls that return all that they may."""
    record_us = consumer.process_us + consumer.process_spread_us
    return consumer.poll_timeout_ms * MS + consumer.config.max_poll_records * record_us


def _transaction_partitions(
    experiment: Experiment, consumers: Sequence[ConsumerSpec]
) -> tuple[str, ...]:
    """Return the partitions of the transactional ids of consumers, which are their names."""
    count = experiment.cluster.config.transaction_state_log_num_partitions
    indexes = sorted({partition_for(consumer.name, count) for consumer in consumers})
    return tuple(str(transaction_partition(index)) for index in indexes)


def _expectation(
    consumers: Sequence[ConsumerSpec],
    partition: str,
    *,
    commits: bool,
    partitions: tuple[str, ...],
    transaction_partitions: tuple[str, ...],
) -> GroupExpectation:
    """Return what to expect of a group; one without consumers has Kafka's defaults."""
    names = tuple(consumer.name for consumer in consumers)
    late = tuple(consumer.name for consumer in consumers if consumer.starts_later)
    expected = GroupExpectation(
        consumers=names,
        offsets_partition=partition,
        commits=commits,
        late=late,
        transaction_partitions=transaction_partitions,
        partitions=partitions,
    )
    if not consumers:
        return expected
    configs = tuple(consumer.config for consumer in consumers)
    return replace(
        expected,
        session_timeout_us=max(config.session_timeout_ms for config in configs) * MS,
        heartbeat_interval_us=max(config.heartbeat_interval_ms for config in configs) * MS,
        eviction_us=min(
            min(config.session_timeout_ms, config.max_poll_interval_ms) for config in configs
        )
        * MS,
        max_poll_interval_us=min(config.max_poll_interval_ms for config in configs) * MS,
        rebalance_timeout_us=max(config.max_poll_interval_ms for config in configs) * MS,
        request_timeout_us=max(config.request_timeout_ms for config in configs) * MS,
        retry_backoff_max_us=max(config.retry_backoff_max_ms for config in configs) * MS,
        application_us=max(map(_application_us, consumers)),
    )
