"""`make pictures`: plays the experiments that the documentation shows, and takes its pictures.

Every picture in docs/pictures is an unedited screenshot of the report of a run in virtual time,
taken by a headless Chromium. This module also writes docs/pictures/README.md, which names the run
of each picture.
"""

import argparse
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from playwright.sync_api import Browser, Page
from rich.console import Console

from chaos.results.manifest import run_command_line
from chaos.results.run_directory import PastRun
from coordlab.analysis import analyze_runs
from coordlab.report_facts import facts_of
from pipeline.report.build import build_report
from tests.support.harness.browser import (
    INSTALL,
    Scheme,
    Screen,
    chromium,
    draw_all,
    find_chromium,
    set_range,
    visit,
)
from tests.support.worlds.report_runs import RECIPES, SEED, Recipe, make_run

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "pictures"
MAX_PICTURE_BYTES = 200_000
"""A picture may not be larger, because all pictures are in the repository, and slow down clones."""
DESK = Screen(width=1180, height=780)
"""The window for most pictures, in pixels."""
NARROW = Screen(width=920, height=780)
"""A narrower window."""
PHONE = Screen(width=360, height=740, touch=True, scale=2.0)
MARGIN_PX = 12
"""The space around the elements of a picture."""

# The runs that are played for the pictures.
CRASH = "crash"  # a coordinator is killed
THREE_MEMBERS = "three"  # the coordinator of a group with three members is killed
TWO_OWNERS = "overlap"  # partitions have two owners
LOST_COMMITS = "lost"  # a group loses acknowledged commits, because a guard of Kafka is off
THOUSAND_MEMBERS = "thousand"  # ten groups have a thousand members together
SPLIT_VIEWS = "split"  # members on ZooKeeper have different views of their group
RUNS: Mapping[str, Recipe] = {
    CRASH: Recipe(experiment="coordinator_crash"),
    TWO_OWNERS: Recipe(experiment="split_brain_ownership"),
    LOST_COMMITS: Recipe(
        experiment="split_brain_ownership",
        overrides=(
            "cluster.guards.high_watermark_gate=false",
            "groups.orders-readers.commit_interval_ms=200",
        ),
    ),
    SPLIT_VIEWS: Recipe(experiment="zookeeper_split_view"),
    THREE_MEMBERS: RECIPES["three"],
    THOUSAND_MEMBERS: RECIPES["thousand"],
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """A picture of a part of a run's report.

    - `run`: a key of RUNS.
    - `elements`: the ids of the first and the last HTML element of the part, which may be the same;
      None for what the window shows when the page has been opened.
    - `shown_s`: where the time axis begins and ends, in seconds after the first fault; None for the
      whole run.
    - `height_px`: the picture is cut off below this height; None for no limit.
    """

    name: str
    run: str
    caption: str
    elements: tuple[str, str] | None = None
    shown_s: tuple[float, float] | None = None
    height_px: int | None = None
    screen: Screen = DESK
    scheme: Scheme = "light"


PICTURES = (
    Picture(name="first-screen", run=CRASH, caption="the first screen"),
    Picture(
        name="phases",
        run=CRASH,
        caption="where the time of a failover went: both chains, a dot for each member",
        elements=("phases-crash-0-order", "phases-crash-0-client"),
    ),
    Picture(
        name="two-owners",
        run=TWO_OWNERS,
        caption="partitions that members of two generations owned at once, for half a minute",
        elements=("lane-ownership", "lane-ownership"),
        shown_s=(41.0, 86.0),
        screen=NARROW,
    ),
    Picture(
        name="messages",
        run=THREE_MEMBERS,
        caption="the messages around a kill: three members ask in circles for their coordinator",
        elements=("lane-messages-crash-0", "lane-messages-crash-0"),
        shown_s=(-0.1, 1.1),
    ),
    Picture(
        name="violated",
        run=LOST_COMMITS,
        caption="a broken promise and its evidence, row by row",
        elements=("violations-title", "violations"),
        height_px=640,
        scheme="dark",
    ),
    Picture(
        name="thousand-members",
        run=THOUSAND_MEMBERS,
        caption="ten groups with 1,000 members: counted first, one picked then",
        elements=("lane-coordinators", "lane-groups-one"),
        scheme="dark",
    ),
    Picture(
        name="split-views",
        run=SPLIT_VIEWS,
        caption="a member joins: on ZooKeeper each computes for itself, at other moments, and one "
        "gives up; with a coordinator it is one generation",
        elements=("designs-plans-zookeeper", "designs-plans-coordinator"),
        screen=NARROW,
    ),
    Picture(name="phone", run=TWO_OWNERS, caption="on a phone", screen=PHONE),
)


def main() -> None:
    """Play the runs, write their reports and take the pictures."""
    parser = argparse.ArgumentParser(prog="python -m scripts.report_pictures", description=__doc__)
    names = [picture.name for picture in PICTURES]
    parser.add_argument("--only", choices=names, action="append", help="default: every picture")
    chosen_names = parser.parse_args().only or names
    program = find_chromium()
    if program is None:
        raise SystemExit(f"there is no Chromium on the PATH. {INSTALL}")
    chosen_pictures = [picture for picture in PICTURES if picture.name in chosen_names]
    with tempfile.TemporaryDirectory(prefix="coordlab-pictures-") as folder:
        reports = _make_reports(Path(folder), {picture.run for picture in chosen_pictures})
        FOLDER.mkdir(parents=True, exist_ok=True)
        with chromium(program) as browser:
            for picture in chosen_pictures:
                path = _take_picture(browser, reports[picture.run], picture)
                sys.stdout.write(f"{path.name}: {path.stat().st_size / 1_000:.0f} kB\n")
    (FOLDER / "README.md").write_text(_readme(), encoding="utf-8")


class _Report(NamedTuple):
    """A report, and the time of the run's clock at which the first fault was injected."""

    file: Path
    first_fault_s: float


def _make_reports(root: Path, names: set[str]) -> dict[str, _Report]:
    """Play the runs with these names, write their reports, and return the reports by name."""
    runs = {name: make_run(root, recipe) for name, recipe in RUNS.items() if name in names}
    analyze_runs(Console(stderr=True), list(runs.values()), master=None)
    reports = {}
    for name, run in runs.items():
        facts = facts_of(PastRun(run))
        # The fault was injected, so it has a time. `or 0` is only for the type checker.
        first_fault_us = facts.faults[0].injected_at_us or 0
        reports[name] = _Report(build_report(run, facts), first_fault_us / 1e6)
    return reports


def _take_picture(browser: Browser, report: _Report, picture: Picture) -> Path:
    """Take a picture of a report, and return its file.

    Raises: RuntimeError if the page logs an error, or if the picture is too large.
    """
    path = FOLDER / f"{picture.name}.png"
    with visit(browser, report.file, screen=picture.screen, scheme=picture.scheme) as visited:
        if picture.shown_s is not None:
            # The page counts from the beginning of the run, and not from the first fault.
            from_s, to_s = picture.shown_s
            set_range(visited.page, report.first_fault_s + from_s, report.first_fault_s + to_s)
        if picture.elements is None:
            visited.page.screenshot(path=path)
        else:
            _take_picture_of_part(visited.page, path, picture.elements, picture.height_px)
        if visited.problems:
            raise RuntimeError(f"{report.file.name}: {visited.problems[0]}")
    if path.stat().st_size > MAX_PICTURE_BYTES:
        raise RuntimeError(f"{path.name} has {path.stat().st_size:,} bytes")
    return path


def _take_picture_of_part(
    page: Page, path: Path, elements: tuple[str, str], height_px: int | None
) -> None:
    """Take a picture of a page from the first of two elements to the last, both included.

    Raises: RuntimeError if one of the elements is not in the page.
    """
    # Normally a page draws each of its parts only when it becomes visible.
    draw_all(page)
    # Normally the time bar stays at the edge of the window. In a picture that is higher than the
    # window it would cover something.
    page.add_style_tag(content=".timebar { position: static }")
    first, last = (page.locator(f"#{element}").bounding_box() for element in elements)
    if first is None or last is None:
        raise RuntimeError(f"there is no {' or no '.join(elements)} in the page")
    width = max(box["x"] + box["width"] for box in (first, last)) - first["x"]
    height = last["y"] + last["height"] - first["y"]
    if height_px is not None:
        height = min(height, height_px)
    page.screenshot(
        path=path,
        full_page=True,
        clip={
            "x": max(first["x"] - MARGIN_PX, 0),
            "y": first["y"] - MARGIN_PX,
            "width": width + 2 * MARGIN_PX,
            "height": height + 2 * MARGIN_PX,
        },
    )


def _readme() -> str:
    """Return the README.md of the pictures, with each picture and how to play its run again."""
    lines = [
        "# Pictures",
        "",
        "Written by `make pictures`; do not edit. Each is a screenshot of the report of a run in",
        f"virtual time with seed {SEED}, taken by a headless Chromium and not retouched.",
        "",
    ]
    for picture in PICTURES:
        caption = picture.caption[0].upper() + picture.caption[1:]
        lines += [
            f"## {picture.name}",
            "",
            f"{caption}. {_how_to_play_again(RUNS[picture.run])}",
            "",
            f"![{picture.caption}]({picture.name}.png)",
            "",
        ]
    return "\n".join(lines)


def _how_to_play_again(recipe: Recipe) -> str:
    """Return a sentence on how to play the run of a picture again."""
    if recipe.experiment is None:
        return (
            "The experiment is written by "
            "[tests/support/worlds/report_runs.py](../../tests/support/worlds/report_runs.py)."
        )
    command = run_command_line(
        recipe.experiment, runtime="virtual", seed=SEED, overrides=recipe.overrides
    )
    return f"The run: `{command}`."


if __name__ == "__main__":
    main()
