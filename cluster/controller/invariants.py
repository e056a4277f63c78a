"""Invariants of a controller's metadata and of its sessions.

A check that fails raises InvariantViolation with the evidence.
"""

from collections.abc import Iterable

from cluster.controller.metadata_image import MetadataImage
from protocol.errors import InvariantViolation
from protocol.ids import NO_BROKER, BrokerId


def check_image(image: MetadataImage) -> None:
    """Check the ISR and the leader of each partition.

    - The ISR is a non-empty subset of the replicas, without duplicates.
    - The leader, if there is one, is in the ISR, is not fenced, and is in no controlled shutdown.
    - A broker that is fenced or in a controlled shutdown stays in an ISR only as the last member.
      (Without this member in the ISR, no later election could choose a broker that has every
      acknowledged record.)
    """
    fenced = {broker.broker_id for broker in image.brokers.values() if broker.fenced}
    stopping = {
        broker.broker_id for broker in image.brokers.values() if broker.in_controlled_shutdown
    }
    for name, partition in image.partitions():
        isr = partition.isr
        _require(
            bool(isr) and len(set(isr)) == len(isr) and set(isr) <= set(partition.replicas),
            "isr_within_replicas",
            f"{name}: ISR {isr} of replicas {partition.replicas}",
        )
        _require(
            partition.leader == NO_BROKER or partition.leader in isr,
            "leader_in_isr",
            f"{name}: leader {partition.leader}, ISR {isr}",
        )
        _require(
            partition.leader not in fenced,
            "leader_is_unfenced",
            f"{name}: leader {partition.leader} is fenced",
        )
        _require(
            len(isr) == 1 or fenced.isdisjoint(isr),
            "isr_is_unfenced",
            f"{name}: of ISR {isr}, {sorted(fenced.intersection(isr))} are fenced",
        )
        _require(
            partition.leader not in stopping,
            "leader_is_not_stopping",
            f"{name}: leader {partition.leader} is in a controlled shutdown",
        )
        _require(
            len(isr) == 1 or stopping.isdisjoint(isr),
            "isr_is_not_stopping",
            f"{name}: of ISR {isr}, {sorted(stopping.intersection(isr))} are in a controlled "
            "shutdown",
        )


def check_sessions(
    image: MetadataImage,
    tracked: Iterable[BrokerId],
    shutting_down: Iterable[BrokerId],
    *,
    is_timer_set: bool,
) -> None:
    """Check the sessions of brokers against the metadata.

    A broker has a session while its heartbeats arrive in time. `tracked` are the brokers that have
    a session. `shutting_down` are the brokers whose session is in a controlled shutdown.
    `is_timer_set` is True if a timer will fire when the first session ends, or earlier. The rules
    are:

    - Exactly the unfenced brokers have sessions.
    - If there is a session, the timer is set.
    - If a broker's session is in a controlled shutdown, the metadata records this shutdown.
      (Otherwise the broker could be elected, or rejoin an ISR, while it shuts down.)
    """
    unfenced = {broker.broker_id for broker in image.brokers.values() if not broker.fenced}
    sessions = set(tracked)
    _require(
        unfenced == sessions,
        "session_of_each_unfenced",
        f"unfenced are {sorted(unfenced)}, sessions have {sorted(sessions)}",
    )
    _require(
        is_timer_set or not sessions,
        "session_timer",
        f"no timer is set to fence {sorted(sessions)}",
    )
    recorded = {
        broker.broker_id for broker in image.brokers.values() if broker.in_controlled_shutdown
    }
    unrecorded = set(shutting_down) - recorded
    _require(
        not unrecorded,
        "controlled_shutdown_in_metadata",
        f"the metadata lacks the controlled shutdown of {sorted(unrecorded)}",
    )


def _require(holds: bool, name: str, evidence: str) -> None:
    if not holds:
        raise InvariantViolation(name, evidence)
