"""The check that a request of a member restarts the member's session finds planted bugs.

A group coordinator removes a member that sends no request for its session timeout. In virtual time,
a check looks at the member's timer whenever the coordinator accepts a request of the member.

Each test plants a bug: a part of the coordinator does not restart the session, or restarts it with
a wrong timeout.
"""

from collections.abc import Callable

import pytest
from msgspec import structs

from chaos.experiment.structs import Experiment
from chaos.exploration.play import PlayResult, play
from coordinator import delayed, rebalance
from coordinator.apis import heartbeat, offset_commit
from coordinator.group import Group
from coordinator.member import Member
from coordinator.turn import Turn
from protocol.api import Api
from protocol.config import JavaSwitches
from tests.support.worlds.planted import small

CRASH: dict[str, object] = {
    "at": "2s",
    "fault": "crash",
    "target": "coordinator-of(readers)",
    "duration": "5s",
}
"""A fault: the broker that coordinates the group crashes, so that another one loads the group."""
MEMBER_CRASH: dict[str, object] = {
    "at": "2s",
    "fault": "crash",
    "target": "member(readers, 1)",
    "duration": "5s",
}
"""A fault: a member crashes and joins again, so that the other member must rejoin."""
RESTART = delayed.restart_session

Restart = Callable[[Turn, Group, Member, Api], None]


def reason_of(experiment: Experiment) -> str:
    """Play until the check fails, and return the reason. The nodes do not check themselves."""
    played = play(experiment, seed=1, invariants_every=10**9)
    assert played.result is PlayResult.BROKEN, played.reasons
    reason = played.reasons[0]
    assert "a request restarts its member's session" in reason
    return reason


def with_java(experiment: Experiment) -> Experiment:
    """Return the experiment with Java's switch that lets heartbeats wait for writes."""
    switches = JavaSwitches(heartbeats_wait_for_writes=True, commits_apply_on_append=True)
    cluster = structs.replace(experiment.cluster, java_coordinator=switches)
    return structs.replace(experiment, cluster=cluster)


@pytest.mark.parametrize(
    "experiment",
    [small(CRASH), small(MEMBER_CRASH), with_java(small(CRASH))],
    ids=["load", "rebalance", "java"],
)
def test_sound_run_has_no_violation(experiment: Experiment) -> None:
    """With Java's switch, the answer to a Heartbeat leaves later than the session was restarted."""
    played = play(experiment, seed=1, invariants_every=500)
    assert played.result is PlayResult.PASS, played.reasons


def not_for(forgotten: Api) -> Restart:
    """Return `restart_session` with a bug: requests of the API `forgotten` do not set the timer."""

    def restart(turn: Turn, group: Group, member: Member, request: Api) -> None:
        if request is not forgotten:
            RESTART(turn, group, member, request)

    return restart


@pytest.mark.parametrize(
    ("module", "api"),
    [
        (heartbeat, Api.HEARTBEAT),
        (offset_commit, Api.OFFSET_COMMIT),
        (rebalance, Api.SYNC_GROUP),
        (rebalance, Api.JOIN_GROUP),
    ],
    ids=["heartbeat", "commit", "sync", "join"],
)
def test_request_that_does_not_restart_the_session_is_found(
    monkeypatch: pytest.MonkeyPatch, module: object, api: Api
) -> None:
    """Planted bug: the coordinator accepts the request, and the timer runs on as before."""
    monkeypatch.setattr(module, "restart_session", not_for(api))
    assert f"accepts the {api.label} of" in reason_of(small(MEMBER_CRASH))


def test_session_with_a_shorter_timeout_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted bug: after a Heartbeat the timer runs for half of the session timeout."""

    def restart_half(turn: Turn, group: Group, member: Member, request: Api) -> None:
        timeout_ms = member.session_timeout_ms
        member.session_timeout_ms = timeout_ms // 2
        RESTART(turn, group, member, request)
        member.session_timeout_ms = timeout_ms

    monkeypatch.setattr(heartbeat, "restart_session", restart_half)
    reason = reason_of(small(CRASH))
    assert "whose session timeout is 10000000 us, and its timer is due in 5000000 us" in reason


def test_session_without_a_timer_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted bug: a Heartbeat stops the timer, so the member would never expire."""

    def stop(turn: Turn, group: Group, member: Member, request: Api) -> None:
        delayed.cancel_heartbeat(turn, group, member.member_id)

    monkeypatch.setattr(heartbeat, "restart_session", stop)
    assert "and its timer is not armed" in reason_of(small(CRASH))
