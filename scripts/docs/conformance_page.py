"""The conformance page: the tests and recordings that cover each scenario.

A scenario is a case of Kafka's own tests, with an id such as GC-010. The letters stand for one of
Kafka's test classes (FAMILIES). tests/conformance/scenarios.toml lists the scenarios. The page says
for each of them where this project tests the same case. There are three kinds of such places:

- A test covers the scenarios that its docstring names (`GC-010, GC-011`, or `GC-010..012`).
- A story covers the scenarios that the comments at its head name. Stories are the parts of a
  transcript, a text file with the events that a scripted cluster must produce. Each story begins
  with `== title ==`.
- A recording (a JSON file) has requests to a real Kafka with its answers. It covers the scenarios
  in its key `covers`, if this project's cluster gives the same answers, step by step.

This module only reads the files of the tests; it runs no test.
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
"""Kafka's tests that the scenarios are taken from, by the prefix of the scenarios' ids."""
STATUSES = ("covered", "deviates", "not applicable", "missing")
"""What a scenario can be.

- "covered": a place names it.
- "deviates": this project differs from Kafka in this case.
- "not applicable": this project cannot have the case.
- "missing": none of these.
"""
_ID = re.compile(rf"\b({'|'.join(FAMILIES)})-(\d+)(?:\.\.(\d+))?")
"""An id or a range of ids: GC-010, GC-010..012. The groups are family, first and last number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioList:
    """The content of scenarios.toml. Each id has an entry in `meaning` or in `same_as`.

    - `meaning`: what happens in the scenario, by id.
    - `same_as`: by id, the ids of other scenarios. Together these test what this scenario tests, so
      it has no meaning of its own.
    - `deviates`: by id, the reason why this project differs from Kafka in the case.
    - `not_applicable`: by id, the reason why this project cannot have the case.
    """

    meaning: Mapping[str, str]
    same_as: Mapping[str, tuple[str, ...]]
    deviates: Mapping[str, str]
    not_applicable: Mapping[str, str]

    def ids(self) -> tuple[str, ...]:
        """Return every id, by family and number."""
        families = list(FAMILIES)

        def sort_key(scenario: str) -> tuple[int, int]:
            family, number = scenario.split("-")
            return families.index(family), int(number)

        return tuple(sorted((*self.meaning, *self.same_as), key=sort_key))


class _Recording(msgspec.Struct):
    """The fields of a recording that the page needs."""

    id: str
    covers: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A test, story or recording.

    - `path`: its file, relative to the root of the checkout.
    - `text`: the docstring or comments that name the scenarios; "" for a recording.
    """

    name: str
    path: str
    text: str = ""


def read_scenarios() -> ScenarioList:
    """Return the list of scenarios."""
    with (CONFORMANCE / "scenarios.toml").open("rb") as file:
        return msgspec.convert(tomllib.load(file), ScenarioList)


def ids_in(text: str) -> Iterator[str]:
    """Yield the ids that a text names. The range `GM-05..07` names three."""
    # `last` is "" for a single id.
    for family, first, last in _ID.findall(text):
        for number in range(int(first), int(last or first) + 1):
            # All ids of a range have as many digits as the first.
            yield f"{family}-{number:0{len(first)}}"


@cache
def places_by_scenario() -> Mapping[str, tuple[Place, ...]]:
    """Return the tests, stories and recordings that name each id.

    The ids can include some that the list of scenarios lacks.
    """
    # The keys of an inner dict are the places of one id, in their order. A place that names the id
    # twice is a key once.
    places: dict[str, dict[Place, None]] = {}
    for scenario, place in (*_in_tests(), *_in_transcripts(), *_in_recordings()):
        places.setdefault(scenario, {})[place] = None
    return {scenario: tuple(of_scenario) for scenario, of_scenario in places.items()}


def statuses(scenarios: ScenarioList) -> dict[str, str]:
    """Return the status of each id.

    An id is covered if a place names it, or if it is the same as other ids that are all covered.
    """
    places = places_by_scenario()
    status = {}
    for scenario in scenarios.ids():
        if scenario in scenarios.deviates:
            status[scenario] = "deviates"
        elif scenario in scenarios.not_applicable:
            status[scenario] = "not applicable"
        else:
            # Only scenarios of the last family (JC) are the same as others, so the others have
            # their status already.
            others = scenarios.same_as.get(scenario, ())
            others_cover_it = bool(others) and all(
                status.get(other) == "covered" for other in others
            )
            is_covered = scenario in places or others_cover_it
            status[scenario] = "covered" if is_covered else "missing"
    return status


def conformance_page() -> str:
    """Return the page: the counts, then every scenario with its status and places."""
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
        _counts(status),
    ]
    for family, title in FAMILIES.items():
        rows = [
            _row(scenario, scenarios, status[scenario])
            for scenario in status
            if scenario.startswith(f"{family}-")
        ]
        parts += [
            f"\n## {family}: {title}\n\n",
            table(("id", "scenario", "status", "where"), rows),
        ]
    return "".join(parts)


def _counts(status: Mapping[str, str]) -> str:
    """Return a table with the number of scenarios with each status, by family and in all."""
    rows = []
    # "" stands for all families: every id starts with it.
    for family in (*FAMILIES, ""):
        of_family = [value for scenario, value in status.items() if scenario.startswith(family)]
        counts = (str(of_family.count(value)) for value in STATUSES)
        rows.append((family or "all", str(len(of_family)), *counts))
    return table(("family", "scenarios", *STATUSES), rows)


def _row(scenario: str, scenarios: ScenarioList, status: str) -> tuple[str, str, str, str]:
    """Return the cells of a scenario: id, meaning, status with its reason, links to its places."""
    same_as = scenarios.same_as.get(scenario, ())
    meaning = scenarios.meaning.get(scenario) or f"as {', '.join(same_as)}"
    reason = scenarios.deviates.get(scenario) or scenarios.not_applicable.get(scenario)
    links = ", ".join(
        f"[{place.name}](../../{place.path})" for place in places_by_scenario().get(scenario, ())
    )
    return scenario, meaning, f"{status}: {reason}" if reason else status, links


def _in_tests() -> Iterator[tuple[str, Place]]:
    """Yield each scenario that the docstring of a test names, with the test."""
    for path in sorted(TESTS.rglob("test_*.py")):
        source = path.read_text(encoding="utf-8")
        if _ID.search(source) is None:
            continue
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                text = ast.get_docstring(node) or ""
                place = Place(name=node.name, path=_from_root(path), text=text)
                yield from _pairs(ids_in(text), place)


def _in_transcripts() -> Iterator[tuple[str, Place]]:
    """Yield each scenario that the comments at the head of a story name, with the story."""
    for path in sorted(TESTS.rglob("scenarios/*.txt")):
        # `_` is the text before the first story.
        _, *stories = re.split(r"^== ", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
        for story in stories:
            title, _, story_text = story.partition(" ==\n")
            comments = takewhile(lambda line: line.startswith("#"), story_text.splitlines())
            text = "\n".join(line.removeprefix("# ") for line in comments)
            place = Place(name=title, path=_from_root(path), text=text)
            yield from _pairs(ids_in(text), place)


def _in_recordings() -> Iterator[tuple[str, Place]]:
    """Yield each scenario that a recording covers, with the recording.

    Recordings in known_differences.json are left out: the cluster's answers differ from theirs.
    """
    differing = msgspec.json.decode((CONFORMANCE / "known_differences.json").read_bytes())
    for path in sorted((CONFORMANCE / "transcripts").rglob("*.json")):
        if path.name == "index.json":
            continue
        recording = msgspec.json.decode(path.read_bytes(), type=_Recording)
        if recording.id not in differing:
            place = Place(name=f"recording {recording.id}", path=_from_root(path))
            yield from _pairs(ids_in(" ".join(recording.covers)), place)


def _pairs(scenarios: Iterable[str], place: Place) -> Iterator[tuple[str, Place]]:
    """Yield each scenario with the same place."""
    for scenario in scenarios:
        yield scenario, place


def _from_root(path: Path) -> str:
    """Return a path relative to the root of the checkout, with `/` on every system."""
    return path.relative_to(package_root()).as_posix()
