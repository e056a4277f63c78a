"""Unwise settings, which give a warning, and impossible settings, which give an error.

Kafka accepts an unwise setting, but an engineer would not want it. For example,
`min.insync.replicas` is the number of in-sync replicas that a write with acks=all needs. It is
unwise to make this number as large as the number of replicas: no write would succeed while one
broker is down.

The functions `cluster`, `readers`, `producer` and `topics` return sections of an experiment file
with the given Kafka settings. In the names of these settings underscores stand for dots.
`experiment` fills in the sections that a test does not give. By default its plan (the list of
faults) is one crash of the coordinator.
"""

from typing import Any

import pytest

from chaos.experiment.rules.all_rules import errors, warnings
from tests.support.builders.experiments import experiment

CLUSTER = {"offsets.topic.num.partitions": 2, "min.insync.replicas": 2}
CONSUMER = {"enable.auto.commit": False}
CRASH = {
    "at": "5s",
    "fault": "crash",
    "target": "coordinator-of(readers)",
    "duration": "25s",
}
MOVE = {"at": "5s", "fault": "leadership_move", "target": "coordinator-of(readers)"}
# Each test that uses CUT adds its ends, `from` and `to`.
CUT = {"at": "5s", "fault": "cut", "duration": "25s"}
TRANSACTIONAL = {"transactional": True}


def _kafka(config: dict[str, object]) -> dict[str, object]:
    """Return the settings with the names that they have in Kafka."""
    return {name.replace("_", "."): value for name, value in config.items()}


def cluster(**config: object) -> dict[str, Any]:
    return {"brokers": 3, "config": CLUSTER | _kafka(config)}


def readers(group: dict[str, Any] | None = None, **config: object) -> dict[str, Any]:
    """Return the section `groups`. `group` has other keys of the group, such as `process_us`."""
    base = {"members": 2, "topics": ["orders"], "commit_interval_ms": 200}
    return {"readers": base | {"config": CONSUMER | _kafka(config)} | (group or {})}


def producer(**config: object) -> list[dict[str, Any]]:
    return [{"topic": "orders", "records_per_second": 10, "config": _kafka(config)}]


def topics(**config: object) -> dict[str, Any]:
    return {"orders": {"partitions": 2, "replication.factor": 3, "config": _kafka(config)}}


@pytest.mark.parametrize(
    ("changes", "path", "expected"),
    [
        # The offsets topic has one replica. If its broker is lost, the groups' offsets are lost,
        # too.
        (
            {"cluster": cluster(offsets_topic_replication_factor=1, min_insync_replicas=1)},
            "cluster.config.offsets.topic.replication.factor",
            "3",
        ),
        # All three replicas must have a commit. While one broker is down, no commit succeeds.
        (
            {"cluster": cluster(min_insync_replicas=3)},
            "cluster.config.min.insync.replicas",
            "at most 2, one less than offsets.topic.replication.factor",
        ),
        # One replica is enough, so an acknowledged commit may be on one broker only.
        (
            {"cluster": cluster(min_insync_replicas=1)},
            "cluster.config.min.insync.replicas",
            "2",
        ),
        # The lab does not compact the topics of clients.
        (
            {"topics": topics(cleanup_policy="compact")},
            "topics.orders.config.cleanup.policy",
            "delete",
        ),
        (
            {
                "cluster": cluster(min_insync_replicas=3),
                # A broker that is cut off from the controller is fenced, as if it had crashed.
                "faults": [{**CUT, "from": "broker(0)", "to": "controller"}],
            },
            "cluster.config.min.insync.replicas",
            "at most 2, one less than offsets.topic.replication.factor",
        ),
        # A replica that is not in sync may lead, so acknowledged data may be lost.
        (
            {"cluster": cluster(unclean_leader_election_enable=True)},
            "cluster.config.unclean.leader.election.enable",
            "false",
        ),
        # The session of a broker is 9 s. With this interval, one lost heartbeat ends the session.
        (
            {"cluster": cluster(broker_heartbeat_interval_ms=5_000)},
            "cluster.config.broker.heartbeat.interval.ms",
            "at most half of broker.session.timeout.ms",
        ),
        # All three replicas must have a record. While one broker is down, no record is written.
        (
            {"topics": topics(min_insync_replicas=3), "producers": producer()},
            "topics.orders.config.min.insync.replicas",
            "at most 2",
        ),
        (
            {"topics": topics(unclean_leader_election_enable=True)},
            "topics.orders.config.unclean.leader.election.enable",
            "false",
        ),
        # A group's first rebalance waits 3 s for members, so the group cannot be steady before
        # that.
        (
            {"run": {"steady_state_timeout": "3s"}},
            "run.steady_state_timeout",
            "more than group.initial.rebalance.delay.ms (3000 ms)",
        ),
        (
            {
                # Without a duration the broker is down until the run heals everything, here 5 s
                # later. The controller notices the crash only after up to 9 s.
                "faults": [{**MOVE, "at": "1s"}, {**CRASH, "duration": None}],
                "run": {"after_faults": "5s"},
            },
            "run.after_faults",
            "more than broker.session.timeout.ms (9000 ms)",
        ),
        (
            {"groups": readers(heartbeat_interval_ms=20_000)},
            "groups.readers.config.heartbeat.interval.ms",
            "at most 15000",  # a third of session.timeout.ms
        ),
        # max.poll.interval.ms is also the rebalance timeout. So a rebalance would remove members
        # whose sessions have not ended.
        (
            {"groups": readers(max_poll_interval_ms=30_000)},
            "groups.readers.config.max.poll.interval.ms",
            "at least session.timeout.ms (45000)",
        ),
        # A poll takes 50 ms. Its 500 records (max.poll.records) take 700 ms each. Together this is
        # more than the default of 300 s, after which a member must leave its group.
        (
            {"groups": readers({"process_us": 700_000})},
            "groups.readers.config.max.poll.interval.ms",
            "more than 350050",
        ),
        # Here a record takes 0.1 to 700 ms. The slowest record counts.
        (
            {"groups": readers({"process_us": [100, 700_000]})},
            "groups.readers.config.max.poll.interval.ms",
            "more than 350050",
        ),
        # The member stops waiting for a commit before its coordinator answers REQUEST_TIMED_OUT.
        (
            {"groups": readers(request_timeout_ms=5_000)},
            "groups.readers.config.request.timeout.ms",
            "more than offsets.commit.timeout.ms (5000)",
        ),
        # A fetch that waits for records would time out.
        (
            {"groups": readers(fetch_max_wait_ms=30_000)},
            "groups.readers.config.fetch.max.wait.ms",
            "less than request.timeout.ms (30000)",
        ),
        # A call would end with a timeout before its first request does.
        (
            {"groups": readers(default_api_timeout_ms=20_000)},
            "groups.readers.config.default.api.timeout.ms",
            "at least request.timeout.ms (30000)",
        ),
        # A backoff above its maximum never grows.
        (
            {"groups": readers(retry_backoff_ms=2_000)},
            "groups.readers.config.retry.backoff.ms",
            "at most retry.backoff.max.ms (1000)",
        ),
        (
            {"groups": readers(socket_connection_setup_timeout_ms=40_000)},
            "groups.readers.config.socket.connection.setup.timeout.ms",
            "at most socket.connection.setup.timeout.max.ms (30000)",
        ),
        # The third member gets no partition.
        (
            {"groups": readers({"members": 3})},
            "groups.readers.members",
            "at most 2, the partitions of its largest topic",
        ),
        # A failover loses records that the leader alone has acknowledged.
        (
            {"producers": producer(acks="1")},
            "producers[0].config.acks",
            "`all`",
        ),
        (
            {"producers": producer(reconnect_backoff_ms=2_000)},
            "producers[0].config.reconnect.backoff.ms",
            "at most reconnect.backoff.max.ms (1000)",
        ),
        # Nothing is broken in such a run. The warning proposes no value.
        ({"faults": []}, "faults", None),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_unwise_setting_is_one_warning_at_its_place(
    changes: dict[str, Any], path: str, expected: str | None
) -> None:
    """An experiment with one unwise setting has one warning. It has no error, so it can be run.

    The warning names the setting by its `path` in the file, and proposes the value `expected`.
    """
    unwise = experiment(**changes)

    (warning,) = warnings(unwise)

    assert (warning.path, warning.expected) == (path, expected)
    assert list(errors(unwise)) == []


@pytest.mark.parametrize(
    "changes",
    [
        # While a leader moves, all replicas stay in sync. So writes succeed with any setting.
        {"cluster": cluster(min_insync_replicas=3), "faults": [MOVE]},
        {"cluster": cluster(min_insync_replicas=1), "faults": [MOVE]},
        # A broker that is cut off from clients alone still replicates.
        {
            "cluster": cluster(min_insync_replicas=3),
            "faults": [{**CUT, "from": "broker(0)", "to": "clients"}],
        },
        # A slow follower replicates too, only later.
        {
            "cluster": cluster(min_insync_replicas=3),
            "faults": [
                {
                    **CUT,
                    "fault": "slow",
                    "from": "broker(0)",
                    "to": "brokers",
                    "args": {"delay": "5ms"},
                }
            ],
        },
        {"topics": topics(min_insync_replicas=3), "producers": producer(), "faults": [MOVE]},
        # `after_faults` (10 s) is longer than the broker's session (9 s).
        {"faults": [{**CRASH, "duration": None}]},
        # The session of a broker says nothing about a crashed member.
        {
            "faults": [{**CRASH, "target": "member(readers, 0)", "duration": None}],
            "run": {"after_faults": "5s"},
        },
        # This is Kafka's default.
        {"producers": producer(linger_ms=0)},
        # 500 records of 500 ms take 250 s; max.poll.interval.ms is 300 s.
        {"groups": readers({"process_us": 500_000})},
    ],
)
def test_setting_that_harms_nothing_in_this_plan_is_no_warning(changes: dict[str, Any]) -> None:
    """A person who gets needless warnings ignores the other warnings, too."""
    assert list(warnings(experiment(**changes))) == []


def test_rebalance_timeout_below_the_heartbeat_interval_is_a_warning() -> None:
    """`max.poll.interval.ms` is also the rebalance timeout.

    Members learn of a rebalance by a heartbeat. If the rebalance ends before the next heartbeat of
    a member, the member is removed.
    """
    unwise = experiment(
        groups=readers(
            session_timeout_ms=6_000, heartbeat_interval_ms=2_000, max_poll_interval_ms=2_000
        )
    )

    # There are other warnings, too, which do not matter here.
    paths_and_expectations = {(warning.path, warning.expected) for warning in warnings(unwise)}

    assert (
        "groups.readers.config.heartbeat.interval.ms",
        "less than max.poll.interval.ms (2000), the rebalance timeout",
    ) in paths_and_expectations


def test_inherited_setting_of_late_members_is_reported_once() -> None:
    """A late member inherits the settings of its group that its own section does not have.

    If there is a warning about a setting of the group, there is none about the same setting of a
    late member. A warning about another setting names the place of the late member in the file.
    """
    unwise = {"heartbeat.interval.ms": 20_000}  # the group has this setting, too, see below
    late = [
        {"at": "1s", "members": 1, "config": CONSUMER | unwise},
        {"at": "2s", "members": 1, "config": CONSUMER | {"retry.backoff.ms": 2_000}},
    ]

    reported = warnings(
        experiment(groups=readers({"late_members": late}, heartbeat_interval_ms=20_000))
    )

    assert [warning.path for warning in reported] == [
        "groups.readers.config.heartbeat.interval.ms",
        "groups.readers.late_members[1].config.retry.backoff.ms",
    ]


@pytest.mark.parametrize(
    ("changes", "path", "message"),
    [
        # replica.fetch.wait.max.ms, by default 500, must not exceed the settings of these two
        # cases.
        (
            {"cluster": cluster(replica_lag_time_max_ms=400)},
            "cluster.config.replica.fetch.wait.max.ms",
            "Kafka's broker refuses to start",
        ),
        (
            {"cluster": cluster(replica_socket_timeout_ms=400)},
            "cluster.config.replica.fetch.wait.max.ms",
            "Kafka's broker refuses to start",
        ),
        # delivery.timeout.ms (default 120000) must be at least request.timeout.ms (default 30000).
        (
            {"producers": producer(delivery_timeout_ms=29_999)},
            "producers[0].config.delivery.timeout.ms",
            "Kafka's producer refuses to start",
        ),
        (
            {"producers": producer(request_timeout_ms=120_001)},
            "producers[0].config.delivery.timeout.ms",
            "the default is too short for it",
        ),
    ],
)
def test_settings_with_which_kafka_does_not_start_are_errors(
    changes: dict[str, Any], path: str, message: str
) -> None:
    """Kafka checks these settings when it starts.

    See KafkaConfig.validateValues and KafkaProducer.configureDeliveryTimeout in Kafka's code.
    """
    (error,) = errors(experiment(**changes))

    assert (error.path, error.message) == (path, message)


@pytest.mark.parametrize(
    ("changes", "path", "expected"),
    [
        # Each commit ends a transaction and begins the next one, so there must be commits.
        (
            {"groups": readers({**TRANSACTIONAL, "commit_interval_ms": None})},
            "groups.readers.commit_interval_ms",
            "a number of milliseconds beside `transactional: true`",
        ),
        # An automatic commit is outside of any transaction.
        (
            {"groups": readers(TRANSACTIONAL, enable_auto_commit=True)},
            "groups.readers.config.enable.auto.commit",
            "false beside `transactional: true`",
        ),
        (
            {
                "groups": readers(
                    {
                        **TRANSACTIONAL,
                        "late_members": [
                            {"at": "1s", "members": 1, "config": {"enable.auto.commit": True}}
                        ],
                    }
                )
            },
            "groups.readers.late_members[0].config.enable.auto.commit",
            "false beside `transactional: true`",
        ),
        (
            {
                "groups": readers({**TRANSACTIONAL, "transaction_timeout_ms": 60_001}),
                "cluster": cluster(transaction_max_timeout_ms=60_000),
            },
            "groups.readers.transaction_timeout_ms",
            "at most 60000 (transaction.max.timeout.ms)",
        ),
        (
            {
                "groups": readers(
                    {"commit_metadata": ["why"], "commit_interval_ms": None},
                    enable_auto_commit=True,
                )
            },
            "groups.readers.commit_metadata",
            "`commit_interval_ms` beside it",
        ),
        (
            # The length is counted in UTF-16 units. The first text is two owls, which are two units
            # each. So both texts are too long.
            {
                "groups": readers({"commit_metadata": ["\U0001f989\U0001f989", "12345"]}),
                "cluster": cluster(offset_metadata_max_bytes=3),
            },
            "groups.readers.commit_metadata",
            "a text of at most 3 (offset.metadata.max.bytes)",
        ),
        (
            {
                "groups": readers(TRANSACTIONAL),
                "cluster": cluster(transaction_state_log_replication_factor=4),
            },
            "cluster.config.transaction.state.log.replication.factor",
            "at most 3 (cluster.brokers)",
        ),
        (
            {
                "groups": readers(TRANSACTIONAL),
                "cluster": cluster(transaction_state_log_min_isr=4),
            },
            "cluster.config.transaction.state.log.min.isr",
            "at most 3",
        ),
    ],
)
def test_setting_without_which_no_transaction_can_commit_is_an_error(
    changes: dict[str, Any], path: str, expected: str
) -> None:
    """A group whose members could not commit in transactions is refused before it starts."""
    expected_by_path = {error.path: error.expected for error in errors(experiment(**changes))}

    assert path in expected_by_path
    # Some of the errors' texts go on with a reason: "at most 3, the replication factor".
    assert (expected_by_path[path] or "").startswith(expected)


def test_groups_without_transactions_have_no_such_requirements() -> None:
    """The settings of two cases above are harmless in a group without transactions.

    For example, the topic of transactions exists only if a group uses transactions.
    """
    changes = {
        "groups": readers({"transaction_timeout_ms": 60_001}),
        "cluster": cluster(
            transaction_max_timeout_ms=60_000, transaction_state_log_replication_factor=4
        ),
    }

    assert not list(errors(experiment(**changes)))


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"machine_silent_after": "1s"}, "run.machine_silent_after"),
        ({"machine_lost_after": "3s"}, "run.machine_lost_after"),
    ],
)
def test_machine_must_be_silent_for_some_seconds_before_it_is_lost(
    changes: dict[str, str], path: str
) -> None:
    """The driver of a run asks each machine once a second.

    So even a live machine is silent for 1 s. `machine_silent_after` must be at least 2 s.
    `machine_lost_after` must be longer than `machine_silent_after`, which is 3 s by default.
    """
    assert [error.path for error in errors(experiment(run=changes))] == [path]


def test_longer_limits_of_a_machines_silence_are_valid() -> None:
    """Over a slow network the answers of a machine may take longer than the defaults allow."""
    patient = {"machine_silent_after": "10s", "machine_lost_after": "2m"}
    assert list(errors(experiment(run=patient))) == []


@pytest.mark.parametrize(
    ("late", "is_warned"), [(["roundrobin"], True), (["roundrobin", "range"], False)]
)
def test_members_without_a_common_assignor_are_warned_about(
    late: list[str], is_warned: bool
) -> None:
    """An assignor is a way to assign partitions. A member may support several of them.

    Kafka's coordinator refuses a member that has no assignor in common with the other members
    (INCONSISTENT_GROUP_PROTOCOL).
    """
    # The group's other members have Kafka's default assignors, which include `range`.
    config = CONSUMER | {"partition.assignment.strategy": late}
    late_members = [{"at": "1s", "members": 1, "config": config}]
    warnings_of_late_members = [
        warning
        for warning in warnings(experiment(groups=readers({"late_members": late_members})))
        if warning.path == "groups.readers.late_members"
    ]
    assert bool(warnings_of_late_members) is is_warned
