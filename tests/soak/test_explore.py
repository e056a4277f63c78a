"""A search of 20,000 random runs in virtual time (a simulated clock) must find no broken promise.

The search draws each run from a space: a file that says which faults, settings and numbers may be
chosen. The seed of a run decides all these choices. Some runs are played again in another process,
and must give the same result. The runs must also be varied enough. A coverage mark names a rare
situation, and at least one run must reach each mark.
"""

import json
import subprocess
import sys
from typing import Any

import pytest

from tests.support.soak import ROOT, SAVED_RESULTS, code_id, say

pytestmark = [pytest.mark.soak, pytest.mark.timeout(3_500)]

SPACE = "standard"
DRAWN = 20_000
TIME_LIMIT = "55m"
"""After this time the search ends. Another `make soak PART=explore` continues the search."""


def test_drawn_schedules_of_the_standard_space_break_no_promise() -> None:
    """The command `coordlab explore` finds nothing, because no guard is off in this space.

    (A guard is a safety rule of Kafka, which an experiment may switch off.) The command continues
    an earlier search if this search was interrupted.
    """
    folder = SAVED_RESULTS / "explore" / code_id()
    interrupted_search = folder / SPACE / "latest"
    if interrupted_search.exists():
        search = ["--resume", str(interrupted_search)]
    else:
        search = [SPACE, "--explorations", str(folder)]
    done = subprocess.run(
        [
            *(sys.executable, "-m", "coordlab", "explore", *search),
            *("--count", str(DRAWN), "--time-limit", TIME_LIMIT, "--json"),
        ],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    results = json.loads(done.stdout)["results"]
    say_exploration(results)

    assert results["findings"] == []
    # coordlab itself failed in no run, the result of no seed was lost, and no seed gave another
    # result when it was played again.
    assert results["broken"] == []
    assert results["lost"] == {}
    assert results["rechecks"]["different"] == []
    # A search that did not finish in time must not count as a search that found nothing.
    if results["seeds"] < DRAWN:
        pytest.fail(f"{results['seeds']:,} of {DRAWN:,} seeds are done: once more goes on")
    # One run of twenty was played again, with an equal result.
    assert results["rechecks"]["equal"] == results["rechecks"]["runs"]
    assert results["rechecks"]["runs"] >= DRAWN // 20
    assert results["marks_unreached"] == []
    assert done.returncode == 0


def say_exploration(results: dict[str, Any]) -> None:
    """Print the results of a search of the standard space."""
    runs = ", ".join(f"{number:,} {name}" for name, number in results["runs"].items() if number)
    say(
        f"**explore {SPACE}**: {results['seeds']:,} of {DRAWN:,} seeds: {runs}; "
        # An hour has 3.6e9 microseconds. The time is that of the runs' simulated clocks.
        f"{results['virtual_us'] / 3.6e9:,.0f} hours of the runs' own time, "
        f"{results['faults_hit']:,} faults hit, {results['commits']:,} commits acknowledged"
    )
    say(
        f"{results['busy_s'] / 60:,.0f} minutes of a processor: "
        f"{60 * results['seeds'] / max(results['busy_s'], 1):,.0f} runs a minute and core"
    )
    rechecks = results["rechecks"]
    say(
        f"played twice: {rechecks['runs']:,}, in another process {rechecks['in_another_process']:,}"
        f", equal {rechecks['equal']:,}"
    )
    say(
        f"coverage marks reached: {len(results['marks']) - len(results['marks_unreached'])} of "
        f"{len(results['marks'])}; never: {', '.join(results['marks_unreached']) or 'none'}"
    )
    rare = sorted(results["marks"], key=lambda mark: mark["runs"])[:5]
    say("the rarest: " + ", ".join(f"{mark['mark']} {mark['runs']:,}" for mark in rare))
    excused = [f"{excuse} {runs_excused:,}" for excuse, runs_excused in results["excused"].items()]
    say("runs in which an excuse applied: " + ("; ".join(excused) or "none"))
    for found in results["findings"]:
        say(
            f"found {found['name']} in {found['runs']:,}, e.g. seed {found['example_seed']}: "
            f"{found['summary']}"
        )
    for unknown in results["unknown"]:
        say(f"unknown in {unknown['runs']:,}, e.g. seed {unknown['seeds'][0]}: {unknown['reason']}")
