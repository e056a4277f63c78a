"""The fault `delete_topic`: an administrator deletes a topic that has no clients.

`Injecting(fault)` injects and heals (undoes) the faults of a small experiment on a runtime without
nodes; `run.runtime.acts` has each call that changes the cluster, as text. A miss is a fault that
hit nothing.
"""

from typing import Any

import pytest

from chaos.experiment.rules.all_rules import errors
from chaos.exploration.play import PlayResult, play
from cluster.client.admin.orders import TopicDeletionFailed
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
