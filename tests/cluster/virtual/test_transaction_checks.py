"""Answers of a transaction coordinator: the check compares them with the coordinator's state.

`broker_with(metadata)` stands for a broker that coordinates the transactional id TX.
"""

from types import SimpleNamespace
from typing import cast

import pytest

from cluster.broker.node import BrokerNode
from cluster.virtual.transaction_checks import end_answered, init_answered, offsets_answered
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

TX = "tx"
PRODUCER, EPOCH = 7, 3
# __consumer_offsets has one partition here, so each group is in it.
ONE_PARTITION = {CONSUMER_OFFSETS: {0: None}}

RULE = "an answer of a transaction coordinator agrees with its state"


def metadata_in(state: TransactionState, *, has_offsets: bool = False) -> TransactionMetadata:
    """Return the state of TX, with the offsets partition in its transaction if `has_offsets`."""
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
    """Return a broker that knows TX; None: another broker coordinates it by now."""
    image = SimpleNamespace(topics=ONE_PARTITION)
    broker = SimpleNamespace(
        transaction=lambda _transactional_id: metadata, metadata=SimpleNamespace(image=image)
    )
    return cast(BrokerNode, broker)


def end(*, committed: bool, epoch: int = EPOCH) -> EndTxnRequest:
    """Return an EndTxn of the producer."""
    return EndTxnRequest(
        transactional_id=TX, producer_id=PRODUCER, producer_epoch=epoch, committed=committed
    )


@pytest.mark.parametrize(
    ("state", "committed", "error", "is_right"),
    [
        pytest.param(TransactionState.PREPARE_COMMIT, True, ErrorCode.NONE, True, id="decided"),
        pytest.param(TransactionState.COMPLETE_ABORT, False, ErrorCode.NONE, True, id="aborted"),
        pytest.param(TransactionState.COMPLETE_COMMIT, False, ErrorCode.NONE, False, id="other"),
        pytest.param(TransactionState.ONGOING, True, ErrorCode.NONE, False, id="undecided"),
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
    """NONE needs the decision of the request; INVALID_TXN_STATE needs that it is missing."""
    broker, request = broker_with(metadata_in(state)), end(committed=committed)
    answer = EndTxnResponse(error_code=error)
    if is_right:
        end_answered(broker, request, answer)
    else:
        with pytest.raises(InvariantViolation, match=RULE):
            end_answered(broker, request, answer)


def test_answer_about_another_producer_or_coordinator_is_not_judged() -> None:
    """The producer has a newer epoch by now, or another broker coordinates TX."""
    wrong = EndTxnResponse(error_code=ErrorCode.NONE)
    ongoing = broker_with(metadata_in(TransactionState.ONGOING))
    end_answered(ongoing, end(committed=True, epoch=EPOCH - 1), wrong)
    end_answered(broker_with(None), end(committed=True), wrong)


def test_added_offsets_are_part_of_the_open_transaction() -> None:
    """AddOffsetsToTxn with NONE needs an Ongoing transaction with the group's partition."""
    request = AddOffsetsToTxnRequest(
        transactional_id=TX, producer_id=PRODUCER, producer_epoch=EPOCH, group_id="g"
    )
    added = AddOffsetsToTxnResponse()
    ongoing = TransactionState.ONGOING
    offsets_answered(broker_with(metadata_in(ongoing, has_offsets=True)), request, added)
    for metadata in (
        metadata_in(ongoing),
        metadata_in(TransactionState.COMPLETE_COMMIT, has_offsets=True),
    ):
        with pytest.raises(InvariantViolation, match="AddOffsetsToTxn of __consumer_offsets-0"):
            offsets_answered(broker_with(metadata), request, added)


def test_producer_gets_the_id_and_the_epoch_that_the_coordinator_has() -> None:
    """The epoch of the second answer is one too low."""
    request = InitProducerIdRequest(transactional_id=TX, transaction_timeout_ms=60_000)
    broker = broker_with(metadata_in(TransactionState.EMPTY))
    init_answered(
        broker, request, InitProducerIdResponse(producer_id=PRODUCER, producer_epoch=EPOCH)
    )
    with pytest.raises(
        InvariantViolation, match="InitProducerId gives the producer 7 with epoch 2"
    ):
        init_answered(
            broker, request, InitProducerIdResponse(producer_id=PRODUCER, producer_epoch=EPOCH - 1)
        )
