"""The lab publishes a JSON Schema of its experiment files, which editors use.

With the schema an editor completes keys and marks mistakes while a person writes a file. Later the
command `coordlab validate` checks the file again, with code of its own. The schema and the command
must agree. So most tests here give a document (the content of a file) to both of them. The
documents are variants of the experiments that the lab ships.
"""

import random
from collections.abc import Callable, Iterable, Iterator
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from chaos.experiment.json_schema import (
    FILE_NAME,
    encoded_schema,
    experiment_schema,
    target_pattern,
)
from chaos.experiment.loader import list_experiments, load_experiment
from chaos.experiment.problems import ExperimentError
from chaos.experiment.schema_errors import shape_problems
from chaos.experiment.structs import Experiment
from chaos.experiment.yaml_document import item_of
from chaos.faults.registry import FAULT_KINDS
from chaos.targets.registry import TARGET_KINDS, check_target
from tests.support.builders.experiments import experiment

PUBLISHED = Path(__file__).resolve().parents[3] / "docs" / FILE_NAME
MUTATIONS = 150
"""Number of documents that `test_schema_and_validate_agree_on_random_mutations` tries."""

IsLoaded = Callable[[object], bool]
"""A function that returns whether `validate` accepts a document."""


@cache
def validator() -> Any:  # noqa: ANN401 - jsonschema has no types
    return jsonschema.Draft202012Validator(experiment_schema())


def schema_errors(document: object) -> list[str]:
    """Return the errors that the schema finds in the document.

    An example of an error: "cluster.brokers: 'many' is not of type 'integer'".
    """
    errors = []
    for error in validator().iter_errors(document):
        place = ".".join(map(str, error.absolute_path))
        errors.append(f"{place}: {error.message}")
    return errors


@pytest.fixture
def is_loaded(tmp_path: Path) -> IsLoaded:
    """Return a function that returns whether `validate` accepts a document."""

    def load(document: object) -> bool:
        file = tmp_path / "document.yaml"
        file.write_text(yaml.safe_dump(document, sort_keys=False))
        try:
            load_experiment(str(file))
        except ExperimentError:
            return False
        return True

    return load


def shipped() -> list[dict[str, Any]]:
    """Return the documents of the experiments that the lab ships."""
    return [yaml.safe_load(Path(listed.path).read_text()) for listed in list_experiments()]


def test_schema_is_valid_in_its_own_dialect() -> None:
    """The schema names a draft of JSON Schema, and is valid according to this draft."""
    schema = experiment_schema()
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    jsonschema.Draft202012Validator.check_schema(schema)


def test_published_schema_is_the_generated_one() -> None:
    """Editors read the file in docs/.

    After a change of the schema, `make docs` must write it anew.
    """
    assert PUBLISHED.read_bytes() == encoded_schema()


def test_every_key_of_the_schema_has_a_description() -> None:
    """Editors show the description of a key when they complete it."""

    def undescribed_keys(place: str, schema: dict[str, Any]) -> Iterator[str]:
        for name, entry in schema.get("properties", {}).items():
            if not entry.get("description", "").strip():
                yield f"{place}.{name}"

    schema = experiment_schema()
    assert list(undescribed_keys("", schema)) == []
    for name, part in schema["$defs"].items():
        assert list(undescribed_keys(name, part)) == []


def test_schema_accepts_every_shipped_experiment() -> None:
    """A person begins a new experiment with a copy of a shipped experiment."""
    assert len(shipped()) >= 9  # a loop over no document would prove nothing
    for document in shipped():
        assert schema_errors(document) == [], document["name"]


def document_of(name: str) -> dict[str, Any]:
    """Return the document of one shipped experiment."""
    (path,) = (listed.path for listed in list_experiments() if listed.name == name)
    document: dict[str, Any] = yaml.safe_load(path.read_text())
    return document


CRASH = document_of("coordinator_crash")


def changed(document: dict[str, Any], path: str, value: object) -> dict[str, Any]:
    """Return a copy of the document with one place changed.

    A path consists of steps. In the path "faults.0.at" they are faults, 0 (the first fault) and at.
    The names of Kafka's settings have dots themselves. So a step must be a key (or an index) that
    exists in the document. If there is no such key, the whole rest of the path is the last step.
    For example, in "cluster.config.session.timeout" the last step is session.timeout.
    """
    changed_document = deepcopy(document)
    holder: Any = changed_document
    rest = path
    while True:
        # `holder` is the mapping or list in which the next step is a key or an index.
        is_mapping = isinstance(holder, dict)
        existing_steps = holder if is_mapping else map(str, range(len(holder)))
        step = next((step for step in existing_steps if rest.startswith(f"{step}.")), rest)
        key = step if is_mapping else int(step)
        if step == rest:  # the last step
            holder[key] = value
            return changed_document
        holder = holder[key]
        rest = rest.removeprefix(f"{step}.")


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("version", 2),
        ("name", "no name"),
        ("topics", []),
        ("cluster.brokers", "many"),
        ("cluster.brokers", 0),
        ("cluster.brokrs", 3),
        ("cluster.config.session.timeout", 1),
        ("cluster.config.broker.session.timeout.ms", 0),
        ("cluster.config.group.coordinator.new.enable", True),
        ("cluster.guards.leader_epoch_gard", True),
        ("cluster.links.base_us", -1),
        ("cluster.storage.write_back_check_ms", 0),
        ("groups.orders-readers.topics", []),
        ("groups.orders-readers.topics", ["orders", "orders"]),
        ("groups.orders-readers.config.group.instance.id", "reader {index}"),  # has a space
        ("groups.orders-readers.config.partition.assignment.strategy", ["sticky"]),
        ("groups.orders-readers.config.partition.assignment.strategy", []),
        # The brokers of an experiment are named broker-0, broker-1 and so on.
        ("groups.orders-readers.config.bootstrap.servers", ["localhost:9092"]),
        ("groups.order readers", {"members": 1, "topics": ["orders"]}),
        ("producers.0.records_per_second", 0),
        ("producers.0.config.acks", "most"),
        ("faults.0.at", "5 s"),
        ("faults.0.at", 5),
        ("faults.0.fault", "crahs"),
        ("faults.0.target", "coordinator-of"),
        ("faults.0.target", "coordinator_of(orders-readers)"),
        ("faults.0.target", "brokers"),  # the fault is a crash, which hits one node
        ("faults.0.target", None),
        ("faults.0.from", "broker(0)"),
        ("faults.0.args", {"disk": "full"}),
        ("faults.0.args", {"dsk": "same"}),
        ("faults.0.every", "20s"),  # needs `repeat` beside it
        ("faults.0.every", "0s"),
        ("faults.0.repeat", 3),  # needs `every` beside it
        ("checks", ["durable-commits"]),
        ("checks", ["liveness", "liveness"]),
    ],
)
def test_schema_refuses_invalid_documents(path: str, value: object, is_loaded: IsLoaded) -> None:
    """Each value is a mistake that `validate` refuses, so the editor must mark it, too."""
    document = changed(CRASH, path, value)

    assert schema_errors(document)
    assert not is_loaded(document)


@pytest.mark.parametrize(
    "fault",
    [
        {"fault": "cut", "from": "broker(0)"},
        {"fault": "cut", "from": "broker(0)", "to": []},
        {"fault": "cut", "from": "broker(0)", "to": "controller", "target": "broker(0)"},
        {"fault": "cut", "from": "brokers", "to": "controller", "args": {"purposes": ["fetch"]}},
        {"fault": "slow", "from": "brokers", "to": "controller"},
        {"fault": "slow", "from": "brokers", "to": "controller", "args": {"jitter": "1ms"}},
        # Resets, moves and elections are done in a moment, so they have no duration.
        {"fault": "reset", "from": "brokers", "to": "clients", "duration": "5s"},
        {"fault": "pause", "target": "broker(0)", "args": {"disk": "same"}},
        # A repeated crash needs a duration, so that it ends before the next crash.
        {"fault": "crash", "target": "broker(0)", "every": "5s", "repeat": 2},
        {"fault": "leadership_move", "target": "broker(0)"},
        {"fault": "preferred_leader_election", "target": "all-topic-partitions", "duration": "1s"},
    ],
    ids=lambda fault: str(fault["fault"]),
)
def test_schema_has_the_arguments_of_each_fault(fault: dict[str, Any], is_loaded: IsLoaded) -> None:
    """Each of these faults lacks what its kind needs, or has what its kind does not allow."""
    document = changed(CRASH, "faults", [{"at": "5s", **fault}])

    assert schema_errors(document)
    assert not is_loaded(document)


# -- random documents ----------------------------------------------------------------------------

PLAIN_VALUES = (None, True, 0, -1, 3, 10**6, 0.5, "", "x", "5s", "0s", "5")
TARGETS = ("broker(0)", "brokers", "coordinator-of(orders-readers)", "member(orders-readers, 0)")
FAULTS = ("crash", "cut", "reset")
NESTED_VALUES: tuple[object, ...] = (
    [],
    ["orders"],
    ["broker(0)", "controller"],
    {},
    {"delay": "5ms"},
    {"members": 1},
)
VALUES: tuple[object, ...] = (*PLAIN_VALUES, *TARGETS, *FAULTS, *NESTED_VALUES)
"""Values that `mutated` puts at random places. There they may be right or wrong."""


KEYS = ("target", "from", "to", "duration", "every", "repeat", "args", "config", "checks")
"""Keys that `mutated` adds at random places."""


def places(value: object) -> Iterator[tuple[Any, Any]]:
    """Yield the place of every value in a document.

    A place is the mapping or list that holds the value, and the key or index. For example
    {"a": [5]} has two places: the mapping with the key "a", and the list [5] with the index 0.
    """
    keys: Iterable[Any] = ()
    if isinstance(value, dict):
        keys = list(value)
    elif isinstance(value, list):
        keys = range(len(value))
    holder: Any = value
    for key in keys:
        yield holder, key
        yield from places(holder[key])


def mutated(document: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    """Return a copy of a document with one to three random changes.

    A change replaces or removes a value, renames a key, or adds a value.
    """
    mutated_document = deepcopy(document)
    for _ in range(rng.randint(1, 3)):
        holder, key = rng.choice(list(places(mutated_document)))
        change = rng.choice(("replace", "remove", "rename", "add"))
        if change == "replace":
            holder[key] = deepcopy(rng.choice(VALUES))
        elif change == "remove":
            del holder[key]
        elif isinstance(holder, list):
            # An element of a list has no name to change, so it is repeated.
            holder.append(deepcopy(holder[key]))
        elif change == "rename":
            holder[f"{key}s"] = holder.pop(key)
        else:
            holder[rng.choice(KEYS)] = deepcopy(rng.choice(VALUES))
    return mutated_document


ONE_OF_EACH = (
    {"at": "1s", "fault": "machine_loss", "target": "machine(0)", "args": {"disk": "empty"}},
    {"at": "1s", "fault": "machine_pause", "target": "machine-of(controller)", "duration": "2s"},
    {"at": "1s", "fault": "machine_cut", "target": "machine(1)", "args": {"direction": "one_way"}},
    {"at": "1s", "fault": "power_loss", "target": "broker(1)", "args": {"disk": "empty"}},
    {"at": "1s", "fault": "controlled_shutdown", "target": "any-broker", "duration": "5s"},
    {"at": "1s", "fault": "pause", "target": "member(orders-readers, 1)", "duration": "5s"},
    {"at": "1s", "fault": "leadership_move", "target": "leader-of(orders-1)"},
    {"at": "1s", "fault": "preferred_leader_election", "target": "all-topic-partitions"},
    {"at": "1s", "fault": "remove_members", "target": "coordinator-of(orders-readers)"},
    {"at": "1s", "fault": "delete_group", "target": "coordinator-of(orders-readers)"},
    {
        "at": "1s",
        "fault": "delete_offsets",
        "target": "coordinator-of(orders-readers)",
        "args": {"topic": "orders"},
    },
    {
        "at": "1s",
        "fault": "reset_offsets",
        "target": "coordinator-of(orders-readers)",
        "args": {"to": "latest"},
    },
    {
        "at": "1s",
        "fault": "create_topic",
        "target": "controller",
        "args": {"topic": "new", "partitions": 2, "replication_factor": 3},
    },
    {"at": "1s", "fault": "delete_topic", "target": "controller", "args": {"topic": "archive"}},
    {"at": "1s", "fault": "cut", "from": "broker(1)", "to": ["controller", "clients"]},
    {"at": "1s", "fault": "clog", "from": ["members(orders-readers)"], "to": "brokers"},
    {"at": "1s", "fault": "slow", "from": "brokers", "to": "clients", "args": {"delay": "2ms"}},
    {"at": "1s", "fault": "reset", "from": "clients", "to": "brokers", "every": "9s", "repeat": 3},
    {"at": "1s", "fault": "node_loss", "target": "member(orders-readers, 1)"},
    {"at": "1s", "fault": "scale", "target": "members(orders-readers)", "args": {"to": 1}},
    {
        "at": "1s",
        "fault": "response_loss",
        "from": "brokers",
        "to": "clients",
        "args": {"apis": ["JoinGroup"], "errors": ["MEMBER_ID_REQUIRED"], "responses": 2},
    },
)
"""Faults for random documents. Few shipped experiments, or none, have faults of these kinds."""


@pytest.mark.slow
def test_schema_and_validate_agree_on_random_mutations(is_loaded: IsLoaded) -> None:
    """The schema and `validate` judge random documents in the same way, with one exception.

    - The schema accepts each document that `validate` accepts.
    - The schema refuses each document with a wrong shape. A wrong shape is a mistake that can be
      seen at one place of the document, such as an unknown key, a wrong type or a number out of
      range.
    - The exception: the schema may accept a document with another mistake, which can be seen only
      in the whole document. For example, a fault may name a group that does not exist.
    """
    rng = random.Random(5)  # a constant seed, so that each run of the test has the same mutations
    documents = [*shipped(), *(changed(CRASH, "faults", [fault]) for fault in ONE_OF_EACH)]
    accepted = wrongly_shaped = 0
    for number in range(MUTATIONS):
        document = mutated(rng.choice(documents), rng)
        description = f"mutation {number}: {document}"
        if is_loaded(document):
            accepted += 1
            assert schema_errors(document) == [], description
        elif shape_problems(item_of(document), Experiment, ""):
            wrongly_shaped += 1
            assert schema_errors(document), description
    # Both kinds of documents must have occurred often enough.
    assert accepted > MUTATIONS // 20
    assert wrongly_shaped > MUTATIONS // 4


def test_faults_of_similar_names_have_their_own_arguments() -> None:
    """The fault `reset` may have the argument `purposes`, and `reset_offsets` the argument `to`.

    In an earlier version, the structs with the arguments of these two faults had the same name. So
    the schema had one of the two structs for both faults.
    """
    reset = {"at": "1s", "fault": "reset", "from": "clients", "to": "brokers"}
    right = reset | {"args": {"purposes": ["client"]}}
    wrong = reset | {"args": {"to": "latest"}}

    assert schema_errors(changed(CRASH, "faults", [right])) == []
    assert schema_errors(changed(CRASH, "faults", [wrong]))


def test_every_fault_occurs_in_the_mutated_documents() -> None:
    """A new kind of fault needs an entry in ONE_OF_EACH, unless a shipped experiment has it."""
    in_experiments = {fault["fault"] for document in shipped() for fault in document["faults"]}
    in_one_of_each = {fault["fault"] for fault in ONE_OF_EACH}
    assert in_experiments | in_one_of_each == set(FAULT_KINDS)


EXAMPLES = {
    "<group>": "readers",
    "<topic-partition>": "orders-1",
    "<id>": "1",
    "<index>": "1",
    "<number>": "1",
    "<target>": "broker(1)",
    "<client id>": "reader-1",
}
"""A valid example for each placeholder in the syntax of a target."""


@pytest.mark.parametrize("name", TARGET_KINDS)
def test_pattern_of_a_target_accepts_exactly_valid_targets(name: str) -> None:
    """For each kind of target, a pattern for the schema is made from the syntax of this kind.

    For example, the pattern of the syntax "member(<group>, <index>)" must accept
    "member(readers, 1)", even with more spaces, and must refuse "member(?)".
    """
    syntax = TARGET_KINDS[name].syntax
    pattern = {"type": "string", "pattern": f"^({target_pattern(syntax)})$"}
    target = syntax
    for placeholder, example in EXAMPLES.items():
        target = target.replace(placeholder, example)
    target_with_spaces = target.replace("(", " ( ").replace(",", " ,  ")
    group = {"members": 2, "topics": ["orders"]}
    groups = {"readers": group, "old": group | {"coordination": "zookeeper"}}
    made = experiment(groups=groups, cluster={"brokers": 3, "machines": 2})

    for valid in (target, target_with_spaces):
        assert check_target(valid, made) is None
        jsonschema.validate(valid, pattern)

    # "?" is a valid client id, but no valid argument of any other kind of target.
    invalid_argument = "" if "<client id>" in syntax else "?"
    for invalid in (f"{target}x", f"x{target}", f"{name}({invalid_argument})", ""):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(invalid, pattern)
