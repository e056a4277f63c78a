"""Batches in Kafka's format as a real client sends them, for the tests of logs and brokers.

An idempotent producer puts its producer id, its epoch and a sequence number into each batch, so
that a broker recognizes a batch that was sent twice. Other producers have no such numbers, and send
NO_PRODUCER_ID, NO_PRODUCER_EPOCH and NO_SEQUENCE instead.
"""

from msgspec.structs import replace

from cluster.storage.compression import CODECS
from partition_log.batches import build_batch
from protocol.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE
from protocol.records.batch import KafkaHeader, Record, RecordBatch
from protocol.records.kafka_format import decode_batches, encode_batch, kafka_crc


def client_batch(
    *values: str,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int | None = None,
    base_sequence: int | None = None,
    is_transactional: bool = False,
    compression: int = 0,
    has_keys: bool = True,
    timestamp_ms: int = 7,
) -> RecordBatch:
    """Return a batch with one record for each value.

    Without values, the batch has one record with the value "v". The key of each record is equal to
    the record's value. A producer with an id has the epoch 0 and begins with the sequence number 0,
    unless the test sets other numbers. `compression` is the number that Kafka's format has for a
    codec; 0 means that the batch is not compressed.
    """
    is_idempotent = producer_id != NO_PRODUCER_ID
    default_sequence = 0 if is_idempotent else NO_SEQUENCE
    default_epoch = 0 if is_idempotent else NO_PRODUCER_EPOCH
    built = build_batch(
        tuple(
            Record(value.encode() if has_keys else None, value.encode(), timestamp_ms)
            for value in values or ("v",)
        ),
        producer_id=producer_id,
        producer_epoch=default_epoch if producer_epoch is None else producer_epoch,
        base_sequence=default_sequence if base_sequence is None else base_sequence,
        is_transactional=is_transactional,
        compression=compression,
        codecs=CODECS,
    )
    # A real broker decodes the batch of a client from bytes. So this batch is encoded and decoded,
    # too. Otherwise it would lack what only decoding sets, such as the header `batch.kafka`.
    (batch,) = decode_batches(encode_batch(built, CODECS))
    return batch


def resealed(batch: RecordBatch, header: KafkaHeader | None = None, **changes: int) -> RecordBatch:
    """Return a copy of a batch with a changed header or changed fields, and with the right CRC.

    Raises: ValueError if the batch is not in Kafka's format, and therefore has no CRC.
    """
    header = header or batch.kafka
    if header is None:
        raise ValueError("a batch in Kafka's format has a header")
    changed = replace(batch, kafka=header, **changes)
    return replace(changed, crc=kafka_crc(changed, header, changed.records))
