"""LiveChecks: the checkers over what can be read of a trace while its run goes on, on Ray.

What they find is shown and logged as it comes. It is not the verdict: rows may still be missing
(on a machine whose files the driver does not see, or written too late), and so another suite judges
the whole trace when the run is over. In virtual time that one suite sees every row at once.
"""

from collections.abc import Callable, Iterable

from chaos.checkers.registry import CheckSuite
from protocol.trace import TraceRow
from results_schema.results import Finding

TraceFollower = Callable[[int], Iterable[TraceRow]]
"""Takes the run's clock in microseconds; returns the rows that are new, in the trace's order."""


class LiveChecks:
    """Feeds a suite of its own from a trace that is still being written.

    Invariant: what goes wrong in here never ends a run; `trouble` then says what it was.
    """

    def __init__(self, suite: CheckSuite, follow: TraceFollower) -> None:
        self.trouble: str | None = None
        self._suite = suite
        self._follow = follow

    def report_findings_to(self, on_finding: Callable[[Finding], None]) -> None:
        """Give each finding from now on to `on_finding`."""
        self._suite.report_findings_to(on_finding)

    def allow_clock_error(self, clock_error_us: int) -> None:
        """Judge by time only beyond `clock_error_us`."""
        self._suite.allow_clock_error(clock_error_us)

    def unsettled(self, now_us: int) -> list[str] | None:
        """Return what the promises still wait for, None where that is not known any more."""
        return None if self.trouble is not None else self._suite.unsettled(now_us)

    def advance(self, now_us: int) -> None:
        """Judge the rows that have come since the last call."""
        if self.trouble is not None:
            return
        try:
            self._suite.observe_all(self._follow(now_us))
        except Exception as error:
            # A row may be missing in the middle: the model of a checker then meets what cannot be.
            self.trouble = f"not checked while running: {type(error).__name__}: {error}"
