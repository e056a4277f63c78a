"""Rollouts and scalings: the stops and starts of members, and the results of a run.

A rollout replaces the members of a group by successors, a scaling changes their number; both are
called operations. A place is the node name of a member; the spare places 4 and 5 are empty at
first. `lost` has places that the operation left empty, `joined` extra places that it filled. Both
are dicts used as ordered sets: their values mean nothing. With surge a successor takes a free
place, not its predecessor's. A static member has a configured id, which keeps its place in the
group through a restart. The first tests drive an operation alone, on a fake cluster.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, cast

import msgspec
import pytest

from chaos.checkers.context import detail_of
from chaos.experiment.rules.all_rules import errors
from chaos.experiment.structs import Experiment, LateMembersDefinition
from chaos.exploration.play import PlayResult, play
from chaos.faults.orchestration import Orders, Outcome, Rollout, Scaling
from cluster.runtime import ClusterStatus, MemberStatus, NodeState, Runtime
from protocol.ids import NodeName
from protocol.trace import TraceKind
from tests.support.builders.quick_experiment import quick_experiment
from tests.support.worlds.acceptance import VirtualRun, play_virtual

S = 1_000_000
"""Microseconds of a second."""
PLACES = tuple(NodeName(f"consumer-readers-{index}") for index in range(6))
"""The places 0 to 5. PLACES[3::-1] are the places 3, 2, 1 and 0."""


@dataclass
class Cluster:
    """Members that stop and start on request, on a clock that the test moves.

    `acts` has the time in seconds, the act ("term", "kill" or "start") and the index of the member.
    `stopping_takes_us` is the time from SIGTERM to the end; None: the member never ends.
    """

    states: dict[NodeName, NodeState]
    stopping_takes_us: int | None = 0
    time_us: int = 0
    acts: list[tuple[int, str, str]] = field(default_factory=list)
    # The first status replaces this value, which is more than there are members.
    fewest_up: int = 99
    most_up: int = 0
    _down_at_us: dict[NodeName, int] = field(default_factory=dict)

    def now_us(self) -> int:
        return self.time_us

    async def shut_down(self, node: NodeName) -> None:
        self._act("term", node, NodeState.STOPPING)
        if self.stopping_takes_us is not None:
            self.ends_at(node, self.time_us + self.stopping_takes_us)

    def ends_at(self, node: NodeName, time_us: int) -> None:
        """Let a stopping member end at a moment."""
        self._down_at_us[node] = time_us

    async def crash(self, node: NodeName) -> None:
        self._act("kill", node, NodeState.DOWN)

    async def restart(self, node: NodeName) -> None:
        self._act("start", node, NodeState.UP)

    async def start_node(self, node: NodeName) -> None:
        self._act("start", node, NodeState.UP)

    def status(self) -> ClusterStatus:
        for node, at_us in list(self._down_at_us.items()):
            if self.time_us >= at_us:
                self.states[node] = NodeState.DOWN
                del self._down_at_us[node]
        up = [node for node, state in self.states.items() if state is NodeState.UP]
        self.fewest_up = min(self.fewest_up, len(up))
        self.most_up = max(self.most_up, len(up))
        members = {
            node: MemberStatus(
                group_id="readers",
                member_id=node,
                generation=1,
                state="STABLE",
                coordinator=None,
                assigned=(),
                records_consumed=0,
                commits_acknowledged=0,
            )
            for node in up
        }
        return ClusterStatus(nodes=dict(self.states), members=members)

    def _act(self, what: str, node: NodeName, state: NodeState) -> None:
        self.acts.append((self.time_us // S, what, node.rpartition("-")[2]))
        self.states[node] = state


def of_four(**changes: Any) -> Cluster:  # noqa: ANN401 - fields of Cluster
    """Return a cluster with four members that are up, and two spare places."""
    states = dict.fromkeys(PLACES[:4], NodeState.UP) | dict.fromkeys(
        PLACES[4:], NodeState.NOT_STARTED
    )
    return Cluster(states=states, **changes)


async def _drive(work: Rollout | Scaling, cluster: Cluster, until_us: int | None) -> None:
    for _ in range(10_000):  # more steps than any operation here needs
        next_us = await work.step(cast(Runtime, cluster), cluster.status())
        if next_us is None or (until_us is not None and next_us > until_us):
            return
        assert next_us > cluster.time_us, "a step must ask for a later moment"
        cluster.time_us = next_us
    raise AssertionError("the operation never ends")


def drive(work: Rollout | Scaling, cluster: Cluster, *, until_us: int | None = None) -> None:
    """Drive the operation to its end, or until the next step is after `until_us`."""
    coroutine = _drive(work, cluster, until_us)
    # The fake cluster never suspends, so one `send` runs the coroutine to its end.
    with pytest.raises(StopIteration):
        coroutine.send(None)


def with_changes(orders: Orders, changes: dict[str, Any]) -> Orders:
    """Return the orders with some fields replaced."""
    fields = {name: getattr(orders, name) for name in Orders.__dataclass_fields__}
    return Orders(**(fields | changes))


def rollout(
    *,
    old: Sequence[NodeName] = PLACES[3::-1],
    spare: Sequence[NodeName] = (),
    **changes: Any,  # noqa: ANN401
) -> Rollout:
    """Return a rollout of four members, the last one first; successors start 5 s after a stop.

    old: the places of the members to replace, in this order.
    spare: the free places that the rollout may use.
    changes: fields of the orders (the rules of the rollout) that differ from those below.
    """
    orders = Orders(
        max_unavailable=1,
        max_surge=len(spare),
        in_batches=False,
        kills=False,
        grace_us=30 * S,
        start_ups_us=(5 * S,),
        ready_when_assigned=True,
        ready_after_us=(0,),
        progress_deadline_us=60 * S,
        broken_from=None,
        rolls_back=False,
    )
    return Rollout(
        orders=with_changes(orders, changes),
        old=list(old),
        spare=list(spare),
        extra=frozenset(PLACES[4:]),
        lost={},
        joined={},
    )


def test_members_are_replaced_one_after_the_other_the_last_first() -> None:
    """Only one member is missing at a time (`max_unavailable` is 1)."""
    cluster, deploy = of_four(), rollout()
    drive(deploy, cluster)
    assert deploy.outcome is Outcome.COMPLETED
    assert [(what, who) for _, what, who in cluster.acts] == [
        (what, who) for who in "3210" for what in ("term", "start")
    ]
    assert (cluster.fewest_up, cluster.most_up) == (3, 4)
    assert cluster.time_us >= 4 * 5 * S  # four successors, each 5 s after a stop
    assert deploy.lost == {}
    assert [member.ready_at_us is not None for member in deploy.done] == [True] * 4


def test_at_most_the_allowed_number_is_missing_and_batches_wait_for_each_other() -> None:
    """A batch has `max_unavailable` members: two stop together, then their successors start."""
    cluster = of_four()
    drive(rollout(max_unavailable=2, in_batches=True), cluster)
    assert [who for _, what, who in cluster.acts if what == "term"] == list("3210")
    assert [what for _, what, _ in cluster.acts] == 2 * ["term", "term", "start", "start"]
    assert cluster.fewest_up == 2


def test_with_surge_a_successor_is_up_before_its_predecessor_stops() -> None:
    """Five members are up for some time, and never fewer than four."""
    cluster = of_four()
    deploy = rollout(max_unavailable=0, spare=PLACES[4:5])
    drive(deploy, cluster)
    assert deploy.outcome is Outcome.COMPLETED
    assert (cluster.fewest_up, cluster.most_up) == (4, 5)
    assert [(what, who) for _, what, who in cluster.acts][:2] == [("start", "4"), ("term", "3")]
    assert len([node for node, state in cluster.states.items() if state is NodeState.UP]) == 4
    assert list(deploy.joined) == [PLACES[4]]
    assert len(deploy.lost) == 1, "no successor takes the place of the last member"


def test_member_replaced_in_an_extra_place_stays_expected_there() -> None:
    """An earlier rollout with surge left a member in PLACES[4]; this rollout replaces it there.

    The place must remain in `joined`. Otherwise the run would expect the place to be empty at its
    end, and would wait in vain.
    """
    cluster = of_four()
    cluster.states |= {PLACES[0]: NodeState.DOWN, PLACES[4]: NodeState.UP}
    deploy = rollout(old=list(PLACES[4:0:-1]))  # the places 4 to 1
    deploy.joined[PLACES[4]] = None
    drive(deploy, cluster)
    assert deploy.outcome is Outcome.COMPLETED
    assert list(deploy.joined) == [PLACES[4]]
    assert deploy.lost == {}


def test_member_that_does_not_stop_is_killed_after_its_grace_period() -> None:
    """SIGTERM comes at 0 s, and SIGKILL at 10 s. The successor starts 5 s later."""
    cluster = of_four(stopping_takes_us=None)
    deploy = rollout(grace_us=10 * S)
    drive(deploy, cluster)
    assert cluster.acts[:3] == [(0, "term", "3"), (10, "kill", "3"), (15, "start", "3")]
    assert deploy.outcome is Outcome.COMPLETED


@pytest.mark.parametrize("asked_by_another", [False, True])
def test_place_that_another_operation_takes_counts_as_replaced(*, asked_by_another: bool) -> None:
    """A group has two rollouts: `deploy` and another one, which is not driven here.

    The other rollout starts a successor between two steps of `deploy`. So `deploy` never sees the
    place empty, and must not wait until the place is empty. With `asked_by_another` the other
    rollout has asked the member to stop, and `deploy` has not.
    """
    cluster = of_four(stopping_takes_us=None)
    if asked_by_another:
        cluster.states[PLACES[3]] = NodeState.STOPPING
    deploy = rollout(grace_us=10 * S)
    # At the end of the grace period, 10 s, `deploy` kills a member that it has asked to stop.
    drive(deploy, cluster, until_us=9 * S if asked_by_another else 10 * S)
    cluster.states[PLACES[3]] = NodeState.UP  # the other rollout's successor
    cluster.stopping_takes_us = 0

    drive(deploy, cluster)

    assert deploy.outcome is Outcome.COMPLETED
    assert [member.place for member in deploy.done] == list(PLACES[3::-1])
    acts_on_first = [what for _, what, who in cluster.acts if who == "3"]
    assert acts_on_first == ([] if asked_by_another else ["term", "kill"])


def test_kill_needs_no_orderly_stop() -> None:
    """With `kills` members get SIGKILL without a SIGTERM before it."""
    cluster = of_four()
    drive(rollout(kills=True), cluster)
    assert {what for _, what, _ in cluster.acts} == {"kill", "start"}


def test_readiness_after_a_time_makes_the_next_wait() -> None:
    """The next member stops only when the successor before counts as ready."""
    cluster = of_four()
    drive(rollout(ready_when_assigned=False, ready_after_us=(20 * S,)), cluster)
    stops = [at for at, what, _ in cluster.acts if what == "term"]
    # A successor starts 5 s after the stop, and is ready 20 s later.
    assert [later - earlier for earlier, later in pairwise(stops)] == [5 + 20] * 3


def test_readiness_of_each_successor_has_its_own_time() -> None:
    """`ready_after_us` has a time for each successor; no member waits for the last successor."""
    cluster = of_four()
    drive(rollout(ready_when_assigned=False, ready_after_us=(20 * S, 1 * S, 8 * S, 0)), cluster)
    stops = [at for at, what, _ in cluster.acts if what == "term"]
    assert [later - earlier for earlier, later in pairwise(stops)] == [5 + 20, 5 + 1, 5 + 8]


def test_interrupted_rollout_restores_the_size_of_its_group() -> None:
    """`places_to_fill` has a place for each member that is missing at the interruption.

    A member that stops or is down is missing, unless its successor is up in a spare place.
    """
    for spare, until_s, filled in (
        # A successor starts 5 s after the stop of its predecessor.
        ((), 2, (PLACES[3],)),  # the first member is down
        ((), 7, (PLACES[2],)),  # its successor is up, and the second member is down
        (PLACES[4:5], 2, ()),  # no member is stopped before the first successor is up
        (PLACES[4:5], 7, ()),  # the first member is down, its successor is up in the spare place
    ):
        cluster = of_four()
        deploy = rollout(spare=spare, max_unavailable=0 if spare else 1)
        drive(deploy, cluster, until_us=until_s * S)
        assert deploy.outcome is Outcome.UNDER_WAY
        assert deploy.places_to_fill() == filled, (spare, until_s)


def test_interrupted_roll_back_counts_members_that_were_not_replaced() -> None:
    """The second successor never starts, so after 60 s the rollout is rolled back.

    72 s is in the middle of the roll-back. The filled places must give the group four members.
    """
    cluster, deploy = of_four(), rollout(broken_from=1, rolls_back=True)
    drive(deploy, cluster, until_us=72 * S)
    assert deploy.replaced
    up = [node for node, state in cluster.states.items() if state is NodeState.UP]
    assert len({*up, *deploy.places_to_fill()}) == 4


def test_broken_version_stops_at_its_deadline_with_the_stopped_members_down() -> None:
    """The first successor starts; the second never does.

    Successors from number `broken_from` on are broken, counted from 0.
    """
    cluster, deploy = of_four(), rollout(broken_from=1)
    drive(deploy, cluster)
    assert deploy.outcome is Outcome.HUNG
    assert deploy.hangs
    assert [(what, who) for _, what, who in cluster.acts] == [
        ("term", "3"),
        ("start", "3"),
        ("term", "2"),
    ]
    assert list(deploy.lost) == [PLACES[2]]


def test_rollout_without_a_free_place_for_its_surge_stops_at_its_deadline() -> None:
    """No member may stop before its successor is up, and no spare place is free for a successor.

    Another operation may have used the spare places. Without a deadline the run would never end.
    """
    cluster, deploy = of_four(), rollout(max_unavailable=0)
    drive(deploy, cluster)
    assert deploy.outcome is Outcome.HUNG
    assert cluster.time_us == 60 * S, "the progress deadline"
    assert cluster.acts == []
    assert deploy.places_to_fill() == ()


def test_rollout_that_waits_for_a_member_that_stays_down_is_rolled_back() -> None:
    """Another fault ended member 0, so no other may stop (`max_unavailable` is 0)."""
    cluster, deploy = of_four(), rollout(rolls_back=True, max_unavailable=0, spare=PLACES[4:5])
    cluster.states[PLACES[0]] = NodeState.DOWN
    drive(deploy, cluster)
    assert deploy.outcome is Outcome.ROLLED_BACK


def test_rolled_back_rollout_of_a_broken_version_leaves_all_members_up() -> None:
    """After the deadline members 2 and 3 are started in the old version."""
    cluster, deploy = of_four(), rollout(broken_from=1, rolls_back=True)
    drive(deploy, cluster)
    assert deploy.outcome is Outcome.ROLLED_BACK
    assert not deploy.hangs
    assert set(cluster.states.values()) == {NodeState.UP, NodeState.NOT_STARTED}
    assert [(what, who) for _, what, who in cluster.acts][3:] == [
        ("start", "2"),
        ("term", "3"),
        ("start", "3"),
    ]
    assert deploy.lost == {}


def scaling(to: int, **changes: Any) -> Scaling:  # noqa: ANN401
    """Return a scaling by one member every 10 s; `changes` replace its fields."""
    fields: dict[str, Any] = {
        "to": to,
        "step_size": 1,
        "every_us": 10 * S,
        "kills": False,
        "grace_us": 30 * S,
        "places": PLACES,
        "spare": frozenset(PLACES[4:]),
        "lost": {},
        "joined": {},
    }
    return Scaling(**(fields | changes))


def test_group_is_scaled_down_by_steps_the_last_member_first() -> None:
    """From four members to two: one member stops every 10 s."""
    cluster, work = of_four(), scaling(to=2)
    drive(work, cluster)
    assert cluster.acts == [(0, "term", "3"), (10, "term", "2")]
    assert list(work.lost) == [PLACES[3], PLACES[2]]


def test_group_is_scaled_up_to_its_spare_places() -> None:
    """From four members to six: two members (`step_size`) start at once."""
    cluster, work = of_four(), scaling(to=6, step_size=2)
    drive(work, cluster)
    assert cluster.acts == [(0, "start", "4"), (0, "start", "5")]
    assert list(work.joined) == [*PLACES[4:]]


def test_superseded_scaling_starts_and_stops_no_more_members() -> None:
    """A later scaling of the group supersedes the scaling of this test.

    The superseded scaling still kills the member that it asked to stop, once the grace period is
    over.
    """
    cluster, work = of_four(stopping_takes_us=None), scaling(to=0)
    drive(work, cluster, until_us=5 * S)
    work.is_superseded = True

    drive(work, cluster)

    assert cluster.acts == [(0, "term", "3"), (30, "kill", "3")]


def test_growing_group_waits_for_a_place_whose_former_member_is_still_stopping() -> None:
    """Four places for four members: 0 and 1 run, 2 is stopping until 15 s, 3 is free.

    The step at 10 s finds no free place, so the member of place 2 starts in the next step.
    """
    up, stopping, down = NodeState.UP, NodeState.STOPPING, NodeState.DOWN
    cluster = Cluster(states=dict(zip(PLACES, (up, up, stopping, down), strict=False)))
    cluster.ends_at(PLACES[2], 15 * S)
    work = scaling(to=4, places=PLACES[:4], spare=frozenset(), lost={PLACES[2]: None})
    drive(work, cluster)
    assert cluster.acts == [(0, "start", "3"), (20, "start", "2")]
    assert work.lost == {}


def test_group_of_the_requested_size_is_unchanged() -> None:
    """The group has four members already."""
    cluster = of_four()
    drive(scaling(to=4), cluster)
    assert cluster.acts == []


# -- whole runs ----------------------------------------------------------------------------------


def experiment_with(
    fault: str, *, spare: int = 0, instance: str | None = None, **args: object
) -> Experiment:
    """Return a quick experiment in which the members of readers are replaced or scaled.

    `instance` is the pattern of the members' group.instance.id; None: they are dynamic members.
    """
    made = quick_experiment(
        faults=[{"at": "1s", "fault": fault, "target": "members(readers)", "args": args}]
    )
    group = msgspec.structs.replace(made.groups["readers"], spare_members=spare)
    if instance is not None:
        config = msgspec.structs.replace(group.config, group_instance_id=instance)
        group = msgspec.structs.replace(group, config=config)
    return msgspec.structs.replace(made, groups={"readers": group})


def last_generation(run: VirtualRun) -> int:
    """Return the number of the last generation, which counts the rebalances of the run."""
    started = [row for row in run.rows if row.kind == TraceKind.GENERATION_STARTED]
    return max((row.generation or 0 for row in started), default=0)


def test_run_with_a_rollout_passes_and_its_journal_has_each_replacement() -> None:
    """The journal's entry of the rollout has the place and the times of each successor.

    The same experiment and seed give the same run.
    """
    with_rollout = experiment_with("rollout", start_up=["1s", "3s"])
    run = play_virtual(with_rollout, seed=3)
    assert run.results.reasons == ()
    (entry,) = run.results.faults
    assert entry.healed_by == "plan"
    assert entry.resolved["outcome"] == "completed"
    replaced = cast(list[dict[str, Any]], entry.resolved["replaced"])
    assert [member["place"] for member in replaced] == ["consumer-readers-1", "consumer-readers-0"]
    for member in replaced:
        assert member["start_at_us"] <= member["started_at_us"] <= member["ready_at_us"]
    assert run.digest == play_virtual(with_rollout, seed=3).digest


def test_dynamic_members_rebalance_for_each_other_and_static_ones_do_not() -> None:
    """A static member keeps its assignment over a restart, so generation 1 is the only one.

    Without an instance id each of the two replaced members needs at least one rebalance.
    """
    dynamic = play_virtual(experiment_with("rollout", start_up="1s"), seed=3)
    static = play_virtual(
        experiment_with("rollout", start_up="1s", instance="reader-{index}"), seed=3
    )
    assert last_generation(dynamic) >= 3
    assert last_generation(static) == 1


def test_rollout_past_its_deadline_is_undone_at_the_end() -> None:
    """All successors are broken (`broken_from` is 0), so the rollout hangs until the end."""
    run = play_virtual(
        experiment_with("rollout", start_up="1s", broken_from=0, progress_deadline="3s"), seed=3
    )
    (entry,) = run.results.faults
    assert entry.healed_by == "end"
    assert entry.note is not None
    assert "hung" in entry.note
    assert run.results.reasons == ()


def test_scaled_group_is_live_with_its_present_members() -> None:
    """At its end the run expects the scaled number of members, not the number in the file."""
    for experiment, started in (
        (experiment_with("scale", to=1), []),
        (experiment_with("scale", to=3, spare=1), ["consumer-readers-2"]),
    ):
        run = play_virtual(experiment, seed=3)
        (entry,) = run.results.faults
        assert run.results.reasons == (), experiment.faults
        assert entry.resolved["started"] == started
        assert play(experiment, seed=3).result is PlayResult.PASS


def test_place_of_a_late_member_is_reserved_for_the_plan() -> None:
    """The scaling must not start a member in the place of the late member.

    Otherwise the plan would later start a member that is up, which is a failure of the lab.
    """
    made = experiment_with("scale", to=3, spare=1)
    late = LateMembersDefinition(at="6s", members=1)
    group = msgspec.structs.replace(made.groups["readers"], late_members=(late,))
    run = play_virtual(msgspec.structs.replace(made, groups={"readers": group}), seed=3)
    (entry,) = run.results.faults
    assert entry.resolved["started"] == ["consumer-readers-3"]
    assert run.results.reasons == ()
    # The run expects the member in the spare place, too. Otherwise it would wait in vain for a
    # group without this member, until its `liveness_timeout` of 60 s.
    begins = {
        detail_of(row)["stage"]: row.time_us for row in run.rows if row.kind == TraceKind.RUN_STAGE
    }
    assert begins["verifying"] - begins["liveness"] < 1 * S


@pytest.mark.parametrize(
    ("fault", "args", "problem"),
    [
        ("rollout", {"max_unavailable": 0}, "no member could be replaced"),
        ("rollout", {"max_surge": 1}, "`spare_members: 1` in the group"),
        ("rollout", {"start_up": ["3s", "1s"]}, "the first is longer than the second"),
        ("rollout", {"ready_after": ["3s", "1s"]}, "the first is longer than the second"),
        ("rollout", {"partition": 2}, "none has an index of at least 2"),
        ("rollout", {"max_unavailable": "101%"}, "max_unavailable"),
        ("scale", {"to": 5}, "`spare_members: 3` in the group"),
        ("scale", {}, "to"),
    ],
)
def test_operation_that_can_replace_no_member_is_refused(
    fault: str, args: dict[str, object], problem: str
) -> None:
    """The loader reports the problem before the run."""
    made = quick_experiment(
        faults=[{"at": "1s", "fault": fault, "target": "members(readers)", "args": args}]
    )
    assert problem in "; ".join(map(str, errors(made)))


def test_rollout_has_no_duration() -> None:
    """A rollout ends when its last member is replaced."""
    made = quick_experiment(
        faults=[{"at": "1s", "fault": "rollout", "target": "members(readers)", "duration": "9s"}]
    )
    assert "has no duration" in "; ".join(map(str, errors(made)))
