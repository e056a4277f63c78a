"""The lane of lives: what an operation, such as a rollout, did to each member of a group.

A rollout deploys a new version: it stops the process of the member `m-0`, for example, and starts a
successor with the same name. So the name stands for a place, in which one process follows another.
These processes are the lives of the place, and are numbered from 1. The lane has a row for each
place. Its bars are parts of lives:

- BEFORE: the former version works
- STOPPING: the process has the order to stop, and has not ended
- AWAY: the place has no process
- STARTING: the successor is not ready yet
- AFTER: the new version is ready
- BACK: the former version is ready again

The tests compute the parts from the journal, in which a run records each stop and start. The run
lasts 60 s.
"""

from typing import Any

from pipeline.report.lanes.lives import (
    AFTER,
    AWAY,
    BACK,
    BEFORE,
    STARTING,
    STOPPING,
    labels_of,
    lives_of,
)
from results_schema.journal import BlastRadius, FaultOutcome, JournalEntry

S = 1_000_000


def entry(fault: str, **resolved: Any) -> JournalEntry:  # noqa: ANN401 - values of any type
    """Return the journal's entry of an operation, such as a `rollout`.

    `resolved` has the operation's stops and starts: `stopped=[stop(...)], replaced=[start(...)]`.
    """
    return JournalEntry(
        fault_id=f"{fault}-0",
        fault=fault,
        target="members(g)",
        duration_us=None,
        outcome=FaultOutcome.HIT,
        fired_at_us=S,
        blast_radius=BlastRadius(groups=("g",)),
        resolved=resolved,
    )


def stop(place: str, at_s: int, down_s: int | None) -> dict[str, Any]:
    """Return the journal's record of a stop: ordered at `at_s`, ended at `down_s`.

    If `down_s` is None, the process never ended.
    """
    return {"place": place, "stopped_at_us": at_s * S, "down_at_us": _us(down_s)}


def start(
    place: str,
    at_s: int | None,
    ready_s: int | None,
    **more: Any,  # noqa: ANN401 - values of any type
) -> dict[str, Any]:
    """Return the journal's record of a start: begun at `at_s`, ready at `ready_s`."""
    return {"place": place, "started_at_us": _us(at_s), "ready_at_us": _us(ready_s), **more}


def _us(time_s: int | None) -> int | None:
    return None if time_s is None else time_s * S


def parts(*entries: JournalEntry, place: str) -> list[tuple[str, int, int, int]]:
    """Return the parts of one place in the order of time: part, life, begin and end in seconds."""
    return [
        (row["part"], row["life"], row["from_us"] // S, row["to_us"] // S)
        for row in lives_of(entries, 60 * S)
        if row["place"] == place
    ]


def test_replaced_member_stops_is_away_starts_and_is_ready() -> None:
    """Life 1 stops from 10 to 12 s; life 2 is started at 17 s and ready at 20 s."""
    rollout = entry(
        "rollout",
        stopped=[stop("m-0", at_s=10, down_s=12)],
        replaced=[start("m-0", at_s=17, ready_s=20)],
    )
    assert parts(rollout, place="m-0") == [
        (BEFORE, 1, 0, 10),
        (STOPPING, 1, 10, 12),
        (AWAY, 1, 12, 17),
        (STARTING, 2, 17, 20),
        (AFTER, 2, 20, 60),
    ]


def test_successor_in_a_spare_place_begins_its_first_life_there() -> None:
    """A rollout with a surge starts an additional member before it stops a member.

    The place m-4 is new, so it has no part before the start at 5 s. m-0 is stopped later, at 20 s,
    and its place stays empty.
    """
    rollout = entry(
        "rollout",
        stopped=[stop("m-0", at_s=20, down_s=21)],
        replaced=[start("m-4", at_s=5, ready_s=8)],
    )
    assert parts(rollout, place="m-4") == [(STARTING, 1, 5, 8), (AFTER, 1, 8, 60)]
    assert parts(rollout, place="m-0")[-1] == (AWAY, 1, 21, 60)


def test_rolled_back_version_is_another_life() -> None:
    """A rollback starts the old version again: this is life 3, after life 2 of the new version."""
    old = start("m-0", at_s=40, ready_s=44, is_of_old_version=True)
    rollout = entry(
        "rollout",
        stopped=[stop("m-0", at_s=10, down_s=11), stop("m-0", at_s=30, down_s=31)],
        replaced=[start("m-0", at_s=15, ready_s=18), old],
    )
    parts_and_lives = [(part, life) for part, life, *_ in parts(rollout, place="m-0")]
    assert parts_and_lives[-3:] == [
        (AWAY, 2),
        (STARTING, 3),
        (BACK, 3),
    ]


def test_member_that_never_stops_is_stopping_until_the_end() -> None:
    """The stop has no end, and there is no successor: no part follows STOPPING."""
    rollout = entry("rollout", stopped=[stop("m-0", at_s=10, down_s=None)], replaced=[])
    assert parts(rollout, place="m-0") == [(BEFORE, 1, 0, 10), (STOPPING, 1, 10, 60)]


def test_scaling_shows_the_starts_and_stops_of_members() -> None:
    """The journal of a scaling does not record when a stop or start was complete.

    So the lane has no parts STOPPING and STARTING.
    """
    acts = [
        {"at_us": 5 * S, "place": "m-3", "act": "stop"},
        {"at_us": 25 * S, "place": "m-3", "act": "start"},
    ]
    assert parts(entry("scale", acts=acts), place="m-3") == [
        (BEFORE, 1, 0, 5),
        (AWAY, 1, 5, 25),
        (AFTER, 2, 25, 60),
    ]


def test_later_rollout_continues_an_earlier_one() -> None:
    """The second rollout stops life 2, which the first rollout started."""
    first = entry(
        "rollout",
        stopped=[stop("m-0", at_s=10, down_s=11)],
        replaced=[start("m-0", at_s=12, ready_s=13)],
    )
    second = entry("rollout", stopped=[stop("m-0", at_s=30, down_s=31)], replaced=[])
    parts_and_lives = [(part, life) for part, life, *_ in parts(first, second, place="m-0")]
    assert parts_and_lives == [
        (BEFORE, 1),
        (STOPPING, 1),
        (AWAY, 1),
        (STARTING, 2),
        (AFTER, 2),
        (STOPPING, 2),
        (AWAY, 2),
    ]


def test_bar_of_an_empty_place_names_no_life() -> None:
    """While a place is empty, its last life has ended, and its next life has not begun."""
    rollout = entry(
        "rollout",
        stopped=[stop("m-0", at_s=10, down_s=12)],
        replaced=[start("m-0", at_s=17, ready_s=20)],
    )
    long_label = "l"  # a key of the chart's data; another key has a shorter label
    labels = [labels_of(row)[long_label] for row in lives_of([rollout], 60 * S)]
    assert labels == ["life 1", "life 1", "away", "life 2", "life 2"]
