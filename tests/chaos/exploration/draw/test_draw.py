"""`draw(space, seed)` makes one experiment with its faults.

A space is a file that says what its experiments have in common, and what varies among them:
settings and faults. For each setting it lists the possible values. About faults it says:

- `kinds`: the weight of each kind of fault;
- `patterns`: the weight of each named combination of faults;
- `kept`: the probability with which a seed keeps a kind of fault, rather than leave it out;
- `lost`: the share of seeds that lose nodes for good;
- `factors`: durations are a timeout times one of these factors;
- `window`: the time in which faults begin.

Most tests look at the experiments of the first SEEDS seeds of the space `standard`, which is
shipped with the program. Bounds such as "more than 10 experiments" leave room for chance.
"""

import json
import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from functools import cache
from hashlib import sha256
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest

from chaos.experiment.dump import experiment_text
from chaos.experiment.loader import load_experiment
from chaos.experiment.rules.all_rules import errors
from chaos.experiment.structs import Experiment, FaultDefinition, microseconds
from chaos.exploration.draw import zookeeper_patterns
from chaos.exploration.draw.draw import draw
from chaos.exploration.draw.patterns import PATTERNS
from chaos.exploration.space import Space
from chaos.faults.registry import FAULT_KINDS
from chaos.run.plan import ends_of, plan_of
from chaos.targets.registry import TARGET_KINDS, split_target
from tests.support.builders.packaged_spaces import packaged_space

SEEDS = 300
"""Number of seeds that the tests draw. With so many seeds, rare values are drawn several times."""
# A program for another Python process. There it prints the result of this module's `digests`.
DIGESTS = """
import json
from tests.chaos.exploration.draw.test_draw import digests
print(json.dumps(digests()))
"""


@cache
def standard() -> Space:
    """Return the space `standard`, which is read only once."""
    return packaged_space("standard")


@cache
def on_zookeeper() -> Space:
    """Return the space `zookeeper`, in which groups may be on ZooKeeper."""
    return packaged_space("zookeeper")


@cache
def drawn() -> tuple[Experiment, ...]:
    """Return the experiments of the seeds 0 to SEEDS - 1. Only the first call draws them."""
    return tuple(draw(standard(), seed) for seed in range(SEEDS))


def roles_of(faults: list[FaultDefinition]) -> set[str]:
    """Return the roles of all targets, such as `coordinator-of` of `coordinator-of(readers)`."""
    roles = set()
    for fault in faults:
        for target in (fault.target, *ends_of(fault.from_), *ends_of(fault.to)):
            parts = None if target is None else split_target(target)
            if parts is not None:
                roles.add(parts[0])
    return roles


def digests() -> list[str]:
    """Return the digests of the experiments of the first 20 seeds."""
    return [sha256(msgspec.json.encode(draw(standard(), seed))).hexdigest() for seed in range(20)]


@pytest.mark.slow
def test_draw_is_the_same_in_another_process() -> None:
    """A seed means one experiment, so a draw must not depend on the order of Python's sets.

    The other process has another PYTHONHASHSEED (an arbitrary number), and so another order of
    sets.
    """
    completed = subprocess.run(
        [sys.executable, "-c", DIGESTS],
        env={**os.environ, "PYTHONHASHSEED": "4711"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout

    assert json.loads(completed) == digests()


@pytest.mark.slow
def test_every_draw_can_be_run() -> None:
    """Each drawn experiment passes the checks that the loader makes of an experiment file.

    Its name consists of the name of the space and the seed.
    """
    for seed, experiment in enumerate(drawn()):
        assert list(errors(experiment)) == []
        assert experiment.name == f"standard-{seed}"


def test_draw_written_as_a_file_is_read_back_equal(tmp_path: Path) -> None:
    """A person can keep the file of a finding, change it, and run it."""
    path = tmp_path / "drawn.yaml"
    for experiment in drawn()[:20]:
        path.write_text(experiment_text(experiment), encoding="utf-8")
        assert load_experiment(str(path)).experiment == experiment


def test_every_value_of_every_setting_is_drawn() -> None:
    """The test looks at some settings of the space, as examples.

    Each of the four values below is in several experiments, so the value is drawn. No value is in
    all experiments, so other values of its setting are drawn, too.
    """
    texts = [msgspec.json.encode(experiment).decode() for experiment in drawn()]
    for value_in_json in (
        '"brokers":5',
        '"session.timeout.ms":15000',
        '"group.instance.id":"member',
        '"late_members":[{',
    ):
        assert 10 < sum(value_in_json in text for text in texts) < SEEDS, value_in_json

    # Number of groups -> number of experiments with this number of groups.
    experiments_with = Counter(len(experiment.groups) for experiment in drawn())
    assert set(experiments_with) == {1, 2, 3}
    assert experiments_with[2] > experiments_with[3]  # the space lists the value 2 twice

    members = {group.members for experiment in drawn() for group in experiment.groups.values()}
    assert members == {0, 1, 2, 3, 4}
    # Each group draws its own number of members. In many experiments the sizes differ.
    with_different_groups = sum(
        len({group.members for group in experiment.groups.values()}) > 1 for experiment in drawn()
    )
    assert with_different_groups > SEEDS / 4


def test_every_fault_target_and_kind_of_link_is_drawn() -> None:
    """A search with the standard space must reach all faults, except those named below."""
    faults = [fault for experiment in drawn() for fault in experiment.faults]

    # The standard space has neither rollouts and scalings of groups, nor faults of machines.
    assert {fault.fault for fault in faults} == set(FAULT_KINDS) - {
        "rollout",
        "scale",
        "machine_loss",
        "machine_pause",
        "machine_cut",
    }
    # No group of this space is on ZooKeeper, and none has clients from outside.
    assert roles_of(faults) == set(TARGET_KINDS) - {
        "kafka-client",
        "kafka-clients",
        "zookeeper",
        "zookeeper-leader",
        "zookeepers",
        "machine",
        "machine-of",
    }
    for argument in ("direction", "purposes", "apis", "disk", "to", "delay", "jitter", "topic"):
        assert any(argument in fault.args for fault in faults), argument
    # Some faults have more than one target at their end `from`.
    assert any(len(ends_of(fault.from_)) > 1 for fault in faults)


def test_topics_are_created_with_and_without_numbers_before_and_after_deletions() -> None:
    """Each variant of an order to create a topic is drawn by some seeds, and not by others.

    An order may give numbers of partitions and replicas. These numbers may be impossible: no
    partition, or more replicas than brokers. A plan may create a topic and then delete it, or
    delete it and then create it.
    """
    creations = [
        (fault.args, experiment.cluster.brokers)
        for experiment in drawn()
        for fault in experiment.faults
        if fault.fault == "create_topic"
    ]
    # Each set asks one question of all creations, and has their answers. Both answers must occur.
    for answers in (
        {"partitions" in args for args, _ in creations},
        {args.get("partitions", 1) > 0 for args, _ in creations},
        {"replication_factor" in args for args, _ in creations},
        {args.get("replication_factor", 1) > brokers for args, brokers in creations},
        {args["topic"] == "archive" for args, _ in creations},
    ):
        assert answers == {True, False}

    # In each plan, look only at the faults that create or delete the topic `archive`. A pair has
    # the kinds of two such faults, of which the second is the next after the first.
    pairs = {
        pair
        for experiment in drawn()
        for pair in pairwise(
            fault.fault
            for fault in experiment.faults
            if fault.fault in ("create_topic", "delete_topic") and fault.args["topic"] == "archive"
        )
    }
    assert {("create_topic", "delete_topic"), ("delete_topic", "create_topic")} <= pairs


def test_creations_are_drawn_as_often_as_deletions() -> None:
    """The creation and the deletion of topics have the same weight.

    The test does not count these faults in drawn plans. There deletions are rarer, because a
    deletion is left out if each topic has clients.
    """
    assert standard().faults.kinds["create_topic"] == standard().faults.kinds["delete_topic"]


def test_seeds_omit_kinds_of_faults_so_that_others_are_more_frequent() -> None:
    """Some situations occur only if other kinds of faults are absent ("swarm testing").

    So each kind of fault is absent from the plans of many seeds.
    """
    # kind -> number of seeds that have faults, but none of this kind
    seeds_without = Counter(
        kind
        for experiment in drawn()
        for kind in FAULT_KINDS
        if experiment.faults and kind not in {fault.fault for fault in experiment.faults}
    )

    assert all(seeds_without[kind] > 10 for kind in FAULT_KINDS)


def test_durations_are_drawn_around_the_timeouts_of_the_experiment() -> None:
    """Durations are a session timeout times a factor, and each factor is drawn for some faults.

    The factors are near 1, because the most interesting durations are near a timeout: a fault of
    0.9 session timeouts does not end a session, but a fault of 1.1 session timeouts does.
    """
    # Factor -> number of faults that last a session timeout times this factor.
    faults_with_factor: Counter[float] = Counter()
    for experiment in drawn():
        sessions = {group.config.session_timeout_ms for group in experiment.groups.values()}
        for fault in plan_of(experiment):
            for session_ms in sessions:
                for factor in standard().faults.factors:
                    if fault.duration_us == int(session_ms * factor) * 1_000:
                        faults_with_factor[factor] += 1
    assert all(faults_with_factor[factor] > 5 for factor in standard().faults.factors)


def test_faults_begin_within_the_window_and_none_exceeds_the_longest_duration() -> None:
    """Patterns are left out here, because their faults may begin a little after the window."""
    faults = msgspec.structs.replace(standard().faults, patterns={})
    longest_us, window_us = microseconds(faults.longest), microseconds(faults.window)
    for seed in range(60):
        for fault in plan_of(draw(replace(standard(), faults=faults), seed)):
            assert fault.duration_us is None or fault.duration_us <= longest_us
            assert fault.at_us < window_us


@pytest.mark.parametrize("name", PATTERNS)
def test_every_pattern_makes_faults_that_can_be_run(name: str) -> None:
    """Each drawn experiment repeats one pattern, and has no other fault."""
    is_on_zookeeper = PATTERNS[name].draw.__module__ == zookeeper_patterns.__name__
    packaged = on_zookeeper() if is_on_zookeeper else standard()
    faults = msgspec.structs.replace(packaged.faults, kinds={}, patterns={name: 1}, kept=1.0)
    space = replace(packaged, faults=faults)

    # `draw` raises an error if the experiment could not be run.
    experiments = [draw(space, seed) for seed in range(12)]

    # The pattern did draw faults.
    assert any(len(experiment.faults) > 1 for experiment in experiments)


def test_patterns_of_zookeeper_draw_no_faults_without_a_group_on_it() -> None:
    """A draw without a group on ZooKeeper gets no fault from the patterns of ZooKeeper.

    So a space may have these patterns, and draw some experiments without such a group.
    """
    names = [
        name
        for name, pattern in PATTERNS.items()
        if pattern.draw.__module__ == zookeeper_patterns.__name__
    ]
    faults = msgspec.structs.replace(
        standard().faults, kinds={}, patterns=dict.fromkeys(names, 1), kept=1.0, lost=0.0
    )

    assert len(names) == 8  # all patterns of ZooKeeper were found
    assert all(draw(replace(standard(), faults=faults), seed).faults == () for seed in range(8))


def test_faults_on_servers_connections_and_sessions_of_zookeeper_are_drawn() -> None:
    """The space `zookeeper` draws such faults.

    It also draws groups with each kind of store, and ensembles (sets of servers) of each size.
    """
    experiments = [draw(on_zookeeper(), seed) for seed in range(60)]
    faults = [fault for experiment in experiments for fault in experiment.faults]
    purposes = {purpose for fault in faults for purpose in fault.args.get("purposes", ())}
    # Where a group stores its offsets, and whether it also commits them to the other store.
    stores = {
        (group.zookeeper.offsets_storage, group.zookeeper.dual_commit_enabled)
        for experiment in experiments
        for group in experiment.groups.values()
    }

    assert {"zookeeper", "zookeeper-leader", "zookeepers", "member", "broker"} <= roles_of(faults)
    assert {"zookeeper", "zookeeper-quorum", "zookeeper-election"} <= purposes
    assert {("zookeeper", None), ("kafka", True), ("kafka", False)} <= stores
    assert {experiment.cluster.zookeeper.servers for experiment in experiments} == {1, 3, 5}
    kinds = {
        group.coordination for experiment in experiments for group in experiment.groups.values()
    }
    assert kinds == {"zookeeper", "coordinator"}


def test_another_value_of_one_setting_changes_no_other_draw() -> None:
    """Each choice and each fault has its own random stream.

    So if a value is added to one setting of a space, each seed draws the same values for all other
    settings, and the same faults. The test adds a value to the list of group sizes: the first size
    once more. So some seeds draw other sizes.
    """
    choices = tuple(
        replace(choice, options=(*choice.options, choice.options[0]))
        if choice.where.startswith("together.size")
        else choice
        for choice in standard().choices
    )
    wider = replace(standard(), choices=choices)
    seeds_with_other_groups = 0
    for seed in range(40):
        before, after = drawn()[seed], draw(wider, seed)
        if before.groups != after.groups:
            seeds_with_other_groups += 1
        assert before.cluster == after.cluster
        assert before.topics == after.topics
        # Faults of members may change, because the number of members may have changed. So only a
        # plan without such faults must be the same as before.
        has_faults_of_members = any("member" in (fault.target or "") for fault in before.faults)
        faults_before = [(fault.at, fault.fault) for fault in before.faults]
        faults_after = [(fault.at, fault.fault) for fault in after.faults]
        assert has_faults_of_members or faults_before == faults_after
    assert seeds_with_other_groups > 0


def test_smaller_window_only_removes_faults() -> None:
    """The faults in the smaller window are the first faults of the larger window.

    Losses of nodes for good are left out (`lost=0.0`), because their times depend on the window.
    """
    in_10_s = msgspec.structs.replace(standard().faults, patterns={}, window="10s", lost=0.0)
    in_30_s = msgspec.structs.replace(in_10_s, window="30s")
    for seed in range(20):
        short_plan = draw(replace(standard(), faults=in_10_s), seed).faults
        long_plan = draw(replace(standard(), faults=in_30_s), seed).faults
        assert long_plan[: len(short_plan)] == short_plan
