"""`coordlab list` shows the past runs, each with the name by which other commands find it.

The name of a run is the name of its directory, such as `crash/2026-01-01T10-00-00.000Z`. A run that
passed has a `*` if something bad happened in the run that no promise forbids: for example, two
members owned a partition at the same time. A line below the list explains the `*`.
"""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from chaos.results.run_directory import NotARun
from coordlab.cli import run_cli
from coordlab.options import find_run, named_runs
from coordlab.seed_names import seeds_text
from pipeline.summary.outcomes import Owners
from pipeline.summary.summary_file import read_summary, write_summary
from results_schema.results import EXIT_PASS, Verdict
from tests.support.builders.past_runs import analysed_run
from tests.support.builders.report_rows import S

TWO_OWNERS = Owners(
    group="g",
    partitions=1,
    first_coordinator=("broker-2", 0),
    first_consumers=("consumer-0",),
    second_coordinator=("broker-0", 1),
    second_consumers=("consumer-1",),
    from_us=10 * S,
    to_us=39 * S,
    longest_us=29 * S,
    records_both=7,
    healed_us=None,
)
"""Two members owned a partition from 10 s to 39 s; two coordinators had assigned it to them."""


@pytest.mark.parametrize(("verdict", "marked"), [(Verdict.PASS, True), (Verdict.VIOLATED, False)])
def test_pass_with_two_owners_is_marked(
    verdict: Verdict, marked: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`pass` alone would hide that a partition had two owners.

    A violated run needs no mark, because its reader looks at the run anyway.
    """
    run = analysed_run(tmp_path, verdict=verdict)
    summary = read_summary(run.path)
    assert summary is not None
    write_summary(replace(summary, owners=(TWO_OWNERS,)))

    assert run_cli(["list", "--runs", str(tmp_path)]) == EXIT_PASS
    shown = capsys.readouterr().out
    assert run_cli(["list", "--runs", str(tmp_path), "--json"]) == EXIT_PASS
    (listed,) = json.loads(capsys.readouterr().out)["runs"]

    assert (f"{verdict.value} *" in shown) is marked
    assert ("* passed, and felt two owners at once" in " ".join(shown.split())) is marked
    caveat = "two members owned a partition of g at once for 29.00 s"
    assert listed["caveats"] == ([caveat] if marked else [])


@pytest.mark.slow
def test_runs_of_several_seeds_are_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The runs of one command with `--seeds` are one line. The JSON has each of these runs.

    Twenty lines for twenty seeds would hide all other runs.
    """
    monkeypatch.setenv("COLUMNS", "130")  # on a narrow terminal a run has several lines
    # The variables make the experiment small, so that it is played in a moment.
    variables = (
        "groups.orders-readers.members=1",
        "topics.orders.partitions=1",
        "faults[0].duration=1s",
    )
    run_small = ["run", "coordinator_crash", "--runtime", "virtual", "--runs", str(tmp_path)]
    run_small += ["--no-analyze", *(f"--var={variable}" for variable in variables)]
    assert run_cli([*run_small, "--seed", "5"]) == EXIT_PASS
    assert run_cli([*run_small, "--seeds", "1..3", "--workers", "1"]) == EXIT_PASS
    capsys.readouterr()

    # All seeds of a command count as one run for `--limit`.
    assert run_cli(["list", "--runs", str(tmp_path), "--limit", "2"]) == EXIT_PASS
    shown = capsys.readouterr().out
    assert run_cli(["list", "--runs", str(tmp_path), "--limit", "1", "--json"]) == EXIT_PASS
    listed = json.loads(capsys.readouterr().out)

    (line,) = [line for line in shown.splitlines() if "1..3" in line]
    name, *cells = line.split()
    assert cells == ["virtual", "1..3", "completed", "pass"]
    # One line is about seed 5, and the other about the seeds 1 to 3.
    assert sum(line.startswith("coordinator_crash/") for line in shown.splitlines()) == 2
    assert "their directories end in -seed-N" in shown
    assert [run.manifest.seed for run in named_runs([Path(name)], tmp_path)] == [1, 2, 3]
    assert "older" not in shown
    assert [run["seed"] for run in listed["runs"]] == [1, 2, 3]
    assert listed["runs_total"] == 4


@pytest.mark.parametrize(
    ("seeds", "text"), [([7], "seed 7"), ([2, 1], "seeds 1..2"), ([9, 1, 2, 3], "seeds 1..3,9")]
)
def test_seeds_are_printed_in_the_form_of_the_option(seeds: list[int], text: str) -> None:
    """Consecutive seeds are printed as a range."""
    assert seeds_text(seeds) == text


def test_name_of_a_run_is_never_truncated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Users copy the name, so on a narrow terminal the rest of the row has a line of its own."""
    name = analysed_run(tmp_path, verdict=Verdict.PASS).path.relative_to(tmp_path)
    shown = {}
    for width in ("40", "80", "200"):
        monkeypatch.setenv("COLUMNS", width)
        assert run_cli(["list", "--runs", str(tmp_path)]) == EXIT_PASS
        shown[width] = capsys.readouterr().out
        assert str(name) in shown[width]
    assert f"\n{name}\n  virtual, seed 7: completed, pass" in shown["40"]
    (line,) = [line for line in shown["200"].splitlines() if line.startswith(str(name))]
    assert line.split()[1:5] == ["virtual", "7", "completed", "pass"]


def test_name_in_a_list_finds_its_run(tmp_path: Path) -> None:
    """A run's name or directory finds the run; an experiment's name finds its latest run."""
    path = analysed_run(tmp_path, verdict=Verdict.PASS).path
    name = path.relative_to(tmp_path)
    experiment = name.parent
    for given in (name, path, experiment):
        assert find_run(given, tmp_path).path == path.resolve()


def test_name_of_no_run_gets_a_suggestion_and_a_place_to_look(tmp_path: Path) -> None:
    """The name that is given here lacks the last letter of the run's name."""
    path = analysed_run(tmp_path, verdict=Verdict.PASS).path
    name = path.relative_to(tmp_path)
    with pytest.raises(NotARun, match=f"did you mean `{name}`") as wrong:
        find_run(Path(str(name)[:-1]), tmp_path)
    assert f"list --runs {tmp_path}` shows them" in str(wrong.value)
