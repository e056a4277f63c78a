"""One member of a group on ZooKeeper joins or dies, over many seeds, beside measurements.

The measured values (docs/kafka/MEASURED_ZOOKEEPER.md) are medians of three runs of the real
programs. The seeds play the same change of a simulated group. Two rules compare them:

1. Each measured value must lie within the range that the seeds give.
2. Where a timeout (a back-off, the end of a session) decides a time, the median of the seeds may
   differ from the measured time by a tenth. If the timeout is nearly the whole time until the group
   is stable (joins with a back-off of 2 s), only this rule applies to the times.

- `GroupLab(members, partitions)` is a group on ZooKeeper in virtual time (a simulated clock).
- `change_began_us` is the time of the change.
- An attempt is one try of a member to own its share of the partitions. It fails if a claim
  conflicts with another owner's; the member then waits (back-off) and tries again.
- A notification tells a member that something it watches has changed.

Ids such as ZK-49 are rules of docs/kafka/ZOOKEEPER_CONSUMER.md.
"""

from collections.abc import Sequence
from functools import partial

import msgspec
import pytest

from protocol.trace import TraceKind
from tests.support.harness.zookeeper_group import SECOND, WRITES, GroupLab, detail_of, member_name
from tests.support.soak import load_or_compute, say
from tests.support.worlds.acceptance import percentile

pytestmark = [pytest.mark.soak, pytest.mark.timeout(3_500)]

SEEDS = 100
PARTITIONS = 64
TICK_MS = 2_000
"""The servers of ZooKeeper end sessions only at multiples of this time."""
TENTH = 0.1
"""Allowed difference between a measured time and the median of the seeds."""


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """The cost of a change of members. `stable_us` and `session_us` count from the change on."""

    stable_us: int
    session_us: int = 0
    failed: int
    conflicts: int
    notifications: int
    reads: int
    writes: int


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """Medians of real programs.

    `timeout_us` is the part of the time that a timeout decides; None: no timeout decides a part.
    """

    stable_us: int
    timeout_us: int | None
    failed: int
    conflicts: int
    notifications: int
    reads: int


JOIN = {
    2: Measured(
        stable_us=2_220_000,
        timeout_us=2_220_000,
        failed=1,
        conflicts=32,
        notifications=1,
        reads=171,
    ),
    4: Measured(
        stable_us=2_220_000,
        timeout_us=2_220_000,
        failed=1,
        conflicts=16,
        notifications=3,
        reads=179,
    ),
    8: Measured(
        stable_us=250_000, timeout_us=None, failed=0, conflicts=0, notifications=7, reads=234
    ),
}
KILL = {
    2: Measured(
        stable_us=6_620_000,
        timeout_us=6_450_000,
        failed=0,
        conflicts=0,
        notifications=1,
        reads=78,
    ),
    4: Measured(
        stable_us=6_340_000,
        timeout_us=6_250_000,
        failed=0,
        conflicts=0,
        notifications=3,
        reads=112,
    ),
    8: Measured(
        stable_us=6_620_000,
        timeout_us=6_530_000,
        failed=0,
        conflicts=0,
        notifications=7,
        reads=204,
    ),
}
"""Measured joins and deaths, by number of members: MEASURED_ZOOKEEPER 1 and 2."""
READS_AROUND = 4
"""Allowed difference in reads: chance decides which of two members reads a list first."""


async def newcomer(lab: GroupLab) -> None:
    """Start the last member, which joins the group, and wait until the group has settled."""
    lab.change_began_us = lab.runtime.now_us()
    await lab.runtime.start_node(member_name(lab.members - 1))
    await lab.runtime.sleep(SECOND)
    await lab.settled(lab.names)


async def death(lab: GroupLab, seed: int) -> None:
    """Kill the last member at a time within the servers' tick that depends on the seed."""
    # Each seed kills 37 ms later than the one before, within the tick of 2,000 ms. The two numbers
    # have no common factor, so the seeds spread over the tick.
    await lab.runtime.sleep(seed * 37 % TICK_MS * 1_000)
    lab.change_began_us = lab.runtime.now_us()
    await lab.runtime.crash(member_name(lab.members - 1))
    # The session ends after 8 s at the latest.
    await lab.runtime.sleep(9 * SECOND)
    await lab.settled(lab.names[:-1])


def join(members: int, seed: int) -> Change:
    """Play the join of one seed.

    It comes before the first automatic commit, so the members have committed nothing, as in the
    measurement.
    """
    lab = GroupLab(members, PARTITIONS, late_from=members - 1, seed=seed, starts_apart=False)
    return cost_of(lab.run(newcomer))


def kill(members: int, seed: int) -> Change:
    """Play the death of the last member with one seed."""
    lab = GroupLab(members, PARTITIONS, seed=seed, starts_apart=False)
    return cost_of(lab.run(partial(death, seed=seed)))


def cost_of(lab: GroupLab) -> Change:
    """Return what the change has cost until the end of the run."""
    since_us = lab.change_began_us
    owners = [row.time_us for row, _ in lab.writes_of("owners", since_us)]
    expired = lab.of(TraceKind.ZOOKEEPER_SESSION_EXPIRED, after_us=since_us)
    requests = lab.requests(since_us)
    return Change(
        # The group is stable when the last partition is claimed.
        stable_us=max(owners) - since_us,
        session_us=expired[0].time_us - since_us if expired else 0,
        failed=sum(not attempt["done"] for attempt in lab.attempts(since_us)),
        conflicts=sum(attempt["conflicts"] for attempt in lab.attempts(since_us)),
        notifications=len(lab.of(TraceKind.ZOOKEEPER_WATCH_FIRED, after_us=since_us)),
        reads=lab.reads(since_us),
        writes=sum(requests[name] for name in WRITES),
    )


def test_views_have_the_details_of_the_figures() -> None:
    """After a member has joined another one, each view (the members that it has read) has both."""
    lab = GroupLab(members=2, partitions=2, late_from=1).run(newcomer)
    views = lab.of(TraceKind.ZOOKEEPER_VIEW, after_us=lab.change_began_us)
    assert {len(detail_of(view)["members"]) for view in views} == {2}


@pytest.mark.parametrize("members", sorted(JOIN))
def test_measured_joins_agree_with_the_predicted_ones(members: int) -> None:
    """Conflicts occur by chance, and each costs the back-off of 2 s (ZK-49, ZK-81)."""
    costs = [
        load_or_compute("zookeeper", f"join-{members}-{seed}", Change, partial(join, members, seed))
        for seed in range(SEEDS)
    ]
    _say_costs(f"one of {members} joins", costs)
    _compare(costs, JOIN[members], [cost.stable_us for cost in costs])


@pytest.mark.parametrize("members", sorted(KILL))
def test_measured_deaths_agree_with_the_predicted_ones(members: int) -> None:
    """The session decides the time: it ends 4 to 8 s after the death, at a tick (ZK-10, ZK-91)."""
    costs = [
        load_or_compute("zookeeper", f"kill-{members}-{seed}", Change, partial(kill, members, seed))
        for seed in range(SEEDS)
    ]
    _say_costs(f"one of {members} is killed", costs)
    sessions = [cost.session_us for cost in costs]
    say(f"session ended after, s: {_range([session_us / 1e6 for session_us in sessions])}")
    assert all(4 * SECOND <= session_us <= 8 * SECOND for session_us in sessions)
    _compare(costs, KILL[members], sessions)


def _compare(costs: Sequence[Change], measured: Measured, timeouts_us: Sequence[int]) -> None:
    """Check that the measured values lie in the seeds' range, and a timeout near their median."""
    names = ["failed", "conflicts", "notifications", "reads"]
    # If the timeout is the whole time until stable, the last check below is enough for it.
    if measured.timeout_us != measured.stable_us:
        names.append("stable_us")
    for name in names:
        seen = [getattr(cost, name) for cost in costs]
        around = READS_AROUND if name == "reads" else 0
        assert min(seen) - around <= getattr(measured, name) <= max(seen) + around, name
    if measured.timeout_us is not None:
        median_us = percentile(sorted(timeouts_us), 50)
        assert abs(median_us - measured.timeout_us) <= TENTH * measured.timeout_us


def _say_costs(what: str, costs: Sequence[Change]) -> None:
    """Print the range of each cost into the record of the soak."""
    say(f"**{what}**: {len(costs)} seeds")
    say(f"until stable, s: {_range([cost.stable_us / 1e6 for cost in costs])}")
    for name in ("failed", "conflicts", "notifications", "reads", "writes"):
        say(f"{name}: {_range([float(getattr(cost, name)) for cost in costs])}")


def _range(values: Sequence[float]) -> str:
    """Return the median and, in brackets, the smallest and the largest value."""
    ordered = sorted(values)
    return f"{ordered[len(ordered) // 2]:g} ({ordered[0]:g}-{ordered[-1]:g})"
