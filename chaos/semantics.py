"""What the shapes cannot say: whether an experiment's parts fit each other.

Errors are what can never run or means nothing; warnings are what Kafka would accept and a person
would not want (BEHAVIOUR 8). Both name the path in the file.
"""

from collections.abc import Iterable, Iterator

import msgspec

from chaos.checkers.registry import CHECKERS
from chaos.experiment import Experiment, FaultDefinition, GroupDefinition, microseconds
from chaos.faults import FAULT_KINDS
from chaos.problems import Problem, near_miss, one_of
from chaos.targets import check_target, split_target
from protocol.config import ConsumerConfig
from protocol.ids import CLUSTER_METADATA, CONSUMER_OFFSETS

FILE = ""
"""Semantics know paths, not files: the loader adds file and line."""
LONGEST_US = 24 * 3_600 * 1_000_000
"""No stage of a run is longer than a day: a slip of the unit."""


def errors(experiment: Experiment) -> Iterator[Problem]:
    """Yield everything for which the experiment cannot be run."""
    yield from _topic_errors(experiment)
    for group_id, group in experiment.groups.items():
        yield from _group_errors(experiment, group, f"groups.{group_id}")
    for index, producer in enumerate(experiment.producers):
        yield from _named("topic", producer.topic, experiment.topics, f"producers[{index}].topic")
    for index, preload in enumerate(experiment.offsets_log):
        yield from _named("group", preload.group, experiment.groups, f"offsets_log[{index}].group")
    for index, fault in enumerate(experiment.faults):
        yield from _fault_errors(experiment, fault, f"faults[{index}]")
    for index, check in enumerate(experiment.checks):
        yield from _named("check", check, CHECKERS, f"checks[{index}]")
    for field in ("steady_state_timeout", "after_faults", "liveness_timeout"):
        yield from _too_long(getattr(experiment.run, field), f"run.{field}")


def warnings(experiment: Experiment) -> Iterator[Problem]:
    """Yield what is allowed and unwise."""
    config = experiment.cluster.config
    if config.offsets_topic_replication_factor == 1:
        yield _problem(
            "cluster.config.offsets.topic.replication.factor",
            "with one replica the groups of a lost broker are lost with it",
            expected="3",
            found="1",
        )
    if config.broker_heartbeat_interval_ms * 2 > config.broker_session_timeout_ms:
        yield _problem(
            "cluster.config.broker.heartbeat.interval.ms",
            "one lost heartbeat is enough to fence a broker",
            expected="at most half of broker.session.timeout.ms",
            found=str(config.broker_heartbeat_interval_ms),
        )
    for group_id, group in experiment.groups.items():
        yield from _group_warnings(group, f"groups.{group_id}")
    for index, fault in enumerate(experiment.faults):
        yield from _fault_warnings(experiment, fault, f"faults[{index}]")
    if not experiment.faults:
        yield _problem("faults", "the plan is empty: a run in which nothing breaks")


def _topic_errors(experiment: Experiment) -> Iterator[Problem]:
    brokers = experiment.cluster.brokers
    config = experiment.cluster.config
    replication = "offsets.topic.replication.factor"
    yield from _replication_errors(
        config.offsets_topic_replication_factor,
        config.min_insync_replicas,
        brokers,
        f"cluster.config.{replication}",
        "cluster.config.min.insync.replicas",
    )
    for name, topic in experiment.topics.items():
        if name in {CONSUMER_OFFSETS, CLUSTER_METADATA}:
            yield _problem(
                f"topics.{name}",
                "is Kafka's own topic",
                expected=f"`offsets.topic.num.partitions` and `{replication}` in cluster.config",
            )
        own = topic.config.min_insync_replicas
        yield from _replication_errors(
            topic.replication_factor,
            config.min_insync_replicas if own is None else own,
            brokers,
            f"topics.{name}.replication.factor",
            f"topics.{name}.config.min.insync.replicas",
        )


def _replication_errors(
    factor: int, min_insync: int, brokers: int, factor_path: str, min_path: str
) -> Iterator[Problem]:
    if factor > brokers:
        yield _problem(
            factor_path,
            "more replicas than brokers",
            expected=f"at most {brokers} (cluster.brokers)",
            found=str(factor),
        )
    elif min_insync > factor:
        yield _problem(
            min_path,
            "no write with acks=all could ever succeed",
            expected=f"at most {factor}, the replication factor",
            found=str(min_insync),
        )


def _group_errors(experiment: Experiment, group: GroupDefinition, path: str) -> Iterator[Problem]:
    for index, topic in enumerate(group.topics):
        yield from _named("topic", topic, experiment.topics, f"{path}.topics[{index}]")
    config = group.config
    if config.heartbeat_interval_ms >= config.session_timeout_ms:
        yield _problem(
            f"{path}.config.heartbeat.interval.ms",
            "Kafka's consumer refuses to start",
            expected=f"less than session.timeout.ms ({config.session_timeout_ms})",
            found=str(config.heartbeat_interval_ms),
        )
    broker = experiment.cluster.config
    low, high = broker.group_min_session_timeout_ms, broker.group_max_session_timeout_ms
    if not low <= config.session_timeout_ms <= high:
        yield _problem(
            f"{path}.config.session.timeout.ms",
            "the brokers answer every JoinGroup with INVALID_SESSION_TIMEOUT",
            expected=f"{low} to {high} (group.min and group.max.session.timeout.ms)",
            found=str(config.session_timeout_ms),
        )
    if config.group_instance_id is not None and group.members > 1:
        yield _problem(
            f"{path}.config.group.instance.id",
            f"all {group.members} members would have the same one and fence each other",
        )
    for index, server in enumerate(config.bootstrap_servers):
        brokers = [f"broker-{broker_id}" for broker_id in range(experiment.cluster.brokers)]
        yield from _named("broker", server, brokers, f"{path}.config.bootstrap.servers[{index}]")


def _group_warnings(group: GroupDefinition, path: str) -> Iterator[Problem]:
    config = group.config
    if group.members == 0:
        yield _problem(f"{path}.members", "nobody ever joins this group", found="0")
    if config.session_timeout_ms > config.heartbeat_interval_ms > config.session_timeout_ms / 3:
        yield _problem(
            f"{path}.config.heartbeat.interval.ms",
            "over a third of the session timeout: two lost heartbeats evict a member",
            expected=f"at most {config.session_timeout_ms // 3}",
            found=str(config.heartbeat_interval_ms),
        )
    asked = group.commit_interval_ms is not None
    if asked and config.enable_auto_commit:
        yield _problem(
            f"{path}.config.enable.auto.commit",
            "members commit by themselves and by Kafka's auto-commit",
            expected="false beside commit_interval_ms",
            found="true" if config != ConsumerConfig() else "true, the default",
        )


def _fault_errors(experiment: Experiment, fault: FaultDefinition, path: str) -> Iterator[Problem]:
    yield from _too_long(fault.at, f"{path}.at")
    if fault.duration is not None:
        yield from _too_long(fault.duration, f"{path}.duration")
    wrong = check_target(fault.target, experiment)
    if wrong is not None:
        yield _problem(
            f"{path}.target",
            wrong.message,
            expected=wrong.expected,
            near_miss=wrong.near_miss,
            found=f"`{fault.target}`",
        )
    kind = FAULT_KINDS.get(fault.fault)
    if kind is None:
        yield from _named("fault", fault.fault, FAULT_KINDS, f"{path}.fault")
        return
    role = split_target(fault.target)
    if wrong is None and role is not None and role[0] not in kind.targets:
        yield _problem(
            f"{path}.target",
            f"`{fault.fault}` cannot be aimed at it",
            expected=one_of(sorted(kind.targets)),
            found=f"`{role[0]}`",
        )
    try:
        msgspec.convert(fault.args, kind.args_type)
    except msgspec.ValidationError as error:
        names = [info.encode_name for info in msgspec.structs.fields(kind.args_type)]
        stray = [name for name in fault.args if name not in names]
        yield _problem(
            f"{path}.args.{stray[0]}" if stray else f"{path}.args",
            str(error),
            expected=one_of(names) if names else f"no arguments: `{fault.fault}` takes none",
            near_miss=near_miss(stray[0], names) if stray else None,
        )


def _fault_warnings(experiment: Experiment, fault: FaultDefinition, path: str) -> Iterator[Problem]:
    session_ms = experiment.cluster.config.broker_session_timeout_ms
    if (
        fault.fault == "crash"
        and fault.duration is not None
        and microseconds(fault.duration) < session_ms * 1_000
    ):
        yield _problem(
            f"{path}.duration",
            "the broker cannot register until its old session ends, so it fails over all the same",
            expected=f"more than broker.session.timeout.ms ({session_ms} ms)",
            found=f"`{fault.duration}`",
        )


def _too_long(duration: str, path: str) -> Iterator[Problem]:
    if microseconds(duration) > LONGEST_US:
        yield _problem(path, "is not allowed", expected="at most `24h`", found=f"`{duration}`")


def _named(what: str, name: str, known: Iterable[str], path: str) -> Iterator[Problem]:
    names = list(known)
    if name not in names:
        yield _problem(
            path,
            f"unknown {what} `{name}`",
            expected=one_of(names) if names else f"a {what}, but the file defines none",
            near_miss=near_miss(name, names),
        )


def _problem(
    path: str,
    message: str,
    *,
    expected: str | None = None,
    found: str | None = None,
    near_miss: str | None = None,
) -> Problem:
    return Problem(
        file=FILE,
        line=None,
        path=path,
        message=message,
        expected=expected,
        found=found,
        near_miss=near_miss,
    )
