"""The first screen of a run's report: the verdict, four figures, and answers to questions.

The questions are "What broke?", "For whom?", "For how long?" and others. The answers depend on the
run: whether it had a fault, passed, was interrupted, and so on. Each function `page_...` below
makes up a run, and returns the first screen of its report as text. The docstring of the function
says what the text must make clear. The last test compares all texts and docstrings with
words/first_screens.txt, which a person has reviewed.

Times are microseconds, and S is a second.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from pipeline.report.facts import RunFacts, SettingFact
from pipeline.report.report_input import ReportInput
from pipeline.report.sections.headline import Headline, headline, verdict_of
from pipeline.summary.disturbances import Disturbance
from pipeline.summary.outcomes import Coordinators, OverlappingTenure, Owners, Rebalances
from results_schema.journal import FaultOutcome, LinkEnds
from results_schema.results import CheckOutcome, CheckReport, Finding, Verdict
from tests.support.builders.report_inputs import journal_entry, report_input, run_facts, run_summary
from tests.support.builders.report_rows import (
    GROUP,
    S,
    broker_phase,
    client_phase,
    fault_summary,
    gap,
    rebalances_of,
)
from tests.support.harness.golden import Golden, sections

CRASH = journal_entry(fired_at_us=10 * S, healed_at_us=35 * S, groups=(GROUP,))
PASSED = CheckReport(check="fencing", outcome=CheckOutcome.PASS)
# The check had three findings, and the run kept the first of them.
BROKEN = CheckReport(
    check="durable_commits",
    outcome=CheckOutcome.VIOLATED,
    findings=(Finding(check="durable_commits", summary="offset 7 was lost", time_us=20 * S),),
    findings_total=3,
)
# Nothing happened in the run by which this promise could have been broken.
IDLE = CheckReport(check="processing", outcome=CheckOutcome.NOTHING_SEEN)


def _failover(facts: RunFacts) -> ReportInput:
    """Return the input of a report about a crash with a failover of 8 s, which two members felt.

    `facts` are the facts about the run: its faults, checks, settings and status.
    """
    detect_us, publish_us, load_wait_us, load_us = 7_790_000, 30_000, 5_000, 5_000
    notice_us, rediscover_us, accept_us = 1_000, 7_900_000, 2_000
    tables: Mapping[str, Any] = {
        "broker_phases": [broker_phase(detect_us, publish_us, load_wait_us, load_us)],
        "client_phases": [
            client_phase("consumer-readers-0", notice_us, rediscover_us, accept_us),
            client_phase("consumer-readers-1", notice_us, rediscover_us, accept_us),
        ],
        "availability": [
            gap("member", "consumer-readers-0", gap_us=8_000_000),
            gap("member", "consumer-readers-1", gap_us=8_200_000),
            gap("group", GROUP, gap_us=7_830_000),
        ],
    }
    return report_input(facts, run_summary(faults=(fault_summary(tables),)), tables)


def _owners(**changes: object) -> Owners:
    """Return the entry about partitions with two owners at once; `changes` replace its fields.

    By default two members own twelve partitions from 10 s to 39 s, each assigned by another
    coordinator.
    """
    fields: dict[str, object] = {
        "group": GROUP,
        "partitions": 12,
        "first_coordinator": ("broker-2", 0),
        "first_consumers": ("consumer-0",),
        "second_coordinator": ("broker-0", 1),
        "second_consumers": ("consumer-1",),
        "from_us": 10 * S,
        "to_us": 39 * S,
        "longest_us": 29 * S,
        "records_both": 7,
        "healed_us": None,
    }
    return Owners(**(fields | changes))  # type: ignore[arg-type]  # a test may change any field


def _screens(*screens: Headline) -> str:
    """Return the words of first screens, from top to bottom.

    The tone of a verdict or figure is the colour that the page gives to it. It stands in brackets:
    `8.20 | s | longest gap (bad)`.
    """
    lines: list[str] = []
    for screen in screens:
        lines += [f"{screen.title} [{screen.verdict}: {screen.tone}]", *screen.notices]
        lines += [f"- {reason}" for reason in screen.more_reasons]
        for figure in screen.figures:
            parts = [figure.value, figure.unit, figure.label, figure.note]
            parts_with_text = " | ".join(part for part in parts if part)
            lines.append(f"{parts_with_text} ({figure.tone})")
        for question, answer in screen.answers:
            # Paragraphs become lines. All tags except <b> are removed.
            text = re.sub(r"<(?!/?b>)[^>]*>", "", re.sub(r"</p> ?<p>", "\n  ", answer))
            text = text.replace("\N{NO-BREAK SPACE}", " ")
            lines += [question, f"  {text.strip()}"]
        lines.append("")
    return "\n".join(lines)


def page_failover_answers_every_question() -> str:
    """The answers name target, members, duration, phase, and that no promise was broken."""
    screen = headline(_failover(run_facts(faults=(CRASH,), checks=(PASSED,))))
    return _screens(screen)


def test_headline_links_times_into_the_lanes() -> None:
    """A sentence that names a time is a link to the chart that shows what happened at that time."""
    screen = headline(_failover(run_facts(faults=(CRASH,), checks=(PASSED,))))
    answer = dict(screen.answers)["What broke?"]
    assert '<a href="#lane-faults" data-from="10.0" data-to="10.0">' in answer


def page_violation_names_the_promise_and_the_guard_that_was_off() -> str:
    """A violation that a guard prevents is no finding about unchanged Kafka."""
    guard = SettingFact(
        section="cluster.guards", name="high_watermark_gate", value="false", default="true"
    )
    facts = run_facts(
        faults=(CRASH,), checks=(PASSED, BROKEN), verdict=Verdict.VIOLATED, settings=(guard,)
    )
    screen = headline(_failover(facts))
    return _screens(screen)


def page_two_owners_says_who_and_that_kafka_allows_it() -> str:
    """Two owners are measured; Kafka promises only that one of them can commit."""
    owners = _owners(
        first_consumers=("consumer-readers-0", "consumer-readers-1"),
        second_consumers=("consumer-readers-6",),
        from_us=64 * S,
        to_us=93 * S,
        records_both=100,
        healed_us=91 * S,
    )
    run = _failover(run_facts(faults=(CRASH,), checks=(PASSED,)))
    summary = run_summary(faults=run.summary.faults, owners=(owners,))
    screen = headline(report_input(run.facts, summary))
    return _screens(screen)


def page_leaves_out_owners_within_the_clocks_error() -> str:
    """If the clocks of two machines differ, two owners in turn may look like two at once."""
    owners = _owners(
        partitions=1,
        second_coordinator=("broker-2", 0),  # the same coordinator assigned both
        from_us=64 * S,
        to_us=64 * S + 300,
        longest_us=300,
        records_both=0,
    )
    screen = headline(report_input(summary=run_summary(owners=(owners,), clock_error_us=1_000)))
    return _screens(screen)


def page_explains_two_coordinators() -> str:
    """The old one was cut off, still answered, and could not know its successor."""
    both = Coordinators(
        groups=(GROUP,),
        partition="__consumer_offsets-2",
        older=OverlappingTenure(
            broker="broker-2", leader_epoch=0, heartbeats=144, commits=0, commits_in_all=9
        ),
        newer=OverlappingTenure(
            broker="broker-0", leader_epoch=1, heartbeats=1, commits=2, commits_in_all=2
        ),
        from_us=19 * S,
        to_us=91 * S,
        older_end="unloaded",
        older_paused_us=0,
        older_cut_us=70 * S,
        older_last_commit_us=None,
        newer_first_commit_us=None,
    )
    run = _failover(run_facts(faults=(CRASH,), checks=(PASSED,)))
    summary = run_summary(faults=run.summary.faults, coordinators=(both,))
    screen = headline(report_input(run.facts, summary))
    return _screens(screen)


def page_without_faults_claims_no_gap() -> str:
    """Without a fault there is no gap to measure; the figures count the work of the run."""
    facts = run_facts(checks=(PASSED, IDLE), commits_acknowledged=500, records_produced=1_000)
    screen = headline(report_input(facts, None, {"groups": [{"group": GROUP, "consumers": 3}]}))
    return _screens(screen)


def page_missed_fault_is_unknown_and_says_why() -> str:
    """A fault that hit no node proves nothing, however quiet the run was."""
    missed = journal_entry(
        outcome=FaultOutcome.MISSED, nodes=(), fired_at_us=None, error="it is down"
    )
    reason = "crash-0 hit nothing: it is down"
    facts = run_facts(
        faults=(missed,), verdict=Verdict.UNKNOWN, reasons=(reason,), checks=(PASSED,)
    )
    screen = headline(report_input(facts))
    return _screens(screen)


def page_tool_failure_says_nothing_about_kafka() -> str:
    """Measurements of a broken tool are not shown as results."""
    facts = run_facts(
        faults=(CRASH,),
        checks=(BROKEN,),
        status="failed",
        verdict=Verdict.VIOLATED,
        reasons=("our bug",),
    )
    screen = headline(_failover(facts))
    return _screens(screen)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"status": "interrupted", "verdict": Verdict.UNKNOWN}, "INTERRUPTED"),
        ({"status": "interrupted", "verdict": Verdict.VIOLATED}, "VIOLATED"),
        ({"status": "killed", "verdict": None}, "KILLED"),
        ({"status": "running", "verdict": None}, "RUNNING"),
        ({"status": "completed", "verdict": None}, "NO VERDICT"),
        ({"status": "failed", "verdict": Verdict.PASS}, "TOOL FAILED"),
    ],
)
def test_verdict_of_a_run_that_did_not_complete_is_no_pass(
    changes: dict[str, Any], expected: str
) -> None:
    """Only a completed run passes.

    An interrupted run can still be VIOLATED, if it found a violation before. But if coordlab itself
    failed, nothing that the run found counts.
    """
    verdict, _ = verdict_of(run_facts(**changes))
    assert verdict == expected


def page_pass_above_two_owners_says_so_at_the_head() -> str:
    """A run that passed has the words of the terminal; a violated run shows its violation."""
    summary = run_summary(owners=(_owners(),))
    passed = headline(report_input(run_facts(verdict=Verdict.PASS, checks=(PASSED,)), summary))
    facts_of_violated = run_facts(verdict=Verdict.VIOLATED, checks=(BROKEN,))
    violated = headline(report_input(facts_of_violated, summary))
    return _screens(passed, violated)


def page_interrupted_run_says_where_its_trace_ends() -> str:
    """An open interval at the end may be open because the run ended there."""
    facts = run_facts(
        status="interrupted", verdict=Verdict.UNKNOWN, ended_at_us=0, losses=("a file",)
    )
    tables = {"runs": [{"end_us": 5_250_000}]}
    screen = headline(report_input(facts, run_summary(completed=False), tables))
    return _screens(screen)


def page_tells_a_rebalance_with_the_timeout_that_made_it() -> str:
    """The coordinator noticed the dead member when its session ended."""
    expiry = rebalances_of(consumers=("consumer-readers-0",))
    timeout = SettingFact(
        section=f"groups.{GROUP}.config", name="session.timeout.ms", value="45000", default="45000"
    )
    run = _failover(run_facts(faults=(CRASH,), checks=(PASSED,), settings=(timeout,)))
    (fault,) = run.summary.faults
    summary = run_summary(faults=(replace(fault, rebalances=(expiry,)),))
    screen = headline(report_input(run.facts, summary))
    return _screens(screen)


def page_cut_off_claims_nothing_of_what_it_did_not_see() -> str:
    """Four seconds into an outage, the lack of a rebalance or an election means nothing yet."""
    crash = structs.replace(CRASH, healed_at_us=14 * S, healed_by="end")
    timeout = SettingFact(
        section="cluster.config", name="broker.session.timeout.ms", value="9000", default="9000"
    )
    facts = run_facts(
        faults=(crash,),
        checks=(PASSED,),
        settings=(timeout,),
        status="interrupted",
        verdict=Verdict.UNKNOWN,
        ended_at_us=14 * S,
    )
    tables = {
        "client_phases": [client_phase("consumer-readers-0")],
        "availability": [
            gap("member", "consumer-readers-0", gap_us=None),
            gap("group", GROUP, gap_us=None),
        ],
    }
    summary = run_summary(faults=(fault_summary(tables),), completed=False)
    screen = headline(report_input(facts, summary, tables))
    return _screens(screen)


def page_cut_between_servers_says_that_clients_still_reach_it() -> str:
    """Clients that still reach a replaced coordinator let it serve on: this is a split brain."""
    cut = structs.replace(
        CRASH,
        fault="cut",
        links=LinkEnds(from_=("broker-2",), to=("broker-0", "controller-100")),
    )
    # The second cut separates the coordinator from one of its clients instead.
    cut_from_member = structs.replace(
        cut, links=LinkEnds(from_=("broker-2",), to=("consumer-readers-0",))
    )
    return _screens(
        headline(report_input(run_facts(faults=(cut,)))),
        headline(report_input(run_facts(faults=(cut_from_member,)))),
    )


def page_counts_members_that_came_later_apart() -> str:
    """A group of two members when the fault came, and of three in all, needs an explanation."""
    run = _failover(run_facts(faults=(CRASH,), checks=(PASSED,)))
    groups = [{"group": GROUP, "partition": "__consumer_offsets-2", "consumers": 3}]
    tables = {"groups": groups, "client_phases": run.tables.rows("client_phases")}
    screen = headline(report_input(run.facts, run.summary, tables))
    return _screens(screen)


def page_says_whose_the_longest_gap_is_if_it_was_hit_itself() -> str:
    """A member that was dead for a minute shows nothing about its group's service."""
    run = _failover(run_facts(faults=(CRASH,), checks=(PASSED,)))
    dead = structs.replace(CRASH, nodes=("consumer-readers-1",))
    screen = headline(replace(run, facts=run_facts(faults=(dead,), checks=(PASSED,))))
    return _screens(screen)


def test_headline_counts_each_reason_of_rebalances() -> None:
    """`join` beside a count of 2 would not say whether both rebalances were joins."""
    run = _failover(run_facts(faults=(CRASH,), checks=(PASSED,)))
    expiry, join = rebalances_of(), rebalances_of(reason="join", count=2, first_us=90 * S)
    (fault,) = run.summary.faults

    def note_below_the_count_of(*rebalances: Rebalances) -> str:
        summary = run_summary(faults=(replace(fault, rebalances=rebalances),))
        figures = headline(report_input(run.facts, summary)).figures
        return next(figure.note for figure in figures if figure.label.startswith("rebalance"))

    assert note_below_the_count_of(join, expiry) == (
        "after the fault; reasons: session expiry (1), join (2)"
    )
    assert note_below_the_count_of(join) == "after the fault; reason: join"


def page_names_the_fault_where_there_were_several() -> str:
    """In a run with several faults, such as a rolling restart, `the fault` would name none."""
    run = _failover(run_facts(faults=(CRASH, CRASH), checks=(PASSED,)))
    (fault,) = run.summary.faults
    other = replace(fault, fault="crash-1", measures=())
    tables = {"broker_phases": run.tables.rows("broker_phases")}
    screen = headline(report_input(run.facts, run_summary(faults=(fault, other)), tables))
    return _screens(screen)


def page_says_that_other_values_were_run_than_expected() -> str:
    """The command of this run changes a setting, so the experiment's expectation need not hold."""
    command = "python -m coordlab run a_run --var cluster.guards.high_watermark_gate=false"
    return _screens(headline(report_input(run_facts(replay=command))))


def test_headline_escapes_names_that_came_from_the_run() -> None:
    """The name of a group is free text, so it may contain characters with a meaning in HTML."""
    crash = journal_entry(groups=("<b>",))
    screen = headline(report_input(run_facts(faults=(crash,))))
    assert "&lt;b&gt;" in dict(screen.answers)["What broke?"]


def page_run_with_a_disturbed_machine_says_which_figures_prove_nothing() -> str:
    """The accident is no fault of the plan, and the marked figures are explained above them."""
    accident = journal_entry(
        fault_id="machine-0",
        fault="machine_disturbed",
        target="10.0.0.3",
        nodes=("broker-1", "consumer-readers-1"),
        note="machine 10.0.0.3 was disturbed from 12.1 to 24.3 s",
        fired_at_us=12_100_000,
        healed_at_us=24_300_000,
        groups=(),
        partitions=(),
    )
    run = _failover(run_facts(faults=(CRASH, accident), checks=(PASSED,)))
    (fault,) = run.summary.faults
    disturbed = Disturbance(
        from_us=12_100_000, until_us=24_300_000, sentence="machine 10.0.0.3 was disturbed"
    )
    # Only the gaps were measured while the machine was disturbed. The chain of a measure is the
    # group of figures to which the measure belongs: "broker", "client" or "gap".
    marked = tuple(
        (measure, replace(figures, disturbed=measure.chain == "gap"))
        for measure, figures in fault.measures
    )
    summary = replace(
        run.summary, faults=(replace(fault, measures=marked),), disturbances=(disturbed,)
    )
    return _screens(headline(replace(run, summary=summary)))


PAGES = (
    page_failover_answers_every_question,
    page_violation_names_the_promise_and_the_guard_that_was_off,
    page_two_owners_says_who_and_that_kafka_allows_it,
    page_leaves_out_owners_within_the_clocks_error,
    page_explains_two_coordinators,
    page_without_faults_claims_no_gap,
    page_missed_fault_is_unknown_and_says_why,
    page_tool_failure_says_nothing_about_kafka,
    page_pass_above_two_owners_says_so_at_the_head,
    page_interrupted_run_says_where_its_trace_ends,
    page_tells_a_rebalance_with_the_timeout_that_made_it,
    page_cut_off_claims_nothing_of_what_it_did_not_see,
    page_cut_between_servers_says_that_clients_still_reach_it,
    page_counts_members_that_came_later_apart,
    page_says_whose_the_longest_gap_is_if_it_was_hit_itself,
    page_names_the_fault_where_there_were_several,
    page_says_that_other_values_were_run_than_expected,
    page_run_with_a_disturbed_machine_says_which_figures_prove_nothing,
)


def test_first_screens_equal_the_reviewed_ones(golden: Golden) -> None:
    """Each kind of run has its verdict, notices, figures with their tones, answers."""
    golden.check("words/first_screens.txt", sections(PAGES))
