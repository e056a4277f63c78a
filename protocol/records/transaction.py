"""The persisted records of `__transaction_state`: what is known of a transactional id.

A record without value is a tombstone. How bodies are encoded is `versioned`'s.
Source: Kafka `TransactionLogKey.json`, `TransactionLogValue.json` (version 0).
"""

import msgspec

from protocol.records.versioned import (
    CorruptRecord,
    encode_body,
    record_version,
    version_prefix,
)

_VERSION = 0


class TransactionLogKey(msgspec.Struct, frozen=True, array_like=True):
    """Key of a transactional id."""

    transactional_id: str


class TransactionPartitions(msgspec.Struct, frozen=True, array_like=True):
    """The partitions of one topic in a transaction."""

    topic: str
    partition_ids: tuple[int, ...]


class TransactionLogValue(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """A transactional id. Units: milliseconds; `transaction_status` is the state's number."""

    producer_id: int
    producer_epoch: int
    transaction_timeout_ms: int
    transaction_status: int
    transaction_partitions: tuple[TransactionPartitions, ...] | None = None
    transaction_last_update_timestamp_ms: int = -1
    transaction_start_timestamp_ms: int = -1


_key_decoder = msgspec.msgpack.Decoder(TransactionLogKey)
_value_decoder = msgspec.msgpack.Decoder(TransactionLogValue)


def encode_transaction_key(transactional_id: str) -> bytes:
    """Return the key of a transactional id's record."""
    return version_prefix(_VERSION) + encode_body(TransactionLogKey(transactional_id))


def encode_transaction_value(value: TransactionLogValue) -> bytes:
    """Return the value of a transactional id's record."""
    return version_prefix(_VERSION) + encode_body(value)


def decode_transaction_key(data: bytes) -> str | None:
    """Return the transactional id, None for a key of a version that is not known.

    Raises: CorruptRecord.
    """
    if record_version(data) != _VERSION:
        return None
    try:
        return _key_decoder.decode(data[2:]).transactional_id
    except msgspec.MsgspecError as error:
        raise CorruptRecord(f"key: {error}") from error


def decode_transaction_value(data: bytes) -> TransactionLogValue:
    """Return what is stored of a transactional id.

    Raises: CorruptRecord.
    """
    version = record_version(data)
    if version != _VERSION:
        raise CorruptRecord(f"unknown transaction value version {version}")
    try:
        return _value_decoder.decode(data[2:])
    except msgspec.MsgspecError as error:
        raise CorruptRecord(f"value: {error}") from error
