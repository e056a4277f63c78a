"""Transcripts: recordings of scenarios with a real Kafka cluster, as files.

A transcript is a list of steps. A step is either a request with Kafka's answer, or an action on the
cluster, such as the death of a broker. tests/conformance/transcripts/README.md describes the format
of the files. This module reads the files, and reports all their errors. It also reads the rules for
the comparison of our answers with the recorded answers.

Two things are changed when a file is read:

- JSON cannot contain bytes. So bytes are written as `{"hex": ...}`, and become bytes again.
- The recorder has added the names of error codes for human readers. These names are dropped.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from chaos.experiment.problems import Problem
from protocol.plain import NotAMessage, check_request, is_known
from protocol.wire.fields import PlainMessage, PlainValue

INDEX = "index.json"
"""Name of the file with the comparison rules of a folder of transcripts."""
SYMBOL = re.compile(r"<(?:member|producer):\d+>")
"""A symbol, such as `<member:1>`. The recorder has put it in place of a generated id."""
INDEX_ABOVE_MAX = 3
"""Number of parent folders in which the index file of transcripts is looked for."""


class TranscriptError(Exception):
    """A transcript cannot be replayed. `problems` has all problems that were found."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


class Symbol(msgspec.Struct, frozen=True, kw_only=True):
    """What a transcript says about one symbol, which stands for an id that a broker generated.

    Mostly a broker gives the id to a client, in an answer to this client. Some ids occur only
    inside of lists in answers, such as the list of all members of a group.

    - `prefix`: if the id is a member id, the part before its UUID.
    - `first`: the number of the step whose answer gives the id to a client; None if the id occurs
      only inside of lists.
    - `client`: the client to which the broker gave the id.
    - `found`: "nested" if the id occurs only inside of lists.
    """

    prefix: str | None = None
    first: int | None = None
    client: str | None = None
    found: str | None = None


class RecordedTopic(msgspec.Struct, frozen=True, kw_only=True):
    """One topic of the recorded cluster."""

    partitions: int


class RequestStep(msgspec.Struct, frozen=True, kw_only=True):
    """One request and Kafka's answer.

    - `n`: the number of the step in the file.
    - `at_ms`, `answered_ms`: the times of the request and of the answer, in milliseconds since the
      start of the scenario, by the clock of the client.
    - `conn`: the number of the client's connection.
    - `broker`: the id of the broker that got the request.
    - `answer_seq`: the place of the answer in the order of all answers.
    - `outcome`: if the request ended without an answer, a text such as "disconnected". Then
      `answered_ms`, `answer_seq` and `response` are None.
    """

    n: int
    client: str
    client_id: str
    at_ms: float
    api: str
    version: int
    request: PlainMessage
    answered_ms: float | None
    conn: int = 0
    broker: int = 0
    answer_seq: int | None = None
    response: PlainMessage | None = None
    outcome: str | None = None


class ActionStep(msgspec.Struct, frozen=True, kw_only=True):
    """One action on the cluster or on a client.

    It began at `at_ms` and ended at `done_ms`, in milliseconds since the scenario's start.
    """

    n: int
    action: str
    at_ms: float
    done_ms: float
    args: dict[str, object] = {}


Step = RequestStep | ActionStep


class Transcript(msgspec.Struct, frozen=True, kw_only=True):
    """One recorded scenario.

    - `covers`: the ids of the scenarios in section 10 of docs/kafka/BEHAVIOUR.md that the
      transcript shows.
    - `kafka`: the version of the recorded Kafka.
    - `coordinator`: the implementation of the coordinator. Kafka has two: `scala` and `java`.
    - `brokers`: the number of brokers.
    - `config`: the settings of the brokers.
    - `end_ms`: the end of the recording, in milliseconds since its start.
    """

    path: str
    id: str
    title: str
    covers: tuple[str, ...]
    kafka: str
    coordinator: str
    brokers: int
    config: dict[str, PlainValue]
    topics: dict[str, RecordedTopic]
    symbols: dict[str, Symbol]
    end_ms: float
    steps: tuple[Step, ...]

    @property
    def requests(self) -> tuple[RequestStep, ...]:
        """The steps that are requests, in their order."""
        return tuple(step for step in self.steps if isinstance(step, RequestStep))


class _File(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a file. Its steps are not decoded yet, so that each can have its own error."""

    id: str
    kafka: str
    brokers: int
    steps: list[msgspec.Raw]
    end_ms: float
    title: str = ""
    covers: tuple[str, ...] = ()
    coordinator: str = "scala"
    config: dict[str, bool | int | float | str] = {}
    topics: dict[str, RecordedTopic] = {}
    symbols: dict[str, Symbol] = {}


class _Kind(msgspec.Struct, frozen=True):
    """The fields of a step that show whether it is an action or a request."""

    n: int
    action: str | None = None


class _RawRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request as it is written in the file, with the bodies of its messages in JSON."""

    n: int
    client: str
    at_ms: float
    api: str
    version: int
    request: dict[str, object]
    answered_ms: float | None
    client_id: str | None = None
    conn: int = 0
    broker: int = 0
    answer_seq: int | None = None
    response: dict[str, object] | None = None
    outcome: str | None = None


class _Index(msgspec.Struct, frozen=True, kw_only=True):
    """The rules for the comparison of answers, as they are written in an index file."""

    # These fields depend on the addresses and on the load of the recorded cluster, so their values
    # cannot be equal in our cluster.
    ignore: tuple[str, ...] = ("throttle_time_ms", "host", "port")
    unordered: dict[str, str] = {}
    tolerance_ms: float = 150


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonRules:
    """Rules for the comparison of our answers with Kafka's answers.

    - `ignore`: the names of the fields that are not compared.
    - `unordered`: the lists whose order Kafka does not define. Each key is the path of a list, in
      the form `Api.field`, `Api.field[].field`, or `*.field` for any API. The value is the name of
      the field that identifies an item of the list.
    - `unordered_since_4`: the paths in `unordered` whose lists have no order since Kafka 4, but
      have one in Kafka 3.9.
    - `tolerance_ms`: the largest allowed difference between two times.
    """

    ignore: frozenset[str]
    unordered: dict[str, str]
    unordered_since_4: frozenset[str]
    tolerance_ms: float


DEFAULT_UNORDERED = {
    "JoinGroup.members": "by member_id",
    "DescribeGroups.groups[].members": "by member_id",
    "ListGroups.groups": "by group_id",
    "DescribeGroups.groups": "by group_id (4.1 only; 3.9 keeps the order of the request)",
    "DeleteGroups.results": "by group_id",
    "*.topics": "by name",
    "*.partitions": "by partition_index",
}
"""Unordered lists for recordings without an index file. The index of this project has the same.

The values are notes, which `_rules` parses. The first word after "by" is the field that identifies
an item. The text "(4.1 only" says that the list has an order in Kafka 3.9.
"""


def find_transcripts(directory: Path) -> tuple[Path, ...]:
    """Return the paths of all transcripts below `directory`, sorted.

    If `directory` is a file, return this file alone. Raises: TranscriptError if there is none.
    """
    if directory.is_file():
        return (directory,)
    if not directory.is_dir():
        raise _error(directory, "", "there is no such folder")
    paths = tuple(sorted(path for path in directory.rglob("*.json") if path.name != INDEX))
    if not paths:
        raise _error(directory, "", "no transcript (*.json) in this folder or below")
    return paths


def read_rules(directory: Path) -> ComparisonRules:
    """Return the rules for the transcripts of a folder.

    The rules are in the index file of this folder, or of the nearest folder above that has one.

    Raises: TranscriptError if the index file cannot be read.
    """
    start = directory.resolve()
    folders = (start, *start.parents[:INDEX_ABOVE_MAX])
    path = next((folder / INDEX for folder in folders if (folder / INDEX).is_file()), None)
    if path is None:
        return _rules(_Index(unordered=DEFAULT_UNORDERED))
    try:
        return _rules(msgspec.json.decode(path.read_bytes(), type=_Index))
    except (OSError, msgspec.DecodeError) as error:
        raise _error(path, "", str(error)) from error


def read_transcript(path: Path) -> Transcript:
    """Return one transcript. Raises: TranscriptError with every problem of the file."""
    try:
        file = msgspec.json.decode(path.read_bytes(), type=_File)
    except (OSError, msgspec.DecodeError) as error:
        raise _error(path, "", str(error)) from error

    problems: list[Problem] = []
    steps: list[Step] = []
    for index, raw in enumerate(file.steps):
        # If even the number of the step cannot be read, the problem names the position instead.
        kind = _Kind(n=index + 1)
        try:
            kind = msgspec.json.decode(raw, type=_Kind)
            step = _step(raw, is_action=kind.action is not None)
            problems += _problems_of(path, step, file.symbols, steps[-1] if steps else None)
            steps.append(step)
        except (msgspec.DecodeError, ValueError) as error:
            problems.append(_problem(path, f"step {kind.n}", str(error)))
    if problems:
        raise TranscriptError(problems)

    return Transcript(
        path=str(path),
        id=file.id,
        title=file.title,
        covers=file.covers,
        kafka=file.kafka,
        coordinator=file.coordinator,
        brokers=file.brokers,
        config=dict(_config(file.config)),
        topics=file.topics,
        symbols=file.symbols,
        end_ms=file.end_ms,
        steps=tuple(steps),
    )


def _rules(index: _Index) -> ComparisonRules:
    """Return the rules of an index file.

    For each unordered list the index has a note, such as "by name" or "by group_id (4.1 only;
    ...)". DEFAULT_UNORDERED explains these notes.
    """
    return ComparisonRules(
        ignore=frozenset(index.ignore),
        unordered={
            path: note.removeprefix("by ").split(" ")[0] for path, note in index.unordered.items()
        },
        unordered_since_4=frozenset(
            path for path, note in index.unordered.items() if "(4.1 only" in note
        ),
        tolerance_ms=index.tolerance_ms,
    )


def _config(config: dict[str, bool | int | float | str]) -> Iterator[tuple[str, PlainValue]]:
    """Yield the recorded settings.

    The recorder may have written a whole number such as 500 as 500.0, which is read as a float. No
    setting of Kafka in a transcript is a float, so such numbers become integers again.
    """
    for name, value in config.items():
        yield name, int(value) if isinstance(value, float) else value


def _step(raw: msgspec.Raw, *, is_action: bool) -> Step:
    """Return the decoded step. Raises: msgspec.DecodeError, ValueError."""
    if is_action:
        return msgspec.json.decode(raw, type=ActionStep)
    step = msgspec.json.decode(raw, type=_RawRequest)
    return RequestStep(
        n=step.n,
        client=step.client,
        client_id=step.client if step.client_id is None else step.client_id,
        at_ms=step.at_ms,
        api=step.api,
        version=step.version,
        request=_message(step.request, "request"),
        answered_ms=step.answered_ms,
        conn=step.conn,
        broker=step.broker,
        answer_seq=step.answer_seq,
        response=None if step.response is None else _message(step.response, "response"),
        outcome=step.outcome,
    )


def _message(document: dict[str, object], path: str) -> PlainMessage:
    """Return the body of a message without the names of error codes.

    `path` is the place of the body in the step. Raises: ValueError, whose message names a field.
    """
    # If a body has a field `error_code`, the recorder has written the name of its value into the
    # field `error`. In any other body, a field `error` belongs to the message itself.
    has_error_name = "error_code" in document
    return {
        name: _value(value, f"{path}.{name}")
        for name, value in document.items()
        if not (has_error_name and name == "error")
    }


def _value(value: object, path: str) -> PlainValue:
    """Return a value of a body, with bytes in place of `{"hex": ...}`. Raises: ValueError."""
    if isinstance(value, dict):
        if set(value) != {"hex"}:
            return _message(value, path)
        try:
            return bytes.fromhex(value["hex"])
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"{path}: expected hexadecimal digits, got {value['hex']!r}"
            ) from error
    if isinstance(value, list):
        return [_value(item, f"{path}[{index}]") for index, item in enumerate(value)]
    if value is None or isinstance(value, bool | int | str):
        return value
    raise ValueError(f"{path}: a {type(value).__name__} is no value of a message: {value!r}")


def _problems_of(
    path: Path, step: Step, symbols: dict[str, Symbol], previous: Step | None
) -> Iterator[Problem]:
    """Yield the problems of a step. `previous` is the step before it in the file."""
    place = f"step {step.n}"
    if previous is not None and step.n <= previous.n:
        yield _problem(path, place, f"comes after step {previous.n}")
    if isinstance(step, ActionStep):
        return
    if (step.answered_ms is None) != (step.response is None):
        yield _problem(path, place, "`response` and `answered_ms` belong together")
    if step.response is None and step.outcome is None:
        yield _problem(path, place, "without a `response` it needs an `outcome`")
    # Before a request is sent, our ids are put in place of its symbols. So `symbols` needs them.
    for name in symbols_in(step.request):
        if name not in symbols:
            yield _problem(path, f"{place}: request", f"no symbol {name} in `symbols`")
    # If our brokers do not have this API or version, this is no error of the file. The replay
    # counts the request as not implemented.
    if is_known(step.api, step.version):
        try:
            check_request(step.api, step.version, _without_symbols(step.request))
        except NotAMessage as error:
            yield _problem(path, f"{place}: {step.api} v{step.version}", str(error))


def symbols_in(value: PlainValue) -> Iterator[str]:
    """Yield every symbol in a message."""
    if isinstance(value, str):
        yield from SYMBOL.findall(value)
    elif isinstance(value, dict):
        for item in value.values():
            yield from symbols_in(item)
    elif isinstance(value, list):
        for item in value:
            yield from symbols_in(item)


def _without_symbols(message: PlainMessage) -> PlainMessage:
    """Return the message with 0 in place of symbols that stand for producer ids.

    A producer id is a number, so a symbol in its place would have the wrong type in the check of
    the message. The recorded requests have producer ids only in their top-level fields. Member ids
    are texts, so their symbols may stay.
    """
    return {
        name: 0 if isinstance(value, str) and value.startswith("<producer:") else value
        for name, value in message.items()
    }


def _problem(path: Path, place: str, message: str) -> Problem:
    """Return the problem of the file `path`. A Problem calls the place in the file its `path`."""
    return Problem(file=str(path), line=None, path=place, message=message)


def _error(path: Path, place: str, message: str) -> TranscriptError:
    return TranscriptError((_problem(path, place, message),))
