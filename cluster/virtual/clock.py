"""A node's clocks in virtual time: the loop's clock, seen through a quartz that may be off."""

from cluster.virtual.loop import VirtualLoop

WALL_EPOCH_US = 1_735_689_600_000_000
"""What wall clocks show when a run begins: 2025-01-01T00:00:00Z, in microseconds."""

_MILLION = 1_000_000


class NodeClock:
    """The monotonic and the wall clock of one machine; they outlive the node's incarnations.

    Units: `drift_ppm` is how many microseconds per second the clock gains (negative: loses).
    Invariant: `drift_ppm > -1_000_000`, so that the monotonic clock never goes back.
    """

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self._drift_ppm = 0
        self.has_drifted = False
        """Whether it ever ran at another rate than the run's own clock."""
        self._set_at_us = 0
        self._shown_then_us = 0
        self._wall_offset_us = WALL_EPOCH_US

    def now_us(self) -> int:
        """Return the monotonic clock; without drift it is the run's own."""
        true_us = self._loop.current_us
        if not self.has_drifted:
            return true_us
        elapsed_us = true_us - self._set_at_us
        return self._shown_then_us + elapsed_us + elapsed_us * self._drift_ppm // _MILLION

    def wall_us(self) -> int:
        """Return microseconds since the epoch, as this machine believes."""
        return self._wall_offset_us + self.now_us()

    def run_delay_us(self, delay_us: int) -> int:
        """Return how long the run's clock takes while this one shows `delay_us`, rounded up."""
        if not self.has_drifted:
            return delay_us
        return -(-delay_us * _MILLION // (_MILLION + self._drift_ppm))

    def set_drift(self, drift_ppm: int) -> None:
        """Run fast or slow from now on; timers that are armed keep the rate they were armed at.

        Raises: ValueError if the clock would stop or run backwards.
        """
        if drift_ppm <= -_MILLION:
            raise ValueError(f"a clock that drifts by {drift_ppm} ppm does not advance")
        self._shown_then_us = self.now_us()
        self.has_drifted = True
        self._set_at_us = self._loop.now_us()
        self._drift_ppm = drift_ppm

    def jump_wall(self, by_us: int) -> None:
        """Set the wall clock forward (or back, if negative). The monotonic clock stays."""
        self._wall_offset_us += by_us
