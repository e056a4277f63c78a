"""Notes for the author of an experiment: how its defaults change the figures of a run.

A note is no warning, because nothing is wrong with the experiment.
"""

import json

import pytest

from chaos.experiment.loader import load_experiment
from coordlab.cli import run_cli
from results_schema.results import EXIT_PASS

ONE_MS_PER_RECORD = "groups.orders-readers.process_us=1000"


def test_members_without_processing_time_have_a_note() -> None:
    """By default members process a record in 0 µs, so figures such as the lag are too small."""
    (note,) = load_experiment("coordinator_crash").notes
    assert note.startswith("members of orders-readers do no work (process_us: 0)")
    assert "no rebalance waits for a busy member and nothing lags" in note
    assert "set process_us" in note


def test_members_with_processing_time_have_no_note() -> None:
    """Members that take 1 ms per record lag as real members do, so there is nothing to note."""
    assert load_experiment("coordinator_crash", (ONE_MS_PER_RECORD,)).notes == ()


def test_validate_prints_the_note_beside_ok(capsys: pytest.CaptureFixture[str]) -> None:
    """The exit code is 0, because a note is neither a problem nor a warning."""
    assert run_cli(["validate", "coordinator_crash"]) == EXIT_PASS
    output = capsys.readouterr().out
    assert output.startswith("note: members of orders-readers do no work")
    assert run_cli(["validate", "coordinator_crash", "--json"]) == EXIT_PASS
    (validated,) = json.loads(capsys.readouterr().out)["experiments"]
    assert len(validated["notes"]) == 1
    assert validated["warnings"] == []
    assert run_cli(["validate", "coordinator_crash", "--var", ONE_MS_PER_RECORD]) == EXIT_PASS
    assert "note:" not in capsys.readouterr().out
