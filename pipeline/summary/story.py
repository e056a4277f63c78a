"""Sentences about what a run did to its groups, for the terminal and the report.

Example: "two coordinators of readers (__consumer_offsets-3) from 20.001 s to 29.113 s: 9.112 s".
The functions turn the structs of `figures`, `outcomes` and `felt` into such plain texts, without
markup and line breaks. Moments in the texts are on the run's clock.

A star (MARK) stands behind a figure if a machine was away by accident while the figure was
measured. `disturbance_texts` returns the footnote to the star.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pipeline.summary.felt import FELT_MEASURES, FeltGroup, FeltMeasure
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
"""Shortest wait for an old coordinator's answer that a sentence tells: 1 s."""
_ORDINALS = {1: "first", 2: "second", 3: "third", 4: "fourth", 5: "fifth"}
"""Ordinals in words. A greater ordinal is written with digits: `6th`, `7th`."""
_REASONS_THAT_REMOVE = frozenset({RebalanceCause.SESSION_EXPIRY, RebalanceCause.LEAVE})
"""Reasons of rebalances that remove a member. The headline of such a rebalance, for example
"session expiry of consumer-a-0", already tells that this member was removed."""
_MAX_ERRORS = 8
"""Maximum number of errors of commits that `errors_text` names. For all other errors, it only tells
how many commits met them."""
_PRINTED_IF_ZERO = frozenset(
    {"needless_rebalances", "gaps", "overlaps", "commits_acknowledged", OLD_EPOCH_ATTEMPTS}
)
"""Counts of checks that are shown even if they are 0, because "0 gaps" is good news. All other
counts are left out if they are 0."""


CHAIN_HEADINGS: dict[Chain, str] = {
    "broker": "broker chain, per offsets partition",
    "client": "client chain, per member",
    "gap": "longest time without service",
}
"""Headings of the figures of a fault, on the terminal and on pages."""
FELT = "what was felt"
"""First words of the headings of felt figures."""
NOTHING_FELT = (
    "no partition was without an owner or waited, no record was processed again, and never more "
    "records waited than before the first fault"
)
"""Text that stands in the place of the table of felt figures if all of them are 0."""
FELT_IN_ALL = "over the whole run, per partition of data"
"""Caption of the table of felt figures, which are about the whole run and not about one fault."""
GROUP_HEADINGS: dict[str, str] = {
    "broker": CHAIN_HEADINGS["broker"],
    "client": CHAIN_HEADINGS["client"],
    "gap": f"{FELT} after the fault",
    "outcome": "rebalances and members",
    "felt": f"{FELT} over the whole run",
    "run": "verdict, overlaps and failed commits",
}
"""Headings in a comparison of runs. The key is the `group` of the rows under the heading."""


def as_title(text: str) -> str:
    """Return a text with a capital first letter."""
    return f"{text[0].upper()}{text[1:]}"


def disturbance_texts(summary: RunSummary) -> tuple[str, ...]:
    """Return the footnote to MARK: which machines were away by accident; () if none was."""
    if not summary.disturbances:
        return ()
    away = "; ".join(disturbance.sentence for disturbance in summary.disturbances)
    return (
        f"{MARK.strip()} {away}, by accident: figures with this mark include that time and prove "
        "nothing about Kafka",
    )


def _mark(disturbed: bool) -> str:
    """Return MARK for a disturbed figure, otherwise an empty text."""
    return MARK if disturbed else ""


def felt_after(fault: FaultSummary) -> str:
    """Return the heading of the gaps after one fault: "after crash-0: longest time ..."."""
    return f"after {fault.fault}: {CHAIN_HEADINGS['gap']}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """A headline, and below it some lines that tell more (particulars)."""

    headline: str
    particulars: tuple[str, ...] = ()


def moment_text(time_us: int) -> str:
    """Return a moment of the run's clock in seconds: `20.001 s`."""
    return f"{time_us / 1e6:.3f} s"


def counted(count: int, noun: str) -> str:
    """Return a number of things: `1 member`, `6 members`, `1,204 members`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def coordinator_with_epoch(broker: str, epoch: int | None) -> str:
    """Return `broker-1 in leader epoch 3`, or `broker-1` if the epoch is not known."""
    return broker if epoch is None else f"{broker} in leader epoch {epoch}"


def noticed_text(fault: FaultSummary) -> str | None:
    """Return why members gave their coordinator up; None if no member did.

    Example: "members that gave their coordinator up: 4 of 6 by NOT_COORDINATOR".
    """
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
    if fault.left_after:
        members = fault.told_by_old
        yield f"the old coordinator itself told {members} of them that it still was theirs"
        return

    # No commit timed out. But members may have noticed late because they waited for an answer of
    # the old coordinator. This is assumed if the longest wait took at least half of the longest
    # time until a member noticed.
    notice, wait = fault.distribution("notice"), fault.distribution("longest wait")
    if notice is None or wait is None or notice.maximum is None or wait.maximum is None:
        return
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
    """Tell about rebalances after a fault: when, at which coordinator, and who was affected."""
    return Statement(
        headline=f"{rebalances.headline}{_mark(rebalances.disturbed)}",
        particulars=(_course_text(rebalances, fault), *_changed_members(rebalances)),
    )


def _course_text(rebalances: Rebalances, fault: FaultSummary) -> str:
    """Return when and where rebalances took place, and how they ended.

    Example: "2.00 s after the fault, at broker-1: generation 3 to 4; stable after 40 ms".
    """
    when = f"{duration_text(rebalances.after_us)} after the fault"
    if rebalances.count > 1:
        when = f"from {when} on, for {duration_text(rebalances.last_us - rebalances.first_us)}"
    if fault.healed_us is not None:
        after_healing_us = rebalances.first_us - fault.healed_us
        if after_healing_us < 0:
            when += ", while it was in force"
        else:
            when += f", {duration_text(after_healing_us)} after it was healed"

    first, last = rebalances.generations
    generations = "no new generation" if last is None else f"generation {first} to {last}"
    where = coordinator_with_epoch(rebalances.broker, rebalances.leader_epoch)

    clauses = [f"{when}, at {where}: {generations}"]
    if rebalances.longest_us is not None:
        at_most = "" if rebalances.count == 1 else "at most "
        clauses.append(f"stable after {at_most}{duration_text(rebalances.longest_us)}")
    if rebalances.not_stored:
        assignments = "its assignment"
        if rebalances.count > 1:
            assignments = f"{rebalances.not_stored} of their assignments"
        errors = ", ".join(rebalances.store_errors)
        clauses.append(f"{assignments} not stored ({errors})")
    return "; ".join(clauses)


def _changed_members(rebalances: Rebalances) -> Iterator[str]:
    """Yield the removed and the added members, unless the headline names them already."""
    headline_names_removed = (
        rebalances.reason in _REASONS_THAT_REMOVE and rebalances.removed == rebalances.consumers
    )
    if rebalances.removed and not headline_names_removed:
        causes = ", ".join(rebalances.removed_because)
        yield f"removed: {listed(rebalances.removed)} ({causes})"
    headline_names_added = (
        rebalances.reason == RebalanceCause.JOIN and rebalances.added == rebalances.consumers
    )
    if rebalances.added and not headline_names_added:
        yield f"added: {listed(rebalances.added)}"


def coordinators_statement(both: Coordinators) -> Statement:
    """Tell that a group had two coordinators, for how long, and what each of them answered.

    The first of the particulars is about the older coordinator: "broker-0 in leader epoch 2: 12
    heartbeats answered, 6 commits acknowledged, cut off for 9.01 s of it, then unloaded".
    """
    older_clauses = [_answered_text(both.older)]
    if both.older_cut_us:
        older_clauses.append(f"cut off for {duration_text(both.older_cut_us)} of it")
    if both.older_paused_us:
        older_clauses.append(f"paused for {duration_text(both.older_paused_us)} of it")
    older_clauses.append(f"then {both.older_end}")

    older_name = coordinator_with_epoch(both.older.broker, both.older.leader_epoch)
    newer_name = coordinator_with_epoch(both.newer.broker, both.newer.leader_epoch)
    particulars = [
        f"{older_name}: {', '.join(older_clauses)}",
        f"{newer_name}: {_answered_text(both.newer)}",
    ]
    if both.older.commits_in_all or both.newer.commits_in_all:
        particulars.append(
            f"commits in all: {_commits_text(both.older, 'the last', both.older_last_commit_us)}; "
            f"{_commits_text(both.newer, 'the first', both.newer_first_commit_us)}"
        )
    headline = (
        f"two coordinators of {listed(both.groups)} ({both.partition}) from "
        f"{moment_text(both.from_us)} to {moment_text(both.to_us)}: "
        f"{moment_text(both.to_us - both.from_us)}{_mark(both.disturbed)}"
    )
    return Statement(headline=headline, particulars=tuple(particulars))


def _commits_text(tenure: OverlappingTenure, first_or_last: str, at_us: int | None) -> str:
    """Return the number of commits of a coordinator: "epoch 3 1,204, the last at 27.002 s".

    `first_or_last` is "the first" or "the last", and `at_us` is the moment of that commit.
    """
    moment = "" if at_us is None else f", {first_or_last} at {moment_text(at_us)}"
    return f"epoch {tenure.leader_epoch} {tenure.commits_in_all:,}{moment}"


def _answered_text(tenure: OverlappingTenure) -> str:
    """Return what one of two coordinators answered while there were two.

    Example: "12 heartbeats answered, 6 commits acknowledged".
    """
    heartbeats = counted(tenure.heartbeats, "heartbeat")
    return f"{heartbeats} answered, {counted(tenure.commits, 'commit')} acknowledged"


def owners_statement(both: Owners) -> Statement:
    """Tell that partitions had two owners at the same time, for how long, and who the owners were.

    The last of the particulars is about the records: "40 records processed by both meanwhile; over
    1.204 s after the healing". The part after the semicolon tells when the time with two owners was
    over.
    """
    records = f"{counted(both.records_both, 'record')} processed by both meanwhile"
    if both.to_us is None:
        until = "the end of the run"
    else:
        until = f"{moment_text(both.to_us)}: {moment_text(both.to_us - both.from_us)}"
        if both.healed_us is not None:
            after_healing_us = both.to_us - both.healed_us
            relation = "after" if after_healing_us >= 0 else "before"
            records += f"; over {moment_text(abs(after_healing_us))} {relation} the healing"
    return Statement(
        headline=f"two owners of {counted(both.partitions, 'partition')} of {both.group} from "
        f"{moment_text(both.from_us)} to {until}{_mark(both.disturbed)}",
        particulars=(
            f"first {_owners_text(both.first_consumers, both.first_coordinator)}",
            f"then also {_owners_text(both.second_consumers, both.second_coordinator)}",
            records,
        ),
    )


def _owners_text(consumers: tuple[str, ...], coordinator: tuple[str | None, int | None]) -> str:
    """Return who the first or the second owners were, and who assigned them the partitions.

    Example: "2 members, assigned by broker-0 in leader epoch 2: consumer-a-0 and 1".
    """
    broker, epoch = coordinator
    number = counted(len(consumers), "member")
    assigned = "" if broker is None else f", assigned by {coordinator_with_epoch(broker, epoch)}"
    return f"{number}{assigned}: {listed(consumers)}"


def repeated_text(processing: GroupProcessing) -> str:
    """Return how often a group processed a record that it had processed before.

    Example: "processed again: 40 of the 1,040 processings of 1,000 distinct records by readers".
    """
    return (
        f"processed again: {processing.repeated:,} of the {processing.records:,} processings of "
        f"{processing.records - processing.repeated:,} distinct records by {processing.group}"
    )


def errors_text(errors: Sequence[CommitErrors]) -> str:
    """Return the errors of commits with the number of commits and members.

    Example: "commits met NOT_COORDINATOR 12 (4 members), REQUEST_TIMED_OUT 2 (1 member)".
    """
    texts = [
        f"{outcome.error} {outcome.commits:,} ({counted(outcome.members, 'member')})"
        for outcome in errors[:_MAX_ERRORS]
    ]
    commits_of_others = sum(outcome.commits for outcome in errors[_MAX_ERRORS:])
    if commits_of_others:
        texts.append(f"others {commits_of_others:,}")
    return f"commits met {', '.join(texts)}"


def felt_rows(group: FeltGroup) -> list[tuple[str, dict[str, str]]]:
    """Return a row of a table for each felt measure: its name, and its cells by their headings.

    A measure that is 0 for all partitions is left out. Example of a row: `("without an owner",
    {"partitions": "12", "p50": "1.20 s", "p90": "", "max": "4.21 s", "sum": "16.0 s"})`.
    """
    rows = []
    for measure in FELT_MEASURES:
        spread = group.spreads.get(measure.name)
        if spread is None or not spread.says_something:
            continue
        never = f", {spread.missing} never" if spread.missing else ""
        cells = {
            "partitions": f"{spread.samples}{never}",
            "p50": _felt_cell(spread.p50, measure),
            "p90": _felt_cell(spread.p90, measure),
            "max": _felt_cell(spread.maximum, measure),
            "sum": _felt_cell(spread.total, measure) if measure.adds_up else "",
        }
        rows.append((measure.name, cells))
    return rows


def _felt_cell(value: int | None, measure: FeltMeasure) -> str:
    """Return a value of a felt measure as text; empty if there is no value."""
    if value is None:
        return ""
    return length_text(value) if measure.is_time else f"{value:,}"


def felt_text(group: str, felt: FeltGroup) -> str:
    """Return a sentence with the rebalances, moved partitions and removed members of a group.

    Example: "readers: 2 rebalances; 6 of 12 partitions changed their owner, 2 of them back to a
    former one".
    """
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
    """Return what a check of the run counted and measured, as texts such as "12 leader epochs".

    - All figures in `check.seen` are returned. These are numbers of judged cases, and times. The
      name of a time ends in `_us`.
    - Of the figures in `check.measured`, only lengths of time are returned. Their names end in
      `_ms`. The other figures are moments, which other parts of the output show.

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
    """Return a figure as text: ("leader_epochs", 2) is "2 leader epochs".

    A time has its unit at the end of its name: ("longest_ms", 40) is "longest 40 ms".
    """
    stem, _, unit = name.rpartition("_")
    if unit == "us":
        return f"{stem.replace('_', ' ')} {moment_text(value)}"
    if unit == "ms":
        return f"{stem.replace('_', ' ')} {duration_text(value * 1_000)}"
    words = name.replace("_", " ")
    return f"{value:,} {words if value != 1 else _singular(words)}"


def _singular(words: str) -> str:
    """Return the singular of some words: `leader epochs` becomes `leader epoch`.

    The first word that is a plural loses its ending, and all other words are kept.
    """
    parts = words.split(" ")
    for index, word in enumerate(parts):
        is_plural = word.endswith("s") and not word.endswith("ss")
        if is_plural:
            # `fetches` loses `es`, other plurals lose `s`.
            parts[index] = word.removesuffix("es" if word.endswith("ches") else "s")
            break
    return " ".join(parts)
