"""A broker crashes at 3,000 random points while it writes to its disk.

Wherever the broker crashes, the disk must have a prefix of the writes: all writes up to some write,
complete and in their order.
"""

import time
from pathlib import Path

import pytest

from tests.support.random_worlds.storage_crashes import check_crash_points
from tests.support.soak import say

pytestmark = [pytest.mark.soak, pytest.mark.timeout(600)]

POINTS = 3_000
FIRST_SEED = 10_000
"""The seed of the first point. The automatic checks (CI) use other points: the seeds 0 to 299."""


def test_crash_points_leave_a_prefix_of_the_writes(tmp_path: Path) -> None:
    """`check_crash_points` fails at a point if the disk has anything but a prefix of the writes."""
    began_s = time.monotonic()
    report = check_crash_points(POINTS, FIRST_SEED, tmp_path)
    wall_s = time.monotonic() - began_s
    say(
        f"{report.points:,} crash points of file storage left a prefix of what was written, and "
        f"a disk that can be written, in {wall_s:.0f} s"
    )
    ends = [f"{end} {points:,}" for end, points in sorted(report.ends.items())]
    say("ended by " + ", ".join(ends))
    steps = [f"{step} {points:,}" for step, points in sorted(report.steps.items())]
    say("hit in " + ", ".join(steps))
    say(
        f"{report.torn_tails:,} writes cut short; {report.batches_lost:,} batches lost, "
        f"{report.batches_kept:,} kept"
    )
    assert report.points == POINTS
