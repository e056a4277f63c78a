"""The rebalances of a run so far, with their reasons: from the rows of its trace, one by one.

The same story as the table `rebalances` that Spark makes of a finished run, for a run that is still
going on or that stops at a moment. A rebalance is its coordinator's; what comes later on the same
coordinator belongs to it until the next one begins.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from pipeline.intermediate.rebalance_reasons import (
    CLIENT_REASON,
    OTHER_REASON,
    REASONS,
    REPLACED,
    STORE_ERROR,
)
from protocol.trace import TraceKind, TraceRow

KINDS = frozenset(
    {
        TraceKind.REBALANCE_STARTED,
        TraceKind.GENERATION_STARTED,
        TraceKind.ASSIGNMENT_STORED,
        TraceKind.MEMBER_ADDED,
        TraceKind.MEMBER_REMOVED,
        TraceKind.GROUP_STATE,
        TraceKind.GROUP_LOADED,
        TraceKind.NODE_KILLED,
        TraceKind.NODE_STOPPED,
    }
)
"""The rows that tell of rebalances."""
_ENDS = ("Empty", "Dead")
_REASONS = tuple((re.compile(pattern), word) for pattern, word in REASONS)
_CLIENT_REASON = re.compile(CLIENT_REASON)
_STORE_ERROR = re.compile(STORE_ERROR)

Life = tuple[str, int, str]  # node, incarnation, group


class Rebalance(msgspec.Struct, frozen=True, kw_only=True):
    """A rebalance of one group.

    Shape: `member` is who caused it, None where no single member did; `added` and `removed` have
    member ids in the order in which they came and went, and `removed_because` the causes, each
    once; `new_generation`, `joined_us`, `stable_us` are None if it never came so far, and
    `cut_short_us` with `cut_short_by` say what came first, None while it is still on its way.
    Units: microseconds on the run's clock, lengths too.
    """

    group: str
    coordinator: str
    generation: int | None
    new_generation: int | None
    reason: str
    cause: str
    client_reason: str | None
    member: str | None
    added: tuple[str, ...]
    removed: tuple[str, ...]
    removed_because: tuple[str, ...]
    store_error: str | None
    started_us: int
    joined_us: int | None
    stable_us: int | None
    cut_short_us: int | None
    cut_short_by: str | None

    @property
    def join_us(self) -> int | None:
        """How long its join phase took."""
        return None if self.joined_us is None else self.joined_us - self.started_us

    @property
    def sync_us(self) -> int | None:
        """How long it took from there until its assignment was stored."""
        if self.joined_us is None or self.stable_us is None:
            return None
        return self.stable_us - self.joined_us

    @property
    def length_us(self) -> int | None:
        """How long it took as a whole."""
        return None if self.stable_us is None else self.stable_us - self.started_us


@dataclass(slots=True)
class _Begun:
    """A rebalance as its rows tell it. `changes` are the members that came and went with it."""

    started: TraceRow
    joined: TraceRow | None = None
    stable: TraceRow | None = None
    store_error: str | None = None
    cut_short_us: int | None = None
    cut_short_by: str | None = None
    changes: list[TraceRow] = field(default_factory=list)

    def cut_short(self, time_us: int, by: str) -> None:
        """Take that it ended, unless it was over."""
        if self.stable is None and self.cut_short_us is None:
            self.cut_short_us = time_us
            self.cut_short_by = by


@dataclass(slots=True)
class _Coordinator:
    """One broker's life as the coordinator of one group.

    `early` are members that came or went before the rebalance that they bring about is told.
    """

    begun: list[_Begun] = field(default_factory=list)
    joining: _Begun | None = None
    early: list[TraceRow] = field(default_factory=list)


class RebalanceLog:
    """Follows the rows of one run; those of each node's life come in their order."""

    def __init__(self) -> None:
        self.client_ids: dict[str, str] = {}
        """The client behind each member id."""
        self._coordinators: dict[Life, _Coordinator] = {}

    def observe(self, row: TraceRow) -> None:
        """Take a row; those that tell nothing of rebalances are ignored."""
        if row.kind not in KINDS:
            return
        if row.kind in (TraceKind.NODE_KILLED, TraceKind.NODE_STOPPED):
            self._died(row)
        elif row.group is not None:
            life = (row.node, row.incarnation, row.group)
            self._step(self._coordinators.setdefault(life, _Coordinator()), row)

    def observe_all(self, rows: Iterable[TraceRow]) -> None:
        """Take rows."""
        for row in rows:
            self.observe(row)

    def groups(self) -> tuple[str, ...]:
        """Return the groups that had a rebalance, by name."""
        named = {life[2]: None for life, known in self._coordinators.items() if known.begun}
        return tuple(sorted(named))

    def of_group(self, group_id: str) -> tuple[Rebalance, ...]:
        """Return the rebalances of a group on every coordinator, by the time they began."""
        found = [
            _told(begun)
            for (_node, _incarnation, group), known in self._coordinators.items()
            if group == group_id
            for begun in known.begun
        ]
        return tuple(sorted(found, key=lambda each: (each.started_us, each.coordinator)))

    def _step(self, known: _Coordinator, row: TraceRow) -> None:
        latest = known.begun[-1] if known.begun else None
        match row.kind:
            case TraceKind.REBALANCE_STARTED:
                if latest is not None:
                    latest.cut_short(row.time_us, row.cause or "another rebalance")
                    failed = _STORE_ERROR.search(row.cause or "")
                    latest.store_error = None if failed is None else failed[1]
                known.joining = _Begun(row, changes=known.early)
                known.begun.append(known.joining)
                known.early = []
            case TraceKind.GENERATION_STARTED:
                if latest is not None and latest.joined is None:
                    latest.joined = row
                known.joining, known.early = None, []
            case TraceKind.ASSIGNMENT_STORED:
                if latest is not None and latest.stable is None:
                    latest.stable = row
            case TraceKind.MEMBER_ADDED | TraceKind.MEMBER_REMOVED:
                self._member_changed(known, row)
            case TraceKind.GROUP_LOADED:
                known.joining, known.early = None, []
            case _:
                if _detail(row).get("to") in _ENDS:
                    if latest is not None:
                        latest.cut_short(row.time_us, row.cause or "")
                    known.joining, known.early = None, []

    def _member_changed(self, known: _Coordinator, row: TraceRow) -> None:
        client_id = _detail(row).get("client_id")
        if row.member is not None and client_id:
            self.client_ids[row.member] = str(client_id)
        if not (row.cause or "").startswith(REPLACED):
            (known.early if known.joining is None else known.joining.changes).append(row)

    def _died(self, row: TraceRow) -> None:
        """Take the end of a node: what it coordinated goes no further there."""
        is_killed = row.kind == TraceKind.NODE_KILLED
        name = row.peer if is_killed else row.node
        for (node, _incarnation, _group), known in self._coordinators.items():
            if node == name and known.begun:
                known.begun[-1].cut_short(
                    row.time_us, f"{name} {'was killed' if is_killed else 'stopped'}"
                )


def _told(begun: _Begun) -> Rebalance:
    started, joined, stable = begun.started, begun.joined, begun.stable
    cause = started.cause or ""
    said = _CLIENT_REASON.search(cause)
    removed = [row for row in begun.changes if row.kind == TraceKind.MEMBER_REMOVED]
    added = [row for row in begun.changes if row.kind == TraceKind.MEMBER_ADDED]
    return Rebalance(
        group=started.group or "",
        coordinator=started.node,
        generation=started.generation,
        new_generation=None if joined is None else joined.generation,
        reason=next((word for pattern, word in _REASONS if pattern.search(cause)), OTHER_REASON),
        cause=cause,
        client_reason=said[1] if said is not None and said[1] else None,
        member=started.member or None,
        added=tuple(row.member or "" for row in added),
        removed=tuple(row.member or "" for row in removed),
        removed_because=tuple(dict.fromkeys(row.cause for row in removed if row.cause)),
        store_error=begun.store_error,
        started_us=started.time_us,
        joined_us=None if joined is None else joined.time_us,
        stable_us=None if stable is None else stable.time_us,
        cut_short_us=begun.cut_short_us,
        cut_short_by=begun.cut_short_by,
    )


def _detail(row: TraceRow) -> dict[str, Any]:  # Any: what JSON holds
    found: dict[str, Any] = msgspec.json.decode(row.detail) if row.detail else {}
    return found
