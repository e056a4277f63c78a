"""Injects faults and undoes them: targets become nodes, and the journal and the trace say so.

Knows one fault at a time; when which is due is the runner's business.
"""

from collections.abc import Callable

from chaos.experiment import Experiment
from chaos.faults import FAULT_KINDS
from chaos.journal import FaultOutcome, Journal
from chaos.plan import PlannedFault
from chaos.targets import Miss, resolve_target
from cluster.runtime import ClusterStatus, Runtime
from protocol.ids import NodeName
from protocol.trace import TraceEvent, TraceKind


class ToolFailed(Exception):
    """The lab itself failed, not the cluster: the run proves nothing."""


class FaultInjector:
    """Carries out the plan's faults on one runtime."""

    def __init__(
        self,
        experiment: Experiment,
        runtime: Runtime,
        journal: Journal,
        log: Callable[[str], None],
    ) -> None:
        self._experiment = experiment
        self._runtime = runtime
        self._journal = journal
        self._log = log

    async def inject(self, planned: PlannedFault, status: ClusterStatus) -> None:
        """Break what the target means in `status`; a target that is nobody is a miss.

        Raises: ToolFailed if the runtime could not do it.
        """
        entry = self._journal.entry(planned.fault_id)
        entry.fired_at_us = self._runtime.now_us()
        target = resolve_target(planned.target, self._experiment, status)
        if isinstance(target, Miss):
            entry.outcome = FaultOutcome.MISSED
            entry.error = target.reason
            self._journal.changed()
            self._log(f"{planned.fault_id} hit nothing: {target.reason}")
            return
        entry.node = target.node
        entry.blast_radius = target.blast_radius
        entry.resolved = target.detail
        kind = FAULT_KINDS[planned.fault]
        # The row comes first: on Ray the others see a death before the killer has its answer, and
        # every phase is measured from here. The process's id stands in the journal.
        self._runtime.trace(
            TraceEvent(
                kind=TraceKind.FAULT_INJECTED,
                peer=target.node,
                cause=planned.fault_id,
                detail={
                    "fault": planned.fault,
                    "target": planned.target,
                    "groups": list(target.blast_radius.groups),
                    "partitions": list(target.blast_radius.partitions),
                    "members_survive": kind.members_survive,
                },
            )
        )
        try:
            injected = await kind.inject(self._runtime, target.node, planned.args)
        except Exception as error:
            entry.outcome = FaultOutcome.FAILED
            entry.error = f"{type(error).__name__}: {error}"
            self._journal.changed()
            raise ToolFailed(f"{planned.fault_id} could not be injected: {error}") from error
        entry.outcome = FaultOutcome.HIT
        entry.incarnation = injected.incarnation
        entry.pid = injected.pid
        self._journal.changed()
        self._log(f"{planned.fault_id}: {planned.target} is {target.node}, pid {injected.pid}")

    async def heal(self, planned: PlannedFault, *, by: str) -> None:
        """Undo the fault if it is in force; `by` is "plan", or "end" when everything is healed.

        At the end a fault that was half injected is undone as well as it can be.
        Raises: ToolFailed if the runtime could not undo it.
        """
        entry = self._journal.entry(planned.fault_id)
        half_done = by == "end" and entry.perhaps_in_force
        if entry.node is None or not (entry.in_force or half_done):
            return
        kind = FAULT_KINDS[planned.fault]
        try:
            await kind.heal(self._runtime, NodeName(entry.node), planned.args)
        except Exception as error:
            if half_done:  # what was never injected refuses to be undone
                self._log(f"{planned.fault_id}, half injected, could not be undone: {error}")
                return
            entry.error = f"not healed: {type(error).__name__}: {error}"
            self._journal.changed()
            raise ToolFailed(f"{planned.fault_id} could not be healed: {error}") from error
        entry.healed_at_us = self._runtime.now_us()
        entry.healed_by = by
        self._runtime.trace(
            TraceEvent(
                kind=TraceKind.FAULT_HEALED,
                peer=entry.node,
                cause=planned.fault_id,
                detail={"fault": planned.fault},
            )
        )
        self._journal.changed()
        self._log(f"{planned.fault_id} healed by {by}")
