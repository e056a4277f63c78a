"""TransactionLoad: rebuilds transactional ids from the log of one `__transaction_state` partition.

The broker passes the log to `read` in chunks, and then calls `finish`, which returns the ids. The
key of a record is a transactional id. If several records have the same id, the last record counts.
A record without a value deletes the id.

Source: Kafka `TransactionStateManager.loadTransactionMetadata`.
"""

from coordinator.transaction.metadata import TransactionMetadata
from coordinator.transaction.states import STATES_BY_ID
from protocol.ids import TopicPartition
from protocol.records.batch import RecordBatch, fields_of
from protocol.records.transaction import (
    TransactionLogValue,
    decode_transaction_key,
    decode_transaction_value,
)
from protocol.records.versioned import CorruptRecord


class TransactionLoad:
    """An unfinished load of one partition.

    `coordinator_epoch` is the leader epoch in which the broker loads the partition. This class does
    not use `partition` and `coordinator_epoch`. It only keeps them for its caller.
    """

    def __init__(self, partition: int, coordinator_epoch: int) -> None:
        self.partition = partition
        self.coordinator_epoch = coordinator_epoch
        # Why reading stopped before the end of the log. As in Kafka, the coordinator serves the ids
        # that were read before, even after an error.
        self.error: str | None = None
        self._values: dict[str, TransactionLogValue] = {}

    def read(self, batches: tuple[RecordBatch, ...]) -> None:
        """Read the next batches.

        After an unreadable record nothing more is read, and `error` describes the record.
        """
        if self.error is not None:
            return
        try:
            for batch in batches:
                self._read_batch(batch)
        except ValueError as error:  # CorruptRecord and the errors of msgspec are ValueErrors
            self.error = str(error)

    def finish(self) -> dict[str, TransactionMetadata]:
        """Return the transactional ids, in the order of their last writes."""
        return {name: _metadata(name, value) for name, value in self._values.items()}

    def _read_batch(self, batch: RecordBatch) -> None:
        """Keep the last value of each transactional id in a batch."""
        # No codecs are needed, because batches of `__transaction_state` are never compressed.
        for key, stored, _ in fields_of(batch):
            if key is None:
                raise CorruptRecord(f"record without key in batch {batch.base_offset}")
            name = decode_transaction_key(key)
            if name is None:
                continue  # written by a newer coordinator, ignored as in Kafka
            # The ids must be in the order of their last records. A key that is overwritten keeps
            # its old place in the dict, so the key is removed first.
            self._values.pop(name, None)
            if stored is not None:
                value = decode_transaction_value(stored)
                if value.transaction_status not in STATES_BY_ID:
                    raise CorruptRecord(f"{name}: unknown state {value.transaction_status}")
                self._values[name] = value


def _metadata(transactional_id: str, value: TransactionLogValue) -> TransactionMetadata:
    """Return a transactional id with its stored state."""
    return TransactionMetadata(
        transactional_id,
        value.producer_id,
        producer_epoch=value.producer_epoch,
        txn_timeout_ms=value.transaction_timeout_ms,
        state=STATES_BY_ID[value.transaction_status],
        topic_partitions=tuple(
            TopicPartition(each.topic, index)
            for each in value.transaction_partitions or ()  # null in the state Empty
            for index in each.partition_ids
        ),
        txn_start_timestamp_ms=value.transaction_start_timestamp_ms,
        txn_last_update_timestamp_ms=value.transaction_last_update_timestamp_ms,
    )
