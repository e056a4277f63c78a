"""The lane of lives: the successive processes of each member while a group is deployed or scaled.

A deploy (rollout) replaces the members of a group one after another. It stops the process of
`consumer-a-1`, for example, and starts a successor with the same name. So the name stands for a
place, in which one process follows another. The time of one process is called a life. Between two
lives, the place is empty. A scaling adds new places, or leaves places empty.

The lane is drawn from the run's journal. The journal has an entry for each rollout and each
scaling, because they are planned like faults. The entry tells which members were stopped and
started, and when.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from pipeline.report.charts.chart import GOOD, HATCHES, PAPER, SERIES, WARN, Chart
from pipeline.report.columns import Column, moment
from pipeline.report.lanes.interval_lane import IntervalLane
from pipeline.report.lanes.marks import ROW_PX, kind_fill, rows_y
from pipeline.report.report_input import ReportInput
from pipeline.summary.outcomes import in_number_order
from results_schema.journal import JournalEntry

MAX_MEMBERS = 100
"""Maximum number of members that have a row."""
OPERATIONS = ("rollout", "scale")
"""Kinds of faults in the journal that stop and start members."""
# The parts of a life, in the order in which they follow one another in a rollout. Two of the words
# are exceptions:
# - AWAY is no part of a life: the place is empty between two lives.
# - BACK stands in place of AFTER if the rollout failed and was rolled back.
BEFORE = "former version"
STOPPING = "stopping: its grace period"
AWAY = "away: the successor starts"
STARTING = "started, not ready"
AFTER = "new version, ready"
BACK = "former version, rolled back"
FILLS = {
    BEFORE: SERIES[0],
    STOPPING: HATCHES[1],
    AWAY: PAPER,
    STARTING: WARN,
    AFTER: GOOD,
    BACK: SERIES[1],
}
"""The fill of each part of a life, and of an empty place."""
LANE = IntervalLane(
    id="lane-lives",
    title="Lives of the members",
    about="Which life each member had while members were replaced or their number changed: a row "
    "is one member's place.",
    more="The number in a bar counts the lives of a place from 1; a life begins when a process "
    "starts. A member stops from SIGTERM until its process has ended, which its grace period "
    "bounds; its place is then empty until its successor has started, and that is ready when it "
    "has started or is stable in its group, whichever the rollout waits for.",
    source="journal",
    folded="The members' lives as text",
    # Column(fact, heading in the text table, key in the data, title in the tooltip)
    columns=(
        Column("place", "member", "r", "member"),
        Column("part", "part", "k", "part"),
        Column("life", "life", "n", "life", numeric=True),
        moment("from_us", "from (s)"),
        moment("to_us", "to (s)"),
    ),
)


_STARTS = (STARTING, AFTER, BACK)
"""The parts of a process that a rollout or a scaling has started."""


@dataclass(frozen=True, slots=True)
class _Event:
    """The beginning of a part of a life: at 12 s, for example, `consumer-a-1` began STOPPING."""

    at_us: int
    place: str
    part: str
    """A key of FILLS."""


def lives_lane(run: ReportInput) -> Chart | None:
    """Return the lane; None if the run had no rollout and no scaling."""
    entries = [entry for entry in run.facts.faults if entry.fault in OPERATIONS and entry.resolved]
    rows = lives_of(entries, run.end_us)
    if not rows:
        return None

    places = in_number_order({row["place"] for row in rows})
    shown = places[:MAX_MEMBERS]
    data = [
        LANE.datum(row, row["from_us"], row["to_us"], **labels_of(row))
        for row in rows
        if row["place"] in shown
    ]

    seen_parts = {row["part"] for row in rows}
    fills = {part: fill for part, fill in FILLS.items() if part in seen_parts}
    groups = list(dict.fromkeys(group for entry in entries for group in entry.blast_radius.groups))
    lives = LANE.marks("lives", rows_y(shown, without=_members_prefix(groups)))
    about = LANE.about
    left_out = len(places) - len(shown)
    if left_out:
        about += f" {left_out:,} more members stand in the journal."
    return LANE.draw(
        run,
        [lives.bars(kind_fill("k", fills)), *lives.labels()],
        {"lives": data},
        ROW_PX * len(shown),
        about=about,
        table=LANE.text(rows),
    )


def labels_of(row: dict[str, Any]) -> dict[str, str]:
    """Return the long and the short text in a bar. The short text of an empty place is empty."""
    if row["part"] == AWAY:
        return {"l": "away", "s": ""}
    return {"l": f"life {row['life']}", "s": str(row["life"])}


def lives_of(entries: Sequence[JournalEntry], end_us: int) -> list[dict[str, Any]]:
    """Return the parts of all lives as rows, by place and time.

    - `place`: the member's name.
    - `part`: a key of FILLS.
    - `life`: the number of the life at its place, from 1. While the place is empty, this is the
      number of the life that has ended.
    - `from_us`, `to_us`: beginning and end of the part.

    Before its first life, a place has no row.
    """
    events = [event for entry in entries for event in _events(entry)]
    events.sort(key=lambda event: event.at_us)
    rows = []
    for place in in_number_order({event.place for event in events}):
        at_place = [event for event in events if event.place == place]
        # If the first event of a place is a start, a scaling has added this member, and the place
        # had no life before. Otherwise life 1 began with the run.
        ran_from_beginning = at_place[0].part not in _STARTS
        present_part: str | None = BEFORE if ran_from_beginning else None
        life = 1 if ran_from_beginning else 0
        from_us = 0
        for event in at_place:
            if present_part is not None and event.at_us > from_us:
                rows.append(_row(place, present_part, life, from_us, event.at_us))
            # AFTER or BACK after STARTING is the same process, which is ready now. After any other
            # part, it is a new process: a scaling tells no STARTING.
            if event.part in _STARTS and present_part != STARTING:
                life += 1
            present_part, from_us = event.part, event.at_us
        if present_part is not None and end_us > from_us:
            rows.append(_row(place, present_part, life, from_us, end_us))
    return rows


def _row(place: str, part: str, life: int, from_us: int, to_us: int) -> dict[str, Any]:
    """Return one row of `lives_of`."""
    return {"place": place, "part": part, "life": life, "from_us": from_us, "to_us": to_us}


def _events(entry: JournalEntry) -> Iterable[_Event]:
    """Yield the events of a rollout or of a scaling."""
    resolved = entry.resolved
    # The entry of a rollout has two lists: `stopped` has the members that the rollout stopped, and
    # `replaced` has their successors.
    for stop in _mappings(resolved.get("stopped")):
        place = stop["place"]
        yield _Event(stop["stopped_at_us"], place, STOPPING)
        if stop.get("down_at_us") is not None:
            yield _Event(stop["down_at_us"], place, AWAY)
    for successor in _mappings(resolved.get("replaced")):
        place = successor["place"]
        started_us = successor.get("started_at_us")
        ready_us = successor.get("ready_at_us")
        if started_us is not None:
            yield _Event(started_us, place, STARTING)
        if ready_us is not None:
            yield _Event(ready_us, place, BACK if successor.get("is_of_old_version") else AFTER)

    # The entry of a scaling has the list `acts`, with the members that it stopped or started. It
    # has only one time for each act: a started member counts as ready at this time, and the place
    # of a stopped member counts as empty.
    for act in _mappings(resolved.get("acts")):
        yield _Event(act["at_us"], act["place"], AFTER if act["act"] == "start" else AWAY)


def _members_prefix(groups: Sequence[str]) -> str:
    """Return the prefix that the labels of members leave out; "" if there are several groups."""
    return f"consumer-{groups[0]}-" if len(groups) == 1 else ""


def _mappings(value: object) -> list[Mapping[str, Any]]:
    """Return the mappings in a list of JSON; [] if the value is missing or is not a list."""
    if not isinstance(value, list):
        return []
    return [cast(Mapping[str, Any], item) for item in value if isinstance(item, Mapping)]
