"""A machine's wall clock may jump during a run, and must not change what the run does.

A run in virtual time has a simulated clock. It reads the wall clock only for its manifest, the file
that says when the run began and ended. A run on Ray is in real time. The nodes of such a run read a
RunClock, which does not jump when the wall clock jumps.
"""

import json
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path

import pytest

from chaos.results import run_directory
from chaos.results.run_directory import PastRun, list_runs
from cluster.realtime.clock import RunClock
from coordlab.cli import run_cli
from results_schema.manifest import RunStatus

RUN = (
    *("run", "coordinator_crash", "--runtime", "virtual", "--no-analyze", "--seed", "3"),
    *("--var", "groups.orders-readers.members=3", "--var", "topics.orders.partitions=3"),
)
"""Command line of a small run, which takes little time."""
HOUR = timedelta(hours=1)


def jumping(step: timedelta) -> Iterator[datetime]:
    """Yield the time 2026-06-01 00:00, and then times that each differ by `step` from the last."""
    return (datetime(2026, 6, 1, tzinfo=UTC) + step * number for number in count())


def jump_clock(monkeypatch: pytest.MonkeyPatch, step: timedelta) -> None:
    """Let every reading of the wall clock differ by `step` from the last.

    The code that writes the manifest calls `_now`. Other code calls the functions of `time`.
    """
    moments = jumping(step)
    monkeypatch.setattr(run_directory, "_now", lambda: next(moments))
    monkeypatch.setattr(time, "time", lambda: next(moments).timestamp())
    monkeypatch.setattr(time, "time_ns", lambda: int(next(moments).timestamp() * 1e9))


def play_run(root: Path) -> PastRun:
    """Play RUN with `root` as the folder of runs, and return the run."""
    assert run_cli([*RUN, "--runs", str(root)]) == 0
    (past,) = list_runs(root)
    return past


@pytest.mark.slow
@pytest.mark.parametrize("step", [HOUR, -HOUR], ids=["forward", "back"])
def test_run_with_a_jumping_wall_clock_is_the_same_run(
    step: timedelta,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The run has the same events, faults and results as with a steady clock.

    The manifest's digest is a hash over all events, so equal digests mean equal events.
    """
    expected = play_run(tmp_path / "steady")
    with monkeypatch.context() as jumps:
        jump_clock(jumps, step)
        past = play_run(tmp_path / "jumping")
        capsys.readouterr()  # forget the output of the runs
        assert run_cli(["list", "--json", "--runs", str(tmp_path / "jumping")]) == 0
    (listed,) = json.loads(capsys.readouterr().out)["runs"]

    assert (listed["status"], listed["verdict"]) == ("completed", "pass")
    assert past.manifest.status is RunStatus.COMPLETED
    assert past.manifest.digest == expected.manifest.digest
    assert past.results() == expected.results()
    assert past.journal() == expected.journal()


def test_run_clock_advances_steadily_while_the_wall_clock_jumps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A RunClock reads the wall clock of its machine only once, at its start.

    After that it adds the monotonic time that has passed since the start, here 1.5 s.
    """
    monotonic_ns = 5_000_000_000
    monkeypatch.setattr(time, "monotonic_ns", lambda: monotonic_ns)
    clock = RunClock.starting_now()
    wall_us: Callable[[], int] = clock.wall_us
    began_us = wall_us()

    jump_clock(monkeypatch, -HOUR)
    monotonic_ns += 1_500_000_000

    assert clock.now_us() == 1_500_000
    assert wall_us() == began_us + 1_500_000
