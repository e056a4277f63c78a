"""The first screen: what it answers for each kind of run, and which four figures it shows."""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from pipeline.report.facts import RunFacts, SettingFact
from pipeline.report.report_input import ReportInput
from pipeline.report.sections.headline import Headline, headline, verdict_of
from pipeline.summary.outcomes import Coordinators, Office, Owners, Rebalances
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

CRASH = journal_entry(fired_at_us=10 * S, healed_at_us=35 * S, groups=(GROUP,))
PASSED = CheckReport(check="fencing", outcome=CheckOutcome.PASS)
BROKEN = CheckReport(
    check="durable_commits",
    outcome=CheckOutcome.VIOLATED,
    findings=(Finding(check="durable_commits", summary="offset 7 was lost", time_us=20 * S),),
    findings_total=3,
)
IDLE = CheckReport(check="processing", outcome=CheckOutcome.NOTHING_SEEN)


def _failover(facts: RunFacts) -> ReportInput:
    """A crash whose failover took 8 s and was felt by two members."""
    tables: Mapping[str, Any] = {
        "broker_phases": [broker_phase(7_790_000, 30_000, 5_000, 5_000)],
        "client_phases": [
            client_phase("consumer-readers-0", 1_000, 7_900_000, 2_000),
            client_phase("consumer-readers-1", 1_000, 7_900_000, 2_000),
        ],
        "availability": [
            gap("member", "consumer-readers-0", 8_000_000),
            gap("member", "consumer-readers-1", 8_200_000),
            gap("group", GROUP, 7_830_000),
        ],
    }
    return report_input(facts, run_summary(faults=(fault_summary(tables),)), tables)


def _text(first: Headline, question: str) -> str:
    """Return the answer to a question as plain text."""
    said = dict(first.answers).get(question, "")
    text = re.sub(r"<[^>]*>", "", re.sub(r"</p> ?<p>", " ", said))
    return " ".join(text.replace("\N{NO-BREAK SPACE}", " ").split())


def _figures(first: Headline) -> list[str]:
    return [f"{each.value} {each.unit} {each.label}".replace("  ", " ") for each in first.figures]


def test_headline_of_a_failover_answers_every_question() -> None:
    """The reader knows what was hit, whom, how long, in which phase, and that no promise broke."""
    first = headline(_failover(run_facts(faults=(CRASH,), checks=(PASSED,))))
    assert (first.verdict, first.tone) == ("PASS", "good")
    what = "broker-2, the coordinator of readers, was killed (kill -9) at 10.000 s"
    assert _text(first, "What broke?") == f"{what} and started again 25.00 s later."
    assert _text(first, "For whom?").startswith("Group readers (2 members).")
    assert "for up to 8.20 s (median 8.00 s of 2 members)" in _text(first, "For how long?")
    assert "nearly all of it until the controller noticed (detect): 7.79 s" in _text(first, "Why?")
    assert _text(first, "Was a promise broken?") == "No: the only check passed."
    assert _figures(first) == [
        "8.20 s longest time without an acknowledged commit",
        "7.83 s without an active coordinator",
        "0 rebalances",
        "2 of 2 members kept their member id and generation",
    ]


def test_headline_links_moments_into_the_lanes() -> None:
    """A sentence is proven by what the lanes show at its moment."""
    first = headline(_failover(run_facts(faults=(CRASH,), checks=(PASSED,))))
    lines = dict(first.answers)["What broke?"]
    assert '<a href="#lane-faults" data-from="10.0" data-to="10.0">' in lines


def test_headline_of_a_violation_names_the_promise_and_the_guard_that_was_off() -> None:
    """What the guard prevents is no finding about Kafka as it is."""
    guard = SettingFact(
        section="cluster.guards", name="high_watermark_gate", value="false", default="true"
    )
    facts = run_facts(
        faults=(CRASH,), checks=(PASSED, BROKEN), verdict=Verdict.VIOLATED, settings=(guard,)
    )
    first = headline(_failover(facts))
    said = _text(first, "Was a promise broken?")
    assert (first.verdict, first.tone) == ("VIOLATED", "bad")
    assert said.startswith(
        "Yes: 1 of 2 checks found one violated: durable commits, with 3 findings"
    )
    assert "offset 7 was lost" in said
    assert "high_watermark_gate switched off: Kafka itself does not behave so" in said
    assert _figures(first)[0] == "3 findings against 1 promise"


def test_headline_of_two_owners_says_who_and_that_kafka_allows_it() -> None:
    """Two owners are measured; what Kafka promises is that only one of them can commit."""
    owners = Owners(
        group=GROUP,
        partitions=12,
        first_coordinator=("broker-2", 0),
        first_consumers=("consumer-readers-0", "consumer-readers-1"),
        second_coordinator=("broker-0", 1),
        second_consumers=("consumer-readers-6",),
        from_us=64 * S,
        to_us=93 * S,
        longest_us=29 * S,
        records_both=100,
        healed_us=91 * S,
    )
    run = _failover(run_facts(faults=(CRASH,), checks=(PASSED,)))
    summary = run_summary(faults=run.summary.faults, owners=(owners,))
    first = headline(report_input(run.facts, summary))
    assert _figures(first)[0] == "29.00 s two owners at once"
    told = _text(first, "For how long?")
    assert "12 partitions of readers had two owners at once for up to 29.00 s" in told
    assert "consumer-readers-0 and 1, then also consumer-readers-6" in told
    assert "no violation by itself" in _text(first, "Was a promise broken?")


def test_headline_leaves_out_owners_within_the_clocks_error() -> None:
    """Two machines' clocks may make two owners of one after the other."""
    owners = Owners(
        group=GROUP,
        partitions=1,
        first_coordinator=("broker-2", 0),
        first_consumers=("consumer-readers-0",),
        second_coordinator=("broker-2", 0),
        second_consumers=("consumer-readers-1",),
        from_us=64 * S,
        to_us=64 * S + 300,
        longest_us=300,
        records_both=0,
        healed_us=None,
    )
    first = headline(report_input(summary=run_summary(owners=(owners,), clock_error_us=1_000)))
    assert "two owners" not in _text(first, "For how long?")


def test_headline_explains_two_coordinators() -> None:
    """The old one was cut off, answered on, and could not know better."""
    both = Coordinators(
        groups=(GROUP,),
        partition="__consumer_offsets-2",
        older=Office(
            broker="broker-2", leader_epoch=0, heartbeats=144, commits=0, commits_in_all=9
        ),
        newer=Office(broker="broker-0", leader_epoch=1, heartbeats=1, commits=2, commits_in_all=2),
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
    first = headline(report_input(run.facts, summary))
    assert _figures(first)[0] == "72.00 s two coordinators at once"
    assert "answered 144 heartbeats with success and acknowledged no commit" in _text(first, "Why?")


def test_headline_of_a_run_without_faults_claims_no_gap() -> None:
    """There is nothing to measure, and the figures count what went on."""
    facts = run_facts(checks=(PASSED, IDLE), commits_acknowledged=500, records_produced=1_000)
    first = headline(report_input(facts, None, {"groups": [{"group": GROUP, "consumers": 3}]}))
    assert _text(first, "What broke?") == "Nothing: this run has no faults."
    assert _text(first, "For whom?") == "Nobody. 1 group with 3 members went about their work."
    assert "Why?" not in dict(first.answers)
    assert "No: 1 check passed, 1 was not put to the test: processing." in _text(
        first, "Was a promise broken?"
    )
    assert _figures(first)[:2] == [
        "1 of 2 checks passed, 1 not put to the test",
        "500 commits acknowledged",
    ]


def test_headline_of_a_missed_fault_is_unknown_and_says_why() -> None:
    """A fault that hit nobody proves nothing, however quiet the run was."""
    missed = journal_entry(
        outcome=FaultOutcome.MISSED, nodes=(), fired_at_us=None, error="it is down"
    )
    reason = "crash-0 hit nothing: it is down"
    facts = run_facts(
        faults=(missed,), verdict=Verdict.UNKNOWN, reasons=(reason,), checks=(PASSED,)
    )
    first = headline(report_input(facts))
    assert (first.verdict, first.tone) == ("UNKNOWN", "warn")
    assert "hit nothing: it is down" in _text(first, "What broke?")
    assert first.notices[0] == f"This run proves nothing. Reason: {reason}."
    assert _text(first, "Was a promise broken?").startswith("Not known: no check found one")
    assert _figures(first)[0] == "0 of 1 faults hit"
    assert first.figures[0].note == "1 hit nothing"


def test_headline_of_a_tool_failure_says_nothing_about_kafka() -> None:
    """What was measured until then was measured with a broken tool: it is not told as a result."""
    facts = run_facts(
        faults=(CRASH,),
        checks=(BROKEN,),
        status="failed",
        verdict=Verdict.VIOLATED,
        reasons=("our bug",),
    )
    first = headline(_failover(facts))
    assert (first.verdict, first.tone) == ("TOOL FAILED", "warn")
    assert "says nothing about Kafka" in _text(first, "Was a promise broken?")
    assert not {"For how long?", "Why?"} & set(dict(first.answers))
    assert not any("finding" in figure or "commit" in figure for figure in _figures(first))
    assert "our bug" in first.notices


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
def test_verdict_of_a_run_that_ended_badly_is_no_pass(
    changes: dict[str, Any], expected: str
) -> None:
    """Only a run that came to its end passes; a violation stays one however the run ended."""
    assert verdict_of(run_facts(**changes))[0] == expected


def test_pass_above_two_owners_says_so_at_the_head() -> None:
    """In the words of the terminal; a violated run has worse to say there."""
    both = Owners(
        group=GROUP,
        partitions=12,
        first_coordinator=("broker-2", 0),
        first_consumers=("consumer-0",),
        second_coordinator=("broker-0", 1),
        second_consumers=("consumer-1",),
        from_us=10 * S,
        to_us=39 * S,
        longest_us=29 * S,
        records_both=7,
        healed_us=None,
    )
    summary = run_summary(owners=(both,))
    passed = headline(report_input(run_facts(verdict=Verdict.PASS, checks=(PASSED,)), summary))
    broken = headline(report_input(run_facts(verdict=Verdict.VIOLATED, checks=(BROKEN,)), summary))
    assert passed.notices == (
        f"PASS, and two members owned 12 partitions of {GROUP} at once, the longest for 29.00 s: "
        "no promise forbids it here.",
    )
    assert not any("no promise forbids" in notice for notice in broken.notices)


def test_headline_of_an_interrupted_run_says_where_its_trace_ends() -> None:
    """What stands open at the end may be open because the run ended there."""
    facts = run_facts(
        status="interrupted", verdict=Verdict.UNKNOWN, ended_at_us=0, losses=("a file",)
    )
    tables = {"runs": [{"end_us": 5_250_000}]}
    first = headline(report_input(facts, run_summary(completed=False), tables))
    assert first.notices[0].endswith("its trace ends at 5.250 s of the run's clock.")
    assert "a file" in first.notices


def test_headline_tells_a_rebalance_with_the_timeout_that_made_it() -> None:
    """Who noticed a dead member: the coordinator, when its session was over."""
    expiry = rebalances_of(consumers=("consumer-readers-0",))
    timeout = SettingFact(
        section=f"groups.{GROUP}.config", name="session.timeout.ms", value="45000", default="45000"
    )
    run = _failover(run_facts(faults=(CRASH,), checks=(PASSED,), settings=(timeout,)))
    (fault,) = run.summary.faults
    summary = run_summary(faults=(replace(fault, rebalances=(expiry,)),))
    first = headline(report_input(run.facts, summary))
    assert (
        "1 rebalance: session expiry of consumer-readers-0, 45.00 s after the fault "
        "(session.timeout.ms = 45000, from the last heartbeat on)."
    ) in _text(first, "Why?")


def test_headline_of_a_run_cut_off_claims_nothing_of_what_it_did_not_see() -> None:
    """Four seconds into an outage no rebalance is no success, and no leader elected no mystery."""
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
        "availability": [gap("member", "consumer-readers-0", None), gap("group", GROUP, None)],
    }
    summary = run_summary(faults=(fault_summary(tables),), completed=False)
    first = headline(report_input(facts, summary, tables))
    assert "and was down until the run was cut off." in _text(first, "What broke?")
    assert "1 member had no acknowledged commit again when the run was cut off, 4.00 s after" in (
        _text(first, "For how long?")
    )
    assert _text(first, "Why?").startswith(
        "The controller had elected no new leader for the partitions of broker-2 when the run was "
        "cut off, 4.00 s after the fault; it fences a broker 9.00 s after its last heartbeat"
    )
    assert "No rebalance until the run was cut off" in _text(first, "Why?")
    assert "1 of 1 member still without an acknowledged commit" in _figures(first)
    assert not any(each.tone == "good" for each in first.figures)


def test_headline_of_a_cut_between_servers_says_that_clients_still_reach_it() -> None:
    """That is what lets a replaced coordinator serve on: the split brain itself."""
    cut = structs.replace(
        CRASH,
        fault="cut",
        links=LinkEnds(from_=("broker-2",), to=("broker-0", "controller-100")),
    )
    told = _text(headline(report_input(run_facts(faults=(cut,)))), "What broke?")
    assert "was cut off from broker-0 and controller-100, not from clients, from 10.000 s" in told
    member = structs.replace(cut, links=LinkEnds(from_=("broker-2",), to=("consumer-readers-0",)))
    told = _text(headline(report_input(run_facts(faults=(member,)))), "What broke?")
    assert "not from clients" not in told


def test_headline_counts_members_that_came_later_apart() -> None:
    """Eight owners in a group of six would be a riddle."""
    run = _failover(run_facts(faults=(CRASH,), checks=(PASSED,)))
    groups = [{"group": GROUP, "partition": "__consumer_offsets-2", "consumers": 3}]
    tables = {"groups": groups, "client_phases": run.tables.rows("client_phases")}
    first = headline(report_input(run.facts, run.summary, tables))
    told = _text(first, "For whom?")
    assert told == "Group readers (2 members when the fault came; 3 took part in the run)."


def test_headline_says_whose_the_longest_gap_is_if_it_was_hit_itself() -> None:
    """A member that was dead for a minute says nothing about its group's service."""
    run = _failover(run_facts(faults=(CRASH,), checks=(PASSED,)))
    dead = structs.replace(CRASH, nodes=("consumer-readers-1",))
    first = headline(replace(run, facts=run_facts(faults=(dead,), checks=(PASSED,))))
    told = _text(first, "For how long?")
    assert "The longest is that of consumer-readers-1, which was hit itself." in told
    assert "which was hit itself" not in _text(headline(run), "For how long?")


def test_headline_gives_each_reason_of_rebalances_its_number() -> None:
    """`join` beside a 2 leaves open whether both were."""
    run = _failover(run_facts(faults=(CRASH,), checks=(PASSED,)))
    expiry, join = rebalances_of(), rebalances_of(reason="join", count=2, first_us=90 * S)
    (fault,) = run.summary.faults

    def note(*rebalances: Rebalances) -> str:
        summary = run_summary(faults=(replace(fault, rebalances=rebalances),))
        figures = headline(report_input(run.facts, summary)).figures
        return next(each.note for each in figures if each.label.startswith("rebalance"))

    assert note(join, expiry) == "after the fault; reasons: session expiry (1), join (2)"
    assert note(join) == "after the fault; reason: join"


def test_headline_names_the_fault_where_there_were_several() -> None:
    """`The fault` of a rolling restart is any of three."""
    run = _failover(run_facts(faults=(CRASH, CRASH), checks=(PASSED,)))
    (fault,) = run.summary.faults
    other = replace(fault, fault="crash-1", measures=())
    tables = {"broker_phases": run.tables.rows("broker_phases")}
    first = headline(report_input(run.facts, run_summary(faults=(fault, other)), tables))
    assert "was the active coordinator 7.83 s after crash-0, nearly all" in _text(first, "Why?")


def test_headline_says_that_other_values_were_run_than_expected() -> None:
    """`The verdict is pass` under VIOLATED reads like a mistake of the page."""
    command = "python -m coordlab run a_run --var cluster.guards.high_watermark_gate=false"
    told = _text(headline(report_input(run_facts(replay=command))), "What was expected?")
    assert told.endswith("this run overrode values of it (--var).")
    assert _text(headline(report_input()), "What was expected?") == "Nothing."


def test_headline_escapes_names_that_came_from_the_run() -> None:
    """A group may be called anything."""
    crash = journal_entry(groups=("<b>",))
    first = headline(report_input(run_facts(faults=(crash,))))
    assert "&lt;b&gt;" in dict(first.answers)["What broke?"]
