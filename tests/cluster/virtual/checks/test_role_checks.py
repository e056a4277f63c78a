"""The check that rows about leaders and followers are true, in virtual time.

Each test plants a bug, which means that it replaces a method by a wrong one. Then it plays a
cluster of three brokers in which a broker crashes, so that other brokers become leaders. The run
must be BROKEN, and its reason must name the invariant that is violated.
"""

from dataclasses import replace

import pytest

from chaos.exploration.play import PlayResult, play
from partition_log import replica
from partition_log.log import PartitionLog
from partition_log.outcomes import LeadershipChange
from partition_log.replica import Partition
from partition_log.traces import became_leader
from protocol.ids import LeaderEpoch
from protocol.trace import TraceEvent
from tests.support.worlds.planted import small

CRASH: dict[str, object] = {
    "at": "2s",
    "fault": "crash",
    "target": "coordinator-of(readers)",
    "duration": "5s",
}


def reason_of_crash() -> str:
    """Play the crash, which must violate the invariant, and return the reason."""
    played = play(small(CRASH), seed=1)
    assert played.result is PlayResult.BROKEN, played.reasons
    return played.reasons[0]


def test_second_row_in_an_epoch_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted bug: a leader writes a row at each change of its ISR, as if it were a new epoch."""
    make_leader = Partition.make_leader

    def make_leader_again(self: Partition, **registration: object) -> LeadershipChange:
        change = make_leader(self, **registration)  # type: ignore[arg-type]
        row = became_leader(self.log, self.leader_epoch)
        return change if change.trace else replace(change, trace=(row,))

    monkeypatch.setattr(Partition, "make_leader", make_leader_again)
    reason = reason_of_crash()
    assert "a replica has one role in a leader epoch" in reason
    assert "after a row in epoch" in reason


def test_row_with_another_epoch_than_the_replica_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted bug: the rows of new leaders have the epoch after their own."""

    def became_leader_later(log: PartitionLog, leader_epoch: LeaderEpoch) -> TraceEvent:
        return became_leader(log, LeaderEpoch(leader_epoch + 1))

    monkeypatch.setattr(replica, "became_leader", became_leader_later)
    assert "but the replica leads in epoch" in reason_of_crash()
