"""Records of the cluster's metadata log, the partition `__cluster_metadata-0`.

The controller writes every change of the cluster as a record into this log, and the brokers fetch
the records. The controller and each broker replay the records into a MetadataImage. The image has
the brokers, topics and partitions at one offset of the log. The records and their fields have the
names that they have in KRaft, which is Kafka's quorum of controllers.

The controller fences a broker that sends no heartbeats. A fenced broker leads no partition.

A record is stored as an array of the values of its fields (`array_like`). The name of its struct
stands in front (`tag`), so that a reader knows which struct to build.

Source: Kafka's metadata record schemas; DEVIATION: topics are named, they have no UUID.
"""

import msgspec

from protocol.records.batch import Record

NO_LEADER = -1
"""`leader` of a partition without a leader."""
NO_LEADER_CHANGE = -2
"""`leader` of a PartitionChangeRecord that does not change the leader and the leader epoch."""


class BrokerEndpoint(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """A listener of a broker, as clients reach it."""

    name: str
    host: str
    port: int


class RegisterBrokerRecord(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """A broker has registered, which it does after each start.

    The record replaces the broker's earlier registration. Other nodes reach the broker at `host`
    and `port`. Kafka clients reach it at one of `end_points`.
    """

    broker_id: int
    incarnation_id: int
    broker_epoch: int
    host: str
    port: int
    rack: str | None = None
    fenced: bool = True
    end_points: tuple[BrokerEndpoint, ...] = ()


class BrokerRegistrationChangeRecord(
    msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True
):
    """A registered broker was fenced or unfenced, or began a controlled shutdown.

    A field that is None does not change.
    """

    broker_id: int
    broker_epoch: int
    fenced: bool | None = None
    in_controlled_shutdown: bool | None = None


class TopicRecord(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """A topic was created. Its partitions follow in PartitionRecords of the same batch."""

    name: str


class RemoveTopicRecord(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """A topic was deleted, with its partitions and settings."""

    name: str


class ConfigRecord(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """A setting of the topic `resource_name` was changed, or removed if `value` is None.

    `name` is Kafka's name of the setting, for example `cleanup.policy`. `value` is the new value as
    text.
    """

    resource_name: str
    name: str
    value: str | None


class PartitionRecord(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """A partition was created.

    `replicas` are the ids of brokers in the order of the assignment. The first is the preferred
    leader. `isr` are the ids of the replicas that are in sync with the leader.
    """

    topic: str
    partition_id: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int = 0
    partition_epoch: int = 0


class PartitionChangeRecord(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """A partition got another leader, ISR or assignment (`replicas`).

    A field that is None or NO_LEADER_CHANGE does not change. As in KRaft, the record has no epochs.
    The replay of the record increases the partition epoch by 1. If the leader changes, the replay
    also increases the leader epoch by 1.
    """

    topic: str
    partition_id: int
    isr: tuple[int, ...] | None = None
    leader: int = NO_LEADER_CHANGE
    replicas: tuple[int, ...] | None = None


class ProducerIdsRecord(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """A broker got a block of producer ids. The next block will begin at `next_producer_id`."""

    broker_id: int
    broker_epoch: int
    next_producer_id: int


MetadataRecord = (
    RegisterBrokerRecord
    | BrokerRegistrationChangeRecord
    | TopicRecord
    | RemoveTopicRecord
    | ConfigRecord
    | PartitionRecord
    | PartitionChangeRecord
    | ProducerIdsRecord
)

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[MetadataRecord] = msgspec.msgpack.Decoder(MetadataRecord)


def encode_metadata_record(record: MetadataRecord) -> Record:
    """Return `record` as a record of the metadata log. Records of this log have no keys."""
    return Record(key=None, value=_encoder.encode(record))


def decode_metadata_record(record: Record) -> MetadataRecord:
    """Return the metadata record in the value of `record`.

    Raises: msgspec.MsgspecError if the value is missing or is no metadata record.
    """
    if record.value is None:
        raise msgspec.ValidationError("a metadata record has a value")
    return _decoder.decode(record.value)
