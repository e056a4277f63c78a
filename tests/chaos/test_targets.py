"""Targets are resolved when the fault fires, and say what was hit or why nothing was."""

import pytest

from chaos.targets import Hit, Miss, check_target, resolve_target
from cluster.runtime import ClusterStatus
from protocol.ids import BrokerId
from tests.support.experiments import experiment
from tests.support.fake_runtime import FakeRuntime


async def _status(runtime: FakeRuntime) -> ClusterStatus:
    return await runtime.status()


def look(runtime: FakeRuntime) -> ClusterStatus:
    return runtime.run(_status(runtime))


def test_coordinator_of_is_the_leader_of_the_groups_offsets_partition() -> None:
    """`readers` lives in one of two partitions; broker 1 leads everything here."""
    runtime = FakeRuntime(experiment())
    runtime.leader = BrokerId(1)

    hit = resolve_target("coordinator-of(readers)", runtime.experiment, look(runtime))

    assert isinstance(hit, Hit)
    assert hit.node == "broker-1"
    assert hit.blast_radius.groups == ("readers",)
    assert "orders-0" in hit.blast_radius.partitions
    assert hit.detail["loaded_by"] == [1]


def test_blast_radius_holds_only_what_lives_on_the_broker() -> None:
    """A broker that leads nothing takes nobody with it."""
    runtime = FakeRuntime(experiment())

    hit = resolve_target("broker(2)", runtime.experiment, look(runtime))

    assert isinstance(hit, Hit)
    assert hit.blast_radius.groups == ()
    assert hit.blast_radius.partitions == ()


def test_coordinator_while_leadership_moves_is_the_controllers_choice() -> None:
    """The old broker still has the group: both are named, the new leader is hit."""
    runtime = FakeRuntime(experiment())
    status = look(runtime)
    runtime.leader = BrokerId(1)
    status.partitions = look(runtime).partitions

    hit = resolve_target("coordinator-of(readers)", runtime.experiment, status)

    assert isinstance(hit, Hit)
    assert hit.node == "broker-1"
    assert hit.detail["loaded_by"] == [0]


@pytest.mark.parametrize("target", ["coordinator-of(readers)", "broker(0)"])
def test_dead_broker_is_a_miss(target: str) -> None:
    """It cannot be killed twice: the run must not look as if it had been."""
    runtime = FakeRuntime(experiment())
    runtime.alive[BrokerId(0)] = False

    miss = resolve_target(target, runtime.experiment, look(runtime))

    assert isinstance(miss, Miss)
    assert "broker 0 is not alive" in miss.reason


def test_partition_without_leader_is_a_miss() -> None:
    """Nobody plays the role."""
    runtime = FakeRuntime(experiment())
    runtime.leader = BrokerId(-1)

    miss = resolve_target("coordinator-of(readers)", runtime.experiment, look(runtime))

    assert isinstance(miss, Miss)
    assert "has no leader" in miss.reason


@pytest.mark.parametrize("target", ["coordinator-of(readers)", " coordinator-of( readers ) "])
def test_target_with_spaces_is_the_same_target(target: str) -> None:
    """People write them."""
    assert check_target(target, experiment()) is None


@pytest.mark.parametrize(
    "target", ["", "readers", "coordinator-of", "coordinator-of()", "broker(-1)", "broker(1)x"]
)
def test_target_that_can_never_exist_is_unknown(target: str) -> None:
    """Refused before anything starts."""
    assert check_target(target, experiment()) is not None
