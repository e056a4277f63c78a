"""The experiment of a standing cluster, one that `coordlab up` keeps running until it is ended.

It comes from an experiment file, from flags of the command line, or from both:
1. The document is read from the file; without a file it is made with defaults.
2. The flags are written into it, as if they stood in the file.
3. The overrides (`--var`) replace values, as in `coordlab run`.
4. The whole is checked. A mistake in a flag so gets the same message as one in a file.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from chaos.experiment.loader import (
    experiment_in,
    find_experiment,
    path_from_here,
    placed,
)
from chaos.experiment.problems import ExperimentError, Problem
from chaos.experiment.rules.all_rules import errors, warnings
from chaos.experiment.structs import FORMAT_VERSION, ClusterDefinition, Experiment
from chaos.experiment.yaml_document import Item, item_of, read_document
from chaos.standing.registry import DEFAULT_NAME

DEFAULT_PARTITIONS = 6
DEFAULT_MEMBERS = 3
DEFAULT_RECORDS_PER_SECOND = 100.0
_MOST_REPLICAS = 3
COMMAND_LINE = "command line"
"""What a problem names instead of a file, if its text comes from no file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Flags:
    """The flags that define a cluster.

    - `brokers`: number of brokers; None takes the file's, or the default.
    - `topics`: each `NAME[:PARTITIONS[:REPLICATION]]`.
    - `groups`: each `NAME:TOPIC[,TOPIC][:MEMBERS]`.
    - `producers`: each `TOPIC[:RECORDS_PER_SECOND]`.
    - `overrides`: each `KEY=VALUE`, of a key of the experiment file (`--var`).
    """

    brokers: int | None = None
    topics: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    producers: tuple[str, ...] = ()
    overrides: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StandingDefinition:
    """The experiment of a standing cluster.

    - `path`: the file that it comes from, None without one.
    - `warnings`: settings that are allowed and probably not meant.
    """

    experiment: Experiment
    path: Path | None
    warnings: tuple[Problem, ...]


def define(
    file: str | None, flags: Flags, *, name: str | None = None, plays: bool = False
) -> StandingDefinition:
    """Return the experiment of `file`, or one with defaults, changed by `flags`.

    name: replaces the name of the experiment.
    plays: whether the faults of the file are played (`--play`); they are left out otherwise, so
        that the cluster is broken by `inject` alone.
    Raises: ExperimentError with everything that is wrong.
    """
    try:
        return _define(file, flags, name=name, plays=plays)
    except ExperimentError as error:
        # The loader names an override "--var". Here it is one flag of several.
        raise ExperimentError(map(_of_command_line, error.problems)) from error


def _of_command_line(problem: Problem) -> Problem:
    return replace(problem, file=COMMAND_LINE) if problem.file == "--var" else problem


def _define(file: str | None, flags: Flags, *, name: str | None, plays: bool) -> StandingDefinition:
    path = None if file is None else find_experiment(file)
    shown_as = COMMAND_LINE if path is None else path_from_here(path)
    root = _blank(flags) if path is None else read_document(path, shown_as)
    problems = _enter(root, flags)
    if problems:
        raise ExperimentError(problems)
    if name is not None:
        _put(root, "name", name)
    experiment = experiment_in(root, shown_as, flags.overrides)
    if not plays:
        experiment = msgspec.structs.replace(experiment, faults=())
    found = placed(errors(experiment), root, shown_as)
    if found:
        raise ExperimentError(found)
    # "No faults" is a warning for a run. A standing cluster gets its faults from `inject`.
    unwise = (each for each in warnings(experiment) if each.path != "faults")
    return StandingDefinition(
        experiment=experiment, path=path, warnings=tuple(placed(unwise, root, shown_as))
    )


def _blank(flags: Flags) -> Item:
    """Return the document of a cluster without a file.

    With one or two brokers, the internal topics have as many replicas: Kafka's default of three
    could not be created.
    """
    brokers = ClusterDefinition().brokers if flags.brokers is None else flags.brokers
    cluster: dict[str, object] = {"brokers": brokers}
    if 1 <= brokers < _MOST_REPLICAS:
        cluster["config"] = {
            "offsets.topic.replication.factor": brokers,
            "transaction.state.log.replication.factor": brokers,
            "transaction.state.log.min.isr": min(2, brokers),
        }
    return item_of(
        {
            "version": FORMAT_VERSION,
            "name": DEFAULT_NAME,
            "question": "What do its clients live through while it is broken by hand?",
            "expect": "Every promise is kept.",
            "cluster": cluster,
            "topics": {},
            "groups": {},
        }
    )


def _enter(root: Item, flags: Flags) -> list[Problem]:
    """Write the flags into a document; return what is wrong with them."""
    problems: list[Problem] = []
    if flags.brokers is not None:
        _put(_mapping(root, "cluster"), "brokers", flags.brokers)
    brokers = root.child("cluster").child("brokers").value
    most = brokers if isinstance(brokers, int) else ClusterDefinition().brokers
    replicas = max(1, min(_MOST_REPLICAS, most))
    topics = _mapping(root, "topics")
    for text in flags.topics:
        parts = text.split(":")
        numbers = _numbers(parts[1:])
        if not parts[0] or numbers is None or len(numbers) > 2:
            problems.append(_wrong("--topic", text, "`NAME[:PARTITIONS[:REPLICATION]]`"))
            continue
        partitions = numbers[0] if numbers else DEFAULT_PARTITIONS
        factor = numbers[1] if len(numbers) > 1 else replicas
        _put_topic(topics, parts[0], partitions, factor)
    for text in flags.groups:
        parts = text.split(":")
        numbers = _numbers(parts[2:])
        names = parts[1].split(",") if len(parts) > 1 else []
        if not parts[0] or not all(names) or not names or numbers is None or len(numbers) > 1:
            problems.append(_wrong("--group", text, "`NAME:TOPIC[,TOPIC][:MEMBERS]`"))
            continue
        _put_missing(topics, names, replicas)
        group = {"members": (numbers or (DEFAULT_MEMBERS,))[0], "topics": names}
        _put(_mapping(root, "groups"), parts[0], group)
    for text in flags.producers:
        topic, colon, rate = text.partition(":")
        # `orders:` is a mistake, and not the default rate: its rate is empty.
        records = _rate(rate) if colon else DEFAULT_RECORDS_PER_SECOND
        if not topic or records is None:
            problems.append(_wrong("--producer", text, "`TOPIC[:RECORDS_PER_SECOND]`"))
            continue
        _put_missing(topics, [topic], replicas)
        producers = root.child("producers").value
        if not isinstance(producers, list):
            producers = []
            _put_item(root, "producers", Item(value=producers))
        producers.append(item_of({"topic": topic, "records_per_second": records}))
    return problems


def _put_missing(topics: Item, names: Sequence[str], replicas: int) -> None:
    """Define the topics of a group or producer that neither the file nor a flag defines."""
    for name in names:
        if isinstance(topics.value, dict) and name not in topics.value:
            _put_topic(topics, name, DEFAULT_PARTITIONS, replicas)


def _put_topic(topics: Item, name: str, partitions: int, factor: int) -> None:
    _put(topics, name, {"partitions": partitions, "replication.factor": factor})


def _mapping(root: Item, key: str) -> Item:
    """Return the mapping under `key`; an empty one is put there if the key has no value."""
    if isinstance(root.value, dict) and (key not in root.value or root.value[key].value is None):
        _put(root, key, {})
    return root.child(key)


def _put(item: Item, key: str, value: object) -> None:
    _put_item(item, key, item_of(value))


def _put_item(item: Item, key: str, value: Item) -> None:
    # What is no mapping is left as it is: the check of the whole document reports it.
    if isinstance(item.value, dict):
        item.value[key] = value
        item.key_lines[key] = None


def _numbers(words: Sequence[str]) -> tuple[int, ...] | None:
    """Return the words as whole numbers, None if a word is not a number below a billion."""
    if not all(word.isascii() and word.isdecimal() and len(word) < 10 for word in words):
        return None
    return tuple(map(int, words))


def _rate(word: str) -> float | None:
    try:
        return float(word)
    except ValueError:
        return None


def _wrong(flag: str, text: str, expected: str) -> Problem:
    return Problem(
        file=flag,
        line=None,
        path="",
        message="is not allowed",
        expected=expected,
        found=f"`{text}`",
    )
