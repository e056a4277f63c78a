"""Every checker by name, and the suite that feeds them one trace.

A new checker is one module and one line in `CHECKERS`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from chaos.checkers.base import CheckContext, Checker, CheckReport, GroupExpectation
from chaos.checkers.durable_commits import DurableCommits
from chaos.checkers.fencing import Fencing
from chaos.checkers.liveness import Liveness
from chaos.checkers.needless_rebalance import NeedlessRebalance
from chaos.experiment import Experiment, consumer_name, group_partition, microseconds
from protocol.ids import offsets_partition
from protocol.trace import TraceRow

CHECKERS: dict[str, type[Checker]] = {
    checker.name: checker for checker in (Fencing, DurableCommits, Liveness, NeedlessRebalance)
}


class CheckSuite:
    """The checkers of one run: `observe` takes its rows in order, `finish` ends it.

    `observe` is a RowObserver: the virtual runtime may call it while the run goes on, and a merged
    trace may be fed to it afterwards.
    """

    def __init__(self, context: CheckContext, names: Sequence[str] = ()) -> None:
        chosen = names or tuple(CHECKERS)
        self.checkers = tuple(CHECKERS[name](context) for name in chosen)
        self.rows_seen = 0
        self._by_kind: dict[str, list[Checker]] = {}
        for checker in self.checkers:
            for kind in sorted(checker.kinds):
                self._by_kind.setdefault(kind, []).append(checker)

    def allow_clock_error(self, clock_error_us: int) -> None:
        """Judge by time only beyond `clock_error_us`, which is known once the cluster is up."""
        for checker in self.checkers:
            checker.context = replace(checker.context, clock_error_us=clock_error_us)

    def observe(self, row: TraceRow) -> None:
        """Hand `row` to the checkers that want its kind."""
        self.rows_seen += 1
        for checker in self._by_kind.get(row.kind, ()):
            checker.observe(row)

    def observe_all(self, rows: Iterable[TraceRow]) -> None:
        """Hand over a whole trace, in the order of the run's clock."""
        for row in rows:
            self.observe(row)

    def violations(self) -> int:
        """Return the number of findings so far."""
        return sum(checker.findings_total for checker in self.checkers)

    def finish(self) -> tuple[CheckReport, ...]:
        """End every check and return the reports."""
        return tuple(checker.finish() for checker in self.checkers)


def context_of(experiment: Experiment, *, clock_error_us: int = 0) -> CheckContext:
    """Return what the checkers may know of `experiment`."""
    return CheckContext(
        groups={
            group_id: GroupExpectation(
                consumers=tuple(consumer_name(group_id, index) for index in range(group.members)),
                offsets_partition=str(offsets_partition(group_partition(experiment, group_id))),
                commits=group.commits,
            )
            for group_id, group in experiment.groups.items()
        },
        min_insync_replicas=experiment.cluster.config.min_insync_replicas,
        liveness_timeout_us=microseconds(experiment.run.liveness_timeout),
        clock_error_us=clock_error_us,
    )
