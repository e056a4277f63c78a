"""Experiments with one or two faults. In virtual time a run takes a fraction of a second."""

from chaos.experiment.structs import Experiment
from tests.support.builders.experiments import experiment

QUICK_BROKERS = {
    "offsets.topic.num.partitions": 2,
    "min.insync.replicas": 2,
    "broker.session.timeout.ms": 1_500,
    "broker.heartbeat.interval.ms": 300,
    "group.initial.rebalance.delay.ms": 500,
}
"""Settings with short times, so that a run is short.

The group waits 0.5 s for its first members. A crashed broker loses its leaderships after 1.5 s.
"""


def quick_experiment(**changes: object) -> Experiment:
    """Return an experiment in which the coordinator of two members crashes.

    Times of faults count from the steady state, so the crash comes 1 s after it.
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
    """Return an experiment that breaks a promise under every seed.

    A guard is a check of Kafka's that an experiment can switch off. The guard `high_watermark_gate`
    delays an answer until all in-sync replicas have the record. Here it is off, and the coordinator
    is cut off from the other brokers, so the coordinator acknowledges commits that only it has. The
    pause of a member has no part in this: the promise also breaks without the pause.
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
