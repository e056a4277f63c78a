"""The search for bugs must find enough of the mutants that the unit tests notice.

A mutant is a copy of the code with one small change. The search, which plays many random schedules
of faults, runs with each mutant of a sample. If a checker finds a broken promise of Kafka, the
search has found the mutant. The score is the share of mutants that the search finds. docs/SIGHT.md
records the score.

All mutants together take many hours. So a test does one sitting: it searches for 45 minutes, and
saves its results. The next `make soak PART=sight` continues from there, even if docstrings and
comments of the code have changed meanwhile. tests/chaos/exploration/test_sight.py tests the code
that searches and records.
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
"""The length of a sitting: 45 minutes."""
LOWEST_PRIORITY = 19
"""The highest niceness that a process can have, which is the lowest priority."""
LATER = "after"
"""The name of a sample's second record, which is about newer code than the record named FIRST.

A record has the result of each mutant of a sample.
"""
SAMPLE_NUMBERS = sorted(
    int(path.stem.rpartition("_")[2]) for path in SAMPLES.glob("sample_*.jsonl")
)


def record_name(sample: int) -> str:
    """Return the name of the record of this sample that a sitting continues or begins.

    The name is LATER if there is a record FIRST that is about older code. Otherwise it is FIRST.
    """
    for record in read_records():
        head = record.head
        if head.name == FIRST and head.sample == sample:
            is_of_present_code = head.code == running_code_digest(ROOT)
            return FIRST if is_of_present_code else LATER
    return FIRST


def recorded(name: str, sample: int) -> SightRecord:
    """Return a sample's record with this name, which a sitting has written."""
    records = {(record.head.name, record.head.sample): record for record in read_records()}
    return records[name, sample]


@pytest.mark.parametrize("sample", SAMPLE_NUMBERS)
def test_search_finds_mutants_that_the_unit_tests_kill(sample: int) -> None:
    """The search must soon find most of the mutants that the unit tests kill.

    Only mutants that the search reaches count. It reaches a mutant if a run executes the changed
    line.
    """
    # The search uses all processors for most of an hour. Other programs must still get their time.
    os.nice(LOWEST_PRIORITY)
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
    # Goal 1: few mutants are reached by no run at all.
    assert score.mutants - score.reached <= UNREACHED_GOAL * score.mutants
    # Goal 2: of the mutants that tests kill and runs reach, the search finds most.
    assert score.killed_reached is not None, "run `python -m benchmarks.sight unit-tests` first"
    assert score.killed_found is not None
    assert score.killed_found >= FOUND_GOAL * score.killed_reached
    # Goal 3: the search needs little time until it finds a mutant.
    assert score.cpu_s is not None
    assert score.cpu_s <= CPU_GOAL_S
