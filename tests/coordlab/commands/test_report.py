"""`report` and `list` over past runs: their files and output, also without Java.

Spark, which needs Java, computes the tables of a run from its events; the report is made from the
tables. `past_run` writes a run without tables, `analysed_run` a run with tables. A member's commit
gap is the time from its last acknowledged commit before a fault to the first one after it. `S` is a
second in microseconds.
"""

import json
import webbrowser
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path

import pytest

from chaos.results import run_directory
from chaos.results.run_directory import EVENTS_FILE
from coordlab.analysis import current_summary
from coordlab.cli import run_cli
from results_schema.results import EXIT_BAD_ARGUMENTS, EXIT_PASS, Verdict
from tests.support.builders.experiments import experiment
from tests.support.builders.past_runs import EVENTS, analysed_run, past_run, write_rows
from tests.support.builders.report_rows import S, fault_summary

Captured = pytest.CaptureFixture[str]


@pytest.fixture
def no_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Hide Java, as on a machine without it."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)


@pytest.mark.usefixtures("no_java")
def test_report_of_an_analysed_run_needs_no_java(tmp_path: Path, capsys: Captured) -> None:
    """A run may come from another machine with its tables, and only computing tables needs Java."""
    run = analysed_run(tmp_path / "runs")

    assert run_cli(["report", str(run.path)]) == EXIT_PASS

    page = run.path / "report.html"
    assert capsys.readouterr().out == f"report: {page}\n"
    text = page.read_text()
    assert text.startswith("<!doctype html>") or text.startswith("<!DOCTYPE html>")
    assert run.manifest.run in text


@pytest.mark.usefixtures("no_java")
def test_report_without_a_run_is_of_the_latest_run_and_goes_to_the_output_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user may type `report --output page.html` right after a run."""
    monkeypatch.chdir(tmp_path)
    analysed_run(tmp_path / "runs")
    newest = analysed_run(tmp_path / "runs")

    assert run_cli(["report", "--output", "page.html"]) == EXIT_PASS

    assert newest.manifest.run in (tmp_path / "page.html").read_text()
    assert not (newest.path / "report.html").exists()


@pytest.mark.usefixtures("no_java")
def test_report_of_several_runs_compares_them_on_a_page_and_on_the_terminal(
    tmp_path: Path, capsys: Captured
) -> None:
    """Each run also has its own page; a run that is named twice counts once."""
    root = tmp_path / "runs"
    slow = experiment(name="slow")
    runs = (
        analysed_run(root, fault_summary(values={"commit gap": [8 * S]}, members=2)),
        analysed_run(
            root,
            fault_summary(values={"commit gap": [20 * S]}, members=2),
            of=slow,
            verdict=Verdict.VIOLATED,
        ),
    )
    paths = [str(run.path) for run in runs]

    assert run_cli(["report", *paths, str(root / "slow"), "--runs", str(root)]) == EXIT_PASS

    output = capsys.readouterr().out
    lines = [line.split() for line in output.splitlines()]
    # `*` marks a row in which the runs differ.
    assert ["*", "commit", "gap", "max", "8.00", "s", "20.00", "s"] in lines
    assert ["*", "verdict", "pass", "violated"] in lines
    assert output.endswith(f"comparison: {root / 'comparison.html'}\n")
    assert "2 RUNS" in (root / "comparison.html").read_text()
    assert all((run.path / "report.html").exists() for run in runs)


@pytest.mark.usefixtures("no_java")
def test_report_as_json_has_every_page_and_the_comparison(tmp_path: Path, capsys: Captured) -> None:
    """A script reads one document from standard output."""
    root = tmp_path / "runs"
    fault = fault_summary(values={"commit gap": [8 * S]}, members=2)
    runs = [analysed_run(root, fault), analysed_run(root, fault)]
    page = tmp_path / "pages" / "c.html"

    paths = [str(run.path) for run in runs]
    assert run_cli(["report", *paths, "--json", "--output", str(page)]) == EXIT_PASS

    document = json.loads(capsys.readouterr().out)
    reports = document["reports"]
    assert [report["run"] for report in reports] == [run.manifest.run for run in runs]
    assert all(Path(report["report"]).is_file() for report in reports)
    assert document["comparison"]["page"] == str(page)
    assert page.is_file()
    assert {"commit gap"} <= {row["name"] for row in document["comparison"]["rows"]}


@pytest.mark.usefixtures("no_java")
def test_report_of_a_run_without_tables_and_java_names_the_next_step(
    tmp_path: Path, capsys: Captured
) -> None:
    """The exit code is 254, because nothing was written and nothing failed."""
    run = past_run(tmp_path / "runs")

    for command in ("report", "analyze"):
        assert run_cli([command, str(run.path)]) == EXIT_BAD_ARGUMENTS
        output = " ".join(capsys.readouterr().err.split())
        assert "Install Java 17 or newer" in output
        assert "Traceback" not in output
    assert not (run.path / "report.html").exists()


def test_tables_of_other_events_or_of_another_version_are_not_current(tmp_path: Path) -> None:
    """Tables made during the run lack later rows; another version has other tables."""
    run = analysed_run(tmp_path)
    assert current_summary(run.path) is not None

    write_rows(run, EVENTS + 1)  # one row more than the tables were made of
    assert current_summary(run.path) is None

    write_rows(run, EVENTS)
    assert current_summary(run.path) is not None

    (run.path / "tables" / "verdicts").rename(tmp_path / "elsewhere")
    assert current_summary(run.path) is None


def test_tables_of_a_run_whose_events_are_damaged_are_not_current(tmp_path: Path) -> None:
    """The events became unreadable after the analysis, so they can no longer be compared."""
    run = analysed_run(tmp_path)
    (run.events / EVENTS_FILE).write_bytes(b"PAR1")
    assert current_summary(run.path) is None


@pytest.mark.usefixtures("no_java")
def test_report_is_opened_in_a_browser_where_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    """A server has no browser: the path is printed, and the exit code is 0."""
    run = analysed_run(tmp_path / "runs")
    opened: list[str] = []

    def no_browser(url: str) -> bool:
        opened.append(url)
        return False

    monkeypatch.setattr(webbrowser, "open", no_browser)

    assert run_cli(["report", str(run.path), "--open"]) == EXIT_PASS

    assert opened == [(run.path / "report.html").as_uri()]
    assert f"no browser was found: open {run.path / 'report.html'}" in capsys.readouterr().out


@pytest.mark.usefixtures("no_java")
def test_unwritable_report_is_reported_without_a_traceback(
    tmp_path: Path, capsys: Captured
) -> None:
    """No page can be written below `file`, which is no folder."""
    run = analysed_run(tmp_path / "runs")
    (tmp_path / "file").write_text("")

    code = run_cli(["report", str(run.path), "--output", str(tmp_path / "file" / "page.html")])

    assert code == EXIT_BAD_ARGUMENTS
    assert "page.html" in capsys.readouterr().err


def test_list_shows_the_newest_runs_last_with_their_commit_gap(
    tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`--limit 2` shows two of four runs and counts the others; only the last run has tables.

    The commit gap of a run is the longest of its members' gaps, here 8 s.
    """
    moments = (datetime(2026, 1, 2, 3, 4, tzinfo=UTC) + timedelta(seconds=n) for n in count())
    monkeypatch.setattr(run_directory, "_now", lambda: next(moments))
    gap = fault_summary(values={"commit gap": [8 * S, 3 * S]}, members=2)
    runs = [past_run(tmp_path) for _ in range(3)] + [analysed_run(tmp_path, gap)]

    assert run_cli(["list", "--runs", str(tmp_path), "--limit", "2"]) == EXIT_PASS

    lines = capsys.readouterr().out.splitlines()
    shown = [line for line in lines if " completed " in line]
    assert len(shown) == 2
    assert "8.00 s" not in shown[0]
    assert shown[1].split()[-6:] == ["virtual", "7", "completed", "pass", "8.00", "s"]
    assert runs[-1].path.name in "".join(lines)
    assert runs[0].path.name not in "".join(lines)
    assert any(line.startswith("2 older runs") for line in lines)


def test_list_shows_a_broken_directory_as_such(tmp_path: Path, capsys: Captured) -> None:
    """Runs with a torn or missing manifest, or torn results, do not hide the other runs."""
    good, without_end = past_run(tmp_path), past_run(tmp_path)
    (without_end.path / "results.json").write_text("{")
    (tmp_path / "small" / "half").mkdir()
    (tmp_path / "small" / "half" / "manifest.json").write_text('{"format": 1')
    (tmp_path / "small" / "empty").mkdir()

    assert run_cli(["list", "--runs", str(tmp_path)]) == EXIT_PASS

    output = " ".join(capsys.readouterr().out.split())
    assert output.count(" completed ") == 2
    assert good.path.name in output
    for broken in ("half/manifest.json", "small/empty", f"{without_end.path.name}/results.json"):
        assert broken in output.partition("set aside")[2]


def test_list_as_json_has_experiments_runs_and_unreadable_directories(
    tmp_path: Path, capsys: Captured
) -> None:
    """Scripts rely on the keys of the document."""
    analysed_run(tmp_path, fault_summary(values={"commit gap": [8 * S]}, members=2))
    (tmp_path / "small" / "empty").mkdir()

    assert run_cli(["list", "--runs", str(tmp_path), "--json"]) == EXIT_PASS

    document = json.loads(capsys.readouterr().out)
    assert "coordinator_crash" in {listed["name"] for listed in document["experiments"]}
    (run,) = document["runs"]
    assert (run["experiment"], run["status"], run["verdict"]) == ("small", "completed", "pass")
    assert (run["commit_gap_us"], document["runs_total"]) == (8 * S, 1)
    assert len(document["unreadable"]) == 1


def test_list_without_runs_prints_a_hint(tmp_path: Path, capsys: Captured) -> None:
    """`list` may be a new user's first command, to which an empty output would explain nothing."""
    assert run_cli(["list", "--runs", str(tmp_path / "runs")]) == EXIT_PASS
    assert f"no runs in {tmp_path / 'runs'} yet" in " ".join(capsys.readouterr().out.split())
