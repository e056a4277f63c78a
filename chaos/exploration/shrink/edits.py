"""Edits of an experiment for shrinking: functions that return a changed experiment.

The edits keep the smaller experiment valid. For example, if a broker is removed, faults with this
broker as target are removed, too. `is_sound` decides whether a smaller experiment may be tried at
all, and `sizes_of` says how large it is.

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
"""Beginnings of the paths of warnings that say: a fault may have no effect.

These warnings are ignored, because the run of a candidate shows whether its faults have an effect.
"""


class Sizes(msgspec.Struct, frozen=True, kw_only=True):
    """Size of an experiment.

    `horizon_us`: the time from the steady state (the cluster is up, its groups are stable) to the
    healing of all faults.
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

    Each repetition of a fault counts. Partitions of `__consumer_offsets` do not count.
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

    With some settings, such as one replica or acks=1, Kafka itself may lose acknowledged data. If
    such a smaller experiment fails, this shows no bug. The loader warns of these settings, so a
    smaller experiment must not have a warning that the original did not have.
    """
    return (
        _has_shape(candidate)
        and next(errors(candidate), None) is None
        and _warning_kinds(candidate) <= _warning_kinds(original)
    )


def _has_shape(experiment: Experiment) -> bool:
    """Return True if an experiment file can contain the experiment.

    For example, it cannot if an edit has removed the last item of a list that needs at least one.
    """
    try:
        msgspec.convert(msgspec.to_builtins(experiment), Experiment)
    except msgspec.ValidationError:
        return False
    return True


def _warning_kinds(experiment: Experiment) -> set[str]:
    """Return the kinds of warnings about the cluster and its clients."""
    # Two messages are of the same kind if they begin in the same way. A message is cut before its
    # first value (in backticks) or its reason (after a colon).
    return {
        problem.message.split("`", maxsplit=1)[0].split(":", maxsplit=1)[0]
        for problem in warnings(experiment)
        if not problem.path.startswith(_ABOUT_THE_PLAN)
    }


def without_dangling_references(experiment: Experiment) -> Experiment:
    """Return `experiment` without references to absent groups, members, brokers and topics.

    A topic that no group reads, no producer writes and no fault creates or deletes is removed, too.
    A replication factor that is larger than the number of brokers is reduced to that number.
    min.insync.replicas stays, because a smaller value would promise less durability. It says how
    many replicas must have a record before the record is acknowledged.
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

    # The minimum ISR of the transaction log must not exceed its factor, so it is reduced with it.
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
    # The faults come last, because it depends on the smaller experiment whether their targets
    # exist.
    return replace(smaller, faults=tuple(_present(smaller.faults, smaller)))


def _group_of(group: GroupDefinition, experiment: Experiment) -> GroupDefinition:
    """Return a group without references to absent topics and brokers."""
    brokers = experiment.cluster.brokers
    return replace(
        group,
        # A group without any remaining topic keeps its list, so that the edit is invalid.
        topics=tuple(topic for topic in group.topics if topic in experiment.topics) or group.topics,
        config=replace(
            group.config, bootstrap_servers=_servers(group.config.bootstrap_servers, brokers)
        ),
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
    """Return the bootstrap servers (`broker-0:9092`) of brokers that exist; ids count from 0."""
    names = {str(broker_name(broker_id)) for broker_id in range(brokers)}
    # If no server is left, the empty list stands for all brokers.
    return tuple(server for server in servers if server.partition(":")[0] in names)


def _present(
    faults: Iterable[FaultDefinition], experiment: Experiment
) -> Iterable[FaultDefinition]:
    """Yield the faults whose target, or both of whose ends, exist in `experiment`."""
    for fault in faults:
        if fault.target is not None and check_target(fault.target, experiment) is not None:
            continue  # the target does not exist
        from_, to = _ends(fault.from_, experiment), _ends(fault.to, experiment)
        # If an end had targets and none of them is left, the fault is dropped.
        if (from_ is None) != (fault.from_ is None) or (to is None) != (fault.to is None):
            continue
        yield replace(fault, from_=from_, to=to)


def _ends(end: OneOrMany | None, experiment: Experiment) -> OneOrMany | None:
    """Return an end of links with the targets that exist; None if there are none."""
    remaining = tuple(target for target in ends_of(end) if check_target(target, experiment) is None)
    return written_end(remaining)


def written_end(targets: Sequence[str]) -> OneOrMany | None:
    """Return an end of links as a file has it, where a single target has no list around it."""
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
    """Return `experiment` with `brokers` brokers, without references to the others."""
    return without_dangling_references(
        replace(experiment, cluster=replace(experiment.cluster, brokers=brokers))
    )


def subset(values: Mapping[str, T], names: Sequence[str]) -> dict[str, T]:
    """Return the entries of `values` with `names`, in the order of `values`."""
    return {name: value for name, value in values.items() if name in names}
