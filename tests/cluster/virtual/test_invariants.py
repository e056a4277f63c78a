"""Nodes that check their invariants in virtual time: between events, at the end, untraced.

- `play(experiment, seed)` runs an experiment in virtual time. BROKEN is its result if our own
  program failed, which is no statement about Kafka.
- `small(CRASH)` is an experiment of three brokers and one group, whose coordinator crashes.
- A core is the part of a node without a clock or network; it asks its host for timers by key.
- The tests plant bugs by patching our code.
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
"""Number of events between two checks that no run reaches: nodes check themselves at the end."""
CRASH: dict[str, object] = {
    "at": "2s",
    "fault": "crash",
    "target": "coordinator-of(readers)",
    "duration": "5s",
}


def test_check_runs_between_callbacks_after_every_n_of_them() -> None:
    """The check is no event: 35 callbacks ran, and `events_run` counts 35."""
    loop = VirtualLoop()
    seen: list[int] = []
    loop.check_every(10, lambda: seen.append(loop.events_run))
    for i in range(35):
        loop.post_at(1 + i, int)  # `int` as a callback that does nothing
    loop.run_until_us(100)
    assert (seen, loop.events_run) == ([10, 20, 30], 35)  # `seen`: at each check


def test_exception_of_a_check_leaves_the_run() -> None:
    """The check after the first callback raises, so the second one does not run."""
    loop = VirtualLoop()

    def refuse() -> None:
        raise InvariantViolation("name", "evidence")

    loop.check_every(1, refuse)  # after every callback
    loop.post_at(1, int)
    loop.post_at(2, int)
    with pytest.raises(InvariantViolation, match="name: evidence"):
        loop.run_until_us(5)
    assert loop.now_us() == 1


def test_checks_change_nothing_in_a_run() -> None:
    """The trace is equal, however often the nodes check themselves."""
    seldom, often = (play(small(CRASH), 1, invariants_every=every) for every in (AT_END_ONLY, 20))
    assert (often.result, often.digest) == (PlayResult.PASS, seldom.digest)
    assert often.events == seldom.events


def broken_by(monkeypatch: pytest.MonkeyPatch, every: int) -> PlayedRun:
    """Play a run whose coordinator marks each stored commit as pending again."""
    append_succeeded = GroupOffsets.append_succeeded

    def mark_pending_again(
        self: GroupOffsets, partition: TopicPartition, stored: CommittedOffset
    ) -> bool:
        newer = append_succeeded(self, partition, stored)
        self.prepare(partition, stored.value)
        return newer

    monkeypatch.setattr(GroupOffsets, "append_succeeded", mark_pending_again)
    return play(small(CRASH, group=readers()), 1, invariants_every=every)


@pytest.mark.parametrize("every", [100, AT_END_ONLY])
def test_broken_invariant_is_a_failure_of_the_lab(
    monkeypatch: pytest.MonkeyPatch, every: int
) -> None:
    """The report names node and invariant; it is never a verdict about Kafka.

    With a check after every 100 events the run ends at once. With 10**9 only the check at the end
    finds the bug; by then the offsets of the group cannot be read, which `liveness` also reports.
    """
    played = broken_by(monkeypatch, every)
    assert played.result is PlayResult.BROKEN
    failed_checks = {finding.signature.check for finding in played.findings}
    # A run that is not ended by a check goes on to its verification. There the group's offsets,
    # pending for ever, cannot be read: liveness fails.
    assert failed_checks == ({"liveness"} if every == AT_END_ONLY else set())
    (reason,) = played.reasons
    assert "pending_commit_is_written: broker-" in reason
    assert ("at the end" in reason) == (every == AT_END_ONLY)


def test_timer_that_the_core_has_and_the_host_lacks_is_named() -> None:
    """`require` names the missing keys and the superfluous ones."""
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
    """The patched host does not set the timers of members' sessions, with keys "heartbeat...".

    The coordinator's check compares its timers with those of the host.
    """
    apply = KeyedTimers.apply

    def skip_session_timers(self: KeyedTimers, effects: object) -> None:
        others = [e for e in effects if not e.key.startswith("heartbeat")]  # type: ignore[attr-defined]
        apply(self, others)

    monkeypatch.setattr(KeyedTimers, "apply", skip_session_timers)
    played = play(small(CRASH), 1)
    assert played.result is PlayResult.BROKEN
    assert "timers_are_armed: broker-" in played.reasons[0]


def test_request_that_no_core_holds_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted bug: the coordinator reports no waiting request, as if it had lost a JoinGroup.

    The broker's check finds a request that is neither answered nor held by the coordinator. Without
    the check, the member of a lost request would wait until its timeout.
    """
    monkeypatch.setattr(GroupCoordinator, "waiting", lambda _self: frozenset())
    played = play(small(CRASH), 1, invariants_every=20)
    assert played.result is PlayResult.BROKEN
    assert "and the coordinator lacks it" in played.reasons[0]


def test_log_that_contradicts_its_broker_is_found_at_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Only the thorough check at the end of a run reads the logs.

    The planted value says that an unstable transaction begins at offset 7; the log has none.
    """
    monkeypatch.setattr(ProducerStates, "first_unstable_offset", 7)
    played = play(small(CRASH), 1, invariants_every=20)
    assert played.result is PlayResult.BROKEN
    (reason,) = played.reasons
    assert reason.startswith("at the end: ")
    assert "the batches say None" in reason
