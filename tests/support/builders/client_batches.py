"""Batches of real clients in Kafka's format, for the tests of logs and brokers."""

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
    """Return a batch with one record for each value; its key equals the value.

    A producer with an id has epoch 0 and begins with sequence 0, unless the test sets others.
    """
    is_idempotent = producer_id != NO_PRODUCER_ID
    first = 0 if is_idempotent else NO_SEQUENCE
    epoch = 0 if is_idempotent else NO_PRODUCER_EPOCH
    own = build_batch(
        tuple(
            Record(value.encode() if has_keys else None, value.encode(), timestamp_ms)
            for value in values or ("v",)
        ),
        producer_id=producer_id,
        producer_epoch=epoch if producer_epoch is None else producer_epoch,
        base_sequence=first if base_sequence is None else base_sequence,
        is_transactional=is_transactional,
        compression=compression,
        codecs=CODECS,
    )
    # Written in Kafka's format and read again, as a batch that a client sent.
    (batch,) = decode_batches(encode_batch(own, CODECS))
    return batch


def resealed(batch: RecordBatch, header: KafkaHeader | None = None, **changes: int) -> RecordBatch:
    """Return a batch in Kafka's format with changed fields and a valid CRC.

    Raises: ValueError if the batch is not in Kafka's format.
    """
    header = header or batch.kafka
    if header is None:
        raise ValueError("a batch in Kafka's format has a header")
    changed = replace(batch, kafka=header, **changes)
    return replace(changed, crc=kafka_crc(changed, header, changed.records))
