"""The comparison of answers: the differences that it finds, and those that it permits.

A recording of Kafka has requests, the times at which they were sent, and Kafka's answers. Our
cluster plays the requests; each of its answers is compared with the recorded one. Ids that Kafka
draws, such as a member's, are symbols in a recording (`<member:1>`); a comparison binds each symbol
to the id that our cluster drew.
"""

import pytest

from chaos.conformance.comparison import (
    AnswerComparison,
    Bindings,
    Difference,
    PlayedStep,
    compare,
)
from chaos.conformance.transcript import ComparisonRules, RequestStep
from protocol.wire.fields import PlainMessage

# `unordered` has the lists whose order may differ (`API.list`, * for every API), with the field
# that identifies an item. `unordered_since_4` has those of them that only Kafka 4 shuffles.
RULES = ComparisonRules(
    ignore=frozenset({"throttle_time_ms"}),
    unordered={
        "JoinGroup.members": "member_id",
        "DeleteGroups.results": "group_id",
        "*.partitions": "partition_index",
    },
    unordered_since_4=frozenset({"DeleteGroups.results"}),
    tolerance_ms=150,
)


def difference(
    expected: PlainMessage,
    actual: PlainMessage,
    *,
    api: str = "JoinGroup",
    bindings: Bindings | None = None,
    kafka: str = "3.9.1",
) -> Difference | None:
    """Return the first difference of an answer; `kafka` is the version that was recorded."""
    return AnswerComparison(RULES, api, kafka, bindings or Bindings()).difference(expected, actual)


def step(
    number: int,
    *,
    answered_ms: float | None,
    outcome: str | None = None,
) -> RequestStep:
    """Return a recorded step: a request that was sent at 0 ms, and its answer.

    `answered_ms` is None for a request without an answer; then `outcome` says how it ended.
    """
    return RequestStep(
        n=number,
        client="c1",
        client_id="c1",
        at_ms=0,
        api="Heartbeat",
        version=4,
        request={},
        answered_ms=answered_ms,
        answer_seq=None if answered_ms is None else number,
        response=None if answered_ms is None else {"error_code": 0},
        outcome=outcome,
    )


def played(
    recorded: RequestStep, *, waited_ms: float | None, outcome: str | None = None
) -> PlayedStep:
    """Return the step as our cluster played it: sent at the recorded time, ended `waited_ms` later.

    waited_ms: None means that the request never ended.
    outcome: how the request ended without an answer; None: with an answer, or not at all.
    """
    sent_us = round(recorded.at_ms * 1_000)
    return PlayedStep(
        step=recorded,
        sent_us=sent_us,
        ended_us=None if waited_ms is None else sent_us + round(waited_ms * 1_000),
        response=None if waited_ms is None or outcome is not None else {"error_code": 0},
        outcome=outcome,
    )


def what_differs(*steps: PlayedStep) -> dict[int, str]:
    """Return, by the number of its step, what differs: the time, the order, or the outcome."""
    differences = compare(steps, RULES, "3.9.1", Bindings())
    return {number: difference.what for number, difference in differences.items()}


def test_equal_answers_do_not_differ() -> None:
    assert difference({"error_code": 0, "leader": "a"}, {"error_code": 0, "leader": "a"}) is None


def test_wrong_error_code_is_reported_by_name() -> None:
    found = difference({"error_code": 25}, {"error_code": 27})
    assert str(found) == (
        "answer error_code: expected 25 UNKNOWN_MEMBER_ID, came 27 REBALANCE_IN_PROGRESS"
    )


@pytest.mark.parametrize(
    ("expected", "actual"),
    [
        ({"a": 0}, {"a": False}),
        ({"a": 1}, {"a": "1"}),
        ({"a": b"x"}, {"a": b"y"}),
        ({"a": None}, {"a": ""}),
        ({"a": []}, {"a": [1]}),
        ({"a": [1, 2]}, {"a": [2, 1]}),
        ({"a": 1}, {}),
        ({}, {"a": 1}),
        ({"a": {"b": 1}}, {"a": {"b": 2}}),
    ],
)
def test_other_values_types_lengths_and_fields_differ(
    expected: PlainMessage, actual: PlainMessage
) -> None:
    assert difference(expected, actual) is not None


def test_ignored_field_may_differ_and_only_that() -> None:
    """RULES has `throttle_time_ms` in `ignore`."""
    assert difference({"throttle_time_ms": 0}, {"throttle_time_ms": 5}) is None
    assert difference({"time_ms": 0}, {"time_ms": 5}) is not None


def test_symbol_equals_the_id_that_it_is_bound_to_and_no_other() -> None:
    """A wrong id is reported as the symbol that is bound to it: the symbol names the id's owner."""
    bindings = Bindings()
    bindings.bind("<member:1>", "c1-aaa")
    bindings.bind("<member:2>", "c2-bbb")
    assert difference({"leader": "<member:1>"}, {"leader": "c1-aaa"}, bindings=bindings) is None
    found = difference({"leader": "<member:1>"}, {"leader": "c2-bbb"}, bindings=bindings)
    assert str(found) == 'answer leader: expected "<member:1>", came "<member:2>"'


def test_second_symbol_of_one_id_is_a_difference() -> None:
    """Kafka gave a second id; our cluster gave the first one again, so two symbols have one id.

    `to_ours` still translates the second symbol, because later requests need an id.
    """
    bindings = Bindings()
    bindings.bind("<member:1>", "i1-aaa")
    bindings.bind("<member:2>", "i1-aaa")
    assert difference({"member_id": "<member:2>"}, {"member_id": "i1-aaa"}, bindings=bindings)
    assert bindings.to_ours("<member:2>") == "i1-aaa"


def test_symbol_without_an_id_is_a_difference() -> None:
    """Nothing has bound the symbol, so our id may be that of any member."""
    assert difference({"member_id": "<member:1>"}, {"member_id": "anything"}) is not None


def test_symbols_that_occur_only_in_lists_are_bound_there() -> None:
    """The order of the list may differ, and its symbols are not bound to ids yet.

    The other fields of the items (here metadata) show which symbol stands for which id. Two symbols
    cannot stand for the same id.
    """
    expected: PlainMessage = {
        "members": [
            {"member_id": "<member:1>", "metadata": b"x"},
            {"member_id": "<member:2>", "metadata": b"y"},
        ]
    }
    actual: PlainMessage = {
        "members": [
            {"member_id": "b", "metadata": b"y"},
            {"member_id": "a", "metadata": b"x"},
        ]
    }
    bindings = Bindings(("<member:1>", "<member:2>"))
    assert difference(expected, actual, bindings=bindings) is None
    assert bindings.to_ours(["<member:1>", "<member:2>"]) == ["a", "b"]

    twice: PlainMessage = {
        "members": [
            {"member_id": "a", "metadata": b"x"},
            {"member_id": "a", "metadata": b"y"},
        ]
    }
    again = Bindings(("<member:1>", "<member:2>"))
    assert difference(expected, twice, bindings=again) is not None


def test_unordered_list_is_compared_as_a_multiset() -> None:
    """The order may differ, but not the number of equal items."""

    def members(*ids: str) -> PlainMessage:
        return {"members": [{"member_id": member_id} for member_id in ids]}

    assert difference(members("a", "b"), members("b", "a")) is None
    assert difference(members("a", "a"), members("a", "b")) is not None
    assert difference(members("a"), members("a", "a")) is not None
    assert difference(members("a", "b"), members("a")) is not None


def test_item_of_an_unordered_list_is_reported_by_its_key() -> None:
    """Partition 1 differs; the message has its index in the recorded list, not in our list."""
    expected: PlainMessage = {
        "topics": [{"partitions": [{"partition_index": 0, "o": 1}, {"partition_index": 1, "o": 2}]}]
    }
    actual: PlainMessage = {
        "topics": [{"partitions": [{"partition_index": 1, "o": 3}, {"partition_index": 0, "o": 1}]}]
    }
    found = difference(expected, actual, api="OffsetFetch")
    assert str(found) == "answer topics[0].partitions[1].o: expected 2, came 3"


def test_list_that_only_kafka_4_shuffles_keeps_its_order_in_3() -> None:
    """RULES has `DeleteGroups.results` in `unordered_since_4`."""

    def results(*ids: str) -> PlainMessage:
        return {"results": [{"group_id": group_id} for group_id in ids]}

    expected, actual = results("a", "b"), results("b", "a")
    assert difference(expected, actual, api="DeleteGroups") is not None
    assert difference(expected, actual, api="DeleteGroups", kafka="4.1.0") is None


# 151 = 1 + the tolerance of 150.
@pytest.mark.parametrize(("waited_ms", "differs"), [(1, False), (151, False), (152, True)])
def test_answer_later_than_the_tolerance_differs(waited_ms: float, differs: bool) -> None:
    """The recorded answer came after 1 ms; the tolerance of RULES is 150 ms."""
    answered = played(step(1, answered_ms=1), waited_ms=waited_ms)
    assert what_differs(answered) == ({1: "time"} if differs else {})


def test_answer_that_comes_too_early_differs() -> None:
    """349 ms are 151 ms less than the recorded 500 ms."""
    assert what_differs(played(step(1, answered_ms=500), waited_ms=349)) == {1: "time"}


def test_missing_answer_differs() -> None:
    """Kafka answered after 1 ms, our cluster never."""
    assert what_differs(played(step(1, answered_ms=1), waited_ms=None)) == {1: "no answer"}


def test_disconnection_in_the_place_of_an_answer_differs() -> None:
    """Kafka answered; our broker closed the connection instead."""
    closed = played(step(1, answered_ms=1), waited_ms=1, outcome="disconnected")
    assert what_differs(closed) == {1: "no answer"}


def test_answer_where_kafka_gave_none_is_a_difference_while_the_recorder_listened() -> None:
    """The recorder listened for 400 ms: Kafka may have answered later.

    Our answer at 399 ms differs, because the recorder would have seen such an answer. Our answer at
    551 ms does not: it is later than 400 ms plus the tolerance of 150 ms.
    """
    silent = step(1, answered_ms=None, outcome="no answer within 400 ms")
    assert what_differs(played(silent, waited_ms=None)) == {}
    assert what_differs(played(silent, waited_ms=399)) == {1: "answered"}
    assert what_differs(played(silent, waited_ms=551)) == {}


def test_refusal_is_no_disconnection() -> None:
    """A dead broker refuses a connection; a live broker may close one without an answer."""
    refused = step(1, answered_ms=None, outcome="connection refused")
    assert what_differs(played(refused, waited_ms=0, outcome="connection refused")) == {}
    assert what_differs(played(refused, waited_ms=0, outcome="disconnected")) == {1: "ended"}
    assert what_differs(played(refused, waited_ms=None)) == {1: "ended"}


def test_answers_in_another_order_than_kafkas_differ() -> None:
    """Both answers are within the tolerance of their own times.

    Kafka answered at 100 ms and 260 ms, more than the tolerance apart; we answered at 249 ms and
    120 ms, in the other order.
    """
    first = played(step(1, answered_ms=100), waited_ms=249)
    second = played(step(2, answered_ms=260), waited_ms=120)
    assert what_differs(first, second) == {2: "order"}


def test_answers_within_the_tolerance_of_each_other_may_change_places() -> None:
    """Kafka answered at 100 ms and 240 ms, 140 ms apart."""
    first = played(step(1, answered_ms=100), waited_ms=160)
    second = played(step(2, answered_ms=240), waited_ms=100)
    assert what_differs(first, second) == {}
