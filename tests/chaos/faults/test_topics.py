"""The faults `create_topic` and `delete_topic`, orders about a topic that has no clients.

`Injecting(fault)` injects and heals (undoes) the faults of a small experiment on a runtime without
nodes; `run.runtime.acts` has each call that changes the cluster, as text. A miss is a fault that
hit nothing.
"""

from typing import Any

import pytest

from chaos.checkers.context import detail_of
from chaos.experiment.rules.all_rules import errors
from chaos.exploration.play import PlayResult, play
from cluster.client.admin.orders import TopicCreationFailed, TopicDeletionFailed
from protocol.causes import TOPIC_CREATED
from protocol.trace import TraceKind, TraceRow
from results_schema.journal import FaultOutcome
from tests.support.builders.experiments import experiment
from tests.support.builders.injecting import Injecting
from tests.support.builders.quick_experiment import quick_experiment

TOPICS = {
    "orders": {"partitions": 2, "replication.factor": 3},
    "archive": {"partitions": 2, "replication.factor": 3},
}
"""The topic of the group and the producer, and one without clients."""


def deletion(topic: str = "archive") -> dict[str, Any]:
    return {"at": "1s", "fault": "delete_topic", "target": "controller", "args": {"topic": topic}}


def creation(topic: str = "new", **args: int) -> dict[str, Any]:
    return {
        "at": "1s",
        "fault": "create_topic",
        "target": "controller",
        "args": {"topic": topic, **args},
    }


def test_created_topic_is_in_the_row_of_the_order() -> None:
    """The row shows what the topic is to have; numbers that are left out are the brokers'."""
    for order, act, partitions, replicas in (
        (creation(), "create_topic new -1 -1", ["new-0"], 1),
        (
            creation(partitions=2, replication_factor=3),
            "create_topic new 2 3",
            ["new-0", "new-1"],
            3,
        ),
        (creation(partitions=0), "create_topic new 0 -1", [], 1),
    ):
        run = Injecting(own_experiment=experiment(topics=TOPICS, faults=[order]))

        entry = run.inject()
        run.heal_everything()

        assert run.runtime.acts == [act]
        assert (entry.outcome, entry.in_force) == (FaultOutcome.HIT, False)
        detail = run.detail_of(TraceKind.FAULT_INJECTED)
        assert (detail["groups"], detail["partitions"]) == ([], partitions)
        assert (detail["topic"], detail["replication_factor"]) == ("new", replicas)
        assert run.injector.deleted_topics == ()


@pytest.mark.parametrize(
    ("failure", "why", "error_names"),
    [
        (
            TopicCreationFailed("new: TOPIC_ALREADY_EXISTS", "TOPIC_ALREADY_EXISTS"),
            "the controller refused: new: TOPIC_ALREADY_EXISTS",
            ["TOPIC_ALREADY_EXISTS"],
        ),
        (
            TimeoutError("no answer from the controller in 60000 ms: TIMED_OUT"),
            "it may have been carried out all the same: no answer from the controller in 60000 ms: "
            "TIMED_OUT",
            None,
        ),
    ],
)
def test_refused_creation_is_a_miss(
    failure: Exception, why: str, error_names: list[str] | None
) -> None:
    """The miss has Kafka's error, or says that there was no answer."""
    run = Injecting(own_experiment=experiment(topics=TOPICS, faults=[creation()]))
    run.runtime.admin_answer = failure

    entry = run.inject()

    assert (entry.outcome, entry.error) == (FaultOutcome.MISSED, why)
    assert run.detail_of(TraceKind.FAULT_MISSED).get("errors") == error_names


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (creation("a b"), "Topic name is invalid: 'a b' contains one or more characters"),
        (creation("__consumer_offsets"), "`__consumer_offsets` is a topic of Kafka's own"),
        (creation("old.archive"), "the name collides with `old_archive`"),
        (creation("orders"), "the group readers reads it, and would wait for it in vain"),
    ],
)
def test_topic_that_no_order_may_create_is_refused(fault: dict[str, Any], message: str) -> None:
    """The loader refuses illegal names, Kafka's own topics, and topics of clients."""
    topics = TOPICS | {"old_archive": {"partitions": 1, "replication.factor": 3}}

    (problem,) = errors(experiment(topics=topics, faults=[fault]))

    assert problem.path == "faults[0].args.topic"
    assert problem.message.startswith(message)


def test_topic_that_exists_or_that_a_fault_creates_may_be_in_both_orders() -> None:
    """A plan may create a topic and delete it, or delete a topic and create it again."""
    for faults in (
        [deletion(), creation("archive")],
        [creation("archive"), deletion()],
        [creation("new"), deletion("new")],
    ):
        assert list(errors(experiment(topics=TOPICS, faults=faults))) == []


def test_deletion_of_a_created_topic_concerns_the_partitions_that_the_cluster_has() -> None:
    """The file does not define the topic. Here it was not created, so it has no partition."""
    run = Injecting(own_experiment=experiment(topics=TOPICS, faults=[creation(), deletion("new")]))

    run.inject(1)

    assert run.detail_of(TraceKind.FAULT_INJECTED)["partitions"] == []
    assert run.injector.deleted_topics == ("new",)


def test_deleted_topic_is_no_longer_expected() -> None:
    """The fault affects the topic's partitions, and no group."""
    run = Injecting(own_experiment=experiment(topics=TOPICS, faults=[deletion()]))

    entry = run.inject()
    run.heal_everything()

    assert run.runtime.acts == ["delete_topics ('archive',)"]
    assert (entry.outcome, entry.in_force) == (FaultOutcome.HIT, False)
    detail = run.detail_of(TraceKind.FAULT_INJECTED)
    assert (detail["groups"], detail["partitions"]) == ([], ["archive-0", "archive-1"])
    assert run.injector.deleted_topics == ("archive",)


def test_refused_deletion_is_a_miss() -> None:
    """The controller refuses the order, but the run no longer expects the topic.

    The order may have sent an earlier request, whose answer was lost, and which deleted the topic.
    """
    run = Injecting(own_experiment=experiment(topics=TOPICS, faults=[deletion()]))
    unknown = "UNKNOWN_TOPIC_OR_PARTITION"
    run.runtime.admin_answer = TopicDeletionFailed(f"archive: {unknown}", unknown)

    entry = run.inject()

    assert entry.outcome is FaultOutcome.MISSED
    assert entry.error == "the controller refused: archive: UNKNOWN_TOPIC_OR_PARTITION"
    assert run.detail_of(TraceKind.FAULT_MISSED)["errors"] == [unknown]
    assert run.injector.deleted_topics == ("archive",)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"faults": [deletion("archiv")]}, "no topic `archiv` is defined"),
        (
            {"faults": [deletion("orders")]},
            "the group readers reads it, and would wait for it in vain",
        ),
        (
            {
                "faults": [deletion()],
                "producers": [{"topic": "archive", "records_per_second": 1}],
            },
            "producers[0] writes it, and would wait for it in vain",
        ),
    ],
)
def test_topic_with_clients_is_refused(changes: dict[str, Any], message: str) -> None:
    """The loader names the client."""
    (problem,) = errors(experiment(topics=TOPICS, **changes))

    assert (problem.path, problem.message) == ("faults[0].args.topic", message)


def test_run_with_a_deleted_topic_passes() -> None:
    """The run waits for no leader of the topic, and no broker keeps a log of it.

    A broker that is down during the deletion removes its log when it starts again.
    """
    crash = {"at": "500ms", "fault": "crash", "target": "broker(2)", "duration": "4s"}
    rows: list[TraceRow] = []

    run = play(
        quick_experiment(topics=TOPICS, faults=[crash, deletion()]),
        seed=7,
        observers=(rows.append,),
    )

    assert run.result is PlayResult.PASS, (run.findings, run.reasons)
    assert [row.kind for row in rows].count(TraceKind.TOPIC_DELETED) == 1


def test_run_with_created_topics_passes() -> None:
    """A new topic, one that exists, one that is created again, and one with too many replicas."""
    faults = [
        {"at": "500ms", "fault": "crash", "target": "broker(2)", "duration": "8s"},
        creation("new", partitions=3, replication_factor=3),
        creation("archive"),
        deletion(),
        creation("archive", partitions=4, replication_factor=2),
        creation("large", replication_factor=4),
        deletion("new"),
    ]
    for second, fault in enumerate(faults[1:], start=1):
        fault["at"] = f"{second}s"
    rows: list[TraceRow] = []

    run = play(quick_experiment(topics=TOPICS, faults=faults), seed=7, observers=(rows.append,))

    assert run.result is PlayResult.PASS, (run.findings, run.reasons)
    missed = [detail_of(row) for row in rows if row.kind == TraceKind.FAULT_MISSED]
    assert [(each["fault"], each["errors"]) for each in missed] == [
        ("create_topic", ["TOPIC_ALREADY_EXISTS"]),
        ("create_topic", ["INVALID_REPLICATION_FACTOR"]),
    ]
    created = [
        row.partition
        for row in rows
        if row.kind == TraceKind.LEADER_ELECTED and detail_of(row)["reason"] == TOPIC_CREATED
    ]
    assert created[-7:] == [f"new-{i}" for i in range(3)] + [f"archive-{i}" for i in range(4)]
    assert [row.kind for row in rows].count(TraceKind.TOPIC_DELETED) == 2
