"""LiveChecks: show findings (violations that checkers report) during a run in real time.

The trace of a run has one row for each event. In real time each node writes its rows into its own
file. Only after the run, all files are merged and checked for the verdict. A user should see
findings earlier. So the live checks read the part of the trace that exists already. Their findings
are shown and logged.

But these findings do not count for the verdict, because rows may be missing: the files of other
machines cannot be read yet, and a node may write a row late.

In virtual time there are no live checks, because every row is checked when it is written.
"""

from collections.abc import Callable, Iterable

from chaos.checkers.registry import CheckSuite
from protocol.trace import TraceRow
from results_schema.results import Finding

TraceFollower = Callable[[int], Iterable[TraceRow]]
"""Function that returns the rows that are new since its last call.

Its argument is the present time on the run's clock.
"""


class LiveChecks:
    """Passes the rows of a trace that is still being written to a suite of checkers.

    If a live check fails with an error, the run goes on. All live checks stop, and `trouble` has
    the message of the error.
    """

    def __init__(self, suite: CheckSuite, follow: TraceFollower) -> None:
        self.trouble: str | None = None
        self._suite = suite
        self._follow = follow

    def report_findings_to(self, on_finding: Callable[[Finding], None]) -> None:
        """Pass each finding from now on to `on_finding`."""
        self._suite.report_findings_to(on_finding)

    def allow_clock_error(self, clock_error_us: int) -> None:
        """Let checkers that compare times tolerate clocks that differ by `clock_error_us`."""
        self._suite.allow_clock_error(clock_error_us)

    def unsettled(self, now_us: int) -> list[str] | None:
        """Return what the checkers still wait for, as sentences; None if a live check has failed.

        For example, the checker of recovery waits until every partition has its full ISR again.
        """
        return None if self.trouble is not None else self._suite.unsettled(now_us)

    def advance(self, now_us: int) -> None:
        """Check the rows that have come since the last call."""
        if self.trouble is not None:
            return
        try:
            self._suite.observe_all(self._follow(now_us))
        except Exception as error:
            # Any kind of exception is possible. If a row is missing, the model that a checker has
            # of the cluster may be inconsistent.
            self.trouble = f"not checked while running: {type(error).__name__}: {error}"
