"""The commands `report` and `list`, which show the user past runs.

A report is made from tables. Spark computes these tables from the events of a run, and Spark needs
Java. If a run already has its tables, its report can be made without Java. To show this, most tests
hide Java.

`analysed_run(root)` writes the folder of a run with tables, and `past_run(root)` writes the folder
of a run without tables. By default it is a run of the experiment `small`, and the folder is
root/small/RUN.

The figure that the tests look for in the output is the commit gap of a fault: the time from a
member's last acknowledged commit before the fault to its first acknowledged commit after the fault.
S is a second in microseconds.
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
    """A run may have been copied from another machine, where its tables were computed."""
    run = analysed_run(tmp_path / "runs")

    assert run_cli(["report", str(run.path)]) == EXIT_PASS

    page = run.path / "report.html"
    assert capsys.readouterr().out == f"report: {page}\n"
    text = page.read_text()
    assert text.lower().startswith("<!doctype html>")
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
    """Each run also gets its own page. A run that is named twice counts once."""
    root = tmp_path / "runs"
    slow = experiment(name="slow")
    # Each run has two members, of which only one has a commit gap.
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

    # root/slow, the folder of the experiment `slow`, stands for the newest run of this experiment:
    # the second run. So the command names the second run twice.
    newest_slow_run = str(root / "slow")
    assert run_cli(["report", *paths, newest_slow_run, "--runs", str(root)]) == EXIT_PASS

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
    """With `--json` the output is one document, which a script can read."""
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
    """The run has no tables, and without Java they cannot be computed. So no page is written.

    The exit code is that of arguments that cannot be used. Exit codes for verdicts about Kafka, or
    for errors of coordlab, would be wrong.
    """
    run = past_run(tmp_path / "runs")

    for command in ("report", "analyze"):
        assert run_cli([command, str(run.path)]) == EXIT_BAD_ARGUMENTS
        output = " ".join(capsys.readouterr().err.split())
        assert "Install Java 17 or newer" in output
        assert "Traceback" not in output
    assert not (run.path / "report.html").exists()


def test_tables_of_other_events_or_of_another_version_are_not_current(tmp_path: Path) -> None:
    """A report computes tables anew if they are incomplete or of another version of the program.

    Tables that were computed while the run still went on lack its later rows. Another version may
    make other tables.
    """
    run = analysed_run(tmp_path)
    assert current_summary(run.path) is not None

    write_rows(run, EVENTS + 1)  # one row more than the tables were made of
    assert current_summary(run.path) is None

    write_rows(run, EVENTS)
    assert current_summary(run.path) is not None

    # One of this version's tables is missing, as if an older version had made the tables.
    (run.path / "tables" / "verdicts").rename(tmp_path / "elsewhere")
    assert current_summary(run.path) is None


def test_tables_of_a_run_whose_events_are_damaged_are_not_current(tmp_path: Path) -> None:
    """Tables cannot be compared with events that became unreadable after the analysis."""
    run = analysed_run(tmp_path)
    # A file of Parquet begins and ends with these bytes. Here there is nothing between them.
    (run.events / EVENTS_FILE).write_bytes(b"PAR1")
    assert current_summary(run.path) is None


@pytest.mark.usefixtures("no_java")
def test_report_with_open_prints_the_path_if_no_browser_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    """The command tries to open a browser. A server has no browser; the exit code is still 0."""
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
    """The page cannot be written, because `file` is no folder: this is an error of the user."""
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
    # Each reading of this clock is one second later, so the runs have different times.
    moments = (datetime(2026, 1, 2, 3, 4, tzinfo=UTC) + timedelta(seconds=n) for n in count())
    monkeypatch.setattr(run_directory, "_now", lambda: next(moments))
    gap = fault_summary(values={"commit gap": [8 * S, 3 * S]}, members=2)
    runs = [past_run(tmp_path) for _ in range(3)] + [analysed_run(tmp_path, gap)]

    assert run_cli(["list", "--runs", str(tmp_path), "--limit", "2"]) == EXIT_PASS

    lines = capsys.readouterr().out.splitlines()
    run_lines = [line for line in lines if " completed " in line]
    assert len(run_lines) == 2
    assert "8.00 s" not in run_lines[0]
    # The columns are runtime, seed, status, verdict, and the commit gap with its unit.
    assert run_lines[1].split()[-6:] == ["virtual", "7", "completed", "pass", "8.00", "s"]
    assert runs[-1].path.name in "".join(lines)
    assert runs[0].path.name not in "".join(lines)
    assert any(line.startswith("2 older runs") for line in lines)


def test_list_shows_a_broken_directory_as_such(tmp_path: Path, capsys: Captured) -> None:
    """Runs with a torn or missing manifest, or torn results, do not hide the other runs.

    A torn file lacks its end, as if the program had been killed while it wrote the file.
    """
    good, without_end = past_run(tmp_path), past_run(tmp_path)
    (without_end.path / "results.json").write_text("{")
    (tmp_path / "small" / "half").mkdir()
    (tmp_path / "small" / "half" / "manifest.json").write_text('{"format": 1')
    (tmp_path / "small" / "empty").mkdir()

    assert run_cli(["list", "--runs", str(tmp_path)]) == EXIT_PASS

    output = " ".join(capsys.readouterr().out.split())
    # The status `completed` is in the manifest, so the run with torn results is listed, too.
    assert output.count(" completed ") == 2
    assert good.path.name in output
    for broken in ("half/manifest.json", "small/empty", f"{without_end.path.name}/results.json"):
        assert broken in output.partition("set aside")[2]


def test_list_as_json_has_experiments_runs_and_unreadable_directories(
    tmp_path: Path, capsys: Captured
) -> None:
    """The document has exactly these keys, because scripts rely on them."""
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
    """`list` may be a new user's first command. An empty output would explain nothing to them."""
    assert run_cli(["list", "--runs", str(tmp_path / "runs")]) == EXIT_PASS
    assert f"no runs in {tmp_path / 'runs'} yet" in " ".join(capsys.readouterr().out.split())
