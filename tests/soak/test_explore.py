"""20,000 drawn schedules of the standard space, in virtual time (a simulated clock).

A space is a file that says what a search may choose: faults, settings, numbers. Every seed draws
all these choices. All seeds must pass, and a few are played again in another process with the same
result. Results are kept. A coverage mark names a rare situation; a run that was in this situation
reaches the mark. A guard is a safety rule of Kafka's that an experiment can switch off.
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
"""Time after which the search ends; another `make soak PART=explore` continues the search."""


def test_drawn_schedules_of_the_standard_space_break_no_promise() -> None:
    """With every guard on no promise is broken, all marks are reached, repeated runs are equal.

    The command `explore` itself searches, and continues an interrupted search.
    """
    folder = SAVED_RESULTS / "explore" / code_id()
    begun = folder / SPACE / "latest"  # an interrupted search of this code
    search = ["--resume", str(begun)] if begun.exists() else [SPACE, "--explorations", str(folder)]
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
    # No run in which the tool failed, no seed without a result, no repeated seed with another
    # digest.
    assert (results["broken"], results["lost"], results["rechecks"]["different"]) == ([], {}, [])
    # An unfinished search fails the test, so that it is not taken for a result.
    if results["seeds"] < DRAWN:
        pytest.fail(f"{results['seeds']:,} of {DRAWN:,} seeds are done: once more goes on")
    # One run of twenty is played twice.
    assert results["rechecks"]["equal"] == results["rechecks"]["runs"]
    assert results["rechecks"]["runs"] >= DRAWN // 20
    assert results["marks_unreached"] == []
    assert done.returncode == 0


def say_exploration(results: dict[str, Any]) -> None:
    """Print the results of a search of the standard space into the record of the soak."""
    runs = ", ".join(f"{number:,} {name}" for name, number in results["runs"].items() if number)
    say(
        f"**explore {SPACE}**: {results['seeds']:,} of {DRAWN:,} seeds: {runs}; "
        # 3.6e9 microseconds are an hour.
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
