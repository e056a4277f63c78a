"""The pages of whole runs equal the recorded pages.

The runs are listed in RECIPES and SCHEDULES of tests/support/worlds/report_runs.py, and the fixture
`reports` plays them and makes their pages. The facts of each page are recorded, that is, its
figures and names. The words of some pages are recorded, too, that is, their sentences, which a
person has reviewed. If a sentence is reworded, the words change, but the facts must not.

`golden.check` compares a text with the recorded file of that name. With `pytest --rewrite` it
writes the file instead.
"""

from pathlib import Path

import pytest

from coordlab.analysis import current_summary
from pipeline.report.comparison_page import comparison_html
from tests.support.harness.golden import Golden
from tests.support.harness.page_text import facts_of_page, words_of
from tests.support.worlds.report_runs import RECIPES, SCHEDULES
from tests.support.worlds.reports import Reports

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.timeout(300),  # the first test makes the runs and their reports
]
RUNS = (*RECIPES, *SCHEDULES)
RUNS_WITH_WORDS = ("interrupted", "violated", "transactions")
"""Runs whose words are recorded. Together they have every section, and most kinds of sentences."""
COMPARED_RUNS = ("overlap", "violated")
"""Runs of the page that compares runs."""


@pytest.mark.parametrize("run", RUNS)
def test_facts_of_a_run_equal_the_recorded_ones(reports: Reports, golden: Golden, run: str) -> None:
    """The facts are every figure, Kafka name and cell, and the numbers of every chart."""
    html = reports.pages[run].read_text(encoding="utf-8")
    golden.check(f"facts/{run}.txt", facts_of_page(html))


@pytest.mark.parametrize("run", RUNS_WITH_WORDS)
def test_words_of_a_run_equal_the_reviewed_ones(reports: Reports, golden: Golden, run: str) -> None:
    """The words are the visible text, top to bottom; a long table is cut off."""
    golden.check(f"words/{run}.txt", words_of(reports.pages[run].read_text(encoding="utf-8")))


def _comparison(reports: Reports) -> str:
    """Return the page that compares the runs of COMPARED_RUNS."""
    pairs = []
    for run in COMPARED_RUNS:
        summary = current_summary(reports.pages[run].parent)
        assert summary is not None
        pairs.append((reports.facts[run], summary))
    return comparison_html(pairs, Path("comparison.html"))


def test_comparison_equals_the_reviewed_one(reports: Reports, golden: Golden) -> None:
    """Two runs side by side: the facts and the words of the page."""
    html = _comparison(reports)
    golden.check("facts/comparison.txt", facts_of_page(html))
    golden.check("words/comparison.txt", words_of(html))
