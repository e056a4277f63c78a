"""Faults that an administrator causes: members removed, a group deleted, offsets deleted or reset.

For example, the fault `remove_members` removes all members of a group. The lab sends a request to
the group's coordinator, as Kafka's AdminClient does. We call this request an order. If the
coordinator refuses the whole order, or does not answer, the fault has not hit anything. It is
called a miss.

The tests need no cluster. `run = Injecting(fault)` injects a fault into a runtime without nodes, in
which broker-0 coordinates the group `readers`:

- `run.inject()` returns the entry that the journal of the run has about the fault.
- `run.runtime.acts` lists what the fault did to the cluster, as text: "delete_group readers".
- `run.runtime.admin_answer` is what the coordinator answers to the order.
"""

from typing import Any

import pytest

from chaos.experiment.rules.all_rules import errors
from cluster.client.admin.orders import GroupOrderRefused, GroupOrderUnanswered
from protocol.trace import TraceKind
from results_schema.journal import FaultOutcome
from tests.support.builders.experiments import experiment
from tests.support.builders.injecting import Injecting

ORDERS = ("remove_members", "delete_group", "delete_offsets", "reset_offsets")


def order(fault: str, **args: str | bool) -> dict[str, Any]:
    """Return the fault `fault` as an experiment file has it, about the group `readers`."""
    return {"at": "1s", "fault": fault, "target": "coordinator-of(readers)", "args": args}


@pytest.mark.parametrize(
    ("fault", "act"),
    [
        (order("remove_members"), "remove_members readers"),
        (order("delete_group"), "delete_group readers"),
        (order("delete_offsets"), "delete_offsets readers ('orders',)"),
        (order("delete_offsets", topic="orders"), "delete_offsets readers ('orders',)"),
        (order("reset_offsets"), "reset_offsets readers ('orders',) earliest"),
        (order("reset_offsets", to="latest"), "reset_offsets readers ('orders',) latest"),
    ],
)
def test_order_applies_to_the_group_of_the_named_coordinator(
    fault: dict[str, Any], act: str
) -> None:
    """An order about offsets is about all topics of the group, unless it names a topic.

    By default `reset_offsets` resets to the earliest offset.
    """
    run = Injecting(fault)

    entry = run.inject()

    assert run.runtime.acts == [act]
    assert entry.outcome is FaultOutcome.HIT
    assert entry.node == "broker-0"


@pytest.mark.parametrize("name", ORDERS)
def test_order_is_momentary_and_affects_only_its_group(name: str) -> None:
    """An order is over at once, so it is momentary: there is nothing to undo.

    The row of the fault names only the group of the order, and no other group of this coordinator.
    It also says whether all members stay, which only `remove_members` changes.
    """
    run = Injecting(order(name))

    entry = run.inject()
    run.heal_everything()

    assert not entry.in_force
    assert [kind for kind, _, _ in run.traced()] == [TraceKind.FAULT_INJECTED]
    detail = run.detail_of(TraceKind.FAULT_INJECTED)
    assert (detail["groups"], detail["partitions"]) == (["readers"], [])
    assert detail["momentary"] is True
    assert detail["members_survive"] is (name != "remove_members")


@pytest.mark.parametrize(
    ("answer", "reason", "error"),
    [
        (
            GroupOrderRefused("readers: NON_EMPTY_GROUP", "NON_EMPTY_GROUP"),
            "the coordinator refused: readers: NON_EMPTY_GROUP",
            "NON_EMPTY_GROUP",
        ),
        (
            {"orders-0": "GROUP_SUBSCRIBED_TO_TOPIC", "orders-1": "GROUP_SUBSCRIBED_TO_TOPIC"},
            "the coordinator refused: readers: GROUP_SUBSCRIBED_TO_TOPIC",
            "GROUP_SUBSCRIBED_TO_TOPIC",
        ),
        (
            GroupOrderUnanswered("readers: no answer", "REQUEST_TIMED_OUT"),
            "it may have been carried out all the same: readers: no answer",
            "REQUEST_TIMED_OUT",
        ),
    ],
)
def test_refused_or_unanswered_order_is_a_miss(
    answer: dict[str, str] | Exception, reason: str, error: str
) -> None:
    """The coordinator refuses the whole order, or every partition of the order, or does not answer.

    `reason` is the sentence in the journal, and `error` is the error code in the row of the trace.
    """
    run = Injecting(order("delete_offsets"))
    run.runtime.admin_answer = answer

    entry = run.inject()

    assert entry.outcome is FaultOutcome.MISSED
    assert entry.error == reason
    assert run.detail_of(TraceKind.FAULT_MISSED)["errors"] == [error]


def test_partly_refused_order_names_the_refused_part() -> None:
    """The offset of orders-0 was deleted, so the fault is no miss. `refused` names orders-1."""
    run = Injecting(order("delete_offsets"))
    run.runtime.admin_answer = {"orders-0": "NONE", "orders-1": "GROUP_SUBSCRIBED_TO_TOPIC"}

    entry = run.inject()

    assert entry.outcome is FaultOutcome.HIT
    assert entry.resolved["refused"] == {"orders-1": "GROUP_SUBSCRIBED_TO_TOPIC"}


def test_deletion_of_offsets_may_name_unknown_partitions() -> None:
    """With `unknown_partitions` the order also names a partition that the topic does not have.

    For example, if orders has the partitions 0 and 1, the order names orders-2, too. The runtime of
    this test only notes that the order has this argument.
    """
    run = Injecting(order("delete_offsets", unknown_partitions=True))

    run.inject()

    # The last word of the act is the argument `unknown_partitions`.
    assert run.runtime.acts == ["delete_offsets readers ('orders',) True"]


def test_order_about_a_topic_that_the_file_lacks_is_refused() -> None:
    """The file is refused before the run starts. The problem suggests the topic `orders`."""
    (problem,) = errors(experiment(faults=[order("delete_offsets", topic="order")]))

    assert problem.path == "faults[0].args.topic"
    assert (problem.message, problem.near_miss) == ("no topic `order` is defined", "orders")
