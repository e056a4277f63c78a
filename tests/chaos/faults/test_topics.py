"""The faults `create_topic` and `delete_topic`, which ask the controller as an administrator does.

We call such a request an order. The topic of an order must have no clients, because its clients
would wait in vain while the topic does not exist. If the controller refuses the order, the fault
has hit nothing, and is called a miss.

Most tests need no cluster. `Injecting(own_experiment=...)` injects the faults of an experiment into
a runtime without nodes, and `run.runtime.acts` lists the calls to this runtime, as text.
`run.inject(1)` injects the second fault, and `run.inject()` the first.
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
"""A group and a producer use the topic `orders`. The topic `archive` has no clients."""


def deletion(topic: str = "archive") -> dict[str, Any]:
    """Return a fault of an experiment file that deletes the topic."""
    return {"at": "1s", "fault": "delete_topic", "target": "controller", "args": {"topic": topic}}


def creation(topic: str = "new", **args: int) -> dict[str, Any]:
    """Return a fault that creates the topic. `args` are `partitions` and `replication_factor`."""
    return {
        "at": "1s",
        "fault": "create_topic",
        "target": "controller",
        "args": {"topic": topic, **args},
    }


def test_created_topic_is_in_the_row_of_the_order() -> None:
    """The row of the fault in the trace shows the partitions and replicas that were ordered.

    The file may leave out the number of partitions or of replicas. Then the order has -1, and the
    cluster takes the number from the settings of the brokers. These are 1 partition and 1 replica.
    """
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
        assert run.injector.deleted_topics == ()  # a creation deletes nothing


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
    """The journal says that the controller refused the topic, or that it did not answer.

    If the controller did not answer, the row of the trace names no error of Kafka.
    """
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
    ids=["illegal name", "topic of Kafka", "colliding name", "topic with clients"],
)
def test_topic_that_no_order_may_create_is_refused(fault: dict[str, Any], message: str) -> None:
    """The loader refuses illegal names, Kafka's own topics, and topics that clients use.

    Kafka also refuses two topics whose names differ only in `.` and `_`.
    """
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
    """The file does not define the topic `new`, so the fault asks the cluster for its partitions.

    Only the second fault, the deletion, is injected here. `new` was never created, so the cluster
    answers that `new` has no partitions.
    """
    run = Injecting(own_experiment=experiment(topics=TOPICS, faults=[creation(), deletion("new")]))

    run.inject(1)

    assert run.detail_of(TraceKind.FAULT_INJECTED)["partitions"] == []
    assert run.injector.deleted_topics == ("new",)


def test_deleted_topic_is_no_longer_expected() -> None:
    """The row of the fault names the partitions of the topic, but no group.

    The topic is in `deleted_topics` of the injector, so the run does not wait for leaders of its
    partitions any more.
    """
    run = Injecting(own_experiment=experiment(topics=TOPICS, faults=[deletion()]))

    entry = run.inject()
    run.heal_everything()

    assert run.runtime.acts == ["delete_topics ('archive',)"]
    assert (entry.outcome, entry.in_force) == (FaultOutcome.HIT, False)
    detail = run.detail_of(TraceKind.FAULT_INJECTED)
    assert (detail["groups"], detail["partitions"]) == ([], ["archive-0", "archive-1"])
    assert run.injector.deleted_topics == ("archive",)


def test_refused_deletion_is_a_miss() -> None:
    """The controller refuses the deletion, because it does not know the topic.

    All the same, the run no longer expects the topic, because the order may have deleted it: the
    first request deleted the topic, its answer was lost, and the second request was refused.
    """
    run = Injecting(own_experiment=experiment(topics=TOPICS, faults=[deletion()]))
    error = "UNKNOWN_TOPIC_OR_PARTITION"
    run.runtime.admin_answer = TopicDeletionFailed(f"archive: {error}", error)

    entry = run.inject()

    assert entry.outcome is FaultOutcome.MISSED
    assert entry.error == "the controller refused: archive: UNKNOWN_TOPIC_OR_PARTITION"
    assert run.detail_of(TraceKind.FAULT_MISSED)["errors"] == [error]
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
    """Before the run, the author of the file is told which client would wait for the topic.

    The first case is a mistyped topic, which is refused as well.
    """
    (problem,) = errors(experiment(topics=TOPICS, **changes))

    assert (problem.path, problem.message) == ("faults[0].args.topic", message)


def test_run_with_a_deleted_topic_passes() -> None:
    """A run can pass although a topic is deleted during the run.

    The run does not wait for leaders of the deleted topic, and no broker keeps a log of it.
    broker-2 is down during the deletion, so it removes its log when it starts again.
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
    """Two of the orders are refused: `archive` exists, and 3 brokers cannot hold 4 replicas.

    The other orders create `new`, delete `archive` and create it again, and delete `new`.
    """
    faults = [
        {"at": "500ms", "fault": "crash", "target": "broker(2)", "duration": "8s"},
        creation("new", partitions=3, replication_factor=3),
        creation("archive"),
        deletion(),
        creation("archive", partitions=4, replication_factor=2),
        creation("large", replication_factor=4),
        deletion("new"),
    ]
    # The six orders come one after the other, at 1 s, 2 s and so on.
    for second, fault in enumerate(faults[1:], start=1):
        fault["at"] = f"{second}s"
    rows: list[TraceRow] = []

    run = play(quick_experiment(topics=TOPICS, faults=faults), seed=7, observers=(rows.append,))

    assert run.result is PlayResult.PASS, (run.findings, run.reasons)
    misses = [detail_of(row) for row in rows if row.kind == TraceKind.FAULT_MISSED]
    assert [(miss["fault"], miss["errors"]) for miss in misses] == [
        ("create_topic", ["TOPIC_ALREADY_EXISTS"]),
        ("create_topic", ["INVALID_REPLICATION_FACTOR"]),
    ]
    created = [
        row.partition
        for row in rows
        if row.kind == TraceKind.LEADER_ELECTED and detail_of(row)["reason"] == TOPIC_CREATED
    ]
    # The list begins with the partitions that were created at the start. The last seven partitions
    # were created by the orders.
    assert created[-7:] == [f"new-{i}" for i in range(3)] + [f"archive-{i}" for i in range(4)]
    assert [row.kind for row in rows].count(TraceKind.TOPIC_DELETED) == 2
