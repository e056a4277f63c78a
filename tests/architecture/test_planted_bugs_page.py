"""README's figures of the planted bugs are the recorded figures.

A planted bug is put into the code on purpose, to see how many seeds the search needs to find it.
Shrinking removes the faults of a schedule that the finding does not need.
"""

import re
from pathlib import Path

from benchmarks.planted_bugs.bugs import BUGS
from benchmarks.planted_bugs.operation_bugs import OPERATION_BUGS

ROOT = Path(__file__).resolve().parents[2]
# The two groups of this pattern are the number of seeds needed and the most faults left.
_ROW = re.compile(r"^\| \w+ \| [^|]+ \| (\d+) \| [^|]+ \| \d+ to (\d+) \|", re.MULTILINE)
_CLAIM = re.compile(r"within (\d+) seeds and shrunk to (\w+) faults at most")
_WORDS = {"one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6}


def test_readme_has_the_recorded_figures_of_planted_bugs() -> None:
    """README names the maxima over all bugs: seeds needed, and faults left after shrinking."""
    record = (ROOT / "docs" / "PLANTED_BUGS.md").read_text(encoding="utf-8")
    rows = [(int(seeds), int(faults)) for seeds, faults in _ROW.findall(record)]
    readme = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    claim = _CLAIM.search(readme)

    assert len(rows) == len(BUGS) + len(OPERATION_BUGS)
    assert claim is not None
    assert int(claim[1]) == max(seeds for seeds, _ in rows)
    assert _WORDS[claim[2]] == max(faults for _, faults in rows)
