"""`--json` of commands that usually print text: one document, with keys that scripts rely on."""

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from coordlab.cli import run_cli
from coordlab.console import print_document
from pipeline.summary.summary_file import summary_path, write_summary
from results_schema.results import EXIT_BAD_ARGUMENTS, EXIT_PASS
from tests.support.builders.report_rows import S, fault_summary, summary_of

Captured = pytest.CaptureFixture[str]


def test_validate_as_json_has_problems_and_warnings_with_their_places(
    tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The document gives the line of each problem, because editors and CI show it beside the line.

    There are three files. mine.yaml is valid, unwise.yaml has a warning, and wrong.yaml has a
    problem: a misspelt fault. A warning alone does not change the exit code.
    """
    monkeypatch.chdir(tmp_path)
    assert run_cli(["init", "mine"]) == EXIT_PASS
    text = Path("mine.yaml").read_text()
    Path("unwise.yaml").write_text(text.replace("min.insync.replicas: 2", "min.insync.replicas: 1"))
    Path("wrong.yaml").write_text(text.replace("fault: crash", "fault: crahs"))
    capsys.readouterr()

    code = run_cli(["validate", "--json", "mine.yaml", "unwise.yaml", "wrong.yaml"])

    captured = capsys.readouterr()
    assert (code, captured.err) == (EXIT_BAD_ARGUMENTS, "")
    mine, unwise, wrong = json.loads(captured.out)["experiments"]
    assert mine == {
        "file": "mine.yaml",
        "ok": True,
        "name": "mine",
        "problems": [],
        "warnings": [],
        "notes": [],
    }
    (warning,) = unwise["warnings"]
    assert (unwise["ok"], warning["path"]) == (True, "cluster.config.min.insync.replicas")
    (problem,) = wrong["problems"]
    assert (wrong["ok"], wrong["name"]) == (False, None)
    # `near_miss` is the known name that is most like the misspelt one.
    assert problem["near_miss"] == "crash"
    lines = text.splitlines()
    assert lines[problem["line"] - 1].strip() == "fault: crash"
    assert run_cli(["validate", "--json", "mine.yaml", "unwise.yaml"]) == EXIT_PASS


def test_analyze_as_json_has_the_figures_of_the_summary_file(tmp_path: Path) -> None:
    """The output has the keys of the summary file, so scripts can read both in the same way."""
    fault = fault_summary(values={"commit gap": [8 * S, 9 * S]}, members=2)
    summary = summary_of("crash/1", fault, directory=tmp_path)
    (tmp_path / "tables").mkdir()
    write_summary(summary)

    # A document is never wrapped, however narrow the console is.
    printed = io.StringIO()
    print_document(Console(file=printed, width=40), {"runs": [summary]})

    (run,) = json.loads(printed.getvalue())["runs"]

    summary_file = json.loads(summary_path(tmp_path).read_bytes())
    # Only the file says from which events the tables in its folder were made.
    del summary_file["made_from"]
    assert run == summary_file
    assert run["faults"][0]["members"] == 2
