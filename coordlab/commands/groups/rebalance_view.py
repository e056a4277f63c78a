"""Prints the rebalances of groups for `groups list --why` and `groups describe --why`.

A rebalance takes two to four lines, for example:

    31.500000s on broker-2: generation 4 to 5 in 3.100 s (join 3.000 s, sync 0.100 s)
      because: session expiry of consumer-7
      went: consumer-7 (session expiry)

A rebalance consists of two phases. In the join phase, the coordinator waits for the members'
JoinGroup requests. In the sync phase, the members get their assignment. The first line has the
length of the rebalance and of the two phases.
"""

from collections.abc import Iterator, Mapping, Sequence

import msgspec
from rich.console import Console

from coordlab.console import clock, clock_seconds, print_lines
from pipeline.in_memory.rebalances import Rebalance, RebalanceLog
from pipeline.summary.outcomes import listed


def print_rebalances(console: Console, log: RebalanceLog, groups: Sequence[str]) -> None:
    """Print the rebalances that each group has had so far."""
    for group in groups:
        rebalances = log.of_group(group)
        count = "1 rebalance" if len(rebalances) == 1 else f"{len(rebalances)} rebalances"
        print_lines(console, [f"{group}: {count} so far"], style="bold")
        for rebalance in rebalances:
            print_lines(console, (f"  {line}" for line in rebalance_lines(rebalance, log)))


def rebalances_document(log: RebalanceLog, groups: Sequence[str]) -> dict[str, list[object]]:
    """Return the rebalances that each group has had so far, for a JSON document."""
    # The three lengths are properties, which `asdict` leaves out.
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
    """Yield the lines about one rebalance, as in the example above."""
    started = clock(rebalance.started_us)
    yield f"{started} on {rebalance.coordinator}: {_generations_and_length(rebalance)}"
    client_ids = log.client_ids
    yield f"  because: {_reason(rebalance, client_ids)}"
    changes = []
    if rebalance.added:
        changes.append(
            f"came: {listed(_client_id(member, client_ids) for member in rebalance.added)}"
        )
    if rebalance.removed:
        removed = listed(_client_id(member, client_ids) for member in rebalance.removed)
        changes.append(f"went: {removed}{_in_brackets(rebalance.removed_because)}")
    if changes:
        yield f"  {'; '.join(changes)}"
    if rebalance.store_error is not None:
        yield f"  its assignment was not stored: {rebalance.store_error}"


def _generations_and_length(rebalance: Rebalance) -> str:
    """Return the old and the new generation, and the length of the rebalance.

    If the rebalance has no length, the text is `generation 4, not over yet`, or
    `generation 4, cut short after 0.800 s: ...`, with the event that cut the rebalance short.
    """
    generations = f"generation {rebalance.generation}"
    if rebalance.new_generation is not None:
        generations = f"{generations} to {rebalance.new_generation}"
    if rebalance.length_us is not None:
        return (
            f"{generations} in {clock_seconds(rebalance.length_us)} "
            f"(join {clock_seconds(rebalance.join_us)}, sync {clock_seconds(rebalance.sync_us)})"
        )
    if rebalance.cut_short_us is not None:
        after_us = rebalance.cut_short_us - rebalance.started_us
        return f"{generations}, cut short after {clock_seconds(after_us)}: {rebalance.cut_short_by}"
    return f"{generations}, not over yet"


def _reason(rebalance: Rebalance, client_ids: Mapping[str, str]) -> str:
    """Return why a rebalance began, and the member that caused it.

    If no single member caused it, the coordinator's explanation stands in the place of the member.
    """
    if rebalance.member is None:
        return f"{rebalance.reason} ({rebalance.cause})"
    reason = f"{rebalance.reason} of {_client_id(rebalance.member, client_ids)}"
    # A client may send its own words with a JoinGroup or LeaveGroup request.
    if rebalance.client_reason is None:
        return reason
    return f"{reason}; it says: {rebalance.client_reason}"


def _client_id(member: str, client_ids: Mapping[str, str]) -> str:
    """Return the client id of a member, or its member id if the client id is not in the trace."""
    return client_ids.get(member, member)


def _in_brackets(causes: Sequence[str]) -> str:
    """Return the causes as ` (session timeout, leave)`; "" if there are none."""
    return f" ({', '.join(causes)})" if causes else ""
