"""Small experiments with one or two faults, which take a fraction of a second in virtual time."""

from chaos.experiment.structs import Experiment
from tests.support.builders.experiments import experiment

QUICK_BROKERS = {
    "offsets.topic.num.partitions": 2,
    "min.insync.replicas": 2,
    "broker.session.timeout.ms": 1_500,
    "broker.heartbeat.interval.ms": 300,
    "group.initial.rebalance.delay.ms": 500,
}
"""Settings of the brokers with short times, so that a run is short.

A crashed broker loses its leaderships after 1.5 s, and a new group waits 0.5 s for more members.
"""


def quick_experiment(**changes: object) -> Experiment:
    """Return an experiment in which the coordinator of a group of two members crashes.

    The time of a fault counts from the moment in which the cluster has become steady. So the crash
    comes 1 s after that moment.
    """
    quick: dict[str, object] = {
        "name": "quick",
        "cluster": {"brokers": 3, "config": QUICK_BROKERS},
        "faults": [
            {
                "at": "1s",
                "fault": "crash",
                "target": "coordinator-of(readers)",
                "duration": "3s",
            }
        ],
        "producers": [{"topic": "orders", "records_per_second": 5}],
        "run": {"after_faults": "1s"},
    }
    return experiment(**(quick | changes))


def failing_experiment() -> Experiment:
    """Return an experiment that breaks one of Kafka's promises with every seed.

    A guard is a safety rule of Kafka that an experiment can switch off. While the guard
    `high_watermark_gate` is on, a coordinator acknowledges a commit only when all in-sync replicas
    have stored it. Here the guard is off, and the coordinator is cut off from the other brokers.
    So the coordinator acknowledges commits that no other broker has. These commits are lost when
    another broker takes over, although Kafka promises that an acknowledged commit stays.

    The pause of a member has no part in this: the promise also breaks without the pause.
    """
    guards = {"high_watermark_gate": False}
    return quick_experiment(
        name="failing",
        cluster={"brokers": 3, "config": QUICK_BROKERS, "guards": guards},
        faults=[
            {
                "at": "1s",
                "fault": "cut",
                "from": "coordinator-of(readers)",
                "to": ["controller", "brokers"],
                "duration": "4s",
            },
            {"at": "2s", "fault": "pause", "target": "member(readers, 0)", "duration": "200ms"},
        ],
    )
