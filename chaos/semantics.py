"""What the shapes cannot say: whether an experiment's parts fit each other.

Errors are what can never run or means nothing; warnings are what Kafka would accept and a person
would not want (BEHAVIOUR 8). Both name the path in the file.
"""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import msgspec

from chaos.checkers.registry import CHECKERS
from chaos.experiment import MEMBER_INDEX, Experiment, GroupDefinition
from chaos.fault_semantics import fault_errors, fault_warnings
from chaos.problems import Problem
from chaos.sense import named, problem, too_long
from protocol.config import ConsumerConfig
from protocol.ids import CLUSTER_METADATA, CONSUMER_OFFSETS, broker_name

_PLACEHOLDER = re.compile(r"\{[^{}]*\}")
_INSTANCE = re.compile(r"[A-Za-z0-9._-]{1,249}")
"""What Kafka takes as `group.instance.id`. Source: JoinGroupRequest.validateGroupInstanceId."""


def errors(experiment: Experiment) -> Iterator[Problem]:
    """Yield everything for which the experiment cannot be run."""
    yield from _topic_errors(experiment)
    yield from _model_errors(experiment)
    for group_id, group in experiment.groups.items():
        yield from _group_errors(experiment, group, f"groups.{group_id}")
    for index, producer in enumerate(experiment.producers):
        yield from named("topic", producer.topic, experiment.topics, f"producers[{index}].topic")
    for index, preload in enumerate(experiment.offsets_log):
        yield from named("group", preload.group, experiment.groups, f"offsets_log[{index}].group")
    for index, fault in enumerate(experiment.faults):
        yield from fault_errors(experiment, fault, f"faults[{index}]")
    for index, check in enumerate(experiment.checks):
        yield from named("check", check, CHECKERS, f"checks[{index}]")
    for field in ("steady_state_timeout", "after_faults", "liveness_timeout"):
        yield from too_long(getattr(experiment.run, field), f"run.{field}")


def warnings(experiment: Experiment) -> Iterator[Problem]:
    """Yield what is allowed and unwise."""
    config = experiment.cluster.config
    if config.offsets_topic_replication_factor == 1:
        yield problem(
            "cluster.config.offsets.topic.replication.factor",
            "with one replica the groups of a lost broker are lost with it",
            expected="3",
            found="1",
        )
    if config.broker_heartbeat_interval_ms * 2 > config.broker_session_timeout_ms:
        yield problem(
            "cluster.config.broker.heartbeat.interval.ms",
            "one lost heartbeat is enough to fence a broker",
            expected="at most half of broker.session.timeout.ms",
            found=str(config.broker_heartbeat_interval_ms),
        )
    for group_id, group in experiment.groups.items():
        yield from _group_warnings(group, f"groups.{group_id}")
    for index, fault in enumerate(experiment.faults):
        yield from fault_warnings(experiment, fault, f"faults[{index}]")
    if not experiment.faults:
        yield problem("faults", "the plan is empty: a run in which nothing breaks")


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
            yield problem(
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


def _model_errors(experiment: Experiment) -> Iterator[Problem]:
    """Yield the parts of the models of links and disks that are no length of time."""
    smallest = {"write_back_check_ms": 1}
    for name in ("links", "storage"):
        model = msgspec.structs.asdict(getattr(experiment.cluster, name))
        for field, value in model.items():
            least = smallest.get(field, 0)
            if value < least:
                yield problem(
                    f"cluster.{name}.{field}",
                    "is not allowed",
                    expected=f"a whole number >= {least}",
                    found=str(value),
                )


def _replication_errors(
    factor: int, min_insync: int, brokers: int, factor_path: str, min_path: str
) -> Iterator[Problem]:
    if factor > brokers:
        yield problem(
            factor_path,
            "more replicas than brokers",
            expected=f"at most {brokers} (cluster.brokers)",
            found=str(factor),
        )
    elif min_insync > factor:
        yield problem(
            min_path,
            "no write with acks=all could ever succeed",
            expected=f"at most {factor}, the replication factor",
            found=str(min_insync),
        )


def _group_errors(experiment: Experiment, group: GroupDefinition, path: str) -> Iterator[Problem]:
    for index, topic in enumerate(group.topics):
        yield from named("topic", topic, experiment.topics, f"{path}.topics[{index}]")
    yield from _consumer_errors(experiment, group.config, f"{path}.config")
    for index, late in enumerate(group.late_members):
        here = f"{path}.late_members[{index}]"
        yield from too_long(late.at, f"{here}.at")
        if late.config is not None:
            own = set(_consumer_errors(experiment, late.config, ""))
            inherited = set(_consumer_errors(experiment, group.config, ""))
            for error in _consumer_errors(experiment, late.config, ""):
                if error in own - inherited:  # what the group has wrong is said of the group
                    yield replace(error, path=f"{here}.config{error.path}")
    yield from _instance_errors(group, path)


def _consumer_errors(
    experiment: Experiment, config: ConsumerConfig, path: str
) -> Iterator[Problem]:
    if config.heartbeat_interval_ms >= config.session_timeout_ms:
        yield problem(
            f"{path}.heartbeat.interval.ms",
            "Kafka's consumer refuses to start",
            expected=f"less than session.timeout.ms ({config.session_timeout_ms})",
            found=str(config.heartbeat_interval_ms),
        )
    broker = experiment.cluster.config
    low, high = broker.group_min_session_timeout_ms, broker.group_max_session_timeout_ms
    if not low <= config.session_timeout_ms <= high:
        yield problem(
            f"{path}.session.timeout.ms",
            "the brokers answer every JoinGroup with INVALID_SESSION_TIMEOUT",
            expected=f"{low} to {high} (group.min and group.max.session.timeout.ms)",
            found=str(config.session_timeout_ms),
        )
    brokers = [broker_name(broker_id) for broker_id in range(experiment.cluster.brokers)]
    for index, server in enumerate(config.bootstrap_servers):
        host = server.partition(":")[0]  # a node has one port: the host says enough
        yield from named("broker", host, brokers, f"{path}.bootstrap.servers[{index}]")


def _instance_errors(group: GroupDefinition, path: str) -> Iterator[Problem]:
    """Yield what is wrong with the members' `group.instance.id`s, which must all differ."""
    instances = [
        config.group_instance_id
        for config, _ in group.settings_of_members()
        if config.group_instance_id is not None
    ]
    here = f"{path}.config.group.instance.id"
    written = group.config.group_instance_id or next(
        (
            late.config.group_instance_id
            for late in group.late_members
            if late.config is not None and late.config.group_instance_id is not None
        ),
        "",
    )
    misfit = next((name for name in instances if _INSTANCE.fullmatch(name) is None), None)
    if misfit is not None:
        yield problem(
            here,
            "Kafka's brokers refuse it",
            expected=f"letters, digits, `.`, `_`, `-`, and `{MEMBER_INDEX}`, which becomes the "
            "member's index",
            found=f"`{written}`",
            near_miss=_PLACEHOLDER.sub(MEMBER_INDEX, written)
            if _PLACEHOLDER.search(written)
            else None,
        )
        return
    shared = [(name, count) for name, count in Counter(instances).items() if count > 1]
    if shared:
        name, count = shared[0]
        yield problem(
            here,
            f"{'all ' if count == len(instances) else ''}{count} members would have the same one "
            "and fence each other",
            expected=f"`{MEMBER_INDEX}` in it, which becomes the member's index",
            found=f"`{written}`",
            near_miss=f"{name}-{MEMBER_INDEX}",
        )


def _group_warnings(group: GroupDefinition, path: str) -> Iterator[Problem]:
    config = group.config
    if group.members == 0:
        yield problem(f"{path}.members", "nobody ever joins this group", found="0")
    if config.session_timeout_ms > config.heartbeat_interval_ms > config.session_timeout_ms / 3:
        yield problem(
            f"{path}.config.heartbeat.interval.ms",
            "over a third of the session timeout: two lost heartbeats evict a member",
            expected=f"at most {config.session_timeout_ms // 3}",
            found=str(config.heartbeat_interval_ms),
        )
    asked = group.commit_interval_ms is not None
    if asked and config.enable_auto_commit:
        yield problem(
            f"{path}.config.enable.auto.commit",
            "members commit by themselves and by Kafka's auto-commit",
            expected="false beside commit_interval_ms",
            found="true" if config != ConsumerConfig() else "true, the default",
        )
