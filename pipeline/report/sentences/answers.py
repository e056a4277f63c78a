"""Four answers of the first screen: what broke, for whom, for how long, and was a promise broken.

Each function collects facts and gives them to a macro of `templates/answers.j2` (`what_broke`: of
`templates/faults.j2`), which makes the sentences. Example: "broker-0 crashed 20.0 s after the
start; 12 of 12 members of readers lost their coordinator." The fifth answer, why, is in the module
`causes`.

A guard is one of Kafka's safety rules, which an experiment can switch off to show what it prevents.
The answers name it.
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
"""Maximum number of faults that the answer names. The lane of faults shows all of them."""
MAX_NODES = 4
"""Maximum number of nodes that the answer names."""
_GUARDS = "cluster.guards"
"""The section with the settings that switch guards off."""
_NOT_SET, _OFF = "not set", "false"
"""The values of `commit_interval_ms` and `enable.auto.commit` with which a member does not commit.
"""
_WITHOUT_RESULTS = {
    "interrupted": "the run was interrupted before it could prove anything",
    "killed": "the run's process is gone without having written results",
    "running": "the run has not ended yet",
}
"""Reasons for which a run that did not complete proves nothing, by its status."""


def what_broke(run: ReportInput) -> Markup:
    """Answer which faults hit which nodes, with the times of injection and healing."""
    return render_line("faults", "what_broke", run.facts.faults, MAX_FAULTS, run)


@dataclass(frozen=True, slots=True, kw_only=True)
class Concerned:
    """The groups, members and partitions that faults concerned.

    - `hit`: some fault hit a node.
    - `members`: number of members of each affected group, the largest group first.
    - `groups_in_all`, `members_in_all`: numbers of groups and members in the run.
    - `groups`, `data`: groups and data partitions in the blast radius.
    - `who`: the nodes that were hit, without controllers; `owned`: True if these nodes owned the
      partitions in `data`, False if they led these partitions.
    - `also`: True if the sentence on partitions has the word "also": a sentence on groups precedes
      it.
    - `auto_offset_reset`: the value of this setting if no member commits; None if a member commits.
    """

    hit: bool
    members: Mapping[str, int]
    groups_in_all: int
    members_in_all: int
    groups: tuple[str, ...]
    data: tuple[str, ...]
    who: str
    owned: bool
    also: bool
    auto_offset_reset: str | None


def for_whom(run: ReportInput) -> Markup:
    """Answer which groups, members and partitions the faults concerned."""
    hits = [fault for fault in run.facts.faults if fault.outcome is FaultOutcome.HIT]
    groups = in_number_order({group for fault in hits for group in fault.blast_radius.groups})
    # A controller owns and leads no partition. The partitions of a fault that hits only controllers
    # are those of a topic that was created or deleted, for example.
    partitions: set[str] = set()
    nodes: set[str] = set()
    for fault in hits:
        owners = [node for node in fault.hit_nodes if not is_controller(node)]
        nodes.update(owners)
        partitions.update(fault.blast_radius.partitions if owners else ())
    members = _members(run)
    owned = bool(nodes) and all(is_client(node) for node in nodes)
    rows = run.tables.rows("groups")
    # If one group is affected, the sentence compares the number of its affected members with the
    # size of this group. Otherwise it compares with the size of all groups.
    counted_rows = rows
    if len(members) == 1:
        counted_rows = tuple(row for row in rows if row["group"] in members)
    reset = next(_values_in_groups(run.facts, "auto.offset.reset"), "earliest")
    concerned = Concerned(
        hit=bool(hits),
        members=members,
        groups_in_all=len(rows),
        members_in_all=sum(row["consumers"] for row in counted_rows),
        groups=groups,
        data=in_number_order(name for name in partitions if not name.startswith("__")),
        who=listed(in_number_order(nodes))
        if 0 < len(nodes) <= MAX_NODES
        else "The nodes that were hit",
        owned=owned,
        also=bool(members or groups) and not owned,
        auto_offset_reset=reset if hits and no_member_commits(run.facts) else None,
    )
    return render_line("answers", "for_whom", concerned)


def _members(run: ReportInput) -> dict[str, int]:
    """Return the number of members of each affected group, the largest group first."""
    by_group: dict[str, set[str]] = {}
    for row in run.tables.rows("client_phases"):
        by_group.setdefault(row["group"], set()).add(row["consumer"])
    counts = {group: len(members) for group, members in by_group.items()}
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


@dataclass(frozen=True, slots=True, kw_only=True)
class Durations:
    """The longest times without service, and with two owners or two coordinators.

    A field is None if there was no such time. Times are in microseconds.

    - `owners`, `both`: the longest time with two owners, and with two coordinators.
    - `one_owner_us`: time with two coordinators but not yet two owners.
    - `commits`: the worst commit gap (time without an acknowledged commit of a member).
    - `service`: the worst time without a coordinator.
    - `reading`: the worst processing gap (time in which no member processed a partition).
    - `hit_itself`: the member with the longest commit gap, if a fault hit this member.
    - `group`: the group that had no coordinator.
    """

    hit: bool
    owners: Owners | None
    both: Coordinators | None
    one_owner_us: int | None
    commits: Worst | None
    commit_interval_us: int | None
    """Time between two commits of a member; None if groups differ in it, or if no group commits."""
    hit_itself: str | None
    service: Worst | None
    group: str
    reading: Worst | None

    @property
    def something(self) -> bool:
        """True if any of the times exists."""
        return any((self.owners, self.both, self.commits, self.service, self.reading))


def for_how_long(run: ReportInput) -> Markup:
    """Answer how long subjects had no service, or had two owners or two coordinators."""
    summary = run.summary
    owners, both = longest_owners(summary), longest_coordinators(summary)
    commits, service = find_worst(summary, "commit gap"), find_worst(summary, "no coordinator")
    groups = [row["group"] for row in run.tables.rows("groups")]
    intervals = _values_in_groups(run.facts, "commit_interval_ms")
    intervals_ms = {interval for interval in intervals if interval.isdigit()}
    durations = Durations(
        hit=any(fault.outcome is FaultOutcome.HIT for fault in run.facts.faults),
        owners=owners,
        both=both,
        one_owner_us=_one_owner_us(owners, both),
        commits=commits,
        # With several intervals, no single number is right for the members of all groups.
        commit_interval_us=int(intervals_ms.pop()) * 1_000 if len(intervals_ms) == 1 else None,
        hit_itself=None if commits is None else _hit_itself(commits, run),
        # A group that kept its coordinator has a time of 0 without a coordinator.
        service=service if service is not None and service.longest_us else None,
        group=groups[0] if len(groups) == 1 else "A group",
        reading=find_worst(summary, "processing gap"),
    )
    return render_line("answers", "for_how_long", durations, run)


def _one_owner_us(owners: Owners | None, both: Coordinators | None) -> int | None:
    """Return the time from the second coordinator to the second owner.

    Returns None if the two coordinators are not the cause of the two owners. They are the cause if
    two conditions hold:
    1. The second owner came after the second coordinator, in a group that both coordinators served.
    2. Each coordinator assigned the partition to one of the owners, in the leader epoch in which it
       served beside the other one.
    """
    if owners is None or both is None:
        return None
    if owners.from_us <= both.from_us or owners.group not in both.groups:
        return None
    serving_epochs = {(side.broker, side.leader_epoch) for side in (both.older, both.newer)}
    if {owners.first_coordinator, owners.second_coordinator} != serving_epochs:
        return None
    return owners.from_us - both.from_us


def _hit_itself(worst: Worst, run: ReportInput) -> str | None:
    """Return the member with the longest gap if a fault hit this member, otherwise None."""
    hit = {node for fault in run.facts.faults for node in fault.hit_nodes}
    for row in run.tables.rows("availability"):
        of_member = row["subject_kind"] == "member" and row["fault"] == worst.fault.fault
        if of_member and row["subject"] in hit and row["gap_us"] == worst.longest_us:
            return str(row["subject"])
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Promises:
    """Outcomes of the checks, and settings that Kafka does not have.

    - `broken`: violated checks; `findings`: number of their findings; `passed`: number of passed
      checks.
    - `idle`: names of checks that met no case to judge.
    - `unknown`: reason for which a run without results proves nothing.
    - `guards`: names of guards that were switched off.
    - `two_at_once`: True if there were two owners or two coordinators.
    """

    broken: tuple[CheckReport, ...]
    findings: int
    passed: int
    idle: tuple[str, ...]
    unknown: str | None
    guards: tuple[str, ...]
    no_member_commits: bool
    two_at_once: bool


def broke_a_promise(run: ReportInput) -> Markup:
    """Answer whether a promise was broken, and whether the run switched off a guard."""
    facts = run.facts

    def with_outcome(outcome: CheckOutcome) -> tuple[CheckReport, ...]:
        return tuple(check for check in facts.checks if check.outcome is outcome)

    broken = with_outcome(CheckOutcome.VIOLATED)
    guards = [fact.name for fact in facts.settings if fact.section == _GUARDS and fact.differs]
    both, owners = longest_coordinators(run.summary), longest_owners(run.summary)
    promises = Promises(
        broken=broken,
        findings=sum(check.findings_total for check in broken),
        passed=len(with_outcome(CheckOutcome.PASS)),
        idle=tuple(check_name(check) for check in with_outcome(CheckOutcome.NOTHING_SEEN)),
        unknown=_WITHOUT_RESULTS.get(facts.status),
        # A run that failed proves nothing, with or without guards.
        guards=() if facts.status == "failed" else tuple(guards),
        no_member_commits=no_member_commits(facts),
        two_at_once=owners is not None or both is not None,
    )
    return render_line("answers", "broke_a_promise", promises, facts)


def check_name(check: CheckReport) -> str:
    """Return a check's name in words."""
    return check.check.replace("_", " ")


def no_member_commits(facts: RunFacts) -> bool:
    """Return True if no member commits, by its application or by the client's automatic commits."""
    if facts.results_or_empty.commits_acknowledged:
        return False
    by_application = list(_values_in_groups(facts, "commit_interval_ms"))
    automatic = list(_values_in_groups(facts, "enable.auto.commit"))
    # `all` is true if there are no values. But if no settings were recorded, it is not known
    # whether members commit, so `bool` makes the result False.
    return bool(by_application) and all(
        value in {_NOT_SET, _OFF} for value in (*by_application, *automatic)
    )


def _values_in_groups(facts: RunFacts, name: str) -> Iterator[str]:
    """Yield the values of a setting in all sections of groups."""
    for fact in facts.settings:
        if fact.section.startswith("groups.") and fact.name == name:
            yield fact.value
