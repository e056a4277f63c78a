"""Runs an experiment: its stages one after another, and the verdict.

Steady state, faults by the plan, healing, liveness, recovery, verification. Knows only `Runtime`:
the same code drives virtual time and Ray. Whatever happens on the way, an error or a Ctrl-C too,
everything that was broken is healed and the cluster is stopped. Data flow: (experiment, plan) ->
Runtime; trace rows -> CheckSuite -> Results; every change -> RunDirectory.
"""

from bisect import insort
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace

from chaos.checkers.registry import CheckSuite
from chaos.experiment.structs import Experiment, microseconds
from chaos.results.run_directory import RunDirectory
from chaos.results.verdict import reach_verdict
from chaos.run.conditions import missing_for_liveness, missing_for_steady_state, summarize
from chaos.run.injection import FaultInjector, ToolFailed
from chaos.run.journal import Journal
from chaos.run.live_checks import LiveChecks
from chaos.run.plan import Arrival, Moment, NextStep, PlannedAct, arrivals_of, schedule_of
from chaos.run.status_history import Looks
from chaos.run.verification import read_committed_offsets
from cluster.runtime import ClusterStatus, NodeState, Runtime
from protocol.ids import NodeName
from protocol.trace import TraceEvent, TraceKind, TraceRow
from results_schema.journal import JournalEntry
from results_schema.manifest import Plan, RunStatus
from results_schema.results import CheckReport, Finding, Results, RunOutcome, Verdict, exit_code

POLL_US = 250_000
"""Interval of the looks at a run: findings are reported then, and limits applied. The same whether
anybody watches or not: a look is an event of the virtual loop, and watching must not change a run.
The state of the cluster is asked for at a look only where somebody or something needs it."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """What a live view shows.

    `records_consumed` and `commits_acknowledged` are of all members, in all their lives.
    `waiting_for` says what the stage still misses; `findings` are those of the checkers so far,
    where they see the trace while the run goes on.
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


class GiveUp(Exception):
    """The run cannot prove its point; says why. It is healed, stopped and UNKNOWN."""


class ExperimentRun:
    """One run of one plan. `execute` may be called once."""

    _takes_guests = False
    """Whether clients from outside may be members of the experiment's groups."""

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

        Shape: `suite` is fed either while the run goes on, by the runtime's observers, or from
        `read_trace` after the nodes have stopped; then `live_checks` may look ahead of it.
        `seed` draws what targets leave to chance. `stop_when` ends the run at the look after the
        first finding of which it is true: who only asks whether it is there need not see more.
        Without `verifies` nobody reads the committed offsets at the end: where a group has no
        coordinator that takes a minute, and says nothing of its liveness.
        Units: `time_limit_us` is on the run's clock.
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
        self._starts_apart = experiment.cluster.starts == "apart"
        self._journal = Journal(plan, self._write_journal)
        self._injector = FaultInjector(experiment, runtime, self._journal, self._log, seed=seed)
        self._stage = ""
        self._status: ClusterStatus | None = None
        self._acted_since_status = False
        self._looks = Looks()
        self._steady_at_us: int | None = None
        self._healed_at_us: int | None = None
        self._commits_at_healing: dict[str, int] = {}
        self._findings: list[Finding] = []
        self._findings_told = 0
        self._unknown: list[str] = []
        self._tool_failures: list[str] = []

    def execute(self) -> Results:
        """Run to the end, whatever that is, and return what it proved.

        Raises: nothing but what a second Ctrl-C, while everything is being stopped, raises.
        """
        interrupted = False
        if self._live_checks is None:
            self._suite.report_findings_to(self._take_finding)
        else:
            self._live_checks.report_findings_to(self._take_finding)
        try:
            self._runtime.run(self._measure())
        except KeyboardInterrupt:
            interrupted = True
            self._log("interrupted: healing and stopping")
        except Exception as error:
            self._tool_failures.append(f"{type(error).__name__}: {error}")
        interrupted = self._clean_up(interrupted=interrupted)
        if self._directory is not None and self._directory.disk.trouble is None:
            self._directory.disk.trouble = self._runtime.disk_trouble
        for failure in self._runtime.failures():
            if not any(failure in known for known in self._tool_failures):
                self._tool_failures.append(failure)
        reports = self._check()
        return self._conclude(reports, interrupted=interrupted)

    # -- the stages --

    async def _measure(self) -> None:
        try:
            self._enter("starting")
            await self._runtime.start(apart=self._starts_apart)
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
        await self._wait_for_steady_state()
        if self._starts_apart:
            # The members' timers began with it, and an operator does not know of them.
            await self._pause_until(self._runtime.now_us() + self._runtime.out_of_step_us())
            await self._wait_for_steady_state()
        self._note_steady_state()

    def _note_steady_state(self) -> None:
        """Begin the time of the plan."""
        self._enter("steady")
        self._steady_at_us = self._runtime.now_us()
        for fault in self._plan:
            self._journal.entry(fault.fault_id).planned_at_us = self._steady_at_us + fault.at_us
        self._journal.changed()

    async def _wait_for_steady_state(self) -> None:
        timeout = self._experiment.run.steady_state_timeout
        missing = await self._wait(
            lambda status: missing_for_steady_state(self._experiment, status),
            microseconds(timeout),
        )
        if missing:
            detail = {"waited_us": microseconds(timeout), "missing": missing}
            self._runtime.trace(TraceEvent(kind=TraceKind.STEADY_STATE_MISSED, detail=detail))
            raise GiveUp(f"no steady state within {timeout}: {summarize(missing)}")

    async def _inject_faults(self) -> None:
        self._enter("faults")
        began_us = self._runtime.now_us()
        moments: list[Moment] = [*schedule_of(self._plan, arrivals_of(self._experiment))]
        while moments:
            moment = moments.pop(0)
            await self._pause_until(began_us + moment.at_us)
            await self._act(moment, moments, began_us=began_us)
        # From now: what was undone last may have taken its time.
        after_us = microseconds(self._experiment.run.after_faults)
        await self._pause_until(self._runtime.now_us() + after_us)

    async def _act(self, moment: Moment, moments: list[Moment], *, began_us: int) -> None:
        """Do what is due; enter into `moments` what comes of it later.

        Units: moments count from `began_us` of the run's clock.
        Raises: ToolFailed if the runtime could not do it.
        """
        match moment:
            case Arrival(node=node):
                await self._runtime.start_node(node)
                self._log(f"{node} started, as planned")
            case PlannedAct(planned=planned, heals=True):
                if self._injector.must_wait(planned, await self._runtime.status()):
                    later = replace(moment, at_us=self._runtime.now_us() - began_us + POLL_US)
                    insort(moments, later, key=lambda each: each.at_us)
                else:
                    await self._injector.heal(planned, by="plan")
            case PlannedAct(planned=planned):
                status = self._looks.as_known(await self._look())
                await self._injector.inject(planned, status)
                if self._injector.goes_on(planned):
                    moments.insert(0, NextStep(at_us=moment.at_us, planned=planned))
            case NextStep(planned=planned):
                next_us = await self._injector.advance(planned, await self._look())
                if next_us is not None:
                    step = NextStep(at_us=next_us - began_us, planned=planned)
                    insort(moments, step, key=lambda each: each.at_us)
        self._acted_since_status = True

    async def _heal_everything(self) -> None:
        """Undo every fault that is in force, and take out every link rule.

        Raises: ToolFailed with all that could not be undone.
        """
        self._enter("healing")
        await self._injector.heal_everything(self._plan)

    async def _wait_for_liveness(self) -> bool:
        """Wait, within the bound, until every group is well and every member committed again.

        Returns: whether it came. Whether that it did not is a violation, the checker says.
        """
        status = await self._look()
        self._commits_at_healing = {
            name: member.commits_acknowledged for name, member in status.members.items()
        }
        self._healed_at_us = self._runtime.now_us()
        timeout_us = microseconds(self._experiment.run.liveness_timeout)
        self._enter("liveness", timeout_us=timeout_us)
        missing = await self._wait(
            lambda status: missing_for_liveness(
                self._experiment,
                status,
                self._commits_at_healing,
                lost=self._absent_nodes(),
                joined=self._injector.joined_nodes,
                guests=self._takes_guests,
            ),
            timeout_us,
        )
        if missing:
            self._log(f"not live: {summarize(missing)}")
            self._tell_who_waits()
        return not missing

    def _absent_nodes(self) -> tuple[NodeName, ...]:
        """Return the members of the experiment that no group waits for."""
        return self._injector.lost_nodes

    def _tell_who_waits(self) -> None:
        """Write every request that a member has no answer to: a finding may name it."""
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
        """Go on until no promise waits for anything, for `recovery_timeout` at most."""
        timeout_us = microseconds(self._experiment.run.recovery_timeout)
        if timeout_us == 0:
            return
        self._enter("recovery", timeout_us=timeout_us)
        missing = await self._wait(lambda _status: self._unsettled(), timeout_us)
        if missing:
            self._log(f"not waited for any longer: {summarize(missing)}")

    def _unsettled(self) -> list[str]:
        """Return what the promises wait for, as far as anybody has judged the trace."""
        now_us = self._runtime.now_us()
        if self._read_trace is None:
            return self._suite.unsettled(now_us)
        known = None if self._live_checks is None else self._live_checks.unsettled(now_us)
        return ["the trace is not judged while the run goes on"] if known is None else known

    async def _verify(self) -> None:
        self._enter("verifying")
        self._unknown += await read_committed_offsets(self._experiment, self._runtime)

    # -- waiting and looking --

    async def _wait(
        self, missing_in: Callable[[ClusterStatus], list[str]], timeout_us: int
    ) -> list[str]:
        """Look again and again until nothing is missing; return what still is after the timeout."""
        deadline_us = self._runtime.now_us() + timeout_us
        while True:
            missing = missing_in(await self._look())
            self._show(missing)
            if not missing or self._runtime.now_us() >= deadline_us:
                return missing
            await self._runtime.sleep(min(POLL_US, deadline_us - self._runtime.now_us()))

    async def _pause_until(self, time_us: int) -> None:
        """Let the run go on until `time_us`, looking at it on the way."""
        while (left_us := time_us - self._runtime.now_us()) > 0:
            await self._runtime.sleep(min(POLL_US, left_us))
            if self._status_is_needed():
                await self._look()
            elif reason := self._reason_to_give_up():
                await self._ask_status()
                raise GiveUp(reason)
            self._show()

    async def _look(self) -> ClusterStatus:
        """Report what was found, and return the state of the cluster."""
        reason = self._reason_to_give_up()
        status = await self._ask_status()
        if reason:
            raise GiveUp(reason)
        return status

    async def _ask_status(self) -> ClusterStatus:
        self._status = await self._runtime.status()
        self._looks.observe(self._status)
        self._acted_since_status = False
        return self._status

    def _status_is_needed(self) -> bool:
        """Return whether the status at this look could be missed.

        A member counts from 0 in its next life. `inject` looks before it ends a life at once, so
        that what is left are nodes that end by themselves, after an act, while they are stopping.
        """
        return (
            self._progress is not None
            or self._live_checks is not None
            or self._status is None
            or self._acted_since_status
            or NodeState.STOPPING in self._status.nodes.values()
        )

    def _reason_to_give_up(self) -> str:
        """Report what was found since the last look; return why the run ends here, or "".

        Raises: ToolFailed after a failure of the tool.
        """
        failures = self._runtime.failures()
        if failures:
            raise ToolFailed(failures[0])
        if self._directory is not None and self._directory.disk.trouble is not None:
            raise ToolFailed(self._directory.disk.trouble)
        now_us = self._runtime.now_us()
        if self._time_limit_us is not None and now_us > self._time_limit_us:
            return f"the time limit of {self._time_limit_us / 1e6:g} s was reached"
        self._check_live(now_us)
        told = self._findings_told
        self._tell_findings()
        if self._stop_when is not None and any(map(self._stop_when, self._findings[told:])):
            return "what was looked for was found"
        return ""

    def _take_finding(self, finding: Finding) -> None:
        self._findings.append(finding)

    def _check_live(self, now_us: int) -> None:
        checks = self._live_checks
        if checks is None or checks.trouble is not None:
            return
        checks.advance(now_us)
        if checks.trouble is not None:
            self._log(checks.trouble)

    def _tell_findings(self) -> None:
        """Write what the checkers have found since the last look into the trace and the log.

        Not at the moment they find it: that is in the middle of another row. What was found ahead
        of the whole trace is only logged: a VIOLATION in the trace is a verdict.
        """
        for finding in self._findings[self._findings_told :]:
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
        self._findings_told = len(self._findings)

    def _enter(self, stage: str, **detail: int) -> None:
        self._stage = stage
        self._runtime.trace(TraceEvent(kind=TraceKind.RUN_STAGE, detail={"stage": stage, **detail}))
        self._log(f"stage {stage}")
        self._show()

    def _show(self, waiting_for: Iterable[str] = ()) -> None:
        if self._progress is None:
            return
        self._progress(
            Progress(
                stage=self._stage,
                time_us=self._runtime.now_us(),
                status=self._status,
                faults=self._journal.entries,
                records_consumed=self._looks.records_consumed,
                commits_acknowledged=self._looks.commits_acknowledged,
                waiting_for=tuple(waiting_for),
                steady_at_us=self._steady_at_us,
                findings=tuple(self._findings),
            )
        )

    # -- the end --

    def _clean_up(self, *, interrupted: bool) -> bool:
        """Heal what is still broken, and stop the cluster; return whether Ctrl-C came by the end.

        The figures of a run that was `interrupted` are those of that moment, watched or not.
        """
        if interrupted and not self._status_is_needed():
            # A second Ctrl-C, or a cluster that cannot answer, must not keep it from being healed.
            with suppress(Exception, KeyboardInterrupt):
                self._runtime.run(self._ask_status())
        if self._injector.anything_left:
            try:
                self._runtime.run(self._heal_everything())
            except KeyboardInterrupt:
                interrupted = True
            except Exception as error:
                self._tool_failures.append(f"healing: {type(error).__name__}: {error}")
        try:
            self._enter("stopping")
            self._runtime.run(self._runtime.stop())
        except KeyboardInterrupt:
            interrupted = True
            self._runtime.run(self._runtime.stop())
        except Exception as error:
            self._tool_failures.append(f"stopping: {type(error).__name__}: {error}")
        return interrupted

    def _check(self) -> tuple[CheckReport, ...]:
        try:
            if self._read_trace is not None:
                self._suite.observe_all(self._read_trace())
            return self._suite.finish()
        except Exception as error:
            self._tool_failures.append(f"checking: {type(error).__name__}: {error}")
            return ()

    def _conclude(self, reports: tuple[CheckReport, ...], *, interrupted: bool) -> Results:
        verdict, reasons = reach_verdict(
            reports=reports,
            entries=self._judged_entries(),
            unknown_because=("interrupted",) if interrupted else tuple(self._unknown),
        )
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
            records_consumed=self._looks.records_consumed,
            commits_acknowledged=self._looks.commits_acknowledged,
            rows_seen=self._suite.rows_seen,
            time_scale=1.0 if self._directory is None else self._directory.manifest.time_scale,
        )
        if self._directory is not None:
            self._directory.write_results(results)
            self._directory.finish(_STATUS[outcome])
        self._log(f"{outcome}, verdict {verdict}: {'; '.join(reasons) or 'nothing to add'}")
        return results

    def _judged_entries(self) -> tuple[JournalEntry, ...]:
        """Return the faults without which the run does not prove its point."""
        return self._journal.entries

    def _log(self, message: str) -> None:
        if self._directory is not None:
            self._directory.log(self._runtime.now_us(), message)

    def _write_journal(self, entries: tuple[JournalEntry, ...]) -> None:
        if self._directory is not None:
            self._directory.write_journal(entries)


_STATUS = {
    RunOutcome.COMPLETED: RunStatus.COMPLETED,
    RunOutcome.INTERRUPTED: RunStatus.INTERRUPTED,
    RunOutcome.INTERNAL_ERROR: RunStatus.FAILED,
}
