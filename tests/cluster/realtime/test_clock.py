"""The clock of a run in real time, which shows the same time on every machine.

The clock begins at 0 when the run begins. With `time_scale: 10` it runs ten times as fast as a real
clock, so an experiment takes a tenth of the time. `now_us()` is the time of the run in
microseconds. `wall_us()` is the date and time that the run pretends to have.
"""

import asyncio
import time

import pytest

from cluster.realtime.clock import ClockReading, RunClock, measure_offset, read_clock


def test_run_clock_starts_at_zero_and_never_decreases() -> None:
    """The first recorded event of a run has a time near 0."""
    clock = RunClock.starting_now()
    readings = [clock.now_us() for _ in range(100)]
    assert 0 <= readings[0] < 1_000_000
    assert readings == sorted(readings)


def test_run_clock_with_a_scale_passes_faster_and_sleeps_shorter() -> None:
    """With `time_scale: 10`, a session of 45 s must end after 4.5 real seconds.

    The clock of the test began 2 real seconds ago, so it shows 20 s. The test allows up to 30 s,
    because the machine may be busy for another second.
    """
    origin_ns = time.monotonic_ns() - 2_000_000_000
    clock = RunClock(origin_ns=origin_ns, wall_origin_us=5, time_scale=10.0)
    assert 20_000_000 <= clock.now_us() < 30_000_000
    assert clock.real_seconds(45_000_000) == pytest.approx(4.5)
    assert clock.real_seconds(-1) == 0.0  # a time that has passed already needs no sleep
    # `wall_us` was at 5 us when the run began (`wall_origin_us`), and also runs ten times as fast.
    assert 20_000_005 <= clock.wall_us() < 30_000_000


@pytest.mark.parametrize("scale", [0.0, 0.5, -1.0, float("nan"), float("inf")])
def test_run_clock_with_an_impossible_scale_is_refused(scale: float) -> None:
    """A scale must be a number of at least 1."""
    with pytest.raises(ValueError, match="time_scale"):
        RunClock.starting_now(time_scale=scale)


def test_run_clock_on_a_machine_that_is_ahead_shows_the_same_time() -> None:
    """The monotonic clocks of two machines may differ by days, but the time of a run must not.

    `clock.on_machine(offset)` is the clock of the run for a machine whose monotonic clock is ahead
    by the offset, which is 7 s here. The clock for that machine subtracts the offset. The test
    reads it on this machine, whose monotonic clock is not ahead, so it shows 7 s less.
    """
    clock = RunClock(origin_ns=time.monotonic_ns(), wall_origin_us=0)
    clock_for_other_machine = clock.on_machine(offset_ns=7_000_000_000)
    # The two clocks are read one after the other, so the difference is not exact.
    difference_us = clock_for_other_machine.now_us() - clock.now_us()
    assert difference_us == pytest.approx(-7_000_000, abs=100_000)


def test_offset_of_the_own_machine_is_exactly_zero() -> None:
    """All processes of one machine share its clock, so the offset is 0, and this is exact."""

    async def read() -> ClockReading:
        return read_clock()

    offset = asyncio.run(measure_offset(read))
    assert offset.offset_ns == 0
    assert offset.bound_ns == 0


def test_measured_offset_of_another_machine_is_within_its_bound() -> None:
    """Asking another machine for its time takes a while, so the measured offset is not exact.

    The error of the offset is at most its bound. The bound is stored with the run. If a time in a
    report is shorter than the bound, the report prints `< bound`.
    """
    ahead_ns = 123_456_789_000

    async def read() -> ClockReading:
        await asyncio.sleep(0)  # stands for the way of the request to the other machine
        return ClockReading(monotonic_ns=time.monotonic_ns() + ahead_ns, boot_id="other")

    offset = asyncio.run(measure_offset(read))
    assert abs(offset.offset_ns - ahead_ns) <= offset.bound_ns
    assert offset.bound_ns < 1_000_000_000  # 1 s
