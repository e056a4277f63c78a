"""The summary that a run prints at its end fits the terminal, however long the run was.

A run may have hundreds of faults and of findings (broken promises that its checks report). The
summary must still fit one or two screens, and must not hide what matters. The tests allow 70 lines
for the faults, and 90 lines for the figures: two screens with some room to spare.

Times are microseconds, and S is one second.
"""

import io

import pytest
from rich.console import Console

from coordlab.views.check_view import print_checks
from coordlab.views.summary_view import print_phases, print_summary
from pipeline.summary.figures import FaultSummary
from results_schema.journal import FaultOutcome, JournalEntry
from results_schema.results import CheckOutcome, CheckReport, Finding
from tests.support.builders.past_runs import manifest, results
from tests.support.builders.report_rows import S, fault_summary, summary_of

MS = 1_000
"""Microseconds in a millisecond."""

WIDTHS = (40, 60, 80, 120)


def lines_of(shown: Console) -> list[str]:
    """Return the lines that were printed on a console."""
    assert isinstance(shown.file, io.StringIO)
    return [line.rstrip() for line in shown.file.getvalue().splitlines()]


def console(width: int) -> Console:
    """Return a terminal of this width that writes to a buffer."""
    return Console(file=io.StringIO(), width=width)


def entry(number: int, outcome: FaultOutcome = FaultOutcome.HIT) -> JournalEntry:
    """Return the entry of a crash in the journal, which lists the faults of a run."""
    return JournalEntry(
        fault_id=f"crash-0.{number}",
        fault="crash",
        target=f"broker({number})",
        duration_us=S,
        outcome=outcome,
        fired_at_us=number * S,
        node=f"broker-{number}",
        error="no process" if outcome is FaultOutcome.FAILED else None,
    )


def crash(number: int, **changes: object) -> FaultSummary:
    """Return the figures of a crash that moved one leadership in a group of twelve members."""
    fields: dict[str, object] = {
        "fault": f"crash-0.{number}",
        "injected_us": number * S,
        "members": 12,
        "members_kept": 12,
        "partitions_moved": 1,
        # The values of each figure, in microseconds. Each of the twelve members has a commit gap.
        "values": {
            "detect": [8 * S],
            "notice": [200],
            "rediscover": [7 * S],
            "commit gap": [8 * S] * 12,
        },
    }
    return fault_summary(**(fields | changes))  # type: ignore[arg-type]


def violated(count: int) -> CheckReport:
    """Return the report of a check with `count` findings; it keeps at most twenty of them.

    The story of a finding is its evidence as text, here in twenty lines.
    """
    findings = tuple(
        Finding(check="fencing", summary=f"loss {n}", time_us=n, story=(f"story {n}",) * 20)
        for n in range(min(count, 20))
    )
    return CheckReport(
        check="fencing",
        outcome=CheckOutcome.VIOLATED,
        findings=findings,
        findings_total=count,
        seen={"appends_acknowledged": 1_234, "leader_epochs": 8},
    )


@pytest.mark.parametrize("width", WIDTHS)
def test_summary_of_a_hundred_faults_is_bounded_and_names_what_failed(width: int) -> None:
    """The summary shows 21 of a hundred faults, and counts the other 79.

    Fault 70, which the tool could not inject, is among the 21.
    """
    faults = [entry(n) for n in range(100)]
    faults[70] = entry(70, FaultOutcome.FAILED)
    without_figures = None  # the run was not analysed
    shown = console(width)
    print_summary(shown, manifest(), results(faults=tuple(faults)), without_figures)
    lines = lines_of(shown)
    text = " ".join(" ".join(lines).split())
    assert len(lines) < 70
    assert "crash broker(70): failed at 70.000 s: no process" in text
    assert "and 79 more faults: journal.json; of all 100: 99 hit, 1 failed" in text


@pytest.mark.parametrize("width", WIDTHS)
def test_phases_fit_the_terminal_and_no_name_is_truncated(width: int) -> None:
    """One fault is shown in full; three faults are a table, and fifty a table of bounded length."""
    for count in (1, 3, 50):
        shown = console(width)
        crashes = [crash(number) for number in range(count)]
        print_phases(shown, summary_of("x/1", *crashes))
        lines = lines_of(shown)
        assert max(map(len, lines)) <= width
        assert not [line for line in lines if "\N{HORIZONTAL ELLIPSIS}" in line]
        assert len(lines) < 90
    # The last lines are those of fifty faults, of which the table shows twenty.
    assert any(line.startswith("and 30 more: table figures") for line in lines)


def test_narrow_terminal_keeps_median_and_longest() -> None:
    """A terminal of 40 columns has no room for the 90th percentile and for counts."""
    # The gaps are 1, 2, ... 12 ms: the median is 6 ms, the longest is 12 ms.
    gaps_us = [n * MS for n in range(1, 13)]
    shown = console(40)
    print_phases(shown, summary_of("x/1", crash(0, values={"commit gap": gaps_us})))
    assert "commit gap, per member  6 ms  12 ms" in lines_of(shown)


def test_first_finding_of_a_check_has_its_evidence_and_the_others_a_line() -> None:
    """The evidence of thirty findings would scroll the verdict off the screen.

    So the terminal shows one line for each of the first five findings, and says that there are 25
    more. Only the first finding has its story below it: 12 of the 20 lines of the story.
    """
    shown = console(80)
    print_checks(shown, (violated(30),))
    lines = lines_of(shown)
    assert sum(line == "  story 0" for line in lines) == 12
    assert not any("story 1" in line for line in lines)
    assert [line for line in lines if line.startswith("fencing: ")] == [
        *(f"fencing: loss {n}" for n in range(5)),
        "fencing: 25 more findings of the same kind",
    ]
    assert "  their stories: report.html, results.json" in lines


def test_single_finding_has_no_pointer_to_others() -> None:
    """The evidence of a single finding is shown, so no sentence says where other findings are."""
    shown = console(80)
    print_checks(shown, (violated(1),))
    assert not any("their stories" in line for line in lines_of(shown))


@pytest.mark.parametrize("width", WIDTHS)
def test_checks_fit_the_terminal(width: int) -> None:
    """On a narrow terminal the third column of the table of checks becomes lines of its own."""
    shown = console(width)
    passed = CheckReport(check="needless_rebalance", outcome=CheckOutcome.PASS, note="x " * 60)
    print_checks(shown, (passed, violated(2)))
    lines = lines_of(shown)
    assert max(map(len, lines)) <= width
    assert "1,234 appends acknowledged; 8 leader epochs" in " ".join(" ".join(lines).split())
