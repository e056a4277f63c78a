"""A small experiment for tests, made as if it had been read from a file."""

from typing import Any

import msgspec

from chaos.experiment.structs import Experiment


def experiment(**changes: object) -> Experiment:
    """Return a valid experiment: two consumers in a group, and a crash of the group's coordinator.

    `changes` replace top-level keys of the experiment's file. For example, `experiment(faults=[])`
    is an experiment without faults.
    """
    content: dict[str, Any] = {
        "version": 1,
        "name": "small",
        "question": "What happens?",
        "expect": "Nothing much.",
        "cluster": {
            "brokers": 3,
            "config": {"offsets.topic.num.partitions": 2, "min.insync.replicas": 2},
        },
        "topics": {"orders": {"partitions": 2, "replication.factor": 3}},
        "groups": {
            "readers": {
                "members": 2,
                "topics": ["orders"],
                "commit_interval_ms": 200,
                "config": {"enable.auto.commit": False},
            }
        },
        "faults": [
            {
                "at": "5s",
                "fault": "crash",
                "target": "coordinator-of(readers)",
                "duration": "25s",
            }
        ],
        "run": {"after_faults": "10s"},
    }
    content.update(changes)
    return msgspec.convert(content, Experiment)
