"""Clocks of one machine in virtual time, derived from the loop's clock.

The monotonic clock may drift, the wall clock may drift and jump.
"""

from cluster.virtual.loop import VirtualLoop

WALL_EPOCH_US = 1_735_689_600_000_000
"""Wall-clock time at the start of a run: 2025-01-01T00:00:00Z, in microseconds."""

_MILLION = 1_000_000


class NodeClock:
    """The monotonic and the wall clock of one machine.

    The clocks go on when the node on the machine dies and starts again. `_drift_ppm` is the number
    of microseconds that the clock gains in a second; it is negative if the clock is too slow.
    `set_drift` refuses -1,000,000 and less, because the monotonic clock would stop or go back.
    """

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self._drift_ppm = 0
        self.has_drifted = False
        """True once `set_drift` was called, even if it set the drift back to 0 later."""
        self._set_at_us = 0
        """The run time at which the drift was last changed."""
        self._reading_at_set_us = 0
        """What the monotonic clock showed at `_set_at_us`."""
        self._wall_offset_us = WALL_EPOCH_US

    def now_us(self) -> int:
        """Return the monotonic clock; without drift it equals the run's clock."""
        true_us = self._loop.current_us  # the same as now_us(), which costs a call
        if not self.has_drifted:
            return true_us
        elapsed_us = true_us - self._set_at_us
        return self._reading_at_set_us + elapsed_us + elapsed_us * self._drift_ppm // _MILLION

    def wall_us(self) -> int:
        """Return this machine's wall clock, in microseconds since the epoch."""
        return self._wall_offset_us + self.now_us()

    def run_delay_us(self, delay_us: int) -> int:
        """Return how much run time passes while this clock advances by `delay_us`, rounded up."""
        if not self.has_drifted:
            return delay_us
        # -(-a // b) is a / b rounded up: a timer must not fire before its time.
        return -(-delay_us * _MILLION // (_MILLION + self._drift_ppm))

    def set_drift(self, drift_ppm: int) -> None:
        """Let the clock gain `drift_ppm` microseconds a second from now on.

        Timers that are armed already still fire at the run time that `run_delay_us` has computed.
        Raises: ValueError if the clock would stop or run backwards.
        """
        if drift_ppm <= -_MILLION:
            raise ValueError(f"a clock that drifts by {drift_ppm} ppm does not advance")
        self._reading_at_set_us = self.now_us()
        self.has_drifted = True
        self._set_at_us = self._loop.now_us()
        self._drift_ppm = drift_ppm

    def jump_wall(self, by_us: int) -> None:
        """Move the wall clock by `by_us`, back if negative. The monotonic clock stays."""
        self._wall_offset_us += by_us
