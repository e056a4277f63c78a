"""The loader reads experiment files, and reports what is wrong in them.

Each thing that is wrong is a Problem. The text of a problem shows its parts:

    small.yaml:6: cluster.broker: unknown key; expected one of ...; did you mean `brokers`?

The problem is in line 6 of the file. `cluster.broker` is its path, which leads through the keys of
the file to the wrong place. `brokers` is its near miss, which the author of the file has probably
meant.

Most tests make one mistake in the valid file VALID, and look at the problem. Other tests use an
override: with `--var path=value` a user of a command replaces one value of the file.
"""

import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from chaos.experiment.loader import (
    ListedExperiment,
    find_experiment,
    list_experiments,
    load_experiment,
)
from chaos.experiment.problems import ExperimentError, Problem
from chaos.experiment.structs import to_cluster_spec

VALID = """\
version: 1
name: small
question: What happens?
expect: Nothing much.
cluster:
  brokers: 3
  config:
    offsets.topic.num.partitions: 2
    min.insync.replicas: 2
topics:
  orders:
    partitions: 2
    replication.factor: 3
groups:
  readers:
    members: 2
    topics: [orders]
    commit_interval_ms: 200
    config:
      session.timeout.ms: 45000
      enable.auto.commit: false
producers:
  - topic: orders
    records_per_second: 10
faults:
  - at: 5s
    fault: crash
    target: coordinator-of(readers)
    duration: 25s
"""

Write = Callable[[str], str]
"""A function that writes a file with this content, and returns the file's name."""


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Return a function that writes a file into an empty working directory and returns its name."""
    monkeypatch.chdir(tmp_path)

    def write_file(content: str) -> str:
        (tmp_path / "small.yaml").write_text(content)
        return "small.yaml"

    return write_file


def problems(file: str, *overrides: str) -> tuple[Problem, ...]:
    """Load a file that is refused, and return its problems. An override is "path=value"."""
    with pytest.raises(ExperimentError) as caught:
        load_experiment(file, overrides)
    return caught.value.problems


def only_problem(file: str, *overrides: str) -> Problem:
    """Load a file that is refused for a single problem, and return the problem."""
    (problem,) = problems(file, *overrides)
    return problem


def test_valid_file_is_read_under_kafkas_names_without_warning(write: Write) -> None:
    """In the file the settings have Kafka's names.

    The heartbeat interval is not in the file, so it has Kafka's default, 3 s.
    """
    loaded = load_experiment(write(VALID))

    group = loaded.experiment.groups["readers"]
    assert loaded.warnings == ()
    assert group.config.session_timeout_ms == 45_000
    assert group.config.heartbeat_interval_ms == 3_000
    assert loaded.experiment.cluster.config.offsets_topic_num_partitions == 2


def test_misspelt_key_names_line_path_and_near_miss(write: Write) -> None:
    """The text of the problem lists the valid keys that are most similar, the nearest first."""
    problem = only_problem(write(VALID.replace("session.timeout.ms", "session.timout.ms")))

    assert str(problem) == (
        "small.yaml:20: groups.readers.config.session.timout.ms: unknown key; "
        "expected one of 22 keys, nearest `session.timeout.ms`, `request.timeout.ms`, "
        "`default.api.timeout.ms`, `socket.connection.setup.timeout.ms`, "
        "`socket.connection.setup.timeout.max.ms`; "
        "did you mean `session.timeout.ms`?"
    )


def test_underscores_in_a_kafka_name_are_a_near_miss(write: Write) -> None:
    """A user may write session_timeout_ms, as in Python, instead of session.timeout.ms."""
    problem = only_problem(write(VALID.replace("session.timeout.ms", "session_timeout_ms")))

    assert problem.near_miss == "session.timeout.ms"


def test_missing_key_is_named_with_its_expected_value(write: Write) -> None:
    """The topic lacks its key `partitions`."""
    problem = only_problem(write(VALID.replace("    partitions: 2\n    repl", "    repl")))

    assert problem.path == "topics.orders.partitions"
    assert problem.message == "is missing"
    assert problem.expected == "a whole number >= 1 and <= 10000"


def test_misspelt_required_key_is_one_problem_not_two(write: Write) -> None:
    """The file has `member` instead of `members`.

    The missing key `members` is no second problem.
    """
    problem = only_problem(write(VALID.replace("    members: 2", "    member: 2")))

    assert (problem.path, problem.near_miss) == ("groups.readers.member", "members")


@pytest.mark.parametrize(
    ("before", "after", "path", "expected", "found"),
    [
        ("brokers: 3", "brokers: three", "cluster.brokers", "a whole number >= 1", "`three`"),
        ("brokers: 3", "brokers: 0", "cluster.brokers", "a whole number >= 1", "0 (int)"),
        ("commit: false", "commit: 2", "config.enable.auto.commit", "true or false", "2"),
        ("at: 5s", "at: 5", "faults[0].at", "such as `5s` or `250ms`", "5 (int)"),
        ("at: 5s", "at: 5 seconds", "faults[0].at", "us, ms, s, m or h", "`5 seconds`"),
        ("at: 5s", 'at: "5s\\n"', "faults[0].at", "us, ms, s, m or h", "`5s"),
        ("[orders]", "orders", "groups.readers.topics", "a list", "`orders`"),
        ("[orders]", "[]", "groups.readers.topics", "a list of at least 1", "an empty list"),
        # \u0665 is the Arabic digit 5, which Python's int() would accept.
        ("at: 5s", "at: \u0665s", "faults[0].at", "us, ms, s, m or h", "`\u0665s`"),
        ("brokers: 3", "brokers: 101", "cluster.brokers", ">= 1 and <= 100", "101 (int)"),
        ("members: 2", "members: 10001", "groups.readers.members", "<= 10000", "10001 (int)"),
        ("partitions: 2\n    repl", "partitions: 0\n    repl", "orders.partitions", ">= 1", "0"),
        ("second: 10", "second: .inf", "producers[0].records_per_second", "<= 1000000", "inf"),
        ("second: 10", "second: .nan", "producers[0].records_per_second", "a number > 0", "nan"),
        ("brokers: 3", "brokers: 3.0", "cluster.brokers", "a whole number >= 1", "3.0 (float)"),
        ("[orders]", "[2026-01-01]", "readers.topics[0]", "text", "2026-01-01 (date)"),
        ("name: small", "name: a:b", "name", "letters, digits", "`a:b`"),
        ("version: 1", "version: 2", "version", "1", "2 (int)"),
    ],
)
def test_invalid_value_is_reported_with_the_expected_and_the_given_one(
    write: Write, before: str, after: str, path: str, expected: str, found: str
) -> None:
    """In VALID the text `before` is replaced by `after`.

    The problem's path ends with `path`. Its text of what is expected contains `expected`, and its
    text of what was found contains `found`.
    """
    problem = only_problem(write(VALID.replace(before, after)))

    assert problem.path.endswith(path)
    assert expected in (problem.expected or "")
    assert found in (problem.found or "")
    assert problem.line is not None


@pytest.mark.parametrize(
    ("written", "near_miss"), [("5", "5s"), ("2.0", "2s"), ("2.5", "2500ms"), ("-5", None)]
)
def test_duration_without_unit_is_a_near_miss_in_seconds(
    write: Write, written: str, near_miss: str | None
) -> None:
    """A number without a unit is taken for seconds.

    A duration must be a whole number, as 2500ms is.
    """
    assert only_problem(write(VALID.replace("at: 5s", f"at: {written}"))).near_miss == near_miss


def test_wrong_element_in_a_list_of_ends_is_reported_at_its_place(write: Write) -> None:
    """The second element of the list `to` is 5, but must be the text of a target."""
    cut = "fault: cut\n    from: broker(0)\n    to: [broker(1), 5]"
    changed = VALID.replace("fault: crash\n    target: coordinator-of(readers)", cut)
    problem = only_problem(write(changed))

    assert (problem.path, problem.expected, problem.found) == ("faults[0].to[1]", "text", "5 (int)")


@pytest.mark.parametrize(
    ("before", "after", "path", "message"),
    [
        ("topics: [orders]", "topics: [orders, orders]", "groups.readers.topics[1]", "second time"),
        (
            "session.timeout.ms: 45000",
            "partition.assignment.strategy: []",
            "groups.readers.config.partition.assignment.strategy",
            "without an assignor",
        ),
        (
            "offsets.topic.num.partitions: 2",
            "offsets.topic.num.partitions: 10001",
            "cluster.config.offsets.topic.num.partitions",
            "is not allowed",
        ),
        ("producers:", "checks: [fencing, fencing]\nproducers:", "checks[1]", "second time"),
    ],
)
def test_value_that_would_break_the_cluster_is_an_error(
    write: Write, before: str, after: str, path: str, message: str
) -> None:
    """These values have the right type, but no cluster could work with such a value."""
    problem = only_problem(write(VALID.replace(before, after)))

    assert problem.path == path
    assert message in problem.message


def test_target_in_a_file_without_groups_names_their_absence(write: Write) -> None:
    """The target of the fault is coordinator-of(readers), but the file has no groups at all."""
    # VALID with an empty mapping in place of its groups.
    before_groups, _ = VALID.split("groups:\n")
    _, after_groups = VALID.split("producers:\n")
    content = f"{before_groups}groups: {{}}\nproducers:\n{after_groups}"

    assert only_problem(write(content)).expected == "a group, but the file has none"


def test_misspelt_choice_has_a_near_miss(write: Write) -> None:
    """`auto.offset.reset` must have one of three values."""
    changed = VALID.replace("enable.auto.commit: false", "auto.offset.reset: earlyest")
    problem = problems(write(changed))[0]

    assert problem.expected == "one of `earliest`, `latest`, `none`"
    assert problem.near_miss == "earliest"


def test_several_problems_are_reported_together_in_the_files_order(write: Write) -> None:
    """Different checks of the loader find the three problems.

    They are sorted by line nevertheless.
    """
    changed = VALID.replace("brokers: 3", "brokers: x").replace("at: 5s", "att: 5s")
    changed = changed.replace("records_per_second: 10", "records_per_second: 0")
    reported = problems(write(changed))

    assert [problem.path for problem in reported] == [
        "cluster.brokers",
        "producers[0].records_per_second",
        "faults[0].att",
    ]
    assert [problem.line for problem in reported] == [6, 24, 26]


@pytest.mark.parametrize(
    ("before", "after", "path", "message", "near_miss"),
    [
        ("fault: crash", "fault: crush", "faults[0].fault", "unknown fault `crush`", "crash"),
        (
            "coordinator-of(readers)",
            "cordinator-of(readers)",
            "faults[0].target",
            "unknown target `cordinator-of`",
            "coordinator-of(readers)",
        ),
        (
            "coordinator-of(readers)",
            "coordinator-of(reader)",
            "faults[0].target",
            "no group `reader` is defined",
            "coordinator-of(readers)",
        ),
        ("coordinator-of(readers)", "broker(3)", "faults[0].target", "no broker `3`", None),
        ("coordinator-of(readers)", "broker(x", "faults[0].target", "is no target", None),
        (
            "topics: [orders]",
            "topics: [oders]",
            "groups.readers.topics[0]",
            "unknown topic `oders`",
            "orders",
        ),
        ("topic: orders", "topic: order", "producers[0].topic", "unknown topic", "orders"),
        (
            "replication.factor: 3",
            "replication.factor: 4",
            "topics.orders.replication.factor",
            "more replicas than brokers",
            None,
        ),
        (
            "replication.factor: 3",
            "replication.factor: 1",
            "topics.orders.config.min.insync.replicas",
            "no write with acks=all could ever succeed",
            None,
        ),
        (
            "session.timeout.ms: 45000",
            "heartbeat.interval.ms: 45000",
            "groups.readers.config.heartbeat.interval.ms",
            "refuses to start",
            None,
        ),
        (
            "session.timeout.ms: 45000",
            "session.timeout.ms: 5000",
            "groups.readers.config.session.timeout.ms",
            "INVALID_SESSION_TIMEOUT",
            None,
        ),
        (
            "session.timeout.ms: 45000",
            "group.instance.id: one",
            "groups.readers.config.group.instance.id",
            "fence each other",
            "one-{index}",
        ),
        ("duration: 25s", "duration: 25h", "faults[0].duration", "is not allowed", None),
        (
            "duration: 25s",
            "args: {delay: 3}",
            "faults[0].args.delay",
            "unknown key",
            None,
        ),
    ],
)
def test_contradicting_parts_are_errors(
    write: Write, before: str, after: str, path: str, message: str, near_miss: str | None
) -> None:
    """Each value is possible by itself, but does not fit another part of the file.

    For example, a topic has four replicas in a cluster of three brokers.
    """
    problem = only_problem(write(VALID.replace(before, after)))

    assert problem.path == path
    assert message in problem.message
    assert problem.near_miss == near_miss
    assert problem.line is not None


LATE_MEMBERS = """\
    members: 2
    late_members:
      - at: 15s
        members: 2
        config:
          bootstrap.servers: [broker-1, "broker-2:9092"]
      - at: 20s
        members: 1
"""
"""Late members start during the run: two at 15 s, and one at 20 s."""


def with_late_members() -> str:
    """Return VALID with LATE_MEMBERS in its group."""
    return VALID.replace("    members: 2\n", LATE_MEMBERS)


def test_late_members_inherit_the_settings_of_their_group(write: Write) -> None:
    """The group has five members: two from the beginning on, and three late ones.

    All five have the group's setting of `enable.auto.commit`. Only the late members of 15 s have
    `bootstrap.servers` of their own.
    """
    loaded = load_experiment(write(with_late_members()))

    settings = loaded.experiment.groups["readers"].settings_of_members()
    configs = [config for config, _ in settings]
    starts_us = [start_us for _, start_us in settings]
    assert starts_us == [None, None, 15_000_000, 15_000_000, 20_000_000]
    assert [config.enable_auto_commit for config in configs] == [False] * 5
    assert [len(config.bootstrap_servers) for config in configs] == [0, 0, 2, 2, 0]


@pytest.mark.parametrize(
    ("before", "after", "path", "near_miss"),
    [
        ("broker-1,", "broker-7,", "config.bootstrap.servers[0]", "broker-2"),
        ("bootstrap.servers:", "bootstrap.server:", "config.bootstrap.server", "bootstrap.servers"),
        ("at: 15s", "at: 25h", "at", None),
    ],
)
def test_problem_of_late_members_is_reported_at_their_place(
    write: Write, before: str, after: str, path: str, near_miss: str | None
) -> None:
    """Late members may have settings of their own, which are checked like those of the group."""
    problem = only_problem(write(with_late_members().replace(before, after)))

    assert problem.path.startswith("groups.readers.late_members[0].")
    assert problem.path.endswith(path)
    assert problem.near_miss == near_miss


def test_problem_of_the_group_is_not_repeated_for_its_late_members(write: Write) -> None:
    """The late members inherit a wrong setting of the group. This is one problem, and not three."""
    content = with_late_members().replace("session.timeout.ms: 45000", "session.timeout.ms: 5000")

    assert only_problem(write(content)).path == "groups.readers.config.session.timeout.ms"


def test_override_reaches_a_setting_of_late_members(write: Write) -> None:
    """The override is about `late_members[1]`, which may also be written `late_members.1`.

    This is the late member of 20 s, the fifth member of the group. Only this member gets the new
    setting.
    """
    for place in ("late_members[1]", "late_members.1"):
        override = f"groups.readers.{place}.config.session.timeout.ms=9000"
        loaded = load_experiment(write(with_late_members()), [override])
        settings = loaded.experiment.groups["readers"].settings_of_members()
        configs = [config for config, _ in settings]
        assert [config.session_timeout_ms for config in configs] == [45_000] * 4 + [9_000]
        assert not configs[4].enable_auto_commit


@pytest.mark.parametrize(
    ("instance", "message", "near_miss"),
    [
        ("reader", "fence each other", "reader-{index}"),
        ("reader-{idx}", "Kafka's brokers refuse it", "reader-{index}"),
        ("a reader", "Kafka's brokers refuse it", "a-reader"),
        ("reader {i}", "Kafka's brokers refuse it", "reader-{index}"),
    ],
)
def test_static_members_with_one_instance_id_are_an_error_with_a_hint(
    write: Write, instance: str, message: str, near_miss: str | None
) -> None:
    """A `group.instance.id` makes members static. Each member must have an id of its own.

    So the id must contain `{index}`, which the lab replaces by the number of the member. Some of
    these ids also have characters that Kafka does not allow.
    """
    setting = f"session.timeout.ms: 45000\n      group.instance.id: '{instance}'"
    problem = only_problem(write(VALID.replace("session.timeout.ms: 45000", setting)))

    assert problem.path == "groups.readers.config.group.instance.id"
    assert message in problem.message
    assert "{index}" in (problem.expected or "")
    assert problem.near_miss == near_miss


def test_late_members_with_one_instance_id_are_reported_at_their_place(write: Write) -> None:
    """The two late members of 15 s have the same instance id, `late`."""
    setting = "bootstrap.servers: [broker-1]\n          group.instance.id: late"
    content = with_late_members().replace('bootstrap.servers: [broker-1, "broker-2:9092"]', setting)
    problem = only_problem(write(content))

    assert problem.path == "groups.readers.late_members[0].config.group.instance.id"
    assert problem.message == "2 members would have the same one and fence each other"
    assert problem.near_miss == "late-{index}"


def test_static_members_and_late_ones_have_their_own_index(write: Write) -> None:
    """The first two members have the indices 0 and 1, and the late members 2, 3 and 4."""
    setting = "session.timeout.ms: 45000\n      group.instance.id: reader-{index}"
    content = with_late_members().replace("session.timeout.ms: 45000", setting)

    spec = to_cluster_spec(load_experiment(write(content)).experiment)

    assert [consumer.config.group_instance_id for consumer in spec.consumers] == [
        f"reader-{index}" for index in range(5)
    ]
    assert [consumer.starts_later for consumer in spec.consumers] == [False] * 2 + [True] * 3


@pytest.mark.parametrize(
    ("override", "path"),
    [
        ("cluster.storage.write_back_ms=-1", "cluster.storage.write_back_ms"),
        ("cluster.storage.write_back_check_ms=0", "cluster.storage.write_back_check_ms"),
        ("cluster.links.base_us=-1", "cluster.links.base_us"),
    ],
)
def test_negative_delay_or_zero_interval_is_an_error(
    write: Write, override: str, path: str
) -> None:
    """A delay must be at least 0. An interval must be at least 1."""
    assert only_problem(write(VALID), override).path == path


def test_storage_model_is_passed_to_the_cluster(write: Write) -> None:
    """In `cluster.storage` a file describes the disks of the brokers.

    Here it may take 5 s until data that was written is safe on the disk.
    """
    loaded = load_experiment(write(VALID), ["cluster.storage.write_back_ms=5000"])

    assert to_cluster_spec(loaded.experiment).storage.write_back_ms == 5_000


def test_bad_override_in_ends_and_arguments_of_a_fault_names_the_override(write: Write) -> None:
    """The problem is in the override, so its text names `--var` in place of the file and line.

    The three overrides have a broker that does not exist, a misspelt API, and an index after the
    end of the list `to`.
    """
    content = VALID.replace("crash", "cut").replace(
        "target: coordinator-of(readers)",
        "from: coordinator-of(readers)\n    to: [controller, brokers]",
    )
    ends = only_problem(write(content), "faults[0].to[1]=broker(9)")
    argument = only_problem(write(content), "faults[0].args.apis=[Fetsh]")

    assert str(ends).startswith("--var: faults[0].to[1]: there is no broker `9`")
    assert str(argument).startswith("--var: faults[0].args.apis[0]: unknown API `Fetsh`")
    assert only_problem(write(content), "faults[0].to[2]=x").path == "faults[0].to[2]"


def test_unknown_check_is_an_error(write: Write) -> None:
    """The name of the check `durable_commits` is written with a hyphen here."""
    problem = only_problem(write(VALID + "checks: [fencing, durable-commits]\n"))

    assert (problem.path, problem.near_miss) == ("checks[1]", "durable_commits")


@pytest.mark.parametrize(
    ("before", "after", "path"),
    [
        # The default heartbeat interval, 3 s, is more than a third of this session.
        (
            "session.timeout.ms: 45000",
            "session.timeout.ms: 6000",
            "groups.readers.config.heartbeat.interval.ms",
        ),
        # The members commit by themselves (`commit_interval_ms`), and by Kafka's auto-commit.
        ("      enable.auto.commit: false\n", "", "groups.readers.config.enable.auto.commit"),
        # The crashed broker is back before its session of 9 s has ended.
        ("duration: 25s", "duration: 2s", "faults[0].duration"),
        ("members: 2", "members: 0", "groups.readers.members"),
    ],
)
def test_unwise_settings_are_warnings(write: Write, before: str, after: str, path: str) -> None:
    """Kafka accepts each of these settings, but it is probably a mistake. So there is a warning."""
    (warning,) = load_experiment(write(VALID.replace(before, after))).warnings

    assert warning.path == path
    assert warning.line is not None


def test_key_that_is_given_twice_is_an_error(write: Write) -> None:
    """Most readers of YAML silently take the last of two values. The loader refuses the file."""
    problem = only_problem(write(VALID.replace("  brokers: 3\n", "  brokers: 3\n  brokers: 5\n")))

    assert problem.path == "cluster.brokers"
    assert "a second time (first in line 6)" in problem.message


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "the file is empty"),
        ("- a\n- b\n", "must be a mapping"),
        ("a: [1, 2\nb: 3\n", "not valid YAML"),
        ("a: &a [*a]\n", "contains itself"),
        ("[" * 3_000, "nested too deeply"),
        ("? [1, 2]\n: 3\n", "a key must be a plain word"),
    ],
)
def test_file_that_is_no_experiment_is_reported_as_such(
    write: Write, content: str, message: str
) -> None:
    """The loader reports an ordinary problem.

    The YAML library would raise exceptions of its own.
    """
    assert message in problems(write(content))[0].message


def test_override_changes_a_place_whose_names_have_dots(write: Write) -> None:
    """Dots separate the keys of a path, but the names of Kafka's settings have dots, too."""
    loaded = load_experiment(
        write(VALID),
        [
            "groups.readers.config.session.timeout.ms=10000",
            "cluster.brokers=5",
            "faults[0].duration=30s",
            "groups.readers.config.auto.offset.reset=earliest",
        ],
    )

    experiment = loaded.experiment
    assert experiment.groups["readers"].config.session_timeout_ms == 10_000
    assert experiment.groups["readers"].config.auto_offset_reset == "earliest"
    assert experiment.cluster.brokers == 5
    assert experiment.faults[0].duration == "30s"


def test_override_may_create_a_section_that_the_file_lacks(write: Write) -> None:
    """VALID has no section `run`, but an override may set a value in it."""
    loaded = load_experiment(write(VALID), ["run.liveness_timeout=5s"])

    assert loaded.experiment.run.liveness_timeout == "5s"


@pytest.mark.parametrize(
    ("override", "path", "near_miss"),
    [
        ("cluster.broker=5", "cluster.broker", "brokers"),
        ("groups.reader.members=3", "groups.reader.members", "readers"),
        (
            "groups.readers.config.session.timout.ms=1",
            "groups.readers.config.session.timout.ms",
            "session.timeout.ms",
        ),
        ("faults[3].at=1s", "faults[3].at", None),
        ("faults[-1].at=1s", "faults[-1].at", None),
        ("faults[0]at=1s", "faults[0]at", None),
        ("faults.at=1s", "faults.at", None),
        ("faults.3.at=1s", "faults.3.at", None),
        ("faults[0].att=1s", "faults[0].att", "at"),
        ("cluster.brokers.x=1", "cluster.brokers.x", None),
        ("cluster.brokers", "cluster.brokers", None),
        ("=3", "=3", None),
    ],
)
def test_override_of_an_unknown_path_is_an_error(
    write: Write, override: str, path: str, near_miss: str | None
) -> None:
    """The problem names `--var` in place of the file, and the path of the override."""
    problem = only_problem(write(VALID), override)

    assert problem.file == "--var"
    assert problem.path == path
    assert problem.near_miss == near_miss


@pytest.mark.parametrize("value", ["[" * 3_000, "&a [*a]", "2026-13-45", "{"])
def test_override_that_is_no_yaml_is_reported_as_text(write: Write, value: str) -> None:
    """The problem shows the value as the loader got it.

    The user may have written another value, because a shell removes quotes and splits at spaces.
    """
    problem = only_problem(write(VALID), f"cluster.brokers={value}")

    assert problem.path == "cluster.brokers"
    assert problem.found == f"`{value}`"


def test_target_with_a_comma_between_braces_needs_quotes(write: Write) -> None:
    """YAML reads `{target: member(readers, 0)}` as two keys: `target` and `0)`.

    The message of the problem says that the target needs quotes.
    """
    value = "faults[0]={at: 1s, fault: crash, target: member(readers, 0)}"

    assert "needs quotes" in only_problem(write(VALID), value).message


def test_override_beyond_a_list_names_the_valid_indices(write: Write) -> None:
    """VALID has one fault, so only `faults[0]` exists."""
    problem = only_problem(write(VALID), "faults[3].at=1s")

    assert problem.message == "there is no such place in the list"
    assert problem.expected == "`faults[0]`"


def test_override_with_a_wrong_value_is_reported_as_an_override(write: Write) -> None:
    """The first value has a wrong type.

    The second value does not fit the three brokers of the file. Both problems name the override.
    """
    wrong_type = only_problem(write(VALID), "cluster.brokers=many")
    contradiction = only_problem(write(VALID), "topics.orders.replication.factor=7")

    assert str(wrong_type).startswith(
        "--var: cluster.brokers: is not allowed; expected a whole number"
    )
    assert str(contradiction).startswith("--var: topics.orders.replication.factor: more replicas")


def test_name_of_a_file_in_this_folder_suggests_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user gives the name graceful_mov, and there is a file graceful_mov.yaml in this folder.

    A name without `.yaml` stands for an experiment that the lab ships, and there is none of this
    name. The problem must suggest the file in this folder. It must not suggest the shipped
    experiment graceful_move instead.
    """
    (tmp_path / "graceful_mov.yaml").write_text(VALID)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ExperimentError) as caught:
        find_experiment("graceful_mov")
    assert caught.value.problems[0].near_miss == "graceful_mov.yaml"


def test_unknown_name_suggests_the_one_that_was_meant() -> None:
    """The lab ships an experiment coordinator_crash, whose name is misspelt here."""
    problem = only_problem("coordinater_crash")

    assert problem.near_miss == "coordinator_crash"


def test_unknown_file_suggests_a_file_of_similar_name(write: Write) -> None:
    """A name that ends in `.yaml` is the path of a file, here of small.yaml."""
    write(VALID)

    assert only_problem("smal.yaml").near_miss == "small.yaml"


def test_folder_is_distinguished_from_a_missing_file(write: Write, tmp_path: Path) -> None:
    """A user may write `validate experiments/`. The problem says that this is a folder.

    The problem also lists the files in the folder.
    """
    write(VALID)
    problem = only_problem(f"{tmp_path}/")

    assert problem.message == "is a directory"
    assert "small.yaml" in (problem.expected or "")


def test_own_experiments_folder_has_precedence(write: Write, tmp_path: Path) -> None:
    """A file in the user's own folder experiments/ is preferred to a shipped experiment."""
    write(VALID)
    own = tmp_path / "experiments" / "coordinator_crash.yaml"
    own.parent.mkdir()
    own.write_text(VALID)

    assert find_experiment("coordinator_crash") == own


SUGGESTION = re.compile(r"^# (?:Try:|    ) (--var .*?)(?:  +\(.*)?$", re.MULTILINE)
"""A comment of an experiment that suggests overrides, such as the following two lines.

    # Try: --var cluster.brokers=5  (an explanation after two spaces)
    #      --var faults[0].at=9s
"""
QUOTED = re.compile(r'"[^"]*"')
"""A part of a line that is in double quotes."""


@pytest.mark.parametrize("listed", list_experiments(), ids=lambda listed: listed.name)
def test_suggested_commands_of_an_experiment_can_be_pasted_and_run(
    listed: ListedExperiment,
) -> None:
    """A user copies a suggested line into a shell.

    So the line must have quotes around all characters that a shell interprets, and the loader must
    accept its overrides.
    """
    lines = SUGGESTION.findall(listed.path.read_text())
    assert lines
    for line in lines:
        unquoted_text = QUOTED.sub("", line)
        assert not re.search(r"[][(){}*?~$&;|<>]", unquoted_text), line

        # The words are `--var` and an override in turn.
        words = shlex.split(line)
        options, overrides = words[::2], words[1::2]
        assert options == ["--var"] * len(overrides)
        load_experiment(str(listed.path), overrides)


UNWISE_ON_PURPOSE = {"machine_crash": ["cluster.config.unclean.leader.election.enable"]}
"""Experiments that show the effect of unwise settings, with the paths of these settings."""


def test_every_shipped_experiment_is_valid_and_without_warning() -> None:
    """Users read the shipped experiments as examples. So an experiment must not have a warning."""
    listed = list_experiments()

    assert [experiment.name for experiment in listed] == [
        "coordinator_crash",
        "coordinator_crash_static",
        "deploy",
        "deploy_in_failover",
        "deploy_static",
        "deploy_too_slow",
        "graceful_move",
        "herd_effect",
        "machine_crash",
        "member_crash",
        "pause_coordinator",
        "rolling_bounce",
        "rolling_restart",
        "split_brain_generations",
        "split_brain_ownership",
        "split_network",
        "zookeeper_late_release",
        "zookeeper_restart",
        "zookeeper_split_view",
        "zookeeper_zombie",
    ]
    for experiment in listed:
        assert experiment.problem is None
        assert experiment.question
        unwise = [warning.path for warning in load_experiment(str(experiment.path)).warnings]
        assert unwise == UNWISE_ON_PURPOSE.get(experiment.name, [])


def test_override_by_the_end_of_a_path_suggests_the_path(write: Write) -> None:
    """A user may give only the name of a setting, as in Kafka's documentation.

    The problem suggests the whole path of the setting.
    """
    problem = only_problem(write(VALID), "broker.session.timeout.ms=9000")
    assert problem.near_miss == "cluster.config.broker.session.timeout.ms"
    problem = only_problem(write(VALID), "session.timeout.ms=9000")
    assert problem.near_miss == "groups.readers.config.session.timeout.ms"


def test_override_by_the_end_of_no_path_suggests_none(write: Write) -> None:
    """No path of an experiment ends with this name."""
    assert only_problem(write(VALID), "no.such.setting.ms=9000").near_miss is None


def test_bad_value_hides_no_problem_of_another_place(write: Write) -> None:
    """The file has an invalid duration and three unknown names. All four are reported."""
    text = VALID.replace("[orders]", "[order]").replace("fault: crash", "fault: crush")
    text = text.replace("coordinator-of(readers)", "coordinator-of(reader)")
    text = text.replace("duration: 25s", "duration: 25x")
    assert [(problem.path, problem.near_miss) for problem in problems(write(text))] == [
        ("groups.readers.topics[0]", "orders"),
        ("faults[0].fault", "crash"),
        ("faults[0].target", "coordinator-of(readers)"),
        ("faults[0].duration", None),
    ]


@pytest.mark.parametrize(
    ("old", "new", "path"),
    [
        ("  - at: 5s", "  - at: 5", "faults[0].at"),
        # The missing `topics` is replaced, too. If it were not, each group would have unknown
        # topics.
        ("topics:\n", "topcs:\n", "topcs"),
        (
            "session.timeout.ms: 45000",
            "heartbeat.interval.ms: 50000\n      session.timeout.ms: 2m",
            "groups.readers.config.session.timeout.ms",
        ),
        ("    fault: crash\n", "", "faults[0].fault"),
    ],
)
def test_stand_in_for_a_bad_value_has_no_problem_of_its_own(
    write: Write, old: str, new: str, path: str
) -> None:
    """To check the rest of the file, the loader replaces a bad value by a valid stand-in.

    The rest of the file may not fit the stand-in. This is no problem of the file, because the user
    has not written the stand-in. So the only problem is the bad value.
    """
    assert old in VALID
    assert only_problem(write(VALID.replace(old, new))).path == path


def test_existing_file_of_a_known_name_is_suggested(write: Write) -> None:
    """The user gives the file coordinator_crash.yaml, which does not exist.

    But the lab ships an experiment with the name coordinator_crash.
    """
    write(VALID)
    assert only_problem("coordinator_crash.yaml").near_miss == "coordinator_crash"


@pytest.mark.parametrize("value", ["", " "])
def test_override_without_a_value_is_refused(write: Write, value: str) -> None:
    """YAML reads an empty value as null.

    For this setting, null means that the members never commit. A user who leaves out the value has
    hardly meant this. A user who means it writes `null`.
    """
    key = "groups.readers.commit_interval_ms"
    problem = only_problem(write(VALID), f"{key}={value}")
    assert (problem.file, problem.path, problem.message) == ("--var", key, "has no value")
    without_commits = load_experiment(write(VALID), (f"{key}=null",)).experiment
    assert without_commits.groups["readers"].commit_interval_ms is None
