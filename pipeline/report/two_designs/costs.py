"""What one change of a group cost: requests, failures, and time without owners.

In a group on ZooKeeper, each member rebalances by itself, in one or more attempts. An attempt has
three steps: the member reads the set of members from ZooKeeper (its view), computes an assignment
(plan) from this view, and claims its own partitions. The attempt fails if another member still owns
one of these partitions. In a group with a coordinator, each rebalance leads to a new generation
with one assignment.

A change is a join or a death of members, for example. The time from a change to the group's next
change is the window of the change. What happens in the window counts as the cost of the change.
Times are microseconds on the run's clock.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from pipeline.report.report_input import Row
from pipeline.report.two_designs.sides import GroupChange, GroupSide
from pipeline.table_columns import REQUEST_PERIOD_US

REBALANCE_REQUESTS = ("FindCoordinator", "JoinGroup", "SyncGroup", "LeaveGroup", "OffsetFetch")
"""Requests to a coordinator that rebalances cause. Heartbeats and commits are left out, because
members send them anyway.
"""
FAILED = ("conflict", "exception")
"""Outcomes of an attempt that failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """What a change caused, in numbers.

    A number is None if the group has nothing of this kind. For example, a group with a coordinator
    has no reads from ZooKeeper.
    """

    plans: int
    """Number of assignments that were computed."""
    views: int
    """Number of different views from which assignments were computed. In a group with a
    coordinator, this is the number of generations."""
    failed: int
    """Number of attempts that failed. In a group with a coordinator, this is the number of
    rebalances that led to no stable generation."""
    notifications: int | None = None
    """Number of notifications that ZooKeeper sent because a watch fired."""
    reads: int | None = None
    """Number of requests that read from ZooKeeper."""
    writes: int | None = None
    """Number of requests that wrote to ZooKeeper."""
    requests: int | None = None
    """Number of requests to the coordinator."""
    conflicts: int | None = None
    """Number of claims of a partition that another member still owned."""
    members_gave_up: int | None = None
    """Number of members that had no attempt left. The setting `rebalance.max.retries` limits the
    attempts of a member."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """The cost of one change.

    A group is settled when its last attempt or rebalance before the next change has ended.
    """

    side: GroupSide
    change: GroupChange
    settled_after_us: int | None
    """Time from the change until the group was settled; None if no attempt or rebalance ended."""
    unowned_us: int
    """Sum of the times in which the partitions had no owner. The times count until the group is
    settled, or until the next change if the group is never settled."""
    longest_unowned_us: int
    """The longest time in which a single partition had no owner."""
    partitions_given_up: int
    """Number of partitions that living members gave up. Partitions of members that died or were
    stopped do not count."""
    counts: Counts

    @property
    def all_requests(self) -> int:
        """Number of all requests that the change caused, to ZooKeeper or to the coordinator."""
        counts = self.counts
        return (counts.reads or 0) + (counts.writes or 0) + (counts.requests or 0)


def costs_of(side: GroupSide) -> tuple[Cost, ...]:
    """Return the cost of each change of a group."""
    return tuple(_cost(side, change) for change in side.changes)


def _cost(side: GroupSide, change: GroupChange) -> Cost:
    """Measure what a change cost a group."""
    if side.design == "zookeeper":
        attempts = _begun_in_window(change, side.rows("zookeeper_attempts"))
        ends_us = [row["ended_us"] for row in attempts]
        counts = _zookeeper_counts(side, change, attempts)
    else:
        rebalances = _begun_in_window(change, side.rows("rebalances"))
        ends_us = [row["stable_us"] for row in rebalances]
        counts = _coordinator_counts(side, change, rebalances)

    # `covers` is False for an end that is unknown (None), or later than the next change.
    settled_us = max((end_us for end_us in ends_us if change.covers(end_us)), default=None)
    until_us = change.until_us if settled_us is None else settled_us
    gaps_us = list(_times_without_owner_us(side, change.at_us, until_us))
    return Cost(
        side=side,
        change=change,
        settled_after_us=None if settled_us is None else settled_us - change.at_us,
        unowned_us=sum(gaps_us),
        longest_unowned_us=max(gaps_us, default=0),
        partitions_given_up=sum(
            row["ended_by"] in ("revoked", "lost", "reassigned") and change.covers(row["to_us"])
            for row in side.rows("ownership")
        ),
        counts=counts,
    )


def _begun_in_window(change: GroupChange, rows: Iterable[Row]) -> list[Row]:
    """Return the attempts or rebalances that began in the window of a change."""
    return [row for row in rows if change.covers(row["started_us"])]


def _zookeeper_counts(side: GroupSide, change: GroupChange, attempts: list[Row]) -> Counts:
    """Count what a change caused in a group on ZooKeeper."""
    operations = side.rows("zookeeper_operations")
    views = [tuple(row["view"]) for row in attempts if row["view"] is not None]
    return Counts(
        plans=len(views),
        views=len(set(views)),
        failed=sum(row["outcome"] in FAILED for row in attempts),
        notifications=sum(change.covers(row["fired_us"]) for row in side.rows("zookeeper_watches")),
        reads=_requests(change, (row for row in operations if row["effect"] == "read")),
        writes=_requests(change, (row for row in operations if row["effect"] == "write")),
        conflicts=sum(row["conflicts"] for row in attempts),
        members_gave_up=sum(row["gave_up"] is not None for row in attempts),
    )


def _coordinator_counts(side: GroupSide, change: GroupChange, rebalances: list[Row]) -> Counts:
    """Count what a change caused in a group with a coordinator."""
    requests = (
        row for row in side.rows("coordinator_requests") if row["api"] in REBALANCE_REQUESTS
    )
    # `new_generation` is None for a rebalance that led to no generation.
    generations = {row["new_generation"] for row in rebalances} - {None}
    return Counts(
        plans=len(generations),
        views=len(generations),
        failed=sum(row["stable_us"] is None for row in rebalances),
        requests=_requests(change, requests),
    )


def _requests(change: GroupChange, rows: Iterable[Row]) -> int:
    """Return the number of requests of a change, from rows that count the requests of one period.

    A period is a tenth of a second. For example, the change comes at 5.04 s. The row of the period
    from 5.0 s to 5.1 s does not tell which of its requests came before the change, so all requests
    of this period count.
    """
    first_period_us = change.at_us - change.at_us % REQUEST_PERIOD_US
    end_period_us = change.until_us - change.until_us % REQUEST_PERIOD_US
    return sum(row["requests"] for row in rows if first_period_us <= row["from_us"] < end_period_us)


def _times_without_owner_us(side: GroupSide, from_us: int, until_us: int) -> Iterator[int]:
    """Yield how long each partition had no owner between two moments; nothing for a time of 0."""
    spans_by_partition: dict[str, list[tuple[int, int]]] = {}
    for row in side.rows("ownership"):
        to_us = side.end_us if row["to_us"] is None else row["to_us"]
        spans_by_partition.setdefault(row["partition"], []).append((row["from_us"], to_us))

    for spans in spans_by_partition.values():
        # Add up the holes between the times with an owner. The times of two owners can overlap. So
        # a hole begins when all earlier times with an owner have ended (`owned_until_us`).
        owned_until_us = from_us
        gap_us = 0
        for start_us, end_us in sorted(spans):
            if start_us > owned_until_us:
                gap_us += max(0, min(start_us, until_us) - owned_until_us)
            owned_until_us = max(owned_until_us, min(end_us, until_us))
        gap_us += max(0, until_us - owned_until_us)
        if gap_us:
            yield gap_us
