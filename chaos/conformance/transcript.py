"""Transcripts: files with exchanges recorded from real Kafka, and rules for comparing them.

tests/conformance/transcripts/README.md describes the format. This module reads the files, and
reports all their errors. A transcript is a list of steps: requests with Kafka's answers, and
actions on the cluster, such as the death of a broker.

Two things are changed when a file is read. Bytes, which JSON cannot contain, are written as
`{"hex": ...}` in the file, and become bytes. The names of error codes, which the recorder has added
for human readers, are dropped.
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
"""Symbol that the recorder put in place of an id that the broker generated: `<member:1>`."""
INDEX_ABOVE_MAX = 3
"""Number of folders above the transcripts that are searched for their index."""


class TranscriptError(Exception):
    """Transcripts that cannot be replayed, with all problems found; nothing was started."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


class Symbol(msgspec.Struct, frozen=True, kw_only=True):
    """One symbol.

    - `first`: the step whose answer gives the id; None if only lists contain the id.
    - `prefix`: the part of a member id before its UUID.
    - `client`: the client to which the broker gave the id.
    - `found`: "nested" if only lists contain the id.
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

    Units: milliseconds since the scenario's start, by the client's clock.
    - `n`: the number of the step in the file.
    - `conn`: the number of the client's connection.
    - `answer_seq`: the place of the answer in the order of all answers.
    - `outcome`: the end of a request without an answer. Then `answered_ms`, `answer_seq` and
      `response` are None.
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
    """One action on the cluster or on a client. Units: milliseconds, as for requests."""

    n: int
    action: str
    at_ms: float
    done_ms: float
    args: dict[str, object] = {}


Step = RequestStep | ActionStep


class Transcript(msgspec.Struct, frozen=True, kw_only=True):
    """One recorded scenario.

    - `covers`: ids of scenarios in section 10 of docs/kafka/BEHAVIOUR.md that it shows.
    - `kafka`: the version of the recorded Kafka.
    - `coordinator`: `scala` or `java`, the two implementations that Kafka has of a coordinator.
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
    """A file's content. Its steps are not decoded yet, so that each can have its own error."""

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
    """A request with bodies in JSON."""

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
    """The rules of an index file, as they are written."""

    # The values of these fields depend on the addresses and the load of the recorded cluster.
    ignore: tuple[str, ...] = ("throttle_time_ms", "host", "port")
    unordered: dict[str, str] = {}
    tolerance_ms: float = 150


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonRules:
    """Rules for comparing answers.

    - `ignore`: names of fields that are not compared.
    - `unordered`: lists without an order. The key is the path of the list (`Api.field`,
      `Api.field[].field`, or `*.field` for any API), the value the field that identifies an item.
    - `unordered_since_4`: the lists in `unordered` that still have an order in Kafka 3.9.
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
"""Unordered lists for recordings without an index file; this project's index has the same ones.

The first word after "by" is the field that identifies an item.
"""


def find_transcripts(directory: Path) -> tuple[Path, ...]:
    """Return every transcript below `directory`, sorted, or the file that `directory` is.

    Raises: TranscriptError if there is none.
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
    """Return the rules for the transcripts of a folder, from the nearest index at or above it.

    Raises: TranscriptError if the index cannot be read.
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
        kind = _Kind(n=index + 1)  # for the message if not even the step's number can be read
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
    """Return the rules of an index.

    For each list it has a note, such as "by name" or "by group_id (4.1 only; ...)".
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
    """Yield the settings, with whole numbers in place of floats, because no setting is a float."""
    for name, value in config.items():
        yield name, int(value) if isinstance(value, float) else value


def _step(raw: msgspec.Raw, *, is_action: bool) -> Step:
    """Return one step, decoded. Raises: msgspec.DecodeError, ValueError."""
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
    """Return a body without the names of error codes. Raises: ValueError naming a field."""
    # The recorder has written the name of an `error_code` into the field `error`. In a body without
    # an `error_code`, a field `error` belongs to the message itself.
    has_error_name = "error_code" in document
    return {
        name: _value(value, f"{path}.{name}")
        for name, value in document.items()
        if not (has_error_name and name == "error")
    }


def _value(value: object, path: str) -> PlainValue:
    """Return a value of a body, with `{"hex": ...}` as bytes. Raises: ValueError."""
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
    """Yield the problems of one step, which comes after the step `previous`."""
    place = f"step {step.n}"
    if previous is not None and step.n <= previous.n:
        yield _problem(path, place, f"comes after step {previous.n}")
    if isinstance(step, ActionStep):
        return
    if (step.answered_ms is None) != (step.response is None):
        yield _problem(path, place, "`response` and `answered_ms` belong together")
    if step.response is None and step.outcome is None:
        yield _problem(path, place, "without a `response` it needs an `outcome`")
    for name in symbols_in(step.request):
        if name not in symbols:
            yield _problem(path, f"{place}: request", f"no symbol {name} in `symbols`")
    # A request that this project does not have is no error of the file. The replay counts it as
    # not implemented.
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
    """Return the message with 0 for symbols of producer ids, so that its types can be checked."""
    return {
        name: 0 if isinstance(value, str) and value.startswith("<producer:") else value
        for name, value in message.items()
    }


def _problem(path: Path, place: str, message: str) -> Problem:
    return Problem(file=str(path), line=None, path=place, message=message)


def _error(path: Path, place: str, message: str) -> TranscriptError:
    return TranscriptError((_problem(path, place, message),))
