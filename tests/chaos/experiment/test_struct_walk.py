"""Functions that walk over the structs of an experiment, to find every key of a file.

An experiment file is read into structs: each section of the file is a struct, and each key is a
field of this struct. The docs, the JSON Schema and the report describe every key that a file may
have. They find the keys by a walk over the structs.
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
    """For example, the key `session.timeout.ms` is read into the field `session_timeout_ms`.

    `struct` is the type of the structs in the field, and None if the field has plain values.
    """
    consumer_fields = {field.key: field for field in fields_of(ConsumerConfig)}
    timeout = consumer_fields["session.timeout.ms"]
    assert (timeout.name, timeout.default) == ("session_timeout_ms", 45_000)
    assert timeout.is_default(45_000)
    assert not timeout.is_default(9_000)

    group_fields = {field.name: field for field in fields_of(GroupDefinition)}
    assert group_fields["late_members"].struct is LateMembersDefinition
    assert group_fields["topics"].struct is None
    assert group_fields["isolate"].doc == "True: on Ray every member has a process of its own."


def test_required_field_is_never_at_its_default() -> None:
    """A file must have each required field, so `without_defaults` must never omit one.

    Here the field is `version`. msgspec says that the default of a required field is NODEFAULT, and
    not even this counts as the default.
    """
    version = fields_of(Experiment)[0]

    assert version.required
    assert not version.is_default(msgspec.NODEFAULT)


def test_each_struct_of_an_experiment_is_found_with_its_place() -> None:
    """The place ("topics", "orders") is that of the topic `orders` in the experiment.

    Outer structs come before inner ones. So the experiment itself, whose place is (), comes first.
    """
    places = {place: type(struct) for place, struct in structs_in(experiment())}

    assert next(iter(places)) == ()
    assert places["topics", "orders"] is TopicDefinition
    assert places["groups", "readers", "config"] is ConsumerConfig
    assert places[("run",)] is RunDefinition


def test_struct_types_are_found_inside_options_lists_and_mappings() -> None:
    """A field with the type `X | None`, `dict[str, X]` or `tuple[X, ...]` contains structs X."""
    annotations = (ConsumerConfig | None, dict[str, GroupDefinition], tuple[TopicDefinition, ...])

    # The plain type `str` contains no struct.
    assert list(struct_types(*annotations, str)) == [
        ConsumerConfig,
        GroupDefinition,
        TopicDefinition,
    ]


def test_plain_values_omit_those_equal_to_their_default() -> None:
    """Plain values are the dicts and lists of which `experiment_text` makes an experiment file.

    When the file is read, the defaults are filled in, so this gives the same experiment again.
    """
    original = experiment()
    plain = without_defaults(original)

    assert "run" not in plain
    assert "heartbeat.interval.ms" not in plain["groups"]["readers"].get("config", {})
    assert "run:" not in experiment_text(original)
    assert msgspec.convert(plain, Experiment) == original
