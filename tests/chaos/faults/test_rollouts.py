"""Rollouts replace the members of a group one after the other, and scalings change their number.

An orchestrator such as Kubernetes does this to the processes of an application, and the lab
imitates the orchestrator. The nodes on which members of a group may run are called its places. In
these tests there are six: four members run on the places 0 to 3, and the places 4 and 5 are spare.
A rollout stops a member, and starts its successor on the same place. With "surge" it starts the
successor first, on a spare place.

The first tests drive a rollout or a scaling alone, on a fake cluster. The tests at the end play
whole runs.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple, cast

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
"""A second in microseconds."""
PLACES = tuple(NodeName(f"consumer-readers-{index}") for index in range(6))
"""The names of the places: PLACES[3] is "consumer-readers-3"."""


class Act(NamedTuple):
    """What a rollout or scaling did to a member.

    `what` is "term" (SIGTERM, which asks a process to end), "kill" (SIGKILL) or "start".
    """

    time_s: int
    what: str
    place: str
    """The index of the place, such as "3"."""


@dataclass
class Cluster:
    """A fake cluster, whose members stop and start on request. The test moves its clock.

    - `stopping_takes_us`: the time from SIGTERM to the end of a member. None: a member never ends.
    - `acts`: everything that was done to a member.
    - `fewest_up`, `most_up`: the fewest and the most members that were up at any time.
    """

    states: dict[NodeName, NodeState]
    stopping_takes_us: int | None = 0
    time_us: int = 0
    acts: list[Act] = field(default_factory=list)
    fewest_up: int = len(PLACES)
    most_up: int = 0
    _down_at_us: dict[NodeName, int] = field(default_factory=dict)

    def acts_without_times(self) -> list[tuple[str, str]]:
        """Return what was done to which place, for example ("term", "3")."""
        return [(act.what, act.place) for act in self.acts]

    def seconds_between_stops(self) -> list[int]:
        """Return the seconds from each SIGTERM to the next SIGTERM."""
        stops = [act.time_s for act in self.acts if act.what == "term"]
        return [later - earlier for earlier, later in pairwise(stops)]

    def now_us(self) -> int:
        return self.time_us

    async def shut_down(self, node: NodeName) -> None:
        self._act("term", node, NodeState.STOPPING)
        if self.stopping_takes_us is not None:
            self.ends_at(node, self.time_us + self.stopping_takes_us)

    def ends_at(self, node: NodeName, time_us: int) -> None:
        """Let the stopping member on this place end at `time_us`."""
        self._down_at_us[node] = time_us

    async def crash(self, node: NodeName) -> None:
        self._act("kill", node, NodeState.DOWN)

    async def restart(self, node: NodeName) -> None:
        self._act("start", node, NodeState.UP)

    async def start_node(self, node: NodeName) -> None:
        self._act("start", node, NodeState.UP)

    def status(self) -> ClusterStatus:
        # First end the stopping members whose time has come.
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
        index = node.rpartition("-")[2]
        self.acts.append(Act(self.time_us // S, what, index))
        self.states[node] = state


def cluster_of_four(**changes: Any) -> Cluster:  # noqa: ANN401 - fields of Cluster
    """Return a cluster with four members that are up, and two spare places."""
    members = dict.fromkeys(PLACES[:4], NodeState.UP)
    spare = dict.fromkeys(PLACES[4:], NodeState.NOT_STARTED)
    return Cluster(states=members | spare, **changes)


async def _drive(operation: Rollout | Scaling, cluster: Cluster, until_us: int | None) -> None:
    for _ in range(10_000):  # more steps than any test here needs
        next_us = await operation.step(cast(Runtime, cluster), cluster.status())
        if next_us is None or (until_us is not None and next_us > until_us):
            return
        assert next_us > cluster.time_us, "a step must ask for a later moment"
        cluster.time_us = next_us
    raise AssertionError("the operation never ends")


def drive(operation: Rollout | Scaling, cluster: Cluster, *, until_us: int | None = None) -> None:
    """Take the steps of a rollout or scaling up to its end, or up to `until_us`.

    Each step returns the time of the next step. The function sets the cluster's clock to this time.
    """
    coroutine = _drive(operation, cluster, until_us)
    # The fake cluster never suspends, so one `send` runs the coroutine to its end.
    with pytest.raises(StopIteration):
        coroutine.send(None)


LAST_FIRST = (PLACES[3], PLACES[2], PLACES[1], PLACES[0])
"""The order in which a rollout replaces the members."""


def make_rollout(
    *,
    old: Sequence[NodeName] = LAST_FIRST,
    spare: Sequence[NodeName] = (),
    **changes: Any,  # noqa: ANN401
) -> Rollout:
    """Return a rollout of the four members. A successor starts 5 s after its place is empty.

    old: the places of the members to replace, in this order.
    spare: the free places that the rollout may use.
    changes: rules of the rollout (fields of Orders) that differ from the rules below.

    `lost` of the rollout has the places that the rollout has emptied and not filled again. `joined`
    has the spare places that the rollout has filled. Both are dicts that serve as ordered sets, so
    their values mean nothing.
    """
    rules: dict[str, Any] = {
        "max_unavailable": 1,
        "max_surge": len(spare),
        "in_batches": False,
        "kills": False,
        "grace_us": 30 * S,
        "start_ups_us": (5 * S,),
        "ready_when_assigned": True,
        "ready_after_us": (0,),
        "progress_deadline_us": 60 * S,
        "broken_from": None,
        "rolls_back": False,
    }
    return Rollout(
        orders=Orders(**(rules | changes)),
        old=list(old),
        spare=list(spare),
        extra=frozenset(PLACES[4:]),
        lost={},
        joined={},
    )


def test_members_are_replaced_one_after_the_other_the_last_first() -> None:
    """Only one member is missing at a time (`max_unavailable` is 1)."""
    cluster, rollout = cluster_of_four(), make_rollout()
    drive(rollout, cluster)
    assert rollout.outcome is Outcome.COMPLETED
    assert cluster.acts_without_times() == [
        ("term", "3"),
        ("start", "3"),
        ("term", "2"),
        ("start", "2"),
        ("term", "1"),
        ("start", "1"),
        ("term", "0"),
        ("start", "0"),
    ]
    assert (cluster.fewest_up, cluster.most_up) == (3, 4)
    assert cluster.time_us >= 4 * 5 * S  # four successors, each 5 s after a stop
    assert rollout.lost == {}
    # All four successors are ready.
    assert [member.ready_at_us is not None for member in rollout.done] == [True] * 4


def test_at_most_the_allowed_number_is_missing_and_batches_wait_for_each_other() -> None:
    """Members are replaced in batches of `max_unavailable`, which is two here.

    Two members stop together, then their successors start, and then the next two members stop.
    """
    cluster = cluster_of_four()
    drive(make_rollout(max_unavailable=2, in_batches=True), cluster)
    assert [act.place for act in cluster.acts if act.what == "term"] == ["3", "2", "1", "0"]
    assert [act.what for act in cluster.acts] == 2 * ["term", "term", "start", "start"]
    assert cluster.fewest_up == 2


def test_with_surge_a_successor_is_up_before_its_predecessor_stops() -> None:
    """The first successor starts on the spare place 4, and then the member of place 3 stops.

    The next successor takes place 3, and so on. So five members are up for some time, and there are
    never fewer than four.
    """
    cluster = cluster_of_four()
    rollout = make_rollout(max_unavailable=0, spare=PLACES[4:5])
    drive(rollout, cluster)
    assert rollout.outcome is Outcome.COMPLETED
    assert (cluster.fewest_up, cluster.most_up) == (4, 5)
    assert cluster.acts_without_times()[:2] == [("start", "4"), ("term", "3")]
    assert list(cluster.states.values()).count(NodeState.UP) == 4
    assert list(rollout.joined) == [PLACES[4]]
    assert len(rollout.lost) == 1, "no successor takes the place of the last member"


def test_member_replaced_in_an_extra_place_stays_expected_there() -> None:
    """An earlier rollout with surge has left a member on the spare place 4, in place of place 0.

    This rollout replaces the member on place 4, so place 4 must remain in `joined`. If it did not,
    the run would expect at its end that the place is empty, and would wait until its time limit.
    """
    cluster = cluster_of_four()
    cluster.states |= {PLACES[0]: NodeState.DOWN, PLACES[4]: NodeState.UP}
    rollout = make_rollout(old=[PLACES[4], PLACES[3], PLACES[2], PLACES[1]])
    rollout.joined[PLACES[4]] = None
    drive(rollout, cluster)
    assert rollout.outcome is Outcome.COMPLETED
    assert list(rollout.joined) == [PLACES[4]]
    assert rollout.lost == {}


def test_member_that_does_not_stop_is_killed_after_its_grace_period() -> None:
    """SIGTERM comes at 0 s, and SIGKILL at 10 s. The successor starts 5 s later."""
    cluster = cluster_of_four(stopping_takes_us=None)
    rollout = make_rollout(grace_us=10 * S)
    drive(rollout, cluster)
    assert cluster.acts[:3] == [(0, "term", "3"), (10, "kill", "3"), (15, "start", "3")]
    assert rollout.outcome is Outcome.COMPLETED


@pytest.mark.parametrize("asked_by_another", [False, True])
def test_place_that_another_operation_takes_counts_as_replaced(*, asked_by_another: bool) -> None:
    """A group may have two rollouts at once: the one of this test, and another one.

    1. The member on place 3 is asked to stop, but does not end. With `asked_by_another` the other
       rollout has asked the member. Otherwise this rollout asks the member, and kills it after the
       grace period of 10 s.
    2. Before the next step of this rollout, the other rollout starts a successor on place 3.
    3. So this rollout never sees that place 3 is empty, and must not wait for that.
    """
    cluster = cluster_of_four(stopping_takes_us=None)
    if asked_by_another:
        cluster.states[PLACES[3]] = NodeState.STOPPING
        last_step_s = 9
        acts_of_this_rollout = []
    else:
        last_step_s = 10
        acts_of_this_rollout = ["term", "kill"]
    rollout = make_rollout(grace_us=10 * S)
    drive(rollout, cluster, until_us=last_step_s * S)
    cluster.states[PLACES[3]] = NodeState.UP  # the other rollout's successor
    cluster.stopping_takes_us = 0

    drive(rollout, cluster)

    assert rollout.outcome is Outcome.COMPLETED
    assert [member.place for member in rollout.done] == list(LAST_FIRST)
    assert [act.what for act in cluster.acts if act.place == "3"] == acts_of_this_rollout


def test_kill_needs_no_orderly_stop() -> None:
    """With `kills=True` members get SIGKILL, without a SIGTERM before."""
    cluster = cluster_of_four()
    drive(make_rollout(kills=True), cluster)
    assert {act.what for act in cluster.acts} == {"kill", "start"}


def test_next_member_stops_only_when_the_successor_is_ready() -> None:
    """A successor starts 5 s after a stop, and is ready 20 s later."""
    cluster = cluster_of_four()
    drive(make_rollout(ready_when_assigned=False, ready_after_us=(20 * S,)), cluster)
    assert cluster.seconds_between_stops() == [5 + 20] * 3


def test_readiness_of_each_successor_has_its_own_time() -> None:
    """The four successors are ready 20, 1, 8 and 0 s after their starts.

    No member stops after the start of the last successor, so the 0 s do not appear below.
    """
    cluster = cluster_of_four()
    ready_after_us = (20 * S, 1 * S, 8 * S, 0 * S)
    drive(make_rollout(ready_when_assigned=False, ready_after_us=ready_after_us), cluster)
    assert cluster.seconds_between_stops() == [5 + 20, 5 + 1, 5 + 8]


WITHOUT_SURGE: dict[str, Any] = {"spare": (), "max_unavailable": 1}
WITH_SURGE: dict[str, Any] = {"spare": PLACES[4:5], "max_unavailable": 0}


@pytest.mark.parametrize(
    ("rules", "until_s", "to_fill"),
    [
        # At 2 s the member of place 3 is down. Its successor would start at 5 s.
        (WITHOUT_SURGE, 2, (PLACES[3],)),
        # At 7 s its successor is up, and the member of place 2 is down.
        (WITHOUT_SURGE, 7, (PLACES[2],)),
        # At 2 s all four members are up, because the first successor must start first.
        (WITH_SURGE, 2, ()),
        # At 7 s the member of place 3 is down, but its successor is up on the spare place.
        (WITH_SURGE, 7, ()),
    ],
)
def test_interrupted_rollout_restores_the_size_of_its_group(
    rules: dict[str, Any], until_s: int, to_fill: tuple[NodeName, ...]
) -> None:
    """A rollout may be interrupted by the end of the run. The group then needs four members again.

    `places_to_fill` returns the places on which a member must be started for this.
    """
    cluster, rollout = cluster_of_four(), make_rollout(**rules)
    drive(rollout, cluster, until_us=until_s * S)
    assert rollout.outcome is Outcome.UNDER_WAY
    assert rollout.places_to_fill() == to_fill


def test_interrupted_roll_back_counts_members_that_were_not_replaced() -> None:
    """The second successor is broken and never starts, so after 60 s the rollout is rolled back.

    At 72 s, in the middle of the roll-back, the rollout is interrupted. The members that are up and
    the places to fill must together be four.
    """
    cluster, rollout = cluster_of_four(), make_rollout(broken_from=1, rolls_back=True)
    drive(rollout, cluster, until_us=72 * S)
    assert rollout.replaced  # the successors that the roll-back replaces in its turn
    up = [node for node, state in cluster.states.items() if state is NodeState.UP]
    assert len({*up, *rollout.places_to_fill()}) == 4


def test_broken_version_stops_at_its_deadline_with_the_stopped_members_down() -> None:
    """The second successor is broken and never starts. So the rollout hangs, and stops.

    The successors from the index `broken_from` on are broken, as if the new version of the
    application failed at its start.
    """
    cluster, rollout = cluster_of_four(), make_rollout(broken_from=1)
    drive(rollout, cluster)
    assert rollout.outcome is Outcome.HUNG
    assert rollout.hangs
    assert cluster.acts_without_times() == [("term", "3"), ("start", "3"), ("term", "2")]
    assert list(rollout.lost) == [PLACES[2]]


def test_rollout_without_a_free_place_for_its_surge_stops_at_its_deadline() -> None:
    """No member may stop before its successor is up, but there is no free place for a successor.

    For example, another rollout may have taken the spare places. Without a deadline this rollout
    would wait for ever.
    """
    cluster, rollout = cluster_of_four(), make_rollout(max_unavailable=0)
    drive(rollout, cluster)
    assert rollout.outcome is Outcome.HUNG
    assert cluster.time_us == 60 * S, "the progress deadline"
    assert cluster.acts == []
    assert rollout.places_to_fill() == ()


def test_rollout_that_waits_for_a_member_that_stays_down_is_rolled_back() -> None:
    """Another fault has ended the member of place 0, which stays down.

    With `max_unavailable` 0 no other member may stop while a member is down. So the rollout cannot
    replace any member, and is rolled back at its deadline.
    """
    cluster = cluster_of_four()
    rollout = make_rollout(rolls_back=True, max_unavailable=0, spare=PLACES[4:5])
    cluster.states[PLACES[0]] = NodeState.DOWN
    drive(rollout, cluster)
    assert rollout.outcome is Outcome.ROLLED_BACK


def test_rolled_back_rollout_of_a_broken_version_leaves_all_members_up() -> None:
    """The second successor never starts. After the deadline the roll-back begins.

    At this time place 2 is empty, and place 3 has the first successor. Both places get a member of
    the old version.
    """
    cluster, rollout = cluster_of_four(), make_rollout(broken_from=1, rolls_back=True)
    drive(rollout, cluster)
    assert rollout.outcome is Outcome.ROLLED_BACK
    assert not rollout.hangs
    assert set(cluster.states.values()) == {NodeState.UP, NodeState.NOT_STARTED}
    # Before the deadline place 3 got its successor, and the member of place 2 was stopped.
    roll_back = cluster.acts_without_times()[3:]
    assert roll_back == [("start", "2"), ("term", "3"), ("start", "3")]
    assert rollout.lost == {}


def make_scaling(to: int, **changes: Any) -> Scaling:  # noqa: ANN401
    """Return a scaling to `to` members, by default by one member every 10 s."""
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
    """The group shrinks from four members to two: one member stops every 10 s."""
    cluster, scaling = cluster_of_four(), make_scaling(to=2)
    drive(scaling, cluster)
    assert cluster.acts == [(0, "term", "3"), (10, "term", "2")]
    assert list(scaling.lost) == [PLACES[3], PLACES[2]]


def test_group_is_scaled_up_to_its_spare_places() -> None:
    """The group grows from four members to six: two members (`step_size`) start at once."""
    cluster, scaling = cluster_of_four(), make_scaling(to=6, step_size=2)
    drive(scaling, cluster)
    assert cluster.acts == [(0, "start", "4"), (0, "start", "5")]
    assert list(scaling.joined) == [*PLACES[4:]]


def test_superseded_scaling_starts_and_stops_no_more_members() -> None:
    """At 5 s a later scaling of the same group supersedes the scaling of this test.

    At 0 s the scaling of this test has asked a member to stop, but the member does not end. The
    scaling still kills this member at the end of the grace period, and does nothing else.
    """
    cluster, scaling = cluster_of_four(stopping_takes_us=None), make_scaling(to=0)
    drive(scaling, cluster, until_us=5 * S)
    scaling.is_superseded = True

    drive(scaling, cluster)

    assert cluster.acts == [(0, "term", "3"), (30, "kill", "3")]


def test_growing_group_waits_for_a_place_whose_former_member_is_still_stopping() -> None:
    """The group needs four members, and has four places.

    1. At 0 s the members of places 0 and 1 are up, and place 3 is free. So a member starts there.
    2. At 10 s the former member of place 2 is still stopping, so there is no free place.
    3. At 20 s place 2 is free, because its former member has ended at 15 s.
    """
    states = {
        PLACES[0]: NodeState.UP,
        PLACES[1]: NodeState.UP,
        PLACES[2]: NodeState.STOPPING,
        PLACES[3]: NodeState.DOWN,
    }
    cluster = Cluster(states=states)
    cluster.ends_at(PLACES[2], 15 * S)
    scaling = make_scaling(to=4, places=PLACES[:4], spare=frozenset(), lost={PLACES[2]: None})
    drive(scaling, cluster)
    assert cluster.acts == [(0, "start", "3"), (20, "start", "2")]
    assert scaling.lost == {}


def test_group_of_the_requested_size_is_unchanged() -> None:
    """The group has four members already, so nothing is done."""
    cluster = cluster_of_four()
    drive(make_scaling(to=4), cluster)
    assert cluster.acts == []


# -- whole runs ----------------------------------------------------------------------------------


def experiment_with(
    fault: str, *, spare: int = 0, instance: str | None = None, **args: object
) -> Experiment:
    """Return a quick experiment with one fault: a rollout or a scaling of the group readers.

    - `spare`: the number of spare places.
    - `instance`: the pattern of the members' group.instance.id, such as "reader-{index}". None: the
      members are dynamic.
    - `args`: the arguments of the fault.
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
    """Return the last generation of the group, which is the number of its rebalances."""
    started = [row for row in run.rows if row.kind == TraceKind.GENERATION_STARTED]
    return max((row.generation or 0 for row in started), default=0)


def test_run_with_a_rollout_passes_and_its_journal_has_each_replacement() -> None:
    """The journal of a run has an entry for each fault.

    The entry of a rollout says on which place each successor was started, and when. A second run of
    the same experiment and seed is equal in every row.
    """
    with_rollout = experiment_with("rollout", start_up=["1s", "3s"])
    run = play_virtual(with_rollout, seed=3)
    assert run.results.reasons == ()
    (entry,) = run.results.faults
    assert entry.healed_by == "plan"  # by itself, and not by the end of the run
    assert entry.resolved["outcome"] == "completed"
    replaced = cast(list[dict[str, Any]], entry.resolved["replaced"])
    assert [member["place"] for member in replaced] == ["consumer-readers-1", "consumer-readers-0"]
    for member in replaced:
        assert member["start_at_us"] <= member["started_at_us"] <= member["ready_at_us"]
    assert run.digest == play_virtual(with_rollout, seed=3).digest


def test_dynamic_members_rebalance_for_each_other_and_static_ones_do_not() -> None:
    """A static member keeps its partitions over a restart, so its group stays in generation 1.

    A dynamic member leaves, and its successor joins. So each of the two replacements needs at least
    one rebalance.
    """
    dynamic = play_virtual(experiment_with("rollout", start_up="1s"), seed=3)
    static = play_virtual(
        experiment_with("rollout", start_up="1s", instance="reader-{index}"), seed=3
    )
    assert last_generation(dynamic) >= 3
    assert last_generation(static) == 1


def test_rollout_past_its_deadline_is_undone_at_the_end() -> None:
    """No successor ever starts (`broken_from` is 0), so the rollout hangs.

    The end of the run then starts the members again.
    """
    run = play_virtual(
        experiment_with("rollout", start_up="1s", broken_from=0, progress_deadline="3s"), seed=3
    )
    (entry,) = run.results.faults
    assert entry.healed_by == "end"
    assert entry.note is not None
    assert "hung" in entry.note
    assert run.results.reasons == ()


def test_scaled_group_is_live_with_its_present_members() -> None:
    """A run ends when the group has all its members. In the experiment file these are two.

    After a scaling the run must expect the new number of members: one, or three.
    """
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
    """The file has a late member, which starts at 6 s on its own place, consumer-readers-2.

    The scaling at 1 s must not start a member there. The scaling takes consumer-readers-3, the
    spare place.
    """
    made = experiment_with("scale", to=3, spare=1)
    late = LateMembersDefinition(at="6s", members=1)
    group = msgspec.structs.replace(made.groups["readers"], late_members=(late,))
    run = play_virtual(msgspec.structs.replace(made, groups={"readers": group}), seed=3)
    (entry,) = run.results.faults
    assert entry.resolved["started"] == ["consumer-readers-3"]
    assert run.results.reasons == ()
    # The run expects the member on the spare place, too. If it did not, it would wait for a group
    # without this member, until its `liveness_timeout` of 60 s.
    stages = [row for row in run.rows if row.kind == TraceKind.RUN_STAGE]
    began_us = {detail_of(row)["stage"]: row.time_us for row in stages}
    assert began_us["verifying"] - began_us["liveness"] < 1 * S


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
def test_wrong_arguments_of_a_rollout_or_scaling_are_refused(
    fault: str, args: dict[str, object], problem: str
) -> None:
    """The group has two members and no spare place. The loader refuses these arguments."""
    made = quick_experiment(
        faults=[{"at": "1s", "fault": fault, "target": "members(readers)", "args": args}]
    )
    assert problem in "; ".join(map(str, errors(made)))


def test_rollout_has_no_duration() -> None:
    """A rollout ends when its last member is replaced, so a file must not give it a duration."""
    made = quick_experiment(
        faults=[{"at": "1s", "fault": "rollout", "target": "members(readers)", "duration": "9s"}]
    )
    assert "has no duration" in "; ".join(map(str, errors(made)))
