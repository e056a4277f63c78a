"""docs/ARCHITECTURE.md lists the places at which a fault, a check, an API and so on are added.

A developer who wants to add a fault looks into a table of that page. The row "a fault" has links to
all files and folders that must be changed. These files and folders are called places here.

The tests check each row with an example: an existing thing of the row's kind, such as the fault
`preferred_leader_election`. Every file that mentions the example must be in a place of the row. And
every place of the row must mention the example.
"""

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
PAGE = ROOT / "docs" / "ARCHITECTURE.md"
# The folders and the page in which the tests search for the examples: all code and data except
# tests, and one page of the documentation.
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
    """An existing fault, check, API and so on, which is the example for one row.

    - `row`: the first cell of the row, such as "a fault".
    - `pattern`: a regular expression that finds the example in a text.
    - `users`: files that only use the example. They are not places of the row.
    - `only_if_needed`: places of the row that some additions need, but not this example.
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
        users=frozenset({"chaos/checkers/administration.py"}),  # judges such elections
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
                "scripts/docs/reference.py",  # names the generated page `group_states`
            }
        ),
    ),
    Example(row="a command", pattern=r"commands\.diff|\"diff\"|coordlab diff"),
    Example(row="a coverage mark", pattern="high_watermark_fell"),
)


def linked_places(row: str) -> list[str]:
    """Return the places to which a row links, as paths below the root.

    A link to a folder's `__init__.py` stands for the folder.
    """
    lines = PAGE.read_text().splitlines()
    (line_of_row,) = [line for line in lines if line.startswith(f"| {row} |")]
    links = re.findall(r"\]\(([^)#]+)\)", line_of_row)
    places = [(PAGE.parent / link).resolve().relative_to(ROOT).as_posix() for link in links]
    return [place.removesuffix("/__init__.py") for place in places]


def files_in(place: str) -> list[Path]:
    """Return the file `place`, or all files below the folder `place`."""
    path = ROOT / place
    return [path] if path.is_file() else [below for below in path.rglob("*") if below.is_file()]


def files_with(pattern: str, places: tuple[str, ...]) -> list[str]:
    """Return the files of `places` whose text matches `pattern`."""
    files = [path for place in places for path in files_in(place) if path.suffix in SUFFIXES]
    compiled = re.compile(pattern)
    return sorted(
        path.relative_to(ROOT).as_posix()
        for path in files
        if compiled.search(path.read_text(encoding="utf-8"))
    )


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.row)
def test_page_names_every_place_of_an_addition(example: Example) -> None:
    """A developer who follows the page must not forget anything.

    So each file that mentions the example must be in a place of the row, or be a known user.
    """
    places = linked_places(example.row)

    def is_in_a_place(path: str) -> bool:
        # A place is a file, or a folder with all files below.
        return any(path == place or path.startswith(f"{place}/") for place in places)

    unnamed = [
        path
        for path in files_with(example.pattern, SEARCHED)
        if path not in example.users and not is_in_a_place(path)
    ]

    assert unnamed == []


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.row)
def test_page_names_no_needless_place(example: Example) -> None:
    """Each place of the row must mention the example. This includes places in `tests`."""
    needless = [
        place
        for place in linked_places(example.row)
        if place not in example.only_if_needed and not files_with(example.pattern, (place,))
    ]

    assert needless == []
