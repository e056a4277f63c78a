"""Experiments as text: reading a written text gives the equal experiment.

An exploration plays many drawn experiments, and writes those that fail as files. The replay stamp
is the section `replay` of such a file: seed, result and trace digest of the run that the file
repeats. The trace digest is a hash over the run's events; `code` is a digest of the code that ran.
"""

from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chaos.experiment.dump import experiment_text
from chaos.experiment.loader import (
    ListedExperiment,
    experiment_in,
    list_experiments,
    load_experiment,
)
from chaos.experiment.structs import Experiment
from chaos.experiment.yaml_document import parse_document
from chaos.results.replay_stamp import ReplayStamp
from tests.support.builders.experiments import experiment
from tests.support.random_worlds.random_experiments import experiments

STAMP = ReplayStamp(seed=7, code="0f", python="3.11", result="violated", digest="1234")
EXPECTED = """\
# Found by explore.

version: 1
name: small
question: What happens?
expect: Nothing much.

cluster:
  config:
    offsets.topic.num.partitions: 2
    min.insync.replicas: 2

topics:
  orders:
    partitions: 2
    replication.factor: 3

groups:
  readers:
    members: 2
    topics: [orders]
    config:
      enable.auto.commit: false
    commit_interval_ms: 200

faults:
  - at: 5s
    fault: crash
    target: coordinator-of(readers)
    duration: 25s

replay:
  seed: 7
  code: 0f
  python: '3.11'
  result: violated
  digest: '1234'
"""


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(experiments(), st.text(max_size=60))
def test_text_of_any_experiment_is_read_back_as_the_equal_experiment(
    made: Experiment, comment: str
) -> None:
    """Names, sentences and arguments may have characters with a meaning in YAML."""
    text = experiment_text(made, comment=comment)

    assert experiment_in(parse_document(text, "made.yaml"), "made.yaml") == made


@pytest.mark.parametrize("listed", list_experiments(), ids=lambda listed: listed.name)
def test_text_of_each_shipped_experiment_loads_as_the_shipped_one(
    listed: ListedExperiment, tmp_path: Path
) -> None:
    """The shipped experiments are the examples that people change."""
    loaded = load_experiment(str(listed.path)).experiment
    copy = tmp_path / "copy.yaml"
    copy.write_text(experiment_text(loaded))

    assert load_experiment(str(copy)).experiment == loaded


def test_late_members_keep_defaults_that_their_group_does_not_have() -> None:
    """Late members inherit from their group.

    Here enable.auto.commit is true (the default) for the late member and false for the group. If
    the text omitted this default, the late member would inherit false.
    """
    made = experiment(
        groups={
            "readers": {
                "members": 1,
                "topics": ["orders"],
                "config": {"enable.auto.commit": False},
                "late_members": [{"at": "1s", "members": 1, "config": {}}],
            }
        }
    )

    assert "        config:\n          enable.auto.commit: true\n" in experiment_text(made)


def test_text_has_no_defaults_and_is_formatted_for_people() -> None:
    """Sections are separated by blank lines, and short lists are on one line.

    The comment is the first line, the replay stamp the last section. EXPECTED has the values that
    the builder `experiment` sets, where they differ from the defaults of a file.
    """
    made = experiment(
        replay=msgspec.to_builtins(STAMP),
        topics={"orders": {"partitions": 2, "replication.factor": 3}},
    )

    assert experiment_text(made, comment="Found by explore.") == EXPECTED
