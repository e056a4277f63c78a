"""The run's clock on Ray: one time line for every process of every machine.

Run time counts microseconds from the run's origin. It is read from the machine's monotonic clock,
so it never jumps; a machine's offset against the driver is measured once, before nodes start. With
a `time_scale` of k, run time passes k times faster than real time and every sleep shrinks alike.
"""

import math
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

OFFSET_ROUNDS = 9
"""Round trips by which a machine's offset is measured; the shortest counts."""

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunClock:
    """Run time as seen by one machine; small and immutable, so that it travels to node processes.

    Units: `origin_ns` is this machine's monotonic clock at run time 0; `wall_origin_us` is the
    driver's wall clock then, microseconds since the epoch. `time_scale` is at least 1.
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
        """Return the run's wall clock: it began at the driver's and passes as run time does."""
        return self.wall_origin_us + self.now_us()

    def real_seconds(self, delay_us: int) -> float:
        """Return how long `delay_us` of run time really takes, as asyncio wants it."""
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
    """A look at a machine's clock. Two machines with one `boot_id` share the clock itself."""

    monotonic_ns: int
    boot_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockOffset:
    """How far a machine's monotonic clock is ahead of the driver's: `offset_ns` +- `bound_ns`."""

    offset_ns: int
    bound_ns: int


def read_clock() -> ClockReading:
    """Return this machine's clock. `boot_id` is empty where the system has none."""
    boot_id = _BOOT_ID.read_text(encoding="ascii").strip() if _BOOT_ID.exists() else ""
    return ClockReading(monotonic_ns=time.monotonic_ns(), boot_id=boot_id)


async def measure_offset(
    read_remote: Callable[[], Awaitable[ClockReading]], *, rounds: int = OFFSET_ROUNDS
) -> ClockOffset:
    """Return a machine's offset, from the shortest of `rounds` round trips.

    The remote reading lies somewhere within the round trip, hence the bound of half of it. The
    driver's own machine is recognised by its boot id: there the offset is 0, exactly.
    """
    local_boot_id = read_clock().boot_id
    best = ClockOffset(offset_ns=0, bound_ns=1 << 62)
    for _ in range(rounds):
        sent_ns = time.monotonic_ns()
        reading = await read_remote()
        received_ns = time.monotonic_ns()
        if (
            reading.boot_id
            and reading.boot_id == local_boot_id
            and sent_ns <= reading.monotonic_ns <= received_ns
        ):
            return ClockOffset(offset_ns=0, bound_ns=0)
        bound_ns = (received_ns - sent_ns + 1) // 2
        if bound_ns < best.bound_ns:
            middle_ns = (sent_ns + received_ns) // 2
            best = ClockOffset(offset_ns=reading.monotonic_ns - middle_ns, bound_ns=bound_ns)
    return best
