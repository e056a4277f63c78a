"""A member that commits its offsets in transactions, one request at a time (KIP-98, KIP-447).

The application has a consumer and a producer. It commits the offsets of the consumer in
transactions of the producer, so each commit takes several requests. In these tests the application
talks to a scripted broker, which gives the answers that the test has prepared.

`make_lab(1)` makes a `lab` with one scripted broker. By default it answers without errors:

- The broker coordinates the group, and also the transactions. The consumer is the only member of
  its group, so it gets both partitions of the topic `t`.
- The producer gets the id 7 and the epoch 0. If it asks again, it gets the next epoch.
- `lab.committed` has the offsets of the transactions that were committed. For example,
  `{0: 4, 1: 4}` says that offset 4 is committed for partition 0 and for partition 1.

The tests use these calls:

- `broker.answer(Request, a, b)` scripts the next answers of the broker to requests of this type. An
  answer None leaves the request unanswered.
- `broker.of_type(Request)` returns the requests of this type that the broker has received.
- `lab.of_kind(kind)` returns the rows of the trace that have this kind. The trace is the list of
  the events that the nodes have recorded.
- `member_status(node)` returns what the consumer reports about itself.
- `lab.run_for(SECOND)` lets a second of virtual time pass. In this second a consumer can join its
  group.
"""

import pytest

from cluster.client.consumer.node import ConsumerNode
from protocol.api import AnyResponse
from protocol.errors import ErrorCode
from protocol.messages.discovery import CoordinatorType, FindCoordinatorRequest
from protocol.messages.offset import OffsetCommitRequest
from protocol.messages.transaction import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    TxnOffsetCommitRequest,
)
from protocol.trace import TraceRow
from tests.support.harness.scripted_broker import (
    GROUP,
    SECOND,
    ClientLab,
    LabMaker,
    member_status,
    txn_commit_error,
)

TIMEOUT_MS = 3_000
"""The setting transaction.timeout.ms of the producer."""


def start_consumer(lab: ClientLab) -> ConsumerNode:
    """Start a consumer that commits in transactions. Each of two partitions has four records."""
    lab.high_watermark = 4
    return lab.consumer(transaction_timeout_ms=TIMEOUT_MS)


def failures(lab: ClientLab) -> list[tuple[str | None, str | None, str | None]]:
    """Return error, reason and peer of each failed commit.

    Example: `("TRANSACTION_ABORTED", "UNKNOWN_MEMBER_ID", None)`. If the commit has failed for
    certain, the peer is None. If its outcome is unknown, the peer is the coordinator.

    A failed commit has a row for each of the two partitions, so this function looks only at the
    rows of t-0. It leaves out the error COMMIT_FAILED, because such a commit was never sent.
    """
    return [
        (row.error, row.cause_text, row.peer)
        for row in lab.of_kind("commit_failed")
        if row.partition == "t-0" and row.error != "COMMIT_FAILED"
    ]


def ends(lab: ClientLab) -> list[bool]:
    """Return, for each EndTxn of the producer, True for a commit and False for an abort."""
    return [
        request.committed
        for request in lab.brokers[0].of_type(EndTxnRequest)
        if isinstance(request, EndTxnRequest)
    ]


def test_commit_is_a_transaction_with_kafkas_order_of_requests(make_lab: LabMaker) -> None:
    """At its start the producer sends one InitProducerId.

    Then it sends three requests for each transaction: AddOffsetsToTxn, TxnOffsetCommit and EndTxn.
    """
    lab = make_lab(1)
    node = start_consumer(lab)
    lab.run_for(2 * SECOND)
    broker = lab.brokers[0]
    transaction = (AddOffsetsToTxnRequest, TxnOffsetCommitRequest, EndTxnRequest)
    sent = [
        type(request)
        for request in broker.requests
        if isinstance(request, (InitProducerIdRequest, *transaction))
    ]
    # 1 + 3 + 3 requests
    assert sent[:7] == [InitProducerIdRequest, *transaction, *transaction]
    assert broker.of_type(OffsetCommitRequest) == []

    (init,) = broker.of_type(InitProducerIdRequest)
    assert init == InitProducerIdRequest(
        transactional_id="consumer-g-0", transaction_timeout_ms=TIMEOUT_MS
    )

    commit = broker.of_type(TxnOffsetCommitRequest)[-1]
    assert isinstance(commit, TxnOffsetCommitRequest)
    assert commit.producer_id == 7
    assert commit.producer_epoch == 0
    assert commit.group_id == GROUP
    assert commit.member_id == "m-1"
    assert commit.generation_id == 1
    assert lab.committed == {0: 4, 1: 4}

    rows = lab.of_kind("offsets_committed")[-2:]
    assert [(row.partition, row.offset, row.peer, row.member, row.generation) for row in rows] == [
        ("t-0", 4, "broker-0", "m-1", 1),
        ("t-1", 4, "broker-0", "m-1", 1),
    ]
    assert member_status(node).commits_acknowledged == ends(lab).count(True)


def test_transaction_with_too_much_metadata_is_aborted(make_lab: LabMaker) -> None:
    """A commit can have a text: the metadata of its offsets. The application has two texts.

    The first transaction commits with the text "long". The broker's scripted answer says that this
    text is too large, so the application aborts the transaction. The next transaction commits with
    the other text, which is empty, and succeeds. Then it is the turn of "long" again.
    """
    lab = make_lab(1)
    lab.high_watermark = 4
    too_large = txn_commit_error(ErrorCode.OFFSET_METADATA_TOO_LARGE)
    lab.brokers[0].answer(TxnOffsetCommitRequest, too_large)
    lab.consumer(transaction_timeout_ms=TIMEOUT_MS, commit_metadata=("long", ""))
    lab.run_for(2 * SECOND)
    texts = [
        request.topics[0].partitions[0].committed_metadata
        for request in lab.brokers[0].of_type(TxnOffsetCommitRequest)
        if isinstance(request, TxnOffsetCommitRequest)
    ]
    assert texts[:3] == ["long", "", "long"]
    assert ends(lab)[:2] == [False, True]


def test_transaction_coordinator_is_looked_up_by_the_transactional_id(make_lab: LabMaker) -> None:
    """The application asks once which broker coordinates its transactions."""
    lab = make_lab(1)
    start_consumer(lab)
    lab.run_for(2 * SECOND)
    looked_up_ids = [
        request.coordinator_keys
        for request in lab.brokers[0].of_type(FindCoordinatorRequest)
        if isinstance(request, FindCoordinatorRequest)
        and request.key_type == CoordinatorType.TRANSACTION
    ]
    assert looked_up_ids == [("consumer-g-0",)]


@pytest.mark.parametrize(
    ("request_type", "answer"),
    [
        (
            InitProducerIdRequest,
            InitProducerIdResponse(error_code=ErrorCode.CONCURRENT_TRANSACTIONS),
        ),
        (
            InitProducerIdRequest,
            InitProducerIdResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        ),
        (
            AddOffsetsToTxnRequest,
            AddOffsetsToTxnResponse(error_code=ErrorCode.CONCURRENT_TRANSACTIONS),
        ),
        (AddOffsetsToTxnRequest, AddOffsetsToTxnResponse(error_code=ErrorCode.NOT_COORDINATOR)),
        (TxnOffsetCommitRequest, txn_commit_error(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)),
        (TxnOffsetCommitRequest, txn_commit_error(ErrorCode.NOT_COORDINATOR)),
        (TxnOffsetCommitRequest, txn_commit_error(ErrorCode.REQUEST_TIMED_OUT)),
        (EndTxnRequest, EndTxnResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)),
        (EndTxnRequest, EndTxnResponse(error_code=ErrorCode.CONCURRENT_TRANSACTIONS)),
    ],
)
def test_retriable_errors_repeat_the_request(
    make_lab: LabMaker, request_type: type, answer: AnyResponse
) -> None:
    """The broker answers a request twice with a retriable error. The third attempt succeeds.

    So the transaction goes on and is committed.
    """
    lab = make_lab(1)
    lab.brokers[0].answer(request_type, answer, answer)
    start_consumer(lab)
    lab.run_for(4 * SECOND)
    assert lab.committed == {0: 4, 1: 4}
    assert failures(lab) == []
    assert False not in ends(lab)  # no transaction was aborted


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.TRANSACTION_ABORTABLE,
        ErrorCode.OFFSET_METADATA_TOO_LARGE,
    ],
)
def test_refused_commit_aborts_the_transaction(make_lab: LabMaker, code: ErrorCode) -> None:
    """The broker refuses a commit with an error that no repetition can cure.

    The application aborts the transaction, and commits the same offsets in the next transaction.
    """
    lab = make_lab(1)
    lab.brokers[0].answer(TxnOffsetCommitRequest, txn_commit_error(code))
    start_consumer(lab)
    lab.run_for(3 * SECOND)
    assert failures(lab) == [("TRANSACTION_ABORTED", code.name, None)]
    assert ends(lab)[:2] == [False, True]
    assert lab.committed == {0: 4, 1: 4}


def test_commit_without_an_answer_in_time_aborts_the_transaction(make_lab: LabMaker) -> None:
    """A commit is repeated for transaction.timeout.ms at most, here 3 s.

    After these 3 s the transaction coordinator would abort the transaction anyway. Here the broker
    has a retriable error for 12 attempts of the commit. This is more than fit into 3 s, so the
    application gives up before.
    """
    lab = make_lab(1)
    loading = txn_commit_error(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    lab.brokers[0].answer(TxnOffsetCommitRequest, *[loading] * 12)
    start_consumer(lab)
    lab.run_for(12 * SECOND)  # long enough for the abort and for a transaction that succeeds
    assert failures(lab)[0] == ("TRANSACTION_ABORTED", "COORDINATOR_LOAD_IN_PROGRESS", None)
    assert ends(lab)[0] is False
    assert lab.committed == {0: 4, 1: 4}


@pytest.mark.parametrize(
    ("request_type", "answer"),
    [
        (AddOffsetsToTxnRequest, AddOffsetsToTxnResponse(error_code=ErrorCode.PRODUCER_FENCED)),
        (
            AddOffsetsToTxnRequest,
            AddOffsetsToTxnResponse(error_code=ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        ),
        (TxnOffsetCommitRequest, txn_commit_error(ErrorCode.INVALID_PRODUCER_EPOCH)),
        (EndTxnRequest, EndTxnResponse(error_code=ErrorCode.PRODUCER_FENCED)),
    ],
)
def test_fenced_producer_is_replaced_by_a_new_one(
    make_lab: LabMaker, request_type: type, answer: AnyResponse
) -> None:
    """These errors fence the producer: another producer with a newer epoch has taken its place.

    A fenced producer must not send anything more. So the application makes a new producer, which
    gets epoch 1.
    """
    lab = make_lab(1)
    lab.brokers[0].answer(request_type, answer)
    start_consumer(lab)
    lab.run_for(3 * SECOND)
    ((error, _reason, peer),) = failures(lab)
    assert error == "TRANSACTION_ABORTED"
    assert peer is None
    assert len(lab.brokers[0].of_type(InitProducerIdRequest)) == 2  # one for each producer
    last = lab.brokers[0].of_type(EndTxnRequest)[-1]
    assert isinstance(last, EndTxnRequest)
    assert last.producer_epoch == 1
    assert lab.committed == {0: 4, 1: 4}


def test_end_of_a_transaction_is_repeated_until_it_is_answered(make_lab: LabMaker) -> None:
    """The next transaction begins only when EndTxn has succeeded.

    Here EndTxn fails twenty times. With the waits in between, these attempts take more than 12 s,
    and less than 12 s + 20 s.
    """
    lab = make_lab(1)
    not_available = EndTxnResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
    lab.brokers[0].answer(EndTxnRequest, *[not_available] * 20)
    node = start_consumer(lab)
    lab.run_for(12 * SECOND)
    assert member_status(node).commits_acknowledged == 0
    assert len(lab.brokers[0].of_type(TxnOffsetCommitRequest)) == 1
    lab.run_for(20 * SECOND)
    assert member_status(node).commits_acknowledged > 0
    assert failures(lab) == []


def test_closed_consumer_first_commits_its_processed_records(make_lab: LabMaker) -> None:
    """The last transaction commits the records that were processed just before the shutdown."""
    lab = make_lab(1)
    node = start_consumer(lab)
    lab.run_for(2 * SECOND)
    lab.high_watermark = 9
    lab.run_for(SECOND // 20)  # long enough to process the records, too short to commit

    shut_down: list[str] = []
    node.shut_down(lambda: shut_down.append("done"))
    lab.run_for(5 * SECOND)
    assert shut_down == ["done"]
    assert lab.committed == {0: 9, 1: 9}


def test_closed_consumer_with_an_unanswered_end_has_an_unknown_outcome(
    make_lab: LabMaker,
) -> None:
    """A consumer is closed while its EndTxn has no answer.

    The coordinator may still commit the transaction, so the outcome of the commit is unknown. The
    trace has a failed commit with the error TIMED_OUT, and with the coordinator as its peer.
    """
    lab = make_lab(1)
    lab.brokers[0].answer(EndTxnRequest, *[None] * 40)  # for all EndTxns of this test
    node = start_consumer(lab)
    lab.run_for(3 * SECOND)
    node.shut_down(lambda: None)
    lab.run_for(100 * SECOND)  # longer than the consumer tries to close
    rows: list[TraceRow] = lab.of_kind("commit_failed")
    assert ("TIMED_OUT", "broker-0") in [(row.error, row.peer) for row in rows]
