"""Finds the place where two runs begin to differ (their parting), for the command `diff`.

There are two ways to compare traces:

- Two runs with the same seed should have equal traces. If their traces are not equal, they are
  compared row by row (`parting`). The first different row shows the cause.
- If two runs have different seeds, every row has another time, so a comparison row by row would
  show nothing. Instead, the stories of the nodes are compared (`story_parting`). The story of a
  node is the sequence of its decisive events, such as an election, a load or a rebalance, without
  times, offsets and member ids. The story begins at the steady state (all groups are stable),
  because the start of a cluster is never the same.

In this module `one` and `other` are always the two traces, or rows of them. In comparisons of two
rows, `mine` is the row of `one`, and `theirs` the row of `other`.
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
"""Kinds of rows that are steps of a story."""
_WITH_DETAIL = frozenset({TraceKind.GROUP_STATE, TraceKind.MEMBER_STATE})
"""Kinds of rows whose detail belongs to the step, because the detail has the new state."""
_STEADY = '"stage":"steady"'
"""Part of the detail of the row with which the stage "steady" begins."""
_Step = tuple[object, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeParting:
    """The first difference between the rows of one node in two traces.

    `one` and `other` are the node's rows at this place in the two traces. One of them is None if
    the node has no more rows in this trace.
    """

    node: str
    one: TraceRow | None
    other: TraceRow | None

    @property
    def time_us(self) -> int:
        """The time of the earlier of the two rows."""
        return min(row.time_us for row in (self.one, self.other) if row is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parting:
    """The place where two traces begin to differ.

    - `rows_alike`: the number of equal rows at the beginning of the traces.
    - `before`: the last of these equal rows.
    - `one`, `other`: the rows that follow in the two traces; empty if a trace has ended.
    - `nodes`: the first difference of each node, the earliest first.
    """

    rows_alike: int
    before: Rows
    one: Rows
    other: Rows
    nodes: tuple[NodeParting, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoryParting:
    """The place where the stories of two traces begin to differ.

    - `before`: the last steps of all nodes in the first trace before this place.
    - `nodes`: the first difference in each node's story, the earliest first; empty if all stories
      are equal.
    """

    before: Rows
    nodes: tuple[NodeParting, ...]


def parting(
    one: Sequence[TraceRow], other: Sequence[TraceRow], *, before: int = 8, after: int = 8
) -> Parting | None:
    """Return the place where two traces begin to differ; None if they are equal.

    `before` and `after` are the numbers of rows to return from before and from after this place.
    The comparison ignores the run's id and each row's own number (`seq`), because they say nothing
    about an event.
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
    """Return the place where the nodes' stories begin to differ after the steady state."""
    mine, theirs = list(_story(one)), list(_story(other))
    nodes = _partings(_by_node(mine), _by_node(theirs), _step)
    # These are the steps of all nodes before the first difference, or all steps if there is none.
    alike = [row for row in mine if not nodes or row.time_us < nodes[0].time_us]
    return StoryParting(before=tuple(alike[max(0, len(alike) - before) :]), nodes=nodes)


def parts_by_itself(one: Sequence[TraceRow], parts: Parting) -> bool:
    """Return True if the first difference says nothing about the cause of different results.

    There are three such cases. They occur in any two runs with different seeds or plans:

    - The same event comes at another time.
    - The row comes before the steady state.
    - The row is the beginning of a stage of the run. The stages begin at different times, because
      the plan of one run ends earlier.

    `one` is the first trace, and `parts` the place where the traces begin to differ.
    """
    first = (*parts.one[:1], *parts.other[:1])
    return (
        differs_by_time_only(parts)
        or is_before_steady_state(one, parts.rows_alike)
        or any(row.kind == TraceKind.RUN_STAGE for row in first)
    )


def differs_by_time_only(parts: Parting) -> bool:
    """Return True if both traces go on with the same event of the same node, at another time."""
    if not parts.one or not parts.other:
        return False
    mine, theirs = parts.one[0], parts.other[0]
    return mine.kind == theirs.kind and mine.node == theirs.node and _step(mine) == _step(theirs)


def is_before_steady_state(rows: Sequence[TraceRow], index: int) -> bool:
    """Return True if no row before row `index` begins the steady state."""
    return not any(_is_steady(row) for row in rows[:index])


def _exact(row: TraceRow) -> _Step:
    """Return what counts of a row in an exact comparison.

    These are all columns but the run's id and the row's number.
    """
    # The first four columns get names here. All other columns are in `rest`.
    _run, time_us, node_time_us, _seq, *rest = astuple(row)
    return (time_us, node_time_us, *rest)


def _step(row: TraceRow) -> _Step:
    """Return what counts of a row in a comparison of stories."""
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
    """Yield the rows that are steps, from the steady state on.

    If a node repeats its last step, the step is yielded only once, because the number of
    repetitions depends on latencies.
    """
    steady = False
    last: dict[str, _Step] = {}
    for row in rows:
        steady = steady or _is_steady(row)
        # The administrator's node belongs to the runtime, not to the cluster under test.
        if not steady or row.kind not in _STEPS or row.node == ADMIN_NODE:
            continue
        step = _step(row)
        if last.get(row.node) != step:
            last[row.node] = step
            yield row


def _is_steady(row: TraceRow) -> bool:
    return row.kind == TraceKind.RUN_STAGE and row.detail is not None and _STEADY in row.detail


def _by_node(rows: Iterable[TraceRow]) -> dict[str, list[TraceRow]]:
    rows_by_node: dict[str, list[TraceRow]] = {}
    for row in rows:
        rows_by_node.setdefault(row.node, []).append(row)
    return rows_by_node


def _partings(
    one: dict[str, list[TraceRow]],
    other: dict[str, list[TraceRow]],
    key: Callable[[TraceRow], _Step],
) -> tuple[NodeParting, ...]:
    """Return the first difference of each node, in order of time.

    `key` returns what counts of a row. A node without a difference has no entry in the result.
    """
    partings = []
    for node in dict.fromkeys([*one, *other]):
        for mine, theirs in zip_longest(one.get(node, ()), other.get(node, ())):
            if mine is None or theirs is None or key(mine) != key(theirs):
                partings.append(NodeParting(node=node, one=mine, other=theirs))
                break
    return tuple(sorted(partings, key=lambda parting: parting.time_us))
