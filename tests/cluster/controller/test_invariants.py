"""The invariants of a controller find a damaged state.

No sequence of requests should lead to such damage. So the tests damage the controller's state
themselves: its metadata image, which is the state after all records of the metadata log, or its
private fields.
"""

from dataclasses import replace

import pytest

from protocol.errors import InvariantViolation
from protocol.ids import NO_BROKER, BrokerId
from tests.support.harness.controllers import ControllerLab, cluster_of, topic


def running_controller() -> ControllerLab:
    """Return a controller of three brokers, and a topic of three partitions with three replicas."""
    controller = ControllerLab(cluster_of(topic()))
    controller.start_brokers(0, 1, 2)
    return controller


def damage(controller: ControllerLab, **changes: object) -> None:
    """Change fields of orders-0 in the image, without a record in the log."""
    partitions = controller.image.topics["orders"]
    partitions[0] = replace(partitions[0], **changes)  # type: ignore[arg-type]
    # The controller checks its image only after new records. To make it check the image again, it
    # must forget up to which record it has done so.
    controller.core._checked_up_to = 0


@pytest.mark.parametrize(
    ("isr", "invariant"),
    [
        ((), "isr_within_replicas"),
        ((0, 7), "isr_within_replicas"),
        ((0, 0), "isr_within_replicas"),
        ((1, 2), "leader_in_isr"),  # broker 0 leads
    ],
)
def test_impossible_isr_violates_an_invariant(isr: tuple[int, ...], invariant: str) -> None:
    """The image fulfils all invariants before the damage, and violates `invariant` after it."""
    controller = running_controller()
    controller.core.check_invariants()
    damage(controller, isr=isr)
    with pytest.raises(InvariantViolation) as raised:
        controller.core.check_invariants()
    assert raised.value.name == invariant


def test_partition_without_a_leader_is_no_violation() -> None:
    """A partition has no leader while the last member of its ISR is down."""
    controller = running_controller()
    damage(controller, isr=(BrokerId(0),), leader=NO_BROKER)
    controller.core.check_invariants()


@pytest.mark.parametrize(
    ("state", "isr", "invariant"),
    [
        ("fenced", (0,), "leader_is_unfenced"),
        ("fenced", (1, 0), "isr_is_unfenced"),
        ("in_controlled_shutdown", (0,), "leader_is_not_stopping"),
        ("in_controlled_shutdown", (1, 0), "isr_is_not_stopping"),
    ],
)
def test_inactive_leader_or_isr_member_violates_an_invariant(
    state: str, isr: tuple[int, ...], invariant: str
) -> None:
    """A broker that is fenced, or in a controlled shutdown, may not lead or be in an ISR.

    The only exception is the last member of an ISR without a leader.
    """
    controller = running_controller()
    # Broker 0 gets the state without a record. It then leaves all partitions, so that only orders-0
    # can violate an invariant when `damage` makes broker 0 its leader.
    broker = controller.image.brokers[BrokerId(0)]
    controller.image.brokers[BrokerId(0)] = replace(broker, **{state: True})  # type: ignore[arg-type]
    for partitions in controller.image.topics.values():
        partitions[:] = [replace(p, isr=(BrokerId(1),), leader=BrokerId(1)) for p in partitions]
    damage(controller, isr=isr, leader=BrokerId(isr[0]))
    with pytest.raises(InvariantViolation) as raised:
        controller.core.check_invariants()
    assert raised.value.name == invariant


def test_unfenced_broker_without_a_session_is_a_violation() -> None:
    """A broker without a session would never be fenced."""
    controller = running_controller()
    controller.core._liveness.remove(BrokerId(1))
    with pytest.raises(InvariantViolation, match="session_of_each_unfenced"):
        controller.core.check_invariants()


def test_sessions_without_a_timer_are_a_violation() -> None:
    """Without the timer the controller would never fence a silent broker."""
    controller = running_controller()
    controller.core._fence_timer_set = False
    with pytest.raises(InvariantViolation, match=r"no timer is set to fence \[0, 1, 2\]"):
        controller.core.check_invariants()


def test_controlled_shutdown_without_a_record_is_a_violation() -> None:
    """Without the record the broker could be elected again while it waits to stop."""
    controller = running_controller()
    # The shutdown begins without a record. Broker 1 may stop when the others have applied offset 5,
    # an arbitrary number here.
    controller.core._liveness.begin_controlled_shutdown(BrokerId(1), 5)
    with pytest.raises(InvariantViolation, match=r"lacks the controlled shutdown of \[1\]"):
        controller.core.check_invariants()


def test_controller_epoch_of_an_earlier_start_is_a_violation() -> None:
    """Records from before and after a restart must not have the same epoch."""
    controller = running_controller()
    # The epoch of the records from before the start, in place of a higher one.
    controller.core.controller_epoch = controller.core._epoch_before
    with pytest.raises(InvariantViolation, match="epoch is above those in its log"):
        controller.core.check_invariants()
