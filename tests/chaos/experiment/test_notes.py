"""Notes say what the defaults of an experiment mean for its figures. A note is no warning."""

import json

import pytest

from chaos.experiment.loader import load_experiment
from coordlab.cli import run_cli
from results_schema.results import EXIT_PASS

WORK = "groups.orders-readers.process_us=1000"


def test_members_without_processing_time_have_a_note() -> None:
    """By default members process a record in no time, so figures such as the lag are too small."""
    (note,) = load_experiment("coordinator_crash").notes
    assert note.startswith("members of orders-readers do no work (process_us: 0)")
    assert "no rebalance waits for a busy member and nothing lags" in note
    assert "set process_us" in note


def test_members_with_processing_time_have_no_note() -> None:
    """WORK sets 1 ms per record, so the figures are no longer too small."""
    assert load_experiment("coordinator_crash", (WORK,)).notes == ()


def test_validate_prints_the_note_beside_ok(capsys: pytest.CaptureFixture[str]) -> None:
    """A note is neither problem nor warning, so the exit code is 0."""
    assert run_cli(["validate", "coordinator_crash"]) == EXIT_PASS
    output = capsys.readouterr().out
    assert output.startswith("note: members of orders-readers do no work")
    assert run_cli(["validate", "coordinator_crash", "--json"]) == EXIT_PASS
    (judged,) = json.loads(capsys.readouterr().out)["experiments"]
    assert (len(judged["notes"]), judged["warnings"]) == (1, [])
    assert run_cli(["validate", "coordinator_crash", "--var", WORK]) == EXIT_PASS
    assert "note:" not in capsys.readouterr().out
