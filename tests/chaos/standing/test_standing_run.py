"""A standing cluster: a person injects faults by commands, until the command `down` ends the run.

Each command sends a request to the run. A request that injects a fault, or heals (undoes) one, is
called an order. Some runs also have a plan, a list of faults with their times. The fault of an
order is recorded in the run's journal like a fault of the plan. An order that cannot be carried out
is refused with a RefusalKind: UNKNOWN if no such order could ever be carried out, and NOTHING_NOW
if the order would hit nothing at this time.

In these tests a script gives the requests with their times: `Standing({5 * SECOND_US: CRASH})`. The
run is played on a FakeRuntime, which has no nodes and reports a healthy cluster. The FakeRuntime
remembers how it was called: `runtime.acts` is a list of texts such as `crash broker-0`.
"""

from collections.abc import Coroutine, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from chaos.checkers.context import detail_of
from chaos.checkers.registry import CheckSuite, context_of
from chaos.experiment.structs import Experiment
from chaos.results.run_directory import RunDirectory, create_run_directory, open_run
from chaos.run.plan import plan_of
from chaos.standing.mailbox import PendingRequest
from chaos.standing.messages import (
    Answer,
    DownRequest,
    HealAnswer,
    HealRequest,
    InjectAnswer,
    InjectRequest,
    OrderRefusal,
    PresenceAnswer,
    PresenceRequest,
    RefusalKind,
    Request,
    StatusAnswer,
    StatusRequest,
)
from chaos.standing.run import StandingRun
from cluster.runtime import ClusterStatus, GroupStatus, NodeState
from protocol.ids import BrokerId, NodeName, broker_name
from protocol.trace import TraceKind, TraceRow
from results_schema.journal import FaultOutcome
from results_schema.manifest import Plan
from results_schema.results import Results, RunOutcome, Verdict
from tests.support.builders.experiments import experiment
from tests.support.harness.fake_runtime import FakeRuntime

SECOND_US = 1_000_000
SAFETY = ("fencing", "durable_commits")
"""The checks of these runs.

They find nothing, because a FakeRuntime has no nodes that write rows.
"""
# The fields of a status that the run cannot know by itself, such as the cluster's name.
IDENTITY = StatusAnswer(
    name="lab", run_directory="runs/lab/x", runtime="fake", pid=1, stage="", time_us=0
)
CRASH = InjectRequest(fault="crash", target="coordinator-of(readers)", duration="10s")


class ScriptedOrders:
    """Gives the run each request when the run's clock has reached the time of the request.

    A real run takes its requests from a mailbox instead. The keys of `script` are the times, in
    microseconds. `asked` has the requests that the run has taken so far. `answered_at_us[0]` is the
    time at which the first of these requests was answered.
    """

    def __init__(self, runtime: FakeRuntime, script: dict[int, Request]) -> None:
        self.runtime = runtime
        self.script = dict(sorted(script.items()))
        self.asked: list[PendingRequest] = []
        self.answered_at_us: dict[int, int] = {}
        self.closed_because = "never opened"  # "": the run takes requests at present

    def open(self) -> None:
        self.closed_because = ""

    def close(self, reason: str) -> None:
        # If the orders are closed twice, the first reason counts.
        self.closed_because = self.closed_because or reason

    async def next(self, pause: Coroutine[object, object, None]) -> PendingRequest | None:
        """Wait for `pause`, then return the next request whose time has come, or None.

        The run calls this method whenever it has nothing to do. `pause` ends when the run must do
        something again.
        """
        await pause
        for time_us, request in self.script.items():
            if time_us <= self.runtime.time_us:
                del self.script[time_us]
                pending = PendingRequest(request)
                # The position of the request in `asked` is the key of its answer's time.
                pending.future.add_done_callback(partial(self._note_answer, len(self.asked)))
                self.asked.append(pending)
                return pending
        return None

    def _note_answer(self, number: int, _: "Future[Answer]") -> None:
        self.answered_at_us[number] = self.runtime.time_us

    @property
    def answers(self) -> list[Answer]:
        """Return the answers in the order of the requests.

        The run does not answer `down` itself.
        """
        return [pending.future.result() for pending in self.asked if pending.future.done()]


class Standing:
    """One standing run on a FakeRuntime, with the rows of its trace.

    `execute` plays the run, in which the requests of `script` come at their times.
    """

    def __init__(
        self,
        script: dict[int, Request] | None = None,
        own_experiment: Experiment | None = None,
        *,
        plan: Plan = (),
        duration_us: int | None = None,
    ) -> None:
        self.experiment = own_experiment or experiment(faults=[])
        self.suite = CheckSuite(context_of(self.experiment), SAFETY)
        self.rows: list[TraceRow] = []
        self.runtime = FakeRuntime(self.experiment, self.observe)
        self.orders = ScriptedOrders(self.runtime, script or {})
        self.plan = plan
        self.duration_us = duration_us
        self.directory: RunDirectory | None = None
        self.served_at_us: list[int] = []  # when the brokers began to serve
        self.context_steps: list[str] = []  # what the run did with `while_serving`

    def observe(self, row: TraceRow) -> None:
        self.rows.append(row)
        self.suite.observe(row)

    @contextmanager
    def while_serving(self) -> Iterator[None]:
        self.context_steps.append("entered")
        yield
        self.context_steps.append("left")

    def execute(self) -> Results:
        self.run = StandingRun(
            self.experiment,
            self.plan,
            self.runtime,
            self.suite,
            self.orders,
            identity=IDENTITY,
            directory=self.directory,
            duration_us=self.duration_us,
            on_serving=self.served_at_us.append,
            while_serving=self.while_serving(),
        )
        return self.run.execute()

    def refusals(self) -> list[OrderRefusal]:
        return [answer for answer in self.orders.answers if isinstance(answer, OrderRefusal)]


def test_an_order_is_a_fault_of_the_run_and_ends_after_its_duration() -> None:
    """The run has the usual stages and no plan. Its journal has the ordered fault."""
    standing = Standing({5 * SECOND_US: CRASH, 30 * SECOND_US: DownRequest()})

    results = standing.execute()

    assert standing.runtime.acts == [
        "stage starting",
        "start",
        "stage serving",
        "stage steady",
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
    assert (entry.fault_id, entry.target) == ("crash-0", "coordinator-of(readers)")
    assert (entry.fired_at_us, entry.healed_at_us) == (5 * SECOND_US, 15 * SECOND_US)
    assert results.outcome is RunOutcome.COMPLETED

    # The order was answered immediately, not at the end of the fault.
    (answer,) = standing.orders.answers
    assert isinstance(answer, InjectAnswer)
    assert standing.orders.answered_at_us[0] == 5 * SECOND_US

    # The fake brokers serve at once. The context manager `while_serving` was used once.
    assert standing.served_at_us == [0]
    assert standing.context_steps == ["entered", "left"]
    assert standing.orders.closed_because == "the cluster is going down"


def test_a_waiting_caller_is_answered_when_the_fault_is_over() -> None:
    """The order comes at 1 s, and its fault lasts 10 s.

    With `waits=True` the answer comes at 11 s.
    """
    waiting_order = InjectRequest(fault="crash", target="broker(1)", duration="10s", waits=True)
    standing = Standing({SECOND_US: waiting_order, 20 * SECOND_US: DownRequest()})
    standing.execute()
    (answer,) = standing.orders.answers
    assert isinstance(answer, InjectAnswer)
    assert answer.fault.healed_by == "plan"  # at the end of its duration
    assert standing.orders.answered_at_us[0] == 11 * SECOND_US


def test_a_fault_without_a_duration_is_healed_at_the_end_and_its_caller_answered() -> None:
    """The caller waits for the healing, and must not wait beyond the end of the run."""
    waiting_order = InjectRequest(fault="pause", target="broker(1)", waits=True)
    standing = Standing({SECOND_US: waiting_order, 20 * SECOND_US: DownRequest()})
    standing.execute()
    (answer,) = standing.orders.answers
    assert isinstance(answer, InjectAnswer)
    assert answer.fault.healed_by == "end"  # by the end of the run
    assert standing.runtime.acts.count("resume broker-1") == 1


def test_faults_are_healed_by_order() -> None:
    """An order to heal may mean the only fault, one fault by its id, or every fault.

    These are the orders of the script:

    - 1 to 3 s: pause-0 is injected and healed. The second `heal` finds nothing to heal.
    - 4 to 6 s: pause-1 and cut-0 are injected. `heal` without an id is refused, because it might
      mean either of these two faults.
    - 7 to 9 s: A mistyped id is refused, and the id of a healed fault. Then pause-1 is healed.
    - 10 to 11 s: pause-2 is injected. `everything` heals pause-2 and cut-0.
    """
    pause = InjectRequest(fault="pause", target="broker(1)", duration="1h")
    cut = InjectRequest(fault="cut", from_=("broker(0)",), to=("controller",))
    standing = Standing(
        {
            1 * SECOND_US: pause,
            2 * SECOND_US: HealRequest(),
            3 * SECOND_US: HealRequest(),
            4 * SECOND_US: pause,
            5 * SECOND_US: cut,
            6 * SECOND_US: HealRequest(),
            7 * SECOND_US: HealRequest(fault_id="paus-1"),
            8 * SECOND_US: HealRequest(fault_id="pause-0"),
            9 * SECOND_US: HealRequest(fault_id="pause-1"),
            10 * SECOND_US: pause,
            11 * SECOND_US: HealRequest(everything=True),
            12 * SECOND_US: DownRequest(),
        }
    )
    results = standing.execute()
    healed = [
        [fault.fault_id for fault in answer.faults]
        for answer in standing.orders.answers
        if isinstance(answer, HealAnswer)
    ]
    assert healed == [["pause-0"], [], ["pause-1"], ["pause-2", "cut-0"]]
    assert [(refusal.kind, refusal.problems[0]) for refusal in standing.refusals()] == [
        (
            RefusalKind.UNKNOWN,
            "heal: 2 faults are in force: name one of `pause-1`, `cut-0`, or all",
        ),
        (RefusalKind.UNKNOWN, "heal: there is no fault `paus-1`; did you mean `pause-1`?"),
        (RefusalKind.NOTHING_NOW, "heal: `pause-0` is not in force"),
    ]
    assert {fault.healed_by for fault in results.faults} == {"order"}


def test_an_order_that_hits_nothing_is_refused_and_leaves_no_row() -> None:
    """The targets are a broker that is down already, and a group and a topic that do not exist.

    If a fault of a plan hits nothing, the whole run proves nothing. An order that would hit nothing
    is only refused. The person sees the answer, and can give another order.
    """
    standing = Standing(
        {
            1 * SECOND_US: InjectRequest(fault="crash", target="broker(2)"),
            2 * SECOND_US: InjectRequest(fault="crash", target="broker(2)"),
            3 * SECOND_US: InjectRequest(fault="pause", target="coordinator-of(payments)"),
            4 * SECOND_US: InjectRequest(fault="leadership_move", target="leader-of(audit-7)"),
            5 * SECOND_US: DownRequest(),
        }
    )
    results = standing.execute()
    assert {refusal.kind for refusal in standing.refusals()} == {RefusalKind.NOTHING_NOW}
    # After the semicolon, some problems go on with what was expected.
    assert [refusal.problems[0].partition(";")[0] for refusal in standing.refusals()] == [
        "inject: crash broker(2): broker-2 is down",
        "inject: target: no group `payments` is defined",
        "inject: target: no topic `audit` is defined",
    ]
    assert [fault.fault_id for fault in results.faults] == ["crash-0"]
    assert not any("hit nothing" in reason for reason in results.reasons)


def test_an_invalid_order_is_refused_as_in_a_file() -> None:
    """An order is checked like a fault of an experiment file, and has the same messages."""
    orders_and_messages: list[tuple[InjectRequest, str]] = [
        (InjectRequest(fault="crsh", target="broker(0)"), "did you mean `crash`?"),
        (InjectRequest(fault="crash", target="coordinatr-of(readers)"), "did you mean"),
        (InjectRequest(fault="crash", target="broker(3)"), "expected a broker id from 0 to 2"),
        (InjectRequest(fault="crash"), "inject: target: is missing"),
        (InjectRequest(fault="cut", target="broker(0)"), "inject: target: `cut` is a fault of"),
        (InjectRequest(fault="crash", target="broker(0)", duration="soon"), "inject: duration:"),
        (InjectRequest(fault="crash", target="broker(0)", args={"disc": 1}), "inject: args.disc"),
        (
            InjectRequest(fault="leadership_move", target="leader-of(orders-0)", duration="1s"),
            "has no duration",
        ),
    ]
    script: dict[int, Request] = {
        index * SECOND_US: order for index, (order, _) in enumerate(orders_and_messages, start=1)
    }
    standing = Standing({**script, 60 * SECOND_US: DownRequest()})
    results = standing.execute()
    assert {refusal.kind for refusal in standing.refusals()} == {RefusalKind.UNKNOWN}
    for refusal, (_, expected) in zip(standing.refusals(), orders_and_messages, strict=True):
        assert expected in "\n".join(refusal.problems)
    assert results.faults == ()


def test_groups_and_topics_of_clients_from_outside_can_be_hit() -> None:
    """The experiment does not have the group `payments`, but the cluster has it.

    The coordinator of this group can be crashed. The member of the group is a process outside the
    lab, which no fault can hit.
    """

    class WithOutsideGroup(FakeRuntime):
        async def status(self) -> ClusterStatus:
            status = await super().status()
            status.groups["payments"] = [
                GroupStatus(
                    coordinator=BrokerId(0),
                    offsets_partition=1,
                    state="Stable",
                    generation=4,
                    members=("java-client-1",),
                    leader="java-client-1",
                )
            ]
            return status

    crash_coordinator = InjectRequest(
        fault="crash", target="coordinator-of(payments)", duration="5s"
    )
    crash_member = InjectRequest(fault="crash", target="leader-member-of(payments)")  # is refused
    standing = Standing(
        {
            1 * SECOND_US: crash_coordinator,
            10 * SECOND_US: crash_member,
            11 * SECOND_US: StatusRequest(partitions=True),
            12 * SECOND_US: DownRequest(),
        }
    )
    standing.runtime = WithOutsideGroup(standing.experiment, standing.observe)
    # The script reads the clock of the run's runtime.
    standing.orders.runtime = standing.runtime
    results = standing.execute()

    (entry,) = results.faults
    assert entry.nodes == ("broker-0",)
    assert "payments" in entry.blast_radius.groups

    (refusal,) = standing.refusals()
    assert refusal.kind is RefusalKind.NOTHING_NOW

    status = standing.orders.answers[-1]
    assert isinstance(status, StatusAnswer)
    (payments,) = [group for group in status.groups if group.group == "payments"]
    assert not payments.is_of_the_file
    assert [(member.member_id, member.node) for member in payments.members] == [
        ("java-client-1", None)
    ]
    (readers,) = [group for group in status.groups if group.group == "readers"]
    assert readers.is_of_the_file
    assert [member.node for member in readers.members] == [
        "consumer-readers-0",
        "consumer-readers-1",
    ]

    # The actions of outside members write no rows, so no checker can judge their group.
    assert standing.run.unjudged_groups() == ("payments",)


def test_status_shows_the_cluster() -> None:
    """The status shows brokers, topics and faults. Partitions are listed only on request."""
    standing = Standing(
        {
            1 * SECOND_US: PresenceRequest(),
            2 * SECOND_US: InjectRequest(fault="crash", target="broker(1)"),
            3 * SECOND_US: StatusRequest(),
            4 * SECOND_US: DownRequest(),
        }
    )
    standing.execute()

    presence, _, status = standing.orders.answers
    assert presence == PresenceAnswer()
    assert isinstance(status, StatusAnswer)
    assert (status.name, status.stage, status.time_us) == ("lab", "steady", 3 * SECOND_US)
    assert [broker.state for broker in status.brokers] == ["up", "down", "up"]
    assert status.topics == {"__consumer_offsets": 2, "orders": 2}
    assert status.partitions == ()
    assert [fault.fault_id for fault in status.faults] == ["crash-0"]


def test_the_plan_begins_with_the_steady_state_and_its_numbers_continue() -> None:
    """The times of a plan count from the steady state, which is reached at 10 s here.

    So the plan's crash at 5 s is injected at 15 s. Before that, at 12 s, there is an order. The
    fault of the order is `crash-1`, because `crash-0` is the fault of the plan.
    """
    own_experiment = experiment()
    standing = Standing(
        {
            12 * SECOND_US: InjectRequest(fault="crash", target="broker(2)", duration="1s"),
            60 * SECOND_US: DownRequest(),
        },
        own_experiment,
        plan=plan_of(own_experiment),
    )
    standing.runtime.group_state = "PreparingRebalance"

    def settle(runtime: FakeRuntime) -> None:
        runtime.group_state = "Stable"

    standing.runtime.at[10 * SECOND_US] = settle
    results = standing.execute()
    assert results.steady_at_us == 10 * SECOND_US
    assert [(fault.fault_id, fault.fired_at_us) for fault in results.faults] == [
        ("crash-0", 15 * SECOND_US),
        ("crash-1", 12 * SECOND_US),
    ]


def test_a_plan_that_was_interrupted_proves_nothing() -> None:
    """`down` comes at 2 s, so the plan's crash at 5 s is never injected."""
    own_experiment = experiment()
    standing = Standing(
        {2 * SECOND_US: DownRequest()}, own_experiment, plan=plan_of(own_experiment)
    )
    results = standing.execute()
    assert results.verdict is Verdict.UNKNOWN
    assert "crash-0 was never injected" in results.reasons


def _consumer(index: int) -> NodeName:
    return NodeName(f"consumer-readers-{index}")


def test_late_members_that_were_not_started_are_not_awaited() -> None:
    """`down` comes at 20 s. One late member has started at 5 s. Another one would start at 1 h."""
    groups = {
        "readers": {
            "members": 1,
            "topics": ["orders"],
            "late_members": [{"at": "5s", "members": 1}, {"at": "1h", "members": 1}],
        }
    }
    standing = Standing({20 * SECOND_US: DownRequest()}, experiment(groups=groups, faults=[]))
    standing.execute()
    assert standing.runtime.acts.count("start consumer-readers-1") == 1
    assert standing.runtime.nodes[_consumer(2)] is NodeState.NOT_STARTED
    # The run ends soon after `down`, because it does not wait for the second late member.
    assert standing.runtime.time_us < 25 * SECOND_US


def test_a_duration_ends_the_run() -> None:
    """If the run has a duration, it ends without a request `down`."""
    standing = Standing(duration_us=7 * SECOND_US)
    results = standing.execute()
    assert results.outcome is RunOutcome.COMPLETED
    # The end of a run begins with the stage "healing".
    assert results.healed_at_us == 7 * SECOND_US


def test_brokers_that_never_serve_prove_nothing() -> None:
    """No partition ever has a leader, so the brokers cannot serve.

    A cluster that does not serve takes no orders.
    """
    standing = Standing()
    standing.runtime.leader = BrokerId(-1)  # no leader
    results = standing.execute()
    assert results.verdict is Verdict.UNKNOWN
    assert "the brokers do not serve within 60s" in results.reasons[0]
    assert standing.orders.closed_because == "never opened"


def test_a_failure_of_the_tool_is_answered_and_ends_the_run() -> None:
    """The caller of the failed order gets an answer, so it does not wait for ever."""
    standing = Standing({SECOND_US: CRASH})
    standing.runtime.crash_fails_with = OSError("no such process")
    results = standing.execute()
    assert results.outcome is RunOutcome.INTERNAL_ERROR
    (refusal,) = standing.refusals()
    assert refusal.kind is RefusalKind.FAILED
    assert results.faults[0].outcome is FaultOutcome.FAILED


def test_orders_are_in_the_manifest(tmp_path: Path) -> None:
    """The plan in the run's manifest has the fault of each order, as if it had been planned."""
    order = InjectRequest(fault="crash", target="broker(1)", duration="10s", args={"disk": "empty"})
    standing = Standing({5 * SECOND_US: order, 6 * SECOND_US: DownRequest()})
    standing.directory = create_run_directory(
        tmp_path, standing.experiment, (), seed=0, runtime="local", replay="again"
    )
    standing.execute()
    past = open_run(standing.directory.path)
    (planned,) = past.manifest.plan
    assert (planned.fault_id, planned.at_us) == ("crash-0", 5 * SECOND_US)
    assert planned.args == {"disk": "empty"}
    assert [entry.fault_id for entry in past.journal()] == ["crash-0"]
    assert broker_name(1) in past.journal()[0].nodes


def test_findings_about_a_group_with_outside_members_do_not_count() -> None:
    """From 5 s on a client from outside is a member of the lab's own group.

    This client writes no rows about what it does, so a checker may take a normal state for a
    violation. The test lets a checker report two findings, at 4 s and at 8 s. Only the first
    finding counts.
    """

    class WithOutsideMember(FakeRuntime):
        async def status(self) -> ClusterStatus:
            status = await super().status()
            if self.time_us >= 5 * SECOND_US:
                status.groups["readers"] = [
                    replace(group, members=(*group.members, "java-client-1"))
                    for group in status.groups["readers"]
                ]
            return status

    standing = Standing({20 * SECOND_US: DownRequest()})
    standing.runtime = WithOutsideMember(standing.experiment, standing.observe)
    # The script reads the clock of the run's runtime.
    standing.orders.runtime = standing.runtime

    def find(runtime: FakeRuntime) -> None:
        (checker, *_) = standing.suite.checkers
        checker.report_finding(f"at {runtime.time_us}", [], group="readers")

    standing.runtime.at[4 * SECOND_US] = find
    standing.runtime.at[8 * SECOND_US] = find
    standing.execute()
    # The group counts as live, although it has a member too many. So the run ends soon after
    # `down`.
    assert standing.runtime.time_us < 21 * SECOND_US
    violation_rows = [row for row in standing.rows if row.kind == TraceKind.VIOLATION]
    assert [detail_of(row)["summary"] for row in violation_rows] == [f"at {4 * SECOND_US}"]
    assert standing.run.unjudged_groups() == ("readers",)


def test_an_order_for_an_unknown_machine_is_refused() -> None:
    """The order names the machine of the coordinator of `payments`. There is no such group.

    - If the experiment has machines, the order could be carried out later, because a group of this
      name may come. So the refusal is NOTHING_NOW.
    - If the experiment has no machines, the order can never be carried out. So the refusal is
      UNKNOWN.
    """
    order = InjectRequest(fault="machine_loss", target="machine-of(coordinator-of(payments))")
    for machines, kind in ((3, RefusalKind.NOTHING_NOW), (None, RefusalKind.UNKNOWN)):
        cluster: dict[str, object] = {
            "brokers": 3,
            "config": {"offsets.topic.num.partitions": 2},
        }
        if machines is not None:
            cluster["machines"] = machines
        standing = Standing(
            {SECOND_US: order, 2 * SECOND_US: DownRequest()},
            experiment(cluster=cluster, faults=[]),
        )
        standing.execute()
        assert [refusal.kind for refusal in standing.refusals()] == [kind]
