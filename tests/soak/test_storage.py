"""3,000 random crash points in the writes of a broker's disk.

After a crash at any point the disk must have a prefix of the writes: the first ones, whole and in
their order.
"""

import time
from pathlib import Path

import pytest

from tests.support.random_worlds.storage_crashes import check_crash_points
from tests.support.soak import say

pytestmark = [pytest.mark.soak, pytest.mark.timeout(600)]

POINTS = 3_000
FIRST_SEED = 10_000
"""Seed of the first point; the 300 points of CI begin at 0, so that these are others."""


def test_crash_points_leave_a_prefix_of_the_writes(tmp_path: Path) -> None:
    """Each crash point leaves a prefix of the writes, and never anything else."""
    began_s = time.monotonic()
    report = check_crash_points(POINTS, FIRST_SEED, tmp_path)
    wall_s = time.monotonic() - began_s
    say(
        f"{report.points:,} crash points of file storage left a prefix of what was written, and "
        f"a disk that can be written, in {wall_s:.0f} s"
    )
    say("ended by " + ", ".join(f"{end} {n:,}" for end, n in sorted(report.ends.items())))
    say("hit in " + ", ".join(f"{step} {n:,}" for step, n in sorted(report.steps.items())))
    say(
        f"{report.torn_tails:,} writes cut short; {report.batches_lost:,} batches lost, "
        f"{report.batches_kept:,} kept"
    )
    assert report.points == POINTS
