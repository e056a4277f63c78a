"""Reading of a log for a coordinator's load, in bounded turns.

When a broker becomes the coordinator of some groups, it loads their state: it reads the whole log
of the partition that has the state. To let the broker do other work meanwhile, the load is done in
turns. One turn reads a part of the log. Then other events may happen, before the next turn reads
the next part. In virtual time, ClusterSpec.costs determines how long each turn takes.
"""

from collections.abc import Callable
from dataclasses import dataclass

from cluster.host.host import Host
from cluster.spec import CostModel
from partition_log.replica import Partition
from protocol.records.batch import RecordBatch

LOAD_TURN_BYTES = 65_536
"""Bytes that a load reads in one turn, unless offsets.load.buffer.size is smaller.

A turn of this size takes a few milliseconds of real time. A heartbeat can wait that long.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRead:
    """The amount that a load has read; `position` is the offset after the last record."""

    position: int
    records: int
    size_in_bytes: int


async def read_log(
    host: Host,
    costs: CostModel,
    partition: Partition,
    take: Callable[[tuple[RecordBatch, ...]], None],
    *,
    turn_bytes: int,
) -> LogRead:
    """Pass the whole log to `take`, `turn_bytes` in each turn; return how much was read.

    As in Kafka, the log is read to its end, even beyond the high watermark. If this broker stops
    leading the partition, reading stops, too: a follower's log may be truncated at any time.
    """
    if host.simulates_costs:
        await host.sleep(costs.load_fixed_us)
    records = size_in_bytes = 0
    log = partition.log
    position = int(log.log_start_offset)
    while partition.is_leader and position < log.log_end_offset:
        batches = log.read(position, turn_bytes, up_to=log.log_end_offset)
        if not batches:  # only a precaution: below the log's end there is always a batch
            break
        position = batches[-1].next_offset
        turn_records = sum(batch.record_count for batch in batches)
        turn_size = sum(batch.size_in_bytes for batch in batches)
        records += turn_records
        size_in_bytes += turn_size
        take(batches)
        cost_ns = turn_records * costs.load_ns_per_record + turn_size * costs.load_ns_per_byte
        # In real time, reading has taken its time already. A sleep of 0 still lets other events
        # run before the next turn.
        await host.sleep(cost_ns // 1_000 if host.simulates_costs else 0)
    return LogRead(position=position, records=records, size_in_bytes=size_in_bytes)
