"""Where two traces part: exactly, row by row, and in their story, whatever the times.

Of two runs of one seed the first row that differs is the place to look at. Runs of two seeds differ
in every latency: there the story is compared, node by node: elections, loads, rebalances and what
else decides, without times, offsets and member ids.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from msgspec.structs import astuple

from cluster.lives import ADMIN_NODE
from protocol.trace import TraceKind, TraceRow

Rows = tuple[TraceRow, ...]

_STEPS = frozenset(
    {
        TraceKind.FAULT_INJECTED,
        TraceKind.FAULT_MISSED,
        TraceKind.FAULT_HEALED,
        TraceKind.NODE_STARTED,
        TraceKind.NODE_KILLED,
        TraceKind.NODE_PAUSED,
        TraceKind.NODE_RESUMED,
        TraceKind.LOG_RECOVERED,
        TraceKind.BROKER_FENCED,
        TraceKind.BROKER_UNFENCED,
        TraceKind.LEADER_ELECTED,
        TraceKind.BECAME_LEADER,
        TraceKind.BECAME_FOLLOWER,
        TraceKind.LOG_TRUNCATED,
        TraceKind.LOAD_STARTED,
        TraceKind.LOAD_COMPLETED,
        TraceKind.LOAD_IGNORED,
        TraceKind.UNLOAD_COMPLETED,
        TraceKind.UNLOAD_IGNORED,
        TraceKind.GROUP_LOADED,
        TraceKind.GROUP_STATE,
        TraceKind.REBALANCE_STARTED,
        TraceKind.GENERATION_STARTED,
        TraceKind.ASSIGNMENT_STORED,
        TraceKind.MEMBER_ADDED,
        TraceKind.MEMBER_REMOVED,
        TraceKind.COORDINATOR_UNKNOWN,
        TraceKind.MEMBER_STATE,
        TraceKind.PARTITIONS_ASSIGNED,
        TraceKind.PARTITIONS_REVOKED,
        TraceKind.PARTITIONS_LOST,
        TraceKind.POSITION_RESET,
        TraceKind.COMMIT_FAILED,
        TraceKind.VIOLATION,
        TraceKind.TASK_FAILED,
    }
)
"""The kinds that a story is told in."""
_WITH_DETAIL = frozenset({TraceKind.GROUP_STATE, TraceKind.MEMBER_STATE})
_STEADY = '"stage":"steady"'
_Step = tuple[object, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeParting:
    """The first row in which a node's part of two traces differs; None where one has no more."""

    node: str
    one: TraceRow | None
    other: TraceRow | None

    @property
    def time_us(self) -> int:
        """When that was, in the trace where it was earlier."""
        return min(row.time_us for row in (self.one, self.other) if row is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parting:
    """Where two traces part.

    Shape: `before` are the last rows that both have; `one` and `other` are how they go on, and
    empty where a trace has ended; `nodes` in the order in which they part.
    """

    rows_alike: int
    before: Rows
    one: Rows
    other: Rows
    nodes: tuple[NodeParting, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoryParting:
    """Where the stories of two traces part.

    Shape: `before` are the last steps of the first trace before that, of any node; `nodes` in the
    order in which their stories part, empty if both tell the same.
    """

    before: Rows
    nodes: tuple[NodeParting, ...]


def parting(
    one: Sequence[TraceRow], other: Sequence[TraceRow], *, before: int = 8, after: int = 8
) -> Parting | None:
    """Return where two traces part, byte for byte; None if they are equal.

    A run's id and the numbers of rows are left out: they are no part of what happened.
    """
    index = next(
        (
            index
            for index, (mine, theirs) in enumerate(zip_longest(one, other))
            if mine is None or theirs is None or _exact(mine) != _exact(theirs)
        ),
        None,
    )
    if index is None:
        return None
    return Parting(
        rows_alike=index,
        before=tuple(one[max(0, index - before) : index]),
        one=tuple(one[index : index + after]),
        other=tuple(other[index : index + after]),
        nodes=_partings(_by_node(one[index:]), _by_node(other[index:]), _exact),
    )


def story_parting(
    one: Sequence[TraceRow], other: Sequence[TraceRow], *, before: int = 8
) -> StoryParting:
    """Return where the nodes' stories part after the steady state."""
    mine, theirs = list(_story(one)), list(_story(other))
    nodes = _partings(_by_node(mine), _by_node(theirs), _step)
    alike = [row for row in mine if not nodes or row.time_us < nodes[0].time_us]
    return StoryParting(before=tuple(alike[max(0, len(alike) - before) :]), nodes=nodes)


def parts_by_itself(one: Sequence[TraceRow], parts: Parting) -> bool:
    """Whether the first row that differs tells nothing, as that of any two seeds.

    It does not where the same event came at another time, before the steady state, and where the
    plan of one run ended earlier.
    """
    first = (*parts.one[:1], *parts.other[:1])
    return (
        differs_by_time_only(parts)
        or is_before_steady_state(one, parts.rows_alike)
        or any(row.kind == TraceKind.RUN_STAGE for row in first)
    )


def differs_by_time_only(parts: Parting) -> bool:
    """Whether both traces go on with the same event of the same node, at another time."""
    if not parts.one or not parts.other:
        return False
    mine, theirs = parts.one[0], parts.other[0]
    return mine.kind == theirs.kind and mine.node == theirs.node and _step(mine) == _step(theirs)


def is_before_steady_state(rows: Sequence[TraceRow], index: int) -> bool:
    """Whether row `index` comes before the steady state; True if there was none."""
    return not any(_is_steady(row) for row in rows[:index])


def _exact(row: TraceRow) -> _Step:
    _run, time_us, node_time_us, _seq, *rest = astuple(row)
    return (time_us, node_time_us, *rest)


def _step(row: TraceRow) -> _Step:
    return (
        row.incarnation,
        row.kind,
        row.peer,
        row.group,
        row.partition,
        row.generation,
        row.leader_epoch,
        row.error,
        row.cause,
        row.detail if row.kind in _WITH_DETAIL else None,
    )


def _story(rows: Iterable[TraceRow]) -> Iterable[TraceRow]:
    """Yield the steps from the steady state on, a node's repetitions of one step once."""
    steady = False
    last: dict[str, _Step] = {}
    for row in rows:
        steady = steady or _is_steady(row)
        if not steady or row.kind not in _STEPS or row.node == ADMIN_NODE:
            continue
        step = _step(row)
        if last.get(row.node) != step:
            last[row.node] = step
            yield row


def _is_steady(row: TraceRow) -> bool:
    return row.kind == TraceKind.RUN_STAGE and row.detail is not None and _STEADY in row.detail


def _by_node(rows: Iterable[TraceRow]) -> dict[str, list[TraceRow]]:
    found: dict[str, list[TraceRow]] = {}
    for row in rows:
        found.setdefault(row.node, []).append(row)
    return found


def _partings(
    one: dict[str, list[TraceRow]],
    other: dict[str, list[TraceRow]],
    key: Callable[[TraceRow], _Step],
) -> tuple[NodeParting, ...]:
    found = []
    for node in dict.fromkeys([*one, *other]):
        for mine, theirs in zip_longest(one.get(node, ()), other.get(node, ())):
            if mine is None or theirs is None or key(mine) != key(theirs):
                found.append(NodeParting(node=node, one=mine, other=theirs))
                break
    return tuple(sorted(found, key=lambda each: each.time_us))
