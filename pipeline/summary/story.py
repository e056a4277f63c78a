"""Sentences about what a run did to its groups. The terminal and the report show the same ones.

The functions turn the structs of `figures`, `outcomes` and `felt` into plain text, without markup
and line breaks. Example: "two coordinators of readers (__consumer_offsets-3) from 20.001 s to
29.113 s: 9.112 s". Times in the text are times on the run's clock.

A figure gets MARK behind it, a star, if a machine of the lab was lost or silent by accident while
it was measured. `disturbance_texts` is the footnote to the star.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pipeline.summary.felt import FELT_MEASURES, FeltGroup
from pipeline.summary.figures import (
    MARK,
    Chain,
    FaultSummary,
    RunSummary,
    duration_text,
    length_text,
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
from protocol.causes import RebalanceCause
from results_schema.results import OLD_EPOCH_ATTEMPTS, CheckOutcome, CheckReport

_LONG_WAIT_US = 1_000_000
"""A member's wait for its old coordinator gets a sentence only if it was at least so long."""
_ORDINALS = {1: "first", 2: "second", 3: "third", 4: "fourth", 5: "fifth"}
"""Ordinals in words. A greater ordinal is written with digits: `6th`, `7th`."""
_NAMES_REMOVED = frozenset({RebalanceCause.SESSION_EXPIRY, RebalanceCause.LEAVE})
"""Reasons of rebalances whose headline names the removed member already, such as "session expiry of
consumer-a-0". So the line "removed: consumer-a-0" would repeat it."""
_MAX_ERRORS = 8
"""Maximum number of errors of commits that `errors_text` names. It sums up the others."""
_PRINTED_IF_ZERO = frozenset(
    {"needless_rebalances", "gaps", "overlaps", "commits_acknowledged", OLD_EPOCH_ATTEMPTS}
)
"""Counts of checks for which 0 is a result, such as "0 gaps". Other counts are left out at 0."""


CHAIN_HEADINGS: dict[Chain, str] = {
    "broker": "broker chain, per offsets partition",
    "client": "client chain, per member",
    "gap": "longest time without service",
}
"""Headings of the figures of a fault, on the terminal and on pages."""
FELT = "what was felt"
"""First words of the headings of felt figures."""
# Shown in the place of a table whose figures are all 0.
NOTHING_FELT = (
    "no partition was without an owner or waited, no record was processed again, and never more "
    "records waited than before the first fault"
)
FELT_IN_ALL = "over the whole run, per partition of data"
"""Caption of the table of felt figures about a whole run, not about one fault."""
GROUP_HEADINGS: dict[str, str] = {
    "broker": CHAIN_HEADINGS["broker"],
    "client": CHAIN_HEADINGS["client"],
    "gap": f"{FELT} after the fault",
    "outcome": "rebalances and members",
    "felt": f"{FELT} over the whole run",
    "run": "verdict, overlaps and failed commits",
}
"""Headings of the groups of figures of a comparison, by `ComparisonRow.group`."""


def as_title(text: str) -> str:
    """Return a text with a capital first letter."""
    return f"{text[0].upper()}{text[1:]}"


def _mark(disturbed: bool) -> str:
    """Return MARK for a disturbed figure, otherwise an empty text."""
    return MARK if disturbed else ""


def disturbance_texts(summary: RunSummary) -> tuple[str, ...]:
    """Return the footnote of MARK: the times in which a machine was away; empty if none was."""
    if not summary.disturbances:
        return ()
    away = "; ".join(disturbance.sentence for disturbance in summary.disturbances)
    return (
        f"{MARK.strip()} {away}, by accident: figures with this mark include that time and prove "
        "nothing about Kafka",
    )


def felt_after(fault: FaultSummary) -> str:
    """Return the heading of the gaps after one fault."""
    return f"after {fault.fault}: {CHAIN_HEADINGS['gap']}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """A headline and the lines below it (particulars)."""

    headline: str
    particulars: tuple[str, ...] = ()


def moment_text(time_us: int) -> str:
    """Return a moment of the run's clock: seconds with milliseconds."""
    return f"{time_us / 1e6:.3f} s"


def counted(count: int, noun: str) -> str:
    """Return `1 member`, `6 members`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def coordinator_with_epoch(broker: str, epoch: int | None) -> str:
    """Return the name of a coordinator with the epoch in which it serves, if that is known."""
    return broker if epoch is None else f"{broker} in leader epoch {epoch}"


def noticed_text(fault: FaultSummary) -> str | None:
    """Return the reasons for which members gave their coordinator up; None if no member did."""
    if not fault.noticed_by:
        return None
    causes = ", ".join(
        f"{count} of {fault.members} by {cause}" for cause, count in fault.noticed_by
    )
    return f"members that gave their coordinator up: {causes}"


def leaving_texts(fault: FaultSummary) -> Iterator[str]:
    """Yield sentences on how long members stayed with the old coordinator, and why they left it."""
    if not fault.partitions_moved:  # no coordinator moved, so there was none to leave
        return
    for timeouts, members in fault.left_after:
        ordinal = _ORDINALS.get(timeouts, f"{timeouts}th")
        yield (
            f"{members} of {fault.members} members left the old coordinator on the {ordinal} "
            "commit that timed out there"
        )
    # Commits that timed out explain why members left, so no other reason follows.
    if fault.left_after:
        members = fault.told_by_old
        yield f"the old coordinator itself told {members} of them that it still was theirs"
        return

    notice, wait = fault.distribution("notice"), fault.distribution("longest wait")
    if notice is None or wait is None or notice.maximum is None or wait.maximum is None:
        return
    # A wait for the old coordinator's answer delays the notice. If the longest wait took half of
    # the longest notice or more, it explains why members noticed late.
    if wait.maximum >= max(_LONG_WAIT_US, notice.maximum // 2):
        yield (
            f"members waited up to {wait.longest_text} for the old coordinator to answer: its "
            "connections were open and silent"
        )


def kept_text(fault: FaultSummary) -> str | None:
    """Return how many members kept id and generation; None if the fault affected no member."""
    if not fault.members:
        return None
    if not fault.rebalances:
        return f"{fault.members_kept} of {fault.members} members kept member id and generation"
    return (
        f"{fault.members_kept_id} of {fault.members} members kept their member id (the names here "
        f"are client ids), {fault.members_kept} their generation"
    )


def rebalances_statement(rebalances: Rebalances, fault: FaultSummary) -> Statement:
    """State rebalances of one kind after a fault: time, coordinator, length, changed members."""
    return Statement(
        headline=f"{rebalances.headline}{_mark(rebalances.disturbed)}",
        particulars=(_course_text(rebalances, fault), *_changed_members(rebalances)),
    )


def _course_text(rebalances: Rebalances, fault: FaultSummary) -> str:
    """Return when and where rebalances of one kind took place, what they led to, and their length.

    Example: "2.00 s after the fault, at broker-1: generation 3 to 4; stable after 40 ms".
    """
    when = f"{duration_text(rebalances.after_us)} after the fault"
    if rebalances.count > 1:
        when = f"from {when} on, for {duration_text(rebalances.last_us - rebalances.first_us)}"
    if fault.healed_us is not None:
        after_us = rebalances.first_us - fault.healed_us
        healed = f"{duration_text(after_us)} after it was healed"
        when += ", while it was in force" if after_us < 0 else f", {healed}"

    first, last = rebalances.generations
    reached = "no new generation" if last is None else f"generation {first} to {last}"
    where = coordinator_with_epoch(rebalances.broker, rebalances.leader_epoch)

    parts = [f"{when}, at {where}: {reached}"]
    if rebalances.longest_us is not None:
        longest = "" if rebalances.count == 1 else "at most "
        parts.append(f"stable after {longest}{duration_text(rebalances.longest_us)}")
    if rebalances.not_stored:
        errors = ", ".join(rebalances.store_errors)
        assignments = "its assignment"
        if rebalances.count > 1:
            assignments = f"{rebalances.not_stored} of their assignments"
        parts.append(f"{assignments} not stored ({errors})")
    return "; ".join(parts)


def _changed_members(rebalances: Rebalances) -> Iterator[str]:
    """Yield the removed and the added members, unless the headline names them already."""
    headline_names_removed = (
        rebalances.reason in _NAMES_REMOVED and rebalances.removed == rebalances.consumers
    )
    if rebalances.removed and not headline_names_removed:
        because = ", ".join(rebalances.removed_because)
        yield f"removed: {listed(rebalances.removed)} ({because})"
    headline_names_added = (
        rebalances.reason == RebalanceCause.JOIN and rebalances.added == rebalances.consumers
    )
    if rebalances.added and not headline_names_added:
        yield f"added: {listed(rebalances.added)}"


def coordinators_statement(both: Coordinators) -> Statement:
    """State that a group had two coordinators, how long, and what each answered meanwhile."""
    impairments = [
        f"{word} for {duration_text(length_us)} of it"
        for word, length_us in (("cut off", both.older_cut_us), ("paused", both.older_paused_us))
        if length_us
    ]
    older = ", ".join((_answered(both.older), *impairments, f"then {both.older_end}"))
    older_name = coordinator_with_epoch(both.older.broker, both.older.leader_epoch)
    newer_name = coordinator_with_epoch(both.newer.broker, both.newer.leader_epoch)
    particulars = [f"{older_name}: {older}", f"{newer_name}: {_answered(both.newer)}"]
    if both.older.commits_in_all or both.newer.commits_in_all:
        particulars.append(
            f"commits in all: {_commits(both.older, 'the last', both.older_last_commit_us)}; "
            f"{_commits(both.newer, 'the first', both.newer_first_commit_us)}"
        )
    headline = (
        f"two coordinators of {listed(both.groups)} ({both.partition}) from "
        f"{moment_text(both.from_us)} to {moment_text(both.to_us)}: "
        f"{moment_text(both.to_us - both.from_us)}{_mark(both.disturbed)}"
    )
    return Statement(headline=headline, particulars=tuple(particulars))


def _commits(tenure: OverlappingTenure, first_or_last: str, at_us: int | None) -> str:
    """Return the number of commits of one leader epoch: "epoch 3 1,204, the last at 27.002 s".

    `first_or_last` is "the first" or "the last"; `at_us` is the moment of that commit.
    """
    moment = "" if at_us is None else f", {first_or_last} at {moment_text(at_us)}"
    return f"epoch {tenure.leader_epoch} {tenure.commits_in_all:,}{moment}"


def _answered(tenure: OverlappingTenure) -> str:
    """Return "12 heartbeats answered, 6 commits acknowledged": those while there were two."""
    heartbeats = counted(tenure.heartbeats, "heartbeat")
    return f"{heartbeats} answered, {counted(tenure.commits, 'commit')} acknowledged"


def owners_statement(both: Owners) -> Statement:
    """State that two sets of members owned the same partitions: the time and the members."""
    until = "the end of the run" if both.to_us is None else moment_text(both.to_us)
    length = "" if both.to_us is None else f": {moment_text(both.to_us - both.from_us)}"
    records = f"{counted(both.records_both, 'record')} processed by both meanwhile"
    if both.to_us is not None and both.healed_us is not None:
        after_us = both.to_us - both.healed_us
        relation = "after" if after_us >= 0 else "before"
        records += f"; over {moment_text(abs(after_us))} {relation} the healing"
    return Statement(
        headline=f"two owners of {counted(both.partitions, 'partition')} of {both.group} from "
        f"{moment_text(both.from_us)} to {until}{length}{_mark(both.disturbed)}",
        particulars=(
            f"first {_owner_set(both.first_consumers, both.first_coordinator)}",
            f"then also {_owner_set(both.second_consumers, both.second_coordinator)}",
            records,
        ),
    )


def _owner_set(consumers: tuple[str, ...], coordinator: tuple[str | None, int | None]) -> str:
    """Return one of two sets of owners, with the coordinator that assigned them the partitions."""
    broker, epoch = coordinator
    number = counted(len(consumers), "member")
    assigned = "" if broker is None else f", assigned by {coordinator_with_epoch(broker, epoch)}"
    return f"{number}{assigned}: {listed(consumers)}"


def repeated_text(processing: GroupProcessing) -> str:
    """Return how many of a group's processed records had been processed before."""
    return (
        f"processed again: {processing.repeated:,} of the {processing.records:,} processings of "
        f"{processing.records - processing.repeated:,} distinct records by {processing.group}"
    )


def errors_text(errors: Sequence[CommitErrors]) -> str:
    """Return the errors of commits with their numbers; the first _MAX_ERRORS have their names."""
    shown = [
        f"{outcome.error} {outcome.commits:,} ({counted(outcome.members, 'member')})"
        for outcome in errors[:_MAX_ERRORS]
    ]
    rest = sum(outcome.commits for outcome in errors[_MAX_ERRORS:])
    return "commits met " + ", ".join(shown + ([f"others {rest:,}"] if rest else []))


def felt_rows(group: FeltGroup) -> list[tuple[str, dict[str, str]]]:
    """Return the name of each felt measure with its cells by heading.

    Headings are `partitions`, `p50`, `p90`, `max`, `sum`; a cell may be empty. A measure that is 0
    for all partitions is left out.
    """
    rows = []
    for measure in FELT_MEASURES:
        spread = group.spreads.get(measure.name)
        if spread is None or not spread.says_something:
            continue

        # A function in a loop sees later values of the loop's variables. The default value of
        # `is_time` keeps the value of this pass.
        def text(value: int | None, *, is_time: bool = measure.is_time) -> str:
            if value is None:
                return ""
            return length_text(value) if is_time else f"{value:,}"

        never = f", {spread.missing} never" if spread.missing else ""
        cells = {
            "partitions": f"{spread.samples}{never}",
            "p50": text(spread.p50),
            "p90": text(spread.p90),
            "max": text(spread.maximum),
            "sum": text(spread.total) if measure.adds_up else "",
        }
        rows.append((measure.name, cells))
    return rows


def felt_text(group: str, felt: FeltGroup) -> str:
    """Return a sentence with the rebalances, moved partitions and removed members of a group."""
    clauses = [counted(felt.rebalances, "rebalance") if felt.rebalances else "no rebalance"]
    if felt.moved:
        moved = f"{felt.moved} of {counted(felt.partitions, 'partition')} changed their owner"
        back = f", {felt.came_back} of them back to a former one" if felt.came_back else ""
        clauses.append(f"{moved}{back}")
    else:
        clauses.append("no partition changed its owner")
    if felt.sent_away:
        members = counted(felt.sent_away, "member")
        clauses.append(f"{members} sent away that ran and could be reached")
    return f"{group}: {'; '.join(clauses)}"


def check_figures(check: CheckReport) -> list[str]:
    """Return the counts and lengths of a check as texts.

    - `check.seen` holds numbers of judged cases, and lengths whose names end in `_us`. All of them
      are returned.
    - `check.measured` holds lengths, whose names end in `_ms`, and moments. Only the lengths are
      returned; other parts of the output show the moments.

    A figure that is 0 is returned only if it is in _PRINTED_IF_ZERO and the check judged something.
    """
    has_judged = check.outcome is not CheckOutcome.NOTHING_SEEN
    durations = {
        name: value
        for name, value in check.measured.items()
        if name not in check.seen and name.endswith("_ms")
    }
    return [
        _check_figure(name, value)
        for name, value in (check.seen | durations).items()
        if value or (has_judged and name in _PRINTED_IF_ZERO)
    ]


def _check_figure(name: str, value: int) -> str:
    """Return a figure in words: `leader_epochs` as `2 leader epochs`, `longest_us` as a time."""
    stem, _, unit = name.rpartition("_")
    if unit == "us":
        return f"{stem.replace('_', ' ')} {moment_text(value)}"
    if unit == "ms":
        return f"{stem.replace('_', ' ')} {duration_text(value * 1_000)}"
    words = name.replace("_", " ")
    return f"{value:,} {words if value != 1 else _singular(words)}"


def _singular(words: str) -> str:
    """Return `leader epochs` as `leader epoch`: the first plural word loses its ending.

    All other words are kept.
    """
    first, *others = words.split(" ")
    # If `first` is no plural, the plural is among the other words.
    if not first.endswith("s") or first.endswith("ss"):
        return " ".join((first, _singular(" ".join(others)))) if others else first
    # `fetches` loses `es`, other plurals lose `s`.
    return " ".join((first.removesuffix("es" if first.endswith("ches") else "s"), *others))
