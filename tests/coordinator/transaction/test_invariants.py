"""The invariant checks of the transaction coordinator find damage in its state.

`check_invariants` looks for states that no correct coordinator can be in. It raises an
InvariantViolation with the name of the invariant that is broken. A test brings a coordinator into a
valid state, damages this state, and expects the violation. Each function with a leading underscore
does one kind of damage.

`h` is a TransactionHarness: a transaction coordinator with a log and timers. `h.init()` gives the
transactional id TX the producer id 0, and `h.add_offsets(0)` begins a transaction of producer 0.
"""

from collections.abc import Callable

import pytest

from coordinator.transaction.load import TransactionLoad
from coordinator.transaction.metadata import NO_TIMESTAMP
from coordinator.transaction.states import TransactionState
from coordinator.transaction.transaction_turn import CompletionTimer
from protocol.errors import InvariantViolation
from protocol.messages.transaction import AddOffsetsToTxnRequest
from tests.support.harness.transaction_harness import TX, TransactionHarness


def _load_an_owned_partition(h: TransactionHarness) -> None:
    """Begin a load of partition 0, which the coordinator has loaded already."""
    h.coordinator._shared.loading[0] = TransactionLoad(0, 1)


def _change_the_partition_number(h: TransactionHarness) -> None:
    h.coordinator._shared.owned[0].partition = 3


def _store_the_id_under_another_name(h: TransactionHarness) -> None:
    transactions = h.coordinator._shared.owned[0].transactions
    transactions["other"] = transactions.pop(TX)


def _add_a_pending_step_without_an_append(h: TransactionHarness) -> None:
    h.metadata().pending_state = TransactionState.ONGOING


def _remove_the_start_of_the_transaction(h: TransactionHarness) -> None:
    h.metadata().txn_start_timestamp_ms = NO_TIMESTAMP


def _remove_the_abort_timer(h: TransactionHarness) -> None:
    del h.coordinator._shared.in_flight.timers["transaction-abort"]


def _add_a_timer_under_another_key(h: TransactionHarness) -> None:
    """Add a timer of TX under the key "x". A correct key would contain the transactional id."""
    h.coordinator._shared.in_flight.timers["x"] = CompletionTimer(TX)


@pytest.mark.parametrize(
    ("damage", "broken_invariant"),
    [
        (_load_an_owned_partition, "owned_or_loading"),
        (_change_the_partition_number, "partition_under_its_number"),
        (_store_the_id_under_another_name, "id_in_its_partition"),
        (_add_a_pending_step_without_an_append, "pending_step_is_written"),
        (_remove_the_start_of_the_transaction, "ongoing_has_begun"),
        (_remove_the_abort_timer, "periodic_timer"),
        (_add_a_timer_under_another_key, "timer_under_its_key"),
    ],
)
def test_check_names_the_invariant_that_the_damage_breaks(
    damage: Callable[[TransactionHarness], None], broken_invariant: str
) -> None:
    """A check that cannot fail proves nothing, so each check must find its damage."""
    h = TransactionHarness()
    h.init()
    h.add_offsets(0)
    h.coordinator.check_invariants()
    damage(h)
    with pytest.raises(InvariantViolation) as raised:
        h.coordinator.check_invariants()
    assert raised.value.name == broken_invariant


def test_check_requires_an_id_to_be_pending_while_its_markers_are_written() -> None:
    """A marker is the record that ends a transaction in a partition.

    Until the markers of a transaction are written, its last step (CompleteCommit) must be pending.
    Otherwise the next transaction of TX could begin before the present transaction has ended.
    """
    h = TransactionHarness()
    h.init()
    h.add_offsets(0)
    h.holds_markers = True
    h.end(0, is_commit=True)
    h.coordinator.check_invariants()
    h.metadata().pending_state = None  # the damage
    with pytest.raises(InvariantViolation, match="completion_is_pending"):
        h.coordinator.check_invariants()


def test_check_refuses_a_waiting_append_of_an_answered_request() -> None:
    """If a request has its answer, none of its appends may be in flight.

    When such an append succeeded, the request would be answered a second time.
    """
    h = TransactionHarness()
    h.init()
    h.holds_appends = True
    h.submit(
        AddOffsetsToTxnRequest(
            transactional_id=TX, producer_id=0, producer_epoch=0, group_id="group"
        )
    )
    (append,) = h.coordinator._shared.in_flight.appends.values()
    # The damage: no part of the answer is missing any more, so the request counts as answered.
    append.purpose.answer.missing = 0  # type: ignore[union-attr]
    with pytest.raises(InvariantViolation, match="answered_once"):
        h.coordinator.check_invariants()
