"""A simulated group on ZooKeeper must cost as much time and work as a real group.

A group of old consumers, which coordinate over ZooKeeper, was measured with the real programs. One
member joined, or one member was killed, and we measured how long the group needed until it was
stable again, and how much it read. docs/kafka/MEASURED_ZOOKEEPER.md has the medians of three such
measurements. Here the same change happens in a simulated group with many seeds (`GroupLab`, in
virtual time).

A member that has noticed a change makes an attempt to own its share of the partitions. If one of
these partitions still has another owner, this is a conflict, and the attempt fails. Then the member
waits (this wait is the back-off), and makes another attempt.

Two rules compare the simulation with the measurement:

1. Each measured value must lie between the smallest and the largest value of the seeds.
2. Some times are decided by a timeout: by the session of a dead member, or by the back-off of a
   member that could not get its partitions. Such a measured time may differ from the median of the
   seeds by a tenth.

Rule 1 does not apply to the time of a join with conflicts, which takes hardly longer than its
back-off of 2 s.

Ids such as ZK-49 are rules of docs/kafka/ZOOKEEPER_CONSUMER.md. `load_or_compute` saves the result
of each seed, so that an interrupted test continues where it ended. `say` prints a line.
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
TIME_TOLERANCE = 0.1
"""The share by which a measured time may differ from the median of the seeds."""


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """The costs of a join or a death of a member in one simulated group."""

    # The time from the change until the group was stable.
    stable_us: int
    # The time from a death until the dead member's session ended; 0 for a join.
    session_us: int = 0
    # Attempts that failed, and conflicts in all attempts.
    failed: int
    conflicts: int
    # Messages of ZooKeeper to a member: something that the member watches has changed.
    notifications: int
    # Requests of members to ZooKeeper.
    reads: int
    writes: int


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """The costs of the same change in a group of real programs: medians of three measurements."""

    stable_us: int
    # The part of `stable_us` that a timeout decides; None if there was no timeout.
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
"""JOIN and KILL have the measured joins and deaths, by the number of members.

Source: MEASURED_ZOOKEEPER 1 and 2.
"""
READS_TOLERANCE = 4
"""Number of reads by which a measured value may lie outside of the range of the seeds.

Chance decides which of two members reads a list first.
"""


async def start_newcomer(lab: GroupLab) -> None:
    """Start the last member, which joins the group, and wait until the group has settled."""
    lab.change_began_us = lab.runtime.now_us()
    await lab.runtime.start_node(member_name(lab.members - 1))
    await lab.runtime.sleep(SECOND)
    await lab.settled(lab.names)


async def kill_last_member(lab: GroupLab, seed: int) -> None:
    """Kill the last member, and wait until the group has settled.

    The servers have ticks, one every TICK_MS. The seed decides at which time between two ticks the
    member dies.
    """
    # Each seed kills the member 37 ms later than the seed before, modulo the 2,000 ms of a tick.
    # The numbers 37 and 2,000 have no common factor, so the deaths spread over the whole tick.
    delay_ms = seed * 37 % TICK_MS
    await lab.runtime.sleep(delay_ms * 1_000)
    lab.change_began_us = lab.runtime.now_us()
    await lab.runtime.crash(member_name(lab.members - 1))
    # The session ends after 8 s at the latest.
    await lab.runtime.sleep(9 * SECOND)
    await lab.settled(lab.names[:-1])


def join(members: int, seed: int) -> Change:
    """Play a join with one seed.

    The member joins before the first automatic commit. So no offset has been committed, as in the
    measurement.
    """
    lab = GroupLab(members, PARTITIONS, late_from=members - 1, seed=seed, starts_apart=False)
    return cost_of(lab.run(start_newcomer))


def kill(members: int, seed: int) -> Change:
    """Play a death with one seed."""
    lab = GroupLab(members, PARTITIONS, seed=seed, starts_apart=False)
    return cost_of(lab.run(partial(kill_last_member, seed=seed)))


def cost_of(lab: GroupLab) -> Change:
    """Return the costs of the change, from `change_began_us` to the end of the run."""
    since_us = lab.change_began_us
    claimed_at_us = [row.time_us for row, _ in lab.writes_of("owners", since_us)]
    expired = lab.of(TraceKind.ZOOKEEPER_SESSION_EXPIRED, after_us=since_us)
    requests = lab.requests(since_us)
    return Change(
        # The group is stable when the last partition is claimed.
        stable_us=max(claimed_at_us) - since_us,
        session_us=expired[0].time_us - since_us if expired else 0,
        failed=sum(not attempt["done"] for attempt in lab.attempts(since_us)),
        conflicts=sum(attempt["conflicts"] for attempt in lab.attempts(since_us)),
        notifications=len(lab.of(TraceKind.ZOOKEEPER_WATCH_FIRED, after_us=since_us)),
        reads=lab.reads(since_us),
        writes=sum(requests[name] for name in WRITES),
    )


def test_views_have_the_details_of_the_figures() -> None:
    """After a second member has joined, each view of a member has both members.

    A view is the list of members that a member has read from ZooKeeper.
    """
    lab = GroupLab(members=2, partitions=2, late_from=1).run(start_newcomer)
    views = lab.of(TraceKind.ZOOKEEPER_VIEW, after_us=lab.change_began_us)
    assert {len(detail_of(view)["members"]) for view in views} == {2}


@pytest.mark.parametrize("members", sorted(JOIN))
def test_measured_joins_agree_with_the_predicted_ones(members: int) -> None:
    """Conflicts occur by chance, and the back-off after them lasts 2 s (ZK-49, ZK-81)."""
    costs = [
        load_or_compute("zookeeper", f"join-{members}-{seed}", Change, partial(join, members, seed))
        for seed in range(SEEDS)
    ]
    _say_costs(f"one of {members} joins", costs)
    _compare(costs, JOIN[members], [cost.stable_us for cost in costs])


@pytest.mark.parametrize("members", sorted(KILL))
def test_measured_deaths_agree_with_the_predicted_ones(members: int) -> None:
    """The session of a member ends 4 to 8 s after the death, at a tick (ZK-10, ZK-91)."""
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
    """Check the two rules of the module's docstring.

    `timeouts_us` has for each seed the time that a timeout decides: in a join with conflicts the
    time until the group is stable, and in a death the time until the session ends.
    """
    # Rule 1: each measured value lies within the range of the seeds.
    names = ["failed", "conflicts", "notifications", "reads"]
    timeout_is_whole_time = measured.timeout_us == measured.stable_us
    if not timeout_is_whole_time:
        names.append("stable_us")
    for name in names:
        simulated = [getattr(cost, name) for cost in costs]
        tolerance = READS_TOLERANCE if name == "reads" else 0
        smallest, largest = min(simulated) - tolerance, max(simulated) + tolerance
        assert smallest <= getattr(measured, name) <= largest, name
    # Rule 2: a time that a timeout decides lies near the median of the seeds.
    if measured.timeout_us is not None:
        median_us = percentile(sorted(timeouts_us), 50)
        assert abs(median_us - measured.timeout_us) <= TIME_TOLERANCE * measured.timeout_us


def _say_costs(what: str, costs: Sequence[Change]) -> None:
    """Print median and range of each cost."""
    say(f"**{what}**: {len(costs)} seeds")
    say(f"until stable, s: {_range([cost.stable_us / 1e6 for cost in costs])}")
    for name in ("failed", "conflicts", "notifications", "reads", "writes"):
        say(f"{name}: {_range([float(getattr(cost, name)) for cost in costs])}")


def _range(values: Sequence[float]) -> str:
    """Return median, smallest and largest value: `2.2 (0.25-4.3)`."""
    ordered = sorted(values)
    return f"{ordered[len(ordered) // 2]:g} ({ordered[0]:g}-{ordered[-1]:g})"
