"""Invariants of a log, of a replica, and between the replicas of one partition.

The docstring of each check says what must be true. Otherwise the check raises InvariantViolation
with the invariant's name and evidence. For example, a log whose batches leave a hole raises
"contiguous log" with the text "t-0: batch 3 begins at 9, expected 8".

The checks compute everything anew from the batches of a log, and compare the result with what the
log keeps in memory. A compacted log is checked less strictly, because cleanings (rounds of
compaction) may have removed records and batches.
"""

from collections.abc import Sequence
from itertools import pairwise

from partition_log.batches import check_batch
from partition_log.log import PartitionLog
from partition_log.producer_states import BATCHES_TO_RETAIN
from partition_log.replica import Partition
from partition_log.transaction_index import TransactionIndex
from protocol.compression import NO_CODECS, Codecs
from protocol.errors import ErrorCode, InvariantViolation
from protocol.ids import NO_LEADER_EPOCH, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE
from protocol.records.batch import Record, records_of
from protocol.records.control import decode_marker


def check_log(log: PartitionLog, *, expired_ms: int = -1) -> None:
    """All that a log keeps in memory agrees with its batches, and the batches fit together.

    - The high watermark and the recovery point are within the log.
    - The batches are whole and leave no holes (except in a compacted log). Their leader epochs
      never fall.
    - The log knows where each leader epoch begins, which transactions are open, and what each
      producer has written. `expired_ms` is explained in `check_producers`.

    The check is slow, because it reads every batch. So it is called in tests, and for a log that
    was just opened.

    Raises: InvariantViolation.
    """
    _check_offsets(log)
    _check_batches(log)
    _check_epochs(log)
    _check_open_transactions(log)
    check_producers(log, expired_ms=expired_ms)


def check_partition(partition: Partition) -> None:
    """What a replica knows about its leadership and its ISR agrees.

    - A leader is one of the replicas. The latest epoch of its log is its leader epoch. The log has
      not become shorter since this epoch began.
    - Only a leader proposes a change of the ISR to the controller. While no proposal is in flight,
      the ISR and the maximal ISR (which includes the replicas that a proposal adds) are equal.

    Raises: InvariantViolation.
    """
    log = partition.log
    _check_offsets(log)
    in_flight = partition.isr_in_flight
    # On a follower, the start offset of the leader epoch must be -1.
    if not partition.is_leader:
        if in_flight is not None or partition.leader_epoch_start_offset != -1:
            raise InvariantViolation(
                "follower proposes nothing", f"{_name_of(partition)}: {in_flight}"
            )
        return

    if partition.broker_id not in partition.replicas:
        raise InvariantViolation(
            "leader is a replica", f"{_name_of(partition)}: {partition.replicas}"
        )
    if log.latest_epoch != partition.leader_epoch:
        raise InvariantViolation(
            "leader writes in its epoch",
            f"{_name_of(partition)}: log is in {log.latest_epoch}, "
            f"leads in {partition.leader_epoch}",
        )
    if not partition.leader_epoch_start_offset <= log.log_end_offset:
        raise InvariantViolation(
            "a leader never truncates",
            f"{_name_of(partition)}: epoch began at {partition.leader_epoch_start_offset}, "
            f"the log ends at {log.log_end_offset}",
        )

    isr, maximal_isr = partition.isr, partition.maximal_isr
    if isr == maximal_isr:
        return  # a proposal in flight that only removes replicas leaves both equal
    if not set(isr) <= set(maximal_isr):
        raise InvariantViolation(
            "ISR within the maximal ISR", f"{_name_of(partition)}: {isr}, {maximal_isr}"
        )
    if in_flight is None:
        raise InvariantViolation(
            "without a proposal in flight, the ISR is the maximal ISR",
            f"{_name_of(partition)}: {isr}, {maximal_isr}",
        )


def _name_of(partition: Partition) -> str:
    return f"{partition.topic_partition} on {partition.broker_id}"


def check_agreement(logs: Sequence[PartitionLog], codecs: Codecs = NO_CODECS) -> None:
    """Any two replicas have the same batches below the smaller of their high watermarks.

    In a compacted log the batches may differ, because each broker compacts its own log. But the
    last record of each key must be the same.

    This is true only as long as no unclean election has happened. After an unclean election, a
    replica may have batches below its high watermark that the leader does not have.

    Raises: InvariantViolation.
    """
    for position, log in enumerate(logs):
        for other in logs[position + 1 :]:  # each pair of replicas once
            committed = min(log.high_watermark, other.high_watermark)
            if _committed(log, committed, codecs) != _committed(other, committed, codecs):
                raise InvariantViolation(
                    "logs agree below the high watermark",
                    f"{log.topic_partition}: two replicas differ below {committed}: "
                    f"epochs {log.epochs.entries()} and {other.epochs.entries()}",
                )


def _committed(log: PartitionLog, up_to: int, codecs: Codecs) -> object:
    """Return what must be equal on all replicas below the offset `up_to`.

    These are the batches, or the last records of the keys of a compacted log.
    """
    batches = log.read(0, 2**62, up_to=up_to)  # without a limit of bytes
    return last_records(log, up_to, codecs) if log.is_compacted else batches


def last_records(
    log: PartitionLog, up_to: int, codecs: Codecs = NO_CODECS
) -> dict[bytes, tuple[int, Record]]:
    """Return the last record of each key below `up_to`: key -> (offset, record).

    Records of aborted and of open transactions are ignored. If the last record of a key has no
    value, the key is deleted, so the result does not have this key.
    """
    transactions = TransactionIndex(log, up_to)
    found: dict[bytes, tuple[int, Record]] = {}
    for batch in log.read(0, 2**62, up_to=up_to):  # without a limit of bytes
        if not batch.is_control and transactions.counts(batch):
            for offset, record in records_of(batch, codecs):
                if record.key is not None:
                    found[record.key] = (offset, record)
    return {key: written for key, written in found.items() if written[1].value is not None}


def _check_offsets(log: PartitionLog) -> None:
    """The high watermark and the recovery point are within the log.

    The recovery point is the offset below which the log is flushed. If flush.messages is set, the
    number of records above the recovery point is smaller than flush.messages.
    """
    start, end = log.log_start_offset, log.log_end_offset
    if not 0 <= start <= log.high_watermark <= end:
        raise InvariantViolation(
            "log start <= high watermark <= log end",
            f"{log.topic_partition}: {start}, {log.high_watermark}, {end}",
        )
    if not start <= log.recovery_point <= end:
        raise InvariantViolation(
            "log start <= recovery point <= log end",
            f"{log.topic_partition}: {start}, {log.recovery_point}, {end}",
        )
    flushed_every = log.flush_interval_messages
    if flushed_every is not None and end - log.recovery_point >= flushed_every:
        raise InvariantViolation(
            "a log is flushed at flush.messages",
            f"{log.topic_partition}: {end - log.recovery_point} records are not "
            f"flushed, flush.messages is {flushed_every}",
        )


def _check_batches(log: PartitionLog) -> None:
    """Batches are in order and whole. Only a compacted log has holes between them."""
    next_offset: int = log.log_start_offset
    epoch: int = NO_LEADER_EPOCH
    for index in range(len(log.storage)):
        batch = log.storage.batch(index)
        offset = batch.base_offset
        in_order = offset >= next_offset if log.is_compacted else offset == next_offset
        # `storage.base_offset` may come from an index, so it is compared with the batch itself.
        if not in_order or log.storage.base_offset(index) != offset:
            raise InvariantViolation(
                "contiguous log",
                f"{log.topic_partition}: batch {index} begins at {batch.base_offset}, "
                f"expected {next_offset}",
            )
        if batch.partition_leader_epoch < epoch:
            raise InvariantViolation(
                "leader epochs never fall",
                f"{log.topic_partition}: batch {index} is of epoch "
                f"{batch.partition_leader_epoch} after {epoch}",
            )
        if check_batch(batch) is not ErrorCode.NONE:
            raise InvariantViolation(
                "batches are whole", f"{log.topic_partition}: batch {index} has a wrong CRC"
            )
        next_offset = batch.next_offset
        epoch = batch.partition_leader_epoch
    # A cleaning may also have removed the last batches. Then the log ends after the last batch that
    # is left.
    if next_offset != log.log_end_offset and not (
        log.is_compacted and next_offset < log.log_end_offset
    ):
        raise InvariantViolation(
            "contiguous log",
            f"{log.topic_partition}: batches end at {next_offset}, the log at {log.log_end_offset}",
        )


def _check_epochs(log: PartitionLog) -> None:
    """The log knows the offset at which each leader epoch of its batches begins.

    In the epoch cache, epochs and offsets increase.
    """
    entries = log.epochs.entries()
    for entry, successor in pairwise(entries):
        if entry.epoch >= successor.epoch or entry.offset >= successor.offset:
            raise InvariantViolation(
                "epoch cache increases", f"{log.topic_partition}: {entry} before {successor}"
            )
    starts: dict[int, int] = {entry.epoch: entry.offset for entry in entries}
    epoch: int = NO_LEADER_EPOCH
    for index in range(len(log.storage)):
        batch = log.storage.batch(index)
        began = batch.partition_leader_epoch != epoch
        epoch = batch.partition_leader_epoch
        if began and starts.get(epoch) != batch.base_offset:
            raise InvariantViolation(
                "epoch cache matches the batches",
                f"{log.topic_partition}: epoch {epoch} begins at {batch.base_offset}, "
                f"the cache says {starts.get(epoch)}",
            )


def check_producers(log: PartitionLog, *, expired_ms: int = -1) -> None:
    """What a log remembers about each producer agrees with the producer's batches in the log.

    - The producer's epoch is the epoch of its last batch.
    - The remembered batches are the producer's last batches with records in this epoch, oldest
      first.

    There are two exceptions:
    - A producer that writes nothing for producer.id.expiration.ms is forgotten. If the producer
      writes again later, the log remembers only its new batches. So a batch may be forgotten if it
      is not younger than `expired_ms`. This is the present time minus producer.id.expiration.ms, in
      milliseconds since the epoch, or -1 if no producer can have expired.
    - In a compacted log, a cleaning may have removed batches and markers that the log still
      remembers. Then the remembered batches that are left must be the producer's last batches in
      the log. No remembered batch may be beyond the end of the log.

    The check reads every batch.

    Raises: InvariantViolation.
    Source: Kafka ProducerStateManager, ProducerStateEntry.
    """
    if not log.producers:
        return  # the log remembers no producer, so there is nothing to compare
    in_log = _last_batches_of_producers(log)
    remembered_producers = log.producers.last_batches()
    # A producer with batches in the log is remembered, or is expired.
    for producer_id, (_, log_batches) in in_log.items():
        if producer_id in remembered_producers or not log_batches:
            continue
        if log_batches[-1][-1] > expired_ms:  # the timestamp of the last batch
            raise InvariantViolation(
                "the state of a producer follows from the log",
                f"{log.topic_partition}: no state of producer {producer_id}, whose last batch in "
                f"the log is {log_batches[-1]}",
            )
    # The batches that are remembered of a producer are its last batches in the log. A batch is
    # named by its span here: (first offset, last offset).
    for producer_id, (epoch, remembered) in remembered_producers.items():
        known = [(batch.first_offset, batch.last_offset) for batch in remembered]
        log_epoch, log_batches = in_log.get(producer_id, (NO_PRODUCER_EPOCH, []))
        if log.is_compacted:
            # A cleaning may have removed the marker with the producer's epoch. Then `log_epoch` is
            # lower than `epoch`.
            holds = all(last < log.log_end_offset for _, last in known) and log_epoch <= epoch
            if holds and log_epoch == epoch:
                # `left` has the last batches that are in the log. If a cleaning has removed some
                # remembered batches, `left` begins with batches that are too old to be remembered.
                # The batches of `left` from `oldest` on must be the remembered batches that are
                # left.
                left = [span for span, *_ in log_batches[-BATCHES_TO_RETAIN:]]
                oldest = min((first for first, _ in known), default=-1)
                holds = [span for span in left if span[0] >= oldest] == [
                    span for span in known if span in left
                ] and (bool(known) or not left)
                # If no batch is remembered (`known` is empty), no batch may be left in the log. The
                # exception is a producer that was forgotten and has written only a marker since
                # then.
                if not known and left:
                    holds = log_batches[-1][-1] <= expired_ms
        else:
            # The producer may have been forgotten once. Then only its later batches are remembered,
            # so the first `missing` batches of `expected` are not. The newest of these must be old
            # enough to have expired.
            expected = [
                (first_sequence, last_sequence, *span, timestamp_ms)
                for span, first_sequence, last_sequence, timestamp_ms in log_batches
            ][-BATCHES_TO_RETAIN:]
            missing = len(expected) - len(remembered)
            holds = (epoch, [tuple(batch) for batch in remembered]) == (
                log_epoch,
                expected[max(missing, 0) :],
            ) and (missing <= 0 or expected[missing - 1][-1] <= expired_ms)
        if not holds:
            raise InvariantViolation(
                "the state of a producer follows from the log",
                f"{log.topic_partition}: producer {producer_id} has epoch {epoch} and batches "
                f"{remembered}; the log, which ends at {log.log_end_offset}, has epoch "
                f"{log_epoch} and batches {log_batches[-BATCHES_TO_RETAIN:]}",
            )


_BatchOfProducer = tuple[tuple[int, int], int, int, int]
"""A batch of a producer: (first offset, last offset), first sequence, last sequence, timestamp."""


def _last_batches_of_producers(log: PartitionLog) -> dict[int, tuple[int, list[_BatchOfProducer]]]:
    """Return, for each producer id, its last epoch, and its data batches in this epoch."""
    found: dict[int, tuple[int, list[_BatchOfProducer]]] = {}
    for index in range(len(log.storage)):
        batch = log.storage.batch(index)
        if batch.producer_id == NO_PRODUCER_ID:
            continue
        epoch, batches = found.get(batch.producer_id, (NO_PRODUCER_EPOCH, []))
        if epoch != batch.producer_epoch:
            batches = []
        found[batch.producer_id] = (batch.producer_epoch, batches)
        if not batch.is_control:
            last_sequence = batch.base_sequence
            if last_sequence != NO_SEQUENCE:
                # A producer numbers its records up to the largest int32, and then from 0 again.
                last_sequence = (last_sequence + batch.last_offset_delta) % 2**31
            batches.append(
                (
                    (batch.base_offset, batch.last_offset),
                    batch.base_sequence,
                    last_sequence,
                    batch.max_timestamp_ms,
                )
            )
    return found


def _check_open_transactions(log: PartitionLog) -> None:
    """The first unstable offset is the offset at which the oldest open transaction begins.

    A transaction is open while the log has no marker that ends it.
    """
    began: dict[int, int] = {}  # producer id -> offset of its open transaction
    for index in range(len(log.storage)):
        batch = log.storage.batch(index)
        if batch.producer_id == NO_PRODUCER_ID:
            continue
        if batch.is_transactional and not batch.is_control:
            began.setdefault(batch.producer_id, batch.base_offset)
        elif batch.is_control and decode_marker(batch) is not None:
            began.pop(batch.producer_id, None)
    first = min(began.values(), default=None)
    if first != log.producers.first_unstable_offset:
        raise InvariantViolation(
            "the first unstable offset begins the oldest transaction without a marker",
            f"{log.topic_partition}: {log.producers.first_unstable_offset}, "
            f"the batches say {first}",
        )
