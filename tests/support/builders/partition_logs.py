"""Builders for the tests of the partition log: logs, replicas and fetches with sensible defaults.

A test may set three kinds of epochs. A partition gets a new `leader_epoch` with each election, and
a new `partition_epoch` whenever the controller changes the partition's leader or ISR. A broker gets
a new broker epoch when it registers after a restart. A follower sends its own broker epoch in each
fetch, where the field is called `replica_epoch`.
"""

from partition_log.batches import build_batch
from partition_log.invariants import check_log, check_partition
from partition_log.log import PartitionLog
from partition_log.memory_storage import MemoryLogStorage
from partition_log.outcomes import FetchResult, FollowerFetchResult, ReplicaConfig
from partition_log.replica import Partition
from partition_log.storage import LogStorage
from protocol.ids import BrokerEpoch, BrokerId, LeaderEpoch, Offset, offsets_partition
from protocol.messages.log import FetchPartition
from protocol.records.batch import Record, RecordBatch, decode_records

PARTITION = offsets_partition(3)
# A millisecond and a second in microseconds.
MS = 1_000
SECOND = 1_000_000
LAG_MAX_US = 30 * SECOND
"""The setting replica.lag.time.max.ms of every replica, but in microseconds."""
MESSAGE_MAX_BYTES = 1_048_588
"""Kafka's default of message.max.bytes."""
FETCH_MAX_BYTES = 1_048_576
"""Kafka's default of replica.fetch.max.bytes."""
NO_LIMIT = 2**62
"""A number of bytes that no log of a test reaches."""
A, B, C = BrokerId(0), BrokerId(1), BrokerId(2)
"""The ids of three brokers. Each of them has a replica of PARTITION."""
REPLICAS = (A, B, C)
EVERYBODY = {A: BrokerEpoch(100), B: BrokerEpoch(101), C: BrokerEpoch(102)}
"""The brokers that are registered and not fenced, with their broker epochs."""


def records(*values: str) -> tuple[Record, ...]:
    """Return one record for each value. The key of a record is equal to its value."""
    timestamp_ms = 7
    return tuple(Record(value.encode(), value.encode(), timestamp_ms) for value in values)


def batch(*values: str, base_offset: int = 0, leader_epoch: int = 0) -> RecordBatch:
    """Return a batch with one record for each value.

    Without values, the batch has one record with the value "v".
    """
    return build_batch(
        records(*(values or ("v",))), base_offset=base_offset, leader_epoch=leader_epoch
    )


def log(storage: LogStorage | None = None, *, high_watermark: int = 0) -> PartitionLog:
    """Return a log on `storage`. By default this is a new storage in memory."""
    if storage is None:
        storage = MemoryLogStorage()
    return PartitionLog(PARTITION, storage, high_watermark=high_watermark)


def log_of_epochs(*epochs: int) -> PartitionLog:
    """Return a log with one record for each of the leader epochs.

    The value of a record is its offset and its epoch: the log `log_of_epochs(0, 0, 2)` has the
    values "0@0", "1@0" and "2@2".
    """
    made = log()
    for epoch in epochs:
        made.append_as_leader(records(f"{made.log_end_offset}@{epoch}"), leader_epoch=epoch)
    return made


def values(partition_log: PartitionLog, *, up_to: int | None = None) -> list[str]:
    """Return the values of a log's records, up to the offset `up_to` or to the end of the log."""
    end = partition_log.log_end_offset if up_to is None else up_to
    batches = partition_log.read(partition_log.log_start_offset, NO_LIMIT, up_to=end)
    return [
        (record.value or b"").decode()
        for read_batch in batches
        for record in decode_records(read_batch.records)
    ]


def entries(*pairs: tuple[int, int]) -> tuple[tuple[LeaderEpoch, Offset], ...]:
    """Return what an epoch cache must contain: each leader epoch with the offset where it begins.

    `entries((0, 0), (2, 5))` means that epoch 0 begins at offset 0, and epoch 2 at offset 5.
    """
    return tuple((LeaderEpoch(epoch), Offset(offset)) for epoch, offset in pairs)


def replica(
    broker: BrokerId = A,
    partition_log: PartitionLog | None = None,
    *,
    min_insync_replicas: int = 2,
    min_insync_check: bool = True,
    message_max_bytes: int = MESSAGE_MAX_BYTES,
) -> Partition:
    """Return a replica of a partition that has no leader yet.

    Brokers 0, 1 and 2 are registered and not fenced, so each of them may be in the ISR.
    """
    made = Partition(
        PARTITION,
        broker,
        log() if partition_log is None else partition_log,
        ReplicaConfig(
            min_insync_replicas=min_insync_replicas,
            replica_lag_time_max_ms=LAG_MAX_US // MS,
            message_max_bytes=message_max_bytes,
            min_insync_check=min_insync_check,
        ),
    )
    made.update_eligible_brokers(EVERYBODY)
    return made


def leader(
    broker: BrokerId = A,
    partition_log: PartitionLog | None = None,
    *,
    isr: tuple[BrokerId, ...] = REPLICAS,
    replicas: tuple[BrokerId, ...] = REPLICAS,
    leader_epoch: int = 1,
    partition_epoch: int = 1,
    now_us: int = 0,
    min_insync_replicas: int = 2,
    min_insync_check: bool = True,
    message_max_bytes: int = MESSAGE_MAX_BYTES,
) -> Partition:
    """Return a replica that leads since `now_us`, by default with an empty log.

    No follower has fetched from the leader yet. So at first the high watermark can move only if the
    leader is the only broker in `isr`.
    """
    made = replica(
        broker,
        partition_log,
        min_insync_replicas=min_insync_replicas,
        min_insync_check=min_insync_check,
        message_max_bytes=message_max_bytes,
    )
    made.make_leader(
        leader_epoch=leader_epoch,
        partition_epoch=partition_epoch,
        replicas=replicas,
        isr=isr,
        now_us=now_us,
    )
    return made


def follower(
    broker: BrokerId = B,
    partition_log: PartitionLog | None = None,
    *,
    leader_id: BrokerId = A,
    leader_epoch: int = 1,
    partition_epoch: int = 1,
) -> Partition:
    """Return a replica that follows the broker `leader_id`, by default with an empty log."""
    made = replica(broker, partition_log)
    made.make_follower(
        leader_id=leader_id,
        leader_epoch=leader_epoch,
        partition_epoch=partition_epoch,
        replicas=REPLICAS,
        isr=REPLICAS,
    )
    return made


def fetch_request(
    offset: int,
    *,
    leader_epoch: int = 1,
    last_fetched_epoch: int = -1,
    partition_max_bytes: int = FETCH_MAX_BYTES,
) -> FetchPartition:
    """Return the part of a Fetch that is about PARTITION. It asks for records from `offset` on."""
    return FetchPartition(
        partition=PARTITION.partition,
        current_leader_epoch=leader_epoch,
        fetch_offset=offset,
        last_fetched_epoch=last_fetched_epoch,
        partition_max_bytes=partition_max_bytes,
    )


def fetch_as(
    leading: Partition,
    broker: int,
    offset: int,
    *,
    now_us: int = 0,
    leader_epoch: int = 1,
    last_fetched_epoch: int = -1,
    replica_epoch: int | None = None,
    max_bytes: int = 2**31,
) -> FetchResult:
    """Fetch from `leading` as the follower `broker`, whose log ends at `offset`.

    Afterwards the invariants of the leader's log and partition are checked.

    broker: the id of the follower. -1 stands for a consumer.
    last_fetched_epoch: the leader epoch of the follower's last record; -1 if its log is empty.
    replica_epoch: the broker epoch in the request. By default it is the epoch that EVERYBODY has
        for this broker.
    """
    request = fetch_request(
        offset, leader_epoch=leader_epoch, last_fetched_epoch=last_fetched_epoch
    )
    epoch: int
    if replica_epoch is not None:
        epoch = replica_epoch
    else:
        # A consumer has no broker epoch, and sends -1.
        epoch = EVERYBODY.get(BrokerId(broker), BrokerEpoch(-1))
    # A real broker first calls `fetch_nothing`, because it is cheap. If there are no records to
    # send, `fetch_nothing` returns an answer, which must be equal to the answer of `fetch`.
    # Otherwise it returns None.
    quick_answer = leading.fetch_nothing(request, broker, epoch, now_us)
    result = leading.fetch(
        request, replica_id=broker, replica_epoch=epoch, max_bytes=max_bytes, now_us=now_us
    )
    assert quick_answer is None or result == FetchResult(data=quick_answer)
    check_log(leading.log)
    check_partition(leading)
    return result


def replicate(leading: Partition, following: Partition, *, now_us: int = 0) -> FollowerFetchResult:
    """Let `following` fetch once from `leading` and apply the answer.

    Afterwards the invariants of both logs and both partitions are checked.
    """
    request = following.fetch_position(FETCH_MAX_BYTES)
    answer = leading.fetch(
        request,
        replica_id=following.broker_id,
        replica_epoch=EVERYBODY[following.broker_id],
        max_bytes=2**31,
        now_us=now_us,
    )
    result = following.handle_fetch_response(request, answer.data)
    for partition in (leading, following):
        check_log(partition.log)
        check_partition(partition)
    return result
