"""Each invariant check of a controller finds the damage that it is for, and names it.

No sequence of requests should reach a broken state. So the tests damage the image (the state that
follows from the metadata log), or the private state of the controller. The ISR is the set of a
partition's in-sync replicas.
"""

from dataclasses import replace

import pytest

from protocol.errors import InvariantViolation
from protocol.ids import NO_BROKER, BrokerId
from tests.support.harness.controllers import ControllerLab, cluster_of, topic


def lab() -> ControllerLab:
    """Return a controller of three brokers, and a topic of three partitions with three replicas."""
    controller = ControllerLab(cluster_of(topic()))
    controller.start_brokers(0, 1, 2)
    return controller


def damage(controller: ControllerLab, **changes: object) -> None:
    """Change the image's entry of orders-0, without a record in the log."""
    partitions = controller.image.topics["orders"]
    partitions[0] = replace(partitions[0], **changes)  # type: ignore[arg-type]
    # The core checks the image only if the log has records after this offset.
    controller.core._checked_up_to = 0


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"isr": ()}, "isr_within_replicas"),
        ({"isr": (0, 7)}, "isr_within_replicas"),
        ({"isr": (0, 0)}, "isr_within_replicas"),
        ({"isr": (1, 2)}, "leader_in_isr"),  # broker 0 leads
    ],
)
def test_check_image_names_the_damage(changes: dict[str, object], name: str) -> None:
    """The image passes the check before the damage, and fails it after the damage."""
    controller = lab()
    controller.core.check_invariants()
    damage(controller, **changes)
    with pytest.raises(InvariantViolation) as raised:
        controller.core.check_invariants()
    assert raised.value.name == name


def test_check_image_accepts_a_partition_without_a_leader() -> None:
    """A partition has no leader while the last member of its ISR is down."""
    controller = lab()
    damage(controller, isr=(BrokerId(0),), leader=NO_BROKER)
    controller.core.check_invariants()


@pytest.mark.parametrize(
    ("state", "isr", "name"),
    [
        ("fenced", (0,), "leader_is_unfenced"),
        ("fenced", (1, 0), "isr_is_unfenced"),
        ("in_controlled_shutdown", (0,), "leader_is_not_stopping"),
        ("in_controlled_shutdown", (1, 0), "isr_is_not_stopping"),
    ],
)
def test_check_image_refuses_an_inactive_leader_or_isr_member(
    state: str, isr: tuple[int, ...], name: str
) -> None:
    """A broker that is fenced, or in a controlled shutdown, may not lead or be in an ISR.

    The only exception is the last member of an ISR without a leader.
    """
    controller = lab()
    # Broker 0 gets the state without a record. Then all partitions move to broker 1, so that only
    # the damaged partition can fail the check.
    broker = controller.image.brokers[BrokerId(0)]
    controller.image.brokers[BrokerId(0)] = replace(broker, **{state: True})  # type: ignore[arg-type]
    for partitions in controller.image.topics.values():
        partitions[:] = [replace(p, isr=(BrokerId(1),), leader=BrokerId(1)) for p in partitions]
    damage(controller, isr=isr, leader=BrokerId(isr[0]))
    with pytest.raises(InvariantViolation) as raised:
        controller.core.check_invariants()
    assert raised.value.name == name


def test_check_finds_an_unfenced_broker_without_a_session() -> None:
    """A broker without a session would never be fenced, so each unfenced broker must have one."""
    controller = lab()
    controller.core._liveness.remove(BrokerId(1))
    with pytest.raises(InvariantViolation, match="session_of_each_unfenced"):
        controller.core.check_invariants()


def test_check_finds_sessions_without_a_timer() -> None:
    """Without the timer the controller would never fence a silent broker."""
    controller = lab()
    controller.core._fence_timer_set = False
    with pytest.raises(InvariantViolation, match=r"no timer is set to fence \[0, 1, 2\]"):
        controller.core.check_invariants()


def test_check_finds_a_shutdown_without_a_record() -> None:
    """Without the record the broker could be elected again while it waits to stop."""
    controller = lab()
    # Broker 1 may stop when the others have applied offset 5, which is an arbitrary number here.
    controller.core._liveness.begin_controlled_shutdown(BrokerId(1), 5)
    with pytest.raises(InvariantViolation, match=r"lacks the controlled shutdown of \[1\]"):
        controller.core.check_invariants()


def test_check_names_a_controller_that_writes_in_a_past_epoch() -> None:
    """The records of two lives of the controller must not have the same epoch."""
    controller = lab()
    controller.core.controller_epoch = controller.core._epoch_before
    with pytest.raises(InvariantViolation, match="epoch is above those in its log"):
        controller.core.check_invariants()
