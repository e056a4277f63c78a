"""The trace for the tables in memory: ordered rows, the run's end, deaths, pauses and cuts.

The trace of a run is its recorded rows of events. The functions in this folder compute tables
without Spark, by loops over sorted rows. docs/TABLES.md defines the tables. The Spark tables are
computed by other code (`pipeline.tables`), so that a test which compares both finds a mistake in
one of them.

An incarnation (also called a life) of a node is the time from one start of its process to its end;
`seq` numbers the rows of an incarnation. A cut is a time in which a fault of the network separates
a node from others. An offsets partition is a partition of `__consumer_offsets`, in which a
coordinator keeps its groups.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import wraps
from operator import attrgetter
from typing import Any, TypeVar

from protocol.partitioner import partition_for
from protocol.trace import TraceKind, TraceRow

TableRow = dict[str, Any]  # Any: a cell's type is its column's

T = TypeVar("T")

MEMBER_KINDS = (
    TraceKind.MEMBER_STATE,
    TraceKind.PARTITIONS_ASSIGNED,
    TraceKind.RECORDS_CONSUMED,
    TraceKind.OFFSETS_COMMITTED,
    TraceKind.COMMIT_FAILED,
)
"""Kinds of rows that only a member of a group writes."""
_OFFSETS = "__consumer_offsets-"
"""Beginning of the name of every offsets partition."""
_PARTITION_KINDS = (
    TraceKind.LEADER_ELECTED,
    TraceKind.BECAME_LEADER,
    TraceKind.BECAME_FOLLOWER,
    TraceKind.LOAD_COMPLETED,
)
"""Kinds of rows that name partitions, offsets partitions among them."""


def detail_of(row: TraceRow) -> dict[str, Any]:  # Any: what JSON holds
    """Return the detail of a row; {} if the row has no detail."""
    detail: dict[str, Any] = json.loads(row.detail) if row.detail else {}
    return detail


def is_offsets_partition(row: TraceRow) -> bool:
    """Return whether the row is about a partition of `__consumer_offsets`."""
    return (row.partition or "").startswith(_OFFSETS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Death:
    """The end of a node's process, or a start that proves that earlier processes have ended.

    - `by`: `stopped` (in an orderly way) or `killed`; for a start, always `killed`.
    - `before_incarnation`: for a start, the number of the new incarnation; all earlier incarnations
      are dead. None for an end, because its row does not name the incarnation. The incarnation that
      lived at `at_us` ended.
    """

    node: str
    at_us: int
    by: str
    before_incarnation: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A time from one moment to another, microseconds on the run's clock."""

    from_us: int
    to_us: int

    def shared_with(self, other: "Span") -> "Span | None":
        """Return the time that both spans have in common; None if they do not overlap."""
        from_us, to_us = max(self.from_us, other.from_us), min(self.to_us, other.to_us)
        return Span(from_us=from_us, to_us=to_us) if to_us > from_us else None


class Trace:
    """One run's rows, sorted by the run's clock, then by node, incarnation and `seq`."""

    def __init__(self, rows: Sequence[TraceRow]) -> None:
        self.rows = sorted(rows, key=_by_clock)
        # The indexes in `rows` of the rows of each kind.
        self._indexes: dict[str, list[int]] = {}
        for index, row in enumerate(self.rows):
            self._indexes.setdefault(row.kind, []).append(index)
        stages = self.of(TraceKind.RUN_STAGE)
        stops = [row.time_us for row in stages if _stage(row) == "stopping"]
        # A run that broke off has no stage `stopping`: it ends with its last row.
        self.end_us = min(stops) if stops else max(row.time_us for row in self.rows)
        self._results: dict[Callable[..., object], Any] = {}  # Any: what the function returns

    def once(self, function: Callable[["Trace"], T]) -> T:
        """Return `function(self)`; only the first call with this function computes it."""
        if function not in self._results:
            self._results[function] = function(self)
        result: T = self._results[function]
        return result

    def of(self, *kinds: TraceKind) -> list[TraceRow]:
        """Return the rows of some kinds, by time."""
        indexes = [index for kind in kinds for index in self._indexes.get(kind.value, [])]
        if len(kinds) > 1:  # the indexes of one kind are in order already
            indexes.sort()
        return [self.rows[index] for index in indexes]

    def lives(self, *kinds: TraceKind) -> Iterator[tuple[tuple[str, int], list[TraceRow]]]:
        """Yield each node and incarnation, with its rows of the given kinds, by `seq`."""
        by_life: dict[tuple[str, int], list[TraceRow]] = {}
        for row in self.of(*kinds):
            by_life.setdefault((row.node, row.incarnation), []).append(row)
        for life in sorted(by_life):
            yield life, sorted(by_life[life], key=_BY_SEQ)

    def groups(self) -> dict[str, str | None]:
        """Return the offsets partition of each group that had members."""
        return self.once(Trace._find_groups)

    def _find_groups(self) -> dict[str, str | None]:
        """Compute `groups`. The partition of a group is None if it is unknown."""
        indexes = [
            int((row.partition or "").rsplit("-", 1)[1])
            for row in self.of(*_PARTITION_KINDS)
            if is_offsets_partition(row)
        ]
        # No row states the number of offsets partitions. It is at least the highest index plus 1.
        partitions = max(indexes) + 1 if indexes else 0
        partition_of: dict[str, str | None] = {}
        for row in self.of(*MEMBER_KINDS):
            if row.group is not None:
                # A hash of the group's name gives the index of its partition.
                index = partition_for(row.group, partitions) if partitions else None
                partition_of[row.group] = None if index is None else f"{_OFFSETS}{index}"
        # If the number of partitions is too small, the computed partition is wrong. If a
        # coordinator has loaded the group, the row about the load names the true partition, which
        # replaces it.
        for row in self.of(TraceKind.GROUP_LOADED):
            if row.group in partition_of:
                partition_of[row.group] = row.partition
        return partition_of

    def consumers(self) -> dict[tuple[str, str], str]:
        """Return the name of the consumer of each member id, by group and member id.

        The name is the consumer's node, which the member's own rows tell. If the trace lacks these
        rows, it is the client id in a row of the coordinator.
        """
        # The second loop overwrites client ids with nodes.
        consumers: dict[tuple[str, str], str] = {}
        for row in self.of(TraceKind.MEMBER_ADDED):
            client_id = detail_of(row).get("client_id")
            if row.group and row.member and client_id:
                consumers[row.group, row.member] = client_id
        for row in self.of(*MEMBER_KINDS):
            if row.group and row.member:
                consumers[row.group, row.member] = row.node
        return consumers

    # -- deaths --

    def deaths(self) -> list[Death]:
        """Return the ends of processes: rows about an end, and starts of newer incarnations."""
        return self.once(Trace._find_deaths)

    def _find_deaths(self) -> list[Death]:
        """Compute `deaths`, by time."""
        deaths = []
        for row in self.of(TraceKind.NODE_KILLED, TraceKind.NODE_STOPPED, TraceKind.NODE_STARTED):
            # A start proves that all earlier incarnations have ended, even if the trace lacks the
            # rows about their ends. Such an end counts as a kill, because a process that stops in
            # an orderly way writes NODE_STOPPED.
            is_start = row.kind == TraceKind.NODE_STARTED
            deaths.append(
                Death(
                    node=str(row.peer) if row.kind == TraceKind.NODE_KILLED else row.node,
                    at_us=row.time_us,
                    by="stopped" if row.kind == TraceKind.NODE_STOPPED else "killed",
                    before_incarnation=row.incarnation if is_start else None,
                )
            )
        return deaths

    def death(self, node: str, incarnation: int, since_us: int) -> Death | None:
        """Return the death that ends a life of a node, None if the life does not end.

        `since_us` must be a moment of the life of `incarnation`. The first death at or after this
        moment ends the life. A start of this or an older incarnation does not count.
        """
        for death in self.deaths():
            if death.node == node and death.at_us >= since_us:
                is_of_this_life = (
                    death.before_incarnation is None or death.before_incarnation > incarnation
                )
                if is_of_this_life:
                    return death
        return None

    # -- pauses and cuts --

    def pauses(self, node: str) -> list[Span]:
        """Return the times in which a node was paused: until it resumed, died or started again.

        NODE_STOPPED is ignored, because a paused process can stop in an orderly way only at the
        run's end, where every pause ends anyway.
        """
        spans: list[Span] = []
        paused_since_us: int | None = None
        for row in self.of(
            TraceKind.NODE_PAUSED,
            TraceKind.NODE_RESUMED,
            TraceKind.NODE_KILLED,
            TraceKind.NODE_STARTED,
        ):
            # A node itself writes NODE_STARTED. The run's driver (the process that conducts the
            # run) writes the other kinds, with the node as `peer`.
            subject = row.node if row.kind == TraceKind.NODE_STARTED else row.peer
            if subject != node:
                continue
            if paused_since_us is not None:
                spans.append(Span(from_us=paused_since_us, to_us=row.time_us))
                paused_since_us = None
            if row.kind == TraceKind.NODE_PAUSED:
                paused_since_us = row.time_us
        if paused_since_us is not None:
            spans.append(Span(from_us=paused_since_us, to_us=self.end_us))
        return _merge(spans, self.end_us)

    def cuts(self, node: str, faults: Sequence[TableRow]) -> list[Span]:
        """Return the times in which a node was cut off from others, according to `faults`.

        Only the faults `cut` and `clog` count, which hold all messages on links until the healing.
        """
        spans = []
        for fault in faults:
            # A fault of links separates two sides, `from` and `to`. The nodes of `from` count as
            # cut off. If the fault's row names no sides, all nodes of the fault count as cut off.
            cut_off = fault["from_nodes"] or fault["nodes"]
            if fault["kind"] not in ("cut", "clog") or node not in cut_off:
                continue
            began_us = _first_known(fault["in_force_us"], fault["injected_us"])
            ended_us = _first_known(fault["in_force_until_us"], fault["healed_us"], self.end_us)
            spans.append(Span(from_us=began_us, to_us=ended_us))
        return _merge(spans, self.end_us)


def once_per_trace(table_of: Callable[[Trace], T]) -> Callable[[Trace], T]:
    """Decorate a function so that it computes its table once per trace.

    All callers share the table, and must not change it.
    """

    @wraps(table_of)
    def computed_once(trace: Trace) -> T:
        return trace.once(table_of)

    return computed_once


def within(spans: Iterable[Span], whole: Span) -> list[Span]:
    """Return the part of each span that lies in `whole`. Spans outside of `whole` are left out."""
    return [shared for shared in (span.shared_with(whole) for span in spans) if shared is not None]


def length_us(spans: Iterable[Span]) -> int:
    """Return the sum of the lengths of spans; a moment that is in two spans counts twice."""
    return sum(span.to_us - span.from_us for span in spans)


def last_fault_before(faults: Sequence[TableRow], at_us: int) -> str | None:
    """Return the id of the latest fault at or before a moment, None before the first one.

    `faults` are sorted by their injection.
    """
    before = [fault for fault in faults if fault["injected_us"] <= at_us]
    return before[-1]["fault"] if before else None


def _merge(spans: Iterable[Span], end_us: int) -> list[Span]:
    """Merge overlapping spans, and end them at the run's end at the latest."""
    merged: list[Span] = []
    for span in sorted(spans, key=lambda span: (span.from_us, span.to_us)):
        # A span that begins after the run's end gets length 0.
        to_us = max(span.from_us, min(span.to_us, end_us))
        if merged and span.from_us <= merged[-1].to_us:
            last = merged.pop()
            merged.append(Span(from_us=last.from_us, to_us=max(last.to_us, to_us)))
        else:
            merged.append(Span(from_us=span.from_us, to_us=to_us))
    return merged


def _first_known(*values: int | None) -> int:
    """Return the first value that is known."""
    return next(value for value in values if value is not None)


_BY_SEQ = attrgetter("seq")
"""Sort key of the rows of one incarnation."""


def _by_clock(row: TraceRow) -> tuple[int, str, int, int]:
    """Return the sort key of a row in the whole trace."""
    return row.time_us, row.node, row.incarnation, row.seq


def _stage(row: TraceRow) -> str | None:
    """Return the stage of the run that a row RUN_STAGE names."""
    stage: str | None = detail_of(row).get("stage")
    return stage
