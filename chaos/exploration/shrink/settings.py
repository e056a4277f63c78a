"""Settings of an experiment that differ from their defaults, and their reset.

An experiment with fewer settings is easier to read. So when the shrinker has an experiment that
fails (its run shows a violation), it resets each setting to its default, and keeps the reset if the
experiment still fails. A setting is named by its place in the experiment, such as
`("groups", "readers", "config", "session_timeout_ms")`.
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
        # With Kafka's defaults of these settings, a fault may lose acknowledged data. This would be
        # no bug, so a shrunk experiment that shows such a loss would be of no use.
        "min_insync_replicas",
        "offsets_topic_replication_factor",
        "default_replication_factor",
        "flush_messages",
        "flush_ms",
        "log_flush_interval_messages",
        "log_flush_interval_ms",
        "log_flush_scheduler_interval_ms",
        # The shrinker reduces this number of partitions elsewhere (`passes`), and the default is
        # larger.
        "offsets_topic_num_partitions",
        # The shrinker reduces this time elsewhere (`passes`).
        "after_faults",
    }
)
"""Settings that are never reset to their defaults."""

# The structs whose fields are settings. The first line has Kafka's, the second line coordlab's.
_WITH_SETTINGS = (
    *(Guards, JavaSwitches, BrokerConfig, TopicConfig, ConsumerConfig, ProducerConfig),
    *(LinkModel, CostModel, StorageModel, GroupDefinition, RunDefinition),
)


def unusual_settings(experiment: Experiment) -> tuple[Place, ...]:
    """Return the places of the settings that differ from Kafka's, or coordlab's, defaults."""
    return tuple(
        place
        for outer, struct in structs_in(experiment)
        if isinstance(struct, _WITH_SETTINGS)
        for place in _unusual(struct, outer)
        if place[-1] not in NEVER
    )


def with_defaults(experiment: Experiment, places: Sequence[Place]) -> Experiment:
    """Return `experiment` with the defaults at `places`, which `unusual_settings` has returned."""
    for place in places:
        holder: msgspec.Struct = at(experiment, place[:-1])
        # A required field has no default, but `unusual_settings` returns no place of such a field.
        default = next(
            field.default for field in fields_of(type(holder)) if field.name == place[-1]
        )
        experiment = with_value(experiment, place, default)
    return experiment


def with_values_of(
    experiment: Experiment, places: Sequence[Place], other: Experiment
) -> Experiment:
    """Return `experiment` with the values of `other` at `places`."""
    for place in places:
        experiment = with_value(experiment, place, at(other, place))
    return experiment


def differing_settings(experiment: Experiment, other: Experiment) -> tuple[Place, ...]:
    """Return the unusual settings for which `other` has another value."""
    differing = []
    for place in unusual_settings(experiment):
        try:
            other_value = at(other, place)
        except (KeyError, IndexError, AttributeError):
            continue  # `other` lacks the group, the topic or the list item of this place
        if other_value != at(experiment, place):
            differing.append(place)
    return tuple(differing)


def at(value: Any, place: Place) -> Any:  # noqa: ANN401 - a setting is of any type
    """Return the part of `value` that is at `place`.

    Raises: KeyError, IndexError or AttributeError if `value` has no such place.
    """
    for step in place:
        if isinstance(value, tuple):
            value = value[int(step)]
        else:
            value = value[step] if isinstance(value, Mapping) else getattr(value, str(step))
    return value


def with_value(value: Any, place: Place, new: object) -> Any:  # noqa: ANN401 - a setting is of any type
    """Return a copy of `value` that has `new` at `place`."""
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
    """Yield the places of a struct's settings that are not at their defaults.

    `place` is the place of the struct itself.
    """
    for field in fields_of(type(struct)):
        value = getattr(struct, field.name)
        # Three sorts of fields are left out:
        # - A required field has no default.
        # - A field with a struct is no setting itself, but the fields of this struct are settings.
        #   `structs_in` yields such a struct, too.
        # - The same holds for `late_members`, which is a tuple of structs.
        if field.required or field.name == "late_members" or isinstance(value, msgspec.Struct):
            continue
        if not field.is_default(value):
            yield (*place, field.name)
