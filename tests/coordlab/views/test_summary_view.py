"""The summary that the terminal shows at the end of a run: what the faults did to the groups.

The terminal here is 80 columns wide. Each function `page_*` returns what the terminal shows for one
made-up run. A person has reviewed the file pages/summary.txt, which has all these texts, each below
the name and docstring of its function.

The summary has figures of each fault, such as these:

- `detect`: the time until the controller noticed that a broker was dead;
- `notice`: the time until the members noticed that the broker was dead;
- `commit gap`: the time between a member's last commit before the fault and its first commit after.

Names that end in `_us` are times in microseconds.
"""

import io
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from coordlab.views.summary_view import print_phases, print_summary
from pipeline.summary.disturbances import Disturbance
from pipeline.summary.felt import LAG_OVER, Felt, FeltGroup, Spread
from pipeline.summary.figures import (
    MEASURES,
    Chain,
    Distribution,
    FaultSummary,
    RunSummary,
    same_gaps,
)
from pipeline.summary.outcomes import (
    CommitErrors,
    Coordinators,
    GroupProcessing,
    OverlappingTenure,
    Owners,
    Rebalances,
    listed,
)
from pipeline.summary.story import check_figures
from results_schema.journal import FaultOutcome, JournalEntry
from results_schema.results import (
    OLD_EPOCH_ATTEMPTS,
    CheckOutcome,
    CheckReport,
    Results,
    RunOutcome,
    Verdict,
)
from tests.support.builders.past_runs import manifest
from tests.support.harness.golden import Golden, sections

S = 1_000_000  # a second in microseconds
WIDTH = 80
# The group begins with the six members OLD. The two members NEW join later.
OLD = tuple(f"consumer-orders-readers-{index}" for index in range(6))
NEW = ("consumer-orders-readers-6", "consumer-orders-readers-7")


def page(summary: RunSummary) -> str:
    """Return the printed figures of a run."""
    shown = io.StringIO()
    print_phases(Console(file=shown, width=WIDTH, no_color=True), summary)
    return shown.getvalue()


def run_summary(
    *faults: FaultSummary,
    coordinators: tuple[Coordinators, ...] = (),
    owners: tuple[Owners, ...] = (),
    processing: tuple[GroupProcessing, ...] = (),
    commit_errors: tuple[CommitErrors, ...] = (),
    clock_error_us: int = 0,
) -> RunSummary:
    """Return the figures of a run; a list that is not given is empty."""
    return RunSummary(
        run="x/1",
        directory=Path("x/1"),
        events=1,
        completed=True,
        clock_error_us=clock_error_us,
        bad_rows=(),
        unreadable=(),
        faults=faults,
        coordinators=coordinators,
        owners=owners,
        processing=processing,
        commit_errors=commit_errors,
    )


def fault_summary(
    name: str = "crash-0",
    *,
    moved: int = 0,
    members: int = 6,
    kept: int = 6,
    kept_id: int = 6,
    healed_us: int | None = None,
    left_after: tuple[tuple[int, int], ...] = (),
    told_by_old: int = 0,
    values: dict[str, int] | None = None,
    rebalances: tuple[Rebalances, ...] = (),
) -> FaultSummary:
    """Return the figures of a crash of broker-2 at 11.25 s.

    moved: number of offsets partitions that got another leader.
    kept_id: number of members that kept their member id.
    kept: number of members that kept both their member id and their generation.
    left_after: pairs (timeouts, members). The pair (2, 5) says: five members left the coordinator
        when two of their commits had timed out.
    told_by_old: number of members that asked the old coordinator who their coordinator is, and were
        told that it still is this broker.
    values: figures by name, such as {"detect": 7_790_000}; other figures are left out.
    """
    given = values or {}
    return FaultSummary(
        fault=name,
        kind="crash",
        target=None,
        node="broker-2",
        injected_us=11_250_000,
        healed_us=healed_us,
        partitions_moved=moved,
        members=members,
        members_kept=kept,
        members_kept_id=kept_id,
        left_after=left_after,
        told_by_old=told_by_old,
        measures=tuple(
            (measure, distribution_of(given[measure.name]))
            for measure in MEASURES
            if measure.name in given
        ),
        rebalances=rebalances,
    )


def distribution_of(value: int) -> Distribution:
    """Return the distribution of a single value."""
    return Distribution(samples=1, missing=0, percentiles={50: value}, maximum=value)


def rebalances(**changes: object) -> Rebalances:
    """Return one rebalance, in which a dead member is evicted; `changes` replace fields."""
    values: dict[str, object] = {
        "group": "orders-readers",
        "broker": "broker-1",
        "leader_epoch": 3,
        "reason": "session expiry",
        "count": 1,
        "consumers": OLD[:1],
        "removed": OLD[:1],
        "removed_because": ("session expiry",),
        "added": (),
        "generations": (1, 2),
        "not_stored": 0,
        "store_errors": (),
        "first_us": 56 * S,
        "last_us": 56 * S,
        "after_us": 45 * S,
        "longest_us": 992_000,
    }
    return Rebalances(**(values | changes))  # type: ignore[arg-type]


def coordinators() -> Coordinators:
    """Return two coordinators of the same group from 19.08 to 91.635 s.

    The older coordinator was cut off, so it did not notice that it had been replaced.
    """
    return Coordinators(
        groups=("orders-readers",),
        partition="__consumer_offsets-2",
        older=OverlappingTenure(
            broker="broker-2", leader_epoch=0, heartbeats=144, commits=0, commits_in_all=264
        ),
        newer=OverlappingTenure(
            broker="broker-0", leader_epoch=1, heartbeats=18, commits=1, commits_in_all=604
        ),
        from_us=19_080_000,
        to_us=91_635_000,
        older_end="unloaded",
        older_paused_us=0,
        older_cut_us=72_170_000,
        older_last_commit_us=11_153_000,
        newer_first_commit_us=21_584_000,
    )


def owners(*, to_us: int | None = 93_214_000, longest_us: int = 29_133_000) -> Owners:
    """Return an overlap in which twelve partitions had two owners each.

    `to_us` is its end. None means that it lasted until the run's end.
    """
    return Owners(
        group="orders-readers",
        partitions=12,
        first_coordinator=("broker-2", 0),
        first_consumers=OLD,
        second_coordinator=("broker-0", 1),
        second_consumers=NEW,
        from_us=64_081_000,
        to_us=to_us,
        longest_us=longest_us,
        records_both=4_674,
        healed_us=91_250_000,
    )


def page_rebalance_of_a_member_crash_reads_as_its_reason() -> str:
    """The reason names the evicted member, so a second line is not needed."""
    return page(run_summary(fault_summary(kept=0, kept_id=5, rebalances=(rebalances(),))))


def page_rebalances_before_and_after_the_healing_are_separate_lines() -> str:
    """A killed member's eviction, and its return: only one of them follows from its death."""
    back = rebalances(reason="join", removed=(), first_us=71_250_523, after_us=60_000_523)
    return page(run_summary(fault_summary(healed_us=71_250_000, rebalances=(rebalances(), back))))


def page_wait_of_members_for_a_silent_coordinator_is_explained() -> str:
    """A pause: the new coordinator is ready, but members wait for the answer of the old one."""
    waited = {"notice": 20_080_000, "longest wait": 19_980_000}
    soon = run_summary(fault_summary(moved=1, values={"notice": 500, "longest wait": 400}))
    short = run_summary(fault_summary(moved=1, values=waited | {"longest wait": 2_000_000}))
    return "\n".join(
        (page(run_summary(fault_summary(moved=1, values=waited))), page(soon), page(short))
    )


def page_members_whose_commits_timed_out_are_counted_by_when_they_left() -> str:
    """A split: the second timeout makes them leave, unless the cut broker names itself again."""
    left = fault_summary(
        moved=1,
        left_after=((2, 5), (3, 1)),
        told_by_old=1,
        values={"notice": 5_100_000, "longest wait": 5_000_000},
    )
    return page(run_summary(left))


def page_columns_that_say_nothing_are_left_out() -> str:
    """Two offsets partitions have no 90th percentile, and no missing values."""
    return page(run_summary(fault_summary(moved=2, values={"detect": 7_790_000})))


def page_rebalance_that_costs_others_names_them_and_why() -> str:
    """MEASURED_FAILOVER two-owners: a join begins the rebalance, six sessions end in it."""
    join = rebalances(reason="join", consumers=NEW[:1], removed=OLD, added=NEW)
    return page(run_summary(fault_summary(rebalances=(join,))))


def page_rebalances_that_cannot_be_stored_are_summed_up() -> str:
    """Thirteen generations every five seconds are one line, not thirteen."""
    stuck = rebalances(
        reason="assignment not stored",
        count=13,
        removed=(),
        generations=(2, 14),
        last_us=116 * S,
        not_stored=12,
        store_errors=("REQUEST_TIMED_OUT",),
        longest_us=None,
    )
    return page(run_summary(fault_summary(rebalances=(stuck,))))


def page_split_brain_has_both_sides_to_the_millisecond() -> str:
    """Tenures, owners, the records of both sides and the end after healing are shown."""
    summary = run_summary(
        fault_summary(),
        coordinators=(coordinators(),),
        owners=(owners(),),
        processing=(GroupProcessing(group="orders-readers", records=29_827, repeated=18_711),),
        commit_errors=(CommitErrors(error="REQUEST_TIMED_OUT", commits=31, members=12),),
    )
    return page(summary)


def page_owners_at_the_end_of_the_run_have_no_end() -> str:
    """No healing is named, because none ended it."""
    return page(run_summary(owners=(owners(to_us=None),)))


def page_owners_for_less_than_the_clocks_error_are_left_out() -> str:
    """On several machines a handover may look like an overlap that never was."""
    return page(run_summary(owners=(owners(longest_us=900),), clock_error_us=1_000))


def page_run_in_which_nothing_happened_prints_nothing_of_it() -> str:
    """Empty sections are left out: a missed fault, no duplicates, one coordinator at a time."""
    quiet = (GroupProcessing(group="orders-readers", records=10, repeated=0),)
    return page(run_summary(processing=quiet))


def page_figures_of_a_disturbed_time_are_marked() -> str:
    """The load came before the machine was away; the gap, the rebalance and the owners did not."""
    fault = fault_summary(
        moved=1,
        values={"load": 5_000, "commit gap": 9_300_000},
        rebalances=(rebalances(disturbed=True),),
    )
    marked = tuple(
        (measure, replace(found, disturbed=measure.chain == "gap"))
        for measure, found in fault.measures
    )
    summary = run_summary(
        replace(fault, measures=marked), owners=(replace(owners(), disturbed=True),)
    )
    sentence = "machine 10.0.0.3 was disturbed from 12.1 to 24.3 s"
    away = Disturbance(from_us=12_100_000, until_us=24_300_000, sentence=sentence)
    return page(replace(summary, disturbances=(away,)))


def page_many_faults_are_a_line_each() -> str:
    """A rolling restart has one failover per broker: three pages of phases would be too long."""
    values = {"detect": 158, "notice": 51_200, "no coordinator": 6_740, "commit gap": 691_000}
    faults = [fault_summary(f"controlled_shutdown-{n}", moved=1, values=values) for n in range(3)]
    return page(run_summary(*faults))


def five_crashes() -> list[FaultSummary]:
    """Return five crashes; crash-1 to crash-3 happened in the same commit gap of 154.45 s.

    Their processing gaps differ by a millisecond.
    """
    commit_gaps_us = (300_000, 154_450_000, 154_450_000, 154_450_000, 0)
    return [
        fault_summary(
            f"crash-{index}", values={"commit gap": gap_us, "processing gap": 1_000 * index}
        )
        for index, gap_us in enumerate(commit_gaps_us)
    ]


def test_gaps_are_merged_if_they_are_equal_and_long_enough() -> None:
    """Of three crashes with the same gap, the second and the third refer to the first, crash-1.

    Gaps of length 0 are not merged, nor are gaps that differ by a millisecond.
    """
    faults = five_crashes()
    assert same_gaps(faults, "commit gap") == {"crash-2": "crash-1", "crash-3": "crash-1"}
    assert same_gaps(faults, "processing gap") == {}


def page_gap_around_several_faults_is_one_gap() -> str:
    """Five crashes in one gap are not five gaps of its length."""
    return page(run_summary(*five_crashes()))


@pytest.mark.parametrize("chain", ["broker", "client", "gap"])
def test_every_line_fits_eighty_columns(chain: Chain) -> None:
    """Long names and lists are wrapped, but a unit stays with its number."""
    values = {measure.name: 123_456_789 for measure in MEASURES if measure.chain == chain}
    summary = run_summary(
        fault_summary(moved=1, values=values, rebalances=(rebalances(removed=OLD, added=NEW),)),
        coordinators=(coordinators(),),
        owners=(owners(),),
        commit_errors=tuple(
            CommitErrors(error="COORDINATOR_NOT_AVAILABLE", commits=1_613, members=12)
            for _ in range(9)
        ),
    )
    lines = page(summary).splitlines()
    assert max(len(line.rstrip()) for line in lines) <= WIDTH
    # If a line begins with a unit, the unit was separated from its number.
    first_words = [line.split()[0] for line in lines if line.strip()]
    assert not {"s", "ms"} & set(first_words)
    assert "others 1,613" in page(summary)


def test_names_are_sorted_by_their_numbers() -> None:
    """consumer-10 comes after consumer-9; names without a number are sorted as text."""
    names = ("c-10", "c-2", "c-9", "admin", "c-1", "b-007")
    assert listed(names) == "admin, b-007, c-1 and 2, c-9 and 10"
    # Numbers that do not follow each other are not joined, and of many names only four are listed.
    even_names = ("c-0", "c-2", "c-4", "c-6", "c-8", "c-10")
    assert listed(even_names) == "c-0, c-2, c-4, c-6 and 2 more"
    assert listed(()) == ""


def summary_page(
    *faults: JournalEntry,
    checks: tuple[CheckReport, ...] = (),
    verdict: Verdict = Verdict.UNKNOWN,
    phases: RunSummary | None = None,
) -> str:
    """Return the whole printed summary; `phases` are the figures in it."""
    shown = io.StringIO()
    results = Results(
        outcome=RunOutcome.COMPLETED,
        verdict=verdict,
        exit_code=2,
        checks=checks,
        faults=faults,
    )
    console = Console(file=shown, width=WIDTH, no_color=True)
    print_summary(console, manifest(), results, phases)
    return shown.getvalue()


def page_fault_that_missed_says_when_and_why() -> str:
    """`-> nobody` alone would not show the reason."""
    missed = JournalEntry(
        fault_id="crash-0",
        fault="crash",
        target="coordinator-of(g)",
        duration_us=None,
        outcome=FaultOutcome.MISSED,
        fired_at_us=11 * S,
        error="broker 2 is not alive",
    )
    never = JournalEntry(fault_id="cut-1", fault="cut", target="a <-> b", duration_us=None)
    return summary_page(missed, never)


def page_fault_that_was_undone_with_trouble_says_so() -> str:
    """A broker that had to be killed did not stop in a controlled way."""
    entry = JournalEntry(
        fault_id="controlled_shutdown-0",
        fault="controlled_shutdown",
        target="broker(2)",
        duration_us=None,
        outcome=FaultOutcome.HIT,
        fired_at_us=11 * S,
        healed_at_us=50 * S,
        nodes=("broker-2",),
        note="broker-2 was still stopping 30 s later, and was killed",
    )
    return summary_page(entry)


def page_pass_has_its_caveat_on_the_same_line() -> str:
    """Half a minute of two owners must not be hidden behind a bare PASS."""
    return summary_page(verdict=Verdict.PASS, phases=run_summary(owners=(owners(),)))


def page_broken_promise_needs_no_caveat() -> str:
    return summary_page(verdict=Verdict.VIOLATED, phases=run_summary(owners=(owners(),)))


def page_felt_effects_are_one_section_of_two_parts() -> str:
    """After the fault and over the whole run: readers took two equal headings for a mistake."""
    fault = fault_summary(values={"commit gap": 8 * S, "load wait": 0, "detect": 7 * S}, moved=1)
    spread = Spread(samples=12, missing=0, p50=0, p90=2 * S, maximum=3 * S, total=9 * S)
    group = FeltGroup(
        partitions=12,
        rebalances=0,
        moved=0,
        came_back=0,
        sent_away=0,
        spreads={"no processing despite records": spread},
    )
    felt = Felt(in_all=group, groups={"g": group})
    return page(replace(run_summary(fault), felt=felt))


def page_partitions_that_lag_to_the_end_have_a_sentence() -> str:
    """A run that ends too early looks like one that recovered."""
    spread = Spread(samples=4, missing=2, p50=S, p90=None, maximum=2 * S, total=None)
    group = FeltGroup(
        partitions=6, rebalances=0, moved=0, came_back=0, sent_away=0, spreads={LAG_OVER: spread}
    )
    felt = Felt(in_all=group, groups={"g": group})
    return page(replace(run_summary(), felt=felt))


def page_check_has_its_counts_and_the_longest_time() -> str:
    """Zeros are left out unless they are the result; times are shown elsewhere."""
    report = CheckReport(
        check="ownership",
        outcome=CheckOutcome.PASS,
        seen={"partitions_assigned_in_all_generations": 36, "overlaps": 0, "odd_cases": 0},
        measured={
            "overlaps": 0,
            "longest_overlap_ms": 29_133,
            "first_overlap_began_us": 64_081_000,
        },
    )
    return summary_page(checks=(report,))


def page_check_that_judged_nothing_prints_no_zero() -> str:
    """`0 needless rebalances` where no failover was judged would prove nothing."""
    report = CheckReport(
        check="needless_rebalance",
        outcome=CheckOutcome.NOTHING_SEEN,
        seen={"failovers_of_a_stable_group": 0, "needless_rebalances": 0},
        note="no fault on servers met a Stable group",
    )
    return summary_page(checks=(report,))


def test_passed_check_names_the_meaning_of_its_zeros() -> None:
    """The word `needless` matters: `0 rebalances` would look wrong if two rebalances happened."""
    needless = CheckReport(
        check="needless_rebalance",
        outcome=CheckOutcome.PASS,
        seen={"failovers_of_a_stable_group": 1, "needless_rebalances": 0},
    )
    fencing = CheckReport(
        check="fencing", outcome=CheckOutcome.PASS, seen={"leader_epochs": 8, OLD_EPOCH_ATTEMPTS: 0}
    )
    assert check_figures(needless) == ["1 failover of a stable group", "0 needless rebalances"]
    assert check_figures(fencing) == [
        "8 leader epochs",
        "0 attempts by an older epoch after a newer one was elected",
    ]


def page_one_of_a_kind_is_no_plural() -> str:
    """`1 groups` looks like a miscount."""
    seen = {"leader_epochs": 1, "fetches_judged": 1, "groups": 1, "acknowledged_before": 1}
    needless = CheckReport(
        check="needless_rebalance", outcome=CheckOutcome.PASS, seen={"needless_rebalances": 1}
    )
    liveness = CheckReport(check="liveness", outcome=CheckOutcome.PASS, seen=seen)
    return summary_page(checks=(liveness, needless))


PAGES = (
    page_rebalance_of_a_member_crash_reads_as_its_reason,
    page_rebalances_before_and_after_the_healing_are_separate_lines,
    page_wait_of_members_for_a_silent_coordinator_is_explained,
    page_members_whose_commits_timed_out_are_counted_by_when_they_left,
    page_columns_that_say_nothing_are_left_out,
    page_rebalance_that_costs_others_names_them_and_why,
    page_rebalances_that_cannot_be_stored_are_summed_up,
    page_split_brain_has_both_sides_to_the_millisecond,
    page_owners_at_the_end_of_the_run_have_no_end,
    page_owners_for_less_than_the_clocks_error_are_left_out,
    page_run_in_which_nothing_happened_prints_nothing_of_it,
    page_figures_of_a_disturbed_time_are_marked,
    page_many_faults_are_a_line_each,
    page_gap_around_several_faults_is_one_gap,
    page_fault_that_missed_says_when_and_why,
    page_fault_that_was_undone_with_trouble_says_so,
    page_pass_has_its_caveat_on_the_same_line,
    page_broken_promise_needs_no_caveat,
    page_felt_effects_are_one_section_of_two_parts,
    page_partitions_that_lag_to_the_end_have_a_sentence,
    page_check_has_its_counts_and_the_longest_time,
    page_check_that_judged_nothing_prints_no_zero,
    page_one_of_a_kind_is_no_plural,
)


def test_pages_equal_the_reviewed_ones(golden: Golden) -> None:
    """A person reviews each change of an output, as its users will see it."""
    golden.check("pages/summary.txt", sections(PAGES))
