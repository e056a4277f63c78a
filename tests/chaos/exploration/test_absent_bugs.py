"""The search in which no planted bug may show: it can be resumed, and refuses idle bugs.

A planted bug is a change of our code that a search should find. A bug shows if a check finds it.
The bugs here show in the space `operations`, whose plans have rollouts and scalings of groups. The
search under test (`search_absent`) plays another space with all these bugs planted. If none shows,
only rollouts and scalings can find them. The record (PAGE) names the seed that shows each bug in
`operations`.
"""

from contextlib import ExitStack
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from benchmarks.planted_bugs.absence import (
    Absence,
    NotShown,
    ShownBy,
    check_shown,
    search_absent,
    shown_in_record,
)
from benchmarks.planted_bugs.operation_bugs import OPERATION_BUGS
from benchmarks.planted_bugs.planted_bug import PlantedBug
from benchmarks.planted_bugs.record import PAGE, absence_lines
from tests.support.builders.packaged_spaces import packaged_space

FAILED = "closing_commit_counts_although_it_failed"
"""One of the bugs."""
SHOWN_BY = ShownBy(seed=0, checks=("durable_commits",))
"""The seed of `operations` that shows FAILED, and the check that finds it."""


def _plant_nothing(stack: ExitStack) -> None:
    del stack


def test_record_names_a_seed_of_each_bug() -> None:
    """Before the search, these seeds prove that the planted bugs have an effect."""
    shown_by = shown_in_record(PAGE.read_text(encoding="utf-8"), OPERATION_BUGS)
    assert list(shown_by) == list(OPERATION_BUGS)
    assert shown_by[FAILED] == SHOWN_BY


def test_record_without_a_row_of_a_bug_is_refused() -> None:
    """The seed is the proof that the bug has an effect."""
    with pytest.raises(NotShown, match=f"no seed that shows {FAILED}"):
        shown_in_record("| bug | where |\n", {FAILED: OPERATION_BUGS[FAILED]})


def test_seed_of_the_record_shows_the_bug_although_all_are_planted() -> None:
    """`check_shown` plays the seed with all bugs, and raises NotShown unless the bug shows."""
    check_shown(OPERATION_BUGS, {FAILED: SHOWN_BY})


def test_bug_that_changes_nothing_is_refused() -> None:
    """No seed can show a bug without an effect, so `check_shown` raises NotShown."""
    idle = PlantedBug(
        name="idle", where="nowhere", what="", rule="", plant=_plant_nothing, space="operations"
    )
    with pytest.raises(NotShown, match=r"seed 0 of operations does not show idle.*got none"):
        check_shown({"idle": idle}, {"idle": SHOWN_BY})


def test_search_counts_a_seed_that_shows_a_bug_and_continues_after_it(tmp_path: Path) -> None:
    """The space of this test is `operations` itself, so seed 0 shows a bug.

    A second call continues from the file `progress`.
    """
    progress = tmp_path / "absent.json"
    space = packaged_space("operations")
    first = search_absent(OPERATION_BUGS, space, seeds=1, progress=progress)
    assert (first.seeds, first.shown, first.undecided) == (1, (0,), 0)

    played_seeds: list[int] = []
    continued = search_absent(
        OPERATION_BUGS,
        space,
        seeds=2,
        progress=progress,
        on_seed=lambda absence: played_seeds.append(absence.seeds),
    )
    # One call of `on_seed`, with the number of seeds so far: only seed 1 was played.
    assert played_seeds == [2]
    assert continued.shown[:1] == (0,)
    assert msgspec.json.decode(progress.read_bytes(), type=Absence) == continued

    # Results of other code are not continued.
    progress.write_bytes(msgspec.json.encode(replace(continued, code="of other code", seeds=7)))
    anew = search_absent(OPERATION_BUGS, space, seeds=1, progress=progress)
    assert (anew.seeds, anew.shown) == (1, (0,))


def test_section_has_the_counts() -> None:
    """The page has a section about the search, made by `absence_lines`."""
    no_bug_shown = Absence(
        space="standard", bugs=tuple(OPERATION_BUGS), code="", commit="abc", seeds=2_000
    )
    page = " ".join(absence_lines(no_bug_shown))
    assert "seeds 0 to 1,999 of the space `standard`" in page
    assert "No seed shows one of them" in page
    assert FAILED in page
    page = " ".join(absence_lines(replace(no_bug_shown, shown=(3, 5), undecided=2)))
    assert "shown by seeds 3, 5" in page
    assert "without a verdict: 2" in page
