"""Four answers of the first screen: what broke, for whom, for how long, was a promise broken.

For example, the answer to "What broke?" can be "broker-2 was killed (kill -9) at 10.000 s and
started again 25.00 s later." A macro of `templates/faults.j2` writes this sentence. The function
`what_broke` passes the facts to the macro. The functions `for_whom`, `for_how_long` and
`broke_a_promise` use macros of `templates/answers.j2`. The answer to a fifth question, "Why?",
comes from the module `causes`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from markupsafe import Markup

from pipeline.report.facts import RunFacts
from pipeline.report.rendering import render_line
from pipeline.report.report_input import ReportInput
from pipeline.report.sentences.fault_sentences import is_client, is_controller
from pipeline.summary.figures import Worst, find_worst, longest_coordinators, longest_owners
from pipeline.summary.outcomes import Coordinators, Owners, in_number_order, listed
from results_schema.journal import FaultOutcome
from results_schema.results import CheckOutcome, CheckReport

MAX_FAULTS = 3
"""Maximum number of faults that "What broke?" names. The chart of the faults shows all faults."""
MAX_NODES = 4
"""Maximum number of nodes that "For whom?" names."""
_GUARDS = "cluster.guards"
"""The section of an experiment that switches guards off. A guard is one of Kafka's safety rules. An
experiment can run without a guard, to show what the rule prevents."""
_NO_COMMIT_INTERVAL = "not set"
"""The value of `commit_interval_ms` with which a member does not commit by itself."""
_NO_AUTO_COMMIT = "false"
"""The value of `enable.auto.commit` with which Kafka's client does not commit for a member."""
_WITHOUT_RESULTS = {
    "interrupted": "the run was interrupted before it could prove anything",
    "killed": "the run's process is gone without having written results",
    "running": "the run has not ended yet",
}
"""For each status of a run that did not complete: why the run proves nothing."""


def what_broke(run: ReportInput) -> Markup:
    """Answer which faults hit which nodes, with the times of injection and healing."""
    return render_line("faults", "what_broke", run.facts.faults, MAX_FAULTS, run)


@dataclass(frozen=True, slots=True, kw_only=True)
class Concerned:
    """The facts of the answer to "For whom?": groups, members and partitions that faults affected.

    The macro `for_whom` makes the sentences of the answer from these fields.
    """

    any_fault_hit: bool
    """False if no fault hit a node. Then the answer is "Nobody."."""
    members_by_group: Mapping[str, int]
    """The number of members of each affected group, the largest group first."""
    groups_in_all: int
    """The number of groups in the run."""
    members_in_all: int
    """The number of members with which the affected members are compared: "3 of 12 members". If
    only one group is affected, all members of this group count, otherwise the members of all
    groups. Members that joined after the faults count here, but are not affected."""
    groups: tuple[str, ...]
    """The groups in the blast radius of the faults."""
    data_partitions: tuple[str, ...]
    """The data partitions in the blast radius."""
    hit_nodes_text: str
    """The nodes that were hit, without controllers: `broker-0, broker-1`."""
    nodes_owned_partitions: bool
    """True if the nodes that were hit are members, which owned `data_partitions`. False if they are
    brokers, which led `data_partitions`."""
    says_also: bool
    """True if a sentence on groups precedes the sentence on the partitions, which then has the word
    "also": "broker-0 also led 3 partitions"."""
    auto_offset_reset: str | None
    """The value of `auto.offset.reset` if no member commits; None if a member commits. The answer
    names the setting because members without commits depend on it: when a partition is assigned to
    a member, the member begins at the earliest or latest record, as the setting says."""


def for_whom(run: ReportInput) -> Markup:
    """Answer which groups, members and partitions the faults concerned."""
    hits = [fault for fault in run.facts.faults if fault.outcome is FaultOutcome.HIT]
    groups = in_number_order({group for fault in hits for group in fault.blast_radius.groups})
    # A controller neither owns nor leads a partition. If a fault hits only controllers, the fault's
    # partitions are affected in another way, for example because their topic is deleted. Such
    # partitions are left out.
    partitions: set[str] = set()
    nodes: set[str] = set()
    for fault in hits:
        hit_without_controllers = [node for node in fault.hit_nodes if not is_controller(node)]
        if hit_without_controllers:
            nodes.update(hit_without_controllers)
            partitions.update(fault.blast_radius.partitions)
    nodes_are_members = bool(nodes) and all(is_client(node) for node in nodes)
    nodes_text = "The nodes that were hit"
    if 0 < len(nodes) <= MAX_NODES:
        nodes_text = listed(in_number_order(nodes))

    members_by_group = _affected_members(run)
    all_groups = run.tables.rows("groups")
    compared_groups = all_groups
    if len(members_by_group) == 1:
        compared_groups = tuple(row for row in all_groups if row["group"] in members_by_group)

    auto_offset_reset = None
    if hits and no_member_commits(run.facts):
        auto_offset_reset = next(_values_in_groups(run.facts, "auto.offset.reset"), "earliest")
    concerned = Concerned(
        any_fault_hit=bool(hits),
        members_by_group=members_by_group,
        groups_in_all=len(all_groups),
        members_in_all=sum(row["consumers"] for row in compared_groups),
        groups=groups,
        data_partitions=in_number_order(name for name in partitions if not name.startswith("__")),
        hit_nodes_text=nodes_text,
        nodes_owned_partitions=nodes_are_members,
        says_also=bool(members_by_group or groups) and not nodes_are_members,
        auto_offset_reset=auto_offset_reset,
    )
    return render_line("answers", "for_whom", concerned)


def _affected_members(run: ReportInput) -> dict[str, int]:
    """Return the number of affected members of each group, the largest number first.

    The table `client_phases` has only affected members: a row for each fault, each group that the
    fault affected, and each consumer that was a member of this group before the fault.
    """
    members_by_group: dict[str, set[str]] = {}
    for row in run.tables.rows("client_phases"):
        members_by_group.setdefault(row["group"], set()).add(row["consumer"])
    counts = {group: len(members) for group, members in members_by_group.items()}
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


@dataclass(frozen=True, slots=True, kw_only=True)
class Durations:
    """The facts of the answer to "For how long?".

    These are the longest times without service, and the longest times with two owners or two
    coordinators. The field for such a time is None if there was no such time in the run.
    """

    any_fault_hit: bool
    two_owners: Owners | None
    two_coordinators: Coordinators | None
    one_owner_us: int | None
    """The time in which there were two coordinators while each partition still had only one owner.
    """
    commit_gap: Worst | None
    """The longest time for which a member had no commit acknowledged."""
    commit_interval_us: int | None
    """The time between two commits of a member, by the settings; None if the groups have different
    settings, or if no group commits."""
    hit_member: str | None
    """The member that had the longest commit gap; None if no fault hit this member itself."""
    no_coordinator: Worst | None
    """The longest time for which a group had no active coordinator."""
    group_text: str
    """The name of the group if the run has only one group, otherwise "A group"."""
    processing_gap: Worst | None
    """The longest time in which no member processed a record of a partition."""

    @property
    def has_any_time(self) -> bool:
        """True if any of the times exists."""
        return any(
            (
                self.two_owners,
                self.two_coordinators,
                self.commit_gap,
                self.no_coordinator,
                self.processing_gap,
            )
        )


def for_how_long(run: ReportInput) -> Markup:
    """Answer for how long there was no service, or there were two owners or two coordinators."""
    summary = run.summary
    two_owners = longest_owners(summary)
    two_coordinators = longest_coordinators(summary)
    commit_gap = find_worst(summary, "commit gap")
    no_coordinator = find_worst(summary, "no coordinator")
    if no_coordinator is not None and no_coordinator.longest_us == 0:
        no_coordinator = None  # every group kept its coordinator
    groups = [row["group"] for row in run.tables.rows("groups")]
    durations = Durations(
        any_fault_hit=any(fault.outcome is FaultOutcome.HIT for fault in run.facts.faults),
        two_owners=two_owners,
        two_coordinators=two_coordinators,
        one_owner_us=_one_owner_us(two_owners, two_coordinators),
        commit_gap=commit_gap,
        commit_interval_us=_commit_interval_us(run.facts),
        hit_member=None if commit_gap is None else _hit_member_with_gap(commit_gap, run),
        no_coordinator=no_coordinator,
        group_text=groups[0] if len(groups) == 1 else "A group",
        processing_gap=find_worst(summary, "processing gap"),
    )
    return render_line("answers", "for_how_long", durations, run)


def _commit_interval_us(facts: RunFacts) -> int | None:
    """Return the commit interval of the groups.

    Returns None if the groups have different intervals, or if no group commits.
    """
    intervals = _values_in_groups(facts, "commit_interval_ms")
    intervals_ms = {int(interval) for interval in intervals if interval.isdigit()}
    return intervals_ms.pop() * 1_000 if len(intervals_ms) == 1 else None


def _one_owner_us(two_owners: Owners | None, two_coordinators: Coordinators | None) -> int | None:
    """Return how long there were two coordinators before a partition got a second owner.

    Returns None if the two coordinators are not the cause of the two owners. The two coordinators
    are the cause if two conditions hold:

    1. The second owner came after the second coordinator, in a group that both coordinators served.
    2. One owner got the partition from the older coordinator, and the other owner got it from the
       newer coordinator. A coordinator is a broker in one leader epoch: if the broker coordinates
       the group again in another epoch, it is another coordinator here.
    """
    if two_owners is None or two_coordinators is None:
        return None
    one_owner_us = two_owners.from_us - two_coordinators.from_us
    if one_owner_us <= 0 or two_owners.group not in two_coordinators.groups:
        return None
    tenures = (two_coordinators.older, two_coordinators.newer)
    serving = {(tenure.broker, tenure.leader_epoch) for tenure in tenures}
    assigning = {two_owners.first_coordinator, two_owners.second_coordinator}
    return one_owner_us if assigning == serving else None


def _hit_member_with_gap(worst: Worst, run: ReportInput) -> str | None:
    """Return the member with the longest commit gap if a fault hit it, otherwise None."""
    hit_nodes = {node for fault in run.facts.faults for node in fault.hit_nodes}
    for row in run.tables.rows("availability"):
        is_member = row["subject_kind"] == "member"
        has_gap = row["fault"] == worst.fault.fault and row["gap_us"] == worst.longest_us
        if is_member and has_gap and row["subject"] in hit_nodes:
            return str(row["subject"])
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Promises:
    """The facts of the answer to "Was a promise broken?". Each check judges one promise."""

    violated: tuple[CheckReport, ...]
    findings: int
    """The number of findings of the violated checks."""
    passed: int
    """The number of checks that passed."""
    saw_nothing: tuple[str, ...]
    """The names of checks that had nothing to judge in this run."""
    why_unknown: str | None
    """Why a run that did not complete proves nothing: a text of _WITHOUT_RESULTS. None if the run
    completed. Also None if the run failed, that is, if an error of our own software ended it."""
    guards_off: tuple[str, ...]
    """The names of the guards that the run switched off."""
    no_member_commits: bool
    two_at_once: bool
    """True if there were two owners or two coordinators at the same time."""


def broke_a_promise(run: ReportInput) -> Markup:
    """Answer whether a promise was broken, and whether the run switched off a guard."""
    facts = run.facts

    def with_outcome(outcome: CheckOutcome) -> tuple[CheckReport, ...]:
        """Return the checks that have this outcome."""
        return tuple(check for check in facts.checks if check.outcome is outcome)

    violated = with_outcome(CheckOutcome.VIOLATED)
    had_two_owners = longest_owners(run.summary) is not None
    had_two_coordinators = longest_coordinators(run.summary) is not None
    guards_off = [fact.name for fact in facts.settings if fact.section == _GUARDS and fact.differs]
    if facts.status == "failed":
        guards_off = []  # a run that failed proves nothing, with or without guards
    promises = Promises(
        violated=violated,
        findings=sum(check.findings_total for check in violated),
        passed=len(with_outcome(CheckOutcome.PASS)),
        saw_nothing=tuple(check_name(check) for check in with_outcome(CheckOutcome.NOTHING_SEEN)),
        why_unknown=_WITHOUT_RESULTS.get(facts.status),
        guards_off=tuple(guards_off),
        no_member_commits=no_member_commits(facts),
        two_at_once=had_two_owners or had_two_coordinators,
    )
    return render_line("answers", "broke_a_promise", promises, facts)


def check_name(check: CheckReport) -> str:
    """Return a check's name in words: `monotonic offsets`."""
    return check.check.replace("_", " ")


def no_member_commits(facts: RunFacts) -> bool:
    """Return True if it is certain that no member commits offsets.

    A member can commit by itself, or Kafka's client can commit automatically. If a run has not
    recorded its settings, it is not certain that no member commits.
    """
    if facts.results_or_empty.commits_acknowledged:
        return False
    intervals = list(_values_in_groups(facts, "commit_interval_ms"))
    automatic = list(_values_in_groups(facts, "enable.auto.commit"))
    if not intervals:
        return False
    # `commit_interval_ms` says "not set" if the member does not commit, and `enable.auto.commit`
    # says "false". Neither setting ever has the other's word, so one set can hold both words.
    without_commits = {_NO_COMMIT_INTERVAL, _NO_AUTO_COMMIT}
    return all(value in without_commits for value in (*intervals, *automatic))


def _values_in_groups(facts: RunFacts, name: str) -> Iterator[str]:
    """Yield the value of a setting in each group."""
    for fact in facts.settings:
        if fact.section.startswith("groups.") and fact.name == name:
            yield fact.value
