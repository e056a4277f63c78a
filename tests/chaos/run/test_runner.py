"""The runner plays one experiment from the start of the cluster to the verdict.

A run has these stages, one after the other:

1. starting: the run waits until the cluster is steady;
2. faults: it injects the faults of the plan, and undoes ("heals") each fault whose duration ends;
3. healing: it undoes the other faults;
4. liveness: it waits until the groups work again;
5. recovery, if the experiment has a `recovery_timeout`: it waits until each promise is kept again;
6. verifying: it reads the committed offsets, to compare them with the acknowledged commits;
7. stopping: it stops all nodes.

A runtime is what runs the nodes of a cluster. The tests use a FakeRuntime, which has no nodes, and
reports a healthy cluster that is steady at 0 s. A test can change this report during the run: with
`run.runtime.at[8 * SECOND_US] = function` the function is called at 8 s. The default experiment has
one fault: broker-0, which is the coordinator of the group, crashes at 5 s and is restarted at 30 s.

The exit code of a run follows from its verdict: 1 for "violated", 2 for "unknown". It is 130 if the
run was interrupted, and 255 if the tool itself failed.
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

SECOND_US = 1_000_000
SAFETY = ("fencing", "durable_commits")
"""The checks of these runs.

They find nothing, because a FakeRuntime has no nodes that write rows.
"""


class Run:
    """One run of an experiment on a FakeRuntime, with the rows of its trace and its progress."""

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

    def execute_unobserved(self) -> Results:
        """Execute the run while nobody observes its progress, and without a directory."""
        return ExperimentRun(
            self.experiment,
            plan_of(self.experiment),
            self.runtime,
            self.suite,
            time_limit_us=self.time_limit_us,
        ).execute()

    def of_kind(self, kind: TraceKind) -> list[TraceRow]:
        return [row for row in self.rows if row.kind == kind]


def stage_times(run: Run) -> dict[str, int]:
    """Return the time at which the run entered each stage, in microseconds."""
    return {detail_of(row)["stage"]: row.time_us for row in run.of_kind(TraceKind.RUN_STAGE)}


def press_ctrl_c(runtime: FakeRuntime) -> NoReturn:
    """Interrupt the run, as a user does with Ctrl-C."""
    raise KeyboardInterrupt


def explode(runtime: FakeRuntime) -> NoReturn:
    """Raise an error that the run does not expect."""
    raise ValueError("boom")


def test_run_passes_its_stages_and_heals_by_plan() -> None:
    """The stages come in their order, and the fault is injected 5 s after the steady state."""
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
    assert (entry.planned_at_us, entry.fired_at_us) == (5 * SECOND_US, 5 * SECOND_US)
    assert entry.healed_at_us == 30 * SECOND_US
    assert entry.healed_by == "plan"
    assert (entry.node, entry.incarnation, entry.pid) == ("broker-0", 0, 4711)
    assert results.outcome is RunOutcome.COMPLETED
    assert results.verdict is Verdict.UNKNOWN
    # The nodes of the fake cluster write no rows that a check could judge.
    assert results.reasons == ("no check saw anything to judge",)
    assert results.exit_code == 2


def test_run_continues_after_liveness_until_no_promise_waits() -> None:
    """In the stage "recovery" the run waits until the checks have no unsettled promise.

    The method `unsettled` returns a sentence about each unsettled promise. The test replaces this
    method by one that returns a sentence for 3 s, or for 100 s. The wait ends when there is no
    sentence any more, or at the latest after the `recovery_timeout` of 20 s.
    """
    timeout_s = 20
    for settles_s, ends_s in ((3, 3), (100, timeout_s)):
        run = Run(experiment(run={"recovery_timeout": f"{timeout_s}s"}))
        original_unsettled = run.suite.unsettled

        # The defaults bind the present values of the loop variables `run` and `settles_s`. Without
        # them, the function would see the values of a later pass.
        def unsettled(now_us: int, run: Run = run, settles_s: int = settles_s) -> list[str]:
            is_settled = now_us - stage_times(run)["recovery"] >= settles_s * SECOND_US
            return [] if is_settled else ["t-0 is not whole"]

        run.suite.unsettled = unsettled  # type: ignore[method-assign]
        run.execute()

        assert original_unsettled(0) == []  # without the replacement no promise waits
        times = stage_times(run)
        assert times["verifying"] - times["recovery"] == ends_s * SECOND_US
        waiting_for = {
            progress.waiting_for
            for progress in run.progress
            if progress.stage == "recovery" and progress.waiting_for
        }
        assert waiting_for == {("t-0 is not whole",)}


def test_unanswered_requests_are_listed_where_a_group_does_not_recover() -> None:
    """If a group does not recover, the run traces the requests that still wait for an answer.

    So a finding about the group can name the request, and the broker that does not answer. In the
    first run the group recovers immediately, so no request is traced. In the second run the group
    does not recover, because no commit is acknowledged.
    """
    run = Run()
    run.runtime.waiting = (WaitingRequest(NodeName("broker-1"), "JoinGroup", 5 * SECOND_US),)
    run.execute()
    assert not run.of_kind(TraceKind.REQUEST_WAITING)

    run = Run()
    run.runtime.waiting = (WaitingRequest(NodeName("broker-1"), "JoinGroup", 5 * SECOND_US),)
    run.runtime.commits_stand_still = True
    run.execute()

    first = run.of_kind(TraceKind.REQUEST_WAITING)[0]
    assert (first.group, first.api, first.peer) == ("readers", "JoinGroup", "broker-1")
    assert nonconformity(first) is None
    assert detail_of(first) == {"consumer": "consumer-readers-0", "waited_us": 5 * SECOND_US}


def test_fault_is_traced_with_its_hit_and_its_blast_radius() -> None:
    """The rows about a fault name the node that was hit.

    The row of the injection also names the blast radius: the groups and partitions that the fault
    affects.
    """
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
    """broker-2 restarts in the stage `healing`. So `healed_by` is "end", and not "plan"."""
    run = Run(experiment(faults=[{"at": "1s", "fault": "crash", "target": "broker(2)"}]))

    results = run.execute()

    assert results.faults[0].healed_by == "end"
    acts = run.runtime.acts
    assert acts.index("restart broker-2") > acts.index("stage healing")


def test_run_goes_on_for_some_time_after_a_slow_undoing() -> None:
    """The stage `faults` goes on for 10 s (`after_faults`) after the last fault is undone.

    The 10 s begin when the fault is really undone, which may be later than planned. A shutdown is
    undone by a restart of the broker. Here the broker cannot be restarted at 6 s, as planned,
    because it is still stopping. So the run kills it 30 s later, and restarts it.
    """
    shutdown = {"fault": "controlled_shutdown", "target": "broker(1)", "duration": "5s"}
    run = Run(experiment(faults=[{"at": "1s", **shutdown}]))
    run.runtime.stopping_takes_us = None  # the broker never stops by itself

    results = run.execute()

    healed_us = results.faults[0].healed_at_us
    duration_s, wait_for_stop_s = 5, 30
    assert healed_us == (1 + duration_s + wait_for_stop_s) * SECOND_US
    assert stage_times(run)["healing"] == healed_us + 10 * SECOND_US


def test_waiting_undoing_delays_no_other_part_of_the_plan() -> None:
    """While the run waits for the stop of broker-1, broker-2 crashes and is restarted as planned.

    The fault of broker-1 cannot be undone before broker-1 has stopped.
    """
    shutdown = {"fault": "controlled_shutdown", "target": "broker(1)", "duration": "5s"}
    crash = {"fault": "crash", "target": "broker(2)", "duration": "4s"}
    run = Run(experiment(faults=[{"at": "1s", **shutdown}, {"at": "8s", **crash}]))
    run.runtime.stopping_takes_us = None  # broker-1 never stops by itself

    results = run.execute()

    stopped, crashed = results.faults
    assert (crashed.fired_at_us, crashed.healed_at_us) == (8 * SECOND_US, 12 * SECOND_US)
    assert (stopped.in_force_until_us, stopped.healed_at_us) == (6 * SECOND_US, 36 * SECOND_US)
    assert stopped.note == "broker-1 was still stopping 30 s later, and was killed"


def test_fault_finds_its_target_while_no_controller_answers() -> None:
    """The crash at 5 s needs the coordinator, but the controller is paused from 1 s to 21 s.

    Without a controller no leader changes. So the run uses the leaders that the controller named in
    its last answer.

    In the fake runtime even a paused controller answers. So the test itself silences the
    controller: from 2 s to 22 s, the report of the fake runtime has no controller.
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

    run.runtime.at |= {2 * SECOND_US: silence, 22 * SECOND_US: speak}

    results = run.execute()

    assert [fault.outcome for fault in results.faults] == [FaultOutcome.HIT] * 2
    assert results.faults[1].nodes == ("broker-2",)
    assert "orders-0" in results.faults[1].blast_radius.partitions


def test_fault_that_hits_nothing_makes_the_verdict_unknown() -> None:
    """A run whose faults hit nothing proves nothing. Here broker-0 is down when it should crash."""
    run = Run()

    def lose_the_broker(runtime: FakeRuntime) -> None:
        runtime.nodes[broker_name(0)] = NodeState.DOWN

    run.runtime.at[2 * SECOND_US] = lose_the_broker

    results = run.execute()

    assert results.verdict is Verdict.UNKNOWN
    assert results.exit_code == 2
    assert results.faults[0].outcome is FaultOutcome.MISSED
    assert "crash-0 hit nothing: broker-0, which leads __consumer_offsets-" in results.reasons[0]
    assert not run.of_kind(TraceKind.FAULT_INJECTED)
    assert [row.cause for row in run.of_kind(TraceKind.FAULT_MISSED)] == ["crash-0"]


def test_missed_steady_state_names_the_groups_whose_applications_may_miss_polls() -> None:
    """A group never becomes steady if its application is too slow for `max.poll.interval.ms`.

    Here a poll returns up to 500 records. The application needs 10 ms for each record, and 50 ms
    for the poll. Together this is 5.05 s, but only 5 s are allowed.

    The command `explore`, which searches many runs, recognizes this reason by its words. It may
    accept a run that proves nothing if this is the only reason.
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
    """The group is never steady, so no fault is injected. The reason names the group."""
    run = Run()
    run.runtime.nobody_joined = True

    results = run.execute()

    assert results.verdict is Verdict.UNKNOWN
    assert results.reasons == (
        "no steady state within 60s: group readers: its coordinator does not know it",
    )
    (missed,) = run.of_kind(TraceKind.STEADY_STATE_MISSED)
    assert nonconformity(missed) is None
    assert detail_of(missed)["waited_us"] == 60 * SECOND_US
    assert results.steady_at_us is None
    assert results.faults[0].outcome is FaultOutcome.PLANNED  # never injected
    assert run.runtime.stopped


def test_member_that_never_commits_prevents_the_steady_state() -> None:
    """A member must have committed once before the faults begin.

    From this first commit on, the run measures the longest time without a commit.
    """
    run = Run()
    run.runtime.commits_at_start = 0  # commits that each member had acknowledged at 0 s
    run.runtime.commits_stand_still = True

    assert "consumer-readers-0 has no commit acknowledged" in run.execute().reasons[0]


def test_vanished_offset_is_a_violation() -> None:
    """A commit of orders-0 is acknowledged at 20 s, and is gone at the end.

    When the run reads the committed offsets at its end, the coordinator has no offset of orders-0.
    """
    run = Run()
    run.runtime.committed = {TopicPartition("orders", 1): Offset(7)}

    def acknowledge(runtime: FakeRuntime) -> None:
        runtime.trace(
            TraceEvent(
                kind=TraceKind.OFFSETS_COMMITTED, group="readers", partition="orders-0", offset=7
            )
        )

    run.runtime.at[20 * SECOND_US] = acknowledge

    results = run.execute()

    assert results.verdict is Verdict.VIOLATED
    assert results.exit_code == 1
    assert results.findings[0].partition == "orders-0"
    assert results.checks[1].outcome is CheckOutcome.VIOLATED  # the second of SAFETY


def test_failed_tool_is_never_a_verdict_about_kafka() -> None:
    """If a task of a node fails with an exception, our own code has a bug.

    Whatever the checkers find in such a run, the verdict is unknown.
    """
    run = Run()

    def break_the_tool(runtime: FakeRuntime) -> None:
        runtime.tool_failures.append("broker-1: task fetch died")

    run.runtime.at[8 * SECOND_US] = break_the_tool

    results = run.execute()

    assert results.outcome is RunOutcome.INTERNAL_ERROR
    assert results.exit_code == 255
    assert results.verdict is Verdict.UNKNOWN
    assert any("task fetch died" in reason for reason in results.reasons)
    assert "restart broker-0" in run.runtime.acts
    assert run.runtime.stopped


def test_fault_that_cannot_be_injected_is_a_failure_of_the_tool() -> None:
    """The fault finds its target, broker-0, but the kill raises an error. So the tool has failed.

    A fault that does not find a target would be a miss, which is no failure.
    """
    run = Run()
    run.runtime.crash_fails_with = OSError("no such process")

    results = run.execute()

    assert results.outcome is RunOutcome.INTERNAL_ERROR
    assert results.faults[0].outcome is FaultOutcome.FAILED
    assert "no such process" in results.reasons[0]
    assert run.runtime.stopped


def test_interrupted_run_is_healed_stopped_and_marked(tmp_path: Path) -> None:
    """Ctrl-C comes while broker-0 is down. The run restarts broker-0, and stops all nodes."""
    run = Run()
    directory = create_run_directory(
        tmp_path, run.experiment, plan_of(run.experiment), seed=7, runtime="fake", replay="again"
    )
    run.directory = directory

    run.runtime.at[12 * SECOND_US] = press_ctrl_c

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
    """The runner does not know whether broker-0 was killed. So it undoes the fault in any case."""
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
    """broker-2 cannot be restarted. The crash of broker-1 is healed nevertheless."""
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
    """broker-2 crashes at 1 s, and the run is interrupted at 2 s. broker-2 cannot be restarted."""
    run = Run(experiment(faults=[{"at": "1s", "fault": "crash", "target": "broker(2)"}]))
    run.runtime = StubbornBroker(run.experiment)

    run.runtime.at[2 * SECOND_US] = press_ctrl_c

    interrupted, failure = run.execute().reasons

    assert interrupted == "interrupted"
    assert "crash-0 could not be healed: address in use" in failure


class SlowAnswers(FakeRuntime):
    """A runtime in which brokers answer a status query 250 ms later than members do.

    A member commits every 200 ms, so it commits at least once while the query waits for the
    brokers.
    """

    answered_us = 0  # time of the members' last answer

    async def status(self) -> ClusterStatus:
        self.answered_us = self.time_us
        status = await super().status()
        await self.sleep(250_000)
        return status


def test_commit_before_the_stage_liveness_does_not_end_it() -> None:
    """The wait for liveness counts only commits after the beginning of the stage.

    A row of the trace marks the beginning of the stage, and the check `liveness` counts commits
    from this row on. The run must do the same. Suppose that the run read the members' counters of
    commits before it writes the row. Then a commit between the reading and the row would end the
    wait immediately, although no commit follows the row.
    """
    run = Run()
    run.runtime = runtime = SlowAnswers(run.experiment, run.observe)

    run.execute()

    # A member commits every 200 ms from 0 s on, so its number of commits follows from the time. It
    # must have grown between the row and the answer that ended the wait.
    commit_interval_us = 200_000
    commits_at_entry = stage_times(run)["liveness"] // commit_interval_us
    assert runtime.answered_us // commit_interval_us > commits_at_entry


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
    """The only commit of the member came before the healing, so it must not end the wait.

    The member does not answer the first query of the stage "liveness". So the run does not learn
    how many commits the member had. If the run assumed 0, the old commit would look like a new
    commit in the next query, and would end the wait. But the wait must last its whole 60 s.
    """
    own_experiment = experiment(groups={"readers": {"members": 1, "topics": ["orders"]}})
    run = Run(own_experiment)
    run.runtime = SilentAtHealing(run.experiment, run.observe)
    run.runtime.commits_stand_still = True

    run.execute()

    times = stage_times(run)
    assert own_experiment.run.liveness_timeout == "60s"
    assert times["stopping"] - times["liveness"] == 60 * SECOND_US


def test_late_members_are_started_between_the_faults_and_awaited_at_the_end() -> None:
    """Late members start after the steady state, so only the stage "liveness" waits for them.

    The late member starts at 7 s, in the middle of the fault. At 20 s it is lost, so the run waits
    for it in vain.
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

    run.runtime.at[20 * SECOND_US] = lose_the_late_member

    results = run.execute()

    acts = [act for act in run.runtime.acts if not act.startswith("stage")]
    assert acts[1:4] == ["pause broker-2", "start consumer-readers-1", "resume broker-2"]
    assert results.steady_at_us == 0
    awaited = [progress for progress in run.progress if progress.waiting_for]
    assert {progress.stage for progress in awaited} == {"liveness"}
    assert "consumer-readers-1 does not answer" in awaited[0].waiting_for


def test_rules_and_pauses_are_undone_after_an_exception_in_the_middle() -> None:
    """At the exception, at 3.1 s, a link is cut, a broker is paused, and another is stopping."""
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
    """The run asks the checkers for new findings at each status query.

    Here a checker reports a finding at 19.9 s, and the next status query is at 20 s.
    """
    run = Run()

    def find(runtime: FakeRuntime) -> None:
        run.suite.checkers[0].report_finding("a record is lost", [], partition="orders-0")

    run.runtime.at[19_900_000] = find

    results = run.execute()

    assert results.verdict is Verdict.VIOLATED
    (violation,) = run.of_kind(TraceKind.VIOLATION)
    assert (violation.cause, violation.partition) == ("fencing", "orders-0")
    assert violation.time_us == 20 * SECOND_US
    shown = [progress for progress in run.progress if progress.findings]
    assert shown[0].time_us == 20 * SECOND_US


def test_time_limit_makes_the_verdict_unknown_and_heals_the_run() -> None:
    """A run that ends at its time limit proves nothing. Its faults are undone all the same."""
    run = Run(time_limit_us=12 * SECOND_US)

    results = run.execute()

    assert results.verdict is Verdict.UNKNOWN
    assert results.reasons == ("the time limit of 12 s was reached",)
    assert results.faults[0].healed_by == "end"


def test_progress_names_what_a_stage_waits_for() -> None:
    """The group becomes Stable only at 3 s.

    Until then the progress says that the run waits for the group.
    """
    run = Run()
    run.runtime.group_state = "PreparingRebalance"

    def stabilize(runtime: FakeRuntime) -> None:
        runtime.group_state = "Stable"

    run.runtime.at[3 * SECOND_US] = stabilize

    results = run.execute()

    waiting = [progress for progress in run.progress if progress.waiting_for]
    assert waiting[0].stage == "starting"
    assert "group readers is PreparingRebalance" in waiting[0].waiting_for
    assert results.steady_at_us == 3 * SECOND_US
    assert run.progress[-1].stage == "stopping"


def test_observed_run_queries_the_runtime_as_often_as_an_unobserved_one() -> None:
    """A run must not change because somebody watches it.

    An observed run reports its progress. If it queried the status more often for this, the queries
    could change the order of events in virtual time, and so the run.
    """
    observed, unobserved = Run(), Run()

    assert observed.execute() == unobserved.execute_unobserved()
    assert observed.runtime.acts == unobserved.runtime.acts
    assert observed.rows == unobserved.rows


@pytest.mark.parametrize("time_limit_us", [None, 8_900_000])
def test_unobserved_run_queries_seldom_and_counts_the_same(time_limit_us: int | None) -> None:
    """An unobserved run need not show its progress, so it queries the status less often.

    Its totals must be correct all the same. A member loses its counters in a crash, so the run must
    query the counters just before each crash. In the second case the time limit, at 8.9 s, ends the
    run while the member is down.
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

    assert unobserved.execute_unobserved() == results
    assert results.records_consumed > 0
    # The unobserved run queries the status less than half as often.
    assert unobserved.runtime.statuses_asked < observed.runtime.statuses_asked / 2


def test_interrupted_unobserved_run_has_the_figures_of_that_moment() -> None:
    """An unobserved run queries the status seldom, so it must query once more at an interrupt."""
    unobserved = Run()

    unobserved.runtime.at[12 * SECOND_US] = press_ctrl_c

    results = unobserved.execute_unobserved()

    assert results.outcome is RunOutcome.INTERRUPTED
    # Two members have each consumed a record every 100 ms, for 12 s.
    assert results.records_consumed == 2 * 12 * SECOND_US // 100_000


def test_trace_read_after_the_stop_is_judged() -> None:
    """On Ray the nodes write their rows to files, which are read after all nodes have stopped.

    So `read_trace` is called at the end of the run, and the checks judge the rows that it returns.
    """
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
    # Without new commits the run is still in the stage `liveness` at 41 s.
    run.runtime.commits_stand_still = True
    if when_s < 1:
        # With an empty group the run is still in the stage `starting` at 0.1 s.
        run.runtime.group_state = "Empty"

    run.runtime.at[round(when_s * SECOND_US)] = explode

    results = run.execute()

    assert results.exit_code == 255
    assert "boom" in results.reasons[0]
    assert run.runtime.stopped
    assert set(run.runtime.nodes.values()) == {NodeState.UP}
