"""`coordlab run --seeds 1..20` plays an experiment with several seeds, and sums up their runs.

The command prints the seeds that passed, and the median of each figure over all seeds. The figures
of these tests are `detect` (how long the controller needed to notice a crash) and `commit gap` (how
long a member could not commit). One run is chosen as the representative run: its report stands for
the reports of all runs. The command also writes a JSON document, and a JUnit file for CI systems.

Times are microseconds, and S is one second.
"""

import io
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from chaos.results.run_directory import PastRun
from coordlab.commands.run.seed_runs import SeedRun, SeedRuns, SeedState
from coordlab.commands.run.seeds_view import print_seed_figures, print_seed_runs
from pipeline.summary.felt import Felt, FeltGroup, Spread
from pipeline.summary.figures import RunSummary
from results_schema.results import CheckOutcome, CheckReport, Finding, RunOutcome, Verdict
from tests.support.builders.past_runs import past_run, results
from tests.support.builders.report_rows import S, fault_summary, summary_of

FINDING = Finding(check="fencing", summary="an old leader appended", time_us=7)


def crash(seed: int, detect_us: int, *, join_us: int | None = None) -> RunSummary:
    """Return the summary of a run in which the coordinator crashed.

    The commit gap is 1 s longer than `detect`. Members had to join again only if `join_us` is
    given.
    """
    values = {"detect": [detect_us], "commit gap": [detect_us + S]}
    if join_us is not None:
        values["join"] = [join_us]
    return summary_of(f"x/{seed}", fault_summary(values=values, partitions_moved=1, members=12))


def seed_run(
    seed: int,
    verdict: Verdict = Verdict.PASS,
    *,
    detect_us: int = 8 * S,
    outcome: RunOutcome = RunOutcome.COMPLETED,
    reasons: tuple[str, ...] = (),
    past: PastRun | None = None,
) -> SeedRun:
    """Return the result of one seed; `past` is its run directory, if it wrote one."""
    violated = verdict is Verdict.VIOLATED
    # A violated check had two findings, and the run kept the first of them.
    check = CheckReport(
        check="fencing",
        outcome=CheckOutcome.VIOLATED if violated else CheckOutcome.PASS,
        findings=(FINDING,) if violated else (),
        findings_total=2 if violated else 0,
    )
    return SeedRun(
        seed=seed,
        replay=f"coordlab run x --seed {seed}",
        results=results(check, verdict=verdict, outcome=outcome, reasons=reasons),
        summary=crash(seed, detect_us),
        past=past,
    )


def runs(*played: SeedRun, interrupted: bool = False) -> SeedRuns:
    """Return the results of all seeds of a command, which may have been ended by Ctrl-C."""
    return SeedRuns(experiment="x", runtime="virtual", runs=played, interrupted=interrupted)


def printed(played: SeedRuns, width: int = 80) -> str:
    """Return the output of the command on a terminal: first the seeds, then the figures."""
    shown = Console(file=io.StringIO(), width=width, no_color=True)
    print_seed_runs(shown, played)
    summaries = [run.summary for run in played.finished if run.summary is not None]
    print_seed_figures(shown, played.figures(summaries), len(summaries))
    assert isinstance(shown.file, io.StringIO)
    return shown.file.getvalue()


UNKNOWN = seed_run(2, Verdict.UNKNOWN, reasons=("the fault hit nobody",))
VIOLATED = seed_run(3, Verdict.VIOLATED)
FAILED = replace(seed_run(4), failure="Traceback ...\nOSError: No space left on device")
NOT_PLAYED = SeedRun(seed=5, replay="coordlab run x --seed 5")


@pytest.mark.parametrize(
    ("seeds", "code"),
    [
        (runs(seed_run(1)), 0),
        (runs(seed_run(1), UNKNOWN), 2),
        (runs(seed_run(1), UNKNOWN, VIOLATED), 1),
        (runs(VIOLATED, FAILED), 255),
        (runs(VIOLATED, seed_run(6, outcome=RunOutcome.INTERNAL_ERROR)), 255),
        (runs(seed_run(1), NOT_PLAYED, interrupted=True), 130),
        (runs(seed_run(1), seed_run(6, outcome=RunOutcome.INTERRUPTED)), 130),
    ],
    ids=[
        "all passed",
        "one is unknown",
        "one is violated",
        "a seed could not be played",
        "a run failed by an error of the tool",
        "the command was interrupted",
        "a run was interrupted",
    ],
)
def test_exit_code_is_that_of_the_worst_seed(seeds: SeedRuns, code: int) -> None:
    """The exit codes of single runs, the worst first.

    - 130: the run was interrupted.
    - 255: coordlab itself failed.
    - 1: a promise of Kafka was violated.
    - 2: the run proves nothing.
    - 0: the run passed.

    With 130 and 255 there is no verdict about Kafka.
    """
    assert seeds.exit_code == code


def test_violated_seeds_come_first_each_with_its_command() -> None:
    """A user's next step is to play a violated seed alone, with its command."""
    lines = printed(runs(seed_run(1), UNKNOWN, VIOLATED, seed_run(7), seed_run(8))).splitlines()
    assert lines[1:8] == [
        "VIOLATED  x on virtual, 5 seeds: 1 violated, 1 unknown, 3 passed",
        "passed: seeds 1,7..8",
        "seed 3 violated: fencing: an old leader appended (and 1 more)",
        "  again: coordlab run x --seed 3",
        "seed 2 unknown: the fault hit nobody",
        "  again: coordlab run x --seed 2",
        "",
    ]
    # Below the seeds is a table with the numbers of seeds in which each check passed and in which
    # it was violated. The check `fencing` passed in four seeds: in the three seeds that passed, and
    # in seed 2, which is unknown for another reason. It is violated in seed 3.
    (row_of_fencing,) = [line for line in lines if line.startswith("fencing")]
    assert row_of_fencing.split() == ["fencing", "4", "1"]


def test_failure_of_the_tool_names_its_seed() -> None:
    """The terminal shows only the last line of the failure; the JSON document has all lines."""
    found = runs(seed_run(1), FAILED)
    assert "seed 4 failed: OSError: No space left on device" in printed(found)
    documents = found.document()["runs"]
    assert isinstance(documents, list)
    assert [run["failure"] for run in documents] == [None, FAILED.failure]


def test_each_figure_is_a_median_with_its_range() -> None:
    """A row has the figure's median over all seeds, and in brackets its smallest and largest value.

    If only some seeds have a value, the row also has their number: `1 of 3`.
    """
    joined = replace(seed_run(3), summary=crash(3, 9 * S, join_us=700_000))
    shown = printed(runs(seed_run(1, detect_us=7 * S), seed_run(2), joined))
    lines = [" ".join(line.split()) for line in shown.splitlines()]
    assert "median over 3 seeds (smallest to largest)" in lines
    # A run may have several values of a figure. The first column is about the median value of each
    # run, and the second column is about the largest value of each run. In this test each run has
    # one value of `detect`, so the columns are equal.
    assert "detect 8.00 s (7.00 to 9.00 s) 8.00 s (7.00 to 9.00 s)" in lines
    assert "join 700 ms 700 ms 1 of 3" in lines
    assert max(map(len, shown.splitlines())) <= 80


def test_figure_that_is_zero_in_all_seeds_is_shown() -> None:
    """The rows about waiting and repeated records are shown even if they are zero.

    Such a zero is a result: no partition waited, and no record was repeated. A zero of another
    figure, such as `without an owner`, is left out.
    """
    zero = Spread(samples=2, missing=0, p50=0, p90=None, maximum=0, total=0)
    names = ("without an owner", "no processing despite records", "records processed again")
    group = FeltGroup(
        partitions=2,
        rebalances=0,
        moved=0,
        came_back=0,  # partitions that returned to a former owner
        sent_away=0,  # removals of members that ran and could be reached
        spreads=dict.fromkeys(names, zero),
    )
    felt = Felt(in_all=group, groups={"g": group})
    seeds = [
        replace(run, summary=replace(run.summary, felt=felt))
        for run in (seed_run(1), seed_run(2))
        if run.summary is not None
    ]
    lines = [" ".join(line.split()) for line in printed(runs(*seeds)).splitlines()]
    assert "no processing despite records 0 0 0" in lines
    assert "records processed again 0 0 0" in lines
    assert not any(line.startswith("without an owner") for line in lines)


def test_interrupted_seed_is_reported_once() -> None:
    """The state of the seed is `interrupted`. So its reason, the same word, is left out."""
    run = seed_run(6, outcome=RunOutcome.INTERRUPTED, reasons=("interrupted",))
    assert run.why == ""


def test_representative_run_is_the_first_violated_one() -> None:
    """Seeds 3 and 6 are violated, so 3 is chosen. Figures decide only if no seed is violated."""
    played = runs(seed_run(1), VIOLATED, seed_run(6, Verdict.VIOLATED))
    chosen = played.chosen(summaries={})
    assert chosen is not None
    assert (chosen.run.seed, chosen.because) == (3, "the first seed with a violation")


def test_without_a_violation_the_median_run_is_representative() -> None:
    """Runs are ordered by their longest time to detect, and the one in the middle is chosen.

    Runs without figures are ordered by their length. A run that failed cannot be representative.
    """
    played = runs(seed_run(1), seed_run(2), seed_run(3))
    summaries = {1: crash(1, 7 * S), 2: crash(2, 9 * S), 3: crash(3, 8 * S)}
    chosen = played.chosen(summaries)
    assert chosen is not None
    assert (chosen.run.seed, chosen.because) == (3, "its longest detect, 8.00 s, is the median")
    chosen_by_length = played.chosen(summaries={})
    assert chosen_by_length is not None
    assert chosen_by_length.because.startswith("its length, ")
    assert runs(FAILED).chosen(summaries={}) is None


def test_document_has_figures_and_every_seed(tmp_path: Path) -> None:
    """The JSON document is for programs. It has the outcome of each seed, and figures with units.

    Seed 1 passed and has a run directory, seed 3 is violated, and seed 5 was not played.
    """
    past = PastRun(past_run(tmp_path).path)
    played = runs(seed_run(1, past=past), VIOLATED, NOT_PLAYED, interrupted=True)
    document = played.document()
    seeds = document["seeds"]
    assert isinstance(seeds, dict)
    seeds_by_state = {state: numbers for state, numbers in seeds.items() if numbers}
    assert seeds_by_state == {
        "passed": [1],
        "violated": [3],
        "not played": [5],
    }
    figures = document["figures"]
    assert isinstance(figures, list)
    (detect,) = (
        figure for figure in figures if (figure["figure"], figure["statistic"]) == ("detect", "max")
    )
    assert detect == {
        "fault": "crash",
        "section": "broker",
        "group": "broker",
        "figure": "detect",
        "statistic": "max",
        "unit": "us",
        "median": 8 * S,
        "smallest": 8 * S,
        "largest": 8 * S,
        "seeds": 2,
    }
    assert document["checks"] == {
        "fencing": {"pass": 1, "violated": 1, "inconclusive": 0, "nothing_seen": 0}
    }
    documents = document["runs"]
    assert isinstance(documents, list)
    assert [run["run_directory"] for run in documents] == [str(past.path), None, None]


def test_junit_has_a_suite_for_each_seed_and_only_a_passed_seed_has_a_green_one(
    tmp_path: Path,
) -> None:
    """A violated seed has a failure. A seed that failed, or was not played, has an error."""
    past = PastRun(past_run(tmp_path).path)
    played = runs(replace(seed_run(1), past=past), replace(VIOLATED, past=past), FAILED, NOT_PLAYED)
    root = ET.fromstring(played.junit())
    failures_and_errors = {
        suite.get("name"): (suite.get("failures"), suite.get("errors"))
        for suite in root.iterfind("testsuite")
    }
    assert failures_and_errors == {
        "coordlab.x.seed-1": ("0", "0"),
        "coordlab.x.seed-3": ("1", "0"),
        "coordlab.x.seed-4": ("0", "1"),
        "coordlab.x.seed-5": ("0", "1"),
    }
    assert (root.get("failures"), root.get("errors")) == ("1", "2")


def test_seed_whose_run_wrote_no_results_has_a_state(tmp_path: Path) -> None:
    """A seed that has a run directory, but no results, was interrupted.

    This happens after a second Ctrl-C, which ends the seed's process before it writes its results.
    """
    past = PastRun(past_run(tmp_path).path)
    assert replace(NOT_PLAYED, past=past).state is SeedState.INTERRUPTED
    assert NOT_PLAYED.state is SeedState.NOT_PLAYED
