"""Nodes check themselves during a run, and a run with a bug in the lab's own code is BROKEN.

An invariant is something that must always be true within a node. For example, a coordinator must
have exactly the timers that its groups need. In virtual time (with a simulated clock) all nodes of
a run are in one process. There the nodes check their invariants after every so many events, and
once more at the end.

Most tests here plant a bug, which means that they replace a method by a wrong one. Then they play a
run. `small(CRASH)` is an experiment with three brokers and one group whose coordinator crashes. The
result of the run must be BROKEN. This says that the lab has failed, and nothing about Kafka.
"""

import pytest

from chaos.exploration.play import PlayedRun, PlayResult, play
from cluster.client.admin.admin_client import AdminClient
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
"""An interval of checks that is longer than any run, so only the check at the end is made."""
CRASH: dict[str, object] = {
    "at": "2s",
    "fault": "crash",
    "target": "coordinator-of(readers)",
    "duration": "5s",
}


def do_nothing() -> None:
    """Serve as a callback of the loop."""


def test_check_runs_between_callbacks_after_every_n_of_them() -> None:
    """A check comes after every 10 callbacks here, and is not counted as a callback itself.

    So after 35 callbacks, with 3 checks between them, the loop has counted 35 events.
    """
    loop = VirtualLoop()
    events_at_checks: list[int] = []
    loop.check_every(10, lambda: events_at_checks.append(loop.events_run))
    for time_us in range(1, 36):
        loop.post_at(time_us, do_nothing)
    loop.run_until_us(100)
    assert events_at_checks == [10, 20, 30]
    assert loop.events_run == 35


def test_exception_of_a_check_leaves_the_run() -> None:
    """The check after the first callback raises, so the second callback does not run."""
    loop = VirtualLoop()

    def refuse() -> None:
        raise InvariantViolation("name", "evidence")

    loop.check_every(1, refuse)  # check after every callback
    loop.post_at(1, do_nothing)
    loop.post_at(2, do_nothing)
    with pytest.raises(InvariantViolation, match="name: evidence"):
        loop.run_until_us(5)
    assert loop.now_us() == 1


def test_checks_change_nothing_in_a_run() -> None:
    """A run has the same events, however often the nodes check themselves."""
    checked_at_end = play(small(CRASH), seed=1, invariants_every=AT_END_ONLY)
    checked_often = play(small(CRASH), seed=1, invariants_every=20)
    assert checked_often.result is PlayResult.PASS
    # The digest is a hash of all recorded events.
    assert checked_often.digest == checked_at_end.digest
    assert checked_often.events == checked_at_end.events


def broken_by(monkeypatch: pytest.MonkeyPatch, every: int) -> PlayedRun:
    """Play a run with a planted bug: an offset that was stored is marked as pending once more.

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
    is_found_at_end = every == AT_END_ONLY
    if is_found_at_end:
        # After its faults, a run tests whether the group still works. Here the offsets of the
        # group cannot be read, because they stay pending, so the check `liveness` fails, too.
        assert failed_checks == {"liveness"}
    else:
        assert failed_checks == set()
    (reason,) = played.reasons
    assert "pending_commit_is_written: broker-" in reason
    assert ("at the end" in reason) is is_found_at_end


def test_timer_that_the_core_has_and_the_host_lacks_is_named() -> None:
    """`require` raises if the timers that are running differ from those that the core expects.

    The core of a node has no clock. It asks its host, which has one, to set and cancel timers. Each
    timer has a key, such as "a" here.
    """
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
    """Planted bug: the host does not set the timers that end join phases.

    The check of the broker compares the timers that the coordinator needs with the host's timers.
    """
    apply = KeyedTimers.apply

    def skip_join_timers(self: KeyedTimers, effects: object) -> None:
        # The keys of these timers begin with "join".
        others = [e for e in effects if not e.key.startswith("join")]  # type: ignore[attr-defined]
        apply(self, others)

    monkeypatch.setattr(KeyedTimers, "apply", skip_join_timers)
    played = play(small(CRASH), seed=1)
    assert played.result is PlayResult.BROKEN
    assert "timers_are_armed: broker-" in played.reasons[0]


def test_request_that_no_core_holds_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted bug: the coordinator says that no request waits for its answer.

    This looks as if the coordinator had lost a JoinGroup. The member would then wait for an answer
    until its timeout. The check of the broker finds such a request: the broker has not answered it,
    and the coordinator does not say that it waits.
    """
    monkeypatch.setattr(GroupCoordinator, "waiting", lambda _self: frozenset())
    played = play(small(CRASH), seed=1, invariants_every=20)
    assert played.result is PlayResult.BROKEN
    assert "and the coordinator lacks it" in played.reasons[0]


def test_log_that_contradicts_its_broker_is_found_at_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Planted bug: a broker believes that an open transaction begins at offset 7 of its log.

    The log has no transaction. Only the check at the end of a run reads the logs, because this
    takes long.
    """
    monkeypatch.setattr(ProducerStates, "first_unstable_offset", 7)
    played = play(small(CRASH), seed=1, invariants_every=20)
    assert played.result is PlayResult.BROKEN
    (reason,) = played.reasons
    assert reason.startswith("at the end: ")
    assert "the batches say None" in reason


MOVE: dict[str, object] = {
    "at": "2s",
    "fault": "leadership_move",
    "target": "coordinator-of(readers)",
}
"""A fault: an administrator moves the leadership of the group's partition to another broker."""


def test_administrator_that_leaves_connections_open_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Planted bug: the end of an administrator's client does not close its connections.

    The sound run has the same administrator, and passes. In the other run the check finds the open
    connections at the first look after the order.
    """
    sound = play(small(MOVE), seed=1, invariants_every=20)
    assert sound.result is PlayResult.PASS, sound.reasons
    monkeypatch.setattr(AdminClient, "__exit__", lambda _self, *_exception: None)
    played = play(small(MOVE), seed=1, invariants_every=20)
    assert played.result is PlayResult.BROKEN
    assert "admin-0 has connections to ('broker-" in played.reasons[0]
