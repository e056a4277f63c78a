"""The search finds enough of the mutants that the unit tests kill; its scores are recorded.

The search plays many random schedules of faults. A sample is a list of mutants (small changes of
the code). The score is the share of them that the search finds. A sitting is one limited stretch of
the search, and another `make soak PART=sight` continues the search. If only docstrings and comments
of the code have changed, a sitting continues the committed record.
tests/chaos/exploration/test_sight.py tests the machinery.
"""

import os
import time

import pytest

from benchmarks.sight.__main__ import write_journal_record
from benchmarks.sight.code_digest import running_code_digest
from benchmarks.sight.records import FIRST, SightRecord, read_record, read_records
from benchmarks.sight.sampled import ROOT, SAMPLES, read_sample, sample_path
from benchmarks.sight.sight_page import (
    CPU_GOAL_S,
    FOUND_GOAL,
    SIGHT_PAGE,
    UNREACHED_GOAL,
    read_sentences,
    score_of,
    sight_page,
)
from benchmarks.sight.sitting import SEEDS, Journal, journal_path, sit
from benchmarks.sight.unit_tests import killed_path, read_killed
from tests.support.soak import say

pytestmark = [pytest.mark.soak, pytest.mark.timeout(3_600)]

SITTING_S = 45 * 60
LOW_PRIORITY = 19
"""The highest niceness."""
LATER = "after"
"""Name of a sample's record for code that is newer than that of the record FIRST."""
NUMBERS = sorted(int(path.stem.rpartition("_")[2]) for path in SAMPLES.glob("sample_*.jsonl"))


def record_name(sample: int) -> str:
    """Return the name of the record to work on: LATER if there is a FIRST record of other code."""
    for record in read_records():
        head = record.head
        if (head.name, head.sample) == (FIRST, sample):
            return FIRST if head.code == running_code_digest(ROOT) else LATER
    return FIRST


def recorded(name: str, sample: int) -> SightRecord:
    """Return the record that a sitting has written."""
    records = {(record.head.name, record.head.sample): record for record in read_records()}
    return records[name, sample]


@pytest.mark.parametrize("sample", NUMBERS)
def test_search_finds_mutants_that_the_unit_tests_kill(sample: int) -> None:
    """Of the mutants that tests kill and the search reaches, enough must be found, and soon."""
    # The search uses all processors for most of an hour.
    os.nice(LOW_PRIORITY)
    name = record_name(sample)
    _, mutants = read_sample(sample_path(sample))
    journal = Journal(journal_path(name, sample))
    ends_s = time.monotonic() + SITTING_S
    is_done = sit(
        journal,
        mutants,
        workers=os.cpu_count() or 1,
        record=read_record(name, sample),
        until=lambda: time.monotonic() > ends_s,
        say=lambda line: print(line, flush=True),
    )
    record_line = write_journal_record(journal, name, sample, mutants)
    SIGHT_PAGE.write_text(sight_page(), encoding="utf-8")
    say(f"sample {sample}, {name}: {record_line.partition(':')[0]}: docs/SIGHT.md")
    if not is_done:
        pytest.skip(f"not {SEEDS} seeds yet: `make soak PART=sight` goes on")
    score = score_of(
        recorded(name, sample).fates, read_killed(killed_path(sample)), read_sentences()
    )
    # The three goals: few mutants are reached by no seed; the search finds most of those that tests
    # kill and seeds reach; the first finding comes soon.
    assert score.mutants - score.reached <= UNREACHED_GOAL * score.mutants
    assert score.killed_reached is not None, "run `python -m benchmarks.sight unit-tests` first"
    assert score.killed_found is not None
    assert score.killed_found >= FOUND_GOAL * score.killed_reached
    assert score.cpu_s is not None
    assert score.cpu_s <= CPU_GOAL_S
