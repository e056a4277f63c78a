"""Which settings of an experiment are not Kafka's default, and how they go back to it.

A setting is a place in the experiment: `("groups", "readers", "config", "session_timeout_ms")`.
What an experiment needs not say, its reader needs not understand.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import fields, replace

from chaos.experiment.structs import Experiment

Place = tuple[str | int, ...]

NEVER = frozenset(
    {
        # Back at Kafka's default, less of what was acknowledged has to survive.
        "min_insync_replicas",
        "offsets_topic_replication_factor",
        "default_replication_factor",
        "flush_messages",
        "flush_ms",
        "log_flush_interval_messages",
        "log_flush_interval_ms",
        "log_flush_scheduler_interval_ms",
        # Sizes: other passes make them smaller; the default is larger.
        "offsets_topic_num_partitions",
        # Times of the plan: likewise.
        "after_faults",
    }
)


def unusual_settings(experiment: Experiment) -> tuple[Place, ...]:
    """Return the places that hold another value than Kafka's default, or than this lab's."""
    return tuple(
        place
        for path, struct in _structs(experiment)
        for place in _unusual(struct, path)
        if place[-1] not in NEVER
    )


def with_defaults(experiment: Experiment, places: Sequence[Place]) -> Experiment:
    """Return `experiment` with the defaults in `places`."""
    for place in places:
        holder = at(experiment, place[:-1])
        default = next(_default(info) for info in fields(holder) if info.name == place[-1])
        experiment = put(experiment, place, default)
    return experiment


def with_values_of(
    experiment: Experiment, places: Sequence[Place], other: Experiment
) -> Experiment:
    """Return `experiment` with what `other` has in `places`."""
    for place in places:
        experiment = put(experiment, place, at(other, place))
    return experiment


def differing_settings(experiment: Experiment, other: Experiment) -> tuple[Place, ...]:
    """Return the unusual settings in whose place `other` has something else."""
    found = []
    for place in unusual_settings(experiment):
        try:
            there = at(other, place)
        except (KeyError, IndexError, AttributeError):
            continue
        if there != at(experiment, place):
            found.append(place)
    return tuple(found)


def at(value: Any, place: Place) -> Any:  # noqa: ANN401 - a setting is of any type
    """Return what stands in `place`. Raises: KeyError, IndexError, AttributeError: nothing does."""
    for step in place:
        if isinstance(value, tuple):
            value = value[int(step)]
        else:
            value = value[step] if isinstance(value, Mapping) else getattr(value, str(step))
    return value


def put(value: Any, place: Place, new: object) -> Any:  # noqa: ANN401 - likewise
    """Return `value` with `new` in `place`, whatever is on the way rebuilt."""
    if not place:
        return new
    step, rest = place[0], place[1:]
    if isinstance(value, tuple):
        index = int(step)
        return (*value[:index], put(value[index], rest, new), *value[index + 1 :])
    if isinstance(value, Mapping):
        return {**value, step: put(value[step], rest, new)}
    return replace(value, **{str(step): put(getattr(value, str(step)), rest, new)})


def _structs(experiment: Experiment) -> Iterator[tuple[Place, msgspec.Struct]]:
    cluster = experiment.cluster
    yield ("cluster", "guards"), cluster.guards
    yield ("cluster", "java_coordinator"), cluster.java_coordinator
    yield ("cluster", "config"), cluster.config
    yield ("cluster", "links"), cluster.links
    yield ("cluster", "costs"), cluster.costs
    yield ("cluster", "storage"), cluster.storage
    yield ("run",), experiment.run
    for name, topic in experiment.topics.items():
        yield ("topics", name, "config"), topic.config
    for name, group in experiment.groups.items():
        yield ("groups", name), group
        yield ("groups", name, "config"), group.config
        for index, late in enumerate(group.late_members):
            if late.config is not None:
                yield ("groups", name, "late_members", index, "config"), late.config
    for index, producer in enumerate(experiment.producers):
        yield ("producers", index, "config"), producer.config


def _unusual(struct: msgspec.Struct, path: Place) -> Iterator[Place]:
    for info in fields(struct):
        value = getattr(struct, info.name)
        # What is required has no default; what holds further structs or a list is no setting.
        if info.required or info.name == "late_members" or isinstance(value, msgspec.Struct):
            continue
        if value != _default(info):
            yield (*path, info.name)


def _default(info: msgspec.structs.FieldInfo) -> object:
    if info.default_factory is not msgspec.NODEFAULT:
        return info.default_factory()
    return info.default
