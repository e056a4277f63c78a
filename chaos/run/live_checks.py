"""LiveChecks: show findings while a run in real time still goes on.

In real time each node writes its own file of trace rows, and only after the run all of them are
merged and checked for the verdict. So that a user need not wait for this, the live checks read the
part of the trace that is there already. What they find is shown and logged, but does not count for
the verdict, because rows may be missing: the files of other machines cannot be read yet, and a node
may write a row late.

In virtual time there are no live checks, because every row is checked when it is written.
"""

from collections.abc import Callable, Iterable

from chaos.checkers.registry import CheckSuite
from protocol.trace import TraceRow
from results_schema.results import Finding

TraceFollower = Callable[[int], Iterable[TraceRow]]
"""Takes the time of the run's clock; returns the rows that are new since the last call."""


class LiveChecks:
    """Feeds a suite of checkers with the rows of a trace that is still being written.

    An error of a live check never ends a run. The live checks stop, and `trouble` has the message.
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
            # Any error is possible, because a missing row makes the model of a checker
            # inconsistent.
            self.trouble = f"not checked while running: {type(error).__name__}: {error}"
