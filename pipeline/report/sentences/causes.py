"""The first screen's answer to why: what took the time, who noticed how, what was rebalanced."""

from collections.abc import Iterator, Sequence

from markupsafe import Markup

from pipeline.report.facts import RunFacts
from pipeline.report.report_input import ReportInput, Row, Settings
from pipeline.report.sentences.markup import aside, fill_sentence, joined, moment_link, section_link
from pipeline.report.sentences.reading_words import why_not_consumed
from pipeline.summary.figures import (
    FaultSummary,
    duration_text,
    find_worst,
    longest_coordinators,
    longest_owners,
    rebalances_in,
)
from pipeline.summary.outcomes import Owners, Rebalances, listed
from pipeline.summary.story import counted, office_name
from protocol.causes import RebalanceCause

_PHASES = (
    ("detect_us", "until the controller noticed (detect)"),
    ("publish_us", "until the new leader had learnt it (publish)"),
    ("load_wait_us", "until its load began (load wait)"),
    ("load_us", "for its load"),
)
_MOST = 0.8
"""From this part of the whole on, one phase is called nearly all of it."""
_TOLD = 2
"""Up to so many kinds of rebalances are told one by one."""
_FENCING = "broker.session.timeout.ms"
_SILENT = frozenset({"crash", "node_loss", "power_loss", "pause", "cut"})
"""Faults that the controller notices by missing heartbeats only."""


def why(run: ReportInput) -> tuple[Markup, ...]:
    """Say what took the time, a line for each cause; none where there is nothing to explain."""
    fault = _explained_fault(run)
    if fault is None:
        return ()
    owners = tuple(_owners(run))
    return (
        *_broker_chain(run, fault),
        *_coordinators(run),
        *owners,
        *_reading(run),
        *_client_chain(fault),
        *(() if owners else _rebalances(run, fault)),
    )


def _explained_fault(run: ReportInput) -> FaultSummary | None:
    """Return the fault to explain: that of the longest gap, else the first that moved a group."""
    for measure in ("commit gap", "no coordinator"):
        found = find_worst(run.summary, measure)
        if found is not None and found.longest_us:
            return found.fault
    faults = run.summary.faults
    concerned = [fault for fault in faults if fault.members or fault.partitions_moved]
    return next(iter([*concerned, *faults]), None)


def _owners(run: ReportInput) -> Iterator[Markup]:
    """Tell why partitions had two owners."""
    owners = longest_owners(run.summary)
    if owners is None:
        return
    if owners.first_coordinator == owners.second_coordinator:
        yield fill_sentence(
            "The coordinator had given the partitions of {} to others, and they did not know it "
            "yet{}.",
            listed(owners.first_consumers),
            aside("two-at-once", "step by step"),
        )
        return
    yield fill_sentence(
        "{} had their partitions from {}. {}, which had loaded the group meanwhile, {}gave the "
        "same partitions to {}{}.",
        listed(owners.first_consumers),
        office_name(*_known(owners.first_coordinator)),
        office_name(*_known(owners.second_coordinator)),
        _removed(run, owners),
        listed(owners.second_consumers),
        aside("two-at-once", "step by step"),
    )


def _reading(run: ReportInput) -> Iterator[Markup]:
    if (told := why_not_consumed(run)) is not None:
        yield told


def _known(office: tuple[str | None, int | None]) -> tuple[str, int | None]:
    broker, epoch = office
    return broker or "a coordinator that is not known", epoch


def _removed(run: ReportInput, owners: Owners) -> Markup:
    """Say what the second coordinator had done to the first owners."""
    for rebalances in _all(run):
        where = (rebalances.broker, rebalances.leader_epoch)
        gone = set(rebalances.removed) & set(owners.first_consumers)
        if where == owners.second_coordinator and gone and rebalances.removed_because:
            because = listed(rebalances.removed_because)
            return fill_sentence("heard nothing of them, removed them ({}) and ", because)
    return Markup("")


def _all(run: ReportInput) -> Iterator[Rebalances]:
    for fault in run.summary.faults:
        yield from fault.rebalances


def _broker_chain(run: ReportInput, fault: FaultSummary) -> Iterator[Markup]:
    """Tell how long the failover took and which phase took most of it."""
    rows = [
        row
        for row in run.tables.rows("broker_phases")
        if row["fault"] == fault.fault and row["groups"] and row["active_us"] is not None
    ]
    if not rows:
        yield from _no_successor(run, fault)
        return
    row = max(rows, key=lambda row: row["active_us"])
    whole_us = row["active_us"] - row["fault_us"]
    yield fill_sentence(
        "{} was the active coordinator <strong>{}</strong> after {}{}.",
        row["new_leader"],
        duration_text(whole_us),
        _named(run, fault),
        _longest_phase(row, whole_us),
    )


def _no_successor(run: ReportInput, fault: FaultSummary) -> Iterator[Markup]:
    """Tell why nobody became the coordinator, if somebody had to."""
    service = fault.distribution("no coordinator")
    if service is None or not service.missing:
        return
    ended = "the run was cut off" if run.cut_off else "the run ended"
    phases = [row for row in run.tables.rows("broker_phases") if row["fault"] == fault.fault]
    if phases or fault.node is None:
        yield fill_sentence("No broker was the active coordinator again when {}.", ended)
        return
    waits = ""
    timeout = Settings(run.facts.settings).of_cluster(_FENCING)
    if timeout is not None and fault.kind in _SILENT:
        waits = fill_sentence(
            "; it fences a broker {} after its last heartbeat ({} = {})",
            duration_text(int(timeout) * 1_000) if timeout.isdigit() else "some time",
            _FENCING,
            timeout,
        )
    yield fill_sentence(
        "The controller had elected no new leader for the partitions of {} when {}, {} after {}{}.",
        fault.node,
        ended,
        duration_text(run.end_us - fault.injected_us),
        _named(run, fault),
        waits,
    )


def _named(run: ReportInput, fault: FaultSummary) -> str:
    """Return `the fault`, or its name where there were several."""
    return "the fault" if len(run.summary.faults) == 1 else fault.fault


def _longest_phase(row: Row, whole_us: int) -> Markup:
    known = [(row[column], words) for column, words in _PHASES if row[column] is not None]
    if not known or whole_us <= 0:
        return Markup("")
    longest_us, words = max(known)
    part = "nearly all of it" if longest_us >= _MOST * whole_us else "most of it"
    return fill_sentence(", {} {}: {}", part, words, duration_text(longest_us))


def _client_chain(fault: FaultSummary) -> Iterator[Markup]:
    """Tell when members gave the old coordinator up, and what made them."""
    notice, rediscover = fault.distribution("notice"), fault.distribution("rediscover")
    if not fault.partitions_moved or notice is None or notice.maximum is None:
        return
    median_us = notice.percentile(50) or 0
    causes = listed([cause for cause, _ in fault.noticed_by])
    by = fill_sentence(" ({})", causes) if causes else Markup("")
    median = duration_text(median_us, bound_us=notice.bound_us)
    sentence = fill_sentence("Members gave the old one up after {}{}", median, by)
    if rediscover is not None and rediscover.maximum is not None:
        found_us = rediscover.percentile(50) or 0
        sentence = fill_sentence(
            "{} and found the new one {} later", sentence, duration_text(found_us)
        )
    sentence = fill_sentence("{}, in the median.", sentence)
    wait = fault.distribution("longest wait")
    if wait is not None and (wait.maximum or 0) >= max(1_000_000, (notice.maximum or 0) // 2):
        sentence = fill_sentence(
            "{} They waited up to {} for it to answer: its connections were open and silent.",
            sentence,
            wait.longest_text,
        )
    yield sentence


def _coordinators(run: ReportInput) -> Iterator[Markup]:
    """Tell why the older of two coordinators did not step down."""
    both = longest_coordinators(run.summary)
    if both is None:
        return
    older = office_name(both.older.broker, both.older.leader_epoch)
    if both.older_cut_us:
        why_not = "was cut off and did not learn that it had been replaced"
    elif both.older_paused_us:
        why_not = "was stopped and could not learn that it had been replaced"
    else:
        why_not = "had not learnt yet that it had been replaced"
    commits = f" and acknowledged {_none_or(both.older.commits, 'commit')}"
    yield fill_sentence(
        "{} {}; meanwhile it answered {} with success{}.",
        older,
        why_not,
        _none_or(both.older.heartbeats, "heartbeat"),
        "; nobody asked it to commit" if nobody_commits(run.facts) else commits,
    )


def _none_or(count: int, noun: str) -> str:
    return counted(count, noun) if count else f"no {noun}"


def _rebalances(run: ReportInput, fault: FaultSummary) -> Iterator[Markup]:
    """Tell what was rebalanced and why, or that nothing was."""
    total = rebalances_in(run.summary)
    if not total:
        if fault.members:
            kept = f"{fault.members_kept} of {fault.members} members"
            until = " until the run was cut off" if run.cut_off else ""
            yield fill_sentence("No rebalance{}: {} kept member id and generation.", until, kept)
        return
    told = [(of, each) for of in run.summary.faults for each in of.rebalances]
    if len(told) > _TOLD:
        every = fill_sentence(
            '<span class="aside">{}</span>', section_link("rebalances", "All of them.")
        )
        yield joined((*_by_coordinator([each for _, each in told]), every))
        return
    settings = Settings(run.facts.settings)
    lines = []
    for of, rebalances in told:
        words = rebalances.words[:1].upper() + rebalances.words[1:]
        timeout = settings.of_group(rebalances.group, "session.timeout.ms")
        because = ""
        if timeout is not None and rebalances.reason == RebalanceCause.SESSION_EXPIRY:
            because = f" (session.timeout.ms = {timeout}, from the last heartbeat on)"
        line = fill_sentence(
            "{}, {} after {}{}.",
            words,
            moment_link(
                rebalances.first_us,
                lane="lane-rebalances",
                text=duration_text(rebalances.after_us),
            ),
            _named(run, of),
            because,
        )
        lines.append(line)
    yield joined(lines)


def _by_coordinator(told: Sequence[Rebalances]) -> Iterator[Markup]:
    """Sum rebalances up by who began them: two coordinators have two lineages of generations."""
    offices: dict[tuple[str, int | None], list[Rebalances]] = {}
    for rebalances in told:
        offices.setdefault((rebalances.broker, rebalances.leader_epoch), []).append(rebalances)
    for office, begun in offices.items():
        reasons = listed(list(dict.fromkeys(each.reason for each in begun)))
        lost = sum(each.not_stored for each in begun)
        errors = listed(list(dict.fromkeys(name for each in begun for name in each.store_errors)))
        stored = (
            fill_sentence("; {} not stored ({})", counted(lost, "assignment"), errors)
            if lost
            else ""
        )
        number = counted(sum(each.count for each in begun), "rebalance")
        yield fill_sentence("{} began {} ({}){}.", office_name(*office), number, reasons, stored)


_NOT_SET, _OFF = "not set", "false"


def nobody_commits(facts: RunFacts) -> bool:
    """Whether no member of any group was told to commit, by hand or by itself."""
    if facts.results_or_empty.commits_acknowledged:
        return False
    by_hand = list(_of_groups(facts, "commit_interval_ms"))
    by_itself = list(_of_groups(facts, "enable.auto.commit"))
    settings = (*by_hand, *by_itself)
    return bool(by_hand) and all(value in {_NOT_SET, _OFF} for value in settings)


def _of_groups(facts: RunFacts, name: str) -> Iterator[str]:
    for each in facts.settings:
        if each.section.startswith("groups.") and each.name == name:
            yield each.value


def no_commits_sentence(facts: RunFacts) -> Markup | None:
    """Say that no member commits, and what that leaves out; None: some do."""
    if not nobody_commits(facts):
        return None
    return fill_sentence(
        "<b>No member commits offsets</b> in this run ({}): no commit can fail and send a member "
        "to look for its coordinator, and whoever is given a partition begins it anew ({}).",
        "enable.auto.commit = false, commit_interval_ms not set",
        "auto.offset.reset = " + (next(_of_groups(facts, "auto.offset.reset"), "earliest")),
    )
