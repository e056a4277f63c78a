"""Rebalances as lines of a terminal: time, coordinator, reason, changed members, length.

In a rebalance the members of a group join it again and get new partitions. The group's generation,
a number, then increases. The length of a rebalance is the sum of its join phase (members send
JoinGroup) and its sync phase (members get their assignment). The length is None if the rebalance
has not ended yet, or was cut short, for instance by the next rebalance. A RebalanceLog has the
rebalances in the rows of a trace so far.
"""

from collections.abc import Iterator, Mapping, Sequence

import msgspec
from rich.console import Console

from coordlab.console import clock, clock_seconds, print_lines
from pipeline.in_memory.rebalances import Rebalance, RebalanceLog
from pipeline.summary.outcomes import listed


def print_rebalances(console: Console, log: RebalanceLog, groups: Sequence[str]) -> None:
    """Print the rebalances so far of each group."""
    for group in groups:
        rebalances = log.of_group(group)
        count = f"{len(rebalances)} rebalance" + ("s" if len(rebalances) != 1 else "")
        print_lines(console, [f"{group}: {count} so far"], style="bold")
        for rebalance in rebalances:
            print_lines(console, (f"  {line}" for line in rebalance_lines(rebalance, log)))


def rebalances_document(log: RebalanceLog, groups: Sequence[str]) -> dict[str, list[object]]:
    """Return the rebalances so far of each group, with their lengths, as plain data."""
    return {
        group: [
            msgspec.structs.asdict(rebalance)
            | {
                "join_us": rebalance.join_us,
                "sync_us": rebalance.sync_us,
                "length_us": rebalance.length_us,
            }
            for rebalance in log.of_group(group)
        ]
        for group in groups
    }


def rebalance_lines(rebalance: Rebalance, log: RebalanceLog) -> Iterator[str]:
    """Yield a rebalance as lines: time and coordinator, reason, changed members."""
    yield f"{clock(rebalance.started_us)} on {rebalance.coordinator}: {_course(rebalance)}"
    names = log.client_ids
    yield f"  because: {_why(rebalance, names)}"
    changes = []
    if rebalance.added:
        changes.append(f"came: {listed(_name(member, names) for member in rebalance.added)}")
    if rebalance.removed:
        removed = listed(_name(member, names) for member in rebalance.removed)
        changes.append(f"went: {removed}{_because(rebalance.removed_because)}")
    if changes:
        yield f"  {'; '.join(changes)}"
    if rebalance.store_error is not None:
        yield f"  its assignment was not stored: {rebalance.store_error}"


def _course(rebalance: Rebalance) -> str:
    """Return the old and the new generation, and the length of the rebalance."""
    begun = f"generation {rebalance.generation}"
    if rebalance.new_generation is not None:
        begun = f"{begun} to {rebalance.new_generation}"
    if rebalance.length_us is not None:
        return (
            f"{begun} in {clock_seconds(rebalance.length_us)} "
            f"(join {clock_seconds(rebalance.join_us)}, sync {clock_seconds(rebalance.sync_us)})"
        )
    if rebalance.cut_short_us is not None:
        after_us = rebalance.cut_short_us - rebalance.started_us
        return f"{begun}, cut short after {clock_seconds(after_us)}: {rebalance.cut_short_by}"
    return f"{begun}, not over yet"


def _why(rebalance: Rebalance, names: Mapping[str, str]) -> str:
    """Return the reason of a rebalance, with the member that caused it.

    A member can send a reason of its own (`client_reason`), which then follows. If no single member
    caused the rebalance, the coordinator's sentence (`cause`) follows.
    """
    if rebalance.member is None:
        return f"{rebalance.reason} ({rebalance.cause})"
    quoted = "" if rebalance.client_reason is None else f"; it says: {rebalance.client_reason}"
    return f"{rebalance.reason} of {_name(rebalance.member, names)}{quoted}"


def _name(member: str, names: Mapping[str, str]) -> str:
    """Return the client id of a member; its member id if the trace lacks the client id."""
    return names.get(member, member)


def _because(causes: Sequence[str]) -> str:
    """Return the causes of removals in brackets; "" if there are none."""
    return f" ({', '.join(causes)})" if causes else ""
