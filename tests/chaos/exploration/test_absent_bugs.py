"""A search that must find nothing: `search_absent` plays a space that cannot show planted bugs.

A planted bug is a wrong method that we put into our code on purpose. A space is a file from which
seeds draw experiments. Some planted bugs are found only by rollouts and scalings of groups. To
prove this, `search_absent` plants all of these bugs at once, and plays a space that has neither
rollouts nor scalings. No check may find one of the bugs.

This would prove nothing if a bug had no effect at all. So `check_shown` first plays a seed for each
bug that is known to show the bug. This is a seed of the space `operations`, which has rollouts and
scalings. The seeds are in a record of earlier searches, the page PAGE.
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

ONE_BUG = "closing_commit_counts_although_it_failed"
SHOWN_BY = ShownBy(seed=0, checks=("durable_commits",))
"""The seed of `operations` that shows ONE_BUG, and the check that finds this bug."""


def _plant_nothing(stack: ExitStack) -> None:
    del stack


def test_record_names_a_seed_of_each_bug() -> None:
    """`shown_in_record` reads these seeds from the page."""
    shown_by = shown_in_record(PAGE.read_text(encoding="utf-8"), OPERATION_BUGS)
    assert list(shown_by) == list(OPERATION_BUGS)
    assert shown_by[ONE_BUG] == SHOWN_BY


def test_record_without_a_row_of_a_bug_is_refused() -> None:
    """Without a seed, nothing would prove that the bug has an effect."""
    with pytest.raises(NotShown, match=f"no seed that shows {ONE_BUG}"):
        shown_in_record("| bug | where |\n", {ONE_BUG: OPERATION_BUGS[ONE_BUG]})


def test_seed_of_the_record_shows_the_bug_although_all_are_planted() -> None:
    """`check_shown` plays the seed with all bugs, and raises NotShown unless the bug shows."""
    check_shown(OPERATION_BUGS, {ONE_BUG: SHOWN_BY})


def test_bug_that_changes_nothing_is_refused() -> None:
    """No seed can show a bug without an effect, so `check_shown` raises NotShown."""
    without_effect = PlantedBug(
        name="idle", where="nowhere", what="", rule="", plant=_plant_nothing, space="operations"
    )
    with pytest.raises(NotShown, match=r"seed 0 of operations does not show idle.*got none"):
        check_shown({"idle": without_effect}, {"idle": SHOWN_BY})


def test_search_counts_a_seed_that_shows_a_bug_and_continues_after_it(tmp_path: Path) -> None:
    """The test lets `search_absent` play `operations`, although seed 0 of this space shows a bug.

    Then it calls `search_absent` again, for two seeds. The search must continue from the file
    `progress`, and play only the second seed.
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
    # `on_seed` was called once, with the number of seeds so far. So only seed 1 was played.
    assert played_seeds == [2]
    assert continued.shown[:1] == (0,)
    assert msgspec.json.decode(progress.read_bytes(), type=Absence) == continued

    # The file is ignored if other code wrote it: the search begins again with seed 0.
    progress.write_bytes(msgspec.json.encode(replace(continued, code="of other code", seeds=7)))
    begun_again = search_absent(OPERATION_BUGS, space, seeds=1, progress=progress)
    assert (begun_again.seeds, begun_again.shown) == (1, (0,))


def test_section_has_the_counts() -> None:
    """The page has a section about the search, made by `absence_lines`."""
    no_bug_shown = Absence(
        space="standard", bugs=tuple(OPERATION_BUGS), code="", commit="abc", seeds=2_000
    )
    page = " ".join(absence_lines(no_bug_shown))
    assert "seeds 0 to 1,999 of the space `standard`" in page
    assert "No seed shows one of them" in page
    assert ONE_BUG in page
    with_shown_bugs = replace(no_bug_shown, shown=(3, 5), undecided=2)
    page = " ".join(absence_lines(with_shown_bugs))
    assert "shown by seeds 3, 5" in page
    assert "without a verdict: 2" in page
