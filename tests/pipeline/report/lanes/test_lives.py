"""The lane of lives: the processes in each member's place, from an operation's journal.

A place is a member's position in its group, such as `m-0`. An operation, such as a rollout (the
deployment of a new version), stops the process in a place and starts a successor. The processes of
a place are its lives, numbered from 1. `parts` returns (part, life, from, to), with times in
seconds; the run lasts 60 s. The parts:

- BEFORE: the former version works
- STOPPING: the process was told to stop, and has not ended
- AWAY: the place has no process
- STARTING: the successor is not ready yet
- AFTER: the new version is ready
- BACK: the former version is ready again
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


def entry(fault: str, **resolved: Any) -> JournalEntry:  # noqa: ANN401 - the journal's own
    """Return the journal's entry of an operation; `resolved` holds its stops and starts."""
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


def stop(place: str, at: int, down: int | None) -> dict[str, Any]:
    """Return the journal's record of a stop that began at `at` and ended at `down`, in seconds.

    A `down` of None means that the process never ended.
    """
    # `down and ...` keeps a None as None.
    return {"place": place, "stopped_at_us": at * S, "down_at_us": down and down * S}


def start(place: str, at: int | None, ready: int | None, **more: Any) -> dict[str, Any]:  # noqa: ANN401
    """Return the journal's record of a start at `at` that was ready at `ready`, in seconds."""
    # As in `stop`, `and` keeps a None as None.
    return {
        "place": place,
        "started_at_us": at and at * S,
        "ready_at_us": ready and ready * S,
        **more,
    }


def parts(*entries: JournalEntry, place: str) -> list[tuple[str, int, int, int]]:
    """Return the parts of one place, in the order of time."""
    return [
        (row["part"], row["life"], row["from_us"] // S, row["to_us"] // S)
        for row in lives_of(entries, 60 * S)
        if row["place"] == place
    ]


def test_replaced_member_stops_is_away_starts_and_is_ready() -> None:
    """Life 1 stops from 10 to 12 s; life 2 is started at 17 s and ready at 20 s."""
    rollout = entry(
        "rollout", stopped=[stop("m-0", at=10, down=12)], replaced=[start("m-0", at=17, ready=20)]
    )
    assert parts(rollout, place="m-0") == [
        (BEFORE, 1, 0, 10),
        (STOPPING, 1, 10, 12),
        (AWAY, 1, 12, 17),
        (STARTING, 2, 17, 20),
        (AFTER, 2, 20, 60),
    ]


def test_successor_in_a_spare_place_begins_its_first_life_there() -> None:
    """A rollout with a surge (an extra member) starts the successor in a new place, m-4.

    Only then does it stop m-0.
    """
    rollout = entry(
        "rollout", stopped=[stop("m-0", at=20, down=21)], replaced=[start("m-4", at=5, ready=8)]
    )
    assert parts(rollout, place="m-4") == [(STARTING, 1, 5, 8), (AFTER, 1, 8, 60)]
    assert parts(rollout, place="m-0")[-1] == (AWAY, 1, 21, 60)


def test_rolled_back_version_is_another_life() -> None:
    """A rollback starts the old version again: this is life 3, after life 2 of the new version."""
    old = start("m-0", at=40, ready=44, is_of_old_version=True)
    rollout = entry(
        "rollout",
        stopped=[stop("m-0", at=10, down=11), stop("m-0", at=30, down=31)],
        replaced=[start("m-0", at=15, ready=18), old],
    )
    assert [part[:2] for part in parts(rollout, place="m-0")][-3:] == [
        (AWAY, 2),
        (STARTING, 3),
        (BACK, 3),
    ]


def test_member_that_never_stops_is_stopping_until_the_end() -> None:
    """The stop has no end, and there is no successor: no part follows STOPPING."""
    rollout = entry("rollout", stopped=[stop("m-0", at=10, down=None)], replaced=[])
    assert parts(rollout, place="m-0") == [(BEFORE, 1, 0, 10), (STOPPING, 1, 10, 60)]


def test_scaling_shows_the_starts_and_stops_of_members() -> None:
    """The journal of a scaling has one time for each start or stop, so they take no time here."""
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
    """The second rollout stops life 2, which the first one started."""
    first = entry(
        "rollout", stopped=[stop("m-0", at=10, down=11)], replaced=[start("m-0", at=12, ready=13)]
    )
    second = entry("rollout", stopped=[stop("m-0", at=30, down=31)], replaced=[])
    assert [part[:2] for part in parts(first, second, place="m-0")] == [
        (BEFORE, 1),
        (STOPPING, 1),
        (AWAY, 1),
        (STARTING, 2),
        (AFTER, 2),
        (STOPPING, 2),
        (AWAY, 2),
    ]


def test_bar_of_an_empty_place_names_no_life() -> None:
    """While a place is empty, no life is in it: the last has ended, the next has not begun."""
    rollout = entry(
        "rollout", stopped=[stop("m-0", at=10, down=12)], replaced=[start("m-0", at=17, ready=20)]
    )
    labels = [labels_of(row)["l"] for row in lives_of([rollout], 60 * S)]
    assert labels == ["life 1", "life 1", "away", "life 2", "life 2"]
