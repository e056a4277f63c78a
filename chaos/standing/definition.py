"""The experiment of a standing cluster, which `coordlab up` runs until `coordlab down`.

The experiment comes from an experiment file, from flags of the command line, or from both:

1. The document is read from the file. If there is no file, a document with defaults is made.
2. The flags are written into the document, as if they stood in the file.
3. The overrides (`--var`) replace values, as in `coordlab run`.
4. The changed document is checked. So a mistake in a flag gets the same message as in a file.

The document is a tree of Items. An Item is a value of the YAML file together with its line, so that
messages can name the line. A value that comes from a flag has no line.
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
"""The three defaults above count if a flag leaves the number out."""
_MOST_REPLICAS = 3
"""Number of replicas of a topic if a flag leaves it out, unless there are fewer brokers."""
_NUMBER_DIGITS_MAX = 9
"""Maximum number of digits of a number in a flag. 9 digits fit into 32 bits."""
COMMAND_LINE = "command line"
"""Text that problems of flags have in place of a file name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Flags:
    """The flags that define a cluster.

    - `brokers`: the number of brokers. If it is None, the number of the file counts, or the default
      if there is no file.
    - `topics`: texts of the form `NAME[:PARTITIONS[:REPLICATION]]`, such as "orders:6:3" or only
      "orders".
    - `groups`: texts of the form `NAME:TOPIC[,TOPIC][:MEMBERS]`, such as
      "billing:orders,payments:4".
    - `producers`: texts of the form `TOPIC[:RECORDS_PER_SECOND]`, such as "orders:50".
    - `overrides`: texts of the form `KEY=VALUE` with a key of the experiment file, such as
      "cluster.brokers=5".
    """

    brokers: int | None = None
    topics: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    producers: tuple[str, ...] = ()
    overrides: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StandingDefinition:
    """The experiment of a standing cluster.

    - `path`: the experiment file; None if the experiment comes from flags alone.
    - `warnings`: settings that are allowed, but probably not intended.
    """

    experiment: Experiment
    path: Path | None
    warnings: tuple[Problem, ...]


def define(
    file: str | None, flags: Flags, *, name: str | None = None, plays: bool = False
) -> StandingDefinition:
    """Return the experiment of `file`, changed by `flags`.

    If `file` is None, the flags change an experiment with defaults.

    - `name`: if it is not None, it replaces the name of the experiment.
    - `plays`: True for the option `--play`. The faults of the file are then injected at their
      times, as in a run. If it is False, the faults are removed, and only the command `inject`
      causes faults.

    Raises: ExperimentError with all problems.
    """
    try:
        return _define(file, flags, name=name, plays=plays)
    except ExperimentError as error:
        # If a wrong value has no line, the loader names `--var` as the value's file. But here the
        # value may come from another flag. So the message names the command line instead.
        raise ExperimentError(map(_of_command_line, error.problems)) from error


def _of_command_line(problem: Problem) -> Problem:
    return replace(problem, file=COMMAND_LINE) if problem.file == "--var" else problem


def _define(file: str | None, flags: Flags, *, name: str | None, plays: bool) -> StandingDefinition:
    """Carry out the steps of the module docstring, with the arguments of `define`."""
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
    problems = placed(errors(experiment), root, shown_as)
    if problems:
        raise ExperimentError(problems)
    # A warning at the path `faults` says that the experiment has no faults. This warning is left
    # out, because users cause the faults of a standing cluster by orders.
    useful_warnings = (problem for problem in warnings(experiment) if problem.path != "faults")
    return StandingDefinition(
        experiment=experiment, path=path, warnings=tuple(placed(useful_warnings, root, shown_as))
    )


def _blank(flags: Flags) -> Item:
    """Return the document of a cluster for which there is no file.

    Kafka's internal topics have three replicas by default. With only one or two brokers these
    topics could not be created. So they get as many replicas as there are brokers.
    """
    brokers = ClusterDefinition().brokers if flags.brokers is None else flags.brokers
    cluster: dict[str, object] = {"brokers": brokers}
    # A number below 1 is left to the check of the document, which reports it.
    if 1 <= brokers < _MOST_REPLICAS:
        cluster["config"] = {
            "offsets.topic.replication.factor": brokers,
            "transaction.state.log.replication.factor": brokers,
            # Kafka's default of this setting is 2, which one broker cannot reach.
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
    """Write the flags into a document; return the problems of flags that cannot be read.

    If a flag names a topic that nothing defines, the topic is defined, too. For example,
    `--group billing:orders` also defines the topic `orders`.
    """
    problems: list[Problem] = []
    if flags.brokers is not None:
        _put(_mapping(root, "cluster"), "brokers", flags.brokers)
    brokers = root.child("cluster").child("brokers").value
    # The document is not checked yet, so `brokers` may be a word, or 0, which a later check
    # reports. Here `brokers` only serves to compute a number of replicas. So a word is replaced by
    # the default, and a topic gets at least one replica.
    broker_count = brokers if isinstance(brokers, int) else ClusterDefinition().brokers
    replicas = max(1, min(_MOST_REPLICAS, broker_count))
    topics = _mapping(root, "topics")

    for text in flags.topics:
        topic, *words = text.split(":")
        numbers = _numbers(words)
        # A topic needs a name. At most two numbers may follow.
        if not topic or numbers is None or len(numbers) > 2:
            problems.append(_wrong("--topic", text, "`NAME[:PARTITIONS[:REPLICATION]]`"))
            continue
        partitions = numbers[0] if numbers else DEFAULT_PARTITIONS
        factor = numbers[1] if len(numbers) > 1 else replicas
        _put_topic(topics, topic, partitions, factor)

    for text in flags.groups:
        group_id, *words = text.split(":")
        names = words[0].split(",") if words else []
        numbers = _numbers(words[1:])
        # A group needs a name and at least one topic. No topic's name may be empty. At most one
        # number follows.
        if not group_id or not all(names) or not names or numbers is None or len(numbers) > 1:
            problems.append(_wrong("--group", text, "`NAME:TOPIC[,TOPIC][:MEMBERS]`"))
            continue
        _put_missing(topics, names, replicas)
        members = numbers[0] if numbers else DEFAULT_MEMBERS
        _put(_mapping(root, "groups"), group_id, {"members": members, "topics": names})

    for text in flags.producers:
        topic, colon, rate = text.partition(":")
        # `orders` alone means the default rate. In `orders:` the rate is missing, so it is a
        # mistake.
        records_per_second = _rate(rate) if colon else DEFAULT_RECORDS_PER_SECOND
        if not topic or records_per_second is None:
            problems.append(_wrong("--producer", text, "`TOPIC[:RECORDS_PER_SECOND]`"))
            continue
        _put_missing(topics, [topic], replicas)
        # The file may have no list of producers, or a wrong value in its place.
        producers = root.child("producers").value
        if not isinstance(producers, list):
            producers = []
            _put_item(root, "producers", Item(value=producers))
        producers.append(item_of({"topic": topic, "records_per_second": records_per_second}))
    return problems


def _put_missing(topics: Item, names: Sequence[str], replicas: int) -> None:
    """Define each topic in `names` that neither the file nor an earlier flag has defined."""
    for name in names:
        if isinstance(topics.value, dict) and name not in topics.value:
            _put_topic(topics, name, DEFAULT_PARTITIONS, replicas)


def _put_topic(topics: Item, name: str, partitions: int, factor: int) -> None:
    """Define a topic, also if the file defines it already. `factor` is its number of replicas."""
    _put(topics, name, {"partitions": partitions, "replication.factor": factor})


def _mapping(root: Item, key: str) -> Item:
    """Return the mapping under `key`. If there is no value, put an empty mapping there first."""
    if isinstance(root.value, dict) and (key not in root.value or root.value[key].value is None):
        _put(root, key, {})
    return root.child(key)


def _put(item: Item, key: str, value: object) -> None:
    """Write a plain value under `key` of the mapping `item`."""
    _put_item(item, key, item_of(value))


def _put_item(item: Item, key: str, value: Item) -> None:
    """Write an Item under `key` of the mapping `item`."""
    # If the file has a wrong value in place of the mapping `item`, such as a number, nothing is
    # done here. The check of the document will report the wrong value.
    if isinstance(item.value, dict):
        item.value[key] = value
        item.key_lines[key] = None  # the key comes from a flag, so it has no line


def _numbers(words: Sequence[str]) -> tuple[int, ...] | None:
    """Return the words as whole numbers, such as (6, 3) for ("6", "3").

    Return None if a word is no number, or has too many digits.
    """
    if not all(
        word.isascii() and word.isdecimal() and len(word) <= _NUMBER_DIGITS_MAX for word in words
    ):
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
