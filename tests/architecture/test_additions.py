"""docs/ARCHITECTURE.md lists every place at which a fault, a check, an API ... is added.

The page has a table: a row is one kind of addition, with links to the places to change. The tests
follow one existing example of each kind: a file that mentions the example must be in the row, or
among the files that only use the example. A door sign is the docstring of a folder's `__init__.py`.
"""

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
PAGE = ROOT / "docs" / "ARCHITECTURE.md"
SEARCHED = (
    "protocol",
    "partition_log",
    "coordinator",
    "cluster",
    "results_schema",
    "chaos",
    "pipeline",
    "coordlab",
    "explorations",
    "scripts",
    "docs/TABLES.md",
)
SUFFIXES = frozenset({".py", ".txt", ".j2", ".yaml", ".toml", ".md"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """One existing addition.

    - `row`: the first cell of the page's row.
    - `pattern`: a regular expression for the addition's names.
    - `users`: files that mention the addition, but are no place of the row.
    - `only_if_needed`: places of the row that this addition did not need.
    """

    row: str
    pattern: str
    users: frozenset[str] = frozenset()
    only_if_needed: frozenset[str] = frozenset()


EXAMPLES = (
    Example(
        row="a fault",
        pattern="preferred_leader_election|PreferredLeaderElection",
        only_if_needed=frozenset({"cluster/runtime.py"}),
        users=frozenset({"chaos/checkers/administration.py"}),  # judges such orders
    ),
    Example(row="a check", pattern=r"\b[Ss]tability\b"),
    Example(
        row="an API",
        pattern="DeleteGroups|DELETE_GROUPS|delete_groups",
        users=frozenset(
            {
                "chaos/faults/groups.py",
                "cluster/client/admin/admin_client.py",
                "cluster/client/admin/orders.py",
                "cluster/client/admin/outcomes.py",
                "coordlab/commands/groups/command.py",
                "coordlab/commands/groups/questions.py",
            }
        ),
    ),
    Example(
        row="a table",
        pattern=r"\bgroup_states",
        users=frozenset(
            {
                "pipeline/report/lanes/broker_fills.py",
                "pipeline/report/lanes/groups.py",
                "scripts/docs/reference.py",  # a page of that name
            }
        ),
    ),
    Example(row="a command", pattern=r"commands\.diff|\"diff\"|coordlab diff"),
    Example(row="a coverage mark", pattern="high_watermark_fell"),
)


def linked_places(row: str) -> list[str]:
    """Return the files of the page's row, relative to the root; a folder by its door sign."""
    (line,) = [text for text in PAGE.read_text().splitlines() if text.startswith(f"| {row} |")]
    links = re.findall(r"\]\(([^)#]+)\)", line)
    places = [(PAGE.parent / link).resolve().relative_to(ROOT).as_posix() for link in links]
    return [place.removesuffix("/__init__.py") for place in places]


def files_with(pattern: str, places: tuple[str, ...]) -> list[str]:
    """Return the files below `places` that mention `pattern`."""
    files = [
        path
        for place in places
        for path in ([ROOT / place] if (ROOT / place).is_file() else (ROOT / place).rglob("*"))
        if path.is_file() and path.suffix in SUFFIXES
    ]
    compiled = re.compile(pattern)
    return sorted(
        path.relative_to(ROOT).as_posix()
        for path in files
        if compiled.search(path.read_text(encoding="utf-8"))
    )


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.row)
def test_page_names_every_place_of_an_addition(example: Example) -> None:
    """A developer who follows the page forgets no place that the existing example has."""
    places = linked_places(example.row)
    mentioned = files_with(example.pattern, SEARCHED)

    unnamed = [
        path
        for path in mentioned
        if path not in example.users
        and not any(path == place or path.startswith(f"{place}/") for place in places)
    ]

    assert unnamed == []


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.row)
def test_page_names_no_needless_place(example: Example) -> None:
    """Each place, tests included, mentions the existing example."""
    empty = [
        place
        for place in linked_places(example.row)
        if place not in example.only_if_needed and not files_with(example.pattern, (place,))
    ]

    assert empty == []
