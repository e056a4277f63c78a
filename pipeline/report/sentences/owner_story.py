"""How partitions came to have two owners at the same time, step by step.

A typical story has these steps:

1. A fault cuts the network: some members and their coordinator no longer reach the other servers.
2. On the other side, the controller makes another broker the coordinator. Two coordinators now
   serve the group.
3. The new coordinator hears nothing from the members that were cut off. When their sessions have
   expired, it assigns their partitions to other members. Now these partitions have two owners: the
   `first` owners, which were cut off, and the `second` owners.
4. The cut is healed, and the first owners learn that they are no longer members.

The time in which one partition has two owners is called an overlap. All overlaps of a group with
the same fault and the same two coordinators have the same story. Together they are an episode. The
function `steps` tells the story of an episode from the tables of the run.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from markupsafe import Markup

from pipeline.report.rendering import COORDINATORS, FAULTS, OWNERSHIP, render_line
from pipeline.report.report_input import Row, Settings
from pipeline.summary.outcomes import in_number_order
from protocol.causes import RemovalCause

CoordinatorEpoch = tuple[str | None, int | None]
"""A coordinator, with the leader epoch in which it serves: `("broker-1", 3)`. Each of the two is
None if it is not known."""
Side = Literal["first", "second"]
"""One of the two owners in an overlap. Columns of `ownership_overlaps` begin with this word:
`first_consumer` and `second_consumer`, for example."""
_GROUPS = "lane-groups"
"""The id of the chart of the groups on the page."""
_TIMER_TOLERANCE_US = 50_000
"""If a join phase ends at most this time before or after the end of a session, the end of the
session is taken to be the cause."""
_UNKNOWN = "UNKNOWN_MEMBER_ID"
"""The error with which a coordinator answers a member that it has removed or never had."""
_NOT_COORDINATOR = "NOT_COORDINATOR"
"""The error with which an old coordinator sends its members away after it was replaced."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step on the way to two owners, or back to one owner."""

    time_us: int
    text: Markup
    lane: str
    """The id of the chart on the page that shows this moment. The step has a link to the chart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OverlapTables:
    """The rows of one run from which the steps are derived."""

    ownership: Mapping[tuple[str, str], Sequence[Row]]
    """The rows of `ownership` by group and partition, such as `("readers", "orders-3")`."""
    rebalances: Sequence[Row]
    tenure_overlaps: Sequence[Row]
    faults: Sequence[Row]
    client_phases: Sequence[Row]
    messages: Sequence[Row]
    """The rows of `messages`. The table leaves out some messages. If an answer is missing, the
    story lacks the step about it."""
    settings: Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """The overlaps of owners in one group, after one fault, with the same two coordinators."""

    group: str
    fault: str | None
    """The latest fault before the episode; None if there was no fault before."""
    first: CoordinatorEpoch
    """The coordinator that had assigned the partitions to their first owners."""
    second: CoordinatorEpoch
    """The coordinator that assigned the partitions to their second owners."""
    rows: tuple[Row, ...]
    """Rows of `ownership_overlaps`: one for each partition and pair of owners."""

    @property
    def partitions(self) -> int:
        """Number of partitions with two owners."""
        return len({row["partition"] for row in self.rows})

    @property
    def records(self) -> int:
        """Number of records that both owners processed while there were two owners."""
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
        """Time from which on no partition had two owners.

        None if a partition still had two owners when the run ended.
        """
        ends = [row["to_us"] for row in self.rows]
        return None if None in ends else max(ends)

    def members(self, side: Side) -> tuple[str, ...]:
        """Return the consumers that are the owners of one side."""
        return in_number_order({row[f"{side}_consumer"] for row in self.rows})

    def generations(self, side: Side) -> list[int]:
        """Return the generations in which the owners of one side got their partitions."""
        return sorted({row[f"{side}_generation"] for row in self.rows})


def episodes(overlaps: Sequence[Row]) -> list[Episode]:
    """Group overlaps into episodes, the earliest first."""
    rows_of_episodes: dict[
        tuple[str, str | None, CoordinatorEpoch, CoordinatorEpoch], list[Row]
    ] = {}
    for row in overlaps:
        first = (row["first_coordinator"], row["first_epoch"])
        second = (row["second_coordinator"], row["second_epoch"])
        rows_of_episodes.setdefault((row["group"], row["fault"], first, second), []).append(row)
    found = [
        Episode(group=group, fault=fault, first=first, second=second, rows=tuple(rows))
        for (group, fault, first, second), rows in rows_of_episodes.items()
    ]
    return sorted(found, key=lambda episode: (episode.from_us, episode.group))


def steps(episode: Episode, tables: OverlapTables) -> list[Step]:
    """Return the steps that led to an episode and ended it, in time order."""
    found = [
        *_fault_steps(episode, tables),
        *_coordinator_steps(episode, tables),
        *_pause_steps(episode, tables),
        *_rebalance_steps(episode, tables),
        *_notice_steps(episode, tables),
        *_end_steps(episode, tables),
    ]
    return sorted(found, key=lambda step: step.time_us)


def _step(time_us: int, lane: str, macro: str, *facts: object) -> Step:
    """Return a step whose text a macro of `templates/two_at_once.j2` writes."""
    return Step(time_us, render_line("two_at_once", macro, *facts), lane)


def _fault_steps(episode: Episode, tables: OverlapTables) -> Iterator[Step]:
    """Yield the injection and the healing of the episode's fault."""
    for row in tables.faults:
        if row["fault"] != episode.fault:
            continue
        # If the fault did not hit the first owners, they still reached their coordinator, even if
        # the fault cut the coordinator off from other nodes. The text says so.
        hit_nodes = {*(row["nodes"] or ()), *(row["to_nodes"] or ())}
        hits_no_owner = hit_nodes.isdisjoint(episode.members("first"))
        yield _step(row["injected_us"], FAULTS, "injected", row, hits_no_owner)
        if row["healed_us"] is not None:
            yield _step(row["healed_us"], FAULTS, "healed", row)


def served_at_once(episode: Episode, tables: OverlapTables) -> list[Row]:
    """Return the times in which both coordinators served the group: rows of `tenure_overlaps`."""

    def coordinators(row: Row) -> set[CoordinatorEpoch]:
        """Return the two coordinators of a row, each with its leader epoch."""
        older = (row["older_broker"], row["older_epoch"])
        newer = (row["newer_broker"], row["newer_epoch"])
        return {older, newer}

    return [
        row
        for row in tables.tenure_overlaps
        if episode.group in row["groups"] and coordinators(row) == {episode.first, episode.second}
    ]


def _coordinator_steps(episode: Episode, tables: OverlapTables) -> Iterator[Step]:
    """Yield the beginning and the end of each time in which two coordinators served the group."""
    for row in served_at_once(episode, tables):
        yield _step(row["from_us"], COORDINATORS, "began_to_serve", row, episode.group)
        yield _step(row["to_us"], COORDINATORS, "stopped_serving", row)


def _pause_steps(episode: Episode, tables: OverlapTables) -> Iterator[Step]:
    """Yield a step that names the first owners that were paused while they owned partitions."""
    owned = [
        interval for row in episode.rows for interval in intervals_of_side(row, tables, "first")
    ]
    with_pause = [interval for interval in owned if interval["paused_us"]]
    if with_pause:
        names = in_number_order({interval["consumer"] for interval in with_pause})
        longest_us = max(interval["paused_us"] for interval in with_pause)
        # The table tells how long a pause was, but not when it was. So the step stands at the
        # beginning of the episode.
        yield _step(episode.from_us, OWNERSHIP, "stopped", names, longest_us)


def _rebalance_steps(episode: Episode, tables: OverlapTables) -> Iterator[Step]:
    """Yield the steps of the rebalance by which the second owners got the partitions.

    The first step is the beginning of the rebalance. The second step is the end of its join phase,
    at which the coordinator removes silent members and begins the new generation.
    """
    for row in tables.rebalances:
        is_by_second_coordinator = (row["broker"], row["leader_epoch"]) == episode.second
        if row["group"] != episode.group or not is_by_second_coordinator:
            continue
        if row["new_generation"] not in episode.generations("second") or row["joined_us"] is None:
            continue

        has_expiry = RemovalCause.SESSION_EXPIRY in row["removed_because"]
        session_timeout = None
        loaded_us = None
        if has_expiry:
            session_timeout = tables.settings.of_group(row["group"], "session.timeout.ms")
        if session_timeout is not None:
            loaded_us = _when_loaded_us(row, session_timeout, tables)
        yield _step(row["started_us"], _GROUPS, "began", row, has_expiry)
        yield _step(row["joined_us"], _GROUPS, "assigned", row, episode, session_timeout, loaded_us)


def _when_loaded_us(rebalance: Row, session_timeout: str, tables: OverlapTables) -> int | None:
    """Return when the coordinator loaded the group, if the sessions that expired began then.

    When a coordinator has loaded a group, it gives each member one session timeout to send a
    heartbeat. So if the join phase of the rebalance ended one session timeout after the load, the
    rebalance waited for the end of such a session. If the join phase ended at another moment, the
    result is None.
    """
    if not session_timeout.isdigit():
        return None
    coordinator = (rebalance["broker"], rebalance["leader_epoch"])
    for row in tables.tenure_overlaps:
        newer_coordinator = (row["newer_broker"], row["newer_epoch"])
        if newer_coordinator != coordinator or rebalance["group"] not in row["groups"]:
            continue
        loaded_us: int = row["from_us"]  # the newer coordinator serves as soon as it has loaded
        session_end_us = loaded_us + int(session_timeout) * 1_000
        if abs(session_end_us - rebalance["joined_us"]) <= _TIMER_TOLERANCE_US:
            return loaded_us
    return None


def _notice_steps(episode: Episode, tables: OverlapTables) -> Iterator[Step]:
    """Yield the steps in which the first owners learn that their membership is lost.

    1. The old coordinator answers NOT_COORDINATOR, so the members look for the new coordinator.
    2. The new coordinator answers UNKNOWN_MEMBER_ID to one member first, and this member gives up
       its partitions. The answer to the last member belongs to `_end_steps`.
    """
    if episode.to_us is None or episode.fault is None:
        return
    lane = f"lane-messages-{episode.fault}"
    # The rows of the first owners that left the old coordinator during the episode.
    sent_away = [
        row
        for row in tables.client_phases
        if row["fault"] == episode.fault
        and row["group"] == episode.group
        and row["consumer"] in episode.members("first")
        and row["noticed_by"] == _NOT_COORDINATOR
        and row["unknown_us"] is not None
        and episode.from_us <= row["unknown_us"] <= episode.to_us
    ]
    if sent_away:
        names = in_number_order({row["consumer"] for row in sent_away})
        interval = tables.settings.of_group(episode.group, "heartbeat.interval.ms")
        first_us = min(row["unknown_us"] for row in sent_away)
        yield _step(first_us, lane, "sent_away", names, [_NOT_COORDINATOR], interval)

    # If the new coordinator refused only one member, this is also the last member, and
    # `_end_steps` tells of it.
    refusals = _refusals_of_first_owners(episode, tables)
    if len({row["from_node"] for row in refusals}) > 1:
        first_refusal = min(refusals, key=lambda row: (row["ended_us"], row["from_node"]))
        yield _step(first_refusal["ended_us"], lane, "first_to_lose", first_refusal)


def _refusals_of_first_owners(episode: Episode, tables: OverlapTables) -> list[Row]:
    """Return the requests to which the new coordinator answered UNKNOWN_MEMBER_ID.

    The result has rows of `messages`: only requests that the first owners sent during the episode.
    """
    if episode.to_us is None or episode.fault is None:
        return []
    new_coordinator, _ = episode.second
    return [
        row
        for row in tables.messages
        if row["outcome"] == _UNKNOWN
        and row["fault"] == episode.fault
        and row["from_node"] in episode.members("first")
        and row["to_node"] == new_coordinator
        and row["ended_us"] is not None
        and episode.from_us <= row["ended_us"] <= episode.to_us
    ]


def _end_steps(episode: Episode, tables: OverlapTables) -> Iterator[Step]:
    """Yield a step for each way in which owners lost their partitions, at the episode's end.

    For example, some owners were killed, and others learned from the coordinator that they are no
    longer members. These are two steps. An episode that lasted until the run's end has no such
    step.
    """
    end_us = episode.to_us
    if end_us is None:
        return

    # How a partition was lost -> the owners that lost one in this way, such as `{"killed":
    # {"c-0"}}`.
    losers: dict[str, set[str]] = {}
    for row in episode.rows:
        owned = [
            *intervals_of_side(row, tables, "first"),
            *intervals_of_side(row, tables, "second"),
        ]
        for interval in owned:
            # An overlap ends when one of its two owners loses the partition.
            if interval["to_us"] == row["to_us"]:
                losers.setdefault(interval["ended_by"], set()).add(interval["consumer"])

    refusals = _refusals_of_first_owners(episode, tables)
    last_refusal = next((row for row in refusals if row["ended_us"] == end_us), None)
    for how, consumers in sorted(losers.items()):
        yield _step(end_us, OWNERSHIP, "gave_way", in_number_order(consumers), how, last_refusal)


def intervals_of_side(overlap: Row, tables: OverlapTables, side: Side) -> list[Row]:
    """Return the rows of `ownership` in which the owner of one side owned the overlap's partition.

    Only rows whose time contains the beginning of the overlap are returned.
    """
    return [
        row
        for row in tables.ownership.get((overlap["group"], overlap["partition"]), ())
        if row["member"] == overlap[f"{side}_member"]
        and row["generation"] == overlap[f"{side}_generation"]
        and row["from_us"] <= overlap["from_us"]
        and (row["to_us"] is None or row["to_us"] >= overlap["from_us"])
    ]
