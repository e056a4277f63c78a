"""A FaultInjector on a FakeRuntime (a cluster without nodes), with the rows that it wrote.

The plan is an experiment's list of faults. The journal has one entry for each fault of the plan:
when it was injected and healed, and which nodes it hit.
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
    """Injects and heals single faults of an experiment, named by their index in the plan.

    By default this is a small experiment with `faults`; `own_experiment` is used instead of it.
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
        self.runtime.observe_with(self.rows.append)
        self.log: list[str] = []
        # The callback of a journal gets its entries after each change: here nothing saves them.
        self.journal = Journal(self.plan, lambda entries: None)
        self.injector = FaultInjector(
            self.experiment, self.runtime, self.journal, self.log.append, seed=7
        )

    def inject(self, index: int = 0) -> JournalEntry:
        """Inject one fault of the plan now."""
        self.runtime.run(self.injector.inject(self.plan[index], self.status()))
        return self.entry(index)

    def heal(self, index: int = 0, *, by: str = "plan") -> JournalEntry:
        """Undo one fault of the plan now; `by` is what the journal names as the fault's healer."""
        self.runtime.run(self.injector.heal(self.plan[index], by=by))
        return self.entry(index)

    def heal_everything(self) -> None:
        """Undo all faults in force."""
        self.runtime.run(self.injector.heal_everything(self.plan))

    def entry(self, index: int = 0) -> JournalEntry:
        """Return the journal's entry of one fault."""
        return self.journal.entry(self.plan[index].fault_id)

    def status(self) -> ClusterStatus:
        """Query the cluster's status."""

        async def query() -> ClusterStatus:
            return await self.runtime.status()

        return self.runtime.run(query())

    def traced(self) -> list[tuple[str, str | None, dict[str, Any]]]:
        """Return kind, peer and detail of every row; a row without a detail has {}."""
        return [
            (row.kind, row.peer, {} if row.detail is None else msgspec.json.decode(row.detail))
            for row in self.rows
        ]

    def detail_of(self, kind: TraceKind) -> dict[str, Any]:
        """Return the detail of the only row of this kind."""
        (only_detail,) = [detail for traced, _, detail in self.traced() if traced == kind]
        return only_detail
