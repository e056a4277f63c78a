"""Checks of the controller's answers, in virtual time: each finds a planted bug.

In a run in virtual time, checks look at each answer of the controller, and compare it with the
controller's metadata and with what the brokers know. A test plants a bug, which means that it
replaces a part of our code by a wrong one. Then it plays a run with faults that make the bug show.
The run must be BROKEN, and its reason must name the invariant that is violated.

Many tests are about controlled shutdowns. In such a shutdown a broker asks the controller for
permission to stop. The controller moves the broker's leaderships to other brokers. It permits the
stop when all active brokers have the metadata with the new leaders.
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
from cluster.controller.metadata_fetches import MetadataFetches
from cluster.controller.metadata_image import BrokerRegistration, MetadataImage
from protocol.effects import Reply
from protocol.errors import ErrorCode
from protocol.ids import BrokerId, RequestId
from protocol.messages.controller import BrokerHeartbeatRequest, BrokerRegistrationRequest
from protocol.messages.log import FetchPartition
from protocol.records.metadata import PartitionChangeRecord
from tests.support.worlds.planted import small

SHUTDOWN: dict[str, object] = {
    "at": "2s",
    "fault": "controlled_shutdown",
    "target": "coordinator-of(readers)",
    "duration": "5s",
}
"""A fault: the coordinator of the group `readers` is shut down, and starts again 5 s later."""
MOVE: dict[str, object] = {
    "at": "2s",
    "fault": "leadership_move",
    "target": "coordinator-of(readers)",
}
"""A fault: an administrator moves the leadership of the group's partition to another broker."""


def reason_of(*faults: dict[str, object], publish_us: int = 30_000) -> str:
    """Play a run with these faults, which must violate an invariant, and return the reason.

    The cluster has three brokers, one group and a producer. `publish_us` is the time that a broker
    needs to apply new metadata.
    """
    experiment = small(*faults)
    costs = structs.replace(experiment.cluster.costs, publish_us=publish_us)
    cluster = structs.replace(experiment.cluster, costs=costs)
    played = play(structs.replace(experiment, cluster=cluster), seed=1)
    assert played.result is PlayResult.BROKEN, played.reasons
    return played.reasons[0]


def test_sound_run_has_no_violation() -> None:
    """Without a planted bug no check may fail.

    The run has every kind of fault of these tests: a shutdown, a move of a leadership, and a second
    shutdown, during which the controller crashes.
    """
    move = {**MOVE, "at": "9s"}
    second_shutdown = {**SHUTDOWN, "at": "20s"}
    controller_crash: dict[str, object] = {
        "at": "20020ms",
        "fault": "crash",
        "target": "controller",
        "duration": "3s",
    }
    played = play(small(SHUTDOWN, move, second_shutdown, controller_crash), seed=1)
    assert played.result is PlayResult.PASS, played.reasons


# -- sessions, registrations, metadata --

CRASH: dict[str, object] = {
    "at": "2s",
    "fault": "crash",
    "target": "coordinator-of(readers)",
    "duration": "20s",
}
"""A fault: the coordinator of the group `readers` dies, is fenced, and starts again 20 s later."""
QUICK_CRASH = {**CRASH, "duration": "1s"}
"""The same, but the broker starts again before its session has ended."""


def test_broker_that_is_refused_although_its_session_has_ended_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Planted bug: a broker without a session counts as alive."""
    has_valid_session = BrokerLiveness.has_valid_session
    monkeypatch.setattr(
        BrokerLiveness,
        "has_valid_session",
        lambda self, broker_id, now_us: (
            self.silent_us(broker_id, now_us) is None or has_valid_session(self, broker_id, now_us)
        ),
    )
    reason = reason_of(CRASH)
    assert "a broker id with a session cannot be registered anew, any other can" in reason
    assert "it was fenced before" in reason


def test_broker_that_is_registered_during_the_session_of_its_predecessor_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Planted bug: the controller forgets the session before it looks for one."""
    register = BrokerControl.register

    def register_without_session(
        self: BrokerControl, request: BrokerRegistrationRequest, now_us: int
    ) -> object:
        self._liveness.remove(BrokerId(request.broker_id))
        return register(self, request, now_us)

    monkeypatch.setattr(BrokerControl, "register", register_without_session)
    reason = reason_of(QUICK_CRASH)
    assert "a broker id with a session cannot be registered anew, any other can" in reason
    assert "it was unfenced before" in reason


@pytest.mark.parametrize(
    "replaced",
    [{"current_metadata_offset": -1}, {"current_metadata_offset": 1_000_000, "want_fence": False}],
    ids=["never", "at once"],
)
def test_broker_that_is_unfenced_at_the_wrong_time_is_found(
    monkeypatch: pytest.MonkeyPatch, replaced: dict[str, object]
) -> None:
    """Planted bugs: a broker is unfenced before it has read its registration, or never.

    The decision is made with fields that the heartbeat does not have (`replaced`).
    """
    states = BrokerLiveness.states

    def states_with_wrong_offset(
        self: BrokerLiveness,
        broker: BrokerRegistration,
        request: BrokerHeartbeatRequest,
        has_leaderships: Callable[[], bool],
    ) -> object:
        wrong = structs.replace(request, **replaced)
        return states(self, broker, wrong, has_leaderships)

    monkeypatch.setattr(BrokerLiveness, "states", states_with_wrong_offset)
    reason = reason_of(CRASH)
    assert "a fenced broker is unfenced when it has read its registration" in reason


def test_fetch_at_the_end_of_the_metadata_that_is_out_of_range_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Planted bug: the end of the log counts as beyond its end."""
    reply = MetadataFetches._reply

    def reply_out_of_range(
        self: MetadataFetches, request_id: RequestId, position: FetchPartition
    ) -> Reply:
        if position.fetch_offset == self._log.log_end_offset:
            position = structs.replace(position, fetch_offset=1_000_000)
        return reply(self, request_id, position)

    monkeypatch.setattr(MetadataFetches, "_reply", reply_out_of_range)
    assert "a Fetch within the metadata log is not out of range, any other is" in reason_of(CRASH)


# -- controlled shutdowns --


def test_shutdown_that_waits_for_the_fastest_broker_only_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Planted bug: the controller permits a stop when one active broker has the new metadata.

    It must wait for all of them. Here broker-2 is cut off from the controller, so the metadata of
    broker-2 stay old.
    """
    cut: dict[str, object] = {
        "at": "1s",
        "fault": "cut",
        "from": "broker(2)",
        "to": ["controller"],
        "duration": "5s",
    }

    def highest_active_offset(self: BrokerLiveness) -> int | None:
        active = [session for session in self._sessions.values() if session.shutdown_offset is None]
        # The right function has `min` here.
        return max((session.metadata_offset for session in active), default=None)

    monkeypatch.setattr(BrokerLiveness, "lowest_active_offset", highest_active_offset)
    assert "a broker stops once all active brokers know its new leaders" in reason_of(cut, SHUTDOWN)


def test_shutdown_that_waits_for_no_broker_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted bug: the controller forgets that the shutdown has begun, and permits the stop."""
    monkeypatch.setattr(BrokerLiveness, "begin_controlled_shutdown", lambda *_: None)
    assert "a broker stops once all active brokers know its new leaders" in reason_of(SHUTDOWN)


def test_broker_that_reports_metadata_that_it_does_not_have_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Planted bug: each broker says that it has applied the metadata up to offset 10,000.

    This offset is higher than any offset of the run, so every broker seems to have the newest
    metadata. In truth a broker needs 0.5 s to apply new metadata. So the shutdown ends while
    another broker still has the old leaders.
    """
    monkeypatch.setattr(MetadataFetcher, "applied_offset", 10_000)
    assert "still has it as the leader of" in reason_of(SHUTDOWN, publish_us=500_000)


def test_shutdown_that_never_ends_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted bug: the controller never believes that all brokers have the new metadata."""
    monkeypatch.setattr(BrokerLiveness, "_all_have_learnt", lambda *_: False)
    reason = reason_of(SHUTDOWN)
    assert "a controlled shutdown ends once all active brokers have learnt of it" in reason


@pytest.mark.parametrize(
    ("seems_to_lead", "invariant"),
    [
        (True, "a controlled shutdown ends once all active brokers have learnt of it"),
        (False, "a leader begins a controlled shutdown before it may stop"),
    ],
)
def test_controller_that_miscounts_leaderships_is_found(
    monkeypatch: pytest.MonkeyPatch, *, seems_to_lead: bool, invariant: str
) -> None:
    """Planted bug: the controller believes that each broker leads a partition, or that none does.

    If every broker seems to lead a partition, no broker may ever stop. If no broker seems to lead
    a partition, even a leader may stop at once.
    """
    monkeypatch.setattr(MetadataImage, "has_leaderships", lambda *_: seems_to_lead)
    assert invariant in reason_of(SHUTDOWN)


def test_broker_without_leaderships_that_must_wait_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Planted bug: the controller believes that every broker leads a partition.

    At 2 s broker-0 crashes, and so loses its leaderships. Later it starts again. At 20 s it is shut
    down. It leads nothing, so it could stop at once, but the bug makes it wait.
    """
    monkeypatch.setattr(MetadataImage, "has_leaderships", lambda *_: True)
    crash = {**SHUTDOWN, "fault": "crash", "target": "broker(0)"}  # at 2 s, for 5 s
    later_shutdown = {**SHUTDOWN, "at": "20s", "target": "broker(0)"}
    reason = reason_of(crash, later_shutdown)
    assert "a broker without leaderships may stop at once" in reason


def test_broker_that_keeps_its_leaderships_in_a_shutdown_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Planted bug: a controlled shutdown takes neither leaderships nor places in ISRs away."""
    monkeypatch.setattr(BrokerControl, "_remove_from_isrs", lambda *_: None)
    assert "a broker that wants to stop leads nothing" in reason_of(SHUTDOWN)


# -- elections and reassignments --


def test_available_preferred_leader_that_is_refused_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Planted bug: the controller confuses the brokers that may lead with those that may not.

    So the controller refuses to elect a preferred leader that is available.
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
    """Planted bug: the controller answers an election, but holds none.

    The answer says that the election was held (NONE), or that it was not needed. In both cases the
    preferred replica should lead now, but the metadata have another leader.
    """
    monkeypatch.setattr(administration, "_elect", lambda *_: code)
    reason = reason_of(MOVE)
    assert "an election's answer fits the metadata" in reason
    assert code.name in reason


def test_reassignment_that_is_agreed_to_and_not_stored_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Planted bug: the controller agrees to give a partition other replicas, and does not store it.

    The record that the controller writes lacks the list of replicas.
    """

    def without_replicas(**fields: object) -> object:
        return PartitionChangeRecord(**{**fields, "replicas": None})  # type: ignore[arg-type]

    monkeypatch.setattr(administration, "PartitionChangeRecord", without_replicas)
    assert "an agreed reassignment is in the metadata" in reason_of(MOVE)
