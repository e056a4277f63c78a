"""LiveChecks: checkers over the part of a trace that can be read during a run in real time.

Their findings (violations that checkers report) are shown and logged during the run. They do not
count for the verdict, because rows may be missing: the driver (the process that conducts the run)
cannot read the files of other machines, and a node may write rows late. After the run another suite
checks the whole trace. In virtual time (the run's own simulated clock) there are no live checks,
because the suite of the verdict gets every row when it is written.
"""

from collections.abc import Callable, Iterable

from chaos.checkers.registry import CheckSuite
from protocol.trace import TraceRow
from results_schema.results import Finding

TraceFollower = Callable[[int], Iterable[TraceRow]]
"""Takes the run's clock in microseconds; returns the new rows, in the trace's order."""


class LiveChecks:
    """Feeds a suite with rows of a trace that is still being written.

    Invariant: an error of a live check never ends a run; `trouble` then has its message, and the
    live checks stop.
    """

    def __init__(self, suite: CheckSuite, follow: TraceFollower) -> None:
        self.trouble: str | None = None
        self._suite = suite
        self._follow = follow

    def report_findings_to(self, on_finding: Callable[[Finding], None]) -> None:
        """Pass each finding from now on to `on_finding`."""
        self._suite.report_findings_to(on_finding)

    def allow_clock_error(self, clock_error_us: int) -> None:
        """Let checks by time tolerate clocks that differ by `clock_error_us`."""
        self._suite.allow_clock_error(clock_error_us)

    def unsettled(self, now_us: int) -> list[str] | None:
        """Return the conditions that pending promises wait for; None if a live check has failed.

        A promise is pending if it may still be kept or broken, such as "a member will commit".
        """
        return None if self.trouble is not None else self._suite.unsettled(now_us)

    def advance(self, now_us: int) -> None:
        """Check the rows that have come since the last call."""
        if self.trouble is not None:
            return
        try:
            self._suite.observe_all(self._follow(now_us))
        except Exception as error:
            # Any error is possible, because a missing row makes the model of a checker
            # inconsistent.
            self.trouble = f"not checked while running: {type(error).__name__}: {error}"
