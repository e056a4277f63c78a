"""An asterisk marks the figures of a time in which a machine was away by accident.

A run may use several machines. In an accident, a machine stops answering, for a while or for good,
although no fault of the plan is the reason. A figure that was measured during an accident proves
nothing about Kafka. So the summary marks the figure, and a footnote says why.

The summary learns of an accident from the journal, which is the run's list of faults. The driver
(the process that conducts the run) adds accidents to this list.
"""

from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.in_memory.summary import summarize_directory
from pipeline.summary.caveats import caveats_of
from pipeline.summary.comparison import compare_runs, comparison_notes
from pipeline.summary.disturbances import JOURNAL_FILE, Disturbance, disturbances_of, is_disturbed
from pipeline.summary.figures import MARK, Distribution, RunSummary
from pipeline.summary.story import disturbance_texts
from results_schema.journal import FaultOutcome, JournalEntry, encode_journal
from tests.support.builders.report_inputs import journal_entry
from tests.support.builders.trace_builder import write_run
from tests.support.random_worlds.random_trace import random_run

S = 1_000_000


def accident(from_us: int, until_us: int | None, *, lost: bool = False) -> JournalEntry:
    """Return the journal's entry of a machine that was away until `until_us`.

    None means that the machine was away until the run's end. `lost` is True if the machine was
    given up, and False if it only did not answer for a while.
    """
    return JournalEntry(
        fault_id="machine-0",
        fault="machine_lost" if lost else "machine_disturbed",
        target="10.0.0.3",
        duration_us=None,
        outcome=FaultOutcome.HIT,
        fired_at_us=from_us,
        # A machine that did not come back has no healing, as if the accident were momentary.
        momentary=until_us is None,
        healed_at_us=until_us,
        note="machine 10.0.0.3 was away",
    )


def summary_with(directory: Path, *entries: JournalEntry) -> RunSummary:
    """Return the summary of the run in `directory`, with a journal that has these entries."""
    (directory / JOURNAL_FILE).write_bytes(encode_journal(entries))
    summary = summarize_directory(directory)
    assert summary is not None
    return summary


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Return the directory of a random run that has figures of every kind.

    The run has several faults. For each fault, there are phases of brokers, phases of clients and
    times without service. At times a group has two coordinators, or a partition has two owners.
    """
    # The trace with the seed 6 has all this.
    return write_run(tmp_path / "talk" / "1", random_run(6))


def plain_and_marked(directory: Path) -> tuple[RunSummary, RunSummary]:
    """Return two summaries of one run: without accidents, and with an accident all the time."""
    plain = summary_with(directory)
    marked = summary_with(directory, accident(from_us=0, until_us=None))
    return plain, marked


@pytest.mark.parametrize(
    ("from_us", "until_us", "expected"),
    [
        pytest.param(0, 23 * S, False, id="ended before the machine was away"),
        pytest.param(0, 24 * S, True, id="ended when the machine went away"),
        pytest.param(30 * S, 31 * S, True, id="while the machine was away"),
        pytest.param(36 * S, 40 * S, True, id="began when the machine came back"),
        pytest.param(37 * S, 40 * S, False, id="began after the machine was back"),
        pytest.param(0, None, True, id="until the end of the run"),
        pytest.param(37 * S, None, False, id="until the end, after the machine was back"),
        pytest.param(None, None, False, id="without samples"),
    ],
)
def test_time_is_disturbed_if_it_shares_a_moment(
    from_us: int | None, until_us: int | None, expected: bool
) -> None:
    """A machine was away from 24 to 36 s; a figure was measured from `from_us` to `until_us`."""
    away = Disturbance(from_us=24 * S, until_us=36 * S, sentence="")
    assert is_disturbed([away], from_us, until_us) == expected


def test_machine_that_is_lost_is_away_until_the_end(tmp_path: Path) -> None:
    """The planned fault `machine_loss` in the same journal is no accident."""
    (tmp_path / JOURNAL_FILE).write_bytes(
        encode_journal(
            (journal_entry(fault="machine_loss"), accident(from_us=7 * S, until_us=None, lost=True))
        )
    )
    (away,) = disturbances_of(tmp_path)
    assert (away.from_us, away.until_us) == (7 * S, None)
    # Even the latest time is disturbed, because the machine never comes back.
    assert is_disturbed([away], 900 * S, 901 * S)


@pytest.mark.parametrize("content", [None, b'{"faults": [{'], ids=["missing", "torn"])
def test_run_without_a_readable_journal_has_no_disturbances(
    content: bytes | None, tmp_path: Path
) -> None:
    """A run whose driver was killed has no whole journal. It gets a summary nevertheless."""
    if content is not None:
        (tmp_path / JOURNAL_FILE).write_bytes(content)
    assert disturbances_of(tmp_path) == ()


def test_only_figures_of_the_disturbed_time_are_marked(directory: Path) -> None:
    """The machine is away from the last fault on, so some figures of the first fault are unmarked.

    Figures of the whole run include the time of the accident, so they are marked.
    """
    plain = summary_with(directory)
    first, *_, last = plain.faults
    marked = summary_with(directory, accident(from_us=last.injected_us, until_us=None))

    def marks(summary: RunSummary, fault: str) -> list[bool]:
        """Return for each figure of the fault whether it is marked."""
        (fault_summary,) = (entry for entry in summary.faults if entry.fault == fault)
        return [distribution.disturbed for _, distribution in fault_summary.measures]

    assert not any(marks(plain, last.fault))
    assert marks(marked, last.fault), "the fault has figures, otherwise `all` would prove nothing"
    assert all(marks(marked, last.fault))
    assert not all(marks(marked, first.fault))
    # `felt` has the effects on the users of groups, over the whole run.
    assert marked.felt is not None
    assert marked.felt.disturbed
    assert [away.sentence for away in marked.disturbances] == ["machine 10.0.0.3 was away"]


def test_summary_differs_in_marks_alone(directory: Path) -> None:
    """A disturbance changes no figure. Only the mark says that the figure cannot be trusted."""
    plain, marked = plain_and_marked(directory)

    def unmarked(distribution: Distribution) -> Distribution:
        return replace(distribution, disturbed=False)

    for plain_fault, marked_fault in zip(plain.faults, marked.faults, strict=True):
        unmarked_measures = [
            (measure, unmarked(distribution)) for measure, distribution in marked_fault.measures
        ]
        unmarked_rebalances = [
            replace(rebalance, disturbed=False) for rebalance in marked_fault.rebalances
        ]
        assert unmarked_measures == list(plain_fault.measures)
        assert unmarked_rebalances == list(plain_fault.rebalances)
    # The run has times with two coordinators and with two owners, so `all` proves something.
    assert marked.coordinators
    assert marked.owners
    assert not any(overlap.disturbed for overlap in plain.coordinators)
    assert not any(overlap.disturbed for overlap in plain.owners)
    assert all(overlap.disturbed for overlap in marked.coordinators)
    assert all(overlap.disturbed for overlap in marked.owners)


def test_longest_of_a_marked_distribution_has_the_mark() -> None:
    """A sentence with the longest time marks this time.

    The narrow cells of a table are not marked. In a table the name of the line has the mark.
    """
    marked = Distribution(
        samples=1, missing=1, percentiles={50: 2_000}, maximum=2_000, disturbed=True
    )
    assert marked.cells(is_time=True) == ("1", "1", "2 ms", "", "", "2 ms")
    assert marked.longest_text == f"2 ms{MARK}"
    # No samples mean that no member recovered.
    assert replace(marked, samples=0).longest_text == f"never{MARK}"


def test_footnote_names_the_machine_and_is_absent_without_accidents(directory: Path) -> None:
    """The footnote explains the mark, so a run without marks needs none."""
    assert disturbance_texts(summary_with(directory)) == ()
    (text,) = disturbance_texts(summary_with(directory, accident(from_us=S, until_us=2 * S)))
    assert text == (
        "* machine 10.0.0.3 was away, by accident: figures with this mark include that time and "
        "prove nothing about Kafka"
    )


def test_comparison_marks_the_column_of_the_disturbed_run(directory: Path) -> None:
    """The cells of the run without an accident stay unmarked."""
    plain, marked = plain_and_marked(directory)
    comparison = compare_runs([plain, marked], names=["plain", "disturbed"], in_full=True)
    texts = [row.texts for row in comparison.rows if row.group in {"gap", "felt"}]
    assert texts
    for plain_text, marked_text in texts:
        if plain_text is None:
            assert marked_text is None
        else:
            assert marked_text == f"{plain_text}{MARK}"
    notes = comparison_notes(comparison, runtimes=["ray"])  # both runs were on Ray
    assert any("away by accident" in note for note in notes)
    without_accident = compare_runs([plain, plain], names=["a", "b"])
    notes = comparison_notes(without_accident, runtimes=["ray"])
    assert not any("away by accident" in note for note in notes)


def test_caveats_of_a_disturbed_run_are_marked(directory: Path) -> None:
    """The machine that was away may have caused the effect, so the caveat has the mark."""
    plain, marked = plain_and_marked(directory)
    assert caveats_of(plain), "there are caveats, otherwise the loop would compare nothing"
    for before, after in zip(caveats_of(plain), caveats_of(marked), strict=True):
        assert MARK in after
        assert after.replace(MARK, "") == before
