"""The comparison of our answers with Kafka's: which differences it finds, and which it permits.

A recording has requests that were sent to a real Kafka, with their times, and Kafka's answers. The
requests are played against our cluster, and each answer is compared with the recorded one.

Kafka draws some ids at random, such as those of members, and so does our cluster. So a recording
has symbols such as `<member:1>` in their place. The comparison binds each symbol to the id that our
cluster has drawn.
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

# `unordered` has the lists whose order may differ: an API, or * for every API, a list of its
# answer, and the field that identifies an item of the list. Of these lists, `unordered_since_4` has
# the lists that only Kafka 4 shuffles.
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
    """Return the first difference between a recorded and an actual answer.

    `kafka` is the version of Kafka that was recorded.
    """
    return AnswerComparison(RULES, api, kafka, bindings or Bindings()).difference(expected, actual)


def step(
    number: int,
    *,
    answered_ms: float | None,
    outcome: str | None = None,
) -> RequestStep:
    """Return a recorded step: a request that was sent at 0 ms, and its answer.

    If the request got no answer, `answered_ms` is None, and `outcome` says how it ended.
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
    """Return what happened to a recorded request at our cluster.

    It was sent at the recorded time, and ended `waited_ms` later, or never (None). If it ended
    without an answer, `outcome` says how.
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
    """Return for each step that differs what differs: "time", "order", "no answer" and so on."""
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
    """RULES ignores `throttle_time_ms`, but no other field."""
    assert difference({"throttle_time_ms": 0}, {"throttle_time_ms": 5}) is None
    assert difference({"time_ms": 0}, {"time_ms": 5}) is not None


def test_symbol_equals_the_id_that_it_is_bound_to_and_no_other() -> None:
    """A wrong id is reported as the symbol that is bound to it, which says whose id it is."""
    bindings = Bindings()
    bindings.bind("<member:1>", "c1-aaa")
    bindings.bind("<member:2>", "c2-bbb")
    assert difference({"leader": "<member:1>"}, {"leader": "c1-aaa"}, bindings=bindings) is None
    found = difference({"leader": "<member:1>"}, {"leader": "c2-bbb"}, bindings=bindings)
    assert str(found) == 'answer leader: expected "<member:1>", came "<member:2>"'


def test_second_symbol_of_one_id_is_a_difference() -> None:
    """Kafka drew a second id here, but our cluster used the first one again.

    So two symbols are bound to one id, which must be reported. But `to_ours` still translates the
    second symbol, because later requests need an id.
    """
    bindings = Bindings()
    bindings.bind("<member:1>", "i1-aaa")
    bindings.bind("<member:2>", "i1-aaa")
    assert difference({"member_id": "<member:2>"}, {"member_id": "i1-aaa"}, bindings=bindings)
    assert bindings.to_ours("<member:2>") == "i1-aaa"


def test_symbol_without_an_id_is_a_difference() -> None:
    """The symbol is not bound to an id, so it is not known whether this id is the right one."""
    assert difference({"member_id": "<member:1>"}, {"member_id": "anything"}) is not None


def test_symbols_that_occur_only_in_lists_are_bound_there() -> None:
    """The order of the members may differ, and their symbols are not bound to ids yet.

    So the other fields of the items, here the metadata, show which symbol belongs to which id. Two
    symbols must not get the same id.
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

    same_id_twice: PlainMessage = {
        "members": [
            {"member_id": "a", "metadata": b"x"},
            {"member_id": "a", "metadata": b"y"},
        ]
    }
    new_bindings = Bindings(("<member:1>", "<member:2>"))
    assert difference(expected, same_id_twice, bindings=new_bindings) is not None


def test_unordered_list_is_compared_as_a_multiset() -> None:
    """The order may differ, but each item must occur as often as in the recording."""

    def members(*ids: str) -> PlainMessage:
        return {"members": [{"member_id": member_id} for member_id in ids]}

    assert difference(members("a", "b"), members("b", "a")) is None
    assert difference(members("a", "a"), members("a", "b")) is not None
    assert difference(members("a"), members("a", "a")) is not None
    assert difference(members("a", "b"), members("a")) is not None


def test_item_of_an_unordered_list_is_reported_by_its_key() -> None:
    """Partition 1 differs. The message has the partition's index in the recorded list, which is 1.

    In our list, the index of partition 1 is 0.
    """
    expected: PlainMessage = {
        "topics": [{"partitions": [{"partition_index": 0, "o": 1}, {"partition_index": 1, "o": 2}]}]
    }
    actual: PlainMessage = {
        "topics": [{"partitions": [{"partition_index": 1, "o": 3}, {"partition_index": 0, "o": 1}]}]
    }
    found = difference(expected, actual, api="OffsetFetch")
    assert str(found) == "answer topics[0].partitions[1].o: expected 2, came 3"


def test_list_that_only_kafka_4_shuffles_keeps_its_order_in_3() -> None:
    """RULES names one such list, `DeleteGroups.results`."""

    def results(*ids: str) -> PlainMessage:
        return {"results": [{"group_id": group_id} for group_id in ids]}

    expected, actual = results("a", "b"), results("b", "a")
    assert difference(expected, actual, api="DeleteGroups") is not None
    assert difference(expected, actual, api="DeleteGroups", kafka="4.1.0") is None


# The answer was recorded at 1 ms, and the tolerance is 150 ms: 151 ms are just permitted.
@pytest.mark.parametrize(("waited_ms", "differs"), [(1, False), (151, False), (152, True)])
def test_answer_later_than_the_tolerance_differs(waited_ms: float, differs: bool) -> None:
    """An answer may be later than the recorded one by the tolerance of RULES."""
    answered = played(step(1, answered_ms=1), waited_ms=waited_ms)
    assert what_differs(answered) == ({1: "time"} if differs else {})


def test_answer_that_comes_too_early_differs() -> None:
    """Our answer after 349 ms is 151 ms earlier than the recorded one, and the tolerance is 150."""
    assert what_differs(played(step(1, answered_ms=500), waited_ms=349)) == {1: "time"}


def test_missing_answer_differs() -> None:
    """Kafka answered after 1 ms, but our cluster never did."""
    assert what_differs(played(step(1, answered_ms=1), waited_ms=None)) == {1: "no answer"}


def test_disconnection_in_the_place_of_an_answer_differs() -> None:
    """Kafka answered; our broker closed the connection instead."""
    closed = played(step(1, answered_ms=1), waited_ms=1, outcome="disconnected")
    assert what_differs(closed) == {1: "no answer"}


def test_answer_where_kafka_gave_none_is_a_difference_while_the_recorder_listened() -> None:
    """The recorder waited 400 ms for an answer of Kafka. An answer after that was not recorded.

    If we answer after 399 ms, that differs, because the recorder would have seen such an answer of
    Kafka. If we answer after 551 ms, that is later than 400 ms and the tolerance of 150 ms, so it
    does not differ.
    """
    silent = step(1, answered_ms=None, outcome="no answer within 400 ms")
    assert what_differs(played(silent, waited_ms=None)) == {}
    assert what_differs(played(silent, waited_ms=399)) == {1: "answered"}
    assert what_differs(played(silent, waited_ms=551)) == {}


def test_refusal_is_no_disconnection() -> None:
    """A dead broker refuses a connection. A live one may close a connection without an answer."""
    refused = step(1, answered_ms=None, outcome="connection refused")
    assert what_differs(played(refused, waited_ms=0, outcome="connection refused")) == {}
    assert what_differs(played(refused, waited_ms=0, outcome="disconnected")) == {1: "ended"}
    assert what_differs(played(refused, waited_ms=None)) == {1: "ended"}


def test_answers_in_another_order_than_kafkas_differ() -> None:
    """Kafka answered at 100 ms and at 260 ms, and we answered at 249 ms and at 120 ms.

    Each of our answers is within the tolerance of 150 ms. But Kafka's answers are 160 ms apart, so
    their order counts, and ours came in the other order.
    """
    first = played(step(1, answered_ms=100), waited_ms=249)
    second = played(step(2, answered_ms=260), waited_ms=120)
    assert what_differs(first, second) == {2: "order"}


def test_answers_within_the_tolerance_of_each_other_may_change_places() -> None:
    """Kafka answered at 100 ms and at 240 ms. As they are only 140 ms apart, the order is free."""
    first = played(step(1, answered_ms=100), waited_ms=160)
    second = played(step(2, answered_ms=240), waited_ms=100)
    assert what_differs(first, second) == {}
