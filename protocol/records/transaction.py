"""Records of `__transaction_state`: the stored state of transactional ids.

The key of a record is a transactional id, the name that a producer keeps over restarts. A record
without a value is a tombstone, which deletes the id. Keys and values consist of a version
(`versioned`) and a body in MessagePack.

Source: Kafka `TransactionLogKey.json`, `TransactionLogValue.json` (version 0).
"""

import msgspec

from protocol.records.versioned import (
    VERSION_SIZE,
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
    """State of a transactional id.

    `transaction_status` is the number of a TransactionState (`coordinator.transaction.states`).
    `transaction_partitions` is None in the state Empty, in which no transaction has begun. The
    timestamps are in milliseconds since the epoch. A timestamp that is not set is -1.
    """

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
    """Return the transactional id of a key, None if the key's version is unknown.

    Raises: CorruptRecord if the key is too short for a version, or its body cannot be decoded.
    """
    if record_version(data) != _VERSION:
        return None
    try:
        return _key_decoder.decode(data[VERSION_SIZE:]).transactional_id
    except msgspec.MsgspecError as error:
        raise CorruptRecord(f"key: {error}") from error


def decode_transaction_value(data: bytes) -> TransactionLogValue:
    """Return the stored state of a transactional id.

    Raises: CorruptRecord if the version is unknown, or the body cannot be decoded.
    """
    version = record_version(data)
    if version != _VERSION:
        raise CorruptRecord(f"unknown transaction value version {version}")
    try:
        return _value_decoder.decode(data[VERSION_SIZE:])
    except msgspec.MsgspecError as error:
        raise CorruptRecord(f"value: {error}") from error
