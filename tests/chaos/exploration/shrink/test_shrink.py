"""The Shrinker makes a failing experiment as small as possible, so that a person can understand it.

A search may find a bug with twenty faults, although two of them are enough to show the bug. The
Shrinker removes faults, nodes, topics and settings, and plays each smaller experiment. It keeps the
smaller experiment if its run fails in the same way. This means that the run has a finding with the
same signature: the same check, and the same sentence without names and numbers.

The tests need no cluster. Most tests have a function `fails`, which takes an experiment and a
network seed (which decides the latencies of a run), and returns whether this run would fail. So
`fails` determines how small the experiment can become.
"""

from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from chaos.experiment.dump import experiment_text
from chaos.experiment.loader import load_experiment
from chaos.experiment.structs import (
    ClusterDefinition,
    Experiment,
    FaultDefinition,
    GroupDefinition,
    LateMembersDefinition,
    ProducerDefinition,
    TopicDefinition,
    microseconds,
)
from chaos.exploration.play import PlayedFinding, PlayedRun, PlayResult
from chaos.exploration.shrink.edits import sizes_of
from chaos.exploration.shrink.shrink import (
    FEW_SEEDS,
    NETWORK_SEEDS,
    DoesNotFail,
    ShrinkEnd,
    Shrinker,
    ShrinkProgress,
    Shrunk,
)
from chaos.exploration.signature import Signature
from chaos.run.plan import ends_of
from protocol.config import BrokerConfig, ConsumerConfig, Guards

LOST = Signature(check="fencing", claim="N append is missing")
"""The signature of the finding. Every test shrinks an experiment that fails in this way."""
OTHER = Signature(check="fencing", claim="PARTITION has two leaders in epoch N")
"""A run for which `fails` returns False has a finding, too, but with this signature."""
STEADY_US = 5_000_000
"""Time of the steady state, from which the times of faults count."""

Fails = Callable[[Experiment, int], bool]


class FakePlay:
    """Makes up runs without a cluster. A run has the wanted signature if `fails` returns True.

    If `fails` returns False, the run has the signature OTHER.

    `played` has the experiment and the seed of each run. `at_us` is the time of the violation.
    """

    def __init__(self, fails: Fails, *, at_us: int = 60_000_000) -> None:
        self._fails = fails
        self._at_us = at_us
        self.played: list[tuple[Experiment, int]] = []

    def __call__(self, experiment: Experiment, seed: int, signature: Signature) -> PlayedRun:
        """Return the made-up run of an experiment."""
        self.played.append((experiment, seed))
        shown = signature if self._fails(experiment, seed) else OTHER
        return PlayedRun(
            seed=seed,
            result=PlayResult.VIOLATED,
            findings=(
                PlayedFinding(signature=shown, summary="1 append is missing", time_us=self._at_us),
            ),
            steady_us=STEADY_US,
        )


class FakeClock:
    """A clock that advances a second with each call."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        """Return the time."""
        self.now_s += 1.0
        return self.now_s


def fault(at: str, name: str = "crash", target: str | None = "broker(0)") -> FaultDefinition:
    """Return a fault that begins at `at` and lasts 20 s."""
    return FaultDefinition(at=at, fault=name, target=target, duration="20s")


def experiment_of(*faults: FaultDefinition, **fields: object) -> Experiment:
    """Return an experiment of five brokers, two topics, two groups and one producer.

    `fields` replace fields of the experiment.
    """
    config = ConsumerConfig(session_timeout_ms=20_000, enable_auto_commit=False)
    whole = Experiment(
        version=1,
        name="fake",
        question="?",
        expect="?",
        cluster=ClusterDefinition(
            brokers=5,
            config=BrokerConfig(min_insync_replicas=2, broker_session_timeout_ms=10_000),
        ),
        topics={
            "orders": TopicDefinition(partitions=8, replication_factor=3),
            "payments": TopicDefinition(partitions=4, replication_factor=3),
        },
        groups={
            "readers": GroupDefinition(
                members=3, topics=("orders", "payments"), config=config, commit_interval_ms=700
            ),
            "writers": GroupDefinition(
                members=2, topics=("orders",), config=config, commit_interval_ms=700
            ),
        },
        producers=(ProducerDefinition(topic="payments", records_per_second=5),),
        faults=faults,
    )
    return replace(whole, **fields)


def shrunk(
    play: FakePlay,
    whole: Experiment,
    *,
    seed: int = 100,
    max_runs: int = 2_000,
    deadline_s: float = 1e9,
    progress: Callable[[ShrinkProgress], None] = lambda _: None,
    base: Experiment | None = None,
) -> Shrunk:
    """Shrink `whole`, which was found with `seed`, and return the result.

    By default the limits of runs and time are so large that they are not reached.
    """
    shrinker = Shrinker(
        play,
        now_s=FakeClock(),
        deadline_s=deadline_s,
        last_s=1e9,
        max_runs=max_runs,
        progress=progress,
        base=base,
    )
    return shrinker.shrink(whole, seed, LOST)


def horizon_us(experiment: Experiment) -> int:
    """Return the time from the steady state to the healing of the last fault."""
    return sizes_of(experiment).horizon_us


class SlowPlay(FakePlay):
    """Makes up runs in which a group never recovers.

    So each run lasts until its liveness_timeout.
    """

    def __call__(self, experiment: Experiment, seed: int, signature: Signature) -> PlayedRun:
        """Return the made-up run, with its duration."""
        played = super().__call__(experiment, seed, signature)
        waited_us = microseconds(experiment.run.liveness_timeout)
        return replace(played, virtual_us=STEADY_US + horizon_us(experiment) + waited_us)


def liveness_timeouts(play: FakePlay) -> list[str]:
    """Return the liveness_timeout of each played experiment, in order."""
    return [played.run.liveness_timeout for played, _ in play.played]


def faults_named(experiment: Experiment, name: str) -> list[FaultDefinition]:
    """Return the faults of one kind."""
    return [planned for planned in experiment.faults if planned.fault == name]


MANY = tuple(fault(f"{2_137 + 3_000 * index}ms", "pause", "broker(1)") for index in range(20))
"""Twenty pauses, one every 3 s. A plan has them in addition to the faults that matter."""


@pytest.mark.parametrize("needed", [(0,), (19,), (3, 17), (2, 9, 10)])
def test_only_the_needed_faults_are_left(needed: tuple[int, ...]) -> None:
    """The needed faults, which are crashes here, may be anywhere in a plan of twenty faults."""
    marked = tuple(
        replace(pause, fault="crash") if index in needed else pause
        for index, pause in enumerate(MANY)
    )
    play = FakePlay(lambda tried, _: len(faults_named(tried, "crash")) >= len(needed))

    result = shrunk(play, experiment_of(*marked))

    assert [kept.fault for kept in result.experiment.faults] == ["crash"] * len(needed)
    assert result.before.faults == 20
    assert result.after.faults == len(needed)
    assert result.end is ShrinkEnd.SMALLEST


def test_large_parts_of_the_plan_are_removed_first() -> None:
    """One of 21 faults is needed. Large parts of the plan are removed first.

    If faults were removed one by one, 20 runs would be needed until only this fault is left. Fewer
    than 14 runs are enough.
    """
    play = FakePlay(lambda tried, _: bool(faults_named(tried, "crash")))
    sizes: list[int] = []

    shrunk(
        play,
        experiment_of(*MANY, fault("1s")),
        progress=lambda progress: sizes.append(progress.after.faults),
    )

    runs_until_one_is_left = sizes.index(1)
    assert runs_until_one_is_left < 14


def test_group_without_effect_is_removed_before_the_single_faults_of_a_long_plan() -> None:
    """Runs of a large cluster are slow, so groups are removed before single faults.

    Large parts of the plan are removed first, then groups, then single faults. Here two crashes are
    needed. The group `writers` is needed, too, but only as long as the plan has 20 faults or more.
    """
    # 48 pauses, and two crashes among them.
    plan = tuple(
        fault(f"{index + 2}s", "pause", "broker(1)" if index % 4 else "broker(0)")
        for index in range(48)
    )
    marked = (fault("1s"), *plan[:20], fault("22500ms"), *plan[20:])
    faults_and_groups: list[tuple[int, int]] = []

    def fails(tried: Experiment, _: int) -> bool:
        return len(faults_named(tried, "crash")) == 2 and (
            "writers" in tried.groups or len(tried.faults) < 20
        )

    result = shrunk(
        FakePlay(fails),
        experiment_of(*marked),
        progress=lambda progress: faults_and_groups.append(
            (progress.after.faults, progress.after.groups)
        ),
    )

    # With two faults the run fails without any group.
    assert (result.after.faults, result.after.groups) == (2, 0)
    # As long as both groups were left, single faults were not removed.
    assert min(faults for faults, groups in faults_and_groups if groups == 2) > 6


def test_fault_that_is_not_needed_under_one_of_a_few_seeds_is_removed_in_the_first_round() -> None:
    """With the original network seed two faults are needed, but with another seed one is enough.

    The Shrinker tries a few other seeds early, before it simplifies times and settings. So the plan
    is short even if there is no time for the rest.
    """

    def fails(tried: Experiment, seed: int) -> bool:
        return len(tried.faults) == 2 or (len(tried.faults) == 1 and seed == FEW_SEEDS - 1)

    passes: list[tuple[str, int]] = []
    shrunk(
        FakePlay(fails),
        experiment_of(fault("2s"), fault("30s")),
        progress=lambda progress: passes.append((progress.does, progress.after.faults)),
    )

    # This pass simplifies times. When it runs, only one fault is left.
    moving = "moving the plan to its beginning"
    assert {faults for name, faults in passes if name == moving} == {1}


def test_faults_injected_after_the_violation_are_removed_first() -> None:
    """The violation comes 9 s after the steady state, so later faults cannot have caused it.

    The first run has the whole plan. The second run has only the faults before 9 s.
    """
    play = FakePlay(lambda tried, _: len(tried.faults) >= 2, at_us=STEADY_US + 9_000_000)

    shrunk(play, experiment_of(*MANY))

    second, _ = play.played[1]
    assert [planned.at for planned in second.faults] == ["2137ms", "5137ms", "8137ms"]


def test_unneeded_nodes_are_removed_with_the_faults_that_name_them() -> None:
    """The run fails if the group readers has two members, and the cluster has four brokers.

    So the group writers, the topic payments, the producer and all faults are removed.
    """

    def fails(tried: Experiment, _seed: int) -> bool:
        readers = tried.groups.get("readers")
        return readers is not None and readers.members >= 2 and tried.cluster.brokers >= 4

    whole = experiment_of(
        fault("2s", "crash", "member(writers, 1)"),
        fault("3s", "crash", "broker(4)"),
        fault("4s", "crash", "coordinator-of(writers)"),
    )

    result = shrunk(FakePlay(fails), whole)

    left = result.experiment
    assert list(left.groups) == ["readers"]
    assert left.groups["readers"].members == 2
    assert left.cluster.brokers == 4
    assert len(left.topics) == 1
    assert left.groups["readers"].topics == tuple(left.topics)
    # One partition is left for each of the two members.
    assert [topic.partitions for topic in left.topics.values()] == [2]
    assert left.producers == ()
    assert left.faults == ()


def test_faults_of_removed_nodes_are_dropped_and_lists_of_ends_lose_them() -> None:
    """broker-4 is removed, so the fault that pauses broker-4 is dropped.

    The cut separates the controller from broker-0 and broker-4. The cut stays, but without
    broker-4.
    """
    cut = FaultDefinition(
        at="2s", fault="cut", from_="controller", to=("broker(0)", "broker(4)"), duration="20s"
    )

    def fails(tried: Experiment, _seed: int) -> bool:
        return bool(faults_named(tried, "cut"))

    left = shrunk(FakePlay(fails), experiment_of(cut, fault("3s", "pause", "broker(4)"))).experiment

    assert left.cluster.brokers < 5
    assert [ends_of(planned.to) for planned in left.faults] == [("broker(0)",)]


@pytest.mark.parametrize("kind", ["create_topic", "delete_topic"])
def test_topic_that_a_fault_names_stays_although_no_client_uses_it(kind: str) -> None:
    """The Shrinker removes topics that no client uses, unless a fault creates or deletes the topic.

    Without the topic, a deletion would be invalid, and a creation would do something else.
    """
    order = FaultDefinition(at="3s", fault=kind, target="controller", args={"topic": "archive"})
    topics = {
        "orders": TopicDefinition(partitions=8, replication_factor=3),
        "payments": TopicDefinition(partitions=4, replication_factor=3),
        "archive": TopicDefinition(partitions=2, replication_factor=3),
    }

    def fails(tried: Experiment, _seed: int) -> bool:
        return bool(faults_named(tried, kind))

    left = shrunk(FakePlay(fails), experiment_of(fault("1s"), order, topics=topics)).experiment

    assert [planned.fault for planned in left.faults] == [kind]
    assert "archive" in left.topics
    assert not left.groups  # the run fails without groups, too
    assert "payments" not in left.topics  # no fault names it


def test_result_can_be_written_and_read_back(tmp_path: Path) -> None:
    """The shrunk experiment can be written as a file, and is equal when it is read again.

    Here every experiment with the group `readers` fails, so all other parts are removed.
    """

    def fails(tried: Experiment, _seed: int) -> bool:
        return "readers" in tried.groups

    left = shrunk(FakePlay(fails), experiment_of(*MANY)).experiment
    path = tmp_path / "left.yaml"
    path.write_text(experiment_text(left), encoding="utf-8")

    assert load_experiment(str(path)).experiment == left


def test_promises_are_never_weakened() -> None:
    """There are settings that the Shrinker must not weaken, although every experiment fails here.

    With one replica, or with min.insync.replicas of 1, the loss of an acknowledged commit is
    expected. The finding would not show a bug any more.
    """
    left = shrunk(FakePlay(lambda *_: True), experiment_of(*MANY)).experiment

    assert left.cluster.config.min_insync_replicas == 2
    assert left.cluster.config.offsets_topic_replication_factor >= 2


def test_settings_and_guards_get_their_defaults_unless_they_matter() -> None:
    """The experiment fails because of one unusual setting: session.timeout.ms of 20 s.

    Other settings, and the guard that is off, do not matter, so they get their defaults.
    """

    def fails(tried: Experiment, _seed: int) -> bool:
        readers = tried.groups.get("readers")
        return readers is not None and readers.config.session_timeout_ms == 20_000

    whole = experiment_of(fault("2s"))
    whole = replace(whole, cluster=replace(whole.cluster, guards=Guards(high_watermark_gate=False)))

    left = shrunk(FakePlay(fails), whole).experiment

    assert left.cluster.guards == Guards()
    assert left.cluster.config.broker_session_timeout_ms == 9_000  # Kafka's default
    assert left.groups["readers"].commit_interval_ms is None
    assert left.groups["readers"].config.session_timeout_ms == 20_000


def test_a_setting_whose_default_does_not_fail_gets_the_value_of_its_space() -> None:
    """The Shrinker replaces 4.321 s, the drawn value of a setting, by a round value.

    First it tries Kafka's default of 9 s, but with this value the run does not fail. Then it tries
    5 s, the value of `base`. The base is the experiment that all draws of a space have in common.
    """

    def fails(tried: Experiment, _seed: int) -> bool:
        return tried.cluster.config.broker_session_timeout_ms < 9_000

    def with_session(session_ms: int) -> Experiment:
        whole = experiment_of(fault("2s"))
        config = replace(whole.cluster.config, broker_session_timeout_ms=session_ms)
        return replace(whole, cluster=replace(whole.cluster, config=config))

    left = shrunk(FakePlay(fails), with_session(4_321), base=with_session(5_000)).experiment

    assert left.cluster.config.broker_session_timeout_ms == 5_000


def test_times_are_moved_to_the_beginning_shortened_and_rounded() -> None:
    """The run fails if the faults are at least 4 s apart, and the pause lasts at least 9 s.

    The first fault moves to 1 s. The other two times become round numbers, which leave some room:
    5 s between the faults, and a pause of 15 s.
    """

    def fails(tried: Experiment, _seed: int) -> bool:
        crashes, pauses = faults_named(tried, "crash"), faults_named(tried, "pause")
        if not crashes or not pauses:
            return False
        gap_us = microseconds(pauses[0].at) - microseconds(crashes[0].at)
        lasts_us = microseconds(pauses[0].duration or "0s")
        return gap_us >= 4_000_000 and lasts_us >= 9_000_000

    whole = experiment_of(
        fault("7013ms"),
        FaultDefinition(at="19501ms", fault="pause", target="broker(1)", duration="33333ms"),
    )

    result = shrunk(FakePlay(fails), whole)

    first, second = result.experiment.faults
    assert (first.at, second.at) == ("1s", "6s")
    assert second.duration == "15s"
    assert result.after.horizon_us < result.before.horizon_us


def test_the_shrunk_plan_is_in_order_of_time() -> None:
    """The file lists the fault at 30 s before the fault at 2 s.

    The shrunk plan has them in order.
    """

    def fails(tried: Experiment, _seed: int) -> bool:
        return len(tried.faults) == 2

    left = shrunk(FakePlay(fails), experiment_of(fault("30s"), fault("2s", "pause"))).experiment

    assert [planned.fault for planned in left.faults] == ["pause", "crash"]


def test_room_of_a_duration_is_kept_in_every_round() -> None:
    """The pause must last 4 s. The Shrinker shortens it to 8 s, which leaves some room.

    If the result is shrunk again, the duration must not change once more.
    """

    def fails(tried: Experiment, _seed: int) -> bool:
        return any(microseconds(planned.duration or "0s") >= 4_000_000 for planned in tried.faults)

    once = shrunk(FakePlay(fails), experiment_of(fault("2s", "pause"))).experiment
    twice = shrunk(FakePlay(fails), once).experiment

    assert once.faults[0].duration == "8s"
    assert twice == once


def test_broker_numbers_become_roles_if_that_fails_as_well() -> None:
    """A role such as `coordinator-of(readers)` says what matters about the broker.

    A number such as broker(3) does not say this.
    """
    play = FakePlay(lambda tried, _: bool(tried.faults) and "readers" in tried.groups)

    left = shrunk(play, experiment_of(fault("2s", "crash", "broker(3)"))).experiment

    assert left.faults[0].target == "coordinator-of(readers)"


def test_a_cut_of_all_nodes_becomes_a_cut_of_one_link() -> None:
    """The cut separates broker-0 from the controller and all brokers, and has arguments.

    The run fails if some fault has a broker at its end `to`. So a plain cut between broker-0 and
    one other broker is left.
    """
    cut = FaultDefinition(
        at="2s",
        fault="cut",
        from_="broker(0)",
        to=("controller", "brokers"),
        duration="20s",
        args={"direction": "one_way", "apis": ["Fetch"]},
    )

    def fails(tried: Experiment, _seed: int) -> bool:
        return any("broker" in end for planned in tried.faults for end in ends_of(planned.to))

    left = shrunk(FakePlay(fails), experiment_of(cut)).experiment

    assert left.faults[0].args == {}
    assert left.faults[0].to == "broker(1)"  # broker-0 has no link to itself


def test_late_members_are_removed_or_become_fewer_and_earlier() -> None:
    """The run fails if the group readers has a late member. One late member is left."""
    whole = experiment_of(fault("2s"))
    late = (
        LateMembersDefinition(at="4300ms", members=3),
        LateMembersDefinition(at="9s", members=2),
    )
    groups = {**whole.groups, "readers": replace(whole.groups["readers"], late_members=late)}

    def fails(tried: Experiment, _seed: int) -> bool:
        readers = tried.groups.get("readers")
        return readers is not None and bool(readers.late_members)

    left = shrunk(FakePlay(fails), replace(whole, groups=groups)).experiment

    assert [late.members for late in left.groups["readers"].late_members] == [1]


def test_a_race_is_shrunk_further_with_the_network_seed_that_fails() -> None:
    """With one fault the run fails only with the network seed 7. The result names this seed."""

    def fails(tried: Experiment, seed: int) -> bool:
        return len(tried.faults) == 2 or (len(tried.faults) == 1 and seed == 7)

    result = shrunk(FakePlay(fails), experiment_of(fault("2s"), fault("30s")))

    assert len(result.experiment.faults) == 1
    assert result.seed == 7
    assert NETWORK_SEEDS > 7  # seed 7 is among the seeds that the Shrinker tries


def test_a_simpler_plan_that_fails_less_often_is_refused() -> None:
    """A pause of 3 s fails only with the original seed, and a pause of 10 s with all seeds.

    So the pause must not become shorter than 10 s. With some room it becomes 15 s.
    """

    def fails(tried: Experiment, seed: int) -> bool:
        lasts_us = max(
            (microseconds(planned.duration or "0s") for planned in tried.faults), default=0
        )
        return lasts_us >= (3_000_000 if seed == 100 else 10_000_000)

    result = shrunk(FakePlay(fails), experiment_of(fault("2s", "pause")), seed=100)

    assert result.experiment.faults[0].duration == "15s"


def test_another_claim_of_the_same_check_is_another_violation() -> None:
    """Only the whole experiment fails in the wanted way. Smaller experiments show OTHER.

    So no part may be removed.
    """
    whole = experiment_of(fault("2s"))
    play = FakePlay(lambda tried, _: tried == whole)

    result = shrunk(play, whole)

    assert result.experiment == whole


def test_a_schedule_that_does_not_fail_is_reported() -> None:
    """The first run of the whole experiment shows another violation, so nothing can be shrunk."""
    with pytest.raises(DoesNotFail, match="1 append is missing"):
        shrunk(FakePlay(lambda *_: False), experiment_of(fault("2s")))


@pytest.mark.parametrize("limit", [5, 20])
def test_runs_are_limited_and_the_best_schedule_so_far_is_the_result(limit: int) -> None:
    """At the limit of runs the Shrinker stops. Its result so far still fails."""
    play = FakePlay(lambda tried, _: bool(faults_named(tried, "crash")))

    result = shrunk(play, experiment_of(*MANY, fault("1s")), max_runs=limit)

    assert result.end is ShrinkEnd.RUNS
    assert (result.runs, len(play.played)) == (limit, limit)
    assert faults_named(result.experiment, "crash")


def test_time_is_limited_by_the_given_clock() -> None:
    """The clock advances a second each time that it is read, once for each run."""
    play = FakePlay(lambda tried, _: bool(faults_named(tried, "crash")))

    result = shrunk(play, experiment_of(*MANY, fault("1s")), deadline_s=6.0)

    assert result.end is ShrinkEnd.TIME
    assert len(play.played) == 6


def test_a_group_that_never_recovers_is_awaited_for_a_shorter_time() -> None:
    """The finding is that a group never recovers. A run must wait for the recovery, here for 60 s.

    If every run waited for 60 s, the Shrinker would be slow. So most runs wait only 20 s, and each
    pass confirms its result with a run that waits for the whole 60 s.
    """
    whole = experiment_of(fault("2s"), fault("9s", "pause"), fault("15s"))
    play = SlowPlay(lambda candidate, _: bool(faults_named(candidate, "pause")))
    left = shrunk(play, whole)

    assert whole.run.liveness_timeout == "60s"
    assert [planned.fault for planned in left.experiment.faults] == ["pause"]
    assert left.experiment.run.liveness_timeout == "60s"
    timeouts = liveness_timeouts(play)
    assert timeouts[:3] == ["60s", "20s", "20s"]
    # After the first run, a few runs wait for the whole time, and many more for the short time.
    assert 0 < timeouts[1:].count("60s") < 20
    assert timeouts.count("20s") > 20
    assert timeouts[-1] in ("20s", "60s")


def test_a_slow_recovery_is_awaited_longer_and_is_no_failure() -> None:
    """With one fault the group does recover, but after 30 s.

    A run that waits only 20 s would find that the group does not recover. A run that confirms the
    result waits longer, and shows that one fault is not enough.
    """

    def fails(candidate: Experiment, _: int) -> bool:
        wait_us = microseconds(candidate.run.liveness_timeout)
        return len(candidate.faults) >= 2 or wait_us < 30_000_000

    play = SlowPlay(fails)
    left = shrunk(play, experiment_of(fault("2s"), fault("9s", "pause"), fault("15s")))

    assert len(left.experiment.faults) == 2
    assert set(liveness_timeouts(play)) == {"20s", "40s", "60s"}
    assert left.finding is not None
    assert fails(left.experiment, 0)  # the seed does not matter to `fails`


def test_result_is_confirmed_even_when_the_runs_are_used_up() -> None:
    """The result must fail with the whole liveness_timeout. One more run may confirm this."""

    def fails(candidate: Experiment, _: int) -> bool:
        return len(candidate.faults) >= 2 or microseconds(candidate.run.liveness_timeout) < 60e6

    for limit in range(2, 30):
        play = SlowPlay(fails)
        left = shrunk(play, experiment_of(fault("2s"), fault("9s"), fault("15s")), max_runs=limit)
        assert fails(left.experiment, 0), limit
        assert len(play.played) <= limit + 1


def test_a_short_bound_of_the_experiment_is_not_shortened() -> None:
    """The experiment's own liveness_timeout is 20 s already."""
    whole = experiment_of(fault("2s"), fault("9s", "pause"))
    whole = replace(whole, run=replace(whole.run, liveness_timeout="20s"))
    play = SlowPlay(lambda candidate, _: bool(faults_named(candidate, "pause")))
    shrunk(play, whole)
    # Besides, the Shrinker tries the default of this setting, 60 s.
    assert set(liveness_timeouts(play)) <= {"20s", "60s"}
    assert liveness_timeouts(play)[:4] == ["20s"] * 4


def test_an_interrupt_returns_the_best_schedule_so_far() -> None:
    """The user presses Ctrl-C in the sixth run, and gets the result so far."""
    inner = FakePlay(lambda tried, _: bool(faults_named(tried, "crash")))

    def play(tried: Experiment, seed: int, signature: Signature) -> PlayedRun:
        if len(inner.played) == 5:
            raise KeyboardInterrupt
        return inner(tried, seed, signature)

    shrinker = Shrinker(play, now_s=FakeClock(), deadline_s=1e9, last_s=1e9)
    result = shrinker.shrink(experiment_of(*MANY, fault("1s")), 100, LOST)

    assert result.end is ShrinkEnd.INTERRUPTED
    assert result.after.faults < result.before.faults


def test_shrinking_is_deterministic() -> None:
    """Two shrinkings of the same experiment play the same runs and have the same result."""
    whole = experiment_of(*MANY, fault("1s"), fault("40s"))
    plays = [FakePlay(lambda tried, _: len(faults_named(tried, "crash")) == 2) for _ in range(2)]

    first, second = (shrunk(play, whole) for play in plays)

    assert first == second
    assert plays[0].played == plays[1].played


def test_robustness_counts_only_other_seeds_and_stops_at_the_time_limit() -> None:
    """Robustness is the number of other seeds with which the shrunk experiment fails.

    Here it fails with every third seed. Seed 1, with which it was shrunk, is not played again.
    """
    play = FakePlay(lambda tried, seed: bool(tried.faults) and (seed == 1 or seed % 3 == 0))
    whole = experiment_of(fault("2s"))
    shrinker = Shrinker(play, now_s=FakeClock(), deadline_s=1e9, last_s=1e9)
    result = shrinker.shrink(whole, 1, LOST)
    play.played.clear()

    counted = shrinker.robustness(result, 30)

    seeds = [seed for _, seed in play.played]
    assert (counted.tried, len(set(seeds))) == (30, 30)
    assert result.seed not in seeds
    assert counted.fails == sum(seed == 1 or seed % 3 == 0 for seed in seeds)
