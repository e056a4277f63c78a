"""The suite of checkers: its rows, its findings during the run, and its expectations.

A checker reads the rows of a run's trace and reports findings: violations of its promise. The suite
passes each row to all checkers. `context_of` computes from an experiment what the checkers expect:
names, timeouts and other facts. `experiment()` is a small experiment: three brokers, topic orders
with two partitions, group readers with two members.
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


def two_owners(suite: CheckSuite) -> Rows:
    """Let the suite observe two owners of the same partition, from 2 s to 5 s."""
    rows = Rows(suite.observe)  # the suite gets each row when it is added
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
    """A suite that lacked a checker would pass runs that break the checker's promise."""
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
    """The context names the partitions of `__transaction_state` that a transactional group needs.

    A member's node name is its transactional id, whose hash chooses the partition.
    """
    cluster = {"brokers": 3, "config": {"transaction.state.log.num.partitions": 5}}
    readers = {"members": 3, "topics": ["orders"], "commit_interval_ms": 200}
    transactional = {**readers, "transactional": True}

    context = context_of(experiment(cluster=cluster, groups={"readers": transactional}))

    # By Kafka's hash, the three transactional ids have these of the five partitions.
    names = [f"__transaction_state-{index}" for index in (0, 3, 4)]
    assert list(context.groups["readers"].transaction_partitions) == names
    assert context.transaction_min_isr == 2  # Kafka's default of transaction.state.log.min.isr
    context = context_of(experiment(cluster=cluster, groups={"readers": readers}))
    assert context.groups["readers"].transaction_partitions == ()


def test_finding_is_reported_when_it_is_made() -> None:
    """The run writes each finding into the trace, as a row that the suite gets, and must ignore."""
    reported: list[Finding] = []
    suite = CheckSuite(context_of(experiment()))
    rows = Rows()

    def trace_finding(finding: Finding) -> None:
        reported.append(finding)
        suite.observe(
            rows.add(5, "driver", TraceKind.VIOLATION, group=finding.group, cause=finding.check)
        )

    suite.report_findings_to(trace_finding)
    two_owners(suite)

    assert [finding.check for finding in reported] == ["ownership"]
    assert suite.violations() == 1
    (ownership,) = [report for report in suite.finish() if report.check == "ownership"]
    assert ownership.findings == tuple(reported)


def test_figures_are_available_during_the_run_and_in_the_reports() -> None:
    """Figures are measurements that decide no verdict; the live view and the summary show them."""
    suite = CheckSuite(context_of(experiment()))
    two_owners(suite)

    measured = suite.measured()
    reports = {report.check: report for report in suite.finish()}

    assert measured["ownership"]["longest_overlap_ms"] == 3_000
    assert measured["processing"]["processed_again"] == 0
    assert measured["durable_commits"]["offsets_of_unknown_outcome"] == 0
    assert reports["ownership"].measured == measured["ownership"]


def test_report_without_figures_can_be_read() -> None:
    """The results.json of an earlier version has no `measured`."""
    old = b'{"check":"fencing","outcome":"pass","seen":{"appends_failed":0}}'

    assert msgspec.json.decode(old, type=CheckReport).measured == {}


def expected_times_us(of_experiment: Experiment) -> dict[str, int]:
    """Return the times that the checkers expect of the readers, in microseconds."""
    readers = context_of(of_experiment).groups["readers"]
    return {
        "session": readers.session_timeout_us,
        "heartbeat": readers.heartbeat_interval_us,
        "eviction": readers.eviction_us,
        "application": readers.application_us,
    }


def test_expectations_come_from_the_consumers_settings() -> None:
    """A group evicts a silent member after the session timeout or max.poll.interval.ms.

    `eviction` is the shorter of the two. `application` is the longest time between two polls: one
    poll, and the processing of its records. In the second experiment a poll takes 100 ms, and the
    processing of its 50 records 1 ms each.
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

    # The times of Kafka's defaults, and a poll of 50 ms, the default of `poll_timeout_ms`.
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
        "application": 150_000,  # 100 ms + 50 * 1 ms
    }


def test_every_consumer_of_the_cluster_is_expected() -> None:
    """The expectation names the consumers of the cluster's own specification."""
    with_readers = experiment()
    readers = context_of(with_readers).groups["readers"]

    names = tuple(consumer.name for consumer in to_cluster_spec(with_readers).consumers)
    assert readers.consumers == names
    assert readers.late == ()  # the experiment starts no member during the run


def test_bound_of_the_start_applies_only_in_virtual_time() -> None:
    """The bound is the time in which a cluster must become steady.

    There is no bound in real time, because a machine may be slow, and no bound if a partition of
    the offsets topic cannot be loaded.
    """
    ordinary = experiment()
    bound_us = context_of(ordinary, in_virtual_time=True).start_bound_us

    assert bound_us is not None
    assert 20_000_000 < bound_us < 60_000_000
    assert context_of(ordinary).start_bound_us is None

    # The bound assumes that one broker loads all partitions, here for 1 s each. The offsets topic
    # has 50 by default, so the bound grows by more than 50 s.
    slow = experiment(cluster={"costs": {"load_fixed_us": 1_000_000}})
    assert (context_of(slow, in_virtual_time=True).start_bound_us or 0) > bound_us + 50_000_000

    unreadable = experiment(
        offsets_log=[{"group": "readers", "commit_records": 1, "unreadable": True}]
    )
    assert context_of(unreadable, in_virtual_time=True).start_bound_us is None


def acknowledged_and_led(suite: CheckSuite) -> CheckReport:
    """Return the report of *processing* about a record that a new leader lacks.

    The record 10 is acknowledged at 5.9 s by the clock of one machine. broker-1 leads from 6 s by
    the clock of another machine, with a log that ends at 10.
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
    """The clock error is measured after the cluster's start, when the suite already exists.

    If clocks differ by 200 ms, they cannot tell whether the acknowledgement (5.9 s) came before the
    leader (6 s).
    """
    producer = ProducerExpectation(name="producer-0", topic="t", period_us=1, acks_all=True)
    context = CheckContext(groups={}, producers=(producer,))
    exact = CheckSuite(context, ["processing"])
    with_error = CheckSuite(context, ["processing"])
    with_error.allow_clock_error(200_000)

    assert len(acknowledged_and_led(exact).findings) == 1
    assert acknowledged_and_led(with_error).findings == ()


def test_clock_error_cannot_change_once_rows_are_judged() -> None:
    """Rows that were judged with the other clock error would have to be judged anew."""
    suite = CheckSuite(context_of(experiment()))
    two_owners(suite)
    # The value that the suite has already: this happens in virtual time, after the first rows.
    suite.allow_clock_error(0)

    with pytest.raises(RuntimeError, match="clock error of 0 us; it cannot become 5 us now"):
        suite.allow_clock_error(5)
