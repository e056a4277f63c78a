"""The checks of replicas find bugs of replication that no broker can see alone.

In virtual time all nodes of a cluster run in one process. So a check can stop the cluster at any
moment, and compare its nodes. For example, a follower must have the records that its leader
believes it to have. Such a rule is an invariant. A run that violates an invariant ends as BROKEN,
and its reason names the invariant.

Each test plants a bug: it replaces a method by a wrong one. Then `reason_of` plays a cluster of
three brokers, with one group and a producer with acks=all, and returns the reason.
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
"""A fault: the broker that coordinates the group crashes, so other brokers become leaders."""


def reason_of(*faults: dict[str, object], config: dict[str, object] | None = None) -> str:
    """Play with these faults until an invariant is violated, and return the reason.

    The nodes are checked after every 100 events. `config` has additional settings of the brokers.
    """
    played = play(small(*faults, config=config), seed=1, invariants_every=100)
    assert played.result is PlayResult.BROKEN, played.reasons
    return played.reasons[0]


def test_sound_run_has_no_violation() -> None:
    """Without a planted bug no check fails, even if the nodes are checked after every 20 events."""
    played = play(small(CRASH), seed=1, invariants_every=20)
    assert played.result is PlayResult.PASS, played.reasons


def test_leader_that_counts_sent_records_as_received_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Planted bug: at each Fetch request the leader believes that the follower has its whole log.

    In truth the follower has only the records before the fetch offset of its request.
    """
    update = FollowerState.update_fetch_state

    def count_sent_records(self: FollowerState, **state: int) -> None:
        update(self, **state)  # type: ignore[arg-type]
        self.log_end_offset = Offset(state["leader_end_offset"])

    monkeypatch.setattr(FollowerState, "update_fetch_state", count_sent_records)
    assert "a follower has what its leader knows it to have" in reason_of()


def test_acknowledgement_before_the_followers_have_the_batch_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Planted bug: the leader takes every batch for a repetition of an acknowledged batch.

    So the leader acknowledges the batch at once, before the followers have it.
    """
    append = Partition.append_batch

    def as_duplicate(self: Partition, *batch: object, **how: object) -> object:
        return structs.replace(append(self, *batch, **how), is_duplicate=True)  # type: ignore[arg-type]

    monkeypatch.setattr(Partition, "append_batch", as_duplicate)
    monkeypatch.setattr(Partition, "check_acknowledged", lambda _self, _offset: ErrorCode.NONE)
    assert "an acknowledgement of all replicas waits for the high watermark" in reason_of()


def test_stored_isr_with_a_replica_that_its_leader_does_not_count_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Planted bug: a leader proposes a larger ISR, and does not wait for the new replica yet.

    The controller may have stored the new ISR before the leader gets the answer. So as soon as the
    leader has proposed the new replica, each acknowledgement must wait for this replica, too.
    """
    propose = InSyncReplicas._propose

    def propose_alone(self: InSyncReplicas, *proposal: object) -> object:
        made = propose(self, *proposal)  # type: ignore[arg-type]
        # The leader waits for the replicas in `maximal`. The real method adds the new replica.
        self.maximal = self.committed
        return made

    monkeypatch.setattr(InSyncReplicas, "_propose", propose_alone)
    assert "each member of the stored ISR counts for its leader" in reason_of(CRASH)


def test_leader_that_keeps_a_lagging_follower_in_its_isr_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Planted bug: a leader never looks for followers that lag.

    Broker 1 is cut off from the other brokers, so it lags. Broker 1 still reaches the controller.
    So the controller does not fence broker 1, and does not shrink the ISR by itself.
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
    """Planted bug: brokers have a topic setting that is in no record of the controller's log."""
    apply = MetadataCache.apply

    def apply_more(self: MetadataCache, records: object) -> object:
        self.image.topic_configs["orders"] = TopicConfig(min_insync_replicas=3)
        return apply(self, records)  # type: ignore[arg-type]

    monkeypatch.setattr(MetadataCache, "apply", apply_more)
    reason = reason_of()
    assert "a broker has the controller's metadata" in reason
    assert "topic_configs, orders: expected None" in reason  # the controller has no setting


def test_replicas_with_other_batches_are_found_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted bug: followers store each batch with another timestamp than their leader.

    Only the check at the end of a run compares whole logs, because this takes long.
    """
    append = PartitionLog.append_as_follower

    def append_with_later_time(self: PartitionLog, batches: Sequence[RecordBatch]) -> ErrorCode:
        if self.topic_partition.topic == "orders":
            later = [structs.replace(b, max_timestamp_ms=b.max_timestamp_ms + 1) for b in batches]
            # The CRC (checksum) must fit, or the log would refuse the batch.
            batches = [structs.replace(batch, crc=batch_crc(batch)) for batch in later]
        return append(self, batches)

    monkeypatch.setattr(PartitionLog, "append_as_follower", append_with_later_time)
    reason = reason_of()
    assert reason.startswith("at the end: ")
    assert "in-sync replicas have the same batches" in reason


def test_check_soon_checks_before_the_next_callback() -> None:
    """`check_soon` asks for a check right after the current callback of the loop.

    A regular check comes when 10 callbacks have run since the last check. Callback 4 asks for a
    check, so the checks come after the callbacks 4, 14 and 24.
    """
    loop = VirtualLoop()
    loop.check_soon()  # no effect, because the loop has no checks yet
    events_at_checks: list[int] = []
    loop.check_every(10, lambda: events_at_checks.append(loop.events_run))

    def do_nothing() -> None:
        pass

    for number in range(1, 26):
        loop.post_at(number, loop.check_soon if number == 4 else do_nothing)
    loop.run_until_us(100)
    assert events_at_checks == [4, 14, 24]
    assert loop.events_run == 25
