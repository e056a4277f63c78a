"""Ownerships, overlaps of owners, and processed records, computed from rows in plain Python.

Tests compare the pipeline's tables, which Spark computes with windows and joins, with this model.
The model follows only the tables' documentation, and shares no code with the pipeline. It goes
through the rows of the trace (recorded events) in the order of time. A node's incarnation is the
number of its restarts.
"""

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from protocol.trace import TraceKind, TraceRow
from tests.support.builders.rows import Rows

GROUP = "g"
_CONSUMERS = ("c-0", "c-1", "c-2", "c-3")
_PARTITIONS = ("t-0", "t-1", "t-2")
_OWN_ENDS = {
    TraceKind.PARTITIONS_REVOKED: "revoked",
    TraceKind.PARTITIONS_LOST: "lost",
}
"""Rows by which a member gives partitions up, and the value of the column `ended_by` for each."""


@dataclass(slots=True)
class Interval:
    """The time in which a member owns a partition.

    `to_us` is None, and `ended_by` is "run end", if the ownership did not end before the run.
    `records` is the number of records of the partition that the member processed in this time.
    `paused_us` is the part of this time in which the member's process was paused.
    """

    partition: str
    consumer: str
    incarnation: int
    from_us: int
    to_us: int | None = None
    ended_by: str = "run end"
    paused_us: int = 0
    records: int = 0


@dataclass(slots=True)
class Owned:
    """The model's results.

    - `intervals`: all ownerships.
    - `overlaps`: for each time in which two members owned a partition, the number of records that
      both processed. The key is the partition, the first owner, the second owner, and the begin and
      end of the time. The end is None if both owned the partition when the run ended.
    - `processing`: the numbers of "records" and of "repeated" records that a consumer processed of
      a partition. The key is the partition and the consumer.
    """

    intervals: list[Interval] = field(default_factory=list)
    overlaps: dict[tuple[str, str, str, int, int | None], int] = field(default_factory=dict)
    processing: dict[tuple[str, str], dict[str, int]] = field(default_factory=dict)


def random_owners(seed: int) -> list[TraceRow]:
    """Return a random trace of members that start, stop, pause and process, in time order.

    No coordinator keeps the members apart: they often own the same partition.
    """
    rng = random.Random(seed)
    rows = Rows()
    time_us = 1_000_000
    incarnations = dict.fromkeys(_CONSUMERS, 0)
    alive = dict.fromkeys(_CONSUMERS, True)
    paused = dict.fromkeys(_CONSUMERS, False)
    rows.stage(0, "steady")  # the stage of the experiment, from second 0

    def add(node: str, kind: TraceKind, **columns: object) -> None:
        rows.add(time_us / 1e6, node, kind, **columns)  # type: ignore[arg-type]

    for _ in range(rng.randint(40, 120)):
        # The delay of 1 us is drawn most often, so many rows have nearly the same time.
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
                kind = rng.choice(tuple(_OWN_ENDS))
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
    """Return owners and processed records in the group `GROUP` of one run."""
    end_us = rows[-1].time_us  # the last row is the stage "stopping", with which the run ends
    owned = Owned()
    current: dict[tuple[str, str], Interval] = {}  # (node, partition) -> present ownership
    pauses: list[tuple[str, int, int]] = []  # ended pauses: node, from, to
    paused_at: dict[str, int] = {}  # nodes that are paused now

    def close(node: str, partition: str, at_us: int, ended_by: str) -> None:
        """End the node's ownership of the partition, if it has one."""
        interval = current.pop((node, partition), None)
        if interval is not None:
            interval.to_us, interval.ended_by = at_us, ended_by

    def close_all(node: str, at_us: int, ended_by: str) -> None:
        """End all ownerships of a node."""
        for owner, partition in list(current):
            if owner == node:
                close(node, partition, at_us, ended_by)

    def end_pause(node: str, at_us: int) -> None:
        """End a node's pause, if it is paused."""
        if node in paused_at:
            pauses.append((node, paused_at.pop(node), at_us))

    for row in rows:
        detail = json.loads(row.detail) if row.detail else {}
        match row.kind:
            case TraceKind.PARTITIONS_ASSIGNED:
                for partition in detail["partitions"]:
                    close(row.node, partition, row.time_us, "reassigned")
                    interval = Interval(partition, row.node, row.incarnation, row.time_us)
                    current[row.node, partition] = interval
                    owned.intervals.append(interval)
            case TraceKind.PARTITIONS_REVOKED | TraceKind.PARTITIONS_LOST:
                for partition in detail["partitions"]:
                    close(row.node, partition, row.time_us, _OWN_ENDS[TraceKind(row.kind)])
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
                owner = current.get((row.node, str(row.partition)))
                if owner is not None:
                    owner.records += detail["count"]
            case _:
                pass

    # A pause that was not ended lasts to the end of the run.
    for node in list(paused_at):
        end_pause(node, end_us)
    for interval in owned.intervals:
        until_us = end_us if interval.to_us is None else interval.to_us
        # The common time of each pause and the interval; 0 if they have none.
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
"""Time, consumer, partition and offset of each processed record, in order."""


def _processed(rows: Sequence[TraceRow]) -> _Processed:
    """Return one entry for each record of each processed batch."""
    batches = [row for row in rows if row.kind == TraceKind.RECORDS_CONSUMED]
    batches.sort(key=lambda row: (row.time_us, row.node, row.incarnation, row.seq))
    return [
        (row.time_us, row.node, str(row.partition), offset)
        for row in batches
        for offset in range(row.offset or 0, json.loads(row.detail or "")["last"] + 1)
    ]


def _add_overlaps(owned: Owned, processed: _Processed, end_us: int) -> None:
    """Add each overlap of two owners, with the number of records that both processed in it."""
    # Take each pair of ownerships once. `first` began before `second`, so an overlap begins when
    # `second` begins.
    in_order = sorted(owned.intervals, key=lambda interval: (interval.from_us, interval.consumer))
    for index, first in enumerate(in_order):
        for second in in_order[index + 1 :]:
            if first.partition != second.partition or first.consumer == second.consumer:
                continue
            ends = [owner.to_us for owner in (first, second) if owner.to_us is not None]
            until_us = min([*ends, end_us])
            if second.from_us >= until_us:
                continue
            # For each of the two owners, the offsets that it processed during the overlap.
            offsets = [
                {
                    offset
                    for time_us, consumer, partition, offset in processed
                    if (consumer, partition) == (owner.consumer, first.partition)
                    and second.from_us <= time_us <= until_us
                }
                for owner in (first, second)
            ]
            key = (first.partition, first.consumer, second.consumer, second.from_us)
            owned.overlaps[(*key, min(ends, default=None))] = len(offsets[0] & offsets[1])


def _count_processed(owned: Owned, processed: _Processed) -> None:
    """Count the records that each consumer processed of each partition, and the repeated ones.

    A record is repeated if this or another consumer processed it before.
    """
    earlier: dict[tuple[str, int], None] = {}  # partition and offset; only the keys matter
    for _, consumer, partition, offset in processed:
        counts = owned.processing.setdefault((partition, consumer), {"records": 0, "repeated": 0})
        counts["records"] += 1
        counts["repeated"] += (partition, offset) in earlier
        earlier[partition, offset] = None
