"""The trace of one run in memory, and the questions that several tables ask it.

Every node of a run records what happens as rows: a request was sent, a leader was elected, a member
was removed. These rows are the trace. The functions in this folder compute tables from the trace.
They all ask the same questions: which rows of some kinds are there, when did the run end, when did
a process die, and when was a node paused or cut off from others? The class `Trace` answers them.

The process of a node can be killed and started again. Each time from a start to an end is an
incarnation (or life) of the node. `seq` numbers the rows of an incarnation.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import wraps
from operator import attrgetter
from typing import Any, TypeVar

from protocol.partitioner import partition_for
from protocol.trace import TraceKind, TraceRow

TableRow = dict[str, Any]  # from a column to its value, whose type depends on the column

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
"""Beginning of the name of every partition of `__consumer_offsets` (an offsets partition)."""
_PARTITION_KINDS = (
    TraceKind.LEADER_ELECTED,
    TraceKind.BECAME_LEADER,
    TraceKind.BECAME_FOLLOWER,
    TraceKind.LOAD_COMPLETED,
)
"""Kinds of rows that can be about an offsets partition. By these rows, the partitions are counted.
"""


def detail_of(row: TraceRow) -> dict[str, Any]:  # Any: what JSON holds
    """Return the detail of a row: values that only rows of its kind have; {} if there are none."""
    detail: dict[str, Any] = json.loads(row.detail) if row.detail else {}
    return detail


def is_offsets_partition(row: TraceRow) -> bool:
    """Return whether the row is about a partition of `__consumer_offsets`."""
    return row.partition is not None and row.partition.startswith(_OFFSETS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Death:
    """A row of the trace by which we know that a node's process has ended.

    Usually this is a row about the end of a process (NODE_STOPPED or NODE_KILLED). Such a row can
    be missing, for example if the machine was lost. Then a later start of the node (NODE_STARTED)
    proves that the earlier process has ended.

    - `at_us`: the time of the row.
    - `by`: `stopped` (in an orderly way) or `killed`. For a start it is `killed`, because a process
      that stops in an orderly way writes a row about its end.
    - `before_incarnation`: for a start, the number of the new incarnation. All incarnations with a
      lower number are dead. None for a row about an end. Such a row names no incarnation, but means
      the incarnation that lived at that time.
    """

    node: str
    at_us: int
    by: str
    before_incarnation: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A time from one moment to another, in microseconds on the run's clock."""

    from_us: int
    to_us: int

    def shared_with(self, other: "Span") -> "Span | None":
        """Return the time that both spans have in common; None if they do not overlap."""
        from_us = max(self.from_us, other.from_us)
        to_us = min(self.to_us, other.to_us)
        return Span(from_us=from_us, to_us=to_us) if to_us > from_us else None


class Trace:
    """The rows of one run, sorted by time. There must be at least one row."""

    def __init__(self, rows: Sequence[TraceRow]) -> None:
        self.rows = sorted(rows, key=_by_clock)
        self._indexes_by_kind: dict[str, list[int]] = {}  # indexes in `rows`
        for index, row in enumerate(self.rows):
            self._indexes_by_kind.setdefault(row.kind, []).append(index)
        stops_us = [
            row.time_us for row in self.of(TraceKind.RUN_STAGE) if _stage(row) == "stopping"
        ]
        # A run that broke off never came to its stage `stopping`. It ends with its last row.
        self.end_us = min(stops_us) if stops_us else max(row.time_us for row in self.rows)
        self._results: dict[Callable[..., object], Any] = {}  # what `once` has computed so far

    def once(self, function: Callable[["Trace"], T]) -> T:
        """Return `function(self)`, but compute it only once for this trace."""
        if function not in self._results:
            self._results[function] = function(self)
        result: T = self._results[function]
        return result

    def of(self, *kinds: TraceKind) -> list[TraceRow]:
        """Return the rows of some kinds, by time."""
        indexes = [index for kind in kinds for index in self._indexes_by_kind.get(kind.value, [])]
        if len(kinds) > 1:  # the indexes of one kind are in order already
            indexes.sort()
        return [self.rows[index] for index in indexes]

    def lives(self, *kinds: TraceKind) -> Iterator[tuple[tuple[str, int], list[TraceRow]]]:
        """Yield each life of a node as (node, incarnation), with the life's rows of some kinds.

        The rows of a life are in the order in which the node wrote them.
        """
        by_life: dict[tuple[str, int], list[TraceRow]] = {}
        for row in self.of(*kinds):
            by_life.setdefault((row.node, row.incarnation), []).append(row)
        for life in sorted(by_life):
            yield life, sorted(by_life[life], key=_BY_SEQ)

    def groups(self) -> dict[str, str | None]:
        """Return each group that had members, with its partition of `__consumer_offsets`.

        Example: `{"readers": "__consumer_offsets-3"}`. The partition is None if it is not known.
        """
        return self.once(Trace._find_groups)

    def _find_groups(self) -> dict[str, str | None]:
        """Compute the result of `groups`."""
        numbers = [
            int(row.partition.removeprefix(_OFFSETS))
            for row in self.of(*_PARTITION_KINDS)
            if row.partition is not None and is_offsets_partition(row)
        ]
        # No row tells how many offsets partitions there are. If the trace mentions
        # `__consumer_offsets-3`, there are at least four.
        partition_count = max(numbers) + 1 if numbers else 0
        partition_of: dict[str, str | None] = {}
        for row in self.of(*MEMBER_KINDS):
            if row.group is None:
                continue
            # A hash of the group's name tells its partition.
            partition_of[row.group] = None
            if partition_count:
                partition_of[row.group] = f"{_OFFSETS}{partition_for(row.group, partition_count)}"
        # If there are more partitions than the trace mentions, the hash leads to a wrong partition.
        # But if a coordinator has loaded the group, its row about the load names the right
        # partition.
        for row in self.of(TraceKind.GROUP_LOADED):
            if row.group in partition_of:
                partition_of[row.group] = row.partition
        return partition_of

    def consumers(self) -> dict[tuple[str, str], str]:
        """Return which consumer has which member id, by group and member id.

        A consumer is named by its node, such as `consumer-readers-0`. Usually the rows that the
        consumer wrote itself tell the node and the member id. If there are none, the coordinator's
        row about the new member tells the client id, which has the same text.
        """
        # The second loop replaces client ids by nodes.
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
        """Return the deaths of all nodes, by time."""
        return self.once(Trace._find_deaths)

    def _find_deaths(self) -> list[Death]:
        """Compute the result of `deaths`."""
        deaths = []
        for row in self.of(TraceKind.NODE_KILLED, TraceKind.NODE_STOPPED, TraceKind.NODE_STARTED):
            # A killed node can write nothing, so the driver (the process that conducts the run)
            # writes NODE_KILLED, with the node as `peer`.
            node = str(row.peer) if row.kind == TraceKind.NODE_KILLED else row.node
            is_start = row.kind == TraceKind.NODE_STARTED
            deaths.append(
                Death(
                    node=node,
                    at_us=row.time_us,
                    by="stopped" if row.kind == TraceKind.NODE_STOPPED else "killed",
                    before_incarnation=row.incarnation if is_start else None,
                )
            )
        return deaths

    def death(self, node: str, incarnation: int, since_us: int) -> Death | None:
        """Return the death that ends a life of a node; None if the life does not end.

        `since_us` must be a moment of this life. The first death of the node from this moment on
        ends the life. A start of this incarnation or of an older incarnation does not count as a
        death.
        """
        for death in self.deaths():
            if death.node != node or death.at_us < since_us:
                continue
            new_incarnation = death.before_incarnation
            if new_incarnation is None or new_incarnation > incarnation:
                return death
        return None

    # -- pauses and cuts --

    def pauses(self, node: str) -> list[Span]:
        """Return the times in which a node was paused: until it resumed, died or started again.

        NODE_STOPPED ends no pause, because a paused process cannot stop in an orderly way before
        the end of the run. And every pause ends with the run.
        """
        spans: list[Span] = []
        paused_since_us: int | None = None
        for row in self.of(
            TraceKind.NODE_PAUSED,
            TraceKind.NODE_RESUMED,
            TraceKind.NODE_KILLED,
            TraceKind.NODE_STARTED,
        ):
            # A node itself writes NODE_STARTED. The driver writes the other rows, with the node as
            # `peer`.
            node_of_row = row.node if row.kind == TraceKind.NODE_STARTED else row.peer
            if node_of_row != node:
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
        """Return the times in which the network separated a node from others (cuts).

        `faults` are the rows of the table `faults`. Only `cut` and `clog` count, because they hold
        back all messages until they are healed.
        """
        spans = []
        for fault in faults:
            # Such a fault has two sides: the nodes that are cut off (`from_nodes`), and the nodes
            # from which they are cut off (`to_nodes`). If the fault names no sides, all its nodes
            # are cut off.
            cut_off = fault["from_nodes"] or fault["nodes"]
            if fault["kind"] not in ("cut", "clog") or node not in cut_off:
                continue
            began_us = _first_known(fault["in_force_us"], fault["injected_us"])
            ended_us = _first_known(fault["in_force_until_us"], fault["healed_us"], self.end_us)
            spans.append(Span(from_us=began_us, to_us=ended_us))
        return _merge(spans, self.end_us)


def once_per_trace(table_of: Callable[[Trace], T]) -> Callable[[Trace], T]:
    """Make a function compute its table only once for each trace. This is a decorator.

    Many tables are computed from other tables, so a function has several callers. All callers get
    the same list, and must not change it.
    """

    @wraps(table_of)
    def shared_table_of(trace: Trace) -> T:
        return trace.once(table_of)

    return shared_table_of


def within(spans: Iterable[Span], whole: Span) -> list[Span]:
    """Return the part of each span that lies in `whole`. Spans outside of `whole` are left out."""
    shared_spans = (span.shared_with(whole) for span in spans)
    return [shared for shared in shared_spans if shared is not None]


def length_us(spans: Iterable[Span]) -> int:
    """Return the sum of the lengths of spans. If two spans overlap, the overlap counts twice."""
    return sum(span.to_us - span.from_us for span in spans)


def last_fault_before(faults: Sequence[TableRow], at_us: int) -> str | None:
    """Return the id of the latest fault at or before a moment; None before the first fault.

    `faults` are the rows of the table `faults`, in the order of their injection.
    """
    before = [fault for fault in faults if fault["injected_us"] <= at_us]
    return before[-1]["fault"] if before else None


def _merge(spans: Iterable[Span], end_us: int) -> list[Span]:
    """Join overlapping spans, and let none of them last longer than the run (`end_us`)."""
    merged: list[Span] = []
    for span in sorted(spans, key=lambda span: (span.from_us, span.to_us)):
        # A span that begins after the run's end is kept, with the length 0.
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
"""Sort key: the order in which one incarnation wrote its rows."""


def _by_clock(row: TraceRow) -> tuple[int, str, int, int]:
    """Return a sort key: the time; rows of the same time are sorted by node and `seq`."""
    return row.time_us, row.node, row.incarnation, row.seq


def _stage(row: TraceRow) -> str | None:
    """Return the stage of the run that a row RUN_STAGE announces, such as `steady`."""
    stage: str | None = detail_of(row).get("stage")
    return stage
