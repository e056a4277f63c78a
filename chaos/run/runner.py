"""ExperimentRun: carries out one experiment, from the start of the cluster to the verdict.

The command `run`, the search and the tests all use this class. A run goes through these stages:

1. Steady state: wait until every group is stable.
2. Faults: inject and heal the faults of the plan, each at its time.
3. Healing: undo all faults that are still in force.
4. Liveness: wait until every group is stable again and commits.
5. Recovery: wait until no checker waits for anything any more. For example, one checker waits
   until every partition has its full ISR again.
6. Verification: read the committed offsets once more, so that the checkers can judge them.

Even after an error or a Ctrl-C, a run heals all faults and stops the cluster.

This module knows only the interface Runtime. So the same code drives a cluster in virtual time, on
Ray, or on several machines.

The cluster writes a trace, with one row for each event. The checkers (CheckSuite) read these rows.
A violation that a checker reports is called a finding. The journal says what happened to each
fault. Everything that is to be kept is written into the RunDirectory.
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
"""Interval of the regular checks that a run makes while it waits.

A regular check reports new findings, and ends the run if the time limit is reached. It also queries
the status of the cluster if the live view or a later step needs the status.

In virtual time a run makes these checks even if there is no live view. Each check is an event of
the simulated loop, and a run must have the same events with a live view as without.
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
"""Names of all stages, in order.

These are the six stages of the module's docstring and two more. In "starting", which comes first,
the nodes are started. In "stopping", which comes last, they are stopped.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """State of a run, for a live view.

    - `time_us`: the time on the run's clock.
    - `status`: the last known status of the cluster.
    - `faults`: the entries of the journal.
    - `records_consumed`, `commits_acknowledged`: totals of all members. If a member was killed and
      started again, the totals include what it did before.
    - `waiting_for`: the conditions for which the present stage waits, as sentences such as
      "consumer-orders-0 does not answer".
    - `steady_at_us`: the time of the steady state, on the run's clock.
    - `findings`: the violations that were found until now.
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
"""Function that returns the rows of the whole trace. It is called after the nodes have stopped."""


class GiveUp(Exception):
    """Raised to end the run early. The message is the reason.

    The remaining stages are skipped, but the faults in force are healed, and the cluster is
    stopped. The verdict is UNKNOWN.
    """


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

        - `suite`: the checkers that decide the verdict.
        - `directory`: the directory for the files of the run; None if no files are to be kept.
        - `progress`: called with the state of the run, for a live view.
        - `read_trace`: reads the whole trace after the nodes have stopped. Then `suite` checks the
          trace. In virtual time `read_trace` is None, because the runtime gives each row to `suite`
          when the row is written.
        - `live_checks`: a second set of checkers. If there is a `read_trace`, they show findings
          during the run. Without them nothing would be known before the end of the run.
        - `seed`: determines the random choices of faults. For example, it decides which broker is
          hit by a fault with the target `any-broker`.
        - `time_limit_us`: the time on the run's clock at which the run ends early.
        - `stop_when`: called with each finding. If it returns True, the run ends. A caller that
          looks for one certain finding does not need the rest of the run.
        - `verifies`: if False, the committed offsets are not read at the end. If a group has no
          coordinator, the reading would take a minute, and would show nothing about liveness.
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
        # True if the nodes are to start at different times, as they do on real machines.
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
        """Number of acknowledged commits of each member at the healing.

        For liveness each member needs one more.
        """
        self._silent_at_healing: set[NodeName] = set()
        """Nodes that were up at the healing, but did not answer the status query.

        So it is not known how many commits they had at the healing.
        """
        self._findings: list[Finding] = []
        self._findings_reported = 0
        """Number of findings that were reported. They are the first ones in `_findings`."""
        self._journaled_machine_events: dict[int, MachineEvent] = {}
        """Machine events that are in the journal, by their index in the runtime's list.

        A machine event is a time in which a machine did not answer. When this time ends, the
        runtime replaces the event by another. The values here are the events as they were when they
        were written into the journal.
        """
        self._unknown: list[str] = []
        """Reasons for the verdict UNKNOWN."""
        self._tool_failures: list[str] = []
        """Failures of coordlab itself. If there are any, the run proves nothing."""

    def execute(self) -> Results:
        """Run to the end, even after errors, and return the results.

        Raises: KeyboardInterrupt after a further Ctrl-C while the cluster is being stopped. All
        other exceptions become a part of the results.
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
            # The cause may be that a machine was lost. `settle_contact` waits until it is clear
            # which machines are lost. `_blame_machines` (below) needs this knowledge.
            with suppress(Exception):
                self._runtime.run(self._runtime.settle_contact())
        interrupted = self._clean_up(interrupted=interrupted)

        # Collect the failures of the run, and then judge the run.
        # If a node could not write its trace to the disk of its machine, this is treated as if a
        # write into the run's directory had failed.
        if self._directory is not None and self._directory.disk.trouble is None:
            self._directory.disk.trouble = self._runtime.disk_trouble
        # One of the runtime's failures may have ended the run as an exception. Then an entry such
        # as "ToolFailed: ..." contains its text already.
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
            # `start` has measured by how much the clocks of the machines differ. Some checkers need
            # to know this.
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
        """Wait for the steady state. If the nodes start apart, wait for some more time after it."""
        await self._wait_for_steady_state()
        if self._starts_apart:
            # The cluster becomes steady when the last member has committed. At this moment the
            # timers of the members are at the same point in every run. If the plan began now, a
            # fault "after 2 s" would always come at the same point of a heartbeat interval. But
            # real faults come at any point. So the plan begins some time later.
            await self._pause_until(self._runtime.now_us() + self._runtime.out_of_step_us())
            await self._wait_for_steady_state()  # a member may have left during the pause
        self._note_steady_state()

    def _note_steady_state(self) -> None:
        """Note the present time as the steady state. All times of the plan count from then."""
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
        """Carry out the plan: inject and heal its faults, and start the late members.

        Each of these moments has its time. After the last moment, the cluster goes on for the time
        `after_faults` of the experiment.
        """
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
        """Carry out `moment`, and insert the moments that follow from it into `moments`.

        For example, a rollout is injected at one moment, and takes further steps at later moments.
        The moment of each step is inserted when the step before has been taken. The times of
        moments count from `began_us`.

        Raises: ToolFailed if the runtime could not carry it out.
        """
        match moment:
            case Arrival(node=node):
                await self._runtime.start_node(node)
                self._log(f"{node} started, as planned")
            case PlannedAct(planned=planned, heals=True):
                if self._injector.must_wait(planned, await self._runtime.status()):
                    # The node is still stopping. The plan goes on, and the fault is healed later.
                    later = replace(moment, at_us=self._runtime.now_us() - began_us + POLL_US)
                    insort(moments, later, key=_time_of)
                else:
                    await self._injector.heal(planned, by="plan")
            case PlannedAct(planned=planned):  # an injection
                # Without a controller the status has no partitions, but a target may need them.
                status = self._status_history.with_last_partitions(await self._check_and_query())
                await self._injector.inject(planned, status)
                if self._injector.has_next_step(planned):
                    # The first step of a gradual fault is due now, before all other moments.
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
        """Wait until every group is stable again and every member has committed.

        Return False if this takes longer than `liveness_timeout`. The checker Liveness decides
        whether this is a violation, because it knows the permitted exceptions.
        """
        await self._check_and_query()
        self._healed_at_us = self._runtime.now_us()
        timeout_us = microseconds(self._experiment.run.liveness_timeout)
        self._enter_stage("liveness", timeout_us=timeout_us)
        # `_enter_stage` has just written a row. The checker Liveness counts only commits whose rows
        # are later than this row. On several machines the clocks differ a little. So if a member
        # commits now, the row of its commit may have an earlier time. After this pause this is no
        # longer possible.
        if self._runtime.clock_error_us:
            await self._runtime.sleep(self._runtime.clock_error_us)
        await self._note_commits_at_healing()
        missing = await self._wait(self._missing_for_liveness, timeout_us)
        if missing:
            self._log(f"not live: {summarize(missing)}")
            self._trace_waiting_requests()
        return not missing

    async def _note_commits_at_healing(self) -> None:
        """Note the number of acknowledged commits of each member. Liveness demands one more."""
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
        """Return what is missing for liveness in `status`, as sentences."""
        for name, member in status.members.items():
            if name in self._silent_at_healing:
                # This node did not answer at the healing. If it answers now for the first time, its
                # commits are counted from now on.
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
        """Return the members that are gone for good. The run must not wait for them."""
        return self._injector.lost_nodes

    def _trace_waiting_requests(self) -> None:
        """Write a row for each request to which a member still waits for the answer.

        If a group is stuck, such a request is usually the reason. The finding can then name it.
        """
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
        """Wait until no checker waits for anything, but no longer than `recovery_timeout`."""
        timeout_us = microseconds(self._experiment.run.recovery_timeout)
        if timeout_us == 0:
            return
        self._enter_stage("recovery", timeout_us=timeout_us)
        missing = await self._wait(lambda _status: self._unsettled(), timeout_us)
        if missing:
            self._log(f"not waited for any longer: {summarize(missing)}")

    def _unsettled(self) -> list[str]:
        """Return what the checkers still wait for, as sentences.

        If no checker reads the trace during the run, return one sentence that says this. The run
        then waits for the full time, because nobody knows whether it may end earlier.
        """
        now_us = self._runtime.now_us()
        if self._read_trace is None:
            return self._suite.unsettled(now_us)
        # `known` is None if there are no live checks, or if they have failed.
        known = None if self._live_checks is None else self._live_checks.unsettled(now_us)
        return ["the trace is not judged while the run goes on"] if known is None else known

    async def _verify(self) -> None:
        self._enter_stage("verifying")
        self._unknown += await read_committed_offsets(self._experiment, self._runtime)

    # -- waits and checks of the run --

    async def _wait(
        self, missing_in: Callable[[ClusterStatus], list[str]], timeout_us: int
    ) -> list[str]:
        """Query the cluster again and again until `missing_in` returns an empty list.

        Return this empty list or, if the timeout comes first, what is still missing.
        """
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
        """Make a regular check: report new findings, apply limits, and query the cluster's status.

        Raises: GiveUp if the run must end now.
        """
        reason = self._reason_to_give_up()
        # The status is queried even if the run ends now, because the totals in the results come
        # from the last status.
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
        """Return True if this regular check must query the cluster's status.

        The live view and the live checks need the status. The totals of the run also need it while
        a node is STOPPING. When the process of a member starts again, the member counts its records
        and commits from 0. So its counters must be read before the process ends. If a fault kills a
        process, this is no problem, because the status is always queried before a fault.
        """
        return (
            self._progress is not None
            or self._live_checks is not None
            or self._status is None
            or self._acted_since_status
            or NodeState.STOPPING in self._status.nodes.values()
        )

    def _reason_to_give_up(self) -> str:
        """Report new findings. Return the reason why the run must end now, or "" if it may go on.

        Raises: ToolFailed if coordlab itself has failed.
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
            # `stop_when` has returned True for one of the new findings.
            return "what was looked for was found"
        return ""

    def _take_finding(self, finding: Finding) -> None:
        self._findings.append(finding)

    def _journal_machine_events(self) -> str:
        """Write the machine events into the journal, as if they were faults.

        A machine event is a time in which a machine did not answer. As a journal entry it becomes a
        band in the timeline of the report, from the machine's last answer before its silence to the
        first answer after it.

        Return the reason why the run must end because of a machine, or "" if it may go on.
        """
        for index, event in enumerate(self._runtime.machine_events):
            # When an event ends, the runtime replaces it by another. This is written, too.
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
            # At its end the run heals all faults that are in force. But it cannot heal a machine.
            # So the entry counts as momentary while the machine is silent, and as healed
            # afterwards.
            entry.momentary = event.until_us is None
            # There may be members on the machine, so a rebalance is no violation.
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
        """If a machine was away, do not count the failures of the run as bugs of coordlab.

        Every call to a machine that is away fails. This is a bug neither of coordlab nor of Kafka.
        So the failures become reasons for the verdict UNKNOWN.
        """
        events = self._runtime.machine_events
        # `gone` has the events of machines that are lost or still silent. All other machines came
        # back. They are blamed only if there is a failure to explain.
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
        """Write the new findings into the trace and the log.

        A checker finds a violation while a row of the trace is being written. At this moment no
        other row can be written. So the row of the finding is written at the next regular check.

        A finding of the live checks is only logged. Every VIOLATION row of the trace counts for the
        verdict, but live findings do not.
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
        """Begin a stage. Write this into the log and, together with `detail`, into the trace."""
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

        Return True if a Ctrl-C came before this call (`interrupted`) or during this call.
        """
        # The results take their totals from the last status. If `_status_is_needed`, each regular
        # check has queried the status, and the last status is new enough. Otherwise it is queried
        # once more.
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
            # The call of `stop` that was interrupted may have left processes, so `stop` is called
            # again. A further Ctrl-C ends this call, too, and is raised.
            interrupted = True
            self._runtime.run(self._runtime.stop())
        except Exception as error:
            self._tool_failures.append(f"stopping: {type(error).__name__}: {error}")
        return interrupted

    def _finish_checks(self) -> tuple[CheckReport, ...]:
        """Let the checkers finish, and return their reports. Return () if a checker has crashed."""
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

        # If the run was interrupted or has failed, it proves nothing. Then its verdict becomes
        # UNKNOWN (below).
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
        """Return the entries of the faults on which the verdict depends.

        If one of these faults has hit nothing, the run proves nothing.
        """
        return self._journal.entries

    def _log(self, message: str) -> None:
        if self._directory is not None:
            self._directory.log(self._runtime.now_us(), message)

    def _write_journal(self, entries: tuple[JournalEntry, ...]) -> None:
        if self._directory is not None:
            self._directory.write_journal(entries)


def _time_of(moment: Moment) -> int:
    return moment.at_us


# The status in the manifest of a run, for each outcome.
_STATUS = {
    RunOutcome.COMPLETED: RunStatus.COMPLETED,
    RunOutcome.INTERRUPTED: RunStatus.INTERRUPTED,
    RunOutcome.INTERNAL_ERROR: RunStatus.FAILED,
}
