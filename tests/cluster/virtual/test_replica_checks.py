"""Invariants between nodes, in virtual time: the checks find bugs that no node can see alone.

`play(small(...), seed)` plays a cluster of three brokers, with one group and a producer with
acks=all. Each test plants a bug: it replaces a method by a wrong one. A run that violates an
invariant is BROKEN. `reason_of` returns the run's reason, which names the invariant. The ISR is the
set of in-sync replicas of a partition.
"""

from collections.abc import Sequence

import pytest
from msgspec import structs

from chaos.exploration.play import PlayResult, play
from cluster.broker.control.metadata_cache import MetadataCache
from cluster.broker.replication.replica_fetcher import ReplicaFetchers
from cluster.virtual.loop import VirtualLoop
from partition_log.batches import batch_crc
from partition_log.follower_state import FollowerState
from partition_log.in_sync_replicas import InSyncReplicas
from partition_log.log import PartitionLog
from partition_log.replica import Partition
from protocol.config import TopicConfig
from protocol.errors import ErrorCode
from protocol.ids import Offset
from protocol.records.batch import RecordBatch
from tests.support.worlds.planted import small

CRASH: dict[str, object] = {
    "at": "2s",
    "fault": "crash",
    "target": "coordinator-of(readers)",
    "duration": "5s",
}


def reason_of(*faults: dict[str, object], config: dict[str, object] | None = None) -> str:
    """Play with these faults until an invariant is violated, and return the reason.

    `config` adds settings of the brokers.
    """
    played = play(small(*faults, config=config), seed=1, invariants_every=100)
    assert played.result is PlayResult.BROKEN, played.reasons
    return played.reasons[0]


def test_sound_run_has_no_violation() -> None:
    """Without a planted bug no check may fail, however often the nodes are checked."""
    played = play(small(CRASH), seed=1, invariants_every=20)
    assert played.result is PlayResult.PASS, played.reasons


def test_leader_that_counts_sent_records_as_received_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Planted bug: with each Fetch, the leader believes that the follower has its whole log."""
    update = FollowerState.update_fetch_state

    def count_sent_records(self: FollowerState, **state: int) -> None:
        update(self, **state)  # type: ignore[arg-type]
        self.log_end_offset = Offset(state["leader_end_offset"])

    monkeypatch.setattr(FollowerState, "update_fetch_state", count_sent_records)
    assert "a follower has what its leader knows it to have" in reason_of()


def test_acknowledgement_before_the_followers_have_the_batch_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Planted bug: every append counts as a duplicate of a batch that was acknowledged already."""
    append = Partition.append_batch

    def as_duplicate(self: Partition, *batch: object, **how: object) -> object:
        return structs.replace(append(self, *batch, **how), is_duplicate=True)  # type: ignore[arg-type]

    monkeypatch.setattr(Partition, "append_batch", as_duplicate)
    monkeypatch.setattr(Partition, "check_acknowledged", lambda _self, _offset: ErrorCode.NONE)
    assert "an acknowledgement of all replicas waits for the high watermark" in reason_of()


def test_stored_isr_with_a_replica_that_its_leader_does_not_count_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Planted bug: a leader that adds a replica to the ISR counts it only after the answer.

    It must count the replica from its proposal on, because the controller may accept the proposal
    before the leader learns of it.
    """
    propose = InSyncReplicas._propose

    def propose_alone(self: InSyncReplicas, *proposal: object) -> object:
        made = propose(self, *proposal)  # type: ignore[arg-type]
        # The real method adds the proposed replica to `maximal`, the replicas that count.
        self.maximal = self.committed
        return made

    monkeypatch.setattr(InSyncReplicas, "_propose", propose_alone)
    assert "each member of the stored ISR counts for its leader" in reason_of(CRASH)


def test_leader_that_keeps_a_lagging_follower_in_its_isr_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Planted bug: a leader never looks for followers that lag.

    The cut is between a follower and the leader, so the controller does not fence the follower.
    """
    monkeypatch.setattr(Partition, "maybe_shrink_isr", lambda _self, _now_us: None)
    cut: dict[str, object] = {
        "at": "2s",
        "fault": "cut",
        "from": "broker(1)",
        "to": ["broker(0)", "broker(2)"],
        "duration": "20s",
    }
    settings: dict[str, object] = {"replica.lag.time.max.ms": 3_000}
    reason = reason_of(cut, config=settings)
    assert "a follower that lags leaves the ISR" in reason
    assert "has proposed no other ISR for" in reason


def test_leader_that_still_fetches_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted bug: a follower that becomes the leader goes on fetching from its former leader."""
    monkeypatch.setattr(ReplicaFetchers, "stop", lambda _self, _partition: None)
    assert "a follower fetches from its leader" in reason_of(CRASH)


def test_broker_with_other_metadata_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted bug: brokers have a topic setting that no record of the metadata log contains."""
    apply = MetadataCache.apply

    def apply_more(self: MetadataCache, records: object) -> object:
        self.image.topic_configs["orders"] = TopicConfig(min_insync_replicas=3)
        return apply(self, records)  # type: ignore[arg-type]

    monkeypatch.setattr(MetadataCache, "apply", apply_more)
    reason = reason_of()
    assert "a broker has the controller's metadata" in reason
    assert "topic_configs, orders: expected None" in reason


def test_replicas_with_other_batches_are_found_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted bug: followers store a batch with another timestamp than their leader.

    Only the check at the end of a run reads the logs.
    """
    append = PartitionLog.append_as_follower

    def append_later(self: PartitionLog, batches: Sequence[RecordBatch]) -> ErrorCode:
        if self.topic_partition.topic == "orders":
            later = [structs.replace(b, max_timestamp_ms=b.max_timestamp_ms + 1) for b in batches]
            # The CRC (checksum) must fit, or the log would refuse the batch.
            batches = [structs.replace(batch, crc=batch_crc(batch)) for batch in later]
        return append(self, batches)

    monkeypatch.setattr(PartitionLog, "append_as_follower", append_later)
    reason = reason_of()
    assert reason.startswith("at the end: ")
    assert "in-sync replicas have the same batches" in reason


def test_check_soon_checks_before_the_next_callback() -> None:
    """`check_soon` adds one check to the regular checks, which come after every n-th callback.

    The next n callbacks count from the added check.
    """
    loop = VirtualLoop()
    loop.check_soon()  # no effect, because the loop has no checks yet
    seen: list[int] = []
    loop.check_every(10, lambda: seen.append(loop.events_run))
    for i in range(25):
        # The fourth callback asks for the added check; `int` does nothing.
        loop.post_at(1 + i, loop.check_soon if i == 3 else int)
    loop.run_until_us(100)
    # `seen` has the number of events at each check.
    assert (seen, loop.events_run) == ([4, 14, 24], 25)
