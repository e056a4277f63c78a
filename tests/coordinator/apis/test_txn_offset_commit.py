"""TxnOffsetCommit and the ends of transactions, as a group sees them (BEHAVIOUR 2.8, 4.10)."""

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
from protocol.trace import TraceKind
from tests.support.builders.requests import (
    join_group,
    leave_group,
    offset_commit,
    txn_offset_commit,
)
from tests.support.harness.coordinator_harness import CoordinatorHarness, txn_commit_errors

P, Q = 7, 8
FOO = ("foo", 0)
TP = TopicPartition(*FOO)
BAR = ("foo", 1)
NONE = ErrorCode.NONE


def unstable(h: CoordinatorHarness, *partitions: tuple[str, int]) -> list[ErrorCode]:
    """Return the errors of a fetch of stable offsets."""
    return [h.fetched(*each, require_stable=True).error_code for each in partitions]


def test_transactional_commit_counts_from_its_commit_marker_on() -> None:
    """GC-101, MM-38: nothing is visible before."""
    h = CoordinatorHarness()
    assert h.txn_commit(txn_offset_commit({FOO: 10})) == [NONE]
    assert h.offset(*FOO) == -1
    h.end_transaction(P, is_commit=True)
    assert h.offset(*FOO) == 10
    (completed,) = h.events(TraceKind.TRANSACTION_COMPLETED)
    assert completed.detail == {"producer_id": P, "committed": True, "offsets": 1}


def test_transactional_commit_of_nothing_is_answered() -> None:
    h = CoordinatorHarness()
    assert h.txn_commit(txn_offset_commit({})) == []


def test_transactional_commit_pends_once_it_is_acknowledged() -> None:
    """What the log does not have waits for no marker."""
    h = CoordinatorHarness()
    h.holds_appends = True
    for error in (ErrorCode.NOT_ENOUGH_REPLICAS, NONE):
        h.submit(txn_offset_commit({FOO: 10}), version=4)
        h.complete(error)
    (pending,) = h.events(TraceKind.TXN_COMMIT_PENDING)
    assert (pending.partition, pending.offset, pending.detail) == ("foo-0", 10, {"producer_id": P})


def test_aborted_transactional_commit_never_counts() -> None:
    """GC-102, MM-40."""
    h = CoordinatorHarness()
    h.txn_commit(txn_offset_commit({FOO: 10}))
    h.end_transaction(P, is_commit=False)
    assert h.offset(*FOO) == -1
    assert not h.group().offsets.has_offsets


@pytest.mark.parametrize(("is_commit", "offset"), [(True, 10), (False, -1)])
def test_fetch_of_stable_offsets_waits_for_the_marker(is_commit: bool, offset: int) -> None:
    """GC-103, GC-104: a partition that the transaction has not touched is stable."""
    h = CoordinatorHarness()
    h.txn_commit(txn_offset_commit({FOO: 10}))
    assert unstable(h, FOO, BAR) == [ErrorCode.UNSTABLE_OFFSET_COMMIT, NONE]
    assert h.fetched(*FOO, require_stable=True).committed_offset == -1
    h.end_transaction(P, is_commit=is_commit)
    found = h.fetched(*FOO, require_stable=True)
    assert (found.error_code, found.committed_offset) == (NONE, offset)


def test_marker_without_anything_pending_changes_nothing() -> None:
    """GC-105: a COMMIT behind the ABORT, and one of a producer that nobody knows."""
    h = CoordinatorHarness()
    h.txn_commit(txn_offset_commit({FOO: 10}))
    h.end_transaction(P, is_commit=False)
    before = len(h.trace)
    h.end_transaction(P, is_commit=True)
    h.end_transaction(99, is_commit=True)
    assert h.offset(*FOO) == -1
    assert len(h.trace) == before


def test_marker_reaches_the_groups_of_its_partition_only() -> None:
    """GC-106: one producer, two groups on different offsets partitions."""
    h = CoordinatorHarness(num_partitions=2, owned=(0, 1))
    first, second = "a", "b"
    assert (h.coordinator.partition_of(first), h.coordinator.partition_of(second)) == (1, 0)
    h.txn_commit(txn_offset_commit({FOO: 10}, group_id=first))
    h.txn_commit(txn_offset_commit({FOO: 20}, group_id=second))
    h.end_transaction(P, is_commit=True, partitions=(1,))
    assert (h.offset(*FOO, group_id=first), h.offset(*FOO, group_id=second)) == (10, -1)
    h.end_transaction(P, is_commit=True, partitions=(0,))
    assert h.offset(*FOO, group_id=second) == 20


def test_each_producers_marker_counts_its_own_commits() -> None:
    """GC-107: two producers, one group; what one still holds is unstable for both."""
    h = CoordinatorHarness()
    h.txn_commit(txn_offset_commit({FOO: 10, BAR: 10}, producer=P))
    h.txn_commit(txn_offset_commit({BAR: 20}, producer=Q))
    h.end_transaction(Q, is_commit=True)
    assert (h.offset(*FOO), h.offset(*BAR)) == (-1, 20)
    assert unstable(h, FOO, BAR) == [ErrorCode.UNSTABLE_OFFSET_COMMIT] * 2
    h.end_transaction(P, is_commit=True)
    # The log has the second producer's later: the first one's must not replace it.
    assert (h.offset(*FOO), h.offset(*BAR)) == (10, 20)


def test_transactional_commit_that_names_a_fenced_instance_is_refused() -> None:
    """GC-115: whatever member id comes with the instance id, but the right one."""
    h = CoordinatorHarness()
    join = h.submit(join_group(instance="i"))
    h.advance(0)
    member = h.join_response(join).member_id
    for wrong in ("", "other"):
        commit = txn_offset_commit({FOO: 1}, wrong, 1, instance="i")
        assert h.txn_commit(commit) == [ErrorCode.FENCED_INSTANCE_ID]
    assert h.txn_commit(txn_offset_commit({FOO: 1}, member, 1, instance="i")) == [NONE]


def test_transactional_commit_of_a_member_is_fenced_by_its_generation() -> None:
    """GC-116, GC-118, GC-119, and -1 of a known member."""
    h = CoordinatorHarness()
    leader, _ = h.stable_group()
    for member_id, generation, error in (
        ("nobody", 1, ErrorCode.UNKNOWN_MEMBER_ID),
        ("", 1, ErrorCode.UNKNOWN_MEMBER_ID),
        ("", 0, ErrorCode.UNKNOWN_MEMBER_ID),
        (leader, 6, ErrorCode.ILLEGAL_GENERATION),
        (leader, -1, ErrorCode.ILLEGAL_GENERATION),
        (leader, 1, NONE),
    ):
        assert h.txn_commit(txn_offset_commit({FOO: 1}, member_id, generation)) == [error]


def test_transactional_commit_is_taken_while_assignments_are_awaited() -> None:
    """GC-117: where a plain commit is answered REBALANCE_IN_PROGRESS."""
    h = CoordinatorHarness()
    member_id = h.new_member_id()
    h.submit(join_group(member_id))
    h.advance(0)
    assert h.state() is GroupState.COMPLETING_REBALANCE
    assert h.txn_commit(txn_offset_commit({FOO: 1}, member_id, 1)) == [NONE]


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
    """GC-162: for every partition; nothing is appended, and the group is there all the same."""
    h = CoordinatorHarness()
    h.holds_verifications = True
    request_id = h.submit(txn_offset_commit({FOO: 1, BAR: 2}))
    h.verify(log_error)
    assert txn_commit_errors(h.response(request_id)) == [error, error]
    assert h.log.get(0, []) == []
    assert h.state() is GroupState.EMPTY
    assert not h.group().offsets.has_offsets


def test_transactional_metadata_over_the_limit_is_refused_alone() -> None:
    """GC-163: 4097 characters; nothing is appended."""
    h = CoordinatorHarness(config=BrokerConfig(offset_metadata_max_bytes=4_096))
    too_large = ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert h.txn_commit(txn_offset_commit({FOO: 1}, metadata="x" * 4_097)) == [too_large]
    assert h.log.get(0, []) == []
    assert not h.group().offsets.has_offsets
    assert h.txn_commit(txn_offset_commit({FOO: 1}, metadata="x" * 4_096)) == [NONE]


def test_transactional_commit_stores_what_is_not_too_large() -> None:
    """MM-46: of two partitions, one too large: the good one counts with the marker."""
    h = CoordinatorHarness(config=BrokerConfig(offset_metadata_max_bytes=3))
    good, bad = (
        txn_offset_commit({FOO: 1}, metadata="abc"),
        txn_offset_commit({BAR: 2}, metadata="abcd"),
    )
    request = msgspec.structs.replace(good, topics=(*good.topics, *bad.topics))
    assert h.txn_commit(request) == [NONE, ErrorCode.OFFSET_METADATA_TOO_LARGE]
    assert unstable(h, FOO, BAR) == [ErrorCode.UNSTABLE_OFFSET_COMMIT, NONE]
    h.end_transaction(P, is_commit=True)
    assert (h.offset(*FOO), h.offset(*BAR)) == (1, -1)


def test_transactional_commit_with_a_topic_that_names_no_partition_stores_the_others() -> None:
    """As a plain one does."""
    h = CoordinatorHarness()
    request = txn_offset_commit({FOO: 1})
    empty = msgspec.structs.replace(request.topics[0], name="bar", partitions=())
    request = msgspec.structs.replace(request, topics=(empty, *request.topics))
    assert h.txn_commit(request) == [NONE]
    h.end_transaction(P, is_commit=True)
    assert h.offset(*FOO) == 1


def test_guard_of_the_verification_goes_into_the_append() -> None:
    """MM-38: the log takes the batch with it only (KIP-890)."""
    h = CoordinatorHarness()
    h.holds_appends = h.holds_verifications = True
    h.submit(txn_offset_commit({FOO: 1}, producer=P, epoch=3))
    (asked,) = h.verifying
    assert (asked.transactional_id, asked.producer_id, asked.producer_epoch) == ("tx-7", P, 3)
    h.verify(guard=42)
    (append,) = h.held
    assert (append.producer_id, append.producer_epoch) == (P, 3)
    assert (append.is_transactional, append.verification_guard) == (True, 42)


def test_verifications_that_wait_at_once_are_told_apart() -> None:
    """Each outcome reaches its own request."""
    h = CoordinatorHarness()
    h.holds_verifications = True
    first = h.submit(txn_offset_commit({FOO: 1}, producer=P))
    second = h.submit(txn_offset_commit({BAR: 2}, producer=Q))
    h.verify()
    h.verify(ErrorCode.INVALID_TXN_STATE)
    assert txn_commit_errors(h.response(first)) == [NONE]
    assert txn_commit_errors(h.response(second)) == [ErrorCode.INVALID_TXN_STATE]


def test_transactional_commit_that_fails_leaves_nothing_for_the_marker() -> None:
    """GM-38, MM-39: NOT_ENOUGH_REPLICAS; a later COMMIT has no effect."""
    h = CoordinatorHarness()
    h.holds_appends = True
    request_id = h.submit(txn_offset_commit({FOO: 1}))
    h.complete(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert txn_commit_errors(h.response(request_id)) == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    assert not h.group().offsets.has_offsets
    h.end_transaction(P, is_commit=True)
    assert h.offset(*FOO) == -1


def test_transactional_commit_where_there_is_no_log_is_told_so() -> None:
    """MM-41."""
    h = CoordinatorHarness()
    h.holds_appends = True
    request_id = h.submit(txn_offset_commit({FOO: 1}))
    h.complete(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert txn_commit_errors(h.response(request_id)) == [ErrorCode.NOT_COORDINATOR]


@pytest.mark.parametrize(
    ("version", "error"),
    [
        (1, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (2, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
    ],
)
def test_transactional_commit_while_loading_is_told_in_its_versions_words(
    version: int, error: ErrorCode
) -> None:
    """GC-001: older clients do not know COORDINATOR_LOAD_IN_PROGRESS here (BEHAVIOUR 2.0)."""
    h = CoordinatorHarness(owned=())
    h.coordinator.begin_load(0, 1, h.now_us)
    assert h.txn_commit(txn_offset_commit({FOO: 1}), version=version) == [error]


def test_transactional_commit_without_a_group_id_is_refused() -> None:
    """Unlike a plain one (BEHAVIOUR 2.0)."""
    h = CoordinatorHarness()
    commit = txn_offset_commit({FOO: 1}, group_id="")
    assert h.txn_commit(commit) == [ErrorCode.INVALID_GROUP_ID]


def test_only_clients_that_know_it_are_told_that_a_transaction_may_be_aborted() -> None:
    """TRANSACTION_ABORTABLE is v4's (BEHAVIOUR 0.1); below it is INVALID_TXN_STATE."""
    h = CoordinatorHarness()
    h.holds_verifications = True
    h.submit(txn_offset_commit({FOO: 1}), version=4)
    h.submit(txn_offset_commit({FOO: 1}), version=3)
    assert [each.tells_abortable for each in h.verifying] == [True, False]


def test_transactional_commit_keeps_no_session_alive() -> None:
    """A member that does nothing else is expired."""
    h = CoordinatorHarness()
    leader, follower = h.stable_group()
    h.advance(9_000)
    h.txn_commit(txn_offset_commit({FOO: 1}, follower, 1))
    h.beat(leader, 1)
    h.advance(1_000)
    assert h.summary().members == (leader,)


def test_plain_commit_behind_a_transactional_one_stays_when_that_commits() -> None:
    """GM-35: the order in the log decides, not that of the marker."""
    h = CoordinatorHarness()
    h.txn_commit(txn_offset_commit({FOO: 10}))
    h.commit(offset_commit({FOO: 5}))
    assert h.offset(*FOO) == 5
    h.end_transaction(P, is_commit=True)
    assert h.offset(*FOO) == 5
    assert unstable(h, FOO) == [NONE]


@pytest.mark.parametrize(("is_commit", "offset"), [(True, 10), (False, 5)])
def test_plain_commit_is_replaced_by_a_later_transactional_one_that_commits(
    is_commit: bool, offset: int
) -> None:
    """GM-36, GM-37: it stays visible until the marker, and after an ABORT."""
    h = CoordinatorHarness()
    h.commit(offset_commit({FOO: 5}))
    h.txn_commit(txn_offset_commit({FOO: 10}))
    assert h.offset(*FOO) == 5
    h.end_transaction(P, is_commit=is_commit)
    assert h.offset(*FOO) == offset


def test_marker_that_overtakes_the_append_forgets_the_commit() -> None:
    """Kafka fails there: the log does not have what it is to count."""
    h = CoordinatorHarness()
    h.holds_appends = True
    h.submit(txn_offset_commit({FOO: 10}))
    h.end_transaction(P, is_commit=True)
    h.complete()
    assert h.offset(*FOO) == -1
    assert unstable(h, FOO) == [NONE]


def test_group_with_a_pending_transactional_offset_alone_survives_the_cleanup() -> None:
    """MM-06 and the recording b-txn-cleanup: it goes once the transaction is aborted."""
    h = CoordinatorHarness()
    h.txn_commit(txn_offset_commit({FOO: 10}))
    h.execute(h.coordinator.expire_offsets(h.now_us))
    assert h.state() is GroupState.EMPTY
    h.end_transaction(P, is_commit=False)
    h.execute(h.coordinator.expire_offsets(h.now_us))
    assert h.coordinator.groups() == ()


def test_expiry_takes_the_committed_offset_and_leaves_the_transactions() -> None:
    """BEHAVIOUR 4.11 [S]: a transaction spares nothing, and loses nothing."""
    h = CoordinatorHarness(config=BrokerConfig(offsets_retention_minutes=1))
    h.commit(offset_commit({FOO: 5}))
    h.txn_commit(txn_offset_commit({FOO: 10}))
    h.advance(60_000)
    h.execute(h.coordinator.expire_offsets(h.now_us))
    assert h.offset(*FOO) == -1
    h.end_transaction(P, is_commit=True)
    assert h.offset(*FOO) == 10


def test_deletion_of_a_partition_takes_what_a_transaction_committed_of_it() -> None:
    """BEHAVIOUR 2.9, 2.13: the marker finds the other partition only."""
    h = CoordinatorHarness()
    h.txn_commit(txn_offset_commit({FOO: 10, BAR: 20}))
    h.execute(h.coordinator.partitions_deleted((TP,), h.now_us))
    h.end_transaction(P, is_commit=True)
    assert (h.offset(*FOO), h.offset(*BAR)) == (-1, 20)


def test_unload_leaves_nothing_for_the_marker() -> None:
    """The next coordinator reads both from the log."""
    h = CoordinatorHarness()
    h.holds_verifications = True
    request_id = h.submit(txn_offset_commit({FOO: 10}))
    h.unload()
    h.verify()
    assert txn_commit_errors(h.response(request_id)) == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    h.end_transaction(P, is_commit=True)
    assert h.coordinator.groups() == ()


def test_commit_that_is_in_flight_when_the_group_is_unloaded_is_answered_by_the_log() -> None:
    """As a plain one is."""
    h = CoordinatorHarness()
    h.holds_appends = True
    request_id = h.submit(txn_offset_commit({FOO: 10}))
    h.unload()
    h.complete()
    assert txn_commit_errors(h.response(request_id)) == [NONE]


# -- loading --


def test_load_counts_committed_transactions_without_a_group_record() -> None:
    """MM-04."""
    h = CoordinatorHarness()
    h.txn_commit(txn_offset_commit({FOO: 10, BAR: 20}))
    h.end_transaction(P, is_commit=True)
    other = h.failover()
    assert (other.offset(*FOO), other.offset(*BAR)) == (10, 20)
    assert unstable(other, FOO, BAR) == [NONE, NONE]


def test_load_of_aborted_transactions_alone_gives_no_group() -> None:
    """MM-05."""
    h = CoordinatorHarness()
    h.txn_commit(txn_offset_commit({FOO: 10}))
    h.end_transaction(P, is_commit=False)
    assert h.failover().coordinator.groups() == ()


def test_load_of_an_open_transaction_gives_an_empty_group_that_waits() -> None:
    """MM-06, FO-08: the marker comes to the new coordinator."""
    h = CoordinatorHarness()
    h.txn_commit(txn_offset_commit({FOO: 10}))
    other = h.failover()
    assert (other.state(), other.summary().generation) == (GroupState.EMPTY, 0)
    assert (len(other.group().offsets), other.group().offsets.has_offsets) == (0, True)
    assert unstable(other, FOO, BAR) == [ErrorCode.UNSTABLE_OFFSET_COMMIT, NONE]
    other.end_transaction(P, is_commit=True)
    assert other.offset(*FOO) == 10


def test_load_of_an_aborted_and_a_committed_transaction_counts_the_latter() -> None:
    """MM-07: of one producer."""
    h = CoordinatorHarness()
    h.txn_commit(txn_offset_commit({FOO: 1, BAR: 1}))
    h.end_transaction(P, is_commit=False)
    h.txn_commit(txn_offset_commit({BAR: 2}))
    h.end_transaction(P, is_commit=True)
    other = h.failover()
    assert (other.offset(*FOO), other.offset(*BAR)) == (-1, 2)
    assert unstable(other, FOO, BAR) == [NONE, NONE]


def test_load_tells_committed_aborted_and_open_transactions_apart() -> None:
    """MM-08: also where the open one has a partition that an aborted one had."""
    h = CoordinatorHarness()
    h.txn_commit(txn_offset_commit({FOO: 1}))
    h.end_transaction(P, is_commit=True)
    h.txn_commit(txn_offset_commit({BAR: 2}))
    h.end_transaction(P, is_commit=False)
    h.txn_commit(txn_offset_commit({BAR: 3, ("foo", 2): 4}))
    other = h.failover()
    stored = other.group().offsets.committed()
    assert {
        str(tp): (each.value.offset, each.appended_batch_offset) for tp, each in stored.items()
    } == {"foo-0": (1, 0)}
    assert [other.offset("foo", index) for index in range(3)] == [1, -1, -1]
    assert unstable(other, FOO, BAR, ("foo", 2)) == [
        NONE,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
    ]
    other.end_transaction(P, is_commit=True)
    assert [other.offset("foo", index) for index in range(3)] == [1, 3, 4]


def test_load_knows_the_batch_of_each_producers_commits() -> None:
    """MM-09: two producers, both committed."""
    h = CoordinatorHarness()
    h.txn_commit(txn_offset_commit({FOO: 1}, producer=P))
    h.txn_commit(txn_offset_commit({BAR: 2}, producer=Q))
    h.end_transaction(P, is_commit=True)
    h.end_transaction(Q, is_commit=True)
    stored = h.failover().group().offsets.committed()
    assert {str(tp): each.appended_batch_offset for tp, each in stored.items()} == {
        "foo-0": 0,
        "foo-1": 1,
    }


def test_load_keeps_a_plain_commit_behind_a_transactional_one() -> None:
    """MM-10: transaction, plain commit, marker: the order of the commits in the log counts."""
    h = CoordinatorHarness()
    h.txn_commit(txn_offset_commit({FOO: 10}))
    h.commit(offset_commit({FOO: 5}))
    h.end_transaction(P, is_commit=True)
    (stored,) = h.failover().group().offsets.committed().values()
    assert (stored.value.offset, stored.appended_batch_offset) == (5, 1)


def test_load_counts_a_transactional_commit_behind_a_plain_one() -> None:
    """MM-11."""
    h = CoordinatorHarness()
    h.commit(offset_commit({FOO: 5}))
    h.txn_commit(txn_offset_commit({FOO: 10}))
    h.end_transaction(P, is_commit=True)
    (stored,) = h.failover().group().offsets.committed().values()
    assert (stored.value.offset, stored.appended_batch_offset) == (10, 1)


def test_load_that_fails_forgets_open_transactions_too() -> None:
    """[S] serves the partition without anything then."""
    h = CoordinatorHarness()
    h.txn_commit(txn_offset_commit({FOO: 10}))
    h.write_records(Record(None, b"v", 1))
    other = h.failover()
    assert other.coordinator.groups() == ()
    assert other.coordinator.is_owned(0)


def test_load_reads_what_is_no_offset_in_a_transactional_batch() -> None:
    """A group's record counts at once, and what nobody knows is counted."""
    h = CoordinatorHarness()
    value = GroupMetadataValue(
        protocol_type="consumer", generation=5, protocol=None, leader=None, members=()
    )
    h.write_records(
        Record(encode_group_metadata_key("group"), encode_group_metadata_value(value), 1),
        Record(b"\x00\x07\x91\xa1x", b"\x00\x00", 1),
        producer_id=P,
        is_transactional=True,
    )
    other = h.failover()
    assert (other.state(), other.summary().generation) == (GroupState.EMPTY, 5)


def test_load_of_a_tombstone_in_a_transaction_takes_what_it_had_committed() -> None:
    """BEHAVIOUR 5.4: of that producer, and of what is pending; what counts already stays."""
    h = CoordinatorHarness()
    h.commit(offset_commit({BAR: 1}))
    h.txn_commit(txn_offset_commit({FOO: 10, BAR: 20}, producer=P))
    h.txn_commit(txn_offset_commit({FOO: 30}, producer=Q))
    for partition in (FOO, BAR):
        tombstone = offset_tombstone("group", TopicPartition(*partition), 1)
        h.write_records(tombstone, producer_id=P, is_transactional=True)
    other = h.failover()
    for producer in (P, Q):
        other.end_transaction(producer, is_commit=True)
    assert (other.offset(*FOO), other.offset(*BAR)) == (30, 1)


def test_load_skips_a_control_batch_without_records() -> None:
    """MM-65: compaction may leave one behind; the transaction stays open."""
    h = CoordinatorHarness()
    h.txn_commit(txn_offset_commit({FOO: 10}))
    h.write_records(producer_id=P, is_transactional=True, is_control=True)
    other = h.failover()
    assert other.coordinator.load_error(0) is None
    assert unstable(other, FOO) == [ErrorCode.UNSTABLE_OFFSET_COMMIT]


def test_load_gives_back_what_transactions_left() -> None:
    """load(write(state)) == state, with open transactions of two producers in one group."""
    h = CoordinatorHarness()
    (member_id,) = h.stable_group(1)
    h.txn_commit(txn_offset_commit({FOO: 1}, member_id, 1, producer=P))
    h.txn_commit(txn_offset_commit({BAR: 2}, member_id, 1, producer=Q))
    h.end_transaction(Q, is_commit=True)
    h.commit(offset_commit({("foo", 2): 3}, member_id, 1))
    other = h.failover()
    before, after = h.group().offsets, other.group().offsets
    assert after.committed() == before.committed()
    assert after.producers() == before.producers() == (P,)
    h.leave(leave_group(member_id))
    for each in (h, other):
        each.end_transaction(P, is_commit=True)
    assert after.committed() == before.committed()
