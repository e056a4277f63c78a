"""What shrinking does to an experiment: plain edits, each of which returns another experiment.

Owns how a smaller cluster stays one that can be run (what names an absent node goes with it), what
may not be shrunk, and how large an experiment is. It knows nothing of runs (`shrink`) or of the
order of edits (`passes`).
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
)
from chaos.run.plan import acts_of, ends_of, plan_of
from chaos.targets.registry import check_target
from protocol.ids import broker_name

T = TypeVar("T")

_ABOUT_THE_PLAN = ("faults", "run.")
"""Paths of warnings that say what a fault may fail to do: the run shows whether it did."""


class Sizes(msgspec.Struct, frozen=True, kw_only=True):
    """How large an experiment is. Units: `horizon_us` is from the steady state to the healing."""

    faults: int
    brokers: int
    groups: int
    members: int
    partitions: int
    producers: int
    horizon_us: int


def sizes_of(experiment: Experiment) -> Sizes:
    """Return how large `experiment` is; repetitions count, partitions of offsets do not."""
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
    """Return when the plan does its last act, from the steady state on; 0 without a plan."""
    late = [
        microseconds(late.at) for group in experiment.groups.values() for late in group.late_members
    ]
    return max([act.at_us for act in acts_of(plan_of(experiment))] + late, default=0)


def with_wait(experiment: Experiment, bound: str) -> Experiment:
    """Return `experiment` with another bound of liveness."""
    return replace(experiment, run=replace(experiment.run, liveness_timeout=bound))


def is_sound(candidate: Experiment, original: Experiment) -> bool:
    """Whether `candidate` can be run, and its cluster is in no way less wise than `original`'s.

    A smaller experiment in which Kafka may lose what it acknowledged (one replica, acks=1) shows
    no bug: whatever the file would be warned of must have been unwise before.
    """
    return (
        _has_shape(candidate)
        and next(errors(candidate), None) is None
        and _unwise(candidate) <= _unwise(original)
    )


def _has_shape(experiment: Experiment) -> bool:
    """Whether a file may hold it: edits may have left a list empty that must not be."""
    try:
        msgspec.convert(msgspec.to_builtins(experiment), Experiment)
    except msgspec.ValidationError:
        return False
    return True


def _unwise(experiment: Experiment) -> set[str]:
    """Return what is unwise about the cluster and its clients, whichever of them it is."""
    return {
        problem.message.split("`", maxsplit=1)[0].split(":", maxsplit=1)[0]
        for problem in warnings(experiment)
        if not problem.path.startswith(_ABOUT_THE_PLAN)
    }


def fitted(experiment: Experiment) -> Experiment:
    """Leave out what names a group, member, broker or topic that is not there.

    Replication factors follow the brokers down, min.insync.replicas does not: it is the promise.
    """
    brokers = experiment.cluster.brokers
    config = experiment.cluster.config
    groups = {name: _group_of(group, experiment) for name, group in experiment.groups.items()}
    producers = tuple(
        _producer_of(each, brokers)
        for each in experiment.producers
        if each.topic in experiment.topics
    )
    read = {topic for group in groups.values() for topic in group.topics}
    topics = {
        name: replace(topic, replication_factor=min(topic.replication_factor, brokers))
        for name, topic in experiment.topics.items()
        if name in read or any(each.topic == name for each in producers)
    }
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
        offsets_log=tuple(each for each in experiment.offsets_log if each.group in groups),
    )
    return replace(smaller, faults=tuple(_present(smaller.faults, smaller)))


def _group_of(group: GroupDefinition, experiment: Experiment) -> GroupDefinition:
    brokers = experiment.cluster.brokers
    return replace(
        group,
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
    servers = _servers(producer.config.bootstrap_servers, brokers)
    return replace(producer, config=replace(producer.config, bootstrap_servers=servers))


def _servers(servers: Sequence[str], brokers: int) -> tuple[str, ...]:
    names = {str(broker_name(broker_id)) for broker_id in range(brokers)}
    return tuple(server for server in servers if server.partition(":")[0] in names)


def _present(
    faults: Iterable[FaultDefinition], experiment: Experiment
) -> Iterable[FaultDefinition]:
    for fault in faults:
        if fault.target is not None and check_target(fault.target, experiment) is not None:
            continue
        from_, to = _ends(fault.from_, experiment), _ends(fault.to, experiment)
        if (from_ is None) != (fault.from_ is None) or (to is None) != (fault.to is None):
            continue
        yield replace(fault, from_=from_, to=to)


def _ends(end: OneOrMany | None, experiment: Experiment) -> OneOrMany | None:
    left = tuple(each for each in ends_of(end) if check_target(each, experiment) is None)
    return written_end(left)


def written_end(targets: Sequence[str]) -> OneOrMany | None:
    """Return an end of links as a file has it: one target alone is no list."""
    if not targets:
        return None
    return targets[0] if len(targets) == 1 else tuple(targets)


def with_group(experiment: Experiment, name: str, group: GroupDefinition) -> Experiment:
    """Return `experiment` with another definition of the group `name`."""
    return fitted(replace(experiment, groups={**experiment.groups, name: group}))


def with_topic(experiment: Experiment, name: str, topic: TopicDefinition) -> Experiment:
    """Return `experiment` with another definition of the topic `name`."""
    return fitted(replace(experiment, topics={**experiment.topics, name: topic}))


def with_fault(experiment: Experiment, index: int, fault: FaultDefinition) -> Experiment:
    """Return `experiment` with another fault in the place `index` of its plan."""
    faults = (*experiment.faults[:index], fault, *experiment.faults[index + 1 :])
    return replace(experiment, faults=faults)


def moved(experiment: Experiment, earlier_us: int, indices: Sequence[int]) -> Experiment:
    """Return `experiment` with the faults in the places `indices` so much earlier."""
    for index in indices:
        fault = experiment.faults[index]
        at_us = max(0, microseconds(fault.at) - earlier_us)
        experiment = with_fault(experiment, index, replace(fault, at=duration_of(at_us)))
    return experiment


def with_brokers(experiment: Experiment, brokers: int) -> Experiment:
    """Return `experiment` with so many brokers, and without what named the others."""
    return fitted(replace(experiment, cluster=replace(experiment.cluster, brokers=brokers)))


def subset(values: Mapping[str, T], names: Sequence[str]) -> dict[str, T]:
    """Return what `names` hold of `values`, in the old order."""
    return {name: value for name, value in values.items() if name in names}
