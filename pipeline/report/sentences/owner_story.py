"""How partitions came to have two owners at the same time, told step by step.

Typically: a fault cuts some members and their coordinator off from the rest (step 1). The other
side elects a new coordinator, so that two of them serve the group (2). The new coordinator waits
until the sessions of the missing members end, and assigns their partitions to others (3). Now the
partitions have two owners. When the cut is healed (4), the first owners learn that they are no
members any more (5).

All overlaps of two owners with the same fault and the same two coordinators are one episode. Its
`first` members owned the partitions before; its `second` members were assigned them, too.

The functions read rows of the run's tables and return steps with a time and a text (from
`two_at_once.j2`). Each step names the chart of the page, called a lane, that shows it. The table
`messages` does not have every message. If an answer is not in it, the step is left out.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from pipeline.report.rendering import COORDINATORS, FAULTS, OWNERSHIP, render_line
from pipeline.report.report_input import Row, Settings
from pipeline.summary.outcomes import in_number_order
from protocol.causes import RemovalCause

CoordinatorEpoch = tuple[str | None, int | None]
"""A coordinator, with the leader epoch in which it serves: `("broker-1", 3)`."""
_GROUPS = "lane-groups"
_LATEST_TIMER_US = 50_000
"""A timer counts as the cause of something that happened at most so long after (or before) the
moment for which the timer was set.
"""
_UNKNOWN = "UNKNOWN_MEMBER_ID"
"""The error with which a coordinator answers a member that it has removed or never had."""
_NOT_COORDINATOR = frozenset({"NOT_COORDINATOR"})
"""The answers by which an old coordinator sends its members away because it was replaced."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step on the way to two owners, or back to one owner."""

    time_us: int
    text: Markup
    lane: str
    """id of the chart of the page that shows it"""


@dataclass(frozen=True, slots=True, kw_only=True)
class OverlapTables:
    """The rows of one run from which the steps are derived."""

    ownership: Mapping[tuple[str, str], Sequence[Row]]  # by group and partition
    rebalances: Sequence[Row]
    tenures: Sequence[Row]  # of tenure_overlaps
    faults: Sequence[Row]
    clients: Sequence[Row]  # of client_phases
    messages: Sequence[Row]
    settings: Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """The overlaps of owners in one group, after one fault, with the same two coordinators."""

    group: str
    fault: str | None
    """the newest fault before it; None if there was none"""
    first: CoordinatorEpoch
    """the coordinator that had assigned the partitions to their first owners"""
    second: CoordinatorEpoch
    """the coordinator that assigned them to the second owners"""
    rows: tuple[Row, ...]
    """rows of `ownership_overlaps`: one for each partition and pair of owners"""

    @property
    def partitions(self) -> int:
        """Number of partitions with two owners."""
        return len({row["partition"] for row in self.rows})

    @property
    def records(self) -> int:
        """Number of records that both owners processed while there were two."""
        return sum(row["records_both"] for row in self.rows)

    @property
    def from_us(self) -> int:
        """Time at which the first partition got its second owner."""
        return min(int(row["from_us"]) for row in self.rows)

    @property
    def longest_us(self) -> int:
        """The longest time in which one partition had two owners."""
        return max(int(row["length_us"]) for row in self.rows)

    @property
    def to_us(self) -> int | None:
        """When no partition had two owners any more; None if one still had when the run ended."""
        ends = [row["to_us"] for row in self.rows]
        return None if None in ends else max(ends)

    def members(self, side: str) -> tuple[str, ...]:
        """Return the consumers of one side: `first` or `second`."""
        return in_number_order({row[f"{side}_consumer"] for row in self.rows})

    def generations(self, side: str) -> list[int]:
        """Return the generations of one side, in order."""
        return sorted({row[f"{side}_generation"] for row in self.rows})


def episodes(overlaps: Sequence[Row]) -> list[Episode]:
    """Group overlaps into episodes, the earliest first."""
    rows_by_episode: dict[
        tuple[str, str | None, CoordinatorEpoch, CoordinatorEpoch], list[Row]
    ] = {}
    for row in overlaps:
        first = (row["first_coordinator"], row["first_epoch"])
        second = (row["second_coordinator"], row["second_epoch"])
        rows_by_episode.setdefault((row["group"], row["fault"], first, second), []).append(row)
    unsorted = [
        Episode(group=group, fault=fault, first=first, second=second, rows=tuple(rows))
        for (group, fault, first, second), rows in rows_by_episode.items()
    ]
    return sorted(unsorted, key=lambda episode: (episode.from_us, episode.group))


def steps(episode: Episode, tables: OverlapTables) -> list[Step]:
    """Return the steps that led to an episode and ended it, in time order."""
    unsorted = [
        *_fault_steps(episode, tables),
        *_coordinator_steps(episode, tables),
        *_stopped_steps(episode, tables),
        *_rebalance_steps(episode, tables),
        *_lost_steps(episode, tables),
        *_end_steps(episode, tables),
    ]
    return sorted(unsorted, key=lambda step: step.time_us)


def _step(time_us: int, lane: str, macro: str, *facts: object) -> Step:
    """Return a step with the text of a macro of `templates/two_at_once.j2` about the facts."""
    return Step(time_us, render_line("two_at_once", macro, *facts), lane)


def _fault_steps(episode: Episode, tables: OverlapTables) -> Iterator[Step]:
    """Yield the injection and the healing of the episode's fault."""
    for row in tables.faults:
        if row["fault"] == episode.fault:
            # If the fault is a cut that did not hit the first owners, they still reached the
            # coordinator on the other side of the cut.
            hit_nodes = {*(row["nodes"] or ()), *(row["to_nodes"] or ())}
            hits_no_owner = hit_nodes.isdisjoint(episode.members("first"))
            yield _step(row["injected_us"], FAULTS, "injected", row, hits_no_owner)
            if row["healed_us"] is not None:
                yield _step(row["healed_us"], FAULTS, "healed", row)


def served_at_once(episode: Episode, tables: OverlapTables) -> list[Row]:
    """Return the rows of `tenure_overlaps` in which both coordinators served the group."""
    return [
        row
        for row in tables.tenures
        if episode.group in row["groups"]
        and {(row["older_broker"], row["older_epoch"]), (row["newer_broker"], row["newer_epoch"])}
        == {episode.first, episode.second}
    ]


def _coordinator_steps(episode: Episode, tables: OverlapTables) -> Iterator[Step]:
    """Yield the beginning and the end of each time in which two coordinators served the group."""
    for row in served_at_once(episode, tables):
        yield _step(row["from_us"], COORDINATORS, "began_to_serve", row, episode.group)
        yield _step(row["to_us"], COORDINATORS, "stopped_serving", row)


def _stopped_steps(episode: Episode, tables: OverlapTables) -> Iterator[Step]:
    """Yield a step that names the first owners that were paused while they owned partitions."""
    owned = [interval for row in episode.rows for interval in owned_by(row, tables, "first")]
    with_pause = [interval for interval in owned if interval["paused_us"]]
    if with_pause:
        names = in_number_order({interval["consumer"] for interval in with_pause})
        longest_us = max(interval["paused_us"] for interval in with_pause)
        # The table has the length of a pause but not its moment, so the step is at the beginning of
        # the episode.
        yield _step(episode.from_us, OWNERSHIP, "stopped", names, longest_us)


def _rebalance_steps(episode: Episode, tables: OverlapTables) -> Iterator[Step]:
    """Yield the beginning and the assignment of the rebalance with the second owners."""
    for row in tables.rebalances:
        # The rebalance must be one that the second coordinator began in the leader epoch in which
        # it assigned the partitions to the second owners.
        if (row["broker"], row["leader_epoch"]) != episode.second or row["group"] != episode.group:
            continue
        # It must also have led to the generation in which the second owners got the partitions.
        if row["new_generation"] not in episode.generations("second") or row["joined_us"] is None:
            continue
        has_expiry = RemovalCause.SESSION_EXPIRY in row["removed_because"]
        setting = "session.timeout.ms"
        timeout = tables.settings.of_group(row["group"], setting) if has_expiry else None
        # The load matters only if the rebalance waited for sessions that began with it.
        loaded_us = None if timeout is None else _loaded_us(row, timeout, tables)
        yield _step(row["started_us"], _GROUPS, "began", row, has_expiry)
        yield _step(row["joined_us"], _GROUPS, "assigned", row, episode, timeout, loaded_us)


def _loaded_us(row: Row, timeout: str, tables: OverlapTables) -> int | None:
    """Return when the coordinator loaded the group, if sessions of members began with this load.

    A coordinator that has loaded a group gives each member one session timeout to send a heartbeat.
    If the rebalance's join phase ended one session timeout after the load, it waited for the end of
    such a session.
    """
    serving_epoch = (row["broker"], row["leader_epoch"])
    for tenure in tables.tenures:
        is_newer = (tenure["newer_broker"], tenure["newer_epoch"]) == serving_epoch
        if not (timeout.isdigit() and is_newer and row["group"] in tenure["groups"]):
            continue
        loaded_us: int = tenure["from_us"]
        session_end_us = loaded_us + int(timeout) * 1_000
        if abs(session_end_us - row["joined_us"]) <= _LATEST_TIMER_US:
            return loaded_us
    return None


def _lost_steps(episode: Episode, tables: OverlapTables) -> Iterator[Step]:
    """Yield steps on the answers by which the first owners learned that they lost partitions.

    Of the answers that made members lose their partitions, only the first one has a step here. The
    last one has its step in `_end_steps`. An episode without a fault or without an end has no such
    steps.
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
        and row["noticed_by"] in _NOT_COORDINATOR
        and row["unknown_us"] is not None
        and episode.from_us <= row["unknown_us"] <= episode.to_us
    ]
    if rows:
        names = in_number_order({row["consumer"] for row in rows})
        errors = list(dict.fromkeys(row["noticed_by"] for row in rows))
        interval = tables.settings.of_group(episode.group, "heartbeat.interval.ms")
        first_us = min(row["unknown_us"] for row in rows)
        yield _step(first_us, lane, "sent_away", names, errors, interval)

    # If only one member lost its partitions, its answer is the last one, which `_end_steps` has.
    answers = _unknown_members(episode, tables)
    if len({row["from_node"] for row in answers}) > 1:
        first = min(answers, key=lambda row: (row["ended_us"], row["from_node"]))
        yield _step(first["ended_us"], lane, "first_to_lose", first)


def _unknown_members(episode: Episode, tables: OverlapTables) -> list[Row]:
    """Return the exchanges in which the new coordinator refused first owners as unknown members."""
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
    """Yield a step for each way in which owners lost the last partition with two owners."""
    end_us = episode.to_us
    if end_us is None:
        return

    # The owners that lost the partition, by the way in which they lost it (`ended_by`).
    ended: dict[str, list[str]] = {}
    for row in episode.rows:
        for side in ("first", "second"):
            for owned in owned_by(row, tables, side):
                # If the interval ended together with the overlap, its end was the overlap's end.
                if owned["to_us"] == row["to_us"]:
                    ended.setdefault(owned["ended_by"], []).append(owned["consumer"])

    answers = [row for row in _unknown_members(episode, tables) if row["ended_us"] == end_us]
    for how, consumers in sorted(ended.items()):
        names, answer = in_number_order(set(consumers)), next(iter(answers), None)
        yield _step(end_us, OWNERSHIP, "gave_way", names, how, answer)


def owned_by(overlap: Row, tables: OverlapTables, side: str) -> list[Row]:
    """Return the intervals of one side of an overlap, which contain the overlap's beginning.

    They are rows of `ownership`. `side` is `first` or `second`.
    """
    return [
        row
        for row in tables.ownership.get((overlap["group"], overlap["partition"]), ())
        if row["member"] == overlap[f"{side}_member"]
        and row["generation"] == overlap[f"{side}_generation"]
        and row["from_us"] <= overlap["from_us"]
        and (row["to_us"] is None or row["to_us"] >= overlap["from_us"])
    ]
