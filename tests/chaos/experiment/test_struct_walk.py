"""The walk over an experiment's structs: fields, what stands in them, and what may be left out."""

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


def test_field_knows_its_key_default_meaning_and_struct() -> None:
    """What the schema, the pages, the text of a file and the report's settings are made from."""
    fields = {field.name: field for field in fields_of(GroupDefinition)}

    timeout = {field.key: field for field in fields_of(ConsumerConfig)}["session.timeout.ms"]
    assert (timeout.name, timeout.default) == ("session_timeout_ms", 45_000)
    assert timeout.is_default(45_000)
    assert not timeout.is_default(9_000)
    assert fields["late_members"].struct is LateMembersDefinition
    assert fields["topics"].struct is None
    assert fields["isolate"].doc == "True: on Ray every member has a process of its own."


def test_required_field_is_never_at_its_default() -> None:
    """The file must say it, whatever it is."""
    version = fields_of(Experiment)[0]

    assert version.required
    assert not version.is_default(msgspec.NODEFAULT)


def test_structs_in_an_experiment_come_with_the_place_of_each() -> None:
    """The outer ones first: a place is the way through fields, keys and indexes."""
    places = {place: type(struct) for place, struct in structs_in(experiment())}

    assert next(iter(places)) == ()
    assert places["topics", "orders"] is TopicDefinition
    assert places["groups", "readers", "config"] is ConsumerConfig
    assert places["run",] is RunDefinition


def test_struct_types_look_through_options_lists_and_mappings() -> None:
    """X of `X | None`, `dict[str, X]`, `tuple[X, ...]`."""
    annotations = (ConsumerConfig | None, dict[str, GroupDefinition], tuple[TopicDefinition, ...])

    assert list(struct_types(*annotations, str)) == [
        ConsumerConfig,
        GroupDefinition,
        TopicDefinition,
    ]


def test_plain_values_leave_out_what_is_equal_to_its_default() -> None:
    """`experiment_text` writes them, and what is left out is read back as the default."""
    made = experiment()
    plain = without_defaults(made)

    assert "run" not in plain
    assert "heartbeat.interval.ms" not in plain["groups"]["readers"].get("config", {})
    assert "run:" not in experiment_text(made)
    assert msgspec.convert(plain, Experiment) == made
