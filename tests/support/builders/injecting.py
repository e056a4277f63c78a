"""A fault injector on a cluster without nodes (FakeRuntime), for tests of single faults.

An experiment has a plan, which is a list of faults. For each fault of the plan, the injector
records in a journal when the fault was injected and healed, and which nodes it hit. The injector
also writes rows into the trace, which is the list of all events of the run. A test can look at both
the journal and the trace.
"""

from typing import Any

import msgspec

from chaos.experiment.structs import Experiment
from chaos.run.injection import FaultInjector
from chaos.run.journal import Journal
from chaos.run.plan import plan_of
from cluster.runtime import ClusterStatus
from protocol.trace import TraceKind, TraceRow
from results_schema.journal import JournalEntry
from results_schema.manifest import Plan
from tests.support.builders.experiments import experiment
from tests.support.harness.fake_runtime import FakeRuntime


class Injecting:
    """Injects and heals single faults of an experiment.

    A fault is given by its index in the experiment's plan. By default the experiment is a small one
    with the faults `faults`, which are written as in an experiment's file; a test can pass another
    experiment as `own_experiment`. `runtime` is the cluster, by default a new FakeRuntime.

    A test finds the rows of the trace in `rows`, and the lines of the injector's log in `log`.
    """

    def __init__(
        self,
        *faults: dict[str, Any],
        own_experiment: Experiment | None = None,
        runtime: FakeRuntime | None = None,
    ) -> None:
        self.experiment = own_experiment or experiment(faults=list(faults))
        self.plan: Plan = plan_of(self.experiment)
        self.rows: list[TraceRow] = []
        self.runtime = runtime or FakeRuntime(self.experiment)
        # From now on each row of the trace is appended to `rows`.
        self.runtime.observe_with(self.rows.append)
        self.log: list[str] = []
        # After each change, a journal passes its entries to the given function. In a real run the
        # function saves them. Here nothing is saved.
        self.journal = Journal(self.plan, lambda entries: None)
        self.injector = FaultInjector(
            self.experiment, self.runtime, self.journal, self.log.append, seed=7
        )

    def inject(self, index: int = 0) -> JournalEntry:
        """Inject a fault of the plan now, and return its entry in the journal."""
        self.runtime.run(self.injector.inject(self.plan[index], self.status()))
        return self.entry(index)

    def heal(self, index: int = 0, *, by: str = "plan") -> JournalEntry:
        """Undo a fault of the plan now, and return its entry in the journal.

        The journal records why the fault was undone: by the "plan" (its time is over), by an
        "order" of the user, or by the "end" of the run, which undoes all faults.
        """
        self.runtime.run(self.injector.heal(self.plan[index], by=by))
        return self.entry(index)

    def heal_everything(self) -> None:
        """Undo all faults that are in force."""
        self.runtime.run(self.injector.heal_everything(self.plan))

    def entry(self, index: int = 0) -> JournalEntry:
        """Return the journal's entry of one fault."""
        return self.journal.entry(self.plan[index].fault_id)

    def status(self) -> ClusterStatus:
        """Return the present status of the cluster."""

        async def query() -> ClusterStatus:
            return await self.runtime.status()

        return self.runtime.run(query())

    def traced(self) -> list[tuple[str, str | None, dict[str, Any]]]:
        """Return kind, peer and decoded detail of every row of the trace.

        The peer is the other node that a row is about, if there is one. The detail is {} for a row
        without a detail.
        """
        return [
            (row.kind, row.peer, {} if row.detail is None else msgspec.json.decode(row.detail))
            for row in self.rows
        ]

    def detail_of(self, kind: TraceKind) -> dict[str, Any]:
        """Return the detail of the only row of this kind."""
        (only_detail,) = [detail for row_kind, _, detail in self.traced() if row_kind == kind]
        return only_detail
