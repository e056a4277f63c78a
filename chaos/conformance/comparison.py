"""Comparison of our brokers' answers with Kafka's, step by step.

A transcript is a recording of requests to a real Kafka cluster, with Kafka's answers. The requests
were sent to our brokers, and our answers should be equal to Kafka's answers. The answers are
compared field by field, with three exceptions:

1. Brokers generate ids, such as member ids, which are different in each run. So the recording has a
   symbol in place of such an id. When our answer has an id at the place of a symbol for the first
   time, the symbol is bound to our id (`Bindings`). From then on, the symbol must always stand for
   this id.
2. If Kafka does not define the order of a list, our list may have another order.
3. The times of the answers may differ by a tolerance. If two answers of Kafka are farther apart
   than the tolerance, our two answers must come in the same order.

This module does not know how a transcript is played.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import msgspec

from chaos.conformance.transcript import SYMBOL, ComparisonRules, RequestStep, symbols_in
from protocol.errors import ErrorCode
from protocol.wire.fields import PlainMessage, PlainValue

REFUSED = "connection refused"
DISCONNECTED = "disconnected"
CLIENT_CLOSED = "client closed the connection"
NO_ANSWER = "no answer"
"""Outcomes of requests that got no answer.

In the case of NO_ANSWER the recorder also writes how long it has waited, as in "no answer within
500 ms".
"""

KAFKA_4 = "4."
"""Beginning of the version numbers of Kafka 4, in which some lists have no order any more."""
US_PER_MS = 1_000


# Kinds of differences. The kind MISSING has the same text as NO_ANSWER. This has no meaning,
# because NO_ANSWER is no kind of difference, but an outcome.
ANSWER = "answer"  # a field of the answer
TIME = "time"  # the time of the answer
ORDER = "order"  # the order of two answers
MISSING = "no answer"  # Kafka answered, our broker did not
UNEXPECTED = "answered"  # our broker answered, Kafka did not
ENDED = "ended"  # neither answered, but the requests ended in different ways
NOT_IMPLEMENTED = "not implemented"  # we do not have the API or its version
NOT_CARRIED_OUT = "not carried out"  # an action failed
BROKEN = "broken"  # a bug of this project ended the replay
WHAT_DIFFERS = (
    ANSWER,
    TIME,
    ORDER,
    MISSING,
    UNEXPECTED,
    ENDED,
    NOT_IMPLEMENTED,
    NOT_CARRIED_OUT,
    BROKEN,
)
"""All kinds of differences."""


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """A difference between a step in our cluster and the same step in Kafka.

    - `what`: the kind of the difference, one of WHAT_DIFFERS.
    - `field`: for ANSWER the path of the field, such as `members[0].metadata`. For NOT_IMPLEMENTED
      the API. For NOT_CARRIED_OUT and BROKEN the reason. For all other kinds "".
    - `expected`, `came`: words for what Kafka did, and for what our cluster did.
    """

    what: str
    field: str = ""
    expected: str = ""
    came: str = ""

    def __str__(self) -> str:
        if self.what in {NOT_IMPLEMENTED, NOT_CARRIED_OUT, BROKEN}:
            return f"{self.what}: {self.field}"
        place = f"{self.what} {self.field}".rstrip()
        if not self.expected and not self.came:
            return place
        return f"{place}: expected {self.expected}, came {self.came}"


@dataclass(slots=True, kw_only=True)
class PlayedStep:
    """One request of a transcript, and what happened to it in our cluster.

    - `step`: the request in the transcript, with Kafka's answer.
    - `sent_us`, `ended_us`: the times of the request and of its end, on the run's clock.
    - `response`: our answer; None until it comes, or if none comes.
    - `outcome`: if the request ended without an answer, a text such as REFUSED.
    - `not_implemented`: if the request could not be sent, its API and version.
    """

    step: RequestStep
    sent_us: int | None = None
    ended_us: int | None = None
    response: PlainMessage | None = None
    outcome: str | None = None
    not_implemented: str | None = None

    @property
    def is_over(self) -> bool:
        """True once the request has ended, or if it was never sent."""
        return self.ended_us is not None or self.not_implemented is not None


class Bindings:
    """Remembers which of our ids stands for each symbol of a transcript, such as `<member:1>`.

    Usually an answer gives a new id to the client that asked for it. The replayer then binds the
    symbol to this id.

    Other ids occur only in lists. For example, the answer to DescribeGroups has the ids of all
    members. The symbols of such ids are called nested. They are bound when such a list is compared
    for the first time.
    """

    def __init__(self, nested: Iterable[str] = ()) -> None:
        self._nested = frozenset(nested)
        self._ours: dict[str, PlainValue] = {}
        """Our id for each symbol that is bound."""
        self._symbols: dict[str | int, str] = {}
        """For each of our ids, the first symbol that was bound to it."""

    def bind(self, symbol: str, ours: str | int) -> None:
        """Bind `symbol` to the id `ours`, unless the symbol is bound already.

        An id keeps the first symbol that was bound to it. Suppose that our broker gives the same id
        twice by mistake, where Kafka gave two different ids. Then our id is equal only to the first
        of the two symbols. Every answer with the second symbol counts as different, so the mistake
        is noticed.
        """
        if symbol not in self._ours:
            self._ours[symbol] = ours
            self._symbols.setdefault(ours, symbol)

    def has_unbound(self, value: PlainValue) -> bool:
        """Return True if a message contains a nested symbol that is not bound yet."""
        return any(name in self._nested and name not in self._ours for name in symbols_in(value))

    def is_equal(self, symbol: str, came: PlainValue) -> bool:
        """Return True if `came` is the id that is bound to the symbol.

        If the symbol is nested and not bound yet, and `came` is a new id, they are bound to each
        other now.
        """
        # An id is a text or a number. In Python a bool is an int, too, but it is no id.
        if not isinstance(came, str | int) or isinstance(came, bool):
            return False
        if symbol not in self._ours and symbol in self._nested and came not in self._symbols:
            self.bind(symbol, came)
        return self._symbols.get(came) == symbol

    def snapshot(self) -> tuple[dict[str, PlainValue], dict[str | int, str]]:
        """Return the current bindings, for `restore`."""
        return dict(self._ours), dict(self._symbols)

    def restore(self, bound: tuple[dict[str, PlainValue], dict[str | int, str]]) -> None:
        """Replace the bindings by the bindings in a snapshot."""
        self._ours, self._symbols = bound

    def to_ours(self, value: PlainValue) -> PlainValue:
        """Return a message with our ids in place of symbols. Unbound symbols stay."""
        if isinstance(value, str):
            if value in self._ours:
                return self._ours[value]
            return SYMBOL.sub(lambda match: str(self._ours.get(match[0], match[0])), value)
        if isinstance(value, dict):
            return {name: self.to_ours(item) for name, item in value.items()}
        if isinstance(value, list):
            return [self.to_ours(item) for item in value]
        return value

    def to_symbols(self, value: PlainValue) -> PlainValue:
        """Return a message with symbols in place of our ids, for the text of a difference."""
        if isinstance(value, dict):
            return {name: self.to_symbols(item) for name, item in value.items()}
        if isinstance(value, list):
            return [self.to_symbols(item) for item in value]
        return self._symbols.get(value, value) if isinstance(value, str) else value


class AnswerComparison:
    """Compares our answers with Kafka's, for one API of one transcript."""

    def __init__(
        self, rules: ComparisonRules, api: str, kafka_version: str, bindings: Bindings
    ) -> None:
        self._rules = rules
        self._api = api
        # Some lists have an order in Kafka 3.9, but none in Kafka 4.
        self._ordered_lists = (
            frozenset() if kafka_version.startswith(KAFKA_4) else rules.unordered_since_4
        )
        self._bindings = bindings

    def difference(self, expected: PlainMessage, came: PlainMessage) -> Difference | None:
        """Return the first difference between two answers, or None.

        If Kafka's answer has nested symbols that are not bound yet, they are bound to our ids at
        the same places.
        """
        # The last two arguments of the following methods name the same place in two forms. `path`
        # is for people, such as `members[0].metadata`. `list_path` is for a look-up in the rules,
        # which are the same for all items of a list. It is `JoinGroup.members[].metadata` for the
        # same place.
        return self._compare_message(expected, came, "", self._api)

    def _compare_message(
        self, expected: PlainMessage, came: PlainMessage, path: str, list_path: str
    ) -> Difference | None:
        # First come the fields of Kafka's message, then the fields that only our message has.
        for name in (*expected, *(name for name in came if name not in expected)):
            if name in self._rules.ignore:
                continue
            field = f"{path}.{name}" if path else name
            if name not in came:
                return Difference(what=ANSWER, field=field, expected="the field", came="nothing")
            if name not in expected:
                return Difference(what=ANSWER, field=field, expected="no such field", came="it")
            difference = self._compare_value(
                expected[name], came[name], field, f"{list_path}.{name}"
            )
            if difference is not None:
                return difference
        return None

    def _compare_value(
        self, expected: PlainValue, came: PlainValue, path: str, list_path: str
    ) -> Difference | None:
        if isinstance(expected, dict) and isinstance(came, dict):
            return self._compare_message(expected, came, path, list_path)
        if isinstance(expected, list) and isinstance(came, list):
            key = self._unordered_by(list_path)
            if key is not None:
                return self._compare_as_set(expected, came, path, list_path, key)
            return self._compare_list(expected, came, path, list_path)
        if isinstance(expected, str) and SYMBOL.fullmatch(expected):
            is_equal = self._bindings.is_equal(expected, came)
        else:
            # In Python True is equal to 1, and False to 0. So the types are compared, too.
            is_equal = type(expected) is type(came) and expected == came
        return None if is_equal else self._value_difference(path, expected, came)

    def _compare_list(
        self, expected: list[PlainValue], came: list[PlainValue], path: str, list_path: str
    ) -> Difference | None:
        # The items are compared before the lengths, because a reader learns more from the first
        # different item than from two whole lists.
        for index, (item, our_item) in enumerate(zip(expected, came, strict=False)):
            difference = self._compare_value(item, our_item, f"{path}[{index}]", f"{list_path}[]")
            if difference is not None:
                return difference
        if len(expected) != len(came):
            return self._value_difference(path, expected, came)
        return None

    def _compare_as_set(
        self,
        expected: list[PlainValue],
        came: list[PlainValue],
        path: str,
        list_path: str,
        key: str,
    ) -> Difference | None:
        """Compare two lists whose order does not matter.

        `key` is the name of the field that identifies an item.
        """
        # Each of Kafka's items (`expected`) takes an equal item away from ours. If there is no
        # equal item, Kafka's item is added to `unmatched`.
        unmatched_ours = list(came)
        unmatched: list[tuple[int, PlainValue]] = []  # with their indexes
        has_unbound = self._bindings.has_unbound
        # An unbound symbol is equal to each new id of ours. So an item with an unbound symbol may
        # match several of our items. Such items come last, so that they do not take away the only
        # match of another item.
        for index, item in sorted(enumerate(expected), key=lambda entry: has_unbound(entry[1])):
            match = self._position_of_equal(item, unmatched_ours, list_path)
            if match is None:
                unmatched.append((index, item))
            else:
                unmatched_ours.pop(match)
        if unmatched:
            index, item = min(unmatched, key=lambda entry: entry[0])
            place = f"{path}[{index}]"
            # If our list has an item with the same key, the result is the difference between the
            # two items.
            same_key_item = next(
                (other for other in unmatched_ours if self._has_same_key(item, other, key)), None
            )
            if same_key_item is None:
                return self._value_difference(place, item, unmatched_ours)
            return self._compare_value(item, same_key_item, place, f"{list_path}[]")
        return self._value_difference(path, expected, came) if unmatched_ours else None

    def _position_of_equal(
        self, item: PlainValue, among: list[PlainValue], list_path: str
    ) -> int | None:
        """Return the position of the first item that is equal to `item`, or None."""
        for position, other in enumerate(among):
            # If the items differ, the bindings that the comparison has made are undone.
            bound = self._bindings.snapshot()
            if self._compare_value(item, other, "", f"{list_path}[]") is None:
                return position
            self._bindings.restore(bound)
        return None

    def _has_same_key(self, item: PlainValue, other: PlainValue, key: str) -> bool:
        if not isinstance(item, dict) or not isinstance(other, dict):
            return False
        return self._bindings.to_ours(item.get(key)) == other.get(key)

    def _unordered_by(self, list_path: str) -> str | None:
        """Return the field that identifies an item of a list; None if the list has an order."""
        unordered = self._rules.unordered
        if list_path in self._ordered_lists:
            return None
        any_api = f"*.{list_path.rsplit('.', maxsplit=1)[-1]}"
        return unordered.get(list_path, unordered.get(any_api))

    def _value_difference(self, path: str, expected: PlainValue, came: PlainValue) -> Difference:
        return Difference(
            what=ANSWER,
            field=path,
            expected=_text_of(expected, path),
            came=_text_of(self._bindings.to_symbols(came), path),
        )


def compare(
    played: Sequence[PlayedStep], rules: ComparisonRules, kafka_version: str, bindings: Bindings
) -> dict[int, Difference]:
    """Return the first difference of each step that differs, by the step's number.

    The steps are compared in the order of Kafka's answers, because the comparison of an answer may
    bind nested symbols, and the comparisons of later answers need these bindings.
    """
    differences: dict[int, Difference] = {}
    for step in _as_answered(played):
        difference = _difference(step, rules, kafka_version, bindings)
        if difference is not None:
            differences[step.step.n] = difference
    for step in _out_of_order(played, rules.tolerance_ms):
        # A step has at most one difference. `setdefault` keeps the difference that was found above,
        # because a wrong answer says more than a wrong order.
        differences.setdefault(step.step.n, Difference(what=ORDER, **_order_of(step, played)))
    return differences


def _as_answered(played: Sequence[PlayedStep]) -> list[PlayedStep]:
    """Return the steps in the order of Kafka's answers; steps without an answer come last."""
    # `answer_seq` is at most the number of steps. If a step has no answer, the sum of this number
    # and the step's own number is used instead, so that the step comes after all others.
    return sorted(
        played, key=lambda request: request.step.answer_seq or len(played) + request.step.n
    )


def _difference(
    played: PlayedStep, rules: ComparisonRules, kafka_version: str, bindings: Bindings
) -> Difference | None:
    """Return the first difference of one step, except for the order of answers."""
    step = played.step
    if played.not_implemented is not None:
        return Difference(what=NOT_IMPLEMENTED, field=played.not_implemented)
    # `read_transcript` has checked this: if `response` is None, `answered_ms` is None, too.
    if step.response is None or step.answered_ms is None:
        return _without_answer(played, rules.tolerance_ms)
    if played.response is None:
        came = played.outcome or NO_ANSWER
        waited = f"an answer after {step.answered_ms - step.at_ms:.0f} ms"
        return Difference(what=MISSING, expected=waited, came=came)

    comparison = AnswerComparison(rules, step.api, kafka_version, bindings)
    difference = comparison.difference(step.response, played.response)
    if difference is not None:
        return difference

    expected_ms, came_ms = step.answered_ms - step.at_ms, _waited_ms(played)
    if abs(expected_ms - came_ms) > rules.tolerance_ms:
        return Difference(
            what=TIME,
            expected=f"an answer after {expected_ms:.0f} ms",
            came=f"after {came_ms:.0f} ms",
        )
    return None


def _without_answer(played: PlayedStep, tolerance_ms: float) -> Difference | None:
    """Return the difference of a step that Kafka did not answer, or None.

    In the case of NO_ANSWER the recorder has stopped waiting after some time, and Kafka may have
    answered later. So if our broker answers after this time, this is no difference.
    """
    expected = played.step.outcome or NO_ANSWER
    if expected.startswith(NO_ANSWER):
        wait_ms = wait_of(expected)
        is_equal = played.outcome is None and (
            played.response is None
            or (wait_ms is not None and _waited_ms(played) > wait_ms + tolerance_ms)
        )
    else:
        is_equal = played.outcome == expected
    if is_equal:
        return None
    if played.response is not None:
        came = f"an answer after {_waited_ms(played):.0f} ms"
        return Difference(what=UNEXPECTED, expected=expected, came=came)
    return Difference(what=ENDED, expected=expected, came=played.outcome or NO_ANSWER)


def wait_of(outcome: str) -> float | None:
    """Return N of the outcome "no answer within N ms", or None for another outcome."""
    match = re.search(r"within (\d+(?:\.\d+)?) ms", outcome)
    return None if match is None else float(match[1])


def _waited_ms(played: PlayedStep) -> float:
    return ((played.ended_us or 0) - (played.sent_us or 0)) / US_PER_MS


def _out_of_order(played: Sequence[PlayedStep], tolerance_ms: float) -> Iterator[PlayedStep]:
    """Yield the steps that our broker answered too early in comparison with other steps.

    For example, if Kafka answered step A at 100 ms and step B at 900 ms, but our broker answered B
    first, our answer to B is too early. The order of two answers matters only if Kafka's answers
    are farther apart than the tolerance.
    """
    answered = sorted(
        (
            (request.step.answered_ms, request.ended_us, request)
            for request in played
            if request.step.answered_ms is not None
            and request.response is not None
            and request.ended_us is not None
        ),
        key=lambda entry: entry[0],
    )
    # `earlier` is the number of steps, from the first in `answered`, that Kafka answered more than
    # the tolerance before the current step. `latest_us` is the time of our latest answer to these
    # steps.
    latest_us = -1
    earlier = 0
    for answered_ms, ended_us, request in answered:
        while answered[earlier][0] < answered_ms - tolerance_ms:
            latest_us = max(latest_us, answered[earlier][1])
            earlier += 1
        if ended_us < latest_us:
            yield request


def _order_of(early: PlayedStep, played: Sequence[PlayedStep]) -> dict[str, str]:
    """Return the texts of a difference in the order of answers.

    They name the steps whose answers should have come before the answer to `early`.
    """
    overtaken = [
        request.step.n
        for request in played
        if request.response is not None
        and (request.step.answer_seq or 0) < (early.step.answer_seq or 0)
        and (request.ended_us or 0) > (early.ended_us or 0)
    ]
    names = ", ".join(str(n) for n in overtaken)
    return {"expected": f"its answer after that of step {names}", "came": "before it"}


def _text_of(value: PlainValue, path: str) -> str:
    """Return a value for people: an error code with its name, any other value as JSON.

    JSON has no bytes, so a value that contains bytes is written as in Python.
    """
    if path.rsplit(".", maxsplit=1)[-1] == "error_code" and isinstance(value, int):
        known = value in ErrorCode.__members__.values()
        return f"{value} {ErrorCode(value).name}" if known else str(value)
    text = msgspec.json.encode(value, enc_hook=None) if not _has_bytes(value) else None
    return repr(value) if text is None else text.decode()


def _has_bytes(value: PlainValue) -> bool:
    if isinstance(value, dict):
        return any(_has_bytes(item) for item in value.values())
    if isinstance(value, list):
        return any(_has_bytes(item) for item in value)
    return isinstance(value, bytes)
