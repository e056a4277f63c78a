"""The checks that find wrong answers and wrong producer epochs of a transaction coordinator.

In virtual time a check sees each answer that a broker sends, and the state of the broker at this
moment. If a broker says that a transaction is committed, for example, its own state must say so,
too. The tests call the check with an answer and with `broker_with(metadata)`, a stand-in for a
broker that coordinates the transactional id TX.
"""

from types import SimpleNamespace
from typing import cast

import pytest

from cluster.broker.node import BrokerNode
from cluster.virtual.checks.transaction_checks import (
    ProducerEpochChecks,
    end_answered,
    init_answered,
    offsets_answered,
)
from coordinator.transaction.metadata import TransactionMetadata
from coordinator.transaction.states import TransactionState
from protocol.errors import ErrorCode, InvariantViolation
from protocol.ids import CONSUMER_OFFSETS, offsets_partition
from protocol.messages.transaction import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from tests.support.builders.trace_builder import parse_trace

TX = "tx"
PRODUCER, EPOCH = 7, 3
# __consumer_offsets has one partition here, so each group is in it.
ONE_PARTITION = {CONSUMER_OFFSETS: {0: None}}

RULE = "an answer of a transaction coordinator agrees with its state"
"""The name of the violated rule in the error."""


def metadata_in(state: TransactionState, *, has_offsets: bool = False) -> TransactionMetadata:
    """Return the state of TX. If `has_offsets`, its transaction commits offsets of a group."""
    return TransactionMetadata(
        TX,
        producer_id=PRODUCER,
        producer_epoch=EPOCH,
        txn_timeout_ms=60_000,
        txn_last_update_timestamp_ms=0,
        state=state,
        topic_partitions=(offsets_partition(0),) if has_offsets else (),
    )


def broker_with(metadata: TransactionMetadata | None) -> BrokerNode:
    """Return a broker with this state of TX. If it is None, another broker coordinates TX."""
    # These are the only attributes of a broker that the check reads.
    image = SimpleNamespace(topics=ONE_PARTITION)
    broker = SimpleNamespace(
        transaction=lambda _transactional_id: metadata, metadata=SimpleNamespace(image=image)
    )
    return cast(BrokerNode, broker)


def end_txn(*, committed: bool, epoch: int = EPOCH) -> EndTxnRequest:
    """Return the request to end the transaction: to commit it, or to abort it."""
    return EndTxnRequest(
        transactional_id=TX, producer_id=PRODUCER, producer_epoch=epoch, committed=committed
    )


@pytest.mark.parametrize(
    ("state", "committed", "error", "is_right"),
    [
        pytest.param(TransactionState.PREPARE_COMMIT, True, ErrorCode.NONE, True, id="decided"),
        pytest.param(TransactionState.COMPLETE_ABORT, False, ErrorCode.NONE, True, id="aborted"),
        # The transaction was committed, and the request to abort it gets a success.
        pytest.param(TransactionState.COMPLETE_COMMIT, False, ErrorCode.NONE, False, id="other"),
        pytest.param(TransactionState.ONGOING, True, ErrorCode.NONE, False, id="undecided"),
        # A repeated commit should get a success.
        pytest.param(
            TransactionState.COMPLETE_COMMIT, True, ErrorCode.INVALID_TXN_STATE, False, id="again"
        ),
        pytest.param(
            TransactionState.EMPTY, True, ErrorCode.INVALID_TXN_STATE, True, id="nothing to end"
        ),
    ],
)
def test_answer_to_end_txn_agrees_with_the_decision(
    state: TransactionState, committed: bool, error: ErrorCode, is_right: bool
) -> None:
    """The answer NONE is right if the transaction has the end that the request wants.

    INVALID_TXN_STATE is right if the transaction does not have this end.
    """
    broker = broker_with(metadata_in(state))
    request = end_txn(committed=committed)
    answer = EndTxnResponse(error_code=error)
    if is_right:
        end_answered(broker, request, answer)
    else:
        with pytest.raises(InvariantViolation, match=RULE):
            end_answered(broker, request, answer)


def test_answer_about_another_producer_or_coordinator_is_not_judged() -> None:
    """The state of the broker may say nothing about an answer. Then the check does not raise."""
    success = EndTxnResponse(error_code=ErrorCode.NONE)
    # The producer has a newer epoch by now.
    ongoing = broker_with(metadata_in(TransactionState.ONGOING))
    end_answered(ongoing, end_txn(committed=True, epoch=EPOCH - 1), success)
    # Another broker coordinates TX by now.
    end_answered(broker_with(None), end_txn(committed=True), success)


def test_added_offsets_are_part_of_the_open_transaction() -> None:
    """A producer adds the offsets of a group to its transaction, and gets the answer NONE.

    Then the transaction must be ongoing, and must contain the partition that stores the group.
    """
    request = AddOffsetsToTxnRequest(
        transactional_id=TX, producer_id=PRODUCER, producer_epoch=EPOCH, group_id="g"
    )
    success = AddOffsetsToTxnResponse()
    right = metadata_in(TransactionState.ONGOING, has_offsets=True)
    offsets_answered(broker_with(right), request, success)

    without_offsets = metadata_in(TransactionState.ONGOING)
    already_ended = metadata_in(TransactionState.COMPLETE_COMMIT, has_offsets=True)
    for metadata in (without_offsets, already_ended):
        with pytest.raises(InvariantViolation, match="AddOffsetsToTxn of __consumer_offsets-0"):
            offsets_answered(broker_with(metadata), request, success)


def test_producer_gets_the_id_and_the_epoch_that_the_coordinator_has() -> None:
    """An answer to InitProducerId with an epoch that is one too low is found."""
    request = InitProducerIdRequest(transactional_id=TX, transaction_timeout_ms=60_000)
    broker = broker_with(metadata_in(TransactionState.EMPTY))
    right = InitProducerIdResponse(producer_id=PRODUCER, producer_epoch=EPOCH)
    init_answered(broker, request, right)

    wrong = InitProducerIdResponse(producer_id=PRODUCER, producer_epoch=EPOCH - 1)
    with pytest.raises(
        InvariantViolation, match="InitProducerId gives the producer 7 with epoch 2"
    ):
        init_answered(broker, request, wrong)


# -- producer epochs --


def state(node: str, cause: str, to: str, *, producer: int = PRODUCER, epoch: int) -> str:
    """Return a row of a hand-written trace: TX enters the state `to`."""
    return (
        f"1 {node} transaction_state partition=__transaction_state-0 leader_epoch=5 "
        f'cause="{cause}" transactional_id={TX} producer_id={producer} producer_epoch={epoch} '
        f"to={to}\n"
    )


def observe_states(*rows: str) -> None:
    """Let the check see these rows. It raises at a violation."""
    checks = ProducerEpochChecks()
    for row in parse_trace("".join(rows)):
        checks.observe(row)


BEGUN = state("broker-0", "a producer began", "Empty", epoch=3)
ADDED = state("broker-0", "partitions added", "Ongoing", epoch=3)


def test_epochs_of_a_sound_coordinator_pass() -> None:
    """The producer commits. Then its next transaction times out, which raises the epoch.

    The new producer gets a new id, which begins with epoch 0. broker-1 is another coordinator, so
    its rows are not compared with those of broker-0.
    """
    observe_states(
        BEGUN,
        ADDED,
        state("broker-0", "the producer ended it", "PrepareCommit", epoch=3),
        state("broker-0", "every marker is written", "CompleteCommit", epoch=3),
        ADDED,
        state("broker-0", "transaction.timeout.ms passed", "PrepareAbort", epoch=4),
        state("broker-0", "every marker is written", "CompleteAbort", epoch=4),
        state("broker-0", "a producer began", "Empty", producer=8, epoch=0),
        state("broker-1", "every marker is written", "CompleteAbort", epoch=4),
    )


@pytest.mark.parametrize(
    "last",
    [
        state("broker-0", "transaction.timeout.ms passed", "PrepareAbort", epoch=3),
        state("broker-0", "a new producer began", "PrepareAbort", epoch=3),
        state("broker-0", "the producer ended it", "PrepareAbort", epoch=4),
        state("broker-0", "the producer ended it", "PrepareAbort", producer=8, epoch=3),
    ],
    ids=["timed out, not fenced", "replaced, not fenced", "fenced by its own end", "another id"],
)
def test_wrong_epoch_is_found(last: str) -> None:
    """The open transaction of the producer with epoch 3 is aborted with a wrong producer."""
    with pytest.raises(InvariantViolation, match="had the producer id 7 with epoch 3"):
        observe_states(BEGUN, ADDED, last)
