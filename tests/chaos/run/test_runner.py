"""The runner on a scripted runtime: stages, faults, healing, and the verdict of every ending.

A FakeRuntime has no nodes; its status is that of a healthy cluster. `Run.runtime.at` maps a time in
microseconds to a function that changes this status at that time. The default experiment has one
fault: broker-0, the coordinator, crashes at 5 s and is restarted at 30 s. The cluster is steady at
0 s. Exit codes: 1 violated, 2 unknown, 130 interrupted, 255 failure of the tool.

Stages of a run: starting (until the steady state), faults, healing (all faults are undone),
liveness (until the group works again), recovery (until each promise is kept again, if configured),
verifying (the committed offsets are read), stopping. The blast radius of a fault is the groups and
partitions that it affects. A generation is the number of a group's rebalance.
"""

from pathlib import Path
from typing import NoReturn

import pytest

from chaos.checkers.context import detail_of
from chaos.checkers.registry import CheckSuite, context_of
from chaos.experiment.structs import FIRST_CONTROLLER_ID, Experiment
from chaos.results.run_directory import RunDirectory, create_run_directory, open_run
from chaos.run.plan import plan_of
from chaos.run.runner import ExperimentRun, Progress
from cluster.host.host import WaitingRequest
from cluster.runtime import ClusterStatus, HitNode, NodeState
from protocol.ids import BrokerId, NodeName, Offset, TopicPartition, broker_name, controller_name
from protocol.trace import TraceEvent, TraceKind, TraceRow
from protocol.trace_schema import nonconformity
from results_schema.journal import FaultOutcome
from results_schema.manifest import RunStatus
from results_schema.results import CheckOutcome, Results, RunOutcome, Verdict
from tests.support.builders.experiments import experiment
from tests.support.harness.fake_runtime import FakeRuntime

S = 1_000_000
"""Microseconds of a second."""
SAFETY = ("fencing", "durable_commits")
"""Checks without a finding if no node writes rows, as on the fake runtime."""


class Run:
    """One run of an experiment on a FakeRuntime, with the observed rows and progress."""

    def __init__(
        self, own_experiment: Experiment | None = None, *, time_limit_us: int | None = None
    ) -> None:
        self.experiment = own_experiment or experiment()
        self.suite = CheckSuite(context_of(self.experiment), SAFETY)
        self.rows: list[TraceRow] = []
        self.progress: list[Progress] = []
        self.runtime = FakeRuntime(self.experiment, self.observe)
        self.directory: RunDirectory | None = None
        self.time_limit_us = time_limit_us

    def observe(self, row: TraceRow) -> None:
        self.rows.append(row)
        self.suite.observe(row)

    def execute(self) -> Results:
        return ExperimentRun(
            self.experiment,
            plan_of(self.experiment),
            self.runtime,
            self.suite,
            progress=self.progress.append,
            directory=self.directory,
            time_limit_us=self.time_limit_us,
        ).execute()

    def execute_alone(self) -> Results:
        """Execute without an observer of the progress ("unobserved"), and without a directory."""
        return ExperimentRun(
            self.experiment,
            plan_of(self.experiment),
            self.runtime,
            self.suite,
            time_limit_us=self.time_limit_us,
        ).execute()

    def of_kind(self, kind: TraceKind) -> list[TraceRow]:
        return [row for row in self.rows if row.kind == kind]


def press_ctrl_c(runtime: FakeRuntime) -> NoReturn:
    """Interrupt the run, as the user does."""
    raise KeyboardInterrupt


def explode(runtime: FakeRuntime) -> NoReturn:
    """Raise an error that the run does not expect."""
    raise ValueError("boom")


def test_run_passes_its_stages_and_heals_by_plan() -> None:
    """The stages are in order; the fault is injected 5 s after the steady state."""
    run = Run()

    results = run.execute()

    assert run.runtime.acts == [
        "stage starting",
        "start",
        "stage steady",
        "stage faults",
        "crash broker-0",
        "restart broker-0",
        "stage healing",
        "stage liveness",
        "stage verifying",
        "read offsets of readers",
        "stage stopping",
        "stop",
    ]
    (entry,) = results.faults
    assert entry.outcome is FaultOutcome.HIT
    assert results.steady_at_us == 0
    assert (entry.planned_at_us, entry.fired_at_us) == (5 * S, 5 * S)
    assert entry.healed_at_us == 30 * S
    assert entry.healed_by == "plan"
    assert (entry.node, entry.incarnation, entry.pid) == ("broker-0", 0, 4711)
    assert results.outcome is RunOutcome.COMPLETED
    assert results.verdict is Verdict.UNKNOWN
    assert results.reasons == ("no check saw anything to judge",)  # the fake cluster traces no rows
    assert results.exit_code == 2


def test_run_continues_after_liveness_until_no_promise_waits() -> None:
    """With a `recovery_timeout` of 20 s the run waits at most 20 s for promises to be kept.

    The test replaces `unsettled`, which returns the promises that are not kept yet. If the promise
    settles after 3 s, the wait ends after 3 s; if it settles after 100 s, the wait ends after 20 s.
    """
    for settles_s, ends_s in ((3, 3), (100, 20)):
        run = Run(experiment(run={"recovery_timeout": "20s"}))
        original_unsettled = run.suite.unsettled

        # `run` and `settles_s` are defaults, because they change with the next pass of the loop.
        def unsettled(now_us: int, run: Run = run, settles_s: int = settles_s) -> list[str]:
            (stage,) = [
                row
                for row in run.of_kind(TraceKind.RUN_STAGE)
                if detail_of(row)["stage"] == "recovery"
            ]
            is_settled = now_us - stage.time_us >= settles_s * S
            return [] if is_settled else ["t-0 is not whole"]

        run.suite.unsettled = unsettled  # type: ignore[method-assign]
        run.execute()

        assert original_unsettled(0) == []  # without the replacement no promise waits
        began, ended = (
            next(
                row.time_us
                for row in run.of_kind(TraceKind.RUN_STAGE)
                if detail_of(row)["stage"] == name
            )
            for name in ("recovery", "verifying")
        )
        assert ended - began == ends_s * S
        waiting_for = {
            progress.waiting_for
            for progress in run.progress
            if progress.stage == "recovery" and progress.waiting_for
        }
        assert waiting_for == {("t-0 is not whole",)}


def test_unanswered_requests_are_listed_where_a_group_does_not_recover() -> None:
    """A finding can name a waiting request and its node if the trace has a row of it.

    The group of the first run recovers immediately, so the first run lists no requests. In the
    second run the group does not recover, because no commit is acknowledged.
    """
    run = Run()
    run.runtime.waiting = (WaitingRequest(NodeName("broker-1"), "JoinGroup", 5 * S),)
    run.execute()
    assert not run.of_kind(TraceKind.REQUEST_WAITING)

    run = Run()
    run.runtime.waiting = (WaitingRequest(NodeName("broker-1"), "JoinGroup", 5 * S),)
    run.runtime.commits_stand_still = True
    run.execute()

    first = run.of_kind(TraceKind.REQUEST_WAITING)[0]
    assert (first.group, first.api, first.peer) == ("readers", "JoinGroup", "broker-1")
    assert nonconformity(first) is None
    assert detail_of(first) == {"consumer": "consumer-readers-0", "waited_us": 5 * S}


def test_fault_is_traced_with_its_hit_and_its_blast_radius() -> None:
    """The rows name the node hit, and the groups and partitions that it coordinates."""
    run = Run()
    run.execute()

    (injected,) = run.of_kind(TraceKind.FAULT_INJECTED)
    (healed,) = run.of_kind(TraceKind.FAULT_HEALED)

    assert (injected.peer, injected.cause) == ("broker-0", "crash-0")
    assert (healed.peer, healed.cause) == ("broker-0", "crash-0")
    assert injected.detail is not None
    assert '"groups":["readers"]' in injected.detail
    assert '"__consumer_offsets-0"' in injected.detail


def test_fault_without_duration_is_healed_at_the_end() -> None:
    """broker-2 restarts in the stage `healing`, and `healed_by` is `end`, not `plan`."""
    run = Run(experiment(faults=[{"at": "1s", "fault": "crash", "target": "broker(2)"}]))

    results = run.execute()

    assert results.faults[0].healed_by == "end"
    acts = run.runtime.acts
    assert acts.index("restart broker-2") > acts.index("stage healing")


def test_run_is_observed_after_a_slow_undoing() -> None:
    """`after_faults` (10 s) begins when the last fault is really undone, not at its planned time.

    Here a broker does not stop by itself, is killed, and so returns 30 s late.
    """
    shutdown = {"fault": "controlled_shutdown", "target": "broker(1)", "duration": "5s"}
    run = Run(experiment(faults=[{"at": "1s", **shutdown}]))
    run.runtime.stopping_takes_us = None

    results = run.execute()

    healed_us = results.faults[0].healed_at_us
    assert healed_us == 36 * S  # injected at 1 s, undone after 5 s, killed 30 s later
    (healing,) = (row for row in run.of_kind(TraceKind.RUN_STAGE) if "healing" in str(row.detail))
    assert healing.time_us == healed_us + 10 * S


def test_waiting_undoing_delays_no_other_part_of_the_plan() -> None:
    """While the run waits for broker-1 to stop, broker-2 is crashed and restarted as planned."""
    shutdown = {"fault": "controlled_shutdown", "target": "broker(1)", "duration": "5s"}
    crash = {"fault": "crash", "target": "broker(2)", "duration": "4s"}
    run = Run(experiment(faults=[{"at": "1s", **shutdown}, {"at": "8s", **crash}]))
    run.runtime.stopping_takes_us = None

    results = run.execute()

    stopped, crashed = results.faults
    assert (crashed.fired_at_us, crashed.healed_at_us) == (8 * S, 12 * S)
    assert (stopped.in_force_until_us, stopped.healed_at_us) == (6 * S, 36 * S)
    assert stopped.note == "broker-1 was still stopping 30 s later, and was killed"


def test_fault_finds_its_target_while_no_controller_answers() -> None:
    """Without a controller no leader changes, so the controller's last answer gives the target.

    The plan pauses the controller from 1 s to 21 s. In the fake runtime a paused controller goes on
    to answer, so the test silences it, from 2 s to 22 s. The crash at 5 s needs the coordinator.
    """
    own_experiment = experiment(
        faults=[
            {"at": "1s", "fault": "pause", "target": "controller", "duration": "20s"},
            {"at": "5s", "fault": "crash", "target": "coordinator-of(readers)", "duration": "9s"},
        ]
    )
    run = Run(own_experiment)
    run.runtime.leader = BrokerId(2)

    def silence(runtime: FakeRuntime) -> None:
        runtime.controller = None

    def speak(runtime: FakeRuntime) -> None:
        runtime.controller = controller_name(FIRST_CONTROLLER_ID)

    run.runtime.at |= {2 * S: silence, 22 * S: speak}

    results = run.execute()

    assert [fault.outcome for fault in results.faults] == [FaultOutcome.HIT] * 2
    assert results.faults[1].nodes == ("broker-2",)
    assert "orders-0" in results.faults[1].blast_radius.partitions


def test_fault_that_hits_nothing_makes_the_verdict_unknown() -> None:
    """A run whose faults hit nothing proves nothing (exit 2)."""
    run = Run()

    def lose_the_broker(runtime: FakeRuntime) -> None:
        runtime.nodes[broker_name(0)] = NodeState.DOWN

    run.runtime.at[2 * S] = lose_the_broker

    results = run.execute()

    assert results.verdict is Verdict.UNKNOWN
    assert results.exit_code == 2
    assert results.faults[0].outcome is FaultOutcome.MISSED
    assert "crash-0 hit nothing: broker-0, which leads __consumer_offsets-" in results.reasons[0]
    assert not run.of_kind(TraceKind.FAULT_INJECTED)
    assert [row.cause for row in run.of_kind(TraceKind.FAULT_MISSED)] == ["crash-0"]


def test_missed_steady_state_names_the_groups_whose_applications_may_miss_polls() -> None:
    """500 records of 10 ms and a poll of 50 ms take 5.05 s; `max.poll.interval.ms` is 5 s.

    A search with `explore` can accept this one reason why a run proves nothing. So the reason has
    words that no other reason has.
    """
    slow = {
        "members": 2,
        "topics": ["orders"],
        "process_us": 10_000,
        "config": {"max.poll.interval.ms": 5_000, "session.timeout.ms": 5_000},
    }
    run = Run(experiment(groups={"readers": slow}, faults=[]))
    run.runtime.nobody_joined = True

    (reason,) = run.execute().reasons

    assert reason.startswith(
        "no steady state within 60s, and an application may be slower than max.poll.interval.ms "
        "(readers): group readers"
    )


def test_group_without_members_makes_the_verdict_unknown() -> None:
    """The group is never steady. The reason names it, and no fault is injected."""
    run = Run()
    run.runtime.nobody_joined = True

    results = run.execute()

    assert results.verdict is Verdict.UNKNOWN
    assert results.reasons == (
        "no steady state within 60s: group readers: its coordinator does not know it",
    )
    (missed,) = run.of_kind(TraceKind.STEADY_STATE_MISSED)
    assert nonconformity(missed) is None
    assert detail_of(missed)["waited_us"] == 60 * S
    assert results.steady_at_us is None
    assert results.faults[0].outcome is FaultOutcome.PLANNED
    assert run.runtime.stopped


def test_member_that_never_commits_prevents_the_steady_state() -> None:
    """The run measures the longest time between two commits, so each member must have a commit."""
    run = Run()
    run.runtime.first_commit = 0  # commits that each member had acknowledged at 0 s
    run.runtime.commits_stand_still = True

    assert "consumer-readers-0 has no commit acknowledged" in run.execute().reasons[0]


def test_vanished_offset_is_a_violation() -> None:
    """An offset of orders-0 is acknowledged, but at the end the coordinator has only orders-1."""
    run = Run()
    run.runtime.committed = {TopicPartition("orders", 1): Offset(7)}

    def acknowledge(runtime: FakeRuntime) -> None:
        runtime.trace(
            TraceEvent(
                kind=TraceKind.OFFSETS_COMMITTED, group="readers", partition="orders-0", offset=7
            )
        )

    run.runtime.at[20 * S] = acknowledge

    results = run.execute()

    assert results.verdict is Verdict.VIOLATED
    assert results.exit_code == 1
    assert results.findings[0].partition == "orders-0"
    assert results.checks[1].outcome is CheckOutcome.VIOLATED  # the second of SAFETY


def test_failed_tool_is_never_a_verdict_about_kafka() -> None:
    """A failed task of a node is our bug (exit 255), whatever the checkers find."""
    run = Run()

    def break_the_tool(runtime: FakeRuntime) -> None:
        runtime.tool_failures.append("broker-1: task fetch died")

    run.runtime.at[8 * S] = break_the_tool

    results = run.execute()

    assert results.outcome is RunOutcome.INTERNAL_ERROR
    assert results.exit_code == 255
    assert results.verdict is Verdict.UNKNOWN
    assert any("task fetch died" in reason for reason in results.reasons)
    assert "restart broker-0" in run.runtime.acts
    assert run.runtime.stopped


def test_fault_that_cannot_be_injected_is_a_failure_of_the_tool() -> None:
    """A fault that finds no target is a miss. This fault finds its target, so the tool has failed.

    Its act on the target raises an error.
    """
    run = Run()
    run.runtime.crash_fails_with = OSError("no such process")

    results = run.execute()

    assert results.outcome is RunOutcome.INTERNAL_ERROR
    assert results.faults[0].outcome is FaultOutcome.FAILED
    assert "no such process" in results.reasons[0]
    assert run.runtime.stopped


def test_interrupted_run_is_healed_stopped_and_marked(tmp_path: Path) -> None:
    """Ctrl-C comes while broker-0 is down. The run restarts it and stops all nodes (exit 130)."""
    run = Run()
    directory = create_run_directory(
        tmp_path, run.experiment, plan_of(run.experiment), seed=7, runtime="fake", replay="again"
    )
    run.directory = directory

    run.runtime.at[12 * S] = press_ctrl_c

    results = run.execute()

    assert results.outcome is RunOutcome.INTERRUPTED
    assert results.exit_code == 130
    assert results.reasons == ("interrupted",)
    assert run.runtime.acts[-4:] == ["stage healing", "restart broker-0", "stage stopping", "stop"]
    past = open_run(directory.path)
    assert past.manifest.status is RunStatus.INTERRUPTED
    assert past.incomplete
    assert past.journal()[0].healed_by == "end"
    assert past.results() == results


class InterruptedInjection(FakeRuntime):
    """A runtime in which the user presses Ctrl-C after a kill, before `crash` has returned."""

    async def crash(self, node: NodeName) -> HitNode:
        await super().crash(node)
        raise KeyboardInterrupt


def test_fault_half_injected_when_interrupted_is_undone() -> None:
    """The runner does not know whether the fault hit, so it undoes the fault as if it had hit."""
    run = Run()
    run.runtime = InterruptedInjection(run.experiment)

    results = run.execute()

    assert results.exit_code == 130
    assert "restart broker-0" in run.runtime.acts


class StubbornBroker(FakeRuntime):
    """A runtime in which broker-2 never starts again."""

    async def restart(self, node: NodeName, *, empty_disk: bool = False) -> None:
        if node == "broker-2":
            raise OSError("address in use")
        await super().restart(node)


def test_fault_that_cannot_be_undone_prevents_no_other_undoing() -> None:
    """broker-2 cannot be restarted, but the crash of broker-1 is healed."""
    run = Run(
        experiment(
            faults=[
                {"at": "1s", "fault": "crash", "target": "broker(1)"},
                {"at": "2s", "fault": "crash", "target": "broker(2)"},
            ]
        )
    )
    run.runtime = StubbornBroker(run.experiment)

    results = run.execute()

    assert results.outcome is RunOutcome.INTERNAL_ERROR
    assert "crash-1 could not be healed: address in use" in results.reasons[0]
    assert [entry.in_force for entry in results.faults] == [False, True]


def test_interrupted_run_names_the_faults_that_it_could_not_undo() -> None:
    """broker-2 is crashed at 1 s and cannot be restarted."""
    run = Run(experiment(faults=[{"at": "1s", "fault": "crash", "target": "broker(2)"}]))
    run.runtime = StubbornBroker(run.experiment)

    run.runtime.at[2 * S] = press_ctrl_c

    interrupted, failure = run.execute().reasons

    assert interrupted == "interrupted"
    assert "crash-0 could not be healed: address in use" in failure


def stage_times(run: Run) -> dict[str, int]:
    """Return the time at which the run entered each stage, in microseconds."""
    return {detail_of(row)["stage"]: row.time_us for row in run.of_kind(TraceKind.RUN_STAGE)}


class SlowAnswers(FakeRuntime):
    """A runtime in which brokers answer a status query 250 ms later than members do.

    Each member has a commit acknowledged every 200 ms, so one or two while a query waits for the
    brokers.
    """

    answered_us = 0  # time of the members' last answer

    async def status(self) -> ClusterStatus:
        self.answered_us = self.time_us
        status = await super().status()
        await self.sleep(250_000)
        return status


def test_commit_before_the_stage_liveness_does_not_end_it() -> None:
    """The wait for liveness counts only commits after the stage has begun, as the check does.

    A row of the trace marks the beginning of the stage. If the run read the members' counters
    before this row, commits during the query would end the wait immediately, although no member had
    a commit after the row.
    """
    run = Run()
    run.runtime = runtime = SlowAnswers(run.experiment, run.observe)

    run.execute()

    # The fake members commit every 200 ms, so the time in these units is a member's number of
    # commits. It grew between the row and the query that ended the wait.
    commits_at_entry = stage_times(run)["liveness"] // 200_000
    assert runtime.answered_us // 200_000 > commits_at_entry


class SilentAtHealing(FakeRuntime):
    """A runtime whose members do not answer the first query of the stage "liveness"."""

    is_silent = False

    async def status(self) -> ClusterStatus:
        status = await super().status()
        if self.is_silent:
            self.is_silent = False
            status.members.clear()
        return status

    def trace(self, event: TraceEvent) -> None:
        super().trace(event)
        self.is_silent = (event.detail or {}).get("stage") == "liveness"


def test_old_commit_of_a_member_that_was_silent_at_healing_does_not_count() -> None:
    """The member's only commit came before the healing, so it must not end the wait for liveness.

    The member does not answer the query at the healing, so its number of commits is unknown. If the
    run counted from 0 instead, the old commit would end the wait before its 60 s.
    """
    own_experiment = experiment(groups={"readers": {"members": 1, "topics": ["orders"]}})
    run = Run(own_experiment)
    run.runtime = SilentAtHealing(run.experiment, run.observe)
    run.runtime.commits_stand_still = True

    run.execute()

    times = stage_times(run)
    assert own_experiment.run.liveness_timeout == "60s"
    assert times["stopping"] - times["liveness"] == 60 * S


def test_late_members_are_started_between_the_faults_and_awaited_at_the_end() -> None:
    """Late members start after the steady state, so only the stage "liveness" waits for them.

    The late member starts at 7 s, in the middle of the fault. At 20 s it is lost.
    """
    own_experiment = experiment(
        groups={
            "readers": {
                "members": 1,
                "topics": ["orders"],
                "late_members": [{"at": "7s", "members": 1}],
            }
        },
        faults=[{"at": "5s", "fault": "pause", "target": "broker(2)", "duration": "10s"}],
    )
    run = Run(own_experiment)

    def lose_the_late_member(runtime: FakeRuntime) -> None:
        runtime.nodes[NodeName("consumer-readers-1")] = NodeState.DOWN

    run.runtime.at[20 * S] = lose_the_late_member

    results = run.execute()

    acts = [act for act in run.runtime.acts if not act.startswith("stage")]
    assert acts[1:4] == ["pause broker-2", "start consumer-readers-1", "resume broker-2"]
    assert results.steady_at_us == 0
    awaited = [progress for progress in run.progress if progress.waiting_for]
    assert {progress.stage for progress in awaited} == {"liveness"}
    assert "consumer-readers-1 does not answer" in awaited[0].waiting_for


def test_rules_and_pauses_are_undone_after_an_exception_in_the_middle() -> None:
    """At the exception, at 3.1 s, a link is cut, one broker is paused, and one is stopping."""
    run = Run(
        experiment(
            faults=[
                {"at": "1s", "fault": "cut", "from": "broker(0)", "to": "controller"},
                {"at": "2s", "fault": "pause", "target": "broker(1)"},
                {"at": "3s", "fault": "controlled_shutdown", "target": "broker(2)"},
            ]
        )
    )

    run.runtime.at[3_100_000] = explode

    results = run.execute()

    assert results.exit_code == 255
    assert run.runtime.rules == ()
    assert set(run.runtime.nodes.values()) == {NodeState.UP}
    assert [entry.healed_by for entry in results.faults] == ["end"] * 3


def test_finding_during_a_run_is_traced_and_shown_at_the_next_status_query() -> None:
    """A checker reports findings while rows come in, and the run collects them at its next query.

    The checker has a finding at 19.9 s, and the next status query is at 20 s.
    """
    run = Run()

    def find(runtime: FakeRuntime) -> None:
        run.suite.checkers[0].report_finding("a record is lost", [], partition="orders-0")

    run.runtime.at[19_900_000] = find

    results = run.execute()

    assert results.verdict is Verdict.VIOLATED
    (violation,) = run.of_kind(TraceKind.VIOLATION)
    assert (violation.cause, violation.partition) == ("fencing", "orders-0")
    assert violation.time_us == 20 * S
    shown = [progress for progress in run.progress if progress.findings]
    assert shown[0].time_us == 20 * S


def test_time_limit_makes_the_verdict_unknown_and_heals_the_run() -> None:
    """A run that was cut off proves nothing, and leaves no fault."""
    run = Run(time_limit_us=12 * S)

    results = run.execute()

    assert results.verdict is Verdict.UNKNOWN
    assert results.reasons == ("the time limit of 12 s was reached",)
    assert results.faults[0].healed_by == "end"


def test_progress_names_what_a_stage_waits_for() -> None:
    """The group becomes Stable only at 3 s."""
    run = Run()
    run.runtime.group_state = "PreparingRebalance"

    def stabilize(runtime: FakeRuntime) -> None:
        runtime.group_state = "Stable"

    run.runtime.at[3 * S] = stabilize

    results = run.execute()

    waiting = [progress for progress in run.progress if progress.waiting_for]
    assert waiting[0].stage == "starting"
    assert "group readers is PreparingRebalance" in waiting[0].waiting_for
    assert results.steady_at_us == 3 * S
    assert run.progress[-1].stage == "stopping"


def test_observed_run_queries_the_runtime_as_often_as_an_unobserved_one() -> None:
    """A status query is an event in virtual time, so more queries could change the run.

    An observed run has an observer of its progress.
    """
    observed, unobserved = Run(), Run()

    assert observed.execute() == unobserved.execute_alone()
    assert observed.runtime.acts == unobserved.runtime.acts
    assert observed.rows == unobserved.rows


@pytest.mark.parametrize("time_limit_us", [None, 8_900_000])
def test_unobserved_run_queries_seldom_and_counts_the_same(time_limit_us: int | None) -> None:
    """An unobserved run has no need to show its progress, so it queries the status less often.

    A member counts its records from 0 in each incarnation. So the runner must query a member's
    figures just before a fault ends its incarnation. In the second case the time limit ends the run
    while the second crash is in force.
    """
    crashes = experiment(
        faults=[
            {"at": "1s", "fault": "crash", "target": "member(readers, 0)", "duration": "100ms"},
            {"at": "7s", "fault": "crash", "target": "member(readers, 0)", "duration": "2s"},
            {
                "at": "10s",
                "fault": "controlled_shutdown",
                "target": "coordinator-of(readers)",
                "duration": "4s",
            },
        ]
    )
    observed = Run(crashes, time_limit_us=time_limit_us)
    unobserved = Run(crashes, time_limit_us=time_limit_us)

    results = observed.execute()

    assert unobserved.execute_alone() == results
    assert results.records_consumed > 0
    assert unobserved.runtime.statuses_asked < observed.runtime.statuses_asked / 2


def test_interrupted_unobserved_run_has_the_figures_of_that_moment() -> None:
    """An unobserved run queries the status seldom, so it must query once more at an interrupt."""
    unobserved = Run()

    unobserved.runtime.at[12 * S] = press_ctrl_c

    results = unobserved.execute_alone()

    assert results.outcome is RunOutcome.INTERRUPTED
    # Two members, each with a record every 100 ms, for 12 s.
    assert results.records_consumed == 2 * 12 * S // 100_000


def test_trace_read_after_the_stop_is_judged() -> None:
    """On Ray the rows come from files, after all nodes have stopped."""
    run = Run()
    runtime = FakeRuntime(run.experiment, run.rows.append)
    suite = CheckSuite(context_of(run.experiment), SAFETY)

    def read() -> list[TraceRow]:
        assert runtime.stopped
        return run.rows

    results = ExperimentRun(
        run.experiment, plan_of(run.experiment), runtime, suite, read_trace=read
    ).execute()

    assert run.rows
    assert results.rows_seen == len(run.rows)


@pytest.mark.parametrize("when_s", [0.1, 7.0, 41.0])
def test_exception_at_any_stage_stops_the_cluster(when_s: float) -> None:
    """The times are in the stages `starting`, `faults` and `liveness`."""
    run = Run()
    run.runtime.commits_stand_still = True  # the wait for liveness lasts its whole bound
    if when_s < 1:
        run.runtime.group_state = "Empty"

    run.runtime.at[round(when_s * S)] = explode

    results = run.execute()

    assert results.exit_code == 255
    assert "boom" in results.reasons[0]
    assert run.runtime.stopped
    assert set(run.runtime.nodes.values()) == {NodeState.UP}
