"""CheckSuite runs all checkers on the trace of one run.

Each checker watches over one promise of Kafka, for example that a partition has one owner
("ownership"), and reports a finding when the promise is broken. A run records what happens as the
rows of a trace. The run gives each row to the suite, and the suite passes the row on to the
checkers. What is right depends on the experiment, for example on the session timeout. So
`context_of` returns the facts of an experiment that the checkers need.

`experiment()` has three brokers, the topic `orders` with two partitions, and the group `readers`
with two members.
"""

import msgspec
import pytest

from chaos.checkers.context import CheckContext, ProducerExpectation
from chaos.checkers.registry import CHECKERS, CheckSuite, context_of
from chaos.experiment.structs import Experiment, to_cluster_spec
from protocol.trace import TraceKind
from results_schema.results import CheckReport, Finding
from tests.support.builders.experiments import experiment
from tests.support.builders.rows import Rows

READER = "consumer-readers-0"


def observe_two_owners(suite: CheckSuite) -> Rows:
    """Let two members own the same partition from 2 s to 5 s, and return the rows.

    `rows.assigned` gives its member the same partition each time.
    """
    rows = Rows(suite.observe)  # the suite observes each row as soon as it is added
    rows.assigned(1, READER, "readers")
    rows.assigned(2, "consumer-readers-1", "readers")
    rows.add(
        5,
        READER,
        TraceKind.PARTITIONS_REVOKED,
        group="readers",
        member=f"{READER}-id",
        generation=1,
        detail={"partitions": []},
    )
    return rows


def test_twelve_checkers_are_in_every_suite() -> None:
    """A suite that lacked a checker would pass runs in which the checker's promise is broken.

    Four more checkers exist, which judge groups on ZooKeeper, and properties that a group must
    demand.
    """
    suite = CheckSuite(context_of(experiment()))

    assert [checker.name for checker in suite.checkers] == [
        "fencing",
        "durable_commits",
        "generations",
        "ownership",
        "liveness",
        "recovery",
        "readers",
        "answers",
        "administration",
        "stability",
        "needless_rebalance",
        "processing",
    ]
    assert all(checker.promise and checker.kinds for checker in CHECKERS.values())


def test_topic_of_transactions_is_checked_for_transactional_members_only() -> None:
    """A transactional group needs the partitions of `__transaction_state` of its members.

    Each member uses its node name as the transactional id, and the hash of this id chooses the
    partition. A group without transactions needs none of them.
    """
    cluster = {"brokers": 3, "config": {"transaction.state.log.num.partitions": 5}}
    readers = {"members": 3, "topics": ["orders"], "commit_interval_ms": 200}
    transactional = {**readers, "transactional": True}

    context = context_of(experiment(cluster=cluster, groups={"readers": transactional}))

    # Kafka's hash sends the three members to the partitions 0, 3 and 4 of five.
    partitions = [f"__transaction_state-{index}" for index in (0, 3, 4)]
    assert list(context.groups["readers"].transaction_partitions) == partitions
    assert context.transaction_min_isr == 2  # Kafka's default of transaction.state.log.min.isr

    context = context_of(experiment(cluster=cluster, groups={"readers": readers}))
    assert context.groups["readers"].transaction_partitions == ()


def test_finding_is_reported_when_it_is_made() -> None:
    """A finding is passed to the run at once, and not only when the run ends.

    The run then writes a row VIOLATION into the trace, as `trace_finding` does here. The suite
    observes this row, too, and must not take it for another violation.
    """
    reported: list[Finding] = []
    suite = CheckSuite(context_of(experiment()))
    rows = Rows()

    def trace_finding(finding: Finding) -> None:
        reported.append(finding)
        suite.observe(
            rows.add(5, "driver", TraceKind.VIOLATION, group=finding.group, cause=finding.check)
        )

    suite.report_findings_to(trace_finding)
    observe_two_owners(suite)

    assert [finding.check for finding in reported] == ["ownership"]
    assert suite.violations() == 1
    (ownership,) = [report for report in suite.finish() if report.check == "ownership"]
    assert ownership.findings == tuple(reported)


def test_figures_are_available_during_the_run_and_in_the_reports() -> None:
    """Checkers also measure things, such as the longest time with two owners.

    No verdict depends on these figures. People see them in the live view and in the summary.
    """
    suite = CheckSuite(context_of(experiment()))
    observe_two_owners(suite)

    measured = suite.measured()
    reports = {report.check: report for report in suite.finish()}

    assert measured["ownership"]["longest_overlap_ms"] == 3_000
    assert measured["processing"]["processed_again"] == 0
    assert measured["durable_commits"]["offsets_of_unknown_outcome"] == 0
    assert reports["ownership"].measured == measured["ownership"]


def test_report_without_figures_can_be_read() -> None:
    """Earlier versions of coordlab wrote no `measured` into results.json, which has the reports."""
    old_report = b'{"check":"fencing","outcome":"pass","seen":{"appends_failed":0}}'

    assert msgspec.json.decode(old_report, type=CheckReport).measured == {}


def expected_times_us(experiment_with_readers: Experiment) -> dict[str, int]:
    """Return the times that the checkers expect of the readers, in microseconds."""
    readers = context_of(experiment_with_readers).groups["readers"]
    return {
        "session": readers.session_timeout_us,
        "heartbeat": readers.heartbeat_interval_us,
        "eviction": readers.eviction_us,
        "application": readers.application_us,
    }


def test_expectations_come_from_the_consumers_settings() -> None:
    """The checkers expect the times that the experiment sets, or else Kafka's defaults.

    - `eviction`: a silent member is removed after this time, which is the shorter one of the
      session timeout and max.poll.interval.ms.
    - `application`: two polls of a member are at most this far apart. A poll waits for the poll
      timeout, and then the application processes its records.
    """
    group = {
        "members": 2,
        "topics": ["orders"],
        "process_us": 1_000,
        "poll_timeout_ms": 100,
        "config": {
            "session.timeout.ms": 10_000,
            "heartbeat.interval.ms": 2_000,
            "max.poll.interval.ms": 8_000,
            "max.poll.records": 50,
        },
    }

    # Without settings: Kafka's defaults, and 50 ms, the lab's default of `poll_timeout_ms`.
    assert expected_times_us(experiment()) == {
        "session": 45_000_000,
        "heartbeat": 3_000_000,
        "eviction": 45_000_000,
        "application": 50_000,
    }
    assert expected_times_us(experiment(groups={"readers": group})) == {
        "session": 10_000_000,
        "heartbeat": 2_000_000,
        "eviction": 8_000_000,
        "application": 100_000 + 50 * 1_000,  # a poll, and 50 records of 1 ms each
    }


def test_every_consumer_of_the_cluster_is_expected() -> None:
    """The checkers expect the same consumers that the cluster starts."""
    with_readers = experiment()
    readers = context_of(with_readers).groups["readers"]

    names = tuple(consumer.name for consumer in to_cluster_spec(with_readers).consumers)
    assert readers.consumers == names
    assert readers.late == ()  # the experiment starts no member during the run


def test_bound_of_the_start_applies_only_in_virtual_time() -> None:
    """In virtual time a cluster must become steady within `start_bound_us`.

    There is no bound (None) in two cases:

    - In real time a machine may be slow.
    - If a partition of the offsets topic cannot be loaded, the cluster never becomes steady.
    """
    ordinary = experiment()
    bound_us = context_of(ordinary, in_virtual_time=True).start_bound_us

    assert bound_us is not None
    assert 20_000_000 < bound_us < 60_000_000
    assert context_of(ordinary).start_bound_us is None

    # The bound assumes that one broker loads all partitions of the offsets topic. Here each load
    # takes 1 s, and the topic has 50 partitions by default. So the bound grows by more than 50 s.
    slow = experiment(cluster={"costs": {"load_fixed_us": 1_000_000}})
    assert (context_of(slow, in_virtual_time=True).start_bound_us or 0) > bound_us + 50_000_000

    # The log of the readers' partition ends with a record that no coordinator can read.
    unreadable = experiment(
        offsets_log=[{"group": "readers", "commit_records": 1, "unreadable": True}]
    )
    assert context_of(unreadable, in_virtual_time=True).start_bound_us is None


def report_of_a_lost_record(suite: CheckSuite) -> CheckReport:
    """Return the report of the checker `processing` about a record that a new leader lacks.

    By the clock of the producer's machine the record 10 was acknowledged at 5.9 s. By the clock of
    broker-1's machine broker-1 leads from 6 s on. The log of broker-1 ends before the record 10.
    """
    rows = Rows(suite.observe)
    producer = "producer-0"
    rows.add(
        5.9, producer, TraceKind.RECORDS_PRODUCED, partition="t-0", offset=10, detail={"count": 1}
    )
    rows.leads(6, "broker-1", leader_epoch=1, log_end=10, partition="t-0")
    (report,) = [report for report in suite.finish() if report.check == "processing"]
    return report


def test_clock_error_reaches_evidence_that_was_made_before() -> None:
    """The suite exists before the clock error is known, and tells it to its checkers later.

    With an error of 200 ms nobody can tell whether the acknowledgement at 5.9 s really came before
    the new leader at 6 s. So only the suite with exact clocks reports a finding.
    """
    producer = ProducerExpectation(name="producer-0", topic="t", period_us=1, acks_all=True)
    context = CheckContext(groups={}, producers=(producer,))
    exact = CheckSuite(context, ["processing"])
    with_error = CheckSuite(context, ["processing"])
    with_error.allow_clock_error(200_000)

    assert len(report_of_a_lost_record(exact).findings) == 1
    assert report_of_a_lost_record(with_error).findings == ()


def test_clock_error_cannot_change_once_rows_are_judged() -> None:
    """The suite would have to judge the earlier rows anew with the new clock error."""
    suite = CheckSuite(context_of(experiment()))
    observe_two_owners(suite)
    # The clock error is 0 at first. It may be set to 0 again at any time, as a run in virtual time
    # does after its first rows.
    suite.allow_clock_error(0)

    with pytest.raises(RuntimeError, match="clock error of 0 us; it cannot become 5 us now"):
        suite.allow_clock_error(5)
