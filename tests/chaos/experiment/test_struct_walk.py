"""The walk over the structs of an experiment: their fields, values and defaults.

Each section of an experiment file is read into a struct, and each key into a field.
"""

import msgspec

from chaos.experiment.dump import experiment_text
from chaos.experiment.struct_walk import fields_of, struct_types, structs_in, without_defaults
from chaos.experiment.structs import (
    Experiment,
    GroupDefinition,
    LateMembersDefinition,
    RunDefinition,
    TopicDefinition,
)
from protocol.config import ConsumerConfig
from tests.support.builders.experiments import experiment


def test_field_has_its_key_default_description_and_struct() -> None:
    """The JSON Schema, pages of docs, experiment files and the report are generated from fields."""
    fields = {field.name: field for field in fields_of(GroupDefinition)}

    timeout = {field.key: field for field in fields_of(ConsumerConfig)}["session.timeout.ms"]
    assert (timeout.name, timeout.default) == ("session_timeout_ms", 45_000)
    assert timeout.is_default(45_000)
    assert not timeout.is_default(9_000)
    assert fields["late_members"].struct is LateMembersDefinition
    assert fields["topics"].struct is None
    assert fields["isolate"].doc == "True: on Ray every member has a process of its own."


def test_required_field_is_never_at_its_default() -> None:
    """A file must have a required field, whatever the value."""
    version = fields_of(Experiment)[0]

    assert version.required
    assert not version.is_default(msgspec.NODEFAULT)


def test_each_struct_of_an_experiment_is_found_with_its_place() -> None:
    """Outer structs come before inner ones. A place is a path of fields, keys and indices."""
    places = {place: type(struct) for place, struct in structs_in(experiment())}

    assert next(iter(places)) == ()
    assert places["topics", "orders"] is TopicDefinition
    assert places["groups", "readers", "config"] is ConsumerConfig
    assert places[("run",)] is RunDefinition


def test_struct_types_are_found_inside_options_lists_and_mappings() -> None:
    """The struct is X in the annotations `X | None`, `dict[str, X]` and `tuple[X, ...]`."""
    annotations = (ConsumerConfig | None, dict[str, GroupDefinition], tuple[TopicDefinition, ...])

    assert list(struct_types(*annotations, str)) == [
        ConsumerConfig,
        GroupDefinition,
        TopicDefinition,
    ]


def test_plain_values_omit_those_equal_to_their_default() -> None:
    """`experiment_text` writes the plain values: dicts and lists without the values at defaults.

    An omitted field is read back as its default.
    """
    made = experiment()
    plain = without_defaults(made)

    assert "run" not in plain
    assert "heartbeat.interval.ms" not in plain["groups"]["readers"].get("config", {})
    assert "run:" not in experiment_text(made)
    assert msgspec.convert(plain, Experiment) == made
