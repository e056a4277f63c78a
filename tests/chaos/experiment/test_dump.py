"""An experiment that is written as YAML text and read again is the same experiment.

`coordlab explore` plays many random experiments. It writes those that fail as files, so that a
person can play them again. The section `replay` of such a file (ReplayStamp) says which run must be
repeated, and how it must end: `seed` is the seed of the run, `code` a hash of the code that played
it, `result` its result, and `digest` a hash of its events.
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
EXPECTED_TEXT = """\
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
    original: Experiment, comment: str
) -> None:
    """Names and texts may contain characters that mean something in YAML, such as `#`."""
    text = experiment_text(original, comment=comment)

    assert experiment_in(parse_document(text, "written.yaml"), "written.yaml") == original


@pytest.mark.parametrize("listed", list_experiments(), ids=lambda listed: listed.name)
def test_text_of_each_shipped_experiment_loads_as_the_shipped_one(
    listed: ListedExperiment, tmp_path: Path
) -> None:
    """A user of coordlab begins with a shipped experiment, and changes it."""
    shipped = load_experiment(str(listed.path)).experiment
    copy = tmp_path / "copy.yaml"
    copy.write_text(experiment_text(shipped))

    assert load_experiment(str(copy)).experiment == shipped


def test_late_members_keep_defaults_that_their_group_does_not_have() -> None:
    """The text must not omit a default of late members if their group has another value.

    In the file, late members inherit the settings of their group. Here enable.auto.commit is false
    for the group, and true, the default, for the late member. If the text omitted true, the late
    member would inherit false.
    """
    original = experiment(
        groups={
            "readers": {
                "members": 1,
                "topics": ["orders"],
                "config": {"enable.auto.commit": False},
                "late_members": [{"at": "1s", "members": 1, "config": {}}],
            }
        }
    )

    assert "        config:\n          enable.auto.commit: true\n" in experiment_text(original)


def test_text_has_no_defaults_and_is_formatted_for_people() -> None:
    """Sections are separated by blank lines, and short lists are on one line.

    The comment is the first line, and the replay stamp is the last section. Values that are
    defaults are missing in the text, such as the three brokers.
    """
    original = experiment(
        replay=msgspec.to_builtins(STAMP),
        topics={"orders": {"partitions": 2, "replication.factor": 3}},
    )

    assert experiment_text(original, comment="Found by explore.") == EXPECTED_TEXT
