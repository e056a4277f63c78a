"""Each invariant check of a controller finds its kind of damage and names it."""

from dataclasses import replace

import pytest

from protocol.errors import InvariantViolation
from protocol.ids import NO_BROKER, BrokerId
from tests.support.harness.controllers import ControllerLab, cluster_of, topic


def lab() -> ControllerLab:
    """Return a controller of three brokers and a topic of three partitions."""
    made = ControllerLab(cluster_of(topic()))
    made.start_brokers(0, 1, 2)
    return made


def damage(made: ControllerLab, **changes: object) -> None:
    """Change the first partition's registration without a record of the log."""
    partitions = made.image.topics["orders"]
    partitions[0] = replace(partitions[0], **changes)  # type: ignore[arg-type]
    made.core._checked_up_to = 0  # the core checks an image only after a new record


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"isr": ()}, "isr_within_replicas"),
        ({"isr": (0, 7)}, "isr_within_replicas"),
        ({"isr": (0, 0)}, "isr_within_replicas"),
        ({"isr": (1, 2)}, "leader_in_isr"),
    ],
)
def test_check_image_names_the_damage(changes: dict[str, object], name: str) -> None:
    """The image passes the check before the damage and fails it afterwards."""
    made = lab()
    made.core.check_invariants()
    damage(made, **changes)
    with pytest.raises(InvariantViolation) as raised:
        made.core.check_invariants()
    assert raised.value.name == name


def test_check_image_accepts_a_partition_without_a_leader() -> None:
    """The last member of its ISR may be down."""
    made = lab()
    damage(made, isr=(BrokerId(0),), leader=NO_BROKER)
    made.core.check_invariants()


@pytest.mark.parametrize(
    ("isr", "name"), [((0,), "leader_is_unfenced"), ((1, 0), "isr_is_unfenced")]
)
def test_check_image_refuses_a_fenced_leader_or_isr_member(isr: tuple[int, ...], name: str) -> None:
    """A fenced broker may only be the last member of an ISR without a leader.

    Broker 0 is fenced without a record. First all partitions move to broker 1, so that only the
    damaged partition can fail.
    """
    made = lab()
    broker = made.image.brokers[BrokerId(0)]
    made.image.brokers[BrokerId(0)] = replace(broker, fenced=True)
    for partitions in made.image.topics.values():
        partitions[:] = [replace(p, isr=(BrokerId(1),), leader=BrokerId(1)) for p in partitions]
    damage(made, isr=isr, leader=BrokerId(isr[0]))
    with pytest.raises(InvariantViolation) as raised:
        made.core.check_invariants()
    assert raised.value.name == name


def test_check_finds_an_unfenced_broker_without_a_session() -> None:
    """A controller that takes over must start the session, or the broker is never fenced."""
    made = lab()
    made.core._liveness.remove(BrokerId(1))
    with pytest.raises(InvariantViolation, match="session_of_each_unfenced"):
        made.core.check_invariants()


def test_check_finds_sessions_without_a_timer() -> None:
    """Without the timer no silent broker would ever be fenced."""
    made = lab()
    made.core._fence_timer_set = False
    with pytest.raises(InvariantViolation, match=r"no timer is set to fence \[0, 1, 2\]"):
        made.core.check_invariants()


def test_check_finds_a_shutdown_without_a_record() -> None:
    """The broker could be elected again while it waits to stop."""
    made = lab()
    made.core._liveness.begin_controlled_shutdown(BrokerId(1), 5)
    with pytest.raises(InvariantViolation, match=r"lacks the controlled shutdown of \[1\]"):
        made.core.check_invariants()


def test_check_names_a_controller_that_writes_in_a_past_epoch() -> None:
    """The epoch would not distinguish its records from those of an earlier incarnation."""
    made = lab()
    made.core.controller_epoch = made.core._epoch_before
    with pytest.raises(InvariantViolation, match="epoch is above those in its log"):
        made.core.check_invariants()
