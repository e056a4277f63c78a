"""What `coordlab explore` shows: a panel or lines while it searches, and a summary at its end.

An exploration plays many runs to find a run that breaks a promise of Kafka's. Each run has a seed,
which draws a plan of faults from a file (the space).

- A finding is a broken promise. Similar findings have a common name, such as `fencing-1`.
- Some seeds are played a second time in another process, to prove that a run can be repeated.
- Coverage marks are rare situations that at least one run should reach. The more marks were
  reached, the more a search without findings means.

`passed(seed)`, `violated(seed)` and `inconclusive(seed, ...)` make the result of a run.
"""

import io
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from chaos.exploration.guided.guidance import Guidance
from chaos.exploration.marks.registry import expected_marks
from chaos.exploration.play import PlayedRun, PlayResult
from chaos.exploration.results import results_of
from chaos.exploration.running_totals import Tally
from chaos.exploration.search import SearchProgress, Stop
from chaos.exploration.store import ExplorationManifest, Lost, PlayedAgain, PlayedSeeds
from coordlab.commands.explore.live_view import (
    LINE_EVERY_S,
    exploration_panel,
    exploration_view,
    progress_text,
)
from coordlab.commands.explore.summary import print_exploration
from tests.support.harness.fan_out import inconclusive, passed, violated

MARKS = expected_marks(())
MANIFEST = ExplorationManifest(
    exploration="standard/then",
    space="standard",
    space_file="explorations/standard.yaml",
    first_seed=0,
    count=1_000,
    recheck_percent=5.0,
    code="0123456789abcdef",
    python="3.11",
    host="here",
    started_at="2026-01-01T00:00:00+00:00",
)


def tally_of_every_outcome() -> Tally:
    """Return the running totals of eleven seeds, with every possible outcome of a seed.

    - Seeds 0 to 4 pass. In the run of seed 4 the promise `liveness` was broken, but this is
      excused, because the promise need not hold if all members are dead.
    - Seeds 5 to 7 break promises.
    - Seed 8 is unknown, because the cluster did not become steady.
    - Seed 9 fails by an error of coordlab itself.
    - Seed 10 ends the process that plays it.

    Seeds 0 and 1 are played a second time. The second run of seed 1 has another result.
    """
    tally = Tally(100)  # 100 % of the seeds are to be played a second time
    runs = (
        *map(passed, range(4)),
        PlayedRun(seed=4, result=PlayResult.PASS, excused={"liveness: all members are dead": 2}),
        violated(5, claim="[bold]readers[/] lost an offset"),
        violated(6, claim="[bold]readers[/] lost an offset"),
        violated(7, check="liveness"),
        inconclusive(8, PlayResult.UNKNOWN, "no steady state within 60s"),
        inconclusive(9, PlayResult.BROKEN, "KeyError: 'x'"),
    )
    tally.take(PlayedSeeds(worker="here:1", busy_s=2.0, runs=runs))
    tally.take(PlayedAgain(worker="here:2", busy_s=1.0, runs=(passed(0), violated(1))))
    tally.take(Lost(seeds=(10,), why="the worker was killed"))
    return tally


def progress(tally: Tally, *, elapsed_s: float = 30.0, stop: Stop | None = None) -> SearchProgress:
    """Return the progress of a search: two workers have to play a thousand seeds."""
    return SearchProgress(
        tally=tally,
        workers=2,
        elapsed_s=elapsed_s,
        runs_here=tally.runs,
        runs_wanted=1_000,
        left_s=754.0,
        stop=stop,
    )


def printed(width: int) -> tuple[Console, io.StringIO]:
    """Return a console that is no terminal, and the buffer that it prints to."""
    out = io.StringIO()
    return Console(file=out, width=width), out


@pytest.mark.parametrize("width", [40, 80, 200])
def test_panel_shows_speed_findings_marks_rechecks_failures_and_time_left(width: int) -> None:
    """The panel shows the rate (11 runs in 30 s are 22 a minute) and the time left (754 s).

    The text of a finding may look like markup of the console, but is shown unchanged.
    """
    console, out = printed(width)
    console.print(exploration_panel("standard", progress(tally_of_every_outcome())))
    output = " ".join(out.getvalue().split())
    for part in (
        "exploring standard",
        "2 workers",
        "11 of 1,000 runs",
        "22 runs/min",
        "2 findings in 3 runs",
        "12 min 34 s left",
        f"coverage marks 0/{len(MARKS)}",
        "played twice, equal 1/2",
        "fencing-1 2 runs, e.g. seed 5: [bold]readers[/] lost an offset 5",
        "BROKEN in 1: KeyError: 'x'",
        "BROKEN seed 1: not deterministic",
        "BROKEN seed 10 ends its worker: the worker was killed",
    ):
        assert part in output, part
    assert all(len(line) <= width for line in out.getvalue().splitlines())


def test_panel_of_a_stopping_search_names_what_it_waits_for() -> None:
    """After the time limit the workers still finish the runs that they are playing.

    So the panel says that they finish, and not how much time is left.
    """
    console, out = printed(100)
    console.print(exploration_panel("standard", progress(Tally(0), stop=Stop.TIME_LIMIT)))
    assert "the time limit was reached: finishing what is being played" in out.getvalue()
    assert " left" not in progress_text(progress(Tally(0), stop=Stop.TIME_LIMIT))


def test_without_a_terminal_each_finding_is_a_line_with_progress_between() -> None:
    """A finding or a failure is printed at once, and the progress every LINE_EVERY_S seconds.

    The first line is the progress at 0 s; the call at 1 s has nothing new to print.
    """
    console, out = printed(200)
    tally = Tally(0)
    with exploration_view(console, "standard") as view:
        view(progress(tally, elapsed_s=0.0))
        view(progress(tally, elapsed_s=1.0))
        tally.take(PlayedSeeds(worker="here:1", busy_s=1.0, runs=(violated(5), violated(6))))
        view(progress(tally, elapsed_s=2.0))
        tally.take(Lost(seeds=(10,), why="killed"))
        view(progress(tally, elapsed_s=3.0))
        view(progress(tally, elapsed_s=LINE_EVERY_S + 0.5))
    # Each line begins with its time: "2.0 s  fencing-1: ...".
    lines = [line.split(" s  ", 1)[1] for line in out.getvalue().splitlines()]
    progress_at_0_s, finding, failure, progress_at_the_end = lines
    assert progress_at_0_s.startswith("0 of 1,000")
    assert finding == "fencing-1: it broke 5 (seed 5)"
    assert failure == "the lab itself failed: seed 10 ends its worker: killed"
    # There are three seeds: two with a finding, and one that ended its worker.
    assert progress_at_the_end.startswith("3 of 1,000")


@pytest.mark.parametrize("width", [40, 100])
def test_summary_lists_findings_failures_marks_and_the_command_to_resume(width: int) -> None:
    """The summary of a search that was interrupted.

    The reasons of unknown runs stand above the counts, directly below the verdict, because they
    limit what the verdict says.
    """
    console, out = printed(width)
    path = Path("runs/explorations/standard/then")
    results = results_of(
        tally_of_every_outcome(),
        Stop.INTERRUPTED,
        path,
        elapsed_s=30.0,
        runs_per_minute=22.0,
        workers=2,
    )
    print_exploration(console, path, MANIFEST, results)
    lines = out.getvalue().splitlines()
    output = " ".join(out.getvalue().split())
    for part in (
        "INTERRUPTED, VIOLATED so far 11 runs of standard from seed 0: it was interrupted",
        "5 pass, 3 violated, 1 unknown, 2 broken",
        # All seeds are to be played twice. Ten seeds have a result, and two of the ten were
        # compared.
        "2 seeds played twice (2 in another process): 1 gave the same; 8 still to be compared",
        "fencing-1 2 runs, seeds 5, 6",
        "[bold]readers[/] lost an offset 5",
        "coordlab itself failed; this says nothing about Kafka",
        "in 1 run (9): KeyError: 'x'",
        "seed 10 ended its worker twice: the worker was killed",
        # Only the results of the two runs of seed 1 differ. Their digests (0001) are equal, because
        # the builders make the digest from the seed.
        "seed 1 is not deterministic: digest 0001 by here:1, 0001 by here:2; what differs: result,",
        # N stands for any number, so that equal reasons are counted together.
        "unknown in 1 run (8): no steady state within Ns",
        "excused in 1 run: liveness: all members are dead",
        f"coverage marks reached: 0 of {len(MARKS)}",
        f"never reached: {next(iter(MARKS))} (",
    ):
        assert part in output, part
    assert _index_of("unknown in 1 run", lines) < _index_of("5 pass", lines)
    # A command to copy is on one line, however narrow the terminal is.
    assert f"  python -m coordlab replay {path}/findings/fencing-1.yaml" in lines
    assert f"  python -m coordlab shrink {path}/findings/fencing-1.yaml" in lines
    assert f"to go on: python -m coordlab explore --resume {path}" in lines


def _index_of(text: str, lines: list[str]) -> int:
    """Return the index of the first line that contains `text`."""
    return next(index for index, line in enumerate(lines) if text in line)


def test_summary_of_a_finished_search_has_no_command_to_resume() -> None:
    """If every seed was played, the summary has no command that resumes the search."""
    console, out = printed(100)
    tally = Tally(0)
    tally.take(PlayedSeeds(worker="here:1", busy_s=9.0, runs=tuple(map(passed, range(1_000)))))
    results = results_of(
        tally, Stop.COUNT, Path("x"), elapsed_s=60.0, runs_per_minute=1_000.0, workers=2
    )
    print_exploration(console, Path("x"), MANIFEST, results)
    assert "PASS  1,000 runs of standard from seed 0: every seed was played" in out.getvalue()
    assert "to go on" not in out.getvalue()
    assert "coordlab itself failed" not in out.getvalue()


def test_summary_lists_rare_situations_and_names_mutated_seeds_by_their_lineage() -> None:
    """Some runs do not draw a plan, but change (mutate) the plan of an earlier run.

    Such a run is named by its lineage: 12-200 is the plan of seed 12, changed by seed 200. Seed 200
    alone would draw another plan.

    Here 200 runs drew their plans, and two are mutated. One of the two reaches a mark that no drawn
    plan reached, so half of the mutated runs (0.50) reached something rare.
    """
    common_mark, rare_mark = sorted(list(MARKS)[:2])
    drawn = [msgspec.structs.replace(passed(seed), marks=(common_mark,)) for seed in range(200)]
    reaches_rare_mark = msgspec.structs.replace(passed(200), marks=(rare_mark,), lineage=(12, 200))
    with_finding = msgspec.structs.replace(violated(201), lineage=(12, 200, 201))
    record = PlayedSeeds(
        worker="here:1", busy_s=2.0, runs=(*drawn, reaches_rare_mark, with_finding)
    )
    # No seed is played a second time; a quarter of the seeds are mutated.
    tally, guidance = Tally(0), Guidance(0.25)
    tally.take(record)
    guidance.take(record)

    console, out = printed(200)
    results = results_of(
        tally,
        Stop.COUNT,
        Path("x"),
        elapsed_s=60.0,
        runs_per_minute=200.0,
        workers=2,
        guidance=guidance,
    )
    print_exploration(console, Path("x"), MANIFEST, results)
    output = " ".join(out.getvalue().split())
    for part in (
        "fencing-1 1 run, seed 12-200-201",
        f"rare: {rare_mark}, 1 run (1 mutated)",
        "2 runs of plans mutated from 2 plans; 1 plan kept now",
        "rare marks and pairs in each: 0.50 mutated, 0.00 drawn meanwhile",
        f"reached by mutated plans alone: {rare_mark}",
    ):
        assert part in output, (part, output)
