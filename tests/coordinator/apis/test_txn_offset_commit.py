"""TxnOffsetCommit, and what the end of a transaction does to the offsets of a group.

A producer can commit the offsets of a consumer group in its transaction, with TxnOffsetCommit. Such
a commit takes three steps:

1. The group's coordinator asks the log to verify that the transaction is open.
2. The coordinator appends the offsets to the log. The offsets are now pending: no client reads them
   yet.
3. A marker, the record that ends the transaction, is written to the log. The marker commits the
   offsets or aborts them.

In these tests `h` is a CoordinatorHarness: a group coordinator with a log, which has one partition.
`h.txn_commit(txn_offset_commit({("foo", 0): 5}))` commits offset 5 of foo-0 for the group "group",
in a transaction of producer 7, and returns an error for each partition. `h.end_transaction` writes
the marker. If a test sets `h.holds_verifications`, step 1 waits until the test calls `h.verify`.
With `h.holds_appends` step 2 waits until the test calls `h.complete`. `h.failover()` returns
another coordinator, which has loaded a copy of the log.

Kafka's behaviour is in docs/kafka/BEHAVIOUR.md. Ids such as GC-162 and MM-46 are cases of Kafka's
tests, which this page lists.
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
"""The ids of two producers."""
FOO_0 = ("foo", 0)
FOO_1 = ("foo", 1)
NONE = ErrorCode.NONE


def stable_fetch_errors(h: CoordinatorHarness, *partitions: tuple[str, int]) -> list[ErrorCode]:
    """Fetch each partition with `require_stable`, and return the errors.

    UNSTABLE_OFFSET_COMMIT means that the partition has a pending offset.
    """
    return [h.fetched(*partition, require_stable=True).error_code for partition in partitions]


def test_transactional_commit_of_nothing_is_answered() -> None:
    """The request names no partition, so the answer has no partition either."""
    h = CoordinatorHarness()
    assert h.txn_commit(txn_offset_commit({})) == []


@pytest.mark.parametrize(
    ("verification_error", "error_in_answer"),
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
def test_commit_whose_transaction_is_not_verified_is_refused(
    verification_error: ErrorCode, error_in_answer: ErrorCode
) -> None:
    """The answer has the same error for each partition, and nothing is appended.

    The group is created nevertheless. In the answer, some errors of the verification are replaced
    by errors that the client understands.

    GC-162: errors of the verification of a transactional commit
    """
    h = CoordinatorHarness()
    h.holds_verifications = True
    request_id = h.submit(txn_offset_commit({FOO_0: 1, FOO_1: 2}))
    h.verify(verification_error)
    assert txn_commit_errors(h.response(request_id)) == [error_in_answer] * 2
    # The log has a list of batches for each of its partitions. Partition 0 has none.
    assert h.log.get(0, []) == []
    assert h.state() is GroupState.EMPTY
    assert not h.group().offsets.has_offsets


def test_transactional_commit_with_too_much_metadata_is_refused() -> None:
    """Metadata of 4097 characters are refused, and metadata of 4096 characters are accepted.

    Kafka counts characters, although its setting is called offset.metadata.max.bytes.

    GC-163: transactional commit with metadata too large
    """
    h = CoordinatorHarness(config=BrokerConfig(offset_metadata_max_bytes=4_096))
    too_large = ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert h.txn_commit(txn_offset_commit({FOO_0: 1}, metadata="x" * 4_097)) == [too_large]
    assert h.log.get(0, []) == []
    assert not h.group().offsets.has_offsets
    assert h.txn_commit(txn_offset_commit({FOO_0: 1}, metadata="x" * 4_096)) == [NONE]


def test_transactional_commit_stores_what_is_not_too_large() -> None:
    """The metadata of one partition are too large, so only the other partition is stored.

    MM-46: one of two with metadata too large, transactional
    """
    h = CoordinatorHarness(config=BrokerConfig(offset_metadata_max_bytes=3))
    fits = txn_offset_commit({FOO_0: 1}, metadata="abc")
    too_large = txn_offset_commit({FOO_1: 2}, metadata="abcd")
    request = msgspec.structs.replace(fits, topics=(*fits.topics, *too_large.topics))
    assert h.txn_commit(request) == [NONE, ErrorCode.OFFSET_METADATA_TOO_LARGE]
    assert stable_fetch_errors(h, FOO_0, FOO_1) == [ErrorCode.UNSTABLE_OFFSET_COMMIT, NONE]
    h.end_transaction(P, is_commit=True)
    assert h.offset(*FOO_0) == 1
    assert h.offset(*FOO_1) == -1  # no offset


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
    """The verification returns a number, the guard, which the append must repeat (KIP-890).

    The log refuses a batch without this number. So the transaction cannot end unnoticed between the
    verification and the append.
    """
    h = CoordinatorHarness()
    h.holds_verifications = True
    h.holds_appends = True
    h.submit(txn_offset_commit({FOO_0: 1}, producer=P, epoch=3))
    (verification,) = h.verifying
    # `txn_offset_commit` makes the transactional id from the producer id P, which is 7.
    assert verification.transactional_id == "tx-7"
    assert verification.producer_id == P
    assert verification.producer_epoch == 3

    guard = 42
    h.verify(guard=guard)
    (append,) = h.held
    assert append.is_transactional
    assert append.verification_guard == guard
    assert append.producer_id == P
    assert append.producer_epoch == 3


def test_transactional_commit_without_a_replica_is_answered_not_coordinator() -> None:
    """If the broker has no replica of the partition, the append fails with NOT_LEADER_OR_FOLLOWER.

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
    """Clients know COORDINATOR_LOAD_IN_PROGRESS since version 2 of the request (BEHAVIOUR 2.0)."""
    h = CoordinatorHarness(owned=())
    h.coordinator.begin_load(0, leader_epoch=1, now_us=h.now_us)
    assert h.txn_commit(txn_offset_commit({FOO_0: 1}), version=version) == [error]


def test_transactional_commit_without_a_group_id_is_refused() -> None:
    """Only a commit outside of a transaction may have an empty group id (BEHAVIOUR 2.0)."""
    h = CoordinatorHarness()
    commit = txn_offset_commit({FOO_0: 1}, group_id="")
    assert h.txn_commit(commit) == [ErrorCode.INVALID_GROUP_ID]


def test_transaction_abortable_is_sent_only_to_versions_that_have_it() -> None:
    """A client knows the error TRANSACTION_ABORTABLE if it sends TxnOffsetCommit in version 4.

    `tells_abortable` tells the log whether the client knows this error. For other clients the log
    returns INVALID_TXN_STATE instead (BEHAVIOUR 0.1).
    """
    h = CoordinatorHarness()
    h.holds_verifications = True
    h.submit(txn_offset_commit({FOO_0: 1}), version=4)
    h.submit(txn_offset_commit({FOO_0: 1}), version=3)
    assert [verification.tells_abortable for verification in h.verifying] == [True, False]


# -- loading --


def test_load_that_fails_forgets_open_transactions_too() -> None:
    """A record without a key makes the load fail.

    Then the coordinator serves the partition as if it had no groups, like Kafka's Scala
    coordinator. The pending offsets of a transaction belong to a group, so they are gone, too.
    """
    h = CoordinatorHarness()
    h.txn_commit(txn_offset_commit({FOO_0: 10}))
    h.write_records(Record(None, b"v", 1))  # no key, the value "v", and the timestamp 1 ms
    other = h.failover()
    assert other.coordinator.groups() == ()
    assert other.coordinator.is_owned(0)


def test_load_applies_group_records_of_a_transactional_batch_at_once() -> None:
    """The load creates the group although no marker follows. Only offsets wait for a marker.

    The batch also has a record of a kind that this coordinator does not know. The load skips it.
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
    assert other.state() is GroupState.EMPTY
    assert other.summary().generation == 5


def test_load_of_a_tombstone_in_a_transaction_deletes_pending_offsets_only() -> None:
    """A tombstone in P's transaction deletes only P's own pending offset of that partition.

    A tombstone is a record without a value. Here it deletes neither the pending offset of Q for
    foo-0 nor the committed offset of foo-1 (BEHAVIOUR 5.4). So after both transactions have ended,
    foo-0 has the offset of Q, 30, and foo-1 still has the committed offset, 1.
    """
    h = CoordinatorHarness()
    h.commit(offset_commit({FOO_1: 1}))
    h.txn_commit(txn_offset_commit({FOO_0: 10, FOO_1: 20}, producer=P))
    h.txn_commit(txn_offset_commit({FOO_0: 30}, producer=Q))

    for partition in (FOO_0, FOO_1):
        tombstone = offset_tombstone("group", TopicPartition(*partition), now_ms=1)
        h.write_records(tombstone, producer_id=P, is_transactional=True)

    other = h.failover()
    for producer in (P, Q):
        other.end_transaction(producer, is_commit=True)
    assert other.offset(*FOO_0) == 30
    assert other.offset(*FOO_1) == 1


def test_load_skips_a_control_batch_without_records() -> None:
    """A control batch has a marker. The cleaner of the log may remove the marker from its batch.

    Then the load finds an empty batch, and no end of the transaction. So the transaction is open.

    MM-65: load: control batch without records
    """
    h = CoordinatorHarness()
    h.txn_commit(txn_offset_commit({FOO_0: 10}))
    h.write_records(producer_id=P, is_transactional=True, is_control=True)
    other = h.failover()
    assert other.coordinator.load_error(0) is None
    assert stable_fetch_errors(other, FOO_0) == [ErrorCode.UNSTABLE_OFFSET_COMMIT]


def test_load_restores_open_transactions() -> None:
    """The coordinator `h` writes a log. `other` loads this log, and has the same pending offsets.

    The transaction of Q has ended, and the transaction of P is open.
    """
    h = CoordinatorHarness()
    (member_id,) = h.stable_group(size=1)
    h.txn_commit(txn_offset_commit({FOO_0: 1}, member_id, generation_id=1, producer=P))
    h.txn_commit(txn_offset_commit({FOO_1: 2}, member_id, generation_id=1, producer=Q))
    h.end_transaction(Q, is_commit=True)
    h.commit(offset_commit({("foo", 2): 3}, member_id, generation_id=1))

    other = h.failover()
    written, loaded = h.group().offsets, other.group().offsets
    assert loaded.committed() == written.committed()
    assert written.producers() == (P,)
    assert loaded.producers() == (P,)

    # Now the only member leaves the group in `h`, so this group is Empty. In `other` the group is
    # still Stable. The marker of P commits the pending offset in both groups.
    h.leave(leave_group(member_id))
    for coordinator in (h, other):
        coordinator.end_transaction(P, is_commit=True)
    assert loaded.committed() == written.committed()
