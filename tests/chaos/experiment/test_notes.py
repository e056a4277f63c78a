"""What a reader of an experiment's figures is told of its defaults."""

import json

import pytest

from chaos.experiment.loader import load_experiment
from coordlab.cli import run_cli
from results_schema.results import EXIT_PASS

WORK = "groups.orders-readers.process_us=1000"


def test_members_that_do_no_work_are_named_with_what_it_means() -> None:
    """It is true of any run, whatever its plan does."""
    (note,) = load_experiment("coordinator_crash").notes
    assert note.startswith("members of orders-readers do no work (process_us: 0)")
    assert "no rebalance waits for a busy member and nothing lags" in note
    assert "set process_us" in note


def test_members_that_work_need_no_note() -> None:
    assert load_experiment("coordinator_crash", (WORK,)).notes == ()


def test_validate_says_it_beside_ok(capsys: pytest.CaptureFixture[str]) -> None:
    """It is no problem and no warning: the exit code stays 0."""
    assert run_cli(["validate", "coordinator_crash"]) == EXIT_PASS
    said = capsys.readouterr().out
    assert said.startswith("note: members of orders-readers do no work")
    assert run_cli(["validate", "coordinator_crash", "--json"]) == EXIT_PASS
    (judged,) = json.loads(capsys.readouterr().out)["experiments"]
    assert (len(judged["notes"]), judged["warnings"]) == (1, [])
    assert run_cli(["validate", "coordinator_crash", "--var", WORK]) == EXIT_PASS
    assert "note:" not in capsys.readouterr().out
