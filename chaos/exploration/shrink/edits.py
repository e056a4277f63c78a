"""Edits of an experiment for shrinking: functions that return a changed experiment.

The shrinker makes an experiment that shows a violation smaller. The edits keep the smaller
experiment valid. For example, if a broker is removed, faults with this broker as target are
removed, too. `is_sound` decides whether the shrinker may try a smaller experiment at all, and
`sizes_of` says how large an experiment is.

This module must not depend on runs (`shrink`), or on the order of edits (`passes`).
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from chaos.experiment.rules.all_rules import errors, warnings
from chaos.experiment.structs import (
    Experiment,
    FaultDefinition,
    GroupDefinition,
    OneOrMany,
    ProducerDefinition,
    TopicDefinition,
    duration_of,
    microseconds,
    topics_with_clients,
)
from chaos.faults.topics import CreateTopic, DeleteTopic
from chaos.run.plan import acts_of, ends_of, plan_of
from chaos.targets.registry import check_target
from protocol.ids import broker_name

T = TypeVar("T")

_ABOUT_THE_PLAN = ("faults", "run.")
"""Beginnings of paths. A warning at such a path says that a fault may have no effect.

These warnings are ignored, because the run of a smaller experiment shows whether its faults have an
effect.
"""


class Sizes(msgspec.Struct, frozen=True, kw_only=True):
    """Size of an experiment.

    `horizon_us` is the time from the steady state to the healing of all faults. In the steady state
    the cluster is up, and its groups are stable.
    """

    faults: int
    brokers: int
    groups: int
    members: int
    partitions: int
    producers: int
    horizon_us: int


def sizes_of(experiment: Experiment) -> Sizes:
    """Return the size of `experiment`.

    Each repetition counts as a fault. Partitions of `__consumer_offsets` do not count.
    """
    return Sizes(
        faults=len(plan_of(experiment)),
        brokers=experiment.cluster.brokers,
        groups=len(experiment.groups),
        members=sum(group.members_total for group in experiment.groups.values()),
        partitions=sum(topic.partitions for topic in experiment.topics.values()),
        producers=len(experiment.producers),
        horizon_us=last_act_us(experiment) + microseconds(experiment.run.after_faults),
    )


def last_act_us(experiment: Experiment) -> int:
    """Return the time of the last act after the steady state; 0 if there is no act.

    An act is the beginning or the end of a fault, or the start of a late member.
    """
    late_starts_us = [
        microseconds(late.at) for group in experiment.groups.values() for late in group.late_members
    ]
    return max([act.at_us for act in acts_of(plan_of(experiment))] + late_starts_us, default=0)


def with_wait(experiment: Experiment, bound: str) -> Experiment:
    """Return `experiment` with another liveness timeout.

    The liveness timeout is the longest time from the healing of all faults until all groups are
    stable again.
    """
    return replace(experiment, run=replace(experiment.run, liveness_timeout=bound))


def is_sound(candidate: Experiment, original: Experiment) -> bool:
    """Return True if `candidate` is valid and has no warning that `original` lacks.

    With some settings, such as one replica or acks=1, Kafka itself may lose acknowledged data. If a
    smaller experiment fails only because of such a setting, this shows no bug. The loader warns of
    these settings. So a smaller experiment must not have a warning that the original does not have.
    """
    return (
        _has_shape(candidate)
        and next(errors(candidate), None) is None
        and _warning_kinds(candidate) <= _warning_kinds(original)
    )


def _has_shape(experiment: Experiment) -> bool:
    """Return True if an experiment file can contain the experiment.

    This is not so if, for example, an edit has removed the last item of a list that needs an item.
    """
    try:
        msgspec.convert(msgspec.to_builtins(experiment), Experiment)
    except msgspec.ValidationError:
        return False
    return True


def _warning_kinds(experiment: Experiment) -> set[str]:
    """Return the kinds of warnings about the cluster and its clients."""
    # Two messages are of the same kind if they begin in the same way. So each message is cut before
    # its first value, which is in backticks, and before its reason, which follows a colon.
    return {
        problem.message.split("`", maxsplit=1)[0].split(":", maxsplit=1)[0]
        for problem in warnings(experiment)
        if not problem.path.startswith(_ABOUT_THE_PLAN)
    }


def without_dangling_references(experiment: Experiment) -> Experiment:
    """Return `experiment` without references to absent groups, members, brokers and topics.

    - A topic is also removed if no group reads it, no producer writes to it, and no fault creates
      or deletes it.
    - A replication factor that is larger than the number of brokers is reduced to this number.
    - `min.insync.replicas` stays. It says how many replicas must have a record before the record is
      acknowledged, so a smaller value would promise less durability.
    """
    brokers = experiment.cluster.brokers
    config = experiment.cluster.config
    groups = {name: _group_of(group, experiment) for name, group in experiment.groups.items()}
    producers = tuple(
        _producer_of(producer, brokers)
        for producer in experiment.producers
        if producer.topic in experiment.topics
    )
    used_topics = topics_with_clients(replace(experiment, groups=groups, producers=producers))
    used_topics |= {
        fault.args["topic"]
        for fault in experiment.faults
        if fault.fault in (CreateTopic.name, DeleteTopic.name)
    }
    topics = {
        name: replace(topic, replication_factor=min(topic.replication_factor, brokers))
        for name, topic in experiment.topics.items()
        if name in used_topics
    }

    # The transaction log has a minimum number of in-sync replicas, which must not be larger than
    # its replication factor. So both numbers are reduced.
    state_factor = min(config.transaction_state_log_replication_factor, brokers)
    fitting = replace(
        config,
        offsets_topic_replication_factor=min(config.offsets_topic_replication_factor, brokers),
        transaction_state_log_replication_factor=state_factor,
        transaction_state_log_min_isr=min(config.transaction_state_log_min_isr, state_factor),
    )
    smaller = replace(
        experiment,
        cluster=replace(experiment.cluster, config=fitting),
        topics=topics,
        groups=groups,
        producers=producers,
        offsets_log=tuple(log for log in experiment.offsets_log if log.group in groups),
    )
    # The faults come last, because their targets are looked for in the smaller experiment.
    return replace(smaller, faults=tuple(_present(smaller.faults, smaller)))


def _group_of(group: GroupDefinition, experiment: Experiment) -> GroupDefinition:
    """Return a group without references to absent topics and brokers."""
    brokers = experiment.cluster.brokers
    return replace(
        group,
        # If none of the topics is left, the group keeps its list. The smaller experiment is then
        # invalid, and `is_sound` refuses it.
        topics=tuple(topic for topic in group.topics if topic in experiment.topics) or group.topics,
        config=replace(
            group.config, bootstrap_servers=_servers(group.config.bootstrap_servers, brokers)
        ),
        # Late members without a `config` of their own have the servers of the group.
        late_members=tuple(
            late
            if late.config is None
            else replace(
                late,
                config=replace(
                    late.config, bootstrap_servers=_servers(late.config.bootstrap_servers, brokers)
                ),
            )
            for late in group.late_members
        ),
    )


def _producer_of(producer: ProducerDefinition, brokers: int) -> ProducerDefinition:
    """Return a producer without references to absent brokers."""
    servers = _servers(producer.config.bootstrap_servers, brokers)
    return replace(producer, config=replace(producer.config, bootstrap_servers=servers))


def _servers(servers: Sequence[str], brokers: int) -> tuple[str, ...]:
    """Return the bootstrap servers, such as `broker-0:9092`, whose broker exists."""
    names = {str(broker_name(broker_id)) for broker_id in range(brokers)}
    # The ids of brokers count from 0. If no server is left, the result is empty, and in a setting
    # an empty list stands for all brokers.
    return tuple(server for server in servers if server.partition(":")[0] in names)


def _present(
    faults: Iterable[FaultDefinition], experiment: Experiment
) -> Iterable[FaultDefinition]:
    """Yield the faults that can still hit something in `experiment`.

    The target of the fault must exist. If the fault is one of links, both ends must exist.
    """
    for fault in faults:
        if fault.target is not None and check_target(fault.target, experiment) is not None:
            continue  # the target does not exist
        from_, to = _ends(fault.from_, experiment), _ends(fault.to, experiment)
        # A fault without ends has None here before and after the edit. If an end had targets, and
        # none of them is left, the end is None only now, and the fault is dropped.
        if (from_ is None) != (fault.from_ is None) or (to is None) != (fault.to is None):
            continue
        yield replace(fault, from_=from_, to=to)


def _ends(end: OneOrMany | None, experiment: Experiment) -> OneOrMany | None:
    """Return an end of links with only the targets that exist; None if none of them exists."""
    remaining = tuple(target for target in ends_of(end) if check_target(target, experiment) is None)
    return written_end(remaining)


def written_end(targets: Sequence[str]) -> OneOrMany | None:
    """Return an end of links as an experiment file has it.

    Several targets are a list, but a single target has no list around it.
    """
    if not targets:
        return None
    return targets[0] if len(targets) == 1 else tuple(targets)


def with_group(experiment: Experiment, name: str, group: GroupDefinition) -> Experiment:
    """Return `experiment` with another definition of the group `name`."""
    return without_dangling_references(
        replace(experiment, groups={**experiment.groups, name: group})
    )


def with_topic(experiment: Experiment, name: str, topic: TopicDefinition) -> Experiment:
    """Return `experiment` with another definition of the topic `name`."""
    return without_dangling_references(
        replace(experiment, topics={**experiment.topics, name: topic})
    )


def with_fault(experiment: Experiment, index: int, fault: FaultDefinition) -> Experiment:
    """Return `experiment` with another fault at position `index` of its plan."""
    faults = (*experiment.faults[:index], fault, *experiment.faults[index + 1 :])
    return replace(experiment, faults=faults)


def moved(experiment: Experiment, earlier_us: int, indices: Sequence[int]) -> Experiment:
    """Return `experiment` with the faults at positions `indices` earlier by `earlier_us`.

    A negative number moves them to later times. No fault begins before 0.
    """
    for index in indices:
        fault = experiment.faults[index]
        at_us = max(0, microseconds(fault.at) - earlier_us)
        experiment = with_fault(experiment, index, replace(fault, at=duration_of(at_us)))
    return experiment


def with_brokers(experiment: Experiment, brokers: int) -> Experiment:
    """Return `experiment` with only `brokers` brokers, and without references to other brokers."""
    return without_dangling_references(
        replace(experiment, cluster=replace(experiment.cluster, brokers=brokers))
    )


def subset(values: Mapping[str, T], names: Sequence[str]) -> dict[str, T]:
    """Return the entries of `values` with `names`, in the order of `values`."""
    return {name: value for name, value in values.items() if name in names}
