"""Why partitions of a group had two owners at once, as steps in time order, each with its moment.

Pure functions over rows of `ownership_overlaps`, `ownership`, `rebalances`, `tenure_overlaps`,
`faults`, `client_phases` and `messages`. An episode is what the summary counts as one: two sets of
members, each assigned by one coordinator in one leader epoch.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pipeline.report.report_input import Row, Settings
from pipeline.report.sentences.member_steps import (
    GaveWay,
    MemberStep,
    new_coordinator_steps,
    old_coordinator_steps,
    unknown_members,
)
from pipeline.summary.figures import duration_text
from pipeline.summary.outcomes import in_number_order, listed
from pipeline.summary.story import counted, moment_text, office_name
from protocol.causes import RemovalCause

Office = tuple[str | None, int | None]
"""A coordinator and the epoch in which it serves."""
_ENDED = {
    "lost": "loses its partitions: the coordinator no longer knows it",
    "revoked": "gives its partitions up for a rebalance",
    "reassigned": "is assigned anew",
    "killed": "dies",
    "stopped": "stops",
}


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


def steps(episode: Episode, tables: OverlapTables) -> list[MemberStep]:
    """Return what led to an episode and what ended it, in time order."""
    told = [
        *_fault_steps(episode, tables),
        *_office_steps(episode, tables),
        *_stopped_steps(episode, tables),
        *_rebalance_steps(episode, tables),
        *_episode_steps(episode, tables),
        *_end_steps(episode, tables),
    ]
    return sorted(told, key=lambda step: step.time_us)


def cause(episode: Episode, tables: OverlapTables) -> str:
    """Say in a sentence what made two sets of members own the same partitions."""
    if episode.first == episode.second:
        return (
            "One coordinator assigned them to both: it had removed the first owners from the "
            "group, who did not know it yet."
        )
    offices = f"{_office(episode.first)} and {_office(episode.second)}"
    if any(True for _ in _office_steps(episode, tables)):
        return f"Two coordinators assigned them: {offices} were in office at once."
    return (
        f"Two coordinators assigned them, one after the other: {offices}. The first owners had not "
        "heard of the second yet."
    )


def _office(office: Office) -> str:
    broker, epoch = office
    return "an unknown one" if broker is None else office_name(broker, epoch)


def _fault_steps(episode: Episode, tables: OverlapTables) -> Iterator[MemberStep]:
    for row in tables.faults:
        if row["fault"] != episode.fault:
            continue
        hit = ", ".join(in_number_order(row["nodes"] or ())) or row["target"] or "nobody"
        far = in_number_order(row["to_nodes"] or ())
        links = f" from {', '.join(far)}" if far else ""
        if far and not {*far, *(row["nodes"] or ())} & set(episode.members("first")):
            links += ", not from its clients"
        kind = (row["kind"] or "fault").replace("_", " ")
        yield MemberStep(
            row["injected_us"], f"The fault {row['fault']}: {kind} of {hit}{links}.", _FAULTS
        )
        if row["healed_us"] is not None:
            yield MemberStep(row["healed_us"], f"The fault {row['fault']} is undone.", _FAULTS)


_SUM_US = 50_000
"""So close a sum of moments has to come to count as the cause: timers wake a little late."""
_FAULTS, _COORDINATORS, _GROUPS, _OWNERSHIP = (
    "lane-faults",
    "lane-coordinators",
    "lane-groups",
    "lane-ownership",
)


def _office_steps(episode: Episode, tables: OverlapTables) -> Iterator[MemberStep]:
    """Tell how two coordinators came to serve the group, if it was two that assigned."""
    for row in tables.tenures:
        older = (row["older_broker"], row["older_epoch"])
        newer = (row["newer_broker"], row["newer_epoch"])
        if {older, newer} != {episode.first, episode.second}:
            continue
        if episode.group not in row["groups"]:
            continue
        impaired = ""
        if row["older_cut_us"]:
            impaired = f", cut off for {duration_text(row['older_cut_us'])} of that time"
        elif row["older_paused_us"]:
            impaired = f", stopped for {duration_text(row['older_paused_us'])} of that time"
        heartbeats = counted(row["older_heartbeats"], "heartbeat")
        yield MemberStep(
            row["from_us"],
            f"{office_name(*newer)} becomes the coordinator of {episode.group}. "
            f"{office_name(*older)} stays in office beside it for {duration_text(row['length_us'])}"
            f"{impaired}. It goes on answering: {heartbeats} with success, so its members notice "
            "nothing and keep their partitions.",
            _COORDINATORS,
        )
        yield MemberStep(
            row["to_us"],
            f"{office_name(*older)} is no longer the coordinator ({row['older_end']}).",
            _COORDINATORS,
        )


def _stopped_steps(episode: Episode, tables: OverlapTables) -> Iterator[MemberStep]:
    """Tell which of the first owners were stopped while they owned."""
    stopped = [row for row in _owned(episode, tables, "first") if row["paused_us"]]
    if not stopped:
        return
    names = in_number_order({row["consumer"] for row in stopped})
    longest = max(row["paused_us"] for row in stopped)
    yield MemberStep(
        episode.from_us,
        f"{listed(names)} had been stopped, for up to {duration_text(longest)}, and could not "
        "learn of it.",
        _OWNERSHIP,
    )


def _rebalance_steps(episode: Episode, tables: OverlapTables) -> Iterator[MemberStep]:
    """Tell the rebalance that gave the partitions to the second owners."""
    for row in tables.rebalances:
        if (row["broker"], row["leader_epoch"]) != episode.second or row["group"] != episode.group:
            continue
        if row["new_generation"] not in episode.generations("second") or row["joined_us"] is None:
            continue
        who = f" of {row['consumer']}" if row["consumer"] else ""
        waits = ""
        if RemovalCause.SESSION_EXPIRY in row["removed_because"]:
            waits = (
                f" It waits for {listed(row['removed'])} to join, too, until their sessions expire."
            )
        yield MemberStep(
            row["started_us"],
            f"{row['broker']} begins a rebalance ({row['reason']}{who}).{waits}",
            _GROUPS,
        )
        parts = [f"{row['broker']} begins generation {row['new_generation']}."]
        if row["removed"]:
            parts.append(_removed(row, tables))
        if row["added"]:
            parts.append(f"It adds {listed(row['added'])}.")
        owners = episode.members("second")
        parts.append(
            f"{counted(len(episode.rows), 'partition')} of {listed(episode.members('first'))} now "
            f"{'belong' if len(episode.rows) > 1 else 'belongs'} to {listed(owners)} as well."
        )
        yield MemberStep(row["joined_us"], " ".join(parts), _GROUPS)


def _removed(row: Row, tables: OverlapTables) -> str:
    because = listed(row["removed_because"])
    timeout = tables.settings.of_group(row["group"], "session.timeout.ms")
    ran = ""
    if RemovalCause.SESSION_EXPIRY in row["removed_because"] and timeout is not None:
        because += f", session.timeout.ms = {timeout}"
        ran = _sum(row, int(timeout) * 1_000, tables) if timeout.isdigit() else ""
    return f"It removes {listed(row['removed'])} ({because}).{ran}"


def _sum(row: Row, timeout_us: int, tables: OverlapTables) -> str:
    """Say that sessions ran from the coordinator's load on, if their end proves it."""
    for tenure in tables.tenures:
        loaded_us = tenure["from_us"]
        same = (tenure["newer_broker"], tenure["newer_epoch"]) == (
            row["broker"],
            row["leader_epoch"],
        )
        same = same and row["group"] in tenure["groups"]
        if same and abs(loaded_us + timeout_us - row["joined_us"]) <= _SUM_US:
            return (
                f" Their sessions ran from its load on: {moment_text(loaded_us)} + "
                f"{moment_text(timeout_us)} = {moment_text(loaded_us + timeout_us)}."
            )
    return ""


def _gave_way(episode: Episode) -> GaveWay | None:
    """Return whom to tell about; None: nobody has given way."""
    if episode.to_us is None or episode.fault is None:
        return None
    return GaveWay(
        group=episode.group,
        fault=episode.fault,
        members=episode.members("first"),
        broker=episode.second[0],
        from_us=episode.from_us,
        to_us=episode.to_us,
    )


def _episode_steps(episode: Episode, tables: OverlapTables) -> Iterator[MemberStep]:
    gave = _gave_way(episode)
    if gave is not None:
        yield from old_coordinator_steps(gave, tables.clients, tables.settings)
        yield from new_coordinator_steps(gave, tables.messages)


def _end_steps(episode: Episode, tables: OverlapTables) -> Iterator[MemberStep]:
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
    for how, consumers in sorted(ended.items()):
        names = in_number_order(set(consumers))
        words = _ENDED.get(how, how)
        if how == "lost" and (by := _unknown_at(end_us, episode, tables)):
            words = f"loses its partitions: {by}"
        yield MemberStep(
            end_us,
            f"The last of {listed(names)} {words}. One owner again."
            if len(names) > 1
            else f"{names[0]} {words}. One owner again.",
            _OWNERSHIP,
        )


def _unknown_at(time_us: int, episode: Episode, tables: OverlapTables) -> str | None:
    """Name the answer that took the last partitions away; None: it is not among the messages."""
    gave = _gave_way(episode)
    answers = unknown_members(gave, tables.messages) if gave is not None else []
    for row in answers:
        if row["ended_us"] == time_us:
            return f"{row['api']} is answered {row['outcome']} by {row['to_node']}"
    return None


def _owned(episode: Episode, tables: OverlapTables, side: str) -> list[Row]:
    return [owned for row in episode.rows for owned in owned_by(row, tables, side)]


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
