"""The sides of a comparison. A side is one group of one run, with its changes.

For example, a run has a group `old` on ZooKeeper and a group `new` with a coordinator, and a third
member joins each group. Then the run has two sides, and each side has a change of the kind `join`.
The beginning and the end of a fault are changes, too. Each change has a window, which lasts until
the next change of the group. What happens in the window counts as an effect of the change.

Times are microseconds on the run's clock.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

from pipeline.report.facts import RunFacts
from pipeline.report.report_input import Row, RunTables
from pipeline.summary.story import counted

Design = Literal["zookeeper", "coordinator"]
ChangeKind = Literal["join", "death", "return", "other"]
"""The kind of a change:

- `join`: exactly one member joins;
- `death`: exactly one member dies;
- `return`: the member that died comes back;
- `other`: any other change, for example if several members join at the same time, or if a broker is
  killed.
"""

_DURATION = re.compile(r"(\d+)(us|ms|s|m|h)")
"""A duration in an experiment's file, such as `30s`."""
_UNIT_US = {"us": 1, "ms": 1_000, "s": 1_000_000, "m": 60_000_000, "h": 3_600_000_000}
_ENDS_MEMBERS = ("crash", "node_loss", "power_loss", "shutdown")
"""Kinds of faults that end the processes of the members that they hit. When the fault is healed,
the processes are started again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupChange:
    """One change of a group."""

    kind: ChangeKind
    label: str
    """The change in words, such as "1 member joins"."""
    at_us: int
    until_us: int
    """The end of the window: the group's next change, or the end of the run."""
    members: int
    """The size of the group: after the change if members join, and before the change if members
    die."""

    def covers(self, time_us: int | None) -> bool:
        """Return whether a moment lies in the window; False for an unknown moment (None)."""
        return time_us is not None and self.at_us <= time_us < self.until_us


class _Moment(NamedTuple):
    """A change before its window and the size of the group are known."""

    at_us: int
    kind: ChangeKind
    label: str
    growth: int
    """Number of members that join or come back; -2 if two members die."""


@dataclass(frozen=True, kw_only=True)
class GroupSide:
    """One group of one run."""

    title: str
    """The name of the group. If several sides have groups of this name, the title tells more:
    "readers of 8", or "readers (run-2)"."""
    group: str
    design: Design
    facts: RunFacts
    tables: RunTables
    """The tables of the run, such as `ownership` and `faults`. Each row is a dict by column."""

    @property
    def design_name(self) -> str:
        """The design as text for headings."""
        return "on ZooKeeper" if self.design == "zookeeper" else "with a coordinator"

    @property
    def heading(self) -> str:
        """A name that no other side has: "readers with a coordinator"."""
        return f"{self.title} {self.design_name}"

    @cached_property
    def members(self) -> int:
        """Number of members when all members of the experiment have joined."""
        return _final_size(self._definition)

    @cached_property
    def end_us(self) -> int:
        """End of the run. It is at least 1, because a time axis needs a length."""
        return max([1, *(row["end_us"] or 0 for row in self.tables.rows("runs"))])

    @cached_property
    def steady_us(self) -> int:
        """Time at which all groups were stable with their first members; 0 if they never were."""
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
        """The changes of the group from the steady state on, in the order of time.

        The plan's faults are injected only from then on, so `_faults` need not compare times.
        """
        moments = sorted((*self._joins(), *self._faults()), key=lambda moment: moment.at_us)
        # The window of a change ends at the next change. The last window ends with the run.
        window_ends = [moment.at_us for moment in moments[1:]] + [self.end_us]
        members = int(self._definition.get("members", 0))
        changes = []
        for moment, until_us in zip(moments, window_ends, strict=True):
            # The size of a change includes the members that join or die in the change. So members
            # that join are added before the change is made, and members that die are subtracted
            # after it.
            if moment.growth > 0:
                members += moment.growth
            change = GroupChange(
                kind=moment.kind,
                label=moment.label,
                at_us=moment.at_us,
                until_us=until_us,
                members=members,
            )
            changes.append(change)
            if moment.growth < 0:
                members += moment.growth
        return tuple(changes)

    @property
    def _definition(self) -> Mapping[str, Any]:  # Any: JSON
        """The group's section of the experiment's file."""
        return _groups(self.facts).get(self.group, {})

    def _joins(self) -> Iterator[_Moment]:
        """Yield the joins of members that the experiment adds after the steady state."""
        for late in self._definition.get("late_members") or ():
            # In the experiment's file, `at` is a duration: how long after the steady state the
            # members join.
            at_us = self.steady_us + _microseconds(late["at"])
            count = int(late["members"])
            if count == 1:
                yield _Moment(at_us, "join", "1 member joins", count)
            else:
                yield _Moment(at_us, "other", f"{counted(count, 'member')} join", count)

    def _faults(self) -> Iterator[_Moment]:
        """Yield the beginnings and ends of faults.

        A fault that hit only members of other groups is no change of this group. A fault that hit
        no member at all (only a broker, for example) is a change of every group.
        """
        members_of_group = set(self.consumers)
        all_members = _all_members(self.tables)
        for row in self.tables.rows("faults"):
            hit_members = {*row["nodes"], *row["from_nodes"], *row["to_nodes"]} & all_members
            if hit_members and not hit_members & members_of_group:
                continue

            deaths = len(hit_members) if row["kind"] in _ENDS_MEMBERS else 0
            kind: ChangeKind = "death" if deaths == 1 else "other"
            yield _Moment(row["injected_us"], kind, _fault_label(row, hit_members), -deaths)

            healed_us = row["healed_us"]
            # The run heals all faults when it ends. Such a healing is no change of the group.
            if healed_us is None or healed_us >= self.end_us:
                continue
            # Members that died come back, so the group grows by `deaths`; after another fault by 0.
            if deaths == 1:
                yield _Moment(healed_us, "return", "the member is back", deaths)
            else:
                yield _Moment(healed_us, "other", f"{row['kind']} ends", deaths)


class _GroupOfRun(NamedTuple):
    """A group, with its definition in the experiment and the run that it belongs to."""

    group: str
    definition: Mapping[str, Any]  # Any: JSON
    facts: RunFacts
    tables: RunTables
    run_title: str


def sides_of(
    runs: Sequence[tuple[RunFacts, RunTables]], run_titles: Sequence[str]
) -> tuple[GroupSide, ...]:
    """Return the groups of all runs as sides; () if no group is on ZooKeeper.

    Without a group on ZooKeeper there are no two designs to compare.
    """
    groups = [
        _GroupOfRun(group, definition, facts, tables, run_title)
        for (facts, tables), run_title in zip(runs, run_titles, strict=True)
        for group, definition in _groups(facts).items()
    ]
    if not any(_design(group.definition) == "zookeeper" for group in groups):
        return ()
    return tuple(
        GroupSide(
            title=title,
            group=group.group,
            design=_design(group.definition),
            facts=group.facts,
            tables=group.tables,
        )
        for title, group in zip(_different_titles(groups), groups, strict=True)
    )


def _different_titles(groups: Sequence[_GroupOfRun]) -> list[str]:
    """Return a title for each group. No two titles are equal, if no two runs have equal titles.

    The first of these that gives different titles for all groups is taken:

    1. the name of the group: `readers`;
    2. the name and the size of the group: `readers of 8`;
    3. the name of the group and the title of its run: `readers (run-2)`.
    """
    names = [group.group for group in groups]
    if len(set(names)) == len(names):
        return names
    with_sizes = [f"{group.group} of {_final_size(group.definition)}" for group in groups]
    if len(set(with_sizes)) == len(with_sizes):
        return with_sizes
    return [f"{group.group} ({group.run_title})" for group in groups]


def _groups(facts: RunFacts) -> Mapping[str, Mapping[str, Any]]:
    """Return the definition of each group in the experiment's file, by the group's name."""
    return facts.manifest.config.get("groups") or {}


def _design(definition: Mapping[str, Any]) -> Design:
    """Return the design of a group, from its definition."""
    return "zookeeper" if definition.get("coordination") == "zookeeper" else "coordinator"


def _final_size(definition: Mapping[str, Any]) -> int:
    """Return the number of members of a group when all have joined."""
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
    """Return the label of a fault's beginning: "1 member dies", or "pause of consumer-a-2"."""
    if row["kind"] in _ENDS_MEMBERS and len(hit_members) == 1:
        return "1 member dies"
    # If the fault hit several members, the label names only the first of them. `nodes` has all
    # nodes that the fault hit; `node` is the first of them. Of a fault of links, `from_nodes` and
    # `to_nodes` are the nodes on the two sides.
    node = min(hit_members, key=_stem_and_number) if hit_members else row["node"]
    return f"{row['kind']} of {node}" if node else str(row["kind"])


def _stem_and_number(name: str) -> tuple[str, int]:
    """Return a key that sorts consumer-2 before consumer-10: `("consumer", 2)`."""
    stem, _, number = name.rpartition("-")
    return (stem, int(number)) if number.isdigit() else (name, 0)


def _microseconds(duration: str) -> int:
    """Return the length of a duration from an experiment's file: 30_000_000 for `30s`."""
    # The form of a duration was checked when the run began. So there is a match, and the 0 only
    # satisfies the type checker.
    match = _DURATION.fullmatch(duration)
    return int(match[1]) * _UNIT_US[match[2]] if match else 0
