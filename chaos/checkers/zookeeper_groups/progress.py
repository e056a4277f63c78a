"""Progress of each consumer on ZooKeeper: what it owns it reads, and what it processes it commits.

In a group on ZooKeeper no server makes sure that each partition has an owner (ZK-38: a consumer may
give up, and then owns nothing until the next change of its group). So nothing is promised about a
partition without an owner. But a consumer that has claimed its partitions fetches them (R11, ZK-34)
and commits periodically (ZK-35). Two rules are judged from the end of all faults (the healing) on,
for each partition that a running consumer owns. A consumer owns a partition from its row
PARTITIONS_ASSIGNED until PARTITIONS_REVOKED, PARTITIONS_LOST or the end of its process.

1. While acknowledged records wait, the consumer processes records of the partition. If it does not
   know yet where to begin, it finds its position. Until then it may take the sum of

   - two `socket.timeout.ms`, for the opening of a connection and for a Fetch that is never
     answered;
   - `socket.timeout.ms` for each broker, because the search for the partition's leader asks one
     broker after the other, and some of them may be lost for good;
   - `fetch.wait.max.ms`;
   - SLACK_US.

   One stream processes the records of all partitions of a topic. So the time in which the consumer
   processes other records does not count.

2. If `auto.commit.enable` is set, the processed offset is committed. Until then it may take two
   `auto.commit.interval.ms` and two commits, and SLACK_US: a commit that is on its way may hold an
   older offset, and the next one may fail. A commit to Kafka takes as long as rule 1 says of a
   Fetch, with `offsets.channel.socket.timeout.ms`, and its retries have backoffs.

   The rule is judged only if the consumer had one session from the begin of its attempt on. If the
   session ended in the attempt, the consumer may already have forgotten the partitions that it
   still reads (ZK-32, ZK-55), and commits nothing of them.

The time begins anew with each reconnection to ZooKeeper, and with each change of the leader or the
ISR of the partition (in rule 2 also of the partition that stores the group's offsets). Two
exceptions are excused, each counted once for each wait:

- The consumer has no connection to ZooKeeper, without which it finds no leader and stores no
  offset.
- The partition has no leader, or not all replicas are in sync, so that new records may be
  invisible, or commits refused.

A run with a `recovery_timeout` continues until each consumer has read and committed after the
healing. Ids such as ZK-34 name the rules in docs/kafka/ZOOKEEPER_CONSUMER.md.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from chaos.checkers.base import Checker
from chaos.checkers.context import (
    HEALED_STAGE,
    CheckContext,
    ZooKeeperGroupExpectation,
    detail_of,
)
from chaos.checkers.evidence.board import Evidence
from protocol.causes import PositionCause
from protocol.trace import TraceKind, TraceRow
from results_schema.evidence_text import seconds
from results_schema.results import CheckReport

SLACK_US = 10_000_000
"""Time for elections, lookups, retries and writes in a healthy cluster."""
NOT_CONNECTED = "the consumer was not connected to ZooKeeper"
NOT_WHOLE = "a partition had no leader, or a replica was not in sync"


@dataclass(slots=True)
class _Read:
    """The progress of one consumer in one of its partitions."""

    assigned: TraceRow
    reached: int | None  # the next offset to process; None while the consumer has no position
    committed: int  # the offset that is known to be stored; -1 if none is known
    is_registered: bool  # True if rule 2 is judged
    # The row since which the consumer should have read on; None if there is no unread record
    unread: TraceRow | None = None
    busy_us: int = 0  # `busy_us` of the consumer at the time of `unread`
    # The row since which a processed offset waits for a commit; None if no offset waits
    uncommitted: TraceRow | None = None
    read_since_healing: bool = False
    committed_since_healing: bool = False


@dataclass(slots=True)
class _Consumer:
    """What is known of the present process of a consumer."""

    group: str
    is_running: bool = True  # False if it is paused or has ended
    is_connected: bool = False
    session: str | None = None  # None before the first session, and after an expiry
    session_since_us: int = 0
    attempt_since_us: int = 0
    busy_us: int = 0  # the time that it has spent with the processing of records
    # The last position and the last stored offset of each partition, in the present attempt
    positions: dict[str, int] = field(default_factory=dict)
    stored: dict[str, int] = field(default_factory=dict)
    reads: dict[str, _Read] = field(default_factory=dict)  # by the partitions that it owns


class ZooKeeperProgress(Checker):
    """Each consumer on ZooKeeper reads the partitions that it owns, and commits its progress."""

    name = "zookeeper_progress"
    promise = (
        "once all faults are healed, a consumer on ZooKeeper reads on while acknowledged records "
        "of its partitions wait, and commits what it has processed, if it commits automatically"
    )
    kinds = frozenset(
        {
            TraceKind.RUN_STAGE,
            TraceKind.NODE_STARTED,
            TraceKind.NODE_KILLED,
            TraceKind.NODE_STOPPED,
            TraceKind.NODE_PAUSED,
            TraceKind.NODE_RESUMED,
            TraceKind.LEADER_ELECTED,
            TraceKind.ISR_CHANGED,
            TraceKind.RECORDS_PRODUCED,
            TraceKind.RECORDS_CONSUMED,
            TraceKind.POSITION_RESET,
            TraceKind.PARTITIONS_ASSIGNED,
            TraceKind.PARTITIONS_REVOKED,
            TraceKind.PARTITIONS_LOST,
            TraceKind.ZOOKEEPER_CLIENT_STATE,
            TraceKind.ZOOKEEPER_ATTEMPT_STARTED,
            TraceKind.ZOOKEEPER_OFFSET_COMMITTED,
        }
    )

    @classmethod
    def concerns(cls, context: CheckContext) -> bool:
        """Return True if the run has consumers on ZooKeeper."""
        return bool(context.zookeeper_groups)

    def __init__(self, context: CheckContext, evidence: Evidence | None = None) -> None:
        super().__init__(context, evidence)
        self._replicas = self.evidence.replicas
        self._consumers: dict[str, _Consumer] = {
            name: _Consumer(group)
            for group, expected in context.zookeeper_groups.items()
            for name in expected.consumers
        }
        self._written: dict[str, int] = {}  # partition -> end of its acknowledged records
        self._healed = False  # True when all faults have ended
        self._over = False  # from the stage "stopping" on, the driver stops every node
        self._excused: Counter[str] = Counter()
        self._seen = {"waits_for_records": 0, "waits_for_commits": 0}
        # The longest waits that have ended, in microseconds
        self._longest_us = {"longest_read_us": 0, "longest_commit_us": 0}

    def judge(self, row: TraceRow) -> None:
        """Follow the progress of each consumer, and judge each wait that ends."""
        if self._over:
            return
        match row.kind:
            case TraceKind.RUN_STAGE:
                self._observe_stage(row)
            case TraceKind.RECORDS_PRODUCED:
                self._observe_produced(row)
            case TraceKind.LEADER_ELECTED | TraceKind.ISR_CHANGED:
                self._observe_replicas(row)
            case _:
                # The driver of the run writes rows such as NODE_KILLED, with the node as `peer`.
                node = row.node if row.node in self._consumers else row.peer or ""
                consumer = self._consumers.get(node)
                if consumer is not None:
                    self._observe_consumer(node, consumer, row)

    # -- one consumer -------------------------------------------------------------------------

    def _observe_consumer(self, node: str, consumer: _Consumer, row: TraceRow) -> None:
        """Follow a step of one consumer."""
        match row.kind:
            case TraceKind.NODE_STARTED:
                self._consumers[node] = _Consumer(consumer.group)
            case TraceKind.NODE_KILLED | TraceKind.NODE_STOPPED:
                self._consumers[node] = _Consumer(consumer.group, is_running=False)
            case TraceKind.NODE_PAUSED:
                consumer.is_running = False
            case TraceKind.NODE_RESUMED:
                consumer.is_running = True
                self._restart_waits(consumer, row)
            case TraceKind.ZOOKEEPER_CLIENT_STATE:
                self._observe_client_state(consumer, row)
            case TraceKind.ZOOKEEPER_ATTEMPT_STARTED:
                consumer.attempt_since_us = row.time_us
                consumer.positions, consumer.stored = {}, {}
            case TraceKind.PARTITIONS_ASSIGNED:
                self._observe_assignment(consumer, row)
            case TraceKind.PARTITIONS_REVOKED | TraceKind.PARTITIONS_LOST:
                self._judge_consumer(node, consumer, row)
                consumer.reads = {}
            case TraceKind.POSITION_RESET:
                self._observe_position(node, consumer, row)
            case TraceKind.RECORDS_CONSUMED:
                self._observe_consumed(node, consumer, row)
            case _:  # ZOOKEEPER_OFFSET_COMMITTED
                self._observe_commit(node, consumer, row)

    def _observe_client_state(self, consumer: _Consumer, row: TraceRow) -> None:
        """Note the connection and the session of a consumer."""
        detail = detail_of(row)
        consumer.is_connected = detail["state"] == "SyncConnected"
        if consumer.is_connected:
            if detail["session"] != consumer.session:
                consumer.session, consumer.session_since_us = detail["session"], row.time_us
            self._restart_waits(consumer, row)
        elif detail["state"] == "Expired":
            consumer.session = None
            for read in consumer.reads.values():
                read.is_registered, read.uncommitted = False, None

    def _observe_assignment(self, consumer: _Consumer, row: TraceRow) -> None:
        """Note the partitions that a consumer has claimed."""
        in_one_session = (
            consumer.session is not None and consumer.session_since_us <= consumer.attempt_since_us
        )
        consumer.reads = {}
        for partition in detail_of(row)["partitions"]:
            read = consumer.reads[partition] = _Read(
                assigned=row,
                reached=consumer.positions.get(partition),
                committed=consumer.stored.get(partition, -1),
                is_registered=in_one_session,
            )
            self._update_unread(consumer, partition, read, row)

    def _observe_position(self, node: str, consumer: _Consumer, row: TraceRow) -> None:
        """Note where a consumer begins to read a partition."""
        partition, offset = row.partition or "", row.offset or 0
        # A position from a stored offset is found before the claim, so before the assignment.
        consumer.positions[partition] = offset
        if row.cause == PositionCause.COMMITTED:
            consumer.stored[partition] = offset
        read = consumer.reads.get(partition)
        if read is not None:
            self._judge_reading(node, consumer, partition, read, row)
            read.reached = offset
            self._update_unread(consumer, partition, read, row)

    def _observe_consumed(self, node: str, consumer: _Consumer, row: TraceRow) -> None:
        """Note that a consumer has processed records."""
        detail = detail_of(row)
        work_us = int(detail.get("work_us", 0))  # missing if the processing takes no time
        consumer.busy_us += work_us
        partition = row.partition or ""
        read = consumer.reads.get(partition)
        # A record may have been taken from the queue before the last rebalance.
        if read is None or row.node_time_us - work_us < read.assigned.node_time_us:
            return
        self._judge_reading(node, consumer, partition, read, row)
        reached = int(detail["last"]) + 1
        read.reached = reached if read.reached is None else max(read.reached, reached)
        read.read_since_healing = self._healed
        self._update_unread(consumer, partition, read, row)
        if read.uncommitted is None and reached > read.committed and read.is_registered:
            read.uncommitted = row

    def _observe_commit(self, node: str, consumer: _Consumer, row: TraceRow) -> None:
        """Note that an offset was stored."""
        read = consumer.reads.get(row.partition or "")
        if read is None:
            return
        self._judge_commit(node, consumer, row.partition or "", read, row)
        offset = row.offset or 0
        read.committed = offset
        read.committed_since_healing = self._healed
        waiting = read.uncommitted
        if waiting is None or read.reached is None or read.reached <= offset:
            read.uncommitted = None
        # A commit has the offsets of its begin. Both times come from the consumer's own clock.
        elif detail_of(row)["begun_us"] >= waiting.node_time_us:
            read.uncommitted = row

    # -- waits --------------------------------------------------------------------------------

    def _update_unread(
        self, consumer: _Consumer, partition: str, read: _Read, row: TraceRow
    ) -> None:
        """Let the wait for the next record begin with `row`, if there is a record to wait for."""
        is_behind = read.reached is None or self._written.get(partition, 0) > read.reached
        read.unread = row if is_behind else None
        read.busy_us = consumer.busy_us

    def _restart_waits(self, consumer: _Consumer, row: TraceRow) -> None:
        """Let all waits of a consumer begin with `row`."""
        for read in consumer.reads.values():
            _restart(consumer, read, row)

    def _observe_produced(self, row: TraceRow) -> None:
        """Note new records. A consumer that had read everything must now read on."""
        partition = row.partition or ""
        end = (row.offset or 0) + detail_of(row).get("count", 1)
        self._written[partition] = max(end, self._written.get(partition, 0))
        for consumer in self._consumers.values():
            read = consumer.reads.get(partition)
            if read is not None and read.unread is None:
                self._update_unread(consumer, partition, read, row)

    def _observe_replicas(self, row: TraceRow) -> None:
        """Let waits for a partition begin anew, because it has another leader or another ISR."""
        partition = row.partition or ""
        if row.kind == TraceKind.LEADER_ELECTED:
            # The new leader's log may be shorter. The next acknowledgement shows where it ends.
            self._written.pop(partition, None)
        for consumer in self._consumers.values():
            stores_offsets = self._expected(consumer).offsets_partition == partition
            for name, read in consumer.reads.items():
                if name == partition or stores_offsets:
                    _restart(consumer, read, row)
                if name == partition and row.kind == TraceKind.LEADER_ELECTED:
                    self._update_unread(consumer, name, read, row)

    def _observe_stage(self, row: TraceRow) -> None:
        """Begin to judge at the healing, and end before the nodes stop."""
        match detail_of(row).get("stage"):
            case stage if stage == HEALED_STAGE:
                self._healed = True
                for consumer in self._consumers.values():
                    self._restart_waits(consumer, row)
            case "stopping":
                for node, consumer in self._consumers.items():
                    self._judge_consumer(node, consumer, row)
                self._over = True
            case _:
                pass

    # -- judgements ---------------------------------------------------------------------------

    def _judge_consumer(self, node: str, consumer: _Consumer, row: TraceRow) -> None:
        """Judge all waits of a consumer up to `row`."""
        for partition, read in consumer.reads.items():
            self._judge_reading(node, consumer, partition, read, row)
            self._judge_commit(node, consumer, partition, read, row)

    def _judge_reading(
        self, node: str, consumer: _Consumer, partition: str, read: _Read, row: TraceRow
    ) -> None:
        """Report a wait for the next record that was too long (rule 1)."""
        if not self._healed or not consumer.is_running or read.unread is None:
            return
        waited_us = _read_wait_us(consumer, read, row.time_us)
        self._seen["waits_for_records"] += 1
        if waited_us <= _reading_bound_us(self._expected(consumer)) + self.context.clock_error_us:
            self._note_longest("longest_read_us", waited_us)
            return
        if not self._excuses(consumer, partition):
            reads_on = (
                "found a position" if read.reached is None else f"read on from {read.reached}"
            )
            self.report_finding(
                f"{node} owns {partition} and has not {reads_on}, for {seconds(waited_us)} in "
                "which nothing was broken",
                [read.assigned, read.unread, row],
                group=consumer.group,
                partition=partition,
            )

    def _judge_commit(
        self, node: str, consumer: _Consumer, partition: str, read: _Read, row: TraceRow
    ) -> None:
        """Report a wait for a commit that was too long (rule 2)."""
        expected, waiting = self._expected(consumer), read.uncommitted
        if not self._healed or not consumer.is_running or waiting is None:
            return
        bound_us = _commit_bound_us(expected)
        if bound_us is None:
            return
        waited_us = row.time_us - waiting.time_us
        self._seen["waits_for_commits"] += 1
        if waited_us <= bound_us + self.context.clock_error_us:
            self._note_longest("longest_commit_us", waited_us)
            return
        if not self._excuses(consumer, expected.offsets_partition):
            self.report_finding(
                f"{node} has processed {partition} and committed nothing of it, for "
                f"{seconds(waited_us)} in which nothing was broken",
                [read.assigned, waiting, row],
                group=consumer.group,
                partition=partition,
            )

    def _note_longest(self, figure: str, waited_us: int) -> None:
        """Note a wait for the report, if it is the longest so far."""
        self._longest_us[figure] = max(self._longest_us[figure], waited_us)

    def _excuses(self, consumer: _Consumer, partition: str | None) -> bool:
        """Count the exception that excuses a long wait; return False if there is none.

        `partition` is the partition that the consumer needs; None if it needs only ZooKeeper.
        """
        excuse = NOT_CONNECTED if not consumer.is_connected else None
        if excuse is None and partition is not None and not self._is_whole(partition):
            excuse = NOT_WHOLE
        if excuse is not None:
            self._excused[excuse] += 1
        return excuse is not None

    def _is_whole(self, partition: str) -> bool:
        """Return True if a partition has a leader and all replicas in sync, or has no row yet."""
        known = self._replicas.of(partition)
        return known is None or (known.leader != "" and len(known.in_sync) == len(known.replicas))

    def _expected(self, consumer: _Consumer) -> ZooKeeperGroupExpectation:
        """Return the settings of a consumer's group."""
        return self.context.zookeeper_groups[consumer.group]

    # -- the end ------------------------------------------------------------------------------

    def unsettled(self, now_us: int) -> tuple[str, ...]:
        """Return a sentence for each partition not read, or not committed, since healing."""
        if not self._healed or self._over:
            return ()
        return tuple(
            sentence
            for node, consumer in self._consumers.items()
            if consumer.is_running and consumer.is_connected
            for sentence in self._unsettled_of(node, consumer, now_us)
        )

    def _unsettled_of(self, node: str, consumer: _Consumer, now_us: int) -> Iterator[str]:
        """Yield the sentences of one consumer."""
        expected, margin_us = self._expected(consumer), self.context.clock_error_us
        commit_us = _commit_bound_us(expected)
        for partition, read in consumer.reads.items():
            if read.unread is not None and not read.read_since_healing:
                waited_us = _read_wait_us(consumer, read, now_us)
                if waited_us <= _reading_bound_us(expected) + margin_us:
                    yield f"{node} has not read {partition} since healing"
            if (
                commit_us is not None
                and read.uncommitted is not None
                and not read.committed_since_healing
                and now_us <= read.uncommitted.time_us + commit_us + margin_us
            ):
                yield f"{node} has not committed {partition} since healing"

    def finish(self) -> CheckReport:
        """Report the findings, and the longest waits."""
        without = sum(each.is_running and not each.reads for each in self._consumers.values())
        return self.report(
            judged=self._seen["waits_for_records"],
            seen=self._seen | self._longest_us | {"consumers_without_partitions": without},
            excused=dict(self._excused),
            note="" if self._healed else "the run ended before its faults were healed",
        )


def _restart(consumer: _Consumer, read: _Read, row: TraceRow) -> None:
    """Let the waits for a record and for a commit begin with `row`, if there are any."""
    if read.unread is not None:
        read.unread, read.busy_us = row, consumer.busy_us
    if read.uncommitted is not None:
        read.uncommitted = row


def _read_wait_us(consumer: _Consumer, read: _Read, now_us: int) -> int:
    """Return how long a consumer has waited for the next record, without its work on others."""
    since_us = now_us if read.unread is None else read.unread.time_us
    return now_us - since_us - (consumer.busy_us - read.busy_us)


def _reading_bound_us(expected: ZooKeeperGroupExpectation) -> int:
    """Return the longest allowed time without progress (rule 1)."""
    return (2 + expected.brokers) * expected.socket_timeout_us + expected.fetch_wait_us + SLACK_US


def _commit_bound_us(expected: ZooKeeperGroupExpectation) -> int | None:
    """Return the longest allowed time until a commit (rule 2); None without periodic commits."""
    if expected.commit_interval_us is None:
        return None
    commit_us = 0
    if expected.offsets_partition is not None:
        commit_us = (2 + expected.brokers) * expected.offsets_timeout_us
        commit_us += expected.offsets_backoff_us
    return 2 * (expected.commit_interval_us + commit_us) + SLACK_US
