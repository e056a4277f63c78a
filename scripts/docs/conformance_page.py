"""Makes the conformance page, which shows where each case of Kafka's own tests is tested here.

Such a case is called a scenario, and has an id such as GC-010: the tenth case of Kafka's
GroupCoordinatorTest. The file tests/conformance/scenarios.toml lists all of them. Three kinds of
places can cover a scenario:

- A test, if its docstring names the scenario (`GC-010`, or in a range `GC-010..012`).
- A story, if the comments at its beginning name the scenario. A story lists the events that a
  scripted cluster must produce. The stories are in text files, in folders of the name `scenarios`;
  each story has a heading `== title ==`.
- A recording of a real Kafka, if its key `covers` has the scenario, and the cluster of this project
  gives the same answers.

The places are found by reading the files. No test is run.
"""

import ast
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import takewhile
from pathlib import Path

import msgspec

from coordlab.own_packages import package_root
from scripts.docs.markdown import table

TESTS = package_root() / "tests"
CONFORMANCE = TESTS / "conformance"
FAMILIES = {
    "GC": "GroupCoordinatorTest",
    "GM": "GroupMetadataTest",
    "MM": "GroupMetadataManagerTest",
    "CO": "GroupCoordinatorConcurrencyTest",
    "JC": "GroupMetadataManagerTest of the Java coordinator, classic groups",
}
"""The letters at the beginning of an id -> the test of Kafka from which the scenario is taken."""
STATUSES = ("covered", "deviates", "not applicable", "missing")
"""The possible statuses of a scenario:

- "covered" by a place that names it;
- "deviates", because this project differs from Kafka in this case;
- "not applicable", because this case cannot occur here;
- "missing", if it is none of these.
"""
_ID_OR_RANGE = re.compile(rf"\b({'|'.join(FAMILIES)})-(\d+)(?:\.\.(\d+))?")
"""GC-010, or GC-010..012. The groups are the family (GC), the first number and the last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioList:
    """The contents of scenarios.toml. Each id is a key of `meaning` or of `same_as`.

    - `meaning`: id -> what happens in the scenario.
    - `same_as`: id -> other scenarios that together test the same as this scenario. For example,
      JC-153 tests the same as GC-055 and GC-056 together.
    - `deviates`: id -> why this project differs from Kafka in this case.
    - `not_applicable`: id -> why this case cannot occur here.
    """

    meaning: Mapping[str, str]
    same_as: Mapping[str, tuple[str, ...]]
    deviates: Mapping[str, str]
    not_applicable: Mapping[str, str]

    def ids(self) -> tuple[str, ...]:
        """Return all ids, sorted by family and number."""
        families = list(FAMILIES)

        def by_family_and_number(scenario: str) -> tuple[int, int]:
            family, number = scenario.split("-")
            return families.index(family), int(number)

        return tuple(sorted((*self.meaning, *self.same_as), key=by_family_and_number))


class _Recording(msgspec.Struct):
    """The fields of a recording that the page needs."""

    id: str
    covers: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A test, a story or a recording.

    - `path`: its file, as a path in the checkout.
    - `text`: the docstring or the comments that name scenarios; "" for a recording.
    """

    name: str
    path: str
    text: str = ""


def read_scenarios() -> ScenarioList:
    """Read the list of scenarios."""
    with (CONFORMANCE / "scenarios.toml").open("rb") as file:
        return msgspec.convert(tomllib.load(file), ScenarioList)


def ids_in(text: str) -> Iterator[str]:
    """Yield the ids that a text names. The range `GM-05..07` gives GM-05, GM-06 and GM-07."""
    for family, first, last_if_range in _ID_OR_RANGE.findall(text):
        last = last_if_range or first
        digits = len(first)
        for number in range(int(first), int(last) + 1):
            yield f"{family}-{number:0{digits}}"


@cache
def places_by_scenario() -> Mapping[str, tuple[Place, ...]]:
    """Return for each id the tests, stories and recordings that name it.

    The result may have ids that are not in the list of scenarios, because a text names them by
    mistake. tests/architecture/test_conformance_page.py finds such ids.
    """
    # An inner dict is an ordered set of places: a place that names an id twice counts once.
    places: dict[str, dict[Place, None]] = {}
    for scenario, place in (*_named_in_tests(), *_named_in_stories(), *_covered_by_recordings()):
        places.setdefault(scenario, {})[place] = None
    return {scenario: tuple(places_of_scenario) for scenario, places_of_scenario in places.items()}


def statuses(scenarios: ScenarioList) -> dict[str, str]:
    """Return the status of each scenario by its id."""
    places = places_by_scenario()
    status = {}
    for scenario in scenarios.ids():
        if scenario in scenarios.deviates:
            status[scenario] = "deviates"
        elif scenario in scenarios.not_applicable:
            status[scenario] = "not applicable"
        else:
            # A scenario is also covered if `same_as` names other scenarios for it, and all of them
            # are covered. Their status has been set by now: only scenarios of the last family, JC,
            # are keys of `same_as`, and they name only scenarios of earlier families.
            others = scenarios.same_as.get(scenario, ())
            others_cover_it = bool(others) and all(
                status.get(other) == "covered" for other in others
            )
            is_covered = scenario in places or others_cover_it
            status[scenario] = "covered" if is_covered else "missing"
    return status


def conformance_page() -> str:
    """Return the page: how many scenarios are covered, then each with its status and places."""
    scenarios = read_scenarios()
    status = statuses(scenarios)
    covered = list(status.values()).count("covered")
    parts = [
        "# Conformance\n\nThe scenarios by which the coordinator is measured, each taken from a "
        "test of Kafka's own coordinators. A scenario is covered when a test names it in its "
        "docstring, a transcript at the head of a story, or when a recording of a real Kafka that "
        "shows it is followed step by step. "
        "The list with its reasons is [scenarios.toml](../../tests/conformance/scenarios.toml); "
        "what deviates is told in [FIDELITY](../FIDELITY.md).\n\n"
        f"**{covered} of {len(status)} covered ({100 * covered / len(status):.1f} %).**\n\n",
        _counts_table(status),
    ]
    for family, title in FAMILIES.items():
        rows = [
            _scenario_row(scenario, scenarios, status[scenario])
            for scenario in status
            if scenario.startswith(f"{family}-")
        ]
        parts += [
            f"\n## {family}: {title}\n\n",
            table(("id", "scenario", "status", "where"), rows),
        ]
    return "".join(parts)


def _counts_table(status: Mapping[str, str]) -> str:
    """Return a table with the number of scenarios in each status, for each family and in all."""
    rows = []
    # "" stands for all families, because every id starts with it.
    for family in (*FAMILIES, ""):
        statuses_of_family = [
            value for scenario, value in status.items() if scenario.startswith(family)
        ]
        counts = (str(statuses_of_family.count(value)) for value in STATUSES)
        rows.append((family or "all", str(len(statuses_of_family)), *counts))
    return table(("family", "scenarios", *STATUSES), rows)


def _scenario_row(scenario: str, scenarios: ScenarioList, status: str) -> tuple[str, str, str, str]:
    """Return the row of a scenario: id, meaning, status with its reason, links to its places."""
    same_as = scenarios.same_as.get(scenario, ())
    meaning = scenarios.meaning.get(scenario) or f"as {', '.join(same_as)}"
    reason = scenarios.deviates.get(scenario) or scenarios.not_applicable.get(scenario)
    links = ", ".join(
        f"[{place.name}](../../{place.path})" for place in places_by_scenario().get(scenario, ())
    )
    status_cell = f"{status}: {reason}" if reason else status
    return scenario, meaning, status_cell, links


def _named_in_tests() -> Iterator[tuple[str, Place]]:
    """Yield each scenario that the docstring of a test names, together with the test."""
    for path in sorted(TESTS.rglob("test_*.py")):
        source = path.read_text(encoding="utf-8")
        if _ID_OR_RANGE.search(source) is None:
            continue
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                text = ast.get_docstring(node) or ""
                place = Place(name=node.name, path=_path_in_checkout(path), text=text)
                yield from _with_place(ids_in(text), place)


def _named_in_stories() -> Iterator[tuple[str, Place]]:
    """Yield each scenario that the first comments of a story name, together with the story."""
    for path in sorted(TESTS.rglob("scenarios/*.txt")):
        _text_before_stories, *stories = re.split(
            r"^== ", path.read_text(encoding="utf-8"), flags=re.MULTILINE
        )
        for story in stories:
            title, _, story_text = story.partition(" ==\n")
            comments = takewhile(lambda line: line.startswith("#"), story_text.splitlines())
            text = "\n".join(line.removeprefix("# ") for line in comments)
            place = Place(name=title, path=_path_in_checkout(path), text=text)
            yield from _with_place(ids_in(text), place)


def _covered_by_recordings() -> Iterator[tuple[str, Place]]:
    """Yield each scenario that a recording covers, together with the recording.

    Recordings in known_differences.json are left out, because the cluster gives other answers.
    """
    differing = msgspec.json.decode((CONFORMANCE / "known_differences.json").read_bytes())
    for path in sorted((CONFORMANCE / "transcripts").rglob("*.json")):
        if path.name == "index.json":
            continue
        recording = msgspec.json.decode(path.read_bytes(), type=_Recording)
        if recording.id not in differing:
            place = Place(name=f"recording {recording.id}", path=_path_in_checkout(path))
            yield from _with_place(ids_in(" ".join(recording.covers)), place)


def _with_place(scenarios: Iterable[str], place: Place) -> Iterator[tuple[str, Place]]:
    for scenario in scenarios:
        yield scenario, place


def _path_in_checkout(path: Path) -> str:
    """Return the path of a file in the checkout, such as `tests/coordlab/test_junit.py`."""
    return path.relative_to(package_root()).as_posix()
