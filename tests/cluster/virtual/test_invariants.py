"""Nodes that check their own invariants in virtual time: between events, and at the end of the run.

Virtual time is the run's own simulated clock.

- `play(experiment, seed)` runs an experiment in virtual time. The result BROKEN says that our own
  program has failed, which says nothing about Kafka.
- `small(CRASH)` is an experiment with three brokers and one group, whose coordinator crashes.
- A core is the part of a node that has no clock and no network. A core asks its host for timers,
  each with a key.
- A test plants a bug: it replaces a part of our code by a wrong one.
"""

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

AT_END_ONLY = 10**9
"""A number of events between two checks that no run reaches: only the last check is made."""
CRASH: dict[str, object] = {
    "at": "2s",
    "fault": "crash",
    "target": "coordinator-of(readers)",
    "duration": "5s",
}


def test_check_runs_between_callbacks_after_every_n_of_them() -> None:
    """A check is not an event itself: 35 callbacks are 35 events, although there were 3 checks."""
    loop = VirtualLoop()
    seen: list[int] = []
    loop.check_every(10, lambda: seen.append(loop.events_run))
    for i in range(35):
        # `int` serves as a callback without an effect.
        loop.post_at(1 + i, int)
    loop.run_until_us(100)
    # `seen` has the number of events at each check.
    assert (seen, loop.events_run) == ([10, 20, 30], 35)


def test_exception_of_a_check_leaves_the_run() -> None:
    """The check after the first callback raises, so the second callback does not run."""
    loop = VirtualLoop()

    def refuse() -> None:
        raise InvariantViolation("name", "evidence")

    loop.check_every(1, refuse)  # check after every callback
    loop.post_at(1, int)
    loop.post_at(2, int)
    with pytest.raises(InvariantViolation, match="name: evidence"):
        loop.run_until_us(5)
    assert loop.now_us() == 1


def test_checks_change_nothing_in_a_run() -> None:
    """A run's trace (its recorded events) is the same, however often the nodes check themselves."""
    seldom, often = (
        play(small(CRASH), seed=1, invariants_every=every) for every in (AT_END_ONLY, 20)
    )
    assert (often.result, often.digest) == (PlayResult.PASS, seldom.digest)
    assert often.events == seldom.events


def broken_by(monkeypatch: pytest.MonkeyPatch, every: int) -> PlayedRun:
    """Play a run with a planted bug: a commit that was stored is marked as pending again.

    The nodes check themselves after `every` events.
    """
    append_succeeded = GroupOffsets.append_succeeded

    def mark_pending_again(
        self: GroupOffsets, partition: TopicPartition, stored: CommittedOffset
    ) -> bool:
        newer = append_succeeded(self, partition, stored)
        self.prepare(partition, stored.value)
        return newer

    monkeypatch.setattr(GroupOffsets, "append_succeeded", mark_pending_again)
    return play(small(CRASH, group=readers()), seed=1, invariants_every=every)


@pytest.mark.parametrize("every", [100, AT_END_ONLY])
def test_broken_invariant_is_a_failure_of_the_lab(
    monkeypatch: pytest.MonkeyPatch, every: int
) -> None:
    """The report names the node and the invariant, and is never a verdict about Kafka.

    With a check after every 100 events, the run ends soon after the bug. Otherwise only the check
    at the end of the run finds it.
    """
    played = broken_by(monkeypatch, every)
    assert played.result is PlayResult.BROKEN
    failed_checks = {finding.signature.check for finding in played.findings}
    # A run that no check has ended goes on to its verification. There the offsets of the group
    # cannot be read, because they stay pending, so the check `liveness` fails, too.
    is_found_at_end = every == AT_END_ONLY
    assert failed_checks == ({"liveness"} if is_found_at_end else set())
    (reason,) = played.reasons
    assert "pending_commit_is_written: broker-" in reason
    assert ("at the end" in reason) is is_found_at_end


def test_timer_that_the_core_has_and_the_host_lacks_is_named() -> None:
    """`require` compares the armed timers with the keys that the core expects, and names errors."""
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
    """Planted bug: the host does not set the timers of members' sessions.

    The keys of these timers begin with "heartbeat". The check of the coordinator compares its own
    timers with those of the host.
    """
    apply = KeyedTimers.apply

    def skip_session_timers(self: KeyedTimers, effects: object) -> None:
        others = [e for e in effects if not e.key.startswith("heartbeat")]  # type: ignore[attr-defined]
        apply(self, others)

    monkeypatch.setattr(KeyedTimers, "apply", skip_session_timers)
    played = play(small(CRASH), seed=1)
    assert played.result is PlayResult.BROKEN
    assert "timers_are_armed: broker-" in played.reasons[0]


def test_request_that_no_core_holds_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted bug: the coordinator says that no request waits, as if it had lost a JoinGroup.

    The check of the broker finds a request that it has not answered and the coordinator does not
    hold. Without this check, the member of a lost request would wait until its timeout.
    """
    monkeypatch.setattr(GroupCoordinator, "waiting", lambda _self: frozenset())
    played = play(small(CRASH), seed=1, invariants_every=20)
    assert played.result is PlayResult.BROKEN
    assert "and the coordinator lacks it" in played.reasons[0]


def test_log_that_contradicts_its_broker_is_found_at_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Only the check at the end of a run is thorough enough to read the logs.

    The planted value says that an open transaction begins at offset 7, but the log has none.
    """
    monkeypatch.setattr(ProducerStates, "first_unstable_offset", 7)
    played = play(small(CRASH), seed=1, invariants_every=20)
    assert played.result is PlayResult.BROKEN
    (reason,) = played.reasons
    assert reason.startswith("at the end: ")
    assert "the batches say None" in reason
