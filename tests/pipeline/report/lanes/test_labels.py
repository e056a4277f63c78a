"""Labels of members in a report's charts.

Names of members are long, so the labels leave out the words that all names begin with: of
`consumer-orders-readers-0` and `consumer-orders-readers-11`, the labels are `readers-0` and
`readers-11`.
"""

import pytest

from pipeline.report.lanes.labels import common_prefix, group_prefix, prefix_note


@pytest.mark.parametrize(
    ("members", "prefix"),
    [
        pytest.param(
            ("consumer-orders-readers-0", "consumer-orders-readers-11"),
            "consumer-orders-",
            id="one group",
        ),
        pytest.param(("consumer-orders-readers-0",), "consumer-orders-", id="one member"),
        pytest.param(
            ("consumer-orders-readers-0", "consumer-orders-writers-0"),
            "consumer-",
            id="groups with a common first word",
        ),
        pytest.param(
            ("consumer-orders-readers-0", "consumer-payments-readers-0"),
            "consumer-",
            id="groups with a common last word",
        ),
        pytest.param(
            ("consumer-readers-0-1", "consumer-readers-3-1"), "consumer-", id="groups with numbers"
        ),
        pytest.param(("consumer-0", "consumer-1"), "", id="no word before the number"),
        pytest.param(("consumer-orders-readers-0", "broker-1"), "", id="a broker"),
        pytest.param((), "", id="no member"),
    ],
)
def test_common_prefix_keeps_the_distinguishing_part(members: tuple[str, ...], prefix: str) -> None:
    """`readers-0` is short and clear; the number alone, or a part of a word, would be unclear."""
    assert common_prefix(members) == prefix
    labels = [name.removeprefix(prefix) for name in members]
    assert len(set(labels)) == len(members)
    assert not any(label.isdigit() for label in labels)


def test_note_of_a_prefix_explains_it() -> None:
    """The note exists only if the labels leave a prefix out."""
    assert (
        prefix_note("consumer-orders-") == " Members are named without consumer-orders- in front."
    )
    assert prefix_note("") == ""


def test_group_prefix_leaves_out_the_only_group() -> None:
    """If there is only one group, its name says nothing, and the labels of its rows omit it."""
    assert group_prefix(["orders-readers", "orders-readers"]) == "orders-readers · "
    assert group_prefix(["a", "b"]) == ""
