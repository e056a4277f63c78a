"""The clock of a run: the same time on every machine, optionally faster than real time."""

import asyncio
import time

import pytest

from cluster.realtime.clock import ClockReading, RunClock, measure_offset, read_clock


def test_run_clock_starts_at_zero_and_never_decreases() -> None:
    """Times count from the start of the run, so its first recorded event has a time near 0."""
    clock = RunClock.starting_now()
    readings = [clock.now_us() for _ in range(100)]
    assert 0 <= readings[0] < 1_000_000
    assert readings == sorted(readings)


def test_run_clock_with_a_scale_passes_faster_and_sleeps_shorter() -> None:
    """With `time_scale: 10`, a session of 45 s must end after 4.5 real seconds."""
    # The clock began 2 real seconds ago, which are 20 s of the run at a scale of 10. The bounds
    # below allow another real second, for a busy machine.
    origin_ns = time.monotonic_ns() - 2_000_000_000
    clock = RunClock(origin_ns=origin_ns, wall_origin_us=5, time_scale=10.0)
    assert 20_000_000 <= clock.now_us() < 30_000_000
    assert clock.real_seconds(45_000_000) == pytest.approx(4.5)
    assert clock.real_seconds(-1) == 0.0  # the time has passed already, so there is no sleep
    # The wall clock runs at the same scale, from `wall_origin_us` on.
    assert 20_000_005 <= clock.wall_us() < 30_000_000


@pytest.mark.parametrize("scale", [0.0, 0.5, -1.0, float("nan"), float("inf")])
def test_run_clock_with_an_impossible_scale_is_refused(scale: float) -> None:
    """A scale below 1 has no use, and 0 would cause a division by zero."""
    with pytest.raises(ValueError, match="time_scale"):
        RunClock.starting_now(time_scale=scale)


def test_run_clock_on_a_machine_that_is_ahead_shows_the_same_time() -> None:
    """The monotonic clocks of two machines differ by days, but the time of a run is the same.

    `on_machine(offset)` is the clock for a machine whose monotonic clock is ahead by the offset,
    7 s here. It subtracts the offset. The monotonic clock of this machine is not ahead, so here it
    shows 7 s less.
    """
    clock = RunClock(origin_ns=time.monotonic_ns(), wall_origin_us=0)
    moved = clock.on_machine(7_000_000_000)
    # The two clocks are read one after the other, so the difference is not exact.
    assert moved.now_us() - clock.now_us() == pytest.approx(-7_000_000, abs=100_000)


def test_offset_of_the_own_machine_is_exactly_zero() -> None:
    """Processes of one machine share its clock, so their offset is 0, without any error."""

    async def read() -> ClockReading:
        return read_clock()

    offset = asyncio.run(measure_offset(read))
    assert (offset.offset_ns, offset.bound_ns) == (0, 0)


def test_measured_offset_of_another_machine_is_within_its_bound() -> None:
    """The measured offset may be wrong by its bound, but not by more.

    The bound is stored with the run. If a time in a report is shorter than the bound, the report
    prints `< bound`.
    """
    ahead_ns = 123_456_789_000

    async def read() -> ClockReading:
        await asyncio.sleep(0)
        return ClockReading(monotonic_ns=time.monotonic_ns() + ahead_ns, boot_id="other")

    offset = asyncio.run(measure_offset(read))
    assert abs(offset.offset_ns - ahead_ns) <= offset.bound_ns
    assert offset.bound_ns < 1_000_000_000
