"""Rules for a consumer group: its topics, the settings of its members, their instance ids.

There are two designs of groups, and the key `coordination` chooses one of them: a broker
coordinates the group, or its members compute their shares from ZooKeeper. Each design has settings
that a group of the other design must not have.

Members that start later in the run (late members) may have settings of their own. All other
settings of late members come from the group.

In a `group.instance.id`, the text `{index}` stands for the index of the member in its group. So all
members can share one setting and still have different ids.
"""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from chaos.experiment.problems import Problem
from chaos.experiment.rules.clients import consumer_warnings
from chaos.experiment.rules.limits import ERRORS, broken_limits
from chaos.experiment.rules.semantic_checks import (
    check_known,
    check_once,
    problem,
    too_long,
)
from chaos.experiment.structs import MEMBER_INDEX, Experiment, GroupDefinition
from protocol.config import ConsumerConfig, ZooKeeperConsumerConfig
from protocol.ids import broker_name

_PLACEHOLDER = re.compile(r"\{[^{}]*\}")
"""A word in braces, such as `{i}`. If an id has such a word, a message suggests `{index}`."""
_UNFIT = re.compile(r"[^A-Za-z0-9._-]+")
"""Characters that a `group.instance.id` may not have."""
_INSTANCE = re.compile(r"[A-Za-z0-9._-]{1,249}")
"""Valid values of `group.instance.id`. Source: JoinGroupRequest.validateGroupInstanceId."""


def group_errors(experiment: Experiment, group: GroupDefinition, path: str) -> Iterator[Problem]:
    """Yield the errors of a group: settings with which its members could not work."""
    yield from check_once("topic", group.topics, experiment.topics, f"{path}.topics")
    yield from _coordination_errors(group, path)

    # `process_us` may have two numbers. The time for each record is drawn between them.
    least_us, most_us = group.process_bounds_us
    if least_us > most_us:
        yield problem(
            f"{path}.process_us",
            "the first is longer than the second",
            expected="the shortest and the longest",
            found=f"`{least_us}, {most_us}`",
        )

    yield from _consumer_errors(experiment, group.config, f"{path}.config")
    yield from _transaction_errors(experiment, group, path)
    yield from _metadata_errors(experiment, group, path)
    for index, late in enumerate(group.late_members):
        late_path = f"{path}.late_members[{index}]"
        yield from too_long(late.at, f"{late_path}.at")
        if late.config is not None:
            # Late members inherit settings from the group. So the same error may be in both
            # sections. Such an error is reported only once, for the group. With the path "" for
            # both sections, their errors can be compared.
            inherited = set(_consumer_errors(experiment, group.config, ""))
            for error in _consumer_errors(experiment, late.config, ""):
                if error not in inherited:
                    yield replace(error, path=f"{late_path}.config{error.path}")
    yield from _instance_errors(group, path)


def _coordination_errors(group: GroupDefinition, path: str) -> Iterator[Problem]:
    """Yield settings that do not belong to the group's design (its field `coordination`)."""
    if not group.is_on_zookeeper:
        if group.zookeeper != ZooKeeperConsumerConfig():
            yield problem(
                f"{path}.zookeeper",
                "is for members that live on ZooKeeper",
                expected="`coordination: zookeeper` beside it",
            )
        if group.topic_filter != "none":
            yield problem(
                f"{path}.topic_filter",
                "is for members that live on ZooKeeper",
                expected="`coordination: zookeeper` beside it",
            )
        return
    for place, config in _sections(group):
        # If every setting of the section has its default, the section changes nothing.
        if config is not None and config != ConsumerConfig():
            yield problem(
                f"{path}.{place}config",
                "is for members of a coordinator",
                expected="the group's `zookeeper` beside `coordination: zookeeper`",
            )
    for name in ("commit_interval_ms", "commit_metadata", "transactional"):
        if getattr(group, name):
            yield problem(
                f"{path}.{name}",
                "members on ZooKeeper commit by themselves",
                expected="`zookeeper` with `auto.commit.interval.ms`",
            )
    consumer_id = group.zookeeper.consumer_id
    # Several members need different ids, so the id must contain the member's index.
    if consumer_id is not None and MEMBER_INDEX not in consumer_id and group.members_total > 1:
        yield problem(
            f"{path}.zookeeper.consumer.id",
            "all members would have the same one",
            expected=f"`{MEMBER_INDEX}` in it, which becomes the member's index",
            found=f"`{consumer_id}`",
        )


def _sections(group: GroupDefinition) -> Iterator[tuple[str, ConsumerConfig | None]]:
    """Yield (prefix of the path, settings) of each section of consumer settings in a group."""
    yield "", group.config
    for index, late in enumerate(group.late_members):
        yield f"late_members[{index}].", late.config


def _transaction_errors(
    experiment: Experiment, group: GroupDefinition, path: str
) -> Iterator[Problem]:
    """Yield settings that contradict `transactional`."""
    if not group.transactional:
        return
    if group.commit_interval_ms is None:
        yield problem(
            f"{path}.commit_interval_ms",
            "is missing: a transaction begins and ends with every commit",
            expected="a number of milliseconds beside `transactional: true`",
        )
    for place, config in _sections(group):
        if config is not None and config.enable_auto_commit:
            yield problem(
                f"{path}.{place}config.enable.auto.commit",
                "Kafka's auto-commit would commit outside of the transactions",
                expected="false beside `transactional: true`",
                found="true",
            )
    most_ms = experiment.cluster.config.transaction_max_timeout_ms
    if group.transaction_timeout_ms > most_ms:
        yield problem(
            f"{path}.transaction_timeout_ms",
            "the brokers answer every InitProducerId with INVALID_TRANSACTION_TIMEOUT",
            expected=f"at most {most_ms} (transaction.max.timeout.ms)",
            found=str(group.transaction_timeout_ms),
        )


def _metadata_errors(
    experiment: Experiment, group: GroupDefinition, path: str
) -> Iterator[Problem]:
    """Yield errors of `commit_metadata`: texts that are stored beside committed offsets.

    There must be commits that carry these texts, and the brokers must not refuse all of them.
    """
    # `_coordination_errors` has reported the metadata of a group on ZooKeeper.
    if not group.commit_metadata or group.is_on_zookeeper:
        return
    if group.commit_interval_ms is None:
        yield problem(
            f"{path}.commit_metadata",
            "no commit carries it: the application never commits",
            expected="`commit_interval_ms` beside it",
        )
    most = experiment.cluster.config.offset_metadata_max_bytes
    shortest = min(group.metadata_lengths)
    if shortest > most:
        yield problem(
            f"{path}.commit_metadata",
            "the brokers answer every commit with OFFSET_METADATA_TOO_LARGE",
            expected=f"a text of at most {most} (offset.metadata.max.bytes)",
            found=f"{shortest}, the shortest",
        )


def _assignor_warnings(group: GroupDefinition, path: str) -> Iterator[Problem]:
    """Yield a warning if members have no assignor in common."""
    # The assignors of each member
    lists = [config.partition_assignment_strategy for config, _ in group.settings_of_members()]
    # If all members have an assignor in common, the first member has it, too. So it is enough to
    # look for each assignor of the first member in all lists.
    if lists and not any(all(name in other for other in lists) for name in lists[0]):
        yield problem(
            f"{path}.late_members",
            "its members have no assignor in common: some are refused with "
            "INCONSISTENT_GROUP_PROTOCOL, and stop",
            expected="`partition.assignment.strategy` with one that all members have",
        )


def _patience_warnings(group: GroupDefinition, path: str) -> Iterator[Problem]:
    """Yield a warning if members give up before a dead owner's session can end.

    If the owner of a partition dies, its claim stays in ZooKeeper until its session ends. Until
    then the claims of other members fail, and the members try again (ZK-50 of
    docs/kafka/ZOOKEEPER_CONSUMER.md).
    """
    config = group.zookeeper
    patience_ms = config.rebalance_max_retries * config.backoff_ms
    if patience_ms <= config.zookeeper_session_timeout_ms:
        yield problem(
            f"{path}.zookeeper.rebalance.max.retries",
            "members give up before the session of a dead owner can end",
            expected="rebalance.max.retries x rebalance.backoff.ms above "
            "zookeeper.session.timeout.ms",
            found=f"{patience_ms} ms",
        )


def _consumer_errors(
    experiment: Experiment, config: ConsumerConfig, path: str
) -> Iterator[Problem]:
    """Yield the errors of a section of consumer settings, of a group or of late members."""
    yield from broken_limits(ERRORS, config, path)
    if not config.partition_assignment_strategy:
        yield problem(
            f"{path}.partition.assignment.strategy",
            "Kafka's consumer refuses to subscribe without an assignor",
            expected="a list of at least 1",
            found="an empty list",
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
        host = server.partition(":")[0]  # a host has one broker, so the port does not matter
        yield from check_known("broker", host, brokers, f"{path}.bootstrap.servers[{index}]")


def _instance_errors(group: GroupDefinition, path: str) -> Iterator[Problem]:
    """Yield an error if a `group.instance.id` is invalid, or if several members would have it."""
    places = _places_of_instances(group, path)
    for written, place in places.items():
        if _INSTANCE.fullmatch(written.replace(MEMBER_INDEX, "0")) is None:  # 0 as an example
            yield problem(
                place,
                "Kafka's brokers refuse it",
                expected=f"letters, digits, `.`, `_`, `-`, and `{MEMBER_INDEX}`, which becomes the "
                "member's index",
                found=f"`{written}`",
                near_miss=_near_instance(written),
            )
            return
    instance_ids = [config.group_instance_id for config, _ in group.settings_of_members()]
    # (id, number of members with this id). None is no id: members without a `group.instance.id`
    # (dynamic members) all have None.
    shared = [(name, n) for name, n in Counter(instance_ids).items() if name is not None and n > 1]
    if shared:
        name, count = shared[0]
        all_members = "all " if count == len(instance_ids) else ""
        # Perhaps the shared id is not written in the file. For example, `a-{index}` gives the id
        # `a-12` to member 12, and `a-1{index}` gives the same id to member 2. Then the problem is
        # reported at the first id in the file.
        written = name if name in places else next(iter(places))
        yield problem(
            places[written],
            f"{all_members}{count} members would have the same one and fence each other",
            expected=f"`{MEMBER_INDEX}` in it, which becomes the member's index",
            found=f"`{written}`",
            near_miss=f"{name}-{MEMBER_INDEX}" if name in places else None,
        )


def _places_of_instances(group: GroupDefinition, path: str) -> dict[str, str]:
    """Return the path at which each `group.instance.id` stands in the file for the first time."""
    places: dict[str, str] = {}
    if group.config.group_instance_id is not None:
        places[group.config.group_instance_id] = f"{path}.config.group.instance.id"
    for index, late in enumerate(group.late_members):
        if late.config is not None and late.config.group_instance_id is not None:
            place = f"{path}.late_members[{index}].config.group.instance.id"
            places.setdefault(late.config.group_instance_id, place)
    return places


def _near_instance(written: str) -> str | None:
    """Return a valid `group.instance.id` that resembles `written`; None if there is none."""
    # Each word in braces becomes `{index}`. In the parts between them, other characters that an id
    # may not have become dashes.
    near = MEMBER_INDEX.join(_UNFIT.sub("-", part) for part in _PLACEHOLDER.split(written))
    fits = _INSTANCE.fullmatch(near.replace(MEMBER_INDEX, "0")) is not None
    return near if fits else None


def group_warnings(experiment: Experiment, group: GroupDefinition, path: str) -> Iterator[Problem]:
    """Yield the warnings about a group."""
    config, broker = group.config, experiment.cluster.config
    if group.members_total == 0:
        yield problem(f"{path}.members", "nobody ever joins this group", found="0")
    # The range assignor distributes each topic separately. So the number of members that get a
    # partition is at most the number of partitions of the largest topic.
    most_partitions = max(
        (experiment.topics[topic].partitions for topic in group.topics), default=0
    )
    yield from _assignor_warnings(group, path)
    deals_topic_by_topic = "roundrobin" not in group.config.partition_assignment_strategy
    if group.members > most_partitions and deals_topic_by_topic:
        yield problem(
            f"{path}.members",
            "the range assignor leaves members without a partition",
            expected=f"at most {most_partitions}, the partitions of its largest topic",
            found=str(group.members),
        )

    if group.is_on_zookeeper:
        yield from _patience_warnings(group, path)
        return  # the other warnings are about members of a coordinator
    of_group = list(consumer_warnings(config, group, broker, f"{path}.config"))
    yield from of_group
    for index, late in enumerate(group.late_members):
        if late.config is not None:
            # As in `group_errors`, an inherited warning is given only once, for the group.
            late_path = f"{path}.late_members[{index}].config"
            inherited = {
                replace(warning, path=warning.path.replace(f"{path}.config", late_path, 1))
                for warning in of_group
            }
            for warning in consumer_warnings(late.config, group, broker, late_path):
                if warning not in inherited:
                    yield warning

    if group.commit_interval_ms is not None and config.enable_auto_commit:
        yield problem(
            f"{path}.config.enable.auto.commit",
            "members commit by themselves and by Kafka's auto-commit",
            expected="one of the two: false beside commit_interval_ms, or commit_interval_ms: null",
            # If all settings have their defaults, the file probably does not mention this one.
            found="true" if config != ConsumerConfig() else "true, the default",
        )
