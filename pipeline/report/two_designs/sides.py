"""The sides of a comparison. A side is one group of one run, with its design and its changes.

The design says how members share the partitions: by themselves with the help of ZooKeeper, or by a
coordinator. A change is a moment at which members of the group join, or at which a fault begins or
ends. The window of a change lasts until the next change of the group, or until the run's end.
Changes count from the steady state on. In this state every group is stable with all its first
members. Times are microseconds on the run's clock.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from pipeline.report.facts import RunFacts
from pipeline.report.report_input import Row, RunTables
from pipeline.summary.story import counted

Design = Literal["zookeeper", "coordinator"]
ChangeKind = Literal["join", "death", "return", "other"]
"""In a `join`, `death` or `return`, one member joins, dies or comes back. Any other change is
`other`: several members join, die or come back at the same time, or another fault begins or ends.
"""

_DURATION = re.compile(r"(\d+)(us|ms|s|m|h)")
"""A duration in an experiment's file, such as `30s`."""
_UNIT_US = {"us": 1, "ms": 1_000, "s": 1_000_000, "m": 60_000_000, "h": 3_600_000_000}
_ENDS_MEMBERS = ("crash", "node_loss", "power_loss", "shutdown")
"""Kinds of faults that end the processes of the members that they hit, until the fault is
healed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupChange:
    """One change, with its window.

    `members` is the size of the group; it includes the members that join or die at this moment.
    """

    kind: ChangeKind
    label: str
    at_us: int
    until_us: int
    members: int

    def covers(self, time_us: int | None) -> bool:
        """Return whether a moment lies in the window."""
        return time_us is not None and self.at_us <= time_us < self.until_us


@dataclass(frozen=True, kw_only=True)
class GroupSide:
    """One group of one run. `title` distinguishes it from the other groups of the same design."""

    title: str
    group: str
    design: Design
    facts: RunFacts
    tables: RunTables

    @property
    def design_name(self) -> str:
        """The design as text for headings."""
        return "on ZooKeeper" if self.design == "zookeeper" else "with a coordinator"

    @property
    def heading(self) -> str:
        """Name of the side, which distinguishes it from all other sides of both designs."""
        return f"{self.title} {self.design_name}"

    @cached_property
    def members(self) -> int:
        """Number of members once all have joined."""
        return _size(self._definition)

    @cached_property
    def end_us(self) -> int:
        """End of the run, at least 1, so that a time axis has a length."""
        return max([1, *(row["end_us"] or 0 for row in self.tables.rows("runs"))])

    @cached_property
    def steady_us(self) -> int:
        """Moment at which the run became steady; its beginning (0) if it never became steady."""
        return max([0, *(row["steady_us"] or 0 for row in self.tables.rows("runs"))])

    def rows(self, table: str) -> list[Row]:
        """Return the rows of a table that are about this group."""
        return [row for row in self.tables.rows(table) if row["group"] == self.group]

    @cached_property
    def consumers(self) -> tuple[str, ...]:
        """Nodes of the group's members, in the order of their numbers."""
        nodes = {row["consumer"] for row in self.rows("ownership")}
        if self.design == "zookeeper":
            nodes |= {row["consumer"] for row in self.rows("zookeeper_attempts")}
        return tuple(sorted(nodes, key=_stem_and_number))

    @cached_property
    def changes(self) -> tuple[GroupChange, ...]:
        """The changes of the group from the steady state on, in the order of time."""
        moments = sorted((*self._joins(), *self._faults()), key=lambda moment: moment[0])
        ends = [at_us for at_us, _, _, _ in moments[1:]] + [self.end_us]
        members = int(self._definition.get("members", 0))
        changes = []
        for (at_us, kind, label, growth), until_us in zip(moments, ends, strict=True):
            # `growth` is the number of members that join or come back, or minus the number of
            # members that die. The size of the group in a change includes both sorts of members, so
            # members that die are subtracted only after the change.
            members += max(growth, 0)
            changes.append(
                GroupChange(kind=kind, label=label, at_us=at_us, until_us=until_us, members=members)
            )
            members += min(growth, 0)
        return tuple(changes)

    @property
    def _definition(self) -> Mapping[str, Any]:  # Any: JSON
        return _groups(self.facts).get(self.group, {})

    def _joins(self) -> Iterator[tuple[int, ChangeKind, str, int]]:
        """Yield late joins: time, kind, label, and growth of the group.

        The times in the experiment count from the steady state.
        """
        for late in self._definition.get("late_members") or ():
            at_us, count = _microseconds(late["at"]), int(late["members"])
            kind: ChangeKind = "join" if count == 1 else "other"
            label = f"{counted(count, 'member')} {'joins' if count == 1 else 'join'}"
            yield self.steady_us + at_us, kind, label, count

    def _faults(self) -> Iterator[tuple[int, ChangeKind, str, int]]:
        """Yield beginnings and ends of faults: time, kind, label, and growth of the group.

        A fault that hit only members of other groups is no change of this group. A fault that hit
        no member at all (only a broker, for example) is a change of every group.
        """
        members_of_group, all_members = set(self.consumers), _all_members(self.tables)
        for row in self.tables.rows("faults"):
            hit_members = {*row["nodes"], *row["from_nodes"], *row["to_nodes"]} & all_members
            if hit_members and not hit_members & members_of_group:
                continue

            gone = len(hit_members) if row["kind"] in _ENDS_MEMBERS else 0
            kind: ChangeKind = "death" if gone == 1 else "other"
            yield row["injected_us"], kind, _fault_label(row, hit_members), -gone
            # The run heals all faults when it ends. Such a healing is no change of the group.
            if row["healed_us"] is not None and row["healed_us"] < self.end_us:
                end_kind: ChangeKind = "return" if gone == 1 else "other"
                label = "the member is back" if gone == 1 else f"{row['kind']} ends"
                yield row["healed_us"], end_kind, label, gone


def sides_of(
    runs: Sequence[tuple[RunFacts, RunTables]], titles: Sequence[str]
) -> tuple[GroupSide, ...]:
    """Return the groups of all runs as sides; () if no group is on ZooKeeper.

    `titles` has the name of each run.
    """
    groups = [
        (facts, tables, title, group, definition)
        for (facts, tables), title in zip(runs, titles, strict=True)
        for group, definition in _groups(facts).items()
    ]
    if not any(definition.get("coordination") == "zookeeper" for *_, definition in groups):
        return ()
    names = [group for *_, group, _ in groups]
    with_sizes = [f"{group} of {_size(definition)}" for *_, group, definition in groups]
    with_titles = [f"{group} ({title})" for _, _, title, group, _ in groups]
    # A side needs a title that no other side has: the group's name if all are different, else the
    # name with the size if these are different, else the name with the run.
    different = (texts for texts in (names, with_sizes) if len(set(texts)) == len(texts))
    chosen = next(different, with_titles)
    return tuple(
        GroupSide(
            title=name,
            group=group,
            design="zookeeper" if definition.get("coordination") == "zookeeper" else "coordinator",
            facts=facts,
            tables=tables,
        )
        for name, (facts, tables, _, group, definition) in zip(chosen, groups, strict=True)
    )


def _groups(facts: RunFacts) -> Mapping[str, Mapping[str, Any]]:
    return facts.manifest.config.get("groups") or {}


def _size(definition: Mapping[str, Any]) -> int:
    """Return the number of members of a group once all have joined."""
    late_joins = definition.get("late_members") or ()
    return int(definition.get("members", 0)) + sum(int(late["members"]) for late in late_joins)


def of_design(sides: Sequence[GroupSide], design: Design) -> list[GroupSide]:
    """Return the sides of one design."""
    return [side for side in sides if side.design == design]


def _all_members(tables: RunTables) -> set[str]:
    """Return the nodes of the members of all groups of a run."""
    return {
        row["consumer"] for name in ("ownership", "zookeeper_attempts") for row in tables.rows(name)
    }


def _fault_label(row: Row, hit_members: set[str]) -> str:
    """Return the label of a fault's beginning."""
    if row["kind"] in _ENDS_MEMBERS and len(hit_members) == 1:
        return "1 member dies"
    node = sorted(hit_members, key=_stem_and_number)[0] if hit_members else row["node"]
    return f"{row['kind']} of {node}" if node else str(row["kind"])


def _stem_and_number(name: str) -> tuple[str, int]:
    """Return a node's name in two parts, by which consumer-2 is sorted before consumer-10."""
    stem, _, number = name.rpartition("-")
    return (stem, int(number)) if number.isdigit() else (name, 0)


def _microseconds(duration: str) -> int:
    """Return the length of a duration from an experiment file, whose form was checked before."""
    match = _DURATION.fullmatch(duration)
    return int(match[1]) * _UNIT_US[match[2]] if match else 0
