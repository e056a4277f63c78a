"""What a run did to its groups, in lines: rebalances, two coordinators, two owners, duplicates.

Every line says one thing and stands only where there is something to say. Lines are plain text, so
that they read the same without colour; the terminal breaks them.
"""

from collections.abc import Iterator

from coordlab.live import seconds
from pipeline.figures import FaultSummary, RunSummary, duration_text
from pipeline.outcomes import (
    CommitErrors,
    Coordinators,
    Office,
    Owners,
    Processing,
    Rebalances,
    listed,
)

MAX_BLOCKS = 6
"""How many pairs of coordinators, or of owners, are told; the tables have them all."""
_MAX_ERRORS = 8


def rebalance_lines(fault: FaultSummary) -> Iterator[str]:
    """Tell the rebalances after a fault, and how many members came through it unchanged."""
    if not fault.rebalances:
        yield "no rebalance"
    for rebalances in fault.rebalances:
        yield rebalances.words
        yield f"  {_how(rebalances, fault)}"
        yield from _who(rebalances)
    if not fault.members:
        return
    yield (
        f"{fault.members_kept} of {fault.members} members kept member id and generation"
        if not fault.rebalances
        else f"{fault.members_kept_id} of {fault.members} members kept their member id, "
        f"{fault.members_kept} their generation"
    )


def leaving_lines(fault: FaultSummary) -> Iterator[str]:
    """Tell why members stayed with an old coordinator, and what made them leave it."""
    if not fault.partitions_moved:
        return
    for timeouts, members in fault.left_after:
        which = _ORDINALS.get(timeouts, f"{timeouts}th")
        yield (
            f"{members} of {fault.members} members left the old coordinator on the {which} commit "
            "that timed out there"
        )
    if fault.left_after:
        told = fault.told_by_old
        yield f"the old coordinator itself told {told} of them that it still was theirs"
        return
    notice, wait = fault.distribution("notice"), fault.distribution("longest wait")
    if notice is None or wait is None or notice.maximum is None or wait.maximum is None:
        return
    if wait.maximum >= max(_LONG_WAIT_US, notice.maximum // 2):  # why they noticed so late
        yield (
            f"members waited up to {wait.longest_text} for the old coordinator to answer: its "
            "connections were open and silent"
        )


_LONG_WAIT_US = 1_000_000
"""From here on a wait is worth a line of its own."""
_ORDINALS = {1: "first", 2: "second", 3: "third", 4: "fourth", 5: "fifth"}


def _how(rebalances: Rebalances, fault: FaultSummary) -> str:
    when = f"{duration_text(rebalances.after_us)} after the fault"
    if rebalances.count > 1:
        when = f"from {when} on, for {duration_text(rebalances.last_us - rebalances.first_us)}"
    if fault.healed_us is not None:
        after_us = rebalances.first_us - fault.healed_us
        healed = f"{duration_text(after_us)} after it was healed"
        when += ", while it was in force" if after_us < 0 else f", {healed}"
    old, new = rebalances.generations
    reached = "no new generation" if new is None else f"generation {old} to {new}"
    where = office_name(rebalances.broker, rebalances.leader_epoch)
    parts = [f"{when}, at {where}: {reached}"]
    if rebalances.longest_us is not None:
        longest = "" if rebalances.count == 1 else "at most "
        parts.append(f"stable after {longest}{duration_text(rebalances.longest_us)}")
    if rebalances.not_stored:
        errors = ", ".join(rebalances.store_errors)
        which = "its assignment"
        if rebalances.count > 1:
            which = f"{rebalances.not_stored} of their assignments"
        parts.append(f"{which} not stored ({errors})")
    return "; ".join(parts)


def _who(rebalances: Rebalances) -> Iterator[str]:
    """Tell who came and went, where the reason does not say it all."""
    if rebalances.removed and not (
        rebalances.removed == rebalances.consumers and rebalances.reason in _SAY_WHO_WENT
    ):
        because = ", ".join(rebalances.removed_because)
        yield f"  removed: {listed(rebalances.removed)} ({because})"
    if rebalances.added and not (
        rebalances.added == rebalances.consumers and rebalances.reason == "join"
    ):
        yield f"  added: {listed(rebalances.added)}"


_SAY_WHO_WENT = frozenset({"session expiry", "leave"})


def outcome_lines(summary: RunSummary) -> Iterator[str]:
    """Tell what else the run did to its groups."""
    for coordinators in summary.coordinators[:MAX_BLOCKS]:
        yield from _coordinators(coordinators)
    yield from _more(len(summary.coordinators), "coordinators", "tenure_overlaps")
    long_enough = [each for each in summary.owners if each.longest_us >= summary.clock_error_us]
    for owners in long_enough[:MAX_BLOCKS]:
        yield from _owners(owners)
    yield from _more(len(long_enough), "owners", "ownership_overlaps")
    for processing in summary.processing:
        if processing.repeated:
            yield _repeated(processing)
    if summary.commit_errors:
        yield f"commits met {_errors(summary.commit_errors)}"


def _more(number: int, what: str, table: str) -> Iterator[str]:
    if number > MAX_BLOCKS:
        yield f"and {number - MAX_BLOCKS} more times with two {what} at once: table {table}"


def _coordinators(both: Coordinators) -> Iterator[str]:
    yield (
        f"two coordinators of {listed(both.groups)} ({both.partition}) from "
        f"{seconds(both.from_us)} to {seconds(both.to_us)}: {seconds(both.to_us - both.from_us)}"
    )
    impaired = [
        f"{word} for {duration_text(length_us)} of it"
        for word, length_us in (("cut off", both.older_cut_us), ("paused", both.older_paused_us))
        if length_us
    ]
    older = ", ".join((_answered(both.older), *impaired, f"then {both.older_end}"))
    yield f"  {office_name(both.older.broker, both.older.leader_epoch)}: {older}"
    yield f"  {office_name(both.newer.broker, both.newer.leader_epoch)}: {_answered(both.newer)}"
    if both.older.commits_in_all or both.newer.commits_in_all:
        yield (
            f"  commits in all: {_tenure(both.older, 'the last', both.older_last_commit_us)}; "
            f"{_tenure(both.newer, 'the first', both.newer_first_commit_us)}"
        )


def _tenure(office: Office, which: str, at_us: int | None) -> str:
    moment = "" if at_us is None else f", {which} at {seconds(at_us)}"
    return f"epoch {office.leader_epoch} {office.commits_in_all:,}{moment}"


def _answered(office: Office) -> str:
    heartbeats = _number(office.heartbeats, "heartbeat")
    return f"{heartbeats} answered, {_number(office.commits, 'commit')} acknowledged"


def _owners(both: Owners) -> Iterator[str]:
    partitions = _number(both.partitions, "partition")
    until = "the end of the run" if both.to_us is None else seconds(both.to_us)
    length = "" if both.to_us is None else f": {seconds(both.to_us - both.from_us)}"
    yield (
        f"two owners of {partitions} of {both.group} from {seconds(both.from_us)} to {until}"
        f"{length}"
    )
    yield f"  first {_side(both.first_consumers, both.first_coordinator)}"
    yield f"  then also {_side(both.second_consumers, both.second_coordinator)}"
    line = f"  {_number(both.records_both, 'record')} processed by both meanwhile"
    if both.to_us is not None and both.healed_us is not None:
        after_us = both.to_us - both.healed_us
        side = "after" if after_us >= 0 else "before"
        line += f"; over {seconds(abs(after_us))} {side} the healing"
    yield line


def _side(consumers: tuple[str, ...], coordinator: tuple[str | None, int | None]) -> str:
    broker, epoch = coordinator
    number = _number(len(consumers), "member")
    assigned = "" if broker is None else f", assigned by {office_name(broker, epoch)}"
    return f"{number}{assigned}: {listed(consumers)}"


def _repeated(processing: Processing) -> str:
    return (
        f"processed again: {processing.repeated:,} of the {processing.records:,} records that "
        f"{processing.group} processed"
    )


def _errors(errors: tuple[CommitErrors, ...]) -> str:
    shown = [
        f"{each.error} {each.commits:,} ({_number(each.members, 'member')})"
        for each in errors[:_MAX_ERRORS]
    ]
    rest = sum(each.commits for each in errors[_MAX_ERRORS:])
    return ", ".join(shown + ([f"others {rest:,}"] if rest else []))


def _number(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def office_name(broker: str, epoch: int | None) -> str:
    """Name a coordinator with the epoch in which it serves."""
    return broker if epoch is None else f"{broker} in epoch {epoch}"
