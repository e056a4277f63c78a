"""The cost of one change for a group: time without owners, notifications, requests, failures.

- A group on ZooKeeper rebalances by attempts. In an attempt, a member reads a view (the set of
  members), computes an assignment from it, and claims its own partitions.
- A group with a coordinator has one assignment for each generation (number of its rebalance).
- A side is one group of one run.
- A change is a moment at which members of the group join, or a fault hits. What happens until the
  next change belongs to it.

Times are microseconds of the run's clock.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from pipeline.report.report_input import Row
from pipeline.report.two_designs.sides import GroupChange, GroupSide

OF_REBALANCES = ("FindCoordinator", "JoinGroup", "SyncGroup", "LeaveGroup", "OffsetFetch")
"""Requests to a coordinator that rebalances cause. Heartbeats and commits are not among them,
because members send these anyway.
"""
FAILED = ("conflict", "exception")
"""Outcomes of a failed attempt."""
STEP_US = 100_000
"""Length of the steps in which `zookeeper_operations` and `coordinator_requests` count requests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Numbers of the actions that a change caused.

    A number is None if the group's design has no such action.
    """

    plans: int
    """Assignments that were computed."""
    views: int
    """Different views from which assignments were computed. With a coordinator: generations."""
    failed: int
    """Attempts with a conflict or an exception. With a coordinator: rebalances without a stable
    generation.
    """
    notifications: int | None = None
    """Events of ZooKeeper's watches. `reads` and `writes` are the requests to ZooKeeper."""
    reads: int | None = None
    writes: int | None = None
    requests: int | None = None
    """Requests to the coordinator."""
    conflicts: int | None = None
    """Claims of a partition that another member still owned."""
    gave_up: int | None = None
    """Members whose rebalance failed in its last attempt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """The cost of one change, up to the group's next change.

    - `settled_us`: time from the change until the group is settled, which is the end of its last
      attempt or rebalance; None if no attempt or rebalance ended.
    - `unowned_us`: time without an owner until the group is settled, added up over the partitions.
      If the group never is settled, the time counts until its next change.
    - `longest_unowned_us`: the longest time without an owner of one partition.
    - `given_up`: number of partitions that living members gave up.
    """

    side: GroupSide
    change: GroupChange
    settled_us: int | None
    unowned_us: int
    longest_unowned_us: int
    given_up: int
    counts: Counts

    @property
    def asked(self) -> int:
        """Number of all requests that the change caused, to ZooKeeper or to the coordinator."""
        counts = self.counts
        return (counts.reads or 0) + (counts.writes or 0) + (counts.requests or 0)


def costs_of(side: GroupSide) -> tuple[Cost, ...]:
    """Return the cost of each change of a group."""
    return tuple(_cost(side, change) for change in side.changes)


def _cost(side: GroupSide, change: GroupChange) -> Cost:
    """Measure a change from its moment until the group was settled, or until the next change."""
    on_zookeeper = side.design == "zookeeper"
    rounds = _attempts(side, change) if on_zookeeper else _rebalances(side, change)
    ends_us = [row["ended_us" if on_zookeeper else "stable_us"] for row in rounds]
    # `covers` is False for an end that is unknown (None), or later than the next change.
    ends_in_time_us = [end_us for end_us in ends_us if change.covers(end_us)]
    settled_us = max(ends_in_time_us, default=None)
    until_us = change.until_us if settled_us is None else settled_us
    gaps = list(_gaps(side, change.at_us, until_us))
    return Cost(
        side=side,
        change=change,
        settled_us=None if settled_us is None else settled_us - change.at_us,
        unowned_us=sum(gaps),
        longest_unowned_us=max(gaps, default=0),
        given_up=sum(
            row["ended_by"] in ("revoked", "lost", "reassigned") and change.covers(row["to_us"])
            for row in side.rows("ownership")
        ),
        counts=(
            _zookeeper_counts(side, change, rounds)
            if on_zookeeper
            else _coordinator_counts(side, change, rounds)
        ),
    )


def _zookeeper_counts(side: GroupSide, change: GroupChange, attempts: list[Row]) -> Counts:
    """Count requests, notifications and plans of a change on ZooKeeper."""
    watches = (row["fired_us"] for row in side.rows("zookeeper_watches"))
    operations = side.rows("zookeeper_operations")
    views = [tuple(row["view"]) for row in attempts if row["view"] is not None]
    return Counts(
        plans=len(views),
        views=len(set(views)),
        failed=sum(row["outcome"] in FAILED for row in attempts),
        notifications=sum(change.covers(at_us) for at_us in watches),
        reads=_requests(change, (row for row in operations if row["effect"] == "read")),
        writes=_requests(change, (row for row in operations if row["effect"] == "write")),
        conflicts=sum(row["conflicts"] for row in attempts),
        gave_up=sum(row["gave_up"] is not None for row in attempts),
    )


def _coordinator_counts(side: GroupSide, change: GroupChange, rebalances: list[Row]) -> Counts:
    """Count requests and plans of a change with a group coordinator."""
    requests = (row for row in side.rows("coordinator_requests") if row["api"] in OF_REBALANCES)
    # A rebalance that another rebalance cut short has no new generation (None).
    generations = {row["new_generation"] for row in rebalances} - {None}
    return Counts(
        plans=len(generations),
        views=len(generations),
        failed=sum(row["stable_us"] is None for row in rebalances),
        requests=_requests(change, requests),
    )


def _attempts(side: GroupSide, change: GroupChange) -> list[Row]:
    """Return the attempts that began between a change and the next change."""
    return [row for row in side.rows("zookeeper_attempts") if change.covers(row["started_us"])]


def _rebalances(side: GroupSide, change: GroupChange) -> list[Row]:
    """Return the rebalances that began between a change and the next change."""
    return [row for row in side.rows("rebalances") if change.covers(row["started_us"])]


def _requests(change: GroupChange, rows: Iterable[Row]) -> int:
    """Return the number of requests of a change, from rows that count them in steps of STEP_US.

    A row does not tell which requests of its step came before the change. So all requests of the
    step in which the change came count.
    """
    from_us, until_us = (at_us - at_us % STEP_US for at_us in (change.at_us, change.until_us))
    return sum(row["requests"] for row in rows if from_us <= row["from_us"] < until_us)


def _gaps(side: GroupSide, from_us: int, until_us: int) -> Iterator[int]:
    """Yield the time without an owner between two moments, for each partition with such a time."""
    spans_by_partition: dict[str, list[tuple[int, int]]] = {}
    for row in side.rows("ownership"):
        to_us = side.end_us if row["to_us"] is None else row["to_us"]
        spans_by_partition.setdefault(row["partition"], []).append((row["from_us"], to_us))

    for spans in spans_by_partition.values():
        # Add up the holes between the times with an owner; those times can overlap.
        owned_until_us, gap_us = from_us, 0
        for start_us, end_us in sorted(spans):
            if start_us > owned_until_us:
                gap_us += max(0, min(start_us, until_us) - owned_until_us)
            owned_until_us = max(owned_until_us, min(end_us, until_us))
        gap_us += max(0, until_us - owned_until_us)
        if gap_us:
            yield gap_us
