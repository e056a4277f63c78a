"""TxnOffsetCommit, and the effects that the end of a transaction has on a group.

A TxnOffsetCommit commits offsets in a producer's transaction. The offsets are pending until a
transaction marker (the record that ends a transaction) commits or aborts them.

`h` is a CoordinatorHarness: a coordinator with a log. The topic `__consumer_offsets` has one
partition, number 0, which the coordinator owns; with `owned=()` it owns none.

- Before the coordinator appends a commit, it asks the log to verify that the transaction is open.
  While `h.holds_verifications` is True, the verification ends with `h.verify`.
- Then the coordinator appends the commit. While `h.holds_appends` is True, the append ends with
  `h.complete`.
- `h.end_transaction` writes the producer's marker.
- `h.failover()` returns another coordinator, which has loaded a copy of the log.
- By default a commit is of producer 7, for the group "group".

Kafka's behaviour is in docs/kafka/BEHAVIOUR.md. That page also lists the cases of Kafka's tests;
GC-162 and MM-46 are ids of such cases.
"""

import msgspec
import pytest

from coordinator.states import GroupState
from coordinator.storage.store import offset_tombstone
from protocol.config import BrokerConfig
from protocol.errors import ErrorCode
from protocol.ids import TopicPartition
from protocol.records.batch import Record
from protocol.records.offsets import (
    GroupMetadataValue,
    encode_group_metadata_key,
    encode_group_metadata_value,
)
from tests.support.builders.requests import (
    leave_group,
    offset_commit,
    txn_offset_commit,
)
from tests.support.harness.coordinator_harness import CoordinatorHarness, txn_commit_errors

P, Q = 7, 8
"""Producer ids."""
FOO_0 = ("foo", 0)
FOO_1 = ("foo", 1)
NONE = ErrorCode.NONE


def stable_fetch_errors(h: CoordinatorHarness, *partitions: tuple[str, int]) -> list[ErrorCode]:
    """Fetch each partition with `require_stable` and return the errors.

    UNSTABLE_OFFSET_COMMIT means that a transaction with an offset of the partition is open.
    """
    return [h.fetched(*partition, require_stable=True).error_code for partition in partitions]


def test_transactional_commit_of_nothing_is_answered() -> None:
    """The answer lists no partition."""
    h = CoordinatorHarness()
    assert h.txn_commit(txn_offset_commit({})) == []


@pytest.mark.parametrize(
    ("log_error", "error"),
    [
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.TRANSACTION_ABORTABLE),
        (ErrorCode.NETWORK_EXCEPTION, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
    ],
)
def test_transaction_that_is_not_verified_is_refused(
    log_error: ErrorCode, error: ErrorCode
) -> None:
    """Each partition is refused and no record is appended, but the group is created.

    GC-162: errors of the verification of a transactional commit
    """
    h = CoordinatorHarness()
    h.holds_verifications = True
    request_id = h.submit(txn_offset_commit({FOO_0: 1, FOO_1: 2}))
    h.verify(log_error)
    assert txn_commit_errors(h.response(request_id)) == [error, error]
    assert h.log.get(0, []) == []
    assert h.state() is GroupState.EMPTY
    assert not h.group().offsets.has_offsets


def test_transactional_metadata_over_the_limit_is_refused_alone() -> None:
    """The limit is 4096 characters: a commit with 4097 appends nothing, one with 4096 is accepted.

    GC-163: transactional commit with metadata too large
    """
    h = CoordinatorHarness(config=BrokerConfig(offset_metadata_max_bytes=4_096))
    too_large = ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert h.txn_commit(txn_offset_commit({FOO_0: 1}, metadata="x" * 4_097)) == [too_large]
    assert h.log.get(0, []) == []
    assert not h.group().offsets.has_offsets
    assert h.txn_commit(txn_offset_commit({FOO_0: 1}, metadata="x" * 4_096)) == [NONE]


def test_transactional_commit_stores_what_is_not_too_large() -> None:
    """The partition with too large metadata is refused; the marker commits the other partition.

    MM-46: one of two with metadata too large, transactional
    """
    h = CoordinatorHarness(config=BrokerConfig(offset_metadata_max_bytes=3))
    good, bad = (
        txn_offset_commit({FOO_0: 1}, metadata="abc"),
        txn_offset_commit({FOO_1: 2}, metadata="abcd"),
    )
    request = msgspec.structs.replace(good, topics=(*good.topics, *bad.topics))
    assert h.txn_commit(request) == [NONE, ErrorCode.OFFSET_METADATA_TOO_LARGE]
    assert stable_fetch_errors(h, FOO_0, FOO_1) == [ErrorCode.UNSTABLE_OFFSET_COMMIT, NONE]
    h.end_transaction(P, is_commit=True)
    assert (h.offset(*FOO_0), h.offset(*FOO_1)) == (1, -1)


def test_transactional_commit_with_a_topic_that_names_no_partition_stores_the_others() -> None:
    """The topic "bar" names no partition and is skipped, as in a plain OffsetCommit."""
    h = CoordinatorHarness()
    request = txn_offset_commit({FOO_0: 1})
    empty = msgspec.structs.replace(request.topics[0], name="bar", partitions=())
    request = msgspec.structs.replace(request, topics=(empty, *request.topics))
    assert h.txn_commit(request) == [NONE]
    h.end_transaction(P, is_commit=True)
    assert h.offset(*FOO_0) == 1


def test_verification_guard_is_passed_to_the_append() -> None:
    """The verification returns a guard (a number). The log refuses a batch without it (KIP-890)."""
    h = CoordinatorHarness()
    h.holds_appends = h.holds_verifications = True
    h.submit(txn_offset_commit({FOO_0: 1}, producer=P, epoch=3))
    (verification,) = h.verifying
    assert verification.transactional_id == "tx-7"  # the builder makes it of the producer id
    assert (verification.producer_id, verification.producer_epoch) == (P, 3)

    h.verify(guard=42)
    (append,) = h.held
    assert (append.producer_id, append.producer_epoch) == (P, 3)
    assert (append.is_transactional, append.verification_guard) == (True, 42)


def test_transactional_commit_without_a_replica_is_answered_not_coordinator() -> None:
    """A broker without a replica of the partition fails the append with NOT_LEADER_OR_FOLLOWER.

    MM-41: commit without a replica
    """
    h = CoordinatorHarness()
    h.holds_appends = True
    request_id = h.submit(txn_offset_commit({FOO_0: 1}))
    h.complete(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert txn_commit_errors(h.response(request_id)) == [ErrorCode.NOT_COORDINATOR]


@pytest.mark.parametrize(
    ("version", "error"),
    [
        (1, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (2, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
    ],
)
def test_transactional_commit_while_loading_gets_the_error_of_its_version(
    version: int, error: ErrorCode
) -> None:
    """Before version 2, TxnOffsetCommit has no COORDINATOR_LOAD_IN_PROGRESS (BEHAVIOUR 2.0)."""
    h = CoordinatorHarness(owned=())
    h.coordinator.begin_load(0, leader_epoch=1, now_us=h.now_us)
    assert h.txn_commit(txn_offset_commit({FOO_0: 1}), version=version) == [error]


def test_transactional_commit_without_a_group_id_is_refused() -> None:
    """A plain OffsetCommit with an empty group id is accepted (BEHAVIOUR 2.0)."""
    h = CoordinatorHarness()
    commit = txn_offset_commit({FOO_0: 1}, group_id="")
    assert h.txn_commit(commit) == [ErrorCode.INVALID_GROUP_ID]


def test_transaction_abortable_is_sent_only_to_versions_that_have_it() -> None:
    """TRANSACTION_ABORTABLE came with v4 (BEHAVIOUR 0.1); older versions get INVALID_TXN_STATE.

    `tells_abortable` is True for a client that knows the error.
    """
    h = CoordinatorHarness()
    h.holds_verifications = True
    h.submit(txn_offset_commit({FOO_0: 1}), version=4)
    h.submit(txn_offset_commit({FOO_0: 1}), version=3)
    assert [verification.tells_abortable for verification in h.verifying] == [True, False]


# -- loading --


def test_load_that_fails_forgets_open_transactions_too() -> None:
    """A record without a key makes the load fail.

    Kafka's Scala coordinator, which is the model here, then serves the partition without groups.
    """
    h = CoordinatorHarness()
    h.txn_commit(txn_offset_commit({FOO_0: 10}))
    h.write_records(Record(None, b"v", 1))
    other = h.failover()
    # The pending offsets of a transaction are a part of their group, so none of them is left.
    assert other.coordinator.groups() == ()
    assert other.coordinator.is_owned(0)


def test_load_applies_group_records_of_a_transactional_batch_at_once() -> None:
    """Only offsets wait for the marker; the group exists although no marker follows.

    The batch also has a record of an unknown type, which does not stop the load.
    """
    h = CoordinatorHarness()
    value = GroupMetadataValue(
        protocol_type="consumer", generation=5, protocol=None, leader=None, members=()
    )
    h.write_records(
        Record(encode_group_metadata_key("group"), encode_group_metadata_value(value), 1),
        Record(b"\x00\x07\x91\xa1x", b"\x00\x00", 1),  # key version 7: unknown to this coordinator
        producer_id=P,
        is_transactional=True,
    )
    other = h.failover()
    assert (other.state(), other.summary().generation) == (GroupState.EMPTY, 5)


def test_load_of_a_tombstone_in_a_transaction_deletes_pending_offsets_only() -> None:
    """A tombstone (a record without a value) of producer P deletes P's pending offset of its key.

    The pending offset of Q and the committed offset remain (BEHAVIOUR 5.4).
    """
    h = CoordinatorHarness()
    h.commit(offset_commit({FOO_1: 1}))
    h.txn_commit(txn_offset_commit({FOO_0: 10, FOO_1: 20}, producer=P))
    h.txn_commit(txn_offset_commit({FOO_0: 30}, producer=Q))

    for partition in (FOO_0, FOO_1):
        tombstone = offset_tombstone("group", TopicPartition(*partition), 1)
        h.write_records(tombstone, producer_id=P, is_transactional=True)

    # Both markers commit: P has no pending offset left, so only Q's 30 is applied.
    other = h.failover()
    for producer in (P, Q):
        other.end_transaction(producer, is_commit=True)
    assert (other.offset(*FOO_0), other.offset(*FOO_1)) == (30, 1)


def test_load_skips_a_control_batch_without_records() -> None:
    """A control batch holds a marker. Compaction may remove the marker and leave the empty batch.

    The load then sees no end of the transaction, so the transaction remains open.

    MM-65: load: control batch without records
    """
    h = CoordinatorHarness()
    h.txn_commit(txn_offset_commit({FOO_0: 10}))
    h.write_records(producer_id=P, is_transactional=True, is_control=True)
    other = h.failover()
    assert other.coordinator.load_error(0) is None
    assert stable_fetch_errors(other, FOO_0) == [ErrorCode.UNSTABLE_OFFSET_COMMIT]


def test_load_restores_open_transactions() -> None:
    """A load of what a coordinator wrote gives the same state, with two producers' transactions."""
    h = CoordinatorHarness()
    (member_id,) = h.stable_group(size=1)
    h.txn_commit(txn_offset_commit({FOO_0: 1}, member_id, generation_id=1, producer=P))
    h.txn_commit(txn_offset_commit({FOO_1: 2}, member_id, generation_id=1, producer=Q))
    h.end_transaction(Q, is_commit=True)
    h.commit(offset_commit({("foo", 2): 3}, member_id, generation_id=1))

    other = h.failover()
    before, after = h.group().offsets, other.group().offsets
    assert after.committed() == before.committed()
    assert before.producers() == (P,)
    assert after.producers() == (P,)

    # After the leave the group is Empty in `h`, and still Stable in `other`, which has not seen
    # the leave. The marker commits the offset in both.
    h.leave(leave_group(member_id))
    for coordinator in (h, other):
        coordinator.end_transaction(P, is_commit=True)
    assert after.committed() == before.committed()
