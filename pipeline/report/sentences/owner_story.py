"""Why partitions of a group had two owners at once, as steps in time order, each with its moment.

Pure functions over rows of `ownership_overlaps`, `ownership`, `rebalances`, `tenure_overlaps`,
`faults`, `client_phases` and `messages`. An episode is what the summary counts as one: two sets of
members, each assigned by one coordinator in one leader epoch. `messages` is bounded: an answer that
is not in it is not told, the moment at which partitions were lost stands elsewhere.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from pipeline.report.rendering import COORDINATORS, FAULTS, OWNERSHIP, said
from pipeline.report.report_input import Row, Settings
from pipeline.summary.outcomes import in_number_order
from protocol.causes import RemovalCause

Office = tuple[str | None, int | None]
"""A coordinator and the epoch in which it serves."""
_GROUPS = "lane-groups"
_SUM_US = 50_000
"""So close a sum of moments has to come to count as the cause: timers wake a little late."""
_UNKNOWN = "UNKNOWN_MEMBER_ID"
_SAID_SO = frozenset({"NOT_COORDINATOR"})
"""What an old coordinator answers once it knows that it is none; other causes are no answer."""


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that led to two owners, or ended it; `lane` is where it is seen."""

    time_us: int
    text: Markup
    lane: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OverlapTables:
    """The rows of one run that a story needs."""

    ownership: Mapping[tuple[str, str], Sequence[Row]]  # by group and partition
    rebalances: Sequence[Row]
    tenures: Sequence[Row]  # of tenure_overlaps
    faults: Sequence[Row]
    clients: Sequence[Row]  # of client_phases
    messages: Sequence[Row]
    settings: Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """Two sets of members that owned partitions of a group at once.

    Shape: `rows` are those of `ownership_overlaps` with the same group, fault and coordinators.
    """

    group: str
    fault: str | None
    first: Office
    second: Office
    rows: tuple[Row, ...]

    @property
    def partitions(self) -> int:
        """How many partitions had two owners."""
        return len({row["partition"] for row in self.rows})

    @property
    def records(self) -> int:
        """How many records both owners processed in the time of two owners."""
        return sum(row["records_both"] for row in self.rows)

    @property
    def from_us(self) -> int:
        """When the first partition came to have two owners."""
        return min(int(row["from_us"]) for row in self.rows)

    @property
    def longest_us(self) -> int:
        """The longest time for which one partition had two owners."""
        return max(int(row["length_us"]) for row in self.rows)

    @property
    def to_us(self) -> int | None:
        """When the last partition had one owner again; None: not before the run's end."""
        ends = [row["to_us"] for row in self.rows]
        return None if None in ends else max(ends)

    def members(self, side: str) -> tuple[str, ...]:
        """Return the consumers of one side: `first` or `second`."""
        return in_number_order({row[f"{side}_consumer"] for row in self.rows})

    def generations(self, side: str) -> list[int]:
        """Return the generations of one side, in order."""
        return sorted({row[f"{side}_generation"] for row in self.rows})


def episodes(overlaps: Sequence[Row]) -> list[Episode]:
    """Sort overlaps into episodes, the earliest first."""
    found: dict[tuple[str, str | None, Office, Office], list[Row]] = {}
    for row in overlaps:
        first = (row["first_coordinator"], row["first_epoch"])
        second = (row["second_coordinator"], row["second_epoch"])
        found.setdefault((row["group"], row["fault"], first, second), []).append(row)
    told = [
        Episode(group=group, fault=fault, first=first, second=second, rows=tuple(rows))
        for (group, fault, first, second), rows in found.items()
    ]
    return sorted(told, key=lambda episode: (episode.from_us, episode.group))


def steps(episode: Episode, tables: OverlapTables) -> list[Step]:
    """Return what led to an episode and what ended it, in time order."""
    told = [
        *_fault_steps(episode, tables),
        *_office_steps(episode, tables),
        *_stopped_steps(episode, tables),
        *_rebalance_steps(episode, tables),
        *_lost_steps(episode, tables),
        *_end_steps(episode, tables),
    ]
    return sorted(told, key=lambda step: step.time_us)


def _step(time_us: int, lane: str, macro: str, *facts: object) -> Step:
    return Step(time_us, said("two_at_once", macro, *facts), lane)


def _fault_steps(episode: Episode, tables: OverlapTables) -> Iterator[Step]:
    for row in tables.faults:
        if row["fault"] == episode.fault:
            ends = {*(row["nodes"] or ()), *(row["to_nodes"] or ())}
            from_servers = not ends & set(episode.members("first"))
            yield _step(row["injected_us"], FAULTS, "injected", row, from_servers)
            if row["healed_us"] is not None:
                yield _step(row["healed_us"], FAULTS, "healed", row)


def served_at_once(episode: Episode, tables: OverlapTables) -> list[Row]:
    """Return when both coordinators were in office at once: rows of `tenure_overlaps`."""
    return [
        row
        for row in tables.tenures
        if episode.group in row["groups"]
        and {(row["older_broker"], row["older_epoch"]), (row["newer_broker"], row["newer_epoch"])}
        == {episode.first, episode.second}
    ]


def _office_steps(episode: Episode, tables: OverlapTables) -> Iterator[Step]:
    """Tell how two coordinators came to serve the group, if it was two that assigned."""
    for row in served_at_once(episode, tables):
        yield _step(row["from_us"], COORDINATORS, "took_office", row, episode.group)
        yield _step(row["to_us"], COORDINATORS, "left_office", row)


def _stopped_steps(episode: Episode, tables: OverlapTables) -> Iterator[Step]:
    """Tell which of the first owners were stopped while they owned."""
    owned = [each for row in episode.rows for each in owned_by(row, tables, "first")]
    stopped = [row for row in owned if row["paused_us"]]
    if stopped:
        names = in_number_order({row["consumer"] for row in stopped})
        longest_us = max(row["paused_us"] for row in stopped)
        yield _step(episode.from_us, OWNERSHIP, "stopped", names, longest_us)


def _rebalance_steps(episode: Episode, tables: OverlapTables) -> Iterator[Step]:
    """Tell the rebalance that gave the partitions to the second owners."""
    for row in tables.rebalances:
        if (row["broker"], row["leader_epoch"]) != episode.second or row["group"] != episode.group:
            continue
        if row["new_generation"] not in episode.generations("second") or row["joined_us"] is None:
            continue
        expired = RemovalCause.SESSION_EXPIRY in row["removed_because"]
        timeout = tables.settings.of_group(row["group"], "session.timeout.ms") if expired else None
        loaded_us = _loaded_us(row, timeout or "", tables)
        yield _step(row["started_us"], _GROUPS, "began", row, expired)
        yield _step(row["joined_us"], _GROUPS, "assigned", row, episode, timeout, loaded_us)


def _loaded_us(row: Row, timeout: str, tables: OverlapTables) -> int | None:
    """Return when the coordinator's load began the sessions, if their end proves it."""
    office = (row["broker"], row["leader_epoch"])
    for tenure in tables.tenures:
        same = (tenure["newer_broker"], tenure["newer_epoch"]) == office
        if not (timeout.isdigit() and same and row["group"] in tenure["groups"]):
            continue
        loaded_us: int = tenure["from_us"]
        if abs(loaded_us + int(timeout) * 1_000 - row["joined_us"]) <= _SUM_US:
            return loaded_us
    return None


def _lost_steps(episode: Episode, tables: OverlapTables) -> Iterator[Step]:
    """Tell how the first owners learnt of it; nothing of an episode without fault or end.

    The first answer that took partitions away is told; the last one is the end of the story.
    """
    if episode.to_us is None or episode.fault is None:
        return
    lane = f"lane-messages-{episode.fault}"
    rows = [
        row
        for row in tables.clients
        if row["fault"] == episode.fault
        and row["group"] == episode.group
        and row["consumer"] in episode.members("first")
        and row["noticed_by"] in _SAID_SO
        and row["unknown_us"] is not None
        and episode.from_us <= row["unknown_us"] <= episode.to_us
    ]
    if rows:
        names = in_number_order({row["consumer"] for row in rows})
        errors = list(dict.fromkeys(row["noticed_by"] for row in rows))
        interval = tables.settings.of_group(episode.group, "heartbeat.interval.ms")
        first_us = min(row["unknown_us"] for row in rows)
        yield _step(first_us, lane, "sent_away", names, errors, interval)
    answers = _unknown_members(episode, tables)
    if len({row["from_node"] for row in answers}) > 1:
        first = min(answers, key=lambda row: (row["ended_us"], row["from_node"]))
        yield _step(first["ended_us"], lane, "first_to_lose", first)


def _unknown_members(episode: Episode, tables: OverlapTables) -> list[Row]:
    """Return the answers by which the new coordinator said that it knows no such member."""
    if episode.to_us is None or episode.fault is None:
        return []
    return [
        row
        for row in tables.messages
        if row["outcome"] == _UNKNOWN
        and row["fault"] == episode.fault
        and row["from_node"] in episode.members("first")
        and row["to_node"] == episode.second[0]
        and row["ended_us"] is not None
        and episode.from_us <= row["ended_us"] <= episode.to_us
    ]


def _end_steps(episode: Episode, tables: OverlapTables) -> Iterator[Step]:
    """Tell how it ended: what became of the owners that gave way first."""
    end_us = episode.to_us
    if end_us is None:
        return
    ended: dict[str, list[str]] = {}
    for row in episode.rows:
        for side in ("first", "second"):
            for owned in owned_by(row, tables, side):
                if owned["to_us"] == row["to_us"]:
                    ended.setdefault(owned["ended_by"], []).append(owned["consumer"])
    answers = [row for row in _unknown_members(episode, tables) if row["ended_us"] == end_us]
    for how, consumers in sorted(ended.items()):
        names, answer = in_number_order(set(consumers)), next(iter(answers), None)
        yield _step(end_us, OWNERSHIP, "gave_way", names, how, answer)


def owned_by(overlap: Row, tables: OverlapTables, side: str) -> list[Row]:
    """Return the interval of `ownership` that one side of an overlap is."""
    return [
        row
        for row in tables.ownership.get((overlap["group"], overlap["partition"]), ())
        if row["member"] == overlap[f"{side}_member"]
        and row["generation"] == overlap[f"{side}_generation"]
        and row["from_us"] <= overlap["from_us"]
        and (row["to_us"] is None or row["to_us"] >= overlap["from_us"])
    ]
