"""A FaultInjector on a FakeRuntime (a cluster without nodes), for tests of single faults.

The plan is an experiment's list of faults. The journal has one entry for each fault of the plan:
when it was injected and healed, and which nodes it hit. The injector also writes rows into the
trace (the run's recorded events); they are kept here, so that a test can read them.
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

    - `faults` are the faults of a small experiment, as in a file.
    - `own_experiment` is an experiment that is used instead of the small one.
    - `runtime`: the cluster; by default a new FakeRuntime.
    - `rows` has the rows of the trace, and `log` the lines of the injector's log.
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
        # From now on the runtime passes each row of the trace to `rows`.
        self.runtime.observe_with(self.rows.append)
        self.log: list[str] = []
        # After each change a journal calls this function with its entries, so that a real run can
        # save them. A test saves nothing.
        self.journal = Journal(self.plan, lambda entries: None)
        self.injector = FaultInjector(
            self.experiment, self.runtime, self.journal, self.log.append, seed=7
        )

    def inject(self, index: int = 0) -> JournalEntry:
        """Inject one fault of the plan now."""
        self.runtime.run(self.injector.inject(self.plan[index], self.status()))
        return self.entry(index)

    def heal(self, index: int = 0, *, by: str = "plan") -> JournalEntry:
        """Undo one fault of the plan now.

        `by` is the reason, which the journal records: "plan" (the time of the fault is over),
        "order" (a user's command), or "end" (the run undoes all faults).
        """
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
        """Return kind, peer and detail of every row; a row without a detail has {}.

        A row is about the node that wrote it and perhaps another one, the peer. Its detail is JSON.
        """
        return [
            (row.kind, row.peer, {} if row.detail is None else msgspec.json.decode(row.detail))
            for row in self.rows
        ]

    def detail_of(self, kind: TraceKind) -> dict[str, Any]:
        """Return the detail of the only row of this kind."""
        (only_detail,) = [detail for row_kind, _, detail in self.traced() if row_kind == kind]
        return only_detail
