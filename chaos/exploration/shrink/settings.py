"""Which settings of an experiment are not Kafka's default, and how they go back to it.

A setting is a place in the experiment: `("groups", "readers", "config", "session_timeout_ms")`.
What an experiment needs not say, its reader needs not understand.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from chaos.experiment.struct_walk import Place, fields_of, structs_in
from chaos.experiment.structs import Experiment, GroupDefinition, RunDefinition
from cluster.spec import CostModel, LinkModel, StorageModel
from protocol.config import (
    BrokerConfig,
    ConsumerConfig,
    Guards,
    JavaSwitches,
    ProducerConfig,
    TopicConfig,
)

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
_WITH_SETTINGS = (
    *(Guards, JavaSwitches, BrokerConfig, TopicConfig, ConsumerConfig, ProducerConfig),
    *(LinkModel, CostModel, StorageModel, GroupDefinition, RunDefinition),
)


def unusual_settings(experiment: Experiment) -> tuple[Place, ...]:
    """Return the places that hold another value than Kafka's default, or than this lab's."""
    return tuple(
        place
        for outer, struct in structs_in(experiment)
        if isinstance(struct, _WITH_SETTINGS)
        for place in _unusual(struct, outer)
        if place[-1] not in NEVER
    )


def with_defaults(experiment: Experiment, places: Sequence[Place]) -> Experiment:
    """Return `experiment` with the defaults in `places`."""
    for place in places:
        holder: msgspec.Struct = at(experiment, place[:-1])
        default = next(each.default for each in fields_of(type(holder)) if each.name == place[-1])
        experiment = with_value(experiment, place, default)
    return experiment


def with_values_of(
    experiment: Experiment, places: Sequence[Place], other: Experiment
) -> Experiment:
    """Return `experiment` with what `other` has in `places`."""
    for place in places:
        experiment = with_value(experiment, place, at(other, place))
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


def with_value(value: Any, place: Place, new: object) -> Any:  # noqa: ANN401 - likewise
    """Return `value` with `new` in `place`, whatever is on the way rebuilt."""
    if not place:
        return new
    step, rest = place[0], place[1:]
    if isinstance(value, tuple):
        index = int(step)
        return (*value[:index], with_value(value[index], rest, new), *value[index + 1 :])
    if isinstance(value, Mapping):
        return {**value, step: with_value(value[step], rest, new)}
    return replace(value, **{str(step): with_value(getattr(value, str(step)), rest, new)})


def _unusual(struct: msgspec.Struct, place: Place) -> Iterator[Place]:
    for field in fields_of(type(struct)):
        value = getattr(struct, field.name)
        # What is required has no default; what holds further structs or a list is no setting.
        if field.required or field.name == "late_members" or isinstance(value, msgspec.Struct):
            continue
        if not field.is_default(value):
            yield (*place, field.name)
