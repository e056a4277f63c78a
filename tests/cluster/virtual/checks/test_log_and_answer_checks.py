"""The checks of answers, appends, cleanings and created topics find planted bugs during the run.

In a run in virtual time, checks look at the answers of brokers and at their logs. A test plants a
bug, which means that it replaces a part of our code by a wrong one. Then it plays an experiment,
`small(...)`, with three brokers, one group and a producer. The run must be BROKEN, and its reason
must name the invariant that is violated.
"""

import pytest
from msgspec import structs

from chaos.experiment.structs import Experiment
from chaos.exploration.play import PlayResult, play
from cluster.broker.coordination.appends import CoordinatorAppends
from cluster.controller.metadata_image import MetadataImage
from cluster.host.host import Host
from coordinator.apis import offset_commit
from coordinator.storage.commit_values import partitions_of
from coordinator.turn import Turn
from partition_log import fetching
from partition_log.compaction import Compaction
from partition_log.log import PartitionLog
from partition_log.outcomes import FetchResult, FollowerFetchResult
from partition_log.producer_states import ProducerStates
from partition_log.replica import CONSUMER, Partition
from protocol.effects import ACKS_LEADER
from protocol.errors import ErrorCode
from protocol.ids import RequestId
from protocol.messages.log import FetchPartition
from protocol.messages.offset import OffsetCommitRequest
from protocol.records.batch import Record, RecordBatch
from tests.support.worlds.planted import CUT, small

OFTEN_CLEANED: dict[str, object] = {
    "log.cleaner.backoff.ms": 1_000,
    "offsets.topic.segment.bytes": 2_000,
    "log.cleaner.min.cleanable.ratio": 0.1,
}
"""Settings with which the logs of offsets are cleaned often, so that a short run has cleanings.

A cleaning removes each record whose key has a newer record.
"""

LOST_RESPONSE: dict[str, object] = {
    "at": "2s",
    "fault": "response_loss",
    "from": "brokers",
    "to": "clients",
    "args": {"apis": ["Produce"]},
    "duration": "5s",
}
"""A fault: each broker carries out one Produce without an answer. Its connection is reset."""


def crash(broker: int) -> dict[str, object]:
    """Return a fault: a broker is killed at 2 s and starts again 20 s later."""
    return {"at": "2s", "fault": "crash", "target": f"broker({broker})", "duration": "20s"}


def idempotent(experiment: Experiment) -> Experiment:
    """Return the experiment with enable.idempotence for its producers."""
    return structs.replace(
        experiment,
        producers=tuple(
            structs.replace(
                producer, config=structs.replace(producer.config, enable_idempotence=True)
            )
            for producer in experiment.producers
        ),
    )


def reason_of(experiment: Experiment) -> str:
    """Play the experiment, which must break an invariant, and return the reason.

    The nodes check their invariants after every 500 events.
    """
    played = play(experiment, seed=1, invariants_every=500)
    assert played.result is PlayResult.BROKEN, played.reasons
    return played.reasons[0]


@pytest.mark.parametrize(
    "experiment",
    [
        small(config=OFTEN_CLEANED),
        small(crash(1), crash(2)),
        idempotent(small(CUT)),
        idempotent(small(LOST_RESPONSE)),
    ],
    ids=["cleaned", "below-min-isr", "truncated", "repeated"],
)
def test_sound_run_has_no_violation(experiment: Experiment) -> None:
    """Without a planted bug no check may fail.

    - cleaned: logs are cleaned often.
    - below-min-isr: two of three brokers are dead, so the ISR is smaller than min.insync.replicas.
    - truncated: a leader is cut off. It must truncate its log when it returns.
    - repeated: a producer sends batches a second time, because the responses were lost.
    """
    played = play(experiment, seed=1, invariants_every=500)
    assert played.result is PlayResult.PASS, played.reasons


def test_wrong_high_watermark_in_an_answer_to_a_consumer_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Planted bug: the high watermark in the answer to a consumer is one too high."""
    right_fetch = Partition.fetch

    def fetch_with_wrong_high_watermark(
        self: Partition, request: FetchPartition, *, replica_id: int, **how: int
    ) -> FetchResult:
        result = right_fetch(self, request, replica_id=replica_id, **how)  # type: ignore[arg-type]
        data = result.data
        if replica_id != CONSUMER or data.error_code is not ErrorCode.NONE:
            return result
        wrong_data = structs.replace(data, high_watermark=data.high_watermark + 1)
        return structs.replace(result, data=wrong_data)

    monkeypatch.setattr(Partition, "fetch", fetch_with_wrong_high_watermark)
    assert "a consumer is told the high watermark" in reason_of(small())


def test_append_that_is_acknowledged_by_the_leader_alone_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Planted bug: an append is acknowledged before the high watermark has passed it."""
    right_init = CoordinatorAppends.__init__

    def wrong_init(self: CoordinatorAppends, host: Host, *rest: object, **topic: str) -> None:
        right_init(self, host, *rest, **topic)  # type: ignore[arg-type]
        self._waits_for_high_watermark = False

    monkeypatch.setattr(CoordinatorAppends, "__init__", wrong_init)
    assert "an acknowledged append is below the high watermark" in reason_of(small())


def test_commit_that_is_acknowledged_and_not_written_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Planted bug: a commit is answered with NONE (success), and is never appended."""

    def answer_without_append(
        turn: Turn,
        _shard: object,
        request_id: RequestId,
        request: OffsetCommitRequest,
        _version: int,
    ) -> ErrorCode:
        accepted = dict.fromkeys(partitions_of(request.topics), ErrorCode.NONE)
        turn.reply(request_id, offset_commit._response(accepted))
        return ErrorCode.NONE

    monkeypatch.setattr(offset_commit, "_store", answer_without_append)
    assert "an acknowledged commit is below the high watermark" in reason_of(small())


def test_success_after_a_failed_append_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted bug: a commit whose append failed is answered with NONE.

    The coordinator is cut off, so its appends wait for the followers. After the cut it learns that
    another broker leads, and the appends end with NOT_LEADER_OR_FOLLOWER. The append's own timeout
    is 60 s, so that it does not come first.
    """
    monkeypatch.setattr(offset_commit, "offset_append_error", lambda *_: ErrorCode.NONE)
    reason = reason_of(small(CUT, config={"offsets.commit.timeout.ms": 60_000}))
    assert "a failed append is not answered with success" in reason
    assert "ended with NOT_LEADER_OR_FOLLOWER, and its answer is a OffsetCommitResponse" in reason


def test_commit_that_is_appended_with_too_small_an_isr_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Planted bug: commits are appended with acks=1 in place of acks=all.

    Two of the three replicas are dead. With acks=all the append would be refused, because
    min.insync.replicas is 2.
    """
    monkeypatch.setattr(Turn, "acks_of_commits", ACKS_LEADER)
    reason = reason_of(small(crash(1), crash(2)))
    assert "an append with acks=all needs min.insync.replicas in sync" in reason
    assert "with ISR (0,), and min.insync.replicas is 2" in reason


def test_cleaning_that_removes_a_last_record_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted bug: of the records that a cleaning should keep, it removes one in each batch.

    `Compaction._last` returns the records of a batch that a cleaning should keep.
    """
    records_to_keep = Compaction._last

    def all_but_one(
        self: Compaction, batch: RecordBatch, expired: bool
    ) -> list[tuple[int, Record]]:
        return records_to_keep(self, batch, expired)[:-1]

    monkeypatch.setattr(Compaction, "_last", all_but_one)
    reason = reason_of(small(config=OFTEN_CLEANED))
    assert "a cleaning keeps the last record of each key" in reason
    assert "is gone" in reason


def test_cleaning_that_removes_nothing_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted bug: a cleaning keeps every batch as it is."""
    monkeypatch.setattr(Compaction, "_filter", lambda self, batch: self._left.append(batch))
    reason = reason_of(small(config=OFTEN_CLEANED))
    assert "a cleaning keeps the last record of each key" in reason
    assert "is left" in reason


def test_producers_states_that_a_truncation_leaves_are_found_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Planted bug: after a truncation a log still knows the sequence numbers of removed batches.

    The check must find this violation during the run. If a violation is found only after the run,
    its reason begins with "at the end".
    """
    monkeypatch.setattr(PartitionLog, "_rebuild_producers", lambda _self: None)
    reason = reason_of(idempotent(small(CUT)))
    assert not reason.startswith("at the end")
    assert "the state of a producer follows from the log" in reason


def test_truncation_without_a_row_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted bug: a follower truncates its log, and reports that it has changed nothing."""
    truncate = fetching._truncate

    def truncate_silently(*arguments: object) -> FollowerFetchResult:
        truncate(*arguments)  # type: ignore[arg-type]
        return FollowerFetchResult()

    monkeypatch.setattr(fetching, "_truncate", truncate_silently)
    assert "a truncation has its row" in reason_of(small(CUT))


def test_repeated_batch_that_is_refused_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted bug: a leader does not recognise a batch that a producer sends again.

    A response to Produce is lost at each broker. The producer cannot know that the request was
    carried out, so it sends the batch again.
    """
    monkeypatch.setattr(ProducerStates, "find_duplicate", lambda _self, _batch: None)
    assert "a repeated batch is a duplicate" in reason_of(idempotent(small(LOST_RESPONSE)))


def test_settings_of_a_topic_that_the_replay_loses_are_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Planted bug: no node reads the records with the settings of topics.

    Then all nodes agree on the same wrong settings. So no comparison of nodes finds the bug, but
    the check of created topics does.
    """
    monkeypatch.setattr(MetadataImage, "_replay_config", lambda _self, _record: None)
    assert "a created topic has its settings: __consumer_offsets" in reason_of(small())
