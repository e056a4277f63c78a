"""Batches in Kafka's format as a real client sends them, for the tests of logs and brokers.

An idempotent producer puts its producer id, its epoch and a sequence number into each batch, so
that a broker recognizes a batch that was sent twice. Other producers have none of the three, and
send NO_PRODUCER_ID, NO_PRODUCER_EPOCH and NO_SEQUENCE instead.
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
    """Return a batch with one record for each value, or without values with one record "v".

    The key of a record is equal to its value. If the producer has an id, its epoch is 0 and its
    first sequence number is 0, unless the test sets others. `compression` is the number of the
    codec in Kafka's format; with 0 the batch is not compressed.
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
    # A broker reads the batch of a client from bytes, so write it as bytes and read it again.
    (batch,) = decode_batches(encode_batch(built, CODECS))
    return batch


def resealed(batch: RecordBatch, header: KafkaHeader | None = None, **changes: int) -> RecordBatch:
    """Return a copy of a batch with another header or with other fields, and a CRC that fits them.

    Raises: ValueError if the batch is not in Kafka's format.
    """
    header = header or batch.kafka
    if header is None:
        raise ValueError("a batch in Kafka's format has a header")
    changed = replace(batch, kafka=header, **changes)
    return replace(changed, crc=kafka_crc(changed, header, changed.records))
