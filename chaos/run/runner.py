"""ExperimentRun: runs an experiment, stage by stage, and reaches the verdict.

A run goes through these stages:

1. Steady state: wait until every group is stable.
2. Faults: inject and heal the faults of the plan, each at its time.
3. Healing: undo all faults that are still in force.
4. Liveness: wait until every group is stable again and commits.
5. Recovery: wait until no promise is pending.
6. Verification: read the committed offsets.

The module knows only the interface `Runtime`, so the same code drives every runtime. Even after an
error or a Ctrl-C a run heals all faults and stops the cluster.
Data flow: (experiment, plan) -> Runtime; trace rows -> CheckSuite -> Results; every change ->
RunDirectory.

A CheckSuite has all checkers of a run; it reports findings, which are violations of promises. The
journal has one entry for each fault. An incarnation is one life of a node's process.
"""

from bisect import insort
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace

from chaos.checkers.registry import CheckSuite
from chaos.experiment.structs import Experiment, microseconds
from chaos.results.run_directory import RunDirectory
from chaos.results.verdict import reach_verdict, without_lost_evidence
from chaos.run.conditions import (
    missing_for_liveness,
    missing_for_steady_state,
    slow_groups,
    summarize,
)
from chaos.run.injection import FaultInjector, ToolFailed
from chaos.run.journal import Journal
from chaos.run.live_checks import LiveChecks
from chaos.run.plan import Arrival, Moment, NextStep, PlannedAct, arrivals_of, schedule_of
from chaos.run.status_history import StatusHistory
from chaos.run.verification import read_committed_offsets
from cluster.runtime import ClusterStatus, MachineEvent, NodeState, Runtime
from protocol.ids import NodeName
from protocol.trace import TraceEvent, TraceKind, TraceRow
from results_schema.journal import FaultOutcome, JournalEntry
from results_schema.manifest import Plan, PlannedFault, RunStatus
from results_schema.results import CheckReport, Finding, Results, RunOutcome, Verdict, exit_code

POLL_US = 250_000
"""Interval of the run's regular checks. A regular check reports the findings of the checkers, and
ends the run at a limit.

In virtual time each regular check is an event of the run. A display must not change a run, so a run
without a display has the same regular checks. A regular check queries the cluster's status only if
a display or a later step needs it.
"""

STAGES = (
    "starting",
    "steady",
    "faults",
    "healing",
    "liveness",
    "recovery",
    "verifying",
    "stopping",
)
"""Names of the stages, in order, with the start of the nodes before and their stop afterwards."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """State of a run, for a live view.

    - `records_consumed`, `commits_acknowledged`: totals over all members and incarnations.
    - `waiting_for`: the conditions of the stage that do not hold yet.
    - `findings`: findings of checkers that see the trace during the run.
    """

    stage: str
    time_us: int
    status: ClusterStatus | None
    faults: tuple[JournalEntry, ...]
    records_consumed: int = 0
    commits_acknowledged: int = 0
    waiting_for: tuple[str, ...] = ()
    steady_at_us: int | None = None
    findings: tuple[Finding, ...] = ()


ProgressObserver = Callable[[Progress], None]
TraceReader = Callable[[], Iterable[TraceRow]]
"""Returns the rows of the whole trace, after the nodes have stopped."""


class GiveUp(Exception):
    """Ends the run early for the given reason; faults are healed, and the verdict is UNKNOWN."""


class ExperimentRun:
    """One run of one plan. `execute` may be called once."""

    _takes_guests = False
    """True if clients from outside may be members of the experiment's groups."""

    def __init__(
        self,
        experiment: Experiment,
        plan: Plan,
        runtime: Runtime,
        suite: CheckSuite,
        *,
        seed: int = 0,
        directory: RunDirectory | None = None,
        progress: ProgressObserver | None = None,
        read_trace: TraceReader | None = None,
        live_checks: LiveChecks | None = None,
        time_limit_us: int | None = None,
        stop_when: Callable[[Finding], bool] | None = None,
        verifies: bool = True,
    ) -> None:
        """Prepare a run.

        - `suite`: the checkers of the verdict.
        - `read_trace`: returns the trace for `suite` after the nodes have stopped. None: the
          runtime feeds `suite` during the run.
        - `live_checks`: additional checkers that read the trace during the run, if there is a
          `read_trace`.
        - `seed`: determines random choices of targets.
        - `time_limit_us`: the time of the run's clock at which the run ends early.
        - `stop_when`: ends the run after the first finding for which it returns True. A search for
          one finding does not need the rest of the run.
        - `verifies`: if False, the committed offsets are not read at the end. For a group without a
          coordinator the reading would take a minute, and would show nothing about liveness.
        """
        self._experiment = experiment
        self._plan = plan
        self._runtime = runtime
        self._suite = suite
        self._directory = directory
        self._progress = progress
        self._read_trace = read_trace
        self._live_checks = live_checks
        self._time_limit_us = time_limit_us
        self._stop_when = stop_when
        self._verifies = verifies
        # Nodes that start "apart" start at different times, as on real machines.
        self._starts_apart = experiment.cluster.starts == "apart"
        self._journal = Journal(plan, self._write_journal)
        self._injector = FaultInjector(experiment, runtime, self._journal, self._log, seed=seed)
        self._stage = ""
        self._status: ClusterStatus | None = None
        self._acted_since_status = False
        """True if the run has changed the cluster since its last status query."""
        self._status_history = StatusHistory()
        self._steady_at_us: int | None = None
        self._healed_at_us: int | None = None
        self._commits_at_healing: dict[str, int] = {}
        """Member -> number of its acknowledged commits; liveness demands one more of each."""
        self._silent_at_healing: set[NodeName] = set()
        """Nodes that were up at healing and did not answer, so that their commits are unknown."""
        self._findings: list[Finding] = []
        self._findings_reported = 0
        """Number of `_findings` that are in the trace or the log already."""
        self._journaled_machine_events: dict[int, MachineEvent] = {}
        """Index in `Runtime.machine_events` -> the event as it was last entered."""
        self._unknown: list[str] = []
        """Reasons for the verdict UNKNOWN."""
        self._tool_failures: list[str] = []

    def execute(self) -> Results:
        """Run to the end, also after errors, and return the results.

        Raises: only exceptions of a second Ctrl-C that comes while the cluster is being stopped.
        """
        interrupted = False
        if self._live_checks is None:
            self._suite.report_findings_to(self._take_finding)
        else:
            self._live_checks.report_findings_to(self._take_finding)

        try:
            self._runtime.run(self._run_stages())
        except KeyboardInterrupt:
            interrupted = True
            self._log("interrupted: healing and stopping")
        except Exception as error:
            self._tool_failures.append(f"{type(error).__name__}: {error}")
            # A lost machine may be the cause of a failure. `settle_contact` finds out which
            # machines are lost, for `_blame_machines`.
            with suppress(Exception):
                self._runtime.run(self._runtime.settle_contact())
        interrupted = self._clean_up(interrupted=interrupted)

        # Collect the failures of the run, then judge it.
        # A write that a node's disk has refused counts like one in the run's directory.
        if self._directory is not None and self._directory.disk.trouble is None:
            self._directory.disk.trouble = self._runtime.disk_trouble
        # A failure that ended the run is known already, as a part of a longer text.
        for failure in self._runtime.failures():
            if not any(failure in known for known in self._tool_failures):
                self._tool_failures.append(failure)
        self._journal_machine_events()
        self._blame_machines()
        reports = self._finish_checks()
        return self._conclude(reports, interrupted=interrupted)

    # -- the stages --

    async def _run_stages(self) -> None:
        """Go through the stages from the start to the verification; a GiveUp ends them early."""
        try:
            self._enter_stage("starting")
            await self._runtime.start(apart=self._starts_apart)
            # The clock error is measured by `start`, and some checkers depend on it.
            for checks in (self._suite, self._live_checks):
                if checks is not None:
                    checks.allow_clock_error(self._runtime.clock_error_us)
            await self._until_healing()
            await self._heal_everything()
            if await self._wait_for_liveness():
                await self._wait_for_recovery()
            if self._verifies:
                await self._verify()
        except GiveUp as reason:
            self._unknown.append(str(reason))
            self._log(f"giving up: {reason}")

    async def _until_healing(self) -> None:
        """Reach the steady state, and carry out the plan."""
        await self._reach_steady_state()
        await self._inject_faults()

    async def _reach_steady_state(self) -> None:
        """Wait for the steady state, and then for a moment that depends on no timer."""
        await self._wait_for_steady_state()
        if self._starts_apart:
            # The steady state comes at a moment that depends on the members' timers. If the plan
            # began then, its times would always fall into the same phase of these timers. A real
            # operator does not know the phase, so the plan begins some time later.
            await self._pause_until(self._runtime.now_us() + self._runtime.out_of_step_us())
            await self._wait_for_steady_state()  # the steady state may be lost during the pause
        self._note_steady_state()

    def _note_steady_state(self) -> None:
        """Note the time from which the times of the plan count."""
        self._enter_stage("steady")
        self._steady_at_us = self._runtime.now_us()
        for fault in self._plan:
            self._journal.entry(fault.fault_id).planned_at_us = self._steady_at_us + fault.at_us
        self._journal.changed()

    async def _wait_for_steady_state(self) -> None:
        """Wait until the cluster is steady. Raises: GiveUp after `steady_state_timeout`."""
        timeout = self._experiment.run.steady_state_timeout
        missing = await self._wait(
            lambda status: missing_for_steady_state(self._experiment, status),
            microseconds(timeout),
        )
        if missing:
            detail = {"waited_us": microseconds(timeout), "missing": missing}
            self._runtime.trace(TraceEvent(kind=TraceKind.STEADY_STATE_MISSED, detail=detail))
            slow = slow_groups(self._experiment)
            because = (
                f", and an application may be slower than max.poll.interval.ms ({', '.join(slow)})"
                if slow
                else ""
            )
            raise GiveUp(f"no steady state within {timeout}{because}: {summarize(missing)}")

    async def _inject_faults(self) -> None:
        """Carry out the plan and the starts of late members; then let the run go on for a while."""
        self._enter_stage("faults")
        began_us = self._runtime.now_us()
        moments: list[Moment] = [*schedule_of(self._plan, arrivals_of(self._experiment))]
        while moments:
            moment = moments.pop(0)
            await self._pause_until(began_us + moment.at_us)
            await self._act(moment, moments, began_us=began_us)
        # `after_faults` counts from now, because the last healing may have taken some time.
        after_us = microseconds(self._experiment.run.after_faults)
        await self._pause_until(self._runtime.now_us() + after_us)

    async def _act(self, moment: Moment, moments: list[Moment], *, began_us: int) -> None:
        """Carry out `moment`; insert the moments that follow from it into `moments`.

        Units: moments count from `began_us` of the run's clock.
        Raises: ToolFailed if the runtime could not do it.
        """
        match moment:
            case Arrival(node=node):
                await self._runtime.start_node(node)
                self._log(f"{node} started, as planned")
            case PlannedAct(planned=planned, heals=True):
                if self._injector.must_wait(planned, await self._runtime.status()):
                    # A node is still stopping. The plan goes on, and heals the fault later.
                    later = replace(moment, at_us=self._runtime.now_us() - began_us + POLL_US)
                    insort(moments, later, key=_time_of)
                else:
                    await self._injector.heal(planned, by="plan")
            case PlannedAct(planned=planned):  # an injection
                status = self._status_history.with_last_partitions(await self._check_and_query())
                await self._injector.inject(planned, status)
                if self._injector.has_next_step(planned):
                    # The first step is due now, so it goes before all other moments.
                    moments.insert(0, NextStep(at_us=moment.at_us, planned=planned))
            case NextStep(planned=planned):
                next_us = await self._injector.advance(planned, await self._check_and_query())
                if next_us is not None:
                    step = NextStep(at_us=next_us - began_us, planned=planned)
                    insort(moments, step, key=_time_of)
        self._acted_since_status = True

    async def _heal_everything(self) -> None:
        """Undo every fault in force, and remove all link rules.

        Raises: ToolFailed with all failures.
        """
        self._enter_stage("healing")
        await self._injector.heal_everything(self._plan)

    async def _wait_for_liveness(self) -> bool:
        """Wait until every group is stable and every member has committed, up to the timeout.

        Returns: True if all groups came so far. If not, the checker Liveness decides whether this
        is a violation.
        """
        await self._check_and_query()
        self._healed_at_us = self._runtime.now_us()
        timeout_us = microseconds(self._experiment.run.liveness_timeout)
        self._enter_stage("liveness", timeout_us=timeout_us)
        # The check `liveness` counts only commits whose rows come after the row of this stage. So
        # the counters are read only when every node's clock has passed the time of that row.
        if self._runtime.clock_error_us:
            await self._runtime.sleep(self._runtime.clock_error_us)
        await self._note_commits_at_healing()
        missing = await self._wait(self._missing_for_liveness, timeout_us)
        if missing:
            self._log(f"not live: {summarize(missing)}")
            self._trace_waiting_requests()
        return not missing

    async def _note_commits_at_healing(self) -> None:
        """Note each member's acknowledged commits, of which liveness demands one more."""
        status = await self._query_status()
        self._commits_at_healing = {
            name: member.commits_acknowledged for name, member in status.members.items()
        }
        self._silent_at_healing = {
            name
            for name, state in status.nodes.items()
            if state is NodeState.UP and name not in status.members
        }

    def _missing_for_liveness(self, status: ClusterStatus) -> list[str]:
        """Return what is missing for liveness, with the facts of this run as arguments."""
        for name, member in status.members.items():
            if name in self._silent_at_healing:
                # The node's commits at healing are unknown, so it must commit once more than now.
                self._commits_at_healing.setdefault(name, member.commits_acknowledged)
        return missing_for_liveness(
            self._experiment,
            status,
            self._commits_at_healing,
            lost=self._absent_nodes(),
            joined=self._injector.joined_nodes,
            deleted_topics=self._injector.deleted_topics,
            guests=self._takes_guests,
        )

    def _absent_nodes(self) -> tuple[NodeName, ...]:
        """Return the members of the experiment that no group waits for."""
        return self._injector.lost_nodes

    def _trace_waiting_requests(self) -> None:
        """Trace every unanswered request of a member, so that a finding can name it."""
        for name, member in (self._status or ClusterStatus()).members.items():
            for request in member.waiting:
                self._runtime.trace(
                    TraceEvent(
                        kind=TraceKind.REQUEST_WAITING,
                        group=member.group_id,
                        member=member.member_id or None,
                        api=request.api,
                        peer=request.peer,
                        detail={"consumer": name, "waited_us": request.waited_us},
                    )
                )

    async def _wait_for_recovery(self) -> None:
        """Wait until no promise is pending, but no longer than `recovery_timeout`."""
        timeout_us = microseconds(self._experiment.run.recovery_timeout)
        if timeout_us == 0:
            return
        self._enter_stage("recovery", timeout_us=timeout_us)
        missing = await self._wait(lambda _status: self._unsettled(), timeout_us)
        if missing:
            self._log(f"not waited for any longer: {summarize(missing)}")

    def _unsettled(self) -> list[str]:
        """Return the conditions that promises wait for, as far as the trace has been checked."""
        now_us = self._runtime.now_us()
        if self._read_trace is None:
            return self._suite.unsettled(now_us)
        # `known` is None if no live checks read the trace, or if they have failed.
        known = None if self._live_checks is None else self._live_checks.unsettled(now_us)
        return ["the trace is not judged while the run goes on"] if known is None else known

    async def _verify(self) -> None:
        self._enter_stage("verifying")
        self._unknown += await read_committed_offsets(self._experiment, self._runtime)

    # -- waits and checks of the run --

    async def _wait(
        self, missing_in: Callable[[ClusterStatus], list[str]], timeout_us: int
    ) -> list[str]:
        """Query the cluster until nothing is missing; return what is missing at the timeout."""
        deadline_us = self._runtime.now_us() + timeout_us
        while True:
            missing = missing_in(await self._check_and_query())
            self._show(missing)
            if not missing or self._runtime.now_us() >= deadline_us:
                return missing
            await self._runtime.sleep(min(POLL_US, deadline_us - self._runtime.now_us()))

    async def _pause_until(self, time_us: int) -> None:
        """Let the run go on until `time_us`, and make the regular checks in between."""
        while (remaining_us := time_us - self._runtime.now_us()) > 0:
            await self._runtime.sleep(min(POLL_US, remaining_us))
            if self._status_is_needed():
                await self._check_and_query()
            elif reason := self._reason_to_give_up():
                await self._query_status()  # the results take their totals from the last status
                raise GiveUp(reason)
            self._show()

    async def _check_and_query(self) -> ClusterStatus:
        """Report new findings, apply limits, and return the state of the cluster."""
        reason = self._reason_to_give_up()
        # The status is queried even if the run ends now, because the results take their totals from
        # it.
        status = await self._query_status()
        if reason:
            raise GiveUp(reason)
        return status

    async def _query_status(self) -> ClusterStatus:
        self._status = await self._runtime.status()
        self._status_history.observe(self._status)
        self._acted_since_status = False
        return self._status

    def _status_is_needed(self) -> bool:
        """Return True if the present check of the run must query the cluster's status.

        The counters of a member restart at 0 with its next incarnation, so they must be read before
        an incarnation ends. Before a fault that ends a node, the status is queried anyway. Other
        nodes end by themselves: those that are STOPPING. While there is one, the status is needed.
        """
        return (
            self._progress is not None
            or self._live_checks is not None
            or self._status is None
            or self._acted_since_status
            or NodeState.STOPPING in self._status.nodes.values()
        )

    def _reason_to_give_up(self) -> str:
        """Report the findings since the last check; return why the run must end now, or "".

        Raises: ToolFailed after a failure of the tool.
        """
        ends_run = self._journal_machine_events()
        if ends_run:
            return ends_run
        failures = self._runtime.failures()
        if failures:
            raise ToolFailed(failures[0])
        if self._directory is not None and self._directory.disk.trouble is not None:
            raise ToolFailed(self._directory.disk.trouble)
        now_us = self._runtime.now_us()
        if self._time_limit_us is not None and now_us > self._time_limit_us:
            return f"the time limit of {self._time_limit_us / 1e6:g} s was reached"
        self._check_live(now_us)
        reported_before = self._findings_reported
        self._report_findings()
        if self._stop_when is not None and any(
            map(self._stop_when, self._findings[reported_before:])
        ):
            # `stop_when` returned True for a new finding.
            return "what was looked for was found"
        return ""

    def _take_finding(self, finding: Finding) -> None:
        self._findings.append(finding)

    def _journal_machine_events(self) -> str:
        """Enter machines that do not answer into journal and log; return why the run ends, or "".

        A machine that came back counts as disturbed from its last answer before the silence to its
        first answer after it. The report's timeline shows this time as a band.
        """
        for index, event in enumerate(self._runtime.machine_events):
            # An event changes when it ends, and is then entered again.
            if self._journaled_machine_events.get(index) == event:
                continue
            self._journaled_machine_events[index] = event
            kind = "machine_lost" if event.is_lost else "machine_disturbed"
            planned = PlannedFault(
                fault_id=f"machine-{index}",
                at_us=event.from_us,
                fault=kind,
                target=event.address,
                duration_us=None,
            )
            entry = self._journal.add(planned)
            entry.outcome = FaultOutcome.HIT
            entry.fired_at_us = event.from_us
            entry.nodes = event.nodes
            entry.node = event.nodes[0] if event.nodes else None
            entry.note = event.sentence
            # The run cannot heal a machine, so the entry must never count as in force. Without an
            # end it is momentary, and with an end it is healed.
            entry.momentary = event.until_us is None
            # Members may be on the machine, so a rebalance is no finding.
            entry.members_survive = False
            if event.until_us is not None:
                entry.in_force_from_us = event.from_us
                entry.in_force_until_us = entry.healed_at_us = event.until_us
                entry.healed_by = "itself"
            self._journal.changed()
            self._log(event.sentence)
        return next(
            (event.ends_run for event in self._runtime.machine_events if event.ends_run), ""
        )

    def _blame_machines(self) -> None:
        """If a machine was away, turn failures of the lab into reasons for the verdict UNKNOWN.

        A call to a lost machine fails. Such a failure is no error of the lab or of Kafka.
        """
        events = self._runtime.machine_events
        # `gone` has machines that are lost, or still silent. A machine that came back is blamed
        # only if the lab has failed.
        gone = [event for event in events if event.is_lost or event.until_us is None]
        if not gone and not (events and self._tool_failures):
            return
        reasons_to_end = [event.ends_run for event in gone if event.ends_run]
        failures = [failure.partition("\n")[0] for failure in self._tool_failures]
        losses = [event.sentence for event in gone or events]
        others = [reason for reason in self._unknown if reason not in reasons_to_end]
        self._unknown = [*losses, *reasons_to_end, *others, *failures]
        self._tool_failures = []

    def _check_live(self, now_us: int) -> None:
        """Let the live checks read the new rows, and log an error that stops these checks."""
        checks = self._live_checks
        if checks is None or checks.trouble is not None:
            return
        checks.advance(now_us)
        if checks.trouble is not None:
            self._log(checks.trouble)

    def _report_findings(self) -> None:
        """Write the findings since the last check into the trace and the log.

        A finding is written later than it is found, because a checker finds it while another row is
        being written. A finding of `live_checks` is only logged, because a row VIOLATION in the
        trace counts for the verdict.
        """
        for finding in self._findings[self._findings_reported :]:
            if self._live_checks is not None:
                self._log(f"{finding.check} seems violated: {finding.summary}")
                continue
            self._runtime.trace(
                TraceEvent(
                    kind=TraceKind.VIOLATION,
                    group=finding.group,
                    partition=finding.partition,
                    cause=finding.check,
                    detail={"summary": finding.summary, "found_at_us": finding.time_us},
                )
            )
            self._log(f"{finding.check} is violated: {finding.summary}")
        self._findings_reported = len(self._findings)

    def _enter_stage(self, stage: str, **detail: int) -> None:
        """Begin a stage, and write it into the trace, with `detail`, and into the log."""
        self._stage = stage
        self._runtime.trace(TraceEvent(kind=TraceKind.RUN_STAGE, detail={"stage": stage, **detail}))
        self._log(f"stage {stage}")
        self._show()

    def _show(self, waiting_for: Iterable[str] = ()) -> None:
        """Pass the state of the run to the live view, if there is one."""
        if self._progress is None:
            return
        self._progress(
            Progress(
                stage=self._stage,
                time_us=self._runtime.now_us(),
                status=self._status,
                faults=self._journal.entries,
                records_consumed=self._status_history.records_consumed,
                commits_acknowledged=self._status_history.commits_acknowledged,
                waiting_for=tuple(waiting_for),
                steady_at_us=self._steady_at_us,
                findings=tuple(self._findings),
            )
        )

    # -- the end --

    def _clean_up(self, *, interrupted: bool) -> bool:
        """Heal all faults in force, and stop the cluster.

        Returns: True if a Ctrl-C came before this call (`interrupted`) or during it.

        An interrupted run takes its totals from its last status query. If the last query may be too
        old for this, this method makes another one.
        """
        # While `_status_is_needed` is True, each regular check queries the status, so the last
        # query is new enough.
        if interrupted and not self._status_is_needed():
            # Neither a second Ctrl-C nor a cluster that cannot answer may prevent the healing.
            with suppress(Exception, KeyboardInterrupt):
                self._runtime.run(self._query_status())
        if self._injector.may_need_healing:
            try:
                self._runtime.run(self._heal_everything())
            except KeyboardInterrupt:
                interrupted = True
            except Exception as error:
                self._tool_failures.append(f"healing: {type(error).__name__}: {error}")
        try:
            self._enter_stage("stopping")
            self._runtime.run(self._runtime.stop())
        except KeyboardInterrupt:
            # The interrupted `stop` may have left processes, so it begins again. A third Ctrl-C
            # ends it.
            interrupted = True
            self._runtime.run(self._runtime.stop())
        except Exception as error:
            self._tool_failures.append(f"stopping: {type(error).__name__}: {error}")
        return interrupted

    def _finish_checks(self) -> tuple[CheckReport, ...]:
        """Return the reports of all checkers; none if the checking itself has failed."""
        try:
            if self._read_trace is not None:
                self._suite.observe_all(self._read_trace())
            return self._suite.finish()
        except Exception as error:
            self._tool_failures.append(f"checking: {type(error).__name__}: {error}")
            return ()

    def _conclude(self, reports: tuple[CheckReport, ...], *, interrupted: bool) -> Results:
        """Reach the verdict, write the results if there is a directory, and return them."""
        reports = without_lost_evidence(
            reports,
            self._runtime.machine_events,
            self._runtime.nodes_without_trace,
            self._suite.kinds_read(),
        )
        verdict, reasons = reach_verdict(
            reports=reports,
            entries=self._judged_entries(),
            unknown_because=("interrupted",) if interrupted else tuple(self._unknown),
        )

        # Only a completed run has a verdict other than UNKNOWN.
        if interrupted:
            outcome = RunOutcome.INTERRUPTED
            reasons = (*reasons, *self._tool_failures)
        elif self._tool_failures:
            outcome = RunOutcome.INTERNAL_ERROR
            reasons = tuple(self._tool_failures)
        else:
            outcome = RunOutcome.COMPLETED
        if outcome is not RunOutcome.COMPLETED:
            verdict = Verdict.UNKNOWN

        status = self._status or ClusterStatus()
        results = Results(
            outcome=outcome,
            verdict=verdict,
            exit_code=exit_code(outcome, verdict),
            reasons=reasons,
            checks=reports,
            faults=self._journal.entries,
            steady_at_us=self._steady_at_us,
            healed_at_us=self._healed_at_us,
            ended_at_us=self._runtime.now_us(),
            records_produced=status.records_produced,
            records_consumed=self._status_history.records_consumed,
            commits_acknowledged=self._status_history.commits_acknowledged,
            rows_seen=self._suite.rows_seen,
            time_scale=1.0 if self._directory is None else self._directory.manifest.time_scale,
        )
        if self._directory is not None:
            self._directory.write_results(results)
            self._directory.finish(_STATUS[outcome])
        self._log(f"{outcome}, verdict {verdict}: {'; '.join(reasons) or 'nothing to add'}")
        return results

    def _judged_entries(self) -> tuple[JournalEntry, ...]:
        """Return the faults that must have hit for a verdict other than UNKNOWN."""
        return self._journal.entries

    def _log(self, message: str) -> None:
        if self._directory is not None:
            self._directory.log(self._runtime.now_us(), message)

    def _write_journal(self, entries: tuple[JournalEntry, ...]) -> None:
        if self._directory is not None:
            self._directory.write_journal(entries)


def _time_of(moment: Moment) -> int:
    return moment.at_us


# Outcome of a run -> status in its manifest.
_STATUS = {
    RunOutcome.COMPLETED: RunStatus.COMPLETED,
    RunOutcome.INTERRUPTED: RunStatus.INTERRUPTED,
    RunOutcome.INTERNAL_ERROR: RunStatus.FAILED,
}
