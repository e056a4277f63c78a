"""All checkers by name; CheckSuite, which feeds them one trace; and their CheckContext.

A checker reads the trace (the rows that record a run's events) and reports broken promises. To add
a checker, write a module and add one line to `CHECKERS`. Most checkers check a promise of Kafka's.
The checkers of the module `unpromised` check properties that neither Kafka nor ZooKeeper promises,
and only in groups that demand such a property (`must_hold`).

The lower half of this module, from `context_of` on, computes the CheckContext of an experiment.
A CheckContext has the facts that the trace does not show, above all the longest times that the
checkers allow.
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
from chaos.checkers.zookeeper_groups.consumers import ZooKeeperConsumers
from chaos.checkers.zookeeper_groups.progress import ZooKeeperProgress
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
"""Microseconds of a millisecond."""
START_US = 20_000_000
"""Longest time from the start to the steady state, if messages and loads took no time.

In the steady state every group is Stable, and every partition has a leader and all its replicas in
sync. The longest measured time is 8 s. The rest is a margin.
"""
SETTLING_US = 10_000_000
"""Time for elections, lookups, retries and new connections in a cluster without faults."""
ROUND_TRIPS = 50
"""Largest number of requests from the start to the steady state that wait for one another."""
RECORD_BYTES = 64
"""Upper bound of the size of a commit record in the log."""

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
        ZooKeeperProgress,
        OneOwnerProcesses,
        PositionsNeverGoBack,
    )
}


class CheckSuite:
    """The checkers of one run: `observe` takes the rows in order, `finish` returns the reports.

    `names` are the checks to make. If there are none, every check that concerns the experiment is
    made.

    In virtual time (the run's own simulated clock) the run calls `observe` for each new row. In
    real time `observe` gets the rows of the merged trace after the run.

    `on_finding` is called for each finding when the row that proves the finding is observed. It may
    write a row VIOLATION into the same trace, because no checker reads such rows.
    """

    def __init__(
        self,
        context: CheckContext,
        names: Sequence[str] = (),
        *,
        on_finding: FindingSink | None = None,
    ) -> None:
        # A check that the experiment's file names runs even if it does not concern the experiment.
        # Its report then says that it saw nothing.
        self._chosen = names or tuple(
            name for name, checker in CHECKERS.items() if checker.concerns(context)
        )
        self.rows_seen = 0
        self._make_checkers(context, on_finding)

    def _make_checkers(self, context: CheckContext, on_finding: FindingSink | None) -> None:
        """Make new evidence and new checkers, which have seen no row."""
        self._context = context
        self.evidence = Evidence(context)
        """Facts that the checkers share.

        Coverage marks, which note that a rare situation occurred in a run, read these facts, too.
        They do so before `observe` gets a row, because they need the facts as they were before the
        row.
        """
        self.checkers = tuple(CHECKERS[name](context, self.evidence) for name in self._chosen)
        self._by_kind: dict[str, list[Checker]] = {}
        for checker in self.checkers:
            for kind in sorted(checker.kinds):
                self._by_kind.setdefault(kind, []).append(checker)
        self.report_findings_to(on_finding)

    def report_findings_to(self, on_finding: FindingSink | None) -> None:
        """Set the receiver of future findings; None removes it.

        The checkers record their findings in both cases.
        """
        self._on_finding = on_finding
        for checker in self.checkers:
            checker.on_finding = on_finding

    def allow_clock_error(self, clock_error_us: int) -> None:
        """Set the clock error, which is measured only after the cluster's start.

        Raises: RuntimeError if the suite has seen a row with another clock error.
        """
        if clock_error_us == self._context.clock_error_us:
            return
        if self.rows_seen:
            raise RuntimeError(
                f"{self.rows_seen} rows were judged with a clock error of "
                f"{self._context.clock_error_us} us; it cannot become {clock_error_us} us now"
            )
        # Evidence and checkers may have computed values from the former clock error. So they are
        # made anew. Nothing is lost, because the old ones have seen no row.
        self._make_checkers(replace(self._context, clock_error_us=clock_error_us), self._on_finding)

    def observe(self, row: TraceRow) -> None:
        """Feed `row` to the evidence, then to the checkers of its kind."""
        self.rows_seen += 1
        self.evidence.observe(row)
        for checker in self._by_kind.get(row.kind, ()):
            checker.judge(row)

    def observe_all(self, rows: Iterable[TraceRow]) -> None:
        """Observe a whole trace, in the order of the rows' times."""
        for row in rows:
            self.observe(row)

    def kinds_read(self) -> dict[str, frozenset[TraceKind]]:
        """Return, by checker name, the kinds of rows that the checker's verdict depends on.

        These are the rows that the checker judges, and the rows from which Evidence computes the
        facts that the checker reads. The suite's own Evidence does not know which checker reads
        which fact. So for each checker, this method makes a second checker of the same class with
        an Evidence of its own.
        """
        kinds: dict[str, frozenset[TraceKind]] = {}
        for checker in self.checkers:
            # The constructor of a checker reads every fact that the checker needs.
            alone = type(checker)(checker.context, Evidence(checker.context))
            kinds[checker.name] = checker.kinds | alone.evidence.kinds_read
        return kinds

    def violations(self) -> int:
        """Return the number of findings so far."""
        return sum(checker.findings_total for checker in self.checkers)

    def unsettled(self, now_us: int) -> list[str]:
        """Return a sentence for each condition that must still come true to keep a promise."""
        return [sentence for checker in self.checkers for sentence in checker.unsettled(now_us)]

    def measured(self) -> dict[str, dict[str, int]]:
        """Return by checker name the figures measured so far, if a checker has any."""
        figures = {checker.name: checker.measured() for checker in self.checkers}
        return {name: of_checker for name, of_checker in figures.items() if of_checker}

    def finish(self) -> tuple[CheckReport, ...]:
        """Finish every check and return the reports."""
        return tuple(checker.finish() for checker in self.checkers)


def context_of(
    experiment: Experiment, *, clock_error_us: int = 0, in_virtual_time: bool = False
) -> CheckContext:
    """Return the CheckContext of `experiment`.

    The time limit of the start can be kept only in virtual time. In real time it is None.
    """
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
                has_long_metadata=any(
                    length > config.offset_metadata_max_bytes for length in group.metadata_lengths
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
        unclean_elections=config.unclean_leader_election_enable
        or any(topic.config.unclean_leader_election_enable for topic in experiment.topics.values()),
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
                # The time between two records: one second (1_000 * MS) divided by the rate.
                period_us=round((1_000 * MS) / producer.records_per_second)
                + producer.config.linger_ms * MS,
                request_timeout_us=producer.config.request_timeout_ms * MS,
                acks_all=producer.config.acks == "all",
            )
            for producer in spec.producers
        ),
        isr_recovery_us=isr_recovery_us(config),
        group_max_size=config.group_max_size,
        offsets_retention_us=config.offsets_retention_minutes * 60_000_000,  # minutes to us
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
    """Return members and timeouts of each group on ZooKeeper."""
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
            brokers=len(spec.brokers),
            socket_timeout_us=group.zookeeper.socket_timeout_ms * MS,
            fetch_wait_us=group.zookeeper.fetch_wait_max_ms * MS,
            commit_interval_us=group.zookeeper.auto_commit_interval_ms * MS
            if group.zookeeper.auto_commit_enable
            else None,
            offsets_partition=str(offsets_partition(group_partition(experiment, group_id)))
            if group.zookeeper.offsets_storage == "kafka"
            else None,
            offsets_timeout_us=group.zookeeper.offsets_channel_socket_timeout_ms * MS,
            offsets_backoff_us=group.zookeeper.offsets_commit_max_retries
            * group.zookeeper.offsets_channel_backoff_ms
            * MS,
        )
        for group_id, group in zookeeper_groups(experiment).items()
    }


def start_bound_us(experiment: Experiment) -> int | None:
    """Return the longest time in virtual time from the start to the steady state.

    An experiment may contain a partition of `__consumer_offsets` that cannot be loaded. Then the
    steady state may never come, and the result is None. Otherwise it is the sum of:

    1. START_US for registration, elections, lookups and appends, including failed first attempts,
       and their messages: ROUND_TRIPS times the longest latency. The latency of a message is
       `base_us`, plus up to `jitter_us` at random, plus up to `tail_us` if it is a slow message.
    2. The time in which coordinators load `__consumer_offsets` and `__transaction_state`, as if one
       broker loaded all partitions, one after the other.
    3. `group.initial.rebalance.delay.ms`, and three rebalances, because members start at different
       times. A rebalance lasts until each member has joined. A member learns of the rebalance by
       its next heartbeat, and joins with its next poll.
    """
    if any(log.unreadable for log in experiment.offsets_log):
        return None
    cluster = experiment.cluster
    costs, config = cluster.costs, cluster.config
    partitions = config.offsets_topic_num_partitions + config.transaction_state_log_num_partitions
    record_ns = costs.load_ns_per_record + RECORD_BYTES * costs.load_ns_per_byte
    records = sum(log.commit_records for log in experiment.offsets_log)
    consumers = to_cluster_spec(experiment).consumers
    return (
        START_US
        + ROUND_TRIPS * (cluster.links.base_us + cluster.links.jitter_us + cluster.links.tail_us)
        + partitions * costs.load_fixed_us
        + records * record_ns // 1_000  # nanoseconds to microseconds
        + config.group_initial_rebalance_delay_ms * MS
        + 3 * max((_heartbeat_and_join_us(consumer) for consumer in consumers), default=0)
    )


def settling_us(spec: ClusterSpec) -> int:
    """Return the longest time from the end of a fault to its last consequence.

    A fault may have consequences when it is already over. For example, a broker that could not send
    heartbeats is fenced when its session ends, or a client learns only by a timeout that its
    connection is gone. The time is a sum of two parts:

    1. A node notices that something is missing. This takes the longest of these times:
       - the session of a broker, plus twice `controller.quorum.fetch.timeout.ms`, because the
         controller may have changed;
       - 1.5 times `replica.lag.time.max.ms`, after which a leader removes a replica from the ISR;
       - the timeout of a request of a follower (plus `replica.fetch.backoff.ms`), a member or a
         producer.
    2. The other nodes learn of this. Metadata is published, partitions are loaded, members learn of
       a rebalance by a heartbeat. SETTLING_US allows for elections, lookups and retries.
    """
    config, costs = spec.broker_config, spec.costs
    consumer_timeouts = [consumer.config.request_timeout_ms for consumer in spec.consumers]
    producer_timeouts = [producer.config.request_timeout_ms for producer in spec.producers]
    partitions = config.offsets_topic_num_partitions + config.transaction_state_log_num_partitions
    # Part 1; the sum at the end adds part 2.
    noticed_ms = max(
        config.broker_session_timeout_ms + 2 * config.controller_quorum_fetch_timeout_ms,
        config.replica_lag_time_max_ms * 3 // 2,
        config.replica_socket_timeout_ms + config.replica_fetch_backoff_ms,
        *consumer_timeouts,
        *producer_timeouts,
    )
    heartbeat_ms = max(
        (consumer.config.heartbeat_interval_ms for consumer in spec.consumers), default=0
    )
    return (
        (noticed_ms + heartbeat_ms) * MS
        + costs.publish_us
        + costs.publish_jitter_us
        + partitions * costs.load_fixed_us
        + SETTLING_US
    )


def _heartbeat_and_join_us(consumer: ConsumerSpec) -> int:
    """Return the longest time from the beginning of a rebalance to a member's JoinGroup."""
    return consumer.config.heartbeat_interval_ms * MS + consumer.longest_between_polls_us


def _transaction_partitions(
    experiment: Experiment, consumers: Sequence[ConsumerSpec]
) -> tuple[str, ...]:
    """Return the `__transaction_state` partitions of the consumers' transactional ids.

    A consumer's node name is also its transactional id.
    """
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
    has_long_metadata: bool,
) -> GroupExpectation:
    """Return the GroupExpectation of a group. Without consumers its times are Kafka's defaults.

    - `partition`: the partition of `__consumer_offsets` that stores the group.
    - `partitions`: the partitions of the group's topics.
    """
    names = tuple(consumer.name for consumer in consumers)
    late = tuple(consumer.name for consumer in consumers if consumer.starts_later)
    expected = GroupExpectation(
        consumers=names,
        offsets_partition=partition,
        commits=commits,
        late=late,
        transaction_partitions=transaction_partitions,
        partitions=partitions,
        has_long_metadata=has_long_metadata,
    )
    if not consumers:
        return expected
    configs = tuple(consumer.config for consumer in consumers)
    # Members may differ in a setting. A checker must then use the value with which it is least
    # strict, or it would report false violations. If something must happen within a time, the
    # longest time of any member is this value. If something may happen only after a time (a
    # coordinator removes a member, a member gives up a commit), the shortest time is this value.
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
        commit_patience_us=min(
            min(config.default_api_timeout_ms, config.max_poll_interval_ms) for config in configs
        )
        * MS,
        request_timeout_us=max(config.request_timeout_ms for config in configs) * MS,
        retry_backoff_max_us=max(config.retry_backoff_max_ms for config in configs) * MS,
        application_us=max(consumer.longest_between_polls_us for consumer in consumers),
        same_assignors=len({frozenset(config.partition_assignment_strategy) for config in configs})
        == 1,
    )
