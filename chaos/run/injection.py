"""FaultInjector: injects faults, and heals (undoes) them.

The injector records each injection and each healing in two places: in the trace, and in the
journal, which has an entry for each fault. The runner decides when a fault is due, and calls the
injector:

1. The fault is aimed. Its target is a role, such as `controller`. The injector finds the nodes that
   have this role now (an Aim). If no node has the role, the fault is a Miss, and nothing happens.
2. The fault is injected at these nodes. From now on the fault is in force.
3. At the end of its duration the fault is healed. For example, a killed broker is started again.

Two sorts of faults are different. A momentary fault, such as the deletion of a topic, is over when
its injection returns. A gradual fault, such as a rollout, takes one step after the other. The
runner calls `advance` for each step.

At the end of the run the injector heals all faults that are still in force. It also heals faults
whose injection failed half-way.
"""

from collections.abc import Callable
from dataclasses import replace

from chaos.experiment.structs import Experiment
from chaos.faults.base import SHUTDOWN_LIMIT_US, Aim, FaultKind, FaultTools
from chaos.faults.registry import FAULT_KINDS
from chaos.run.journal import Journal
from chaos.run.link_table import LinkTable
from chaos.targets.base import Miss, Situation
from chaos.targets.members import all_members
from cluster.host.randomness import stream
from cluster.runtime import ClusterStatus, Runtime
from protocol.ids import NodeName
from protocol.trace import TraceEvent, TraceKind
from results_schema.journal import FaultOutcome, JournalEntry, LinkEnds
from results_schema.manifest import Plan, PlannedFault


class ToolFailed(Exception):
    """coordlab itself failed, not the cluster under test. So the run proves nothing."""


class FaultInjector:
    """Carries out the faults of a plan on one runtime."""

    def __init__(
        self,
        experiment: Experiment,
        runtime: Runtime,
        journal: Journal,
        log: Callable[[str], None],
        *,
        seed: int,
    ) -> None:
        """Prepare an injector.

        `log` writes a line into the log of the run. `seed` determines all random choices of faults,
        such as the broker that a fault with the target `any-broker` hits.
        """
        self._experiment = experiment
        self._runtime = runtime
        self._journal = journal
        self._log = log
        self._seed = seed
        self._links = LinkTable(runtime)
        self._tools = FaultTools(runtime=runtime, links=self._links)
        self._aims: dict[str, Aim] = {}
        """The aim of each injected fault, by the fault's id. The fault is healed at these nodes."""
        self._members = dict.fromkeys(all_members(experiment))

    def take_experiment(self, experiment: Experiment) -> None:
        """Look up the topics and groups that faults name in `experiment` from now on.

        Only a standing cluster (`coordlab up`) calls this: its users may create topics and groups
        that the experiment file does not have, and then break them.
        """
        self._experiment = experiment

    def aim(self, planned: PlannedFault, status: ClusterStatus) -> Aim | Miss:
        """Return the nodes that the fault would hit in `status`, or a Miss. Change nothing."""
        # `stream` makes a random generator of its own for these words. So the draws for one fault
        # do not depend on the draws for others.
        situation = Situation(
            experiment=self._experiment,
            status=status,
            rng=stream(self._seed, "target", planned.fault_id),
        )
        return FAULT_KINDS[planned.fault].aim(planned, situation)

    async def inject(self, planned: PlannedFault, status: ClusterStatus) -> None:
        """Inject a fault at the nodes that `status` shows for its target.

        If no node has the role of the target, record a miss. Raises: ToolFailed if the runtime
        could not inject the fault.
        """
        kind = FAULT_KINDS[planned.fault]
        entry = self._journal.entry(planned.fault_id)
        entry.fired_at_us = self._runtime.now_us()
        entry.momentary = kind.momentary
        aim = self.aim(planned, status)
        if isinstance(aim, Miss):
            self._record_miss(entry, aim)
            return

        self._aims[planned.fault_id] = aim
        self._record_aim(entry, aim, kind)
        # The row is written before the injection, because it must be earlier than all effects of
        # the fault: on Ray other nodes may notice the death of a node before `inject` returns. So
        # the row cannot have the id of the killed process, which only `inject` returns. The journal
        # has this id.
        self._trace(TraceKind.FAULT_INJECTED, entry, _injected_detail(entry, planned))
        try:
            rng = stream(self._seed, "act", planned.fault_id)
            hit = await kind.inject(planned, aim, replace(self._tools, rng=rng))
        except Exception as error:
            entry.outcome = FaultOutcome.FAILED
            entry.error = f"{type(error).__name__}: {error}"
            self._journal.changed()
            raise ToolFailed(f"{planned.fault_id} could not be injected: {error}") from error
        # Some kinds of faults learn only now that they hit nothing. An example is an
        # administrator's order, if a broker refuses it.
        if isinstance(hit, Miss):
            self._record_miss(entry, hit)
            return

        entry.outcome = FaultOutcome.HIT
        entry.resolved = hit.detail
        if hit.process is not None:
            entry.incarnation = hit.process.incarnation
            entry.pid = hit.process.pid
        if not kind.momentary:
            entry.in_force_from_us = self._runtime.now_us()
            self._trace(TraceKind.FAULT_IN_FORCE, entry, {"fault": entry.fault})
        self._journal.changed()
        pid = "" if entry.pid is None else f", pid {entry.pid}"
        self._log(f"{planned.fault_id}: {entry.target} is {entry.hit}{pid}")

    def must_wait(self, planned: PlannedFault, status: ClusterStatus) -> bool:
        """Return True if the healing of a fault is due, but must wait until its node has stopped.

        In a `controlled_shutdown` a node stops by itself, and the healing starts the node again. A
        node cannot be started while it is still stopping. So the caller must wait, and call this
        method again. If the node takes longer than SHUTDOWN_LIMIT_US, the method returns False, and
        then `heal` kills the node.
        """
        entry = self._journal.entry(planned.fault_id)
        if not entry.in_force:
            return False
        if not FAULT_KINDS[planned.fault].must_wait(self._aims[planned.fault_id], status):
            return False
        now_us = self._runtime.now_us()
        if entry.in_force_until_us is None:
            entry.in_force_until_us = now_us
        return now_us < entry.in_force_until_us + SHUTDOWN_LIMIT_US

    async def heal(self, planned: PlannedFault, *, by: str) -> None:
        """Undo the fault if it is in force.

        `by` is the cause of the healing:

        - "plan": the planned duration of the fault is over.
        - "order": a user of a standing cluster (`coordlab up`) wants it.
        - "end": all faults are healed at the end of the run. In this case a fault whose injection
          failed half-way is undone, too.

        Raises: ToolFailed if the runtime could not undo the fault.
        """
        entry = self._journal.entry(planned.fault_id)
        half_done = by == "end" and entry.perhaps_in_force
        if not (entry.in_force or half_done):
            return

        # The time may be set already, by `must_wait`, or by an earlier call of `heal` that Ctrl-C
        # interrupted.
        if entry.in_force_until_us is None:
            entry.in_force_until_us = self._runtime.now_us()
        try:
            kill_at_us = entry.in_force_until_us + SHUTDOWN_LIMIT_US
            note = await FAULT_KINDS[planned.fault].heal(
                planned,
                self._aims[planned.fault_id],
                replace(self._tools, kill_at_us=kill_at_us),
            )
        except Exception as error:
            if half_done:  # perhaps the injection had no effect, so the run has not failed
                self._log(f"{planned.fault_id}, half injected, could not be undone: {error}")
                return
            entry.error = f"not healed: {type(error).__name__}: {error}"
            self._journal.changed()
            raise ToolFailed(f"{planned.fault_id} could not be healed: {error}") from error

        entry.healed_at_us = self._runtime.now_us()
        entry.healed_by = by
        entry.note = note
        self._trace(
            TraceKind.FAULT_HEALED,
            entry,
            {"fault": entry.fault, "in_force_until_us": entry.in_force_until_us},
        )
        self._journal.changed()
        self._log(f"{planned.fault_id} healed by {by}" + ("" if note is None else f": {note}"))

    def has_next_step(self, planned: PlannedFault) -> bool:
        """Return True if the fault is a gradual fault that was injected. Steps may then follow."""
        return planned.fault_id in self._tools.under_way

    async def advance(self, planned: PlannedFault, status: ClusterStatus) -> int | None:
        """Take the next step of a gradual fault; return the time of the step after it.

        Return None if there is no further step. The fault is then healed, unless it hangs. For
        example, a rollout goes no further if a node does not come back. A fault that hangs stays in
        force until the end of the run.

        Raises: ToolFailed if the runtime could not take the step.
        """
        entry = self._journal.entry(planned.fault_id)
        if not entry.in_force:  # everything was healed meanwhile
            return None
        work = self._tools.under_way[planned.fault_id]
        try:
            next_us = await work.step(self._runtime, status)
        except Exception as error:
            entry.error = f"{type(error).__name__}: {error}"
            self._journal.changed()
            raise ToolFailed(f"{planned.fault_id} could not go on: {error}") from error
        entry.resolved = {**entry.resolved, **work.progress()}
        self._journal.changed()
        if next_us is None and not work.hangs:
            await self.heal(planned, by="plan")
        return next_us

    @property
    def joined_nodes(self) -> tuple[NodeName, ...]:
        """Members that faults have started in addition to the members of the experiment."""
        return tuple(self._tools.joined)

    @property
    def deleted_topics(self) -> tuple[str, ...]:
        """Topics that a fault has deleted, or has tried to delete."""
        return tuple(self._tools.deleted_topics)

    @property
    def lost_nodes(self) -> tuple[NodeName, ...]:
        """Nodes that never come back."""
        return tuple(self._tools.lost)

    @property
    def may_need_healing(self) -> bool:
        """True if a fault or a link rule is in force, or if a failed call may have left one."""
        return self._links.in_doubt or any(
            entry.in_force or entry.perhaps_in_force for entry in self._journal.entries
        )

    async def heal_everything(self, plan: Plan) -> None:
        """Undo every fault in force, the newest first. If a healing fails, go on with the next.

        1. Faults of links are healed first, so that nodes which start again can reach other nodes.
        2. All link rules are removed, because a failed call may have left a rule.
        3. All other faults are healed.

        Raises: ToolFailed with all failures.
        """
        failures = []
        backwards = plan[::-1]
        links = [fault for fault in backwards if FAULT_KINDS[fault.fault].has_ends]
        others = [fault for fault in backwards if not FAULT_KINDS[fault.fault].has_ends]
        for fault in links:
            try:
                await self.heal(fault, by="end")
            except ToolFailed as error:
                failures.append(str(error))
        try:
            await self._links.clear()
        except Exception as error:
            failures.append(f"link rules could not be withdrawn: {type(error).__name__}: {error}")
        for fault in others:
            try:
                await self.heal(fault, by="end")
            except ToolFailed as error:
                failures.append(str(error))
        if failures:
            raise ToolFailed("; ".join(failures))

    def _record_miss(self, entry: JournalEntry, miss: Miss) -> None:
        """Record in journal, trace and log that a fault hit nothing."""
        entry.outcome = FaultOutcome.MISSED
        entry.error = miss.reason
        entry.forget_aim()
        detail: dict[str, object] = {
            "fault": entry.fault,
            "target": entry.target,
            "reason": miss.reason,
        }
        if miss.errors:
            detail["errors"] = list(miss.errors)
        self._trace(TraceKind.FAULT_MISSED, entry, detail)
        self._journal.changed()
        self._log(f"{entry.fault_id} hit nothing: {miss.reason}")

    def _record_aim(self, entry: JournalEntry, aim: Aim, kind: FaultKind) -> None:
        """Write the nodes that a fault is about to hit into the fault's journal entry."""
        entry.node = aim.nodes[0]
        entry.nodes = aim.nodes
        if aim.to_nodes:
            entry.links = LinkEnds(from_=aim.nodes, to=aim.to_nodes)
        entry.moves = aim.moves
        entry.blast_radius = aim.blast_radius
        # `members_survive` is True if no member has a reason to leave its group because of the
        # fault. A rebalance is then a violation.
        entry.members_survive = kind.spares_members and not any(
            node in self._members for node in (*aim.nodes, *aim.to_nodes)
        )
        entry.resolved = aim.detail

    def _trace(self, kind: TraceKind, entry: JournalEntry, detail: dict[str, object]) -> None:
        self._runtime.trace(
            TraceEvent(kind=kind, peer=entry.node, cause=entry.fault_id, detail=detail)
        )


def _injected_detail(entry: JournalEntry, planned: PlannedFault) -> dict[str, object]:
    """Return the detail of a fault's FAULT_INJECTED row."""
    detail: dict[str, object] = {
        "fault": entry.fault,
        "target": entry.target,
        "nodes": list(entry.nodes),
        "groups": list(entry.blast_radius.groups),
        "partitions": list(entry.blast_radius.partitions),
        "members_survive": entry.members_survive,
        "momentary": entry.momentary,
    }
    # The keys `from` and `to` have two meanings. For a fault of links they are the nodes at its two
    # ends. If the fault moves leaderships, they are the old and the new leaders (at the end of this
    # function).
    if entry.links is not None:
        detail["from"] = list(entry.links.from_)
        detail["to"] = list(entry.links.to)
    if "disk" in planned.args:
        detail["disk"] = planned.args["disk"]
    # If the fault creates a topic, `topic` and `replication_factor` are the properties of this
    # topic.
    for key in ("machine", "topic", "replication_factor"):
        if key in entry.resolved:
            detail[key] = entry.resolved[key]
    if entry.moves:
        detail["from"] = list(dict.fromkeys(f"broker-{m.from_broker}" for m in entry.moves))
        detail["to"] = list(dict.fromkeys(f"broker-{m.to_broker}" for m in entry.moves))
    return detail
