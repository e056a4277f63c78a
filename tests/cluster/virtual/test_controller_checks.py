"""Checks of the controller's answers, in virtual time: each finds a planted bug.

A test plants a bug: it replaces a part of our code by a wrong one. Then it calls `reason_of` with
faults. `reason_of` plays a run of a cluster of three brokers, with one group and a producer, and
injects the faults. A run is BROKEN if an invariant is violated; its reason names the invariant.

In a controlled shutdown a broker asks the controller for permission to stop. The controller moves
the broker's leaderships, and permits the stop when all active brokers have metadata with the new
leaders.
"""

from collections.abc import Callable

import pytest
from msgspec import structs

from chaos.exploration.play import PlayResult, play
from cluster.broker.control.metadata_fetcher import MetadataFetcher
from cluster.controller import administration
from cluster.controller.broker_control import BrokerControl
from cluster.controller.broker_liveness import BrokerLiveness
from cluster.controller.election import elect_preferred_leader
from cluster.controller.metadata_image import MetadataImage
from protocol.errors import ErrorCode
from protocol.ids import BrokerId
from protocol.records.metadata import PartitionChangeRecord
from tests.support.worlds.planted import small

# The coordinator of the group `readers` is shut down at 2 s, and starts again 5 s later.
SHUTDOWN: dict[str, object] = {
    "at": "2s",
    "fault": "controlled_shutdown",
    "target": "coordinator-of(readers)",
    "duration": "5s",
}
# An administrator moves the leadership of the group's offsets partition to another broker.
MOVE: dict[str, object] = {
    "at": "2s",
    "fault": "leadership_move",
    "target": "coordinator-of(readers)",
}


def reason_of(*faults: dict[str, object], publish_us: int = 30_000) -> str:
    """Play until an invariant is violated, and return the reason.

    `publish_us` is the time that a broker needs to apply new metadata.
    """
    experiment = small(*faults)
    costs = structs.replace(experiment.cluster.costs, publish_us=publish_us)
    cluster = structs.replace(experiment.cluster, costs=costs)
    played = play(structs.replace(experiment, cluster=cluster), seed=1)
    assert played.result is PlayResult.BROKEN, played.reasons
    return played.reasons[0]


def test_sound_run_has_no_violation() -> None:
    """Without a planted bug no check may fail.

    The run has every kind of fault of these tests. The controller permits the shutdown at 2 s,
    moves a leadership at 9 s, and crashes during the shutdown at 20 s.
    """
    restart: dict[str, object] = {
        "at": "20020ms",  # 20 ms after the second shutdown has begun
        "fault": "crash",
        "target": "controller",
        "duration": "3s",
    }
    again = {**SHUTDOWN, "at": "20s"}
    played = play(small(SHUTDOWN, {**MOVE, "at": "9s"}, again, restart), seed=1)
    assert played.result is PlayResult.PASS, played.reasons


# -- controlled shutdowns --


def test_shutdown_that_waits_for_the_fastest_broker_only_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Planted bug: the controller waits until one active broker has the new metadata, not all.

    broker-2 is cut off from the controller, so its metadata stay old.
    """
    cut: dict[str, object] = {
        "at": "1s",
        "fault": "cut",
        "from": "broker(2)",
        "to": ["controller"],
        "duration": "5s",
    }

    def highest(self: BrokerLiveness) -> int | None:
        # Kafka's rule is `min` in place of `max`.
        active = [s for s in self._sessions.values() if s.shutdown_offset is None]
        return max((session.metadata_offset for session in active), default=None)

    monkeypatch.setattr(BrokerLiveness, "lowest_active_offset", highest)
    assert "a broker stops once all active brokers know its new leaders" in reason_of(cut, SHUTDOWN)


def test_shutdown_that_waits_for_no_broker_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted bug: the controller forgets that the shutdown has begun, and permits the stop."""
    monkeypatch.setattr(BrokerLiveness, "begin_controlled_shutdown", lambda *_: None)
    assert "a broker stops once all active brokers know its new leaders" in reason_of(SHUTDOWN)


def test_broker_that_reports_metadata_that_it_does_not_have_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Planted bug: brokers report a metadata offset that is higher than what they have applied.

    The offset 10,000 is higher than any in the run. A broker needs 0.5 s to apply new metadata, so
    the shutdown ends while another broker still has the old ones.
    """
    monkeypatch.setattr(MetadataFetcher, "applied_offset", 10_000)
    assert "still has it as the leader of" in reason_of(SHUTDOWN, publish_us=500_000)


def test_shutdown_that_never_ends_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted bug: for the controller no broker ever has the metadata of the shutdown."""
    monkeypatch.setattr(BrokerLiveness, "_all_have_learnt", lambda *_: False)
    reason = reason_of(SHUTDOWN)
    assert "a controlled shutdown ends once all active brokers have learnt of it" in reason


@pytest.mark.parametrize(
    ("leads", "invariant"),
    [
        (True, "a controlled shutdown ends once all active brokers have learnt of it"),
        (False, "a leader begins a controlled shutdown before it may stop"),
    ],
)
def test_controller_that_miscounts_leaderships_is_found(
    monkeypatch: pytest.MonkeyPatch, *, leads: bool, invariant: str
) -> None:
    """Planted bug: the controller believes that each broker leads a partition, or that none does.

    If each broker seems to lead a partition (`leads`), no broker may ever stop. If none seems to,
    a leader may stop at once.
    """
    monkeypatch.setattr(MetadataImage, "has_leaderships", lambda *_: leads)
    assert invariant in reason_of(SHUTDOWN)


def test_broker_without_leaderships_that_must_wait_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Planted bug: the controller believes that every broker leads a partition.

    broker-0 leads nothing since its crash, so it need not wait, and the bug makes it wait.
    """
    monkeypatch.setattr(MetadataImage, "has_leaderships", lambda *_: True)
    # At 2 s broker-0 crashes, and at 20 s it is shut down.
    crash = {**SHUTDOWN, "fault": "crash", "target": "broker(0)"}
    assert "a broker without leaderships may stop at once" in reason_of(
        crash, {**SHUTDOWN, "at": "20s", "target": "broker(0)"}
    )


def test_broker_that_keeps_its_leaderships_in_a_shutdown_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Planted bug: a controlled shutdown leaves the broker its leaderships and its places in ISRs.

    The ISR is the set of a partition's in-sync replicas.
    """
    monkeypatch.setattr(BrokerControl, "_remove_from_isrs", lambda *_: None)
    assert "a broker that wants to stop leads nothing" in reason_of(SHUTDOWN)


# -- elections and reassignments --


def test_available_preferred_leader_that_is_refused_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Planted bug: the controller's test whether a broker may lead is reversed.

    So it refuses to elect a preferred leader (the first replica) that is available.
    """

    def elect(*partition: object, is_acceptable_leader: Callable[[BrokerId], bool]) -> object:
        return elect_preferred_leader(
            *partition,  # type: ignore[arg-type]
            is_acceptable_leader=lambda broker: not is_acceptable_leader(broker),
        )

    monkeypatch.setattr(administration, "elect_preferred_leader", elect)
    assert "expected NONE, got PREFERRED_LEADER_NOT_AVAILABLE" in reason_of(MOVE)


@pytest.mark.parametrize("code", [ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED])
def test_election_that_is_answered_and_not_held_is_found(
    monkeypatch: pytest.MonkeyPatch, code: ErrorCode
) -> None:
    """Planted bug: the controller answers an election, but its metadata get no new leader.

    The invariant finds the bug, whether the answer says that the election was held (NONE) or that
    it was not needed.
    """
    monkeypatch.setattr(administration, "_elect", lambda *_: code)
    reason = reason_of(MOVE)
    assert "an election's answer fits the metadata" in reason
    assert code.name in reason


def test_reassignment_that_is_agreed_to_and_not_stored_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Planted bug: the controller agrees to a reassignment, and does not store it.

    A reassignment gives a partition another list of replicas. The bug leaves this list out of the
    record that the controller writes.
    """

    def without_replicas(**fields: object) -> object:
        return PartitionChangeRecord(**{**fields, "replicas": None})  # type: ignore[arg-type]

    monkeypatch.setattr(administration, "PartitionChangeRecord", without_replicas)
    assert "an agreed reassignment is in the metadata" in reason_of(MOVE)
