"""The first screen's answers: for whom, for how long, and whether a promise broke.

Each is a few sentences, a line each, from the run's facts, its summary and small tables.
`fault_sentences` answers what broke, `causes` why.
"""

from collections.abc import Iterator, Sequence

from markupsafe import Markup

from pipeline.report.facts import RunFacts
from pipeline.report.report_input import ReportInput
from pipeline.report.sentences.causes import no_commits_sentence, nobody_commits
from pipeline.report.sentences.fault_sentences import MAX_NODES, is_client
from pipeline.report.sentences.markup import (
    AVAILABILITY,
    COORDINATORS,
    OWNERSHIP,
    and_list,
    aside,
    at_moment,
    between,
    fill_sentence,
    joined,
    length,
    section_link,
)
from pipeline.summary.figures import (
    Distribution,
    Worst,
    duration_text,
    find_worst,
    longest_coordinators,
    longest_owners,
)
from pipeline.summary.outcomes import Coordinators, Owners, in_number_order, listed
from pipeline.summary.story import counted
from results_schema.journal import FaultOutcome, JournalEntry
from results_schema.results import CheckOutcome, CheckReport, Verdict

_GUARDS = "cluster.guards"
_NEVER = {
    "member": "had no acknowledged commit again",
    "partition": "had nobody to consume them again",
}
"""What became of members and partitions that did not come back."""


def for_whom(run: ReportInput) -> tuple[Markup, ...]:
    """Say which groups, members and partitions the faults concerned."""
    hits = [fault for fault in run.facts.faults if fault.outcome is FaultOutcome.HIT]
    if not hits:
        return (_nobody_affected(run),)
    groups = in_number_order({group for fault in hits for group in fault.blast_radius.groups})
    partitions = {partition for fault in hits for partition in fault.blast_radius.partitions}
    data = {name for name in partitions if not name.startswith("__")}
    affected = _members(run)
    told: list[Markup] = []
    if len(affected) == 1:
        ((group, members),) = affected.items()
        told.append(fill_sentence("group <b>{}</b> ({}).", group, _of_all(members, group, run)))
    elif affected:
        number = f"<b>{len(affected):,}</b> of {len(run.tables.rows('groups')):,} groups"
        members = sum(affected.values())
        who = f"{number} with {counted(members, 'member')}: {{}}."
        told.append(fill_sentence(who, listed(in_number_order(affected))))
    elif groups:
        told.append(fill_sentence("group <b>{}</b>.", listed(groups)))
    else:
        told.append(Markup("no group was coordinated there."))
    if data:
        told.append(_partitions(data, hits, told_groups=bool(affected or groups)))
    text = joined(told)
    silent = no_commits_sentence(run.facts)
    return (Markup(text[:1].upper() + text[1:]), *((silent,) if silent else ()))


def _of_all(members: int, group: str, run: ReportInput) -> str:
    """Count the members that the faults met; the whole run may have had more of them."""
    others = [row["consumers"] for row in run.tables.rows("groups") if row["group"] == group]
    met = counted(members, "member")
    if not others or others[0] <= members:
        return met
    return f"{met} when the fault came; {others[0]:,} took part in the run"


def _partitions(data: set[str], hits: Sequence[JournalEntry], *, told_groups: bool) -> Markup:
    """Say whose partitions of data were concerned: the ones led, or owned, by who was hit."""
    nodes = list(dict.fromkeys(node for fault in hits for node in fault.hit_nodes))
    owners = bool(nodes) and all(is_client(node) for node in nodes)
    who = listed(in_number_order(nodes)) if 0 < len(nodes) <= MAX_NODES else "who was hit"
    also = " also" if told_groups and not owners else ""
    what = f"{counted(len(data), 'partition')} of data ({listed(in_number_order(data))})"
    return fill_sentence("{}{} {} {}.", who, also, "owned" if owners else "led", what)


def _nobody_affected(run: ReportInput) -> Markup:
    rows = run.tables.rows("groups")
    if not rows:
        return Markup("Nobody.")
    members = sum(row["consumers"] for row in rows)
    return fill_sentence(
        "Nobody. {} with {} went about their work.",
        counted(len(rows), "group"),
        counted(members, "member"),
    )


def _members(run: ReportInput) -> dict[str, int]:
    """Count the members of each affected group, most first."""
    found: dict[str, set[str]] = {}
    for row in run.tables.rows("client_phases"):
        found.setdefault(row["group"], set()).add(row["consumer"])
    counts = {group: len(members) for group, members in found.items()}
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def for_how_long(run: ReportInput) -> tuple[Markup, ...]:
    """Say how long members and partitions went without service, and what was there twice."""
    if told := tuple(_durations(run)):
        return told
    if not any(fault.outcome is FaultOutcome.HIT for fault in run.facts.faults):
        return (Markup("No fault hit anybody, so there is nothing to measure."),)
    return (Markup("Nothing that was measured went without service."),)


def _durations(run: ReportInput) -> Iterator[Markup]:
    summary = run.summary
    if (owners := longest_owners(summary)) is not None:
        yield fill_sentence(
            "{} of {} had <b>two owners</b> at once for up to {}, {}: {}, then also {}.",
            counted(owners.partitions, "partition"),
            owners.group,
            length(owners.longest_us),
            between(owners.from_us, owners.to_us, run.end_us, OWNERSHIP),
            listed(owners.first_consumers),
            listed(owners.second_consumers),
        )
    if (both := longest_coordinators(summary)) is not None:
        yield fill_sentence(
            "{} had <b>two coordinators</b> for {}, {}{}.",
            listed(both.groups),
            length(both.to_us - both.from_us),
            between(both.from_us, both.to_us, run.end_us, COORDINATORS),
            _and_owners(owners, both),
        )
    commits = find_worst(summary, "commit gap")
    if commits is not None:
        gap = _gap(commits, "Members were without an acknowledged commit for", "member", run)
        yield joined((gap, *_steady(commits, run)))
    service = find_worst(summary, "no coordinator")
    if service is not None and service.longest_us:
        bound_us = service.distribution.bound_us
        yield fill_sentence(
            "{} was without an active coordinator for {}{}.",
            _a_group(run),
            length(service.longest_us, bound_us=bound_us),
            _after(service, run),
        )
    reading = find_worst(summary, "processing gap")
    if reading is not None:
        yield _gap(reading, "Partitions were not consumed by anybody for", "partition", run)


def _and_owners(owners: Owners | None, both: Coordinators) -> Markup:
    """Relate two coordinators to two owners: the one is not yet the other."""
    if owners is None or owners.from_us <= both.from_us or owners.group not in both.groups:
        return Markup("")
    if {owners.first_coordinator, owners.second_coordinator} != {
        (both.older.broker, both.older.leader_epoch),
        (both.newer.broker, both.newer.leader_epoch),
    }:
        return Markup("")
    return fill_sentence(
        "; for the first {} of it each partition still had one owner, as the new coordinator had "
        "given none to others",
        duration_text(owners.from_us - both.from_us),
    )


def _a_group(run: ReportInput) -> str:
    groups = [row["group"] for row in run.tables.rows("groups")]
    return groups[0] if len(groups) == 1 else "A group"


def _steady(found: Worst, run: ReportInput) -> Iterator[Markup]:
    """Say what a commit gap is to be compared with, and whether the longest is of who was hit."""
    intervals = {
        int(each.value)
        for each in run.facts.settings
        if each.name == "commit_interval_ms" and each.value.isdigit()
    }
    if len(intervals) == 1:
        yield fill_sentence("They commit every {}.", duration_text(intervals.pop() * 1_000))
    hit = {node for fault in run.facts.faults for node in fault.hit_nodes}
    for row in run.tables.rows("availability"):
        of_member = row["subject_kind"] == "member" and row["fault"] == found.fault.fault
        if of_member and row["subject"] in hit and row["gap_us"] == found.longest_us:
            yield fill_sentence("The longest is that of {}, which was hit itself.", row["subject"])
            return


def _gap(found: Worst, begins: str, subject: str, run: ReportInput) -> Markup:
    """Return a sentence about gaps: the median and the longest, and who never came back."""
    spread = found.distribution
    text = Markup("")
    if spread.samples:
        text = fill_sentence(
            "{} {}{}.",
            begins,
            _spread(spread, subject),
            _after(found, run),
        )
    if spread.missing:
        never = fill_sentence(
            "<b>{}</b> {} when the run {}, {} after the fault.",
            counted(spread.missing, subject),
            _NEVER[subject],
            "was cut off" if run.cut_off else "ended",
            duration_text(run.end_us - found.fault.injected_us),
        )
        text = joined((text, never)) if text else never
    return text


def _spread(spread: Distribution, subject: str) -> Markup:
    longest_us, median_us = spread.maximum or 0, spread.percentile(50)
    longest = length(longest_us, bound_us=spread.bound_us)
    of = counted(spread.samples, subject)
    if spread.samples == 1 or median_us is None:
        return fill_sentence("{} ({})", longest, of)
    return fill_sentence(
        "up to {} (median {} of {})",
        longest,
        duration_text(median_us, bound_us=spread.bound_us),
        of,
    )


def _after(found: Worst, run: ReportInput) -> Markup:
    """Name the fault after which it was worst, where there were several."""
    if len(run.summary.faults) < 2:
        return Markup("")
    fault = found.fault
    return fill_sentence(", after {} ({})", fault.fault, at_moment(fault.injected_us, AVAILABILITY))


def broke_a_promise(run: ReportInput) -> tuple[Markup, ...]:
    """Say what the checks concluded, and what of it is not Kafka's own behaviour."""
    facts = run.facts
    told: list[Markup] = []
    guards = [each.name for each in facts.settings if each.section == _GUARDS and each.differs]
    match (facts.status, facts.verdict):
        case ("failed", _):
            told.append(
                Markup("<b>Not known.</b> coordlab itself failed: this says nothing about Kafka.")
            )
            guards = []
        case (_, Verdict.VIOLATED):
            told += _violated(facts)
        case (_, Verdict.PASS):
            told.append(_passed(facts))
        case (_, Verdict.UNKNOWN | None):
            told.append(_unknown(facts))
    if guards:
        told.append(
            fill_sentence(
                "This run had the guard <b>{}</b> switched off: Kafka itself does not behave so.",
                listed(guards),
            )
        )
    if longest_owners(run.summary) is not None or longest_coordinators(run.summary) is not None:
        told.append(
            fill_sentence(
                "Two at once is no violation by itself: Kafka fences what they write, by leader "
                "epoch and generation{}.",
                aside("two-at-once", "how it came about"),
            )
        )
    return tuple(told)


def _violated(facts: RunFacts) -> Iterator[Markup]:
    broken = [check for check in facts.checks if check.outcome is CheckOutcome.VIOLATED]
    findings = sum(check.findings_total for check in broken)
    names = and_list([fill_sentence("<b>{}</b>", check_name(check)) for check in broken])
    yield fill_sentence(
        "<b>Yes:</b> {} of {} checks found one violated: {}, with {}{}.",
        len(broken),
        len(facts.checks),
        names,
        counted(findings, "finding"),
        aside("violations", "the evidence"),
    )
    if broken and broken[0].findings:
        yield fill_sentence("The first: {}.", broken[0].findings[0].summary)


def _passed(facts: RunFacts) -> Markup:
    passed = sum(check.outcome is CheckOutcome.PASS for check in facts.checks)
    idle = [check for check in facts.checks if check.outcome is CheckOutcome.NOTHING_SEEN]
    if not idle:
        every = f"all {passed} checks" if passed > 1 else "the only check"
        return fill_sentence("<b>No:</b> {} passed.", section_link("checks", every))
    because = " (nobody committed)" if nobody_commits(facts) else ""
    return fill_sentence(
        "<b>No:</b> {} passed, {} not put to the test: {}{}.",
        section_link("checks", counted(passed, "check")),
        f"{len(idle):,} {'was' if len(idle) == 1 else 'were'}",
        and_list([check_name(check) for check in idle]),
        because,
    )


def _unknown(facts: RunFacts) -> Markup:
    why = {
        "interrupted": "the run was interrupted before it could prove anything",
        "killed": "the run's process is gone without having written results",
        "running": "the run has not ended yet",
    }.get(facts.status)
    if why is not None:
        return fill_sentence("<b>Not known:</b> {}.", why)
    if not facts.checks:
        return Markup("<b>Not known:</b> nothing was judged.")
    return fill_sentence(
        "<b>Not known:</b> {} found one violated, but this run proves nothing: why stands above.",
        section_link("checks", "no check"),
    )


def check_name(check: CheckReport) -> str:
    """Return a check's name in words."""
    return check.check.replace("_", " ")
