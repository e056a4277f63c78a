"""A model in plain Python of the tables about owners of partitions and processed records.

The pipeline computes these tables with Spark's windows and joins. Tests compare its tables with the
results of this model. The model goes through the rows of a trace (the recorded events) in the order
of time. It follows the documentation of the tables, and shares no code with the pipeline.
"""

import itertools
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from protocol.trace import TraceKind, TraceRow
from tests.support.builders.rows import Rows

GROUP = "g"
_CONSUMERS = ("c-0", "c-1", "c-2", "c-3")
_PARTITIONS = ("t-0", "t-1", "t-2")
_ENDED_BY = {
    TraceKind.PARTITIONS_REVOKED: "revoked",
    TraceKind.PARTITIONS_LOST: "lost",
}
"""Kind of the row with which a member gives partitions up -> the value in the column `ended_by`."""


@dataclass(slots=True)
class Interval:
    """The time in which a member owned a partition."""

    partition: str
    consumer: str
    # The number of earlier restarts of the consumer's node.
    incarnation: int
    from_us: int
    # None if the member still owned the partition when the run ended.
    to_us: int | None = None
    ended_by: str = "run end"
    # The part of this time in which the member's process was paused.
    paused_us: int = 0
    # The number of records of the partition that the member processed in this time.
    records: int = 0


@dataclass(slots=True)
class Owned:
    """The results of the model."""

    intervals: list[Interval] = field(default_factory=list)
    # The overlaps: the times in which a partition had two owners. A key is (partition, first owner,
    # second owner, begin, end). The end is None if both owners still owned the partition when the
    # run ended. The value is the number of records that both owners processed during the overlap.
    overlaps: dict[tuple[str, str, str, int, int | None], int] = field(default_factory=dict)
    # (partition, consumer) -> two numbers. "records" is the number of records that the consumer
    # processed. "repeated" is the number of those that had already been processed before.
    processing: dict[tuple[str, str], dict[str, int]] = field(default_factory=dict)


def random_owners(seed: int) -> list[TraceRow]:
    """Return a random trace of members that start, stop, pause and process records.

    There is no coordinator, so several members often own the same partition.
    """
    rng = random.Random(seed)
    rows = Rows()
    time_us = 1_000_000
    incarnations = dict.fromkeys(_CONSUMERS, 0)
    alive = dict.fromkeys(_CONSUMERS, True)
    paused = dict.fromkeys(_CONSUMERS, False)
    rows.stage(0, "steady")

    def add(node: str, kind: TraceKind, **columns: object) -> None:
        # `Rows.add` takes the time in seconds.
        rows.add(time_us / 1e6, node, kind, **columns)  # type: ignore[arg-type]

    for _ in range(rng.randint(40, 120)):
        # Half of the delays are only 1 us, so that many rows have nearly the same time.
        time_us += rng.choice((1, 1, 7_000, 1_000_000))
        node = rng.choice(_CONSUMERS)
        if not alive[node]:
            incarnations[node] += 1
            alive[node] = True
            add(node, TraceKind.NODE_STARTED, incarnation=incarnations[node])
            continue
        if paused[node]:
            add("driver", TraceKind.NODE_RESUMED, peer=node)
            paused[node] = False
            continue
        partitions = rng.sample(_PARTITIONS, rng.randint(1, len(_PARTITIONS)))
        member: dict[str, object] = {
            "group": GROUP,
            "member": node,
            "incarnation": incarnations[node],
        }
        match rng.choice(("assign", "assign", "give up", "consume", "consume", "pause", "die")):
            case "assign":
                kind = TraceKind.PARTITIONS_ASSIGNED
                add(node, kind, generation=1, detail={"partitions": partitions}, **member)
            case "give up":
                kind = rng.choice(tuple(_ENDED_BY))
                add(node, kind, generation=1, detail={"partitions": partitions}, **member)
            case "consume":
                first, count = rng.randint(0, 30), rng.randint(1, 12)
                detail = {"count": count, "last": first + count - 1}
                kind = TraceKind.RECORDS_CONSUMED
                add(node, kind, partition=partitions[0], offset=first, detail=detail, **member)
            case "pause":
                add("driver", TraceKind.NODE_PAUSED, peer=node)
                paused[node] = True
            case "die":
                if rng.random() < 0.5:
                    add("driver", TraceKind.NODE_KILLED, peer=node)
                else:
                    add(node, TraceKind.NODE_STOPPED, incarnation=incarnations[node])
                alive[node] = False
    rows.stage(time_us / 1e6 + 1, "stopping")
    return rows.rows


def owned_by(rows: Sequence[TraceRow]) -> Owned:
    """Return the owners and the processed records of the group `GROUP` in one run."""
    # The run ends with its stage "stopping", which is the last row.
    end_us = rows[-1].time_us
    owned = Owned()
    # (node, partition) -> the present ownership.
    current: dict[tuple[str, str], Interval] = {}
    # (node, begin, end) of each pause that is over.
    pauses: list[tuple[str, int, int]] = []
    # Node that is paused at the present row -> begin of the pause.
    paused_at: dict[str, int] = {}

    def close(node: str, partition: str, at_us: int, ended_by: str) -> None:
        """End the ownership of a partition by a node, if there is one."""
        interval = current.pop((node, partition), None)
        if interval is not None:
            interval.to_us, interval.ended_by = at_us, ended_by

    def close_all(node: str, at_us: int, ended_by: str) -> None:
        """End all ownerships of a node."""
        for owner, partition in list(current):
            if owner == node:
                close(node, partition, at_us, ended_by)

    def end_pause(node: str, at_us: int) -> None:
        """End the pause of a node, if it is paused."""
        if node in paused_at:
            pauses.append((node, paused_at.pop(node), at_us))

    for row in rows:
        detail = json.loads(row.detail) if row.detail else {}
        match row.kind:
            case TraceKind.PARTITIONS_ASSIGNED:
                for partition in detail["partitions"]:
                    # If the member already owns the partition, a new interval begins here.
                    close(row.node, partition, row.time_us, "reassigned")
                    interval = Interval(partition, row.node, row.incarnation, row.time_us)
                    current[row.node, partition] = interval
                    owned.intervals.append(interval)
            case TraceKind.PARTITIONS_REVOKED | TraceKind.PARTITIONS_LOST:
                for partition in detail["partitions"]:
                    close(row.node, partition, row.time_us, _ENDED_BY[TraceKind(row.kind)])
            case TraceKind.NODE_KILLED:
                close_all(str(row.peer), row.time_us, "killed")
                end_pause(str(row.peer), row.time_us)
            case TraceKind.NODE_STOPPED:
                close_all(row.node, row.time_us, "stopped")
            case TraceKind.NODE_PAUSED:
                paused_at[str(row.peer)] = row.time_us
            case TraceKind.NODE_RESUMED:
                end_pause(str(row.peer), row.time_us)
            case TraceKind.RECORDS_CONSUMED:
                # A record belongs to no interval if the member does not own the partition.
                owner = current.get((row.node, str(row.partition)))
                if owner is not None:
                    owner.records += detail["count"]
            case _:
                pass

    # A pause that was never ended lasts until the run ends.
    for node in list(paused_at):
        end_pause(node, end_us)
    for interval in owned.intervals:
        until_us = end_us if interval.to_us is None else interval.to_us
        # Add up the time by which each pause overlaps the interval. It is 0 if they do not overlap.
        interval.paused_us = sum(
            max(0, min(until_us, resumed_us) - max(interval.from_us, began_us))
            for node, began_us, resumed_us in pauses
            if node == interval.consumer
        )
    processed = _processed(rows)
    _add_overlaps(owned, processed, end_us)
    _count_processed(owned, processed)
    return owned


_Processed = list[tuple[int, str, str, int]]
"""(time, consumer, partition, offset) of each processed record, in the order of time."""


def _processed(rows: Sequence[TraceRow]) -> _Processed:
    """Return an entry for each processed record.

    A row of the trace is about several records: those from its `offset` to `last` in its detail.
    """
    batches = [row for row in rows if row.kind == TraceKind.RECORDS_CONSUMED]
    batches.sort(key=lambda row: (row.time_us, row.node, row.incarnation, row.seq))
    processed: _Processed = []
    for row in batches:
        first_offset = row.offset or 0
        last_offset = json.loads(row.detail or "")["last"]
        processed += [
            (row.time_us, row.node, str(row.partition), offset)
            for offset in range(first_offset, last_offset + 1)
        ]
    return processed


def _add_overlaps(owned: Owned, processed: _Processed, end_us: int) -> None:
    """Add each time in which a partition had two owners, with the records that both processed."""
    # `combinations` gives each pair of intervals once. `first` begins before `second`. So both
    # consumers own the partition from the begin of `second` on.
    in_order = sorted(owned.intervals, key=lambda interval: (interval.from_us, interval.consumer))
    for first, second in itertools.combinations(in_order, 2):
        if first.partition != second.partition or first.consumer == second.consumer:
            continue
        ends = [owner.to_us for owner in (first, second) if owner.to_us is not None]
        # None if both consumers own the partition until the run ends.
        overlap_end_us = min(ends, default=None)
        until_us = end_us if overlap_end_us is None else overlap_end_us
        if second.from_us >= until_us:
            # `first` had ended before `second` began.
            continue
        # The offsets that each of the two owners processed while both owned the partition.
        first_offsets, second_offsets = (
            {
                offset
                for time_us, consumer, partition, offset in processed
                if (consumer, partition) == (owner.consumer, first.partition)
                and second.from_us <= time_us <= until_us
            }
            for owner in (first, second)
        )
        key = (first.partition, first.consumer, second.consumer, second.from_us, overlap_end_us)
        owned.overlaps[key] = len(first_offsets & second_offsets)


def _count_processed(owned: Owned, processed: _Processed) -> None:
    """Count the records that each consumer processed of each partition, and the repeated records.

    A record is repeated if any consumer had processed the record before.
    """
    # (partition, offset) of all records that were processed so far.
    earlier: set[tuple[str, int]] = set()
    for _, consumer, partition, offset in processed:
        counts = owned.processing.setdefault((partition, consumer), {"records": 0, "repeated": 0})
        counts["records"] += 1
        if (partition, offset) in earlier:
            counts["repeated"] += 1
        earlier.add((partition, offset))
