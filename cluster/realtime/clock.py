"""The run's clock in real time: one time line for all processes of all machines.

Run time is the number of microseconds since the beginning of the run. Each process computes it from
the monotonic clock of its machine, so run time never jumps. The monotonic clocks of different
machines have nothing to do with each other. So before nodes start, the driver (the process that
conducts the run) measures once the difference between each machine's clock and its own.

With a `time_scale` of k, run time passes k times as fast as real time, and every sleep is k times
shorter.
"""

import math
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

OFFSET_ROUNDS = 9
"""Number of round trips for measuring a machine's offset; the shortest one counts."""

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
"""File with an id that the kernel draws at each boot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunClock:
    """The run's clock on one machine; an immutable value, which is sent to node processes.

    `origin_ns` is the machine's monotonic clock at run time 0. `wall_origin_us` is the driver's
    wall clock at that moment, in microseconds since the epoch. `time_scale` is at least 1.
    """

    origin_ns: int
    wall_origin_us: int
    time_scale: float = 1.0

    def __post_init__(self) -> None:
        """Check the scale. Raises: ValueError."""
        if not 1.0 <= self.time_scale < math.inf:
            raise ValueError(f"time_scale must be at least 1, not {self.time_scale}")

    @classmethod
    def starting_now(cls, *, time_scale: float = 1.0) -> "RunClock":
        """Return the clock of a run that begins now, on this machine."""
        return cls(
            origin_ns=time.monotonic_ns(),
            wall_origin_us=time.time_ns() // 1000,
            time_scale=time_scale,
        )

    def now_us(self) -> int:
        """Return microseconds of run time since the run began."""
        elapsed_ns = time.monotonic_ns() - self.origin_ns
        if self.time_scale == 1.0:
            return elapsed_ns // 1000
        return int(elapsed_ns * self.time_scale) // 1000

    def wall_us(self) -> int:
        """Return the run's wall clock: the driver's wall clock at run time 0, plus run time."""
        return self.wall_origin_us + self.now_us()

    def real_seconds(self, delay_us: int) -> float:
        """Return the real duration of `delay_us` of run time, in seconds for asyncio."""
        return max(delay_us, 0) / self.time_scale / 1e6

    def on_machine(self, offset_ns: int) -> "RunClock":
        """Return this clock for a machine whose monotonic clock is ahead by `offset_ns`."""
        return RunClock(
            origin_ns=self.origin_ns + offset_ns,
            wall_origin_us=self.wall_origin_us,
            time_scale=self.time_scale,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockReading:
    """A reading of a machine's clock. Processes with one `boot_id` read the same clock."""

    monotonic_ns: int
    boot_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockOffset:
    """A machine's monotonic clock minus the driver's: `offset_ns`, with an error of `bound_ns`."""

    offset_ns: int
    bound_ns: int


def read_clock() -> ClockReading:
    """Return a reading of this machine's clock; its `boot_id` is "" if the system has none."""
    boot_id = _BOOT_ID.read_text(encoding="ascii").strip() if _BOOT_ID.exists() else ""
    return ClockReading(monotonic_ns=time.monotonic_ns(), boot_id=boot_id)


async def measure_offset(
    read_remote: Callable[[], Awaitable[ClockReading]], *, rounds: int = OFFSET_ROUNDS
) -> ClockOffset:
    """Return a machine's offset, from the shortest of `rounds` round trips.

    The remote clock is read at some moment within the round trip, so the error is at most half of
    the round trip's length. The driver's own machine is recognised by its boot id, and has an
    offset of exactly 0.
    """
    local_boot_id = read_clock().boot_id
    best = ClockOffset(offset_ns=0, bound_ns=1 << 62)  # worse than any measurement
    for _ in range(rounds):
        sent_ns = time.monotonic_ns()
        reading = await read_remote()
        received_ns = time.monotonic_ns()
        # The third condition checks that the remote clock agrees with this one. A process with the
        # same boot id may have another clock, for example in a container with a time namespace.
        if (
            reading.boot_id
            and reading.boot_id == local_boot_id
            and sent_ns <= reading.monotonic_ns <= received_ns
        ):
            return ClockOffset(offset_ns=0, bound_ns=0)
        bound_ns = (received_ns - sent_ns + 1) // 2  # a limit, so it is rounded up
        if bound_ns < best.bound_ns:
            middle_ns = (sent_ns + received_ns) // 2
            best = ClockOffset(offset_ns=reading.monotonic_ns - middle_ns, bound_ns=bound_ns)
    return best
