"""The check *zookeeper progress* judges whether each consumer on ZooKeeper reads and commits.

Nobody makes sure that each partition of a group on ZooKeeper has an owner. But a consumer that owns
a partition must read it, and must commit what it has processed, once all faults are healed.

The tests write their traces by hand: the rows that a consumer, a producer, the controller and the
driver of the run would have recorded. Ids such as ZK-55 are rules of
docs/kafka/ZOOKEEPER_CONSUMER.md.
"""

from dataclasses import replace

from chaos.checkers.context import CheckContext, ZooKeeperGroupExpectation
from chaos.checkers.zookeeper_groups.progress import NOT_CONNECTED, NOT_WHOLE, ZooKeeperProgress
from protocol.causes import PositionCause
from protocol.trace import TraceKind
from results_schema.results import CheckOutcome
from tests.support.builders.rows import Rows

C0 = "consumer-old-0"
P0, P1 = "orders-0", "orders-1"
GROUP = ZooKeeperGroupExpectation(
    consumers=(C0,),
    brokers=3,
    socket_timeout_us=5_000_000,
    fetch_wait_us=0,
    commit_interval_us=1_000_000,
)
READING_S = 5 * 5 + 10
"""Longest time without progress: five socket timeouts of 5 s, and SLACK_US."""
COMMIT_S = 2 * 1 + 10
"""Longest time until a commit: two intervals of 1 s, and SLACK_US."""
LONG_S = 60
"""More than each of the two times."""


class ConsumerRows:
    """Rows of C0, which owns orders-0 and orders-1. The checker observes each row when it is added.

    C0 is connected in one session, and its position is 0 in both partitions. A row comes 0.1 s
    after the row before it.
    """

    def __init__(
        self, group: ZooKeeperGroupExpectation = GROUP, *, position: int | None = 0
    ) -> None:
        """Let C0 own its partitions. Without a `position` it does not know where to begin."""
        self.checker = ZooKeeperProgress(CheckContext(zookeeper_groups={"old": group}))
        self._rows = Rows(self.checker.observe)
        self.time_s = 0.0
        for partition in (P0, P1):
            self.change_isr(partition, (0, 1, 2), elects=True)
        self.connect()
        self.begin_attempt()
        if position is not None:
            for partition in (P0, P1):
                self.set_position(partition, position, PositionCause.COMMITTED)
        self.own()

    def add(self, node: str, kind: TraceKind, **columns: object) -> None:
        """Add a row, 0.1 s after the last row."""
        self.time_s += 0.1
        self._rows.add(self.time_s, node, kind, **columns)  # type: ignore[arg-type]

    def change_isr(self, partition: str, isr: tuple[int, ...], *, elects: bool = False) -> None:
        """Let the controller change the ISR of a partition. It may elect broker-0 with it."""
        kind = TraceKind.LEADER_ELECTED if elects else TraceKind.ISR_CHANGED
        self.add("controller", kind, partition=partition, peer="broker-0", detail={"isr": isr})

    def connect(self, state: str = "SyncConnected") -> None:
        """Let C0's connection to ZooKeeper get a state."""
        detail: dict[str, object] = {"session": "0x1", "state": state}
        self.add(C0, TraceKind.ZOOKEEPER_CLIENT_STATE, peer="zookeeper-1", detail=detail)

    def begin_attempt(self) -> None:
        """Let C0 begin an attempt to own partitions."""
        self.add(C0, TraceKind.ZOOKEEPER_ATTEMPT_STARTED, group="old", offset=1, detail={})

    def set_position(self, partition: str, offset: int, cause: PositionCause) -> None:
        """Let C0 begin to read a partition at an offset."""
        self.add(
            C0,
            TraceKind.POSITION_RESET,
            group="old",
            partition=partition,
            offset=offset,
            cause=cause,
        )

    def own(self) -> None:
        """Let C0 claim both partitions."""
        detail: dict[str, object] = {"partitions": (P0, P1)}
        self.add(C0, TraceKind.PARTITIONS_ASSIGNED, group="old", detail=detail)

    def enter(self, stage: str) -> None:
        """Let the run enter a stage. The stage `liveness` begins when all faults are healed."""
        self.add("driver", TraceKind.RUN_STAGE, detail={"stage": stage})

    def produce(self, partition: str, offset: int) -> None:
        """Let a producer's record be acknowledged."""
        detail: dict[str, object] = {"count": 1}
        self.add(
            "producer-0",
            TraceKind.RECORDS_PRODUCED,
            partition=partition,
            offset=offset,
            detail=detail,
        )

    def process(self, partition: str, offset: int, *, work_us: int = 0) -> None:
        """Let C0 process a record, which takes `work_us`."""
        detail: dict[str, object] = {"count": 1, "last": offset, "work_us": work_us}
        self.add(
            C0,
            TraceKind.RECORDS_CONSUMED,
            group="old",
            partition=partition,
            offset=offset,
            detail=detail,
        )

    def commit(self, partition: str, offset: int) -> None:
        """Let C0 commit an offset, at once."""
        detail: dict[str, object] = {"store": "zookeeper", "begun_us": round(self.time_s * 1e6)}
        self.add(
            C0,
            TraceKind.ZOOKEEPER_OFFSET_COMMITTED,
            group="old",
            partition=partition,
            offset=offset,
            detail=detail,
        )

    def wait(self, time_s: float = LONG_S) -> None:
        """Let a time pass."""
        self.time_s += time_s

    def summaries(self) -> list[str]:
        """End the run, and return the summaries of the findings."""
        self.enter("stopping")
        return [finding.summary for finding in self.checker.finish().findings]


def test_consumer_that_reads_and_commits_passes() -> None:
    """C0 reads and commits each record; between two records it may wait for any time."""
    rows = ConsumerRows()
    rows.enter("liveness")
    for offset in range(3):
        rows.produce(P0, offset)
        rows.process(P0, offset)
        rows.commit(P0, offset + 1)
        rows.wait()

    assert rows.summaries() == []
    report = rows.checker.finish()
    assert report.outcome is CheckOutcome.PASS
    assert report.seen["waits_for_records"] == 3
    assert report.seen["waits_for_commits"] == 3


def test_owned_partition_that_is_not_read_is_found() -> None:
    """A record of orders-0 waits after the healing, and C0 never processes it."""
    rows = ConsumerRows()
    rows.enter("liveness")
    rows.produce(P0, 0)
    rows.wait(READING_S + 1)

    (summary,) = rows.summaries()
    assert summary.startswith("consumer-old-0 owns orders-0 and has not read on from 0, for 36")


def test_consumer_may_wait_until_the_bound_and_before_the_healing() -> None:
    """The wait before the healing does not count, and the wait after it is short enough."""
    rows = ConsumerRows()
    rows.produce(P0, 0)
    rows.wait()
    rows.enter("liveness")
    rows.wait(READING_S - 1)

    assert rows.summaries() == []


def test_late_progress_is_found_although_the_consumer_reads_on() -> None:
    """C0 processes the record after more than the longest allowed time."""
    rows = ConsumerRows()
    rows.enter("liveness")
    rows.produce(P0, 0)
    rows.wait(READING_S + 1)
    rows.process(P0, 0)

    assert len(rows.summaries()) == 1


def test_consumer_that_never_finds_a_position_is_found() -> None:
    """Without a stored offset, C0 has to ask for the beginning or the end of the log."""
    rows = ConsumerRows(position=None)
    rows.enter("liveness")
    rows.set_position(P1, 0, PositionCause.EARLIEST)
    rows.wait(READING_S + 1)

    (summary,) = rows.summaries()
    assert summary.startswith("consumer-old-0 owns orders-0 and has not found a position, for 36")


def test_partition_without_an_owner_need_not_be_read() -> None:
    """A consumer that has given up owns nothing, and nobody reads its partitions (ZK-38)."""
    rows = ConsumerRows()
    rows.enter("liveness")
    rows.produce(P0, 0)
    rows.add(C0, TraceKind.PARTITIONS_REVOKED, group="old", detail={"partitions": (P0, P1)})
    rows.wait()

    assert rows.summaries() == []
    assert rows.checker.finish().seen["consumers_without_partitions"] == 1


def test_work_on_records_of_another_partition_does_not_count() -> None:
    """One stream processes both partitions. It works on one record of orders-1 for 40 s."""
    rows = ConsumerRows()
    rows.enter("liveness")
    rows.produce(P0, 0)
    rows.wait(40)
    rows.process(P1, 0, work_us=40_000_000)
    rows.commit(P1, 1)
    rows.wait(READING_S - 1)

    assert rows.summaries() == []


def test_processed_offset_that_is_not_committed_is_found_unless_nothing_is_committed() -> None:
    """C0 processes a record, but commits nothing. Without auto.commit.enable it need not commit."""
    found = []
    for group in (GROUP, replace(GROUP, commit_interval_us=None)):
        rows = ConsumerRows(group)
        rows.enter("liveness")
        rows.produce(P0, 0)
        rows.process(P0, 0)
        rows.wait(COMMIT_S + 1)
        found.append(rows.summaries())

    with_commits, without_commits = found
    (summary,) = with_commits
    assert summary.startswith("consumer-old-0 has processed orders-0 and committed nothing of it")
    assert without_commits == []


def test_commit_that_holds_an_older_offset_is_progress_of_its_begin() -> None:
    """The commit of offset 1 covers the first record; the second one waits for the next commit."""
    rows = ConsumerRows()
    rows.enter("liveness")
    rows.process(P0, 0)
    rows.process(P0, 1)
    rows.wait(COMMIT_S - 1)
    rows.commit(P0, 1)
    rows.wait(COMMIT_S - 1)
    rows.commit(P0, 2)

    assert rows.summaries() == []


def test_partitions_of_an_attempt_with_two_sessions_need_no_commit() -> None:
    """An attempt may claim in a new session what the end of the old one makes it forget (ZK-55)."""
    rows = ConsumerRows()
    rows.begin_attempt()
    rows.connect("Expired")
    rows.connect()
    rows.own()
    rows.enter("liveness")
    rows.process(P0, 0)
    rows.wait(COMMIT_S + 1)

    assert rows.summaries() == []


def test_record_that_was_taken_before_the_last_rebalance_is_no_progress() -> None:
    """The stream may finish one record after the next assignment, which has its own position."""
    rows = ConsumerRows()
    rows.enter("liveness")
    rows.begin_attempt()
    rows.set_position(P0, 5, PositionCause.COMMITTED)
    rows.set_position(P1, 5, PositionCause.COMMITTED)
    rows.own()
    rows.process(P0, 9, work_us=1_000_000)  # it began before the assignment, 0.1 s ago
    rows.wait(COMMIT_S + 1)

    assert rows.summaries() == []


def test_waits_are_excused_without_zookeeper_and_while_replicas_are_missing() -> None:
    """C0 has no connection in the first run. In the second, a follower is not in sync."""
    rows = ConsumerRows()
    rows.enter("liveness")
    rows.produce(P0, 0)
    rows.connect("Disconnected")
    rows.wait()
    assert rows.summaries() == []
    assert rows.checker.finish().excused == {NOT_CONNECTED: 1}

    rows = ConsumerRows()
    rows.enter("liveness")
    rows.produce(P0, 0)
    rows.change_isr(P0, (0, 1))
    rows.wait()
    assert rows.summaries() == []
    assert rows.checker.finish().excused == {NOT_WHOLE: 1}


def test_time_begins_anew_with_a_connection_and_a_leader_and_after_a_pause() -> None:
    """Each of these events comes before the longest allowed time is over."""
    rows = ConsumerRows()
    rows.enter("liveness")
    rows.produce(P0, 0)
    rows.wait(READING_S - 1)
    rows.connect()
    rows.wait(READING_S - 1)
    rows.change_isr(P0, (0, 1, 2))
    rows.wait(READING_S - 1)
    rows.add("driver", TraceKind.NODE_PAUSED, peer=C0)
    rows.wait()
    rows.add("driver", TraceKind.NODE_RESUMED, peer=C0)
    rows.wait(READING_S - 1)
    # After an election nobody knows whether the record still exists.
    rows.change_isr(P0, (0, 1, 2), elects=True)
    rows.wait()

    assert rows.summaries() == []


def test_consumer_that_ends_has_nothing_to_read() -> None:
    """C0 is killed. Its next process owns nothing at first."""
    rows = ConsumerRows()
    rows.enter("liveness")
    rows.produce(P0, 0)
    rows.add("driver", TraceKind.NODE_KILLED, peer=C0)
    rows.wait()
    rows.add(C0, TraceKind.NODE_STARTED)
    rows.wait()

    assert rows.summaries() == []


def test_run_waits_until_each_partition_is_read_and_committed() -> None:
    """A run with a `recovery_timeout` goes on while `unsettled` says what it has to wait for.

    A wait that is longer than allowed is a finding, and the run need not wait for it any more.
    """
    rows = ConsumerRows()
    rows.produce(P0, 0)
    assert rows.checker.unsettled(round(rows.time_s * 1e6)) == ()  # the faults are not healed
    rows.enter("liveness")

    healed_us = round(rows.time_s * 1e6)
    assert rows.checker.unsettled(healed_us + READING_S * 1_000_000) == (
        "consumer-old-0 has not read orders-0 since healing",
    )
    assert rows.checker.unsettled(healed_us + (READING_S + 1) * 1_000_000) == ()
    rows.process(P0, 0)
    processed_us = round(rows.time_s * 1e6)
    assert rows.checker.unsettled(processed_us + COMMIT_S * 1_000_000) == (
        "consumer-old-0 has not committed orders-0 since healing",
    )
    assert rows.checker.unsettled(processed_us + (COMMIT_S + 1) * 1_000_000) == ()
    rows.commit(P0, 1)
    assert rows.checker.unsettled(round(rows.time_s * 1e6)) == ()
