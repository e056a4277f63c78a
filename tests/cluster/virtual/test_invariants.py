"""Nodes that check their invariants in virtual time: between events, at the end, untraced."""

import pytest

from chaos.exploration.play import PlayedRun, PlayResult, play
from cluster.host.keyed_timers import KeyedTimers
from cluster.virtual.loop import VirtualLoop
from coordinator.coordinator import GroupCoordinator
from coordinator.storage.offsets import CommittedOffset, GroupOffsets
from partition_log.producer_states import ProducerStates
from protocol.effects import CancelTimer, SetTimer
from protocol.errors import InvariantViolation
from protocol.ids import TopicPartition
from tests.support.harness.virtual_hosts import HostLab
from tests.support.worlds.planted import readers, small

CRASH: dict[str, object] = {
    "at": "2s",
    "fault": "crash",
    "target": "coordinator-of(readers)",
    "duration": "5s",
}


def test_check_runs_between_callbacks_after_every_n_of_them() -> None:
    """The check is no event: it is neither counted nor awaited."""
    loop = VirtualLoop()
    seen: list[int] = []
    loop.check_every(10, lambda: seen.append(loop.events_run))
    for i in range(35):
        loop.post_at(1 + i, int)
    loop.run_until_us(100)
    assert (seen, loop.events_run) == ([10, 20, 30], 35)


def test_exception_of_a_check_leaves_the_run() -> None:
    loop = VirtualLoop()

    def refuse() -> None:
        raise InvariantViolation("name", "evidence")

    loop.check_every(1, refuse)
    loop.post_at(1, int)
    loop.post_at(2, int)
    with pytest.raises(InvariantViolation, match="name: evidence"):
        loop.run_until_us(5)
    assert loop.now_us() == 1


def test_checks_change_nothing_in_a_run() -> None:
    """The trace is equal, however often the nodes check themselves."""
    seldom, often = (play(small(CRASH), 1, invariants_every=every) for every in (10**9, 20))
    assert (often.result, often.digest) == (PlayResult.PASS, seldom.digest)
    assert often.events == seldom.events


def broken_by(monkeypatch: pytest.MonkeyPatch, every: int) -> PlayedRun:
    """Return a run whose coordinator keeps the slot of a commit that is stored."""
    sound = GroupOffsets.append_succeeded

    def forgetful(self: GroupOffsets, partition: TopicPartition, stored: CommittedOffset) -> bool:
        newer = sound(self, partition, stored)
        self.prepare(partition, stored.value)
        return newer

    monkeypatch.setattr(GroupOffsets, "append_succeeded", forgetful)
    return play(small(CRASH, group=readers()), 1, invariants_every=every)


@pytest.mark.parametrize("every", [100, 10**9])
def test_broken_invariant_is_a_failure_of_the_lab(
    monkeypatch: pytest.MonkeyPatch, every: int
) -> None:
    """The report names node and invariant, at the end, too; it is never a verdict about Kafka."""
    played = broken_by(monkeypatch, every)
    assert played.result is PlayResult.BROKEN
    found = {finding.signature.check for finding in played.findings}
    assert found == ({"liveness"} if every == 10**9 else set())  # its offsets cannot be read
    (reason,) = played.reasons
    assert "pending_commit_is_written: broker-" in reason
    assert ("at the end" in reason) == (every == 10**9)


def test_timer_that_the_core_has_and_the_host_lacks_is_named() -> None:
    """The coordinator expects to expire a member, and no timer is armed."""
    lab = HostLab()
    timers = KeyedTimers(lab.host("broker-0"), lambda key: None)
    timers.apply([SetTimer(key="a", delay_us=5), SetTimer(key="b", delay_us=5)])
    timers.require({"a", "b"})
    timers.apply([CancelTimer(key="b")])
    with pytest.raises(InvariantViolation, match=r"expected but not armed: \['b', 'c'\]"):
        timers.require({"a", "b", "c"})
    with pytest.raises(InvariantViolation, match=r"armed but not expected: \['a'\]"):
        timers.require(set())


def test_broker_whose_timers_were_lost_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The coordinator's order to set a session timer is not carried out."""
    sound = KeyedTimers.apply

    def deaf(self: KeyedTimers, effects: object) -> None:
        kept = [e for e in effects if not e.key.startswith("heartbeat")]  # type: ignore[attr-defined]
        sound(self, kept)

    monkeypatch.setattr(KeyedTimers, "apply", deaf)
    played = play(small(CRASH), 1)
    assert played.result is PlayResult.BROKEN
    assert "timers_are_armed: broker-" in played.reasons[0]


def test_request_that_no_core_holds_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A coordinator that loses a JoinGroup leaves its member waiting until a timeout."""
    monkeypatch.setattr(GroupCoordinator, "waiting", lambda _self: frozenset())
    played = play(small(CRASH), 1, invariants_every=20)
    assert played.result is PlayResult.BROKEN
    assert "and the coordinator lacks it" in played.reasons[0]


def test_log_that_contradicts_its_broker_is_found_at_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Logs are read once, when the run is over."""
    monkeypatch.setattr(ProducerStates, "first_unstable_offset", 7)
    played = play(small(CRASH), 1, invariants_every=20)
    assert played.result is PlayResult.BROKEN
    (reason,) = played.reasons
    assert reason.startswith("at the end: ")
    assert "the batches say None" in reason
