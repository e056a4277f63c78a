"""Expiration of transactional ids that no producer has used for transactional.id.expiration.ms.

Source: Kafka `TransactionStateManager.removeExpiredTransactionalIds`.
"""

from coordinator.transaction.states import EXPIRABLE
from coordinator.transaction.transaction_turn import Expired, TransactionTurn


def expire_transactional_ids(turn: TransactionTurn) -> None:
    """Append a tombstone (a record that deletes its key) for every expired transactional id."""
    # An id has expired if it was last updated at this time or before.
    oldest_ms = turn.now_ms - turn.config.transactional_id_expiration_ms
    for owned in turn.shared.owned.values():
        for metadata in owned.transactions.values():
            if (
                metadata.state in EXPIRABLE
                and not metadata.is_pending
                and metadata.txn_last_update_timestamp_ms <= oldest_ms
            ):
                turn.write(owned, metadata, metadata.prepare_dead(), Expired())
