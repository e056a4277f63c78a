"""Batches of real clients in Kafka's format, for the tests of logs and brokers.

An idempotent producer has a producer id from a broker, and the epoch of that id (a new instance
with the id gets a higher one). It numbers its records with sequence numbers, by which a broker
recognizes a record that was sent twice. Other producers send NO_PRODUCER_ID, NO_PRODUCER_EPOCH and
NO_SEQUENCE.
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
    """Return a batch with one record for each value; its key equals the value.

    Without `values`: one record with the value "v". A producer with an id has epoch 0 and begins
    with sequence 0, unless the test sets others.

    compression: the codec's number in Kafka's format; 0 means uncompressed.
    """
    is_idempotent = producer_id != NO_PRODUCER_ID
    default_sequence = 0 if is_idempotent else NO_SEQUENCE
    default_epoch = 0 if is_idempotent else NO_PRODUCER_EPOCH
    own = build_batch(
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
    # Write the batch in Kafka's format and read it again: a batch that a client sent was read, too.
    (batch,) = decode_batches(encode_batch(own, CODECS))
    return batch


def resealed(batch: RecordBatch, header: KafkaHeader | None = None, **changes: int) -> RecordBatch:
    """Return a copy of a batch in Kafka's format, with changed fields and a CRC that fits them.

    header: replaces the batch's own header. changes: replace other fields of the batch.
    Raises: ValueError if the batch is not in Kafka's format.
    """
    header = header or batch.kafka
    if header is None:
        raise ValueError("a batch in Kafka's format has a header")
    changed = replace(batch, kafka=header, **changes)
    return replace(changed, crc=kafka_crc(changed, header, changed.records))
