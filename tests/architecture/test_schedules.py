"""Schedules that tests depend on are files, so that a change of drawing does not affect them.

The search for bugs plays schedules, which are experiments with their faults. It draws each schedule
at random from a number, the seed. (A file called a space says what may vary.) If the code that
draws changes, the same seed gives another schedule. So a test must not depend on a seed, but on a
file: tests/corpus has the schedules that once showed a bug, and tests/schedules has other ones.
"""

import ast
import re
from pathlib import Path

import pytest

from chaos.experiment.loader import load_experiment
from tests.architecture.test_layers import ROOT, tracked_files

SCHEDULES = sorted((ROOT / "tests" / "schedules").glob("*.yaml"))
CORPUS = ROOT / "tests" / "corpus"
MAY_DRAW = {
    "tests/support/explored_digests.py": "compares runs of compiled and of interpreted modules",
    "tests/acceptance/test_standard_space.py": "searches, and expects that nothing is found",
    "tests/architecture/test_schedules.py": "has the names of the drawing functions",
    "tests/chaos/exploration/draw/test_draw.py": "tests the drawing",
    "tests/chaos/exploration/draw/test_losses.py": "tests the drawing of nodes that are lost",
    "tests/chaos/exploration/draw/test_operations.py": "tests the drawing of operations",
    "tests/chaos/exploration/test_operation_bugs.py": "searches for planted bugs",
    "tests/chaos/exploration/draw/test_what_is_met.py": "tests what the drawn patterns meet",
    "tests/chaos/exploration/guided/test_mutated_findings.py": "plays a mutated seed and its file",
    "tests/chaos/exploration/guided/test_mutation.py": "tests what is made of a drawn plan",
    "tests/chaos/exploration/test_exploring_page.py": "tests that the page's space can be drawn",
    "tests/chaos/exploration/test_reference.py": "tests the space `reference` and its minimum",
    "tests/chaos/exploration/test_sight.py": "compares the packages with their rewritten copy",
    "tests/chaos/exploration/test_space.py": "tests the space of a file",
    "tests/cluster/broker/replication/test_quiet_fetches.py": "compares two readers of one log",
    "tests/cluster/ray/test_ray_tasks.py": "compares workers, whatever they play",
    "tests/soak/test_summaries.py": "compares two readers, whatever they read",
}
"""Modules that may draw schedules, with the reason; no other module may depend on a draw."""
DRAWING = frozenset({"draw", "play_seed", "play_seeds"})
"""Functions of `chaos.exploration` that draw."""
SEED_OF_A_SPACE = re.compile(r"\bspace,? seeds? \d|\w \(seeds? \d+\)[.:]")
"""Matches a text that names a schedule by its seed, such as `the space, seed 7` or `(seed 7).`"""
CITED_FILE = re.compile(r"\bCorpus: `(\w+)`")
"""Matches a citation of a file of tests/corpus, and has the file's name as its group."""


def draws(path: Path) -> bool:
    """Return True if a module imports a function that draws schedules from seeds."""
    return any(
        alias.name in DRAWING
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("chaos.exploration")
        for alias in node.names
    )


def test_only_tests_of_the_search_draw_schedules() -> None:
    """No other test draws a schedule, because a change of the drawing could break it."""
    modules_that_draw = {
        path.relative_to(ROOT).as_posix()
        for path in tracked_files(".py")
        if path.is_relative_to(ROOT / "tests") and draws(path)
    }
    assert modules_that_draw <= set(MAY_DRAW)


def test_no_text_names_a_seed_for_its_schedule() -> None:
    """A text names the file of a schedule, and not its seed.

    After the next change of the drawing, the seed may give another schedule. A file stays.
    """
    citations = [
        f"{path.relative_to(ROOT)}: {match[0]}"
        for path in tracked_files(".py")
        if path != Path(__file__)
        # A citation may extend over two lines, so each line break is replaced by a space.
        for match in SEED_OF_A_SPACE.finditer(re.sub(r"\s+", " ", path.read_text()))
    ]
    assert citations == []


def test_file_of_the_corpus_that_is_named_exists() -> None:
    """A docstring cites a file of the corpus by the word `Corpus`, a colon and the file's name."""
    missing = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in tracked_files(".py")
        for name in CITED_FILE.findall(path.read_text(encoding="utf-8"))
        if not (CORPUS / f"{name}.yaml").is_file()
    ]
    assert missing == []


@pytest.mark.parametrize("path", SCHEDULES, ids=lambda path: path.stem)
def test_schedule_has_a_description_and_is_played(path: Path) -> None:
    """A schedule begins with a comment, can be loaded, and is named by some test."""
    assert path.read_text(encoding="utf-8").startswith("# ")
    assert load_experiment(str(path)).experiment.name == path.stem
    tests = [file for file in tracked_files(".py") if file.is_relative_to(ROOT / "tests")]
    assert any(path.stem in file.read_text(encoding="utf-8") for file in tests)
