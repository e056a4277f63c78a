"""The creation of a topic: which errors fit the order, and which rows are its effect.

An order is a request of an administrator. The order of these tests asks the controller of a cluster
with three brokers to create the topic `t`. The controller may refuse the order with an error, and
some errors do not fit the order. If it carries out the order, certain rows must be in the trace.

"Planted bug" in a docstring names a bug that the test would find.
"""

from collections.abc import Sequence

import pytest

from chaos.checkers.evidence.orders.topic_creations import TopicCreation
from protocol.causes import TOPIC_CREATED
from protocol.trace import TraceKind
from tests.support.builders.rows import Rows

CONTROLLER = "controller-100"
BROKERS = 3
"""The number of brokers that can certainly get a replica."""


def order(
    *, partitions: int = 1, replication_factor: int = 3, must_succeed: bool = True
) -> TopicCreation:
    """Return the order to create a topic that does not exist yet.

    `must_succeed` is False if something is broken, so that the order may fail.
    """
    rows = Rows()
    rows.fault(
        20,
        CONTROLLER,
        fault="create_topic",
        topic="t",
        partitions=[f"t-{index}" for index in range(partitions)],
        replication_factor=replication_factor,
    )
    return TopicCreation(rows.rows[0], must_succeed=must_succeed, exists=False)


def missing(
    creation: TopicCreation,
    *created: tuple[str, Sequence[int], str],
    reason: str = TOPIC_CREATED,
    is_deleted: bool = False,
) -> str | None:
    """Return which effect of the order is missing after some elections, or None.

    `created` has the partition, the ISR and the leader of each election.
    """
    rows = Rows()
    for partition, isr, leader in created:
        rows.add(
            21,
            CONTROLLER,
            TraceKind.LEADER_ELECTED,
            partition=partition,
            peer=leader,
            detail={"isr": list(isr), "reason": reason},
        )
    if is_deleted:
        rows.add(22, CONTROLLER, TraceKind.TOPIC_DELETED, detail={"topic": "t", "partitions": 1})
    for row in rows.rows:
        creation.observe(row)
    found = creation.find_missing()
    return None if found is None else found[0]  # the sentence, without the row that proves it


@pytest.mark.parametrize(
    ("created", "what"),
    [
        ([("t-0", (0, 1, 2), "broker-0"), ("t-1", (1, 2, 0), "broker-1")], None),
        ([("t-0", (0, 1, 2), "broker-0")], "its partitions are t-0 instead of t-0, t-1"),
        ([("u-0", (0, 1, 2), "broker-0")], "its partitions are none instead of t-0, t-1"),
        (
            [("t-0", (0, 1, 2), "broker-0"), ("t-1", (1, 2), "broker-1")],
            "t-1 begins with the ISR [1, 2]",
        ),
        (
            [("t-0", (0, 1, 2), "broker-0"), ("t-1", (1, 1, 2), "broker-1")],
            "t-1 begins with the ISR [1, 1, 2]",
        ),
        (
            [("t-0", (0, 1, 2), "broker-0"), ("t-1", (1, 2, 0), "")],
            "t-1 begins with the leader none",
        ),
    ],
)
def test_effect_is_each_partition_with_its_replicas_and_a_leader(
    created: list[tuple[str, Sequence[int], str]], what: str | None
) -> None:
    """While nothing is broken, a new partition has all replicas in its ISR, and a leader.

    The order asks for the partitions t-0 and t-1 with three replicas each.
    """
    assert missing(order(partitions=2), *created) == what


def test_replicas_may_be_out_of_the_isr_while_something_is_broken() -> None:
    """A replica may be on a broker that the controller counts as dead. But one replica must lead.

    The order asks for three replicas, so an ISR of four is wrong in any case.
    """
    for isr, is_right in (((0, 1), True), ((), False), ((0, 1, 2, 3), False)):
        creation = order(must_succeed=False)
        assert (missing(creation, ("t-0", isr, "broker-0")) is None) is is_right


def test_later_election_and_deletion_are_no_part_of_the_effect() -> None:
    """Only the first election of a partition, with the reason TOPIC_CREATED, shows its creation.

    If the topic is deleted soon, nothing is missing.
    """
    created = ("t-0", (0, 1, 2), "broker-0")
    assert missing(order(), created, ("t-0", (1, 2), "broker-1")) is None
    assert missing(order(), created, reason="broker fenced") is not None
    assert missing(order(), is_deleted=True) is None


@pytest.mark.parametrize(
    ("error", "fitting", "unfitting"),
    [
        ("INVALID_PARTITIONS", {"partitions": 0}, {"partitions": 1}),
        ("INVALID_REPLICATION_FACTOR", {"replication_factor": 4}, {"replication_factor": 3}),
        ("INVALID_REPLICATION_FACTOR", {"replication_factor": 0}, {"replication_factor": 1}),
    ],
)
def test_error_must_fit_the_numbers(
    error: str, fitting: dict[str, int], unfitting: dict[str, int]
) -> None:
    """An error is allowed only with numbers that are really wrong.

    Planted bug: the controller refuses as many replicas as there are brokers, three.
    """
    assert order(**fitting).misfits([error], BROKERS) == []  # type: ignore[arg-type]
    assert order(**unfitting).misfits([error], BROKERS) == [error]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("error", "is_found"),
    [
        ("INVALID_REPLICATION_FACTOR", False),
        ("TOPIC_ALREADY_EXISTS", True),
        ("INVALID_PARTITIONS", True),
        ("NONE", True),
        ("UNKNOWN_SERVER_ERROR", True),
        ("INVALID_REQUEST", False),
    ],
)
def test_errors_that_no_fault_explains_are_found_while_something_is_broken(
    error: str, *, is_found: bool
) -> None:
    """The numbers of the order are valid, so most errors have no explanation.

    INVALID_REPLICATION_FACTOR has an explanation: if all brokers are fenced, every replication
    factor is refused. INVALID_REQUEST stands for all other errors, which a fault may cause.
    """
    assert bool(order(must_succeed=False).misfits([error], BROKERS)) is is_found


def test_topic_exists_once_a_request_of_the_order_has_created_it() -> None:
    """The first request of an order may create the topic, and its answer may be lost.

    Then the next request is refused with TOPIC_ALREADY_EXISTS, which fits the order.
    """
    creation = order()
    assert creation.misfits(["TOPIC_ALREADY_EXISTS"], BROKERS) == ["TOPIC_ALREADY_EXISTS"]
    assert missing(creation, ("t-0", (0, 1, 2), "broker-0")) is None
    assert creation.misfits(["TOPIC_ALREADY_EXISTS"], BROKERS) == []
